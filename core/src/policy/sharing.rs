//! Who may hold a lock beside whom.

use crate::mode::Mode;

/// Says whether a lock that is held in these ways can be held in one more.
///
/// Turns are kept by the line, not here: a reader that comes after a waiting writer stands behind
/// it, so that neither readers nor writers starve.
pub(crate) fn admits(held: impl IntoIterator<Item = Mode>, wanted: Mode) -> bool {
    let mut held = held.into_iter();
    match wanted {
        Mode::Mutex | Mode::Write => held.next().is_none(),
        Mode::Read => held.all(|mode| mode == Mode::Read),
        Mode::Permits { count, capacity } => {
            let taken: u64 = held.map(|mode| u64::from(mode.permits())).sum();
            taken + u64::from(count) <= u64::from(capacity)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(count: u32) -> Mode {
        Mode::Permits { count, capacity: 5 }
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        assert!(admits([], Mode::Write) && admits([], Mode::Read) && admits([], Mode::Mutex));
        assert!(admits([Mode::Read, Mode::Read], Mode::Read));
        assert!(!admits([Mode::Read], Mode::Write));
        assert!(!admits([Mode::Write], Mode::Read));
        assert!(!admits([Mode::Write], Mode::Write));
        assert!(!admits([Mode::Mutex], Mode::Mutex));
    }

    #[test]
    fn permits_add_up_to_the_capacity_and_no_further() {
        assert!(admits([permits(2), permits(2)], permits(1)));
        assert!(!admits([permits(2), permits(2)], permits(2)));
        assert!(admits([], permits(5)));
        assert!(!admits([], Mode::Permits { count: 6, capacity: 5 }));
    }
}
