//! An HTTP proxy in front of an agent that answers as other servers or middleboxes do.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::ConsulAgent;

/// What becomes of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Pass,
    /// Answered with this status and text; the agent never sees it.
    Answer(u16, String),
    /// Passes; the answer's `X-Consul-Index` becomes 0, as a proxy leaves it that makes up headers.
    LosesIndex,
}

/// A proxy whose connections serve one request each; it ends with the test process.
#[derive(Debug)]
pub struct Interceptor {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Interceptor {
    /// Asks `judge` about every request: method, and path with query as they came.
    #[track_caller]
    pub fn start(agent: &ConsulAgent, judge: impl Fn(&str, &str) -> Fate + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it listens");
        let requests = Arc::new(AtomicUsize::new(0));
        let (target, judge, count) = (agent.address(), Arc::new(judge), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (judge, count) = (Arc::clone(&judge), Arc::clone(&count));
                // A connection that breaks is its client's to notice.
                thread::spawn(move || drop(serve(stream, target, &*judge, &count)));
            }
        });
        Self { address, requests }
    }

    /// Refuses keys as servers of Consul 1.21.5 do, on the paths on which they do.
    #[track_caller]
    pub fn with_strict_keys(agent: &ConsulAgent) -> Self {
        Self::start(agent, |_, target| match target.strip_prefix("/v1/kv/") {
            Some(rest) if !is_plain(&percent_decoded(rest.split('?').next().unwrap_or_default())) => {
                Fate::Answer(
                    400,
                    r#"invalid key name, keys should respect the "^[a-zA-Z0-9,_./\\-?&=]+$" format"#.into(),
                )
            }
            _ => Fate::Pass,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests have come.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn is_plain(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b",_./-?&=".contains(&byte))
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%').then(|| tail.get(..2)).flatten();
        let escaped = escaped.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn serve(
    mut client: TcpStream,
    agent: SocketAddr,
    judge: &dyn Fn(&str, &str) -> Fate,
    count: &AtomicUsize,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (head, body) = read_request(&mut client)?;
    count.fetch_add(1, Ordering::SeqCst);
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let fate = judge(method, target);
    if let Fate::Answer(status, text) = &fate {
        let answer = format!(
            "HTTP/1.1 {status} Refused\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        return client.write_all(answer.as_bytes());
    }
    let mut server = TcpStream::connect(agent)?;
    server.set_nodelay(true)?;
    server.write_all(head.replacen("\r\n", "\r\nConnection: close\r\n", 1).as_bytes())?;
    server.write_all(&body)?;
    // A client that goes away takes its waiting request along.
    let (gone, waits) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = (&gone).read(&mut [0; 1]);
        let _ = waits.shutdown(Shutdown::Both);
    });
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    if fate == Fate::LosesIndex {
        answer = without_index(&answer);
    }
    client.write_all(&answer)?;
    client.shutdown(Shutdown::Both)
}

/// The head with its empty line, and the body.
fn read_request(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        let read = client.read(&mut chunk)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&chunk[..read]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end + 4]).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let mut body = bytes.split_off(end + 4);
        let had = body.len();
        body.resize(length.unwrap_or(0).max(had), 0);
        client.read_exact(&mut body[had..])?;
        return Ok((head, body));
    }
}

fn without_index(answer: &[u8]) -> Vec<u8> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(answer.len());
    let head = String::from_utf8_lossy(&answer[..end]);
    let lines =
        head.split("\r\n").map(|line| match line.to_ascii_lowercase().starts_with("x-consul-index:") {
            true => "X-Consul-Index: 0",
            false => line,
        });
    let mut out = lines.collect::<Vec<_>>().join("\r\n").into_bytes();
    out.extend_from_slice(&answer[end..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_judged_as_the_server_judges_them() {
        for (path, plain) in
            [("a/b.c_d-e,f=3A", true), ("a%2Fb", true), ("a%3Ab", false), ("a:b", false), ("a%20b", false)]
        {
            assert_eq!(is_plain(&percent_decoded(path)), plain, "{path}");
        }
        assert_eq!(
            without_index(b"HTTP/1.1 200 OK\r\nX-Consul-Index: 42\r\n\r\n[]"),
            b"HTTP/1.1 200 OK\r\nX-Consul-Index: 0\r\n\r\n[]"
        );
    }
}
