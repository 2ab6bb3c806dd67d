//! The nodes, and which of them may be hurt next.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use polylatch_robustness::boot_nanos;
use polylatch_robustness::history::Section;
use polylatch_robustness::random::Random;
use polylatch_test_services::clock::MovableClock;
use polylatch_test_services::proxy::Proxy;
use polylatch_test_services::redis::RedisServer;

/// The default lease.
pub const LEASE: Duration = Duration::from_secs(15);

/// How long a loss may take from the first node to the last.
const MOMENT: Duration = Duration::from_secs(1);

/// A holder gives a node the lease again by its next renewal, which comes within 5 s, or later if the holder was
/// paused.
const HEALED: Duration = Duration::from_secs(9);

/// A third of the lease, and a second for a busy machine: by then a lease is renewed again. Until then a node has what it was
/// given back, half of the lease; of a holder that renews later it may end before.
pub const RENEWED_AGAIN: Duration = Duration::from_secs(6);

/// A third of the lease, twice.
pub const RENEWED_TWICE: Duration = Duration::from_secs(10);

/// A node that changed votes again after the longest lease and 2 %; then it takes the leases that began
/// meanwhile. Before that another node of a minority must not change.
const WHOLE: Duration = Duration::from_secs(27);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    BestEffort,
    Strict,
}

/// A moment at which nodes lost their leases.
#[derive(Debug, Clone, Copy)]
pub struct Loss {
    pub at: u64,
    pub nodes: usize,
}

impl Loss {
    /// What happens within one lease after it may have come of it.
    pub fn explains(&self, at: u64) -> bool {
        let within = LEASE + MOMENT;
        (self.at..=self.at + within.as_nanos() as u64).contains(&at)
    }

    /// This section was there when the nodes lost their leases, and ended soon after.
    pub fn may_end(&self, section: &Section) -> bool {
        section.entered < self.at + MOMENT.as_nanos() as u64 && self.explains(section.end())
    }
}

#[derive(Debug, Clone, Copy)]
struct Health {
    /// From when on it answers and has all leases again.
    answers: Instant,
    /// From when on it votes, too.
    whole: Instant,
}

#[derive(Debug)]
pub struct Nodes {
    pub guarantee: Guarantee,
    pub servers: Vec<RedisServer>,
    /// In front of every node; half of the workers go through them.
    pub proxies: Vec<Proxy>,
    pub clocks: Vec<MovableClock>,
    health: Mutex<Vec<Health>>,
    losses: Mutex<Vec<Loss>>,
    changed: Mutex<u64>,
}

impl Nodes {
    #[track_caller]
    pub fn start(count: usize, guarantee: Guarantee) -> Self {
        assert!((1..=7).contains(&count), "1 to 7 nodes");
        let clocks: Vec<_> = (0..count).map(|_| MovableClock::new()).collect();
        let servers: Vec<_> =
            clocks.iter().map(|clock| RedisServer::builder().clock(clock).append_only().start()).collect();
        let proxies = servers.iter().map(|server| Proxy::start(server.address())).collect();
        let now = Instant::now();
        Self {
            guarantee,
            servers,
            proxies,
            clocks,
            health: Mutex::new(vec![Health { answers: now, whole: now }; count]),
            losses: Mutex::default(),
            changed: Mutex::default(),
        }
    }

    pub fn count(&self) -> usize {
        self.servers.len()
    }

    pub fn majority(&self) -> usize {
        self.count() / 2 + 1
    }

    /// So many may fail together.
    pub fn spare(&self) -> usize {
        self.count() - self.majority()
    }

    pub fn url(&self, through_proxies: bool) -> String {
        let direct = self.servers.iter().map(RedisServer::address);
        let places: Vec<_> = match through_proxies {
            true => self.proxies.iter().map(|proxy| proxy.address().to_string()).collect(),
            false => direct.map(|address| address.to_string()).collect(),
        };
        let guarantee = match self.guarantee {
            Guarantee::BestEffort => "",
            Guarantee::Strict => "&guarantee=strict",
        };
        format!("redlock://{}?max_lease=15s{guarantee}", places.join(","))
    }

