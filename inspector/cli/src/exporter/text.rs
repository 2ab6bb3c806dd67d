//! What is known of stores, as metrics.

use std::time::Instant;

use polylatch::inspect::{LockView, TroubleKind};
use polylatch::observe::{MetricType, PrometheusText};

use super::Known;
use crate::rules;
use model::fleet::Attention;
use model::text::sanitized;
use model::{Row, Rule, Severity, Store};

/// Series for single locks, for each store.
pub(super) const MOST_PER_LOCK: usize = 500;

/// Rules that say that a lease is not renewed.
const NOT_RENEWED: [Rule; 4] = [Rule::LateRenewal, Rule::RenewalsStopped, Rule::Stopped, Rule::HolderGone];

const SEVERITIES: [(Severity, &str); 3] =
    [(Severity::Notice, "notice"), (Severity::Warning, "warning"), (Severity::Problem, "problem")];

/// The numbers of one store that can be read.
struct Numbers {
    held: u64,
    waited_for: u64,
    foreign: u64,
    waiters: u64,
    stale: u64,
    longest_queue: u64,
    oldest_wait_ms: u64,
    oldest_hold_ms: u64,
    findings: [u64; rules::ALL.len()],
    severities: [u64; SEVERITIES.len()],
}

impl Numbers {
    fn of(store: &Store, attention: &[Attention], now_ms: u64) -> Self {
        let mut numbers = Self {
            held: 0,
            waited_for: 0,
            foreign: 0,
            waiters: 0,
            stale: 0,
            longest_queue: 0,
            oldest_wait_ms: 0,
            oldest_hold_ms: 0,
            findings: [0; rules::ALL.len()],
            severities: [0; SEVERITIES.len()],
        };
        let locks = store.snapshot().map_or(&[][..], |snapshot| &snapshot.locks);
        let age_ms = now_ms.saturating_sub(store.sampled_at_ms().unwrap_or(now_ms));
        for row in store.rows() {
            let Some(lock) = locks.get(row.index) else { continue };
            numbers.held += u64::from(row.holders > 0);
            numbers.waited_for += u64::from(row.waiters > 0);
            numbers.foreign += u64::from(lock.mode == "foreign");
            numbers.waiters += row.waiters as u64;
            numbers.stale += row.silent as u64;
            numbers.longest_queue = numbers.longest_queue.max(row.waiters as u64);
            let (held, waited) = ages(lock);
            numbers.oldest_hold_ms = numbers.oldest_hold_ms.max(held.map_or(0, |ms| ms + age_ms));
            numbers.oldest_wait_ms = numbers.oldest_wait_ms.max(waited.map_or(0, |ms| ms + age_ms));
            for verdict in &row.verdicts {
                numbers.findings[rules::place(verdict.rule)] += 1;
            }
            numbers.count(row.severity());
        }
        let is_own =
            |one: &&Attention| one.key.lock.is_empty() && one.key.connection == store.connection().id;
        for attention in attention.iter().filter(is_own) {
            numbers.findings[rules::place(attention.finding.rule)] += 1;
            numbers.count(attention.finding.severity);
        }
        numbers
    }

    fn count(&mut self, severity: Severity) {
        if let Some(at) = SEVERITIES.iter().position(|(one, _)| *one == severity) {
            self.severities[at] += 1;
        }
    }
}

