'use strict';
// One class for every code, all of them below PolylatchError.

/** @typedef {import('./native').Fault} Fault */

/** The parent of every error that Polylatch reports. */
class PolylatchError extends Error {
  /** @param {Fault} fault */
  constructor(fault) {
    super(inJavaScript(fault));
    /** The stable code, the same in every language. */
    this.code = fault.code;
    /** Whether the same call may help if it is made again. */
    this.retry = fault.retry;
    /** Whether the request may have been carried out. */
    this.effect = fault.effect;
    /** What to do about errors of this code. */
    this.hint = fault.hint;
    const { backend, operation, lock, attempt, elapsed } = fault;
    /** Where it happened. Unknown parts are missing. */
    this.context = Object.fromEntries(
      Object.entries({ backend, operation, lock, attempt, elapsed }).filter(([, value]) => value != null),
    );
  }
}

// On the prototype, so that it is not printed with every error.
Object.defineProperty(PolylatchError.prototype, 'name', { value: 'PolylatchError', configurable: true });

class InvalidConfigError extends PolylatchError {}
class InvalidArgumentError extends PolylatchError {}
class UnsupportedError extends PolylatchError {}
class WaitTimeoutError extends PolylatchError {}
class CanceledError extends PolylatchError {}
class LeaseLostError extends PolylatchError {
  /** @param {Fault} fault */
  constructor(fault) {
    super(fault);
    /** Why: `expired`, `superseded`, `session_ended`, `broken`, `hold_limit`, `no_progress`, `unverifiable`. */
    this.reason = fault.reason;
  }
}
class StaleTokenError extends PolylatchError {}
class NameConflictError extends PolylatchError {}
class QuorumUnreachableError extends PolylatchError {}
class BackendUnavailableError extends PolylatchError {}
class BackendRejectedError extends PolylatchError {}
class InternalError extends PolylatchError {}

/** @type {Record<string, typeof PolylatchError>} */
const byCode = {
  invalid_config: InvalidConfigError,
  invalid_argument: InvalidArgumentError,
  unsupported: UnsupportedError,
  wait_timeout: WaitTimeoutError,
  canceled: CanceledError,
  lease_lost: LeaseLostError,
  stale_token: StaleTokenError,
  name_conflict: NameConflictError,
  quorum_unreachable: QuorumUnreachableError,
  backend_unavailable: BackendUnavailableError,
  backend_rejected: BackendRejectedError,
  internal: InternalError,
};

for (const kind of Object.values(byCode)) {
  Object.defineProperty(kind.prototype, 'name', { value: kind.name, configurable: true });
}

/**
 * The core says option names in its own spelling.
 * @param {Fault} fault
 */
function inJavaScript({ code, message }) {
  if (code !== 'invalid_argument') return message;
  return message.replace(/\bmax_hold\b/g, 'maxHold').replace(/\bbeat_every\b/g, 'beatEvery');
}

/**
 * An error of the class that belongs to the code; of the base class if the code is not known here.
 * @param {Fault} fault
 */
function errorOf(fault) {
  return new (byCode[fault.code] ?? PolylatchError)(fault);
}

/**
 * A value of the wrong type, or an option that does not exist: a TypeError, as JavaScript has it, with
 * the code that it has in every language.
 * @param {string} message
 */
function wrongType(message) {
  return Object.assign(new TypeError(message), { code: 'invalid_argument', retry: 'never', effect: 'none' });
}

/** @param {string} message */
function canceled(message) {
  const hint = 'The wait was ended on purpose; nothing is held.';
  return errorOf({ code: 'canceled', retry: 'never', effect: 'none', message, hint });
}

module.exports = {
  PolylatchError,
  InvalidConfigError,
  InvalidArgumentError,
  UnsupportedError,
  WaitTimeoutError,
  CanceledError,
  LeaseLostError,
  StaleTokenError,
  NameConflictError,
  QuorumUnreachableError,
  BackendUnavailableError,
  BackendRejectedError,
  InternalError,
  errorOf,
  wrongType,
  canceled,
};
