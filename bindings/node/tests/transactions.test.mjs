// Idempotent work inside transactions of the program's own, by the drivers of real databases.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import mysql from 'mysql2/promise';
import sqlite from 'node-sqlite3-wasm';
import pg from 'pg';

import {
  connect,
  InProgressError,
  InvalidArgumentError,
  InvalidConfigError,
  PayloadMismatchError,
  StaleTokenError,
  TransactionRuns,
  WorkFailedError,
} from 'polylatch';
import { startMariadb, startPostgres } from './databases.mjs';
import { eventually, unique } from './stores.mjs';

const folder = mkdtempSync(join(tmpdir(), 'polylatch-transactions-'));
const [postgres, mariadb] = await Promise.all([startPostgres(), startMariadb()]);
after(async () => {
  await Promise.all([postgres.stop(), mariadb.stop()]);
  rmSync(folder, { recursive: true, force: true });
});
// A client makes the tables.
for (const { url } of [postgres, mariadb]) await (await connect(url)).close();

/** One connection of a program: what `TransactionRuns` gets, and what else is done with it. */
const ofServer = (server) => async () => {
  const connection = await server.connect();
  const query = (sql) => connection.query(sql);
  return { given: connection, query, end: () => connection.end() };
};

async function byFunction() {
  const client = await postgres.connect();
  const given = async (text, values) => (await client.query({ text, values, rowMode: 'array' })).rows;
  return { given, query: (sql) => client.query(sql), end: () => client.end() };
}

/** A driver that does not wait for anything. */
function inFile() {
  const database = new sqlite.Database(join(folder, 'app.db'));
  for (let again = 0; again < 2; again += 1) {
    database.exec(new TransactionRuns({ dialect: 'sqlite ?' }).schemaSql);
  }
  const query = (sql, values) => database.all(sql, values).map((row) => Object.values(row));
  return { given: query, query, end: () => database.close() };
}

const servers = [
  { name: 'pg', dialect: 'postgres $1', open: ofServer(postgres), server: postgres },
  { name: 'mysql2', dialect: 'mysql ?', open: ofServer(mariadb), server: mariadb },
];
const databases = [
  ...servers,
  { name: 'a function', dialect: 'postgres $1', open: byFunction },
  { name: 'a function that is not asynchronous', dialect: 'sqlite ?', open: inFile },
];

/** As a framework has it: commits, or rolls back. */
async function transaction(connection, work) {
  await connection.query('BEGIN');
  let value;
  try {
    value = await work();
  } catch (error) {
    await connection.query('ROLLBACK');
    throw error;
  }
  await connection.query('COMMIT');
  return value;
}

const effect = (connection, work) => connection.query(`INSERT INTO effects VALUES ('${work}')`);

async function effects(connection, work) {
  const found = await connection.query(`SELECT count(*) AS n FROM effects WHERE work = '${work}'`);
  // As each driver has it.
  return Number(found.rows?.[0].n ?? found[0][0]?.n ?? found[0][0]);
}

