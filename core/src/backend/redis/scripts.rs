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

/// Declares scripts, each with the texts that stand before its own, from `scripts/` beside the file that does.
macro_rules! scripts {
    ($($constant:ident = $name:literal $(after $($prelude:literal)+)?;)*) => {
        $(pub(crate) static $constant: std::sync::LazyLock<$crate::backend::redis::scripts::Script> = std::sync::LazyLock::new(|| {
            // Put together here, so that a prelude is in the program once.
            let text = [
                $($(include_str!(concat!("scripts/", $prelude, ".lua")),)+)?
                include_str!(concat!("scripts/", $name, ".lua")),
            ];
            $crate::backend::redis::scripts::Script::new($name, text.concat())
        });)*
    };
}
#[cfg_attr(
    target_family = "wasm",
    allow(unused_imports, reason = "a store of several nodes declares some, too")
)]
pub(crate) use scripts;

scripts! {
    POLL = "poll" after "poll_free" "poll_join" "unpack_keys" "unpack_poll" "common" "line";
    POLL_STRICT = "poll" after "unpack_keys" "unpack_poll" "common" "line";
    RELEASE = "release" after "release_direct" "unpack_keys" "unpack_release" "common";
    RELEASE_ALONE = "release_alone";
    CANCEL = "cancel" after "common";
    BREAK = "break" after "common" "shared_common";
    RENEW = "renew";
    SHARED_POLL = "shared_poll" after "shared_free" "common" "line" "shared_common";
    SHARED_RELEASE = "shared_release" after "shared_unwaited" "common" "shared_common";
    SHARED_CANCEL = "shared_cancel" after "common" "shared_common";
    SHARED_RENEW = "shared_renew";
    CONVERT = "convert" after "common" "shared_common";
    TAKE_ALL = "take_all" after "common" "shared_common";
    ANNOUNCE = "announce";
    LIST = "list";
    GLANCE = "glance";
    SHOW = "show";
    PEOPLE = "people";
    FOREIGN = "foreign";
}

/// Polls and releases of mutexes in one call: their scripts as functions of what is one's keys and
/// arguments.
pub(crate) static TOGETHER: LazyLock<Script> = LazyLock::new(|| {
    let of = |script: &Script| format!("(KEYS, ARGV)\n{}end\n", script.text);
    let text = format!(
        "local function poll{}local function release{}{}",
        of(&POLL),
        of(&RELEASE),
        include_str!("scripts/together.lua")
    );
    Script::new("together", text)
});
