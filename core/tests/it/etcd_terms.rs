//! A leader that was deposed without knowing it still confirms renewals. Real servers do that for moments that no test can
//! hold on to, so these answers are scripted, as etcd 3.4.23 writes them.

#![cfg(all(feature = "etcd", unix))]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::contract::{block_on, eventually_within, millis};
use polylatch::{LostReason, Polylatch};

/// The create revision of the client's key.
const FENCE: &str = "5";

/// A server whose renewals are of term 2.
struct Script {
    /// The term of what is read.
    read_term: &'static str,
    reads: AtomicUsize,
}

impl Script {
    fn start(read_term: &'static str) -> (SocketAddr, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Self { read_term, reads: AtomicUsize::new(0) });
        let served = Arc::clone(&script);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let script = Arc::clone(&served);
                thread::spawn(move || script.serve(&stream));
            }
        });
        (address, script)
    }

    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                (reader.read_line(&mut head).ok()? > 0).then_some(())?;
            }
            let path = head.split(' ').nth(1)?.to_owned();
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body).ok()?;
            let answer = self.answer(&path, &String::from_utf8_lossy(&body));
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
            (&*stream).write_all((head + &answer).as_bytes()).ok()?;
        }
    }

    fn answer(&self, path: &str, body: &str) -> String {
        let header = |term: &str| json!({"revision": FENCE, "raft_term": term});
        let own = |request: &Value| json!({"kvs": [{"key": request["key"], "create_revision": FENCE, "lease": "1"}], "count": "1"});
        match path {
            "/v3/lease/keepalive" => {
                let lease = |line| -> Value { serde_json::from_str(line).unwrap() };
                body.lines()
                    .map(|line| {
                        let id = lease(line)["ID"].clone();
                        format!("{}\n", json!({"result": {"header": header("2"), "ID": id, "TTL": "60"}}))
                    })
                    .collect()
            }
            "/v3/kv/txn" => {
                let request: Value = serde_json::from_str(body).unwrap();
                if request["compare"][0].is_object() || body.contains("request_put") {
                    return json!({"header": header("2"), "succeeded": true}).to_string();
                }
                self.reads.fetch_add(1, Ordering::SeqCst);
                let parts = request["success"].as_array().unwrap().iter();
                let parts: Vec<_> =
                    parts.map(|part| json!({"response_range": own(&part["request_range"])})).collect();
                json!({"header": header(self.read_term), "succeeded": true, "responses": parts}).to_string()
            }
            _ => json!({"header": header("2"), "TTL": "60"}).to_string(),
        }
    }
}

#[test]
fn a_renewal_that_another_term_does_not_know_does_not_count() {
    for (read_term, counts) in [("2", true), ("3", false)] {
        let (address, script) = Script::start(read_term);
        let client = block_on(Polylatch::connect(&format!("etcd://{address}?lease=6s"))).unwrap();
        let guard = block_on(client.lock("a").acquire()).unwrap();
        assert_eq!(guard.fencing_token().get(), 5);
        if counts {
            eventually_within("it is renewed", millis(20_000), || guard.renewals() >= 2);
            guard.check().unwrap();
        } else {
            eventually_within("it is lost by its own clock", millis(20_000), || {
                assert_eq!(guard.renewals(), 0);
                !guard.is_held()
            });
            assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Expired));
            assert!(script.reads.load(Ordering::SeqCst) >= 2, "it tried again until the end of its lease");
        }
    }
}
