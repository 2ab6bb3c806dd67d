//! Other libraries' locks, read and shown as such. Nothing here writes: who knows only the format does not
//! know the rules, such as whom a release has to wake.
//!
//! Source: the formats are those of `core/src/backend/redis/docs.md`, read in the libraries' own sources.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::protocol::keys::Keys;
use crate::backend::redis::protocol::records::{LockValue, foreign_view};
use crate::backend::redis::protocol::scripts;
use crate::backend::redis::transport::port::Port;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{Detail, HolderView, LockView};

/// Keys that one step of a scan looks at; a step of this size takes well under a millisecond.
const KEYS_PER_STEP: &str = "500";

/// Steps of one reading: a million keys.
const MOST_STEPS: usize = 2_000;

/// Keys looked at by one pipeline.
const KEYS_PER_PAGE: usize = 100;

/// What was found.
pub(crate) struct Found {
    pub locks: Vec<LockView>,
    pub requests: usize,
    pub truncated: bool,
}

/// Goes through the keys in small steps, so that the server is never held up, and looks at those that
/// match and are not ours.
pub(crate) async fn read(port: &dyn Port, keys: &Keys, pattern: &str, limit: usize) -> Result<Found> {
    let mut found = Found { locks: Vec::new(), requests: 0, truncated: false };
    let (names, mut requests) = (BTreeSet::new(), 0);
    let (mut names, mut cursor) = (names, "0".to_owned());
    loop {
        let words = ["SCAN", &cursor, "MATCH", pattern, "COUNT", KEYS_PER_STEP].map(str::to_owned).to_vec();
        let answer = port.ask(words).await?.map_err(|refusal| refused(&refusal))?.list()?;
        requests += 1;
        let [next, Data::List(page)] = answer.as_slice() else { return Err(unknown()) };
        for key in page {
            // A key that is not text cannot be named, and is none of the known libraries'.
            if let Data::Bytes(bytes) = key
                && let Ok(key) = std::str::from_utf8(bytes)
                && !keys.is_ours(key)
            {
                names.insert(key.to_owned());
            }
        }
        cursor = next.text()?;
        if cursor == "0" {
            break;
        }
        if requests >= MOST_STEPS || names.len() > limit {
            found.truncated = true;
            break;
        }
    }
    let names: Vec<String> = names.into_iter().collect();
    for page in names.chunks(KEYS_PER_PAGE) {
        let call = |key: &String| Call { script: &scripts::FOREIGN, keys: vec![key.clone()], args: vec![] };
        for (key, answer) in page.iter().zip(port.run(page.iter().map(call).collect(), None).await?) {
            found.locks.extend(view(keys, key, answer?)?);
        }
        requests += page.len();
        if found.locks.len() >= limit {
            found.truncated |= found.locks.len() > limit;
            found.locks.truncate(limit);
            break;
        }
    }
    found.requests = requests;
    Ok(found)
}

fn view(keys: &Keys, key: &str, answer: Data) -> Result<Option<LockView>> {
    let answer = answer.list()?;
    let [_, kind, value, Data::List(fields), left] = answer.as_slice() else { return Err(unknown()) };
    let left = u64::try_from(left.int()?).ok().map(Duration::from_millis);
    let kind = kind.text()?;
    let known = match kind.as_str() {
        "string" => match value {
            // Held by Polylatch itself, and listed as that.
            Data::Bytes(bytes) if keys.shared_name(key).is_some() && is_polylatch(bytes) => None,
            Data::Bytes(bytes) => plain(key, bytes),
            _ => None,
        },
        "hash" => redisson(fields)?,
        _ => None,
    };
    let Some(known) = known else { return Ok(None) };
    let holders = known
        .holders
        .into_iter()
        .map(|(owner, label, mode)| HolderView {
            label,
            mode: mode.into(),
            owner_digest: digest(&owner),
            ..foreign_view(left)
        })
        .collect();
    let details =
        vec![Detail::new("library", known.library), Detail::new("key", key), Detail::new("type", kind)];
    Ok(Some(LockView {
        name: key.to_owned(),
        mode: "foreign".into(),
        capacity: None,
        holders,
        waiters: Vec::new(),
        votes: Vec::new(),
        details,
    }))
}

fn is_polylatch(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| LockValue::parse(text).is_some())
}

