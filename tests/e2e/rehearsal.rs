//! What a configuration would decide is what it decides: `policy explain`, `test`, `simulate` and `lint`.

use std::fs;
use std::process::Output;

use e2e::client::{Client, get};
use e2e::gateway::{ANA, BOB, Config, Folder, json_of, printed};
use e2e::issuer::Issuer;
use e2e::server::{Server, tool};
use e2e::{ERAS, Era, eventually};
use serde_json::json;

use crate::tokens::{believing, knock};

const RULES: &str = "contact: sec@example.com
rules:
- {id: dev-reads, effect: allow, principals: ['group:dev'], servers: [up], tools: ['read_*', argued]}
- {id: ana-drops, effect: allow, principals: ['principal:ana'], servers: [up], tools: [drop]}
- {id: ops-all, effect: allow, principals: ['group:ops'], servers: [up], tools: [argued, read_file]}
- {id: no-secret, effect: forbid, principals: ['*'], servers: ['*'], tools: [read_secret]}
- {id: frozen, effect: forbid, principals: ['group:dev'], servers: ['*'], tools: [drop], disclose: true, contact: ops}
- {id: small, effect: forbid, principals: ['*'], servers: ['*'], tools: [argued], when: arguments.n > 5, contact: sums}";

const TOOLS: [&str; 4] = ["read_file", "read_secret", "drop", "argued"];

/// What `policy explain` says of a call of a tool of the server `up`.
fn explain(config: &Config, principal: &str, tool: &str, more: &[&str]) -> Output {
    let call = ["policy", "explain", "--principal", principal, "--server", "up", "--tool", tool];
    config.tried(&[&call[..], more].concat())
}

