//! The port over the redis crate: a connection for commands on each runtime that calls, and one for
//! subscriptions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub, PubSubSink};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, Value};
use tokio::runtime::{self, Handle};
use tokio::sync::{Notify, watch};

use crate::backend::Reply;
use crate::backend::redis::config::Acknowledge;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::protocol::sentinels::Report;
use crate::backend::redis::transport::login::Login;
use crate::backend::redis::transport::port::{ChannelEvent, Listener, Port, Refusal, ServerFacts};
use crate::backend::redis::transport::replies::{
    classify, code, data, is_read_only, is_unknown_script, parse_info, refused_in_script,
};
use crate::backend::redis::transport::route::Way;
use crate::caller_driven::SharedConnection;
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::policy::backoff::Backoff;
use crate::wakeups::unpoisoned;

mod of_cluster;
mod promotions;
pub(crate) mod timers;

use timers::{AbortOnDrop, in_time, pause};

/// How many requests may wait for the connection's writer before callers are held back.
const REQUESTS_IN_FLIGHT: usize = 1024;

struct Shared {
    way: Way,
    login: Login,
    timeout: Duration,
    /// The client's own runtime.
    runtime: Handle,
    /// The present connections. A socket belongs to the event queue of one runtime, so that a caller
    /// inside a runtime is woken there, without a detour over another thread.
    present: Mutex<HashMap<Line, Connection>>,
    /// For how long grants wait for replicas, if they do: `WAIT` holds up what is sent after it.
    acknowledged_within: Duration,
    /// Held while connecting, so that callers share one attempt.
    connecting: tokio::sync::Mutex<u64>,
    most_replicas: AtomicU32,
    /// The server was asked how many replicas it has.
    knows_replicas: AtomicBool,
    /// Its latest connection, by [`CONNECTIONS`].
    latest: AtomicU64,
    /// Which was the latest when the server carried out the script that releases, which it knows since then.
    releases_with: AtomicU64,
    /// Promotions are followed.
    follows: AtomicBool,
    /// A Sentinel has told of a promotion, or may have before it was listened to.
    promoted: Notify,
    /// Changes when another server is master: subscriptions begin anew there.
    moved: watch::Sender<u64>,
    closed: Notify,
}

/// From how long a silence on, renewals take another connection than the one that does not answer: its lease may be
/// shorter than the time limit of a request.
const DOUBTFUL: Duration = Duration::from_millis(200);

/// How many connections all ports have begun to open: one that replaces another does not repeat its numbers.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// Which connection: that of a runtime, and which of those it is there.
type Line = (runtime::Id, Lane);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    /// All of it, in order: a cancellation must not overtake the request that it undoes.
    All,
    /// Renewals, where others wait for replicas.
    Renewals,
    /// Renewals, while the connection that they should take does not answer.
    Spare,
}

/// How commands leave.
#[derive(Debug, Clone, Copy, Default)]
struct Sending {
    /// By the line for renewals.
    renews: bool,
    /// Without company.
    at_once: bool,
}

/// One connection for commands.
#[derive(Clone)]
struct Connection {
    number: u64,
    commands: MultiplexedConnection,
    driven: SharedConnection,
}

/// A port over the network.
pub(crate) struct NativePort(Arc<Shared>);

impl NativePort {
    /// Reads what the configuration names (certificates). Connects later, when first needed.
    pub(crate) fn new(config: &RedisConfig, runtime: Handle) -> Result<Self> {
        let login = Login::new(config.database, config.user.as_deref(), config.password.as_ref());
        Ok(Self(Arc::new(Shared {
            way: Way::new(&config.place, &login, config.timeout, &runtime)?,
            login,
            timeout: config.timeout,
            runtime,
            present: Mutex::default(),
            acknowledged_within: config.acknowledge.map_or(Duration::ZERO, |acknowledge| acknowledge.within),
            connecting: tokio::sync::Mutex::new(0),
            most_replicas: AtomicU32::new(0),
            knows_replicas: AtomicBool::new(false),
            latest: AtomicU64::new(0),
            releases_with: AtomicU64::new(u64::MAX),
            follows: AtomicBool::new(false),
            promoted: Notify::new(),
            moved: watch::Sender::new(0),
            closed: Notify::new(),
        })))
    }
}

