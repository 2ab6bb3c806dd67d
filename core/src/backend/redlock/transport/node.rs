//! One node: its connection, whether it votes, and whether it answers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::backend::Reply;
use crate::backend::redis::RedisConfig;
use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::transport::native::NativePort;
use crate::backend::redis::transport::port::Port;
use crate::backend::redlock::config::place_of;
use crate::backend::redlock::gate::{Look, Shape, State, now, read_look};
use crate::backend::redlock::protocol::scripts;
use crate::clock::BootInstant;
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::policy::admission::{ClockReading, Opening, Quarantine, Standing};
use crate::wakeups::unpoisoned;

/// One node of a store.
pub(crate) struct Node {
    pub place: String,
    config: RedisConfig,
    runtime: Handle,
    port: Mutex<Arc<dyn Port>>,
    known: Mutex<Known>,
    /// Requests that left and were not answered, since the last answer.
    unanswered: AtomicU32,
    /// Somebody looks at it right now.
    looking: AtomicBool,
}

#[derive(Debug, Clone, Default)]
struct Known {
    looked: Option<Look>,
    /// Since when it is closed, by which gate.
    closed: Option<(String, Quarantine)>,
    /// Its clock, as it was read last without a step.
    clock: Option<ClockReading>,
    /// It seems to have stepped since: by so many ms.
    moved: Option<i64>,
    /// Since when it is taken for down or hung.
    suspect: Option<Instant>,
    /// It is suspect because it did not answer, not because it refused.
    silent: bool,
    /// Why it cannot be used at all, for people.
    unfit: Option<Unfit>,
    /// What its latest failure was, for people.
    failure: Option<String>,
    /// The kind of that failure, if trying again does not help.
    rejected: Option<ErrorKind>,
    /// It may evict what it was told to keep.
    may_forget: bool,
}

/// Kind and text of an error that is reported more than once, and whether the node belongs to another store.
#[derive(Debug, Clone)]
pub(crate) struct Unfit(pub ErrorKind, pub String, pub bool);

impl Node {
    pub(crate) fn new(config: RedisConfig, runtime: Handle) -> Result<Self> {
        let port: Arc<dyn Port> = Arc::new(NativePort::new(&config, runtime.clone())?);
        Ok(Self {
            place: place_of(&config),
            config,
            runtime,
            port: Mutex::new(port),
            known: Mutex::default(),
            unanswered: AtomicU32::new(0),
            looking: AtomicBool::new(false),
        })
    }

    /// A node behind another door than a socket.
    #[cfg(test)]
    pub(crate) fn simulated(config: &RedisConfig, port: Arc<dyn Port>) -> Self {
        let node = Self::new(config.clone(), Handle::current()).expect("a plain address");
        *unpoisoned(&node.port) = port;
        node
    }

    pub(crate) fn port(&self) -> Arc<dyn Port> {
        Arc::clone(&unpoisoned(&self.port))
    }

    /// Begins anew with another connection: what was sent on the old one is given up.
    pub(crate) fn reconnect(&self) -> Result<()> {
        let fresh: Arc<dyn Port> = Arc::new(NativePort::new(&self.config, self.runtime.clone())?);
        let old = std::mem::replace(&mut *unpoisoned(&self.port), fresh);
        old.close();
        unpoisoned(&self.known).looked = None;
        Ok(())
    }

    /// Says whether a request may be sent: not to one that is unfit, and to one that is down or hung only
    /// if it is `needed`.
    pub(crate) fn is_usable(&self, needed: bool) -> bool {
        let known = unpoisoned(&self.known);
        known.unfit.is_none() && (needed || known.suspect.is_none())
    }

    pub(crate) fn is_suspect(&self) -> bool {
        unpoisoned(&self.known).suspect.is_some()
    }

    /// It is down rather than hung: what is sent now is never carried out.
    pub(crate) fn is_refusing(&self) -> bool {
        let known = unpoisoned(&self.known);
        known.suspect.is_some() && !known.silent
    }

    pub(crate) fn suspect_for(&self) -> Option<Duration> {
        unpoisoned(&self.known).suspect.map(|since| since.elapsed())
    }