#[test]
fn what_is_explained_is_what_is_decided() {
    let lock = Folder::new();
    for era in ERAS {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let strict =
            json!({ "name": "strict", "description": "It is strict.", "inputSchema": schema });
        let tools =
            json!([tool("read_file"), tool("read_secret"), tool("drop"), tool("argued"), strict]);
        let server = Server::offering(
            era,
            json!({ "tools": tools }),
            |_| json!({ "resultType": "complete", "content": [{ "type": "text", "text": "done" }] }),
        );
        let rules = format!(
            "{RULES}\n- {{id: strictly, effect: allow, principals: ['*'], servers: [up], tools: [strict, unheard]}}"
        );
        let file = lock.path().join(format!("{era:?}.lock"));
        let config = Config::of(&server.url()).policy(&rules).approved(&file);
        let gateway = config.start();
        for (who, key) in [("ana", ANA), ("bob", BOB)] {
            let client = gateway.client(era, key);
            for (name, arguments) in [
                ("read_file", json!({})),
                ("read_secret", json!({})),
                ("drop", json!({})),
                ("argued", json!({ "n": 5 })),
                ("argued", json!({ "n": 6 })),
                ("argued", json!({ "n": "six" })),
                ("strict", json!({ "n": 1 })),
                ("strict", json!({ "n": "one" })),
            ] {
                let answer = client.call(name, &arguments);
                let record = gateway.last();
                let text = arguments.to_string();
                let explained =
                    explain(&config, who, name, &["--arguments", &text, "--format", "json"]);
                let shown = json_of(&explained);
                let about = format!("{who} {name} {text}: {shown}\n{record}");
                assert_eq!(shown["decision"], record["decision"], "{about}");
                assert_eq!(shown["rule"], record["rule"], "{about}");
                assert_eq!(shown["definition"], record["definition"], "{about}");
                let denied = record["decision"] == "deny";
                assert_eq!(explained.status.code(), Some(if denied { 5 } else { 0 }), "{about}");
                if denied {
                    assert_eq!(shown["reason"], record["reason"], "{about}");
                    let (told, answer) = (&shown["told"], answer.json());
                    assert_eq!(told["isError"], answer["result"]["isError"], "{about}");
                    assert_eq!(told["code"], answer["error"]["code"], "{about}");
                    let text = match answer["error"]["message"].as_str() {
                        Some(message) => message,
                        None => answer["result"]["content"][0]["text"].as_str().unwrap(),
                    };
                    assert_eq!(told["message"], text, "{about}");
                }
                let listed = client.tools().iter().any(|tool| tool == name);
                assert_eq!(shown["listed"], listed, "{about}");
            }
        }
        let explained = explain(&config, "ana", "drop", &[]);
        let text = printed(&explained);
        for line in [
            "denied: forbidden (rule `frozen`)",
            "caller      ana (dev)",
            "approved in the lockfile",
            "told        isError denied by rule `frozen`: the policy forbids this call. The same call will be \
             denied again: go on without it, or tell the user. If it should be allowed, ask ops.",
            "allow   ana-drops                applies",
            "allow   ops-all                  is for other callers",
            "forbid  small                    is about other things",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        // What lacks its arguments because none were given is not told as a mistake in them.
        let text = printed(&explain(&config, "ana", "strict", &[]));
        assert!(text.starts_with("denied: no arguments were given"), "{text}");
        let text = printed(&explain(&config, "ana", "strict", &["--arguments", "{}"]));
        assert!(text.starts_with("denied: arguments"), "{text}");
        // What is not in the lockfile, beside what is, is not there, as for the gateway: a typo is no permission.
        for (name, near) in [("read_fiel", "did you mean `read_file`?"), ("unheard", "pin list")] {
            let answer = gateway.client(era, ANA).call(name, &json!({}));
            let explained = explain(&config, "ana", name, &[]);
            let text = printed(&explained);
            assert_eq!(explained.status.code(), Some(5), "{text}");
            assert!(text.starts_with("denied: unknown-tool"), "{text}");
            assert!(text.contains("not in the lockfile, which has others") && text.contains(near));
            let shown = json_of(&explain(&config, "ana", name, &["--format", "json"]));
            assert_eq!(shown["reason"], gateway.last()["reason"], "{shown}");
            assert_eq!(shown["told"]["code"], answer.json()["error"]["code"], "{shown}");
        }
        // Of a server of which nobody knows anything it is said that nobody does.
        let mut unknown = config.clone();
        unknown.pins = format!("{{file: '{}'}}", lock.path().join("none.lock").display());
        let explained = explain(&unknown, "ana", "unheard", &[]);
        let text = printed(&explained);
        assert!(explained.status.success(), "{text}");
        assert!(text.contains("not in the lockfile: taken to be offered"), "{text}");
    }
}

#[test]
fn what_a_better_credential_would_get_is_explained_as_it_is_told() {
    let rules = "rules:\n- {id: readers, effect: allow, principals: ['*'], servers: [up], tools: [read_file], \
                 scopes: ['files:all', 'files:read']}\n\
                 - {id: bound, effect: allow, principals: ['*'], servers: [up], tools: [drop], proof: dpop}";
    for era in ERAS {
        let server = Server::echo(era, &TOOLS);
        let config = Config::of(&server.url()).policy(rules);
        let gateway = config.start();
        let client = gateway.client(era, ANA);
        for tool in ["read_file", "drop"] {
            let answer = client.call(tool, &json!({}));
            let shown = json_of(&explain(&config, "ana", tool, &["--format", "json"]));
            let (told, error) = (&shown["told"], &answer.json()["error"]);
            assert_eq!(shown["reason"], gateway.last()["reason"], "{shown}");
            assert_eq!(told["status"], answer.status, "{era:?} {shown}\n{answer:?}");
            assert_eq!(told["code"], error["code"], "{shown}");
            assert_eq!(told["message"], error["message"], "{shown}");
            let text = printed(&explain(&config, "ana", tool, &[]));
            assert!(text.contains(&format!("(HTTP {})", answer.status)), "{text}");
            let scopes = "with the scopes that are needed: files:all files:read";
            assert_eq!(text.contains(scopes), tool == "read_file", "{text}");
        }
    }
}

#[test]
fn a_name_on_a_route_is_explained_as_what_it_stands_for() {
    let lock = Folder::new();
    let server = Server::echo(Era::Modern, &TOOLS);
    let servers =
        format!("- {{name: up, url: '{0}'}}\n- {{name: other, url: '{0}'}}", server.url());
    let config = Config::with(&servers, "[up, other]").policy(RULES);
    let approved = config.clone().approved(&lock.path().join("lock"));
    for config in [&config, &approved] {
        let gateway = config.start();
        let answer = gateway.client(Era::Modern, ANA).call("up__read_file", &json!({}));
        assert_eq!(answer.status, 200, "{answer:?}");
        let record = gateway.last();
        assert_eq!(record["tool"], "up__read_file", "{record}");
        let explained = explain(config, "ana", "up__read_file", &["--format", "json"]);
        let shown = json_of(&explained);
        assert!(explained.status.success(), "{shown}");
        assert_eq!(shown["tool"], "read_file", "{shown}");
        assert_eq!(shown["rule"], record["rule"], "{shown}");
        assert!(printed(&explained).contains("`up__read_file` is the name on a route"));
        // The name of another server's tool is none of this server.
        let explained = explain(config, "ana", "other__read_file", &[]);
        assert_eq!(explained.status.code(), Some(5), "{}", printed(&explained));
    }
}

#[test]
fn a_caller_that_there_cannot_be_is_explained_with_a_note() {
    let server = Server::echo(Era::Modern, &TOOLS);
    let config = Config::of(&server.url()).policy(RULES);
    let note = "note: no caller can be `anna`: the API keys are those of `ana`, `bob`; correct it (did you mean `ana`?), or \
                describe it with `--group`, `--role` or `--scope`";
    let output = explain(&config, "anna", "read_file", &[]);
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(note), "{said}");
    // A caller who is described may be anybody, and one who is known is not doubted.
    for (who, more) in [("anna", &["--group", "ops"][..]), ("ana", &[])] {
        let output = explain(&config, who, "read_file", more);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !said.contains("no caller can be"), "{who}: {said}");
    }
}

