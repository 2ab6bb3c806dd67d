// A Redis server of our own, and what it has counted.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { Redis } from 'ioredis';

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Starts a server without persistence. */
export async function startRedis() {
  const folder = mkdtempSync(join(tmpdir(), 'polylatch-bench-'));
  const port = await freePort();
  const words = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', folder];
  const child = spawn('redis-server', words, { stdio: 'ignore' });
  const control = new Redis(port, '127.0.0.1', { retryStrategy: () => 50, maxRetriesPerRequest: 200 });
  control.on('error', () => {});
  while ((await control.ping().catch(() => '')) !== 'PONG') await sleep(20);
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    /**
     * How often the named commands were sent so far. What a script calls is counted too, so only such
     * commands may be named as no script of the peer calls.
     */
    async commands(names) {
      const text = await control.info('commandstats');
      let sent = 0;
      for (const [, name, calls] of text.matchAll(/^cmdstat_(\w+):calls=(\d+)/gm)) {
        if (names.includes(name)) sent += Number(calls);
      }
      return sent;
    },
    async clear() {
      await control.flushall();
      await control.config('RESETSTAT');
    },
    stop() {
      control.disconnect();
      child.kill('SIGKILL');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
