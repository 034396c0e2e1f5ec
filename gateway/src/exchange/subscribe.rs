//! Streams that belong to no call: the GET stream of a legacy session, and `subscriptions/listen`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use detection::content::ChosenPart;
use detection::inspect::Finding;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use http::Response;
use json::{Document, Fragment, JsonBounds, Value};
use policy::definition::offer::{ItemKind, ReadOnlyHint};
use policy::engine::message::{ItemRequest, RequestExtras, RequestOperation};
use policy::engine::pipeline::{Facts, Permit, Policy, Ruling, Shown};
use policy_core::base::work::{USUAL_MOST, WorkBudget};
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::event_sink::EventSink;
use super::flows::ExchangeFlow;
use super::guardrails::GuardrailSubject;
use super::loads::{loads_changed, tools_changed, wants_tools};
use super::server_request_records::ServerQuestion;
use super::shown_values::ShownResult;
use super::standing_stream::StandingStream;
use super::stream_expiry::{AnsweredCalls, ListenedServers};
use super::{DecodedRequest, Gateway, InFlightSlot, Route};
use crate::audit::{ReadEntry, Record};
use crate::config::quota::Quota;
use crate::edge::encode::{self, ShownNotification};
use crate::edge::failure::Failure;
use crate::mcp::protocol::{code, method};
use crate::mcp::wire::{Id, Notification, Object};
use crate::metrics::outcome::ExchangeEnd;
use crate::outbound::guardrail::GuardedPart;
use crate::session::loaded_tools::LoadListener;
use crate::session::state::{AnsweredCall, RETRY, SessionState};
use crate::stream::body::Body;
use crate::stream::replay::{self, ReplayBuffer};
use crate::upstream::{
    Feed, FeedOpener, InputRequest, InputRequired, ListenedItems, NotificationFilter, OnBehalfOf,
    RESOURCES, ReplySender, STREAM_OPENING, SUBSCRIBABLE_LISTS, ServerMessage, ServerReply,
    Upstream,
};

/// How long a subscription waits for its servers to agree before it is acknowledged.
const AGREEMENT: Duration = Duration::from_secs(2);
/// How long the stream of a session waits for its servers to agree and to begin their streams. Longer than a server is
/// waited for that begins its stream late, so that this is noticed and no later stream waits for it.
const SESSION_AGREEMENT: Duration = STREAM_OPENING.saturating_add(Duration::from_millis(500));
/// Largest number of messages from all servers that wait for one subscription.
const SUBSCRIPTION_QUEUE: usize = 64;
/// The message for a subscription that names too many resources.
const TOO_MANY: &str = "a listener may name 256 resources";

/// What became of a stream that a client wants to go on with.
enum ResumedStream {
    /// It can go on after the event.
    Kept(ResumableStream),
    /// It was the stream of the session, has ended and was read completely.
    Ended,
    /// Its events are not kept.
    Lost,
}

/// A stream that goes on after an event.
struct ResumableStream {
    stream: Arc<ReplayBuffer>,
    /// The number of the last event that the client has received.
    after: u64,
    /// The call that it answers, if it answers one.
    about: Option<Arc<AnsweredCall>>,
}

impl Gateway {
    /// GET: opens the stream of a session, or resumes an interrupted stream.
    ///
    /// SPEC 2025-11-25 basic/transports#listening-for-messages-from-the-server
    pub(super) async fn stream(
        self: Arc<Self>,
        arrived: DecodedRequest,
        last: Option<Box<str>>,
        record: Box<Record>,
    ) -> Response<Body> {
        let Some(session) = &arrived.session else {
            let missing = Failure::Session(crate::session::SessionError::Missing);
            return self.refuse(&record, &missing);
        };
        let session_slot = match self.session_states.reserve(session.key, &arrived.holder) {
            Ok(session_slot) => session_slot,
            Err(none) => return self.refuse(&record, &Failure::no_share(Quota::Sessions, none)),
        };
        let flow = self.flow_of(&arrived, &record);
        let entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        let kept = self.session_states.enter(session_slot);
        let caller = &arrived.caller.principal;
        match last.map_or(ResumedStream::Ended, |last| resumable(&kept, caller, &last)) {
            ResumedStream::Kept(found) => self.resume_stream(&arrived, entry, found),
            // A new stream of the session is opened.
            ResumedStream::Ended => self.open_standing(arrived, entry, kept, flow).await,
            ResumedStream::Lost => self.failed(entry, &Failure::Replay, None),
        }
    }

