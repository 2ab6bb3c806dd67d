// What a caller may say: types and known names. Ranges and defaults are the core's.

import { wrongType } from './errors.js';
import type { Options } from './port.js';

const LOCK_OPTIONS: Record<string, 'number' | 'string' | 'boolean'> = {
  lease: 'number',
  wait: 'number',
  label: 'string',
  owner: 'string',
  maxHold: 'number',
  beatEvery: 'number',
  fifo: 'boolean',
  renew: 'boolean',
  keepIdle: 'number',
};

/** What a call that acquires takes. */
const CALL_OPTIONS = ['signal'];

function shown(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`;
}

export function mustBe(what: string, value: unknown, type: string): any {
  if (typeof value !== type) throw wrongType(`${what} must be a ${type}, not ${shown(value)}`);
  return value;
}

/** A text that names something. Half a character would be replaced on the way, so that two names become one. */
export function mustBeText(what: string, value: unknown): string {
  const text = mustBe(what, value, 'string');
  if (/\p{Surrogate}/u.test(text)) {
    throw wrongType(
      `${what} is ${JSON.stringify(text)}, which has half of a surrogate pair; it must be well-formed Unicode (see String.prototype.toWellFormed)`,
    );
  }
  return text;
}

export function mustBeObject(what: string, value: unknown): Record<string, any> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw wrongType(`${what} must be an object, not ${shown(value)}`);
  }
  return value;
}

export function mustBeSignal(value: any): AbortSignal {
  // By what it can do: signals come from other realms and from libraries, too.
  if (typeof value?.aborted === 'boolean' && typeof value.addEventListener === 'function') return value;
  throw wrongType(`signal must be an AbortSignal, not ${shown(value)}`);
}

/** Checks the options of a lock. Returns what the part in Rust takes. */
export function lockOptions(given: unknown): Options {
  if (given === undefined) return undefined;
  const native: Record<string, any> = {};
  for (const [key, value] of Object.entries(mustBeObject('options', given))) {
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

/** Checks the options of a call that acquires. Returns the signal. */
export function callSignal(given: unknown): AbortSignal | undefined {
  if (given === undefined) return undefined;
  const options = mustBeObject('options', given);
  for (const key of Object.keys(options)) {
    if (CALL_OPTIONS.includes(key)) continue;
    const hint = Object.hasOwn(LOCK_OPTIONS, key) ? ` (client.lock(name, { ${key} }) takes it)` : '';
    throw unknownOption(key, hint, CALL_OPTIONS);
  }
  return options.signal === undefined ? undefined : mustBeSignal(options.signal);
}

/** Separates the options of a lock from those of the call that acquires it. */
export function callOptionsApart(given: unknown): [unknown, { signal?: unknown } | undefined] {
  if (given === undefined) return [undefined, undefined];
  const { signal, ...ofLock } = mustBeObject('options', given);
  return [ofLock, { signal }];
}

function unknownOption(key: string, hint: string, known: string[]): TypeError {
  return wrongType(`there is no option ${JSON.stringify(key)} here${hint}; there are ${known.join(', ')}`);
}

/** Refuses what is not known. */
export function onlyKnown(given: object, known: string[]): void {
  for (const key of Object.keys(given)) {
    if (!known.includes(key)) throw unknownOption(key, '', known);
  }
}

/** An option of a client under the core's name. */
export interface ClientOption {
  key: string;
  value: number | boolean | string;
}

/** Checks what a client is connected with. Options of the store go under the core's names. */
export function connectOptions(given: unknown): {
  options: ClientOption[];
  program: string | undefined;
  signal: AbortSignal | undefined;
} {
  const options: ClientOption[] = [];
  let program: string | undefined;
  let signal: AbortSignal | undefined;
  if (given !== undefined) {
    for (const [name, value] of Object.entries(mustBeObject('options', given))) {
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

/** Checks a fencing token; what it returns fits 64 bits. */
export function mustBeToken(what: string, value: unknown): bigint {
  if (typeof value !== 'bigint') throw wrongType(`${what} must be a bigint, not ${shown(value)}`);
  if (value < 0n || value >= 2n ** 64n)
    throw wrongType(`${what} is ${value}; fencing tokens are 0 to 2^64 - 1`);
  return value;
}
