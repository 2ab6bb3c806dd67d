// Makes the npm packages: `polylatch`, and one for each platform whose native part is given.
//
//   node scripts/pack.mjs OUT PLATFORM=LIBRARY…
//
// The version is the workspace's, from Cargo.toml. `npm pack` writes the tarballs into OUT.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

import { build } from '../../javascript/build.mjs';
import { bundle, bundled } from './bundle.mjs';

const here = resolve(import.meta.dirname ?? new URL('.', import.meta.url).pathname, '..');
const top = resolve(here, '../..');
const platforms = JSON.parse(readFileSync(join(here, 'js/platforms.json'), 'utf8'));

/** What users do not get of `js/`: the types and settings that only its own check needs. */
const PRIVATE = ['native.d.ts', 'tsconfig.json'];

function version() {
  const text = readFileSync(join(top, 'Cargo.toml'), 'utf8');
  const section = text.split('[workspace.package]')[1]?.split('\n[')[0] ?? '';
  const found = /^version = "([^"]+)"$/m.exec(section);
  if (found === null) throw new Error('Cargo.toml has no version in [workspace.package]');
  return found[1];
}

function pack(folder, out) {
  const answer = execFileSync('npm', ['pack', '--json', '--pack-destination', out], {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // npm has answered with a list, and with an object by package name.
  const packed = Object.values(JSON.parse(answer))[0];
  process.stdout.write(`${packed.filename}  ${packed.size} bytes, ${packed.files.length} files\n`);
}

function stage(folder, manifest) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  for (const name of readdirSync(top).filter((name) => name.startsWith('LICENSE'))) {
    cpSync(join(top, name), join(folder, name));
  }
}

function main([out, ...given]) {
  if (out === undefined || given.length === 0) {
    throw new Error('usage: node scripts/pack.mjs OUT PLATFORM=LIBRARY…');
  }
  const staging = mkdtempSync(join(tmpdir(), 'polylatch-npm-'));
  try {
    mkdirSync(out, { recursive: true });
    const number = version();
    const { license } = JSON.parse(readFileSync(join(here, 'npm/package.json'), 'utf8'));
    for (const pair of given) {
      const [name, library] = pair.split('=');
      const platform = platforms[name];
      if (platform === undefined || !library) throw new Error(`${pair}: PLATFORM=LIBRARY is needed`);
      const folder = join(staging, name);
      stage(folder, {
        name: `@polylatch/${name}`,
        version: number,
        description: `The native part of polylatch for ${name}`,
        license,
        main: 'polylatch.node',
        files: ['polylatch.node', 'LICENSE', 'README.md'],
        engines: { node: '>=20.4' },
        os: [platform.os],
        cpu: [platform.cpu],
        ...(platform.libc ? { libc: [platform.libc] } : {}),
      });
      writeFileSync(join(folder, 'README.md'), `The native part of the package polylatch for ${name}.\n`);
      cpSync(library, join(folder, 'polylatch.node'));
      pack(folder, resolve(out));
    }
    const folder = join(staging, 'polylatch');
    const manifest = JSON.parse(readFileSync(join(here, 'npm/package.json'), 'utf8'));
    const native = Object.keys(platforms).map((name) => [`@polylatch/${name}`, number]);
    const { name, ...rest } = manifest;
    stage(folder, { name, version: number, ...rest, optionalDependencies: Object.fromEntries(native) });
    const js = join(folder, 'js');
    build(js, 'commonjs');
    cpSync(join(here, 'js'), js, {
      recursive: true,
      filter: (source) => !PRIVATE.some((name) => source.endsWith(`/${name}`)),
    });
    const text = bundle(js);
    for (const name of bundled(js)) rmSync(join(js, name));
    writeFileSync(join(js, 'index.cjs'), text);
    cpSync(join(here, 'README.md'), join(folder, 'README.md'));
    pack(folder, resolve(out));
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

main(process.argv.slice(2));
