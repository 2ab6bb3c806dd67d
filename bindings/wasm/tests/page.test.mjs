// The programs of the package's page run as they stand there, on a real Consul and a real Redis.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';

import { startConsul } from './consul.mjs';
import { stores } from './stores.mjs';

const page = createRequire(import.meta.url)
  .resolve('polylatch-wasm/package.json')
  .replace('package.json', 'README.md');
const programs = [...readFileSync(page, 'utf8').matchAll(/^```js\n(.*?)^```/gms)].map(([, text]) => text);

/** What each program has that is not on the page, by words that it has: before it, and after it; and what is printed. */
const AROUND = [
  {
    words: 'withLock(',
    before: `const asked = []; const url = 'https://api.example';
      globalThis.fetch = (fetch => (where, init) => where === url ? asked.push(init.signal) : fetch(where, init))(fetch);`,
    after: `assert.ok(asked[0] instanceof AbortSignal && !asked[0].aborted); assert.equal(asked.length, 1);`,
  },
  {
    words: 'client.locks.request(',
    before: `import { connect } from 'polylatch-wasm'; const client = await connect('memory:'); const saved = [];
      const save = async ({ fence, signal }) => saved.push(fence, signal.aborted);
      const other = await client.lock('reports/7').acquire();`,
    after: `assert.equal(typeof saved[0], 'bigint'); assert.deepEqual(saved.slice(1), [false]);
      assert.deepEqual([held.map(({ name }) => name), pending], [['reports/7'], []]); await other.release();`,
  },
  {
    words: 'ioredisConnection(ioredis)',
    before: `import { Redis } from 'ioredis'; const ioredis = new Redis(process.env.REDIS);`,
    after: `const guard = await client.lock('orders/42').acquire(); const keys = await ioredis.keys('*');
      await guard.release(); await client.close(); ioredis.disconnect();
      assert.ok(keys.length > 0 && keys.every((key) => key.startsWith('shop:')), keys.join());
      for (const make of [httpRedisConnection, nodeRedisConnection]) assert.equal(typeof make, 'function');`,
  },
  {
    words: 'onEvent:',
    before: `import { connect } from 'polylatch-wasm';`,
    after: `const guard = await client.lock('orders/42').acquire(); assert.equal(client.stats.held, 1);
      await client.breakLease({ name: 'orders/42', expected: guard.fencingToken, by: 'ann', reason: 'a test' });
      await assert.rejects(guard.release());
      assert.match(client.prometheus({ page: 'orders' }), /^polylatch_\\w+\\{.*page="orders"/m);`,
    prints: /^lost orders\/42$/m,
  },
];

const agent = await startConsul();
const [, [, redis]] = await stores();
after(() => agent.stop());

test('each program of the page is run', () => {
  for (const program of programs) {
    const runs = AROUND.filter(({ words }) => program.includes(words));
    assert.equal(runs.length, 1, program);
  }
  assert.equal(programs.length, AROUND.length);
});

for (const [at, { words, before, after: last, prints = /^$/ }] of AROUND.entries()) {
  test(`the program with ${words}`, async () => {
    const program = programs
      .find((text) => text.includes(words))
      .replace('consul://localhost:8500', agent.url);
    // Where it finds the clients of Redis that are installed.
    const file = join(import.meta.dirname, 'clients', `page-${at}.mjs`);
    writeFileSync(
      file,
      `import assert from 'node:assert/strict';\n${before}\n${program}\n${last}\nawait client.close();\n`,
    );
    try {
      const env = { ...process.env, REDIS: redis };
      const done = await promisify(execFile)(process.execPath, [file], { env, timeout: 60_000 });
      assert.equal(done.stderr, '');
      assert.match(done.stdout, prints);
    } finally {
      rmSync(file);
    }
  });
}
