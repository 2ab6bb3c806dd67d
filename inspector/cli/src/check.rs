//! `polylatch check`: one line and an exit code, for cron and probes.

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;
use polylatch::inspect::Query;
use serde::Serialize;

use super::exit;
use super::idem::records::{Found, found, read};
use super::rules::{is_finding, parse_rule};
use super::settled::settle;
use super::store::{Failure, JSON_VERSION, Store, json, print_line};
use host::duration::parse_duration;
use host::poll::ViewerClock;
use model::Next;
use model::text::{count, sanitized, span};
use model::{ConnectionId, Fleet, Row, Rule, Severity};

/// Check locks and print one line, with an exit code for cron and probes
///
/// Judges as `polylatch show` and the window do. What is found is looked at again, for up to 5 s, until it is
/// certain; a store in which nothing is found is read once.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct CheckArgs {
    /// Only these locks; without a name, all of them
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Only locks whose name starts with this
    #[arg(long, value_name = "TEXT", conflicts_with = "names")]
    prefix: Option<String>,

    /// Warn if a client has waited for longer than this, such as 30s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_wait: Option<Duration>,

    /// Warn if a lock is held for longer than this, such as 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_hold: Option<Duration>,

    /// Warn if more clients than this wait for one lock
    #[arg(long, value_name = "NUMBER")]
    max_waiters: Option<usize>,

    /// Also check the keys of idempotent work of the scopes that start with this; "" for all of them
    ///
    /// Their records are read one by one, up to 100 000: a stuck claim, work that may have been done twice.
    #[arg(long, value_name = "PREFIX")]
    scope: Option<String>,

    /// Only findings of this code, also those that are a notice only; may be repeated
    #[arg(long = "finding", value_name = "CODE", value_parser = parse_rule)]
    findings: Vec<Rule>,

    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  polylatch check
  polylatch check nightly/backup --max-hold 2h
  polylatch check --prefix orders/ --max-wait 30s --max-waiters 50
  polylatch check --finding STOPPED --finding DEADLOCK
  polylatch check --scope orders/
  polylatch check --json | jq -r '.findings[].code'

A finding is critical if it will not go away by itself (severity problem in \
`polylatch show`): a deadlock, a stopped holder, a store that refuses writes. \
The limits given here are warnings. Findings that need a history, such as a \
hold far beyond the usual, are found by `polylatch exporter` and `watch`.

Exit codes:
  0    nothing was found
  1    a warning
  2    a critical finding
  64   the command line is wrong
  69   the store cannot be reached or refuses to be read";

/// So many records of idempotent work are read.
const MOST_RECORDS: usize = 100_000;

/// Findings that one line has; the rest is counted.
const MOST_TOLD: usize = 3;

/// Something that is not as it should be.
#[derive(Debug, Serialize)]
struct Case {
    /// Empty if it is not about a lock.
    lock: String,
    /// The scope and the key of idempotent work, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<[String; 2]>,
    code: &'static str,
    severity: Severity,
    sentence: String,
    next: Vec<Next>,
}

#[derive(Serialize)]
struct Told<'a> {
    version: u32,
    url: &'a str,
    status: &'static str,
    locks: usize,
    held: usize,
    waiting: usize,
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<usize>,
    findings: &'a [Case],
}

pub(super) async fn check(url: Option<&str>, args: &CheckArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let id = ConnectionId::new("store");
    let mut fleet = Fleet::default();
    let query = Query { prefix: args.prefix.clone(), ..Query::default() };
    let counts = |rule| args.findings.contains(&rule);
    settle(&mut fleet, &id, &store, &query, &args.names, &counts).await?;
    let now_ms = ViewerClock::start().now_ms();
    let rows = rows(&fleet, &id, args);
    let mut cases = of_store(&fleet, now_ms, args);
    let of_all = cases.iter().any(|case| case.severity == Severity::Problem);
    cases.extend(of_locks(&fleet, &rows, args, of_all));
    let mut of_records = None;
    if let Some(prefix) = asked_scope(args) {
        let records = read(&store, prefix, MOST_RECORDS).await?;
        of_records = Some(records.all().len());
        let asked_for = |found: &Found| is_asked_for(args, found.rule, found.severity);
        cases.extend(found(&store, &records).into_iter().filter(asked_for).map(of_record));
    }
    // The worst first; in between the order of names.
    cases.sort_by_key(|case| std::cmp::Reverse(case.severity));

    let (status, code) = match cases.first().map(|case| case.severity) {
        None => ("ok", 0),
        Some(Severity::Problem) => ("critical", exit::CRITICAL),
        Some(_) => ("warning", exit::WARNING),
    };
    let held = rows.iter().filter(|row| row.holders > 0).count();
    let waiting = rows.iter().map(|row| row.waiters).sum();
    let too_many = of_records == Some(MOST_RECORDS);
    let truncated =
        too_many || fleet.store(&id).and_then(|store| store.snapshot()).is_some_and(|seen| seen.truncated);
    if args.json {
        let url = &store.shown_url();
        let locks = rows.len();
        let (version, records) = (JSON_VERSION, of_records);
        let told = Told { version, url, status, locks, held, waiting, truncated, records, findings: &cases };
        print_line(&json(&told, true)?)?;
    } else if cases.is_empty() {
        let more = match truncated {
            true if too_many => "; more records than were read",
            true => "; more locks than were read",
            false => "",
        };
        let locks = count(rows.len(), "lock", "locks");
        let keys = of_records.map(|keys| format!(" and {}", count(keys, "key", "keys"))).unwrap_or_default();
        print_line(&format!("ok: nothing found in {locks} ({held} held, {waiting} waiting){keys}{more}"))?;
    } else {
        print_line(&format!("{status}: {}", line(&cases)))?;
    }
    Ok(code)
}

