// One library in a process of its own: `peer.mjs PEER PORT pairs` or `peer.mjs PEER PORT contend`.
//
// With `pairs`, each line of the input is a number, and the answer is a line of JSON: a list of so many
// microseconds, one for each acquire and release of a free lock, and the seconds of a processor that the process
// has spent on them. With `contend`, a line of the input starts it; it goes on until the input ends, and then
// prints when it had the lock that all of them contend for, in nanoseconds that all processes share:
// `acquired released`, one line a section.

import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout } from 'node:timers/promises';

import { peers } from './peers.mjs';

/** Milliseconds of a section: one that is over at once is over before another process asks. */
const SECTION = 1;

const [peer, port, what] = process.argv.slice(2);
const locks = await peers[peer](Number(port));
await (what === 'pairs' ? pairs() : contend());
await locks.close();

async function pairs() {
  for await (const line of createInterface({ input: process.stdin })) {
    const took = [];
    const before = process.cpuUsage();
    for (let index = 0; index < Number(line); index += 1) {
      const started = process.hrtime.bigint();
      const release = await locks.acquire(`free-${process.pid}`);
      await release();
      took.push(Number(process.hrtime.bigint() - started) / 1e3);
    }
    const { user, system } = process.cpuUsage(before);
    console.log(JSON.stringify([took, (user + system) / 1e6]));
  }
}

async function contend() {
  const warm = await locks.acquire(`warm-${process.pid}`);
  await warm();
  console.log('ready');
  await once(process.stdin, 'data');
  let goOn = true;
  process.stdin.once('end', () => {
    goOn = false;
  });
  process.stdin.resume();
  const sections = [];
  while (goOn) {
    const release = await locks.acquire('contended');
    const acquired = process.hrtime.bigint();
    await setTimeout(SECTION);
    const released = process.hrtime.bigint();
    await release();
    sections.push(`${acquired} ${released}`);
  }
  process.stdout.write(`${sections.join('\n')}\n`);
}
