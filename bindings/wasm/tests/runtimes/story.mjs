// What every runtime has to be able to do with a store. It uses nothing of the runtime's own.

import { LeaseLostError, UnsupportedError, WaitTimeoutError } from 'polylatch-wasm';

function expect(what, so) {
  if (!so) throw new Error(`not so: ${what}`);
}

const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

async function eventually(what, so) {
  const deadline = Date.now() + 20_000;
  while (!(await so())) {
    expect(what, Date.now() < deadline);
    await sleep(10);
  }
}

async function refused(kind, promise) {
  const error = await promise.then(
    () => undefined,
    (error) => error,
  );
  expect(`${kind.name}, not ${error}`, error instanceof kind);
}

/** `open` makes a client; `name` is a lock that nobody else uses. */
export async function story(open, name) {
  const [one, other] = [await open(), await open()];
  const guard = await one.lock(name, { lease: 900, label: 'story' }).acquire();
  expect('only one holds it', (await other.lock(name).tryAcquire()) === null);
  await refused(WaitTimeoutError, other.lock(name, { wait: 50 }).acquire());
  await eventually('it is renewed', () => guard.renewals >= 2);
  guard.check();
  const waiting = other.lock(name, { wait: 20_000 }).acquire();
  await eventually('one waits', async () => (await one.inspect({ name })).locks[0].waiters.length === 1);
  await guard.release();
  const next = await waiting;
  expect('tokens grow', next.fencingToken > guard.fencingToken);
  const lost = new Promise((resolve) => next.signal.addEventListener('abort', resolve));
  await one.breakLease({ name, expected: next.fencingToken, by: 'ann@desk', reason: 'a test' });
  await lost;
  expect('its holder is told', next.signal.reason instanceof LeaseLostError);
  const shared = one.locks.request(name, { mode: 'shared' }, (lock) => lock.mode);
  if (one.capability.sharing) expect('a shared Web Lock is acquired', (await shared) === 'shared');
  else await refused(UnsupportedError, shared);
  await Promise.all([one.close(), other.close()]);
  return 'done';
}
