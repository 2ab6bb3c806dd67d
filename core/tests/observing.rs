//! Events and metrics carry the names and fields that are promised.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use polylatch::Polylatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Remembers the fields of every event of this library.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>);

struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let mut text = String::new();
        write!(text, "{value:?}").unwrap();
        self.0.insert(field.name(), text.trim_matches('"').to_owned());
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "polylatch"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        fields.0.insert("level", event.metadata().level().to_string());
        self.0.lock().unwrap().push(fields.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn events_and_metrics_tell_the_life_of_a_lock() {
    let events = Events::default();
    tracing::subscriber::set_global_default(events.clone()).unwrap();
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    recorder.install().unwrap();

    pollster::block_on(async {
        let client = Polylatch::connect("memory:").await.unwrap();
        let guard = client.lock("a").acquire().await.unwrap();
        client.lock("a").wait(Duration::from_millis(30)).acquire().await.unwrap_err();
        guard.release().await.unwrap();
        let short = client.lock("b").lease(Duration::from_millis(150)).renew(false);
        let lost = short.acquire().await.unwrap();
        lost.lost().await;
        client.close().await;
    });

    // A loss is told to the guard first and to observers right after it, from another thread.
    let told = || {
        events.0.lock().unwrap().iter().any(|event| event.get("event").is_some_and(|event| event == "lost"))
    };
    while !told() {
        std::thread::yield_now();
    }
    let events = events.0.lock().unwrap();
    let of = |name: &str| events.iter().find(|event| event.get("event").is_some_and(|event| event == name));
    let acquired = of("acquired").expect("an acquired event");
    assert!(events.iter().all(|event| event["client"] == acquired["client"]), "{events:?}");
    assert_eq!((acquired["lock"].as_str(), acquired["backend"].as_str()), ("a", "memory"));
    let level = |event: &str| of(event).map_or("", |event| event["level"].as_str()).to_owned();
    let levels = ["waiting", "acquired", "released", "lost"].map(level);
    assert_eq!(levels, ["INFO", "DEBUG", "DEBUG", "ERROR"], "what comes with every lock is for debugging");
    assert!(acquired.contains_key("token") && acquired.contains_key("waited_ms"));
    assert_eq!(of("waiting").expect("a waiting event")["position"], "0");
    assert!(of("released").expect("a released event").contains_key("held_ms"));
    let lost = of("lost").expect("a lost event");
    assert_eq!((lost["lock"].as_str(), lost["reason"].as_str()), ("b", "expired"));

    let mut seen = BTreeMap::new();
    for (key, _, _, value) in metrics.snapshot().into_vec() {
        let labels: Vec<_> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let kind = key.kind();
        seen.insert((kind, key.key().name().to_owned(), labels.join(",")), value);
    }
    let histogram = |name: &str, labels: &str| match seen.get(&(
        MetricKind::Histogram,
        name.to_owned(),
        labels.to_owned(),
    )) {
        Some(DebugValue::Histogram(values)) => values.len(),
        _ => panic!("no {name} {labels} in {seen:?}"),
    };
    assert_eq!(histogram("polylatch_wait_seconds", "backend=memory,outcome=acquired"), 2);
    assert_eq!(histogram("polylatch_wait_seconds", "backend=memory,outcome=timed_out"), 1);
    assert_eq!(histogram("polylatch_held_seconds", "backend=memory"), 2);
    let losses = (
        MetricKind::Counter,
        "polylatch_losses_total".to_owned(),
        "backend=memory,reason=expired".to_owned(),
    );
    assert!(matches!(seen.get(&losses), Some(DebugValue::Counter(1))));
    for (name, labels, expected) in [
        ("polylatch_acquisitions_total", "backend=memory,outcome=acquired", 2),
        ("polylatch_acquisitions_total", "backend=memory,outcome=timed_out", 1),
        ("polylatch_errors_total", "backend=memory,code=wait_timeout", 1),
    ] {
        let counted = seen.get(&(MetricKind::Counter, name.to_owned(), labels.to_owned()));
        assert!(matches!(counted, Some(DebugValue::Counter(count)) if *count == expected), "{name} {labels}");
    }
    for gauge in ["polylatch_waiting", "polylatch_held"] {
        let key = (MetricKind::Gauge, gauge.to_owned(), "backend=memory".to_owned());
        let Some(DebugValue::Gauge(value)) = seen.get(&key) else { panic!("no {gauge}") };
        assert_eq!(value.into_inner(), 0.0, "{gauge} must come back to nothing");
    }
}
