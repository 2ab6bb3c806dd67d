// Keeping a lock while JavaScript is busy, and hearing of its loss.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { describe, test } from 'node:test';

import { connect, LeaseLostError } from 'polylatch';

import { block, stores, unique } from './stores.mjs';

for (const [store, url] of await stores()) {
  describe(store, () => {
    const client = async (work) => {
      const client = await connect(url);
      try {
        await work(client, unique('losing'));
      } finally {
        await client.close();
      }
    };

    test('a blocked loop does not lose the lock', () =>
      client(async (client, name) => {
        const guard = await client.lock(name, { lease: 1_500 }).acquire();
        block(4_700);
        guard.check();
        assert.ok(guard.renewals >= 2, `${guard.renewals} renewals`);
        assert.equal(await client.lock(name).tryAcquire(), null);
        assert.ok(!guard.signal.aborted);
        await guard.release();
      }));

    test('a blocked loop past the hold limit loses the lock, and is told', () =>
      client(async (client, name) => {
        const guard = await client.lock(name, { lease: 600, maxHold: 900 }).acquire();
        const { signal } = guard;
        block(1_500);
        assert.throws(
          () => guard.check(),
          (error) => error instanceof LeaseLostError && error.reason === 'hold_limit',
        );
        assert.ok(!guard.isHeld);
        if (!signal.aborted) await once(signal, 'abort');
        assert.ok(signal.reason instanceof LeaseLostError);
        assert.equal(signal.reason.reason, 'hold_limit');
        const next = await client.lock(name, { wait: 20_000 }).acquire();
        assert.ok(next.fencingToken > guard.fencingToken);
        await next.release();
      }));

    test('a lease that is not renewed ends, and aborts what it was handed to', () =>
      client(async (client, name) => {
        const guard = await client.lock(name, { lease: 300, renew: false }).acquire();
        const { endangered, signal } = guard;
        // A server that accepts and never answers: only the loss of the lock ends the request.
        const silent = createServer().listen(0, '127.0.0.1');
        await once(silent, 'listening');
        const request = fetch(`http://127.0.0.1:${silent.address().port}`, { signal });
        await assert.rejects(request, (error) => error === signal.reason);
        silent.close();
        silent.closeAllConnections();
        assert.equal(signal.reason.code, 'lease_lost');
        assert.equal(signal.reason.reason, 'expired');
        if (!endangered.aborted) await once(endangered, 'abort');
        await assert.rejects(guard.release(), LeaseLostError);
      }));

    test('work that stops beating loses its lock', () =>
      client(async (client, name) => {
        const guard = await client.lock(name, { lease: 1_000, beatEvery: 900 }).acquire();
        for (let beat = 0; beat < 4; beat += 1) {
          block(250);
          guard.beat();
        }
        guard.check();
        await once(guard.signal, 'abort');
        assert.equal(guard.signal.reason.reason, 'no_progress');
      }));

    test('a set tells when one of its locks is lost', () =>
      client(async (client, name) => {
        const set = await client.lockAll([`${name}/a`, `${name}/b`], { lease: 5_000 }).acquire();
        const { signal } = set;
        const expected = set.fencingTokens.get(`${name}/b`);
        await client.breakLease({ name: `${name}/b`, expected, by: 'ann@desk', reason: 'the test says so' });
        if (!signal.aborted) await once(signal, 'abort');
        assert.ok(signal.reason instanceof LeaseLostError);
        assert.throws(() => set.check(), LeaseLostError);
        await assert.rejects(set.release(), LeaseLostError);
        const kept = await client.lockAll([`${name}/c`]).acquire();
        assert.ok(!kept.signal.aborted);
        await kept.release();
        assert.ok(!kept.signal.aborted);
      }));

    test('what is started when losses are told is not mixed up with them', () =>
      client(async (client, name) => {
        const names = Array.from({ length: 8 }, (_, index) => `${name}/${index}`);
        const guards = await Promise.all(
          names.map((name) => client.lock(name, { lease: 300, renew: false }).acquire()),
        );
        const replaced = Promise.all(
          guards.map(async (guard) => {
            let next;
            guard.signal.addEventListener('abort', () => {
              next = client.lock(`${guard.name}/next`, { wait: 20_000 }).acquire();
            });
            if (!guard.signal.aborted) await once(guard.signal, 'abort');
            return next;
          }),
        );
        // All of them are told in one turn of the loop.
        block(600);
        const next = await replaced;
        assert.deepEqual(
          next.map((guard) => guard.name),
          names.map((name) => `${name}/next`),
        );
        for (const guard of next) guard.check();
        await Promise.all(next.map((guard) => guard.release()));
        assert.deepEqual(
          await Promise.all(
            names.map((name) =>
              client
                .lock(name)
                .tryAcquire()
                .then((g) => g?.name),
            ),
          ),
          names,
        );
      }));

    test('giving back is no loss', () =>
      client(async (client, name) => {
        const guard = await client.lock(name).acquire();
        const { signal, endangered } = guard;
        await guard.release();
        await client.lock(`${name}/turn`).acquire();
        assert.ok(!signal.aborted && !endangered.aborted);
      }));
  });
}

test('every lease that is lost without a warning is reported as endangered, too', async () => {
  const client = await connect('memory:');
  for (let round = 0; round < 4; round += 1) {
    const names = Array.from({ length: 400 }, () => unique('losing'));
    const guards = await Promise.all(
      names.map((name) => client.lock(name, { lease: 150, renew: false }).acquire()),
    );
    const followed = guards.map(({ signal, endangered }) => ({ signal, endangered }));
    await Promise.all(followed.map(({ signal }) => signal.aborted || once(signal, 'abort')));
    await Promise.all(followed.map(({ endangered }) => endangered.aborted || once(endangered, 'abort')));
  }
  await client.close();
});
