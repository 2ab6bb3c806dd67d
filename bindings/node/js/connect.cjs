'use strict';
// Connecting.

const path = require('node:path');

const { hub, call } = require('./calls.cjs');
const { Client } = require('./client.cjs');
const { connectOptions, mustBe } = require('./options.cjs');

/** @typedef {import('./native').NativeClient} NativeClient */

/**
 * @param {string} [url]
 * @param {unknown} [given]
 */
async function connect(url, given) {
  if (url !== undefined) mustBe('the URL', url, 'string');
  const { onEvent, ...others } = /** @type {Record<string, unknown>} */ (isObject(given) ? given : {});
  if (onEvent !== undefined) mustBe('onEvent', onEvent, 'function');
  const { options, program, signal } = connectOptions(isObject(given) ? others : given);
  // Beside a held lock people want to read what runs, not that it runs in Node.
  const runs = program ?? (process.argv[1] && path.basename(process.argv[1]));
  /** @type {NativeClient} */
  const native = await call(
    (number) => hub.connect(number, url, runs, options, /** @type {any} */ (onEvent)),
    signal,
  );
  return new Client(native);
}

/** @param {unknown} given */
function isObject(given) {
  return typeof given === 'object' && given !== null && !Array.isArray(given);
}

module.exports = { connect };
