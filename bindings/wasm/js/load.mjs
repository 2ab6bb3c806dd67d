// Loads the part in Rust: a module for each kind of store, when the first client of that kind connects, because
// a page waits for every kilobyte. From the file beside this one in Node, Deno and Bun, by `fetch` elsewhere.

/** @typedef {'memory' | 'redis' | 'consul' | 'etcd'} Kind */

// Spelled out, so that bundlers see them.
const MODULES = {
  memory: {
    glue: () => import('./memory.js'),
    file: () => new URL('./memory_bg.wasm', import.meta.url),
  },
  redis: {
    glue: () => import('./redis.js'),
    file: () => new URL('./redis_bg.wasm', import.meta.url),
  },
  consul: {
    glue: () => import('./consul.js'),
    file: () => new URL('./consul_bg.wasm', import.meta.url),
  },
  etcd: {
    glue: () => import('./etcd.js'),
    file: () => new URL('./etcd_bg.wasm', import.meta.url),
  },
};

/** @type {Partial<Record<Kind, unknown>>} */
let compiled = {};

/**
 * Takes modules that are compiled already; see `workerd.mjs`.
 * @param {Record<Kind, unknown>} modules
 */
function provide(modules) {
  compiled = modules;
}

/** @type {Map<Kind, Promise<any>>} */
const loaded = new Map();

/** @param {URL} file */
async function source(file) {
  if (file.protocol !== 'file:') return file;
  // Not a literal, so that bundlers for browsers do not look for it.
  const fs = 'node:fs/promises';
  const { readFile } = await import(/* @vite-ignore */ /* webpackIgnore: true */ fs);
  return readFile(file);
}

/** @param {Kind} kind */
async function start(kind) {
  const { glue, file } = MODULES[kind];
  const [module, bytes] = await Promise.all([glue(), compiled[kind] ?? source(file())]);
  await module.default({ module_or_path: bytes });
  return module;
}

/**
 * The module for a kind of store. What could not be loaded is tried again the next time.
 * @param {Kind} kind
 */
function load(kind) {
  let module = loaded.get(kind);
  if (module === undefined) {
    module = start(kind);
    loaded.set(kind, module);
    module.catch(() => loaded.delete(kind));
  }
  return module;
}

/**
 * The kind of store that a URL names.
 * @param {string} url
 * @returns {Kind}
 */
function kindOf(url) {
  if (/^consul[:+]/.test(url)) return 'consul';
  if (/^etcd[:+]/.test(url)) return 'etcd';
  // What is no store at all, the smallest one refuses.
  return /^redis/.test(url) ? 'redis' : 'memory';
}

export { kindOf, load, provide };
