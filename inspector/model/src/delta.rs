//! What changed between two snapshots, small and exact: most locks differ in nothing but their ages, and
//! those by the time that passed.

use polylatch::inspect::{AuditEntry, ClientView, LockView, Snapshot, Trouble};
use serde::{Deserialize, Serialize};

/// From one snapshot to the next.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delta {
    taken_at_ms: u64,
    requests: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    locks: Changes<LockView>,
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    clients: Changes<ClientView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    troubles: Vec<Trouble>,
    /// All of it, if it has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audit: Option<Vec<AuditEntry>>,
}

/// Changes of a list that is sorted by key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes<T> {
    /// Places, in the old list, of what is gone.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    gone: Vec<usize>,
    /// What is new or has changed.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    set: Vec<T>,
    /// Places, in the old list, and by how much each age is off from what the time that passed lets expect.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    off: Vec<(usize, Vec<i64>)>,
}

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self { gone: Vec::new(), set: Vec::new(), off: Vec::new() }
    }
}

impl<T> Changes<T> {
    fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.set.is_empty() && self.off.is_empty()
    }
}

impl Delta {
    /// Returns what makes the old snapshot the new one; `None` if that would not be exact.
    pub(super) fn between(old: &Snapshot, new: &Snapshot) -> Option<Self> {
        if old.backend != new.backend {
            return None;
        }
        let passed_ms = new.taken_at_ms.checked_sub(old.taken_at_ms)?;
        Some(Self {
            taken_at_ms: new.taken_at_ms,
            requests: new.requests,
            truncated: new.truncated,
            troubles: new.troubles.clone(),
            locks: changes(&old.locks, &new.locks, passed_ms)?,
            clients: changes(&old.clients, &new.clients, passed_ms)?,
            audit: (old.audit != new.audit).then(|| new.audit.clone()),
        })
    }

    /// Returns the new snapshot, but for its round trip; `None` if this is not a change of the old one.
    pub(super) fn apply(self, old: &Snapshot) -> Option<Snapshot> {
        let passed_ms = self.taken_at_ms.checked_sub(old.taken_at_ms)?;
        let mut new = Snapshot::new(old.backend.clone(), self.taken_at_ms);
        new.requests = self.requests;
        new.locks = self.locks.apply(&old.locks, passed_ms)?;
        new.clients = self.clients.apply(&old.clients, passed_ms)?;
        new.audit = self.audit.unwrap_or_else(|| old.audit.clone());
        new.truncated = self.truncated;
        new.troubles = self.troubles;
        Some(new)
    }
}

/// Something with a key and ages.
trait Ageing: Clone + PartialEq {
    type Key: Ord + ?Sized;

    fn key(&self) -> &Self::Key;

    /// Every age that is known, and whether it grows with time; always in the same order.
    fn ages(&mut self, visit: &mut dyn FnMut(&mut u64, bool));

    /// The same after a time in which nothing happened.
    fn expected(&self, passed_ms: u64) -> Self {
        let mut later = self.clone();
        later.ages(&mut |age, grows| {
            *age = if grows { age.saturating_add(passed_ms) } else { age.saturating_sub(passed_ms) };
        });
        later
    }
}

impl Ageing for LockView {
    type Key = str;

    fn key(&self) -> &str {
        &self.name
    }

    fn ages(&mut self, visit: &mut dyn FnMut(&mut u64, bool)) {
        Self::ages(self, visit);
    }
}

impl Ageing for ClientView {
    type Key = polylatch::ClientId;

    fn key(&self) -> &polylatch::ClientId {
        &self.id
    }

    fn ages(&mut self, visit: &mut dyn FnMut(&mut u64, bool)) {
        Self::ages(self, visit);
    }
}

/// Compares two lists that are sorted by key, each key once; `None` if one of them is not.
fn changes<T: Ageing>(old: &[T], new: &[T], passed_ms: u64) -> Option<Changes<T>> {
    let sorted = |list: &[T]| list.windows(2).all(|pair| pair[0].key() < pair[1].key());
    if !sorted(old) || !sorted(new) {
        return None;
    }
    let mut found = Changes::default();
    let mut at = 0;
    for item in new {
        while old.get(at).is_some_and(|before| before.key() < item.key()) {
            found.gone.push(at);
            at += 1;
        }
        let Some(before) = old.get(at).filter(|before| before.key() == item.key()) else {
            found.set.push(item.clone());
            continue;
        };
        let mut expected = before.expected(passed_ms);
        if expected != *item {
            match off_by(&mut expected, item) {
                Some(off) => found.off.push((at, off)),
                None => found.set.push(item.clone()),
            }
        }
        at += 1;
    }
    found.gone.extend(at..old.len());
    Some(found)
}

/// Returns by how much the ages are off, if nothing else differs.
fn off_by<T: Ageing>(expected: &mut T, item: &T) -> Option<Vec<i64>> {
    let mut ages = Vec::new();
    item.clone().ages(&mut |age, _| ages.push(*age));
    let (mut off, mut number) = (Vec::with_capacity(ages.len()), 0);
    expected.ages(&mut |age, _| {
        if let Some(real) = ages.get(number) {
            off.push((*real as i64).wrapping_sub(*age as i64));
            *age = *real;
        }
        number += 1;
    });
    (number == ages.len() && *expected == *item).then_some(off)
}

impl<T: Ageing> Changes<T> {
    fn apply(self, old: &[T], passed_ms: u64) -> Option<Vec<T>> {
        let mut gone = self.gone.into_iter().peekable();
        let mut off = self.off.into_iter().peekable();
        let mut set = self.set.into_iter().peekable();
        let mut new = Vec::with_capacity(old.len());
        for (at, before) in old.iter().enumerate() {
            while let Some(item) = set.next_if(|item| item.key() < before.key()) {
                new.push(item);
            }
            if gone.next_if_eq(&at).is_some() {
                continue;
            }
            if let Some(item) = set.next_if(|item| item.key() == before.key()) {
                new.push(item);
                continue;
            }
            let mut item = before.expected(passed_ms);
            if let Some((_, off)) = off.next_if(|(place, _)| *place == at) {
                let mut off = off.into_iter();
                item.ages(&mut |age, _| {
                    *age = (*age as i64).wrapping_add(off.next().unwrap_or(0)) as u64;
                });
            }
            new.push(item);
        }
        new.extend(set);
        // Places that the old list does not have belong to another list.
        (gone.peek().is_none() && off.peek().is_none()).then_some(new)
    }
}
