'use strict';
// A conditional write to an SQL table that keeps the largest fencing token seen.

const { fencedUpdate, whyUnchanged } = require('./native.js');
const { errorOf, wrongType } = require('./errors.js');
const { isFault } = require('./port.js');
const { mustBe, mustBeObject, mustBeToken, onlyKnown } = require('./options.js');

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

/** Comparison and write in one statement. */
class FencedUpdate {
  /**
   * @param {boolean} inserts
   * @param {any} given
   */
  constructor(inserts, given) {
    mustBeObject('the description of the write', given);
    onlyKnown(given, ['placeholders', 'table', 'fence', 'set', 'keys']);
    const { placeholders } = given;
    if (placeholders !== '?' && placeholders !== '$') {
      throw wrongType("placeholders must be '?' (SQLite) or '$' (PostgreSQL)");
    }
    const texts = fencedUpdate(
      inserts,
      placeholders === '$',
      mustBe('table', given.table, 'string'),
      mustBe('fence', given.fence, 'string'),
      columns('set', given.set),
      columns('keys', given.keys),
    );
    if (isFault(texts)) throw errorOf(/** @type {any} */ (texts));
    const { sql, parameters, probeSql, probeParameters } = /** @type {any} */ (texts);
    this.sql = sql;
    this.parameters = parameters;
    this.probeSql = probeSql;
    this.probeParameters = probeParameters;
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
    const writer = mustBeToken('the token', token).toString();
    const there = row !== undefined && row !== null;
    const why = whyUnchanged(writer, there, there ? kept(row) : undefined);
    if (isFault(why)) throw errorOf(/** @type {any} */ (why));
    return why ? 'changed_meanwhile' : 'missing';
  }
}

/**
 * The token of a row, which has one column: drivers have rows as objects or arrays, and large numbers as
 * numbers, bigints or text.
 * @param {unknown} row
 */
function kept(row) {
  const values = typeof row === 'object' ? Object.values(/** @type {object} */ (row)) : [];
  if (values.length !== 1) throw wrongType('the row must be what the probe found: an object with one column');
  const [value] = values;
  if (value === null) return undefined;
  if (!['number', 'bigint', 'string'].includes(typeof value) || !/^-?\d+$/.test(String(value))) {
    throw wrongType('the row must have the fencing token as a whole number');
  }
  return String(value);
}

module.exports = { FencedUpdate };
