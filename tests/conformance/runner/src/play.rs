//! Plays one scenario with one cast on one store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::judge::{self, ErrorTable, Known, Tokens};
use crate::scenario::{Mode, Need, Scenario, Step, Verb};
use crate::shim::{Pending, Shim, Target};
use crate::shims::Shims;

/// How long a step may take that says nothing of its time. Longer than any time limit inside.
const LIMIT: Duration = Duration::from_secs(40);
/// How long a view may take to become what is expected.
const SEEN_WITHIN: Duration = Duration::from_secs(20);

/// The client that looks at the end whether anything is left.
const OBSERVER: &str = "observer";

/// What came of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// Not played, or not to its end: something that it needs is missing.
    Skipped(String),
    Failed(String),
}

/// Where a scenario is played.
pub struct Stage<'a> {
    /// The store's URL without options.
    pub url: &'a str,
    /// The name of every lock, client, guard and piece of work starts with this, so that runs do not meet.
    pub prefix: &'a str,
    /// Whether all actors have to be in one process.
    pub one_process: bool,
    pub shims: &'a Shims,
    pub table: &'a ErrorTable,
}

/// Why a scenario ends before its end.
enum Stop {
    Skip(String),
    Fail(String),
}

impl<T: fmt::Display> From<T> for Stop {
    fn from(reason: T) -> Self {
        Self::Fail(reason.to_string())
    }
}

/// Plays a scenario; `cast` has a target for each actor.
pub fn play(scenario: &Scenario, cast: &[&Target], stage: &Stage<'_>) -> Verdict {
    if stage.one_process && !scenario.fits_one_process() {
        return Verdict::Skipped("this store lives in one process".into());
    }
    let mut play = match Play::begin(scenario, cast, stage) {
        Ok(play) => play,
        Err(Stop::Skip(reason)) => return Verdict::Skipped(reason),
        Err(Stop::Fail(reason)) => return Verdict::Failed(reason),
    };
    for (index, step) in scenario.steps.iter().enumerate() {
        match play.step(step) {
            Ok(()) => {}
            Err(Stop::Skip(reason)) => return Verdict::Skipped(reason),
            Err(Stop::Fail(reason)) => {
                return Verdict::Failed(format!(
                    "step {} ({:?} {}): {reason}",
                    index + 1,
                    step.verb,
                    step.actor
                ));
            }
        }
    }
    match play.end() {
        Ok(()) => Verdict::Passed,
        Err(Stop::Skip(reason)) => Verdict::Skipped(reason),
        Err(Stop::Fail(reason)) => Verdict::Failed(format!("at the end: {reason}")),
    }
}

struct Play<'a> {
    stage: &'a Stage<'a>,
    shims: Vec<Option<Shim>>,
    /// Which shim plays which actor.
    place: BTreeMap<String, usize>,
    tokens: Tokens,
    begun: BTreeMap<String, (Step, usize, Pending)>,
    locks: BTreeSet<String>,
}

impl<'a> Play<'a> {
    fn begin(scenario: &Scenario, cast: &[&Target], stage: &'a Stage<'a>) -> Result<Self, Stop> {
        let mut shims = Vec::new();
        let mut place = BTreeMap::new();
        for (index, actor) in scenario.actors.iter().enumerate() {
            if index == 0 || !stage.one_process {
                shims.push(Some(stage.shims.take(cast[index])?));
            }
            place.insert(actor.clone(), shims.len() - 1);
        }
        let mut play = Self {
            stage,
            shims,
            place,
            tokens: Tokens::new(),
            begun: BTreeMap::new(),
            locks: BTreeSet::new(),
        };
        for actor in &scenario.actors {
            if !scenario.needs.is_empty() {
                play.check_needs(scenario, actor)?;
            } else {
                play.connect(actor)?;
            }
        }
        Ok(play)
    }

    fn connect(&mut self, actor: &str) -> Result<Value, Stop> {
        let request = json!({"op": "connect", "client": self.here(actor), "url": self.stage.url});
        let answer = self.ask(self.place[actor], request, LIMIT)?;
        if answer["ok"].is_object() { Ok(answer) } else { Err(format!("connecting: {answer}").into()) }
    }

