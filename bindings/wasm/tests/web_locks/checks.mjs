// What the checks of Web Locks are made of, and how they are run.

/** How long a check waits for what must come. */
const PATIENCE = 20_000;

export function assert(so, what) {
  if (!so) throw new Error(what);
}

export function equal(found, wanted, what) {
  const [one, two] = [found, wanted].map((value) => JSON.stringify(value) ?? String(value));
  assert(one === two, `${what}: ${one}, not ${two}`);
}

export const pause = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

export function deferred() {
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
}

/** Waits until something is so; only for what is told by no promise. */
export async function until(what, so) {
  const end = Date.now() + PATIENCE;
  while (!(await so())) {
    assert(Date.now() < end, `still not: ${what}`);
    await pause(5);
  }
}

/** Holds a lock until `release(value)`; `done` is what `request` returned. */
export async function hold(locks, name, options = {}) {
  const [granted, end] = [deferred(), deferred()];
  const done = locks.request(name, options, (lock) => {
    granted.resolve(lock);
    return end.promise;
  });
  done.catch(granted.reject);
  const lock = await granted.promise;
  const release = (value) => {
    end.resolve(value);
    return done;
  };
  return { lock, release, done, end };
}

export async function rejection(promise) {
  try {
    await promise;
  } catch (error) {
    return { error };
  }
  throw new Error('it was not rejected');
}

export async function rejects(promise, name, what) {
  // By what it can do: that of another document is of another class.
  assert(typeof promise?.then === 'function', `${what}: no promise was returned`);
  const { error } = await rejection(promise);
  assert(error?.name === name, `${what}: ${error?.name} (${error?.message}), not ${name}`);
}

export async function of(locks, name) {
  const { held, pending } = await locks.query();
  const mine = (list) => list.filter((lock) => lock.name === name);
  return { held: mine(held), pending: mine(pending) };
}

export const isFree = (locks, name, mode = 'exclusive') =>
  locks.request(name, { mode, ifAvailable: true }, (lock) => lock !== null);

export const never = () => {
  throw new Error('this callback must not run');
};

/** Runs checks one after the other; returns what failed, by what was checked. */
export async function failures(adapter, checks) {
  const failed = {};
  for (const [at, { what, run }] of checks.entries()) {
    const late = pause(PATIENCE * 1.5).then(() => {
      throw new Error('it did not end in time');
    });
    late.catch(() => {});
    try {
      await Promise.race([run({ ...adapter, name: `${adapter.prefix}/${at}` }), late]);
    } catch (error) {
      failed[what] = `${error}\n${error?.stack ?? ''}`;
    }
  }
  return failed;
}
