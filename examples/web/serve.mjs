// Serves this folder, and the package from where it is installed: `node serve.mjs`, and open the address that it
// prints, with ?store=consul://localhost:8500 for an agent that lets pages ask.
//
// With a Redis connection it bridges commands, too. That is for a desk: it lets every page of this machine
// send every command. One for others would check who asks, and let only the commands of the locks pass (see
// the documentation of the Redis backend).

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
};

/** The file behind a path of a URL, if it is one that may be served. */
function fileOf(path) {
  const wanted = normalize(decodeURIComponent(path === '/' ? '/index.html' : path));
  if (wanted.includes('..')) return undefined;
  const folder = wanted.startsWith('/node_modules/polylatch-wasm/') ? process.cwd() : here;
  return join(folder, wanted);
}

async function sendFile(path, response) {
  const file = fileOf(path);
  const found = file === undefined ? undefined : await stat(file).catch(() => undefined);
  if (!found?.isFile()) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, {
    'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream',
    'Content-Security-Policy': "script-src 'self' 'wasm-unsafe-eval' 'unsafe-inline'",
  });
  createReadStream(file).pipe(response);
}

async function sendCommand(redis, request, response) {
  const parts = [];
  for await (const part of request) parts.push(part);
  let answer;
  try {
    answer = { result: await redis.command(JSON.parse(Buffer.concat(parts).toString())) };
  } catch (error) {
    answer = { error: String(error.message) };
  }
  response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(answer));
}

async function answer(redis, request, response) {
  const { pathname } = new URL(request.url, 'http://localhost');
  const isCommand = pathname === '/redis' && redis !== undefined && request.method === 'POST';
  await (isCommand ? sendCommand(redis, request, response) : sendFile(pathname, response));
}

/** Serves on a port of its own choice; with `redis`, a connection, bridges POST /redis to it. */
export async function serve({ redis, port = 0 } = {}) {
  const server = createServer((request, response) => {
    answer(redis, request, response).catch(() => response.destroy());
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  return { server, origin: `http://127.0.0.1:${server.address().port}` };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { origin } = await serve({ port: 8080 });
  console.log(origin);
}
