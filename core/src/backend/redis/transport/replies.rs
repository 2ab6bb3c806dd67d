//! What a server's replies mean: data, facts, and errors with kind and effect.

use std::fmt;

#[cfg(not(target_family = "wasm"))]
use redis::{RedisError, ServerErrorKind, Value};

#[cfg(not(target_family = "wasm"))]
use crate::backend::redis::protocol::call::Data;
use crate::backend::redis::protocol::scripts::Script;
use crate::backend::redis::transport::port::ServerFacts;
#[cfg(not(target_family = "wasm"))]
use crate::error::Result;
use crate::error::{Effect, Error, ErrorKind};

#[cfg(not(target_family = "wasm"))]
pub(crate) fn is_unknown_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

#[cfg(not(target_family = "wasm"))]
pub(crate) fn is_read_only(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "READONLY")
}

/// Explains what a server says when a script meets a missing permission, without the code NOPERM: Redis 7.0 names the
/// line of the script, later ones and Valkey name the command.
pub(crate) fn refused_in_script(detail: &str, script: &Script) -> Option<Error> {
    let (keys, channels) =
        ("a pattern (~) for the keys of this prefix", "a pattern (&) for the channels of this prefix");
    let missing = if let Some(refused) = detail.strip_prefix("ACL failure in script: ") {
        let command =
            refused.split_once("permissions to run the '").and_then(|(_, rest)| rest.split('\'').next());
        match command {
            // A subcommand comes as command|subcommand, which is how a rule spells it.
            Some(command) => format!("+{}", command.to_lowercase()),
            None if refused.contains("channel") => channels.to_owned(),
            None => keys.to_owned(),
        }
    } else {
        let refused = detail.strip_prefix("The user executing the script can't ")?;
        if refused.starts_with("run") {
            let line: usize = detail.rsplit_once("@user_script:")?.1.trim_end_matches('.').parse().ok()?;
            let line = script.text.lines().nth(line.checked_sub(1)?)?;
            let commands = line.split("call('").skip(1).filter_map(|rest| rest.split('\'').next());
            let commands: Vec<_> = commands.map(|command| format!("+{}", command.to_lowercase())).collect();
            commands.join(" or ")
        } else if refused.starts_with("access") {
            keys.to_owned()
        } else {
            channels.to_owned()
        }
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
pub(crate) fn data(value: Value) -> Result<Data> {
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
pub(crate) fn code(error: &RedisError) -> Option<&str> {
    error.code()
}

/// Maps what the redis crate reports to kind and effect.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn classify(error: &RedisError) -> Error {
    match code(error) {
        None => refusal(None, None).with_source(error.to_string()),
        code => refusal(code, error.detail()),
    }
}

/// What a node of a cluster says in a script whose slot has left it, or is leaving it. There is no code for it, and the
/// texts differ between Redis 7.0 (the first one only) and later ones and Valkey.
const LEFT_IN_SCRIPT: [&str; 5] = [
    "attempted to access a non local key",
    "undeclared keys were accessed during rehashing of the slot",
    "attempted to access a slot not served",
    "attempted to access keys that don't hash to the same slot",
    "attempted to access keys that do not hash to the same slot",
];

/// What it says there if too many nodes are away.
const DOWN_IN_SCRIPT: [&str; 2] = [
    "attempted to execute a command while the cluster is down",
    "attempted to execute a write command while the cluster is down",
];

/// Maps a server's error reply, taken apart into its code and the rest, to kind and effect. Without a
/// code, there was no reply.
pub(crate) fn refusal(code: Option<&str>, detail: Option<&str>) -> Error {
    // The text of a script's error may repeat its arguments, among them an owner token, which must not get
    // into a message.
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
            "this Redis is a replica and refuses writes; connect to the primary, or wait until the promotion is over"
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
        Some(_) if detail.is_some_and(|detail| LEFT_IN_SCRIPT.iter().any(|text| detail.contains(text))) => {
            known(ErrorKind::BackendUnavailable, "a slot of the cluster is on its way to another node".into())
                .with_effect(Effect::Maybe)
                .with_source(Redirect::Began)
        }
        Some(_) if detail.is_some_and(|detail| DOWN_IN_SCRIPT.iter().any(|text| detail.contains(text))) => known(
            ErrorKind::BackendUnavailable,
            "the cluster is down, as this node sees it; look with redis-cli --cluster check HOST:PORT".into(),
        )
        .with_effect(Effect::Maybe),
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
        // An error that a script of ours raises says all that is needed.
        Some("ERR") if detail.is_some_and(|detail| detail.contains(RAISED)) => {
            let raised = detail.and_then(|detail| detail.split_once(RAISED)).unwrap_or_default().1;
            let raised = raised.split(" script: ").next().unwrap_or_default();
            known(ErrorKind::BackendRejected, without_owners(raised)).with_effect(Effect::Maybe)
        }
        Some(code) => {
            let said = detail.map(without_owners).filter(|said| !said.is_empty());
            let said = said.map(|said| format!(": {said}")).unwrap_or_default();
            known(ErrorKind::BackendRejected, format!("Redis refused the request ({code}{said})"))
                .with_effect(Effect::Maybe)
        }
        None => known(ErrorKind::BackendUnavailable, "the connection to Redis broke".into())
            .with_effect(Effect::Maybe),
    }
}

/// What an error begins with that a script of ours raises.
const RAISED: &str = "polylatch: ";

/// The text of an error for a message: at most 200 characters, none of them a control character, and without
/// what may be an owner token.
fn without_owners(text: &str) -> String {
    let mut plain = String::new();
    let mut digits = String::new();
    for next in text.chars().take(200).chain(['\n']) {
        if next.is_ascii_hexdigit() {
            digits.push(next);
            continue;
        }
        plain.push_str(if digits.len() < 16 { &digits } else { "…" });
        digits.clear();
        plain.push(if next.is_control() { ' ' } else { next });
    }
    plain.trim().to_owned()
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
pub(crate) enum Redirect {
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
    pub(crate) fn read(code: &str, detail: &str) -> Option<Self> {
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

pub(crate) fn parse_info(text: &str) -> ServerFacts {
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
        // Valkey has another name for the field.
        is_sentinel: [field("redis_mode"), field("server_mode")].contains(&Some("sentinel")),
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
    fn a_script_whose_slot_has_left_the_node_is_tried_again_whatever_server_says_it() {
        let of_script = " script: 94cb315f, on @user_script:12.";
        for text in LEFT_IN_SCRIPT.map(|text| format!("Script {text}{of_script}")).iter().chain([
            // Redis 8.0 and Valkey 8.1.
            &format!(
                "Command 'get' in script attempted to access keys that don't hash to the same slot{of_script}"
            ),
            &format!("Script attempted to access a slot not served{of_script}"),
            &format!(
                "Unable to execute command 'exists' in script because undeclared keys were accessed during rehashing \
                 of the slot{of_script}"
            ),
        ]) {
            let error = refusal(Some("ERR"), Some(text));
            assert_eq!(
                (error.kind(), error.effect()),
                (ErrorKind::BackendUnavailable, Effect::Maybe),
                "{text}"
            );
            assert_eq!(error.cause::<Redirect>(), Some(&Redirect::Began), "{text}");
        }
        let down = "Script attempted to execute a write command while the cluster is down and readonly";
        assert_eq!(refusal(Some("ERR"), Some(down)).kind(), ErrorKind::BackendUnavailable);
        let other = refusal(Some("ERR"), Some("Script attempted to access nonexistent global variable 'x'"));
        assert_eq!(other.kind(), ErrorKind::BackendRejected);
    }

    #[test]
    fn a_permission_that_a_script_lacks_is_named_whatever_server_says_it() {
        let script = Script::new("test", "local a = 1\nredis.call('SET', KEYS[1], a)\n".into());
        for (said, missing) in [
            (
                "The user executing the script can't run this command or subcommand script: 9, on @user_script:2.",
                "+set",
            ),
            (
                "ACL failure in script: User u has no permissions to run the 'set' command script: 9, on @user_script:2.",
                "+set",
            ),
            (
                "ACL failure in script: User u has no permissions to run the 'pubsub|numsub' command script: 9, on \
                 @user_script:2.",
                "+pubsub|numsub",
            ),
            ("ACL failure in script: No permissions to access a key script: 9, on @user_script:2.", "(~)"),
            (
                "ACL failure in script: No permissions to access a channel script: 9, on @user_script:2.",
                "(&)",
            ),
            ("The user executing the script can't publish to the channel mentioned in the command", "(&)"),
        ] {
            let error = refused_in_script(said, &script).expect(said);
            assert!(error.message().contains(missing), "{error}");
        }
        assert!(refused_in_script("no such thing", &script).is_none());
    }

    #[test]
    fn a_sentinel_is_known_by_the_field_of_either_server() {
        assert!(parse_info("redis_version:7.0.15\r\nredis_mode:sentinel\r\n").is_sentinel);
        assert!(parse_info("valkey_version:8.1.1\r\nserver_mode:sentinel\r\n").is_sentinel);
        assert!(!parse_info("valkey_version:8.1.1\r\nserver_mode:standalone\r\n").is_sentinel);
    }

    #[test]
    fn the_error_of_a_script_says_what_failed_and_names_no_owner() {
        let owner = "00112233445566778899aabbccddeeff";
        let detail = format!("user_script:7: bad argument '{owner}' script: 5ba1, on @user_script:7.");
        let message = refusal(Some("ERR"), Some(&detail)).to_string();
        assert!(message.contains("bad argument") && !message.contains("00112233"), "{message}");
        let raised = "user_script:4: polylatch: the counter is used up script: 5ba1, on @user_script:4.";
        assert_eq!(refusal(Some("ERR"), Some(raised)).message(), "the counter is used up");
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
