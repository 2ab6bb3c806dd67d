// The errors of idempotent work. Only a host that reaches stores with records loads this.

import { addKinds, PolylatchError } from './errors.js';
import type { Fault } from './port.js';

/** Another run of the same key is under way, and the caller does not wait for it, or no longer. */
export class InProgressError extends PolylatchError {}
/** The key belongs to another payload. Nothing was done. */
export class PayloadMismatchError extends PolylatchError {}
/** The work is done, and its result is larger than 1 MiB, so it is not stored. It is not repeated. */
export class ResultTooLargeError extends PolylatchError {}
/** The work is done, and what came of it is not stored: another run may do it again, or has. */
export class NotRecordedError extends PolylatchError {}

/** What becomes of a key whose work has failed. */
export type Fate = 'store' | 'free';

/**
 * The work of a key has failed. Work may throw it to choose what repetitions get and what becomes of the key; a
 * repetition of a stored failure is rejected with it.
 */
export class WorkFailedError extends PolylatchError {
  /** What repetitions get; the message, unless it is given. */
  readonly answer: unknown;
  /** What becomes of the key; unset: as the options of the run say. */
  readonly onFailure: Fate | undefined;
  /** Whether an earlier run failed; this one did not do the work. */
  readonly replayed: boolean;

  constructor(message: string, options?: { answer?: unknown; onFailure?: Fate | undefined });
  /** @internal */
  constructor(given: string | Fault, options?: { answer?: unknown; onFailure?: Fate; replayed?: boolean });
  constructor(
    given: string | Fault,
    options: { answer?: unknown; onFailure?: Fate | undefined; replayed?: boolean } = {},
  ) {
    super(typeof given === 'string' ? ofCaller(given) : given);
    this.answer = options.answer === undefined ? this.message : options.answer;
    this.onFailure = options.onFailure;
    this.replayed = options.replayed === true;
  }
}

function ofCaller(message: string): Fault {
  const hint = 'The failure is the answer of this key; a new request needs a new key.';
  return { code: 'failed', retry: 'never', effect: 'maybe', message, hint };
}

addKinds({
  in_progress: InProgressError,
  payload_mismatch: PayloadMismatchError,
  failed: WorkFailedError,
  result_too_large: ResultTooLargeError,
  not_recorded: NotRecordedError,
});
