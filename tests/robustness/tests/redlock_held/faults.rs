//! What happens to nodes.

use std::time::Duration;

use polylatch_robustness::load::{Healing, Hurt};
use polylatch_robustness::random::Random;
use polylatch_test_services::proxy::Hold;

use crate::nodes::Nodes;

/// Longest silence of a node. With 5 s between renewals and 3 s for one request, a renewed lease of 15 s
/// outlasts it.
const LONGEST: Duration = Duration::from_secs(4);

/// Of a node: what a majority is able to bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Killed, and back with what it had on disk.
    BackWithData,
    /// Killed, and back empty.
    BackEmpty,
    Emptied,
    /// Its wall clock steps by 20 to 120 s, and back later.
    ClockSteps,
    Paused,
    Slow,
    CutOff,
    Reset,
    LosesReply,
    /// A majority is killed at once.
    MajorityBackWithData,
    MajorityBackEmpty,
    MajorityEmptied,
    AllBackWithData,
    AllBackEmpty,
}

/// Kinds of faults, each with its share.
#[derive(Debug)]
pub struct Faults {
    pub what: &'static str,
    kinds: &'static [(u64, Kind)],
}

/// A minority that loses its data, its time or its connections, and a majority that restarts with its data.
pub static MINORITY: Faults = Faults {
    what: "a minority",
    kinds: &[
        (8, Kind::BackWithData),
        (8, Kind::BackEmpty),
        (5, Kind::Emptied),
        (16, Kind::ClockSteps),
        (2, Kind::Paused),
        (1, Kind::Slow),
        (2, Kind::CutOff),
        (1, Kind::Reset),
        (1, Kind::LosesReply),
        (8, Kind::MajorityBackWithData),
    ],
};

/// A majority that loses its data together. Clocks stay right, because the order of tokens rests on them then.
pub static MAJORITY: Faults = Faults {
    what: "a majority",
    kinds: &[
        (16, Kind::MajorityBackEmpty),
        (12, Kind::MajorityEmptied),
        (12, Kind::AllBackEmpty),
        (8, Kind::AllBackWithData),
        (1, Kind::BackEmpty),
        (2, Kind::Paused),
        (1, Kind::Slow),
        (2, Kind::CutOff),
        (1, Kind::Reset),
        (1, Kind::LosesReply),
    ],
};

impl Faults {
    /// A fault that the nodes are able to bear now, of these kinds: none if too many are not well. It does not wait
    /// for that, which would keep the present ones from ending.
    pub fn of<'test>(&'static self, nodes: &'test Nodes) -> Hurt<'test> {
        const TRIES: usize = 40;
        Box::new(move |random| {
            let all: u64 = self.kinds.iter().map(|(share, _)| share).sum();
            for _ in 0..TRIES {
                let mut drawn = random.below(all);
                let kind = self.kinds.iter().find(|(share, _)| {
                    let is_it = drawn < *share;
                    drawn = drawn.saturating_sub(*share);
                    is_it
                });
                let (_, kind) = kind.expect("the shares add up");
                if let Some(done) = nodes.hurt(*kind, random) {
                    return done;
                }
            }
            ("none of a node".into(), None)
        })
    }
}

fn some_time(random: &mut Random) -> Duration {
    Duration::from_millis(500 + random.below(LONGEST.as_millis() as u64 - 500))
}

