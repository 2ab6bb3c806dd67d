// The statements that compare and write a fence in one.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { FencedUpdate, StaleTokenError } from 'polylatch';

test('a statement compares and writes in one, and says why nothing changed', () => {
  const write = { placeholders: '$', table: 'app.account', fence: 'fence', set: ['balance'], keys: ['id'] };
  const update = FencedUpdate.update(write);
  assert.equal(
    update.sql,
    'UPDATE "app"."account" SET "balance" = $1, "fence" = $2 WHERE "account"."id" = $3 AND ' +
      '("account"."fence" IS NULL OR "account"."fence" <= $2)',
  );
  assert.deepEqual(update.parameters, ['balance', 'fence', 'id']);
  assert.deepEqual(update.probeParameters, ['id']);
  assert.match(update.probeSql, /^SELECT "account"."fence" FROM/);
  assert.match(
    FencedUpdate.upsert({ ...write, placeholders: '?' }).sql,
    /^INSERT INTO .* ON CONFLICT \("id"\)/,
  );
  for (const row of [{ fence: 8 }, { fence: 8n }, { fence: '8' }, [8]]) {
    assert.throws(() => FencedUpdate.whyUnchanged(7n, row), StaleTokenError);
    assert.equal(FencedUpdate.whyUnchanged(8n, row), 'changed_meanwhile');
  }
  assert.equal(FencedUpdate.whyUnchanged(7n, { fence: null }), 'changed_meanwhile');
  assert.equal(FencedUpdate.whyUnchanged(7n, undefined), 'missing');
  for (const bad of [
    { ...write, placeholders: '%s' },
    { ...write, keys: 'id' },
    { ...write, table: undefined },
    { ...write, where: 'id' },
  ]) {
    assert.throws(() => FencedUpdate.update(bad), TypeError);
  }
  for (const bad of [
    { ...write, keys: [] },
    { ...write, table: 'a; --' },
    { ...write, set: ['fence'] },
  ]) {
    assert.throws(() => FencedUpdate.update(bad), { code: 'invalid_argument' });
  }
  assert.throws(() => FencedUpdate.whyUnchanged(7, undefined), TypeError);
  for (const row of [7, {}, { a: 1, b: 2 }, { a: 'x' }, { a: 1.5 }]) {
    assert.throws(() => FencedUpdate.whyUnchanged(7n, row), TypeError);
  }
  // Not "worth writing again": that would go on for ever.
  assert.throws(() => FencedUpdate.whyUnchanged(7n, { fence: 2n ** 63n }), { code: 'invalid_argument' });
});
