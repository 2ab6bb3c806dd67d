// One class for every code, all of them below PolylatchError.

import type { Fault } from './port.js';

/** The stable codes of errors, the same in every language. The guide has a page with the cause and the remedy of each. */
export type ErrorCode =
  | 'invalid_config'
  | 'invalid_argument'
  | 'unsupported'
  | 'wait_timeout'
  | 'canceled'
  | 'lease_lost'
  | 'stale_token'
  | 'name_conflict'
  | 'quorum_unreachable'
  | 'backend_unavailable'
  | 'backend_rejected'
  | 'internal'
  | 'in_progress'
  | 'payload_mismatch'
  | 'failed'
  | 'result_too_large'
  | 'not_recorded';

/** Where an error happened. Unknown parts are missing. */
export interface ErrorContext {
  /** Kind of store, such as `redis`. */
  backend?: string;
  /** What was asked of it, such as `acquire`. */
  operation?: string;
  /** The name of the lock. */
  lock?: string;
  /** Which try failed. */
  attempt?: number;
  /** Milliseconds. */
  elapsed?: number;
}

/**
 * The parent of every error that Polylatch reports. (A value of the wrong type, or an option that does not
 * exist, is a `TypeError` with the code `invalid_argument`; an aborted signal rejects with its own reason.)
 */
export class PolylatchError extends Error {
  /** The stable code, the same in every language. */
  readonly code: ErrorCode;
  /** Whether the same call may help if it is made again. */
  readonly retry: 'never' | 'caller_decides' | 'after_backoff' | 'acquire_anew';
  /** Whether the request may have been carried out. */
  readonly effect: 'none' | 'maybe';
  /** What to do about errors of this code. */
  readonly hint: string;
  /** Where it happened. Unknown parts are missing. */
  readonly context: ErrorContext;

  protected constructor(fault: Fault) {
    super(inJavaScript(fault));
    this.code = fault.code as ErrorCode;
    this.retry = fault.retry as PolylatchError['retry'];
    this.effect = fault.effect as PolylatchError['effect'];
    this.hint = fault.hint;
    const { backend, operation, lock, attempt, elapsed } = fault;
    this.context = Object.fromEntries(
      Object.entries({ backend, operation, lock, attempt, elapsed }).filter(([, value]) => value != null),
    );
  }
}

// On the prototype, so that it is not printed with every error.
Object.defineProperty(PolylatchError.prototype, 'name', { value: 'PolylatchError', configurable: true });

/** A URL, option or environment variable is wrong. Nothing was sent. */
export class InvalidConfigError extends PolylatchError {}
/** An argument is out of its range. Nothing was sent. */
export class InvalidArgumentError extends PolylatchError {}
/** This store cannot do what was asked. */
export class UnsupportedError extends PolylatchError {}
/** Another client still held the lock when the wait was over. */
export class WaitTimeoutError extends PolylatchError {}
/** The closing of the client ended the call. */
export class CanceledError extends PolylatchError {}
/** The lease is over. */
export class LeaseLostError extends PolylatchError {
  /** Why it is over. */
  readonly reason:
    | 'expired'
    | 'superseded'
    | 'session_ended'
    | 'broken'
    | 'hold_limit'
    | 'no_progress'
    | 'unverifiable';

  protected constructor(fault: Fault) {
    super(fault);
    this.reason = fault.reason as LeaseLostError['reason'];
  }
}
/** A guarded resource has seen a newer fencing token. */
export class StaleTokenError extends PolylatchError {}
/** The name holds data that Polylatch did not write; it was not modified. */
export class NameConflictError extends PolylatchError {}
/** Too many nodes failed to decide. */
export class QuorumUnreachableError extends PolylatchError {}
/** The store refused the connection, did not answer in time, or is not ready. */
export class BackendUnavailableError extends PolylatchError {}
/** The store refused for good: credentials, permission, schema, read-only. */
export class BackendRejectedError extends PolylatchError {}
/** A bug in Polylatch. */
export class InternalError extends PolylatchError {}

const byCode: Record<string, { prototype: PolylatchError; name: string }> = {
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

/** Adds the classes of codes that not every host has. */
export function addKinds(kinds: typeof byCode): void {
  for (const kind of Object.values(kinds)) {
    Object.defineProperty(kind.prototype, 'name', { value: kind.name, configurable: true });
  }
  Object.assign(byCode, kinds);
}

addKinds(byCode);

/** The core says option names in its own spelling. */
function inJavaScript({ code, message }: Fault): string {
  if (code !== 'invalid_argument' && code !== 'unsupported') return message;
  const names = { max_hold: 'maxHold', beat_every: 'beatEvery', keep_idle: 'keepIdle' };
  return message.replace(/\b(max_hold|beat_every|keep_idle)\b/g, (name) => names[name as keyof typeof names]);
}

/** An error of the class that belongs to the code; of the base class if the code is not known here. */
export function errorOf(fault: Fault): PolylatchError {
  const kind = (byCode[fault.code] ?? PolylatchError) as unknown as new (fault: Fault) => PolylatchError;
  return new kind(fault);
}

/**
 * A value of the wrong type, or an option that does not exist: a TypeError, as JavaScript has it, with
 * the code that it has in every language.
 */
export function wrongType(message: string): TypeError {
  return Object.assign(new TypeError(message), { code: 'invalid_argument', retry: 'never', effect: 'none' });
}

export function canceled(message: string): PolylatchError {
  const hint = 'The wait was ended on purpose; nothing is held.';
  return errorOf({ code: 'canceled', retry: 'never', effect: 'none', message, hint });
}
