/// <reference lib="esnext.disposable" />
// Distributed locks whose holder always knows, conservatively, whether it still holds them.
// All times are milliseconds. What it shares with the package `polylatch-wasm` is in the files beside this one.

import type { Client } from './recording_client.js';
import type { PolylatchEvent } from './types.js';

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
export {
  Claim,
  type Encoding,
  Idempotency,
  type Outcome,
  type RecordView,
  type RunOptions,
} from './idempotency.js';
export {
  type Fate,
  InProgressError,
  NotRecordedError,
  PayloadMismatchError,
  ResultTooLargeError,
  WorkFailedError,
} from './idempotency_errors.js';
export { Acquirable, Lock, LockAll, type NamedNotAcquired, RwLock, Semaphore } from './lock.js';
export { Client } from './recording_client.js';
export * from './transaction_types.cjs';
export type * from './types.js';

/**
 * How to connect. Beside these, every option of the URL, in camel case: `lease`, `poll`,
 * `provisional`, `timeout` (milliseconds, or text such as `'5s'`), `push`, and those of the store.
 */
export interface ConnectOptions {
  /** The program's name that people see beside held locks; the script's name by default. */
  program?: string | undefined;
  /** Ends the attempt to connect. */
  signal?: AbortSignal | undefined;
  /** Called with the events of this client, from `level` on. Kept until the client is closed. */
  onEvent?: ((event: PolylatchEvent) => void) | undefined;
  /**
   * From which level on `onEvent` is called; `info` by default. `debug` adds what comes with every lock: acquired at once,
   * released. An event below the level costs nothing.
   */
  level?: 'error' | 'warn' | 'info' | 'debug' | undefined;
  [option: string]: string | number | boolean | AbortSignal | ((event: PolylatchEvent) => void) | undefined;
}

/**
 * Connects to the store at `url`, such as `sqlite:locks.db`, `redis://localhost` or `memory:`; without one, to
 * `POLYLATCH_URL`, or else to the embedded SQLite file in the user's state directory.
 * @throws {InvalidConfigError} {@link BackendUnavailableError} {@link BackendRejectedError}
 */
export function connect(url?: string, options?: ConnectOptions): Promise<Client>;

/**
 * A database and the sign of its driver for a value: `sqlite ?` (better-sqlite3, node:sqlite), `postgres $1` (pg),
 * `mysql ?` (mysql2; MariaDB too).
 */
export type Dialect = 'sqlite ?' | 'sqlite ?1' | TransactionDialect;

/** SQLite has no lock for a part of a transaction. */
export type TransactionDialect = 'postgres $1' | 'postgres ?' | 'postgres %s' | 'mysql ?' | 'mysql %s';

/** Which row is written. Names are checked and quoted: `[A-Za-z_][A-Za-z0-9_]{0,62}`. */
export interface WrittenRow {
  /** The database and the sign of its driver for a value. */
  dialect: Dialect;
  /** The table; a schema may stand before it and a dot. */
  table: string;
  /** The columns that name the row. */
  keys: string[];
}

/** What a {@link FencedUpdate} is made of. */
export interface FencedWrite extends WrittenRow {
  /** The column that keeps the token, such as `fence BIGINT NOT NULL DEFAULT 0`. */
  fence: string;
  /** The columns to write. None: only the token is raised. */
  set: string[];
}

/** What a {@link VersionedUpdate} is made of. */
export interface VersionedWrite extends WrittenRow {
  /** The column that keeps the version, such as `version BIGINT NOT NULL DEFAULT 0`. */
  version: string;
  /** The columns to write. None: only the version is raised. */
  set: string[];
}

/** What a {@link ConditionalUpdate} is made of. */
export interface ConditionalWrite extends WrittenRow {
  /** Columns, each with what the write does: it becomes the value, or the value is added or subtracted. */
  changes: [column: string, operator: '=' | '+' | '-'][];
  /** Columns, each with how it is compared with a value. `NULL` fulfils none. */
  conditions: [column: string, operator: '=' | '<>' | '<' | '<=' | '>' | '>='][];
}

/** The row that a probe found, as drivers have it; `undefined` or `null` for no row. */
export type ProbedRow = Record<string, unknown> | unknown[] | null | undefined;

/** The texts of a write. It sends nothing: execute `sql` with the values of `parameters`, and see how many rows changed. */
declare class GuardedWrite {
  protected constructor();
  /** The text to execute. */
  readonly sql: string;
  /** Which value each parameter is, in order: by column, or by column and operator, such as `stock >=`. */
  readonly parameters: string[];
  /** A query for why no row changed. */
  readonly probeSql: string;
  /** Which column's value each parameter of the probe is. */
  readonly probeParameters: string[];
}

/**
 * A conditional write to one row of an SQL table that keeps the largest fencing token seen: comparison and
 * write are one statement, so that a pause cannot come between them. One changed row: done. None: ask with `probeSql`, and
 * {@link FencedUpdate.whyUnchanged}. Do not delete rows that late writers may still want to write. MySQL and MariaDB count a
 * row that keeps its values only if the client asks for found rows (in mysql2 the flag `FOUND_ROWS`, which it sets).
 */
export class FencedUpdate extends GuardedWrite {
  /** Writes to a row that exists. @throws {InvalidArgumentError} for a name that could be more than a name. */
  static update(write: FencedWrite): FencedUpdate;
  /** Writes to a row, or inserts it if it is missing; the keys need a unique index. */
  static upsert(write: FencedWrite): FencedUpdate;
  /**
   * Explains a write that changed no row by the row that the probe found, or `undefined` for none.
   * @throws {StaleTokenError} if a newer holder wrote before.
   */
  static whyUnchanged(token: bigint, row: ProbedRow): 'missing' | 'changed_meanwhile';
  /**
   * Reads what the probe found after a write whose number of rows says nothing.
   * @throws {StaleTokenError} if the row keeps a newer token.
   */
  static check(token: bigint, row: ProbedRow): void;
  /**
   * Whether the number of changed rows tells that the write was refused. It does not for an upsert on MySQL and MariaDB: ask
   * with the probe each time, and {@link FencedUpdate.check} its row.
   */
  readonly rowsTell: boolean;
}

