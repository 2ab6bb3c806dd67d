//! Opening a store: its tables are found and checked, or made.

use std::sync::atomic::Ordering;

use crate::backend::Purpose;
use crate::backend::rows::server::Session as _;
use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::link::Link;
use crate::backend::rows::server::value::Statement;
use crate::error::{Error, ErrorKind, Result};

use super::protocol::grants::{MysqlRole, grants};
use super::protocol::reading::{alone, no_longer_alone, tables, version};
use super::protocol::schema::{TABLES, VERSION, create as creation, script};
use super::server::Mysql;

/// Returns the SQL script that creates the tables in the current database, for operators who do not let programs create
/// them. Run again it changes nothing.
#[must_use]
pub fn mysql_schema() -> String {
    script()
}

/// Returns the SQL statements that give a user, `NAME` or `NAME@HOST`, the rights that it needs on the tables in the
/// current database, and no more. Without a host the user is `NAME@%`.
///
/// Errors: `invalid_config` if name or host is empty, too long, or has control characters or backslashes.
pub fn mysql_grants(kind: MysqlRole, user: &str) -> Result<String> {
    grants(kind, user).map_err(|rule| Error::new(ErrorKind::InvalidConfig, rule))
}

/// The tables that were found, as far as this user may see them.
struct Found {
    present: Vec<String>,
    /// What the row says that is written last; `None` while the tables are being made.
    version: Option<i64>,
}

/// Checks the tables, and makes them if there are none and the purpose is to take locks. Returns whether there are
/// tables: a client that only inspects a database without them sees an empty store.
///
/// Errors: `backend_rejected` if they may not be made or used, are missing in part, or are of another version;
/// `name_conflict` if a table of another program has one of their names.
pub(crate) async fn prepare(link: &Link<Mysql>, purpose: Purpose) -> Result<bool> {
    let mut found = look(link).await?;
    if found.version.is_none() {
        if purpose != Purpose::Lock {
            return if found.present.is_empty() { Ok(false) } else { Err(incomplete(link, &found)) };
        }
        create(link).await?;
        found = look(link).await?;
    }
    check(link, &found, purpose).await?;
    if purpose == Purpose::Lock && link.server.opener.config.is_strict {
        keeps_leases(link).await?;
    }
    Ok(true)
}

/// Errors: `backend_rejected` if a crash of the server may forget a lease, which `guarantee=strict` excludes.
async fn keeps_leases(link: &Link<Mysql>) -> Result<()> {
    const FLUSH: &str = "innodb_flush_log_at_trx_commit";
    let statement = Statement::new(format!("SHOW GLOBAL VARIABLES LIKE '{FLUSH}'"), vec![]);
    let answers = link.ask(&[statement], false).await.map_err(Failure::into_error)?;
    let flush = answers[0].first().map_or_else(String::new, |row| row.text(1));
    if flush == "1" {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::BackendRejected,
        format!(
            "guarantee=strict: {FLUSH} is {flush:?} on this server, so a crash may forget a lease that is held; set it to 1, \
             or leave guarantee=strict out"
        ),
    ))
}

async fn look(link: &Link<Mysql>) -> Result<Found> {
    let answers = link.ask(&[tables()], false).await.map_err(Failure::into_error)?;
    let present: Vec<_> = answers[0].iter().map(|row| row.text(0)).collect();
    let [.., schema] = TABLES;
    let mut found = Found { present, version: None };
    if found.present.iter().any(|table| table == schema.name) {
        found.version = match link.ask(&[version()], false).await {
            Ok(answers) => answers[0].first().map(|row| {
                link.server.opener.returns.store(row.int(1) == 1, Ordering::Relaxed);
                row.int(0)
            }),
            Err(failure) if failure.code() == "1054" => return Err(foreign(link, schema.name)),
            // It may see the table, and not this column.
            Err(failure) if is_denied(&failure) => return Err(denied(link, schema.name, Purpose::Look)),
            Err(failure) => return Err(failure.into_error()),
        };
    }
    Ok(found)
}

fn is_denied(failure: &Failure) -> bool {
    ["1142", "1143", "1044"].contains(&failure.code())
}

fn database(link: &Link<Mysql>) -> &str {
    &link.server.opener.config.login.database
}

