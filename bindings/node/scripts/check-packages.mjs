// Checks the tarballs in a folder: what is in them, and how large they are.
//
//   node scripts/check-packages.mjs FOLDER [--complete]
//
// With --complete there has to be one for every platform.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

const MOST_BYTES = 6 * 1024 * 1024;

const MAIN = [
  'LICENSE',
  'README.md',
  'js/client.d.ts',
  'js/errors.d.ts',
  'js/errors.js',
  'js/gate.d.ts',
  'js/guard.d.ts',
  'js/idempotency.d.ts',
  'js/idempotency_errors.d.ts',
  'js/index.cjs',
  'js/index.d.cts',
  'js/index.d.mts',
  'js/index.mjs',
  'js/lock.d.ts',
  'js/port.d.ts',
  'js/recording_client.d.ts',
  'js/types.d.ts',
  'package.json',
];
const NATIVE = ['LICENSE', 'README.md', 'package.json', 'polylatch.node'];

const [folder, complete] = process.argv.slice(2);
assert.ok(complete === undefined || complete === '--complete', `there is no option ${complete}`);
const tarballs = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
assert.ok(tarballs.length >= 2, 'the main package and at least one for a platform');
const versions = new Set();
const packed = new Set();
for (const name of tarballs) {
  const path = join(folder, name);
  const { size } = statSync(path);
  assert.ok(size <= MOST_BYTES, `${name} has ${size} bytes; at most ${MOST_BYTES} are allowed`);
  const listed = execFileSync('tar', ['-tzf', path], { encoding: 'utf8' }).trim().split('\n');
  const files = listed.map((file) => file.replace(/^package\//, '')).sort();
  assert.deepEqual(files, /^polylatch-\d/.test(name) ? MAIN : NATIVE, name);
  const manifest = JSON.parse(
    execFileSync('tar', ['-xzOf', path, 'package/package.json'], { encoding: 'utf8' }),
  );
  for (const field of ['name', 'version', 'description', 'license', 'engines']) {
    assert.ok(manifest[field], `${name}: no ${field}`);
  }
  versions.add(manifest.version);
  packed.add(manifest.name);
  assert.equal(manifest.dependencies, undefined, `${name}: nothing is needed at run time`);
  assert.equal(manifest.scripts, undefined, `${name}: nothing runs at installation`);
}
assert.equal(versions.size, 1, `packages of several versions: ${[...versions].join(', ')}`);
if (complete) {
  const platforms = JSON.parse(readFileSync(new URL('../js/platforms.json', import.meta.url), 'utf8'));
  const all = ['polylatch', ...Object.keys(platforms).map((name) => `@polylatch/${name}`)];
  assert.deepEqual([...packed].sort(), all.sort(), 'one for every platform, and the main one');
}
