// A lock on a quorum of independent servers: no single one of them can lose it, and none has to be up.
//
//   POLYLATCH_URL=redlock://10.0.0.1,10.0.0.2,10.0.0.3 node 05_quorum.mjs
//
// The program is the same as for one server: what differs is the URL, and what the store can promise.

import { connect } from 'polylatch';

const url = process.env.POLYLATCH_URL ?? 'memory:quorum';
if (!url.startsWith('redlock:')) {
  console.log('this is not a quorum; set POLYLATCH_URL to redlock://HOST,HOST,HOST to see one');
}
const client = await connect(url);
const { backend, fencing } = client.capability;
console.log(`${backend}: fencing tokens are ${fencing}`);

await client.withLock('ledger', { lease: 10_000, wait: 10_000 }, (guard) => {
  // The lease counts from before the request left, so slow nodes make it shorter, never longer.
  console.log(
    `held with token ${guard.fencingToken}, for another ${Math.round(guard.remaining)} ms at least`,
  );
});
await client.close();
