//! Reading all nodes for people, and ending a lease on all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::redis::inspect::follow;
use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::protocol::records::LockValue;
use crate::backend::redlock::backend::Inner;
use crate::backend::redlock::protocol::scripts;
use crate::backend::{AUDIT_LENGTH, Reply};
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::policy::quorum::Quorum;
use crate::snapshot::{
    AuditEntry, BreakOutcome, BreakRequest, ClientView, Followed, HolderView, LockView, Query, Snapshot,
    Trouble, TroubleKind, VoteView, WaiterView,
};
use crate::token::{ClientId, OwnerToken};

/// How long a waiter may need to be queued on all nodes.
const QUEUED_WITHIN_MS: u64 = 1_000;

/// What a snapshot leaves for the next: that of each node; `None` where one did not answer.
type Kept = Vec<Option<Followed>>;

impl Inner {
    /// Reads every node that answers, and puts together what they say. Of each node only what was written
    /// there since the look before is read again.
    ///
    /// Errors: only if none answers; fewer than a majority still show what stands there.
    pub(crate) async fn follow(self: Arc<Self>, query: Query, before: Option<Followed>) -> Result<Followed> {
        let started = Instant::now();
        let needed = self.suspects_are_needed();
        let mut seen = before.and_then(|before| before.kept::<Kept>().cloned()).unwrap_or_default();
        seen.resize(self.nodes.len(), None);
        let mut readings: Kept = self.nodes.iter().map(|_| None).collect();
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| node.is_usable(needed));
        let requests = nodes.map(|(at, node)| {
            let (inner, node, query) = (Arc::clone(&self), Arc::clone(node), query.clone());
            let before = seen[at].take();
            let read: Reply<Followed> = Box::pin(async move {
                let port = node.port();
                follow::follow(&*port, &inner.keys, &query, Vec::new(), before).await
            });
            (at, read)
        });
        // A reading of thousands of locks takes longer than a vote: as long as somebody answers.
        let mut pending: Vec<_> = requests.collect();
        let mut errors = Vec::new();
        let deadline = Instant::now() + self.timeout;
        while !pending.is_empty() && Instant::now() < deadline {
            let mut answers = self.ask(std::mem::take(&mut pending));
            while let Some((at, answer)) = answers.next().await {
                match answer {
                    Ok(reading) => readings[at] = Some(reading),
                    Err(error) => errors.push((at, error)),
                }
            }
            let read = readings.iter().flatten().count();
            if read >= self.quorum.needed() {
                break;
            }
            pending = answers.into_pending();
        }
        if readings.iter().all(Option::is_none) {
            return Err(self.unreachable(&errors));
        }
        let places: Vec<_> = self.nodes.iter().map(|node| node.place.as_str()).collect();
        let snapshots: Vec<_> =
            readings.iter().map(|read| read.as_ref().map(|followed| &*followed.snapshot)).collect();
        let mut snapshot = merge(self.quorum, &places, &snapshots, &query);
        snapshot.round_trip = started.elapsed();
        // One that did not answer is read anew when it does.
        Ok(Followed::keeping(snapshot, readings))
    }

    pub(crate) async fn break_lease(self: Arc<Self>, request: BreakRequest) -> Result<BreakOutcome> {
        let name = LockName::new(&request.name)?;
        let key = self.keys.lock(&name);
        let mut answers =
            self.ask_all(|_| Call { script: &scripts::PEEK, keys: vec![key.clone()], args: Vec::new() });
        let (mut values, mut errors, mut read, mut foreign) = (Vec::new(), Vec::new(), 0, 0);
        while let Some((at, answer)) = answers.next().await {
            let value = answer
                .and_then(Data::list)
                .and_then(|fields| fields.first().map_or(Ok(String::new()), Data::text));
            match value {
                Ok(value) => {
                    read += 1;
                    match LockValue::parse(&value) {
                        Some(value) => values.push(value),
                        None => foreign += usize::from(!value.is_empty()),
                    }
                }
                Err(error) => errors.push((at, error)),
            }
        }
        self.settle_late(answers, |_, _, _| {});
        if read < self.quorum.needed() {
            return Err(self.unreachable(&errors));
        }
        if foreign >= self.quorum.needed() {
            return Err(Error::new(
                ErrorKind::NameConflict,
                "a majority of the nodes holds another program's lock there; it ends with its own lease",
            )
            .on_lock(name.as_str()));
        }
        let Some((owner, holder, token)) = holder_of(&values, self.quorum.covering()) else {
            // With the nodes that did not answer, an owner may have a majority.
            let silent = self.nodes.len() - read;
            if silent > 0 && holder_of(&values, self.quorum.needed().saturating_sub(silent).max(1)).is_some()
            {
                return Err(self.unreachable(&errors));
            }
            return Ok(BreakOutcome::Free);
        };
        if token != request.expected {
            return Ok(BreakOutcome::ChangedHands { present: token });
        }
        self.break_on_all(&name, owner, holder, &request).await
    }

    async fn break_on_all(
        self: &Arc<Self>,
        name: &LockName,
        owner: OwnerToken,
        holder: ClientId,
        request: &BreakRequest,
    ) -> Result<BreakOutcome> {
        let mut keys = self.release_keys(name);
        keys.push(self.keys.audit());
        let args = vec![
            owner.to_hex(),
            self.keys.inbox_before(),
            self.keys.spell(name),
            self.turn_ms(),
            request.expected.to_string(),
            request.name.clone(),
            request.by.clone(),
            request.reason.clone(),
            AUDIT_LENGTH.to_string(),
            holder.to_string(),
        ];
        let mut answers =
            self.ask_all(|_| Call { script: &scripts::BREAK, keys: keys.clone(), args: args.clone() });
        let (mut broken, mut told, mut errors) = (0, BTreeMap::<String, usize>::new(), Vec::new());
        while let Some((at, answer)) = answers.next().await {
            match answer.and_then(Data::list) {
                Ok(fields) => {
                    broken += usize::from(
                        fields.first().is_some_and(|done| done.int().is_ok_and(|done| done == 1)),
                    );
                    if let Some(Ok(next)) = fields.get(1).map(Data::text)
                        && !next.is_empty()
                    {
                        *told.entry(next).or_default() += 1;
                    }
                }
                Err(error) => errors.push((at, error)),
            }
        }
        self.settle_late(answers, |_, _, _| {});
        if broken == 0 {
            return if errors.is_empty() { Ok(BreakOutcome::Free) } else { Err(self.unreachable(&errors)) };
        }
        let next = told.into_iter().max_by_key(|(_, nodes)| *nodes);
        Ok(BreakOutcome::Broken { holder, next: next.map(|(next, _)| ClientId::from_stored(&next)) })
    }
}

