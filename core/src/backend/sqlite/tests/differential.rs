//! The SQL steps against the specification, in random order, with time as an argument.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use crate::backend::memory::store::{Now as SpecNow, Push as SpecPush, Store as Spec};
use crate::backend::rows::sequences::{Dice, break_of, contender, contenders};
use crate::backend::rows::{Now, Push, Steps};
use crate::backend::sqlite::inspect::snapshot;
use crate::backend::sqlite::store::{Sql, Store};
use crate::backend::sqlite::tidy::SweepMark;
use crate::backend::{Answer, AnswerAll, Ask, Contender, Conversion, RenewItem, Renewal};
use crate::client_info::ClientInfo;
use crate::clock::BootInstant;
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::Query;
use crate::token::{ClientId, OwnerToken};

/// A file and its counter, as the database thread keeps them.
struct File {
    conn: Connection,
    counter: i64,
    sweep_mark: SweepMark,
}

impl File {
    fn new() -> Self {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(concat!(include_str!("../schema/1.sql"), include_str!("../schema/2.sql")))
            .unwrap();
        // As the file is taken over for this boot.
        conn.execute("UPDATE store SET boot = ?1", [crate::client_info::boot()]).unwrap();
        Self { conn, counter: 0, sweep_mark: SweepMark::default() }
    }

