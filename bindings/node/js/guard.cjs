'use strict';
// Held locks.

const { hub, call, follow, isFault } = require('./calls.cjs');
const { errorOf, canceled } = require('./errors.cjs');

/** @typedef {import('./native').NativeGuard} NativeGuard */
/** @typedef {import('./native').NativeSet} NativeSet */

/** @typedef {{ givenBack: boolean, converting: boolean }} State */

/**
 * @param {AbortController} controller
 * @param {State} state
 * @returns {(value: any, error: unknown) => void}
 */
function whenLost(controller, state) {
  return (_, error) => {
    // Giving back is no loss, and a step between reading and writing goes on with another lease.
    if (state.converting || (error === undefined && state.givenBack)) return;
    controller.abort(
      error ?? canceled('the lock was given back because its client was closed or its guard forgotten'),
    );
  };
}

/**
 * @param {AbortController} controller
 * @param {State} state
 * @returns {(value: any) => void}
 */
function whenEndangered(controller, state) {
  return (value) => {
    if (value === null && !state.converting) controller.abort(canceled('the lease is in danger'));
  };
}

/** One held lock: proof of a lease, and the way to give it back. */
class Guard {
  /** @type {NativeGuard} */
  #native;
  /** @type {AbortController | undefined} */
  #lost;
  /** @type {AbortController | undefined} */
  #endangered;
  /** Shared with those who follow the lease, so that they do not keep the guard. */
  #state = { givenBack: false, converting: false };
  /** @type {(() => void)[]} */
  #stop = [];
  /** @type {Promise<void> | undefined} The end of a step that is under way. */
  #step;

  /** @param {NativeGuard} native */
  constructor(native) {
    this.#native = native;
  }

  get name() {
    return this.#native.name();
  }

  get fencingToken() {
    return BigInt(this.#native.token() ?? 0);
  }

  get fenceQuality() {
    return this.#native.fenceQuality();
  }

  get mode() {
    return this.#native.mode();
  }

  get permits() {
    return this.#native.permits();
  }

  get remaining() {
    return this.#native.remaining();
  }

  get isHeld() {
    return this.#native.isHeld();
  }

  get renewals() {
    return this.#native.renewals();
  }

  get signal() {
    if (this.#lost === undefined) {
      this.#lost = new AbortController();
      this.#follow();
    }
    return this.#lost.signal;
  }

  get endangered() {
    if (this.#endangered === undefined) {
      this.#endangered = new AbortController();
      this.#followDanger();
    }
    return this.#endangered.signal;
  }

  #follow() {
    const controller = /** @type {AbortController} */ (this.#lost);
    this.#stop.push(follow('lost', this.#native, whenLost(controller, this.#state)));
  }

  #followDanger() {
    const controller = /** @type {AbortController} */ (this.#endangered);
    this.#stop.push(follow('endangered', this.#native, whenEndangered(controller, this.#state)));
  }

  check() {
    const fault = this.#native.check();
    if (isFault(fault)) {
      const error = errorOf(/** @type {any} */ (fault));
      Error.captureStackTrace?.(error, this.check);
      throw error;
    }
  }

  beat() {
    this.#native.beat();
  }

  release() {
    this.#state.givenBack = true;
    // A step that is under way comes to its end first.
    if (this.#step !== undefined) return this.#step.then(() => this.#giveBack());
    return this.#giveBack();
  }

  #giveBack() {
    return call((number) => hub.release(number, this.#native));
  }

  async downgrade() {
    await this.#convert(false);
  }

  async tryUpgrade() {
    return (await this.#convert(true)) === 'write';
  }

  /** @param {boolean} up */
  async #convert(up) {
    const state = this.#state;
    // Refused there, and nothing to this one.
    if (this.#step !== undefined) return call((number) => hub.convert(number, this.#native, up));
    state.converting = true;
    const step = call((number) => hub.convert(number, this.#native, up));
    const ended = () => {};
    this.#step = step.then(ended, ended);
    try {
      this.#native = await step;
      return this.#native.mode();
    } finally {
      state.converting = false;
      this.#step = undefined;
      for (const stop of this.#stop.splice(0)) stop();
      // After a failed step the guard is gone, and whoever follows it is told so.
      if (this.#lost !== undefined) this.#follow();
      if (this.#endangered !== undefined) this.#followDanger();
    }
  }

  async [Symbol.asyncDispose]() {
    await this.release();
  }
}

/** Several locks that were had together. */
class GuardSet {
  #native;
  /** @type {AbortController | undefined} */
  #lost;
  #state = { givenBack: false, converting: false };

  /** @param {NativeSet} native */
  constructor(native) {
    this.#native = native;
  }

  get names() {
    return this.#native.names();
  }

  get fencingTokens() {
    const tokens = this.#native.tokens();
    return new Map(this.names.map((name, index) => [name, BigInt(tokens[index] ?? 0)]));
  }

  get remaining() {
    return this.#native.remaining();
  }

  get isHeld() {
    return this.#native.isHeld();
  }

  check() {
    const fault = this.#native.check();
    if (isFault(fault)) {
      const error = errorOf(/** @type {any} */ (fault));
      Error.captureStackTrace?.(error, this.check);
      throw error;
    }
  }

  get signal() {
    if (this.#lost === undefined) {
      this.#lost = new AbortController();
      follow('lostOne', this.#native, whenLost(this.#lost, this.#state));
    }
    return this.#lost.signal;
  }

  release() {
    this.#state.givenBack = true;
    return call((number) => hub.releaseAll(number, this.#native));
  }

  async [Symbol.asyncDispose]() {
    await this.release();
  }
}

module.exports = { Guard, GuardSet };
