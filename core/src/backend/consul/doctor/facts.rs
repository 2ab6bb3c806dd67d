//! What can be seen of an agent and its servers. Whatever they refuse to tell is simply not there.

use std::net::IpAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::backend::consul::backend::Inner;
use crate::backend::consul::config::Address;
use crate::backend::consul::protocol::records::OWN_FLAGS;
use crate::backend::consul::protocol::view::lock_op;
use crate::backend::consul::transport::api::{NewSession, Op, Outcome, SessionInfo};
use crate::backend::consul::transport::errors::{no_leader, unknown_node};
use crate::clock::Instant;
use crate::error::{Error, ErrorKind, Result};

/// Round trips that are timed.
const TRIPS: usize = 8;

/// How long a change may take until the agent tells of it.
const PUSH_LIMIT: Duration = Duration::from_secs(2);

/// How bytes travel to the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transport {
    Unix,
    Tls,
    Plain { host: String, loopback: bool },
}

/// What came of something that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trial<T> {
    Did(T),
    Refused(String),
    NotTried,
}

impl<T> Trial<T> {
    pub(crate) fn worked(&self) -> bool {
        matches!(self, Self::Did(_))
    }
}

/// Everything that the judgement rests on.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub place: String,
    pub transport: Transport,
    pub has_token: bool,
    pub prefix: String,
    /// The length of leases, and the lock-delay of their sessions.
    pub lease: Duration,
    pub lock_delay: Duration,
    /// The datacenter and the node of sessions, if the URL names them.
    pub datacenter: Option<String>,
    pub node: Option<String>,
    pub checks: Vec<String>,
    /// `GET /v1/agent/self`; `None` if the token may not read the agent.
    pub agent: Option<Agent>,
    pub leader: Option<String>,
    pub servers: Vec<String>,
    pub session: Trial<SessionInfo>,
    pub write: Trial<()>,
    /// Whether a key whose session was destroyed was refused to the next session.
    pub delayed: Trial<bool>,
    /// How long a change took until a waiting request told of it.
    pub push: Trial<Duration>,
    pub trips: Vec<Duration>,
}

/// What an agent says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Agent {
    pub version: String,
    pub node: String,
    pub datacenter: String,
    pub is_server: bool,
    pub dev_mode: bool,
    pub acls: Option<bool>,
    pub session_ttl_min: Option<String>,
    pub connections: Option<u64>,
}

/// Errors: if no agent answers.
pub(crate) async fn gather(inner: &Inner) -> Result<Facts> {
    let config = &inner.config;
    let transport = match &config.address {
        Address::Unix(_) => Transport::Unix,
        Address::Tls { .. } => Transport::Tls,
        Address::Tcp { host, .. } => {
            let loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
            Transport::Plain { host: host.clone(), loopback }
        }
    };
    let mut facts = Facts {
        place: inner.api.place(),
        transport,
        has_token: config.token.is_some(),
        prefix: inner.keys.prefix().to_owned(),
        lease: config.lease,
        lock_delay: config.sessions.lock_delay_for(config.lease),
        datacenter: inner.api.datacenter(),
        node: config.sessions.node.clone(),
        checks: config.sessions.checks.clone(),
        agent: None,
        leader: read::<String>(inner, "/v1/status/leader").await?.filter(|leader| !leader.is_empty()),
        servers: read(inner, "/v1/status/peers").await?.unwrap_or_default(),
        session: Trial::NotTried,
        write: Trial::NotTried,
        delayed: Trial::NotTried,
        push: Trial::NotTried,
        trips: Vec::new(),
    };
    facts.agent = read::<Value>(inner, "/v1/agent/self").await?.map(|found| agent(&found));
    if facts.leader.is_some() {
        try_locks(inner, &mut facts).await?;
        for _ in 0..TRIPS {
            let started = Instant::now();
            if inner.api.look(&[Op::Tree(inner.keys.audit())]).await.is_err() {
                break;
            }
            facts.trips.push(started.elapsed());
        }
    }
    Ok(facts)
}

/// What a path says; `None` if that may not be known. An agent that does not answer is an error.
async fn read<T: DeserializeOwned>(inner: &Inner, path: &str) -> Result<Option<T>> {
    match inner.api.get(path, "").await {
        Ok(response) => Ok(serde_json::from_slice(&response.body).ok()),
        Err(error) => refused(error, &inner.api.place()).map(|_| None),
    }
}

