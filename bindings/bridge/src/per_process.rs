//! One value for each process that asks.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::process::Process;

/// A value that every process makes for itself. A forked child begins without one: its parent's may be locked there for
/// ever. What a child has replaced is leaked there.
pub struct PerProcess<T>(AtomicPtr<(Process, T)>);

// SAFETY: it hands out `&T` on every thread, and drops the `T` on the last one.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for PerProcess<T> {}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self(AtomicPtr::default())
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

impl<T> PerProcess<T> {
    /// Returns the value of this process if there is one.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: what it points to is freed by `drop` alone.
        let (home, value) = unsafe { self.0.load(Ordering::Acquire).as_ref() }?;
        home.is_this().then_some(value)
    }

    /// Returns the value of this process; makes it first if there is none.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let inherited = self.0.load(Ordering::Acquire);
        let fresh = Box::into_raw(Box::new((Process::this(), make())));
        let swapped = self.0.compare_exchange(inherited, fresh, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() {
            // SAFETY: it was made above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(fresh) });
        }
        self.get().expect("this process has made one")
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let present = std::mem::replace(self.0.get_mut(), ptr::null_mut());
        // SAFETY: made by `get_or_make`, and nothing else can reach it any more.
        if unsafe { present.as_ref() }.is_some_and(|(home, _)| home.is_this()) {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(present) });
        }
    }
}
