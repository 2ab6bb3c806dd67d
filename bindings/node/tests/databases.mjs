// Database servers with throw-away data, and connections to them by the drivers that applications use.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import mysql from 'mysql2/promise';
import pg from 'pg';

import { freePort } from './stores.mjs';

/** Servers refuse to run as root. */
const NOBODY = 65_534;

/** How the server is run: as whom, and in a folder that belongs to that user. */
function place() {
  const folder = mkdtempSync(join(tmpdir(), 'polylatch-database-'));
  const env = { ...process.env, TMPDIR: folder };
  if (process.getuid() !== 0) return { folder, how: { cwd: folder, env } };
  chownSync(folder, NOBODY, NOBODY);
  return { folder, how: { cwd: folder, env, uid: NOBODY, gid: NOBODY } };
}

/** A server that is running: `url` is that of the store on it, `connect` makes a connection of its driver. */
class Server {
  #folder;
  #child;
  #signal;

  constructor(folder, [program, ...words], how, signal) {
    const log = openSync(join(folder, 'log'), 'w');
    this.#folder = folder;
    this.#signal = signal;
    this.#child = spawn(program, words, { ...how, stdio: ['ignore', log, log] });
  }

  /** Waits until it takes connections. */
  async answers(connect) {
    const deadline = Date.now() + 60_000;
    for (;;) {
      try {
        return await connect();
      } catch (error) {
        if (this.#child.exitCode === null && Date.now() < deadline) await sleep(20);
        else throw new Error(readFileSync(join(this.#folder, 'log'), 'utf8'), { cause: error });
      }
    }
  }

  async stop() {
    const ended = once(this.#child, 'exit');
    this.#child.kill(this.#signal);
    await ended;
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function postgresPrograms() {
  if (process.env.POLYLATCH_TEST_POSTGRES) return process.env.POLYLATCH_TEST_POSTGRES;
  const [newest] = readdirSync('/usr/lib/postgresql').sort((a, b) => Number(b) - Number(a));
  return `/usr/lib/postgresql/${newest}/bin`;
}

export async function startPostgres() {
  const { folder, how } = place();
  const [programs, data, port] = [postgresPrograms(), join(folder, 'data'), await freePort()];
  const words = ['-A', 'trust', '-U', 'postgres', '--no-sync', '--no-locale', '-E', 'UTF8', '-D', data];
  await promisify(execFile)(join(programs, 'initdb'), words, how);
  const command = [
    join(programs, 'postgres'),
    '-D',
    data,
    '-F',
    '-h',
    '127.0.0.1',
    '-p',
    `${port}`,
    '-k',
    '',
  ];
  // Ends at once, and takes its processes and its shared memory with it.
  const server = new Server(folder, command, how, 'SIGQUIT');
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const connect = async (options = {}) => {
    const client = new pg.Client({ connectionString: url, ...options });
    await client.connect();
    return client;
  };
  await (await server.answers(connect)).end();
  return { url, connect, stop: () => server.stop() };
}

export async function startMariadb() {
  const { folder, how } = place();
  const data = join(folder, 'data');
  mkdirSync(data);
  if (how.uid !== undefined) chownSync(data, how.uid, how.gid);
  const port = await freePort();
  const given = process.env.POLYLATCH_TEST_MARIADB;
  // Without the tables of users, which take seconds to make.
  const command = [
    given ? join(given, 'mariadbd') : '/usr/sbin/mariadbd',
    '--no-defaults',
    '--skip-grant-tables',
    `--datadir=${data}`,
    '--bind-address=127.0.0.1',
    `--port=${port}`,
    `--socket=${join(folder, 'socket')}`,
    '--innodb-log-file-size=8M',
    '--innodb-buffer-pool-size=32M',
  ];
  const server = new Server(folder, command, how, 'SIGKILL');
  const connect = (options = {}) =>
    mysql.createConnection({ host: '127.0.0.1', port, user: 'root', database: 'locks', ...options });
  const first = await server.answers(() => connect({ database: undefined }));
  await first.query('CREATE DATABASE locks');
  await first.end();
  return { url: `mariadb://root@127.0.0.1:${port}/locks`, connect, stop: () => server.stop() };
}
