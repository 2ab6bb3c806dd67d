//! The course of the demo: look, report, decide, show, until it is over; and then nothing is left.

use std::io::IsTerminal;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use host::demo_place::Place;
use polylatch::inspect::Query;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::crew::Crew;
use super::show::Show;
use super::story::{Report, Story};
use super::{LEDGER, LOCKS, ledger};
use crate::exit;
use crate::signals::asked_to_end;
use crate::store::{Failure, Store, print_line};
use crate::watch::terminal::{Screen, keys, leaves, pressed};
use model::text::{count, sanitized};

/// How often the store is looked at.
const EVERY: Duration = Duration::from_millis(200);

/// The length for which the story was written, in seconds.
const NORMAL: u64 = 28;

/// What a store may be slower than the story expects.
const SLACK: Duration = Duration::from_secs(20);

pub(super) async fn play(url: Option<&str>, seconds: u64) -> Result<u8, Failure> {
    // A store that cannot be used is told before anything is started.
    if let Some(url) = url {
        Store::open(Some(url), Some("polylatch demo".into())).await?.client.close().await;
    }
    let mut place = Place::make(url, &LOCKS)?;
    let played = in_place(&mut place, url.is_some(), seconds).await;
    place.clean();
    if let Ok(Some(last_words)) = &played {
        print_line("")?;
        for line in last_words {
            print_line(line)?;
        }
    }
    played.map(|_| 0)
}

/// Plays all rounds. Returns the last words, none if the user left before the end.
async fn in_place(
    place: &mut Place,
    on_users_store: bool,
    seconds: u64,
) -> Result<Option<Vec<String>>, Failure> {
    let mut asked = pin!(asked_to_end()?);
    let rounds = (seconds / NORMAL).max(1);
    let length = Duration::from_secs(seconds) / u32::try_from(rounds).unwrap_or(1);
    let pace = u32::try_from(length.as_millis() / u128::from(NORMAL)).unwrap_or(1000);
    let store = Store::open(Some(&place.url), Some("polylatch demo".into())).await?;
    let (told, mut reports) = unbounded_channel();
    ledger::serve(place.folder(), format!("{}{LEDGER}", place.prefix), told.clone())?;
    let mut crew = Crew::new(told, pace);
    let interactive = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let shown = if on_users_store { store.shown_url() } else { "a throw-away SQLite file".into() };
    place.expect_the_screen(interactive);
    let screen = if interactive { Some(Screen::enter()?) } else { None };
    let mut show = Show::new(screen, &place.prefix, shown.clone());
    if !interactive {
        print_line(&format!("polylatch demo: five processes, three locks, on {shown}"))?;
    }
    let mut inputs = Inputs { reports: &mut reports, asked: asked.as_mut(), keys: None };
    if interactive {
        inputs.keys = Some(keys());
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut played = Ok(true);
    for _ in 0..rounds {
        played = match crew.start(place) {
            Ok(()) => round(&store, place, &mut crew, &mut show, &mut inputs, (length, pace, end)).await,
            Err(error) => Err(error.into()),
        };
        if !matches!(played, Ok(true)) {
            break;
        }
    }
    show.leave();
    place.expect_the_screen(false);
    crew.dismiss().await;
    store.client.close().await;
    Ok(played?.then(|| last_words(&show, on_users_store)))
}

/// What may come from outside while the store is looked at.
struct Inputs<'a, F> {
    reports: &'a mut UnboundedReceiver<Report>,
    asked: Pin<&'a mut F>,
    keys: Option<UnboundedReceiver<crossterm::event::Event>>,
}

enum Input {
    Report(Report),
    Leave,
    Redraw,
}

impl<F: Future<Output = ()>> Inputs<'_, F> {
    async fn next(&mut self) -> Input {
        let key = async {
            match &mut self.keys {
                Some(keys) => keys.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.asked.as_mut() => Input::Leave,
            input = key => match input.as_ref().map(pressed) {
                None => Input::Leave,
                Some(Some(key)) if leaves(key) => Input::Leave,
                Some(_) => Input::Redraw,
            },
            Some(report) = self.reports.recv() => Input::Report(report),
        }
    }
}

/// Plays one round. Returns `false` if the user wants to leave.
async fn round<F: Future<Output = ()>>(
    store: &Store,
    place: &Place,
    crew: &mut Crew,
    show: &mut Show,
    inputs: &mut Inputs<'_, F>,
    (length, pace, end): (Duration, u32, Instant),
) -> Result<bool, Failure> {
    let prefix = Some(place.prefix.clone()).filter(|prefix| !prefix.is_empty());
    let mut watch = store.client.inspect().watch(Query { prefix, ..Query::default() }, EVERY);
    let mut story = Story::new(length, pace);
    let begun = Instant::now();
    show.refresh(&mut story)?;
    while !story.is_over() {
        let looked = {
            let mut looking = pin!(watch.next());
            loop {
                let input = tokio::select! {
                    biased;
                    input = inputs.next() => input,
                    looked = &mut looking => break looked,
                };
                match input {
                    Input::Leave => return Ok(false),
                    Input::Redraw => {}
                    Input::Report(Report::Ended(name)) if crew.misses(name) => {
                        let why = format!(
                            "the worker {name} ended; see whether this store can be used by other programs"
                        );
                        return Err(Failure::new(exit::UNAVAILABLE, why));
                    }
                    Input::Report(report) => {
                        let pid = match report {
                            Report::Ready { who, .. } => crew.pid(who),
                            _ => None,
                        };
                        story.report(&report, pid).into_iter().for_each(|order| crew.carry_out(order));
                        show.reported(&report, &story)?;
                    }
                }
                show.refresh(&mut story)?;
            }
        };
        let seen = looked.map_err(Failure::from)?;
        let look = show.seen(seen, end.saturating_duration_since(Instant::now()), &story)?;
        story.look(begun.elapsed(), &look).into_iter().for_each(|order| crew.carry_out(order));
        show.refresh(&mut story)?;
        if begun.elapsed() > length * 2 + SLACK {
            let why = "the story does not come to its end: the store, or this machine, is too slow for it";
            return Err(Failure::new(exit::UNAVAILABLE, sanitized(why)));
        }
    }
    Ok(true)
}

fn last_words(show: &Show, on_users_store: bool) -> Vec<String> {
    let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let mut lines = vec![
        format!(
            "{} seen, {} accepted, {} refused by {}. Nothing is left behind.",
            count(number(show.grants), "grant", "grants"),
            count(number(show.writes), "write", "writes"),
            count(number(show.refusals), "late write", "late writes"),
            if show.refusals == 1 { "its token" } else { "their tokens" },
        ),
        String::new(),
        "Your own commands, one at a time:".into(),
        String::new(),
        "  polylatch run demo/first -- sleep 30".into(),
        "  polylatch watch".into(),
    ];
    if !show.was_on_screen || on_users_store {
        lines.truncate(1);
    }
    lines
}
