// Requests: what they take and give, names, modes, order and `ifAvailable`.

import { assert, equal, hold, isFree, never, of, rejection, rejects, until } from './checks.mjs';

const all = [];
const check = (what, run) => all.push({ what, run });

// request: arguments and results

check('request returns a promise for what the callback returns', async ({ locks, name }) => {
  for (const [result, wanted] of [
    [5, 5],
    [undefined, undefined],
    [null, null],
    [Promise.resolve('later'), 'later'],
    // biome-ignore lint/suspicious/noThenProperty: a thenable is what is meant
    [{ then: (done) => done('by a thenable') }, 'by a thenable'],
  ]) {
    const returned = locks.request(name, () => result);
    assert(returned instanceof Promise, 'no promise was returned');
    equal(await returned, wanted, 'what it resolves to');
  }
});

check('the callback runs after request has returned', async ({ locks, name }) => {
  let ran = false;
  const done = locks.request(name, () => {
    ran = true;
  });
  equal(ran, false, 'ran while request was called');
  await done;
  equal(ran, true, 'ran at last');
});

check('a name and a callback are needed', async ({ locks, name }) => {
  await rejects(locks.request(), 'TypeError', 'nothing');
  await rejects(locks.request(name), 'TypeError', 'a name alone');
  for (const work of [undefined, null, 1, 'text', [], {}, Promise.resolve()]) {
    await rejects(locks.request(name, work), 'TypeError', `the callback ${String(work)}`);
    await rejects(locks.request(name, {}, work), 'TypeError', `the callback ${String(work)} after options`);
  }
});

check('a mode is exclusive or shared, and exclusive unless something is said', async ({ locks, name }) => {
  for (const mode of ['both', 'Shared', '', null, 1]) {
    await rejects(locks.request(name, { mode }, never), 'TypeError', `the mode ${mode}`);
  }
  const mode = (lock) => lock.mode;
  for (const options of [undefined, null, {}, { mode: undefined }, { mode: 'exclusive' }]) {
    equal(await locks.request(name, options, mode), 'exclusive', 'the mode');
  }
  equal(await locks.request(name, mode), 'exclusive', 'the mode without options');
  equal(await locks.request(name, { mode: 'shared' }, mode), 'shared', 'the mode');
});

check(
  'what a callback throws is what request rejects with, and the lock is free',
  async ({ locks, name }) => {
    let thenables = 0;
    const thenable = {
      // biome-ignore lint/suspicious/noThenProperty: it must not be called
      then() {
        thenables += 1;
      },
    };
    for (const thrown of [new Error('on purpose'), { name: 'an object' }, 'a text', undefined, thenable]) {
      const at = () => {
        throw thrown;
      };
      for (const work of [at, async () => at()]) {
        const returned = locks.request(name, work);
        assert(returned instanceof Promise, 'it threw at once');
        assert((await rejection(returned)).error === thrown, 'another error came back');
        equal(await isFree(locks, name), true, 'free afterwards');
      }
    }
    equal(thenables, 0, 'how often a thrown thenable was called');
  },
);

check(
  'the lock is held until the callback is done, and request resolves after its release',
  async ({ locks, name }) => {
    const { release, end } = await hold(locks, name);
    const order = [];
    end.promise.then(() => order.push('callback'));
    const next = locks.request(name, () => order.push('next'));
    await isFree(locks, name);
    equal(order, [], 'before the release');
    const done = release('result').then((result) => order.push(result));
    await Promise.all([done, next]);
    assert(order[0] === 'callback', `the order was ${order}`);
    equal(await locks.request(name, () => isFree(locks, name)), false, 'free while it is held');
    await (await hold(locks, name)).release();
    equal(await isFree(locks, name), true, 'free as soon as request has resolved');
  },
);

check('a lock has a name and a mode, which stay and cannot be changed', async ({ locks, name }) => {
  for (const mode of ['exclusive', 'shared']) {
    const { lock, release } = await hold(locks, name, { mode });
    await release();
    for (const [field, value] of [
      ['name', name],
      ['mode', mode],
    ]) {
      let thrown;
      try {
        lock[field] = 'another';
      } catch (error) {
        thrown = error;
      }
      assert(thrown instanceof TypeError, `${field} can be set`);
      equal(lock[field], value, field);
    }
  }
});

// names

const ODD_NAMES = [
  '',
  ' ',
  'a\0b',
  '\n',
  '\x7f\x85',
  '\ud800',
  '\udc00',
  '\udc00\ud800',
  'a\ud800b',
  '\uffff',
  '\ufeff',
  'é',
  'e\u0301',
  '🔒',
  'a-b',
  '"',
  '"\\ud800"',
  '\\',
  '{%}',
];

