//! Records of idempotent work: which claims are stuck, what was done twice, and what the next run does.
//!
//! A store records neither repetitions nor refused payloads, so nothing here is about those.

use std::collections::BTreeMap;

use polylatch::idempotency::{RecordState, RecordView};

use super::beat::Beat;
use super::connection::ConnectionId;
use super::finding::{Finding, Next};
use super::text::{count, sanitized, shell_word, span};
use super::verdict::{Rule, Severity};
use super::{HostFacts, LocalFacts, Process};

/// Work counts as far beyond the usual only from this length on.
const LONG_WORK_MS: u64 = 30_000;

/// So many times as long as the longest of the stored runs is far beyond the usual.
const FAR_BEYOND: u64 = 5;

/// Some records of a store, with what this host knew of their processes.
#[derive(Debug, Clone, Default)]
pub struct Records {
    records: Vec<RecordView>,
    local: LocalFacts,
    /// The longest stored run of each operation.
    longest_ms: BTreeMap<String, u64>,
}

/// What came of reading the records of one connection.
#[derive(Debug, Clone)]
pub struct RecordsRead {
    /// Which connection.
    pub connection: ConnectionId,
    /// When, on the viewer's clock.
    pub at_ms: u64,
    /// The records, or why there are none.
    pub outcome: Result<Records, String>,
}

impl RecordsRead {
    /// So many records are read of a connection at most.
    pub const MOST: usize = 10_000;
}

/// Says whether a client works on a record's key, or did without storing an answer.
pub(super) fn is_open(record: &RecordView) -> bool {
    matches!(record.state, RecordState::Running | RecordState::Abandoned)
}

/// What is done, without the caller: scopes are such as `orders/customer-7`.
fn operation(scope: &str) -> &str {
    scope.split('/').next().unwrap_or(scope)
}

impl Records {
    /// Takes records as they were read, in their order.
    pub fn new(records: Vec<RecordView>, facts: &dyn HostFacts) -> Self {
        let mut longest_ms = BTreeMap::new();
        for record in &records {
            if let Some(ms) = took_ms(record) {
                let longest = longest_ms.entry(operation(&record.scope).to_owned()).or_insert(ms);
                *longest = ms.max(*longest);
            }
        }
        let local = LocalFacts::of_records(&records, facts);
        Self { records, local, longest_ms }
    }

    /// Returns the records in their order.
    pub fn all(&self) -> &[RecordView] {
        &self.records
    }

    /// What is known of the process of a record's client. Numbers of other hosts are not looked up.
    pub fn process(&self, record: &RecordView) -> Process {
        let pid = record.client.pid().filter(|_| !self.local.host.is_empty());
        match pid {
            Some(pid) if record.client.host() == self.local.host => self.local.process(pid),
            _ => Process::Unknown,
        }
    }

    /// Applies the rules to a record: the worst that was found.
    pub fn judge(&self, record: &RecordView) -> Option<(Rule, Severity)> {
        match record.state {
            RecordState::Running => self.about_claim(record),
            RecordState::Abandoned => Some((Rule::ClaimAbandoned, Severity::Warning)),
            RecordState::TooLarge => Some((Rule::ResultTooLarge, Severity::Notice)),
            RecordState::Done | RecordState::Failed if record.runs > 1 => {
                Some((Rule::WorkRepeated, Severity::Notice))
            }
            _ => None,
        }
    }

    fn about_claim(&self, record: &RecordView) -> Option<(Rule, Severity)> {
        let beat = beat(record);
        // The number may be that of another process, such as one in a container: what is renewed is alive.
        let severity = if beat.is_late() { Severity::Warning } else { Severity::Notice };
        match self.process(record) {
            Process::Present { stopped: true, .. } => return Some((Rule::Stopped, severity)),
            Process::Gone => return Some((Rule::HolderGone, severity)),
            Process::Present { .. } | Process::Unknown => {}
        }
        if beat.has_stopped() {
            return Some((Rule::RenewalsStopped, Severity::Warning));
        }
        let far_beyond = |longest| runs_for_ms(record) > LONG_WORK_MS.max(FAR_BEYOND.saturating_mul(longest));
        if self.longest_ms(record).is_some_and(far_beyond) {
            return Some((Rule::ClaimLong, Severity::Warning));
        }
        beat.is_late().then_some((Rule::LateRenewal, Severity::Notice))
    }

