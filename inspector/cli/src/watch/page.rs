//! The live table as lines: what is the case above, what happened below, keys at the bottom.

use std::collections::VecDeque;

use crate::paint::{Cell, Column, Paint, table};
use model::text::fit;

/// Events that are kept.
const LOG: usize = 500;

/// A line and its colour.
pub(crate) type Line = (String, &'static str);

/// What has happened, oldest first; the oldest is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Log(VecDeque<Line>);

impl Log {
    pub(crate) fn push(&mut self, line: Line) {
        self.0.push_back(line);
        self.0.drain(..self.0.len().saturating_sub(LOG));
    }
}

/// Everything that stands on the screen.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    pub head: Line,
    /// Between the head and the table.
    pub caption: &'a [Line],
    pub columns: &'a [Column],
    pub rows: &'a [Vec<Cell>],
    /// Where the visible part of the table begins.
    pub first_row: usize,
    /// The rows are old: they are grey, so that they are not taken for the present.
    pub stale: bool,
    /// What is said instead of rows.
    pub no_rows: &'static str,
    /// Lines that the table gets; `None` leaves about a third of the screen for events.
    pub table_room: Option<usize>,
    /// Between the table and the events.
    pub notes: &'a [Line],
    pub log: &'a Log,
    pub keys: &'static str,
}

impl Page<'_> {
    /// Returns the lines of the screen, at most `height`.
    pub(crate) fn lines(&self, paint: &Paint, height: usize) -> Vec<String> {
        let columns = paint.columns.unwrap_or(80);
        let cut = |(text, sgr): &Line| paint.sgr(sgr, &fit(text, columns));
        let plain = Paint { colour: false, ..*paint };
        let mut body = table(if self.stale { &plain } else { paint }, self.columns, self.rows);
        let heading = body.remove(0);
        let log = &self.log.0;
        let room = height.saturating_sub(5 + self.caption.len() + self.notes.len()).max(2);
        let (table_room, log_room) = match self.table_room {
            Some(lines) => (lines.min(room - 1), room - lines.min(room - 1)),
            None => {
                let log_room = log.len().clamp(1, (room / 3).max(1));
                (room - log_room, log_room)
            }
        };
        let first = self.first_row.min(body.len().saturating_sub(table_room));
        let mut page = vec![cut(&self.head)];
        page.extend(self.caption.iter().map(cut));
        page.push(heading);
        let top = page.len();
        if body.is_empty() {
            page.push(paint.dim(&fit(self.no_rows, columns)));
        }
        let shown = body.iter().skip(first).take(table_room);
        page.extend(shown.map(|line| if self.stale { paint.dim(line) } else { line.clone() }));
        while page.len() < top + table_room {
            page.push(String::new());
        }
        page.extend(self.notes.iter().map(cut));
        let hidden = body.len().saturating_sub(table_room);
        let more = if hidden > 0 { format!(" ({hidden} more rows: arrows)") } else { String::new() };
        page.push(cut(&(format!("EVENTS{more}"), "2")));
        if log.is_empty() {
            page.push(paint.dim(&fit("nothing has happened since", columns)));
        }
        page.extend(log.iter().skip(log.len().saturating_sub(log_room)).map(cut));
        while page.len() + 2 < height && self.table_room.is_some() {
            page.push(String::new());
        }
        page.push(String::new());
        page.push(cut(&(self.keys.to_owned(), "2")));
        page.truncate(height);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 1] = [Column { title: "LOCK", shrinks_to: Some(4), leaves: None }];

    fn page<'a>(rows: &'a [Vec<Cell>], log: &'a Log, caption: &'a [Line]) -> Page<'a> {
        Page {
            head: ("head".into(), "1"),
            caption,
            columns: &COLUMNS,
            rows,
            first_row: 0,
            stale: false,
            no_rows: "nothing",
            table_room: None,
            notes: &[],
            log,
            keys: "q leaves",
        }
    }

    #[test]
    fn a_page_never_has_more_lines_or_columns_than_the_screen() {
        let rows: Vec<Vec<Cell>> = (0..50).map(|at| vec![format!("lock/{at}").into()]).collect();
        let mut log = Log::default();
        (0..600).for_each(|at| log.push((format!("event number {at}"), "")));
        let caption = [("a caption that is too long".to_owned(), "1")];
        let paint = Paint { colour: false, unicode: false, columns: Some(20) };
        for height in [1, 2, 3, 7, 24, 80] {
            for table_room in [None, Some(3)] {
                let page = Page { table_room, ..page(&rows, &log, &caption) };
                let lines = page.lines(&paint, height);
                assert!(lines.len() <= height && lines.iter().all(|line| line.chars().count() <= 20));
            }
        }
        let lines = page(&rows, &log, &caption).lines(&paint, 24);
        assert_eq!(lines[23], "q leaves");
        assert_eq!(lines[21], "event number 599");
        assert!(lines.iter().any(|line| line.starts_with("EVENTS (")));
    }

    #[test]
    fn an_empty_page_says_so() {
        let log = Log::default();
        let paint = Paint { colour: false, unicode: false, columns: Some(40) };
        let lines = page(&[], &log, &[]).lines(&paint, 24);
        assert_eq!(lines[..3], ["head", "LOCK", "nothing"]);
        assert!(lines.contains(&"nothing has happened since".to_owned()));
    }
}
