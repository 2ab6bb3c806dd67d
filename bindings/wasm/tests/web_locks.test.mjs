// Locks in the shape of the browser's own.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { connect, LeaseLostError } from 'polylatch-wasm';

import { eventually, unique } from './node-stores.mjs';

const store = `memory:${unique('web-locks')}`;
const [one, other] = await Promise.all([connect(store), connect(store)]);
after(() => Promise.all([one.close(), other.close()]));

test('a callback runs under the lock, and its result comes back', async () => {
  const name = unique('a');
  const result = await one.locks.request(name, async (lock) => {
    assert.deepEqual([lock.name, lock.mode], [name, 'exclusive']);
    assert.ok(lock.fencingToken > 0n && !lock.signal.aborted);
    assert.equal(await other.locks.request(name, { ifAvailable: true }, (lock) => lock), null);
    return 'done';
  });
  assert.equal(result, 'done');
  assert.equal(await other.locks.request(name, { ifAvailable: true }, (lock) => lock.mode), 'exclusive');
});

test('what a callback throws comes back, and the lock is free', async () => {
  const name = unique('throws');
  const thrown = new Error('on purpose');
  await assert.rejects(
    one.locks.request(name, () => {
      throw thrown;
    }),
    (error) => error === thrown,
  );
  await other.locks.request(name, { ifAvailable: true }, (lock) => assert.ok(lock));
});

test('shared locks go together, and query tells who holds and who waits', async () => {
  const name = unique('shared');
  let letGo;
  const open = new Promise((resolve) => {
    letGo = resolve;
  });
  const readers = [one, other].map((client) => client.locks.request(name, { mode: 'shared' }, () => open));
  const of = async () => {
    const { held, pending } = await one.locks.query();
    return {
      held: held.filter((lock) => lock.name === name),
      pending: pending.filter((lock) => lock.name === name),
    };
  };
  await eventually('both read', async () => (await of()).held.length === 2);
  const writer = other.locks.request(name, (lock) => lock.mode);
  await eventually('one waits', async () => (await of()).pending.length === 1);
  const { held, pending } = await of();
  assert.deepEqual([...new Set(held.map((lock) => lock.mode))], ['shared']);
  assert.deepEqual(pending, [{ name, mode: 'exclusive', clientId: other.id }]);
  letGo();
  await Promise.all(readers);
  assert.equal(await writer, 'exclusive');
});

test('a signal ends the wait', async () => {
  const name = unique('signal');
  await one.locks.request(name, async () => {
    const controller = new AbortController();
    const waiting = other.locks.request(name, { signal: controller.signal }, () => assert.fail('it is held'));
    const reason = new Error('enough');
    controller.abort(reason);
    await assert.rejects(waiting, (error) => error === reason);
  });
});

test('a stolen lock is told to whom it was stolen from, and goes before those who wait', async () => {
  const name = unique('steal');
  const order = [];
  let others;
  const robbed = one.locks.request(name, async (lock) => {
    const waiting = one.locks.request(name, () => order.push('waiter'));
    await eventually('one waits', async () => (await one.inspect({ name })).locks[0].waiters.length === 1);
    const thief = other.locks.request(name, { steal: true }, () => order.push('thief'));
    others = Promise.all([waiting, thief]);
    await new Promise((resolve) => lock.signal.addEventListener('abort', resolve));
    assert.equal(lock.signal.reason.reason, 'broken');
  });
  await assert.rejects(robbed, { name: 'AbortError' });
  await others;
  assert.deepEqual(order.sort(), ['thief', 'waiter']);
});

test('whose lock is stolen is told while its callback still runs', async () => {
  const name = unique('pending');
  let begun;
  const runs = new Promise((resolve) => {
    begun = resolve;
  });
  // Its callback never ends.
  const robbed = one.locks.request(name, () => {
    begun();
    return new Promise(() => {});
  });
  await runs;
  const thief = other.locks.request(name, { steal: true }, (lock) => lock.mode);
  await assert.rejects(
    robbed,
    (error) => error.name === 'AbortError' && error.cause instanceof LeaseLostError,
  );
  assert.equal(await thief, 'exclusive');
});

test('what does not go together is a TypeError', async () => {
  for (const [options, message] of [
    [{ mode: 'both' }, /exclusive/],
    [{ steal: true, ifAvailable: true }, /steal/],
    [{ steal: true, mode: 'shared' }, /steal/],
    [{ steal: true, signal: new AbortController().signal }, /signal/],
    [{ nope: 1 }, /no option "nope"/],
    [{ ifAvailable: 1 }, /boolean/],
  ]) {
    await assert.rejects(
      one.locks.request('a', options, () => assert.fail('it ran')),
      (error) => error instanceof TypeError && message.test(error.message),
    );
  }
  await assert.rejects(one.locks.request('a', {}, 1), TypeError);
  await assert.rejects(
    one.locks.request(1, () => {}),
    TypeError,
  );
});
