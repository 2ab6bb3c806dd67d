'use strict';
// Makes promises of the native part's calls.

const { Hub } = require('./native.js');
const { errorOf } = require('./errors.js');
const { handOver } = require('./events.cjs');
const { isFault } = require('./port.js');

/** @typedef {import('./held.cjs').Held} Held */

/**
 * What to make of the value with which a call ended.
 * @typedef {(value: any, held: Held) => any} Make
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
/** The hub's number. */
let number = -1;

function begin() {
  // Other programs that load native parts have no loop, or not Node's, behind the functions that Node has for it.
  const isNode = process.versions.bun === undefined && process.versions.deno === undefined;
  native = new Hub(turn, isNode ? turn : undefined, () => handOver(native));
  number = native.number();
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
const had = (token, held) => {
  if (token === null) return held.notHad();
  held.had(token);
  return held;
};

/** @type {Make} */
const converted = (token, held) => {
  held.converted(token);
  return held;
};

/** @type {Make} */
const released = (renewals, held) => held.released(renewals);

/** The native part's calls. The first of them to be made is `connect`. */
function hub() {
  if (native === undefined) begin();
  return native;
}

/** The hub's number, for the functions that are answered at once. */
function hubNumber() {
  return number;
}

function turn() {
  const ended = native.turn();
  // Everything is noted before anything is told: those who hear of it may make calls, and those get the
  // numbers that are free now, of calls and of locks that were released.
  const entries = [];
  const values = [];
  for (let index = 0; index < ended.length; index += 2) {
    const entry = take(ended[index]);
    if (entry === undefined) continue;
    if (entry.holds) letGo();
    const value = ended[index + 1];
    entries.push(entry);
    values.push(isFault(value) ? value : made(entry.make, value, entry.held));
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
 * @param {Held | undefined} held
 */
function made(make, value, held) {
  return make === undefined ? value : make(value, /** @type {Held} */ (held));
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

/**
 * Makes a call; `begin` gets its number and starts it. With a signal, the call is undone when it aborts.
 * Never throws: the promise reports everything.
 * @template T
 * @param {(call: number) => any} begin
 * @param {AbortSignal} [signal]
 * @param {Make} [make] what to make of its end
 * @param {Held} [held] what that is about
 * @returns {Promise<T>}
 */
function call(begin, signal, make, held) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const number = nextNumber();
    const reply = begin(number);
    if (typeof reply !== 'boolean') {
      if (isFault(reply)) throw errorOf(reply);
      resolve(made(make, reply, held));
      return;
    }
    hold();
    /** @param {unknown} error */
    const failed = (error) => resolve(told(error));
    const entry = { resolve, reject: failed, holds: true, make, held };
    put(number, entry);
    goOn(reply);
    if (signal !== undefined) undoneBy(signal, number, entry, reject);
  });
}

/**
 * Rejects with the error, once it says who asked: it was made on the loop, where no caller is.
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
    // What has ended already, and was not collected yet, is released too.
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
 * `begin` must not be caught by a closure here: a guard that is forgotten has to be collected.
 * @param {(call: number) => any} begin
 * @param {import('./port.js').Told} ended
 * @returns {() => void}
 */
function follow(begin, ended) {
  const number = nextNumber();
  const reply = begin(number);
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

module.exports = { call, converted, follow, had, hub, hubNumber, released };
