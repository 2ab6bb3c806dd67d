//! A loopback port that stays ours while its server is down.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};

/// A TCP port of 127.0.0.1, reserved until the value is dropped.
///
/// Reserved means: a socket is bound to the port but does not listen. A server that sets
/// `SO_REUSEADDR` (Redis and Rust's `TcpListener` do) can listen there any number of times; a port
/// search by other processes passes it over; and the kernel does not pick it as the source port of
/// an outgoing connection, so a client that dials a dead server cannot end up connected to itself.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl ReservedPort {
    /// Reserves a free port.
    pub fn new() -> io::Result<ReservedPort> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        // Only after bind: set before, the kernel could hand out a port that is reserved already.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(ReservedPort { address, _socket: socket })
    }

    pub fn number(&self) -> u16 {
        self.address.port()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait_until;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn a_reserved_port_refuses_until_someone_listens_and_again_afterwards() {
        let port = ReservedPort::new().expect("a free port");
        for _ in 0..2 {
            // Not at once: a child that another test is just starting holds a copy of every socket
            // until it runs its program.
            wait_until("nobody to listen", Duration::from_secs(5), || {
                TcpStream::connect(port.address())
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
            });
            let listener = TcpListener::bind(port.address()).expect("the port is ours");
            TcpStream::connect(port.address()).expect("someone listens");
            drop(listener);
        }
    }
}