#[test]
fn cases_are_decided_and_mistakes_in_them_are_shown() {
    let server = Server::echo(Era::Modern, &TOOLS);
    let config = Config::of(&server.url()).policy(RULES);
    let folder = Folder::new();
    let file = folder.path().join("cases.yaml");
    let tested = |text: &str| {
        fs::write(&file, text).unwrap();
        config.tried(&["policy", "test", file.to_str().unwrap()])
    };
    let good = "tests:
- {name: developers read, principal: ana, server: up, tool: read_file, expect: allow, rule: dev-reads, listed: true}
- {name: nobody reads secrets, principal: ana, server: up, tool: read_secret, expect: deny, reason: forbidden, listed: false}
- {name: small sums, principal: ana, server: up, tool: argued, arguments: {n: 5}, expect: allow}
- {name: no large sums, principal: ana, server: up, tool: argued, arguments: {n: 6}, expect: deny, rule: small}
- {name: others by group, principal: carl, groups: [ops], server: up, tool: read_file, expect: allow, rule: ops-all}
- {name: strangers, principal: carl, server: up, tool: read_file, expect: deny, reason: not-granted}
- {name: no resources, principal: ana, server: up, resource: 'file:///x', expect: deny}
";
    let output = tested(good);
    assert!(
        output.status.success() && printed(&output).contains("7 passed, 0 failed"),
        "{}",
        printed(&output)
    );
    assert!(
        printed(&output).contains("no case is decided by: ana-drops, frozen"),
        "{}",
        printed(&output)
    );
    let output = tested(&good.replace(
        "tool: read_file, expect: allow, rule: dev-reads",
        "tool: read_file, expect: deny",
    ));
    assert_eq!(output.status.code(), Some(5));
    let text = printed(&output);
    assert!(text.contains("FAILED  developers read\n        it should be denied; it is allowed by rule `dev-reads`"), "{text}");
    for (bad, place, what) in [
        (
            "tests:\n- {name: x, principal: ana, server: down, tool: t, expect: allow}\n",
            "2:37",
            "there is no server `down`",
        ),
        (
            "tests:\n- {name: x, principal: ana, server: up, tool: t, expects: allow}\n",
            "2:50",
            "did you mean `expect`?",
        ),
        (
            "tests:\n- {name: x, principal: ana, server: up, expect: allow}\n",
            "2:3",
            "a case is about exactly one item",
        ),
        (
            "tests:\n- {name: x, principal: ana, server: up, tool: t, expect: maybe}\n",
            "2:58",
            "`maybe` is not known here",
        ),
        (
            "tests:\n- {name: x, principal: ana, server: up, tool: t, expect: deny, rule: none}\n",
            "2:70",
            "there is no rule `none`",
        ),
        (
            "tests:\n- {name: x, principal: ana, server: up, tool: t, expect: deny, reason: odd}\n",
            "2:72",
            "not the code of a denial",
        ),
    ] {
        let output = tested(bad);
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains(what) && text.contains(&format!("cases.yaml:{place}")), "{text}");
    }
    assert_eq!(config.tried(&["policy", "test", "/no/such/file"]).status.code(), Some(1));
}

