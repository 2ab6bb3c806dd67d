//! `polylatch break`: ends somebody's lease, after saying what that means.

use std::io::{BufRead, IsTerminal, Write};

use polylatch::FencingToken;
use polylatch::inspect::{BreakOutcome, BreakRequest, LockView, Query};

use super::paint::{Paint, stderr_columns, wrap};
use super::store::{Failure, Store, json, print_line};
use super::{BreakArgs, exit};
use host::{ThisHost, who_am_i};
use model::health;
use model::text::{count, name_argument, sanitized, span};
use model::{Beat, Evidence};

pub(super) async fn break_lease(url: Option<&str>, args: &BreakArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let name = sanitized(&args.name);
    let query = Query { name: Some(args.name.clone()), ..Query::default() };
    let snapshot = store.read(&query).await?;
    let host = ThisHost::new();
    let evidence = Evidence::new(&snapshot, &host, &store.command);
    let expected = FencingToken::new(args.token);
    let lock = snapshot.locks.iter().find(|lock| lock.name == args.name);

    let held = lock.and_then(|lock| lock.holders.last());
    let looked_at =
        lock.filter(|lock| lock.holders.iter().any(|holder| holder.fencing_token == Some(expected)));
    // Free, or changed hands, only as far as it is known.
    let unknown = snapshot.trouble().is_some() || lock.is_some_and(health::is_undecided);
    if unknown && looked_at.is_none() {
        let why = match snapshot.trouble() {
            Some(trouble) => health::sentence(trouble),
            None => health::nodes_down(&snapshot).unwrap_or_default(),
        };
        let message = format!("nothing broken: who holds {name} is not known; {why}");
        return Err(Failure::new(exit::UNAVAILABLE, message));
    }
    let outcome = match (looked_at, held) {
        (None, Some(holder)) if holder.fencing_token.is_none() => {
            let message =
                format!("{name} belongs to a program that is not Polylatch; its data is left as it is");
            return Err(Failure::new(exit::UNAVAILABLE, message));
        }
        // Nobody is asked about a lease that is not there.
        // Tokens only grow, so this one was never granted.
        (None, Some(holder)) if holder.fencing_token.is_some_and(|present| expected > present) => {
            let present = holder.fencing_token.unwrap_or(expected);
            return no_such_token(&store, args, expected, present);
        }
        (None, Some(holder)) => {
            BreakOutcome::ChangedHands { present: holder.fencing_token.unwrap_or(expected) }
        }
        (None, None) => BreakOutcome::Free,
        (Some(lock), _) => {
            if !args.yes {
                meaning(lock, expected, &evidence);
                confirm(lock, expected)?;
            }
            let (name, reason) = (args.name.clone(), args.reason.clone());
            let request = BreakRequest { name, expected, by: who_am_i(), reason };
            // The store compares the token again: the lock may change hands while somebody types.
            store.client.inspect().break_lease(&request).await?
        }
    };
    if args.json {
        print_line(&json(&outcome, false)?)?;
    }
    let (code, text) = match &outcome {
        BreakOutcome::Broken { holder, next } => {
            let who = evidence.who(holder);
            let next = match next {
                Some(next) => format!("Now held by {}.", evidence.who(next)),
                None if lock.is_some_and(|lock| lock.holders.len() > 1) => {
                    "Other clients still hold it.".into()
                }
                None => "It had no waiters, so it is free.".into(),
            };
            (0, format!("Broken: the lease {expected} of {who} on {name} is over. {next}"))
        }
        BreakOutcome::Free => (exit::NOTHING_DONE, format!("Nothing broken: {name} is free.")),
        BreakOutcome::ChangedHands { present } => {
            let text = format!(
                "Nothing broken: {name} is held under token {present}, not {expected}. It changed hands since, or the \
                 number is mistyped."
            );
            (exit::NOTHING_DONE, text)
        }
        _ => (
            exit::NOTHING_DONE,
            format!("What came of the break of {name} is not known here: look at it again."),
        ),
    };
    if !args.json {
        for line in wrap(&text, Paint::for_stdout().columns) {
            print_line(&line)?;
        }
        if matches!(outcome, BreakOutcome::ChangedHands { .. }) {
            print_line(&format!("Look again: {} show {}", store.command, name_argument(&name)))?;
        }
    }
    Ok(code)
}

