//! One lock as it stands in the store at one moment, and the transaction from there to the next.
//!
//! Every change is one transaction whose checks name what was seen: the held key's index, the
//! sessions of those who enter, and the line's index where it becomes empty. If something else was
//! done meanwhile, nothing of it is carried out, and whoever wanted it looks again.

use crate::backend::HolderHint;
use crate::backend::consul::protocol::keys::{Key, Keys, Part};
use crate::backend::consul::protocol::records::{
    Beside, Coordination, Follower, Letter, MUTEX_FLAGS, OWN_FLAGS, RW_FLAGS, Record, SEMAPHORE_FLAGS,
    never_written,
};
use crate::backend::consul::transport::api::{Entry, Op};
use crate::mode::{Kind, Mode};
use crate::name::LockName;
use crate::policy::sharing::admits;
use crate::token::{ClientId, OwnerToken};

/// How many waiters one transaction lets in together: five operations each, of 64.
const ENTER_TOGETHER: usize = 10;

/// How many of those who stand behind it a new holder of a mutex is told of: so many releases need not
/// look. More would make every letter longer.
const FOLLOWERS: usize = 8;

/// What the held key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Free,
    As(Kind),
    /// Data that is no lock.
    Foreign,
}

/// Somebody who holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// `None` for a program that is not Polylatch.
    pub record: Option<Record>,
    pub owner: Option<OwnerToken>,
    pub mode: Mode,
    pub fence: u64,
    /// The key whose index and session stand for the lease.
    pub key: String,
    pub index: u64,
    pub session: String,
}

/// Somebody who stands in line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub owner: OwnerToken,
    pub record: Record,
    pub mode: Mode,
    pub key: String,
    pub session: String,
    created: u64,
}

/// One lock at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub name: LockName,
    pub used: Use,
    pub holders: Vec<Holder>,
    /// In the order in which they came.
    pub line: Vec<Waiter>,
    /// The held key.
    pub lock: Option<Entry>,
    line_open: Option<u64>,
    /// Others may stand in line beside those that this view knows.
    pub line_is_partial: bool,
    coordination: Option<Coordination>,
}

/// Somebody who enters.
#[derive(Debug, Clone)]
pub(crate) struct Entrant {
    pub owner: OwnerToken,
    pub record: Record,
    pub mode: Mode,
    pub session: String,
    /// Its place in line, if it has one.
    pub waits: Option<String>,
    /// Asks for itself, so it needs no letter.
    pub asks: bool,
}

impl Entrant {
    fn from(waiter: &Waiter, me: Option<OwnerToken>) -> Self {
        Self {
            owner: waiter.owner,
            record: waiter.record.clone(),
            mode: waiter.mode,
            session: waiter.session.clone(),
            waits: Some(waiter.key.clone()),
            asks: me == Some(waiter.owner),
        }
    }
}

/// What is to be done to a lock at once.
#[derive(Debug, Default)]
pub(crate) struct Change<'a> {
    /// When, by the wall clock of this client; shown to people only.
    pub at_ms: u64,
    /// Leaves the line without entering.
    pub leaves: Option<OwnerToken>,
    pub ends: Option<&'a Holder>,
    pub enter: Vec<Entrant>,
    /// Holds in another way from now on, with this record.
    pub converts: Option<(&'a Holder, Record)>,
    /// A letter for the one whose lease is ended by somebody else.
    pub revoked: bool,
    /// The letter of the lease that ends is removed later.
    pub keeps_letter: bool,
}

