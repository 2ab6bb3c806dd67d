//! What the locks protect: a server that accepts a write only under the largest token it has seen, and
//! what readers or holders of permits do only under a token that no write has outrun.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::boot_nanos;

/// One write, accepted or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    pub lock: u32,
    pub token: u64,
    /// Process id of the writer.
    pub pid: u32,
    pub at: u64,
    pub accepted: bool,
    /// A write, of somebody who is alone. Otherwise others may be there too.
    pub alone: bool,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = if self.accepted { "accepted" } else { "refused" };
        let (lock, token, pid, ms) = (self.lock, self.token, self.pid, self.at as f64 / 1e6);
        let what = if self.alone { "write to" } else { "shared use of" };
        write!(f, "{what} {lock} under token {token} by process {pid} at {ms:.3} {answer}")
    }
}

#[derive(Debug, Default)]
struct State {
    largest: HashMap<u32, Largest>,
    writes: Vec<Write>,
    /// How many sections were accepted.
    sections: u64,
}

#[derive(Debug, Default)]
struct Largest {
    of_all: u64,
    alone: u64,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    written: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, lock: u32, token: u64, pid: u32, alone: bool, is_first: bool) -> (bool, u64) {
        let mut state = self.lock();
        let seen = state.largest.entry(lock).or_default();
        let accepted = token >= if alone { seen.of_all } else { seen.alone };
        seen.of_all = token.max(seen.of_all);
        if alone {
            seen.alone = token.max(seen.alone);
        }
        let largest = seen.of_all;
        // Inside the mutex, so that the order of the list is the order of the times.
        state.writes.push(Write { lock, token, pid, at: boot_nanos(), accepted, alone });
        state.sections += u64::from(accepted && is_first);
        drop(state);
        self.written.notify_all();
        (accepted, largest)
    }
}

/// The protected resource, on a unix socket; it serves until the process ends.
#[derive(Debug)]
pub struct Resource {
    shared: Arc<Shared>,
    path: PathBuf,
}

/// A request: lock, process id, token, whether it is alone, whether it is the first of its section. The
/// answer: 1 or 0, and the largest token.
const REQUEST: usize = 18;
const ANSWER: usize = 9;

impl Resource {
    /// Listens in this folder.
    pub fn start(dir: &Path) -> Self {
        let path = dir.join("resource");
        let listener = UnixListener::bind(&path).expect("the folder is ours");
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&serving);
                // A worker that dies ends its connection, and with it the thread.
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { shared, path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many sections have written something.
    pub fn sections(&self) -> u64 {
        self.shared.lock().sections
    }

    /// The process whose write was the last one accepted.
    pub fn last_writer(&self) -> Option<u32> {
        self.shared.lock().writes.iter().rev().find(|write| write.accepted).map(|write| write.pid)
    }

    /// Waits until so many sections wrote or the moment has come; returns how many did.
    pub fn wait_for(&self, sections: u64, until: Instant) -> u64 {
        let mut state = self.shared.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.sections >= sections || left.is_zero() {
                return state.sections;
            }
            state = self.shared.written.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// All writes so far, in their order.
    pub fn writes(&self) -> Vec<Write> {
        self.shared.lock().writes.clone()
    }
}

fn serve(mut stream: UnixStream, shared: &Shared) {
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).is_ok() {
        let (lock, rest) = request.split_at(4);
        let (pid, rest) = rest.split_at(4);
        let (token, flags) = rest.split_at(8);
        let small = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let token = u64::from_le_bytes(token.try_into().expect("eight bytes"));
        let (accepted, largest) = shared.write(small(lock), token, small(pid), flags[0] == 1, flags[1] == 1);
        let mut answer = [0; ANSWER];
        answer[0] = u8::from(accepted);
        answer[1..].copy_from_slice(&largest.to_le_bytes());
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

/// A worker's way to the resource.
#[derive(Debug)]
pub struct Writer(UnixStream);

impl Writer {
    pub fn connect(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).map(Self)
    }

    /// Writes under a token, or uses the resource beside others; answers whether it was accepted, and the
    /// largest token. `is_first`: the section has not been here before.
    pub fn write(&mut self, lock: u32, token: u64, alone: bool, is_first: bool) -> io::Result<(bool, u64)> {
        let mut request = [0; REQUEST];
        request[..4].copy_from_slice(&lock.to_le_bytes());
        request[4..8].copy_from_slice(&std::process::id().to_le_bytes());
        request[8..16].copy_from_slice(&token.to_le_bytes());
        request[16..].copy_from_slice(&[u8::from(alone), u8::from(is_first)]);
        self.0.write_all(&request)?;
        let mut answer = [0; ANSWER];
        self.0.read_exact(&mut answer)?;
        let largest = u64::from_le_bytes(answer[1..].try_into().expect("eight bytes"));
        Ok((answer[0] == 1, largest))
    }
}
