//! Where everything stands: `CHROOT/PREFIX/NAME/_c_UUID-lock-NUMBER` for a contender, as Curator has it
//! (`InterProcessMutex`, `InterProcessReadWriteLock`, `InterProcessSemaphoreV2`, `ProtectedUtils`).
//!
//! The contenders of a semaphore queue in `NAME/locks`, by nodes of a mutex. The first one of them creates its permits in
//! `NAME/leases`.
//!
//! A name is one part of the path: `/` is `%2F` and `%` is `%25` in it, and so are characters that ZooKeeper refuses.
//! Parts that begin with a dot are ours, so a name that does begins with `%2E`.

use std::fmt::Write;

use crate::mode::Mode;

/// Longest prefix, in bytes.
const MAX_PREFIX_BYTES: usize = 128;

/// Digits that a server appends to the name of a sequential node (`%010d`).
const DIGITS: usize = 10;

/// The nodes of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// Empty, or with a slash at its beginning.
    chroot: String,
    root: String,
}

/// The folders of a semaphore: its queue, and its permits.
pub(crate) const LOCKS: &str = "locks";
pub(crate) const LEASES: &str = "leases";

/// A node that contends for a lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The order of the queue.
    pub number: u64,
    pub node: String,
}

/// What a node stands for, which its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A mutex, or a place in the queue of a semaphore. Nodes of other recipes count as such.
    Lock,
    Read,
    Write,
    Permit,
}

impl Role {
    /// Of the node with which a contender of this mode queues.
    pub(crate) fn of(mode: Mode) -> Self {
        match mode {
            Mode::Mutex | Mode::Permits { .. } => Self::Lock,
            Mode::Read => Self::Read,
            Mode::Write => Self::Write,
        }
    }

    /// What stands before the number.
    fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock-",
            Self::Read => "__READ__",
            Self::Write => "__WRIT__",
            Self::Permit => "lease-",
        }
    }
}

impl Place {
    pub(crate) fn role(&self) -> Role {
        let (word, _) = self.node.split_at(self.node.len() - DIGITS);
        let is = |role: Role| word.ends_with(role.word());
        [Role::Read, Role::Write, Role::Permit].into_iter().find(|role| is(*role)).unwrap_or(Role::Lock)
    }

    /// What the nodes of one contender have in common: everything before the last word.
    pub(crate) fn owner(&self) -> &str {
        let (word, _) = self.node.split_at(self.node.len() - DIGITS);
        word.strip_suffix(self.role().word()).unwrap_or(word)
    }
}

impl Nodes {
    /// Errors: a sentence with the rule.
    pub(crate) fn new(chroot: &str, prefix: &str) -> Result<Self, String> {
        let is_path = |path: &str| path.split('/').all(is_part);
        if prefix.len() > MAX_PREFIX_BYTES || !is_path(prefix) {
            return Err(format!(
                "the prefix must have 1 to {MAX_PREFIX_BYTES} bytes, in parts with one slash between them that are not . \
                 or .. and have no control characters"
            ));
        }
        if !chroot.is_empty() && !is_path(chroot) {
            return Err("the path of the URL (the chroot) needs parts with one slash between them that are not . or .. \
                        and have no control characters"
                .into());
        }
        if chroot.is_empty() && (prefix == "zookeeper" || prefix.starts_with("zookeeper/")) {
            return Err("the prefix \"zookeeper\" belongs to ZooKeeper itself; use another one".into());
        }
        let chroot = if chroot.is_empty() { String::new() } else { format!("/{chroot}") };
        Ok(Self { root: format!("{chroot}/{prefix}"), chroot })
    }

    /// The node below which everything is, and which exists before.
    pub(crate) fn chroot(&self) -> &str {
        if self.chroot.is_empty() { "/" } else { &self.chroot }
    }

    /// The folder of everything. It is created when it is needed.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The folders from below the chroot to this node's parent, in the order in which they are created.
    pub(crate) fn folders_above<'p>(&self, path: &'p str) -> Vec<&'p str> {
        let ends = path.match_indices('/').map(|(at, _)| at);
        ends.filter(|at| *at > self.chroot.len()).map(|at| &path[..at]).collect()
    }

    /// The folder of a lock.
    pub(crate) fn lock(&self, name: &str) -> String {
        format!("{}/{}", self.root, encoded(name))
    }

    /// The folder in which its contenders queue.
    pub(crate) fn queue(&self, name: &str, mode: Mode) -> String {
        match mode {
            Mode::Permits { .. } => format!("{}/{LOCKS}", self.lock(name)),
            _ => self.lock(name),
        }
    }

    /// The folder of a semaphore's permits.
    pub(crate) fn leases(&self, name: &str) -> String {
        format!("{}/{LEASES}", self.lock(name))
    }

    /// Whether this folder is a lock's own, which the servers remove when it is empty.
    pub(crate) fn is_of_lock(&self, folder: &str) -> bool {
        folder.len() > self.root.len()
    }

    pub(crate) fn clients(&self) -> String {
        format!("{}/.clients", self.root)
    }

    pub(crate) fn broken(&self) -> String {
        format!("{}/.broken", self.root)
    }

    /// One broken lease; later ones sort behind.
    pub(crate) fn broken_at(&self, at_ms: u64, fence: u64) -> String {
        format!("{}/{at_ms:020}-{fence}", self.broken())
    }

    /// A node that never exists: to delete it asks a majority, and changes nothing.
    pub(crate) fn nothing(&self) -> String {
        format!("{}/.nothing", self.root)
    }
}

