//! Records of idempotent work: the statements, each a step of its own.

use crate::backend::records::{Listing, Put};
use crate::backend::rows::server::idempotency::{RecordStatements, id_params, write_params};
use crate::backend::rows::server::value::{Cell, Cells, Param, Statement};
use crate::backend::rows::signed;
use crate::policy::idempotency::RecordId;
use crate::token::OwnerToken;

use super::statements::clock_us;

/// The first columns of a record that is read.
macro_rules! read_columns {
    () => {
        concat!(
            "version, state, fence, fingerprint, client, runs, lease_ms, renewals, ends_ms - ",
            clock_us!(),
            " DIV 1000, keep_until_ms - ",
            clock_us!(),
            " DIV 1000, written_ms, result_bytes"
        )
    };
}

/// The dialect of these servers.
pub(crate) struct Dialect;

/// Inserts a record. One that is there stays as it is, and the answer has no number.
macro_rules! insert {
    () => {
        concat!(
            "INSERT INTO polylatch_idempotency (scope, record_key, kind, version, state, owner, fence, fingerprint, client, \
             runs, lease_ms, renewals, ends_ms, keep_until_ms, written_ms, result) VALUES (?, ?, ?, LAST_INSERT_ID(",
            clock_us!(),
            "), ?, ?, COALESCE(?, ",
            clock_us!(),
            "), ?, ?, ?, ?, ?, (",
            clock_us!(),
            " + 999) DIV 1000 + ?, ",
            clock_us!(),
            " DIV 1000 + ?, ",
            clock_us!(),
            " DIV 1000, ?) ON DUPLICATE KEY UPDATE version = version + LAST_INSERT_ID(0)"
        )
    };
}

impl RecordStatements for Dialect {
    fn record(&self, id: &RecordId, but: Option<OwnerToken>) -> Statement {
        let mut params = id_params(id);
        params.push(but.map(OwnerToken::to_hex).unwrap_or_default().into());
        Statement::new(
            concat!(
                "SELECT ",
                read_columns!(),
                ", owner, result FROM polylatch_idempotency \
                 WHERE scope = ? AND record_key = ? AND kind = ? AND owner <> ?"
            ),
            params,
        )
    }

    fn swap_record(&self, id: &RecordId, expected: Option<u64>, put: &Put) -> Statement {
        let Put::Write { record, lease, keep } = put else {
            let mut params = id_params(id);
            params.push(expected.map_or(-1, signed).into());
            return Statement::new(DELETE, params);
        };
        let values = write_params(record, *lease, *keep);
        match expected {
            None => {
                let mut params = id_params(id);
                params.extend(values);
                Statement::new(insert!(), params)
            }
            Some(version) => {
                let mut params = values;
                params.extend(id_params(id));
                params.push(signed(version).into());
                Statement::new(
                    concat!(
                        // Later assignments read the new version.
                        "UPDATE polylatch_idempotency SET version = LAST_INSERT_ID(GREATEST(version + 1, ",
                        clock_us!(),
                        ")), state = ?, owner = ?, fence = COALESCE(?, version), fingerprint = ?, client = ?, runs = ?, \
                         lease_ms = ?, renewals = ?, ends_ms = (",
                        clock_us!(),
                        " + 999) DIV 1000 + ?, keep_until_ms = ",
                        clock_us!(),
                        " DIV 1000 + ?, written_ms = ",
                        clock_us!(),
                        " DIV 1000, result = ? WHERE scope = ? AND record_key = ? AND kind = ? AND version = ?"
                    ),
                    params,
                )
            }
        }
    }

    fn list_records(&self, listing: &Listing) -> Statement {
        let prefix = listing.scope_prefix.as_str();
        Statement::new(
            concat!(
                "SELECT ",
                read_columns!(),
                // No UTF-8 text has the byte FF, so what is between begins with the prefix.
                ", scope, seen_key, kind FROM polylatch_idempotency \
                 WHERE scope >= ? AND scope < CONCAT(CAST(? AS BINARY), x'FF') \
                 AND (keep_until_ms IS NULL OR keep_until_ms > ",
                clock_us!(),
                " DIV 1000) ORDER BY scope, seen_key, kind LIMIT ?"
            ),
            vec![prefix.into(), prefix.into(), i64::try_from(listing.most).unwrap_or(i64::MAX).into()],
        )
    }
}

/// Writes a record over none; answers as [`RecordStatements::record`] with the one that is there then, this one or another.
pub(crate) fn insert_or_read(id: &RecordId, put: &Put) -> Option<Statement> {
    let Put::Write { record, lease, keep } = put else { return None };
    let mut params = id_params(id);
    params.extend(write_params(record, *lease, *keep));
    Some(Statement::new(concat!(insert!(), " RETURNING ", read_columns!(), ", owner, result"), params))
}

/// Deletes a record of this version; answers with a row if it did.
pub(crate) const DELETE: &str =
    "DELETE FROM polylatch_idempotency WHERE scope = ? AND record_key = ? AND kind = ? AND version = ?";

/// Finds records whose retention is over, and locks none of them: what [`delete_over`] needs.
pub(crate) fn over(most: usize) -> Statement {
    Statement::new(
        concat!(
            "SELECT scope, record_key, kind, version FROM polylatch_idempotency WHERE keep_until_ms <= ",
            clock_us!(),
            " DIV 1000 ORDER BY keep_until_ms LIMIT ?"
        ),
        vec![i64::try_from(most).unwrap_or(i64::MAX).into()],
    )
}

/// Deletes one of them by its primary key, if it is still the same.
pub(crate) fn delete_over(row: &Cells) -> Statement {
    let params = row.0.iter().map(|cell| match cell {
        Cell::Int(version) => Param::Int(*version),
        Cell::Bytes(bytes) => Param::Bytes(bytes.clone()),
        Cell::Text(text) => Param::Text(text.clone()),
        Cell::Null => Param::OptionalInt(None),
    });
    Statement::new(DELETE, params.collect())
}
