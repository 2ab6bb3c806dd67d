// A worker of redlock or redis-semaphore; see fleet.py. `node.mjs LIBRARY PORT KEY OFFSET`, where OFFSET is what the clock
// of the others is ahead of Node's, in nanoseconds.
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';

const [library, port, key, offset] = process.argv.slice(2);
// Installed in the folder of whoever runs this.
const load = createRequire(`${process.cwd()}/`);
const Redis = load('ioredis');
const client = new Redis(Number(port));
const now = () => process.hrtime.bigint() + BigInt(offset);

async function acquireByRedlock() {
  const { default: Redlock } = load('redlock');
  const redlock = new Redlock([client]);
  // Errors of single tries are reported here, too.
  redlock.on('error', () => {});
  return async () => {
    for (;;) {
      try {
        const lock = await redlock.acquire([key], 20_000);
        return () => lock.release();
      } catch (error) {
        // It gives up after ten tries of about 200 ms; its users ask again.
        if (error.name !== 'ExecutionError') throw error;
      }
    }
  };
}

async function acquireBySemaphore() {
  const { Mutex } = load('redis-semaphore');
  // It puts mutex: before the key, and asks every 10 ms.
  const mutex = new Mutex(client, key.slice('mutex:'.length), { lockTimeout: 20_000, acquireTimeout: 120_000 });
  return async () => {
    await mutex.acquire();
    return () => mutex.release();
  };
}

const acquire = await (library === 'redlock' ? acquireByRedlock() : acquireBySemaphore());
await client.ping();
let over = false;
const begin = new Promise((resolve) => process.stdin.once('data', resolve));
process.stdin.once('end', () => {
  over = true;
});
process.stdin.on('data', () => {});
console.log('ready');
await begin;
while (!over) {
  const asked = now();
  const release = await acquire();
  const entered = now();
  await sleep(50);
  const left = now();
  await release();
  console.log(`${asked} ${entered} ${left}`);
  await sleep(10 + Math.random() * 50);
}
client.disconnect();
