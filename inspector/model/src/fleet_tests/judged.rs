//! What is found over time: after how many snapshots, and what never is.

use polylatch::inspect::{Trouble, TroubleKind};

use super::*;
use crate::fixture::{HOST, semaphore};

#[test]
fn a_condition_is_shown_only_after_it_stood_and_a_flapping_one_never() {
    let mut scene = Scene::new();
    scene.look(0, vec![foreign()]);
    assert_eq!(scene.rules("theirs"), [Rule::Legit]);
    scene.look(1_000, vec![foreign()]);
    assert_eq!(scene.rules("theirs"), [Rule::Legit]);
    scene.look(1_000, vec![foreign()]);
    assert_eq!(scene.rules("theirs"), [Rule::NoExpiry]);
    assert_eq!(scene.row("theirs").state, LockState::NoExpiry);
    assert_eq!(scene.fleet.attention(scene.now_ms)[0].since_ms, 0);

    let mut scene = Scene::new();
    for _ in 0..20 {
        for locks in [vec![foreign()], vec![foreign()], vec![]] {
            scene.look(900, locks);
            let attention = scene.fleet.attention(scene.now_ms);
            assert!(attention.iter().all(|found| found.finding.rule == Rule::Clock), "{attention:?}");
        }
    }
}

#[test]
fn a_late_beat_that_came_after_all_was_never_an_alarm() {
    let [a] = clients();
    let mut scene = Scene::new();
    for ago in [1_000, 2_000, 7_600, 100, 7_600, 200] {
        let mut holder = held(a, 60_000);
        (holder.renewed_ago_ms, holder.renewals) = (Some(ago), Some(9));
        holder.remaining_ms = Some(15_000 - ago);
        scene.look(1_000, vec![lock("x", vec![holder], vec![])]);
        assert_eq!(scene.rules("x"), [Rule::Legit], "{ago}");
    }
}

#[test]
fn a_deadlock_through_two_stores_is_explained_on_both_sides_and_told_once() {
    let [a, b, c, d] = clients();
    let mut scene = Scene::new();
    let reading = |locks| {
        let mut reading = snapshot(locks);
        for client in &mut reading.clients {
            client.pid = if client.id == *a || client.id == *c { 100 } else { 200 };
        }
        reading
    };
    for after in [0, 1_000, 1_000] {
        let waits = 4_000 + after;
        scene.show(
            "one",
            after,
            reading(vec![lock("orders", vec![held(a, 9_000)], vec![waiting(b, waits)])]),
        );
        scene.show("two", 0, reading(vec![lock("stock", vec![held(d, 5_000)], vec![waiting(c, waits)])]));
    }
    assert_eq!(scene.rules("orders")[0], Rule::MayDeadlock);
    assert_eq!(scene.row("orders").state, LockState::MayDeadlock);
    let attention = scene.fleet.attention(scene.now_ms);
    assert_eq!(attention.len(), 1, "{attention:?}");
    let finding = &attention[0].finding;
    assert!(finding.sentence.contains("waits for orders in one, held by"), "{}", finding.sentence);
    assert!(finding.next.iter().all(|next| matches!(next, Next::Do(_))), "{finding:?}");
    assert_eq!(scene.fleet.summary(scene.now_ms).may_deadlock, 2);
    let text = scene.fleet.graph().text();
    assert!(text.starts_with("Possible deadlock 1, unchanged for 5.0 s:"), "{text}");
    // One side lets go: nothing is left of it on the other.
    scene.show("two", 1_000, reading(vec![]));
    assert!(!scene.rules("orders").contains(&Rule::MayDeadlock));
}

#[test]
fn far_longer_than_usual_is_told_and_the_usual_is_not() {
    let [a, b] = clients();
    // `idle`: how long ago there was no caller in it, as the last two readings say.
    let run = |held_ms: u64, idle: [Option<u64>; 2]| {
        let mut scene = Scene::new();
        scene.every_ms = 10_000;
        let mut at = 1_000_000;
        scene.look(0, vec![]);
        for token in 1..=9 {
            at += 1_000;
            scene.look(1_000, vec![lock("x", vec![granted(a, token, at, at)], vec![])]);
            at += 5_000;
            scene.look(5_000, vec![lock("x", vec![], vec![])]);
        }
        for idle_ago_ms in idle {
            at += 6_000;
            let mut holder = granted(b, 99, at - held_ms, at);
            (holder.renewals, holder.renewed_ago_ms, holder.remaining_ms) =
                (Some(50), Some(100), Some(14_900));
            holder.idle_ago_ms = idle_ago_ms;
            scene.look(6_000, vec![lock("x", vec![holder], vec![])]);
        }
        scene.fleet.explain(&key("x")).remove(0)
    };
    let finding = run(40_000, [None; 2]);
    assert_eq!((finding.rule, finding.severity), (Rule::ZombieRenew, Severity::Warning));
    assert!(finding.sentence.contains("has held it for 40.0 s; the longest of the holds before was 5.0 s"));
    assert_eq!(run(20_000, [None; 2]).rule, Rule::Legit);
    // Kept between callers: the same after one has come who stays.
    let kept = run(40_000, [Some(2_000); 2]);
    assert_eq!(kept.rule, Rule::Legit);
    assert!(kept.sentence.contains("kept between callers (none was in 2.0 s ago)"), "{}", kept.sentence);
    assert_eq!(run(40_000, [Some(2_000), None]).rule, Rule::Legit);
}

