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

use polylatch::inspect::{Event, EventKind, Query};

use super::WatchArgs;
use super::paint::say;
use super::store::{Failure, Store, json, print_line};
use host::ThisHost;
use model::Evidence;
use model::event::line;
use model::text::{count, sanitized};

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
                    say(&format!("not known for now: {}", sanitized(&error.to_string())));
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

/// Breaks of locks that were in neither snapshot come without regard to the prefix.
fn is_wanted(event: &Event, args: &WatchArgs) -> bool {
    let under = args.prefix.as_deref().is_none_or(|prefix| event.lock.starts_with(prefix));
    under && (args.json || args.renewals || !matches!(event.kind, EventKind::Renewed { .. }))
}

/// The SGR code of an event.
pub(super) fn colour_of_event(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Granted { .. } | EventKind::Converted { .. } => "32",
        EventKind::Waiting { .. } => "36",
        EventKind::Endangered { .. } => "33",
        EventKind::Expired | EventKind::Broken { .. } => "1;33",
        _ => "2",
    }
}
