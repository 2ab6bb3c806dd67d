//! The port over a connection that the program brings along.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::backend::Reply;
use crate::backend::redis::config::Acknowledge;
use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::transport::port::{ChannelEvent, Listener, Port, Refusal, ServerFacts};
use crate::backend::redis::transport::replies::{parse_info, refusal, refused_in_script};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::host::{Failure, RedisConnection, RedisReply};

struct Shared {
    connection: Arc<dyn RedisConnection>,
    runtime: Handle,
    timeout: Duration,
}

/// A port over somebody else's connection.
pub(crate) struct HostedPort(Arc<Shared>);

impl HostedPort {
    pub(crate) fn new(connection: Arc<dyn RedisConnection>, runtime: Handle, timeout: Duration) -> Self {
        Self(Arc::new(Shared { connection, runtime, timeout }))
    }
}

impl Shared {
    /// Sends commands in order and waits for all of their replies.
    async fn send(&self, commands: Vec<Vec<String>>) -> Result<Vec<RedisReply>> {
        let under_way: Vec<_> = commands.into_iter().map(|words| self.connection.command(words)).collect();
        let mut replies = Vec::with_capacity(under_way.len());
        for reply in under_way {
            replies.push(reply.await.map_err(failed)?);
        }
        Ok(replies)
    }

    async fn run(self: Arc<Self>, calls: Vec<Call>) -> Result<Vec<Result<Data>>> {
        let by_sha = calls.iter().map(|call| words("EVALSHA", &call.script.sha, call)).collect();
        let mut replies = self.send(by_sha).await?;
        let unknown: Vec<_> = (0..calls.len()).filter(|at| is_unknown_script(&replies[*at])).collect();
        if !unknown.is_empty() {
            let by_text =
                unknown.iter().map(|at| words("EVAL", &calls[*at].script.text, &calls[*at])).collect();
            for (at, answer) in unknown.into_iter().zip(self.send(by_text).await?) {
                replies[at] = answer;
            }
        }
        let answers = replies.into_iter().zip(&calls).map(|(reply, call)| match &reply {
            RedisReply::Error(text) => {
                Err(refused_in_script(text_after_code(text), call.script).unwrap_or_else(|| refused(text)))
            }
            _ => data(reply),
        });
        Ok(answers.collect())
    }

    async fn facts(self: Arc<Self>) -> Result<ServerFacts> {
        match self.within(self.send(vec![vec!["INFO".into()]])).await?.pop() {
            Some(RedisReply::Bytes(text)) => Ok(parse_info(&String::from_utf8_lossy(&text))),
            // A proxy or a user that may not ask; whether it lets scripts run is seen now, not later.
            Some(RedisReply::Error(text)) if !is_login(&text) => {
                let ping = vec!["EVAL".to_owned(), "return 'polylatch'".to_owned(), "0".to_owned()];
                match self.within(self.send(vec![ping])).await?.pop() {
                    Some(RedisReply::Bytes(text)) if text == b"polylatch" => Ok(ServerFacts::default()),
                    Some(RedisReply::Error(text)) => Err(refused(&text)),
                    _ => Err(nonsense("another value than the script that it ran")),
                }
            }
            Some(RedisReply::Error(text)) => Err(refused(&text)),
            _ => Err(nonsense("no text to INFO")),
        }
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = {
            let _context = self.runtime.enter();
            tokio::time::timeout(self.timeout, work)
        };
        limit.await.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::BackendUnavailable,
                format!("the program's Redis connection did not answer within {:?}", self.timeout),
            )
            .with_effect(Effect::Maybe))
        })
    }

    async fn ask(self: Arc<Self>, words: Vec<String>) -> Result<std::result::Result<Data, Refusal>> {
        Ok(match self.within(self.send(vec![words])).await?.pop() {
            Some(RedisReply::Error(text)) => {
                let (code, detail) = text.split_once(' ').unwrap_or((&text, ""));
                Err(Refusal { code: code.to_owned(), detail: detail.to_owned() })
            }
            Some(reply) => Ok(data(reply)?),
            None => Ok(Data::Nil),
        })
    }
}

impl Port for HostedPort {
    fn run(&self, calls: Vec<Call>, acknowledge: Option<Acknowledge>) -> Reply<Vec<Result<Data>>> {
        // `WAIT` holds up a connection, which others may use here; refused when the client connected.
        debug_assert!(acknowledge.is_none());
        Box::pin(Arc::clone(&self.0).run(calls))
    }

    fn subscribe(&self, channel: String, listener: Listener) {
        let shared = Arc::clone(&self.0);
        let heard = Arc::clone(&listener);
        let confirmed = shared
            .connection
            .subscribe(channel, Arc::new(move |message| heard(ChannelEvent::Message(message))));
        self.0.runtime.spawn(async move {
            let confirmed = async { confirmed.await.map_err(failed) };
            match shared.within(confirmed).await {
                Ok(()) => listener(ChannelEvent::Subscribed),
                Err(error) => listener(ChannelEvent::Refused(error.to_string())),
            }
        });
    }

    fn facts(&self) -> Reply<ServerFacts> {
        Box::pin(Arc::clone(&self.0).facts())
    }

    fn ask(&self, words: Vec<String>) -> Reply<std::result::Result<Data, Refusal>> {
        Box::pin(Arc::clone(&self.0).ask(words))
    }

    fn close(&self) {
        self.0.connection.close();
    }
}

fn words(verb: &str, script: &str, call: &Call) -> Vec<String> {
    let first = [verb.to_owned(), script.to_owned(), call.keys.len().to_string()];
    first.into_iter().chain(call.keys.iter().cloned()).chain(call.args.iter().cloned()).collect()
}

fn is_unknown_script(reply: &RedisReply) -> bool {
    matches!(reply, RedisReply::Error(text) if text.starts_with("NOSCRIPT"))
}

fn is_login(text: &str) -> bool {
    ["NOAUTH", "WRONGPASS"].iter().any(|code| text.starts_with(code))
}

fn text_after_code(text: &str) -> &str {
    text.split_once(' ').map_or("", |(_, detail)| detail)
}

fn refused(text: &str) -> Error {
    let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
    refusal(Some(code), Some(detail).filter(|detail| !detail.is_empty()))
}

fn data(reply: RedisReply) -> Result<Data> {
    Ok(match reply {
        RedisReply::Nil => Data::Nil,
        RedisReply::Int(number) => Data::Int(number),
        RedisReply::Bytes(bytes) => Data::Bytes(bytes),
        RedisReply::List(items) => Data::List(items.into_iter().map(data).collect::<Result<_>>()?),
        RedisReply::Error(text) => return Err(refused(&text)),
    })
}

fn failed(failure: Failure) -> Error {
    match failure {
        Failure::Broken(cause) => Error::new(
            ErrorKind::BackendUnavailable,
            "the program's Redis connection failed; see its own error, and whether the server is up",
        )
        .with_effect(Effect::Maybe)
        .with_source(cause),
        Failure::Nonsense(what) => nonsense(&what),
        Failure::Unsupported => {
            Error::new(ErrorKind::Unsupported, "the program's Redis connection cannot do this")
        }
    }
}

fn nonsense(what: &str) -> Error {
    Error::new(
        ErrorKind::BackendRejected,
        format!(
            "the program's Redis connection answered with {what}; a reply is a string, a number, nothing, or a list \
             of these, and a server's error is an error"
        ),
    )
    .with_effect(Effect::Maybe)
}
