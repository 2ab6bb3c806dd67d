'use strict';
// Idempotent work inside the caller's own transactions, by pg, mysql2 or a function. What users see of it is in
// `transaction_types.d.cts`.

const native = require('./native.js');
const { buffer } = require('./claims.cjs');
const { columnsOf, executorOf, numberOf } = require('./drivers.cjs');
const { errorOf } = require('./errors.js');
const {
  checkedEncoding,
  decode,
  encode,
  failureBytes,
  replayedFailure,
  workOptions,
} = require('./idempotency_values.js');
const { isFault } = require('./port.js');
const { mustBe, mustBeObject, mustBeText, onlyKnown } = require('./options.js');

/** @typedef {import('./native.js').NativeSqlClaim} NativeSqlClaim */
/** @typedef {import('./native.js').NativeSqlRun} NativeSqlRun */
/** @typedef {import('./native.js').NativeSqlTalk} NativeSqlTalk */
/** @typedef {import('./native.js').SqlTurn} SqlTurn */
/** @typedef {import('./idempotency.js').Encoding} Encoding */
/** @typedef {import('./drivers.cjs').Execute} Execute */

/** What a run and its steps may be given. @type {Record<string, 'number' | 'string'>} */
const OF_WORK = { fingerprint: 'string', retention: 'number' };

/**
 * @template T
 * @param {T} answer
 * @returns {Exclude<T, import('./port.js').Fault>}
 */
function checked(answer) {
  if (isFault(answer)) throw errorOf(answer);
  return /** @type {any} */ (answer);
}

/**
 * Executes what is asked for, until it is over.
 * @param {Execute} execute
 * @param {NativeSqlTalk} talk
 * @returns {Promise<SqlTurn>}
 */
async function carryOut(execute, talk) {
  /** @type {import('./native.js').SqlColumn[][]} */
  let rows = [];
  for (;;) {
    const turn = checked(talk.next(rows));
    if (turn.sql === undefined) return turn;
    rows = columnsOf(await execute(turn.sql, turn.values));
  }
}

/** The claim on a key under which the work of a transaction runs, or of several. */
class TransactionClaim {
  #native;

  /** @param {NativeSqlClaim} native */
  constructor(native) {
    this.#native = native;
  }

  get fencingToken() {
    return BigInt(this.#native.token());
  }

  get runs() {
    return this.#native.runs();
  }
}

/** What both kinds of attempt have: a claim to work under, or the answer of an earlier run. */
class Attempt {
  /** @type {NativeSqlClaim | undefined} */
  #native;
  #claim;
  #value;
  #encoding;

  /**
   * @param {SqlTurn} turn
   * @param {Encoding} encoding
   */
  constructor({ claim, answer, failure }, encoding) {
    if (failure !== undefined && answer !== undefined) throw replayedFailure(encoding, failure, answer);
    this.#native = claim;
    this.#claim = claim === undefined ? undefined : new TransactionClaim(claim);
    this.#value = answer === undefined ? undefined : decode(encoding, answer);
    this.#encoding = encoding;
  }

  get encoding() {
    return this.#encoding;
  }

  get replayed() {
    return this.#claim === undefined;
  }

  get value() {
    return this.#value;
  }

