'use strict';
// Requests with the header Idempotency-Key: which have one, what is compared and stored, and what is answered. What a web
// framework has of its own is in `http.cjs` and `fastify.cjs`.

const { PolylatchError, wrongType } = require('./errors.js');
const {
  InProgressError,
  PayloadMismatchError,
  ResultTooLargeError,
  WorkFailedError,
} = require('./idempotency_errors.js');
const { payloadBytes } = require('./idempotency_values.js');
const { mustBe, mustBeObject, onlyKnown } = require('./options.js');

/** @typedef {{ status: number, headers: [string, any][], body: Buffer }} Answer */
/** @typedef {{ status: number, headers: [string, any][], body: string }} Stored The body is Base64. */
/** Does the work of a request, unless it was done. @typedef {(work: () => Promise<Stored>) => Promise<{ value: Stored, replayed: boolean }>} Once */

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

/** The requests of one server, and how they are treated. */
class KeyedRequests {
  #client;
  #header;
  #required;
  #caller;
  #payload;
  #methods;
  #storesServerErrors;
  #options;

  /**
   * @param {any} client
   * @param {unknown} given
   */
  constructor(client, given) {
    const options = mustBeObject('options', given);
    onlyKnown(options, OPTIONS);
    const { methods = ['POST', 'PATCH'], header = 'idempotency-key', wait = 0, retention, lease } = options;
    this.#caller = mustBe('caller', options.caller, 'function');
    this.#payload = mustBe('payload', options.payload ?? bodyOf, 'function');
    if (typeof client?.idempotency !== 'function') {
      throw wrongType('client must be a client of Polylatch, as connect() returns it');
    }
    this.#client = client;
    this.#header = header;
    this.#required = options.required === true;
    this.#methods = new Set(methods.map((/** @type {string} */ method) => method.toUpperCase()));
    this.#storesServerErrors = options.storeServerErrors === true;
    /** @type {import('./idempotency_errors.js').Fate} */
    const onFailure = this.#storesServerErrors ? 'store' : 'free';
    this.#options = { retention, lease, wait, onFailure };
  }

  /**
   * How to handle the request once; nothing if it is handled as if it had no key.
   * @param {any} request
   * @returns {Promise<Once | undefined>}
   */
  async keyed(request) {
    const key = keyOf(request.headers[this.#header.toLowerCase()]);
    if (!this.#methods.has(request.method) || (key === undefined && !this.#required)) return undefined;
    if (key === undefined) throw new KeyMissing(this.#header);
    const who = await this.#caller(request);
    if (who === undefined || who === null) return undefined;
    mustBe('what caller returns', who, 'string');
    const body = payloadBytes(await this.#payload(request));
    const line = JSON.stringify([request.method, request.originalUrl ?? request.url]);
    const payload = Buffer.concat([Buffer.from(`${line}\0`), body]);
    const keys = this.#client.idempotency(`http/${who}`);
    return (work) => keys.run(key, work, { ...this.#options, payload });
  }

  /**
   * What is stored of a response. Throws what frees the key if it is not an answer.
   * @param {number} status
   * @param {Record<string, any>} headers
   * @param {Buffer} body
   * @returns {Stored}
   */
  stored(status, headers, body) {
    if (status >= SERVER_ERROR && !this.#storesServerErrors) throw new NotAnAnswer(status);
    const kept = Object.entries(headers).filter(([name]) => !NOT_STORED.includes(name));
    return { status, headers: kept, body: body.toString('base64') };
  }
}

/** A request without a key, where one is required. */
class KeyMissing extends Error {
  /** @param {string} header */
  constructor(header) {
    super(`this request needs the header ${header}, a key made by its client`);
  }
}

/** Frees the key: a response of 500 or more is not an answer. */
class NotAnAnswer extends WorkFailedError {
  /** @param {number} status */
  constructor(status) {
    super(`status ${status}`, { onFailure: 'free' });
  }
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

/**
 * The response that is sent again.
 * @param {Stored} stored
 * @returns {Answer}
 */
function replayOf({ status, headers, body }) {
  return {
    status,
    headers: [...headers, ['idempotency-replayed', 'true']],
    body: Buffer.from(body, 'base64'),
  };
}

/**
 * What a request is refused with: problem details (RFC 9457). Nothing for an error that is not the request's.
 * @param {unknown} error
 * @returns {Answer | undefined}
 */
function refusalOf(error) {
  const status = statusOf(error);
  if (status === undefined || !(error instanceof Error)) return undefined;
  const body = Buffer.from(JSON.stringify({ type: 'about:blank', status, detail: error.message }));
  /** @type {[string, any][]} */
  const headers = [['content-type', 'application/problem+json']];
  if (error instanceof InProgressError) headers.push(['retry-after', '1']);
  return { status, headers, body };
}

/** @param {unknown} error */
function statusOf(error) {
  if (error instanceof InProgressError || error instanceof ResultTooLargeError) return 409;
  if (error instanceof PayloadMismatchError) return 422;
  if (error instanceof KeyMissing) return 400;
  return error instanceof PolylatchError && error.code === 'invalid_argument' ? 400 : undefined;
}

module.exports = { KeyedRequests, refusalOf, replayOf };
