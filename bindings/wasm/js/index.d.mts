/// <reference lib="dom" />
/// <reference lib="esnext.disposable" />
// Distributed locks for JavaScript hosts. All times are milliseconds.
// What it shares with the package `polylatch` is in the `.d.ts` files beside this one; here is what differs.

import type { Client as SharedClient } from './client.js';
import type { Guard } from './guard.js';
import type { CallOptions, LockOptions, PolylatchEvent } from './types.js';

export {
  BackendRejectedError,
  BackendUnavailableError,
  CanceledError,
  type ErrorCode,
  type ErrorContext,
  InternalError,
  InvalidArgumentError,
  InvalidConfigError,
  LeaseLostError,
  NameConflictError,
  PolylatchError,
  QuorumUnreachableError,
  StaleTokenError,
  UnsupportedError,
  WaitTimeoutError,
} from './errors.js';
export { TokenGate } from './gate.js';
export { Guard, GuardSet } from './guard.js';
export { Acquirable, Lock, LockAll, type NamedNotAcquired, RwLock, Semaphore } from './lock.js';
export type * from './types.js';

/** One client of one store; one per page, worker or process is enough. */
export class Client extends SharedClient {
  private constructor();
  /** Locks in the shape of the browser's own Web Locks; see {@link LockManager}. */
  readonly locks: LockManager;
}

/** What a Redis server answers: a string, a number, nothing, or a list of these. */
export type RedisReply = string | number | bigint | null | Uint8Array | readonly RedisReply[];

/** A connection to one Redis server that this program has. */
export interface RedisConnection {
  /**
   * Sends one command and answers with its reply. A server's error reply is an error whose message begins with
   * its code, such as `NOSCRIPT …`; any other error counts as a failure of the connection. Commands have to
   * reach the server in the order in which they were given.
   */
  command(args: string[]): PromiseLike<RedisReply> | RedisReply;
  /**
   * Hears a channel; resolves when the server has confirmed it, to a function that ends it. It has to listen
   * again after interruptions. Without it, waiters poll (`poll`).
   */
  subscribe?(
    channel: string,
    listener: (message: string | Uint8Array) => void,
  ): PromiseLike<(() => void) | undefined> | (() => void) | undefined;
}

/**
 * How to connect. Beside these, every option of the URL, in camel case: `lease`, `poll`,
 * `provisional`, `timeout` (milliseconds, or text such as `'5s'`), `push`, and those of the store.
 */
export interface ConnectOptions {
  /**
   * `memory:NAME`, `redis://`, `consul://HOST:PORT`, `etcd://HOST,HOST/PREFIX`, or with TLS `consul+https://…` and
   * `etcd+https://…`; `redis://` with `redis`.
   */
  url?: string | undefined;
  /** The connection to Redis; needed for `redis://`. */
  redis?: RedisConnection | undefined;
  /**
   * How to ask Consul or etcd; the host's `fetch` by default. Waiters on etcd are woken if the `body` of its response has
   * `getReader()`; otherwise they poll (`poll`).
   */
  fetch?: typeof globalThis.fetch | undefined;
  /** The host name that people see beside held locks; the page's host by default. */
  host?: string | undefined;
  /** The program's name that people see beside held locks; the page's or the script's by default. */
  program?: string | undefined;
  /** Ends the attempt to connect. */
  signal?: AbortSignal | undefined;
  /**
   * Called with the events of this client from `level` on, beginning with the warnings of connecting, and not any more
   * once `close()` has resolved. What it throws is reported as an uncaught error.
   */
  onEvent?: ((event: PolylatchEvent) => void) | undefined;
  /**
   * From which level on `onEvent` is called; `info` by default. `debug` adds what comes with every lock: acquired at once,
   * released. An event below the level costs nothing.
   */
  level?: 'error' | 'warn' | 'info' | 'debug' | undefined;
  [option: string]:
    | string
    | number
    | boolean
    | AbortSignal
    | ((event: PolylatchEvent) => void)
    | RedisConnection
    | typeof globalThis.fetch
    | undefined;
}

/**
 * Connects to a store.
 * @throws {InvalidConfigError} {@link BackendUnavailableError} {@link BackendRejectedError}
 */
export function connect(options: ConnectOptions): Promise<Client>;
export function connect(url: string, options?: ConnectOptions & { url?: undefined }): Promise<Client>;

