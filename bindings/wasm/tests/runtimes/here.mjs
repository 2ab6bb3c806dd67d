// Runs the story in the runtime that starts it: `here.mjs STORE URL NAME`.

import { Redis } from 'ioredis';
import { connect, ioredisConnection } from 'polylatch-wasm';

import { story } from './story.mjs';

const [store, url, name] = globalThis.process.argv.slice(2);
const connections = [];
const ways = {
  memory: () => connect(url),
  consul: () => connect(url, { sessionTtlMin: 100 }),
  etcd: () => connect(url),
  redis() {
    const connection = new Redis(url);
    connections.push(connection);
    return connect({ redis: ioredisConnection(connection) });
  },
};
console.log(await story(ways[store], name));
for (const connection of connections) connection.disconnect();
