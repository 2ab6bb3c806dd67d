//! Bare HTTP for floors.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection that is kept, and nothing else: the floor.
pub struct Wire(TcpStream, Vec<u8>);

impl Wire {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        Self(stream, vec![0; 1 << 16])
    }

    pub fn put(&mut self, target: &str, body: &str) -> String {
        self.ask("PUT", target, body).1
    }

    /// Sends one request; returns head and body of the answer.
    pub fn ask(&mut self, method: &str, target: &str, body: &str) -> (String, String) {
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.0.write_all(request.as_bytes()).expect("the server reads");
        let mut filled = 0;
        loop {
            filled += self.0.read(&mut self.1[filled..]).expect("the server answers");
            let text = std::str::from_utf8(&self.1[..filled]).expect("text");
            let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.and_then(|text| text.parse().ok()).expect("a length");
            if rest.len() >= length {
                return (head.to_owned(), rest.to_owned());
            }
        }
    }
}
