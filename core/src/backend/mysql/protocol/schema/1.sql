-- Tables of Polylatch. All times are milliseconds since 1970 by the clock of the server. Names and tokens are bytes, so
-- that no collation takes two of them for one.

-- One row per name, which survives release. Invariant: counter is at least every fence and every ticket that was
-- given out for the name. The row has one lease at most; is_shared says that leases or waiters may have more.
-- Every step on a name locks this row first. Only the digest of an owner token is for inspectors.
CREATE TABLE IF NOT EXISTS polylatch_locks (
    name        varbinary(512) NOT NULL PRIMARY KEY,
    counter     bigint         NOT NULL,
    is_shared   tinyint        NOT NULL DEFAULT 0,
    owner       varbinary(64),
    fence       bigint,
    client      varbinary(512),
    label       varbinary(512),
    mode        varbinary(32),
    permits     bigint,
    capacity    bigint,
    lease_ms    bigint,
    first_ms    bigint,
    acquired_ms bigint,
    ends_ms     bigint,
    renewals    bigint,
    renewed_ms  bigint,
    digest      varchar(8) CHARACTER SET ascii GENERATED ALWAYS AS (left(sha2(owner, 256), 8)) VIRTUAL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- The leases that share a lock with the one in its row. A lease whose ends_ms has passed is none.
CREATE TABLE IF NOT EXISTS polylatch_leases (
    name        varbinary(512) NOT NULL,
    owner       varbinary(64)  NOT NULL,
    fence       bigint         NOT NULL,
    client      varbinary(512) NOT NULL,
    label       varbinary(512) NOT NULL,
    mode        varbinary(32)  NOT NULL,
    permits     bigint         NOT NULL,
    capacity    bigint,
    lease_ms    bigint         NOT NULL,
    first_ms    bigint         NOT NULL,
    acquired_ms bigint         NOT NULL,
    ends_ms     bigint         NOT NULL,
    renewals    bigint         NOT NULL,
    renewed_ms  bigint,
    digest      varchar(8) CHARACTER SET ascii GENERATED ALWAYS AS (left(sha2(owner, 256), 8)) VIRTUAL,
    PRIMARY KEY (name, owner)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- One row per waiting acquisition; the queue of a lock is its rows by ticket. There is no second index: its gaps
-- would be locked.
CREATE TABLE IF NOT EXISTS polylatch_waiters (
    name      varbinary(512) NOT NULL,
    ticket    bigint         NOT NULL,
    owner     varbinary(64)  NOT NULL,
    client    varbinary(512) NOT NULL,
    label     varbinary(512) NOT NULL,
    mode      varbinary(32)  NOT NULL,
    permits   bigint         NOT NULL,
    capacity  bigint,
    lease_ms  bigint         NOT NULL,
    first_ms  bigint         NOT NULL,
    since_ms  bigint         NOT NULL,
    silent_ms bigint         NOT NULL,
    digest    varchar(8) CHARACTER SET ascii GENERATED ALWAYS AS (left(sha2(owner, 256), 8)) VIRTUAL,
    PRIMARY KEY (name, ticket)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- Who the clients are, for display; a client that announces nothing for a while is deleted.
CREATE TABLE IF NOT EXISTS polylatch_clients (
    id                 varbinary(512) NOT NULL PRIMARY KEY,
    host               varchar(512)   NOT NULL,
    pid                bigint         NOT NULL,
    process_started_ms bigint,
    boot               varchar(512),
    pid_namespace      varchar(512),
    program            varchar(1024)  NOT NULL,
    language           varchar(512)   NOT NULL,
    version            varchar(512)   NOT NULL,
    seen_ms            bigint         NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- Session mode: a client's leases count only while the session lock of its key is held (GET_LOCK). The key is random; it
-- is named here and nowhere else, so a clash with another one can only keep a session that is over alive.
CREATE TABLE IF NOT EXISTS polylatch_sessions (
    client      varbinary(512) NOT NULL PRIMARY KEY,
    session_key bigint         NOT NULL,
    -- When it was found to be over.
    over_ms     bigint
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- Broken leases, the newest ones only.
CREATE TABLE IF NOT EXISTS polylatch_audit (
    id     bigint         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at_ms  bigint         NOT NULL,
    name   varbinary(512) NOT NULL,
    owner  varbinary(64)  NOT NULL,
    fence  bigint         NOT NULL,
    client varbinary(512) NOT NULL,
    broken_by mediumtext  NOT NULL,
    reason mediumtext     NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- Idempotent work: one row per key, and per one-time token. A claim ends at ends_ms; a row counts as absent from
-- keep_until_ms on (NULL: never). Invariant: version grows with every write of a row. Inspectors see neither the results
-- nor the secret part of tokens.
CREATE TABLE IF NOT EXISTS polylatch_idempotency (
    scope         varbinary(512) NOT NULL,
    record_key    varbinary(512) NOT NULL,
    kind          varbinary(16)  NOT NULL,
    version       bigint         NOT NULL,
    state         varbinary(32)  NOT NULL,
    owner         varbinary(64)  NOT NULL,
    fence         bigint         NOT NULL,
    fingerprint   varbinary(512) NOT NULL,
    client        varbinary(512) NOT NULL,
    runs          bigint         NOT NULL,
    lease_ms      bigint         NOT NULL,
    renewals      bigint         NOT NULL,
    ends_ms       bigint         NOT NULL,
    keep_until_ms bigint,
    written_ms    bigint         NOT NULL,
    result        mediumblob     NOT NULL,
    seen_key      varbinary(512) GENERATED ALWAYS AS (if(kind = 'token', left(record_key, 8), record_key)) VIRTUAL,
    result_bytes  bigint         GENERATED ALWAYS AS (length(result)) VIRTUAL,
    PRIMARY KEY (scope, record_key, kind),
    KEY polylatch_idempotency_over (keep_until_ms)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

-- Its row is the last that is written: with it, the tables are complete.
CREATE TABLE IF NOT EXISTS polylatch_schema (
    id      int    NOT NULL PRIMARY KEY,
    version bigint NOT NULL,
    -- At least every number of the rows that were deleted from polylatch_locks.
    floor   bigint NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

INSERT INTO polylatch_schema (id, version, floor) VALUES (1, 1, 0) ON DUPLICATE KEY UPDATE id = id;
