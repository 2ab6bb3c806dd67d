//! Waiting at a socket without the event queue of a runtime.
//!
//! tokio learns from its event queue that a socket has become readable, and refuses to read before.
//! A thread in a blocking call waits at the socket itself, so it knows earlier: [`Waitable`] then
//! reads directly.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A second handle of a stream's socket.
pub(crate) struct Socket {
    #[cfg(unix)]
    handle: std::os::fd::OwnedFd,
    #[cfg(unix)]
    readable: std::sync::atomic::AtomicBool,
}

#[cfg(unix)]
mod waiting {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{RecvFlags, recv};

    use super::*;

    /// Makes a stream at whose socket a thread can wait.
    pub(crate) fn waitable<S: AsFd>(stream: S) -> (Waitable<S>, Option<Arc<Socket>>) {
        let socket = stream
            .as_fd()
            .try_clone_to_owned()
            .ok()
            .map(|handle| Arc::new(Socket { handle, readable: AtomicBool::new(false) }));
        (Waitable { stream, socket: socket.clone() }, socket)
    }

    impl Socket {
        /// Blocks this thread until there is something to read, at most `limit`. Afterwards one read
        /// of the stream goes to the socket directly.
        pub(crate) fn wait_readable(&self, limit: Duration) -> bool {
            let limit = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
            let mut sockets = [PollFd::new(&self.handle, PollFlags::IN)];
            let readable = poll(&mut sockets, Some(&limit)).is_ok_and(|count| count > 0);
            self.readable.store(readable, Ordering::Release);
            readable
        }

        /// Reads if a wait has just found something to read.
        pub(super) fn read(&self, buffer: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
            if !self.readable.swap(false, Ordering::Acquire) {
                return None;
            }
            match recv(&self.handle, buffer.initialize_unfilled(), RecvFlags::DONTWAIT) {
                Ok((count, _)) => {
                    buffer.advance(count);
                    Some(Ok(()))
                }
                // Somebody else has read it meanwhile.
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => None,
                Err(error) => Some(Err(error.into())),
            }
        }
    }
}

#[cfg(not(unix))]
mod waiting {
    use super::*;

    /// Elsewhere threads wait for their runtime.
    pub(crate) fn waitable<S>(stream: S) -> (Waitable<S>, Option<Arc<Socket>>) {
        (Waitable { stream, socket: None }, None)
    }

    impl Socket {
        pub(crate) fn wait_readable(&self, _: Duration) -> bool {
            false
        }

        pub(super) fn read(&self, _: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
            None
        }
    }
}

pub(crate) use waiting::waitable;

/// A stream that can also be read directly, after a wait at its socket.
pub(crate) struct Waitable<S> {
    stream: S,
    socket: Option<Arc<Socket>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Waitable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(read) = self.socket.as_ref().and_then(|socket| socket.read(buffer)) {
            return Poll::Ready(read);
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Waitable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