    /// Goes on with an interrupted stream of a session.
    fn resume_stream(
        &self,
        arrived: &DecodedRequest,
        entry: ReadEntry,
        found: ResumableStream,
    ) -> Response<Body> {
        let ResumableStream { stream, after, about } = found;
        // One that is held already is for this stream, whether its earlier reader has left or not.
        let held = self.quotas.streams.held_for(&stream);
        let stream_slot = match held.map_or_else(|| self.stream_slot(&arrived.holder, 0), Ok) {
            Ok(stream_slot) => stream_slot,
            Err(failure) => return self.failed(entry, &failure, None),
        };
        match &about {
            Some(about) => self.withdraw_revoked(&stream, about),
            None => self.withdraw_of_revoked(&arrived.route, &stream),
        }
        let Some(reader) = stream.attach(Some(after)) else {
            return self.failed(entry, &Failure::Replay, None);
        };
        let mut response = encode::events(Body::replay(reader));
        response.extensions_mut().insert(stream_slot);
        if let Some(about) = about {
            response.extensions_mut().insert(AnsweredCalls(vec![AnsweredCall::clone(&about)]));
        }
        self.shown(entry, ExchangeEnd::answered(), None, response)
    }

    /// Opens the stream of a session, which takes the place of an earlier one.
    async fn open_standing(
        self: Arc<Self>,
        arrived: DecodedRequest,
        entry: ReadEntry,
        kept: Arc<SessionState>,
        flow: Option<ExchangeFlow>,
    ) -> Response<Body> {
        // Its slot is free then, so that no stream of another session has to end for this one.
        kept.end_unread_standing();
        if !kept.has_room() {
            return self.failed(entry, &Failure::Overload, None);
        }
        let slot = match self.stream_slot(&arrived.holder, arrived.route.servers.len()) {
            Ok(slot) => slot,
            Err(failure) => return self.failed(entry, &failure, None),
        };
        let events = kept.stream(None, &arrived.caller.principal, self.clock.instant());
        let Some((reader, events)) = events.and_then(|new| Some((new.attach(None)?, new))) else {
            return self.failed(entry, &Failure::Overload, None);
        };
        if arrived.session.as_ref().is_some_and(|session| {
            session.version >= crate::mcp::protocol::ProtocolVersion::V2025November
        }) {
            events.prime(RETRY);
        }
        slot.hold_for(&events, &arrived.holder);
        // Those that are revoked while they are asked end the response.
        let listened = ListenedServers(self.unrevoked(&arrived.route));
        let stream = StandingStream {
            gateway: Arc::clone(&self),
            caller: Arc::clone(&arrived.caller.principal),
            route: Arc::clone(&arrived.route),
            kept,
            events,
            _slot: slot.clone(),
        };
        self.listen_for_session(&arrived, &entry, &stream, flow).await;
        let mut response = encode::events(Body::replay(reader));
        response.extensions_mut().insert(slot);
        response.extensions_mut().insert(listened);
        self.shown(entry, ExchangeEnd::answered(), None, response)
    }

    /// Listens to the servers of a route for the stream of a session. Waits for them, but not for one that is silent.
    async fn listen_for_session(
        &self,
        arrived: &DecodedRequest,
        entry: &ReadEntry,
        stream: &StandingStream,
        flow: Option<ExchangeFlow>,
    ) {
        let mut agreements = Vec::new();
        for server_index in 0..arrived.route.servers.len() {
            let listener = SessionForwarder {
                stream: stream.clone(),
                on_behalf: arrived.on_behalf(server_index),
                server_index,
                flow: flow.clone(),
            };
            agreements.extend(listener.start(entry));
        }
        self.forward_loads(arrived, entry, stream);
        let begun = agreements.into_iter().map(|agreement| async {
            if let Ok(agreed) = agreement.await {
                AgreedServer::begin(agreed).await;
            }
        });
        // A server that has not answered by then is still asked: the client hears of it later.
        tokio::select! {
            begun = timeout(SESSION_AGREEMENT, join_all(begun)) => drop(begun),
            () = stream.over(None) => {}
        }
    }