impl View {
    /// Reads a lock out of the pairs below its folder; others among them are passed over.
    pub(crate) fn read(keys: &Keys, name: &LockName, entries: Vec<Entry>) -> Self {
        let lock_key = keys.lock(name);
        let mut view = Self {
            name: name.clone(),
            used: Use::Free,
            holders: Vec::new(),
            line: Vec::new(),
            lock: None,
            line_open: None,
            line_is_partial: false,
            coordination: None,
        };
        let mut leases = Vec::new();
        let mut permits = Vec::new();
        for entry in entries {
            if entry.key == lock_key {
                view.lock = Some(entry);
                continue;
            }
            let Some(Key::OfLock(of, part)) = keys.read(&entry.key) else { continue };
            if of != name.as_str() {
                continue;
            }
            match part {
                Part::LineOpen => view.line_open = Some(entry.modified),
                // A pair that no session holds is what a session left behind.
                Part::Contender(owner) if !entry.session.is_empty() => {
                    if let Some(record) = Record::read(&entry.value)
                        && let Some(mode) = record.mode()
                    {
                        let (key, session, created) = (entry.key, entry.session, entry.created);
                        view.line.push(Waiter { owner, record, mode, key, session, created });
                    }
                }
                Part::Lease(_) if !entry.session.is_empty() => leases.push(entry),
                Part::Permit if !entry.session.is_empty() => permits.push(entry),
                Part::Lock | Part::Contender(_) | Part::Lease(_) | Part::Permit => {}
            }
        }
        // Two keys of one transaction have one index; their names keep the order the same for all.
        view.line.sort_by(|one, other| (one.created, &one.key).cmp(&(other.created, &other.key)));
        view.judge(leases, permits);
        view
    }

    /// A mutex as its holder knows it without a look: held at this index, with these first in line.
    ///
    /// They are still the first if they still stand there, because others join behind them; the changes
    /// of this view check that, and the index.
    pub(crate) fn of_holder(keys: &Keys, name: &LockName, me: Holder, line: &[Follower]) -> Self {
        let lock = Entry {
            key: keys.lock(name),
            flags: MUTEX_FLAGS,
            session: me.session.clone(),
            modified: me.index,
            ..Entry::default()
        };
        let waiter = |follower: &Follower| {
            let record = follower.record.clone();
            let owner = record.owner()?;
            let key = keys.contender(name, owner, &follower.session);
            let session = follower.session.clone();
            Some(Waiter { owner, mode: Mode::Mutex, record, key, session, created: 0 })
        };
        Self {
            name: name.clone(),
            used: Use::As(Kind::Mutex),
            holders: vec![me],
            line: line.iter().map_while(waiter).collect(),
            lock: Some(lock),
            line_open: None,
            line_is_partial: true,
            coordination: None,
        }
    }

    /// Who stands in line beside one who enters a mutex, as far as it is told: also those whom it overtook.
    pub(crate) fn followers(&self, owner: OwnerToken) -> Vec<Follower> {
        let mutexes = self.line.iter().take_while(|waiter| waiter.mode == Mode::Mutex);
        let others = mutexes.filter(|waiter| waiter.owner != owner);
        let follower =
            |waiter: &Waiter| Follower { session: waiter.session.clone(), record: waiter.record.clone() };
        others.take(FOLLOWERS).map(follower).collect()
    }

    /// Whether nobody but this one stands in line, as far as can be seen: all of it.
    pub(crate) fn is_alone(&self, owner: OwnerToken) -> bool {
        !self.line_is_partial && self.line.iter().all(|waiter| waiter.owner == owner)
    }

    fn judge(&mut self, leases: Vec<Entry>, permits: Vec<Entry>) {
        let Some(lock) = &self.lock else { return };
        match lock.flags {
            MUTEX_FLAGS if lock.session.is_empty() => {}
            MUTEX_FLAGS => {
                self.used = Use::As(Kind::Mutex);
                self.holders = vec![holder(lock, Mode::Mutex)];
            }
            RW_FLAGS => {
                // A lease of another version excludes all others until its session ends.
                let mode = |entry: &Entry| Record::read(&entry.value).and_then(|record| record.mode());
                self.holders =
                    leases.iter().map(|entry| holder(entry, mode(entry).unwrap_or(Mode::Write))).collect();
                if !self.holders.is_empty() {
                    self.used = Use::As(Kind::ReadWrite);
                }
            }
            SEMAPHORE_FLAGS => match serde_json::from_slice::<Coordination>(&lock.value) {
                Ok(coordination) => self.judge_semaphore(coordination, permits),
                Err(_) => self.used = Use::Foreign,
            },
            _ => self.used = Use::Foreign,
        }
        self.holders.sort_by_key(|holder| holder.fence);
    }

