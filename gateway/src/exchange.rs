//! Runs an exchange, from a client's request to its response: authenticates, decodes, authorizes, records, forwards and
//! inspects. The listener and the bridge call [`Gateway::exchange`] for every request. No request of a client may be
//! forwarded before the policy has permitted it and its audit record is open.
//!
//! Read [`Gateway::exchange`] first, then [`Gateway::decode_and_bind`] and [`Gateway::handle_use`]. Each step takes the value that
//! the previous one returns, so it cannot be left out.

mod oauth_metadata;
mod stream_expiry;
mod nested_call;
mod through_call;
mod tool_index;
mod tool_embeddings;
mod route;
mod http_headers;
mod record;
mod state;
mod event_sink;
mod cancellation;
mod guardrails;
mod resource_links;
mod flows;
mod standing_stream;
mod loads;
mod selection_signals;
mod in_flight_call;
mod planners;
mod shown_values;
mod inspect;
mod server_request_records;
mod release_early;
mod server_requests;
mod client_responses;
mod checked_clients;
mod client_description;
mod offload;
mod elicitation;
mod capture;
mod call;
mod approval_notices;
mod decoys;
mod planner_channel;
mod approvals;
mod tasks;
mod list_tokens;
mod list;
mod selection;
mod discovery;
mod selection_report;
mod subscribe;
mod handshake;
mod answer_terms;
mod notifications;
mod batch;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use json::JsonBounds;
use policy::definition::offer::ItemKind;
use policy::definition::pins::PinViolation;
use policy::definition::registry::RateLimit;
use policy::engine::pipeline::{Facts, Policy};
use policy::rules::control::Control;
use policy::rules::decision::{Denial, Reason};
use policy_core::subject::principal::Principal;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::audit::{AuditError, Journal, Record};
use crate::base::bounded::BoundedMap;
use crate::base::clock::Clock;
use crate::base::segments::Segments;
use crate::base::share::{Holder, Share};
use crate::base::task::Tasks;
use crate::config::call_budget::CallBudget;
use crate::config::quota::{Quota, Quotas};
use crate::config::settings::cases::KnownCallers;
use crate::config::settings::{ApprovalSettings, CaptureSettings, Limits, SelectionSettings};
use crate::crypto::sealer::Sealer;
use crate::crypto::x509::VerifiedCertificate;
use crate::edge::admission::{Admission, Peer};
use crate::edge::decode::{self, ClientOperation, Inbound};
use crate::edge::encode;
use crate::edge::failure::{AuthnFailure, Failure, HttpFailure, PathMismatch};
use crate::identity::resource::{ChallengeError, ProtectedResource};
use crate::identity::{
    AuthenticatedCaller, Authenticator, AuthnError, AuthnRequest, ForwardedCertificate, TokenError,
    told,
};
use crate::mcp::gateway_path::{GatewayId, PathError};
use crate::mcp::protocol::{Era, header, method};
use crate::mcp::wire::headers::{SingleValue, single};
use crate::mcp::wire::{self, DecodeError, Id, Message};
use crate::metrics::Metrics;
use crate::net::http2::{HeldUntilSent, UNAUTHENTICATED_WINDOW};
use crate::outbound::webhook::Webhook;
use crate::session::approvals::Approvals;
use crate::session::call_budgets::CallBudgets;
use crate::session::channel_store::ChannelStore;
use crate::session::disclosed_client::DisclosedClient;
use crate::session::flow_store::FlowStore;
use crate::session::loaded_tools::LoadedTools;
use crate::session::lock_store::LockStore;
use crate::session::rate_limiter::RateLimiter;
use crate::session::repeated_calls::RepeatedCalls;
use crate::session::result_store::ResultStore;
use crate::session::selection_history::SelectionHistory;
use crate::session::state::SessionStates;
use crate::session::task_questions::TaskQuestions;
use crate::session::{Session, SessionError, SessionKey, Sessions, UpstreamSession};
use crate::stream::body::{Body, BodyCollector};
use crate::stream::slots::EventStreamSlot;
use crate::telemetry::Telemetry;
use crate::upstream::{OnBehalfOf, SubjectToken, Upstream, UpstreamError};

pub use checked_clients::CheckedClients;
pub use decoys::DecoyLocks;
pub use elicitation::ParkedCall;
use http_headers::framed;
use in_flight_call::UpstreamCall;
pub use oauth_metadata::DescribedRoute;
pub use route::{Route, RouteDiscovery};
pub use selection::SelectionServices;
pub use selection_report::{NoRanking, RankedTool, RankingQuestion, RankingReport};
pub use selection_signals::HistoryObserver;
pub use state::{opens_request_state, sealed_request_state};

/// Interval at which [`Gateway::sweep`] has to be called.
pub const SWEEP: Duration = Duration::from_secs(5);

