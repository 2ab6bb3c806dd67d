// Mistakes of the caller: told in JavaScript's own kind of error, before anything is sent.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { connect, InvalidArgumentError, InvalidConfigError, PolylatchError, TokenGate } from 'polylatch';

const client = await connect('memory:bad-input');
after(() => client.close());

const order = { name: 'a', expected: 1n, by: 'me@here', reason: 'because' };

const wrongTypes = [
  [
    'a name that is a number',
    () => client.lock(7),
    /the lock name must be a string, not a value of type number/,
  ],
  ['no name', () => client.lock(), /the lock name must be a string/],
  ['a null name', () => client.tryLock(null), /not null/],
  ['options that are a number', () => client.lock('a', 5_000), /options must be an object/],
  ['options that are null', () => client.lock('a', null), /options must be an object, not null/],
  ['options that are an array', () => client.lock('a', []), /not an array/],
  ['a lease that is a text', () => client.lock('a', { lease: '5s' }), /lease must be a number/],
  ['a bigint lease', () => client.lock('a', { lease: 5_000n }), /lease must be a number/],
  ['a label that is an object', () => client.lock('a', { label: {} }), /label must be a string/],
  ['fifo that is a number', () => client.lock('a', { fifo: 1 }), /fifo must be a boolean/],
  ['a signal that is none', () => client.lock('a', { signal: {} }), /signal must be an AbortSignal/],
  [
    'a misspelt option',
    () => client.lock('a', { leese: 1 }),
    /no option "leese" here; there are lease, wait/,
  ],
  [
    'an option in another language’s spelling',
    () => client.lock('a', { max_hold: 1 }),
    /"max_hold".*maxHold/,
  ],
  ['an option from the prototype', () => client.lock('a', { toString: 1 }), /no option "toString"/],
  [
    'wait for a try',
    () => client.tryLock('a', { wait: 5 }),
    /no option "wait" here \(trying does not wait\)/,
  ],
  ['no work', () => client.withLock('a'), /the work under the lock must be a function/],
  ['work that is none', () => client.withLock('a', {}, 7), /must be a function/],
  ['names that are one text', () => client.lockAll('ab'), /must be an array of strings/],
  ['names that are numbers', () => client.lockAll([1]), /a lock name must be a string/],
  ['permits that are a text', () => client.semaphore('a', 2).acquire('1'), /permits must be a number/],
  [
    'an unknown query',
    () => client.inspect({ nam: 'a' }),
    /no option "nam" here; there are name, prefix, limit/,
  ],
  ['a limit that is broken', () => client.inspect({ limit: 1.5 }), /limit must be a whole number/],
  [
    'a token that is a number',
    () => client.breakLease({ ...order, expected: 1 }),
    /expected must be a bigint/,
  ],
  ['a negative token', () => client.breakLease({ ...order, expected: -1n }), /0 to 2\^64/],
  [
    'a break without a reason',
    () => client.breakLease({ ...order, reason: undefined }),
    /reason must be a string/,
  ],
  ['a URL that is an object', () => connect(new URL('redis://localhost')), /the URL must be a string/],
  ['connect options that are a text', () => connect('memory:', 'lease=5s'), /options must be an object/],
  [
    'a connect option that is an object',
    () => connect('memory:', { lease: {} }),
    /lease must be a number, a string/,
  ],
  ['a program that is a number', () => connect('memory:', { program: 1 }), /program must be a string/],
];

describe('wrong types and unknown options are a TypeError', () => {
  for (const [what, work, message] of wrongTypes) {
    test(what, () =>
      assert.rejects(work(), (error) => {
        assert.ok(error instanceof TypeError, String(error));
        assert.equal(error.code, 'invalid_argument');
        assert.match(error.message, message);
        return true;
      }),
    );
  }

  test('where nothing is awaited, it is thrown', () => {
    assert.throws(() => client.rwLock(1), TypeError);
    assert.throws(() => client.semaphore('a', '2'), TypeError);
    assert.throws(() => new TokenGate(1), TypeError);
  });
});

