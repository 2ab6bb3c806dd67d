// Runs the story in a worker of workerd, once for each request: `?store=STORE&url=URL&name=NAME`.

import { connect, httpRedisConnection } from 'polylatch-wasm';

import { story } from './story.mjs';

export default {
  async fetch(request) {
    const asked = new URL(request.url).searchParams;
    const url = asked.get('url');
    const ways = {
      memory: () => connect(url),
      consul: () => connect(url, { sessionTtlMin: 100 }),
      etcd: () => connect(url),
      redis: () => connect({ redis: httpRedisConnection(url), poll: 50 }),
    };
    try {
      return new Response(await story(ways[asked.get('store')], asked.get('name')));
    } catch (error) {
      return new Response(String(error?.stack ?? error), { status: 500 });
    }
  },
};
