//! What `stats()` says after each step of a client's life, and what Prometheus reads of it.

use std::collections::BTreeMap;
use std::time::Duration;

use polylatch::{ErrorKind, LostReason, Polylatch, Stats};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn errors_of(stats: &Stats, kind: ErrorKind) -> u64 {
    stats.errors_by_kind().find(|(one, _)| *one == kind).unwrap().1
}

#[test]
fn stats_tell_the_life_of_a_client() {
    pollster::block_on(async {
        let client = Polylatch::connect("memory:").await.unwrap();
        assert_eq!(client.stats().outcomes().map(|(_, count)| count), [0; 5]);
        assert_eq!((client.stats().backend, client.stats().errors()), ("memory", 0));

        let guard = client.lock("a").acquire().await.unwrap();
        let held = client.stats();
        assert_eq!((held.acquired, held.held, held.wait.count(), held.hold.count()), (1, 1, 1, 0));

        assert!(client.lock("a").try_acquire().await.unwrap().is_none());
        assert_eq!((client.stats().refused, client.stats().errors()), (1, 0), "contention is no error");

        client.lock("a").wait(ms(30)).acquire().await.unwrap_err();
        let after = client.stats();
        assert_eq!((after.timed_out, errors_of(&after, ErrorKind::WaitTimeout), after.waiting), (1, 1, 0));
        assert_eq!(after.wait.count(), 1, "the wait of those that got it");

        {
            let lock = client.lock("a");
            let mut waiting = Box::pin(lock.acquire());
            let waker = std::task::Waker::noop();
            let mut context = std::task::Context::from_waker(waker);
            while client.stats().waiting == 0 {
                assert!(waiting.as_mut().poll(&mut context).is_pending());
            }
            assert_eq!(client.stats().waiting, 1);
        }
        let after = client.stats();
        assert_eq!((after.cancelled, after.waiting, after.errors()), (1, 0, 1), "given up is no error");

        guard.release().await.unwrap();
        let after = client.stats();
        assert_eq!((after.held, after.hold.count(), after.losses()), (0, 1, 0));

        let short = client.lock("b").lease(ms(150)).renew(false).acquire().await.unwrap();
        assert_eq!(short.lost().await, LostReason::Expired);
        let after = client.stats();
        assert_eq!((after.held, after.hold.count(), after.losses()), (0, 2, 1), "counted before it is told");
        assert_eq!(after.losses_by_reason().next(), Some((LostReason::Expired, 1)));
        assert!(after.hold.sum() >= 0.14, "{:?}", after.hold);
        short.release().await.unwrap_err();
        assert_eq!(errors_of(&client.stats(), ErrorKind::LeaseLost), 1);

        client.lock("").acquire().await.unwrap_err();
        assert_eq!(errors_of(&client.stats(), ErrorKind::InvalidArgument), 1);
        client.lock_all(["x", ""]).acquire().await.unwrap_err();
        assert_eq!(errors_of(&client.stats(), ErrorKind::InvalidArgument), 2, "one call, one error");

        let long = client.lock("c").lease(ms(300)).acquire().await.unwrap();
        while long.renewals() == 0 {
            std::thread::yield_now();
        }
        let after = client.stats();
        assert!(after.renewal_lag.count() >= 1 && after.renewal_lag.sum() < 0.1, "{:?}", after.renewal_lag);
        long.extend(ms(600)).await.unwrap();
        assert!(client.stats().renewal_lag.count() > after.renewal_lag.count());

        client.close().await;
        assert_eq!(client.stats().held, 0);
        client.lock("d").acquire().await.unwrap_err();
        let last = client.stats();
        assert_eq!((last.cancelled, errors_of(&last, ErrorKind::Canceled)), (2, 1));
        same_in_prometheus(&last);
    });
}

/// One line of the text: name, labels and value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Reads the text by the grammar of its format, and refuses everything else.
fn parsed(text: &str) -> (BTreeMap<String, String>, Vec<Sample>) {
    let (mut types, mut samples): (BTreeMap<String, String>, Vec<Sample>) = Default::default();
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
    };
    let mut helped = None;
    let mut family = String::new();
    for line in text.strip_suffix('\n').expect("the last line ends").lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, sentence) = help.split_once(' ').unwrap();
            assert!(is_name(name) && sentence.ends_with('.'), "{line}");
            helped = Some(name.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(helped.take().as_deref(), Some(name), "help comes first");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} begins twice");
            name.clone_into(&mut family);
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap();
            assert!(is_name(name) && name.starts_with(&family), "{line}");
            let labels = labels.strip_suffix('}').unwrap().split(',').map(|label| {
                let (key, value) = label.split_once('=').unwrap();
                let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap();
                assert!(is_name(key) && !value.contains(['"', '\\']), "{line}");
                (key.to_owned(), value.to_owned())
            });
            samples.push((name.to_owned(), labels.collect(), value.parse().unwrap()));
        }
    }
    (types, samples)
}

/// Compares every number of the text with the one that it stands for.
fn same_in_prometheus(stats: &Stats) {
    let text = stats.prometheus(&[("job", "nightly")]).unwrap();
    let (types, samples) = parsed(&text);
    for (_, labels, _) in &samples {
        assert_eq!((labels["job"].as_str(), labels["backend"].as_str()), ("nightly", "memory"));
    }
    let value = |name: &str, label: &str, is: &str| {
        let mut found = samples.iter().filter(|(one, labels, _)| {
            one == name && (label.is_empty() || labels.get(label).is_some_and(|value| value == is))
        });
        let (_, _, value) = found.next().unwrap_or_else(|| panic!("no {name} {label}={is} in\n{text}"));
        assert!(found.next().is_none(), "{name} {label}={is} stands there twice");
        *value
    };
    for (name, histogram) in [
        ("polylatch_wait_seconds", &stats.wait),
        ("polylatch_held_seconds", &stats.hold),
        ("polylatch_renewal_lag_seconds", &stats.renewal_lag),
    ] {
        assert_eq!(types[name], "histogram");
        let mut below = 0;
        for (bound, count) in histogram.buckets() {
            below += count;
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".into() };
            assert_eq!(value(&format!("{name}_bucket"), "le", &bound), below as f64, "{name} {bound}");
        }
        assert_eq!(value(&format!("{name}_count"), "", ""), histogram.count() as f64);
        assert_eq!(value(&format!("{name}_sum"), "", ""), histogram.sum());
        assert!(histogram.count() > 0, "{name} was seen at work");
    }
    for (outcome, count) in stats.outcomes() {
        assert_eq!(value("polylatch_acquisitions_total", "outcome", outcome), count as f64);
    }
    for (reason, count) in stats.losses_by_reason() {
        assert_eq!(value("polylatch_losses_total", "reason", reason.code()), count as f64);
    }
    for (kind, count) in stats.errors_by_kind() {
        assert_eq!(value("polylatch_errors_total", "code", kind.code()), count as f64);
    }
    assert_eq!(value("polylatch_waiting", "", ""), stats.waiting as f64);
    assert_eq!(value("polylatch_held", "", ""), stats.held as f64);
    assert_eq!(types.len(), 8, "every metric is compared: {types:?}");
}
