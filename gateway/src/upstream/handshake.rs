//! Which era a server speaks, and what it says of itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::json::{Bounds, Document, Fragment, Value};
use policy::offer::Kind;
use policy::pin::{Digest, Subject};
use tokio::time::Instant;

use super::answer::Incoming;
use super::channel_pool::Seats;
use super::demux::Serves;
use super::request::{self, Outgoing, Speaker};
use super::{Party, Transport, Upstream, UpstreamError};
use crate::base::random;
use crate::base::share::Share;
use crate::config::settings::Protocol;
use crate::mcp::client_info::Client;
use crate::mcp::protocol::{Era, Version, code, meta};
use crate::mcp::wire::{Object, Outcome};
use crate::session::Leg;

/// How long a program may take to answer the question which era it speaks, where that is not known. A legacy program may
/// never answer it.
///
/// SPEC 2026-07-28 basic/transports/stdio#backward-compatibility
const PROBE: Duration = Duration::from_secs(3);

/// Bytes that an entry takes of what a server says of itself to one caller, beside what it says: the key with what the
/// client can do and calls itself, and what the allocator adds.
const KEPT: usize = 4096;

/// What a server said of itself.
#[derive(Clone, Debug)]
pub struct Hello {
    /// Which era it speaks.
    pub era: Era,
    /// Its name and version, as it gives them.
    pub info: Option<Fragment>,
    /// What it wants a model to know. Inspected before it is shown.
    pub instructions: Option<Fragment>,
    /// For how long that is good, in milliseconds.
    pub ttl: u64,
    /// What it can do, as it says.
    pub capabilities: Option<Fragment>,
    /// All of that, as it is approved.
    pub said: Option<Fragment>,
    /// Its digest; `None` when a number in it does not survive canonical form.
    pub digest: Option<Digest>,
    /// The digest of each part.
    pub fields: Vec<(Box<str>, Digest)>,
}

/// What is known of a server until it is started again.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) hello: Arc<Hello>,
    pub(super) generation: u64,
    /// The gateway's own session with a legacy server.
    pub(super) leg: Option<Leg>,
    /// Since when.
    pub(super) since: Instant,
}

/// What is known of a server that is asked with the rights of one caller, for that caller.
#[derive(Clone, Debug)]
pub(super) struct KnownOfCaller {
    pub(super) known: Arc<Known>,
    /// The part of the share of the caller among the lists that it takes; `None` for the gateway itself.
    _room: Option<Arc<Share<Arc<str>>>>,
}

impl Hello {
    /// Bytes that it takes: the answers that it was read from, which it keeps, and the names of its parts.
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
    /// What is known of the server, found out first if need be.
    pub(super) async fn known(&self, party: &Party) -> Result<Arc<Known>, UpstreamError> {
        let generation = match &self.transport {
            Transport::Http(_) => 0,
            Transport::Channel(seats) => {
                // Nothing is started that would not be asked.
                let mut pass = self.pass()?;
                let channel = seats.channel(None).await;
                channel.inspect_err(|error| pass.refused(error))?.generation
            }
        };
        if self.asks_callers {
            // What it says to one caller is not another's, and neither is a refusal.
            let key = party.key();
            if let Some(known) = self.known_by.get(&key) {
                return Ok(known.known);
            }
            let known = self.meet(party, generation).await?;
            // With no room to remember it, it is asked again: slower, not wrong.
            let bytes = known.hello.memory() + KEPT;
            let room = party.caller().map(|caller| self.lists.take(&caller.into(), bytes));
            if let Ok(room) = room.transpose() {
                let entry = KnownOfCaller { known: Arc::clone(&known), _room: room.map(Arc::new) };
                drop(self.known_by.insert(key, entry));
            }
            return Ok(known);
        }
        let current = || self.known.load_full().filter(|known| known.generation == generation);
        if let Some(known) = current() {
            return Ok(known);
        }
        self.probing.take(self.limits.answer_time, current, || self.meet(party, generation)).await
    }

