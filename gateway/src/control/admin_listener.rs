//! The operator's listener: accepts the connections on which operators, probes and metric collectors use the
//! [`admin_api`], and bounds what a peer may cost: connections, in total and from one address, request
//! heads, and the time for each.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::base::share::{Share, ShareError, Shares, network};
use crate::base::task::Tasks;
use crate::control::admin_api::{self, AdminApi, PATIENCE};
use crate::net::write_timeout::WriteTimeout;
use crate::serve::listener::ACCEPT_PAUSE;

/// Maximum number of connections, in total and from one address.
const CONNECTIONS: usize = 256;
const OF_ONE_ADDRESS: usize = 64;
/// Maximum length of a request head in bytes, and of headers in it.
const HEAD: usize = 16 * 1024;
const HEADERS: usize = 64;
/// Maximum time for a request head, from the end of the previous request or the start of the connection.
const HEAD_TIME: Duration = Duration::from_secs(2);
/// Minimum interval between log lines about closed connections.
const SELDOM: Duration = Duration::from_secs(60);

/// The state of a connection: no request yet, a request is being answered, or the last one was answered.
const SILENT: u8 = 0;
const ANSWERED: u8 = 1;
const IDLE: u8 = 2;

/// An open connection and its share.
#[derive(Debug)]
struct AdminConnection {
    source: IpAddr,
    /// One of [`SILENT`], [`ANSWERED`] and [`IDLE`].
    state: AtomicU8,
    place: Mutex<Option<Share<IpAddr>>>,
    /// Cancelled to close the connection because another takes its place.
    over: CancellationToken,
}

impl AdminConnection {
    /// Returns the share of the connection at once, and closes it.
    fn leave(&self) {
        drop(self.place.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.over.cancel();
    }
}

/// The open connections. When a limit is reached, a connection that is not being answered is closed in favour of the
/// new one, so that idle connections cannot block health checks.
#[derive(Debug)]
struct AdminConnections {
    places: Arc<Shares<IpAddr>>,
    /// Ordered from oldest to newest.
    seats: VecDeque<Weak<AdminConnection>>,
}

impl AdminConnections {
    fn new() -> Self {
        Self { places: Shares::new(CONNECTIONS, OF_ONE_ADDRESS), seats: VecDeque::new() }
    }

    /// Admits a connection from `address`. Also returns the exceeded limit, if another connection was closed for it.
    fn take(
        &mut self,
        address: IpAddr,
    ) -> Result<(Arc<AdminConnection>, Option<ShareError>), ShareError> {
        self.seats.retain(|seat| seat.strong_count() > 0);
        let source = source(address);
        let (place, left) = match self.places.take(&source, 1) {
            Ok(place) => (place, None),
            Err(full) if self.make_room(source, full) => {
                (self.places.take(&source, 1)?, Some(full))
            }
            Err(full) => return Err(full),
        };
        let seat = Arc::new(AdminConnection {
            source,
            state: AtomicU8::new(SILENT),
            place: Mutex::new(Some(place)),
            over: CancellationToken::new(),
        });
        self.seats.push_back(Arc::downgrade(&seat));
        Ok((seat, left))
    }

