//! Work that begins at its time, unless it is called off before.
//!
//! Spawning wakes the client's thread. What is mostly called off before it is due, such as the renewal of a claim on work
//! of milliseconds, costs nothing until then.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::Timers;
use crate::clock::BootInstant;
use crate::wakeups::unpoisoned;

/// How long the task sleeps at most: after a resume from suspend, what is due begins within this time.
const LOOK_AT_CLOCK_EVERY: Duration = Duration::from_millis(500);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a client has yet to begin.
#[derive(Default)]
pub(super) struct Later {
    waiting: Mutex<Waiting>,
    /// Something is due before the task looks.
    sooner: Notify,
}

#[derive(Default)]
struct Waiting {
    next_id: u64,
    works: BTreeMap<(BootInstant, u64), Work>,
    /// When the task looks next; there is none if there is no task.
    looks_at: Option<BootInstant>,
}

/// Work that was put off. Dropping this calls it off, if it has not begun.
pub(crate) struct PutOff {
    later: Arc<Later>,
    place: (BootInstant, u64),
}

impl Drop for PutOff {
    fn drop(&mut self) {
        // What it holds is dropped without the lock.
        let called_off = unpoisoned(&self.later.waiting).works.remove(&self.place);
        drop(called_off);
    }
}

impl Later {
    pub(super) fn begin_at(
        self: &Arc<Self>,
        timers: &Timers,
        at: BootInstant,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> PutOff {
        let mut waiting = unpoisoned(&self.waiting);
        waiting.next_id += 1;
        let place = (at, waiting.next_id);
        waiting.works.insert(place, Box::pin(work));
        match waiting.looks_at {
            None => {
                let first = at.min(timers.clock.now() + LOOK_AT_CLOCK_EVERY);
                waiting.looks_at = Some(first);
                timers.handle.spawn(look(Arc::clone(self), timers.clone(), first));
            }
            Some(next) if at < next => self.sooner.notify_one(),
            Some(_) => {}
        }
        PutOff { later: Arc::clone(self), place }
    }

    /// Begins what is due. Returns when to look again; `None` if nothing is left.
    fn begin_what_is_due(&self, timers: &Timers) -> Option<BootInstant> {
        let mut waiting = unpoisoned(&self.waiting);
        let now = timers.clock.now();
        let not_yet = waiting.works.split_off(&(now, u64::MAX));
        for work in std::mem::replace(&mut waiting.works, not_yet).into_values() {
            timers.handle.spawn(work);
        }
        let first = waiting.works.first_key_value().map(|((at, _), _)| *at);
        waiting.looks_at = first.map(|first| first.min(now + LOOK_AT_CLOCK_EVERY));
        waiting.looks_at
    }
}

async fn look(later: Arc<Later>, timers: Timers, mut next: BootInstant) {
    loop {
        tokio::select! {
            () = timers.sleep_until(next) => {}
            () = later.sooner.notified() => {}
        }
        match later.begin_what_is_due(&timers) {
            Some(at) => next = at,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::clock::{Clock, SystemClock};
    use crate::service::Service;

    #[test]
    fn what_is_put_off_begins_in_the_order_of_its_times_and_not_before() {
        let service = Service::start(Arc::new(SystemClock)).unwrap();
        let (tell, told) = mpsc::channel();
        let began = SystemClock.now();
        let works: Vec<_> = [600, 40, 20]
            .into_iter()
            .map(|after| {
                let tell = tell.clone();
                let work = async move { tell.send(after).unwrap() };
                service.begin_at(began + Duration::from_millis(after), work)
            })
            .collect();
        for after in [20, 40, 600] {
            assert_eq!(told.recv().unwrap(), after);
            let passed = SystemClock.now().since(began);
            assert!(passed >= Duration::from_millis(after), "{after} ms: it began after {passed:?}");
        }
        drop(works);
        drop(tell);
        told.recv().expect_err("nothing of it is left");
    }

    #[test]
    fn what_is_called_off_does_not_begin_and_is_dropped_at_once() {
        let service = Service::start(Arc::new(SystemClock)).unwrap();
        let (tell, told) = mpsc::channel::<()>();
        let work = async move { tell.send(()).unwrap() };
        let put_off = service.begin_at(SystemClock.now() + Duration::from_secs(3_600), work);
        assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(put_off);
        assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }

    #[test]
    fn a_hundred_that_are_called_off_wake_the_thread_once() {
        let service = Service::start(Arc::new(SystemClock)).unwrap();
        for _ in 0..100 {
            drop(service.begin_at(SystemClock.now() + Duration::from_secs(5), async {}));
        }
        assert_eq!(service.handle().metrics().num_alive_tasks(), 1);
    }
}