#[test]
fn a_case_that_a_misspelt_name_would_pass_as_well_has_a_note() {
    let server = Server::echo(Era::Modern, &TOOLS);
    let lock = Folder::new();
    let rules = format!(
        "{RULES}\nconstraints:\n- {{servers: [up], tools: [read_file], argument: /path, type: path, within: [/srv]}}"
    );
    let config = Config::of(&server.url()).policy(&rules).approved(&lock.path().join("lock"));
    let file = lock.path().join("cases.yaml");
    let tested = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        config.tried(&[&["policy", "test", file.to_str().unwrap()], more].concat())
    };
    let cases = "tests:
- {name: caller, principal: anna, server: up, tool: drop, expect: deny}
- {name: tool, principal: ana, server: up, tool: read_fiel, expect: deny}
- {name: meant, principal: ana, server: up, tool: read_fiel, expect: deny, reason: unknown-tool}
- {name: described, principal: carl, groups: [ops], server: up, tool: read_file, expect: allow}
- {name: failing, principal: ana, server: up, tool: read_file, arguments: {path: /etc/x}, expect: allow}
";
    let output = tested(cases, &[]);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(5), "{text}");
    for part in [
        "ok      caller\n        note: no caller can be `anna`: the API keys are those of `ana`, `bob`; correct it, or ",
        "ok      tool\n        note: the lockfile has no tool `read_fiel` of `up`, so no rule is asked (did you mean `read_file`?); ",
        "ok      meant\nok      described\nFAILED  failing\n",
        "it should be allowed; it is denied: arguments\n        found: constraints at `/path`: ",
        "4 passed, 1 failed",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    let shown = json_of(&tested(cases, &["--format", "json"]));
    let notes = |n: usize| shown["cases"][n]["notes"].as_array().unwrap().len();
    assert_eq!([0, 1, 2, 3, 4].map(notes), [1, 1, 0, 0, 0], "{shown}");
}

#[test]
fn where_there_are_no_cases_it_is_printed_how_they_begin() {
    let server = Server::echo(Era::Modern, &TOOLS);
    let config = Config::of(&server.url()).policy(RULES);
    let folder = Folder::new();
    let file = folder.path().join("cases.yaml");
    let name = file.to_str().unwrap();
    // What `portcullis policy test > cases.yaml` finds is an empty file.
    for text in [None, Some(""), Some("# later\n")] {
        drop(fs::remove_file(&file));
        text.into_iter().for_each(|text| fs::write(&file, text).unwrap());
        let output = config.tried(&["policy", "test", name]);
        assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("`portcullis policy test > {name}")), "{said}");
        assert!(!said.contains("portcullis init"), "{said}");
        // It is a file of cases, in which only the names are wrong.
        fs::write(&file, &output.stdout).unwrap();
        let output = config.tried(&["policy", "test", name]);
        assert_eq!(output.status.code(), Some(3), "{}", printed(&output));
        let said = printed(&output);
        assert!(
            said.contains("there is no server `NAME`") && said.contains("1 problem;"),
            "{said}"
        );
    }
}

