'use strict';
// One client of one store, and what it can lock. The package `polylatch-wasm` has it too, over its own
// `calls`: nothing here may need Node.

const { hub, call, isFault } = require('./calls.cjs');
const { Lock, LockAll, MUTEX, mustBeFine, RwLock, Semaphore } = require('./lock.cjs');
const {
  callOptionsApart,
  lockOptions,
  mustBe,
  mustBeObject,
  mustBeText,
  mustBeToken,
  onlyKnown,
} = require('./options.cjs');
const { errorOf, wrongType } = require('./errors.cjs');
const { fieldsOf, statsOf } = require('./fields.cjs');

/** @typedef {import('./native').NativeClient} NativeClient */

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
   * @param {unknown} given
   * @returns {Record<string, any> | undefined}
   */
  #options(given) {
    const options = lockOptions(given);
    if (options === undefined) return undefined;
    const { lease, wait, maxHold, beatEvery } = options;
    mustBeFine(this.#native.checkLengths(lease, wait, maxHold, beatEvery));
    return options;
  }

  /**
   * @param {string} name
   * @param {unknown} [options]
   */
  lock(name, options) {
    return new Lock(this.#native, mustBeText('the lock name', name), this.#options(options), MUTEX);
  }

  /**
   * @param {string} name
   * @param {unknown} options
   * @param {unknown} [work]
   */
  async withLock(name, options, work) {
    if (work === undefined && typeof options === 'function') return this.lock(name).withLock(options);
    const [ofLock, ofCall] = callOptionsApart(options);
    return this.lock(name, ofLock).withLock(ofCall, work);
  }

  /**
   * @param {string} name
   * @param {unknown} [options]
   */
  rwLock(name, options) {
    return new RwLock(this.#native, mustBeText('the lock name', name), this.#options(options));
  }

  /**
   * @param {string} name
   * @param {number} permits
   * @param {unknown} [options]
   */
  semaphore(name, permits, options) {
    mustBeText('the lock name', name);
    mustBe('the number of permits', permits, 'number');
    mustBeFine(this.#native.checkCount('permits', permits));
    return new Semaphore(this.#native, name, permits, this.#options(options));
  }

  /**
   * @param {readonly string[]} names
   * @param {unknown} [options]
   */
  lockAll(names, options) {
    if (!Array.isArray(names)) throw wrongType('the lock names must be an array of strings');
    for (const name of names) mustBeText('a lock name', name);
    return new LockAll(this.#native, [...names], this.#options(options));
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

module.exports = { Client };