    /// `subscriptions/listen`: opens a subscription of a modern client.
    ///
    /// SPEC 2026-07-28 basic/patterns/subscriptions
    pub(super) async fn listen(
        self: Arc<Self>,
        arrived: DecodedRequest,
        filter: Fragment,
        record: Box<Record>,
        slot: InFlightSlot,
    ) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        // Resources that are denied or named twice count as well, because each is inspected.
        if watched(filter.value()).nth(RESOURCES).is_some() {
            return self.refuse(&record, &Failure::Params(TOO_MANY));
        }
        let flow = self.flow_of(&arrived, &record);
        let mut entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        let mut found = Vec::new();
        let wanted = self.wanted(&arrived, &filter, flow, &mut found).await;
        entry.found(found);
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(finding) => return self.failed(entry, &Failure::Unsent(finding), Some(&id)),
        };
        let bytes = wanted.iter().flatten().map(NotificationFilter::bytes).sum();
        let held = match self.quotas.subscriptions.take(&arrived.holder, bytes) {
            Ok(held) => held,
            Err(none) => {
                let failure = Failure::no_share(Quota::Subscriptions, none);
                return self.failed(entry, &failure, Some(&id));
            }
        };
        let mut openers = Vec::new();
        for (server_index, (server, wants)) in arrived.route.servers.iter().zip(wanted).enumerate()
        {
            if let Some(wants) = wants.filter(|wants| !wants.is_empty()) {
                let on_behalf = arrived.on_behalf(server_index);
                match server.feed_opener(wants, &entry, on_behalf) {
                    Ok(opener) => openers.push(opener),
                    Err(error) => return self.failed(entry, &Failure::Upstream(error), Some(&id)),
                }
            }
        }
        // Last, because a stream of a client that is away may end for it.
        let stream_slot = match self.stream_slot(&arrived.holder, openers.len()) {
            Ok(stream_slot) => stream_slot,
            Err(failure) => return self.failed(entry, &failure, Some(&id)),
        };
        let (outlet, mut response) = EventSink::direct(self.session_states.room(&arrived.holder));
        response.extensions_mut().insert(stream_slot);
        let loads = self.listen_for_loads(&arrived, &entry).filter(|_| wants_tools(&filter));
        let about = OpenSubscription::of(&arrived, &id, loads);
        // The servers are asked once this is on record and decided: the place of a request is not kept for a silent one.
        let response = self.shown(entry, ExchangeEnd::answered(), Some(&id), response);
        drop(slot);
        let carried = Arc::clone(&self).carry(openers, outlet, about);
        self.tasks.spawn(async move {
            carried.await;
            drop(held);
        });
        response
    }

    /// Asks the guardrails about the resources that servers would be told of, since the caller chooses the URIs.
    /// Findings are added to `found`.
    ///
    /// # Errors
    /// The finding for which a server must not receive them.
    async fn agreed_to(
        &self,
        arrived: &DecodedRequest,
        wanted: &[Option<NotificationFilter>],
        found: &mut Vec<Finding>,
    ) -> Result<(), Finding> {
        let (caller, route) = (&arrived.caller.principal, &arrived.route);
        if route.guardrails.is_empty() {
            return Ok(());
        }
        let servers = route.servers.iter().zip(wanted);
        let servers = servers.filter_map(|(server, wants)| Some((server, wants.as_ref()?)));
        for (server, wants) in servers.filter(|(_, wants)| wants.names_resources()) {
            let mut filter = Vec::new();
            let mut object = Object::open(&mut filter);
            wants.items().show(&mut object);
            object.close();
            // INVARIANT: the parts were parsed by the same reader within the same bounds.
            let filter = Document::parse(filter.into(), &JsonBounds::ANSWER);
            let filter = filter.map_err(|_error| Finding::too_long())?;
            let (part, value) = (GuardedPart::Request, filter.root());
            let about = GuardrailSubject { server, name: method::LISTEN, part, value, beside: "" };
            match self.guarded(route, caller, about).await {
                Ok((_, noted)) => found.extend(noted),
                Err((finding, noted)) => {
                    found.extend(noted);
                    return Err(finding);
                }
            }
        }
        Ok(())
    }

    /// The part of a filter that the policy and the guardrails allow, for each server of the route; `None` for one that
    /// the caller may not use. Findings are added to `found`.
    ///
    /// # Errors
    /// The finding for which no server may receive any of it.
    async fn wanted(
        &self,
        arrived: &DecodedRequest,
        filter: &Fragment,
        flow: Option<ExchangeFlow>,
        found: &mut Vec<Finding>,
    ) -> Result<Vec<Option<NotificationFilter>>, Finding> {
        let (route, filter) = (Arc::clone(&arrived.route), filter.clone());
        let bytes = filter.value().raw().len();
        let look =
            move |policy: &Policy, facts: &Facts, caller: &Arc<Principal>, budget: &WorkBudget| {
                let mut found = Vec::new();
                let flow = flow.as_ref();
                let check = SubscriptionCheck { policy, facts, caller, flow, budget };
                let wanted: Vec<_> = (0..route.servers.len())
                    .map(|server_index| {
                        check.permitted(&route, server_index, filter.value(), &mut found)
                    })
                    .collect();
                (wanted, found, budget.is_exhausted())
            };
        let looked = self.inspect(&arrived.caller.principal, bytes, look).await;
        let Ok((wanted, seen, false)) = looked else {
            return Err(self.unseen(Finding::over_budget(), found));
        };
        self.note_findings(&arrived.caller.principal, &seen);
        found.extend(seen);
        self.agreed_to(arrived, &wanted, found).await?;
        Ok(wanted)
    }

    /// Carries notifications of servers to a modern client until it disconnects or the gateway stops.
    async fn carry(
        self: Arc<Self>,
        openers: Vec<FeedOpener>,
        outlet: EventSink,
        about: OpenSubscription,
    ) {
        let (sender, told) = mpsc::channel(SUBSCRIPTION_QUEUE);
        let mut asked = Vec::new();
        for opener in openers {
            let (agreed, answer) = oneshot::channel();
            let upstream = Arc::clone(opener.upstream());
            let wanted = opener.wants().items().clone();
            asked.push(AskedServer { upstream, wanted, agreed: answer });
            let opening = OpeningFeed { opener, agreed: Some(agreed) };
            let caller = Arc::clone(&about.caller);
            let route = Arc::clone(&about.route);
            self.tasks.spawn(Arc::clone(&self).forward(caller, route, opening, sender.clone()));
        }
        // The tasks end when `told` is dropped.
        if self.acknowledge_subscription(asked, &outlet, &about).await {
            self.relay(told, &outlet, about).await;
        }
        // Until now it has kept the channel open, so that a subscription without servers lasts as well.
        drop(sender);
    }

    /// Sends the first message of a subscription, and returns whether the client took it.
    async fn acknowledge_subscription(
        &self,
        asked: Vec<AskedServer>,
        outlet: &EventSink,
        about: &OpenSubscription,
    ) -> bool {
        let agreed = tokio::select! {
            biased;
            () = outlet.closed() => return false,
            agreed = self.await_agreement(asked) => agreed,
        };
        self.hand(outlet, &acknowledged(about, &agreed)).await
    }

    /// Sends the client what is told, until it disconnects, a server is gone for good or the gateway stops.
    async fn relay(
        &self,
        mut told: mpsc::Receiver<Option<FromServer>>,
        outlet: &EventSink,
        about: OpenSubscription,
    ) {
        let OpenSubscription { route, caller, id, mut loads } = about;
        loop {
            let heard = tokio::select! {
                Some(told) = told.recv() => told,
                () = loads_changed(&mut loads) => {
                    let may_use = self.may_use_any_of(&route, &caller);
                    if may_use && !self.hand(outlet, &tools_changed(Some(&id))).await {
                        return;
                    }
                    continue;
                }
                () = outlet.closed() => return,
                () = self.tasks.stopping() => None,
            };
            let Some(FromServer { server, told }) = heard else {
                // The last message does not wait for a client that does not read.
                outlet.send(&encode::unsubscribed(&id), Duration::ZERO).await;
                return;
            };
            let Some(told) = self.told_on_record(&caller, &route, &server, &told).await else {
                continue;
            };
            let uri = told.params.as_ref().and_then(|params| params.value().get("uri"));
            let uri = uri.and_then(Value::as_str);
            // The caller may have lost the right to the server or to the resource since.
            let gone = |uri: &str| !self.may_watch(&caller, &server, uri);
            let may_use = self.policy.grants_any(&self.policy.facts(), &caller, server.name());
            if !may_use || uri.as_deref().is_some_and(gone) {
                continue;
            }
            let shown =
                uri.as_deref().and_then(|uri| route.shown(&server, ItemKind::Resource, uri));
            let message = match &shown {
                Some(uri) => encode::subscription_notification(&told, &[("uri", uri)], &id),
                None => encode::subscription_notification(&told, &[], &id),
            };
            if !self.hand(outlet, &message).await {
                return;
            }
        }
    }

    /// What a subscription is told of by each server, as far as that is known once all have answered, after a while, or
    /// when the gateway stops.
    ///
    /// SPEC 2026-07-28 basic/patterns/subscriptions#acknowledgment: the first message names what is honored, and nothing
    /// can be added later. So a server that has not answered counts with everything it was asked for: what it says will be
    /// forwarded.
    async fn await_agreement(&self, asked: Vec<AskedServer>) -> Vec<AgreedItems> {
        let enough = async {
            tokio::select! {
                () = sleep(AGREEMENT) => {}
                () = self.tasks.stopping() => {}
            }
        };
        let enough = enough.boxed().shared();
        join_all(asked.into_iter().map(|server| server.agreed_by(enough.clone()))).await
    }

    /// Forwards the notifications of one server that the subscription admits, until the receiver is gone. Sends `None`
    /// when the server's stream ends.
    async fn forward(
        self: Arc<Self>,
        caller: Arc<Principal>,
        route: Arc<Route>,
        opening: OpeningFeed,
        to: mpsc::Sender<Option<FromServer>>,
    ) {
        // Boxed, because the task waits for messages most of the time.
        let opened = tokio::select! {
            biased;
            () = to.closed() => return,
            opened = Box::pin(opening.opened()) => opened,
        };
        let Some(OpenedFeed { mut feed, is_late }) = opened else {
            return drop(to.send(None).await);
        };
        for told in is_late.then(|| feed.missed()).into_iter().flatten() {
            if to.send(FromServer::of(&feed, Arc::new(told))).await.is_err() {
                return;
            }
        }
        loop {
            let heard = tokio::select! {
                heard = feed.next() => heard,
                () = to.closed() => return,
            };
            match heard {
                Ok(ServerMessage::Notification(told)) => {
                    let params = told.params.as_ref().map(Fragment::value);
                    if !feed.wants().admits(&told.method, params) {
                        continue;
                    }
                    let bytes = params.map_or(0, |said| said.span().len());
                    if bytes > self.limits.notification {
                        // It is too long and will be withheld: inspected at once, so that it does not wait in memory.
                        let server = feed.upstream();
                        drop(self.told_on_record(&caller, &route, server, &told).await);
                    } else if to.send(FromServer::of(&feed, told)).await.is_err() {
                        return;
                    }
                }
                Ok(ServerMessage::Request(question, replier)) => {
                    if let Some(id) = &question.id {
                        let why = "nobody can be asked";
                        replier.reply(ServerReply::refusal(id, code::METHOD, why)).await;
                    }
                }
                Err(_) => return drop(to.send(None).await),
            }
        }
    }

    /// Sends a message that belongs to no call, and returns whether the client took it. A client that does not read
    /// does not delay a reload or a stop.
    async fn hand(&self, outlet: &EventSink, message: &[u8]) -> bool {
        tokio::select! {
            biased;
            sent = outlet.send(message, self.limits.write_timeout) => sent,
            () = self.tasks.stopping() => false,
        }
    }
}

