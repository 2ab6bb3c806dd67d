'use strict';
// Makes promises of the native part's calls.

const { Hub } = require('./native.cjs');
const { errorOf } = require('./errors.cjs');
const { followChannels, forget, handOver, listen } = require('./events.cjs');
const { Held, useHub } = require('./held.cjs');

/** @typedef {import('./native').NativeClient} NativeClient */

/**
 * What to make of how a call ended: the value, and the number beside it.
 * @typedef {(value: any, beside: number, held: Held) => any} Make
 */

/**
 * @typedef {object} Waiting
 * @property {(value: any) => void} resolve
 * @property {(error: unknown) => void} reject
 * @property {boolean} holds whether it keeps the process alive
 * @property {Make | undefined} make
 * @property {Held | undefined} held what `make` is about
 */

/**
 * Calls that have not ended, by number. Numbers are given again, so that they stay small on both sides.
 * @type {(Waiting | undefined)[]}
 */
const waiting = [];
/** @type {number[]} */
const free = [];
/** How many of them keep the process alive. */
let holding = 0;
/** Whether a turn is under way to be made without the native part's asking. */
let due = false;

/** @type {import('./native').Hub} Made by the first connection: many a program loads this and never locks. */
let native;

function begin() {
  if (native !== undefined) return;
  // Other programs that load native parts have no loop, or not Node's, behind the functions that Node has for it.
  const isNode = process.versions.bun === undefined && process.versions.deno === undefined;
  native = new Hub(turn, isNode ? turn : undefined, () => handOver(native));
  useHub(native);
  // However a process ends of its own accord, its locks need not wait for the end of their leases. (Node runs
  // no cleanup of native parts for process.exit.)
  process.once('exit', () => native.farewell());
}

// A pending call keeps the process alive, a held lock does not. The notification from the native part
// cannot tell the one from the other, so a timer that never fires stands for the calls.
const LONGEST_TIMER = 2 ** 31 - 1;
/** @type {NodeJS.Timeout | undefined} */
let alive;

function hold() {
  holding += 1;
  if (holding > 1) return;
  if (alive === undefined) alive = setInterval(() => {}, LONGEST_TIMER);
  else alive.ref();
}

function letGo() {
  holding -= 1;
  if (holding === 0) alive?.unref();
}

/** @type {Make} */
const had = (number, token, held) => {
  if (number === null) return null;
  held.had(number, token);
  return held;
};

/** @type {Make} */
const givenBack = (_, renewals, held) => held.givenBack(renewals);

/**
 * Of the call that is just being begun, and no longer: a guard that is forgotten has to be collected.
 * @type {Make | undefined}
 */
let make;
/** @type {Held | undefined} */
let about;

/**
 * What can be asked of the native part. It has guards under numbers, and this has objects for them.
 */
const hub = {
  /**
   * @param {number} call
   * @param {string | undefined} url
   * @param {string | undefined} program
   * @param {{ key: string, value: number | boolean | string }[]} options
   * @param {import('./events.cjs').OnEvent | undefined} onEvent
   */
  connect(call, url, program, options, onEvent) {
    begin();
    followChannels(native);
    const number = listen(onEvent);
    const reply = native.connect(call, url, program, options, number);
    // It did not come to a client whose end could be told.
    if (isFault(reply)) forget(number);
    return reply;
  },

  /** @type {import('./native').Hub['acquireAll']} */
  acquireAll: (...given) => native.acquireAll(...given),
  /** @type {import('./native').Hub['releaseAll']} */
  releaseAll: (...given) => native.releaseAll(...given),
  /** @type {import('./native').Hub['lostOne']} */
  lostOne: (...given) => native.lostOne(...given),
  /** @type {import('./native').Hub['inspect']} */
  inspect: (...given) => native.inspect(...given),
  /** @type {import('./native').Hub['breakLease']} */
  breakLease: (...given) => native.breakLease(...given),
  /** @type {import('./native').Hub['close']} */
  close: (...given) => native.close(...given),

  /**
   * @param {number} call
   * @param {NativeClient} client
   * @param {boolean} waits
   * @param {string} name
   * @param {number} way
   * @param {number} count
   * @param {number} capacity
   * @param {Record<string, any> | undefined} options
   */
  acquire(call, client, waits, name, way, count, capacity, options) {
    let lease;
    let wait;
    let all;
    for (const key in options) {
      // Nearly always there are no others, and an object takes long to cross the border.
      if (key === 'lease') lease = options[key];
      else if (key === 'wait') wait = options[key];
      else all = options;
    }
    const reply = native.acquire(call, client, waits, name, way, count, capacity, lease, wait, all);
    make = had;
    about = new Held(client, name, way, count);
    return reply;
  },

  /**
   * @param {number} call
   * @param {any} held a {@link Held}
   */
  release(call, held) {
    const number = held.number();
    // It was given back before.
    if (number === undefined) return undefined;
    const reply = native.release(call, number);
    make = givenBack;
    about = held;
    return reply;
  },

  /**
   * @param {number} call
   * @param {any} held a {@link Held}
   * @param {boolean} up
   */
  convert(call, held, up) {
    const number = held.number();
    if (number === undefined) return held.check();
    const reply = native.convert(call, number, up);
    make = had;
    about = held;
    return reply;
  },

  /**
   * @param {number} call
   * @param {any} held a {@link Held}
   * @param {number} lease
   */
  extend(call, held, lease) {
    const number = held.number();
    return number === undefined ? held.check() : native.extend(call, number, lease);
  },

  /**
   * @param {number} call
   * @param {any} held a {@link Held}
   */
  lost(call, held) {
    const number = held.number();
    return number === undefined ? undefined : native.lost(call, number);
  },

  /**
   * @param {number} call
   * @param {any} held a {@link Held}
   */
  endangered(call, held) {
    const number = held.number();
    return number === undefined ? undefined : native.endangered(call, number);
  },
};

