//! Which processors the servers and the clients run on. It decides the ratios more than anything else does.

use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Where what is measured runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Where the kernel puts it.
    Any,
    /// Servers and clients on one processor. What is measured is work.
    OneCore,
    /// Servers on one processor, clients on another. What is measured is mostly the wake-up between them.
    Split,
}

/// Where clients run, unless the kernel decides.
const CLIENTS: usize = 1;

static LAYOUT: OnceLock<Layout> = OnceLock::new();

impl Layout {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "any" => Some(Self::Any),
            "one-core" => Some(Self::OneCore),
            "split" => Some(Self::Split),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::OneCore => "one-core",
            Self::Split => "split",
        }
    }

    fn processor_of_servers(self) -> Option<usize> {
        match self {
            Self::Any => None,
            Self::OneCore => Some(CLIENTS),
            Self::Split => Some(0),
        }
    }
}

/// Puts this program where its clients run: to be called before it starts a thread or a process.
pub fn choose(layout: Layout) -> Result<(), String> {
    LAYOUT.set(layout).expect("it is chosen once");
    match layout {
        Layout::Any => Ok(()),
        Layout::OneCore | Layout::Split => pin(CLIENTS)
            .map_err(|error| format!("--layout {} needs processors 0 and 1: {error}", layout.name())),
    }
}

pub fn chosen() -> Layout {
    LAYOUT.get().copied().unwrap_or(Layout::Any)
}

/// Starts servers where they run in this layout: a process runs where the thread does that starts it.
pub fn on_processor_of_servers<T>(start: impl FnOnce() -> T) -> T {
    let Some(processor) = chosen().processor_of_servers() else { return start() };
    pin(processor).expect("it was there a moment ago");
    let started = start();
    pin(CLIENTS).expect("it was there a moment ago");
    started
}

fn pin(processor: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set)
}
