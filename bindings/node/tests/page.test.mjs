// The programs of the package's page run as they stand there, on a real Redis and a real PostgreSQL.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import ts from 'typescript';

import { startPostgres } from './databases.mjs';
import { startRedis } from './stores.mjs';

const page = createRequire(import.meta.url)
  .resolve('polylatch/package.json')
  .replace('package.json', 'README.md');
const programs = [...readFileSync(page, 'utf8').matchAll(/^```[jt]s\n(.*?)^```/gms)].map(([, text]) => text);

/** What each program has that is not on the page, by words that it has: before it, and after it. */
const AROUND = [
  {
    words: 'withLock(',
    before: `const sent = []; const url = 'data:,done';
      const db = { run: async (sql, token) => sent.push(token) };`,
    after: `assert.equal(typeof sent[0], 'bigint');`,
  },
  {
    words: 'await using guard',
    before: `const client = await polylatch.connect('memory:'); const signal = AbortSignal.timeout(5_000);`,
    after: `guard.check();`,
  },
  {
    words: 'FencedUpdate.update(',
    before: `await connection.query('CREATE TABLE account (id BIGINT, balance BIGINT, fence BIGINT)');
      await connection.query('INSERT INTO account VALUES (7, 100, 33)');`,
    after: `assert.equal((await connection.query(write.sql, bound)).rowCount, 1);`,
  },
  {
    words: 'idempotencyHandler',
    before: '',
    after: `assert.deepEqual({ value, replayed }, { value: { order: 42 }, replayed: false });
      assert.equal(typeof idempotencyHandler, 'function');`,
  },
  {
    words: 'runs.run(connection',
    before: `await (await polylatch.connect(process.env.POSTGRES)).close();
      await connection.query('CREATE TABLE orders (item BIGINT)');
      const { TransactionRuns } = polylatch; const key = '9f1c';`,
    after: `assert.deepEqual({ value, replayed }, { value: { order: 42 }, replayed: false });
      assert.equal((await connection.query('SELECT FROM orders')).rowCount, 1);`,
  },
  {
    words: 'registerWithPromClient',
    before: `import { Registry } from 'prom-client'; import { metrics } from '@opentelemetry/api';
      const register = new Registry(); const client = await polylatch.connect('memory:');`,
    after: `assert.match(await register.metrics(), /polylatch_/);`,
  },
];

const folder = mkdtempSync(join(tmpdir(), 'polylatch-node-page-'));
let redis;
let postgres;
before(async () => {
  [redis, postgres] = await Promise.all([startRedis(folder), startPostgres()]);
});
after(async () => {
  redis.child.kill('SIGKILL');
  await postgres.stop();
  rmSync(folder, { recursive: true, force: true });
});

test('each program of the page is run', () => {
  for (const program of programs) {
    const runs = AROUND.filter(({ words }) => program.includes(words));
    assert.equal(runs.length, 1, program);
  }
  assert.equal(programs.length, AROUND.length);
});

for (const [at, { words, before: first, after: last }] of AROUND.entries()) {
  test(`the program with ${words}`, async () => {
    const program = programs
      .find((text) => text.includes(words))
      .replace('redis://localhost', redis.url)
      .replace('INSERT INTO orders …', 'INSERT INTO orders VALUES (7)');
    const text = `import assert from 'node:assert/strict'; import pg from 'pg'; import * as polylatch from 'polylatch';
      const connection = new pg.Client({ connectionString: process.env.POSTGRES }); await connection.connect();
      ${first}\n${program}\n${last}\nawait connection.end();`;
    const options = {
      module: ts.ModuleKind.ESNext,
      target: ts.ScriptTarget.ES2022,
      verbatimModuleSyntax: true,
    };
    // Where it finds the packages that are installed.
    const file = join(dirname(fileURLToPath(import.meta.url)), `page-${at}.mjs`);
    writeFileSync(file, ts.transpileModule(text, { compilerOptions: options }).outputText);
    try {
      const env = { ...process.env, POSTGRES: postgres.url };
      const { stderr } = await promisify(execFile)(process.execPath, [file], { env, timeout: 60_000 });
      assert.equal(stderr, '');
    } finally {
      rmSync(file);
    }
  });
}
