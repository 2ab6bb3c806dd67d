//! Programs that look at the store all the time. What they do must not change who may vote.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use polylatch::blocking::run_while;
use polylatch::inspect::Query;
use polylatch::{Polylatch, Result};

const PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub struct Looks {
    pub lists: u64,
    pub examinations: u64,
    pub failed: u64,
}

/// Looks until it is stopped.
#[derive(Debug)]
pub struct Lookers {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<Looks>>,
}

impl Lookers {
    /// Each look is a program of its own: it connects, reads, and ends.
    pub fn start(url: &str) -> Self {
        let (stopping, url) = (Arc::<AtomicBool>::default(), url.to_owned());
        let stopped = Arc::clone(&stopping);
        let thread = thread::spawn(move || {
            let mut looks = Looks::default();
            while !stopped.load(Ordering::SeqCst) {
                match list(&url) {
                    Ok(()) => looks.lists += 1,
                    Err(_) => looks.failed += 1,
                }
                match wait(Polylatch::builder().url(&url).examine()) {
                    Ok(_) => looks.examinations += 1,
                    Err(_) => looks.failed += 1,
                }
                thread::sleep(PAUSE);
            }
            looks
        });
        Self { stopping, thread: Some(thread) }
    }

    pub fn stop(mut self) -> Looks {
        self.stopping.store(true, Ordering::SeqCst);
        self.thread.take().expect("it is taken here only").join().expect("looking does not panic")
    }
}

impl Drop for Lookers {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
    }
}

fn list(url: &str) -> Result<()> {
    let client = wait(Polylatch::builder().url(url).connect_to_look())?;
    wait(client.inspect().list(&Query::default()))?;
    wait(async {
        client.close().await;
        Ok(())
    })
}

fn wait<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    run_while(future, || Some(Duration::from_secs(1))).expect("nothing interrupts it")
}
