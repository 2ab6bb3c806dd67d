// A real Consul agent for the tests, which lets pages ask it.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** Ports that are free now. */
export async function freePorts(count) {
  const servers = [];
  for (let index = 0; index < count; index += 1) {
    servers.push(
      await new Promise((resolve, reject) => {
        const server = createServer().once('error', reject);
        server.listen(0, '127.0.0.1', () => resolve(server));
      }),
    );
  }
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

async function hasLeader(origin) {
  try {
    const answer = await fetch(`${origin}/v1/status/leader`);
    return answer.ok && (await answer.json()) !== '';
  } catch {
    return false;
  }
}

/** Starts an agent that keeps nothing. `stop` ends it. */
export async function startConsul() {
  const folder = mkdtempSync(join(tmpdir(), 'polylatch-consul-'));
  // A port that was free may be taken by the time it is used: then the agent ends, and others are tried.
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const [http, server, lan, wan] = await freePorts(4);
    const config = {
      server: true,
      bind_addr: '127.0.0.1',
      client_addr: '127.0.0.1',
      ports: { http, https: -1, server, serf_lan: lan, serf_wan: wan, dns: -1, grpc: -1 },
      session_ttl_min: '20ms',
      performance: { raft_multiplier: 1 },
      disable_update_check: true,
      log_level: 'warn',
      http_config: {
        response_headers: {
          'Access-Control-Allow-Origin': '*',
          'Access-Control-Allow-Methods': 'GET, PUT, POST, DELETE, OPTIONS',
          'Access-Control-Allow-Headers': 'Content-Type, X-Consul-Token',
          'Access-Control-Expose-Headers': 'X-Consul-Index',
        },
      },
    };
    const file = join(folder, 'agent.json');
    writeFileSync(file, JSON.stringify(config));
    const child = spawn('consul', ['agent', '-dev', `-config-file=${file}`], { stdio: 'ignore' });
    let ended = false;
    child.once('exit', () => {
      ended = true;
    });
    child.once('error', () => {
      ended = true;
    });
    const deadline = Date.now() + 60_000;
    while (!ended && Date.now() < deadline) {
      if (await hasLeader(`http://127.0.0.1:${http}`)) {
        return {
          url: `consul://127.0.0.1:${http}`,
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
  throw new Error('consul does not start; is it installed?');
}