    /// How long the longest stored run of the same operation took, if one is stored.
    fn longest_ms(&self, record: &RecordView) -> Option<u64> {
        self.longest_ms.get(operation(&record.scope)).copied()
    }

    /// Explains the worst that was found. `command` is how the CLI is called for this store; `now_ms` is the wall clock.
    pub fn finding(&self, record: &RecordView, command: &str, now_ms: u64) -> Option<Finding> {
        let (rule, severity) = self.judge(record)?;
        let who = client(record);
        let left = span(record.lease_left_ms);
        let wait = Next::Do(format!("wait: when the lease ends in {left}, the next run does the work"));
        let check = Next::Do("find out whether its effect is there before the request is repeated".into());
        let refuse = Next::Do(
            "let the work refuse a second effect, by its key or by the fencing token of the claim".into(),
        );
        let (sentence, next) = match rule {
            Rule::ClaimAbandoned => {
                let process = match self.process(record) {
                    Process::Gone => " Its process is gone.",
                    Process::Present { stopped: true, .. } => " Its process is stopped.",
                    Process::Present { .. } => {
                        " A process of that number is here: it lost the claim, or is another one."
                    }
                    Process::Unknown => " Whether its process lives is not known here.",
                };
                let sentence = format!(
                    "No answer is stored: {who} wrote last {} ago, and its lease of {} has ended.{process} Its work may \
                     have been done, in part or whole; the next run does it again.",
                    span(now_ms.saturating_sub(record.written_at_ms)),
                    span(record.lease_ms)
                );
                (sentence, vec![check, refuse])
            }
            Rule::Stopped => {
                let resume = record.client.pid().map(|pid| Next::Run(format!("kill -CONT {pid}")));
                let sentence = format!(
                    "{who} is stopped, on this machine, and cannot renew its claim; the lease ends in {left}. Other runs \
                     wait for it."
                );
                (sentence, resume.into_iter().chain([wait]).collect())
            }
            Rule::HolderGone => {
                let sentence = format!(
                    "{who} is gone from this machine, and its claim is left; the lease ends in {left}. Its work may have \
                     been done, in part or whole."
                );
                (sentence, [Some(wait), forget(record, command), Some(check)].into_iter().flatten().collect())
            }
            Rule::RenewalsStopped | Rule::LateRenewal => {
                let sentence = format!(
                    "{who} renewed its claim {} ago, and every {} is expected; the lease ends in {left}. {}",
                    span(beat(record).since_ms),
                    span(record.lease_ms / 3),
                    self.heartbeat(record)
                );
                (sentence, vec![wait])
            }
            Rule::ClaimLong => {
                let sentence = format!(
                    "{who} works on it for {}, and the longest stored run of {} took {}. It renews its claim, so nothing \
                     ends it: the work may hang.",
                    span(runs_for_ms(record)),
                    sanitized(operation(&record.scope)),
                    self.longest_ms(record).map_or_else(String::new, span)
                );
                let look = Next::Do("look at what that process does; its end frees the key".into());
                (sentence, [Some(look), forget(record, command)].into_iter().flatten().collect())
            }
            Rule::ResultTooLarge => (
                "The work is done, and its answer was too large to be stored: each repetition fails."
                    .to_owned(),
                vec![Next::Do("let the work return a reference to its answer, such as an id".into())],
            ),
            _ => {
                let sentence = format!(
                    "Its work was begun {} times before an answer was stored: each earlier run may have had its effect, \
                     too.",
                    record.runs
                );
                (sentence, vec![Next::Do("find out whether the effect is there twice".into()), refuse])
            }
        };
        Some(Finding { rule, severity, sentence, next })
    }

