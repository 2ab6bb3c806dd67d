// Checks the tarball in a folder: what is in it, and how large its native parts are.
//
//   node scripts/check-packages.mjs FOLDER [--complete]
//
// With --complete there has to be a native part for every platform.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

/** Of one platform: its native part, compressed. */
const MOST_BYTES = 5 * 1024 * 1024;

const MAIN = [
  'LICENSE',
  'README.md',
  'THIRD-PARTY-NOTICES.txt',
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
  'js/transaction_types.d.cts',
  'js/types.d.ts',
  'package.json',
];
const [folder, complete] = process.argv.slice(2);
assert.ok(complete === undefined || complete === '--complete', `there is no option ${complete}`);
const tarballs = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
assert.equal(tarballs.length, 1, `one package, there are ${tarballs.join(', ')}`);
const path = join(folder, tarballs[0]);
const platforms = JSON.parse(readFileSync(new URL('../js/platforms.json', import.meta.url), 'utf8'));
const native = Object.keys(platforms).map((name) => `native/${name}.node`);

const listed = execFileSync('tar', ['-tzf', path], { encoding: 'utf8' }).trim().split('\n');
const files = listed.map((file) => file.replace(/^package\//, '')).sort();
const within = files.filter((file) => native.includes(file));
assert.deepEqual(
  files.filter((file) => !native.includes(file)),
  MAIN,
);
assert.ok(within.length >= 1, 'a native part for at least one platform');
if (complete) assert.deepEqual(within, native.sort(), 'a native part for every platform');
for (const file of within) {
  const bytes = execFileSync('tar', ['-xzOf', path, `package/${file}`], { maxBuffer: 2 ** 27 });
  const { length } = gzipSync(bytes);
  assert.ok(
    length <= MOST_BYTES,
    `${file} has ${length} bytes compressed; at most ${MOST_BYTES} are allowed`,
  );
  process.stdout.write(`${file}: ${(length / 1e6).toFixed(2)} MB compressed\n`);
}
const manifest = JSON.parse(
  execFileSync('tar', ['-xzOf', path, 'package/package.json'], { encoding: 'utf8' }),
);
for (const field of ['name', 'version', 'description', 'license', 'engines']) {
  assert.ok(manifest[field], `no ${field}`);
}
for (const field of ['dependencies', 'optionalDependencies', 'peerDependencies']) {
  assert.equal(manifest[field], undefined, `${field}: installing asks no registry for anything`);
}
assert.equal(manifest.scripts, undefined, 'nothing runs at installation');
