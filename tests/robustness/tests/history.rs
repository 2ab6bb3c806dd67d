//! The judge itself is judged: hand-made bad histories are refused, each for its own reason.
#![cfg(unix)]

use polylatch_robustness::history::{History, Rule};
use polylatch_robustness::resource::Write;

/// One worker's words; times are small numbers.
type Life<'a> = (&'a str, &'a str, Option<u64>);

const GOOD: [Life<'_>; 2] = [
    ("one", "entered 0 5 100 400\nleft 0 5 150 151 held 400\nreleased 0 5 160 ok\n", None),
    (
        "two",
        "entered 0 7 155 450\nleft 0 7 200 201 held 450\nreleased 0 7 210 ok\nfailed 0 300 canceled\n",
        None,
    ),
];

fn history(lives: &[Life<'_>], writes: &[(u64, u64, bool)]) -> History {
    let writes = writes.iter().map(|&(token, at, accepted)| Write { lock: 0, token, pid: 1, at, accepted });
    let mut history = History { writes: writes.collect(), ..History::default() };
    for (who, text, killed) in lives {
        history.add(who, text, *killed).expect("well-formed records");
    }
    history
}

#[track_caller]
fn rules(lives: &[Life<'_>], writes: &[(u64, u64, bool)]) -> Vec<Rule> {
    history(lives, writes).check().iter().map(|violation| violation.rule).collect()
}

#[test]
fn a_good_history_is_accepted() {
    assert_eq!(rules(&GOOD, &[(5, 110, true), (5, 120, true), (7, 160, true), (5, 170, false)]), []);
}

#[test]
fn what_ended_in_time_does_not_overlap() {
    let next = ("next", "entered 0 9 300 900\nleft 0 9 310 311 held 900\nreleased 0 9 312 ok\n", None);
    for ended in [
        // Its validity was over, and it was told.
        ("ended", "entered 0 5 100 300\nleft 0 5 500 501 expired 300\nreleased 0 5 502 expired\n", None),
        // It was told of its loss before.
        ("told", "entered 0 5 100 600\nlost 0 5 250 superseded\n", None),
        ("killed", "entered 0 5 100 600\n", Some(290)),
        ("cut off", "entered 0 5 100 300\nleft 0 5 5", None),
        // Its guard was over before it could look at it, and said so.
        ("late", "entered 0 5 305 300\nleft 0 5 306 307 expired 300\nreleased 0 5 308 expired\n", None),
    ] {
        assert_eq!(rules(&[ended, next], &[]), [], "{ended:?}");
    }
}

#[test]
fn two_sections_at_one_time_are_an_overlap() {
    let early = ("early", "entered 0 7 149 450\nleft 0 7 200 201 held 450\nreleased 0 7 210 ok\n", None);
    assert_eq!(rules(&[GOOD[0], early], &[]), [Rule::Overlap]);
    // A killed worker was inside until it was about to be killed.
    let killed = ("killed", "entered 0 5 100 400\n", Some(156));
    assert_eq!(rules(&[killed, GOOD[1]], &[]), [Rule::Overlap]);
    // A long section is not forgotten over a short one in between.
    let long = ("long", "entered 0 5 100 400\nleft 0 5 300 301 held 400\nreleased 0 5 302 ok\n", None);
    let short = ("short", "entered 0 6 110 400\nleft 0 6 115 116 held 400\nreleased 0 6 117 ok\n", None);
    assert_eq!(rules(&[long, short, GOOD[1]], &[]), [Rule::Overlap, Rule::Overlap]);
    // Other locks do not matter.
    let other = ("other", "entered 1 5 100 400\nleft 1 5 300 301 held 400\nreleased 1 5 302 ok\n", None);
    assert_eq!(rules(&[other, GOOD[1]], &[]), []);
}

#[test]
fn a_token_given_twice_is_refused() {
    let twin = ("twin", "entered 0 5 155 450\nleft 0 5 200 201 held 450\nreleased 0 5 210 ok\n", None);
    assert_eq!(rules(&[GOOD[0], twin], &[]), [Rule::TokenTwice]);
}

#[test]
fn tokens_that_shrink_are_refused() {
    let small = ("small", "entered 0 4 155 450\nleft 0 4 200 201 held 450\nreleased 0 4 210 ok\n", None);
    assert_eq!(rules(&[GOOD[0], small], &[]), [Rule::TokenOrder]);
}

#[test]
fn a_loss_that_is_not_told_is_refused() {
    let silent = ("silent", "entered 0 5 100 400\nleft 0 5 400 401 held 400\n", None);
    assert_eq!(rules(&[silent], &[]), [Rule::LossNotTold]);
    let released =
        ("released", "entered 0 5 100 400\nleft 0 5 420 421 expired 400\nreleased 0 5 422 ok\n", None);
    assert_eq!(rules(&[released], &[]), [Rule::LossNotTold]);
}

#[test]
fn an_expiry_told_too_early_is_refused() {
    let early = ("early", "entered 0 5 100 400\nleft 0 5 200 201 expired 400\n", None);
    assert_eq!(rules(&[early], &[]), [Rule::LossTooEarly]);
}

#[test]
fn writes_out_of_order_are_refused() {
    assert_eq!(rules(&GOOD, &[(7, 160, true), (5, 170, true)]), [Rule::WriteOrder]);
}

#[test]
fn a_write_under_a_token_that_nobody_had_is_refused() {
    assert_eq!(rules(&GOOD, &[(6, 160, true)]), [Rule::WriteByNobody]);
}

#[test]
fn a_stale_write_of_a_guard_that_says_it_is_held_is_refused() {
    let inside = ("inside", "entered 0 5 100 120\nleft 0 5 110 111 held 120\nreleased 0 5 112 ok\n", None);
    assert_eq!(rules(&[inside, GOOD[1]], &[(5, 105, false)]), [Rule::RefusedWhileHeld]);
}

#[test]
fn failures_that_no_fault_explains_are_refused() {
    assert_eq!(rules(&[("odd", "failed 0 300 internal\n", None)], &[]), [Rule::Unexplained]);
    let odd = ("odd", "entered 0 5 100 400\nleft 0 5 150 151 held 400\nreleased 0 5 160 internal\n", None);
    assert_eq!(rules(&[odd], &[]), [Rule::Unexplained]);
    let superseded = ("odd", "entered 0 5 100 400\nleft 0 5 150 151 superseded 400\n", None);
    assert_eq!(rules(&[superseded], &[]), [Rule::Unexplained]);
    let broken = ("broken", "entered 0 5 100 400\nleft 0 5 150 151 broken 400\n", None);
    assert_eq!(rules(&[broken], &[]), [Rule::Unexplained]);
}

#[test]
fn words_that_make_no_sense_are_errors() {
    let mut history = History::default();
    assert!(history.add("x", "left 0 5 150 151 held 400\n", None).unwrap_err().contains("never entered"));
    assert!(history.add("x", "slept 0 5\n", None).unwrap_err().contains("no record"));
}
