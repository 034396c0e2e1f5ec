//! The servers behind the gateway. A call needs a permit and an open record; there is no other way
//! to make one.
//!
//! What is sent is written for the era the server speaks, found out once and again when it no
//! longer holds. Ids, progress tokens and sessions on this side are the gateway's own.

mod on_behalf_of;
pub mod server_identity;
mod breaker;
mod credential;
mod error;
mod single_flight;
mod request;
mod message;
mod streamable_http;
mod server_log;
mod send_queue;
mod demux;
mod channel;
mod stdio;
mod http_sse;
mod channel_pool;
mod answer;
mod handshake;
mod listing;
mod subscription;
mod stream;
mod gateway_session;
mod catalog;
mod capability_lists;
mod notifications;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use ::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use arc_swap::ArcSwapOption;
use policy::ask::Asks;
use policy::inspect::Finding;
use policy::json::Fragment;
use policy::message::{Call, Use, Verb};
use policy::name::ServerName;
use policy::offer::Offer;
use policy::pin::Digest;
use policy::pipeline::{Expectation, Permit};
use tokio::time::{Instant, timeout_at};

use crate::audit::Entry;
use crate::base::bounded::Bounded;
use crate::base::gcra::Gcra;
use crate::base::intake::Intake;
use crate::base::share::{Holder, Share, Shares};
use crate::base::task::Tasks;
use crate::config::overrides::Overrides;
use crate::config::settings::{Limits, Program, Protocol, Reach, Server, Value};
use crate::mcp::client_info::Client;
use crate::mcp::protocol::{Era, Version};
use crate::mcp::wire::{Id, Message, Outcome};
use crate::metrics::{Metrics, OfServer};
use crate::net::connection::{LinkError, Target};
use crate::outbound::environment::{World, WorldError};
use crate::outbound::secrets::LiveSecret;
use crate::pins::Keeper;
use crate::session::Leg;

pub use answer::{Answer, Asked, Question, Replier, Step, is_progress};
use answer::{Incoming, Messages};
use breaker::{Breaker, Pass};
use capability_lists::CapableShelves;
pub use capability_lists::Offered;
use catalog::Shelf;
use channel::ChannelTerms;
use channel_pool::{Opener, Seats};
pub use credential::CredentialError;
use credential::Credentials;
use demux::Serves;
pub use error::UpstreamError;
use gateway_session::{Key, OwnDesk, Standing, Whom};
pub use handshake::Hello;
use handshake::{Known, KnownOfCaller};
use http_sse::Old;
pub use listing::{Listing, Written};
pub use notifications::{Feed, Heard};
pub use on_behalf_of::{Party, Subject};
pub use request::Manner;
use request::{Outgoing, Speaker};
pub use server_log::LastWords;
use server_log::Noise;
use single_flight::Turn;
use stdio::Starter;
use streamable_http::Http;
pub use subscription::{RESOURCES, Wants, changed, flag, listening_bytes};

/// The first id used towards a server. All have ten digits for a long time to come, so that two
/// answers that say the same differ in those digits alone.
const FIRST_ID: i64 = 1_000_000_000;

