//! How the demo looks: the table of `watch` with fewer columns and plainer names, or lines.

use std::io;
use std::time::Duration;

use polylatch::ClientId;
use polylatch::inspect::{EventKind, Update};

use super::story::{Look, Report, Story};
use super::{LEDGER, LOCKS, NAMES};
use crate::ls::{COLUMNS, cells};
use crate::paint::{Cell, Column, Paint, colour_of, wrap};
use crate::store::{Failure, print_line};
use crate::watch::colour_of_event;
use crate::watch::page::{Line, Log, Page};
use crate::watch::terminal::Screen;
use host::ThisHost;
use model::event::line;
use model::text::{clock_time, sanitized, short_span};
use model::{Beat, Evidence};
use model::{LockState, Row, overview};

/// Lines of a caption's text, so that the table below does not jump.
const CAPTION_LINES: usize = 3;

/// The columns of `watch`: the fencing token and the renewals stay, what is held for how long may go.
const SHOWN: [Column; 9] = {
    // The demo's locks are all held alone, so how they are held need not be told.
    let [state, lock, _, holder, label, fence, held, lease, renewed, waiting] = COLUMNS;
    let mut columns = [state, lock, holder, label, fence, held, lease, renewed, waiting];
    let [_, lock, holder, label, fence, held, lease, renewed, waiting] = &mut columns;
    (lock.shrinks_to, holder.shrinks_to) = (None, None);
    (label.shrinks_to, label.leaves) = (None, Some(0));
    (fence.leaves, held.leaves, lease.leaves, renewed.leaves) = (None, Some(1), None, None);
    waiting.shrinks_to = Some(7);
    columns
};

const FENCE: usize = 4;
const RENEWED: usize = 7;

/// Usual widths of the cells, so that columns neither move nor vanish while people look at them.
const WIDTHS: [usize; 9] = [13, 7, 6, 13, 11, 4, 16, 8, 7];

/// Where `cells` tells how a lock is held.
const MODE: usize = 2;

/// The cells of the columns that are shown.
fn shown(paint: &Paint, row: &Row) -> Vec<Cell> {
    let mut cells = cells(paint, row);
    cells.remove(MODE);
    cells
}

fn steady(mut cells: Vec<Cell>) -> Vec<Cell> {
    for (cell, width) in cells.iter_mut().zip(WIDTHS) {
        cell.text = format!("{:<width$}", cell.text);
    }
    cells
}

/// What is shown at the moment.
#[derive(Debug)]
pub(super) struct Show {
    /// `None`: line by line.
    screen: Option<Screen>,
    prefix: String,
    /// The store, as people may see it.
    place: String,
    host: ThisHost,
    seen: Option<Update>,
    log: Log,
    ledger: Line,
    left: Duration,
    pub was_on_screen: bool,
    /// Counted for the last words.
    pub grants: u64,
    pub writes: u64,
    pub refusals: u64,
}

impl Show {
    pub(super) fn new(screen: Option<Screen>, prefix: &str, place: String) -> Self {
        Self {
            was_on_screen: screen.is_some(),
            screen,
            prefix: prefix.to_owned(),
            place,
            host: ThisHost::new(),
            seen: None,
            log: Log::default(),
            ledger: ("nothing written yet".into(), "2"),
            left: Duration::ZERO,
            grants: 0,
            writes: 0,
            refusals: 0,
        }
    }

    /// Gives the terminal back.
    pub(super) fn leave(&mut self) {
        self.screen = None;
    }