/**
 * A write to one row that is refused if the row was written since its version was read, and that raises the version by one
 * (optimistic locking). It needs no lock. One changed row: done. None: read the row again, and decide what to write now.
 */
export class VersionedUpdate extends GuardedWrite {
  /** @throws {InvalidArgumentError} for a name that could be more than a name. */
  static update(write: VersionedWrite): VersionedUpdate;
  /** Explains a write that changed no row by the row that the probe found, or `undefined` for none. */
  static whyUnchanged(row: ProbedRow): 'missing' | 'changed';
}

/**
 * A write to one row that happens only while the row fulfils conditions, such as `stock >= 3`: what is left cannot be sold
 * twice. It needs no lock. One changed row: done. None: a condition is not fulfilled, or there is no such row.
 */
export class ConditionalUpdate extends GuardedWrite {
  /** @throws {InvalidArgumentError} for a name that could be more than a name, and without changes or conditions. */
  static update(write: ConditionalWrite): ConditionalUpdate;
}

/**
 * A lock inside a transaction of your own, on your own connection to the database that keeps the locks. It excludes every
 * holder of a lease on that name and other such transactions; the server frees it at the commit, at the rollback, and when the
 * connection ends. It sends nothing; you execute:
 *
 * 1. MySQL and MariaDB: `prepareSql` with `prepareValues`, before the transaction.
 * 2. First in the transaction `takeSql` with `takeValues`. One row (PostgreSQL: returned, MySQL and MariaDB: changed) means
 *    taken. No row: a client holds a lease or waits for one; roll back at once.
 * 3. The fencing token is in the row; on MySQL and MariaDB `fenceSql` reads it.
 *
 * Keep the transaction short, well below the `timeout` of the clients. Take several locks in the order of their names.
 */
export class TransactionLock {
  /** @throws {InvalidArgumentError} {@link InvalidConfigError} */
  constructor(lock: {
    dialect: TransactionDialect;
    name: string;
    /** That of the store on PostgreSQL; `polylatch` by default. */
    schema?: string | undefined;
  });
  /** The name of the lock. */
  readonly name: string;
  /** What to execute before the transaction; `undefined` where nothing is needed. */
  readonly prepareSql: string | undefined;
  /** The values of `prepareSql`. */
  readonly prepareValues: string[];
  /** Takes the lock, first in the transaction. */
  readonly takeSql: string;
  /** The values of `takeSql`. */
  readonly takeValues: string[];
  /** The query for the fencing token, without values; `undefined` where `takeSql` returns it. */
  readonly fenceSql: string | undefined;
}

/** How requests that have a key are treated. All times are milliseconds. */
export interface IdempotencyHandlerOptions<Request = any> {
  /**
   * Who sent the request, by an identity that was checked before: two callers never get each other's responses. Nothing:
   * the request is anonymous and is handled as if it had no key.
   */
  caller: (request: Request) => string | null | undefined | Promise<string | null | undefined>;
  /** Which requests may have a key: `POST` and `PATCH` by default. */
  methods?: string[] | undefined;
  /** `idempotency-key` by default. */
  header?: string | undefined;
  /** Without a key, such a request is refused. */
  required?: boolean | undefined;
  /** What is compared beside method and URL: `rawBody` or `body` by default, which another handler has to have read. */
  payload?: ((request: Request) => unknown) | undefined;
  /** How long a response is kept: 24 h by default. */
  retention?: number | undefined;
  /** Length of the lease under which a request is handled: a process that dies blocks its key for so long. */
  lease?: number | undefined;
  /** How long a repetition waits for the response of the first request before it gets 409: not at all by default. */
  wait?: number | undefined;
  /** Responses of 500 or more are stored, too. Without it they free the key, which is right if what failed had no effect. */
  storeServerErrors?: boolean | undefined;
}

/**
 * Makes a handler for Express, or whatever calls handlers with (request, response, next): each request with a key is
 * handled once, and every repetition gets the stored response with the header `Idempotency-Replayed: true`. 400: a bad or a
 * missing key; 409: it is being handled, or its response was too large to be stored; 422: the key was used for another
 * request. Status, body and headers are stored, except `Set-Cookie`, `Date` and those of one connection. A handler that never
 * ends its response keeps the key until the process ends.
 */
export function idempotencyHandler<Request = any>(
  client: Client,
  options: IdempotencyHandlerOptions<Request>,
): (request: any, response: any, next: (error?: any) => void) => void;

/** What {@link idempotencyPlugin} is registered with. */
export interface IdempotencyPluginOptions<Request = any> extends IdempotencyHandlerOptions<Request> {
  /** The client whose store keeps the responses. */
  client: Client;
}

/**
 * The same for Fastify 5: `app.register(idempotencyPlugin, { client, caller })`. It applies to the routes of the instance that
 * registers it. Requests are compared behind parsing and validation (`preHandler`), so one that is refused there has no
 * record. A response is stored as this plugin's `onSend` gets it: hooks that were registered later run on a replay, too.
 * Streams are read into memory. A reply that is hijacked keeps its key until the process ends.
 * @throws {TypeError} when the server gets ready, for options that are not known or have the wrong type
 */
export function idempotencyPlugin<Request = any>(
  instance: any,
  options: IdempotencyPluginOptions<Request>,
): Promise<void>;

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
