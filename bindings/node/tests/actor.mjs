// What processes.test.mjs starts as a process or a worker: `actor.mjs STORY URL NAME`.

import { setTimeout as sleep } from 'node:timers/promises';
import { parentPort } from 'node:worker_threads';

import { connect } from 'polylatch';

import { block } from './stores.mjs';

const [story, url, name] = process.argv.slice(2);
const client = await connect(url);
// Kept here: a guard that nobody has is given back when it is collected.
let kept;
async function hold() {
  kept = await client.lock(name, { lease: 60_000 }).acquire();
  return kept;
}

switch (story) {
  case 'hold':
    await hold();
    console.log('held');
    break;
  case 'hold-and-listen': {
    const guard = await hold();
    guard.signal.addEventListener('abort', () => console.log('lost'));
    guard.endangered.addEventListener('abort', () => console.log('endangered'));
    console.log('held');
    break;
  }
  case 'hold-and-exit':
    await hold();
    console.log('held');
    process.exit(0);
    break;
  case 'hold-and-throw':
    await hold();
    console.log('held');
    process.exitCode = 7;
    process.once('uncaughtException', () => process.exit(7));
    setImmediate(() => {
      throw new Error('on purpose');
    });
    break;
  case 'wait': {
    // Nothing else keeps this process alive.
    const guard = await hold();
    console.log('held');
    await guard.release();
    break;
  }
  case 'wait-and-exit':
    hold().catch(() => {});
    await sleep(300);
    process.exit(0);
    break;
  case 'forget': {
    await (async () => {
      const guard = await client.lock(name, { lease: 60_000 }).acquire();
      // Whoever listens to a guard does not keep it.
      guard.signal.addEventListener('abort', () => {});
    })();
    const deadline = Date.now() + 30_000;
    while ((await client.inspect({ name })).locks[0].holders.length > 0) {
      if (Date.now() > deadline) throw new Error('it is still held');
      globalThis.gc();
      await sleep(10);
    }
    console.log('given back');
    break;
  }
  case 'forget-kept': {
    const lock = client.lock(name, { lease: 60_000, keepIdle: 60_000 });
    let first;
    await (async () => {
      await (await lock.acquire()).release();
      // Entered without a request.
      const guard = await lock.acquire();
      guard.check();
      first = guard.fencingToken;
    })();
    let next;
    const acquiring = lock.acquire().then((guard) => {
      next = guard;
    });
    while (next === undefined) {
      globalThis.gc();
      await sleep(10);
    }
    await acquiring;
    console.log(next.fencingToken > first ? 'released' : 'its token is not larger');
    await next.release();
    break;
  }
  case 'forget-and-do-nothing': {
    await (async () => {
      const guard = await client.lock(name, { lease: 60_000 }).acquire();
      guard.check();
      console.log('held');
    })();
    // Nothing is called any more: that it is given back is seen by others.
    for (;;) {
      globalThis.gc();
      await sleep(10);
    }
  }
  case 'same-turn': {
    // A lock is given back in the turn in which another lease ends, whose listener acquires: what it gets may
    // have the number that the first one had, and whoever gets that number later must not suffer for it.
    const memory = await connect('memory:');
    // Whoever only listens for a loss does not keep the process.
    setInterval(() => {}, 60_000);
    for (let round = 0; round < 3; round += 1) {
      const guard = await client.lock(name, { lease: 60_000 }).acquire();
      for (let times = 0; times < 5; times += 1) {
        globalThis.gc();
        await sleep(2);
      }
      guard.check();
      const short = await client.lock(`${name}/short`, { lease: 300, renew: false }).acquire();
      const lost = new Promise((resolve) => {
        short.signal.addEventListener('abort', () => resolve(memory.lock(name).tryAcquire()));
      });
      await sleep(250);
      const released = guard.release();
      // Until both have come to their ends.
      block(100);
      const inner = await lost;
      await released;
      inner.check();
      await inner.release();
    }
    console.log('kept');
    process.exit(0);
    break;
  }
  case 'worker-end':
  case 'worker-exit':
  case 'worker-terminate':
    await hold();
    parentPort.once('message', () => {
      kept.check();
      if (story === 'worker-exit') process.exit(0);
    });
    parentPort.postMessage('held');
    break;
  default:
    throw new Error(`there is no story ${story}`);
}
