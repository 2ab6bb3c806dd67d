//! A TCP proxy that understands RESP and does damage on request.
//!
//! ```ignore
//! let server = RedisServer::start();
//! let proxy = Proxy::start(server.address());
//! let fault = proxy.drop_reply("EVALSHA", 1);      // the next script runs, its reply is lost
//! // ... acquire through proxy.url() ...
//! assert!(fault.has_fired());
//! ```
//!
//! All faults can be changed at any time and act on open connections too, unless their text says
//! otherwise. Requests and replies are paired by counting them, so commands that change how many
//! replies there are (`CLIENT REPLY`, `MONITOR`) confuse it.

mod link;
mod pattern;
mod state;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::port::ReservedPort;
use crate::wait::poll;

use link::Link;
pub use pattern::Pattern;
use state::{Action, Direction, Shared};
pub use state::{Fault, Hold};

/// Whose connection half is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

/// A proxy on a loopback port of its own; all its connections are reset when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    port: ReservedPort,
    understands: bool,
    listening: Mutex<Option<Listening>>,
}

#[derive(Debug)]
struct Listening {
    socket: Arc<TcpListener>,
    closed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Listening {
    fn backlog_is_empty(&self) -> bool {
        let mut waiting = [PollFd::new(&*self.socket, PollFlags::IN)];
        // On an error there is nobody to wait for.
        rustix::event::poll(&mut waiting, Some(&Timespec::default())).unwrap_or(0) == 0
    }
}

impl Proxy {
    /// Forwards to a Redis server without TLS.
    #[track_caller]
    pub fn start(target: SocketAddr) -> Proxy {
        Proxy::open(target, true)
    }

    /// Forwards bytes it does not look into (TLS, other protocols). Latency, hold, reset, refuse,
    /// half-close and slices work; what needs to know requests does nothing.
    #[track_caller]
    pub fn start_raw(target: SocketAddr) -> Proxy {
        Proxy::open(target, false)
    }

    #[track_caller]
    fn open(target: SocketAddr, understands: bool) -> Proxy {
        let proxy = Proxy {
            shared: Arc::new(Shared::new(target)),
            port: ReservedPort::new().expect("there is a free port"),
            understands,
            listening: Mutex::new(None),
        };
        proxy.set_refuse(false);
        proxy
    }

    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The proxy as a Redis server without password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Where new connections go from now on: a failover.
    pub fn set_target(&self, target: SocketAddr) {
        self.shared.lock().target = target;
    }

    /// Requests and replies arrive this much later than they were sent. Pipelined ones are delayed
    /// together, not one after the other.
    pub fn set_latency(&self, to_server: Duration, to_client: Duration) {
        let mut state = self.shared.lock();
        state.latency_to_server = to_server;
        state.latency_to_client = to_client;
    }

    /// Starts or ends silence. New connections are accepted meanwhile.
    pub fn set_hold(&self, hold: Hold) {
        let mut state = self.shared.lock();
        let was = std::mem::replace(&mut state.hold, hold);
        if was == Hold::Swallow && hold != Hold::Swallow {
            for link in state.live_links() {
                if link.is_tainted() {
                    link.kill();
                }
            }
        }
        drop(state);
        self.shared.announce();
    }

    /// Drops the flow of all open connections for good, as a firewall or NAT does that has forgotten them: in both
    /// directions nothing arrives any more, no end either, and nobody is notified. New connections work.
    pub fn sever_all(&self) {
        for link in self.shared.lock().live_links() {
            link.sever();
        }
        self.shared.announce();
    }

    /// What the connections that are open now send waits here, while new ones work; see
    /// [`deliver_late`](Proxy::deliver_late).
    pub fn delay_all(&self) {
        for link in self.shared.lock().live_links() {
            link.delay(true);
        }
    }

    /// Delivers what has waited since [`delay_all`](Proxy::delay_all), also of clients that have given the connection up
    /// and asked again on another: old bytes arrive after new ones.
    pub fn deliver_late(&self) {
        for link in self.shared.lock().live_links() {
            link.delay(false);
        }
        self.shared.announce();
    }

    /// Refuses new connections, or accepts them again. Open ones stay; see
    /// [`reset_all`](Proxy::reset_all).
    #[track_caller]
    pub fn set_refuse(&self, refuse: bool) {
        let mut slot = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        if !refuse && slot.is_none() {
            *slot = Some(self.listen().expect("the port is reserved for this proxy"));
        } else if refuse && let Some(listening) = slot.take() {
            // Whoever is connected already, but not accepted yet, counts as open.
            poll(Duration::from_secs(5), || listening.backlog_is_empty().then_some(()));
            listening.closed.store(true, Ordering::SeqCst);
            // Wakes the thread out of accept; where the system does not do that, a visitor does.
            let _ = rustix::net::shutdown(&*listening.socket, rustix::net::Shutdown::Both);
            drop(TcpStream::connect(self.address()));
            // A panic of that thread has been printed; this may run while another one unwinds.
            let _ = listening.thread.join();
        }
    }

