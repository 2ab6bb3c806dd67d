//! One connection to one member, as far as its first answers.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::clock::{BootInstant, Clock, SystemClock};
use crate::error::{Error, Result};

use super::super::config::Login;
use super::super::protocol::answers::{Answer, Connected, code};
use super::super::protocol::requests::{self, LOGIN};
use super::super::protocol::wire::MOST_BYTES;
use super::errors;
use super::member::{Member, Stream};

/// A connection that carries a session.
pub(crate) struct Link {
    pub stream: Stream,
    pub input: Input,
    pub place: String,
    /// When the request for the session left.
    pub sent: BootInstant,
    pub connected: Connected,
}

/// What to ask for.
pub(crate) struct Hello<'h> {
    pub seen: i64,
    pub timeout: Duration,
    /// 0 for a new one.
    pub session: i64,
    pub password: &'h [u8],
    pub login: Option<&'h Login>,
}

/// Bytes that were read, cut into frames.
#[derive(Debug, Default)]
pub(crate) struct Input(pub Vec<u8>);

impl Input {
    /// The next whole frame. Errors: the length is not one of ZooKeeper's.
    pub(crate) fn frame(&mut self) -> std::result::Result<Option<Vec<u8>>, ()> {
        let Some((length, rest)) = self.0.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MOST_BYTES {
            return Err(());
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let frame = frame.to_vec();
        self.0.drain(..4 + length);
        Ok(Some(frame))
    }
}

/// Connects and asks for a session. Nothing but a session is made by it, and that ends by itself.
///
/// The answer may be that the session has expired.
pub(crate) async fn dial(member: &Member, hello: &Hello<'_>, limit: Duration) -> Result<Link> {
    match timeout(limit, open(member, hello)).await {
        Ok(link) => link,
        Err(_) => Err(errors::silent(&member.place)),
    }
}

async fn open(member: &Member, hello: &Hello<'_>) -> Result<Link> {
    let place = member.place.as_str();
    let mut stream = member.connect().await?;
    let sent = SystemClock.now();
    let timeout_ms = i32::try_from(hello.timeout.as_millis()).unwrap_or(i32::MAX);
    let first = requests::connect(hello.seen, timeout_ms, hello.session, hello.password);
    let written = async {
        stream.write_all(&first).await?;
        stream.flush().await
    };
    written.await.map_err(|error| errors::at_first(place, error))?;
    let mut input = Input::default();
    let frame = next(&mut stream, &mut input, place).await?;
    let connected = Connected::read(&frame).ok_or_else(|| errors::unreadable(place))?;
    if connected.session != 0
        && let Some(login) = hello.login
    {
        let secret = requests::log_in(&login.user, &login.password.latest().0);
        stream.write_all(&secret).await.map_err(|_| errors::log_in_failed())?;
        stream.flush().await.map_err(|_| errors::log_in_failed())?;
        loop {
            let frame = next(&mut stream, &mut input, place).await.map_err(|_| errors::log_in_failed())?;
            let answer = Answer::read(&frame).ok_or_else(|| errors::unreadable(place))?;
            match (answer.number, answer.code) {
                (LOGIN, code::OK) => break,
                (LOGIN, _) => return Err(errors::log_in_failed()),
                _ => {}
            }
        }
    }
    Ok(Link { stream, input, place: place.to_owned(), sent, connected })
}

async fn next(stream: &mut Stream, input: &mut Input, place: &str) -> Result<Vec<u8>, Error> {
    loop {
        match input.frame() {
            Ok(Some(frame)) => return Ok(frame),
            Ok(None) => {}
            Err(()) => return Err(errors::unreadable(place)),
        }
        match stream.read_buf(&mut input.0).await {
            Ok(0) => return Err(errors::not_serving(place)),
            Ok(_) => {}
            Err(error) => return Err(errors::at_first(place, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_where_they_end() {
        let mut input = Input(vec![0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(input.frame(), Ok(Some(vec![7, 8])));
        assert_eq!(input.frame(), Ok(Some(vec![])));
        assert_eq!(input.frame(), Ok(None));
        input.0.push(9);
        assert_eq!(input.frame(), Ok(Some(vec![9])));
        // The beginning of an HTTP answer is no length.
        assert_eq!(Input(b"HTTP/1.1".to_vec()).frame(), Err(()));
    }
}
