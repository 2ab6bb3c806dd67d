//! The sessions of one client: one for each length of lease.
//!
//! A session has one timeout, and a lock ends with it. So locks of one length share a session, which is renewed once for
//! all of them, and another length has another session. A connection carries one session, so their number is limited.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::clock::{Clock, SystemClock, millis};
use crate::error::{Error, ErrorKind, Result};
use crate::wakeups::{Wakeups, unpoisoned};

use super::super::config::ZooKeeperConfig;
use super::super::liveness::{Liveness, pings_every, timeout_for};
use super::member::Member;
use super::session::{Session, Shared};
use super::worker::Worker;

/// How many lengths of lease one client has at a time.
const MOST: usize = 8;

pub(crate) struct Pool {
    config: Arc<ZooKeeperConfig>,
    pub members: Arc<[Member]>,
    wakeups: Arc<Wakeups>,
    runtime: tokio::runtime::Handle,
    /// By the lease, in milliseconds.
    sessions: Mutex<BTreeMap<u64, Arc<Session>>>,
}

impl Pool {
    /// Errors: `invalid_config` that names the file of a certificate.
    pub(crate) fn new(
        config: Arc<ZooKeeperConfig>,
        wakeups: Arc<Wakeups>,
        runtime: tokio::runtime::Handle,
    ) -> Result<Self> {
        let members = Member::all(&config)?.into();
        Ok(Self { config, members, wakeups, runtime, sessions: Mutex::default() })
    }

    /// The session of all that depends on no lock.
    pub(crate) fn main(&self) -> Result<Arc<Session>> {
        self.session(self.config.lease)
    }

    /// The session for locks of this lease; it may still have to connect.
    ///
    /// Errors: `unsupported` if there are too many.
    pub(crate) fn session(&self, lease: Duration) -> Result<Arc<Session>> {
        let mut sessions = unpoisoned(&self.sessions);
        sessions.retain(|_, session| !session.is_ended());
        if let Some(session) = sessions.get(&millis(lease)) {
            return Ok(Arc::clone(session));
        }
        let main = millis(self.config.lease);
        if sessions.len() >= MOST {
            // One that no verb is at work with and no lock hangs on.
            let unused = |session: &Arc<Session>| Arc::strong_count(session) == 1 && session.is_unused();
            let unused = sessions.iter().find(|(length, session)| **length != main && unused(session));
            match unused.map(|(length, _)| *length) {
                Some(length) => _ = sessions.remove(&length),
                None => return Err(too_many(lease, sessions.keys().copied())),
            }
        }
        let session = Arc::new(self.start(lease, sessions.len()));
        sessions.insert(millis(lease), Arc::clone(&session));
        Ok(session)
    }

    fn start(&self, lease: Duration, nth: usize) -> Session {
        let (sender, orders) = mpsc::unbounded_channel();
        let tick = self.config.tick;
        let places = self.members.iter().map(|member| &*member.place).collect::<Vec<_>>().join(", ");
        let shared = Arc::new(Shared::new(Arc::clone(&self.wakeups), Liveness::new(tick), places));
        let worker = Worker {
            config: Arc::clone(&self.config),
            members: Arc::clone(&self.members),
            shared: Arc::clone(&shared),
            orders,
            timeout: timeout_for(lease, tick),
            pings_every: pings_every(lease),
            heard: SystemClock.now(),
            password: vec![0; 16],
            seen: 0,
            next: nth,
        };
        self.runtime.spawn(worker.run());
        Session::new(sender, shared, self.config.timeout * 9 / 10, self.config.nodes.nothing())
    }

    /// Takes out all sessions.
    pub(crate) fn take_all(&self) -> Vec<Arc<Session>> {
        std::mem::take(&mut *unpoisoned(&self.sessions)).into_values().collect()
    }
}

fn too_many(lease: Duration, present: impl Iterator<Item = u64>) -> Error {
    let present: Vec<_> = present.map(|length| format!("{length} ms")).collect();
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "a lease of {} ms needs another ZooKeeper session, and this client has {MOST} already, for the leases {}; use \
             one of these, or another client",
            lease.as_millis(),
            present.join(", ")
        ),
    )
}
