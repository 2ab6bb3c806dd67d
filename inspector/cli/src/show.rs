//! `polylatch show`: one lock, in full.

use polylatch::ClientId;
use polylatch::inspect::{HolderView, LockView, Query, Snapshot};

use super::paint::{Paint, colour_of, colour_of_severity, wrap};
use super::store::{Failure, Store, print_json, print_line};
use super::{ShowArgs, exit};
use host::ThisHost;
use model::copy::is_foreign_key;
use model::deadline::gives_up;
use model::text::{APART, bar, clock_time, count, sanitized, span};
use model::{Beat, Evidence, Finding, Next};
use model::{Process, overview_by, sharing};

/// Width of the left column.
const KEY: usize = 10;

/// Most waiters and breaks that are listed.
const MOST_LISTED: usize = 20;

pub(super) async fn show(url: Option<&str>, args: &ShowArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let host = ThisHost::new();
    if args.foreign {
        return foreign(&store, args, &host).await;
    }
    // Deadlocks run across locks, so all are read and one is shown.
    let (mut snapshot, before) = store.read_for_rings(&Query::default(), &host).await?;
    if !snapshot.locks.iter().any(|lock| lock.name == args.name) {
        let only = store.read(&Query { name: Some(args.name.clone()), ..Query::default() }).await?;
        snapshot.locks.extend(only.locks.into_iter().filter(|lock| lock.name == args.name));
    }
    if !snapshot.locks.iter().any(|lock| lock.name == args.name) {
        snapshot.locks.push(LockView::new(args.name.clone(), "mutex"));
    }
    snapshot.audit.retain(|entry| entry.name == args.name);
    let evidence = Evidence::new(&snapshot, &host, &store.command);
    let evidence = before.iter().fold(evidence, |evidence, before| evidence.since(before));
    page(&store, args, &snapshot, &evidence)
}

/// Shows another library's lock by its key.
async fn foreign(store: &Store, args: &ShowArgs, host: &ThisHost) -> Result<u8, Failure> {
    let query = Query { foreign: Some(exactly(&args.name)), ..Query::default() };
    let mut snapshot = store.read(&query).await?;
    if snapshot.backend != "redis" {
        let message = format!(
            "--foreign reads other libraries' keys on Redis, and {} is {}; leave it out",
            store.shown_url(),
            sanitized(&snapshot.backend)
        );
        return Err(Failure::new(exit::USAGE, message));
    }
    if !snapshot.locks.iter().any(|lock| lock.name == args.name && is_foreign_key(lock)) {
        let (key, url) = (sanitized(&args.name), store.shown_url());
        let message = format!("the key \"{key}\" in {url} holds no lock of a library that is known");
        return Err(Failure::new(exit::NOTHING_DONE, message));
    }
    snapshot.locks.retain(|lock| lock.name == args.name && is_foreign_key(lock));
    snapshot.audit.clear();
    page(store, args, &snapshot, &Evidence::new(&snapshot, host, &store.command))
}

