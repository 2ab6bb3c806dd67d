'use strict';
// What stands for a run on this side: a claim on a key, or the answer of an earlier run.

const { call, follow, hub } = require('./calls.cjs');

/** @typedef {import('./native').NativeRun} NativeRun */
/** @typedef {import('./idempotency.js').RunPort} RunPort */
/** @typedef {import('./port.js').Told} Told */

/**
 * One run that has begun. One that is forgotten is not renewed any more.
 * @implements {RunPort}
 */
class BegunRun {
  #native;

  /** @param {NativeRun} native */
  constructor(native) {
    this.#native = native;
  }

  answer() {
    return this.#native.answer();
  }

  failure() {
    return this.#native.failure();
  }

  token() {
    return this.#native.token();
  }

  runs() {
    return this.#native.runs();
  }

  remaining() {
    return this.#native.remaining();
  }

  check() {
    return this.#native.check();
  }

  abandon() {
    this.#native.abandon();
  }

  /**
   * @param {Uint8Array} result
   * @returns {Promise<void>}
   */
  complete(result) {
    return call((at) => hub().complete(at, this.#native, buffer(result)));
  }

  /**
   * @param {Uint8Array} answer
   * @param {string | undefined} fate
   * @returns {Promise<void>}
   */
  fail(answer, fate) {
    return call((at) => hub().fail(at, this.#native, buffer(answer), fate));
  }

  /** @param {Told} told */
  followLoss(told) {
    const native = this.#native;
    return follow((at) => hub().lostClaim(at, native), told);
  }
}

/** @param {Uint8Array} bytes */
function buffer(bytes) {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

module.exports = { BegunRun, buffer };
