// Every example runs to its end, against the store inside the process and an embedded file.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const folder = mkdtempSync(join(tmpdir(), 'polylatch-stories-'));
after(() => rmSync(folder, { recursive: true, force: true }));

const endings = [
  ['01_first_lock', /second worker holds orders\/42.*third worker has/s],
  ['02_fenced_write', /its write is refused/],
  ['03_long_job', /no_progress/],
  ['04_lost_lease', /stopped the import/],
  ['05_quorum', /held with token \d+/],
];

for (const [name, ending] of endings) {
  for (const url of [undefined, `sqlite:${join(folder, 'stories.db')}`]) {
    test(`${name} on ${url === undefined ? 'memory' : 'sqlite'}`, () => {
      const { POLYLATCH_URL: _, ...env } = process.env;
      if (url !== undefined) env.POLYLATCH_URL = url;
      const script = fileURLToPath(new URL(`${name}.mjs`, import.meta.url));
      assert.match(execFileSync(process.execPath, [script], { env, encoding: 'utf8' }), ending);
    });
  }
}
