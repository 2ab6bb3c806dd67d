//! Sessions and leases that the store ends by force: no holder can know of that before it is told.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use polylatch::blocking::Polylatch;
use polylatch::inspect::{HolderView, Query};

use crate::boot_nanos;
use crate::history::History;
use crate::load::Hurt;
use crate::record::Verdict;

/// What a section says whose session or key the store does not have any more.
const TOLD: [&str; 2] = ["session_ended", "superseded"];

/// The end of what one process held.
#[derive(Debug, Clone, Copy)]
pub struct ForcedEnd {
    pub pid: u32,
    /// The moments before it was asked for and after it was confirmed.
    pub before: u64,
    pub after: u64,
}

/// Ends what one of the holders hangs on, by the store's own means, and notes it.
pub fn end_a_session<'store>(
    looks: &'store Polylatch,
    ends: &'store RefCell<Vec<ForcedEnd>>,
    end: impl Fn(&HolderView) + 'store,
) -> Hurt<'store> {
    Box::new(move |random| {
        // A store that is hurt may not answer.
        let Ok(seen) = looks.list(&Query::default()) else { return ("no look into the store".into(), None) };
        let pid_of = |holder: &HolderView| {
            let client = seen.clients.iter().find(|client| Some(&client.id) == holder.client.as_ref());
            client.map(|client| client.pid)
        };
        let holders = seen.locks.iter().flat_map(|lock| &lock.holders);
        let holders: Vec<_> = holders.filter_map(|holder| Some((holder, pid_of(holder)?))).collect();
        if holders.is_empty() {
            return ("no holder".into(), None);
        }
        let (holder, pid) = holders[random.below(holders.len() as u64) as usize];
        let before = boot_nanos();
        end(holder);
        ends.borrow_mut().push(ForcedEnd { pid, before, after: boot_nanos() });
        (format!("end by force: of process {pid}"), None)
    })
}

/// How long an answer may have been on its way that grants what has been ended meanwhile.
const ON_ITS_WAY: u64 = 300_000_000;

/// Ends the sections that hung on what was ended when that was asked for, unless they ended well. Each has to be told of it
/// within the length of a lease. What was lost in that way without such an end stays unexplained. Returns how many were told.
pub fn expect_forced_ends(history: &mut History, ends: &[ForcedEnd], lease: Duration) -> usize {
    let lease = lease.as_nanos() as u64;
    let writers: HashMap<_, _> =
        history.writes.iter().map(|write| ((write.lock, write.token), write.pid)).collect();
    let is_told = |reason: &str| TOLD.contains(&reason);
    let mut count = 0;
    for section in &mut history.sections {
        if section.released.as_ref().is_some_and(|(_, result)| result == "ok") {
            continue;
        }
        let left = section.left.as_ref();
        let on_leaving = left.filter(|left| matches!(&left.verdict, Verdict::Lost(why) if is_told(why)));
        let at_release = section.released.as_ref().filter(|(_, result)| is_told(result));
        let told = on_leaving.map(|left| left.before).or(at_release.map(|(at, _)| *at));
        let pid = writers.get(&(section.lock, section.token));
        let hit = ends.iter().find(|end| {
            Some(&end.pid) == pid
                && section.asked <= end.after
                && section.entered <= end.after + ON_ITS_WAY
                && end.before <= told.unwrap_or_else(|| section.end())
                && told.is_none_or(|told| told <= end.after + lease)
        });
        let Some(hit) = hit else { continue };
        // One that was granted before and entered behind it was over on arrival.
        if section.entered >= hit.before {
            section.valid_at_entry = section.entered;
        }
        section.killed = Some(section.killed.unwrap_or(hit.before).min(hit.before));
        if told.is_none() {
            continue;
        }
        count += 1;
        if let Some(left) = section.left.as_mut().filter(|left| left.verdict != Verdict::Held) {
            left.verdict = Verdict::Lost("expired".into());
            left.valid_until = left.before;
        }
        if let Some((_, result)) = &mut section.released {
            *result = "expired".into();
        }
    }
    count
}
