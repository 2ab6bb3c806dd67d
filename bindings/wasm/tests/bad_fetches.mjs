// What a `fetch` of the program's own may do wrong.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BackendRejectedError, BackendUnavailableError, connect } from 'polylatch-wasm';

import { unique } from './node-stores.mjs';

const failures = [
  ['throws', () => { throw new TypeError('Failed to fetch'); }, BackendUnavailableError], // biome-ignore format: one a line
  ['rejects', () => Promise.reject(new TypeError('Failed to fetch')), BackendUnavailableError],
  ['never answers', () => new Promise(() => {}), BackendUnavailableError],
  ['answers nothing', () => undefined, BackendRejectedError],
  ['answers an object', () => ({ held: true }), BackendRejectedError],
];

/** Tests that each is a typed error at this store. `isFree` waits until nothing is left of a name. */
export function testBadFetches(url, how, isFree) {
  for (const [what, bad, kind] of failures) {
    test(`a fetch that ${what} is a typed error, and leaves no lock`, async () => {
      const name = unique('failing');
      const state = { fails: false };
      const send = (...args) => (state.fails ? bad() : fetch(...args));
      await assert.rejects(connect(url, { ...how, timeout: 300, fetch: () => bad() }), (error) => {
        assert.ok(error instanceof kind, String(error));
        return true;
      });
      const client = await connect(url, { ...how, timeout: 1_000, fetch: send });
      state.fails = true;
      await assert.rejects(client.lock(name).tryAcquire(), (error) => {
        assert.ok(error instanceof kind, String(error));
        assert.ok(['none', 'maybe'].includes(error.effect));
        return true;
      });
      state.fails = false;
      await isFree(name);
      await client.close();
    });
  }
}
