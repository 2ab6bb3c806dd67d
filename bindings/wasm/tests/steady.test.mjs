// What a call costs, and that memory stays as it is.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';

import { connect } from 'polylatch-wasm';

const CYCLES = 100_000;

test('memory is steady over 100 000 acquisitions and releases', async (t) => {
  const client = await connect('memory:');
  async function cycles(count) {
    for (let cycle = 0; cycle < count; cycle += 1) {
      const guard = await client.lock('steady').acquire();
      await guard.release();
      // What JavaScript has forgotten is freed between two turns of the loop.
      if (cycle % 200 === 0) await turn();
    }
  }
  async function memory() {
    for (let round = 0; round < 5; round += 1) {
      globalThis.gc();
      await turn();
    }
    return process.memoryUsage();
  }
  await cycles(5_000);
  const before = await memory();
  const begun = performance.now();
  await cycles(CYCLES);
  const each = ((performance.now() - begun) / CYCLES) * 1e3;
  const after = await memory();
  const grown = (what) => Math.round((after[what] - before[what]) / 1024);
  t.diagnostic(`lock and release in memory: ${each.toFixed(1)} us a cycle`);
  t.diagnostic(
    `grown: ${grown('heapUsed')} KiB of objects, ${grown('arrayBuffers')} KiB of buffers, ${grown('rss')} KiB of the process`,
  );
  assert.ok(grown('heapUsed') < 4_096, `${grown('heapUsed')} KiB more objects`);
  assert.ok(grown('rss') < 65_536, `${grown('rss')} KiB more of the process`);

  const guard = await client.lock('overhead').acquire();
  const calls = 1_000_000;
  const from = performance.now();
  for (let call = 0; call < calls; call += 1) guard.isHeld;
  const nanos = ((performance.now() - from) / calls) * 1e6;
  t.diagnostic(`guard.isHeld: ${nanos.toFixed(0)} ns a call`);
  await guard.release();
  await client.close();
});
