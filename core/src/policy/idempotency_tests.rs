use super::*;

fn owner() -> OwnerToken {
    OwnerToken::random().unwrap()
}

fn seen(state: State, owner: OwnerToken) -> Seen {
    let record = Record {
        state,
        owner,
        fence: Some(7),
        fingerprint: "f".into(),
        client: ClientId::parse("web-1:42:0a0b0c0d").unwrap(),
        runs: 2,
        lease: Duration::from_secs(15),
        renewals: 0,
        result: b"ok".to_vec(),
    };
    let left = Duration::from_secs(5);
    Seen { record, version: 9, lease_left: left, keep_left: Some(left), written_ms: 1, result_bytes: 2 }
}

#[test]
fn an_absent_key_is_claimed_and_a_live_claim_is_not() {
    let (me, other) = (owner(), owner());
    assert_eq!(decide(None, me, "f"), Decision::Claim { expected: None, runs: 1 });
    let live = seen(State::Claimed, other);
    let Decision::InProgress { left, client } = decide(Some(&live), me, "f") else { panic!("it is live") };
    assert_eq!((left, client.host()), (Duration::from_secs(5), "web-1"));
    assert_eq!(decide(Some(&live), other, "f"), Decision::Mine { fence: 7 }, "a lost answer is asked again");
}

#[test]
fn a_claim_ends_with_its_lease_and_not_with_the_retention() {
    let mut dead = seen(State::Claimed, owner());
    dead.lease_left = Duration::ZERO;
    dead.keep_left = None;
    assert_eq!(decide(Some(&dead), owner(), "f"), Decision::Claim { expected: Some(9), runs: 3 });
    assert_eq!(
        decide(Some(&dead), owner(), "other"),
        Decision::PayloadMismatch,
        "its work may have been done"
    );
}

#[test]
fn unfinished_steps_are_continued_and_never_done_as_a_whole() {
    let me = owner();
    let mut steps = seen(State::InSteps, owner());
    let busy = |decision| matches!(decision, Decision::InProgress { .. });
    assert!(busy(decide(Some(&steps), me, "f")) && busy(decide_in_steps(Some(&steps), me, "f")));
    assert_eq!(decide_in_steps(Some(&steps), me, "other"), Decision::PayloadMismatch);
    steps.lease_left = Duration::ZERO;
    assert_eq!(decide(Some(&steps), me, "f"), Decision::InSteps, "all of it would repeat finished steps");
    assert_eq!(decide_in_steps(Some(&steps), me, "f"), Decision::Claim { expected: Some(9), runs: 3 });
    for left in [Duration::ZERO, Duration::from_secs(5)] {
        let mine = Seen { lease_left: left, ..seen(State::InSteps, me) };
        assert_eq!(decide_in_steps(Some(&mine), me, "f"), Decision::Mine { fence: 7 });
        assert_eq!(holding(Some(&mine), me, 7), Holding::Mine { version: 9 });
    }
    // What is not in steps is decided as always.
    assert_eq!(decide_in_steps(None, me, "f"), Decision::Claim { expected: None, runs: 1 });
    let done = seen(State::Done, owner());
    assert_eq!(decide_in_steps(Some(&done), me, "f"), Decision::Replay(Answer::Done(b"ok".to_vec())));
    steps.keep_left = Some(Duration::ZERO);
    assert_eq!(decide_in_steps(Some(&steps), me, "f"), Decision::Claim { expected: Some(9), runs: 1 });
}

#[test]
fn what_is_stored_is_replayed_until_its_retention_is_over() {
    let me = owner();
    for (state, answer) in [
        (State::Done, Answer::Done(b"ok".to_vec())),
        (State::Failed, Answer::Failed(b"ok".to_vec())),
        (State::TooLarge, Answer::TooLarge),
    ] {
        let mut stored = seen(state, owner());
        assert_eq!(decide(Some(&stored), me, "f"), Decision::Replay(answer.clone()));
        assert_eq!(decide(Some(&stored), me, ""), Decision::PayloadMismatch);
        stored.keep_left = None;
        assert_eq!(decide(Some(&stored), me, "f"), Decision::Replay(answer), "for ever");
        stored.keep_left = Some(Duration::ZERO);
        for fingerprint in ["f", "another"] {
            let again = Decision::Claim { expected: Some(9), runs: 1 };
            assert_eq!(decide(Some(&stored), me, fingerprint), again, "it counts as absent");
        }
    }
}

