//! A verdict in words, with what to do next.

use serde::Serialize;

use super::verdict::{Rule, Severity};

/// A step that helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// A command line to copy.
    Run(String),
    /// Advice in words.
    Do(String),
}

/// One reason, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which rule found it.
    pub rule: Rule,
    /// How much it matters.
    pub severity: Severity,
    /// What is the case, with the numbers that show it.
    pub sentence: String,
    /// What to do, best first; empty if nothing is to be done.
    pub next: Vec<Next>,
}
