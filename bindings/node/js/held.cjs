'use strict';
// What stands for a held lock on this side: the native part has the lock itself, under a number.

/** @typedef {import('./native').NativeClient} NativeClient */
/** @typedef {import('./native').Fault} Fault */

/** @type {import('./native').Hub} */
let hub;

/** @param {import('./native').Hub} made the one that all of these are of */
function useHub(made) {
  hub = made;
}

/**
 * A number under which the native part can have a guard. It belongs to one {@link Held} at a time, and is
 * collected with one that is forgotten: then the native part gives the lock back.
 * @typedef {{ number: number }} Place
 */

/** @type {FinalizationRegistry<number>} */
const forgotten = new FinalizationRegistry((number) => hub.forget(number));

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

/** One held lock, or one that was held. */
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
   * @param {number} way
   * @param {number} count
   */
  constructor(client, name, way, count) {
    this.#client = client;
    this.#name = name;
    this.#mode = /** @type {string} */ (MODES[way]);
    this.#permits = count > 0 ? count : 1;
  }

  /**
   * It is had now, or in another way.
   * @param {number} number
   * @param {number} token
   */
  had(number, token) {
    if (this.#place === undefined) this.#place = placeOf(number);
    else this.#mode = hub.mode(number) ?? this.#mode;
    this.#token = token;
  }

  /**
   * The store has confirmed its release.
   * @param {number} renewals
   */
  givenBack(renewals) {
    if (this.#place === undefined) return;
    free[this.#place.number] = this.#place;
    this.#place = undefined;
    this.#renewals = renewals;
  }

  /** Its number at the native part; `undefined` once it was given back. */
  number() {
    return this.#place?.number;
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
    return this.#place === undefined ? 0 : hub.remaining(this.#place.number);
  }

  isHeld() {
    return this.#place !== undefined && hub.isHeld(this.#place.number);
  }

  renewals() {
    return this.#place === undefined ? this.#renewals : hub.renewals(this.#place.number);
  }

  beat() {
    if (this.#place !== undefined) hub.beat(this.#place.number);
  }

  /** @returns {Fault | undefined} */
  check() {
    if (this.#place === undefined) return hub.givenBack(this.#name);
    return hub.check(this.#place.number);
  }
}

module.exports = { Held, useHub };
