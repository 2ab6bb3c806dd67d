'use strict';
// The numbers of clients for prom-client and OpenTelemetry. Both come from the program: nothing is imported here.

const { mustBe, mustBeObject } = require('./options.js');

/** @typedef {import('./client.js').Client} Client */

const OUTCOMES = ['acquired', 'refused', 'timedOut', 'failed', 'cancelled'];

/** @type {[string, string, Record<string, string>, (stats: any) => any][]} */
const HISTOGRAMS = [
  [
    'polylatch_wait_seconds',
    'Time from the call of acquire until the lock was held.',
    { outcome: 'acquired' },
    (stats) => stats.wait,
  ],
  [
    'polylatch_held_seconds',
    'Time from the grant of a lease to its release or loss.',
    {},
    (stats) => stats.hold,
  ],
  [
    'polylatch_renewal_lag_seconds',
    'Time from when a renewal was due until the store confirmed it.',
    {},
    (stats) => stats.renewalLag,
  ],
];

/** @type {[string, string, string, (stats: any) => Record<string, number>][]} */
const COUNTERS = [
  ['polylatch_acquisitions', 'Ended acquisitions, by outcome.', 'outcome', outcomesOf],
  ['polylatch_losses', 'Leases that were lost, by reason.', 'reason', (stats) => stats.losses],
  ['polylatch_errors', 'Operations that failed, by error code.', 'code', (stats) => stats.errors],
];

/** @type {[string, string, (stats: any) => number][]} */
const GAUGES = [
  ['polylatch_waiting', 'Acquisitions that are queued.', (stats) => stats.waiting],
  ['polylatch_held', 'Leases that are held.', (stats) => stats.held],
];

/** @param {any} stats */
function outcomesOf(stats) {
  const code = (/** @type {string} */ name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(OUTCOMES.map((name) => [code(name), stats[name]]));
}

/**
 * Registers the numbers of clients with a registry of prom-client.
 * @param {any} registry
 * @param {...Client} clients
 */
function registerWithPromClient(registry, ...clients) {
  mustBeObject('the registry', registry);
  mustBe('registry.registerMetric', registry.registerMetric, 'function');
  /**
   * @param {string} name
   * @param {string} help
   * @param {string} type
   * @param {(stats: any) => Sample[]} read
   */
  const register = (name, help, type, read) => {
    const get = async () => {
      const values = numbersOf(clients).flatMap((stats) =>
        read(stats).map(([suffix, labels, value]) => ({
          metricName: `${name}${suffix}`,
          labels: { backend: stats.backend, ...labels },
          value,
        })),
      );
      return { name, help, type, values, aggregator: 'sum' };
    };
    registry.registerMetric({ name, help, type, aggregator: 'sum', get, reset() {} });
  };
  for (const [name, help, labels, read] of HISTOGRAMS) {
    register(name, help, 'histogram', (stats) => histogramOf(read(stats), labels));
  }
  for (const [name, help, label, read] of COUNTERS) {
    register(`${name}_total`, help, 'counter', (stats) => countsOf(read(stats), label));
  }
  for (const [name, help, read] of GAUGES) register(name, help, 'gauge', (stats) => [['', {}, read(stats)]]);
}

/**
 * Makes observable instruments of a meter of OpenTelemetry. It has no observable histograms, so each of them is three
 * counters, named as Prometheus does.
 * @param {any} meter
 * @param {...Client} clients
 */
function observeWithOpenTelemetry(meter, ...clients) {
  mustBeObject('the meter', meter);
  mustBe('meter.createObservableCounter', meter.createObservableCounter, 'function');
  /**
   * @param {any} instrument
   * @param {(stats: any) => Sample[]} read
   */
  const observe = (instrument, read) => {
    instrument.addCallback((/** @type {any} */ result) => {
      for (const stats of numbersOf(clients)) {
        for (const [, labels, value] of read(stats)) {
          result.observe(value, { backend: stats.backend, ...labels });
        }
      }
    });
  };
  for (const [name, description, labels, read] of HISTOGRAMS) {
    for (const suffix of ['_bucket', '_sum', '_count']) {
      const unit = suffix === '_sum' ? 's' : '1';
      observe(meter.createObservableCounter(`${name}${suffix}`, { description, unit }), (stats) =>
        histogramOf(read(stats), labels).filter(([of]) => of === suffix),
      );
    }
  }
  for (const [name, description, label, read] of COUNTERS) {
    observe(meter.createObservableCounter(name, { description }), (stats) => countsOf(read(stats), label));
  }
  for (const [name, description, read] of GAUGES) {
    observe(meter.createObservableUpDownCounter(name, { description }), (stats) => [['', {}, read(stats)]]);
  }
}

/** @typedef {[suffix: string, labels: Record<string, string>, value: number]} Sample */

/**
 * @param {{ bounds: number[], counts: number[], sum: number, count: number }} histogram
 * @param {Record<string, string>} labels
 * @returns {Sample[]}
 */
function histogramOf({ bounds, counts, sum, count }, labels) {
  let below = 0;
  /** @type {Sample[]} */
  const samples = counts.map((more, index) => {
    below += more;
    return ['_bucket', { ...labels, le: index < bounds.length ? `${bounds[index]}` : '+Inf' }, below];
  });
  samples.push(['_sum', labels, sum], ['_count', labels, count]);
  return samples;
}

/**
 * @param {Record<string, number>} counts
 * @param {string} label
 * @returns {Sample[]}
 */
function countsOf(counts, label) {
  return Object.entries(counts).map(([code, count]) => ['', { [label]: code }, count]);
}

/**
 * The numbers by the kind of store.
 * @param {Client[]} clients
 */
function numbersOf(clients) {
  /** @type {Map<string, any>} */
  const byBackend = new Map();
  for (const { stats } of clients) {
    const known = byBackend.get(stats.backend);
    byBackend.set(stats.backend, known === undefined ? stats : added(known, stats));
  }
  return [...byBackend.values()];
}

/**
 * Adds numbers that have the same shape; what is no amount stays.
 * @param {any} one
 * @param {any} other
 * @returns {any}
 */
function added(one, other) {
  if (typeof one === 'string') return one;
  if (typeof one === 'number') return one + other;
  if (Array.isArray(one)) return one.map((value, index) => added(value, other[index]));
  const entries = Object.entries(one);
  return Object.fromEntries(
    entries.map(([key, value]) => [key, key === 'bounds' ? value : added(value, other[key])]),
  );
}

module.exports = { registerWithPromClient, observeWithOpenTelemetry };
