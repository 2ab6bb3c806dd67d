'use strict';
// The gate that a protected resource puts fencing tokens through.

const { NativeGate } = require('./native.cjs');
const { isFault } = require('./calls.cjs');
const { errorOf } = require('./errors.cjs');
const { mustBeToken } = require('./options.cjs');

/** Remembers the largest fencing token that a resource has seen, and refuses smaller ones. */
class TokenGate {
  #native;

  /** @param {bigint} [largest] */
  constructor(largest) {
    this.#native = new NativeGate(
      largest === undefined ? undefined : mustBeToken('the token', largest).toString(),
    );
  }

  /** @param {bigint} token */
  admit(token) {
    const fault = this.#native.admit(mustBeToken('the token', token).toString());
    if (isFault(fault)) throw errorOf(/** @type {any} */ (fault));
  }

  get largest() {
    const largest = this.#native.largest();
    return largest === null ? undefined : BigInt(largest);
  }
}

module.exports = { TokenGate };
