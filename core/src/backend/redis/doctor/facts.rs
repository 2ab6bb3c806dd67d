//! What can be seen of a server. Whatever it refuses to tell is simply not there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::redis::backend::Inner;
use crate::backend::redis::config::AckRule;
use crate::backend::redis::doctor::Transport;
use crate::backend::redis::doctor::sharers::Sharers;
use crate::backend::redis::doctor::trials::{self, Push, Trial};
use crate::backend::redis::inspect::snapshot;
use crate::backend::redis::protocol::Guarantee;
use crate::backend::redis::protocol::call::Data;
use crate::backend::redis::protocol::records::{is_gate, longest_lease};
use crate::backend::redis::protocol::sentinels::Word;
use crate::backend::redis::transport::port::Port;
use crate::clock::{Instant, SystemTime, UNIX_EPOCH, millis};
use crate::error::{ErrorKind, Result};
use crate::snapshot::Query;

/// The settings that are read with `CONFIG GET`; none of them is a secret.
const SETTINGS: [&str; 9] = [
    "maxmemory",
    "maxmemory-policy",
    "appendonly",
    "appendfsync",
    "save",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "timeout",
    "client-output-buffer-limit",
];

/// Round trips that are timed.
const TRIPS: usize = 8;

/// Locks whose records are looked through.
const LOCKS: usize = 1000;

/// Everything that the judgement rests on.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub strict: bool,
    pub ack: Option<AckRule>,
    pub max_lease: Duration,
    pub transport: Transport,
    pub user: Option<String>,
    pub has_password: bool,
    /// How `redis-cli` is called for this server.
    pub cli: String,
    /// How keys, and channels, of this prefix start.
    pub keys_start: String,
    pub channels_start: String,
    pub counter_key: String,
    /// It is looked at as a part of a cluster.
    pub in_cluster: bool,
    /// What each Sentinel says, if Sentinels name the master.
    pub sentinels: Option<Vec<(String, std::result::Result<Word, String>)>>,
    /// The fields of `INFO`; `None` if this user may not call it.
    pub info: Option<HashMap<String, String>>,
    /// Settings as `CONFIG GET` tells them; those it does not tell are missing.
    pub settings: HashMap<String, String>,
    pub clock: Option<ServerClock>,
    pub trips: Vec<Duration>,
    pub trials: Vec<Trial>,
    /// A harmless write was carried out.
    pub wrote: bool,
    /// Why a harmless write was refused although the user may write, such as `OOM`.
    pub write_refused: Option<String>,
    pub push: Push,
    pub counter: Counter,
    pub locks: Locks,
    pub sharers: Sharers,
}

/// The server's clock against this machine's wall clock, from the fastest round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerClock {
    pub now_us: u64,
    /// Server minus this machine.
    pub ahead_ms: i64,
    /// Half of the round trip.
    pub within_ms: u64,
}

/// The counter that fencing tokens are drawn from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Counter {
    Absent,
    At(u64),
    /// Something else stands there.
    Foreign,
    Unknown,
}

/// What stands under the keys of this prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Locks {
    Read {
        count: usize,
        foreign: Vec<String>,
        /// What another version of Polylatch wrote in a form unknown here.
        unreadable: Vec<String>,
    },
    /// A key of ours has another type or cannot be understood.
    Foreign(String),
    Unknown(String),
}

