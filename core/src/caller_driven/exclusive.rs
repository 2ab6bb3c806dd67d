//! A connection with one request at a time, whose I/O is done by the caller that waits for the answer.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::caller_driven::blocking;
use crate::caller_driven::socket::Socket;
use crate::wakeups::unpoisoned;

/// The side of a connection that reads and writes.
pub(crate) struct ExclusiveIo {
    /// `None` once it has ended.
    connection: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Where a thread in a blocking call waits.
    socket: Option<Arc<Socket>>,
}

impl ExclusiveIo {
    /// `connection` reads and writes; it has to be polled in the context of the runtime that opened it.
    pub(crate) fn new(
        connection: impl Future<Output = ()> + Send + 'static,
        socket: Option<Arc<Socket>>,
    ) -> Self {
        Self { connection: Some(Box::pin(connection)), socket }
    }

    /// Awaits `work` of this connection's requests, reading and writing meanwhile.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let hub = Arc::new(Hub::default());
        let waker = Waker::from(Arc::clone(&hub));
        let mut work = pin!(work);
        poll_fn(|outer| {
            hub.begin(outer.waker());
            let mut context = Context::from_waker(&waker);
            loop {
                if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
                    return Poll::Ready(done);
                }
                self.read_and_write(&mut context);
                // What was read may be what the work waits for.
                if hub.was_woken() || self.wait_at_the_socket() {
                    continue;
                }
                if hub.rest() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Does what there is to do now, as for a connection that nobody has read from for a while.
    pub(crate) fn read_and_write(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(context).is_ready()
        {
            // Dropping it fails the request that still waits.
            self.connection = None;
        }
    }

    fn wait_at_the_socket(&self) -> bool {
        let limit = blocking::at_a_socket();
        let Some(socket) = self.socket.as_ref().filter(|_| !limit.is_zero() && self.connection.is_some())
        else {
            return false;
        };
        socket.wait_readable(limit)
    }
}

/// Passes wake-ups on to the caller that waits, unless it is at work and will look.
#[derive(Default)]
struct Hub {
    woken: AtomicBool,
    at_work: AtomicBool,
    waits: Mutex<Option<Waker>>,
}

impl Hub {
    fn begin(&self, waker: &Waker) {
        self.at_work.store(true, Ordering::SeqCst);
        self.woken.store(false, Ordering::SeqCst);
        match &mut *unpoisoned(&self.waits) {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn was_woken(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    /// Whether there is nothing to do until the next wake-up, which is passed on from now.
    fn rest(&self) -> bool {
        self.at_work.store(false, Ordering::SeqCst);
        let rests = !self.woken.load(Ordering::SeqCst);
        self.at_work.store(!rests, Ordering::SeqCst);
        rests
    }
}

impl Wake for Hub {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if !self.at_work.load(Ordering::SeqCst)
            && let Some(waker) = &*unpoisoned(&self.waits)
        {
            waker.wake_by_ref();
        }
    }
}
