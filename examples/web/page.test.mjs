// The page in real browsers, against a real Consul, a real etcd and a real Redis behind a bridge.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { connect } from 'polylatch-wasm';

import { ENGINES } from '../tests/browsers.mjs';
import { startConsul } from '../tests/consul.mjs';
import { startEtcd } from '../tests/etcd.mjs';
import { respConnection } from '../tests/resp.mjs';
import { stores } from '../tests/stores.mjs';
import { serve } from './serve.mjs';

const NAME = 'orders/42';

const [, [, redisUrl]] = await stores();
const dial = () => respConnection('127.0.0.1', Number(new URL(redisUrl).port));
const agent = await startConsul();
const { server, origin } = await serve({ redis: dial() });
// One that lets this page ask, if it logs in, and one that lets only another page.
const [etcd, closed] = await Promise.all([
  startEtcd({ cors: origin }),
  startEtcd({ cors: 'http://other.example:8080' }),
]);
const etcdUrl = await etcd.requireUser();
after(() => {
  agent.stop();
  etcd.stop();
  closed.stop();
  server.close();
  server.closeAllConnections();
});

const text = (page, id) => page.read(`document.getElementById('${id}').textContent`);
const state = (page, wanted) => page.until(`document.getElementById('state').dataset.state === '${wanted}'`);
const listed = (page, words) =>
  page.until(`[...document.querySelectorAll('#people tr')].some((row) => ${words}.test(row.textContent))`);

async function open(browser, query) {
  const page = await browser.open(`${origin}/?${query}`);
  await state(page, 'free');
  return page;
}

const cases = [
  [
    'consul',
    `ttl=100ms&store=${agent.url}`,
    () => connect(agent.url, { sessionTtlMin: 100, lease: 5_000 }),
    'broken',
  ],
  // A renewal finds that the key is gone.
  ['etcd', `store=${encodeURIComponent(etcdUrl)}`, () => connect(etcdUrl, { lease: 5_000 }), 'superseded'],
  // Nothing is pushed over HTTP: a renewal finds that the lease is not its own any more.
  ['redis over an HTTP bridge', 'redis=/redis', () => connect({ redis: dial() }), 'superseded'],
];

async function aLife(browser, t, [store, query, connected, reason]) {
  const page = await open(browser, query);
  const shoot = async (what) => {
    const folder = process.env.POLYLATCH_SCREENSHOTS;
    const name = `${browser.version.split('/')[0]}-${store.split(' ')[0]}-${what}.png`.toLowerCase();
    if (folder) await page.screenshot(`${folder}/${name}`);
  };
  const ready = Number(await page.read("document.getElementById('state').dataset.readyAfter"));
  t.diagnostic(`${browser.version}, ${store}: interactive with the lock after ${ready} ms`);
  assert.ok(ready < 5_000, `${ready} ms`);

  // Somebody in Node holds it: the page waits, and enters when it is given back.
  const client = await connected();
  const held = await client.lock(NAME, { label: 'a process' }).acquire();
  await page.click('#take');
  await state(page, 'waiting');
  await listed(page, /waits/);
  await held.release();
  await state(page, 'held');
  const token = BigInt(await text(page, 'token'));
  assert.ok(token > held.fencingToken);
  await listed(page, /this page.*holds/);
  await page.until("Number(document.getElementById('renewals').textContent) >= 1");
  assert.equal(await client.lock(NAME).tryAcquire(), null);
  await shoot('held');

  // An operator breaks it: the page is told.
  const order = { name: NAME, expected: token, by: 'ann@desk', reason: 'a test' };
  assert.equal((await client.breakLease(order)).outcome, 'broken');
  await state(page, 'lost');
  assert.equal(await text(page, 'state'), `lost: ${reason}`);
  await shoot('lost');

  // It takes it again and gives it back.
  await page.click('#take');
  await state(page, 'held');
  await page.click('#give');
  await state(page, 'free');
  await (await client.lock(NAME, { wait: 0 }).acquire()).release();
  await client.close();
  assert.deepEqual(page.complaints, []);
  await page.close();
}

for (const [engine, start] of Object.entries(ENGINES)) {
  describe(engine, async () => {
    const browser = await start();
    after(() => browser.close());

    for (const one of cases) {
      test(`a page takes a lock, waits for it, shows it and loses it: ${one[0]}`, (t) =>
        aLife(browser, t, one));
    }

    test('a page that etcd does not let ask is told the option', async () => {
      const page = await browser.open(`${origin}/?store=${closed.url}`);
      await page.until("document.getElementById('state').textContent === 'no connection'");
      assert.match(await text(page, 'store'), /--cors/);
      await page.close();
    });

    test('a page whose timers stand still does not believe in its lease', async () => {
      const page = await open(browser, '');
      await page.click('#take');
      await state(page, 'held');
      // As after a sleep: the wall clock has gone on, the monotonic one and the timers have not.
      await page.read('(() => { const real = Date.now; Date.now = () => real() + 60_000; })()');
      await state(page, 'lost');
      assert.equal(await text(page, 'state'), 'lost: expired');
      await page.close();
    });
  });
}
