//! A private folder that is removed with its value.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A folder of a process that is gone is removed when it is this old. Until then it may belong to a container that shares the
/// temporary folder, whose processes are not seen here.
const OLD: Duration = Duration::from_secs(2 * 3600);

/// A new folder under the system's temporary folder, readable by this user only.
///
/// The path is short on purpose: a unix socket's path may have about 100 bytes.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Creates the folder; panics when the system refuses.
    #[track_caller]
    pub fn new() -> TempDir {
        match TempDir::try_new() {
            Ok(dir) => dir,
            Err(error) => panic!("no temporary folder: {error}"),
        }
    }

    /// Creates the folder.
    pub fn try_new() -> io::Result<TempDir> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(&std::env::temp_dir()));
        loop {
            // Process, counter and time together: process ids repeat across containers that share
            // one temporary folder.
            let path = std::env::temp_dir().join(format!(
                "pl-{:x}-{:x}-{:x}",
                std::process::id(),
                COUNTER.fetch_add(1, Ordering::Relaxed),
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos()),
            ));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(TempDir { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Default for TempDir {
    fn default() -> Self {
        TempDir::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A leftover folder is untidy; a panic here would hide the test's own failure.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what tests that were killed have left: a database's folder has 250 MB, and some hundred of them fill a disk.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(process_of) else { continue };
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let is_old = modified
            .is_ok_and(|modified| SystemTime::now().duration_since(modified).is_ok_and(|age| age > OLD));
        if is_old && !Path::new(&format!("/proc/{pid}")).exists() {
            // Another user's folder stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process that made a folder of this name, if [`TempDir`] names folders so.
fn process_of(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix("pl-")?.split('-').map(|part| u32::from_str_radix(part, 16));
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(Ok(pid)), Some(Ok(_)), Some(Ok(_)), None) => Some(pid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_folders_of_processes_that_are_gone_are_swept() {
        let within = TempDir::new();
        // Larger than any process number of Linux.
        let gone = "7fffffff";
        let here = format!("{:x}", std::process::id());
        let old = SystemTime::now() - 2 * OLD;
        let make = |name: String, is_old: bool| {
            let path = within.join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "content").unwrap();
            if is_old {
                fs::File::open(&path).unwrap().set_modified(old).unwrap();
            }
            path
        };
        let swept = make(format!("pl-{gone}-0-1"), true);
        let kept = [
            make(format!("pl-{gone}-0-2"), false),
            make(format!("pl-{here}-0-3"), true),
            make(format!("pl-{gone}-0"), true),
            make("pl-ledger-12".into(), true),
            make(format!("another-{gone}-0-1"), true),
        ];
        sweep(within.path());
        assert!(!swept.exists());
        for path in kept {
            assert!(path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn the_folder_goes_with_its_value() {
        let dir = TempDir::new();
        let path = dir.path().to_owned();
        fs::write(dir.join("file"), "content").expect("the folder is writable");
        assert!(path.is_dir());
        drop(dir);
        assert!(!path.exists());
    }
}
