// Connections that the program brings along, good ones and bad ones.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, describe, test } from 'node:test';

import { BackendRejectedError, BackendUnavailableError, connect, InvalidConfigError } from 'polylatch-wasm';

import { eventually, unique } from './node-stores.mjs';
import { respConnection } from './resp.mjs';
import { stores } from './stores.mjs';

const [, [, url]] = await stores();
const { hostname: host, port } = new URL(url);
const dial = () => respConnection(host, Number(port));
const watcher = await connect({ redis: dial() });
after(() => watcher.close());

/** A promise to be resolved from outside. */
function deferred() {
  let resolve;
  const promise = new Promise((how) => {
    resolve = how;
  });
  return { promise, resolve };
}

/** Nobody holds the lock or stands in line for it. */
async function nothingLeft(name) {
  await eventually(`nothing is left of ${name}`, async () => {
    const [view] = (await watcher.inspect({ name })).locks;
    return view.holders.length === 0 && view.waiters.length === 0;
  });
}

describe('a host’s connection', () => {
  test('is enough without a URL, and hears pushes', async () => {
    const name = unique('push');
    const slow = { poll: 5_000, provisional: 11_000, lease: 30_000 };
    const one = await connect({ redis: dial(), ...slow });
    const other = await connect({ redis: dial(), ...slow });
    const held = await one.lock(name).acquire();
    const waiting = other.lock(name, { wait: 20_000 }).acquire();
    await eventually('it waits', async () => (await one.inspect({ name })).locks[0].waiters.length === 1);
    const before = performance.now();
    await held.release();
    const next = await waiting;
    assert.ok(performance.now() - before < 3_000, 'the push came, not the next poll');
    assert.ok(next.fencingToken > held.fencingToken);
    await next.release();
    await Promise.all([one.close(), other.close()]);
  });

  test('without subscribe, waiters ask at intervals', async () => {
    const name = unique('no-push');
    const { command } = dial();
    const client = await connect({ redis: { command }, poll: 100 });
    const held = await watcher.lock(name).acquire();
    const waiting = client.lock(name, { wait: 20_000 }).acquire();
    await eventually('it waits', async () => (await watcher.inspect({ name })).locks[0].waiters.length === 1);
    await held.release();
    await (await waiting).release();
    await client.close();
  });

  for (const [when, before] of [
    ['before the client is closed', true],
    ['after it', false],
  ]) {
    test(`that confirms a subscription late is told to end it all the same: ${when}`, async () => {
      const name = unique('late');
      const redis = dial();
      const late = deferred();
      let ended = 0;
      let asked = false;
      const connection = {
        ...redis,
        async subscribe() {
          asked = true;
          await late.promise;
          return () => {
            ended += 1;
          };
        },
      };
      const client = await connect({ redis: connection, timeout: 200, poll: 100 });
      const held = await watcher.lock(name).acquire();
      // Long enough that the client has given up what was not confirmed.
      await assert.rejects(client.lock(name, { wait: 800 }).acquire(), { code: 'wait_timeout' });
      assert.ok(asked);
      await held.release();
      if (before) late.resolve();
      await client.close();
      late.resolve();
      await eventually('it is ended', () => ended === 1);
    });
  }

  test('that loses its connection loses no lock', async () => {
    const name = unique('cut');
    const redis = dial();
    const client = await connect({ redis });
    const guard = await client.lock(name, { lease: 1_500 }).acquire();
    redis.cut();
    const renewals = guard.renewals;
    await eventually('it is renewed again', () => guard.renewals > renewals + 1);
    guard.check();
    await guard.release();
    await client.close();
  });

  test('answers numbers, bigints and bytes as clients do', async () => {
    const redis = dial();
    const asBytes = (reply) => {
      if (typeof reply === 'string') return new TextEncoder().encode(reply);
      if (typeof reply === 'number') return BigInt(reply);
      return Array.isArray(reply) ? reply.map(asBytes) : reply;
    };
    const client = await connect({
      redis: { command: async (args) => asBytes(await redis.command(args)) },
    });
    const guard = await client.lock(unique('bytes')).acquire();
    await guard.release();
    await client.close();
  });
});

/** A connection that works, until it is told to fail in its own way. */
function failing(how) {
  const redis = dial();
  const state = { fails: false, redis };
  state.connection = {
    ...redis,
    command: (args) => (state.fails ? how(args, redis) : redis.command(args)),
  };
  return state;
}

