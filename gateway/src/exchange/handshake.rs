//! `server/discover`, `initialize` and the end of a session.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use detection::inspect::Finding;
use detection::labels::LabelledPart;
use futures_util::future::join_all;
use http::{HeaderValue, Response, StatusCode};
use json::{Document, Fragment, JsonBounds, Value};
use policy::definition::offer::ItemKind;
use policy::definition::pin::{Digest, DigestSubject};
use policy::engine::pipeline::{EarlyMessage, Facts, ServerPermit, Shown};
use policy::rules::decision::Mode;
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::list::of_servers;
use super::{DecodedRequest, Gateway};
use crate::audit::Record;
use crate::edge::encode::{self, Replacement};
use crate::edge::failure::Failure;
use crate::edge::server_info::{DescribedServer, ServerDescription, ShownServerInfo};
use crate::mcp::protocol::{Era, header, meta as meta_key};
use crate::mcp::wire::{self, Id};
use crate::metrics::outcome::ExchangeEnd;
use crate::session::UpstreamSession;
use crate::session::disclosed_client::DisclosedClient;
use crate::stream::body::Body;
use crate::upstream::{OnBehalfOf, ServerInfo, Upstream, UpstreamError};

/// A server, with its information or the error, and whether callers share its sessions.
type HandshakeReply<'a> = (&'a Arc<Upstream>, Result<(Arc<ServerInfo>, bool), UpstreamError>);

/// How long the end of a session waits for the servers.
const FAREWELL: Duration = Duration::from_secs(2);
/// Budget for inspecting a server's instructions, in work units: enough for about 80 KiB.
const INSTRUCTIONS: u64 = 8 << 20;
/// How many times as long as for a list a handshake waits for a server: a server that begins slowly has to be reached once.
const LISTS: u32 = 3;
/// Stands in for the id of a request; every request has an id by the time it is answered.
const NO_ID: Id = Id::Number(0);

