//! The masters of a cluster: which of them has which slot, and a connection to each.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use super::config::ClusterConfig;
use super::ears::Ears;
use super::in_slots::InSlots;
use super::slots::SLOTS;
use crate::backend::redis::config::{Address, Place, RedisConfig};
use crate::backend::redis::protocol::call::Data;
use crate::backend::redis::transport::native::NativePort;
use crate::backend::redis::transport::native::timers::pause;
use crate::backend::redis::transport::port::{Port, ServerFacts};
use crate::error::{Error, ErrorKind, Result};
use crate::wakeups::unpoisoned;

/// How long the others may take after one has answered: one of them may know of a later change.
const GRACE: Duration = Duration::from_millis(20);

/// All masters, as one client sees them.
pub(super) struct Nodes {
    seeds: Vec<Address>,
    config: RedisConfig,
    pub(super) runtime: Handle,
    map: Mutex<Map>,
    refreshing: tokio::sync::Mutex<()>,
    will_refresh: AtomicBool,
    /// How often a node has failed somebody, and of how many of these the map knows.
    doubts: AtomicU64,
    settled: AtomicU64,
    /// Who hears messages at the inbox of the client.
    pub(super) ears: Ears,
    /// Who hears messages in the slots.
    pub(super) in_slots: InSlots,
    /// Every master can publish in a slot, and say who listens there.
    publishes_in_slots: AtomicBool,
}

/// What a node says: its epoch, and first and last slot of each range with whose it is.
type Told = (u64, Vec<(u16, u16, Address)>);

#[derive(Default)]
struct Map {
    ports: HashMap<Address, Arc<NativePort>>,
    /// First and last slot, and whose they are.
    ranges: Vec<(u16, u16, Address)>,
    /// What single nodes have said since.
    moved: HashMap<u16, Address>,
}

impl Map {
    fn owner(&self, slot: u16) -> Option<&Address> {
        let range = || self.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        self.moved.get(&slot).or_else(|| Some(&range()?.2))
    }

    /// A node that was no master, and has the slots of one that is none any more, was its replica: it is to have
    /// as many replicas as that one had. At first it has fewer, and `ack=` must not ask for less than before.
    fn succeed(&self, now: &[(u16, u16, Address)]) {
        let is_in = |ranges: &[(u16, u16, Address)], node: &Address| ranges.iter().any(|(.., at)| at == node);
        for (first, _, successor) in now.iter().filter(|(.., node)| !is_in(&self.ranges, node)) {
            let before = self.ranges.iter().find(|(from, to, _)| (*from..=*to).contains(first));
            let Some((.., before)) = before.filter(|(.., node)| !is_in(now, node)) else { continue };
            if let (Some(before), Some(successor)) = (self.ports.get(before), self.ports.get(successor)) {
                successor.expect_replicas(before.most_replicas());
            }
        }
    }
}

