//! Just enough of the Redis protocol (RESP2 and RESP3) to ask a question and to find frame borders.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// One value from a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Nil,
    Simple(String),
    Error(String),
    Int(i64),
    Bool(bool),
    /// A floating point or big number, as the server wrote it.
    Number(String),
    Bulk(Vec<u8>),
    /// An array, or a RESP3 set.
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// RESP3: sent without being asked for.
    Push(Vec<Reply>),
}

impl Reply {
    pub fn is_ok(&self) -> bool {
        matches!(self, Reply::Simple(text) if text == "OK")
    }

    pub fn is_nil(&self) -> bool {
        matches!(self, Reply::Nil)
    }

    pub fn error(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => Some(text),
            _ => None,
        }
    }

    pub fn int(&self) -> Option<i64> {
        match self {
            Reply::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Bulk(bytes) => Some(bytes),
            Reply::Simple(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// The text of a bulk or simple string that is UTF-8.
    pub fn text(&self) -> Option<&str> {
        self.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// The items of an array or push; empty for everything else.
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) | Reply::Push(items) => items,
            _ => &[],
        }
    }

    /// The texts of an array of strings.
    pub fn texts(&self) -> Vec<&str> {
        self.items().iter().filter_map(Reply::text).collect()
    }
}

/// The bytes received break the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl From<Malformed> for io::Error {
    fn from(Malformed(what): Malformed) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, what)
    }
}

/// Reads one value from the start of `buffer`; answers it with its length in bytes, or `None` when
/// it is not complete yet.
pub fn parse(buffer: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    Cursor { buffer, at: 0 }.whole(Cursor::value)
}

/// A request: the command and its arguments.
pub type Words = Vec<Vec<u8>>;

/// Reads one request from the start of `buffer`: an array of strings, or a line of words.
pub fn parse_request(buffer: &[u8]) -> Result<Option<(Words, usize)>, Malformed> {
    if buffer.first().is_none_or(|&first| first == b'*') {
        let Some((request, length)) = parse(buffer)? else {
            return Ok(None);
        };
        let words = request.items().iter().map(|item| match item {
            Reply::Bulk(word) => Ok(word.clone()),
            _ => Err(Malformed("a request holds something else than strings")),
        });
        return Ok(Some((words.collect::<Result<_, _>>()?, length)));
    }
    let mut cursor = Cursor { buffer, at: 0 };
    cursor.whole(|cursor| {
        let words = cursor.line()?.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        Ok(words.map(<[u8]>::to_vec).collect())
    })
}

/// Writes a request as an array of strings.
pub fn encode<A: AsRef<[u8]>>(words: &[A]) -> Vec<u8> {
    let mut frame = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        frame.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        frame.extend_from_slice(word);
        frame.extend_from_slice(b"\r\n");
    }
    frame
}

enum Stop {
    Incomplete,
    Malformed(Malformed),
}

struct Cursor<'a> {
    buffer: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn whole<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Stop>,
    ) -> Result<Option<(T, usize)>, Malformed> {
        match read(self) {
            Ok(value) => Ok(Some((value, self.at))),
            Err(Stop::Incomplete) => Ok(None),
            Err(Stop::Malformed(malformed)) => Err(malformed),
        }
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.buffer[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n');
        let end = end.ok_or(Stop::Incomplete)?;
        self.at += end + 1;
        let line = &rest[..end];
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        let rest = &self.buffer[self.at..];
        if rest.len() < length.saturating_add(2) {
            return Err(Stop::Incomplete);
        }
        self.at += length + 2;
        Ok(&rest[..length])
    }

    fn values(&mut self, count: usize) -> Result<Vec<Reply>, Stop> {
        (0..count).map(|_| self.value()).collect()
    }

    fn value(&mut self) -> Result<Reply, Stop> {
        let line = self.line()?;
        let (&kind, rest) = line.split_first().ok_or(Stop::Malformed(Malformed("an empty line")))?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        let number = || {
            std::str::from_utf8(rest)
                .ok()
                .and_then(|digits| digits.parse::<i64>().ok())
                .ok_or(Stop::Malformed(Malformed("not a number")))
        };
        // A negative length is RESP2's way to say nil.
        let length = || Ok(usize::try_from(number()?).ok());
        Ok(match kind {
            b'+' => Reply::Simple(text()),
            b'-' => Reply::Error(text()),
            b':' => Reply::Int(number()?),
            b'_' => Reply::Nil,
            b'#' => Reply::Bool(rest == b"t"),
            b',' | b'(' => Reply::Number(text()),
            b'$' | b'=' => match length()? {
                None => Reply::Nil,
                Some(length) => {
                    let bytes = self.take(length)?;
                    // A verbatim string starts with its type and a colon: `txt:`.
                    let skip = if kind == b'=' { length.min(4) } else { 0 };
                    Reply::Bulk(bytes[skip..].to_vec())
                }
            },
            b'!' => {
                let bytes = self.take(length()?.unwrap_or(0))?;
                Reply::Error(String::from_utf8_lossy(bytes).into_owned())
            }
            b'*' | b'~' => match length()? {
                None => Reply::Nil,
                Some(count) => Reply::Array(self.values(count)?),
            },
            b'>' => Reply::Push(self.values(length()?.unwrap_or(0))?),
            b'%' => {
                let count = length()?.unwrap_or(0);
                let pairs = (0..count).map(|_| Ok((self.value()?, self.value()?)));
                Reply::Map(pairs.collect::<Result<_, Stop>>()?)
            }
            b'|' => {
                // Attributes describe the value that follows; nobody here reads them.
                self.values(length()?.unwrap_or(0) * 2)?;
                self.value()?
            }
            _ => return Err(Stop::Malformed(Malformed("an unknown kind of value"))),
        })
    }
}

