// What a program is told of its locks.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';

import { connect, WaitTimeoutError } from 'polylatch-wasm';

import { eventually, unique } from './node-stores.mjs';
import { respConnection } from './resp.mjs';
import { stores } from './stores.mjs';

const [, [, redisUrl]] = await stores();
const { hostname, port } = new URL(redisUrl);
const dial = () => respConnection(hostname, Number(port));

/** Each kind of store, as `connect` takes it. */
const KINDS = {
  memory: () => ({ url: `memory:${unique('events')}` }),
  redis: () => ({ prefix: unique('events') }),
};
const options = (kind, target) => (kind === 'redis' ? { redis: dial(), ...target } : target);

for (const [kind, target] of Object.entries(KINDS)) {
  test(`a callback is told of the life of its own client, in order, up to a loss: ${kind}`, async () => {
    const events = [];
    const place = target();
    const other = await connect(options(kind, place));
    const onEvent = (event) => events.push(event);
    const client = await connect({ ...options(kind, place), onEvent, level: 'debug' });
    const holder = await other.lock('a').acquire();
    const waiting = client.lock('a').acquire();
    await eventually('it is told to wait', () => events.some(({ event }) => event === 'waiting'));
    await holder.release();
    const guard = await waiting;
    const { fencingToken } = guard;
    await other.breakLease({ name: 'a', expected: fencingToken, by: 'ann', reason: 'test' });
    if (!guard.signal.aborted) await once(guard.signal, 'abort');
    await eventually('the loss is told', () => events.some(({ event }) => event === 'lost'));
    const { lock, level, reason, ...lost } = events.find(({ event }) => event === 'lost');
    assert.deepEqual([lock, level, reason, lost.fencingToken], ['a', 'error', 'broken', fencingToken]);
    assert.equal(lost.message, 'the lease is lost');
    assert.ok(lost.heldMs >= 0);
    await (await client.lock('b').acquire()).release();
    const acquired = events.find(({ lock, event }) => lock === 'b' && event === 'acquired');
    assert.deepEqual([acquired.backend, acquired.level, acquired.pushed], [kind, 'debug', false]);
    await client.close();
    assert.deepEqual(
      events.filter(({ event }) => !event.startsWith('re')).map(({ event, lock }) => `${event} ${lock}`),
      ['waiting a', 'acquired a', 'lost a', 'acquired b'],
    );
    assert.deepEqual([events.at(-1).event, events.at(-1).renewals], ['released', 0]);
    assert.deepEqual([...new Set(events.map((event) => event.client))], [client.id]);
    await other.close();
  });
}

test('a closed client tells what came before, and nothing more', async () => {
  const events = [];
  const client = await connect('memory:', { onEvent: ({ event }) => events.push(event), level: 'debug' });
  await client.lock('a').acquire();
  await client.close();
  assert.deepEqual(events, ['acquired', 'released']);
  await assert.rejects(client.lock('a').acquire());
  await new Promise((done) => setTimeout(done, 0));
  assert.deepEqual(events, ['acquired', 'released']);
});

test('what a callback throws is an uncaught error, and the next event comes', () => {
  // In a process of its own: the test runner takes uncaught errors for its own.
  const script = `
    const { connect } = await import('polylatch-wasm');
    const seen = [];
    process.on('uncaughtException', (error) => seen.push('thrown: ' + error.message));
    const onEvent = ({ event }) => {
      seen.push(event);
      throw new Error('on ' + event);
    };
    const client = await connect('memory:', { onEvent, level: 'debug' });
    await client.withLock('a', async () => {});
    await client.close();
    process.on('exit', () => console.log(JSON.stringify(seen.toSorted())));
  `;
  const answer = execFileSync(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: import.meta.dirname,
    encoding: 'utf8',
  });
  assert.deepEqual(JSON.parse(answer), [
    'acquired',
    'released',
    'thrown: on acquired',
    'thrown: on released',
  ]);
});

