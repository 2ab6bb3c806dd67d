//! What a server's replies mean: data, facts, and errors with kind and effect.

use std::fmt;

#[cfg(not(target_family = "wasm"))]
use redis::{RedisError, ServerErrorKind, Value};

#[cfg(not(target_family = "wasm"))]
use crate::backend::redis::port::Data;
use crate::backend::redis::port::ServerFacts;
use crate::backend::redis::scripts::Script;
#[cfg(not(target_family = "wasm"))]
use crate::error::Result;
use crate::error::{Effect, Error, ErrorKind};

#[cfg(not(target_family = "wasm"))]
pub(super) fn is_unknown_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

#[cfg(not(target_family = "wasm"))]
pub(super) fn is_read_only(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "READONLY")
}

/// Explains what Redis 7.0 says when a script meets a missing permission: neither the code NOPERM nor
/// the command, but the line of the script.
pub(super) fn refused_in_script(detail: &str, script: &Script) -> Option<Error> {
    let refused = detail.strip_prefix("The user executing the script can't ")?;
    let missing = if refused.starts_with("run") {
        let line: usize = detail.rsplit_once("@user_script:")?.1.trim_end_matches('.').parse().ok()?;
        let line = script.text.lines().nth(line.checked_sub(1)?)?;
        let commands = line.split("call('").skip(1).filter_map(|rest| rest.split('\'').next());
        let commands: Vec<_> = commands.map(|command| format!("+{}", command.to_lowercase())).collect();
        commands.join(" or ")
    } else if refused.starts_with("access") {
        "a pattern (~) for the keys of this prefix".to_owned()
    } else {
        "a pattern (&) for the channels of this prefix".to_owned()
    };
    Some(
        Error::new(
            ErrorKind::BackendRejected,
            format!(
                "the Redis user lacks a permission: {missing}; see the list of needed commands, keys and channels \
                 in the documentation of the Redis backend"
            ),
        )
        .with_effect(Effect::Maybe),
    )
}

#[cfg(not(target_family = "wasm"))]
pub(super) fn data(value: Value) -> Result<Data> {
    Ok(match value {
        Value::Nil => Data::Nil,
        Value::Int(number) => Data::Int(number),
        Value::BulkString(bytes) => Data::Bytes(bytes),
        Value::SimpleString(text) => Data::Bytes(text.into_bytes()),
        Value::VerbatimString { text, .. } => Data::Bytes(text.into_bytes()),
        Value::Okay => Data::Bytes(b"OK".to_vec()),
        Value::Boolean(yes) => Data::Int(i64::from(yes)),
        Value::Array(items) | Value::Set(items) => {
            Data::List(items.into_iter().map(data).collect::<Result<_>>()?)
        }
        Value::ServerError(error) => return Err(classify(&error.into())),
        other => {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("Redis answered with an unexpected type; please report this: {other:?}"),
            ));
        }
    })
}

#[cfg(not(target_family = "wasm"))]
pub(super) fn code(error: &RedisError) -> Option<&str> {
    error.code()
}

/// Maps what the redis crate reports to kind and effect.
#[cfg(not(target_family = "wasm"))]
pub(super) fn classify(error: &RedisError) -> Error {
    match code(error) {
        None => refusal(None, None).with_source(error.to_string()),
        code => refusal(code, error.detail()),
    }
}

/// Maps a server's error reply, taken apart into its code and the rest, to kind and effect. Without a
/// code, there was no reply.
pub(super) fn refusal(code: Option<&str>, detail: Option<&str>) -> Error {
    // The text of a script's error may repeat its arguments, among them an owner token: only the
    // code and our own words go into the message.
    let known = |kind, message: String| Error::new(kind, message);
    match code {
        Some("WRONGTYPE") => known(
            ErrorKind::NameConflict,
            "the key of this lock holds foreign data of another type, which was left alone; use another name or \
             another prefix"
                .into(),
        ),
        Some("NOPERM") => known(
            ErrorKind::BackendRejected,
            format!(
                "the Redis user lacks a permission: {}; see the list of needed commands, keys and channels in the \
                 documentation of the Redis backend",
                detail.unwrap_or("no detail")
            ),
        ),
        Some("NOAUTH") => known(
            ErrorKind::BackendRejected,
            "Redis wants a password; write redis://:PASSWORD@HOST or use password_env=".into(),
        ),
        Some("WRONGPASS") => known(ErrorKind::BackendRejected, "Redis refused the user name or password".into()),
        // What WAIT says when its master is demoted meanwhile, or was.
        Some("UNBLOCKED") => became_a_replica(),
        Some("ERR") if detail.is_some_and(|detail| detail.starts_with("WAIT cannot be used with replica")) => {
            became_a_replica()
        }
        Some("READONLY") => known(
            ErrorKind::BackendUnavailable,
            "this Redis is a replica and refuses writes; connect to the master, or wait until the promotion is over"
                .into(),
        ),
        Some("OOM") => known(
            ErrorKind::BackendUnavailable,
            "the memory of Redis is full (maxmemory), so it grants nothing; free memory or raise the limit".into(),
        ),
        Some("MISCONF") => known(
            ErrorKind::BackendUnavailable,
            "Redis refuses writes because it cannot save its data (is its disk full?)".into(),
        ),
        Some("NOREPLICAS") => known(
            ErrorKind::BackendUnavailable,
            "Redis refuses writes because too few replicas are connected (min-replicas-to-write)".into(),
        ),
        Some(code @ ("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "BUSY" | "TRYAGAIN")) => {
            let error =
                known(ErrorKind::BackendUnavailable, format!("Redis is not ready ({code}); it was not asked"));
            if code == "TRYAGAIN" { error.with_source(Redirect::TryAgain) } else { error }
        }
        // A script began although one of the keys that it spells itself has moved already.
        Some(_) if detail.is_some_and(|detail| detail.contains("access a non local key")) => {
            known(ErrorKind::BackendUnavailable, "a slot of the cluster is on its way to another node".into())
                .with_effect(Effect::Maybe)
                .with_source(Redirect::Began)
        }
        Some(code @ ("MOVED" | "ASK" | "CROSSSLOT")) => {
            let error = known(
                ErrorKind::BackendRejected,
                format!(
                    "this Redis belongs to a cluster ({code}), but the URL names a single server; write redis+cluster://"
                ),
            );
            match Redirect::read(code, detail.unwrap_or_default()) {
                Some(redirect) => error.with_source(redirect),
                None => error,
            }
        }
        Some(code) => known(ErrorKind::BackendRejected, format!("Redis refused the request ({code})"))
            .with_effect(Effect::Maybe),
        None => known(ErrorKind::BackendUnavailable, "the connection to Redis broke".into())
            .with_effect(Effect::Maybe),
    }
}

fn became_a_replica() -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        "this Redis became a replica before its own replicas had confirmed; wait until the promotion is over",
    )
    .with_effect(Effect::Maybe)
}

