'use strict';
// Makes promises of the native part's calls.

const { Hub } = require('./native.cjs');
const { errorOf } = require('./errors.cjs');

/** @typedef {{ resolve: (value: any) => void, reject: (error: unknown) => void, holds: boolean }} Waiting */

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

// Other programs that load native parts have no loop, or not Node's, behind the functions that Node has for it.
const isNode = process.versions.bun === undefined && process.versions.deno === undefined;
const hub = new Hub(turn, isNode ? turn : undefined);

// A pending call keeps the process alive, a held lock does not. The notification from the native part
// cannot tell the one from the other, so a timer that never fires stands for the calls.
const LONGEST_TIMER = 2 ** 31 - 1;
const alive = setInterval(() => {}, LONGEST_TIMER);
alive.unref();

// However a process ends of its own accord, its locks need not wait for the end of their leases. (Node runs
// no cleanup of native parts for process.exit.)
process.once('exit', () => hub.farewell());

function turn() {
  const ended = hub.turn();
  // Taken out before anything is told: those who hear of it may make calls, under the same numbers.
  const entries = [];
  for (let index = 0; index < ended.length; index += 2) entries.push(take(ended[index]));
  for (let index = 0; index < entries.length; index += 1) {
    const entry = entries[index];
    if (entry === undefined) continue;
    if (entry.holds) letGo();
    const value = ended[2 * index + 1];
    if (isFault(value)) entry.reject(errorOf(value));
    else entry.resolve(value);
  }
}

function dueTurn() {
  due = false;
  turn();
}

/** A number for a call; it is taken by putting an entry there. */
function nextNumber() {
  return free.length > 0 ? free[free.length - 1] : waiting.length;
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

function letGo() {
  holding -= 1;
  if (holding === 0) alive.unref();
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
    if (typeof reply !== 'boolean') {
      if (isFault(reply)) throw errorOf(reply);
      resolve(reply);
      return;
    }
    if (holding === 0) alive.ref();
    holding += 1;
    /** @param {unknown} error */
    const failed = (error) => resolve(told(error));
    const entry = { resolve, reject: failed, holds: true };
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
    hub.cancel(number);
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
 * `native` must not be caught by a closure here: a guard that is forgotten has to be collected.
 * @param {'lost' | 'lostOne' | 'endangered'} what
 * @param {any} native
 * @param {(value: any, error: unknown) => void} ended
 * @returns {() => void}
 */
function follow(what, native, ended) {
  const number = nextNumber();
  const reply = hub[what](number, native);
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
  };
  put(number, entry);
  goOn(reply);
  return () => {
    if (waiting[number] !== entry) return;
    take(number);
    hub.cancel(number);
  };
}

module.exports = { hub, call, follow, isFault };
