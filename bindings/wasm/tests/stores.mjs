// The stores that the shared tests run against; see bindings/node/tests/stores.mjs.

import { stores as all } from './node-stores.mjs';

export { eventually, unique } from './node-stores.mjs';

/** A page or worker keeps no lease. */
export const keepsLeases = false;

/** Those that a JavaScript host reaches: in the process, and Redis over a connection of its own. */
export async function stores(asked) {
  return (await all(asked)).filter(([name]) => name !== 'sqlite');
}