/// Where a node of a cluster sends who asks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirect {
    /// For good.
    Moved { host: String, port: u16 },
    /// For this request.
    Ask { host: String, port: u16 },
    /// Nowhere yet: some of the keys have moved, and others have not.
    TryAgain,
    /// The same, found out by a script on its way.
    Began,
}

impl Redirect {
    /// Reads what follows the code: the slot, then the place. A node that does not know its own host leaves
    /// it out, and means the one that was asked.
    pub(super) fn read(code: &str, detail: &str) -> Option<Self> {
        let (host, port) = detail.split_once(' ')?.1.split_whitespace().next()?.rsplit_once(':')?;
        let (host, port) = (host.to_owned(), port.parse().ok()?);
        match code {
            "MOVED" => Some(Self::Moved { host, port }),
            "ASK" => Some(Self::Ask { host, port }),
            _ => None,
        }
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved { host, port } => write!(f, "moved to {host}:{port}"),
            Self::Ask { host, port } => write!(f, "asks to ask {host}:{port}"),
            Self::TryAgain | Self::Began => {
                f.write_str("some keys of the slot have moved, and others have not")
            }
        }
    }
}

impl std::error::Error for Redirect {}

pub(super) fn parse_info(text: &str) -> ServerFacts {
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    let number = |name| field(name).and_then(|text| text.parse().ok());
    ServerFacts {
        version: field("redis_version").map(str::to_owned),
        epoch: match (field("run_id"), field("master_replid")) {
            (Some(run), Some(replication)) => Some(format!("{run}:{replication}")),
            _ => None,
        },
        is_replica: field("role") == Some("slave"),
        replicas: number("connected_slaves").unwrap_or(0),
        // Redis tells the number of good replicas only where min-replicas-to-write is set.
        min_replicas_to_write: number("min_slaves_good_slaves"),
        max_memory: field("maxmemory").and_then(|text| text.parse().ok()),
        eviction_policy: field("maxmemory_policy").map(str::to_owned),
        is_cluster_node: field("cluster_enabled") == Some("1"),
        is_sentinel: field("redis_mode") == Some("sentinel"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_tells_epoch_replicas_and_eviction() {
        let facts = parse_info(
            "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n# Memory\r\nmaxmemory:1024\r\n\
             maxmemory_policy:allkeys-lru\r\n# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
             master_replid:def\r\n",
        );
        assert_eq!(facts.epoch.as_deref(), Some("abc:def"));
        assert_eq!((facts.replicas, facts.max_memory, facts.is_replica), (2, Some(1024), false));
        assert_eq!(facts.eviction_policy.as_deref(), Some("allkeys-lru"));
        assert_eq!(parse_info("").epoch, None);
    }

    #[test]
    fn a_master_that_is_demoted_while_replicas_are_waited_for_is_away_for_a_while() {
        let wait = "WAIT cannot be used with replica instances. Please also note that since Redis 4.0 …";
        for (code, detail) in [("UNBLOCKED", "force unblock from blocking operation"), ("ERR", wait)] {
            let error = refusal(Some(code), Some(detail));
            assert_eq!(
                (error.kind(), error.effect()),
                (ErrorKind::BackendUnavailable, Effect::Maybe),
                "{code}"
            );
        }
        assert_eq!(refusal(Some("ERR"), Some("no such thing")).kind(), ErrorKind::BackendRejected);
    }

    #[test]
    fn a_redirect_names_its_place() {
        let at = |host: &str| Redirect::Moved { host: host.into(), port: 6381 };
        assert_eq!(Redirect::read("MOVED", "3999 127.0.0.1:6381"), Some(at("127.0.0.1")));
        assert_eq!(Redirect::read("MOVED", "3999 2001:db8::1:6381"), Some(at("2001:db8::1")));
        assert_eq!(Redirect::read("MOVED", "3999 :6381"), Some(at("")));
        assert_eq!(Redirect::read("ASK", "x"), None);
    }
}
