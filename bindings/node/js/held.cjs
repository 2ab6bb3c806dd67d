'use strict';
// What stands for a held lock on this side: the native part has the lock itself, under a number.

const { call, follow, had, hub, released } = require('./calls.cjs');

/** @typedef {import('./native').NativeClient} NativeClient */
/** @typedef {import('./port.js').Fault} Fault */
/** @typedef {import('./port.js').Told} Told */
/** @typedef {import('./port.js').GuardPort} GuardPort */
/** @typedef {import('./port.js').SetPort} SetPort */

/**
 * A number under which the native part can have a guard. It belongs to one {@link Held} at a time, and is
 * collected with one that is forgotten: then the native part releases the lock.
 * @typedef {{ number: number }} Place
 */

/** @type {FinalizationRegistry<number>} */
const forgotten = new FinalizationRegistry((number) => hub().forget(number));

/** @type {(Place | undefined)[]} Those that no held lock has, by number. */
const free = [];

/** @param {number} number */
function placeOf(number) {
  const known = free[number];
  if (known !== undefined) {
    free[number] = undefined;
    return known;
  }
  const place = { number };
  forgotten.register(place, number);
  return place;
}

const MODES = ['mutex', 'read', 'write', 'permits'];

/**
 * One held lock, or one that was held.
 * @implements {GuardPort}
 */
class Held {
  /** @type {Place | undefined} Until the store has confirmed its release. */
  #place;
  #client;
  #name;
  #mode;
  #permits;
  #token = 0;
  #renewals = 0;

  /**
   * @param {NativeClient} client
   * @param {string} name
   * @param {import('./port.js').NumberedMode} mode
   */
  constructor(client, name, { number, count }) {
    this.#client = client;
    this.#name = name;
    this.#mode = /** @type {string} */ (MODES[number]);
    this.#permits = count > 0 ? count : 1;
  }

  /**
   * It is held now, or in another mode.
   * @param {number} number
   * @param {number} token
   */
  had(number, token) {
    if (this.#place === undefined) this.#place = placeOf(number);
    else this.#mode = hub().mode(number) ?? this.#mode;
    this.#token = token;
  }

  /**
   * The store has confirmed its release.
   * @param {number} renewals
   */
  released(renewals) {
    if (this.#place === undefined) return;
    free[this.#place.number] = this.#place;
    this.#place = undefined;
    this.#renewals = renewals;
  }

  name() {
    return this.#name;
  }

  token() {
    return this.#token;
  }

  fenceQuality() {
    return JSON.parse(this.#client.capability()).fencing;
  }

  mode() {
    return this.#mode;
  }

  permits() {
    return this.#permits;
  }

  remaining() {
    return this.#place === undefined ? 0 : hub().remaining(this.#place.number);
  }

  isHeld() {
    return this.#place !== undefined && hub().isHeld(this.#place.number);
  }

  renewals() {
    return this.#place === undefined ? this.#renewals : hub().renewals(this.#place.number);
  }

  beat() {
    if (this.#place !== undefined) hub().beat(this.#place.number);
  }

  /** @returns {Fault | undefined} */
  check() {
    if (this.#place === undefined) return hub().givenBack(this.#name);
    return hub().check(this.#place.number);
  }

  /** @returns {Promise<void>} */
  release() {
    const number = this.#place?.number;
    // It was released before.
    if (number === undefined) return Promise.resolve();
    return call((at) => hub().release(at, number), undefined, released, this);
  }

  /**
   * @param {number} lease
   * @returns {Promise<void>}
   */
  extend(lease) {
    return call((at) => this.#asked((number) => hub().extend(at, number, lease)));
  }

  /**
   * @param {boolean} up
   * @returns {Promise<Held>}
   */
  convert(up) {
    return call((at) => this.#asked((number) => hub().convert(at, number, up)), undefined, had, this);
  }

  /** @param {Told} told */
  followLoss(told) {
    return follow((at) => this.#followed((number) => hub().lost(at, number)), told);
  }

  /** @param {Told} told */
  followDanger(told) {
    return follow((at) => this.#followed((number) => hub().endangered(at, number)), told);
  }

  /**
   * Asks what needs a lock that is not released.
   * @param {(number: number) => any} ask
   */
  #asked(ask) {
    return this.#place === undefined ? this.check() : ask(this.#place.number);
  }

  /**
   * Follows a lock; one that is released has ended already.
   * @param {(number: number) => any} begin
   */
  #followed(begin) {
    return this.#place === undefined ? undefined : begin(this.#place.number);
  }
}

/**
 * Several held locks.
 * @implements {SetPort}
 */
class HeldSet {
  #native;

  /** @param {import('./native').NativeSet} native */
  constructor(native) {
    this.#native = native;
  }

  names() {
    return this.#native.names();
  }

  tokens() {
    return this.#native.tokens();
  }

  remaining() {
    return this.#native.remaining();
  }

  isHeld() {
    return this.#native.isHeld();
  }

  check() {
    return this.#native.check();
  }

  /** @returns {Promise<void>} */
  release() {
    return call((at) => hub().releaseAll(at, this.#native));
  }

  /** @param {Told} told */
  followLoss(told) {
    return follow((at) => hub().lostOne(at, this.#native), told);
  }
}

module.exports = { Held, HeldSet };