/// The resources in a subscription filter.
fn watched(filter: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    filter.get("resourceSubscriptions").into_iter().flat_map(Value::items)
}

/// A subscription of a modern client.
struct OpenSubscription {
    route: Arc<Route>,
    caller: Arc<Principal>,
    /// The id of the request that opened it.
    id: Id,
    /// The changes of the caller's list by what it finds, if it wants to know of them.
    loads: Option<LoadListener>,
}

impl OpenSubscription {
    fn of(arrived: &DecodedRequest, id: &Id, loads: Option<LoadListener>) -> Self {
        Self {
            route: Arc::clone(&arrived.route),
            caller: Arc::clone(&arrived.caller.principal),
            id: id.clone(),
            loads,
        }
    }
}

/// A notification of a server for a subscription. `None` in its place says that the server is gone for good.
struct FromServer {
    server: Arc<Upstream>,
    told: Arc<Notification>,
}

impl FromServer {
    fn of(feed: &Feed, told: Arc<Notification>) -> Option<Self> {
        Some(Self { server: Arc::clone(feed.upstream()), told })
    }
}

/// A server that a subscription listens to.
struct AskedServer {
    upstream: Arc<Upstream>,
    /// What it is asked for.
    wanted: ListenedItems,
    /// What it agrees to. Nothing is sent if it fails.
    agreed: oneshot::Receiver<ListenedItems>,
}