/// Which scopes are asked for: also all of them by the code of a finding that only records have.
fn asked_scope(args: &CheckArgs) -> Option<&str> {
    let by_code = args.findings.iter().any(|rule| rule.is_of_records());
    args.scope.as_deref().or_else(|| by_code.then_some(""))
}

fn of_record(found: Found) -> Case {
    let Found { scope, key, rule, severity, sentence, next } = found;
    Case { lock: String::new(), record: Some([scope, key]), code: rule.code(), severity, sentence, next }
}

/// The rows that are asked for, in the order of names.
fn rows<'a>(fleet: &'a Fleet, id: &ConnectionId, args: &CheckArgs) -> Vec<&'a Row> {
    let names: HashSet<&str> = args.names.iter().map(String::as_str).collect();
    let is_meant = |row: &&Row| names.is_empty() || names.contains(&*row.key.lock);
    fleet.store(id).map(|store| store.rows().iter().filter(is_meant).collect()).unwrap_or_default()
}

fn is_asked_for(args: &CheckArgs, rule: Rule, severity: Severity) -> bool {
    match args.findings.as_slice() {
        [] => severity >= Severity::Warning,
        codes => codes.contains(&rule),
    }
}

/// What is found about the store itself.
fn of_store(fleet: &Fleet, now_ms: u64, args: &CheckArgs) -> Vec<Case> {
    let found = fleet.attention(now_ms).into_iter().filter(|attention| attention.key.lock.is_empty());
    let asked_for = found.map(|attention| attention.finding);
    let asked_for = asked_for.filter(|finding| is_asked_for(args, finding.rule, finding.severity));
    asked_for
        .map(|finding| Case {
            lock: String::new(),
            record: None,
            code: finding.rule.code(),
            severity: finding.severity,
            sentence: finding.sentence,
            next: finding.next,
        })
        .collect()
}

/// What is found about locks. `of_all`: the store has told already what all of them have in common.
fn of_locks(fleet: &Fleet, rows: &[&Row], args: &CheckArgs, of_all: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut rings = HashSet::new();
    for row in rows {
        let wanted = |rule, severity| {
            let told = of_all && matches!(rule, Rule::WritesRefused | Rule::NoQuorum);
            is_finding(rule) && !told && is_asked_for(args, rule, severity)
        };
        if row.verdicts.iter().any(|verdict| wanted(verdict.rule, verdict.severity)) {
            for finding in fleet.explain(&row.key) {
                let ring = matches!(finding.rule, Rule::Deadlock | Rule::MayDeadlock);
                // One ring is found in each of its locks.
                if !wanted(finding.rule, finding.severity) || ring && !rings.insert(finding.sentence.clone())
                {
                    continue;
                }
                cases.push(Case {
                    lock: row.name.clone(),
                    record: None,
                    code: finding.rule.code(),
                    severity: finding.severity,
                    sentence: finding.sentence,
                    next: finding.next,
                });
            }
        }
        cases.extend(beyond_limits(fleet, row, args));
    }
    cases
}

fn beyond_limits(fleet: &Fleet, row: &Row, args: &CheckArgs) -> Vec<Case> {
    let lock = fleet.lock(&row.key);
    let live = lock.iter().flat_map(|lock| &lock.waiters).filter(|waiter| !waiter.silent);
    let waited = live.map(|waiter| waiter.waited_ms).max();
    let held = lock.iter().flat_map(|lock| &lock.holders).filter_map(|holder| holder.held_for_ms).max();
    let over = |ms: Option<u64>, limit: Option<Duration>| {
        let limit = u64::try_from(limit?.as_millis()).unwrap_or(u64::MAX);
        ms.filter(|ms| *ms > limit).map(|ms| (span(ms), span(limit)))
    };
    let mut cases = Vec::new();
    let mut say = |code, sentence| {
        let (lock, next) = (row.name.clone(), Vec::new());
        cases.push(Case { lock, record: None, code, severity: Severity::Warning, sentence, next });
    };
    if let Some((waited, limit)) = over(waited, args.max_wait) {
        say("MAX-WAIT", format!("A client has waited for {waited}; the limit is {limit}."));
    }
    if let Some((held, limit)) = over(held, args.max_hold) {
        let by =
            if row.place.is_empty() { String::new() } else { format!(" by {} {}", row.place, row.program) };
        say("MAX-HOLD", format!("Held for {held}{}; the limit is {limit}.", by.trim_end()));
    }
    if let Some(limit) = args.max_waiters.filter(|limit| row.waiters > *limit) {
        say(
            "MAX-WAITERS",
            format!("{}; the limit is {limit}.", count(row.waiters, "client waits", "clients wait")),
        );
    }
    cases
}

fn line(cases: &[Case]) -> String {
    let one = |case: &Case| {
        let what = match (&case.record, case.lock.as_str()) {
            (Some([scope, key]), _) => format!("{key} in {scope}"),
            (None, "") => "the store".to_owned(),
            (None, lock) => lock.to_owned(),
        };
        format!("{what}: {}: {}", case.code, sanitized(case.sentence.trim_end_matches('.')))
    };
    let mut told: Vec<String> = cases.iter().take(MOST_TOLD).map(one).collect();
    match cases.len().saturating_sub(MOST_TOLD) {
        0 => {}
        more => told.push(format!("and {more} more")),
    }
    told.join("; ")
}
