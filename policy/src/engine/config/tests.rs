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
