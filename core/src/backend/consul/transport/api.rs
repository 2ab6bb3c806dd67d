//! The calls of Consul's HTTP API that locks need, and what their answers mean.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize, Serializer};

use crate::address::Secret;
use crate::backend::consul::config::is_token;
use crate::backend::consul::transport::errors::{
    PLAIN, denies, misses_node, refusal, refuses_key, said, unknown_node, unreadable,
};
use crate::backend::http::{Port, Request, Response};
use crate::clock::millis;
use crate::credential::Credential;
use crate::error::{Effect, Error, Result};

/// Most operations of one transaction (Consul, "Transactions").
pub(crate) const MOST_OPERATIONS: usize = 64;

/// A path keeps its slashes; everything else that could mean something is escaped.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// One key-value pair.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Entry {
    pub key: String,
    pub value: Vec<u8>,
    pub flags: u64,
    /// Empty if no session holds it.
    pub session: String,
    pub created: u64,
    pub modified: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawEntry {
    key: String,
    value: Option<String>,
    #[serde(default)]
    flags: u64,
    #[serde(default)]
    session: Option<String>,
    create_index: u64,
    modify_index: u64,
}

impl From<RawEntry> for Entry {
    fn from(raw: RawEntry) -> Self {
        Self {
            key: raw.key,
            // A value that is no base64 is not ours; it is read as empty, never written back.
            value: raw.value.and_then(|text| BASE64.decode(text).ok()).unwrap_or_default(),
            flags: raw.flags,
            session: raw.session.unwrap_or_default(),
            created: raw.create_index,
            modified: raw.modify_index,
        }
    }
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Lock { key: String, value: Vec<u8>, flags: u64, session: String },
    Unlock { key: String, session: String },
    Set { key: String, value: Vec<u8>, flags: u64 },
    Delete(String),
    CheckIndex(String, u64),
    CheckSession(String, String),
    CheckMissing(String),
    Tree(String),
}

impl Op {
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Lock { key, .. } | Self::Unlock { key, .. } | Self::Set { key, .. } => key,
            Self::Delete(key)
            | Self::CheckIndex(key, _)
            | Self::CheckSession(key, _)
            | Self::CheckMissing(key)
            | Self::Tree(key) => key,
        }
    }
}

/// An operation as the server reads it.
#[derive(Serialize, Default)]
#[serde(rename_all = "PascalCase")]
struct Fields<'a> {
    verb: &'static str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
}

impl Serialize for Op {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Operation<'a> {
            #[serde(rename = "KV")]
            pair: Fields<'a>,
        }
        let fields = |verb| Fields { verb, key: self.key(), ..Fields::default() };
        let pair = match self {
            Self::Lock { value, flags, session, .. } => Fields {
                value: Some(BASE64.encode(value)),
                flags: Some(*flags),
                session: Some(session),
                ..fields("lock")
            },
            Self::Unlock { session, .. } => Fields { session: Some(session), ..fields("unlock") },
            Self::Set { value, flags, .. } => {
                Fields { value: Some(BASE64.encode(value)), flags: Some(*flags), ..fields("set") }
            }
            Self::Delete(_) => fields("delete"),
            Self::CheckIndex(_, index) => Fields { index: Some(*index), ..fields("check-index") },
            Self::CheckSession(_, session) => Fields { session: Some(session), ..fields("check-session") },
            Self::CheckMissing(_) => fields("check-not-exists"),
            Self::Tree(_) => fields("get-tree"),
        };
        Operation { pair }.serialize(serializer)
    }
}

/// Why a transaction was not carried out: nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The operations that could not be, with the server's words.
    pub causes: Vec<(usize, String)>,
}

impl Refused {
    /// A lock was asked for whose last session ended a moment ago.
    pub(crate) fn lock_delay(&self) -> bool {
        self.causes.iter().any(|(_, what)| said(what).contains("due to lock delay"))
    }

    /// An operation on this key could not be.
    pub(crate) fn concerns(&self, ops: &[Op], key: &str) -> bool {
        self.causes.iter().any(|(at, _)| ops.get(*at).is_some_and(|op| op.key() == key))
    }