    /// Permits count only if the session still holds its contender key.
    fn judge_semaphore(&mut self, mut coordination: Coordination, permits: Vec<Entry>) {
        let live = |session: &str| permits.iter().find(|entry| entry.session == session);
        coordination.holders.retain(|session, _| live(session).is_some());
        let capacity = coordination.limit;
        let mut beside = Vec::new();
        for entry in coordination.holders.keys().filter_map(|session| live(session)) {
            match Record::read(&entry.value) {
                Some(record) if record.mode().is_some_and(|mode| mode.kind() != Kind::Mutex) => {
                    let count = record.permits.iter().filter(|one| coordination.holders.contains_key(*one));
                    let count = u32::try_from(count.count()).unwrap_or(u32::MAX);
                    self.holders.push(holder(entry, Mode::Permits { count, capacity }));
                }
                _ => beside.push(entry),
            }
        }
        // Whoever is not beside a holder of ours is a program that is not Polylatch, or what is left of
        // an owner whose first session has ended; the server counts it in either case.
        for entry in beside {
            let owner = serde_json::from_slice::<Beside>(&entry.value).ok().map(|beside| beside.beside);
            let counted = self.holders.iter().any(|holder| {
                holder.record.as_ref().is_some_and(|record| {
                    Some(&record.owner) == owner.as_ref() && record.permits.contains(&entry.session)
                })
            });
            if !counted {
                self.holders.push(Holder {
                    record: None,
                    owner: None,
                    ..holder(entry, Mode::Permits { count: 1, capacity })
                });
            }
        }
        // With a mark of our own, nobody else is concerned if it becomes another kind of lock.
        if !self.holders.is_empty() || coordination.polylatch.is_none() {
            self.used = Use::As(Kind::Semaphore { capacity });
        }
        self.coordination = Some(coordination);
    }