/// The pattern that only this key matches.
fn exactly(key: &str) -> String {
    let mut pattern = String::with_capacity(key.len());
    for c in key.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

fn page(store: &Store, args: &ShowArgs, snapshot: &Snapshot, evidence: &Evidence<'_>) -> Result<u8, Failure> {
    let mut overview = overview_by(snapshot, evidence);
    let at = overview.rows.iter().position(|row| *row.key.lock == *args.name).unwrap_or(0);
    overview.rows = vec![overview.rows.swap_remove(at)];
    overview.findings = vec![overview.findings.swap_remove(at)];
    if args.json {
        print_json(store.client.url_for_display(), snapshot, &overview)?;
        return Ok(0);
    }
    let paint = Paint::for_stdout();
    let row = &overview.rows[0];
    let lock = &snapshot.locks[row.index];
    let state = paint.sgr(colour_of(row.state), &paint.state(row.state));
    let waiting = match row.waiters {
        0 => String::new(),
        waiters => format!(", {waiters} waiting"),
    };
    let mut page =
        Page { paint, lines: vec![format!("{}  {state}{waiting}", paint.bold(&row.name)), String::new()] };
    page.why(&overview.findings[0]);
    for holder in lock.holders.iter().take(MOST_LISTED) {
        page.holder(lock, holder, snapshot, evidence);
    }
    page.more(lock.holders.len());
    page.votes(lock, evidence);
    page.waiters(lock, evidence, snapshot.taken_at_ms);
    page.next(&overview.findings[0]);
    if snapshot.backend == "redis" && lock.holders.is_empty() && lock.waiters.is_empty() {
        let text = "This is the Polylatch lock of that name. A key of another library: --foreign";
        page.line("Note", text);
    }
    page.breaks(snapshot, evidence);
    let at = clock_time(snapshot.taken_at_ms, snapshot.taken_at_ms);
    page.lines.push(String::new());
    page.lines.push(paint.dim(&format!("{} at {at} UTC", store.shown_url())));
    for line in page.lines {
        print_line(&line)?;
    }
    Ok(0)
}

/// Marks a process number that does not count here, such as one in a container.
fn apart(evidence: &Evidence<'_>, id: &ClientId) -> String {
    if evidence.is_apart(id) { format!(", {APART}") } else { String::new() }
}

struct Page {
    paint: Paint,
    lines: Vec<String>,
}

impl Page {
    fn line(&mut self, key: &str, value: &str) {
        let columns = self.paint.columns.map(|columns| columns.saturating_sub(KEY + 2).max(20));
        for (at, part) in wrap(value, columns).iter().enumerate() {
            let key = self.paint.dim(&format!("{:KEY$}", if at == 0 { key } else { "" }));
            self.lines.push(format!("  {key}{part}"));
        }
    }

    fn why(&mut self, findings: &[Finding]) {
        for (at, finding) in findings.iter().enumerate() {
            let first = self.lines.len();
            self.line(if at == 0 { "Why" } else { "Also" }, &finding.sentence);
            let code = colour_of_severity(finding.severity);
            for line in &mut self.lines[first..] {
                let value = line.rfind("\x1b[0m").map_or(0, |at| at + 4);
                if self.paint.colour {
                    let text = line.split_off(value);
                    line.push_str(&self.paint.sgr(code, &text));
                }
            }
        }
    }

    fn holder(&mut self, lock: &LockView, holder: &HolderView, snapshot: &Snapshot, evidence: &Evidence<'_>) {
        let now = snapshot.taken_at_ms;
        self.lines.push(String::new());
        match &holder.client {
            None => self.line("Holder", "a program that is not Polylatch; the store does not say which"),
            Some(id) => {
                let (host, pid) = evidence.place(id);
                let process = match evidence.process(holder) {
                    Process::Present { stopped: true, .. } => ", on this machine, stopped".into(),
                    Process::Present { .. } => ", on this machine, running".into(),
                    Process::Gone => ", on this machine, gone".into(),
                    Process::Unknown => apart(evidence, id),
                };
                self.line("Holder", &format!("{host} pid {pid}{process}"));
                if let Some(client) = evidence.client(id) {
                    let started = client
                        .process_started_at_ms
                        .map(|at| format!(", started {} UTC", clock_time(at, now)))
                        .unwrap_or_default();
                    let (program, language) = (sanitized(&client.program), sanitized(&client.language));
                    let version = sanitized(&client.version);
                    self.line("Program", &format!("{program} ({language} {version}){started}"));
                }
            }
        }
        if !holder.label.is_empty() {
            self.line("Label", &sanitized(&holder.label));
        }
        if let Some(share) = sharing::share(lock, holder) {
            self.line("Share", &share);
        }
        if let Some(token) = holder.fencing_token {
            self.line("Token", &format!("{token}  (fencing token; what `break --token` expects)"));
        }
        let since = holder
            .acquired_at_ms
            .map(|at| format!(", since {} UTC", clock_time(at, now)))
            .unwrap_or_default();
        self.line(
            "Held",
            &format!("{}{since}", holder.held_for_ms.map_or_else(|| "the store does not say".into(), span)),
        );
        let lease = match (holder.remaining_ms, holder.lease_ms) {
            (Some(left), Some(lease)) => {
                format!("{} {} left of {}", bar(left, lease, 20), span(left), span(lease))
            }
            (Some(left), None) => format!("{} left", span(left)),
            (None, _) => "no end, or the store does not say".into(),
        };
        self.line("Lease", &lease);
        let every =
            Beat::of(holder).map(|beat| format!(", due every {}", span(beat.every_ms))).unwrap_or_default();
        let renewed = match (holder.renewals, holder.renewed_ago_ms) {
            (Some(0), _) => format!("not yet{every}"),
            (Some(times), Some(ago)) => {
                let times = count(usize::try_from(times).unwrap_or(usize::MAX), "time", "times");
                format!("{times}, last {} ago{every}", span(ago))
            }
            _ => "the store does not say".into(),
        };
        self.line("Renewed", &renewed);
        if let Some(ago) = holder.idle_ago_ms {
            self.line("Kept", &format!("between its client's callers, none was in {} ago", span(ago)));
        }
        let of_session = |name: &str| holder.details.iter().find(|detail| detail.name == name);
        if let Some(session) = of_session("session") {
            let more = ["session TTL", "lock-delay", "node"].into_iter().filter_map(of_session);
            let more: String =
                more.map(|detail| format!(", {} {}", detail.name, sanitized(&detail.value))).collect();
            self.line("Session", &format!("{}{more}", sanitized(&session.value)));
        }
    }

    fn votes(&mut self, lock: &LockView, evidence: &Evidence<'_>) {
        if !lock.votes.is_empty() {
            self.lines.push(String::new());
        }
        for (at, vote) in lock.votes.iter().enumerate() {
            let left =
                vote.remaining_ms.map(|left| format!(", for another {}", span(left))).unwrap_or_default();
            let says = match (vote.reached, &vote.owner_digest, &vote.client) {
                (false, ..) => "does not answer".into(),
                (true, None, _) => "free".into(),
                (true, Some(_), Some(id)) => format!("held by {}{left}", evidence.who(id)),
                (true, Some(_), None) => format!("held by another program{left}"),
            };
            self.line(if at == 0 { "Nodes" } else { "" }, &format!("{}: {says}", sanitized(&vote.node)));
        }
    }

    fn waiters(&mut self, lock: &LockView, evidence: &Evidence<'_>, taken_at_ms: u64) {
        if lock.holders.is_empty() && !lock.waiters.is_empty() {
            self.lines.push(String::new());
        }
        for (at, waiter) in lock.waiters.iter().take(MOST_LISTED).enumerate() {
            let who = evidence.who(&waiter.client);
            let label = sanitized(&waiter.label);
            let label = if label.is_empty() || who.contains(&label) {
                String::new()
            } else {
                format!(" \"{label}\"")
            };
            let silent = if waiter.silent { ", silent: will be skipped" } else { "" };
            let (wish, waited) = (sharing::wish(waiter), span(waiter.waited_ms));
            let place = apart(evidence, &waiter.client);
            let limit = match gives_up(waiter, taken_at_ms) {
                limit if limit.is_empty() => limit,
                limit => format!(", {limit}"),
            };
            let text = format!("{}. {who}{label}{wish}, for {waited}{limit}{silent}{place}", at + 1);
            self.line(if at == 0 { "Waiting" } else { "" }, &text);
        }
        self.more(lock.waiters.len());
        for (at, what) in lock.unreadable().enumerate() {
            self.line(if at == 0 { "Unreadable" } else { "" }, &sanitized(what));
        }
    }

    fn next(&mut self, findings: &[Finding]) {
        let steps: Vec<&Next> = findings.iter().flat_map(|finding| &finding.next).collect();
        if steps.is_empty() {
            return;
        }
        self.lines.push(String::new());
        let mut told = Vec::new();
        for step in steps {
            if told.contains(&step) {
                continue;
            }
            let key = if told.is_empty() { "Next" } else { "or" };
            match step {
                Next::Do(advice) => self.line(key, advice),
                // A command is not wrapped: it must stay one line to be copied.
                Next::Run(command) => {
                    let key = self.paint.dim(&format!("{key:KEY$}"));
                    self.lines.push(format!("  {key}{}", self.paint.bold(command)));
                }
            }
            told.push(step);
        }
    }

    fn breaks(&mut self, snapshot: &Snapshot, evidence: &Evidence<'_>) {
        if snapshot.audit.is_empty() {
            return;
        }
        self.lines.push(String::new());
        for (at, entry) in snapshot.audit.iter().take(MOST_LISTED).enumerate() {
            let text = format!(
                "{} UTC by {}: \"{}\" (token {} of {})",
                clock_time(entry.at_ms, snapshot.taken_at_ms),
                sanitized(&entry.by),
                sanitized(&entry.reason),
                entry.fencing_token,
                evidence.who(&entry.holder),
            );
            self.line(if at == 0 { "Broken" } else { "" }, &text);
        }
        self.more(snapshot.audit.len());
    }

    fn more(&mut self, total: usize) {
        if total > MOST_LISTED {
            self.line("", &format!("and {} more; --json has all", total - MOST_LISTED));
        }
    }
}