/// A server.
#[derive(Debug)]
pub struct Upstream {
    name: ServerName,
    protocol: Protocol,
    transport: Transport,
    /// What a program says that goes to the log.
    noise: Option<Arc<Noise>>,
    limits: Limits,
    /// Its name, and a digest of where it is: what belongs to one is nothing to another of that name.
    identity: Box<str>,
    /// What it may ask of clients.
    asks: Asks,
    /// What callers are shown of its tools in place of its own words.
    overrides: Arc<Overrides>,
    counts: Arc<OfServer>,
    /// How much is logged about what it says.
    about: Noise,
    breaker: Option<Arc<Breaker>>,
    /// Compares what it says with what was approved.
    keeper: Arc<Keeper>,
    tasks: Tasks,
    next_id: AtomicI64,
    known: ArcSwapOption<Known>,
    probing: Turn,
    /// The same of a server that speaks to callers alone, by caller.
    known_by: Bounded<Key, KnownOfCaller>,
    /// It can be spoken to in the name of a caller alone.
    asks_callers: bool,
    /// Which start of it was met last.
    met: AtomicU64,
    /// A server that speaks the modern era has refused a handshake.
    modern_alone: AtomicBool,
    /// It was found to speak the legacy era alone: that is tried first, also after it was away.
    is_legacy: AtomicBool,
    /// It begins streams with the first thing it says on them.
    begins_late: AtomicBool,
    /// What it offers to all, and what it offers to one.
    shared: Arc<Shelf>,
    shelves: Bounded<Whom, Arc<Shelf>>,
    /// How many of those one caller may have.
    places: Arc<Shares<Arc<str>>>,
    /// Lists on them by their digest: one that several are shown is kept once.
    same: Bounded<[u8; 32], Weak<Listing>>,
    /// Bytes of kept lists, of all servers.
    lists: Arc<Shares<Arc<str>>>,
    /// Bytes of the lists of this server that are kept once for all callers, by its name.
    lists_for_all: Arc<Shares<Arc<str>>>,
    /// Bytes of answers, of all servers.
    answers: Arc<Intake>,
    /// What it offers to clients that can be asked something.
    capable: CapableShelves,
    /// Sessions the gateway keeps for callers who have none of their own.
    standing: Bounded<Key, Arc<Standing>>,
    /// The desks of sessions that clients have of their own.
    desks: Bounded<(Key, Leg), OwnDesk>,
    /// How many listen for a resource, by session.
    watched: Bounded<(Option<Leg>, u64, Box<str>), usize>,
}

#[derive(Debug)]
enum Transport {
    Http(Box<Http>),
    Channel(Seats),
}

impl Upstream {
    /// The server `server`, not yet spoken to.
    ///
    /// # Errors
    /// When its URL cannot be used.
    pub fn new(
        server: &Server,
        env: Vec<(String, Arc<LiveSecret>)>,
        limits: Limits,
        world: &World,
        metrics: &Metrics,
        keeper: Arc<Keeper>,
    ) -> Result<Self, UpstreamError> {
        let (name, tasks) = (server.name.clone(), world.tasks.clone());
        let seats = |opener| {
            let (all, each) = (limits.processes, limits.processes_per_caller);
            Transport::Channel(Seats::new(opener, server.sharing, all, each))
        };
        let target = |uri: &Uri| target_of(server, uri, limits.connect_time, world);
        if let Some(identity) = server_identity::of_url(server) {
            keeper.identified(&name, &identity);
        }
        let credentials = Credentials::new(world, server.credential.as_ref(), &limits);
        let credentials = Arc::new(credentials.map_err(UpstreamError::World)?);
        let extra = Extra::new(world, &server.headers).map_err(UpstreamError::World)?;
        let asks_callers = credentials.are_of_callers();
        let counts = metrics.server(name.as_str());
        let breaker = server
            .circuit_breaker
            .map(|bounds| Arc::new(Breaker::new(bounds, Arc::clone(&counts), Instant::now())));
        let mut heard = None;
        let terms = |noise: &Arc<Noise>| ChannelTerms {
            name: name.clone(),
            limits,
            noise: Arc::clone(noise),
            counts: Arc::clone(&counts),
            intake: Arc::clone(&world.quotas.answers),
        };
        let transport = match &server.reach {
            Reach::Http(uri) => {
                let (target, terms) = (target(uri)?, limits.http2_of_servers());
                let alone = server.tls.http1_alone;
                let target = if alone { target } else { target.multiplexed(terms, tasks.clone()) };
                let answers = (name.as_str().into(), Arc::clone(&world.quotas.answers));
                let http = Http::new(uri, target, credentials, extra, limits, answers)?;
                Transport::Http(Box::new(http))
            }
            Reach::Old(uri) => {
                let (terms, shown) =
                    (terms(&Noise::new(Arc::clone(&counts))), (credentials, extra));
                let old = Old::new(terms, uri, target(uri)?, shown, tasks.clone());
                seats(Opener::Old(Box::new(old)))
            }
            Reach::Stdio(program) => {
                let program = Program { env: Vec::new(), ..program.clone() };
                let noise = Noise::new(Arc::clone(&counts));
                let starter = Starter::new(terms(&noise), program, env, tasks.clone());
                let starter = starter.known_to(Arc::clone(&keeper));
                heard = Some(noise);
                seats(Opener::Program(Box::new(starter)))
            }
        };
        Ok(Self {
            name,
            protocol: server.protocol,
            transport,
            noise: heard,
            limits,
            identity: identity(server),
            asks: server.asks.clone(),
            overrides: Arc::clone(&server.overrides),
            about: Noise::about(Arc::clone(&counts)),
            counts,
            breaker,
            keeper,
            tasks,
            next_id: AtomicI64::new(FIRST_ID),
            known: ArcSwapOption::empty(),
            probing: Turn::default(),
            known_by: Bounded::new(limits.sessions),
            asks_callers,
            met: AtomicU64::new(0),
            modern_alone: AtomicBool::new(server.protocol == Protocol::Modern),
            is_legacy: AtomicBool::new(false),
            begins_late: AtomicBool::new(false),
            shared: Arc::default(),
            shelves: Bounded::new(limits.sessions),
            places: Shares::new(limits.sessions, limits.sessions_per_caller),
            same: Bounded::new(limits.sessions),
            lists: Arc::clone(&world.quotas.lists),
            lists_for_all: Shares::new(limits.answers_per_server, limits.answers_per_server),
            answers: Arc::clone(&world.quotas.answers),
            capable: CapableShelves::new(&server.asks),
            standing: Bounded::new(limits.sessions),
            desks: Bounded::new(limits.sessions),
            watched: Bounded::new(limits.sessions),
        })
    }

