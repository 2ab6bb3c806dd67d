//! `watch` on a terminal: keys, news and the clock, drawn when something changes.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::Event as Input;
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::sync::Notify;

use super::WatchArgs;
use super::app::{App, Step};
use super::draw::draw;
use super::terminal::{keys, pressed};
use crate::paint::Paint;
use crate::signals::asked_to_end;
use crate::store::{Failure, Store};
use host::poll::{Poller, Target, Told, ViewerClock};
use host::who_am_i;
use model::{Connection, ConnectionId, Environment};

/// Bars move this often between snapshots.
const TICK: Duration = Duration::from_millis(250);

pub(super) async fn watch(store: &Store, url: Option<&str>, args: &WatchArgs) -> Result<u8, Failure> {
    let id = ConnectionId::new("store");
    let connection = Connection {
        id: id.clone(),
        shown_url: store.client.url_for_display().to_owned(),
        command: store.command.clone(),
        environment: Environment::Development,
        read_only: false,
    };
    let clock = ViewerClock::start();
    let news = Arc::<Notify>::default();
    let wake = Arc::clone(&news);
    let (poller, told) = Poller::start(clock, Arc::new(move || wake.notify_one()))?;
    let mut target = Target::new(id, url.unwrap_or_default()).evenly(args.every);
    (target.prefix, target.foreign) = (args.prefix.clone(), args.foreign.clone());
    poller.watch(target);

    let mut ended = pin!(asked_to_end()?);
    let mut app = App::new(connection);
    let paint = Paint::for_stdout();
    let mut screen = Screen::enter()?;
    let mut keys = keys();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        let now_ms = clock.now_ms();
        app.refresh(now_ms);
        screen.0.draw(|frame| draw(frame, &mut app, &paint, now_ms))?;
        tokio::select! {
            biased;
            () = &mut ended => return Ok(0),
            input = keys.recv() => {
                let Some(input) = input else { return Ok(0) };
                let step = match (&input, pressed(&input)) {
                    (Input::Resize(..), _) | (_, None) => Step::Stay,
                    (_, Some(key)) => app.key(key, clock.now_ms()),
                };
                match step {
                    Step::Stay => {}
                    Step::Leave => return Ok(0),
                    Step::Refresh => poller.refresh(None),
                    Step::Break(order) => poller.break_lease(order, &who_am_i()),
                }
            }
            () = news.notified() => {}
            _ = tick.tick() => {}
        }
        for told in told.try_iter() {
            match told {
                // What the command line was told is known already.
                Told::Connected(_) => {}
                Told::Update(update) => app.take(update),
                Told::Broken(result) => app.broken(&result),
                Told::Records(_) => {}
            }
        }
    }
}

/// The terminal in its special state; back to normal when dropped.
struct Screen(Terminal<CrosstermBackend<io::Stdout>>);

impl Screen {
    fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let screen = Terminal::new(CrosstermBackend::new(io::stdout()));
        // From here on it is put right again, whatever fails.
        let screen = Self(screen.inspect_err(|_| drop(disable_raw_mode()))?);
        // The toolkit's own way to clear asks where the cursor is, which not every terminal answers.
        execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        let _ = execute!(io::stdout(), LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
