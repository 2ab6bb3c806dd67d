//! The judge itself is judged: hand-made bad histories are refused, each for its own reason.
#![cfg(unix)]

use std::time::Duration;

use polylatch_robustness::forced::{ForcedEnd, expect_forced_ends};
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
    let write = |&(token, at, accepted): &_| Write { lock: 0, token, pid: 1, at, accepted, alone: true };
    judged(lives, writes.iter().map(write).collect())
}

fn judged(lives: &[Life<'_>], writes: Vec<Write>) -> History {
    let mut history = History { writes, ..History::default() };
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

/// A store that lost data takes a lease away before its end: no other client may enter while the guard says that it is held.
#[test]
fn a_loss_that_is_told_early_ends_the_section_when_the_guard_was_last_held() {
    let next = ("next", "entered 0 9 300 900\nleft 0 9 310 311 held 900\nreleased 0 9 312 ok\n", None);
    for (last_held, broken) in [(299, vec![]), (305, vec![Rule::Overlap])] {
        let told = format!(
            "entered 0 5 100 600\nlost 0 5 {last_held} superseded\nleft 0 5 500 501 superseded 600\n\
             released 0 5 502 superseded\n"
        );
        let mut history = history(&[("told", &told, None), next], &[]);
        assert_eq!(history.expect_early_news().len(), 1);
        let found: Vec<_> = history.check().iter().map(|violation| violation.rule).collect();
        assert_eq!(found, broken, "last held at {last_held}");
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
fn what_was_ended_by_force_ends_then_and_is_told_within_a_lease() {
    let next =
        ("next", "entered 0 9 300 900 mutex 90\nleft 0 9 310 311 held 900\nreleased 0 9 312 ok\n", None);
    let ended = |entered: u64, asked: u64, told: u64| {
        format!(
            "entered 0 5 {entered} 950 mutex {asked}\nleft 0 5 {told} {told} session_ended 950\nreleased 0 5 {told} session_ended\n"
        )
    };
    let judge = |text: &str, end: (u64, u64)| {
        let mut history = history(&[("ended", text, None), next], &[(5, 110, true), (9, 305, true)]);
        let end = ForcedEnd { pid: 1, before: end.0, after: end.1 };
        let told = expect_forced_ends(&mut history, &[end], Duration::from_nanos(100));
        (told, history.check().iter().map(|violation| violation.rule).collect::<Vec<_>>())
    };
    // It knows a while after the next one has entered.
    assert_eq!(judge(&ended(100, 90, 350), (290, 295)), (1, vec![]));
    // It had ended before the lock was free.
    assert_eq!(judge(&ended(100, 90, 350), (302, 305)).1, [Rule::Overlap]);
    // More than a lease later.
    assert_eq!(
        judge(&ended(100, 90, 450), (290, 295)).1,
        [Rule::Overlap, Rule::Unexplained, Rule::Unexplained]
    );
    // It was asked for behind the end: a node of the ended session was taken for its own.
    assert_eq!(
        judge(&ended(297, 296, 350), (290, 295)).1,
        [Rule::Overlap, Rule::Unexplained, Rule::Unexplained]
    );
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
fn sections_that_may_share_are_accepted() {
    let readers = [
        ("one", "entered 0 5 100 400 read 90\nleft 0 5 300 301 held 400\nreleased 0 5 310 ok\n", None),
        // Granted second, looked at first.
        ("two", "entered 0 4 110 400 read 95\nleft 0 4 300 301 held 400\nreleased 0 4 310 ok\n", None),
        ("writer", "entered 0 9 300 600 write 120\nleft 0 9 320 321 held 600\nreleased 0 9 330 ok\n", None),
    ];
    assert_eq!(rules(&readers, &[]), []);
    let permits = [
        ("one", "entered 0 5 100 400 permits:2/5 90\nleft 0 5 300 301 held 400\n", None),
        ("two", "entered 0 6 110 400 permits:3/5 95\nleft 0 6 200 201 held 400\n", None),
        ("three", "entered 0 7 200 600 permits:3/5 120\nleft 0 7 320 321 held 600\n", None),
    ];
    assert_eq!(rules(&permits, &[]), []);
    // Stepped down from writing to reading: the token stays.
    let step = "entered 0 5 100 400 write 90\nleft 0 5 150 151 held 400\nreleased 0 5 160 converted\n\
                entered 0 5 165 400 read 151\nleft 0 5 200 201 held 400\nreleased 0 5 210 ok\n";
    let reader = ("reader", "entered 0 6 170 400 read 95\nleft 0 6 180 181 held 400\n", None);
    assert_eq!(rules(&[("step", step, None), reader], &[]), []);
}

#[test]
fn a_reader_beside_a_writer_is_an_overlap() {
    let reader = ("reader", "entered 0 5 100 400 read 90\nleft 0 5 300 301 held 400\n", None);
    let writer = ("writer", "entered 0 6 200 400 write 90\nleft 0 6 250 251 held 400\n", None);
    let late = ("late", "entered 0 7 220 400 read 90\nleft 0 7 300 301 held 400\n", None);
    assert_eq!(rules(&[reader, writer], &[]), [Rule::Overlap]);
    assert_eq!(rules(&[writer, late], &[]), [Rule::Overlap]);
    // The writer that a short reader met is not forgotten over a longer one.
    let long = ("long", "entered 0 4 90 400 read 80\nleft 0 4 190 191 held 400\n", None);
    assert_eq!(rules(&[long, writer, late], &[]), [Rule::Overlap]);
    // A killed reader was inside until it was about to be killed.
    let killed = ("killed", "entered 0 5 100 400 read 90\n", Some(210));
    assert_eq!(rules(&[killed, writer], &[]), [Rule::Overlap]);
    let killed = ("killed", "entered 0 5 100 400 read 90\n", Some(199));
    assert_eq!(rules(&[killed, writer], &[]), []);
}

#[test]
fn more_permits_than_there_are_are_refused() {
    let permits = |token, at, count| {
        let left = at + 100;
        format!("entered 0 {token} {at} 900 permits:{count}/5 90\nleft 0 {token} {left} {left} held 900\n")
    };
    let (one, two, three) = (permits(5, 100, 2), permits(6, 110, 2), permits(7, 120, 2));
    let lives = [("one", one.as_str(), None), ("two", two.as_str(), None), ("three", three.as_str(), None)];
    assert_eq!(rules(&lives, &[]), [Rule::TooManyPermits], "no two of them alone are too many");
    assert_eq!(rules(&lives[..2], &[]), []);
}

#[test]
fn two_kinds_of_one_lock_at_one_time_are_refused() {
    let reader = ("reader", "entered 0 5 100 400 read 90\nleft 0 5 300 301 held 400\n", None);
    for other in ["", " permits:1/5 90"] {
        let other = format!("entered 0 6 200 400{other}\nleft 0 6 250 251 held 400\n");
        assert_eq!(rules(&[reader, ("other", &other, None)], &[]), [Rule::KindsMixed]);
    }
    let three = ("three", "entered 0 5 100 400 permits:1/3 90\nleft 0 5 300 301 held 400\n", None);
    let four = ("four", "entered 0 6 200 400 permits:1/4 90\nleft 0 6 250 251 held 400\n", None);
    assert_eq!(rules(&[three, four], &[]), [Rule::KindsMixed]);
}

#[test]
fn tokens_of_shared_sections_that_shrink_are_refused() {
    let first = ("first", "entered 0 5 100 400 read 90\nleft 0 5 300 301 held 400\n", None);
    let begun_after = ("after", "entered 0 4 120 400 read 101\nleft 0 4 300 301 held 400\n", None);
    assert_eq!(rules(&[first, begun_after], &[]), [Rule::TokenOrder]);
    // Between a writer and a reader the order of entry decides, whenever they began.
    let writer = ("writer", "entered 0 4 310 400 write 90\nleft 0 4 320 321 held 400\n", None);
    assert_eq!(rules(&[first, writer], &[]), [Rule::TokenOrder]);
    let old = ("old", "entered 0 9 50 400 write 40\nleft 0 9 60 61 held 400\n", None);
    assert_eq!(rules(&[old, first], &[]), [Rule::TokenOrder]);
    let twin = ("twin", "entered 0 5 120 400 read 95\nleft 0 5 300 301 held 400\n", None);
    assert_eq!(rules(&[first, twin], &[]), [Rule::TokenTwice]);
}

#[test]
fn a_loss_on_the_way_from_one_mode_to_another_is_told() {
    let silent = "entered 0 5 100 400 write 90\nleft 0 5 420 421 expired 400\nreleased 0 5 430 converted\n";
    assert_eq!(rules(&[("silent", silent, None)], &[]), [Rule::LossNotTold]);
}

#[test]
fn shared_use_may_be_older_than_other_shared_use_but_not_than_a_write() {
    let of = |token, at, alone| Write { lock: 0, token, pid: 1, at, accepted: true, alone };
    let (good, read) = ([GOOD[0], GOOD[1]], |token, at| of(token, at, false));
    let found = |writes| judged(&good, writes).check().iter().map(|found| found.rule).collect::<Vec<_>>();
    assert_eq!(found(vec![read(7, 160), read(5, 170)]), []);
    assert_eq!(found(vec![of(7, 160, true), read(5, 170)]), [Rule::WriteOrder]);
    assert_eq!(found(vec![read(7, 160), of(5, 170, true)]), [Rule::WriteOrder]);
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
    // Ended by force: before that the write is refused for another reason.
    let ended = |at| (inside.0, inside.1, Some(at));
    assert_eq!(rules(&[ended(104), GOOD[1]], &[(5, 105, false)]), []);
    assert_eq!(rules(&[ended(106), GOOD[1]], &[(5, 105, false)]), [Rule::RefusedWhileHeld]);
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
