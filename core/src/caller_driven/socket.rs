//! Sockets: waiting without the event queue of a runtime, and noticing that the other end is gone.
//!
//! tokio learns from its event queue that a socket has become readable, and refuses to read before.
//! A thread in a blocking call waits at the socket itself, so it knows earlier: [`Waitable`] then
//! reads directly.
//!
//! A firewall or NAT that drops an established flow tells neither end. [`notice_loss`] has the operating system
//! probe such a connection, and [`Heard`] lets its user see that nothing comes in any more.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// After how much idle time the operating system begins to probe a connection, and how often it does then.
#[cfg(unix)]
const PROBE_AFTER: Duration = Duration::from_secs(10);
#[cfg(unix)]
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// For how long sent bytes or probes may go unacknowledged.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);

/// Has the operating system end a connection whose other end cannot be reached any more.
///
/// Best effort: the user of the connection has time limits of its own.
pub(crate) fn notice_loss(stream: &TcpStream) {
    #[cfg(unix)]
    {
        use rustix::net::sockopt;
        let _ = sockopt::set_socket_keepalive(stream, true);
        #[cfg(not(any(target_os = "openbsd", target_os = "haiku", target_os = "nto")))]
        {
            let _ = sockopt::set_tcp_keepidle(stream, PROBE_AFTER);
            let _ = sockopt::set_tcp_keepintvl(stream, PROBE_EVERY);
            let _ = sockopt::set_tcp_keepcnt(stream, 3);
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let _ = sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED.as_millis() as u32);
    }
    #[cfg(not(unix))]
    let _ = stream;
}

/// Counts how often something was read from a stream.
#[derive(Debug, Default)]
pub(crate) struct Heard(AtomicU64);

impl Heard {
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "Consul's connections end with their request")
    )]
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

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
    use std::sync::atomic::AtomicBool;

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
        (Waitable { stream, socket: socket.clone(), heard: Arc::default() }, socket)
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
        (Waitable { stream, socket: None, heard: Arc::default() }, None)
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
    heard: Arc<Heard>,
}

impl<S> Waitable<S> {
    /// Counts what is read from this stream.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "Consul's connections end with their request")
    )]
    pub(crate) fn heard(&self) -> Arc<Heard> {
        Arc::clone(&self.heard)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Waitable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match self.socket.as_ref().and_then(|socket| socket.read(buffer)) {
            Some(read) => Poll::Ready(read),
            None => Pin::new(&mut self.stream).poll_read(context, buffer),
        };
        if buffer.filled().len() > before {
            self.heard.0.fetch_add(1, Ordering::Relaxed);
        }
        read
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
