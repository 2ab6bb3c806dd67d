'use strict';
// Locks to acquire: a name and options. Nothing is sent before `acquire`.

const { hub, call, isFault } = require('./calls.cjs');
const { Guard, GuardSet, SHOWN } = require('./guard.cjs');
const { callSignal, mustBe } = require('./options.cjs');
const { errorOf, wrongType } = require('./errors.cjs');

/** @typedef {import('./native').NativeClient} NativeClient */
/** @typedef {import('./native').NativeGuard} NativeGuard */
/** @typedef {import('./native').NativeSet} NativeSet */

/**
 * How a lock is to be acquired: the mode, as `src/options.rs` numbers it, and for permits how many of how many.
 * @typedef {{ way: number, count: number, capacity: number }} Mode
 */

/** @type {Mode} */
const MUTEX = { way: 0, count: 0, capacity: 0 };
/** @type {Mode} */
const READ = { way: 1, count: 0, capacity: 0 };
/** @type {Mode} */
const WRITE = { way: 2, count: 0, capacity: 0 };
const PERMITS = 3;

/** Acquires it, or tries to. */
const START = Symbol('start');
/** Which locks it is, with the verb, for an error. */
const WHAT = Symbol('what');
/** What a program writes to name it. */
const WRITTEN = Symbol('written');

/**
 * Runs `work` and releases what is held, whether it succeeds or not.
 * @param {Guard | GuardSet} guard
 * @param {Function} work
 */