for (const { name, dialect, open, server } of databases) {
  describe(name, () => {
    const runs = new TransactionRuns({ dialect });
    /** Runs the work with connections, and closes them. */
    const opened = async (count, work) => {
      const connections = [];
      try {
        for (let made = 0; made < count; made += 1) connections.push(await open());
        await connections[0].query('CREATE TABLE IF NOT EXISTS effects (work VARCHAR(99))');
        await work(...connections);
      } finally {
        for (const connection of connections) await connection.end();
      }
    };

    test('a repetition gets the answer of the first transaction', () =>
      opened(1, async (connection) => {
        const key = unique('key');
        const order = async (claim) => {
          assert.ok(claim.fencingToken > 0n);
          assert.equal(claim.runs, 1);
          await effect(connection, key);
          return { order: '42 ü' };
        };
        const run = (options) =>
          transaction(connection, () => runs.run(connection.given, 'orders/7', key, order, options));
        assert.deepEqual(await run({ payload: { a: 3, b: 1 } }), {
          value: { order: '42 ü' },
          replayed: false,
        });
        assert.deepEqual(await run({ payload: { b: 1, a: 3 } }), {
          value: { order: '42 ü' },
          replayed: true,
        });
        await assert.rejects(run({ payload: { a: 4, b: 1 } }), PayloadMismatchError);
        await transaction(connection, async () => {
          const other = await runs.begin(connection.given, 'orders/8', key);
          assert.equal(other.replayed, false);
          assert.deepEqual(await other.complete([1]), [1]);
          assert.deepEqual(other.value, [1]);
        });
        const replayed = await transaction(connection, () => runs.begin(connection.given, 'orders/8', key));
        assert.deepEqual([replayed.replayed, replayed.value], [true, [1]]);
        assert.throws(() => replayed.claim, InvalidArgumentError);
        await assert.rejects(replayed.complete(2), InvalidArgumentError);
        assert.equal(await effects(connection, key), 1);
      }));

    test('what is thrown after the effect leaves nothing', () =>
      opened(1, async (connection) => {
        const key = unique('key');
        const broken = new Error('no card');
        const run = (work) =>
          transaction(connection, () => runs.run(connection.given, 'orders/7', key, work));
        const failing = async () => {
          await effect(connection, key);
          throw broken;
        };
        await assert.rejects(run(failing), (error) => error === broken);
        assert.equal(await effects(connection, key), 0);
        const outcome = await run(async () => {
          await effect(connection, key);
        });
        assert.deepEqual(outcome, { value: null, replayed: false });
        assert.equal(await effects(connection, key), 1);
      }));

    test('a stored failure is thrown for every repetition', () =>
      opened(1, async (connection) => {
        const key = unique('key');
        await transaction(connection, async () => {
          const attempt = await runs.begin(connection.given, 'orders/7', key);
          await attempt.fail(new WorkFailedError('declined', { answer: { refused: true } }));
        });
        const again = transaction(connection, () => runs.run(connection.given, 'orders/7', key, () => 1));
        await assert.rejects(again, (error) => {
          assert.ok(error instanceof WorkFailedError);
          assert.deepEqual([error.answer, error.replayed], [{ refused: true }, true]);
          return true;
        });
      }));

    test('results are bytes by choice', () =>
      opened(1, async (connection) => {
        const key = unique('key');
        const bytes = new TransactionRuns({ dialect, encoding: 'bytes' });
        const result = Uint8Array.of(0, 255, 39, 92);
        for (const replayed of [false, true]) {
          const outcome = await transaction(connection, () =>
            bytes.run(connection.given, 'orders/7', key, () => result, { payload: result }),
          );
          assert.deepEqual([outcome.replayed, [...outcome.value]], [replayed, [...result]]);
        }
        const text = bytes.run(connection.given, 'orders/7', unique('key'), () => 'text');
        await assert.rejects(
          transaction(connection, () => text),
          /must be a Uint8Array/,
        );
      }));

    test('a result that is too large is refused before the commit', () =>
      opened(1, async (connection) => {
        const key = unique('key');
        const run = (work) =>
          transaction(connection, () => runs.run(connection.given, 'orders/7', key, work));
        await assert.rejects(
          run(() => 'x'.repeat(1 << 20)),
          InvalidArgumentError,
        );
        assert.deepEqual(await run(() => 1), { value: 1, replayed: false });
      }));

    test('steps go on after the last commit', () =>
      opened(1, async (connection) => {
        const key = unique('key');
        const { given } = connection;
        const within = (work) => transaction(connection, work);
        const steps = () => runs.steps('orders/7', key, { lease: 600_000 });
        let attempt = await within(() => steps().claim(given));
        attempt = await within(async () => {
          await effect(connection, `${key} charge`);
          return attempt.step(given, 'charge', { receipt: 7 });
        });
        // The next one is rolled back.
        const broken = within(async () => {
          await effect(connection, `${key} send`);
          await attempt.step(given, 'send');
          throw new RangeError();
        });
        await assert.rejects(broken, RangeError);
        await assert.rejects(
          within(() => steps().claim(given)),
          InProgressError,
        );
        await assert.rejects(
          within(() => attempt.step(given, 'charge')),
          InvalidArgumentError,
        );
        attempt = await within(() => attempt.renew(given));
        await within(() => attempt.release(given));
        let other = await within(() => steps().claim(given));
        assert.deepEqual([...other.finished], [['charge', { receipt: 7 }]]);
        assert.deepEqual([other.replayed, other.claim.runs], [false, 2]);
        // The first one is not the present one any more.
        const late = within(async () => {
          await effect(connection, `${key} send`);
          await attempt.step(given, 'send');
        });
        await assert.rejects(late, StaleTokenError);
        other = await within(async () => {
          await effect(connection, `${key} send`);
          return other.step(given, 'send');
        });
        assert.equal(await within(() => other.complete(given, 'done')), 'done');
        const again = await within(() => steps().claim(given));
        assert.deepEqual([again.replayed, again.value, again.finished.size], [true, 'done', 0]);
        for (const step of ['charge', 'send']) assert.equal(await effects(connection, `${key} ${step}`), 1);
      }));

    if (server === undefined) return;

    test('a duplicate waits for the first transaction', () =>
      opened(2, async (connection, other) => {
        const key = unique('key');
        let second;
        let isOver = false;
        await transaction(connection, async () => {
          await runs.run(connection.given, 'orders/7', key, () => 'first');
          second = transaction(other, () => runs.run(other.given, 'orders/7', key, () => 'second'));
          second.then(() => {
            isOver = true;
          });
          await sleep(300);
          assert.equal(isOver, false);
        });
        assert.deepEqual(await second, { value: 'first', replayed: true });
      }));

    test('without waiting a duplicate is in progress', () =>
      opened(2, async (connection, other) => {
        const key = unique('key');
        const begin = () =>
          transaction(other, () => runs.begin(other.given, 'orders/7', key, { noWait: true }));
        await transaction(connection, async () => {
          const attempt = await runs.begin(connection.given, 'orders/7', key);
          const begun = performance.now();
          await assert.rejects(
            begin(),
            (error) => error instanceof InProgressError && /transaction/.test(error.message),
          );
          assert.ok(performance.now() - begun < 10_000);
          await attempt.complete(1);
        });
        assert.equal((await begin()).value, 1);
      }));

    test('a client sees the record of a transaction, and a purge deletes it', () =>
      opened(1, async (connection) => {
        const key = unique('key');
        await transaction(connection, () => runs.run(connection.given, 'orders/7', key, () => [1, 2]));
        const client = await connect(server.url);
        try {
          const again = () => assert.fail('done again');
          const outcome = await client.idempotency('orders/7').run(key, again);
          assert.deepEqual(outcome, { value: [1, 2], replayed: true });
        } finally {
          await client.close();
        }
        const table = name === 'pg' ? 'polylatch.idempotency' : 'polylatch_idempotency';
        await connection.query(`UPDATE ${table} SET keep_until_ms = 1`);
        assert.ok((await transaction(connection, () => runs.purge(connection.given, 1_000))) >= 1);
        assert.equal(await transaction(connection, () => runs.purge(connection.given)), 0);
      }));

    /** Has a client do the work in a process of its own, and kills it before its last commit. */
    const killed = async (form, key) => {
      const actor = fileURLToPath(new URL('transaction_actor.mjs', import.meta.url));
      const url = server.url.replace('mariadb:', 'mysql:');
      const child = spawn(process.execPath, [actor, name, url, form, key], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const [said] = await Promise.race([once(child.stdout, 'data'), once(child, 'exit')]);
      assert.equal(String(said), 'before the commit\n');
      child.kill('SIGKILL');
      await once(child, 'exit');
    };

    test('a client that is killed before its commit has done nothing', () =>
      opened(1, async (connection) => {
        const key = unique('key');
        await killed('run', key);
        const outcome = await transaction(connection, () =>
          runs.run(connection.given, 'orders/7', key, async () => {
            await effect(connection, key);
            return 'second';
          }),
        );
        assert.deepEqual(outcome, { value: 'second', replayed: false });
        assert.equal(await effects(connection, key), 1);
      }));

    test('another client goes on after the step whose commit was the last', () =>
      opened(1, async (connection) => {
        const key = unique('key');
        await killed('steps', key);
        let attempt;
        await eventually('the lease of the dead client is over', async () => {
          try {
            attempt = await transaction(connection, () =>
              runs.steps('orders/7', key, { lease: 600_000 }).claim(connection.given),
            );
            return true;
          } catch (error) {
            if (error instanceof InProgressError) return false;
            throw error;
          }
        });
        assert.deepEqual([...attempt.finished], [['charge', { receipt: 7 }]]);
        assert.equal(attempt.claim.runs, 2);
        assert.equal(await effects(connection, key), 1);
        await transaction(connection, () => attempt.complete(connection.given, null));
      }));
  });
}

test('large numbers are taken as drivers are set to return them', async () => {
  const getTypeParser = (oid, format) => (oid === 20 ? BigInt : pg.types.getTypeParser(oid, format));
  for (const [dialect, server, options] of [
    ['postgres $1', postgres, { types: { getTypeParser } }],
    ['mysql ?', mariadb, { supportBigNumbers: true, bigNumberStrings: true }],
  ]) {
    const connection = await server.connect(options);
    const runs = new TransactionRuns({ dialect });
    const key = unique('key');
    for (const replayed of [false, true]) {
      const outcome = await transaction(connection, () => runs.run(connection, 'orders/7', key, () => 1));
      assert.deepEqual(outcome, { value: 1, replayed });
    }
    await connection.end();
  }
});

test('rows in another form are a TypeError that says what to return', async () => {
  const runs = new TransactionRuns({ dialect: 'sqlite ?' });
  for (const [returned, message] of [
    [
      [[true]],
      /returned a boolean as a column; hand columns over as null, string, Buffer, bigint, or a whole/,
    ],
    [[[1.5]], /the number 1\.5/],
    [[[2 ** 53]], /the number 9007199254740992/],
    [[[undefined]], /undefined/],
    [[[new Date(0)]], /an object of type Date/],
    [[{ version: 1 }], /an object of type Object as a row; return each row as an array/],
    [undefined, /returned undefined; return an array of rows/],
    [{ rows: [] }, /an object of type Object; return an array of rows/],
  ]) {
    const begun = runs.begin(() => returned, 'orders/7', 'key');
    await assert.rejects(begun, (error) => error instanceof TypeError && message.test(error.message));
  }
  // It is a row, of another table.
  await assert.rejects(
    runs.begin(() => [[2n ** 63n, 1, 'a', Buffer.of(1), null]], 'orders/7', 'key'),
    { code: 'backend_rejected' },
  );
});

test('bad arguments are refused before anything is sent', async () => {
  const sqliteRuns = new TransactionRuns({ dialect: 'sqlite ?' });
  const sent = () => assert.fail('sent');
  for (const make of [
    () => new TransactionRuns({ dialect: 'sqlite' }),
    () => new TransactionRuns({ dialect: 'mysql ?', schema: 'x' }),
    () => sqliteRuns.steps('orders/7', ''),
    () => sqliteRuns.steps('orders/7', 'key', { lease: 1 }),
  ]) {
    assert.throws(make, InvalidArgumentError);
  }
  assert.throws(() => new TransactionRuns({ dialect: 'postgres $1', schema: 'a;b' }), InvalidConfigError);
  for (const make of [
    () => new TransactionRuns(),
    () => new TransactionRuns({ dialect: 7 }),
    () => new TransactionRuns({ dialect: 'sqlite ?', encoding: 'yaml' }),
    () => new TransactionRuns({ dialect: 'sqlite ?', table: 'x' }),
    () => sqliteRuns.steps('orders/7', 'key', { noWait: true }),
  ]) {
    assert.throws(make, TypeError);
  }
  for (const call of [
    () => sqliteRuns.begin(sent, 'orders/7', 'key', { payload: 'a', fingerprint: 'f' }),
    () => sqliteRuns.begin(sent, '', 'key'),
    () => sqliteRuns.purge(sent, 0),
    () => sqliteRuns.purge(sent, 1.5),
  ]) {
    await assert.rejects(call, InvalidArgumentError);
  }
  const [pool, callbacks] = [new pg.Pool(), mysql.createPool({})];
  for (const [dialect, connection, message] of [
    ['sqlite ?', {}, /the connection of the dialect "sqlite \?" must be a function/],
    ['postgres $1', undefined, /must be a client of pg, or a function/],
    ['postgres $1', pool, /is a pool.*await pool\.connect\(\)/],
    ['mysql ?', callbacks, /is a pool.*await pool\.getConnection\(\)/],
    ['mysql ?', { execute: sent, promise: sent }, /pass connection\.promise\(\)/],
    ['postgres %s', { query: sent }, /must be a function/],
  ]) {
    const runs = new TransactionRuns({ dialect });
    await assert.rejects(
      runs.run(connection, 'orders/7', 'key', () => 1),
      (error) => error instanceof TypeError && message.test(error.message),
    );
    await assert.rejects(runs.purge(connection), message);
  }
  await Promise.all([pool.end(), callbacks.end()]);
  await assert.rejects(sqliteRuns.run(sent, 'orders/7', 'key', undefined), TypeError);
  await assert.rejects(
    sqliteRuns.run(sent, 'orders/7', 'key', () => 1, { wait: 0 }),
    /no option "wait"/,
  );
});
