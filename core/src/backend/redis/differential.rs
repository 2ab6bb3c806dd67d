//! The scripts on a real server against the specification, in random order, with time as an argument.
//!
//! The backend runs as it is shipped, over a port that only records what it would send. Each script
//! runs verbatim inside [`STAND_IN`], which gives it another clock, keeps the end of a lease by that
//! clock and collects what is published. After every step the answer, the pushes and the whole state
//! of the lock must be what `memory::store` says.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::resp::{self, Reply as Wire};

use crate::backend::memory::store::{Now, Push, Store};
use crate::backend::redis::inspect::snapshot;
use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::protocol::keys::Keys;
use crate::backend::redis::protocol::scripts::{self, Script};
use crate::backend::{Ask, Backend, Contender, REAPED_PER_STEP, RenewItem};
use crate::mode::{Kind, Mode};
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{AuditEntry, BreakRequest, LockView, Query};
use crate::token::ClientId;

mod cast;
mod recorder;

use cast::{Dice, NAMES, at, contender, millis};
use recorder::{Check, Party, record};

/// How many sequences run unless POLYLATCH_DIFFERENTIAL_SEQUENCES says otherwise.
const SEQUENCES: u64 = 20_000;
const STEPS: u64 = 20;
/// Sequences whose requests are under way at once.
const PIPELINED: usize = 50;
const WORKERS: u64 = 2;

/// What surrounds a script.
const STAND_IN: &str = include_str!("differential/stand_in.lua");

fn surrounded(script: &Script) -> String {
    let bounded =
        script.text.replace("REAPED, LOOKED = 1000,", &format!("REAPED, LOOKED = {REAPED_PER_STEP},"));
    assert_eq!(bounded != script.text, script.text.contains("live_head"), "the bound of {}", script.name);
    STAND_IN.replace("--[[show]]", &scripts::SHOW.text).replace("--[[step]]", &bounded)
}

#[derive(Debug, Clone)]
enum Step {
    Poll(usize),
    TakeAll(Vec<usize>),
    /// With the lease and the length of each.
    Renew(Vec<(usize, u64, Duration, Duration)>),
    Release(usize, u64),
    /// With the lease, and how many tokens.
    Keep(usize, u64, Duration, u64),
    Convert(usize, u64, Mode),
    Cancel(usize),
    Break(usize, u64),
    Steal(usize),
}

/// A step that is under way: what to compare when its reply comes.
struct Expected {
    check: Check,
    pushes: Vec<String>,
    locks: Vec<LockView>,
    /// Numbers were ahead of the clock, by which the store tells since when a waiter waits.
    ahead: bool,
}

/// One sequence of steps with all that its replies must be.
struct Sequence {
    seed: u64,
    contenders: Vec<Arc<Contender>>,
    told: Vec<(u64, Step)>,
    expected: VecDeque<Expected>,
    audit: Vec<AuditEntry>,
}

fn all_scripts() -> [&'static Script; 13] {
    [
        &scripts::POLL,
        &scripts::RENEW,
        &scripts::RELEASE,
        &scripts::KEEP,
        &scripts::CANCEL,
        &scripts::BREAK,
        &scripts::STEAL,
        &scripts::SHARED_POLL,
        &scripts::SHARED_RENEW,
        &scripts::SHARED_RELEASE,
        &scripts::SHARED_CANCEL,
        &scripts::CONVERT,
        &scripts::TAKE_ALL,
    ]
}

struct Worker {
    parties: Vec<Party>,
    stream: UnixStream,
    received: Vec<u8>,
    request: Vec<u8>,
}

