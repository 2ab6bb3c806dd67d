//! Deadlocks told by the real program: none where tasks take turns, one where clients wait for each other, and the
//! exit codes and JSON that scripts rely on. Clients are processes of their own.

#![cfg(target_os = "linux")] // who started whom is looked up there

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use polylatch::Polylatch;
use polylatch::inspect::Query;
use polylatch_test_services::TempDir;
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait::wait_until;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a client process of these tests does; see [`a_client_of_these_tests`].
const PART: &str = "POLYLATCH_TEST_PART";

fn polylatch(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
    for inherited in ["POLYLATCH_URL", "POLYLATCH_LOCK", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"] {
        command.env_remove(inherited);
    }
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

struct Running(Child);

impl Running {
    /// Starts this test program again as one client.
    fn part(part: &str, url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "cli_deadlock::a_client_of_these_tests", "--nocapture"]);
        command.env(PART, part).env("POLYLATCH_URL", url);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Self(command.spawn().unwrap())
    }

    /// Starts `polylatch run` of a script that gets the program as `$0`.
    fn run(url: &str, lock: &str, script: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_polylatch");
        let mut command = Command::new(program);
        command.args(["--url", url, "run", lock, "--", "sh", "-c", script, program]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The client processes: `turns SEED`, three tasks that take one lock at a time, or `cross FIRST SECOND`, one task
/// that holds one lock and wants another. They end with their input.
#[test]
#[ignore = "is started by the other tests"]
fn a_client_of_these_tests() {
    let part = std::env::var(PART).expect("started by another test");
    let words: Vec<String> = part.split(' ').map(str::to_owned).collect();
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let client = Polylatch::builder().connect().await.unwrap();
        if words[0] == "cross" {
            let _held = client.lock(words[1].as_str()).acquire().await.unwrap();
            while client.inspect().list(&Query::default()).await.unwrap().locks.len() < 2 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let _both = client.lock(words[2].as_str()).acquire().await.unwrap();
            return std::future::pending().await;
        }
        let mut tasks = tokio::task::JoinSet::<()>::new();
        for task in 0..3_u64 {
            let (client, seed) = (client.clone(), words[1].parse::<u64>().unwrap() * 3 + task);
            tasks.spawn_local(async move {
                let mut random = seed * 2_654_435_761 + 12_345;
                loop {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let (name, hold) =
                        (format!("stock/{}", (random >> 40) % 4), 200 + (random >> 50) % 1_800);
                    let guard = client.lock(name).label(format!("task {seed}")).acquire().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(hold)).await;
                    guard.release().await.unwrap();
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    });
}

#[test]
fn tasks_that_take_turns_are_never_called_a_deadlock() {
    let server = RedisServer::start();
    let url = server.url();
    let _clients: Vec<Running> = (0..3).map(|seed| Running::part(&format!("turns {seed}"), &url)).collect();
    let graph = || polylatch(&["--url", &url, "graph", "--json"]);
    wait_until("all tasks to be at it", PATIENCE, || {
        let told = json(&graph());
        told["waits"].as_array().unwrap().len() >= 4
    });
    let alarms: Vec<String> = (0..120)
        .map(|_| graph())
        .filter(|output| output.status.code() != Some(0))
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .collect();
    assert_eq!(alarms.len(), 0, "{} of 120 snapshots: {}", alarms.len(), alarms[0]);
}

#[test]
fn clients_that_wait_for_each_other_are_a_possible_deadlock_without_a_command_to_break_it() {
    let server = RedisServer::start();
    let url = server.url();
    let _clients = ["cross orders stock", "cross stock orders"].map(|part| Running::part(part, &url));
    let locks = || json(&polylatch(&["--url", &url, "ls", "--json"]))["locks"].clone();
    wait_until("both to wait", PATIENCE, || {
        let locks = locks();
        let waited = |at: usize| !locks[at]["waiters"].as_array().is_none_or(Vec::is_empty);
        waited(0) && waited(1)
    });
    let begun = Instant::now();
    wait_until("the ring", Duration::from_secs(10), || {
        polylatch(&["--url", &url, "graph"]).status.code() == Some(2)
    });
    assert!(begun.elapsed() > Duration::from_secs(2), "one snapshot says nothing yet");

    let text = String::from_utf8(polylatch(&["--url", &url, "graph"]).stdout).unwrap();
    assert!(
        text.starts_with("Possible deadlock 1, unchanged for ") && !text.contains("break here"),
        "{text}"
    );
    let told = json(&polylatch(&["--url", &url, "graph", "--json"]));
    assert_eq!(told["version"], 1);
    let ring = &told["deadlocks"][0];
    assert_eq!((&ring["proved"], &ring["break"]), (&Value::Bool(false), &Value::Null));
    assert_eq!((&ring["waits"][0]["lock"], &ring["waits"][1]["lock"]), (&"orders".into(), &"stock".into()));
    let shown = polylatch(&["--url", &url, "show", "orders", "--json"]);
    let shown = json(&shown);
    assert_eq!((&shown["version"], &shown["locks"][0]["state"]), (&1.into(), &"may-deadlock".into()));
    let finding = &shown["locks"][0]["findings"][0];
    assert!(finding["sentence"].as_str().unwrap().starts_with("May be a deadlock"), "{finding}");
    assert!(!finding["next"].to_string().contains("break"), "{finding}");
}

#[test]
fn nested_runs_over_two_stores_are_a_deadlock_with_a_command_to_break_it() {
    let (server, dir) = (RedisServer::start(), TempDir::new());
    let (redis, sqlite) = (server.url(), format!("sqlite:{}", dir.join("locks.db").display()));
    let both = |first: &str, second: &str, url: &str| {
        let go = dir.join("go");
        let held = dir.join(format!("{first}.held"));
        let (go, held) = (go.display(), held.display());
        format!(
            "touch {held}; until [ -e {go} ]; do sleep 0.05; done; exec \"$0\" --url {url} run {second} -- true"
        )
    };
    let _one = Running::run(&redis, "orders", &both("orders", "stock", &sqlite));
    let _two = Running::run(&sqlite, "stock", &both("stock", "orders", &redis));
    wait_until("both to hold", PATIENCE, || {
        ["orders", "stock"].iter().all(|lock| dir.join(format!("{lock}.held")).exists())
    });
    assert_eq!(polylatch(&["--url", &redis, "graph", "--also", &sqlite]).status.code(), Some(0));
    std::fs::write(dir.join("go"), "").unwrap();
    let graph = || polylatch(&["--url", &redis, "graph", "--also", &sqlite]);
    wait_until("the ring", PATIENCE, || graph().status.code() == Some(2));
    let text = String::from_utf8(graph().stdout).unwrap();
    assert!(text.starts_with("Deadlock 1, standing for ") && text.contains("break here: "), "{text}");
    let told = json(&polylatch(&["--url", &redis, "graph", "--also", &sqlite, "--json"]));
    let command = told["deadlocks"][0]["break"].as_str().unwrap();
    let ended = Command::new("sh")
        .args([
            "-c",
            &format!("{} --yes", command.replacen("polylatch", "\"$0\"", 1)),
            env!("CARGO_BIN_EXE_polylatch"),
        ])
        .output()
        .unwrap();
    assert!(ended.status.success(), "{command}: {ended:?}");
    wait_until("the end of the ring", PATIENCE, || graph().status.code() == Some(0));
}

#[test]
fn other_libraries_locks_are_told_by_the_command_that_is_offered() {
    let server = RedisServer::start();
    let url = server.url();
    let set = ["SET", "lock:plain[1]", "0123456789abcdef0123456789abcdef", "PX", "600000"];
    assert_eq!(server.command(&set).error(), None);
    let listed = String::from_utf8(polylatch(&["--url", &url, "ls", "--foreign", "lock:*"]).stdout).unwrap();
    assert!(listed.contains("lock:plain[1]") && listed.contains("foreign"), "{listed}");
    let shown = polylatch(&["--url", &url, "show", "--foreign", "lock:plain[1]"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(
        text.contains("foreign") && text.contains("Another program") && !text.contains("012345"),
        "{text}"
    );
    // Without the option it is the Polylatch lock of that name, and says so.
    let own = String::from_utf8(polylatch(&["--url", &url, "show", "lock:plain[1]"]).stdout).unwrap();
    assert!(own.contains("--foreign"), "{own}");
    let missing = polylatch(&["--url", &url, "show", "--foreign", "lock:plain"]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
}

#[test]
fn a_mistyped_lock_file_or_token_is_told_as_that() {
    let dir = TempDir::new();
    let file = dir.join("lcoks.db");
    let url = format!("sqlite:{}", file.display());
    for args in [&["ls"][..], &["show", "a"], &["graph"], &["watch"]] {
        let output = polylatch(&[&["--url", url.as_str()], args].concat());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{args:?}: {told}");
        assert!(told.contains("there is no lock file") && told.contains("lcoks.db"), "{args:?}: {told}");
    }
    assert!(!file.exists());

    let url = format!("sqlite:{}", dir.join("locks.db").display());
    let held = dir.join("held");
    let _holder = Running::run(&url, "a", &format!("touch {}; exec sleep 600", held.display()));
    wait_until("the holder", PATIENCE, || held.exists());
    let token =
        json(&polylatch(&["--url", &url, "ls", "--json"]))["locks"][0]["holders"][0]["fencing_token"].clone();
    let mistyped = (token.as_u64().unwrap() + 1).to_string();
    let output = polylatch(&["--url", &url, "break", "a", "--token", &mistyped, "--reason", "x", "--yes"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("never held under token") && !told.contains("changed hands"), "{told}");
}
