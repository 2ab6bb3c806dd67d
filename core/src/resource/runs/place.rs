//! Where records are: the statements of one database, and its rows read.

use std::time::Duration;

use super::sqlite;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::statement::SqlValue;
use super::statement::{Columns, SqlRow, SqlStatement};
use crate::error::{Error, ErrorKind, Result};
use crate::policy::idempotency::{Record, RecordId, Seen, State};
use crate::token::{ClientId, OwnerToken};

#[cfg(feature = "postgres")]
use crate::backend::postgres::protocol::schema::Schema;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::backend::{
    records::Put,
    rows::server::{
        idempotency::RecordStatements,
        value::{Param, Statement},
    },
};

/// Which database, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres(Schema),
    #[cfg(feature = "mysql")]
    Mysql,
}

/// What to write, and for how long.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub record: Record,
    /// Of a claim that outlives its transaction.
    pub lease: Option<Duration>,
    /// `None`: for ever.
    pub keep: Option<Duration>,
}

impl Place {
    pub(super) fn schema(&self) -> String {
        match self {
            Self::Sqlite => sqlite::TABLE.to_owned(),
            #[cfg(feature = "postgres")]
            Self::Postgres(schema) => schema.script(),
            #[cfg(feature = "mysql")]
            Self::Mysql => crate::backend::mysql::mysql_schema(),
        }
    }