    fn check_needs(&mut self, scenario: &Scenario, actor: &str) -> Result<(), Stop> {
        let answer = self.connect(actor)?;
        let capability = &answer["ok"]["capability"];
        for need in &scenario.needs {
            let missing = match need {
                Need::Processes => None,
                Need::Fifo => (capability["fifo"] != true).then_some("the store keeps no line"),
                Need::Push => (capability["push"] != true).then_some("the store wakes nobody"),
                Need::Renewals => ["consul", "etcd", "zookeeper"]
                    .iter()
                    .any(|store| capability["backend"] == *store)
                    .then_some("the store renews sessions, not leases"),
                Need::Cancel => {
                    (!self.can(actor, "cancel")).then_some("the binding cannot cancel from outside")
                }
                Need::Idempotency if !self.can(actor, "idempotency") => {
                    Some("the binding has no idempotent work")
                }
                Need::Idempotency => {
                    (!self.keeps_records(actor)?).then_some("the store keeps no records of idempotent work")
                }
            };
            if let Some(missing) = missing {
                return Err(Stop::Skip(missing.into()));
            }
        }
        Ok(())
    }

    /// Asks whether the store keeps records, by a run of a key that no step uses: a step that waits for work to begin would wait
    /// for ever where it is refused.
    fn keeps_records(&mut self, actor: &str) -> Result<bool, Stop> {
        let run = json!({
            "op": "run", "client": self.here(actor), "scope": self.stage.prefix, "key": "asked whether there are records",
            "payload": null, "value": "yes", "fails": false, "waits": null, "options": {},
        });
        let answer = self.ask(self.place[actor], run, LIMIT)?;
        Ok(answer["error"]["code"] != "unsupported")
    }

    fn can(&self, actor: &str, what: &str) -> bool {
        let shim = self.shims[self.place[actor]].as_ref();
        shim.is_some_and(|shim| shim.can.iter().any(|can| can == what))
    }

    fn shim(&mut self, place: usize) -> Result<&mut Shim, Stop> {
        self.shims[place].as_mut().ok_or_else(|| "its process was killed".into())
    }

    fn ask(&mut self, place: usize, request: Value, within: Duration) -> Result<Value, Stop> {
        let shim = self.shim(place)?;
        let mut pending = shim.begin(request)?;
        Ok(shim.finish(&mut pending, within)?)
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step.verb {
            Verb::Sleep => {
                thread::sleep(Duration::from_millis(step.ms.unwrap_or_default()));
                Ok(())
            }
            Verb::See => self.see(step),
            Verb::Told => self.told(step),
            Verb::Finish => {
                let name = step.begun.clone().unwrap_or_default();
                let (before, place, pending) =
                    self.begun.remove(&name).ok_or_else(|| format!("nothing begun is called {name:?}"))?;
                let merged = Step { expect: step.expect.clone(), ..before };
                self.finish(&merged, place, pending)
            }
            Verb::Waiting => {
                let name = step.begun.as_deref().unwrap_or_default();
                let (_, _, pending) =
                    self.begun.get_mut(name).ok_or_else(|| format!("nothing begun is called {name:?}"))?;
                match pending.answered() {
                    None => Ok(()),
                    Some(answer) => Err(format!("{name} has ended already: {answer}").into()),
                }
            }
            Verb::Cancel => {
                let name = step.begun.as_deref().unwrap_or_default();
                let (_, place, pending) =
                    self.begun.get(name).ok_or_else(|| format!("nothing begun is called {name:?}"))?;
                let (place, request) = (*place, json!({"op": "cancel", "target": pending.id}));
                self.ask(place, request, LIMIT)?;
                Ok(())
            }
            Verb::Pause | Verb::Resume | Verb::Kill => {
                let place = self.place[&step.actor];
                let shim = self.shim(place)?;
                match step.verb {
                    Verb::Pause => shim.pause(),
                    Verb::Resume => shim.resume(),
                    _ => {
                        shim.kill();
                        self.shims[place] = None;
                        // What it had begun will never be answered.
                        self.begun.retain(|_, (_, of, _)| *of != place);
                    }
                }
                Ok(())
            }
            _ => {
                let request = self.request(step)?;
                let place = self.place[&step.actor];
                let pending = self.shim(place)?.begin(request)?;
                match &step.begin {
                    Some(name) => {
                        self.begun.insert(name.clone(), (step.clone(), place, pending));
                        Ok(())
                    }
                    None => self.finish(step, place, pending),
                }
            }
        }
    }

