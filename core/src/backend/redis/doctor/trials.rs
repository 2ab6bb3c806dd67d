//! Tries what locks need, one command at a time, without touching a lock.
//!
//! There is one throw-away key, a string with an expiry. Redis checks permissions before it looks at
//! types, so a command for another type answers `WRONGTYPE` if it is allowed, and changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::redis::backend::Inner;
use crate::backend::redis::protocol::call::Data;
use crate::backend::redis::protocol::scripts;
use crate::backend::redis::transport::port::{Pushes, Refusal};
use crate::clock::Instant;
use crate::error::Result;
use crate::name::LockName;
use crate::token::OwnerToken;

/// How long a push may take to come back.
const ECHO_LIMIT: Duration = Duration::from_secs(1);

/// One tried command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trial {
    /// As in an ACL rule, such as `zadd`.
    pub command: &'static str,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    /// The user may not run it.
    NoCommand,
    /// The user may run it, but not on keys of this prefix.
    NoKeys,
    /// The user may run it, but not on channels of this prefix.
    NoChannels,
    /// The server does not know it.
    Missing,
    NotTried,
}

/// What came of a message to oneself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Push {
    Heard(Duration),
    /// The server refuses the subscription.
    NotSubscribed,
    /// Publishing is refused.
    NotPublished(String),
    /// Published, but nothing came within a second.
    Silent,
}

/// Every command that locks need, each with harmless arguments. `KEY` stands for the throw-away key,
/// `NONE` for a key that does not exist, `CHANNEL` for a channel of this prefix that nobody hears.
///
/// DEL comes first and SET next: without them nothing else is tried that could leave data behind.
pub(crate) const COMMANDS: [(&str, &[&str]); 34] = [
    ("del", &["DEL", "NONE"]),
    ("set", &["SET", "KEY", "0", "PX", "10000"]),
    ("get", &["GET", "KEY"]),
    ("mget", &["MGET", "KEY"]),
    ("exists", &["EXISTS", "KEY"]),
    ("pexpire", &["PEXPIRE", "KEY", "10000"]),
    ("pttl", &["PTTL", "KEY"]),
    ("type", &["TYPE", "KEY"]),
    ("incr", &["INCR", "KEY"]),
    ("hset", &["HSET", "KEY", "a", "0"]),
    ("hget", &["HGET", "KEY", "a"]),
    ("hdel", &["HDEL", "KEY", "a"]),
    ("hmget", &["HMGET", "KEY", "a"]),
    ("hgetall", &["HGETALL", "KEY"]),
    ("lpush", &["LPUSH", "KEY", "0"]),
    ("lrange", &["LRANGE", "KEY", "0", "0"]),
    ("ltrim", &["LTRIM", "KEY", "0", "0"]),
    ("zadd", &["ZADD", "KEY", "0", "0"]),
    ("zcard", &["ZCARD", "KEY"]),
    ("zcount", &["ZCOUNT", "KEY", "0", "0"]),
    ("zrange", &["ZRANGE", "KEY", "0", "0"]),
    ("zrangebyscore", &["ZRANGEBYSCORE", "KEY", "0", "0"]),
    ("zrank", &["ZRANK", "KEY", "0"]),
    ("zrem", &["ZREM", "KEY", "0"]),
    ("zremrangebyscore", &["ZREMRANGEBYSCORE", "KEY", "0", "0"]),
    ("zremrangebyrank", &["ZREMRANGEBYRANK", "KEY", "0", "0"]),
    ("zscore", &["ZSCORE", "KEY", "0"]),
    ("time", &["TIME"]),
    ("publish", &["PUBLISH", "CHANNEL", "0"]),
    ("pubsub", &["PUBSUB", "SHARDNUMSUB"]),
    ("info", &["INFO", "server"]),
    ("eval", &["EVAL", "return 1", "0"]),
    ("evalsha", &["EVALSHA", "0000000000000000000000000000000000000000", "0"]),
    ("wait", &["WAIT", "0", "1"]),
];

/// Commands that would make a key if the throw-away key were not there.
const MAKERS: [&str; 4] = ["incr", "hset", "lpush", "zadd"];

/// The commands that the scripts call, as in an ACL rule. Read from their text, so that this list
/// cannot fall behind them.
pub(crate) fn called_by_scripts() -> BTreeSet<String> {
    let scripts = [
        &scripts::POLL,
        &scripts::RELEASE,
        &scripts::CANCEL,
        &scripts::BREAK,
        &scripts::RENEW,
        &scripts::SHARED_POLL,
        &scripts::SHARED_RELEASE,
        &scripts::SHARED_CANCEL,
        &scripts::SHARED_RENEW,
        &scripts::CONVERT,
        &scripts::TAKE_ALL,
        &scripts::TOGETHER,
        &scripts::ANNOUNCE,
        &scripts::LIST,
        &scripts::PROBE,
        &scripts::SHOW,
        &scripts::PEOPLE,
    ];
    let mut called = BTreeSet::new();
    for script in scripts {
        for rest in script.text.split("call('").skip(1) {
            called.extend(rest.split('\'').next().map(str::to_lowercase));
        }
    }
    called
}

