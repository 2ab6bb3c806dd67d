// Work that stops by itself when its lock is lost: the guard's signal goes wherever signals go.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

import { connect, LeaseLostError } from 'polylatch';

const client = await connect(process.env.POLYLATCH_URL ?? 'memory:lost-lease');
const guard = await client.lock('import', { lease: 1_000 }).acquire();

// Meanwhile an operator ends the lease, naming the token that was looked at.
async function operator() {
  await sleep(200);
  const { locks } = await client.inspect({ name: 'import' });
  await client.breakLease({
    name: 'import',
    expected: locks[0].holders[0].fencingToken,
    by: 'ann@desk',
    reason: 'the import runs in the wrong environment',
  });
}

// Hand the signal to fetch, to a database driver, to a timer: to whatever the work waits for.
async function importRows(signal) {
  await sleep(3_600_000, undefined, { signal });
}

const ordered = operator();
try {
  await importRows(guard.signal);
  assert.fail('this import takes an hour');
} catch {
  const lost = guard.signal.reason;
  assert.ok(lost instanceof LeaseLostError);
  console.log(`stopped the import: the lock is lost (${lost.reason})`);
}
assert.ok(!guard.isHeld);
await ordered;
await client.close();
