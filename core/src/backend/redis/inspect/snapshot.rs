//! Reads locks, waiters, clients and breaks for display. Pages through large stores.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use crate::backend::AUDIT_LENGTH;
#[cfg(not(target_family = "wasm"))]
use crate::backend::redis::inspect::foreign;
use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::protocol::keys::Keys;
use crate::backend::redis::protocol::records::{
    LockValue, foreign_view, sharing_view, unreadable, unreadable_view, version_of, waiter_view,
};
use crate::backend::redis::protocol::scripts;
use crate::backend::redis::transport::port::Port;
use crate::error::{Error, ErrorKind, Result};
use crate::mode::{Kind, Mode};
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{AuditEntry, ClientView, Detail, HolderView, LockView, Query, Snapshot, Trouble};
use crate::token::ClientId;

/// Names read from the index by one call.
pub(crate) const NAMES_PER_PAGE: usize = 1000;

/// Locks looked at by one pipeline.
pub(crate) const LOCKS_PER_PAGE: usize = 100;

/// Client records read by one call.
pub(crate) const CLIENTS_PER_PAGE: usize = 500;

/// Client records read at most.
const CLIENTS: usize = 10_000;

/// Waiters read of one lock.
const WAITERS: usize = 1000;

/// `unlisted` are names that may not stand in the index so far.
pub(crate) async fn read(
    port: &dyn Port,
    keys: &Keys,
    query: &Query,
    unlisted: Vec<LockName>,
) -> Result<Snapshot> {
    let mut locks = Vec::new();
    let mut truncated = false;
    let (names, pages) = match &query.name {
        Some(name) => (vec![LockName::new(name)?], 0),
        None => names(port, keys, query, unlisted).await?,
    };
    let mut looked_at = 0;
    for page in names.chunks(LOCKS_PER_PAGE) {
        if locks.len() >= query.limit() {
            truncated = true;
            break;
        }
        looked_at += page.len();
        // The index may still name what has expired meanwhile.
        let seen = show(port, keys, page).await?.into_iter();
        locks.extend(seen.filter(|lock| query.name.is_some() || lock.is_in_use()));
    }
    if locks.len() > query.limit() {
        locks.truncate(query.limit());
        truncated = true;
    }
    // In a JavaScript host the inspector refuses such a query.
    #[cfg(not(target_family = "wasm"))]
    if let Some(pattern) = &query.foreign {
        let room = query.limit().saturating_sub(locks.len());
        let found = foreign::read(port, keys, pattern, room).await?;
        looked_at += found.requests;
        truncated |= found.truncated;
        add_foreign(keys, &mut locks, found.locks);
    }
    let People { taken_at_ms, clients, mut audit, trouble, requests, .. } = people(port, keys).await?;
    audit.retain(|entry| query.wants(&entry.name));
    let snapshot = Snapshot {
        backend: "redis".into(),
        taken_at_ms,
        round_trip: Duration::ZERO,
        requests: u32::try_from(pages + looked_at + requests).unwrap_or(u32::MAX),
        locks,
        clients,
        audit,
        truncated,
        troubles: Vec::new(),
    };
    Ok(snapshot.with_trouble(trouble))
}

/// Reads some locks, in their order.
pub(crate) async fn show(port: &dyn Port, keys: &Keys, names: &[LockName]) -> Result<Vec<LockView>> {
    let call = |name| {
        let mut of_lock = keys.granting(name);
        of_lock.truncate(3);
        of_lock.extend(keys.sharing(name));
        of_lock.push(keys.deadlines(name));
        Call { script: &scripts::SHOW, keys: of_lock, args: vec![WAITERS.to_string()] }
    };
    let answers = port.run(names.iter().map(call).collect(), None).await?;
    let seen = names.iter().zip(answers).map(|(name, answer)| {
        let mut lock = view(name, answer?)?;
        lock.details.push(Detail::new("key", keys.lock(name)));
        Ok(lock)
    });
    seen.collect()
}

