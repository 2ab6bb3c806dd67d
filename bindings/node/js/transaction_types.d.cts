// Idempotent work inside the caller's own transactions. All times are milliseconds.

import type { Encoding, Outcome } from './idempotency.js';
import type { Dialect } from './index.cjs';

/** A value of a statement. */
export type SqlValue = string | bigint | Buffer | null;

/** A column of a row. Whole numbers may be numbers up to 2^53 - 1, bigints, or decimal text. */
export type SqlColumn = string | number | bigint | Uint8Array | null;

/**
 * The connection that has the transaction: a client of `pg` (dialect `postgres $1`), a promise connection of `mysql2`
 * (`mysql ?`), or for every other driver a function that executes a statement and returns its rows as arrays of their columns;
 * an empty array for a statement without rows. Not a pool: each of its statements may go to another connection.
 */
export type SqlConnection =
  | { query(...given: any[]): any }
  | { execute(...given: any[]): any }
  | ((sql: string, values: SqlValue[]) => SqlColumn[][] | PromiseLike<SqlColumn[][]>);

/** How to run the work of a key. What is missing is the core's to say. */
export interface TransactionWorkOptions {
  /**
   * What the request consists of: bytes, a text, or a JSON value, whose keys may come in any order. The same key with
   * another one is refused.
   */
  payload?: unknown;
  /** What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes. */
  fingerprint?: string | undefined;
  /** How long the answer is kept: 1 s to 10 years, 24 h by default; `Infinity` is for ever. */
  retention?: number | undefined;
}

/** How to run work that is one transaction. */
export interface TransactionRunOptions extends TransactionWorkOptions {
  /**
   * A repetition does not wait for another transaction with the same key: it is rejected with an `InProgressError` at once on
   * PostgreSQL and MariaDB. MySQL waits for `innodb_lock_wait_timeout`, SQLite for `PRAGMA busy_timeout`.
   */
  noWait?: boolean | undefined;
}

/** How to run work in several transactions. */
export interface TransactionStepsOptions extends TransactionWorkOptions {
  /** 100 ms to 24 h, 15 s by default. Each step renews it; if the client dies, another one goes on when it ends. */
  lease?: number | undefined;
}

/** The claim on a key under which the work of a transaction runs, or of several. */
export class TransactionClaim {
  private constructor();
  /** Larger than that of every claim on the same key before. */
  get fencingToken(): bigint;
  /** How many runs of this key began, this one counted; of work in steps, how many clients worked on it. */
  get runs(): number;
}

/** The work of one key in the caller's transaction: claimed, or its stored answer. */
export class TransactionAttempt<T = any> {
  private constructor();
  /** Whether an earlier run did the work. Then there is nothing to do: `value` is its answer. */
  get replayed(): boolean;
  /** The answer: of an earlier run, or what `complete` has stored. */
  get value(): T;
  /** The claim under which to work. @throws {InvalidArgumentError} for a replayed answer. */
  get claim(): TransactionClaim;
  /**
   * Records the result: the last call before the commit. Returns it as it is read back; `undefined` is stored as `null`.
   * @throws {InvalidArgumentError} for a result of more than 1 MiB, `TypeError` for what the encoding cannot write,
   * {@link StaleTokenError} if the claim is not the present one. Roll back after each of them: nothing is done then.
   */
  complete(value: T): Promise<T>;
  /** Records a failure that every repetition gets. What the transaction changed is committed with it. */
  fail(error: unknown): Promise<void>;
}

/**
 * The work of one key in several transactions, as it was when the last call about it was committed. Each call that records
 * something returns the next one. After a rollback go on with the one before.
 */
