// Idempotent work: done once, answered every time.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { describe, test } from 'node:test';
import { setTimeout as pass } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import * as polylatch from 'polylatch';

import { stores, unique } from './stores.mjs';

const { connect } = polylatch;
const here = fileURLToPath(import.meta.url);
const WAIT = 60_000;

/** The program of a child: `working`, then nothing until it is killed or goes on. */
async function child([url, scope]) {
  const client = await connect(url);
  const run = client.idempotency(scope).run(
    'k',
    async (claim) => {
      process.stdout.write('working\n');
      const [reason] = await Promise.all([
        new Promise((resolve) => {
          claim.signal.addEventListener('abort', () => resolve(claim.signal.reason.reason));
        }),
        // A held claim keeps no process alive.
        new Promise((resolve) => claim.signal.addEventListener('abort', resolve)),
        once(process.stdin.resume(), 'data'),
      ]);
      process.stdout.write(`${reason}\n`);
      return 'late';
    },
    { lease: 1_000, payload: 'order' },
  );
  await run.catch((error) => process.stdout.write(`${error.code} ${error.effect}\n`));
  process.exit();
}

function never() {
  throw new Error('it was done again');
}

if (process.argv[2] === 'child') await child(process.argv.slice(3));
else
  for (const [store, url] of await stores()) {
    describe(store, () => {
      const one = async (work) => {
        const client = await connect(url);
        try {
          await work(client.idempotency(unique('orders/customer')), client);
        } finally {
          await client.close();
        }
      };

      test('a repetition gets the first answer', () =>
        one(async (keys) => {
          let calls = 0;
          const first = await keys.run('k', (claim) => {
            calls += 1;
            assert.ok(claim.fencingToken > 0n && claim.isHeld && claim.remaining > 0 && claim.runs === 1);
            claim.check();
            return { order: 42, note: 'ü', none: undefined };
          });
          assert.deepEqual(first, { value: { order: 42, note: 'ü' }, replayed: false });
          assert.deepEqual(await keys.run('k', never), { ...first, replayed: true });
          assert.equal(calls, 1);
          const record = await keys.show('k');
          assert.deepEqual([record.state, record.isToken, record.runs], ['done', false, 1]);
          assert.deepEqual([await keys.forget('k'), await keys.forget('k')], ['forgotten', 'absent']);
          assert.equal(await keys.show('k'), null);
          assert.deepEqual(await keys.run('k', () => {}), { value: null, replayed: false });
        }));

      test('concurrent runs get one answer, and a wait ends with its signal', () =>
        one(async (keys) => {
          let calls = 0;
          let end;
          const gate = new Promise((resolve) => {
            end = resolve;
          });
          const work = async () => {
            calls += 1;
            await gate;
            return calls;
          };
          const runs = Array.from({ length: 8 }, () => keys.run('k', work));
          await assert.rejects(
            keys.run('k', never, { signal: AbortSignal.timeout(50) }),
            (error) => error.name === 'TimeoutError',
          );
          const refused = await keys.run('k', never, { wait: 0 }).catch((error) => error);
          assert.ok(refused instanceof polylatch.InProgressError);
          assert.deepEqual([refused.code, refused.retry], ['in_progress', 'caller_decides']);
          assert.equal(await keys.forget('k'), 'running');
          end();
          const outcomes = await Promise.all(runs);
          assert.deepEqual(
            outcomes.map(({ value }) => value),
            Array(8).fill(1),
          );
          assert.equal(outcomes.filter(({ replayed }) => !replayed).length, 1);
        }));

      test('the same key with another payload is refused', () =>
        one(async (keys) => {
          await keys.run('k', () => 1, { payload: { item: 'a', count: [{ b: 1, a: 2 }] } });
          const same = { count: [{ a: 2, b: 1 }], item: 'a' };
          assert.ok((await keys.run('k', never, { payload: same })).replayed);
          for (const payload of [{ item: 'b' }, Buffer.from('x'), 'text', undefined]) {
            await assert.rejects(keys.run('k', never, { payload }), polylatch.PayloadMismatchError);
          }
        }));

      test('a failure is stored, or frees its key by choice and by kind', () =>
        one(async (keys) => {
          const fails = (error) => () => {
            throw error;
          };
          await assert.rejects(keys.run('k', fails(new RangeError('no card'))), RangeError);
          const stored = await keys.run('k', never).catch((error) => error);
          assert.ok(stored instanceof polylatch.WorkFailedError && stored.replayed);
          assert.deepEqual(stored.answer, { error: 'RangeError', message: 'no card' });
          assert.deepEqual([stored.code, stored.effect, stored.name], ['failed', 'none', 'WorkFailedError']);

          const kind = { onFailure: (error) => (error instanceof RangeError ? 'free' : 'store') };
          await assert.rejects(keys.run('l', fails(new RangeError()), kind), RangeError);
          await assert.rejects(keys.run('l', fails(new TypeError('x')), kind), TypeError);
          await assert.rejects(keys.run('l', never, kind), polylatch.WorkFailedError);

          const declined = new polylatch.WorkFailedError('declined', { answer: { code: 7 } });
          await assert.rejects(keys.run('m', fails(declined)), declined);
          await assert.rejects(keys.run('m', never), (error) => error.answer.code === 7 && error.replayed);
          await assert.rejects(
            keys.run('n', fails(new polylatch.WorkFailedError('again', { onFailure: 'free' }))),
          );
          assert.ok(!(await keys.run('n', () => 1)).replayed);
          await assert.rejects(keys.run('o', never, { onFailure: 'drop' }), /onFailure|on_failure/);
        }));

      test('a result that cannot be written does not free its key', () =>
        one(async (keys) => {
          await assert.rejects(
            keys.run('k', () => 1n, { onFailure: 'free' }),
            TypeError,
          );
          await assert.rejects(keys.run('k', never), polylatch.WorkFailedError);
          const large = 'x'.repeat(1 << 20);
          await assert.rejects(
            keys.run('l', () => large),
            polylatch.ResultTooLargeError,
          );
          await assert.rejects(keys.run('l', never), polylatch.ResultTooLargeError);
        }));

      test('bytes are stored as they are, for ever by choice', () =>
        one(async (keys, client) => {
          const bytes = client.idempotency(keys.scope, { encoding: 'bytes' });
          const value = Uint8Array.of(0, 255);
          const first = await bytes.run('k', () => value, { retention: Number.POSITIVE_INFINITY });
          const again = await bytes.run('k', never);
          assert.deepEqual([...first.value, ...again.value], [0, 255, 0, 255]);
          assert.equal((await keys.show('k')).keepLeftMs, null);
          await assert.rejects(
            bytes.run('l', () => 'text'),
            /must be a Uint8Array/,
          );
        }));

      test('wrong arguments are errors before anything is sent', () =>
        one(async (keys, client) => {
          for (const key of ['', 'x'.repeat(256), 'a\nb']) {
            await assert.rejects(keys.run(key, never), polylatch.InvalidArgumentError);
          }
          await assert.rejects(keys.run(7, never), TypeError);
          await assert.rejects(keys.run('k'), /the work must be a function/);
          await assert.rejects(keys.run('k', never, { ttl: 5 }), /there is no option "ttl"/);
          await assert.rejects(keys.run('k', never, { retention: 1 }), /retention/);
          await assert.rejects(keys.run('k', never, { lease: -1 }), /lease is -1/);
          assert.throws(() => client.idempotency('s', { encoding: 'xml' }), /must be 'json' or 'bytes'/);
          assert.throws(() => client.idempotency(5), TypeError);
        }));

      test('a token is consumed once', () =>
        one(async (keys, client) => {
          const token = await keys.issue(60_000);
          const answers = await Promise.all(Array.from({ length: 8 }, () => keys.consume(token)));
          assert.deepEqual(answers.sort(), [...Array(7).fill('duplicate'), 'first']);
          assert.equal(await client.idempotency('other').consume(token), 'unknown');
        }));
    });
  }