    /// What kind of lock this is, as long as anybody holds or waits.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self.used {
            Use::As(kind) => Some(kind),
            Use::Free => self.line.first().map(|waiter| waiter.mode.kind()),
            Use::Foreign => None,
        }
    }

    pub(crate) fn held_by(&self, owner: OwnerToken) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.owner == Some(owner))
    }

    pub(crate) fn position(&self, owner: OwnerToken) -> Option<usize> {
        self.line.iter().position(|waiter| waiter.owner == owner)
    }

    /// Held by a program that is not Polylatch, which wakes nobody when it lets go.
    pub(crate) fn is_held_by_others(&self) -> bool {
        self.holders.iter().any(|holder| holder.record.is_none())
    }

    pub(crate) fn hint(&self, now_ms: u64) -> Option<HolderHint> {
        self.holders.first().map(|holder| match &holder.record {
            Some(record) => record.hint(now_ms),
            None => HolderHint { client: None, label: String::new(), held_for: None, left: None },
        })
    }

    /// Those at the head of the line who can have the lock together, once `ends` is gone and without
    /// `leaves`; `first`, who does not wait, before them.
    pub(crate) fn who_enters(
        &self,
        first: Option<Entrant>,
        me: Option<OwnerToken>,
        ends: Option<&Holder>,
        leaves: Option<OwnerToken>,
    ) -> Vec<Entrant> {
        let mut held: Vec<Mode> = self
            .holders
            .iter()
            .filter(|holder| ends.is_none_or(|gone| gone.key != holder.key))
            .map(|holder| holder.mode)
            .collect();
        let mut enter = Vec::new();
        if let Some(first) = first {
            if !fits(&held, first.mode) {
                return enter;
            }
            held.push(first.mode);
            enter.push(first);
        }
        for waiter in self.line.iter().filter(|waiter| leaves != Some(waiter.owner)) {
            if enter.iter().any(|entrant| entrant.owner == waiter.owner) {
                continue;
            }
            if enter.len() >= ENTER_TOGETHER || !fits(&held, waiter.mode) {
                break;
            }
            held.push(waiter.mode);
            enter.push(Entrant::from(waiter, me));
        }
        enter
    }

    /// The check that the held key is as it was seen.
    fn unchanged(&self, keys: &Keys) -> Op {
        let key = keys.lock(&self.name);
        match &self.lock {
            None => Op::CheckMissing(key),
            Some(lock) => Op::CheckIndex(key, lock.modified),
        }
    }

    /// The transaction that carries out a change.
    pub(crate) fn transaction(&self, keys: &Keys, change: &Change<'_>) -> Vec<Op> {
        let name = &self.name;
        let mut ops = vec![self.unchanged(keys)];
        if let Some(owner) = change.leaves
            && let Some(waiter) = self.line.iter().find(|waiter| waiter.owner == owner)
        {
            ops.push(Op::Delete(waiter.key.clone()));
        }
        if let Some(holder) = change.ends {
            self.end(keys, holder, change, &mut ops);
        }
        if let Some((holder, record)) = &change.converts {
            ops.push(Op::CheckIndex(holder.key.clone(), holder.index));
            ops.push(lock_op(holder.key.clone(), record.bytes(), OWN_FLAGS, &holder.session));
        }
        for entrant in &change.enter {
            self.let_in(keys, entrant, change.at_ms, &mut ops);
        }
        self.settle_lock(keys, change, &mut ops);
        if self.line_is_partial {
            // Whether it is empty afterwards is seen by a release that looks.
        } else if let Some(index) = self.line_open {
            let goes = |owner| {
                change.leaves == Some(owner) || change.enter.iter().any(|entrant| entrant.owner == owner)
            };
            if self.line.iter().all(|waiter| goes(waiter.owner)) {
                // Whoever joins the line meanwhile changes this index.
                ops.push(Op::CheckIndex(keys.line_open(name), index));
                ops.push(Op::Delete(keys.line_open(name)));
            }
        } else if change.ends.is_some() {
            // Whoever came meanwhile would have to be let in.
            ops.push(Op::CheckMissing(keys.line_open(name)));
        }
        ops
    }

    fn end(&self, keys: &Keys, holder: &Holder, change: &Change<'_>, ops: &mut Vec<Op>) {
        if holder.mode != Mode::Mutex {
            ops.push(Op::CheckIndex(holder.key.clone(), holder.index));
            ops.push(Op::Delete(holder.key.clone()));
        }
        let (Some(record), Some(owner)) = (&holder.record, holder.owner) else { return };
        let letter = keys.letter(&record.client, owner, &holder.session);
        if change.revoked {
            let text = serde_json::to_vec(&Letter::Revoked { fence: holder.fence }).unwrap_or_default();
            ops.push(lock_op(letter, text, OWN_FLAGS, &holder.session));
        } else if !change.keeps_letter {
            ops.push(Op::Delete(letter));
        }
    }

    fn let_in(&self, keys: &Keys, entrant: &Entrant, at_ms: u64, ops: &mut Vec<Op>) {
        let record = entrant.record.from(at_ms).bytes();
        if let Some(place) = &entrant.waits {
            ops.push(Op::CheckSession(place.clone(), entrant.session.clone()));
            ops.push(Op::Delete(place.clone()));
        }
        match entrant.mode {
            // Its record becomes the value of the held key.
            Mode::Mutex => {}
            Mode::Read | Mode::Write => {
                let key = keys.lease(&self.name, entrant.owner, &entrant.session);
                ops.push(lock_op(key, record, OWN_FLAGS, &entrant.session));
            }
            Mode::Permits { .. } => {
                let key = keys.permit(&self.name, &entrant.session);
                ops.push(lock_op(key, record, SEMAPHORE_FLAGS, &entrant.session));
            }
        }
        if !entrant.asks {
            let next = if entrant.mode == Mode::Mutex { self.followers(entrant.owner) } else { Vec::new() };
            let (name, alone) = (self.name.as_str().to_owned(), self.is_alone(entrant.owner));
            let text = Letter::Granted { name, next, alone };
            let text = serde_json::to_vec(&text).unwrap_or_default();
            let key = keys.letter(&entrant.record.client, entrant.owner, &entrant.session);
            ops.push(lock_op(key, text, OWN_FLAGS, &entrant.session));
        }
    }

    /// What the held key is afterwards.
    fn settle_lock(&self, keys: &Keys, change: &Change<'_>, ops: &mut Vec<Op>) {
        let key = keys.lock(&self.name);
        let stay: Vec<_> = self
            .holders
            .iter()
            .filter(|holder| change.ends.is_none_or(|gone| gone.key != holder.key))
            .collect();
        let after =
            change.enter.first().map(|entrant| entrant.mode).or(stay.first().map(|holder| holder.mode));
        match after {
            None if self.used == Use::Foreign => {}
            // A leftover of another program stays as long as nobody needs the key.
            None if change.ends.is_none() && self.holders.is_empty() => {}
            None => {
                if self.lock.is_some() {
                    ops.push(Op::Delete(key));
                }
            }
            Some(Mode::Mutex) => {
                let Some(entrant) = change.enter.first() else { return };
                match &self.lock {
                    Some(lock) if !lock.session.is_empty() => {
                        let session = lock.session.clone();
                        ops.push(Op::Unlock { key: key.clone(), session });
                    }
                    // The last holders of another kind, gone with their sessions.
                    _ => {}
                }
                let record = entrant.record.from(change.at_ms).bytes();
                ops.push(lock_op(key, record, MUTEX_FLAGS, &entrant.session));
            }
            Some(Mode::Read | Mode::Write) => {
                self.make_unheld(&key, ops);
                // Its index stands for who holds, so it has to move.
                ops.push(Op::Set { key, value: never_written(), flags: RW_FLAGS });
            }
            Some(Mode::Permits { capacity, .. }) => {
                self.make_unheld(&key, ops);
                let mut coordination = self
                    .coordination
                    .clone()
                    .filter(|_| matches!(self.used, Use::As(Kind::Semaphore { .. })))
                    .unwrap_or(Coordination {
                        limit: capacity,
                        polylatch: Some(1),
                        ..Coordination::default()
                    });
                if let Some(gone) = change.ends {
                    for session in sessions(gone) {
                        coordination.holders.remove(&session);
                    }
                }
                for entrant in &change.enter {
                    for session in &entrant.record.permits {
                        coordination.holders.insert(session.clone(), true);
                    }
                }
                let value = serde_json::to_vec(&coordination).unwrap_or_default();
                ops.push(Op::Set { key, value, flags: SEMAPHORE_FLAGS });
            }
        }
    }

    /// Takes a mutex's session off the held key: a plain write would leave it there.
    fn make_unheld(&self, key: &str, ops: &mut Vec<Op>) {
        if self.lock.as_ref().is_some_and(|lock| !lock.session.is_empty()) {
            ops.push(Op::Delete(key.to_owned()));
        }
    }
}

