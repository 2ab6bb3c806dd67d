-- A lock file of schema version 2 as programs have written it: tables, then one row of each. The test sets the
-- boot and the times of that boot (:now, in ms). Later versions read it; never change it, add files instead.
PRAGMA application_id = 0x504c4c4b;
PRAGMA user_version = 2;
CREATE TABLE store (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    counter  INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    boot     TEXT    NOT NULL
) STRICT;
INSERT INTO store (id, counter, reserved, boot) VALUES (1, 0, 0, '');
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
CREATE INDEX lease_of_client ON lease (client, fence);
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
ALTER TABLE lease ADD COLUMN first_ms INTEGER;
ALTER TABLE client ADD COLUMN pid_namespace TEXT;
UPDATE store SET counter = 1763680000000003, reserved = 1763680600000003, boot = ':boot';
INSERT INTO lease VALUES ('orders/42', '00112233445566778899aabbccddeeff', 1763680000000001, 'mutex', 1, NULL,
    'web-1:42:0a0b0c0d', 'nightly | import', 15000, 1763680000000, :now, :now + 60000, 2, :now, 3000);
INSERT INTO lease VALUES ('slots', '00112233445566778899aabbccddeef2', 1763680000000002, 'permits', 2, 5,
    'web-1:42:0a0b0c0d', '', 15000, 1763680000000, :now, :now + 60000, 0, NULL, 3000);
INSERT INTO waiter VALUES ('00112233445566778899aabbccddeef0', 'orders/42', 1763680000000003, 'mutex', 1, NULL,
    'h:1:x', 'a|b', 15000, 3000, 1763680000000, :now, :now + 60000);
INSERT INTO client VALUES ('web-1:42:0a0b0c0d', 'web-1', 42, 1763680000000, 'import', 'rust', '0.1.0', :now, 'pid:[1]');
INSERT INTO audit VALUES (1, 1763680000000, 'orders/7', '00112233445566778899aabbccddeef3', 1763680000000000,
    'web-1:42:0a0b0c0d', 'ann@desk', 'holder is stuck');
