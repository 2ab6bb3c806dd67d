'use strict';
// Requests with a key, for Express and whatever calls handlers with (request, response, next).

const { KeyedRequests, refusalOf, replayOf } = require('./requests.cjs');

/**
 * @param {import('./recording_client.js').Client} client
 * @param {unknown} given
 */
function idempotencyHandler(client, given) {
  const requests = new KeyedRequests(client, given);

  /**
   * @param {any} request
   * @param {any} response
   * @param {(error?: unknown) => void} next
   */
  async function handle(request, response, next) {
    const once = await requests.keyed(request);
    if (once === undefined) return next();
    const { value, replayed } = await once(() => answered(requests, response, next));
    if (replayed) send(response, replayOf(value));
  }

  return (/** @type {any} */ request, /** @type {any} */ response, /** @type {any} */ next) => {
    handle(request, response, next).then(
      () => response[SEND]?.(),
      (error) => {
        if (response[SEND] !== undefined) return response[SEND]();
        const refusal = refusalOf(error);
        if (refusal === undefined) return next(error);
        send(response, refusal);
      },
    );
  };
}

/** Sends what was kept back. */
const SEND = Symbol('send');

/**
 * Has the request handled, and keeps its response back until it is stored: a client that got a response and repeats the
 * request gets the same one.
 * @param {KeyedRequests} requests
 * @param {any} response
 * @param {() => void} next
 * @returns {Promise<import('./requests.cjs').Stored>}
 */
function answered(requests, response, next) {
  return new Promise((resolve, reject) => {
    /** @type {Buffer[]} */
    const chunks = [];
    const { end } = response;
    /** @param {any} chunk @param {any} encoding */
    const keep = (chunk, encoding) => {
      if (chunk === undefined || chunk === null || typeof chunk === 'function') return;
      chunks.push(typeof chunk === 'string' ? Buffer.from(chunk, encodingOf(encoding)) : Buffer.from(chunk));
    };
    /** @param {any[]} given */
    const called = (given) => {
      const callback = given.find((one) => typeof one === 'function');
      if (callback !== undefined) queueMicrotask(callback);
    };
    response.flushHeaders = () => {};
    response.writeHead = (/** @type {number} */ status, /** @type {any[]} */ ...rest) => {
      response.statusCode = status;
      if (typeof rest[0] === 'string') response.statusMessage = rest.shift();
      for (const [name, value] of headerPairs(rest[0])) response.setHeader(name, value);
      return response;
    };
    response.write = (/** @type {any} */ chunk, /** @type {any[]} */ ...rest) => {
      keep(chunk, rest[0]);
      called(rest);
      return true;
    };
    response.end = (/** @type {any[]} */ ...given) => {
      keep(given[0], given[1]);
      restore(response);
      const body = Buffer.concat(chunks);
      response[SEND] = () => {
        delete response[SEND];
        end.call(response, body, ...given.filter((one) => typeof one === 'function'));
      };
      try {
        resolve(requests.stored(response.statusCode, response.getHeaders(), body));
      } catch (error) {
        reject(error);
      }
      return response;
    };
    try {
      next();
    } catch (error) {
      restore(response);
      reject(error);
    }
  });
}

/** @param {any} response */
function restore(response) {
  for (const name of ['flushHeaders', 'writeHead', 'write', 'end']) delete response[name];
}

/** @param {unknown} given @returns {BufferEncoding | undefined} */
function encodingOf(given) {
  return typeof given === 'string' ? /** @type {BufferEncoding} */ (given) : undefined;
}

/** @param {any} headers */
function headerPairs(headers) {
  if (headers === undefined || headers === null) return [];
  if (!Array.isArray(headers)) return Object.entries(headers);
  if (Array.isArray(headers[0])) return headers;
  return headers.flatMap((name, at) => (at % 2 === 0 ? [[name, headers[at + 1]]] : []));
}

/** @param {any} response @param {import('./requests.cjs').Answer} answer */
function send(response, { status, headers, body }) {
  response.statusCode = status;
  for (const [name, value] of headers) response.setHeader(name, value);
  response.end(body);
}

module.exports = { idempotencyHandler };
