-- All times are milliseconds since 1970 by the clock of the server.

CREATE TABLE IF NOT EXISTS {s}.polylatch_schema (
    id      integer PRIMARY KEY CHECK (id = 1),
    version bigint  NOT NULL,
    -- At least every number of the rows that were deleted from locks.
    floor   bigint  NOT NULL
);

INSERT INTO {s}.polylatch_schema (id, version, floor) VALUES (1, 1, 0) ON CONFLICT (id) DO NOTHING;

-- One row per name, which survives release. Invariant: counter is at least every fence and every ticket that was
-- given out for the name. The row has one lease at most; is_shared says that leases or waiters may have more.
-- Every step on a name locks this row first.
CREATE TABLE IF NOT EXISTS {s}.locks (
    name        text COLLATE "C" PRIMARY KEY,
    counter     bigint  NOT NULL,
    is_shared   boolean NOT NULL DEFAULT false,
    owner       text,
    fence       bigint,
    client      text,
    label       text,
    mode        text,
    permits     bigint,
    capacity    bigint,
    lease_ms    bigint,
    first_ms    bigint,
    acquired_ms bigint,
    ends_ms     bigint,
    renewals    bigint,
    renewed_ms  bigint
) WITH (fillfactor = 50);

-- The leases that share a lock with the one in its row. A lease whose ends_ms has passed is none.
CREATE TABLE IF NOT EXISTS {s}.leases (
    name        text COLLATE "C" NOT NULL,
    owner       text   NOT NULL,
    fence       bigint NOT NULL,
    client      text   NOT NULL,
    label       text   NOT NULL,
    mode        text   NOT NULL,
    permits     bigint NOT NULL,
    capacity    bigint,
    lease_ms    bigint NOT NULL,
    first_ms    bigint NOT NULL,
    acquired_ms bigint NOT NULL,
    ends_ms     bigint NOT NULL,
    renewals    bigint NOT NULL,
    renewed_ms  bigint,
    PRIMARY KEY (name, owner)
);

-- One row per waiting acquisition; the queue of a lock is its rows by ticket.
CREATE TABLE IF NOT EXISTS {s}.waiters (
    owner     text   PRIMARY KEY,
    name      text COLLATE "C" NOT NULL,
    ticket    bigint NOT NULL,
    client    text   NOT NULL,
    label     text   NOT NULL,
    mode      text   NOT NULL,
    permits   bigint NOT NULL,
    capacity  bigint,
    lease_ms  bigint NOT NULL,
    first_ms  bigint NOT NULL,
    since_ms  bigint NOT NULL,
    silent_ms bigint NOT NULL,
    UNIQUE (name, ticket)
);

-- Who the clients are, for display; a client that announces nothing for a while is deleted.
CREATE TABLE IF NOT EXISTS {s}.clients (
    id                 text   PRIMARY KEY,
    host               text   NOT NULL,
    pid                bigint NOT NULL,
    process_started_ms bigint,
    boot               text,
    pid_namespace      text,
    program            text   NOT NULL,
    language           text   NOT NULL,
    version            text   NOT NULL,
    seen_ms            bigint NOT NULL
);

-- Session mode: a client's leases count only while the advisory lock of its session is held. The key is random; it is
-- named here and nowhere else, so a clash with another one can only keep a session that is over alive.
CREATE TABLE IF NOT EXISTS {s}.sessions (
    client  text   PRIMARY KEY,
    key     bigint NOT NULL,
    -- When it was found to be over.
    over_ms bigint
);

-- Broken leases, the newest ones only.
CREATE TABLE IF NOT EXISTS {s}.audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms  bigint NOT NULL,
    name   text   NOT NULL,
    owner  text   NOT NULL,
    fence  bigint NOT NULL,
    client text   NOT NULL,
    by     text   NOT NULL,
    reason text   NOT NULL
);

-- Idempotent work: one row per key, and per one-time token. A claim ends at ends_ms; a row counts as absent from
-- keep_until_ms on (NULL: never). Invariant: version grows with every write of a row.
CREATE TABLE IF NOT EXISTS {s}.idempotency (
    scope         text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    kind          text   NOT NULL,
    version       bigint NOT NULL,
    state         text   NOT NULL,
    owner         text   NOT NULL,
    fence         bigint NOT NULL,
    fingerprint   text   NOT NULL,
    client        text   NOT NULL,
    runs          bigint NOT NULL,
    lease_ms      bigint NOT NULL,
    renewals      bigint NOT NULL,
    ends_ms       bigint NOT NULL,
    keep_until_ms bigint,
    written_ms    bigint NOT NULL,
    result        bytea  NOT NULL,
    PRIMARY KEY (scope, key, kind)
);

CREATE INDEX IF NOT EXISTS idempotency_over ON {s}.idempotency (keep_until_ms) WHERE keep_until_ms IS NOT NULL;

-- What inspection reads. An owner token is what a client proves its lease with, so a role that only looks sees a digest.
CREATE OR REPLACE VIEW {s}.seen_locks AS
SELECT name, left(encode(sha256(convert_to(owner, 'UTF8')), 'hex'), 8) AS digest, fence, client, label, mode, permits,
       capacity, lease_ms, first_ms, acquired_ms, ends_ms, renewals, renewed_ms
FROM {s}.locks WHERE owner IS NOT NULL;

CREATE OR REPLACE VIEW {s}.seen_leases AS
SELECT name, left(encode(sha256(convert_to(owner, 'UTF8')), 'hex'), 8) AS digest, fence, client, label, mode, permits,
       capacity, lease_ms, first_ms, acquired_ms, ends_ms, renewals, renewed_ms
FROM {s}.leases;

CREATE OR REPLACE VIEW {s}.seen_waiters AS
SELECT name, left(encode(sha256(convert_to(owner, 'UTF8')), 'hex'), 8) AS digest, ticket, client, label, mode, permits,
       capacity, since_ms, silent_ms
FROM {s}.waiters;

CREATE OR REPLACE VIEW {s}.seen_breaks AS
SELECT id, at_ms, name, fence, client, by, reason FROM {s}.audit;

-- Without the answers, and without the secret part of tokens that forms have.
CREATE OR REPLACE VIEW {s}.seen_idempotency AS
SELECT scope, CASE kind WHEN 'token' THEN left(key, 8) ELSE key END AS key, kind, version, state, fence, fingerprint,
       client, runs, lease_ms, renewals, ends_ms, keep_until_ms, written_ms, octet_length(result)::bigint AS result_bytes
FROM {s}.idempotency;
