// Why a lock alone is not enough, and what a fencing token does about it.
//
// The first holder is paused for longer than its lease, as by a suspended laptop. When it wakes up,
// another client holds the lock; its late write is refused by the resource, because the resource has seen a
// newer token.

import assert from 'node:assert/strict';

import { connect, TokenGate } from 'polylatch';

/** What the lock protects: it lets only the newest holder write. */
class Account {
  #gate = new TokenGate();
  balance = 0;

  set(balance, token) {
    this.#gate.admit(token);
    this.balance = balance;
  }
}

const client = await connect(process.env.POLYLATCH_URL ?? 'memory:fenced-write');
const account = new Account();

// Without renewal this lease ends as it does for a holder whose whole process stands still.
const paused = await client.lock('account/7', { lease: 200, renew: false }).acquire();
console.log(`first holder has token ${paused.fencingToken} and is paused`);

const next = await client.lock('account/7', { wait: 5_000 }).acquire();
account.set(150, next.fencingToken);
console.log(`second holder has token ${next.fencingToken} and wrote 150`);

try {
  account.set(100, paused.fencingToken);
  assert.fail('the late write was let in');
} catch (error) {
  assert.equal(error.code, 'stale_token');
  console.log(`first holder wakes up; its write is refused: ${error.message}`);
}
assert.equal(account.balance, 150);

// It could have known without writing: its own clock tells it.
assert.throws(() => paused.check(), { code: 'lease_lost', reason: 'expired' });
await next.release();
await client.close();
