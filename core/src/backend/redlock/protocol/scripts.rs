//! The scripts of one node.

use crate::backend::redis::protocol::scripts::scripts;

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
