// `polylatch-wasm` under the name of the Node package, and with its habit to go to Redis by a URL alone: so the
// tests and the shim of that package drive this one, word for word.

import { hostname } from 'node:os';

import * as wasm from 'polylatch-wasm';

import { respConnection } from '../../tests/resp.mjs';

export * from 'polylatch-wasm';

export async function connect(url, options) {
  if (typeof url !== 'string' || typeof (options ?? {}) !== 'object') return wasm.connect(url, options);
  const place = /^redis:\/\/([^/:?@]+):(\d+)/.exec(url);
  if (place === null) return wasm.connect(url, { host: hostname(), ...options });
  const redis = respConnection(place[1], Number(place[2]));
  return wasm.connect(url, { host: hostname(), redis, ...options });
}