    /// A lock was asked for with this session, which is no more.
    pub(crate) fn session_is_gone(&self, session: &str) -> bool {
        let names = |what: &str| said(what).contains("invalid session") && what.contains(session);
        self.causes.iter().any(|(_, what)| names(what))
    }
}

/// What came of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Carried out; the pairs that it wrote or read.
    Done(Vec<Entry>),
    Refused(Refused),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TxnAnswer {
    results: Option<Vec<TxnResult>>,
    errors: Option<Vec<TxnError>>,
}

#[derive(Deserialize)]
struct TxnResult {
    #[serde(rename = "KV")]
    pair: Option<RawEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TxnError {
    op_index: usize,
    what: String,
}

/// A session to be made.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NewSession<'a> {
    pub name: String,
    /// A duration as Go writes it, as is the next.
    #[serde(rename = "TTL")]
    pub ttl: String,
    pub lock_delay: String,
    /// What becomes of its keys when it ends.
    pub behavior: &'static str,
    pub node_checks: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<&'a str>,
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "ID")]
    id: String,
}

/// A session, as the server describes it.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
pub(crate) struct SessionInfo {
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(rename = "Name", default)]
    pub name: String,
    #[serde(rename = "Node", default)]
    pub node: String,
    #[serde(rename = "TTL", default)]
    pub ttl: String,
    /// Nanoseconds.
    #[serde(rename = "LockDelay", default)]
    pub lock_delay: u64,
    #[serde(rename = "Behavior", default)]
    pub behavior: String,
    #[serde(rename = "NodeChecks", default)]
    pub checks: Option<Vec<String>>,
}

/// One agent, with a token and a scope.
pub(crate) struct Api {
    port: Box<dyn Port>,
    token: Option<Credential>,
    scope: String,
    pub timeout: Duration,
    /// It was logged that a key was refused for its characters, and that answers have no index.
    told_of_key: AtomicBool,
    told_of_index: AtomicBool,
}

impl Api {
    pub(crate) fn new(
        port: Box<dyn Port>,
        token: Option<Credential>,
        scope: String,
        timeout: Duration,
    ) -> Self {
        let (told_of_key, told_of_index) = Default::default();
        Self { port, token, scope, timeout, told_of_key, told_of_index }
    }

    pub(crate) fn place(&self) -> String {
        self.port.place()
    }

    /// The datacenter, if the URL names one.
    pub(crate) fn datacenter(&self) -> Option<String> {
        let encoded = self.scope.split('&').find_map(|part| part.strip_prefix("dc="))?;
        Some(percent_decode_str(encoded).decode_utf8_lossy().into_owned())
    }

    pub(crate) fn close(&self) {
        self.port.close();
    }

