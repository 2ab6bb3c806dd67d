//! A wall clock that a test moves while a server runs.
//!
//! A small library, compiled with `cc` on first use and loaded before the C library, adds an offset that the
//! server shares with the test. The machine's own clock stays as it is.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use crate::TempDir;

/// The wall clock of one server. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct MovableClock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: TempDir,
    offset: File,
}

impl MovableClock {
    /// A clock that is right. Panics where there is no C compiler.
    pub fn new() -> MovableClock {
        let dir = TempDir::try_new().expect("a temporary folder");
        let path = dir.path().join("offset");
        let offset = File::create(path).expect("a file in it");
        let clock = MovableClock(Arc::new(Inner { dir, offset }));
        clock.set_offset_ms(0);
        clock
    }

    /// Lets the clock be ahead of the machine's by so much.
    pub fn set_offset_ms(&self, ms: i64) {
        let nanos = (ms * 1_000_000).to_ne_bytes();
        self.0.offset.write_all_at(&nanos, 0).expect("the file takes eight bytes");
    }

    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", library().to_owned()), ("POLYLATCH_TEST_CLOCK", self.0.dir.path().join("offset"))]
    }
}

impl Default for MovableClock {
    fn default() -> Self {
        Self::new()
    }
}

fn library() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let compile = || -> io::Result<(TempDir, PathBuf)> {
        let dir = TempDir::try_new()?;
        let (source, library) = (dir.path().join("clock.c"), dir.path().join("clock.so"));
        fs::write(&source, include_str!("clock.c"))?;
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        let output = command.output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok((dir, library))
    };
    &LIBRARY.get_or_init(|| compile().expect("cc compiles a small library")).1
}
