//! The live table: state above, events below, keys at the bottom.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::pin::pin;
use std::time::{SystemTime, UNIX_EPOCH};

use crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{cursor, execute, queue, style};
use polylatch::inspect::{Observation, Query};

use super::{WatchArgs, colour_of_event, is_wanted, line};
use crate::cli::ls::{COLUMNS, cells, counts, place};
use crate::cli::paint::{Cell, Paint, table};
use crate::cli::store::{Failure, Store};
use crate::host::ThisHost;
use crate::model::findings::Evidence;
use crate::model::text::{clock_time, fit, harmless};
use crate::model::{Picture, picture};

/// Events that are kept.
const LOG: usize = 500;

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
                    input = keys.recv() => match input.map(|input| view.key(input)) {
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

/// The terminal in its special state; back to normal when dropped.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Keys and resizes, read by a thread of their own because reading them blocks.
fn keys() -> tokio::sync::mpsc::UnboundedReceiver<Input> {
    let (send, receive) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(input) = event::read() {
            if send.send(input).is_err() {
                break;
            }
        }
    });
    receive
}

/// Waits for SIGTERM or SIGHUP, so that the terminal is put right before the end.
async fn asked_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut term), Ok(mut hup)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) {
            tokio::select! {
                _ = term.recv() => return,
                _ = hup.recv() => return,
            }
        }
    }
    std::future::pending().await
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
    /// Lines with their colour, oldest first.
    log: VecDeque<(String, &'static str)>,
    paused: bool,
    /// Since when the store does not answer, and why.
    trouble: Option<(String, String)>,
    first_row: usize,
}

impl<'a> View<'a> {
    fn new(store: &'a Store, args: &'a WatchArgs, seen: Observation, host: &ThisHost) -> Self {
        let picture = picture(&seen.snapshot, host, &store.command);
        let log = VecDeque::new();
        Self { store, args, seen, picture, log, paused: false, trouble: None, first_row: 0 }
    }

    /// Takes a new look. While paused the picture stands still, but events are still recorded.
    fn seen(&mut self, seen: Observation, host: &ThisHost) {
        self.trouble = None;
        let evidence = Evidence::new(&seen.snapshot, host, &self.store.command);
        for event in seen.events.iter().filter(|event| is_wanted(event, self.args)) {
            self.log.push_back((line(event, &seen.snapshot, &evidence), colour_of_event(&event.kind)));
        }
        self.log.drain(..self.log.len().saturating_sub(LOG));
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

    fn key(&mut self, input: Input) -> Step {
        let Input::Key(key) = input else { return Step::Stay };
        if key.kind == KeyEventKind::Release {
            return Step::Stay;
        }
        let last = self.picture.rows.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Step::Leave,
            KeyCode::Char('q') | KeyCode::Esc => return Step::Leave,
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

    fn draw(&self, _: &Screen) -> io::Result<()> {
        let (columns, lines) = size()?;
        let paint = Paint { columns: Some(usize::from(columns).max(20)), ..Paint::for_stdout() };
        let page = self.page(&paint, usize::from(lines));
        let mut out = io::BufWriter::new(io::stdout().lock());
        queue!(out, BeginSynchronizedUpdate, cursor::MoveTo(0, 0))?;
        for (at, text) in page.iter().enumerate() {
            if at > 0 {
                queue!(out, style::Print("\r\n"))?;
            }
            queue!(out, style::Print(text), Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        out.flush()
    }

    /// The lines of the screen, at most `height`.
    fn page(&self, paint: &Paint, height: usize) -> Vec<String> {
        let columns = paint.columns.unwrap_or(80);
        let cut = |text: &str, sgr: &str| paint.sgr(sgr, &fit(text, columns));
        let plain = Paint { colour: false, ..*paint };
        let head = match (&self.trouble, self.paused) {
            (Some((since, why)), _) => cut(&format!("NOT KNOWN since {since} UTC: {why}"), "1;31"),
            (None, true) => cut("PAUSED   space goes on", "1;33"),
            (None, false) => {
                let counts = counts(&plain, &self.seen.snapshot, &self.picture);
                let place = place(&self.seen.snapshot, &self.store.shown_url());
                cut(&format!("{counts}   {place}"), "1")
            }
        };
        // An old picture is grey, so that nobody takes it for the present.
        let stale = self.trouble.is_some();
        let table_paint = if stale { &plain } else { paint };
        let rows: Vec<Vec<Cell>> = self.picture.rows.iter().map(|row| cells(table_paint, row)).collect();
        let mut body = table(table_paint, &COLUMNS, &rows);
        let heading = body.remove(0);
        let room = height.saturating_sub(5).max(2);
        let log_room = self.log.len().clamp(1, (room / 3).max(1));
        let table_room = room - log_room;
        let first = self.first_row.min(body.len().saturating_sub(table_room));
        let mut page = vec![head, heading];
        if body.is_empty() {
            page.push(paint.dim(&fit("no lock is held or waited for", columns)));
        }
        let shown = body.iter().skip(first).take(table_room);
        page.extend(shown.map(|line| if stale { paint.dim(line) } else { line.clone() }));
        while page.len() < 2 + table_room {
            page.push(String::new());
        }
        let hidden = body.len().saturating_sub(table_room);
        let more = if hidden > 0 { format!(" ({hidden} more rows: arrows)") } else { String::new() };
        page.push(cut(&format!("EVENTS{more}"), "2"));
        if self.log.is_empty() {
            page.push(paint.dim(&fit("nothing has happened since", columns)));
        }
        let newest = self.log.iter().skip(self.log.len().saturating_sub(log_room));
        page.extend(newest.map(|(text, sgr)| cut(text, sgr)));
        page.push(String::new());
        page.push(cut("q leaves   space pauses   arrows scroll", "2"));
        page.truncate(height);
        page
    }
}
