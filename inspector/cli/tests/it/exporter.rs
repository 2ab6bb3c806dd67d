//! `polylatch exporter` and `polylatch check` against real stores, and the dashboard that reads them.

#![cfg(unix)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use polylatch::Polylatch;
use polylatch_test_services::TempDir;
use polylatch_test_services::proc::{pause_between_writes, resume, terminate};
use polylatch_test_services::proxy::Proxy;
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait::{wait_for, wait_until};
use serde_json::Value;

/// Far beyond what any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
    command.args(args).env_remove("POLYLATCH_URL").stdin(Stdio::null());
    command
}

fn polylatch(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running exporter.
struct Exporter {
    child: Child,
    address: SocketAddr,
    told: std::sync::mpsc::Receiver<String>,
}

impl Exporter {
    fn start(args: &[&str]) -> Self {
        let mut all = vec!["exporter", "--listen", "127.0.0.1:0"];
        if !args.contains(&"--every") {
            all.extend(["--every", "100ms"]);
        }
        all.extend_from_slice(args);
        let mut child = command(&all).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let line = told.recv_timeout(PATIENCE).expect("it says where it serves");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect(&line);
        Self { address: address.parse().unwrap(), child, told }
    }

    /// Status and body.
    fn get(&self, method: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn metrics(&self) -> String {
        let (status, body) = self.get("GET", "/metrics");
        assert_eq!(status, 200, "{body}");
        body
    }

    #[track_caller]
    fn until(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        wait_for(what, PATIENCE, || Some(self.metrics()).filter(|metrics| is(metrics)))
    }

    /// What it has said since it said where it serves, up to a line with these words. A figure may be served before the line that
    /// says why it changed.
    #[track_caller]
    fn said_until(&self, words: &str) -> String {
        let mut said = String::new();
        let end = Instant::now() + PATIENCE;
        while !said.contains(words) {
            let line = self.told.recv_timeout(end.saturating_duration_since(Instant::now()));
            said += &line.unwrap_or_else(|_| panic!("it has not said \"{words}\", but:\n{said}"));
            said.push('\n');
        }
        said
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The values of a metric, by its labels as they stand in the text.
fn value(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn what_happens_in_a_store_is_served_and_a_store_that_is_away_is_down_by_its_code() {
    let server = RedisServer::builder().password("Zq7xWv9").start();
    let label = format!("store=\"redis://{}\"", server.address());
    let exporter = Exporter::start(&["--url", &server.url(), "--per-lock", "nightly/*"]);
    let of = |metrics: &str, name: &str| value(metrics, &format!("{name}{{{label}}}"));
    exporter.until("the first snapshot", |metrics| of(metrics, "polylatch_store_up") == Some(1.0));
    let runtime = runtime();
    let (holder, waiting) = runtime.block_on(async {
        let client = Polylatch::connect(&server.url()).await.unwrap();
        let holder = client.lock("nightly/\"a\"").acquire().await.unwrap();
        let other = client.lock("orders").acquire().await.unwrap();
        let lock = client.lock("nightly/\"a\"");
        let waiting = tokio::spawn(async move { drop(lock.acquire().await) });
        while client.stats().waiting == 0 {
            tokio::task::yield_now().await;
        }
        (vec![holder, other], waiting)
    });
    // A lock that nobody waits for is listed by its first renewal.
    let metrics = exporter.until("both locks and the waiter", |metrics| {
        let figures = ["locks_held", "waiters"].map(|name| of(metrics, &format!("polylatch_store_{name}")));
        figures == [Some(2.0), Some(1.0)]
    });
    assert_eq!(of(&metrics, "polylatch_store_locks_waited_for"), Some(1.0));
    assert_eq!(of(&metrics, "polylatch_store_longest_queue"), Some(1.0));
    assert!(of(&metrics, "polylatch_store_oldest_hold_seconds").unwrap() > 0.0);
    let one = format!("{{{label},lock=\"nightly/\\\"a\\\"\"}}");
    assert_eq!(value(&metrics, &format!("polylatch_lock_waiters{one}")), Some(1.0), "{metrics}");
    assert!(!metrics.contains("lock=\"orders\""), "only locks that were asked for have series");
    assert_eq!(of(&metrics, "polylatch_exporter_locks_left_out"), Some(0.0));
    let before = of(&metrics, "polylatch_store_requests_total").unwrap();
    exporter.until("more requests", |now| of(now, "polylatch_store_requests_total") > Some(before));

    server.stop();
    let down = exporter.until("the store to be down", |now| of(now, "polylatch_store_up") == Some(0.0));
    let code = format!("polylatch_store_error{{{label},code=\"backend_unavailable\"}}");
    assert_eq!(value(&down, &code), Some(1.0), "{down}");
    assert!(of(&down, "polylatch_store_snapshot_age_seconds").is_some());
    assert_eq!(of(&down, "polylatch_store_locks_held"), None, "not known is not zero");
    assert_eq!(exporter.get("GET", "/healthz"), (200, "ok\n".into()));
    drop((holder, waiting));
    server.start_again();
    exporter.until("the store to be back", |now| of(now, "polylatch_store_up") == Some(1.0));
    let said = exporter.said_until("is read again");
    assert!(!said.contains("Zq7xWv9") && !down.contains("Zq7xWv9"), "{said}");
    runtime.shutdown_background();
}

#[test]
fn check_finds_a_stopped_holder_though_the_store_answers_slowly() {
    let server = RedisServer::start();
    let slow = Proxy::start(server.address());
    slow.set_latency(Duration::from_millis(20), Duration::from_millis(20));
    let mut run = command(&["run", "orders", "--url", &server.url(), "--lease", "60s", "--", "sleep", "600"]);
    let mut holder = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let check = || {
        let output = polylatch(&["check", "--url", &slow.url()]);
        (output.status.code().unwrap(), text(&output.stdout))
    };
    wait_until("the lock to be held", PATIENCE, || check().1.contains("1 held"));
    pause_between_writes(holder.id());
    let (code, line) = check();
    assert!(code == 2 && line.starts_with("critical: orders: STOPPED: "), "{code}: {line}");
    resume(holder.id());
    terminate(holder.id());
    holder.wait().unwrap();
}

#[test]
fn a_stopped_holder_is_found_by_exporter_and_check_with_the_same_code() {
    let server = RedisServer::start();
    let url = server.url();
    let mut run = command(&["run", "orders", "--url", &url, "--lease", "60s", "--", "sleep", "600"]);
    let mut holder = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let exporter = Exporter::start(&["--url", &url]);
    let label = format!("store=\"redis://{}\"", server.address());
    let stopped = format!("polylatch_store_findings{{{label},code=\"STOPPED\"}}");
    let held = format!("polylatch_store_locks_held{{{label}}}");
    exporter.until("the lock to be held", |metrics| value(metrics, &held) == Some(1.0));
    let check = |args: &[&str]| {
        let output = polylatch(&[&["check", "--url", &url], args].concat());
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    let (code, line, _) = check(&[]);
    assert_eq!((code, line.as_str()), (0, "ok: nothing found in 1 lock (1 held, 0 waiting)\n"));

    pause_between_writes(holder.id());
    let metrics = exporter.until("the finding", |metrics| value(metrics, &stopped) == Some(1.0));
    let not_renewed = format!("polylatch_store_leases_not_renewed{{{label},code=\"STOPPED\"}}");
    assert_eq!(value(&metrics, &not_renewed), Some(1.0));
    let (code, line, _) = check(&[]);
    assert_eq!(code, 2, "{line}");
    assert!(line.starts_with("critical: orders: STOPPED: ") && line.lines().count() == 1, "{line}");
    let (code, json, _) = check(&["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, json["status"].as_str(), json["version"].as_u64()), (2, Some("critical"), Some(1)));
    assert_eq!(
        (&json["findings"][0]["code"], &json["findings"][0]["lock"]),
        (&"STOPPED".into(), &"orders".into())
    );
    assert_eq!(check(&["another"]).0, 0, "only the locks that are named");
    assert_eq!(check(&["--finding", "deadlock"]).0, 0, "only the findings that are named");
    assert_eq!(check(&["--finding", "stopped"]).0, 2);
    resume(holder.id());

    let (code, line, _) = check(&["--max-hold", "1ms"]);
    assert!(code == 1 && line.starts_with("warning: orders: MAX-HOLD: Held for "), "{line}");
    assert_eq!(check(&["--max-hold", "1h", "--max-wait", "1ms", "--max-waiters", "0"]).0, 0);
    let (code, _, wrong) = check(&["--finding", "DEAD-LOCK"]);
    assert!(code == 64 && wrong.contains("MAY-DEADLOCK"), "{wrong}");
    terminate(holder.id());
    holder.wait().unwrap();
    server.stop();
    let (code, line, said) = check(&[]);
    assert!(code == 69 && line.is_empty() && said.starts_with("polylatch: "), "{line}{said}");
}

#[test]
fn what_passes_by_itself_within_its_time_is_not_told_by_a_check() {
    let server = RedisServer::start();
    let runtime = runtime();
    let client = runtime.block_on(Polylatch::connect(&server.url())).unwrap();
    let guard = runtime.block_on(client.lock("orders").lease(Duration::from_secs(3)).acquire()).unwrap();
    // A node of RedLock that is down is a warning only after 2 s.
    let others = [RedisServer::start(), RedisServer::start()];
    let places = [&server, &others[0], &others[1]].map(|server| server.address().to_string()).join(",");
    let url = format!("redlock://{places}");
    others[1].stop();
    let started = Instant::now();
    let output = polylatch(&["check", "--url", &url]);
    let line = text(&output.stdout);
    assert!(output.status.code() == Some(1) && line.contains("NODE-DOWN"), "{line}");
    assert!(started.elapsed() >= Duration::from_secs(2), "it was seen for as long as its rule wants");
    runtime.block_on(guard.release()).unwrap();
    runtime.shutdown_background();
}

#[test]
fn it_ends_cleanly_and_tells_what_keeps_it_from_starting() {
    let dir = TempDir::new();
    let file = format!("sqlite:{}", dir.join("locks.db").display());
    drop(runtime().block_on(Polylatch::connect(&file)).unwrap());
    for signal in ["TERM", "INT", "HUP"] {
        let mut exporter = Exporter::start(&["--url", &file]);
        let pid = exporter.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
        let status = wait_for("its end", PATIENCE, || exporter.child.try_wait().unwrap());
        assert_eq!(status.code(), Some(0), "{signal}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = polylatch(&["exporter", "--url", &file, "--listen", &address]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{said}");
    assert!(said.contains(&address) && said.contains("--listen"), "{said}");

    let exporter = Exporter::start(&["--url", &file]);
    assert_eq!(exporter.get("GET", "/nothing").0, 404);
    assert_eq!(exporter.get("POST", "/metrics").0, 405);
    assert_eq!(exporter.get("HEAD", "/metrics"), (200, String::new()));
    let mut wrong = Exporter::start(&["--url", "redis://localhost?colour=red"]);
    let status = wait_for("its end", PATIENCE, || wrong.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(64), "a URL that is wrong stays wrong");
    wait_until("the reason", PATIENCE, || wrong.told.try_iter().any(|line| line.contains("colour")));
}

#[test]
fn once_prints_what_a_scrape_serves_also_if_a_store_is_down() {
    let (server, away) = (RedisServer::start(), RedisServer::start());
    away.stop();
    let output = polylatch(&["exporter", "--once", "--url", &server.url(), "--also", &away.url()]);
    let metrics = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for (server, up) in [(&server, 1.0), (&away, 0.0)] {
        let series = format!("polylatch_store_up{{store=\"redis://{}\"}}", server.address());
        assert_eq!(value(&metrics, &series), Some(up), "{metrics}");
    }
    let types = metrics.lines().filter(|line| line.starts_with("# TYPE"));
    assert_eq!(types.clone().count(), types.collect::<BTreeSet<_>>().len(), "each metric begins once");
    assert!(metrics.contains("code=\"backend_unavailable\""), "{metrics}");
    assert!(metrics.ends_with('\n'));
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../grafana/polylatch.json");
    let board: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let server = RedisServer::start();
    let url = server.url();
    let output = polylatch(&["exporter", "--once", "--per-lock", "*", "--url", &url]);
    let client = runtime().block_on(async {
        let client = Polylatch::connect("memory:").await.unwrap();
        client.stats().prometheus(&[]).unwrap()
    });
    let printed = text(&output.stdout) + &client;
    let mut known = BTreeSet::new();
    for line in printed.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        known.insert(name.to_owned());
        if kind == "histogram" {
            known.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}")));
        }
    }
    let panels = board["panels"].as_array().unwrap();
    let mut used = BTreeSet::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let said = |pointer: &str| panel.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let title = said("/title");
        assert!(!title.is_empty(), "{panel}");
        assert!(!said("/fieldConfig/defaults/unit").is_empty(), "{title} has no unit");
        assert!(said("/description").ends_with('.'), "{title} has no description");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title} asks for nothing");
        for target in targets {
            let query = target["expr"].as_str().unwrap();
            let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let names: Vec<_> = words.filter(|word| word.starts_with("polylatch_")).collect();
            assert!(!names.is_empty(), "{title}: {query}");
            for name in names {
                assert!(known.contains(name), "{title} asks for {name}, which is not printed");
                used.insert(name.to_owned());
            }
        }
    }
    assert!(
        used.contains("polylatch_store_up") && used.contains("polylatch_wait_seconds_bucket"),
        "{used:?}"
    );
}

/// What a scrape costs with 10 000 held locks on Redis. Run it with `--release --ignored --nocapture`.
#[test]
#[ignore = "a measurement, which takes a quiet machine and a release build"]
fn ten_thousand_locks() {
    let server = RedisServer::start();
    let (runtime, url) = (runtime(), server.url());
    let guards = runtime.block_on(async {
        let client = Polylatch::connect(&url).await.unwrap();
        let mut guards = Vec::new();
        for at in 0..10_000 {
            guards.push(
                client.lock(format!("lock/{at:05}")).lease(Duration::from_secs(120)).acquire().await.unwrap(),
            );
        }
        guards
    });
    let exporter = Exporter::start(&["--every", "2s", "--url", &url]);
    let label = format!("{{store=\"redis://{}\"}}", server.address());
    let held = format!("polylatch_store_locks_held{label}");
    exporter.until("all of them", |metrics| value(metrics, &held) == Some(10_000.0));
    let requests = |metrics: &str| value(metrics, &format!("polylatch_store_requests_total{label}")).unwrap();
    let (first, started) = (requests(&exporter.metrics()), Instant::now());
    let (mut took, mut last) = (Vec::new(), first);
    while started.elapsed() < Duration::from_secs(20) {
        let asked = Instant::now();
        last = requests(&exporter.metrics());
        took.push(asked.elapsed().as_secs_f64() * 1_000.0);
        std::thread::sleep(Duration::from_millis(50));
    }
    let seconds = started.elapsed().as_secs_f64();
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "{} scrapes: median {:.1} ms, p99 {:.1} ms, max {:.1} ms; {:.0} requests/s to the store",
        took.len(),
        at(0.5),
        at(0.99),
        at(1.0),
        (last - first) / seconds
    );
    // The tail is the scheduler's on a busy machine, and a debug build's; both are told above.
    assert!(at(0.5) <= 50.0 && (last - first) / seconds <= 2_500.0);
    drop(guards);
    runtime.shutdown_background();
}
