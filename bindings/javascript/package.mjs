// What the packers of both npm packages share: the version, the texts of the licences, the tarball.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const top = resolve(import.meta.dirname ?? new URL('.', import.meta.url).pathname, '../..');

/** The version of the workspace, from Cargo.toml. */
function version() {
  const text = readFileSync(join(top, 'Cargo.toml'), 'utf8');
  const section = text.split('[workspace.package]')[1]?.split('\n[')[0] ?? '';
  const found = /^version = "([^"]+)"$/m.exec(section);
  if (found === null) throw new Error('Cargo.toml has no version in [workspace.package]');
  return found[1];
}

/**
 * Writes into the folder what every package has: the manifest with its version, the README, the licence, and the licences of
 * what the crate is compiled together with.
 */
export function stage(folder, binding, crate) {
  mkdirSync(folder, { recursive: true });
  const { name, ...rest } = JSON.parse(readFileSync(join(binding, 'npm/package.json'), 'utf8'));
  const manifest = { name, version: version(), ...rest };
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  cpSync(join(top, 'LICENSE'), join(folder, 'LICENSE'));
  cpSync(join(binding, 'README.md'), join(folder, 'README.md'));
  const notices = execFileSync(join(top, 'bindings/notices'), [crate], { cwd: top, maxBuffer: 2 ** 24 });
  writeFileSync(join(folder, 'THIRD-PARTY-NOTICES.txt'), notices);
}

/** Makes the tarball of the folder, in `out`, and says what it is. */
export function pack(folder, out) {
  const answer = execFileSync('npm', ['pack', '--json', '--pack-destination', resolve(out)], {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // npm has answered with a list, and with an object by package name.
  const packed = Object.values(JSON.parse(answer))[0];
  process.stdout.write(`${packed.filename}  ${packed.size} bytes, ${packed.files.length} files\n`);
}