impl NativePort {
    /// As [`Port::run`], at a node of a cluster that is just being given the slot of these calls.
    pub(crate) fn run_asking(&self, calls: Vec<Call>) -> Reply<Vec<Result<Data>>> {
        Box::pin(Arc::clone(&self.0).run_asking(calls))
    }
}

impl Shared {
    /// For how long a server may take for an answer: replicas may be waited for meanwhile.
    fn longest_answer(&self) -> Duration {
        self.timeout.max(2 * self.acknowledged_within)
    }

    /// For how long a connection may be silent while an answer is due. A little longer than a request waits, so that
    /// its caller reads that no answer came, and not that the connection broke.
    fn longest_silence(&self) -> Duration {
        self.longest_answer() * 9 / 8
    }

    /// Which lane a request takes.
    fn lane(&self, runtime: runtime::Id, renews: bool) -> Lane {
        if !renews {
            return Lane::All;
        }
        let usual = if self.acknowledged_within.is_zero() { Lane::All } else { Lane::Renewals };
        let mut present = unpoisoned(&self.present);
        let is_doubtful = |connection: &Connection| connection.driven.silent_for() >= DOUBTFUL;
        if present.get(&(runtime, usual)).is_some_and(is_doubtful) {
            return Lane::Spare;
        }
        let spare = present.remove(&(runtime, Lane::Spare));
        drop(present);
        drop(spare);
        usual
    }

    /// A thread without a runtime uses the client's own.
    fn runtime_here(&self) -> Handle {
        Handle::try_current().unwrap_or_else(|_| self.runtime.clone())
    }

    /// The connection that a request may take.
    fn present(&self, id: Line) -> Option<Connection> {
        // One that is about to be given up would take the request along.
        let enough = self.longest_answer() * 7 / 8;
        let connection = unpoisoned(&self.present).get(&id).cloned();
        connection
            .filter(|connection| !connection.driven.has_ended() && connection.driven.silent_for() < enough)
    }

    async fn connection(self: &Arc<Self>, renews: bool) -> Result<(Line, Connection)> {
        let runtime = self.runtime_here();
        let id = (runtime.id(), self.lane(runtime.id(), renews));
        if let Some(connection) = self.present(id) {
            return Ok((id, connection));
        }
        let mut number = self.connecting.lock().await;
        if let Some(connection) = self.present(id) {
            return Ok((id, connection));
        }
        let shared = Arc::clone(self);
        let connecting = AbortOnDrop::spawn(&runtime, async move { shared.connect().await });
        let (commands, driven) = self.connected(connecting).await?;
        *number += 1;
        let connection = Connection { number: *number, commands, driven };
        unpoisoned(&self.present).insert(id, connection.clone());
        let present = Present { shared: Arc::downgrade(self), id, number: *number };
        let background = connection.driven.clone().background();
        runtime.spawn(async move {
            let _present = present;
            background.await;
        });
        Ok((id, connection))
    }

    /// Awaits a connection attempt.
    async fn connected<T>(&self, connecting: AbortOnDrop<Result<T>>) -> Result<T> {
        match in_time(&self.runtime, self.timeout, connecting).await {
            Some(Ok(result)) => result,
            Some(Err(ended)) if ended.is_panic() => Err(Error::new(
                ErrorKind::InvalidConfig,
                "the tokio runtime of this call has no I/O; build it with enable_io() or enable_all()",
            )),
            Some(Err(_)) => Err(Error::new(
                ErrorKind::Canceled,
                "the runtime was shut down while this client was connecting",
            )),
            None => Err(self.silent()),
        }
    }

