// A lock on three servers: the story that is told of it, and what is true when servers are gone.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { BackendUnavailableError, connect, QuorumUnreachableError } from 'polylatch';

import { startRedis, unique } from './stores.mjs';

describe('a quorum', () => {
  const folder = mkdtempSync(join(tmpdir(), 'polylatch-quorum-'));
  const servers = [];
  let url;
  before(async () => {
    for (let index = 0; index < 3; index += 1) servers.push(await startRedis(folder));
    url = `redlock://${servers.map((server) => new URL(server.url).host).join(',')}`;
  });
  after(() => {
    for (const { child } of servers) child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  });

  test('the story of the examples', () => {
    const script = fileURLToPath(new URL('../node/05_quorum.mjs', import.meta.url));
    const env = { ...process.env, POLYLATCH_URL: url };
    const told = execFileSync(process.execPath, [script], { env, encoding: 'utf8' });
    assert.match(told, /^redlock: fencing tokens are strict\nheld with token \d+/);
  });

  test('two want one lock, and many want many', async () => {
    const [one, other] = await Promise.all([connect(url), connect(url)]);
    const name = unique('quorum');
    const first = await one.lock(name).acquire();
    assert.equal(await other.lock(name).tryAcquire(), null);
    const waits = other.lock(name, { wait: 30_000 }).acquire();
    await first.release();
    const second = await waits;
    assert.ok(second.fencingToken > first.fencingToken);
    await second.release();
    await Promise.all(
      Array.from({ length: 50 }, async (_, index) => {
        const guard = await one.lock(`${name}/${index % 10}`, { wait: 60_000 }).acquire();
        guard.check();
        await guard.release();
      }),
    );
    await Promise.all([one.close(), other.close()]);
  });

  test('one server may be gone, two may not', async () => {
    const client = await connect(url);
    const name = unique('quorum');
    servers[0].child.kill('SIGKILL');
    const guard = await client.lock(name, { wait: 20_000 }).acquire();
    assert.ok(guard.isHeld);
    await guard.release();
    servers[1].child.kill('SIGKILL');
    await assert.rejects(client.lock(name).tryAcquire(), (error) => {
      return error instanceof QuorumUnreachableError || error instanceof BackendUnavailableError;
    });
    await client.close();
  });
});
