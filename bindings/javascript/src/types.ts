// What a program hands over and gets, as plain values. All times are milliseconds.

/** Options of a lock. Those that are missing are the client's, or the core's, to say. */
export interface LockOptions {
  /**
   * Length of the lease: 100 ms to 24 h, 15 s unless the client says otherwise. Shorter: a dead holder is
   * noticed sooner, but a slow network or a pause loses the lock sooner. It is renewed at a third.
   */
  lease?: number | undefined;
  /** How long to wait for a lock that another client holds: 0 to a year; by default, and with `Infinity`, without limit. */
  wait?: number | undefined;
  /** What the lock is used for, shown to operators: at most 256 bytes, no secrets. */
  label?: string | undefined;
  /** Makes the lock reentrant for this id, 1 to 128 bytes, within this client. */
  owner?: string | undefined;
  /** Never hold the lock for longer than this, however healthy the process is: 100 ms to a year. */
  maxHold?: number | undefined;
  /** Renew only while the work calls {@link Guard.beat} at least this often: 100 ms to a year. */
  beatEvery?: number | undefined;
  /** With `false`, may acquire a free lock before the waiters in the queue. */
  fifo?: boolean | undefined;
  /** With `false`, the lease is never renewed and ends after its full length. */
  renew?: boolean | undefined;
}

/** Options of a call that acquires. */
export interface CallOptions {
  /** Ends the wait: the promise is rejected with the signal's reason, and nothing stays held. */
  signal?: AbortSignal | undefined;
}

/**
 * What happened to a lock or a store. The same is published on the channel `polylatch:NAME` of
 * `node:diagnostics_channel`, such as `polylatch:lost`; the common events are, if there was a subscriber before a client
 * connected. A `setup_warning` without a listener becomes a process warning.
 */
export interface PolylatchEvent {
  /**
   * `waiting`, `acquired`, `released`, `renewal_failed`, `endangered`, `lost`, `store_unreachable`,
   * `store_reachable`, `setup_warning`, `notice` and others.
   */
  event: string;
  level: 'debug' | 'info' | 'warn' | 'error';
  message: string;
  /** The client's id; `null` where the event is of no one client. */
  client: string | null;
  lock?: string;
  fencingToken?: bigint;
  /** Why a lease was lost; see {@link LeaseLostError}. */
  reason?: string;
  error?: string;
  [field: string]: unknown;
}

export type FenceQuality = 'none' | 'time-floored' | 'strict';
export type Mode = 'mutex' | 'read' | 'write' | 'permits';

/** How many durations fell into which range. */
export interface Histogram {
  /** The largest duration of each range, in seconds. */
  bounds: number[];
  /** How many fell into each range alone; one more than there are bounds, for all above. */
  counts: number[];
  /** Seconds in all. */
  sum: number;
  count: number;
}

/** What one client has done since it was made. Counts only grow; `waiting` and `held` are of now. */
export interface Stats {
  backend: string;
  /** From the call of `acquire` until the lock was held, of the calls that acquired it. */
  wait: Histogram;
  /** From the grant of a lease to its release or loss. */
  hold: Histogram;
  /** From when a renewal was due until the store confirmed it. */
  renewalLag: Histogram;
  /** Acquisitions by how they ended. For a set of locks, each lock counts. */
  acquired: number;
  refused: number;
  timedOut: number;
  failed: number;
  cancelled: number;
  /** Acquisitions that are queued now. */
  waiting: number;
  /** Leases that are held now. */
  held: number;
  /** Lost leases by reason, such as `expired`; all reasons are there. */
  losses: Record<string, number>;
  /** Failed operations by the code of their error; all codes are there. */
  errors: Record<string, number>;
}

/** What a store, as configured, can do. */
export interface Capability {
  backend: string;
  /** Waiters are served in FIFO order. */
  fifo: boolean;
  /** A release wakes the next waiter by a message. */
  push: boolean;
  /** A lease ends by itself when its holder is gone. */
  expiry: boolean;
  /** There are read-write locks and semaphores. */
  sharing: boolean;
  /** `lockAll(names).tryAcquire()` takes the whole set in one step. */
  atomicSets: boolean;
  fencing: FenceQuality;
  minLease: number;
  maxLease: number;
}

/** Which locks to read. */
export interface Query {
  /** Only this lock, also if it is free. */
  name?: string | undefined;
  /** Only locks whose name starts with this. */
  prefix?: string | undefined;
  /** At most this many locks; 10 000 by default. */
  limit?: number | undefined;
}

export interface HolderView {
  client: string | null;
  label: string;
  mode: Mode;
  permits: number;
  ownerDigest: string;
  fencingToken: bigint | null;
  acquiredAtMs: number | null;
  heldForMs: number | null;
  leaseMs: number | null;
  remainingMs: number | null;
  renewals: number | null;
  renewedAgoMs: number | null;
}

export interface WaiterView {
  client: string;
  label: string;
  mode: Mode;
  permits: number;
  ownerDigest: string;
  position: number;
  sinceMs: number;
  waitedMs: number;
  silent: boolean;
  /** When it gives up, on the store's clock; null if it waits without a limit, or if that is not known. */
  givesUpAtMs: number | null;
}

export interface LockView {
  name: string;
  mode: 'mutex' | 'rw' | 'semaphore' | 'foreign';
  capacity: number | null;
  holders: HolderView[];
  waiters: WaiterView[];
}

export interface ClientView {
  id: string;
  host: string;
  pid: number;
  processStartedAtMs: number | null;
  program: string;
  language: string;
  version: string;
  seenAgoMs: number;
}

export interface AuditEntry {
  atMs: number;
  name: string;
  fencingToken: bigint;
  holder: string;
  by: string;
  reason: string;
}

/** A store's locks at one moment. What the store cannot say is `null`. */
export interface Snapshot {
  backend: string;
  takenAtMs: number;
  roundTripMs: number;
  locks: LockView[];
  clients: ClientView[];
  audit: AuditEntry[];
  truncated: boolean;
}

/** An order to end a lease. */
export interface BreakOrder {
  name: string;
  /** The fencing token of the lease that was looked at. A lock that changed hands since is left alone. */
  expected: bigint;
  /** Who breaks it, for the audit: user and host. */
  by: string;
  /** Why; at most 256 bytes. */
  reason: string;
}

export type BreakOutcome =
  | { outcome: 'broken'; holder: string; next: string | null }
  | { outcome: 'free' }
  | { outcome: 'changed_hands'; present: bigint };
