// Measures the Node package against the floor, the Rust API and its peers, on one server, in one run.
//
//   node bench.mjs REFERENCE [NAME…]     names: load, calls, uncontended, tasks, handoff
//
// REFERENCE is the program built from reference.rs. Figures are taken in turns: trust the ratios.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { connect } from 'polylatch';

import { heading, median, row } from './figures.mjs';
import { peers } from './peers.mjs';
import { startRedis } from './server.mjs';

const NAMES = ['load', 'calls', 'uncontended', 'tasks', 'handoff'];
const ROUNDS = 12;
const TASKS = 64;

const [program, ...asked] = process.argv.slice(2);
const unknown = asked.find((name) => !NAMES.includes(name));
if (program === undefined || unknown !== undefined) {
  console.error(`usage: node bench.mjs REFERENCE [${NAMES.join(' ')}]`);
  process.exit(2);
}
const wanted = (name) => asked.length === 0 || asked.includes(name);

const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const server = await startRedis();
const reference = startReference(server.port);

function startReference(port) {
  const child = spawn(program, [String(port)], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    async ask(order, count) {
      child.stdin.write(`${order} ${count}\n`);
      return Number((await lines.next()).value);
    },
    stop: () => child.stdin.end(),
  };
}

async function pairs(locks, count) {
  const samples = [];
  for (let index = 0; index < count; index += 1) {
    const started = process.hrtime.bigint();
    const release = await locks.acquire('bench');
    await release();
    samples.push(Number(process.hrtime.bigint() - started) / 1e3);
  }
  return median(samples);
}

async function pairsOfTasks(locks, count) {
  const each = Math.ceil(count / TASKS);
  const started = process.hrtime.bigint();
  await Promise.all(
    Array.from({ length: TASKS }, async (_, task) => {
      for (let index = 0; index < each; index += 1) {
        const release = await locks.acquire(`bench-${task}`);
        await release();
      }
    }),
  );
  return (each * TASKS) / (Number(process.hrtime.bigint() - started) / 1e9);
}

function load() {
  heading('loading the package (ms)');
  const forms = {
    require: "const t = performance.now(); require('polylatch'); console.log(performance.now() - t)",
    import: "const t = performance.now(); import('polylatch').then(() => console.log(performance.now() - t))",
  };
  for (const [name, code] of Object.entries(forms)) {
    const run = () => Number(execFileSync(process.execPath, ['-e', code], { encoding: 'utf8' }));
    row(name, 'ms', Array.from({ length: 15 }, run));
  }
}

async function calls() {
  heading('a call inside the process, memory: (µs for acquire + release)');
  const client = await connect('memory:bench');
  const ours = [];
  const rust = [];
  const locks = {
    async acquire(name) {
      const guard = await client.lock(name).acquire();
      return () => guard.release();
    },
  };
  for (let round = 0; round < ROUNDS; round += 1) {
    rust.push(await reference.ask('memory', 2_000));
    ours.push(await pairs(locks, 2_000));
  }
  row('Rust API', 'µs', rust);
  row('polylatch', 'µs', ours);
  const over = ours.map((value, index) => (value - rust[index]) / 2);
  row('over the Rust API, per call', 'µs', over);
  const guard = await client.lock('check').acquire();
  const started = process.hrtime.bigint();
  for (let index = 0; index < 100_000; index += 1) guard.check();
  console.log(`  check(): ${(Number(process.hrtime.bigint() - started) / 1e5).toFixed(0)} ns`);
  await client.close();
}

async function uncontended() {
  heading('acquire + release of a free lock, one after the other (µs)');
  const clients = {};
  for (const name of Object.keys(peers)) clients[name] = await peers[name](server.port);
  const samples = { floor: [], api: [] };
  for (const name of Object.keys(clients)) samples[name] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    samples.floor.push(await reference.ask('floor', 500));
    samples.api.push(await reference.ask('api', 500));
    for (const [name, client] of Object.entries(clients)) samples[name].push(await pairs(client, 300));
  }
  const floor = median(samples.floor);
  row('floor: two round trips, blocking socket', 'µs', samples.floor);
  row('Rust API, current-thread runtime', 'µs', samples.api, { floor });
  for (const name of Object.keys(clients)) row(name, 'µs', samples[name], { floor });
  const over = samples.polylatch.map((value, index) => (value - samples.api[index]) / 2);
  row('polylatch over the Rust API, per call', 'µs', over);
  for (const client of Object.values(clients)) await client.close();
}

