//! What a host knew about its own processes when a store was read: facts as data, so that a recording
//! tells the same as the live view did.

use std::collections::BTreeMap;

use polylatch::idempotency::RecordView;
use polylatch::inspect::{ClientView, Snapshot};
use serde::{Deserialize, Serialize};

use super::{HostFacts, Process};

/// The processes of one host that a snapshot names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LocalFacts {
    /// The host's name; empty if nothing is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The boot that the host is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// The pid namespace in which the numbers count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<String>,
    /// What is known of each process.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub processes: BTreeMap<u32, Process>,
    /// Who started whom.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parents: BTreeMap<u32, u32>,
}

impl LocalFacts {
    /// Looks up every process of this host that the snapshot names, and the ancestors of those that wait.
    pub fn of(snapshot: &Snapshot, facts: &dyn HostFacts) -> Self {
        const MOST_GENERATIONS: usize = 32;
        let mut known = Self {
            host: facts.host_name().to_owned(),
            boot: facts.boot().map(str::to_owned),
            pid_namespace: facts.pid_namespace().map(str::to_owned),
            ..Self::default()
        };
        let local: BTreeMap<_, _> = snapshot
            .clients
            .iter()
            .filter(|client| facts.is_here(client))
            .map(|client| (&client.id, client.pid))
            .collect();
        for pid in local.values() {
            known.processes.entry(*pid).or_insert_with(|| facts.process(*pid));
        }
        let waiting = snapshot.locks.iter().flat_map(|lock| &lock.waiters).map(|waiter| &waiter.client);
        for &pid in waiting.filter_map(|id| local.get(id)) {
            let mut child = pid;
            for _ in 0..MOST_GENERATIONS {
                if known.parents.contains_key(&child) {
                    break;
                }
                let Some(parent) = facts.parent(child) else { break };
                known.parents.insert(child, parent);
                child = parent;
            }
        }
        known
    }

    /// Looks up every process of this host that works on idempotent keys, by what its client calls itself.
    pub fn of_records(records: &[RecordView], facts: &dyn HostFacts) -> Self {
        let mut known = Self { host: facts.host_name().to_owned(), ..Self::default() };
        let open = records.iter().filter(|record| super::records::is_open(record));
        let here = open.filter(|record| !known.host.is_empty() && record.client.host() == known.host);
        let pids: Vec<u32> = here.filter_map(|record| record.client.pid()).collect();
        for pid in pids {
            known.processes.entry(pid).or_insert_with(|| facts.process(pid));
        }
        known
    }
}

impl HostFacts for LocalFacts {
    fn host_name(&self) -> &str {
        &self.host
    }

    fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    fn pid_namespace(&self) -> Option<&str> {
        self.pid_namespace.as_deref()
    }

    fn process(&self, pid: u32) -> Process {
        self.processes.get(&pid).copied().unwrap_or(Process::Unknown)
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        self.parents.get(&pid).copied()
    }
}

/// Says whether a client's process number can be looked up on the host of `facts`.
pub(super) fn is_here<F: HostFacts + ?Sized>(facts: &F, client: &ClientView) -> bool {
    is_on_host(facts, client) && !is_in_other_namespace(facts, client)
}

/// Says whether a client runs on the host of `facts`, but its number counts in another PID namespace.
pub(super) fn is_apart<F: HostFacts + ?Sized>(facts: &F, client: &ClientView) -> bool {
    is_on_host(facts, client) && is_in_other_namespace(facts, client)
}

fn is_on_host<F: HostFacts + ?Sized>(facts: &F, client: &ClientView) -> bool {
    !client.host.is_empty() && client.host == facts.host_name()
}

fn is_in_other_namespace<F: HostFacts + ?Sized>(facts: &F, client: &ClientView) -> bool {
    let namespaces = client.pid_namespace.as_deref().zip(facts.pid_namespace());
    namespaces.is_some_and(|(theirs, ours)| theirs != ours)
}