/// What a subscription is told of by one server.
struct AgreedItems {
    upstream: Arc<Upstream>,
    items: ListenedItems,
}

impl AskedServer {
    /// What the server has agreed to before `enough`; all that it is asked for if it has not answered or has failed, since
    /// it is asked again.
    async fn agreed_by(self, enough: impl Future<Output = ()>) -> AgreedItems {
        let Self { upstream, wanted, agreed } = self;
        let items = tokio::select! {
            biased;
            agreed = agreed => agreed.unwrap_or(wanted),
            () = enough => wanted,
        };
        AgreedItems { upstream, items }
    }
}

/// A feed that is being opened.
struct OpeningFeed {
    opener: FeedOpener,
    /// Where the server's first answer goes; `None` once it has failed.
    agreed: Option<oneshot::Sender<ListenedItems>>,
}

/// A feed that was opened.
struct OpenedFeed {
    feed: Feed,
    /// Whether the subscription was acknowledged before, or the server had failed before: what has changed since the client
    /// began to listen may have been missed.
    is_late: bool,
}

impl OpeningFeed {
    /// Asks the server until it agrees, with pauses that grow; `None` if it is lost. The acknowledgement does not wait for
    /// a server that has failed.
    async fn opened(self) -> Option<OpenedFeed> {
        let Self { mut opener, mut agreed } = self;
        let feed = opener.open_repeatedly(|| drop(agreed.take())).await?;
        let items = feed.wants().items().clone();
        let is_late = agreed.is_none_or(|agreed| agreed.send(items).is_err());
        Some(OpenedFeed { feed, is_late })
    }
}

/// The message that says what a subscription is told of: what the servers have agreed to, and changes of the list by what
/// the caller finds.
fn acknowledged(about: &OpenSubscription, agreed: &[AgreedItems]) -> Vec<u8> {
    encode::acknowledged(&about.id, |filter| {
        let mut all = ListenedItems::default();
        for AgreedItems { upstream, items } in agreed {
            let shown = |uri: &str| {
                let shown = about.route.shown(upstream, ItemKind::Resource, uri);
                shown.unwrap_or_default()
            };
            all.merge(items, shown);
        }
        if about.loads.is_some() {
            all.merge(&ListenedItems::of_list(ItemKind::Tool), str::to_owned);
        }
        all.show(filter);
    })
}

/// Decides what a caller may subscribe to.
#[derive(Clone, Copy)]
struct SubscriptionCheck<'a> {
    policy: &'a Policy,
    facts: &'a Facts,
    caller: &'a Principal,
    /// The flow of the request, if it is part of the decision.
    flow: Option<&'a ExchangeFlow>,
    budget: &'a WorkBudget,
}

