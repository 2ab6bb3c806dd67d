// Idempotent work: done once, answered every time. Only a host that reaches stores with records loads this.

import { renamed } from './fields.js';
import { type Fate, WorkFailedError } from './idempotency_errors.js';
import {
  checkedEncoding,
  decode,
  described,
  encode,
  failureBytes,
  replayedFailure,
  workOptions,
} from './idempotency_values.js';
import { mustBeFine } from './lock.js';
import { mustBe, mustBeObject, mustBeSignal, mustBeText, onlyKnown } from './options.js';
import type { ClientPort, Fault, Told } from './port.js';

/** What the part in Rust is asked about keys. Results are bytes. */
export interface RecordsPort extends ClientPort {
  begin(scope: string, key: string, options: NativeRunOptions, signal?: AbortSignal): Promise<RunPort>;
  forgetKey(scope: string, key: string): Promise<string>;
  /** JSON. */
  record(scope: string, key: string): Promise<string | null>;
  issueToken(scope: string, ttl: number): Promise<string>;
  consumeToken(scope: string, token: string): Promise<string>;
}

/** How a run has begun. */
export interface RunPort {
  /** `null` for a claim. */
  answer(): Uint8Array | null;
  /** Of an earlier run that failed. */
  failure(): Fault | null;
  token(): number;
  runs(): number;
  /** Milliseconds. */
  remaining(): number;
  check(): Fault | undefined;
  abandon(): void;
  complete(result: Uint8Array): Promise<void>;
  fail(answer: Uint8Array, fate: string | undefined): Promise<void>;
  /** Calls `told` when the claim is lost (with the error) or finished (without). Returns how to stop. */
  followLoss(told: Told): () => void;
}

export interface NativeRunOptions {
  payload?: Uint8Array;
  fingerprint?: string;
  retention?: number;
  lease?: number;
  wait?: number;
  onFailure?: string;
}

/** How results are stored. */
export type Encoding = 'json' | 'bytes';

/** How to run the work of a key. What is missing is the client's, or the core's, to say. All times are milliseconds. */
export interface RunOptions {
  /**
   * What the request consists of: bytes, a text, or a JSON value, whose keys may come in any order. The same key with
   * another one is refused.
   */
  payload?: unknown;
  /** What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes. */
  fingerprint?: string | undefined;
  /** How long the answer is kept after the work: 1 s to 10 years, 24 h by default; `Infinity` is for ever. */
  retention?: number | undefined;
  /** Length of the claim's lease: 100 ms to 24 h. A process that dies blocks its key for so long. */
  lease?: number | undefined;
  /** How long to wait for another run of the key: without limit by default; 0 does not wait. */
  wait?: number | undefined;
  /**
   * What becomes of the key if the work fails. `store`, the default: every repetition gets the failure, because the work
   * may have had an effect. `free`: the next run does the work again. Or a function of what was thrown.
   */
  onFailure?: Fate | ((thrown: unknown) => Fate | undefined) | undefined;
  /** Ends the wait for another run of the key. */
  signal?: AbortSignal | undefined;
}

/** The answer to a run. */
export interface Outcome<T> {
  /** What the work returned. */
  value: T;
  /** Whether an earlier run did the work. */
  replayed: boolean;
}

/** The record of a key, without its result. */
export interface RecordView {
  /** The scope of the key. */
  scope: string;
  /** The key. Of a token, what follows its first 8 digits is left out. */
  key: string;
  /** Whether it is of a one-time token. */
  isToken: boolean;
  /** What it says; `abandoned` is a run whose lease has ended. */
  state: 'running' | 'abandoned' | 'done' | 'failed' | 'too-large' | 'issued' | 'consumed';
  /** The client that wrote it last. */
  client: string;
  /** The fencing token of its claim. */
  fence: number;
  /** How many runs began since the key was free. */
  runs: number;
  /** How often the claim was renewed. */
  renewals: number;
  /** What its payload is recognized by; empty if there was none. */
  fingerprint: string;
  /** Length of the claim's lease. */
  leaseMs: number;
  /** What is left of the lease; 0 unless it is running. */
  leaseLeftMs: number;
  /** What is left of its retention; `null` is for ever. */
  keepLeftMs: number | null;
  /** When it was written last, by the store's clock. */
  writtenAtMs: number;
  /** Size of the stored answer. */
  resultBytes: number;
  /** Changes with every write. */
  version: number;
}

/** The claim under which work runs. It is renewed until the work has ended. */
export class Claim {
  #run: RunPort;
  #lost: AbortController | undefined;

  protected constructor(run: RunPort) {
    this.#run = run;
  }

  /** @internal */
  static of(run: RunPort): Claim {
    return new Claim(run);
  }

  /** Larger than that of every claim on the same key before. Hand it to what the work changes. */
  get fencingToken(): bigint {
    return BigInt(this.#run.token());
  }

  /** How many runs of this key began since it was free; more than 1 if one before died, so that its work may be done in part. */
  get runs(): number {
    return this.#run.runs();
  }

  /** For how long it may be relied on from now; 0 once it is over. */
  get remaining(): number {
    return this.#run.remaining();
  }

  /** Whether it is still this run's, by the clock, now. Costs no request. */
  get isHeld(): boolean {
    return this.#run.check() === undefined;
  }

  /** @throws {LeaseLostError} if the claim was lost: another client may do the work. */
  check(): void {
    mustBeFine(this.#run.check());
  }

  /** Aborted when the claim is lost, with a {@link LeaseLostError} as its reason. Stop the work then. */
  get signal(): AbortSignal {
    if (this.#lost === undefined) {
      const lost = new AbortController();
      this.#lost = lost;
      this.#run.followLoss((_, error) => {
        if (error !== undefined) lost.abort(error);
      });
    }
    return this.#lost.signal;
  }
}

