// What a program is told of its locks: callbacks, node:diagnostics_channel and process warnings.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { channel } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { inspect, promisify } from 'node:util';

import { connect } from 'polylatch';

import { eventually, startRedis, unique } from './stores.mjs';

const folder = mkdtempSync(join(tmpdir(), 'polylatch-node-events-'));
const redis = await startRedis(folder);
after(() => {
  redis.child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

const url = () => `${redis.url}?prefix=${unique('events')}`;

test('a callback is told of the life of its own client, up to a loss', async () => {
  const events = [];
  const lost = [];
  const heard = (event) => lost.push(event);
  channel('polylatch:lost').subscribe(heard);
  const other = await connect('memory:', { onEvent: () => assert.fail('it is of another client') });
  const client = await connect(url(), { onEvent: (event) => events.push(event), level: 'debug' });
  const guard = await client.lock('a').acquire();
  await guard.release();
  const short = await client.lock('b', { lease: 200, renew: false }).acquire();
  if (!short.signal.aborted) await once(short.signal, 'abort');
  await eventually('the loss is told', () => events.some((event) => event.event === 'lost'));
  const acquired = events.find((event) => event.event === 'acquired');
  assert.deepEqual(
    [acquired.lock, acquired.fencingToken, acquired.client, acquired.level],
    ['a', guard.fencingToken, client.id, 'debug'],
  );
  const loss = events.find((event) => event.event === 'lost');
  assert.deepEqual([loss.lock, loss.reason, loss.level], ['b', 'expired', 'error']);
  assert.equal(JSON.parse(JSON.stringify(loss)).fencingToken, Number(short.fencingToken));
  assert.ok(lost.includes(loss), 'the channel has it, too');
  channel('polylatch:lost').unsubscribe(heard);
  await other.close();
  await client.close();
});

test('a store that goes away and comes back is told, once each', async () => {
  const server = await startRedis(folder);
  const events = [];
  const onEvent = ({ event, level }) => events.push(`${event} ${level}`);
  const client = await connect(`${server.url}?timeout=300ms&poll=100ms`, { onEvent });
  server.child.kill('SIGSTOP');
  const waiting = client.lock('a').acquire();
  await eventually('it is told', () => events.includes('store_unreachable warn'));
  server.child.kill('SIGCONT');
  await (await waiting).release();
  await eventually('it is told', () => events.includes('store_reachable info'));
  assert.equal(events.filter((event) => event.startsWith('store_unreachable')).length, 1);
  await client.close();
  server.child.kill('SIGKILL');
});

test('an evicting server is a process warning if nobody listens, and a callback otherwise', async () => {
  const server = await startRedis(folder);
  const port = new URL(server.url).port;
  const cli = (...words) => promisify(execFile)('redis-cli', ['-p', port, ...words]);
  await cli('config', 'set', 'maxmemory', '100mb');
  await cli('config', 'set', 'maxmemory-policy', 'allkeys-lru');
  const warned = once(process, 'warning');
  await (await connect(server.url)).close();
  const [warning] = await warned;
  assert.equal(warning.code, 'setup_warning');
  assert.match(`${warning.detail}`, /maxmemory-policy=allkeys-lru/);
  const events = [];
  const client = await connect(server.url, { onEvent: (event) => events.push(event) });
  await eventually('it is told', () => events.some((event) => event.event === 'setup_warning'));
  assert.match(events[0].findings, /maxmemory-policy noeviction/);
  await client.close();
  server.child.kill('SIGKILL');
});

test('a callback hears its level and above, by default no lock that was free', async () => {
  const usual = ['info waiting', 'info acquired', 'error lost'];
  const heard = async (level) => {
    const events = [];
    const onEvent = (event) => events.push(`${event.level} ${event.event}`);
    const place = url();
    const client = await connect(place, level === undefined ? { onEvent } : { onEvent, level });
    const other = await connect(place);
    await (await client.lock('free').acquire()).release();
    const holder = await other.lock('a').acquire();
    const waiting = client.lock('a').acquire();
    await eventually('it waits', () => client.stats.waiting === 1);
    await holder.release();
    await (await waiting).release();
    await client.lock('b', { lease: 200, renew: false }).acquire();
    await eventually('the loss is told', () => events.includes('error lost'));
    await Promise.all([client.close(), other.close()]);
    return events;
  };
  assert.deepEqual(await heard(), usual);
  assert.deepEqual(await heard('info'), usual);
  assert.deepEqual(await heard('error'), ['error lost']);
  assert.deepEqual((await heard('debug')).slice(0, 2), ['debug acquired', 'debug released']);
  await assert.rejects(
    connect('memory:', { onEvent() {}, level: 'loud' }),
    /the option level is "loud"; it must be one of error, warn, info, debug/,
  );
});

test('a channel gets the common events, whatever the callbacks want', async () => {
  const published = [];
  const heard = ({ event, lock }) => published.push(`${event} ${lock}`);
  channel('polylatch:released').subscribe(heard);
  const client = await connect(url(), { onEvent: () => assert.fail('it is below info') });
  await (await client.lock('a').acquire()).release();
  await eventually('the channel has it', () => published.includes('released a'));
  channel('polylatch:released').unsubscribe(heard);
  await client.close();
});

test('what is no function is no callback', async () => {
  await assert.rejects(connect('memory:', { onEvent: 7 }), /onEvent must be a function/);
});

test('a snapshot is JSON, and a guard shows what it is', async () => {
  const client = await connect(`memory:${unique('shown')}`);
  const guard = await client.lock('a').acquire();
  const shown = JSON.parse(JSON.stringify(await client.inspect()));
  assert.equal(shown.locks[0].holders[0].fencingToken, Number(guard.fencingToken));
  assert.equal(inspect(guard), `Guard { name: "a", fencingToken: ${guard.fencingToken}n, held }`);
  assert.match(inspect({ guard }), /Guard \{ name: "a"/);
  await guard.release();
  assert.match(inspect(guard), /not held/);
  const set = await client.lockAll(['b', 'c']).acquire();
  assert.match(inspect(set), /^GuardSet \{ "b" => \d+n, "c" => \d+n, held \}$/);
  await client.close();
});

test('names with half a character are refused instead of becoming one lock', async () => {
  const client = await connect(`memory:${unique('halves')}`);
  for (const name of ['a\ud800', 'a\udfff']) {
    assert.throws(() => client.lock(name), /half of a surrogate pair/);
    assert.throws(() => client.lockAll(['b', name]), /half of a surrogate pair/);
    assert.throws(() => client.lock('b', { owner: name }), /owner is "a\\ud/);
    assert.throws(() => client.rwLock(name), /half of a surrogate pair/);
  }
  await (await client.lock('\u{1f512}', { wait: Number.POSITIVE_INFINITY }).acquire()).release();
  await client.close();
});
