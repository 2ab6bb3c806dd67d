//! What a store, as it is set up, can and cannot promise; and what to do about it.

use serde::Serialize;

/// What came of looking at a store as a careful operator would. Made by
/// [`Inspector::examine`](crate::inspect::Inspector::examine).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Examination {
    /// Kind of store, such as `redis`.
    pub backend: &'static str,
    /// The server or library behind it, such as `Redis 7.2.4`; `None` if it does not say.
    pub version: Option<String>,
    /// Everything that was looked at, the worst first.
    pub findings: Vec<Check>,
    /// What follows from it.
    pub promises: Vec<Promise>,
}

impl Examination {
    pub(crate) fn new(
        backend: &'static str,
        version: Option<String>,
        mut findings: Vec<Check>,
        promises: Vec<Promise>,
    ) -> Self {
        // Stable, so equals stay in the order in which a person would look at them.
        findings.sort_by_key(|check| std::cmp::Reverse(check.severity));
        Self { backend, version, findings, promises }
    }

    /// Returns the worst severity among the findings.
    pub fn worst(&self) -> CheckSeverity {
        self.findings.iter().map(|check| check.severity).max().unwrap_or(CheckSeverity::Ok)
    }

    /// Returns the finding of this id.
    pub fn finding(&self, id: &str) -> Option<&Check> {
        self.findings.iter().find(|check| check.id == id)
    }
}

/// How much a finding matters, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckSeverity {
    /// As it should be.
    Ok,
    /// Good to know; nothing has to be done.
    Notice,
    /// Could not be looked at, usually for want of a permission.
    Unknown,
    /// Breaks a promise under circumstances that do occur.
    Warning,
    /// Breaks a promise now, or keeps locks from working.
    Problem,
}

impl CheckSeverity {
    /// Says whether an operator has to act.
    pub fn needs_action(self) -> bool {
        self >= Self::Warning
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// Stable name for scripts, in kebab-case.
    pub id: &'static str,
    /// How much it matters.
    pub severity: CheckSeverity,
    /// The finding in a few words.
    pub title: String,
    /// What was seen. May quote what others wrote into the store.
    pub detail: String,
    /// What it means for the promise; empty if all is well.
    pub consequence: String,
    /// A command or setting to copy; empty if there is nothing to do.
    pub fix: String,
}

impl Check {
    /// Makes one without a consequence and a way out.
    pub fn new(
        severity: CheckSeverity,
        id: &'static str,
        title: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        let (title, detail) = (title.into(), detail.into());
        Self { id, severity, title, detail, consequence: String::new(), fix: String::new() }
    }

    pub(crate) fn ok(id: &'static str, title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(CheckSeverity::Ok, id, title, detail)
    }

    pub(crate) fn notice(id: &'static str, title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(CheckSeverity::Notice, id, title, detail)
    }

    pub(crate) fn unknown(id: &'static str, title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(CheckSeverity::Unknown, id, title, detail)
    }

    pub(crate) fn warning(id: &'static str, title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(CheckSeverity::Warning, id, title, detail)
    }

    pub(crate) fn problem(id: &'static str, title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(CheckSeverity::Problem, id, title, detail)
    }

    /// Says what it means for the promise.
    #[must_use]
    pub fn means(mut self, consequence: impl Into<String>) -> Self {
        self.consequence = consequence.into();
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }
}

/// Whether a promise is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// It is.
    Yes,
    /// It is not, at least under the circumstances it speaks of.
    No,
    /// What it depends on could not be seen.
    Unknown,
}

/// One promise, and whether this set-up keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Promise {
    /// Stable name for scripts: `exclusion`, `exclusion-after-restart`, `exclusion-after-failover`,
    /// `exclusion-after-wipe`, `fencing-order`, `push` or `fifo`.
    pub id: &'static str,
    /// The promise in a few words.
    pub what: &'static str,
    /// Whether it is kept.
    pub holds: Holds,
    /// Why.
    pub because: String,
}

impl Promise {
    /// Makes one. Of an `id` that is not known, the id is what it says.
    pub fn new(id: &'static str, holds: Holds, because: impl Into<String>) -> Self {
        let what = WORDS.iter().find(|(known, _)| *known == id).map_or(id, |(_, words)| words);
        Self { id, what, holds, because: because.into() }
    }

    pub(crate) fn yes(id: &'static str, because: impl Into<String>) -> Self {
        Self::new(id, Holds::Yes, because)
    }

    pub(crate) fn no(id: &'static str, because: impl Into<String>) -> Self {
        Self::new(id, Holds::No, because)
    }

    pub(crate) fn unknown(id: &'static str, because: impl Into<String>) -> Self {
        Self::new(id, Holds::Unknown, because)
    }
}

pub(crate) const EXCLUSION: &str = "exclusion";
pub(crate) const AFTER_RESTART: &str = "exclusion-after-restart";
pub(crate) const AFTER_FAILOVER: &str = "exclusion-after-failover";
pub(crate) const AFTER_WIPE: &str = "exclusion-after-wipe";
pub(crate) const FENCING_ORDER: &str = "fencing-order";
pub(crate) const PUSH: &str = "push";
pub(crate) const FIFO: &str = "fifo";

const WORDS: [(&str, &str); 7] = [
    (EXCLUSION, "one holder at a time"),
    (AFTER_RESTART, "also when the store restarts"),
    (AFTER_FAILOVER, "also across a failover"),
    (AFTER_WIPE, "also when its data is lost"),
    (FENCING_ORDER, "fencing tokens only grow"),
    (PUSH, "a message wakes the next waiter"),
    (FIFO, "first come, first served"),
];

/// A size for display.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_equals_keep_their_order() {
        let found = vec![Check::ok("a", "", ""), Check::warning("b", "", ""), Check::warning("c", "", "")];
        let examination = Examination::new("x", None, found, vec![]);
        let order: Vec<_> = examination.findings.iter().map(|check| check.id).collect();
        assert_eq!(order, ["b", "c", "a"]);
        assert_eq!(examination.worst(), CheckSeverity::Warning);
        assert!(examination.worst().needs_action() && !CheckSeverity::Unknown.needs_action());
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(512), "512 bytes");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(200 << 20), "200 MiB");
    }
}
