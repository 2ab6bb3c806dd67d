//! Following a server: only locks that were written since the snapshot before are read.

use std::collections::{BTreeMap, HashMap};

use crate::backend::redis::inspect::snapshot::{self, NAMES_PER_PAGE, People};
use crate::backend::redis::protocol::call::Call;
use crate::backend::redis::protocol::keys::Keys;
use crate::backend::redis::protocol::scripts;
use crate::backend::redis::transport::port::Port;
use crate::clock::Instant;
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{Followed, LockView, Query, WHOLE_EVERY};

/// What can be told of a lock without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// There is nothing of it.
    Nothing,
    /// A mutex without waiters, which is not shared. Another one whenever it was granted or renewed.
    Alone { renewals: u32, fence: FencingToken },
    /// It has to be read.
    Unknown,
}

impl Mark {
    fn of(text: &str) -> Self {
        let alone = || {
            let (renewals, fence) = text.split_once('|')?;
            let fence = FencingToken::new(fence.parse().ok()?);
            Some(Self::Alone { renewals: renewals.parse().ok()?, fence })
        };
        if text == "-" { Self::Nothing } else { alone().unwrap_or(Self::Unknown) }
    }

    /// Says whether a lock that was read like this is so still. What was read decides, not the mark from
    /// before it was read: another client may have held it in between, and be gone by now.
    fn is_of(self, lock: &LockView) -> bool {
        match (self, lock.holders.as_slice()) {
            (Self::Alone { renewals, fence }, [holder]) => {
                lock.waiters.is_empty()
                    && holder.renewals == Some(renewals)
                    && holder.fencing_token == Some(fence)
            }
            _ => false,
        }
    }
}

/// The index of names, and what it tells of each.
struct Probe {
    /// When it began, by the server's clock.
    at_ms: u64,
    marks: BTreeMap<LockName, Mark>,
    /// How many pages it took.
    pages: usize,
}

/// What a snapshot leaves for the next.
struct Kept {
    /// When it was taken, in milliseconds on the server's clock, by which leases end.
    at_ms: u64,
    /// When all of it was last read.
    whole_at: Instant,
}

/// `unlisted` are names that may not stand in the index so far.
pub(crate) async fn follow(
    port: &dyn Port,
    keys: &Keys,
    query: &Query,
    unlisted: Vec<LockName>,
    before: Option<Followed>,
) -> Result<Followed> {
    let started = Instant::now();
    let probe = match (&query.name, &query.foreign) {
        // Its script has the keys of several locks.
        (None, None) if port.joins_locks() => match probe(port, keys, query).await {
            Err(error) if error.kind() == ErrorKind::BackendUnavailable => return Err(error),
            // A server or a user that does not allow it: read as if there were no look before.
            probe => probe.ok(),
        },
        _ => None,
    };
    let Some(Probe { at_ms, mut marks, pages }) = probe else {
        let mut snapshot = snapshot::read(port, keys, query, unlisted).await?;
        snapshot.round_trip = started.elapsed();
        return Ok(Followed::new(snapshot));
    };
    for name in unlisted.into_iter().filter(|name| query.wants(name.as_str())) {
        marks.insert(name, Mark::Unknown);
    }
    let before = before.as_ref().and_then(|before| Some((&before.snapshot, before.kept::<Kept>()?)));
    let before = before.filter(|(_, kept)| kept.whole_at.elapsed() < WHOLE_EVERY);
    let seen = || before.iter().flat_map(|(snapshot, _)| &snapshot.locks);
    if pages > 1 {
        // What goes from one page moves others up to it that were to be on the next: they seem to be gone.
        for name in seen().filter_map(|lock| LockName::new(&lock.name).ok()) {
            marks.entry(name).or_insert(Mark::Unknown);
        }
    }
    marks.retain(|_, mark| *mark != Mark::Nothing);
    let seen: HashMap<&str, &LockView> = seen().map(|lock| (lock.name.as_str(), lock)).collect();
    let passed_ms = before.map_or(0, |(_, kept)| at_ms.saturating_sub(kept.at_ms));
    let unchanged = |name: &LockName, mark: Mark| {
        let mut lock = seen.get(name.as_str()).filter(|lock| mark.is_of(lock)).map(|lock| (*lock).clone())?;
        // One that should have ended was extended without a trace, as it is when the server's memory is full.
        lock.grow_older(passed_ms).then_some(lock)
    };

    let truncated = marks.len() > query.limit();
    let asked: Vec<(LockName, Option<LockView>)> = marks
        .into_iter()
        .take(query.limit())
        .map(|(name, mark)| {
            let lock = unchanged(&name, mark);
            (name, lock)
        })
        .collect();
    let to_read: Vec<LockName> =
        asked.iter().filter(|(_, lock)| lock.is_none()).map(|(name, _)| name.clone()).collect();
    let mut read = Vec::with_capacity(to_read.len());
    for page in to_read.chunks(snapshot::LOCKS_PER_PAGE) {
        read.extend(snapshot::show(port, keys, page).await?);
    }
    let People { taken_at_ms, clients, mut audit, trouble, requests, .. } =
        snapshot::people(port, keys).await?;
    audit.retain(|entry| query.wants(&entry.name));
    let mut read = read.into_iter();
    let locks = asked.into_iter().filter_map(|(_, lock)| lock.or_else(|| read.next()));
    let locks = locks.filter(LockView::is_in_use).collect();
    let snapshot = crate::snapshot::Snapshot {
        backend: "redis".into(),
        taken_at_ms,
        round_trip: started.elapsed(),
        requests: u32::try_from(pages + to_read.len() + requests).unwrap_or(u32::MAX),
        locks,
        clients,
        audit,
        truncated,
        troubles: Vec::new(),
    };
    let whole_at = before.map_or(started, |(_, kept)| kept.whole_at);
    Ok(Followed::keeping(snapshot.with_trouble(trouble), Kept { at_ms, whole_at }))
}

