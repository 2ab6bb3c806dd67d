//! Records of idempotent work: the requests, and what their answers say. A record is one hash.

use std::time::Duration;

use super::call::{Call, Data, no_answer};
use super::keys::Keys;
use super::scripts::scripts;
use super::spelling::record_name;
use crate::backend::records::{Put, Swapped};
use crate::clock::millis;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::idempotency::{Record, RecordId, Seen, State};
use crate::token::{ClientId, OwnerToken};

scripts! {
    SWAP = "idem_swap";
    LOOK = "idem_look";
}

/// The fields that a listing reads.
const LISTED: [&str; 11] = [
    "version",
    "state",
    "fence",
    "fingerprint",
    "client",
    "runs",
    "lease_ms",
    "renewals",
    "ends_ms",
    "written_ms",
    "result_bytes",
];

pub(crate) fn read(keys: &Keys, id: &RecordId) -> Call {
    Call { script: &SWAP, keys: vec![keys.record(&record_name(id))], args: vec!["?".to_owned()] }
}

pub(crate) fn look(key: String) -> Call {
    Call { script: &LOOK, keys: vec![key], args: LISTED.map(str::to_owned).to_vec() }
}

pub(crate) fn swap(keys: &Keys, id: &RecordId, expected: Option<u64>, put: &Put) -> Call {
    let mut args = vec![expected.map(|version| version.to_string()).unwrap_or_default()];
    let ms = |time: &Option<Duration>| time.map(|time| millis(time).max(1).to_string()).unwrap_or_default();
    match put {
        Put::Delete => args.push("del".to_owned()),
        Put::Write { record, lease, keep } => {
            let fence = record.fence.map(|fence| fence.to_string()).unwrap_or_default();
            args.extend(["put".to_owned(), ms(lease), ms(keep), fence]);
            let fields = [
                ("state", record.state.code().to_owned()),
                ("owner", record.owner.to_hex()),
                ("fingerprint", record.fingerprint.clone()),
                ("client", record.client.to_string()),
                ("runs", record.runs.to_string()),
                ("lease_ms", millis(record.lease).to_string()),
                ("renewals", record.renewals.to_string()),
                ("result_bytes", record.result.len().to_string()),
                ("result", encoded(&record.result)),
            ];
            args.extend(fields.into_iter().flat_map(|(field, value)| [field.to_owned(), value]));
        }
    }
    Call { script: &SWAP, keys: vec![keys.record(&record_name(id))], args }
}

/// Reads the answer to [`swap`].
///
/// Errors: `name_conflict` for a key that holds another program's data; `backend_rejected` for a record of another
/// version of Polylatch.
pub(crate) fn swapped(id: &RecordId, answer: Data) -> Result<Swapped> {
    let answer = answer.list()?;
    match answer.first().ok_or_else(no_answer)?.int()? {
        1 => Ok(Swapped::Done { version: answer.get(1).ok_or_else(no_answer)?.uint()? }),
        _ => Ok(Swapped::Refused(seen(id, answer)?)),
    }
}

/// Reads the answer to [`read`] and [`look`].
pub(crate) fn seen_in(id: &RecordId, answer: Data) -> Result<Option<Seen>> {
    seen(id, answer.list()?)
}

fn seen(id: &RecordId, answer: Vec<Data>) -> Result<Option<Seen>> {
    let mut answer = answer.into_iter();
    match answer.next().ok_or_else(no_answer)?.int()? {
        2 => {
            return Err(Error::new(
                ErrorKind::NameConflict,
                format!(
                    "the key of the record {:?} in {:?} holds data that Polylatch did not write; it was not modified; use \
                     another key or another prefix",
                    id.key, id.scope
                ),
            ));
        }
        3 => return over(id, answer).map(Some),
        _ => {}
    }
    let (seconds, micros) = (answer.next().ok_or_else(no_answer)?, answer.next().ok_or_else(no_answer)?);
    let now_ms = seconds.uint()?.saturating_mul(1000).saturating_add(micros.uint()? / 1000);
    let keep_ms = answer.next().ok_or_else(no_answer)?.int()?;
    let fields = Fields(answer.next().ok_or_else(no_answer)?.list()?);
    if fields.text("version")?.is_empty() {
        return Ok(None);
    }
    let state = State::parse(&fields.text("state")?).ok_or_else(|| unreadable(id))?;
    let result = result_in(id, fields.get("result"))?;
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(Some(Seen {
        version: fields.number("version"),
        lease_left: Duration::from_millis(fields.number("ends_ms").saturating_sub(now_ms)),
        keep_left: kept_for(keep_ms),
        written_ms: fields.number("written_ms"),
        result_bytes: fields.number("result_bytes"),
        record: Record {
            state,
            owner: OwnerToken::from_hex(&fields.text("owner")?).unwrap_or(OwnerToken::UNREAD),
            fence: Some(fields.number("fence")),
            fingerprint: fields.text("fingerprint")?,
            client: ClientId::from_stored(&fields.text("client")?),
            runs: count(fields.number("runs")),
            lease: Duration::from_millis(fields.number("lease_ms")),
            renewals: count(fields.number("renewals")),
            result,
        },
    }))
}

