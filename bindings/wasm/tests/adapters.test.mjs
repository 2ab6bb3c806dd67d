// The connections that are made of other programs' clients, over stand-ins with the same calls.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { connect, httpRedisConnection, ioredisConnection, nodeRedisConnection } from 'polylatch-wasm';

import { eventually, unique } from './node-stores.mjs';
import { respConnection } from './resp.mjs';
import { stores } from './stores.mjs';

const [, [, url]] = await stores();
const { hostname: host, port } = new URL(url);
const dial = () => respConnection(host, Number(port));
const watcher = await connect({ redis: dial() });
after(() => watcher.close());

/** Counts the second connections that are open. */
function counted() {
  const count = { open: 0, refuses: false };
  const listen = async (channel, listener) => {
    if (count.refuses) throw new Error('NOPERM this user may not listen');
    count.end = await dial().subscribe(channel, listener);
  };
  const end = () => {
    count.open -= 1;
    count.end?.();
  };
  return { count, listen, end };
}

/** What `ioredis` has of this. */
function ioredis() {
  const { count, listen, end } = counted();
  const redis = dial();
  const client = {
    call: (verb, ...args) => redis.command([verb, ...args]),
    duplicate() {
      count.open += 1;
      let tell;
      return {
        on(event, listener) {
          if (event === 'message') tell = listener;
        },
        subscribe: (channel) => listen(channel, (message) => tell(channel, message)),
        disconnect: end,
      };
    },
  };
  return { count, connection: ioredisConnection(client) };
}

/** What the package `redis` has of this; what ends a connection has had two names. */
function nodeRedis(ends) {
  const { count, listen, end } = counted();
  const redis = dial();
  const client = {
    sendCommand: (args) => redis.command(args),
    duplicate: () => ({
      on() {},
      async connect() {
        count.open += 1;
      },
      subscribe: listen,
      [ends]: end,
    }),
  };
  return { count, connection: nodeRedisConnection(client) };
}

const clients = [
  ['ioredis', ioredis],
  ['redis', () => nodeRedis('destroy')],
  ['redis, before version 5', () => nodeRedis('disconnect')],
];

for (const [what, made] of clients) {
  describe(what, () => {
    test('takes locks and hears pushes, and its second connection ends with the client', async () => {
      const name = unique('adapted');
      const { count, connection } = made();
      const client = await connect({ redis: connection, poll: 5_000, provisional: 11_000, lease: 30_000 });
      const held = await watcher.lock(name).acquire();
      const waiting = client.lock(name, { wait: 20_000 }).acquire();
      await eventually(
        'it waits',
        async () => (await watcher.inspect({ name })).locks[0].waiters.length === 1,
      );
      await eventually('it listens', () => count.open === 1 && count.end !== undefined);
      const before = performance.now();
      await held.release();
      await (await waiting).release();
      assert.ok(performance.now() - before < 3_000, 'the push came, not the next poll');
      await client.close();
      assert.equal(count.open, 0);
    });

    test('keeps no second connection that may not listen', async () => {
      const { count, connection } = made();
      count.refuses = true;
      await assert.rejects(
        connection.subscribe('a', () => {}),
        /NOPERM/,
      );
      assert.equal(count.open, 0);
    });
  });
}

describe('an HTTP proxy', () => {
  const redis = dial();
  const proxied = async (init) => {
    try {
      return Response.json({ result: await redis.command(JSON.parse(init.body)), error: null });
    } catch (error) {
      return Response.json({ error: error.message });
    }
  };

  test('carries commands and refusals', async () => {
    const headers = [];
    const connection = httpRedisConnection('http://proxy.example', {
      token: 'hush',
      fetch: (_, init) => {
        headers.push(init.headers.Authorization);
        return proxied(init);
      },
    });
    const client = await connect({ redis: connection, poll: 100 });
    const guard = await client.lock(unique('proxied')).acquire();
    await guard.release();
    await client.close();
    assert.deepEqual([...new Set(headers)], ['Bearer hush']);
    await assert.rejects(connection.command(['NOPE']), /^Error: ERR /);
  });

  test('that leaves a command without an answer is asked again after a while', async () => {
    let hangs = true;
    const connection = httpRedisConnection('http://proxy.example', {
      timeout: 200,
      fetch: (_, init) => {
        if (!hangs) return proxied(init);
        hangs = false;
        return new Promise((_, reject) => {
          init.signal.addEventListener('abort', () => reject(init.signal.reason));
        });
      },
    });
    // Nothing else keeps the process alive: the timer of a signal does not.
    const alive = setTimeout(() => {}, 20_000);
    const [first, second] = await Promise.allSettled([
      connection.command(['PING']),
      connection.command(['PING']),
    ]);
    clearTimeout(alive);
    assert.equal(first.reason?.name, 'TimeoutError');
    assert.equal(second.value, 'PONG');
  });
});
