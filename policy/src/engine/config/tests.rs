use std::collections::BTreeSet;

use policy_core::subject::name::{GroupName, PrincipalId, ServerName};
use policy_core::subject::principal::Principal;

use super::{KnownNames, PolicyProblem, RawPolicy, compile};

fn problems(policy: serde_json::Value) -> Vec<String> {
    let raw: RawPolicy = serde_json::from_value(policy).unwrap();
    let ana = Principal::new(
        PrincipalId::parse("ana").unwrap(),
        BTreeSet::from([GroupName::parse("dev").unwrap()]),
    );
    let servers = [ServerName::parse("files").unwrap(), ServerName::parse("time").unwrap()];
    let known = KnownNames { servers: &servers, unnamed: false, principals: &[ana], others: false };
    let line =
        |problem: PolicyProblem| format!("{}: {}; {}", problem.at, problem.message, problem.help);
    compile(raw, known).err().unwrap_or_default().into_iter().map(line).collect()
}

#[test]
fn every_problem_is_reported_with_its_place() {
    let found = problems(serde_json::json!({ "rules": [
        { "id": "a b", "effect": "allow", "principals": ["group:dev"], "servers": ["files"], "tools": ["x"] },
        { "id": "r", "effect": "allow", "principals": [], "servers": [], "tools": [] },
        { "id": "r", "effect": "allow", "principals": ["dev", "group:ops"], "servers": ["fils"], "tools": ["x"],
          "when": "arguments.", "disclose": true },
    ]}));
    insta_like(
        &found,
        &[
            "/rules/0/id: `a b` has ` ` at byte 1; use letters, digits, `_`, `-` and `.`; rename the rule",
            "/rules/1/principals: this rule can never apply; name whom the rule is for, or remove it: an empty list means nobody",
            "/rules/1/servers: this rule can never apply; name the servers, or remove the rule: an empty list means none",
            "/rules/1/tools: this rule can never apply; name `tools`, `prompts`, `resources`, `skills` or `methods`, or remove the rule: nothing named means nothing",
            "/rules/2/id: rule `r` is defined twice; give each rule its own id",
            "/rules/2/principals/0: `dev` names nobody; write `*`, `group:NAME`, `role:NAME`, `client:ID` or `principal:ID`",
            "/rules/2/principals/1: no caller can be `group:ops`; define it under `identity`, or correct the name",
            "/rules/2/servers/0: there is no server `fils`; the servers are: files, time",
            "/rules/2/when: the expression is not CEL",
            "/rules/2/disclose: only a `forbid` has a denial to disclose; remove `disclose`, or set it on the rule that forbids",
        ],
    );
}

fn insta_like(found: &[String], expected: &[&str]) {
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\nis not\n{expected}");
    }
}

#[test]
fn an_allow_that_a_forbid_makes_void_is_reported() {
    let rules = |forbidden: &str, when: Option<&str>| {
        problems(serde_json::json!({ "rules": [
            { "id": "open", "effect": "allow", "principals": ["group:dev"], "servers": ["files"], "tools": ["read_a"] },
            { "id": "shut", "effect": "forbid", "principals": ["*"], "servers": ["*"], "tools": [forbidden], "when": when },
        ]}))
    };
    assert_eq!(
        rules("read_*", None),
        ["/rules/0/id: rule `open` can never apply: `shut` forbids all of it; \
          remove one of the two, or narrow the `forbid`"]
    );
    assert_eq!(rules("write_*", None), [""; 0]);
    assert_eq!(rules("read_*", Some("principal.id == 'eve'")), [""; 0]);
}

