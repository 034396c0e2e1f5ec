//! Something about one thing: a call of a tool, a prompt, a resource, a completion, or a method that
//! only the two ends know. The decision, the record, the request.

use std::sync::Arc;

use http::Response;
use policy::control::Control;
use policy::decision::{self, Denial, Reason};
use policy::inspect::Finding;
use policy::json::{Bounds, Document, Fragment};
use policy::message::{Beside, Call as Sent, Use, Verb};
use policy::mirror::Mirrored;
use policy::offer::{Kind, Offer};
use policy::pipeline::{Permit, Policy};
use policy::principal::Principal;
use policy::registry::Registered;
use policy::uri::ResourceUri;
use policy::work::Budget;
use tokio::time::timeout;

use super::cancellation::Cancellable;
use super::guardrails::Matter;
use super::in_flight_call::{Call, Frame};
use super::state::{Bound, State};
use super::stream_expiry::Used;
use super::{Arrived, Gateway, Parked, Place};
use crate::audit::{Entry, Record, Verdict};
use crate::config::quota::Quota;
use crate::edge::decode::{Repeated, UseAsk};
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::mcp::client_info::Client;
use crate::mcp::protocol::{Era, meta};
use crate::mcp::trace_context::Told;
use crate::mcp::wire::{DecodeError, Id, Object};
use crate::metrics::outcome::Ending;
use crate::outbound::guardrail::Part;
use crate::stream::body::Body;
use crate::upstream::{Manner, Upstream, listening_bytes};

/// The level of log messages for legacy clients that name none.
const LEVEL: &str = r#""info""#;

/// A use that may be made.
pub(super) struct Admitted {
    at: usize,
    server: Arc<Upstream>,
    permit: Permit,
    verb: Verb,
    /// Which thing, as its server knows it.
    name: Box<str>,
    /// What the client was given to carry.
    state: Option<State>,
    mirrored: Vec<Mirrored>,
}

/// Why a request is given up before its server begins to answer.
enum GivenUp {
    /// The client no longer wants the answer.
    Cancelled,
    /// What it uses was revoked meanwhile.
    Revoked(Failure),
}

impl Admitted {
    /// The server, its place on the route, and the permit.
    pub(super) fn into_parts(self) -> (usize, Arc<Upstream>, Permit) {
        (self.at, self.server, self.permit)
    }
}

