//! What a person needs when a test failed: the seed, the faults in their order, the offending part
//! of the history, and the folder with all of it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use polylatch_test_services::TempDir;

use crate::boot_nanos;
use crate::history::{History, Violation};

/// How many violations and how many of the last faults are printed; the rest is in the folder.
const VIOLATIONS: usize = 5;
const FAULTS: usize = 40;

/// The folder of one test. It goes with its value, unless the test failed: then it stays, and is
/// told with the seed and the faults.
#[derive(Debug)]
pub struct Evidence {
    dir: Option<TempDir>,
    seed: Option<u64>,
    faults: Mutex<Vec<(u64, String)>>,
}

impl Evidence {
    pub fn new(seed: Option<u64>) -> Self {
        Self { dir: Some(TempDir::new()), seed, faults: Mutex::default() }
    }

    pub fn dir(&self) -> &Path {
        self.dir.as_ref().expect("it is taken at the end only").path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// Notes a fault, with the time at which it happens.
    pub fn fault(&self, what: &str) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push((boot_nanos(), what.to_owned()));
    }

    /// When faults began or ended, in nanoseconds of the boot clock.
    pub fn fault_times(&self) -> Vec<u64> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(at, _)| *at).collect()
    }

    /// Fails with the offending parts unless the history is good.
    #[track_caller]
    pub fn judge(&self, history: &mut History) {
        self.judge_besides(history, |_| false);
    }

    /// The same, besides what something that is documented explains; that is returned.
    #[track_caller]
    pub fn judge_besides(
        &self,
        history: &mut History,
        explained: impl Fn(&Violation) -> bool,
    ) -> Vec<Violation> {
        let (explained, violations): (Vec<_>, Vec<_>) = history.check().into_iter().partition(explained);
        self.expect_none(history, &violations);
        explained
    }

    /// Fails with these violations of a history, if there are any.
    #[track_caller]
    pub fn expect_none(&self, history: &History, violations: &[Violation]) {
        if violations.is_empty() {
            return;
        }
        let all: String = history.sections.iter().map(|section| format!("{section}\n")).collect();
        let _ = std::fs::write(self.file("all-sections"), all);
        panic!("{}", story(history, violations));
    }
}

fn story(history: &History, violations: &[Violation]) -> String {
    let mut text = format!("{} violations (times in ms of the boot clock)\n", violations.len());
    for violation in violations.iter().take(VIOLATIONS) {
        let _ = writeln!(text, "{violation}\n  around it:");
        for section in history.around(violation.lock, violation.at) {
            let _ = writeln!(text, "    {section}");
        }
    }
    text
}

impl Drop for Evidence {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seed) = self.seed {
            eprintln!("seed {seed} (POLYLATCH_ROBUSTNESS_SEED repeats it), {} faults:", faults.len());
        }
        let lines: Vec<_> =
            faults.iter().map(|(at, what)| format!("{:.3} {what}", *at as f64 / 1e6)).collect();
        for line in lines.iter().skip(lines.len().saturating_sub(FAULTS)) {
            eprintln!("  {line}");
        }
        if let Some(dir) = self.dir.take() {
            let _ = std::fs::write(dir.join("faults"), lines.join("\n"));
            eprintln!("histories and logs stay in {}", dir.path().display());
            std::mem::forget(dir);
        }
    }
}
