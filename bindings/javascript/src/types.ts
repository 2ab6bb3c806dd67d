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
  /**
   * After a release the client keeps the lease for the next caller, for at most this long: 100 ms to 24 h, off by
   * default. Acquiring it again costs no request. Another client that asks for the lock has it released. A process that
   * stops while it keeps a lease blocks the lock until the lease ends. For plain locks, on memory and
   * Redis stores; not in browsers and edge workers, which are stopped without notice.
   */
  keepIdle?: number | undefined;
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
  /** How much it matters; see the option `level`. */
  level: 'debug' | 'info' | 'warn' | 'error';
  /** A sentence to read. */
  message: string;
  /** The client's id; `null` where the event is of no one client. */
  client: string | null;
  /** The name of the lock. */
  lock?: string;
  /** The fencing token of the lease. */
  fencingToken?: bigint;
  /** Why a lease was lost; see {@link LeaseLostError}. */
  reason?: string;
  /** The text of the error. */
  error?: string;
  [field: string]: unknown;
}

/** How strong the order of fencing tokens is: `time-floored` is strict while the store keeps its data. */
export type FenceQuality = 'none' | 'time-floored' | 'strict';
/** How a lock is held. */
export type Mode = 'mutex' | 'read' | 'write' | 'permits';

/** How many durations fell into which range. */
export interface Histogram {
  /** The largest duration of each range, in seconds. */
  bounds: number[];
  /** How many fell into each range alone; one more than there are bounds, for all above. */
  counts: number[];
  /** Seconds in all. */
  sum: number;
  /** How many in all. */
  count: number;
}

/** What one client has done since it was made. Counts only grow; `waiting` and `held` are of now. */
export interface Stats {
  /** Kind of store, such as `redis`. */
  backend: string;
  /** From the call of `acquire` until the lock was held, of the calls that acquired it. */
  wait: Histogram;
  /** From the grant of a lease to its release or loss. */
  hold: Histogram;
  /** From when a renewal was due until the store confirmed it. */
  renewalLag: Histogram;
  /** Acquisitions by how they ended. For a set of locks, each lock counts. */
  acquired: number;
  /** Those that did not wait, and another client held the lock. */
  refused: number;
  /** Those whose wait was over. */
  timedOut: number;
  /** Those that ended with another error. */
  failed: number;
  /** Those that the caller ended. */
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
  /** Kind of store, such as `redis`. */
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
  /** How strong the order of its fencing tokens is. */
  fencing: FenceQuality;
  /** The shortest lease. */
  minLease: number;
  /** The longest lease. */
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

/** One held lease. */
export interface HolderView {
  /** The client that holds it; `null` for the lock of another program. */
  client: string | null;
  /** What the holder says it is doing. */
  label: string;
  /** How it is held. */
  mode: Mode;
  /** How many permits it holds; 1 for everything that is no semaphore. */
  permits: number;
  /** Tells two acquisitions apart, and reveals nothing. */
  ownerDigest: string;
  /** The fencing token of this grant; what `breakLease` expects. */
  fencingToken: bigint | null;
  /** When it was granted, on the store's clock. */
  acquiredAtMs: number | null;
  /** How long it has been held. */
  heldForMs: number | null;
  /** Length of a renewed lease. */
  leaseMs: number | null;
  /** What is left of the lease; `null` if it never ends, or if the store cannot say. */
  remainingMs: number | null;
  /** How often it was renewed. */
  renewals: number | null;
  /** How long ago it was last renewed. */
  renewedAgoMs: number | null;
  /**
   * How long ago it was free for its client's next caller, which keeps it between them (`keepIdle`); a caller may be in by
   * now. `null` if it was not so during the last lease, or if the store cannot say.
   */
  idleAgoMs: number | null;
}

/** One waiter. */
export interface WaiterView {
  /** The client that waits. */
  client: string;
  /** What the waiter says it wants to do. */
  label: string;
  /** How it will hold the lock. */
  mode: Mode;
  /** How many permits it wants; 1 for everything that is no semaphore. */
  permits: number;
  /** Tells two acquisitions apart, and reveals nothing. */
  ownerDigest: string;
  /** Position in the queue, 0 for the next. */
  position: number;
  /** When it was queued, on the store's clock. */
  sinceMs: number;
  /** How long it has waited. */
  waitedMs: number;
  /** Whether it has given no heartbeat lately, so that a hand-off passes it over. */
  silent: boolean;
  /** When it gives up, on the store's clock; null if it waits without a limit, or if that is not known. */
  givesUpAtMs: number | null;
}

/** One lock. */
export interface LockView {
  /** The name of the lock. */
  name: string;
  /** What kind of lock; `foreign` for data that another program keeps there. */
  mode: 'mutex' | 'rw' | 'semaphore' | 'foreign';
  /** How many permits there are, if it is a semaphore. */
  capacity: number | null;
  /** The holders; empty if it is free. */
  holders: HolderView[];
  /** The waiters, in the order of the queue. */
  waiters: WaiterView[];
}

/** A client process that holds or waits. */
export interface ClientView {
  /** The client's id. */
  id: string;
  /** The name of its host. */
  host: string;
  /** Its process id there. */
  pid: number;
  /** When the process started; `null` if it is not known. */
  processStartedAtMs: number | null;
  /** The name of its program. */
  program: string;
  /** The language of its package. */
  language: string;
  /** The version of its package. */
  version: string;
  /** How long ago the store last heard of it. */
  seenAgoMs: number;
}

/** One break of a lease. */
export interface AuditEntry {
  /** When, on the store's clock. */
  atMs: number;
  /** The name of the lock. */
  name: string;
  /** The fencing token of the lease that was ended. */
  fencingToken: bigint;
  /** The client that held it. */
  holder: string;
  /** Who broke it: user and host. */
  by: string;
  /** Why. */
  reason: string;
}

/** A store's locks at one moment. What the store cannot say is `null`. */
export interface Snapshot {
  /** Kind of store, such as `redis`. */
  backend: string;
  /** When this was read, on the store's clock. */
  takenAtMs: number;
  /** How long it took to read. */
  roundTripMs: number;
  /** Locks that are held or waited for, sorted by name. */
  locks: LockView[];
  /** The client processes that hold or wait, sorted by id. */
  clients: ClientView[];
  /** The latest breaks, newest first. */
  audit: AuditEntry[];
  /** Whether more locks existed than the limit of the query. */
  truncated: boolean;
}

/** An order to end a lease. */
export interface BreakOrder {
  /** The name of the lock. */
  name: string;
  /** The fencing token of the lease that was looked at. A lock that changed hands since is left alone. */
  expected: bigint;
  /** Who breaks it, for the audit: user and host. */
  by: string;
  /** Why; at most 256 bytes. */
  reason: string;
}

/** What a break did: it ended the lease, the lock was free, or another client holds it by now. */
export type BreakOutcome =
  | { outcome: 'broken'; holder: string; next: string | null }
  | { outcome: 'free' }
  | { outcome: 'changed_hands'; present: bigint };