    /// Sends one request within `limit` and returns what came back, whatever its status.
    pub(crate) async fn ask(
        &self,
        method: &'static str,
        path: &str,
        query: &str,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Response> {
        let path = utf8_percent_encode(path, PATH);
        let parts: Vec<_> = [query, &self.scope].into_iter().filter(|part| !part.is_empty()).collect();
        let mark = if parts.is_empty() { "" } else { "?" };
        let target = format!("{path}{mark}{}", parts.join("&"));
        let request = |body| {
            let headers = self
                .token
                .iter()
                .map(|token| ("x-consul-token", Secret(token.latest().0.trim().to_owned())))
                .collect();
            self.port.request(Request { method, target: target.clone(), headers, body, limit, enough: None })
        };
        let Some(token) = self.token.as_ref().filter(|token| token.can_change()) else {
            return request(body).await;
        };
        let response = request(body.clone()).await?;
        // What is refused for its token was not carried out.
        if response.status == 403 && token.read_again(is_token) { request(body).await } else { Ok(response) }
    }

    /// Sends one request and fails unless its status is 200.
    pub(crate) async fn get(&self, path: &str, query: &str) -> Result<Response> {
        let response = self.ask("GET", path, query, Vec::new(), self.timeout).await?;
        match response.status {
            200 => Ok(response),
            _ => Err(refusal(&response, path, &self.place())),
        }
    }

    /// Carries out a transaction, all of it or nothing.
    pub(crate) async fn transact(&self, ops: &[Op]) -> Result<Outcome> {
        self.transaction(ops, "").await
    }

    /// Carries out a transaction that only reads, at a leader that is certain to be one.
    pub(crate) async fn look(&self, ops: &[Op]) -> Result<Outcome> {
        self.transaction(ops, "consistent").await.map_err(|error| error.with_effect(Effect::None))
    }

    async fn transaction(&self, ops: &[Op], query: &str) -> Result<Outcome> {
        let body = serde_json::to_vec(ops).unwrap_or_default();
        let response = self.ask("PUT", "/v1/txn", query, body, self.timeout).await?;
        if response.status != 200 && response.status != 409 {
            return Err(refusal(&response, ops.first().map_or("", Op::key), &self.place()));
        }
        let Ok(answer) = serde_json::from_slice::<TxnAnswer>(&response.body) else {
            return Err(refusal_or_unreadable(&response, &self.place()));
        };
        let errors = answer.errors.unwrap_or_default();
        if response.status == 200 && errors.is_empty() {
            let results = answer.results.unwrap_or_default();
            return Ok(Outcome::Done(
                results.into_iter().filter_map(|one| one.pair).map(Entry::from).collect(),
            ));
        }
        // A missing permission is no conflict.
        if let Some(error) = errors.iter().find(|error| denies(&error.what)) {
            let key = ops.get(error.op_index).map_or("", Op::key);
            return Err(refusal(
                &Response { status: 403, index: None, body: error.what.clone().into_bytes() },
                key,
                &self.place(),
            ));
        }
        let causes = errors.into_iter().map(|error| (error.op_index, error.what)).collect();
        Ok(Outcome::Refused(Refused { causes }))
    }

    /// The pair at `path`, or all that begin with it, as soon as something has changed there since
    /// `index`, or after `wait`.
    pub(crate) async fn watch(
        &self,
        path: &str,
        recurse: bool,
        index: u64,
        wait: Duration,
    ) -> Result<(u64, Vec<Entry>)> {
        let recurse = if recurse { "recurse&" } else { "" };
        let query = format!("{recurse}consistent&index={index}&wait={}ms", millis(wait));
        // The server adds up to a sixteenth to the wait (Consul, "Blocking Queries").
        let limit = wait + wait / 8 + self.timeout;
        let response = self.ask("GET", &format!("/v1/kv/{path}"), &query, Vec::new(), limit).await?;
        if refuses_key(&response, path) {
            self.warn_of_key(path);
        }
        let entries = pairs(&response, path, &self.place())?;
        let index = response.index.unwrap_or(0);
        if index == 0 && !self.told_of_index.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "polylatch", event = "index_missing", place = self.place(),
                "answers have no X-Consul-Index: something between this client and the agent drops it, so changes \
                 are noticed by polling"
            );
        }
        Ok((index, entries))
    }

    /// Logs, once, that the servers do not tell of changes of such keys.
    pub(crate) fn warn_of_key(&self, key: &str) {
        if !self.told_of_key.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "polylatch", event = "key_refused", key, place = self.place(),
                "Consul accepts only {PLAIN} in keys, so changes of this one are not pushed and waiters poll; use \
                 names and a prefix of these characters"
            );
        }
    }

    /// Makes a session. Returns its id.
    pub(crate) async fn create_session(&self, session: &NewSession<'_>) -> Result<String> {
        let body = serde_json::to_vec(session).unwrap_or_default();
        let response = self.ask("PUT", "/v1/session/create", "", body, self.timeout).await?;
        if misses_node(&response) {
            return Err(unknown_node(&self.place(), session.node, self.datacenter().as_deref()));
        }
        if response.status != 200 {
            return Err(refusal(&response, "session", &self.place()));
        }
        let created: Created =
            serde_json::from_slice(&response.body).map_err(|_| unreadable(&response, &self.place()))?;
        Ok(created.id)
    }

    /// Extends a session by its TTL. `None` if there is no such session any more.
    pub(crate) async fn renew_session(&self, id: &str) -> Result<Option<SessionInfo>> {
        let path = format!("/v1/session/renew/{id}");
        let response = self.ask("PUT", &path, "", Vec::new(), self.timeout).await?;
        match response.status {
            200 => {
                let found: Vec<SessionInfo> = serde_json::from_slice(&response.body)
                    .map_err(|_| unreadable(&response, &self.place()))?;
                Ok(found.into_iter().next())
            }
            404 => Ok(None),
            _ => Err(refusal(&response, "session", &self.place())),
        }
    }

    pub(crate) async fn destroy_session(&self, id: &str) -> Result<()> {
        let path = format!("/v1/session/destroy/{id}");
        let response = self.ask("PUT", &path, "", Vec::new(), self.timeout).await?;
        match response.status {
            200 | 404 => Ok(()),
            _ => Err(refusal(&response, "session", &self.place())),
        }
    }
}

