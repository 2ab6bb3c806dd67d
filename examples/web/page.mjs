// Takes a lock in a page, shows it, and stops when it is lost.
//
// The store is in the page's address: ?store=consul://HOST:PORT or etcd://HOST:PORT, ?redis=URL of an HTTP proxy,
// and the memory of this page without either.

import { connect, httpRedisConnection, LeaseLostError } from 'polylatch-wasm';

const NAME = 'orders/42';
const LEASE = 6_000;

const asked = new URLSearchParams(location.search);
const element = (id) => document.getElementById(id);

let guard = null;
let ended = new AbortController();

function show(state, text = state) {
  element('state').dataset.state = state;
  element('state').textContent = text;
  element('take').disabled = state === 'held' || state === 'waiting';
  element('give').disabled = state !== 'held';
  element('break').disabled = state === 'starting';
}

function tick() {
  const left = guard?.remaining ?? 0;
  element('left').style.width = `${Math.min(100, (100 * left) / LEASE)}%`;
  element('remaining').textContent = guard?.isHeld ? `${(left / 1_000).toFixed(1)} s` : '–';
  element('token').textContent = guard?.isHeld ? String(guard.fencingToken) : '–';
  element('renewals').textContent = guard === null ? '–' : String(guard.renewals);
}

async function people(client) {
  const { locks, clients } = await client.inspect({ name: NAME });
  const rows = [
    ...(locks[0]?.holders ?? []).map((one) => [one, one.heldForMs, 'holds']),
    ...(locks[0]?.waiters ?? []).map((one) => [one, one.waitedMs, 'waits']),
  ].map(([one, millis, role]) => {
    const row = document.createElement('tr');
    const program = clients.find(({ id }) => id === one.client)?.program ?? '';
    const me = one.client === client.id ? ' (this page)' : '';
    for (const text of [`${one.client}${me}`, program, `${((millis ?? 0) / 1_000).toFixed(0)} s`, role]) {
      row.append(Object.assign(document.createElement('td'), { textContent: text }));
    }
    return row;
  });
  element('people').replaceChildren(...rows);
}

async function take(client) {
  show('waiting');
  ended = new AbortController();
  try {
    guard = await client.lock(NAME, { lease: LEASE, label: 'a page' }).acquire({ signal: ended.signal });
  } catch (error) {
    show('free', error.message);
    return;
  }
  show('held');
  tick();
  // Whatever works under the lock gets this signal: a request with it ends when the lock is lost.
  guard.signal.addEventListener('abort', () => {
    const { reason } = guard.signal;
    show('lost', reason instanceof LeaseLostError ? `lost: ${reason.reason}` : 'free');
    tick();
  });
}

async function give() {
  try {
    await guard.release();
    show('free', 'released');
  } catch (error) {
    show('lost', error.message);
  }
  tick();
}

async function breakIt(client) {
  const [view] = (await client.inspect({ name: NAME })).locks;
  const holder = view?.holders[0];
  if (!holder) return;
  const order = {
    name: NAME,
    expected: holder.fencingToken,
    by: `a page ${client.id}`,
    reason: 'the button',
  };
  await client.breakLease(order);
}

async function start() {
  const redis = asked.get('redis');
  const client = await connect({
    url: asked.get('store') ?? (redis === null ? 'memory:' : 'redis://'),
    redis: redis === null ? undefined : httpRedisConnection(redis),
    ...(asked.has('store') ? { lease: '10s' } : {}),
    ...(asked.has('ttl') ? { sessionTtlMin: asked.get('ttl') } : {}),
  });
  element('store').textContent = `${client.capability.backend}, as ${client.id}`;
  element('take').addEventListener('click', () => take(client));
  element('give').addEventListener('click', give);
  element('break').addEventListener('click', () => breakIt(client));
  // A page that goes away gives its locks back; if it cannot, they end with their leases.
  addEventListener('pagehide', () => client.close());
  show('free');
  element('state').dataset.readyAfter = performance.now().toFixed(0);
  setInterval(tick, 100);
  setInterval(() => people(client).catch(() => {}), 500);
}

start().catch((error) => {
  element('store').textContent = error.message;
  show('starting', 'no connection');
});
