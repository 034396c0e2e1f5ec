//! One exchange, from the client's request to the client's answer.
//!
//! Read [`Gateway::exchange`] first, then [`Gateway::arrive`] and [`Gateway::make_use`]: each line
//! needs what the line above made, and none can be left out.

mod oauth_metadata;
mod stream_expiry;
mod route;
mod http_headers;
mod record;
mod state;
mod event_sink;
mod cancellation;
mod guardrails;
mod resource_links;
mod in_flight_call;
mod inspection;
mod inspect_inbound;
mod unsolicited;
mod answers;
mod questions;
mod checked_clients;
mod disclosed_client;
mod offload;
mod elicitation;
mod capture;
mod call;
mod tasks;
mod list;
mod subscribe;
mod handshake;
mod notifications;
mod batch;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use policy::control::Control;
use policy::decision::{Denial, Reason};
use policy::json::Bounds;
use policy::offer::Kind;
use policy::pins::Unfit;
use policy::pipeline::Policy;
use policy::principal::Principal;
use policy::work::{Budget, USUAL_MOST};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::audit::{Journal, Record};
use crate::base::bounded::Bounded;
use crate::base::clock::Clock;
use crate::base::share::{Holder, Share};
use crate::base::task::Tasks;
use crate::config::quota::{Quota, Quotas};
use crate::config::settings::{Capture, Limits};
use crate::crypto::sealer::Sealer;
use crate::crypto::x509::Certificate;
use crate::edge::admission::{Door, Peer};
use crate::edge::decode::{self, Ask, Inbound};
use crate::edge::encode;
use crate::edge::failure::{Astray, Failure, Stranger};
use crate::identity::resource::{Resource, Wrong};
use crate::identity::{Asked, AuthnError, Caller, Identity, TokenError, Told, told};
use crate::mcp::client_info::Client;
use crate::mcp::protocol::{Era, header, method};
use crate::mcp::wire::headers::{Single, single};
use crate::mcp::wire::{self, DecodeError, Id, Message};
use crate::metrics::Metrics;
use crate::net::http2::{UntilSent, WINDOW_OF_STRANGERS};
use crate::session::rate_limiter::Rates;
use crate::session::result_store::Results;
use crate::session::state::Conversations;
use crate::session::{Leg, Session, SessionError, SessionKey, Sessions};
use crate::stream::body::{Body, Pieces};
use crate::telemetry::Telemetry;
use crate::upstream::{Party, Subject, Upstream, UpstreamError};

pub use checked_clients::Introductions;
pub use elicitation::Parked;
use http_headers::framed;
use in_flight_call::Call;
pub use route::Route;

/// How often [`Gateway::sweep`] is due.
pub const SWEEP: Duration = Duration::from_secs(5);

/// The parts an exchange runs through.
#[derive(Debug)]
pub struct Gateway {
    /// Who is asking?
    pub identity: Arc<Identity>,
    /// In which conversation?
    pub sessions: Arc<Sessions>,
    /// On which way?
    pub routes: HashMap<Box<str>, Arc<Route>>,
    /// May it be?
    pub policy: Arc<Policy>,
    /// What clients said of themselves, and was found to pass under this policy.
    pub introductions: Introductions,
    /// Under which configuration: its digest, in every record.
    pub configuration: Arc<str>,
    /// What was decided, and what came of it?
    pub journal: Arc<Journal>,
    /// What of contents is on record, if anything?
    pub capture: Option<Capture>,
    /// How much?
    pub limits: Limits,
    /// How much of it one caller may take.
    pub quotas: Arc<Quotas>,
    /// The digest of the rules, where the file has any.
    pub rules: Option<[u8; 32]>,
    /// When?
    pub clock: Arc<dyn Clock>,
    /// How often, and how long?
    pub metrics: Arc<Metrics>,
    /// As a part of what?
    pub telemetry: Arc<Telemetry>,
    /// Who finishes what a client no longer waits for?
    pub tasks: Tasks,
    /// Calls of legacy sessions that can be cancelled.
    pub calls: Arc<Bounded<(SessionKey, Id), CancellationToken>>,
    /// What is remembered of legacy sessions in use.
    pub conversations: Arc<Conversations>,
    /// Calls that wait for a modern client.
    pub parking: Arc<Bounded<[u8; 16], Parked>>,
    /// Results that are too long for an answer.
    pub results: Arc<Results>,
    /// Seals what clients carry for us.
    pub sealer: Arc<Sealer>,
    /// How often callers have called what the registry counts.
    pub rates: Arc<Rates>,
    /// Told when something is revoked.
    pub revoking: watch::Sender<()>,
    /// What serves this configuration ends with the last exchange under it.
    pub ending: DropGuard,
}

