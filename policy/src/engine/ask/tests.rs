use std::borrow::Cow;

use json::{Document, JsonBounds, Value};
use policy_core::base::work::{USUAL_MOST, WorkBudget};
use policy_core::subject::pattern::Pattern;

use super::{
    AT_ONCE, FormPolicy, ModelHintAction, RefusalReason, RootsPolicy, SamplingExcessAction,
    SamplingPolicy, ServerRequestPolicy, StandingGrantAction, UrlPolicy,
};
use crate::definition::offer::ReadOnlyHint;

fn everything(over: SamplingExcessAction) -> ServerRequestPolicy {
    ServerRequestPolicy {
        forms: Some(FormPolicy::default()),
        urls: Some(UrlPolicy {
            hosts: vec![Pattern::new("login.example.com")],
            standing: StandingGrantAction::Refuse,
        }),
        sampling: Some(SamplingPolicy {
            max_tokens: 100,
            messages: 2,
            size: 500,
            answer_size: 500,
            over,
            hints: ModelHintAction::Drop,
        }),
        roots: Some(RootsPolicy::default()),
        rate: None,
        named: None,
    }
}

/// The code of the refusal, `cut` if the request is edited, or an empty text if it passes.
fn decided(asks: &ServerRequestPolicy, method: &str, params: &str) -> &'static str {
    decided_for(asks, ReadOnlyHint::Absent, method, params)
}

/// Like [`decided`], during a call of a tool with this read-only hint.
fn decided_for(
    asks: &ServerRequestPolicy,
    hint: ReadOnlyHint,
    method: &str,
    params: &str,
) -> &'static str {
    let document = Document::parse(params.to_owned().into(), &JsonBounds::ANSWER).unwrap();
    let budget = WorkBudget::for_bytes(params.len(), USUAL_MOST);
    match asks.decide(method, Some(document.root()), hint, &budget) {
        Ok(edits) if edits.is_empty() => "",
        Ok(_) => "cut",
        Err(refusal) => refusal.reason.code(),
    }
}

#[test]
fn nothing_may_be_asked_unless_it_is_said() {
    for method in ["elicitation/create", "sampling/createMessage", "roots/list", "vendor/ask"] {
        assert_eq!(
            decided(&ServerRequestPolicy::default(), method, "{}"),
            "server-request-not-configured",
            "{method}"
        );
    }
    let all = everything(SamplingExcessAction::Refuse);
    let roots = all.decide("roots/list", None, ReadOnlyHint::Absent, &WorkBudget::unlimited());
    assert_eq!(roots, Ok(Vec::new()));
    assert_eq!(decided(&all, "vendor/ask", "{}"), "server-request-not-configured");
    let only = ServerRequestPolicy {
        forms: Some(FormPolicy::default()),
        ..ServerRequestPolicy::default()
    };
    let url = r#"{"mode":"url","url":"https://login.example.com/"}"#;
    assert_eq!(decided(&only, "elicitation/create", url), "server-request-not-configured");
    assert_eq!(decided(&all, "elicitation/create", url), "");
}

