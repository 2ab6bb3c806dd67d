'use strict';
// Makes promises of the native part's calls.

const { Hub } = require('./native.cjs');
const { errorOf } = require('./errors.cjs');

/** @typedef {{ resolve: (value: any) => void, reject: (error: unknown) => void, holds: boolean }} Waiting */

/** @type {Map<number, Waiting>} Calls that have not ended, by number. */
const waiting = new Map();
/** How many of them keep the process alive. */
let holding = 0;
let last = 0;

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
  for (let index = 0; index < ended.length; index += 2) {
    const call = ended[index];
    const entry = waiting.get(call);
    if (entry === undefined) continue;
    waiting.delete(call);
    if (entry.holds) letGo();
    const value = ended[index + 1];
    if (isFault(value)) entry.reject(errorOf(value));
    else entry.resolve(value);
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
 * @template T
 * @param {(call: number) => any} begin
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
async function call(begin, signal) {
  signal?.throwIfAborted();
  last += 1;
  const number = last;
  const reply = begin(number);
  if (reply !== false) {
    if (isFault(reply)) throw errorOf(reply);
    return reply;
  }
  if (holding === 0) alive.ref();
  holding += 1;
  /** @type {(() => void) | undefined} */
  let onAbort;
  try {
    return await new Promise((resolve, reject) => {
      waiting.set(number, { resolve, reject, holds: true });
      if (signal !== undefined) {
        onAbort = () => {
          if (!waiting.delete(number)) return;
          letGo();
          // What has ended already, and was not collected yet, is given back too.
          hub.cancel(number);
          reject(signal.reason);
        };
        signal.addEventListener('abort', onAbort, { once: true });
      }
    });
  } catch (error) {
    // The error was made on the loop; whoever reads it wants to see who asked.
    if (error instanceof Error && error !== signal?.reason) Error.captureStackTrace(error, call);
    throw error;
  } finally {
    if (onAbort !== undefined) signal?.removeEventListener('abort', onAbort);
  }
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
  last += 1;
  const number = last;
  const reply = hub[what](number, native);
  if (reply !== false) {
    // Told later, as always: the caller is not done yet.
    queueMicrotask(() => (isFault(reply) ? ended(undefined, errorOf(reply)) : ended(reply, undefined)));
    return () => {};
  }
  waiting.set(number, {
    resolve: (value) => ended(value, undefined),
    reject: (error) => ended(undefined, error),
    holds: false,
  });
  return () => {
    if (waiting.delete(number)) hub.cancel(number);
  };
}

module.exports = { hub, call, follow, isFault };
