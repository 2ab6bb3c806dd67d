// The package in Bun, Deno and workerd, as they are published: the same story in each, on every kind of store.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';

import { startConsul } from '../consul.mjs';
import { startEtcd } from '../etcd.mjs';
import { unique } from '../node-stores.mjs';
import { respConnection } from '../resp.mjs';
import { stores } from '../stores.mjs';

const here = import.meta.dirname;
const scratch = mkdtempSync(join(tmpdir(), 'polylatch-runtimes-'));
const [agent, member] = await Promise.all([startConsul(), startEtcd()]);
const [, [, redis]] = await stores();
const places = { memory: 'memory:story', consul: agent.url, etcd: member.url, redis };
after(() => {
  agent.stop();
  member.stop();
  rmSync(scratch, { recursive: true, force: true });
});

// As the packages for this platform have them: those of the names are there only once their scripts have run.
const [cpu, arm] = process.arch === 'arm64' ? ['arm64', true] : ['x64', false];
const programs = {
  Bun: `@oven/bun-linux-${arm ? 'aarch64' : cpu}/bin/bun`,
  Deno: `@deno/linux-${cpu}-glibc/deno`,
  esbuild: `@esbuild/linux-${cpu}/bin/esbuild`,
  workerd: `@cloudflare/workerd-linux-${arm ? cpu : '64'}/bin/workerd`,
};
const program = (name) => join(here, 'node_modules', programs[name]);
/** Nothing here takes longer, also on a loaded machine: what hangs is killed and fails. */
const timeout = 90_000;
const env = { ...process.env, DENO_DIR: scratch, DENO_NO_UPDATE_CHECK: '1' };
const run = (name, ...words) => promisify(execFile)(program(name), words, { cwd: here, env, timeout });

const starts = { Bun: [], Deno: ['run', '--allow-all', '--node-modules-dir=manual'] };
for (const [runtime, words] of Object.entries(starts)) {
  describe(runtime, () => {
    for (const [store, url] of Object.entries(places)) {
      test(`locks on ${store}`, async () => {
        const { stdout } = await run(runtime, ...words, 'here.mjs', store, url, unique('story'));
        assert.equal(stdout.trim(), 'done');
      });
    }
  });
}

/** Answers as such proxies do: a command as a JSON list, and its result. */
function startProxy() {
  const { hostname, port } = new URL(redis);
  const connection = respConnection(hostname, Number(port));
  const proxy = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const answer = await connection.command(JSON.parse(Buffer.concat(parts))).then(
      (result) => ({ result }),
      (error) => ({ error: error.message }),
    );
    response.end(JSON.stringify(answer));
  });
  return new Promise((resolve) => proxy.listen(0, '127.0.0.1', () => resolve(proxy)));
}

/** Starts a worker made by a bundler, as they are deployed; returns the process and its port. */
async function startWorker() {
  const asked = ['--bundle', '--format=esm', '--conditions=workerd', '--loader:.wasm=copy'];
  await run('esbuild', 'worker.mjs', ...asked, `--outdir=${scratch}/worker`, '--log-level=error');
  const modules = readdirSync(join(scratch, 'worker')).map((name) => {
    const kind = name.endsWith('.wasm') ? 'wasm' : 'esModule';
    return `(name = "${name}", ${kind} = embed "worker/${name}")`;
  });
  // The first one is the program.
  modules.sort((one, other) => one.includes('.wasm') - other.includes('.wasm'));
  writeFileSync(
    join(scratch, 'config.capnp'),
    `using Workerd = import "/workerd/workerd.capnp";
    const config :Workerd.Config = (
      services = [
        (name = "main", worker = (
          modules = [${modules.join(', ')}],
          compatibilityDate = "2026-10-01",
          globalOutbound = "local",
        )),
        (name = "local", network = (allow = ["local", "private"])),
      ],
      sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
    );`,
  );
  const words = ['serve', '--control-fd=3', join(scratch, 'config.capnp')];
  const worker = spawn(program('workerd'), words, { stdio: ['ignore', 'inherit', 'inherit', 'pipe'] });
  for await (const line of createInterface({ input: worker.stdio[3] })) {
    const { event, port } = JSON.parse(line);
    if (event === 'listen') return { worker, port };
  }
  throw new Error('workerd does not start');
}

describe('workerd', () => {
  let proxy;
  let started;
  before(async () => {
    proxy = await startProxy();
    started = await startWorker();
  });
  after(async () => {
    proxy?.close();
    proxy?.closeAllConnections();
    if (started === undefined) return;
    const gone = once(started.worker, 'exit');
    started.worker.kill('SIGKILL');
    await gone;
  });

  for (const store of Object.keys(places)) {
    test(`locks on ${store}`, async () => {
      const url = store === 'redis' ? `http://127.0.0.1:${proxy.address().port}` : places[store];
      const asked = new URLSearchParams({ store, url, name: unique('story') });
      const signal = AbortSignal.timeout(timeout);
      const response = await fetch(`http://127.0.0.1:${started.port}/?${asked}`, { signal });
      assert.equal(await response.text(), 'done');
    });
  }
});