/// What a server answers within `patience`, if there is such a limit.
async fn in_time<T>(
    patience: Option<Duration>,
    asked: impl Future<Output = Result<T, UpstreamError>>,
) -> Result<T, UpstreamError> {
    match patience {
        None => asked.await,
        Some(patience) => {
            timeout(patience, asked).await.unwrap_or(Err(UpstreamError::Timeout(patience)))
        }
    }
}

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
        let asked = servers.map(|(server_index, server, permit)| {
            let on_behalf = arrived.on_behalf(server_index);
            let patience = self.handshake_patience(&arrived);
            async move {
                let asked = server.server_info(permit, on_record, &on_behalf);
                (server, in_time(patience, asked).await)
            }
        });
        let started = self.clock.instant();
        let asked = join_all(asked).await.into_iter();
        entry.wait_before_send += self.since(started);
        let asked = asked.map(|(server, server_info)| {
            let shared = |server_info: Arc<ServerInfo>| {
                let shared = server.is_shared(server_info.era);
                (server_info, shared)
            };
            (server, server_info.map(shared))
        });
        match self.presented(&arrived, asked.collect(), &mut entry).await {
            Ok(servers) => {
                let ttl = servers.iter().map(|server| server.said.ttl).min().unwrap_or(0);
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
        let gateway = DisclosedClient::gateway();
        let client = arrived.client.as_ref().unwrap_or(&gateway);
        let on_record = &entry;
        let opening = self.granted(&arrived).map(|(server_index, server, permit)| {
            let on_behalf = OnBehalfOf {
                client: server.introduced(client.clone()),
                ..arrived.on_behalf(server_index)
            };
            let patience = self.handshake_patience(&arrived);
            async move {
                let opened = server.open(permit, on_record, version, &on_behalf);
                (server_index, server, in_time(patience, opened).await)
            }
        });
        let started = self.clock.instant();
        let opened = join_all(opening).await;
        entry.wait_before_send += self.since(started);
        let mut upstream_sessions: Vec<(u8, UpstreamSession)> = Vec::new();
        let server_infos = opened.into_iter().map(|(server_index, server, opened)| {
            let server_info = opened.map(|(server_info, upstream_session)| {
                let shared = upstream_session.is_none() && server.is_shared(server_info.era);
                upstream_sessions.extend(u8::try_from(server_index).ok().zip(upstream_session));
                (server_info, shared)
            });
            (server, server_info)
        });
        let server_infos = server_infos.collect();
        let servers = match self.presented(&arrived, server_infos, &mut entry).await {
            Ok(servers) => servers,
            Err(failure) => return self.failed(entry, &failure, Some(&id)),
        };
        let (principal, route) = (&arrived.caller.principal, arrived.route.identity());
        let sealed = self.sessions.seal(principal, route, version, client, &upstream_sessions);
        let sealed = sealed.and_then(|sealed| {
            HeaderValue::try_from(sealed).map_err(|_opaque| crate::session::SessionError::Seal)
        });
        let sealed = match sealed {
            Ok(sealed) => sealed,
            Err(error) => return self.failed(entry, &Failure::Session(error), Some(&id)),
        };
        let mut response = ServerDescription::new(&servers, Era::Legacy).initialized(&id, version);
        response.headers_mut().insert(&header::SESSION, sealed);
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
        self.session_states.end(session.key);
        self.unload(arrived, &entry);
        let age = self.sessions.age(session);
        self.metrics.session(age);
        let (ended, mut all_ended) = mpsc::channel::<()>(1);
        for (server_index, server) in arrived.route.servers.iter().enumerate() {
            if let Some(upstream_session) = arrived.upstream_session(server_index).cloned() {
                let (server, ended) = (Arc::clone(server), ended.clone());
                let on_behalf = arrived.on_behalf(server_index);
                self.tasks.spawn(async move {
                    server.close(&on_behalf, &upstream_session, age).await;
                    drop(ended);
                });
            }
        }
        drop(ended);
        // The session has ended for the client even if a server does not answer in time.
        drop(timeout(FAREWELL, all_ended.recv()).await);
        self.shown(entry, ExchangeEnd::answered(), None, encode::empty(StatusCode::OK))
    }

    /// How long a handshake waits for each server: a slow one must not delay the others for long. `None` without a limit of its
    /// own, where there is no other.
    fn handshake_patience(&self, arrived: &DecodedRequest) -> Option<Duration> {
        (arrived.route.servers.len() > 1).then_some(self.limits.list_timeout * LISTS)
    }

    /// The servers of the route that the caller may use, with their indexes and permits. Of any other server the caller
    /// learns nothing, and it causes no request to it.
    fn granted<'a>(
        &'a self,
        arrived: &'a DecodedRequest,
    ) -> impl Iterator<Item = (usize, &'a Arc<Upstream>, ServerPermit)> {
        let (facts, principal) = (&arrived.facts, &*arrived.caller.principal);
        arrived.route.servers.iter().enumerate().filter_map(move |(server_index, server)| {
            let permit = self.policy.admit_server(facts, principal, server.name())?;
            Some((server_index, server, permit))
        })
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
        for (server, server_info) in asked {
            let (server_info, shared) = match server_info {
                Ok(found) => found,
                Err(error) if self.is_identity_mismatch(server, &error) => continue,
                Err(error) => {
                    failed.push((server, error));
                    continue;
                }
            };
            server.compare(&server_info);
            // As they are now: reading and comparing the information may have added approvals.
            let facts = self.policy.facts();
            let may = |kind: &ItemKind| {
                self.policy.may_list(&facts, principal, server.name(), *kind).is_granted()
            };
            let granted = ItemKind::RULED.into_iter().filter(may).collect();
            let approved = approved(&facts, server, &server_info);
            let said = self.introducible(&facts, principal, server, approved).await;
            let (name, keeps) = (server.name().as_str().into(), self.policy.keeps(server.name()));
            let apps = self.policy.shows_apps(server.name());
            let loads = arrived.route.loads().is_some();
            servers.push(DescribedServer { name, said, granted, shared, keeps, apps, loads });
        }
        if servers.is_empty()
            && let Some(failure) = of_servers(failed, record)
        {
            return Err(failure);
        }
        Ok(servers)
    }

    /// What stands for information about a server in the `_meta` of one of its results that was not approved: the name of
    /// the server in the configuration. A client may read any spelling of the key.
    pub(super) fn unapproved_info<'a>(
        &'a self,
        server: &'a ServerName,
        meta: Value<'a>,
    ) -> impl Iterator<Item = Replacement> + 'a {
        let facts = self.policy.facts();
        let is_enforced = facts.pins().mode == Mode::Enforce;
        let is_info = move |(key, _): &(Cow<'_, str>, Value<'_>)| {
            is_enforced && key.eq_ignore_ascii_case(meta_key::SERVER_INFO)
        };
        let told = meta.members().filter(is_info).map(|(_, info)| info);
        told.filter(move |info| !is_approved_info(&facts, server, *info))
            .map(move |info| Replacement::server_info(info.span(), server))
    }

    /// The information of a server as `caller` may see it, after the same inspection as any text of a server.
    async fn introducible(
        &self,
        facts: &Facts,
        caller: &Arc<Principal>,
        server: &Upstream,
        said: ServerInfo,
    ) -> ShownServerInfo {
        let mut found = Vec::new();
        let usual = said.usual_capabilities();
        let instructions = self.released_instructions(facts, server, &said);
        let ServerInfo { era, ttl, info, capabilities, .. } = said;
        let info = self.heard_part(caller, server, info, &mut found).await.unwrap_or_default();
        let capabilities = match self.heard_part(caller, server, capabilities, &mut found).await {
            Ok(capabilities) => capabilities,
            Err(_) => self.heard_part(caller, server, usual, &mut found).await.unwrap_or_default(),
        };
        for finding in &found {
            tracing::info!(
                event = "server_info.finding", server = %server.name(), %finding,
                "finding in the server information"
            );
        }
        ShownServerInfo { era, ttl, info, instructions, capabilities }
    }

    /// A part of a server's information as `caller` may see it.
    async fn heard_part(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        part: Option<Fragment>,
        found: &mut Vec<Finding>,
    ) -> Result<Option<Shown>, Finding> {
        let Some(said) = part else { return Ok(None) };
        let told = EarlyMessage { part: LabelledPart::Result, said };
        self.heard(caller, server, told, None, found).await
    }

    /// The instructions of a server, unless they are withheld. That is reported once per version of the information.
    fn released_instructions(
        &self,
        facts: &Facts,
        server: &Upstream,
        said: &ServerInfo,
    ) -> Option<Shown> {
        let (name, instructions) = (server.name(), said.instructions.clone()?);
        let budget = WorkBudget::new(INSTRUCTIONS);
        let released =
            self.policy.release_instructions(facts, name, said.digest, instructions, &budget);
        match released {
            Ok((shown, suspect)) => {
                if let Some(finding) = suspect {
                    server.suspect_instructions(said.digest, &finding);
                }
                Some(shown)
            }
            Err(finding) => {
                server.withheld_instructions(said.digest, &finding);
                None
            }
        }
    }
}