/// Whether one more can hold beside these, and as the same kind of lock.
fn fits(held: &[Mode], wanted: Mode) -> bool {
    held.first().is_none_or(|mode| mode.kind() == wanted.kind()) && admits(held.iter().copied(), wanted)
}

fn holder(entry: &Entry, mode: Mode) -> Holder {
    let record = Record::read(&entry.value);
    Holder {
        owner: record.as_ref().and_then(Record::owner),
        fence: record.as_ref().and_then(|record| record.fence).unwrap_or(entry.modified),
        mode,
        key: entry.key.clone(),
        index: entry.modified,
        session: entry.session.clone(),
        record,
    }
}

/// The sessions that a holder's permits hang on.
fn sessions(holder: &Holder) -> Vec<String> {
    match &holder.record {
        Some(record) if !record.permits.is_empty() => record.permits.clone(),
        _ => vec![holder.session.clone()],
    }
}

pub(crate) fn lock_op(key: String, value: Vec<u8>, flags: u64, session: &str) -> Op {
    Op::Lock { key, value, flags, session: session.to_owned() }
}

/// Who is addressed by letters below one client's inbox: the owner and what the letter says.
pub(crate) fn letter_to(keys: &Keys, client: &ClientId, entry: &Entry) -> Option<(OwnerToken, Letter)> {
    let leaf = entry.key.strip_prefix(&keys.inbox(client))?;
    let owner = crate::backend::consul::protocol::keys::owner_of(leaf)?;
    Some((owner, serde_json::from_slice(&entry.value).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_finds_its_letter_where_its_own_version_looks() {
        let keys = Keys::new("polylatch", None).unwrap();
        let name = LockName::new("a").unwrap();
        let owner = OwnerToken::random().unwrap();
        for (client, inbox) in [
            ("web-1:42:0a0b0c0d", "polylatch/.client/web-1:42:0a0b0c0d/"),
            ("web-1=3A42=3A0a0b0c0d", "polylatch/.client/web-1=3A42=3A0a0b0c0d/"),
        ] {
            let record = format!(r#"[1,"{}","{client}","","m",3000,15000,0,0,null,[]]"#, owner.to_hex());
            let record = Record::read(record.as_bytes()).unwrap();
            assert_eq!(record.client().as_str(), "web-1:42:0a0b0c0d");
            let (mode, session) = (Mode::Mutex, "03728c09-2062-b76f-1615-ea71761caff2".to_owned());
            let waits = Some(keys.contender(&name, owner, &session));
            let enter = vec![Entrant { owner, record, mode, session, waits, asks: false }];
            let view = View::read(&keys, &name, Vec::new());
            let ops = view.transaction(&keys, &Change { enter, ..Change::default() });
            assert!(ops.iter().any(|op| op.key().starts_with(inbox)), "{ops:?}");
        }
    }

    #[test]
    fn a_lease_of_another_version_excludes_readers_and_writers_and_a_waiter_is_passed_over() {
        let keys = Keys::new("polylatch", None).unwrap();
        let name = LockName::new("a").unwrap();
        let owner = OwnerToken::random().unwrap();
        let entry = |key: String, flags, value: &str, session: &str| Entry {
            key,
            flags,
            value: value.into(),
            session: session.into(),
            created: 1,
            modified: 1,
        };
        let session = "03728c09-2062-b76f-1615-ea71761caff2";
        for value in [r#"[2,"later"]"#, r#"{"v":2}"#, "pl2|x", ""] {
            let entries = || {
                vec![
                    entry(keys.lock(&name), RW_FLAGS, "x", ""),
                    entry(keys.lease(&name, owner, session), OWN_FLAGS, value, session),
                    entry(keys.contender(&name, owner, session), OWN_FLAGS, value, session),
                ]
            };
            let view = View::read(&keys, &name, entries());
            assert_eq!((view.holders.len(), view.line.len()), (1, 0), "{value}");
            let held: Vec<Mode> = view.holders.iter().map(|holder| holder.mode).collect();
            assert!(!fits(&held, Mode::Read) && !fits(&held, Mode::Write), "{value}");
        }
    }

    #[test]
    fn who_overtook_others_hands_on_to_them() {
        let keys = Keys::new("polylatch", None).unwrap();
        let mut view = View::read(&keys, &LockName::new("a").unwrap(), Vec::new());
        let owners: Vec<_> = (0..3).map(|_| OwnerToken::random().unwrap()).collect();
        view.line = owners
            .iter()
            .map(|owner| {
                let record =
                    format!(r#"[1,"{}","web-1:42:0a0b0c0d","","m",3000,15000,0,0,null,[]]"#, owner.to_hex());
                let record = Record::read(record.as_bytes()).unwrap();
                Waiter {
                    owner: *owner,
                    mode: Mode::Mutex,
                    key: owner.to_hex(),
                    session: String::new(),
                    created: 1,
                    record,
                }
            })
            .collect();
        for (entrant, others) in [(0, [1, 2]), (1, [0, 2])] {
            let next: Vec<_> =
                view.followers(owners[entrant]).iter().map(|next| next.record.owner()).collect();
            assert_eq!(next, others.map(|at: usize| Some(owners[at])));
        }
    }
}
