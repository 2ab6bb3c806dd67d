//! The command: a process group of its own, with the terminal if we had it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use host::child::{die_with_us, ignore_terminal_stops};
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, kill_process_group, test_kill_process_group, waitpid,
};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Code(u8),
    Signal(u8),
}

/// What became of a command that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Runs,
    /// Ctrl-Z stopped it.
    Suspended,
    Ended(Ended),
}

/// A running command and everything it started in its process group.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    /// The terminal was given to the group and must be taken back.
    has_terminal: bool,
}

impl Group {
    /// Starts a command. Call it on a thread that lives as long as the process: on Linux the command
    /// dies with the thread that started it.
    pub(super) fn start(command: &[OsString], env: &[(&str, &str)]) -> io::Result<Self> {
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]).envs(env.iter().copied()).process_group(0);
        die_with_us(&mut process);
        let in_foreground =
            isatty(io::stdin()) && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        let child = process.spawn()?;
        let leader = Pid::from_child(&child);
        let mut group = Self { leader, has_terminal: false };
        // A group in the background is stopped when it reads from the terminal, so hand it over like
        // a shell does, and wake a command that was quicker than this.
        if in_foreground && tcsetpgrp(io::stdin(), leader).is_ok() {
            group.has_terminal = true;
            // From now on we are in the background ourselves.
            ignore_terminal_stops();
            group.signal(Signal::CONT);
        }
        Ok(group)
    }

    /// Sends a signal to every process of the group. One that is gone has no use for it.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.leader, signal);
    }

    /// Asks the group to stop. A stopped process acts on SIGTERM only once it continues.
    pub(super) fn ask_to_stop(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Looks whether the command has ended, without waiting.
    pub(super) fn look(&self) -> io::Result<Look> {
        let Some((_, status)) = waitpid(Some(self.leader), WaitOptions::NOHANG | WaitOptions::UNTRACED)?
        else {
            return Ok(Look::Runs);
        };
        let byte = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
        if let Some(code) = status.exit_status() {
            return Ok(Look::Ended(Ended::Code(byte(code))));
        }
        if let Some(signal) = status.terminating_signal() {
            return Ok(Look::Ended(Ended::Signal(byte(signal))));
        }
        let by_key = status.stopping_signal() == Some(Signal::TSTP.as_raw());
        Ok(if by_key && self.has_terminal { Look::Suspended } else { Look::Runs })
    }

    /// Says whether no process of the group is left. Only true after the leader was seen to end.
    pub(super) fn is_gone(&self) -> bool {
        test_kill_process_group(self.leader) == Err(rustix::io::Errno::SRCH)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.has_terminal {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
        }
    }
}
