'use strict';
// Requests with the header Idempotency-Key, for Express and whatever calls handlers with (request, response, next).

const { PolylatchError, wrongType } = require('./errors.js');
const {
  InProgressError,
  PayloadMismatchError,
  ResultTooLargeError,
  WorkFailedError,
} = require('./idempotency_errors.js');
const { payloadBytes } = require('./idempotency.js');
const { mustBe, mustBeObject, onlyKnown } = require('./options.js');

const OPTIONS = [
  'caller',
  'methods',
  'header',
  'required',
  'payload',
  'retention',
  'lease',
  'wait',
  'storeServerErrors',
];

/** Of one connection (RFC 9110, 7.6.1), of one moment, or of one browser. */
const NOT_STORED = [
  'connection',
  'date',
  'keep-alive',
  'proxy-connection',
  'set-cookie',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

const SERVER_ERROR = 500;

/**
 * @param {import('./recording_client.js').Client} client
 * @param {unknown} given
 */
function idempotencyHandler(client, given) {
  const options = mustBeObject('options', given);
  onlyKnown(options, OPTIONS);
  const { methods = ['POST', 'PATCH'], header = 'idempotency-key', wait = 0 } = options;
  const caller = mustBe('caller', options.caller, 'function');
  const payload = options.payload ?? bodyOf;
  mustBe('payload', payload, 'function');
  const treated = new Set(methods.map((/** @type {string} */ method) => method.toUpperCase()));
  const { retention, lease } = options;
  /** @type {import('./idempotency_errors.js').Fate} */
  const onFailure = options.storeServerErrors === true ? 'store' : 'free';

  /**
   * @param {any} request
   * @param {any} response
   * @param {(error?: unknown) => void} next
   */
  async function handle(request, response, next) {
    const key = keyOf(request.headers[header.toLowerCase()]);
    if (!treated.has(request.method) || (key === undefined && options.required !== true)) return next();
    if (key === undefined) {
      return refuse(response, 400, `this request needs the header ${header}, a key made by its client`);
    }
    const who = await caller(request);
    if (who === undefined || who === null) return next();
    mustBe('what caller returns', who, 'string');
    const body = payloadBytes(await payload(request));
    const line = JSON.stringify([request.method, request.originalUrl ?? request.url]);
    const run = {
      payload: Buffer.concat([Buffer.from(`${line}\0`), body]),
      retention,
      lease,
      wait,
      onFailure,
    };
    const keys = client.idempotency(`http/${who}`);
    const { value, replayed } = await keys.run(key, () => answered(response, next, options), run);
    if (replayed) replay(response, value);
  }

  return (/** @type {any} */ request, /** @type {any} */ response, /** @type {any} */ next) => {
    handle(request, response, next).then(
      () => response[SEND]?.(),
      (error) => {
        if (response[SEND] !== undefined) return response[SEND]();
        const status = statusOf(error);
        if (status === undefined) return next(error);
        if (error instanceof InProgressError) response.setHeader('retry-after', '1');
        refuse(response, status, error.message);
      },
    );
  };
}

/** Sends what was kept back. */
const SEND = Symbol('send');

/**
 * Has the request handled, and keeps its response back until it is stored: a client that got a response and repeats the
 * request gets the same one.
 * @param {any} response
 * @param {() => void} next
 * @param {Record<string, any>} options
 */
function answered(response, next, options) {
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
      const status = response.statusCode;
      if (status >= SERVER_ERROR && options.storeServerErrors !== true) {
        reject(new NotAnAnswer(status));
      } else {
        const headers = Object.entries(response.getHeaders()).filter(([name]) => !NOT_STORED.includes(name));
        resolve({ status, headers, body: body.toString('base64') });
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

/** Frees the key: a response of 500 or more is not an answer. */
class NotAnAnswer extends WorkFailedError {
  /** @param {number} status */
  constructor(status) {
    super(`status ${status}`, { onFailure: 'free' });
  }
}

/** @param {any} headers */
function headerPairs(headers) {
  if (headers === undefined || headers === null) return [];
  if (!Array.isArray(headers)) return Object.entries(headers);
  if (Array.isArray(headers[0])) return headers;
  return headers.flatMap((name, at) => (at % 2 === 0 ? [[name, headers[at + 1]]] : []));
}

/** @param {unknown} value */
function keyOf(value) {
  if (typeof value !== 'string') return undefined;
  const text = value.trim();
  // A string of structured fields (RFC 9651), or as most clients send it.
  return text.length > 1 && text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1) : text;
}

/** @param {any} request */
function bodyOf(request) {
  const raw = request.rawBody ?? request.body;
  const has = Number(request.headers['content-length'] ?? 0) > 0 || 'transfer-encoding' in request.headers;
  if (raw === undefined && has) {
    throw wrongType(
      'the body of the request was not read yet, so it cannot be compared; put what parses bodies before this, or pass `payload`',
    );
  }
  return raw ?? '';
}

/** @param {unknown} error */
function statusOf(error) {
  if (error instanceof InProgressError || error instanceof ResultTooLargeError) return 409;
  if (error instanceof PayloadMismatchError) return 422;
  return error instanceof PolylatchError && error.code === 'invalid_argument' ? 400 : undefined;
}

/** @param {any} response @param {any} stored */
function replay(response, { status, headers, body }) {
  response.statusCode = status;
  for (const [name, value] of headers) response.setHeader(name, value);
  response.setHeader('idempotency-replayed', 'true');
  response.end(Buffer.from(body, 'base64'));
}

/** Answers with problem details (RFC 9457). @param {any} response @param {number} status @param {string} detail */
function refuse(response, status, detail) {
  response.statusCode = status;
  response.setHeader('content-type', 'application/problem+json');
  response.end(JSON.stringify({ type: 'about:blank', status, detail }));
}

module.exports = { idempotencyHandler };