    async fn connect(self: &Arc<Self>) -> Result<(MultiplexedConnection, SharedConnection)> {
        // Counted before anything can be answered on it.
        self.latest.fetch_max(CONNECTIONS.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let opened = self.way.open().await?;
        // Time limits are the driver's, so the crate's own are off.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(REQUESTS_IN_FLIGHT);
        let (commands, driver) =
            MultiplexedConnection::new_with_config(&self.login.now(), opened.stream, config)
                .await
                .map_err(|error| self.login_failed(error))?;
        self.follow_promotions();
        Ok((commands, SharedConnection::new(driver, opened.socket, opened.heard, self.longest_silence())))
    }

    fn login_failed(&self, error: RedisError) -> Error {
        let place = self.way.place();
        if error.kind() == redis::ErrorKind::AuthenticationFailed || code(&error) == Some("WRONGPASS") {
            return Error::new(
                ErrorKind::BackendRejected,
                format!(
                    "Redis at {place} refused the user name or password; check both in the URL (a server without a \
                     password refuses any)"
                ),
            );
        }
        match code(&error) {
            Some("NOAUTH") => Error::new(
                ErrorKind::BackendRejected,
                format!(
                    "Redis at {place} wants a password; write redis://:PASSWORD@HOST or use password_env="
                ),
            ),
            Some(_) if error.to_string().contains("switch database") => Error::new(
                ErrorKind::BackendRejected,
                format!(
                    "Redis at {place} refused the database of the URL; is its number too large for this server, or \
                     does the user lack +select?"
                ),
            ),
            Some(_) => classify(&error).with_effect(Effect::None),
            None => self.ended_at_once(error.to_string()),
        }
    }

    /// The connection ended before the first answer.
    fn ended_at_once(&self, cause: String) -> Error {
        let place = self.way.place();
        // With TLS 1.3 a server looks at the client's certificate when the handshake is over for the
        // client, so its refusal comes instead of the first answer.
        let (kind, way_out) = match self.way.is_tls() {
            true if cause.contains("alert") => (
                ErrorKind::BackendRejected,
                "it refused this client's TLS; it may want a client certificate, or another one (cert= and key=)",
            ),
            true => (
                ErrorKind::BackendUnavailable,
                "does it want a client certificate (cert= and key=), or is it no Redis?",
            ),
            false => (ErrorKind::BackendUnavailable, "does it want TLS (rediss://), or is it no Redis?"),
        };
        Error::new(kind, format!("Redis at {place} ended the connection at once; {way_out}"))
            .with_source(cause)
    }

    /// Drops a connection that turned out to be dead, unless it was replaced already.
    fn discard(&self, id: Line, number: u64) {
        let mut present = unpoisoned(&self.present);
        let connection = match present.get(&id) {
            Some(connection) if connection.number == number => present.remove(&id),
            _ => None,
        };
        drop(present);
        drop(connection);
    }

    async fn send(self: &Arc<Self>, commands: Vec<Cmd>, sending: Sending) -> Result<Vec<Value>> {
        let Sending { renews, at_once } = sending;
        let (id, mut connection) = self.connection(renews).await?;
        let driven = connection.driven.clone();
        let sent = match <[Cmd; 1]>::try_from(commands) {
            Ok([command]) => {
                let request = connection.commands.send_packed_command(&command);
                driven.call(request, at_once).await.map(|value| vec![value])
            }
            Err(commands) => {
                let mut pipeline = Pipeline::with_capacity(commands.len());
                let count = commands.len();
                for command in commands {
                    pipeline.add_command(command);
                }
                driven.call(connection.commands.send_packed_commands(&pipeline, 0, count), at_once).await
            }
        };
        // A demoted master keeps its connections: look for the master behind the address again.
        if sent.as_ref().is_ok_and(|replies| replies.iter().any(is_read_only)) {
            self.discard(id, connection.number);
        }
        sent.map_err(|error| {
            if error.is_unrecoverable_error() || error.is_connection_dropped() || error.is_io_error() {
                self.discard(id, connection.number);
            }
            classify(&error)
        })
    }

    async fn run(
        self: Arc<Self>,
        calls: Vec<Call>,
        acknowledge: Option<Acknowledge>,
    ) -> Result<Vec<Result<Data>>> {
        let mut commands: Vec<_> =
            calls.iter().map(|call| command("EVALSHA", &call.script.sha, call)).collect();
        if acknowledge.is_some() && !self.knows_replicas.load(Ordering::Relaxed) {
            Arc::clone(&self).ask_for_facts().await?;
        }
        let needed =
            acknowledge.map(|ack| (ack, ack.rule.needed(self.most_replicas.load(Ordering::Relaxed))));
        if let Some((ack, needed)) = needed {
            commands.push(wait_command(ack, needed));
        }
        let renews = calls.iter().all(|call| call.script.renews());
        let at_once = calls.iter().any(|call| call.script.gathers());
        let with = self.latest.load(Ordering::SeqCst);
        let mut replies = self.send(commands, Sending { renews, at_once }).await?;
        let mut acknowledged = needed.map(|_| replies.pop());
        let unknown: Vec<_> = (0..calls.len()).filter(|at| is_unknown_script(&replies[*at])).collect();
        if !unknown.is_empty() {
            // The server was restarted or its scripts were flushed: send the text this time.
            let mut again: Vec<_> =
                unknown.iter().map(|at| command("EVAL", &calls[*at].script.text, &calls[*at])).collect();
            if let Some((ack, needed)) = needed {
                again.push(wait_command(ack, needed));
            }
            let mut answers = self.send(again, Sending { renews, at_once }).await?;
            if needed.is_some() {
                acknowledged = Some(answers.pop());
            }
            for (at, answer) in unknown.into_iter().zip(answers) {
                replies[at] = answer;
            }
        }
        if calls.iter().any(|call| call.script.releases()) {
            self.releases_with.store(with, Ordering::SeqCst);
        }
        // What was refused altogether needs no replicas, and the refusal says more: a server that has become a
        // replica cannot wait for any.
        let all_refused = replies.iter().all(|reply| matches!(reply, Value::ServerError(_)));
        if let (Some((ack, needed)), Some(answer), false) = (needed, acknowledged, all_refused) {
            let confirmed = match answer {
                Some(Value::Int(count)) => u32::try_from(count).unwrap_or(0),
                Some(Value::ServerError(error)) => return Err(classify(&error.into())),
                _ => 0,
            };
            if confirmed < needed {
                return Err(Error::new(
                    ErrorKind::BackendUnavailable,
                    format!(
                        "only {confirmed} of the {needed} replicas that ack= asks for confirmed within {:?}; \
                         the lock was released",
                        ack.within
                    ),
                )
                .with_effect(Effect::Maybe));
            }
        }
        Ok(replies.into_iter().zip(&calls).map(|(reply, call)| answer(reply, call)).collect())
    }

    /// Runs scripts at a node that is just being given their slot: each is announced by `ASKING`, and sent as
    /// text, for want of a second chance.
    async fn run_asking(self: Arc<Self>, calls: Vec<Call>) -> Result<Vec<Result<Data>>> {
        let words =
            calls.iter().flat_map(|call| [redis::cmd("ASKING"), command("EVAL", &call.script.text, call)]);
        let replies = self.send(words.collect(), Sending::default()).await?;
        // Of each pair, the second is the answer.
        let answers =
            replies.into_iter().skip(1).step_by(2).zip(&calls).map(|(reply, call)| answer(reply, call));
        Ok(answers.collect())
    }

    /// The first question to a server, so it also finds out what is wrong with the address.
    async fn facts(self: Arc<Self>) -> Result<ServerFacts> {
        match in_time(&self.runtime, self.timeout, Arc::clone(&self).ask_for_facts()).await {
            Some(Err(error))
                if error.effect() == Effect::Maybe && error.kind() == ErrorKind::BackendUnavailable =>
            {
                Err(self.ended_at_once(error.to_string()))
            }
            Some(result) => result,
            None => Err(self.silent()),
        }
    }

    fn silent(&self) -> Error {
        Error::new(
            ErrorKind::BackendUnavailable,
            format!(
                "Redis at {} did not answer within {:?}; is the address right, and no TLS wanted there?",
                self.way.place(),
                self.timeout
            ),
        )
    }

    async fn ask_for_facts(self: Arc<Self>) -> Result<ServerFacts> {
        let mut replies = self.send(vec![redis::cmd("INFO")], Sending::default()).await?;
        let facts = match replies.pop() {
            Some(Value::ServerError(error)) if error.code() == "NOPERM" => {
                self.send(vec![redis::cmd("PING")], Sending::default())
                    .await?
                    .into_iter()
                    .try_for_each(|reply| data(reply).map(drop))?;
                ServerFacts::default()
            }
            Some(value) => match data(value)? {
                Data::Bytes(bytes) => parse_info(&String::from_utf8_lossy(&bytes)),
                _ => ServerFacts::default(),
            },
            None => ServerFacts::default(),
        };
        self.knows_replicas.store(true, Ordering::Relaxed);
        let most = self.most_replicas.fetch_max(facts.replicas, Ordering::Relaxed).max(facts.replicas);
        Ok(ServerFacts { replicas: most, ..facts })
    }

    async fn ask(self: Arc<Self>, words: Vec<String>) -> Result<std::result::Result<Data, Refusal>> {
        let mut command = Cmd::new();
        command.arg(words);
        let sent = self.send(vec![command], Sending::default());
        let replies = in_time(&self.runtime, self.timeout, sent).await;
        let mut replies = replies.unwrap_or_else(|| Err(self.silent()))?;
        Ok(match replies.pop() {
            Some(Value::ServerError(error)) => Err(Refusal {
                code: error.code().to_owned(),
                detail: error.details().unwrap_or_default().to_owned(),
            }),
            Some(value) => Ok(data(value)?),
            None => Ok(Data::Nil),
        })
    }

    /// Listens on one channel until it is confirmed that nobody can, or the connection ends.
    async fn listen(&self, channel: &str, listener: &Listener) -> Result<()> {
        let mut moved = self.moved.subscribe();
        let opening = async {
            let stream = self.way.open().await?.stream;
            let mut subscriber =
                PubSub::new(&self.login.now(), stream).await.map_err(|error| self.login_failed(error))?;
            subscriber.subscribe(channel).await.map_err(|error| classify(&error))?;
            Ok(subscriber)
        };
        let opened = in_time(&self.runtime, self.timeout, opening).await;
        let subscriber = opened.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::BackendUnavailable, "subscribing was not answered in time"))
        })?;
        listener(ChannelEvent::Subscribed);
        let (mut asking, mut messages) = subscriber.split();
        let mut quiet = Box::pin(pause(&self.runtime, self.timeout));
        let mut was_quiet = true;
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                _ = moved.changed() => None,
                still_there = &mut quiet => {
                    // A connection that is lost without notice is as quiet as one on which nothing is published.
                    if !still_there || was_quiet && !self.answers_ping(&mut asking).await {
                        return Ok(());
                    }
                    was_quiet = true;
                    quiet.set(pause(&self.runtime, self.timeout));
                    continue;
                }
            };
            let Some(message) = message else { return Ok(()) };
            was_quiet = false;
            listener(ChannelEvent::Message(message.get_payload_bytes().to_vec()));
        }
    }

    /// Whether the other end of a subscription is still there. A refusal is an answer, too.
    async fn answers_ping(&self, subscription: &mut PubSubSink) -> bool {
        let answer = in_time(&self.runtime, self.timeout, subscription.ping::<Value>()).await;
        answer.is_some_and(|answer| answer.is_ok() || answer.is_err_and(|error| error.code().is_some()))
    }
}

