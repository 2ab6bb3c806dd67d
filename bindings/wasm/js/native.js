// The gate for fencing tokens, as the Rust part of the Node package has it. It needs no store, so it is there
// without loading any.

class NativeGate {
  /** @type {bigint | undefined} */
  #largest;

  /** @param {string} [largest] */
  constructor(largest) {
    this.#largest = largest === undefined ? undefined : BigInt(largest);
  }

  /**
   * Nothing, or why it is refused.
   * @param {string} digits
   */
  admit(digits) {
    const token = BigInt(digits);
    if (this.#largest !== undefined && token < this.#largest) {
      return {
        code: 'stale_token',
        retry: 'never',
        effect: 'none',
        message:
          `the fencing token ${token} is older than ${this.#largest}, which was seen before: ` +
          'the lock has a newer holder, so this write is refused',
        hint: 'Stop: a newer holder has written. Acquire the lock again.',
      };
    }
    this.#largest = token;
    return undefined;
  }

  largest() {
    return this.#largest?.toString() ?? null;
  }
}

export { NativeGate };
