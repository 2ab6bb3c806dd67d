//! The facts that locks are judged by and explained with: snapshots, processes, rings of waits.

use std::borrow::Cow;
use std::collections::HashMap;

use polylatch::ClientId;
use polylatch::inspect::{ClientView, HolderView, Snapshot, Trouble};

use super::beat::Session;
use super::connection::ConnectionId;
use super::graph::{Cycle, Source, cycles, lasting};
use super::signs::Signs;
use super::text::sanitized;
use super::{HostFacts, Process};

/// Two start times of one process may differ by this much: clocks are stepped, ticks are coarse.
const SAME_START_MS: u64 = 5_000;

/// What findings are drawn from.
#[expect(missing_debug_implementations, reason = "borrows a trait object and is never kept")]
pub struct Evidence<'a> {
    facts: &'a dyn HostFacts,
    connection: Cow<'a, ConnectionId>,
    /// How the CLI is called for each connection.
    commands: HashMap<Cow<'a, ConnectionId>, &'a str>,
    clients: HashMap<&'a ClientId, &'a ClientView>,
    rings: Cow<'a, [Cycle]>,
    /// Which ring each lock of this connection is in.
    ringed: HashMap<String, usize>,
    signs: Option<&'a Signs>,
    /// What the store says of itself.
    snapshot: Option<&'a Snapshot>,
}

impl<'a> Evidence<'a> {
    /// Prepares a single snapshot. `command` is how the CLI is called for this store, such as `polylatch`
    /// or `polylatch --url redis://cache`.
    pub fn new(snapshot: &'a Snapshot, facts: &'a dyn HostFacts, command: &'a str) -> Self {
        let nowhere = ConnectionId::new("");
        let clients = snapshot.clients.iter().map(|client| (&client.id, client)).collect();
        let rings = cycles(&[Source { connection: &nowhere, snapshot, facts }]);
        let commands = HashMap::from([(Cow::Owned(nowhere.clone()), command)]);
        Self::among(Cow::Owned(nowhere), commands, clients, facts, Cow::Owned(rings)).of_store(Some(snapshot))
    }

    /// The same after an earlier snapshot of the same store. Without one no ring of waits is reported, because a ring
    /// counts only if no lock in it changed hands between two snapshots.
    pub fn since(self, before: &Snapshot) -> Self {
        let before = cycles(&[Source { connection: &self.connection, snapshot: before, facts: self.facts }]);
        let rings = lasting(self.rings.into_owned(), &before);
        let snapshot = self.snapshot;
        Self::among(self.connection, self.commands, self.clients, self.facts, Cow::Owned(rings))
            .of_store(snapshot)
    }

    /// Prepares one connection of several.
    pub(super) fn among(
        connection: Cow<'a, ConnectionId>,
        commands: HashMap<Cow<'a, ConnectionId>, &'a str>,
        clients: HashMap<&'a ClientId, &'a ClientView>,
        facts: &'a dyn HostFacts,
        rings: Cow<'a, [Cycle]>,
    ) -> Self {
        let mut ringed = HashMap::new();
        for (at, ring) in rings.iter().enumerate().filter(|(_, ring)| ring.stands()) {
            for wait in ring.waits.iter().filter(|wait| wait.connection == *connection) {
                let known = ringed.entry(wait.lock.clone()).or_insert(at);
                if rings[*known].certainty() < ring.certainty() {
                    *known = at;
                }
            }
        }
        Self { facts, connection, commands, clients, rings, ringed, signs: None, snapshot: None }
    }

    /// The same with what is remembered of the clients.
    pub(super) fn with_signs(self, signs: &'a Signs) -> Self {
        Self { signs: Some(signs), ..self }
    }

    /// The same with what the store says of itself.
    pub(super) fn of_store(self, snapshot: Option<&'a Snapshot>) -> Self {
        Self { snapshot, ..self }
    }

