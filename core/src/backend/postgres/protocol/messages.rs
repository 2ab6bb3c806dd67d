//! What clients notify each other of: the name of a client's channel, and the text of a message.

use crate::backend::rows::Push;
use crate::token::OwnerToken;

use crate::backend::rows::server::value::Statement;

/// The channel of a client. Its id may be longer than the name of a channel can be; two clients with one channel
/// ignore each other's messages.
pub(crate) fn channel(client: &str) -> String {
    // FNV-1a.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in client.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("polylatch_{hash:016x}")
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
    Statement::new("SELECT pg_notify($1, $2)::text", vec![channel(client).into(), text.into()])
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
    }
}
