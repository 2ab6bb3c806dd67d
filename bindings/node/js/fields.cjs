'use strict';
// What the store says, with names as JavaScript has them.

/** Fields that are fencing tokens: numbers that a program hands on, not amounts. */
const TOKENS = new Set(['fencing_token', 'present']);

/** @param {string} text */
function fieldsOf(text) {
  return renamed(JSON.parse(text));
}

/**
 * The numbers of a client, as text or as they are. Codes keep their names.
 * @param {any} given
 */
function statsOf(given) {
  const { losses, errors, ...others } = typeof given === 'string' ? JSON.parse(given) : given;
  return { ...renamed(others), losses, errors };
}

/**
 * @param {any} value
 * @returns {any}
 */
function renamed(value) {
  if (Array.isArray(value)) return value.map(renamed);
  if (typeof value !== 'object' || value === null) return value;
  let hasToken = false;
  const entries = Object.entries(value).map(([key, inner]) => {
    const name = key.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
    const isToken = TOKENS.has(key) && typeof inner === 'number';
    hasToken ||= isToken;
    return [name, isToken ? BigInt(inner) : renamed(inner)];
  });
  const made = Object.fromEntries(entries);
  if (hasToken) Object.defineProperty(made, 'toJSON', { value: withNumbers });
  return made;
}

/**
 * JSON has no big integers, and tokens are below 2^53.
 * @this {Record<string, any>}
 */
function withNumbers() {
  const plain = Object.entries(this).map(([name, value]) => [
    name,
    typeof value === 'bigint' ? Number(value) : value,
  ]);
  return Object.fromEntries(plain);
}

module.exports = { fieldsOf, renamed, statsOf };
