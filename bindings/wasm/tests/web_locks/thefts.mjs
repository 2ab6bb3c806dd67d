// Thefts, signals, snapshots and several clients.

import { assert, equal, hold, isFree, never, of, rejection, rejects, until } from './checks.mjs';

const all = [];
const check = (what, run) => all.push({ what, run });

// steal

check('a free lock may be stolen', async ({ locks, name }) => {
  equal(
    await locks.request(name, { steal: true }, (lock) => [lock.name, lock.mode]),
    [name, 'exclusive'],
    'the lock',
  );
});

check('a theft rejects the request of the holder while its callback runs', async ({ locks, name }) => {
  const { done, end } = await hold(locks, name);
  const thief = hold(locks, name, { steal: true });
  await rejects(done, 'AbortError', 'the robbed one');
  const { release } = await thief;
  // What the robbed callback does now changes nothing.
  end.resolve('too late');
  await rejects(done, 'AbortError', 'the robbed one afterwards');
  equal((await of(locks, name)).held.length, 1, 'holders');
  equal(await isFree(locks, name), false, 'free although the thief holds it');
  equal(await release('booty'), 'booty', 'the result of the thief');
});

check('a theft rejects all who share the lock', async ({ locks, name }) => {
  const held = await Promise.all([1, 2, 3].map(() => hold(locks, name, { mode: 'shared' })));
  const { release } = await hold(locks, name, { steal: true });
  for (const { done } of held) await rejects(done, 'AbortError', 'a robbed one');
  await release();
});

check('a thief enters before all who wait, and these keep their order', async ({ locks, name }) => {
  const first = await hold(locks, name);
  const order = [];
  const waiting = Array.from({ length: 12 }, (_, at) => locks.request(name, () => order.push(at)));
  await until('all wait', async () => (await of(locks, name)).pending.length === 12);
  const thief = await hold(locks, name, { steal: true });
  await rejects(first.done, 'AbortError', 'the robbed one');
  equal(order, [], 'who entered beside the thief');
  equal((await of(locks, name)).pending.length, 12, 'how many wait');
  await thief.release();
  await Promise.all(waiting);
  equal(
    order,
    waiting.map((_, at) => at),
    'the order',
  );
});

check('the last thief has the lock', async ({ locks, name }) => {
  const thieves = [1, 2, 3, 4].map(() => hold(locks, name, { steal: true }));
  const last = await thieves.pop();
  for (const thief of thieves) {
    const { done } = await thief.catch((error) => ({ done: Promise.reject(error) }));
    await rejects(done, 'AbortError', 'an earlier thief');
  }
  equal((await of(locks, name)).held.length, 1, 'holders');
  await last.release();
});

check('options that exclude each other are not supported', async ({ locks, name }) => {
  const { signal } = new AbortController();
  for (const options of [
    { steal: true, ifAvailable: true },
    { steal: true, mode: 'shared' },
    { steal: true, signal },
    { ifAvailable: true, signal },
    { steal: true, signal: AbortSignal.abort() },
  ]) {
    await rejects(locks.request(name, options, never), 'NotSupportedError', JSON.stringify(options));
  }
  equal(
    await locks.request(name, { steal: false, ifAvailable: false, signal }, () => 1),
    1,
    'what goes together',
  );
  equal((await of(locks, name)).held, [], 'who holds it');
});

// signal

check('a signal must be an AbortSignal', async ({ locks, name }) => {
  for (const signal of ['text', 12.5, false, {}, () => {}, null, globalThis]) {
    await rejects(locks.request(name, { signal }, never), 'TypeError', `the signal ${String(signal)}`);
  }
});

check('a signal that is aborted already rejects with its reason', async ({ locks, name }) => {
  await rejects(
    locks.request(name, { signal: AbortSignal.abort() }, never),
    'AbortError',
    'without a reason',
  );
  for (const reason of [new Error('enough'), 'a text', { name: 'an object' }]) {
    const { error } = await rejection(locks.request(name, { signal: AbortSignal.abort(reason) }, never));
    assert(error === reason, `it rejects with ${error}`);
  }
});

check('a signal ends a wait with its reason, and those behind go on', async ({ locks, name }) => {
  for (const reason of [undefined, new Error('enough'), 'a text']) {
    const first = await hold(locks, name);
    const order = [];
    const controller = new AbortController();
    const before = locks.request(name, () => order.push('before'));
    const ended = locks.request(name, { signal: controller.signal }, never);
    const behind = locks.request(name, () => order.push('behind'));
    await until('all wait', async () => (await of(locks, name)).pending.length === 3);
    controller.abort(reason);
    assert((await rejection(ended)).error === controller.signal.reason, 'another reason came back');
    await until('it has left the queue', async () => (await of(locks, name)).pending.length === 2);
    await first.release();
    await Promise.all([before, behind]);
    equal(order, ['before', 'behind'], 'the order');
  }
});

