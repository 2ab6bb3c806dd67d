// What is said of Web Locks in `behaviours.mjs` is true of the browser's own, and of ours in the same page.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { after, test } from 'node:test';

import { ENGINES } from '../browsers.mjs';
import { DIFFERENCES } from './behaviours.mjs';

const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
};

// The folder into which the package is installed, with these tests in it. Browsers have locks at localhost only.
const server = createServer(async (request, response) => {
  const path = normalize(new URL(request.url, 'http://localhost').pathname);
  const content = await readFile(join(process.cwd(), path)).catch(() => undefined);
  if (content === undefined) return response.writeHead(404).end();
  return response.writeHead(200, { 'Content-Type': TYPES[extname(path)] ?? 'text/plain' }).end(content);
}).listen(0, '127.0.0.1');
await once(server, 'listening');
after(() => {
  server.close();
  server.closeAllConnections();
});

/** Where an engine itself departs from the specification. */
const DEPARTURES = {
  webkit: [
    // It rejects with an AbortError of its own.
    'a signal that is aborted already rejects with its reason',
    // It rejects what the others leave pending, of which the specification says nothing.
    'a request of a client that ended',
  ],
};

for (const [engine, start] of Object.entries(ENGINES)) {
  test(`the locks of ${engine} and ours behave alike`, { timeout: 300_000 }, async (t) => {
    const browser = await start();
    t.after(() => browser.close());
    const page = await browser.open(`http://127.0.0.1:${server.address().port}/tests/web_locks/index.html`);
    await page.until('window.outcome !== undefined');
    const { error, checks, ...failed } = JSON.parse(await page.read('JSON.stringify(window.outcome)'));
    assert.equal(error, undefined);
    t.diagnostic(`${browser.version}: ${checks} checks of each, and ${DIFFERENCES.length} differences`);
    for (const { what, why } of DIFFERENCES) t.diagnostic(`different: ${what}: ${why}`);
    for (const what of DEPARTURES[engine] ?? []) {
      delete failed.real[what];
      delete failed.realDifferences[what];
    }
    assert.deepEqual(failed, { real: {}, ours: {}, realDifferences: {}, ourDifferences: {} });
    assert.ok(checks >= 30, `${checks} checks`);
  });
}
