/// <reference lib="esnext.disposable" />
// Held locks.

import { canceled, errorOf } from './errors.js';
import { mustBe } from './options.js';
import { type GuardPort, type HeldPort, isFault, type SetPort, type Told } from './port.js';
import type { FenceQuality, Mode } from './types.js';

interface State {
  released: boolean;
  /** The end of an upgrade or a downgrade that is under way. */
  step: Promise<void> | undefined;
}

function whenLost(controller: AbortController, state: State): Told {
  return (_, error) => {
    // A release is no loss, and an upgrade or a downgrade goes on with another lease.
    if (state.step !== undefined || (error === undefined && state.released)) return;
    controller.abort(
      error ?? canceled('the lock was released because its client was closed or its guard forgotten'),
    );
  };
}

function whenEndangered(controller: AbortController, state: State): Told {
  return (value) => {
    if (value === null && state.step === undefined) controller.abort(canceled('the lease is in danger'));
  };
}

// What `console.log` asks for; by its global name, because hosts other than Node have no module for it.
export const SHOWN: unique symbol = Symbol.for('nodejs.util.inspect.custom') as any;

function stateOf(held: { isHeld: boolean }): string {
  return held.isHeld ? 'held' : 'not held';
}

function mustBeHeld(port: HeldPort, caller: () => void): void {
  const fault = port.check();
  if (!isFault(fault)) return;
  const error = errorOf(fault);
  (Error as any).captureStackTrace?.(error, caller);
  throw error;
}

/**
 * One held lock: proof of a lease, and what releases it. It is renewed in the background until it is released or lost: in
 * Node by a thread that JavaScript cannot block, elsewhere on the event loop, also of a hidden page though late. A guard
 * that is forgotten is released when it is collected.
 */
export class Guard implements AsyncDisposable {
  #port: GuardPort;
  #lost: AbortController | undefined;
  #endangered: AbortController | undefined;
  /** Shared with what follows the lease, so that it does not keep the guard. */
  #state: State = { released: false, step: undefined };
  #stop: (() => void)[] | undefined;

  private constructor(port: GuardPort) {
    this.#port = port;
  }

  /** @internal */
  static of(port: GuardPort): Guard {
    return new Guard(port);
  }

  /** The lock's name. */
  get name(): string {
    return this.#port.name() ?? '';
  }

  /** The number to hand to the protected resource: larger than any given out before for this name. */
  get fencingToken(): bigint {
    return BigInt(this.#port.token() ?? 0);
  }

  /** How far the order of fencing tokens can be relied on. */
  get fenceQuality(): FenceQuality {
    return this.#port.fenceQuality() as FenceQuality;
  }

  /** The mode in which the lock is held. */
  get mode(): Mode {
    return this.#port.mode() as Mode;
  }

  /** How many permits it takes; 1 for everything that is no semaphore. */
  get permits(): number {
    return this.#port.permits() ?? 0;
  }

  /** For how many milliseconds the lease may be relied on from now; zero once it is over. */
  get remaining(): number {
    return this.#port.remaining();
  }

  /** Whether the lock is still held, by the clock, now. Costs no request. */
  get isHeld(): boolean {
    return this.#port.isHeld();
  }

  /** How often the lease was renewed. */
  get renewals(): number {
    return this.#port.renewals();
  }

  /**
   * Aborted when the lease is lost, with a {@link LeaseLostError} as its reason; with a
   * {@link CanceledError} when the client is closed. Never by {@link Guard.release}. Does not keep the
   * process alive.
   */
  get signal(): AbortSignal {
    if (this.#lost === undefined) {
      this.#lost = new AbortController();
      this.#follow(this.#lost);
    }
    return this.#lost.signal;
  }

  /**
   * Aborted before a loss: no renewal was confirmed for half of the lease, or a hold limit is near. The lease
   * may still be saved. Does not keep the process alive.
   */
  get endangered(): AbortSignal {
    if (this.#endangered === undefined) {
      this.#endangered = new AbortController();
      this.#followDanger(this.#endangered);
    }
    return this.#endangered.signal;
  }

  #follow(controller: AbortController): void {
    this.#stop ??= [];
    this.#stop.push(this.#port.followLoss(whenLost(controller, this.#state)));
  }

