//! The master of a service, as its Sentinels name it, and word of promotions.
//!
//! Every connection begins with the question who the master is; a subscription to every Sentinel says when
//! to ask again. Source: Redis documentation, "Guidelines for Redis clients with support for Redis
//! Sentinel"; replies as in "High availability with Redis Sentinel".

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, ServerError, Value};
use tokio::runtime::Handle;

use crate::address::bracketed;
use crate::backend::redis::config::{Address, Service};
use crate::backend::redis::protocol::sentinels::{Report, Word};
use crate::backend::redis::transport::login::Login;
use crate::backend::redis::transport::native::timers::{in_time, pause};
use crate::backend::redis::transport::replies::code;
use crate::backend::redis::transport::stream::{Opened, Opener};
use crate::error::{Error, ErrorKind, Result};
use crate::wakeups::unpoisoned;

/// How long the others may take after a majority has answered: one of them may know of a later promotion.
const GRACE: Duration = Duration::from_millis(20);

/// After how long without a message a subscription is probed.
const PROBE_AFTER: Duration = Duration::from_secs(3);

/// Finds the master of a service.
pub(crate) struct Sentinels {
    service: Service,
    openers: Vec<Opener>,
    login: Login,
    server_login: Login,
    /// Time limit of one Sentinel's answer.
    limit: Duration,
    /// Whose timers count: those of a caller may stand still.
    runtime: Handle,
    /// The master to which the latest connection was opened.
    master: Mutex<Option<(String, u16)>>,
}

