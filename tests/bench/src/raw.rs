//! The floor: the same work over blocking sockets, without a library.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};

/// What a lock needs at the least: take it if it is free, give it back if it is mine.
pub const TAKE: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";
pub const GIVE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A blocking connection that reads one line per reply.
pub struct Wire(BufReader<TcpStream>);

impl Wire {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a TCP socket");
        Self(BufReader::new(stream))
    }

    /// A command as it stands on the wire.
    pub fn text(words: &[&str]) -> String {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        text
    }

    pub fn send(&mut self, words: &[&str]) {
        self.send_text(&Self::text(words));
    }

    pub fn send_text(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("the server reads");
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        line.trim_end().to_owned()
    }

    /// Sends a command whose reply is one line.
    pub fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.line()
    }

    /// Loads a script and returns its SHA-1.
    pub fn load(&mut self, script: &str) -> String {
        self.send(&["SCRIPT", "LOAD", script]);
        self.line();
        self.line()
    }

    /// Reads one message of a subscription and returns its payload.
    pub fn message(&mut self) -> String {
        let header = self.line();
        let parts: usize = header.trim_start_matches('*').parse().expect("an array");
        let mut last = String::new();
        for _ in 0..parts {
            let length = self.line();
            if let Some(length) = length.strip_prefix('$') {
                let mut bytes = vec![0; length.parse::<usize>().expect("a length") + 2];
                self.0.read_exact(&mut bytes).expect("the server goes on");
                bytes.truncate(bytes.len() - 2);
                last = String::from_utf8(bytes).expect("text");
            }
        }
        last
    }
}

/// One request to several servers, for which as many answers as a majority needs are waited for. What comes later is read before
/// the next answers.
pub struct Quorum {
    wires: Vec<(Wire, usize)>,
    needed: usize,
}

impl Quorum {
    /// A majority of so many servers; some of them may be down, which are not among the connections.
    pub fn new(servers: usize, wires: Vec<Wire>) -> Self {
        Self { wires: wires.into_iter().map(|wire| (wire, 0)).collect(), needed: servers / 2 + 1 }
    }

    /// Sends the same command to all, and returns when enough have answered this one.
    pub fn ask(&mut self, text: &str) {
        for (wire, owed) in &mut self.wires {
            wire.send_text(text);
            *owed += 1;
        }
        let mut answered = 0;
        while answered < self.needed {
            let asked: Vec<_> = (0..self.wires.len()).filter(|at| self.wires[*at].1 > 0).collect();
            let mut sockets: Vec<_> = asked
                .iter()
                .map(|at| PollFd::from_borrowed_fd(self.wires[*at].0.0.get_ref().as_fd(), PollFlags::IN))
                .collect();
            poll(&mut sockets, None).expect("sockets can be waited for");
            let ready: Vec<_> = asked
                .into_iter()
                .zip(sockets)
                .filter(|(_, socket)| !socket.revents().is_empty())
                .map(|(at, _)| at)
                .collect();
            for at in ready {
                let (wire, owed) = &mut self.wires[at];
                loop {
                    wire.line();
                    *owed -= 1;
                    if wire.0.buffer().is_empty() {
                        break;
                    }
                }
                answered += usize::from(*owed == 0);
            }
        }
    }
}
