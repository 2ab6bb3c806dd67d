'use strict';
// A connected client, as the shared part of the API asks it.

const { call, had, hub } = require('./calls.cjs');
const { Held, HeldSet } = require('./held.cjs');

/** @typedef {import('./native').NativeClient} NativeClient */
/** @typedef {import('./port.js').ClientPort} ClientPort */
/** @typedef {import('./port.js').Options} Options */

/**
 * One client.
 * @implements {ClientPort}
 */
class Connected {
  #native;

  /** @param {NativeClient} native */
  constructor(native) {
    this.#native = native;
  }

  id() {
    return this.#native.id();
  }

  url() {
    return this.#native.url();
  }

  capability() {
    return this.#native.capability();
  }

  stats() {
    return this.#native.stats();
  }

  /** @param {string[]} labels */
  prometheus(labels) {
    return this.#native.prometheus(labels);
  }

  /**
   * @param {number | undefined} lease
   * @param {number | undefined} wait
   * @param {number | undefined} maxHold
   * @param {number | undefined} beatEvery
   */
  checkLengths(lease, wait, maxHold, beatEvery) {
    return this.#native.checkLengths(lease, wait, maxHold, beatEvery);
  }

  /**
   * @param {string} what
   * @param {number} count
   */
  checkCount(what, count) {
    return this.#native.checkCount(what, count);
  }

  /**
   * @param {boolean} waits
   * @param {string} name
   * @param {import('./port.js').NumberedMode} mode
   * @param {Options} options
   * @param {AbortSignal | undefined} signal
   * @returns {Promise<Held | null>}
   */
  acquire(waits, name, mode, options, signal) {
    /** @type {number | undefined} */
    let lease;
    /** @type {number | undefined} */
    let wait;
    /** @type {object | undefined} */
    let all;
    for (const key in options) {
      // Usually there are no others, and an object takes long to cross the border.
      if (key === 'lease') lease = options[key];
      else if (key === 'wait') wait = options[key];
      else all = options;
    }
    const { number, count, capacity } = mode;
    return call(
      (at) => hub().acquire(at, this.#native, waits, name, number, count, capacity, lease, wait, all),
      signal,
      had,
      new Held(this.#native, name, mode),
    );
  }

  /**
   * @param {boolean} waits
   * @param {string[]} names
   * @param {Options} options
   * @param {AbortSignal | undefined} signal
   * @returns {Promise<HeldSet | null>}
   */
  async acquireAll(waits, names, options, signal) {
    const set = await call((at) => hub().acquireAll(at, this.#native, waits, names, options), signal);
    return set === null ? null : new HeldSet(/** @type {any} */ (set));
  }

  /**
   * @param {string | undefined} name
   * @param {string | undefined} prefix
   * @param {number | undefined} limit
   * @returns {Promise<string>}
   */
  inspect(name, prefix, limit) {
    return call((at) => hub().inspect(at, this.#native, name, prefix, limit));
  }

  /**
   * @param {string} name
   * @param {string} expected
   * @param {string} by
   * @param {string} reason
   * @returns {Promise<string>}
   */
  breakLease(name, expected, by, reason) {
    return call((at) => hub().breakLease(at, this.#native, name, expected, by, reason));
  }

  /** @returns {Promise<void>} */
  close() {
    return call((at) => hub().close(at, this.#native));
  }
}

module.exports = { Connected };
