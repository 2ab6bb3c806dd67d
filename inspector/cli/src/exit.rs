//! What the program's exit codes mean. `polylatch run` passes every other code on from its command.

pub(crate) use host::exit::{INTERNAL, SYSTEM, UNAVAILABLE, USAGE};
use polylatch::{Error, ErrorKind};

/// `break`: nothing was broken, because the lock is free, changed hands, or the operator did not confirm.
pub(crate) const NOTHING_DONE: u8 = 1;

/// `graph`: there is a deadlock, or what may be one.
pub(crate) const DEADLOCK: u8 = 2;

/// `doctor`: at least one warning or problem.
pub(crate) const FINDINGS: u8 = 1;

/// `check`: at least one warning, and nothing critical.
pub(crate) const WARNING: u8 = 1;

/// `check`: at least one finding that will not go away by itself.
pub(crate) const CRITICAL: u8 = 2;

/// `idem run`: the key belongs to another command or fingerprint, or to another program. Nothing was run.
pub(crate) const MISMATCH: u8 = 65;

/// `run`: another client held the lock until the wait was over. `idem run`: the key, likewise. The command was not started.
pub(crate) const NOT_ACQUIRED: u8 = 75;

/// `run`: the lease was lost or nearly lost, or the hold limit came; the command was stopped. `idem run`: its answer is not
/// stored.
pub(crate) const LOST: u8 = 76;

/// `run`: the command is there but cannot be executed, as in shells.
pub(crate) const CANNOT_EXECUTE: u8 = 126;

/// `run`: there is no such command, as in shells.
pub(crate) const NO_SUCH_COMMAND: u8 = 127;

/// Ended by a signal: this plus its number, as in shells.
pub(crate) const SIGNAL_BASE: u8 = 128;

/// Returns the code for a failed call.
pub(crate) fn of(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::InvalidConfig | ErrorKind::InvalidArgument => USAGE,
        ErrorKind::WaitTimeout | ErrorKind::Canceled => NOT_ACQUIRED,
        ErrorKind::LeaseLost => LOST,
        ErrorKind::Internal => INTERNAL,
        _ => UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_clear_of_common_ones_and_of_each_other() {
        let own = [
            USAGE,
            MISMATCH,
            UNAVAILABLE,
            INTERNAL,
            SYSTEM,
            NOT_ACQUIRED,
            LOST,
            CANNOT_EXECUTE,
            NO_SUCH_COMMAND,
        ];
        for (at, code) in own.iter().enumerate() {
            assert!((64..SIGNAL_BASE).contains(code) && !own[..at].contains(code));
        }
    }
}