  get claim() {
    if (this.#claim === undefined) throw isReplayed();
    return this.#claim;
  }

  /** @returns {NativeSqlClaim} */
  get native() {
    if (this.#native === undefined) throw isReplayed();
    return this.#native;
  }

  /**
   * Records the result. Returns it as it is read back.
   * @param {Execute} execute
   * @param {unknown} value
   */
  async record(execute, value) {
    const stored = encode(this.#encoding, value);
    await carryOut(execute, checked(this.native.complete(buffer(stored))));
    this.#value = decode(this.#encoding, stored);
    return this.#value;
  }

  /**
   * Records a failure that every repetition gets.
   * @param {Execute} execute
   * @param {unknown} error
   */
  async recordFailure(execute, error) {
    await carryOut(execute, checked(this.native.fail(buffer(failureBytes(this.#encoding, error)))));
  }
}

function isReplayed() {
  const message = 'an earlier run did the work of this key; its answer is in value';
  const hint = 'Fix the argument that is named; nothing was sent.';
  return errorOf({ code: 'invalid_argument', retry: 'never', effect: 'none', message, hint });
}

/** What callers see of an attempt, of either kind. */
class BegunWork {
  #attempt;

  /** @param {Attempt} attempt */
  constructor(attempt) {
    this.#attempt = attempt;
  }

  get replayed() {
    return this.#attempt.replayed;
  }

  get value() {
    return this.#attempt.value;
  }

  get claim() {
    return this.#attempt.claim;
  }
}

/** The work of one key in the caller's transaction. */
class TransactionAttempt extends BegunWork {
  #attempt;
  #execute;

  /**
   * @param {Attempt} attempt
   * @param {Execute} execute
   */
  constructor(attempt, execute) {
    super(attempt);
    this.#attempt = attempt;
    this.#execute = execute;
  }

  /** @param {unknown} value */
  async complete(value) {
    return this.#attempt.record(this.#execute, value);
  }

  /** @param {unknown} error */
  async fail(error) {
    return this.#attempt.recordFailure(this.#execute, error);
  }
}

/** The work of one key in several transactions, as it was when the last call about it was committed. */
class StepsAttempt extends BegunWork {
  #attempt;
  #dialect;
  #finished;

  /**
   * @param {Attempt} attempt
   * @param {string} dialect
   */
  constructor(attempt, dialect) {
    super(attempt);
    this.#attempt = attempt;
    this.#dialect = dialect;
    const found = attempt.replayed ? [] : attempt.native.finished();
    this.#finished = new Map(found.map(({ name, value }) => [name, decode(attempt.encoding, value)]));
  }

  get finished() {
    return this.#finished;
  }

  /**
   * @param {unknown} connection
   * @param {string} name
   * @param {unknown} [value]
   */
  async step(connection, name, value) {
    const stored = buffer(encode(this.#attempt.encoding, value));
    return this.#next(connection, this.#attempt.native.step(mustBeText('the name of a step', name), stored));
  }

  /** @param {unknown} connection */
  async renew(connection) {
    return this.#next(connection, this.#attempt.native.renew());
  }

  /** @param {unknown} connection */
  async release(connection) {
    await carryOut(executorOf(this.#dialect, connection), checked(this.#attempt.native.release()));
  }

  /**
   * @param {unknown} connection
   * @param {unknown} value
   */
  async complete(connection, value) {
    return this.#attempt.record(executorOf(this.#dialect, connection), value);
  }

  /**
   * @param {unknown} connection
   * @param {unknown} error
   */
  async fail(connection, error) {
    return this.#attempt.recordFailure(executorOf(this.#dialect, connection), error);
  }

  /**
   * @param {unknown} connection
   * @param {NativeSqlTalk | import('./port.js').Fault} talk
   */
  async #next(connection, talk) {
    const turn = await carryOut(executorOf(this.#dialect, connection), checked(talk));
    return new StepsAttempt(new Attempt(turn, this.#attempt.encoding), this.#dialect);
  }
}

/** Work in several transactions. */
class TransactionSteps {
  #run;
  #dialect;
  #encoding;

  /**
   * @param {NativeSqlRun} run
   * @param {string} dialect
   * @param {Encoding} encoding
   */
  constructor(run, dialect, encoding) {
    this.#run = run;
    this.#dialect = dialect;
    this.#encoding = encoding;
  }

  /** @param {unknown} connection */
  async claim(connection) {
    const turn = await carryOut(executorOf(this.#dialect, connection), this.#run.claim());
    return new StepsAttempt(new Attempt(turn, this.#encoding), this.#dialect);
  }
}

/** Idempotent work whose record is committed by the caller's own transaction. */
class TransactionRuns {
  #native;
  #dialect;
  #encoding;

  /** @param {any} given */
  constructor(given) {
    mustBeObject('the description of the runs', given);
    onlyKnown(given, ['dialect', 'schema', 'encoding']);
    const { schema } = given;
    this.#encoding = checkedEncoding(given.encoding);
    this.#dialect = mustBe('dialect', given.dialect, 'string');
    this.#native = checked(
      native.sqlRuns(this.#dialect, schema === undefined ? undefined : mustBe('schema', schema, 'string')),
    );
  }

  get schemaSql() {
    return this.#native.schema();
  }

  /**
   * @param {unknown} connection
   * @param {string} scope
   * @param {string} key
   * @param {(claim: TransactionClaim) => unknown} work
   * @param {unknown} [options]
   */
  async run(connection, scope, key, work, options) {
    mustBe('the work', work, 'function');
    const attempt = await this.begin(connection, scope, key, options);
    if (attempt.replayed) return { value: attempt.value, replayed: true };
    return { value: await attempt.complete(await work(attempt.claim)), replayed: false };
  }

  /**
   * @param {unknown} connection
   * @param {string} scope
   * @param {string} key
   * @param {unknown} [given]
   */
  async begin(connection, scope, key, given = {}) {
    const execute = executorOf(this.#dialect, connection);
    const { options, native } = workOptions(given, OF_WORK, ['noWait']);
    const noWait = options.noWait === undefined ? false : mustBe('noWait', options.noWait, 'boolean');
    const run = this.#run(false, scope, key, noWait ? { ...native, wait: 0 } : native);
    try {
      return new TransactionAttempt(
        new Attempt(await carryOut(execute, run.claim()), this.#encoding),
        execute,
      );
    } catch (error) {
      const number = numberOf(error);
      if (!noWait || number === undefined || !this.#native.saysInProgress(number)) throw error;
      throw Object.assign(errorOf(run.inProgress()), { cause: error });
    }
  }

  /**
   * @param {string} scope
   * @param {string} key
   * @param {unknown} [given]
   */
  steps(scope, key, given = {}) {
    const { native } = workOptions(given, { ...OF_WORK, lease: 'number' }, []);
    return new TransactionSteps(this.#run(true, scope, key, native), this.#dialect, this.#encoding);
  }

  /**
   * @param {unknown} connection
   * @param {number} [most]
   */
  async purge(connection, most = 1000) {
    const talk = checked(this.#native.purge(mustBe('most', most, 'number')));
    return (await carryOut(executorOf(this.#dialect, connection), talk)).purged;
  }

  /**
   * @param {boolean} inSteps
   * @param {unknown} scope
   * @param {unknown} key
   * @param {import('./idempotency.js').NativeRunOptions} options
   */
  #run(inSteps, scope, key, options) {
    const { payload, ...others } = options;
    const given = payload === undefined ? others : { ...others, payload: buffer(payload) };
    return checked(
      this.#native.run(inSteps, mustBeText('the scope', scope), mustBeText('the key', key), given),
    );
  }
}

module.exports = { StepsAttempt, TransactionAttempt, TransactionClaim, TransactionRuns, TransactionSteps };