/// A connection for a test's own questions: blocking, one at a time.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    received: Vec<u8>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Client {
    /// Connects over TCP; reads and writes give up after five seconds.
    pub fn tcp(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        Client::over(Socket::Tcp(stream))
    }

    /// Connects over a unix socket; reads and writes give up after five seconds.
    pub fn unix(path: &Path) -> io::Result<Client> {
        Client::over(Socket::Unix(UnixStream::connect(path)?))
    }

    fn over(socket: Socket) -> io::Result<Client> {
        let client = Client { socket, received: Vec::new() };
        client.set_timeout(Duration::from_secs(5))?;
        Ok(client)
    }

    /// How long one read or write may take.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Some(timeout);
        match &self.socket {
            Socket::Tcp(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
            Socket::Unix(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
        }
    }

    /// Sends a request and reads one reply.
    pub fn command<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<Reply> {
        self.send(words)?;
        self.read()
    }

    /// Sends a request without reading anything.
    pub fn send<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<()> {
        let frame = encode(words);
        match &mut self.socket {
            Socket::Tcp(stream) => stream.write_all(&frame),
            Socket::Unix(stream) => stream.write_all(&frame),
        }
    }

    /// Reads the next value, asked for or not.
    pub fn read(&mut self) -> io::Result<Reply> {
        loop {
            if let Some((reply, length)) = parse(&self.received)? {
                self.received.drain(..length);
                return Ok(reply);
            }
            let mut chunk = [0; 16 * 1024];
            let count = match &mut self.socket {
                Socket::Tcp(stream) => stream.read(&mut chunk)?,
                Socket::Unix(stream) => stream.read(&mut chunk)?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.received.extend_from_slice(&chunk[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.into())
    }

    #[test]
    fn every_kind_of_value_is_read_whole_and_never_before_its_last_byte() {
        let cases: &[(&str, Reply)] = &[
            ("+OK\r\n", Reply::Simple("OK".into())),
            ("-ERR no\r\n", Reply::Error("ERR no".into())),
            (":-7\r\n", Reply::Int(-7)),
            ("$-1\r\n", Reply::Nil),
            ("*-1\r\n", Reply::Nil),
            ("_\r\n", Reply::Nil),
            ("#t\r\n", Reply::Bool(true)),
            (",1.5\r\n", Reply::Number("1.5".into())),
            ("$4\r\na\r\nb\r\n", bulk("a\r\nb")),
            ("=7\r\ntxt:abc\r\n", bulk("abc")),
            ("!5\r\nERR x\r\n", Reply::Error("ERR x".into())),
            ("*2\r\n$1\r\na\r\n:1\r\n", Reply::Array(vec![bulk("a"), Reply::Int(1)])),
            ("~1\r\n$1\r\na\r\n", Reply::Array(vec![bulk("a")])),
            ("%1\r\n+k\r\n:1\r\n", Reply::Map(vec![(Reply::Simple("k".into()), Reply::Int(1))])),
            (">2\r\n+message\r\n$1\r\nx\r\n", Reply::Push(vec![Reply::Simple("message".into()), bulk("x")])),
            ("|1\r\n+ttl\r\n:1\r\n:5\r\n", Reply::Int(5)),
        ];
        for (wire, value) in cases {
            let mut stream = wire.as_bytes().to_vec();
            for cut in 0..stream.len() {
                assert_eq!(parse(&stream[..cut]), Ok(None), "{wire:?} cut at {cut}");
            }
            stream.extend_from_slice(b"+next\r\n");
            assert_eq!(parse(&stream), Ok(Some((value.clone(), wire.len()))));
        }
    }

    #[test]
    fn requests_are_arrays_of_strings_or_lines_of_words() {
        let words = vec![b"SET".to_vec(), b"k".to_vec(), b"a\r\nb".to_vec()];
        let frame = encode(&words);
        assert_eq!(parse_request(&frame), Ok(Some((words, frame.len()))));
        let words = vec![b"PING".to_vec(), b"x".to_vec()];
        assert_eq!(parse_request(b"PING  x\r\n*"), Ok(Some((words, 9))));
        assert_eq!(parse_request(b""), Ok(None));
        assert!(parse_request(b"*1\r\n:1\r\n").is_err());
    }

    #[test]
    fn an_unknown_kind_of_value_is_malformed() {
        assert!(parse(b"?1\r\n").is_err());
    }
}