impl Worker {
    fn new(server: &RedisServer, database: u64, runtime: &tokio::runtime::Handle) -> Self {
        let parties = (0..3).map(|number| Party::new(number, number > 0, runtime)).collect();
        let stream = UnixStream::connect(server.socket_path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut worker = Self { parties, stream, received: Vec::new(), request: Vec::new() };
        worker.ask(&["SELECT", &database.to_string()]);
        for script in all_scripts() {
            worker.ask(&["SCRIPT", "LOAD", &surrounded(script)]);
        }
        worker
    }

    fn ask(&mut self, words: &[&str]) -> Wire {
        self.stream.write_all(&resp::encode(words)).unwrap();
        let mut at = 0;
        let reply = self.reply(&mut at);
        self.received.drain(..at);
        assert_eq!(reply.error(), None, "{words:?}");
        reply
    }

    /// Reads the reply that starts at `at`, and moves it behind.
    fn reply(&mut self, at: &mut usize) -> Wire {
        loop {
            if let Some((reply, length)) = resp::parse(&self.received[*at..]).unwrap() {
                *at += length;
                return reply;
            }
            let mut chunk = [0; 256 * 1024];
            let count = self.stream.read(&mut chunk).expect("a reply within the time limit");
            assert!(count > 0, "the server hung up");
            self.received.extend_from_slice(&chunk[..count]);
        }
    }

    fn run(&mut self, seeds: impl Iterator<Item = u64>, shas: &Shas) {
        let mut seeds = seeds.peekable();
        while seeds.peek().is_some() {
            let batch: Vec<_> = seeds.by_ref().take(PIPELINED).map(|seed| self.record(seed, shas)).collect();
            self.stream.write_all(&std::mem::take(&mut self.request)).unwrap();
            let mut at = 0;
            for mut sequence in batch {
                for number in 0..sequence.told.len() {
                    let expected = sequence.expected.pop_front().expect("one per step");
                    let reply = self.reply(&mut at);
                    if let Err(why) = compare(expected, reply) {
                        panic!("step {number} of {}\n{why}", sequence.describe());
                    }
                }
                let audit: Vec<_> = self.reply(&mut at).texts().into_iter().map(audit_entry).collect();
                assert_eq!(audit, sequence.audit, "audit of {}", sequence.describe());
                self.reply(&mut at);
            }
            self.received.drain(..at);
        }
    }

    /// Draws a sequence, carries it out in the specification, and writes its requests.
    fn record(&mut self, seed: u64, shas: &Shas) -> Sequence {
        let mut dice = Dice::new(seed);
        let contenders: Vec<_> =
            (0..7).map(|n| contender(n, seed, &self.parties[n as usize % 3].id, &mut dice)).collect();
        // Who only tries never stands in line: one acquisition asks in one way.
        let tries: Vec<_> = contenders.iter().map(|_| dice.below(7) < 2).collect();
        let mut spec = Store::default();
        let mut fences = vec![1_u64; contenders.len()];
        let (mut boot_ms, mut ahead) = (1_000_000, false);
        let mut sequence =
            Sequence { seed, contenders, told: Vec::new(), expected: VecDeque::new(), audit: Vec::new() };
        for _ in 0..STEPS {
            boot_ms += match dice.below(10) {
                0..=3 => 0,
                4..=6 => dice.below(200),
                7..=8 => dice.below(1_500),
                _ => dice.below(4_000),
            };
            let now = at(boot_ms);
            let who = dice.below(sequence.contenders.len() as u64) as usize;
            let fence = |who: usize, dice: &mut Dice| match dice.below(9) {
                0 => fences[who] - 1,
                1 => fences[who] + 1,
                2 => fences[dice.below(7) as usize],
                _ => fences[who],
            };
            let step = match dice.below(if seed.is_multiple_of(4) { 16 } else { 18 }) {
                // One of each name, in either order, or one alone; of those who never stand in line.
                0..=2 if tries[who] => {
                    let other = dice.below(sequence.contenders.len() as u64) as usize;
                    let name = |who: usize| &sequence.contenders[who].name;
                    let both = tries[other] && name(who) != name(other);
                    Step::TakeAll([who, other].into_iter().take(1 + usize::from(both)).collect())
                }
                0..=7 => Step::Poll(who),
                8..=9 => {
                    let other = dice.below(sequence.contenders.len() as u64) as usize;
                    let is_mutex = |who: usize| sequence.contenders[who].mode == Mode::Mutex;
                    // Two kinds are two calls.
                    let most = 1 + usize::from(is_mutex(who) == is_mutex(other));
                    let whom = [who, other].into_iter().take(most.min(1 + dice.below(2) as usize));
                    // The first renewals are as long as the first lease: one of them may arrive after a longer one.
                    let renewed = whom.map(|who| {
                        let contender = &sequence.contenders[who];
                        let is_long = dice.below(2) == 0;
                        // An extension brings another length, longer or shorter.
                        let length =
                            contender.lease.as_millis() as u64 * [2, 2, 2, 1, 5][dice.below(5) as usize];
                        // Never below the first lease: a poll of a holder gives that one, and comes only before
                        // the holder knows that it holds, so never after an extension.
                        let length = millis(length / 2).max(contender.first_lease);
                        let lease = if is_long { length } else { contender.first_lease };
                        (who, fence(who, &mut dice), lease, length)
                    });
                    Step::Renew(renewed.collect())
                }
                // Some are soon used up, and some reach as far ahead as they may.
                10..=11
                    if sequence.contenders[who].mode == Mode::Mutex
                        && renewals_of(&sequence.contenders[who]) > 0
                        && dice.below(2) == 0 =>
                {
                    let contender = &sequence.contenders[who];
                    let lease = if dice.below(2) == 0 { contender.lease } else { contender.first_lease };
                    let tokens = [0, 1, 10_000, 70_000][dice.below(4) as usize];
                    Step::Keep(who, fence(who, &mut dice), lease, tokens)
                }
                10..=12 => Step::Release(who, fence(who, &mut dice)),
                13..=14 => Step::Cancel(who),
                16.. if sequence.contenders[who].mode.kind() == Kind::ReadWrite => {
                    let to = if dice.below(2) == 0 { Mode::Read } else { Mode::Write };
                    Step::Convert(who, fence(who, &mut dice), to)
                }
                15 if matches!(sequence.contenders[who].mode, Mode::Mutex | Mode::Write)
                    && dice.below(2) == 0 =>
                {
                    Step::Steal(who)
                }
                _ => Step::Break(who, fence(who, &mut dice)),
            };
            let (call, check, pushes) = self.carry_out(&step, &mut spec, now, &sequence.contenders, &tries);
            for push in &pushes {
                if let Push::Granted { owner, fence } = push {
                    let granted = sequence.contenders.iter().position(|c| c.owner == *owner).unwrap();
                    fences[granted] = *fence;
                }
            }
            let touched = match &step {
                Step::Renew(items) => items.iter().map(|(who, ..)| *who).collect(),
                Step::TakeAll(all) => all.clone(),
                Step::Poll(who)
                | Step::Release(who, _)
                | Step::Keep(who, ..)
                | Step::Convert(who, ..)
                | Step::Cancel(who)
                | Step::Break(who, _)
                | Step::Steal(who) => vec![*who],
            };
            let locks: Vec<_> =
                touched.iter().map(|who| state(&spec, &sequence.contenders[*who].name, now)).collect();
            // A grant without a push, or one whose contender does not listen, is seen in the state.
            for (index, contender) in sequence.contenders.iter().enumerate() {
                for holder in locks.iter().flat_map(|lock| &lock.holders) {
                    if holder.owner_digest == contender.owner.digest() {
                        fences[index] = holder.fencing_token.unwrap().get();
                    }
                }
            }
            let pushes =
                pushes.iter().filter_map(|push| self.published(push, &sequence.contenders)).collect();
            self.write(&call, now, shas);
            ahead |= matches!(step, Step::Keep(_, _, _, 1..));
            sequence.expected.push_back(Expected { check, pushes, locks, ahead });
            sequence.told.push((boot_ms, step));
        }
        sequence.audit = spec.snapshot(at(boot_ms), &Query::default()).audit;
        let keys = Keys::new("pl", None).unwrap();
        self.request.extend(resp::encode(&["LRANGE", &keys.audit(), "0", "-1"]));
        let mut used = vec!["DEL".to_owned(), keys.audit()];
        for name in NAMES {
            let name = LockName::new(name).unwrap();
            used.extend(keys.granting(&name));
            used.extend(keys.sharing(&name));
            used.push(keys.deadlines(&name));
            used.push(keys.of_lock(&name, "kept"));
            used.push(format!("{}#ends", keys.lock(&name)));
        }
        self.request.extend(resp::encode(&used));
        sequence
    }

    fn carry_out(
        &self,
        step: &Step,
        spec: &mut Store,
        now: Now,
        contenders: &[Arc<Contender>],
        tries: &[bool],
    ) -> (Call, Check, Vec<Push>) {
        let party = |who: usize| &self.parties[who % 3];
        let token = FencingToken::new;
        match step {
            Step::Poll(who) => {
                let ask = match tries[*who] {
                    true => Ask::Try,
                    false => Ask::Wait {
                        near_heartbeat: millis(900),
                        far_heartbeat: millis(2_500),
                        left: (who % 2 == 0).then(|| millis(1_000 + *who as u64)),
                    },
                };
                let (answer, pushes) = spec.poll(now, &contenders[*who], ask);
                let (call, check) =
                    record(party(*who), party(*who).backend.poll(&contenders[*who], ask), answer);
                (call, check, pushes)
            }
            Step::TakeAll(all) => {
                let all: Vec<_> = all.iter().map(|who| Arc::clone(&contenders[*who])).collect();
                let (answer, pushes) = spec.take_all(now, &all);
                let (call, check) = record(&self.parties[0], self.parties[0].backend.take_all(&all), answer);
                (call, check, pushes)
            }
            Step::Renew(items) => {
                let items: Vec<_> = items
                    .iter()
                    .map(|(who, fence, lease, length)| RenewItem {
                        contender: Arc::clone(&contenders[*who]),
                        fence: token(*fence),
                        lease: *lease,
                        length: *length,
                        renewals: renewals_of(&contenders[*who]),
                    })
                    .collect();
                let renewals = items.iter().map(|item| spec.renew(now, item)).collect();
                let (call, check) = record(&self.parties[0], self.parties[0].backend.renew(items), renewals);
                (call, check, Vec::new())
            }
            Step::Release(who, fence) => {
                let (released, pushes) = spec.release(now, &contenders[*who], *fence);
                let reply = party(*who).backend.release(&contenders[*who], token(*fence));
                let (call, check) = record(party(*who), reply, released);
                (call, check, pushes)
            }
            Step::Keep(who, fence, lease, tokens) => {
                let held = state(spec, &contenders[*who].name, now).holders;
                let recorded = held.first().and_then(|holder| holder.lease_ms).unwrap_or_default();
                let item = RenewItem {
                    contender: Arc::clone(&contenders[*who]),
                    fence: token(*fence),
                    // It is asked for the length on record at most.
                    lease: (*lease).min(millis(recorded.max(1))),
                    length: contenders[*who].lease,
                    renewals: renewals_of(&contenders[*who]),
                };
                let (kept, pushes) = spec.keep(now, &item, *tokens);
                let (call, check) = record(party(*who), party(*who).backend.keep(item, *tokens), kept);
                (call, check, pushes)
            }
            Step::Convert(who, fence, to) => {
                let (conversion, pushes) = spec.convert(now, &contenders[*who], *fence, *to);
                let reply = party(*who).backend.convert(&contenders[*who], token(*fence), *to);
                let (call, check) = record(party(*who), reply, conversion);
                (call, check, pushes)
            }
            Step::Cancel(who) => {
                let pushes = spec.cancel(now, &contenders[*who]);
                let (call, check) = record(party(*who), party(*who).backend.cancel(&contenders[*who]), ());
                (call, check, pushes)
            }
            Step::Break(who, fence) => {
                let request = BreakRequest {
                    name: contenders[*who].name.as_str().to_owned(),
                    expected: token(*fence),
                    by: "ann@desk".into(),
                    reason: "it \"hangs\"".into(),
                };
                let (outcome, pushes) = spec.break_lease(now, &request);
                let (call, check) =
                    record(&self.parties[0], self.parties[0].backend.break_lease(&request), outcome);
                (call, check, pushes)
            }
            Step::Steal(who) => {
                let reason = "it \"hangs\"";
                let (answer, pushes) = spec.steal(now, &contenders[*who], reason);
                let reply = party(*who).backend.steal(&contenders[*who], reason);
                let (call, check) = record(party(*who), reply, answer);
                (call, check, pushes)
            }
        }
    }

    /// How a push looks on the wire; nothing is published to who does not listen.
    fn published(&self, push: &Push, contenders: &[Arc<Contender>]) -> Option<String> {
        let (what, owner, fence) = match push {
            Push::Granted { owner, fence } => ("granted", owner, fence),
            Push::Revoked { owner, fence } => ("revoked", owner, fence),
            Push::Wanted { owner, fence } => ("wanted", owner, fence),
        };
        let who = contenders.iter().position(|contender| contender.owner == *owner).unwrap();
        let party = &self.parties[who % 3];
        (party.listens || what == "revoked")
            .then(|| format!("pl:inbox:{} {what}|{}|{fence}", party.id, owner.to_hex()))
    }

    fn write(&mut self, call: &Call, now: Now, shas: &Shas) {
        let count = call.keys.len().to_string();
        let time = now.wall_us.to_string();
        let words: Vec<&str> = ["EVALSHA", shas.of(call.script), count.as_str()]
            .into_iter()
            .chain(call.keys.iter().chain(&call.args).map(String::as_str))
            .chain([time.as_str()])
            .collect();
        self.request.extend(resp::encode(&words));
    }
}

/// The number of every renewal of a contender: those of some are extensions of a lease that is not renewed.
fn renewals_of(contender: &Contender) -> u32 {
    if contender.lease.as_millis().is_multiple_of(3) { 0 } else { 7 }
}

/// A break as it stands in the store.
fn audit_entry(json: &str) -> AuditEntry {
    let entry: serde_json::Value = serde_json::from_str(json).unwrap();
    let text = |field: &str| entry[field].as_str().unwrap();
    AuditEntry {
        at_ms: entry["at_ms"].as_u64().unwrap(),
        name: text("name").to_owned(),
        fencing_token: FencingToken::new(text("fencing_token").parse().unwrap()),
        holder: ClientId::from_stored(text("holder")),
        by: text("by").to_owned(),
        reason: text("reason").to_owned(),
    }
}

/// The hashes of the scripts with what surrounds them.
struct Shas(Vec<(&'static str, String)>);

impl Shas {
    fn new() -> Self {
        let all = all_scripts();
        let sha = |script: &Script| redis::Script::new(&surrounded(script)).get_hash().to_owned();
        Self(all.into_iter().map(|script| (script.name, sha(script))).collect())
    }

    fn of(&self, script: &Script) -> &str {
        &self.0.iter().find(|(name, _)| *name == script.name).expect("all are known").1
    }
}

impl Sequence {
    fn describe(&self) -> String {
        let mut text = format!("sequence {}:\n", self.seed);
        for (number, contender) in self.contenders.iter().enumerate() {
            text += &format!("  contender {number}: {contender:?}\n");
        }
        for (number, (ms, step)) in self.told.iter().enumerate() {
            text += &format!("  {number}: at {ms} ms {step:?}\n");
        }
        text
    }
}

fn state(spec: &Store, name: &LockName, now: Now) -> LockView {
    let query = Query { name: Some(name.as_str().to_owned()), ..Query::default() };
    comparable(spec.snapshot(now, &query).locks.remove(0))
}

/// Without what Redis does not store but computes from the full length of a lease, and without what
/// only Redis can say.
fn comparable(mut lock: LockView) -> LockView {
    for holder in &mut lock.holders {
        holder.renewed_ago_ms = None;
        holder.idle_ago_ms = holder.idle_ago_ms.map(|_| 0);
        holder.details.clear();
    }
    lock
}

fn data(wire: &Wire) -> Data {
    match wire {
        Wire::Nil => Data::Nil,
        Wire::Int(number) => Data::Int(*number),
        Wire::Bulk(bytes) => Data::Bytes(bytes.clone()),
        Wire::Simple(text) => Data::Bytes(text.clone().into_bytes()),
        Wire::Array(items) => Data::List(items.iter().map(data).collect()),
        other => panic!("the stand-in answers {other:?}"),
    }
}

fn compare(expected: Expected, reply: Wire) -> std::result::Result<(), String> {
    let [answer, pushes, shown, listed] = reply.items() else { return Err(format!("the script: {reply:?}")) };
    (expected.check)(data(answer))?;
    let pushes = pushes.texts();
    if pushes != expected.pushes {
        return Err(format!("it pushes {pushes:?} and not {:?}", expected.pushes));
    }
    for (spec, shown) in expected.locks.iter().zip(shown.items()) {
        let name = LockName::new(&spec.name).map_err(|error| error.to_string())?;
        let ours = snapshot::view(&name, data(shown)).map_err(|error| error.to_string())?;
        let (mut ours, mut spec) = (comparable(ours), spec.clone());
        if expected.ahead {
            for waiter in ours.waiters.iter_mut().chain(&mut spec.waiters) {
                (waiter.since_ms, waiter.waited_ms) = (0, 0);
            }
        }
        if ours != spec {
            return Err(format!("it leaves\n  {ours:?}\nand not\n  {spec:?}"));
        }
    }
    // A mutex is listed by its first renewal, unless somebody waits for it.
    for (lock, listed) in expected.locks.iter().zip(listed.items()) {
        let must = !lock.waiters.is_empty() || (lock.mode != "mutex" && !lock.holders.is_empty());
        if must && listed.int() == Some(0) {
            return Err(format!("{} is waited for or shared and missing from the index of names", lock.name));
        }
    }
    Ok(())
}

#[test]
#[ignore = "starts a Redis server; run with --ignored"]
fn every_script_answers_pushes_and_leaves_what_the_specification_says() {
    let from_env = |key| std::env::var(key).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = from_env("POLYLATCH_DIFFERENTIAL_SEED").unwrap_or(1);
    let last = first + from_env("POLYLATCH_DIFFERENTIAL_SEQUENCES").unwrap_or(SEQUENCES);
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let shas = Shas::new();
    std::thread::scope(|scope| {
        for number in 0..WORKERS {
            let (server, shas, handle) = (&server, &shas, runtime.handle());
            scope.spawn(move || {
                let mut worker = Worker::new(server, number, handle);
                worker.run((first + number..last).step_by(WORKERS as usize), shas);
            });
        }
    });
}
