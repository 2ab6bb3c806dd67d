// Taking locks and giving them back, on every store.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { inspect } from 'node:util';

import {
  connect,
  GuardSet,
  InvalidArgumentError,
  LeaseLostError,
  NameConflictError,
  PolylatchError,
  StaleTokenError,
  TokenGate,
  UnsupportedError,
  WaitTimeoutError,
} from 'polylatch';

import { eventually, keepsLeases, stores, unique } from './stores.mjs';

for (const [store, url] of await stores()) {
  describe(store, () => {
    const two = async (work) => {
      const [one, other] = await Promise.all([connect(url), connect(url)]);
      try {
        await work(one, other, unique('lock'));
      } finally {
        await Promise.all([one.close(), other.close()]);
      }
    };

    test('a lock is held by one, and its tokens grow', () =>
      two(async (one, other, name) => {
        const first = await one.lock(name, { label: 'first', lease: 5_000 }).acquire();
        assert.equal(first.name, name);
        assert.equal(first.mode, 'mutex');
        assert.equal(first.permits, 1);
        assert.equal(typeof first.fencingToken, 'bigint');
        assert.ok(first.remaining > 0 && first.remaining <= 5_000);
        assert.ok(first.isHeld);
        first.check();
        assert.equal(await other.lock(name).tryAcquire(), null);
        await first.release();
        assert.ok(!first.isHeld);
        assert.equal(first.remaining, 0);
        const second = await other.lock(name).tryAcquire();
        assert.ok(second.fencingToken > first.fencingToken);
        await second.release();
      }));

    test('a kept lock is entered again, and released for another client', () =>
      two(async (one, other, name) => {
        const lock = one.lock(name, { keepIdle: 60_000 });
        if (!keepsLeases || !['memory', 'redis'].includes(one.capability.backend)) {
          await assert.rejects(lock.acquire(), (error) => {
            assert.ok(error instanceof UnsupportedError);
            assert.match(error.message, /cannot keep a lease after its release; leave keepIdle out/);
            return true;
          });
          return;
        }
        const tokens = [];
        for (let round = 0; round < 5; round += 1) {
          const guard = await lock.acquire();
          tokens.push(guard.fencingToken);
          assert.ok(guard.isHeld);
          await guard.release();
          assert.ok(!guard.isHeld);
          assert.throws(() => guard.check(), /was released/);
          await guard.release();
          const { locks } = await other.inspect({ name });
          assert.equal(BigInt(locks[0].holders[0].fencingToken), tokens[0]);
        }
        assert.ok(
          tokens.every((token, at) => at === 0 || token > tokens[at - 1]),
          `${tokens}`,
        );
        // What is kept is the plain lock, and it is not entered as another kind.
        const write = one.rwLock(name, { keepIdle: 60_000 }).write();
        await assert.rejects(write.tryAcquire(), InvalidArgumentError);
        // One caller at a time, in the same process too.
        const last = await lock.acquire();
        let entered = false;
        const second = lock.acquire().then((guard) => {
          entered = true;
          return guard;
        });
        await eventually('it waits', async () => {
          const [view] = (await other.inspect({ name })).locks;
          return view.waiters.length === 1;
        });
        assert.ok(!entered && last.isHeld);
        await last.release();
        const next = await second;
        assert.ok(next.fencingToken > last.fencingToken);
        await next.release();
        const theirs = await other.lock(name, { wait: 30_000 }).acquire();
        assert.ok(theirs.fencingToken > next.fencingToken);
        assert.equal(await lock.tryAcquire(), null);
        await theirs.release();
      }));

    test('a limited wait says who holds the lock', () =>
      two(async (one, other, name) => {
        const held = await one.lock(name, { label: 'nightly import' }).acquire();
        await assert.rejects(other.lock(name, { wait: 50 }).acquire(), (error) => {
          assert.ok(error instanceof WaitTimeoutError && error instanceof PolylatchError);
          assert.equal(error.name, 'WaitTimeoutError');
          assert.deepEqual(
            [error.code, error.retry, error.effect],
            ['wait_timeout', 'caller_decides', 'none'],
          );
          assert.match(error.message, /nightly import/);
          assert.equal(error.context.lock, name);
          // Whoever reads the stack wants to see who asked.
          assert.match(error.stack, /locks\.test\.mjs/);
          return true;
        });
        await held.release();
      }));

    test('a held lease gets another length', () =>
      two(async (one, _other, name) => {
        const guard = await one.lock(name, { lease: 3_000, renew: false }).acquire();
        if (one.capability.backend === 'consul') {
          await assert.rejects(guard.extend(60_000), UnsupportedError);
          assert.ok((await guard.extend(3_000)) > 0);
          return guard.release();
        }
        assert.ok((await guard.extend(60_000)) > 40_000);
        assert.ok((await guard.extend(5_000)) > 40_000, 'a shorter one takes nothing back');
        assert.ok(guard.remaining > 40_000);
        await assert.rejects(guard.extend(1), /lease is 1ms/);
        await assert.rejects(guard.extend(Number.NaN), InvalidArgumentError);
        await assert.rejects(guard.extend('5s'), TypeError);
        await guard.release();
        await assert.rejects(guard.extend(60_000), InvalidArgumentError);
      }));

    test('a waiter gets the lock when it is released', () =>
      two(async (one, other, name) => {
        const held = await one.lock(name).acquire();
        const waiting = other.lock(name, { wait: 30_000 }).acquire();
        await eventually('it waits', async () => {
          const [view] = (await one.inspect({ name })).locks;
          return view.waiters.length === 1;
        });
        await held.release();
        const next = await waiting;
        assert.ok(next.fencingToken > held.fencingToken);
        await next.release();
      }));

    test('the work under a lock gives it back, whatever comes of it', () =>
      two(async (one, other, name) => {
        const result = await one.withLock(name, { lease: 5_000 }, async (guard) => {
          guard.check();
          assert.equal(await other.lock(name).tryAcquire(), null);
          return 42;
        });
        assert.equal(result, 42);
        const boom = new Error('boom');
        await assert.rejects(
          one.withLock(name, () => {
            throw boom;
          }),
          (error) => error === boom,
        );
        const free = await other.lock(name).tryAcquire();
        assert.ok(free !== null, 'it was given back both times');
        await free.release();
      }));

    test('a lock that is lost under the work is told', () =>
      two(async (one, _other, name) => {
        const work = one.withLock(name, { lease: 200, renew: false }, async (guard) => {
          await new Promise((resolve) => guard.signal.addEventListener('abort', resolve));
        });
        await assert.rejects(work, (error) => error instanceof LeaseLostError && error.reason === 'expired');
      }));

    test('a guard can be released twice, and knows that it is', () =>
      two(async (one, other, name) => {
        const guard = await one.lock(name).acquire();
        const told = [guard.fencingToken, guard.fenceQuality, guard.renewals];
        await Promise.all([guard.release(), guard.release()]);
        await guard.release();
        assert.throws(() => guard.check(), InvalidArgumentError);
        const next = await other.lock(name).acquire();
        // What came after it is not what it speaks of.
        assert.deepEqual([guard.name, guard.mode, guard.permits], [name, 'mutex', 1]);
        assert.deepEqual([guard.fencingToken, guard.fenceQuality, guard.renewals], told);
        assert.deepEqual([guard.isHeld, guard.remaining], [false, 0]);
        assert.throws(() => guard.check(), InvalidArgumentError);
        guard.beat();
        assert.ok(!guard.signal.aborted);
        await guard.release();
        next.check();
        await next.release();
      }));

    test('readers share, a writer is alone, and a guard changes its way', () =>
      two(async (one, other, name) => {
        const writer = await one.rwLock(name).write().acquire();
        assert.equal(await other.rwLock(name).read().tryAcquire(), null);
        const token = writer.fencingToken;
        assert.ok(!writer.signal.aborted);
        await writer.downgrade();
        assert.equal(writer.mode, 'read');
        assert.equal(writer.fencingToken, token);
        const reader = await other.rwLock(name, { wait: 10_000 }).read().acquire();
        assert.equal(await writer.tryUpgrade(), false);
        writer.check();
        await reader.release();
        assert.equal(await writer.tryUpgrade(), true);
        assert.ok(writer.fencingToken > reader.fencingToken);
        assert.equal(await other.rwLock(name).write().tryAcquire(), null);
        assert.ok(!writer.signal.aborted, 'a step is no loss');
        await writer.release();
        await assert.rejects(writer.downgrade(), InvalidArgumentError);
      }));

    test('a release waits for a step that is under way, and another step is refused', () =>
      two(async (one, other, name) => {
        const writer = await one.rwLock(name).write().acquire();
        const step = writer.downgrade();
        const again = assert.rejects(writer.downgrade(), InvalidArgumentError);
        await Promise.all([step, again, writer.release()]);
        assert.ok(!writer.isHeld);
        await (await other.rwLock(name).write().tryAcquire()).release();
      }));

    test('a step that fails leaves nothing to give back', () =>
      two(async (client, _, name) => {
        const writer = await client.rwLock(name, { lease: 300, renew: false }).write().acquire();
        if (!writer.signal.aborted) await once(writer.signal, 'abort');
        await assert.rejects(writer.downgrade(), LeaseLostError);
        assert.throws(() => writer.check(), { code: 'invalid_argument' });
        await writer.release();
        await writer.release();
        assert.ok(!writer.isHeld);
        await (await client.rwLock(name, { wait: 20_000 }).write().acquire()).release();
      }));

    test('a lock that is named is not acquired, and can be acquired again and again', () =>
      two(async (one, other, name) => {
        const lock = one.lock(name, { lease: 5_000 });
        const held = await other.lock(name, { wait: 0 }).acquire();
        assert.equal(await lock.tryAcquire(), null);
        await held.release();
        for (let round = 0; round < 2; round += 1) {
          const guard = await lock.acquire();
          assert.equal(guard.name, lock.name);
          await guard.release();
        }
        assert.equal(await lock.withLock((guard) => guard.isHeld), true);
        assert.equal(
          await one
            .rwLock(name)
            .write()
            .withLock({}, (guard) => guard.mode),
          'write',
        );
        const names = await one.lockAll([`${name}/b`, `${name}/a`]).withLock((guards) => guards.names);
        assert.deepEqual(names, [`${name}/a`, `${name}/b`]);
        assert.deepEqual((await one.inspect({ prefix: name })).locks, []);
      }));

    test('awaiting a lock, or using it as its guard, is refused, and nothing is held', () =>
      two(async (one, _other, name) => {
        const lock = one.lock(name);
        const isNamed = (error) => {
          assert.ok(error instanceof TypeError, String(error));
          assert.deepEqual([error.code, error.effect], ['invalid_argument', 'none']);
          const written = `client.lock(${JSON.stringify(name)})`;
          assert.equal(
            error.message,
            `lock ${JSON.stringify(name)} is named, not acquired; call await ${written}.acquire(), or ${written}.withLock(work)`,
          );
          return true;
        };
        await assert.rejects(async () => await lock, isNamed);
        await assert.rejects(async () => lock, isNamed);
        await assert.rejects(
          lock.then(() => assert.fail('it is not acquired')),
          isNamed,
        );
        await assert.rejects(Promise.all([lock]), isNamed);
        for (const member of ['release', 'fencingToken', 'token', 'signal', 'check', 'isHeld', 'catch']) {
          assert.throws(() => lock[member], isNamed, member);
        }
        assert.throws(() => lock[Symbol.asyncDispose], isNamed);
        await assert.rejects(
          async () => await one.lockAll([name]),
          /are named, not acquired; call await client\.lockAll/,
        );
        await assert.rejects(async () => await one.semaphore(name, 2).permits(), /permits\(1\)\.acquire\(\)/);
        assert.equal(inspect(lock), `Lock { client.lock(${JSON.stringify(name)}) }`);
        assert.deepEqual((await one.inspect({ prefix: name })).locks, []);
      }));

    test('permits are had up to their number', () =>
      two(async (one, other, name) => {
        const semaphore = one.semaphore(name, 3);
        const both = await semaphore.acquire(2);
        assert.equal(both.permits, 2);
        assert.equal(await other.semaphore(name, 3).tryAcquire(2), null);
        const single = await other.semaphore(name, 3).tryAcquire();
        assert.equal(single.permits, 1);
        await assert.rejects(other.semaphore(name, 4).tryAcquire(), NameConflictError);
        await Promise.all([both.release(), single.release()]);
      }));

    test('several locks are had together or not at all', () =>
      two(async (one, other, name) => {
        const names = [`${name}/b`, `${name}/a`];
        const set = await one.lockAll(names, { lease: 5_000 }).acquire();
        assert.ok(set instanceof GuardSet);
        assert.deepEqual(set.names, names.toSorted());
        assert.equal(set.fencingTokens.size, 2);
        assert.ok(set.isHeld && set.remaining > 0);
        set.check();
        assert.equal(await other.lockAll([`${name}/a`, `${name}/c`]).tryAcquire(), null);
        const free = await other.lock(`${name}/c`).tryAcquire();
        await free.release();
        await assert.rejects(other.lockAll(names, { wait: 50 }).acquire(), WaitTimeoutError);
        await set[Symbol.asyncDispose]();
        assert.ok(!set.isHeld);
      }));

    test('the same owner enters again', () =>
      two(async (one, other, name) => {
        const outer = await one.lock(name, { owner: 'job 7' }).acquire();
        const inner = await one.lock(name, { owner: 'job 7' }).acquire();
        assert.equal(inner.fencingToken, outer.fencingToken);
        await outer.release();
        inner.check();
        assert.equal(await other.lock(name).tryAcquire(), null);
        await inner.release();
      }));

    test('who holds and who waits is visible, and a lease can be broken', () =>
      two(async (one, other, name) => {
        const guard = await one.lock(name, { label: 'stuck' }).acquire();
        const snapshot = await other.inspect({ name });
        const [view] = snapshot.locks;
        assert.equal(view.holders[0].label, 'stuck');
        assert.equal(view.holders[0].client, one.id);
        assert.equal(view.holders[0].fencingToken, guard.fencingToken);
        await eventually('the client is announced', async () => {
          const { clients } = await other.inspect({ name });
          const client = clients.find(({ id }) => id === one.id);
          return (
            client?.language === (process.env.POLYLATCH_TEST_LANGUAGE ?? 'node') &&
            client.pid === process.pid &&
            client.program === 'locks.test.mjs'
          );
        });
        const order = { name, expected: guard.fencingToken, by: 'ann@desk', reason: 'it is stuck' };
        assert.equal((await other.breakLease(order)).outcome, 'broken');
        assert.equal((await other.breakLease(order)).outcome, 'free');
        await eventually('its holder is told', () => guard.signal.aborted);
        assert.ok(guard.signal.reason instanceof LeaseLostError);
        assert.throws(() => guard.check(), LeaseLostError);
        await assert.rejects(guard.release(), LeaseLostError);
      }));

    test('closing a client gives everything back and ends its waits', () =>
      two(async (one, other, name) => {
        const held = await one.lock(name).acquire();
        const blocker = await other.lock(`${name}/b`).acquire();
        const waiting = one.lock(`${name}/b`, { wait: 30_000 }).acquire();
        const { signal } = held;
        await Promise.all([one.close(), assert.rejects(waiting, { code: 'canceled' })]);
        assert.ok(!held.isHeld);
        await eventually('the signal tells', () => signal.aborted);
        assert.equal(signal.reason.code, 'canceled');
        await assert.rejects(one.lock(name).acquire(), { code: 'canceled' });
        await assert.rejects(one.lock(name).tryAcquire(), { code: 'canceled' });
        await one.close();
        const next = await other.lock(name).tryAcquire();
        assert.ok(next !== null);
        await Promise.all([next.release(), blocker.release()]);
      }));

    test('many locks at once do not get in each other’s way', () =>
      two(async (one, other, name) => {
        let inside = 0;
        let most = 0;
        await Promise.all(
          Array.from({ length: 40 }, (_, index) =>
            (index % 2 ? one : other).withLock(name, { wait: 60_000 }, async () => {
              inside += 1;
              most = Math.max(most, inside);
              await new Promise(setImmediate);
              inside -= 1;
            }),
          ),
        );
        assert.equal(most, 1);
        const guards = await Promise.all(
          Array.from({ length: 100 }, (_, index) => one.lock(`${name}/${index}`).acquire()),
        );
        await Promise.all(guards.map((guard) => guard.release()));
      }));
  });
}

test('a gate refuses older tokens', () => {
  const gate = new TokenGate(5n);
  gate.admit(7n);
  gate.admit(7n);
  assert.equal(gate.largest, 7n);
  assert.throws(() => gate.admit(6n), StaleTokenError);
  assert.throws(() => gate.admit(7), TypeError);
  assert.equal(new TokenGate().largest, undefined);
});
