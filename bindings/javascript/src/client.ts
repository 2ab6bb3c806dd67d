// One client of one store, and what it can lock.

import { wrongType } from './errors.js';
import { fieldsOf, statsOf } from './fields.js';
import type { Guard } from './guard.js';
import { Lock, LockAll, mustBeFine, RwLock, Semaphore } from './lock.js';
import {
  callOptionsApart,
  lockOptions,
  mustBe,
  mustBeObject,
  mustBeText,
  mustBeToken,
  onlyKnown,
} from './options.js';
import type { ClientPort, Options } from './port.js';
import type {
  BreakOrder,
  BreakOutcome,
  CallOptions,
  Capability,
  LockOptions,
  Query,
  Snapshot,
  Stats,
} from './types.js';

/** One client of one store; one per process (or worker) is enough. */
export class Client implements AsyncDisposable {
  #port: ClientPort;

  protected constructor(port: ClientPort) {
    this.#port = port;
  }

  /** @internal */
  static of(port: ClientPort): Client {
    return new Client(port);
  }

  /** The id of this client in the store. */
  get id(): string {
    return this.#port.id();
  }

  /** The store's URL without its secrets. */
  get url(): string {
    return this.#port.url();
  }

  get capability(): Capability {
    return fieldsOf(this.#port.capability());
  }

  /** What this client has done since it was made, in numbers. Costs no request. */
  get stats(): Stats {
    return statsOf(this.#port.stats());
  }

  /**
   * The same as text that Prometheus reads, with these labels on every line; the label `backend` is there already.
   * @throws {InvalidArgumentError} for a label that Prometheus does not accept
   */
  prometheus(labels: Record<string, string> = {}): string {
    mustBeObject('the labels', labels);
    const pairs = Object.entries(labels).flatMap(([name, value]) => [
      name,
      mustBeText(`the label ${name}`, value),
    ]);
    const text = this.#port.prometheus(pairs);
    mustBeFine(text);
    return text as string;
  }

  #options(given: unknown): Options {
    const options = lockOptions(given);
    if (options === undefined) return undefined;
    const { lease, wait, maxHold, beatEvery, keepIdle } = options;
    mustBeFine(this.#port.checkLengths(lease, wait, maxHold, beatEvery, keepIdle));
    return options;
  }

  /**
   * Names a lock. Nothing is sent before {@link Lock.acquire}; `await client.lock(name)` is rejected.
   * @throws {TypeError} for a wrong type or an unknown option; {@link InvalidArgumentError} for a number that is no length
   * of time. The ranges, which depend on the store, are checked when it is acquired.
   */
  lock(name: string, options?: LockOptions): Lock {
    return Lock.of(this.#port, mustBeText('the lock name', name), this.#options(options));
  }

  /** Runs `work` under the lock: short for `lock(name, options).withLock({ signal }, work)`. */
  withLock<T>(
    name: string,
    options: (LockOptions & CallOptions) | undefined,
    work: (guard: Guard) => T | PromiseLike<T>,
  ): Promise<T>;
  withLock<T>(name: string, work: (guard: Guard) => T | PromiseLike<T>): Promise<T>;
  async withLock(name: string, options: any, work?: any): Promise<any> {
    if (work === undefined && typeof options === 'function') return this.lock(name).withLock(options);
    const [ofLock, ofCall] = callOptionsApart(options);
    return this.lock(name, ofLock as LockOptions).withLock(ofCall as CallOptions, work);
  }

  /** Names a lock that several may read or one may write; the options are those of {@link Client.lock}. */
  rwLock(name: string, options?: LockOptions): RwLock {
    return RwLock.of(this.#port, mustBeText('the lock name', name), this.#options(options));
  }

  /** Names a lock with this many permits, 1 to 1 000; the options are those of {@link Client.lock}. */
  semaphore(name: string, permits: number, options?: LockOptions): Semaphore {
    mustBeText('the lock name', name);
    mustBe('the number of permits', permits, 'number');
    mustBeFine(this.#port.checkCount('permits', permits));
    return Semaphore.of(this.#port, name, permits, this.#options(options));
  }

  /** Names several locks; `wait` is for all of them together, the other options are for each. */
  lockAll(names: readonly string[], options?: LockOptions): LockAll {
    if (!Array.isArray(names)) throw wrongType('the lock names must be an array of strings');
    for (const name of names) mustBeText('a lock name', name);
    return LockAll.of(this.#port, [...names], this.#options(options));
  }

  /** Reads who holds and who waits. Changes nothing. */
  async inspect(query: Query = {}): Promise<Snapshot> {
    mustBeObject('the query', query);
    onlyKnown(query, ['name', 'prefix', 'limit']);
    const { name, prefix, limit } = query;
    if (name !== undefined) mustBeText('name', name);
    if (prefix !== undefined) mustBeText('prefix', prefix);
    if (limit !== undefined && !(Number.isInteger(limit) && limit >= 0 && limit < 2 ** 32)) {
      throw wrongType('limit must be a whole number, zero or more');
    }
    return fieldsOf(await this.#port.inspect(name, prefix, limit));
  }

  /** Ends a lease if it still has the expected token. The next waiter gets the lock at once. */
  async breakLease(order: BreakOrder): Promise<BreakOutcome> {
    mustBeObject('the order', order);
    onlyKnown(order, ['name', 'expected', 'by', 'reason']);
    const name = mustBeText('name', order.name);
    const expected = mustBeToken('expected', order.expected).toString();
    const by = mustBe('by', order.by, 'string');
    const reason = mustBe('reason', order.reason, 'string');
    return fieldsOf(await this.#port.breakLease(name, expected, by, reason));
  }

  /** Ends waiting, releases what is held, and waits (at most 5 s) until the store has confirmed it. */
  close(): Promise<void> {
    return this.#port.close();
  }

  /** Closes; for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
