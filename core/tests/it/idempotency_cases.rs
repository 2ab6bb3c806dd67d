//! What every store that keeps records of idempotent work does, told as cases.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use polylatch::idempotency::{
    Consumed, Failure, Forgotten, MAX_RESULT_BYTES, OnFailure, Outcome, RecordState, Retention, RunError,
    RunOptions,
};

use crate::contract::{Store, block_on, eventually, millis, poll_at_most};

/// Far beyond what any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

fn options() -> RunOptions {
    // Not lost on a busy machine.
    RunOptions::new().lease(Duration::from_secs(10)).wait(PATIENCE)
}

/// Work that counts how often it is done.
async fn counted(done: &AtomicU32, answer: &str) -> Result<Vec<u8>, Failure> {
    done.fetch_add(1, Ordering::SeqCst);
    Ok(answer.as_bytes().to_vec())
}

async fn not_done() -> Result<Vec<u8>, Failure> {
    panic!("the work was done again")
}

pub fn a_repetition_gets_the_first_answer(store: &impl Store) {
    let (one, other) = (store.connect(), store.connect());
    let bytes = vec![0, 255, 10, b'u', 128];
    let first = block_on(one.idempotency("s").run("k", &options(), |claim| {
        assert_eq!(claim.runs(), 1);
        let bytes = bytes.clone();
        async { Ok(bytes) }
    }));
    assert_eq!(first.unwrap(), Outcome::First(bytes.clone()));
    for client in [&one, &other] {
        let again = block_on(client.idempotency("s").run("k", &options(), |_| not_done())).unwrap();
        assert_eq!(again, Outcome::Replayed(bytes.clone()), "with any bytes");
    }
    let json = |client: &polylatch::Polylatch| {
        let value = Ok::<_, Failure>((42, "Größe".to_owned()));
        block_on(client.idempotency("s").run_json("j", &options(), |_| std::future::ready(value))).unwrap()
    };
    assert!(!json(&one).is_replayed());
    assert_eq!(json(&other), Outcome::Replayed((42, "Größe".to_owned())));
}

pub fn two_hundred_duplicates_at_once_run_once(store: &impl Store) {
    let clients: Vec<_> = (0..4).map(|_| store.connect()).collect();
    let done = Arc::new(AtomicU32::new(0));
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..200)
            .map(|number| {
                let (scope_of, done) = (clients[number % 4].idempotency("s"), Arc::clone(&done));
                scope.spawn(move || {
                    block_on(scope_of.run("k", &options().payload(b"one order"), |_| async {
                        done.fetch_add(1, Ordering::SeqCst);
                        Ok(format!("order of {number}").into_bytes())
                    }))
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap().unwrap()).collect()
    });
    assert_eq!(done.load(Ordering::SeqCst), 1);
    assert_eq!(outcomes.iter().filter(|outcome| !outcome.is_replayed()).count(), 1);
    assert!(outcomes.iter().all(|outcome| outcome.value() == outcomes[0].value()), "differing answers");
}

pub fn a_run_in_progress_is_reported_or_waited_for(store: &impl Store) {
    let (one, other) = (store.connect(), store.connect());
    let (scope, same) = (one.idempotency("s"), other.idempotency("s"));
    let options = options();
    let (open, opened) = async_gate();
    let mut running = Box::pin(scope.run("k", &options, |_| async {
        opened.await;
        Ok(b"late".to_vec())
    }));
    eventually("it runs", || {
        assert!(poll_at_most(1, running.as_mut()).is_none());
        block_on(same.show("k")).unwrap().is_some_and(|record| record.state == RecordState::Running)
    });
    for options in [options.clone().no_wait(), options.clone().wait(millis(20))] {
        let error = block_on(same.run("k", &options, |_| not_done())).unwrap_err();
        assert_eq!(error.code(), "in_progress");
        let RunError::InProgress { client, .. } = &error else { panic!("{error}") };
        assert_eq!(client, one.id());
        assert!(error.to_string().contains("\"k\" in \"s\""), "{error}");
    }
    let waiting = std::thread::scope(|threads| {
        let waiting = threads.spawn(|| block_on(same.run("k", &options, |_| not_done())));
        open();
        assert_eq!(block_on(running).unwrap(), Outcome::First(b"late".to_vec()));
        waiting.join().unwrap()
    });
    assert_eq!(waiting.unwrap(), Outcome::Replayed(b"late".to_vec()));
}

