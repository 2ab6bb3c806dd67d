//! The real program against an SQLite file, with real commands and signals.

#![cfg(unix)]

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use polylatch_test_services::TempDir;
use polylatch_test_services::proc::{exists, kill, pause_between_writes, resume};
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait::{wait_for, wait_until};
use serde_json::Value;

/// Far beyond what any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with the lock file; commands run in it.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: TempDir::new() }
    }

    fn command(&self, args: &[&str]) -> Command {
        // Signals that the test run was started with as ignored (nohup) stay so in its children, and
        // `polylatch run` rightly respects that; here they are to arrive.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_polylatch")]);
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("POLYLATCH_URL", format!("sqlite:{}", self.dir.join("locks.db").display()));
        for inherited in ["POLYLATCH_LOCK", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"] {
            command.env_remove(inherited);
        }
        command
    }

    /// Runs to the end.
    fn polylatch(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts in the background; output goes to files called after `name`.
    fn start(&self, name: &'static str, args: &[&str]) -> Running {
        let (out, err) = (self.dir.join(format!("{name}.out")), self.dir.join(format!("{name}.err")));
        let child = self
            .command(args)
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Running { child, name, out, err }
    }

    /// Starts a holder of `lock` whose shell script says `up` once it runs, and waits for that.
    fn hold(&self, lock: &str, options: &[&str], script: &str) -> Running {
        let script = format!("echo $$ > pid.new; mv pid.new up; {script}");
        let mut args = vec!["run", lock];
        args.extend_from_slice(options);
        args.extend_from_slice(&["--", "sh", "-c", &script]);
        let running = self.start("holder", &args);
        wait_until("the holder's command to run", PATIENCE, || self.has("up"));
        running
    }

    fn held_command(&self) -> u32 {
        self.read("up").trim().parse().unwrap()
    }

    fn has(&self, file: &str) -> bool {
        self.dir.join(file).exists()
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.dir.join(file)).unwrap_or_default()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.polylatch(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn wait_for_waiters(&self, count: usize) {
        wait_until("the line to have the right length", PATIENCE, || {
            let locks = self.json(&["ls", "--json"]);
            locks["locks"][0]["waiters"].as_array().map_or(0, Vec::len) == count
        });
    }
}

struct Running {
    child: Child,
    name: &'static str,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    #[track_caller]
    fn end(&mut self) -> ExitStatus {
        let what = format!("{} to end; it said: {}", self.name, self.err());
        wait_for(&what, PATIENCE, || self.child.try_wait().unwrap())
    }

    #[track_caller]
    fn code(&mut self) -> i32 {
        let status = self.end();
        status.code().unwrap_or_else(|| panic!("{} has no code: {status}", self.name))
    }

    fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn two_runs_take_turns_and_the_token_grows() {
    let place = Place::new();
    let script =
        "echo first $POLYLATCH_FENCING_TOKEN >> log; mkfifo go; touch ready; read _ < go; echo end >> log";
    let mut first = place.hold("orders/42", &["--label", "first job"], script);
    wait_until("the first command to stand at its gate", PATIENCE, || place.has("ready"));
    let report = "echo second $POLYLATCH_FENCING_TOKEN $POLYLATCH_LOCK >> log";
    let mut second = place.start("second", &["run", "orders/42", "--", "sh", "-c", report]);
    place.wait_for_waiters(1);

    let both_are_known = || place.json(&["ls", "--json"])["clients"].as_array().unwrap().len() == 2;
    wait_until("both to have said who they are", PATIENCE, both_are_known);
    let seen = place.json(&["ls", "--json"]);
    let lock = &seen["locks"][0];
    assert_eq!((lock["name"].as_str(), lock["state"].as_str()), (Some("orders/42"), Some("contended")));
    assert_eq!(lock["holders"][0]["label"], "first job");
    assert_eq!(lock["findings"][0]["rule"], "LEGIT");
    wait_until("the waiter to tell who holds the lock", PATIENCE, || second.err().contains("\"first job\""));
    assert!(
        second.err().contains("waiting for orders/42, held by ") && second.err().contains("you are next")
    );
    assert_eq!(place.read("log").lines().count(), 1);

    fs::write(place.dir.join("go"), "\n").unwrap();
    assert_eq!((first.code(), second.code()), (0, 0));
    let log = place.read("log");
    let words: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!([words[0][0], words[1][0], words[2][0]], ["first", "end", "second"], "{log}");
    assert_eq!(words[2][2], "orders/42");
    let token = |line: usize| words[line][1].parse::<u64>().unwrap();
    assert!(token(2) > token(0), "{log}");
    assert_eq!(place.json(&["ls", "--json"])["locks"].as_array().unwrap().len(), 0);
}

#[test]
fn exit_codes_are_passed_on_or_told_apart() {
    let place = Place::new();
    for (args, code) in [
        (&["run", "a", "--", "sh", "-c", "exit 7"][..], 7),
        (&["run", "a", "--", "true"], 0),
        (&["run", "a", "--", "sh", "-c", "kill -9 $$"], 137),
        (&["run", "a", "--", "sh", "-c", "kill -TERM $$"], 143),
        (&["run", "a", "--", "no-such-command-anywhere"], 127),
        (&["run", "a", "--", "/dev/null"], 126),
        (&["run"], 64),
        (&["run", "a"], 64),
        (&["show"], 64),
        (&["ls", "--frobnicate"], 64),
        (&["run", "a", "--wait", "5", "--", "true"], 64),
        (&["run", "a", "--lease", "1ms", "--", "true"], 64),
        (&["run", "", "--", "true"], 64),
        (&["--url", "gopher://x", "ls"], 64),
        (&["--url", "memory:", "ls"], 64),
        (&["--url", "redis://127.0.0.1:1", "ls"], 69),
        (&["--version"], 0),
        (&["help"], 0),
    ] {
        let output = place.polylatch(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        let told = !output.stderr.is_empty();
        assert_eq!(told, (64..128).contains(&code), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_wait_covers_a_store_that_comes_later() {
    let place = Place::new();
    let server = RedisServer::start();
    let url = server.url();
    server.stop();
    let said = "waiting for a: the store is unavailable";
    let mut waits =
        place.start("waits", &["--url", &url, "run", "a", "--wait", "60s", "--", "touch", "done"]);
    wait_until("it to wait for the store", PATIENCE, || waits.err().contains(said));
    server.restart_with_data();
    assert_eq!(waits.code(), 0, "{}", waits.err());
    assert!(place.has("done"));
    assert_eq!(waits.err().matches(said).count(), 1, "{}", waits.err());

    server.stop();
    for (wait, waited) in [("1s", true), ("no", false)] {
        let mut gives_up =
            place.start("gives_up", &["--url", &url, "run", "a", "--wait", wait, "--", "touch", "no"]);
        assert_eq!(gives_up.code(), 69, "{}", gives_up.err());
        assert_eq!(gives_up.err().contains(said), waited, "{}", gives_up.err());
    }
    assert!(!place.has("no"));
}

#[test]
fn a_held_lock_is_not_acquired_and_the_command_not_started() {
    let place = Place::new();
    let _holder = place.hold("a", &["--label", "long job"], "exec sleep 600");
    for wait in ["no", "200ms"] {
        let output = place.polylatch(&["run", "a", "--wait", wait, "--", "touch", "started"]);
        assert_eq!(output.status.code(), Some(75), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("long job"), "{}", text(&output.stderr));
    }
    assert!(!place.has("started"));
    assert_eq!(place.json(&["ls", "--json"])["locks"][0]["waiters"].as_array().unwrap().len(), 0);
}

#[test]
fn show_explains_a_held_lock_and_a_free_one() {
    let place = Place::new();
    let _holder = place.hold("a b", &["--label", "long\u{202e}job"], "exec sleep 600");
    let shown = text(&place.polylatch(&["show", "a b"]).stdout);
    for part in [
        "a b  * held",
        "Holder",
        "running",
        "sh via polylatch",
        r"long\u{202e}job",
        "Nothing wrong was found.",
        "due every",
    ] {
        assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
    }
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown}");
    let free = text(&place.polylatch(&["show", "other"]).stdout);
    assert!(free.contains("Free: no client holds it or waits."), "{free}");
    let empty = text(&place.polylatch(&["ls", "zzz"]).stdout);
    assert!(empty.contains("No lock whose name starts with \"zzz\""), "{empty}");
}

#[test]
fn show_tells_until_when_a_waiter_waits() {
    let place = Place::new();
    let _holder = place.hold("a", &[], "exec sleep 600");
    let _waiter = place.start("waiter", &["run", "a", "--wait", "10m", "--", "true"]);
    place.wait_for_waiters(1);
    let shown = text(&place.polylatch(&["show", "a"]).stdout);
    assert!(shown.contains(", gives up in 9 min 5"), "{shown}");
    let waiter = &place.json(&["show", "a", "--json"])["locks"][0]["waiters"][0];
    let ms = |field: &str| waiter[field].as_u64().unwrap();
    assert!((590_000..=601_000).contains(&(ms("gives_up_at_ms") - ms("since_ms"))), "{waiter}");
}

#[test]
fn a_broken_lease_stops_its_command() {
    let place = Place::new();
    let script = "trap 'touch termed; exit 3' TERM; mkfifo gate; while :; do read _ < gate; done";
    let mut holder = place.hold("a", &[], script);
    let shown = place.json(&["show", "a", "--json"]);
    let token = shown["locks"][0]["holders"][0]["fencing_token"].as_u64().unwrap();
    let (right, wrong) = (token.to_string(), (token - 1).to_string());

    let stale = place.polylatch(&["break", "a", "--token", &wrong, "--reason", "stale", "--yes"]);
    assert_eq!(stale.status.code(), Some(1));
    assert!(text(&stale.stdout).contains("changed hands"), "{}", text(&stale.stdout));
    let unasked = place.polylatch(&["break", "a", "--token", &right, "--reason", "why"]);
    assert_eq!(unasked.status.code(), Some(64));
    assert!(text(&unasked.stderr).contains("--yes") && text(&unasked.stderr).contains("looks ALIVE"));
    assert!(holder.child.try_wait().unwrap().is_none());

    let broken = place.polylatch(&["break", "a", "--token", &right, "--reason", "ticket 4711", "--yes"]);
    assert_eq!(broken.status.code(), Some(0), "{}", text(&broken.stderr));
    assert!(text(&broken.stdout).contains("Broken"), "{}", text(&broken.stdout));
    assert_eq!(holder.code(), 76, "{}", holder.err());
    assert!(place.has("termed"), "the command got no SIGTERM: {}", holder.err());
    let again = place.polylatch(&["break", "a", "--token", &right, "--reason", "again", "--yes"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stdout).contains("is free"), "{}", text(&again.stdout));
    assert!(text(&place.polylatch(&["show", "a"]).stdout).contains("ticket 4711"));
}

#[test]
fn an_interrupted_wait_leaves_no_waiter_behind() {
    let place = Place::new();
    let _holder = place.hold("a", &[], "exec sleep 600");
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut waiter = place.start("waiter", &["run", "a", "--", "touch", "started"]);
        place.wait_for_waiters(1);
        waiter.signal(signal);
        assert_eq!(waiter.code(), code);
        // Not "soon": the line is left before the program ends.
        let seen = place.json(&["ls", "--json"]);
        assert_eq!(seen["locks"][0]["waiters"].as_array().unwrap().len(), 0, "{seen}");
    }
    assert!(!place.has("started"));
}

#[test]
fn a_runner_stopped_beyond_its_lease_kills_its_command_on_resume() {
    let place = Place::new();
    let mut holder = place.hold("a", &["--lease", "1s"], "trap '' TERM; while :; do sleep 600; done");
    let command = place.held_command();
    pause_between_writes(holder.child.id());
    wait_until("the lease to end in the store", PATIENCE, || {
        place.json(&["ls", "--json"])["locks"].as_array().unwrap().is_empty()
    });
    assert!(exists(command), "nobody could stop it yet");
    resume(holder.child.id());
    assert_eq!(holder.code(), 76, "{}", holder.err());
    assert!(!exists(command));
    assert!(holder.err().contains("was killed"), "{}", holder.err());
}

#[test]
fn a_command_that_ended_after_its_lease_was_not_protected() {
    let place = Place::new();
    let mut holder = place.hold("a", &["--lease", "1s"], "mkfifo go; touch ready; read _ < go; touch done");
    wait_until("the command to stand at its gate", PATIENCE, || place.has("ready"));
    pause_between_writes(holder.child.id());
    wait_until("the lease to end in the store", PATIENCE, || {
        place.json(&["ls", "--json"])["locks"].as_array().unwrap().is_empty()
    });
    fs::write(place.dir.join("go"), "\n").unwrap();
    let stat = format!("/proc/{}/stat", place.held_command());
    wait_until("the command to end", PATIENCE, || {
        place.has("done") && fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
    resume(holder.child.id());
    assert_eq!(holder.code(), 76, "{}", holder.err());
    assert!(holder.err().contains("ended with code 0, but its lease was over before"), "{}", holder.err());
}

#[test]
fn a_command_is_gone_before_a_lease_ends_that_cannot_be_renewed() {
    let place = Place::new();
    let lease = Duration::from_secs(3);
    let mut holder =
        place.hold("a", &["--lease", "3s"], "trap 'touch termed' TERM; while :; do sleep 0.05; done");
    let command = place.held_command();
    let renewed = || place.json(&["ls", "--json"])["locks"][0]["holders"][0]["renewals"].as_u64();
    wait_until("the first renewal", PATIENCE, || renewed() > Some(0));
    // A writer that never ends: renewals fail, and the lease in the store runs out.
    let blocker = rusqlite::Connection::open(place.dir.join("locks.db")).unwrap();
    let blocked_after = Instant::now();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let blocked_at = Instant::now();
    wait_until("the command to be killed", PATIENCE, || !exists(command));
    // The last renewal left before the store was blocked.
    assert!(blocked_at.elapsed() < lease, "gone after {:?}", blocked_at.elapsed());
    assert!(
        blocked_after.elapsed() > lease / 3,
        "a healthy lease is not given up: {:?}",
        blocked_after.elapsed()
    );
    assert!(place.has("termed"), "SIGKILL came without SIGTERM: {}", holder.err());
    blocker.execute_batch("ROLLBACK").unwrap();
    assert_eq!(holder.code(), 76, "{}", holder.err());
    assert!(holder.err().contains("could not be renewed"), "{}", holder.err());
}

#[test]
fn the_hold_limit_ends_a_command_that_ignores_sigterm_and_its_children() {
    let place = Place::new();
    let started = Instant::now();
    let script = "trap '' TERM; sleep 600 & echo $! > grandchild; wait";
    let mut holder = place.hold("a", &["--max-hold", "1s", "--kill-after", "200ms"], script);
    assert_eq!(holder.code(), 76);
    assert!(holder.err().contains("the hold limit is reached; asking"), "{}", holder.err());
    assert!(started.elapsed() < Duration::from_secs(10));
    let grandchild: u32 = place.read("grandchild").trim().parse().unwrap();
    wait_until("the command's own child to be gone", PATIENCE, || !exists(grandchild));
}

#[test]
fn signals_reach_the_command_and_its_answer_is_passed_on() {
    let place = Place::new();
    for (signal, code) in [("INT", 11), ("TERM", 12), ("HUP", 13)] {
        let script = format!(
            "trap 'exit {code}' {signal}; rm -f gate; mkfifo gate; touch ready; while :; do read _ < gate; done"
        );
        let mut holder = place.hold("a", &[], &script);
        wait_until("the trap to be set", PATIENCE, || place.has("ready"));
        holder.signal(signal);
        assert_eq!(holder.code(), code, "{}", holder.err());
        fs::remove_file(place.dir.join("up")).unwrap();
        fs::remove_file(place.dir.join("ready")).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_runner_takes_its_command_along() {
    let place = Place::new();
    let mut holder = place.hold("a", &[], "exec sleep 600");
    let command = place.held_command();
    kill(holder.child.id());
    holder.end();
    wait_until("the command to be gone", PATIENCE, || !exists(command));
}

#[test]
fn events_are_printed_line_by_line() {
    let place = Place::new();
    // Looking makes no file.
    assert!(place.polylatch(&["run", "other", "--", "true"]).status.success());
    let watch = place.start("watch", &["watch", "jobs/", "--every", "100ms", "--json"]);
    let words = place.start("words", &["watch", "--every", "100ms"]);
    for watcher in [&watch, &words] {
        wait_until("the watch to begin", PATIENCE, || watcher.err().contains("watching"));
    }
    let mut holder = place.hold("jobs/1", &["--label", "job"], "mkfifo go; read _ < go");
    wait_until("the grant to be told twice", PATIENCE, || {
        watch.out().contains("granted") && words.out().contains("granted     jobs/1")
    });
    fs::write(place.dir.join("go"), "\n").unwrap();
    assert_eq!(holder.code(), 0);
    wait_until("the release to be told", PATIENCE, || watch.out().contains("released"));
    let events: Vec<Value> = watch.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["event"], "granted");
    assert_eq!((events[0]["lock"].as_str(), events[0]["label"].as_str()), (Some("jobs/1"), Some("job")));
    wait_until("the words for it", PATIENCE, || words.out().contains("released    jobs/1"));
}

#[test]
fn no_piece_of_a_password_is_printed() {
    let place = Place::new();
    for password in ["Zq7xWv/Kj9pLm", "Zq7xWv?Kj9pLm", "Zq7xWv@Kj9pLm", "Zq7xWv#Kj9pLm", "40917/Kj9p?Xw8v"] {
        for url in [
            "redis://:PASSWORD@127.0.0.1:1",
            "redis+sentinel://:PASSWORD@127.0.0.1:1/main",
            "redlock://:PASSWORD@127.0.0.1:1,127.0.0.1:2",
            "consul://:PASSWORD@127.0.0.1:1",
            "sqlite://bob:PASSWORD@127.0.0.1/locks.db",
            "bob:PASSWORD@127.0.0.1:1",
        ] {
            let url = url.replace("PASSWORD", password);
            for args in [&["ls", "--url", &url][..], &["doctor", "--url", &url], &["doctor", &url]] {
                let output = place.polylatch(args);
                assert!(!output.status.success(), "{args:?}");
                let told = [output.stdout, output.stderr].concat();
                let told = String::from_utf8_lossy(&told).into_owned();
                let pieces = password.as_bytes().windows(4).map(|piece| std::str::from_utf8(piece).unwrap());
                let leaked: Vec<&str> = pieces.filter(|piece| told.contains(piece)).collect();
                assert_eq!(leaked, [""; 0], "{args:?}: {told}");
            }
        }
    }
}
