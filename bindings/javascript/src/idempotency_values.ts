// What all forms of idempotent work share: values as bytes, and what becomes of a failure.

import { wrongType } from './errors.js';
import type { Encoding, NativeRunOptions } from './idempotency.js';
import { WorkFailedError } from './idempotency_errors.js';
import { mustBe, mustBeObject, mustBeText, onlyKnown } from './options.js';
import type { Fault } from './port.js';

/** Refuses what is no encoding. */
export function checkedEncoding(given: unknown): Encoding {
  if (given === undefined || given === 'json' || given === 'bytes') return given ?? 'json';
  throw wrongType(`encoding is ${JSON.stringify(given)}; it must be 'json' or 'bytes'`);
}

/** Writes a result as it is stored. A TypeError for what cannot be written. */
export function encode(encoding: Encoding, value: unknown): Uint8Array {
  if (encoding === 'json') return text(JSON.stringify(value === undefined ? null : value) ?? 'null');
  if (value instanceof Uint8Array) return value;
  throw wrongType(
    `a result in the encoding 'bytes' must be a Uint8Array, not a value of type ${typeof value}`,
  );
}

/** Reads a result. */
export function decode(encoding: Encoding, stored: Uint8Array): any {
  return encoding === 'json' ? JSON.parse(new TextDecoder().decode(stored)) : stored;
}

function text(value: string): Uint8Array {
  return new TextEncoder().encode(value);
}

/** What repetitions get of an error that says nothing of them. */
export function described(thrown: unknown): Uint8Array {
  const [error, message] =
    thrown instanceof Error ? [thrown.name, thrown.message] : [typeof thrown, String(thrown)];
  return text(JSON.stringify({ error, message }));
}

/** What repetitions get of work that threw. */
export function failureBytes(encoding: Encoding, thrown: unknown): Uint8Array {
  return thrown instanceof WorkFailedError ? encode(encoding, thrown.answer) : described(thrown);
}

/** The error that stands for a stored failure. */
export function replayedFailure(encoding: Encoding, fault: Fault, answer: Uint8Array): WorkFailedError {
  let read: unknown = answer;
  try {
    read = decode(encoding, answer);
  } catch {
    // Stored by a program with another encoding.
  }
  return new WorkFailedError(fault, { answer: read, replayed: true });
}

/** Equal payloads are equal bytes, whatever the order of their keys. */
export function payloadBytes(payload: unknown): Uint8Array {
  if (payload instanceof Uint8Array) return payload;
  if (typeof payload === 'string') return text(payload);
  return text(JSON.stringify(sorted(payload)) ?? 'null');
}

function sorted(value: any): any {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null || typeof value.toJSON === 'function') return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((key) => [key, sorted(value[key])]),
  );
}

/**
 * Checks the options of work: the types of `types`, and that there are no others but `payload` and `others`. Returns all of
 * them, and what the part in Rust takes.
 */
export function workOptions(
  given: unknown,
  types: Record<string, 'number' | 'string' | 'boolean'>,
  others: string[],
): { options: Record<string, any>; native: NativeRunOptions } {
  const options = mustBeObject('options', given);
  onlyKnown(options, [...Object.keys(types), 'payload', ...others]);
  const native: Record<string, any> = {};
  for (const [name, type] of Object.entries(types)) {
    const value = options[name];
    if (value === undefined) continue;
    if (type === 'string') mustBeText(name, value);
    else mustBe(name, value, type);
    // The core waits without limit by default; infinity is no length of time.
    if (name !== 'wait' || value !== Number.POSITIVE_INFINITY) native[name] = value;
  }
  if (options.payload !== undefined) native.payload = payloadBytes(options.payload);
  return { options, native };
}
