//! Whoever holds a contended mutex learns who comes next, so that its release need not ask.
//!
//! A release that knows the next one is a single transaction: `.lock` as it was, the next one's place in
//! line with its session, and then `.lock` with that session and a letter. It lets the right one in, however
//! old its knowledge is:
//!
//! - **Nobody is passed over.** The line is in the order of `CreateIndex`, and the key of a place names its
//!   acquisition and session. Whoever is not in a reading of the line that the servers have carried out came
//!   later than all who are; so the first of that reading who still stands there is the first of all. The
//!   check of its place says that it does; if it has left or its session is gone, nothing is carried out, and
//!   the release reads the line.
//! - **Nobody is let in twice.** The index of `.lock` is that of this lease alone, also among acquisitions
//!   that share a session: whatever ended it (another program, an operator, the end of the session) has
//!   written the key, or removed it.
//! - **Nobody is let in who does not know.** The letter comes with the lock, in one step and under the same
//!   session, and its index is the token. A waiter that gave up just then deletes its place under a check,
//!   which now fails; it looks, finds that it holds, and hands on. If its client no longer knows it at all,
//!   the reader of the letters gives the lock back; if the client is dead, its session ends.
//! - **How long it may rely on it.** A poll of a waiter first sees to it that its session lasts for a first
//!   lease from then on; a letter counts from the latest poll, never from when it was read. So it does not
//!   matter how late the letter is, nor whether the server that told it still leads: what a server tells has
//!   been carried out.
//!
//! Letters of one's own that are over are not removed by the same transaction: every change of an inbox ends
//! the request that waits for its letters, just when somebody else is to be woken. They go with a later one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::backend::consul::acquisition::{Acquisition, Place};
use crate::backend::consul::backend::Inner;
use crate::backend::consul::protocol::view::View;
use crate::backend::consul::transport::api::{MOST_OPERATIONS, Op};
use crate::backend::consul::transport::pace::Pace;
use crate::mode::Mode;
use crate::wakeups::unpoisoned;

/// Sections that are over before this are not worth a request.
const AFTER: Duration = Duration::from_millis(1);

/// How long the agent may hold a request back while nobody joins.
const WATCH: Duration = Duration::from_secs(30);

/// For how many locks at once; every one has a connection of its own, and agents count those.
const AT_ONCE: usize = 4;

/// How many letters that are over go together, with a request that is sent anyway.
const LETTERS_TOGETHER: usize = 4;

/// The keys of letters that were read and are over.
#[derive(Default)]
pub(super) struct OldLetters(Mutex<Vec<String>>);

impl OldLetters {
    pub(super) fn add(&self, letter: String) {
        unpoisoned(&self.0).push(letter);
    }

    /// Those to remove with the next request: none while there are few.
    pub(super) fn due(&self) -> DueLetters<'_> {
        let mut letters = unpoisoned(&self.0);
        let due = if letters.len() < LETTERS_TOGETHER { 0 } else { LETTERS_TOGETHER };
        DueLetters { keys: letters.drain(..due).collect(), of: self }
    }

    fn all(&self) -> Vec<String> {
        std::mem::take(&mut unpoisoned(&self.0))
    }
}

/// Letters that a request is to remove; unless it does, another will.
pub(super) struct DueLetters<'a> {
    keys: Vec<String>,
    of: &'a OldLetters,
}

impl DueLetters<'_> {
    pub(super) fn removal(&self) -> impl Iterator<Item = Op> {
        self.keys.iter().cloned().map(Op::Delete)
    }

    pub(super) fn are_removed(&mut self) {
        self.keys.clear();
    }
}

impl Drop for DueLetters<'_> {
    fn drop(&mut self) {
        unpoisoned(&self.of.0).append(&mut self.keys);
    }
}

/// How many look out.
#[derive(Default)]
pub(super) struct Lookouts(Arc<AtomicUsize>);

/// One that looks out, until it is dropped.
struct Lookout(Arc<AtomicUsize>);

impl Lookouts {
    fn begin(&self) -> Option<Lookout> {
        let one = Lookout(Arc::clone(&self.0));
        (self.0.fetch_add(1, Ordering::SeqCst) < AT_ONCE).then_some(one)
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Inner {
    /// Learns who stands behind the holder of a contended mutex that knows nobody, if it holds for a while.
    pub(super) fn look_out(self: &Arc<Self>, acquisition: &Arc<Acquisition>) {
        if acquisition.contender.mode != Mode::Mutex || !acquisition.state().next.is_empty() {
            return;
        }
        let Some(one) = self.lookouts.begin() else { return };
        let (inner, whose) = (Arc::downgrade(self), Arc::downgrade(acquisition));
        let task = self.runtime.spawn(async move {
            let _one = one;
            tokio::time::sleep(AFTER).await;
            watch_the_line(inner, whose).await;
        });
        if let Some(before) = acquisition.state().lookout.replace(task.abort_handle()) {
            before.abort();
        }
    }

    /// Removes letters that are over and that no other request took along.
    pub(super) fn clear_letters(self: &Arc<Self>) {
        let old = self.old_letters.all();
        for some in old.chunks(MOST_OPERATIONS) {
            let ops: Vec<_> = some.iter().cloned().map(Op::Delete).collect();
            let inner = Arc::clone(self);
            self.runtime.spawn(async move {
                // What cannot be removed now goes with its session.
                let _ = inner.api.transact(&ops).await;
            });
        }
    }
}

async fn watch_the_line(inner: Weak<Inner>, whose: Weak<Acquisition>) {
    let mut index = 0;
    loop {
        let (Some(strong), Some(acquisition)) = (inner.upgrade(), whose.upgrade()) else { return };
        let (api, contender) = (Arc::clone(&strong.api), Arc::clone(&acquisition.contender));
        let keys = strong.keys.clone();
        drop((strong, acquisition));
        let pace = Pace::start();
        // Without an answer the release looks by itself.
        let Ok((seen, entries)) = api.watch(&keys.line(&contender.name), true, index, WATCH).await else {
            return;
        };
        let next = View::read(&keys, &contender.name, entries).followers(contender.owner);
        if !next.is_empty() {
            let Some(acquisition) = whose.upgrade() else { return };
            let mut state = acquisition.state();
            if matches!(state.place, Place::Held(_)) && state.next.is_empty() {
                state.next = next;
            }
            return;
        }
        index = pace.next(index, seen).await;
    }
}
