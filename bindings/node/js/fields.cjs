'use strict';
// What the store says, with names as JavaScript has them.

/** Fields that are fencing tokens: numbers that a program hands on, not amounts. */
const TOKENS = new Set(['fencing_token', 'present']);

/** @param {string} text */
function fieldsOf(text) {
  return renamed(JSON.parse(text));
}

/**
 * @param {any} value
 * @returns {any}
 */
function renamed(value) {
  if (Array.isArray(value)) return value.map(renamed);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, inner]) => {
    const name = key.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
    return [name, TOKENS.has(key) && typeof inner === 'number' ? BigInt(inner) : renamed(inner)];
  });
  return Object.fromEntries(entries);
}

module.exports = { fieldsOf };
