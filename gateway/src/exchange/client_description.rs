//! Inspects a client's description of itself before any server receives it.
//!
//! Servers receive it with every request if they are modern and with the handshake if they are legacy, also with list
//! requests for a decision. It is therefore inspected before anything else: once per legacy session, and for a modern
//! client whenever it changes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use detection::inspect::Finding;
use json::{Document, JsonBounds};
use policy::engine::pipeline::DescriptionError;
use policy_core::subject::principal::Principal;

use super::checked_clients::{CheckedClient, ClientCheckKey};
use super::guardrails::GuardrailSubject;
use super::{Gateway, Route};
use crate::audit::Record;
use crate::edge::failure::Failure;
use crate::mcp::client_info::Client;
use crate::mcp::wire::{DecodeError, Object};
use crate::outbound::guardrail::{GuardedPart, GuardrailsPassed};
use crate::session::disclosed_client::{DisclosedClient, InspectedClient};
use crate::upstream::Upstream;

/// What the guardrails of a route said of a description that may be sent.
struct GuardrailAnswers {
    agreed: GuardrailsPassed,
    /// Whether all of them answered: one that gives no answer may let everything pass.
    is_complete: bool,
}

impl Gateway {
    /// Inspects the description for every server on the route that the caller may use, and returns the client as they
    /// may see it.
    ///
    /// # Errors
    /// If one of the servers must not receive it.
    pub(super) async fn introduced(
        &self,
        caller: &Arc<Principal>,
        route: &Route,
        client: &Arc<Client>,
        record: &mut Record,
    ) -> Result<DisclosedClient, Failure> {
        if let Some(silent) = DisclosedClient::silent(client) {
            return Ok(silent);
        }
        let facts = self.policy.facts();
        let granted = route.servers.iter().enumerate();
        let granted = granted.filter(|(_, one)| self.policy.grants_any(&facts, caller, one.name()));
        let (places, servers): (Vec<usize>, Vec<&Arc<Upstream>>) = granted.unzip();
        if servers.is_empty() {
            let (unsent, _) = self.told_of(caller, &[], client, record)?;
            return Ok(DisclosedClient::new(unsent, GuardrailsPassed::nothing_to_judge()));
        }
        let said = ClientCheckKey {
            route: Arc::clone(&route.path),
            servers: places.into(),
            caller: Arc::clone(caller),
            client: Arc::clone(client),
        };
        // Taken before inspecting: detectors may learn new values meanwhile, and this result must then count as stale.
        let (now, of_all) = (self.clock.instant(), self.policy.learned());
        let of_caller = || self.policy.learned_of(caller);
        let before = self.checked_clients.find(&said);
        let current = before.as_ref().filter(|passed| passed.is_current(of_all, of_caller));
        let (told, found, learned) = match current {
            Some(passed) => {
                self.note_findings(caller, &passed.found);
                record.found(passed.found.clone());
                if passed.agreed(now).is_some() {
                    return Ok(passed.client.clone());
                }
                (passed.client.inspected(), passed.found.clone(), passed.learned)
            }
            None => {
                let learned = of_caller();
                let (told, found) = self.told_of(caller, &servers, client, record)?;
                (told, found, learned)
            }
        };
        // The guardrails approved exactly this description; new state of the detectors does not change that.
        let same = before.as_ref().filter(|passed| passed.client.inspected() == told);
        let approved = same.and_then(|passed| Some((passed.client.clone(), passed.agreed(now)?)));
        let (client, agreed) = match approved {
            Some((client, at)) => (client, Some(at)),
            None => {
                let (mut agreed, mut answered) = (GuardrailsPassed::nothing_to_judge(), true);
                for server in servers {
                    // Boxed, because a description that is known needs no answer.
                    let answer = self.vouched(route, caller, server, &told, record);
                    let answer = Box::pin(answer).await?;
                    (agreed, answered) = (answer.agreed, answered && answer.is_complete);
                }
                (DisclosedClient::new(told, agreed), answered.then_some(now))
            }
        };
        let of_all = AtomicU64::new(of_all);
        let passed = CheckedClient { client: client.clone(), found, agreed, learned, of_all };
        self.checked_clients.keep(said, Arc::new(passed));
        Ok(client)
    }

    /// The client as the detectors release it for all of these servers, and their findings.
    fn told_of(
        &self,
        caller: &Principal,
        servers: &[&Arc<Upstream>],
        client: &Arc<Client>,
        record: &mut Record,
    ) -> Result<(InspectedClient, Vec<Finding>), Failure> {
        let servers: Vec<_> = servers.iter().map(|server| server.name()).collect();
        let (capabilities, info) = (client.capabilities(), client.said_info());
        let work = self.limits.inspection_work;
        let (released, found) = self.policy.describable(caller, &servers, capabilities, info, work);
        self.note_findings(caller, &found);
        record.found(found.clone());
        let released = released.map_err(|error| match error {
            DescriptionError::Unread(error) => Failure::Decode(DecodeError::Json(error)),
            DescriptionError::Stopped(finding) => Failure::Unsent(finding),
        })?;
        Ok((InspectedClient::new(client, &released), found))
    }

    /// Asks the guardrails about the description.
    async fn vouched(
        &self,
        route: &Route,
        caller: &Principal,
        server: &Upstream,
        client: &Client,
        record: &mut Record,
    ) -> Result<GuardrailAnswers, Failure> {
        if route.guardrails.is_empty() {
            let agreed = GuardrailsPassed::nothing_to_judge();
            return Ok(GuardrailAnswers { agreed, is_complete: true });
        }
        let mut said = Vec::new();
        let mut object = Object::open(&mut said);
        object.raw("clientCapabilities", client.capabilities());
        if let Some(info) = client.said_info() {
            object.raw("clientInfo", info);
        }
        object.close();
        // INVARIANT: the parts were parsed by the same reader within the same bounds.
        let unread = |error| Failure::Decode(DecodeError::Json(error));
        let said = Document::parse(said.into(), &JsonBounds::ANSWER).map_err(unread)?;
        let name = record.method.clone().unwrap_or_default();
        let (part, value) = (GuardedPart::Client, said.root());
        let about = GuardrailSubject { server, name: &name, part, value, beside: "" };
        match self.guarded(route, caller, about).await {
            Ok((agreed, found)) => {
                let is_complete = found.is_empty();
                record.found(found);
                Ok(GuardrailAnswers { agreed, is_complete })
            }
            Err((finding, found)) => {
                record.found(found);
                Err(Failure::Unsent(finding))
            }
        }
    }
}
