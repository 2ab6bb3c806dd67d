//! `polylatch run --shared`, `--write` and `--permits`: the real program against an SQLite file.

#![cfg(unix)]

use std::fs::{self, File};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use polylatch_test_services::TempDir;
use polylatch_test_services::wait::{wait_for, wait_until};
use serde_json::Value;

/// Far beyond what any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with the lock file; commands run in it.
struct Place {
    dir: TempDir,
}

/// A command that holds until it is told to go. Killed when dropped.
struct Running(Child, &'static str);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    fn new() -> Self {
        Self { dir: TempDir::new() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("POLYLATCH_URL", format!("sqlite:{}", self.dir.join("locks.db").display()));
        for inherited in ["POLYLATCH_LOCK", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"] {
            command.env_remove(inherited);
        }
        command
    }

    fn polylatch(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts a run of the lock `x` whose command writes its token into `NAME.up` once it runs, and
    /// ends when there is a file `NAME.go`.
    fn start(&self, name: &'static str, how: &[&str]) -> Running {
        let script = format!(
            "echo $POLYLATCH_FENCING_TOKEN > {name}.new; mv {name}.new {name}.up; \
             until test -e {name}.go; do sleep 0.02; done"
        );
        let mut args = vec!["run", "x", "--label", name];
        args.extend_from_slice(how);
        args.extend_from_slice(&["--", "sh", "-c", &script]);
        let err = File::create(self.dir.join(format!("{name}.err"))).unwrap();
        Running(self.command(&args).stderr(err).spawn().unwrap(), name)
    }

    fn runs(&self, name: &str) -> bool {
        self.dir.join(format!("{name}.up")).exists()
    }

    /// Waits until a run has the lock, and returns its token.
    #[track_caller]
    fn token(&self, running: &Running) -> u64 {
        wait_until("the command to run", PATIENCE, || self.runs(running.1));
        fs::read_to_string(self.dir.join(format!("{}.up", running.1))).unwrap().trim().parse().unwrap()
    }

    #[track_caller]
    fn end(&self, mut running: Running) {
        let name = running.1;
        fs::write(self.dir.join(format!("{name}.go")), "").unwrap();
        let status = wait_for("the run to end", PATIENCE, || running.0.try_wait().unwrap());
        assert_eq!(status.code(), Some(0), "{name}: {}", self.said(name));
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(format!("{name}.err"))).unwrap_or_default()
    }

    /// The lock `x` as `ls --json` has it.
    fn lock(&self) -> Value {
        let output = self.polylatch(&["ls", "--json"]);
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        seen["locks"][0].clone()
    }

    fn wait_for_waiters(&self, count: usize) {
        wait_until("the line to have the right length", PATIENCE, || {
            self.lock()["waiters"].as_array().map_or(0, Vec::len) == count
        });
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn two_share_and_a_writer_waits_for_both() {
    let place = Place::new();
    let (one, two) = (place.start("one", &["--shared"]), place.start("two", &["--shared"]));
    let readers = place.token(&one).max(place.token(&two));
    let writer = place.start("writer", &["--write"]);
    place.wait_for_waiters(1);
    let late = place.start("late", &["--shared"]);
    place.wait_for_waiters(2);

    let lock = place.lock();
    assert_eq!((lock["mode"].as_str(), lock["holders"].as_array().unwrap().len()), (Some("rw"), 2), "{lock}");
    assert_eq!((&lock["holders"][0]["mode"], &lock["waiters"][0]["mode"]), (&"read".into(), &"write".into()));
    let listed = text(&place.polylatch(&["ls"]).stdout);
    assert!(listed.contains("MODE") && listed.contains("read") && listed.contains("+1"), "{listed}");
    let shown = text(&place.polylatch(&["show", "x"]).stdout);
    for part in
        ["Held for reading by", "and by 1 other", "reading, beside other readers", "\"writer\" to write"]
    {
        assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
    }
    wait_until("the writer to be told why it waits", PATIENCE, || {
        let said = place.said("writer");
        said.contains("held for reading by") && said.contains("you are next")
    });

    place.end(one);
    assert!(!place.runs("writer") && !place.runs("late"));
    place.end(two);
    let wrote = place.token(&writer);
    assert!(wrote > readers && !place.runs("late"));
    place.end(writer);
    assert!(place.token(&late) > wrote);
    place.end(late);
}

#[test]
fn permits_are_granted_up_to_their_number() {
    let place = Place::new();
    let two = place.start("two", &["--permits", "2/3"]);
    place.token(&two);
    let one = place.start("one", &["--permits", "1/3"]);
    place.token(&one);
    let full = place.polylatch(&["run", "x", "--permits", "1/3", "--wait", "no", "--", "true"]);
    assert_eq!(full.status.code(), Some(75));
    assert!(text(&full.stderr).contains("3 of 3 permits held by"), "{}", text(&full.stderr));
    let lock = place.lock();
    assert_eq!((&lock["mode"], &lock["capacity"]), (&"semaphore".into(), &3.into()));
    assert!(text(&place.polylatch(&["ls"]).stdout).contains("3/3"));
    let all = place.start("all", &["--permits", "3/3"]);
    place.wait_for_waiters(1);
    place.end(one);
    let shown = text(&place.polylatch(&["show", "x"]).stdout);
    for part in ["2 of 3 permits held by", "the first for 3 permits", "Share     2 of 3 permits"] {
        assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
    }
    place.end(two);
    place.token(&all);
    place.end(all);
}

#[test]
fn one_of_several_holders_can_be_broken() {
    let place = Place::new();
    let (mut stuck, fine) = (place.start("stuck", &["--shared"]), place.start("fine", &["--shared"]));
    let token = place.token(&stuck).to_string();
    place.token(&fine);
    let broken = place.polylatch(&["break", "x", "--token", &token, "--reason", "stuck", "--yes"]);
    assert!(text(&broken.stdout).contains("Other clients still hold it."), "{}", text(&broken.stdout));
    let status = wait_for("the run to end", PATIENCE, || stuck.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(76), "{}", place.said("stuck"));
    place.end(fine);
}

#[test]
fn a_name_has_one_kind_at_a_time() {
    let place = Place::new();
    for (how, others, part) in [
        (&[][..], &[&["--shared"][..], &["--write"], &["--permits", "1/2"]][..], "is in use as a mutex"),
        (&["--shared"], &[&[][..], &["--permits", "1/2"]], "is in use as a read-write lock"),
        (&["--permits", "1/2"], &[&[][..], &["--permits", "1/3"]], "is in use as a semaphore of 2 permits"),
    ] {
        let holder = place.start("holder", how);
        place.token(&holder);
        for other in others {
            for wait in ["no", "forever"] {
                let args = [&["run", "x", "--wait", wait], *other, &["--", "touch", "started"]].concat();
                let output = place.polylatch(&args);
                let said = text(&output.stderr);
                assert_eq!(output.status.code(), Some(69), "{args:?}: {said}");
                assert!(said.contains(part), "{args:?}: {said}");
            }
        }
        place.end(holder);
        fs::remove_file(place.dir.join("holder.up")).unwrap();
        fs::remove_file(place.dir.join("holder.go")).unwrap();
    }
    assert!(!place.dir.join("started").exists());
}

#[test]
fn wrong_numbers_are_told_before_anything_is_done() {
    let place = Place::new();
    for (number, part) in [
        ("0/5", "has 5 permits; request 1 to 5"),
        ("6/5", "has 5 permits; request 1 to 5"),
        ("1/0", "1 to 1000 permits"),
        ("5", "write it like 2/5"),
        ("-1/5", ""),
    ] {
        let output = place.polylatch(&["run", "x", "--permits", number, "--", "true"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{number}: {said}");
        assert!(said.contains(part), "{number}: {said}");
    }
    assert!(!place.dir.join("locks.db").exists());
}
