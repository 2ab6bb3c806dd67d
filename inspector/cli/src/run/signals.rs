//! Signals to this process that its command should get.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The signals that are passed on, as streams. One that was ignored when this program started, as
/// SIGHUP under nohup, stays ignored: the command inherits that.
#[derive(Debug)]
pub(super) struct Signals {
    streams: [Option<Stream>; 4],
    child: Stream,
}

const FORWARDED: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        let mut streams = [None, None, None, None];
        for (stream, number) in streams.iter_mut().zip(FORWARDED.map(Signal::as_raw)) {
            if ignored & (1 << (number - 1)) == 0 {
                *stream = Some(signal(SignalKind::from_raw(number))?);
            }
        }
        Ok(Self { streams, child: signal(SignalKind::child())? })
    }

    /// Waits for the next signal to pass on.
    pub(super) async fn next(&mut self) -> Signal {
        let [int, term, hup, quit] = &mut self.streams;
        tokio::select! {
            () = arrived(int) => FORWARDED[0],
            () = arrived(term) => FORWARDED[1],
            () = arrived(hup) => FORWARDED[2],
            () = arrived(quit) => FORWARDED[3],
        }
    }

    /// Waits for the next signal to pass on, or until something happened to a child.
    pub(super) async fn next_or_child(&mut self) -> Option<Signal> {
        let [int, term, hup, quit] = &mut self.streams;
        tokio::select! {
            () = arrived(int) => Some(FORWARDED[0]),
            () = arrived(term) => Some(FORWARDED[1]),
            () = arrived(hup) => Some(FORWARDED[2]),
            () = arrived(quit) => Some(FORWARDED[3]),
            _ = self.child.recv() => None,
        }
    }
}

async fn arrived(stream: &mut Option<Stream>) {
    match stream {
        Some(stream) => {
            if stream.recv().await.is_none() {
                std::future::pending().await
            }
        }
        None => std::future::pending().await,
    }
}

/// Returns the set of ignored signals; proc_pid_status(5), `SigIgn`. Unknown counts as none.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
