//! Decides about the files of skills, and holds what a server answers about a skill to the manifest that was decided about.

use detection::inspect::Finding;
use json::Value;
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use policy_core::subject::uri::ResourceUri;

use super::standing::Viewer;
use super::{
    AskedItem, CatalogAvailability, Facts, FlowingCall, Permit, Policy, ReplyTerms, Ruling,
};
use crate::definition::offer::{Catalog, CatalogItem, ItemKind};
use crate::definition::pin::{Digest, DigestSubject};
use crate::definition::skill::{SkillFile, has_file};
use crate::engine::message::{ItemRequest, RequestOperation};
use crate::rules::access::AccessDecision;
use crate::rules::control::{Control, ControlSet};
use crate::rules::decision::Reason;

/// What an answer about a skill has to say, by the manifest that was decided about.
#[derive(Clone, Debug)]
pub(super) enum ExpectedSkill {
    /// Exactly this manifest.
    Entry(Option<Digest>),
    /// Exactly the content of this file.
    File(SkillFile),
    /// Nothing: the manifest does not list the file.
    Nothing,
}

impl ExpectedSkill {
    /// What the answer to `call` has to say, by the definition of its skill; `None` for a call about anything else.
    pub(super) fn of(call: &ItemRequest, offer: Option<&CatalogItem>) -> Option<Self> {
        match call.verb {
            RequestOperation::GetSkill => Some(Self::Entry(offer.and_then(CatalogItem::digest))),
            RequestOperation::ReadSkillFile => {
                let uri = ResourceUri::parse(&call.name).ok();
                let file = uri.and_then(|uri| offer?.manifest()?.file(uri.as_str()));
                Some(file.map_or(Self::Nothing, |file| Self::File(file.clone())))
            }
            RequestOperation::Call
            | RequestOperation::Get
            | RequestOperation::Read
            | RequestOperation::Subscribe
            | RequestOperation::Unsubscribe
            | RequestOperation::CompletePrompt
            | RequestOperation::CompleteTemplate
            | RequestOperation::Task(_)
            | RequestOperation::Other => None,
        }
    }

    /// The finding by which `result` may not be shown; `None` if it says what is expected.
    fn unlike(&self, result: Value<'_>) -> Option<Finding> {
        match self {
            Self::Entry(digest) => {
                let entry = result.get("skill").filter(|entry| entry.is_object());
                let subject = DigestSubject::Offer(ItemKind::Skill);
                let found = entry.and_then(|entry| Digest::of(subject, entry).ok());
                let same = found.is_some() && found == *digest;
                (!same).then(Finding::skill_changed)
            }
            Self::File(file) => (!file.is_content_of(result)).then(Finding::skill_file_changed),
            Self::Nothing => Some(Finding::skill_file_changed()),
        }
    }
}

impl ReplyTerms {
    /// The finding by which `result` may not be shown, because it is not what the manifest of a skill says.
    pub(super) fn unlike(&self, result: Value<'_>, ran: &mut ControlSet) -> Option<Finding> {
        let Some(skill) = &self.skill else { return unverified_file(result) };
        ran.note(Control::Pins);
        skill.unlike(result)
    }
}

impl Policy {
    /// Decides about reading a file of a skill: it is permitted if its caller may use a skill whose manifest lists the file.
    /// The first such skill counts, in the order of the server's list. A `forbid` of any of them overrides.
    pub(super) fn decide_file(
        &self,
        facts: &Facts,
        principal: &Principal,
        catalog: Option<&Catalog>,
        asked: FlowingCall<'_>,
        budget: &WorkBudget,
    ) -> Ruling<Permit> {
        let FlowingCall { call, flow } = asked;
        let uri = match ResourceUri::parse(&call.name) {
            Ok(uri) => uri,
            Err(error) => return refused(Reason::Uri(error)),
        };
        let viewer = Viewer { principal, facts, links: None };
        let (mut permitted, mut denied) = (None, None);
        for (skill, file) in catalog.into_iter().flat_map(|catalog| catalog.skills_with(&uri)) {
            let seen = self.about_skill(viewer, &call.server, skill);
            // The server gets its own spelling of the URI, since it may treat another one as another resource.
            let call = ItemRequest { name: file.listed().into(), ..call.clone() };
            let asked = AskedItem { call, flow, offer: Some(skill) };
            let ruling = self.decide_seen(principal, seen, asked, budget);
            match &ruling.outcome {
                Ok(_) => permitted = permitted.or(Some(ruling)),
                Err(denial) if matches!(denial.reason, Reason::Forbidden(_)) => return ruling,
                Err(_) => denied = denied.or(Some(ruling)),
            }
        }
        permitted.or(denied).unwrap_or_else(|| refused(Reason::SkillFile))
    }

    fn about_skill(
        &self,
        viewer: Viewer<'_>,
        server: &ServerName,
        skill: &CatalogItem,
    ) -> AccessDecision {
        let (kind, name) = (skill.kind(), skill.name().as_str());
        self.standing(viewer, server, kind, name, Some(skill), CatalogAvailability::Known)
    }
}

/// The finding by which a message may not be shown that has the content of a file of a skill, which nothing has compared with
/// a manifest.
pub(super) fn unverified_file(said: Value<'_>) -> Option<Finding> {
    has_file(said).then(Finding::skill_file_changed)
}

/// The decision about a file that no skill of the server has.
fn refused(reason: Reason) -> Ruling<Permit> {
    let (decision, denial) = Policy::never(reason);
    Ruling { decision, outcome: Err(denial) }
}