impl Gateway {
    /// Does what is asked, if the policy permits it, once that is on record.
    pub(super) async fn make_use(
        self: Arc<Self>,
        arrived: Arrived,
        mut ask: Box<UseAsk>,
        mut record: Box<Record>,
        place: Place,
    ) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        let era = arrived.inbound.version.era();
        let inputs = ask.inputs.clone();
        let (progress, level) = (ask.progress.take(), self.level(&arrived, ask.level.take()));
        let calls = ask.verb == Verb::Call;
        if ask.verb == Verb::Read && Self::is_kept(&ask.name) {
            return self.read_kept(&arrived, &ask.name, record).await;
        }
        let admitted = match self.admit(&arrived, *ask, &mut record).await {
            Ok(admitted) => admitted,
            Err(failure) if calls => return self.refuse_call(&record, &failure, &id),
            Err(failure) => return self.refuse(&record, &failure),
        };
        if let Err(failure) = self.counted(&arrived, &admitted, &mut record) {
            return self.refuse_call(&record, &failure, &id);
        }
        if let Err(failure) = self.agreed(&arrived, &admitted, &mut record).await {
            return match calls {
                true => self.refuse_call(&record, &failure, &id),
                false => self.refuse(&record, &failure),
            };
        }
        if self.is_ours(&arrived, &admitted) {
            return self.subscribe(&arrived, &admitted, record).await;
        }
        let session = arrived.session.as_ref().map(|session| session.key);
        // What the answer may need is there before anything is sent.
        let seat = session.map(|session| self.conversations.seat(session, &arrived.holder));
        let seat = match seat.transpose() {
            Ok(seat) => seat,
            Err(none) => return self.refuse(&record, &Failure::no_share(Quota::Sessions, none)),
        };
        let cancelled = match Cancellable::enter(&self, session, &id) {
            Ok(cancelled) => cancelled,
            Err(failure) => return self.refuse(&record, &failure),
        };
        let entry = match self.journal.open_call(record) {
            Ok(entry) => entry,
            Err(error) => {
                self.journal.log_lost(&error, "no record, no call");
                return encode::error(&Failure::Audit(error).public(Some(era)), Some(&id));
            }
        };
        let (version, started) = (arrived.inbound.version, self.clock.instant());
        let mut frame = Frame {
            entry,
            id,
            version,
            batched: arrived.batched,
            progress,
            level: level.clone(),
            session,
            seat,
            cancelled,
            started,
            place,
        };
        let inputs = match inputs {
            None => None,
            Some(inputs) => {
                let entry = &mut frame.entry;
                match self.sendable_inputs(&arrived, &admitted, inputs, entry).await {
                    Ok(inputs) => Some(inputs),
                    Err(failure) => return self.failed_use(frame, admitted.verb, &failure),
                }
            }
        };
        let (inputs, state) = match admitted.state.clone() {
            Some(State::Parked(name)) => {
                // The call was permitted and sent before. The permit of now says that it still
                // may go on; nothing is sent with it. The call is the same: the state is bound to it.
                let (sent, _) = admitted.permit.spend();
                // What another configuration let out is not released under this one.
                let ours = |parked: &Parked| Arc::ptr_eq(&parked.call.gateway, &self);
                return match self.parking.remove(&name).filter(ours) {
                    Some(Parked { mut call, share, .. }) => {
                        // It may have to wait again.
                        drop(share);
                        if let Sent::Use(sent) = sent {
                            call.answer.remember_sent(sent);
                        }
                        call.answer.takes_of(frame.place.body());
                        call.under(frame).resume(inputs).await
                    }
                    None => {
                        let gone = Failure::Params("the call this belongs to no longer waits");
                        self.failed(frame.entry, &gone, Some(&frame.id))
                    }
                };
            }
            Some(State::Server(state)) => (inputs, Some(state)),
            Some(State::Again) => (None, None),
            None => (inputs, None),
        };
        let progress = frame.progress.is_some();
        let (mirrored, asks) = (admitted.mirrored.clone(), true);
        let known = self.registered(&admitted);
        let timeout = known.and_then(|known| known.timeout);
        let trace = match self.sendable_trace(&arrived, &admitted, &mut frame.entry) {
            Ok(trace) => trace,
            Err(failure) => return self.failed_use(frame, admitted.verb, &failure),
        };
        let share = frame.place.body();
        let manner =
            Manner { progress, level, inputs, state, mirrored, asks, timeout, trace, share };
        self.send(&arrived, admitted, frame, manner).await
    }

    /// The answers of a client to what was asked, as they may be sent. What was found in them is put on record.
    async fn sendable_inputs(
        &self,
        arrived: &Arrived,
        admitted: &Admitted,
        inputs: Fragment,
        entry: &mut Entry,
    ) -> Result<Fragment, Failure> {
        let (caller, route) = (&arrived.caller.principal, &arrived.route);
        let about = (&*admitted.server, &*admitted.name);
        let (sent, found) = self.answerable(caller, route, about, inputs).await;
        if let Some(record) = entry.record() {
            record.found(found);
        }
        sent.map_err(Failure::Unsent)
    }

    /// The trace that the server may be told of, if any. What was found in it is put on record.
    fn sendable_trace(
        &self,
        arrived: &Arrived,
        admitted: &Admitted,
        entry: &mut Entry,
    ) -> Result<Option<Box<Told>>, Failure> {
        let Some(told) = entry.record().and_then(|record| record.trace.told()) else {
            return Ok(None);
        };
        let (sent, found) = self.traceable(&arrived.caller.principal, &admitted.server, &told);
        if let Some(record) = entry.record() {
            record.found(found);
        }
        let is_sent = sent.map_err(Failure::Unsent)?;
        Ok(is_sent.then(|| Box::new(told)))
    }

    /// The answer to something that was denied after its record was opened: of a call of a tool in a result.
    fn failed_use(&self, frame: Frame, verb: Verb, failure: &Failure) -> Response<Body> {
        let Frame { entry, id, .. } = frame;
        if verb == Verb::Call {
            self.failed_call(entry, failure, &id)
        } else {
            self.failed(entry, failure, Some(&id))
        }
    }

    async fn send(
        self: Arc<Self>,
        arrived: &Arrived,
        admitted: Admitted,
        mut frame: Frame,
        manner: Manner,
    ) -> Response<Body> {
        let Admitted { at, server, permit, name, verb, .. } = admitted;
        let party = arrived.party(at);
        let client = Arc::clone(&party.client);
        let hint = permit.hint();
        let caller = &arrived.caller.principal;
        let used = Used { server: server.name(), kind: verb.kind(), name: &name };
        let sent = tokio::select! {
            biased;
            failure = self.revoked(caller, used) => Err(GivenUp::Revoked(failure)),
            () = frame.cancelled.cancelled() => Err(GivenUp::Cancelled),
            sent = server.call(permit, &frame.entry, party, manner) => Ok(sent),
        };
        let took = self.clock.instant().saturating_duration_since(frame.started);
        if let Some(record) = frame.entry.record() {
            record.upstream = took;
            record.sent = Some(frame.started);
        }
        let (due, answer) = match sent {
            Ok(Ok(sent)) => sent,
            Err(GivenUp::Revoked(failure)) => {
                return self.failed(frame.entry, &failure, Some(&frame.id));
            }
            Ok(Err(error)) => {
                let failure = match error.wanted_of(hint) {
                    Some(refusal) => {
                        let finding = self.not_asked(&server, refusal);
                        if let Some(record) = frame.entry.record() {
                            record.found(vec![finding]);
                        }
                        Failure::Refused(refusal)
                    }
                    None => Failure::Upstream(error),
                };
                return self.failed(frame.entry, &failure, Some(&frame.id));
            }
            Err(GivenUp::Cancelled) => {
                let nothing = encode::events(Body::empty());
                return self.shown(frame.entry, Ending::cancelled(), None, nothing);
            }
        };
        let call = Call {
            tool: name,
            caller: Arc::clone(&arrived.caller.principal),
            holder: arrived.holder.clone(),
            client,
            route: Arc::clone(&arrived.route),
            server,
            due: Some(due),
            answer,
            bound: None,
            waiting: Vec::new(),
            asked: None,
            rounds: 0,
            gateway: self,
        };
        call.under(frame).answer().await
    }

    /// Whether the guardrails of the route let the arguments pass.
    pub(super) async fn agreed(
        &self,
        arrived: &Arrived,
        admitted: &Admitted,
        record: &mut Record,
    ) -> Result<(), Failure> {
        let (caller, about) = (&arrived.caller.principal, (&*admitted.server, &*admitted.name));
        if arrived.route.guardrails.is_empty() {
            return Ok(());
        }
        let Sent::Use(call) = admitted.permit.call() else { return Ok(()) };
        let Some((chosen, beside)) = chosen(call, &arrived.party(admitted.at).client, record)
        else {
            return Ok(());
        };
        // INVARIANT: its parts were read by the same reader within the same bounds.
        let unread = |error| Failure::Decode(DecodeError::Json(error));
        let chosen = Document::parse(chosen.into(), &Bounds::ANSWER).map_err(unread)?;
        let arguments = admitted.permit.arguments().map(Fragment::value);
        let value = arguments.unwrap_or_else(|| chosen.root());
        let (server, name) = about;
        let about = Matter { server, name, part: Part::Request, value, beside: &beside };
        match self.guarded(&arrived.route, caller, about).await {
            Ok(found) => {
                // One that gave no answer has not been asked.
                if found.is_empty() {
                    record.ran.note(Control::Guardrails);
                }
                record.found(found);
                Ok(())
            }
            Err((finding, found)) => {
                record.ran.note(Control::Guardrails);
                record.found(found);
                Err(Failure::Unsent(finding))
            }
        }
    }

    /// Whether a server may be told of the trace of a caller, and what was found in what it says of it.
    fn traceable(
        &self,
        caller: &Principal,
        server: &Upstream,
        told: &Told,
    ) -> (Result<bool, Finding>, Vec<Finding>) {
        let state = told.state.as_deref().map(|state| (meta::TRACE_STATE, state));
        let texts = std::iter::once((meta::TRACE_PARENT, &*told.parent)).chain(state);
        let (sent, found) = self.policy.traceable(caller, server.name(), texts);
        self.metrics.content(&found);
        (sent, found)
    }

    fn registered(&self, admitted: &Admitted) -> Option<&Registered> {
        self.policy.registered(admitted.server.name(), admitted.verb.kind(), &admitted.name)
    }

    /// Counts a call of a tool of which only so many may be made. Going on with one that waits here is
    /// none.
    fn counted(
        &self,
        arrived: &Arrived,
        admitted: &Admitted,
        record: &mut Record,
    ) -> Result<(), Failure> {
        let rate = self.registered(admitted).and_then(|known| known.rate);
        let parked = matches!(admitted.state, Some(State::Parked(_)));
        let new = admitted.verb == Verb::Call && !parked;
        let Some(rate) = rate.filter(|_| new) else { return Ok(()) };
        record.ran.note(Control::Rates);
        let caller = arrived.caller.principal.id.as_str().into();
        let key = (caller, admitted.server.name().as_str().into(), admitted.name.clone());
        self.rates.take(key, rate, self.clock.instant()).map_err(Failure::Rate)
    }

    /// The least severe log message that is wanted of a modern server.
    fn level(&self, arrived: &Arrived, said: Option<Box<str>>) -> Option<Box<str>> {
        let Some(session) = &arrived.session else { return said };
        let kept = self.conversations.find(session.key).and_then(|kept| kept.level());
        Some(kept.unwrap_or_else(|| LEVEL.into()))
    }

    /// The decision: which server, which thing, and whether.
    pub(super) async fn admit(
        &self,
        arrived: &Arrived,
        ask: UseAsk,
        record: &mut Record,
    ) -> Result<Admitted, Failure> {
        let kind = ask.verb.kind();
        record.item = Some((kind, ask.name.clone()));
        if let (Kind::Resource, Ok(uri)) = (kind, ResourceUri::parse(&ask.name)) {
            record.item = Some((kind, uri.as_str().into()));
        }
        let arguments = ask.arguments.as_ref();
        record.argument_digest =
            arguments.map(|args| self.journal.digest(args.value().raw().as_bytes()));
        let mut ask = ask;
        let Some(target) = self.target(arrived, &mut ask, record).await? else {
            let (decision, denial) = Policy::unknown(kind);
            record.verdict = Verdict::Decided(Box::new(decision));
            return Err(Failure::Denied(kind, denial));
        };
        let (at, server, name) = target;
        record.server = Some(server.name().as_str().into());
        record.own_name = Some(name.clone());
        self.capture_arguments(server.name(), ask.arguments.as_ref(), record).await;
        if matches!(ask.verb, Verb::Task(_)) {
            record.item = Some((kind, name.clone()));
        }
        let principal = &*arrived.caller.principal;
        // Who may use nothing of this kind causes no request to the server: not even for its list.
        let any = self.policy.admit_list(principal, server.name(), kind);
        let refused = any.outcome.err().map(|denial| (Box::new(any.decision), denial));
        if let Some((decision, denial)) = refused {
            record.verdict = Verdict::Decided(decision);
            return Err(self.denied(arrived, kind, denial));
        }
        let listing = match kind {
            Kind::Method => None,
            Kind::Tool | Kind::Prompt | Kind::Resource | Kind::Template => {
                let listing = server.catalog(&arrived.party(at), kind).await;
                if listing.as_ref().is_err_and(|error| self.is_stranger(server, error)) {
                    let (decision, denial) = Policy::of_stranger();
                    record.verdict = Verdict::Decided(Box::new(decision));
                    return Err(Failure::Denied(kind, denial));
                }
                Some(listing.map_err(Failure::Upstream)?)
            }
        };
        let catalog = listing.as_ref().map(|listing| &**listing.catalog());
        let mirrored = catalog.and_then(|catalog| catalog.offer(&name)).map(Offer::mirrored);
        let mirrored = mirrored.unwrap_or_default().to_vec();
        let (asked_in, repeats) = (arrived.inbound.version.era(), ask.mirrored.is_some());
        let said = ask.mirrored.unwrap_or_default();
        let repeats = asked_in == Era::Modern && repeats;
        let call = Use {
            server: server.name().clone(),
            verb: ask.verb,
            name: name.clone(),
            arguments: ask.arguments,
            extra: ask.extra,
            meta: ask.meta,
        };
        let verb = call.verb;
        let beside = beside(ask.inputs, &arrived.party(at).client, record);
        let state = ask.state.map(|text| {
            let bound = Bound::new(principal, arrived.route.identity(), &call);
            let state = bound.open(&self.sealer, &text, self.clock.now());
            state.ok_or(Failure::Params("`requestState` is not one that was given for this"))
        });
        let arguments = call.arguments.clone();
        let bytes = self.to_inspect(&call, catalog.and_then(|catalog| catalog.offer(&name)));
        let bytes = bytes.saturating_add(beside.bytes());
        let offers = listing.as_ref().map(|listing| Arc::clone(listing.catalog()));
        let admit = move |policy: &Policy, caller: &Arc<Principal>, budget: &Budget| {
            policy.admit_with(caller, offers.as_deref(), call, &beside, budget)
        };
        let ruling = self.inspect(&arrived.caller.principal, bytes, admit).await;
        let ruling = ruling.map_err(|_refused| Failure::Overload)?;
        // What was found in the definition was found when it was listed.
        let listed =
            catalog.and_then(|catalog| catalog.offer(&name)).map_or(&[][..], Offer::findings);
        let sent = ruling.decision.findings.iter().filter(|finding| !listed.contains(finding));
        self.metrics.content(sent);
        record.verdict = Verdict::Decided(Box::new(ruling.decision));
        let permit = ruling.outcome.map_err(|denial| self.denied(arrived, kind, denial));
        let permit = permit.map_err(|failure| respelled(failure, kind, &name))?;
        if repeats {
            agree(&mirrored, &said, arguments.as_ref().map(Fragment::value))?;
        }
        let state = state.transpose()?;
        Ok(Admitted { at, server: Arc::clone(server), permit, verb, name, state, mirrored })
    }

    /// The server a name leads to, and the name there. Where that cannot be found out, `record` says whose failure it is.
    async fn target<'a>(
        &self,
        arrived: &'a Arrived,
        ask: &mut UseAsk,
        record: &mut Record,
    ) -> Result<Option<(usize, &'a Arc<Upstream>, Box<str>)>, Failure> {
        let servers = &arrived.route.servers;
        if matches!(ask.verb, Verb::Task(_)) {
            let Some(task) = self.task(arrived, ask) else { return Ok(None) };
            ask.extra.push(("taskId".into(), task.id));
            return Ok(servers.get(task.at).map(|server| (task.at, server, task.tool)));
        }
        let renamed = arrived.route.renames() && ask.verb.kind() != Kind::Method;
        if let [server] = &servers[..]
            && !renamed
        {
            return Ok(Some((0, server, ask.name.clone())));
        }
        let found = match ask.verb.kind() {
            Kind::Resource | Kind::Template => {
                let own = |server: &Arc<Upstream>| {
                    arrived.route.own_uri(server.name(), &ask.name).map(Into::into)
                };
                servers.iter().enumerate().find_map(|(at, s)| Some((at, s, own(s)?)))
            }
            // Nothing in a method says whose it is, so it has to be one server's alone.
            Kind::Method => {
                let principal = &*arrived.caller.principal;
                let mut granted = servers.iter().enumerate().filter(|(_, server)| {
                    self.policy.admit_list(principal, server.name(), Kind::Method).outcome.is_ok()
                });
                let first = granted.next();
                first.filter(|_| granted.next().is_none()).map(|(at, s)| (at, s, ask.name.clone()))
            }
            kind @ (Kind::Tool | Kind::Prompt) => {
                self.named(arrived, kind, &ask.name, record).await?
            }
        };
        Ok(found)
    }

    /// Whether a subscription is kept here: the server has no session in which it could keep it.
    fn is_ours(&self, arrived: &Arrived, admitted: &Admitted) -> bool {
        matches!(admitted.verb, Verb::Subscribe | Verb::Unsubscribe)
            && arrived.leg(admitted.at).is_none()
    }

    async fn subscribe(
        &self,
        arrived: &Arrived,
        admitted: &Admitted,
        record: Box<Record>,
    ) -> Response<Body> {
        let id = arrived.id.as_ref();
        let seat = arrived.session.as_ref();
        let seat = seat.map(|session| self.conversations.seat(session.key, &arrived.holder));
        let seat = match seat.transpose() {
            Ok(seat) => seat,
            Err(none) => return self.refuse(&record, &Failure::no_share(Quota::Sessions, none)),
        };
        let bytes = listening_bytes(&admitted.name);
        let wanted = admitted.verb == Verb::Subscribe;
        let wanted = wanted.then(|| self.quotas.subscriptions.take(&arrived.holder, bytes));
        let wanted = match wanted.transpose() {
            Ok(wanted) => wanted,
            Err(none) => {
                return self.refuse(&record, &Failure::no_share(Quota::Subscriptions, none));
            }
        };
        let entry = match self.journal.open_read(record) {
            Ok(entry) => entry,
            Err(error) => return encode::error(&Failure::Audit(error).public(None), id),
        };
        let kept = seat.map(|seat| self.conversations.enter(seat));
        let watched =
            kept.as_ref().is_some_and(|kept| kept.watch(admitted.at, &admitted.name, wanted));
        if let Some(kept) = kept.filter(|_| watched) {
            // Who is told that it has subscribed misses nothing from then on.
            drop(timeout(self.limits.connect_time, kept.settled(admitted.at)).await);
        }
        match id.filter(|_| watched) {
            Some(id) => self.shown(entry, Ending::answered(), Some(id), encode::nothing(id)),
            None => self.failed(entry, &Failure::Overload, id),
        }
    }
}

