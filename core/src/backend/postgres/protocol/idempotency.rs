//! Records of idempotent work: the statements, each a step of its own.

use super::schema::Schema;
use crate::backend::records::{Listing, Put};
use crate::backend::rows::server::idempotency::{RecordStatements, id_params, write_params};
use crate::backend::rows::server::value::Statement;
use crate::backend::rows::signed;
use crate::policy::idempotency::RecordId;
use crate::token::OwnerToken;

/// The server's time in microseconds, read once in a statement.
const NOW: &str = "(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us OFFSET 0) n";

const COLUMNS: &str = "version, state, owner, fence, fingerprint, client, runs, lease_ms, renewals, ends_ms, \
     keep_until_ms, written_ms, result";

/// The first columns of a record that is read.
const READ: &str = "i.version, i.state, i.fence, i.fingerprint, i.client, i.runs, i.lease_ms, i.renewals, \
     i.ends_ms - n.us / 1000, i.keep_until_ms - n.us / 1000, i.written_ms";

impl RecordStatements for Schema {
    fn record(&self, id: &RecordId, but: Option<OwnerToken>) -> Statement {
        let mut params = id_params(id);
        params.push(but.map(OwnerToken::to_hex).unwrap_or_default().into());
        let sql = format!(
            "SELECT {READ}, octet_length(i.result)::bigint, i.owner, i.result FROM {{s}}.idempotency i, {NOW} \
             WHERE i.scope = $1 AND i.key = $2 AND i.kind = $3 AND i.owner <> $4"
        );
        Statement::new(self.sql(&sql), params)
    }

    fn swap_record(&self, id: &RecordId, expected: Option<u64>, put: &Put) -> Statement {
        let mut params = id_params(id);
        let Put::Write { record, lease, keep } = put else {
            params.push(expected.map_or(-1, signed).into());
            let sql = "DELETE FROM {s}.idempotency WHERE scope = $1 AND key = $2 AND kind = $3 AND version = $4 \
                       RETURNING version";
            return Statement::new(self.sql(sql), params);
        };
        params.extend(write_params(record, *lease, *keep));
        let values = |version: &str| {
            format!(
                "{version}, $4::text, $5::text, coalesce($6::bigint, {version}), $7::text, $8::text, $9::bigint, \
                 $10::bigint, $11::bigint, (n.us + 999) / 1000 + $12::bigint, n.us / 1000 + $13::bigint, n.us / 1000, \
                 $14::bytea"
            )
        };
        let sql = match expected {
            None => format!(
                "INSERT INTO {{s}}.idempotency (scope, key, kind, {COLUMNS}) SELECT $1, $2, $3, {} FROM {NOW} \
                 ON CONFLICT (scope, key, kind) DO NOTHING RETURNING version",
                values("n.us")
            ),
            Some(version) => {
                params.push(signed(version).into());
                format!(
                    "UPDATE {{s}}.idempotency i SET ({COLUMNS}) = (SELECT {} FROM {NOW}) \
                     WHERE i.scope = $1 AND i.key = $2 AND i.kind = $3 AND i.version = $15 RETURNING i.version",
                    values("greatest(i.version + 1, n.us)")
                )
            }
        };
        Statement::new(self.sql(&sql), params)
    }

    fn list_records(&self, listing: &Listing) -> Statement {
        let sql = format!(
            "SELECT {READ}, i.result_bytes, i.scope, i.key, i.kind FROM {{s}}.seen_idempotency i, {NOW} \
             WHERE starts_with(i.scope, $1) AND (i.keep_until_ms IS NULL OR i.keep_until_ms > n.us / 1000) \
             ORDER BY i.scope, i.key, i.kind LIMIT $2"
        );
        let most = i64::try_from(listing.most).unwrap_or(i64::MAX);
        Statement::new(self.sql(&sql), vec![listing.scope_prefix.as_str().into(), most.into()])
    }
}

impl Schema {
    /// Deletes records whose retention is over; returns how many.
    pub(crate) fn purge_records(&self, most: usize) -> Statement {
        let sql = format!(
            "WITH over AS (SELECT i.scope, i.key, i.kind FROM {{s}}.idempotency i, {NOW} \
             WHERE i.keep_until_ms <= n.us / 1000 ORDER BY i.keep_until_ms LIMIT $1 FOR UPDATE OF i SKIP LOCKED), \
             gone AS (DELETE FROM {{s}}.idempotency i USING over o \
             WHERE i.scope = o.scope AND i.key = o.key AND i.kind = o.kind RETURNING 1) \
             SELECT count(*) FROM gone"
        );
        Statement::new(self.sql(&sql), vec![i64::try_from(most).unwrap_or(i64::MAX).into()])
    }
}
