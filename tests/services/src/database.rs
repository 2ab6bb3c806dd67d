//! What the programs of database servers have in common: the user as whom they run, and clients that take a script.

use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The servers refuse to run as root; Debian's `nobody`.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives a file or folder to the user as whom the server runs.
pub(crate) fn own(path: &Path) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("it is ours");
    }
}

/// Runs a program as that user, in a folder that is its own.
pub(crate) fn as_nobody(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    // The temporary folder of the tests may be one into which that user cannot write, and its home that of root.
    command.current_dir(folder).env("TMPDIR", folder);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Runs a client with this input; returns what it prints, or what it says against it.
pub(crate) fn run(mut client: Command, input: &str) -> Result<String, String> {
    let mut client = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    if let Some(mut stdin) = client.stdin.take() {
        // It may end before it has read everything; then its status says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let done = client.wait_with_output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}
