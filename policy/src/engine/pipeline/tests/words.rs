//! Codes and words that clients, operators and logs see: each is its own.

use std::collections::BTreeSet;
use std::fmt::Debug;

use super::*;
use crate::definition::pins::PinViolation;
use crate::definition::shadow::Similarity;
use crate::engine::method::{self, MethodSpec};
use crate::flow::guard::{FlowClause, Origin};
use crate::flow::label::{Confidentiality, Integrity, Sink};
use crate::rules::control::{Control, ControlSet};
use crate::rules::explain::Applicability;

/// Checks that no two of `all` have the same text, and that none is empty.
fn distinct<T: Debug>(all: &[T], text: impl Fn(&T) -> String) {
    let texts: BTreeSet<_> = all.iter().map(&text).collect();
    assert_eq!(texts.len(), all.len(), "{all:?}");
    assert!(texts.iter().all(|text| !text.is_empty()));
}

#[test]
fn every_violation_of_a_pin_has_a_code_and_a_note_of_its_own() {
    let of_definition = [
        PinViolation::NotApproved,
        PinViolation::Changed,
        PinViolation::Revoked,
        PinViolation::Unpinnable,
        PinViolation::Unevaluated,
        PinViolation::EvaluationFailed,
    ];
    let of_server = [
        PinViolation::Removed,
        PinViolation::Inconsistent,
        PinViolation::Quarantined,
        PinViolation::Identity,
    ];
    assert!(of_definition.iter().all(|one| one.is_of_definition()));
    assert!(!of_server.iter().any(|one| one.is_of_definition()));
    let all = [&of_definition[..], &of_server].concat();
    distinct(&all, |one| one.code().to_owned());
    distinct(&all, |one| one.note().to_owned());
    assert!(all.iter().all(|one| one.to_string() == one.code()));
}

#[test]
fn every_label_of_a_flow_has_a_name_of_its_own() {
    distinct(&[Integrity::Trusted, Integrity::Listed, Integrity::Untrusted], |one| {
        one.as_str().to_owned()
    });
    let classes = [
        Confidentiality::Public,
        Confidentiality::Internal,
        Confidentiality::Confidential,
        Confidentiality::Restricted,
    ];
    distinct(&classes, |one| one.as_str().to_owned());
    let sinks = [Sink::None, Sink::Write, Sink::Destructive, Sink::Fetch, Sink::External];
    distinct(&sinks, |one| one.as_str().to_owned());
    let outside: Vec<_> = sinks.iter().filter(|sink| sink.leaves()).collect();
    assert_eq!(outside, [&Sink::Fetch, &Sink::External]);
    let clauses = [&FlowClause::ALL[..], &[FlowClause::Planner]].concat();
    distinct(&clauses, |one| one.code().to_owned());
    // A target is refused for the same words as another value.
    distinct(&clauses[1..], |one| one.note().to_owned());
    distinct(&[Origin::Unknown, Origin::Trusted, Origin::Untrusted], |one| one.as_str().to_owned());
}

#[test]
fn every_likeness_says_how_two_items_are_alike() {
    let all = [
        Similarity::Exact,
        Similarity::Case,
        Similarity::Separators,
        Similarity::Compatibility,
        Similarity::Confusable,
        Similarity::Prefix,
        Similarity::Reserved,
        Similarity::OneLetter,
        Similarity::Description,
        Similarity::Directs,
        Similarity::Names,
    ];
    distinct(&all, |one| one.note().to_owned());
}

#[test]
fn every_control_has_a_name_and_a_bit_of_its_own() {
    let all = [
        Control::Door,
        Control::Authentication,
        Control::Message,
        Control::Session,
        Control::Rules,
        Control::Revocation,
        Control::Pins,
        Control::Definitions,
        Control::Shadowing,
        Control::Registry,
        Control::InputSchema,
        Control::Constraints,
        Control::Arguments,
        Control::Results,
        Control::OutputSchema,
        Control::Rates,
        Control::Guardrails,
    ];
    distinct(&all, |one| one.as_str().to_owned());
    distinct(&all, |one| ControlSet::of(&[*one]).bits().to_string());
    for control in all {
        let kept = ControlSet::from_bits(ControlSet::of(&[control]).bits());
        assert!(all.iter().all(|one| kept.has(*one) == (*one == control)));
    }
}

#[test]
fn why_a_rule_does_not_apply_is_said_in_words_of_its_own() {
    let all = [
        Applicability::Yes,
        Applicability::Depends,
        Applicability::Lacks(Reason::NotGranted),
        Applicability::Fails,
        Applicability::Error("no such key".into()),
        Applicability::Caller,
        Applicability::Server,
        Applicability::Thing,
        Applicability::Off,
    ];
    distinct(&all, |one| one.note().into_owned());
    assert!(all[4].note().contains("no such key"));
}

#[test]
fn a_method_is_known_by_its_name_and_by_nothing_like_it() {
    assert_eq!(method::clamped("tools/call"), "tools/call");
    assert_eq!(method::clamped("tools/call "), "_OTHER");
    for kind in
        [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource, ItemKind::Template, ItemKind::Skill]
    {
        let spec = MethodSpec::by_name(method::list(kind)).unwrap();
        assert!(!spec.is_notification() && spec.named.is_none(), "{kind:?}");
    }
    for (name, member) in [
        ("tools/call", Some("name")),
        ("prompts/get", Some("name")),
        ("resources/read", Some("uri")),
        ("resources/subscribe", None),
        ("completion/complete", None),
        ("ping", None),
    ] {
        assert_eq!(MethodSpec::by_name(name).unwrap().member_in_header(), member, "{name}");
    }
    let complete = MethodSpec::of(RequestOperation::CompletePrompt).unwrap().named.unwrap();
    assert_eq!(complete.members(), ("ref", Some("name")));
    assert!(MethodSpec::by_name("notifications/progress").unwrap().is_notification());
    for (name, is_ours) in [
        ("tools/invented", true),
        ("notifications/tools/invented", true),
        ("notifications/cancelled", true),
        ("com.example/run", false),
        ("notifications/example", false),
    ] {
        assert_eq!(method::is_of_protocol(name), is_ours, "{name}");
    }
}