impl Port for NativePort {
    fn releases_at_once(&self) -> bool {
        self.0.releases_with.load(Ordering::SeqCst) == self.0.latest.load(Ordering::SeqCst)
            && self.0.present((self.0.runtime_here().id(), Lane::All)).is_some()
    }

    fn run(&self, calls: Vec<Call>, acknowledge: Option<Acknowledge>) -> Reply<Vec<Result<Data>>> {
        Box::pin(Arc::clone(&self.0).run(calls, acknowledge))
    }

    fn subscribe(&self, channel: String, listener: Listener) {
        let shared = Arc::clone(&self.0);
        let ended = Ended(Arc::clone(&listener));
        let runtime = Handle::try_current().unwrap_or_else(|_| self.0.runtime.clone());
        runtime.spawn(async move {
            let _ended = ended;
            let listening = async {
                let new_backoff = || Backoff::new(Duration::from_millis(20), Duration::from_secs(1), 1);
                let mut backoff = new_backoff();
                loop {
                    match shared.listen(&channel, &listener).await {
                        Ok(()) => backoff = new_backoff(),
                        Err(error) if error.kind() == ErrorKind::BackendRejected => {
                            listener(ChannelEvent::Refused(error.to_string()));
                            return;
                        }
                        Err(error) => tracing::debug!(%error, "subscription interrupted; subscribing again"),
                    }
                    listener(ChannelEvent::Interrupted);
                    if !pause(&shared.runtime, backoff.delay()).await {
                        return;
                    }
                }
            };
            tokio::select! {
                () = listening => {}
                () = shared.closed.notified() => {}
            }
        });
    }