const outOfRange = [
  [
    'a negative lease',
    () => client.lock('a', { lease: -1 }),
    /lease is -1 milliseconds; it must be zero or more/,
  ],
  ['a tiny lease', () => client.lock('a', { lease: 1 }), /lease is 1ms; it must be between/],
  ['a huge lease', () => client.lock('a', { lease: 1e300 }), /at most a hundred years/],
  ['a lease that is no number', () => client.lock('a', { lease: Number.NaN }), /finite number/],
  ['an infinite lease', () => client.lock('a', { lease: Number.POSITIVE_INFINITY }), /finite number/],
  ['a negative wait', () => client.lock('a', { wait: -5 }), /wait is -5 milliseconds/],
  ['a wait beyond a year', () => client.lock('a', { wait: 1e12 }), /wait is/],
  ['a hold limit of nothing', () => client.lock('a', { maxHold: 0 }), /maxHold is/],
  ['a beat of nothing', () => client.lock('a', { beatEvery: 0 }), /beatEvery is/],
  [
    'a limit on what is not renewed',
    () => client.lock('a', { renew: false, maxHold: 5_000 }),
    /maxHold limits/,
  ],
  ['an empty name', () => client.lock(''), /empty/],
  ['a long name', () => client.lock('x'.repeat(513)), /513 bytes/],
  ['a name with a line break', () => client.lock('a\nb'), /control character/],
  ['a long label', () => client.lock('a', { label: 'x'.repeat(257) }), /257 bytes/],
  ['an empty owner', () => client.lock('a', { owner: '' }), /owner id has 0 bytes/],
  ['no names', () => client.lockAll([]), /no locks/],
  ['no permits', () => client.semaphore('a', 0).acquire(), /0 permits/],
  ['a negative number of permits', () => client.semaphore('a', -1).acquire(), /whole number/],
  ['half a permit', () => client.semaphore('a', 2).acquire(0.5), /count is 0.5; it must be a whole number/],
  ['more permits than there are', () => client.semaphore('a', 2).acquire(3), /3 permits/],
  ['a huge number of permits', () => client.semaphore('a', 1e15).acquire(), /whole number/],
  ['a break without an author', () => client.breakLease({ ...order, by: ' ' }), /author/],
];

describe('values out of their range are an InvalidArgumentError', () => {
  for (const [what, work, message] of outOfRange) {
    test(what, () =>
      assert.rejects(work(), (error) => {
        assert.ok(error instanceof InvalidArgumentError && error instanceof PolylatchError, String(error));
        assert.deepEqual([error.code, error.retry, error.effect], ['invalid_argument', 'never', 'none']);
        assert.match(error.message, message);
        return true;
      }),
    );
  }
});

const badConfig = [
  ['an unknown scheme', () => connect('nosuch:x'), /scheme "nosuch" is unknown/],
  ['no scheme', () => connect('locks.db'), /has no scheme/],
  [
    'an unknown option of the store',
    () => connect('memory:', { leese: 5 }),
    /knows no option "leese".*lease/,
  ],
  ['a negative length of time', () => connect('memory:', { lease: -1 }), /lease is -1 milliseconds/],
  ['a lease out of its range', () => connect('memory:', { lease: 1 }), /lease/],
  ['a text without a unit', () => connect('memory:', { lease: '5' }), /no unit/],
  ['an option that is given twice', () => connect('memory:?lease=5s', { lease: 5_000 }), /twice/],
  ['no number', () => connect('memory:', { nope: Number.NaN }), /finite number/],
];

describe('what is wrong with a client’s options is an InvalidConfigError', () => {
  for (const [what, work, message] of badConfig) {
    test(what, () =>
      assert.rejects(work(), (error) => {
        assert.ok(error instanceof InvalidConfigError, String(error));
        assert.match(error.message, message);
        return true;
      }),
    );
  }
});

test('a password is not told', () =>
  assert.rejects(connect('redis://:hush-hush@127.0.0.1:1?timeout=200ms'), (error) => {
    assert.ok(error instanceof PolylatchError);
    assert.doesNotMatch(`${error.stack}${JSON.stringify(error)}`, /hush/);
    return true;
  }));

test('nothing of all this is held', async () => {
  assert.deepEqual((await client.inspect({})).locks, []);
});

test('options that are undefined count as not given, and an infinite wait as the default', async () => {
  const guard = await client.lock('fine', {
    lease: undefined,
    wait: Number.POSITIVE_INFINITY,
    signal: undefined,
  });
  await guard.release();
});
