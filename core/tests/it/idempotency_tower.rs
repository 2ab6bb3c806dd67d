//! The layer for services of tower, behind a real HTTP server.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use polylatch::Polylatch;
use polylatch::idempotency::RunOptions;
use polylatch::tower::IdempotencyLayer;
use tokio::sync::Notify;
use tower_layer::Layer;
use tower_service::Service;

use crate::contract::{block_on, eventually};

type Answer =
    Arc<dyn Fn(u32, &Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, &'static str> + Send + Sync>;

/// Makes an order for each request that gets so far.
#[derive(Clone)]
struct Shop {
    made: Arc<AtomicU32>,
    answer: Answer,
    /// Orders wait for it, if there is one.
    gate: Option<Arc<Notify>>,
}

impl Service<Request<Full<Bytes>>> for Shop {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, &'static str>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let shop = self.clone();
        Box::pin(async move {
            let order = shop.made.fetch_add(1, Ordering::SeqCst) + 1;
            if let Some(gate) = shop.gate {
                gate.notified().await;
            }
            (shop.answer)(order, &request)
        })
    }
}

/// A server on a thread of its own; it ends with the test's process.
struct Served {
    address: SocketAddr,
    made: Arc<AtomicU32>,
    user: String,
}

struct Got {
    status: u16,
    headers: BTreeMap<String, Vec<String>>,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|values| values[0].as_str())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn serve(shop: Shop, adapt: impl Fn(IdempotencyLayer) -> IdempotencyLayer) -> Served {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let client = block_on(Polylatch::connect(&format!("memory:tower-{number}"))).unwrap();
    let user = |request: &http::request::Parts| {
        request.headers.get("user").map(|user| user.to_str().unwrap().to_owned())
    };
    let made = Arc::clone(&shop.made);
    let service = adapt(IdempotencyLayer::new(client, user)).layer(shop);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((wire, _)) = listener.accept().await {
                let service = service.clone();
                let handle = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                    let mut service = service.clone();
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let answered = service.call(Request::from_parts(parts, Full::new(body))).await;
                        Ok::<_, Infallible>(answered.unwrap_or_else(|error| {
                            Response::builder().status(500).body(Full::from(error)).unwrap()
                        }))
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(wire), handle),
                );
            }
        });
    });
    Served { address, made, user: "anna".into() }
}

impl Served {
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
        let mut wire = TcpStream::connect(self.address).unwrap();
        let mut lines = format!("{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n");
        for (name, value) in headers {
            lines += &format!("{name}: {value}\r\n");
        }
        lines += &format!("content-length: {}\r\n\r\n{body}", body.len());
        wire.write_all(lines.as_bytes()).unwrap();
        let mut answer = Vec::new();
        wire.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            headers.entry(name.to_lowercase()).or_default().push(value.to_owned());
        }
        Got { status, headers, body: answer[end + 4..].to_vec() }
    }

    fn post(&self, key: &str) -> Got {
        self.ask("POST", "/orders", &[("idempotency-key", key), ("user", &self.user)], "order")
    }

    fn made(&self) -> u32 {
        self.made.load(Ordering::SeqCst)
    }
}