    /// Returns what keeps the store from granting, renewing and releasing locks.
    pub fn trouble(&self) -> Option<&'a Trouble> {
        self.snapshot?.trouble()
    }

    /// Says whether leases hang on sessions there, with a lock-delay after those that end without a release.
    pub(super) fn hangs_on_sessions(&self) -> bool {
        self.snapshot.is_some_and(|snapshot| snapshot.backend == "consul")
    }

    /// Returns the nodes that did not answer.
    pub(super) fn silent_nodes(&self) -> Vec<&'a str> {
        self.snapshot.map(|snapshot| snapshot.silent_nodes().collect()).unwrap_or_default()
    }

    /// How long ago the client of a lease last gave a heartbeat, where that is all that the store can tell.
    pub(super) fn heartbeat_ago_ms(&self, holder: &HolderView) -> Option<u64> {
        Session::of(holder).filter(|_| holder.remaining_ms.is_none())?;
        Some(self.client(holder.client.as_ref()?)?.seen_ago_ms)
    }

    /// For how long the client of a lease that hangs on a session has sent no heartbeat, if that is too
    /// long.
    pub(super) fn silent_for_ms(&self, holder: &HolderView) -> Option<u64> {
        Session::of(holder).filter(|_| holder.remaining_ms.is_none())?;
        self.signs?.silent_for_ms(self.client(holder.client.as_ref()?)?)
    }

    /// Returns the ring of waits that a lock is in, if it has stood long enough.
    pub(super) fn ring(&self, lock: &str) -> Option<&Cycle> {
        self.ringed.get(lock).and_then(|at| self.rings.get(*at))
    }

    /// Returns how the CLI is called for a connection.
    pub(super) fn command(&self, connection: &ConnectionId) -> &'a str {
        self.commands.get(connection).copied().unwrap_or("polylatch")
    }

    /// Returns how the CLI is called for the connection whose locks are explained.
    pub(super) fn own_command(&self) -> &'a str {
        self.command(&self.connection)
    }

    /// Returns what a client says about itself.
    pub fn client(&self, id: &ClientId) -> Option<&'a ClientView> {
        self.clients.get(id).copied()
    }

    /// Returns `host pid 42 (program)`.
    pub fn who(&self, id: &ClientId) -> String {
        let (host, pid) = self.place(id);
        let program =
            self.client(id).map(|client| format!(" ({})", sanitized(&client.program))).unwrap_or_default();
        format!("{host} pid {pid}{program}")
    }

    /// Returns the host's name and the process id as text.
    pub fn place(&self, id: &ClientId) -> (String, String) {
        match self.client(id) {
            Some(client) => (sanitized(&client.host), client.pid.to_string()),
            None => (sanitized(id.host()), id.pid().map_or("?".into(), |pid| pid.to_string())),
        }
    }

    /// Says whether a client runs on this host in another PID namespace: its number means another process here.
    pub fn is_apart(&self, id: &ClientId) -> bool {
        self.client(id).is_some_and(|client| super::local::is_apart(self.facts, client))
    }

    pub(super) fn holder(&self, holder: &HolderView) -> String {
        holder.client.as_ref().map_or_else(|| "another program".into(), |id| self.who(id))
    }

    /// Looks the holder's process up, if it runs on this host.
    pub fn process(&self, holder: &HolderView) -> Process {
        holder.client.as_ref().map_or(Process::Unknown, |id| self.process_of(id))
    }

    /// Looks a client's process up, if it runs on this host.
    pub fn process_of(&self, id: &ClientId) -> Process {
        let Some(client) = self.client(id) else { return Process::Unknown };
        if !self.facts.is_here(client) {
            return Process::Unknown;
        }
        if let (Some(then), Some(now)) = (&client.boot, self.facts.boot())
            && then != now
        {
            return Process::Gone; // the host was started again since
        }
        let process = self.facts.process(client.pid);
        if let Process::Present { started_at_ms: Some(started), .. } = process
            && client.process_started_at_ms.is_some_and(|said| said.abs_diff(started) > SAME_START_MS)
        {
            return Process::Gone; // its number was given to another process
        }
        process
    }
}