impl SubscriptionCheck<'_> {
    /// The part of a filter that the caller may subscribe to at the server `server_index` of a route; `None` if it may not use the
    /// server.
    fn permitted(
        self,
        route: &Route,
        server_index: usize,
        filter: Value<'_>,
        found: &mut Vec<Finding>,
    ) -> Option<NotificationFilter> {
        let Self { policy, facts, caller, budget, .. } = self;
        let server = route.servers.get(server_index)?;
        let mut wants =
            policy.admit_server(facts, caller, server.name()).map(NotificationFilter::new);
        for kind in SUBSCRIBABLE_LISTS {
            let flag = crate::upstream::flag(kind).and_then(|flag| filter.get(flag));
            if flag.and_then(Value::as_bool) == Some(true) {
                let permit = policy.admit_list(facts, caller, server.name(), kind).outcome;
                if let (Some(wants), Ok(permit)) = (&mut wants, permit) {
                    wants.add(permit);
                }
            }
        }
        // A value of another server may be split across several URIs.
        let uris: Vec<_> = watched(filter).filter_map(Value::as_str).collect();
        let parts: Vec<_> = uris.iter().map(|uri| ChosenPart::Text(uri)).collect();
        let (joinable, pieces) = policy.joinable(caller, server.name(), &parts, budget);
        found.extend(pieces);
        if joinable.is_err() {
            return None;
        }
        for uri in uris {
            let Some(own) = route.own_uri(server.name(), &uri) else { continue };
            let kind = ItemKind::Resource;
            if policy.flow().refuses(route.planner, server.name(), kind, own).is_some() {
                continue;
            }
            let ruling = self.of_resource(server.name(), own);
            if budget.is_exhausted() {
                // The caller of this function discards everything, since the filter was not inspected completely.
                return None;
            }
            found.extend(ruling.decision.findings);
            if let (Some(wants), Ok(permit)) = (&mut wants, ruling.outcome) {
                // INVARIANT: filters with too many resources are refused before.
                wants.add(permit);
            }
        }
        wants
    }

    /// The decision about a subscription to a resource of a server.
    fn of_resource(self, server: &ServerName, uri: &str) -> Ruling<Permit> {
        let call = ItemRequest::bare(server, RequestOperation::Subscribe, uri);
        let Self { policy, facts, caller, flow, budget } = self;
        let extras = RequestExtras::default();
        let decide = |call, extras: &RequestExtras| {
            policy.admit_with(facts, caller, None, call, extras, budget)
        };
        match flow {
            Some(flow) => flow.admit(policy, call, None, extras, decide),
            None => decide(call, &extras),
        }
    }
}

/// Finds the stream of a session that a client goes on with after the event `last`.
fn resumable(kept: &SessionState, caller: &Principal, last: &str) -> ResumedStream {
    let found = replay::read_id(last).and_then(|(id, event)| Some((kept.find(id, caller)?, event)));
    let Some(((stream, about), after)) = found else { return ResumedStream::Lost };
    if about.is_none() && stream.is_over() && stream.ends_with(after) {
        return ResumedStream::Ended;
    }
    if !stream.continues_after(after) {
        return ResumedStream::Lost;
    }
    ResumedStream::Kept(ResumableStream { stream, after, about })
}

/// Forwards the messages of one server to the stream of a legacy session.
struct SessionForwarder {
    stream: StandingStream,
    on_behalf: OnBehalfOf,
    server_index: usize,
    /// The flow of the session; `None` if no flow is remembered.
    flow: Option<ExchangeFlow>,
}

/// A server that has agreed to tell the stream of a session what happens.
struct AgreedServer {
    server: Arc<Upstream>,
    /// Cancelled once no further message of the server can be missed.
    stream_begun: CancellationToken,
}

impl AgreedServer {
    /// Waits until no further message of the server can be missed.
    async fn begin(self) {
        self.server.await_stream(&self.stream_begun).await;
    }
}

impl SessionForwarder {
    fn server(&self) -> Option<&Arc<Upstream>> {
        self.stream.route.servers.get(self.server_index)
    }

    /// What the session may receive from the server now; `None` if the caller may not use the server.
    fn wants(&self) -> Option<NotificationFilter> {
        let server = self.server()?.name();
        let StandingStream { gateway, caller, kept, .. } = &self.stream;
        let (policy, facts) = (&*gateway.policy, gateway.policy.facts());
        let (facts, caller) = (&facts, &**caller);
        let permit = policy.admit_server(facts, caller, server)?;
        let mut wants = match self.on_behalf.upstream_session {
            Some(_) => NotificationFilter::of_session(permit),
            None => NotificationFilter::new(permit),
        };
        for kind in SUBSCRIBABLE_LISTS {
            if let Ok(permit) = policy.admit_list(facts, caller, server, kind).outcome {
                wants.add(permit);
            }
        }
        for uri in kept.watched(self.server_index) {
            let budget = WorkBudget::for_bytes(uri.len(), USUAL_MOST);
            // What was shown in the flow was part of the decision when the client subscribed.
            let flow = None;
            let check = SubscriptionCheck { policy, facts, caller, flow, budget: &budget };
            if let Ok(permit) = check.of_resource(server, &uri).outcome {
                wants.add(permit);
            }
        }
        Some(wants)
    }