    fn facts(&self) -> Reply<ServerFacts> {
        Box::pin(Arc::clone(&self.0).facts())
    }

    fn ask(&self, words: Vec<String>) -> Reply<std::result::Result<Data, Refusal>> {
        Box::pin(Arc::clone(&self.0).ask(words))
    }

    fn sentinels(&self) -> Option<Reply<Vec<Report>>> {
        self.0.way.sentinels()?;
        Some(Box::pin(Arc::clone(&self.0).reports()))
    }

    fn latest_connection(&self) -> Option<u64> {
        Some(self.0.latest.load(Ordering::SeqCst))
    }

    fn close(&self) {
        unpoisoned(&self.0.present).clear();
        self.0.closed.notify_waiters();
    }
}

impl Drop for NativePort {
    fn drop(&mut self) {
        self.close();
    }
}

/// Tells a listener that nothing comes any more, also if its runtime ends.
struct Ended(Listener);

impl Drop for Ended {
    fn drop(&mut self) {
        (self.0)(ChannelEvent::Ended);
    }
}

/// Lets go of a connection that has ended, or whose runtime has: a program may make many of those.
struct Present {
    shared: Weak<Shared>,
    id: Line,
    number: u64,
}

impl Drop for Present {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.discard(self.id, self.number);
        }
    }
}

