use polylatch::ClientId;

use super::*;
use crate::NoHostFacts;
use crate::fixture::{HOST, Host, clients, with};

const NOW_MS: u64 = 1_700_000_000_000;

/// A claim of the first client of `HOST` (process 100) that began and was renewed so long ago.
fn running(began_ago_ms: u64, renewed_ago_ms: u64) -> RecordView {
    let [client] = clients();
    with(RecordView::new("orders/anna", "9f1c", RecordState::Running, client.clone()), |record| {
        record.fence = (NOW_MS - began_ago_ms) * 1000;
        record.claimed_at_ms = NOW_MS - began_ago_ms;
        record.renewals = 1;
        record.lease_ms = 15_000;
        record.lease_left_ms = 15_000 - renewed_ago_ms;
        record.keep_left_ms = Some(86_400_000);
        record.written_at_ms = NOW_MS - renewed_ago_ms;
        record.version = 9;
    })
}

/// A host of which this is known of process 100.
fn host((pid, process): (u32, Process)) -> Host {
    Host([(pid, process)].into(), Default::default())
}

fn done(took_ms: u64, runs: u32) -> RecordView {
    with(running(took_ms + 1_000, 1_000), |record| {
        record.key = "d".into();
        record.state = RecordState::Done;
        record.runs = runs;
        record.lease_left_ms = 0;
    })
}

fn judged(record: &RecordView, others: &[RecordView], facts: &dyn HostFacts) -> Option<(Rule, Severity)> {
    let records = Records::new(std::iter::once(record.clone()).chain(others.to_vec()).collect(), facts);
    records.judge(record)
}

#[test]
fn a_claim_that_is_renewed_and_work_that_is_done_once_are_no_findings() {
    let alive = Host::default();
    for facts in [&alive as &dyn HostFacts, &NoHostFacts] {
        assert_eq!(
            judged(&running(600_000, 4_000), &[], facts),
            None,
            "long, and what is usual is not known"
        );
        assert_eq!(judged(&running(29_000, 4_000), &[done(10, 1)], facts), None, "not long enough");
        assert_eq!(judged(&running(60_000, 4_000), &[done(13_000, 1)], facts), None, "not far beyond");
        assert_eq!(judged(&done(5_000, 1), &[], facts), None);
    }
}

#[test]
fn a_claim_whose_lease_ended_without_an_answer_is_a_warning_wherever_its_process_is() {
    let abandoned = with(running(60_000, 15_000), |record| {
        (record.state, record.lease_left_ms) = (RecordState::Abandoned, 0);
    });
    for (facts, said) in [
        (&Host::default() as &dyn HostFacts, "A process of that number is here"),
        (&host((100, Process::Gone)), "Its process is gone."),
        (&NoHostFacts, "not known here"),
    ] {
        assert_eq!(judged(&abandoned, &[], facts), Some((Rule::ClaimAbandoned, Severity::Warning)));
        let records = Records::new(vec![abandoned.clone()], facts);
        let finding = records.finding(&abandoned, "polylatch", NOW_MS).unwrap();
        assert!(finding.sentence.contains(said) && finding.sentence.contains("does it again"), "{finding:?}");
    }
}

#[test]
fn a_process_that_is_gone_or_stopped_is_a_warning_once_its_renewal_is_late() {
    let gone = host((100, Process::Gone));
    let stopped = host((100, Process::Present { stopped: true, started_at_ms: None }));
    for (facts, rule) in [(&gone, Rule::HolderGone), (&stopped, Rule::Stopped)] {
        let fresh = judged(&running(60_000, 1_000), &[], facts);
        assert_eq!(fresh, Some((rule, Severity::Notice)), "the number may be of another namespace");
        assert_eq!(judged(&running(60_000, 9_000), &[], facts), Some((rule, Severity::Warning)));
    }
    let elsewhere = with(running(60_000, 9_000), |record| {
        record.client = ClientId::parse("web-2:100:0a0b0c0d").unwrap();
    });
    assert_ne!(HOST, "web-2");
    assert_eq!(judged(&elsewhere, &[], &gone), Some((Rule::LateRenewal, Severity::Notice)));
    let silent = with(elsewhere, |record| record.lease_left_ms = 3_000);
    assert_eq!(judged(&silent, &[], &gone), Some((Rule::RenewalsStopped, Severity::Warning)));
    let records = Records::new(vec![silent.clone()], &gone);
    let told = records.told(&silent, NOW_MS).join(" ");
    assert!(told.contains("whether its process lives is not known here"), "{told}");
}

#[test]
fn work_far_beyond_the_longest_stored_run_of_its_operation_is_a_warning() {
    let long = running(60_000, 4_000);
    let other = with(done(2_000, 1), |record| record.scope = "orders/bert".into());
    let found = judged(&long, std::slice::from_ref(&other), &NoHostFacts);
    assert_eq!(found, Some((Rule::ClaimLong, Severity::Warning)), "another caller's run of it counts");
    let of_another = with(other.clone(), |record| record.scope = "mail".into());
    assert_eq!(judged(&long, &[of_another], &NoHostFacts), None);
    let records = Records::new(vec![long.clone(), other], &NoHostFacts);
    let finding = records.finding(&long, "polylatch", NOW_MS).unwrap();
    assert!(
        finding.sentence.contains("for 1 min 0 s") && finding.sentence.contains("took 2.0 s"),
        "{finding:?}"
    );
    let forget = Next::Run("polylatch idem forget --even-if-running -- orders/anna 9f1c".into());
    assert_eq!(finding.next[1], forget);
}

#[test]
fn what_may_have_been_done_twice_and_what_cannot_be_repeated_are_notices() {
    assert_eq!(judged(&done(10, 2), &[], &NoHostFacts), Some((Rule::WorkRepeated, Severity::Notice)));
    let large = with(done(10, 1), |record| record.state = RecordState::TooLarge);
    assert_eq!(judged(&large, &[], &NoHostFacts), Some((Rule::ResultTooLarge, Severity::Notice)));
}

#[test]
fn hostile_names_are_neither_shown_nor_put_into_commands() {
    let record = with(running(60_000, 12_000), |record| record.key = "a\u{202e}b".into());
    let gone = host((100, Process::Gone));
    let records = Records::new(vec![record.clone()], &gone);
    let finding = records.finding(&record, "polylatch", NOW_MS).unwrap();
    assert!(!finding.next.iter().any(|next| matches!(next, Next::Run(_))), "{finding:?}");
    assert!(!records.told(&record, NOW_MS).join(" ").contains('\u{202e}'));
}