    /// Subscribes to the server for as long as the stream lasts. It is asked in the background, so that a silent one delays
    /// nobody; what is returned gets the server when it has agreed, and is closed when it has failed. `None` if the caller
    /// may not use the server.
    fn start(self, entry: &ReadEntry) -> Option<oneshot::Receiver<AgreedServer>> {
        let server = Arc::clone(self.server()?);
        let wanted = self.stream.kept.wanted();
        let opener = server.feed_opener(self.wants()?, entry, self.on_behalf.clone()).ok()?;
        // While the server is asked, no version is in effect yet: a `resources/subscribe` waits.
        self.stream.kept.listened(self.server_index, Some(0));
        let (agreed, agreement) = oneshot::channel();
        let tasks = self.stream.gateway.tasks.clone();
        tasks.spawn(async move {
            let over = self.stream.over(Some(server.name()));
            tokio::select! {
                biased;
                () = over => {}
                () = Box::pin(self.serve(opener, agreed, wanted)) => {}
            }
        });
        Some(agreement)
    }

    /// Waits for the server to agree, and forwards what it says until the stream has ended or was superseded.
    async fn serve(&self, opener: FeedOpener, agreed: oneshot::Sender<AgreedServer>, wanted: u64) {
        let mut agreed = Some(agreed);
        let Some(feed) = Box::pin(self.open(opener, &mut agreed)).await else { return };
        self.stream.kept.listened(self.server_index, Some(wanted));
        let server =
            AgreedServer { server: Arc::clone(feed.upstream()), stream_begun: feed.opened() };
        let is_late = agreed.is_none_or(|agreed| agreed.send(server).is_err());
        if is_late {
            self.tell_missed(&feed).await;
        }
        self.forward(feed, wanted).await;
    }

    /// Tells what may have changed before a server agreed, to a client whose stream has begun without it.
    async fn tell_missed(&self, feed: &Feed) {
        for told in feed.missed() {
            Box::pin(self.tell(feed, &told)).await;
        }
    }

    /// Asks the server until it agrees, with pauses that grow; `None` if it is lost, or the stream is over before. After the
    /// first failure nobody waits for the server: `agreed` is dropped, and a `resources/subscribe` is answered at once.
    async fn open(
        &self,
        mut opener: FeedOpener,
        agreed: &mut Option<oneshot::Sender<AgreedServer>>,
    ) -> Option<Feed> {
        let given_up = || {
            drop(agreed.take());
            self.stream.kept.listened(self.server_index, None);
        };
        tokio::select! {
            biased;
            () = self.stream.events.over() => None,
            feed = opener.open_repeatedly(given_up) => feed,
        }
    }

    /// Forwards messages until the stream has ended or was superseded. The futures in between are boxed, because one of these
    /// tasks waits for every stream.
    async fn forward(&self, mut feed: Feed, mut wanted: u64) {
        let StandingStream { kept, events, .. } = &self.stream;
        loop {
            let changed = kept.rewatched();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if kept.wanted() != wanted {
                wanted = kept.wanted();
                match Box::pin(self.relisten(feed, wanted)).await {
                    Some(new) => feed = new,
                    None => return events.end(),
                }
            }
            let heard = tokio::select! {
                heard = feed.next() => heard,
                () = changed => continue,
                () = events.over() => return,
            };
            match heard {
                Ok(ServerMessage::Notification(told)) => Box::pin(self.tell(&feed, &told)).await,
                Ok(ServerMessage::Request(question, replier)) => {
                    let Some(id) = question.id.clone() else { continue };
                    Box::pin(self.ask(id, &question.method, question.params, replier)).await;
                }
                // The session with the server has ended, or its program has exited: the client has to reconnect for a
                // new subscription.
                Err(_) => return events.end(),
            }
        }
    }

    /// Subscribes again after the session's subscriptions have changed; `None` if that fails or the caller may no longer
    /// use the server. A server with a session of its own has received the change already.
    async fn relisten(&self, feed: Feed, wanted: u64) -> Option<Feed> {
        if self.on_behalf.upstream_session.is_some() {
            self.stream.kept.listened(self.server_index, Some(wanted));
            return Some(feed);
        }
        let wants = self.wants()?;
        let server = Arc::clone(self.server()?);
        let StandingStream { gateway, caller, route, kept, .. } = &self.stream;
        let record = gateway.listening(caller, route, server.name());
        let entry = gateway.journal.open(record).ok()?;
        let again = server.listen(wants, &entry, self.on_behalf.clone()).await;
        kept.listened(self.server_index, Some(wanted));
        drop(feed);
        let (again, ending) = match again {
            Ok(again) => (Some(again), ExchangeEnd::answered()),
            Err(error) => {
                let failure = Failure::Upstream(error);
                let ending = failure.ending(&failure.public(None));
                (None, ending)
            }
        };
        // What is not on record is not shown.
        entry.close(ending).ok()?;
        again
    }