/// The parts of one configuration that its exchanges share.
#[derive(Debug)]
pub struct Gateway {
    /// Authenticates callers by their credentials.
    pub identity: Arc<Authenticator>,
    /// Creates and opens the sealed sessions of legacy clients.
    pub sessions: Arc<Sessions>,
    /// Routes by exact path.
    pub routes: HashMap<Box<str>, Arc<Route>>,
    /// Decides what callers may use and inspects contents.
    pub policy: Arc<Policy>,
    /// Descriptions of clients that passed the checks of this policy.
    pub checked_clients: CheckedClients,
    /// Digest of the configuration, in every audit record.
    pub config_digest: Arc<str>,
    /// Opens, closes and delivers audit records.
    pub journal: Arc<Journal>,
    /// Which contents audit records capture; `None` if they capture none.
    pub capture: Option<CaptureSettings>,
    /// Limits on sizes, times and counts.
    pub limits: Limits,
    /// Shares of memory and concurrency, per caller and in total.
    pub quotas: Arc<Quotas>,
    /// SHA-256 digest of the sections that say what of a result may be shown.
    pub content_digest: [u8; 32],
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Counters and histograms of the process.
    pub metrics: Arc<Metrics>,
    /// Trace context and span export.
    pub telemetry: Arc<Telemetry>,
    /// Runs tasks that outlive their request.
    pub tasks: Tasks,
    /// Cancellation tokens of calls in flight in legacy sessions.
    pub cancellations: Arc<BoundedMap<(SessionKey, Id), CancellationToken>>,
    /// State of the legacy sessions in use.
    pub session_states: Arc<SessionStates>,
    /// Calls that wait for the next request of a modern client.
    pub parked_calls: Arc<BoundedMap<[u8; 16], ParkedCall>>,
    /// Tool results that are kept because they are too long for a response.
    pub result_store: Arc<ResultStore>,
    /// What each flow was shown.
    pub flow_store: Arc<FlowStore>,
    /// What callers have found, where their lists follow that.
    pub loaded_tools: Arc<LoadedTools>,
    /// The values that untrusted planners have passed.
    pub channel_store: Arc<ChannelStore>,
    /// Questions to people whether a call may be made, and their answers.
    pub approvals: Arc<Approvals>,
    /// The service that is told of questions whether a call may be made.
    pub approval_webhook: Option<Arc<Webhook>>,
    /// Who is asked, and within which bounds.
    pub approval_settings: ApprovalSettings,
    /// The principals that are locked because they touched a decoy.
    pub locks: Arc<LockStore>,
    /// How long a caller is locked for which decoy.
    pub decoy_locks: DecoyLocks,
    /// Encrypts and authenticates state that clients carry, such as `requestState`.
    pub sealer: Arc<Sealer>,
    /// The id of this gateway in the path of requests.
    pub gateway_id: GatewayId,
    /// Rate limits of tools in the registry.
    pub rate_limiter: Arc<RateLimiter>,
    /// What calls use up of the budgets.
    pub call_budgets: Arc<CallBudgets>,
    /// The budgets that calls take from.
    pub budgets: Vec<CallBudget>,
    /// How often each caller makes the same call.
    pub repeated_calls: Arc<RepeatedCalls>,
    /// What tasks have asked their clients.
    pub task_questions: Arc<TaskQuestions>,
    /// How often one caller may make the same call; `None` for as often as it wants.
    pub repeat_limit: Option<RateLimit>,
    /// The principals of the configuration, and the scopes that imply others, as which an operator may ask.
    pub known_callers: KnownCallers,
    /// The services that help to rank tools.
    pub selection_services: SelectionServices,
    /// How tools are ranked for a request in words.
    pub selection: SelectionSettings,
    /// Which tools callers used after which requests.
    pub selection_history: Arc<SelectionHistory>,
    /// Notified on every revocation.
    pub revocations_changed: watch::Sender<()>,
    /// Stops the background services of this configuration when the last of its exchanges ends.
    pub background_guard: DropGuard,
}

/// An authenticated and decoded request, bound to its session.
#[derive(Debug)]
struct DecodedRequest {
    caller: AuthenticatedCaller,
    /// The holder whose shares the request takes.
    holder: Holder,
    route: Arc<Route>,
    session: Option<Session>,
    inbound: Inbound,
    /// The client as servers may receive it, if the message describes it.
    client: Option<DisclosedClient>,
    id: Option<Id>,
    /// Whether the message is part of a batch.
    batched: bool,
    /// Admission of the listener it came through.
    admission: Arc<Admission>,
    /// The facts when the exchange began, for what is decided before a server is asked.
    facts: Facts,
    /// Cancelled when the connection of a legacy client is gone; `None` if nothing waits for a person.
    client_gone: Option<CancellationToken>,
    /// The gateways that the request has passed, with this one.
    path: HeaderValue,
}