/// Says that no lease can have had this token.
fn no_such_token(
    store: &Store,
    args: &BreakArgs,
    expected: FencingToken,
    present: FencingToken,
) -> Result<u8, Failure> {
    let name = sanitized(&args.name);
    if args.json {
        let outcome = serde_json::json!({ "outcome": "no_such_token", "present": present });
        print_line(&json(&outcome, false)?)?;
        return Ok(exit::NOTHING_DONE);
    }
    let text = format!(
        "Nothing broken: {name} was never held under token {expected}. The present one is {present}; check the number."
    );
    for line in wrap(&text, Paint::for_stdout().columns) {
        print_line(&line)?;
    }
    print_line(&format!("Look again: {} show {}", store.command, name_argument(&name)))?;
    Ok(exit::NOTHING_DONE)
}

/// Says what breaking will do.
fn meaning(lock: &LockView, expected: FencingToken, evidence: &Evidence<'_>) {
    let Some(holder) = lock.holders.iter().find(|holder| holder.fencing_token == Some(expected)) else {
        return;
    };
    let who = holder.client.as_ref().map_or_else(|| "unknown".into(), |id| evidence.who(id));
    let label =
        if holder.label.is_empty() { String::new() } else { format!(", \"{}\"", sanitized(&holder.label)) };
    let held = holder.held_for_ms.map(|ms| format!(", for {}", span(ms))).unwrap_or_default();
    let effect = match Beat::of(holder) {
        Some(beat) if !beat.is_late() => format!(
            "its renewals are on time, so it looks ALIVE. It learns of the break within about {}; until then two \
             may work at once.",
            span(beat.every_ms)
        ),
        Some(beat) => {
            let (since, left) = (span(beat.since_ms), span(beat.left_ms));
            format!("it has not renewed for {since}; the lease ends by itself in {left}.")
        }
        None => "whether it is alive is not known.".into(),
    };
    let next = match lock.waiters.iter().find(|waiter| !waiter.silent) {
        Some(next) => {
            let others = match lock.waiters.len() - 1 {
                0 => String::new(),
                others => format!("; {} more in the queue", others),
            };
            format!("{} gets the lock{others}", evidence.who(&next.client))
        }
        None => "no waiters; the lock will be free".into(),
    };
    let next = match lock.holders.len() {
        0 | 1 => next,
        several => format!(
            "{} it; the first waiter enters if there is room then",
            count(several - 1, "other client still holds", "other clients still hold")
        ),
    };
    eprintln!("Break the lease {expected} on {}:", sanitized(&lock.name));
    let columns = stderr_columns().map(|columns| columns.saturating_sub(11).max(20));
    for (key, value) in [("Holder", format!("{who}{label}{held}")), ("Effect", effect), ("Next", next)] {
        for (at, line) in wrap(&value, columns).iter().enumerate() {
            eprintln!("  {:9}{line}", if at == 0 { key } else { "" });
        }
    }
}

/// Asks the person at the terminal. A holder that looks alive is only broken by typing the name.
fn confirm(lock: &LockView, expected: FencingToken) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::new(exit::USAGE, "no terminal to ask at; add --yes to break without asking"));
    }
    let holder = lock.holders.iter().find(|holder| holder.fencing_token == Some(expected));
    let alive = holder.and_then(Beat::of).is_some_and(|beat| !beat.is_late());
    let (question, wanted) = if alive && sanitized(&lock.name) == lock.name {
        ("Type the lock's name to break it: ", lock.name.as_str())
    } else {
        ("Type yes to break it: ", "yes")
    };
    eprint!("{question}");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim_end_matches(['\r', '\n']) == wanted {
        return Ok(());
    }
    Err(Failure::new(exit::NOTHING_DONE, "not confirmed; nothing broken"))
}
