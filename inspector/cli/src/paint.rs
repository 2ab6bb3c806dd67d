//! Signs, colours and tables for a terminal. Colour only repeats what a word and a sign say.

use std::io::IsTerminal;

use model::text::{fit, width};
use model::{LockState, Severity};

/// What the output can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    pub colour: bool,
    pub unicode: bool,
    /// Width of the terminal; `None` where lines may have any length.
    pub columns: Option<usize>,
}

impl Paint {
    /// Looks at standard output and the environment.
    pub(crate) fn for_stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let columns = crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns));
        Self {
            colour: terminal
                && !set("NO_COLOR")
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            unicode: speaks_unicode(|name| std::env::var(name).ok()),
            columns: columns.filter(|columns| terminal && *columns > 0),
        }
    }

    /// Wraps text in a colour, given as the number of an SGR sequence.
    pub(crate) fn sgr(&self, code: &str, text: &str) -> String {
        if self.colour && !code.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.sgr("1", text)
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        self.sgr("2", text)
    }

    /// Returns sign and word of a state, without colour.
    pub(crate) fn state(&self, state: LockState) -> String {
        let (sign, plain) = state.sign();
        format!("{} {}", if self.unicode { sign } else { plain }, state.word())
    }
}

fn speaks_unicode(var: impl Fn(&str) -> Option<String>) -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| var(name).filter(|value| !value.is_empty()));
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// The SGR code of a state.
pub(crate) fn colour_of(state: LockState) -> &'static str {
    match state {
        LockState::Deadlock => "1;35",
        LockState::MayDeadlock => "35",
        LockState::Stopped | LockState::NoExpiry => "1;31",
        LockState::Gone | LockState::NoRenewal => "1;33",
        LockState::Endangered => "33",
        LockState::Contended => "36",
        LockState::Held => "32",
        LockState::Foreign | LockState::LockDelay | LockState::Free | LockState::Unknown => "2",
    }
}

/// The SGR code of a severity.
pub(crate) fn colour_of_severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Problem => "1;31",
        Severity::Warning => "1;33",
        Severity::Notice => "33",
        Severity::Fine => "32",
    }
}

/// One cell: text and its SGR code.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub text: String,
    pub sgr: &'static str,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, sgr: "" }
    }
}

/// One column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub title: &'static str,
    /// May be cut to this many columns; `None` is never cut.
    pub shrinks_to: Option<usize>,
    /// Left out in a narrow terminal, the lowest number first; `None` always stays.
    pub leaves: Option<u8>,
}

/// Lays a table out: one line per row, headings first, cut to the width of the terminal.
pub(crate) fn table(paint: &Paint, columns: &[Column], rows: &[Vec<Cell>]) -> Vec<String> {
    const GAP: usize = 2;
    let mut natural: Vec<usize> = columns.iter().map(|column| width(column.title)).collect();
    let mut empty = vec![true; columns.len()];
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            natural[at] = natural[at].max(width(&cell.text));
            empty[at] &= cell.text.is_empty();
        }
    }
    // A column without any content teaches nothing and only takes room.
    let mut shown: Vec<usize> = (0..columns.len()).filter(|&at| rows.is_empty() || !empty[at]).collect();
    let mut widths = natural.clone();
    if let Some(limit) = paint.columns {
        loop {
            widths.clone_from(&natural);
            let total = shown.iter().map(|&at| widths[at] + GAP).sum::<usize>().saturating_sub(GAP);
            let mut over = total.saturating_sub(limit);
            while over > 0 {
                let widest = shown
                    .iter()
                    .copied()
                    .filter(|&at| columns[at].shrinks_to.is_some_and(|least| widths[at] > least))
                    .max_by_key(|&at| widths[at]);
                let Some(at) = widest else { break };
                widths[at] -= 1;
                over -= 1;
            }
            let leaving = shown.iter().copied().filter(|&at| columns[at].leaves.is_some());
            let Some(first) = leaving.min_by_key(|&at| columns[at].leaves).filter(|_| over > 0) else {
                break;
            };
            shown.retain(|&at| at != first);
        }
    }
    let line = |cells: &dyn Fn(usize) -> (String, &'static str)| {
        let mut line = String::new();
        for (place, &at) in shown.iter().enumerate() {
            let (text, sgr) = cells(at);
            let text = fit(&text, widths[at]);
            let last = place + 1 == shown.len();
            let pad = if last { 0 } else { widths[at].saturating_sub(width(&text)) + GAP };
            line.push_str(&paint.sgr(if text.is_empty() { "" } else { sgr }, &text));
            line.extend(std::iter::repeat_n(' ', pad));
        }
        line.trim_end().to_owned()
    };
    let mut lines = vec![line(&|at| (columns[at].title.to_owned(), "2"))];
    lines.extend(rows.iter().map(|row| line(&|at| (row[at].text.clone(), row[at].sgr))));
    lines
}

