//! Signals to this process: the end that is asked for from outside, and those that the command of `run` gets.
//!
//! Both listen once, from a moment on. A future made again in each round of a loop would miss what comes in between.

use std::io;

#[cfg(unix)]
use rustix::process::Signal;
#[cfg(unix)]
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Listens from this call on, and completes at SIGINT, SIGTERM or SIGHUP (on Windows at Ctrl-C). One that was ignored
/// when this program started stays ignored. Errors: the system refuses to listen.
pub(crate) fn asked_to_end() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let asked = {
        let [mut int, mut term, mut hup] = listen([Signal::INT, Signal::TERM, Signal::HUP])?;
        async move {
            tokio::select! {
                () = arrived(&mut int) => {}
                () = arrived(&mut term) => {}
                () = arrived(&mut hup) => {}
            }
        }
    };
    #[cfg(not(unix))]
    let asked = {
        let mut interrupt = tokio::signal::windows::ctrl_c()?;
        async move { drop(interrupt.recv().await) }
    };
    Ok(asked)
}

/// The signals that are passed on, as streams. One that was ignored when this program started, as
/// SIGHUP under nohup, stays ignored: the command inherits that.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Signals {
    streams: [Option<Stream>; 4],
    child: Stream,
}

#[cfg(unix)]
const FORWARDED: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let streams = listen(FORWARDED)?;
        Ok(Self { streams, child: signal(SignalKind::child())? })
    }

    /// Waits for the next signal to pass on.
    pub(crate) async fn next(&mut self) -> Signal {
        let [int, term, hup, quit] = &mut self.streams;
        tokio::select! {
            () = arrived(int) => FORWARDED[0],
            () = arrived(term) => FORWARDED[1],
            () = arrived(hup) => FORWARDED[2],
            () = arrived(quit) => FORWARDED[3],
        }
    }

    /// Waits for the next signal to pass on, or until something happened to a child.
    pub(crate) async fn next_or_child(&mut self) -> Option<Signal> {
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

/// Listens to those of these signals that are not ignored.
#[cfg(unix)]
fn listen<const N: usize>(signals: [Signal; N]) -> io::Result<[Option<Stream>; N]> {
    let ignored = ignored_signals();
    let mut streams = [const { None }; N];
    for (stream, number) in streams.iter_mut().zip(signals.map(Signal::as_raw)) {
        if ignored & (1 << (number - 1)) == 0 {
            *stream = Some(signal(SignalKind::from_raw(number))?);
        }
    }
    Ok(streams)
}

#[cfg(unix)]
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
#[cfg(unix)]
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
