/// <reference lib="esnext.disposable" />
// Distributed locks whose holder always knows, conservatively, whether it still holds them.
// All times are milliseconds.

/** Options of a lock. Those that are missing are the client's, or the core's, to say. */
export interface LockOptions {
  /**
   * Length of the lease: 100 ms to 24 h, 15 s unless the client says otherwise. Shorter: a dead holder is
   * noticed sooner, but a slow network or a pause loses the lock sooner. It is renewed at a third.
   */
  lease?: number | undefined;
  /** How long to wait for a lock that another client holds: 0 to a year; by default, and with `Infinity`, without limit. */
  wait?: number | undefined;
  /** What the lock is wanted for, for whoever looks at it: at most 256 bytes, no secrets. */
  label?: string | undefined;
  /** Makes the lock reentrant for this id, 1 to 128 bytes, within this client. */
  owner?: string | undefined;
  /** Never hold the lock for longer than this, however healthy the process is: 100 ms to a year. */
  maxHold?: number | undefined;
  /** Renew only while the work calls {@link Guard.beat} at least this often: 100 ms to a year. */
  beatEvery?: number | undefined;
  /** With `false`, may take a free lock although others wait in line. */
  fifo?: boolean | undefined;
  /** With `false`, the lease is never renewed and ends after its full length. */
  renew?: boolean | undefined;
}

/** Options of a call that acquires. */
export interface CallOptions {
  /** Ends the wait: the promise is rejected with the signal's reason, and nothing stays held. */
  signal?: AbortSignal | undefined;
}

/**
 * How to connect. Beside these, every option that could stand in the URL, in camel case: `lease`, `poll`,
 * `provisional`, `timeout` (milliseconds, or text such as `'5s'`), `push`, and those of the store.
 */
export interface ConnectOptions {
  /** The program's name that people see beside held locks; the script's name by default. */
  program?: string | undefined;
  /** Ends the attempt to connect. */
  signal?: AbortSignal | undefined;
  /**
   * Called with every event of this client, also with the common ones (`acquired`, `released`). Kept until the client
   * is closed.
   */
  onEvent?: ((event: PolylatchEvent) => void) | undefined;
  [option: string]: string | number | boolean | AbortSignal | ((event: PolylatchEvent) => void) | undefined;
}

/**
 * What happened to a lock or a store. The same is published on the channel `polylatch:NAME` of
 * `node:diagnostics_channel`, such as `polylatch:lost`; the common events are, if there was a subscriber before a client
 * connected. A `setup_warning` that nobody listens to becomes a process warning.
 */
export interface PolylatchEvent {
  /**
   * `waiting`, `acquired`, `released`, `renewal_failed`, `endangered`, `lost`, `store_unreachable`,
   * `store_reachable`, `setup_warning`, `notice` and others.
   */
  event: string;
  level: 'debug' | 'info' | 'warning' | 'error';
  message: string;
  /** The client's id; `null` where the event is of no one client. */
  client: string | null;
  lock?: string;
  fencingToken?: bigint;
  /** Why a lease was lost; see {@link LeaseLostError}. */
  reason?: string;
  error?: string;
  [field: string]: unknown;
}

export type FenceQuality = 'none' | 'time-floored' | 'strict';
export type Mode = 'mutex' | 'read' | 'write' | 'permits';

/**
 * One held lock: proof of a lease, and the way to give it back. It is renewed in the background by a thread
 * that JavaScript cannot block, until it is released or lost. A guard that is forgotten is released when it
 * is collected.
 */
