//! `graph`, `record` and the live `watch` of the real program, on a real Redis and a real terminal.

#![cfg(unix)]

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::files;
use model::history::Limits;
use model::replay::Replay;
use model::{ConnectionId, LockState, RowKey};
use polylatch::blocking::Polylatch;
use polylatch_test_services::TempDir;
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait::wait_until;
use rustix::termios::Winsize;

const PATIENCE: Duration = Duration::from_secs(30);

fn polylatch(server: &RedisServer, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
    command.args(args).env("POLYLATCH_URL", server.url()).env("TERM", "xterm-256color");
    for inherited in ["POLYLATCH_LOCK", "NO_COLOR", "COLUMNS", "LINES", "LC_ALL", "LC_CTYPE"] {
        command.env_remove(inherited);
    }
    command.env("LANG", "C.UTF-8").stdin(Stdio::null());
    command
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that holds one lock and waits for the other one.
fn cross(server: &RedisServer, first: &str, second: &str) -> Running {
    let program = env!("CARGO_BIN_EXE_polylatch");
    let both_held =
        format!("until [ $({program} ls --json | grep -o held_for_ms | wc -l) -ge 2 ]; do :; done");
    let script = format!("{both_held}; exec {program} run {second} --wait 60s -- true");
    let mut command = polylatch(server, &["run", first, "--", "sh", "-c", &script]);
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
#[cfg(target_os = "linux")] // who started whom is looked up there
fn graph_tells_a_deadlock_and_where_to_break_it() {
    let server = RedisServer::start();
    let _one = cross(&server, "orders", "stock");
    let _two = cross(&server, "stock", "orders");
    let graph = || {
        let output = polylatch(&server, &["graph"]).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    wait_until("the ring", PATIENCE, || graph().starts_with("Deadlock 1, standing for "));
    let text = graph();
    for part in ["waits for orders, held by", "waits for stock, held by", "break here: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    wait_until("the reason", PATIENCE, || {
        let told = polylatch(&server, &["why", "orders"]).output().unwrap();
        String::from_utf8_lossy(&told.stdout).contains("Deadlock, standing for ")
    });
}

#[test]
fn record_writes_what_the_window_plays_back() {
    let (server, dir) = (RedisServer::start(), TempDir::new());
    let file = dir.join("night.polylatch");
    let mut command = polylatch(&server, &["record", file.to_str().unwrap(), "--every", "100ms"]);
    let mut recording = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("the recording to begin", PATIENCE, || file.exists());
    let client = Polylatch::connect(&server.url()).unwrap();
    let held = client.lock("orders/17").label("ship").acquire().unwrap();
    let written = |part: &str| std::fs::read_to_string(&file).unwrap().contains(part);
    wait_until("the grant to be written", PATIENCE, || written("orders/17"));
    held.release().unwrap();
    wait_until("the release to be written", PATIENCE, || written("released"));
    send("-INT", &recording);
    assert!(recording.0.wait().unwrap().success());

    let recording = files::open_recording(&file).unwrap();
    assert!(recording.remarks().is_empty(), "{:?}", recording.remarks());
    let mut replay = Replay::new(recording, Limits::default());
    let (from, to) = replay.span();
    let key = RowKey { connection: ConnectionId::new("store"), lock: "orders/17".into() };
    let was_held = (from..=to).step_by(10).any(|at| {
        replay.seek(at);
        let fleet = replay.fleet();
        fleet.find(&key).is_some_and(|place| fleet.at(place).state == LockState::Held)
    });
    assert!(was_held, "the lock is seen to be held somewhere between {from} and {to}");
}

fn send(signal: &str, to: &Running) {
    let sent = Command::new("kill").args([signal, &to.0.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// A pipe into which nothing fits until it is read: who writes there stands still.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    use rustix::fs::{OFlags, fcntl_setfl};
    let (read, mut write) = std::io::pipe().unwrap();
    fcntl_setfl(&write, OFlags::NONBLOCK).unwrap();
    while write.write(&[b'.'; 4096]).is_ok() {}
    while write.write(b".").is_ok() {}
    fcntl_setfl(&write, OFlags::empty()).unwrap();
    (read, write)
}

#[test]
fn an_interrupt_before_record_waits_for_one_ends_it_in_order() {
    let (server, dir) = (RedisServer::start(), TempDir::new());
    let file = dir.join("night.polylatch");
    let (mut read, write) = full_pipe();
    let mut command = polylatch(&server, &["record", file.to_str().unwrap(), "--every", "100ms"]);
    let mut recording = Running(command.stdout(Stdio::null()).stderr(write).spawn().unwrap());
    drop(command);
    // It stands still where it says that it records: nothing listens in a loop yet.
    wait_until("the recording to begin", PATIENCE, || file.exists());
    send("-INT", &recording);
    let mut said = String::new();
    read.read_to_string(&mut said).unwrap();
    assert_eq!(recording.0.wait().unwrap().code(), Some(0), "{}", said.trim_start_matches('.'));
    assert!(said.contains(" kB in "), "{}", said.trim_start_matches('.'));
}

#[test]
fn record_outlives_its_terminal_under_nohup() {
    let (server, dir) = (RedisServer::start(), TempDir::new());
    let file = dir.join("night.polylatch");
    let mut command = Command::new("env");
    command.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_polylatch"), "record", file.to_str().unwrap()]);
    command.args(["--every", "100ms"]).env("POLYLATCH_URL", server.url()).stdin(Stdio::null());
    let mut recording = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let written = |part: &str| std::fs::read_to_string(&file).is_ok_and(|text| text.contains(part));
    let client = Polylatch::connect(&server.url()).unwrap();
    let _before = client.lock("orders/17").acquire().unwrap();
    wait_until("the first lock to be written", PATIENCE, || written("orders/17"));
    send("-HUP", &recording);
    let _after = client.lock("stock/9").acquire().unwrap();
    wait_until("the lock after the signal to be written", PATIENCE, || written("stock/9"));
    send("-INT", &recording);
    assert!(recording.0.wait().unwrap().success());
}

/// A terminal of 100 x 30 with a program on it.
struct Terminal {
    program: Running,
    keys: std::fs::File,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
        let ours = rustix::pty::openpt(flags).unwrap();
        rustix::pty::grantpt(&ours).unwrap();
        rustix::pty::unlockpt(&ours).unwrap();
        let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap();
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&ours, size).unwrap();
        let open = || -> OwnedFd {
            let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
            rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap()
        };
        let theirs = open();
        command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
        let program = Running(command.spawn().unwrap());
        drop(command);
        let keys = std::fs::File::from(ours);
        let (mut output, shown) = (keys.try_clone().unwrap(), Arc::<Mutex<String>>::default());
        let all = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of the program is an error here.
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                all.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Self { program, keys, shown }
    }

    fn press(&mut self, keys: &str) {
        self.shown.lock().unwrap().clear();
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until a text has been drawn since the last key. What did not change is not drawn again.
    #[track_caller]
    fn until(&self, text: &str) {
        wait_until(text, PATIENCE, || self.shown.lock().unwrap().contains(text));
    }
}

#[test]
fn watch_is_a_live_view_on_a_terminal_that_takes_keys_and_leaves_it_as_it_was() {
    let server = RedisServer::start();
    let client = Polylatch::connect(&server.url()).unwrap();
    let _held = client.lock("orders/17").label("ship").acquire().unwrap();
    let mut terminal = Terminal::start(polylatch(&server, &["watch", "--every", "100ms"]));
    terminal.until("\u{1b}[?1049h");
    terminal.until("orders/17");
    terminal.press("?");
    terminal.until("filter");
    terminal.press("\u{1b}");
    let _other = client.lock("stock/9").acquire().unwrap();
    terminal.until("stock/9");
    terminal.press("q");
    terminal.until("\u{1b}[?1049l");
    assert!(terminal.program.0.wait().unwrap().success());
}

#[test]
fn watch_leaves_the_terminal_as_it_was_when_it_is_interrupted_from_outside() {
    let server = RedisServer::start();
    let mut terminal = Terminal::start(polylatch(&server, &["watch", "--every", "100ms"]));
    terminal.until("\u{1b}[?1049h");
    send("-INT", &terminal.program);
    terminal.until("\u{1b}[?1049l");
    assert!(terminal.program.0.wait().unwrap().success());
}
