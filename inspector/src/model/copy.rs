//! Commands to copy: what to type to look, to verify and to break, in our own tool and in the store's.

use super::fleet::Fleet;
use super::rows::RowKey;

/// A command line for a POSIX shell, quoted, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyCommand {
    /// What it does, in a few words.
    pub title: String,
    /// The command line.
    pub text: String,
    /// It changes the store.
    pub changes: bool,
}

/// Returns the commands for a lock, ours first.
pub fn commands(_fleet: &Fleet, _key: &RowKey) -> Vec<CopyCommand> {
    Vec::new()
}