async function within(guard, work) {
  let result;
  try {
    result = await work(guard);
  } catch (error) {
    // The error of the work counts: either it knows of a loss, or the loss was not the reason.
    await guard.release().catch(() => {});
    throw error;
  }
  // Reports a lock that was lost meanwhile.
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

/**
 * Throws what the native part has found, if it has.
 * @param {unknown} fault
 */
function mustBeFine(fault) {
  if (isFault(fault)) throw errorOf(/** @type {any} */ (fault));
}

/**
 * A lock is used as if it were its guard, or awaited as if that acquired it.
 * @param {Acquirable} lock
 */
function notAcquired(lock) {
  const expression = lock[WRITTEN]();
  return wrongType(
    `${lock[WHAT]()} named, not acquired; call await ${expression}.acquire(), or ${expression}.withLock(work)`,
  );
}

/**
 * Rejects with the error, once it says who awaited.
 * @param {Acquirable} lock
 * @returns {Promise<never>}
 */
async function refused(lock) {
  // By then the caller is known to wait for this, and the engine finds the way there.
  await undefined;
  throw notAcquired(lock);
}

/** What can be acquired: one lock, or several. */
class Acquirable {
  /**
   * @param {boolean} _waits
   * @param {unknown} _options
   * @returns {Promise<any>}
   */
  async [START](_waits, _options) {}

  /** @returns {string} */
  [WHAT]() {
    return '';
  }

  /** @returns {string} */
  [WRITTEN]() {
    return '';
  }

  /** @param {unknown} [options] */
  acquire(options) {
    return this[START](true, options);
  }

  /** @param {unknown} [options] */
  tryAcquire(options) {
    return this[START](false, options);
  }

  /**
   * @param {unknown} options
   * @param {unknown} [work]
   */
  async withLock(options, work) {
    const [given, run] = optionsAndWork(options, work);
    return within(await this[START](true, given), run);
  }

  /**
   * Refuses to be awaited: the caller believes that this acquires the lock.
   * @param {any} fulfilled
   * @param {any} rejected
   */
  // biome-ignore lint/suspicious/noThenProperty: so that `await client.lock(name)` fails
  then(fulfilled, rejected) {
    return refused(this).then(fulfilled, rejected);
  }

  [SHOWN]() {
    return `${this.constructor.name} { ${this[WRITTEN]()} }`;
  }
}

/** One lock to acquire. */
class Lock extends Acquirable {
  #client;
  #options;
  #mode;
  /** The lock's name. */
  name;

  /**
   * @param {NativeClient} client
   * @param {string} name
   * @param {Record<string, any> | undefined} options
   * @param {Mode} mode
   */
  constructor(client, name, options, mode) {
    super();
    this.#client = client;
    this.#options = options;
    this.#mode = mode;
    this.name = name;
  }

  /**
   * @override
   * @param {boolean} waits
   * @param {unknown} given
   * @returns {Promise<Guard | null>}
   */
  async [START](waits, given) {
    const { way, count, capacity } = this.#mode;
    /** @type {NativeGuard | null} */
    const guard = await call(
      (number) => hub.acquire(number, this.#client, waits, this.name, way, count, capacity, this.#options),
      callSignal(given),
    );
    return guard === null ? null : new Guard(guard);
  }

  /** @override */
  [WHAT]() {
    return `lock ${JSON.stringify(this.name)} is`;
  }

  /** @override */
  [WRITTEN]() {
    const { way, count, capacity } = this.#mode;
    const name = JSON.stringify(this.name);
    if (way === PERMITS) return `client.semaphore(${name}, ${capacity}).permits(${count})`;
    return way === 0 ? `client.lock(${name})` : `client.rwLock(${name}).${way === 1 ? 'read' : 'write'}()`;
  }
}

/** Several locks to acquire, all or none. */
class LockAll extends Acquirable {
  #client;
  #options;
  /** The locks' names, as they were given. */
  names;

  /**
   * @param {NativeClient} client
   * @param {string[]} names
   * @param {Record<string, any> | undefined} options
   */
  constructor(client, names, options) {
    super();
    this.#client = client;
    this.#options = options;
    this.names = names;
  }

  /**
   * @override
   * @param {boolean} waits
   * @param {unknown} given
   * @returns {Promise<GuardSet | null>}
   */
  async [START](waits, given) {
    /** @type {NativeSet | null} */
    const set = await call(
      (number) => hub.acquireAll(number, this.#client, waits, this.names, this.#options),
      callSignal(given),
    );
    return set === null ? null : new GuardSet(set);
  }

  /** @override */
  [WHAT]() {
    return `locks ${this.names.map((name) => JSON.stringify(name)).join(', ')} are`;
  }

  /** @override */
  [WRITTEN]() {
    return `client.lockAll(${JSON.stringify(this.names)})`;
  }
}

/**
 * Makes each member of a guard an error on the lock that is not acquired yet.
 * @param {Function} lock
 * @param {Function} guard
 */
function refuseAsGuard(lock, guard) {
  for (const member of [...Reflect.ownKeys(guard.prototype), 'token', 'catch', 'finally', Symbol.dispose]) {
    if (member === undefined || member in lock.prototype) continue;
    Object.defineProperty(lock.prototype, member, {
      configurable: true,
      get() {
        // The prototype is no lock: tools that look at it are not refused.
        if (this instanceof lock) throw notAcquired(/** @type {any} */ (this));
        return undefined;
      },
    });
  }
}

refuseAsGuard(Lock, Guard);
refuseAsGuard(LockAll, GuardSet);

/** A lock that several may read or one may write. */
class RwLock {
  #client;
  #options;
  /** The lock's name. */
  name;

  /**
   * @param {NativeClient} client
   * @param {string} name
   * @param {Record<string, any> | undefined} options
   */
  constructor(client, name, options) {
    this.#client = client;
    this.#options = options;
    this.name = name;
  }

  read() {
    return new Lock(this.#client, this.name, this.#options, READ);
  }

  write() {
    return new Lock(this.#client, this.name, this.#options, WRITE);
  }
}

/** A lock with a number of permits. */
class Semaphore {
  #client;
  #options;
  /** The lock's name. */
  name;
  /** How many permits there are. */
  capacity;

  /**
   * @param {NativeClient} client
   * @param {string} name
   * @param {number} capacity
   * @param {Record<string, any> | undefined} options
   */
  constructor(client, name, capacity, options) {
    this.#client = client;
    this.#options = options;
    this.name = name;
    this.capacity = capacity;
  }

  /** @param {number} [count] */
  permits(count = 1) {
    mustBe('the number of permits', count, 'number');
    mustBeFine(this.#client.checkCount('count', count));
    const mode = { way: PERMITS, count, capacity: this.capacity };
    return new Lock(this.#client, this.name, this.#options, mode);
  }

  /**
   * @param {number} [count]
   * @param {unknown} [options]
   */
  async acquire(count, options) {
    return this.permits(count).acquire(options);
  }

  /**
   * @param {number} [count]
   * @param {unknown} [options]
   */
  async tryAcquire(count, options) {
    return this.permits(count).tryAcquire(options);
  }
}

module.exports = { Acquirable, Lock, LockAll, MUTEX, mustBeFine, RwLock, Semaphore };
