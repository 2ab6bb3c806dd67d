//! A tokio runtime that runs on a host's event loop, without a thread of its own.
//!
//! What a call waits for usually comes in on a socket. If that belongs to the event queue of another
//! thread, every answer costs two wake-ups: that thread's, and then the loop's. So the sockets of a
//! loop's calls belong to a runtime whose event queue the loop itself watches: it is a descriptor
//! like any other, readable when there is something to do.
//!
//! Tokio does not hand out that descriptor, so it is looked for among the process's own, by what the
//! kernel says of it. Where that is not possible (another system than Linux, `/proc` hidden) there is
//! no such runtime, and calls use the client's own thread as before.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::{fs, io};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{fcntl_dupfd_cloexec, read, write};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

/// See the module.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// Always there until it is dropped.
    runtime: Option<Runtime>,
    /// Comes last in the queue, see [`EventQueue::turn`].
    end: Option<AsyncFd<OwnedFd>>,
    /// A second descriptor of the queue.
    queue: OwnedFd,
}

impl EventQueue {
    /// Makes one, or says that it is not possible here.
    pub(crate) fn new() -> Option<Self> {
        // Inside a runtime of the host program no other may be run.
        if Handle::try_current().is_ok() {
            return None;
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            // See `turn`.
            .max_io_events_per_tick(1)
            .event_interval(u32::MAX)
            .build()
            .ok()?;
        let end = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?;
        let queue = {
            let context = runtime.enter();
            // SAFETY: it owns the one descriptor that it registers, and closes it after letting go.
            let end = unsafe { AsyncFd::register_with_interest(end, Interest::READABLE) }.ok();
            drop(context);
            end.and_then(|end| Some((find_queue(&end).ok()??, end)))
        };
        let (queue, end) = queue?;
        let made = Self { runtime: Some(runtime), end: Some(end), queue };
        made.turn();
        // Everything was read, so it would be readable only if it were another one.
        (!is_readable(&made.queue)).then_some(made)
    }

    /// The descriptor to watch. It stays open as long as this value lives.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.queue.as_raw_fd()
    }

    /// Sockets that are opened meanwhile belong to this queue.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.runtime.as_ref().map(Runtime::enter)
    }

    /// Takes out every event and runs the tasks that they wake. Never blocks.
    ///
    /// The runtime takes one event at a time, and runs what it wakes before it takes the next. So when
    /// it takes the one that was put in last here, nothing is left to run: no task is forgotten until
    /// another event comes.
    pub(crate) fn turn(&self) {
        let (Some(runtime), Some(end)) = (&self.runtime, &self.end) else { return };
        if Handle::try_current().is_ok() || write(end, &1_u64.to_ne_bytes()).is_err() {
            return;
        }
        runtime.block_on(async {
            if let Ok(mut ready) = end.readable().await {
                ready.clear_ready();
            }
        });
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        self.end = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Finds the event queue with which this descriptor is registered.
fn find_queue(registered: &AsyncFd<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    let number = registered.as_raw_fd();
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(fd) = name.to_str().and_then(|name| name.parse::<RawFd>().ok()) else { continue };
        let is_queue = fs::read_link(format!("/proc/self/fd/{fd}"))
            .is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]");
        if is_queue && lists(fd, number)? {
            // SAFETY: it is only duplicated. If it was closed meanwhile that fails, or it is another
            // file, which the trial below finds out.
            let queue = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            let queue = fcntl_dupfd_cloexec(queue, 0)?;
            if follows(&queue, registered.get_ref())? {
                return Ok(Some(queue));
            }
        }
    }
    Ok(None)
}

/// Says whether an event queue lists a descriptor of this number.
fn lists(queue: RawFd, number: RawFd) -> io::Result<bool> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{queue}"))?;
    let registered = |line: &str| {
        let number = line.strip_prefix("tfd:")?.split_whitespace().next()?;
        number.parse::<RawFd>().ok()
    };
    Ok(info.lines().any(|line| registered(line) == Some(number)))
}

/// Says whether the queue becomes readable with this descriptor, and not before.
fn follows(queue: &OwnedFd, registered: &OwnedFd) -> io::Result<bool> {
    let before = is_readable(queue);
    write(registered, &1_u64.to_ne_bytes())?;
    let after = is_readable(queue);
    read(registered, &mut [0_u8; 8])?;
    Ok(!before && after)
}

fn is_readable(queue: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(queue, PollFlags::IN)], Some(&now)).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn its_descriptor_is_readable_when_there_is_something_to_do_and_not_afterwards() {
        let queue = EventQueue::new().expect("this system shows its descriptors");
        let count = Arc::new(AtomicUsize::new(0));
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        {
            let _context = queue.enter();
            let mut theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut byte = [0];
                while theirs.read_exact(&mut byte).await.is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                    // What one task wakes belongs to the same turn.
                    let count = Arc::clone(&count);
                    tokio::spawn(async move { count.fetch_add(1, Ordering::SeqCst) }).await.unwrap();
                    theirs.write_all(&byte).await.unwrap();
                }
            });
        }
        // A task that was spawned from outside is something to do.
        assert!(is_readable(&queue.queue));
        queue.turn();
        for round in 1..=100 {
            assert!(!is_readable(&queue.queue), "round {round}");
            io::Write::write_all(&mut ours, b"x").unwrap();
            assert!(is_readable(&queue.queue));
            queue.turn();
            assert_eq!(count.load(Ordering::SeqCst), 2 * round);
            assert!(!is_readable(&queue.queue), "after round {round}");
            // Room to write is something to do, too.
            io::Read::read_exact(&mut ours, &mut [0]).unwrap();
            queue.turn();
        }
    }

    #[test]
    fn inside_another_runtime_there_is_none() {
        let other = Builder::new_current_thread().build().unwrap();
        let _context = other.enter();
        assert!(EventQueue::new().is_none());
    }
}
