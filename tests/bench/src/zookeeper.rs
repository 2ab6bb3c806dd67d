//! ZooKeeper: an acquire and release against the creation and deletion that they need, and hand-offs against the same three
//! messages sent raw.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use polylatch::blocking::Polylatch;
use polylatch_test_services::zookeeper::ZooKeeper;

use crate::contention::contend;
use crate::database::timed;
use crate::figures::{Samples, heading, row};
use crate::layout::on_processor_of_servers;

const ROUNDS: usize = 10;
const HAND_OFFS: usize = 200;

/// How long a lock is held before a hand-off: the other client certainly waits by then.
const HELD: Duration = Duration::from_millis(15);

/// Length of what a contender writes into its node.
const RECORD: usize = 140;

// Numbers of `ZooDefs.OpCode`.
const CREATE: i32 = 1;
const DELETE: i32 = 2;
const GET_DATA: i32 = 4;
const CHILDREN: i32 = 8;

const LASTING: i32 = 0;
const EPHEMERAL_SEQUENTIAL: i32 = 3;

pub fn run() {
    let server = on_processor_of_servers(ZooKeeper::start);
    uncontended(&server);
    handoff(&server);
}

/// A session on a bare socket. It is not pinged: a run is over before it ends.
struct Wire(TcpStream);

impl Wire {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        let mut wire = Self(stream);
        let mut hello = Fields::default();
        hello.int(0).long(0).int(30_000).long(0).bytes(&[0; 16]).flag(false);
        wire.write(&hello.0);
        wire.read();
        wire
    }

    fn write(&mut self, fields: &[u8]) {
        let frame = [&(fields.len() as u32).to_be_bytes()[..], fields].concat();
        self.0.write_all(&frame).expect("the server reads");
    }

    fn read(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("the server answers");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame).expect("a whole frame");
        frame
    }

    fn send(&mut self, op: i32, fields: impl FnOnce(&mut Fields)) {
        let mut request = Fields::default();
        request.int(1).int(op);
        fields(&mut request);
        self.write(&request.0);
    }

    /// The fields of an answer behind its header.
    fn answer(&mut self) -> Vec<u8> {
        let frame = self.read();
        assert_eq!(frame[12..16], [0; 4], "an error of the server");
        frame[16..].to_vec()
    }

    fn ask(&mut self, op: i32, fields: impl FnOnce(&mut Fields)) -> Vec<u8> {
        self.send(op, fields);
        self.answer()
    }

    fn create(&mut self, path: &str, data: &[u8], flags: i32) -> String {
        let answer = self.ask(CREATE, |request| {
            request.text(path).bytes(data).int(1).int(31).text("world").text("anyone").int(flags);
        });
        String::from_utf8(answer[4..].to_vec()).expect("a path")
    }
}

/// Fields as ZooKeeper has them: big-endian numbers, and lengths before texts.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn flag(&mut self, value: bool) -> &mut Self {
        self.0.push(value.into());
        self
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.int(value.len() as i32).0.extend(value);
        self
    }

    fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }
}

fn uncontended(server: &ZooKeeper) {
    heading("ZooKeeper: acquire + release of a free lock, one client (µs a pair)");
    let mut wire = Wire::connect(server.address());
    wire.create("/floor", b"", LASTING);
    wire.create("/floor/bench", b"", LASTING);
    let record = [b'a'; RECORD];
    let mut raw_pair = || {
        let node = wire.create("/floor/bench/_c_00112233-lock-", &record, EPHEMERAL_SEQUENTIAL);
        wire.ask(DELETE, |request| {
            request.text(&node).int(-1);
        });
    };
    let client = Polylatch::connect(&server.url()).expect("it connects");
    let lock = client.lock("bench");
    let (mut floor, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        floor.extend(timed(&mut raw_pair));
        ours.extend(timed(|| lock.acquire().expect("it is free").release().expect("it is held")));
    }
    row("floor: create and delete, blocking socket", "µs", &floor, &[]);
    row("polylatch, blocking API", "µs", &ours, &[("floor", floor.median())]);
    client.close();
}

fn handoff(server: &ZooKeeper) {
    heading("ZooKeeper: hand-off of a contended lock (µs)");
    let mut floor = Samples::default();
    floor.extend(between_two(server.address()));
    row("floor: delete, message, children", "µs", &floor, &[]);
    let floors = [("floor", floor.median())];
    for waiters in [1, 8, 64] {
        let (ours, _) = contend(&server.url(), &server.url(), waiters, HELD, || 0);
        row(&format!("polylatch, {waiters} waiters, sections of {HELD:?}"), "µs", &ours, &floors);
    }
}

/// From the deletion of a node to the answer of the waiter's question for the queue, in µs, without any thread.
fn between_two(address: SocketAddr) -> Vec<f64> {
    let mut wires = [Wire::connect(address), Wire::connect(address)];
    wires[0].create("/floor/handed", b"", LASTING);
    let mut latencies = Vec::new();
    for turn in 0..HAND_OFFS {
        let [first, second] = &mut wires;
        let (holder, waiter) = if turn % 2 == 0 { (first, second) } else { (second, first) };
        let node = holder.create("/floor/handed/_c_00112233-lock-", &[b'a'; RECORD], EPHEMERAL_SEQUENTIAL);
        waiter.ask(GET_DATA, |request| {
            request.text(&node).flag(true);
        });
        thread::sleep(HELD);
        let released = Instant::now();
        holder.send(DELETE, |request| {
            request.text(&node).int(-1);
        });
        // What tells of the watch.
        waiter.read();
        waiter.ask(CHILDREN, |request| {
            request.text("/floor/handed").flag(false);
        });
        latencies.push(released.elapsed().as_secs_f64() * 1e6);
        holder.answer();
    }
    latencies
}
