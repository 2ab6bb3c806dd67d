//! Records whose retention is over are deleted in bounded batches.

#[cfg(feature = "mysql")]
use std::collections::VecDeque;

use super::place::Place;
use super::sqlite;
use super::statement::{Ask, Columns, Exchange, SqlRow, SqlStatement, is_over};
use crate::error::{Error, ErrorKind, Result};

/// Most records of one batch.
const MOST: u32 = 100_000;

pub(super) fn purging(place: &Place, most: u32) -> Result<Exchange<u64>> {
    if most == 0 || most > MOST {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("one purge deletes 1 to {MOST} records, not {most}; repeat it for more"),
        ));
    }
    Ok(match place {
        Place::Sqlite => {
            counted(vec![sqlite::purge(most.into()), SqlStatement::new(sqlite::CHANGED, Vec::new())])
        }
        #[cfg(feature = "postgres")]
        Place::Postgres(schema) => {
            counted(vec![super::place::of_server(schema.purge_records(most as usize))])
        }
        #[cfg(feature = "mysql")]
        Place::Mysql => one_by_one(most),
    })
}

/// Runs the statements; the row of the last one has the number.
fn counted(statements: Vec<SqlStatement>) -> Exchange<u64> {
    let (mut left, mut ended) = (statements.into_iter(), false);
    Exchange::new(move |rows| {
        if ended {
            return Err(is_over());
        }
        Ok(left.next().map_or_else(
            || {
                ended = true;
                Ask::Done(number(rows))
            },
            Ask::Run,
        ))
    })
}

fn number(rows: &[SqlRow]) -> u64 {
    rows.first().and_then(|row| Columns(row).int(0)).and_then(|count| count.try_into().ok()).unwrap_or(0)
}

/// Finds them without a lock and deletes each by its primary key, so that no gap between rows is locked.
#[cfg(feature = "mysql")]
fn one_by_one(most: u32) -> Exchange<u64> {
    use super::place::of_server;
    use crate::backend::mysql::protocol::idempotency::{DELETE, over};
    let mut found: Option<VecDeque<SqlRow>> = None;
    let (mut is_asked, mut deleted) = (false, 0);
    Exchange::new(move |rows| {
        if !is_asked {
            is_asked = true;
            return Ok(Ask::Run(of_server(over(most as usize))));
        }
        match found.get_or_insert_with(|| rows.iter().cloned().collect()).pop_front() {
            Some(row) => {
                deleted += 1;
                Ok(Ask::Run(SqlStatement::new(DELETE, row)))
            }
            None => Ok(Ask::Done(deleted)),
        }
    })
}
