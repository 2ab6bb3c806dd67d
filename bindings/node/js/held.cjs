'use strict';
// What stands for a held lock on this side: the native part has the lock itself, under a number.

const { call, converted, follow, hub, hubNumber, released } = require('./calls.cjs');
const native = require('./native.js');

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

/** @type {Place[]} Those that no lock has. */
const free = [];
/** @type {number[]} Those of places that were collected. */
const numbers = [];
/** How many numbers were given. */
let given = 0;

/** @type {FinalizationRegistry<number>} */
const forgotten = new FinalizationRegistry((number) => {
  hub().forget(number);
  numbers.push(number);
});

/** @returns {Place} */
function freePlace() {
  const known = free.pop();
  if (known !== undefined) return known;
  const place = { number: numbers.pop() ?? given++ };
  forgotten.register(place, place.number);
  return place;
}

const MODES = ['mutex', 'read', 'write', 'permits'];

/**
 * One held lock, or one that was held or is to be.
 * @implements {GuardPort}
 */
class Held {
  /** @type {Place | undefined} Until the store has confirmed its release. */
  #place = freePlace();
  #client;
  #name;
  #mode;
  #permits;
  /** Whether its client may keep it. */
  #stays;
  #token = 0;
  #renewals = 0;

  /**
   * @param {NativeClient} client
   * @param {string} name
   * @param {import('./port.js').NumberedMode} mode
   * @param {boolean} stays
   */
  constructor(client, name, { number, count }, stays) {
    this.#client = client;
    this.#name = name;
    this.#mode = /** @type {string} */ (MODES[number]);
    this.#permits = count > 0 ? count : 1;
    this.#stays = stays;
  }

  /** The number for its guard, before it is held. */
  number() {
    return /** @type {Place} */ (this.#place).number;
  }

  /**
   * Enters it if its client has kept it. Returns whether it is held now.
   * @param {number} client its number
   * @param {number | undefined} lease
   * @param {number} keepIdle
   */
  enter(client, lease, keepIdle) {
    const token = native.enter(hubNumber(), this.number(), client, this.#name, lease, keepIdle);
    const entered = token >= 0;
    if (entered) this.#token = token;
    else this.#leavePlace();
    return entered;
  }

  /**
   * It is held now.
   * @param {number} token
   */
  had(token) {
    this.#token = token;
  }

  /** It was not free. */
  notHad() {
    this.#leavePlace();
    return null;
  }

  /**
   * It is held in another mode.
   * @param {number} token
   */
  converted(token) {
    this.#mode = native.mode(hubNumber(), this.number()) ?? this.#mode;
    this.#token = token;
  }

  /**
   * It was released.
   * @param {number} renewals
   */
  released(renewals) {
    if (this.#place === undefined) return;
    this.#leavePlace();
    this.#renewals = renewals;
  }

  #leavePlace() {
    free.push(/** @type {Place} */ (this.#place));
    this.#place = undefined;
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
    return this.#place === undefined ? 0 : native.remaining(hubNumber(), this.#place.number);
  }

  isHeld() {
    return this.#place !== undefined && native.isHeld(hubNumber(), this.#place.number);
  }

  renewals() {
    return this.#place === undefined ? this.#renewals : native.renewals(hubNumber(), this.#place.number);
  }

  beat() {
    if (this.#place !== undefined) native.beat(hubNumber(), this.#place.number);
  }

  /** @returns {Fault | undefined} */
  check() {
    if (this.#place === undefined) return native.givenBack(this.#name);
    return native.check(hubNumber(), this.#place.number);
  }

  /** @returns {Promise<void>} */
  release() {
    const number = this.#place?.number;
    // It was released before.
    if (number === undefined) return Promise.resolve();
    if (this.#stays) {
      const renewals = native.leave(hubNumber(), number);
      if (renewals >= 0) {
        this.released(renewals);
        return Promise.resolve();
      }
    }
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
    return call((at) => this.#asked((number) => hub().convert(at, number, up)), undefined, converted, this);
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
