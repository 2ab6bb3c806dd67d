//! The table as JSON, as CSV, and a row as Markdown.

use polylatch::inspect::LockView;
use serde::Serialize;

use super::connection::ConnectionId;
use super::copy::commands;
use super::finding::{Finding, Next};
use super::fleet::{Fleet, RowRef};
use super::rows::LockState;
use super::text::{clock_time, is_treacherous, sanitized, span};

#[derive(Serialize)]
struct Exported<'a> {
    connection: &'a ConnectionId,
    backend: &'a str,
    /// How old the snapshot is.
    age_ms: u64,
    state: LockState,
    findings: Vec<Finding>,
    #[serde(flatten)]
    lock: Option<&'a LockView>,
}

/// Writes rows as one JSON array, each with its connection, lock view, state and findings. Rows of locks
/// that went are left out.
pub fn json(fleet: &Fleet, rows: &[RowRef], now_ms: u64) -> String {
    let rows: Vec<Exported<'_>> = rows
        .iter()
        .map(|place| fleet.at(*place))
        .filter(|row| row.gone_at_ms.is_none())
        .map(|row| Exported {
            connection: &row.key.connection,
            backend: &row.backend,
            age_ms: now_ms.saturating_sub(row.sampled_at_ms),
            state: fleet.state(row, now_ms),
            findings: fleet.explain(&row.key),
            lock: fleet.lock(&row.key),
        })
        .collect();
    sanitized_json(&rows, true).unwrap_or_default() + "\n"
}

/// Writes JSON whose characters are all safe in a terminal; for a parser nothing changes.
pub fn sanitized_json(value: &impl Serialize, pretty: bool) -> Result<String, serde_json::Error> {
    let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) }?;
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        // Only strings can have such characters, and there an escape means the same.
        if is_treacherous(c) && c != '\n' {
            let mut units = [0; 2];
            safe.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            safe.push(c);
        }
    }
    Ok(safe)
}

const HEAD: [&str; 17] = [
    "state",
    "lock",
    "connection",
    "backend",
    "mode",
    "holder",
    "program",
    "language",
    "label",
    "fencing_token",
    "held_ms",
    "left_ms",
    "lease_ms",
    "renewals",
    "missed_beats",
    "waiters",
    "why",
];

/// Writes rows as CSV (RFC 4180) with a head line. Cells that a spreadsheet would take for a formula
/// begin with an apostrophe.
pub fn csv(fleet: &Fleet, rows: &[RowRef], now_ms: u64) -> String {
    let mut text = HEAD.join(",") + "\r\n";
    for row in rows.iter().map(|place| fleet.at(*place)) {
        let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        let why = fleet.explain(&row.key).into_iter().next().map(|finding| finding.sentence);
        let cells = [
            fleet.state(row, now_ms).word().to_owned(),
            row.name.clone(),
            sanitized(row.key.connection.as_str()),
            row.backend.clone().into_owned(),
            row.mode.clone(),
            row.place.clone(),
            row.program.clone(),
            row.language.clone(),
            row.label.clone(),
            number(row.fencing_token),
            number(row.held_now_ms(now_ms)),
            number(row.left_now_ms(now_ms)),
            number(row.lease_ms),
            number(row.renewals.map(u64::from)),
            row.missed.to_string(),
            row.waiters.to_string(),
            why.unwrap_or_default(),
        ];
        let cells: Vec<String> = cells.iter().map(|cell| csv_cell(cell)).collect();
        text += &(cells.join(",") + "\r\n");
    }
    text
}