    fn plain_name<'n>(&self, lock: &'n str) -> &'n str {
        lock.strip_prefix(self.prefix.as_str()).unwrap_or(lock)
    }

    fn tell(&mut self, text: String, sgr: &'static str, story: &Story) -> Result<(), Failure> {
        match &self.screen {
            None => print_line(&text),
            Some(_) => {
                self.log.push((story.shortener().within(&text), sgr));
                Ok(())
            }
        }
    }

    /// Takes a new look at the store; returns what the story needs of it.
    pub(super) fn seen(&mut self, seen: Update, left: Duration, story: &Story) -> Result<Look, Failure> {
        self.left = left;
        let evidence = Evidence::new(&seen.snapshot, &self.host, "");
        let name = |id: &ClientId| evidence.client(id).map_or("?", |client| client.program.as_str());
        let known = |id: &ClientId| NAMES.into_iter().find(|known| *known == name(id));
        let mut lines = Vec::new();
        for event in &seen.events {
            self.grants += u64::from(matches!(event.kind, EventKind::Granted { .. }));
            if !matches!(event.kind, EventKind::Renewed { .. }) {
                let mut event = event.clone();
                event.lock = format!("{:<7}", self.plain_name(&event.lock));
                let text = line(&event, seen.snapshot.taken_at_ms, |id| sanitized(name(id)));
                lines.push((text, colour_of_event(&event.kind)));
            }
        }
        let lock = seen.snapshot.locks.iter().find(|lock| self.plain_name(&lock.name) == LEDGER);
        let holder = lock.and_then(|lock| lock.holders.first());
        let look = Look {
            holder: holder.and_then(|holder| Some((known(holder.client.as_ref()?)?, holder.fencing_token?))),
            endangered: holder.and_then(Beat::of).is_some_and(Beat::is_late),
            line: lock
                .into_iter()
                .flat_map(|lock| &lock.waiters)
                .filter_map(|waiter| Some((known(&waiter.client)?, waiter.silent)))
                .collect(),
        };
        drop(evidence);
        for (text, sgr) in lines {
            self.tell(text, sgr, story)?;
        }
        self.seen = Some(seen);
        Ok(look)
    }

    /// Takes a report of a worker or of the ledger.
    pub(super) fn reported(&mut self, report: &Report, story: &Story) -> Result<(), Failure> {
        let now = self.seen.as_ref().map_or(0, |seen| seen.snapshot.taken_at_ms);
        let at = clock_time(now, now);
        let (text, sgr) = match report {
            Report::Written { who, token, sum } => {
                self.writes += 1;
                let text = format!("write number {sum} is of {who} with token {token}, the largest so far");
                self.ledger = (text, "");
                (format!("{at}  written     ledger   {who}: token {token}"), "2")
            }
            Report::Refused { who, refused } => {
                self.refusals += 1;
                let text = format!("REFUSED a write of {who}: token {} < {}", refused.token, refused.largest);
                self.ledger = (text, "1;35");
                let told = format!("token {} is older than {}", refused.token, refused.largest);
                (format!("{at}  REFUSED     ledger   {who}: {told}"), "1;35")
            }
            Report::Lost { who, reason } => {
                (format!("{at}  lost        ledger   {who} learns that its lease is lost: {reason}"), "1;33")
            }
            Report::Ready { .. } | Report::Ended(_) => return Ok(()),
        };
        self.tell(text, sgr, story)
    }

    /// Says what is new in words, and draws.
    pub(super) fn refresh(&mut self, story: &mut Story) -> Result<(), Failure> {
        if self.screen.is_none() {
            if let Some(caption) = story.news() {
                print_line("")?;
                for line in wrap(&format!("{}: {}", caption.title, caption.text), Some(100)) {
                    print_line(&line)?;
                }
                print_line("")?;
            }
            return Ok(());
        }
        self.draw(story)?;
        Ok(())
    }

    fn draw(&self, story: &Story) -> io::Result<()> {
        let Some(screen) = &self.screen else { return Ok(()) };
        screen.draw(|paint, height| {
            let columns = paint.columns.unwrap_or(80);
            let caption = story.caption();
            let mut lines = vec![(String::new(), ""), (caption.title.to_owned(), caption.sgr)];
            let text = wrap(&story.shortener().within(&caption.text), Some(columns.min(100)));
            lines.extend(text.into_iter().map(|line| (line, "")));
            lines.resize_with(CAPTION_LINES + 3, || (String::new(), ""));
            let (rows, line) = self.table(paint, story);
            let (ledger, sgr) = (&self.ledger.0, self.ledger.1);
            let notes = [
                (String::new(), ""),
                (format!("QUEUE    {line}"), ""),
                (story.shortener().within(&format!("LEDGER   {ledger}")), sgr),
                (String::new(), ""),
            ];
            let secs = self.left.as_secs();
            let page = Page {
                head: (format!("polylatch demo, {secs} s left   {}", self.place), "1"),
                caption: &lines,
                columns: &SHOWN,
                rows: &rows,
                first_row: 0,
                stale: false,
                no_rows: "",
                table_room: Some(LOCKS.len()),
                notes: &notes,
                log: &self.log,
                keys: "q leaves",
            };
            page.lines(paint, height)
        })
    }

    /// The rows of all locks, always in the same order, and who waits.
    fn table(&self, paint: &Paint, story: &Story) -> (Vec<Vec<Cell>>, String) {
        let free = |name: &str| {
            let mut cells = vec![Cell::default(); SHOWN.len()];
            cells[0] = Cell { text: paint.state(LockState::Free), sgr: colour_of(LockState::Free) };
            cells[1] = Cell { text: name.to_owned(), sgr: "1" };
            steady(cells)
        };
        let Some(seen) = &self.seen else { return (LOCKS.map(free).into(), "none".into()) };
        let evidence = Evidence::new(&seen.snapshot, &self.host, "");
        let overview = overview(&seen.snapshot, &self.host, "");
        let mut in_line = Vec::new();
        let rows = LOCKS.map(|name| {
            let full = format!("{}{name}", self.prefix);
            let Some(row) = overview.rows.iter().find(|row| row.name == full) else { return free(name) };
            let mut row = row.clone();
            row.name = name.to_owned();
            if !row.place.is_empty() {
                // All of them are on this host.
                row.place = std::mem::take(&mut row.program);
            }
            let mut cells = shown(paint, &row);
            cells[FENCE].text = story.shortener().within(&cells[FENCE].text);
            if let (Some(1..), Some(ago)) = (row.renewals, row.since_renewal_ms) {
                cells[RENEWED].text = format!("{}x, {}", row.renewals.unwrap_or(0), short_span(ago));
            }
            let waiters: Vec<String> = seen.snapshot.locks[row.index]
                .waiters
                .iter()
                .map(|waiter| {
                    let name = evidence.client(&waiter.client).map_or("?", |client| &client.program);
                    if waiter.silent { format!("{} (silent)", sanitized(name)) } else { sanitized(name) }
                })
                .collect();
            if !waiters.is_empty() {
                in_line.push(format!("{name}: {}", waiters.join(", ")));
            }
            steady(cells)
        });
        let in_line = if in_line.is_empty() { "none".into() } else { in_line.join("   ") };
        (rows.into(), in_line)
    }
}