    /// Does what has to be done now and then.
    pub fn tend(self: &Arc<Self>) {
        // That of another configuration is over.
        self.counts.circuit(self.breaker.as_ref().map(|breaker| breaker.until()));
        self.tasks.spawn_service(Arc::clone(self).sweep());
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &ServerName {
        &self.name
    }

    /// What it may ask of clients.
    #[must_use]
    pub const fn asks(&self) -> &Asks {
        &self.asks
    }

    /// What callers are shown of its tools in place of its own words.
    #[must_use]
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Whether a line about what it says may be logged at `now`, and how many were not since the last one.
    #[must_use]
    pub fn may_log(&self, now: std::time::Instant) -> Option<u64> {
        self.about.allow(now.into())
    }

    /// Whether it can be spoken to in the name of a caller alone, and not in our own.
    #[must_use]
    pub const fn asks_callers(&self) -> bool {
        self.asks_callers
    }

    /// What the last program of it that has ended said last on its error output, and what comes of that.
    #[must_use]
    pub fn last_words(&self) -> LastWords {
        self.noise.as_ref().map(|noise| noise.last()).unwrap_or_default()
    }

    /// What it says of itself, in each era that it speaks; and whether it was heard in each, or has
    /// clearly refused.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn hellos(&self, party: &Party) -> Result<(Vec<Arc<Hello>>, bool), UpstreamError> {
        let mut whole = true;
        let mut hellos = vec![self.hello(party).await?];
        if hellos.iter().all(|hello| hello.era == Era::Modern) {
            // A legacy client is spoken for in its own era, where the server speaks that too.
            match self.legacy_session(party).await {
                Ok(Some(opened)) => {
                    hellos.push(Arc::clone(&opened.hello));
                    if let Some(leg) = &opened.leg {
                        self.close(party, leg, opened.since.elapsed()).await;
                    }
                }
                Ok(None) => {}
                Err(_) => whole = false,
            }
        }
        Ok((hellos, whole))
    }

    /// Tells, once, that a definition of it is withheld from a caller because of what was found in it.
    pub fn withheld(&self, offer: &Offer, finding: &Finding) {
        self.keeper.withheld(&self.name, offer, finding);
    }

