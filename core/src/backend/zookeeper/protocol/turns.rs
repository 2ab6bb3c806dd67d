//! Whose turn it is, by the names of the nodes: pure.

use crate::mode::Kind;

use super::nodes::{Place, Role};

/// What a queue says of a contender in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn<'q> {
    /// It holds the lock, or is the first of a semaphore's queue.
    Enters,
    /// It is woken by the end of this node; and so many waiters are before it.
    Waits { behind: &'q Place, waiters: usize },
    /// The name is in use as another kind of lock.
    OtherKind(Kind),
}

/// The kind of lock for which such a node stands below the name itself.
pub(crate) fn kind_of(role: Role) -> Kind {
    match role {
        Role::Read | Role::Write => Kind::ReadWrite,
        _ => Kind::Mutex,
    }
}

/// How many contenders at the front hold the lock: all readers before the first writer, or one.
pub(crate) fn holders(queue: &[Place]) -> usize {
    match queue.iter().take_while(|place| place.role() == Role::Read).count() {
        0 => queue.len().min(1),
        readers => readers,
    }
}

/// The turn of the contender that stands behind these places.
///
/// A reader waits for the last writer before it, and not for the first one as Curator's does: so it wakes once, and not
/// for each of them. Everyone else waits for the place just before.
pub(crate) fn turn_behind(before: &[Place], wanted: Role) -> Turn<'_> {
    let kinds = before.iter().map(|place| kind_of(place.role()));
    if let Some(other) = kinds.into_iter().find(|kind| *kind != kind_of(wanted)) {
        return Turn::OtherKind(other);
    }
    let behind = match wanted {
        Role::Read => before.iter().rev().find(|place| place.role() == Role::Write),
        _ => before.last(),
    };
    match behind {
        None => Turn::Enters,
        Some(behind) => Turn::Waits { behind, waiters: before.len() - holders(before) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(names: &[&str]) -> Vec<Place> {
        let place = |(number, word): (usize, &&str)| Place {
            number: number as u64,
            node: format!("_c_{number}-{word}{number:010}"),
        };
        names.iter().enumerate().map(place).collect()
    }

    fn behind(turn: Turn<'_>) -> Option<(u64, usize)> {
        match turn {
            Turn::Waits { behind, waiters } => Some((behind.number, waiters)),
            Turn::Enters => None,
            Turn::OtherKind(kind) => panic!("{kind}"),
        }
    }

    #[test]
    fn readers_wait_for_the_last_writer_and_writers_for_the_place_before() {
        let all = queue(&["__READ__", "__READ__", "__WRIT__", "__READ__", "__WRIT__", "__READ__"]);
        let turns: Vec<_> =
            (0..all.len()).map(|at| behind(turn_behind(&all[..at], all[at].role()))).collect();
        assert_eq!(turns, [None, None, Some((1, 0)), Some((2, 1)), Some((3, 2)), Some((4, 3))]);
        assert_eq!(holders(&all), 2);
        let all = queue(&["__WRIT__", "__READ__", "__WRIT__"]);
        assert_eq!(behind(turn_behind(&all[..1], Role::Read)), Some((0, 0)));
        assert_eq!(behind(turn_behind(&all[..2], Role::Write)), Some((1, 1)));
        assert_eq!(holders(&all), 1);
        assert_eq!(holders(&[]), 0);
    }

    #[test]
    fn a_mutex_is_in_order_and_kinds_do_not_mix() {
        let locks = queue(&["lock-", "__lock__", "lock-"]);
        assert_eq!(behind(turn_behind(&locks, Role::Lock)), Some((2, 2)));
        assert_eq!(turn_behind(&locks, Role::Read), Turn::OtherKind(Kind::Mutex));
        let readers = queue(&["__READ__"]);
        assert_eq!(turn_behind(&readers, Role::Lock), Turn::OtherKind(Kind::ReadWrite));
        assert_eq!(turn_behind(&[], Role::Lock), Turn::Enters);
    }
}
