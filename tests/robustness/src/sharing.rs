//! Which sections may last at one time, and whose token has to be larger.

use std::str::FromStr;

use polylatch::Mode;

use crate::history::{Rule, Section};
use crate::random::Random;

/// Which kind of lock a run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Mutex,
    /// Mutexes that stay with their client after most releases.
    Kept,
    ReadWrite,
    Semaphore,
}

/// One in so many sections of a read-write lock writes.
const WRITES: u64 = 4;

/// One in so many sections may want any number of a semaphore's permits; the others want one or two.
const WHOLE: u64 = 6;

impl Family {
    pub fn code(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Kept => "kept",
            Self::ReadWrite => "rw",
            Self::Semaphore => "semaphore",
        }
    }

    /// In which way a worker takes a lock next. Every lock has a capacity of its own, 2 to 5.
    pub fn mode(self, lock: u32, random: &mut Random) -> Mode {
        match self {
            Self::Mutex | Self::Kept => Mode::Mutex,
            Self::ReadWrite if random.once_in(WRITES) => Mode::Write,
            Self::ReadWrite => Mode::Read,
            Self::Semaphore => {
                let capacity = 2 + lock % 4;
                let most = if random.once_in(WHOLE) { u64::from(capacity) } else { 2 };
                Mode::Permits { count: 1 + random.below(most) as u32, capacity }
            }
        }
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(code: &str) -> Result<Self, String> {
        [Self::Mutex, Self::Kept, Self::ReadWrite, Self::Semaphore]
            .into_iter()
            .find(|family| family.code() == code)
            .ok_or_else(|| format!("no kind of lock: {code:?}"))
    }
}

/// Whether two guards of one lock cannot be valid at the same time.
pub fn exclude(one: Mode, other: Mode) -> bool {
    match (one, other) {
        (Mode::Read, Mode::Read) => false,
        (Mode::Permits { count, capacity }, Mode::Permits { count: other, .. }) => count + other > capacity,
        _ => true,
    }
}

/// The sections of one lock that last at the moment of the latest entry.
#[derive(Debug, Default)]
pub struct Lasting<'h>(Vec<&'h Section>);

impl<'h> Lasting<'h> {
    /// Lets one more enter, no earlier than those before. Returns the rule that this breaks, with the
    /// longest of those that it should not have met.
    pub fn enter(&mut self, section: &'h Section) -> Option<(Rule, &'h Section)> {
        self.0.retain(|before| section.entered < before.end());
        let longest = |met: &dyn Fn(&Section) -> bool| {
            self.0.iter().copied().filter(|before| met(before)).max_by_key(|before| before.end())
        };
        let mixed = longest(&|before| before.mode.kind() != section.mode.kind());
        let met = longest(&|before| exclude(before.mode, section.mode));
        let broken = match section.mode {
            _ if mixed.is_some() => mixed.map(|before| (Rule::KindsMixed, before)),
            Mode::Permits { count, capacity } => {
                let taken: u32 = self.0.iter().map(|before| before.mode.permits()).sum();
                let longest = longest(&|_| true).filter(|_| taken + count > capacity);
                longest.map(|before| (Rule::TooManyPermits, before))
            }
            _ => met.map(|before| (Rule::Overlap, before)),
        };
        self.0.push(section);
        broken
    }
}

/// The largest tokens of one lock so far.
///
/// Guards that do not exclude each other may be granted in one order and looked at in another, so only
/// two things are certain: whoever began after another had entered has a larger token, and so has
/// whoever entered after another that excludes it.
#[derive(Debug, Default)]
pub struct Newest<'h> {
    /// In the order of entry: who has the largest token up to there.
    of_all: Vec<(u64, &'h Section)>,
    /// Of those that exclude everybody.
    alone: Option<&'h Section>,
}

impl<'h> Newest<'h> {
    /// Lets one more enter, no earlier than those before. Returns one before with a larger token.
    pub fn enter(&mut self, section: &'h Section) -> Option<&'h Section> {
        let excludes_all =
            exclude(section.mode, section.mode) && !matches!(section.mode, Mode::Permits { .. });
        let last = self.of_all.last().map(|(_, newest)| *newest);
        let begun_after = self.of_all.partition_point(|(entered, _)| *entered < section.asked);
        let before = if excludes_all {
            last
        } else {
            let before = self.of_all[..begun_after].last().map(|(_, newest)| *newest);
            before.into_iter().chain(self.alone).max_by_key(|before| before.token)
        };
        let newer = |than: Option<&'h Section>| match than {
            Some(than) if than.token > section.token => than,
            _ => section,
        };
        self.of_all.push((section.entered, newer(last)));
        if excludes_all {
            self.alone = Some(newer(self.alone));
        }
        before.filter(|before| section.token < before.token)
    }
}
