// Makes the npm package: `node scripts/pack.mjs OUT NATIVE`, where NATIVE is the folder with KIND.js and
// KIND_bg.wasm for each kind of store. What both JavaScript packages share is compiled from bindings/javascript.
// The version is the workspace's, from Cargo.toml.

import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

import { build } from '../../javascript/build.mjs';
import { pack, stage } from '../../javascript/package.mjs';

const here = resolve(import.meta.dirname ?? new URL('.', import.meta.url).pathname, '..');

function main([out, native]) {
  if (out === undefined || native === undefined) throw new Error('usage: node scripts/pack.mjs OUT NATIVE');
  const staging = mkdtempSync(join(tmpdir(), 'polylatch-npm-'));
  try {
    mkdirSync(out, { recursive: true });
    stage(staging, here, 'polylatch-wasm');
    build(join(staging, 'js'), 'es2022');
    cpSync(join(here, 'js'), join(staging, 'js'), { recursive: true });
    for (const name of readdirSync(native)) cpSync(join(native, name), join(staging, 'js', name));
    pack(staging, out);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

main(process.argv.slice(2));