/// Puts other libraries' locks among ours, by name; a key that is called like a lock of ours is marked, and one that
/// they share with ours is listed once.
#[cfg(not(target_family = "wasm"))]
fn add_foreign(keys: &Keys, locks: &mut Vec<LockView>, mut found: Vec<LockView>) {
    let ours: BTreeSet<String> = locks.iter().map(|lock| lock.name.clone()).collect();
    found.retain(|lock| keys.shared_name(&lock.name).is_none_or(|name| !ours.contains(name)));
    locks.extend(found.into_iter().map(|mut lock| {
        if ours.contains(&lock.name) {
            lock.name.push_str(" (another library's key)");
        }
        lock
    }));
    locks.sort_by(|a, b| a.name.cmp(&b.name));
}

/// Returns the names that are asked for, in order, and how many pages of the index were read.
async fn names(
    port: &dyn Port,
    keys: &Keys,
    query: &Query,
    unlisted: Vec<LockName>,
) -> Result<(Vec<LockName>, usize)> {
    // A set, because entries that move between two pages may be read twice.
    let mut names: BTreeSet<_> = unlisted.into_iter().filter(|name| query.wants(name.as_str())).collect();
    let mut first = 0;
    loop {
        let call = Call {
            script: &scripts::LIST,
            keys: vec![keys.index()],
            args: vec![first.to_string(), (first + NAMES_PER_PAGE - 1).to_string()],
        };
        let page = one(port, call).await?.list()?;
        for item in &page {
            names.extend(listed(keys, &item.text()?, query));
        }
        if page.len() < NAMES_PER_PAGE {
            return Ok((names.into_iter().collect(), first / NAMES_PER_PAGE + 1));
        }
        first += NAMES_PER_PAGE;
    }
}

/// Reads a name of the index, if it is asked for.
pub(crate) fn listed(keys: &Keys, spelled: &str, query: &Query) -> Option<LockName> {
    let name = keys.name_of(spelled);
    query.wants(&name).then(|| LockName::new(&name).ok()).flatten()
}

pub(crate) fn view(name: &LockName, answer: Data) -> Result<LockView> {
    let answer = answer.list()?;
    let field = |at: usize| answer.get(at).ok_or_else(short);
    let now_ms = field(0)?.uint()? / 1000;
    let kind = field(1)?.text()?;
    let value = field(2)?.text()?;
    let left = u64::try_from(field(3)?.int()?).ok().map(Duration::from_millis);
    let (Data::List(line), Data::List(signs)) = (field(4)?, field(5)?) else { return Err(short()) };
    let deadlines = deadlines(answer.get(8))?;
    let kept = field(9)?.text()?;
    let (mut waiters, mut wanted) = (Vec::with_capacity(signs.len()), None);
    let mut details = Vec::new();
    for (at, sign) in signs.iter().enumerate() {
        let record = line.get(2 * at).ok_or_else(short)?.text()?;
        let ticket = number(line.get(2 * at + 1).ok_or_else(short)?)?;
        if let Some((mode, mut waiter)) = waiter_view(&record, at as u32, ticket, number(sign)?, now_ms) {
            wanted.get_or_insert(mode);
            waiter.gives_up_at_ms = deadlines.get(&ticket).copied();
            waiters.push(waiter);
        } else {
            details.push(unreadable(format_args!("waiter {}", at + 1), &record));
        }
    }
    let (mut held, mut holders) = sharing(field(6)?, field(7)?, now_ms)?;
    let mut foreign = false;
    if kind != "none" {
        match LockValue::parse(&value) {
            Some(parsed) => {
                let mut holder = parsed.view(Mode::Mutex, now_ms, left);
                holder.idle_ago_ms = parsed.idle_ago_ms(&kept, now_ms);
                holder.details.push(Detail::new("value", without_owner(&value, &holder.owner_digest)));
                holders.insert(0, holder);
            }
            None if kind == "string" && version_of(&value).is_some() => {
                holders.insert(0, unreadable_view(left, unreadable(format_args!("lease"), &value)));
            }
            None => {
                foreign = true;
                holders.insert(0, foreign_view(left));
            }
        }
        held = Some(Mode::Mutex);
    }
    let kind = held.or(wanted).map_or(Kind::Mutex, Mode::kind);
    Ok(LockView {
        name: name.as_str().to_owned(),
        mode: if foreign { "foreign" } else { kind.code() }.into(),
        capacity: kind.capacity(),
        holders,
        waiters,
        votes: Vec::new(),
        details,
    })
}

