//! The steps of a store in SQL: what a verb does inside one write transaction.
//!
//! The caller holds the write lock, has checked the boot, and read the time after it got the lock. The decisions
//! are those of [`crate::backend::rows`].

use rusqlite::{Connection, params};

use super::tidy::SweepMark;
use crate::backend::rows::{Now, Push, ceil_ms, signed};
use crate::backend::{RenewItem, Renewal};

pub(crate) type Sql<T> = rusqlite::Result<T>;

/// The store inside one transaction.
pub(crate) struct Store<'c> {
    pub conn: &'c Connection,
    pub now: Now,
    /// The largest number given out; the caller writes it back before it commits.
    pub counter: i64,
    pub pushes: Vec<Push>,
    pub sweep_mark: &'c mut SweepMark,
    /// The latest step could not drop all silent waiters from the front.
    pub unswept: bool,
}

impl Store<'_> {
    /// Extends a lease that is still exactly (owner, fence). Never creates one.
    pub(crate) fn renew(&mut self, item: &RenewItem) -> Sql<Renewal> {
        let owner = item.contender.owner.to_hex();
        let fence = signed(item.fence.get());
        // max() never shortens: a renewal that arrives late must not undo a later one.
        let extended = self.run(
            // The length on record is never less than what is left.
            "UPDATE lease SET ends_ms = max(ends_ms, ?4), renewals = ?5, renewed_ms = ?6, \
             first_ms = iif(?5 = 0 AND lease_ms <> ?7, max(?7, ends_ms - ?8, ?4 - ?8), first_ms), \
             lease_ms = iif(lease_ms <> ?7, max(?7, ends_ms - ?8, ?4 - ?8), lease_ms) \
             WHERE name = ?1 AND owner = ?2 AND fence = ?3 AND ends_ms > ?6",
            params![
                item.contender.name.as_str(),
                owner,
                fence,
                self.now.begun_ms + ceil_ms(item.lease),
                item.renewals,
                self.now.clock_ms,
                ceil_ms(item.length),
                self.now.begun_ms
            ],
        )?;
        if extended > 0 {
            return Ok(Renewal::Extended);
        }
        // Told before the answer, so that the holder learns "broken" and not just "not yours".
        let broken = self
            .conn
            .prepare_cached("SELECT 1 FROM audit WHERE fence = ?1 AND owner = ?2")?
            .exists(params![fence, owner])?;
        if broken {
            self.pushes.push(Push::Revoked { owner: item.contender.owner, fence: item.fence.get() });
        }
        Ok(Renewal::NotYours)
    }

    pub(crate) fn run(&self, sql: &str, params: impl rusqlite::Params) -> Sql<usize> {
        self.conn.prepare_cached(sql)?.execute(params)
    }
}
