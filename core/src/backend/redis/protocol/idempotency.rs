//! Records of idempotent work: the requests, and what their answers say. A record is one hash.

use std::collections::HashMap;
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
    if answer.next().ok_or_else(no_answer)?.int()? == 2 {
        return Err(Error::new(
            ErrorKind::NameConflict,
            format!(
                "the key of the record {:?} in {:?} holds data that Polylatch did not write; it was not modified; use \
                 another key or another prefix",
                id.key, id.scope
            ),
        ));
    }
    let now_ms = answer.next().ok_or_else(no_answer)?.uint()?;
    let keep_ms = answer.next().ok_or_else(no_answer)?.int()?;
    let mut fields = HashMap::new();
    let mut list = answer.next().ok_or_else(no_answer)?.list()?.into_iter();
    while let (Some(field), Some(value)) = (list.next(), list.next()) {
        fields.insert(field.text()?, value);
    }
    // A field that is not there reads as empty.
    let text = |name: &str| fields.get(name).map_or(Ok(String::new()), Data::text);
    let number = |name: &str| Ok::<u64, Error>(text(name)?.parse().unwrap_or(0));
    if text("version")?.is_empty() {
        return Ok(None);
    }
    let state = State::parse(&text("state")?).ok_or_else(|| unreadable(id))?;
    let result = match fields.get("result") {
        Some(Data::Bytes(bytes)) => decoded(bytes).ok_or_else(|| unreadable(id))?,
        _ => Vec::new(),
    };
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(Some(Seen {
        version: number("version")?,
        lease_left: Duration::from_millis(number("ends_ms")?.saturating_sub(now_ms)),
        // -1: it has no expiry.
        keep_left: u64::try_from(keep_ms).ok().map(Duration::from_millis),
        written_ms: number("written_ms")?,
        result_bytes: number("result_bytes")?,
        record: Record {
            state,
            owner: OwnerToken::from_hex(&text("owner")?).unwrap_or(OwnerToken::UNREAD),
            fence: Some(number("fence")?),
            fingerprint: text("fingerprint")?,
            client: ClientId::from_stored(&text("client")?),
            runs: count(number("runs")?),
            lease: Duration::from_millis(number("lease_ms")?),
            renewals: count(number("renewals")?),
            result,
        },
    }))
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