/// Reads counts by code.
type Coded<'a> = &'a dyn Fn(&Store, &Numbers) -> Vec<(&'static str, u64)>;

/// How long the oldest holder has held it, and the oldest live waiter waited, as of the snapshot.
fn ages(lock: &LockView) -> (Option<u64>, Option<u64>) {
    let live = lock.waiters.iter().filter(|waiter| !waiter.silent);
    let held = lock.holders.iter().filter_map(|holder| holder.held_for_ms).max();
    (held, live.map(|waiter| waiter.waited_ms).max())
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

/// Writes everything as of now.
pub(super) fn write(known: &mut Known, now_ms: u64, per_lock: Option<&str>) -> String {
    let started = Instant::now();
    known.fleet.tick(now_ms);
    known.scrapes += 1;
    let fleet = &known.fleet;
    let mut text = PrometheusText::default();
    let stores: Vec<(String, &Store)> =
        fleet.stores().iter().map(|store| (sanitized(store.connection().id.as_str()), store)).collect();

    text.family("polylatch_store_up", MetricType::Gauge, "Whether the store can be read: 1, or 0.");
    for (label, store) in &stores {
        text.sample("polylatch_store_up", &[("store", label)], f64::from(u8::from(store.is_fresh(now_ms))));
    }
    text.family(
        "polylatch_store_error",
        MetricType::Gauge,
        "1 while the store cannot be read for this reason.",
    );
    for (label, store) in stores.iter().filter(|(_, store)| !store.is_fresh(now_ms)) {
        let code = known.codes.get(&store.connection().id).copied().unwrap_or("backend_unavailable");
        text.sample("polylatch_store_error", &[("store", label), ("code", code)], 1.0);
    }
    let name = "polylatch_store_snapshot_age_seconds";
    text.family(name, MetricType::Gauge, "Time since the store was last read; absent if it never was.");
    for (label, store) in &stores {
        if let Some(at_ms) = store.sampled_at_ms() {
            text.sample(name, &[("store", label)], seconds(now_ms.saturating_sub(at_ms)));
        }
    }
    let name = "polylatch_store_requests_total";
    text.family(name, MetricType::Counter, "Requests that this exporter sent to the store to read it.");
    for (label, store) in &stores {
        let requests = known.requests.get(&store.connection().id).copied().unwrap_or(0);
        text.sample(name, &[("store", label)], requests as f64);
    }

    let attention = fleet.attention(now_ms);
    // What is not known is absent.
    let fresh: Vec<(&str, &Store, Numbers)> = stores
        .iter()
        .filter(|(_, store)| store.is_fresh(now_ms))
        .map(|(label, store)| (label.as_str(), *store, Numbers::of(store, &attention, now_ms)))
        .collect();
    of_stores(&mut text, &fresh);
    if let Some(pattern) = per_lock {
        of_locks(&mut text, &fresh, pattern, now_ms);
    }

    let build = [("version", env!("CARGO_PKG_VERSION"))];
    text.family("polylatch_exporter_build_info", MetricType::Gauge, "The exporter's version.");
    text.sample("polylatch_exporter_build_info", &build, 1.0);
    text.family("polylatch_exporter_scrapes_total", MetricType::Counter, "Texts written, with this one.");
    text.sample("polylatch_exporter_scrapes_total", &[], known.scrapes as f64);
    let name = "polylatch_exporter_scrape_seconds";
    text.family(name, MetricType::Gauge, "How long writing this text took.");
    text.sample(name, &[], started.elapsed().as_secs_f64());
    text.into_string()
}

fn of_stores(text: &mut PrometheusText, stores: &[(&str, &Store, Numbers)]) {
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&Store, &Numbers) -> f64| {
        text.family(name, MetricType::Gauge, help);
        for (label, store, numbers) in stores {
            text.sample(name, &[("store", label)], value(store, numbers));
        }
    };
    gauge("polylatch_store_reading_seconds", "How long the latest snapshot took.", &|store, _| {
        store.snapshot().map_or(0.0, |snapshot| snapshot.round_trip.as_secs_f64())
    });
    gauge(
        "polylatch_store_truncated",
        "Whether there are more locks than were read: 1, or 0.",
        &|store, _| store.snapshot().map_or(0.0, |snapshot| f64::from(u8::from(snapshot.truncated))),
    );
    gauge("polylatch_store_locks_held", "Locks that are held.", &|_, numbers| numbers.held as f64);
    gauge("polylatch_store_locks_waited_for", "Locks that clients wait for.", &|_, numbers| {
        numbers.waited_for as f64
    });
    gauge("polylatch_store_locks_foreign", "Locks of other libraries.", &|_, numbers| numbers.foreign as f64);
    gauge("polylatch_store_waiters", "Clients that wait, over all locks.", &|_, numbers| {
        numbers.waiters as f64
    });
    gauge("polylatch_store_stale_waiters", "Queued waiters without a heartbeat.", &|_, numbers| {
        numbers.stale as f64
    });
    gauge(
        "polylatch_store_longest_queue",
        "Clients that wait for the lock with the most of them.",
        &|_, numbers| numbers.longest_queue as f64,
    );
    gauge(
        "polylatch_store_oldest_wait_seconds",
        "How long the oldest waiter has waited; 0 without one.",
        &|_, n| seconds(n.oldest_wait_ms),
    );
    gauge(
        "polylatch_store_oldest_hold_seconds",
        "How long the oldest lease has been held; 0 without one.",
        &|_, n| seconds(n.oldest_hold_ms),
    );

    let mut coded = |name: &str, help: &str, label: &str, of: Coded<'_>| {
        text.family(name, MetricType::Gauge, help);
        for (store_label, store, numbers) in stores {
            for (code, count) in of(store, numbers) {
                text.sample(name, &[("store", store_label), (label, code)], count as f64);
            }
        }
    };
    coded(
        "polylatch_store_troubles",
        "What keeps the store or its nodes from working.",
        "kind",
        &|store, _| {
            let found = store.snapshot().map_or(&[][..], |snapshot| &snapshot.troubles);
            let count =
                |kind: TroubleKind| found.iter().filter(|trouble| trouble.kind == kind).count() as u64;
            TroubleKind::ALL.iter().map(|kind| (kind.code(), count(*kind))).collect()
        },
    );
    coded(
        "polylatch_store_leases_not_renewed",
        "Leases that are not renewed, by finding.",
        "code",
        &|_, numbers| {
            NOT_RENEWED.iter().map(|rule| (rule.code(), numbers.findings[rules::place(*rule)])).collect()
        },
    );
    coded(
        "polylatch_store_findings",
        "Findings on locks and on the store, by code.",
        "code",
        &|_, numbers| {
            let found = rules::ALL.iter().filter(|rule| rules::is_finding(**rule) && !rule.is_of_records());
            found.map(|rule| (rule.code(), numbers.findings[rules::place(*rule)])).collect()
        },
    );
    coded(
        "polylatch_store_locks_by_severity",
        "Locks, and the store itself, by their worst finding.",
        "severity",
        &|_, numbers| {
            SEVERITIES.iter().zip(numbers.severities).map(|((_, code), count)| (*code, count)).collect()
        },
    );
}

