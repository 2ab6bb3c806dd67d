// Requests with a key in Express, Fastify and Nest: the same rules in each, and what each has of its own.

import 'reflect-metadata';

import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Controller, Module, Patch, Post, Res } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import express from 'express';
import Fastify from 'fastify';

import { connect, idempotencyHandler, idempotencyPlugin } from 'polylatch';
import { unique } from './stores.mjs';

const caller = (request) => request.headers.user;

/** Each serves `/orders` and `/refunds` with what `answer` returns or throws, and returns its port and how to end it. */
const frameworks = {
  async express(client, options, answer) {
    const app = express();
    app.use(express.json());
    app.use(idempotencyHandler(client, { caller, ...options }));
    app.all(['/orders', '/refunds'], async (_, response) => {
      const { status, headers, body } = await answer();
      response.status(status).set(headers).send(body);
    });
    app.use((_error, _request, response, _next) => response.status(500).send('broken'));
    const server = app.listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    return { port: server.address().port, close: () => server.close() };
  },

  async fastify(client, options, answer) {
    const app = Fastify();
    await app.register(idempotencyPlugin, { client, caller, ...options });
    for (const url of ['/orders', '/refunds']) {
      app.route({
        method: ['POST', 'PATCH', 'GET'],
        url,
        handler: async (_, reply) => {
          const { status, headers, body } = await answer();
          return reply.code(status).headers(headers).send(body);
        },
      });
    }
    await app.listen({ port: 0, host: '127.0.0.1' });
    return { port: app.server.address().port, close: () => app.close() };
  },

  async 'nest on express'(client, options, answer) {
    const Orders = controller(answer);
    class Shop {
      configure(consumer) {
        consumer.apply(idempotencyHandler(client, { caller, ...options })).forRoutes(Orders);
      }
    }
    Module({ controllers: [Orders] })(Shop);
    const app = await NestFactory.create(Shop, { logger: false });
    await app.listen(0, '127.0.0.1');
    return { port: app.getHttpServer().address().port, close: () => app.close() };
  },

  async 'nest on fastify'(client, options, answer) {
    class Shop {}
    Module({ controllers: [controller(answer)] })(Shop);
    const app = await NestFactory.create(Shop, new FastifyAdapter(), { logger: false });
    await app.register(idempotencyPlugin, { client, caller, ...options });
    await app.listen(0, '127.0.0.1');
    return { port: app.getHttpServer().address().port, close: () => app.close() };
  },
};

/** What TypeScript makes of a controller with decorators. */
function controller(answer) {
  class Orders {
    async order(response) {
      const { status, headers, body } = await answer();
      response.status(status);
      for (const [name, value] of Object.entries(headers)) response.header(name, value);
      return body;
    }

    refund(response) {
      return this.order(response);
    }

    change(response) {
      return this.order(response);
    }
  }
  for (const [name, decorate] of Object.entries({
    order: Post('orders'),
    refund: Post('refunds'),
    change: Patch('orders'),
  })) {
    decorate(Orders.prototype, name, Object.getOwnPropertyDescriptor(Orders.prototype, name));
    Res({ passthrough: true })(Orders.prototype, name, 0);
  }
  Controller()(Orders);
  return Orders;
}

const made = (order) => ({
  status: 201,
  headers: { 'x-order': order, 'set-cookie': 'a=b' },
  body: { order },
});

