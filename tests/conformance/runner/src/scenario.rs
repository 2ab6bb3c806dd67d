//! What a scenario file says. Unknown words are errors, so that a misspelt expectation cannot pass.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// One behaviour, told as steps.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// What a user relies on, as a sentence.
    pub about: String,
    /// Who takes part, in the order in which a cast of several languages is dealt out.
    pub actors: Vec<String>,
    /// What the store or the binding must be able to do; without it the scenario is a reported skip.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Only for scenarios that must fail: a part of the reason for which they have to.
    #[serde(default)]
    pub fails_with: Option<String>,
    pub steps: Vec<Step>,
}

impl Scenario {
    /// Says whether it can be played where all actors are in one process.
    pub fn fits_one_process(&self) -> bool {
        !self.needs.contains(&Need::Processes)
    }

    /// How long it waits for time to pass, roughly: it sleeps, and a lease of a few seconds is there to end or to be renewed.
    pub fn waits(&self) -> Duration {
        let named = |step: &Step| match step.verb {
            Verb::Sleep => step.ms,
            _ => step.options.get("lease_ms").and_then(Value::as_u64).filter(|ms| *ms <= 5_000),
        };
        Duration::from_millis(self.steps.iter().filter_map(named).sum())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Every actor is a process of its own.
    Processes,
    /// The store keeps a line.
    Fifo,
    /// The store wakes the next waiter by a message.
    Push,
    /// The binding can end a wait from outside.
    Cancel,
    /// The store counts how often each lease was renewed.
    Renewals,
    /// The binding has idempotent work.
    Idempotency,
}

/// One step: who does what, and what has to come of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    #[serde(default)]
    pub actor: String,
    #[serde(rename = "do")]
    pub verb: Verb,
    /// The lock, or for `lock_all` several.
    #[serde(default)]
    pub lock: Option<String>,
    #[serde(default)]
    pub locks: Vec<String>,
    /// Under which name the guard is kept, or which guard is meant.
    #[serde(default)]
    pub guard: Option<String>,
    /// Options of the acquisition, in the words of the protocol.
    #[serde(default)]
    pub options: BTreeMap<String, Value>,
    #[serde(default)]
    pub mode: Option<Mode>,
    /// Options of the store's URL.
    #[serde(default)]
    pub url_options: Option<String>,
    /// For `connect`: this URL instead of the store's.
    #[serde(default)]
    pub url: Option<String>,
    /// The key of idempotent work, what its request consists of, and what the work returns.
    #[serde(default)]
    pub key: Option<String>,
    #[serde(default)]
    pub payload: Option<String>,
    #[serde(default)]
    pub value: Option<String>,
    /// The work fails, and its answer is the value.
    #[serde(default)]
    pub fails: bool,
    /// The work, which has this name, waits for `end_run`.
    #[serde(default)]
    pub waits: Option<String>,
    /// Begins the step, and goes on without waiting for what comes of it: `finish` does that.
    #[serde(default)]
    pub begin: Option<String>,
    /// The begun step that is meant.
    #[serde(default)]
    pub begun: Option<String>,
    #[serde(default)]
    pub ms: Option<u64>,
    #[serde(default)]
    pub expect: Expect,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Names a lock as `acquire` would, and keeps what that returns. Nothing is acquired.
    Name,
    /// Another client of the store. Every actor has one named after itself from the start.
    Connect,
    #[default]
    Acquire,
    Try,
    LockAll,
    TryAll,
    Release,
    Check,
    Beat,
    /// Gives the lease another length.
    Extend,
    /// Waits until the guard is lost.
    Lost,
    Downgrade,
    Upgrade,
    /// Reads the lock again and again until it looks as expected.
    See,
    Break,
    /// Asks what the callback of the actor's client was told of a lock, again and again until it is as expected.
    Told,
    /// Asks what the actor's client has counted.
    Stats,
    Close,
    /// Runs idempotent work.
    Run,
    /// Returns when the work that waits has begun.
    Working,
    /// Lets the work go on that waits.
    EndRun,
    /// Waits for a begun step.
    Finish,
    /// Says that a begun step has not ended yet.
    Waiting,
    /// Cancels a begun step in the binding's own way.
    Cancel,
    /// Lets time pass.
    Sleep,
    /// Stops the actor's process (SIGSTOP), lets it go on (SIGCONT), kills it (SIGKILL).
    Pause,
    Resume,
    Kill,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Mode {
    Read,
    Write,
    Permits { count: u32, capacity: u32 },
}

/// What has to come of a step. Nothing said: it succeeds; an acquisition holds the lock.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Whether the lock is held afterwards.
    #[serde(default)]
    pub held: Option<bool>,
    /// The error's code.
    #[serde(default)]
    pub error: Option<String>,
    /// Why a lease was lost.
    #[serde(default)]
    pub reason: Option<String>,
    /// A part of the message.
    #[serde(default)]
    pub message_has: Option<String>,
    /// Ended by the binding's own kind of cancellation.
    #[serde(default)]
    pub canceled: Option<bool>,
    /// The fencing token is larger than that of these guards.
    #[serde(default)]
    pub newer_than: Vec<String>,
    /// The fencing token is that of this guard.
    #[serde(default)]
    pub same_token_as: Option<String>,
    /// What came of a break.
    #[serde(default)]
    pub outcome: Option<String>,
    /// The guards of a set stand for these locks, in this order.
    #[serde(default)]
    pub locks: Option<Vec<String>>,
    /// Who holds, who waits; for `see`.
    #[serde(default)]
    pub holders: Option<Vec<Person>>,
    #[serde(default)]
    pub waiters: Option<Vec<Person>>,
    /// For `told`: level and name of the events in the life of one lock, in order; warnings are left out.
    #[serde(default)]
    pub events: Option<Vec<String>>,
    /// For `stats`: some of the counts.
    #[serde(default)]
    pub counts: Option<BTreeMap<String, u64>>,
    /// For `run`: its answer, and whether an earlier run did the work.
    #[serde(default)]
    pub value: Option<String>,
    #[serde(default)]
    pub replayed: Option<bool>,
    /// Not sooner and not later than this; generous, because machines are loaded.
    #[serde(default)]
    pub at_least_ms: Option<u64>,
    #[serde(default)]
    pub within_ms: Option<u64>,
}