/// Makes what is missing. No statement changes a table that is there; one of another program is found first, so that
/// nothing is made beside it.
async fn create(link: &Link<Mysql>) -> Result<()> {
    let lent = link.lend().await.map_err(Failure::into_error)?;
    let session = &lent.session;
    let made = async {
        // The request as a whole has a time limit, which is shorter than this.
        session.ask(&[alone(3_600)], false).await?;
        let present = session.ask(&[tables()], false).await?.swap_remove(0);
        for table in present {
            let table = table.text(0);
            if let Some(ours) = TABLES.iter().find(|ours| ours.name == table) {
                match session.ask(&[Statement::new(ours.probe("SELECT"), vec![])], false).await {
                    Err(failure) if failure.code() == "1054" => return Err(foreign(link, &table).into()),
                    other => drop(other?),
                }
            }
        }
        for sql in creation() {
            session.ask(&[Statement::new(sql, vec![])], true).await?;
        }
        Ok(())
    }
    .await;
    let freed = session.ask(&[no_longer_alone()], false).await.map(drop);
    lent.end(made.and(freed)).await.map_err(|failure| {
        if !is_denied(&failure) {
            return failure.into_error();
        }
        Error::new(
            ErrorKind::BackendRejected,
            format!(
                "the database {:?} has no tables of Polylatch that this user may use, and it may not create them; grant \
                 CREATE, SELECT, INSERT, UPDATE and DELETE on the database, or let its owner run what `{COMMAND}` \
                 prints, and `{COMMAND} --clients USER`",
                database(link)
            ),
        )
    })
}

/// The command that prints the script.
const COMMAND: &str = "polylatch schema mysql";

fn foreign(link: &Link<Mysql>, table: &str) -> Error {
    Error::new(
        ErrorKind::NameConflict,
        format!(
            "the database {:?} has a table {table} that is not Polylatch's; it was left as it is; name another database",
            database(link)
        ),
    )
}

fn incomplete(link: &Link<Mysql>, found: &Found) -> Error {
    let missing =
        TABLES.iter().map(|table| table.name).find(|table| !found.present.iter().any(|name| name == table));
    Error::new(
        ErrorKind::BackendRejected,
        format!(
            "the database {:?} has no table {}; let its owner run what `{COMMAND}` prints, which adds what is missing",
            database(link),
            missing.unwrap_or("polylatch_schema with its row")
        ),
    )
}

fn denied(link: &Link<Mysql>, table: &str, purpose: Purpose) -> Error {
    let role = if purpose == Purpose::Look { "--inspectors" } else { "--clients" };
    Error::new(
        ErrorKind::BackendRejected,
        format!(
            "this user may not use {table} in the database {:?} as it has to; grant it what `{COMMAND} {role} USER` \
             prints",
            database(link)
        ),
    )
}

async fn check(link: &Link<Mysql>, found: &Found, purpose: Purpose) -> Result<()> {
    let rejected = |message: String| Err(Error::new(ErrorKind::BackendRejected, message));
    match found.version {
        Some(VERSION) => {}
        Some(version) if version > VERSION => {
            return rejected(format!(
                "the tables in the database {:?} are of version {version}, and this version of Polylatch reads \
                 {VERSION}; use a newer Polylatch, or another database",
                database(link)
            ));
        }
        Some(version) => {
            return rejected(format!(
                "the tables in the database {:?} are of version {version}, which no release of Polylatch has written; \
                 use another database",
                database(link)
            ));
        }
        None => return Err(incomplete(link, found)),
    }
    for table in &TABLES {
        let rights = if purpose == Purpose::Look { &["SELECT"][..] } else { table.client };
        for right in rights {
            match link.ask(&[Statement::new(table.probe(right), vec![])], false).await {
                Ok(_) => {}
                Err(failure) if failure.code() == "1146" => {
                    let present = found.present.iter().filter(|name| *name != table.name).cloned().collect();
                    return Err(incomplete(link, &Found { present, version: found.version }));
                }
                Err(failure) if is_denied(&failure) => return Err(denied(link, table.name, purpose)),
                Err(failure) if failure.code() == "1054" => return Err(foreign(link, table.name)),
                Err(failure) => return Err(failure.into_error()),
            }
        }
    }
    Ok(())
}
