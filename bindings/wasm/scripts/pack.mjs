// Makes the npm package: `node scripts/pack.mjs OUT NATIVE`, where NATIVE is the folder with KIND.js and
// KIND_bg.wasm for each kind of store. What both JavaScript packages share is compiled from bindings/javascript.
// The version is the workspace's, from Cargo.toml.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

import { build } from '../../javascript/build.mjs';

const here = resolve(import.meta.dirname ?? new URL('.', import.meta.url).pathname, '..');
const top = resolve(here, '../..');
function version() {
  const text = readFileSync(join(top, 'Cargo.toml'), 'utf8');
  const section = text.split('[workspace.package]')[1]?.split('\n[')[0] ?? '';
  const found = /^version = "([^"]+)"$/m.exec(section);
  if (found === null) throw new Error('Cargo.toml has no version in [workspace.package]');
  return found[1];
}

function main([out, native]) {
  if (out === undefined || native === undefined) throw new Error('usage: node scripts/pack.mjs OUT NATIVE');
  const staging = mkdtempSync(join(tmpdir(), 'polylatch-npm-'));
  try {
    mkdirSync(out, { recursive: true });
    const { name, ...rest } = JSON.parse(readFileSync(join(here, 'npm/package.json'), 'utf8'));
    const manifest = { name, version: version(), ...rest };
    writeFileSync(join(staging, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
    for (const name of readdirSync(top).filter((name) => name.startsWith('LICENSE'))) {
      cpSync(join(top, name), join(staging, name));
    }
    cpSync(join(here, 'README.md'), join(staging, 'README.md'));
    build(join(staging, 'js'), 'es2022');
    cpSync(join(here, 'js'), join(staging, 'js'), { recursive: true });
    for (const name of readdirSync(native)) cpSync(join(native, name), join(staging, 'js', name));
    const answer = execFileSync('npm', ['pack', '--json', '--pack-destination', resolve(out)], {
      cwd: staging,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const packed = Object.values(JSON.parse(answer))[0];
    process.stdout.write(`${packed.filename}  ${packed.size} bytes, ${packed.files.length} files\n`);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

main(process.argv.slice(2));
