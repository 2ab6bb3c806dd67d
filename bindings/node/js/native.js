// Finds the native part: a package of its own for each platform, put there by npm. Nothing is
// downloaded and nothing is compiled at installation.

const platforms = require('./platforms.json');

/** The packages that may fit this machine: on Linux one for each C library. */
function candidates() {
  const fits = Object.entries(platforms).filter(
    ([, row]) => row.os === process.platform && row.cpu === process.arch,
  );
  return fits.map(([name]) => name);
}

function load() {
  const names = candidates();
  if (names.length === 0) {
    const known = Object.keys(platforms).join(', ');
    throw new Error(
      `Polylatch has no native package for ${process.platform} ${process.arch}; there are ${known}`,
    );
  }
  /** @type {unknown[]} */
  const errors = [];
  // npm installs the one that fits. Asking Node which C library it has would take longer than to try.
  for (const name of names) {
    try {
      return require(`@polylatch/${name}`);
    } catch (error) {
      if (/** @type {any} */ (error)?.code !== 'MODULE_NOT_FOUND') errors.unshift(error);
      else errors.push(error);
    }
  }
  throw new Error(
    `No native part of Polylatch can be loaded (${names.map((name) => `@polylatch/${name}`).join(', ')}). npm ` +
      'installs it as an optional dependency of polylatch: install again without --omit=optional, and not ' +
      'with a node_modules folder of another platform.',
    { cause: errors[0] },
  );
}

module.exports = /** @type {typeof import('./native')} */ (load());