impl Nodes {
    /// Does it, if a majority of the nodes is well enough.
    fn hurt<'test>(&'test self, kind: Kind, random: &mut Random) -> Option<(String, Option<Healing<'test>>)> {
        match kind {
            Kind::BackWithData | Kind::BackEmpty => self.restart(kind, random),
            Kind::MajorityBackWithData | Kind::AllBackWithData => self.restart(kind, random),
            Kind::MajorityBackEmpty | Kind::AllBackEmpty => self.restart(kind, random),
            Kind::Emptied => {
                let at = self.choose_changed(random, Duration::ZERO)?;
                self.flush(&[at]);
                Some((format!("{kind:?}: {at}"), None))
            }
            Kind::MajorityEmptied => {
                let chosen = self.choose_many(random, self.majority(), Duration::ZERO)?;
                self.flush(&chosen);
                Some((format!("{kind:?}: {chosen:?}"), None))
            }
            Kind::ClockSteps => self.step_clock(random),
            Kind::Paused => {
                let length = some_time(random);
                let at = self.choose_silent(random, length)?;
                self.servers[at].pause();
                let end: Healing<'_> = (
                    length,
                    Box::new(move || {
                        self.servers[at].resume();
                        self.are_back(&[at]);
                    }),
                );
                Some((format!("{kind:?}: {at} for {length:?}"), Some(end)))
            }
            Kind::Slow => {
                let length = some_time(random);
                let at = self.choose_silent(random, length)?;
                self.proxies[at].set_latency(Duration::from_millis(90), Duration::from_millis(90));
                let end: Healing<'_> = (
                    length,
                    Box::new(move || {
                        self.proxies[at].set_latency(Duration::ZERO, Duration::ZERO);
                        self.are_back(&[at]);
                    }),
                );
                Some((format!("{kind:?}: {at} for {length:?}"), Some(end)))
            }
            Kind::CutOff => {
                let hold = [Hold::Stall, Hold::StallReplies, Hold::Swallow][random.below(3) as usize];
                let length = some_time(random);
                let at = self.choose_silent(random, length)?;
                self.proxies[at].set_hold(hold);
                let end: Healing<'_> = (
                    length,
                    Box::new(move || {
                        self.proxies[at].set_hold(Hold::Off);
                        self.are_back(&[at]);
                    }),
                );
                Some((format!("{kind:?}: {at}, {hold:?} for {length:?}"), Some(end)))
            }
            // What is lost on the way may be a renewal: the node is behind until the next one.
            Kind::Reset => {
                let at = self.choose_silent(random, Duration::ZERO)?;
                self.proxies[at].reset_all();
                Some((format!("{kind:?}: connections of {at}"), None))
            }
            Kind::LosesReply => {
                let nth = 1 + random.below(10) as usize;
                let at = self.choose_silent(random, Duration::from_secs(5))?;
                self.proxies[at].drop_reply("EVALSHA", nth);
                Some((format!("{kind:?}: {at}"), None))
            }
        }
    }

    /// Kills nodes at once, and starts them together a moment later.
    fn restart<'test>(
        &'test self,
        kind: Kind,
        random: &mut Random,
    ) -> Option<(String, Option<Healing<'test>>)> {
        let down = Duration::from_millis(random.below(1_500));
        let chosen = match kind {
            Kind::BackWithData | Kind::BackEmpty => vec![self.choose_changed(random, down)?],
            Kind::MajorityBackWithData | Kind::MajorityBackEmpty => {
                self.choose_many(random, self.majority(), down)?
            }
            _ => self.choose_many(random, self.count(), down)?,
        };
        let is_empty = matches!(kind, Kind::BackEmpty | Kind::MajorityBackEmpty | Kind::AllBackEmpty);
        if is_empty {
            self.lose(chosen.len());
        }
        chosen.iter().for_each(|at| self.servers[*at].kill());
        let what = format!("{kind:?}: {chosen:?} after {down:?}");
        let back = move || {
            for at in &chosen {
                match is_empty {
                    true => self.servers[*at].restart_empty(),
                    false => self.servers[*at].start_again(),
                }
            }
            self.are_back(&chosen);
        };
        Some((what, Some((down, Box::new(back)))))
    }

    fn flush(&self, chosen: &[usize]) {
        self.lose(chosen.len());
        for at in chosen {
            assert!(self.servers[*at].command(&["FLUSHALL"]).is_ok());
        }
    }

    /// Steps one clock and later sets it right: before, or after the node votes again.
    fn step_clock<'test>(&'test self, random: &mut Random) -> Option<(String, Option<Healing<'test>>)> {
        let by = 20 + random.below(101) as i64;
        let by = if random.once_in(2) { by } else { -by };
        let length = match random.once_in(2) {
            true => some_time(random),
            false => Duration::from_secs(17 + random.below(9)),
        };
        let at = self.choose_changed(random, length)?;
        // Forward ends leases: now, or when the clock is set right.
        let step = move |to: i64, is_forward: bool| {
            if is_forward {
                self.lose(1);
            }
            self.clocks[at].set_offset_ms(to * 1000);
            self.are_back(&[at]);
        };
        step(by, by > 0);
        let right: Healing<'_> = (length, Box::new(move || step(0, by < 0)));
        Some((format!("ClockSteps: {at} by {by} s for {length:?}"), Some(right)))
    }
}