/// The words of a refusal; other errors pass.
fn refused(error: Error, place: &str) -> Result<String> {
    match error.kind() {
        ErrorKind::BackendRejected => Ok(error.message().to_owned()),
        // The agent answers, but its servers do not, or do not know it.
        _ if [no_leader(place), unknown_node(place, None, None)]
            .iter()
            .any(|known| known.message() == error.message()) =>
        {
            Ok(error.message().to_owned())
        }
        _ => Err(error),
    }
}

fn agent(found: &Value) -> Agent {
    let text = |path: &str| found.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let flag = |path: &str| found.pointer(path).and_then(Value::as_bool);
    Agent {
        version: text("/Config/Version"),
        node: text("/Config/NodeName"),
        datacenter: text("/Config/Datacenter"),
        is_server: flag("/Config/Server").unwrap_or(false),
        dev_mode: flag("/DebugConfig/DevMode").unwrap_or(false),
        acls: flag("/DebugConfig/ACLsEnabled"),
        session_ttl_min: Some(text("/DebugConfig/SessionTTLMin")).filter(|text| !text.is_empty()),
        connections: found.pointer("/DebugConfig/HTTPMaxConnsPerClient").and_then(Value::as_u64),
    }
}

/// Makes a session as locks have it, locks a throw-away key with it, and loses it.
async fn try_locks(inner: &Inner, facts: &mut Facts) -> Result<()> {
    let session = match make(inner, facts.lock_delay.as_millis()).await {
        Ok(session) => session,
        Err(error) => {
            facts.session = Trial::Refused(refused(error, &inner.api.place())?);
            return Ok(());
        }
    };
    let key = format!("{}trial-{session}", inner.keys.inbox(&inner.client));
    let tried = with_session(inner, facts, &session, &key).await;
    // Whatever happened: nothing stays.
    let ended = inner.api.destroy_session(&session).await;
    tried?;
    ended?;
    if facts.write.worked() {
        let other = make(inner, 0).await?;
        let again = inner.api.transact(&[lock_op(key, Vec::new(), OWN_FLAGS, &other)]).await;
        inner.api.destroy_session(&other).await?;
        facts.delayed = match again? {
            Outcome::Done(_) => Trial::Did(false),
            Outcome::Refused(refused) => Trial::Did(refused.lock_delay()),
        };
    }
    Ok(())
}

async fn make(inner: &Inner, lock_delay_ms: u128) -> Result<String> {
    let options = &inner.config.sessions;
    let wanted = NewSession {
        name: "polylatch doctor".to_owned(),
        ttl: format!("{}ms", inner.config.min_lease.as_millis()),
        lock_delay: format!("{lock_delay_ms}ms"),
        behavior: "delete",
        node_checks: &options.checks,
        node: options.node.as_deref(),
    };
    inner.api.create_session(&wanted).await
}

async fn with_session(inner: &Inner, facts: &mut Facts, session: &str, key: &str) -> Result<()> {
    facts.session = match inner.api.renew_session(session).await? {
        Some(info) => Trial::Did(info),
        None => Trial::Refused("it had ended before it could be renewed".into()),
    };
    let index = match inner.api.transact(&[lock_op(key.to_owned(), Vec::new(), OWN_FLAGS, session)]).await {
        Ok(Outcome::Done(written)) => written.first().map_or(0, |entry| entry.modified),
        Ok(Outcome::Refused(refused)) => {
            facts.write = Trial::Refused(format!("{:?}", refused.causes));
            return Ok(());
        }
        Err(error) => {
            facts.write = Trial::Refused(refused(error, &inner.api.place())?);
            return Ok(());
        }
    };
    facts.write = Trial::Did(());
    let changed = async {
        let set = Op::Set { key: key.to_owned(), value: b"changed".to_vec(), flags: OWN_FLAGS };
        tokio::time::sleep(Duration::from_millis(20)).await;
        let started = Instant::now();
        inner.api.transact(&[set]).await.map(|_| started)
    };
    let (told, changed) = tokio::join!(inner.api.watch(key, false, index, PUSH_LIMIT), changed);
    facts.push = match (told, changed) {
        (Ok((seen, _)), Ok(started)) if seen > index => Trial::Did(started.elapsed()),
        (Ok(_), _) => Trial::Refused("a change was not told in time".into()),
        (Err(error), _) => Trial::Refused(refused(error, &inner.api.place())?),
    };
    Ok(())
}