/** A lock as a callback of {@link LockManager.request} gets it. */
export class HeldLock {
  private constructor();
  /** The name, as it was requested. */
  readonly name: string;
  /** How it is held. */
  readonly mode: 'exclusive' | 'shared';
  /** Aborted when the lock is lost; see {@link Guard.signal}. */
  readonly signal: AbortSignal;
  /** Hand it to what the lock protects, which refuses smaller ones. */
  readonly fencingToken: bigint;
  /** The lock as the rest of the package has it. */
  readonly guard: Guard;
}

/** Options of {@link LockManager.request}. */
export interface RequestOptions
  extends CallOptions,
    Pick<LockOptions, 'lease' | 'label' | 'maxHold' | 'beatEvery'> {
  /** `exclusive` by default. */
  mode?: 'exclusive' | 'shared' | undefined;
  /** Do not wait: the callback gets `null` if the lock is held or waited for. Excludes `signal` and `steal`. */
  ifAvailable?: boolean | undefined;
  /**
   * End the leases of the holders and enter before all waiters, in one step of the store. The `request` of a holder is
   * rejected with an `AbortError` whose `cause` is the {@link LeaseLostError}: at once in memory and where the store can
   * push to it, otherwise at its next renewal. Until then its callback may go on, so what the lock protects must check
   * fencing tokens. Every lease that is ended is in the audit. Excludes `mode: 'shared'`, `ifAvailable` and `signal`. On
   * Consul and etcd an {@link UnsupportedError}.
   */
  steal?: boolean | undefined;
}

/** A lock that is held or waited for. */
export interface LockInfo {
  /** The name, as it was requested. */
  name: string;
  /** How it is held or will be. */
  mode: 'exclusive' | 'shared';
  /** The id of the client. */
  clientId: string;
}

/**
 * Locks as `navigator.locks` has them, for all clients of the store (not on etcd): `request` runs the callback under the
 * lock and releases it. A name is the lock of `client.rwLock(name)`; a lock of another kind under the same
 * name is a {@link NameConflictError}. A name that no lock can have – the empty one, or one with control characters or
 * half of a surrogate pair – is the lock `-` and the name as JSON. One that begins with `-`, and options that exclude each
 * other, are a `NotSupportedError` (a `DOMException`), as there.
 */
export class LockManager {
  private constructor();
  /**
   * Runs the callback under the lock, and resolves to its result after the release.
   * @throws {TypeError} for a wrong type, an unknown mode or option
   * @throws {DOMException} `NotSupportedError`, or `AbortError` if the lock was stolen; what `signal` was aborted with
   * @throws {PolylatchError} if the store fails; {@link LeaseLostError} if the lease was lost in another way
   */
  request<T>(name: string, callback: (lock: HeldLock) => T | PromiseLike<T>): Promise<T>;
  request<T>(
    name: string,
    options: RequestOptions & { ifAvailable: true },
    callback: (lock: HeldLock | null) => T | PromiseLike<T>,
  ): Promise<T>;
  request<T>(
    name: string,
    options: (RequestOptions & { ifAvailable?: false | undefined }) | null | undefined,
    callback: (lock: HeldLock) => T | PromiseLike<T>,
  ): Promise<T>;
  /** Who holds and who waits, in the whole store. */
  query(): Promise<{ held: LockInfo[]; pending: LockInfo[] }>;
}

/** Makes a connection of a client of `ioredis`. The client stays yours to close. */
export function ioredisConnection(client: {
  call(command: string, ...args: string[]): Promise<unknown>;
  duplicate(): unknown;
}): RedisConnection;

/** Makes a connection of a connected client of the package `redis`. The client stays yours to close. */
export function nodeRedisConnection(client: {
  sendCommand(args: string[]): Promise<unknown>;
  duplicate(): unknown;
}): RedisConnection;

/**
 * Makes a connection over an HTTP proxy that takes a command as a JSON list and answers `{ "result": … }` or
 * `{ "error": "CODE text" }`. It cannot listen, so waiters poll. Commands leave one after the
 * other; one without an answer is given up after `timeout` (milliseconds, 10 000 by default), so that it does not
 * hold up the others. A longer one outlasts a slow proxy, but may cost held leases when it does not answer.
 */
export function httpRedisConnection(
  url: string,
  options?: { token?: string; fetch?: typeof globalThis.fetch; timeout?: number },
): RedisConnection;
