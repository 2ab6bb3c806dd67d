// The stores that the tests run against: in the process, in a file, and on a real server.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, connect as dial } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

let runs = 0;

/** A name that no other test uses. */
export function unique(name) {
  runs += 1;
  return `${name}-${process.pid}-${runs}`;
}

/** Keeps the loop from running. */
export function block(millis) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, millis);
}

/** Asks until something is so. */
export async function eventually(what, so, within = 20_000) {
  const deadline = Date.now() + within;
  while (!(await so())) {
    if (Date.now() > deadline) throw new Error(`still not: ${what}`);
    await sleep(10);
  }
}

export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

function answers(port) {
  return new Promise((resolve) => {
    const socket = dial(port, '127.0.0.1', () => socket.write('PING\r\n'));
    const end = (good) => {
      socket.destroy();
      resolve(good);
    };
    socket.on('data', (data) => end(data.toString().startsWith('+PONG')));
    socket.on('error', () => end(false));
  });
}

/** Starts a server with nothing but what the tests put into it; it ends with the tests of this file. */
export async function startRedis(folder) {
  // A port that was free may be taken by the time it is used: then the server ends, and another is tried.
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const port = await freePort();
    const words = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', folder];
    const child = spawn('redis-server', words, { stdio: 'ignore' });
    let ended = false;
    child.once('exit', () => {
      ended = true;
    });
    child.once('error', () => {
      ended = true;
    });
    const deadline = Date.now() + 20_000;
    while (!ended && Date.now() < deadline) {
      if (await answers(port)) return { url: `redis://127.0.0.1:${port}`, child };
      await sleep(20);
    }
    child.kill('SIGKILL');
  }
  throw new Error('redis-server does not start; is it installed?');
}

/** Whether this package keeps a lease after its release, where the store can. */
export const keepsLeases = true;

/**
 * The stores, as pairs of a name and a URL. `shared` leaves out what lives in one process. More of them
 * come from POLYLATCH_TEST_URLS, separated by spaces.
 */
export async function stores({ shared = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'polylatch-node-'));
  const redis = await startRedis(folder);
  after(() => {
    redis.child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  });
  const given = (process.env.POLYLATCH_TEST_URLS ?? '').split(' ').filter((url) => url !== '');
  return [
    ...(shared ? [] : [['memory', `memory:${unique('tests')}`]]),
    ['sqlite', `sqlite:${join(folder, 'locks.db')}`],
    ['redis', redis.url],
    ...given.map((url) => [url.split(':')[0], url]),
  ];
}
