//! Looking again and again: only locks that were written since the look before are read.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::port::{Call, Port};
use super::reading::{self, NAMES_PER_PAGE};
use super::records::Keys;
use super::scripts;
use crate::clock::Instant;
use crate::error::{ErrorKind, Result};
use crate::inspect::{LockView, Look, Query};
use crate::name::LockName;

/// What can be told of a lock without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// There is nothing of it.
    Nothing,
    /// Another number whenever it was granted or renewed; nobody waits and nobody shares it.
    Number(u64),
    /// It has to be read.
    Unknown,
}

impl Mark {
    fn of(text: &str) -> Self {
        match text {
            "-" => Self::Nothing,
            "" => Self::Unknown,
            text => {
                let mut hasher = DefaultHasher::new();
                text.hash(&mut hasher);
                Self::Number(hasher.finish())
            }
        }
    }
}

/// `unlisted` are names that may not stand in the index so far.
pub(crate) async fn look(
    port: &dyn Port,
    keys: &Keys,
    query: &Query,
    unlisted: Vec<LockName>,
    before: Option<Look>,
) -> Result<Look> {
    let started = Instant::now();
    let glance = match (&query.name, &query.foreign) {
        // Its script has the keys of several locks.
        (None, None) if port.joins_locks() => match glance(port, keys, query).await {
            Err(error) if error.kind() == ErrorKind::BackendUnavailable => return Err(error),
            // A server or a user that does not allow it: read as if there were no look before.
            glance => glance.ok(),
        },
        _ => None,
    };
    let Some((mut marks, pages)) = glance else {
        let mut snapshot = reading::read(port, keys, query, unlisted).await?;
        snapshot.round_trip = started.elapsed();
        return Ok(Look::of(snapshot));
    };
    for name in unlisted.into_iter().filter(|name| query.wants(name.as_str())) {
        marks.insert(name, Mark::Unknown);
    }
    marks.retain(|_, mark| *mark != Mark::Nothing);
    let before = before.filter(Look::is_recent);
    let seen: HashMap<&str, &LockView> = before
        .iter()
        .flat_map(|before| &before.snapshot.locks)
        .map(|lock| (lock.name.as_str(), lock))
        .collect();
    let unchanged = |name: &LockName, mark: Mark| {
        let known = before.as_ref()?.marks.get(name.as_str())?;
        (mark == Mark::Number(*known)).then(|| seen.get(name.as_str()).copied()).flatten()
    };

    let truncated = marks.len() > query.limit();
    let asked: Vec<(&LockName, Mark)> =
        marks.iter().take(query.limit()).map(|(name, mark)| (name, *mark)).collect();
    let to_read: Vec<LockName> = asked
        .iter()
        .filter(|(name, mark)| unchanged(name, *mark).is_none())
        .map(|(name, _)| (*name).clone())
        .collect();
    let mut read = HashMap::with_capacity(to_read.len());
    for page in to_read.chunks(reading::LOCKS_PER_PAGE) {
        read.extend(page.iter().zip(reading::show(port, keys, page).await?));
    }
    let (taken_at_ms, clients, mut audit) = reading::people(port, keys).await?;
    audit.retain(|entry| query.wants(&entry.name));
    let passed_ms = before.as_ref().map_or(0, |before| taken_at_ms.saturating_sub(before.at_ms));
    let lock = |name: &LockName, mark: Mark| match read.get(name) {
        Some(lock) => Some(lock.clone()),
        None => unchanged(name, mark).map(|lock| {
            let mut lock = lock.clone();
            lock.grow_older(passed_ms);
            lock
        }),
    };
    let locks = asked.iter().filter_map(|(name, mark)| lock(name, *mark));
    let locks = locks.filter(|lock| !lock.holders.is_empty() || !lock.waiters.is_empty()).collect();
    let snapshot = crate::inspect::Snapshot {
        backend: "redis".into(),
        taken_at_ms,
        round_trip: started.elapsed(),
        requests: u32::try_from(pages + to_read.len() + 1).unwrap_or(u32::MAX),
        locks,
        clients,
        audit,
        truncated,
    };
    let numbers = marks.iter().filter_map(|(name, mark)| match mark {
        Mark::Number(number) => Some((name.as_str().to_owned(), *number)),
        Mark::Nothing | Mark::Unknown => None,
    });
    Ok(Look {
        at_ms: taken_at_ms,
        whole_at: before.as_ref().map_or(started, |before| before.whole_at),
        version: None,
        marks: numbers.collect(),
        snapshot: Arc::new(snapshot),
    })
}

/// Returns the names that are asked for with their marks, and how many pages of the index were read.
async fn glance(port: &dyn Port, keys: &Keys, query: &Query) -> Result<(BTreeMap<LockName, Mark>, usize)> {
    let mut marks = BTreeMap::new();
    let mut first = 0;
    loop {
        let mut args = vec![first.to_string(), (first + NAMES_PER_PAGE - 1).to_string()];
        args.extend(keys.around_names());
        let call = Call { script: &scripts::GLANCE, keys: vec![keys.index()], args };
        let page = reading::one(port, call).await?.list()?;
        for pair in page.chunks_exact(2) {
            if let Some(name) = reading::listed(&pair[0].text()?, query) {
                marks.insert(name, Mark::of(&pair[1].text()?));
            }
        }
        if page.len() < 2 * NAMES_PER_PAGE {
            return Ok((marks, first / NAMES_PER_PAGE + 1));
        }
        first += NAMES_PER_PAGE;
    }
}
