// What other libraries have fits: their connections, and their servers.

import assert from 'node:assert/strict';

import express, { type Request } from 'express';
import Fastify, { type FastifyRequest } from 'fastify';
import type { Connection } from 'mysql2/promise';
import type pg from 'pg';
import {
  type Claim,
  connect,
  type IdempotencyPluginOptions,
  idempotencyHandler,
  idempotencyPlugin,
  type Outcome,
  type SqlColumn,
  type SqlConnection,
  type SqlValue,
  type StepsAttempt,
  type TransactionAttempt,
  type TransactionClaim,
  TransactionRuns,
  type TransactionSteps,
} from 'polylatch';

const runs: TransactionRuns = new TransactionRuns({
  dialect: 'postgres $1',
  schema: 'locks',
  encoding: 'json',
});
const script: string = runs.schemaSql;
assert.match(script, /CREATE TABLE/);
// @ts-expect-error a dialect that does not exist
assert.throws(() => new TransactionRuns({ dialect: 'oracle :1' }), { code: 'invalid_argument' });
// @ts-expect-error the claim of a transaction is not renewed while it runs
((claim: TransactionClaim): Claim => claim) satisfies object;

/** Only to be compiled. */
export async function order(client: pg.Client, pooled: pg.PoolClient, connection: Connection): Promise<void> {
  const query = async (_sql: string, values: SqlValue[]): Promise<SqlColumn[][]> => [[7n, ...values]];
  const rows = (_sql: string): SqlColumn[][] => [];
  const connections: SqlConnection[] = [client, pooled, connection, query, rows];
  assert.equal(connections.length, 5);
  // @ts-expect-error no connection
  await runs.purge({});
  const outcome: Outcome<{ order: number }> = await runs.run(
    client,
    'orders/customer-7',
    'key',
    async (claim) => ({ order: Number(claim.fencingToken > 0n) + claim.runs }),
    { payload: { item: 1 }, retention: Number.POSITIVE_INFINITY, noWait: true },
  );
  outcome.value.order satisfies number;
  const attempt: TransactionAttempt<number> = await runs.begin<number>(connection, 'orders', 'key');
  const result: number = attempt.replayed ? attempt.value : await attempt.complete(7);
  await attempt.fail(new Error(`${result}`));
  const steps: TransactionSteps<string> = runs.steps('orders', 'key', { lease: 30_000, fingerprint: 'f' });
  let all: StepsAttempt<string> = await steps.claim(client);
  if (!all.finished.has('charge')) all = await all.step(client, 'charge', { receipt: 7 });
  all = await all.renew(client);
  const text: string = await all.complete(client, 'done');
  await all.release(client);
  const deleted: number = await runs.purge(query, 100);
  assert.ok(text !== '' && deleted > 0);
}

await using client = await connect('memory:libraries');
const options: IdempotencyPluginOptions<FastifyRequest> = {
  client,
  caller: (request) => request.headers.authorization,
  methods: ['POST'],
};
await using app = Fastify();
await app.register(idempotencyPlugin, options);
await app.register(async (part) => {
  await part.register(idempotencyPlugin, {
    client,
    caller: (request: FastifyRequest) => request.ip,
    wait: 100,
  });
});
express().use(idempotencyHandler(client, { caller: (request: Request) => request.get('user') }));
assert.throws(
  // @ts-expect-error an option that does not exist
  () => idempotencyHandler(client, { caller: () => 'user', ttl: 1 }),
  TypeError,
);

console.log('libraries: fine');