/// One who holds or waits, as far as a scenario says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Person {
    /// The process is this actor's, and the store says so, with the actor's language.
    #[serde(default)]
    pub actor: Option<String>,
    #[serde(default)]
    pub label: Option<String>,
    #[serde(default)]
    pub mode: Option<String>,
    #[serde(default)]
    pub permits: Option<u32>,
    /// The fencing token is that of this guard.
    #[serde(default)]
    pub token_of: Option<String>,
    /// Renewed at least this often.
    #[serde(default)]
    pub renewals: Option<u32>,
}

/// Reads every scenario of a folder, sorted by name.
pub fn read_all(folder: &Path) -> Result<Vec<Scenario>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut scenarios = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
        let in_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| in_file(&error))?;
        let mut scenario: Scenario = serde_json::from_str(&text).map_err(|error| in_file(&error))?;
        scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        scenario.check().map_err(|error| in_file(&error))?;
        scenarios.push(scenario);
    }
    if scenarios.is_empty() {
        return Err(format!("{}: no scenarios", folder.display()));
    }
    Ok(scenarios)
}

impl Scenario {
    /// Refuses a scenario that could not do what it says.
    fn check(&self) -> Result<(), String> {
        if self.actors.is_empty() || self.steps.is_empty() {
            return Err("a scenario needs actors and steps".into());
        }
        for (index, step) in self.steps.iter().enumerate() {
            let place = format!("step {}", index + 1);
            let alone = matches!(step.verb, Verb::Sleep | Verb::Finish | Verb::Waiting | Verb::Cancel);
            if alone != step.actor.is_empty() || !alone && !self.actors.contains(&step.actor) {
                return Err(format!("{place}: {:?} is no actor of this scenario", step.actor));
            }
            let needs_processes = matches!(step.verb, Verb::Pause | Verb::Resume | Verb::Kill);
            if needs_processes && !self.needs.contains(&Need::Processes) {
                return Err(format!("{place}: {:?} needs processes", step.verb));
            }
            if matches!(step.verb, Verb::Run | Verb::Working | Verb::EndRun)
                && !self.needs.contains(&Need::Idempotency)
            {
                return Err(format!("{place}: {:?} needs idempotency", step.verb));
            }
            if step.verb == Verb::Cancel && !self.needs.contains(&Need::Cancel) {
                return Err(format!("{place}: {:?} needs cancel", step.verb));
            }
            let missing = match step.verb {
                Verb::Name | Verb::Acquire | Verb::Try | Verb::See => step.lock.is_none().then_some("lock"),
                Verb::Told => (step.lock.is_none() || step.expect.events.is_none())
                    .then_some("lock, and events that are expected"),
                Verb::Stats => step.expect.counts.is_none().then_some("counts that are expected"),
                Verb::LockAll | Verb::TryAll => step.locks.is_empty().then_some("locks"),
                Verb::Release | Verb::Check | Verb::Beat | Verb::Lost | Verb::Downgrade | Verb::Upgrade => {
                    step.guard.is_none().then_some("guard")
                }
                Verb::Extend => (step.guard.is_none() || step.ms.is_none()).then_some("guard and ms"),
                Verb::Break => (step.lock.is_none() || step.guard.is_none()).then_some("lock and guard"),
                Verb::Finish | Verb::Waiting | Verb::Cancel => step.begun.is_none().then_some("begun"),
                Verb::Run => (step.key.is_none() || step.value.is_none()).then_some("key and value"),
                Verb::Working | Verb::EndRun => step.waits.is_none().then_some("waits"),
                Verb::Sleep => step.ms.is_none().then_some("ms"),
                Verb::Connect | Verb::Close | Verb::Pause | Verb::Resume | Verb::Kill => None,
            };
            if let Some(missing) = missing {
                return Err(format!("{place}: {:?} needs {missing}", step.verb));
            }
        }
        Ok(())
    }
}
