// Guards for the rows of a table, and locks inside a transaction: texts, and what the answers mean.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import {
  ConditionalUpdate,
  FencedUpdate,
  PolylatchError,
  StaleTokenError,
  TransactionLock,
  VersionedUpdate,
} from 'polylatch';

const conformance = dirname(process.env.POLYLATCH_ERRORS_JSON);
const golden = JSON.parse(readFileSync(join(conformance, 'sql.json'), 'utf8'));

const makers = {
  fenced_update: ({ column, ...write }) => FencedUpdate.update({ ...write, fence: column }),
  fenced_upsert: ({ column, ...write }) => FencedUpdate.upsert({ ...write, fence: column }),
  versioned_update: ({ column, ...write }) => VersionedUpdate.update({ ...write, version: column }),
  conditional_update: (write) => ConditionalUpdate.update(write),
  transaction_lock: ({ schema, ...lock }) => new TransactionLock({ ...lock, schema: schema ?? undefined }),
};

test('the texts are those of every language', () => {
  for (const { make, expect, ...given } of golden) {
    if (expect.error !== undefined) {
      assert.throws(
        () => makers[make](given),
        (error) =>
          error instanceof PolylatchError && error.code === expect.error && error.message === expect.message,
        JSON.stringify(given),
      );
      continue;
    }
    const made = makers[make](given);
    if (make === 'transaction_lock') {
      const { prepare, take, fence } = expect;
      assert.deepEqual([made.prepareSql, made.prepareValues], [prepare?.sql, prepare?.values ?? []]);
      assert.deepEqual([made.takeSql, made.takeValues], [take.sql, take.values]);
      assert.deepEqual([made.fenceSql, made.name], [fence?.sql, given.name]);
    } else {
      assert.deepEqual([made.sql, made.parameters], [expect.sql, expect.parameters]);
      assert.deepEqual([made.probeSql, made.probeParameters], [expect.probe_sql, expect.probe_parameters]);
      if (make.startsWith('fenced')) assert.equal(made.rowsTell, expect.rows_tell);
    }
  }
});

test('a row says why nothing changed', () => {
  for (const row of [{ fence: 8 }, { fence: 8n }, { fence: '8' }, [8]]) {
    assert.throws(() => FencedUpdate.whyUnchanged(7n, row), StaleTokenError);
    assert.throws(() => FencedUpdate.check(7n, row), StaleTokenError);
    assert.equal(FencedUpdate.whyUnchanged(8n, row), 'changed_meanwhile');
    assert.equal(FencedUpdate.check(8n, row), undefined);
    assert.equal(VersionedUpdate.whyUnchanged(row), 'changed');
  }
  assert.equal(FencedUpdate.whyUnchanged(7n, { fence: null }), 'changed_meanwhile');
  for (const none of [undefined, null]) {
    assert.equal(FencedUpdate.whyUnchanged(7n, none), 'missing');
    assert.equal(FencedUpdate.check(7n, none), undefined);
    assert.equal(VersionedUpdate.whyUnchanged(none), 'missing');
  }
  assert.throws(() => FencedUpdate.whyUnchanged(7, undefined), TypeError);
  for (const row of [7, {}, { a: 1, b: 2 }, { a: 'x' }, { a: 1.5 }]) {
    assert.throws(() => FencedUpdate.whyUnchanged(7n, row), TypeError);
    assert.throws(() => FencedUpdate.check(7n, row), TypeError);
    assert.throws(() => VersionedUpdate.whyUnchanged(row), TypeError);
  }
  // Not "worth writing again": that would go on for ever.
  for (const explain of [FencedUpdate.whyUnchanged, FencedUpdate.check]) {
    assert.throws(() => explain(7n, { fence: 2n ** 63n }), { code: 'invalid_argument' });
  }
});

test('what has the wrong type is a TypeError', () => {
  const write = { dialect: 'sqlite ?', table: 'account', fence: 'fence', set: ['balance'], keys: ['id'] };
  for (const bad of [
    { ...write, dialect: undefined },
    { ...write, keys: 'id' },
    { ...write, table: undefined },
    { ...write, set: [1] },
    { ...write, where: 'id' },
    undefined,
  ]) {
    assert.throws(() => FencedUpdate.update(bad), TypeError);
  }
  const take = {
    dialect: 'mysql ?',
    table: 'item',
    changes: [['stock', '-']],
    conditions: [['stock', '>=']],
    keys: ['id'],
  };
  for (const bad of [{ changes: { stock: '-' } }, { changes: [['stock']] }, { conditions: [['stock', 1]] }]) {
    assert.throws(() => ConditionalUpdate.update({ ...take, ...bad }), TypeError);
  }
  assert.throws(() => VersionedUpdate.update(write), TypeError);
  assert.throws(() => new TransactionLock({ dialect: 'mysql ?', name: 1 }), TypeError);
  assert.throws(() => new TransactionLock({ dialect: 'mysql ?', name: 'a', wait: 1 }), TypeError);
});
