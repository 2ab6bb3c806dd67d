//! The demo's throw-away folder, and the process that outlives the demo to remove it.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossterm::terminal::LeaveAlternateScreen;
use crossterm::{cursor, execute};
use rustix::process::{Pid, test_kill_process};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::{LOCKS, WORKER, WorkerArgs};
use crate::cli::exit;
use crate::cli::run::child::ignore_terminal_stops;
use crate::cli::store::{Failure, Store};
use crate::host::ThisHost;
use crate::model::{HostFacts, Process};

/// What folder names, and lock names in a store of the user's, begin with.
const MARK: &str = "polylatch-demo-";

/// The database with what SQLite keeps beside it, and the ledger's socket: nothing else is removed.
const FILES: [&str; 2] = ["locks.db", "ledger.sock"];

/// A socket's path may have about a hundred bytes.
const LONGEST_FOLDER: usize = 80;

/// What the cleaner is told of the terminal; every other line is the number of a process.
const SCREEN_ON: &str = "screen on";
const SCREEN_OFF: &str = "screen off";

/// How long the cleaner waits for workers to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// The folder and its cleaner.
#[derive(Debug)]
pub(crate) struct Place {
    folder: PathBuf,
    /// What lock names begin with; empty in a store of our own.
    pub(crate) prefix: String,
    /// The store.
    pub(crate) url: String,
    cleaner: Child,
    /// Closed by the end of this process, however it ends.
    orders: Option<ChildStdin>,
}

impl Place {
    /// Makes the folder and starts the cleaner, so that from here on nothing is left behind.
    pub(crate) fn make(url: Option<&str>) -> io::Result<Self> {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        let mark = format!("{MARK}{:x}-{nanos:x}", std::process::id());
        let mut folder = std::env::temp_dir();
        if folder.as_os_str().len() + mark.len() > LONGEST_FOLDER {
            folder = "/tmp".into();
        }
        let folder = folder.join(&mark);
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let prefix = url.map(|_| format!("{mark}/")).unwrap_or_default();
        // A waiter that says nothing for 3.5 polls is skipped: soon enough to be seen.
        let url = url.map_or_else(
            || {
                let path = folder.join(FILES[0]);
                let path =
                    path.to_str().ok_or_else(|| io::Error::other("the temporary folder is not UTF-8"))?;
                Ok::<_, io::Error>(format!(
                    "sqlite:{}?poll=300ms",
                    path.replace('%', "%25").replace('?', "%3F")
                ))
            },
            |url| Ok(url.to_owned()),
        )?;
        // For a terminal that is left in a special state; a pipe would only be kept open.
        let output = if io::stdout().is_terminal() { Stdio::inherit() } else { Stdio::null() };
        let started = helper(&folder, &prefix, &url).stdin(Stdio::piped()).stdout(output).spawn();
        let mut cleaner = match started {
            Ok(cleaner) => cleaner,
            Err(error) => {
                remove(&folder);
                return Err(error);
            }
        };
        let orders = cleaner.stdin.take();
        Ok(Self { folder, prefix, url, cleaner, orders })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Tells the cleaner of a process that must be gone before the folder can go.
    pub(crate) fn expect_the_end_of(&mut self, pid: u32) {
        self.tell(&pid.to_string());
    }

    /// Tells the cleaner whether the terminal is in its special state.
    pub(super) fn expect_the_screen(&mut self, on: bool) {
        self.tell(if on { SCREEN_ON } else { SCREEN_OFF });
    }

    fn tell(&mut self, line: &str) {
        if let Some(orders) = &mut self.orders {
            // Without a cleaner this process cleans up alone.
            let _ = writeln!(orders, "{line}");
        }
    }

    /// Has everything removed, and waits for it.
    pub(crate) fn clean(mut self) {
        drop(self.orders.take());
        let end = Instant::now() + PATIENCE * 2;
        while Instant::now() < end && matches!(self.cleaner.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Somebody may have killed the cleaner.
        let _ = self.cleaner.kill();
        let _ = self.cleaner.wait();
        remove(&self.folder);
    }
}

/// This program as a part of the demo: out of reach of the terminal's signals, silent.
pub(super) fn helper(folder: &Path, prefix: &str, url: &str) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| "polylatch".into());
    let mut command = Command::new(program);
    command.arg(WORKER).arg("--folder").arg(folder).args(["--prefix", prefix]);
    // Not an argument: everybody can read those, and the URL may hold a password.
    command.env("POLYLATCH_URL", url).process_group(0).stderr(Stdio::null());
    command
}

/// The cleaner: waits for the end of the demo and of its workers, then removes what they left.
pub(super) async fn clean(args: &WorkerArgs) -> Result<u8, Failure> {
    let named =
        args.folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(MARK));
    if !named {
        return Err(Failure::new(exit::USAGE, "this is a part of polylatch demo; start that"));
    }
    // We are in the background, and a terminal stops processes there that change its state.
    ignore_terminal_stops();
    let before = tcgetattr(io::stdout()).ok();
    let (mut workers, mut screen) = (Vec::<u32>::new(), false);
    // Read to the end: that is when the demo is over.
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match line.as_str() {
            SCREEN_ON => screen = true,
            SCREEN_OFF => screen = false,
            number => workers.extend(number.parse::<u32>()),
        }
    }
    if let Some(before) = before.filter(|_| screen) {
        let _ = tcsetattr(io::stdout(), OptionalActions::Now, &before);
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
    }
    let end = Instant::now() + PATIENCE;
    let host = ThisHost::new();
    while Instant::now() < end && workers.iter().any(|pid| is_alive(&host, *pid)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if !args.prefix.is_empty() {
        // A store that does not answer any more cannot be tidied; its leases end by themselves.
        let _ = tokio::time::timeout(PATIENCE, release_all(args.url.as_deref(), &args.prefix)).await;
    }
    remove(&args.folder);
    Ok(0)
}

fn is_alive(host: &ThisHost, pid: u32) -> bool {
    match host.process(pid) {
        Process::Present { .. } => true,
        Process::Gone => false,
        Process::Unknown => {
            let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
            pid.is_some_and(|pid| test_kill_process(pid).is_ok())
        }
    }
}

/// Takes every lock of the demo once and gives it back: dead holders and waiters are gone then.
async fn release_all(url: Option<&str>, prefix: &str) -> Result<(), Failure> {
    let store = Store::open(url, Some("polylatch demo".into())).await?;
    for lock in LOCKS {
        let lock = store.client.lock(format!("{prefix}{lock}")).label("cleaning up").wait(PATIENCE);
        lock.acquire().await?.release().await?;
    }
    store.client.close().await;
    Ok(())
}

/// Removes the demo's own files, and the folder if nothing else is in it.
fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let ours =
            entry.file_name().to_str().is_some_and(|name| FILES.iter().any(|file| name.starts_with(file)));
        if ours {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}