    /// Claims the right to look at it; one look at a time.
    pub(crate) fn begin_look(&self) -> bool {
        !self.looking.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn is_looked_at(&self) -> bool {
        self.looking.load(Ordering::SeqCst)
    }

    pub(crate) fn end_look(&self) {
        self.looking.store(false, Ordering::SeqCst);
    }

    /// Few enough requests wait that one more does no harm.
    pub(crate) fn has_room(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) < 64
    }

    /// It did not answer in time.
    pub(crate) fn was_silent(&self, limit: Duration) {
        let mut known = unpoisoned(&self.known);
        known.suspect.get_or_insert_with(Instant::now);
        known.silent = true;
        known.failure = Some(format!("no answer within {limit:?}"));
    }

    fn is_unfit(&self, kind: ErrorKind, why: String) {
        let mut known = unpoisoned(&self.known);
        known.unfit = Some(Unfit(kind, why, false));
        // Nothing that it said before lets it vote.
        known.looked = None;
    }

    pub(crate) fn unfit(&self) -> Option<Unfit> {
        unpoisoned(&self.known).unfit.clone()
    }

    /// Why it does not answer, for people.
    pub(crate) fn failure(&self) -> Option<String> {
        let known = unpoisoned(&self.known);
        known.unfit.as_ref().map(|unfit| unfit.1.clone()).or_else(|| known.failure.clone())
    }

    /// Why it cannot be used until a person has mended something.
    pub(crate) fn rejected(&self) -> Option<Unfit> {
        let known = unpoisoned(&self.known);
        Some(Unfit(known.rejected?, known.failure.clone()?, false))
    }

    pub(crate) fn may_forget(&self) -> bool {
        unpoisoned(&self.known).may_forget
    }

    pub(crate) fn looked(&self) -> Option<Look> {
        unpoisoned(&self.known).looked.clone()
    }

    /// Says what it is good for at the moment.
    pub(crate) fn standing(&self, shape: &Shape) -> Standing {
        let known = unpoisoned(&self.known);
        let Some(look) = &known.looked else { return Standing::Unknown };
        if known.suspect.is_some() || known.unfit.is_some() {
            return Standing::Unknown;
        }
        let length = shape.quarantine();
        let closed = |left| Standing::Closed { left, counter: look.counter, fresh: look.fresh };
        match (&look.state, &known.closed) {
            _ if known.moved.is_some() => {
                Standing::Closed { left: length, counter: look.counter, fresh: false }
            }
            (State::Open { .. }, _) if shape.agrees(look) => Standing::Voting { counter: look.counter },
            // It would not keep other clients to this client's terms.
            (State::Open { .. }, _) => Standing::Unknown,
            // This client has not closed it yet.
            (State::Changed, _) if shape.has_joined() => Standing::Unknown,
            (State::Closed { .. }, Some((_, quarantine))) => closed(quarantine.left(now(), length)),
            _ => closed(length),
        }
    }

    /// The node says itself that it does not vote, or not behind the gate that was known.
    pub(crate) fn is_closed(&self) {
        unpoisoned(&self.known).looked = None;
    }

    /// Says whether it was opened with a counter that was not known to be the largest.
    pub(crate) fn is_floored(&self) -> bool {
        self.looked().is_some_and(|look| look.state == State::Open { floored: true })
    }

    /// By how many ms its clock seems to have stepped: 0 if it did not, `None` if it could not be asked.
    pub(crate) fn moved(&self) -> Option<i64> {
        let known = unpoisoned(&self.known);
        known.looked.as_ref().filter(|_| known.suspect.is_none())?;
        Some(known.moved.unwrap_or(0))
    }

    /// Its clock is as it was read last: it did not step, or not in a way that does harm.
    pub(crate) fn trust_clock(&self) {
        let mut known = unpoisoned(&self.known);
        known.moved = None;
        known.clock = known.looked.as_ref().map(|look| look.clock);
    }

    /// Compares its clock with this client's. A step forward ended leases there before their time.
    /// One that moved back lets leases last longer, which does no harm where the node votes. Says whether it
    /// votes on.
    fn read_clock(&self, reading: ClockReading, is_open: bool) -> bool {
        let mut known = unpoisoned(&self.known);
        let moved = known.clock.map_or(0, |before| reading.moved_since(&before));
        if moved > 0 || (moved < 0 && !is_open) {
            known.moved = Some(moved);
        } else if known.moved.is_none() {
            known.clock = Some(reading);
        }
        moved <= 0
    }

