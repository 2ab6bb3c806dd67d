//! An event in words.

use polylatch::ClientId;
use polylatch::inspect::{Event, EventKind};

use super::text::{clock_time, sanitized, span};

/// One event as a line: when, what, which lock, who. What `who` returns must be sanitized.
pub fn line(event: &Event, now_ms: u64, who: impl Fn(&ClientId) -> String) -> String {
    let at = clock_time(event.at_ms, now_ms);
    let (word, detail) = told(&event.kind);
    let who = event.client.as_ref().map_or_else(|| "another program".into(), who);
    let label =
        if event.label.is_empty() { String::new() } else { format!(" \"{}\"", sanitized(&event.label)) };
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    format!("{at}  {word:<10}  {}  {who}{label}{detail}", sanitized(&event.lock))
}

fn told(kind: &EventKind) -> (&'static str, String) {
    match kind {
        EventKind::Waiting { position: 0 } => ("waits", "first in the queue".into()),
        EventKind::Waiting { position } => ("waits", format!("{position} before it")),
        EventKind::StoppedWaiting => ("left queue", String::new()),
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
            ("broken", format!("by {}: \"{}\"", sanitized(by), sanitized(reason)))
        }
        // A kind that is newer than this program.
        _ => ("changed", String::new()),
    }
}

#[cfg(test)]
mod tests {
    use polylatch::FencingToken;

    use super::*;
    use crate::Evidence;
    use crate::NoHostFacts;

    #[test]
    fn an_event_is_one_harmless_line() {
        let snapshot = polylatch::inspect::Snapshot::new("memory", 1_795_131_062_000);
        let evidence = Evidence::new(&snapshot, &NoHostFacts, "polylatch");
        let granted = EventKind::Granted { fencing_token: Some(FencingToken::new(7)) };
        let mut event = Event::new(snapshot.taken_at_ms, "a\nb", granted);
        event.label = "x\u{1b}".into();
        let text = r#"23:31:02  granted     a\u{a}b  another program "x\u{1b}": token 7"#;
        let who = |id: &ClientId| evidence.who(id);
        assert_eq!(line(&event, snapshot.taken_at_ms, who), text);
        event.kind = EventKind::Broken { by: "eve\u{9b}".into(), reason: "\u{202e}".into() };
        assert!(!line(&event, snapshot.taken_at_ms, who).chars().any(crate::text::is_treacherous));
    }
}
