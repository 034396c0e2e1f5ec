//! Answers what a configuration would decide, without a running gateway: with the policy engine that
//! [`crate::exchange`] uses and the definitions in the lockfile. No upstream server is contacted and nothing is
//! recorded.

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::Arc;

use bytes::Bytes;
use json::{Document, Fragment, JsonBounds};
use policy::definition::lock::{ApprovalState, LockedVersion, Lockfile};
use policy::definition::offer::{Catalog, CatalogItem, ItemKind};
use policy::definition::pins::{EvaluationNeed, Pins, ResourcePins};
use policy::definition::shadow::ShadowingConflicts;
use policy::engine::message::{ItemRequest, RequestOperation};
use policy::engine::pipeline::{Policy, RouteFlow};
use policy::flow::guard::FlowFacts;
use policy::flow::label::FlowLabels;
use policy::flow::memory::FlowMemory;
use policy::flow::planner::Planner;
use policy::flow::value::ValueKey;
use policy::rules::access::AnywayDecision;
use policy::rules::condition::{AccessRequest, KnownArguments};
use policy::rules::decision::{Decision, Denial, Disclosure, Effect, Mode, Reason};
use policy::rules::explain::RuleExplanation;
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use policy_core::subject::skill;
use policy_core::subject::uri::{ResourceUri, UriError};

use crate::config::settings::cases::TestRequest;
use crate::config::settings::lockfile::{self, LockError};
use crate::config::settings::{PinSettings, Settings, nearest, revoked};
use crate::control::build::StartError;
use crate::edge::denial::ToolDenial;
use crate::edge::failure::{Failure, PublicError};
use crate::mcp::protocol::Era;

/// A configuration that can be queried.
#[derive(Debug)]
pub struct DryRun {
    policy: Policy,
    pins: Pins,
    catalogs: BTreeMap<(ServerName, ItemKind), Arc<Catalog>>,
    /// Whether items that are not in the lockfile are shown.
    shows_unapproved: bool,
}

/// The knowledge about an item (a tool, prompt, resource or template).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKnowledge {
    /// Its definition is in the lockfile, in this state.
    Locked(ApprovalState),
    /// The lockfile has other items of its server but not this one. It is treated as absent, because it is hidden
    /// until it is approved.
    Missing,
    /// Nothing is known of its server, or no approval is needed. It is assumed to exist, to be approved, and to
    /// accept any arguments.
    Assumed,
    /// Items of this kind have no definition.
    Nothing,
}

/// The form in which a denied caller would be told.
#[derive(Debug)]
pub enum DenialMessage {
    /// In the result of the call, with this text.
    Result(String),
    /// As a JSON-RPC or HTTP error.
    Error(Box<PublicError>),
}

/// The answer to a query.
#[derive(Debug)]
pub struct DryRunAnswer {
    /// The decision, as it would be recorded.
    pub decision: Decision,
    /// The message to the caller, if it is denied.
    pub told: Option<DenialMessage>,
    /// Whether the caller's list would contain the item; `None` if its definition is not known.
    pub listed: Option<bool>,
    /// The knowledge about the item.
    pub known: ItemKnowledge,
    /// The result of each rule.
    pub rules: Vec<RuleExplanation>,
}