    /// Takes what a look said.
    fn note(&self, look: Look, shape: &Shape) {
        shape.learn(&look);
        self.read_clock(look.clock, look.is_open());
        let mut known = unpoisoned(&self.known);
        if let State::Closed { since_ms } = look.state {
            let gate = format!("{}|{since_ms}", look.epoch);
            let by_node = Duration::from_millis(look.clock.node_ms.saturating_sub(since_ms));
            let at = look.clock.received;
            match &mut known.closed {
                Some((of, quarantine)) if *of == gate => quarantine.answered(at, by_node),
                closed => {
                    let wall_ms = crate::clock::wall_us() / 1000;
                    let by_walls = Duration::from_millis(wall_ms.saturating_sub(look.wall_ms));
                    *closed = Some((gate, Quarantine::seen(at, by_node, by_walls)));
                    // Whatever moved before is behind this gate.
                    known.moved = None;
                    known.clock = Some(look.clock);
                }
            }
        } else {
            known.closed = None;
        }
        known.unfit = None;
        known.looked = Some(look);
    }

    /// Runs one script.
    pub(crate) fn run(self: &Arc<Self>, call: Call) -> Reply<Data> {
        let node = Arc::clone(self);
        Box::pin(async move {
            let port = node.port();
            node.unanswered.fetch_add(1, Ordering::Relaxed);
            let answer = port.one(call, None).await;
            node.heard(answer.as_ref().err());
            answer
        })
    }

    /// It has answered, or this has come of asking it.
    fn heard(&self, failure: Option<&Error>) {
        self.unanswered.store(0, Ordering::Relaxed);
        let mut known = unpoisoned(&self.known);
        known.silent = false;
        known.failure = failure.map(ToString::to_string);
        known.rejected =
            failure.filter(|error| error.retry() != Retry::AfterBackoff).map(|error| error.kind());
        if failure.is_some_and(|error| error.retry() == Retry::AfterBackoff) {
            known.suspect.get_or_insert_with(Instant::now);
        } else {
            known.suspect = None;
        }
    }

    /// Runs a script whose answer is a vote; `call` gets the text that the gate must have. The vote counts
    /// only if the process that gave it is the one that was known when it was asked for.
    pub(crate) fn vote(
        self: &Arc<Self>,
        shape: &Arc<Shape>,
        call: impl FnOnce(String) -> Call,
    ) -> Reply<Data> {
        let (node, shape) = (Arc::clone(self), Arc::clone(shape));
        let trusted = {
            let known = unpoisoned(&self.known);
            known.looked.clone().filter(|_| known.moved.is_none())
        };
        let gate = trusted
            .as_ref()
            .filter(|look| look.is_open() && shape.agrees(look))
            .map_or("unknown", |look| &look.gate);
        let call = call(gate.to_owned());
        Box::pin(async move {
            let sent = now();
            let answer = node.run(call).await?;
            let answer = node.judge_clock(answer, sent);
            if let Some(trusted) = trusted {
                let opened = node.port().latest_connection();
                if opened.is_some() && opened == trusted.opened {
                    return Ok(answer);
                }
                // Another connection: to the same process, or to one that may have forgotten something?
                if node.look(&shape, "").await?.epoch == trusted.epoch {
                    return Ok(answer);
                }
            }
            // It was given by a process whose gate is not known to be open.
            Ok(Data::List(vec![Data::Bytes(b"closed".to_vec())]))
        })
    }

    /// A yes from a node whose clock has stepped forward is none: it may have dropped a lease that is alive.
    fn judge_clock(&self, answer: Data, sent: BootInstant) -> Data {
        let Data::List(fields) = &answer else { return answer };
        let is_yes = fields.first().is_some_and(|field| field.text().is_ok_and(|text| text == "yes"));
        let Some(Ok(node_ms)) = fields.get(2).filter(|_| is_yes).map(Data::uint) else { return answer };
        if self.read_clock(ClockReading { sent, received: now(), node_ms }, true) {
            return answer;
        }
        tracing::warn!(node = self.place, "the node's clock moved forward; it does not vote");
        Data::List(vec![Data::Bytes(b"moved".to_vec()), fields[1].clone()])
    }

