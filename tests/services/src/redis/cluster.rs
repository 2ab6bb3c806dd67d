//! A cluster: three masters, with a replica each if wanted.

use std::time::{Duration, Instant};

use super::{RedisBuilder, RedisServer};
use crate::port::ReservedPort;
use crate::wait::wait_until;

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;
const PATIENCE: Duration = Duration::from_secs(60);
/// For how long a node has to be silent to be taken for failed.
const SILENCE_MS: u32 = 1_000;

/// A cluster that is up; gone with its value.
#[derive(Debug)]
pub struct Cluster {
    /// The first three were started as masters, with a third of the slots each; then their replicas.
    pub nodes: Vec<RedisServer>,
    /// Where the nodes talk to each other.
    buses: Vec<ReservedPort>,
}

impl Cluster {
    /// Three masters without replicas.
    #[track_caller]
    pub fn start() -> Cluster {
        Cluster::start_with(0, |node| node)
    }

    /// Three masters with so many replicas each, and more settings for every node.
    #[track_caller]
    pub fn start_with(replicas: usize, settings: impl Fn(RedisBuilder) -> RedisBuilder) -> Cluster {
        let buses: Vec<_> =
            (0..MASTERS * (1 + replicas)).map(|_| ReservedPort::new().expect("a free port")).collect();
        let start = |bus: &ReservedPort| {
            let node = RedisServer::builder()
                .config("cluster-enabled yes")
                .config(&format!("cluster-port {}", bus.number()))
                .config(&format!("cluster-node-timeout {SILENCE_MS}"))
                // Replicas of an idle master count as up to date.
                .config("cluster-replica-validity-factor 0");
            let node = settings(node).start();
            if node.tls.is_some() {
                // Nodes talk to each other without it, and tell clients this port.
                let said =
                    node.command(&["CONFIG", "SET", "cluster-announce-port", &node.port().to_string()]);
                assert!(said.is_ok(), "{said:?}");
            }
            node
        };
        let cluster = Cluster { nodes: buses.iter().map(start).collect(), buses };
        for at in 0..MASTERS {
            let (first, last) = (SLOTS * at / MASTERS, SLOTS * (at + 1) / MASTERS - 1);
            cluster.say(at, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            // So that no two begin with the same one.
            cluster.say(at, &["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
        }
        for at in 1..cluster.nodes.len() {
            let (port, bus) = (cluster.nodes[at].port().to_string(), cluster.buses[at].number().to_string());
            cluster.say(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let count = cluster.nodes.len();
        cluster.wait_until_all("know each other", |info| {
            info.contains(&format!("cluster_known_nodes:{count}\r"))
        });
        for at in MASTERS..count {
            let master = cluster.id(at % MASTERS);
            wait_until("the replica to know its master", PATIENCE, || {
                cluster.nodes[at].command(&["CLUSTER", "REPLICATE", &master]).is_ok()
            });
        }
        // One that need not cover all slots is well before it knows where they are.
        cluster.wait_until_all("know where all slots are", |info| {
            info.contains(&format!("cluster_slots_assigned:{SLOTS}\r"))
        });
        cluster.wait_until_ok();
        for at in MASTERS..count {
            cluster.wait_until_copied(at);
        }
        cluster
    }

    /// The address that a client dials, without options.
    pub fn url(&self) -> String {
        let places: Vec<_> = self.nodes[..MASTERS].iter().map(|node| node.address().to_string()).collect();
        let scheme = self.nodes[0].scheme();
        format!("{scheme}+cluster://{}", places.join(","))
    }

    /// The id of a node.
    #[track_caller]
    pub fn id(&self, at: usize) -> String {
        self.nodes[at].command(&["CLUSTER", "MYID"]).text().expect("a node of a cluster").to_owned()
    }

    /// Which of the nodes has a slot, by the word of one that runs.
    #[track_caller]
    pub fn owner(&self, slot: u16) -> usize {
        let asked = self.nodes.iter().find(|node| node.is_running()).expect("a node that runs");
        let slots = asked.command(&["CLUSTER", "SLOTS"]);
        let range = slots.items().iter().find(|range| {
            let bound = |at: usize| range.items()[at].int().unwrap_or(-1);
            (bound(0)..=bound(1)).contains(&i64::from(slot))
        });
        let port = range.and_then(|range| range.items()[2].items()[1].int()).expect("somebody has it");
        self.nodes.iter().position(|node| i64::from(node.port()) == port).expect("one of ours")
    }

    /// Begins to move a slot; until [`end_move`](Cluster::end_move), its keys are on either node.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let text = slot.to_string();
        self.say(to, &["CLUSTER", "SETSLOT", &text, "IMPORTING", &self.id(from)]);
        self.say(from, &["CLUSTER", "SETSLOT", &text, "MIGRATING", &self.id(to)]);
    }

    /// Moves up to `count` keys of a slot; says how many there were.
    #[track_caller]
    pub fn move_keys(&self, slot: u16, from: usize, to: usize, count: usize) -> usize {
        let keys =
            self.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &count.to_string()]);
        let keys = keys.texts();
        for key in &keys {
            let port = self.nodes[to].port().to_string();
            let moved = self.nodes[from].command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            assert!(moved.error().is_none(), "{moved:?}");
        }
        keys.len()
    }

    /// Moves what is left, and gives the slot away.
    #[track_caller]
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        while self.move_keys(slot, from, to, 100) > 0 {}
        let id = self.id(to);
        for at in [to, from] {
            self.say(at, &["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]);
        }
    }

    /// Which nodes have slots, by the word of one that runs.
    #[track_caller]
    pub fn masters(&self) -> Vec<usize> {
        self.masters_by(self.nodes.iter().position(RedisServer::is_running).expect("a node that runs"))
    }

    /// Which nodes have slots, by the word of this one.
    #[track_caller]
    pub fn masters_by(&self, asked: usize) -> Vec<usize> {
        let slots = self.nodes[asked].command(&["CLUSTER", "SLOTS"]);
        let ports: Vec<_> =
            slots.items().iter().filter_map(|range| range.items()[2].items()[1].int()).collect();
        (0..self.nodes.len()).filter(|at| ports.contains(&i64::from(self.nodes[*at].port()))).collect()
    }

    /// Lets a replica take the place of its master, which becomes its replica; nothing is lost.
    #[track_caller]
    pub fn take_over(&self, replica: usize) {
        let mut asked: Option<Instant> = None;
        wait_until("the replica to take over", PATIENCE, || {
            let role = self.nodes[replica].command(&["ROLE"]);
            let is_master = role.items().first().and_then(|role| role.text()) == Some("master");
            // It is given up after 5 s if the others have not agreed by then, and nothing says so.
            if !is_master && asked.is_none_or(|at| at.elapsed() > Duration::from_secs(6)) {
                self.say(replica, &["CLUSTER", "FAILOVER"]);
                asked = Some(Instant::now());
            }
            is_master
        });
        self.wait_until_master(replica);
    }

    /// Waits until every node that runs takes this one for a master with slots.
    #[track_caller]
    pub fn wait_until_master(&self, at: usize) {
        self.wait_until_master_by(at, |_| true);
    }

    /// The same for all nodes but one, which hangs.
    #[track_caller]
    pub fn wait_until_master_by_others(&self, at: usize, hung: usize) {
        self.wait_until_master_by(at, |asked| asked != hung);
    }

    #[track_caller]
    fn wait_until_master_by(&self, at: usize, asks: impl Fn(usize) -> bool) {
        let id = self.id(at);
        self.wait_until_slots("know the new master", asks, |_, _, master| master == id);
    }

    /// Waits until every node that runs names this one as the owner of a slot.
    #[track_caller]
    pub fn wait_until_agreed(&self, slot: u16, owner: usize) {
        let (slot, id) = (i64::from(slot), self.id(owner));
        self.wait_until_slots(
            "know who has the slot",
            |_| true,
            |first, last, master| (first..=last).contains(&slot) && master == id,
        );
    }

    /// Waits until all these nodes know of a range of slots (first, last, id of its master) that is so.
    #[track_caller]
    fn wait_until_slots(
        &self,
        what: &str,
        asks: impl Fn(usize) -> bool,
        so: impl Fn(i64, i64, &str) -> bool,
    ) {
        wait_until(&format!("all nodes to {what}"), PATIENCE, || {
            let mut nodes = self.nodes.iter().enumerate();
            nodes.all(|(at, node)| {
                if !asks(at) || !node.is_running() {
                    return true;
                }
                let slots = node.try_command(&["CLUSTER", "SLOTS"]);
                slots.is_ok_and(|slots| {
                    slots.items().iter().any(|range| {
                        let bound = |at: usize| range.items()[at].int().unwrap_or(-1);
                        let master = range.items()[2].items()[2].text().unwrap_or_default();
                        so(bound(0), bound(1), master)
                    })
                })
            })
        });
    }

    /// Waits until a node that was a master knows that it is a replica.
    #[track_caller]
    pub fn wait_until_follows(&self, at: usize) {
        wait_until("the old master to follow", PATIENCE, || {
            let role = self.nodes[at].try_command(&["ROLE"]);
            role.is_ok_and(|role| role.items().first().and_then(|role| role.text()) == Some("slave"))
        });
    }

    /// Waits until a master that writes only with replicas (`min-replicas-to-write`) has enough of them.
    #[track_caller]
    pub fn wait_until_writable(&self, at: usize) {
        wait_until("the master to have its replicas", PATIENCE, || {
            let info = self.nodes[at].try_command(&["INFO", "replication"]);
            info.is_ok_and(|info| info.text().is_some_and(|text| !text.contains("min_slaves_good_slaves:0")))
        });
    }

    /// Waits until a replica has what its master has.
    #[track_caller]
    pub fn wait_until_copied(&self, replica: usize) {
        wait_until("the replica to have the data", PATIENCE, || {
            let info = self.nodes[replica].try_command(&["INFO", "replication"]);
            info.is_ok_and(|info| info.text().is_some_and(|text| text.contains("master_link_status:up")))
        });
    }

    #[track_caller]
    fn say(&self, at: usize, words: &[&str]) {
        let reply = self.nodes[at].command(words);
        assert!(reply.is_ok(), "{words:?}: {reply:?}");
    }

    /// Waits until every node that runs finds that all slots are served.
    #[track_caller]
    pub fn wait_until_ok(&self) {
        self.wait_until_all("serve all slots", |info| info.contains("cluster_state:ok"));
    }

    #[track_caller]
    fn wait_until_all(&self, what: &str, so: impl Fn(&str) -> bool) {
        wait_until(&format!("all nodes to {what}"), PATIENCE, || {
            self.nodes.iter().filter(|node| node.is_running()).all(|node| {
                let info = node.try_command(&["CLUSTER", "INFO"]);
                info.is_ok_and(|info| info.text().is_some_and(&so))
            })
        });
    }
}
