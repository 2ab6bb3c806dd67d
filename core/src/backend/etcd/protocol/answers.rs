//! Answers of the JSON gateway. A field that is zero, false or empty is left out by the server.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Header {
    #[serde(deserialize_with = "number")]
    pub revision: u64,
    #[serde(deserialize_with = "number")]
    pub raft_term: u64,
}

/// A key and what is known of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    /// Lossy: a key that is no text is none of ours.
    #[serde(deserialize_with = "text")]
    pub key: String,
    #[serde(deserialize_with = "base64")]
    pub value: Vec<u8>,
    #[serde(rename = "create_revision", deserialize_with = "number")]
    pub created: u64,
    #[serde(deserialize_with = "number")]
    pub lease: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Range {
    pub header: Header,
    pub kvs: Vec<Entry>,
    pub more: bool,
    #[serde(deserialize_with = "number")]
    pub count: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Transaction {
    pub header: Header,
    pub succeeded: bool,
    pub responses: Vec<Part>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Part {
    #[serde(rename = "response_range")]
    pub range: Option<Range>,
    #[serde(rename = "response_txn")]
    pub transaction: Option<Transaction>,
}

impl Transaction {
    /// The keys that the operation at this place has found.
    pub(crate) fn found(&self, at: usize) -> &[Entry] {
        self.responses.get(at).and_then(|part| part.range.as_ref()).map_or(&[], |range| &range.kvs)
    }

    /// How many keys there are in the range of the operation at this place.
    pub(crate) fn count(&self, at: usize) -> u64 {
        self.responses.get(at).and_then(|part| part.range.as_ref()).map_or(0, |range| range.count)
    }

    pub(crate) fn inner(&self, at: usize) -> Option<&Transaction> {
        self.responses.get(at)?.transaction.as_ref()
    }
}

/// A lease as granted or renewed; a TTL of 0 means that there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Lease {
    pub header: Header,
    #[serde(rename = "ID", deserialize_with = "number")]
    pub id: u64,
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub ttl: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Token {
    pub token: String,
}

/// One message of a stream.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "T: DeserializeOwned"))]
pub(crate) struct Streamed<T> {
    pub result: Option<T>,
    pub error: Option<serde_json::Value>,
}

/// All whole messages of a stream.
pub(crate) fn stream<T: DeserializeOwned>(body: &[u8]) -> Vec<Streamed<T>> {
    body.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Whether a watch has said something after its beginning: an event, or that it ended.
pub(crate) fn has_news(body: &[u8]) -> bool {
    body.iter().filter(|byte| **byte == b'\n').count() >= 2
}

/// Whether a watch has told that its key was deleted.
pub(crate) fn is_deleted(body: &[u8]) -> bool {
    stream::<serde_json::Value>(body).into_iter().filter_map(|message| message.result).any(|said| {
        said["events"].as_array().is_some_and(|events| events.iter().any(|event| event["type"] == "DELETE"))
    })
}

/// `POST /v3/maintenance/status`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub header: Header,
    pub version: String,
    #[serde(rename = "dbSize", deserialize_with = "number")]
    pub size: u64,
    #[serde(deserialize_with = "number")]
    pub leader: u64,
    #[serde(rename = "isLearner")]
    pub is_learner: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Members {
    pub members: Vec<Member>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Member {
    pub name: String,
    #[serde(rename = "clientURLs")]
    pub client_urls: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Alarms {
    pub alarms: Vec<Alarm>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Alarm {
    pub alarm: String,
}

/// The message of a refusal, in any of the forms that versions have.
pub(crate) fn refusal(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let inner = value.get("error")?;
    let message = inner.get("message").or(Some(inner)).and_then(|text| text.as_str());
    message.map(str::to_owned)
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Number(u64),
    }
    match Written::deserialize(from)? {
        Written::Number(number) => Ok(number),
        Written::Text(text) => text.parse().map_err(D::Error::custom),
    }
}

fn base64<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(String::from_utf8_lossy(&base64(from)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // As etcd 3.4.23 wrote them.
    #[test]
    fn answers_are_read_as_the_server_writes_them() {
        let body = br#"{"header":{"cluster_id":"10144879847569953045","member_id":"12428976124636271536","revision":"2","raft_term":"2"},"responses":[{"response_txn":{"header":{}}},{"response_range":{"header":{"revision":"2"},"kvs":[{"key":"UC9hLzRl","create_revision":"2","mod_revision":"2","version":"1","value":"eHg=","lease":"78"}],"count":"1"}}]}"#;
        let answer: Transaction = serde_json::from_slice(body).unwrap();
        assert!(!answer.succeeded && !answer.inner(0).unwrap().succeeded);
        assert_eq!((answer.header.revision, answer.header.raft_term, answer.count(1)), (2, 2, 1));
        let entry = &answer.found(1)[0];
        assert_eq!((&*entry.key, &*entry.value, entry.created, entry.lease), ("P/a/4e", &b"xx"[..], 2, 78));
        assert!(answer.found(7).is_empty());
    }

    #[test]
    fn a_renewal_without_ttl_says_that_there_is_no_lease() {
        let body = b"{\"result\":{\"header\":{\"raft_term\":\"2\"},\"ID\":\"78\",\"TTL\":\"5\"}}\n{\"result\":{\"ID\":\"99\"}}\n{\"result\":{\"ID\"";
        let leases: Vec<_> = stream::<Lease>(body).into_iter().filter_map(|one| one.result).collect();
        assert_eq!(leases.iter().map(|lease| (lease.id, lease.ttl)).collect::<Vec<_>>(), [(78, 5), (99, 0)]);
    }

    #[test]
    fn a_watch_has_news_with_its_second_message() {
        assert!(!has_news(b"{\"result\":{\"created\":true}}\n"));
        assert!(!has_news(b"{\"result\":{\"created\":true}}\n{\"result\""));
        let canceled =
            b"{\"result\":{\"created\":true}}\n{\"result\":{\"canceled\":true,\"compact_revision\":\"9\"}}\n";
        assert!(has_news(canceled) && !is_deleted(canceled));
        let deleted =
            b"{\"result\":{\"created\":true}}\n{\"result\":{\"events\":[{\"type\":\"DELETE\",\"kv\":{}}]}}\n";
        assert!(has_news(deleted) && is_deleted(deleted));
    }

    #[test]
    fn refusals_are_read_in_every_form() {
        for body in [
            r#"{"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14}"#,
            r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}"#,
        ] {
            assert_eq!(refusal(body.as_bytes()).as_deref(), Some("etcdserver: no leader"));
        }
        assert_eq!(refusal(b"404 page not found"), None);
    }
}
