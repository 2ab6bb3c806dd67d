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
  const { options, program, signal } = connectOptions(given);
  // Beside a held lock people want to read what runs, not that it runs in Node.
  const runs = program ?? (process.argv[1] && path.basename(process.argv[1]));
  /** @type {NativeClient} */
  const native = await call((number) => hub.connect(number, url, runs, options), signal);
  return new Client(native);
}

module.exports = { connect };