    /// Closes the oldest connection without a request, or else the oldest idle one, among those that count against
    /// the limit `full`. Returns whether there was one.
    fn make_room(&self, source: IpAddr, full: ShareError) -> bool {
        let helps = |seat: &AdminConnection| match full {
            ShareError::All { .. } => true,
            ShareError::Holder { .. } => seat.source == source,
        };
        let oldest = |state: u8| {
            let mut seats = self.seats.iter().filter_map(Weak::upgrade);
            seats.find(|seat| {
                let is_open = !seat.over.is_cancelled();
                is_open && seat.state.load(Ordering::Acquire) == state && helps(seat)
            })
        };
        let seat = oldest(SILENT).or_else(|| oldest(IDLE));
        if let Some(seat) = &seat {
            seat.leave();
        }
        seat.is_some()
    }
}

/// The address that a connection is counted under. All loopback addresses are one, because every local process can
/// use each of them.
fn source(address: IpAddr) -> IpAddr {
    let address = network(address);
    if address.is_loopback() || address == network(IpAddr::V6(Ipv6Addr::LOCALHOST)) {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    } else {
        address
    }
}

/// Serves the operator's listener until the gateway stops.
pub async fn serve(api: AdminApi, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            return tracing::error!(
                event = "admin.listener_failed", %error,
                "the listener of the admin API has failed"
            );
        }
    };
    let (tasks, metrics) = (api.tasks.clone(), Arc::clone(&api.metrics));
    let clock = Arc::clone(&api.live.now().gateway.clock);
    let router = admin_api::router(api);
    let mut seats = AdminConnections::new();
    let mut told = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tasks.stopping() => return,
        };
        let Ok((stream, address)) = accepted else {
            // The process is out of descriptors or memory: retrying at once would only spin.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (seat, closed) = match seats.take(address.ip()) {
            Ok((seat, left)) => (Some(seat), left),
            Err(error) => (None, Some(error)),
        };
        if let Some(error) = closed {
            metrics.ops_refused.add(1);
            let now = clock.instant();
            if told.is_none_or(|told| now.saturating_duration_since(told) >= SELDOM) {
                told = Some(now);
                tracing::warn!(
                    event = "admin.connection_closed", %error, peer = %address,
                    "admin API connection closed"
                );
            }
        }
        let Some(seat) = seat else { continue };
        tasks.spawn(serve_connection(router.clone(), tasks.clone(), stream, seat));
    }
}

/// Passes the requests on one connection to `router` until it ends, it is closed for another one, or the gateway stops.
async fn serve_connection(
    router: Router,
    tasks: Tasks,
    stream: TcpStream,
    seat: Arc<AdminConnection>,
) {
    let stream = WriteTimeout::new(stream, PATIENCE);
    let held = Arc::clone(&seat);
    let answer = service_fn(move |request: Request<Incoming>| {
        let (router, seat) = (router.clone(), Arc::clone(&held));
        async move {
            seat.state.store(ANSWERED, Ordering::Release);
            let answer = router.oneshot(request).await;
            seat.state.store(IDLE, Ordering::Release);
            answer
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(HEADERS)
        .max_header_size(HEAD)
        .max_buf_size(2 * HEAD);
    let served = builder.serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        ended = served => if let Err(error) = ended {
            tracing::debug!(%error, "admin API connection ended early");
        },
        () = tasks.stopping() => {}
        () = seat.over.cancelled() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{ANSWERED, AdminConnections, CONNECTIONS, IDLE, OF_ONE_ADDRESS, source};
    use std::net::IpAddr;
    use std::sync::atomic::Ordering;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn all_loopback_addresses_are_one() {
        for address in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(source(at(address)), at("127.0.0.1"), "{address}");
        }
        assert_eq!(source(at("192.0.2.1")), at("192.0.2.1"));
        assert_ne!(source(at("2001:db8::1")), at("127.0.0.1"));
    }

    #[test]
    fn the_oldest_silent_connection_leaves_first_and_none_that_is_being_answered() {
        let mut seats = AdminConnections::new();
        let one = at("127.0.0.1");
        let held: Vec<_> = (0..OF_ONE_ADDRESS).map(|_| seats.take(one).unwrap().0).collect();
        for seat in &held {
            seat.state.store(ANSWERED, Ordering::Release);
        }
        assert!(seats.take(at("127.0.0.2")).is_err());
        held[3].state.store(IDLE, Ordering::Release);
        let (new, left) = seats.take(one).unwrap();
        assert!(left.is_some() && held[3].over.is_cancelled());
        // The new connection has sent nothing so far.
        let (newer, _) = seats.take(one).unwrap();
        assert!(new.over.is_cancelled() && !newer.over.is_cancelled());
        assert!(held.iter().filter(|seat| seat.over.is_cancelled()).count() == 1);
    }

    #[test]
    fn many_addresses_together_do_not_shut_others_out() {
        let mut seats = AdminConnections::new();
        let each = OF_ONE_ADDRESS / 2;
        let address = |n: usize| at(&format!("192.0.2.{}", n / each));
        let held: Vec<_> = (0..CONNECTIONS).map(|n| seats.take(address(n)).unwrap().0).collect();
        let (_here, left) = seats.take(at("127.0.0.1")).unwrap();
        assert!(left.is_some() && held[0].over.is_cancelled());
    }
}