impl Nodes {
    pub(super) fn new(config: &ClusterConfig, runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            seeds: config.seeds.clone(),
            config: config.node.clone(),
            runtime,
            map: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            will_refresh: AtomicBool::new(false),
            doubts: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            ears: Ears::default(),
            in_slots: InSlots::default(),
            publishes_in_slots: AtomicBool::new(false),
        })
    }

    /// The connection to a node.
    pub(super) fn port(&self, address: &Address) -> Result<Arc<NativePort>> {
        let mut map = unpoisoned(&self.map);
        if let Some(port) = map.ports.get(address) {
            return Ok(Arc::clone(port));
        }
        let config = RedisConfig { place: Place::At(address.clone()), ..self.config.clone() };
        let port = Arc::new(NativePort::new(&config, self.runtime.clone())?);
        map.ports.insert(address.clone(), Arc::clone(&port));
        Ok(port)
    }

    /// A node as another one names it: it speaks as all do.
    pub(super) fn address(&self, host: &str, port: u16) -> Address {
        let host = host.to_owned();
        match &self.config.place {
            Place::At(Address::Tls { files, .. }) => Address::Tls { host, port, files: files.clone() },
            _ => Address::Tcp { host, port },
        }
    }

    /// Who has a slot.
    ///
    /// Errors: `backend_unavailable` if nobody has it, which is so for a while after a master has failed.
    pub(super) async fn owner(&self, slot: u16) -> Result<Address> {
        if self.is_doubted() {
            // Whoever reads it already may have begun since the doubt.
            let _one = self.refreshing.lock().await;
            // Where nobody answers, what was known before is tried again.
            if self.is_doubted() {
                let _ = self.read_map().await;
            }
        }
        if let Some(owner) = unpoisoned(&self.map).owner(slot) {
            return Ok(owner.clone());
        }
        self.refresh().await?;
        unpoisoned(&self.map).owner(slot).cloned().ok_or_else(|| {
            Error::new(
                ErrorKind::BackendUnavailable,
                format!(
                    "no node of the cluster has slot {slot}; look with redis-cli --cluster check HOST:PORT"
                ),
            )
        })
    }

    /// Who has a slot, as far as known.
    pub(super) fn known_owner(&self, slot: u16) -> Option<Address> {
        unpoisoned(&self.map).owner(slot).cloned()
    }

    /// A number that is the same for all slots of one master. Where none is known, that of the slot.
    pub(super) fn part_of(&self, slot: u16) -> u64 {
        let mut hasher = DefaultHasher::new();
        match unpoisoned(&self.map).owner(slot) {
            Some(owner) => owner.hash(&mut hasher),
            None => slot.hash(&mut hasher),
        }
        hasher.finish()
    }

    /// All masters that have slots, with the longest range of each.
    pub(super) fn masters(&self) -> Vec<(Address, u16, u16)> {
        let mut masters: Vec<(Address, u16, u16)> = Vec::new();
        for (first, last, address) in &unpoisoned(&self.map).ranges {
            match masters.iter_mut().find(|(known, ..)| known == address) {
                Some(known) if known.2 - known.1 < last - first => (known.1, known.2) = (*first, *last),
                Some(_) => {}
                None => masters.push((address.clone(), *first, *last)),
            }
        }
        masters
    }

    /// A node has said that a slot is elsewhere.
    pub(super) fn has_moved(self: &Arc<Self>, slot: u16, to: Address) {
        unpoisoned(&self.map).moved.insert(slot, to.clone());
        self.ears.moved(slot, &to);
        self.in_slots.look();
        self.refresh_soon();
    }

    /// A node has failed somebody: whoever asks next wants to know first who has what.
    pub(super) fn doubt(self: &Arc<Self>) {
        self.doubts.fetch_add(1, Ordering::SeqCst);
        self.refresh_soon();
    }

    /// A node has failed somebody since the reading began by which the map is.
    fn is_doubted(&self) -> bool {
        self.settled.load(Ordering::SeqCst) < self.doubts.load(Ordering::SeqCst)
    }

    /// Asks in the background who has what; once for all who wish it now.
    pub(super) fn refresh_soon(self: &Arc<Self>) {
        if self.will_refresh.swap(true, Ordering::SeqCst) {
            return;
        }
        let weak = Arc::downgrade(self);
        self.runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let Some(nodes) = weak.upgrade() else { return };
            nodes.will_refresh.store(false, Ordering::SeqCst);
            if let Err(error) = nodes.refresh().await {
                tracing::debug!(%error, "no node of the cluster says who has which slot");
            }
        });
    }

    /// Asks all known nodes who has which slot, and believes the one that knows of the latest change.
    ///
    /// Errors: those of the nodes, if none answers.
    pub(super) async fn refresh(&self) -> Result<()> {
        let _one = self.refreshing.lock().await;
        self.read_map().await
    }

    async fn read_map(&self) -> Result<()> {
        let doubts = self.doubts.load(Ordering::SeqCst);
        let read = self.ask_all().await;
        // Not before: who asks meanwhile would take the map for one that was read since.
        self.settled.fetch_max(doubts, Ordering::SeqCst);
        read
    }

    async fn ask_all(&self) -> Result<()> {
        let mut known: Vec<_> = self.masters().into_iter().map(|(address, ..)| address).collect();
        known.extend(self.seeds.iter().filter(|seed| !known.contains(seed)).cloned().collect::<Vec<_>>());
        let mut asking: FuturesUnordered<_> = known.iter().map(|address| self.ask(address)).collect();
        let mut best: Option<Told> = None;
        let (mut failed, mut grace) = (None, None);
        loop {
            let answer = match &mut grace {
                None => asking.next().await,
                Some(grace) => tokio::select! {
                    answer = asking.next() => answer,
                    _ = grace => None,
                },
            };
            match answer {
                Some(Ok(told)) if best.as_ref().is_none_or(|(epoch, _)| told.0 > *epoch) => best = Some(told),
                Some(Ok(_)) => {}
                Some(Err(error)) => failed = failed.or(Some(error)),
                None => break,
            }
            if best.is_some() && grace.is_none() {
                grace = Some(Box::pin(pause(&self.runtime, GRACE)));
            }
        }
        drop(asking);
        let Some((_, ranges)) = best else {
            return Err(failed.unwrap_or_else(|| {
                Error::new(ErrorKind::BackendUnavailable, "no node of the cluster answers")
            }));
        };
        self.ears.spread(|slot| {
            ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).map(|range| &range.2)
        });
        if self.config.acknowledge.is_some() {
            // What they have to know is told to their connections.
            for (.., master) in &ranges {
                self.port(master)?;
            }
        }
        let gone = {
            let mut map = unpoisoned(&self.map);
            map.moved.clear();
            map.succeed(&ranges);
            map.ranges = ranges;
            let Map { ports, ranges, .. } = &mut *map;
            let stays = |address: &Address| {
                ranges.iter().any(|(_, _, owner)| owner == address) || self.seeds.contains(address)
            };
            ports.extract_if(|address, _| !stays(address)).collect::<Vec<_>>()
        };
        self.in_slots.look();
        // Requests to a master that is none any more are answered by its end.
        gone.iter().for_each(|(_, port)| port.close());
        Ok(())
    }

    async fn ask(&self, address: &Address) -> Result<Told> {
        let port = self.port(address)?;
        let ask = |words: [&str; 2]| port.ask(words.map(str::to_owned).to_vec());
        let slots = match ask(["CLUSTER", "SLOTS"]).await? {
            Ok(slots) => slots.list()?,
            Err(refusal) => return Err(refused(address, &refusal.code, &refusal.detail)),
        };
        let epoch = match ask(["CLUSTER", "INFO"]).await? {
            Ok(info) => epoch(&info.text()?),
            // A user who may not ask gets the answer of any node.
            Err(_) => 0,
        };
        let mut ranges = Vec::with_capacity(slots.len());
        for range in slots {
            let range = range.list()?;
            let [first, last, Data::List(master), ..] = &range[..] else { continue };
            let [host, port, ..] = &master[..] else { continue };
            // A node that does not know its own address leaves it out.
            let host = host.text().ok().filter(|host| !host.is_empty() && host != "?");
            let host = host.unwrap_or_else(|| address.host().to_owned());
            let number = |data: &Data| u16::try_from(data.uint()?).map_err(|_| short());
            ranges.push((number(first)?, number(last)?, self.address(&host, number(port)?)));
        }
        Ok((epoch, ranges))
    }

    /// What each master says of itself.
    pub(super) async fn facts(&self) -> Result<Vec<(Address, ServerFacts)>> {
        let mut all = Vec::new();
        for (address, ..) in self.masters() {
            let facts = self.port(&address)?.facts().await?;
            all.push((address, facts));
        }
        Ok(all)
    }

    /// Refuses a cluster in which some locks could never be taken.
    ///
    /// Errors: `backend_unavailable`, with the slots that no node has.
    pub(super) fn check_coverage(&self) -> Result<()> {
        let map = unpoisoned(&self.map);
        let mut ranges: Vec<_> = map.ranges.iter().map(|(first, last, _)| (*first, *last)).collect();
        drop(map);
        ranges.sort_unstable();
        let (mut missing, mut next) = (Vec::new(), 0);
        for (first, last) in ranges.into_iter().chain([(SLOTS, SLOTS)]) {
            if next < first {
                missing.push(format!("{next}-{}", first - 1));
            }
            next = next.max(last.saturating_add(1));
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::BackendUnavailable,
            format!(
                "no node of the cluster has the slots {}, so the locks there could not be taken; give them to a node: \
                 redis-cli --cluster fix HOST:PORT",
                missing.join(", ")
            ),
        ))
    }

    /// Asks all masters whether they can publish in a slot, as Redis can from 7.0 on. A user who may not ask there
    /// could not count listeners in a script either.
    ///
    /// Errors: those of the nodes.
    pub(super) async fn learn_to_publish(&self) -> Result<()> {
        let mut all = true;
        for (address, ..) in self.masters() {
            let words = ["PUBSUB", "SHARDNUMSUB"].map(str::to_owned).to_vec();
            all &= self.port(&address)?.ask(words).await?.is_ok();
        }
        self.publishes_in_slots.store(all, Ordering::SeqCst);
        Ok(())
    }

    pub(super) fn publishes_in_slots(&self) -> bool {
        self.publishes_in_slots.load(Ordering::SeqCst)
    }

    pub(super) fn close(&self) {
        self.in_slots.close();
        unpoisoned(&self.map).ports.values().for_each(|port| port.close());
    }
}

fn epoch(info: &str) -> u64 {
    let line = info.lines().find_map(|line| line.trim().strip_prefix("cluster_current_epoch:"));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn short() -> Error {
    Error::new(ErrorKind::Internal, "CLUSTER SLOTS answered in an unknown form; please report this")
}

fn refused(address: &Address, code: &str, detail: &str) -> Error {
    if detail.contains("cluster support disabled") || detail.contains("unknown command") {
        return Error::new(
            ErrorKind::InvalidConfig,
            format!("Redis at {address} belongs to no cluster; write redis:// for a single server"),
        );
    }
    if code == "NOAUTH" {
        return Error::new(
            ErrorKind::BackendRejected,
            format!(
                "Redis at {address} wants a password; write redis+cluster://:PASSWORD@HOST or use password_env="
            ),
        );
    }
    Error::new(
        ErrorKind::BackendRejected,
        format!(
            "Redis at {address} does not say who has which slot ({code}); allow +cluster|slots +cluster|info"
        ),
    )
}
