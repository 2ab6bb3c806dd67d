'use strict';
// Held locks.

const { hub, call, follow, isFault } = require('./calls.cjs');
const { errorOf, canceled } = require('./errors.cjs');
const { mustBe } = require('./options.cjs');

/** @typedef {import('./native').NativeGuard} NativeGuard */
/** @typedef {import('./native').NativeSet} NativeSet */

/**
 * @typedef {object} State
 * @property {boolean} givenBack
 * @property {Promise<void> | undefined} step the end of a step between reading and writing that is under way
 */

/**
 * @param {AbortController} controller
 * @param {State} state
 * @returns {(value: any, error: unknown) => void}
 */
function whenLost(controller, state) {
  return (_, error) => {
    // Giving back is no loss, and a step between reading and writing goes on with another lease.
    if (state.step !== undefined || (error === undefined && state.givenBack)) return;
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
    if (value === null && state.step === undefined) controller.abort(canceled('the lease is in danger'));
  };
}

// What `console.log` asks for; by its global name, because hosts other than Node have no module for it.
const SHOWN = Symbol.for('nodejs.util.inspect.custom');

/** @param {Guard | GuardSet} guard */
function state(guard) {
  return guard.isHeld ? 'held' : 'not held';
}

/** One held lock: proof of a lease, and the way to give it back. */
class Guard {
  /** @type {NativeGuard} */
  #native;
  /** @type {AbortController | undefined} */
  #lost;
  /** @type {AbortController | undefined} */
  #endangered;
  /** @type {State} Shared with those who follow the lease, so that they do not keep the guard. */
  #state = { givenBack: false, step: undefined };
  /** @type {(() => void)[]} */
  #stop = [];

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
    const state = this.#state;
    state.givenBack = true;
    const giveBack = () => call((number) => hub.release(number, this.#native));
    // A step that is under way comes to its end first.
    return state.step === undefined ? giveBack() : state.step.then(giveBack);
  }

  /** @param {number} lease */
  async extend(lease) {
    const millis = mustBe('lease', lease, 'number');
    await call((number) => hub.extend(number, this.#native, millis));
    return this.remaining;
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
    const step = call((number) => hub.convert(number, this.#native, up));
    // Refused there, and nothing to the one that is under way.
    if (state.step !== undefined) return step;
    const ended = () => {};
    state.step = step.then(ended, ended);
    try {
      this.#native = await step;
      return this.#native.mode();
    } finally {
      state.step = undefined;
      for (const stop of this.#stop.splice(0)) stop();
      // After a failed step the guard is gone, and whoever follows it is told so.
      if (this.#lost !== undefined) this.#follow();
      if (this.#endangered !== undefined) this.#followDanger();
    }
  }

  async [Symbol.asyncDispose]() {
    await this.release();
  }

  [SHOWN]() {
    return `Guard { name: ${JSON.stringify(this.name)}, fencingToken: ${this.fencingToken}n, ${state(this)} }`;
  }
}

/** Several locks that were had together. */
class GuardSet {
  #native;
  /** @type {AbortController | undefined} */
  #lost;
  /** @type {State} */
  #state = { givenBack: false, step: undefined };

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

  [SHOWN]() {
    const locks = Array.from(this.fencingTokens, ([name, token]) => `${JSON.stringify(name)} => ${token}n`);
    return `GuardSet { ${locks.join(', ')}, ${state(this)} }`;
  }
}

module.exports = { Guard, GuardSet, SHOWN };
