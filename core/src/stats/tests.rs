//! What counters and the text of Prometheus say, without a client.

use std::time::Duration;

use super::counters::Counters;
use super::*;
use crate::stats::counters::WaitOutcome;

#[test]
fn a_duration_falls_into_the_first_range_that_reaches_to_it() {
    let bounds = Histogram::BOUNDS;
    assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]));
    for (index, bound) in bounds.into_iter().enumerate() {
        let bound = Duration::from_nanos((bound * 1e9).round() as u64);
        assert_eq!(Histogram::range_of(bound), index, "{bound:?} itself");
        assert_eq!(Histogram::range_of(bound + Duration::from_nanos(1)), index + 1, "just above {bound:?}");
    }
    assert_eq!(Histogram::range_of(Duration::ZERO), 0);
    assert_eq!(Histogram::range_of(Duration::MAX), bounds.len());
}

/// An index into the arrays is the position in `ALL`.
#[test]
fn every_error_and_every_loss_is_counted_under_its_own_code() {
    for kind in ErrorKind::ALL {
        let counters = Counters::default();
        counters.failed(*kind);
        let stats = counters.read("memory");
        let counted: Vec<_> = stats.errors_by_kind().filter(|(_, count)| *count > 0).collect();
        assert_eq!((counted, stats.errors()), (vec![(*kind, 1)], 1));
    }
    for reason in LostReason::ALL {
        let counters = Counters::default();
        counters.began();
        counters.ended(Duration::from_secs(1), Some(*reason));
        let stats = counters.read("memory");
        let counted: Vec<_> = stats.losses_by_reason().filter(|(_, count)| *count > 0).collect();
        assert_eq!((counted, stats.losses(), stats.held), (vec![(*reason, 1)], 1, 0));
    }
}

#[test]
fn labels_that_prometheus_would_refuse_are_refused_by_name() {
    let stats = Stats::default();
    for wrong in ["", "9lives", "a-b", "__name__", "é", "le", "backend", "outcome", "code", "reason"] {
        let error = stats.prometheus(&[(wrong, "x")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(&format!("{wrong:?}")), "{error}");
    }
    assert!(stats.prometheus(&[("a", "1"), ("a", "2")]).is_err());
    assert!(stats.prometheus(&[("a", "1"), ("_b9", "2")]).is_ok());
}

#[test]
fn the_text_of_two_clients_names_each_metric_once() {
    let counters = Counters::default();
    counters.waited(WaitOutcome::Acquired, Duration::from_millis(3));
    counters.waited(WaitOutcome::Acquired, Duration::from_secs(4_000));
    let (one, other) = (counters.read("redis"), Stats { backend: "memory", ..Stats::default() });
    let text = Stats::prometheus_of(&[(&one, &[("job", "a\"b\\c\nd")]), (&other, &[("job", "e")])]).unwrap();
    assert_eq!(text.matches("# TYPE polylatch_wait_seconds histogram\n").count(), 1);
    let labels = r#"job="a\"b\\c\nd",backend="redis",outcome="acquired""#;
    for line in [
        format!("polylatch_wait_seconds_bucket{{{labels},le=\"0.0025\"}} 0\n"),
        format!("polylatch_wait_seconds_bucket{{{labels},le=\"0.005\"}} 1\n"),
        format!("polylatch_wait_seconds_bucket{{{labels},le=\"1800\"}} 1\n"),
        format!("polylatch_wait_seconds_bucket{{{labels},le=\"+Inf\"}} 2\n"),
        format!("polylatch_wait_seconds_sum{{{labels}}} 4000.003\n"),
        format!("polylatch_wait_seconds_count{{{labels}}} 2\n"),
        "polylatch_held{job=\"e\",backend=\"memory\"} 0\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with('\n'));
}