impl DecodedRequest {
    /// The response to a request for which no record could be opened.
    fn unrecorded(&self, error: AuditError) -> Response<Body> {
        // Without an id there is no JSON-RPC response to put the error in.
        let era = self.id.as_ref().map(|_| self.inbound.version.era());
        encode::error(&Failure::unrecorded(error).public(era), self.id.as_ref())
    }
}

/// A request whose caller is not authenticated yet, and whose body is not read.
struct ArrivingRequest<'a, B> {
    head: Parts,
    body: &'a mut B,
    slot: &'a mut InFlightSlot,
}

/// An authenticated request whose body is not decoded yet.
struct AuthenticatedRequest {
    caller: AuthenticatedCaller,
    holder: Holder,
    route: Arc<Route>,
    head: Parts,
    body: Segments,
    admission: Arc<Admission>,
}

impl Gateway {
    /// Runs one exchange. It leaves one `exchange` record (a batch one for each message), or is counted in a `refusals`
    /// record.
    pub async fn exchange<B>(
        self: Arc<Self>,
        admission: Arc<Admission>,
        peer: Peer,
        request: Request<B>,
        mut slot: InFlightSlot,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if self.journal.is_waited_for() {
            Box::pin(self.journal.room()).await;
        }
        let mut record = self.record(&admission, &peer);
        let (head, mut body) = request.into_parts();
        let arriving = ArrivingRequest { head, body: &mut body, slot: &mut slot };
        let authenticated =
            match self.authenticate_and_read(&admission, &peer, arriving, &mut record).await {
                Ok(authenticated) => authenticated,
                Err(failure) => {
                    // A rejected request must not occupy a slot that an authenticated caller could use.
                    let unsent = slot.until_sent();
                    drop(slot);
                    let whole = failure.comes_before_the_body() && drained(body).await;
                    let refused = self.refuse(&record, &failure);
                    let refused = if whole { refused } else { encode::close_connection(refused) };
                    return hold_until_sent(refused, unsent);
                }
            };
        let unsent = slot.until_sent();
        if self.is_batch(&authenticated) {
            let answered = self.batch(&peer, *authenticated, record, slot).boxed().await;
            return hold_until_sent(answered, unsent);
        }
        let arrived = match self.decode_and_bind(authenticated, &mut slot, &mut record).await {
            Ok(arrived) => arrived,
            Err(failure) => return hold_until_sent(self.refuse(&record, &failure), unsent),
        };
        if let Err(failure) = self.may_leave_records(&arrived, &mut record).await {
            return hold_until_sent(self.refuse(&record, &failure), unsent);
        }
        let (caller, route) = (arrived.caller.clone(), Arc::clone(&arrived.route));
        let gateway = Arc::clone(&self);
        let answered = self.answer(arrived, record, slot).await;
        gateway.with_lease(caller, &route, hold_until_sent(answered, unsent))
    }

    /// Dispatches a decoded request by what it asks for.
    async fn answer(
        self: Arc<Self>,
        mut arrived: Box<DecodedRequest>,
        record: Box<Record>,
        slot: InFlightSlot,
    ) -> Response<Body> {
        let era = arrived.inbound.version.era();
        match std::mem::replace(&mut arrived.inbound.ask, ClientOperation::Notice) {
            ClientOperation::Use(ask) if era == Era::Legacy => {
                // SPEC 2025-11-25 basic/transports: a disconnect does not cancel the request.
                let tasks = self.tasks.clone();
                let gone = self.policy.asks_people().then(CancellationToken::new);
                arrived.client_gone.clone_from(&gone);
                let work = self.handle_use(arrived, ask, record, slot).boxed();
                cancellation::detached(work, tasks, gone).await
            }
            ClientOperation::Use(ask) => self.handle_use(arrived, ask, record, slot).boxed().await,
            // The others are boxed as well, so that this future is not as large as the largest of them.
            ClientOperation::List(kind) => self.list(*arrived, kind, record).boxed().await,
            ClientOperation::Listen(filter) => {
                self.listen(*arrived, filter, record, slot).boxed().await
            }
            ClientOperation::Stream(last) => self.stream(*arrived, last, record).boxed().await,
            ClientOperation::Discover => self.discover(*arrived, record).boxed().await,
            ClientOperation::Initialize => self.initialize(*arrived, record).boxed().await,
            ClientOperation::End => self.end(&arrived, record).boxed().await,
            ClientOperation::Level(level) => self.set_level(*arrived, level, record).boxed().await,
            ClientOperation::Tell(ask) => self.tell(*arrived, ask, record, slot).boxed().await,
            ClientOperation::RootsChanged => self.roots_changed(*arrived, record).boxed().await,
            ClientOperation::Answer(id, outcome) => {
                self.answered(&arrived, id, outcome, record).boxed().await
            }
            ClientOperation::Cancel(id) => self.cancel(&arrived, id, &record),
            ClientOperation::Ping | ClientOperation::Notice => self.acknowledge(&arrived, &record),
        }
    }