fn csv_cell(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t']);
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains(['"', ',', '\n', '\r']) || formula {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

/// Writes one row as Markdown for a ticket: a table of facts, the findings, the commands.
pub fn markdown(fleet: &Fleet, row: RowRef, now_ms: u64) -> String {
    let row = fleet.at(row);
    let connection = fleet.store(&row.key.connection).map(|store| store.connection());
    let url = connection.map(|connection| sanitized(&connection.shown_url)).unwrap_or_default();
    let time = |ms: Option<u64>| ms.map_or_else(|| "unknown".into(), span);
    let mut facts = vec![
        ("State", fleet.state(row, now_ms).word().to_owned()),
        ("Store", format!("{} ({url})", sanitized(row.key.connection.as_str()))),
        ("Seen", format!("{} UTC", clock_time(row.sampled_at_ms, 0))),
    ];
    if row.holders > 0 {
        facts.push(("Holder", format!("{} {}", row.place, row.program).trim().to_owned()));
        facts.push(("Label", row.label.clone()));
        facts.push(("Fencing token", row.fencing_token.map(|token| token.to_string()).unwrap_or_default()));
        facts.push(("Held for", time(row.held_now_ms(now_ms))));
        facts.push(("Lease left", time(row.left_now_ms(now_ms))));
        facts.push(("Renewals", row.renewals.map(|times| times.to_string()).unwrap_or_default()));
    }
    facts.push(("Waiting", row.waiters.to_string()));
    let mut text = format!("### Lock {}\n\n| | |\n| --- | --- |\n", code(&row.name));
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        text += &format!("| {name} | {} |\n", cell(value));
    }
    for finding in fleet.explain(&row.key) {
        text += &format!("\n**{}** {}\n", finding.rule.code(), plain(&finding.sentence));
        for next in &finding.next {
            text += &match next {
                Next::Run(command) => format!("\n    {command}\n"),
                Next::Do(advice) => format!("- {}\n", plain(advice)),
            };
        }
    }
    let look: Vec<String> = commands(fleet, &row.key)
        .into_iter()
        .filter(|command| !command.changes)
        .map(|command| format!("    {}  # {}\n", command.text, command.title))
        .collect();
    if !look.is_empty() {
        text += &format!("\nTo look again:\n\n{}", look.concat());
    }
    text
}

/// Text that Markdown takes as it is: between more backticks than stand together in it.
fn code(text: &str) -> String {
    let text = one_line(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if longest > 0 || text.trim().is_empty() { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// The same for a cell of a table. What `\|` means behind another `\` differs between readers of Markdown,
/// so a text with `|` is written in characters that mean nothing to any of them.
fn cell(text: &str) -> String {
    if !text.contains('|') {
        return code(text);
    }
    let mut cell = String::from("<code>");
    for c in one_line(text).chars() {
        match c {
            ' ' => cell.push(c),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => cell += &format!("&#{};", u32::from(c)),
            c => cell.push(c),
        }
    }
    cell + "</code>"
}

fn one_line(text: &str) -> String {
    text.replace(is_treacherous, " ")
}

/// Text in which nothing means anything to Markdown or to the page that shows it.
fn plain(text: &str) -> String {
    one_line(text).chars().fold(String::with_capacity(text.len()), |mut plain, c| {
        if "\\`*_[]<>|#@&~!".contains(c) {
            plain.push('\\');
        }
        plain.push(c);
        plain
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text inside the code span that `markdown` begins with, by the rule of CommonMark, and what is
    /// behind the span.
    fn span_of(markdown: &str) -> (&str, &str) {
        let fence = markdown.len() - markdown.trim_start_matches('`').len();
        let (mut at, rest) = (fence, &markdown[fence..]);
        for run in rest.split_inclusive(|c| c != '`') {
            let ticks = run.chars().take_while(|c| *c == '`').count();
            if ticks == fence {
                return (&markdown[fence..at], &markdown[at + ticks..]);
            }
            at += run.len();
        }
        panic!("the span has no end: {markdown}");
    }

    #[test]
    fn a_name_stays_in_its_code_span() {
        for name in [
            "orders",
            "`",
            "``` ![x](https://evil.example/x.png)",
            "a`b``c```d````e",
            "```",
            "` [link](https://evil.example) `",
            "a\n\n# heading",
        ] {
            for written in [code(name), cell(name)] {
                let (inside, behind) = span_of(&written);
                assert_eq!(behind, "", "{name:?}: {written}");
                assert_eq!(inside.trim(), name.replace('\n', " ").trim(), "{written}");
            }
        }
    }

    #[test]
    fn a_name_with_pipes_stays_in_its_cell() {
        for name in ["a|b", "a\\|b", r"a\\|![x](https://evil.example)", "`|`<img src=x>"] {
            let written = cell(name);
            let inside =
                written.strip_prefix("<code>").and_then(|rest| rest.strip_suffix("</code>")).unwrap();
            let markup = inside.chars().find(|c| c.is_ascii_punctuation() && !"&#;".contains(*c));
            assert_eq!(markup, None, "{written}");
        }
        assert_eq!(cell("a|b"), "<code>a&#124;b</code>");
    }
}