/// Reads when waiters give up, by their numbers in the queue. What is in another form is left out.
fn deadlines(answer: Option<&Data>) -> Result<HashMap<u64, u64>> {
    let Some(Data::List(members)) = answer else { return Ok(HashMap::new()) };
    let mut deadlines = HashMap::with_capacity(members.len());
    for member in members {
        let text = member.text()?;
        let numbers =
            text.split_once('|').and_then(|(ticket, at)| Some((ticket.parse().ok()?, at.parse().ok()?)));
        deadlines.extend::<Option<(u64, u64)>>(numbers);
    }
    Ok(deadlines)
}

/// A lock value as it stands in the store, but for the owner token, which is the right to release.
fn without_owner(value: &str, digest: &str) -> String {
    let rest = value.split_once('|').map_or("", |(_, rest)| rest);
    format!("<owner #{digest}>|{rest}")
}

/// Shows those who share a lock, in the order in which they were granted it, and one of their modes.
fn sharing(members: &Data, details: &Data, now_ms: u64) -> Result<(Option<Mode>, Vec<HolderView>)> {
    let (Data::List(members), Data::List(details)) = (members, details) else { return Err(short()) };
    let (mut holders, mut held) = (Vec::with_capacity(details.len()), None);
    for (pair, details) in members.chunks_exact(2).zip(details) {
        let left = Duration::from_millis(number(&pair[1])?.saturating_sub(now_ms));
        let (member, details) = (pair[0].text()?, details.text()?);
        if let Some((mode, mut holder)) = sharing_view(&member, &details, now_ms, left) {
            held = Some(mode);
            if let Some((mode, value)) = details.split_once('|') {
                let value = without_owner(value, &holder.owner_digest);
                holder.details.push(Detail::new("value", format!("{mode}|{value}")));
            }
            holders.push(holder);
        } else {
            let what = unreadable(format_args!("shared lease"), &member);
            holders.push(unreadable_view(Some(left), what));
        }
    }
    holders.sort_by_key(|holder| holder.fencing_token);
    Ok((held, holders))
}

/// What a store keeps besides locks.
pub(crate) struct People {
    pub taken_at_ms: u64,
    pub clients: Vec<ClientView>,
    pub audit: Vec<AuditEntry>,
    /// Clients and the guarantee that each declares.
    #[cfg_attr(target_family = "wasm", allow(dead_code, reason = "only an examination asks"))]
    pub guarantees: Vec<(ClientId, String)>,
    /// Keys of records that another version wrote in a form unknown here.
    #[cfg_attr(target_family = "wasm", allow(dead_code, reason = "only an examination asks"))]
    pub unreadable: Vec<String>,
    /// Why the server refuses writes, if it does.
    pub trouble: Option<Trouble>,
    /// How many script calls it took.
    pub requests: usize,
}