    /// Asks the node who it is and whether it votes, and closes it if it is behind this gate.
    pub(crate) async fn look(self: &Arc<Self>, shape: &Shape, close: &str) -> Result<Look> {
        let is_unknown = {
            let known = unpoisoned(&self.known);
            known.looked.is_none() || known.unfit.is_some()
        };
        if is_unknown {
            self.check(shape).await?;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.port().latest_connection();
            let call = Call {
                script: &scripts::LOOK,
                keys: vec![shape.gate.clone(), shape.counter.clone()],
                args: shape.arguments(close),
            };
            let sent = now();
            let look = read_look(self.run(call).await?, sent, before)?;
            // A look that opened a connection says nothing about the ones before.
            if before == self.port().latest_connection() || tries == 3 {
                if let Some(nodes) = look.nodes.filter(|nodes| *nodes != shape.nodes) {
                    let why = format!(
                        "{} belongs to a store of {nodes} nodes, and the URL names {}; name the same nodes in every \
                         program, or, if the number was changed on purpose or by mistake, delete the key {} on that node",
                        self.place, shape.nodes, shape.gate
                    );
                    unpoisoned(&self.known).unfit = Some(Unfit(ErrorKind::InvalidConfig, why.clone(), true));
                    return Err(Error::new(ErrorKind::InvalidConfig, why));
                }
                if let Err(other) = shape.is_behind(&self.place, look.run_id()) {
                    let why = format!(
                        "{other} and {} are the same server; every vote has to come from another one",
                        self.place
                    );
                    self.is_unfit(ErrorKind::InvalidConfig, why.clone());
                    return Err(Error::new(ErrorKind::InvalidConfig, why));
                }
                self.note(look.clone(), shape);
                return Ok(look);
            }
        }
    }

    /// Looks once whether this server can be a node at all.
    async fn check(&self, shape: &Shape) -> Result<()> {
        let facts = self.port().facts().await.inspect_err(|error| self.heard(Some(error)))?;
        let place = &self.place;
        let why = if facts.is_replica {
            format!("{place} is a replica, and every node has to be an independent primary; name the primary")
        } else if facts.is_sentinel {
            format!("{place} is a Sentinel, which keeps no locks; name a server")
        } else if facts.is_cluster_node {
            format!("{place} is a node of a Redis Cluster, whose keys move; name servers that stand alone")
        } else if facts.epoch.is_none() {
            format!(
                "{place} does not let this user call INFO, so a restart would not be noticed; allow it with +info"
            )
        } else {
            match (facts.max_memory, facts.eviction_policy.as_deref()) {
                (Some(limit @ 1..), Some(policy)) if policy != "noeviction" => {
                    let why = format!(
                        "{place} has maxmemory={limit} and maxmemory-policy={policy}, so it may evict held locks and \
                         forget tokens; set maxmemory-policy noeviction"
                    );
                    unpoisoned(&self.known).may_forget = true;
                    if !shape.strict {
                        tracing::warn!(
                            target: "polylatch", event = "setup_warning", which = self.place, findings = why,
                            "this RedLock node may forget locks"
                        );
                        return Ok(());
                    }
                    why
                }
                _ => return Ok(()),
            }
        };
        self.is_unfit(ErrorKind::BackendRejected, why.clone());
        Err(Error::new(ErrorKind::BackendRejected, why))
    }

    /// Lets the node vote, if it is still as that look found it.
    pub(crate) async fn open(self: &Arc<Self>, shape: &Shape, opening: &Opening) -> Result<bool> {
        let Some(look) = self.looked() else { return Ok(false) };
        let State::Closed { since_ms } = look.state else { return Ok(false) };
        let least = if opening.fresh { Duration::ZERO } else { shape.quarantine() };
        let call = Call {
            script: &scripts::OPEN,
            keys: vec![shape.gate.clone(), shape.counter.clone()],
            args: vec![
                look.gate.clone(),
                look.epoch.clone(),
                look.opened_gate(opening.floored),
                opening.counter.to_string(),
                since_ms.to_string(),
                least.as_millis().to_string(),
            ],
        };
        let opened = self.run(call).await?.int()? == 1;
        // Other clients may have been faster.
        self.look(shape, "").await?;
        Ok(opened)
    }
}