/// A request that may be looked at: known, framed, read, and bound to its conversation.
#[derive(Debug)]
struct Arrived {
    caller: Caller,
    /// Whose share it takes.
    holder: Holder,
    route: Arc<Route>,
    session: Option<Session>,
    inbound: Inbound,
    id: Option<Id>,
    /// It came with others in one body.
    batched: bool,
    /// Through which door it came.
    door: Arc<Door>,
}

/// A request before it is known what it says.
struct Knocked {
    caller: Caller,
    holder: Holder,
    route: Arc<Route>,
    head: Parts,
    body: Bytes,
    door: Arc<Door>,
}

impl Gateway {
    /// Runs one exchange. Whatever happens, it is on record once.
    pub async fn exchange<B>(
        self: Arc<Self>,
        door: Arc<Door>,
        peer: Peer,
        request: Request<B>,
        mut place: Place,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if self.journal.is_waited_for() {
            Box::pin(self.journal.room()).await;
        }
        let mut record = self.record(&door, &peer);
        let (head, mut body) = request.into_parts();
        let arriving = (head, &mut body, &mut place);
        let knocked = match self.knock(&door, &peer, arriving, &mut record).await {
            Ok(knocked) => knocked,
            Err(failure) => {
                // Whoever is not let in takes no place from those who are.
                let unsent = place.until_sent();
                drop(place);
                let whole = failure.comes_before_the_body() && drained(body).await;
                let refused = encode::last_unless(whole, self.refuse(&record, &failure));
                return kept_until_sent(refused, unsent);
            }
        };
        let unsent = place.until_sent();
        if self.is_batch(&knocked) {
            let answered = self.batch(&door, &peer, knocked, (record, place)).await;
            return kept_until_sent(answered, unsent);
        }
        let arrived = match self.arrive(knocked, &mut place, &mut record).await {
            Ok(arrived) => arrived,
            Err(failure) => return kept_until_sent(self.refuse(&record, &failure), unsent),
        };
        let (caller, route) = (arrived.caller.clone(), Arc::clone(&arrived.route));
        let gateway = Arc::clone(&self);
        let answered = self.answer(arrived, record, place).await;
        gateway.leased(caller, route, kept_until_sent(answered, unsent))
    }

    /// Answers what may be looked at.
    async fn answer(
        self: Arc<Self>,
        mut arrived: Arrived,
        record: Box<Record>,
        place: Place,
    ) -> Response<Body> {
        let era = arrived.inbound.version.era();
        match std::mem::replace(&mut arrived.inbound.ask, Ask::Notice) {
            Ask::Use(ask) if era == Era::Legacy => {
                // SPEC 2025-11-25 basic/transports: a client that hangs up has not cancelled.
                let tasks = self.tasks.clone();
                cancellation::detached(Box::pin(self.make_use(arrived, ask, record, place)), tasks)
                    .await
            }
            Ask::Use(ask) => Box::pin(self.make_use(arrived, ask, record, place)).await,
            Ask::List(kind) => self.list(arrived, kind, record).await,
            Ask::Listen(filter) => self.listen(arrived, filter, record, place).await,
            Ask::Stream(last) => self.stream(arrived, last, record).await,
            Ask::Discover => self.discover(arrived, record).await,
            Ask::Initialize => self.initialize(arrived, record).await,
            Ask::End => self.end(&arrived, record).await,
            Ask::Level(level) => self.set_level(arrived, level, record).await,
            Ask::Tell(ask) => self.tell(arrived, ask, record, place).await,
            Ask::RootsChanged => self.roots_changed(arrived, record).await,
            Ask::Answer(id, outcome) => self.answered(&arrived, &id, outcome, &record),
            Ask::Cancel(id) => self.cancel(&arrived, id, &record),
            Ask::Ping | Ask::Notice => self.acknowledge(&arrived, &record),
        }
    }