/** Stops a process between two writes: within one it would keep everybody else out of an SQLite file. */
async function pause(started) {
  for (;;) {
    started.kill('SIGSTOP');
    while (!hasStopped(started.pid)) await pass(1);
    if (!writesToSqlite(started.pid)) return;
    started.kill('SIGCONT');
  }
}

/** Whether all threads of a process have stopped, where that can be seen. */
function hasStopped(pid) {
  const threads = `/proc/${pid}/task`;
  if (!existsSync(threads)) return true;
  return readdirSync(threads).every((thread) => {
    const file = `${threads}/${thread}/stat`;
    try {
      const stat = readFileSync(file, 'utf8');
      return stat.slice(stat.lastIndexOf(')')).startsWith(') T');
    } catch {
      // It has ended meanwhile.
      return !existsSync(file);
    }
  });
}

/** Whether a process is within a write to an SQLite file in WAL mode: it has the lock of byte 120. */
function writesToSqlite(pid) {
  const locks = existsSync('/proc/locks') ? readFileSync('/proc/locks', 'utf8') : '';
  // 1: POSIX  ADVISORY  WRITE 4711 fe:00:262148 120 120
  return locks.split('\n').some((line) => {
    const [kind, , mode, owner, , first] = line.split(/\s+/).slice(1);
    return kind === 'POSIX' && mode === 'WRITE' && Number(owner) === pid && first === '120';
  });
}

if (process.argv[2] !== 'child')
  for (const [store, url] of await stores({ shared: true })) {
    describe(`${store}, two processes`, () => {
      const start = (scope) => {
        const started = spawn(process.execPath, [here, 'child', url, scope], {
          stdio: ['pipe', 'pipe', 'inherit'],
        });
        const lines = createInterface({ input: started.stdout })[Symbol.asyncIterator]();
        return { started, line: async () => (await lines.next()).value };
      };

      test('a killed process is taken over when its lease ends', async () => {
        const scope = unique('killed');
        const { started, line } = start(scope);
        assert.equal(await line(), 'working');
        const client = await connect(url);
        const keys = client.idempotency(scope);
        const payload = 'order';
        await assert.rejects(keys.run('k', never, { wait: 0, payload }), polylatch.InProgressError);
        started.kill('SIGKILL');
        await assert.rejects(keys.run('k', never, { payload: 'other' }), polylatch.PayloadMismatchError);
        const taken = await keys.run('k', (claim) => claim.runs, { payload, wait: WAIT });
        assert.deepEqual(taken, { value: 2, replayed: false });
        assert.ok((await keys.run('k', never, { payload })).replayed);
        await client.close();
      });

      test('a stopped process is notified and stores nothing', async () => {
        const scope = unique('stopped');
        const { started, line } = start(scope);
        assert.equal(await line(), 'working');
        await pause(started);
        const client = await connect(url);
        const keys = client.idempotency(scope);
        const taken = await keys.run('k', () => 'mine', { payload: 'order', wait: WAIT });
        assert.equal(taken.replayed, false);
        started.stdin.write('go on\n');
        started.kill('SIGCONT');
        assert.match(await line(), /^(expired|superseded)$/);
        assert.equal(await line(), 'not_recorded maybe');
        assert.equal((await keys.run('k', never, { payload: 'order' })).value, 'mine');
        await client.close();
      });
    });
  }