export class StepsAttempt<T = any> {
  private constructor();
  /** Whether an earlier run did all of the work. Then there is nothing to do: `value` is its answer. */
  get replayed(): boolean;
  /** The answer of an earlier run. */
  get value(): T;
  /** The claim under which to work. @throws {InvalidArgumentError} for a replayed answer. */
  get claim(): TransactionClaim;
  /** Names and values of the finished steps, in their order. */
  get finished(): ReadonlyMap<string, any>;
  /**
   * Records that a step is finished, and renews the lease: the last call before the step's commit.
   * @param name 1 to 100 bytes
   * @throws {StaleTokenError} if another client has taken the work over (roll back: the step was not done by this one),
   * {@link InvalidArgumentError} for a step that is finished already, and for values of more than 1 MiB in all.
   */
  step(connection: SqlConnection, name: string, value?: unknown): Promise<StepsAttempt<T>>;
  /** Renews the lease; commit it. @throws {StaleTokenError} */
  renew(connection: SqlConnection): Promise<StepsAttempt<T>>;
  /** Ends the claim without an answer, so that another client goes on at once; commit it. @throws {StaleTokenError} */
  release(connection: SqlConnection): Promise<void>;
  /** Records the result of all: the last call before the last commit. Throws as {@link TransactionAttempt.complete}. */
  complete(connection: SqlConnection, value: T): Promise<T>;
  /** Records a failure that every repetition gets. What finished steps have done remains. */
  fail(connection: SqlConnection, error: unknown): Promise<void>;
}

/** Work in several transactions; see {@link TransactionRuns.steps}. */
export class TransactionSteps<T = any> {
  private constructor();
  /**
   * Claims the work with its finished steps, or finds its answer. Commit it at once.
   *
   * If the answer to a commit is lost, claim again with the same object: it says whether the step was committed.
   * @throws {InProgressError} while another client works on it, {@link PayloadMismatchError}, {@link WorkFailedError},
   * {@link ResultTooLargeError}, {@link BackendUnavailableError}
   */
  claim(connection: SqlConnection): Promise<StepsAttempt<T>>;
}

/**
 * Idempotent work whose record is committed by the caller's own transaction: both, or neither.
 *
 * Nothing is sent but the statements on the connection that is given. The caller begins (SQLite: `BEGIN IMMEDIATE`), commits
 * and rolls back; without a transaction nothing of this holds. On PostgreSQL, MySQL and MariaDB the record is the one that
 * {@link Client.idempotency} keeps in that database. On SQLite it is in a table of its own, which `schemaSql` makes.
 *
 * What a driver throws is thrown on. No signal ends a wait: the limits of the database do (`lock_timeout`,
 * `innodb_lock_wait_timeout`), and so does the end of the connection. Roll back after every error.
 */
export class TransactionRuns {
  /**
   * @throws {InvalidArgumentError} for another dialect, and for a schema that is not PostgreSQL's,
   * {@link InvalidConfigError} for an impossible schema
   */
  constructor(runs: {
    dialect: Dialect;
    /** That of the store on PostgreSQL; `polylatch` by default. */
    schema?: string | undefined;
    /** How results are stored; `json` by default. */
    encoding?: Encoding | undefined;
  });
  /** The script that makes the tables. Run again, it changes nothing. */
  get schemaSql(): string;
  /**
   * Does the work of a key in the caller's transaction, unless it was done: then its stored answer is returned. The result has
   * at most 1 MiB and is returned as it is read back. It waits for another transaction with the same key.
   *
   * What the work throws is thrown on: roll back, and nothing was done.
   * @param scope the operation and the caller it is done for, 1 to 256 bytes
   * @param key what is unique to one request, 1 to 255 bytes, made by its client, such as a UUID
   * @throws {InProgressError} {@link PayloadMismatchError}, {@link WorkFailedError}, {@link ResultTooLargeError}, and those of
   * {@link TransactionAttempt.complete}
   */
  run<T>(
    connection: SqlConnection,
    scope: string,
    key: string,
    work: (claim: TransactionClaim) => T | PromiseLike<T>,
    options?: TransactionRunOptions,
  ): Promise<Outcome<T>>;
  /** Claims a key, or finds its answer: the first half of {@link TransactionRuns.run}, for work that is no function. */
  begin<T = any>(
    connection: SqlConnection,
    scope: string,
    key: string,
    options?: TransactionRunOptions,
  ): Promise<TransactionAttempt<T>>;
  /**
   * Names work in several transactions: a repetition goes on after the last step that was committed. Sends nothing.
   * @throws {InvalidArgumentError}
   */
  steps<T = any>(scope: string, key: string, options?: TransactionStepsOptions): TransactionSteps<T>;
  /**
   * Deletes records whose retention is over, at most so many; commit it. Returns how many.
   * @param most 1 to 100 000, 1000 by default
   */
  purge(connection: SqlConnection, most?: number): Promise<number>;
}
