//! `polylatch doctor`: what this store can and cannot promise, and how to mend it.

use clap::Args;
use polylatch::inspect::{Check, CheckSeverity, Examination, Holds, Promise};
use polylatch::{Error, Polylatch};
use serde::Serialize;

use super::exit;
use super::paint::{Paint, wrap};
use super::store::{Failure, json, print_line, refuse_memory};
use model::text::{count, sanitized, width};

/// Examine the store: what this set-up can and cannot promise, and how to fix it
///
/// Looks at eviction, persistence, replicas, memory, permissions, messages and clocks of a Redis, or
/// at the file, its disk and its file system. Every finding says what it means and how to fix it.
///
/// Touches no lock: what has to be tried is tried under a throw-away key of the prefix.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct DoctorArgs {
    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  polylatch doctor
  polylatch doctor --url 'redis://cache?guarantee=strict'
  polylatch doctor --json | jq -r '.findings[] | select(.fix != \"\") | .fix'

Severities: problem (breaks a promise now, or keeps locks from working), \
warning (breaks one under circumstances that do occur), unknown (could not be \
looked at), notice, ok. What it says depends on the options in the URL, such \
as guarantee= and ack=, so give the URL that your programs use.

Exit codes:
  0    no warning and no problem
  1    at least one warning or problem
  64   the command line or the URL is wrong
  69   the store could not be examined: it cannot be reached or refuses";

/// Widest text; longer lines are hard to read.
const WIDEST: usize = 100;

pub(super) async fn doctor(url: Option<&str>, args: &DoctorArgs) -> Result<u8, Failure> {
    refuse_memory(url)?;
    let mut builder = Polylatch::builder();
    if let Some(url) = url {
        builder = builder.url(url);
    }
    let (report, code) = match builder.examine().await {
        Ok((url, examination)) => {
            let code = if examination.worst().needs_action() { exit::FINDINGS } else { 0 };
            (Report::of(url, examination), code)
        }
        Err(error) => (Report::of_failure(&error), exit::of(&error)),
    };
    if args.json {
        print_line(&json(&report, true)?)?;
    } else {
        for line in report.lines(&Paint::for_stdout()) {
            print_line(&line)?;
        }
    }
    Ok(code)
}

/// What is printed; as JSON, exactly this.
#[derive(Debug, Serialize)]
struct Report {
    /// Without secrets; missing if the store could not be examined.
    url: Option<String>,
    backend: Option<&'static str>,
    version: Option<String>,
    worst: CheckSeverity,
    findings: Vec<Check>,
    promises: Vec<Promise>,
}

impl Report {
    fn of(url: String, examination: Examination) -> Self {
        Self {
            url: Some(url),
            backend: Some(examination.backend),
            worst: examination.worst(),
            version: examination.version,
            findings: examination.findings,
            promises: examination.promises,
        }
    }

    /// The one finding that is left if the store cannot be examined.
    fn of_failure(error: &Error) -> Self {
        // Messages say first what is wrong and then, behind a semicolon, what to do.
        let (what, fix) = error.message().split_once("; ").unwrap_or((error.message(), ""));
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
        let detail = format!("{what}{cause}");
        let mut letters = fix.chars();
        let fix = match letters.next() {
            Some(first) => first.to_uppercase().chain(letters).collect(),
            None => "Fix what is said above, and look again".to_owned(),
        };
        let title = if exit::of(error) == exit::USAGE {
            "This URL cannot be used"
        } else {
            "The store could not be examined"
        };
        let check = Check::new(CheckSeverity::Problem, "connection", title, detail)
            .means("Programs that use this URL get this error instead of a lock.")
            .fix(fix);
        Self {
            url: None,
            backend: None,
            version: None,
            worst: CheckSeverity::Problem,
            findings: vec![check],
            promises: Vec::new(),
        }
    }