/// What the name of a contender begins with: protected creation finds its node again by that.
pub(crate) fn own(id: u128) -> String {
    let hex = format!("{id:032x}");
    format!("_c_{}-{}-{}-{}-{}-", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The name of a contender's node, without its number.
pub(crate) fn without_number(id: u128, role: Role) -> String {
    format!("{}{}", own(id), role.word())
}

/// The name of a contender's node that takes over a place in the queue.
pub(crate) fn with_number(id: u128, role: Role, number: u64) -> String {
    format!("{}{number:010}", without_number(id, role))
}

/// The contenders among the children of a lock, first the holder. Any sequential node counts, such as those of kazoo
/// (`__lock__`): to wait for one too many is safe.
///
/// `None` if the numbers of the lock have passed the largest one: the next ones are negative, and in no order with these.
pub(crate) fn queue(children: Vec<String>) -> Option<Vec<Place>> {
    let place = |node: String| {
        let (_, digits) = node.split_at_checked(node.len().checked_sub(DIGITS)?)?;
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
        Some(Place { number, node })
    };
    let mut queue: Vec<_> = children.into_iter().filter_map(place).collect();
    queue.sort_unstable();
    // The last ten digits of -2147483648, which comes after 2147483647.
    queue.last().is_none_or(|last| last.number <= i32::MAX as u64).then_some(queue)
}

/// The name of the lock whose folder has this name. `None` for what is no lock.
pub(crate) fn name_of(folder: &str) -> Option<String> {
    let name = percent_encoding::percent_decode_str(folder).decode_utf8().ok()?;
    // Only what we write ourselves: `a%62` is no other spelling of `ab`.
    (encoded(&name) == folder).then(|| name.into_owned())
}

fn is_part(part: &str) -> bool {
    !part.is_empty() && part != "." && part != ".." && !part.chars().any(is_refused)
}

/// Characters that ZooKeeper takes in no path (`PathUtils.validatePath`).
fn is_refused(character: char) -> bool {
    // Java's strings have two surrogates for each character from U+10000 on, and they are refused.
    matches!(character, '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

fn encoded(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, character) in name.char_indices() {
        let is_own = character == '.' && at == 0;
        if is_own || matches!(character, '/' | '%') || is_refused(character) {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_apart_and_come_back() {
        let nodes = Nodes::new("apps/shop", "p/q").unwrap();
        assert_eq!((nodes.chroot(), nodes.root()), ("/apps/shop", "/apps/shop/p/q"));
        for (name, folder) in [
            ("a", "a"),
            ("a/b", "a%2Fb"),
            ("a%2Fb", "a%252Fb"),
            ("..", "%2E."),
            (".clients", "%2Eclients"),
            ("Größe 🔒", "Größe %F0%9F%94%92"),
            ("\u{e000}", "%EE%80%80"),
        ] {
            assert_eq!(nodes.lock(name), format!("/apps/shop/p/q/{folder}"));
            assert_eq!(name_of(folder).as_deref(), Some(name));
        }
        for folder in [".clients", "a%62", "%zz"] {
            assert_eq!(name_of(folder), None, "{folder}");
        }
        let path = format!("{}/x", nodes.leases("a"));
        assert_eq!(
            nodes.folders_above(&path),
            ["/apps/shop/p", "/apps/shop/p/q", "/apps/shop/p/q/a", "/apps/shop/p/q/a/leases"],
            "not the chroot: that exists or the URL is wrong"
        );
        assert!(nodes.is_of_lock("/apps/shop/p/q/a") && !nodes.is_of_lock("/apps/shop/p/q"));
        assert_eq!(Nodes::new("", "p").unwrap().folders_above("/p/a/x"), ["/p", "/p/a"]);
    }

    #[test]
    fn a_contender_has_the_name_of_curators() {
        let id = 0x1234 << 64 | 7;
        let own = "_c_00000000-0000-1234-0000-000000000007-";
        for (role, name) in [
            (Role::Lock, "lock-0000000012"),
            (Role::Read, "__READ__0000000012"),
            (Role::Write, "__WRIT__0000000012"),
            (Role::Permit, "lease-0000000012"),
        ] {
            let place = Place { number: 12, node: with_number(id, role, 12) };
            assert_eq!(place.node, format!("{own}{name}"));
            assert_eq!((place.role(), place.owner()), (role, own));
        }
        let kazoo = Place { number: 1, node: "ffff__rlock__0000000001".into() };
        assert_eq!(kazoo.role(), Role::Lock);
    }

    #[test]
    fn the_queue_is_in_the_order_of_the_numbers_of_all_recipes() {
        let children = [
            "_c_b-lock-0000000007",
            "ffff__lock__0000000006",
            "_c_a-lock-0000000010",
            "_c_z-__READ__0000000009",
            "data",
            "lock-00000x0001",
            "é",
        ];
        let queue = super::queue(children.map(str::to_owned).to_vec()).unwrap();
        assert_eq!(queue.iter().map(|place| place.number).collect::<Vec<_>>(), [6, 7, 9, 10]);
        assert_eq!(queue[3].node, "_c_a-lock-0000000010");
        let passed = ["_c_a-lock--2147483648", "_c_b-lock-2147483647"].map(str::to_owned);
        assert_eq!(super::queue(passed.to_vec()), None);
    }

    #[test]
    fn paths_that_zookeeper_refuses_are_refused_here() {
        for (chroot, prefix) in
            [("", ""), ("", "a//b"), ("", "/a"), ("a/", "b"), ("..", "b"), ("", "a\nb"), ("", "zookeeper")]
        {
            assert!(Nodes::new(chroot, prefix).is_err(), "{chroot:?} {prefix:?}");
        }
        assert!(Nodes::new("x", "zookeeper").is_ok());
    }
}
