// Locks to acquire: a name, a mode and options. Nothing is sent before they are.

import { errorOf, wrongType } from './errors.js';
import { Guard, GuardSet, SHOWN } from './guard.js';
import { callSignal, mustBe } from './options.js';
import { type ClientPort, isFault, type NumberedMode, type Options } from './port.js';
import type { CallOptions } from './types.js';

const MUTEX: NumberedMode = { number: 0, count: 0, capacity: 0 };
const READ: NumberedMode = { number: 1, count: 0, capacity: 0 };
const WRITE: NumberedMode = { number: 2, count: 0, capacity: 0 };
const PERMITS = 3;

/** Acquires it, or tries to. */
const START = Symbol('start');
/** Which locks it is, with the verb, for an error. */
const WHAT = Symbol('what');
/** What a program writes to name it. */
const WRITTEN = Symbol('written');

/** Throws what the part in Rust has found, if it has. */
export function mustBeFine(fault: unknown): void {
  if (isFault(fault)) throw errorOf(fault);
}

/** Runs `work` and releases what is held, whether it succeeds or not. */
async function within<Held extends { release(): Promise<void> }>(
  guard: Held,
  work: (guard: Held) => unknown,
): Promise<any> {
  let result: unknown;
  try {
    result = await work(guard);
  } catch (error) {
    // The error of the work counts: either it knows of a loss, or the loss was not the reason.
    await guard.release().catch(() => {});
    throw error;
  }
  // Reports a lock that was lost meanwhile.
  await guard.release();
  return result;
}

/** A lock is used as if it were its guard, or awaited as if that acquired it. */
function notAcquired(lock: Acquirable<any>): TypeError {
  const written = lock[WRITTEN]();
  return wrongType(
    `${lock[WHAT]()} named, not acquired; call await ${written}.acquire(), or ${written}.withLock(work)`,
  );
}

/** Rejects with the error, once it says who awaited. */
async function refused(lock: Acquirable<any>): Promise<never> {
  // By then the caller is known to wait for this, and the engine finds the way there.
  await undefined;
  throw notAcquired(lock);
}

/**
 * What `await client.lock(name)` would be, if it were not rejected: the lock is named, not acquired. Call
 * {@link Acquirable.acquire}.
 */
export interface NamedNotAcquired {
  /** What to do instead. */
  readonly named: 'call acquire()';
}

/**
 * What can be acquired, any number of times: {@link Lock} and {@link LockAll}. Nothing is sent before. A lock is not its
 * guard: to use it as one (`release`, `fencingToken`, `await using`) is a `TypeError` with the code `invalid_argument`.
 */
export abstract class Acquirable<Held extends { release(): Promise<void> }> {
  protected constructor() {}

  /** @internal */
  abstract [START](waits: boolean, options: CallOptions | undefined): Promise<Held | null>;
  /** @internal */
  abstract [WHAT](): string;
  /** @internal */
  abstract [WRITTEN](): string;

  /**
   * Acquires it, waiting as long as the options of the lock say. While it waits, the process stays alive.
   * @throws {WaitTimeoutError} with the holder; {@link NameConflictError} if the name holds foreign data;
   * {@link InvalidArgumentError}, {@link UnsupportedError}; {@link BackendUnavailableError} or
   * {@link BackendRejectedError} if the store fails; {@link CanceledError} when the client is closed.
   */
  acquire(options?: CallOptions): Promise<Held> {
    return this[START](true, options) as Promise<Held>;
  }

  /** Acquires it if it is free and no waiter is queued; `null` if not. Does not wait. */
  tryAcquire(options?: CallOptions): Promise<Held | null> {
    return this[START](false, options);
  }

  /**
   * Acquires it, runs `work`, and releases it, whether the work succeeds or not. If the lease was lost meanwhile and the
   * work did not fail, the promise is rejected with the {@link LeaseLostError}.
   */
  withLock<T>(work: (guard: Held) => T | PromiseLike<T>): Promise<T>;
  withLock<T>(options: CallOptions | undefined, work: (guard: Held) => T | PromiseLike<T>): Promise<T>;
  async withLock(options: unknown, work?: unknown): Promise<any> {
    const alone = work === undefined && typeof options === 'function';
    const run = mustBe('the work under the lock', alone ? options : work, 'function');
    const held = await this[START](true, alone ? undefined : (options as CallOptions));
    return within(held as Held, run);
  }

  /**
   * Rejects: a lock that is awaited is not acquired. So an async function that returns a lock rejects, too; return an
   * object or a function that has the lock instead.
   */
  // biome-ignore lint/suspicious/noThenProperty: so that `await client.lock(name)` fails
  then<A = never, B = never>(
    fulfilled?: ((lock: NamedNotAcquired) => A | PromiseLike<A>) | null,
    rejected?: ((error: TypeError) => B | PromiseLike<B>) | null,
  ): Promise<B> {
    return refused(this).then(fulfilled as undefined, rejected);
  }

  /** @internal */
  [SHOWN](): string {
    return `${this.constructor.name} { ${this[WRITTEN]()} }`;
  }
}

/** One lock to acquire. */
export class Lock extends Acquirable<Guard> {
  #client: ClientPort;
  #options: Options;
  #mode: NumberedMode;
  /** The lock's name. */
  readonly name: string;