/// The owner that most nodes name, if at least `least` do, with the largest of its numbers.
fn holder_of(values: &[LockValue], least: usize) -> Option<(OwnerToken, ClientId, FencingToken)> {
    let of = |owner: OwnerToken| values.iter().filter(move |value| value.owner == owner);
    let first = values.iter().max_by_key(|value| of(value.owner).count())?;
    let token = of(first.owner).map(|value| value.fence).max()?;
    (of(first.owner).count() >= least).then(|| (first.owner, first.client.clone(), FencingToken::new(token)))
}

/// Puts the readings of the nodes together.
fn merge(quorum: Quorum, places: &[&str], readings: &[Option<&Snapshot>], query: &Query) -> Snapshot {
    let read = readings.iter().flatten().count();
    // Who has a majority holds it; with nodes out of sight, who has so many may.
    let enough = quorum.needed().min(read / 2 + 1);
    let mut names: BTreeMap<String, Vec<Option<LockView>>> = BTreeMap::new();
    let (mut clients, mut audit) = (BTreeMap::<String, ClientView>::new(), Vec::<AuditEntry>::new());
    let (mut taken_at_ms, mut truncated, mut requests) = (0, false, 0);
    for (at, reading) in readings.iter().enumerate() {
        let Some(reading) = reading else { continue };
        taken_at_ms = taken_at_ms.max(reading.taken_at_ms);
        truncated |= reading.truncated;
        requests += reading.requests;
        for lock in &reading.locks {
            names.entry(lock.name.clone()).or_insert_with(|| vec![None; places.len()])[at] =
                Some(lock.clone());
        }
        for client in &reading.clients {
            let known = clients.entry(client.id.to_string()).or_insert_with(|| client.clone());
            known.seen_ago_ms = known.seen_ago_ms.min(client.seen_ago_ms);
        }
        for entry in &reading.audit {
            let same = |known: &&mut AuditEntry| {
                (&known.name, known.fencing_token, &known.by) == (&entry.name, entry.fencing_token, &entry.by)
            };
            match audit.iter_mut().find(same) {
                Some(known) => known.at_ms = known.at_ms.min(entry.at_ms),
                None => audit.push(entry.clone()),
            }
        }
    }
    audit.sort_by_key(|entry| std::cmp::Reverse(entry.at_ms));
    let mut locks = Vec::new();
    for (name, views) in names {
        let reached: Vec<_> = readings.iter().map(Option::is_some).collect();
        let lock = merge_lock(name, quorum, enough, places, &reached, &views);
        // What is left on fewer nodes than a majority keeps others out, though nobody holds it.
        let left = lock.votes.iter().any(|vote| vote.owner_digest.is_some());
        if query.name.is_some() || left || !lock.waiters.is_empty() {
            locks.push(lock);
        }
    }
    if locks.len() > query.limit() {
        locks.truncate(query.limit());
        truncated = true;
    }
    Snapshot {
        backend: "redlock".into(),
        requests,
        taken_at_ms,
        round_trip: Duration::ZERO,
        locks,
        clients: clients.into_values().collect(),
        audit,
        truncated,
        troubles: troubles(quorum, places, readings),
    }
}

