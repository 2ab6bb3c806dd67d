//! What doctor looks at in every database server: the clock, the connections, the tables.

use crate::clock::wall_us;
use crate::error::Result;
use crate::snapshot::examination::AFTER_RESTART;
use crate::snapshot::{Check, Promise};

use super::Server;
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

/// What a crash of the server leaves.
pub(crate) fn after_restart(is_durable: bool) -> Promise {
    if is_durable {
        return Promise::yes(AFTER_RESTART, "commits are on the disk before they are answered");
    }
    Promise::no(AFTER_RESTART, "the last commits may be lost in a crash, and with them leases that are held")
}
