// A connected client and what it holds, as the shared part of the API asks them: the objects of a module, and the hub of that
// module, where calls are made.

import { call, follow } from './calls.mjs';

/** @typedef {import('./port.js').ClientPort} ClientPort */
/** @typedef {import('./port.js').GuardPort} GuardPort */
/** @typedef {import('./port.js').SetPort} SetPort */
/** @typedef {import('./port.js').Options} Options */
/** @typedef {import('./port.js').Told} Told */

/** What one held lock and several have in common. */
class Holding {
  /** @type {any} */
  hub;
  /** @type {any} */
  native;

  /**
   * @param {any} hub
   * @param {any} native
   */
  constructor(hub, native) {
    this.hub = hub;
    this.native = native;
  }

  remaining() {
    return this.native.remaining();
  }

  isHeld() {
    return this.native.isHeld();
  }

  check() {
    return this.native.check();
  }
}

/**
 * One held lock.
 * @implements {GuardPort}
 */
class Held extends Holding {
  name() {
    return this.native.name();
  }

  token() {
    return this.native.token();
  }

  fenceQuality() {
    return this.native.fenceQuality();
  }

  mode() {
    return this.native.mode();
  }

  permits() {
    return this.native.permits();
  }

  renewals() {
    return this.native.renewals();
  }

  beat() {
    this.native.beat();
  }

  /** @returns {Promise<void>} */
  release() {
    return call(this.hub, (at) => this.hub.release(at, this.native));
  }

  /**
   * @param {number} lease
   * @returns {Promise<void>}
   */
  extend(lease) {
    return call(this.hub, (at) => this.hub.extend(at, this.native, lease));
  }

  /** @param {boolean} up */
  async convert(up) {
    return new Held(this.hub, await call(this.hub, (at) => this.hub.convert(at, this.native, up)));
  }

  /** @param {Told} told */
  followLoss(told) {
    return follow(this.hub, (at) => this.hub.lost(at, this.native), told);
  }

  /** @param {Told} told */
  followDanger(told) {
    return follow(this.hub, (at) => this.hub.endangered(at, this.native), told);
  }
}

/**
 * Several held locks.
 * @implements {SetPort}
 */
class HeldSet extends Holding {
  names() {
    return this.native.names();
  }

  tokens() {
    return this.native.tokens();
  }

  /** @returns {Promise<void>} */
  release() {
    return call(this.hub, (at) => this.hub.releaseAll(at, this.native));
  }

  /** @param {Told} told */
  followLoss(told) {
    return follow(this.hub, (at) => this.hub.lostOne(at, this.native), told);
  }
}

/**
 * One client.
 * @implements {ClientPort}
 */
class Connected {
  #hub;
  #native;

  /**
   * @param {any} hub
   * @param {any} native
   */
  constructor(hub, native) {
    this.#hub = hub;
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

  /** @param {[number?, number?, number?, number?]} lengths */
  checkLengths(...lengths) {
    return this.#native.checkLengths(...lengths);
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
   * @param {Options} options `steal` as well, for `locks.mjs`
   * @param {AbortSignal | undefined} signal
   */
  async acquire(waits, name, { number, count, capacity }, options, signal) {
    const native = await call(
      this.#hub,
      (at) => this.#hub.acquire(at, this.#native, waits, name, number, count, capacity, options),
      signal,
    );
    return native === null ? null : new Held(this.#hub, native);
  }

  /**
   * @param {boolean} waits
   * @param {string[]} names
   * @param {Options} options
   * @param {AbortSignal | undefined} signal
   */
  async acquireAll(waits, names, options, signal) {
    const native = await call(
      this.#hub,
      (at) => this.#hub.acquireAll(at, this.#native, waits, names, options),
      signal,
    );
    return native === null ? null : new HeldSet(this.#hub, native);
  }

  /**
   * @param {string | undefined} name
   * @param {string | undefined} prefix
   * @param {number | undefined} limit
   * @returns {Promise<string>}
   */
  inspect(name, prefix, limit) {
    return call(this.#hub, (at) => this.#hub.inspect(at, this.#native, name, prefix, limit));
  }

  /**
   * @param {string} name
   * @param {string} expected
   * @param {string} by
   * @param {string} reason
   * @returns {Promise<string>}
   */
  breakLease(name, expected, by, reason) {
    return call(this.#hub, (at) => this.#hub.breakLease(at, this.#native, name, expected, by, reason));
  }

  /** @returns {Promise<void>} */
  close() {
    return call(this.#hub, (at) => this.#hub.close(at, this.#native));
  }
}

export { Connected };
