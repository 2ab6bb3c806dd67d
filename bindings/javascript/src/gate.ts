// The gate that a protected resource puts fencing tokens through.

import { errorOf } from './errors.js';
// Each package has it: the core's own, or the same in JavaScript, which needs no module to be loaded.
import { NativeGate } from './native.js';
import { mustBeToken } from './options.js';
import { isFault } from './port.js';

/** Remembers the largest fencing token that a resource has seen, and refuses smaller ones. */
export class TokenGate {
  #native: NativeGate;

  /** @param largest continue from this token */
  constructor(largest?: bigint) {
    this.#native = new NativeGate(
      largest === undefined ? undefined : mustBeToken('the token', largest).toString(),
    );
  }

  /** @throws {StaleTokenError} if a newer holder was here before. */
  admit(token: bigint): void {
    const fault = this.#native.admit(mustBeToken('the token', token).toString());
    if (isFault(fault)) throw errorOf(fault);
  }

  /** The largest token that was admitted; `undefined` before the first. */
  get largest(): bigint | undefined {
    const largest = this.#native.largest();
    return largest === null ? undefined : BigInt(largest);
  }
}