/// A future that ends when the function is called.
fn async_gate() -> (impl FnOnce(), impl Future<Output = ()>) {
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    (move || gate.notify_one(), async move { opened.notified().await })
}

pub fn the_same_key_with_another_payload_is_refused(store: &impl Store) {
    let client = store.connect();
    let scope = client.idempotency("s");
    let done = AtomicU32::new(0);
    block_on(scope.run("k", &options().payload(b"10 EUR"), |_| counted(&done, "paid"))).unwrap();
    for other in [options().payload(b"1000 EUR"), options(), options().fingerprint("x").no_wait()] {
        let error = block_on(scope.run("k", &other, |_| not_done())).unwrap_err();
        assert_eq!(error.code(), "payload_mismatch");
        assert!(error.to_string().contains("a new request needs a new key"), "{error}");
    }
    let same = block_on(scope.run("k", &options().payload(b"10 EUR"), |_| not_done())).unwrap();
    assert!(same.is_replayed());
}

pub fn the_key_of_another_caller_gets_nothing_of_its_answer(store: &impl Store) {
    let client = store.connect();
    let done = AtomicU32::new(0);
    // Two of them would meet if scope and key were only joined.
    for (scope, key) in
        [("orders/anna", "1"), ("orders/bert", "1"), ("orders", "anna/1"), ("orders/anna/1", "1")]
    {
        let answer = format!("{scope} {key}");
        let own = client.idempotency(scope);
        let outcome = block_on(own.run(key, &options(), |_| counted(&done, &answer))).unwrap();
        assert_eq!(outcome, Outcome::First(answer.into_bytes()));
    }
    assert_eq!(done.load(Ordering::SeqCst), 4);
}

pub fn a_stored_failure_is_replayed_as_a_failure(store: &impl Store) {
    let client = store.connect();
    let scope = client.idempotency("s");
    let refused = || async { Err(Failure::new("503 try later")) };
    for replayed in [false, true, true] {
        let error = block_on(scope.run("k", &options(), |_| refused())).unwrap_err();
        let RunError::Failed { answer, replayed: was } = &error else { panic!("{error}") };
        assert_eq!((answer.as_slice(), *was), (&b"503 try later"[..], replayed), "never as a success");
    }
    assert_eq!(block_on(scope.show("k")).unwrap().unwrap().state, RecordState::Failed);
    // One kind of failure is freed although failures are stored, and the other way round.
    let without_effect = || async { Err(Failure::freed("no such item")) };
    let error = block_on(scope.run("f", &options(), |_| without_effect())).unwrap_err();
    assert!(matches!(error, RunError::Failed { replayed: false, .. }), "{error}");
    assert_eq!(block_on(scope.show("f")).unwrap(), None);
    let frees = options().on_failure(OnFailure::Free);
    block_on(scope.run("g", &frees, |_| async { Err(Failure::stored("card refused")) })).unwrap_err();
    let error = block_on(scope.run("g", &frees, |_| not_done())).unwrap_err();
    assert!(matches!(error, RunError::Failed { replayed: true, .. }), "{error}");
    block_on(scope.run("h", &frees, |_| async { Err(Failure::new("down")) })).unwrap_err();
    let done = AtomicU32::new(0);
    assert!(!block_on(scope.run("h", &frees, |_| counted(&done, "ok"))).unwrap().is_replayed());
}

pub fn a_failure_after_the_effect_does_not_free_its_key(store: &impl Store) {
    let client = store.connect();
    let scope = client.idempotency("s");
    let effects = AtomicU32::new(0);
    for _ in 0..3 {
        let error = block_on(scope.run("k", &options(), |_| async {
            effects.fetch_add(1, Ordering::SeqCst);
            Err(Failure::new("the receipt could not be printed"))
        }));
        assert_eq!(error.unwrap_err().code(), "failed");
    }
    assert_eq!(effects.load(Ordering::SeqCst), 1, "by default");
    // Of work that panics it is not known whether it had an effect: not before its lease has ended, it is done again.
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = block_on(scope.run("p", &options(), |_| async { panic!("after the effect") }));
    }));
    assert!(panics.is_err());
    let error = block_on(scope.run("p", &options().no_wait(), |_| not_done())).unwrap_err();
    assert_eq!(error.code(), "in_progress");
}