async function tasks() {
  heading('64 tasks on 64 locks (pairs a second; more is better)');
  const clients = {};
  for (const name of Object.keys(peers)) clients[name] = await peers[name](server.port);
  const samples = { floor: [], api: [] };
  for (const name of Object.keys(clients)) samples[name] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    samples.floor.push(await reference.ask('pipeline', 20_000));
    samples.api.push(await reference.ask('tasks', 6_400));
    for (const [name, client] of Object.entries(clients)) {
      samples[name].push(await pairsOfTasks(client, 3_200));
    }
  }
  const floor = median(samples.floor);
  row('floor: 64 deep on one connection', 'pairs/s', samples.floor);
  row('Rust API, current-thread runtime', 'pairs/s', samples.api, { floor });
  for (const name of Object.keys(clients)) row(name, 'pairs/s', samples[name], { floor });
  for (const client of Object.values(clients)) await client.close();
}

/** Lets processes contend for one lock, and looks at when each had it. */
async function contend(title, commands, millis, counted = ['eval', 'evalsha']) {
  await server.clear();
  const children = commands.map(([word, ...words]) =>
    spawn(word, words, { stdio: ['pipe', 'pipe', 'inherit'] }),
  );
  const said = children.map((child) => {
    let text = '';
    child.stdout.on('data', (data) => {
      text += data;
    });
    return { ready: once(child.stdout, 'data'), ended: once(child, 'exit'), text: () => text };
  });
  await Promise.all(said.map(({ ready }) => ready));
  const before = await server.commands(counted);
  for (const child of children) child.stdin.write('go\n');
  await sleep(millis);
  const sent = (await server.commands(counted)) - before;
  for (const child of children) child.stdin.end();
  await Promise.all(said.map(({ ended }) => ended));
  const sections = said.flatMap(({ text }, who) =>
    [...text().matchAll(/^(\d+) (\d+)$/gm)].map(([, acquired, released]) => [who, +acquired, +released]),
  );
  sections.sort(([, one], [, other]) => one - other);
  const handed = [];
  const had = new Map();
  for (const [index, [who, acquired]] of sections.entries()) {
    had.set(who, (had.get(who) ?? 0) + 1);
    const before = sections[index - 1];
    if (before !== undefined && before[0] !== who) handed.push((acquired - before[2]) / 1e3);
  }
  row(title, 'µs', handed);
  const shares = children.map((_, who) => had.get(who) ?? 0);
  console.log(
    `    ${sections.length} sections, ${handed.length} handed over, ` +
      `${(sent / sections.length).toFixed(2)} commands each, fewest and most of one process ` +
      `${Math.min(...shares)} and ${Math.max(...shares)}`,
  );
}

async function handoff() {
  heading('hand-off between processes: from release to the return of the next acquire (µs)');
  const contender = (peer) => [process.execPath, here('peer.mjs'), peer, String(server.port), 'contend'];
  for (const peer of Object.keys(peers)) {
    for (const count of [2, 8]) {
      const commands = Array.from({ length: count }, () => contender(peer));
      // This one takes the lock with a bare SET, which its scripts do not use.
      const counted = ['eval', 'evalsha', ...(peer === 'redis-semaphore' ? ['set'] : [])];
      await contend(`${peer}, ${count} processes`, commands, 4_000, counted);
    }
  }
  const python = process.env.POLYLATCH_BENCH_PYTHON;
  if (python !== undefined) {
    const other = [python, here('peer.py'), 'polylatch', String(server.port), 'contend'];
    await contend('polylatch, Node and Python', [contender('polylatch'), other], 4_000);
    await contend('polylatch, Python and Python', [other, other], 4_000);
  } else {
    console.log('  POLYLATCH_WHEEL names no wheel, so there is no Python beside Node');
  }
}

console.log(`Node ${process.version}`);
try {
  if (wanted('load')) load();
  if (wanted('calls')) await calls();
  if (wanted('uncontended')) await uncontended();
  if (wanted('tasks')) await tasks();
  if (wanted('handoff')) await handoff();
} finally {
  reference.stop();
  server.stop();
}
