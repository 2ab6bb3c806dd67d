// The connections over other programs' clients, with these clients as they are published, and a real Redis.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { Redis } from 'ioredis';
import { connect, ioredisConnection, nodeRedisConnection } from 'polylatch-wasm';
import { createClient } from 'redis';

import { eventually, unique } from '../node-stores.mjs';
import { respConnection } from '../resp.mjs';
import { stores } from '../stores.mjs';

const [, [, url]] = await stores();
const { hostname: host, port } = new URL(url);
const redis = respConnection(host, Number(port));
const watcher = await connect({ redis });
after(() => watcher.close());

const clients = [
  [
    'ioredis',
    async (connectionName) => {
      const own = new Redis(Number(port), host, { connectionName });
      return { connection: ioredisConnection(own), ping: () => own.ping(), end: () => own.disconnect() };
    },
  ],
  [
    'redis',
    async (name) => {
      const own = createClient({ url, name });
      await own.connect();
      return { connection: nodeRedisConnection(own), ping: () => own.ping(), end: () => own.destroy() };
    },
  ],
];

/** How many connections of this name listen. A copy of a client has the same. */
async function listening(name) {
  const list = String(await redis.command(['CLIENT', 'LIST', 'TYPE', 'pubsub']));
  return list.split('\n').filter((line) => line.includes(` name=${name} `)).length;
}

for (const [what, made] of clients) {
  describe(`the package ${what}`, () => {
    test('locks of every kind, pushes, a break; its own connection stays open', async (t) => {
      const { connection, ping, end } = await made(`test-${what}`);
      t.after(end);
      const client = await connect({ redis: connection, poll: 5_000, provisional: 11_000, lease: 30_000 });
      const name = unique('client');

      const held = await watcher.lock(name).acquire();
      const waiting = client.lock(name, { wait: 20_000 }).acquire();
      const waits = async () => (await watcher.inspect({ name })).locks[0].waiters.length === 1;
      await eventually('it waits', waits);
      const released = performance.now();
      await held.release();
      const guard = await waiting;
      assert.ok(performance.now() - released < 3_000, 'the push came, not the next poll');
      assert.ok(guard.fencingToken > held.fencingToken);
      assert.equal(await watcher.lock(name).tryAcquire(), null);

      const request = { name, expected: guard.fencingToken, by: 'ann', reason: 'a test' };
      assert.equal((await watcher.breakLease(request)).outcome, 'broken');
      await eventually('it is told', () => guard.signal.aborted, 4_000);
      await assert.rejects(guard.release());

      const label = 'é 🔒 | "quoted"';
      const set = await client.lockAll([unique('a'), unique('b')], { label }).acquire();
      const shown = (await client.inspect({ name: set.names[0] })).locks[0].holders[0];
      assert.equal(shown.label, label);
      await set.release();
      await (await client.rwLock(name).read().acquire()).release();
      await (await client.semaphore(unique('permits'), 2).acquire(2)).release();

      assert.equal(await listening(`test-${what}`), 1);
      await client.close();
      await eventually('nobody of it listens any more', async () => (await listening(`test-${what}`)) === 0);
      assert.equal(await ping(), 'PONG');
    });
  });
}
