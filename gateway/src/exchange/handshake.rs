//! `server/discover`, `initialize` and the end of a session.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{HeaderValue, Response, StatusCode};
use policy::base::work::WorkBudget;
use policy::definition::offer::ItemKind;
use policy::definition::pin::{Digest, DigestSubject};
use policy::detection::labels::LabelledPart;
use policy::json::{Document, JsonBounds, Value};
use policy::rules::decision::Mode;
use policy::subject::name::ServerName;
use policy::subject::principal::Principal;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::list::of_servers;
use super::{DecodedRequest, Gateway};
use crate::audit::Record;
use crate::edge::encode::{self, Replacement};
use crate::edge::failure::Failure;
use crate::edge::server_info::{DescribedServer, ServerDescription};
use crate::mcp::client_info::Client;
use crate::mcp::protocol::{Era, header, meta as meta_key};
use crate::mcp::wire::{self, Id};
use crate::metrics::outcome::ExchangeEnd;
use crate::session::UpstreamSession;
use crate::stream::body::Body;
use crate::upstream::{OnBehalfOf, ServerInfo, Upstream, UpstreamError};

/// A server, with its information or the error, and whether callers share its sessions.
type HandshakeReply<'a> = (&'a Arc<Upstream>, Result<(Arc<ServerInfo>, bool), UpstreamError>);

/// How long the end of a session waits for the servers.
const FAREWELL: Duration = Duration::from_secs(2);
/// Budget for inspecting a server's instructions, in work units: enough for about 80 KiB.
const INSTRUCTIONS: u64 = 8 << 20;
/// Stands in for the id of a request; every request has an id by the time it is answered.
const NO_ID: Id = Id::Number(0);

