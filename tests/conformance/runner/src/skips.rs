//! The list of what may be missing. What is missing and not listed fails, and so does what is
//! listed and not missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// One thing that may be missing, and why.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// Language, for every cast that it is in, or `*` for every cast.
    pub target: String,
    /// Kind of store, or `*` for every one.
    pub store: String,
    pub scenario: String,
    pub reason: String,
}

impl Skip {
    fn is_of(&self, cast: &str, store: &str, scenario: &str) -> bool {
        (self.target == "*" || cast.split('+').any(|language| language == self.target))
            && (self.store == "*" || self.store == store)
            && self.scenario == scenario
    }
}

/// All of them, and which were met.
#[derive(Debug)]
pub struct Skips {
    list: Vec<Skip>,
    met: BTreeSet<usize>,
}

impl Skips {
    pub fn read(path: &Path) -> Result<Self, String> {
        let in_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| in_file(&error))?;
        let list: Vec<Skip> = serde_json::from_str(&text).map_err(|error| in_file(&error))?;
        match list.iter().find(|skip| skip.reason.trim().len() < 10) {
            Some(skip) => Err(in_file(&format!("{} is skipped without a reason", skip.scenario))),
            None => Ok(Self { list, met: BTreeSet::new() }),
        }
    }

    /// Returns the reason if this skip is listed.
    pub fn meet(&mut self, cast: &str, store: &str, scenario: &str) -> Option<&str> {
        let index = self.list.iter().position(|skip| skip.is_of(cast, store, scenario))?;
        self.met.insert(index);
        Some(&self.list[index].reason)
    }

    /// Returns the listed skips that were not met although their target, store and scenario were there.
    pub fn stale(&self, played: &BTreeSet<(String, String, String)>) -> Vec<&Skip> {
        let there =
            |skip: &Skip| played.iter().any(|(cast, store, scenario)| skip.is_of(cast, store, scenario));
        let all = self.list.iter().enumerate();
        all.filter(|(index, skip)| !self.met.contains(index) && there(skip)).map(|(_, skip)| skip).collect()
    }

    /// Returns the listed skips of scenarios that do not exist.
    pub fn unknown<'a>(&'a self, scenarios: &BTreeSet<&str>) -> Vec<&'a Skip> {
        self.list.iter().filter(|skip| !scenarios.contains(skip.scenario.as_str())).collect()
    }
}
