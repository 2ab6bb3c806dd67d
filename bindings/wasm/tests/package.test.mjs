// What is in the package.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';

const wasm = { ...(await import('polylatch-wasm')) };

const manifest = createRequire(import.meta.url).resolve('polylatch-wasm/package.json');
const folder = dirname(manifest);

/** What a page loads, compressed, in kilobytes of 1000 bytes. A limit against growth, above what it is. */
const LARGEST = 420;

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
  assert.deepEqual(readdirSync(folder).sort(), ['LICENSE', 'README.md', 'js', 'package.json']);
});

test('it is not larger than it was', (t) => {
  const sizes = readdirSync(join(folder, 'js'))
    .filter((name) => /\.(m?js|wasm)$/.test(name))
    .map((name) => [name, gzipSync(readFileSync(join(folder, 'js', name)), { level: 9 }).length]);
  const total = sizes.reduce((sum, [, size]) => sum + size, 0);
  const wasmSize = sizes.find(([name]) => name.endsWith('.wasm'))[1];
  t.diagnostic(`compressed: wasm ${wasmSize} bytes, with JavaScript ${total}`);
  assert.ok(total < LARGEST * 1_000, `${total} bytes`);
});
