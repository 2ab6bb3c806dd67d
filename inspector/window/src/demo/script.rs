//! Who plays what, who stops or ends itself at which moment, and when a process is resumed or started again.

use std::time::Duration;

/// How a lock is taken.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    Alone,
    Read,
    Write,
    /// Of how many permits how many.
    Permits(u32, u32),
}

/// What one task of a process does, again and again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Habit {
    /// Takes a lock, holds it, releases it, rests. Times in milliseconds.
    Rounds { lock: &'static str, way: Way, label: &'static str, lease: u64, hold: u64, rest: u64, fate: Fate },
    /// Holds one lock and wants another, as another process does the other way round.
    Cross { first: &'static str, second: &'static str, label: &'static str },
}

/// What the process does to itself, so many milliseconds after a moment. It goes by what the process has reached: by a
/// clock of the scene, a slow machine would stop a holder that does not hold yet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    None,
    /// Stops (SIGSTOP) while it waits.
    StopsWaiting(u64),
    /// Stops while it holds.
    StopsHolding(u64),
    /// Is killed (SIGKILL) while it holds.
    DiesHolding(u64),
}

/// One process.
#[derive(Debug)]
pub(super) struct Part {
    pub name: &'static str,
    pub habits: &'static [Habit],
}

/// What happens to a process.
#[derive(Debug)]
pub(super) enum Cue {
    Continue(&'static str),
    /// Starts it if it has ended.
    Enter(&'static str),
}

const fn rounds(lock: &'static str, label: &'static str, hold: u64, rest: u64) -> Habit {
    Habit::Rounds { lock, way: Way::Alone, label, lease: 15_000, hold, rest, fate: Fate::None }
}

const fn shared(lock: &'static str, way: Way, label: &'static str, hold: u64, rest: u64) -> Habit {
    Habit::Rounds { lock, way, label, lease: 9_000, hold, rest, fate: Fate::None }
}

pub(super) const PARTS: &[Part] = &[
    Part {
        name: "web-1",
        habits: &[
            rounds("cart/88", "checkout", 1_300, 200),
            rounds("session/ann", "refresh token", 700, 2_300),
            rounds("leader/scheduler", "leader", 600_000, 1_000),
            shared("catalog", Way::Read, "list products", 6_000, 1_500),
        ],
    },
    Part {
        name: "web-2",
        habits: &[
            rounds("cart/88", "checkout", 1_100, 300),
            rounds("cart/91", "add item", 900, 1_400),
            shared("catalog", Way::Read, "search", 5_000, 2_500),
        ],
    },
    Part {
        name: "web-3",
        habits: &[
            rounds("cart/88", "checkout", 1_700, 400),
            rounds("cart/17", "add item", 1_500, 900),
            shared("catalog", Way::Write, "price update", 2_500, 9_000),
        ],
    },
    Part {
        name: "shipping",
        habits: &[
            Habit::Cross { first: "orders/17/ship", second: "stock/9", label: "ship order 17" },
            rounds("carrier/dhl", "book pick-up", 4_000, 3_000),
        ],
    },
    Part {
        name: "warehouse",
        habits: &[
            Habit::Cross { first: "stock/9", second: "orders/17/ship", label: "count shelf 9" },
            rounds("carrier/dhl", "load van", 3_000, 2_000),
        ],
    },
    Part {
        name: "etl-nightly",
        habits: &[Habit::Rounds {
            lock: "import/nightly",
            way: Way::Alone,
            label: "load 2.1 M rows",
            lease: 20_000,
            hold: 300_000,
            rest: 500,
            // Its lease runs on without renewals, then another process enters.
            fate: Fate::StopsHolding(4_000),
        }],
    },
    Part { name: "etl-check", habits: &[rounds("import/nightly", "verify rows", 4_000, 1_000)] },
    Part { name: "mail-1", habits: &[rounds("mail/queue", "send batch", 26_000, 100)] },
    Part {
        name: "mail-2",
        habits: &[Habit::Rounds {
            lock: "mail/queue",
            way: Way::Alone,
            label: "send batch",
            lease: 15_000,
            hold: 2_000,
            rest: 2_000,
            // The first waiter for the mail queue falls silent; the next hand-off passes it over.
            fate: Fate::StopsWaiting(2_500),
        }],
    },
    Part { name: "mail-3", habits: &[rounds("mail/queue", "bounce check", 2_000, 3_000)] },
    Part {
        name: "billing",
        habits: &[Habit::Rounds {
            lock: "invoice/2031",
            way: Way::Alone,
            label: "print invoice",
            lease: 30_000,
            hold: 300_000,
            rest: 100,
            fate: Fate::DiesHolding(11_000),
        }],
    },
    Part {
        name: "render-farm",
        habits: &[
            shared("gpu/pool", Way::Permits(5, 2), "scene 12", 7_000, 600),
            shared("gpu/pool", Way::Permits(5, 2), "scene 13", 5_000, 900),
            shared("gpu/pool", Way::Permits(5, 1), "thumbnail", 2_000, 300),
            shared("gpu/pool", Way::Permits(5, 3), "trailer", 4_000, 5_000),
        ],
    },
];

/// When the script begins again.
pub(super) const ROUND: Duration = Duration::from_secs(60);

/// What happens in a round, in order. Times in milliseconds.
pub(super) const CUES: &[(u64, Cue)] = &[
    (0, Cue::Enter("billing")),
    (36_000, Cue::Continue("mail-2")),
    (44_000, Cue::Continue("etl-nightly")),
    (45_000, Cue::Enter("billing")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cues_are_in_order_and_about_parts_of_the_play() {
        assert!(CUES.is_sorted_by_key(|(at, _)| *at));
        assert!(CUES.iter().all(|(at, _)| u128::from(*at) < ROUND.as_millis()));
        for (_, cue) in CUES {
            let (Cue::Continue(name) | Cue::Enter(name)) = cue;
            assert!(PARTS.iter().any(|part| part.name == *name), "{name}");
        }
    }
}