/// Work that is over: version, retention, state, fingerprint and result. Of the rest nothing was read.
fn over(id: &RecordId, mut answer: impl Iterator<Item = Data>) -> Result<Seen> {
    let mut next = || answer.next().ok_or_else(no_answer);
    let (version, keep_ms) = (next()?.uint()?, next()?.int()?);
    let (state, fingerprint, result) = (next()?.text()?, next()?, next()?);
    let result = result_in(id, Some(&result))?;
    Ok(Seen {
        version,
        lease_left: Duration::ZERO,
        keep_left: kept_for(keep_ms),
        written_ms: 0,
        result_bytes: result.len() as u64,
        record: Record {
            state: State::parse(&state).ok_or_else(|| unreadable(id))?,
            owner: OwnerToken::UNREAD,
            fence: None,
            fingerprint: if fingerprint == Data::Nil { String::new() } else { fingerprint.text()? },
            client: ClientId::from_stored(""),
            runs: 0,
            lease: Duration::ZERO,
            renewals: 0,
            result,
        },
    })
}

/// -1: it has no expiry.
fn kept_for(keep_ms: i64) -> Option<Duration> {
    u64::try_from(keep_ms).ok().map(Duration::from_millis)
}

fn result_in(id: &RecordId, stored: Option<&Data>) -> Result<Vec<u8>> {
    match stored {
        Some(Data::Bytes(bytes)) => decoded(bytes).ok_or_else(|| unreadable(id)),
        _ => Ok(Vec::new()),
    }
}

/// A record as a script answers it: names and values in turn.
struct Fields(Vec<Data>);

impl Fields {
    fn get(&self, name: &str) -> Option<&Data> {
        let mut pairs = self.0.chunks_exact(2);
        pairs
            .find(|pair| matches!(&pair[0], Data::Bytes(bytes) if bytes == name.as_bytes()))
            .map(|pair| &pair[1])
    }

    /// A field that is not there reads as empty.
    fn text(&self, name: &str) -> Result<String> {
        self.get(name).map_or(Ok(String::new()), Data::text)
    }

    /// A field that is not there, or no number, reads as 0.
    fn number(&self, name: &str) -> u64 {
        self.get(name).and_then(|value| value.uint().ok()).unwrap_or(0)
    }
}

fn unreadable(id: &RecordId) -> Error {
    Error::new(
        ErrorKind::BackendRejected,
        format!(
            "the record {:?} in {:?} was written by another version of Polylatch in a form unknown here; use that version \
             or a newer one",
            id.key, id.scope
        ),
    )
}

/// A result as the argument of a script, which is text: as it is after `u`, or in hexadecimal digits after `h`.
fn encoded(result: &[u8]) -> String {
    match std::str::from_utf8(result) {
        Ok(text) => format!("u{text}"),
        Err(_) => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
            let digits = result.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
            std::iter::once('h').chain(digits).collect()
        }
    }
}

fn decoded(stored: &[u8]) -> Option<Vec<u8>> {
    let (first, rest) = stored.split_first()?;
    match first {
        b'u' => Some(rest.to_vec()),
        b'h' => {
            rest.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::idempotency::Kind;

    #[test]
    fn any_bytes_survive_the_way_to_a_script_and_back() {
        for bytes in [&b""[..], b"{\"a\":1}", "Größe".as_bytes(), &[0, 255, 254, 10, 13], b"u", b"h0"] {
            assert_eq!(decoded(encoded(bytes).as_bytes()).as_deref(), Some(bytes));
        }
        for wrong in [&b""[..], b"x1", b"hzz"] {
            assert_eq!(decoded(wrong), None);
        }
    }

    #[test]
    fn of_work_that_is_over_the_answer_is_read_and_whether_it_is_still_kept() {
        let id = RecordId::new(Kind::Key, "orders", "7").unwrap();
        let text = |text: &str| Data::Bytes(text.as_bytes().to_vec());
        for (keep_ms, is_expired) in [(0, true), (1, false), (-1, false)] {
            let answer =
                vec![Data::Int(3), text("9"), Data::Int(keep_ms), text("done"), Data::Nil, text("uok")];
            let Swapped::Refused(Some(seen)) = swapped(&id, Data::List(answer)).unwrap() else {
                panic!("over")
            };
            assert_eq!((seen.is_expired(), seen.version), (is_expired, 9), "{keep_ms}");
            assert_eq!((seen.record.state, &*seen.record.result), (State::Done, &b"ok"[..]));
            assert_eq!(seen.record.fingerprint, "");
        }
    }

    #[test]
    fn a_record_has_one_key_with_one_hash_tag_and_is_found_by_it() {
        let id = RecordId::new(Kind::Key, "orders/{7}", "a%b").unwrap();
        let keys = Keys::new("polylatch", None).unwrap();
        let key = keys.record(&record_name(&id));
        assert_eq!(key, "polylatch:{k%1Forders/%7B7%7D%1Fa%25b}:idem");
        let shard = keys.of_a_shard("42").record(&record_name(&id));
        assert_eq!(shard, "polylatch:{42}:{k%1Forders/%7B7%7D%1Fa%25b}:idem");
        for key in [key, shard] {
            let name = Keys::record_in(&key).unwrap();
            assert_eq!(super::super::spelling::record_of(name).as_ref(), Some(&id));
        }
        assert_eq!(Keys::record_in("polylatch:{a}:lock"), None);
    }
}
