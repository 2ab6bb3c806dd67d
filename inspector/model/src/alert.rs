//! Alert rules: what an operator should be notified of.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::filter::Filter;
use super::fleet::{Fleet, RowRef};
use super::rows::{LockState, Row, RowKey};
use super::store::Phase;
use super::text::{count, sanitized, span};
use super::verdict::Severity;

/// What an alert watches for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Condition {
    /// A lock is held for longer than this.
    HeldOver {
        /// In milliseconds.
        ms: u64,
    },
    /// More than this many wait for a lock.
    WaitersOver {
        /// How many.
        count: usize,
    },
    /// This many beats in a row are missed.
    BeatsMissed {
        /// How many.
        count: u32,
    },
    /// Nothing ends a lease by itself.
    NoExpiry,
    /// Clients wait for each other in a ring.
    Deadlock,
    /// A connection cannot be read.
    Unreachable,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertRule {
    /// Its name; unique.
    pub name: String,
    /// What it watches for.
    pub condition: Condition,
    /// Only for rows that pass this filter, in the filter language.
    #[serde(default)]
    pub filter: String,
    /// How long the condition must have held without a break before it is reported.
    #[serde(default)]
    pub for_ms: u64,
    /// A program that is started for each alert, with its arguments; no shell. It finds the alert in its
    /// environment and as one JSON object on its standard input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// It is not watched for at present.
    #[serde(default)]
    pub off: bool,
}

/// Something to report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// Name of the rule.
    pub rule: String,
    /// The lock; for a connection that cannot be read, the lock's name is empty.
    pub key: RowKey,
    /// When it was found, on the viewer's clock.
    pub at_ms: u64,
    /// How much it matters.
    pub severity: Severity,
    /// What is the case; sanitized.
    pub sentence: String,
    /// What the rule says is to be started.
    #[serde(skip)]
    pub run: Vec<String>,
}

/// Watches a fleet by rules. Tells each case once, and again only after it was over.
#[derive(Debug, Clone, Default)]
pub struct Alarms {
    rules: Vec<(AlertRule, Filter)>,
    /// What is the case, since when, and whether it was reported.
    cases: HashMap<(usize, RowKey), Case>,
    standing: Vec<Alert>,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    since_ms: u64,
    told: bool,
}

impl Alarms {
    /// Takes rules. Errors: a sentence, if a name is there twice, or a filter cannot be read.
    pub fn new(rules: Vec<AlertRule>) -> Result<Self, String> {
        let mut taken: Vec<(AlertRule, Filter)> = Vec::new();
        for rule in rules {
            if rule.name.trim().is_empty() || taken.iter().any(|(known, _)| known.name == rule.name) {
                return Err(format!("alert rule {:?}: give every rule a name of its own", rule.name));
            }
            if rule.run.first().is_some_and(String::is_empty) {
                return Err(format!("alert rule {:?}: run names no program", rule.name));
            }
            let filter = Filter::parse(&rule.filter)
                .map_err(|error| format!("alert rule {:?}, filter: {error}", rule.name))?;
            taken.push((rule, filter));
        }
        Ok(Self { rules: taken, ..Self::default() })
    }

    /// Returns the rules.
    pub fn rules(&self) -> impl Iterator<Item = &AlertRule> {
        self.rules.iter().map(|(rule, _)| rule)
    }

