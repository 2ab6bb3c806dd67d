'use strict';
// Statements for the caller's own tables and transactions.

const native = require('./native.js');
const { errorOf, wrongType } = require('./errors.js');
const { isFault } = require('./port.js');
const { mustBe, mustBeObject, mustBeText, mustBeToken, onlyKnown } = require('./options.js');

/**
 * @param {string} what
 * @param {unknown} names
 * @returns {string[]}
 */
function columns(what, names) {
  if (!Array.isArray(names)) throw wrongType(`${what} must be an array of strings`);
  for (const name of names) mustBe(`a name in ${what}`, name, 'string');
  return names;
}

/**
 * @param {string} what
 * @param {unknown} pairs
 * @returns {string[][]}
 */
function operators(what, pairs) {
  if (!Array.isArray(pairs)) throw wrongType(`${what} must be an array of pairs, such as [['stock', '-']]`);
  for (const pair of pairs) {
    if (columns(`a pair in ${what}`, pair).length !== 2) {
      throw wrongType(`a pair in ${what} must have a column and an operator`);
    }
  }
  return pairs;
}

/**
 * @template T
 * @param {T} answer
 * @returns {Exclude<T, import('./port.js').Fault>}
 */
function checked(answer) {
  if (isFault(answer)) throw errorOf(answer);
  return /** @type {any} */ (answer);
}

/** The texts of a write. */
class GuardedWrite {
  /** @param {import('./native.js').WriteTexts} texts */
  constructor({ sql, parameters, probeSql, probeParameters }) {
    this.sql = sql;
    this.parameters = parameters;
    this.probeSql = probeSql;
    this.probeParameters = probeParameters;
  }
}

/**
 * @param {any} given
 * @param {string[]} others
 * @returns {[string, string, string[]]}
 */
function row(given, others) {
  mustBeObject('the description of the write', given);
  onlyKnown(given, ['dialect', 'table', 'keys', ...others]);
  return [
    mustBe('dialect', given.dialect, 'string'),
    mustBe('table', given.table, 'string'),
    columns('keys', given.keys),
  ];
}

/** Comparison and write in one statement. */
class FencedUpdate extends GuardedWrite {
  /**
   * @param {boolean} inserts
   * @param {any} given
   */
  constructor(inserts, given) {
    const [dialect, table, keys] = row(given, ['fence', 'set']);
    const fence = mustBe('fence', given.fence, 'string');
    const texts = checked(
      native.fencedUpdate(inserts, dialect, table, fence, columns('set', given.set), keys),
    );
    super(texts);
    this.rowsTell = texts.rowsTell;
  }

  /** @param {unknown} given */
  static update(given) {
    return new FencedUpdate(false, given);
  }

  /** @param {unknown} given */
  static upsert(given) {
    return new FencedUpdate(true, given);
  }

  /**
   * @param {bigint} token
   * @param {unknown} row
   */
  static whyUnchanged(token, row) {
    return checked(native.fencedUnchanged(mustBeToken('the token', token).toString(), ...found(row)));
  }

  /**
   * @param {bigint} token
   * @param {unknown} row
   */
  static check(token, row) {
    checked(native.fencedAccepted(mustBeToken('the token', token).toString(), ...found(row)));
  }
}

/** Only if the row has the version that was read. */
class VersionedUpdate extends GuardedWrite {
  /** @param {any} given */
  constructor(given) {
    const [dialect, table, keys] = row(given, ['version', 'set']);
    const version = mustBe('version', given.version, 'string');
    super(checked(native.versionedUpdate(dialect, table, version, columns('set', given.set), keys)));
  }

  /** @param {unknown} given */
  static update(given) {
    return new VersionedUpdate(given);
  }

  /** @param {unknown} row */
  static whyUnchanged(row) {
    return checked(native.versionedUnchanged(...found(row)));
  }
}

/** Only while the row fulfils conditions. */
class ConditionalUpdate extends GuardedWrite {
  /** @param {any} given */
  constructor(given) {
    const [dialect, table, keys] = row(given, ['changes', 'conditions']);
    const changes = operators('changes', given.changes);
    const conditions = operators('conditions', given.conditions);
    super(checked(native.conditionalUpdate(dialect, table, changes, conditions, keys)));
  }

  /** @param {unknown} given */
  static update(given) {
    return new ConditionalUpdate(given);
  }
}

/** As long as a transaction of the caller lasts. */
class TransactionLock {
  /** @param {any} given */
  constructor(given) {
    mustBeObject('the description of the lock', given);
    onlyKnown(given, ['dialect', 'name', 'schema']);
    const { schema } = given;
    this.name = mustBeText('name', given.name);
    const texts = checked(
      native.transactionLock(
        mustBe('dialect', given.dialect, 'string'),
        this.name,
        schema === undefined ? undefined : mustBe('schema', schema, 'string'),
      ),
    );
    this.prepareSql = texts.prepareSql;
    this.prepareValues = texts.prepareValues;
    this.takeSql = texts.takeSql;
    this.takeValues = texts.takeValues;
    this.fenceSql = texts.fenceSql;
  }
}

/**
 * Whether there is a row, and the number in its only column: drivers have rows as objects or arrays, and large numbers as
 * numbers, bigints or text.
 * @param {unknown} row
 * @returns {[boolean, string | undefined]}
 */
function found(row) {
  if (row === undefined || row === null) return [false, undefined];
  const values = typeof row === 'object' ? Object.values(row) : [];
  if (values.length !== 1) throw wrongType('the row must be what the probe found: an object with one column');
  const [value] = values;
  if (value === null) return [true, undefined];
  if (!['number', 'bigint', 'string'].includes(typeof value) || !/^-?\d+$/.test(String(value))) {
    throw wrongType('the row must have a whole number');
  }
  return [true, String(value)];
}

module.exports = { ConditionalUpdate, FencedUpdate, TransactionLock, VersionedUpdate };
