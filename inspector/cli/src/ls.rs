//! `polylatch ls`: the table.

use polylatch::inspect::{Query, Snapshot};

use super::LsArgs;
use super::paint::{Cell, Column, Paint, colour_of, colour_of_severity, table, wrap};
use super::store::{Failure, Store, print_json, print_line};
use host::ThisHost;
use model::Evidence;
use model::copy::show_command;
use model::text::{bar, clock_time, count, sanitized, short_span};
use model::{Finding, Overview, Row, Rule, Severity, health, overview_by};

/// Columns of the table; `watch` shows the same.
pub(super) const COLUMNS: [Column; 10] = [
    Column { title: "STATE", shrinks_to: None, leaves: None },
    Column { title: "LOCK", shrinks_to: Some(14), leaves: None },
    Column { title: "MODE", shrinks_to: None, leaves: Some(4) },
    Column { title: "HOLDER", shrinks_to: Some(16), leaves: None },
    Column { title: "LABEL", shrinks_to: Some(8), leaves: Some(2) },
    Column { title: "FENCE", shrinks_to: None, leaves: Some(0) },
    Column { title: "HELD", shrinks_to: None, leaves: None },
    Column { title: "LEASE", shrinks_to: None, leaves: Some(3) },
    Column { title: "RENEWED", shrinks_to: None, leaves: Some(1) },
    Column { title: "WAITING", shrinks_to: None, leaves: None },
];

const BAR: usize = 8;

/// Most explanations below the table.
const MOST_REASONS: usize = 5;

pub(super) async fn ls(url: Option<&str>, args: &LsArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let (prefix, foreign) = (args.prefix.clone(), args.foreign.clone());
    let query = Query { prefix, foreign, ..Query::default() };
    let host = ThisHost::new();
    let (snapshot, before) = store.read_for_rings(&query, &host).await?;
    let evidence = Evidence::new(&snapshot, &host, &store.command);
    let evidence = before.iter().fold(evidence, |evidence, before| evidence.since(before));
    let overview = overview_by(&snapshot, &evidence);
    if args.json {
        print_json(store.client.url_for_display(), &snapshot, &overview)?;
        return Ok(0);
    }
    let paint = Paint::for_stdout();
    if overview.rows.is_empty() {
        let health = health(&paint, &snapshot, &store.command);
        // A store that does not work is not empty, and no place to make a first lock.
        if snapshot.trouble().is_none() {
            for line in empty(&store, args.prefix.as_deref()) {
                print_line(&line)?;
            }
        } else {
            print_line("No lock was found.")?;
        }
        for line in health {
            print_line(&line)?;
        }
        return Ok(0);
    }
    let rows: Vec<Vec<Cell>> = overview.rows.iter().map(|row| cells(&paint, row)).collect();
    for line in table(&paint, &COLUMNS, &rows) {
        print_line(&line)?;
    }
    print_line("")?;
    print_line(&counts(&paint, &snapshot, &overview))?;
    print_line(&paint.dim(&place(&snapshot, &store.shown_url())))?;
    for line in health(&paint, &snapshot, &store.command) {
        print_line(&line)?;
    }
    for line in reasons(&paint, &snapshot, &overview, &store.command) {
        print_line(&line)?;
    }
    Ok(0)
}

/// What keeps the store, or nodes of it, from working.
fn health(paint: &Paint, snapshot: &Snapshot, command: &str) -> Vec<String> {
    let columns = paint.columns.map(|columns| columns.saturating_sub(2));
    let mut lines = Vec::new();
    let mut tell = |title: &str, text: &str| {
        lines.push(String::new());
        lines.push(paint.sgr("1;33", title));
        lines.extend(wrap(text, columns).iter().map(|line| format!("  {line}")));
    };
    if let Some(trouble) = snapshot.trouble() {
        tell(health::word(trouble), &health::sentence(trouble));
    }
    if let Some(down) = health::nodes_down(snapshot) {
        tell("nodes", &format!("{down}."));
    }
    if !lines.is_empty() {
        lines.push(format!("{} {command} doctor", paint.dim("What to do:")));
    }
    lines
}