/// What goes to the server in one message with a use, beside what its params say: the answers of the client, what it
/// says of itself, and the trace.
fn beside(answers: Option<Fragment>, client: &Client, record: &Record) -> Beside {
    let mut beside = Beside { answers, ..Beside::default() };
    if !client.says_nothing() {
        beside.client.extend(client.said_info().map(Into::into));
        beside.client.push(client.capabilities().into());
    }
    if let Some(Told { parent, state }) = record.trace.told() {
        beside.trace.push(parent);
        beside.trace.extend(state);
    }
    beside
}

/// What a caller chose of a request, for those who are asked about it: what stands for its arguments where
/// it has none, as JSON, and what stands beside them, as the members of an object. `None` where it chose
/// nothing but a task it was given.
fn chosen(call: &Use, client: &Client, record: &Record) -> Option<(Vec<u8>, String)> {
    let takes = matches!(call.verb, Verb::Call | Verb::Get);
    let theirs = |key: &str| matches!(call.verb, Verb::Task(_)) && key == "taskId";
    let extra = || call.extra.iter().filter(|(key, _)| !theirs(key));
    if matches!(call.verb, Verb::Task(_)) && extra().next().is_none() && call.meta.is_empty() {
        return None;
    }
    let mut value = Vec::new();
    let mut object = Object::open(&mut value);
    if !takes {
        match call.verb.kind() {
            Kind::Resource | Kind::Template => object.text("uri", &call.name),
            Kind::Tool | Kind::Prompt | Kind::Method => {}
        }
        extra().for_each(|(key, member)| object.raw(key, member.value().raw()));
    }
    object.close();
    let mut beside = Vec::new();
    let mut object = Object::open(&mut beside);
    if takes && !call.extra.is_empty() {
        let mut params = Object::open(object.key("params"));
        call.extra.iter().for_each(|(key, member)| params.raw(key, member.value().raw()));
        params.close();
    }
    if !call.meta.is_empty() {
        let mut meta = Object::open(object.key("_meta"));
        call.meta.iter().for_each(|(key, member)| meta.raw(key, member.value().raw()));
        meta.close();
    }
    if let Some(Told { parent, state }) = record.trace.told() {
        object.text(meta::TRACE_PARENT, &parent);
        if let Some(state) = state {
            object.text(meta::TRACE_STATE, &state);
        }
    }
    if !client.says_nothing() {
        object.raw("clientCapabilities", client.capabilities());
        if let Some(info) = client.said_info() {
            object.raw("clientInfo", info);
        }
    }
    object.close();
    let beside = String::from_utf8(beside).ok()?;
    let members = beside.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    Some((value, members.unwrap_or_default().to_owned()))
}

