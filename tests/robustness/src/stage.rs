//! One store, one resource, and the workers on it.

use polylatch::blocking::Polylatch;

use crate::evidence::Evidence;
use crate::history::History;
use crate::look::wait_for_line;
use crate::process::{SOON, Worker};
use crate::resource::Resource;

/// Where a scenario with single workers takes place.
#[derive(Debug)]
pub struct Stage {
    program: &'static str,
    url: String,
    resource: Resource,
    /// Looks into the store.
    pub client: Polylatch,
    pub evidence: Evidence,
}

impl Stage {
    /// Workers are the program given; the URL of the store has no options.
    #[track_caller]
    pub fn new(program: &'static str, url: &str, evidence: Evidence) -> Self {
        let resource = Resource::start(evidence.dir());
        let client = Polylatch::connect(url).unwrap_or_else(|error| panic!("{error:?}"));
        Self { program, url: url.to_owned(), resource, client, evidence }
    }

    /// Starts a worker whose client has these options.
    #[track_caller]
    pub fn worker(&self, who: &str, options: &str) -> Worker {
        self.worker_at(who, &format!("{}?{options}", self.url))
    }

    /// Starts a worker that reaches the store by another way.
    #[track_caller]
    pub fn worker_at(&self, who: &str, url: &str) -> Worker {
        Worker::start(self.program, who, url, &self.resource, &self.evidence)
    }

    /// A holder, the worker given at the head of the line, and another one behind it.
    #[track_caller]
    pub fn lined_up(&self, mut first: Worker) -> [Worker; 3] {
        let mut holder = self.worker("holder", "");
        let mut next = self.worker("next", "");
        holder.order("acquire 0 holder");
        let _ = holder.entered(0, SOON);
        let who = first.who().to_owned();
        first.order(&format!("acquire 0 {who}"));
        wait_for_line(&self.client, 0, &[&who]);
        next.order("acquire 0 next");
        wait_for_line(&self.client, 0, &[&who, "next"]);
        [holder, first, next]
    }

    /// Ends the workers and judges what they told and what the resource saw.
    #[track_caller]
    pub fn judge(&self, workers: impl IntoIterator<Item = Worker>) {
        let mut history = History { writes: self.resource.writes(), ..History::default() };
        workers.into_iter().for_each(|worker| worker.testify(&mut history));
        self.evidence.judge(&mut history);
    }
}