const RUN_OPTIONS: Record<string, 'number' | 'string'> = {
  fingerprint: 'string',
  retention: 'number',
  lease: 'number',
  wait: 'number',
};

/** The keys and one-time tokens of one scope. */
export class Idempotency {
  #port: RecordsPort;
  #scope: string;
  #encoding: Encoding;

  protected constructor(port: RecordsPort, scope: string, encoding: Encoding) {
    this.#port = port;
    this.#scope = scope;
    this.#encoding = encoding;
  }

  /** @internal */
  static of(port: RecordsPort, scope: unknown, given: unknown): Idempotency {
    const options = given === undefined ? {} : mustBeObject('options', given);
    onlyKnown(options, ['encoding']);
    const encoding = checkedEncoding(options.encoding);
    return new Idempotency(port, mustBeText('the scope', scope), encoding);
  }

  /** The scope of these keys. */
  get scope(): string {
    return this.#scope;
  }

  /**
   * Does the work of a key, unless it was done: then its stored answer is returned. The result has at most 1 MiB and is
   * returned as it is read back, so that first and later answers are equal; `undefined` is stored as `null`.
   *
   * What the work throws is thrown on, once it is stored or its key is freed. Repetitions of a stored failure are rejected
   * with a {@link WorkFailedError}, whose `answer` is that of the one that the work threw, or else name and message of the
   * error.
   * @param key what is unique to one request, 1 to 255 bytes, made by its client, such as a UUID
   * @throws {InProgressError} {@link PayloadMismatchError}, {@link WorkFailedError}, {@link ResultTooLargeError},
   * {@link NotRecordedError}, or an error of the store before the work
   */
  async run<T>(
    key: string,
    work: (claim: Claim) => T | PromiseLike<T>,
    options: RunOptions = {},
  ): Promise<Outcome<T>> {
    mustBeText('the key', key);
    mustBe('the work', work, 'function');
    const { native, signal, onFailure } = runOptions(options);
    const run = await this.#port.begin(this.#scope, key, native, signal);
    const answer = run.answer();
    if (answer !== null) return { value: this.#replayed(run, answer), replayed: true };
    let value: T;
    try {
      value = await work(Claim.of(run));
    } catch (thrown) {
      await this.#failed(run, thrown, onFailure);
      throw thrown;
    }
    const stored = await this.#encoded(run, value);
    await run.complete(stored);
    return { value: decode(this.#encoding, stored), replayed: false };
  }

  /** Deletes what is stored for a key, unless a client works on it. Its work is done again then. */
  async forget(key: string): Promise<'forgotten' | 'absent' | 'running'> {
    return (await this.#port.forgetKey(this.#scope, mustBeText('the key', key))) as any;
  }

  /** Reads the record of a key, without its result; `null` if there is none. */
  async show(key: string): Promise<RecordView | null> {
    const record = await this.#port.record(this.#scope, mustBeText('the key', key));
    return record === null ? null : renamed(JSON.parse(record));
  }

  /**
   * Issues a token that can be consumed once within so many milliseconds, 1 s to 10 years: 32 hexadecimal digits. Every
   * form then costs a request for its token. Where the client can make a key, {@link Idempotency.run} needs none.
   */
  async issue(ttl: number): Promise<string> {
    return this.#port.issueToken(this.#scope, mustBe('ttl', ttl, 'number'));
  }

  /**
   * Consumes a token. However many calls do so at the same time, one is the first. Before the work: work that fails is not
   * done, and its form cannot be sent again. After the work: two requests at the same time both do it. With the token as
   * the key of {@link Idempotency.run}, neither happens.
   */
  async consume(token: string): Promise<'first' | 'duplicate' | 'unknown'> {
    return (await this.#port.consumeToken(this.#scope, mustBeText('the token', token))) as any;
  }

  #replayed(run: RunPort, answer: Uint8Array): any {
    const fault = run.failure();
    if (fault === null) return decode(this.#encoding, answer);
    throw replayedFailure(this.#encoding, fault, answer);
  }

  /** Stores what was thrown. A failure that is not recorded does not replace it. */
  async #failed(run: RunPort, thrown: unknown, onFailure: RunOptions['onFailure']): Promise<void> {
    let fate: Fate | undefined;
    let answer: Uint8Array;
    try {
      if (thrown instanceof WorkFailedError) fate = thrown.onFailure;
      if (fate === undefined && typeof onFailure === 'function') fate = onFailure(thrown);
      answer = failureBytes(this.#encoding, thrown);
    } catch (error) {
      run.abandon();
      throw error;
    }
    try {
      await run.fail(answer, fate);
    } catch (error) {
      if (thrown instanceof Error && thrown.cause === undefined) thrown.cause = error;
    }
  }

  async #encoded(run: RunPort, value: unknown): Promise<Uint8Array> {
    try {
      return encode(this.#encoding, value);
    } catch (error) {
      // The work is done, so its key is not freed, whatever the options say.
      await run.fail(described(error), 'store');
      throw error;
    }
  }
}

function runOptions(given: unknown): {
  native: NativeRunOptions;
  signal: AbortSignal | undefined;
  onFailure: RunOptions['onFailure'];
} {
  const { options, native } = workOptions(given, RUN_OPTIONS, ['onFailure', 'signal']);
  const { onFailure, signal } = options;
  // A function is asked when the work has failed.
  if (onFailure !== undefined && typeof onFailure !== 'function') {
    native.onFailure = mustBe('onFailure', onFailure, 'string');
  }
  return { native, onFailure, signal: signal === undefined ? undefined : mustBeSignal(signal) };
}