/// Series for single locks: the first by name, so that the same ones stay.
fn of_locks(text: &mut PrometheusText, stores: &[(&str, &Store, Numbers)], pattern: &str, now_ms: u64) {
    let mut shown: Vec<(&str, &Row, &LockView)> = Vec::new();
    let mut left_out = Vec::new();
    for (label, store, _) in stores {
        let locks = store.snapshot().map_or(&[][..], |snapshot| &snapshot.locks);
        let mut matching: Vec<_> = store
            .rows()
            .iter()
            .filter(|row| matches(pattern, &row.key.lock))
            .filter_map(|row| Some((*label, row, locks.get(row.index)?)))
            .collect();
        matching.sort_by(|a, b| a.1.key.lock.cmp(&b.1.key.lock));
        left_out.push((*label, matching.len().saturating_sub(MOST_PER_LOCK)));
        matching.truncate(MOST_PER_LOCK);
        shown.extend(matching);
    }
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&Row, &LockView) -> f64| {
        text.family(name, MetricType::Gauge, help);
        for (label, row, lock) in &shown {
            // The name as it is shown has no character that does harm; two that differ in such alone are told apart.
            let name_label =
                if row.name == *row.key.lock { row.name.clone() } else { format!("{:?}", row.key.lock) };
            text.sample(name, &[("store", label), ("lock", &sanitized(&name_label))], value(row, lock));
        }
    };
    let age = |ms: Option<u64>, row: &Row| {
        ms.map_or(0.0, |ms| seconds(ms + now_ms.saturating_sub(row.sampled_at_ms)))
    };
    gauge("polylatch_lock_holders", "Leases on the lock.", &|row, _| row.holders as f64);
    gauge(
        "polylatch_lock_hold_seconds",
        "How long its oldest lease has been held; 0 if it is free.",
        &|row, lock| age(ages(lock).0, row),
    );
    gauge("polylatch_lock_waiters", "Clients that wait for the lock.", &|row, _| row.waiters as f64);
    gauge(
        "polylatch_lock_wait_seconds",
        "How long its oldest waiter has waited; 0 without one.",
        &|row, lock| age(ages(lock).1, row),
    );
    gauge(
        "polylatch_lock_severity",
        "Its worst finding: 0 none, 1 notice, 2 warning, 3 problem.",
        &|row, _| f64::from(row.severity() as u8),
    );
    let name = "polylatch_exporter_locks_left_out";
    text.family(
        name,
        MetricType::Gauge,
        "Locks that match --per-lock and have no series, because they are too many.",
    );
    for (label, count) in left_out {
        text.sample(name, &[("store", label)], count as f64);
    }
}

/// `*` stands for any text, `?` for one character.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut here, mut star) = (0, 0, None);
    while here < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(one) if *one == '?' || *one == name[here] => (at, here) = (at + 1, here + 1),
            _ => match star {
                Some((place, taken)) => {
                    star = Some((place, taken + 1));
                    (at, here) = (place + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|one| *one == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, is) in [
            ("*", "", true),
            ("nightly/*", "nightly/backup", true),
            ("nightly/*", "daily/nightly/", false),
            ("*/ba?kup", "nightly/backup", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("orders", "orders/1", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, name), is, "{pattern} {name}");
        }
    }
}
