//! Detects the protocol era of an upstream server, opens sessions with it, and reads its server information. Called
//! before the first request to a server and after its era may have changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use json::{Document, Fragment, JsonBounds, Value};
use policy::definition::offer::ItemKind;
use policy::definition::pin::{Digest, DigestSubject};
use tokio::time::Instant;

use super::answer::Incoming;
use super::channel_pool::ChannelPool;
use super::demux::ConnectionScope;
use super::request::{self, Outgoing, RequestContext};
use super::{OnBehalfOf, Transport, Upstream, UpstreamError};
use crate::base::random;
use crate::base::share::Share;
use crate::config::settings::ServerProtocol;
use crate::mcp::client_info::SKILLS;
use crate::mcp::protocol::{Era, ProtocolVersion, code, meta};
use crate::mcp::wire::{Object, ResponseOutcome};
use crate::session::UpstreamSession;
use crate::session::disclosed_client::DisclosedClient;

/// How long a program of unknown era may take to answer `server/discover`. A legacy program may never answer it.
///
/// SPEC 2026-07-28 basic/transports/stdio#backward-compatibility
const PROBE: Duration = Duration::from_secs(3);

/// Estimated overhead in bytes of a `known_by` entry: the key with the name and capabilities of the client, and the
/// allocator's.
const ENTRY_OVERHEAD: usize = 4096;

/// The information of a server: era, name, capabilities and instructions.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// The era of the answer.
    pub era: Era,
    /// `serverInfo`: the server's name and version.
    pub info: Option<Fragment>,
    /// `instructions` for a model. Must be inspected before they are shown.
    pub instructions: Option<Fragment>,
    /// How long this information is valid, in milliseconds; 0 if the server does not say.
    pub ttl: u64,
    /// The capabilities that the server declares.
    pub capabilities: Option<Fragment>,
    /// All of these members as one object, which is the definition that is approved.
    pub said: Option<Fragment>,
    /// The digest of `said`; `None` if a number in it has no canonical form.
    pub digest: Option<Digest>,
    /// The digest of each member of `said`.
    pub fields: Vec<(Box<str>, Digest)>,
}

/// The era and information of a server, valid until it is started again.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) server_info: Arc<ServerInfo>,
    pub(super) generation: u64,
    /// The gateway's own session with a legacy server.
    pub(super) upstream_session: Option<UpstreamSession>,
    /// When this was found out.
    pub(super) since: Instant,
}

/// The cached information of a server that is reached with the credentials of callers, for one caller.
#[derive(Clone, Debug)]
pub(super) struct CallerServerState {
    pub(super) known: Arc<ServerState>,
    /// The room it takes in the share of its caller; `None` for the gateway itself.
    _room: Option<Arc<Share<Arc<str>>>>,
}

impl ServerInfo {
    /// Memory in bytes: the documents it was parsed from, which it keeps alive, and the names of its members.
    fn memory(&self) -> usize {
        let mut documents: Vec<Arc<Document>> = Vec::new();
        let parts = [&self.info, &self.instructions, &self.capabilities, &self.said];
        for part in parts.into_iter().flatten() {
            let document = part.document();
            if !documents.iter().any(|known| Arc::ptr_eq(known, &document)) {
                documents.push(document);
            }
        }
        let names = self.fields.iter().map(|(name, _)| name.len() + size_of::<Digest>());
        documents.iter().map(|document| document.memory()).sum::<usize>() + names.sum::<usize>()
    }
}

