//! What the core says while it runs, as plain values for the logging of any language.
//!
//! The core speaks through `tracing` ([`polylatch::observe`]), in a JavaScript host through a part of it. Here its
//! events become [`Event`]s: this is the one place that says what they are called and which fields they have. They go
//! into queues ([`Events`]), because they come up on threads that must not wait for a host language: one of them renews
//! leases. An event below the wanted level costs one load at its source: no value is built, and nothing wakes the host.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use polylatch::ClientId;

use crate::failure::Failure;
use crate::process::Process;

mod level;

#[cfg(not(target_family = "wasm"))]
mod inbox;
mod naming;
#[cfg_attr(target_family = "wasm", path = "events/web.rs")]
mod subscriber;

#[cfg(not(target_family = "wasm"))]
pub use inbox::Inbox;
pub use level::Level;

/// How many events wait for a host that does not take them; further ones are counted and dropped.
const MOST: usize = 1_000;

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number. Fencing tokens are below 2^53.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// How much it matters.
    pub level: Level,
    /// Its stable name, such as `lost`; `notice` for what has none.
    pub name: String,
    /// What happened, for display.
    pub message: String,
    /// The client's id, where it is of one client.
    pub client: Option<String>,
    /// The rest, such as `lock`, `fencing_token`, `reason`, `error`; lengths of time end in `_ms`.
    pub fields: Vec<(&'static str, Value)>,
}

impl Event {
    /// Returns one line for a log: the message, and the fields in parentheses.
    pub fn line(&self) -> String {
        let fields: Vec<_> = self.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if fields.is_empty() {
            self.message.clone()
        } else {
            format!("{} ({})", self.message, fields.join(", "))
        }
    }
}

impl Event {
    /// Returns the event as a JSON object: `event`, `level`, `message`, `client`, and its fields.
    pub fn json(self) -> serde_json::Map<String, serde_json::Value> {
        let mut made = serde_json::Map::new();
        made.insert("event".into(), self.name.into());
        made.insert("level".into(), self.level.word().into());
        made.insert("message".into(), self.message.into());
        made.insert("client".into(), self.client.into());
        for (name, value) in self.fields {
            let value = match value {
                Value::Text(text) => text.into(),
                Value::Number(number) => number.into(),
                Value::Flag(flag) => flag.into(),
            };
            made.insert(name.into(), value);
        }
        made
    }
}

/// What a host takes out of its queue.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// An event, and the number of the listener that gets it; `None` if it is for the host alone.
    Event(Event, Option<u64>),
    /// No more events come under this number.
    Ended(u64),
}

/// Where events wait for a host.
pub struct Events {
    wake: Box<dyn Fn() + Send + Sync>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    heard: VecDeque<Heard>,
    dropped: u64,
    /// From which level on the host itself wants the events of all its clients.
    own: Option<Level>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("waiting", &unpoisoned(&self.waiting).heard.len())
            .finish_non_exhaustive()
    }
}

impl Events {
    /// Makes a queue of this process, for the events from `info` on of all clients. `wake` is called when it is no
    /// longer empty, on any thread; it must not block.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let events = Self::of_clients(wake);
        unpoisoned(&events.waiting).own = Some(Level::default());
        let mut places = unpoisoned(&board().places);
        places.queues.retain(|queue| queue.strong_count() > 0);
        places.queues.push(Arc::downgrade(&events));
        drop(places);
        subscriber::wants_changed();
        events
    }

    /// Makes a queue for the events of the clients that are connected with it, and for no others.
    pub fn of_clients(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        subscriber::install();
        Arc::new(Self { wake: Box::new(wake), waiting: Mutex::default() })
    }

    /// Returns the one queue of this process; makes it at the first call. A forked child gets another.
    pub fn of_this_process(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::clone(board().shared.get_or_init(|| Self::new(wake)))
    }

    /// Takes out what has come.
    pub fn take(&self) -> Vec<Heard> {
        let mut waiting = unpoisoned(&self.waiting);
        let mut heard: Vec<_> = waiting.heard.drain(..).collect();
        let dropped = std::mem::take(&mut waiting.dropped);
        if dropped > 0 {
            let lost = Event {
                level: Level::Warn,
                name: "events_dropped".into(),
                message: "events came faster than this program took them".into(),
                client: None,
                fields: vec![("dropped", Value::Number(dropped as i64))],
            };
            heard.push(Heard::Event(lost, None));
        }
        heard
    }

    /// Sets from which level on this queue gets the events of all clients; `None` for those of listeners alone.
    pub fn want(&self, least: Option<Level>) {
        let changed = std::mem::replace(&mut unpoisoned(&self.waiting).own, least) != least;
        if changed {
            subscriber::wants_changed();
        }
    }

    fn own(&self) -> Option<Level> {
        unpoisoned(&self.waiting).own
    }

    fn push(&self, heard: Heard) {
        let mut waiting = unpoisoned(&self.waiting);
        if waiting.heard.len() >= MOST && matches!(heard, Heard::Event(..)) {
            waiting.dropped += 1;
            return;
        }
        let was_empty = waiting.heard.is_empty();
        waiting.heard.push_back(heard);
        drop(waiting);
        if was_empty {
            (self.wake)();
        }
    }
}

