//! Applies the policies for the apps of servers to definitions and to messages.

use std::sync::Arc;

use detection::inspect::Finding;
use json::{Document, Fragment, JsonBounds, Value};
use policy_core::subject::name::ServerName;

use super::Policy;
use crate::definition::offer::{CatalogItem, ItemKind};
use crate::engine::message::{ItemRequest, RequestOperation};
use crate::rules::apps::declared::AppPart;
use crate::rules::apps::kind::{is_app, is_app_template, is_app_uri};
use crate::rules::apps::message::{self, AppEdit, ReadItem};
use crate::rules::apps::{AppPolicies, AppViolation};
use crate::rules::decision::{Decision, Denial, Disclosure, Effect, Reason};

/// What a request reads, as far as apps are concerned.
pub(super) fn read_item(call: &ItemRequest) -> ReadItem {
    if call.verb == RequestOperation::Read && is_app_uri(&call.name) {
        ReadItem::App
    } else {
        ReadItem::Other
    }
}

impl Policy {
    /// Sets which servers may show which apps.
    #[must_use]
    pub fn with_apps(self, apps: AppPolicies) -> Self {
        Self { apps, ..self }
    }

    /// Whether a server may show any app.
    #[must_use]
    pub fn shows_apps(&self, server: &ServerName) -> bool {
        self.apps.of(server).is_some()
    }

    /// Why a resource or a template must not be shown or read as an app; `None` if it may, or is none. `name` is the
    /// canonical URI, `offer` its definition if the server lists it.
    fn app_violation(
        &self,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
        offer: Option<&CatalogItem>,
    ) -> Option<AppViolation> {
        let is_listed = offer.is_some_and(|offer| is_app(offer.definition()));
        let is_resource = matches!(kind, ItemKind::Resource | ItemKind::Template);
        let is_app_name =
            if kind == ItemKind::Template { is_app_template(name) } else { is_app_uri(name) };
        if !is_resource || !is_listed && !is_app_name {
            return None;
        }
        let Some(policy) = self.apps.of(server) else { return Some(AppViolation::NotConfigured) };
        // A template is compared by its text; what is made from it is compared when it is read.
        policy.check_uri(name).err().or_else(|| {
            let definition = offer.filter(|_| is_listed).map(CatalogItem::definition)?;
            policy.check(definition, AppPart::Link).err()
        })
    }

    /// Denies an app that its server may not show, if everything else would allow it. Returns whether it did.
    pub(super) fn refuses_app(
        &self,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
        offer: Option<&CatalogItem>,
        decision: &mut Decision,
    ) -> bool {
        if !decision.shows() {
            return false;
        }
        let Some(violation) = self.app_violation(server, kind, name, offer) else { return false };
        decision.findings.push(Finding::app("", violation.note()));
        let told = Disclosure::Rule { rule: None, contact: self.contact.clone() };
        decision.effect = Effect::Deny(Denial { reason: Reason::App(violation), told });
        true
    }

    /// A definition as a client may see it: without what points to apps that the server may not show. What was approved
    /// is the definition that the server sent.
    pub(super) fn without_apps(
        &self,
        server: &ServerName,
        definition: Value<'_>,
    ) -> Option<Arc<Document>> {
        let text = message::definition(self.apps.of(server), definition)?;
        // INVARIANT: a document from which members were removed is within the bounds of the whole.
        Document::parse(text.into(), &JsonBounds::ANSWER).ok().map(Arc::new)
    }

    /// A message of a server without the apps that it may not show, and what was removed. `read` says what it answers.
    ///
    /// # Errors
    /// The finding for which the message is withheld.
    pub(super) fn without_apps_in(
        &self,
        server: &ServerName,
        said: Fragment,
        read: ReadItem,
    ) -> Result<(Fragment, Vec<Finding>), Finding> {
        let AppEdit { text, findings } = message::edited(self.apps.of(server), said.value(), read)?;
        let Some(text) = text else { return Ok((said, findings)) };
        let document = Document::parse(text.into(), &JsonBounds::ANSWER);
        let document = document.map_err(|_unreadable| Finding::unchanged())?;
        Ok((Fragment::whole(Arc::new(document)), findings))
    }
}