    /// Waits for another transaction with the same key, or returns a row with 0 at once. Only PostgreSQL needs it: its
    /// inserts have no form that does not wait.
    pub(super) fn lock(&self, id: &RecordId, no_wait: bool) -> Option<SqlStatement> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(schema) => {
                let sql = if no_wait {
                    "SELECT pg_try_advisory_xact_lock($1::bigint)::int::bigint"
                } else {
                    "SELECT 1::bigint FROM pg_advisory_xact_lock($1::bigint)"
                };
                Some(SqlStatement::new(sql, vec![SqlValue::Int(number_of(schema.name(), id))]))
            }
            _ => {
                let _ = (id, no_wait);
                None
            }
        }
    }

    /// Writes a new record; leaves one that is there as it is.
    pub(super) fn insert(&self, id: &RecordId, write: Write, no_wait: bool) -> SqlStatement {
        let statement = match self {
            Self::Sqlite => {
                sqlite::insert(&id.scope, &id.key, &write.record, lease_ms(write.lease), write.keep.map(ms))
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(schema) => of_server(schema.swap_record(id, None, &write.put())),
            #[cfg(feature = "mysql")]
            Self::Mysql => {
                let dialect = crate::backend::mysql::protocol::idempotency::Dialect;
                of_server(dialect.swap_record(id, None, &write.put()))
            }
        };
        match self {
            // MariaDB alone reads what is in such a comment.
            #[cfg(feature = "mysql")]
            Self::Mysql if no_wait => SqlStatement::new(
                format!("/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ {}", statement.sql()),
                statement.values().to_vec(),
            ),
            _ => {
                let _ = no_wait;
                statement
            }
        }
    }

    /// Writes over a record of this version.
    pub(super) fn update(&self, id: &RecordId, version: u64, write: Write) -> SqlStatement {
        match self {
            Self::Sqlite => sqlite::update(
                (&id.scope, &id.key),
                i64::try_from(version).unwrap_or(i64::MAX),
                &write.record,
                lease_ms(write.lease),
                write.keep.map(ms),
            ),
            #[cfg(feature = "postgres")]
            Self::Postgres(schema) => of_server(schema.swap_record(id, Some(version), &write.put())),
            #[cfg(feature = "mysql")]
            Self::Mysql => {
                let dialect = crate::backend::mysql::protocol::idempotency::Dialect;
                of_server(dialect.swap_record(id, Some(version), &write.put()))
            }
        }
    }

    /// Reads the newest state of a record.
    pub(super) fn look(&self, id: &RecordId) -> SqlStatement {
        match self {
            Self::Sqlite => sqlite::look(&id.scope, &id.key),
            // A transaction with a snapshot of its own may see a row that was deleted beside the one it has written.
            #[cfg(feature = "postgres")]
            Self::Postgres(schema) => {
                of_server(schema.record(id, None)).and(" ORDER BY i.version DESC LIMIT 1")
            }
            // Without a lock, a transaction would read the snapshot with which it began.
            #[cfg(feature = "mysql")]
            Self::Mysql => of_server(crate::backend::mysql::protocol::idempotency::Dialect.record(id, None))
                .and(" FOR UPDATE"),
        }
    }

    /// Whether an error of the database, by its code, says of a claim with `no_wait` that another transaction has the key.
    pub(super) fn says_in_progress(&self, code: &str) -> bool {
        match self {
            #[cfg(feature = "mysql")]
            Self::Mysql => code == "1205",
            _ => {
                let _ = code;
                false
            }
        }
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl Write {
    fn put(self) -> Put {
        Put::Write { record: self.record, lease: self.lease, keep: self.keep }
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn of_server(statement: Statement) -> SqlStatement {
    let value = |param| match param {
        Param::Text(text) | Param::OptionalText(Some(text)) => SqlValue::Text(text),
        Param::Int(number) | Param::OptionalInt(Some(number)) => SqlValue::Int(number),
        Param::Bytes(bytes) => SqlValue::Bytes(bytes),
        // None of the statements for records has a list.
        Param::OptionalInt(None) | Param::OptionalText(None) | Param::Texts(_) | Param::Ints(_) => {
            SqlValue::Null
        }
    };
    SqlStatement::new(statement.sql, statement.params.into_iter().map(value).collect())
}

/// The number by which PostgreSQL knows the key: FNV-1a of 64 bits. Two keys with the same one wait for each other.
#[cfg(feature = "postgres")]
fn number_of(schema: &str, id: &RecordId) -> i64 {
    let text = format!("polylatch\u{1f}{schema}\u{1f}{}", id.spelled());
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    i64::from_ne_bytes(hash.to_ne_bytes())
}

/// For how long from now on a claim lives. The time is rounded up to a whole millisecond; a claim that ends now is over at
/// once, not after that.
fn lease_ms(lease: Option<Duration>) -> i64 {
    match lease {
        None | Some(Duration::ZERO) => -1,
        Some(lease) => ms(lease),
    }
}

/// Whole milliseconds, a begun one counted.
pub(super) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX / 4)
}

/// Reads the row of [`Place::look`]. Errors: `backend_rejected`.
pub(super) fn seen(id: &RecordId, rows: &[SqlRow]) -> Result<Option<Seen>> {
    rows.first().map(|row| read(row).ok_or_else(|| unreadable(id))).transpose()
}

fn read(row: &SqlRow) -> Option<Seen> {
    let row = Columns(row);
    let unsigned = |at| Some(u64::try_from(row.int(at)?).unwrap_or(0));
    let millis = |at| Some(Duration::from_millis(unsigned(at)?));
    let count = |at| Some(u32::try_from(row.int(at)?).unwrap_or(u32::MAX));
    Some(Seen {
        version: unsigned(0)?,
        lease_left: millis(8)?,
        keep_left: if row.is_null(9) { None } else { Some(millis(9)?) },
        written_ms: unsigned(10)?,
        result_bytes: unsigned(11)?,
        record: Record {
            state: State::parse(&row.text(1)?)?,
            owner: OwnerToken::from_hex(&row.text(12)?)?,
            fence: Some(unsigned(2)?),
            fingerprint: row.text(3)?,
            client: ClientId::from_stored(&row.text(4)?),
            runs: count(5)?,
            lease: millis(6)?,
            renewals: count(7)?,
            result: row.bytes(13)?,
        },
    })
}

pub(super) fn unreadable(id: &RecordId) -> Error {
    Error::new(
        ErrorKind::BackendRejected,
        format!(
            "the row of the key {:?} in {:?} has an unknown form; hand over the columns that the statement selects, in their \
             order, or use the version of Polylatch that wrote it",
            id.key, id.scope
        ),
    )
}