/// The cells of one row, in the order of [`COLUMNS`].
pub(super) fn cells(paint: &Paint, row: &Row) -> Vec<Cell> {
    let held = !row.place.is_empty();
    let others = if row.holders > 1 { format!("+{}", row.holders - 1) } else { String::new() };
    let holder = format!("{} {} {others}", row.place, row.program).trim().to_owned();
    let lease = match (row.remaining_ms, row.lease_ms) {
        _ if !held => String::new(),
        (Some(left), lease) => format!("{} {:>5}", bar(left, lease.unwrap_or(left), BAR), short_span(left)),
        (None, _) => "no end known".into(),
    };
    let renewed = match (row.renewals, row.since_renewal_ms) {
        _ if !held => String::new(),
        (Some(0), _) => "not yet".into(),
        (Some(times), Some(ago)) => format!("{times}x, {} ago", short_span(ago)),
        _ => "?".into(),
    };
    let mut waiting =
        row.waited_ms.map(|waited| format!("{}, {}", row.waiters, short_span(waited))).unwrap_or_default();
    if row.silent > 0 {
        waiting = format!("{waiting} +{} silent", row.silent).trim_start().to_owned();
    }
    let held_for = match row.held_for_ms {
        _ if !held => String::new(),
        Some(held_for) => short_span(held_for),
        None => "?".into(),
    };
    vec![
        Cell { text: paint.state(row.state), sgr: colour_of(row.state) },
        Cell { text: row.name.clone(), sgr: "1" },
        row.mode.clone().into(),
        holder.into(),
        row.label.clone().into(),
        row.fencing_token.map(|token| token.to_string()).unwrap_or_default().into(),
        held_for.into(),
        Cell { text: lease, sgr: if row.severity() > Severity::Fine { colour_of(row.state) } else { "" } },
        renewed.into(),
        waiting.into(),
    ]
}

/// How many there are, and how many need attention.
pub(super) fn counts(paint: &Paint, snapshot: &Snapshot, overview: &Overview) -> String {
    let counts = &overview.summary;
    let mut parts = vec![count(counts.locks, "lock", "locks"), format!("{} held", counts.held)];
    if counts.waiting > 0 {
        parts.push(format!("{} waiting", counts.waiting));
    }
    if counts.attention > 0 {
        let needs = if counts.attention == 1 { "needs" } else { "need" };
        parts.push(paint.sgr("1;33", &format!("{} {needs} attention", counts.attention)));
    }
    if snapshot.truncated {
        parts.push(paint.sgr("1;33", "more locks exist than were read; give a prefix"));
    }
    parts.join(", ")
}

/// Where and when this was read.
pub(super) fn place(snapshot: &Snapshot, url: &str) -> String {
    let at = clock_time(snapshot.taken_at_ms, snapshot.taken_at_ms);
    format!("{url} at {at} UTC, read in {} ms", snapshot.round_trip.as_millis())
}

/// Why the first rows need attention. Locks with one reason in common, as in a deadlock, share it.
fn reasons(paint: &Paint, snapshot: &Snapshot, overview: &Overview, command: &str) -> Vec<String> {
    let mut reasons: Vec<(Vec<&str>, &Finding)> = Vec::new();
    let worst = overview.findings.iter().map(|findings| &findings[0]);
    // What all locks of the store have in common was told.
    let of_store = |rule| matches!(rule, Rule::WritesRefused | Rule::NoQuorum);
    let attention = overview
        .rows
        .iter()
        .zip(worst)
        .filter(|(_, worst)| worst.severity >= Severity::Warning && !of_store(worst.rule));
    for (row, finding) in attention {
        match reasons.iter().position(|(_, known)| known.sentence == finding.sentence) {
            Some(known) => reasons[known].0.push(&row.name),
            None if reasons.len() < MOST_REASONS => reasons.push((vec![&row.name], finding)),
            None => {}
        }
    }
    let mut lines = Vec::new();
    for (names, finding) in &reasons {
        lines.push(String::new());
        lines.push(paint.sgr(colour_of_severity(finding.severity), &names.join(", ")));
        let columns = paint.columns.map(|columns| columns.saturating_sub(2));
        lines.extend(wrap(&finding.sentence, columns).iter().map(|line| format!("  {line}")));
    }
    let first = reasons.first().and_then(|(names, _)| overview.rows.iter().find(|row| row.name == names[0]));
    if let Some(row) = first {
        let show = show_command(command, &snapshot.locks[row.index]);
        lines.push(String::new());
        lines.push(format!("{} {}", paint.dim("What to do:"), sanitized(&show)));
    }
    lines
}

fn empty(store: &Store, prefix: Option<&str>) -> Vec<String> {
    let url = store.shown_url();
    let command = &store.command;
    match prefix {
        Some(prefix) => vec![
            format!(
                "No lock whose name starts with \"{}\" is held or waited for in {url}.",
                sanitized(prefix)
            ),
            format!("All locks: {command} ls"),
        ],
        None => vec![
            format!("No lock is held or waited for in {url}."),
            String::new(),
            "Make one, and look again from another terminal:".into(),
            String::new(),
            format!("  {command} run demo/first -- sleep 30"),
            format!("  {command} ls"),
        ],
    }
}