    /// Tells a record in sentences: who, when, and what the next run gets. `now_ms` is the wall clock.
    pub fn told(&self, record: &RecordView, now_ms: u64) -> Vec<String> {
        let (scope, key) = (sanitized(&record.scope), sanitized(&record.key));
        let by = client(record);
        let ago = span(now_ms.saturating_sub(record.written_at_ms));
        let bytes = usize::try_from(record.result_bytes).unwrap_or(usize::MAX);
        let kept = match record.keep_left_ms {
            Some(left) => format!("kept for another {}", span(left)),
            None => "kept for ever".to_owned(),
        };
        let answer = format!("{}, {kept}", count(bytes, "byte", "bytes"));
        let first = match record.state {
            RecordState::Running => format!(
                "{key} in {scope} is running on {by}, for {}; its lease ends in {} unless renewed. Another run waits for it.",
                span(runs_for_ms(record)),
                span(record.lease_left_ms)
            ),
            RecordState::Abandoned => format!(
                "{key} in {scope} is abandoned: {by} claimed it and wrote last {ago} ago, then ended or lost its claim. Its \
                 work may have been done. The next run does it again."
            ),
            RecordState::Done => {
                format!("{key} in {scope} is done by {by}, {ago} ago ({answer}). Every run gets that answer.")
            }
            RecordState::Failed => {
                format!("{key} in {scope} failed on {by}, {ago} ago ({answer}). Every run gets that failure.")
            }
            RecordState::TooLarge => format!(
                "{key} in {scope} is done by {by}, {ago} ago. Its answer was too large to be stored, so every run fails \
                 without doing the work."
            ),
            _ => format!("{key} in {scope} is {}, {kept}.", record.state.code()),
        };
        let mut sentences = vec![first];
        if record.state == RecordState::Running {
            sentences.push(self.heartbeat(record));
            sentences.push(match self.longest_ms(record) {
                Some(longest) => {
                    format!(
                        "The longest stored run of {} took {}.",
                        sanitized(operation(&record.scope)),
                        span(longest)
                    )
                }
                None => "How long it usually takes is not known: no run of it is stored.".to_owned(),
            });
        }
        if record.runs > 1 {
            sentences
                .push(format!("It was begun {} times: earlier runs ended without an answer.", record.runs));
        }
        if !record.fingerprint.is_empty() {
            sentences.push(format!("Fingerprint of its payload: {}", sanitized(&record.fingerprint)));
        }
        if !record.is_token {
            sentences.push(format!("Fencing token of its claim: {}", record.fence));
        }
        sentences
    }

    /// What tells whether the client of a claim is alive.
    fn heartbeat(&self, record: &RecordView) -> String {
        let renewed = match record.renewals {
            0 => "It was not renewed yet".to_owned(),
            times => format!(
                "Its heartbeat: renewed {}, the last {} ago",
                count(times as usize, "time", "times"),
                span(beat(record).since_ms)
            ),
        };
        let process = match self.process(record) {
            Process::Present { stopped: true, .. } => "its process is stopped",
            Process::Present { .. } => "its process runs on this machine",
            Process::Gone => "its process is gone from this machine",
            Process::Unknown => "whether its process lives is not known here",
        };
        format!("{renewed}; {process}.")
    }
}

fn client(record: &RecordView) -> String {
    format!("host {} pid {}", sanitized(record.client.host()), record.client.pid().unwrap_or_default())
}

/// The command that frees a key whose client is not to come back; `None` where the names cannot be typed.
fn forget(record: &RecordView, command: &str) -> Option<Next> {
    let typed = [&record.scope, &record.key].into_iter().all(|text| sanitized(text) == *text);
    let names = format!("-- {} {}", shell_word(&record.scope), shell_word(&record.key));
    typed.then(|| Next::Run(format!("{command} idem forget --even-if-running {names}")))
}

/// A claim's lease is written at its claim and at each renewal.
fn beat(record: &RecordView) -> Beat {
    let since_ms = record.lease_ms.saturating_sub(record.lease_left_ms);
    Beat { since_ms, left_ms: record.lease_left_ms, every_ms: record.lease_ms / 3 }
}

/// How long a claim has been worked on, by the store's clock.
fn runs_for_ms(record: &RecordView) -> u64 {
    (record.written_at_ms + beat(record).since_ms).saturating_sub(record.claimed_at_ms)
}

/// How long the run took whose answer is stored.
fn took_ms(record: &RecordView) -> Option<u64> {
    let ended = matches!(record.state, RecordState::Done | RecordState::Failed | RecordState::TooLarge);
    (ended && !record.is_token).then(|| record.written_at_ms.saturating_sub(record.claimed_at_ms))
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
