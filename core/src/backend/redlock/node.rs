//! One node: its connection, whether it votes, and whether it answers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::config::place_of;
use super::scripts;
use crate::backend::Reply;
use crate::backend::redis::RedisConfig;
use crate::backend::redis::native::NativePort;
use crate::backend::redis::port::{Call, Data, Port, no_answer};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::policy::admission::Standing;
use crate::wakeups::unpoisoned;

/// What all nodes of a store have in common.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub nodes: usize,
    pub gate: String,
    pub counter: String,
    /// How long a node that changed sits out.
    pub closed_for: Duration,
    /// A node that may drop locks by itself is not used.
    pub strict: bool,
}

/// One node of a store.
pub(super) struct Node {
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

/// Kind and text of an error that is told more than once.
#[derive(Debug, Clone)]
pub(super) struct Unfit(pub ErrorKind, pub String);

/// What a look at a node said.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub epoch: String,
    /// The gate as it stands.
    pub gate: String,
    pub open: bool,
    /// When a closed node may be opened.
    pub until: Instant,
    pub fresh: bool,
    pub counter: u64,
    /// The node's wall clock.
    pub now_ms: u64,
    /// The connections it rests on; see [`Port::connections_opened`].
    opened: Option<u64>,
}

impl Look {
    /// The process behind the address.
    pub(super) fn run_id(&self) -> &str {
        self.epoch.split(':').next().unwrap_or_default()
    }
}

impl Node {
    pub(super) fn new(config: RedisConfig, runtime: Handle) -> Result<Self> {
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
    pub(super) fn simulated(config: &RedisConfig, port: Arc<dyn Port>) -> Self {
        let node = Self::new(config.clone(), Handle::current()).expect("a plain address");
        *unpoisoned(&node.port) = port;
        node
    }

    pub(super) fn port(&self) -> Arc<dyn Port> {
        Arc::clone(&unpoisoned(&self.port))
    }

    /// Begins anew with another connection: what was sent on the old one is given up.
    pub(super) fn reconnect(&self) -> Result<()> {
        let fresh: Arc<dyn Port> = Arc::new(NativePort::new(&self.config, self.runtime.clone())?);
        let old = std::mem::replace(&mut *unpoisoned(&self.port), fresh);
        old.close();
        unpoisoned(&self.known).looked = None;
        Ok(())
    }

    /// Says whether a request may be sent: not to one that is unfit, and to one that is down or hung only
    /// if it is `needed`.
    pub(super) fn is_usable(&self, needed: bool) -> bool {
        let known = unpoisoned(&self.known);
        known.unfit.is_none() && (needed || known.suspect.is_none())
    }

    pub(super) fn is_suspect(&self) -> bool {
        unpoisoned(&self.known).suspect.is_some()
    }

    /// It is down rather than hung: what is sent now is never carried out.
    pub(super) fn is_refusing(&self) -> bool {
        let known = unpoisoned(&self.known);
        known.suspect.is_some() && !known.silent
    }

    pub(super) fn suspect_for(&self) -> Option<Duration> {
        unpoisoned(&self.known).suspect.map(|since| since.elapsed())
    }

    /// Claims the right to look at it; one look at a time.
    pub(super) fn begin_look(&self) -> bool {
        !self.looking.swap(true, Ordering::SeqCst)
    }

    pub(super) fn end_look(&self) {
        self.looking.store(false, Ordering::SeqCst);
    }

    /// Few enough requests wait that one more does no harm.
    pub(super) fn has_room(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) < 64
    }

    /// It did not answer in time.
    pub(super) fn was_silent(&self, limit: Duration) {
        let mut known = unpoisoned(&self.known);
        known.suspect.get_or_insert_with(Instant::now);
        known.silent = true;
        known.failure = Some(format!("no answer within {limit:?}"));
    }

    pub(super) fn is_unfit(&self, kind: ErrorKind, why: String) {
        unpoisoned(&self.known).unfit.get_or_insert(Unfit(kind, why));
    }

    pub(super) fn unfit(&self) -> Option<Unfit> {
        unpoisoned(&self.known).unfit.clone()
    }

    /// Why it does not answer, for people.
    pub(super) fn failure(&self) -> Option<String> {
        let known = unpoisoned(&self.known);
        known.unfit.as_ref().map(|unfit| unfit.1.clone()).or_else(|| known.failure.clone())
    }

    /// Why it cannot be used until a person has mended something.
    pub(super) fn rejected(&self) -> Option<Unfit> {
        let known = unpoisoned(&self.known);
        Some(Unfit(known.rejected?, known.failure.clone()?))
    }

    pub(super) fn may_forget(&self) -> bool {
        unpoisoned(&self.known).may_forget
    }

