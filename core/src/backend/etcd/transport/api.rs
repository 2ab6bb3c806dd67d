//! Requests to the members in turn: one that fails is asked again last.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::address::Secret;
use crate::backend::http::{Port, Request, Response, Server, port_to};
use crate::clock::Instant;
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::host::HttpClient;
use crate::wakeups::unpoisoned;

use super::super::config::{EtcdConfig, Login};
use super::super::protocol::answers::{
    Lease, Range, Status, Token, Transaction, has_news, is_deleted, stream,
};
use super::super::protocol::requests;
use super::errors::{self, Refused};

/// What messages of the connections call a member.
static ETCD: Server = Server {
    name: "etcd",
    process: "a member",
    plain_scheme: "etcd",
    tls_scheme: "etcd+https",
    lets_pages_ask: "--cors",
};

/// How long one request waits for the end of a key. Then another one begins.
const WATCH_LIMIT: Duration = Duration::from_secs(600);

/// How many watches a client has over a program's own connections. A browser opens six to a server, for all its pages
/// together, and a renewal must never wait for one.
const HOSTED_WATCHES: usize = 2;

/// The members of one etcd.
pub(crate) struct Api {
    ports: Vec<Box<dyn Port>>,
    /// Which member is asked first.
    current: AtomicUsize,
    /// Room for watches; without end where the connections are our own.
    watches: Option<Semaphore>,
    login: Option<Login>,
    token: Mutex<Option<Secret>>,
    prefix: String,
    timeout: Duration,
}

/// Whether a request may be carried out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Harmless,
    /// Its answer would be another one.
    Never,
}

impl Api {
    pub(crate) fn new(config: &EtcdConfig, hosted: Option<&Arc<dyn HttpClient>>) -> Result<Self> {
        let ports = config.members.iter().map(|member| port_to(&ETCD, member, hosted));
        Ok(Self {
            ports: ports.collect::<Result<_>>()?,
            current: AtomicUsize::new(0),
            watches: hosted.map(|_| Semaphore::new(HOSTED_WATCHES)),
            login: config.login.clone(),
            token: Mutex::default(),
            prefix: config.keys.all(),
            // The caller gives up after the whole of it.
            timeout: config.timeout * 9 / 10,
        })
    }

    /// Carries out a transaction that does the same when it is carried out twice.
    pub(crate) async fn transact(&self, transaction: &Value) -> Result<Transaction> {
        self.ask("/v3/kv/txn", transaction, Repeat::Harmless).await
    }

    /// The same for one that is answered otherwise the second time.
    pub(crate) async fn transact_once(&self, transaction: &Value) -> Result<Transaction> {
        self.ask("/v3/kv/txn", transaction, Repeat::Never).await
    }

    pub(crate) async fn range(&self, range: &Value) -> Result<Range> {
        self.ask("/v3/kv/range", range, Repeat::Harmless).await
    }

    /// A question about the cluster.
    pub(crate) async fn query<T: DeserializeOwned>(&self, path: &'static str, body: &Value) -> Result<T> {
        self.ask(path, body, Repeat::Harmless).await
    }

    /// Creates a lease. A lease that was created by an answer that got lost has no keys, and expires.
    pub(crate) async fn grant(&self, lease: i64, seconds: u64) -> Result<Lease> {
        self.ask("/v3/lease/grant", &requests::grant(lease, seconds), Repeat::Never).await
    }

    /// Ends a lease, and with it its keys. `false` if there is no such lease.
    pub(crate) async fn revoke(&self, lease: i64) -> Result<bool> {
        let body = requests::revoke(lease).to_string().into_bytes();
        let (response, at) = self.send("/v3/lease/revoke", &body, Repeat::Harmless).await?;
        match response.status {
            200 => Ok(true),
            _ if errors::refused(&response) == Refused::NoLease => Ok(false),
            _ => Err(self.error(&response, at)),
        }
    }

    /// Renews leases in one request. Answers in their order; a TTL of 0 means that there is none.
    pub(crate) async fn keep_alive(&self, leases: &[i64]) -> Result<Vec<Lease>> {
        let body = requests::keep_alive(leases.iter().copied());
        let (response, at) = self.send("/v3/lease/keepalive", &body, Repeat::Harmless).await?;
        let mut renewed = Vec::with_capacity(leases.len());
        for message in stream::<Lease>(&response.body) {
            if let Some(refused) = message.error {
                let body = json!({ "error": refused }).to_string().into_bytes();
                return Err(self.error(&Response { status: 503, body, ..response }, at));
            }
            renewed.extend(message.result);
        }
        match renewed.len() == leases.len() {
            true => Ok(renewed),
            false if response.status == 200 => Err(Error::new(
                ErrorKind::BackendUnavailable,
                format!("etcd at {} broke off its answer to a renewal", self.place(at)),
            )
            .with_effect(Effect::Maybe)),
            false => Err(self.error(&response, at)),
        }
    }