/// What keeps nodes from voting, as far as a reading can tell; and the store, if they are too many.
fn troubles(quorum: Quorum, places: &[&str], readings: &[Option<&Snapshot>]) -> Vec<Trouble> {
    let (mut found, mut fit) = (Vec::new(), 0);
    for (place, reading) in places.iter().zip(readings) {
        let node = Some((*place).to_owned());
        match reading {
            None => {
                found.push(Trouble { kind: TroubleKind::NodeSilent, node, detail: "no answer".to_owned() })
            }
            Some(reading) => match reading.trouble() {
                None => fit += 1,
                Some(trouble) => found.push(Trouble { node, ..trouble.clone() }),
            },
        }
    }
    if fit < quorum.needed() {
        let (all, needed) = (quorum.nodes(), quorum.needed());
        let detail = format!("{fit} of {all} nodes answer and accept writes, {needed} are needed");
        found.insert(0, Trouble { kind: TroubleKind::NoQuorum, node: None, detail });
    }
    found
}

fn merge_lock(
    name: String,
    quorum: Quorum,
    enough: usize,
    places: &[&str],
    reached: &[bool],
    views: &[Option<LockView>],
) -> LockView {
    let mut held: BTreeMap<&str, Vec<&HolderView>> = BTreeMap::new();
    let mut waiting: BTreeMap<&str, Vec<&WaiterView>> = BTreeMap::new();
    let mut votes = Vec::with_capacity(places.len());
    for ((place, reached), view) in places.iter().zip(reached).zip(views) {
        let holder = view.as_ref().and_then(|view| view.holders.first());
        votes.push(VoteView {
            node: (*place).to_owned(),
            reached: *reached,
            owner_digest: holder.map(|holder| holder.owner_digest.clone()),
            client: holder.and_then(|holder| holder.client.clone()),
            remaining_ms: holder.and_then(|holder| holder.remaining_ms),
        });
        if let Some(holder) = holder {
            held.entry(&holder.owner_digest).or_default().push(holder);
        }
        for waiter in view.iter().flat_map(|view| &view.waiters) {
            waiting.entry(&waiter.owner_digest).or_default().push(waiter);
        }
    }
    let holders: Vec<HolderView> =
        held.values().filter(|same| same.len() >= enough).map(|same| merge_holder(same, enough)).collect();
    let read = reached.iter().filter(|reached| **reached).count();
    let mut waiters: Vec<WaiterView> = waiting
        .into_iter()
        .filter(|(digest, _)| holders.iter().all(|holder| holder.owner_digest != *digest))
        .map(|(_, same)| merge_waiter(&same, quorum, read))
        .collect();
    waiters.sort_by_key(|waiter| waiter.since_ms);
    for (position, waiter) in waiters.iter_mut().enumerate() {
        waiter.position = position as u32;
    }
    let foreign = holders.iter().any(|holder| holder.client.is_none());
    let key = views.iter().flatten().flat_map(|view| &view.details).find(|detail| detail.name == "key");
    LockView {
        name,
        mode: if foreign { "foreign" } else { "mutex" }.into(),
        capacity: None,
        holders,
        waiters,
        votes,
        details: key.cloned().into_iter().collect(),
    }
}

