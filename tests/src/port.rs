//! Ports of servers that tests start as programs, or that nobody serves.

use std::fmt;

use tokio::net::TcpSocket;

/// A port of 127.0.0.1 that belongs to one test as long as this lives.
///
/// A port that was only looked up and given back can be taken by another test before the server of this one listens. This one
/// is bound and does not listen: connections to it are refused, the system gives it to nobody who asks for any free port, and a
/// server that asks for it by number and sets `SO_REUSEADDR`, as all runtimes of servers do, can listen on it.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    /// Not kept where two sockets cannot share a port, even if one of them does not listen.
    _bound: Option<TcpSocket>,
}

impl ReservedPort {
    /// Reserves any free port.
    ///
    /// # Panics
    /// When the system has none.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let number = socket.local_addr().unwrap().port();
        Self { number, _bound: cfg!(target_os = "linux").then_some(socket) }
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }
}

/// Shows the address, `127.0.0.1:PORT`.
impl fmt::Display for ReservedPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "127.0.0.1:{}", self.number)
    }
}