    fn step<T>(&mut self, now: Now, step: impl FnOnce(&mut Store<'_>) -> Sql<T>) -> (T, Vec<Push>) {
        let mut store = Store {
            conn: &self.conn,
            now,
            counter: self.counter,
            pushes: Vec::new(),
            sweep_mark: &mut self.sweep_mark,
            unswept: false,
        };
        let result = step(&mut store).unwrap();
        self.counter = store.counter;
        (result, store.pushes)
    }
}

fn same(pushes: &[Push], spec: &[SpecPush]) -> bool {
    let ours: Vec<_> = pushes
        .iter()
        .map(|push| match *push {
            Push::Granted { owner, fence } => SpecPush::Granted { owner, fence },
            Push::Revoked { owner, fence } => SpecPush::Revoked { owner, fence },
        })
        .collect();
    ours == spec
}

#[test]
fn every_step_answers_as_the_specification_does() {
    for seed in 1..=60 {
        compare(seed);
    }
}

fn compare(seed: u64) {
    let mut dice = Dice::of(seed);
    let mut file = File::new();
    let mut spec = Spec::default();
    let (clients, contenders) = contenders();
    let mut fences = vec![1_u64; contenders.len()];
    let mut boot_ms: i64 = 1_000_000;
    let mut wall_us: i64 = 1_700_000_000_000_000;

    for step in 0..600 {
        boot_ms += dice.below(700) as i64 * i64::from(dice.below(3) > 0);
        // The wall clock stands, runs, and steps back now and then.
        wall_us += [0, 700_000, 1, -5_000_000][dice.below(4) as usize];
        let (now, spec_now) = times(boot_ms, wall_us);
        let at = dice.below(contenders.len() as u64) as usize;
        let who = &contenders[at];
        let fence = FencingToken::new(fences[at]);
        let told = format!("seed {seed}, step {step}");
        match dice.below(17) {
            0..=5 => {
                let ask = dice.ask();
                let (ours, pushes) = file.step(now, |store| store.poll(who, ask));
                let (theirs, expected) = spec.poll(spec_now, who, ask);
                assert_eq!(ours, theirs, "{told}: poll");
                assert!(same(&pushes, &expected), "{told}: {pushes:?} {expected:?}");
                if let Answer::Held { fence } = ours {
                    fences[at] = fence.get();
                }
            }
            6 | 7 => {
                let item = dice.renewal(who, fence);
                let (ours, _) = file.step(now, |store| store.renew(&item));
                assert_eq!(ours, spec.renew(spec_now, &item), "{told}: renew");
            }
            8 => {
                let (ours, pushes) = file.step(now, |store| store.release(who, fence));
                let (theirs, expected) = spec.release(spec_now, who, fence.get());
                assert_eq!(ours, theirs, "{told}: release");
                assert!(same(&pushes, &expected), "{told}: {pushes:?} {expected:?}");
            }
            9 => {
                let ((), pushes) = file.step(now, |store| store.cancel(who));
                let expected = spec.cancel(spec_now, who);
                assert!(same(&pushes, &expected), "{told}: {pushes:?} {expected:?}");
            }
            10 => {
                let request = break_of(who, fence);
                let (ours, pushes) = file.step(now, |store| store.break_lease(&request));
                let (theirs, expected) = spec.break_lease(spec_now, &request);
                assert_eq!(ours, theirs, "{told}: break");
                assert!(same(&pushes, &expected), "{told}: {pushes:?} {expected:?}");
            }
            16 if matches!(who.mode, Mode::Mutex | Mode::Write) => {
                let (ours, pushes) = file.step(now, |store| store.steal(who, "test"));
                let (theirs, expected) = spec.steal(spec_now, who, "test");
                assert_eq!(ours, theirs, "{told}: steal");
                assert!(same(&pushes, &expected), "{told}: {pushes:?} {expected:?}");
                if let Answer::Held { fence } = ours {
                    fences[at] = fence.get();
                }
            }
            11 | 12 => {
                // Of up to three names: the contenders of one name are four apart.
                let all: Vec<_> = (0..1 + dice.below(3) as usize)
                    .map(|next| (at + next) % 4 + 4 * dice.below(6) as usize)
                    .map(|at| Arc::clone(&contenders[at]))
                    .collect();
                let (ours, pushes) = file.step(now, |store| store.take_all(&all));
                let (theirs, expected) = spec.take_all(spec_now, &all);
                assert_eq!(ours, theirs, "{told}: take all");
                assert!(same(&pushes, &expected), "{told}: {pushes:?} {expected:?}");
                if let AnswerAll::Held { fences: taken } = ours {
                    for (who, fence) in all.iter().zip(taken) {
                        let at = contenders.iter().position(|known| known.owner == who.owner).unwrap();
                        fences[at] = fence.get();
                    }
                }
            }
            13 | 14 => {
                let to = if dice.below(2) == 0 { Mode::Read } else { Mode::Write };
                let (ours, pushes) = file.step(now, |store| store.convert(who, fence, to));
                let (theirs, expected) = spec.convert(spec_now, who, fence.get(), to);
                // A lease of another kind is not converted by any caller.
                assert_eq!(ours, theirs, "{told}: convert");
                assert!(same(&pushes, &expected), "{told}: {pushes:?} {expected:?}");
                if let Conversion::Done { fence } = ours {
                    fences[at] = fence.get();
                }
            }
            _ => {
                let client = &clients[dice.below(3) as usize];
                file.step(now, |store| store.announce(client));
                spec.announce(spec_now, client);
            }
        }
        let query = dice.query();
        let mut ours = snapshot::snapshot(&file.conn, now, &query).unwrap();
        let theirs = spec.snapshot(spec_now, &query);
        (ours.backend, ours.requests) = (theirs.backend.clone(), theirs.requests);
        assert_eq!(ours, theirs, "{told}: {query:?}");
    }
}

fn times(boot_ms: i64, wall_us: i64) -> (Now, SpecNow) {
    let boot = BootInstant::from_nanos(boot_ms as u64 * 1_000_000);
    (Now { clock_ms: boot_ms, begun_ms: boot_ms, wall_us }, SpecNow { boot, wall_us: wall_us as u64 })
}

#[test]
fn a_long_line_is_let_in_and_dropped_in_the_same_parts() {
    let client = ClientInfo::of_this_process(None, "rust", "0").unwrap().id;
    let mut file = File::new();
    let mut spec = Spec::default();
    let at = |boot_ms| times(boot_ms, 1_700_000_000_000_000);
    let wait = Ask::Wait {
        near_heartbeat: Duration::from_millis(500),
        far_heartbeat: Duration::from_millis(900),
        left: None,
    };
    let readers: Vec<Arc<Contender>> = (0..150)
        .map(|n| Arc::new(Contender { mode: Mode::Read, barge: false, ..(*contender(n, &client)).clone() }))
        .map(|reader| Arc::new(Contender { name: LockName::new("a").unwrap(), ..(*reader).clone() }))
        .collect();
    let writer = |n: usize| Arc::new(Contender { mode: Mode::Write, ..(*readers[n]).clone() });
    let (first, last) = (writer(0), writer(149));
    let mut poll = |boot_ms, who: &Arc<Contender>, ask| {
        let (now, spec_now) = at(boot_ms);
        let (ours, pushes) = file.step(now, |store| store.poll(who, ask));
        let (theirs, expected) = spec.poll(spec_now, who, ask);
        assert_eq!(ours, theirs, "at {boot_ms}");
        assert!(same(&pushes, &expected), "at {boot_ms}: {pushes:?} {expected:?}");
        (ours, pushes.len())
    };
    let is_held = |answer| matches!(answer, (Answer::Held { .. }, _));
    // The first has ended at 800, when all in line are alive; the rest come in by each other's polls.
    assert!(is_held(poll(0, &first, wait)));
    for reader in &readers[1..149] {
        assert!(!is_held(poll(700, reader, wait)));
    }
    let (answer, granted) = poll(900, &readers[1], wait);
    assert!(matches!(answer, Answer::Held { .. }));
    assert_eq!(granted, 64, "those behind it enter with it, not too many at once");
    assert_eq!(poll(900, &readers[148], wait).1, 64);
    assert_eq!(poll(900, &readers[148], wait).1, 19);
    // All have ended; a second line grows and falls silent.
    assert!(is_held(poll(9_000, &first, wait)));
    for reader in &readers[1..149] {
        assert!(!is_held(poll(9_000, reader, wait)));
    }
    for boot_ms in [9_950, 9_960, 9_970, 9_980] {
        poll(boot_ms, &last, Ask::Try);
    }
    let (now, spec_now) = at(9_990);
    let mut ours = snapshot::snapshot(&file.conn, now, &Query::default()).unwrap();
    let theirs = spec.snapshot(spec_now, &Query::default());
    (ours.backend, ours.requests) = (theirs.backend.clone(), theirs.requests);
    assert_eq!(ours, theirs);
}

/// Both lengths of renewals in either order, in the specification and in the file.
#[test]
fn a_shorter_renewal_that_arrives_late_leaves_the_longer_lease_as_it_is() {
    let client = ClientInfo::of_this_process(None, "rust", "0").unwrap().id;
    let (mutex, reader) = (contender(0, &client), contender(1, &client));
    for who in [mutex, reader] {
        let (mut file, mut spec) = (File::new(), Spec::default());
        let at = |boot_ms| times(boot_ms, 1_700_000_000_000_000);
        let (now, spec_now) = at(1_000);
        let (answer, _) = file.step(now, |store| store.poll(&who, Ask::Try));
        assert_eq!(spec.poll(spec_now, &who, Ask::Try).0, answer);
        let Answer::Held { fence } = answer else { panic!("it is free") };
        for (boot_ms, lease) in [(1_100, who.lease), (1_200, who.first_lease)] {
            let item =
                RenewItem { contender: Arc::clone(&who), fence, lease, length: who.lease, renewals: 1 };
            let (now, spec_now) = at(boot_ms);
            assert_eq!(file.step(now, |store| store.renew(&item)).0, Renewal::Extended);
            assert_eq!(spec.renew(spec_now, &item), Renewal::Extended);
        }
        let left = |boot_ms| {
            let (now, spec_now) = at(boot_ms);
            let ours = snapshot::snapshot(&file.conn, now, &Query::default()).unwrap();
            let seen = [ours, spec.snapshot(spec_now, &Query::default())];
            seen.map(|seen| seen.locks.first().and_then(|lock| lock.holders[0].remaining_ms))
        };
        assert_eq!(left(6_099), [Some(1); 2], "{:?}", who.mode);
        assert_eq!(left(6_100), [None; 2]);
    }
}

/// A client that said who it is, with this number and namespace.
fn announced(file: &mut File, now: Now, pid: u32, pid_namespace: Option<String>) -> ClientId {
    let info = ClientInfo::of_this_process(None, "rust", "0").unwrap();
    let id = ClientId::from_stored(&format!("h:{pid}:0a0b0c0d"));
    let info = Arc::new(ClientInfo { id: id.clone(), pid, pid_namespace, ..info });
    file.step(now, |store| store.announce(&info));
    id
}

/// A number that no process has any more.
fn ended_pid() -> u32 {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[test]
fn waiters_of_an_ended_process_are_passed_over_before_their_heartbeats_lapse() {
    let here = crate::client_info::pid_namespace();
    let elsewhere = Some("pid:[1]".to_owned());
    let wait = Ask::Wait {
        near_heartbeat: Duration::from_secs(60),
        far_heartbeat: Duration::from_secs(60),
        left: None,
    };
    let waiter = |n: u64, client: &ClientId| {
        let named = contender(0, client);
        Arc::new(Contender {
            label: format!("job {n}"),
            owner: OwnerToken::random().unwrap(),
            ..(*named).clone()
        })
    };
    let (now, _) = times(1_000, 1_700_000_000_000_000);
    // Of a process whose number means nothing here, it is not known whether it has ended.
    for (namespace, is_known) in [(here, true), (elsewhere, false), (None, false)] {
        for count in [1, 4, 20, 200] {
            let mut file = File::new();
            let us = ClientInfo::of_this_process(None, "rust", "0").unwrap().id;
            let ended = announced(&mut file, now, ended_pid(), namespace.clone());
            let (holder, live) = (waiter(0, &us), waiter(1, &us));
            let (answer, _) = file.step(now, |store| store.poll(&holder, wait));
            let Answer::Held { fence } = answer else { panic!("it is free") };
            for n in 0..count {
                let dead = waiter(n + 2, &ended);
                file.step(now, |store| store.poll(&dead, wait));
            }
            file.step(now, |store| store.poll(&live, wait));
            let (_, mut pushes) = file.step(now, |store| store.release(&holder, fence));
            // One step drops only so many, and lets the next poll come at once.
            let mut polls = 0;
            while pushes.is_empty() && polls <= count {
                polls += 1;
                let (answer, more) = file.step(now, |store| store.poll(&live, wait));
                pushes = more;
                match answer {
                    Answer::Held { .. } => break,
                    Answer::Wait { answer, .. } => assert_eq!(answer.poll_within, Some(Duration::ZERO)),
                    other => panic!("{other:?}"),
                }
            }
            let seen = snapshot::snapshot(&file.conn, now, &Query::default()).unwrap().locks.remove(0);
            let is_live = seen.holders[0].label == "job 1";
            assert_eq!((is_live, seen.waiters.is_empty()), (is_known, is_known), "{namespace:?}, {count}");
        }
    }
}