/// What a script has answered.
fn answer(reply: Value, call: &Call) -> Result<Data> {
    match reply {
        Value::ServerError(error) => Err(error
            .details()
            .and_then(|detail| refused_in_script(detail, call.script))
            .unwrap_or_else(|| classify(&error.into()))),
        reply => data(reply),
    }
}

fn command(verb: &str, script: &str, call: &Call) -> Cmd {
    let words = || call.keys.iter().chain(&call.args);
    // Room for the verb and the number of keys, too.
    let bytes = words().map(String::len).sum::<usize>() + script.len() + 32;
    let mut command = Cmd::with_capacity(words().count() + 3, bytes);
    command.arg(verb).arg(script).arg(call.keys.len()).arg(&call.keys).arg(&call.args);
    command
}

fn wait_command(acknowledge: Acknowledge, needed: u32) -> Cmd {
    let mut command = redis::cmd("WAIT");
    // A limit of 0 would mean to wait for ever.
    command.arg(needed).arg((acknowledge.within.as_millis() as u64).max(1));
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::redis::config::RedisConfig;
    use crate::options;

    #[tokio::test]
    async fn a_port_that_replaces_another_does_not_repeat_the_numbers_of_its_connections() {
        // Nothing listens there; that a connection was begun is enough.
        let config = options::read("redis://127.0.0.1:1", RedisConfig::from_url).unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..2 {
            let port = NativePort::new(&config, Handle::current()).unwrap();
            assert!(port.facts().await.is_err());
            assert!(seen.insert(port.latest_connection()), "{seen:?}");
        }
    }
}