/// Says something beside the output, on standard error, wrapped if that is a terminal.
pub(crate) fn say(text: &str) {
    for line in wrap(&format!("polylatch: {text}"), stderr_columns()) {
        eprintln!("{line}");
    }
}

/// Returns the width of the terminal that standard error is, if it is one.
pub(crate) fn stderr_columns() -> Option<usize> {
    let size = std::io::stderr().is_terminal().then(crossterm::terminal::size)?.ok()?;
    Some(usize::from(size.0)).filter(|columns| *columns > 0)
}

/// Breaks text into lines of at most `columns`, at spaces.
pub(crate) fn wrap(text: &str, columns: Option<usize>) -> Vec<String> {
    let limit = columns.unwrap_or(usize::MAX);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("starts with one line");
        if !line.is_empty() && width(line).saturating_add(1 + width(word)) > limit {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { title: "LOCK", shrinks_to: Some(4), leaves: None },
        Column { title: "LABEL", shrinks_to: Some(4), leaves: Some(0) },
        Column { title: "LEFT", shrinks_to: None, leaves: None },
    ];

    fn paint(columns: usize) -> Paint {
        Paint { colour: false, unicode: true, columns: Some(columns) }
    }

    fn rows() -> Vec<Vec<Cell>> {
        vec![vec!["orders/42".to_owned().into(), "nightly".to_owned().into(), "12.3 s".to_owned().into()]]
    }

    #[test]
    fn a_table_shrinks_then_drops_columns_and_never_overflows() {
        assert_eq!(table(&paint(80), &COLUMNS, &rows())[1], "orders/42  nightly  12.3 s");
        assert_eq!(table(&paint(22), &COLUMNS, &rows())[1], "order…  night…  12.3 s");
        assert_eq!(table(&paint(14), &COLUMNS, &rows())[1], "order…  12.3 s");
        assert_eq!(table(&paint(14), &COLUMNS, &rows())[0], "LOCK    LEFT");
    }

    #[test]
    fn colours_do_not_change_the_layout() {
        let coloured = Paint { colour: true, ..paint(80) };
        let mut cells = rows();
        cells[0][0].sgr = "32";
        assert_eq!(table(&coloured, &COLUMNS, &cells)[1], "\x1b[32morders/42\x1b[0m  nightly  12.3 s");
    }

    #[test]
    fn a_locale_without_unicode_gets_plain_signs() {
        let locale = |value: &'static str| speaks_unicode(move |name| (name == "LANG").then(|| value.into()));
        assert!(locale("de_DE.UTF-8") && locale("C.utf8"));
        assert!(!locale("C") && !locale("") && !speaks_unicode(|_| None));
    }

    #[test]
    fn text_wraps_at_spaces() {
        assert_eq!(wrap("one two three", Some(8)), ["one two", "three"]);
        assert_eq!(wrap("one two three", None), ["one two three"]);
        assert_eq!(wrap("unbreakable x", Some(4)), ["unbreakable", "x"]);
    }
}
