// Makes one file of the modules in a folder: to look for a file and to read it takes longer than to run it.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** What stays a file of its own: the table of errors, which other programs may want to look at. */
export const APART = ['errors.js'];

/** What runs the parts, inside the file. What is no part of it is required as usual. */
const LOADER = `
const loaded = new Map();

function part(name) {
  if (!Object.hasOwn(parts, name)) return require(name);
  let module = loaded.get(name);
  if (module === undefined) {
    module = { exports: {} };
    loaded.set(name, module);
    parts[name](module, part, module.exports);
  }
  return module.exports;
}

module.exports = part('./index.cjs');
`;

/** The names of the files in the folder that the one file stands for. */
export function bundled(folder) {
  return readdirSync(folder).filter(
    (name) => (/\.c?js$/.test(name) || name === 'platforms.json') && !APART.includes(name),
  );
}

/** The text of the one file, `index.cjs`. */
export function bundle(folder) {
  const parts = bundled(folder).map((name) => {
    const text = readFileSync(join(folder, name), 'utf8').trim();
    const body = name.endsWith('.json')
      ? `module.exports = ${text};`
      : text.replace(/^(['"])use strict\1;\n/, '');
    return `  './${name}'(module, require, exports) {\n${body}\n  },\n`;
  });
  return `'use strict';\n// Made of several files by scripts/bundle.mjs.\n\nconst parts = {\n${parts.join('')}};\n${LOADER}`;
}
