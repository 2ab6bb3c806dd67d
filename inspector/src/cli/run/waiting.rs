//! What a person reads who waits for a lock: who holds it, since when, and the place in line.

use std::time::Duration;

use polylatch::inspect::{LockView, Query};

use crate::cli::paint::say;
use crate::cli::store::{Store, held_by};
use crate::host::ThisHost;
use crate::model::Severity;
use crate::model::findings::{Evidence, findings};
use crate::model::text::harmless;

/// A wait shorter than this is not worth a line.
const QUIET: Duration = Duration::from_secs(1);

/// How often the store is asked while waiting.
const EVERY: Duration = Duration::from_secs(1);

/// Tells once per change what is waited for; never ends.
pub(super) async fn tell(store: &Store, name: &str) {
    let host = ThisHost::new();
    let query = Query { name: Some(name.to_owned()), ..Query::default() };
    let mut told = None;
    tokio::time::sleep(QUIET).await;
    loop {
        // A store that does not answer is the acquisition's business, not this one's.
        if let Ok(snapshot) = store.client.inspect().list(&query).await
            && let Some(lock) = snapshot.locks.iter().find(|lock| lock.name == name)
        {
            let evidence = Evidence::new(&snapshot, &host, &store.command);
            let worst =
                findings(lock, &evidence).into_iter().find(|finding| finding.severity >= Severity::Warning);
            // Ages change all the time; a line is only worth it when something else does.
            let digest = lock.holders.first().map(|holder| holder.owner_digest.clone());
            let rule = worst.as_ref().map(|finding| finding.rule);
            let state = (digest, position(store, lock), rule);
            if told.as_ref() != Some(&state) && !lock.holders.is_empty() {
                let holder = held_by(&snapshot, name, &host).unwrap_or_default();
                let place = state.1.map(|at| format!("; {}", in_line(at))).unwrap_or_default();
                say(&format!("waiting for {}, {holder}{place}", harmless(name)));
                if let Some(finding) = worst {
                    say(&finding.sentence);
                }
                told = Some(state);
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn position(store: &Store, lock: &LockView) -> Option<u32> {
    lock.waiters.iter().find(|waiter| waiter.client == *store.client.id()).map(|waiter| waiter.position)
}

fn in_line(position: u32) -> String {
    match position {
        0 => "you are next".into(),
        1 => "1 before you".into(),
        before => format!("{before} before you"),
    }
}
