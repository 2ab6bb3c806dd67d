// What a client has done, in numbers: as an object, as Prometheus' text, and through both libraries.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics';
import { connect, observeWithOpenTelemetry, registerWithPromClient, WaitTimeoutError } from 'polylatch';
import { Registry } from 'prom-client';

import { startRedis, unique } from './stores.mjs';

const folder = mkdtempSync(join(tmpdir(), 'polylatch-node-stats-'));
const redis = await startRedis(folder);
after(() => {
  redis.child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

const url = () => `${redis.url}?prefix=${unique('stats')}`;

/** Two acquisitions, one of which is lost; one that is refused, and one whose wait is over. */
async function story(client) {
  const guard = await client.lock('a').acquire();
  assert.equal(await client.lock('a').tryAcquire(), null);
  await assert.rejects(client.lock('a', { wait: 50 }).acquire(), WaitTimeoutError);
  assert.equal(client.stats.held, 1);
  await guard.release();
  const short = await client.lock('a', { lease: 200, renew: false }).acquire();
  if (!short.signal.aborted) await once(short.signal, 'abort');
}

for (const [store, at] of [
  ['redis', url],
  ['memory', () => `memory:${unique('stats')}`],
]) {
  test(`numbers tell a small story: ${store}`, async () => {
    const client = await connect(at());
    await story(client);
    const { wait, hold, renewalLag, losses, errors, ...others } = client.stats;
    assert.deepEqual(others, {
      backend: store,
      acquired: 2,
      refused: 1,
      timedOut: 1,
      failed: 0,
      cancelled: 0,
      waiting: 0,
      held: 0,
    });
    assert.equal(losses.expired, 1);
    assert.equal(losses.hold_limit, 0, 'codes are as everywhere');
    assert.deepEqual([errors.wait_timeout, errors.backend_unavailable], [1, 0]);
    for (const { bounds, counts, count } of [wait, hold]) {
      assert.equal(counts.length, bounds.length + 1);
      assert.equal(
        counts.reduce((sum, each) => sum + each),
        count,
      );
      assert.equal(count, 2);
    }
    assert.equal(renewalLag.counts.length, wait.counts.length);
    assert.ok(hold.sum > 0.19 && hold.sum < 60);
    await client.close();
  });
}

test('Prometheus’ text has labels, and refuses wrong ones', async () => {
  const client = await connect(url());
  await (await client.lock('a').acquire()).release();
  const text = client.prometheus({ service: 'a "shop"' });
  assert.match(text, /polylatch_acquisitions_total\{[^}]*outcome="acquired"[^}]*\} 1\n/);
  assert.match(text, /service="a \\"shop\\""/);
  assert.throws(() => client.prometheus({ le: 'x' }), { code: 'invalid_argument' });
  assert.throws(() => client.prometheus({ service: 7 }), { code: 'invalid_argument', name: 'TypeError' });
  await client.close();
});

test('prom-client prints the numbers of several clients together', async () => {
  const registry = new Registry();
  const [one, other] = [await connect(url()), await connect(url())];
  registerWithPromClient(registry, one, other);
  await story(one);
  await (await other.lock('a').acquire()).release();
  const text = await registry.metrics();
  const value = (series) =>
    Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${series} `))
        .split(' ')[1],
    );
  assert.equal(value('polylatch_acquisitions_total{backend="redis",outcome="acquired"}'), 3);
  assert.equal(value('polylatch_acquisitions_total{backend="redis",outcome="timed_out"}'), 1);
  assert.equal(value('polylatch_losses_total{backend="redis",reason="expired"}'), 1);
  assert.equal(value('polylatch_held_seconds_bucket{backend="redis",le="+Inf"}'), 3);
  const below = [one, other].flatMap(({ stats }) => stats.hold.counts.slice(0, 8));
  assert.equal(
    value('polylatch_held_seconds_bucket{backend="redis",le="0.1"}'),
    below.reduce((sum, each) => sum + each),
  );
  const sum = value('polylatch_held_seconds_sum{backend="redis"}');
  assert.ok(Math.abs(sum - one.stats.hold.sum - other.stats.hold.sum) < 1e-9);
  assert.equal(value('polylatch_held{backend="redis"}'), 0);
  // The same names as the client's own text.
  const names = (lines) => [...new Set(lines.match(/^\w+(?=\{)/gm))].toSorted();
  assert.deepEqual(names(text), names(one.prometheus()));
  await one.close();
  await other.close();
});

class OnDemand extends MetricReader {
  async onForceFlush() {}
  async onShutdown() {}
}

test('OpenTelemetry observes the numbers', async () => {
  const reader = new OnDemand();
  const provider = new MeterProvider({ readers: [reader] });
  const client = await connect(url());
  observeWithOpenTelemetry(provider.getMeter('test'), client);
  await story(client);
  const { resourceMetrics, errors } = await reader.collect();
  assert.deepEqual(errors, []);
  const [{ metrics }] = resourceMetrics.scopeMetrics;
  const value = (name, labels) => {
    const { dataPoints } = metrics.find(({ descriptor }) => descriptor.name === name);
    const wanted = { backend: 'redis', ...labels };
    const entries = (object) => JSON.stringify(Object.entries(object).toSorted());
    return dataPoints.find(({ attributes }) => entries(attributes) === entries(wanted)).value;
  };
  assert.equal(value('polylatch_acquisitions', { outcome: 'acquired' }), 2);
  assert.equal(value('polylatch_losses', { reason: 'expired' }), 1);
  assert.equal(value('polylatch_held', {}), 0);
  assert.equal(value('polylatch_wait_seconds_count', { outcome: 'acquired' }), 2);
  assert.equal(value('polylatch_wait_seconds_bucket', { outcome: 'acquired', le: '+Inf' }), 2);
  assert.equal(value('polylatch_held_seconds_sum', {}), client.stats.hold.sum);
  await provider.shutdown();
  await client.close();
});

test('what is no registry and no meter is refused', () => {
  assert.throws(() => registerWithPromClient(7), /registry must be/);
  assert.throws(() => registerWithPromClient({}), /registry.registerMetric must be a function/);
  assert.throws(() => observeWithOpenTelemetry({}), /meter.createObservableCounter must be a function/);
});
