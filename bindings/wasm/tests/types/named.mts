// A lock that is named is no guard: the mistake does not compile, and fails when it runs.

import assert from 'node:assert/strict';

import { type Acquirable, connect, type Guard, type GuardSet, type Lock, type LockAll } from 'polylatch-wasm';

const client = await connect('memory:named');
const isNamed = /lock "a" is named, not acquired; call await client\.lock\("a"\)\.acquire\(\), or /;

const lock: Lock = client.lock('a', { wait: 0 });
const all: LockAll = client.lockAll(['a', 'b']);
const both: [Acquirable<Guard>, Acquirable<GuardSet>] = [lock, all];
assert.equal(both.length, 2);

await assert.rejects(async () => {
  const guard = await client.lock('a');
  // @ts-expect-error it is named, not acquired
  await guard.release();
}, isNamed);
await assert.rejects(async () => {
  // @ts-expect-error it is named, not acquired
  const guard: Guard = await client.lock('a');
  return guard.fencingToken;
}, isNamed);
await assert.rejects(async () => {
  // @ts-expect-error there is nothing to dispose of
  await using _guard = await client.lock('a');
}, isNamed);
// @ts-expect-error a lock has no release
assert.throws(() => client.lock('a').release(), isNamed);
// @ts-expect-error a lock has no token
assert.throws(() => client.lock('a').fencingToken, isNamed);
assert.throws(
  // @ts-expect-error a set has no tokens
  () => all.fencingTokens,
  /locks "a", "b" are named, not acquired; call await client\.lockAll\(\["a","b"\]\)\.acquire/,
);
await assert.rejects(
  // @ts-expect-error it is named, not acquired
  async () => (await client.rwLock('a').read()).release(),
  /client\.rwLock\("a"\)\.read\(\)\.acquire/,
);
// @ts-expect-error an async function that returns a lock rejects
const returned: () => Promise<Lock> = async () => client.lock('a');
await assert.rejects(returned, isNamed);

{
  await using guard: Guard = await lock.acquire();
  await using guards: GuardSet | null = await all.tryAcquire();
  assert.deepEqual([guard.isHeld, guards], [true, null]);
}
{
  await using guards: GuardSet = await all.acquire();
  const refused: Guard | null = await lock.tryAcquire();
  assert.deepEqual([guards.isHeld, refused], [true, null]);
}
const token: bigint = await lock.withLock((guard) => guard.fencingToken);
const names: string[] = await all.withLock(
  { signal: AbortSignal.timeout(10_000) },
  async (guards) => guards.names,
);
assert.ok(token > 0n && names.length === 2);
await client.close();

console.log('names: fine');
