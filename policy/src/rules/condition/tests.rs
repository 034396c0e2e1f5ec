use std::collections::BTreeSet;

use bytes::Bytes;
use json::{Document, JsonBounds};
use policy_core::base::work::{USUAL_MOST, WorkBudget};
use policy_core::subject::name::{GroupName, PrincipalId, ServerName};
use policy_core::subject::principal::Principal;

use super::{
    AccessRequest, Condition, ConditionError, ConditionOutcome, EvaluationError, KnownArguments,
};
use crate::definition::offer::ItemKind;

fn evaluate(expression: &str, arguments: Option<&str>) -> Option<ConditionOutcome> {
    within(expression, arguments, &WorkBudget::unlimited())
}

fn within(
    expression: &str,
    arguments: Option<&str>,
    budget: &WorkBudget,
) -> Option<ConditionOutcome> {
    tried(expression, arguments, budget).ok()
}

fn tried(
    expression: &str,
    arguments: Option<&str>,
    budget: &WorkBudget,
) -> Result<ConditionOutcome, EvaluationError> {
    let condition = Condition::compile(expression).unwrap();
    let principal = Principal::new(
        PrincipalId::parse("ana").unwrap(),
        BTreeSet::from([GroupName::parse("dev").unwrap()]),
    );
    let server = ServerName::parse("files").unwrap();
    let text = Bytes::from(arguments.unwrap_or("null").to_owned());
    let document = Document::parse(text, &JsonBounds::MESSAGE).unwrap();
    let arguments = match arguments {
        Some(_) => KnownArguments::Given(document.root(), budget),
        None => KnownArguments::Unknown,
    };
    condition.evaluate(AccessRequest {
        principal: &principal,
        server: &server,
        kind: ItemKind::Tool,
        name: "read",
        arguments,
        known: None,
        flow: None,
    })
}