#[test]
fn who_is_passed_over_again_and_again_starves_and_who_only_waits_does_not() {
    let [a, b, c] = clients();
    let run = |barging: bool| {
        let mut scene = Scene::new();
        let mut at = 1_000_000;
        for token in 1..=7 {
            at += 1_000;
            let holder = if barging { granted(a, token, at, at) } else { granted(a, 1, 1_001_000, at) };
            scene.look(1_000, vec![lock("x", vec![holder], vec![waiting(b, at - 999_000), waiting(c, 10)])]);
        }
        scene.fleet.explain(&key("x")).remove(0)
    };
    let finding = run(true);
    assert_eq!(finding.rule, Rule::Starved);
    assert!(finding.sentence.contains("was passed over 6 times"), "{}", finding.sentence);
    assert_eq!(run(false).rule, Rule::Legit);
}

#[test]
fn a_token_that_falls_back_is_told_and_growing_ones_are_not() {
    let [a, b] = clients();
    let run = |second: u64| {
        let mut scene = Scene::new();
        let start = 1_000_000;
        scene.look(0, vec![lock("x", vec![granted(a, 50, start, start)], vec![])]);
        let next = granted(b, second, start + 500, start + 1_000);
        scene.look(1_000, vec![lock("x", vec![next], vec![])]);
        scene.rules("x")
    };
    assert_eq!(run(3), [Rule::TokenFellBack]);
    assert_eq!(run(51), [Rule::Legit]);
}

#[test]
fn beats_that_come_late_every_time_are_told() {
    let [a] = clients();
    let run = |gap_ms: u64| {
        let mut scene = Scene::new();
        let start = 1_000_000;
        for beat in 0..6 {
            let now = start + beat * gap_ms;
            let mut holder = granted(a, 1, start, now);
            (holder.renewals, holder.remaining_ms) = (Some(beat as u32), Some(15_000));
            holder.renewed_ago_ms = (beat > 0).then_some(0);
            scene.look(if beat == 0 { 0 } else { gap_ms }, vec![lock("x", vec![holder], vec![])]);
        }
        scene.rules("x")
    };
    assert_eq!(run(9_500), [Rule::ShortLease]);
    assert_eq!(run(5_000), [Rule::Legit]);
}

#[test]
fn a_lock_delay_is_no_contention() {
    let mut scene = Scene::new();
    let mut delayed = lock("x", vec![], vec![]);
    delayed.details.push(polylatch::inspect::Detail::new("lock-delay", "9 s left"));
    scene.look(0, vec![delayed]);
    assert_eq!((scene.row("x").state, scene.rules("x")), (LockState::LockDelay, vec![Rule::LockDelay]));
    scene.look(1_000, vec![lock("x", vec![], vec![])]);
    assert_eq!(scene.rules("x"), [Rule::Free]);
}

