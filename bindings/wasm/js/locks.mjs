// The shape of the browser's own Web Locks (W3C, "Web Locks API"), over a store that others share.

import { wrongType } from './errors.mjs';
import { mustBe, mustBeObject, mustBeText, onlyKnown } from './options.mjs';

const OPTIONS = ['mode', 'ifAvailable', 'steal', 'signal', 'lease', 'label', 'maxHold', 'beatEvery'];

/** How often a lock that changes hands meanwhile is stolen anew. */
const STEALS = 8;

/** A lock as a callback of `request` gets it. */
class HeldLock {
  /** @param {import('./client.mjs').Guard} guard */
  constructor(guard) {
    this.name = guard.name;
    /** @type {'exclusive' | 'shared'} */
    this.mode = guard.mode === 'read' ? 'shared' : 'exclusive';
    this.guard = guard;
  }

  get signal() {
    return this.guard.signal;
  }

  get fencingToken() {
    return this.guard.fencingToken;
  }
}

/**
 * Rejects when the lease is ended by a thief, or by an operator, which is the same to its holder.
 * @param {AbortSignal} signal
 * @returns {Promise<never>}
 */
function whenStolen(signal) {
  const stolen = new Promise((_, reject) => {
    const onAbort = () => {
      if (signal.reason?.reason !== 'broken') return;
      const error = new DOMException('the lock was stolen', 'AbortError');
      reject(Object.defineProperty(error, 'cause', { value: signal.reason, configurable: true }));
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

/** Locks of one client, as `navigator.locks` has them for one origin. */
class LockManager {
  #client;

  /** @param {import('./client.mjs').Client} client */
  constructor(client) {
    this.#client = client;
  }

  /**
   * @param {string} name
   * @param {any} options
   * @param {any} [callback]
   */
  async request(name, options, callback) {
    const [given, work] = callback === undefined ? [{}, options] : [options, callback];
    mustBeText('the lock name', name);
    mustBe('the callback', work, 'function');
    mustBeObject('options', given);
    onlyKnown(given, OPTIONS);
    const { mode = 'exclusive', ifAvailable = false, steal = false, ...others } = given;
    if (mode !== 'exclusive' && mode !== 'shared') {
      throw wrongType(`mode must be 'exclusive' or 'shared', not ${JSON.stringify(mode)}`);
    }
    mustBe('ifAvailable', ifAvailable, 'boolean');
    mustBe('steal', steal, 'boolean');
    if (steal && (ifAvailable || mode !== 'exclusive' || others.signal !== undefined)) {
      throw wrongType('steal goes with mode exclusive, and neither with ifAvailable nor with a signal');
    }
    const guard = await this.#acquire(name, mode, ifAvailable, steal, others);
    if (guard === null) return work(null);
    let result;
    const stolen = whenStolen(guard.signal);
    try {
      result = await Promise.race([stolen, within(work, new HeldLock(guard))]);
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
   * @param {string} name
   * @param {string} mode
   * @param {boolean} ifAvailable
   * @param {boolean} steal
   * @param {any} options
   */
  async #acquire(name, mode, ifAvailable, steal, options) {
    const lock = this.#client.rwLock(name);
    if (steal) return this.#steal(lock, options);
    if (mode === 'shared') return ifAvailable ? lock.tryRead(options) : lock.read(options);
    return ifAvailable ? lock.tryWrite(options) : lock.write(options);
  }

  /**
   * Ends the leases of the holders, and goes before those who wait.
   * @param {import('./client.mjs').RwLock} lock
   * @param {any} options
   */
  async #steal(lock, options) {
    const client = this.#client;
    for (let round = 0; round < STEALS; round += 1) {
      const guard = await lock.tryWrite({ ...options, fifo: false });
      if (guard !== null) return guard;
      const [view] = (await client.inspect({ name: lock.name })).locks;
      for (const { fencingToken } of view?.holders ?? []) {
        if (fencingToken === null) continue;
        const order = {
          name: lock.name,
          expected: fencingToken,
          by: client.id,
          reason: 'locks.request steal',
        };
        await client.breakLease(order);
      }
    }
    // Others enter as fast as they are put out: stand in line.
    return lock.write(options);
  }

  async query() {
    const { locks } = await this.#client.inspect();
    /** @param {'holders' | 'waiters'} which */
    const all = (which) =>
      locks.flatMap((/** @type {any} */ view) =>
        view[which].map((/** @type {any} */ one) => ({
          name: view.name,
          mode: one.mode === 'read' || one.mode === 'permits' ? 'shared' : 'exclusive',
          clientId: one.client ?? '',
        })),
      );
    return { held: all('holders'), pending: all('waiters') };
  }
}

export { HeldLock, LockManager };
