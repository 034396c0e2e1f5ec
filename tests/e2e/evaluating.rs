//! `portcullis eval`: definitions are evaluated by examples before they are approved.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::eventually;
use e2e::gateway::{ANA, Config, Folder, binary, json_of, printed};
use e2e::server::Server;
use e2e::{ERAS, Era};
use serde_json::{Value, json};

/// The tools of a server for tickets.
fn tools() -> Vec<Value> {
    let id = json!({ "type": "string", "description": "The number of the ticket, such as T-17" });
    let schema = |properties: Value, required: Value| {
        json!({
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        })
    };
    let state = json!({ "type": "string", "enum": ["open", "closed"] });
    vec![
        json!({
            "name": "create_ticket",
            "description": "Create a new ticket with a title, to report a problem to the support team",
            "inputSchema": schema(json!({ "title": { "type": "string", "maxLength": 80 } }), json!(["title"])),
        }),
        json!({
            "name": "close_ticket",
            "description": "Close a ticket that is solved and does not need more work",
            "inputSchema": schema(json!({ "id": id }), json!(["id"])),
            "annotations": { "destructiveHint": true },
        }),
        json!({
            "name": "list_tickets",
            "description": "List the tickets of a project by their state, without their comments",
            "inputSchema": schema(json!({ "project": { "type": "string" }, "state": state }), json!(["project"])),
        }),
    ]
}

const EXAMPLES: [(&str, &str); 3] = [
    (
        "create_ticket",
        r#"{"query": "report a problem to the support team", "arguments": {"title": "No light"}, "forbiddenArguments": {"title": 7}}
{"id": "new", "query": "create a new ticket", "tools": ["create_ticket"], "forbiddenTools": ["close_ticket"]}
"#,
    ),
    (
        "close_ticket",
        r#"{"query": "close the solved ticket T-17", "arguments": {"id": "T-17"}}
"#,
    ),
    (
        "list_tickets",
        r#"{"query": "list tickets of the project by state", "arguments": {"project": "web", "state": "open"}}
"#,
    ),
];

/// A folder with these definitions and the examples.
fn folder(tools: &[Value]) -> Folder {
    let folder = Folder::new();
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        write(&folder, &format!("{name}.schema.json"), &tool.to_string());
    }
    for (name, lines) in EXAMPLES {
        write(&folder, &format!("{name}.examples.jsonl"), lines);
    }
    folder
}

fn write(folder: &Folder, name: &str, text: &str) {
    fs::write(folder.path().join(name), text).unwrap();
}

