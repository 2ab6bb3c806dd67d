//! A bounded model check of a promotion that forgets: a master, its replicas, and one of them promoted by
//! Sentinels while the master goes on.
//!
//! # What is modelled
//!
//! - **Replication** is asynchronous: the replica that will be promoted has what the master had at some
//!   moment before, however long ago. A replica may confirm that it lives without having got the data.
//! - **Promotion** comes at any moment. The other replicas follow the promoted server at any moment after
//!   it, one by one. Nobody tells the former master.
//! - **The former master** accepts writes as long as enough replicas ([`World::min_replicas`]) confirmed
//!   within [`World::lag`] that they live; that includes by how much Redis is late. The promoted server
//!   wants as many.
//! - **Clients** ask and renew at either master, as if no Sentinel had told them anything. A grant is told
//!   once [`World::acks`] replicas have it; a renewal waits for nobody. Validity counts from the sending,
//!   and a request that is carried out at once leaves the most of it.
//! - **Quarantine**: the promoted server grants nothing for [`World::quarantine`], from its first request
//!   that it accepts.
//!
//! # What is checked
//!
//! No two clients believe at one time that they hold the lock.
//!
//! # What is not modelled
//!
//! More than one promotion, loss of the promoted server's data, and clocks of different rates. A master
//! that hangs does not notice how much time has passed: [`World::hangs`] lets it carry out what has waited
//! for it meanwhile, and no length of quarantine covers that.

use std::collections::HashMap;
use std::fmt;

/// Most replicas of a world, with the one that is promoted.
const REPLICAS: usize = 3;
const CLIENTS: usize = 2;
/// The replica that is promoted.
const PROMOTED: usize = 0;

/// One deployment. Durations are in ticks.
#[derive(Debug, Clone, Copy)]
pub struct World {
    pub replicas: usize,
    pub lease: u8,
    /// How long after their last confirmation replicas count.
    pub lag: u8,
    /// How many replicas a master wants before it accepts writes.
    pub min_replicas: usize,
    /// How many replicas must have a grant before it is told.
    pub acks: usize,
    /// How long a promoted server grants nothing.
    pub quarantine: u8,
    /// An operator lets the promoted server go on without replicas.
    pub lifted: bool,
    /// The former master may carry out requests that it got before it noticed how late it is.
    pub hangs: bool,
}

impl World {
    /// What `guarantee=strict` asks of one master with so many replicas.
    pub const fn strict(replicas: usize) -> Self {
        let (lease, lag) = (2, 2);
        let min_replicas = replicas.div_ceil(2);
        Self {
            replicas,
            lease,
            lag,
            min_replicas,
            acks: 1,
            quarantine: lease + lag,
            lifted: false,
            hangs: false,
        }
    }

    /// What nobody was asked for.
    pub const fn best_effort(replicas: usize) -> Self {
        Self { min_replicas: 0, acks: 0, quarantine: 0, ..Self::strict(replicas) }
    }
}

/// Which master is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Former,
    Promoted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// Granted, and not told yet; `acked` is the set of replicas that have it.
    Granted {
        at: At,
        acked: u8,
    },
    Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    /// Ticks of validity left.
    valid: u8,
    /// Tells this acquisition from the one before.
    turn: bool,
}