test('numbers tell a small story, also as Prometheus’ text', async () => {
  const client = await connect(`memory:${unique('stats')}`);
  const guard = await client.lock('a').acquire();
  assert.equal(await client.lock('a').tryAcquire(), null);
  await assert.rejects(client.lock('a', { wait: 50 }).acquire(), WaitTimeoutError);
  assert.equal(client.stats.held, 1);
  await guard.release();
  const short = await client.lock('a', { lease: 200, renew: false }).acquire();
  if (!short.signal.aborted) await once(short.signal, 'abort');
  const { wait, hold, renewalLag, losses, errors, ...others } = client.stats;
  const { acquired, refused, timedOut, failed, cancelled, waiting, held, backend } = others;
  assert.deepEqual(
    { acquired, refused, timedOut, failed, cancelled, waiting, held, backend },
    {
      acquired: 2,
      refused: 1,
      timedOut: 1,
      failed: 0,
      cancelled: 0,
      waiting: 0,
      held: 0,
      backend: 'memory',
    },
  );
  assert.equal(Object.keys(others).length, 8);
  assert.deepEqual([losses.expired, losses.hold_limit, errors.wait_timeout], [1, 0, 1]);
  assert.deepEqual([wait.count, hold.count, renewalLag.count], [2, 2, 0]);
  assert.equal(
    hold.counts.reduce((sum, each) => sum + each),
    2,
  );
  assert.equal(hold.counts.length, hold.bounds.length + 1);
  assert.ok(hold.sum > 0.19);
  const text = client.prometheus({ page: 'a "b"' });
  assert.match(
    text,
    /polylatch_acquisitions_total\{page="a \\"b\\"",backend="memory",outcome="acquired"\} 2\n/,
  );
  assert.match(text, /polylatch_wait_seconds_bucket\{[^}]*le="0.0005"\} \d+\n/);
  assert.ok(text.includes(`polylatch_held_seconds_sum{page="a \\"b\\"",backend="memory"} ${hold.sum}\n`));
  assert.throws(() => client.prometheus({ le: 'x' }), { code: 'invalid_argument' });
  await client.close();
});

test('a store that goes away and comes back is told, once each', async () => {
  const events = [];
  const connection = dial();
  let away = false;
  const redis = {
    subscribe: connection.subscribe,
    command: (words) => (away ? Promise.reject(new Error('gone')) : connection.command(words)),
  };
  const onEvent = ({ event, level }) => events.push(`${event} ${level}`);
  const client = await connect({ redis, prefix: unique('away'), timeout: 300, poll: 100, onEvent });
  away = true;
  const waiting = client.lock('a').acquire();
  await eventually('it is told', () => events.includes('store_unreachable warn'));
  away = false;
  await (await waiting).release();
  assert.ok(events.includes('store_reachable info'));
  assert.equal(events.filter((event) => event.startsWith('store_unreachable')).length, 1);
  await client.close();
});

test('a callback hears its level and above, by default no lock that was free', async () => {
  const heard = async (options) => {
    const events = [];
    const place = `memory:${unique('level')}`;
    const onEvent = ({ event, level }) => events.push(`${level} ${event}`);
    const client = await connect(place, { onEvent, ...options });
    const other = await connect(place);
    await (await client.lock('free').acquire()).release();
    const holder = await other.lock('a').acquire();
    const waiting = client.lock('a').acquire();
    await eventually('it waits', () => client.stats.waiting === 1);
    await holder.release();
    await (await waiting).release();
    const short = await client.lock('b', { lease: 200, renew: false }).acquire();
    if (!short.signal.aborted) await once(short.signal, 'abort');
    await client.close();
    await other.close();
    return events;
  };
  assert.deepEqual(await heard({}), ['info waiting', 'info acquired', 'error lost']);
  assert.deepEqual(await heard({ level: 'error' }), ['error lost']);
  assert.equal((await heard({ level: 'debug' }))[0], 'debug acquired');
  await assert.rejects(connect('memory:', { level: 'loud' }), /must be one of error, warn, info, debug/);
});

test('what is no function is no callback', async () => {
  await assert.rejects(connect('memory:', { onEvent: 7 }), /onEvent must be a function/);
});
