//! What happens to a client's locks, by callback.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use polylatch_bridge::events::Listener;
use polylatch_bridge::process::Process;
use polylatch_bridge::{Event, Failure, Inbox, Level, PerProcess};

use crate::border::{infallible, owned_text};
use crate::cancel::run;

/// How long pl_client_close waits for callbacks.
const LAST_CALLBACKS: Duration = Duration::from_secs(5);

/// A function that is called with an event: the pointer that was given for it, the event's stable name, such as
/// "lost", and the whole event as a JSON object, such as {"event":"lost","level":"error","message":"the lease is
/// lost","client":"…","lock":"a","fencing_token":17,"reason":"expired","held_ms":2000}. The texts live until it
/// returns.
pub type PlOnEvent =
    Option<unsafe extern "C" fn(user: *mut c_void, event: *const c_char, json: *const c_char)>;

/// A function that frees the pointer that was given for a callback, or NULL.
pub type PlDrop = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// The callback of a client.
#[derive(Debug)]
pub(crate) struct Callback {
    home: Process,
    on_event: PlOnEvent,
    user: *mut c_void,
    drop: PlDrop,
}

// SAFETY: the pointer is not looked at here; the caller promises that its functions may get it on another thread.
unsafe impl Send for Callback {}
// SAFETY: as above; one thread calls.
unsafe impl Sync for Callback {}

impl Callback {
    pub(crate) fn new(on_event: PlOnEvent, user: *mut c_void, drop: PlDrop) -> Self {
        Self { home: Process::this(), on_event, user, drop }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.on_event.is_none()
    }

    fn tell(&self, event: Event) {
        let name = owned_text(&event.name);
        let json = owned_text(&serde_json::Value::Object(event.json()).to_string());
        if let Some(on_event) = self.on_event {
            // SAFETY: the caller promises that the function may be called with this pointer.
            unsafe { on_event(self.user, name.as_ptr(), json.as_ptr()) };
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        if let Some(drop) = self.drop
            && self.home.is_this()
        {
            // SAFETY: as above; it is called once.
            unsafe { drop(self.user) };
        }
    }
}

/// Calls back with the events of one client, on a thread of its own: a callback may itself call, and wait.
#[derive(Debug)]
pub(crate) struct Telling {
    inbox: Arc<Inbox>,
    callback: Callback,
    teller: PerProcess<Teller>,
}

/// The thread of one process.
#[derive(Debug, Default)]
struct Teller {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Stage {
    thread: Option<ThreadId>,
    /// A call is under way.
    is_calling: bool,
    /// No further call begins.
    is_stopped: bool,
    /// All events were handed over.
    is_over: bool,
}

impl Telling {
    pub(crate) fn new(callback: Callback) -> Arc<Self> {
        Arc::new(Self { inbox: Inbox::new(), callback, teller: PerProcess::default() })
    }

    /// How a client is connected so that this hears it, also when a forked child connects it again.
    pub(crate) fn listener(self: &Arc<Self>) -> Listener {
        let telling = Arc::clone(self);
        let events = Arc::new(move || {
            telling.start()?;
            Ok(telling.inbox.events())
        });
        Listener { events, number: 0, level: Some(Level::default()) }
    }

    fn start(self: &Arc<Self>) -> Result<(), Failure> {
        let mut stage = self.teller.get_or_make(Teller::default).stage();
        if stage.thread.is_none() {
            let telling = Arc::clone(self);
            let work = move || infallible((), || telling.tell_all());
            let thread = thread::Builder::new().name("polylatch-events".into()).spawn(work);
            stage.thread = Some(thread.map_err(Failure::no_thread)?.thread().id());
        }
        Ok(())
    }

    fn tell_all(&self) {
        let Some(teller) = self.teller.get() else { return };
        while let Some(events) = run(self.inbox.next()) {
            for event in events {
                teller.make(|| self.callback.tell(event));
            }
        }
        teller.stage().is_over = true;
        teller.changed.notify_all();
    }

    /// Waits until all events of a closed client were handed over, for a limited time; not in the callback itself.
    pub(crate) fn drain(&self) {
        let Some(teller) = self.teller.get() else { return };
        let goes_on = |stage: &mut Stage| !stage.is_over && stage.thread != Some(thread::current().id());
        let waited = teller.changed.wait_timeout_while(teller.stage(), LAST_CALLBACKS, goes_on);
        drop(waited);
    }

    /// Returns once no callback is running or will run; in the callback itself, once none will begin.
    pub(crate) fn end(&self) {
        let Some(teller) = self.teller.get() else { return };
        let mut stage = teller.stage();
        stage.is_stopped = true;
        while stage.is_calling && stage.thread != Some(thread::current().id()) {
            stage = teller.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Teller {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, call: impl FnOnce()) {
        {
            let mut stage = self.stage();
            if stage.is_stopped {
                return;
            }
            stage.is_calling = true;
        }
        call();
        self.stage().is_calling = false;
        self.changed.notify_all();
    }
}
