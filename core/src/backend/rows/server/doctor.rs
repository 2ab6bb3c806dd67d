//! What doctor looks at in every database server: the clock, the connections, the tables.

use crate::clock::wall_us;
use crate::error::{ErrorKind, Result};
use crate::snapshot::examination::AFTER_RESTART;
use crate::snapshot::{Check, Promise};

use super::Server;
use super::failure::Failure;
use super::sessions::SessionStatements;
use super::store::Store;

/// A clock that differs by more shows wrong times, and may have stepped.
const MOST_SKEW_MS: i64 = 1_000;

/// What a client finds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Tables {
    #[default]
    Usable,
    /// None yet; the first client makes them, if it may.
    ToBeMade,
    /// Why a client cannot use them.
    Refused(String),
}

/// The server's clock minus this host's, in milliseconds, and how far that may be wrong.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Skew {
    pub ms: i64,
    pub error_ms: i64,
}

impl Skew {
    pub(crate) async fn read<S: Server>(store: &Store<S>) -> Result<Self> {
        let clock = [store.server().clock()];
        let sent = wall_us();
        let answers = store.ask(&clock, true).await?;
        let received = wall_us();
        let server = answers[0].first().map_or(0, |row| row.int(0));
        let ms = |us: u64| i64::try_from(us / 1000).unwrap_or(0);
        let on_the_way = received.saturating_sub(sent);
        Ok(Self { ms: server / 1000 - ms(sent + on_the_way / 2), error_ms: ms(on_the_way) / 2 + 1 })
    }
}

pub(crate) fn clock(skew: Skew) -> Check {
    let Skew { ms, error_ms } = skew;
    if ms.abs() <= MOST_SKEW_MS + error_ms {
        return Check::ok(
            "clock",
            "The clocks agree",
            format!("the server's differs by {ms} ms (± {error_ms} ms)"),
        );
    }
    Check::warning(
        "clock",
        "The clocks do not agree",
        format!("the server's differs from this host's by {ms} ms (± {error_ms} ms)"),
    )
    .means(
        "Leases end by the server's clock. If that clock steps forward, a lease ends before its holder knows; fencing \
         tokens then tell the holders apart.",
    )
    .fix("Run a time service on both hosts, and let it correct the clock slowly.")
}

/// Whether the connections of a client are its own, or why not: a pooler may give them to other clients between transactions.
pub(crate) async fn pooler<S: Server>(
    store: &Store<S>,
    statements: &dyn SessionStatements,
) -> Result<Option<String>> {
    let connection = store.server().open().await.map_err(Failure::into_error)?;
    match store.number_of(&connection, statements).await.map_err(Failure::into_error) {
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::BackendRejected => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

pub(crate) fn own_connections(pooler: Option<&str>, in_session: bool) -> Check {
    let title = "A pooler in between shares connections";
    match pooler {
        None => Check::ok(
            "pooler",
            "Connections are the client's own",
            "each was one connection of the server over several transactions",
        ),
        Some(why) if in_session => Check::problem("pooler", title, why.to_owned())
            .means("No lock can be acquired in session mode.")
            .fix("Connect to the server itself, or leave mode=session out."),
        Some(_) => Check::notice(
            "pooler",
            title,
            "the server saw the transactions of one connection on several, or those of two on one",
        )
        .means("Locks work. Session mode is refused."),
    }
}

/// `most` is what the server takes; 0 if it does not say. `each` is how many a client uses.
pub(crate) fn connections(in_use: i64, most: i64, each: &str, fix: &'static str) -> Check {
    let detail = format!("{in_use} of {most} are in use; a client uses {each}");
    if most > 0 && most - in_use < most / 10 {
        return Check::warning("connections", "Few connections are left", detail)
            .means("A client that cannot connect cannot renew, and loses its leases.")
            .fix(fix);
    }
    Check::ok("connections", "There are connections left", detail)
}

/// `command` prints the script; `who_makes` says who may make them.
pub(crate) fn tables(tables: &Tables, command: &str, who_makes: &'static str) -> Check {
    match tables {
        Tables::Usable => {
            Check::ok("tables", "The tables are there and may be used", "version, columns and rights fit")
        }
        Tables::ToBeMade => Check::ok("tables", "The tables are made by the first client", who_makes),
        Tables::Refused(why) => Check::problem("tables", "The tables cannot be used", why.clone())
            .means("No lock can be acquired.")
            .fix(format!("Let the owner of the database run what `{command}` prints.")),
    }
}

/// `scans` are statements that the server would carry out without an index.
pub(crate) fn primary_key(tables: &Tables, scans: &[String], command: &str) -> Check {
    match (tables, scans.first()) {
        (_, Some(first)) => Check::warning(
            "primary-key",
            "Rows are not found by the primary key",
            format!("{} of the statements, such as: {first}", scans.len()),
        )
        .means("A step waits for rows of other locks, and clients meet in deadlocks.")
        .fix(format!("Compare the tables with what `{command}` prints.")),
        (Tables::Usable, None) => {
            Check::ok("primary-key", "Rows are found by the primary key", "as EXPLAIN tells")
        }
        (_, None) => Check::ok("primary-key", "Rows are found by the primary key", "there are no tables yet"),
    }
}

/// What a crash of the server leaves.
pub(crate) fn after_restart(is_durable: bool) -> Promise {
    if is_durable {
        return Promise::yes(AFTER_RESTART, "commits are on the disk before they are answered");
    }
    Promise::no(AFTER_RESTART, "the last commits may be lost in a crash, and with them leases that are held")
}
