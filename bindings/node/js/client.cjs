'use strict';
// One client of one store, and what it can lock. The package `polylatch-wasm` has it too, over its own
// `calls`: nothing here may need Node.

const { hub, call, isFault } = require('./calls.cjs');
const { Guard, GuardSet } = require('./guard.cjs');
const { lockOptions, mustBe, mustBeText, mustBeObject, mustBeToken, onlyKnown } = require('./options.cjs');
const { errorOf, wrongType } = require('./errors.cjs');
const { fieldsOf, statsOf } = require('./fields.cjs');

/** @typedef {import('./native').NativeClient} NativeClient */
/** @typedef {import('./native').NativeGuard} NativeGuard */
/** @typedef {import('./native').NativeSet} NativeSet */

// In which way a lock is wanted, as `src/options.rs` numbers them.
const MUTEX = 0;
const READ = 1;
const WRITE = 2;
const PERMITS = 3;

/**
 * @param {NativeClient} client
 * @param {boolean} waits
 * @param {string} name
 * @param {unknown} given
 * @param {number} [way]
 * @param {number} [count]
 * @param {number} [capacity]
 * @returns {Promise<Guard | null>}
 */
async function acquire(client, waits, name, given, way = MUTEX, count = 0, capacity = 0) {
  mustBeText('the lock name', name);
  const { native, signal } = lockOptions(given, waits);
  /** @type {NativeGuard | null} */
  const guard = await call(
    (number) => hub.acquire(number, client, waits, name, way, count, capacity, native),
    signal,
  );
  return guard === null ? null : new Guard(guard);
}

/**
 * @param {NativeClient} client
 * @param {boolean} waits
 * @param {unknown} names
 * @param {unknown} given
 * @returns {Promise<GuardSet | null>}
 */
async function acquireAll(client, waits, names, given) {
  if (!Array.isArray(names)) throw wrongType('the lock names must be an array of strings');
  for (const name of names) mustBeText('a lock name', name);
  const { native, signal } = lockOptions(given, waits);
  /** @type {NativeSet | null} */
  const set = await call((number) => hub.acquireAll(number, client, waits, names, native), signal);
  return set === null ? null : new GuardSet(set);
}

/**
 * Runs `work` and gives back what is held, whatever comes of it.
 * @param {Guard | GuardSet} guard
 * @param {Function} work
 */
async function within(guard, work) {
  let result;
  try {
    result = await work(guard);
  } catch (error) {
    // What the work says is what counts; a loss it has heard of, or it was not the reason.
    await guard.release().catch(() => {});
    throw error;
  }
  // A lock that was lost meanwhile is told here at the latest.
  await guard.release();
  return result;
}

/**
 * Sorts out `(options, work)` and `(work)`.
 * @param {unknown} options
 * @param {unknown} work
 * @returns {[unknown, Function]}
 */
function optionsAndWork(options, work) {
  if (work === undefined && typeof options === 'function') return [undefined, options];
  return [options, mustBe('the work under the lock', work, 'function')];
}

/** A lock that many may read or one may write. */
class RwLock {
  #client;
  /** The lock's name. */
  name;

  /**
   * @param {NativeClient} client
   * @param {string} name
   */
  constructor(client, name) {
    this.#client = client;
    this.name = name;
  }