    /// What a client, a guard or a piece of work of the scenario is called in its process, which has had other runs before.
    fn here(&self, name: &str) -> String {
        format!("{}/{name}", self.stage.prefix)
    }

    fn full_name(&mut self, step: &Step, lock: &str) -> String {
        let name = self.here(lock);
        // A name that is refused cannot be looked at in the end.
        if step.expect.error.is_none() {
            self.locks.insert(name.clone());
        }
        name
    }

    fn request(&mut self, step: &Step) -> Result<Value, Stop> {
        let client = self.here(&step.actor);
        let guard = self.here(step.guard.as_deref().unwrap_or_default());
        let waits = step.waits.as_deref().map(|waits| self.here(waits));
        let request = match step.verb {
            Verb::Connect => {
                let url = step.url.clone().unwrap_or_else(|| self.stage.url.to_owned());
                let url = match &step.url_options {
                    Some(options) => format!("{url}{}{options}", if url.contains('?') { '&' } else { '?' }),
                    None => url,
                };
                json!({"op": "connect", "client": client, "url": url})
            }
            Verb::Name | Verb::Acquire | Verb::Try => {
                let mode = match &step.mode {
                    None => json!({"kind": "mutex"}),
                    Some(Mode::Read) => json!({"kind": "read"}),
                    Some(Mode::Write) => json!({"kind": "write"}),
                    Some(Mode::Permits { count, capacity }) => {
                        json!({"kind": "permits", "count": count, "capacity": capacity})
                    }
                };
                let op = match step.verb {
                    Verb::Name => "name",
                    Verb::Acquire => "acquire",
                    _ => "try",
                };
                let lock = self.full_name(step, step.lock.as_deref().unwrap_or_default());
                json!({"op": op, "client": client, "guard": guard, "lock": lock, "mode": mode,
                       "options": step.options})
            }
            Verb::LockAll | Verb::TryAll => {
                let op = if step.verb == Verb::LockAll { "lock_all" } else { "try_all" };
                let locks: Vec<_> = step.locks.iter().map(|lock| self.full_name(step, lock)).collect();
                json!({"op": op, "client": client, "guard": guard, "locks": locks, "options": step.options})
            }
            Verb::Release => json!({"op": "release", "client": client, "guard": guard}),
            Verb::Check => json!({"op": "check", "client": client, "guard": guard}),
            Verb::Beat => json!({"op": "beat", "client": client, "guard": guard}),
            Verb::Extend => {
                json!({"op": "extend", "client": client, "guard": guard, "lease_ms": step.ms})
            }
            Verb::Lost => json!({"op": "lost", "client": client, "guard": guard}),
            Verb::Downgrade => json!({"op": "downgrade", "client": client, "guard": guard}),
            Verb::Upgrade => json!({"op": "upgrade", "client": client, "guard": guard}),
            Verb::Break => {
                let guard = step.guard.as_deref().unwrap_or_default();
                let token = *self.tokens.get(guard).ok_or_else(|| format!("there is no guard {guard:?}"))?;
                let lock = self.full_name(step, step.lock.as_deref().unwrap_or_default());
                json!({"op": "break", "client": client, "lock": lock, "token": token,
                       "by": "operator@conformance", "reason": "the scenario says so"})
            }
            Verb::Run => json!({
                "op": "run", "client": client, "scope": self.stage.prefix, "key": step.key, "payload": step.payload,
                "value": step.value, "fails": step.fails, "waits": waits, "options": step.options,
            }),
            Verb::Working => json!({"op": "working", "client": client, "waits": waits}),
            Verb::EndRun => json!({"op": "end_run", "client": client, "waits": waits}),
            Verb::Stats => json!({"op": "stats", "client": client}),
            Verb::Close => json!({"op": "close", "client": client}),
            other => return Err(format!("{other:?} is no request").into()),
        };
        Ok(request)
    }

