//! A private folder that is removed with its value.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

static COUNTER: AtomicU64 = AtomicU64::new(0);

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

#[cfg(test)]
mod tests {
    use super::*;

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