impl Facts {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.info.as_ref()?.get(name).map(String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Name and version as the server gives them: forks tell a version of Redis beside their own.
    pub(crate) fn version(&self) -> Option<String> {
        for (field, name) in [("valkey_version", "Valkey"), ("dragonfly_version", "Dragonfly")] {
            if let Some(version) = self.field(field) {
                return Some(format!("{name} {}", version.trim_start_matches("df-v")));
            }
        }
        self.field("redis_version").map(|version| format!("Redis {version}"))
    }

    /// The memory limit and what happens there; `None` if nobody tells.
    pub(crate) fn eviction(&self) -> Option<(u64, &str)> {
        let limit = self.field("maxmemory").or_else(|| self.setting("maxmemory"))?.parse().ok()?;
        let policy = self.field("maxmemory_policy").or_else(|| self.setting("maxmemory-policy"))?;
        Some((limit, policy))
    }

    pub(crate) fn can_evict(&self) -> Option<bool> {
        self.eviction().map(|(limit, policy)| limit > 0 && policy != "noeviction")
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.field("role") == Some("slave") || self.write_refused.as_deref() == Some("READONLY")
    }

    /// Not a single server: `cluster` or `sentinel`.
    pub(crate) fn other_mode(&self) -> Option<&str> {
        if self.in_cluster {
            return None;
        }
        let mode = self.field("redis_mode").filter(|mode| *mode != "standalone");
        let moved = matches!(self.write_refused.as_deref(), Some("MOVED" | "CLUSTERDOWN"));
        mode.or_else(|| (moved || self.field("cluster_enabled") == Some("1")).then_some("cluster"))
    }

    /// The connected replicas: (address, state, seconds since the last sign of life).
    pub(crate) fn replicas(&self) -> Vec<(String, String, u64)> {
        let count = self.number("connected_slaves").unwrap_or(0).min(64);
        let lines = (0..count).filter_map(|at| self.field(&format!("slave{at}")));
        let parsed = lines.map(|line| {
            let part = |name: &str| {
                line.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or("?")
            };
            let lag = part("lag").parse().unwrap_or(0);
            (format!("{}:{}", part("ip"), part("port")), part("state").to_owned(), lag)
        });
        parsed.collect()
    }

    /// The replicas that are connected, or more that the Sentinels remember.
    pub(crate) fn known_replicas(&self) -> u64 {
        let words = self.sentinels.iter().flatten().filter_map(|(_, said)| said.as_ref().ok());
        let remembered = words.filter_map(|word| word.number("num-slaves"));
        remembered.chain(self.number("connected_slaves")).max().unwrap_or(0)
    }

    /// How many replicas the primary has to want (`min-replicas-to-write`), so that a cut-off primary and a
    /// promoted one cannot both have enough of those that are left.
    pub(crate) fn replicas_needed(&self) -> u64 {
        self.known_replicas().div_ceil(2).max(1)
    }

    pub(crate) fn min_replicas(&self) -> Option<u64> {
        self.setting("min-replicas-to-write")?.parse().ok()
    }
}

pub(crate) async fn gather(inner: &Arc<Inner>) -> Result<Facts> {
    let port = &*inner.port;
    let info = match ask(port, &["INFO"]).await? {
        Some(Data::Bytes(text)) => Some(parse_info(&String::from_utf8_lossy(&text))),
        _ => None,
    };
    let mut settings = HashMap::new();
    for name in SETTINGS {
        if let Some(Data::List(pair)) = ask(port, &["CONFIG", "GET", name]).await?
            && let [_, value, ..] = &pair[..]
        {
            settings.insert(name.to_owned(), value.text()?);
        }
    }
    let (clock, trips) = time(port).await?;
    let (trials, wrote, write_refused) = trials::run(inner).await?;
    let push = trials::push(inner).await?;
    let sentinels = match port.sentinels() {
        Some(asking) => {
            let reports = asking.await?.into_iter();
            Some(
                reports
                    .map(|(place, said)| (place, said.map_err(|error| error.message().to_owned())))
                    .collect(),
            )
        }
        None => None,
    };
    let counter_key = inner.protocol.keys.counter();
    let counter = match port.ask(vec!["GET".into(), counter_key.clone()]).await? {
        Ok(Data::Nil) => Counter::Absent,
        Ok(value) => value.uint().map_or(Counter::Foreign, Counter::At),
        Err(refusal) if refusal.code == "WRONGTYPE" => Counter::Foreign,
        Err(_) => Counter::Unknown,
    };
    Ok(Facts {
        strict: inner.protocol.guarantee == Guarantee::Strict,
        ack: inner.acknowledge.map(|acknowledge| acknowledge.rule),
        max_lease: inner.protocol.max_lease,
        transport: inner.own.transport.clone(),
        user: inner.own.user.clone(),
        has_password: inner.own.has_password,
        cli: inner.own.cli.clone(),
        keys_start: inner.protocol.keys.counter().trim_end_matches("fence").to_owned(),
        channels_start: inner.protocol.keys.inbox_before(),
        counter_key,
        in_cluster: inner.protocol.keys.is_a_shard(),
        sentinels,
        info,
        settings,
        clock,
        trips,
        trials,
        wrote,
        write_refused,
        push,
        counter,
        locks: locks(inner).await,
        sharers: sharers(inner).await?,
    })
}

/// Asks; `None` if the server refuses.
async fn ask(port: &dyn Port, words: &[&str]) -> Result<Option<Data>> {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Ok(port.ask(words).await?.ok())
}

async fn time(port: &dyn Port) -> Result<(Option<ServerClock>, Vec<Duration>)> {
    let mut trips = Vec::with_capacity(TRIPS);
    let mut best: Option<(Duration, ServerClock)> = None;
    for _ in 0..TRIPS {
        let (wall, sent) = (SystemTime::now(), Instant::now());
        let answer = ask(port, &["TIME"]).await?;
        let trip = sent.elapsed();
        trips.push(trip);
        let Some(Data::List(fields)) = answer else { continue };
        let [secs, micros] = &fields[..] else { continue };
        let now_us = secs.uint()?.saturating_mul(1_000_000).saturating_add(micros.uint()?);
        let middle = (wall + trip / 2).duration_since(UNIX_EPOCH).unwrap_or_default();
        let ahead_us = i128::from(now_us) - i128::try_from(middle.as_micros()).unwrap_or(i128::MAX);
        let clock = ServerClock {
            now_us,
            ahead_ms: i64::try_from(ahead_us / 1000).unwrap_or(i64::MAX),
            within_ms: millis(trip / 2) + 1,
        };
        if best.is_none_or(|(fastest, _)| trip < fastest) {
            best = Some((trip, clock));
        }
    }
    Ok((best.map(|(_, clock)| clock), trips))
}

async fn locks(inner: &Inner) -> Locks {
    let query = Query { limit: Some(LOCKS), ..Query::default() };
    match snapshot::read(&*inner.port, &inner.protocol.keys, &query, Vec::new()).await {
        Ok(snapshot) => {
            let foreign = snapshot.locks.iter().filter(|lock| lock.mode == "foreign");
            let foreign = foreign.map(|lock| lock.name.clone()).collect();
            let unreadable = snapshot
                .locks
                .iter()
                .flat_map(|lock| lock.unreadable().map(move |what| format!("{:?}: {what}", lock.name)));
            Locks::Read { count: snapshot.locks.len(), foreign, unreadable: unreadable.collect() }
        }
        Err(error) if matches!(error.kind(), ErrorKind::NameConflict | ErrorKind::Internal) => {
            Locks::Foreign(error.to_string())
        }
        Err(error) => Locks::Unknown(error.to_string()),
    }
}

/// What cannot be read is told by the check of the locks.
async fn sharers(inner: &Inner) -> Result<Sharers> {
    let mut sharers = Sharers::default();
    if let Ok(people) = snapshot::people(&*inner.port, &inner.protocol.keys).await {
        let declared = people.guarantees.into_iter();
        sharers.guarantees = declared.map(|(client, guarantee)| (client.to_string(), guarantee)).collect();
        sharers.unreadable = people.unreadable;
    }
    let [gate, longest] = inner.protocol.keys.gate();
    let text = async |key: &String| match ask(&*inner.port, &["GET", key]).await {
        Ok(Some(Data::Bytes(text))) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        other => other.map(|_| None),
    };
    let (opens, declared) = (text(&gate).await?, text(&longest).await?);
    sharers.longest = declared.as_deref().and_then(longest_lease);
    if declared.is_some() && sharers.longest.is_none() {
        sharers.unreadable.push(longest);
    }
    if opens.is_some_and(|opens| !is_gate(&opens)) {
        sharers.unreadable.push(gate);
    }
    Ok(sharers)
}

pub(crate) fn parse_info(text: &str) -> HashMap<String, String> {
    let fields = text.lines().filter_map(|line| line.trim().split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