function turn() {
  const ended = native.turn();
  // Everything is noted before anything is told: those who hear of it may make calls, and those get the
  // numbers that are free now, of calls and of locks that were given back.
  const entries = [];
  const values = [];
  for (let index = 0; index < ended.length; index += 3) {
    const entry = take(ended[index]);
    if (entry === undefined) continue;
    if (entry.holds) letGo();
    const value = ended[index + 1];
    entries.push(entry);
    values.push(isFault(value) ? value : made(entry.make, value, ended[index + 2], entry.held));
  }
  for (let index = 0; index < entries.length; index += 1) {
    const entry = /** @type {Waiting} */ (entries[index]);
    const value = values[index];
    if (isFault(value)) entry.reject(errorOf(value));
    else entry.resolve(value);
  }
}

/**
 * @param {Make | undefined} make
 * @param {any} value
 * @param {number} beside
 * @param {Held | undefined} held
 */
function made(make, value, beside, held) {
  return make === undefined ? value : make(value, beside, /** @type {Held} */ (held));
}

function dueTurn() {
  due = false;
  turn();
}

/**
 * A number for a call; it is taken by putting an entry there.
 * @returns {number}
 */
function nextNumber() {
  return free[free.length - 1] ?? waiting.length;
}

/**
 * @param {number} number the last of {@link nextNumber}
 * @param {Waiting} entry
 */
function put(number, entry) {
  free.pop();
  waiting[number] = entry;
}

/**
 * @param {number} number
 * @returns {Waiting | undefined}
 */
function take(number) {
  const entry = waiting[number];
  if (entry !== undefined) {
    waiting[number] = undefined;
    free.push(number);
  }
  return entry;
}

/**
 * Sees to it that what a call has begun goes on.
 * @param {boolean} isDue
 */
function goOn(isDue) {
  // After all that is started now: what leaves together costs less.
  if (isDue && !due) {
    due = true;
    process.nextTick(dueTurn);
  }
}

/** @param {any} value */
function isFault(value) {
  return typeof value === 'object' && value !== null && value.code !== undefined;
}

/**
 * Makes a call; `begin` gets its number and starts it. With a signal, the call is undone when it aborts.
 * Never throws: the promise tells everything.
 * @template T
 * @param {(call: number) => any} begin
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
function call(begin, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const number = nextNumber();
    const reply = begin(number);
    const making = make;
    const held = about;
    make = undefined;
    about = undefined;
    if (typeof reply !== 'boolean') {
      if (isFault(reply)) throw errorOf(reply);
      resolve(made(making, reply, making === undefined ? 0 : native.beside(), held));
      return;
    }
    hold();
    /** @param {unknown} error */
    const failed = (error) => resolve(told(error));
    const entry = { resolve, reject: failed, holds: true, make: making, held };
    put(number, entry);
    goOn(reply);
    if (signal !== undefined) undoneBy(signal, number, entry, reject);
  });
}

/**
 * Rejects with the error, once it says who asked: it was made on the loop, where nobody is.
 * @param {unknown} error
 * @returns {Promise<never>}
 */
async function told(error) {
  // By then whoever waits does so for this, and the engine finds the way there.
  await undefined;
  await undefined;
  if (error instanceof Error) Error.captureStackTrace(error, told);
  throw error;
}

/**
 * @param {AbortSignal} signal
 * @param {number} number
 * @param {Waiting} entry
 * @param {(reason: unknown) => void} reject
 */
function undoneBy(signal, number, entry, reject) {
  const onAbort = () => {
    if (waiting[number] !== entry) return;
    take(number);
    letGo();
    // What has ended already, and was not collected yet, is given back too.
    native.cancel(number);
    reject(signal.reason);
  };
  const { resolve, reject: failed } = entry;
  entry.resolve = (value) => {
    signal.removeEventListener('abort', onAbort);
    resolve(value);
  };
  entry.reject = (error) => {
    signal.removeEventListener('abort', onAbort);
    failed(error);
  };
  signal.addEventListener('abort', onAbort, { once: true });
}

/**
 * Follows a held lock, without keeping the process or the lock alive. Returns how to stop.
 *
 * `lock` must not be caught by a closure here: a guard that is forgotten has to be collected.
 * @param {'lost' | 'lostOne' | 'endangered'} what
 * @param {any} lock
 * @param {(value: any, error: unknown) => void} ended
 * @returns {() => void}
 */
function follow(what, lock, ended) {
  const number = nextNumber();
  const reply = hub[what](number, lock);
  if (typeof reply !== 'boolean') {
    // Told later, as always: the caller is not done yet.
    queueMicrotask(() => (isFault(reply) ? ended(undefined, errorOf(reply)) : ended(reply, undefined)));
    return () => {};
  }
  /** @type {Waiting} */
  const entry = {
    resolve: (value) => ended(value, undefined),
    reject: (error) => ended(undefined, error),
    holds: false,
    make: undefined,
    held: undefined,
  };
  put(number, entry);
  goOn(reply);
  return () => {
    if (waiting[number] !== entry) return;
    take(number);
    native.cancel(number);
  };
}

module.exports = { hub, call, follow, isFault };