/// Tries every needed command. Also returns whether a write was carried out, and why it was refused if
/// it was, though permitted.
pub(crate) async fn run(inner: &Inner) -> Result<(Vec<Trial>, bool, Option<String>)> {
    let mark = OwnerToken::random()?.to_hex();
    let start = inner.protocol.keys.counter();
    let key = format!("{}doctor:{mark}", start.trim_end_matches("fence"));
    let channel = format!("{}doctor:{mark}", inner.protocol.keys.inbox_before());
    let called = called_by_scripts();
    let mut trials: Vec<Trial> = Vec::new();
    let mut refused = None;
    let mut made = false;
    for (command, words) in COMMANDS {
        let needed = called.contains(command)
            || matches!(command, "del" | "set" | "eval" | "evalsha")
            || (command == "wait" && inner.acknowledge.is_some());
        // Whether INFO may be called shows elsewhere, and only some set-ups need it. Listeners are counted where
        // clients listen in slots.
        let elsewhere = command == "info" || (command == "pubsub" && inner.port.pushes() != Pushes::InSlot);
        if !needed || elsewhere {
            continue;
        }
        let may_delete = trials.first().is_some_and(|del| del.outcome == Outcome::Allowed);
        if (command == "set" && !may_delete) || (MAKERS.contains(&command) && !made) {
            trials.push(Trial { command, outcome: Outcome::NotTried });
            continue;
        }
        let spelled = words.iter().map(|word| match *word {
            "KEY" => key.clone(),
            "NONE" => format!("{key}:none"),
            "CHANNEL" => channel.clone(),
            other => other.to_owned(),
        });
        let answer = inner.port.ask(spelled.collect()).await?;
        made |= command == "set" && answer.is_ok();
        if let Err(refusal) = &answer
            && matches!(command, "set")
            && !is_permission(refusal)
        {
            refused = Some(refusal.code.clone());
        }
        trials.push(Trial { command, outcome: outcome(&answer) });
    }
    if made {
        // It would go by itself after ten seconds.
        let _ = inner.port.ask(vec!["DEL".into(), key]).await?;
    }
    trials.push(lock_key(inner, &mark).await?);
    Ok((trials, made, refused))
}

/// The key of a lock may be spelled in another way, which permissions may not cover. `XX` makes nothing.
async fn lock_key(inner: &Inner, mark: &str) -> Result<Trial> {
    let key = inner.protocol.keys.lock(&LockName::new(&format!("doctor/{mark}"))?);
    let words = ["SET", &key, "0", "XX", "PX", "1"].map(str::to_owned);
    let answer = inner.port.ask(words.to_vec()).await?;
    Ok(Trial { command: "the keys of locks", outcome: outcome(&answer) })
}

fn is_permission(refusal: &Refusal) -> bool {
    refusal.code == "NOPERM"
}

fn outcome(answer: &std::result::Result<Data, Refusal>) -> Outcome {
    let Err(refusal) = answer else { return Outcome::Allowed };
    // Redis 6 to 8 word these differently, but all name what is missing.
    if is_permission(refusal) {
        return match &refusal.detail {
            detail if detail.contains("channel") => Outcome::NoChannels,
            detail if detail.contains("key") => Outcome::NoKeys,
            _ => Outcome::NoCommand,
        };
    }
    if refusal.code == "ERR" && refusal.detail.to_lowercase().starts_with("unknown command") {
        return Outcome::Missing;
    }
    Outcome::Allowed
}

/// Sends a message to the client's own inbox and waits for it.
pub(crate) async fn push(inner: &Arc<Inner>) -> Result<Push> {
    drop(inner.listens(ECHO_LIMIT).await);
    if !inner.may_listen() {
        return Ok(Push::NotSubscribed);
    }
    let mark = OwnerToken::random()?;
    let mut echo = inner.own.echo.subscribe();
    let deadline = Instant::now() + ECHO_LIMIT;
    // The first subscription may still be coming up.
    while inner.is_opening() && Instant::now() < deadline {
        sleep(inner, Duration::from_millis(20)).await;
    }
    if !inner.inboxes.may_listen() {
        return Ok(Push::NotSubscribed);
    }
    let (verb, channel) = inner.inbox();
    let sent = Instant::now();
    let message = format!("echo|{}|0", mark.to_hex());
    if let Err(refusal) = inner.port.ask(vec![verb.into(), channel, message]).await? {
        return Ok(Push::NotPublished(refusal.code));
    }
    let limit = {
        let _context = inner.runtime.enter();
        tokio::time::timeout(ECHO_LIMIT, echo.wait_for(|heard| *heard == Some(mark)))
    };
    Ok(match limit.await {
        Ok(Ok(_)) => Push::Heard(sent.elapsed()),
        _ => Push::Silent,
    })
}

async fn sleep(inner: &Inner, time: Duration) {
    let sleep = {
        let _context = inner.runtime.enter();
        tokio::time::sleep(time)
    };
    sleep.await;
}
