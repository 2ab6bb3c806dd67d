//! Who takes part in a sequence, and when.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Contender;
use crate::backend::memory::store::Now;
use crate::clock::BootInstant;
use crate::mode::Mode;
use crate::name::LockName;
use crate::token::{ClientId, OwnerToken};

/// Chance that repeats itself.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        // xorshift64*: enough to mix operations, and the seed repeats a failure.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) const NAMES: [&str; 2] = ["orders/{1}", "ö|b"];

/// In which ways the contenders of one sequence want their locks: mutexes, read-write locks, semaphores,
/// or everything under the same names.
fn mode(seed: u64, dice: &mut Dice) -> Mode {
    let kind = if seed % 4 == 3 { dice.below(4) } else { seed % 4 };
    match kind {
        0 => Mode::Mutex,
        1 if dice.below(3) == 0 => Mode::Write,
        1 => Mode::Read,
        2 => Mode::Permits { count: 1 + dice.below(3) as u32, capacity: 4 },
        _ => Mode::Permits { count: 1, capacity: 2 },
    }
}

pub(super) fn contender(n: u64, seed: u64, client: &ClientId, dice: &mut Dice) -> Arc<Contender> {
    Arc::new(Contender {
        mode: mode(seed, dice),
        name: LockName::new(NAMES[usize::from(n >= 5)]).unwrap(),
        owner: OwnerToken::from_hex(&format!("{:032x}", 0xfeed_0000_u64 + n)).unwrap(),
        client: client.clone(),
        label: format!("job | {n}%"),
        lease: millis(1_000 + dice.below(4_000)),
        first_lease: millis(300 + dice.below(1_200)),
        barge: dice.below(8) == 0,
    })
}

pub(super) fn at(boot_ms: u64) -> Now {
    let wall_us = 1_763_000_000_000_000 + boot_ms * 1_000;
    Now { boot: BootInstant::from_nanos(boot_ms * 1_000_000), wall_us }
}
