//! A demo's throw-away folder, and the process that outlives the demo to remove it.
//!
//! The command line and the window each have a demo. Both start themselves again as the cleaner, so both ask
//! [`cleaner`] first of all whether they are it.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::{HostFacts, Process};
use polylatch::Polylatch;
use rustix::process::{Pid, test_kill_process};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::child::ignore_terminal_stops;
use crate::{ThisHost, exit};

/// What the cleaner is started with: then the folder, then the locks that it tidies.
const CLEANER: &str = "demo-cleaner";

/// What folder names, and lock names in a store of the user's, begin with.
const MARK: &str = "polylatch-demo-";

/// The database with what SQLite keeps beside it, and the ledger's socket: nothing else is removed.
const FILES: [&str; 2] = ["locks.db", "ledger.sock"];

/// A socket's path may have about a hundred bytes.
const LONGEST_FOLDER: usize = 80;

/// What the cleaner receives from the terminal; every other line is the number of a process.
const SCREEN_ON: &str = "screen on";
const SCREEN_OFF: &str = "screen off";

/// Shows the cursor (DECTCEM) and leaves the alternate screen (xterm, 1049).
const NORMAL_SCREEN: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// How long the cleaner waits for workers to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// The folder and its cleaner.
#[derive(Debug)]
pub struct Place {
    folder: PathBuf,
    /// What lock names begin with; empty in a store of our own.
    pub prefix: String,
    /// The store.
    pub url: String,
    cleaner: Child,
    /// Closed by the end of this process, however it ends.
    orders: Option<ChildStdin>,
}

impl Place {
    /// Makes the folder and starts the cleaner, so that from here on nothing is left behind. In a store of the user's
    /// (`url`), `locks` are tidied in the end; their names then begin with the prefix.
    ///
    /// Errors: the folder cannot be made, or the cleaner not started.
    pub fn make(url: Option<&str>, locks: &[&str]) -> io::Result<Self> {
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
        let mut command = helper(CLEANER, &url);
        command.arg(&folder);
        if !prefix.is_empty() {
            command.args(locks.iter().map(|lock| format!("{prefix}{lock}")));
        }
        let started = command.stdin(Stdio::piped()).stdout(output).spawn();
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

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Tells the cleaner of a process that must be gone before the folder can go.
    pub fn expect_the_end_of(&mut self, pid: u32) {
        self.tell(&pid.to_string());
    }

    /// Tells the cleaner whether the terminal is in its special state.
    pub fn expect_the_screen(&mut self, on: bool) {
        self.tell(if on { SCREEN_ON } else { SCREEN_OFF });
    }

    fn tell(&mut self, line: &str) {
        if let Some(orders) = &mut self.orders {
            // Without a cleaner this process cleans up alone.
            let _ = writeln!(orders, "{line}");
        }
    }

    /// Has everything removed, and waits for it.
    pub fn clean(mut self) {
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

/// This program in another role: out of reach of the terminal's signals, silent.
pub fn helper(role: &str, url: &str) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| "polylatch".into());
    let mut command = Command::new(program);
    // Not an argument: everybody can read those, and the URL may hold a password.
    command.arg(role).env("POLYLATCH_URL", url).process_group(0).stderr(Stdio::null());
    command
}

/// Does the cleaner's work if this process was started for it: waits for the end of the demo and of its workers, then
/// removes what they left.
pub fn cleaner() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != CLEANER {
        return None;
    }
    let folder = words.next().map(PathBuf::from).unwrap_or_default();
    let locks: Vec<String> = words.filter_map(|word| word.into_string().ok()).collect();
    let named = folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(MARK));
    if !named {
        eprintln!("this is a part of the demo; start that");
        return Some(ExitCode::from(exit::USAGE));
    }
    clean_up(&folder, &locks);
    Some(ExitCode::SUCCESS)
}

fn clean_up(folder: &Path, locks: &[String]) {
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
        let _ = io::stdout().write_all(NORMAL_SCREEN).and_then(|()| io::stdout().flush());
    }
    let end = Instant::now() + PATIENCE;
    let host = ThisHost::new();
    while Instant::now() < end && workers.iter().any(|pid| is_alive(&host, *pid)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    if !locks.is_empty() {
        tidy(locks);
    }
    remove(folder);
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

/// Takes every lock of the demo once and releases it: dead holders and waiters are gone then. A store that does not
/// answer any more cannot be tidied; its leases end by themselves.
fn tidy(locks: &[String]) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let all = async {
        let client = Polylatch::builder().program("polylatch demo").connect().await?;
        for lock in locks {
            client.lock(lock).label("cleaning up").wait(PATIENCE).acquire().await?.release().await?;
        }
        client.close().await;
        Ok::<_, polylatch::Error>(())
    };
    let _ = runtime.block_on(async { tokio::time::timeout(PATIENCE, all).await });
    runtime.shutdown_background();
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