impl Client {
    fn owner(self, who: usize) -> u8 {
        who as u8 * 2 + u8::from(self.turn)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Lock {
    owner: u8,
    left: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Gate {
    Unset,
    Closed(u8),
    Open,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Server {
    lock: Option<Lock>,
    gate: Gate,
    /// Ticks since each replica confirmed here that it lives.
    ages: [u8; REPLICAS],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    former: Server,
    /// Before its promotion, the data of the replica.
    promoted: Server,
    is_promoted: bool,
    /// Which replicas follow the promoted server.
    moved: u8,
    clients: [Client; CLIENTS],
}

/// What a search saw.
#[derive(Debug, Clone)]
pub struct Search {
    pub states: usize,
    /// How often a client was told of a grant by the promoted server.
    pub granted_after: u64,
    /// The shortest way to two holders.
    pub violation: Option<Vec<String>>,
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states, {} grants after the promotion", self.states, self.granted_after)?;
        match &self.violation {
            None => f.write_str(", never two holders"),
            Some(events) => {
                writeln!(f, ", two holders after:")?;
                events.iter().enumerate().try_for_each(|(at, event)| writeln!(f, "{:3}. {event}", at + 1))
            }
        }
    }
}

/// Visits every state, nearest first, or ends with the shortest way to two holders.
#[must_use]
pub fn search(world: &World) -> Search {
    assert!((1..=REPLICAS).contains(&world.replicas));
    let mut states = vec![(State::initial(world), 0, String::new())];
    let mut known: HashMap<State, ()> = HashMap::from([(states[0].0.clone(), ())]);
    let mut found = Search { states: 0, granted_after: 0, violation: None };
    let mut at = 0;
    while at < states.len() && found.violation.is_none() {
        let state = states[at].0.clone();
        for (event, next) in state.successors(world) {
            found.granted_after += u64::from(event.contains("told of the grant by the promoted"));
            if next.has_two_holders() {
                let mut events = vec![event];
                let mut back = at;
                while back > 0 {
                    events.push(states[back].2.clone());
                    back = states[back].1;
                }
                events.reverse();
                found.violation = Some(events);
                break;
            }
            if known.insert(next.clone(), ()).is_none() {
                states.push((next, at, event));
            }
        }
        at += 1;
    }
    found.states = states.len();
    found
}

impl State {
    fn initial(world: &World) -> Self {
        let server = Server { lock: None, gate: Gate::Open, ages: [0; REPLICAS] };
        let never = [world.lag + 1; REPLICAS];
        let client = Client { phase: Phase::Idle, valid: 0, turn: false };
        Self {
            former: server.clone(),
            promoted: Server { gate: Gate::Unset, ages: never, ..server },
            is_promoted: false,
            moved: 0,
            clients: [client; CLIENTS],
        }
    }

    fn has_two_holders(&self) -> bool {
        self.clients.iter().filter(|client| client.phase == Phase::Held).count() > 1
    }

    fn server(&mut self, at: At) -> &mut Server {
        match at {
            At::Former => &mut self.former,
            At::Promoted => &mut self.promoted,
        }
    }

    /// Whether this master accepts writes.
    fn accepts(&self, world: &World, at: At) -> bool {
        let (server, wanted) = match at {
            At::Former if world.hangs && self.is_promoted => return true,
            At::Former => (&self.former, world.min_replicas),
            At::Promoted if !self.is_promoted => return false,
            At::Promoted if world.lifted => return true,
            At::Promoted => (&self.promoted, world.min_replicas),
        };
        server.ages[..world.replicas].iter().filter(|age| **age <= world.lag).count() >= wanted
    }

    fn successors(&self, world: &World) -> Vec<(String, Self)> {
        let mut found = vec![("a tick passes".to_owned(), self.after_tick(world))];
        self.of_replicas(world, &mut found);
        for who in 0..CLIENTS {
            for at in [At::Former, At::Promoted] {
                if self.accepts(world, at) {
                    self.of_requests(world, who, at, &mut found);
                }
            }
            self.of_client(world, who, &mut found);
        }
        found
    }

    fn after_tick(&self, world: &World) -> Self {
        let mut next = self.clone();
        for server in [&mut next.former, &mut next.promoted] {
            server.lock = server.lock.and_then(|lock| {
                let left = lock.left - 1;
                (left > 0).then_some(Lock { left, ..lock })
            });
            server.ages.iter_mut().for_each(|age| *age = (*age + 1).min(world.lag + 1));
            server.gate = match server.gate {
                Gate::Closed(0 | 1) => Gate::Open,
                Gate::Closed(left) => Gate::Closed(left - 1),
                other => other,
            };
        }
        for client in &mut next.clients {
            if client.phase != Phase::Idle {
                client.valid -= 1;
                if client.valid == 0 {
                    client.phase = Phase::Idle;
                }
            }
        }
        next
    }

    fn of_replicas(&self, world: &World, found: &mut Vec<(String, Self)>) {
        if !self.is_promoted {
            let mut copied = self.clone();
            copied.promoted.lock = self.former.lock;
            copied.confirm(At::Former, PROMOTED, true);
            found.push(("the replica gets the data".to_owned(), copied));
            let mut lives = self.clone();
            lives.confirm(At::Former, PROMOTED, false);
            found.push(("the replica says that it lives".to_owned(), lives));
            let mut promoted = self.clone();
            promoted.is_promoted = true;
            found.push(("the replica is promoted".to_owned(), promoted));
        }
        for replica in 1..world.replicas {
            let follows = if self.moved >> replica & 1 == 1 { At::Promoted } else { At::Former };
            let mut confirmed = self.clone();
            confirmed.confirm(follows, replica, true);
            found.push((format!("replica {replica} confirms to the {follows:?}"), confirmed));
            if self.is_promoted && follows == At::Former {
                let mut next = self.clone();
                next.moved |= 1 << replica;
                found.push((format!("replica {replica} follows the promoted server"), next));
            }
        }
    }

    fn confirm(&mut self, to: At, replica: usize, with_data: bool) {
        self.server(to).ages[replica] = 0;
        for client in &mut self.clients {
            if let Phase::Granted { at, acked } = &mut client.phase
                && *at == to
                && with_data
            {
                *acked |= 1 << replica;
            }
        }
    }

    fn of_requests(&self, world: &World, who: usize, at: At, found: &mut Vec<(String, Self)>) {
        let mut next = self.clone();
        let client = self.clients[who];
        if client.phase != Phase::Idle {
            let owner = client.owner(who);
            let server = next.server(at);
            if let Some(lock) = server.lock.as_mut().filter(|lock| lock.owner == owner)
                && client.phase == Phase::Held
            {
                lock.left = world.lease;
                next.clients[who].valid = world.lease;
                found.push((format!("client {who} renews at the {at:?}"), next.clone()));
                next.server(at).lock = None;
                next.clients[who].phase = Phase::Idle;
                next.clients[who].valid = 0;
                found.push((format!("client {who} releases at the {at:?}"), next));
            }
            return;
        }
        if next.server(at).gate == Gate::Unset {
            let closed = if world.quarantine > 0 { Gate::Closed(world.quarantine) } else { Gate::Open };
            next.server(at).gate = closed;
            found.push((format!("client {who} is the first to ask the promoted server"), next));
            return;
        }
        if next.server(at).gate != Gate::Open || next.server(at).lock.is_some() {
            return;
        }
        let mine = &mut next.clients[who];
        mine.turn = !mine.turn;
        (mine.phase, mine.valid) = (Phase::Granted { at, acked: 0 }, world.lease);
        let lock = Lock { owner: mine.owner(who), left: world.lease };
        next.server(at).lock = Some(lock);
        found.push((format!("client {who} is granted the lock at the {at:?}"), next));
    }

    fn of_client(&self, world: &World, who: usize, found: &mut Vec<(String, Self)>) {
        let Phase::Granted { at, acked } = self.clients[who].phase else { return };
        let is_lifted = world.lifted && at == At::Promoted;
        if is_lifted || acked.count_ones() as usize >= world.acks {
            let mut next = self.clone();
            next.clients[who].phase = Phase::Held;
            let by = if at == At::Promoted { "promoted" } else { "former" };
            found.push((format!("client {who} is told of the grant by the {by} master"), next));
        }
        let mut next = self.clone();
        (next.clients[who].phase, next.clients[who].valid) = (Phase::Idle, 0);
        found.push((format!("client {who} gives up"), next));
    }
}