    fn finish(&mut self, step: &Step, place: usize, mut pending: Pending) -> Result<(), Stop> {
        let within = step.expect.within_ms.map_or(LIMIT, Duration::from_millis);
        let shim = self.shim(place)?;
        let answer = shim.finish(&mut pending, within)?;
        let took = pending.begun.elapsed();
        if answer["error"]["code"] == "unsupported" && step.expect.error.as_deref() != Some("unsupported") {
            return Err(Stop::Skip(format!("unsupported: {}", answer["error"]["message"])));
        }
        if let Some(fault) = judge::fault(step.verb, &step.expect, &answer, &self.tokens, self.stage.table) {
            return Err(fault.into());
        }
        if let Some(least) = step.expect.at_least_ms
            && took < Duration::from_millis(least)
        {
            return Err(format!("it took {took:?}, expected at least {least} ms").into());
        }
        if let (Some(guard), Some(token)) = (&step.guard, answer["ok"]["token"].as_u64()) {
            self.tokens.insert(guard.clone(), token);
        }
        Ok(())
    }

    fn see(&mut self, step: &Step) -> Result<(), Stop> {
        let lock = self.full_name(step, step.lock.as_deref().unwrap_or_default());
        let within = step.expect.within_ms.map_or(SEEN_WITHIN, Duration::from_millis);
        let deadline = Instant::now() + within;
        loop {
            let request = json!({"op": "see", "client": self.here(&step.actor), "lock": lock});
            let answer = self.ask(self.place[&step.actor], request, LIMIT)?;
            let view = &answer["ok"];
            if !view.is_object() {
                return Err(format!("no view: {answer}").into());
            }
            let actors = |actor: &str| {
                let shim = self.shims.get(*self.place.get(actor)?)?.as_ref()?;
                Some((shim.pid(), shim.target.clone()))
            };
            let known = Known { tokens: &self.tokens, actors: &actors };
            let Some(fault) = judge::wrong_view(&step.expect, view, &known) else { return Ok(()) };
            if Instant::now() > deadline {
                return Err(fault.into());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Events come behind the call that they are about.
    fn told(&mut self, step: &Step) -> Result<(), Stop> {
        let lock = self.full_name(step, step.lock.as_deref().unwrap_or_default());
        let within = step.expect.within_ms.map_or(SEEN_WITHIN, Duration::from_millis);
        let deadline = Instant::now() + within;
        loop {
            let request = json!({"op": "told", "client": self.here(&step.actor), "lock": lock});
            let answer = self.ask(self.place[&step.actor], request, LIMIT)?;
            let Some(fault) = judge::wrong_events(&step.expect, &answer) else { return Ok(()) };
            if Instant::now() > deadline {
                return Err(fault.into());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Nothing may be left: no step without its end, no client, no lock. The processes are for other runs then.
    fn end(mut self) -> Result<(), Stop> {
        if let Some(name) = self.begun.keys().next() {
            return Err(format!("{name} was begun and never finished").into());
        }
        let actors: Vec<_> = self.place.clone().into_iter().collect();
        for (actor, place) in &actors {
            if self.shims[*place].is_some() {
                self.close(*place, actor)?;
            }
        }
        if let Some(place) = self.shims.iter().position(Option::is_some) {
            let request = json!({"op": "connect", "client": self.here(OBSERVER), "url": self.stage.url});
            self.ask(place, request, LIMIT)?;
            for lock in self.locks.clone() {
                self.nothing_is_left(place, &lock)?;
            }
            self.close(place, OBSERVER)?;
        }
        for shim in self.shims.into_iter().flatten() {
            self.stage.shims.put_back(shim)?;
        }
        Ok(())
    }

    fn close(&mut self, place: usize, client: &str) -> Result<(), Stop> {
        let answer = self.ask(place, json!({"op": "close", "client": self.here(client)}), LIMIT)?;
        if answer["ok"].is_object() { Ok(()) } else { Err(format!("closing {client}: {answer}").into()) }
    }

    /// A lease that was lost, or whose holder was killed, may still have some time to run.
    fn nothing_is_left(&mut self, place: usize, lock: &str) -> Result<(), Stop> {
        let deadline = Instant::now() + SEEN_WITHIN;
        loop {
            let view =
                self.ask(place, json!({"op": "see", "client": self.here(OBSERVER), "lock": lock}), LIMIT)?;
            if !view["ok"].is_object() {
                return Err(format!("no view: {view}").into());
            }
            let left = ["holders", "waiters"]
                .iter()
                .any(|what| view["ok"][what].as_array().is_none_or(|left| !left.is_empty()));
            if !left {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("somebody is left although all clients are closed: {view}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