    /// Resets all open connections (RST) and waits until they are gone.
    pub fn reset_all(&self) {
        let links = self.shared.lock().live_links();
        for link in &links {
            link.kill();
        }
        // These only: a client may have connected anew meanwhile.
        let killed: Vec<_> = links.iter().map(Arc::downgrade).collect();
        drop(links);
        self.shared.announce();
        let gone = || killed.iter().all(|link| link.strong_count() == 0).then_some(());
        if poll(Duration::from_secs(2), gone).is_none() {
            eprintln!("proxy: connections linger after a reset");
        }
    }

    /// Ends one direction of all open connections: the given side reads end-of-file but may still
    /// send.
    pub fn half_close(&self, side: Side) {
        for link in self.shared.lock().live_links() {
            link.half_close(match side {
                Side::Client => Direction::ToClient,
                Side::Server => Direction::ToServer,
            });
        }
    }

    /// Delivers everything in pieces of at most this many bytes; `None` ends it.
    pub fn set_slices(&self, bytes: Option<usize>) {
        self.shared.lock().slice = bytes;
    }

    /// Lets the `nth` matching request from now on (counted from 1) reach the server, loses its
    /// reply and then resets the connection.
    pub fn drop_reply(&self, pattern: impl Into<Pattern>, nth: usize) -> Fault {
        self.rule(pattern, nth, Action::DropReply)
    }

    /// Loses the `nth` matching request. Replies to earlier requests still arrive, then the
    /// connection is reset; nothing the client sent after it reaches the server.
    pub fn drop_request(&self, pattern: impl Into<Pattern>, nth: usize) -> Fault {
        self.rule(pattern, nth, Action::DropRequest)
    }

    /// Delivers the `nth` matching request twice; the client sees the first reply only.
    pub fn duplicate_request(&self, pattern: impl Into<Pattern>, nth: usize) -> Fault {
        self.rule(pattern, nth, Action::Duplicate)
    }

    fn rule(&self, pattern: impl Into<Pattern>, nth: usize, action: Action) -> Fault {
        let fired = self.shared.lock().add_rule(pattern.into(), nth, action);
        Fault { fired }
    }

    /// Loses published messages with this probability, 0 to 1, the same ones in every run.
    pub fn drop_pushes(&self, probability: f64) {
        assert!((0.0..=1.0).contains(&probability), "a probability");
        self.shared.lock().push_loss = probability;
    }

    /// Gives a script a name that patterns can use, wherever the server learned the script from.
    pub fn name_script(&self, name: &str, source: &str) {
        self.shared.lock().scripts.name(name, source);
    }

    /// Ends all faults: no latency, hold, refusal, slices, push loss, and no fault still waiting.
    pub fn heal(&self) {
        self.set_hold(Hold::Off);
        self.set_refuse(false);
        let mut state = self.shared.lock();
        state.latency_to_server = Duration::ZERO;
        state.latency_to_client = Duration::ZERO;
        state.slice = None;
        state.push_loss = 0.0;
        state.clear_rules();
    }

    /// How many requests came in since the start, by command in upper case; lost ones count.
    pub fn requests(&self) -> BTreeMap<String, u64> {
        self.shared.lock().counts.clone()
    }

    /// How many requests with this command came in.
    pub fn requests_of(&self, command: &str) -> u64 {
        let counts = &self.shared.lock().counts;
        counts.get(&command.to_ascii_uppercase()).copied().unwrap_or(0)
    }

    /// How many published messages were lost.
    pub fn pushes_dropped(&self) -> u64 {
        self.shared.lock().pushes_dropped
    }

    /// How many connections were accepted since the start.
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.lock().live_links().len()
    }

    /// What either side sent that is not RESP; each entry cost a connection. Healthy: empty.
    pub fn malformed(&self) -> Vec<String> {
        self.shared.lock().malformed.clone()
    }

    fn listen(&self) -> io::Result<Listening> {
        let socket = Arc::new(TcpListener::bind(self.address())?);
        let closed = Arc::new(AtomicBool::new(false));
        let (listener, is_closed) = (socket.clone(), closed.clone());
        let (shared, understands) = (self.shared.clone(), self.understands);
        let thread = thread::Builder::new()
            .name("proxy-accept".into())
            .spawn(move || accept(&listener, &is_closed, &shared, understands))?;
        Ok(Listening { socket, closed, thread })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set_refuse(true);
        self.reset_all();
    }
}

fn accept(listener: &TcpListener, is_closed: &AtomicBool, shared: &Arc<Shared>, understands: bool) {
    while let Ok((client, _)) = listener.accept() {
        let target = {
            let mut state = shared.lock();
            state.accepted += 1;
            state.target
        };
        // A target that is down looks to the client like a connection lost at once.
        match TcpStream::connect_timeout(&target, Duration::from_secs(5)) {
            Ok(server) => {
                if let Err(error) = Link::start(client, server, understands, shared) {
                    eprintln!("proxy: a connection ended before it began: {error}");
                }
            }
            Err(_) => link::reset_on_close(&client),
        }
        // Only now: who was accepted is served, whatever happened meanwhile.
        if is_closed.load(Ordering::SeqCst) {
            return;
        }
    }
}
