//! Many workers under a seeded plan of faults.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use polylatch_test_services::{proc, wait_for};

use crate::boot_nanos;
use crate::evidence::Evidence;
use crate::history::{History, Section};
use crate::random::Random;
use crate::record::Verdict;
use crate::resource::Resource;
use crate::sharing::Family;
use crate::watcher::Watcher;

/// No section of any worker within this time means that the locks are stuck.
const STUCK: Duration = Duration::from_secs(30);

/// How long the workers may take to end when they are asked to.
const END: Duration = Duration::from_secs(20);

/// Long sections are usually rare, so that many sections pass.
pub const SELDOM: u64 = 5000;

/// What ends a fault that lasts.
pub type Healing<'store> = (Duration, Box<dyn FnOnce() + 'store>);

/// A way to hurt the store or the connections; says what it did.
pub type Hurt<'store> = Box<dyn Fn(&mut Random) -> (String, Option<Healing<'store>>) + 'store>;

/// What a run consists of.
pub struct Plan<'store> {
    /// The worker program.
    pub program: &'static str,
    pub family: Family,
    pub seed: u64,
    pub sections: u64,
    pub faults: u64,
    /// URLs of the workers; there are as many processes as URLs.
    pub urls: Vec<String>,
    /// URLs of further workers whose sections are short, and over how many locks these go: the locks of the others,
    /// which they find held, and more.
    pub quick: (Vec<String>, u64),
    /// A way to look into the store that is not hurt; empty if nobody looks.
    pub looks: String,
    pub threads: u64,
    pub locks: u64,
    /// Length of a long section: more than the first lease.
    pub long: Duration,
    /// One in so many sections is long.
    pub long_one_in: u64,
    /// Longest pause: more than a lease.
    pub pause: Duration,
    /// How often a worker is killed, how often one is paused, and the rest, in shares.
    pub kills: u64,
    pub pauses: u64,
    pub others: Vec<(u64, Hurt<'store>)>,
    /// Faults are at least so far apart, and as long after the first workers and before the end.
    pub apart: Duration,
}

impl Plan<'_> {
    /// The usual run: short locks that all want, sections and pauses beyond a lease of 600 ms. The caller
    /// says how much, and what is hurt.
    pub fn usual(program: &'static str, family: Family, seed: u64, urls: Vec<String>, looks: String) -> Self {
        Self {
            program,
            family,
            seed,
            sections: 0,
            faults: 0,
            urls,
            quick: (Vec::new(), 0),
            looks,
            threads: 3,
            locks: 6,
            long: Duration::from_millis(450),
            long_one_in: SELDOM,
            pause: Duration::from_millis(1100),
            kills: 1,
            pauses: 0,
            others: Vec::new(),
            apart: Duration::ZERO,
        }
    }

    /// Which URL the worker at this place has, over how many locks it goes, and one in how many of its sections
    /// is long.
    fn task(&self, place: usize) -> (&str, u64, u64) {
        let (quick, locks) = &self.quick;
        match self.urls.get(place) {
            Some(url) => (url, self.locks, self.long_one_in),
            None => (&quick[place - self.urls.len()], *locks, SELDOM),
        }
    }
}

impl fmt::Debug for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("seed", &self.seed)
            .field("sections", &self.sections)
            .field("faults", &self.faults)
            .field("urls", &self.urls)
            .finish_non_exhaustive()
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    pub history: History,
    pub figures: Figures,
}