/// Reads client records and the audit, the records page by page: no script call holds up the server for long, and none
/// answers with megabytes.
pub(crate) async fn people(port: &dyn Port, keys: &Keys) -> Result<People> {
    let mut people = People {
        taken_at_ms: 0,
        clients: Vec::new(),
        audit: Vec::new(),
        guarantees: Vec::new(),
        unreadable: Vec::new(),
        trouble: None,
        requests: 0,
    };
    // Where a page begins: a score, and how many records of that score were read before.
    let mut begins = Some(("-inf".to_owned(), 0));
    let mut seen = HashSet::new();
    while let Some((score, offset)) = begins.take().filter(|_| seen.len() < CLIENTS) {
        let is_first = people.requests == 0;
        let audit = if is_first { AUDIT_LENGTH.to_string() } else { String::new() };
        let args = vec![keys.client_before(), score, offset.to_string(), CLIENTS_PER_PAGE.to_string(), audit];
        let call = Call { script: &scripts::PEOPLE, keys: vec![keys.clients(), keys.audit()], args };
        let answer = one(port, call).await?.list()?;
        let [now, Data::List(clients), Data::List(audit), Data::List(unreadable), refused, Data::List(next)] =
            answer.as_slice()
        else {
            return Err(short());
        };
        let now_ms = now.uint()? / 1000;
        if is_first {
            people.taken_at_ms = now_ms;
            people.audit = audit.iter().filter_map(audit_entry).collect();
            people.trouble = Trouble::of_refusal(&refused.text()?);
        }
        people.requests += 1;
        for entry in clients {
            let (client, guarantee) = client_entry(entry, now_ms)?;
            // One that was announced between two pages is in both.
            if seen.insert(client.id.clone()) {
                people.guarantees.push((client.id.clone(), guarantee));
                people.clients.push(client);
            }
        }
        for key in unreadable {
            people.unreadable.push(key.text()?);
        }
        if let [score, offset] = next.as_slice() {
            begins = Some((score.text()?, offset.uint()?));
        }
    }
    people.clients.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
    Ok(people)
}

/// Reads one client record, and the guarantee that it declares.
fn client_entry(entry: &Data, now_ms: u64) -> Result<(ClientView, String)> {
    let Data::List(entry) = entry else { return Err(short()) };
    let [id, Data::List(record)] = entry.as_slice() else { return Err(short()) };
    let take = |field: &str| {
        let pair = record.chunks_exact(2).find(|pair| pair[0].text().is_ok_and(|name| name == field));
        pair.and_then(|pair| pair[1].text().ok()).unwrap_or_default()
    };
    let seen_ms: u64 = take("seen_ms").parse().unwrap_or(0);
    let client = ClientView {
        id: ClientId::from_stored(&id.text()?),
        host: take("host"),
        pid: take("pid").parse().unwrap_or(0),
        process_started_at_ms: take("started_ms").parse().ok(),
        boot: Some(take("boot")).filter(|text| !text.is_empty()),
        pid_namespace: Some(take("pid_ns")).filter(|text| !text.is_empty()),
        program: take("program"),
        language: take("language"),
        version: take("version"),
        seen_ago_ms: now_ms.saturating_sub(seen_ms),
    };
    Ok((client, take("guarantee")))
}

fn audit_entry(entry: &Data) -> Option<AuditEntry> {
    let Data::List(fields) = entry else { return None };
    let [at_ms, name, fencing_token, holder, by, reason] = fields.as_slice() else { return None };
    Some(AuditEntry {
        at_ms: at_ms.uint().ok()?,
        name: name.text().ok()?,
        fencing_token: FencingToken::new(fencing_token.uint().ok()?),
        holder: ClientId::from_stored(&holder.text().ok()?),
        by: by.text().ok()?,
        reason: reason.text().ok()?,
    })
}

pub(crate) async fn one(port: &dyn Port, call: Call) -> Result<Data> {
    port.run(vec![call], None).await?.pop().unwrap_or_else(|| Err(short()))
}

/// A score: an integer, though Redis may write it as a double.
fn number(data: &Data) -> Result<u64> {
    let text = data.text()?;
    #[cfg(not(target_family = "wasm"))]
    let number: Option<f64> = text.parse().ok();
    // By the host: the standard library's tables for it would be a twentieth of what a page loads.
    #[cfg(target_family = "wasm")]
    let number = Some(js_sys::parse_float(&text)).filter(|number| number.is_finite());
    number.map(|number| number as u64).ok_or_else(short)
}

fn short() -> Error {
    Error::new(ErrorKind::Internal, "a reading script answered in an unknown form; please report this")
}