    /// The same of the instructions in what it says of itself, which has this digest.
    pub fn withheld_instructions(&self, digest: Option<Digest>, finding: &Finding) {
        self.keeper.withheld_instructions(&self.name, digest, finding);
    }

    /// Has what it says of itself compared with what was approved.
    pub fn compare(&self, hello: &Hello) {
        if let Some(said) = &hello.said {
            self.keeper.note_server(&self.name, said, hello.digest);
        }
    }

    /// Its name, and a digest of where it is.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// What is counted of it.
    #[must_use]
    pub fn counts(&self) -> &OfServer {
        &self.counts
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn hello(&self, party: &Party) -> Result<Arc<Hello>, UpstreamError> {
        Ok(Arc::clone(&self.known(party).await?.hello))
    }

    /// Opens a session of its own for a legacy client. A server that speaks both eras is spoken to
    /// in the client's: then nothing has to be translated.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn open(
        &self,
        version: Version,
        party: &Party,
    ) -> Result<(Arc<Hello>, Option<Leg>), UpstreamError> {
        match &self.transport {
            Transport::Http(_) if !self.modern_alone.load(Ordering::Relaxed) => {
                match self.noted(self.session(version, party, Serves::Session).await) {
                    Ok(opened) => return Ok((Arc::clone(&opened.hello), opened.leg)),
                    Err(error) if error.is_open() => return Err(error),
                    Err(error) => {
                        // Either it has no handshake, or it cannot be reached: the question which
                        // era it speaks tells the two apart.
                        let known = self.known(party).await?;
                        if known.hello.era == Era::Legacy {
                            return Err(error);
                        }
                        self.modern_alone.store(true, Ordering::Relaxed);
                        return Ok((Arc::clone(&known.hello), None));
                    }
                }
            }
            Transport::Channel(seats) if seats.own() => {
                let opened = self.noted(self.session(version, party, Serves::Session).await)?;
                return Ok((Arc::clone(&opened.hello), opened.leg));
            }
            Transport::Channel(seats) if seats.may_be_own(party.client.answers_any(&self.asks)) => {
                if let Some(opened) = self.own_era(seats, version, party).await {
                    return Ok((Arc::clone(&opened.hello), opened.leg));
                }
            }
            Transport::Http(_) | Transport::Channel(_) => {}
        }
        Ok((self.hello(party).await?, None))
    }

    /// Ends a session that was opened for a client and has lasted `age`.
    pub async fn close(&self, party: &Party, leg: &Leg, age: Duration) {
        self.over(leg, age, true);
        self.shelves.remove(&Whom::Session(leg.clone()));
        match &self.transport {
            Transport::Http(http) => {
                let farewell = request::initialized(party, leg);
                let ended =
                    tokio::time::timeout(self.limits.answer_time, http.end(&farewell)).await;
                if let Ok(Err(error)) = ended {
                    let error = crate::base::error_chain::Chain(&error);
                    tracing::debug!(server = %self.name, %error, "the session was not ended");
                }
            }
            Transport::Channel(seats) => leg.id.iter().for_each(|id| seats.close(id)),
        }
    }

    /// How to speak to the server for `party`: in which session, if in any.
    async fn reach(self: &Arc<Self>, party: &Party) -> Result<Option<Leg>, UpstreamError> {
        if let Some(leg) = &party.leg {
            return Ok(Some(leg.clone()));
        }
        let known = self.known(party).await?;
        if self.keeps_sessions(known.hello.era) && party.principal.is_some() {
            return self.standing(party).await.map(Some);
        }
        Ok(known.leg.clone())
    }

