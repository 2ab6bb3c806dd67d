// etcd by `fetch`, against a real member.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import {
  BackendRejectedError,
  connect,
  InvalidConfigError,
  UnsupportedError,
  WaitTimeoutError,
} from 'polylatch-wasm';

import { testBadFetches } from './bad_fetches.mjs';
import { startEtcd } from './etcd.mjs';
import { eventually, unique } from './node-stores.mjs';

const member = await startEtcd();
const how = { lease: 4_000 };
/** With pushes alone a wait would end: the next poll comes after the test's patience. */
const patient = { lease: 60_000, provisional: 50_000, poll: 20_000 };
const [one, other] = await Promise.all([connect(member.url, how), connect(member.url, how)]);
after(async () => {
  await Promise.all([one.close(), other.close()]);
  member.stop();
});

async function waits(name, count) {
  await eventually(`${count} wait`, async () => {
    const [view] = (await other.inspect({ name })).locks;
    return view.waiters.length === count;
  });
}

async function isFree(name) {
  await eventually(`${name} is free`, async () => {
    const [view] = (await other.inspect({ name })).locks;
    return view.holders.length === 0 && view.waiters.length === 0;
  });
}

const isWatch = (url) => url.endsWith('/v3/watch');

/** A `fetch` that keeps the requests that are not over. A client ends each by its signal. */
function counting() {
  const open = new Set();
  return {
    open,
    watches: () => [...open].filter(isWatch).length,
    fetch(url, init) {
      // An object of its own: the same address may be asked twice.
      const request = Object(String(url));
      open.add(request);
      init.signal.addEventListener('abort', () => open.delete(request));
      return fetch(url, init);
    },
  };
}

describe('etcd', () => {
  test('a lock is held by one client, is renewed, and its tokens grow', async () => {
    const name = unique('etcd');
    const guard = await one.lock(name, { lease: 1_000 }).acquire();
    assert.equal(guard.fenceQuality, 'strict');
    assert.equal(await other.lock(name).tryAcquire(), null);
    await assert.rejects(other.lock(name, { wait: 100 }).acquire(), WaitTimeoutError);
    await eventually('it is renewed', () => guard.renewals >= 2);
    guard.check();
    await guard.release();
    const next = await other.lock(name).acquire();
    assert.ok(next.fencingToken > guard.fencingToken);
    await next.release();
  });

  test('a release wakes the next waiter, and an aborted one leaves the queue', async () => {
    const name = unique('etcd');
    const client = await connect(member.url, patient);
    const held = await one.lock(name).acquire();
    const controller = new AbortController();
    const gone = client.lock(name).acquire({ signal: controller.signal });
    await waits(name, 1);
    controller.abort();
    await assert.rejects(gone, { name: 'AbortError' });
    await waits(name, 0);
    const waiting = client.lock(name, { wait: 60_000 }).acquire();
    await waits(name, 1);
    const before = performance.now();
    await held.release();
    const next = await waiting;
    assert.ok(performance.now() - before < 10_000, 'the watch woke it, not the next poll');
    assert.ok(next.fencingToken > held.fencingToken);
    await next.release();
    await client.close();
    await isFree(name);
  });

  test('a broken lease is reported to its holder', async () => {
    const name = unique('etcd');
    const guard = await one.lock(name, { lease: 3_000 }).acquire();
    const lost = new Promise((resolve) => guard.signal.addEventListener('abort', resolve));
    await other.breakLease({ name, expected: guard.fencingToken, by: 'ann@desk', reason: 'it is stuck' });
    await lost;
    assert.equal(guard.signal.reason.reason, 'superseded');
    await isFree(name);
  });

  test('what it cannot do is an UnsupportedError', async () => {
    const name = unique('etcd');
    for (const refused of [
      () => one.rwLock(name).read().acquire(),
      () => one.semaphore(name, 2).acquire(),
      () => one.locks.request(name, () => assert.fail('it ran')),
    ]) {
      await assert.rejects(refused(), UnsupportedError);
    }
    await isFree(name);
  });
});

