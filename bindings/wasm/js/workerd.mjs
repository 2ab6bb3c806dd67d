// The package for workerd, which neither reads files nor compiles while a program runs: there, modules come compiled.

import consul from './consul_bg.wasm';
import etcd from './etcd_bg.wasm';
import { provide } from './load.mjs';
import memory from './memory_bg.wasm';
import redis from './redis_bg.wasm';

provide({ memory, redis, consul, etcd });

export * from './index.mjs';