/// The places of all problems in a section beside a rule that is good.
fn places(sections: serde_json::Value) -> Vec<String> {
    let found = problems(sections);
    found.iter().map(|line| line.split(": ").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_problem_of_a_rule_is_reported() {
    let rule = |more: serde_json::Value| {
        let mut rule = serde_json::json!({ "id": "r", "effect": "allow",
            "principals": ["group:dev"], "servers": ["files"], "tools": ["x"] });
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        problems(serde_json::json!({ "rules": [rule] }))
    };
    for (more, expected) in [
        (
            serde_json::json!({ "effect": "forbid", "scopes": ["a"] }),
            "/rules/0/scopes: only an `allow` can ask for `scopes`",
        ),
        (
            serde_json::json!({ "effect": "forbid", "proof": "any" }),
            "/rules/0/proof: only an `allow` can ask for `proof`",
        ),
        (
            serde_json::json!({ "effect": "forbid", "requireApproval": true }),
            "/rules/0/requireApproval: only an `allow` can ask for an approval",
        ),
        (serde_json::json!({ "scopes": ["a b"] }), "/rules/0/scopes/0: the scope `a b`"),
        (serde_json::json!({ "when": "size(arguments.n)" }), "/rules/0/when: the expression"),
        (serde_json::json!({ "when": "nobody.n == 1" }), "/rules/0/when: the expression"),
        (
            serde_json::json!({ "resources": ["skill://a/SKILL.md"] }),
            "/rules/0/resources/0: `skill://a/SKILL.md` can never match",
        ),
        (
            serde_json::json!({ "resources": ["file:///a/../b"] }),
            "/rules/0/resources/0: `file:///a/../b` can never match: the URI has a segment of dots",
        ),
        (serde_json::json!({ "skills": ["skill://a//b"] }), "/rules/0/skills/0: `skill://a//b`"),
        (serde_json::json!({ "principals": ["role:"] }), "/rules/0/principals/0: `role:`"),
        (
            serde_json::json!({ "principals": ["client:nobody"] }),
            "/rules/0/principals/0: no caller can be `client:nobody`",
        ),
        (
            serde_json::json!({ "principals": ["principal:bob"] }),
            "/rules/0/principals/0: no caller can be `principal:bob`",
        ),
    ] {
        insta_like(&rule(more), &[expected]);
    }
    assert_eq!(rule(serde_json::json!({ "principals": ["principal:ana", "*"] })), [""; 0]);
    assert!(super::selector("role:ops").is_ok() && super::selector("ops").is_err());
}

#[test]
fn every_problem_of_the_other_sections_is_reported() {
    let content = |more: serde_json::Value| {
        let mut entry = serde_json::json!({ "servers": ["files"] });
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        places(serde_json::json!({ "content": [entry] }))
    };
    let fine = serde_json::json!({ "linkHosts": ["*.example.com"], "mediaTypes": ["image/png"],
        "allowedValues": ["0123456789abcdef"], "size": { "maxBytes": 512 },
        "fields": [{ "label": "pay", "principals": ["group:dev"] }] });
    assert_eq!(content(fine), [""; 0]);
    assert_eq!(
        content(serde_json::json!({ "servers": ["other"], "allowUnknownServers": true })),
        [""; 0]
    );
    for (more, place) in [
        (serde_json::json!({ "servers": [] }), "/content/0/servers"),
        (serde_json::json!({ "servers": ["other"] }), "/content/0/servers/0"),
        (
            serde_json::json!({ "results": { "carriedData": "block" } }),
            "/content/0/results/carriedData",
        ),
        (
            serde_json::json!({ "arguments": { "secrets": "annotate" } }),
            "/content/0/arguments/secrets",
        ),
        (serde_json::json!({ "allowedValues": ["XYZ"] }), "/content/0/allowedValues/0"),
        (serde_json::json!({ "linkHosts": [] }), "/content/0/linkHosts"),
        (serde_json::json!({ "linkHosts": ["https://a.example"] }), "/content/0/linkHosts/0"),
        (serde_json::json!({ "mediaTypes": ["png"] }), "/content/0/mediaTypes/0"),
        (serde_json::json!({ "size": { "maxBytes": 511 } }), "/content/0/size/maxBytes"),
        (
            serde_json::json!({ "fields": [{ "label": "pay", "principals": [] }] }),
            "/content/0/fields/0/principals",
        ),
    ] {
        assert_eq!(content(more), [place]);
    }
    let limits = |more: serde_json::Value| {
        let mut limits =
            serde_json::json!({ "servers": ["files"], "tools": ["read"], "argument": "/a" });
        limits.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        places(serde_json::json!({ "constraints": [limits] }))
    };
    assert_eq!(limits(serde_json::json!({ "maxLength": 3 })), [""; 0]);
    for (more, place) in [
        (serde_json::json!({ "tools": [] , "maxLength": 3 }), "/constraints/0/tools"),
        (serde_json::json!({ "argument": "a" }), "/constraints/0/argument"),
        (serde_json::json!({ "type": "path" }), "/constraints/0/type"),
        (serde_json::json!({ "type": "url", "privateHosts": true }), "/constraints/0/privateHosts"),
        (serde_json::json!({ "pattern": "(" }), "/constraints/0/pattern"),
    ] {
        assert_eq!(limits(more), [place]);
    }
    let flow = |flow: serde_json::Value| places(serde_json::json!({ "flow": flow }));
    let value = |name: &str| serde_json::json!({ "name": name, "schema": { "type": "boolean" } });
    assert_eq!(flow(serde_json::json!({ "channel": [value("a"), value("b")] })), [""; 0]);
    let many: Vec<_> = (0..65).map(|n| value(&format!("v{n}"))).collect();
    for (section, place) in [
        (serde_json::json!({ "clauses": [] }), "/flow/clauses"),
        (serde_json::json!({ "sinks": [] }), "/flow/sinks"),
        (serde_json::json!({ "sinks": ["write", "none"] }), "/flow/sinks/1"),
        (serde_json::json!({ "labels": [{ "servers": ["files"] }] }), "/flow/labels/0"),
        (
            serde_json::json!({ "labels": [{ "servers": ["files"], "tools": [], "sink": "write" }] }),
            "/flow/labels/0/tools",
        ),
        (
            serde_json::json!({ "labels": [{ "servers": ["files"], "targets": ["a/b"] }] }),
            "/flow/labels/0/targets/0",
        ),
        (serde_json::json!({ "channel": [value("a"), value("a")] }), "/flow/channel/1/name"),
        (serde_json::json!({ "channel": [value("a b")] }), "/flow/channel/0/name"),
        (serde_json::json!({ "channel": many }), "/flow/channel"),
    ] {
        assert_eq!(flow(section), [place]);
    }
    for (sections, place) in [
        (serde_json::json!({ "definitions": { "toolNames": "strip" } }), "/definitions/toolNames"),
        (serde_json::json!({ "canaries": ["short"] }), "/canaries/0"),
        (
            serde_json::json!({ "shadowing": { "winner": "priority", "priority": ["fils"] } }),
            "/shadowing/priority/0",
        ),
        (serde_json::json!({ "shadowing": { "winner": "priority" } }), "/shadowing/priority"),
    ] {
        assert_eq!(places(sections), [place]);
    }
}
