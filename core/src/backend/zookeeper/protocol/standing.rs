//! Who holds a lock and who waits for it, by the names of all nodes: pure.

use super::nodes::{self, LEASES, LOCKS, Place, Role};
use super::turns;

/// One contender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub holds: bool,
    /// The code of its mode.
    pub mode: &'static str,
    /// Its nodes: one, or as many as it has permits.
    pub paths: Vec<String>,
}

/// All contenders of a name, the holders first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The code of the kind of lock.
    pub kind: &'static str,
    pub groups: Vec<Group>,
}

/// From the children of a lock's folder, and of its folders `locks` and `leases`.
pub(crate) fn standing(
    folder: &str,
    children: Vec<String>,
    locks: Vec<String>,
    leases: Vec<String>,
) -> Standing {
    let queue = nodes::queue(children).unwrap_or_default();
    let (locks, leases) = (nodes::queue(locks).unwrap_or_default(), nodes::queue(leases).unwrap_or_default());
    if queue.is_empty() && !(locks.is_empty() && leases.is_empty()) {
        let mut groups = permits(&format!("{folder}/{LEASES}"), &leases);
        groups.extend(locks.iter().map(|place| Group {
            holds: false,
            mode: "permits",
            paths: vec![format!("{folder}/{LOCKS}/{}", place.node)],
        }));
        return Standing { kind: "semaphore", groups };
    }
    let holders = turns::holders(&queue);
    let group = |(at, place): (usize, &Place)| Group {
        holds: at < holders,
        mode: match place.role() {
            Role::Read => "read",
            Role::Write => "write",
            _ => "mutex",
        },
        paths: vec![format!("{folder}/{}", place.node)],
    };
    let is_rw = queue.first().is_some_and(|place| matches!(place.role(), Role::Read | Role::Write));
    let kind = if is_rw { "rw" } else { "mutex" };
    Standing { kind, groups: queue.iter().enumerate().map(group).collect() }
}

/// The permits of one holder have one owner in their names.
fn permits(folder: &str, leases: &[Place]) -> Vec<Group> {
    let of_one = leases.chunk_by(|one, other| one.owner() == other.owner());
    of_one
        .map(|places| Group {
            holds: true,
            mode: "permits",
            paths: places.iter().map(|place| format!("{folder}/{}", place.node)).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(standing: &Standing) -> Vec<(bool, &'static str, usize)> {
        standing.groups.iter().map(|group| (group.holds, group.mode, group.paths.len())).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn readers_before_the_first_writer_hold() {
        let children =
            names(&["_c_b-__READ__0000000002", "_c_a-__READ__0000000001", "_c_c-__WRIT__0000000003"]);
        let rw = standing("/l", children, vec![], vec![]);
        assert_eq!(rw.kind, "rw");
        assert_eq!(shown(&rw), [(true, "read", 1), (true, "read", 1), (false, "write", 1)]);
        assert_eq!(rw.groups[0].paths, ["/l/_c_a-__READ__0000000001"]);
    }

    #[test]
    fn permits_of_one_holder_are_one_lease() {
        let leases = names(&["_c_a-lease-0000000001", "_c_a-lease-0000000002", "_c_b-lease-0000000003"]);
        let folders = names(&["locks", "leases"]);
        let semaphore = standing("/l", folders, names(&["_c_d-lock-0000000009"]), leases);
        assert_eq!(semaphore.kind, "semaphore");
        assert_eq!(shown(&semaphore), [(true, "permits", 2), (true, "permits", 1), (false, "permits", 1)]);
        assert_eq!(semaphore.groups[2].paths, ["/l/locks/_c_d-lock-0000000009"]);
        let free = standing("/l", names(&["locks", "leases"]), vec![], vec![]);
        assert_eq!((free.kind, free.groups.len()), ("mutex", 0));
    }
}
