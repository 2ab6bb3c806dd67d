// The native part, as `src/` has it. Private: nothing outside of `js/` uses it.

import type { Fault } from './port.js';

/** What a call returns at once: how it ended, or a boolean if it goes on, which says whether a turn is due. */
export type Reply = any;

export class NativeClient {
  number(): number;
  url(): string;
  id(): string;
  capability(): string;
  stats(): string;
  prometheus(labels: string[]): any;
  checkLengths(
    lease: number | undefined,
    wait: number | undefined,
    maxHold: number | undefined,
    beatEvery: number | undefined,
    keepIdle: number | undefined,
  ): Fault | undefined;
  checkCount(what: string, count: number): Fault | undefined;
}

export class NativeSet {
  names(): string[];
  tokens(): number[];
  remaining(): number;
  isHeld(): boolean;
  check(): Fault | undefined;
}

export class NativeRun {
  answer(): Buffer | null;
  failure(): Fault | null;
  token(): number;
  runs(): number;
  remaining(): number;
  check(): Fault | undefined;
  abandon(): void;
}

export class NativeGate {
  constructor(largest?: string);
  admit(token: string): Fault | undefined;
  largest(): string | null;
}

export class Hub {
  constructor(notify: () => void, turn: (() => void) | undefined, heard: () => void);
  number(): number;
  farewell(): void;
  /** Two entries for each call that has ended: its number, and how it ended. */
  turn(): any[];
  cancel(call: number): void;
  /** Pairs of an event, or `null` for the end of a client, and the number of the client's listener, as JSON. */
  events(): string | undefined;
  /** 0 debug, 1 info, 2 warnings and errors. */
  want(least: number): void;
  connect(
    call: number,
    url: string | undefined,
    program: string | undefined,
    options: object[],
    listener: number,
  ): Reply;
  acquire(
    call: number,
    guard: number,
    client: NativeClient,
    waits: boolean,
    name: string,
    way: number,
    count: number,
    capacity: number,
    lease: number | undefined,
    wait: number | undefined,
    keepIdle: number | undefined,
    options: object | undefined,
  ): Reply;
  acquireAll(
    call: number,
    client: NativeClient,
    waits: boolean,
    names: string[],
    options: object | undefined,
  ): Reply;
  release(call: number, guard: number): Reply;
  releaseAll(call: number, set: NativeSet): Reply;
  convert(call: number, guard: number, up: boolean): Reply;
  extend(call: number, guard: number, lease: number): Reply;
  lost(call: number, guard: number): Reply;
  lostOne(call: number, set: NativeSet): Reply;
  endangered(call: number, guard: number): Reply;
  forget(guard: number): void;
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
  begin(call: number, client: NativeClient, scope: string, key: string, options: object): Reply;
  complete(call: number, run: NativeRun, result: Buffer): Reply;
  fail(call: number, run: NativeRun, answer: Buffer, fate: string | undefined): Reply;
  lostClaim(call: number, run: NativeRun): Reply;
  forgetKey(call: number, client: NativeClient, scope: string, key: string): Reply;
  record(call: number, client: NativeClient, scope: string, key: string): Reply;
  issueToken(call: number, client: NativeClient, scope: string, ttl: number): Reply;
  consumeToken(call: number, client: NativeClient, scope: string, token: string): Reply;
  close(call: number, client: NativeClient): Reply;
}

// What is answered at once. `hub`, `guard` and `client` are numbers: of `Hub.number()`, of a place in `held.cjs`, and of
// `NativeClient.number()`.

/** The fencing token; negative if the lock has to be acquired. */
export function enter(
  hub: number,
  guard: number,
  client: number,
  name: string,
  lease: number | undefined,
  keepIdle: number,
): number;
/** How often the lease was renewed; negative if the lock has to be released. */
export function leave(hub: number, guard: number): number;
export function mode(hub: number, guard: number): string | null;
export function remaining(hub: number, guard: number): number;
export function isHeld(hub: number, guard: number): boolean;
export function renewals(hub: number, guard: number): number;
export function beat(hub: number, guard: number): void;
export function check(hub: number, guard: number): Fault | undefined;
export function givenBack(name: string): Fault;

export interface WriteTexts {
  sql: string;
  parameters: string[];
  probeSql: string;
  probeParameters: string[];
  rowsTell: boolean;
}

export interface LockTexts {
  prepareSql?: string;
  prepareValues: string[];
  takeSql: string;
  takeValues: string[];
  fenceSql?: string;
}

export function fencedUpdate(
  inserts: boolean,
  dialect: string,
  table: string,
  fence: string,
  set: string[],
  keys: string[],
): WriteTexts | Fault;

export function versionedUpdate(
  dialect: string,
  table: string,
  version: string,
  set: string[],
  keys: string[],
): WriteTexts | Fault;

export function conditionalUpdate(
  dialect: string,
  table: string,
  changes: string[][],
  conditions: string[][],
  keys: string[],
): WriteTexts | Fault;

export function transactionLock(dialect: string, name: string, schema: string | undefined): LockTexts | Fault;

export function fencedUnchanged(token: string, there: boolean, kept: string | undefined): string | Fault;

export function fencedAccepted(
  token: string,
  there: boolean,
  kept: string | undefined,
): Fault | null | undefined;

export function versionedUnchanged(there: boolean, kept: string | undefined): string | Fault;

/** A value of a statement. */
export type SqlValue = bigint | string | Buffer | null;

/** A column of a row. A number is whole and exact; other whole numbers are decimal text. */
export type SqlColumn = number | string | Buffer | null;

/** The next statement, or what came of all. */
export interface SqlTurn {
  /** Missing at the end. */
  sql?: string;
  values: SqlValue[];
  claim?: NativeSqlClaim;
  answer?: Buffer;
  failure?: Fault;
  purged: number;
}

export class NativeSqlRuns {
  schema(): string;
  run(inSteps: boolean, scope: string, key: string, options: object): NativeSqlRun | Fault;
  purge(most: number): NativeSqlTalk | Fault;
  saysInProgress(code: string): boolean;
}

export class NativeSqlRun {
  claim(): NativeSqlTalk;
  inProgress(): Fault;
}

export class NativeSqlTalk {
  next(rows: SqlColumn[][]): SqlTurn | Fault;
}

export class NativeSqlClaim {
  token(): number;
  runs(): number;
  finished(): { name: string; value: Buffer }[];
  step(name: string, value: Buffer): NativeSqlTalk | Fault;
  renew(): NativeSqlTalk | Fault;
  release(): NativeSqlTalk | Fault;
  complete(result: Buffer): NativeSqlTalk | Fault;
  fail(answer: Buffer): NativeSqlTalk | Fault;
}

export function sqlRuns(dialect: string, schema: string | undefined): NativeSqlRuns | Fault;
