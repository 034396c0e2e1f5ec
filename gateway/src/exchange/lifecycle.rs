//! Getting to know each other, and parting.

use std::sync::Arc;

use futures_util::future::join_all;
use http::{HeaderValue, Response, StatusCode};
use policy::json::Fragment;

use super::{Arrived, Gateway};
use crate::audit::Record;
use crate::body::Body;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::inbound::Ask;
use crate::protocol::header;
use crate::reply::{self, Presentation};
use crate::session::Leg;
use crate::upstream::{Hello, Upstream, UpstreamError};
use crate::wire::Id;

/// The id of a request; every request has one by the time it is answered.
const NO_ID: Id = Id::Number(0);

impl Gateway {
    /// `server/discover`
    pub(super) async fn discover(&self, arrived: Arrived, record: Box<Record>) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(NO_ID);
        let entry = match self.journal.open_read(record) {
            Ok(entry) => entry,
            Err(error) => return reply::error(&Failure::Audit(error).public(None), Some(&id)),
        };
        let servers = self.granted(&arrived).map(|(_, server)| server.hello());
        let asked = join_all(servers).await;
        match reached(asked) {
            Ok(servers) => {
                let response = self.presentation(&servers).discovered(&id);
                self.shown(entry, Ending::answered(), Some(&id), response)
            }
            Err(error) => self.failed(entry, &Failure::Upstream(error), Some(&id)),
        }
    }

    /// `initialize`: a session with every server that keeps sessions, sealed into one of ours.
    ///
    /// SPEC 2025-11-25 basic/lifecycle#initialization
    pub(super) async fn initialize(&self, arrived: Arrived, record: Box<Record>) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(NO_ID);
        let mut entry = match self.journal.open_read(record) {
            Ok(entry) => entry,
            Err(error) => return reply::error(&Failure::Audit(error).public(None), Some(&id)),
        };
        let version = arrived.inbound.version;
        if let Some(record) = entry.record() {
            record.version = Some(version);
        }
        let servers = self
            .granted(&arrived)
            .map(|(place, server)| async move { (place, server.open(version).await) });
        let opened = join_all(servers).await;
        let mut legs: Vec<(u8, Leg)> = Vec::new();
        let hellos = opened.into_iter().map(|(place, opened)| {
            let (hello, leg) = opened?;
            legs.extend(u8::try_from(place).ok().zip(leg));
            Ok(hello)
        });
        let servers = match reached(hellos.collect()) {
            Ok(servers) => servers,
            Err(error) => return self.failed(entry, &Failure::Upstream(error), Some(&id)),
        };
        let (principal, route) = (&arrived.caller.principal, arrived.route.identity());
        let sealed = self.sessions.seal(principal, &route, version, &legs).and_then(|sealed| {
            HeaderValue::try_from(sealed).map_err(|_opaque| crate::session::SessionError::Seal)
        });
        let sealed = match sealed {
            Ok(sealed) => sealed,
            Err(error) => return self.failed(entry, &Failure::Session(error), Some(&id)),
        };
        let mut response = self.presentation(&servers).initialized(&id, version);
        response.headers_mut().insert(header::SESSION, sealed);
        self.shown(entry, Ending::answered(), Some(&id), response)
    }

    /// DELETE: the session is over, here and at the servers.
    pub(super) fn end(&self, arrived: &Arrived, record: Box<Record>) -> Response<Body> {
        let Some(session) = &arrived.session else {
            let missing = Failure::Session(crate::session::SessionError::Missing);
            return self.refuse(&record, &missing);
        };
        let entry = match self.journal.open_read(record) {
            Ok(entry) => entry,
            Err(error) => return reply::error(&Failure::Audit(error).public(None), None),
        };
        if let Err(error) = self.sessions.end(session) {
            return self.failed(entry, &Failure::Session(error), None);
        }
        for (place, server) in arrived.route.servers.iter().enumerate() {
            if let Some(leg) = arrived.leg(place).cloned() {
                // The session is over for the client whether or not the server answers.
                let server = Arc::clone(server);
                self.tasks.spawn(async move { server.close(&leg).await });
            }
        }
        self.shown(entry, Ending::answered(), None, reply::empty(StatusCode::OK))
    }

    /// The servers of the route, with their places, that the caller may use at all: whoever may
    /// call nothing of a server learns nothing of it and causes no request to it.
    fn granted<'a>(
        &'a self,
        arrived: &'a Arrived,
    ) -> impl Iterator<Item = (usize, &'a Arc<Upstream>)> {
        let principal = &*arrived.caller.principal;
        let may =
            |server: &Upstream| self.policy.admit_list(principal, server.name()).outcome.is_ok();
        arrived.route.servers.iter().enumerate().filter(move |(_, server)| may(server))
    }

    /// What has no effect beyond the gateway.
    pub(super) fn acknowledge(&self, arrived: Arrived, record: &Record) -> Response<Body> {
        let response = match (&arrived.inbound.ask, &arrived.id) {
            (Ask::Ping, Some(id)) => reply::pong(id),
            _ => reply::empty(StatusCode::ACCEPTED),
        };
        let ending = Ending { status: response.status().as_u16(), ..Ending::answered() };
        if let Err(error) = self.journal.refused(record, ending) {
            return self.unrecorded(record, error);
        }
        if let (Ask::Cancel(id), Some(session)) = (arrived.inbound.ask, arrived.session) {
            // Unknown and finished requests alike are passed over.
            if let Some(call) = self.calls.get(&(session.key, id)) {
                call.cancel();
            }
        }
        response
    }

    /// What the servers say of themselves, as far as a client may see it: instructions are read by
    /// a model, so they pass the same detectors as definitions.
    fn presentation(&self, servers: &[Arc<Hello>]) -> Presentation {
        let shown = |instructions: &Fragment| {
            let findings = policy::inspect::text(instructions.value());
            let withheld = self.policy.withholds(&findings);
            if let Some(finding) = withheld {
                tracing::warn!(%finding, "the instructions of a server were withheld");
            }
            withheld.is_none()
        };
        Presentation::new(servers, shown)
    }
}

/// The servers that could be reached; one that cannot does not hide the others.
fn reached(
    asked: Vec<Result<Arc<Hello>, UpstreamError>>,
) -> Result<Vec<Arc<Hello>>, UpstreamError> {
    let mut failed = None;
    let mut servers = Vec::new();
    for hello in asked {
        match hello {
            Ok(hello) => servers.push(hello),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if servers.is_empty() => Err(error),
        Some(_) | None => Ok(servers),
    }
}
