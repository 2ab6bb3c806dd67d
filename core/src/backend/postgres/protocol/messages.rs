//! What clients notify each other of: the name of a client's channel, and the text of a message.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::backend::rows::Push;
use crate::token::OwnerToken;

use crate::backend::rows::server::value::Statement;

/// The channel of a client. Its id may be longer than the name of a channel can be; two clients with one channel
/// ignore each other's messages.
pub(crate) fn channel(client: &str) -> String {
    let mut channel = "polylatch_".to_owned();
    for byte in &Sha256::digest(client)[..8] {
        // Writing to a text does not fail.
        let _ = write!(channel, "{byte:02x}");
    }
    channel
}

/// The same in a statement, of the column `client`.
macro_rules! channel_of_client {
    () => {
        "'polylatch_' || left(encode(sha256(convert_to(client, 'UTF8')), 'hex'), 16)"
    };
}
pub(super) use channel_of_client;

/// How the statements begin that notify.
macro_rules! pg_notify {
    () => {
        "SELECT pg_notify("
    };
}
pub(super) use pg_notify;

/// Whether a statement notifies a client, and does nothing else.
pub(crate) fn notifies(statement: &Statement) -> bool {
    statement.sql.starts_with(pg_notify!())
}

pub(crate) fn listen(client: &str) -> Statement {
    Statement::new(format!("LISTEN {}", channel(client)), vec![])
}

/// Notifies a client when the transaction commits.
pub(crate) fn notify(client: &str, push: Push) -> Statement {
    let text = match push {
        Push::Granted { owner, fence } => format!("granted {} {fence}", owner.to_hex()),
        Push::Revoked { owner, fence } => format!("revoked {} {fence}", owner.to_hex()),
    };
    Statement::new(concat!(pg_notify!(), "$1, $2)::text"), vec![channel(client).into(), text.into()])
}

/// Reads a message; `None` for one of another program.
pub(crate) fn parse(text: &str) -> Option<Push> {
    let mut words = text.split(' ');
    let (kind, owner, fence) = (words.next()?, words.next()?, words.next()?);
    let (owner, fence) = (OwnerToken::from_hex(owner)?, fence.parse().ok()?);
    match (kind, words.next()) {
        ("granted", None) => Some(Push::Granted { owner, fence }),
        ("revoked", None) => Some(Push::Revoked { owner, fence }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written_and_others_are_ignored() {
        let owner = OwnerToken::random().unwrap();
        for push in [Push::Granted { owner, fence: 7 }, Push::Revoked { owner, fence: 1 << 52 }] {
            let statement = notify("h:1:a", push);
            let crate::backend::rows::server::value::Param::Text(text) = &statement.params[1] else {
                panic!("{statement:?}")
            };
            assert_eq!(parse(text), Some(push));
        }
        for text in ["", "granted", "granted x 1", &format!("granted {} -1", owner.to_hex()), "revoked a b c"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(channel(&"h".repeat(200)).len() < 63);
        // As `left(encode(sha256('abc'), 'hex'), 16)` is at the server.
        assert_eq!(channel("abc"), "polylatch_ba7816bf8f01cfea");
    }
}
