// Lets the conformance runner drive the Node package: requests and answers are JSON lines. The protocol
// stands in tests/conformance/README.md. It tests the `polylatch` that is installed beside it.

import { once } from 'node:events';
import { createInterface } from 'node:readline';

import * as polylatch from 'polylatch';

const { connect, PolylatchError } = polylatch;

/** What each option of the protocol is called here. */
const OPTIONS = {
  lease_ms: 'lease',
  wait_ms: 'wait',
  max_hold_ms: 'maxHold',
  beat_every_ms: 'beatEvery',
  keep_idle_ms: 'keepIdle',
  label: 'label',
  owner: 'owner',
  fifo: 'fifo',
  renew: 'renew',
  on_failure: 'onFailure',
};

const clients = new Map();
const heard = new Map();
/** Locks that are named, and not acquired. */
const names = [];
const guards = new Map();
const running = new Map();
/** Idempotent work that waits, and how to let it go on. */
const waiting = new Map();

function gate(name) {
  if (!waiting.has(name)) {
    const gate = {};
    gate.working = new Promise((resolve) => {
      gate.begin = resolve;
    });
    gate.opened = new Promise((resolve) => {
      gate.open = resolve;
    });
    waiting.set(name, gate);
  }
  return waiting.get(name);
}

async function run({ client, scope, key, payload, value, fails, waits, options: given }, signal) {
  const work = async () => {
    if (waits !== null) {
      gate(waits).begin();
      await gate(waits).opened;
    }
    if (fails) throw new polylatch.WorkFailedError('the work fails', { answer: value });
    return value;
  };
  const how = { ...options(given), payload: payload ?? undefined, signal };
  return found(clients, 'client', client).idempotency(scope).run(key, work, how);
}

function say(answer) {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

function found(map, what, name) {
  const value = map.get(name);
  if (value === undefined) throw new Error(`there is no ${what} ${name}`);
  return value;
}

function options(given) {
  const entries = Object.entries(given ?? {}).map(([key, value]) => {
    if (!(key in OPTIONS)) throw new Error(`there is no option ${key}`);
    return [OPTIONS[key], value];
  });
  return Object.fromEntries(entries);
}

function named({ client, lock, mode, options: given }) {
  const of = found(clients, 'client', client);
  const how = options(given);
  switch (mode.kind) {
    case 'mutex':
      return of.lock(lock, how);
    case 'read':
      return of.rwLock(lock, how).read();
    case 'write':
      return of.rwLock(lock, how).write();
    case 'permits':
      return of.semaphore(lock, mode.capacity, how).permits(mode.count);
    default:
      throw new Error(`there is no mode ${mode.kind}`);
  }
}

function kept(name, guard) {
  if (guard === null) return { held: false };
  guards.set(name, guard);
  return { held: true, token: Number(guard.fencingToken), locks: [guard.name] };
}

function keptSet(name, set) {
  if (set === null) return { held: false };
  guards.set(name, set);
  return { held: true, locks: set.names };
}

async function see({ client, lock }) {
  const snapshot = await found(clients, 'client', client).inspect({ name: lock });
  const [view] = snapshot.locks;
  const who = (id) => {
    const known = snapshot.clients.find((client) => client.id === id);
    return { pid: known?.pid ?? null, language: known?.language ?? null };
  };
  return {
    holders: (view?.holders ?? []).map((holder) => ({
      label: holder.label,
      mode: holder.mode,
      permits: holder.permits,
      token: holder.fencingToken === null ? null : Number(holder.fencingToken),
      renewals: holder.renewals,
      ...who(holder.client),
    })),
    waiters: (view?.waiters ?? []).map((waiter) => ({
      label: waiter.label,
      mode: waiter.mode,
      permits: waiter.permits,
      ...who(waiter.client),
    })),
  };
}

async function serve(request, signal) {
  const guard = () => found(guards, 'guard', request.guard);
  switch (request.op) {
    case 'connect': {
      const events = [];
      const client = await connect(request.url, { onEvent: (event) => events.push(event) });
      heard.set(request.client, events);
      clients.set(request.client, client);
      return { capability: client.capability };
    }
    case 'name':
      names.push(named(request));
      return {};
    case 'acquire':
      return kept(request.guard, await named(request).acquire({ signal }));
    case 'try':
      return kept(request.guard, await named(request).tryAcquire({ signal }));
    case 'lock_all':
    case 'try_all': {
      const all = found(clients, 'client', request.client).lockAll(request.locks, options(request.options));
      const set = await (request.op === 'lock_all' ? all.acquire({ signal }) : all.tryAcquire({ signal }));
      return keptSet(request.guard, set);
    }
    case 'release':
      await guard().release();
      return {};
    case 'check':
      guard().check();
      return {};
    case 'beat':
      guard().beat();
      return {};
    case 'extend':
      await guard().extend(request.lease_ms);
      return {};
    case 'lost': {
      const lost = guard().signal;
      if (!lost.aborted) await once(lost, 'abort');
      return { reason: lost.reason.reason };
    }
    case 'downgrade':
      await guard().downgrade();
      return kept(request.guard, guard());
    case 'upgrade':
      return (await guard().tryUpgrade()) ? kept(request.guard, guard()) : { held: false };
    case 'see':
      return see(request);
    case 'break': {
      const { client, lock, token, by, reason } = request;
      const order = { name: lock, expected: BigInt(token), by, reason };
      return { outcome: (await found(clients, 'client', client).breakLease(order)).outcome };
    }
    case 'told': {
      const events = found(heard, 'client', request.client).filter(({ lock }) => lock === request.lock);
      return { events: events.map(({ level, event }) => `${level} ${event}`) };
    }
    case 'stats': {
      const { stats } = found(clients, 'client', request.client);
      const { acquired, refused, timedOut, held, waiting, losses } = stats;
      const lost = Object.values(losses).reduce((sum, each) => sum + each, 0);
      return { acquired, refused, timed_out: timedOut, held, waiting, losses: lost };
    }
    case 'run':
      return run(request, signal);
    case 'working':
      await gate(request.waits).working;
      return {};
    case 'end_run':
      gate(request.waits).open();
      return {};
    case 'close':
      await found(clients, 'client', request.client).close();
      return {};
    default:
      throw new Error(`there is no verb ${request.op}`);
  }
}

function told(error) {
  const { code, retry, effect, reason, message } = error;
  return { code, retry, effect, reason: reason ?? null, message };
}

say({
  hello: 'polylatch',
  protocol: 1,
  language: process.env.POLYLATCH_TEST_LANGUAGE ?? 'node',
  version: process.version,
  // The package for pages, which this drives as well, has none.
  can: polylatch.Idempotency === undefined ? ['cancel'] : ['cancel', 'idempotency'],
});

const canceled = new Error('the runner canceled it');
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const { id, op, target } = request;
  if (op === 'cancel') {
    running.get(target)?.abort(canceled);
    say({ id, ok: {} });
    continue;
  }
  const controller = new AbortController();
  running.set(id, controller);
  serve(request, controller.signal)
    .then(
      (ok) => say({ id, ok }),
      (error) => {
        if (error === canceled) say({ id, canceled: true });
        else if (error instanceof PolylatchError) say({ id, error: told(error) });
        else say({ id, fault: String(error.stack ?? error) });
      },
    )
    .finally(() => running.delete(id));
}