describe('watches', () => {
  test('the waiters of a client leave connections for its renewals, and all enter', async () => {
    const name = unique('many');
    const { fetch, watches } = counting();
    const client = await connect(member.url, { ...how, poll: 100, fetch });
    const held = await one.lock(name).acquire();
    let most = 0;
    const watching = setInterval(() => {
      most = Math.max(most, watches());
    }, 5);
    const waiters = Array.from({ length: 4 }, async () => {
      const guard = await client.lock(name, { wait: 60_000 }).acquire();
      await guard.release();
    });
    await waits(name, 4);
    await eventually('it watches', () => watches() === 2);
    // They have polled: none of them has begun another watch.
    await new Promise((resolve) => setTimeout(resolve, 300));
    await held.release();
    await Promise.all(waiters);
    clearInterval(watching);
    assert.equal(most, 2);
    await client.close();
  });

  test('with a fetch whose answers come only as a whole, waiters poll', async () => {
    const name = unique('whole');
    let watches = 0;
    let stands = 0;
    const whole = async (url, init) => {
      watches += isWatch(url);
      stands += url.endsWith('/v3/kv/txn');
      const answer = await fetch(url, init);
      return { status: answer.status, headers: answer.headers, arrayBuffer: () => answer.arrayBuffer() };
    };
    const client = await connect(member.url, { ...how, poll: 100, fetch: whole });
    const held = await one.lock(name).acquire();
    const waiting = client.lock(name, { wait: 60_000 }).acquire();
    await waits(name, 1);
    const before = stands;
    await eventually('it polls', () => stands > before + 3);
    assert.equal(watches, 1, 'a watch that cannot be read is not begun again');
    await held.release();
    await (await waiting).release();
    await client.close();
  });

  test('a closed client leaves no request behind', async () => {
    const name = unique('closed');
    const { fetch, open, watches } = counting();
    const client = await connect(member.url, { ...patient, fetch });
    const held = await one.lock(name).acquire();
    const waiting = client.lock(name, { wait: 60_000 }).acquire();
    const ended = assert.rejects(waiting, { code: 'canceled' });
    await eventually('it watches', () => watches() === 1);
    await client.close();
    await ended;
    await eventually('nothing is under way', () => open.size === 0, 5_000);
    await held.release();
  });
});

testBadFetches(member.url, how, isFree);

test('TLS is that of the host', async () => {
  // Node's own switch: the certificate is signed by no authority.
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
  try {
    const client = await connect(member.secureUrl, how);
    const guard = await client.lock(unique('tls')).acquire();
    await guard.release();
    await client.close();
  } finally {
    delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
  }
});

test('a user logs in with a password, and gets no more than its role', async () => {
  const secured = await startEtcd();
  const place = secured.url.slice('etcd://'.length);
  try {
    const url = await secured.requireUser();
    const sent = [];
    const client = await connect(url, {
      ...how,
      fetch(url, init) {
        sent.push(init.headers.Authorization);
        return fetch(url, init);
      },
    });
    const guard = await client.lock('a').acquire();
    await guard.release();
    // The first one asks for the token.
    assert.ok(
      sent.slice(1).every((token) => /^\w+\.\d+$/.test(token)),
      'the token goes with each request',
    );
    assert.doesNotMatch(JSON.stringify(client.url), /sh@|hu/);
    await client.close();
    for (const [url, message] of [
      [secured.url, /write etcd:\/\/USER:PASSWORD@HOST /],
      [`etcd://app:no@${place}/shop`, /refuses this user or password/],
      [`etcd://app:hu%2Fsh@${place}/other`, /grant-permission/],
    ]) {
      await assert.rejects(connect(url, how), (error) => {
        assert.ok(error instanceof BackendRejectedError, String(error));
        assert.match(error.message, message);
        assert.doesNotMatch(String(error.stack), /hu%2Fsh|hu\/sh/);
        return true;
      });
    }
  } finally {
    secured.stop();
  }
});

test('what a page cannot have is refused before anything is sent', async () => {
  for (const [url, options, message] of [
    ['etcd+https://h?ca=/ca.pem', {}, /connections that Polylatch opens/],
    ['etcd+https://h?cert=/c.pem&key=/k.pem', {}, /connections that Polylatch opens/],
    ['etcd://h', { user: 'app', passwordEnv: 'PASSWORD' }, /JavaScript host does not have/],
    ['etcd://h', { user: 'app', passwordFile: '/run/secret' }, /JavaScript host does not have/],
    ['etcd://h', { user: 'app' }, /give both or neither/],
    ['etcd://h', { leader: 1 }, /knows no option "leader"/],
    ['etcd+unix:/run/etcd.sock', {}, /use one of .*etcd\+https:\/\/HOST:PORT/],
  ]) {
    const fetch = () => assert.fail('it was sent');
    await assert.rejects(connect(url, { ...options, fetch }), (error) => {
      assert.ok(error instanceof InvalidConfigError, String(error));
      assert.match(error.message, message);
      return true;
    });
  }
});
