// Polylatch and its peers behind one form: acquire waits for the lock and answers with how to release it.

import { Redis } from 'ioredis';
import { connect } from 'polylatch';
import { Mutex } from 'redis-semaphore';
import redlockModule from 'redlock';

const Redlock = redlockModule.default ?? redlockModule;
const LEASE = 10_000;

export const peers = {
  async polylatch(port) {
    const client = await connect(`redis://127.0.0.1:${port}`);
    return {
      async acquire(name) {
        const guard = await client.lock(name, { lease: LEASE }).acquire();
        return () => guard.release();
      },
      close: () => client.close(),
    };
  },
  async redlock(port) {
    const redis = new Redis(port, '127.0.0.1');
    // As its documentation sets it up, but waiting as long as it takes.
    const redlock = new Redlock([redis], { retryCount: -1 });
    redlock.on('error', () => {});
    return {
      async acquire(name) {
        const lock = await redlock.acquire([name], LEASE);
        return () => lock.release();
      },
      close: () => redis.disconnect(),
    };
  },
  async 'redis-semaphore'(port) {
    const redis = new Redis(port, '127.0.0.1');
    return {
      async acquire(name) {
        const mutex = new Mutex(redis, name, { lockTimeout: LEASE, acquireTimeout: 120_000 });
        await mutex.acquire();
        return () => mutex.release();
      },
      close: () => redis.disconnect(),
    };
  },
};
