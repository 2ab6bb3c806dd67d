//! One Redis server: a plain string per lock, a line of waiters, and hand-off by push.
//!
//! The protocol is in `scripts/`; what stands in the store is in `core/docs/wire-format.md`. This
//! file only turns verbs into script calls and answers into words.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::backend::{
    ANNOUNCE_TTL, AUDIT_LENGTH, Answer, Ask, Backend, Capability, Contender, OpenContext, Purpose, Released,
    RenewItem, Renewal, Reply,
};
use crate::client_info::ClientInfo;
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::inspect::{BreakOutcome, BreakRequest, Examination, Query, Snapshot};
use crate::name::LockName;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::policy::waiting::{WaitAnswer, WaitTimes};
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::Wakeups;

pub(crate) mod config;
#[cfg(all(test, unix))]
mod differential;
mod driven;
mod examine;
mod native;
pub(crate) mod port;
mod reading;
pub(crate) mod records;
mod replies;
pub(crate) mod scripts;
mod socket;
mod stream;

use config::Guarantee;
pub(crate) use config::RedisConfig;
use native::NativePort;
use port::{Acknowledge, Call, ChannelEvent, Data, Port, ServerFacts};
use records::{Keys, LockValue, value_tail, waiter_record};
use scripts::Script;

/// How long a first waiter lets the subscription come up before it stands in line without it.
const SUBSCRIBE_LIMIT: Duration = Duration::from_millis(500);

/// One client's view of one Redis server.
pub(crate) struct RedisBackend {
    inner: Arc<Inner>,
    capability: Capability,
}

struct Inner {
    port: Box<dyn Port>,
    keys: Keys,
    guarantee: Guarantee,
    max_lease: Duration,
    acknowledge: Option<Acknowledge>,
    runtime: tokio::runtime::Handle,
    wakeups: Arc<Wakeups>,
    client: ClientId,
    inbox: watch::Sender<Inbox>,
    subscribing: AtomicBool,
    own: examine::Own,
}

/// Whether pushes reach this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbox {
    Opening,
    Open,
    /// The server refuses it for good: waiters are marked as not listening.
    Refused,
}

/// Connects, looks at the server, and refuses what cannot keep the declared guarantee.
pub(crate) async fn open(
    config: RedisConfig,
    context: OpenContext,
    purpose: Purpose,
) -> Result<Arc<dyn Backend>> {
    let port = NativePort::new(&config, context.runtime.clone())?;
    let facts = port.facts().await?;
    if purpose == Purpose::Examine {
        return Ok(Arc::new(RedisBackend::new(config, context, Box::new(port))));
    }
    if facts.is_replica {
        return Err(Error::new(
            ErrorKind::BackendRejected,
            "this Redis is a replica, and locks need the master; connect to the master",
        ));
    }
    check_guarantee(&config, &facts)?;
    Ok(Arc::new(RedisBackend::new(config, context, Box::new(port))))
}

/// Says what this server cannot promise: an error under `strict`, a warning otherwise.
fn check_guarantee(config: &RedisConfig, facts: &ServerFacts) -> Result<()> {
    let mut findings = Vec::new();
    if facts.epoch.is_none() && config.guarantee == Guarantee::Strict {
        findings.push(
            "this user may not call INFO, so a restart of the server cannot be noticed; allow it with +info"
                .to_owned(),
        );
    }
    if let (Some(limit @ 1..), Some(policy)) = (facts.max_memory, &facts.eviction_policy)
        && policy != "noeviction"
    {
        findings.push(format!(
            "with maxmemory={limit} and maxmemory-policy={policy} it may evict held locks; set maxmemory-policy \
             noeviction, or give locks a server of their own"
        ));
    }
    if facts.replicas > 0 && config.acknowledge.is_none() {
        findings.push(format!(
            "it has {} replicas and nobody waits for them, so a promotion may lose a held lock; add ack=majority, \
             and min-replicas-to-write on the server",
            facts.replicas
        ));
    }
    if findings.is_empty() {
        return Ok(());
    }
    let findings = findings.join("; ");
    if config.guarantee == Guarantee::Strict {
        return Err(Error::new(
            ErrorKind::BackendRejected,
            format!("guarantee=strict cannot be kept by this Redis: {findings}"),
        ));
    }
    tracing::warn!(%findings, "this Redis may hand one lock to two holders");
    Ok(())
}

