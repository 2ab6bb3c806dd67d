'use strict';
// Connecting.

const path = require('node:path');

const { call, hub } = require('./calls.cjs');
const { Client } = require('./recording_client.js');
const { Connected } = require('./connected.cjs');
const { followChannels, forget, listen } = require('./events.cjs');
const { connectOptions, mustBe } = require('./options.js');
const { isFault } = require('./port.js');

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
  const native = await call((number) => {
    const part = hub();
    followChannels(part);
    const listener = listen(/** @type {any} */ (onEvent));
    const reply = part.connect(number, url, runs, options, listener);
    // There is no client whose end will be reported.
    if (isFault(reply)) forget(listener);
    return reply;
  }, signal);
  return Client.of(new Connected(native));
}

/** @param {unknown} given */
function isObject(given) {
  return typeof given === 'object' && given !== null && !Array.isArray(given);
}

module.exports = { connect };