impl DryRun {
    /// Prepares the policy of `settings` with the lockfile and the revocations.
    ///
    /// # Errors
    /// If the lockfile exists and cannot be used, or the revocations cannot be read.
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
            let mut offers: BTreeMap<ItemKind, Vec<CatalogItem>> = BTreeMap::new();
            for ((kind, _), versions) in &locked.offers {
                let document = best(versions).map(|version| version.definition.document());
                let offer =
                    document.and_then(|one| CatalogItem::read(*kind, one.root(), &one).ok());
                offers.entry(*kind).or_default().extend(offer);
            }
            for (kind, offers) in offers {
                let catalog = Catalog::new(server.name.clone(), kind, offers);
                catalogs.insert((server.name.clone(), kind), Arc::new(catalog));
            }
        }
        let pins = Pins { mode, ..settings.pins.approving(lock) };
        let shadows = ShadowingConflicts::among(catalogs.values().cloned(), policy.routes());
        policy.shadow(&Arc::new(shadows));
        policy.pin(&Arc::new(pins.clone()));
        Ok(Self { policy, pins, catalogs, shows_unapproved })
    }

    /// The policy engine of the configuration.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The content of the lockfile.
    #[must_use]
    pub fn lock(&self) -> &Lockfile {
        &self.pins.lock
    }

    /// Whether any definition of a server is known.
    #[must_use]
    pub fn knows(&self, server: &ServerName) -> bool {
        self.catalogs.keys().any(|(known, _)| known == server)
    }

    /// Whether the lockfile has an approved definition of an item and another one that is proposed, with which the item
    /// would be denied.
    #[must_use]
    pub fn has_proposal(&self, server: &ServerName, kind: ItemKind, name: &str) -> bool {
        let locked = self.pins.lock.servers.get(server.as_str());
        let versions = locked.map(|locked| locked.versions(kind, name)).unwrap_or_default();
        let has = |state| versions.iter().any(|version| version.state == state);
        self.pins.mode == Mode::Enforce
            && has(ApprovalState::Approved)
            && has(ApprovalState::Pending)
    }

    /// The item of a server in the lockfile whose name is closest to `name`.
    #[must_use]
    pub fn nearest(&self, server: &ServerName, kind: ItemKind, name: &str) -> Option<&str> {
        let catalog = self.catalogs.get(&(server.clone(), kind))?;
        nearest(name, catalog.offers().iter().map(|offer| offer.name().as_str()))
    }

    /// All items whose definitions are known.
    pub fn offers(&self) -> impl Iterator<Item = (&ServerName, &CatalogItem)> {
        let catalogs = self.catalogs.iter();
        catalogs
            .flat_map(|((server, _), catalog)| catalog.offers().iter().map(move |o| (server, o)))
    }

    /// Has definitions of tools count as approved, in place of those of the lockfile.
    pub fn approve(&mut self, tools: Vec<(ServerName, CatalogItem)>) {
        let mut lock = Lockfile::clone(&self.pins.lock);
        let mut of_servers: BTreeMap<ServerName, Vec<CatalogItem>> = BTreeMap::new();
        for (server, offer) in tools {
            let Some(digest) = offer.digest() else { continue };
            let version = LockedVersion::new(digest, ApprovalState::Approved, offer.fragment());
            let locked = lock.servers.entry(server.as_str().into()).or_default();
            locked.offers.insert((ItemKind::Tool, offer.name().as_str().into()), vec![version]);
            of_servers.entry(server).or_default().push(offer);
        }
        for (server, mut offers) in of_servers {
            let place = (server.clone(), ItemKind::Tool);
            let known = self.catalogs.get(&place).map_or(&[][..], |known| known.offers());
            let is_given = |one: &&CatalogItem| offers.iter().any(|own| own.name() == one.name());
            let others: Vec<_> = known.iter().filter(|one| !is_given(one)).cloned().collect();
            offers.extend(others);
            let catalog = Catalog::new(server, ItemKind::Tool, offers);
            self.catalogs.insert(place, Arc::new(catalog));
        }
        self.pins.lock = Arc::new(lock);
        // The result of an evaluation must not depend on what was recorded before.
        self.pins.evaluation = EvaluationNeed::None;
        self.policy.pin(&Arc::new(self.pins.clone()));
    }

    /// Decides a hypothetical request.
    #[must_use]
    pub fn ask(&self, question: &TestRequest) -> DryRunAnswer {
        self.ask_in_flow(question, FlowLabels::default())
    }

    /// Decides a hypothetical request in a flow that was shown results with these labels. With labels that are not the
    /// least strict ones, each value of the arguments counts as one that the flow was shown by untrusted results.
    #[must_use]
    pub fn ask_in_flow(&self, question: &TestRequest, labels: FlowLabels) -> DryRunAnswer {
        let TestRequest { principal, server, kind, name, arguments, planner } = question;
        if *kind == ItemKind::Resource && skill::is_skill_uri(name) {
            return self.ask_of_file(question);
        }
        let name = &wanted(*kind, name);
        let (catalog, pins, known) = self.catalog(server, *kind, name);
        self.policy.pin(&pins);
        let facts = &self.policy.facts();
        // The user who asks has written the policy and waits for the answer.
        let budget = WorkBudget::unlimited();
        let verb = match kind {
            ItemKind::Tool => RequestOperation::Call,
            ItemKind::Prompt => RequestOperation::Get,
            ItemKind::Resource => RequestOperation::Read,
            ItemKind::Skill => RequestOperation::GetSkill,
            ItemKind::Template => RequestOperation::CompleteTemplate,
            ItemKind::Method => RequestOperation::Other,
        };
        let call = ItemRequest {
            server: server.clone(),
            verb,
            name: name.clone(),
            arguments: arguments.clone(),
            extra: Vec::new(),
            meta: Vec::new(),
        };
        // The same order as in an exchange: first the server, then the item.
        let any = self.policy.may_list(facts, principal, server, *kind);
        let standing = if any.is_granted() {
            let catalog = catalog.as_deref();
            let flow = self.flow_facts(&call, labels);
            let route = RouteFlow { planner: *planner, flow };
            self.policy.may_use_in(route, facts, principal, catalog, call, &budget)
        } else {
            any
        };
        let (decision, denial) = standing.into_parts();
        let offer = catalog.as_deref().and_then(|catalog| catalog.offer(name));
        let listed = offer.map(|offer| {
            self.planner_refusal(*planner, server, *kind, name).is_none()
                && self.policy.about(facts, principal, server, offer).shows()
        });
        let arguments = arguments.as_ref();
        let arguments =
            arguments.map_or(KnownArguments::None, |a| KnownArguments::Given(a.value(), &budget));
        let known_of = self.policy.registered(server, *kind, name);
        let uri = uri_of(*kind, name).and_then(Result::ok);
        let name = uri.as_ref().map_or(&**name, ResourceUri::as_str);
        let subject = AccessRequest {
            principal,
            server,
            kind: *kind,
            name,
            arguments,
            known: known_of,
            flow: None,
        };
        let rules = self.policy.access().explain(subject);
        let told = denial.map(|denial| told(&self.policy, *kind, denial));
        DryRunAnswer { decision, told, listed, known, rules }
    }

    /// What is known of the flow of a call that was shown results with these labels.
    fn flow_facts(&self, call: &ItemRequest, labels: FlowLabels) -> FlowFacts {
        if labels == FlowLabels::default() {
            return FlowFacts::default();
        }
        let mut memory = FlowMemory::default();
        memory.grow(labels);
        memory.forget_values();
        let tool = self.policy.flow().labels_of(&call.server, call.verb.kind(), &call.name);
        let key = ValueKey::new(RandomState::new());
        self.policy.flow().judge(&key, &memory, tool, call.sent())
    }

    /// Decides a hypothetical request for a file of a skill. It is decided by the skills of the lockfile that have the file.
    fn ask_of_file(&self, question: &TestRequest) -> DryRunAnswer {
        let TestRequest { principal, server, name, planner, .. } = question;
        self.policy.pin(&Arc::new(self.pins.clone()));
        let (facts, budget) = (&self.policy.facts(), WorkBudget::unlimited());
        let catalog = self.catalogs.get(&(server.clone(), ItemKind::Skill)).map(|one| &**one);
        let call = ItemRequest::bare(server, RequestOperation::ReadSkillFile, name);
        let any = self.policy.may_list(facts, principal, server, ItemKind::Skill);
        let standing = if any.is_granted() {
            let route = RouteFlow { planner: *planner, ..RouteFlow::default() };
            self.policy.may_use_in(route, facts, principal, catalog, call, &budget)
        } else {
            any
        };
        let (decision, denial) = standing.into_parts();
        let skill = self.skill_with(server, name);
        let rules = skill.map(|skill| {
            let uri = skill.rule_name().unwrap_or_default();
            let kind = ItemKind::Skill;
            let subject = AccessRequest::of_any_use(principal, server, kind, uri, None);
            self.policy.access().explain(subject)
        });
        let listed = skill.map(|skill| self.policy.about(facts, principal, server, skill).shows());
        let versions = self
            .pins
            .lock
            .servers
            .get(server.as_str())
            .zip(skill)
            .map(|(locked, skill)| locked.versions(ItemKind::Skill, skill.name().as_str()));
        let known = match versions.and_then(best) {
            Some(version) => ItemKnowledge::Locked(version.state),
            None => ItemKnowledge::Nothing,
        };
        let told = denial.map(|denial| told(&self.policy, ItemKind::Resource, denial));
        DryRunAnswer { decision, told, listed, known, rules: rules.unwrap_or_default() }
    }

    /// Why nobody may use an item on a route for `planner`; `None` if the planner does not matter. Lists of the route leave
    /// the item out as well.
    #[must_use]
    pub fn planner_refusal(
        &self,
        planner: Option<Planner>,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> Option<Denial> {
        let violation = self.policy.flow().refuses(planner, server, kind, name)?;
        Some(Denial { reason: Reason::Flow(violation), told: Disclosure::Nothing })
    }

    /// Whether the results of an item are not shown on a route for `planner`.
    #[must_use]
    pub fn withholds_results(&self, question: &TestRequest) -> bool {
        let TestRequest { server, kind, name, planner, .. } = question;
        self.policy.flow().withholds(*planner, server, *kind, name, None)
    }

    /// The first skill of the lockfile that has the file `uri`.
    fn skill_with(&self, server: &ServerName, uri: &str) -> Option<&CatalogItem> {
        let uri = ResourceUri::parse(uri).ok()?;
        let catalog = self.catalogs.get(&(server.clone(), ItemKind::Skill))?;
        catalog.skills_with(&uri).next().map(|(skill, _)| skill)
    }

    /// Applies the rules alone to a request whose arguments are no longer known; `None` if the result depends on
    /// them.
    #[must_use]
    pub fn by_rules(&self, question: &TestRequest) -> Option<AnywayDecision> {
        let TestRequest { principal, server, kind, name, planner, .. } = question;
        if let Some(denial) = self.planner_refusal(*planner, server, *kind, name) {
            return Some(AnywayDecision::denied(denial));
        }
        let (mut kind, mut name) = (kind, wanted(*kind, name));
        if *kind == ItemKind::Resource && skill::is_skill_uri(&name) {
            let Some(skill) = self.skill_with(server, &name) else {
                let denial = Denial { reason: Reason::SkillFile, told: Disclosure::Nothing };
                return Some(AnywayDecision::denied(denial));
            };
            (kind, name) = (&ItemKind::Skill, skill.name().as_str().into());
        }
        let known = self.policy.registered(server, *kind, &name);
        let uri = uri_of(*kind, &name);
        let name = match &uri {
            None => &*name,
            Some(Ok(uri)) => uri.as_str(),
            Some(Err(error)) => {
                let denial = Denial { reason: Reason::Uri(*error), told: Disclosure::Nothing };
                return Some(AnywayDecision::denied(denial));
            }
        };
        let subject = AccessRequest::of_any_use(principal, server, *kind, name, known);
        if self.policy.facts().has_revoked_use(principal, server, name) {
            let denial = Denial { reason: Reason::Revoked, told: Disclosure::Nothing };
            return Some(AnywayDecision::denied(denial));
        }
        let mut decision = self.policy.access().decide_anyway(subject)?;
        let of_tool = *kind == ItemKind::Tool;
        decision.needs_approval |= of_tool && known.is_some_and(|known| known.approval_required);
        Some(decision)
    }

    /// Applies the rules to a request for a list of `server`.
    #[must_use]
    pub fn of_list(&self, principal: &Principal, server: &ServerName, kind: ItemKind) -> Effect {
        self.policy.may_list(&self.policy.facts(), principal, server, kind).into_parts().0.effect
    }

    /// The catalog of the server with `name` added to it if it may exist, and the pins that apply then.
    fn catalog(
        &self,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> (Option<Arc<Catalog>>, Arc<Pins>, ItemKnowledge) {
        let as_is = || Arc::new(self.pins.clone());
        let catalog = self.catalogs.get(&(server.clone(), kind));
        let locked = self.pins.lock.servers.get(server.as_str());
        let versions = locked.map(|locked| locked.versions(kind, name)).unwrap_or_default();
        if let Some(version) = best(versions) {
            return (catalog.cloned(), as_is(), ItemKnowledge::Locked(version.state));
        }
        if kind == ItemKind::Resource
            && self.pins.unfit(server.as_str(), kind, name, None).is_some()
        {
            // The rules are queried as if the resource could be used.
            let mut resources = BTreeMap::clone(&self.pins.resources);
            resources.insert(server.as_str().into(), ResourcePins::Dynamic);
            let pins = Pins { resources: Arc::new(resources), ..self.pins.clone() };
            return (catalog.cloned(), Arc::new(pins), ItemKnowledge::Assumed);
        }
        if !matches!(kind, ItemKind::Tool | ItemKind::Prompt | ItemKind::Skill) {
            return (catalog.cloned(), as_is(), ItemKnowledge::Nothing);
        }
        let Some((offer, version)) = assumed(kind, name) else {
            return (catalog.cloned(), as_is(), ItemKnowledge::Nothing);
        };
        let is_held = self.knows(server) && !self.shows_unapproved;
        if is_held && self.pins.unfit(server.as_str(), kind, name, Some(&offer)).is_some() {
            let none = || Arc::new(Catalog::new(server.clone(), kind, Vec::new()));
            return (Some(catalog.cloned().unwrap_or_else(none)), as_is(), ItemKnowledge::Missing);
        }
        let mut offers = catalog.map(|catalog| catalog.offers().to_vec()).unwrap_or_default();
        offers.push(offer);
        let mut lock = Lockfile::clone(&self.pins.lock);
        let of_server = lock.servers.entry(server.as_str().into()).or_default();
        of_server.offers.insert((kind, name.into()), vec![version]);
        let pins = Pins { lock: Arc::new(lock), ..self.pins.clone() };
        let catalog = Catalog::new(server.clone(), kind, offers);
        (Some(Arc::new(catalog)), Arc::new(pins), ItemKnowledge::Assumed)
    }
}

/// The name of the item that is meant: an operator may write the path of a skill for its URI.
fn wanted(kind: ItemKind, name: &str) -> Box<str> {
    if kind == ItemKind::Skill { skill::uri_of(name).into() } else { name.into() }
}

/// The URI by which rules match a resource or a template.
fn uri_of(kind: ItemKind, name: &str) -> Option<Result<ResourceUri, UriError>> {
    match kind {
        ItemKind::Resource | ItemKind::Skill => Some(ResourceUri::listed(name)),
        ItemKind::Template => Some(ResourceUri::template(name)),
        ItemKind::Tool | ItemKind::Prompt | ItemKind::Method => None,
    }
}

fn told(policy: &Policy, kind: ItemKind, denial: Denial) -> DenialMessage {
    // The challenge is a header of the response, which names the scopes: it depends on the listener and is not shown.
    let failure = Failure::of_denial(kind, denial, None);
    match ToolDenial::of(&failure, policy, None) {
        Some(denial) => DenialMessage::Result(denial.text),
        None => DenialMessage::Error(Box::new(failure.public(Some(Era::Modern)))),
    }
}

/// The version that applies: an approved one, or else a pending or a revoked one.
fn best(versions: &[LockedVersion]) -> Option<&LockedVersion> {
    let of = |state| versions.iter().rfind(|version| version.state == state);
    of(ApprovalState::Approved)
        .or_else(|| of(ApprovalState::Pending))
        .or_else(|| of(ApprovalState::Revoked))
}

/// An item of which only the name is known.
fn assumed(kind: ItemKind, name: &str) -> Option<(CatalogItem, LockedVersion)> {
    let text = match kind {
        ItemKind::Tool => serde_json::json!({ "name": name, "inputSchema": { "type": "object" } }),
        ItemKind::Skill => {
            let digest = format!("sha256:{:064}", 0);
            serde_json::json!({
                "uri": name,
                "frontmatter": { "name": skill::name(name)?, "description": "" },
                "resources": [{ "uri": name, "digest": digest, "size": 0 }],
            })
        }
        _ => serde_json::json!({ "name": name }),
    };
    let document = Document::parse(Bytes::from(text.to_string()), &JsonBounds::MESSAGE).ok()?;
    let document = Arc::new(document);
    let offer = CatalogItem::read(kind, document.root(), &document).ok()?;
    let (digest, definition) = (offer.digest()?, Fragment::whole(document));
    let version = LockedVersion::new(digest, ApprovalState::Approved, definition);
    Some((offer, version))
}

fn locked(pins: &PinSettings) -> Result<Lockfile, LockError> {
    match lockfile::read(&pins.file, &pins.approvers) {
        Ok((lock, _)) => Ok(lock),
        Err(LockError::Missing(_)) => Ok(Lockfile::default()),
        Err(error) => Err(error),
    }
}