    /// Forgets the session that [`Self::reach`] found, because the server has.
    fn lost(&self, party: &Party, leg: Option<&Leg>) {
        if let Some(leg) = leg {
            self.forget(party, leg);
        }
        self.known_by.remove(&party.key());
        let known = self.known.load_full();
        if let Some(known) = known.filter(|known| known.leg.as_ref() == leg) {
            let before = self.known.compare_and_swap(&known, None);
            let ours = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &known));
            if let Some(leg) = leg.filter(|_| ours) {
                self.over(leg, known.since.elapsed(), false);
            }
        }
    }

    /// Measures a session that was `ended`, or that the server has forgotten. The modern era has none.
    fn over(&self, leg: &Leg, age: Duration, ended: bool) {
        if leg.version.era() == Era::Legacy {
            self.counts.session(age, ended);
        }
    }

    /// A list, not older than its server says it may be.
    ///
    /// # Errors
    /// When it cannot be read, or the permit is for something else.
    pub async fn list(
        self: &Arc<Self>,
        permit: Permit,
        _on_record: &Entry,
        party: &Party,
        patience: Duration,
    ) -> Result<(Expectation, Arc<Listing>), UpstreamError> {
        let (call, due) = permit.spend();
        match call {
            Call::List { server, kind } if server == self.name => {
                Ok((due, self.listing(party, kind, Duration::ZERO, patience).await?))
            }
            Call::List { .. } | Call::Use(_) => Err(MISDIRECTED),
        }
    }

    /// Makes a permitted call that is on record.
    ///
    /// # Errors
    /// When the server does not begin to answer.
    pub async fn call(
        self: &Arc<Self>,
        permit: Permit,
        _on_record: &Entry,
        party: Party,
        manner: Manner,
    ) -> Result<(Expectation, Answer), UpstreamError> {
        let (call, due) = permit.spend();
        let call = match call {
            Call::Use(call) if call.server == self.name => Arc::new(call),
            Call::Use(_) | Call::List { .. } => return Err(MISDIRECTED),
        };
        let leg = self.reach(&party).await?;
        if let (Some(leg), Some(level), None) = (&leg, &manner.level, &party.leg) {
            self.lower(&party, leg, level).await;
        }
        let (upstream, deadline) =
            (Arc::clone(self), Instant::now() + manner.patience(self.limits.total_time));
        // From here on a call that is given up is cancelled, also before the server has begun.
        let mut answer = Answer {
            upstream,
            messages: None,
            over: false,
            id: self.id(),
            call,
            manner,
            party,
            leg,
            deadline,
            lost: None,
            pass: Pass::default(),
            attempts: 0,
            pings: Gcra::new(),
            aside: None,
            ahead: 0,
            reports: false,
            last: None,
            received: None,
            pending: None,
            interim: None,
        };
        answer.aside = self.aside(&answer);
        match answer.start().await {
            Err(UpstreamError::SessionGone) if answer.party.leg.is_none() => {
                // The server forgot our own session; the call was not accepted. Once more.
                self.lost(&answer.party, answer.leg.as_ref());
                answer.leg = self.reach(&answer.party).await?;
                let (inputs, state) = (answer.manner.inputs.take(), answer.manner.state.take());
                answer.again(inputs, state).await?;
            }
            started => self.noted(started)?,
        }
        Ok((due, answer))
    }

    /// Passes on a permitted notification that is on record, and keeps its `share` of bytes of requests until it is sent.
    ///
    /// # Errors
    /// When the server does not take it.
    pub async fn tell(
        self: &Arc<Self>,
        permit: Permit,
        _on_record: &Entry,
        party: &Party,
        share: Option<Arc<Share<Holder>>>,
    ) -> Result<(), UpstreamError> {
        let (call, _) = permit.spend();
        match call {
            Call::Use(Use { server, verb: Verb::Other, name, extra, meta, .. })
                if server == self.name =>
            {
                // A server that is left alone is told nothing either.
                if let Some(breaker) = &self.breaker {
                    breaker.look(Instant::now())?;
                }
                let leg = self.reach(party).await?;
                let speaker = party.speaker(leg.as_ref());
                let outgoing = request::other(None, &name, &extra, &meta, speaker);
                let outgoing = Outgoing { share, ..outgoing };
                self.notify(&outgoing, Instant::now() + self.limits.answer_time).await
            }
            Call::Use(_) | Call::List { .. } => Err(MISDIRECTED),
        }
    }

    /// Tells a legacy server something of its session that the protocol itself defines and that
    /// concerns nothing it offers, such as a log level; with an answer if `asks`.
    ///
    /// # Errors
    /// When the server does not take it.
    pub async fn arrange(
        &self,
        _on_record: &Entry,
        party: &Party,
        leg: &Leg,
        method: &'static str,
        params: &[(Box<str>, Fragment)],
        asks: bool,
    ) -> Result<Option<Outcome>, UpstreamError> {
        let speaker = Speaker { client: Client::gateway(), ..party.speaker(Some(leg)) };
        let deadline = Instant::now() + self.limits.answer_time;
        if !asks {
            let outgoing = request::other(None, method, params, &[], speaker);
            return self.notify(&outgoing, deadline).await.map(|()| None);
        }
        self.short(method, params, speaker).await.map(Some)
    }

    /// A request with a short answer.
    async fn short(
        &self,
        method: &str,
        params: &[(Box<str>, Fragment)],
        speaker: Speaker<'_>,
    ) -> Result<Outcome, UpstreamError> {
        let id = self.id();
        let deadline = Instant::now() + self.limits.answer_time;
        let outgoing = request::other(Some(id), method, params, &[], speaker);
        let mut messages = self.send(&outgoing, deadline).await?;
        let outcome = self.wait(&mut messages, id, speaker, deadline).await?;
        self.done(messages);
        Ok(outcome)
    }

    fn id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Nothing is sent to a server at a URL that is not the one that was approved, credentials least
    /// of all. A program is asked before it is started.
    fn approved(&self) -> Result<(), UpstreamError> {
        match &self.transport {
            Transport::Http(_) if self.keeper.is_stranger(&self.name) => {
                Err(UpstreamError::Stranger)
            }
            Transport::Http(_) | Transport::Channel(_) => Ok(()),
        }
    }

    async fn send(
        &self,
        outgoing: &Outgoing<'_>,
        deadline: Instant,
    ) -> Result<Messages, UpstreamError> {
        let deadline = deadline.min(Instant::now() + self.limits.answer_time);
        let mut pass = self.admitted(outgoing, deadline).await?;
        let incoming = match &self.transport {
            Transport::Http(_) => {
                let sent = timeout_at(deadline, self.dispatch(outgoing)).await;
                sent.unwrap_or(Err(UpstreamError::Timeout(self.limits.answer_time)))
            }
            // Each step of it has a time of its own: a program may have to be started.
            Transport::Channel(_) => self.dispatch(outgoing).await,
        };
        let incoming = incoming.inspect_err(|error| pass.refused(error))?;
        Ok(Messages { incoming, pass })
    }

    /// Leave to send a request, with what the server wants to be shown at hand.
    ///
    /// # Errors
    /// When it is not the server that was approved, while it is left alone, or when there is no credential in time.
    async fn admitted(
        &self,
        outgoing: &Outgoing<'_>,
        deadline: Instant,
    ) -> Result<Pass, UpstreamError> {
        self.approved()?;
        if let (Transport::Http(http), Some(breaker)) = (&self.transport, &self.breaker) {
            // Who gives tokens is somebody else: neither is it waited for in the server's place, nor is
            // its silence the server's.
            let now = Instant::now();
            breaker.look(now)?;
            let deadline = deadline.min(now + self.limits.answer_time);
            let ready = timeout_at(deadline, http.ready(outgoing)).await;
            ready.map_err(|_late| UpstreamError::Timeout(self.limits.answer_time))??;
        }
        self.pass()
    }

    /// Leave to ask the server something.
    ///
    /// # Errors
    /// While it is left alone.
    fn pass(&self) -> Result<Pass, UpstreamError> {
        match &self.breaker {
            Some(breaker) => breaker.admit(Instant::now()),
            None => Ok(Pass::default()),
        }
    }

    /// Sends a request, over HTTP until the headers of its response have come.
    async fn dispatch(&self, outgoing: &Outgoing<'_>) -> Result<Incoming, UpstreamError> {
        match &self.transport {
            Transport::Http(http) => Ok(Incoming::Http(Box::new(http.send(outgoing).await?), None)),
            Transport::Channel(seats) => {
                let channel = seats.channel(self.seat(outgoing)).await?;
                let answer = channel.send(outgoing, self.limits.connect_time).await?;
                Ok(Incoming::Channel(answer))
            }
        }
    }

    async fn notify(
        &self,
        outgoing: &Outgoing<'_>,
        deadline: Instant,
    ) -> Result<(), UpstreamError> {
        self.approved()?;
        match &self.transport {
            Transport::Http(http) => {
                let sent = timeout_at(deadline, http.notify(outgoing)).await;
                sent.map_err(|_late| UpstreamError::Timeout(self.limits.answer_time))?
            }
            Transport::Channel(seats) => {
                let channel = seats.channel(self.seat(outgoing)).await?;
                channel.notify(outgoing, self.limits.connect_time).await
            }
        }
    }

    /// The channel a message belongs on, where its session has one of its own. A session on a channel that is
    /// shared has no id.
    fn seat<'a>(&self, outgoing: &Outgoing<'a>) -> Option<&'a str> {
        match &self.transport {
            Transport::Channel(_) => outgoing.session,
            Transport::Http(_) => None,
        }
    }

    /// Waits for the response and passes over what comes before it.
    async fn wait(
        &self,
        messages: &mut Messages,
        id: i64,
        speaker: Speaker<'_>,
        deadline: Instant,
    ) -> Result<Outcome, UpstreamError> {
        loop {
            let message = messages.next(deadline, self.limits.answer_time).await?;
            match message.ok_or_else(|| messages.broken_off())? {
                message @ Message::Response(_) => return self.outcome(message, id),
                Message::Notification(told) => self.heard(&told),
                Message::Request(question) => {
                    let refusal = request::unasked(&question, "nothing else is offered");
                    let reply = request::reply(refusal, speaker);
                    if let Err(error) = self.notify(&reply, deadline).await {
                        let error = crate::base::error_chain::Chain(&error);
                        tracing::debug!(server = %self.name, %error, "a question was not answered");
                    }
                }
            }
        }
    }

    /// The outcome of the request `id`, if this is its response.
    fn outcome(&self, message: Message, id: i64) -> Result<Outcome, UpstreamError> {
        match message {
            // A modern server may leave out the id of a request it could not read.
            Message::Response(response)
                if response.id.is_none() && matches!(response.outcome, Outcome::Error(_)) =>
            {
                Ok(response.outcome)
            }
            Message::Response(response) if response.id == Some(Id::Number(id)) => {
                Ok(response.outcome)
            }
            Message::Response(_) => {
                Err(UpstreamError::Protocol("the server answered another request"))
            }
            Message::Notification(_) | Message::Request(_) => {
                Err(UpstreamError::Protocol("the server did not answer with a response"))
            }
        }
    }

    fn done(&self, messages: Messages) {
        if let Incoming::Http(answer, _) = messages.incoming
            && !answer.is_over()
        {
            self.tasks.spawn(answer.finish());
        }
    }

    /// Notes whether the server was reached, and forgets what no longer holds.
    fn noted<T>(&self, result: Result<T, UpstreamError>) -> Result<T, UpstreamError> {
        match &result {
            Ok(_) => self.counts.reached(true),
            // It was told of where it was found out.
            Err(error) if error.is_stranger() => self.counts.reached(false),
            Err(UpstreamError::SessionGone | UpstreamError::Refused) => {}
            // It was not asked.
            Err(UpstreamError::Crowded | UpstreamError::Processes(_) | UpstreamError::Full(_)) => {}
            // It answers; there is no room for what it says.
            Err(error @ UpstreamError::Memory(_)) => {
                let error = crate::base::error_chain::Chain(error);
                tracing::debug!(server = %self.name, %error, "an answer was not read to its end");
            }
            Err(error) if error.is_open() => {}
            // It is there; what it was shown, or who was shown for, is the matter.
            Err(
                error @ (UpstreamError::Unauthorized(_)
                | UpstreamError::WriteScopes(_)
                | UpstreamError::Credential(_)),
            ) => {
                let error = crate::base::error_chain::Chain(error);
                tracing::warn!(server = %self.name, %error, "the server does not let us in");
            }
            Err(error) => {
                self.counts.reached(false);
                if matches!(error, UpstreamError::Link(LinkError::Connect(_))) {
                    self.replaced();
                }
                // It may have been replaced by one that speaks otherwise. One that is merely slow,
                // or answers one call badly, has not.
                if matches!(
                    error,
                    UpstreamError::Link(LinkError::Connect(_)) | UpstreamError::Status(400..500)
                ) {
                    self.known.store(None);
                    self.known_by.retain(|_, _| false);
                    self.modern_alone.store(self.protocol == Protocol::Modern, Ordering::Relaxed);
                }
                let error = crate::base::error_chain::Chain(error);
                tracing::warn!(server = %self.name, %error, "the server failed");
            }
        }
        result
    }
}

