// Loads the part in Rust once, before anything here can be called: from the file beside this one in Node,
// Deno and Bun, by `fetch` elsewhere.

import init from './native.js';

const file = new URL('./native_bg.wasm', import.meta.url);

async function source() {
  if (file.protocol !== 'file:') return file;
  // Not a literal, so that bundlers for browsers do not look for it.
  const fs = 'node:fs/promises';
  const { readFile } = await import(/* @vite-ignore */ /* webpackIgnore: true */ fs);
  return readFile(file);
}

await init({ module_or_path: await source() });
