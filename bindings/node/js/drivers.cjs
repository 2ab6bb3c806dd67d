'use strict';
// The caller's connection: how a statement is executed on it, and what its rows consist of.

const { wrongType } = require('./errors.js');

/** Executes a statement. Returns its rows as arrays of their columns. @typedef {(sql: string, values: import('./native.js').SqlValue[]) => any} Execute */

/** By dialect: a driver that is known, as the method that executes a statement, and how. */
const DRIVERS = {
  'postgres $1': {
    name: 'a client of pg',
    method: 'query',
    /** @param {any} client @returns {Execute} */
    executor: (client) => async (text, values) =>
      (await client.query({ text, values, rowMode: 'array' })).rows,
  },
  'mysql ?': {
    name: 'a promise connection of mysql2',
    method: 'execute',
    // Prepared: what `query` sends depends on the server's mode for backslashes.
    /** @param {any} connection @returns {Execute} */
    executor: (connection) => async (sql, values) => {
      const [rows] = await connection.execute({ sql, values, rowsAsArray: true });
      // Of a statement that returns no rows it is an object.
      return Array.isArray(rows) ? rows : [];
    },
  },
};

/**
 * @param {string} dialect
 * @param {any} connection
 * @returns {Execute}
 */
function executorOf(dialect, connection) {
  if (typeof connection === 'function') return connection;
  const driver = Object.hasOwn(DRIVERS, dialect)
    ? DRIVERS[/** @type {keyof typeof DRIVERS} */ (dialect)]
    : undefined;
  const known = driver === undefined ? '' : `${driver.name}, or `;
  if (driver === undefined || typeof connection?.[driver.method] !== 'function') {
    throw wrongType(
      `the connection of the dialect ${JSON.stringify(dialect)} must be ${known}a function (sql, values) that executes a ` +
        'statement and returns its rows as arrays of their columns',
    );
  }
  if (typeof connection.totalCount === 'number' || typeof connection.getConnection === 'function') {
    throw wrongType(
      'the connection is a pool, which may execute each statement on another connection; pass the one that has the ' +
        'transaction (pg: await pool.connect(), mysql2: await pool.getConnection())',
    );
  }
  if (typeof connection.promise === 'function') {
    throw wrongType('the connection of mysql2 is the one with callbacks; pass connection.promise()');
  }
  return driver.executor(connection);
}

/**
 * @param {unknown} rows
 * @returns {import('./native.js').SqlColumn[][]}
 */
function columnsOf(rows) {
  if (!Array.isArray(rows)) {
    throw wrongType(
      `the connection returned ${kind(rows)}; return an array of rows, which is empty for a statement without rows`,
    );
  }
  return rows.map((row) => {
    if (!Array.isArray(row)) {
      throw wrongType(
        `the connection returned ${kind(row)} as a row; return each row as an array of its columns`,
      );
    }
    return row.map(columnOf);
  });
}

/**
 * @param {unknown} column
 * @returns {import('./native.js').SqlColumn}
 */
function columnOf(column) {
  if (column === null || typeof column === 'string') return column;
  if (typeof column === 'bigint') {
    const number = Number(column);
    return Number.isSafeInteger(number) ? number : String(column);
  }
  if (Number.isSafeInteger(column)) return /** @type {number} */ (column);
  if (column instanceof Uint8Array) return Buffer.from(column.buffer, column.byteOffset, column.byteLength);
  const what = typeof column === 'number' ? `the number ${column}` : kind(column);
  throw wrongType(
    `the driver returned ${what} as a column; hand columns over as null, string, Buffer, bigint, or a whole number up to 2^53 - 1`,
  );
}

/** @param {any} value */
function kind(value) {
  if (value === null || value === undefined) return String(value);
  if (typeof value !== 'object') return `a ${typeof value}`;
  return Array.isArray(value) ? 'an array' : `an object of type ${value.constructor?.name ?? 'Object'}`;
}

/**
 * The number of a database's error; libraries on top of a driver have its error inside.
 * @param {any} error
 * @returns {string | undefined}
 */
function numberOf(error) {
  const number = error?.errno ?? error?.cause?.errno;
  return number === undefined || number === null ? undefined : String(number);
}

module.exports = { columnsOf, executorOf, numberOf };