fn eval(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(binary()).arg("eval").arg(folder).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The value of a figure in the JSON of an evaluation.
fn figure(result: &Value, name: &str) -> f64 {
    let mut all = result["figures"].as_array().unwrap().iter();
    all.find(|one| one["figure"] == name).unwrap()["value"].as_f64().unwrap()
}

#[test]
fn a_folder_of_examples_is_evaluated_for_people_programs_and_ci() {
    let folder = folder(&tools());
    let output = eval(folder.path(), &[]);
    let human = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{human}{}", said(&output));
    for part in [
        "4 examples, 3 tools\n",
        "ok      top1",
        "4 of 4 (0.510 to 1.000); at least 0.6",
        "passed\n",
    ] {
        assert!(human.contains(part), "{part}: {human}");
    }
    let result = json_of(&eval(folder.path(), &["--format", "json"]));
    assert_eq!((&result["passed"], figure(&result, "top1")), (&json!(true), 1.0), "{result}");
    assert_eq!((figure(&result, "recall"), figure(&result, "validArguments")), (1.0, 1.0));
    assert_eq!(result["examples"][0]["rank"], 1);
    let inputs = &result["inputs"];
    assert!(
        inputs["definitions"].as_str().unwrap().starts_with("mcp-pin/v1:set:sha256:"),
        "{inputs}"
    );
    // The same input has the same result.
    assert_eq!(result, json_of(&eval(folder.path(), &["--format", "json"])));
    let junit = printed(&eval(folder.path(), &["--format", "junit"]));
    assert!(junit.contains("<testsuite name=\"examples\" tests=\"4\" failures=\"0\">"), "{junit}");

    // A threshold that is not reached is red in each form.
    let strict = ["--threshold", "meanRank=0.5"];
    for format in ["human", "json", "junit"] {
        let output = eval(folder.path(), &[&strict[..], &["--format", format]].concat());
        assert_eq!(output.status.code(), Some(5), "{format}");
    }
    let junit = printed(&eval(folder.path(), &[&strict[..], &["--format", "junit"]].concat()));
    assert!(junit.contains("<failure message=\"1.000: at most 0.5\"/>"), "{junit}");
    let unknown = eval(folder.path(), &["--threshold", "top2=1"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).contains("there are: top1, recall"), "{}", said(&unknown));
}

#[test]
fn what_is_wrong_with_an_example_fails_the_evaluation() {
    let folder = folder(&tools());
    for (lines, expected) in [
        (r#"{"query": "close it", "arguments": {"id": 17}}"#, "the arguments do not fit: `/id`"),
        (
            r#"{"query": "close it", "arguments": {"id": "T-1", "by": "ana"}}"#,
            "the arguments do not fit",
        ),
        (
            r#"{"query": "close it", "arguments": {"id": "T-1"}, "forbiddenArguments": {"id": "T-2"}}"#,
            "the forbidden value of `id` is accepted",
        ),
        (
            r#"{"query": "create a new ticket", "forbiddenTools": ["create_ticket"]}"#,
            "the forbidden tool `create_ticket` is ranked above the expected one",
        ),
    ] {
        write(&folder, "close_ticket.examples.jsonl", lines);
        let output = eval(folder.path(), &[]);
        assert_eq!(output.status.code(), Some(5), "{lines}");
        assert!(printed(&output).contains(expected), "{expected}: {}", printed(&output));
    }
    // Limits beside the examples refuse what the schema accepts.
    let forbidden = r#"{"query": "close it", "arguments": {"id": "T-1"}, "forbiddenArguments": {"id": "x; y"}}"#;
    write(&folder, "close_ticket.examples.jsonl", forbidden);
    write(
        &folder,
        "close_ticket.policy.yaml",
        "owner: support\nconstraints:\n- {argument: /id, forbid: [shell]}\n",
    );
    assert_eq!(eval(folder.path(), &[]).status.code(), Some(0));
    write(&folder, "close_ticket.policy.yaml", "forbiddenArguments: [id]\n");
    assert!(printed(&eval(folder.path(), &[])).contains("`/id` is forbidden by the policy"));
}

#[test]
fn input_that_is_not_valid_is_shown_where_it_is_and_nothing_is_evaluated() {
    let folder = folder(&tools());
    let before = [("close_ticket.examples.jsonl", EXAMPLES[1].1)];
    for (name, text, expected) in [
        ("close_ticket.examples.jsonl", "\n{\"query\": 7}", "close_ticket.examples.jsonl:2:1"),
        ("close_ticket.examples.jsonl", "{\"query\": \"a\"", "not JSON"),
        ("close_ticket.examples.jsonl", "{\"question\": \"a\"}", "unknown member `question`"),
        (
            "close_ticket.examples.jsonl",
            "{\"query\": \"a\", \"tools\": [\"close_tickets\"]}",
            "did you mean `close_ticket`?",
        ),
        (
            "close_ticket.examples.jsonl",
            "{\"query\": \"a\", \"expect\": \"deny\"}",
            "name the caller",
        ),
        ("close_ticket.schema.json", "{\"name\": \"close_ticket\"", "no definition"),
        ("list_tickets.policy.yaml", "constraint: []\n", "unknown key `constraint`"),
        (
            "list_tickets.policy.yaml",
            "constraints:\n- {argument: state}\n",
            "this is not a JSON Pointer",
        ),
        (
            "list_tickets.policy.yaml",
            "constraints:\n- {argument: /state, forbid: [all]}\n",
            "list_tickets.policy.yaml:",
        ),
        ("other.examples.jsonl", "{\"query\": \"a\"}", "other.schema.json"),
    ] {
        let path = folder.path().join(name);
        let former = fs::read(&path).ok();
        write(&folder, name, text);
        let output = eval(folder.path(), &["--format", "json"]);
        assert_eq!(output.status.code(), Some(3), "{name} {text}");
        assert!(said(&output).contains(expected), "{expected}: {}", said(&output));
        assert!(said(&output).contains("nothing was evaluated") && output.stdout.is_empty());
        match former {
            Some(former) => fs::write(&path, former).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    assert_eq!(before[0].1, fs::read_to_string(folder.path().join(before[0].0)).unwrap());
    assert_eq!(eval(folder.path(), &[]).status.code(), Some(0));
    let none = eval(&folder.path().join("none"), &[]);
    assert_eq!(none.status.code(), Some(3), "{}", said(&none));
}

/// A lockfile that approves the tools, as the configuration of a gateway in front of their server has it.
fn locked(era: Era, folder: &Folder) -> (Server, Config, PathBuf) {
    let server = Server::with(era, Value::from(tools()), |_, _| false);
    let lock = folder.path().join("portcullis.lock");
    let config = Config::of(&server.url()).approved(&lock);
    (server, config, lock)
}

/// An edit of a definition.
type Edit<'a> = &'a dyn Fn(&mut Value);

#[test]
fn a_harmful_edit_of_a_definition_is_seen_before_it_is_approved() {
    let locks = Folder::new();
    let (_server, _config, lock) = locked(Era::Modern, &locks);
    let compare = ["--compare", lock.to_str().unwrap()];
    let edited = |n: usize, edit: Edit<'_>| {
        let mut tools = tools();
        edit(&mut tools[n]);
        let folder = folder(&tools);
        let output = eval(folder.path(), &compare);
        (output.status.code(), printed(&output), said(&output))
    };
    let harmless: [(usize, Edit<'_>); 3] = [
        (0, &|_| {}),
        (1, &|tool| {
            tool["description"] =
                "Close a ticket that is solved, and does not need more work.".into()
        }),
        (2, &|tool| tool["inputSchema"]["properties"]["state"]["enum"] = json!(["closed", "open"])),
    ];
    for (n, edit) in harmless {
        let (code, printed, said) = edited(n, edit);
        assert_eq!(code, Some(0), "{printed}{said}");
    }
    let harmful: [(usize, Edit<'_>, &str); 8] = [
        (1, &|tool| tool["description"] = "".into(), "/description: the text is gone"),
        (
            1,
            &|tool| tool["description"] = tools()[2]["description"].clone(),
            "the text says something else",
        ),
        (
            2,
            &|tool| {
                tool["description"] =
                    "List the tickets of a project by their state, with their comments".into()
            },
            "has lost a word that set a limit",
        ),
        (
            2,
            &|tool| tool["inputSchema"]["properties"]["state"] = json!({ "type": "string" }),
            "/inputSchema/properties/state: the values of the argument are no longer listed",
        ),
        (
            2,
            &|tool| tool["inputSchema"]["required"] = json!([]),
            "the argument no longer has to be given",
        ),
        (
            1,
            &|tool| tool["inputSchema"]["properties"]["id"]["type"] = "number".into(),
            "another type",
        ),
        (1, &|tool| tool["annotations"]["destructiveHint"] = false.into(), "how dangerous it is"),
        (
            1,
            &|tool| tool["inputSchema"]["properties"] = json!({ "key": { "type": "string" } }),
            "the argument is gone, or has another name",
        ),
    ];
    for (n, edit, expected) in harmful {
        let (code, printed, said) = edited(n, edit);
        assert_eq!(code, Some(5), "{expected}: {printed}{said}");
        assert!(printed.contains("FELL") && printed.contains(expected), "{expected}: {printed}");
    }
    // A tool that is called otherwise now is gone for those who ask for it.
    let mut renamed = tools();
    renamed[1]["name"] = "finish".into();
    let folder = folder(&renamed);
    fs::remove_file(folder.path().join("close_ticket.examples.jsonl")).unwrap();
    write(
        &folder,
        "finish.examples.jsonl",
        "{\"query\": \"close the ticket\", \"tools\": [\"close_ticket\"]}",
    );
    let output = eval(folder.path(), &compare);
    assert_eq!(output.status.code(), Some(5));
    assert!(printed(&output).contains("the tool is gone"), "{}", printed(&output));
    // A lockfile that is none is refused.
    write(&folder, "bad.lock", "servers: {}\n");
    let bad = eval(folder.path(), &["--compare", folder.path().join("bad.lock").to_str().unwrap()]);
    assert_eq!(bad.status.code(), Some(1), "{}", said(&bad));
}

#[test]
fn the_policy_of_a_configuration_decides_about_the_calls_of_examples() {
    const POLICY: &str = "flow:
  mode: deny
  labels:
  - {servers: [up], tools: [close_ticket], integrity: trusted, confidentiality: public, sink: external, targets: [id]}
constraints:
- {servers: [up], tools: [close_ticket], argument: /id, pattern: 'T-[0-9]+'}
rules:
- {id: open, effect: allow, principals: ['group:dev'], servers: [up], tools: ['*']}
- {id: kept, effect: forbid, principals: ['*'], servers: [up], tools: [create_ticket], when: \"arguments.title == 'x'\"}";
    for era in ERAS {
        let locks = Folder::new();
        let (server, config, _lock) = locked(era, &locks);
        let config = config.policy(POLICY);
        let folder = folder(&tools());
        let call = |more: &str| {
            write(
                &folder,
                "close_ticket.examples.jsonl",
                &format!(
                    "{{\"query\": \"close the solved ticket\", \"arguments\": {{\"id\": \"T-1\"}}, {more}}}"
                ),
            );
            let output =
                config.tried(&["eval", folder.path().to_str().unwrap(), "--format", "json"]);
            let said = said(&output);
            let result: Value = printed(&output).parse().unwrap_or_default();
            (output.status.code(), result, said)
        };
        for (more, code) in [
            (r#""principal": "ana""#, 0),
            (r#""principal": "ana", "expect": "deny""#, 5),
            (r#""principal": "bob""#, 5),
            (r#""principal": "bob", "expect": "deny", "reason": "not-granted""#, 0),
            (r#""principal": "bob", "expect": "deny", "reason": "revoked""#, 5),
            (r#""principal": "ana", "forbiddenArguments": {"id": "x"}"#, 0),
            (r#""principal": "ana", "forbiddenArguments": {"id": "T-2"}"#, 5),
            // What a flow was shown decides as well.
            (r#""principal": "ana", "flow": {"integrity": "untrusted"}, "expect": "deny""#, 0),
            (r#""principal": "ana", "flow": {"integrity": "trusted"}"#, 0),
        ] {
            let (found, result, said) = call(more);
            assert_eq!(found, Some(code), "{more}: {result} {said}");
        }
        let (_, result, _) = call(r#""principal": "ana""#);
        assert_eq!(figure(&result, "policy"), 1.0, "{result}");
        assert!(result["inputs"]["policy"].is_string(), "{result}");
        // The definitions of the lockfile are looked for too, where the folder has none.
        fs::remove_file(folder.path().join("list_tickets.schema.json")).unwrap();
        let (code, result, said) = call(r#""principal": "ana""#);
        assert_eq!(
            (code, result["tools"].as_array().map(Vec::len)),
            (Some(0), Some(3)),
            "{result} {said}"
        );
        assert!(server.tool_calls().is_empty());
    }
}

#[test]
fn an_approved_tool_is_withheld_until_its_evaluation_has_passed() {
    const OPEN: &str =
        "rules: [{id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}]";
    for era in ERAS {
        let locks = Folder::new();
        let (server, config, lock) = locked(era, &locks);
        let pins = format!("{{file: '{}', requireEvaluation: true}}", lock.display());
        let config = Config { pins, ..config.policy(OPEN) };
        let gateway = config.start();
        let client = gateway.client(era, ANA);
        let withheld = |name: &str| {
            assert_eq!(client.call(name, &json!({ "id": "T-1" })).code(), -32602);
            gateway.last()["reason"].clone()
        };
        assert_eq!(client.tools(), [""; 0]);
        assert_eq!(withheld("close_ticket"), "evaluation-missing");
        gateway.says("portcullis eval FOLDER -c FILE --record");
        // What was recorded of one definition is shown, and what failed says so.
        let folder = folder(&tools());
        write(&folder, "close_ticket.examples.jsonl", "{\"query\": \"report a problem\"}\n");
        // The digest is also over the text of the configuration.
        let file = locks.path().join("gateway.yaml");
        fs::write(&file, config.yaml(&locks.path().join("audit.jsonl"))).unwrap();
        let evaluated =
            |more: &[&str]| eval(folder.path(), &[&["-c", file.to_str().unwrap()], more].concat());
        let output = evaluated(&["--record"]);
        assert_eq!(output.status.code(), Some(5), "{}", said(&output));
        assert!(said(&output).contains("failed: `up/close_ticket`: top1"), "{}", said(&output));
        eventually("the evaluation", || (client.tools().len() == 2).then_some(()));
        assert_eq!(client.tools(), ["create_ticket", "list_tickets"]);
        assert_eq!(withheld("close_ticket"), "evaluation-failed");
        assert!(server.tool_calls().is_empty());
        let listed = printed(&config.verb(&["pin", "list"]));
        assert!(
            listed.contains("evaluation: passed, 20") && listed.contains("sha256:"),
            "{listed}"
        );
        // The same evaluation has the same digest, and is not written again.
        let result = json_of(&evaluated(&["--format", "json"]));
        let evaluation = &result["tools"][0]["evaluation"];
        let before = fs::read_to_string(&lock).unwrap();
        assert!(before.contains(evaluation["digest"].as_str().unwrap()), "{evaluation}");
        assert_eq!(evaluated(&["--record"]).status.code(), Some(5));
        assert_eq!(fs::read_to_string(&lock).unwrap(), before);
        // Whoever changes a result by hand has no lockfile.
        fs::write(&lock, before.replace("result: \"failed\"", "result: \"passed\"")).unwrap();
        let output = config.tried(&["pin", "list"]);
        assert!(said(&output).contains("is not what the digest says"), "{}", said(&output));
        fs::write(&lock, &before).unwrap();
        // Corrected examples let it pass, and the approval still stands.
        write(&folder, "close_ticket.examples.jsonl", EXAMPLES[1].1);
        assert_eq!(evaluated(&["--record"]).status.code(), Some(0));
        eventually("the corrected one", || (client.tools().len() == 3).then_some(()));
        let answer = client.call("close_ticket", &json!({ "id": "T-1" })).json();
        assert_eq!(server.tool_calls().len(), 1, "{answer}");
    }
}

#[test]
fn a_proposal_is_evaluated_before_somebody_approves_it() {
    let locks = Folder::new();
    let server = Server::with(Era::Modern, Value::from(tools()), |_, _| false);
    let lock = locks.path().join("portcullis.lock");
    let pins = format!("{{file: '{}', requireEvaluation: true}}", lock.display());
    let config = Config { pins, ..Config::of(&server.url()) };
    config.verb(&["pin"]);
    // The folder has no definition: it is the one that is proposed.
    let folder = folder(&tools());
    for tool in tools() {
        let name = tool["name"].as_str().unwrap();
        fs::remove_file(folder.path().join(format!("{name}.schema.json"))).unwrap();
    }
    config.verb(&["eval", folder.path().to_str().unwrap(), "--record"]);
    fs::remove_file(folder.path().join("list_tickets.examples.jsonl")).unwrap();
    let output = config.verb(&["pin", "approve", "--yes", "--by", "ana"]);
    assert!(!said(&output).contains("requireEvaluation"), "{}", said(&output));
    let gateway = config.start();
    assert_eq!(gateway.client(Era::Modern, ANA).tools().len(), 3);
    // A changed definition needs an evaluation of its own.
    let lock = fs::read_to_string(&lock).unwrap();
    assert_eq!(lock.matches("evaluation:").count(), 3, "{lock}");
    let first =
        Config { pins: "{trustOnFirstUse: true, requireEvaluation: true}".into(), ..config };
    let output = first.tried(&["validate"]);
    assert!(said(&output).contains("`requireEvaluation` would withhold"), "{}", said(&output));
}

#[test]
fn a_judge_orders_what_is_found_for_an_example_if_it_is_to_be_asked() {
    use std::io::Write as _;
    let folder = folder(&tools());
    let content = json!({ "message": { "content": "{\"order\":[2]}" } });
    let judged = json!({ "choices": [content] }).to_string();
    let judge = Server::start(move |_, stream| stream.write_all(&e2e::server::ok(&judged)).is_ok());
    let locks = Folder::new();
    let (_server, mut config, _lock) = locked(Era::Modern, &locks);
    let tried = |config: &Config, more: &[&str]| {
        let verb = ["eval", folder.path().to_str().unwrap(), "--format", "json"];
        config.tried(&[&verb, more].concat())
    };
    let refused = tried(&config, &["--judge"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("the configuration has no judge"), "{}", said(&refused));
    config.more = format!(
        "selection:\n  judge: {{url: 'http://{}/v1', model: small, timeout: 20s}}",
        judge.address
    );
    let usual = json_of(&tried(&config, &[]));
    assert_eq!((figure(&usual, "top1"), judge.calls().len()), (1.0, 0));
    let other: Value = printed(&tried(&config, &["--judge"])).parse().unwrap();
    assert!(figure(&other, "top1") < 1.0 && figure(&other, "recall") > 0.99, "{other}");
    assert!(other["inputs"]["judge"].is_string() && usual["inputs"]["judge"].is_null());
    assert!(judge.calls().iter().all(|call| call.body.to_string().contains("ticket")));
}
