'use strict';
// Finds the native part: a package of its own for each platform, put there by npm. Nothing is
// downloaded and nothing is compiled at installation.

const platforms = require('./platforms.json');

/** Which C library this Linux has. */
function libc() {
  // Only glibc reports its version.
  const report = /** @type {any} */ (process.report?.getReport());
  return report?.header?.glibcVersionRuntime ? 'glibc' : 'musl';
}

/** The name of this platform, or of the one that there is no package for. */
function platformName() {
  const { platform, arch } = process;
  for (const [name, row] of Object.entries(platforms)) {
    if (row.os !== platform || row.cpu !== arch) continue;
    if (!('libc' in row) || row.libc === libc()) return name;
  }
  return undefined;
}

function load() {
  const name = platformName();
  if (name === undefined) {
    const known = Object.keys(platforms).join(', ');
    throw new Error(
      `Polylatch has no native package for ${process.platform} ${process.arch}; there are ${known}`,
    );
  }
  try {
    return require(`@polylatch/${name}`);
  } catch (error) {
    if (/** @type {any} */ (error)?.code !== 'MODULE_NOT_FOUND') throw error;
    throw new Error(
      `The package @polylatch/${name} is missing. npm installs it as an optional dependency of polylatch: ` +
        'install again without --omit=optional, and not with a node_modules folder of another platform.',
      { cause: error },
    );
  }
}

module.exports = /** @type {typeof import('./native')} */ (load());
