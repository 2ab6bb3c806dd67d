// Makes promises of the calls of the part in Rust.

import { errorOf } from './errors.js';
import { load } from './load.mjs';
import { isFault } from './port.js';

/** @typedef {{ resolve: (value: any) => void, reject: (error: unknown) => void, holds: boolean }} Waiting */

/** @type {Map<number, Waiting>} Calls that have not ended, by number. */
const waiting = new Map();
let last = 0;

/** @type {Map<any, any>} Where calls are made, by the module. */
const hubs = new Map();

/**
 * Where to connect to a kind of store.
 * @param {import('./load.mjs').Kind} kind
 */
async function hubFor(kind) {
  const module = await load(kind);
  let found = hubs.get(module);
  if (found === undefined) {
    found = new module.Hub(ended);
    hubs.set(module, found);
  }
  return found;
}

// In Node, a pending call keeps the process alive and a held lock does not. The timers of the part in Rust
// keep nothing alive, so one that never fires stands for the calls.
const LONGEST_TIMER = 2 ** 31 - 1;
/** How many calls keep the process alive. */
let holding = 0;
/** @type {any} */
let alive;

function hold() {
  holding += 1;
  if (holding === 1) alive = setInterval(() => {}, LONGEST_TIMER);
}

function letGo() {
  holding -= 1;
  if (holding === 0) clearInterval(alive);
}

/**
 * @param {number} number
 * @param {any} value
 */
function ended(number, value) {
  const entry = waiting.get(number);
  if (entry === undefined) return;
  waiting.delete(number);
  if (entry.holds) letGo();
  if (isFault(value)) entry.reject(errorOf(value));
  else entry.resolve(value);
}

function nextNumber() {
  // Small enough for the border, and not one that is waited for still.
  do last = (last + 1) % 2 ** 32;
  while (waiting.has(last));
  return last;
}

/**
 * Makes a call; `begin` gets its number and starts it. With a signal, the call is undone when it aborts.
 * @template T
 * @param {any} hub where it is made
 * @param {(call: number) => any} begin
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
async function call(hub, begin, signal) {
  signal?.throwIfAborted();
  const number = nextNumber();
  const reply = begin(number);
  if (reply !== false) {
    if (isFault(reply)) throw errorOf(reply);
    return reply;
  }
  hold();
  /** @type {(() => void) | undefined} */
  let onAbort;
  try {
    return await new Promise((resolve, reject) => {
      waiting.set(number, { resolve, reject, holds: true });
      if (signal !== undefined) {
        onAbort = () => {
          if (!waiting.delete(number)) return;
          letGo();
          hub.cancel(number);
          reject(signal.reason);
        };
        signal.addEventListener('abort', onAbort, { once: true });
      }
    });
  } catch (error) {
    // The error was made on the loop; whoever reads it wants to see who asked.
    if (error instanceof Error && error !== signal?.reason) {
      /** @type {any} */ (Error).captureStackTrace?.(error, call);
    }
    throw error;
  } finally {
    if (onAbort !== undefined) signal?.removeEventListener('abort', onAbort);
  }
}

/**
 * Follows a held lock, without keeping a process or the lock alive. Returns how to stop.
 *
 * `begin` must not be caught by a closure here: a guard that is forgotten has to be collected.
 * @param {any} hub where the lock is held
 * @param {(call: number) => any} begin
 * @param {import('./port.js').Told} told
 * @returns {() => void}
 */
function follow(hub, begin, told) {
  const number = nextNumber();
  const reply = begin(number);
  if (reply !== false) {
    // Told later, as always: the caller is not done yet.
    queueMicrotask(() => (isFault(reply) ? told(undefined, errorOf(reply)) : told(reply, undefined)));
    return () => {};
  }
  waiting.set(number, {
    resolve: (value) => told(value, undefined),
    reject: (error) => told(undefined, error),
    holds: false,
  });
  return () => {
    if (waiting.delete(number)) hub.cancel(number);
  };
}

export { call, follow, hubFor };