impl Sentinels {
    pub(crate) fn new(
        service: Service,
        server_login: Login,
        timeout: Duration,
        runtime: Handle,
    ) -> Result<Self> {
        let openers = service
            .sentinels
            .iter()
            .map(|(host, port)| Opener::new("Sentinel", address(host.clone(), *port, &service)));
        let login = Login::new(0, service.user.as_deref(), service.password.as_ref());
        Ok(Self {
            openers: openers.collect::<Result<_>>()?,
            service,
            login,
            server_login,
            limit: timeout / 3,
            runtime,
            master: Mutex::default(),
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.openers.len()
    }

    pub(crate) fn service(&self) -> &str {
        &self.service.name
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.service.tls.is_some()
    }

    /// Where the latest connection leads, for people.
    pub(crate) fn place(&self) -> String {
        match &*unpoisoned(&self.master) {
            Some(master) => format!("{} (primary of {:?})", spelled(master), self.service.name),
            None => format!("the primary of {:?}", self.service.name),
        }
    }

    /// Connects to whoever is master now.
    pub(crate) async fn open(&self) -> Result<Opened> {
        let master = self.ask().await?;
        let opener = Opener::new("Redis", address(master.0.clone(), master.1, &self.service))?;
        let named = |error: Error| {
            let message = format!(
                "the Sentinels name {} as primary of {:?}: {}",
                spelled(&master),
                self.service.name,
                error.message()
            );
            Error::new(error.kind(), message).with_effect(error.effect())
        };
        self.refuse_replica(&opener).await.map_err(named)?;
        let opened = opener.open().await.map_err(named)?;
        *unpoisoned(&self.master) = Some(master);
        Ok(opened)
    }

    /// Says whether another server is master than the one to which the latest connection leads.
    pub(crate) async fn has_moved(&self) -> bool {
        let before = unpoisoned(&self.master).clone();
        match (before, self.ask().await) {
            (Some(before), Ok(now)) => before != now,
            _ => false,
        }
    }

    /// Asks all Sentinels, and believes the one that knows of the latest promotion among a majority.
    ///
    /// Errors: `invalid_config` if they do not know the service; `backend_rejected` if they refuse this client;
    /// `backend_unavailable` if none answers.
    async fn ask(&self) -> Result<(String, u16)> {
        let mut answers: FuturesUnordered<_> = (0..self.count()).map(|at| self.in_time(at)).collect();
        let (mut words, mut failed) = (Vec::new(), Vec::new());
        let mut grace = None;
        loop {
            let answer = match &mut grace {
                None => answers.next().await,
                Some(grace) => tokio::select! {
                    answer = answers.next() => answer,
                    _ = grace => None,
                },
            };
            match answer {
                Some((_, Ok(word))) => words.push(word),
                Some((place, Err(error))) => failed.push((place, error)),
                None => break,
            }
            if words.len() > self.count() / 2 && grace.is_none() {
                grace = Some(Box::pin(pause(&self.runtime, GRACE)));
            }
        }
        let latest = words.into_iter().max_by_key(|word| word.number("config-epoch").unwrap_or(0));
        latest.map(|word| word.master).ok_or_else(|| self.unanswered(failed))
    }

    /// What each of them says, for an examination.
    pub(crate) async fn reports(&self) -> Vec<Report> {
        let mut reports: Vec<Report> =
            (0..self.count()).map(|at| self.in_time(at)).collect::<FuturesUnordered<_>>().collect().await;
        reports.sort_by(|one, other| one.0.cmp(&other.0));
        reports
    }

    fn unanswered(&self, failed: Vec<(String, Error)>) -> Error {
        // What a person has to mend comes first; that they are down may be over soon.
        let worst = [ErrorKind::InvalidConfig, ErrorKind::BackendRejected];
        for kind in worst {
            if let Some((_, error)) = failed.iter().find(|(_, error)| error.kind() == kind) {
                return Error::new(kind, error.message().to_owned());
            }
        }
        let reasons: Vec<_> = failed.iter().map(|(_, error)| error.message()).collect();
        Error::new(
            ErrorKind::BackendUnavailable,
            format!(
                "no Sentinel names the primary of {:?}: {}; start them, or name other Sentinels in the URL (their usual \
                 port is 26379)",
                self.service.name,
                reasons.join("; ")
            ),
        )
    }

    async fn in_time(&self, at: usize) -> Report {
        let place = self.openers[at].place();
        let answer = in_time(&self.runtime, self.limit, self.ask_one(at)).await.unwrap_or_else(|| {
            Err(Error::new(
                ErrorKind::BackendUnavailable,
                format!("Sentinel at {place} did not answer within {:?}", self.limit),
            ))
        });
        (place, answer)
    }

    async fn ask_one(&self, at: usize) -> Result<Word> {
        let opener = &self.openers[at];
        let (service, place) = (self.service.name.as_str(), opener.place());
        let stream = opener.open().await?.stream;
        let login = self.login.now();
        let connecting = MultiplexedConnection::new_with_config(&login, stream, without_limits());
        let (mut commands, driver) = connecting.await.map_err(|error| refused_login(&error, &place))?;
        let asking = async move {
            let mut both = Pipeline::with_capacity(2);
            both.add_command(sentinel(&["GET-MASTER-ADDR-BY-NAME", service]));
            both.add_command(sentinel(&["MASTER", service]));
            let replies = commands.send_packed_commands(&both, 0, 2).await;
            let mut replies = replies.map_err(|error| ended(&error, &place))?.into_iter();
            let master = match replies.next() {
                Some(Value::Array(fields)) => two(&fields),
                Some(Value::Nil) => {
                    let all = commands.send_packed_command(&sentinel(&["MASTERS"])).await;
                    return Err(unknown_service(service, &place, all.ok()));
                }
                Some(Value::ServerError(error)) => return Err(refused(&error, &place)),
                _ => None,
            };
            let master = master.ok_or_else(|| {
                Error::new(ErrorKind::BackendRejected, format!("{place} does not answer as a Sentinel does"))
            })?;
            let fields = match replies.next() {
                Some(Value::Array(fields)) => pairs(&fields),
                _ => HashMap::new(),
            };
            Ok(Word { master, fields })
        };
        tokio::select! {
            answer = asking => answer,
            () = driver => Err(Error::new(
                ErrorKind::BackendUnavailable,
                format!("Sentinel at {} ended the connection", opener.place()),
            )),
        }
    }

    /// A server that was demoted or has just come back may be named for a moment.
    async fn refuse_replica(&self, opener: &Opener) -> Result<()> {
        let stream = opener.open().await?.stream;
        let login = self.server_login.now();
        let connecting = MultiplexedConnection::new_with_config(&login, stream, without_limits());
        // What is wrong with the login is told by the connection that is opened next.
        let Ok((mut commands, driver)) = connecting.await else { return Ok(()) };
        let asking = async move { commands.send_packed_command(&redis::cmd("ROLE")).await };
        let role = tokio::select! {
            role = asking => role.ok(),
            () = driver => None,
        };
        match role {
            Some(Value::Array(fields)) if fields.first().and_then(text).as_deref() == Some("slave") => {
                Err(Error::new(
                    ErrorKind::BackendUnavailable,
                    "it is a replica, so a promotion is under way; try again in a moment, and if it stays so, name \
                     the primary in `sentinel monitor`",
                ))
            }
            // A user that may not ask finds out by READONLY.
            _ => Ok(()),
        }
    }

    /// Listens to one Sentinel until that ends, and tells of every promotion of this service, and of the
    /// moment from which on it is told.
    pub(crate) async fn listen(&self, at: usize, told: impl Fn()) -> Result<()> {
        let opener = &self.openers[at];
        let stream = opener.open().await?.stream;
        let mut subscriber = PubSub::new(&self.login.now(), stream)
            .await
            .map_err(|error| refused_login(&error, &opener.place()))?;
        subscriber.subscribe("+switch-master").await.map_err(|error| ended(&error, &opener.place()))?;
        told();
        let (mut asking, mut messages) = subscriber.split();
        loop {
            let Some(message) = in_time(&self.runtime, PROBE_AFTER, messages.next()).await else {
                // It may be gone without notice. A refusal is an answer, too.
                let answer = in_time(&self.runtime, self.limit, asking.ping::<Value>()).await;
                match answer {
                    Some(Ok(_)) => continue,
                    Some(Err(error)) if error.code().is_some() => continue,
                    _ => return Ok(()),
                }
            };
            let Some(message) = message else { return Ok(()) };
            // The service, then the old and the new address.
            let of = message.get_payload_bytes().split(|byte| *byte == b' ').next();
            if of == Some(self.service.name.as_bytes()) {
                told();
            }
        }
    }
}

fn address(host: String, port: u16, service: &Service) -> Address {
    match &service.tls {
        Some(files) => Address::Tls { host, port, files: files.clone() },
        None => Address::Tcp { host, port },
    }
}

fn spelled((host, port): &(String, u16)) -> String {
    format!("{}:{port}", bracketed(host))
}

fn without_limits() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None)
}