for (const [name, serve] of Object.entries(frameworks)) {
  describe(name, () => {
    /** A server of its own, and how a request is sent to it. */
    const shop = async (options, answer, work, seenAs = (client) => client) => {
      const client = await connect(`memory:${unique('frameworks')}`);
      let orders = 0;
      const served = await serve(seenAs(client), options, async () => {
        orders += 1;
        return answer(orders);
      });
      const post = async (
        key,
        { user = 'user', body = { item: 'book' }, path = '/orders', method = 'POST' } = {},
      ) => {
        const headers = { user, 'content-type': 'application/json' };
        if (key !== undefined) headers['Idempotency-Key'] = key;
        const text = typeof body === 'string' ? body : JSON.stringify(body);
        const got = await fetch(`http://127.0.0.1:${served.port}${path}`, { method, headers, body: text });
        return {
          status: got.status,
          replayed: got.headers.get('idempotency-replayed'),
          order: got.headers.get('x-order'),
          type: got.headers.get('content-type'),
          cookie: got.headers.get('set-cookie'),
          retryAfter: got.headers.get('retry-after'),
          body: await got.text(),
        };
      };
      try {
        await work({ post, made: () => orders });
      } finally {
        await served.close();
        await client.close();
      }
    };

    test('a repeated request gets the stored response, and other callers do not', () =>
      shop({}, made, async ({ post, made }) => {
        const first = await post('k');
        assert.deepEqual(
          [first.status, first.body, first.order, first.cookie, first.replayed],
          [201, '{"order":1}', '1', 'a=b', null],
        );
        const again = await post('"k"');
        assert.deepEqual(
          [again.status, again.body, again.order, again.cookie, again.replayed, again.type],
          [201, '{"order":1}', '1', null, 'true', first.type],
        );
        assert.equal((await post('k', { user: 'other' })).body, '{"order":2}');
        assert.equal((await post('l')).body, '{"order":3}');
        assert.equal((await post()).body, '{"order":4}');
        assert.equal(made(), 4);
      }));

    test('a response is sent once it is stored', () => {
      let store;
      const stored = new Promise((resolve) => {
        store = resolve;
      });
      let end;
      const ending = new Promise((resolve) => {
        end = resolve;
      });
      // Its store takes its time.
      const slow = (client) => ({
        idempotency: (scope) => ({
          async run(...given) {
            const outcome = await client.idempotency(scope).run(...given);
            store();
            await ending;
            return outcome;
          },
        }),
      });
      const work = async ({ post }) => {
        const response = post('k');
        await stored;
        assert.equal(await Promise.race([response, sleep(200)]), undefined);
        end();
        assert.equal((await response).status, 201);
      };
      return shop({}, made, work, slow);
    });

    test('the parsed body is compared, whatever the order of its keys', () =>
      shop({}, made, async ({ post, made }) => {
        assert.equal((await post('k', { body: '{"a": 1, "b": [{"c": 2, "d": 3}]}' })).status, 201);
        assert.equal((await post('k', { body: '{"b":[{"d":3,"c":2}],"a":1}' })).replayed, 'true');
        assert.equal((await post('k', { body: '{"b":[{"d":3,"c":2}],"a":2}' })).status, 422);
        assert.equal(made(), 1);
      }));

    test('bad keys and other requests are refused', () =>
      shop({ required: true }, made, async ({ post, made }) => {
        for (const key of [undefined, 'x'.repeat(256)]) {
          const refused = await post(key);
          assert.deepEqual([refused.status, refused.type], [400, 'application/problem+json']);
          assert.equal(JSON.parse(refused.body).status, 400);
        }
        assert.equal((await post('k')).status, 201);
        for (const other of [{ body: { item: 'pen' } }, { path: '/refunds' }, { method: 'PATCH' }]) {
          const refused = await post('k', other);
          assert.equal(refused.status, 422);
          assert.match(refused.body, /another payload/);
        }
        assert.equal(made(), 1);
      }));

    test('a request in progress is 409', () => {
      let entered;
      const working = new Promise((resolve) => {
        entered = resolve;
      });
      const answer = (order) => new Promise((resolve) => entered(() => resolve(made(order))));
      return shop({}, answer, async ({ post, made }) => {
        const first = post('k');
        const end = await working;
        const refused = await post('k');
        assert.deepEqual([refused.status, refused.retryAfter], [409, '1']);
        end();
        assert.equal((await first).body, '{"order":1}');
        assert.equal((await post('k')).replayed, 'true');
        assert.equal(made(), 1);
      });
    });

    test('a server error is not stored, and what is thrown neither', () => {
      const answer = (order) => {
        if (order === 1) return { status: 503, headers: {}, body: { down: true } };
        if (order === 2) throw new Error('broken');
        return { status: 404, headers: {}, body: { unknown: true } };
      };
      return shop({}, answer, async ({ post, made }) => {
        assert.deepEqual([(await post('k')).status, (await post('k')).status], [503, 500]);
        assert.deepEqual([(await post('k')).status, (await post('k')).replayed], [404, 'true']);
        assert.equal(made(), 3);
      });
    });

    test('a server error is stored by choice', () => {
      const answer = () => ({ status: 503, headers: {}, body: { down: true } });
      return shop({ storeServerErrors: true }, answer, async ({ post, made }) => {
        assert.deepEqual([(await post('k')).status, (await post('k')).status], [503, 503]);
        assert.equal(made(), 1);
      });
    });

    test('a response that is too large is sent once and not made again', () => {
      const answer = () => ({ status: 200, headers: {}, body: { text: 'x'.repeat(1 << 20) } });
      return shop({}, answer, async ({ post, made }) => {
        assert.equal((await post('k')).body.length, (1 << 20) + '{"text":""}'.length);
        assert.equal((await post('k')).status, 409);
        assert.equal(made(), 1);
      });
    });
  });
}