check('a name may be any text that does not begin with "-"', async ({ locks, name }) => {
  for (const odd of [...ODD_NAMES, ...ODD_NAMES.map((odd) => name + odd)]) {
    await locks.request(odd, async (lock) => {
      assert(lock.name === odd, `${JSON.stringify(odd)} became ${JSON.stringify(lock.name)}`);
      // Chromium lists half of a surrogate pair as another character.
      if (!odd.isWellFormed()) return;
      assert((await of(locks, odd)).held.length === 1, `${JSON.stringify(odd)} is not in the snapshot`);
    });
  }
});

check('names are compared by their code units', async ({ locks }) => {
  const held = await Promise.all([...ODD_NAMES, 'E\u0301', '\ufffd'].map((name) => hold(locks, name)));
  await Promise.all(held.map(({ release }) => release()));
});

check('a name that begins with "-" is not supported', async ({ locks }) => {
  for (const name of ['-', '-a', '--', '-""']) {
    await rejects(locks.request(name, never), 'NotSupportedError', name);
  }
});

// modes and order

check('an exclusive lock excludes all, shared ones only exclusive ones', async ({ locks, name }) => {
  const exclusive = await hold(locks, name);
  equal([await isFree(locks, name), await isFree(locks, name, 'shared')], [false, false], 'beside exclusive');
  await exclusive.release();
  const shared = [await hold(locks, name, { mode: 'shared' }), await hold(locks, name, { mode: 'shared' })];
  equal([await isFree(locks, name), await isFree(locks, name, 'shared')], [false, true], 'beside shared');
  await shared[0].release();
  equal(await isFree(locks, name), false, 'beside the other shared one');
  await shared[1].release();
  equal(await isFree(locks, name), true, 'after both');
});

check('locks of other names do not meet', async ({ locks, name }) => {
  const one = await hold(locks, name);
  await (await hold(locks, `${name}/2`)).release();
  await one.release();
});

check('requests are granted in the order in which they were made', async ({ locks, name }) => {
  const first = await hold(locks, name);
  const order = [];
  const waiting = Array.from({ length: 12 }, (_, at) => locks.request(name, () => order.push(at)));
  await first.release();
  await Promise.all(waiting);
  equal(
    order,
    waiting.map((_, at) => at),
    'the order',
  );
});

check(
  'shared requests are granted together, but not before an exclusive one in front',
  async ({ locks, name }) => {
    const held = await Promise.all([1, 2, 3].map(() => hold(locks, name, { mode: 'shared' })));
    const exclusive = hold(locks, name);
    const behind = [1, 2, 3, 4, 5].map(() => hold(locks, name, { mode: 'shared' }));
    await until('all wait', async () => (await of(locks, name)).pending.length === 6);
    equal(await isFree(locks, name, 'shared'), false, 'shared beside a waiting exclusive one');
    await Promise.all(held.map(({ release }) => release()));
    const { release } = await exclusive;
    const modes = async () => {
      const { held: holders, pending } = await of(locks, name);
      return [holders.map((lock) => lock.mode), pending.length];
    };
    equal(await modes(), [['exclusive'], 5], 'who holds and how many wait');
    await release();
    const together = await Promise.all(behind);
    equal(await modes(), [Array(5).fill('shared'), 0], 'who holds and how many wait');
    await Promise.all(together.map((each) => each.release()));
  },
);

// ifAvailable

check(
  'ifAvailable gives null to the callback if the lock cannot be granted at once',
  async ({ locks, name }) => {
    equal(await locks.request(name, { ifAvailable: true }, (lock) => lock.name), name, 'a free lock');
    const { release } = await hold(locks, name);
    equal(
      await locks.request(name, { ifAvailable: true }, (lock) => [lock, 123]),
      [null, 123],
      'a held lock',
    );
    equal(await locks.request(name, { ifAvailable: true, mode: 'shared' }, (lock) => lock), null, 'shared');
    const thrown = { name: 'thrown' };
    const at = () => {
      throw thrown;
    };
    for (const work of [at, async () => at()]) {
      const { error } = await rejection(locks.request(name, { ifAvailable: true }, work));
      assert(error === thrown, 'another error came back');
    }
    equal((await of(locks, name)).pending, [], 'who waits');
    await release();
    equal(await isFree(locks, name), true, 'a released lock');
  },
);

export const REQUESTS = all;