#[test]
fn what_another_policy_would_change_is_known_before() {
    let server = Server::echo(Era::Modern, &TOOLS);
    let gateway = Config::of(&server.url()).policy(RULES).start();
    for era in ERAS {
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        for (client, name, arguments) in [
            (&ana, "read_file", json!({})),
            (&ana, "argued", json!({ "n": 1 })),
            (&ana, "drop", json!({})),
            (&bob, "read_file", json!({})),
            (&bob, "drop", json!({})),
        ] {
            let answer = client.call(name, &arguments).json();
            let came_through = answer["error"].is_null() && answer["result"]["isError"] != true;
            assert_eq!(came_through, name != "drop", "{answer}");
        }
    }
    let log = gateway.audit().to_str().unwrap().to_owned();
    let same = Config::of(&server.url()).policy(RULES);
    let output = same.tried(&["policy", "simulate", "--strict", "--against", &log]);
    assert!(output.status.success(), "{}", printed(&output));
    assert!(printed(&output).contains("0 would come out otherwise"), "{}", printed(&output));
    // Bob may no longer read, and ana may drop.
    let other = RULES
        .replace("tools: [argued, read_file]", "tools: [argued]")
        .lines()
        .filter(|line| !line.contains("id: frozen"))
        .collect::<Vec<_>>()
        .join("\n");
    let other = Config::of(&server.url()).policy(&other);
    let output = other.tried(&["policy", "simulate", "--against", &log, "--format", "json"]);
    let shown = json_of(&output);
    let flips: Vec<_> = shown["flips"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flip| json!([flip["principal"], flip["thing"], flip["would"], flip["count"]]))
        .collect();
    assert_eq!(
        flips,
        [
            json!(["ana", "tool drop", "allowed by rule `ana-drops`", 2]),
            json!(["bob", "tool read_file", "denied: not-granted", 2]),
        ],
        "{shown}"
    );
    assert_eq!(shown["dependOnArguments"], 2, "{shown}");
    let output = other.tried(&["policy", "simulate", "--strict", "--against", &log]);
    assert_eq!(output.status.code(), Some(5));
    // And which grants nobody has used.
    let output = same.tried(&["policy", "lint", "--against", &log]);
    assert_eq!(output.status.code(), Some(6));
    assert!(
        printed(&output).contains("unused    rule `ana-drops`: it has decided nothing since "),
        "{}",
        printed(&output)
    );
    assert!(!printed(&output).contains("`dev-reads`"), "{}", printed(&output));
}

#[test]
fn a_call_of_a_renamed_tool_is_decided_again_by_the_name_at_its_server() {
    let rules = "rules:
- {id: both, effect: allow, principals: ['group:dev'], servers: [up, other], tools: [now, read]}
- {id: no-read, effect: forbid, principals: ['*'], servers: [other], tools: [read]}";
    let server = Server::echo(Era::Modern, &["now", "read"]);
    let servers =
        format!("- {{name: up, url: '{0}'}}\n- {{name: other, url: '{0}'}}", server.url());
    let routed = |prefix: &str| {
        let mut config = Config::with(&servers, "[up, other]").policy(rules);
        config.routes = format!("- {{path: /mcp, servers: [up, other], prefix: {prefix}}}");
        config
    };
    let lock = Folder::new();
    for prefix in ["auto", "always", "onConflict"] {
        let config = routed(prefix).approved(&lock.path().join(prefix));
        let gateway = config.start();
        let ana = gateway.client(Era::Modern, ANA);
        let first = if prefix == "auto" { "now" } else { "up__now" };
        for (name, decision) in [(first, "allow"), ("other__now", "allow"), ("other__read", "deny")]
        {
            let answer = ana.call(name, &json!({}));
            let record = gateway.last();
            let recorded = (&record["tool"], &record["decision"]);
            assert_eq!(recorded, (&json!(name), &json!(decision)), "{prefix}: {answer:?}");
        }
        let log = gateway.audit().to_str().unwrap().to_owned();
        let simulated = |config: &Config| {
            let simulate = ["policy", "simulate", "--strict", "--format", "json"];
            let output = config.tried(&[&simulate[..], &["--against", &log]].concat());
            (output.status.code(), json_of(&output))
        };
        // With a lockfile and without one.
        let bare = routed(prefix);
        for config in [&config, &bare] {
            let (code, shown) = simulated(config);
            assert_eq!(code, Some(0), "{prefix}: {shown}");
            let counts = (&shown["same"], &shown["dependOnArguments"], &shown["notByRules"]);
            assert_eq!(counts, (&json!(3), &json!(0), &json!(0)), "{prefix}: {shown}");
        }
        // A real change is found, and shown by the name in the record.
        let (code, shown) =
            simulated(&bare.clone().policy(&rules.replace("[now, read]", "[read]")));
        assert_eq!(code, Some(5), "{prefix}: {shown}");
        assert_eq!(shown["flips"].as_array().unwrap().len(), 2, "{prefix}: {shown}");
        assert!(shown.to_string().contains("tool other__now"), "{prefix}: {shown}");
        // A route that renames nothing does not tell what the name stood for.
        let (code, shown) = simulated(&routed("never"));
        assert_eq!((code, &shown["flips"]), (Some(0), &json!([])), "{prefix}: {shown}");
        let open = if prefix == "auto" { 2 } else { 3 };
        assert_eq!(shown["dependOnArguments"], open, "{prefix}: {shown}");
    }
}

