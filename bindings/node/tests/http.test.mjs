// The handler for requests with a key, behind a real server.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { describe, test } from 'node:test';

import { connect, idempotencyHandler } from 'polylatch';

import { stores, unique } from './stores.mjs';

/** A server that reads bodies, as a parser in Express does, and makes an order for each request that gets so far. */
async function shop(client, options, answer) {
  let orders = 0;
  const handler = idempotencyHandler(client, { caller: (request) => request.headers.user, ...options });
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    request.body = Buffer.concat(chunks);
    handler(request, response, (error) => {
      if (error !== undefined) {
        response.statusCode = 500;
        response.end(error.message);
        return;
      }
      orders += 1;
      answer(response, orders);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const post = async (
    key,
    { user = unique.user, body = 'order', path = '/orders', method = 'POST' } = {},
  ) => {
    const headers = { user, ...(key === undefined ? {} : { 'Idempotency-Key': key }) };
    const url = `http://127.0.0.1:${server.address().port}${path}`;
    const got = await fetch(url, { method, headers, ...(method === 'GET' ? {} : { body }) });
    return {
      status: got.status,
      replayed: got.headers.get('idempotency-replayed'),
      order: got.headers.get('x-order'),
      cookie: got.headers.get('set-cookie'),
      retryAfter: got.headers.get('retry-after'),
      body: await got.text(),
    };
  };
  return { post, made: () => orders, close: () => server.close() };
}

function plain(response, order) {
  response.writeHead(201, { 'x-order': order, 'set-cookie': 'a=b' });
  response.write('order ');
  response.end(String(order));
}

for (const [store, url] of await stores()) {
  describe(store, () => {
    const one = async (options, answer, work) => {
      const client = await connect(url);
      const served = await shop(client, options, answer);
      unique.user = unique('user');
      try {
        await work(served);
      } finally {
        served.close();
        await client.close();
      }
    };

    test('a repeated request gets the stored response, and other callers do not', () =>
      one({}, plain, async ({ post, made }) => {
        const first = await post('k');
        assert.deepEqual(
          [first.status, first.body, first.order, first.cookie, first.replayed],
          [201, 'order 1', '1', 'a=b', null],
        );
        const again = await post('"k"');
        assert.deepEqual(
          [again.status, again.body, again.order, again.cookie, again.replayed],
          [201, 'order 1', '1', null, 'true'],
        );
        assert.equal((await post('k', { user: unique('other') })).body, 'order 2');
        assert.equal((await post('l')).body, 'order 3');
        assert.equal((await post()).body, 'order 4');
        assert.equal((await post('k', { method: 'GET' })).body, 'order 5');
        assert.equal(made(), 5);
      }));

    test('bad keys and other requests are refused', () =>
      one({ required: true }, plain, async ({ post, made }) => {
        assert.equal((await post()).status, 400);
        assert.equal((await post('x'.repeat(256))).status, 400);
        assert.equal((await post('k')).status, 201);
        for (const other of [{ body: 'other' }, { path: '/refunds' }, { method: 'PATCH' }]) {
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
      const answer = (response, order) => entered(() => plain(response, order));
      return one({}, answer, async ({ post, made }) => {
        const first = post('k');
        const end = await working;
        const refused = await post('k');
        assert.deepEqual([refused.status, refused.retryAfter], [409, '1']);
        end();
        assert.equal((await first).body, 'order 1');
        assert.equal((await post('k')).replayed, 'true');
        assert.equal(made(), 1);
      });
    });

    test('a server error is not stored, and what fails before an answer neither', () => {
      const answer = (response, order) => {
        if (order === 1) response.writeHead(503).end('down');
        else if (order === 2) throw new Error('broken');
        else if (order === 3) response.writeHead(404).end('unknown');
      };
      return one({}, answer, async ({ post, made }) => {
        assert.deepEqual([(await post('k')).status, (await post('k')).body], [503, 'broken']);
        assert.equal((await post('k')).status, 404);
        assert.deepEqual(await post('k').then(({ status, replayed }) => [status, replayed]), [404, 'true']);
        assert.equal(made(), 3);
      });
    });

    test('a server error is stored by choice', () =>
      one(
        { storeServerErrors: true },
        (response) => response.writeHead(503).end('down'),
        async ({ post, made }) => {
          assert.deepEqual([(await post('k')).status, (await post('k')).status], [503, 503]);
          assert.equal(made(), 1);
        },
      ));

    test('a response that is too large is sent once and not made again', () =>
      one(
        {},
        (response) => response.end(Buffer.alloc(1 << 20)),
        async ({ post, made }) => {
          assert.equal((await post('k')).body.length, 1 << 20);
          assert.equal((await post('k')).status, 409);
          assert.equal(made(), 1);
        },
      ));
  });
}

test('the handler needs to know the caller', () => {
  assert.throws(() => idempotencyHandler(undefined, {}), /caller must be a function/);
  assert.throws(
    () => idempotencyHandler(undefined, { caller: () => 'a', ttl: 1 }),
    /there is no option "ttl"/,
  );
});
