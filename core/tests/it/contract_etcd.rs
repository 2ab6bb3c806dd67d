//! The contract on a real etcd.

#![cfg(all(feature = "etcd", unix))]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polylatch_test_services::etcd::EtcdMember;

/// One member for all cases; each has a prefix of its own.
pub static MEMBER: LazyLock<EtcdMember> = LazyLock::new(EtcdMember::start);

pub struct Etcd {
    pub prefix: String,
}

impl crate::contract::Store for Etcd {
    fn url(&self, options: &str) -> String {
        format!("{}/{}?timeout=10s&{options}", MEMBER.url(), self.prefix)
    }

    // Leases are whole seconds there.
    fn stretch(&self) -> u32 {
        5
    }

    // All cases keep one member busy, which syncs every change to disk before it answers.
    fn safe(&self) -> Duration {
        Duration::from_secs(9)
    }

    fn tells_renewals(&self) -> bool {
        false
    }

    // A waiter is queued as long as its lease lives.
    fn waiters_fall_silent(&self) -> bool {
        false
    }
}

pub fn fresh() -> Etcd {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Etcd { prefix: format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)) }
}

crate::contract!(fresh);

/// The address of an HTTP server that is no etcd.
pub fn not_etcd() -> std::net::SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let body = "404 page not found\n";
            let _ = write!(
                stream,
                "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}
