'use strict';
// What a caller may say: types and known names. Ranges and defaults are the core's.

const { wrongType } = require('./errors.cjs');

/** @type {Record<string, 'number' | 'string' | 'boolean'>} */
const LOCK_OPTIONS = {
  lease: 'number',
  wait: 'number',
  label: 'string',
  owner: 'string',
  maxHold: 'number',
  beatEvery: 'number',
  fifo: 'boolean',
  renew: 'boolean',
};

/** What a call that may wait takes. */
const CALL_OPTIONS = ['signal'];

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
 * Checks the options of a lock. Returns what the native part takes.
 * @param {unknown} given
 * @returns {Record<string, any> | undefined}
 */
function lockOptions(given) {
  if (given === undefined) return undefined;
  mustBeObject('options', given);
  /** @type {Record<string, any>} */
  const native = {};
  for (const key of Object.keys(/** @type {object} */ (given))) {
    const value = /** @type {any} */ (given)[key];
    const type = Object.hasOwn(LOCK_OPTIONS, key) ? LOCK_OPTIONS[key] : undefined;
    if (type === undefined) {
      const hint = key === 'signal' ? ' (it ends a wait, so acquire({ signal }) takes it)' : '';
      throw unknownOption(key, hint, Object.keys(LOCK_OPTIONS));
    }
    if (value === undefined) continue;
    if (type === 'string') mustBeText(key, value);
    else mustBe(key, value, type);
    // The core waits without limit by default; infinity is no length of time.
    if (key !== 'wait' || value !== Number.POSITIVE_INFINITY) native[key] = value;
  }
  return native;
}

/**
 * Checks the options of a call that acquires. Returns the signal.
 * @param {unknown} given
 * @returns {AbortSignal | undefined}
 */
function callSignal(given) {
  if (given === undefined) return undefined;
  mustBeObject('options', given);
  for (const key of Object.keys(/** @type {object} */ (given))) {
    if (CALL_OPTIONS.includes(key)) continue;
    const hint = Object.hasOwn(LOCK_OPTIONS, key) ? ` (client.lock(name, { ${key} }) takes it)` : '';
    throw unknownOption(key, hint, CALL_OPTIONS);
  }
  const { signal } = /** @type {any} */ (given);
  return signal === undefined ? undefined : mustBeSignal(signal);
}

/**
 * Separates the options of a lock from those of the call that acquires it.
 * @param {unknown} given
 * @returns {[unknown, { signal?: unknown } | undefined]}
 */
function callOptionsApart(given) {
  if (given === undefined) return [undefined, undefined];
  mustBeObject('options', given);
  const { signal, ...ofLock } = /** @type {any} */ (given);
  return [ofLock, { signal }];
}

/**
 * @param {string} key
 * @param {string} hint
 * @param {string[]} known
 */
function unknownOption(key, hint, known) {
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
    if (!known.includes(key)) throw unknownOption(key, '', known);
  }
}

module.exports = {
  callOptionsApart,
  callSignal,
  connectOptions,
  lockOptions,
  mustBe,
  mustBeObject,
  mustBeText,
  mustBeToken,
  onlyKnown,
};
