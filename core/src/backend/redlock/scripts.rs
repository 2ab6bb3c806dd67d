//! The scripts of one node.

use std::sync::LazyLock;

use crate::backend::redis::scripts::Script;

macro_rules! scripts {
    ($($constant:ident = $name:literal $(after $($prelude:literal)+)?;)*) => {
        $(pub(super) static $constant: LazyLock<Script> = LazyLock::new(|| {
            let text = concat!(
                $($(include_str!(concat!("scripts/", $prelude, ".lua")),)+)?
                include_str!(concat!("scripts/", $name, ".lua"))
            );
            Script::new($name, text.to_owned())
        });)*
    };
}

scripts! {
    ACQUIRE = "acquire" after "crowd";
    WITHDRAW = "withdraw" after "crowd";
    RAISE = "raise";
    RENEW = "renew";
    HEAL = "heal";
    RELEASE = "release" after "hint";
    BREAK = "break" after "hint";
    LOOK = "look" after "epoch";
    OPEN = "open" after "epoch";
    PEEK = "peek";
}
