// Ending a wait by an AbortSignal, at any moment.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { connect } from 'polylatch';

import { eventually, stores, unique } from './stores.mjs';

for (const [store, url] of await stores()) {
  describe(store, () => {
    const two = async (work) => {
      const [one, other] = await Promise.all([connect(url), connect(url)]);
      try {
        await work(one, other, unique('aborting'));
      } finally {
        await Promise.all([one.close(), other.close()]);
      }
    };

    test('an aborted wait is rejected with the signal’s reason and leaves the line', () =>
      two(async (one, other, name) => {
        const held = await one.lock(name).acquire();
        const controller = new AbortController();
        let heard = 0;
        controller.signal.onabort = () => {
          heard += 1;
        };
        const waiting = other.lock(name).acquire({ signal: controller.signal });
        await eventually('it waits', async () => (await one.inspect({ name })).locks[0].waiters.length === 1);
        const reason = new Error('enough');
        controller.abort(reason);
        await assert.rejects(waiting, (error) => error === reason);
        assert.equal(heard, 1, 'the handler of the caller is left alone');
        await eventually('the line is empty', async () => {
          return (await one.inspect({ name })).locks[0].waiters.length === 0;
        });
        await held.release();
      }));

    test('a signal that was aborted before is respected', () =>
      two(async (one, _other, name) => {
        await assert.rejects(one.lock(name).acquire({ signal: AbortSignal.abort() }), { name: 'AbortError' });
        await assert.rejects(one.lock(name).tryAcquire({ signal: AbortSignal.abort() }), {
          name: 'AbortError',
        });
        assert.deepEqual((await one.inspect({ name })).locks[0].holders, []);
      }));

    test('a timeout signal ends a wait', () =>
      two(async (one, other, name) => {
        const held = await one.lock(name).acquire();
        await assert.rejects(other.lock(name).acquire({ signal: AbortSignal.timeout(50) }), {
          name: 'TimeoutError',
        });
        await held.release();
      }));

    test('aborting at any moment leaves no lock', () =>
      two(async (one, other, name) => {
        let aborted = 0;
        for (let round = 0; round < 150; round += 1) {
          const controller = new AbortController();
          const waiting = one.lock(name).acquire({ signal: controller.signal });
          // From before the request has left to after the answer has come.
          if (round % 3 === 1) await Promise.resolve();
          if (round % 3 === 2) await sleep(round % 2);
          controller.abort();
          await waiting.then(
            (guard) => guard.release(),
            () => {
              aborted += 1;
            },
          );
        }
        // Inside the process the answer is there before anybody can abort.
        assert.ok(store === 'memory' || aborted >= 30, `${aborted} were aborted`);
        // An orphan would block for as long as its first lease lasts; nothing of the kind may be left.
        await eventually('nothing is held', async () => {
          const [view] = (await other.inspect({ name })).locks;
          return view.holders.length === 0 && view.waiters.length === 0;
        });
        const guard = await other.lock(name, { wait: 0 }).acquire();
        await guard.release();
      }));

    test('aborting a hand-off leaves no lock', () =>
      two(async (one, other, name) => {
        for (let round = 0; round < 40; round += 1) {
          const held = await one.lock(name, { wait: 30_000 }).acquire();
          const controller = new AbortController();
          const waiting = other.lock(name).acquire({ signal: controller.signal });
          const released = held.release();
          await sleep(round % 4);
          controller.abort();
          await Promise.all([released, waiting.then((guard) => guard.release()).catch(() => {})]);
        }
        const guard = await one.lock(name, { wait: 20_000 }).acquire();
        await guard.release();
      }));
  });
}

test('connecting can be aborted', async () => {
  // Reserved for documentation: nobody answers there.
  const dead = connect('redis://192.0.2.1:6379?timeout=30s', { signal: AbortSignal.timeout(100) });
  await assert.rejects(
    dead,
    (error) => error.name === 'TimeoutError' || error.code === 'backend_unavailable',
  );
});