/// The information of a server without what is not pinned. Capabilities that clients need to use approved definitions
/// are kept: each use is decided on its own.
fn approved(facts: &Facts, server: &Upstream, server_info: &ServerInfo) -> ServerInfo {
    let pins = facts.pins();
    let name = server.name().as_str();
    let unfit = |part: &str| {
        let field = server_info.field(part);
        pins.mode == Mode::Enforce
            && pins.unfit_field(name, server_info.digest, part, field).is_some()
    };
    let mut shown = server_info.clone();
    if server_info.instructions.is_some() && unfit("instructions") {
        shown.instructions = None;
    }
    if server_info.info.is_some() && unfit("serverInfo") {
        shown.info = None;
    }
    if server_info.capabilities.is_some() && unfit("capabilities") {
        shown.capabilities = shown.usual_capabilities();
    }
    shown
}

/// Whether an approved version of what `server` says of itself has this information.
fn is_approved_info(facts: &Facts, server: &ServerName, info: Value<'_>) -> bool {
    // A longer one would be hashed on a serving thread for too long, and nobody approves it.
    if info.raw().len() > wire::LARGE {
        return false;
    }
    let said = format!(r#"{{"serverInfo":{}}}"#, info.raw());
    let said = Document::parse(said.into(), &JsonBounds::ANSWER).ok();
    let fields = said.and_then(|said| Digest::of_fields(DigestSubject::Server, said.root()).ok());
    let field = fields.and_then(|fields| fields.first().map(|(_, digest)| *digest));
    facts.pins().unfit_field(server.as_str(), None, "serverInfo", field).is_none()
}
