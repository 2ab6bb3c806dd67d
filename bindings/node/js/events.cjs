'use strict';
// What happens to locks, for the callbacks of clients, for node:diagnostics_channel, and for the log.

const { channel } = require('node:diagnostics_channel');

const { fieldsOf } = require('./fields.js');

/** @typedef {(event: any) => void} OnEvent */

/** @type {Map<number, OnEvent>} The callbacks of clients, by the numbers that these were connected with. */
const listeners = new Map();
let last = 0;

/**
 * The channels of events below a warning, by the least level at which these come: 0 debug, 1 info. Such events are made
 * for channels only while one has a subscriber.
 */
const CHANNELS = [
  ['acquired', 'released', 'renewal_failed'],
  ['waiting', 'store_reachable', 'notice'],
].map((names) => names.map((name) => channel(`polylatch:${name}`)));
const WARNINGS = CHANNELS.length;

/**
 * Keeps the callback of a client until it is closed. Returns its number, 0 for none.
 * @param {OnEvent | undefined} onEvent
 */
function listen(onEvent) {
  if (onEvent === undefined) return 0;
  last += 1;
  listeners.set(last, onEvent);
  return last;
}

/** @param {number} number */
function forget(number) {
  listeners.delete(number);
}

/** @param {import('./native').Hub} native */
function followChannels(native) {
  const least = CHANNELS.findIndex((channels) => channels.some((one) => one.hasSubscribers));
  native.want(least < 0 ? WARNINGS : least);
}

/**
 * Hands over what has come up.
 * @param {import('./native').Hub} native
 */
function handOver(native) {
  /** @type {[any, number | null][]} */
  const heard = fieldsOf(native.events() ?? '[]');
  for (const [event, number] of heard) {
    if (event === null) {
      if (number !== null) listeners.delete(number);
    } else {
      tell(event, number === null ? undefined : listeners.get(number));
    }
  }
  if (heard.length > 0) followChannels(native);
}

/**
 * @param {any} event
 * @param {OnEvent | undefined} onEvent
 */
function tell(event, onEvent) {
  const named = channel(`polylatch:${event.event}`);
  // A set-up that may break a promise is no secret of those who thought of listening.
  if (event.event === 'setup_warning' && onEvent === undefined && !named.hasSubscribers) {
    const detail = [event.which, event.findings].filter((part) => part !== undefined).join(': ');
    process.emitWarning(event.message, { type: 'PolylatchWarning', code: 'setup_warning', detail });
  }
  named.publish(event);
  if (onEvent === undefined) return;
  try {
    onEvent(event);
  } catch (error) {
    // As of a listener of an EventTarget: the others are told, and the program hears of it.
    process.nextTick(() => {
      throw error;
    });
  }
}

module.exports = { listen, forget, followChannels, handOver };
