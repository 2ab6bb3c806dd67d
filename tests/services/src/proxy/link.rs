//! One client's connection and its twin to the server.
//!
//! Two threads per direction: a reader that finds frames and decides, a writer that waits for
//! latency and holds. A slow writer thus never delays what the reader sees.

use std::collections::{HashSet, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::state::{Action, Direction, Passage, Shared};
use crate::resp::{self, Malformed, Reply};

#[derive(Debug)]
pub(super) struct Link {
    client: TcpStream,
    server: TcpStream,
    dead: AtomicBool,
    tainted: AtomicBool,
    severed: AtomicBool,
    delayed: AtomicBool,
    books: Mutex<Books>,
}

/// Which replies are awaited, oldest first.
#[derive(Debug, Default)]
struct Books {
    pending: VecDeque<Pending>,
    subscriptions: HashSet<(String, Vec<u8>)>,
    /// A request was lost: nothing more of this client goes to the server.
    deaf: bool,
}

#[derive(Debug)]
struct Pending {
    command: String,
    /// How many confirmations an (un)subscribe still gets; `None` until the first one tells.
    confirmations: Option<usize>,
    fate: Fate,
}

#[derive(Debug)]
enum Fate {
    Deliver,
    /// Loses the reply, then the connection.
    LoseReply(Arc<AtomicBool>),
    /// The reply to a request the client sent once and the server got twice.
    Unwanted,
    /// The request never went out; when its turn comes the connection ends.
    Cut,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Forward,
    Lose,
    /// Forward or lose this frame, and end the connection behind it.
    Cut {
        forward: bool,
    },
}

struct Parcel {
    due: Instant,
    content: Content,
}

enum Content {
    Bytes(Vec<u8>),
    Eof,
    Cut,
}

impl Link {
    /// Takes over both sockets and starts the four threads.
    pub fn start(
        client: TcpStream,
        server: TcpStream,
        understands: bool,
        shared: &Arc<Shared>,
    ) -> io::Result<()> {
        for socket in [&client, &server] {
            socket.set_nodelay(true)?;
            // A writer stuck behind a peer that does not read looks up now and then.
            socket.set_write_timeout(Some(Duration::from_millis(100)))?;
        }
        let link = Arc::new(Link {
            client,
            server,
            dead: AtomicBool::new(false),
            tainted: AtomicBool::new(false),
            severed: AtomicBool::new(false),
            delayed: AtomicBool::new(false),
            books: Mutex::default(),
        });
        shared.lock().links.push(Arc::downgrade(&link));
        let (to_server, server_inbox) = mpsc::channel();
        let (to_client, client_inbox) = mpsc::channel();
        let (out, back) = (to_server, to_client.clone());
        link.run(shared, move |link, shared| {
            link.read_requests(shared, &out, &back, understands);
        });
        link.run(shared, move |link, shared| {
            link.read_replies(shared, &to_client, understands);
        });
        link.run(shared, |link, shared| {
            link.write(shared, Direction::ToServer, server_inbox);
        });
        link.run(shared, |link, shared| {
            link.write(shared, Direction::ToClient, client_inbox);
        });
        Ok(())
    }

    fn run(self: &Arc<Self>, shared: &Arc<Shared>, work: impl FnOnce(&Link, &Shared) + Send + 'static) {
        let (link, shared) = (self.clone(), shared.clone());
        thread::spawn(move || work(&link, &shared));
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    pub fn taint(&self) {
        self.tainted.store(true, Ordering::SeqCst);
    }

    pub fn is_tainted(&self) -> bool {
        self.tainted.load(Ordering::SeqCst)
    }

    /// Nothing passes any more, neither bytes nor the end.
    pub fn sever(&self) {
        self.severed.store(true, Ordering::SeqCst);
    }

    pub fn is_severed(&self) -> bool {
        self.severed.load(Ordering::SeqCst)
    }

    /// What is on its way waits, or goes on.
    pub fn delay(&self, delayed: bool) {
        self.delayed.store(delayed, Ordering::SeqCst);
    }

    pub fn is_delayed(&self) -> bool {
        self.delayed.load(Ordering::SeqCst)
    }

    /// Marks the connection for a reset: the client gets RST when the last thread lets go. The
    /// caller announces it to waiting writers.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
        reset_on_close(&self.client);
        // Wakes the blocked readers without sending anything.
        for socket in [&self.client, &self.server] {
            let _ = socket.shutdown(Shutdown::Read);
        }
    }

    /// Ends one direction towards the given side, as its peer's `shutdown` would.
    pub fn half_close(&self, direction: Direction) {
        let _ = self.socket(direction).shutdown(Shutdown::Write);
    }

    /// The socket that is written to.
    fn socket(&self, direction: Direction) -> &TcpStream {
        match direction {
            Direction::ToServer => &self.server,
            Direction::ToClient => &self.client,
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_requests(
        &self,
        shared: &Shared,
        to_server: &Sender<Parcel>,
        to_client: &Sender<Parcel>,
        understands: bool,
    ) {
        let send = |to: &Sender<Parcel>, content| {
            let due = Instant::now() + shared.lock().latency_to_server;
            // Without a receiver nobody is interested any more; keep reading to the end.
            let _ = to.send(Parcel { due, content });
        };
        let next = |buffer: &[u8]| match understands {
            true => resp::parse_request(buffer),
            false => Ok((!buffer.is_empty()).then(|| (Vec::new(), buffer.len()))),
        };
        let ended = read_frames(&self.client, next, |words, bytes| {
            let mut books = self.books();
            if books.deaf {
                return true;
            }
            let verdict = if words.is_empty() { None } else { shared.lock().judge(&words) };
            let (fates, copies) = match verdict {
                None => (vec![Fate::Deliver], 1),
                Some((Action::DropReply, fired)) => (vec![Fate::LoseReply(fired)], 1),
                Some((Action::Duplicate, fired)) => {
                    fired.store(true, Ordering::SeqCst);
                    (vec![Fate::Deliver, Fate::Unwanted], 2)
                }
                Some((Action::DropRequest, fired)) => {
                    fired.store(true, Ordering::SeqCst);
                    books.deaf = true;
                    if books.pending.is_empty() {
                        send(to_client, Content::Cut);
                    }
                    (vec![Fate::Cut], 0)
                }
            };
            // An empty line or array is no request; the server does not answer it.
            if !words.is_empty() {
                for fate in fates {
                    books.pending.push_back(Pending::new(&words, fate));
                }
            }
            for _ in 0..copies {
                send(to_server, Content::Bytes(bytes.to_vec()));
            }
            true
        });
        if let Ended::Malformed(malformed) = ended {
            shared.lock().malformed.push(format!("request: {}", malformed.0));
            self.kill();
            shared.announce();
        }
        // Also after a reset by the client: what it sent before may still arrive, late.
        send(to_server, Content::Eof);
    }

    fn read_replies(&self, shared: &Shared, to_client: &Sender<Parcel>, understands: bool) {
        let send = |content| {
            let due = Instant::now() + shared.lock().latency_to_client;
            let _ = to_client.send(Parcel { due, content });
        };
        let next = |buffer: &[u8]| match understands {
            true => resp::parse(buffer),
            false => Ok((!buffer.is_empty()).then_some((Reply::Nil, buffer.len()))),
        };
        let ended = read_frames(&self.server, next, |reply, bytes| {
            let verdict = match understands {
                true => self.books().judge(&reply, || shared.lock().loses_push()),
                false => Verdict::Forward,
            };
            if matches!(verdict, Verdict::Forward | Verdict::Cut { forward: true }) {
                send(Content::Bytes(bytes.to_vec()));
            }
            if matches!(verdict, Verdict::Cut { .. }) {
                send(Content::Cut);
                return false;
            }
            true
        });
        match ended {
            Ended::Eof => send(Content::Eof),
            Ended::Error => send(Content::Cut),
            Ended::Stopped => {}
            Ended::Malformed(malformed) => {
                shared.lock().malformed.push(format!("reply: {}", malformed.0));
                send(Content::Cut);
            }
        }
    }

    fn write(&self, shared: &Shared, direction: Direction, inbox: Receiver<Parcel>) {
        for parcel in inbox {
            let slice = match shared.pass(self, direction, parcel.due) {
                Passage::Deliver { slice } => slice,
                Passage::Lose => continue,
                Passage::Dead => return,
            };
            match parcel.content {
                Content::Bytes(bytes) => {
                    let size = slice.unwrap_or(bytes.len()).max(1);
                    for piece in bytes.chunks(size) {
                        if self.write_piece(direction, piece).is_err() {
                            return;
                        }
                        if slice.is_some() {
                            // Long enough for the receiver to be woken by this piece alone.
                            thread::sleep(Duration::from_micros(100));
                        }
                    }
                }
                Content::Eof => self.half_close(direction),
                Content::Cut => {
                    self.kill();
                    return shared.announce();
                }
            }
        }
    }

    fn write_piece(&self, direction: Direction, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            match self.socket(direction).write(piece) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => piece = &piece[count..],
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if !self.is_dead() => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }
}

impl Pending {
    fn new(words: &[Vec<u8>], fate: Fate) -> Pending {
        let command = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        let arguments = words.len() - 1;
        Pending { confirmations: (arguments > 0).then_some(arguments), command, fate }
    }
}

impl Books {
    /// Finds the request a frame answers, if it answers one, and what is to become of it.
    fn judge(&mut self, frame: &Reply, loses_push: impl FnOnce() -> bool) -> Verdict {
        let kind = match frame {
            Reply::Push(items) | Reply::Array(items) => items.first().and_then(Reply::text),
            _ => None,
        };
        let pushed = matches!(frame, Reply::Push(_));
        let kind = kind.unwrap_or_default().to_ascii_lowercase();
        // In RESP2 a message is an ordinary array; it can only come while something is subscribed.
        if (pushed || !self.subscriptions.is_empty())
            && matches!(kind.as_str(), "message" | "pmessage" | "smessage")
        {
            return if loses_push() { Verdict::Lose } else { Verdict::Forward };
        }
        let awaited = self.pending.front().map(|front| front.command.as_str());
        if kind.ends_with("subscribe") && awaited == Some(kind.as_str()) {
            if !self.confirm(&kind, frame.items()) {
                return self.verdict_of_front();
            }
        } else if pushed {
            return Verdict::Forward;
        }
        let Some(answered) = self.pending.pop_front() else {
            // MONITOR and the like: the server talks without being asked.
            return Verdict::Forward;
        };
        if answered.command == "reset" {
            self.subscriptions.clear();
        }
        let next_is_cut = matches!(self.pending.front(), Some(next) if matches!(next.fate, Fate::Cut));
        match answered.fate {
            Fate::LoseReply(fired) => {
                fired.store(true, Ordering::SeqCst);
                Verdict::Cut { forward: false }
            }
            Fate::Deliver if next_is_cut => Verdict::Cut { forward: true },
            Fate::Unwanted if next_is_cut => Verdict::Cut { forward: false },
            Fate::Unwanted => Verdict::Lose,
            Fate::Deliver | Fate::Cut => Verdict::Forward,
        }
    }

    /// Notes one confirmation of an (un)subscribe; answers whether it was the request's last.
    fn confirm(&mut self, kind: &str, items: &[Reply]) -> bool {
        let (removes, family) = match kind.split_once("unsubscribe") {
            Some((family, _)) => (true, family),
            None => (false, kind.strip_suffix("subscribe").unwrap_or_default()),
        };
        let of_family = |(one, _): &&(String, Vec<u8>)| one == family;
        let all = self.subscriptions.iter().filter(of_family).count().max(1);
        let channel = items.get(1).and_then(Reply::bytes).unwrap_or_default();
        let entry = (family.to_owned(), channel.to_owned());
        if removes {
            self.subscriptions.remove(&entry);
        } else {
            self.subscriptions.insert(entry);
        }
        let Some(front) = self.pending.front_mut() else {
            return true;
        };
        // UNSUBSCRIBE without arguments confirms every channel there was, or once if none.
        let left = front.confirmations.unwrap_or(all) - 1;
        front.confirmations = Some(left);
        left == 0
    }

    fn verdict_of_front(&self) -> Verdict {
        match self.pending.front().map(|front| &front.fate) {
            Some(Fate::LoseReply(_) | Fate::Unwanted) => Verdict::Lose,
            _ => Verdict::Forward,
        }
    }
}

enum Ended {
    Eof,
    Error,
    /// The handler had enough.
    Stopped,
    Malformed(Malformed),
}

/// Reads frames until the stream ends or `handle` answers false.
fn read_frames<T>(
    mut socket: &TcpStream,
    next: impl Fn(&[u8]) -> Result<Option<(T, usize)>, Malformed>,
    mut handle: impl FnMut(T, &[u8]) -> bool,
) -> Ended {
    let mut buffer = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match socket.read(&mut chunk) {
            Ok(0) => return Ended::Eof,
            Ok(count) => buffer.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Ended::Error,
        }
        let mut start = 0;
        loop {
            match next(&buffer[start..]) {
                Ok(Some((frame, length))) => {
                    if !handle(frame, &buffer[start..start + length]) {
                        return Ended::Stopped;
                    }
                    start += length;
                }
                Ok(None) => break,
                Err(malformed) => return Ended::Malformed(malformed),
            }
        }
        buffer.drain(..start);
    }
}

/// Makes the close of this socket a reset (RST) instead of an orderly end (FIN).
pub(super) fn reset_on_close(socket: &TcpStream) {
    // It fails for a socket that is closed already, and then there is nothing to reset.
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}
