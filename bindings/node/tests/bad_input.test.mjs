// Mistakes of the caller: told in JavaScript's own kind of error, before anything is sent.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { connect, InvalidArgumentError, InvalidConfigError, PolylatchError, TokenGate } from 'polylatch';

const client = await connect('memory:bad-input');
after(() => client.close());

const order = { name: 'a', expected: 1n, by: 'me@here', reason: 'because' };

const wrongTypes = [
  [
    'a signal that is none',
    () => client.lock('a').acquire({ signal: {} }),
    /signal must be an AbortSignal, not a value of type object/,
  ],
  [
    'an option of the lock for its acquisition',
    () => client.lock('a').acquire({ lease: 5_000 }),
    /no option "lease" here \(client.lock\(name, \{ lease \}\) takes it\); there are signal/,
  ],
  ['call options that are a number', () => client.lock('a').tryAcquire(5), /options must be an object/],
  ['a misspelt option of a section', () => client.withLock('a', { leese: 1 }, () => {}), /no option "leese"/],
  ['no work', () => client.withLock('a'), /the work under the lock must be a function/],
  ['work that is none', () => client.withLock('a', {}, 7), /must be a function/],
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

  const named = [
    [
      'a name that is a number',
      () => client.lock(7),
      /the lock name must be a string, not a value of type number/,
    ],
    ['no name', () => client.lock(), /the lock name must be a string/],
    ['a null name', () => client.rwLock(null), /not null/],
    ['options that are a number', () => client.lock('a', 5_000), /options must be an object/],
    ['options that are null', () => client.lock('a', null), /options must be an object, not null/],
    ['options that are an array', () => client.rwLock('a', []), /not an array/],
    ['a lease that is a text', () => client.lock('a', { lease: '5s' }), /lease must be a number/],
    ['a bigint lease', () => client.semaphore('a', 1, { lease: 5_000n }), /lease must be a number/],
    ['a label that is an object', () => client.lockAll(['a'], { label: {} }), /label must be a string/],
    ['fifo that is a number', () => client.lock('a', { fifo: 1 }), /fifo must be a boolean/],
    [
      'a signal, which ends a wait',
      () => client.lock('a', { signal: AbortSignal.abort() }),
      /no option "signal" here \(it ends a wait, so acquire\(\{ signal \}\) takes it\)/,
    ],
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
    ['names that are one text', () => client.lockAll('ab'), /must be an array of strings/],
    ['names that are numbers', () => client.lockAll([1]), /a lock name must be a string/],
    ['a capacity that is a text', () => client.semaphore('a', '2'), /permits must be a number/],
    ['a count that is a text', () => client.semaphore('a', 2).permits('2'), /permits must be a number/],
    ['a token that is a number', () => new TokenGate(1), /must be a bigint/],
  ];
  for (const [what, work, message] of named) {
    test(`${what} is refused at once, where the lock is named`, () =>
      assert.throws(work, (error) => {
        assert.ok(error instanceof TypeError, String(error));
        assert.deepEqual([error.code, error.retry, error.effect], ['invalid_argument', 'never', 'none']);
        assert.match(error.message, message);
        return true;
      }));
  }
});

const noLength = [
  [
    'a negative lease',
    () => client.lock('a', { lease: -1 }),
    /lease is -1 milliseconds; it must be zero or more/,
  ],
  ['a huge lease', () => client.lock('a', { lease: 1e300 }), /at most a hundred years/],
  ['a lease that is no number', () => client.rwLock('a', { lease: Number.NaN }), /finite number/],
  [
    'an infinite lease',
    () => client.lock('a', { lease: Number.POSITIVE_INFINITY }),
    /lease is inf.* finite number/i,
  ],
  ['a negative wait', () => client.lockAll(['a'], { wait: -5 }), /wait is -5 milliseconds/],
  ['a negative hold limit', () => client.lock('a', { maxHold: -5 }), /maxHold is -5 milliseconds/],
  ['a beat that is no number', () => client.semaphore('a', 2, { beatEvery: Number.NaN }), /beatEvery is NaN/],
  ['a negative number of permits', () => client.semaphore('a', -1), /permits is -1; .*whole number/],
  ['a huge number of permits', () => client.semaphore('a', 1e15), /whole number/],
  [
    'half a permit',
    () => client.semaphore('a', 2).permits(0.5),
    /count is 0.5; it must be a whole number, zero or more/,
  ],
];

const outOfRange = [
  ['a tiny lease', () => client.lock('a', { lease: 1 }).acquire(), /lease is 1ms; it must be between/],
  ['a wait beyond a year', () => client.lock('a', { wait: 1e12 }).acquire(), /wait is/],
  ['a hold limit of nothing', () => client.lock('a', { maxHold: 0 }).acquire(), /maxHold is/],
  ['a beat of nothing', () => client.lock('a', { beatEvery: 0 }).acquire(), /beatEvery is/],
  [
    'a lease kept for nothing',
    () => client.lock('a', { keepIdle: 0 }).acquire(),
    /keepIdle is 0ns; it must be/,
  ],
  [
    'a kept lease of one owner',
    () => client.lock('a', { keepIdle: 1_000, owner: 'me' }).acquire(),
    /keepIdle lets one lease serve/,
  ],
  [
    'a limit on what is not renewed',
    () => client.lock('a', { renew: false, maxHold: 5_000 }).tryAcquire(),
    /maxHold limits/,
  ],
  ['an empty name', () => client.lock('').acquire(), /empty/],
  ['a long name', () => client.lock('x'.repeat(513)).acquire(), /513 bytes/],
  ['a name with a line break', () => client.lock('a\nb').tryAcquire(), /control character/],
  ['a long label', () => client.lock('a', { label: 'x'.repeat(257) }).acquire(), /257 bytes/],
  ['an empty owner', () => client.lock('a', { owner: '' }).acquire(), /owner id has 0 bytes/],
  ['no names', () => client.lockAll([]).acquire(), /no locks/],
  ['no permits', () => client.semaphore('a', 0).acquire(), /0 permits/],
  ['half a permit', () => client.semaphore('a', 2).acquire(0.5), /count is 0.5; it must be a whole number/],
  ['more permits than there are', () => client.semaphore('a', 2).acquire(3), /3 permits/],
  ['a break without an author', () => client.breakLease({ ...order, by: ' ' }), /author/],
];

function isInvalidArgument(error, message) {
  assert.ok(error instanceof InvalidArgumentError && error instanceof PolylatchError, String(error));
  assert.deepEqual([error.code, error.retry, error.effect], ['invalid_argument', 'never', 'none']);
  assert.match(error.message, message);
  return true;
}

describe('values out of their range are an InvalidArgumentError', () => {
  for (const [what, work, message] of noLength) {
    test(`${what}, at once, where the lock is named`, () =>
      assert.throws(work, (error) => isInvalidArgument(error, message)));
  }
  for (const [what, work, message] of outOfRange) {
    test(what, () => assert.rejects(work(), (error) => isInvalidArgument(error, message)));
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
  const lock = client.lock('fine', { lease: undefined, wait: Number.POSITIVE_INFINITY });
  const guard = await lock.acquire({ signal: undefined });
  await guard.release();
});
