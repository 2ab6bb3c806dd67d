-- Invariant: every time that ends in _ms without a "wall" in its name was read from the boot clock of
-- the boot that `store.boot` names. Whoever finds another boot there deletes leases, waiters and
-- clients before anything else, so a lease never outlives the boot that it was granted in.
-- Invariant: `store.counter` is at least every fence and every ticket ever given out, for all names,
-- so rows may go without a number ever coming back. `store.reserved` is on the disk (synced) before a
-- number at or above it is given out.

CREATE TABLE store (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    counter  INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    boot     TEXT    NOT NULL
) STRICT;

INSERT INTO store (id, counter, reserved, boot) VALUES (1, 0, 0, '');

-- Invariant: the live leases of one name can be held together: one `mutex` or `write` and nothing
-- else, or any number of `read`, or `permits` of one capacity that they do not exceed in sum. A row
-- whose `ends_ms` has passed is no lease.
-- Invariant: the live leases and the waiters of one name want one kind of lock: `mutex`, or `read` and
-- `write`, or `permits` of one capacity.
CREATE TABLE lease (
    name             TEXT    NOT NULL,
    owner            TEXT    NOT NULL,
    fence            INTEGER NOT NULL,
    mode             TEXT    NOT NULL CHECK (mode IN ('mutex', 'read', 'write', 'permits')),
    permits          INTEGER NOT NULL CHECK (permits BETWEEN 1 AND coalesce(capacity, 1)),
    capacity         INTEGER CHECK ((capacity IS NOT NULL) = (mode = 'permits')),
    client           TEXT    NOT NULL,
    label            TEXT    NOT NULL,
    lease_ms         INTEGER NOT NULL,
    acquired_wall_ms INTEGER NOT NULL,
    acquired_ms      INTEGER NOT NULL,
    ends_ms          INTEGER NOT NULL,
    renewals         INTEGER NOT NULL DEFAULT 0,
    renewed_ms       INTEGER,
    PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID;

-- Finds what a client was granted since it last looked.
CREATE INDEX lease_of_client ON lease (client, fence);

-- One row per waiting acquisition; the line of a lock is its rows by ticket.
CREATE TABLE waiter (
    owner         TEXT    NOT NULL PRIMARY KEY,
    name          TEXT    NOT NULL,
    ticket        INTEGER NOT NULL,
    mode          TEXT    NOT NULL CHECK (mode IN ('mutex', 'read', 'write', 'permits')),
    permits       INTEGER NOT NULL CHECK (permits BETWEEN 1 AND coalesce(capacity, 1)),
    capacity      INTEGER CHECK ((capacity IS NOT NULL) = (mode = 'permits')),
    client        TEXT    NOT NULL,
    label         TEXT    NOT NULL,
    lease_ms      INTEGER NOT NULL,
    first_ms      INTEGER NOT NULL,
    since_wall_ms INTEGER NOT NULL,
    since_ms      INTEGER NOT NULL,
    silent_ms     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX waiter_line ON waiter (name, ticket);

-- Who the clients are, for people; a client that says nothing for a while is deleted.
CREATE TABLE client (
    id                      TEXT    NOT NULL PRIMARY KEY,
    host                    TEXT    NOT NULL,
    pid                     INTEGER NOT NULL,
    process_started_wall_ms INTEGER,
    program                 TEXT    NOT NULL,
    language                TEXT    NOT NULL,
    version                 TEXT    NOT NULL,
    seen_ms                 INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Broken leases, the newest ones only. `id` grows, so a client sees which breaks are new to it.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    wall_ms INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    owner   TEXT    NOT NULL,
    fence   INTEGER NOT NULL,
    client  TEXT    NOT NULL,
    by      TEXT    NOT NULL,
    reason  TEXT    NOT NULL
) STRICT;
