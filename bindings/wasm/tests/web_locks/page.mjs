// Runs every check against the browser's own locks and against ours, and leaves what failed in `outcome`.

import { connect } from '/node_modules/polylatch-wasm/js/index.mjs';
import { BEHAVIOURS, DIFFERENCES } from './behaviours.mjs';
import { failures } from './checks.mjs';

/** The locks of another document: a client of the browser's own. */
async function frame() {
  const element = document.createElement('iframe');
  element.src = 'blank.html';
  const loaded = new Promise((resolve) => element.addEventListener('load', resolve, { once: true }));
  document.body.append(element);
  await loaded;
  return { locks: element.contentWindow.navigator.locks, end: async () => element.remove() };
}

const store = 'memory:web-locks';

async function another() {
  const client = await connect(store);
  return { locks: client.locks, end: () => client.close() };
}

async function outcome() {
  const real = { locks: navigator.locks, other: frame, prefix: 'real' };
  const ours = { ...(await another()), other: another, prefix: 'ours' };
  const differences = (which) =>
    DIFFERENCES.map((difference) => ({ what: difference.what, run: difference[which] }));
  return {
    checks: BEHAVIOURS.length,
    real: await failures(real, BEHAVIOURS),
    ours: await failures(ours, BEHAVIOURS),
    realDifferences: await failures(real, differences('real')),
    ourDifferences: await failures(ours, differences('ours')),
  };
}

window.outcome = await outcome().catch((error) => ({ error: String(error?.stack ?? error) }));
