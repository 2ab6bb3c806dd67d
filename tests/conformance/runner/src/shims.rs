//! The shims that play, and those that have played and can play again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use polylatch_test_services::TempDir;

use crate::shim::{Shim, Target};

/// After so many runs a shim has to end, so that one that does not is found beside what it has played.
const RUNS: usize = 20;

/// Hands out shims. To start one for every run would take most of the time: some languages start slowly.
pub struct Shims {
    /// Where what they print to their errors is kept.
    logs: TempDir,
    started: AtomicUsize,
    /// By target, those that wait for their next run.
    idle: Mutex<BTreeMap<String, Vec<Shim>>>,
}

impl Shims {
    pub fn new() -> Result<Self, String> {
        let logs = TempDir::try_new().map_err(|error| error.to_string())?;
        Ok(Self { logs, started: AtomicUsize::new(0), idle: Mutex::default() })
    }

    /// One that has played before, or else a new one.
    pub fn take(&self, target: &Target) -> Result<Shim, String> {
        let idle = self.idle().get_mut(&target.name).and_then(Vec::pop);
        idle.map_or_else(|| Shim::start(target, &self.log(target)), Ok)
    }

    /// For a shim of which a run has left nothing behind. One that has had enough runs ends; the error says that it did not.
    pub fn put_back(&self, mut shim: Shim) -> Result<(), String> {
        shim.runs += 1;
        if shim.runs == RUNS {
            return shim.end();
        }
        self.idle().entry(shim.target.clone()).or_default().push(shim);
        Ok(())
    }

    /// Ends all that are idle. Returns what was wrong with that.
    pub fn end(&self) -> Vec<String> {
        let idle = std::mem::take(&mut *self.idle());
        idle.into_values().flatten().filter_map(|shim| shim.end().err()).collect()
    }

    fn log(&self, target: &Target) -> PathBuf {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        self.logs.join(format!("{number}-{}.stderr", target.name))
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<Shim>>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