check('an abort right after the request ends it, also if the lock is free', async ({ locks, name }) => {
  const controller = new AbortController();
  const ended = locks.request(name, { signal: controller.signal }, never);
  const next = locks.request(name, () => 'next');
  controller.abort();
  await rejects(ended, 'AbortError', 'the request');
  equal(await next, 'next', 'the next request');
});

check('an abort after the grant changes nothing', async ({ locks, name }) => {
  const [during, afterwards] = [new AbortController(), new AbortController()];
  const one = await hold(locks, name, { signal: during.signal });
  during.abort();
  equal(await isFree(locks, name), false, 'free after the abort');
  equal(await one.release('result'), 'result', 'the result');
  const other = await hold(locks, name, { signal: afterwards.signal });
  const released = other.release('result');
  afterwards.abort();
  equal(await released, 'result', 'the result');
});

// query

check('a snapshot lists who holds and who waits, with name, mode and client', async ({ locks, name }) => {
  const snapshot = await locks.query();
  assert(Array.isArray(snapshot.held) && Array.isArray(snapshot.pending), 'held and pending are no arrays');
  equal(await of(locks, name), { held: [], pending: [] }, 'before');
  const held = [await hold(locks, name, { mode: 'shared' }), await hold(locks, name, { mode: 'shared' })];
  const waiting = ['exclusive', 'shared', 'exclusive'].map((mode) => hold(locks, name, { mode }));
  await until('they wait', async () => (await of(locks, name)).pending.length === 3);
  const now = await of(locks, name);
  equal(
    now.held.map((lock) => lock.mode),
    ['shared', 'shared'],
    'held',
  );
  equal(
    now.pending.map((lock) => lock.mode),
    ['exclusive', 'shared', 'exclusive'],
    'pending, in order',
  );
  for (const lock of [...now.held, ...now.pending]) {
    equal(Object.keys(lock).sort(), ['clientId', 'mode', 'name'], 'the fields');
    assert(typeof lock.clientId === 'string' && lock.clientId !== '', 'the client has no id');
    equal(lock.clientId, now.held[0].clientId, 'the id of the same client');
  }
  await Promise.all(held.map(({ release }) => release()));
  for (const each of waiting) await (await each).release();
  equal(now.held.length, 2, 'a snapshot afterwards');
  equal(await of(locks, name), { held: [], pending: [] }, 'afterwards');
});

// several clients

check('clients exclude each other, and have ids of their own', async ({ locks, name, other }) => {
  const client = await other();
  const [one, two] = [await hold(locks, name), await hold(client.locks, `${name}/2`)];
  equal(await isFree(client.locks, name), false, 'free for the other one');
  // Each waits for what the other one holds: a snapshot shows the ring.
  const [first, second] = [hold(locks, `${name}/2`), hold(client.locks, name)];
  const ids = async () => {
    const [here, there] = [await of(locks, name), await of(locks, `${name}/2`)];
    return [here, there].map(({ held, pending }) => [held[0]?.clientId, pending[0]?.clientId]);
  };
  await until('both wait', async () => (await ids()).flat().every((id) => id !== undefined));
  const [[holder, waiter], [otherHolder, otherWaiter]] = await ids();
  equal([holder, waiter], [otherWaiter, otherHolder], 'the ring');
  assert(holder !== waiter, 'both have one id');
  await Promise.all([one.release(), two.release()]);
  await Promise.all([first, second].map(async (each) => (await each).release()));
  await client.end();
});

check(
  'what a client holds is released when it ends, and its requests are gone',
  async ({ locks, name, other }) => {
    const [holds, waits] = [await other(), await other()];
    await hold(holds.locks, name);
    waits.locks.request(name, never).catch(() => {});
    await until('it waits', async () => (await of(locks, name)).pending.length === 1);
    const next = hold(locks, name);
    await until('two wait', async () => (await of(locks, name)).pending.length === 2);
    await waits.end();
    await holds.end();
    await (await next).release();
    await until('nothing is left', async () => (await of(locks, name)).pending.length === 0);
  },
);

check('a lock is stolen from another client', async ({ locks, name, other }) => {
  const client = await other();
  const { done } = await hold(client.locks, name);
  const { release } = await hold(locks, name, { steal: true });
  await rejects(done, 'AbortError', 'the robbed one');
  await release();
  await client.end();
});

export const THEFTS = all;