  /** @param {unknown} [options] */
  read(options) {
    return acquire(this.#client, true, this.name, options, READ);
  }

  /** @param {unknown} [options] */
  write(options) {
    return acquire(this.#client, true, this.name, options, WRITE);
  }

  /** @param {unknown} [options] */
  tryRead(options) {
    return acquire(this.#client, false, this.name, options, READ);
  }

  /** @param {unknown} [options] */
  tryWrite(options) {
    return acquire(this.#client, false, this.name, options, WRITE);
  }
}

/** A lock with a number of permits. */
class Semaphore {
  #client;
  /** The lock's name. */
  name;
  /** How many permits there are. */
  permits;

  /**
   * @param {NativeClient} client
   * @param {string} name
   * @param {number} permits
   */
  constructor(client, name, permits) {
    this.#client = client;
    this.name = name;
    this.permits = permits;
  }

  /**
   * @param {number} [count]
   * @param {unknown} [options]
   */
  async acquire(count = 1, options = undefined) {
    mustBe('the number of permits', count, 'number');
    return acquire(this.#client, true, this.name, options, PERMITS, count, this.permits);
  }

  /**
   * @param {number} [count]
   * @param {unknown} [options]
   */
  async tryAcquire(count = 1, options = undefined) {
    mustBe('the number of permits', count, 'number');
    return acquire(this.#client, false, this.name, options, PERMITS, count, this.permits);
  }
}

/** One client of one store. */
class Client {
  #native;

  /** @param {NativeClient} native */
  constructor(native) {
    this.#native = native;
  }

  get id() {
    return this.#native.id();
  }

  get url() {
    return this.#native.url();
  }

  get capability() {
    return fieldsOf(this.#native.capability());
  }

  get stats() {
    return statsOf(this.#native.stats());
  }

  /** @param {Record<string, string>} [labels] */
  prometheus(labels = {}) {
    mustBeObject('the labels', labels);
    const pairs = Object.entries(labels).flatMap(([name, value]) => [
      name,
      mustBeText(`the label ${name}`, value),
    ]);
    const text = this.#native.prometheus(pairs);
    if (isFault(text)) throw errorOf(text);
    return text;
  }

  /**
   * @param {string} name
   * @param {unknown} [options]
   */
  lock(name, options) {
    return acquire(this.#native, true, name, options);
  }

  /**
   * @param {string} name
   * @param {unknown} [options]
   */
  tryLock(name, options) {
    return acquire(this.#native, false, name, options);
  }

  /**
   * @param {string} name
   * @param {unknown} options
   * @param {unknown} [work]
   */
  async withLock(name, options, work) {
    const [given, run] = optionsAndWork(options, work);
    const guard = await acquire(this.#native, true, name, given);
    return within(/** @type {Guard} */ (guard), run);
  }

  /** @param {string} name */
  rwLock(name) {
    return new RwLock(this.#native, mustBeText('the lock name', name));
  }

  /**
   * @param {string} name
   * @param {number} permits
   */
  semaphore(name, permits) {
    mustBeText('the lock name', name);
    return new Semaphore(this.#native, name, mustBe('the number of permits', permits, 'number'));
  }

  /**
   * @param {string[]} names
   * @param {unknown} [options]
   */
  lockAll(names, options) {
    return acquireAll(this.#native, true, names, options);
  }

  /**
   * @param {string[]} names
   * @param {unknown} [options]
   */
  tryLockAll(names, options) {
    return acquireAll(this.#native, false, names, options);
  }

  /** @param {{ name?: string, prefix?: string, limit?: number }} [query] */
  async inspect(query = {}) {
    mustBeObject('the query', query);
    onlyKnown(query, ['name', 'prefix', 'limit']);
    const { name, prefix, limit } = query;
    if (name !== undefined) mustBeText('name', name);
    if (prefix !== undefined) mustBeText('prefix', prefix);
    if (limit !== undefined && !(Number.isInteger(limit) && limit >= 0 && limit < 2 ** 32)) {
      throw wrongType('limit must be a whole number, zero or more');
    }
    const json = await call((number) => hub.inspect(number, this.#native, name, prefix, limit));
    return fieldsOf(json);
  }

  /** @param {{ name: string, expected: bigint, by: string, reason: string }} order */
  async breakLease(order) {
    mustBeObject('the order', order);
    onlyKnown(order, ['name', 'expected', 'by', 'reason']);
    const name = mustBeText('name', order.name);
    const expected = mustBeToken('expected', order.expected).toString();
    const by = mustBe('by', order.by, 'string');
    const reason = mustBe('reason', order.reason, 'string');
    const json = await call((number) => hub.breakLease(number, this.#native, name, expected, by, reason));
    return fieldsOf(json);
  }

  close() {
    return call((number) => hub.close(number, this.#native));
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

module.exports = { Client, RwLock, Semaphore };