    fn lines(&self, paint: &Paint) -> Vec<String> {
        let columns = paint.columns.unwrap_or(WIDEST).min(WIDEST);
        let mut lines = Vec::new();
        if let Some(url) = &self.url {
            let version = self.version.as_deref().map(|version| format!(", {version}")).unwrap_or_default();
            lines.push(paint.bold(&sanitized(&format!("{url}{version}"))));
            lines.push(self.counts(paint));
            lines.push(String::new());
        }
        // What could not be looked at and has no fix of its own follows from another finding.
        let short = |check: &&Check| match check.severity {
            CheckSeverity::Ok => true,
            CheckSeverity::Unknown => check.fix.is_empty(),
            _ => false,
        };
        let (brief, shown): (Vec<&Check>, Vec<&Check>) = self.findings.iter().partition(short);
        for check in shown {
            lines.extend(finding(paint, check, columns));
            lines.push(String::new());
        }
        for kind in [CheckSeverity::Unknown, CheckSeverity::Ok] {
            let titles: Vec<String> = brief
                .iter()
                .filter(|check| check.severity == kind)
                .map(|check| sanitized(&check.title))
                .collect();
            if titles.is_empty() {
                continue;
            }
            let (sign, word, sgr) = severity(kind, paint);
            let mut wrapped =
                wrap(&titles.join("; "), Some(columns.saturating_sub(HANG).max(20))).into_iter();
            let first = wrapped.next().unwrap_or_default();
            lines.push(format!("{} {first}", paint.sgr(sgr, &format!("{sign} {word:<7}"))));
            lines.extend(wrapped.map(|line| format!("{:HANG$}{line}", "")));
            lines.push(String::new());
        }
        if !self.promises.is_empty() {
            lines.push(paint.bold("What this set-up promises"));
            lines.extend(promises(paint, &self.promises, columns));
        }
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    fn counts(&self, paint: &Paint) -> String {
        use CheckSeverity::{Notice, Ok, Problem, Unknown, Warning};
        let kinds = [
            (Problem, "problem", "problems"),
            (Warning, "warning", "warnings"),
            (Unknown, "not seen", "not seen"),
            (Notice, "notice", "notices"),
            (Ok, "fine", "fine"),
        ];
        let parts = kinds.iter().filter_map(|(kind, one, many)| {
            let number = self.findings.iter().filter(|check| check.severity == *kind).count();
            let sgr = if *kind == Ok { "" } else { severity(*kind, paint).2 };
            (number > 0).then(|| paint.sgr(sgr, &count(number, one, many)))
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Where text starts behind sign and word.
const HANG: usize = 10;

/// Sign, word and colour; the sign and the colour only repeat the word.
fn severity(severity: CheckSeverity, paint: &Paint) -> (&'static str, &'static str, &'static str) {
    let (unicode, plain, word, sgr) = match severity {
        CheckSeverity::Problem => ("✗", "x", "PROBLEM", "1;31"),
        CheckSeverity::Warning => ("!", "!", "WARNING", "1;33"),
        CheckSeverity::Unknown => ("?", "?", "unknown", "35"),
        CheckSeverity::Notice => ("·", "-", "notice", "36"),
        CheckSeverity::Ok => ("✓", "+", "fine", "32"),
    };
    (if paint.unicode { unicode } else { plain }, word, sgr)
}

fn finding(paint: &Paint, check: &Check, columns: usize) -> Vec<String> {
    let (sign, word, sgr) = severity(check.severity, paint);
    let head = format!("{sign} {word:<7}");
    let title = sanitized(&check.title);
    // The id is for those who look for it in scripts and in the documentation.
    let id = if width(&title) + HANG + check.id.len() + 3 <= columns {
        format!("  [{}]", check.id)
    } else {
        String::new()
    };
    let mut lines = vec![format!("{} {}{}", paint.sgr(sgr, &head), paint.bold(&title), paint.dim(&id))];
    let room = columns.saturating_sub(HANG + 6).max(20);
    let mut say = |key: &str, text: &str| {
        for (at, line) in wrap(&sanitized(text), Some(room)).iter().enumerate() {
            let key = if at == 0 { key } else { "" };
            lines.push(format!("{:HANG$}{}{line}", "", paint.dim(&format!("{key:<6}"))));
        }
    };
    say("seen", &check.detail);
    if !check.consequence.is_empty() {
        say("means", &check.consequence);
    }
    if !check.fix.is_empty() {
        let (command, remark) = check.fix.split_once("   # ").unwrap_or((&check.fix, ""));
        let is_command = command.starts_with(|c: char| c.is_ascii_lowercase());
        if is_command {
            // Each in one piece, however long: a command that was broken into lines cannot be copied.
            for (at, command) in command.split(" && ").enumerate() {
                let key = if at == 0 { "fix" } else { "" };
                let command = paint.sgr("36", &sanitized(command));
                lines.push(format!("{:HANG$}{}{command}", "", paint.dim(&format!("{key:<6}"))));
            }
            if !remark.is_empty() {
                let wrapped = wrap(&format!("# {}", sanitized(remark)), Some(room));
                lines.extend(wrapped.iter().map(|line| format!("{:1$}{2}", "", HANG + 6, paint.dim(line))));
            }
        } else {
            say("fix", &check.fix);
        }
    }
    lines
}

fn promises(paint: &Paint, promises: &[Promise], columns: usize) -> Vec<String> {
    // One reason against everything is said once.
    if let [first, rest @ ..] = promises
        && first.holds == Holds::No
        && rest.iter().all(|promise| promise.because == first.because)
    {
        let sign = if paint.unicode { "✗" } else { "x" };
        let text = format!("Nothing: {}", sanitized(&first.because));
        let wrapped = wrap(&text, Some(columns.saturating_sub(2).max(20)));
        let start = |at: usize| if at == 0 { paint.sgr("31", sign) } else { " ".to_owned() };
        return wrapped.iter().enumerate().map(|(at, line)| format!("{} {line}", start(at))).collect();
    }
    let widest = promises.iter().map(|promise| width(promise.what)).max().unwrap_or(0);
    let start = HANG + widest + 2;
    // Two columns of text need room; otherwise the reason stands below.
    let beside = columns >= start + 45;
    let mut lines = Vec::new();
    for promise in promises {
        let (unicode, plain, word, sgr) = match promise.holds {
            Holds::Yes => ("✓", "+", "yes", "32"),
            Holds::No => ("✗", "x", "no", "31"),
            Holds::Unknown => ("?", "?", "unknown", "35"),
        };
        let sign = if paint.unicode { unicode } else { plain };
        let head = paint.sgr(sgr, &format!("{sign} {word:<7}"));
        let indent = if beside { start } else { HANG + 2 };
        let because = sanitized(&promise.because);
        let wrapped = wrap(&because, Some(columns.saturating_sub(indent).max(20)));
        let mut wrapped = wrapped.iter();
        if beside {
            let first = wrapped.next().map_or("", String::as_str);
            let pad = widest - width(promise.what) + 2;
            lines.push(format!("{head} {}{:pad$}{}", promise.what, "", paint.dim(first)));
        } else {
            lines.push(format!("{head} {}", promise.what));
        }
        lines.extend(wrapped.map(|line| format!("{:indent$}{}", "", paint.dim(line))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: Vec<Check>) -> Report {
        Report {
            url: Some("redis://cache".into()),
            backend: Some("redis"),
            version: Some("Redis 7.4.2".into()),
            worst: findings.iter().map(|check| check.severity).max().unwrap(),
            findings,
            promises: vec![Promise::new(
                "exclusion",
                Holds::No,
                "the server may evict a held lock when memory is full, and then another gets it",
            )],
        }
    }

    fn check(severity: CheckSeverity) -> Check {
        Check::new(severity, "eviction", "Held locks can be evicted", "maxmemory 8 MiB \u{1b}[2J")
            .means("A held lock can vanish, and then somebody else gets it while its holder works.")
            .fix("redis-cli CONFIG SET maxmemory-policy noeviction && redis-cli CONFIG REWRITE   # at once")
    }

    fn paint(columns: usize) -> Paint {
        Paint { colour: false, unicode: false, columns: Some(columns) }
    }

    #[test]
    fn everything_but_a_command_fits_into_the_terminal_and_is_harmless() {
        for columns in [40, 80, 120] {
            let lines =
                report(vec![check(CheckSeverity::Problem), check(CheckSeverity::Ok)]).lines(&paint(columns));
            for line in &lines {
                assert!(width(line) <= columns || line.contains("redis-cli CONFIG"), "{columns}: {line}");
                assert!(!line.contains('\u{1b}'), "{line:?}");
            }
        }
    }

    #[test]
    fn a_command_stays_in_one_piece() {
        let lines = report(vec![check(CheckSeverity::Warning)]).lines(&paint(50));
        for command in ["redis-cli CONFIG SET maxmemory-policy noeviction", "  redis-cli CONFIG REWRITE"] {
            assert!(lines.iter().any(|line| line.ends_with(command)), "{lines:#?}");
        }
    }
}
