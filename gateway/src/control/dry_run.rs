//! What a configuration would decide, without a gateway: by the policy that [`crate::exchange`] asks, and
//! with the definitions that stand in the lockfile. No server is asked and nothing is recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use policy::condition::{Arguments, Subject};
use policy::decision::{Decision, Denial, Effect, Mode, Reason, Told};
use policy::explain::Said;
use policy::json::{Bounds, Document, Fragment};
use policy::lock::{Lock, State, Version};
use policy::message::{Use, Verb};
use policy::name::ServerName;
use policy::offer::{Catalog, Kind, Offer};
use policy::pins::{Pins, ResourcePins};
use policy::pipeline::Policy;
use policy::principal::Principal;
use policy::shadow::Shadows;
use policy::uri::{ResourceUri, UriError};
use policy::work::Budget;

use crate::config::settings::cases::Question;
use crate::config::settings::lockfile::{self, LockError};
use crate::config::settings::{Pinning, Settings, nearest, revoked};
use crate::control::build::StartError;
use crate::edge::denial::ToolDenial;
use crate::edge::failure::{Failure, Public};
use crate::mcp::protocol::Era;

/// A configuration that is asked what it would decide.
#[derive(Debug)]
pub struct Rehearsal {
    policy: Policy,
    pins: Pins,
    catalogs: BTreeMap<(ServerName, Kind), Arc<Catalog>>,
    /// Something that is not in the lockfile may be shown all the same.
    shows_unapproved: bool,
}

/// What a thing is known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its definition is in the lockfile, in this state.
    Locked(State),
    /// It is not in the lockfile, and other things of its server are: until it is approved it is not shown, so it is
    /// taken not to be there.
    Missing,
    /// Nothing is known of its server, or nothing has to be approved: it is taken to be there, to be approved, and to take anything.
    Assumed,
    /// Things of this sort have no definition.
    Nothing,
}

/// How a denied caller would be told so.
#[derive(Debug)]
pub enum DeniedAs {
    /// In the result of the call, with this text.
    Result(String),
    /// With an error.
    Error(Box<Public>),
}

/// What would be decided.
#[derive(Debug)]
pub struct Answer {
    /// The decision, as it would be recorded.
    pub decision: Decision,
    /// What the caller would be told, if it is denied.
    pub told: Option<DeniedAs>,
    /// Whether it stands in the list that the caller is shown; nothing of the sort has a list if not
    /// known.
    pub listed: Option<bool>,
    /// What is known of the thing.
    pub known: Known,
    /// What each rule says.
    pub rules: Vec<Said>,
}

