use std::collections::BTreeSet;

use policy_core::subject::kind::ItemKind;
use policy_core::subject::name::{ClientId, GroupName, PrincipalId, RoleName, RuleId, ServerName};
use policy_core::subject::pattern::Pattern;
use policy_core::subject::principal::{Principal, PrincipalSelector};
use proptest::prelude::*;

use super::{ItemPatterns, OutcomeTally, Rule, RuleEffect, RuleSet};
use crate::rules::condition::{AccessRequest, Condition, KnownArguments};
use crate::rules::decision::{Effect, Mode};

const NAMES: [&str; 10] = [
    "read",
    "read_file",
    "write",
    "é",
    "éa",
    "",
    "file:///srv/a",
    "file:///srv/a/?x=1",
    "file://HOST/srv/a",
    "https://example.com/a?x#y",
];
const PATTERNS: [&str; 12] = [
    "*",
    "read",
    "read*",
    "read_*",
    "?ead",
    "*e",
    "é*",
    "é",
    "file:///srv/*",
    "file:///srv/a",
    "file://host/*",
    "https://example.com/a",
];
const KINDS: [ItemKind; 5] =
    [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource, ItemKind::Template, ItemKind::Method];

fn patterns() -> impl Strategy<Value = Vec<Pattern>> {
    let pattern = prop::sample::select(PATTERNS.to_vec()).prop_map(Pattern::new);
    prop::collection::vec(pattern, 0..3)
}

fn any_who() -> impl Strategy<Value = PrincipalSelector> {
    prop::sample::select(vec![
        PrincipalSelector::Anyone,
        PrincipalSelector::Group(GroupName::parse("dev").unwrap()),
        PrincipalSelector::Group(GroupName::parse("ops").unwrap()),
        PrincipalSelector::Role(RoleName::parse("agent").unwrap()),
        PrincipalSelector::Client(ClientId::parse("ide").unwrap()),
        PrincipalSelector::Principal(PrincipalId::parse("ana").unwrap()),
    ])
}

/// The parts of a generated rule, from which equal rules can be built repeatedly.
type Made = (
    RuleEffect,
    Mode,
    bool,
    Vec<PrincipalSelector>,
    [Vec<Pattern>; 5],
    &'static str,
    Option<&'static str>,
);

fn any_rule() -> impl Strategy<Value = Made> {
    (
        prop_oneof![Just(RuleEffect::Allow), Just(RuleEffect::Forbid)],
        prop::sample::select(vec![Mode::Enforce, Mode::Enforce, Mode::Audit, Mode::Off]),
        any::<bool>(),
        prop::collection::vec(any_who(), 0..3),
        [patterns(), patterns(), patterns(), patterns(), patterns()],
        prop::sample::select(vec!["*", "files", "time"]),
        prop::sample::select(vec![None, Some("arguments.n > 2"), Some("principal.id == 'ana'")]),
    )
}

fn access(made: &[Made]) -> RuleSet {
    let rule = |(n, made): (usize, &Made)| {
        let (
            says,
            mode,
            disclose,
            principals,
            [tools, prompts, resources, skills, methods],
            server,
            when,
        ) = made.clone();
        Rule {
            id: RuleId::parse(&format!("r{n}")).unwrap(),
            says,
            principals,
            servers: vec![Pattern::new(server)],
            things: ItemPatterns { tools, prompts, resources, skills, methods },
            scopes: [].into(),
            proof: None,
            when: when.map(|text| Condition::compile(text).unwrap()),
            mode,
            disclose,
            contact: None,
            requires_approval: false,
        }
    };
    RuleSet::new(made.iter().enumerate().map(rule).collect())
}

fn callers() -> Vec<Principal> {
    let caller = |id: &str, group: &str| {
        let groups = BTreeSet::from([GroupName::parse(group).unwrap()]);
        Principal::new(PrincipalId::parse(id).unwrap(), groups)
    };
    let mut agent = caller("bob", "none");
    agent.claims.client = Some(ClientId::parse("ide").unwrap());
    agent.claims.roles = BTreeSet::from([RoleName::parse("agent").unwrap()]);
    vec![caller("ana", "dev"), caller("eve", "ops"), agent, caller("dan", "none")]
}