/// The headers of every request that were configured.
#[derive(Clone, Debug, Default)]
struct Extra {
    /// Those that are written in the configuration.
    fixed: HeaderMap,
    /// Those that are secrets.
    live: Vec<(HeaderName, Arc<LiveSecret>)>,
}

impl Extra {
    fn new(world: &World, headers: &[(HeaderName, Value)]) -> Result<Self, WorldError> {
        let mut extra = Self::default();
        for (name, value) in headers {
            match value {
                Value::Literal(text) => {
                    let unusable = |_| WorldError::Header(format!("`headers` for `{name}`"));
                    let mut value = HeaderValue::from_str(text).map_err(unusable)?;
                    value.set_sensitive(true);
                    extra.fixed.insert(name.clone(), value);
                }
                Value::Secret(reference) => {
                    let secret = world.live(reference)?;
                    credential::header(name, "", &secret)?;
                    extra.live.push((name.clone(), secret));
                }
            }
        }
        Ok(extra)
    }

    /// Writes those that are secrets into `map`, as they are now.
    fn write(&self, map: &mut HeaderMap) -> Result<(), UpstreamError> {
        for (name, secret) in &self.live {
            let value = credential::header(name, "", secret).map_err(UpstreamError::World)?;
            map.insert(name.clone(), value);
        }
        Ok(())
    }
}