impl Rehearsal {
    /// What `settings` say, with what was approved.
    ///
    /// # Errors
    /// When the lockfile is there and cannot be used, or what is revoked cannot be read.
    pub fn new(settings: &mut Settings) -> Result<Self, StartError> {
        let policy = std::mem::take(&mut settings.policy);
        if let Some(file) = &settings.revocations {
            policy.revoke(&revoked::read(file)?);
        }
        let lock = Arc::new(locked(&settings.pins)?);
        let mode = settings.pins.mode;
        let shows_unapproved = mode != Mode::Enforce || settings.pins.trust_on_first_use;
        let mut catalogs = BTreeMap::new();
        for server in &settings.servers {
            let Some(locked) = lock.servers.get(server.name.as_str()) else { continue };
            let mut offers: BTreeMap<Kind, Vec<Offer>> = BTreeMap::new();
            for ((kind, _), versions) in &locked.offers {
                let document = best(versions).map(|version| version.definition.document());
                let offer = document.and_then(|one| Offer::read(*kind, one.root(), &one).ok());
                offers.entry(*kind).or_default().extend(offer);
            }
            for (kind, offers) in offers {
                let catalog = Catalog::new(server.name.clone(), kind, offers);
                catalogs.insert((server.name.clone(), kind), Arc::new(catalog));
            }
        }
        let pins = Pins { mode, ..settings.pins.approving(lock) };
        let shadows = Shadows::among(catalogs.values().cloned(), policy.routes());
        policy.shadow(Arc::new(shadows));
        policy.pin(Arc::new(pins.clone()));
        Ok(Self { policy, pins, catalogs, shows_unapproved })
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What stands in the lockfile.
    #[must_use]
    pub fn lock(&self) -> &Lock {
        &self.pins.lock
    }

    /// Whether anything of a server is known.
    #[must_use]
    pub fn knows(&self, server: &ServerName) -> bool {
        self.catalogs.keys().any(|(known, _)| known == server)
    }

    /// The thing of a server in the lockfile that `name` may have been meant to be.
    #[must_use]
    pub fn nearest(&self, server: &ServerName, kind: Kind, name: &str) -> Option<&str> {
        let catalog = self.catalogs.get(&(server.clone(), kind))?;
        nearest(name, catalog.offers().iter().map(|offer| offer.name().as_str()))
    }

    /// Everything whose definition is known.
    pub fn offers(&self) -> impl Iterator<Item = (&ServerName, &Offer)> {
        let catalogs = self.catalogs.iter();
        catalogs
            .flat_map(|((server, _), catalog)| catalog.offers().iter().map(move |o| (server, o)))
    }

    /// What would be decided.
    #[must_use]
    pub fn ask(&self, question: &Question) -> Answer {
        let Question { principal, server, kind, name, arguments } = question;
        let (catalog, pins, known) = self.catalog(server, *kind, name);
        self.policy.pin(pins);
        // The person who asks has written the policy, and waits.
        let budget = Budget::unlimited();
        let verb = match kind {
            Kind::Tool => Verb::Call,
            Kind::Prompt => Verb::Get,
            Kind::Resource => Verb::Read,
            Kind::Template => Verb::CompleteTemplate,
            Kind::Method => Verb::Other,
        };
        let call = Use {
            server: server.clone(),
            verb,
            name: name.clone(),
            arguments: arguments.clone(),
            extra: Vec::new(),
            meta: Vec::new(),
        };
        // As an exchange asks: first of the server, then of the thing.
        let any = self.policy.admit_list(principal, server, *kind);
        let (decision, denial) = match any.outcome {
            Err(denial) => (any.decision, Some(denial)),
            Ok(_) => {
                let ruling = self.policy.admit(principal, catalog.as_deref(), call, &budget);
                (ruling.decision, ruling.outcome.err())
            }
        };
        let offer = catalog.as_deref().and_then(|catalog| catalog.offer(name));
        let listed = offer.map(|offer| self.policy.about(principal, server, offer).shows());
        let arguments = arguments.as_ref();
        let arguments = arguments.map_or(Arguments::None, |a| Arguments::Given(a.value(), &budget));
        let known_of = self.policy.registered(server, *kind, name);
        let uri = uri_of(*kind, name).and_then(Result::ok);
        let name = uri.as_ref().map_or(&**name, ResourceUri::as_str);
        let subject = Subject { principal, server, kind: *kind, name, arguments, known: known_of };
        let rules = self.policy.access().explain(subject);
        let told = denial.map(|denial| told(&self.policy, *kind, denial));
        Answer { decision, told, listed, known, rules }
    }

    /// What the rules alone say of something that was done with arguments that are not known any more;
    /// `None` where it depends on them.
    #[must_use]
    pub fn by_rules(&self, question: &Question) -> Option<Effect> {
        let Question { principal, server, kind, name, .. } = question;
        let known = self.policy.registered(server, *kind, name);
        let arguments = Arguments::Unknown;
        let uri = uri_of(*kind, name);
        let name = match &uri {
            None => &**name,
            Some(Ok(uri)) => uri.as_str(),
            Some(Err(error)) => {
                let denial = Denial { reason: Reason::Uri(*error), told: Told::Nothing };
                return Some(Effect::Deny(denial));
            }
        };
        let subject = Subject { principal, server, kind: *kind, name, arguments, known };
        if self.policy.has_revoked_use(principal, server, name) {
            let denial = Denial { reason: Reason::Revoked, told: Told::Nothing };
            return Some(Effect::Deny(denial));
        }
        self.policy.access().decide_anyway(subject)
    }

    /// What the rules say of a list of what `server` has of a kind.
    #[must_use]
    pub fn of_list(&self, principal: &Principal, server: &ServerName, kind: Kind) -> Effect {
        self.policy.admit_list(principal, server, kind).decision.effect
    }

    /// What the server offers of a kind, with `name` among it, and what is approved then.
    fn catalog(
        &self,
        server: &ServerName,
        kind: Kind,
        name: &str,
    ) -> (Option<Arc<Catalog>>, Arc<Pins>, Known) {
        let as_is = || Arc::new(self.pins.clone());
        let catalog = self.catalogs.get(&(server.clone(), kind));
        let locked = self.pins.lock.servers.get(server.as_str());
        let versions = locked.map(|locked| locked.versions(kind, name)).unwrap_or_default();
        if let Some(version) = best(versions) {
            return (catalog.cloned(), as_is(), Known::Locked(version.state));
        }
        if kind == Kind::Resource && self.pins.unfit(server.as_str(), kind, name, None).is_some() {
            // What the rules say of it is asked: as if it could be used.
            let mut resources = BTreeMap::clone(&self.pins.resources);
            resources.insert(server.as_str().into(), ResourcePins::Dynamic);
            let pins = Pins { resources: Arc::new(resources), ..self.pins.clone() };
            return (catalog.cloned(), Arc::new(pins), Known::Assumed);
        }
        if !matches!(kind, Kind::Tool | Kind::Prompt) {
            return (catalog.cloned(), as_is(), Known::Nothing);
        }
        let Some((offer, version)) = assumed(kind, name) else {
            return (catalog.cloned(), as_is(), Known::Nothing);
        };
        let is_held = self.knows(server) && !self.shows_unapproved;
        if is_held && self.pins.unfit(server.as_str(), kind, name, Some(&offer)).is_some() {
            let none = || Arc::new(Catalog::new(server.clone(), kind, Vec::new()));
            return (Some(catalog.cloned().unwrap_or_else(none)), as_is(), Known::Missing);
        }
        let mut offers = catalog.map(|catalog| catalog.offers().to_vec()).unwrap_or_default();
        offers.push(offer);
        let mut lock = Lock::clone(&self.pins.lock);
        let of_server = lock.servers.entry(server.as_str().into()).or_default();
        of_server.offers.insert((kind, name.into()), vec![version]);
        let pins = Pins { lock: Arc::new(lock), ..self.pins.clone() };
        let catalog = Catalog::new(server.clone(), kind, offers);
        (Some(Arc::new(catalog)), Arc::new(pins), Known::Assumed)
    }
}

/// What rules call a resource or a template that was asked for, or that was listed when it was.
fn uri_of(kind: Kind, name: &str) -> Option<Result<ResourceUri, UriError>> {
    match kind {
        Kind::Resource => Some(ResourceUri::listed(name)),
        Kind::Template => Some(ResourceUri::template(name)),
        Kind::Tool | Kind::Prompt | Kind::Method => None,
    }
}

fn told(policy: &Policy, kind: Kind, denial: Denial) -> DeniedAs {
    let failure = Failure::Denied(kind, denial);
    match ToolDenial::of(&failure, policy, None) {
        Some(denial) => DeniedAs::Result(denial.text),
        None => DeniedAs::Error(Box::new(failure.public(Some(Era::Modern)))),
    }
}

/// The version that counts: one that is approved, else one that could be.
fn best(versions: &[Version]) -> Option<&Version> {
    let of = |state| versions.iter().rfind(|version| version.state == state);
    of(State::Approved).or_else(|| of(State::Pending)).or_else(|| of(State::Revoked))
}

/// A thing of which nothing is known but its name.
fn assumed(kind: Kind, name: &str) -> Option<(Offer, Version)> {
    let text = match kind {
        Kind::Tool => serde_json::json!({ "name": name, "inputSchema": { "type": "object" } }),
        _ => serde_json::json!({ "name": name }),
    };
    let document = Document::parse(Bytes::from(text.to_string()), &Bounds::MESSAGE).ok()?;
    let document = Arc::new(document);
    let offer = Offer::read(kind, document.root(), &document).ok()?;
    let (digest, definition) = (offer.digest()?, Fragment::whole(document));
    let version = Version::new(digest, State::Approved, definition);
    Some((offer, version))
}

fn locked(pins: &Pinning) -> Result<Lock, LockError> {
    match lockfile::read(&pins.file, &pins.approvers) {
        Ok((lock, _)) => Ok(lock),
        Err(LockError::Missing(_)) => Ok(Lock::default()),
        Err(error) => Err(error),
    }
}
