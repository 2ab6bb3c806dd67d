//! Files of this program: saved connections, its own audit, recordings.

use std::io;
use std::path::{Path, PathBuf};

use crate::model::order::AuditLine;
use crate::model::recording::Recording;
use crate::model::saved::Saved;
use crate::model::{Connection, Update};

/// Returns the file of saved connections: `$XDG_CONFIG_HOME/polylatch/inspector.json`, or the platform's
/// equivalent. `None` if the environment names no home.
pub fn saved_path() -> Option<PathBuf> {
    None
}

/// Returns the audit file: `$XDG_STATE_HOME/polylatch/inspector-audit.jsonl`, or the platform's equivalent.
pub fn audit_path() -> Option<PathBuf> {
    None
}

/// Reads saved connections; a file that is not there is an empty one. Errors: a sentence with the path.
pub fn load(_path: &Path) -> Result<Saved, String> {
    Ok(Saved::default())
}

/// Writes saved connections so that a crash leaves either the old file or the new one, readable by the
/// user only. Errors: a sentence with the path.
pub fn save(_path: &Path, _saved: &Saved) -> Result<(), String> {
    Ok(())
}

/// Appends to the audit file.
pub fn audit(_path: &Path, _line: &AuditLine<'_>) -> io::Result<()> {
    Ok(())
}

/// A recording that is being written.
#[derive(Debug)]
pub struct Recorder {}

impl Recorder {
    /// Begins a new file; one that is there already is left alone. Errors: a sentence with the path.
    pub fn create(_path: &Path, _connections: &[Connection], _now_ms: u64) -> Result<Self, String> {
        Ok(Self {})
    }

    /// Writes an update, and hands it to the operating system before it returns.
    pub fn update(&mut self, _update: &Update) -> io::Result<()> {
        Ok(())
    }

    /// Writes that a connection was added.
    pub fn connection(&mut self, _connection: &Connection) -> io::Result<()> {
        Ok(())
    }

    /// Returns the size of the file so far, in bytes.
    pub fn bytes(&self) -> u64 {
        0
    }
}

/// Reads a recording. Errors: a sentence with the path.
pub fn open_recording(_path: &Path) -> Result<Recording, String> {
    Ok(Recording::default())
}
