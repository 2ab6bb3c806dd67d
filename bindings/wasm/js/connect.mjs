// Connecting: to which store, over what.

import { call, hubFor } from './calls.mjs';
import { Client as SharedClient } from './client.js';
import { Connected } from './connected.mjs';
import { wrongType } from './errors.js';
import { renamed } from './fields.js';
import { kindOf } from './load.mjs';
import { LockManager } from './locks.mjs';
import { connectOptions, mustBe, mustBeObject } from './options.js';

/** One client of one store, with locks in the browser's shape beside those of every language. */
class Client extends SharedClient {
  #locks;

  /** @param {Connected} port */
  constructor(port) {
    super(port);
    this.#locks = new LockManager(this, port);
  }

  get locks() {
    return this.#locks;
  }
}

/** @param {any} given */
function hostRedis(given) {
  mustBeObject('redis', given);
  if (typeof given.command !== 'function') {
    throw wrongType(
      'redis must have a function command(args); ioredisConnection and others make one of a client',
    );
  }
  if (given.subscribe !== undefined && typeof given.subscribe !== 'function') {
    throw wrongType('redis.subscribe must be a function subscribe(channel, listener), or missing');
  }
  return given;
}

/**
 * Calls with every event. What the callback throws is reported as of a listener of an `EventTarget`.
 * @param {(event: any) => void} onEvent
 */
function teller(onEvent) {
  return (/** @type {any} */ event) => {
    try {
      onEvent(renamed(event));
    } catch (error) {
      queueMicrotask(() => {
        throw error;
      });
    }
  };
}

/** Where this runs, shown beside a held lock. */
function machine() {
  const { process, location } = /** @type {any} */ (globalThis);
  const host = process?.getBuiltinModule?.('os')?.hostname() ?? process?.env?.HOSTNAME ?? location?.hostname;
  return { host: String(host || 'javascript'), pid: Number.isInteger(process?.pid) ? process.pid : 0 };
}

/** What runs: the script in Node, the page's path in a browser. */
function runs() {
  const { process, location } = /** @type {any} */ (globalThis);
  const path = process?.argv?.[1] ?? location?.pathname;
  return path === undefined ? 'javascript' : String(path).split(/[\\/]/).pop() || String(path);
}

/**
 * @param {any} [target] a URL, or options with or without `url`
 * @param {any} [given]
 */
async function connect(target, given) {
  let all = given;
  if (typeof target === 'string') {
    if (given !== undefined) mustBeObject('options', given);
    all = { ...given, url: target };
  } else if (target !== undefined) {
    if (given !== undefined) throw wrongType('connect takes a URL and options, or options alone');
    if (target instanceof URL) mustBe('the URL', target, 'string');
    mustBeObject('the URL, or the options,', target);
    all = target;
  }
  if (all === undefined)
    throw wrongType("connect needs a URL such as 'memory:', or options such as { redis }");
  const { url, redis, fetch: givenFetch, host, onEvent, ...others } = all;
  if (url !== undefined) mustBe('the URL', url, 'string');
  if (url === undefined && redis === undefined) {
    throw wrongType("connect needs a url such as 'consul://localhost:8500', or a redis connection");
  }
  if (host !== undefined) mustBe('host', host, 'string');
  if (onEvent !== undefined) mustBe('onEvent', onEvent, 'function');
  const ownFetch = givenFetch ?? globalThis.fetch;
  if (ownFetch !== undefined) mustBe('fetch', ownFetch, 'function');
  const { options, program, signal } = connectOptions(others);
  const connection = redis === undefined ? undefined : hostRedis(redis);
  const at = machine();
  signal?.throwIfAborted();
  const hub = await hubFor(kindOf(url ?? 'redis://'));
  const native = await call(
    hub,
    (number) =>
      hub.connect(
        number,
        url ?? 'redis://',
        program ?? runs(),
        options,
        connection,
        ownFetch,
        host ?? at.host,
        at.pid,
        onEvent && teller(onEvent),
      ),
    signal,
  );
  return new Client(new Connected(hub, native));
}

export { Client, connect };
