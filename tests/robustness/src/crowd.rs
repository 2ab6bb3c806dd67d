//! Long lines.

use std::time::Instant;

use crate::look::wait_for_crowd;
use crate::process::{SOON, Worker};
use crate::size;
use crate::stage::Stage;

/// A holder, and processes whose threads stand in line behind it.
#[derive(Debug)]
pub struct Crowd<'stage> {
    stage: &'stage Stage,
    holder: Worker,
    processes: Vec<Worker>,
}

impl<'stage> Crowd<'stage> {
    #[track_caller]
    pub fn of(stage: &'stage Stage, processes: usize) -> Self {
        let holder = stage.worker("holder", "");
        let processes = (0..processes).map(|index| stage.worker(&format!("p{index}"), "")).collect();
        Self { stage, holder, processes }
    }

    /// The holder holds, and so many threads of every process stand in line. Returns the labels in
    /// the order of the line.
    #[track_caller]
    pub fn line_up(&mut self, threads: usize) -> Vec<String> {
        self.holder.order("acquire 0 holder");
        let _ = self.holder.entered(0, SOON);
        let mut line = Vec::new();
        for (index, process) in self.processes.iter_mut().enumerate() {
            process.order(&format!("queue 0 {threads} p{index}-"));
            // One process after the other: whoever came before must still stand before.
            let longer = wait_for_crowd(&self.stage.client, 0, line.len() + threads);
            assert!(longer.starts_with(&line), "{longer:?} does not begin with {line:?}");
            line = longer;
        }
        line
    }

    /// The holder leaves, and everybody passes through. Returns the labels in the order of tokens.
    #[track_caller]
    pub fn pass(&mut self, threads: usize) -> Vec<String> {
        self.holder.order("leave 0");
        assert_eq!(self.holder.released(), "ok");
        let mut named: Vec<_> = Vec::new();
        for process in &mut self.processes {
            named.extend((0..threads).map(|_| process.named()));
        }
        named.sort_unstable();
        named.into_iter().map(|(_, label)| label).collect()
    }

    /// The history of everybody is good; in it, tokens order entries by time.
    #[track_caller]
    pub fn judge(self) {
        self.stage.judge(std::iter::once(self.holder).chain(self.processes));
    }
}

/// Fifty waiters of five processes enter in the order of the line, again and again.
#[track_caller]
pub fn fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue(stage: &Stage, rounds: u64) {
    const THREADS: usize = 10;
    let rounds = size("POLYLATCH_ROBUSTNESS_ROUNDS", rounds);
    let mut crowd = Crowd::of(stage, 5);
    let started = Instant::now();
    for round in 0..rounds {
        let line = crowd.line_up(THREADS);
        let entered = crowd.pass(THREADS);
        assert_eq!(entered, line, "round {round}: entered in another order than the line was");
    }
    println!("{rounds} rounds of 50 waiters in {:?}, all in order", started.elapsed());
    crowd.judge();
}
