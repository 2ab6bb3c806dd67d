// Makes the npm package: `node scripts/pack.mjs OUT NATIVE`, where NATIVE is the folder with KIND.js and
// KIND_bg.wasm for each kind of store. What both JavaScript packages share is taken from bindings/node/js and written as modules.
// The version is the workspace's, from Cargo.toml.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const here = resolve(import.meta.dirname ?? new URL('.', import.meta.url).pathname, '..');
const top = resolve(here, '../..');
const node = join(top, 'bindings/node/js');

const SHARED = ['client', 'errors', 'fields', 'gate', 'guard', 'lock', 'options'];

function version() {
  const text = readFileSync(join(top, 'Cargo.toml'), 'utf8');
  const section = text.split('[workspace.package]')[1]?.split('\n[')[0] ?? '';
  const found = /^version = "([^"]+)"$/m.exec(section);
  if (found === null) throw new Error('Cargo.toml has no version in [workspace.package]');
  return found[1];
}

/** A CommonJS module of the shared ones, as an ECMAScript module. */
function asModule(name) {
  const module = (path) => (path === './native.cjs' ? './native.js' : path.replace(/\.cjs$/, '.mjs'));
  const text = readFileSync(join(node, `${name}.cjs`), 'utf8')
    .replace("'use strict';\n", '')
    .replace(/^const (\{[^}]*\}) = require\('([^']+)'\);$/gm, (_, names, path) => {
      return `import ${names} from '${module(path)}';`;
    })
    .replace(/^module\.exports = (\{[^}]*\});$/m, 'export $1;');
  if (/\brequire\(|\bmodule\.exports\b|\bprocess\b\./.test(text)) {
    throw new Error(`bindings/node/js/${name}.cjs has something that is no module's`);
  }
  return text;
}

/** The types that both packages share. */
function sharedTypes() {
  const thread = 'by a thread\n * that JavaScript cannot block, until';
  const text = readFileSync(join(node, 'index.d.cts'), 'utf8');
  if (!text.includes(thread)) throw new Error('index.d.cts does not say any more who renews');
  // Statements for SQL databases are not in this package.
  const sql = [text.indexOf('/** What a {@link FencedUpdate}'), text.indexOf('export type ErrorCode')];
  if (sql[0] < 0 || sql[1] < sql[0]) throw new Error('index.d.cts does not have FencedUpdate where it was');
  return (text.slice(0, sql[0]) + text.slice(sql[1])).replace(
    thread,
    'on the event loop,\n * also of a hidden page though late, until',
  );
}

function writeModules(out) {
  for (const name of SHARED) writeFileSync(join(out, `${name}.mjs`), asModule(name));
  writeFileSync(join(out, 'shared.d.mts'), sharedTypes());
  for (const name of readdirSync(join(here, 'js'))) cpSync(join(here, 'js', name), join(out, name));
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
    mkdirSync(join(staging, 'js'));
    writeModules(join(staging, 'js'));
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
