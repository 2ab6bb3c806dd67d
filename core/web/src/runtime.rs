//! The one runtime that there is: the host's event loop.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;

use crate::task::{self, JoinHandle};

/// The event loop. As tokio's, it is not `Copy`.
#[derive(Debug, Clone)]
pub struct Handle(());

/// Which runtime; here they are all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id(());

/// How a runtime works; an event loop has one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuntimeFlavor {
    /// Tasks run on the thread that drives them.
    CurrentThread,
}

/// A stay in a runtime's context.
#[derive(Debug)]
pub struct EnterGuard<'a>(PhantomData<&'a ()>);

impl Handle {
    /// Returns the event loop.
    pub fn current() -> Self {
        Self(())
    }

    /// Returns the event loop; there always is one.
    pub fn try_current() -> Result<Self, Infallible> {
        Ok(Self(()))
    }

    /// Returns its identity.
    pub fn id(&self) -> Id {
        Id(())
    }

    /// Returns how it works.
    pub fn runtime_flavor(&self) -> RuntimeFlavor {
        RuntimeFlavor::CurrentThread
    }

    /// Does nothing: timers need no context here.
    pub fn enter(&self) -> EnterGuard<'_> {
        EnterGuard(PhantomData)
    }

    /// Starts a task; see [`task::spawn`].
    pub fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        task::spawn(work)
    }
}
