// The servers of other libraries fit.

import assert from 'node:assert/strict';

import express, { type Request } from 'express';
import Fastify, { type FastifyRequest } from 'fastify';
import { connect, type IdempotencyPluginOptions, idempotencyHandler, idempotencyPlugin } from 'polylatch';

await using client = await connect('memory:libraries');
const options: IdempotencyPluginOptions<FastifyRequest> = {
  client,
  caller: (request) => request.headers.authorization,
  methods: ['POST'],
};
await using app = Fastify();
await app.register(idempotencyPlugin, options);
await app.register(async (part) => {
  await part.register(idempotencyPlugin, {
    client,
    caller: (request: FastifyRequest) => request.ip,
    wait: 100,
  });
});
express().use(idempotencyHandler(client, { caller: (request: Request) => request.get('user') }));
assert.throws(
  // @ts-expect-error an option that does not exist
  () => idempotencyHandler(client, { caller: () => 'user', ttl: 1 }),
  TypeError,
);

console.log('libraries: fine');
