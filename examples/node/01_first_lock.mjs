// A first lock: two workers, one at a time, in the order in which they came.
//
// Runs against the store in POLYLATCH_URL, or inside this process: node 01_first_lock.mjs

import assert from 'node:assert/strict';

import { connect } from 'polylatch';

const client = await connect(process.env.POLYLATCH_URL ?? 'memory:first-lock');

const first = await client.lock('orders/42', { label: 'charge the card' }).acquire();
console.log(`first worker holds ${first.name} with token ${first.fencingToken}`);

// A client that does not wait gets an answer at once.
assert.equal(await client.lock('orders/42').tryAcquire(), null);

// A client that waits is queued, and the release notifies it.
const waiting = client.lock('orders/42', { label: 'send the receipt', wait: 10_000 }).acquire();
await first.release();
const second = await waiting;
console.log(`second worker holds ${second.name} with token ${second.fencingToken}`);
assert.ok(second.fencingToken > first.fencingToken);
await second.release();

// The usual form: the lock is released whatever comes of the work. (From Node 24 on, and in
// TypeScript, there is also `await using guard = await client.lock('orders/42').acquire()`.)
await client.withLock('orders/42', { wait: 10_000 }, async (guard) => {
  console.log(`third worker has ${Math.round(guard.remaining / 1000)} s, and is renewed`);
});
await client.close();
