// The end of a process in Node.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const story = `
  import { connect } from 'polylatch-wasm';
  const client = await connect('memory:');
  const guard = await client.lock('a').acquire();
  guard.signal.addEventListener('abort', () => {});
  await client.lock('a', { wait: 500 }).acquire().catch((error) => console.log(error.code));
`;

test('a pending call keeps a process alive, a held lock does not', async () => {
  const child = spawn(process.execPath, ['--input-type=module', '--eval', story], {
    cwd: fileURLToPath(new URL('.', import.meta.url)),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.on('data', (data) => {
    said += data;
  });
  // What hangs is killed and fails.
  const kill = setTimeout(() => child.kill('SIGKILL'), 60_000);
  const [code, signal] = await once(child, 'close');
  clearTimeout(kill);
  assert.deepEqual([said.trim(), code, signal], ['wait_timeout', 0, null]);
});
