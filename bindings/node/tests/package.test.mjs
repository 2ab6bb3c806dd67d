// The package as it is installed.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import * as imports from 'polylatch';

import { startPostgres } from './databases.mjs';
import { startRedis } from './stores.mjs';

const require = createRequire(import.meta.url);
const polylatch = { ...imports };

test('import and require give the same', () => {
  const required = require('polylatch');
  assert.deepEqual(Object.keys(polylatch).toSorted(), Object.keys(required).toSorted());
  for (const [name, value] of Object.entries(polylatch)) assert.equal(value, required[name], name);
});

test('the native part is inside, and nothing else is needed', () => {
  const manifest = require('polylatch/package.json');
  assert.equal(manifest.dependencies, undefined);
  assert.equal(manifest.optionalDependencies, undefined);
  assert.equal(manifest.scripts, undefined, 'nothing runs at installation');
  assert.equal(manifest.version, process.env.POLYLATCH_EXPECTED_VERSION ?? manifest.version);
});

test('a package without the part of this platform says which one it needs', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'polylatch-node-foreign-'));
  try {
    const copy = join(folder, 'polylatch');
    cpSync(dirname(require.resolve('polylatch/package.json')), copy, { recursive: true });
    rmSync(join(copy, 'native'), { recursive: true });
    const failed = await promisify(execFile)(process.execPath, [
      '-e',
      `require(${JSON.stringify(copy)})`,
    ]).catch((error) => error);
    assert.match(failed.stderr, /has no native part that loads here \(linux-x64-gnu, linux-x64-musl\)/);
    assert.match(failed.stderr, /Install the package that was built for this platform/);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('every error code has its class, as the table of all languages says', () => {
  const path = process.env.POLYLATCH_ERRORS_JSON;
  assert.ok(path, 'POLYLATCH_ERRORS_JSON names tests/conformance/errors.json');
  const table = JSON.parse(readFileSync(path, 'utf8'));
  const { errorOf } = require(join(dirname(require.resolve('polylatch')), 'errors.js'));
  for (const { code, kind, retry, effects } of [...table.errors, ...table.idempotency_errors]) {
    const made = errorOf({ code, retry, effect: effects[0], message: 'a sentence', hint: 'a hint' });
    const expected = polylatch[`${kind}Error`];
    assert.ok(expected !== undefined && made instanceof expected, kind);
    assert.equal(made.constructor, expected);
    assert.ok(made instanceof polylatch.PolylatchError && made instanceof Error);
    assert.deepEqual([made.code, made.retry, made.effect], [code, retry, effects[0]]);
    assert.equal(made.name, `${kind}Error`);
  }
  const unknown = errorOf({
    code: 'from_the_future',
    retry: 'never',
    effect: 'none',
    message: 'x',
    hint: '',
  });
  assert.equal(unknown.constructor, polylatch.PolylatchError);
  assert.equal(unknown.code, 'from_the_future');
  const classes = Object.keys(polylatch).filter(
    (name) => name.endsWith('Error') && name !== 'PolylatchError',
  );
  assert.equal(classes.length, table.errors.length + table.idempotency_errors.length);
});

test('the code in the README of the project runs', async () => {
  const readme = process.env.POLYLATCH_README;
  assert.ok(readme, 'POLYLATCH_README names it');
  const [, block] = /```js\n(.*?)```/s.exec(readFileSync(readme, 'utf8'));
  const folder = mkdtempSync(join(tmpdir(), 'polylatch-node-readme-'));
  const redis = await startRedis(folder);
  try {
    const file = join(dirname(fileURLToPath(import.meta.url)), 'readme.mjs');
    writeFileSync(file, block);
    const env = { ...process.env, POLYLATCH_URL: redis.url };
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [file], { env, timeout: 60_000 });
    assert.match(stdout, /^write with token \d+n?\n$/);
    assert.equal(stderr, '');
    rmSync(file);
  } finally {
    redis.child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  }
});

test('the code in the guide runs', async () => {
  const guide = process.env.POLYLATCH_GUIDE;
  assert.ok(guide, 'POLYLATCH_GUIDE names its folder');
  const folder = mkdtempSync(join(tmpdir(), 'polylatch-node-guide-'));
  const [redis, postgres] = await Promise.all([startRedis(folder), startPostgres()]);
  const file = join(dirname(fileURLToPath(import.meta.url)), 'guide.mjs');
  let ran = 0;
  try {
    for (const page of readdirSync(guide, { recursive: true }).filter((name) => name.endsWith('.md'))) {
      const text = readFileSync(join(guide, page), 'utf8');
      for (const [, block] of text.matchAll(/^```js\n(.*?)^```/gms)) {
        const here = block.replace('redis://localhost', redis.url);
        writeFileSync(file, here.replace('postgres://localhost/shop', postgres.url));
        const env = { ...process.env, POLYLATCH_URL: `sqlite:${join(folder, `${ran}.sqlite`)}` };
        const { stderr } = await promisify(execFile)(process.execPath, [file], { env, timeout: 60_000 });
        assert.equal(stderr, '', `${page}: ${block}`);
        ran += 1;
      }
    }
    assert.ok(ran > 5, `${ran} blocks`);
  } finally {
    rmSync(file, { force: true });
    redis.child.kill('SIGKILL');
    await postgres.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