    /// Waits until a key is deleted, for ten minutes at most.
    pub(crate) async fn watch_end(&self, key: &str, revision: u64) -> Result<()> {
        let room = self.watches.as_ref().map(Semaphore::try_acquire).transpose();
        let _room = room.map_err(|_| {
            Error::new(ErrorKind::BackendUnavailable, "other waiters of this client have all of its watches")
        })?;
        let body = requests::watch_end(key, revision).to_string().into_bytes();
        let at = self.at();
        let response = match self.send_to(at, "/v3/watch", &body, WATCH_LIMIT, Some(has_news)).await {
            // A host that cannot read an answer in parts could not read that of the next watch.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                tokio::time::sleep(WATCH_LIMIT).await;
                return Err(error);
            }
            answer => answer?,
        };
        match response.status {
            200 if is_deleted(&response.body) => Ok(()),
            // Such as one from a revision that was compacted.
            200 => Err(Error::new(ErrorKind::BackendUnavailable, "the member ended the watch")),
            _ => Err(self.error(&response, at)),
        }
    }

    /// What each member says of itself.
    pub(crate) async fn statuses(&self) -> Vec<(String, Result<Status>)> {
        let mut statuses = Vec::new();
        for at in 0..self.ports.len() {
            let answer = self.send_to(at, "/v3/maintenance/status", b"{}", self.timeout, None).await;
            let status = answer.and_then(|response| self.read(&response, at));
            statuses.push((self.place(at), status));
        }
        statuses
    }

    pub(crate) fn close(&self) {
        self.ports.iter().for_each(|port| port.close());
    }

    async fn ask<T: DeserializeOwned>(&self, path: &'static str, body: &Value, repeat: Repeat) -> Result<T> {
        let (response, at) = self.send(path, body.to_string().as_bytes(), repeat).await?;
        self.read(&response, at)
    }

    fn read<T: DeserializeOwned>(&self, response: &Response, at: usize) -> Result<T> {
        if response.status != 200 {
            return Err(self.error(response, at));
        }
        serde_json::from_slice(&response.body)
            .map_err(|_| errors::unreadable(&response.body, &self.place(at)))
    }

    /// Asks one member after the other until one can answer, within the time limit of one request.
    async fn send(&self, path: &'static str, body: &[u8], repeat: Repeat) -> Result<(Response, usize)> {
        let started = Instant::now();
        let members = self.ports.len();
        for nth in 1.. {
            let at = self.at();
            let left = self.timeout.saturating_sub(started.elapsed());
            // A silent member leaves half of the time to the others.
            let limit = if nth < members { left / 2 } else { left };
            let failed = match self.send_to(at, path, body, limit, None).await {
                Ok(response) if response.status < 500 => return Ok((response, at)),
                Ok(response) => self.error(&response, at),
                Err(error) => error,
            };
            if failed.kind() != ErrorKind::BackendUnavailable {
                return Err(failed);
            }
            // Several requests that fail at once move on by one member.
            let next = (at + 1) % members;
            let _ = self.current.compare_exchange(at, next, Ordering::SeqCst, Ordering::SeqCst);
            let may_repeat = repeat == Repeat::Harmless || failed.effect() == Effect::None;
            if nth == members || !may_repeat || started.elapsed() >= self.timeout {
                return Err(failed);
            }
        }
        unreachable!("a loop without end returns")
    }

    /// Asks one member. An authentication token that is no longer accepted is replaced once.
    async fn send_to(
        &self,
        at: usize,
        path: &'static str,
        body: &[u8],
        limit: Duration,
        enough: Option<fn(&[u8]) -> bool>,
    ) -> Result<Response> {
        for first in [true, false] {
            let mut headers = Vec::new();
            if let Some(login) = &self.login {
                headers.push(("Authorization", self.token(login, at).await?));
            }
            let body = body.to_vec();
            let request = Request { method: "POST", target: path.into(), headers, body, limit, enough };
            let response = self.ports[at].request(request).await?;
            if first
                && self.login.is_some()
                && response.status != 200
                && errors::refused(&response) == Refused::StaleToken
            {
                // Nothing was carried out.
                *unpoisoned(&self.token) = None;
                continue;
            }
            return Ok(response);
        }
        unreachable!("the second answer is returned")
    }

    /// The token of this user (etcd, "Role-based access control").
    async fn token(&self, login: &Login, at: usize) -> Result<Secret> {
        if let Some(token) = unpoisoned(&self.token).clone() {
            return Ok(token);
        }
        let response = loop {
            let body = json!({"name": login.user, "password": login.password.latest().0});
            let request = Request {
                method: "POST",
                target: "/v3/auth/authenticate".into(),
                headers: Vec::new(),
                body: body.to_string().into_bytes(),
                limit: self.timeout,
                enough: None,
            };
            let response =
                self.ports[at].request(request).await.map_err(|error| error.with_effect(Effect::None))?;
            // It may have been rotated.
            if response.status == 200 || !login.password.read_again(|_| true) {
                break response;
            }
        };
        let token: Token = self.read(&response, at)?;
        let token = Secret(token.token);
        *unpoisoned(&self.token) = Some(token.clone());
        Ok(token)
    }

    fn error(&self, response: &Response, at: usize) -> Error {
        errors::error(response, &self.prefix, &self.place(at))
    }

    fn at(&self) -> usize {
        self.current.load(Ordering::SeqCst) % self.ports.len()
    }

    fn place(&self, at: usize) -> String {
        self.ports[at].place()
    }
}
