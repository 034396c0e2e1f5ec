//! Explains why a definition is not shown to a caller, and what the operator can do about it.

use detection::inspect::{Detector, Finding};
use gateway::pins::acceptance;
use policy::definition::drift::visible;
use policy::definition::offer::{CatalogItem, ItemKind};
use policy::engine::pipeline::{Facts, Policy};
use policy::rules::decision::{Decision, Effect, Reason};
use policy_core::subject::name::ServerName;

/// The path of a definition in the lockfile, such as `tools/read_file`.
pub(super) fn thing(kind: ItemKind, name: &str) -> String {
    format!("{}/{}", kind.list(), visible(name))
}

/// Why `offer` is not shown to the caller that `decision` is about; `None` if it is shown.
pub(super) fn unseen(
    policy: &Policy,
    facts: &Facts,
    server: &ServerName,
    offer: &CatalogItem,
    decision: &Decision,
) -> Option<String> {
    if !decision.shows() {
        let of = thing(offer.kind(), offer.name().as_str());
        return Some(reason(server.as_str(), &of, decision));
    }
    // An allowed definition is still withheld if detectors find something in what remains of it.
    let left = policy.withheld_now(facts, server, offer).into_iter().next()?;
    Some(finding(server.as_str(), &thing(offer.kind(), offer.name().as_str()), &left))
}

/// Describes the reason of a denial, beginning with its code.
pub(super) fn reason(server: &str, thing: &str, decision: &Decision) -> String {
    let Effect::Deny(denial) = &decision.effect else { return "it is shown".to_owned() };
    let code = denial.reason.code();
    match &denial.reason {
        Reason::Definition(found) if found.detector == Detector::Registry => {
            format!("{code}: {found}")
        }
        Reason::Definition(found) => finding(server, thing, found),
        Reason::Pin(unfit) => format!("{code}: {}", unfit.note()),
        Reason::Shadowed(found) | Reason::Arguments(found) | Reason::Content(found) => {
            format!("{code}: {found}")
        }
        Reason::NotGranted => format!("{code}: no rule allows it"),
        Reason::Forbidden(rule)
        | Reason::ConditionError(rule, _)
        | Reason::Scope(rule, _)
        | Reason::Proof(rule, _) => format!("{code}: rule `{rule}`"),
        Reason::Flow(violation) if violation.at.is_empty() => {
            format!("{code}: it {}", violation.clause.note())
        }
        Reason::Flow(violation) => {
            format!("{code}: `{}` {}", violation.at, violation.clause.note())
        }
        Reason::Uri(error) => format!("{code}: {}", error.note()),
        Reason::App(violation) => format!("{code}: {}", violation.note()),
        Reason::SkillFile => format!("{code}: no manifest of a skill names it"),
        Reason::Unknown(_) | Reason::Revoked | Reason::Decoy | Reason::EventWebhook => {
            code.to_owned()
        }
        Reason::Approval(demand) => format!("{code}: rule `{}` allows it", demand.rule),
    }
}

/// The code of a definition that is withheld because of a finding.
const DEFINITION: &str = "definition-finding";

/// Describes a finding that withholds a definition, with the command that accepts a false alarm.
pub(super) fn finding(server: &str, thing: &str, finding: &Finding) -> String {
    let done = match finding.unacceptable() {
        None => {
            let command = acceptance(server, thing, finding.detector);
            format!("if that is a false alarm: `{command}`")
        }
        Some(why) => format!("it cannot be accepted: {why}"),
    };
    format!("{DEFINITION}: {finding}; {done}")
}