/// Probes at the names that are asked for.
async fn probe(port: &dyn Port, keys: &Keys, query: &Query) -> Result<Probe> {
    let (mut at_ms, mut marks, mut pages) = (0, Vec::new(), 0);
    loop {
        let first = pages * NAMES_PER_PAGE;
        let mut args = vec![first.to_string(), (first + NAMES_PER_PAGE - 1).to_string()];
        args.extend(keys.around_names());
        let call = Call { script: &scripts::PROBE, keys: vec![keys.index()], args };
        let answer = snapshot::one(port, call).await?.list()?;
        let Some((now_ms, page)) = answer.split_first() else {
            let text = "the script probe answered nothing; please report this";
            return Err(Error::new(ErrorKind::Internal, text));
        };
        if pages == 0 {
            at_ms = now_ms.uint()?;
        }
        for pair in page.chunks_exact(2) {
            if let Some(name) = snapshot::listed(keys, &pair[0].text()?, query) {
                marks.push((name, Mark::of(&pair[1].text()?)));
            }
        }
        pages += 1;
        if page.len() < 2 * NAMES_PER_PAGE {
            // At once: they come in order, so that hardly any is compared with more than its neighbour.
            return Ok(Probe { at_ms, marks: marks.into_iter().collect(), pages });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::redis::protocol::call::Data;

    /// What a lock shows whose first grant was renewed twice, and so many wait for.
    fn seen(waiters: usize) -> LockView {
        let bytes = |text: &str| Data::Bytes(text.into());
        let owner = "a".repeat(32);
        let value = format!("{owner}|pl1|00000002|7|1000|30000|30000|host:1:00000000|");
        let line = (0..waiters).flat_map(|at| {
            [bytes(&format!("{owner}|host:2:00000000|30000|30000|1|m|")), bytes(&at.to_string())]
        });
        let answer = vec![
            bytes("2000000"),
            bytes("string"),
            bytes(&value),
            Data::Int(20_000),
            Data::List(line.collect()),
            Data::List(vec![bytes("9000"); waiters]),
            Data::List(vec![]),
            Data::List(vec![]),
            Data::List(vec![]),
            bytes(""),
        ];
        snapshot::view(&LockName::new("a").unwrap(), Data::List(answer)).unwrap()
    }

    #[test]
    fn only_the_same_grant_after_the_same_renewals_is_not_read_again() {
        assert!(Mark::of("00000002|7").is_of(&seen(0)));
        for other in ["00000003|7", "00000002|8", "", "-", "2|", "|7"] {
            assert!(!Mark::of(other).is_of(&seen(0)), "{other:?}");
        }
    }

    #[test]
    fn a_waiter_who_came_while_it_was_read_and_went_is_not_shown_on() {
        assert_eq!(seen(1).waiters.len(), 1);
        assert!(!Mark::of("00000002|7").is_of(&seen(1)));
    }
}