  #followDanger(controller: AbortController): void {
    this.#stop ??= [];
    this.#stop.push(this.#port.followDanger(whenEndangered(controller, this.#state)));
  }

  /**
   * Throws unless the lock is still held, by the clock, now. Costs no request.
   * @throws {LeaseLostError} with the reason; {@link InvalidArgumentError} once a release was begun.
   */
  check(): void {
    mustBeHeld(this.#port, this.check);
  }

  /** Tells the watchdog that the protected work moves on; matters only with `beatEvery`. */
  beat(): void {
    this.#port.beat();
  }

  /**
   * Releases the lock and waits until the store has confirmed it. Repeatable: afterwards it succeeds again. With
   * several guards of one `owner`, only the last one releases.
   * @throws {LeaseLostError} if the lease was over before; {@link BackendUnavailableError} if the store did not
   * answer in time, and then the background goes on trying until the lease has ended.
   */
  release(): Promise<void> {
    const state = this.#state;
    state.released = true;
    // An upgrade or a downgrade that is under way comes to its end first.
    return state.step === undefined ? this.#port.release() : state.step.then(() => this.#port.release());
  }

  /**
   * Gives the lease another length, in milliseconds; later renewals use it too. The store is asked at once. Returns
   * what remains of the lease then, as {@link Guard.remaining}.
   *
   * A shorter length takes nothing back: a deadline that lies further away stays. `maxHold` and `beatEvery` limit the
   * lease as before. With `renew: false`, extend again before it ends.
   * @throws {LeaseLostError}; {@link InvalidArgumentError} for a length out of range and after a release;
   * {@link UnsupportedError} where a lease keeps its length (Consul); {@link BackendUnavailableError} if the store
   * did not confirm it in time, and then the guard keeps its deadline and its length.
   */
  async extend(lease: number): Promise<number> {
    await this.#port.extend(mustBe('lease', lease, 'number'));
    return this.remaining;
  }

  /**
   * Downgrades from writing to reading, without letting a writer in between. The token stays. After an error
   * the guard is gone.
   */
  async downgrade(): Promise<void> {
    await this.#convert(false);
  }

  /**
   * Upgrades from reading to writing if no other client reads: `true` if it did, and then the token is a newer one.
   * There is no form that waits: two readers would wait for each other without end.
   */
  async tryUpgrade(): Promise<boolean> {
    return (await this.#convert(true)) === 'write';
  }

  async #convert(up: boolean): Promise<string | null> {
    const state = this.#state;
    const step = this.#port.convert(up);
    // Refused there, and the one that is under way goes on.
    if (state.step !== undefined) return (await step).mode();
    const ended = () => {};
    state.step = step.then(ended, ended);
    try {
      this.#port = await step;
      return this.#port.mode();
    } finally {
      state.step = undefined;
      for (const stop of this.#stop?.splice(0) ?? []) stop();
      // After a step that failed the guard is gone, and what follows it is aborted.
      if (this.#lost !== undefined) this.#follow(this.#lost);
      if (this.#endangered !== undefined) this.#followDanger(this.#endangered);
    }
  }

  /** Releases; for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** @internal */
  [SHOWN](): string {
    return `Guard { name: ${JSON.stringify(this.name)}, fencingToken: ${this.fencingToken}n, ${stateOf(this)} }`;
  }
}

/** Several held locks. */
export class GuardSet implements AsyncDisposable {
  #port: SetPort;
  #lost: AbortController | undefined;
  #state: State = { released: false, step: undefined };

  private constructor(port: SetPort) {
    this.#port = port;
  }

  /** @internal */
  static of(port: SetPort): GuardSet {
    return new GuardSet(port);
  }

  /** The locks' names, sorted. */
  get names(): string[] {
    return this.#port.names();
  }

  /** The fencing token of each lock. */
  get fencingTokens(): Map<string, bigint> {
    const tokens = this.#port.tokens();
    return new Map(this.names.map((name, index) => [name, BigInt(tokens[index] ?? 0)]));
  }

  /** For how many milliseconds all of them may be relied on from now. */
  get remaining(): number {
    return this.#port.remaining();
  }

  /** Whether all of them are still held. */
  get isHeld(): boolean {
    return this.#port.isHeld();
  }

  /** Throws unless all of them are still held; see {@link Guard.check}. */
  check(): void {
    mustBeHeld(this.#port, this.check);
  }

  /** Aborted when one of them is lost; see {@link Guard.signal}. */
  get signal(): AbortSignal {
    if (this.#lost === undefined) {
      this.#lost = new AbortController();
      this.#port.followLoss(whenLost(this.#lost, this.#state));
    }
    return this.#lost.signal;
  }

  /** Releases them all, and waits until the store has confirmed it; see {@link Guard.release}. */
  release(): Promise<void> {
    this.#state.released = true;
    return this.#port.release();
  }

  /** Releases; for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** @internal */
  [SHOWN](): string {
    const locks = Array.from(this.fencingTokens, ([name, token]) => `${JSON.stringify(name)} => ${token}n`);
    return `GuardSet { ${locks.join(', ')}, ${stateOf(this)} }`;
  }
}