impl RedisBackend {
    pub(crate) fn new(config: RedisConfig, context: OpenContext, port: Box<dyn Port>) -> Self {
        let inner = Inner {
            own: examine::Own::of(&config),
            port,
            keys: config.keys,
            guarantee: config.guarantee,
            max_lease: config.max_lease,
            acknowledge: config.acknowledge,
            runtime: context.runtime,
            wakeups: context.wakeups,
            client: context.client,
            inbox: watch::Sender::new(Inbox::Opening),
            subscribing: AtomicBool::new(false),
        };
        let capability = Capability {
            backend: "redis",
            fifo: true,
            push: true,
            expiry: true,
            fencing: FenceQuality::TimeFloored,
            min_lease: crate::options::MIN_LEASE,
            max_lease: inner.max_lease,
        };
        Self { inner: Arc::new(inner), capability }
    }
}

impl Inner {
    /// Subscribes to this client's inbox, once, and waits a moment for the server's confirmation: a
    /// push from before the subscription would be missed.
    async fn listens(self: &Arc<Self>) -> bool {
        if !self.subscribing.swap(true, Ordering::SeqCst) {
            let weak = Arc::downgrade(self);
            let channel = format!("{}{}", self.keys.inbox_before(), self.client);
            self.port.subscribe(
                channel,
                Arc::new(move |event| {
                    if let Some(inner) = weak.upgrade() {
                        inner.heard(event);
                    }
                }),
            );
        }
        let mut inbox = self.inbox.subscribe();
        if *inbox.borrow_and_update() == Inbox::Opening {
            let limit = {
                let _context = self.runtime.enter();
                tokio::time::sleep(SUBSCRIBE_LIMIT)
            };
            tokio::select! {
                _ = inbox.wait_for(|inbox| *inbox != Inbox::Opening) => {}
                () = limit => {}
            }
        }
        *self.inbox.borrow() != Inbox::Refused
    }

    fn heard(&self, event: ChannelEvent) {
        match event {
            ChannelEvent::Subscribed => {
                self.inbox.send_replace(Inbox::Open);
                // Whatever was pushed before now is lost: everybody asks.
                self.wakeups.hint_all();
            }
            ChannelEvent::Interrupted => {}
            ChannelEvent::Refused(why) => {
                tracing::warn!(why, "pushes are refused, so waiters poll; allow the channel in the ACL");
                self.inbox.send_replace(Inbox::Refused);
            }
            ChannelEvent::Message(message) => self.pushed(&message),
        }
    }

    fn pushed(&self, message: &[u8]) {
        let Ok(message) = std::str::from_utf8(message) else { return };
        let mut fields = message.split('|');
        let (Some(what), Some(owner), Some(fence)) = (fields.next(), fields.next(), fields.next()) else {
            return;
        };
        let (Some(owner), Ok(fence)) = (OwnerToken::from_hex(owner), fence.parse()) else { return };
        match what {
            // A push skips the replicas' acknowledgement, so it is only a reason to ask.
            "granted" if self.acknowledge.is_some() => self.wakeups.hint(owner),
            "granted" => self.wakeups.grant(owner, fence),
            "revoked" => self.wakeups.revoked(owner, fence),
            "echo" => drop(self.own.echo.send_replace(Some(owner))),
            _ => {}
        }
    }

    /// Calls a script that can grant.
    async fn granting(
        &self,
        script: &'static Script,
        name: &LockName,
        args: impl IntoIterator<Item = String>,
        acknowledge: Option<Acknowledge>,
    ) -> Result<Data> {
        let mut all = self.granting_args(name);
        all.extend(args);
        self.one(Call { script, keys: self.keys.granting(name), args: all }, acknowledge).await
    }

