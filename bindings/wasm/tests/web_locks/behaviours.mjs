// What the specification says of Web Locks (W3C, "Web Locks API"), in our own words, as checks that run against any
// implementation: the browser's `navigator.locks` and ours. Each gets `{ locks, other, name }`: the locks of one client, a
// function that makes another client (`{ locks, end }`), and a name that no other check uses.

import { equal, hold, never, of, pause, rejection, rejects, until } from './checks.mjs';
import { REQUESTS } from './requests.mjs';
import { THEFTS } from './thefts.mjs';

/** What holds for both. */
export const BEHAVIOURS = [...REQUESTS, ...THEFTS];

/** What we do otherwise, with the reason; `real` and `ours` are checks of what each does. */
export const DIFFERENCES = [
  {
    what: 'a name that is no text',
    why: 'a mistake, where the browser takes its text: "undefined" would be a lock of every program on the store',
    real: async ({ locks }) => equal(await locks.request(12.5, (lock) => lock.name), '12.5', 'the name'),
    ours: ({ locks }) => rejects(locks.request(12.5, never), 'TypeError', 'a number'),
  },
  {
    what: 'a flag that is no boolean',
    why: 'a mistake, as everywhere in this package, where the browser converts it',
    real: async ({ locks, name }) =>
      equal(await locks.request(name, { ifAvailable: 1 }, () => 1), 1, 'the result'),
    ours: ({ locks, name }) =>
      rejects(locks.request(name, { ifAvailable: 1 }, never), 'TypeError', 'a number'),
  },
  {
    what: 'an option that is not known',
    why: 'a mistake, as everywhere in this package, where the browser ignores it',
    real: async ({ locks, name }) => equal(await locks.request(name, { nope: 1 }, () => 1), 1, 'the result'),
    ours: ({ locks, name }) => rejects(locks.request(name, { nope: 1 }, never), 'TypeError', 'nope'),
  },
  {
    what: 'a name of more than 512 bytes',
    why: 'stores limit keys, so names of locks have a limit everywhere',
    real: async ({ locks }) => equal(await locks.request('x'.repeat(513), () => 1), 1, 'the result'),
    ours: async ({ locks }) => {
      const { error } = await rejection(locks.request('x'.repeat(513), never));
      equal(error.code, 'invalid_argument', 'the code');
    },
  },
  {
    what: 'a request of a client that ended',
    why: 'our client is closed by the program, which is told; the document of a request in the browser is gone',
    real: async ({ name, other }) => {
      const client = await other();
      const { done } = await hold(client.locks, name);
      await client.end();
      const settled = await Promise.race([done.then(String, String), pause(300).then(() => 'pending')]);
      equal(settled, 'pending', 'the request');
    },
    ours: async ({ name, other, locks }) => {
      const [client, holder] = [await other(), await hold(locks, name)];
      const waiting = rejection(client.locks.request(name, never));
      await until('it waits', async () => (await of(locks, name)).pending.length === 1);
      await client.end();
      equal((await waiting).error.code, 'canceled', 'the code');
      await holder.release();
    },
  },
];
