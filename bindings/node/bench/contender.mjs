// One process that contends for one lock: `contender.mjs PEER PORT NAME`. A line on its input starts it; it
// goes on until the input ends, and then prints when it had the lock, in nanoseconds that all processes
// share: `acquired released`, one line a section.

import { once } from 'node:events';

import { peers } from './peers.mjs';

const [peer, port, name] = process.argv.slice(2);
const locks = await peers[peer](Number(port));
const warm = await locks.acquire(`${name}/${process.pid}`);
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
  const release = await locks.acquire(name);
  const acquired = process.hrtime.bigint();
  const released = process.hrtime.bigint();
  await release();
  sections.push(`${acquired} ${released}`);
}
process.stdout.write(`${sections.join('\n')}\n`);
await locks.close();