fn pairs(response: &Response, key: &str, place: &str) -> Result<Vec<Entry>> {
    match response.status {
        200 => {
            let raw: Vec<RawEntry> =
                serde_json::from_slice(&response.body).map_err(|_| unreadable(response, place))?;
            Ok(raw.into_iter().map(Entry::from).collect())
        }
        404 if response.body.is_empty() => Ok(Vec::new()),
        _ => Err(refusal(response, key, place)),
    }
    .map_err(|error| error.with_effect(Effect::None))
}

fn refusal_or_unreadable(response: &Response, place: &str) -> Error {
    if response.status == 200 { unreadable(response, place) } else { refusal(response, "", place) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::backend::Reply;
    use crate::backend::consul::config::ConsulConfig;

    #[test]
    fn operations_are_spelled_as_the_server_reads_them() {
        let lock =
            Op::Lock { key: "a/.lock".into(), value: b"hello".to_vec(), flags: 7, session: "s".into() };
        let wanted = json!({"KV": {"Verb": "lock", "Key": "a/.lock", "Value": "aGVsbG8=", "Flags": 7, "Session": "s"}});
        assert_eq!(json!(lock), wanted);
        assert_eq!(
            json!(Op::CheckMissing("a".into())),
            json!({"KV": {"Verb": "check-not-exists", "Key": "a"}})
        );
    }

    #[test]
    fn answers_that_are_no_json_never_panic() {
        for body in ["", "null", "[]", "{}", "[null]", "{\"Results\":[{\"KV\":null}]}", "\u{fffd}"] {
            let response = Response { status: 200, index: None, body: body.as_bytes().to_vec() };
            let _ = pairs(&response, "k", "h:1");
            let _ = serde_json::from_slice::<TxnAnswer>(&response.body);
        }
    }

    /// An agent that knows one token.
    struct Agent {
        knows: Arc<Mutex<String>>,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Port for Agent {
        fn request(&self, request: Request) -> Reply<Response> {
            let token = request.headers[0].1.0.clone();
            let status = if token == *self.knows.lock().unwrap() { 200 } else { 403 };
            self.asked.lock().unwrap().push(token);
            Box::pin(std::future::ready(Ok(Response { status, index: None, body: request.body })))
        }

        fn place(&self) -> String {
            "agent".into()
        }

        fn close(&self) {}
    }

    #[test]
    fn a_refused_token_is_read_again_from_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "old \n").unwrap();
        let url = format!("consul://agent?token_file={}", path.display());
        let config = crate::options::read(&url, ConsulConfig::from_url).unwrap();
        let (knows, asked) = (Arc::new(Mutex::new("old".to_owned())), Arc::default());
        let agent = Agent { knows: Arc::clone(&knows), asked: Arc::clone(&asked) };
        let api = Api::new(Box::new(agent), config.token, String::new(), Duration::from_secs(1));
        let ask = || {
            let asking = api.ask("PUT", "/v1/txn", "", b"body".to_vec(), Duration::from_secs(1));
            let response = pollster::block_on(asking).unwrap();
            (response.status, response.body, std::mem::take(&mut *asked.lock().unwrap()))
        };
        assert_eq!(ask(), (200, b"body".to_vec(), vec!["old".to_owned()]));
        "new".clone_into(&mut knows.lock().unwrap());
        // Not rotated yet: one request, and its refusal.
        assert_eq!((ask().0, ask().2.len()), (403, 1));
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(ask(), (200, b"body".to_vec(), vec!["old".to_owned(), "new".to_owned()]));
        assert_eq!(ask().2, ["new"]);
    }
}
