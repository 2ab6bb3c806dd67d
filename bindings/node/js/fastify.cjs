'use strict';
// Requests with a key, as a plugin of Fastify.

const { Readable } = require('node:stream');

const { KeyedRequests, refusalOf, replayOf } = require('./requests.cjs');
const { mustBeObject } = require('./options.js');

/** @typedef {import('./requests.cjs').Stored} Stored */

/**
 * @param {any} instance
 * @param {unknown} given
 */
async function idempotencyPlugin(instance, given) {
  const { client, ...options } = mustBeObject('options', given);
  const requests = new KeyedRequests(client, options);
  /**
   * Requests that are being handled under their keys: how to store the response of each, and when it is stored.
   * @type {WeakMap<object, { respond: (stored: Promise<Stored>) => void, over: Promise<unknown> }>}
   */
  const handled = new WeakMap();

  // Behind what parses and validates bodies.
  instance.addHook('preHandler', async (/** @type {any} */ request, /** @type {any} */ reply) => {
    try {
      const once = await requests.keyed(request);
      if (once === undefined) return undefined;
      const replay = await new Promise((resolve, reject) => {
        // The store is asked first, so `over` has its value when the work begins.
        const over = once(
          () =>
            new Promise((respond) => {
              handled.set(request, { respond, over });
              resolve(undefined);
            }),
        );
        over.then(({ value, replayed }) => replayed && resolve(replayOf(value)), reject);
      });
      return replay === undefined ? undefined : send(reply, replay);
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal === undefined) throw error;
      return send(reply, refusal);
    }
  });

  // Its response is kept back until it is stored: a client that got a response and repeats the request gets the same one.
  instance.addHook(
    'onSend',
    async (/** @type {any} */ request, /** @type {any} */ reply, /** @type {any} */ payload) => {
      const entry = handled.get(request);
      if (entry === undefined) return payload;
      handled.delete(request);
      const whole = bodyOf(reply, payload);
      entry.respond(whole.then((body) => requests.stored(reply.statusCode, reply.getHeaders(), body)));
      // A response that could not be stored is sent all the same: the work is done.
      await entry.over.catch(() => {});
      const body = await whole;
      return payload === undefined || payload === null ? payload : body;
    },
  );
}

/**
 * The whole body of a response, whatever a handler may send.
 * @param {any} reply
 * @param {any} payload
 * @returns {Promise<Buffer>}
 */
async function bodyOf(reply, payload) {
  if (payload === undefined || payload === null) return Buffer.alloc(0);
  if (typeof payload === 'string' || payload instanceof Uint8Array) return Buffer.from(payload);
  if (Object.prototype.toString.call(payload) !== '[object Response]') return read(payload);
  reply.code(payload.status);
  for (const [name, value] of payload.headers) reply.header(name, value);
  return payload.body === null ? Buffer.alloc(0) : read(payload.body);
}

/** @param {AsyncIterable<any>} stream of Node or of the web */
async function read(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

/** @param {any} reply @param {import('./requests.cjs').Answer} answer */
function send(reply, { status, headers, body }) {
  reply.code(status);
  for (const [name, value] of headers) reply.header(name, value);
  if (body.length === 0) return reply.send();
  if (reply.hasHeader('content-type')) return reply.send(body);
  // Fastify adds a type to bytes, and none to a stream.
  return reply.header('content-length', body.length).send(Readable.from([body]));
}

// Its hooks are those of the instance that registers it, not of one below.
Object.assign(idempotencyPlugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'polylatch-idempotency',
  [Symbol.for('plugin-meta')]: { name: 'polylatch-idempotency', fastify: '>=5' },
});

module.exports = { idempotencyPlugin };