#[test]
fn only_owner_and_fence_of_the_claim_may_end_it() {
    let me = owner();
    let mut mine = seen(State::Claimed, me);
    assert_eq!(holding(Some(&mine), me, 7), Holding::Mine { version: 9 });
    assert_eq!(holding(Some(&mine), me, 6), Holding::Lost);
    assert_eq!(holding(Some(&mine), owner(), 7), Holding::Lost);
    assert_eq!(holding(None, me, 7), Holding::Lost);
    mine.lease_left = Duration::ZERO;
    assert_eq!(holding(Some(&mine), me, 7), Holding::Mine { version: 9 }, "no other client has claimed it");
    assert_eq!(holding(Some(&seen(State::Done, me)), me, 7), Holding::Ended);
}

#[test]
fn a_token_is_consumed_once() {
    let me = owner();
    let issued = seen(State::Issued, owner());
    let keep = Some(Duration::from_secs(5));
    assert_eq!(consuming(Some(&issued), me), Consuming::First { version: 9, keep });
    assert_eq!(consuming(Some(&seen(State::Consumed, owner())), me), Consuming::Duplicate);
    assert_eq!(consuming(Some(&seen(State::Consumed, me)), me), Consuming::Mine);
    let over = Seen { keep_left: Some(Duration::ZERO), ..issued };
    assert_eq!(consuming(Some(&over), me), Consuming::Unknown);
    assert_eq!(consuming(None, me), Consuming::Unknown);
}

#[test]
fn scopes_and_keys_that_could_meet_are_refused_and_others_are_kept_apart() {
    let long = "x".repeat(300);
    for (scope, key, part) in [
        ("", "k", "the scope of idempotent work is empty"),
        ("s", "", "the key of idempotent work is empty"),
        ("s", "a\u{1f}b", "control character"),
        ("a\u{1f}b", "k", "control character"),
        (long.as_str(), "k", "300 bytes; at most 256"),
        ("s", long.as_str(), "300 bytes; at most 255"),
    ] {
        let error = RecordId::new(Kind::Key, scope, key).unwrap_err();
        assert_eq!(error.code(), "invalid_argument");
        assert!(error.to_string().contains(part), "{error}");
    }
    let id = |kind, scope: &str, key: &str| RecordId::new(kind, scope, key).unwrap();
    let one = id(Kind::Key, "a/b", "c");
    assert_ne!(one.spelled(), id(Kind::Key, "a", "b/c").spelled());
    assert_ne!(one.spelled(), id(Kind::Token, "a/b", "c").spelled());
    assert_eq!(RecordId::parse(&one.spelled()), Some(one));
    assert_eq!(RecordId::parse("x"), None);
}

#[test]
fn retention_has_a_range_and_states_are_read_as_they_are_written() {
    assert!(Retention::For(Duration::from_millis(10)).check().unwrap_err().to_string().contains("retention"));
    assert!(Retention::Forever.check().is_ok() && Retention::For(DEFAULT_RETENTION).check().is_ok());
    for state in State::ALL {
        assert_eq!(State::parse(state.code()), Some(state));
    }
}

#[test]
fn a_fingerprint_is_fnv_1a_of_128_bits() {
    // The published vectors of FNV-1a for no bytes and for "a".
    assert_eq!(fingerprint_of(b""), "6c62272e07bb014262b821756295c58d");
    assert_eq!(fingerprint_of(b"a"), "d228cb696f1a8caf78912b704e4a8964");
}
