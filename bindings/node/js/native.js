// Finds the native part: one file for each platform, inside the package. Nothing is downloaded and nothing is compiled at
// installation, and no second package has to be there: `npm install --omit=optional`, or a lock file written on another
// platform, takes nothing away.

const platforms = require('./platforms.json');

/** The platforms that may be this machine's: on Linux one for each C library. */
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
      `Polylatch has no native part for ${process.platform} ${process.arch}; there are ${known}`,
    );
  }
  /** @type {unknown[]} */
  const errors = [];
  // Asking Node which C library it has would take longer than to try.
  for (const name of names) {
    try {
      return require(`../native/${name}.node`);
    } catch (error) {
      if (/** @type {any} */ (error)?.code !== 'MODULE_NOT_FOUND') errors.unshift(error);
      else errors.push(error);
    }
  }
  throw new Error(
    `This package of Polylatch has no native part that loads here (${names.join(', ')}). Install the package that was ` +
      'built for this platform.',
    { cause: errors[0] },
  );
}

module.exports = /** @type {typeof import('./native')} */ (load());
