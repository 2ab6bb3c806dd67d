// The same package, as CommonJS sees it.

import polylatch = require('polylatch');

async function main(): Promise<void> {
  const client: polylatch.Client = await polylatch.connect('memory:required');
  const guard: polylatch.Guard = await client.lock('a').acquire();
  await guard.release();
  await client.close();
}

main();
