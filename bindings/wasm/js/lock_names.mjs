// Names of Web Locks, which may be any text, as names of locks, which are not empty and have neither control
// characters nor halves of surrogate pairs. Names of Web Locks never begin with "-", so what does is free for those:
// they are stored as "-" and the name as JSON.

const IS_NAME = /^[^\p{Cc}\p{Surrogate}]+$/u;

/** @param {string} character */
function escaped(character) {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/**
 * Under which name a lock is in the store.
 * @param {string} name
 */
function stored(name) {
  // JSON escapes the other control characters itself.
  return IS_NAME.test(name) ? name : `-${JSON.stringify(name).replace(/[\x7f-\x9f]/g, escaped)}`;
}

/**
 * The name of a lock in the store, as it was asked for. One that others have made up stays as it is.
 * @param {string} name
 */
function fromStored(name) {
  if (!name.startsWith('-"')) return name;
  try {
    const original = JSON.parse(name.slice(1));
    return stored(original) === name ? original : name;
  } catch {
    return name;
  }
}

export { fromStored, stored };