#[test]
fn rules_are_looked_over() {
    let server = Server::echo(Era::Modern, &TOOLS);
    let lock = Folder::new();
    let rules = "rules:
- {id: all, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}
- {id: some, effect: allow, principals: ['group:dev'], servers: [up], tools: [read_file]}
- {id: typo, effect: forbid, principals: ['*'], servers: [up], tools: [raed_file]}
- {id: tried, effect: forbid, principals: ['*'], servers: [up], tools: [drop], mode: audit}
- {id: whole, effect: allow, principals: ['group:ops'], servers: [up], tools: [argued], prompts: ['*', 'ask_*'], resources: ['*']}";
    let config = Config::of(&server.url()).policy(rules).approved(&lock.path().join("lock"));
    let output = config.tried(&["policy", "lint"]);
    assert_eq!(output.status.code(), Some(6));
    for line in [
        "broad     rule `all`: every caller may use every tool of every server",
        "covered   rule `some`: `all` says all of it already",
        "idle      rule `typo`: these servers offer no tool `raed_file`, by the lockfile",
        "idle      rule `whole`: these servers offer no prompt `ask_*`, by the lockfile",
        "inactive  rule `tried`: it does not act",
    ] {
        assert!(printed(&output).contains(line), "{line}\n{}", printed(&output));
    }
    // `*` is everything there is of a kind, be it nothing: it cannot be misspelt.
    assert!(!printed(&output).contains("prompt `*`"), "{}", printed(&output));
    // `validate` warns of names alone: what a wildcard is for may be offered later.
    let valid = config.tried(&["validate"]);
    let said = printed(&valid);
    let warning = "warning: rule `typo`: its servers offer no tool `raed_file`, by the lockfile; correct the name, or remove it";
    assert!(valid.status.success() && said.contains(warning), "{said}");
    assert_eq!(said.matches("its servers offer no").count(), 1, "{said}");
    let all = ["broad", "covered", "idle", "inactive"].map(|code| ["--allow", code]);
    let arguments: Vec<&str> =
        ["policy", "lint"].into_iter().chain(all.into_iter().flatten()).collect();
    assert!(config.tried(&arguments).status.success());
}