    /// Looks at the fleet, after every update and every second or so. Returns what is new.
    pub fn check(&mut self, fleet: &Fleet, now_ms: u64) -> Vec<Alert> {
        let mut found: HashMap<(usize, RowKey), Option<RowRef>> = HashMap::new();
        for (at, (rule, filter)) in self.rules.iter().enumerate().filter(|(_, (rule, _))| !rule.off) {
            if rule.condition == Condition::Unreachable {
                let lost =
                    fleet.stores().iter().filter(|store| matches!(store.phase(now_ms), Phase::Lost { .. }));
                for store in lost {
                    let key = RowKey { connection: store.connection().id.clone(), lock: "".into() };
                    found.insert((at, key), None);
                }
                continue;
            }
            for place in fleet.row_refs() {
                let row = fleet.at(place);
                // The condition first: it is the cheaper one.
                if row.gone_at_ms.is_none() && rule.condition.is_met(row, now_ms) {
                    let state = fleet.state(row, now_ms);
                    if filter.matches(row, state, now_ms) {
                        found.insert((at, row.key.clone()), Some(place));
                    }
                }
            }
        }
        // Of a connection that cannot be read nothing is known: its cases neither begin nor end.
        let fresh = |key: &RowKey| fleet.store(&key.connection).is_none_or(|store| store.is_fresh(now_ms));
        let known = |(rule, key): &(usize, RowKey)| {
            found.contains_key(&(*rule, key.clone())) || !(key.lock.is_empty() || fresh(key))
        };
        self.cases.retain(|case, _| known(case));
        let rules = &self.rules;
        let cases = &self.cases;
        self.standing.retain(|alert| {
            let rule = rules.iter().position(|(rule, _)| rule.name == alert.rule);
            rule.is_some_and(|rule| cases.contains_key(&(rule, alert.key.clone())))
        });
        let mut new = Vec::new();
        for ((at, key), place) in found {
            let case = self.cases.entry((at, key.clone())).or_insert(Case { since_ms: now_ms, told: false });
            let rule = &self.rules[at].0;
            if !case.told && now_ms.saturating_sub(case.since_ms) >= rule.for_ms {
                case.told = true;
                let (severity, sentence) = told(fleet, &key, place, rule, now_ms);
                let (rule, run) = (rule.name.clone(), rule.run.clone());
                new.push(Alert { rule, key, at_ms: now_ms, severity, sentence, run });
            }
        }
        new.sort_by(|a, b| (&a.rule, &a.key).cmp(&(&b.rule, &b.key)));
        self.standing.extend(new.iter().cloned());
        new
    }

    /// Returns what was reported and is not over yet, the oldest first.
    pub fn standing(&self) -> &[Alert] {
        &self.standing
    }
}

impl Condition {
    fn is_met(&self, row: &Row, now_ms: u64) -> bool {
        match self {
            Self::HeldOver { ms } => row.held_now_ms(now_ms).is_some_and(|held| held > *ms),
            Self::WaitersOver { count } => row.waiters > *count,
            Self::BeatsMissed { count } => row.missed >= (*count).max(1),
            Self::NoExpiry => row.state == LockState::NoExpiry,
            Self::Deadlock => matches!(row.state, LockState::Deadlock | LockState::MayDeadlock),
            Self::Unreachable => false,
        }
    }
}

fn told(
    fleet: &Fleet,
    key: &RowKey,
    place: Option<RowRef>,
    rule: &AlertRule,
    now_ms: u64,
) -> (Severity, String) {
    let connection = sanitized(key.connection.as_str());
    let Some(row) = place.map(|place| fleet.at(place)) else {
        let why = match fleet.store(&key.connection).map(|store| store.phase(now_ms)) {
            Some(Phase::Lost { why, .. }) => why,
            _ => "no answer".into(),
        };
        return (Severity::Problem, format!("{connection} cannot be read: {why}."));
    };
    let held = row.held_now_ms(now_ms).map(span).unwrap_or_else(|| "an unknown time".into());
    let by = if row.place.is_empty() { String::new() } else { format!(" by {} {}", row.place, row.program) };
    let what = match &rule.condition {
        Condition::HeldOver { ms } => format!("held for {held}{by}; the limit is {}", span(*ms)),
        Condition::WaitersOver { .. } => format!("{} wait for it; held for {held}{by}", row.waiters),
        Condition::BeatsMissed { .. } => {
            format!("{} missed, held{by}", count(row.missed as usize, "renewal", "renewals"))
        }
        Condition::NoExpiry => format!("held for {held}{by}, and nothing ends it"),
        Condition::Deadlock | Condition::Unreachable => {
            fleet.explain(key).first().map(|finding| finding.sentence.clone()).unwrap_or_default()
        }
    };
    (
        row.severity().max(Severity::Warning),
        format!("{} in {connection}: {}.", row.name, what.trim_end_matches('.')),
    )
}