/// The lease ends when so many nodes have ended it that no majority is left.
fn merge_holder(same: &[&HolderView], enough: usize) -> HolderView {
    let mut left: Vec<_> = same.iter().filter_map(|holder| holder.remaining_ms).collect();
    left.sort_unstable_by(|a, b| b.cmp(a));
    let latest = same.iter().max_by_key(|holder| holder.renewals).unwrap_or(&same[0]);
    HolderView {
        fencing_token: same.iter().filter_map(|holder| holder.fencing_token).max(),
        acquired_at_ms: same.iter().filter_map(|holder| holder.acquired_at_ms).min(),
        held_for_ms: same.iter().filter_map(|holder| holder.held_for_ms).max(),
        remaining_ms: left.get(enough.saturating_sub(1)).copied(),
        renewed_ago_ms: same.iter().filter_map(|holder| holder.renewed_ago_ms).min(),
        ..(*latest).clone()
    }
}

/// A waiter that a majority of the nodes does not have, or no longer hears of, has left: what is still queued is a record
/// that a lost request left behind.
fn merge_waiter(same: &[&WaiterView], quorum: Quorum, read: usize) -> WaiterView {
    let waited_ms = same.iter().map(|waiter| waiter.waited_ms).max().unwrap_or(0);
    let live = same.iter().filter(|waiter| !waiter.silent).count();
    let has_left = read - live >= quorum.needed() && waited_ms > QUEUED_WITHIN_MS;
    WaiterView {
        since_ms: same.iter().map(|waiter| waiter.since_ms).min().unwrap_or(0),
        waited_ms,
        silent: live == 0 || has_left,
        ..same[0].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(waited_ms: u64, silent: bool) -> WaiterView {
        WaiterView {
            client: ClientId::from_stored("host:1:00000000"),
            label: String::new(),
            mode: "mutex".into(),
            permits: 1,
            owner_digest: "a".into(),
            position: 0,
            since_ms: 0,
            waited_ms,
            silent,
            gives_up_at_ms: None,
        }
    }

    #[test]
    fn a_record_that_is_left_on_a_minority_is_no_live_waiter() {
        let (quorum, live, stale) = (Quorum::of(3), waiting(20_000, false), waiting(20_000, true));
        let silent = |same: &[&WaiterView], read| merge_waiter(same, quorum, read).silent;
        assert!(!silent(&[&live, &live, &live], 3));
        assert!(!silent(&[&live, &live], 3), "a majority has it");
        assert!(silent(&[&live], 3));
        assert!(silent(&[&live, &stale, &stale], 3));
        assert!(!silent(&[&live], 2), "the node that did not answer may have it");
        assert!(silent(&[&stale], 1));
        let new = waiting(300, false);
        assert!(!silent(&[&new], 3), "it is on its way to the others");
    }
}