describe('fastify, of its own', () => {
  /** An app with the plugin, whose route `/orders` has the handler. */
  const within = async (handler, work, { schema, before = () => {}, behind = () => {} } = {}) => {
    const client = await connect(`memory:${unique('fastify')}`);
    const app = Fastify();
    try {
      before(app);
      await app.register(idempotencyPlugin, { client, caller });
      behind(app);
      app.post('/orders', { schema }, handler);
      const order = (payload = { item: 'book' }) =>
        app.inject({
          method: 'POST',
          url: '/orders',
          headers: { user: 'user', 'idempotency-key': 'k' },
          payload,
        });
      await work(order, app);
    } finally {
      await app.close();
      await client.close();
    }
  };

  const chunks = ['order ', '1 ü'];
  for (const [what, send, status, body] of [
    ['a stream', (reply) => reply.send(Readable.from(chunks)), 200, 'order 1 ü'],
    [
      'a web stream',
      (reply) => reply.send(Readable.toWeb(Readable.from(chunks.map(Buffer.from)))),
      200,
      'order 1 ü',
    ],
    [
      'a response',
      () => new Response('order 1 ü', { status: 202, headers: { 'x-order': '1' } }),
      202,
      'order 1 ü',
    ],
    ['bytes', (reply) => reply.send(Uint8Array.of(104, 105)), 200, 'hi'],
    ['nothing', (reply) => reply.code(204).send(), 204, ''],
    ['an empty text', (reply) => reply.send(''), 200, ''],
  ]) {
    test(`${what} is stored and replayed`, () => {
      let orders = 0;
      const handler = (_, reply) => {
        orders += 1;
        return send(reply);
      };
      return within(handler, async (order) => {
        const [first, again] = [await order(), await order()];
        assert.deepEqual([first.statusCode, first.body], [status, body]);
        assert.deepEqual([again.statusCode, again.body], [status, body]);
        assert.equal(again.headers['x-order'], first.headers['x-order']);
        assert.equal(again.headers['content-type'], first.headers['content-type']);
        assert.deepEqual(
          [first, again].map(({ headers }) => headers['idempotency-replayed']),
          [undefined, 'true'],
        );
        assert.equal(orders, 1);
      });
    });
  }

  test('a stream that fails frees the key', () => {
    let orders = 0;
    const handler = async () => {
      orders += 1;
      if (orders > 1) return 'done';
      return new Readable({
        read() {
          this.destroy(new Error('broken'));
        },
      });
    };
    return within(handler, async (order) => {
      assert.equal((await order()).statusCode, 500);
      assert.deepEqual(
        [(await order()).body, (await order()).headers['idempotency-replayed']],
        ['done', 'true'],
      );
    });
  });

  test('hooks behind the plugin see first responses and replays alike', () => {
    const seen = [];
    const behind = (app) =>
      app.addHook('onSend', async (_, reply, payload) => {
        seen.push(String(payload));
        reply.header('x-behind', 'yes');
      });
    return within(
      async () => ({ order: 1 }),
      async (order) => {
        for (const _ of [1, 2]) assert.equal((await order()).headers['x-behind'], 'yes');
        assert.deepEqual(seen, ['{"order":1}', '{"order":1}']);
      },
      { behind },
    );
  });

  test('a request that the schema refuses has no record', () => {
    const schema = { body: { type: 'object', properties: { item: { type: 'string' } }, required: ['item'] } };
    return within(
      async () => ({ order: 1 }),
      async (order) => {
        assert.equal((await order({ items: [] })).statusCode, 400);
        assert.equal((await order()).statusCode, 200);
        assert.equal((await order()).headers['idempotency-replayed'], 'true');
      },
      { schema },
    );
  });

  test('it applies to the routes of the instance that registers it', async () => {
    const client = await connect(`memory:${unique('fastify')}`);
    const app = Fastify();
    let orders = 0;
    const handler = async () => {
      orders += 1;
      return { orders };
    };
    await app.register(async (part) => {
      await part.register(idempotencyPlugin, { client, caller });
      part.post('/keyed', handler);
    });
    app.post('/others', handler);
    const headers = { user: 'user', 'idempotency-key': 'k' };
    const bodies = [];
    for (const url of ['/keyed', '/keyed', '/others', '/others']) {
      bodies.push((await app.inject({ method: 'POST', url, headers })).json().orders);
    }
    assert.deepEqual(bodies, [1, 1, 2, 3]);
    await app.close();
    await client.close();
  });

  test('what it does not know is an error when the server gets ready', async () => {
    const client = await connect(`memory:${unique('fastify')}`);
    for (const [options, message] of [
      [{ client }, /caller must be a function/],
      [{ client, caller, ttl: 1 }, /there is no option "ttl"/],
      [{ caller }, /client must be a client of Polylatch, as connect\(\) returns it/],
    ]) {
      const app = Fastify();
      app.register(idempotencyPlugin, options);
      await assert.rejects(async () => app.ready(), message);
    }
    await client.close();
  });
});
