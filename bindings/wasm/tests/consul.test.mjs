// Consul by `fetch`, against a real agent.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { connect, WaitTimeoutError } from 'polylatch-wasm';

import { testBadFetches } from './bad_fetches.mjs';
import { startConsul } from './consul.mjs';
import { eventually, unique } from './node-stores.mjs';

const agent = await startConsul();
const how = { sessionTtlMin: 100, lease: 4_000 };
const [one, other] = await Promise.all([connect(agent.url, how), connect(agent.url, how)]);
after(async () => {
  await Promise.all([one.close(), other.close()]);
  agent.stop();
});

async function isFree(name) {
  await eventually(`${name} is free`, async () => {
    const [view] = (await other.inspect({ name })).locks;
    return view.holders.length === 0 && view.waiters.length === 0;
  });
}

describe('consul', () => {
  test('a lock is held by one, is renewed, and its tokens grow', async () => {
    const name = unique('consul');
    const guard = await one.lock(name, { lease: 1_000 }).acquire();
    assert.equal(guard.fenceQuality, 'strict');
    assert.equal(await other.lock(name).tryAcquire(), null);
    await assert.rejects(other.lock(name, { wait: 100 }).acquire(), WaitTimeoutError);
    await eventually('it is renewed', () => guard.renewals >= 2);
    guard.check();
    await guard.release();
    const next = await other.lock(name).acquire();
    assert.ok(next.fencingToken > guard.fencingToken);
    await next.release();
  });

  test('a waiter enters when the lock is given back, and an aborted one leaves the line', async () => {
    const name = unique('consul');
    const held = await one.lock(name).acquire();
    const controller = new AbortController();
    const gone = other.lock(name).acquire({ signal: controller.signal });
    const waits = (count) => async () => (await one.inspect({ name })).locks[0].waiters.length === count;
    await eventually('one waits', waits(1));
    controller.abort();
    await assert.rejects(gone, { name: 'AbortError' });
    await eventually('nobody waits', waits(0));
    const waiting = other.lock(name, { wait: 30_000 }).acquire();
    await eventually('one waits', waits(1));
    await held.release();
    const next = await waiting;
    assert.ok(next.fencingToken > held.fencingToken);
    await next.release();
    await isFree(name);
  });

  test('a broken lease is told to its holder', async () => {
    const name = unique('consul');
    const guard = await one.lock(name).acquire();
    const lost = new Promise((resolve) => guard.signal.addEventListener('abort', resolve));
    await other.breakLease({ name, expected: guard.fencingToken, by: 'ann@desk', reason: 'it is stuck' });
    await lost;
    assert.equal(guard.signal.reason.reason, 'broken');
    await isFree(name);
  });

  test('Web Locks go over it', async () => {
    const name = unique('consul');
    const modes = await Promise.all(
      [one, other].map((client) => client.locks.request(name, { mode: 'shared' }, (lock) => lock.mode)),
    );
    assert.deepEqual(modes, ['shared', 'shared']);
  });
});

test('a closed client leaves no request behind, also after its session has ended', async () => {
  const name = unique('consul-closed');
  const pending = new Set();
  const counted = async (url, init) => {
    const request = { waits: url.includes('index='), signal: init.signal };
    pending.add(request);
    try {
      return await fetch(url, init);
    } finally {
      pending.delete(request);
    }
  };
  const origin = agent.url.replace('consul:', 'http:');
  const sessions = async () => (await (await fetch(`${origin}/v1/session/list`)).json()).map(({ ID }) => ID);
  const before = await sessions();
  const client = await connect(agent.url, { ...how, fetch: counted });
  const guard = await client.lock(name).acquire();
  const lost = new Promise((resolve) => guard.signal.addEventListener('abort', resolve));
  for (const session of (await sessions()).filter((session) => !before.includes(session))) {
    await fetch(`${origin}/v1/session/destroy/${session}`, { method: 'PUT' });
  }
  await lost;
  await eventually('it waits for what comes next', () => [...pending].some(({ waits }) => waits));
  await client.close();
  await eventually('nothing is under way', () => pending.size === 0, 5_000);
});

testBadFetches(agent.url, how, isFree);