const failures = [
  [
    'throws',
    () => {
      throw new Error('out of order');
    },
    BackendUnavailableError,
    /connection failed/,
  ],
  ['rejects', () => Promise.reject(new Error('out of order')), BackendUnavailableError, /connection failed/],
  ['throws no error', () => Promise.reject('no'), BackendUnavailableError, /connection failed/],
  ['never answers', () => new Promise(() => {}), BackendUnavailableError, /did not answer within/],
  ['answers an object', () => ({ held: true }), BackendRejectedError, /answered with an object/],
  ['answers undefined', () => undefined, BackendRejectedError, /answered with undefined/],
  ['answers a broken number', () => 1.5, BackendRejectedError, /answered with a number/],
  [
    'does what it is told and answers nonsense',
    async (args, redis) => {
      await redis.command(args);
      return { nonsense: true };
    },
    BackendRejectedError,
    /answered with an object/,
  ],
  [
    'does what it is told and answers nothing',
    async (args, redis) => {
      await redis.command(args);
      return new Promise(() => {});
    },
    BackendUnavailableError,
    /did not answer within/,
  ],
];

for (const [what, how, kind, message] of failures) {
  describe(`a connection that ${what}`, () => {
    test('fails to connect with an error that says so', () =>
      assert.rejects(connect({ redis: { command: (args) => how(args, dial()) }, timeout: 300 }), (error) => {
        assert.ok(error instanceof kind, String(error));
        assert.equal(error.context.backend, 'redis');
        return true;
      }));

    test('fails an acquisition with a typed error, and leaves no lock', async () => {
      const name = unique('failing');
      const state = failing(how);
      const client = await connect({ redis: state.connection, timeout: 300 });
      state.fails = true;
      await assert.rejects(client.lock(name).tryAcquire(), (error) => {
        assert.ok(error instanceof kind, String(error));
        assert.match(error.message, message);
        assert.ok(['none', 'maybe'].includes(error.effect));
        return true;
      });
      state.fails = false;
      await nothingLeft(name);
      await client.close();
    });

    test('loses a held lock in time, and says so', async () => {
      const name = unique('losing');
      const state = failing(how);
      const client = await connect({ redis: state.connection, timeout: 300 });
      const guard = await client.lock(name, { lease: 900 }).acquire();
      const lost = new Promise((resolve) => {
        guard.signal.addEventListener('abort', () => resolve(guard.signal.reason));
      });
      state.fails = true;
      // One that carries out renewals and cannot say so still counts as one that does not renew.
      assert.equal((await lost).code, 'lease_lost');
      assert.throws(() => guard.check(), { code: 'lease_lost', reason: 'expired' });
      assert.ok(!guard.isHeld);
      state.fails = false;
      await nothingLeft(name);
      await client.close();
    });
  });
}

test('an agent that points elsewhere does not get the token sent there', async () => {
  const asked = [];
  const serve = async (answer) => {
    const server = createServer((request, response) => {
      asked.push(request.url);
      answer(response);
      response.end();
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return server;
  };
  const other = await serve((response) => response.writeHead(404, { 'X-Consul-Index': '1' }));
  const there = `http://127.0.0.1:${other.address().port}/there`;
  const agent = await serve((response) => response.writeHead(307, { Location: there }));
  const agentUrl = `consul://127.0.0.1:${agent.address().port}`;
  await assert.rejects(connect(agentUrl, { token: 'hush', timeout: 5_000 }), {
    code: 'backend_unavailable',
    message: /status 307/,
  });
  assert.ok(asked.length > 0 && !asked.includes('/there'), String(asked));
  for (const server of [agent, other]) server.close().closeAllConnections();
});

describe('what is wrong with a connection is told before anything is sent', () => {
  const wrong = [
    ['no connection', () => connect('redis://localhost'), InvalidConfigError, /give its client as `redis`/],
    ['no command', () => connect({ redis: {} }), TypeError, /function command/],
    ['a text', () => connect({ redis: 'localhost' }), TypeError, /redis must be an object/],
    [
      'a subscribe that is none',
      () => connect({ redis: { ...dial(), subscribe: 1 } }),
      TypeError,
      /subscribe/,
    ],
    ['nothing at all', () => connect(), TypeError, /connect needs a URL/],
    ['options twice', () => connect({ url: 'memory:' }, {}), TypeError, /or options alone/],
    ['no store', () => connect({ program: 'a' }), TypeError, /needs a url/],
    [
      'a password in the URL',
      () => connect('redis://:hush@localhost', { redis: dial() }),
      InvalidConfigError,
      /belong to the connection/,
    ],
    [
      'replicas to wait for',
      () => connect({ redis: dial(), ack: 'any' }),
      InvalidConfigError,
      /ack= holds up/,
    ],
    ['a store of files', () => connect('sqlite:a.db'), InvalidConfigError, /scheme "sqlite" is unknown/],
    ['several nodes', () => connect('redlock://a,b,c'), InvalidConfigError, /unknown/],
  ];
  for (const [what, work, kind, message] of wrong) {
    test(what, () =>
      assert.rejects(work(), (error) => {
        assert.ok(error instanceof kind, String(error));
        assert.match(error.message, message);
        assert.doesNotMatch(String(error.stack), /hush/);
        return true;
      }),
    );
  }
});
