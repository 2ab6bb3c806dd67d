//! `polylatch idem` as users run it, with real commands and signals.

#![cfg(unix)]

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use polylatch_test_services::TempDir;
use polylatch_test_services::proc::{exists, kill, terminate};
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait::wait_until;
use serde_json::Value;

/// Far beyond what any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder in which commands run, and a store.
struct Place {
    dir: TempDir,
    url: String,
}

impl Place {
    fn new() -> Self {
        let dir = TempDir::new();
        let url = format!("sqlite:{}", dir.join("locks.db").display());
        Self { dir, url }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_polylatch"), "idem"]);
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("POLYLATCH_URL", &self.url).env_remove("POLYLATCH_LOCK").env_remove("LC_ALL");
        command
    }

    fn idem(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a shell script under a key.
    fn run(&self, options: &[&str], key: &str, script: &str) -> Output {
        let mut args = vec!["run", "s", key];
        args.extend_from_slice(options);
        args.extend_from_slice(&["--", "sh", "-c", script]);
        self.idem(&args)
    }

    fn start(&self, options: &[&str], key: &str, script: &str) -> Child {
        let mut args = vec!["run", "s", key];
        args.extend_from_slice(options);
        args.extend_from_slice(&["--", "sh", "-c", script]);
        self.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.dir.join(file)).unwrap_or_default()
    }

    fn records(&self) -> Vec<Value> {
        let output = self.idem(&["ls", "--json"]);
        let told: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert_eq!(told["version"], 1);
        told["records"].as_array().unwrap().clone()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn output_and_exit_code_are_repeated() {
    let server = RedisServer::start();
    for place in [Place::new(), Place { url: server.url(), ..Place::new() }] {
        let script = "echo run >> log; printf 'out\\377\\n'; echo err >&2; exit 3";
        let runs: Vec<_> = (0..3).map(|_| place.run(&[], "k", script)).collect();
        for run in &runs {
            assert_eq!(run.status.code(), Some(3), "{run:?}");
            assert_eq!(run.stdout, b"out\xff\n", "byte by byte");
            assert_eq!(run.stderr, b"err\n");
        }
        assert_eq!(place.read("log"), "run\n", "it ran once");
        let failed = place.run(&["--free-on-failure"], "f", "echo f >> log; exit 1");
        assert_eq!(failed.status.code(), Some(1));
        let again = place.run(&["--free-on-failure"], "f", "echo f >> log; exit 1");
        assert_eq!(again.status.code(), Some(1));
        assert_eq!(place.read("log"), "run\nf\nf\n", "the second failure was not stored");
    }
}

#[test]
fn another_command_or_fingerprint_under_the_same_key_is_refused() {
    let place = Place::new();
    assert!(place.run(&[], "k", "echo 1").status.success());
    let other = place.run(&[], "k", "echo 2");
    assert_eq!(other.status.code(), Some(65), "{other:?}");
    assert!(
        other.stdout.is_empty() && text(&other.stderr).contains("a new request needs a new key"),
        "{other:?}"
    );
    assert!(place.run(&["--fingerprint", "a"], "p", "echo 1").status.success());
    let same = place.run(&["--fingerprint", "a"], "p", "echo 2");
    assert_eq!((same.status.code(), same.stdout.as_slice()), (Some(0), &b"1\n"[..]), "the payload counts");
    assert_eq!(place.run(&["--fingerprint", "b"], "p", "echo 1").status.code(), Some(65));
    let missing = place.idem(&["run", "s", "m", "--", "./no-such-command"]);
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    assert_eq!(place.run(&["--retention", "1ms"], "r", "echo 1").status.code(), Some(64));
    assert_eq!(place.records().len(), 2, "what could not be started is not stored");
}

#[test]
fn a_run_meanwhile_waits_or_says_so_and_gets_the_same() {
    let place = Place::new();
    let script =
        "echo run >> log; : > up; while [ ! -e go ]; do sleep 0.02; done; echo done $POLYLATCH_IDEM_RUNS";
    let first = place.start(&[], "k", script);
    wait_until("the command to run", PATIENCE, || place.dir.join("up").exists());
    let busy = place.run(&["--wait", "no"], "k", script);
    assert_eq!(busy.status.code(), Some(75), "{busy:?}");
    assert!(text(&busy.stderr).contains("in progress"), "{busy:?}");
    let shown = text(&place.idem(&["show", "s", "k"]).stdout);
    assert!(shown.contains("k in s is running on host"), "{shown}");
    let kept = place.idem(&["forget", "s", "k"]);
    assert_eq!(kept.status.code(), Some(1), "{kept:?}");
    let waiting: Vec<_> = (0..3).map(|_| place.start(&[], "k", script)).collect();
    fs::write(place.dir.join("go"), "").unwrap();
    for run in std::iter::once(first).chain(waiting) {
        let output = run.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "done 1"), "{output:?}");
    }
    assert_eq!(place.read("log"), "run\n");
}

