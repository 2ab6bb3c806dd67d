// The native part, as `src/` has it. Private: nothing outside of `js/` uses it.

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
  elapsed?: number;
}

/** What a call returns at once: how it ended, or a boolean if it goes on, which says whether a turn is due. */
export type Reply = any;

export class NativeClient {
  url(): string;
  id(): string;
  capability(): string;
}

export class NativeGuard {
  name(): string | null;
  token(): number | null;
  fenceQuality(): string | null;
  mode(): string | null;
  permits(): number | null;
  remaining(): number;
  isHeld(): boolean;
  renewals(): number;
  beat(): void;
  check(): Fault | undefined;
}

export class NativeSet {
  names(): string[];
  tokens(): number[];
  remaining(): number;
  isHeld(): boolean;
  check(): Fault | undefined;
}

export class NativeGate {
  constructor(largest?: string);
  admit(token: string): Fault | undefined;
  largest(): string | null;
}

export class Hub {
  constructor(notify: () => void, turn?: () => void);
  farewell(): void;
  turn(): any[];
  cancel(call: number): void;
  connect(call: number, url: string | undefined, program: string | undefined, options: object[]): Reply;
  acquire(
    call: number,
    client: NativeClient,
    waits: boolean,
    name: string,
    way: number,
    count: number,
    capacity: number,
    options: object | undefined,
  ): Reply;
  acquireAll(
    call: number,
    client: NativeClient,
    waits: boolean,
    names: string[],
    options: object | undefined,
  ): Reply;
  release(call: number, guard: NativeGuard): Reply;
  releaseAll(call: number, set: NativeSet): Reply;
  convert(call: number, guard: NativeGuard, up: boolean): Reply;
  lost(call: number, guard: NativeGuard): Reply;
  lostOne(call: number, set: NativeSet): Reply;
  endangered(call: number, guard: NativeGuard): Reply;
  inspect(
    call: number,
    client: NativeClient,
    name: string | undefined,
    prefix: string | undefined,
    limit: number | undefined,
  ): Reply;
  breakLease(
    call: number,
    client: NativeClient,
    name: string,
    expected: string,
    by: string,
    reason: string,
  ): Reply;
  close(call: number, client: NativeClient): Reply;
}

export function fencedUpdate(
  inserts: boolean,
  dollar: boolean,
  table: string,
  fence: string,
  set: string[],
  keys: string[],
): unknown;

export function whyUnchanged(token: string, there: boolean, kept: string | undefined): unknown;