#[test]
fn what_some_clients_read_otherwise_is_not_asked() {
    let all = everything(SamplingExcessAction::Refuse);
    for params in [
        "[]",
        r#"{"Mode":"url","url":"javascript:x"}"#,
        r#"{"mode":"URL"}"#,
        r#"{"mode":1}"#,
        r#"{"mode":"url"}"#,
        r#"{"url":"javascript:x","requestedSchema":{}}"#,
    ] {
        assert_eq!(
            decided(&all, "elicitation/create", params),
            "server-request-malformed",
            "{params}"
        );
    }
    assert_eq!(decided(&all, "elicitation/create", r#"{"message":"sure?"}"#), "");
    // These are well-formed, but clients that ignore case read further members.
    for (method, params) in [
        ("elicitation/create", r#"{"message":"sure?","URL":"javascript:x"}"#),
        ("elicitation/create", r#"{"message":"sure?","Message":"Enter your password"}"#),
        ("sampling/createMessage", r#"{"messages":[],"maxTokens":1,"MaxTokens":100000}"#),
        ("sampling/createMessage", r#"{"messages":[],"maxTokens":1,"max_tokens":100000}"#),
        ("sampling/createMessage", r#"{"messages":[],"maxTokens":1,"max-tokens":100000}"#),
        ("sampling/createMessage", "{\"messages\":[],\"maxTokens\":1,\"m\u{430}xTokens\":100000}"),
        ("elicitation/create", r#"{"message":"sure?","requested_schema":{}}"#),
    ] {
        assert_eq!(decided(&all, method, params), "server-request-malformed", "{params}");
    }
}

#[test]
fn an_elicitation_has_the_members_of_its_kind_alone() {
    let all = everything(SamplingExcessAction::Refuse);
    let url = "https://login.example.com/";
    let schema = r#"{"type":"object","properties":{"n":{"type":"string"}}}"#;
    let page = |more: &str| format!(r#"{{"mode":"url","message":"x","url":"{url}"{more}}}"#);
    let form = |more: &str| format!(r#"{{"message":"x","requestedSchema":{schema}{more}}}"#);
    for params in [
        page(&format!(r#","requestedSchema":{schema}"#)),
        page(r#","requestedSchema":null"#),
        page(r#","elicitationId":{}"#),
        page(r#","task":"x""#),
        page(r#","_meta":"x""#),
        r#"{"mode":"url","message":["x"],"url":"https://login.example.com/"}"#.to_owned(),
        form(&format!(r#","url":"{url}""#)),
        form(r#","url":null"#),
        form(r#","elicitationId":"e""#),
    ] {
        assert_eq!(
            decided(&all, "elicitation/create", &params),
            "server-request-malformed",
            "{params}"
        );
    }
    for params in [
        page(""),
        page(r#","elicitationId":"e","task":{"ttl":5},"_meta":{"progressToken":1}"#),
        page(r#","x-more":1"#),
        form(""),
        form(r#","mode":"form","x-more":1,"task":null,"_meta":null"#),
    ] {
        assert_eq!(decided(&all, "elicitation/create", &params), "", "{params}");
    }
}

#[test]
fn a_request_to_the_model_is_held_to_its_limits() {
    let (refuses, cuts) =
        (everything(SamplingExcessAction::Refuse), everything(SamplingExcessAction::Cut));
    let long = format!(r#"{{"messages":[],"maxTokens":1,"x":"{}"}}"#, "a".repeat(500));
    for (params, refused, cut) in [
        (r#"{"messages":[],"maxTokens":100}"#, "", ""),
        (r#"{"messages":[],"maxTokens":100,"includeContext":"none"}"#, "", ""),
        (r#"{"messages":[],"maxTokens":101}"#, "server-request-size", "cut"),
        (
            r#"{"messages":[],"maxTokens":1,"includeContext":"allServers"}"#,
            "server-request-context",
            "cut",
        ),
        (
            r#"{"messages":[],"maxTokens":1,"includeContext":"thisServer"}"#,
            "server-request-context",
            "cut",
        ),
        (r#"{"messages":[{},{},{}],"maxTokens":1}"#, "server-request-size", "server-request-size"),
        (&long, "server-request-size", "server-request-size"),
        (r#"{"messages":[]}"#, "server-request-malformed", "server-request-malformed"),
        (
            r#"{"messages":[],"maxTokens":-1}"#,
            "server-request-malformed",
            "server-request-malformed",
        ),
        (
            r#"{"messages":[],"maxTokens":1e9}"#,
            "server-request-malformed",
            "server-request-malformed",
        ),
        (
            r#"{"messages":{},"maxTokens":1}"#,
            "server-request-malformed",
            "server-request-malformed",
        ),
        (r#"{"messages":[{"role":"user"},{"role":"assistant"}],"maxTokens":1}"#, "", ""),
        (
            r#"{"messages":[{"role":"system"}],"maxTokens":1}"#,
            "server-request-malformed",
            "server-request-malformed",
        ),
        (
            r#"{"messages":[{"role":"User"}],"maxTokens":1}"#,
            "server-request-malformed",
            "server-request-malformed",
        ),
        (
            r#"{"messages":[{}],"maxTokens":1}"#,
            "server-request-malformed",
            "server-request-malformed",
        ),
    ] {
        assert_eq!(decided(&refuses, "sampling/createMessage", params), refused, "{params}");
        assert_eq!(decided(&cuts, "sampling/createMessage", params), cut, "{params}");
    }
}

#[test]
fn a_request_to_the_model_has_members_of_their_types() {
    let all = everything(SamplingExcessAction::Refuse);
    let decide = |more: &str| {
        let params = format!(r#"{{"messages":[],"maxTokens":1,{more}}}"#);
        decided(&all, "sampling/createMessage", &params)
    };
    for more in [
        r#""temperature":"x""#,
        r#""temperature":true"#,
        r#""systemPrompt":["be"]"#,
        r#""stopSequences":"end""#,
        r#""modelPreferences":"fast""#,
        r#""metadata":[]"#,
        r#""tools":{}"#,
        r#""toolChoice":"auto""#,
    ] {
        assert_eq!(decide(more), "server-request-malformed", "{more}");
    }
    for more in [
        r#""temperature":0.5"#,
        r#""temperature":null"#,
        r#""systemPrompt":"be""#,
        r#""stopSequences":["end"]"#,
        r#""modelPreferences":{"hints":[],"costPriority":0.5}"#,
        r#""metadata":{"max_tokens":9}"#,
        r#""_meta":{},"x-more":1"#,
    ] {
        assert_eq!(decide(more), "", "{more}");
    }
    assert_eq!(decide(r#""modelPreferences":{"hints":[{"name":"m"}]}"#), "cut");
}

#[test]
fn a_form_is_an_object_of_plain_fields() {
    let all = everything(SamplingExcessAction::Refuse);
    let decide = |schema: &str| {
        let params = format!(r#"{{"message":"sure?","requestedSchema":{schema}}}"#);
        decided(&all, "elicitation/create", &params)
    };
    let field =
        |field: &str| decide(&format!(r#"{{"type":"object","properties":{{"a":{field}}}}}"#));
    for schema in [
        r#""x""#,
        "[]",
        "{}",
        r#"{"type":"string"}"#,
        r#"{"type":["object"]}"#,
        r#"{"properties":{}}"#,
        r#"{"type":"object","properties":[]}"#,
        r#"{"type":"object","Properties":{}}"#,
        r#"{"type":"object","required":"a"}"#,
        r##"{"type":"object","$ref":"#/x"}"##,
        r#"{"type":"object","patternProperties":{"password":{"type":"string"}}}"#,
        r#"{"type":"object","allOf":[{"properties":{"a":{}}}]}"#,
        r#"{"type":"object","anyOf":[]}"#,
        r#"{"type":"object","additionalProperties":{"type":"string"}}"#,
    ] {
        assert_eq!(decide(schema), "server-request-malformed", "{schema}");
    }
    for schema in [
        r##"{"$ref":"#/$defs/x"}"##,
        r#"{"type":"object","properties":{"b":{"type":"string"}}}"#,
        r#"{"properties":{"b":{"type":"string"}}}"#,
        r#"{"type":["string"]}"#,
        r#"{"type":"password"}"#,
        r#"{"type":"array","items":[{"type":"string"}]}"#,
        r#"{"type":"array","items":{"type":"object"}}"#,
        r##"{"anyOf":[{"type":"string"},{"$ref":"#/x"}]}"##,
        r#"{"type":"string","if":{}}"#,
        r#"{"type":"string","pattern":"(?=a)"}"#,
    ] {
        assert_eq!(field(schema), "server-request-malformed", "{schema}");
    }
    for schema in [
        r#"{"type":"string","format":"email","minLength":1}"#,
        r#"{"type":"integer","minimum":0}"#,
        r#"{"type":"boolean","default":false}"#,
        r#"{"type":"string","enum":["a","b"],"enumNames":["A","B"]}"#,
        r#"{"type":"string","oneOf":[{"const":"a","title":"A"}]}"#,
        r#"{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]},"minItems":1}"#,
        r#"{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}"#,
    ] {
        assert_eq!(field(schema), "", "{schema}");
    }
    let more = r#"{"$schema":"x","type":"object","properties":{},"required":[],"additionalProperties":false,"title":"t"}"#;
    assert_eq!(decide(more), "");
}

#[test]
fn a_grant_for_everything_or_for_good_is_not_asked_for_unless_it_is_said() {
    let refuses = everything(SamplingExcessAction::Refuse);
    let hosts = vec![Pattern::new("login.example.com")];
    let allows = ServerRequestPolicy {
        forms: Some(FormPolicy { standing: StandingGrantAction::Allow, ..FormPolicy::default() }),
        urls: Some(UrlPolicy { hosts, standing: StandingGrantAction::Allow }),
        ..ServerRequestPolicy::default()
    };
    let page = |query: &str, message: &str| {
        format!(
            r#"{{"mode":"url","message":"{message}","url":"https://login.example.com/auth?{query}"}}"#
        )
    };
    for params in [
        r#"{"message":"Always allow this?"}"#.to_owned(),
        r#"{"message":"Sure?","requestedSchema":{"type":"object","properties":{"dontAskAgain":{"type":"boolean"}}}}"#
            .to_owned(),
        page("scope=offline_access", ""),
        page("scope=files:read%20Mail.Read.All", ""),
        page("scope=https%3A%2F%2Fgraph.microsoft.com%2F.default", ""),
        page("access_type=offline", ""),
        page("x=1", "Sign in and remember this decision"),
    ] {
        let refused = decided(&refuses, "elicitation/create", &params);
        assert_eq!(refused, "server-request-standing-grant", "{params}");
        assert_eq!(decided(&allows, "elicitation/create", &params), "", "{params}");
    }
    for params in [
        r#"{"message":"Allow this call?"}"#.to_owned(),
        page("scope=files:read+files:write", "Sign in"),
        page("access_type=online", "Sign in"),
    ] {
        assert_eq!(decided(&refuses, "elicitation/create", &params), "", "{params}");
    }
}

#[test]
fn a_tool_that_says_it_only_reads_gets_no_page_for_scopes_that_write() {
    let all = everything(SamplingExcessAction::Refuse);
    let page = |scope: &str| {
        format!(r#"{{"mode":"url","url":"https://login.example.com/auth?scope={scope}"}}"#)
    };
    for (scope, refused) in [
        ("files:write", "server-request-write-scope"),
        ("files:read+repo", "server-request-write-scope"),
        ("admin%3Aorg", "server-request-write-scope"),
        ("Mail.Send", "server-request-write-scope"),
        ("files:read", ""),
        ("openid+profile", ""),
    ] {
        let decided = |hint| decided_for(&all, hint, "elicitation/create", &page(scope));
        assert_eq!(decided(ReadOnlyHint::Claimed), refused, "{scope}");
        assert_eq!(decided(ReadOnlyHint::Absent), "", "{scope}");
    }
}

#[test]
fn every_reason_has_its_code() {
    let mut codes = RefusalReason::ALL.map(RefusalReason::code).to_vec();
    codes.dedup();
    assert_eq!(codes, RefusalReason::CODES);
}

#[test]
fn what_is_not_configured_is_named_with_its_setting() {
    let none = ServerRequestPolicy::default();
    for (method, params, setting) in [
        ("elicitation/create", "{}", "`serverRequests: {formElicitation: {}}`"),
        ("elicitation/create", r#"{"mode":"form"}"#, "`serverRequests: {formElicitation: {}}`"),
        (
            "elicitation/create",
            r#"{"mode":"url"}"#,
            "`serverRequests: {urlElicitation: {hosts: [...]}}`",
        ),
        ("sampling/createMessage", "{}", "`serverRequests: {sampling: {...}}`"),
        ("roots/list", "{}", "`serverRequests: {roots: {}}`"),
        ("vendor/ask", "{}", "no request of this kind"),
    ] {
        let document = Document::parse(params.to_owned().into(), &JsonBounds::ANSWER).unwrap();
        let budget = WorkBudget::unlimited();
        let decided = none.decide(method, Some(document.root()), ReadOnlyHint::Absent, &budget);
        let note = decided.unwrap_err().reason.note();
        assert!(note.contains(setting), "{method} {params}: {note}");
        assert!(RefusalReason::is_passed_on(&format!("MCP error -31403: {note}")), "{note}");
    }
    assert!(!RefusalReason::is_passed_on("denied by rule `x`"));
}

#[test]
fn what_is_asked_at_once_has_a_bound_and_one_budget() {
    let all = everything(SamplingExcessAction::Refuse);
    let form = r#"{"message":"sure?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}"#;
    let document = Document::parse(form.to_owned().into(), &JsonBounds::ANSWER).unwrap();
    let ask = |count: usize, budget: &WorkBudget| {
        let one = || (Cow::Borrowed("elicitation/create"), Some(document.root()));
        let asked = std::iter::repeat_with(one).take(count);
        let decided = all.decide_all(asked, ReadOnlyHint::Absent, budget);
        decided.map(|edits| edits.len()).map_err(|refusal| refusal.reason)
    };
    let enough = WorkBudget::for_bytes(AT_ONCE * form.len(), USUAL_MOST);
    assert_eq!(ask(AT_ONCE, &enough), Ok(AT_ONCE));
    assert_eq!(ask(AT_ONCE + 1, &WorkBudget::unlimited()), Err(RefusalReason::Count));
    assert_eq!(ask(1, &WorkBudget::new(24_000)), Ok(1));
    assert_eq!(ask(AT_ONCE, &WorkBudget::new(24_000)), Err(RefusalReason::Unjudged));
}

/// The judgement on the params of an elicitation request, which must not exhaust the budget for their length.
pub(super) fn judged(
    params: &serde_json::Value,
    judge: fn(Value<'_>, &WorkBudget) -> bool,
) -> bool {
    let text = params.to_string();
    let budget = WorkBudget::for_bytes(text.len(), USUAL_MOST);
    let document = Document::parse(text.into(), &JsonBounds::ANSWER).unwrap();
    let judged = judge(document.root(), &budget);
    assert!(!budget.is_exhausted(), "{} units", budget.spent());
    judged
}

/// The params of an elicitation request whose form has one field.
pub(super) fn one_field(name: &str, field: &serde_json::Value) -> serde_json::Value {
    let schema = serde_json::json!({ "type": "object", "properties": { name: field } });
    serde_json::json!({ "message": "Please fill this in.", "requestedSchema": schema })
}
