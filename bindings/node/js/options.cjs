'use strict';
// What a caller may say: types and known names. Ranges and defaults are the core's.

const { wrongType } = require('./errors.cjs');

/** @type {Record<string, 'number' | 'string' | 'boolean' | 'signal'>} */
const LOCK_OPTIONS = {
  lease: 'number',
  wait: 'number',
  label: 'string',
  owner: 'string',
  maxHold: 'number',
  beatEvery: 'number',
  fifo: 'boolean',
  renew: 'boolean',
  signal: 'signal',
};

/** @param {unknown} value */
function shown(value) {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`;
}

/**
 * @param {string} what
 * @param {unknown} value
 * @param {string} type
 */
function mustBe(what, value, type) {
  if (typeof value !== type) throw wrongType(`${what} must be a ${type}, not ${shown(value)}`);
  return /** @type {any} */ (value);
}

/**
 * A text that names something. Half a character would be replaced on the way, so that two names become one.
 * @param {string} what
 * @param {unknown} value
 * @returns {string}
 */
function mustBeText(what, value) {
  const text = mustBe(what, value, 'string');
  if (/\p{Surrogate}/u.test(text)) {
    throw wrongType(
      `${what} is ${JSON.stringify(text)}, which has half of a surrogate pair; it must be well-formed Unicode (see String.prototype.toWellFormed)`,
    );
  }
  return text;
}

/**
 * @param {string} what
 * @param {unknown} value
 */
function mustBeObject(what, value) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw wrongType(`${what} must be an object, not ${shown(value)}`);
  }
}

/**
 * @param {unknown} value
 * @returns {AbortSignal}
 */
function mustBeSignal(value) {
  // By what it can do: signals come from other realms and from libraries, too.
  const signal = /** @type {any} */ (value);
  if (typeof signal?.aborted === 'boolean' && typeof signal.addEventListener === 'function') return signal;
  throw wrongType(`signal must be an AbortSignal, not ${shown(value)}`);
}

/**
 * Checks the options of one acquisition. Returns what the native part takes, and the signal.
 * @param {unknown} given
 * @param {boolean} [waits] whether `wait` can be said
 * @returns {{ native: Record<string, any> | undefined, signal: AbortSignal | undefined }}
 */
function lockOptions(given, waits = true) {
  if (given === undefined) return { native: undefined, signal: undefined };
  mustBeObject('options', given);
  /** @type {Record<string, any>} */
  const native = {};
  let signal;
  for (const key of Object.keys(/** @type {object} */ (given))) {
    const value = /** @type {any} */ (given)[key];
    const type = Object.hasOwn(LOCK_OPTIONS, key) ? LOCK_OPTIONS[key] : undefined;
    if (type === undefined || (key === 'wait' && !waits)) throw unknownOption(key, waits);
    if (value === undefined) continue;
    if (type === 'signal') {
      signal = mustBeSignal(value);
    } else {
      if (type === 'string') mustBeText(key, value);
      else mustBe(key, value, type);
      // Waiting for ever is the core's own way, not a length of time.
      if (key !== 'wait' || value !== Number.POSITIVE_INFINITY) native[key] = value;
    }
  }
  return { native, signal };
}

/**
 * @param {string} key
 * @param {boolean} waits
 */
function unknownOption(key, waits) {
  const known = Object.keys(LOCK_OPTIONS).filter((known) => waits || known !== 'wait');
  const hint = key === 'wait' ? ' (trying does not wait)' : '';
  return wrongType(`there is no option ${JSON.stringify(key)} here${hint}; there are ${known.join(', ')}`);
}

/**
 * Checks what a client is connected with. Options of the store go under the core's names.
 * @param {unknown} given
 */
function connectOptions(given) {
  /** @type {{ key: string, value: number | boolean | string }[]} */
  const options = [];
  /** @type {string | undefined} */
  let program;
  /** @type {AbortSignal | undefined} */
  let signal;
  if (given !== undefined) {
    mustBeObject('options', given);
    for (const [name, value] of Object.entries(/** @type {object} */ (given))) {
      if (value === undefined) continue;
      if (name === 'program') program = mustBe(name, value, 'string');
      else if (name === 'signal') signal = mustBeSignal(value);
      else {
        if (!['number', 'boolean', 'string'].includes(typeof value)) {
          throw wrongType(`${name} must be a number, a string or a boolean, not ${shown(value)}`);
        }
        options.push({ key: name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value });
      }
    }
  }
  return { options, program, signal };
}

/**
 * Checks a fencing token; what it returns fits 64 bits.
 * @param {string} what
 * @param {unknown} value
 */
function mustBeToken(what, value) {
  if (typeof value !== 'bigint') throw wrongType(`${what} must be a bigint, not ${shown(value)}`);
  if (value < 0n || value >= 2n ** 64n)
    throw wrongType(`${what} is ${value}; fencing tokens are 0 to 2^64 - 1`);
  return value;
}

/**
 * Refuses what is not known.
 * @param {object} given
 * @param {string[]} known
 */
function onlyKnown(given, known) {
  for (const key of Object.keys(given)) {
    if (!known.includes(key)) {
      throw wrongType(`there is no option ${JSON.stringify(key)} here; there are ${known.join(', ')}`);
    }
  }
}

module.exports = { lockOptions, connectOptions, mustBe, mustBeText, mustBeObject, mustBeToken, onlyKnown };