#[test]
fn a_killed_run_frees_its_key_when_its_lease_ends_and_takes_its_command_along() {
    let place = Place::new();
    let script = "echo run >> log; [ $POLYLATCH_IDEM_RUNS = 2 ] && exit 0; echo $$ > pid.new; mv pid.new pid; exec sleep 60";
    let mut first = place.start(&["--lease", "1s"], "k", script);
    wait_until("the command to run", PATIENCE, || place.dir.join("pid").exists());
    let command: u32 = place.read("pid").trim().parse().unwrap();
    // `env` has become the program itself.
    kill(first.id());
    first.wait().unwrap();
    if cfg!(target_os = "linux") {
        wait_until("its command to end with it", PATIENCE, || !exists(command));
    }
    let begun = Instant::now();
    let second = place.run(&["--lease", "1s"], "k", script);
    assert!(second.status.success(), "{second:?}");
    assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
    assert_eq!(
        place.read("log"),
        "run\nrun\n",
        "only the command itself could have refused the second effect"
    );
    assert!(place.run(&["--lease", "1s"], "k", script).status.success());
    assert_eq!(place.read("log"), "run\nrun\n");
}

#[test]
fn a_signal_goes_to_the_command_and_its_end_is_not_stored() {
    let place = Place::new();
    let script = "trap 'exit 7' INT; [ -e up ] && exit 0; : > up; sleep 60 & wait; kill -TERM $$";
    let mut first = place.start(&[], "k", script);
    wait_until("the command to run", PATIENCE, || place.dir.join("up").exists());
    terminate(first.id());
    assert_eq!(first.wait().unwrap().code(), Some(128 + 15));
    let second = place.run(&[], "k", script);
    assert_eq!(second.status.code(), Some(0), "it was started again at once: {second:?}");
}

#[test]
fn keys_are_listed_explained_and_forgotten() {
    let place = Place::new();
    let none = place.idem(&["ls"]);
    assert_eq!(none.status.code(), Some(64), "looking makes no file: {none:?}");
    assert!(place.run(&["--retention", "forever"], "k", "echo 1").status.success());
    let listed = text(&place.idem(&["ls"]).stdout);
    assert!(
        listed.contains("STATE SCOPE KEY") && listed.contains("done s k") && listed.contains("for ever"),
        "{listed}"
    );
    assert!(text(&place.idem(&["ls", "other"]).stdout).contains("No key is running or stored"));
    let [record] = &place.records()[..] else { panic!("one record") };
    assert_eq!((record["state"].as_str(), record["runs"].as_u64()), (Some("done"), Some(1)), "{record}");
    assert!(record.get("owner").is_none() && record.get("result").is_none(), "{record}");
    let shown = text(&place.idem(&["show", "s", "k"]).stdout);
    assert!(shown.contains("kept for ever") && shown.contains("Every run gets that answer"), "{shown}");
    assert!(place.idem(&["forget", "s", "k"]).status.success());
    assert_eq!(place.idem(&["forget", "s", "k"]).status.code(), Some(1));
    let shown = text(&place.idem(&["show", "s", "k"]).stdout);
    assert!(shown.contains("k in s is free"), "{shown}");
    let help = text(&place.idem(&["run", "--help"]).stdout);
    for taught in
        ["idem run orders/anna 9f1c", "65 the key was used", "POLYLATCH_IDEM_RUNS", "starts it again"]
    {
        assert!(help.contains(taught), "{taught}: {help}");
    }
}