    /// Without any option: what looks must not depend on them, nor change them for others.
    pub fn url_to_look(&self) -> String {
        let url = self.url(false);
        url.split('?').next().expect("options follow").to_owned()
    }

    /// Notes that what was wrong with these nodes is over: on a busy machine later than it was planned.
    pub fn are_back(&self, nodes: &[usize]) {
        let (mut all, now) = (self.health.lock().expect("nothing panics while holding it"), Instant::now());
        for at in nodes {
            let health = &mut all[*at];
            let was_changed = health.whole > health.answers;
            health.answers = health.answers.max(now + HEALED);
            health.whole = health.whole.max(if was_changed { now + WHOLE } else { health.answers });
        }
    }

    /// It has been well for two renewals: it has every lease that has been held for so long.
    pub fn has_healed(&self, at: usize) -> bool {
        let all = self.health.lock().expect("nothing panics while holding it");
        all[at].answers + (RENEWED_TWICE - HEALED) <= Instant::now()
    }

    /// Chooses a node that does not answer for so long; a majority still answers. Of one node or two it is any.
    /// Mostly one that has changed: the others are to be well when the next one changes.
    pub fn choose_silent(&self, random: &mut Random, length: Duration) -> Option<usize> {
        let (mut all, now) = (self.health.lock().expect("nothing panics while holding it"), Instant::now());
        if all.iter().filter(|node| node.answers > now).count() >= self.spare().max(1) {
            return None;
        }
        let until = now + length + HEALED;
        let changed = any_of(random, all.len(), |at| all[at].answers <= now && all[at].whole >= until);
        let at = match changed {
            None if random.once_in(40) => any_of(random, all.len(), |at| all[at].answers <= now)?,
            _ => changed?,
        };
        all[at] = Health { answers: until, whole: all[at].whole.max(until) };
        Some(at)
    }

    /// Chooses a node that changes within so long; all others but a minority are as they were.
    pub fn choose_changed(&self, random: &mut Random, length: Duration) -> Option<usize> {
        let (mut all, now) = (self.health.lock().expect("nothing panics while holding it"), Instant::now());
        if all.iter().filter(|node| node.whole > now).count() >= self.spare() {
            return None;
        }
        let at = any_of(random, all.len(), |at| all[at].whole <= now)?;
        all[at] = Health { answers: now + length + HEALED, whole: now + length + WHOLE };
        *self.changed.lock().expect("nothing panics while holding it") += 1;
        Some(at)
    }

    /// Chooses so many nodes, if nothing is wrong with any.
    pub fn choose_many(&self, random: &mut Random, count: usize, length: Duration) -> Option<Vec<usize>> {
        let (mut all, now) = (self.health.lock().expect("nothing panics while holding it"), Instant::now());
        if all.iter().any(|node| node.whole > now) {
            return None;
        }
        let first = random.below(all.len() as u64) as usize;
        let chosen: Vec<_> = (0..count).map(|next| (first + next) % all.len()).collect();
        for at in &chosen {
            all[*at] = Health { answers: now + length + HEALED, whole: now + length + WHOLE };
        }
        *self.changed.lock().expect("nothing panics while holding it") += 1;
        Some(chosen)
    }

    /// Notes that so many nodes lose their leases now.
    pub fn lose(&self, nodes: usize) {
        let loss = Loss { at: boot_nanos(), nodes };
        self.losses.lock().expect("nothing panics while holding it").push(loss);
    }

    /// All moments at which so many nodes or more lost their leases together.
    pub fn losses(&self, least: usize) -> Vec<Loss> {
        let all = self.losses.lock().expect("nothing panics while holding it");
        all.iter().copied().filter(|loss| loss.nodes >= least).collect()
    }

    /// How often nodes restarted, lost their data or had their clocks stepped.
    pub fn changed(&self) -> u64 {
        *self.changed.lock().expect("nothing panics while holding it")
    }
}

fn any_of(random: &mut Random, count: usize, is_fit: impl Fn(usize) -> bool) -> Option<usize> {
    let first = random.below(count as u64) as usize;
    (0..count).map(|next| (first + next) % count).find(|at| is_fit(*at))
}
