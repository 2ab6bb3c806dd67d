//! What a person reads who waits for a lock: who holds it, since when, and the place in line.

use std::time::Duration;

use polylatch::inspect::{LockView, Query};

use crate::paint::say;
use crate::store::{Store, held_by};
use host::ThisHost;
use model::text::sanitized;
use model::{Evidence, findings};
use model::{Rule, Severity};

/// A wait shorter than this is not worth a line.
const QUIET: Duration = Duration::from_secs(1);

/// How often the store is asked while waiting.
const EVERY: Duration = Duration::from_secs(1);

/// Tells once per change what is waited for; never ends.
pub(super) async fn tell(store: &Store, name: &str) {
    let host = ThisHost::new();
    let query = Query { name: Some(name.to_owned()), ..Query::default() };
    let mut told = Told::Nothing;
    tokio::time::sleep(QUIET).await;
    loop {
        match store.client.inspect().list(&query).await {
            // Whether to go on is the acquisition's business; that it hangs, a person wants to know.
            Err(error) => {
                if told != Told::Trouble {
                    say(&format!(
                        "still waiting for {}, but {}",
                        sanitized(name),
                        sanitized(&error.to_string())
                    ));
                }
                told = Told::Trouble;
            }
            Ok(snapshot) => {
                if let Some(lock) = snapshot.locks.iter().find(|lock| lock.name == name)
                    && let Some(holder) = lock.holders.first()
                {
                    let evidence = Evidence::new(&snapshot, &host, &store.command);
                    let worst = findings(lock, &evidence).into_iter().next();
                    let worst = worst.filter(|finding| finding.severity >= Severity::Warning);
                    let position = position(store, lock);
                    let rule = worst.as_ref().map(|finding| finding.rule);
                    // Ages change all the time; a line is only worth it when something else does.
                    let state = Told::Line { holder: holder.owner_digest.clone(), position, rule };
                    if told != state {
                        let holder = held_by(&snapshot, name, &host).unwrap_or_default();
                        let place = position.map(|at| format!("; {}", in_line(at))).unwrap_or_default();
                        say(&format!("waiting for {}, {holder}{place}", sanitized(name)));
                        if let Some(finding) = worst {
                            say(&finding.sentence);
                        }
                        told = state;
                    }
                }
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// What was reported last.
#[derive(PartialEq)]
enum Told {
    Nothing,
    Trouble,
    Line { holder: String, position: Option<u32>, rule: Option<Rule> },
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
