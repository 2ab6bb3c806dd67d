//! Nodes, clients, and what each client remembers of each node.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::step::Event;
use super::{Begin, World};

/// Most nodes and clients of a world.
pub(super) const NODES: usize = 3;
pub(super) const CLIENTS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lock {
    /// Client and attempt.
    pub owner: u8,
    /// By the node's wall clock.
    pub left: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Door {
    Open,
    Floored,
    Closed {
        /// For how long, by the node's wall clock.
        by_node: i8,
        /// For how long by true time.
        age: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Gate {
    pub door: Door,
    /// It was written for the present process.
    pub of_process: bool,
    pub fresh: bool,
    pub strict: bool,
    pub longest: u8,
}

impl Gate {
    pub(super) fn is_open(&self) -> bool {
        self.of_process && !matches!(self.door, Door::Closed { .. })
    }
}

/// What a client remembers of a node, as far as it is still true of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct View {
    /// The gate is as it read it.
    pub knows: bool,
    /// The process is the one whose gate it read.
    pub process: bool,
    /// By how much the node's clock has moved since it was read; `None` before.
    pub moved: Option<i8>,
    /// For how long the node is closed behind its present gate, as far as this client knows by its own clock.
    pub closed_for: Option<u8>,
    /// The number of its yes in this attempt, or 0.
    pub yes: u8,
    /// An opening is on its way, for the gate as it is.
    pub opening: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub lock: Option<Lock>,
    pub counter: u8,
    pub gate: Option<Gate>,
    /// It lost data that no opening has made up for.
    pub lost: bool,
    /// It restarted, or its clock stepped.
    pub changed: bool,
    pub views: [View; CLIENTS],
    /// For traces; no part of the state.
    pub name: u8,
}

impl Node {
    pub(super) fn key(&self) -> impl Ord + Hash + use<> {
        (self.lock, self.counter, self.gate, self.lost, self.changed, self.views)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    /// Since when, by the client's clock.
    Asking {
        since: u8,
    },
    Held {
        since: u8,
    },
}

/// What a client has decided to open nodes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Opening {
    pub counter: u8,
    pub fresh: bool,
    pub floored: bool,
    /// The client had been told of a counter or a lease by then.
    pub told: bool,
    /// A majority of all nodes had changed by then.
    pub hopeless: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub phase: Phase,
    pub token: u8,
    pub attempt: u8,
    /// The largest token that was granted when the attempt began.
    pub above: u8,
    /// It remembers that it saw a counter or a lease.
    pub used: bool,
    /// It was told of one, whether it remembers or not.
    pub told: bool,
    /// Some client relies on the store, as far as it knows.
    pub strict: bool,
    /// The longest lease that it knows of.
    pub longest: u8,
    pub opening: Option<Opening>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub nodes: [Node; NODES],
    pub clients: [Client; CLIENTS],
    pub restarts: u8,
    pub steps: u8,
    /// The largest token that was granted.
    pub top: u8,
    /// The order of tokens rests on the clocks from here on.
    pub floored: bool,
    /// A store that lost the data of a majority was taken for new, by a client that could not know.
    pub excused: bool,
    /// Nodes of this world; the others are empty.
    pub count: u8,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.nodes[..usize::from(self.count)].iter().for_each(|node| node.key().hash(hasher));
        self.clients.hash(hasher);
        (self.restarts, self.steps, self.top, self.floored, self.excused).hash(hasher);
    }
}

impl State {
    /// Every way in which the world may begin.
    pub(super) fn roots(world: &World) -> Vec<Self> {
        let bare = Self::bare(world);
        if world.begin != Begin::Held {
            return vec![bare];
        }
        let all = (1 << world.nodes) - 1;
        let majority = world.nodes / 2 + 1;
        let mut roots = Vec::new();
        let variants = (majority..=world.nodes).flat_map(|voted| [(voted, all), (voted, (1 << voted) - 1)]);
        for (voted, looked) in variants.filter(|(voted, looked)| *voted < world.nodes || *looked == all) {
            // Before the lock was there, after it was there, by a vote alone, or not at all.
            for others_look in 0..4 {
                let mut root = bare;
                let others = || (1..world.clients()).map(|client| client as u8);
                let mut happen = |event| {
                    root.apply(world, event);
                };
                happen(Event::Look { client: 0, nodes: looked });
                if others_look == 0 || others_look == 2 {
                    others().for_each(|client| happen(Event::Look { client, nodes: all }));
                }
                (0..voted as u8).for_each(|node| happen(Event::Ask { client: 0, node }));
                happen(Event::Decide { client: 0 });
                if others_look == 1 {
                    others().for_each(|client| happen(Event::Look { client, nodes: all }));
                }
                if others_look == 2 {
                    others().for_each(|client| happen(Event::Ask { client, node: 0 }));
                }
                // Their looks have told them all terms; what they decided then is done.
                root.settle(world);
                roots.push(root);
            }
        }
        roots
    }

    fn bare(world: &World) -> Self {
        assert!((1..=NODES).contains(&world.nodes) && (1..=CLIENTS).contains(&world.clients()));
        let shortest = world.leases.iter().copied().min().unwrap_or(0);
        let gate = Gate {
            door: Door::Open,
            of_process: true,
            fresh: false,
            strict: world.strict,
            longest: if world.has(super::Rule::LongestLeaseStands) { shortest } else { 0 },
        };
        let node = |at: usize| Node {
            lock: None,
            counter: 0,
            gate: (world.begin != Begin::New).then_some(gate),
            lost: false,
            changed: false,
            views: [View::default(); CLIENTS],
            name: at as u8,
        };
        let client = |at: usize| Client {
            phase: Phase::Idle,
            token: 0,
            attempt: 0,
            above: 0,
            used: false,
            told: false,
            strict: world.is_strict(at),
            longest: world.leases.get(at).copied().unwrap_or(0),
            opening: None,
        };
        Self {
            nodes: std::array::from_fn(node),
            clients: std::array::from_fn(client),
            restarts: world.restarts,
            steps: world.steps,
            top: 0,
            floored: false,
            excused: false,
            count: world.nodes as u8,
        }
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes[..usize::from(self.count)]
    }

    pub(super) fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes[..usize::from(self.count)]
    }

    pub(super) fn owner(&self, client: usize) -> u8 {
        client as u8 * 8 + self.clients[client].attempt
    }

    /// Forgets what can change nothing any more, and puts the nodes in order: they are interchangeable.
    pub(super) fn settle(&mut self, world: &World) {
        for at in 0..world.clients() {
            let is_asking = matches!(self.clients[at].phase, Phase::Asking { .. });
            let is_over =
                self.clients[at].phase == Phase::Idle && !world.may_ask(at, self.clients[at].attempt);
            let mut opens = false;
            for node in self.nodes_mut() {
                let view = &mut node.views[at];
                if !is_asking {
                    view.yes = 0;
                }
                if is_over {
                    (view.knows, view.process) = (false, false);
                }
                opens |= view.opening;
            }
            let client = &mut self.clients[at];
            if !opens {
                client.opening = None;
            }
            if client.phase == Phase::Idle {
                (client.token, client.above) = (0, 0);
            }
        }
        self.nodes_mut().sort_by_key(Node::key);
    }
}

