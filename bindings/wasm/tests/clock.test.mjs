// The holder's clock: timers that come late, a machine that slept, a wall clock that was set.

import assert from 'node:assert/strict';
import { after, afterEach, test } from 'node:test';

import { connect, LeaseLostError } from 'polylatch-wasm';

const realNow = performance.now.bind(performance);
const realDate = Date.now;
let client;
// A held lock keeps no process alive, and these tests wait for what becomes of one.
const alive = setInterval(() => {}, 60_000);
after(() => clearInterval(alive));

afterEach(async () => {
  performance.now = realNow;
  Date.now = realDate;
  await client?.close();
});

async function held(options) {
  client = await connect('memory:');
  return client.lock('a', options).acquire();
}

function isLost(guard) {
  assert.throws(
    () => guard.check(),
    (error) => error instanceof LeaseLostError && error.reason === 'expired',
  );
  assert.ok(!guard.isHeld);
  assert.equal(guard.remaining, 0);
}

test('a machine that slept while its monotonic clock stood still has lost its lease', async () => {
  const guard = await held({ lease: 15_000 });
  guard.check();
  // As after a sleep: the wall clock has gone on, `performance.now()` has not.
  Date.now = () => realDate() + 16_000;
  isLost(guard);
});

test('the loss is told by the signal, without a question', async () => {
  const guard = await held({ lease: 15_000 });
  const { signal } = guard;
  const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve));
  Date.now = () => realDate() + 16_000;
  await aborted;
  assert.equal(signal.reason.reason, 'expired');
});

test('a short sleep shortens what is left', async () => {
  const guard = await held({ lease: 15_000, renew: false });
  const before = guard.remaining;
  Date.now = () => realDate() + 5_000;
  const left = guard.remaining;
  assert.ok(left > 0 && left <= before - 4_980, `${left} of ${before}`);
});

test('a wall clock that was set back vouches for nothing', async () => {
  const guard = await held({ lease: 60_000 });
  Date.now = () => realDate() - 30_000;
  isLost(guard);
});

test('a blocked loop is not renewed, and its holder knows at its first instruction', async () => {
  const guard = await held({ lease: 600 });
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 900);
  isLost(guard);
});

test('timers that come once a second, as those of a hidden page, keep a lease of the default length', async () => {
  const real = globalThis.setTimeout;
  // The rule of hidden pages: no timer before the next whole second.
  globalThis.setTimeout = (work, millis = 0) => real(work, Math.max(millis, 1_000));
  try {
    const guard = await held({ lease: 4_500 });
    await new Promise((resolve) => real(resolve, 6_000));
    guard.check();
    assert.ok(guard.renewals >= 2, `${guard.renewals} renewals`);
    await guard.release();
  } finally {
    globalThis.setTimeout = real;
  }
});

test('clocks that say nonsense lose leases and break nothing', async () => {
  const guard = await held({ lease: 15_000 });
  performance.now = () => Number.NaN;
  Date.now = () => Number.POSITIVE_INFINITY;
  guard.remaining;
  guard.isHeld;
  performance.now = realNow;
  Date.now = realDate;
  await guard.release().catch((error) => assert.equal(error.code, 'lease_lost'));
});