    /// The first arguments of every script that can grant.
    fn granting_args(&self, name: &LockName) -> Vec<String> {
        vec![
            self.keys.inbox_before(),
            name.escaped_for_redis(),
            if self.guarantee == Guarantee::Strict { "strict".into() } else { String::new() },
            self.max_lease.as_millis().to_string(),
        ]
    }

    async fn one(&self, call: Call, acknowledge: Option<Acknowledge>) -> Result<Data> {
        let mut answers = self.port.run(vec![call], acknowledge).await?;
        answers.pop().unwrap_or_else(|| Err(no_answer()))
    }

    async fn poll(self: Arc<Self>, contender: Arc<Contender>, ask: Ask) -> Result<Answer> {
        let waits = matches!(ask, Ask::Wait { .. });
        let listens = waits && self.listens().await;
        let (near, far) = match ask {
            Ask::Try => (Duration::ZERO, Duration::ZERO),
            Ask::Wait { near_heartbeat, far_heartbeat } => (near_heartbeat, far_heartbeat),
        };
        let flag = |yes: bool| u8::from(yes).to_string();
        let args = [
            contender.owner.to_hex(),
            waiter_record(&contender, listens),
            contender.first_lease.as_millis().to_string(),
            flag(waits),
            flag(contender.barge),
            near.as_millis().to_string(),
            far.as_millis().to_string(),
            WaitTimes::NEAR_POSITIONS.to_string(),
            value_tail(&contender),
        ];
        let answer = self.granting(&scripts::POLL, &contender.name, args, self.acknowledge).await?.list()?;
        let field = |at: usize| answer.get(at).ok_or_else(no_answer);
        match field(0)?.text()?.as_str() {
            "held" => Ok(Answer::Held { fence: FencingToken::new(field(1)?.uint()?) }),
            "withheld" => Ok(Answer::Withheld { left: Duration::from_millis(field(1)?.uint()?) }),
            "foreign" => Err(foreign_data(&contender.name)),
            _ => {
                let left = u64::try_from(field(3)?.int()?).ok().map(Duration::from_millis);
                let value = field(4)?.text()?;
                let now_ms = field(5)?.uint()?;
                let holder = (!value.is_empty()).then(|| match LockValue::parse(&value) {
                    Some(value) => value.hint(now_ms, left),
                    None => crate::backend::HolderHint {
                        client: None,
                        label: String::new(),
                        held_for: None,
                        left,
                    },
                });
                let answer = WaitAnswer {
                    fence: field(1)?.uint()?,
                    position: Some(u32::try_from(field(2)?.uint()?).unwrap_or(u32::MAX)),
                    holder_left: left,
                    poll_within: None,
                };
                Ok(Answer::Wait { answer, holder })
            }
        }
    }

    async fn renew(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
        let mut keys = Vec::with_capacity(items.len());
        let mut args = Vec::with_capacity(items.len() * 4);
        for item in &items {
            keys.push(self.keys.lock(&item.contender.name));
            args.push(format!("{}|pl1|", item.contender.owner.to_hex()));
            args.push(item.fence.get().to_string());
            args.push(item.lease.as_millis().to_string());
            args.push(format!("{:08}", item.renewals.min(99_999_999)));
        }
        let answers = self.one(Call { script: &scripts::RENEW, keys, args }, None).await?.list()?;
        answers
            .iter()
            .map(|answer| Ok(if answer.int()? == 1 { Renewal::Extended } else { Renewal::NotYours }))
            .collect()
    }

    async fn release(self: Arc<Self>, contender: Arc<Contender>, fence: FencingToken) -> Result<Released> {
        let args = [contender.owner.to_hex(), fence.get().to_string()];
        let answer = self.granting(&scripts::RELEASE, &contender.name, args, None).await?;
        Ok(if answer.int()? == 1 { Released::Released } else { Released::NotHeld })
    }

    async fn cancel(self: Arc<Self>, contender: Arc<Contender>) -> Result<()> {
        let listens = *self.inbox.borrow() != Inbox::Refused;
        let args = [contender.owner.to_hex(), waiter_record(&contender, listens)];
        self.granting(&scripts::CANCEL, &contender.name, args, None).await.map(drop)
    }

