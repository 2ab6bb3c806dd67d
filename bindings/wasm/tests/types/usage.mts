// Compiled by `tsc --strict` against the installed package, and run: what a TypeScript program writes.

import assert from 'node:assert/strict';

import {
  type Client,
  connect,
  type Guard,
  type HeldLock,
  httpRedisConnection,
  type LockOptions,
  PolylatchError,
  type PolylatchEvent,
  type RedisConnection,
  type Stats,
} from 'polylatch-wasm';

const kept: LockOptions = { lease: 30_000, wait: 5_000, label: 'orders' };

await using client: Client = await connect({ url: 'memory:types', lease: 5_000, program: 'usage' });
{
  await using guard: Guard = await client
    .lock('orders/42', kept)
    .acquire({ signal: AbortSignal.timeout(10_000) });
  const token: bigint = guard.fencingToken;
  const signal: AbortSignal = guard.signal;
  assert.ok(token > 0n && !signal.aborted && guard.remaining > 0);
  guard.check();
  const refused: Guard | null = await client.lock('orders/42').tryAcquire();
  assert.equal(refused, null);
}
const again = await client.lock('orders/42').tryAcquire();
assert.ok(again !== null, '`await using` gave it back');
await again.release();

const mode: string = await client.locks.request('a', async (lock: HeldLock) => lock.mode);
const had: boolean = await client.locks.request('a', { ifAvailable: true }, (lock) => lock !== null);
const shared: bigint = await client.locks.request('a', { mode: 'shared' }, (lock) => lock.fencingToken);
const { held, pending } = await client.locks.query();
assert.deepEqual([mode, had, shared > 0n, held.length, pending.length], ['exclusive', true, true, 0, 0]);

const redis: RedisConnection = { command: (args) => args.length, subscribe: async () => () => {} };
await assert.rejects(connect({ redis, timeout: 500 }), PolylatchError);
httpRedisConnection('http://localhost', { token: 'secret' }) satisfies RedisConnection;

// @ts-expect-error a connection needs a command
await assert.rejects(connect({ redis: {} }), TypeError);
const misspelt = { mod: 'shared' };
// @ts-expect-error an option that does not exist
await assert.rejects(client.locks.request('a', misspelt, String), TypeError);
// @ts-expect-error a lease is a number of milliseconds
assert.throws(() => client.lock('a', { lease: '5s' }), TypeError);

const events: PolylatchEvent[] = [];
await using heard: Client = await connect('memory:types', { onEvent: (event) => events.push(event) });
await heard.withLock('heard', () => {});
const stats: Stats = heard.stats;
assert.deepEqual([stats.acquired, stats.hold.count], [1, 1]);

console.log('types: fine');
