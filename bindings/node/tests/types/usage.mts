// Compiled by `tsc --strict` against the installed package, and run: what a TypeScript program writes.

import assert from 'node:assert/strict';

import { metrics } from '@opentelemetry/api';
import {
  type BreakOutcome,
  type Claim,
  type Client,
  ConditionalUpdate,
  connect,
  type Dialect,
  type ErrorCode,
  FencedUpdate,
  type Guard,
  type Idempotency,
  idempotencyHandler,
  LeaseLostError,
  type LockOptions,
  type Outcome,
  observeWithOpenTelemetry,
  PolylatchError,
  type PolylatchEvent,
  registerWithPromClient,
  type Snapshot,
  type Stats,
  TransactionLock,
  VersionedUpdate,
  WorkFailedError,
} from 'polylatch';
import { Registry } from 'prom-client';

const dialect: Dialect = 'postgres $1';
const row = { dialect, table: 'item', keys: ['id'] };
const fenced: FencedUpdate = FencedUpdate.upsert({ ...row, fence: 'fence', set: ['stock'] });
const why: 'missing' | 'changed_meanwhile' = FencedUpdate.whyUnchanged(7n, undefined);
const versioned: VersionedUpdate = VersionedUpdate.update({ ...row, version: 'version', set: [] });
const take = ConditionalUpdate.update({
  ...row,
  changes: [['stock', '-']],
  conditions: [['stock', '>=']],
});
const values: string[] = new TransactionLock({ dialect: 'mysql ?', name: 'a' }).takeValues;
assert.ok(fenced.rowsTell && why === 'missing' && values.length === 1);
assert.deepEqual([versioned.probeParameters, take.parameters], [['id'], ['stock -', 'id', 'stock >=']]);
// @ts-expect-error SQLite has none.
assert.throws(() => new TransactionLock({ dialect: 'sqlite ?', name: 'a' }), { code: 'invalid_argument' });

const kept: LockOptions = { lease: 30_000, wait: 5_000, label: 'orders', fifo: true };

await using client: Client = await connect('memory:types', { lease: 5_000, program: 'usage' });
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

const answer: number = await client.withLock('orders/42', kept, async (guard) => Number(guard.fencingToken));
assert.ok(answer > 0);
const text: string = await client.withLock(
  'orders/42',
  { signal: AbortSignal.timeout(10_000) },
  () => 'done',
);
assert.equal(text, 'done');

{
  await using reader = await client.rwLock('file').read().acquire();
  await using permit = await client.semaphore('pool', 5, { wait: 100 }).acquire(2);
  await using all = await client.lockAll(['a', 'b'] as const, { wait: 100 }).acquire();
  const tokens: Map<string, bigint> = all.fencingTokens;
  assert.deepEqual([reader.mode, permit.permits, tokens.size], ['read', 2, 2]);
  const snapshot: Snapshot = await client.inspect({ prefix: 'p' });
  assert.equal(snapshot.locks[0]?.capacity, 5);
}

const outcome: BreakOutcome = await client.breakLease({
  name: 'a',
  expected: 1n,
  by: 'me@here',
  reason: 'test',
});
if (outcome.outcome === 'changed_hands') outcome.present satisfies bigint;

try {
  await client.lock('orders/42', { lease: 1 }).acquire();
  assert.fail('the lease is too short');
} catch (error) {
  if (!(error instanceof PolylatchError)) throw error;
  error.code satisfies ErrorCode;
  error.retry satisfies 'never' | 'caller_decides' | 'after_backoff' | 'acquire_anew';
  if (error instanceof LeaseLostError) error.reason satisfies string;
  assert.equal(error.code, 'invalid_argument');
}

// @ts-expect-error an option that does not exist
assert.throws(() => client.lock('a', { leese: 5 }), TypeError);
// @ts-expect-error a signal ends a wait, and nothing waits here
assert.throws(() => client.lock('a', { signal: AbortSignal.abort() }), TypeError);
// @ts-expect-error the lease is the lock's
await assert.rejects(client.lock('a').acquire({ lease: 5_000 }), TypeError);
// @ts-expect-error a lease is a number of milliseconds
assert.throws(() => client.lock('a', { lease: '5s' }), TypeError);
// @ts-expect-error a token is a bigint
await assert.rejects(client.breakLease({ name: 'a', expected: 1, by: 'b', reason: 'c' }), TypeError);

const events: PolylatchEvent[] = [];
await using heard: Client = await connect('memory:types', { onEvent: (event) => events.push(event) });
await heard.withLock('heard', () => {});
const stats: Stats = heard.stats;
const count: number | undefined = stats.wait.counts[0];
assert.deepEqual([stats.acquired, stats.losses.expired, typeof count], [1, 0, 'number']);
heard.prometheus({ service: 'shop' }) satisfies string;
// The libraries' own types fit.
registerWithPromClient(new Registry(), heard);
observeWithOpenTelemetry(metrics.getMeter('types'), heard);

console.log('types: fine');

{
  const orders: Idempotency = client.idempotency('orders/customer-7');
  const outcome: Outcome<{ order: number }> = await orders.run(
    'key',
    (claim: Claim) => ({ order: Number(claim.fencingToken > 0n) }),
    { payload: { item: 1 }, retention: Number.POSITIVE_INFINITY, onFailure: () => 'store' },
  );
  assert.deepEqual(outcome, { value: { order: 1 }, replayed: false });
  const code: ErrorCode = new WorkFailedError('declined', { answer: 7, onFailure: 'free' }).code;
  assert.equal(code, 'failed');
  idempotencyHandler(client, { caller: (request: { user: string }) => request.user });
}
