// The shape of the browser's own Web Locks (W3C, "Web Locks API"), over a store that others share.

import { wrongType } from './errors.js';
import { Guard } from './guard.js';
import { fromStored, stored } from './lock_names.mjs';
import { callSignal, lockOptions, mustBe, mustBeObject, onlyKnown } from './options.js';

const OPTIONS = ['mode', 'ifAvailable', 'steal', 'signal', 'lease', 'label', 'maxHold', 'beatEvery'];

/** @type {Record<'shared' | 'exclusive', import('./port.js').NumberedMode>} */
const MODES = {
  shared: { number: 1, count: 0, capacity: 0 },
  exclusive: { number: 2, count: 0, capacity: 0 },
};

/** What the audit says of a lease that `steal` ended. */
const STEAL = 'locks.request steal';

/** A lock as a callback of `request` gets it. */
class HeldLock {
  #name;
  #guard;

  /**
   * @param {string} name as it was asked for
   * @param {import('./guard.js').Guard} guard
   */
  constructor(name, guard) {
    this.#name = name;
    this.#guard = guard;
  }

  get name() {
    return this.#name;
  }

  /** @returns {'exclusive' | 'shared'} */
  get mode() {
    return this.#guard.mode === 'read' ? 'shared' : 'exclusive';
  }

  get guard() {
    return this.#guard;
  }

  get signal() {
    return this.#guard.signal;
  }

  get fencingToken() {
    return this.#guard.fencingToken;
  }
}

/**
 * What a request rejects with whose lease was ended by a thief, or by an operator, which is the same to its holder;
 * nothing for any other error. A client that no message reaches learns of it by its next request: `superseded`.
 * @param {any} error
 */
function stolenBy(error) {
  if (error?.reason !== 'broken' && error?.reason !== 'superseded') return undefined;
  const stolen = new DOMException('the lock was stolen', 'AbortError');
  return Object.defineProperty(stolen, 'cause', { value: error, configurable: true });
}

/**
 * Rejects when the lease is stolen.
 * @param {AbortSignal} signal
 * @returns {Promise<never>}
 */
function whenStolen(signal) {
  const stolen = new Promise((_, reject) => {
    const onAbort = () => {
      const error = stolenBy(signal.reason);
      if (error !== undefined) reject(error);
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
  // Nobody waits for it any more once the callback has ended.
  stolen.catch(() => {});
  return stolen;
}

/**
 * Calls it, so that what it throws at once is a rejection, too.
 * @param {Function} work
 * @param {HeldLock} lock
 */
async function within(work, lock) {
  return work(lock);
}

/** @param {string} rule */
function notSupported(rule) {
  return new DOMException(rule, 'NotSupportedError');
}

/**
 * Sorts out what `request` was called with, by the rules of the specification.
 * @param {unknown} name
 * @param {any[]} rest
 */
function asked(name, rest) {
  const work = mustBe('the callback', rest.length > 1 ? rest[1] : rest[0], 'function');
  const given = (rest.length > 1 ? rest[0] : undefined) ?? {};
  mustBe('the lock name', name, 'string');
  mustBeObject('options', given);
  onlyKnown(given, OPTIONS);
  const { mode = 'exclusive', ifAvailable = false, steal = false, signal: ending, ...others } = given;
  if (mode !== 'exclusive' && mode !== 'shared') {
    throw wrongType(`mode must be 'exclusive' or 'shared', not ${JSON.stringify(mode)}`);
  }
  mustBe('ifAvailable', ifAvailable, 'boolean');
  mustBe('steal', steal, 'boolean');
  const native = lockOptions(others);
  const signal = callSignal({ signal: ending });
  const text = /** @type {string} */ (name);
  if (text.startsWith('-')) throw notSupported('the lock name begins with "-", which Web Locks reserve');
  if (steal && ifAvailable) throw notSupported('steal and ifAvailable exclude each other; leave one out');
  if (steal && mode === 'shared') throw notSupported("only a lock of mode 'exclusive' can be stolen");
  if (signal && (steal || ifAvailable)) {
    throw notSupported('a signal ends a wait, and neither steal nor ifAvailable wait; leave it out');
  }
  return {
    text,
    work,
    mode,
    waits: !ifAvailable,
    native: steal ? { ...native, steal: STEAL } : native,
    signal,
  };
}

/** Locks of one client, as `navigator.locks` has them for one origin. */
class LockManager {
  #client;
  #port;

  /**
   * @param {import('./client.js').Client} client
   * @param {import('./port.js').ClientPort} port of that client
   */
  constructor(client, port) {
    this.#client = client;
    this.#port = port;
  }

  /**
   * @param {string} name
   * @param {any[]} rest
   */
  async request(name, ...rest) {
    const { text, work, mode, waits, native, signal } = asked(name, rest);
    const how = MODES[/** @type {'shared' | 'exclusive'} */ (mode)];
    const acquired = await this.#port.acquire(waits, stored(text), how, native, signal);
    if (acquired === null) return work(null);
    const guard = Guard.of(acquired);
    let result;
    const stolen = whenStolen(guard.signal);
    try {
      result = await Promise.race([stolen, within(work, new HeldLock(text, guard))]);
    } catch (error) {
      // What the work says is what counts; a loss it has heard of, or it was not the reason.
      await guard.release().catch(() => {});
      throw error;
    }
    try {
      await guard.release();
    } catch (error) {
      // A lock that was lost meanwhile is told here at the latest.
      throw stolenBy(error) ?? error;
    }
    return result;
  }

  async query() {
    const { locks } = await this.#client.inspect();
    /** @param {'holders' | 'waiters'} which */
    const all = (which) =>
      locks.flatMap((/** @type {any} */ view) =>
        view[which].map((/** @type {any} */ one) => ({
          name: fromStored(view.name),
          mode: one.mode === 'read' || one.mode === 'permits' ? 'shared' : 'exclusive',
          clientId: one.client ?? '',
        })),
      );
    return { held: all('holders'), pending: all('waiters') };
  }
}

export { HeldLock, LockManager };