#[test]
fn callers_by_token_lists_and_the_self_test_are_decided_as_they_were() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let rules = "rules:
- {id: some, effect: allow, principals: ['group:dev'], servers: [up], tools: [echo]}
- {id: told, effect: allow, principals: ['*'], servers: [up], tools: [echo], when: arguments.text == \"x\"}";
    let mut config = believing(&server, &issuer.item("corp", "")).policy(rules);
    config.pins = "{mode: off}".to_owned();
    config.more = "selftest: {skip: [pins]}\n".to_owned();
    let gateway = config.start();
    let ready = || (get(gateway.ops.unwrap(), "/readyz").status == 200).then_some(());
    eventually("the self-test", ready);
    let header = format!("Bearer {}", issuer.good("alice"));
    let headers = [("authorization", &*header)];
    assert_eq!(knock(&gateway, Era::Modern, &headers).status, 200);
    let record = gateway.last();
    assert_eq!(
        (&record["scheme"], &record["groups"]),
        (&json!("oauth"), &json!(["dev"])),
        "{record}"
    );
    let client = Client::silent(gateway.address, "/mcp", Era::Modern, &headers);
    assert_eq!(client.tools(), ["echo"]);
    let log = gateway.audit().to_str().unwrap().to_owned();
    let same =
        config.tried(&["policy", "simulate", "--strict", "--against", &log, "--format", "json"]);
    let shown = json_of(&same);
    assert!(same.status.success() && shown["flips"] == json!([]), "{shown}");
    // The call is definite, whatever the rule with a condition says of its arguments.
    assert_eq!((&shown["same"], &shown["dependOnArguments"]), (&json!(2), &json!(0)), "{shown}");
    // A `forbid` decides whatever else there is.
    let other = format!(
        "{rules}\n- {{id: no, effect: forbid, principals: ['principal:corp/alice'], servers: [up], tools: [echo]}}"
    );
    let other = believing(&server, &issuer.item("corp", "")).policy(&other);
    let output = other.tried(&["policy", "simulate", "--strict", "--against", &log]);
    assert_eq!(output.status.code(), Some(5), "{}", printed(&output));
    assert!(
        printed(&output).contains("would denied: forbidden (rule `no`)"),
        "{}",
        printed(&output)
    );
}

#[test]
fn a_call_that_is_explained_without_arguments_is_said_to_have_none() {
    let folder = Folder::new();
    for era in ERAS {
        let schema = json!({ "type": "object", "properties": { "id": { "type": "string" } }, "required": ["id"] });
        let ticket = json!({ "name": "ticket", "description": "A ticket.", "inputSchema": schema });
        let tools = json!({ "tools": [ticket, tool("free")] });
        let server =
            Server::offering(era, tools, |_| json!({ "resultType": "complete", "content": [] }));
        let config =
            Config::of(&server.url()).approved(&folder.path().join(format!("{era:?}.lock")));
        let without = explain(&config, "ana", "ticket", &[]);
        assert_eq!(without.status.code(), Some(5), "{}", printed(&without));
        let line = "denied: no arguments were given, and it is not called without; add `--arguments JSON`\n";
        assert!(printed(&without).starts_with(line), "{}", printed(&without));
        // With arguments that do not fit, it says what does not; without any that are needed, nothing is wrong.
        let wrong = explain(&config, "ana", "ticket", &["--arguments", "{}"]);
        assert!(printed(&wrong).starts_with("denied: arguments"), "{}", printed(&wrong));
        assert_eq!(explain(&config, "ana", "free", &[]).status.code(), Some(0));
    }
}

#[test]
fn what_is_revoked_is_explained_as_such() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let file = folder.path().join("revoked.yaml");
    fs::write(&file, "tools: [up/echo]\n").unwrap();
    let mut config = Config::of(&server.url());
    config.more = format!("revocations: {{file: '{}'}}\n", file.display());
    let explain = ["policy", "explain", "--principal", "ana", "--server", "up", "--tool", "echo"];
    let output = config.tried(&explain);
    assert_eq!(output.status.code(), Some(5));
    assert!(printed(&output).contains("denied: revoked"), "{}", printed(&output));
    // What is said of a caller beside what is known of it takes nothing away.
    fs::write(&file, "tools: []\n").unwrap();
    let mut more = explain.to_vec();
    more.extend(["--client", "agent"]);
    let output = config.tried(&more);
    assert!(output.status.success(), "{}", printed(&output));
    assert!(printed(&output).contains("ana (dev)"), "{}", printed(&output));
}
