use super::*;
use crate::blocking::run_interruptible;
use crate::options::ConnectOptions;

fn run<T>(call: impl Future<Output = T>) -> T {
    run_interruptible(call, || Ok::<(), ()>(())).expect("not interrupted")
}

async fn client(store: &str) -> Client {
    Client::connect(ConnectOptions { url: Some(store.into()), ..Default::default() }).await.unwrap()
}

fn mine(begun: Begun) -> Arc<ClaimHandle> {
    match begun {
        Begun::Mine(claim) => claim,
        other => panic!("{other:?}"),
    }
}

fn at_once() -> RunOptions {
    RunOptions { wait: Some(Duration::ZERO), ..RunOptions::default() }
}

#[test]
fn a_result_is_stored_once_and_replayed() {
    run(async {
        let client = client("memory:bridge-idem-first").await;
        let claim = mine(client.begin("s", "k", &at_once()).await.unwrap());
        assert!(claim.check().is_ok() && !claim.remaining().is_zero());
        assert!((claim.fencing_token() > 0) && claim.runs() == 1);
        let meanwhile = client.begin("s", "k", &at_once()).await.unwrap_err();
        assert_eq!(
            (meanwhile.code, meanwhile.retry, meanwhile.effect),
            ("in_progress", "caller_decides", "none")
        );
        let ended = claim.ended();
        claim.complete(b"order 42".to_vec()).await.unwrap();
        assert_eq!(ended.await, None);
        for refused in [claim.complete(Vec::new()).await, claim.fail(Vec::new(), None).await, claim.check()] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.code, "invalid_argument");
            assert!(refused.message.contains(r#""k" in "s" is finished"#), "{refused:?}");
        }
        match client.begin("s", "k", &at_once()).await.unwrap() {
            Begun::Replayed(value) => assert_eq!(value, b"order 42"),
            other => panic!("{other:?}"),
        }
        assert!(client.record_json("s", "k").await.unwrap().unwrap().contains(r#""state":"done""#));
        assert_eq!(client.forget_key("s", "k").await.unwrap(), "forgotten");
        assert_eq!(client.forget_key("s", "k").await.unwrap(), "absent");
    });
}

#[test]
fn a_failure_is_stored_or_frees_its_key() {
    run(async {
        let client = client("memory:bridge-idem-failed").await;
        mine(client.begin("s", "k", &at_once()).await.unwrap())
            .fail(b"no card".to_vec(), None)
            .await
            .unwrap();
        match client.begin("s", "k", &at_once()).await.unwrap() {
            Begun::Failed { failure, answer } => {
                assert_eq!((failure.code, failure.effect, &*answer), ("failed", "none", &b"no card"[..]));
            }
            other => panic!("{other:?}"),
        }
        let free = mine(client.begin("s", "l", &at_once()).await.unwrap());
        free.fail(Vec::new(), Some(OnFailure::Free)).await.unwrap();
        mine(client.begin("s", "l", &at_once()).await.unwrap()).complete(Vec::new()).await.unwrap();
        assert_eq!(on_failure("free"), Ok(OnFailure::Free));
        assert!(on_failure("drop").unwrap_err().message.contains(r#"on_failure is "drop""#));
    });
}

#[test]
fn a_payload_belongs_to_its_key() {
    run(async {
        let client = client("memory:bridge-idem-payload").await;
        let of = |payload: &[u8]| RunOptions { payload: Some(payload.to_vec()), ..at_once() };
        mine(client.begin("s", "k", &of(b"a")).await.unwrap()).complete(Vec::new()).await.unwrap();
        let mismatch = client.begin("s", "k", &of(b"b")).await.unwrap_err();
        assert_eq!((mismatch.code, mismatch.retry), ("payload_mismatch", "never"));
        let both = RunOptions { fingerprint: Some("f".into()), ..of(b"a") };
        assert!(client.begin("s", "k", &both).await.unwrap_err().message.contains("give one"));
    });
}

#[test]
fn a_lost_claim_is_reported_and_its_late_answer_is_refused() {
    run(async {
        let client = client("memory:bridge-idem-lost").await;
        // Renewed every 66 ms; what is forgotten is noticed by then.
        let short = RunOptions { lease: Some(Duration::from_millis(200)), ..at_once() };
        let claim = mine(client.begin("s", "k", &short).await.unwrap());
        let forgotten = client.get().await.unwrap().idempotency_records().forget("s", "k", true).await;
        assert_eq!(forgotten.unwrap(), Forgotten::Forgotten);
        assert_eq!(claim.ended().await, Some(LostReason::Superseded));
        assert_eq!(claim.check().unwrap_err().lost_reason, Some("superseded"));
        let late = claim.complete(b"late".to_vec()).await.unwrap_err();
        assert_eq!((late.code, late.retry, late.effect), ("not_recorded", "caller_decides", "maybe"));
    });
}

#[test]
fn an_abandoned_claim_frees_its_key_with_its_lease_only() {
    run(async {
        let client = client("memory:bridge-idem-abandoned").await;
        let short = RunOptions { lease: Some(Duration::from_millis(300)), ..RunOptions::default() };
        for round in 1..=2 {
            let claim = mine(client.begin("s", "k", &short).await.unwrap());
            assert_eq!(claim.runs(), round);
            let ended = claim.ended();
            if round == 1 {
                claim.abandon()
            } else {
                drop(claim)
            }
            assert_eq!(ended.await, None);
            assert_eq!(client.begin("s", "k", &at_once()).await.unwrap_err().code, "in_progress");
        }
    });
}

#[test]
fn a_token_is_consumed_once() {
    run(async {
        let client = client("memory:bridge-idem-token").await;
        let token = client.issue_token("s", Duration::from_secs(60)).await.unwrap();
        assert_eq!(client.consume_token("s", &token).await.unwrap(), "first");
        assert_eq!(client.consume_token("s", &token).await.unwrap(), "duplicate");
        assert_eq!(client.consume_token("other", &token).await.unwrap(), "unknown");
    });
}

#[cfg(unix)]
#[test]
fn a_forked_child_has_lost_what_it_inherited() {
    run(async {
        let client = client("memory:bridge-idem-forked").await;
        let claim = mine(client.begin("s", "k", &at_once()).await.unwrap());
        // SAFETY: the child only asks what is answered at once, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let now = &mut std::task::Context::from_waker(std::task::Waker::noop());
            let right = claim.check().is_err_and(|failure| failure.lost_reason == Some("unverifiable"))
                && claim.remaining().is_zero()
                && claim.ended().as_mut().poll(now) == std::task::Poll::Ready(Some(INHERITED));
            drop(claim);
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(if right { 0 } else { 1 }) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        claim.complete(Vec::new()).await.unwrap();
    });
}

#[test]
fn every_code_of_a_run_is_in_the_table_of_all_languages() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance/errors.json");
    let table: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let error = || polylatch::Error::new(polylatch::ErrorKind::LeaseLost, "taken over");
    let what = || "the key".to_owned();
    let client = run(polylatch::Polylatch::connect("memory:bridge-idem-codes")).unwrap().id().clone();
    let made = [
        RunError::InProgress { what: what(), client, left: Duration::ZERO },
        RunError::PayloadMismatch { what: what() },
        RunError::Failed { answer: Vec::new(), replayed: true },
        RunError::ResultTooLarge { what: what(), value: None },
        RunError::NotRecorded { value: Vec::new(), error: error() },
    ]
    .map(Failure::from);
    let rows = table["idempotency_errors"].as_array().unwrap();
    for failure in &made {
        let row =
            rows.iter().find(|row| row["code"] == failure.code).unwrap_or_else(|| panic!("{failure:?}"));
        assert_eq!(row["retry"], failure.retry);
        assert!(
            row["effects"].as_array().unwrap().iter().any(|effect| effect == failure.effect),
            "{failure:?}"
        );
        assert!(failure.hint.ends_with('.') && failure.lost_reason.is_none());
    }
    assert_eq!(rows.len(), 5);
}