    /// Authenticates the caller and reads the body.
    async fn authenticate_and_read<B>(
        &self,
        admission: &Arc<Admission>,
        peer: &Peer,
        arriving: ArrivingRequest<'_, B>,
        record: &mut Record,
    ) -> Result<Box<AuthenticatedRequest>, Failure>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let ArrivingRequest { head, body, slot } = arriving;
        let route = self.routes.get(head.uri.path()).cloned();
        // Set before authentication, so that records of rejected callers name the route.
        record.route = route.as_ref().map(|route| Arc::clone(&route.path));
        record.http_method =
            (!admission.plain).then(|| http_headers::named(&head.method)).flatten();
        let unread = self.reserve_unread_body(peer, body)?;
        let caller = self.identify(admission, peer, head.uri.path(), &head, record).await?;
        drop(unread);
        let route = route.ok_or_else(|| Failure::Route(self.path_mismatch(head.uri.path())))?;
        let holder = Self::holder(&caller, peer);
        record.caller = self.recorded_caller(&holder, slot);
        framed(&head)?;
        self.passed(&head.headers)?;
        // Ending a session frees resources, so it must not fail because the caller's share is used up.
        if head.method != Method::DELETE {
            self.charge_to(slot, &holder)?;
        }
        let body = match head.method {
            Method::POST => self.body(body, &holder, slot).await?,
            _ => Segments::empty(),
        };
        record.bytes_in = body.length();
        self.check_body_digest(admission, &caller, &head, &body)?;
        // Boxed, as what comes of it: the futures of the next steps hold it, and are copied when they begin.
        Ok(Box::new(AuthenticatedRequest {
            caller,
            holder,
            route,
            head,
            body,
            admission: Arc::clone(admission),
        }))
    }

    /// Decodes the message and binds it to its session.
    async fn decode_and_bind(
        &self,
        authenticated: Box<AuthenticatedRequest>,
        slot: &mut InFlightSlot,
        record: &mut Record,
    ) -> Result<Box<DecodedRequest>, Failure> {
        let AuthenticatedRequest { caller, holder, route, head, body, admission } = *authenticated;
        record.controls_run.note(Control::Message);
        if head.method != Method::POST {
            record.controls_run.note(Control::Session);
            let session = self.bind(&caller, &route, &head)?;
            let last = match single(&head.headers, &header::LAST_EVENT) {
                SingleValue::Absent => None,
                SingleValue::Value(last) => Some(last.into()),
                SingleValue::Bad => return Err(Failure::Replay),
            };
            let ask = if head.method == Method::GET {
                ClientOperation::Stream(last)
            } else {
                ClientOperation::End
            };
            record.version = Some(session.version);
            let inbound =
                Inbound { version: session.version, ask, client: None, parents: Box::default() };
            let (id, batched, session) = (None, false, Some(session));
            return Ok(Box::new(DecodedRequest {
                caller,
                holder,
                route,
                session,
                inbound,
                client: None,
                id,
                batched,
                admission,
                facts: self.policy.facts(),
                client_gone: None,
                path: self.passed(&head.headers)?,
            }));
        }
        let (id, message) = identified(wire::decode_any(body, &JsonBounds::MESSAGE).await, record)?;
        slot.indexed(message.index_bytes())?;
        let mut inbound = decode::read(&head.headers, message, &mut record.version)?;
        if let ClientOperation::Use(ask) = &mut inbound.ask
            && admission.plain
        {
            ask.mirrored = None;
        }
        record.version = Some(inbound.version);
        let [parent, link] = *std::mem::take(&mut inbound.parents);
        self.telemetry.join(&mut record.trace, parent, link);
        let stateless = inbound.version.era() == Era::Modern;
        if !stateless && !matches!(inbound.ask, ClientOperation::Initialize) {
            record.controls_run.note(Control::Session);
        }
        let session = match inbound.ask {
            ClientOperation::Initialize => None,
            _ if stateless => None,
            _ => Some(self.bind(&caller, &route, &head)?),
        };
        if let Some(session) = &session {
            inbound.version = session.version;
            record.version = Some(session.version);
        }
        let client = match inbound.client.take() {
            Some(said) => Some(self.introduced(&caller.principal, &route, &said, record).await?),
            None => None,
        };
        Ok(Box::new(DecodedRequest {
            caller,
            holder,
            route,
            session,
            inbound,
            client,
            id,
            batched: false,
            admission,
            facts: self.policy.facts(),
            client_gone: None,
            path: self.passed(&head.headers)?,
        }))
    }

    /// Takes a share of the client's address for a body that may arrive before the sender is authenticated: over HTTP/2
    /// it is buffered up to the stream's window, which is large once a request on the connection was authenticated.
    ///
    /// # Errors
    /// If the address has used up its share.
    pub fn reserve_unread_body<B: http_body::Body>(
        &self,
        peer: &Peer,
        body: &B,
    ) -> Result<Option<Share<Holder>>, Failure> {
        if !peer.vouched.as_ref().is_some_and(|vouched| vouched.is()) {
            return Ok(None);
        }
        let most = u64::from(self.limits.http2.stream_window);
        let bytes = body.size_hint().upper().map_or(most, |upper| upper.min(most));
        if bytes <= u64::from(UNAUTHENTICATED_WINDOW) {
            return Ok(None);
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let share = self.quotas.bodies.take(&Holder::network(peer.address.ip()), bytes);
        share.map(Some).map_err(|none| Failure::no_share(Quota::Bodies, none))
    }

    /// Why a path matches no route.
    fn path_mismatch(&self, path: &str) -> PathMismatch {
        let has = |path: &str| self.routes.contains_key(path);
        match path.strip_suffix('/') {
            Some(without) if has(without) => PathMismatch::Slash,
            None if has(&format!("{path}/")) => PathMismatch::NoSlash,
            Some(_) | None => PathMismatch::Unknown,
        }
    }

    /// The gateways that a request has passed, with this one.
    ///
    /// # Errors
    /// If it has passed this one before, or too many.
    fn passed(&self, headers: &HeaderMap) -> Result<HeaderValue, Failure> {
        let path = self.gateway_id.follow(headers, self.limits.hops);
        path.map_err(|error| match error {
            PathError::Loop => HttpFailure::Loop.into(),
            PathError::TooLong => HttpFailure::Hops.into(),
        })
    }

    /// Authenticates the caller, with the OAuth resource of the route at `path` for access tokens and challenges.
    async fn identify(
        &self,
        admission: &Admission,
        peer: &Peer,
        path: &str,
        head: &Parts,
        record: &mut Record,
    ) -> Result<AuthenticatedCaller, Failure> {
        record.controls_run.note(Control::Door);
        admission.admit(head)?;
        record.controls_run.note(Control::Authentication);
        let resource = admission.resource(path);
        let certificate = self.certificate(admission, peer, head);
        let certificate = certificate.map_err(|error| self.authn_failure(resource, error))?;
        let mut asked =
            AuthnRequest::new(&admission.schemes, head, resource, certificate.as_deref());
        asked.memo = Some(&peer.memo);
        asked.peer = Some(peer.address.ip());
        let caller = self.identity.identify(asked).await;
        let mut caller = caller.map_err(|error| self.authn_failure(resource, error))?;
        if let Some(own) = peer.certificate.as_deref().filter(|_| admission.forwarded.is_some()) {
            caller.came_through(own);
        }
        record.principal = Some(Arc::clone(&caller.principal));
        record.scheme = Some(caller.scheme);
        let facts = self.policy.facts();
        if facts.has_revoked(&caller.principal) {
            // No challenge: the caller must not be sent to fetch another credential, which would not help.
            if facts.revoked().everything {
                return Err(Failure::Everything);
            }
            return Err(self.authn_failure(resource, AuthnError::Revoked));
        }
        if self.locks.has(caller.principal.id.as_str(), self.clock.instant()) {
            return Err(Failure::Locked);
        }
        if let Some(vouched) = &peer.vouched {
            vouched.vouch();
        }
        Ok(caller)
    }

    /// The client certificate: that of the connection, or the one a trusted proxy forwards.
    fn certificate(
        &self,
        admission: &Admission,
        peer: &Peer,
        head: &Parts,
    ) -> Result<Option<Arc<VerifiedCertificate>>, AuthnError> {
        let own = &peer.certificate;
        let Some(forwarded) = &admission.forwarded else { return Ok(own.clone()) };
        let (address, now) = (peer.address.ip(), self.clock.now());
        match told(forwarded, address, own.as_deref(), &head.headers, now) {
            ForwardedCertificate::Certificate(certificate) => Ok(Some(certificate)),
            // A client behind the proxy without a certificate; the proxy's own certificate does not identify it.
            ForwardedCertificate::None => Ok(None),
            ForwardedCertificate::UntrustedPeer => Ok(own.clone()),
            ForwardedCertificate::Broken => Err(AuthnError::Forwarded),
        }
    }

    /// The authentication failure with its challenge for the client.
    fn authn_failure(&self, resource: Option<&ProtectedResource>, error: AuthnError) -> Failure {
        if let Some(detail) = error.detail() {
            let error = crate::base::error_chain::ErrorChain(&error);
            tracing::debug!(detail = detail.code(), %error, "credential rejected");
        }
        let wrong = error.wrong();
        let challenge = resource.and_then(|resource| resource.challenge(wrong));
        let nonce = if wrong == ChallengeError::Nonce { self.identity.nonce() } else { None };
        let nonce = nonce.and_then(|nonce| HeaderValue::try_from(nonce).ok());
        Failure::Authn(Box::new(AuthnFailure { error, challenge, nonce }))
    }

    /// Checks that the body is the one whose digest the caller's token contains, if it contains one.
    fn check_body_digest(
        &self,
        admission: &Admission,
        caller: &AuthenticatedCaller,
        head: &Parts,
        body: &Segments,
    ) -> Result<(), Failure> {
        let digest = || {
            let mut digest = digest::Context::new(&digest::SHA256);
            body.parts().for_each(|part| digest.update(part));
            digest.finish()
        };
        match &caller.body {
            Some(signed) if digest().as_ref() != signed => {
                let resource = admission.resource(head.uri.path());
                Err(self.authn_failure(resource, AuthnError::Token(TokenError::Body)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The failure for a denial, with a challenge if a better credential would help.
    fn denied(&self, arrived: &DecodedRequest, kind: ItemKind, denial: Denial) -> Failure {
        let resource = arrived.admission.resource(&arrived.route.path);
        let challenge = match &denial.reason {
            Reason::Scope(_, scopes) => {
                let proof = arrived.caller.principal.claims.proof;
                resource.and_then(|resource| resource.step_up(scopes, proof))
            }
            Reason::Proof(..) => {
                let why = ChallengeError::Token("this needs a token with proof of possession");
                resource.and_then(|resource| resource.challenge(why))
            }
            _ => None,
        };
        Failure::of_denial(kind, denial, challenge)
    }

    /// Opens the session that a legacy request names.
    fn bind(
        &self,
        caller: &AuthenticatedCaller,
        route: &Route,
        head: &Parts,
    ) -> Result<Session, Failure> {
        let id = match single(&head.headers, &header::SESSION) {
            SingleValue::Absent => Err(SessionError::Missing),
            SingleValue::Value(id) => self.sessions.open(id, &caller.principal, route.identity()),
            SingleValue::Bad => Err(SessionError::Unknown),
        };
        id.map_err(Failure::Session)
    }

    /// Reads the body within the limits on size and time. Its bytes are charged to `holder` as they arrive, until
    /// `slot` is dropped.
    ///
    /// # Errors
    /// If the body is incomplete, late, too long, or exceeds the holder's share.
    pub async fn body<B>(
        &self,
        mut body: B,
        holder: &Holder,
        slot: &mut InFlightSlot,
    ) -> Result<Segments, Failure>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let limit = self.limits.request_body;
        let too_long = |_| HttpFailure::BodyLength(limit);
        let mut pieces =
            BodyCollector::expecting(body.size_hint().lower(), limit).map_err(too_long)?;
        let no_share = |none| Failure::no_share(Quota::Bodies, none);
        let mut share = self.quotas.bodies.take(holder, 0).map_err(no_share)?;
        let collect = async {
            while let Some(frame) = body.frame().await {
                if let Ok(piece) = frame.map_err(|e| HttpFailure::BodyBroken(e.into()))?.into_data()
                {
                    share.grow(piece.len()).map_err(no_share)?;
                    pieces.push(piece).map_err(too_long)?;
                }
            }
            slot.body = Some(Arc::new(share));
            Ok(pieces.take())
        };
        let collected = tokio::time::timeout(self.limits.request_timeout, collect).await;
        collected.unwrap_or(Err(HttpFailure::BodyTime.into()))
    }

    /// The time since `started`.
    fn since(&self, started: Instant) -> Duration {
        self.clock.instant().saturating_duration_since(started)
    }

    /// Whether a server failed because its identity is not the pinned one, as found by this request or a concurrent
    /// one.
    fn is_identity_mismatch(&self, server: &Upstream, error: &UpstreamError) -> bool {
        error.is_identity_mismatch()
            || self.policy.facts().unfit_server(server.name()) == Some(PinViolation::Identity)
    }

    /// Parks a call until its client answers. The share was taken before the client was told to come back, so there is
    /// room.
    fn park(&self, name: [u8; 16], call: UpstreamCall, share: Share<Holder>) {
        let terms = Arc::new(call.terms(&call.waiting));
        let parked = ParkedCall { call, since: self.clock.instant(), terms, share };
        match self.parked_calls.insert(name, parked) {
            Ok(None) => {}
            // When the client returns, it learns that the call no longer waits.
            Ok(Some(_)) | Err(_) => tracing::warn!(
                event = "call.parked_evicted",
                "a call that waited for input of its client was evicted"
            ),
        }
    }

    /// Whether the policy lets `principal` receive a server's notification of this extension method now.
    fn may_notify(&self, principal: &Principal, server: &Upstream, name: &str) -> bool {
        // Names that are not well-formed extension methods could be mistaken for protocol methods.
        method::form(name) == method::Form::Extension
            && self
                .policy
                .may_notify(&self.policy.facts(), principal, server.name(), name)
                .is_granted()
    }

    /// Whether `principal` may know of a resource of a server now.
    fn may_watch(&self, principal: &Principal, server: &Upstream, uri: &str) -> bool {
        self.policy.may_watch(&self.policy.facts(), principal, server.name(), uri).is_granted()
    }

    /// Drops expired sessions, rates, kept results, flows, links and parked calls, and what callers have found.
    pub fn sweep(&self) {
        self.session_states.sweep();
        self.sessions.sweep();
        self.rate_limiter.sweep(self.clock.instant());
        self.call_budgets.sweep(self.clock.instant());
        self.repeated_calls.sweep(self.clock.instant());
        self.selection_history.sweep(self.clock.instant());
        self.result_store.sweep(self.clock.instant());
        self.flow_store.sweep(self.clock.instant());
        self.channel_store.sweep(self.clock.instant());
        self.loaded_tools.sweep(self.clock.instant());
        self.locks.sweep(self.clock.instant());
        self.approvals.sweep(&self.config_digest);
        self.policy.links().forget(self.seconds());
        self.end_parked();
    }

    /// Ends the parked calls of earlier configurations: none is continued under this one.
    pub fn end_parked_of_others(&self) {
        self.parked_calls.retain(|_, parked| std::ptr::eq(&*parked.call.gateway, self));
    }

    /// Ends the parked calls that wait too long or are revoked.
    fn end_parked(&self) {
        let (now, patience) = (self.clock.instant(), self.limits.input_timeout);
        self.parked_calls.retain(|_, parked| {
            now.saturating_duration_since(parked.since) < patience
                && self.revocation(&parked.call.caller, parked.call.used()).is_none()
        });
    }

    /// Takes an in-flight permit. Until the client is authenticated, it is charged to the client's address.
    ///
    /// # Errors
    /// If all permits are taken, or those of the address.
    pub fn enter(self: &Arc<Self>, peer: &Peer) -> Result<InFlightSlot, Failure> {
        let mut slot = self.enter_counted()?;
        let unauthenticated = Holder::network(peer.address.ip());
        let share = self.quotas.unauthenticated.take(&unauthenticated, 1);
        let no_share = |none| Failure::no_share(Quota::Unauthenticated, none);
        slot.share = Some(Arc::new(share.map_err(no_share)?));
        Ok(slot)
    }

    /// Takes an in-flight permit for an authenticated caller.
    ///
    /// # Errors
    /// If all permits are taken, or those of the caller.
    fn enter_for(self: &Arc<Self>, holder: &Holder) -> Result<InFlightSlot, Failure> {
        let mut slot = self.enter_counted()?;
        self.charge_to(&mut slot, holder)?;
        Ok(slot)
    }

    fn enter_counted(&self) -> Result<InFlightSlot, Failure> {
        let slot = InFlightSlot::new(&self.metrics, SlotOwner::Address);
        let before = self.metrics.in_flight.fetch_add(1, Ordering::AcqRel);
        if before >= self.limits.in_flight as u64 { Err(Failure::Overload) } else { Ok(slot) }
    }

    /// An in-flight permit outside all limits, for the gateway's own self-test.
    #[must_use]
    pub fn enter_unlimited(&self) -> InFlightSlot {
        self.metrics.in_flight.fetch_add(1, Ordering::AcqRel);
        InFlightSlot::new(&self.metrics, SlotOwner::Gateway)
    }

    /// Charges the permit to the caller, once the request is authenticated.
    ///
    /// # Errors
    /// If the caller has used up its share of permits.
    pub fn charge_to(&self, slot: &mut InFlightSlot, holder: &Holder) -> Result<(), Failure> {
        if slot.whose != SlotOwner::Gateway {
            let share = self.quotas.in_flight.take(holder, 1);
            let no_share = |none| Failure::no_share(Quota::InFlight, none);
            slot.share = Some(Arc::new(share.map_err(no_share)?));
            slot.whose = SlotOwner::Caller;
        }
        Ok(())
    }

    /// The holder whose shares a request takes: the caller, or the client's address if the caller is anonymous.
    #[must_use]
    pub fn holder(caller: &AuthenticatedCaller, peer: &Peer) -> Holder {
        match caller.scheme {
            "anonymous" => Holder::network(peer.address.ip()),
            _ => Holder::Caller(Arc::clone(&caller.principal)),
        }
    }

    /// Takes a slot for an event stream that belongs to no call, for which so many servers are listened to.
    ///
    /// # Errors
    /// If all slots, or those of the caller, are taken by streams whose clients are connected, or there is no memory.
    pub fn stream_slot(&self, holder: &Holder, servers: usize) -> Result<EventStreamSlot, Failure> {
        let slot = self.quotas.streams.take(holder, servers);
        slot.map_err(|none| Failure::no_share(Quota::Streams, none))
    }

    /// Records and answers a request that is rejected before it is read.
    pub fn turned_away(
        &self,
        admission: &Admission,
        peer: &Peer,
        failure: &Failure,
    ) -> Response<Body> {
        self.refuse(&self.record(admission, peer), failure)
    }
}

/// Permit for a request in flight; given back when dropped. A call keeps it until it ends, even if its response is
/// streamed or its client has disconnected.
#[derive(Debug)]
pub struct InFlightSlot {
    counted: Arc<InFlightCount>,
    whose: SlotOwner,
    /// The share of the address, or of the caller after authentication.
    share: Option<Arc<Share<Holder>>>,
    /// The share for the bytes of the body, which is also held while those wait to be sent to a server.
    body: Option<Arc<Share<Holder>>>,
}

/// Counts a request in flight until it is dropped.
#[derive(Debug)]
struct InFlightCount(Arc<Metrics>);

impl Drop for InFlightCount {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The holder that an in-flight permit is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotOwner {
    /// The client's address, before authentication.
    Address,
    /// The caller, after authentication.
    Caller,
    /// Nobody: a request of the gateway itself.
    Gateway,
}

impl InFlightSlot {
    /// A permit that is counted in `metrics` already.
    fn new(metrics: &Arc<Metrics>, whose: SlotOwner) -> Self {
        let counted = Arc::new(InFlightCount(Arc::clone(metrics)));
        Self { counted, whose, share: None, body: None }
    }

    /// The same permit, to be held until the response is sent; `None` for an unauthenticated client, which must not
    /// occupy permits that callers could use.
    fn until_sent(&self) -> Option<HeldUntilSent> {
        match self.whose {
            SlotOwner::Caller => {
                let held = (Arc::clone(&self.counted), self.share.clone());
                Some(HeldUntilSent::new(Arc::new(held)))
            }
            SlotOwner::Address | SlotOwner::Gateway => None,
        }
    }

    /// Charges the index of the decoded body in addition to its bytes: for many short values it is several times as
    /// long. Short indexes are free.
    ///
    /// # Errors
    /// If the holder's share is used up.
    fn indexed(&mut self, bytes: usize) -> Result<(), Failure> {
        match self.body.as_mut().and_then(Arc::get_mut) {
            Some(share) if bytes > INDEX => {
                share.grow(bytes).map_err(|none| Failure::no_share(Quota::Bodies, none))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The share for the bytes of the body.
    fn body(&self) -> Option<Arc<Share<Holder>>> {
        self.body.clone()
    }
}

/// Attaches what the response holds until it is sent. A stream that belongs to no call has a share of its own instead.
fn hold_until_sent(mut response: Response<Body>, unsent: Option<HeldUntilSent>) -> Response<Body> {
    if let Some(unsent) =
        unsent.filter(|_| response.extensions().get::<EventStreamSlot>().is_none())
    {
        response.extensions_mut().insert(unsent);
    }
    response
}

impl DecodedRequest {
    /// On whose behalf the gateway talks to the server at index `server_index` of the route.
    fn on_behalf(&self, server_index: usize) -> OnBehalfOf {
        let known = self.session.as_ref().map(|session| &session.client);
        let client = self.client.as_ref().or(known);
        let client = client.cloned().unwrap_or_else(DisclosedClient::gateway);
        OnBehalfOf {
            principal: Some(Arc::clone(&self.caller.principal)),
            route: Some(Arc::clone(&self.route.path)),
            client: match self.route.servers.get(server_index) {
                Some(server) => server.introduced(client),
                None => client,
            },
            upstream_session: self.upstream_session(server_index).cloned(),
            subject: self.subject(server_index),
            path: Some(self.path.clone()),
        }
    }

    /// The caller's token, if the server at index `server_index` of the route requires a token exchanged for it.
    fn subject(&self, server_index: usize) -> Option<Arc<SubjectToken>> {
        self.route.servers.get(server_index).filter(|server| server.per_caller_credentials())?;
        let (token, until) = (Arc::clone(self.caller.token.as_ref()?), self.caller.until);
        let caller = self.caller.principal.id.as_str().into();
        Some(Arc::new(SubjectToken { token, caller, until }))
    }

    /// The gateway's session with the server at index `server_index` of the route, as part of the client's session.
    fn upstream_session(&self, server_index: usize) -> Option<&UpstreamSession> {
        let upstream_sessions =
            self.session.as_ref().map_or(&[] as &[_], |session| &session.upstream_sessions);
        upstream_sessions
            .iter()
            .find(|(server, _)| usize::from(*server) == server_index)
            .map(|(_, upstream_session)| upstream_session)
    }
}

/// Notes the id and method of a message in the record, whether or not the message is acceptable.
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

/// Longest index of a decoded body that is not charged, in bytes.
const INDEX: usize = 16 * 1024;

/// Longest body of a rejected request that is read, in bytes, and the time allowed for it.
const DRAIN_BYTES: u64 = 64 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads the body of a rejected request if it is short, and returns whether all of it was read. The connection has to
/// be closed otherwise, which would fail the next request of a client that does not expect it.
async fn drained<B>(mut body: B) -> bool
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    if body.size_hint().upper().is_none_or(|most| most > DRAIN_BYTES) {
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
    tokio::time::timeout(DRAIN_TIMEOUT, read).await.unwrap_or(false)
}