    async fn tell(&self, feed: &Feed, told: &Notification) {
        let StandingStream { gateway, caller, route, .. } = &self.stream;
        let server = feed.upstream();
        let told = gateway.told_on_record(caller, route, server, told).await;
        let Some(told) = &told else { return };
        let params = told.params.as_ref().map(Shown::value);
        let is_wanted = feed.wants().admits(&told.method, params);
        let message = match &*told.method {
            method::UPDATED => {
                let uri = told.params.as_ref().and_then(|params| params.value().get("uri"));
                let Some(uri) = uri.and_then(Value::as_str) else { return };
                let wanted = feed.wants().everything() || is_wanted;
                let may = gateway.may_watch(caller, server, &uri);
                let Some(shown) = route.shown(server, ItemKind::Resource, &uri) else {
                    return;
                };
                (wanted && may).then(|| encode::notification(told, &[("uri", &shown)]))
            }
            method::LOG | method::ELICITED => {
                feed.wants().everything().then(|| encode::notification(told, &[]))
            }
            method::PROGRESS | method::CANCELLED | method::TASK_STATUS | method::TASK => None,
            name if crate::upstream::changed(name).is_some() => {
                is_wanted.then(|| encode::notification(told, &[]))
            }
            name => {
                let may = gateway.may_notify(caller, server, name);
                (may && feed.wants().everything()).then(|| encode::notification(told, &[]))
            }
        };
        if let Some(message) = message {
            self.remember_shown(server, told).await;
            // A disconnected client may still resume; if it does not in time, the stream ends.
            self.stream.tell(Some(server.name()), &message).await;
        }
    }

    /// Remembers the values of a notification that the client is about to be shown in the flow of the session.
    async fn remember_shown(&self, server: &Upstream, told: &ShownNotification) {
        let (Some(flow), Some(said)) = (&self.flow, &told.params) else { return };
        let (server, kind, name) = (server.name(), ItemKind::Method, &*told.method);
        let result = ShownResult { server, kind, name, said };
        self.stream.gateway.remember_shown(flow, &self.stream.caller, result).await;
    }

    /// Sends a server request that belongs to no call, and passes the response to the server.
    async fn ask(&self, id: Id, asked: &str, params: Option<Fragment>, replier: Box<ReplySender>) {
        let Some(server) = self.server() else { return };
        let StandingStream { gateway, caller, route, kept, .. } = &self.stream;
        let question = InputRequest { key: "".into(), id: None, method: asked.into(), params };
        let question = InputRequired { questions: vec![question], result: None };
        let params = match gateway.judged(caller, server, question, ReadOnlyHint::Absent).await {
            Ok(asked) => asked.questions.into_iter().next().and_then(|question| question.params),
            Err(refusal) => {
                let question = ServerQuestion { server, method: asked };
                gateway.refused_to(caller, route, question, refusal);
                let note = refusal.reason.note();
                replier.reply(ServerReply::refusal(&id, code::DENIED, note)).await;
                return;
            }
        };
        let told = Notification { method: asked.into(), params };
        let told = gateway.told_on_record(caller, route, server, &told).await;
        let Some(told) = told else {
            let why = "the question was withheld";
            replier.reply(ServerReply::refusal(&id, code::DENIED, why)).await;
            return;
        };
        let params = told.params.as_ref();
        let can = self.on_behalf.client.lacks(asked, params.map(Shown::value)).is_none();
        let terms = server.server_requests().terms(asked, params.map(Shown::value));
        let Some((ours, answer)) = kept.ask(Some(terms)).filter(|_| can) else {
            let why = "the client does not offer that";
            replier.reply(ServerReply::refusal(&id, code::METHOD, why)).await;
            return;
        };
        let message = encode::server_request(&ours, asked, params);
        if !self.stream.push(Some(server.name()), &message, gateway.limits.input_timeout).await {
            let why = "the client did not read the question in time";
            replier.reply(ServerReply::refusal(&id, code::DENIED, why)).await;
            return;
        }
        let (gateway, caller) = (Arc::clone(gateway), Arc::clone(caller));
        let (server, route) = (Arc::clone(server), Arc::clone(route));
        let tasks = gateway.tasks.clone();
        let asked: Box<str> = asked.into();
        tasks.spawn(async move {
            let question = ServerQuestion { server: &server, method: &asked };
            replier.reply(gateway.awaited(&caller, &route, question, &id, answer).await).await;
        });
    }
}

impl Drop for SessionForwarder {
    fn drop(&mut self) {
        self.stream.kept.listened(self.server_index, None);
    }
}