    pub(super) fn looked(&self) -> Option<Look> {
        unpoisoned(&self.known).looked.clone()
    }

    /// Says what it is good for at the moment.
    pub(super) fn standing(&self) -> Standing {
        let known = unpoisoned(&self.known);
        match &known.looked {
            Some(look) if known.suspect.is_none() && known.unfit.is_none() => {
                if look.open {
                    Standing::Voting { counter: look.counter }
                } else {
                    let left = look.until.saturating_duration_since(Instant::now());
                    Standing::Closed { left, counter: look.counter, fresh: look.fresh }
                }
            }
            _ => Standing::Unknown,
        }
    }

    /// The node says itself that it does not vote.
    pub(super) fn is_closed(&self) {
        if let Some(look) = &mut unpoisoned(&self.known).looked {
            look.open = false;
        }
    }

    /// Runs one script.
    pub(super) fn run(self: &Arc<Self>, call: Call) -> Reply<Data> {
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
    pub(super) fn vote(
        self: &Arc<Self>,
        shape: &Arc<Shape>,
        call: impl FnOnce(String) -> Call,
    ) -> Reply<Data> {
        let (node, shape) = (Arc::clone(self), Arc::clone(shape));
        let trusted = unpoisoned(&self.known).looked.clone();
        let gate = trusted.as_ref().filter(|look| look.open).map_or("unknown", |look| &look.gate);
        let call = call(gate.to_owned());
        Box::pin(async move {
            let answer = node.run(call).await?;
            if let Some(trusted) = trusted {
                let opened = node.port().connections_opened();
                if opened.is_some() && opened == trusted.opened {
                    return Ok(answer);
                }
                // Another connection: to the same process, or to one that may have forgotten something?
                if node.look(&shape).await?.epoch == trusted.epoch {
                    return Ok(answer);
                }
            }
            // It was given by a process whose gate is not known to be open.
            Ok(Data::List(vec![Data::Bytes(b"closed".to_vec())]))
        })
    }

    /// Asks the node who it is and whether it votes.
    pub(super) async fn look(self: &Arc<Self>, shape: &Shape) -> Result<Look> {
        if unpoisoned(&self.known).looked.is_none() {
            self.check(shape).await?;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.port().connections_opened();
            let call = Call {
                script: &scripts::LOOK,
                keys: vec![shape.gate.clone(), shape.counter.clone()],
                args: vec![shape.nodes.to_string(), shape.closed_for.as_millis().to_string()],
            };
            let look = read_look(self.run(call).await?, before)?;
            // A look that opened a connection says nothing about the ones before.
            if before == self.port().connections_opened() || tries == 3 {
                if look.1 != shape.nodes {
                    let why = format!(
                        "{} belongs to a store of {} nodes, and the URL names {}; name the same nodes in every program",
                        self.place, look.1, shape.nodes
                    );
                    self.is_unfit(ErrorKind::InvalidConfig, why.clone());
                    return Err(Error::new(ErrorKind::InvalidConfig, why));
                }
                unpoisoned(&self.known).looked = Some(look.0.clone());
                return Ok(look.0);
            }
        }
    }

    /// Looks once whether this server can be a node at all.
    async fn check(&self, shape: &Shape) -> Result<()> {
        let facts = self.port().facts().await.inspect_err(|error| self.heard(Some(error)))?;
        let place = &self.place;
        let why = if facts.is_replica {
            format!("{place} is a replica, and every node has to be a master of its own; name the master")
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
                        tracing::warn!("{why}");
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
    pub(super) async fn open(self: &Arc<Self>, shape: &Shape, counter: u64) -> Result<bool> {
        let Some(look) = self.looked() else { return Ok(false) };
        let open = format!("{}|open|{}|0", look.epoch, shape.nodes);
        let call = Call {
            script: &scripts::OPEN,
            keys: vec![shape.gate.clone(), shape.counter.clone()],
            args: vec![look.gate, look.epoch, open, counter.to_string()],
        };
        let opened = self.run(call).await?.int()? == 1;
        // Others may have been faster.
        self.look(shape).await?;
        Ok(opened)
    }
}

fn read_look(answer: Data, opened: Option<u64>) -> Result<(Look, usize)> {
    let answer = answer.list()?;
    let field = |at: usize| answer.get(at).ok_or_else(no_answer);
    let left = field(2)?.int()?;
    let look = Look {
        epoch: field(0)?.text()?,
        gate: field(1)?.text()?,
        open: left < 0,
        until: Instant::now() + Duration::from_millis(u64::try_from(left).unwrap_or(0)),
        fresh: field(4)?.int()? == 1,
        counter: field(5)?.uint()?,
        now_ms: field(6)?.uint()?,
        opened,
    };
    Ok((look, usize::try_from(field(3)?.uint()?).unwrap_or(0)))
}