/// What a run was like.
#[derive(Debug, Default)]
pub struct Figures {
    pub elapsed: Duration,
    pub sections: usize,
    pub writes_accepted: usize,
    pub writes_refused: usize,
    pub faults: BTreeMap<String, u64>,
    /// Losses told, by reason; `dead on arrival` are guards that were over before they were used.
    pub losses: BTreeMap<String, u64>,
    pub releases: BTreeMap<String, u64>,
    /// Sections during which a fault began: those that only last microseconds prove little.
    pub across_faults: usize,
    /// Longest time during which nobody entered a lock that all want.
    pub longest_gap: Duration,
    /// Most sections that certainly lasted at one time inside one lock.
    pub most_together: usize,
    /// How often somebody looked into the store meanwhile, and the most holders of one lock that it had.
    pub looks: u64,
    pub most_holders: usize,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.elapsed.as_secs_f64();
        writeln!(f, "{} sections in {secs:.1} s ({:.0}/s)", self.sections, self.sections as f64 / secs)?;
        writeln!(f, "writes: {} accepted, {} refused", self.writes_accepted, self.writes_refused)?;
        writeln!(f, "faults: {} {:?}", self.faults.values().sum::<u64>(), self.faults)?;
        writeln!(f, "losses told: {:?}; releases: {:?}", self.losses, self.releases)?;
        writeln!(f, "held while a fault began: {} sections", self.across_faults)?;
        writeln!(f, "longest time without an entry into a lock: {:?}", self.longest_gap)?;
        write!(
            f,
            "at one time in one lock: {} sections for certain, {} holders in {} looks into the store",
            self.most_together, self.most_holders, self.looks
        )
    }
}

struct Slot {
    who: String,
    child: Child,
    paused: bool,
}

