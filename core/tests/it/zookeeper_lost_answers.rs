//! ZooKeeper: requests whose answers were lost are resolved by what the servers show, and only our own node is ours.

#![cfg(all(feature = "zookeeper", unix))]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::contract::{block_on, eventually_within, millis, seen};
use crate::contract_zookeeper::SERVER;
use crate::zookeeper_faults::{connect, held_by};
use polylatch::{ErrorKind, LostReason, Polylatch};

/// An ephemeral sequential node: the kind of the request, and a hundred times that of the node.
const CREATE: i32 = 315;
const DELETE: i32 = 2;
/// Several changes in one transaction.
const TOGETHER: i32 = 14;
const EXISTS: i32 = 3;

/// Stands between a client and the server, and knows frames.
struct Proxy {
    address: SocketAddr,
    /// The answer to the next request of this kind is lost with its connection, of which there are some.
    loses: AtomicI32,
    times: AtomicUsize,
    /// Answers to `exists` name another session.
    lies: AtomicUsize,
    /// Requests of this kind are lost with their connections.
    drops: AtomicI32,
}

impl Proxy {
    fn start() -> Arc<Self> {
        // Not while the first connection waits for it.
        SERVER.address();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            loses: AtomicI32::new(0),
            times: AtomicUsize::new(0),
            lies: AtomicUsize::new(0),
            drops: AtomicI32::new(0),
        });
        let served = Arc::clone(&proxy);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let proxy = Arc::clone(&served);
                thread::spawn(move || proxy.carry(client));
            }
        });
        proxy
    }

    fn lose(&self, kind: i32) {
        self.times.store(1, Ordering::SeqCst);
        self.loses.store(kind, Ordering::SeqCst);
    }

    fn has_lost(&self) -> bool {
        self.times.load(Ordering::SeqCst) == 0
    }

    fn client(&self, prefix: &str, options: &str) -> Polylatch {
        connect(&format!("zookeeper://{}?prefix={prefix}&tick=200ms&{options}", self.address))
    }

    fn carry(self: &Arc<Self>, client: TcpStream) -> Option<()> {
        let server = TcpStream::connect(SERVER.address()).ok()?;
        server.set_nodelay(true).ok()?;
        client.set_nodelay(true).ok()?;
        // Numbers of requests, with their kinds.
        let kinds = Arc::new(Mutex::new(Vec::<(i32, i32)>::new()));
        let (proxy, asked) = (Arc::clone(self), Arc::clone(&kinds));
        let (mut from_server, mut to_client) = (server.try_clone().ok()?, client.try_clone().ok()?);
        thread::spawn(move || -> Option<()> {
            let mut is_first = true;
            loop {
                let Some(mut frame) = frame(&mut from_server) else {
                    let _ = to_client.shutdown(Shutdown::Both);
                    return None;
                };
                if !std::mem::take(&mut is_first) {
                    let number = int(&frame[4..]);
                    let kind =
                        asked.lock().unwrap().iter().find(|(one, _)| *one == number).map(|(_, kind)| *kind);
                    if kind == Some(proxy.loses.load(Ordering::SeqCst))
                        && proxy.times.compare_exchange(1, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
                    {
                        let _ = to_client.shutdown(Shutdown::Both);
                        let _ = from_server.shutdown(Shutdown::Both);
                        return None;
                    }
                    // Length, number, zxid, code, and of the stat 44 bytes before the session.
                    if kind == Some(EXISTS) && proxy.lies.load(Ordering::SeqCst) > 0 && frame.len() >= 72 {
                        frame[71] ^= 1;
                    }
                }
                to_client.write_all(&frame).ok()?;
            }
        });
        let (mut from_client, mut to_server) = (client, server);
        let mut is_first = true;
        while let Some(frame) = frame(&mut from_client) {
            if !std::mem::take(&mut is_first) {
                let kind = match int(&frame[8..]) {
                    15 => 15 + 100 * int(&frame[frame.len() - 4..]),
                    kind => kind,
                };
                if kind == self.drops.load(Ordering::SeqCst) {
                    let _ = from_client.shutdown(Shutdown::Both);
                    break;
                }
                kinds.lock().unwrap().push((int(&frame[4..]), kind));
            }
            to_server.write_all(&frame).ok()?;
        }
        let _ = to_server.shutdown(Shutdown::Both);
        Some(())
    }
}

fn int(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes[..4].try_into().unwrap())
}

fn frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).ok()?;
    let length = int(&bytes) as usize;
    bytes.resize(4 + length, 0);
    stream.read_exact(&mut bytes[4..]).ok()?;
    Some(bytes)
}

/// Without the lock's folder the first creation is refused, and it would be that answer which is lost.
fn make_folder(client: &Polylatch) {
    block_on(block_on(client.lock("a").acquire()).unwrap().release()).unwrap();
}

fn nodes(prefix: &str, name: &str) -> String {
    let out = SERVER.run_command(&["ls", &format!("/{prefix}/{name}")]);
    out.lines().find(|line| line.starts_with('[')).unwrap_or_default().to_owned()
}

#[test]
fn a_node_whose_creation_was_not_answered_is_found_again() {
    let proxy = Proxy::start();
    let (client, looks) =
        (proxy.client("lost-1", "lease=20s"), connect(&crate::zookeeper_faults::url("lost-1", "")));
    make_folder(&client);
    proxy.lose(CREATE);
    let guard = block_on(client.lock("a").wait(millis(30_000)).acquire()).unwrap();
    assert!(proxy.has_lost(), "no answer was lost");
    let (node, _) = held_by(&looks, "a");
    assert_eq!(
        nodes("lost-1", "a"),
        format!("[{}]", node.rsplit('/').next().unwrap()),
        "one node for one acquisition"
    );
    assert_eq!(seen(&looks, "a").holders[0].fencing_token, Some(guard.fencing_token()));
    block_on(guard.release()).unwrap();
    assert_eq!(nodes("lost-1", "a"), "[]");
}

