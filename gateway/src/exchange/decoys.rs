//! What happens to a caller that touches a decoy: it calls a tool that no server has, or sends or gets a value that
//! nobody has a reason to send (control C35).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use detection::inspect::{Detector, Finding};
use json::write_string;
use policy::definition::decoy::DecoyTool;
use policy::definition::offer::ItemKind;
use policy::engine::message::{ItemRequest, RequestOperation};
use policy::engine::pipeline::{Facts, Policy};
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::{RESERVED, ServerName};
use policy_core::subject::principal::Principal;

use super::{DecodedRequest, Gateway, Route};
use crate::audit::{LostRecord, Record, RecordedDecision, RevocationSource};
use crate::config::settings::DecoySettings;
use crate::edge::decode::UseOperation;
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::mcp::tool_naming;
use crate::mcp::wire::Object;
use crate::metrics::decoy_kind::DecoyKind;
use crate::session::lock_store::LockTime;

/// How long callers are locked that touch a decoy. A decoy that is not here locks nobody.
#[derive(Debug, Default)]
pub struct DecoyLocks {
    /// By server and name of the tool.
    tools: BTreeMap<(Box<str>, Box<str>), Duration>,
    /// By name of the honeytoken.
    honeytokens: BTreeMap<Box<str>, Duration>,
}

impl DecoyLocks {
    /// The locks that these settings ask for.
    #[must_use]
    pub fn of(settings: &DecoySettings) -> Self {
        let honeytokens = settings.honeytokens.iter();
        let honeytokens = honeytokens.filter_map(|one| Some((one.name.clone(), one.lock?)));
        Self { tools: settings.tool_locks.clone(), honeytokens: honeytokens.collect() }
    }
}

/// A decoy that a caller touched.
#[derive(Clone, Copy, Debug)]
enum TouchedDecoy<'a> {
    /// It called the tool of this name of this server.
    Tool(&'a ServerName, &'a str),
    /// A message has the honeytoken of this name.
    Honeytoken(&'a str),
}

impl TouchedDecoy<'_> {
    const fn kind(self) -> DecoyKind {
        match self {
            Self::Tool(..) => DecoyKind::Tool,
            Self::Honeytoken(_) => DecoyKind::Honeytoken,
        }
    }

    /// What it is, for records.
    fn named(self) -> String {
        match self {
            Self::Tool(server, name) => format!("decoy {server}/{name}"),
            Self::Honeytoken(name) => format!("honeytoken {name}"),
        }
    }
}

impl Route {
    /// The decoy that is named `name` on this route, and its server.
    fn decoy<'a>(
        &'a self,
        policy: &'a Policy,
        name: &str,
    ) -> Option<(&'a ServerName, &'a DecoyTool)> {
        let servers = self.servers.iter().map(|server| server.name());
        let mut decoys = servers.flat_map(|server| {
            policy.decoys().of(server.as_str()).iter().map(move |one| (server, one))
        });
        decoys.find(|(server, decoy)| self.decoy_name(server, decoy).as_deref() == Some(name))
    }

    /// The name of a decoy on this route. Where names depend on those of other servers, it has the name of its server in
    /// front, so that it does not take the name of another tool.
    fn decoy_name(&self, server: &ServerName, decoy: &DecoyTool) -> Option<String> {
        if self.compares(ItemKind::Tool) {
            return Some(tool_naming::prefixed(server, &decoy.name));
        }
        let naming = self.naming(server, Arc::default());
        Some(naming.show(server, ItemKind::Tool, &decoy.name)?.into_owned())
    }
}

impl Gateway {
    /// The denial of a call of a decoy; `None` if the call is of something else. The caller is answered as if there were
    /// no such tool. It comes before anything is asked of a server.
    pub(super) fn decoy_called(
        &self,
        arrived: &DecodedRequest,
        ask: &UseOperation,
        record: &mut Record,
    ) -> Option<Failure> {
        if ask.verb != RequestOperation::Call || self.policy.decoys().is_empty() {
            return None;
        }
        let (server, decoy) = arrived.route.decoy(&self.policy, &ask.name)?;
        record.server = Some(server.as_str().into());
        record.upstream_name = Some(decoy.name.clone());
        let (decision, denial) = Policy::of_decoy();
        self.metrics.content(&decision.findings);
        record.decision = RecordedDecision::Decided(Box::new(decision));
        self.touched(&arrived.caller.principal, TouchedDecoy::Tool(server, &decoy.name));
        Some(self.denied(arrived, ItemKind::Tool, denial))
    }

    /// The definitions of the decoys that the list of a caller has, as JSON.
    pub(super) fn decoys_shown(&self, arrived: &DecodedRequest, kind: ItemKind) -> Vec<Vec<u8>> {
        let (principal, route) = (&arrived.caller.principal, &arrived.route);
        if kind != ItemKind::Tool || self.policy.decoys().is_empty() {
            return Vec::new();
        }
        let servers = route.servers.iter().map(|server| server.name());
        let decoys = servers.flat_map(|server| {
            self.policy.decoys().of(server.as_str()).iter().map(move |decoy| (server, decoy))
        });
        let shown = decoys.filter(|(_, decoy)| decoy.is_shown_to(principal));
        let written = |(server, decoy): (&ServerName, &DecoyTool)| {
            let name = route.decoy_name(server, decoy)?;
            let is_left_out = route.only(kind).is_some_and(|only| !encode::is_among(&name, only));
            if is_left_out || route.discovery_tool(&name).is_some() {
                return None;
            }
            let mut out = Vec::new();
            let mut definition = Object::open(&mut out);
            definition.text("name", &name);
            definition.text("description", &decoy.description);
            definition.raw("inputSchema", &decoy.input_schema);
            definition.close();
            Some(out)
        };
        shown.filter_map(written).collect()
    }