impl Upstream {
    /// The era and information of the server, from the cache or requested first.
    pub(super) async fn known(
        &self,
        on_behalf: &OnBehalfOf,
    ) -> Result<Arc<ServerState>, UpstreamError> {
        let generation = match &self.transport {
            Transport::Http(_) => 0,
            Transport::Channel(pool) => {
                // No program is started for a request that the breaker would refuse.
                let mut pass = self.pass()?;
                let channel = Box::pin(pool.channel(None)).await;
                channel.inspect_err(|error| pass.refused(error))?.generation
            }
        };
        if self.per_caller_credentials {
            // The answer to one caller, or its refusal, says nothing about another's.
            let key = on_behalf.session_key();
            if let Some(known) = self.known_by.get(&key) {
                return Ok(known.known);
            }
            let known = Box::pin(self.detect_era(on_behalf, generation)).await?;
            // Without room in the cache it is requested again: slower, not wrong.
            let bytes = known.server_info.memory() + ENTRY_OVERHEAD;
            let room = on_behalf.caller().map(|caller| self.lists.take(&caller.into(), bytes));
            if let Ok(room) = room.transpose() {
                let entry =
                    CallerServerState { known: Arc::clone(&known), _room: room.map(Arc::new) };
                drop(self.known_by.insert(key, entry));
            }
            return Ok(known);
        }
        let current = || self.known.load_full().filter(|known| known.generation == generation);
        if let Some(known) = current() {
            return Ok(known);
        }
        // Boxed, because it is rare and large, and the futures of all calls would have room for it.
        let detect = || Box::pin(self.detect_era(on_behalf, generation));
        self.probing.take(self.limits.response_timeout, current, detect).await
    }

    /// Detects the era of the server and reads its information.
    async fn detect_era(
        &self,
        on_behalf: &OnBehalfOf,
        generation: u64,
    ) -> Result<Arc<ServerState>, UpstreamError> {
        // A legacy server may log errors for a method it does not know, so a known legacy era is tried first.
        let prefers_legacy =
            self.protocol == ServerProtocol::Auto && self.is_legacy.load(Ordering::Relaxed);
        let found = match self.protocol {
            ServerProtocol::Auto if prefers_legacy => Ok(None),
            ServerProtocol::Modern | ServerProtocol::Auto => {
                self.discover(on_behalf, generation, None).await
            }
            ServerProtocol::Legacy => Ok(None),
        };
        let found = match found {
            Ok(Some(known)) => Ok(known),
            Ok(None) if self.protocol == ServerProtocol::Modern => {
                Err(UpstreamError::Protocol("the server does not speak 2026-07-28"))
            }
            Ok(None) => {
                // In the gateway's own name, independent of which client is the first.
                let client = DisclosedClient::gateway();
                let ours = OnBehalfOf { client, ..on_behalf.clone() };
                let opened =
                    self.initialize(ProtocolVersion::LAST_LEGACY, &ours, None, generation).await;
                if opened.is_err() {
                    // The server may have been replaced, so its era is detected anew next time.
                    self.is_legacy.store(false, Ordering::Relaxed);
                }
                match opened {
                    // A server whose era was remembered has been replaced since.
                    Err(error) if prefers_legacy && may_be_other_era(&error) => {
                        let found = self.discover(on_behalf, generation, None).await;
                        found.and_then(|found| found.ok_or(error))
                    }
                    // A slow modern program received `server/discover` after all and has settled on the modern era.
                    Err(UpstreamError::Refused) if self.protocol == ServerProtocol::Auto => {
                        let found = self.discover(on_behalf, generation, None).await;
                        found.and_then(|found| found.ok_or(UpstreamError::Refused))
                    }
                    other => other,
                }
            }
            Err(error) => Err(error),
        };
        let known = Arc::new(self.noted(found)?);
        let legacy = self.protocol == ServerProtocol::Auto && known.server_info.era == Era::Legacy;
        self.is_legacy.store(legacy, Ordering::Relaxed);
        tracing::info!(
            event = "server.reached", server = %self.name, era = known.server_info.era.as_str(),
            "server reached"
        );
        if !self.per_caller_credentials {
            self.known.store(Some(Arc::clone(&known)));
            if self.met.swap(generation, Ordering::Relaxed) != generation {
                // The server may have been replaced by another.
                self.modern_alone.store(self.protocol == ServerProtocol::Modern, Ordering::Relaxed);
                self.replaced();
            }
        }
        Ok(known)
    }