/// How a client is listened to.
#[derive(Clone)]
pub struct Listener {
    /// Returns the queue, in the process that asks: before each attempt to connect. Its error is that of connecting.
    pub events: Arc<dyn Fn() -> Result<Arc<Events>, Failure> + Send + Sync>,
    /// The host's number for the listener of this client.
    pub number: u64,
    /// From which level on the listener gets events, where the program does not say it
    /// ([`crate::ConnectOptions::level`]); `None` if there is no listener, only an end to tell.
    pub level: Option<Level>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Brings one client's events to its listener, until it is dropped.
#[derive(Debug)]
pub struct Route {
    home: Process,
    /// Not the client's id, which is not known when the route is made.
    id: u64,
    to: To,
    ended: AtomicBool,
}

#[derive(Debug, Clone)]
struct To {
    events: Arc<Events>,
    number: u64,
    level: Option<Level>,
}

impl Route {
    /// Makes a route that is not open yet. `level` is what the program said.
    ///
    /// Errors: those of [`Listener::events`].
    pub fn prepare(listener: &Listener, level: Option<Level>) -> Result<Self, Failure> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let level = listener.level.map(|usual| level.unwrap_or(usual));
        let to = To { events: (listener.events)()?, number: listener.number, level };
        Ok(Self {
            home: Process::this(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            to,
            ended: AtomicBool::new(false),
        })
    }

    /// Returns what opens the route once the client has an id.
    pub fn opener(&self) -> impl Fn(&ClientId) + Send + Sync + 'static {
        let (id, to) = (self.id, self.to.clone());
        move |client| {
            unpoisoned(&board().places).routes.insert(client.as_str().to_owned(), (id, to.clone()));
            subscriber::wants_changed();
        }
    }

    /// Ends it: the listener is told after the events that came before. Repeatable.
    pub fn end(&self) {
        if !self.home.is_this() || self.ended.swap(true, Ordering::SeqCst) {
            return;
        }
        unpoisoned(&board().places).routes.retain(|_, (id, _)| *id != self.id);
        self.to.events.push(Heard::Ended(self.to.number));
        subscriber::wants_changed();
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        self.end();
    }
}

/// Who listens in this process. A forked child begins with an empty one: the parent's may be locked there for ever.
struct Board {
    home: Process,
    places: Mutex<Places>,
    shared: OnceLock<Arc<Events>>,
}

#[derive(Default)]
struct Places {
    queues: Vec<Weak<Events>>,
    /// By the client's id.
    routes: HashMap<String, (u64, To)>,
}

fn board() -> &'static Board {
    static BOARD: AtomicPtr<Board> = AtomicPtr::new(std::ptr::null_mut());
    loop {
        let present = BOARD.load(Ordering::Acquire);
        // SAFETY: boards are leaked when they are made, so every pointer stays valid.
        if let Some(board) = unsafe { present.as_ref() }
            && board.home.is_this()
        {
            return board;
        }
        let fresh = Board { home: Process::this(), places: Mutex::default(), shared: OnceLock::new() };
        let fresh = Box::into_raw(Box::new(fresh));
        if BOARD.compare_exchange(present, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: it was made above and no other thread has seen it.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

/// The least level that any listener or host wants; nothing if there is none.
fn wanted() -> Option<Level> {
    let places = unpoisoned(&board().places);
    let queues: Vec<_> = places.queues.iter().filter_map(Weak::upgrade).collect();
    let routes: Vec<_> = places.routes.values().map(|(_, to)| to.clone()).collect();
    drop(places);
    let of_queues = queues.iter().filter_map(|queue| queue.own());
    let of_routes = routes.iter().flat_map(|to| [to.level, to.events.own()]).flatten();
    of_queues.chain(of_routes).min()
}

/// To whom an event of a client goes, or one of no client.
struct Takers {
    route: Option<To>,
    queues: Vec<Arc<Events>>,
}

impl Takers {
    fn of(client: Option<&str>) -> Self {
        let places = unpoisoned(&board().places);
        let route = client.and_then(|client| places.routes.get(client)).map(|(_, to)| to.clone());
        let queues = match &route {
            Some(_) => Vec::new(),
            None => places.queues.iter().filter_map(Weak::upgrade).collect(),
        };
        Self { route, queues }
    }

    /// Says whether any of them wants this level.
    #[cfg(not(target_family = "wasm"))]
    fn want(&self, level: Level) -> bool {
        self.route.as_ref().is_some_and(|to| passes(level, to.level) || passes(level, to.events.own()))
            || self.queues.iter().any(|queue| passes(level, queue.own()))
    }

    fn take(self, event: Event) {
        if let Some(to) = self.route {
            let listener = passes(event.level, to.level).then_some(to.number);
            if listener.is_some() || passes(event.level, to.events.own()) {
                to.events.push(Heard::Event(event, listener));
            }
            return;
        }
        for queue in self.queues {
            if passes(event.level, queue.own()) {
                queue.push(Heard::Event(event.clone(), None));
            }
        }
    }
}

fn passes(level: Level, least: Option<Level>) -> bool {
    least.is_some_and(|least| level >= least)
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
