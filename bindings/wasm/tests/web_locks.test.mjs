// Locks in the shape of the browser's own: what the specification says (`web_locks/`), and what is ours beside it.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { connect, LeaseLostError, UnsupportedError } from 'polylatch-wasm';

import { startConsul } from './consul.mjs';
import { respConnection } from './resp.mjs';
import { stores, unique } from './stores.mjs';
import { BEHAVIOURS, DIFFERENCES } from './web_locks/behaviours.mjs';
import { failures } from './web_locks/checks.mjs';

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

test('a mistake is a TypeError that names it, and nothing runs', async () => {
  for (const [options, message] of [
    [{ mode: 'both' }, /exclusive/],
    [{ nope: 1 }, /no option "nope"/],
    [{ ifAvailable: 1 }, /boolean/],
    [{ lease: '5s' }, /lease must be a number/],
  ]) {
    await assert.rejects(
      one.locks.request('a', options, () => assert.fail('it ran')),
      (error) => error instanceof TypeError && message.test(error.message),
    );
  }
});

test('a store that cannot break and grant in one step says so, and nobody is robbed', async () => {
  const agent = await startConsul();
  try {
    const client = await connect(agent.url, { sessionTtlMin: 100, lease: 5_000 });
    await client.locks.request('a', async (lock) => {
      const theft = client.locks.request('a', { steal: true }, () => assert.fail('it ran'));
      await assert.rejects(
        theft,
        (error) => error instanceof UnsupportedError && /stolen/.test(error.message),
      );
      lock.guard.check();
    });
    await client.close();
  } finally {
    agent.stop();
  }
});

test('a name that no lock can have is stored as JSON, and others reach it', async () => {
  const other = await connect(store);
  await one.locks.request('a\0b', async () => {
    assert.equal(
      await other
        .lock('-"a\\u0000b"')
        .tryAcquire()
        .catch((error) => error.code),
      'name_conflict',
    );
    assert.deepEqual((await other.locks.query()).held, [
      { name: 'a\0b', mode: 'exclusive', clientId: one.id },
    ]);
  });
  await one.locks.request('\ud800', async () => {
    assert.equal((await other.locks.query()).held[0].name, '\ud800');
  });
  // What others call their locks stays as it is.
  for (const name of ['-a', '-"', '-"a"']) {
    const guard = await other.lock(name).acquire();
    assert.deepEqual(
      (await one.locks.query()).held.map((lock) => lock.name),
      [name],
    );
    await guard.release();
  }
  await other.close();
});

for (const [kind, url] of await stores()) {
  test(`what the specification says holds on ${kind}`, async (t) => {
    const prefix = unique('web-locks');
    const open = {
      memory: () => connect(`${url}-${prefix}`),
      redis: () => connect({ redis: respConnection('127.0.0.1', Number(new URL(url).port)), prefix }),
    }[kind];
    const client = await open();
    t.after(() => client.close());
    const other = async () => {
      const made = await open();
      return { locks: made.locks, end: () => made.close() };
    };
    const adapter = { locks: client.locks, other, prefix: 'spec' };
    assert.deepEqual(await failures(adapter, BEHAVIOURS), {});
    const ours = DIFFERENCES.map(({ what, ours: run }) => ({ what, run }));
    assert.deepEqual(await failures(adapter, ours), {});
  });
}