export class Guard implements AsyncDisposable {
  private constructor();
  /** The lock's name. */
  readonly name: string;
  /** The number to hand to the protected resource: larger than any given out before for this name. */
  readonly fencingToken: bigint;
  /** How far the order of fencing tokens can be relied on. */
  readonly fenceQuality: FenceQuality;
  /** In which way the lock is held. */
  readonly mode: Mode;
  /** How many permits it takes; 1 for everything that is no semaphore. */
  readonly permits: number;
  /** For how many milliseconds the lease may be relied on from now; zero once it is over. */
  readonly remaining: number;
  /** Whether the lock is still held, by the clock, now. Costs no request. */
  readonly isHeld: boolean;
  /** How often the lease was renewed. */
  readonly renewals: number;
  /**
   * Aborted when the lease is lost, with a {@link LeaseLostError} as its reason; with a
   * {@link CanceledError} when the client is closed. Never by {@link Guard.release}. Does not keep the
   * process alive.
   */
  readonly signal: AbortSignal;
  /**
   * Aborted before a loss: no renewal was confirmed for half of the lease, or a hold limit is near. The lease
   * may still be saved. Does not keep the process alive.
   */
  readonly endangered: AbortSignal;
  /**
   * Throws unless the lock is still held, by the clock, now. Costs no request.
   * @throws {LeaseLostError} with the reason; {@link InvalidArgumentError} once a release was begun.
   */
  check(): void;
  /** Tells the watchdog that the protected work moves on; matters only with `beatEvery`. */
  beat(): void;
  /**
   * Gives the lock back and waits until the store knows. Repeatable: afterwards it succeeds again. With
   * several guards of one `owner`, only the last one releases.
   * @throws {LeaseLostError} if the lease was over before; {@link BackendUnavailableError} if the store did not
   * answer in time, and then the background goes on trying until the lease has ended.
   */
  release(): Promise<void>;
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
  extend(lease: number): Promise<number>;
  /**
   * Steps down from writing to reading, without letting a writer in between. The token stays. After an error
   * the guard is gone.
   */
  downgrade(): Promise<void>;
  /**
   * Steps up from reading to writing if nobody else reads: `true` if it did, and then the token is a newer one.
   * There is no form that waits: two readers would wait for each other for ever.
   */
  tryUpgrade(): Promise<boolean>;
  /** Releases; for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Several held locks. */
export class GuardSet implements AsyncDisposable {
  private constructor();
  /** The locks' names, sorted. */
  readonly names: string[];
  /** The fencing token of each lock. */
  readonly fencingTokens: Map<string, bigint>;
  /** For how many milliseconds all of them may be relied on from now. */
  readonly remaining: number;
  /** Whether all of them are still held. */
  readonly isHeld: boolean;
  /** Aborted when one of them is lost; see {@link Guard.signal}. */
  readonly signal: AbortSignal;
  /** Throws unless all of them are still held; see {@link Guard.check}. */
  check(): void;
  /** Gives them all back, and waits until the store knows; see {@link Guard.release}. */
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * What `await client.lock(name)` would be, if it were not rejected: the lock is named, not acquired. Call
 * {@link Acquirable.acquire}.
 */
export interface NamedNotAcquired {
  readonly named: 'call acquire()';
}

/**
 * What can be acquired, any number of times: {@link Lock} and {@link LockAll}. Nothing is sent before. A lock is not its
 * guard: to use it as one (`release`, `fencingToken`, `await using`) is a `TypeError` with the code `invalid_argument`.
 */
export abstract class Acquirable<Held> {
  protected constructor();
  /**
   * Acquires it, waiting as long as the options of the lock say. While it waits, the process stays alive.
   * @throws {WaitTimeoutError} with the holder; {@link NameConflictError} if the name holds foreign data;
   * {@link InvalidArgumentError}, {@link UnsupportedError}; {@link BackendUnavailableError} or
   * {@link BackendRejectedError} if the store fails; {@link CanceledError} when the client is closed.
   */
  acquire(options?: CallOptions): Promise<Held>;
  /** Acquires it if it is free and no waiter is queued; `null` if not. Does not wait. */
  tryAcquire(options?: CallOptions): Promise<Held | null>;
  /**
   * Acquires it, runs `work`, and releases it, whether the work succeeds or not. If the lease was lost meanwhile and the
   * work did not fail, the promise is rejected with the {@link LeaseLostError}.
   */
  withLock<T>(work: (guard: Held) => T | PromiseLike<T>): Promise<T>;
  withLock<T>(options: CallOptions | undefined, work: (guard: Held) => T | PromiseLike<T>): Promise<T>;
  /**
   * Rejects: a lock that is awaited is not acquired. So an async function that returns a lock rejects, too; return an
   * object or a function that has the lock instead.
   */
  // biome-ignore lint/suspicious/noThenProperty: so that `await client.lock(name)` fails
  then<A = never, B = never>(
    fulfilled?: ((lock: NamedNotAcquired) => A | PromiseLike<A>) | null,
    rejected?: ((error: TypeError) => B | PromiseLike<B>) | null,
  ): Promise<B>;
}

/** One lock to acquire: a name, a mode and options. */
export class Lock extends Acquirable<Guard> {
  private constructor();
  readonly name: string;
}

/** Several locks to acquire, all or none, in the order of their names. */
export class LockAll extends Acquirable<GuardSet> {
  private constructor();
  /** The locks' names, as they were given. */
  readonly names: string[];
}

/** A lock that several may read or one may write. Readers and writers wait in one queue. */
export class RwLock {
  private constructor();
  readonly name: string;
  /** The lock beside other readers. */
  read(): Lock;
  /** The lock alone. */
  write(): Lock;
}

/** A lock with a number of permits, 1 to 1 000. Every permit is a lease. */
export class Semaphore {
  private constructor();
  readonly name: string;
  /** How many permits there are. */
  readonly capacity: number;
  /** Some of the permits (one by default) as a lock: all or none, under one lease. */
  permits(count?: number): Lock;
  /** Short for `permits(count).acquire(options)`. */
  acquire(count?: number, options?: CallOptions): Promise<Guard>;
  /** Short for `permits(count).tryAcquire(options)`. */
  tryAcquire(count?: number, options?: CallOptions): Promise<Guard | null>;
}

/** How many durations fell into which range. */
export interface Histogram {
  /** The largest duration of each range, in seconds. */
  bounds: number[];
  /** How many fell into each range alone; one more than there are bounds, for all above. */
  counts: number[];
  /** Seconds in all. */
  sum: number;
  count: number;
}

/** What one client has done since it was made. Counts only grow; `waiting` and `held` are of now. */
export interface Stats {
  backend: string;
  /** From the call of `acquire` until the lock was held, of the calls that acquired it. */
  wait: Histogram;
  /** From the grant of a lease to its release or loss. */
  hold: Histogram;
  /** From when a renewal was due until the store confirmed it. */
  renewalLag: Histogram;
  /** Acquisitions by how they ended. For a set of locks, each lock counts. */
  acquired: number;
  refused: number;
  timedOut: number;
  failed: number;
  cancelled: number;
  /** Acquisitions that are queued now. */
  waiting: number;
  /** Leases that are held now. */
  held: number;
  /** Lost leases by reason, such as `expired`; all reasons are there. */
  losses: Record<string, number>;
  /** Failed operations by the code of their error; all codes are there. */
  errors: Record<string, number>;
}

/** What a store, as configured, can do. */
export interface Capability {
  backend: string;
  /** Waiters are served in the order in which they came. */
  fifo: boolean;
  /** A release wakes the next waiter by a message. */
  push: boolean;
  /** A lease ends by itself when its holder is gone. */
  expiry: boolean;
  /** There are read-write locks and semaphores. */
  sharing: boolean;
  /** `lockAll(names).tryAcquire()` takes the whole set in one step. */
  atomicSets: boolean;
  fencing: FenceQuality;
  minLease: number;
  maxLease: number;
}

/** Which locks to read. */
export interface Query {
  /** Only this lock, also if it is free. */
  name?: string | undefined;
  /** Only locks whose name starts with this. */
  prefix?: string | undefined;
  /** At most this many locks; 10 000 by default. */
  limit?: number | undefined;
}

export interface HolderView {
  client: string | null;
  label: string;
  mode: Mode;
  permits: number;
  ownerDigest: string;
  fencingToken: bigint | null;
  acquiredAtMs: number | null;
  heldForMs: number | null;
  leaseMs: number | null;
  remainingMs: number | null;
  renewals: number | null;
  renewedAgoMs: number | null;
}

export interface WaiterView {
  client: string;
  label: string;
  mode: Mode;
  permits: number;
  ownerDigest: string;
  position: number;
  sinceMs: number;
  waitedMs: number;
  silent: boolean;
}

export interface LockView {
  name: string;
  mode: 'mutex' | 'rw' | 'semaphore' | 'foreign';
  capacity: number | null;
  holders: HolderView[];
  waiters: WaiterView[];
}

export interface ClientView {
  id: string;
  host: string;
  pid: number;
  processStartedAtMs: number | null;
  program: string;
  language: string;
  version: string;
  seenAgoMs: number;
}

export interface AuditEntry {
  atMs: number;
  name: string;
  fencingToken: bigint;
  holder: string;
  by: string;
  reason: string;
}

/** A store's locks at one moment. What the store cannot say is `null`. */
export interface Snapshot {
  backend: string;
  takenAtMs: number;
  roundTripMs: number;
  locks: LockView[];
  clients: ClientView[];
  audit: AuditEntry[];
  truncated: boolean;
}

/** An order to end somebody's lease. */
export interface BreakOrder {
  name: string;
  /** The fencing token of the lease that was looked at. A lock that changed hands since is left alone. */
  expected: bigint;
  /** Who breaks it, for the audit: user and host. */
  by: string;
  /** Why; at most 256 bytes. */
  reason: string;
}

export type BreakOutcome =
  | { outcome: 'broken'; holder: string; next: string | null }
  | { outcome: 'free' }
  | { outcome: 'changed_hands'; present: bigint };

/** One client of one store; one per process (or worker) is enough. */
export class Client implements AsyncDisposable {
  private constructor();
  /** The id under which this client stands in the store. */
  readonly id: string;
  /** The store's URL without its secrets. */
  readonly url: string;
  readonly capability: Capability;
  /** What this client has done since it was made, in numbers. Costs no request. */
  readonly stats: Stats;
  /**
   * The same as text that Prometheus reads, with these labels on every line; the label `backend` is there already.
   * @throws {InvalidArgumentError} for a label that Prometheus does not accept
   */
  prometheus(labels?: Record<string, string>): string;
  /**
   * Names a lock. Nothing is sent before {@link Lock.acquire}; `await client.lock(name)` is rejected.
   * @throws {TypeError} for a wrong type or an unknown option; {@link InvalidArgumentError} for a number that is no length
   * of time. The ranges, which depend on the store, are checked when it is acquired.
   */
  lock(name: string, options?: LockOptions): Lock;
  /** Runs `work` under the lock: short for `lock(name, options).withLock({ signal }, work)`. */
  withLock<T>(
    name: string,
    options: (LockOptions & CallOptions) | undefined,
    work: (guard: Guard) => T | PromiseLike<T>,
  ): Promise<T>;
  withLock<T>(name: string, work: (guard: Guard) => T | PromiseLike<T>): Promise<T>;
  /** Names a lock that several may read or one may write; the options are those of {@link Client.lock}. */
  rwLock(name: string, options?: LockOptions): RwLock;
  /** Names a lock with this many permits, 1 to 1 000; the options are those of {@link Client.lock}. */
  semaphore(name: string, permits: number, options?: LockOptions): Semaphore;
  /** Names several locks; `wait` is for all of them together, the other options are for each. */
  lockAll(names: readonly string[], options?: LockOptions): LockAll;
  /** Reads who holds and who waits. Changes nothing. */
  inspect(query?: Query): Promise<Snapshot>;
  /** Ends somebody's lease if it still has the expected token. The next waiter gets the lock at once. */
  breakLease(order: BreakOrder): Promise<BreakOutcome>;
  /** Ends waiting, releases what is held, and waits (at most 5 s) until the store knows. */
  close(): Promise<void>;
  /** Closes; for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Connects to the store at `url`, such as `sqlite:locks.db`, `redis://localhost` or `memory:`; without one, to
 * `POLYLATCH_URL`, or else to the embedded SQLite file in the user's state directory.
 * @throws {InvalidConfigError} {@link BackendUnavailableError} {@link BackendRejectedError}
 */
export function connect(url?: string, options?: ConnectOptions): Promise<Client>;

/** Remembers the largest fencing token that a resource has seen, and refuses smaller ones. */
export class TokenGate {
  /** @param largest continue from this token */
  constructor(largest?: bigint);
  /** @throws {StaleTokenError} if a newer holder was here before. */
  admit(token: bigint): void;
  readonly largest: bigint | undefined;
}

/** What a {@link FencedUpdate} is made of. Names are checked and quoted: `[A-Za-z_][A-Za-z0-9_]{0,62}`. */
export interface FencedWrite {
  /** How the database spells parameters: `?1` in SQLite, `$1` in PostgreSQL. */
  placeholders: '?' | '$';
  /** The table; a schema may stand before it and a dot. */
  table: string;
  /** The column that keeps the token, such as `fence BIGINT NOT NULL DEFAULT 0`. */
  fence: string;
  /** The columns to write. None: only the token is raised. */
  set: string[];
  /** The columns that name the row. */
  keys: string[];
}

/**
 * A conditional write to one row of an SQL table that keeps the largest fencing token seen: comparison and
 * write are one statement, so that a pause cannot come between them. It sends nothing: execute `sql` with the
 * values of `parameters`. One changed row: done. None: ask with `probeSql`, and
 * {@link FencedUpdate.whyUnchanged}. Do not delete rows that late writers may still want to write.
 */
export class FencedUpdate {
  protected constructor();
  /** Writes to a row that exists. @throws {InvalidArgumentError} for a name that could be more than a name. */
  static update(write: FencedWrite): FencedUpdate;
  /** Writes to a row, or inserts it if it is missing; the keys need a unique index. */
  static upsert(write: FencedWrite): FencedUpdate;
  /**
   * Explains a write that changed no row by the row that the probe found, or `undefined` for none.
   * @throws {StaleTokenError} if a newer holder wrote before.
   */
  static whyUnchanged(
    token: bigint,
    row: Record<string, unknown> | unknown[] | null | undefined,
  ): 'missing' | 'changed_meanwhile';
  readonly sql: string;
  /** Which column's value each parameter is: the columns to set, the fencing token, the keys. */
  readonly parameters: string[];
  /** A query for the row's token. */
  readonly probeSql: string;
  /** Which column's value each parameter of the probe is. */
  readonly probeParameters: string[];
}

/**
 * Registers the numbers of these clients with a registry of `prom-client`; those of clients of one kind of store are
 * added up. Once for a registry. Metrics: `polylatch_wait_seconds`, `polylatch_held_seconds`,
 * `polylatch_renewal_lag_seconds`, `polylatch_acquisitions_total`, `polylatch_losses_total`, `polylatch_errors_total`,
 * `polylatch_waiting`, `polylatch_held`.
 */
export function registerWithPromClient(
  registry: { registerMetric(metric: any): void },
  ...clients: Client[]
): void;

/**
 * Makes observable instruments of a meter of `@opentelemetry/api` for the same numbers. OpenTelemetry has no observable
 * histograms, so each histogram is three counters: `…_seconds_sum`, `…_seconds_count`, and `…_seconds_bucket` by the
 * attribute `le`, cumulative.
 */
export function observeWithOpenTelemetry(
  meter: {
    createObservableCounter(
      name: string,
      options?: any,
    ): { addCallback(callback: (result: any) => void): void };
    createObservableUpDownCounter(
      name: string,
      options?: any,
    ): { addCallback(callback: (result: any) => void): void };
  },
  ...clients: Client[]
): void;

export type ErrorCode =
  | 'invalid_config'
  | 'invalid_argument'
  | 'unsupported'
  | 'wait_timeout'
  | 'canceled'
  | 'lease_lost'
  | 'stale_token'
  | 'name_conflict'
  | 'quorum_unreachable'
  | 'backend_unavailable'
  | 'backend_rejected'
  | 'internal';

export interface ErrorContext {
  backend?: string;
  operation?: string;
  lock?: string;
  attempt?: number;
  /** Milliseconds. */
  elapsed?: number;
}

/**
 * The parent of every error that Polylatch reports. (A value of the wrong type, or an option that does not
 * exist, is a `TypeError` with the code `invalid_argument`; an aborted signal rejects with its own reason.)
 */
export class PolylatchError extends Error {
  protected constructor();
  /** The stable code, the same in every language. */
  readonly code: ErrorCode;
  /** Whether the same call may help if it is made again. */
  readonly retry: 'never' | 'caller_decides' | 'after_backoff' | 'acquire_anew';
  /** Whether the request may have been carried out. */
  readonly effect: 'none' | 'maybe';
  /** What to do about errors of this code. */
  readonly hint: string;
  /** Where it happened. Unknown parts are missing. */
  readonly context: ErrorContext;
}

/** A URL, option or environment variable is wrong. Nothing was sent. */
export class InvalidConfigError extends PolylatchError {}
/** An argument is out of its range. Nothing was sent. */
export class InvalidArgumentError extends PolylatchError {}
/** This store cannot do what was asked. */
export class UnsupportedError extends PolylatchError {}
/** Somebody else still held the lock when the wait was over. */
export class WaitTimeoutError extends PolylatchError {}
/** The closing of the client ended the call. */
export class CanceledError extends PolylatchError {}
/** The lease is over. */
export class LeaseLostError extends PolylatchError {
  readonly reason:
    | 'expired'
    | 'superseded'
    | 'session_ended'
    | 'broken'
    | 'hold_limit'
    | 'no_progress'
    | 'unverifiable';
}
/** A guarded resource has seen a newer fencing token. */
export class StaleTokenError extends PolylatchError {}
/** The name holds data that is not ours; it was left as it is. */
export class NameConflictError extends PolylatchError {}
/** Too many nodes failed to decide. */
export class QuorumUnreachableError extends PolylatchError {}
/** The store refused the connection, did not answer in time, or is not ready. */
export class BackendUnavailableError extends PolylatchError {}
/** The store refused for good: credentials, permission, schema, read-only. */
export class BackendRejectedError extends PolylatchError {}
/** A bug in Polylatch. */
export class InternalError extends PolylatchError {}