#[test]
fn a_vote_that_is_being_taken_is_no_split_and_one_that_stays_is() {
    let [a, b] = clients();
    let vote = |node: &str, client: Option<&ClientId>| {
        with(polylatch::inspect::VoteView::new(node), |vote| {
            vote.reached = true;
            vote.owner_digest = client.map(|id| format!("owner-{id}"));
            vote.client = client.cloned();
            vote.remaining_ms = client.map(|_| 2_000);
        })
    };
    let split = || {
        let votes = vec![vote("n1:1", Some(a)), vote("n2:2", Some(b)), vote("n3:3", None)];
        let mut lock = with(lock("x", vec![], vec![]), |lock| lock.votes = votes);
        lock.details.push(polylatch::inspect::Detail::new("key", "polylatch:{x}:lock"));
        lock
    };
    let mut scene = Scene::new();
    for flicker in 0..10 {
        scene.look(900, vec![if flicker % 2 == 0 { split() } else { lock("x", vec![held(a, 1)], vec![]) }]);
        assert!(!scene.rules("x").contains(&Rule::SplitVote));
    }
    for _ in 0..3 {
        scene.look(1_000, vec![split()]);
    }
    assert_eq!(scene.rules("x"), [Rule::SplitVote]);
    assert_eq!(scene.fleet.summary(scene.now_ms).attention, 1);

    let mut reading = snapshot(vec![split()]);
    reading.backend = "redlock".into();
    scene.show("one", 1_000, reading);
    let texts: Vec<String> =
        commands(&scene.fleet, &key("x")).into_iter().map(|command| command.text).collect();
    assert_eq!(texts[1], "redis-cli -u redis://n1:1 GET 'polylatch:{x}:lock'");
    assert_eq!(texts.len(), 4, "{texts:?}");
}

#[test]
fn a_clock_that_is_off_is_told_when_it_stays_so() {
    let mut scene = Scene::new();
    for _ in 0..12 {
        scene.look(1_000, vec![]);
    }
    // The scene's stores are far ahead of its viewer.
    let attention = scene.fleet.attention(scene.now_ms);
    assert_eq!(attention[0].finding.rule, Rule::Clock);
    assert!(attention[0].finding.sentence.contains("ahead of"), "{attention:?}");
}

/// What is found while a client with a session says who it is for `lives_ms`, and then no more. Its clock is
/// `behind_ms` of the time behind; it is looked at for two minutes.
fn with_a_session(lives_ms: u64, behind_ms: fn(u64) -> u64) -> Vec<Vec<Rule>> {
    let [a] = clients();
    let mut scene = Scene::new();
    (0..120_000)
        .step_by(1_000)
        .map(|now_ms| {
            let mut holder = with(held(a, now_ms), |holder| holder.remaining_ms = None);
            for (name, value) in [("session", "5f2c"), ("session TTL", "60s")] {
                holder.details.push(polylatch::inspect::Detail::new(name, value));
            }
            let mut reading = snapshot(vec![lock("x", vec![holder], vec![])]);
            let latest_ms = now_ms.min(lives_ms) / 15_000 * 15_000;
            let seen_ago_ms = behind_ms(now_ms) + now_ms - latest_ms;
            reading.clients.iter_mut().for_each(|client| client.seen_ago_ms = seen_ago_ms);
            scene.show("one", 1_000, reading);
            scene.rules("x")
        })
        .collect()
}

#[test]
fn a_client_whose_session_lives_on_without_a_sign_of_life_is_told() {
    for behind_ms in [|_| 0, |_| 300_000] {
        let found = with_a_session(40_000, behind_ms);
        // The latest sign came after 30 s.
        let first = found.iter().position(|rules| *rules == [Rule::RenewalsStopped]);
        assert!(matches!(first, Some(65..=70)), "{first:?}");
        assert!(found[..65].iter().all(|rules| *rules == [Rule::Legit]), "{found:?}");
    }
}

#[test]
fn a_client_that_gives_signs_of_life_is_not_suspected_whatever_its_clock_says() {
    let corrected = |now_ms| if now_ms < 20_000 { 0 } else { 300_000 };
    for behind_ms in [|_| 0, |_| 300_000, corrected] {
        let found = with_a_session(u64::MAX, behind_ms);
        assert!(found.iter().all(|rules| *rules == [Rule::Legit]), "{found:?}");
    }
}

#[test]
fn a_break_aims_at_the_holder_that_the_finding_is_about() {
    let [a, b, c] = clients();
    let mut scene = Scene::new();
    let stopped = Process::Present { stopped: true, started_at_ms: Some(500_000) };
    scene.local.processes.insert(300, stopped);
    scene.local.host = HOST.into();
    let start = 1_000_000;
    let holders = vec![
        granted(a, 7, start - 900, start),
        granted(b, 8, start - 800, start),
        granted(c, 9, start - 700, start),
    ];
    let permits = || semaphore(lock("x", holders.clone(), vec![]), 3, &[1, 1, 1], &[]);
    scene.look(0, vec![permits()]);
    scene.look(1_000, vec![permits()]);
    assert_eq!(scene.rules("x"), [Rule::Stopped]);
    assert_eq!(scene.fleet.lease_to_break(&key("x")), Some(FencingToken::new(9)));
}

