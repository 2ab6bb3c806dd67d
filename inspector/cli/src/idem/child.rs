//! The command: a process group of its own, whose outputs are printed and kept.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use host::child::die_with_us;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::oneshot;

use super::frame::KEPT;

/// A running command.
pub(super) struct Running {
    group: Pid,
    out: JoinHandle<Kept>,
    err: JoinHandle<Kept>,
}

/// The beginning of an output, and whether it was longer.
pub(super) struct Kept {
    pub bytes: Vec<u8>,
    pub is_cut: bool,
}

impl Running {
    /// Starts a command. Call it on a thread that lives as long as the process: on Linux the command dies with the thread
    /// that started it. The receiver gets the status when the command has ended.
    pub(super) fn start(
        command: &[OsString],
        env: &[(&str, String)],
    ) -> io::Result<(Self, oneshot::Receiver<io::Result<ExitStatus>>)> {
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]).process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        process.envs(env.iter().map(|(name, value)| (name, value)));
        // A group in the background is stopped when it reads from the terminal.
        if io::stdin().is_terminal() {
            process.stdin(Stdio::null());
        }
        die_with_us(&mut process);
        let mut child = process.spawn()?;
        let out = keep(child.stdout.take(), io::stdout());
        let err = keep(child.stderr.take(), io::stderr());
        let running = Self { group: Pid::from_child(&child), out, err };
        Ok((running, wait(child)))
    }

    /// Sends a signal to every process of the group. One that is gone has no use for it.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }

    /// Returns what the command has printed. Waits until all that hold its outputs open have closed them.
    pub(super) fn printed(self) -> [Kept; 2] {
        [self.out, self.err].map(|reading| {
            let nothing = |_| Kept { bytes: Vec::new(), is_cut: true };
            reading.join().unwrap_or_else(nothing)
        })
    }
}

fn wait(mut child: Child) -> oneshot::Receiver<io::Result<ExitStatus>> {
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = ended.send(child.wait());
    });
    end
}

/// Prints an output as it comes, and keeps its beginning. A reader of ours that went away does not end the command, whose
/// answer is for those who come later.
fn keep(from: Option<impl Read + Send + 'static>, mut to: impl Write + Send + 'static) -> JoinHandle<Kept> {
    std::thread::spawn(move || {
        let mut kept = Kept { bytes: Vec::new(), is_cut: false };
        let Some(mut from) = from else { return kept };
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let read = match from.read(&mut buffer) {
                Ok(0) => return kept,
                Ok(read) => &buffer[..read],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Kept { is_cut: true, ..kept },
            };
            let _ = to.write_all(read).and_then(|()| to.flush());
            let room = KEPT - kept.bytes.len();
            kept.bytes.extend_from_slice(&read[..read.len().min(room)]);
            kept.is_cut |= read.len() > room;
        }
    })
}

/// The exit code of a command, or the number of the signal that ended it.
pub(super) fn ending(status: ExitStatus) -> Result<u8, u8> {
    let byte = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(byte(code)),
        (None, signal) => Err(byte(signal.unwrap_or(0))),
    }
}