impl World {
    /// Whether the client may ask once more after so many attempts.
    pub(super) fn may_ask(&self, client: usize, attempts: u8) -> bool {
        self.looker != Some(client) && attempts < self.attempts
    }
}

/// The name of a client in a trace.
pub(super) fn name(client: usize) -> char {
    char::from(b'A' + client as u8)
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nodes = self.nodes().to_vec();
        nodes.sort_by_key(|node| node.name);
        for node in nodes {
            write!(f, "[{}: ", node.name + 1)?;
            match node.gate {
                None => f.write_str("no gate")?,
                Some(gate) if !gate.of_process => f.write_str("changed")?,
                Some(Gate { door: Door::Closed { by_node, .. }, .. }) => write!(f, "closed for {by_node}")?,
                Some(gate) => write!(f, "{:?}", gate.door)?,
            }
            write!(f, ", #{}", node.counter)?;
            match node.lock {
                None => f.write_str("] ")?,
                Some(lock) => write!(f, ", {} for {}] ", name(usize::from(lock.owner / 8)), lock.left)?,
            }
        }
        for (at, client) in self.clients.iter().enumerate() {
            match client.phase {
                Phase::Idle => {}
                Phase::Asking { since } => write!(f, "{} asks since {since} ", name(at))?,
                Phase::Held { since } => write!(f, "{} holds #{} since {since} ", name(at), client.token)?,
            }
        }
        Ok(())
    }
}