struct Fleet<'run, 'store> {
    plan: &'run Plan<'store>,
    evidence: &'run Evidence,
    resource: &'run Resource,
    slots: Vec<Slot>,
    /// Every worker there ever was, with when it was about to be killed.
    lives: Vec<(String, Option<u64>)>,
    healing: Vec<(Instant, Due<'store>)>,
    faults: BTreeMap<String, u64>,
    random: Random,
}

enum Due<'store> {
    Resume(usize),
    Heal(Box<dyn FnOnce() + 'store>),
}

/// Runs a plan; the history is not judged yet.
#[track_caller]
pub fn run(plan: &Plan<'_>, evidence: &Evidence) -> Outcome {
    let resource = Resource::start(evidence.dir());
    let watcher = (!plan.looks.is_empty()).then(|| Watcher::start(&plan.looks));
    let started = Instant::now();
    let mut fleet = Fleet {
        plan,
        evidence,
        resource: &resource,
        slots: Vec::new(),
        lives: Vec::new(),
        healing: Vec::new(),
        faults: BTreeMap::new(),
        random: Random::seeded(plan.seed),
    };
    for place in 0..plan.urls.len() + plan.quick.0.len() {
        let slot = fleet.spawn(place);
        fleet.slots.push(slot);
    }
    for number in 0..plan.faults {
        // The first tenth and the last tenth pass without new faults.
        fleet.progress(plan.sections / 10 + plan.sections * 8 / 10 * number / plan.faults, plan.apart);
        fleet.hurt();
    }
    fleet.progress(plan.sections, plan.apart);
    fleet.end();
    let elapsed = started.elapsed();
    let seen = watcher.map(Watcher::stop).unwrap_or_default();

    let mut history = History { writes: resource.writes(), ..History::default() };
    for (who, killed) in &fleet.lives {
        let path = evidence.file(&format!("{who}.history"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        history.add(who, &text, *killed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let mut figures = figures(&history, elapsed, std::mem::take(&mut fleet.faults));
    figures.across_faults = across(&history, &evidence.fault_times());
    (figures.looks, figures.most_holders) = (seen.looks, seen.most_holders);
    Outcome { history, figures }
}

/// Runs a plan and judges the history. A run that hurt too little would prove too little.
#[track_caller]
pub fn run_and_judge(what: &str, plan: &Plan<'_>, evidence: &Evidence) -> Figures {
    let mut outcome = run(plan, evidence);
    let figures = outcome.figures;
    println!("{what}, {} (seed {}):\n{figures}", plan.family.code(), plan.seed);
    evidence.judge(&mut outcome.history);
    assert!(figures.sections as u64 >= plan.sections, "{figures}");
    assert!(figures.faults.values().sum::<u64>() >= plan.faults, "{figures}");
    assert!(figures.looks > 0, "nobody could look into the store: {figures}");
    if !matches!(plan.family, Family::Mutex | Family::Kept) {
        assert!(figures.most_together > 1, "nothing was shared: {figures}");
    }
    figures
}

impl<'store> Fleet<'_, 'store> {
    fn spawn(&mut self, place: usize) -> Slot {
        let life = self.lives.iter().filter(|(who, _)| who.starts_with(&format!("w{place}."))).count();
        let who = format!("w{place}.{life}");
        let file = |suffix: &str| -> PathBuf { self.evidence.file(&format!("{who}.{suffix}")) };
        let plan = self.plan;
        let (url, locks, long_one_in) = plan.task(place);
        let seed = self.random.draw();
        // Every second worker may be of another version: a fleet is upgraded one by one.
        let other = std::env::var_os("POLYLATCH_ROBUSTNESS_BESIDE").filter(|_| place / 2 % 2 == 1);
        let program = other.unwrap_or_else(|| plan.program.into());
        let child = Command::new(program)
            .args(["load", url])
            .args([self.resource.path(), &file("history")])
            .args([seed, locks, plan.threads].map(|number| number.to_string()))
            .args([&plan.long.as_millis().to_string(), &long_one_in.to_string(), plan.family.code()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(file("stderr")).expect("the folder is ours"))
            .spawn()
            .expect("the worker was built");
        self.lives.push((who.clone(), None));
        Slot { who, child, paused: false }
    }

    /// Waits until so many sections wrote and this time has passed, and ends faults whose time is over meanwhile.
    #[track_caller]
    fn progress(&mut self, sections: u64, least: Duration) {
        let mut seen = self.resource.sections();
        let mut moved = Instant::now();
        let least = moved + least;
        loop {
            self.heal(Instant::now());
            let mut until = moved + STUCK;
            until = self.healing.iter().map(|(at, _)| *at).min().unwrap_or(until).min(until);
            let is_late = Instant::now() >= least;
            let now = match is_late {
                true => self.resource.wait_for(sections, until),
                // Until that time, however many they are.
                false => self.resource.wait_for(u64::MAX, until.min(least)),
            };
            if is_late && now >= sections {
                return;
            }
            if now > seen {
                (seen, moved) = (now, Instant::now());
            }
            assert!(moved.elapsed() < STUCK, "nobody entered a lock for {STUCK:?}; {now} sections so far");
            self.look_after();
        }
    }

    /// A worker that ended by itself is a failure.
    #[track_caller]
    fn look_after(&mut self) {
        for slot in &mut self.slots {
            if let Ok(Some(status)) = slot.child.try_wait() {
                let path = self.evidence.file(&format!("{}.stderr", slot.who));
                let errors = fs::read_to_string(path).unwrap_or_default();
                let tail: Vec<_> = errors.lines().rev().take(10).collect();
                panic!("worker {} ended by itself: {status}\n{}", slot.who, tail.join("\n"));
            }
        }
    }

    fn heal(&mut self, now: Instant) {
        let (due, later) = std::mem::take(&mut self.healing).into_iter().partition(|(at, _)| *at <= now);
        self.healing = later;
        let due: Vec<(Instant, Due<'store>)> = due;
        for (_, due) in due {
            match due {
                // Killed in its sleep, it has a successor that is awake.
                Due::Resume(place) if !self.slots[place].paused => {}
                Due::Resume(place) => {
                    self.slots[place].paused = false;
                    proc::resume(self.slots[place].child.id());
                    self.evidence.fault(&format!("resumed {}", self.slots[place].who));
                }
                Due::Heal(heal) => heal(),
            }
        }
    }

    fn hurt(&mut self) {
        let plan = self.plan;
        let others: u64 = plan.others.iter().map(|(share, _)| share).sum();
        let mut drawn = self.random.below(plan.kills + plan.pauses + others);
        if drawn < plan.kills + plan.pauses {
            let place = self.victim();
            let asleep = self.slots.iter().filter(|slot| slot.paused).count();
            // With too many asleep nothing moves, and who is asleep already can only be killed.
            let kill = drawn < plan.kills || self.slots[place].paused || asleep >= self.slots.len() / 2;
            return if kill { self.kill(place) } else { self.pause(place) };
        }
        drawn -= plan.kills + plan.pauses;
        for (share, hurt) in &plan.others {
            if drawn < *share {
                let (what, healing) = hurt(&mut self.random);
                self.evidence.fault(&what);
                self.count(&what);
                if let Some((after, heal)) = healing {
                    self.healing.push((Instant::now() + after, Due::Heal(heal)));
                }
                return;
            }
            drawn -= share;
        }
    }

    /// Any worker, or as often the one that wrote last: it is probably inside its section.
    fn victim(&mut self) -> usize {
        let any = self.random.below(self.slots.len() as u64) as usize;
        if self.random.once_in(2) {
            return any;
        }
        let last = self.resource.last_writer();
        self.slots.iter().position(|slot| Some(slot.child.id()) == last).unwrap_or(any)
    }

    fn count(&mut self, what: &str) {
        let kind = what.split(':').next().unwrap_or(what);
        *self.faults.entry(kind.to_owned()).or_default() += 1;
    }

    fn kill(&mut self, place: usize) {
        let who = self.slots[place].who.clone();
        self.evidence.fault(&format!("kill: {who}"));
        self.count("kill");
        let at = boot_nanos();
        proc::kill(self.slots[place].child.id());
        self.slots[place].child.wait().expect("it is our child");
        for (name, killed) in &mut self.lives {
            if *name == who {
                *killed = Some(at);
            }
        }
        self.slots[place] = self.spawn(place);
    }

    fn pause(&mut self, place: usize) {
        self.evidence.fault(&format!("pause: {}", self.slots[place].who));
        self.count("pause");
        proc::pause(self.slots[place].child.id());
        self.slots[place].paused = true;
        // From well within a lease to well beyond it.
        let most = self.plan.pause.as_millis() as u64;
        let length = Duration::from_millis(most / 5 + self.random.below(most * 4 / 5));
        self.healing.push((Instant::now() + length, Due::Resume(place)));
    }

    /// Ends all faults and lets the workers finish.
    #[track_caller]
    fn end(&mut self) {
        self.heal(Instant::now() + Duration::from_secs(3600));
        self.look_after();
        for slot in &mut self.slots {
            drop(slot.child.stdin.take());
        }
        for slot in &mut self.slots {
            let what = format!("worker {} to end", slot.who);
            let status = wait_for(&what, END, || slot.child.try_wait().transpose()).expect("it is our child");
            assert!(status.success(), "worker {}: {status}", slot.who);
        }
    }
}

impl Drop for Fleet<'_, '_> {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            let _ = slot.child.kill();
            let _ = slot.child.wait();
        }
    }
}

/// How many sections were held while one of these faults began.
fn across(history: &History, faults: &[u64]) -> usize {
    let is_hit = |section: &&Section| faults.iter().any(|at| section.entered < *at && *at < section.end());
    history.sections.iter().filter(is_hit).count()
}

fn figures(history: &History, elapsed: Duration, faults: BTreeMap<String, u64>) -> Figures {
    let mut figures = Figures { elapsed, faults, sections: history.sections.len(), ..Figures::default() };
    figures.writes_accepted = history.writes.iter().filter(|write| write.accepted).count();
    figures.writes_refused = history.writes.len() - figures.writes_accepted;
    let mut entries: HashMap<u32, Vec<u64>> = HashMap::new();
    let mut changes: HashMap<u32, Vec<(u64, bool)>> = HashMap::new();
    for section in &history.sections {
        entries.entry(section.lock).or_default().push(section.entered);
        if section.entered < section.end() {
            changes
                .entry(section.lock)
                .or_default()
                .extend([(section.entered, true), (section.end(), false)]);
        }
        if section.entered >= section.valid_at_entry {
            *figures.losses.entry("dead on arrival".into()).or_default() += 1;
        }
        if let Some(Verdict::Lost(reason)) = section.left.as_ref().map(|left| &left.verdict) {
            *figures.losses.entry(reason.clone()).or_default() += 1;
        }
        let result = section.released.as_ref().map_or("none", |(_, result)| result);
        *figures.releases.entry(result.to_owned()).or_default() += 1;
    }
    for times in entries.values_mut() {
        times.sort_unstable();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        figures.longest_gap = figures.longest_gap.max(Duration::from_nanos(longest));
    }
    for changes in changes.values_mut() {
        // Ends before entries of the same moment.
        changes.sort_unstable();
        let mut inside = 0;
        for (_, enters) in changes {
            inside = if *enters { inside + 1 } else { inside - 1 };
            figures.most_together = figures.most_together.max(inside);
        }
    }
    figures
}
