//! The scripts, with the prelude that those which grant share.

use std::sync::LazyLock;

/// One script: its text and the SHA-1 under which a server keeps it.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) sha: String,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Script({})", self.name)
    }
}

impl Script {
    pub(crate) fn new(name: &'static str, text: String) -> Self {
        let sha = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { name, text, sha }
    }
}

impl Script {
    /// Whether it extends leases and does nothing else.
    pub(crate) fn renews(&self) -> bool {
        matches!(self.name, "renew" | "shared_renew")
    }

    /// Whether its calls have waited for company already.
    pub(crate) fn gathers(&self) -> bool {
        self.name == "together"
    }

    /// Whether it gives a mutex back.
    pub(crate) fn releases(&self) -> bool {
        self.name == "release"
    }
}

/// The text of one file from `scripts/` beside the file that asks: as it stands there, or without what is only
/// for its readers where every kilobyte is loaded.
macro_rules! lua {
    ($name:literal) => {{
        const FULL: &str = include_str!(concat!("scripts/", $name, ".lua"));
        #[cfg(not(target_family = "wasm"))]
        const TEXT: &str = FULL;
        #[cfg(target_family = "wasm")]
        const TEXT: &str = {
            use $crate::backend::redis::protocol::scripts::bare;
            const LENGTH: usize = bare::<0>(FULL).1;
            // No static: what several scripts have in common would be in the program once for each.
            const BARE: &[u8; LENGTH] = &bare::<LENGTH>(FULL).0;
            match std::str::from_utf8(BARE) {
                Ok(text) => text,
                Err(_) => panic!("a script is cut inside of a character"),
            }
        };
        TEXT
    }};
}
pub(crate) use lua;

/// A Lua text without indentation, empty lines and lines that are only a comment: as much of it as there is
/// room for, and its length.
///
/// No string of a script goes over several lines, so whole lines are all that has to be looked at.
#[cfg(any(test, target_family = "wasm"))]
pub(crate) const fn bare<const N: usize>(text: &str) -> ([u8; N], usize) {
    let text = text.as_bytes();
    let (mut bare, mut length, mut at) = ([0; N], 0, 0);
    while at < text.len() {
        while at < text.len() && (text[at] == b' ' || text[at] == b'\n') {
            at += 1;
        }
        let is_comment = at + 1 < text.len() && text[at] == b'-' && text[at + 1] == b'-';
        while at < text.len() && text[at] != b'\n' {
            if !is_comment {
                if length < N {
                    bare[length] = text[at];
                }
                length += 1;
            }
            at += 1;
        }
        if !is_comment && at < text.len() {
            if length < N {
                bare[length] = b'\n';
            }
            length += 1;
        }
    }
    (bare, length)
}

/// Declares scripts, each with the texts that stand before its own, from `scripts/` beside the file that does.
macro_rules! scripts {
    ($($constant:ident = $name:literal $(after $($prelude:literal)+)?;)*) => {
        $(pub(crate) static $constant: std::sync::LazyLock<$crate::backend::redis::protocol::scripts::Script> = std::sync::LazyLock::new(|| {
            // Put together here, so that a prelude is in the program once.
            let text = [
                $($($crate::backend::redis::protocol::scripts::lua!($prelude),)+)?
                $crate::backend::redis::protocol::scripts::lua!($name),
            ];
            $crate::backend::redis::protocol::scripts::Script::new($name, text.concat())
        });)*
    };
}
#[cfg_attr(
    target_family = "wasm",
    allow(unused_imports, reason = "a store of several nodes declares some, too")
)]
pub(crate) use scripts;

scripts! {
    POLL = "poll" after "numbers" "poll_free" "poll_join" "unpack_keys" "unpack_poll" "common" "kept" "line";
    POLL_STRICT = "poll" after "numbers" "unpack_keys" "unpack_poll" "common" "kept" "line";
    RELEASE = "release" after "numbers" "release_direct" "unpack_keys" "unpack_release" "common";
    RELEASE_ALONE = "release_alone";
    KEEP = "keep" after "numbers" "common" "kept";
    CANCEL = "cancel" after "numbers" "common";
    BREAK = "break" after "numbers" "common" "shared_common" "broken";
    STEAL = "steal" after "numbers" "common" "shared_common" "broken";
    RENEW = "renew";
    SHARED_POLL = "shared_poll" after "numbers" "shared_free" "common" "line" "shared_common";
    SHARED_RELEASE = "shared_release" after "numbers" "shared_unwaited" "common" "shared_common";
    SHARED_CANCEL = "shared_cancel" after "numbers" "common" "shared_common";
    SHARED_RENEW = "shared_renew";
    CONVERT = "convert" after "numbers" "common" "shared_common";
    TAKE_ALL = "take_all" after "numbers" "common" "kept" "shared_common";
    ANNOUNCE = "announce";
    LIST = "list";
    PROBE = "probe";
    SHOW = "show";
    PEOPLE = "people";
    FOREIGN = "foreign";
}

/// Polls and releases of mutexes in one call: their scripts as functions of what is one's keys and
/// arguments.
pub(crate) static TOGETHER: LazyLock<Script> = LazyLock::new(|| {
    let of = |script: &Script| format!("(KEYS, ARGV)\n{}end\n", script.text);
    let text =
        format!("local function poll{}local function release{}{}", of(&POLL), of(&RELEASE), lua!("together"));
    Script::new("together", text)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_script_has_every_line_that_does_something() {
        let full = "-- says why\nlocal a = 'x -- y'\n\nif a then -- why\n  -- more\n  return {a, \"b\"}\nend";
        let (bare, length) = bare::<100>(full);
        assert_eq!(&bare[..length], b"local a = 'x -- y'\nif a then -- why\nreturn {a, \"b\"}\nend");
    }
}
