// A real etcd for the tests: one member, which lets pages ask it.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { freePorts } from './consul.mjs';

async function isHealthy(origin) {
  try {
    const answer = await fetch(`${origin}/health`);
    return answer.ok && (await answer.json()).health === 'true';
  } catch {
    return false;
  }
}

const key = (text) => Buffer.from(text).toString('base64');
/** Paths below `/v3/auth/`, and what is sent there. */
const USERS = [
  ['user/add', { name: 'root', password: 'r' }],
  ['user/grant', { user: 'root', role: 'root' }],
  ['user/add', { name: 'app', password: 'hu/sh' }],
  ['role/add', { name: 'locks' }],
  ['role/grant', { name: 'locks', perm: { permType: 2, key: key('shop/'), range_end: key('shop0') } }],
  ['user/grant', { user: 'app', role: 'locks' }],
  ['enable', {}],
];

/**
 * Starts a member. `cors` says which origins it lets ask. It listens on two ports; that of `secureUrl` speaks TLS, with a
 * certificate that it makes. `requireUser` makes it refuse who does not log in, and returns the URL of a user who may
 * write below `shop/`; `stop` ends the member.
 */
export async function startEtcd({ cors = '*' } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'polylatch-etcd-'));
  // A port that was free may be taken by the time it is used: then the member ends, and others are tried.
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const [plain, secure, peers] = await freePorts(3);
    const origin = `http://127.0.0.1:${plain}`;
    const ask = async (path, body) => {
      const answer = await fetch(`${origin}${path}`, { method: 'POST', body: JSON.stringify(body) });
      if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
    };
    const clients = `${origin},https://127.0.0.1:${secure}`;
    const peer = `http://127.0.0.1:${peers}`;
    const words = [
      ...['--name', 'm0', '--data-dir', join(folder, String(attempt)), '--cors', cors, '--auto-tls'],
      ...['--listen-client-urls', clients, '--advertise-client-urls', clients],
      ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
      ...['--initial-cluster', `m0=${peer}`, '--heartbeat-interval=30', '--election-timeout=300'],
    ];
    const child = spawn(join(process.env.POLYLATCH_TEST_ETCD ?? '', 'etcd'), words, { stdio: 'ignore' });
    let ended = false;
    child.once('exit', () => {
      ended = true;
    });
    child.once('error', () => {
      ended = true;
    });
    const deadline = Date.now() + 60_000;
    while (!ended && Date.now() < deadline) {
      if (await isHealthy(origin)) {
        return {
          url: `etcd://127.0.0.1:${plain}`,
          secureUrl: `etcd+https://127.0.0.1:${secure}`,
          async requireUser() {
            for (const [path, body] of USERS) await ask(`/v3/auth/${path}`, body);
            return `etcd://app:hu%2Fsh@127.0.0.1:${plain}/shop`;
          },
          stop() {
            child.kill('SIGKILL');
            rmSync(folder, { recursive: true, force: true });
          },
        };
      }
      await sleep(50);
    }
    child.kill('SIGKILL');
  }
  throw new Error('etcd does not start; is it installed?');
}
