//! The demo with the real program: the story is told, and nothing is left behind.

#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polylatch_test_services::TempDir;
use polylatch_test_services::proc::{kill, terminate};
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait::{wait_for, wait_until};

/// Far beyond what any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A demo whose temporary folder is a folder of its own.
struct Demo {
    dir: TempDir,
    child: Child,
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let dir = TempDir::new();
        // Signals that the test run was started with as ignored are to arrive all the same.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_polylatch")]);
        command.arg("demo").args(args).env("TMPDIR", dir.path()).stdin(Stdio::null()).process_group(0);
        // The user's own store, which the demo must leave alone.
        command.env("POLYLATCH_URL", format!("sqlite:{}", dir.join("mine.db").display()));
        command.stdout(File::create(dir.join("out")).unwrap());
        command.stderr(File::create(dir.join("err")).unwrap());
        Self { child: command.spawn().unwrap(), dir }
    }

    fn out(&self) -> String {
        fs::read_to_string(self.dir.join("out")).unwrap()
    }

    /// Waits until the story has come to a line with this text.
    #[track_caller]
    fn comes_to(&self, text: &str) {
        wait_until(&format!("{text:?} in {}", self.out()), PATIENCE, || self.out().contains(text));
    }

    #[track_caller]
    fn ends_well(&mut self) {
        let status = wait_for("the demo to end", PATIENCE, || self.child.try_wait().unwrap());
        let err = fs::read_to_string(self.dir.join("err")).unwrap();
        assert!(status.success() && err.is_empty(), "{status}: {err}\n{}", self.out());
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| !path.ends_with("out") && !path.ends_with("err")).collect()
    }

    /// Every process of this demo: they all know its folder.
    fn processes(&self) -> BTreeSet<u32> {
        let folder = self.dir.path().to_str().unwrap();
        let of = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(folder)
        };
        let pids = fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(of).collect()
    }

    #[track_caller]
    fn has_left_nothing(&self) {
        assert_eq!((self.files(), self.processes()), (vec![], BTreeSet::new()));
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The places of these texts, which must follow each other.
#[track_caller]
fn in_order(story: &str, parts: &[&str]) {
    let mut rest = story;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is missing or too early in:\n{story}"));
        rest = &rest[at..];
    }
}

/// The numbers in `… token 33 is older than 34`.
fn tokens_of_refusal(story: &str) -> (u64, u64) {
    let line = story.lines().find(|line| line.contains("REFUSED ")).unwrap();
    let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn the_story_has_loss_larger_token_and_refusal_and_leaves_nothing() {
    let mut demo = Demo::start(&["--seconds", "12"]);
    demo.ends_well();
    let story = demo.out();
    in_order(
        &story,
        &[
            "HAND-OFFS",
            "granted     ledger",
            "NOW TROUBLE",
            "PAUSED",
            "ENDANGERED",
            "expired     ledger",
            "THE NEXT ONE ENTERS",
            "learns that its lease is lost: expired",
            "IT LEARNS OF THE LOSS",
            "REFUSED     ledger",
            "THE FENCE HOLDS",
            "1 late write refused by its token. Nothing is left behind.",
        ],
    );
    let (late, largest) = tokens_of_refusal(&story);
    assert!(late < largest, "{late} {largest}");
    assert!(!story.contains('\u{1b}'), "{story}");
    demo.has_left_nothing();
}

#[test]
fn an_interrupted_demo_leaves_nothing_even_with_a_paused_worker() {
    for signal in ["INT", "TERM"] {
        let mut demo = Demo::start(&["--seconds", "12"]);
        demo.comes_to("PAUSED");
        assert!(demo.processes().len() >= 7, "{:?}", demo.processes());
        if signal == "INT" {
            let sent = Command::new("kill").args(["-INT", &demo.child.id().to_string()]).status();
            assert!(sent.unwrap().success());
        } else {
            terminate(demo.child.id());
        }
        demo.ends_well();
        demo.has_left_nothing();
    }
}

#[test]
fn a_killed_demo_leaves_nothing_either() {
    let mut demo = Demo::start(&["--seconds", "12"]);
    demo.comes_to("PAUSED");
    assert_eq!(demo.files().len(), 1);
    kill(demo.child.id());
    demo.child.wait().unwrap();
    wait_until("workers and files to be gone", Duration::from_secs(10), || {
        demo.processes().is_empty() && demo.files().is_empty()
    });
}

#[test]
fn a_reader_that_goes_away_ends_the_demo() {
    let mut demo = Demo::start(&["--help"]);
    demo.ends_well();
    let dir = TempDir::new();
    let script = format!("{} demo --seconds 12 | head -n 3", env!("CARGO_BIN_EXE_polylatch"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("TMPDIR", dir.path()).env_remove("POLYLATCH_URL").stdin(Stdio::null());
    assert!(command.output().unwrap().status.success());
    wait_until("its folder to be gone", PATIENCE, || fs::read_dir(dir.path()).unwrap().next().is_none());
}

#[test]
fn on_a_store_of_the_users_it_stays_under_its_own_prefix_and_goes() {
    let server = RedisServer::start();
    server.command(&["SET", "mine", "untouched"]);
    let mut demo = Demo::start(&["--seconds", "12", "--url", &server.url()]);
    demo.comes_to("PAUSED");
    let listed = Command::new(env!("CARGO_BIN_EXE_polylatch"))
        .args(["--url", &server.url(), "ls", "--json", "polylatch-demo-"])
        .output()
        .unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(!listed["locks"].as_array().unwrap().is_empty(), "{listed}");
    demo.ends_well();
    in_order(&demo.out(), &["learns that its lease is lost", "REFUSED     ledger", "Nothing is left behind"]);
    demo.has_left_nothing();
    let left = format!("{:?}", server.command(&["KEYS", "*polylatch-demo-*"]));
    assert!(!left.contains("polylatch-demo-"), "{left}");
    let locks = Command::new(env!("CARGO_BIN_EXE_polylatch"))
        .args(["--url", &server.url(), "ls", "--json"])
        .output()
        .unwrap();
    let locks: serde_json::Value = serde_json::from_slice(&locks.stdout).unwrap();
    assert!(locks["locks"].as_array().unwrap().is_empty(), "{locks}");
}

#[test]
fn wrong_calls_are_told_before_anything_starts() {
    for (args, code) in [
        (&["demo", "--seconds", "3"][..], 64),
        (&["demo", "--url", "memory:"], 64),
        (&["demo", "--url", "redis://127.0.0.1:1"], 69),
        (&["demo-worker", "--folder", "/tmp"], 64),
        (&["demo-cleaner", "/tmp"], 64),
    ] {
        let dir = TempDir::new();
        // Signals that the test run was started with as ignored are to arrive all the same.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_polylatch")]);
        let output = command.args(args).env("TMPDIR", dir.path()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stderr.is_empty() && fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