    /// Everything that is asked before the body is read.
    async fn knock<B>(
        &self,
        door: &Arc<Door>,
        peer: &Peer,
        (head, body, place): (Parts, &mut B, &mut Place),
        record: &mut Record,
    ) -> Result<Knocked, Failure>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let route = self.routes.get(head.uri.path()).cloned();
        // Before it is known who asks: records of callers that are refused say where they tried.
        record.route = route.as_ref().map(|route| Arc::clone(&route.path));
        record.http_method = (!door.plain).then(|| http_headers::named(&head.method)).flatten();
        let unread = self.unread(peer, body)?;
        let caller = self.identify(door, peer, head.uri.path(), &head, record).await?;
        drop(unread);
        let route = route.ok_or_else(|| Failure::Route(self.astray(head.uri.path())))?;
        framed(&head)?;
        let holder = Self::holder(&caller, peer);
        // To end a session is to give back what it holds: nobody has too little left for that.
        if head.method != Method::DELETE {
            self.belongs(place, &holder)?;
        }
        let body = match head.method {
            Method::POST => self.body(body, &holder, place).await?,
            _ => Bytes::new(),
        };
        record.bytes_in = body.len();
        self.signed(door, &caller, &head, &body)?;
        Ok(Knocked { caller, holder, route, head, body, door: Arc::clone(door) })
    }

    /// Everything that is asked before anything is done.
    async fn arrive(
        &self,
        knocked: Knocked,
        place: &mut Place,
        record: &mut Record,
    ) -> Result<Arrived, Failure> {
        let Knocked { caller, holder, route, head, body, door } = knocked;
        record.ran.note(Control::Message);
        if head.method != Method::POST {
            record.ran.note(Control::Session);
            let session = self.bind(&caller, &route, &head)?;
            let last = match single(&head.headers, header::LAST_EVENT) {
                Single::Absent => None,
                Single::Value(last) => Some(last.into()),
                Single::Bad => return Err(Failure::Replay),
            };
            let ask = if head.method == Method::GET { Ask::Stream(last) } else { Ask::End };
            record.version = Some(session.version);
            let inbound =
                Inbound { version: session.version, ask, client: None, parents: Box::default() };
            let (id, batched, session) = (None, false, Some(session));
            return Ok(Arrived { caller, holder, route, session, inbound, id, batched, door });
        }
        let (id, message) = identified(wire::decode_any(body, &Bounds::MESSAGE).await, record)?;
        place.indexed(message.index_bytes())?;
        let mut inbound = decode::read(&head.headers, message, &mut record.version)?;
        if let Ask::Use(ask) = &mut inbound.ask
            && door.plain
        {
            ask.mirrored = None;
        }
        record.version = Some(inbound.version);
        let [parent, link] = *std::mem::take(&mut inbound.parents);
        self.telemetry.join(&mut record.trace, parent, link);
        let stateless = inbound.version.era() == Era::Modern;
        if !stateless && !matches!(inbound.ask, Ask::Initialize) {
            record.ran.note(Control::Session);
        }
        let session = match inbound.ask {
            Ask::Initialize => None,
            _ if stateless => None,
            _ => Some(self.bind(&caller, &route, &head)?),
        };
        if let Some(session) = &session {
            inbound.version = session.version;
            record.version = Some(session.version);
        }
        if let Some(client) = &inbound.client {
            let known = self.introduced(&caller.principal, &route, client, record).await?;
            inbound.client = Some(known);
        }
        Ok(Arrived { caller, holder, route, session, inbound, id, batched: false, door })
    }

    /// What the body of a request takes that may come before it is known who sends it, of the share of the address: over
    /// HTTP/2 it lies in the window of the stream, which is large where another request on the connection was
    /// authenticated.
    ///
    /// # Errors
    /// When the address has no share left for it.
    pub fn unread<B: http_body::Body>(
        &self,
        peer: &Peer,
        body: &B,
    ) -> Result<Option<Share<Holder>>, Failure> {
        if !peer.vouched.as_ref().is_some_and(|vouched| vouched.is()) {
            return Ok(None);
        }
        let most = u64::from(self.limits.http2.window);
        let bytes = body.size_hint().upper().map_or(most, |upper| upper.min(most));
        if bytes <= u64::from(WINDOW_OF_STRANGERS) {
            return Ok(None);
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let share = self.quotas.bodies.take(&Holder::network(peer.address.ip()), bytes);
        share.map(Some).map_err(|none| Failure::no_share(Quota::Bodies, none))
    }

    /// What is wrong with a path that no route has.
    fn astray(&self, path: &str) -> Astray {
        let has = |path: &str| self.routes.contains_key(path);
        match path.strip_suffix('/') {
            Some(without) if has(without) => Astray::Slash,
            None if has(&format!("{path}/")) => Astray::NoSlash,
            Some(_) | None => Astray::Unknown,
        }
    }

    /// Who calls, if the listener lets them in and they may have tokens for the route at `path`.
    async fn identify(
        &self,
        door: &Door,
        peer: &Peer,
        path: &str,
        head: &Parts,
        record: &mut Record,
    ) -> Result<Caller, Failure> {
        record.ran.note(Control::Door);
        door.admit(head)?;
        record.ran.note(Control::Authentication);
        let resource = door.resource(path);
        let certificate = self.certificate(door, peer, head);
        let certificate = certificate.map_err(|error| self.unknown(resource, error))?;
        let mut asked = Asked::new(&door.schemes, head, resource, certificate.as_deref());
        asked.memo = Some(&peer.memo);
        asked.peer = Some(peer.address.ip());
        let caller = self.identity.identify(asked).await;
        let caller = caller.map_err(|error| self.unknown(resource, error))?;
        record.principal = Some(Arc::clone(&caller.principal));
        record.scheme = Some(caller.scheme);
        if self.policy.has_revoked(&caller.principal) {
            // Another credential would not help: the caller must not be sent to get one.
            if self.policy.revoked().everything {
                return Err(Failure::Everything);
            }
            return Err(self.unknown(resource, AuthnError::Revoked));
        }
        if let Some(vouched) = &peer.vouched {
            vouched.vouch();
        }
        Ok(caller)
    }

    /// The certificate of the client: that of the connection, or what a proxy tells that may.
    fn certificate(
        &self,
        door: &Door,
        peer: &Peer,
        head: &Parts,
    ) -> Result<Option<Arc<Certificate>>, AuthnError> {
        let own = &peer.certificate;
        let Some(forwarded) = &door.forwarded else { return Ok(own.clone()) };
        let (address, now) = (peer.address.ip(), self.clock.now());
        match told(forwarded, address, own.as_deref(), &head.headers, now) {
            Told::Certificate(certificate) => Ok(Some(certificate)),
            // The client of a proxy has no certificate; the proxy's own is not the client's.
            Told::None => Ok(None),
            Told::Stranger => Ok(own.clone()),
            Told::Broken => Err(AuthnError::Forwarded),
        }
    }

    /// What somebody is told who is not known.
    fn unknown(&self, resource: Option<&Resource>, error: AuthnError) -> Failure {
        if let Some(detail) = error.detail() {
            let error = crate::base::error_chain::Chain(&error);
            tracing::debug!(detail = detail.code(), %error, "a credential was refused");
        }
        let wrong = error.wrong();
        let challenge = resource.and_then(|resource| resource.challenge(wrong));
        let nonce = if wrong == Wrong::Nonce { self.identity.nonce() } else { None };
        let nonce = nonce.and_then(|nonce| HeaderValue::try_from(nonce).ok());
        Failure::Authn(Box::new(Stranger { error, challenge, nonce }))
    }

    /// Whether the body is the one that the caller has signed, if it has.
    fn signed(
        &self,
        door: &Door,
        caller: &Caller,
        head: &Parts,
        body: &Bytes,
    ) -> Result<(), Failure> {
        let digest = || digest::digest(&digest::SHA256, body);
        match &caller.body {
            Some(signed) if digest().as_ref() != signed => {
                let resource = door.resource(head.uri.path());
                Err(self.unknown(resource, AuthnError::Token(TokenError::Body)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What somebody is told who may not: where a better credential would do, which.
    fn denied(&self, arrived: &Arrived, kind: Kind, denial: Denial) -> Failure {
        let resource = arrived.door.resource(&arrived.route.path);
        let challenge = match &denial.reason {
            Reason::Scope(_, scopes) => {
                let proof = arrived.caller.principal.claims.proof;
                resource.and_then(|resource| resource.step_up(scopes, proof))
            }
            Reason::Proof(..) => {
                let why = Wrong::Token("this needs a token with proof of possession");
                resource.and_then(|resource| resource.challenge(why))
            }
            _ => return Failure::Denied(kind, denial),
        };
        Failure::StepUp(Box::new(denial), challenge.map(Box::new))
    }

    /// The session a legacy request belongs to.
    fn bind(&self, caller: &Caller, route: &Route, head: &Parts) -> Result<Session, Failure> {
        let id = match single(&head.headers, header::SESSION) {
            Single::Absent => Err(SessionError::Missing),
            Single::Value(id) => self.sessions.open(id, &caller.principal, &route.identity()),
            Single::Bad => Err(SessionError::Unknown),
        };
        id.map_err(Failure::Session)
    }

    /// The body, if it comes whole, in time, and is not too long. Its bytes are taken from the share of
    /// `holder` as they come, and are given back with `place`.
    ///
    /// # Errors
    /// When it does not, is too long, or is more than is left of the share.
    pub async fn body<B>(
        &self,
        mut body: B,
        holder: &Holder,
        place: &mut Place,
    ) -> Result<Bytes, Failure>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let limit = self.limits.request_body;
        let too_long = |_| Failure::BodyLength(limit);
        let mut pieces = Pieces::expecting(body.size_hint().lower(), limit).map_err(too_long)?;
        let no_share = |none| Failure::no_share(Quota::Bodies, none);
        let mut share = self.quotas.bodies.take(holder, 0).map_err(no_share)?;
        let collect = async {
            while let Some(frame) = body.frame().await {
                if let Ok(piece) = frame.map_err(|e| Failure::BodyBroken(e.into()))?.into_data() {
                    share.grow(piece.len()).map_err(no_share)?;
                    pieces.push(piece).map_err(too_long)?;
                }
            }
            place.body = Some(Arc::new(share));
            Ok(pieces.whole())
        };
        let collected = tokio::time::timeout(self.limits.request_time, collect).await;
        collected.unwrap_or(Err(Failure::BodyTime))
    }

    /// Whether a server failed because it is not the one that was approved: for this request, or for
    /// another that found it out meanwhile.
    fn is_stranger(&self, server: &Upstream, error: &UpstreamError) -> bool {
        error.is_stranger() || self.policy.unfit_server(server.name()) == Some(Unfit::Identity)
    }

    /// Keeps a call until its client answers. The share was taken before the client was told to, so
    /// there is room.
    fn park(&self, name: [u8; 16], call: Call, share: Share<Holder>) {
        let parked = Parked { call, since: self.clock.instant(), share };
        match self.parking.insert(name, parked) {
            Ok(None) => {}
            // The client will be told that the call no longer waits.
            Ok(Some(_)) | Err(_) => tracing::warn!("a call that waits for its client was given up"),
        }
    }

    /// Whether `principal` may be sent a notification of this name, which only the two ends know.
    fn may_tell(&self, principal: &Principal, server: &Upstream, name: &str) -> bool {
        // A client could take it for a notification of the protocol.
        if method::form(name) == method::Form::Malformed {
            return false;
        }
        let call = policy::message::Use {
            server: server.name().clone(),
            verb: policy::message::Verb::Other,
            name: name.into(),
            arguments: None,
            extra: Vec::new(),
            meta: Vec::new(),
        };
        self.policy.admit(principal, None, call, &Budget::for_bytes(0, USUAL_MOST)).outcome.is_ok()
    }

    /// Drops what nobody came back for.
    pub fn sweep(&self) {
        self.conversations.sweep();
        self.sessions.sweep();
        self.rates.sweep(self.clock.instant());
        self.results.sweep(self.clock.instant());
        self.policy.links().forget(self.seconds());
        let (now, patience) = (self.clock.instant(), self.limits.input_time);
        let waits = |parked: &Parked| now.saturating_duration_since(parked.since) < patience;
        self.parking.retain(|_, parked| waits(parked));
    }

    /// Takes one of the places for requests that are worked on. Until its sender is authenticated it is
    /// taken from the share of the sender's address.
    ///
    /// # Errors
    /// When all are taken, or all that the address may have.
    pub fn enter(self: &Arc<Self>, peer: &Peer) -> Result<Place, Failure> {
        let mut place = self.enter_counted()?;
        let unauthenticated = Holder::network(peer.address.ip());
        let share = self.quotas.unauthenticated.take(&unauthenticated, 1);
        let no_share = |none| Failure::no_share(Quota::Unauthenticated, none);
        place.share = Some(Arc::new(share.map_err(no_share)?));
        Ok(place)
    }

    /// Takes one of the places for a caller that is known.
    ///
    /// # Errors
    /// When all are taken, or all that the caller may have.
    fn enter_for(self: &Arc<Self>, holder: &Holder) -> Result<Place, Failure> {
        let mut place = self.enter_counted()?;
        self.belongs(&mut place, holder)?;
        Ok(place)
    }

    fn enter_counted(&self) -> Result<Place, Failure> {
        let place = Place::new(&self.metrics, Whose::Address);
        let before = self.metrics.in_flight.fetch_add(1, Ordering::AcqRel);
        if before >= self.limits.in_flight as u64 { Err(Failure::Overload) } else { Ok(place) }
    }

    /// A place beside all others, for what the gateway asks of itself.
    #[must_use]
    pub fn enter_apart(&self) -> Place {
        self.metrics.in_flight.fetch_add(1, Ordering::AcqRel);
        Place::new(&self.metrics, Whose::Gateway)
    }

    /// The sender of a request is known: from now on its place is taken from the share of the caller.
    ///
    /// # Errors
    /// When the caller has all that one may have.
    pub fn belongs(&self, place: &mut Place, holder: &Holder) -> Result<(), Failure> {
        if place.whose != Whose::Gateway {
            let share = self.quotas.in_flight.take(holder, 1);
            let no_share = |none| Failure::no_share(Quota::InFlight, none);
            place.share = Some(Arc::new(share.map_err(no_share)?));
            place.whose = Whose::Caller;
        }
        Ok(())
    }

    /// Whose share a request takes: that of the caller; where nothing tells callers apart, that of the
    /// address.
    #[must_use]
    pub fn holder(caller: &Caller, peer: &Peer) -> Holder {
        match caller.scheme {
            "anonymous" => Holder::network(peer.address.ip()),
            _ => Holder::Caller(Arc::clone(&caller.principal)),
        }
    }

    /// One of the event streams that belong to no call.
    ///
    /// # Errors
    /// When all are open, or all that the caller may have.
    pub fn standing(&self, holder: &Holder) -> Result<Standing, Failure> {
        let share = self.quotas.streams.take(holder, 1);
        let share = share.map_err(|none| Failure::no_share(Quota::Streams, none))?;
        Ok(Standing { _share: Arc::new(share) })
    }

    /// Answers and records a request that is refused before it is looked at.
    pub fn turned_away(&self, door: &Door, peer: &Peer, failure: &Failure) -> Response<Body> {
        self.refuse(&self.record(door, peer), failure)
    }
}

/// One of the places for requests that are worked on; given back when it is dropped. A call keeps
/// its place to its end, also when it is streamed and when its client has gone.
#[derive(Debug)]
pub struct Place {
    counted: Arc<InFlight>,
    whose: Whose,
    /// That of the address until the caller is known, and then that of the caller.
    share: Option<Arc<Share<Holder>>>,
    /// For the bytes of the body. What of them waits to be sent to a server takes it as well.
    body: Option<Arc<Share<Holder>>>,
}

/// One request among all that are worked on; no longer counted when it is dropped.
#[derive(Debug)]
struct InFlight(Arc<Metrics>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whose share a place takes of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// That of an address: it is not known who asks.
    Address,
    /// That of a caller who is known.
    Caller,
    /// Nobody's: the gateway asks itself.
    Gateway,
}

impl Place {
    /// A place that is counted already.
    fn new(metrics: &Arc<Metrics>, whose: Whose) -> Self {
        let counted = Arc::new(InFlight(Arc::clone(metrics)));
        Self { counted, whose, share: None, body: None }
    }

    /// The same place in the share of the same caller, for as long as the answer is not sent; `None` where no caller is
    /// known, because strangers must not keep places from callers.
    fn until_sent(&self) -> Option<UntilSent> {
        match self.whose {
            Whose::Caller => {
                let held = (Arc::clone(&self.counted), self.share.clone());
                Some(UntilSent::new(Arc::new(held)))
            }
            Whose::Address | Whose::Gateway => None,
        }
    }

    /// Counts what the index over the values of the body takes, beside the bytes of the body: of many short values it is
    /// several times as much. That of most messages is not counted.
    ///
    /// # Errors
    /// When that is more than is left of the share.
    fn indexed(&mut self, bytes: usize) -> Result<(), Failure> {
        match self.body.as_mut().and_then(Arc::get_mut) {
            Some(share) if bytes > INDEX => {
                share.grow(bytes).map_err(|none| Failure::no_share(Quota::Bodies, none))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What the bytes of the body take of the share of the caller.
    fn body(&self) -> Option<Arc<Share<Holder>>> {
        self.body.clone()
    }
}

/// The response with what it takes until it is sent. A stream that belongs to no call has a share of its own.
fn kept_until_sent(mut response: Response<Body>, unsent: Option<UntilSent>) -> Response<Body> {
    if let Some(unsent) = unsent.filter(|_| response.extensions().get::<Standing>().is_none()) {
        response.extensions_mut().insert(unsent);
    }
    response
}

/// One of the event streams that belong to no call; given back when the last of it is dropped.
#[derive(Clone, Debug)]
pub struct Standing {
    _share: Arc<Share<Holder>>,
}

impl Arrived {
    /// For whom the server at `place` of the route is spoken to.
    fn party(&self, place: usize) -> Party {
        let known = self.session.as_ref().map(|session| &session.client);
        let client = self.inbound.client.as_ref().or(known);
        Party {
            principal: Some(Arc::clone(&self.caller.principal)),
            route: Some(Arc::clone(&self.route.path)),
            client: Arc::clone(client.unwrap_or_else(|| Client::gateway())),
            leg: self.leg(place).cloned(),
            subject: self.subject(place),
        }
    }

    /// The caller's token, if the server at `place` of the route is shown one got for it.
    fn subject(&self, place: usize) -> Option<Arc<Subject>> {
        self.route.servers.get(place).filter(|server| server.asks_callers())?;
        let (token, until) = (Arc::clone(self.caller.token.as_ref()?), self.caller.until);
        let caller = self.caller.principal.id.as_str().into();
        Some(Arc::new(Subject { token, caller, until }))
    }

    /// The part of the session that lies between us and the server at `place` of the route.
    fn leg(&self, place: usize) -> Option<&Leg> {
        let legs = self.session.as_ref().map_or(&[] as &[_], |session| &session.legs);
        legs.iter().find(|(server, _)| usize::from(*server) == place).map(|(_, leg)| leg)
    }
}

/// Notes what can be known of a message, whether or not it is acceptable.
fn identified(
    decoded: Result<Message, DecodeError>,
    record: &mut Record,
) -> Result<(Option<Id>, Message), Failure> {
    let message = decoded.map_err(|error| {
        if let DecodeError::Shape { id, .. } = &error {
            record.rpc_id.clone_from(id);
        }
        Failure::Decode(error)
    })?;
    let id = match &message {
        Message::Request(request) => {
            record.method = Some(request.method.clone());
            Some(request.id.clone())
        }
        Message::Notification(notification) => {
            record.method = Some(notification.method.clone());
            None
        }
        Message::Response(_) => None,
    };
    record.rpc_id.clone_from(&id);
    Ok((id, message))
}

/// Bytes of the index over the values of a body that are not counted.
const INDEX: usize = 16 * 1024;

/// Longest body that is read of a request that is refused, in bytes, and how long it may take.
const SHORT: u64 = 64 * 1024;
const SOON: Duration = Duration::from_secs(1);

/// Reads the body of a request that is refused, if it is short; whether all of it was read. A client
/// sends it in any case, and a connection with an unread body ends: under the next request of a client
/// that does not know.
async fn drained<B>(mut body: B) -> bool
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    if body.size_hint().upper().is_none_or(|most| most > SHORT) {
        return body.is_end_stream();
    }
    let read = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(SOON, read).await.unwrap_or(false)
}
