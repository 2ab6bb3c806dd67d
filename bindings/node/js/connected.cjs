'use strict';
// A connected client, as the shared part of the API asks it.

const { call, had, hub } = require('./calls.cjs');
const { BegunRun, buffer } = require('./claims.cjs');
const { Held, HeldSet } = require('./held.cjs');

/** @typedef {import('./native').NativeClient} NativeClient */
/** @typedef {import('./idempotency.js').RecordsPort} RecordsPort */
/** @typedef {import('./port.js').Options} Options */

/** @type {import('./calls.cjs').Make} */
const begun = (native) => new BegunRun(native);

/**
 * One client.
 * @implements {RecordsPort}
 */
class Connected {
  #native;
  #number;

  /** @param {NativeClient} native */
  constructor(native) {
    this.#native = native;
    this.#number = native.number();
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
   * @param {number | undefined} keepIdle
   */
  checkLengths(lease, wait, maxHold, beatEvery, keepIdle) {
    return this.#native.checkLengths(lease, wait, maxHold, beatEvery, keepIdle);
  }

  /**
   * @param {string} what
   * @param {number} count
   */
  checkCount(what, count) {
    return this.#native.checkCount(what, count);
  }

  /**
   * @param {string} name
   * @param {import('./port.js').NumberedMode} mode
   * @param {Options} options
   * @returns {Held | undefined}
   */
  enterKept(name, mode, options) {
    const keepIdle = options?.keepIdle;
    if (keepIdle === undefined || mode.number !== 0) return undefined;
    for (const key in options) {
      // Whether the two go together is said by the usual way.
      if (key !== 'keepIdle' && key !== 'lease' && key !== 'wait') return undefined;
    }
    const held = new Held(this.#native, name, mode, true);
    return held.enter(this.#number, options?.lease, keepIdle) ? held : undefined;
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
    /** @type {number | undefined} */
    let keepIdle;
    /** @type {object | undefined} */
    let all;
    for (const key in options) {
      // Usually there are no others, and an object takes long to cross the border.
      if (key === 'lease') lease = options[key];
      else if (key === 'wait') wait = options[key];
      else if (key === 'keepIdle') keepIdle = options[key];
      else all = options;
    }
    const { number, count, capacity } = mode;
    const held = new Held(this.#native, name, mode, keepIdle !== undefined);
    return call(
      (at) =>
        hub().acquire(
          at,
          held.number(),
          this.#native,
          waits,
          name,
          number,
          count,
          capacity,
          lease,
          wait,
          keepIdle,
          all,
        ),
      signal,
      had,
      held,
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

  /**
   * @param {string} scope
   * @param {string} key
   * @param {import('./idempotency.js').NativeRunOptions} options
   * @param {AbortSignal} [signal]
   * @returns {Promise<BegunRun>}
   */
  begin(scope, key, options, signal) {
    const { payload } = options;
    const given = payload === undefined ? options : { ...options, payload: buffer(payload) };
    return call((at) => hub().begin(at, this.#native, scope, key, given), signal, begun);
  }

  /**
   * @param {string} scope
   * @param {string} key
   * @returns {Promise<string>}
   */
  forgetKey(scope, key) {
    return call((at) => hub().forgetKey(at, this.#native, scope, key));
  }

  /**
   * @param {string} scope
   * @param {string} key
   * @returns {Promise<string | null>}
   */
  record(scope, key) {
    return call((at) => hub().record(at, this.#native, scope, key));
  }

  /**
   * @param {string} scope
   * @param {number} ttl
   * @returns {Promise<string>}
   */
  issueToken(scope, ttl) {
    return call((at) => hub().issueToken(at, this.#native, scope, ttl));
  }

  /**
   * @param {string} scope
   * @param {string} token
   * @returns {Promise<string>}
   */
  consumeToken(scope, token) {
    return call((at) => hub().consumeToken(at, this.#native, scope, token));
  }

  /** @returns {Promise<void>} */
  close() {
    return call((at) => hub().close(at, this.#native));
  }
}

module.exports = { Connected };