#[test]
fn of_a_store_that_is_not_read_no_old_verdict_is_told() {
    let [a] = clients();
    let mut scene = Scene::new();
    let mut overdue = held(a, 12_000);
    overdue.remaining_ms = Some(3_000);
    for _ in 0..2 {
        scene.look(1_000, vec![lock("x", vec![overdue.clone()], vec![])]);
    }
    assert_eq!(scene.rules("x"), [Rule::RenewalsStopped]);
    assert_eq!(scene.fleet.summary(scene.now_ms).attention, 1);
    scene.fail(3_000);
    scene.fail(3_000);
    let told = scene.fleet.explain_now(&key("x"), scene.now_ms);
    assert_eq!((told.len(), told[0].rule), (1, Rule::Backend));
    assert!(
        told[0].sentence.contains("Not known since") && told[0].sentence.contains("web-1:100"),
        "{told:?}"
    );
    assert_eq!(scene.fleet.summary(scene.now_ms).attention, 0, "what was found then may not be so now");
    let rules: Vec<_> =
        scene.fleet.attention(scene.now_ms).iter().map(|attention| attention.finding.rule).collect();
    assert_eq!(rules, [Rule::Backend], "the connection, not its locks");
}

#[test]
fn a_store_that_does_not_work_is_told_once_and_is_not_live() {
    let [a] = clients();
    let mut scene = Scene::new();
    let mut reading =
        snapshot(vec![lock("x", vec![held(a, 10)], vec![]), lock("y", vec![held(a, 10)], vec![])]);
    scene.show("one", 0, reading.clone());
    assert_eq!(scene.fleet.stores()[0].phase(scene.now_ms), Phase::Live);
    let detail = "READONLY You can't write against a read only replica.";
    reading.troubles.push(Trouble::new(TroubleKind::ReadOnly, detail));
    scene.show("one", 1_000, reading);
    assert!(matches!(scene.fleet.stores()[0].phase(scene.now_ms), Phase::Unfit { word: "READ-ONLY", .. }));
    let told = scene.fleet.attention(scene.now_ms);
    assert_eq!((told.len(), told[0].finding.rule), (1, Rule::WritesRefused));
    assert!(told[0].finding.sentence.contains("refuses writes (READONLY"), "{told:?}");
    assert_eq!(scene.rules("x"), [Rule::WritesRefused]);
}

#[test]
fn a_node_is_down_only_once_the_same_one_was_silent_all_the_time() {
    let silent = |node: &str| {
        let mut reading = snapshot(vec![]);
        let silent = Trouble::new(TroubleKind::NodeSilent, "timed out");
        reading.troubles.push(with(silent, |trouble| trouble.node = Some(node.to_owned())));
        reading
    };
    let down = |scene: &Scene| {
        let told = scene.fleet.attention(scene.now_ms);
        told.into_iter().find(|told| told.finding.rule == Rule::NodeDown).map(|told| told.since_ms)
    };
    let mut scene = Scene::new();
    for round in 0..20 {
        scene.show("one", 1_000, silent(["a", "b", "c"][round % 3]));
        assert_eq!(down(&scene), None, "busy nodes that are late in turn");
    }
    let since_ms = scene.now_ms + 1_000;
    for _ in 0..3 {
        scene.show("one", 1_000, silent("a"));
    }
    assert_eq!(down(&scene), Some(since_ms));
}

#[test]
fn what_is_said_before_a_finding_has_lasted_is_so() {
    let [a, b] = clients();
    let mut scene = Scene::new();
    // A waiter beside a free lock is a finding only after a while.
    scene.look(0, vec![lock("x", vec![], vec![waiting(a, 300)])]);
    assert_eq!(scene.rules("x"), [Rule::Free]);
    let told = scene.fleet.explain(&key("x")).remove(0).sentence;
    assert_eq!(
        told,
        "Free, and web-1 pid 100 (worker) has waited for 0.3 s: the lock is between two holders."
    );
    // So is a node that does not answer; until then it is not known what it would say.
    let mut reading = snapshot(vec![lock("x", vec![held(b, 10)], vec![])]);
    let silent = Trouble::new(TroubleKind::NodeSilent, "no answer");
    reading.troubles.push(with(silent, |trouble| trouble.node = Some("n3".into())));
    scene.show("one", 1_000, reading);
    assert_eq!(scene.rules("x"), [Rule::Legit]);
    assert!(
        !scene.fleet.all_nodes_answered(&ConnectionId::new("one")),
        "so the window has no NOTHING FOUND for it"
    );
    let told = scene.fleet.explain(&key("x")).remove(0).sentence;
    assert!(
        told.ends_with("Not all is known yet: no answer from n3. The other nodes show nothing wrong."),
        "{told}"
    );
}