fn sentinel(words: &[&str]) -> Cmd {
    let mut command = redis::cmd("SENTINEL");
    command.arg(words);
    command
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

fn two(fields: &[Value]) -> Option<(String, u16)> {
    let [host, port] = fields else { return None };
    Some((text(host)?, text(port)?.parse().ok()?))
}

fn pairs(fields: &[Value]) -> HashMap<String, String> {
    fields.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect()
}

fn unknown_service(service: &str, place: &str, all: Option<Value>) -> Error {
    let known = match all {
        Some(Value::Array(masters)) => masters,
        _ => Vec::new(),
    };
    let names = known.iter().filter_map(|master| match master {
        Value::Array(fields) => pairs(fields).remove("name"),
        _ => None,
    });
    let names: Vec<_> = names.collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Error::new(
        ErrorKind::InvalidConfig,
        format!("Sentinel at {place} watches no service {service:?}; it watches {known}; correct the URL"),
    )
}

fn refused_login(error: &RedisError, place: &str) -> Error {
    match (error.kind(), code(error)) {
        (_, Some("NOAUTH")) => wants_password(place),
        (redis::ErrorKind::AuthenticationFailed, _) | (_, Some(_)) => Error::new(
            ErrorKind::BackendRejected,
            format!(
                "Sentinel at {place} refused the user name or password; check sentinel_user= and \
                 sentinel_password_env= (those of the servers stand before the @)"
            ),
        ),
        _ => ended(error, place),
    }
}

fn refused(error: &ServerError, place: &str) -> Error {
    let detail = error.details().unwrap_or_default();
    match error.code() {
        "NOAUTH" => wants_password(place),
        "NOPERM" => Error::new(
            ErrorKind::BackendRejected,
            format!(
                "the user of Sentinel at {place} lacks a permission; it needs +sentinel|get-master-addr-by-name \
                 +sentinel|master +subscribe and the channel +switch-master"
            ),
        ),
        _ if detail.contains("unknown command") => Error::new(
            ErrorKind::InvalidConfig,
            format!(
                "{place} is no Sentinel; name Sentinels in the URL (their usual port is 26379), or write redis:// \
                 for a single server"
            ),
        ),
        code => Error::new(
            ErrorKind::BackendRejected,
            format!("Sentinel at {place} refused the question ({code})"),
        ),
    }
}

fn wants_password(place: &str) -> Error {
    Error::new(
        ErrorKind::BackendRejected,
        format!("Sentinel at {place} wants a password; give it with sentinel_password_env="),
    )
}

fn ended(error: &RedisError, place: &str) -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        format!("Sentinel at {place} ended the connection at once; does it want TLS (rediss+sentinel://)?"),
    )
    .with_source(error.to_string())
}
