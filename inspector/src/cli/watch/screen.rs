//! `watch` on a terminal.

use std::io;
use std::pin::pin;
use std::time::{SystemTime, UNIX_EPOCH};

use crossterm::event::{Event as Input, KeyCode};
use polylatch::inspect::{Observation, Query};

use super::page::{Log, Page};
use super::terminal::{Screen, asked_to_end, keys, leaves, pressed};
use super::{WatchArgs, colour_of_event, is_wanted, line};
use crate::cli::ls::{COLUMNS, cells, counts, place};
use crate::cli::paint::{Cell, Paint};
use crate::cli::store::{Failure, Store};
use crate::host::ThisHost;
use crate::model::findings::Evidence;
use crate::model::text::{clock_time, harmless};
use crate::model::{Picture, picture};

pub(super) async fn watch(store: &Store, query: Query, args: &WatchArgs) -> Result<u8, Failure> {
    let host = ThisHost::new();
    let mut watch = store.client.inspect().watch(query, args.every);
    // A store that cannot be read at all is told on the normal screen.
    let mut view = View::new(store, args, watch.next().await?, &host);
    let screen = Screen::enter()?;
    let mut keys = keys();
    let mut ended = pin!(asked_to_end());
    view.draw(&screen)?;
    loop {
        let looked = {
            // One look at a time: keys must not start it anew, or typing would stop the clock.
            let mut looking = pin!(watch.next());
            loop {
                tokio::select! {
                    biased;
                    () = &mut ended => return Ok(0),
                    input = keys.recv() => match input.map(|input| view.key(&input)) {
                        None | Some(Step::Leave) => return Ok(0),
                        Some(Step::Stay) => view.draw(&screen)?,
                    },
                    looked = &mut looking => break looked,
                }
            }
        };
        match looked {
            Ok(seen) => view.seen(seen, &host),
            Err(error) => {
                view.trouble(&error.to_string());
                view.draw(&screen)?;
                tokio::time::sleep(args.every).await;
            }
        }
        view.draw(&screen)?;
    }
}

enum Step {
    Stay,
    Leave,
}

struct View<'a> {
    store: &'a Store,
    args: &'a WatchArgs,
    seen: Observation,
    picture: Picture,
    log: Log,
    paused: bool,
    /// Since when the store does not answer, and why.
    trouble: Option<(String, String)>,
    first_row: usize,
}

impl<'a> View<'a> {
    fn new(store: &'a Store, args: &'a WatchArgs, seen: Observation, host: &ThisHost) -> Self {
        let picture = picture(&seen.snapshot, host, &store.command);
        let log = Log::default();
        Self { store, args, seen, picture, log, paused: false, trouble: None, first_row: 0 }
    }

    /// Takes a new look. While paused the picture stands still, but events are still recorded.
    fn seen(&mut self, seen: Observation, host: &ThisHost) {
        self.trouble = None;
        let evidence = Evidence::new(&seen.snapshot, host, &self.store.command);
        for event in seen.events.iter().filter(|event| is_wanted(event, self.args)) {
            let text = line(event, seen.snapshot.taken_at_ms, |id| evidence.who(id));
            self.log.push((text, colour_of_event(&event.kind)));
        }
        if !self.paused {
            self.picture = picture(&seen.snapshot, host, &self.store.command);
            self.seen = seen;
        }
    }

    fn trouble(&mut self, error: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(0);
        let since = self.trouble.take().map_or_else(|| clock_time(now, now), |(since, _)| since);
        self.trouble = Some((since, harmless(error)));
    }

    fn key(&mut self, input: &Input) -> Step {
        let Some(key) = pressed(input) else { return Step::Stay };
        let last = self.picture.rows.len().saturating_sub(1);
        match key.code {
            _ if leaves(key) => return Step::Leave,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Up | KeyCode::Char('k') => self.first_row = self.first_row.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.first_row = (self.first_row + 1).min(last),
            KeyCode::PageUp => self.first_row = self.first_row.saturating_sub(10),
            KeyCode::PageDown => self.first_row = (self.first_row + 10).min(last),
            KeyCode::Home => self.first_row = 0,
            KeyCode::End => self.first_row = last,
            _ => {}
        }
        Step::Stay
    }

    fn draw(&self, screen: &Screen) -> io::Result<()> {
        screen.draw(|paint, height| self.page(paint, height))
    }

    fn page(&self, paint: &Paint, height: usize) -> Vec<String> {
        let plain = Paint { colour: false, ..*paint };
        let head = match (&self.trouble, self.paused) {
            (Some((since, why)), _) => (format!("NOT KNOWN since {since} UTC: {why}"), "1;31"),
            (None, true) => ("PAUSED   space goes on".into(), "1;33"),
            (None, false) => {
                let counts = counts(&plain, &self.seen.snapshot, &self.picture);
                let place = place(&self.seen.snapshot, &self.store.shown_url());
                (format!("{counts}   {place}"), "1")
            }
        };
        let rows: Vec<Vec<Cell>> = self.picture.rows.iter().map(|row| cells(paint, row)).collect();
        let page = Page {
            head,
            caption: &[],
            columns: &COLUMNS,
            rows: &rows,
            first_row: self.first_row,
            stale: self.trouble.is_some(),
            no_rows: "no lock is held or waited for",
            table_room: None,
            notes: &[],
            log: &self.log,
            keys: "q leaves   space pauses   arrows scroll",
        };
        page.lines(paint, height)
    }
}