/// Were it taken for our own because of its name, the lock would end with a session that is not ours.
#[test]
fn a_node_of_another_session_is_not_taken_for_our_own() {
    let proxy = Proxy::start();
    let client = proxy.client("lost-2", "lease=20s");
    make_folder(&client);
    proxy.lies.store(1, Ordering::SeqCst);
    proxy.lose(CREATE);
    let error = block_on(client.lock("a").wait(millis(3_000)).acquire()).unwrap_err();
    assert!(proxy.has_lost(), "no answer was lost");
    assert_eq!(error.kind(), ErrorKind::WaitTimeout, "{error}");
}

#[test]
fn a_session_that_ends_while_an_answer_is_lost_leaves_nothing_to_adopt() {
    let proxy = Proxy::start();
    let (client, looks) =
        (proxy.client("lost-3", "lease=20s"), connect(&crate::zookeeper_faults::url("lost-3", "")));
    make_folder(&client);
    let found_by = block_on(client.lock("b").acquire()).unwrap();
    let (_, session) = held_by(&looks, "b");
    proxy.lose(CREATE);
    let lock = client.lock("a").wait(millis(30_000));
    let acquires = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually_within("the answer is lost", millis(20_000), || proxy.has_lost());
    SERVER.end_session(session);
    assert_eq!(block_on(found_by.lost()), LostReason::SessionEnded);
    let guard = acquires.join().unwrap();
    // Either it was granted before the end, and is lost with the session, or by a node of the next one.
    if guard.is_held() {
        let (_, now) = held_by(&looks, "a");
        assert!(now != session, "held by a session that has ended");
    }
}

#[test]
fn a_release_whose_answer_was_lost_is_a_release() {
    let proxy = Proxy::start();
    let (client, looks) =
        (proxy.client("lost-4", "lease=20s"), connect(&crate::zookeeper_faults::url("lost-4", "")));
    let guard = block_on(client.lock("a").acquire()).unwrap();
    proxy.lose(DELETE);
    // It fails and is finished in the background, or is answered the second time.
    match block_on(guard.release()) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}"),
    }
    assert!(proxy.has_lost(), "no answer was lost");
    eventually_within("it is free", millis(20_000), || {
        block_on(looks.lock("a").try_acquire()).unwrap().is_some()
    });
    let again = block_on(client.lock("a").wait(millis(30_000)).acquire()).unwrap();
    assert!(again.fencing_token() > guard.fencing_token());
}

/// Its node would last as long as the session, which other locks renew, and the lock would never be free again.
#[test]
fn a_waiter_that_could_not_leave_for_longer_than_its_lease_leaves_later() {
    let proxy = Proxy::start();
    let (client, looks) = (
        proxy.client("lost-7", "lease=3s&timeout=500ms&poll=1s"),
        connect(&crate::zookeeper_faults::url("lost-7", "")),
    );
    let held = block_on(looks.lock("a").acquire()).unwrap();
    let lock = client.lock("a").wait(millis(900));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap_err());
    eventually_within("it waits", millis(20_000), || seen(&looks, "a").waiters.len() == 1);
    proxy.drops.store(DELETE, Ordering::SeqCst);
    assert_eq!(waiter.join().unwrap().kind(), ErrorKind::WaitTimeout);
    // After a lease the attempt to leave is given up.
    thread::sleep(millis(4_500));
    assert_eq!(seen(&looks, "a").waiters.len(), 1, "it could not leave");
    proxy.drops.store(0, Ordering::SeqCst);
    let other = block_on(client.lock("b").wait(millis(20_000)).acquire()).unwrap();
    eventually_within("it has left", millis(10_000), || seen(&looks, "a").waiters.is_empty());
    other.check().unwrap();
    block_on(held.release()).unwrap();
}

#[test]
fn permits_whose_creation_was_not_answered_are_found_again() {
    let proxy = Proxy::start();
    let (client, looks) =
        (proxy.client("lost-5", "lease=20s"), connect(&crate::zookeeper_faults::url("lost-5", "")));
    let semaphore = client.semaphore("a", 3);
    block_on(block_on(semaphore.acquire(1)).unwrap().release()).unwrap();
    proxy.lose(TOGETHER);
    let guard = block_on(semaphore.permits(2).wait(millis(30_000)).acquire()).unwrap();
    assert!(proxy.has_lost(), "no answer was lost");
    let view = seen(&looks, "a");
    assert_eq!((view.holders.len(), view.holders[0].permits), (1, 2), "{view:?}");
    assert_eq!(view.holders[0].fencing_token, Some(guard.fencing_token()));
    assert_eq!(nodes("lost-5", "a/locks"), "[]");
    block_on(guard.release()).unwrap();
    assert_eq!(nodes("lost-5", "a/leases"), "[]");
}

#[test]
fn a_conversion_whose_answer_was_lost_is_a_loss_and_leaves_nothing() {
    let proxy = Proxy::start();
    let (client, looks) =
        (proxy.client("lost-6", "lease=20s"), connect(&crate::zookeeper_faults::url("lost-6", "")));
    let guard = block_on(client.rw_lock("a").write().acquire()).unwrap();
    proxy.lose(TOGETHER);
    let error = block_on(guard.downgrade()).map(drop).unwrap_err();
    assert!(proxy.has_lost(), "no answer was lost");
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    // Its lease would last for longer.
    let next = block_on(looks.rw_lock("a").write().wait(millis(10_000)).acquire()).unwrap();
    next.check().unwrap();
}
