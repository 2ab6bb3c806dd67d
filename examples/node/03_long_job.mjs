// A job that takes longer than its lease: renewed in the background, also while JavaScript is busy; stopped
// when it hangs.

import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

import { connect } from 'polylatch';

const client = await connect(process.env.POLYLATCH_URL ?? 'memory:long-job');

// A short lease frees the lock soon after a crash; renewal keeps it as long as the work moves on.
const guard = await client
  .lock('reports/nightly', {
    label: 'nightly report',
    lease: 1_200,
    beatEvery: 1_000,
    maxHold: 60_000,
  })
  .acquire();
for (let page = 1; page <= 8; page += 1) {
  await sleep(200);
  guard.beat();
  guard.check();
  console.log(`page ${page} done, lease good for another ${Math.round(guard.remaining)} ms`);
}
console.log(`renewed ${guard.renewals} times`);

console.log('now the work hangs: no more beats');
const { signal } = guard;
// The signal does not keep a process alive, so this one needs something else to wait for.
const hanging = setInterval(() => {}, 1_000);
if (!signal.aborted) await once(signal, 'abort');
clearInterval(hanging);
console.log(`the lock is given up: ${signal.reason.reason}`);
await client.close();