#[test]
fn it_reads_principal_server_tool_and_arguments() {
    let given = Some(r#"{"path":"/data/x","n":3,"tags":["a","b"]}"#);
    for (expression, expected) in [
        ("principal.id == 'ana' && 'dev' in principal.groups", Some(ConditionOutcome::Holds)),
        ("server.name == 'files' && tool.name == 'read'", Some(ConditionOutcome::Holds)),
        ("arguments.path.startsWith('/data/')", Some(ConditionOutcome::Holds)),
        ("arguments.path.matches('^/etc')", Some(ConditionOutcome::Fails)),
        ("arguments.n > 2 && arguments.n < 4.5", Some(ConditionOutcome::Holds)),
        ("arguments.tags.all(tag, tag in ['a', 'b'])", Some(ConditionOutcome::Holds)),
        ("has(arguments.missing)", Some(ConditionOutcome::Fails)),
    ] {
        assert_eq!(evaluate(expression, given), expected, "{expression}");
    }
}

#[test]
fn another_spelling_of_a_member_that_is_read_gives_no_answer_wherever_it_lies() {
    let holds = |expression: &str, given: &str| evaluate(expression, Some(given));
    for expression in [
        "arguments.file_path == 'a'",
        "arguments['file_path'] == 'a'",
        "arguments.files[0].file_path == 'a'",
        "arguments.files.exists(f, f.file_path == 'a')",
        "arguments.files.all(f, f['file_path'] == 'a')",
        "arguments.files.filter(f, f.file_path == 'a').size() > 0",
        "arguments.files.filter(f, true)[0].file_path == 'a'",
        "arguments.by[arguments.key].file_path == 'a'",
        "arguments.nested.exists(f, f.inner[0].file_path == 'a')",
        "arguments.nested.map(f, f.inner[0]).exists(i, i.file_path == 'a')",
        "arguments.nested.map(f, f.inner).map(i, i[0])[0].file_path == 'a'",
    ] {
        let given = |other: &str| {
            let own = format!(r#"{{"file_path":"a"{other}}}"#);
            format!(
                r#"{{"file_path":"a","key":"k","files":[{own}],"by":{{"k":{own}}},"nested":[{{"inner":[{own}]}}]{other}}}"#
            )
        };
        assert_eq!(holds(expression, &given("")), Some(ConditionOutcome::Holds), "{expression}");
        let unlike = given(r#","path":"b""#);
        assert_eq!(holds(expression, &unlike), Some(ConditionOutcome::Holds), "{expression}");
        for other in ["filePath", "File_Path", "file-path"] {
            let text = given(&format!(r#","{other}":"b""#));
            assert_eq!(holds(expression, &text), None, "{expression} {text}");
        }
    }
    // What is not read may have any name.
    let given = r#"{"files":[{"file_path":"a","userId":1,"user_id":2}]}"#;
    let expression = "arguments.files.exists(f, f.file_path == 'a')";
    assert_eq!(holds(expression, given), Some(ConditionOutcome::Holds));
}

#[test]
fn an_expression_that_cannot_be_evaluated_is_an_error_and_no_answer() {
    let given = Some(r#"{"path":7}"#);
    for expression in ["arguments.missing == 1", "arguments.path.startsWith('/')", "arguments.path"]
    {
        assert_eq!(evaluate(expression, given), None, "{expression}");
    }
}

#[test]
fn it_is_said_why_an_expression_has_no_value() {
    let given = Some(r#"{"path":7}"#);
    for (expression, why) in [
        ("arguments.missing == 1", "there is no `missing`; write `has(...)` before it"),
        ("arguments.path", "its value is neither true nor false"),
    ] {
        let error = tried(expression, given, &WorkBudget::unlimited()).unwrap_err();
        assert_eq!(error.to_string(), why, "{expression}");
    }
}

#[test]
fn a_missing_member_is_on_record_by_the_name_that_the_expression_writes() {
    let given = Some(r#"{"key":"chosen by a caller"}"#);
    for (expression, missing) in [
        ("arguments.owner == 1", Some("owner")),
        ("arguments['owner'] == 1", Some("owner")),
        ("arguments.key == 'x' || arguments.a.b == 1", Some("a")),
        // The caller chooses this name.
        ("arguments[arguments.key] == 1", None),
        ("arguments.key", None),
    ] {
        let error = tried(expression, given, &WorkBudget::unlimited()).unwrap_err();
        let fault = Condition::compile(expression).unwrap().fault(&error);
        assert_eq!(fault.missing.as_deref(), missing, "{expression}");
    }
}

#[test]
fn arguments_that_are_not_known_yet_are_not_guessed() {
    assert_eq!(evaluate("arguments.n > 2", None), Some(ConditionOutcome::Depends));
    assert_eq!(evaluate("principal.id == 'eve'", None), Some(ConditionOutcome::Fails));
}

#[test]
fn a_loop_over_more_than_its_bound_is_an_error() {
    let many = format!("{{\"list\":[{}1]}}", "1,".repeat(20_000));
    assert_eq!(evaluate("arguments.list.all(x, x == 1)", Some(&many)), None);
    assert_eq!(
        evaluate("size(arguments.list) == 20001", Some(&many)),
        Some(ConditionOutcome::Holds)
    );
}

#[test]
fn a_loop_over_what_it_may_be_given_fits_in_what_its_message_may_cost() {
    let rule = r#"arguments.to.all(t, t.matches(r"^[\w.+-]{1,64}@corp\.example$"))"#;
    let with =
        |last: &str| format!(r#"{{"to":[{}"{last}"]}}"#, r#""ana@corp.example","#.repeat(780));
    for (last, expected) in [
        ("bob@corp.example", Some(ConditionOutcome::Holds)),
        ("bob@else.example", Some(ConditionOutcome::Fails)),
    ] {
        let given = with(last);
        assert!((14_000..16_000).contains(&given.len()), "{}", given.len());
        let budget = WorkBudget::for_bytes(given.len(), USUAL_MOST);
        assert_eq!(within(rule, Some(&given), &budget), expected);
        assert!(!budget.is_exhausted());
    }
    // With an item in every second byte, the iterations exceed the budget of the message.
    let given = format!(r#"{{"to":[{}1]}}"#, "1,".repeat(7_500));
    let budget = WorkBudget::for_bytes(given.len(), USUAL_MOST);
    assert_eq!(within("arguments.to.all(n, n == 1)", Some(&given), &budget), None);
    assert!(budget.is_exhausted());
}

#[test]
fn a_pattern_that_is_too_large_does_not_compile() {
    let refused = Condition::compile(r#"arguments.a.matches(r"\w{1,5000}")"#).unwrap_err();
    assert!(matches!(refused, ConditionError::Regex { .. }), "{refused}");
    assert!(refused.to_string().contains("size limit"), "{refused}");
}

#[test]
fn what_is_read_and_matched_is_taken_from_the_budget() {
    let arguments = format!(r#"{{"path":"{}"}}"#, "x".repeat(100));
    let with = |limit, expression| within(expression, Some(&arguments), &WorkBudget::new(limit));
    // Reading costs 16 units a byte, and matching 64 units a byte of what is matched.
    let reads = "arguments.path.startsWith('x')";
    assert_eq!(with(1_000, reads), None);
    assert_eq!(with(4_000, reads), Some(ConditionOutcome::Holds));
    let matches = "arguments.path.matches('^x+$')";
    assert_eq!(with(4_000, matches), None);
    assert_eq!(with(20_000, matches), Some(ConditionOutcome::Holds));
}

#[test]
fn what_could_cost_too_much_does_not_compile() {
    let compile = |text: &str| Condition::compile(text).unwrap_err();
    assert_eq!(
        compile("arguments.a.all(x, arguments.b.exists(y, x == y))"),
        ConditionError::NestedLoop
    );
    assert_eq!(compile("arguments.a.matches(arguments.b)"), ConditionError::Pattern);
    assert_eq!(compile(&"1 == 1 && ".repeat(400)), ConditionError::Length(4000));
    assert_eq!(compile("request.path == 'x'"), ConditionError::Variable("request".to_owned()));
    assert_eq!(compile("now() > 1"), ConditionError::Function("now".to_owned()));
    assert!(matches!(compile("arguments."), ConditionError::Syntax(_)));
    assert!(matches!(compile("(("), ConditionError::Syntax(_)));
    for deep in ["(", "[", "!", "-", "1 ? 1 : "] {
        assert_eq!(compile(&deep.repeat(200)), ConditionError::Nesting);
    }
    // A bracket in a string closes nothing.
    assert_eq!(compile(&r#"(")" + "#.repeat(200)), ConditionError::Nesting);
    Condition::compile("1 == 1 && ".repeat(200).trim_end_matches("&& ")).unwrap();
    Condition::compile("arguments.a.filter(x, x > 1).all(y, y < 9)").unwrap();
}

#[test]
fn what_is_evidently_neither_true_nor_false_does_not_compile() {
    for text in [
        "size(arguments.path)",
        "'x'",
        "1",
        "null",
        "arguments.path + 1",
        "-1",
        "[arguments.path]",
        "{'a': true}",
        "arguments",
        "principal.id",
        "principal.groups",
        "tool.name",
        "risk.effect",
        "string(arguments.path)",
        "arguments.list.filter(x, x > 1)",
        "arguments.list.map(x, x > 1)",
        "arguments.a ? 1 : 2",
    ] {
        let error = Condition::compile(text).unwrap_err();
        assert!(matches!(error, ConditionError::NotBoolean(_)), "{text}: {error}");
    }
    for text in [
        "true",
        "has(arguments.a)",
        "!arguments.a",
        "arguments.a == 1",
        "arguments.a in ['x']",
        "arguments.list.all(x, x > 1)",
        "arguments.list.exists(x, x > 1)",
        "arguments.list.exists_one(x, x > 1)",
        "arguments.a.startsWith('x')",
        "risk.registered",
        "arguments.a > 1 ? true : false",
    ] {
        assert!(Condition::compile(text).unwrap().is_surely_boolean(), "{text}");
    }
    for text in ["arguments.a", "arguments['a']", "arguments.a.b", "arguments.a > 1 ? true : 1"] {
        assert!(!Condition::compile(text).unwrap().is_surely_boolean(), "{text}");
    }
}
