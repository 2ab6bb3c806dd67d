//! What belongs to this process, and what a fork has brought along.
//!
//! A forked child has copies of its parent's handles, but none of its threads: whoever asks such a
//! handle would wait for ever, and whoever drops one would close or unregister what the parent still
//! uses (an event queue is shared by both). So a handle knows the process that made it; in another
//! one it answers no and is forgotten instead of dropped.
//!
//! A language that tells of forks calls [`before_fork`] and [`after_fork_in_parent`] around each.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often this process's ancestors have forked since the first of them loaded this library.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Which process something was made in: equal only in the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// Returns this process. Cheap: one load, no system call.
    pub fn this() -> Self {
        watch_for_forks();
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Says whether this is the process that is running.
    pub fn is_this(self) -> bool {
        // A JavaScript host does not fork, and a page need not load what is said about it.
        cfg!(target_family = "wasm") || self.0 == FORKS.load(Ordering::Relaxed)
    }
}

#[cfg(unix)]
fn watch_for_forks() {
    use std::sync::Once;
    extern "C" fn in_the_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only changes an atomic number, which is allowed in a forked child. The
        // library is never unloaded while it is registered: hosts do not unload native modules, and
        // the C library drops the handlers of a library that is.
        let status = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
        // It fails for want of memory alone, at the first use of the library.
        assert_eq!(status, 0, "the C library took no fork handler");
    });
}

#[cfg(not(unix))]
fn watch_for_forks() {
    // There is no fork.
}

/// How long a fork is held up for files to be closed.
#[cfg(not(target_family = "wasm"))]
const FORK_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Closes what a child must not inherit, as far as it is not in use; see [`polylatch::fork::before`]. At most a
/// second, and nothing where no `sqlite:` store is connected to. The interpreter must be released meanwhile.
#[cfg(not(target_family = "wasm"))]
pub fn before_fork() {
    polylatch::fork::before(FORK_WITHIN);
}

/// Ends what [`before_fork`] began, in the process that has forked, also if the fork failed.
#[cfg(not(target_family = "wasm"))]
pub fn after_fork_in_parent() {
    polylatch::fork::after_in_parent();
}

/// Something that only the process that made it may use.
#[derive(Debug)]
pub struct Homed<T> {
    home: Process,
    value: ManuallyDrop<T>,
}

impl<T> Homed<T> {
    /// Binds a value to this process.
    pub fn new(value: T) -> Self {
        Self { home: Process::this(), value: ManuallyDrop::new(value) }
    }

    /// Returns the value, or `None` in a process that inherited it.
    pub fn get(&self) -> Option<&T> {
        self.home.is_this().then_some(&*self.value)
    }

    /// Takes the value out; `None`, and forgotten, in a process that inherited it.
    pub fn into_inner(self) -> Option<T> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the value is taken out once.
        this.home.is_this().then(|| unsafe { ManuallyDrop::take(&mut this.value) })
    }
}

impl<T> Drop for Homed<T> {
    fn drop(&mut self) {
        if self.home.is_this() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    struct Told<'a>(&'a AtomicU64);
    impl Drop for Told<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_child_neither_uses_nor_drops_what_it_inherited() {
        let drops = AtomicU64::new(0);
        let homed = Homed::new(Told(&drops));
        let home = Process::this();
        // SAFETY: the child only looks at what it has and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let foreign = homed.get().is_none() && !home.is_this() && Process::this() != home;
            drop(homed);
            let undropped = drops.load(Ordering::SeqCst) == 0;
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(if foreign && undropped { 0 } else { 1 }) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(homed.get().is_some());
        drop(homed);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}
