//! Recordings: one line of JSON per reading, so that a cut file loses its last line only.
//!
//! The first line says what the file is. A reading is written as what has changed since the one before,
//! exactly: reading it back gives equal snapshots, so findings on replay are those that were live. No
//! line has a secret: snapshots have none, URLs are written without theirs.

use super::connection::Connection;
use super::report::Update;

/// Writes a recording, line by line; where to is the caller's business.
#[derive(Debug, Default)]
pub struct Encoder {}

impl Encoder {
    /// Begins a recording: returns the first lines. `now_ms` is the viewer's time.
    pub fn begin(_connections: &[Connection], _now_ms: u64) -> (Self, String) {
        (Self {}, String::new())
    }

    /// Returns the lines of a connection that came later.
    pub fn connection(&mut self, _connection: &Connection) -> String {
        String::new()
    }

    /// Returns the lines of an update, each with its end of line.
    pub fn update(&mut self, _update: &Update) -> String {
        String::new()
    }
}

/// A recording that was read.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// The connections in it.
    pub connections: Vec<Connection>,
    /// The updates in it, in order.
    pub updates: Vec<Update>,
    /// What could not be used: a cut end, a damaged line. Harmless.
    pub remarks: Vec<String>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// Errors: a sentence, if it is no recording, or one of a newer version.
    pub fn parse(_text: &str) -> Result<Self, String> {
        Ok(Self::default())
    }

    /// Returns the time from the first update to the last, on the viewer's clock of then.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.updates.first()?.at_ms, self.updates.last()?.at_ms))
    }
}