pub fn a_claim_that_dies_ends_with_its_lease_and_not_with_the_retention(store: &impl Store) {
    let (dies, client) = (store.connect(), store.connect());
    let short = RunOptions::new().lease(Duration::from_secs(1)).retention(Retention::Forever);
    let mut fence = None;
    {
        let scope = dies.idempotency("s");
        let begun = std::sync::atomic::AtomicBool::new(false);
        let dying = scope.run("k", &short, |claim| {
            fence = Some(claim.fencing_token());
            begun.store(true, Ordering::SeqCst);
            pending()
        });
        let mut dying = Box::pin(dying);
        eventually("its work begins", || {
            assert!(poll_at_most(1, dying.as_mut()).is_none());
            begun.load(Ordering::SeqCst)
        });
    }
    let begun = Instant::now();
    let scope = client.idempotency("s");
    let outcome = block_on(scope.run("k", &options(), |claim| {
        assert!(claim.fencing_token() > fence.expect("the first one worked"));
        assert_eq!(claim.runs(), 2, "the work may have been done in part");
        async { Ok(b"second".to_vec()) }
    }));
    assert_eq!(outcome.unwrap(), Outcome::First(b"second".to_vec()));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

pub fn a_claim_is_renewed_beyond_its_lease(store: &impl Store) {
    let (one, other) = (store.connect(), store.connect());
    let lease = Duration::from_secs(2);
    let short = RunOptions::new().lease(lease).wait(PATIENCE);
    let begun = Instant::now();
    std::thread::scope(|threads| {
        let first = threads.spawn(|| {
            block_on(one.idempotency("s").run("k", &short, |claim| async move {
                std::thread::sleep(lease * 2);
                claim.check().expect("renewed by another thread than this one, which sleeps");
                Ok(b"slow".to_vec())
            }))
        });
        let scope = other.idempotency("s");
        eventually("it runs", || block_on(scope.show("k")).unwrap().is_some());
        let second = block_on(scope.run("k", &short, |_| not_done())).unwrap();
        assert_eq!(second, Outcome::Replayed(b"slow".to_vec()));
        assert!(!first.join().unwrap().unwrap().is_replayed());
    });
    assert!(begun.elapsed() >= lease * 2);
    let record = block_on(other.idempotency("s").show("k")).unwrap().unwrap();
    assert_eq!((record.state, record.runs), (RecordState::Done, 1));
}

pub fn a_claim_that_was_taken_over_stores_nothing(store: &impl Store) {
    let (one, other) = (store.connect(), store.connect());
    let scope = other.idempotency("s");
    let slow = RunOptions::new().lease(Duration::from_secs(3));
    let late = block_on(one.idempotency("s").run("k", &slow, |claim| {
        let (scope, records) = (&scope, other.idempotency_records());
        async move {
            let Forgotten::Running(record) = scope.forget("k").await.unwrap() else { panic!("it runs") };
            assert_eq!(record.fence, claim.fencing_token().get());
            assert_eq!(records.forget("s", "k", true).await.unwrap(), Forgotten::Forgotten);
            let options = options();
            let newer = scope.run("k", &options, |newer| {
                assert!(newer.fencing_token() > claim.fencing_token());
                async { Ok(b"newer".to_vec()) }
            });
            assert!(!newer.await.unwrap().is_replayed());
            eventually("the claim is lost", || claim.check().is_err());
            let reason = claim.lost().await;
            assert_eq!(reason, polylatch::LostReason::Superseded, "the work is told");
            assert_eq!(claim.check().unwrap_err().code(), "lease_lost");
            Ok(b"older".to_vec())
        }
    }));
    let error = late.unwrap_err();
    let RunError::NotRecorded { value, error: cause } = &error else { panic!("{error}") };
    assert_eq!((value.as_slice(), cause.code()), (&b"older"[..], "lease_lost"));
    let stored = block_on(scope.run("k", &options(), |_| not_done())).unwrap();
    assert_eq!(stored, Outcome::Replayed(b"newer".to_vec()));
}

pub fn an_answer_is_kept_for_its_retention_or_for_ever(store: &impl Store) {
    let client = store.connect();
    let scope = client.idempotency("s");
    let done = AtomicU32::new(0);
    let short = options().retention(Retention::For(Duration::from_secs(1)));
    block_on(scope.run("short", &short, |_| counted(&done, "1"))).unwrap();
    block_on(scope.run("ever", &options().retention(Retention::Forever), |_| counted(&done, "2"))).unwrap();
    let kept = block_on(scope.show("ever")).unwrap().unwrap();
    assert_eq!(kept.keep_left_ms, None);
    eventually("the retention is over", || block_on(scope.show("short")).unwrap().is_none());
    let again = block_on(scope.run("short", &options().payload(b"another"), |claim| {
        assert_eq!(claim.runs(), 1);
        counted(&done, "3")
    }));
    assert!(!again.unwrap().is_replayed(), "and the key is free for any payload");
    assert!(block_on(scope.run("ever", &options(), |_| not_done())).unwrap().is_replayed());
    assert_eq!(done.load(Ordering::SeqCst), 3);
}

pub fn records_that_are_over_are_purged_in_batches(store: &impl Store) {
    let client = store.connect();
    let (scope, records) = (client.idempotency("s"), client.idempotency_records());
    let done = AtomicU32::new(0);
    let short = options().retention(Retention::For(Duration::from_secs(1)));
    for number in 0..10 {
        block_on(scope.run(&number.to_string(), &short, |_| counted(&done, "x"))).unwrap();
    }
    block_on(scope.run("kept", &options(), |_| counted(&done, "x"))).unwrap();
    eventually("all are over", || block_on(records.list("", 100)).unwrap().len() == 1);
    let purged: Vec<_> = (0..4).map(|_| block_on(records.purge(4)).unwrap()).collect();
    // A Redis server deletes them itself.
    let expected = if client.capability().backend == "redis" { [0; 4] } else { [4, 4, 2, 0] };
    assert_eq!(purged, expected);
    assert!(block_on(scope.run("kept", &options(), |_| not_done())).unwrap().is_replayed());
    for wrong in [0, 100_001] {
        assert_eq!(block_on(records.purge(wrong)).unwrap_err().code(), "invalid_argument");
    }
}

pub fn a_result_that_is_too_large_is_not_worked_for_again(store: &impl Store) {
    let client = store.connect();
    let scope = client.idempotency("s");
    let largest = vec![b'x'; MAX_RESULT_BYTES];
    let outcome = block_on(scope.run("fits", &options(), |_| {
        let largest = largest.clone();
        async { Ok(largest) }
    }));
    assert!(!outcome.unwrap().is_replayed());
    assert_eq!(*block_on(scope.run("fits", &options(), |_| not_done())).unwrap().value(), largest);
    let too_large = vec![1; MAX_RESULT_BYTES + 1];
    let error = block_on(scope.run("k", &options(), |_| {
        let too_large = too_large.clone();
        async { Ok(too_large) }
    }))
    .unwrap_err();
    assert_eq!(error.code(), "result_too_large");
    let RunError::ResultTooLarge { value: Some(value), .. } = error else { panic!("its run gets it") };
    assert_eq!(value.len(), too_large.len());
    let error = block_on(scope.run("k", &options(), |_| not_done())).unwrap_err();
    assert!(matches!(error, RunError::ResultTooLarge { value: None, .. }), "{error}");
}

pub fn a_token_is_consumed_by_one_of_a_hundred(store: &impl Store) {
    let clients: Vec<_> = (0..4).map(|_| store.connect()).collect();
    let ttl = Duration::from_secs(60);
    let token = block_on(clients[0].idempotency("form").issue(ttl)).unwrap();
    assert_eq!(token.len(), 32);
    let consumed: Vec<_> = std::thread::scope(|threads| {
        let consuming: Vec<_> = (0..100)
            .map(|number| {
                let (scope, token) = (clients[number % 4].idempotency("form"), &token);
                threads.spawn(move || block_on(scope.consume(token)).unwrap())
            })
            .collect();
        consuming.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let count = |what| consumed.iter().filter(|one| **one == what).count();
    assert_eq!((count(Consumed::First), count(Consumed::Duplicate)), (1, 99));
    // A token of another scope, one that was never issued, and one whose time is over.
    let other = block_on(clients[1].idempotency("other").issue(Duration::from_secs(1))).unwrap();
    let form = clients[1].idempotency("form");
    assert_eq!(block_on(form.consume(&other)).unwrap(), Consumed::Unknown);
    assert_eq!(block_on(form.consume("0123")).unwrap(), Consumed::Unknown);
    let records = clients[1].idempotency_records();
    eventually("its time is over", || block_on(records.list("other", 9)).unwrap().is_empty());
    assert_eq!(block_on(clients[1].idempotency("other").consume(&other)).unwrap(), Consumed::Unknown);
    let listed = block_on(records.list("form", 9)).unwrap();
    assert_eq!((listed.len(), listed[0].state), (1, RecordState::Consumed));
    assert!(listed[0].is_token && !listed[0].key.contains(&token), "a token is the secret of its form");
}

pub fn records_are_listed_shown_and_forgotten(store: &impl Store) {
    let client = store.connect();
    let (scope, records) = (client.idempotency("a/1"), client.idempotency_records());
    assert_eq!(block_on(records.list("", 10)).unwrap(), []);
    assert_eq!(block_on(scope.forget("k")).unwrap(), Forgotten::Absent);
    let done = AtomicU32::new(0);
    for (scope, key) in [("a/1", "k"), ("a/1", "j"), ("a/2", "i"), ("b%_", "h")] {
        let own = client.idempotency(scope);
        block_on(own.run(key, &options().fingerprint("fp"), |_| counted(&done, "answer"))).unwrap();
    }
    let names = |prefix: &str, most: usize| -> Vec<_> {
        let listed = block_on(records.list(prefix, most)).unwrap();
        listed.into_iter().map(|record| format!("{} {}", record.scope, record.key)).collect()
    };
    assert_eq!(names("", 10), ["a/1 j", "a/1 k", "a/2 i", "b%_ h"]);
    assert_eq!(names("a/", 2), ["a/1 j", "a/1 k"]);
    assert_eq!(names("b%", 9), ["b%_ h"], "a prefix is no pattern");
    let listed = block_on(records.list("a/1", 1)).unwrap().remove(0);
    let shown = block_on(scope.show("j")).unwrap().unwrap();
    assert_eq!(listed.result_bytes, 6);
    assert_eq!((&shown.client, shown.fingerprint.as_str(), shown.result_bytes), (client.id(), "fp", 6));
    assert_eq!((shown.state, shown.runs, shown.version), (RecordState::Done, 1, listed.version));
    let left = shown.keep_left_ms.unwrap();
    assert!((23 * 3_600_000..=24 * 3_600_000 + 1).contains(&left), "{left}");
    let age = wall_ms().abs_diff(shown.written_at_ms);
    assert!(age < 60_000, "written {age} ms ago");
    assert_eq!(block_on(scope.forget("k")).unwrap(), Forgotten::Forgotten);
    assert_eq!(block_on(scope.show("k")).unwrap(), None);
    assert!(!block_on(scope.run("k", &options(), |_| counted(&done, "again"))).unwrap().is_replayed());
    assert_eq!(done.load(Ordering::SeqCst), 5);
}

fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

pub fn wrong_arguments_are_errors_before_anything_is_sent(store: &impl Store) {
    let client = store.connect();
    let run = |scope: &str, key: &str, options: &RunOptions| {
        let error = block_on(client.idempotency(scope).run(key, options, |_| not_done())).unwrap_err();
        assert_eq!(error.code(), "invalid_argument");
        error.to_string()
    };
    assert!(run("", "k", &options()).contains("the scope of idempotent work is empty"));
    assert!(run("s", "", &options()).contains("a UUID that its client made"));
    assert!(run("s", "a\nb", &options()).contains("control character"));
    assert!(run("s", "k", &options().fingerprint("")).contains("use a digest"));
    assert!(run("s", "k", &options().lease(millis(1))).contains("lease is 1ms"));
    assert!(run("s", "k", &options().retention(Retention::For(millis(1)))).contains("retention is 1ms"));
    let error = block_on(client.idempotency("s").issue(millis(1))).unwrap_err();
    assert_eq!(error.code(), "invalid_argument");
    block_on(client.close());
    let error = block_on(client.idempotency("s").run("k", &options(), |_| not_done())).unwrap_err();
    assert_eq!(error.code(), "canceled", "{error}");
}
