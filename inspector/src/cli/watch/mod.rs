//! `polylatch watch`: a live table on a terminal, or events line by line.

mod app;
mod draw;
mod live;
pub(super) mod page;
#[cfg(test)]
#[path = "tests.rs"]
mod screens;
pub(super) mod terminal;

use std::io::IsTerminal;

use polylatch::ClientId;
use polylatch::inspect::{Event, EventKind, Query};

use super::WatchArgs;
use super::paint::say;
use super::store::{Failure, Store, json, print_line};
use crate::host::ThisHost;
use crate::model::findings::Evidence;
use crate::model::text::{clock_time, count, harmless, span};

pub(super) async fn watch(url: Option<&str>, args: &WatchArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let (prefix, foreign) = (args.prefix.clone(), args.foreign.clone());
    let query = Query { prefix, foreign, ..Query::default() };
    let interactive = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if interactive && !args.json {
        // A store that cannot be read at all is told on the normal screen.
        store.read(&query).await?;
        return live::watch(&store, url, args).await;
    }
    let host = ThisHost::new();
    let mut watch = store.client.inspect().watch(query, args.every);
    let mut first = true;
    let mut in_trouble = false;
    loop {
        let seen = match watch.next().await {
            Ok(seen) => seen,
            Err(error) if first => return Err(error.into()),
            Err(error) => {
                // Told once per outage; the next good look compares with the last good one.
                if !in_trouble {
                    say(&format!("not known for now: {}", harmless(&error.to_string())));
                }
                in_trouble = true;
                tokio::time::sleep(args.every).await;
                continue;
            }
        };
        if first {
            let locks = count(seen.snapshot.locks.len(), "lock", "locks");
            say(&format!("watching {} with {locks} now; Ctrl-C leaves", store.shown_url()));
        }
        (first, in_trouble) = (false, false);
        let evidence = Evidence::new(&seen.snapshot, &host, &store.command);
        for event in seen.events.iter().filter(|event| is_wanted(event, args)) {
            if args.json {
                print_line(&json(event, false)?)?;
            } else {
                print_line(&line(event, seen.snapshot.taken_at_ms, |id| evidence.who(id)))?;
            }
        }
    }
}

/// Breaks of locks that were in neither reading come without regard to the prefix.
fn is_wanted(event: &Event, args: &WatchArgs) -> bool {
    let under = args.prefix.as_deref().is_none_or(|prefix| event.lock.starts_with(prefix));
    under && (args.json || args.renewals || !matches!(event.kind, EventKind::Renewed { .. }))
}

/// One event as a line: when, what, which lock, who. What `who` returns must be harmless.
pub(crate) fn line(event: &Event, now_ms: u64, who: impl Fn(&ClientId) -> String) -> String {
    let at = clock_time(event.at_ms, now_ms);
    let (word, detail) = told(&event.kind);
    let who = event.client.as_ref().map_or_else(|| "another program".into(), who);
    let label =
        if event.label.is_empty() { String::new() } else { format!(" \"{}\"", harmless(&event.label)) };
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    format!("{at}  {word:<10}  {}  {who}{label}{detail}", harmless(&event.lock))
}

fn told(kind: &EventKind) -> (&'static str, String) {
    match kind {
        EventKind::Waiting { position: 0 } => ("waits", "next in line".into()),
        EventKind::Waiting { position } => ("waits", format!("{position} before it")),
        EventKind::StoppedWaiting => ("left line", String::new()),
        EventKind::Granted { fencing_token: Some(token) } => ("granted", format!("token {token}")),
        EventKind::Granted { fencing_token: None } => ("granted", String::new()),
        EventKind::Converted { mode, fencing_token } => {
            let token = fencing_token.map(|token| format!(", token {token}")).unwrap_or_default();
            ("converted", format!("to {mode}{token}"))
        }
        EventKind::Renewed { renewals } => ("renewed", format!("{renewals}x")),
        EventKind::Endangered { remaining_ms } => {
            ("endangered", format!("the renewal is late, {} left", span(*remaining_ms)))
        }
        EventKind::Released => ("released", String::new()),
        EventKind::Expired => ("expired", String::new()),
        EventKind::Broken { by, reason } => {
            ("broken", format!("by {}: \"{}\"", harmless(by), harmless(reason)))
        }
    }
}

/// The SGR code of an event.
pub(super) fn colour_of_event(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Granted { .. } | EventKind::Converted { .. } => "32",
        EventKind::Waiting { .. } => "36",
        EventKind::Endangered { .. } => "33",
        EventKind::Expired | EventKind::Broken { .. } => "1;33",
        EventKind::Released | EventKind::Renewed { .. } | EventKind::StoppedWaiting => "2",
    }
}

#[cfg(test)]
mod tests {
    use polylatch::FencingToken;

    use super::*;
    use crate::model::NoHostFacts;

    #[test]
    fn an_event_is_one_harmless_line() {
        let snapshot = polylatch::inspect::Snapshot {
            backend: "memory".into(),
            taken_at_ms: 1_795_131_062_000,
            round_trip: std::time::Duration::ZERO,
            requests: 1,
            locks: vec![],
            clients: vec![],
            audit: vec![],
            truncated: false,
            troubles: Vec::new(),
        };
        let evidence = Evidence::new(&snapshot, &NoHostFacts, "polylatch");
        let mut event = Event {
            at_ms: snapshot.taken_at_ms,
            lock: "a\nb".into(),
            client: None,
            label: "x\u{1b}".into(),
            kind: EventKind::Granted { fencing_token: Some(FencingToken::new(7)) },
        };
        let text = r#"23:31:02  granted     a\u{a}b  another program "x\u{1b}": token 7"#;
        let who = |id: &ClientId| evidence.who(id);
        assert_eq!(line(&event, snapshot.taken_at_ms, who), text);
        event.kind = EventKind::Broken { by: "eve\u{9b}".into(), reason: "\u{202e}".into() };
        assert!(!line(&event, snapshot.taken_at_ms, who).chars().any(crate::model::text::is_treacherous));
    }
}