impl Gateway {
    /// `server/discover`: the information of the servers that the caller may use.
    pub(super) async fn discover(
        &self,
        arrived: DecodedRequest,
        record: Box<Record>,
    ) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(NO_ID);
        let mut entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        let (servers, on_record) = (self.granted(&arrived), &entry);
        let asked = servers.map(|(at, server)| {
            let party = arrived.party(at);
            async move { (server, server.hello(on_record, &party).await) }
        });
        let started = self.clock.instant();
        let asked = join_all(asked).await.into_iter();
        entry.waited += self.since(started);
        let asked = asked.map(|(server, hello)| {
            let shared = |hello: Arc<ServerInfo>| {
                let shared = server.is_shared(hello.era);
                (hello, shared)
            };
            (server, hello.map(shared))
        });
        match self.presented(&arrived, asked.collect(), &mut entry).await {
            Ok(servers) => {
                let ttl = servers.iter().map(|server| server.hello.ttl).min().unwrap_or(0);
                let response = ServerDescription::new(&servers, Era::Modern).discovered(&id, ttl);
                self.shown(entry, ExchangeEnd::answered(), Some(&id), response)
            }
            Err(failure) => self.failed(entry, &failure, Some(&id)),
        }
    }

    /// `initialize`: opens a session with every server that keeps sessions, and seals them into one session id for the
    /// client.
    ///
    /// SPEC 2025-11-25 basic/lifecycle#initialization
    pub(super) async fn initialize(
        &self,
        arrived: DecodedRequest,
        record: Box<Record>,
    ) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(NO_ID);
        let mut entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        let version = arrived.inbound.version;
        entry.version = Some(version);
        let gateway = Client::gateway();
        let client = arrived.inbound.client.as_ref().unwrap_or(gateway);
        let on_record = &entry;
        let opening = self.granted(&arrived).map(|(place, server)| {
            let party = OnBehalfOf { client: Arc::clone(client), ..arrived.party(place) };
            async move { (place, server, server.open(on_record, version, &party).await) }
        });
        let started = self.clock.instant();
        let opened = join_all(opening).await;
        entry.waited += self.since(started);
        let mut legs: Vec<(u8, UpstreamSession)> = Vec::new();
        let hellos = opened.into_iter().map(|(place, server, opened)| {
            let hello = opened.map(|(hello, leg)| {
                let shared = leg.is_none() && server.is_shared(hello.era);
                legs.extend(u8::try_from(place).ok().zip(leg));
                (hello, shared)
            });
            (server, hello)
        });
        let hellos = hellos.collect();
        let servers = match self.presented(&arrived, hellos, &mut entry).await {
            Ok(servers) => servers,
            Err(failure) => return self.failed(entry, &failure, Some(&id)),
        };
        let (principal, route) = (&arrived.caller.principal, arrived.route.identity());
        let sealed = self.sessions.seal(principal, &route, version, client, &legs);
        let sealed = sealed.and_then(|sealed| {
            HeaderValue::try_from(sealed).map_err(|_opaque| crate::session::SessionError::Seal)
        });
        let sealed = match sealed {
            Ok(sealed) => sealed,
            Err(error) => return self.failed(entry, &Failure::Session(error), Some(&id)),
        };
        let mut response = ServerDescription::new(&servers, Era::Legacy).initialized(&id, version);
        response.headers_mut().insert(header::SESSION, sealed);
        self.shown(entry, ExchangeEnd::answered(), Some(&id), response)
    }

    /// DELETE: ends the session in the gateway and at the servers.
    pub(super) async fn end(
        &self,
        arrived: &DecodedRequest,
        record: Box<Record>,
    ) -> Response<Body> {
        let Some(session) = &arrived.session else {
            let missing = Failure::Session(crate::session::SessionError::Missing);
            return self.refuse(&record, &missing);
        };
        let entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        self.sessions.end(session, &arrived.caller.principal);
        self.conversations.end(session.key);
        let age = self.sessions.age(session);
        self.metrics.session(age);
        let (ended, mut all_ended) = mpsc::channel::<()>(1);
        for (place, server) in arrived.route.servers.iter().enumerate() {
            if let Some(leg) = arrived.leg(place).cloned() {
                let (server, ended) = (Arc::clone(server), ended.clone());
                let party = arrived.party(place);
                self.tasks.spawn(async move {
                    server.close(&party, &leg, age).await;
                    drop(ended);
                });
            }
        }
        drop(ended);
        // The session has ended for the client even if a server does not answer in time.
        drop(timeout(FAREWELL, all_ended.recv()).await);
        self.shown(entry, ExchangeEnd::answered(), None, encode::empty(StatusCode::OK))
    }

    /// The servers of the route that the caller may use, with their indexes. Of any other server the caller learns
    /// nothing, and it causes no request to it.
    fn granted<'a>(
        &'a self,
        arrived: &'a DecodedRequest,
    ) -> impl Iterator<Item = (usize, &'a Arc<Upstream>)> {
        let principal = &*arrived.caller.principal;
        let may = |server: &Upstream| self.policy.grants_any(principal, server.name());
        arrived.route.servers.iter().enumerate().filter(move |(_, server)| may(server))
    }

    /// The servers that could be reached, with what the caller may use of each; one that fails does not hide the
    /// others. If there is no other, its failure is returned and `record` names it.
    async fn presented(
        &self,
        arrived: &DecodedRequest,
        asked: Vec<HandshakeReply<'_>>,
        record: &mut Record,
    ) -> Result<Vec<DescribedServer>, Failure> {
        let principal = &arrived.caller.principal;
        let (mut servers, mut failed) = (Vec::new(), Vec::new());
        for (server, hello) in asked {
            let (hello, shared) = match hello {
                Ok(found) => found,
                Err(error) if self.is_stranger(server, &error) => continue,
                Err(error) => {
                    failed.push((server, error));
                    continue;
                }
            };
            let may = |kind: &ItemKind| {
                self.policy.admit_list(principal, server.name(), *kind).outcome.is_ok()
            };
            let kinds = [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource, ItemKind::Method];
            let granted = kinds.into_iter().filter(may).collect();
            let mut approved = self.approved(server, &hello);
            if self.withholds_instructions(server, &approved) {
                approved.instructions = None;
            }
            let hello = Arc::new(self.introducible(principal, server, approved).await);
            let (name, keeps) = (server.name().as_str().into(), self.policy.keeps(server.name()));
            servers.push(DescribedServer { name, hello, granted, shared, keeps });
        }
        if servers.is_empty()
            && let Some(failure) = of_servers(failed, record)
        {
            return Err(failure);
        }
        Ok(servers)
    }

    /// The information of a server without what is not pinned. Capabilities that clients need to use approved
    /// definitions are kept: each use is decided on its own.
    fn approved(&self, server: &Upstream, hello: &ServerInfo) -> ServerInfo {
        server.compare(hello);
        let pins = self.policy.pins();
        let name = server.name().as_str();
        let unfit = |part: &str| {
            let field = hello.field(part);
            pins.mode == Mode::Enforce
                && pins.unfit_field(name, hello.digest, part, field).is_some()
        };
        let mut shown = hello.clone();
        if hello.instructions.is_some() && unfit("instructions") {
            shown.instructions = None;
        }
        if hello.info.is_some() && unfit("serverInfo") {
            shown.info = None;
        }
        if hello.capabilities.is_some() && unfit("capabilities") {
            shown.capabilities = shown.usual_capabilities();
        }
        shown
    }

    /// What stands for information about a server in the `_meta` of one of its results that was not approved: the name of
    /// the server in the configuration. A client may read any spelling of the key.
    pub(super) fn unapproved_info<'a>(
        &'a self,
        server: &'a ServerName,
        meta: Value<'a>,
    ) -> impl Iterator<Item = Replacement> + 'a {
        let is_enforced = self.policy.pins().mode == Mode::Enforce;
        let is_info = move |(key, _): &(Cow<'_, str>, Value<'_>)| {
            is_enforced && key.eq_ignore_ascii_case(meta_key::SERVER_INFO)
        };
        let told = meta.members().filter(is_info).map(|(_, info)| info);
        told.filter(move |info| !self.is_approved_info(server, *info)).map(move |info| {
            let mut json = br#"{"name":"#.to_vec();
            policy::json::write_string(&mut json, server.as_str());
            json.extend_from_slice(br#","version":""}"#);
            let json = String::from_utf8(json).unwrap_or_default();
            Replacement { span: info.span(), json }
        })
    }

    /// Whether an approved version of what `server` says of itself has this information.
    fn is_approved_info(&self, server: &ServerName, info: Value<'_>) -> bool {
        // A longer one would be hashed on a serving thread for too long, and nobody approves it.
        if info.raw().len() > wire::LARGE {
            return false;
        }
        let said = format!(r#"{{"serverInfo":{}}}"#, info.raw());
        let said = Document::parse(said.into(), &JsonBounds::ANSWER).ok();
        let fields =
            said.and_then(|said| Digest::of_fields(DigestSubject::Server, said.root()).ok());
        let field = fields.and_then(|fields| fields.first().map(|(_, digest)| *digest));
        self.policy.pins().unfit_field(server.as_str(), None, "serverInfo", field).is_none()
    }

    /// The information of a server as `caller` may see it, after the same inspection as any text of a server.
    async fn introducible(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        mut shown: ServerInfo,
    ) -> ServerInfo {
        let mut found = Vec::new();
        let info = shown.info.take();
        shown.info = self
            .heard(caller, server, (LabelledPart::Result, info), None, &mut found)
            .await
            .unwrap_or_default();
        let capabilities = shown.capabilities.clone();
        shown.capabilities = match self
            .heard(caller, server, (LabelledPart::Result, capabilities), None, &mut found)
            .await
        {
            Ok(capabilities) => capabilities,
            Err(_) => shown.usual_capabilities(),
        };
        for finding in &found {
            tracing::info!(server = %server.name(), %finding, "found in what a server says of itself");
        }
        shown
    }

    /// Whether a server's instructions are withheld: a model reads them, so they pass the detectors for definitions.
    /// Reported once per version of the information.
    fn withholds_instructions(&self, server: &Upstream, hello: &ServerInfo) -> bool {
        let Some(instructions) = &hello.instructions else { return false };
        let findings =
            policy::detection::inspect::text(instructions.value(), &WorkBudget::new(INSTRUCTIONS));
        let excused = self.policy.excused_of_server(server.name().as_str(), hello.digest);
        let withheld = self.policy.withholds_but(&findings, excused);
        if let Some(finding) = withheld {
            server.withheld_instructions(hello.digest, finding);
        }
        withheld.is_some()
    }
}
