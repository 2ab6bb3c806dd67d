// What is in the package.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';

const wasm = { ...(await import('polylatch-wasm')) };

const manifest = createRequire(import.meta.url).resolve('polylatch-wasm/package.json');
const folder = dirname(manifest);

/**
 * What a page loads at most for each kind of store, compressed, in bytes: a few percent above what it is, by which it
 * differs with the folder that it is built in, so that growth is seen here and not by those who load it. Who needs more
 * raises it, and says so in the README.
 */
const BUDGETS = { memory: 139_000, redis: 209_000, consul: 252_000, etcd: 206_000 };
/** The JavaScript of all kinds together. */
const SCRIPTS = 49_000;

test('every error code has its class, and no other class is there', () => {
  const { errors } = JSON.parse(readFileSync(process.env.POLYLATCH_ERRORS_JSON, 'utf8'));
  for (const { kind } of errors) {
    const name = `${kind}Error`;
    assert.ok(wasm[name]?.prototype instanceof wasm.PolylatchError, name);
    assert.equal(wasm[name].prototype.name, name);
  }
  const classes = Object.keys(wasm).filter((name) => name.endsWith('Error'));
  assert.equal(classes.length, errors.length + 1);
});

test('it has the version of the workspace, and nothing that it does not need', () => {
  const { version, dependencies } = JSON.parse(readFileSync(manifest, 'utf8'));
  assert.equal(version, process.env.POLYLATCH_EXPECTED_VERSION);
  assert.equal(dependencies, undefined);
  assert.deepEqual(readdirSync(folder).sort(), [
    'LICENSE',
    'README.md',
    'THIRD-PARTY-NOTICES.txt',
    'js',
    'package.json',
  ]);
});

const compressed = (name) => gzipSync(readFileSync(join(folder, 'js', name)), { level: 9 }).length;

for (const [kind, budget] of Object.entries(BUDGETS)) {
  test(`the module for ${kind} keeps to its budget`, (t) => {
    const size = compressed(`${kind}_bg.wasm`);
    t.diagnostic(`${kind}: ${size} bytes compressed, of ${budget}`);
    assert.ok(size <= budget, `${size} bytes`);
  });
}

test('the scripts keep to their budget, and every module has one', (t) => {
  const names = readdirSync(join(folder, 'js'));
  const modules = names.filter((name) => name.endsWith('.wasm'));
  assert.deepEqual(
    modules.sort(),
    Object.keys(BUDGETS)
      .map((kind) => `${kind}_bg.wasm`)
      .sort(),
  );
  const size = names.filter((name) => /\.m?js$/.test(name)).reduce((sum, name) => sum + compressed(name), 0);
  t.diagnostic(`scripts: ${size} bytes compressed, of ${SCRIPTS}`);
  assert.ok(size <= SCRIPTS, `${size} bytes`);
});

test('only the module that a store needs is loaded', () => {
  const script = `
    import { promises } from 'node:fs';
    import { syncBuiltinESMExports } from 'node:module';
    const read = promises.readFile, seen = [];
    promises.readFile = (file, ...rest) => {
      // Node itself reads its modules by this, too.
      if (String(file).endsWith('.wasm')) seen.push(String(file).split('/').pop());
      return read(file, ...rest);
    };
    syncBuiltinESMExports();
    const { connect, TokenGate } = await import('polylatch-wasm');
    new TokenGate().admit(1n);
    const before = seen.length;
    const clients = await Promise.all([connect('memory:a'), connect('memory:b')]);
    await Promise.all(clients.map((client) => client.close()));
    console.log(JSON.stringify([before, seen]));
  `;
  const answer = execFileSync(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: import.meta.dirname,
    encoding: 'utf8',
  });
  assert.deepEqual(JSON.parse(answer), [0, ['memory_bg.wasm']]);
});
