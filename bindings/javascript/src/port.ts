// What the part in Rust is asked, in Node and in browsers. Each package implements it (`calls`), and all else is shared.

/** What went wrong, as plain values; see `errors.ts`. */
export interface Fault {
  code: string;
  retry: string;
  effect: string;
  reason?: string;
  message: string;
  hint: string;
  backend?: string;
  operation?: string;
  lock?: string;
  attempt?: number;
  /** Milliseconds. */
  elapsed?: number;
}

export function isFault(value: any): value is Fault {
  return typeof value === 'object' && value !== null && value.code !== undefined;
}

/** The mode of a lock as the part in Rust numbers it, and for permits how many of how many. */
export interface NumberedMode {
  number: 0 | 1 | 2 | 3;
  count: number;
  capacity: number;
}

/** Options of a lock, checked: numbers are milliseconds. */
export type Options = Record<string, any> | undefined;

/** Called when what is followed ends: with a value, or with an error. */
export type Told = (value: any, error: unknown) => void;

/** One client. Every promise is rejected with an error of `errors.ts`, or with the reason of the signal. */
export interface ClientPort {
  id(): string;
  /** Without secrets. */
  url(): string;
  /** JSON. */
  capability(): string;
  /** JSON, or the same as an object. */
  stats(): string | object;
  /** With labels as names and values in turn. */
  prometheus(labels: string[]): string | Fault;
  /** Which of a lock's lengths of time, in milliseconds, is no such length. */
  checkLengths(
    lease: number | undefined,
    wait: number | undefined,
    maxHold: number | undefined,
    beatEvery: number | undefined,
    keepIdle: number | undefined,
  ): Fault | undefined;
  /** Why a number of permits is no count. */
  checkCount(what: string, count: number): Fault | undefined;
  /**
   * Enters a lock that the client has kept, if there is nothing to wait for. Where no leases are kept there is no such
   * method.
   */
  enterKept?(name: string, mode: NumberedMode, options: Options): GuardPort | undefined;
  /** With `waits` unset, `null` if the lock is not free. */
  acquire(
    waits: boolean,
    name: string,
    mode: NumberedMode,
    options: Options,
    signal: AbortSignal | undefined,
  ): Promise<GuardPort | null>;
  acquireAll(
    waits: boolean,
    names: string[],
    options: Options,
    signal: AbortSignal | undefined,
  ): Promise<SetPort | null>;
  /** JSON. */
  inspect(name: string | undefined, prefix: string | undefined, limit: number | undefined): Promise<string>;
  /** JSON. `expected` is a token as decimal text. */
  breakLease(name: string, expected: string, by: string, reason: string): Promise<string>;
  close(): Promise<void>;
}

/** What one held lock and several have in common. */
export interface HeldPort {
  /** Milliseconds. */
  remaining(): number;
  isHeld(): boolean;
  /** Why it is not held. */
  check(): Fault | undefined;
  release(): Promise<void>;
  /**
   * Calls `told` when a lease is lost (with the error) or all are released (without). Returns how to stop. Keeps neither
   * the process nor the lock: what is followed can be collected.
   */
  followLoss(told: Told): () => void;
}

/** One held lock. */
export interface GuardPort extends HeldPort {
  name(): string | null;
  token(): number | null;
  fenceQuality(): string | null;
  mode(): string | null;
  permits(): number | null;
  renewals(): number;
  beat(): void;
  extend(lease: number): Promise<void>;
  /** Upgrades from reading to writing, or downgrades. What it returns takes the place of this. */
  convert(up: boolean): Promise<GuardPort>;
  /** As `followLoss`: with `null` when the lease is endangered. */
  followDanger(told: Told): () => void;
}

/** Several held locks. */
export interface SetPort extends HeldPort {
  names(): string[];
  tokens(): number[];
}