    /// Finds out what is to be known.
    async fn meet(&self, party: &Party, generation: u64) -> Result<Arc<Known>, UpstreamError> {
        // A legacy server logs an error, or several, for a question it does not know.
        let remembered = self.protocol == Protocol::Auto && self.is_legacy.load(Ordering::Relaxed);
        let found = match self.protocol {
            Protocol::Auto if remembered => Ok(None),
            Protocol::Modern | Protocol::Auto => self.discover(party, generation, None).await,
            Protocol::Legacy => Ok(None),
        };
        let found = match found {
            Ok(Some(known)) => Ok(known),
            Ok(None) if self.protocol == Protocol::Modern => {
                Err(UpstreamError::Protocol("the server does not speak 2026-07-28"))
            }
            Ok(None) => {
                // In our own name, whoever is the first to ask.
                let client = Arc::clone(Client::gateway());
                let ours = Party { client, ..party.clone() };
                let opened = self.initialize(Version::LAST_LEGACY, &ours, None, generation).await;
                if opened.is_err() {
                    // Whatever it is by now, it is asked for its era the next time.
                    self.is_legacy.store(false, Ordering::Relaxed);
                }
                match opened {
                    // One that is remembered has been replaced since.
                    Err(error) if remembered && speaks_otherwise(&error) => {
                        let found = self.discover(party, generation, None).await;
                        found.and_then(|found| found.ok_or(error))
                    }
                    // A program that was slow to start has taken our first question for the
                    // beginning of the modern era after all.
                    Err(UpstreamError::Refused) if self.protocol == Protocol::Auto => {
                        let found = self.discover(party, generation, None).await;
                        found.and_then(|found| found.ok_or(UpstreamError::Refused))
                    }
                    met => met,
                }
            }
            Err(error) => Err(error),
        };
        let known = Arc::new(self.noted(found)?);
        let legacy = self.protocol == Protocol::Auto && known.hello.era == Era::Legacy;
        self.is_legacy.store(legacy, Ordering::Relaxed);
        tracing::info!(server = %self.name, era = known.hello.era.as_str(), "server reached");
        if !self.asks_callers {
            self.known.store(Some(Arc::clone(&known)));
            if self.met.swap(generation, Ordering::Relaxed) != generation {
                // It may be another than before.
                self.modern_alone.store(self.protocol == Protocol::Modern, Ordering::Relaxed);
                self.replaced();
            }
        }
        Ok(known)
    }

