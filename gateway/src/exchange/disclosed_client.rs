//! Inspects a client's description of itself before any server receives it.
//!
//! Servers receive it with every request if they are modern and with the handshake if they are legacy, also with list
//! requests for a decision. It is therefore inspected before anything else: once per legacy session, and for a modern
//! client whenever it changes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use detection::content::ChosenPart;
use detection::inspect::Finding;
use json::{Document, Fragment, JsonBounds};
use policy_core::base::work::WorkBudget;
use policy_core::subject::principal::Principal;

use super::checked_clients::{CheckedClient, ClientCheckKey};
use super::guardrails::GuardrailSubject;
use super::{Gateway, Route};
use crate::audit::Record;
use crate::edge::failure::Failure;
use crate::mcp::client_info::Client;
use crate::mcp::wire::{DecodeError, Object};
use crate::outbound::guardrail::GuardedPart;
use crate::upstream::Upstream;

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
    ) -> Result<Arc<Client>, Failure> {
        if client.says_nothing() {
            return Ok(Arc::clone(client));
        }
        let facts = self.policy.facts();
        let granted = route.servers.iter().enumerate();
        let granted = granted.filter(|(_, one)| self.policy.grants_any(&facts, caller, one.name()));
        let (places, servers): (Vec<usize>, Vec<&Arc<Upstream>>) = granted.unzip();
        if servers.is_empty() {
            return Ok(Arc::clone(client));
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
                self.metrics.content(&passed.found);
                record.found(passed.found.clone());
                if passed.agreed(now).is_some() {
                    return Ok(Arc::clone(&passed.client));
                }
                (Arc::clone(&passed.client), passed.found.clone(), passed.learned)
            }
            None => {
                let learned = of_caller();
                let (told, found) = self.told_of(caller, &servers, client, record)?;
                (told, found, learned)
            }
        };
        // The guardrails approved exactly this description; new state of the detectors does not change that.
        let same = before.as_ref().filter(|passed| passed.client == told);
        let mut agreed = same.and_then(|passed| passed.agreed(now));
        if agreed.is_none() {
            let mut answered = true;
            for server in servers {
                answered &= self.vouched(route, caller, server, &told, record).await?;
            }
            agreed = answered.then_some(now);
        }
        let (client, of_all) = (Arc::clone(&told), AtomicU64::new(of_all));
        let passed = CheckedClient { client, found, agreed, learned, of_all };
        self.checked_clients.keep(said, Arc::new(passed));
        Ok(told)
    }

    /// The client as the detectors release it for all of these servers, and their findings.
    fn told_of(
        &self,
        caller: &Principal,
        servers: &[&Arc<Upstream>],
        client: &Arc<Client>,
        record: &mut Record,
    ) -> Result<(Arc<Client>, Vec<Finding>), Failure> {
        let (mut client, mut all) = (Arc::clone(client), Vec::new());
        for server in servers {
            let (joinable, found) = self.told_together(caller, server, &client)?;
            self.metrics.content(&found);
            all.extend(found.iter().cloned());
            record.found(found);
            joinable.map_err(Failure::Unsent)?;
            let mut look = |text: &str| {
                let document = Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE);
                let unread = |error| Failure::Decode(DecodeError::Json(error));
                let said = Fragment::whole(Arc::new(document.map_err(unread)?));
                // A description is short, so its budget does not depend on its length.
                let budget = WorkBudget::of(0, self.limits.inspection_work);
                let (sent, found) = self.policy.answerable(caller, server.name(), said, &budget);
                self.metrics.content(&found);
                all.extend(found.iter().cloned());
                record.found(found);
                let sent = sent.map_err(Failure::Unsent)?;
                let changed = (sent.value().raw() != text).then(|| sent.value().raw().to_owned());
                Ok::<_, Failure>(changed)
            };
            let capabilities = look(client.capabilities())?;
            let info = client.said_info().map(&mut look).transpose()?.flatten();
            if capabilities.is_some() || info.is_some() {
                client = Arc::new(client.told(capabilities.as_deref(), info.as_deref()));
            }
        }
        Ok((client, all))
    }

    /// Checks both parts of the description together, since a value may be split across them.
    fn told_together(
        &self,
        caller: &Principal,
        server: &Upstream,
        client: &Client,
    ) -> Result<(Result<(), Finding>, Vec<Finding>), Failure> {
        let read = |text: &str| {
            let document = Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE);
            document.map_err(|error| Failure::Decode(DecodeError::Json(error)))
        };
        let said = [client.said_info(), Some(client.capabilities())].into_iter().flatten();
        let said = said.map(read).collect::<Result<Vec<_>, _>>()?;
        let parts: Vec<_> = said.iter().map(|said| ChosenPart::Members(said.root())).collect();
        let budget = WorkBudget::of(0, self.limits.inspection_work);
        Ok(self.policy.joinable(caller, server.name(), &parts, &budget))
    }

    /// Asks the guardrails about the description, and returns whether all of them answered.
    async fn vouched(
        &self,
        route: &Route,
        caller: &Principal,
        server: &Upstream,
        client: &Client,
        record: &mut Record,
    ) -> Result<bool, Failure> {
        if route.guardrails.is_empty() {
            return Ok(true);
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
            Ok((_, found)) => {
                let answered = found.is_empty();
                record.found(found);
                Ok(answered)
            }
            Err((finding, found)) => {
                record.found(found);
                Err(Failure::Unsent(finding))
            }
        }
    }
}
