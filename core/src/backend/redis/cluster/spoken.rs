//! What a node says to a subscriber: RESP 2, as far as subscriptions use it.

use std::io;

/// More than any message to an inbox has.
const LONGEST: usize = 64 * 1024;

/// One reply or message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Words(Vec<Vec<u8>>),
    /// A refusal: its code and the rest.
    Refused(String),
}

fn unreadable() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the node says what no subscriber understands")
}

/// Takes what was said completely from the front of a buffer, if it was.
pub(super) fn take(buffer: &mut Vec<u8>) -> io::Result<Option<Said>> {
    let mut rest = &buffer[..];
    let Some(said) = read(&mut rest)? else { return Ok(None) };
    let used = buffer.len() - rest.len();
    buffer.drain(..used);
    Ok(Some(said))
}

fn read(rest: &mut &[u8]) -> io::Result<Option<Said>> {
    let Some((kind, line)) = line(rest)? else { return Ok(None) };
    Ok(Some(match kind {
        b'+' => Said::Words(vec![line.to_vec()]),
        b'-' => Said::Refused(String::from_utf8_lossy(line).into_owned()),
        b'*' => {
            let mut words = Vec::new();
            for _ in 0..number(line)? {
                match word(rest)? {
                    Some(word) => words.push(word),
                    None => return Ok(None),
                }
            }
            Said::Words(words)
        }
        _ => return Err(unreadable()),
    }))
}

fn word(rest: &mut &[u8]) -> io::Result<Option<Vec<u8>>> {
    let Some((kind, line)) = line(rest)? else { return Ok(None) };
    match kind {
        b':' => Ok(Some(line.to_vec())),
        // Nothing, where a node is asked to leave what it does not have.
        b'$' if line == b"-1" => Ok(Some(Vec::new())),
        b'$' => {
            let length = number(line)?;
            if rest.len() < length + 2 {
                return Ok(None);
            }
            let (word, after) = rest.split_at(length);
            *rest = &after[2..];
            Ok(Some(word.to_vec()))
        }
        _ => Err(unreadable()),
    }
}

/// The first byte of a line, and what follows it.
fn line<'b>(rest: &mut &'b [u8]) -> io::Result<Option<(u8, &'b [u8])>> {
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
        return if rest.len() > LONGEST { Err(unreadable()) } else { Ok(None) };
    };
    let (line, after) = rest.split_at(end);
    *rest = &after[2..];
    line.split_first().map(|(kind, line)| Some((*kind, line))).ok_or_else(unreadable)
}

fn number(line: &[u8]) -> io::Result<usize> {
    let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    number.filter(|number| *number <= LONGEST).ok_or_else(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_taken_whole_and_in_order() {
        let all = b"+OK\r\n*3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n-MOVED 7 a:1\r\n*2\r\n$-1\r\n$4\r\na\r\nb\r\n";
        let words = |words: &[&str]| Said::Words(words.iter().map(|word| word.as_bytes().to_vec()).collect());
        let expected = [
            words(&["OK"]),
            words(&["ssubscribe", "c", "1"]),
            Said::Refused("MOVED 7 a:1".into()),
            words(&["", "a\r\nb"]),
        ];
        // However it comes in.
        for piece in [1, 7, all.len()] {
            let (mut buffer, mut said) = (Vec::new(), Vec::new());
            for piece in all.chunks(piece) {
                buffer.extend_from_slice(piece);
                while let Some(one) = take(&mut buffer).unwrap() {
                    said.push(one);
                }
            }
            assert_eq!((said, buffer), (expected.to_vec(), Vec::new()));
        }
        for bad in ["?1\r\n", "*x\r\n", "*1\r\n$999999\r\n", "*1\r\n+a\r\n", "\r\n"] {
            assert!(take(&mut bad.into()).is_err(), "{bad:?}");
        }
    }
}