    /// The honeytokens in a call that leads to no server, and is denied for that.
    pub(super) async fn honeytokens_in(
        &self,
        arrived: &DecodedRequest,
        ask: &UseOperation,
    ) -> Vec<Finding> {
        let Some(server) = arrived.route.servers.first() else { return Vec::new() };
        if !self.policy.contents().has_honeytokens() {
            return Vec::new();
        }
        let call = ItemRequest {
            arguments: ask.arguments.clone(),
            extra: ask.extra.clone(),
            meta: ask.meta.clone(),
            ..ItemRequest::bare(server.name(), ask.verb, &ask.name)
        };
        let caller = &arrived.caller.principal;
        let look =
            move |policy: &Policy, _: &Facts, caller: &Arc<Principal>, budget: &WorkBudget| {
                policy.honeytokens_in(caller, &call, budget)
            };
        let bytes = ask.arguments.as_ref().map_or(0, |given| given.value().raw().len());
        // The call is denied also where nothing can be inspected now.
        let found = self.inspect(caller, bytes, look).await.unwrap_or_default();
        self.note_findings(caller, &found);
        found
    }

    /// Counts findings, and returns the name of each honeytoken among them once.
    fn honeytokens_among<'a>(
        &self,
        found: impl IntoIterator<Item = &'a Finding, IntoIter: Clone>,
    ) -> BTreeSet<&'a str> {
        let found = found.into_iter();
        self.metrics.content(found.clone());
        let honeytokens = found.filter(|finding| finding.detector == Detector::Honeytokens);
        honeytokens.map(|finding| &*finding.note).collect()
    }

    /// Counts the findings in a message of `caller`. A honeytoken among them is a touched decoy.
    pub(super) fn note_findings<'a>(
        &self,
        caller: &Principal,
        found: impl IntoIterator<Item = &'a Finding, IntoIter: Clone>,
    ) {
        for name in self.honeytokens_among(found) {
            self.touched(caller, TouchedDecoy::Honeytoken(name));
        }
    }

    /// Counts the findings in a message of a server to `caller`. A honeytoken among them is counted and logged, and nobody
    /// is locked for it: a server could lock out any caller.
    pub(super) fn note_shown<'a>(
        &self,
        caller: &Principal,
        found: impl IntoIterator<Item = &'a Finding, IntoIter: Clone>,
    ) {
        for name in self.honeytokens_among(found) {
            let decoy = TouchedDecoy::Honeytoken(name);
            self.metrics.decoy(decoy.kind());
            let (principal, what) = (&caller.id, decoy.named());
            tracing::warn!(
                event = "decoy.leaked", %principal, decoy = %what,
                "a server has shown a honeytoken"
            );
        }
    }

    /// Counts and logs that `caller` has touched a decoy, and locks it if the decoy asks for that.
    fn touched(&self, caller: &Principal, decoy: TouchedDecoy<'_>) {
        self.metrics.decoy(decoy.kind());
        let (principal, what) = (&caller.id, decoy.named());
        tracing::warn!(event = "decoy.touched", %principal, decoy = %what, "a caller touched a decoy");
        let time = match decoy {
            TouchedDecoy::Tool(server, name) => {
                self.decoy_locks.tools.get(&(server.as_str().into(), name.into()))
            }
            TouchedDecoy::Honeytoken(name) => self.decoy_locks.honeytokens.get(name),
        };
        // The self-test attacks the gateway on purpose.
        if let Some(time) = time.filter(|_| !caller.id.as_str().starts_with(RESERVED)) {
            self.lock(caller, *time, &what.into());
        }
    }

    /// Refuses everything to a caller for `time`, from now on, and ends what is under way for it.
    fn lock(&self, caller: &Principal, time: Duration, cause: &Arc<str>) {
        let (id, at) =
            (caller.id.as_str(), LockTime { instant: self.clock.instant(), now: self.clock.now() });
        let lock = match self.locks.add(id, time, at, cause) {
            Ok(Some(lock)) => lock,
            // It is locked for as long already.
            Ok(None) => return,
            Err(error) => {
                tracing::error!(
                    event = "decoy.lock_failed", principal = %caller.id, %error,
                    "a caller that touched a decoy could not be locked"
                );
                return;
            }
        };
        let expires = humantime::format_rfc3339_seconds(lock.expires);
        tracing::warn!(
            event = "decoy.locked", principal = %caller.id, %expires, cause = &**cause,
            "everything is refused to a caller that touched a decoy"
        );
        if let Err(error) = self.journal.record_revoked(&locked(id, &lock), RevocationSource::Decoy)
        {
            self.journal.log_lost(&error, LostRecord::Event);
        }
        self.end_revoked();
    }
}

/// A lock in the form of a change of revocations, for records.
fn locked(id: &str, lock: &crate::session::lock_store::PrincipalLock) -> String {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    json::write_items(object.key("principals"), std::iter::once(id), |out, id| {
        write_string(out, id)
    });
    object.text("reason", &lock.cause);
    object.show("until", &humantime::format_rfc3339_seconds(lock.expires));
    object.close();
    String::from_utf8(out).unwrap_or_default()
}