const MISDIRECTED: UpstreamError = UpstreamError::Protocol("the permit is for something else");

/// Where and how connections to `uri` of a server are made.
///
/// # Errors
/// When its URL cannot be used, or what belongs to its TLS cannot be read.
fn target_of(
    server: &Server,
    uri: &Uri,
    connect_time: Duration,
    world: &World,
) -> Result<Target, UpstreamError> {
    let secure = uri.scheme_str() == Some("https");
    let tls = secure.then(|| world.tls(&server.tls)).transpose();
    let tls = tls.map_err(UpstreamError::World)?;
    Ok(Target::new(uri, server.egress.clone(), tls, connect_time)?)
}

/// When the certificate ends that a server shows now; `None` for a program, and where it is reached without TLS.
///
/// # Errors
/// When it is not reached, or shows none that is believed.
pub async fn certificate_end(
    server: &Server,
    connect_time: Duration,
    world: &World,
) -> Result<Option<SystemTime>, UpstreamError> {
    let uri = match &server.reach {
        Reach::Http(uri) | Reach::Old(uri) if uri.scheme_str() == Some("https") => uri,
        Reach::Http(_) | Reach::Old(_) | Reach::Stdio(_) => return Ok(None),
    };
    Ok(target_of(server, uri, connect_time, world)?.certificate_end().await?)
}

fn identity(server: &Server) -> Box<str> {
    let place = match &server.reach {
        Reach::Http(uri) | Reach::Old(uri) => uri.to_string(),
        Reach::Stdio(program) => format!("{} {:?}", program.command, program.args),
    };
    let digest = crate::base::hex::encode(&crate::base::sha256::sha256(place.as_bytes()));
    format!("{}@{}", server.name.as_str(), digest.get(..12).unwrap_or_default()).into()
}
