// Makes the npm package `polylatch`, with the native parts that are given inside.
//
//   node scripts/pack.mjs OUT PLATFORM=LIBRARY…
//
// The version is the workspace's, from Cargo.toml. `npm pack` writes the tarball into OUT. The same input gives the same bytes.

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

import { build } from '../../javascript/build.mjs';
import { pack, stage } from '../../javascript/package.mjs';
import { bundle, bundled } from './bundle.mjs';

const here = resolve(import.meta.dirname ?? new URL('.', import.meta.url).pathname, '..');
const platforms = JSON.parse(readFileSync(join(here, 'js/platforms.json'), 'utf8'));

/** What users do not get of `js/`: the types and settings that only its own check needs. */
const PRIVATE = ['native.d.ts', 'tsconfig.json'];

function main([out, ...given]) {
  if (out === undefined || given.length === 0) {
    throw new Error('usage: node scripts/pack.mjs OUT PLATFORM=LIBRARY…');
  }
  const staging = mkdtempSync(join(tmpdir(), 'polylatch-npm-'));
  try {
    mkdirSync(out, { recursive: true });
    stage(staging, here, 'polylatch-node');
    mkdirSync(join(staging, 'native'));
    for (const pair of given) {
      const [platform, library] = pair.split('=');
      if (platforms[platform] === undefined || !library)
        throw new Error(`${pair}: PLATFORM=LIBRARY is needed`);
      cpSync(library, join(staging, 'native', `${platform}.node`));
    }
    const js = join(staging, 'js');
    build(js, 'commonjs');
    cpSync(join(here, 'js'), js, {
      recursive: true,
      filter: (source) => !PRIVATE.some((name) => source.endsWith(`/${name}`)),
    });
    const text = bundle(js);
    for (const name of bundled(js)) rmSync(join(js, name));
    writeFileSync(join(js, 'index.cjs'), text);
    pack(staging, out);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

main(process.argv.slice(2));