/// What `polylatch check` says: its exit code, and the codes about keys with their severity.
fn checked(place: &Place, args: &[&str]) -> (Option<i32>, Vec<(String, String)>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
    command.arg("check").args(args).arg("--json").env("POLYLATCH_URL", &place.url).stdin(Stdio::null());
    let output = command.output().unwrap();
    let told: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of_records = told["findings"].as_array().unwrap().iter().filter(|case| case.get("record").is_some());
    let found = of_records.map(|case| (text(&case["code"]), text(&case["severity"])));
    (output.status.code(), found.collect())
}

/// A command that runs until there is a file `go`.
const WORK: &str = ": > up.$POLYLATCH_IDEM_KEY; while [ ! -e go ]; do sleep 0.02; done";

/// Starts [`WORK`] under a key, and waits until it runs.
fn working(place: &Place, lease: &str, key: &str) -> Child {
    let child = place.start(&["--lease", lease], key, WORK);
    wait_until("the command to run", PATIENCE, || place.dir.join(format!("up.{key}")).exists());
    child
}

fn found(code: &str, severity: &str) -> Vec<(String, String)> {
    vec![(code.to_owned(), severity.to_owned())]
}

#[cfg(target_os = "linux")]
#[test]
fn a_claim_that_is_renewed_is_no_finding_and_one_whose_process_is_stopped_is() {
    use polylatch_test_services::proc::{pause_between_writes, resume};

    let place = Place::new();
    let mut living = working(&place, "9s", "k");
    wait_until("a renewal", PATIENCE, || place.records()[0]["renewals"].as_u64() >= Some(1));
    assert_eq!(checked(&place, &["--scope", "s"]), (Some(0), vec![]), "it takes its time");
    pause_between_writes(living.id());
    let mut shown = String::new();
    wait_until("the stopped process to be shown", PATIENCE, || {
        shown = text(&place.idem(&["show", "s", "k"]).stdout);
        shown.contains("STOPPED:")
    });
    assert!(shown.contains(&format!("kill -CONT {}", living.id())), "{shown}");
    // An alarm only once a renewal is late.
    wait_until("the alarm", PATIENCE, || {
        checked(&place, &["--scope", ""]) == (Some(1), found("STOPPED", "warning"))
    });
    assert_eq!(checked(&place, &[]), (Some(0), vec![]), "records are read only where they are asked for");
    resume(living.id());
    fs::write(place.dir.join("go"), "").unwrap();
    living.wait().unwrap();
}

#[test]
fn a_claim_of_a_killed_process_is_found_until_another_run_has_done_its_work() {
    let server = RedisServer::start();
    let place = Place { url: server.url(), ..Place::new() };
    let mut killed = working(&place, "6s", "k");
    kill(killed.id());
    killed.wait().unwrap();
    if cfg!(target_os = "linux") {
        wait_until("the process to be missed", PATIENCE, || {
            checked(&place, &["--scope", "s"]) == (Some(1), found("HOLDER-GONE", "warning"))
        });
    }
    wait_until("the claim to end", PATIENCE, || {
        checked(&place, &["--finding", "claim-abandoned"]) == (Some(1), found("CLAIM-ABANDONED", "warning"))
    });
    assert_eq!(checked(&place, &["--scope", "other"]), (Some(0), vec![]));
    let listed = text(&place.idem(&["ls"]).stdout);
    assert!(listed.contains("KEPT FOUND") && listed.contains("CLAIM-ABANDONED"), "{listed}");
    // That it was begun twice is worth knowing, and no alarm.
    fs::write(place.dir.join("go"), "").unwrap();
    assert!(place.run(&[], "k", WORK).status.success());
    assert_eq!(checked(&place, &["--scope", "s"]), (Some(0), vec![]));
    assert_eq!(checked(&place, &["--finding", "WORK-REPEATED"]).1, found("WORK-REPEATED", "notice"));
}