/// The failure of a caller that has named a resource in a spelling that cannot be compared: it is told what
/// to correct. It is told the same whether or not something is listed in this spelling that it does not see.
fn respelled(failure: Failure, kind: Kind, name: &str) -> Failure {
    match (failure, ResourceUri::parse(name)) {
        (Failure::Denied(_, denial), Err(error))
            if kind == Kind::Resource && denial.told == decision::Told::Nothing =>
        {
            Failure::Denied(
                kind,
                Denial { reason: Reason::Uri(error), told: decision::Told::Nothing },
            )
        }
        (failure, Ok(_) | Err(_)) => failure,
    }
}

/// Whether the headers repeat the arguments as the tool wants it.
///
/// SPEC 2026-07-28 basic/transports/streamable-http#server-behavior-for-custom-headers
fn agree(
    wanted: &[Mirrored],
    said: &[Repeated],
    arguments: Option<policy::json::Value<'_>>,
) -> Result<(), Failure> {
    for mirrored in wanted {
        let said = said.iter().find(|(header, _)| *header == mirrored.header);
        let said = said.map(|(_, value)| value.as_deref());
        match (said, mirrored.value(arguments)) {
            (None, None) => {}
            (Some(Some(said)), Some(meant)) if Mirrored::agree(said, &meant) => {}
            (None, Some(_)) => {
                return Err(Failure::HeaderMismatch("an `Mcp-Param-` header is missing"));
            }
            (Some(_), _) => {
                let what = "an `Mcp-Param-` header is not the argument in the body";
                return Err(Failure::HeaderMismatch(what));
            }
        }
    }
    Ok(())
}
