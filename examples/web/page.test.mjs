// The page in a real browser, against a real Consul and a real Redis behind a bridge.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { chromium } from 'playwright-core';
import { connect } from 'polylatch-wasm';

import { startConsul } from '../tests/consul.mjs';
import { respConnection } from '../tests/resp.mjs';
import { stores } from '../tests/stores.mjs';
import { serve } from './serve.mjs';

const NAME = 'orders/42';

const [, [, redisUrl]] = await stores();
const dial = () => respConnection('127.0.0.1', Number(new URL(redisUrl).port));
const agent = await startConsul();
const { server, origin } = await serve({ redis: dial() });
const browser = await chromium.launch({
  executablePath: process.env.POLYLATCH_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
after(async () => {
  await browser.close();
  agent.stop();
  server.close();
  server.closeAllConnections();
});

const state = (page, wanted, timeout = 20_000) =>
  page.locator(`#state[data-state="${wanted}"]`).waitFor({ timeout });

async function open(query) {
  const page = await browser.newPage({ viewport: { width: 640, height: 640 } });
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    // The browser complains of every status above 399, with which Consul and this server only answer.
    const isStatus = message.text().startsWith('Failed to load resource: the server responded');
    if (message.type() === 'error' && !isStatus) complaints.push(message.text());
  });
  await page.goto(`${origin}/?${query}`);
  await state(page, 'free');
  return { page, complaints };
}

const cases = [
  [
    'consul',
    `ttl=100ms&store=${agent.url}`,
    () => connect(agent.url, { sessionTtlMin: 100, lease: 5_000 }),
    'broken',
  ],
  // Nothing is pushed over HTTP: a renewal finds that the lease is not its own any more.
  ['redis over an HTTP bridge', 'redis=/redis', () => connect({ redis: dial() }), 'superseded'],
];

for (const [store, query, connected, reason] of cases) {
  describe(store, () => {
    test('a page takes a lock, waits for it, shows it and loses it', async (t) => {
      const { page, complaints } = await open(query);
      const ready = Number(await page.locator('#state').getAttribute('data-ready-after'));
      t.diagnostic(`interactive with the lock after ${ready} ms`);
      assert.ok(ready < 5_000, `${ready} ms`);

      // Somebody in Node holds it: the page waits, and enters when it is given back.
      const client = await connected();
      const held = await client.lock(NAME, { label: 'a process' });
      await page.click('#take');
      await state(page, 'waiting');
      await page.locator('#people tr', { hasText: 'waits' }).waitFor();
      await held.release();
      await state(page, 'held');
      const token = BigInt(await page.locator('#token').textContent());
      assert.ok(token > held.fencingToken);
      await page.locator('#people tr', { hasText: /this page.*holds/ }).waitFor();
      assert.equal(await client.tryLock(NAME), null);
      if (process.env.POLYLATCH_SCREENSHOTS) {
        await page.screenshot({
          path: `${process.env.POLYLATCH_SCREENSHOTS}/${store.split(' ')[0]}-held.png`,
        });
      }

      // An operator breaks it: the page is told.
      const outcome = await client.breakLease({
        name: NAME,
        expected: token,
        by: 'ann@desk',
        reason: 'a test',
      });
      assert.equal(outcome.outcome, 'broken');
      await state(page, 'lost');
      assert.equal(await page.locator('#state').textContent(), `lost: ${reason}`);
      if (process.env.POLYLATCH_SCREENSHOTS) {
        await page.screenshot({
          path: `${process.env.POLYLATCH_SCREENSHOTS}/${store.split(' ')[0]}-lost.png`,
        });
      }

      // It takes it again and gives it back; a page that is closed does, too.
      await page.click('#take');
      await state(page, 'held');
      await page.click('#give');
      await state(page, 'free');
      await (await client.lock(NAME, { wait: 0 })).release();
      await client.close();
      assert.deepEqual(complaints, []);
      await page.close();
    });
  });
}

test('a hidden page whose timers stand still does not believe in its lease', async () => {
  const { page } = await open('');
  await page.click('#take');
  await state(page, 'held');
  // As after a sleep: the wall clock has gone on, the monotonic one and the timers have not.
  await page.evaluate(() => {
    const real = Date.now;
    Date.now = () => real() + 60_000;
  });
  await state(page, 'lost');
  assert.equal(await page.locator('#state').textContent(), 'lost: expired');
  await page.close();
});
