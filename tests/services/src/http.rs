//! A minimal HTTP client: one request per connection, for asking servers what they hold.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that says nothing for this long is an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Header lines as they came.
    pub headers: Vec<String>,
    pub body: String,
}

impl Answer {
    pub fn is_ok(&self) -> bool {
        self.status == 200
    }
}

/// Sends one request to `address`; `headers` are whole lines such as `X-Token: abc`.
pub fn request(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[String],
    body: &str,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for line in headers {
        head.push_str(&format!("{line}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("half an answer"))?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers: Vec<_> = lines.map(str::to_owned).collect();
    let chunked = headers.iter().any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked"));
    Ok(Answer {
        status: status.ok_or_else(|| io::Error::other("no status"))?,
        headers,
        body: if chunked { dechunked(body) } else { body.to_owned() },
    })
}

fn dechunked(mut rest: &str) -> String {
    let mut out = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || !tail.is_char_boundary(size.min(tail.len())) {
            break;
        }
        out.push_str(&tail[..size.min(tail.len())]);
        rest = tail.get(size + 2..).unwrap_or("");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together() {
        assert_eq!(dechunked("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), "abcde");
    }
}