    async fn announce(self: Arc<Self>, client: Arc<ClientInfo>) -> Result<()> {
        let keys = &self.keys;
        let record = [
            ("host", client.host.clone()),
            ("pid", client.pid.to_string()),
            ("started_ms", client.process_started_at_ms.map(|ms| ms.to_string()).unwrap_or_default()),
            ("program", client.program.clone()),
            ("language", client.language.clone()),
            ("version", client.version.clone()),
        ];
        let mut args = vec![client.id.to_string(), ANNOUNCE_TTL.as_millis().to_string()];
        args.extend(keys.around_names());
        args.extend(record.into_iter().flat_map(|(field, value)| [field.to_owned(), value]));
        let keys = vec![format!("{}{}", keys.client_before(), client.id), keys.clients(), keys.index()];
        self.one(Call { script: &scripts::ANNOUNCE, keys, args }, None).await.map(drop)
    }

    async fn break_lease(self: Arc<Self>, request: BreakRequest) -> Result<BreakOutcome> {
        let name = LockName::new(&request.name)?;
        let mut keys = self.keys.granting(&name);
        keys.push(self.keys.audit());
        let mut args = self.granting_args(&name);
        args.extend([
            request.expected.get().to_string(),
            request.name.clone(),
            request.by.clone(),
            request.reason.clone(),
            AUDIT_LENGTH.to_string(),
        ]);
        let answer = self.one(Call { script: &scripts::BREAK, keys, args }, None).await?.list()?;
        let field = |at: usize| answer.get(at).ok_or_else(no_answer).and_then(Data::text);
        Ok(match field(0)?.as_str() {
            "free" => BreakOutcome::Free,
            "foreign" => return Err(foreign_data(&name)),
            "changed" => BreakOutcome::ChangedHands {
                present: FencingToken::new(answer.get(1).ok_or_else(no_answer)?.uint()?),
            },
            _ => BreakOutcome::Broken {
                holder: ClientId::from_stored(&field(1)?),
                next: Some(field(2)?)
                    .filter(|next| !next.is_empty())
                    .map(|next| ClientId::from_stored(&next)),
            },
        })
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Internal, "a script answered with too few fields; please report this")
        .with_effect(Effect::Maybe)
}

fn foreign_data(name: &LockName) -> Error {
    Error::new(
        ErrorKind::NameConflict,
        format!(
            "the key of the lock {name:?} holds data that is no lock of ours and never expires; it was left alone, \
             so use another name or another prefix"
        ),
    )
    .on_lock(name.as_str())
}

impl Backend for RedisBackend {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        Box::pin(Arc::clone(&self.inner).poll(Arc::clone(contender), ask))
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        Box::pin(Arc::clone(&self.inner).renew(items))
    }

    fn release(&self, contender: &Arc<Contender>, fence: FencingToken) -> Reply<Released> {
        Box::pin(Arc::clone(&self.inner).release(Arc::clone(contender), fence))
    }

    fn cancel(&self, contender: &Arc<Contender>) -> Reply<()> {
        Box::pin(Arc::clone(&self.inner).cancel(Arc::clone(contender)))
    }

    fn announce(&self, client: &Arc<ClientInfo>) -> Reply<()> {
        Box::pin(Arc::clone(&self.inner).announce(Arc::clone(client)))
    }

    fn snapshot(&self, query: &Query) -> Reply<Snapshot> {
        let inner = Arc::clone(&self.inner);
        let query = query.clone();
        Box::pin(async move {
            let started = Instant::now();
            let mut snapshot = reading::read(&*inner.port, &inner.keys, &query).await?;
            snapshot.round_trip = started.elapsed();
            Ok(snapshot)
        })
    }

    fn break_lease(&self, request: &BreakRequest) -> Reply<BreakOutcome> {
        Box::pin(Arc::clone(&self.inner).break_lease(request.clone()))
    }

    fn examine(&self) -> Reply<Examination> {
        Box::pin(examine::examine(Arc::clone(&self.inner)))
    }

    fn close(&self) -> Reply<()> {
        self.inner.port.close();
        Box::pin(std::future::ready(Ok(())))
    }
}
