// Compiles the part of the API that both JavaScript packages share: `build(OUT, 'commonjs' | 'es2022')` writes NAME.js and,
// for what a program sees, NAME.d.ts. The compiler is the one of bindings/node; it is installed if it is missing.

import { execFileSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';

const here = resolve(import.meta.dirname ?? new URL('.', import.meta.url).pathname);
const tools = join(here, '../node');
const compiler = join(tools, 'node_modules/typescript/bin/tsc');

/** Modules that only the others use. */
const WITHOUT_TYPES = ['fields', 'idempotency_values', 'options'];

/** What a host needs that reaches stores with records of idempotent work; a page does not. */
const WITH_RECORDS = ['idempotency', 'idempotency_errors', 'idempotency_values', 'recording_client'];

function compile(out, ...options) {
  const given = ['--project', here, '--noEmit', 'false', '--outDir', out, ...options];
  execFileSync(process.execPath, [compiler, ...given], { stdio: ['ignore', 'inherit', 'inherit'] });
}

export function build(out, format) {
  if (!existsSync(compiler)) {
    const quiet = ['--no-save', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
    execFileSync('npm', ['install', ...quiet], { cwd: tools, stdio: ['ignore', 2, 'inherit'] });
  }
  const resolution = format === 'commonjs' ? 'node10' : 'bundler';
  // Comments are for those who read the types: a page waits for every kilobyte.
  compile(out, '--module', format, '--moduleResolution', resolution, '--removeComments');
  compile(out, '--declaration', '--emitDeclarationOnly');
  for (const name of WITHOUT_TYPES) rmSync(join(out, `${name}.d.ts`));
  if (format !== 'commonjs') {
    for (const name of WITH_RECORDS) {
      rmSync(join(out, `${name}.js`));
      rmSync(join(out, `${name}.d.ts`), { force: true });
    }
  }
  // There are only types in it.
  rmSync(join(out, 'types.js'));
}