proptest! {
    /// Each rule is asked, in the order of the configuration: what the index leaves out is only what
    /// says nothing.
    #[test]
    fn what_the_index_leaves_out_changes_no_decision(
        made in prop::collection::vec(any_rule(), 0..12),
        name in prop::sample::select(NAMES.to_vec()),
        kind in prop::sample::select(KINDS.to_vec()),
    ) {
        let access = access(&made);
        let server = ServerName::parse("files").unwrap();
        for principal in &callers() {
            let arguments = KnownArguments::Unknown;
            let subject =
                AccessRequest { principal, server: &server, kind, name, arguments, known: None, flow: None };
            let mut all = OutcomeTally::default();
            for rule in access.rules().iter().filter(|rule| rule.concerns(subject)) {
                all.count(rule, rule.outcome(subject), principal);
            }
            let found = access.decide(subject);
            prop_assert_eq!(found.for_any_arguments, !all.depends);
            prop_assert_eq!(format!("{:?}", found.decision), format!("{:?}", all.conclude(kind)));
            let could = access.rules().iter().find(|rule| {
                rule.says == RuleEffect::Allow
                    && rule.mode == Mode::Enforce
                    && !rule.things.of(kind).is_empty()
                    && rule.speaks_of(principal, &server)
            });
            prop_assert_eq!(
                access.could_allow(principal, &server, kind),
                could.map(|rule| &rule.id)
            );
        }
    }

    #[test]
    fn the_rules_that_are_void_are_those_that_a_look_at_each_pair_finds(
        made in prop::collection::vec(any_rule(), 0..12),
    ) {
        let access = access(&made);
        let rules = access.rules();
        let enforced = |rule: &Rule, says: RuleEffect| rule.says == says && rule.mode == Mode::Enforce;
        let mut pairs = Vec::new();
        for (n, allow) in rules.iter().enumerate().filter(|(_, rule)| enforced(rule, RuleEffect::Allow)) {
            let voids = |forbid: &Rule| {
                enforced(forbid, RuleEffect::Forbid) && forbid.when.is_none() && forbid.covers(allow)
            };
            pairs.extend(rules.iter().position(voids).map(|m| (n, m)));
        }
        prop_assert_eq!(access.void(), pairs);
    }
}

#[test]
fn few_of_many_rules_are_looked_at() {
    let many = |who: fn(usize) -> PrincipalSelector, tool: fn(usize) -> String| {
        let made: Vec<Made> = (0..10_000)
            .map(|n| {
                let tools = vec![Pattern::new(&tool(n))];
                let none = Vec::new;
                let things = [tools, none(), none(), none(), none()];
                (RuleEffect::Allow, Mode::Enforce, false, vec![who(n)], things, "*", None)
            })
            .collect();
        access(&made)
    };
    let group = |n: usize| PrincipalSelector::Group(GroupName::parse(&format!("g{n}")).unwrap());
    let caller = Principal::new(
        PrincipalId::parse("ana").unwrap(),
        BTreeSet::from([GroupName::parse("g77").unwrap()]),
    );
    let server = ServerName::parse("files").unwrap();
    let subject = AccessRequest {
        principal: &caller,
        server: &server,
        kind: ItemKind::Tool,
        name: "tool_77",
        arguments: KnownArguments::Unknown,
        known: None,
        flow: None,
    };
    for access in [
        many(group, |_| "*".to_owned()),
        many(|_| PrincipalSelector::Anyone, |n| format!("tool_{n}")),
        many(|_| PrincipalSelector::Anyone, |n| format!("tool_{n}*")),
    ] {
        let looked = access.candidates(subject);
        assert!(looked.contains(&77) && looked.len() <= 2, "{looked:?}");
    }
}

#[test]
fn a_method_that_no_rule_of_the_caller_names_is_not_granted_as_a_method() {
    let none = Vec::new;
    let methods = |pattern: &str| [none(), none(), none(), none(), vec![Pattern::new(pattern)]];
    let dev = PrincipalSelector::Group(GroupName::parse("dev").unwrap());
    let made: Vec<Made> = vec![
        (RuleEffect::Allow, Mode::Enforce, false, vec![dev.clone()], methods("x/*"), "*", None),
        (RuleEffect::Forbid, Mode::Enforce, false, vec![dev.clone()], methods("x/no"), "*", None),
        (
            RuleEffect::Allow,
            Mode::Enforce,
            false,
            vec![dev],
            methods("x/if"),
            "*",
            Some("principal.id == 'bob'"),
        ),
        (
            RuleEffect::Allow,
            Mode::Audit,
            false,
            vec![PrincipalSelector::Anyone],
            methods("y/try"),
            "*",
            None,
        ),
    ];
    let (access, server) = (access(&made), ServerName::parse("files").unwrap());
    let reason = |principal: &Principal, kind, name| {
        let arguments = KnownArguments::Unknown;
        let subject = AccessRequest {
            principal,
            server: &server,
            kind,
            name,
            arguments,
            known: None,
            flow: None,
        };
        match access.decide(subject).decision.effect {
            Effect::Allow(_) => "allowed",
            Effect::Deny(denial) => denial.reason.code(),
        }
    };
    let callers = callers();
    let (ana, eve) = (&callers[0], &callers[1]);
    for (who, kind, name, code) in [
        (ana, ItemKind::Method, "x/yes", "allowed"),
        (ana, ItemKind::Method, "x/no", "forbidden"),
        (ana, ItemKind::Method, "z/any", "method-not-granted"),
        (eve, ItemKind::Method, "x/yes", "method-not-granted"),
        (eve, ItemKind::Method, "y/try", "not-granted"),
        (eve, ItemKind::Tool, "x/yes", "not-granted"),
    ] {
        assert_eq!(reason(who, kind, name), code, "{name}");
    }
}
