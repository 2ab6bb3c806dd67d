// A worker of the flash sale: `worker.mjs URL SHOP`. See README.md.
//
// A line in is a buyer, a line out the buyer's answer: `order 17`, `sold out`, or `busy` (ask again later).

import { connect as dial } from 'node:net';
import { createInterface } from 'node:readline';

import { connect, InProgressError, NotRecordedError } from 'polylatch';

const [url, place, ...how] = process.argv.slice(2);
const [host, port] = place.split(':');

/** The order service of another team. It has no key that would refuse a second order of one buyer. */
const wire = dial(Number(port), host);
const lines = createInterface({ input: wire })[Symbol.asyncIterator]();

async function ask(line) {
  wire.write(`${line}\n`);
  return (await lines.next()).value;
}

async function order(buyer, claim) {
  // What a run before this one may have ordered, if it died before it could say so.
  const before = await ask(`find ${buyer}`);
  if (before !== 'none') return before;
  // Another worker may have taken over from one that stood still.
  claim?.check();
  return ask(`order ${buyer}`);
}

const client = await connect(url);

async function answer(buyer) {
  if (how.includes('--without-idempotency')) return order(buyer);
  const orders = client.idempotency(`flash-sale/${buyer}`);
  try {
    // One order for each buyer, however often the button is pressed.
    const options = { payload: 'one item', lease: 4_000, wait: 0 };
    return (await orders.run('order', (claim) => order(buyer, claim), options)).value;
  } catch (error) {
    if (error instanceof InProgressError || error instanceof NotRecordedError) return 'busy';
    throw error;
  }
}

for await (const buyer of createInterface({ input: process.stdin })) {
  process.stdout.write(`${await answer(buyer)}\n`);
}
await client.close();
wire.destroy();