    /// Sends `server/discover`; `None` if the server does not speak the modern era.
    ///
    /// SPEC 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions
    pub(super) async fn discover(
        &self,
        on_behalf: &OnBehalfOf,
        generation: u64,
        upstream_session: Option<&UpstreamSession>,
    ) -> Result<Option<ServerState>, UpstreamError> {
        let stdio = matches!(self.transport, Transport::Channel(_));
        // A legacy program may never answer. A program whose era is known, and a server at a URL, must.
        let probes = stdio && self.protocol == ServerProtocol::Auto && upstream_session.is_none();
        let (silence, patience) = match probes {
            true => (ServerSilence::Expected, PROBE),
            false => (ServerSilence::Failure, self.limits.response_timeout),
        };
        let id = self.id();
        let deadline = Instant::now() + patience;
        let speaker = RequestContext {
            upstream_session,
            subject: on_behalf.subject.as_ref(),
            path: on_behalf.path.as_ref(),
            ..RequestContext::unknown_era()
        };
        let mut asked = self.ask(&request::discover(id, speaker), id, deadline, silence).await;
        if let Ok((ResponseOutcome::Error(error), _)) = &asked
            && supports_ours(error)
        {
            // SPEC 2026-07-28 basic/versioning#protocol-version-negotiation: the error lists our revision as
            // supported, so the request is repeated once.
            let id = self.id();
            asked = self.ask(&request::discover(id, speaker), id, deadline, silence).await;
        }
        match asked {
            Ok((ResponseOutcome::Result(result), _)) => {
                let versions = result.value().get("supportedVersions");
                let ours = ProtocolVersion::V2026July.as_str();
                let speaks = versions.is_some_and(|versions| {
                    versions.items().any(|version| version.as_str().as_deref() == Some(ours))
                });
                let server_info = Arc::new(ServerInfo::read(Era::Modern, &result));
                Ok(speaks.then_some(ServerState {
                    server_info,
                    generation,
                    upstream_session: None,
                    since: Instant::now(),
                }))
            }
            Ok((ResponseOutcome::Error(error), _)) => {
                let code = error.value().get("code").and_then(Value::as_i64);
                let modern = [code::HEADER_MISMATCH, code::MISSING_CAPABILITY].map(i64::from);
                if code.is_some_and(|code| modern.contains(&code)) {
                    return Err(UpstreamError::Protocol(
                        "the server rejected `server/discover` (header mismatch or \
                                                        missing capability)",
                    ));
                }
                Ok(None)
            }
            Err(UpstreamError::Timeout(_)) if probes => Ok(None),
            Err(error) if may_be_other_era(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Inherits the era found by `former`, the same server under the previous configuration.
    pub(crate) fn succeed(&self, former: &Self) {
        let legacy = former.is_legacy.load(Ordering::Relaxed);
        self.is_legacy.store(legacy, Ordering::Relaxed);
    }

    /// Opens a session with a legacy server in the name of `on_behalf`'s client. `channel` names the session's own
    /// channel, where it has one.
    ///
    /// SPEC 2025-11-25 basic/lifecycle#initialization
    pub(super) async fn initialize(
        &self,
        version: ProtocolVersion,
        on_behalf: &OnBehalfOf,
        channel: Option<&str>,
        generation: u64,
    ) -> Result<ServerState, UpstreamError> {
        let id = self.id();
        let deadline = Instant::now() + self.limits.response_timeout;
        let asked = self
            .ask(
                &request::initialize(id, version, on_behalf, channel),
                id,
                deadline,
                ServerSilence::Failure,
            )
            .await?;
        let (ResponseOutcome::Result(result), session) = asked else {
            return Err(UpstreamError::Refused);
        };
        let session = session.or_else(|| channel.map(Into::into));
        let agreed = result.value().get("protocolVersion").and_then(Value::as_str);
        let agreed = agreed.and_then(|text| ProtocolVersion::parse(&text));
        let Some(version) = agreed.filter(|version| version.era() == Era::Legacy) else {
            return Err(UpstreamError::Protocol(
                "unsupported `protocolVersion` in the `initialize` result",
            ));
        };
        let upstream_session = UpstreamSession { version, id: session };
        self.notify(&request::initialized(on_behalf, &upstream_session), deadline).await?;
        let server_info = Arc::new(ServerInfo::read(Era::Legacy, &result));
        Ok(ServerState {
            server_info,
            generation,
            upstream_session: Some(upstream_session),
            since: Instant::now(),
        })
    }

    /// Opens a session that the gateway keeps for a caller.
    pub(super) async fn session_for(
        &self,
        on_behalf: &OnBehalfOf,
    ) -> Result<UpstreamSession, UpstreamError> {
        let opened =
            self.session(ProtocolVersion::LAST_LEGACY, on_behalf, ConnectionScope::Caller).await?;
        opened.upstream_session.ok_or(UpstreamError::SessionGone)
    }

    /// Opens a session for one client: in the legacy era for a legacy client where the server speaks it, otherwise in
    /// the era of the server.
    pub(super) async fn session(
        &self,
        version: ProtocolVersion,
        on_behalf: &OnBehalfOf,
        serves: ConnectionScope,
    ) -> Result<ServerState, UpstreamError> {
        let Transport::Channel(pool) = &self.transport else {
            return self.initialize(version, on_behalf, None, 0).await;
        };
        if self.known(on_behalf).await?.server_info.era == Era::Legacy {
            let name = self.seat_for(pool, on_behalf, serves).await?;
            let opened = self.initialize(version, on_behalf, Some(&name), 0).await;
            return opened.inspect_err(|_| pool.close(&name));
        }
        // A legacy client gets a session in its own era where the program speaks it too.
        if serves == ConnectionScope::Session
            && let Some(opened) = self.try_legacy_handshake(pool, version, on_behalf).await?
        {
            return Ok(opened);
        }
        let name = self.seat_for(pool, on_behalf, serves).await?;
        let upstream_session =
            UpstreamSession { version: ProtocolVersion::V2026July, id: Some(name.as_str().into()) };
        let found = self.discover(on_behalf, 0, Some(&upstream_session)).await;
        let opened = found.and_then(|found| found.ok_or(UpstreamError::Refused));
        let opened =
            opened.map(|known| ServerState { upstream_session: Some(upstream_session), ..known });
        opened.inspect_err(|_| pool.close(&name))
    }

    /// Opens a channel for a session of `on_behalf`, and returns its random name.
    async fn seat_for(
        &self,
        pool: &ChannelPool,
        on_behalf: &OnBehalfOf,
        serves: ConnectionScope,
    ) -> Result<String, UpstreamError> {
        let name = random::bytes::<16>().map_err(|_opaque| UpstreamError::Stalled)?;
        let name = json::hex::encode(&name);
        let mut pass = self.pass()?;
        pool.open(&name, on_behalf, serves).await.inspect_err(|error| pass.refused(error))?;
        Ok(name)
    }

    /// Opens a legacy session with a program that speaks the modern era, in a separate process because a program
    /// speaks one era on each connection. `None` if it speaks the modern era only.
    async fn try_legacy_handshake(
        &self,
        pool: &ChannelPool,
        version: ProtocolVersion,
        on_behalf: &OnBehalfOf,
    ) -> Result<Option<ServerState>, UpstreamError> {
        if self.modern_alone.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let name = self.seat_for(pool, on_behalf, ConnectionScope::Session).await?;
        match self.initialize(version, on_behalf, Some(&name), 0).await {
            Ok(opened) => Ok(Some(opened)),
            Err(error) => {
                pool.closed(&name).await;
                let refused = matches!(
                    error,
                    UpstreamError::Refused | UpstreamError::Protocol(_) | UpstreamError::Timeout(_)
                );
                if !refused {
                    return Err(error);
                }
                let why = crate::base::error_chain::ErrorChain(&error);
                tracing::info!(
                    event = "server.modern_only", server = %self.name, error = %why,
                    "the program supports the modern era only"
                );
                self.modern_alone.store(true, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    /// Opens a legacy session in a separate process of a program that callers otherwise share. `None` if that fails
    /// or the program speaks only one era; the client then uses the shared process.
    pub(super) async fn legacy_session_in_own_process(
        &self,
        pool: &ChannelPool,
        version: ProtocolVersion,
        on_behalf: &OnBehalfOf,
    ) -> Option<ServerState> {
        let opened = async {
            match self.known(on_behalf).await?.server_info.era {
                Era::Modern => self.try_legacy_handshake(pool, version, on_behalf).await,
                Era::Legacy => Ok(None),
            }
        };
        let opened = self.noted(opened.await);
        opened.unwrap_or_else(|error| {
            let error = crate::base::error_chain::ErrorChain(&error);
            tracing::warn!(
                event = "server.process_shared", server = %self.name, %error,
                "no separate process for a legacy session: server requests of the program are refused"
            );
            None
        })
    }

    /// Opens a legacy session with a server that speaks the modern era, as a legacy client would get it. `None` if
    /// the server speaks the modern era only, or if legacy clients share one session with it.
    pub(super) async fn legacy_session(
        &self,
        on_behalf: &OnBehalfOf,
    ) -> Result<Option<ServerState>, UpstreamError> {
        let version = ProtocolVersion::LAST_LEGACY;
        match &self.transport {
            Transport::Http(_) => {
                match self.session(version, on_behalf, ConnectionScope::Session).await {
                    Ok(opened) => Ok(Some(opened)),
                    Err(UpstreamError::Status(400..500) | UpstreamError::Refused) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            Transport::Channel(pool) if pool.may_be_own(!self.server_requests.is_nothing()) => {
                self.try_legacy_handshake(pool, version, on_behalf).await
            }
            Transport::Channel(_) => Ok(None),
        }
    }

    /// Sends a request and waits for its outcome. Also returns the session id of the response.
    async fn ask(
        &self,
        outgoing: &Outgoing<'_>,
        id: i64,
        deadline: Instant,
        silence: ServerSilence,
    ) -> Result<(ResponseOutcome, Option<Box<str>>), UpstreamError> {
        let mut messages = self.send(outgoing, deadline).await?;
        if silence == ServerSilence::Expected {
            messages.pass.excuse();
        }
        let session = match &mut messages.incoming {
            Incoming::Http(answer, _) => answer.session.take(),
            Incoming::Channel(_) => None,
        };
        // Before the era is known, a request of the server cannot be answered in it.
        let outcome = self
            .wait(
                &mut messages,
                id,
                RequestContext { subject: outgoing.subject, ..RequestContext::unknown_era() },
                deadline,
            )
            .await?;
        self.done(messages);
        Ok((outcome, session))
    }
}

/// What it means that a server does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerSilence {
    /// Nothing: a legacy program may not answer a request of the modern era.
    Expected,
    /// That it has failed.
    Failure,
}

/// Whether this error to a request in one era may mean that the server speaks the other era.
const fn may_be_other_era(error: &UpstreamError) -> bool {
    matches!(
        error,
        UpstreamError::Status(400..500)
            | UpstreamError::ContentType
            | UpstreamError::Message(_)
            | UpstreamError::Protocol(_)
            | UpstreamError::ListError(_)
            | UpstreamError::Refused
    )
}

/// Whether the error of a server that rejects the revision of a request lists ours as supported.
fn supports_ours(error: &Fragment) -> bool {
    let code = error.value().get("code").and_then(Value::as_i64);
    let supported = error.value().get("data").and_then(|data| data.get("supported"));
    let ours = |version: Value<'_>| {
        version.as_str().as_deref() == Some(ProtocolVersion::V2026July.as_str())
    };
    code == Some(i64::from(code::UNSUPPORTED_VERSION))
        && supported.is_some_and(|supported| supported.items().any(ours))
}

impl ServerInfo {
    fn read(era: Era, result: &Fragment) -> Self {
        let document = result.document();
        let value = result.value();
        let info = match era {
            Era::Modern => value.get("_meta").and_then(|meta| meta.get(meta::SERVER_INFO)),
            Era::Legacy => value.get("serverInfo"),
        };
        let object = |value: &Value<'_>| value.is_object();
        let info = info.filter(object);
        let instructions = value.get("instructions").filter(|text| text.as_str().is_some());
        let capabilities = value.get("capabilities").filter(object);
        // The definition has the same form in both eras.
        let said = object_of([
            ("capabilities", capabilities),
            ("instructions", instructions),
            ("serverInfo", info),
        ]);
        let of = |said: &Fragment| Digest::of(DigestSubject::Server, said.value()).ok();
        let fields = |said: &Fragment| Digest::of_fields(DigestSubject::Server, said.value()).ok();
        Self {
            era,
            digest: said.as_ref().and_then(of),
            fields: said.as_ref().and_then(fields).unwrap_or_default(),
            said,
            info: info.map(|info| info.fragment(&document)),
            instructions: instructions.map(|text| text.fragment(&document)),
            ttl: value
                .get("ttlMs")
                .and_then(Value::as_i64)
                .and_then(|ttl| u64::try_from(ttl).ok())
                .unwrap_or(0),
            capabilities: capabilities.map(|capabilities| capabilities.fragment(&document)),
        }
    }

    /// The capabilities that clients need to use what the policy controls, and no others.
    #[must_use]
    pub fn usual_capabilities(&self) -> Option<Fragment> {
        let all = self.capabilities.as_ref()?.value();
        let mut out = Vec::new();
        let mut object = Object::open(&mut out);
        for (name, value) in USUAL.iter().filter_map(|name| Some((name, all.get(name)?))) {
            let mut flags = Object::open(object.key(name));
            let on = |flag: &&&str| value.get(flag).and_then(Value::as_bool) == Some(true);
            FLAGS.iter().filter(on).for_each(|flag| flags.raw(flag, "true"));
            flags.close();
        }
        if self.has(ItemKind::Skill) {
            let mut extensions = Object::open(object.key("extensions"));
            extensions.raw(SKILLS, "{}");
            extensions.close();
        }
        object.close();
        let document = Document::parse(out.into(), &JsonBounds::ANSWER).ok()?;
        Some(Fragment::whole(Arc::new(document)))
    }

    /// Whether the server declares the capability for a kind.
    #[must_use]
    pub fn has(&self, kind: ItemKind) -> bool {
        let member = match kind {
            ItemKind::Tool | ItemKind::Method => "tools",
            ItemKind::Prompt => "prompts",
            ItemKind::Resource | ItemKind::Template => "resources",
            ItemKind::Skill => return self.has_extension(SKILLS),
        };
        let capabilities = self.capabilities.as_ref().map(Fragment::value);
        capabilities.is_some_and(|capabilities| capabilities.get(member).is_some())
    }

    fn has_extension(&self, name: &str) -> bool {
        let capabilities = self.capabilities.as_ref().map(Fragment::value);
        let extensions = capabilities.and_then(|capabilities| capabilities.get("extensions"));
        extensions.is_some_and(|extensions| extensions.get(name).is_some())
    }

    /// The digest of the member `name`.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Digest> {
        self.fields.iter().find(|(known, _)| **known == *name).map(|(_, digest)| *digest)
    }
}

/// The capabilities whose use is subject to a policy decision of its own.
const USUAL: [&str; 4] = ["tools", "prompts", "resources", "completions"];

/// The boolean members that are kept of these capabilities.
const FLAGS: [&str; 2] = ["listChanged", "subscribe"];

/// Joins these members into one object.
fn object_of<const N: usize>(parts: [(&str, Option<Value<'_>>); N]) -> Option<Fragment> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    for (name, value) in parts {
        if let Some(value) = value {
            object.raw(name, value.raw());
        }
    }
    object.close();
    // INVARIANT: its parts were read by the same reader within the same bounds.
    let document = Document::parse(out.into(), &JsonBounds::ANSWER).ok()?;
    Some(Fragment::whole(Arc::new(document)))
}