/// Whose lock it looks like, and its holders: what tells them apart, what they say, how they hold.
struct Known {
    library: &'static str,
    holders: Vec<(Vec<u8>, String, &'static str)>,
}

/// A hash whose fields are `UUID:THREAD`, with counts, and `mode` if it is a read-write lock.
fn redisson(fields: &[Data]) -> Result<Option<Known>> {
    let (mut holders, mut mode, mut odd) = (Vec::new(), None, false);
    for pair in fields.chunks_exact(2) {
        let (field, value) = (pair[0].text()?, pair[1].text()?);
        if field == "mode" && matches!(&*value, "read" | "write") {
            mode = Some(if value == "read" { "read" } else { "write" });
            continue;
        }
        let (owner, writes) = match field.strip_suffix(":write") {
            Some(owner) => (owner, true),
            None => (field.as_str(), false),
        };
        let (Some((client, thread)), Ok(times)) = (owner.split_once(':'), value.parse::<u32>()) else {
            odd = true;
            break;
        };
        if !is_uuid(client) || thread.parse::<i64>().is_err() {
            odd = true;
            break;
        }
        let again = if times > 1 { format!(", {times} times") } else { String::new() };
        let label = format!("client {}, thread {thread}{again}", &client[..8]);
        holders.push((field.clone().into_bytes(), label, if writes { "write" } else { "read" }));
    }
    if odd || holders.is_empty() {
        return Ok(None);
    }
    let library = match mode {
        Some(_) => "Redisson read-write lock",
        None => {
            holders.iter_mut().for_each(|(_, _, mode)| *mode = "mutex");
            "Redisson lock"
        }
    };
    Ok(Some(Known { library, holders }))
}

/// A string whose value proves ownership. The value itself is never shown: it is the right to release.
fn plain(key: &str, value: &[u8]) -> Option<Known> {
    if value.is_empty() {
        return None;
    }
    let known =
        |library, label: String| Some(Known { library, holders: vec![(value.to_vec(), label, "mutex")] });
    let Ok(text) = std::str::from_utf8(value) else {
        return (value.len() == 20 || value.len() == 24)
            .then(|| known("random bytes, as of rslock", String::new()))
            .flatten();
    };
    if let Some(ours) = LockValue::parse(text) {
        let client = ours.client;
        return known("Polylatch under another prefix", format!("{client} {}", ours.label).trim().to_owned());
    }
    if let Some((time, rest)) = text.strip_prefix("ADDED:").and_then(|rest| rest.split_once('@')) {
        let host = rest.split(':').next().unwrap_or_default();
        return known("ShedLock", format!("{host}, since {time}"));
    }
    if let Some((place, guid)) = text.rsplit_once('_')
        && (is_uuid(guid) || is_hex(guid, 32))
        && let Some((machine, pid)) = place.rsplit_once('_')
        && pid.parse::<u32>().is_ok()
    {
        return known("DistributedLock (.NET)", format!("{machine} pid {pid}"));
    }
    let base64 = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'=' | b'-' | b'_');
    if is_hex(text, 32) {
        return known("32 hexadecimal digits, as of redis-py or node-redlock", String::new());
    }
    if is_uuid(text) {
        return known("a UUID, as of RedLock.net, pottery or redlock-rb", String::new());
    }
    if text.len() == 24 && text.bytes().all(base64) {
        let library = if key.starts_with("lock:") { "python-redis-lock" } else { "base64, as of redsync" };
        return known(library, String::new());
    }
    // Of a key that was asked for, a short text that is no number may be anybody's lock.
    let readable = text.len() <= 128 && !text.chars().any(char::is_control) && text.parse::<f64>().is_err();
    if readable { known("an unknown library", String::new()) } else { None }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Tells owners apart without giving their secret away, as for our own owner tokens.
fn digest(owner: &[u8]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in owner {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{:08x}", (hash >> 32) as u32 ^ hash as u32)
}

fn refused(refusal: &crate::backend::redis::transport::port::Refusal) -> Error {
    Error::new(
        ErrorKind::BackendRejected,
        format!(
            "the server refuses to list keys ({} {}); allow SCAN to this user, or leave the pattern out",
            refusal.code, refusal.detail
        ),
    )
}

fn unknown() -> Error {
    Error::new(ErrorKind::Internal, "a scan answered in an unknown form; please report this")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0b1c9f8e-1111-4222-8333-444455556666";

    fn library(key: &str, value: &str) -> Option<(&'static str, String)> {
        plain(key, value.as_bytes()).map(|known| (known.library, known.holders[0].1.clone()))
    }

    #[test]
    fn plain_strings_are_told_by_their_form() {
        let is = |key, value: &str, part: &str| {
            let (library, _) = library(key, value).unwrap_or_else(|| panic!("{value} is nobody's"));
            assert!(library.contains(part), "{value}: {library}");
        };
        is("a", "0123456789abcdef0123456789abcdef", "redis-py");
        is("a", UUID, "UUID");
        is("lock:a", "AAECAwQFBgcICQoLDA0ODw==", "python-redis-lock");
        is("a", "AAECAwQFBgcICQoLDA0ODw==", "redsync");
        is("a", "whatever", "unknown");
        assert_eq!(
            library("a", &format!("web_1_4711_{UUID}")),
            Some(("DistributedLock (.NET)", "web_1 pid 4711".into()))
        );
        assert_eq!(
            library("job-lock:default:x", "ADDED:2026-11-20T10:00:00Z@web-1:9b1c"),
            Some(("ShedLock", "web-1, since 2026-11-20T10:00:00Z".into()))
        );
        for value in ["", "17", "3.5", &"x".repeat(200), "a\nb"] {
            assert_eq!(library("a", value), None, "{value}");
        }
    }

    #[test]
    fn a_redisson_hash_is_told_with_its_threads_and_other_hashes_are_not() {
        let data = |pairs: &[(&str, &str)]| -> Vec<Data> {
            let bytes = |text: &str| Data::Bytes(text.as_bytes().to_vec());
            pairs.iter().flat_map(|(field, value)| [bytes(field), bytes(value)]).collect()
        };
        let (one, two) = (format!("{UUID}:1"), format!("{UUID}:17:write"));
        let known = redisson(&data(&[(&one, "2")])).unwrap().unwrap();
        assert_eq!((known.library, known.holders[0].2), ("Redisson lock", "mutex"));
        assert_eq!(known.holders[0].1, "client 0b1c9f8e, thread 1, 2 times");
        let known = redisson(&data(&[("mode", "write"), (&two, "1")])).unwrap().unwrap();
        assert_eq!((known.library, known.holders[0].2), ("Redisson read-write lock", "write"));
        for pairs in [&[("name", "ann")][..], &[("a:1", "1")], &[("mode", "read")], &[]] {
            assert!(redisson(&data(pairs)).unwrap().is_none(), "{pairs:?}");
        }
    }
}