  private constructor(client: ClientPort, name: string, options: Options, mode: NumberedMode) {
    super();
    this.#client = client;
    this.#options = options;
    this.#mode = mode;
    this.name = name;
  }

  /** @internal */
  static of(client: ClientPort, name: string, options: Options, mode = MUTEX): Lock {
    return new Lock(client, name, options, mode);
  }

  /** @internal */
  [START](waits: boolean, given: CallOptions | undefined): Promise<Guard | null> {
    // To wait for what is there already would take as long as all the rest of it.
    const kept =
      given === undefined ? this.#client.enterKept?.(this.name, this.#mode, this.#options) : undefined;
    return kept === undefined ? this.#acquire(waits, given) : Promise.resolve(Guard.of(kept));
  }

  async #acquire(waits: boolean, given: CallOptions | undefined): Promise<Guard | null> {
    const signal = callSignal(given);
    const port = await this.#client.acquire(waits, this.name, this.#mode, this.#options, signal);
    return port === null ? null : Guard.of(port);
  }

  /** @internal */
  [WHAT](): string {
    return `lock ${JSON.stringify(this.name)} is`;
  }

  /** @internal */
  [WRITTEN](): string {
    const { number, count, capacity } = this.#mode;
    const name = JSON.stringify(this.name);
    if (number === PERMITS) return `client.semaphore(${name}, ${capacity}).permits(${count})`;
    return number === 0
      ? `client.lock(${name})`
      : `client.rwLock(${name}).${number === 1 ? 'read' : 'write'}()`;
  }
}

/** Several locks to acquire, all or none, in the order of their names. */
export class LockAll extends Acquirable<GuardSet> {
  #client: ClientPort;
  #options: Options;
  /** The locks' names, as they were given. */
  readonly names: string[];

  private constructor(client: ClientPort, names: string[], options: Options) {
    super();
    this.#client = client;
    this.#options = options;
    this.names = names;
  }

  /** @internal */
  static of(client: ClientPort, names: string[], options: Options): LockAll {
    return new LockAll(client, names, options);
  }

  /** @internal */
  async [START](waits: boolean, given: CallOptions | undefined): Promise<GuardSet | null> {
    const port = await this.#client.acquireAll(waits, this.names, this.#options, callSignal(given));
    return port === null ? null : GuardSet.of(port);
  }

  /** @internal */
  [WHAT](): string {
    return `locks ${this.names.map((name) => JSON.stringify(name)).join(', ')} are`;
  }

  /** @internal */
  [WRITTEN](): string {
    return `client.lockAll(${JSON.stringify(this.names)})`;
  }
}

/** Makes each member of a guard an error on the lock that is not acquired yet. */
function refuseAsGuard(lock: { prototype: Acquirable<any> }, guard: { prototype: object }): void {
  for (const member of [...Reflect.ownKeys(guard.prototype), 'token', 'catch', 'finally', Symbol.dispose]) {
    if (member === undefined || member in lock.prototype) continue;
    Object.defineProperty(lock.prototype, member, {
      configurable: true,
      get(): undefined {
        // The prototype is no lock: tools that look at it are not refused.
        if (this !== lock.prototype) throw notAcquired(this as Acquirable<any>);
      },
    });
  }
}

refuseAsGuard(Lock, Guard);
refuseAsGuard(LockAll, GuardSet);

/** A lock that several may read or one may write. Readers and writers wait in one queue. */
export class RwLock {
  #client: ClientPort;
  #options: Options;
  /** The lock's name. */
  readonly name: string;

  private constructor(client: ClientPort, name: string, options: Options) {
    this.#client = client;
    this.#options = options;
    this.name = name;
  }

  /** @internal */
  static of(client: ClientPort, name: string, options: Options): RwLock {
    return new RwLock(client, name, options);
  }

  /** The lock beside other readers. */
  read(): Lock {
    return Lock.of(this.#client, this.name, this.#options, READ);
  }

  /** The lock alone. */
  write(): Lock {
    return Lock.of(this.#client, this.name, this.#options, WRITE);
  }
}

/** A lock with a number of permits, 1 to 1 000. Every permit is a lease. */
export class Semaphore {
  #client: ClientPort;
  #options: Options;
  /** The lock's name. */
  readonly name: string;
  /** How many permits there are. */
  readonly capacity: number;

  private constructor(client: ClientPort, name: string, capacity: number, options: Options) {
    this.#client = client;
    this.#options = options;
    this.name = name;
    this.capacity = capacity;
  }

  /** @internal */
  static of(client: ClientPort, name: string, capacity: number, options: Options): Semaphore {
    return new Semaphore(client, name, capacity, options);
  }

  /** Some of the permits (one by default) as a lock: all or none, under one lease. */
  permits(count = 1): Lock {
    mustBe('the number of permits', count, 'number');
    mustBeFine(this.#client.checkCount('count', count));
    const mode: NumberedMode = { number: PERMITS, count, capacity: this.capacity };
    return Lock.of(this.#client, this.name, this.#options, mode);
  }

  /** Short for `permits(count).acquire(options)`. */
  async acquire(count?: number, options?: CallOptions): Promise<Guard> {
    return this.permits(count).acquire(options);
  }

  /** Short for `permits(count).tryAcquire(options)`. */
  async tryAcquire(count?: number, options?: CallOptions): Promise<Guard | null> {
    return this.permits(count).tryAcquire(options);
  }
}
