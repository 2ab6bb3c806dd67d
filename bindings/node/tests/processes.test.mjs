// The ends of processes and workers.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';

import { connect } from 'polylatch';

import { eventually, stores, unique } from './stores.mjs';

const actor = fileURLToPath(new URL('./actor.mjs', import.meta.url));

function start(story, url, name, { flags = [] } = {}) {
  return spawn(process.execPath, [...flags, actor, story, url, name], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
}

/** Runs the actor; answers with what it printed and its exit code. */
async function run(story, url, name, options) {
  const child = start(story, url, name, options);
  let said = '';
  child.stdout.on('data', (data) => {
    said += data;
  });
  // Nothing here may take longer, also on a loaded machine; what hangs is killed and fails.
  const kill = setTimeout(() => child.kill('SIGKILL'), 60_000);
  const [code, signal] = await once(child, 'exit');
  clearTimeout(kill);
  return { said, code, signal };
}

for (const [store, url] of await stores({ shared: true })) {
  describe(store, () => {
    const one = async (work) => {
      const client = await connect(url);
      try {
        await work(client, unique('process'));
      } finally {
        await client.close();
      }
    };

    for (const story of ['hold', 'hold-and-listen', 'hold-and-exit', 'hold-and-throw']) {
      test(`a process ends although it holds a lock, which is free then: ${story}`, () =>
        one(async (client, name) => {
          const { said, code, signal } = await run(story, url, name);
          assert.match(said, /held/);
          assert.deepEqual([code, signal], [story === 'hold-and-throw' ? 7 : 0, null]);
          const guard = await client.lock(name, { wait: 0 }).acquire();
          await guard.release();
        }));
    }

    test('a process that waits for a lock stays until it has it', () =>
      one(async (client, name) => {
        const held = await client.lock(name).acquire();
        const ended = run('wait', url, name);
        await eventually(
          'it waits',
          async () => (await client.inspect({ name })).locks[0].waiters.length === 1,
        );
        await held.release();
        const { said, code } = await ended;
        assert.match(said, /held/);
        assert.equal(code, 0);
      }));

    test('a process that exits while it waits leaves the line', () =>
      one(async (client, name) => {
        const held = await client.lock(name).acquire();
        const { code } = await run('wait-and-exit', url, name);
        assert.equal(code, 0);
        await eventually('the line is empty', async () => {
          return (await client.inspect({ name })).locks[0].waiters.length === 0;
        });
        await held.release();
      }));

    test('a guard that is forgotten is given back', () =>
      one(async (client, name) => {
        const { said, code } = await run('forget', url, name, { flags: ['--expose-gc'] });
        assert.match(said, /given back/);
        assert.equal(code, 0);
        assert.notEqual(await client.lock(name).tryAcquire(), null);
      }));

    if (url.startsWith('redis')) {
      test('a kept lock whose guard is forgotten is released', () =>
        one(async (_, name) => {
          const { said, code } = await run('forget-kept', url, name, { flags: ['--expose-gc'] });
          assert.match(said, /^released/);
          assert.equal(code, 0);
        }));
    }

    test('a guard that is forgotten by a program that makes no more calls is given back', () =>
      one(async (client, name) => {
        const child = start('forget-and-do-nothing', url, name, { flags: ['--expose-gc'] });
        const gone = once(child, 'exit');
        try {
          await once(child.stdout, 'data');
          const guard = await client.lock(name, { wait: 20_000 }).acquire();
          await guard.release();
        } finally {
          child.kill('SIGKILL');
        }
        await gone;
      }));

    test('a lock that is had while another is given back is kept', () =>
      one(async (_, name) => {
        const { said, code } = await run('same-turn', url, name, { flags: ['--expose-gc'] });
        assert.match(said, /kept/);
        assert.equal(code, 0);
      }));

    for (const end of ['end', 'exit', 'terminate']) {
      test(`a worker’s locks are given back when it ends, and others live on: ${end}`, () =>
        one(async (client, name) => {
          const mine = await client.lock(`${name}/main`, { lease: 900 }).acquire();
          const worker = new Worker(actor, { argv: [`worker-${end}`, url, name], stdout: false });
          const gone = once(worker, 'exit');
          await once(worker, 'message');
          assert.equal(await client.lock(name).tryAcquire(), null);
          if (end === 'terminate') await worker.terminate();
          else worker.postMessage('end');
          await gone;
          const guard = await client.lock(name, { wait: 20_000 }).acquire();
          await guard.release();
          mine.check();
          await mine.release();
        }));
    }

    test('a worker that is terminated while it waits leaves the line', () =>
      one(async (client, name) => {
        const held = await client.lock(name).acquire();
        const worker = new Worker(actor, { argv: ['wait', url, name], stdout: true });
        await eventually(
          'it waits',
          async () => (await client.inspect({ name })).locks[0].waiters.length === 1,
        );
        await worker.terminate();
        await eventually('the line is empty', async () => {
          return (await client.inspect({ name })).locks[0].waiters.length === 0;
        });
        await held.release();
      }));
  });
}