    /// Asks a modern server what it is; `None` when it is not one.
    ///
    /// SPEC 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions
    pub(super) async fn discover(
        &self,
        party: &Party,
        generation: u64,
        leg: Option<&Leg>,
    ) -> Result<Option<Known>, UpstreamError> {
        let stdio = matches!(self.transport, Transport::Channel(_));
        // A legacy program may never answer; one of which more is known has to.
        let may_be_silent = stdio && self.protocol == Protocol::Auto && leg.is_none();
        let patience = if may_be_silent { PROBE } else { self.limits.answer_time };
        let id = self.id();
        let deadline = Instant::now() + patience;
        let speaker = Speaker { leg, subject: party.subject.as_ref(), ..Speaker::stranger() };
        let mut asked =
            self.ask(&request::discover(id, speaker), id, deadline, may_be_silent).await;
        if let Ok((Outcome::Error(error), _)) = &asked
            && supports_ours(error)
        {
            // SPEC 2026-07-28 basic/versioning#protocol-version-negotiation: it says that it speaks
            // our revision after all.
            let id = self.id();
            asked = self.ask(&request::discover(id, speaker), id, deadline, may_be_silent).await;
        }
        match asked {
            Ok((Outcome::Result(result), _)) => {
                let versions = result.value().get("supportedVersions");
                let ours = Version::V2026July.as_str();
                let speaks = versions.is_some_and(|versions| {
                    versions.items().any(|version| version.as_str().as_deref() == Some(ours))
                });
                let hello = Arc::new(Hello::read(Era::Modern, &result));
                Ok(speaks.then_some(Known { hello, generation, leg: None, since: Instant::now() }))
            }
            Ok((Outcome::Error(error), _)) => {
                let code = error.value().get("code").and_then(Value::as_i64);
                let modern = [code::HEADER_MISMATCH, code::MISSING_CAPABILITY].map(i64::from);
                if code.is_some_and(|code| modern.contains(&code)) {
                    return Err(UpstreamError::Protocol("the server does not accept our requests"));
                }
                Ok(None)
            }
            Err(UpstreamError::Timeout(_)) if may_be_silent => Ok(None),
            Err(error) if speaks_otherwise(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes over which era `former` was found to speak, the same server under another configuration.
    pub(crate) fn succeed(&self, former: &Self) {
        let legacy = former.is_legacy.load(Ordering::Relaxed);
        self.is_legacy.store(legacy, Ordering::Relaxed);
    }

    /// Opens a session with a legacy server, in the name of `client`; `channel` is the channel of
    /// the session where it has one of its own.
    ///
    /// SPEC 2025-11-25 basic/lifecycle#initialization
    pub(super) async fn initialize(
        &self,
        version: Version,
        party: &Party,
        channel: Option<&str>,
        generation: u64,
    ) -> Result<Known, UpstreamError> {
        let id = self.id();
        let deadline = Instant::now() + self.limits.answer_time;
        let asked = self
            .ask(&request::initialize(id, version, party, channel), id, deadline, false)
            .await?;
        let (Outcome::Result(result), session) = asked else {
            return Err(UpstreamError::Refused);
        };
        let session = session.or_else(|| channel.map(Into::into));
        let agreed = result.value().get("protocolVersion").and_then(Value::as_str);
        let agreed = agreed.and_then(|text| Version::parse(&text));
        let Some(version) = agreed.filter(|version| version.era() == Era::Legacy) else {
            return Err(UpstreamError::Protocol("the server wants a revision we do not speak"));
        };
        let leg = Leg { version, id: session };
        self.notify(&request::initialized(party, &leg), deadline).await?;
        let hello = Arc::new(Hello::read(Era::Legacy, &result));
        Ok(Known { hello, generation, leg: Some(leg), since: Instant::now() })
    }

    /// Opens a session that the gateway keeps for a caller.
    pub(super) async fn session_for(&self, party: &Party) -> Result<Leg, UpstreamError> {
        let opened = self.session(Version::LAST_LEGACY, party, Serves::Caller).await?;
        opened.leg.ok_or(UpstreamError::SessionGone)
    }

    /// Opens a session of its own for a client: that of a legacy client in its era where the server speaks it,
    /// any other in the era of the server.
    pub(super) async fn session(
        &self,
        version: Version,
        party: &Party,
        serves: Serves,
    ) -> Result<Known, UpstreamError> {
        let Transport::Channel(seats) = &self.transport else {
            return self.initialize(version, party, None, 0).await;
        };
        if self.known(party).await?.hello.era == Era::Legacy {
            let name = self.seat_for(seats, party, serves).await?;
            let opened = self.initialize(version, party, Some(&name), 0).await;
            return opened.inspect_err(|_| seats.close(&name));
        }
        // The session of a legacy client is in its own era, where the program speaks that too.
        if serves == Serves::Session
            && let Some(opened) = self.handshaken(seats, version, party).await?
        {
            return Ok(opened);
        }
        let name = self.seat_for(seats, party, serves).await?;
        let leg = Leg { version: Version::V2026July, id: Some(name.as_str().into()) };
        let found = self.discover(party, 0, Some(&leg)).await;
        let opened = found.and_then(|found| found.ok_or(UpstreamError::Refused));
        let opened = opened.map(|known| Known { leg: Some(leg), ..known });
        opened.inspect_err(|_| seats.close(&name))
    }

    /// Opens a channel of its own for a session of `party`; its name.
    async fn seat_for(
        &self,
        seats: &Seats,
        party: &Party,
        serves: Serves,
    ) -> Result<String, UpstreamError> {
        let name = random::bytes::<16>().map_err(|_opaque| UpstreamError::Stalled)?;
        let name = crate::base::hex::encode(&name);
        let mut pass = self.pass()?;
        seats.open(&name, party, serves).await.inspect_err(|error| pass.refused(error))?;
        Ok(name)
    }

    /// Opens a session in the legacy era with a program that speaks the modern one, in a process of its own: on
    /// one connection a program speaks one era. `None` where it speaks the modern era alone.
    async fn handshaken(
        &self,
        seats: &Seats,
        version: Version,
        party: &Party,
    ) -> Result<Option<Known>, UpstreamError> {
        if self.modern_alone.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let name = self.seat_for(seats, party, Serves::Session).await?;
        match self.initialize(version, party, Some(&name), 0).await {
            Ok(opened) => Ok(Some(opened)),
            Err(error) => {
                seats.closed(&name).await;
                let refused = matches!(
                    error,
                    UpstreamError::Refused | UpstreamError::Protocol(_) | UpstreamError::Timeout(_)
                );
                if !refused {
                    return Err(error);
                }
                let why = crate::base::error_chain::Chain(&error);
                tracing::info!(server = %self.name, error = %why, "the program speaks the modern era alone");
                self.modern_alone.store(true, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    /// Opens a session in a legacy client's own era with a program that callers share otherwise. `None` where
    /// there is none to be had: then the client is spoken for in the conversation that all share.
    pub(super) async fn own_era(
        &self,
        seats: &Seats,
        version: Version,
        party: &Party,
    ) -> Option<Known> {
        let opened = async {
            match self.known(party).await?.hello.era {
                Era::Modern => self.handshaken(seats, version, party).await,
                Era::Legacy => Ok(None),
            }
        };
        let opened = self.noted(opened.await);
        opened.unwrap_or_else(|error| {
            let error = crate::base::error_chain::Chain(&error);
            tracing::warn!(
                server = %self.name, %error,
                "a legacy session has no process of its own: what the program asks is refused"
            );
            None
        })
    }

    /// Opens a session in the legacy era with a server that speaks the modern one, as legacy clients get it.
    /// `None` where they get none: it speaks the modern era alone, or they share one conversation with it.
    pub(super) async fn legacy_session(
        &self,
        party: &Party,
    ) -> Result<Option<Known>, UpstreamError> {
        let version = Version::LAST_LEGACY;
        match &self.transport {
            Transport::Http(_) => match self.session(version, party, Serves::Session).await {
                Ok(opened) => Ok(Some(opened)),
                Err(UpstreamError::Status(400..500) | UpstreamError::Refused) => Ok(None),
                Err(error) => Err(error),
            },
            Transport::Channel(seats) if seats.may_be_own(!self.asks.is_nothing()) => {
                self.handshaken(seats, version, party).await
            }
            Transport::Channel(_) => Ok(None),
        }
    }

    /// One question, one answer; from a legacy program perhaps none.
    async fn ask(
        &self,
        outgoing: &Outgoing<'_>,
        id: i64,
        deadline: Instant,
        may_be_silent: bool,
    ) -> Result<(Outcome, Option<Box<str>>), UpstreamError> {
        let mut messages = self.send(outgoing, deadline).await?;
        if may_be_silent {
            messages.pass.excuse();
        }
        let session = match &mut messages.incoming {
            Incoming::Http(answer, _) => answer.session.take(),
            Incoming::Channel(_) => None,
        };
        // Before the era is known nothing that is asked can be answered in it.
        let outcome = self
            .wait(
                &mut messages,
                id,
                Speaker { subject: outgoing.subject, ..Speaker::stranger() },
                deadline,
            )
            .await?;
        self.done(messages);
        Ok((outcome, session))
    }
}

/// Whether a server that was asked in one era may speak the other.
const fn speaks_otherwise(error: &UpstreamError) -> bool {
    matches!(
        error,
        UpstreamError::Status(400..500)
            | UpstreamError::ContentType
            | UpstreamError::Message(_)
            | UpstreamError::Protocol(_)
            | UpstreamError::Refused
    )
}

/// Whether a server that does not accept the revision of a request says that it speaks ours.
fn supports_ours(error: &Fragment) -> bool {
    let code = error.value().get("code").and_then(Value::as_i64);
    let supported = error.value().get("data").and_then(|data| data.get("supported"));
    let ours =
        |version: Value<'_>| version.as_str().as_deref() == Some(Version::V2026July.as_str());
    code == Some(i64::from(code::UNSUPPORTED_VERSION))
        && supported.is_some_and(|supported| supported.items().any(ours))
}

impl Hello {
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
        // One definition, the same in both eras.
        let said = object_of([
            ("capabilities", capabilities),
            ("instructions", instructions),
            ("serverInfo", info),
        ]);
        let of = |said: &Fragment| Digest::of(Subject::Server, said.value()).ok();
        let fields = |said: &Fragment| Digest::of_fields(Subject::Server, said.value()).ok();
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

    /// The capabilities without which nothing could be used, and no others.
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
        object.close();
        let document = Document::parse(out.into(), &Bounds::ANSWER).ok()?;
        Some(Fragment::whole(Arc::new(document)))
    }

    /// Whether it says that it offers any of a kind.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        let member = match kind {
            Kind::Tool | Kind::Method => "tools",
            Kind::Prompt => "prompts",
            Kind::Resource | Kind::Template => "resources",
        };
        let capabilities = self.capabilities.as_ref().map(Fragment::value);
        capabilities.is_some_and(|capabilities| capabilities.get(member).is_some())
    }

    /// The digest of one part.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Digest> {
        self.fields.iter().find(|(known, _)| **known == *name).map(|(_, digest)| *digest)
    }
}

/// The capabilities behind which stands something that is decided for itself.
const USUAL: [&str; 4] = ["tools", "prompts", "resources", "completions"];

/// What they say of how they are offered.
const FLAGS: [&str; 2] = ["listChanged", "subscribe"];

/// These members as one object.
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
    let document = Document::parse(out.into(), &Bounds::ANSWER).ok()?;
    Some(Fragment::whole(Arc::new(document)))
}