fn shop(
    answer: impl Fn(u32, &Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, &'static str>
    + Send
    + Sync
    + 'static,
) -> Shop {
    Shop { made: Arc::default(), answer: Arc::new(answer), gate: None }
}

fn plain() -> Shop {
    shop(|order, _| {
        let response = Response::builder().status(201).header("x-order", order).header("set-cookie", "a=b");
        let response = response.header("link", "<a>").header("link", "<b>");
        Ok(response.body(Full::from(format!("order {order}"))).unwrap())
    })
}

#[test]
fn a_repeated_request_gets_the_stored_response_and_other_callers_do_not() {
    let served = serve(plain(), |layer| layer);
    let first = served.post("k");
    assert_eq!((first.status, first.text().as_str()), (201, "order 1"));
    assert_eq!((first.header("set-cookie"), first.header("idempotency-replayed")), (Some("a=b"), None));
    let again = served.post("\"k\"");
    assert_eq!((again.status, again.text().as_str(), again.header("x-order")), (201, "order 1", Some("1")));
    assert_eq!((again.header("set-cookie"), again.header("idempotency-replayed")), (None, Some("true")));
    assert_eq!(again.headers["link"], ["<a>", "<b>"]);
    let other = served.ask("POST", "/orders", &[("idempotency-key", "k"), ("user", "bert")], "order");
    assert_eq!(other.text(), "order 2");
    assert_eq!(served.post("l").text(), "order 3");
    assert_eq!(served.ask("POST", "/orders", &[("user", "anna")], "order").text(), "order 4");
    assert_eq!(served.ask("POST", "/orders", &[("idempotency-key", "k")], "order").text(), "order 5");
    let get = served.ask("GET", "/orders", &[("idempotency-key", "k"), ("user", "anna")], "");
    assert_eq!((get.text().as_str(), served.made()), ("order 6", 6));
}

#[test]
fn bad_keys_and_other_requests_are_refused() {
    let served = serve(plain(), |layer| layer.required().max_body(10));
    assert_eq!(served.ask("POST", "/orders", &[("user", "anna")], "order").status, 400);
    assert_eq!(served.post(&"x".repeat(256)).status, 400);
    let headers = [("idempotency-key", "k"), ("user", "anna")];
    assert_eq!(served.ask("POST", "/orders", &headers, "more than ten").status, 413);
    assert_eq!(served.post("k").status, 201);
    for (method, path, body) in [
        ("POST", "/orders", "other"),
        ("POST", "/refunds", "order"),
        ("POST", "/orders?a", "order"),
        ("PATCH", "/orders", "order"),
    ] {
        let refused = served.ask(method, path, &headers, body);
        assert_eq!((refused.status, refused.header("content-type")), (422, Some("application/problem+json")));
        assert!(refused.text().contains("another payload"), "{}", refused.text());
    }
    assert_eq!(served.made(), 1);
}

#[test]
fn a_request_in_progress_is_409_or_is_waited_for() {
    for waits in [false, true] {
        let gate = Arc::new(Notify::new());
        let wait = RunOptions::new().wait(Duration::from_secs(30));
        let adapt = |layer: IdempotencyLayer| if waits { layer.run_options(wait.clone()) } else { layer };
        let served = serve(Shop { gate: Some(Arc::clone(&gate)), ..plain() }, adapt);
        std::thread::scope(|threads| {
            let first = threads.spawn(|| served.post("k"));
            eventually("the first request is handled", || served.made() == 1);
            if waits {
                let second = threads.spawn(|| served.post("k"));
                gate.notify_one();
                assert_eq!(second.join().unwrap().text(), "order 1");
            } else {
                let busy = served.post("k");
                assert_eq!((busy.status, busy.header("retry-after")), (409, Some("1")));
                gate.notify_one();
            }
            assert_eq!(first.join().unwrap().text(), "order 1");
        });
        assert_eq!((served.post("k").header("idempotency-replayed"), served.made()), (Some("true"), 1));
    }
}

#[test]
fn a_server_error_frees_its_key_unless_it_is_to_be_stored() {
    let failing = || {
        shop(|order, _| match order {
            1 => Ok(Response::builder().status(503).body(Full::from("down")).unwrap()),
            2 => Err("broken"),
            _ => Ok(Response::builder().status(404).body(Full::from("unknown")).unwrap()),
        })
    };
    let served = serve(failing(), |layer| layer);
    let statuses: Vec<_> = (0..4).map(|_| served.post("k").status).collect();
    assert_eq!((statuses.as_slice(), served.made()), (&[503, 500, 404, 404][..], 3));
    let served = serve(failing(), IdempotencyLayer::store_server_errors);
    for (key, status) in [("k", 503), ("l", 500)] {
        assert_eq!(served.post(key).status, status);
        let again = served.post(key);
        assert_eq!((again.status, again.header("idempotency-replayed")), (status, Some("true")));
    }
    assert_eq!(served.made(), 2);
}

#[test]
fn a_response_that_is_too_large_is_sent_once_and_not_made_again() {
    let served = serve(shop(|_, _| Ok(Response::new(Full::from(vec![b'x'; 1 << 20])))), |layer| layer);
    assert_eq!(served.post("k").body.len(), 1 << 20);
    assert_eq!((served.post("k").status, served.made()), (409, 1));
}

#[test]
fn fifty_requests_at_once_are_handled_once() {
    let wait = RunOptions::new().wait(Duration::from_secs(30));
    let served = serve(plain(), |layer| layer.run_options(wait.clone()));
    let answers: Vec<_> = std::thread::scope(|threads| {
        let asked: Vec<_> = (0..50).map(|_| threads.spawn(|| served.post("k").text())).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| answer == "order 1"), "{answers:?}");
    assert_eq!(served.made(), 1);
}
