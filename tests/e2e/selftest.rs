//! The gateway attacks itself, and notices what is missing.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Command, Output};

use e2e::client::{Client, get, raw};
use e2e::gateway::{ANA, Config, Folder, Gateway, binary, json_of};
use e2e::server::Server;
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

const TOKEN: &str = "operator-secret-token";
const ALL: &str =
    "{id: everything, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

/// A configuration that attacks itself.
fn config(server: &Server, folder: &Folder) -> Config {
    let secret = folder.path().join("token");
    fs::write(&secret, TOKEN).unwrap();
    let mut config = Config::of(&server.url()).policy(&format!("rules:\n- {ALL}"));
    config.ops = format!("{{address: '127.0.0.1:0', token: {{fromFile: '{}'}}}}", secret.display());
    config.pins = format!("{{file: '{}'}}", folder.path().join("lock").display());
    config.more = "selftest: {ready: true}\n".to_owned();
    config
}

/// What the verb says of a running gateway.
fn tested(gateway: &Gateway, config: &Config, more: &[&str]) -> Output {
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    config.write(&file, gateway.audit());
    let ops = gateway.ops.unwrap().to_string();
    let mut command = Command::new(binary());
    command.args(["selftest", "--ops", &ops, "-c"]).arg(&file).args(more);
    command.output().unwrap()
}

/// The attacks that were not stopped, nor let through as configured.
fn bad(report: &Value) -> Vec<String> {
    let rows = report["attacks"].as_array().unwrap().iter();
    let bad = rows.filter(|row| {
        row["excepted"] == false
            && !["held", "recorded"].contains(&row["verdict"].as_str().unwrap())
    });
    bad.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn everything_holds_as_it_is_configured_where_nothing_is() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["read"]), Folder::new());
        let config = config(&server, &folder);
        let gateway = config.start();
        eventually("ready", || (get(gateway.ops.unwrap(), "/readyz").status == 200).then_some(()));
        let output = tested(&gateway, &config, &["--format", "json"]);
        let shown = json_of(&output);
        assert_eq!(bad(&shown), [""; 0], "{shown}");
        assert!(output.status.success());
        assert!(shown["attacks"].as_array().unwrap().len() > 30, "{shown}");
        // Every control was asked, and that is counted.
        let metrics = gateway.metrics();
        for control in [
            "door",
            "authentication",
            "message",
            "session",
            "rules",
            "revocation",
            "pins",
            "definitions",
            "shadowing",
            "registry",
            "inputSchema",
            "constraints",
            "arguments",
            "results",
            "outputSchema",
            "rates",
        ] {
            let line = format!("portcullis_control_evaluations_total{{control=\"{control}\"}} ");
            let count = metrics.lines().find_map(|text| text.strip_prefix(&line)).unwrap();
            assert_ne!(count, "0", "{control}");
        }
        assert!(metrics.contains("portcullis_selftest_passed 1"));
        let said = |record: &Value| {
            record["event"] == "selftest" && record["what"] == "passed: 33 attacks"
        };
        assert!(gateway.records().iter().any(said));
        // In words, with what each costs.
        let output = tested(&gateway, &config, &[]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("held     pins/changed"), "{text}");
        // It is nobody else's: the rule for everybody does not let anybody near it.
        let ana = Client::connect(gateway.address, "/portcullis-selftest", era, Some(ANA));
        assert_eq!(ana.tools(), [""; 0]);
        assert!(ana.call("selftest_plain", &json!({})).code() < 0);
        assert_eq!(gateway.last()["reason"], "not-granted");
    }
}

#[test]
fn in_the_log_for_people_the_lines_of_the_self_test_are_marked() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["read"]), Folder::new());
        let mut config = config(&server, &folder);
        config.more.push_str("log: {format: human}\n");
        let gateway = config.start();
        eventually("ready", || (get(gateway.ops.unwrap(), "/readyz").status == 200).then_some(()));
        assert!(gateway.client(era, ANA).call("absent", &json!({})).code() < 0);
        gateway.says("DENY   ana");
        let said = gateway.said();
        let of_test = |line: &&str| line.contains("portcullis-selftest");
        assert!(said.lines().filter(of_test).count() > 20, "{said}");
        for line in said.lines() {
            let is_attack = ["DENY", "REFUSE", "FAIL"].iter().any(|word| line.contains(word));
            let is_marked = line.contains(" (self-test)");
            assert!(!of_test(&line) || is_marked || line.contains("INFO"), "{line}");
            assert!(!is_attack || is_marked || line.contains(" ana "), "{line}");
            assert!(!is_marked || !line.contains(" ana "), "{line}");
        }
    }
}

#[test]
fn the_log_is_queried_without_the_self_test_unless_that_is_asked_for() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["read"]), Folder::new());
        let config = config(&server, &folder);
        let gateway = config.start();
        eventually("ready", || (get(gateway.ops.unwrap(), "/readyz").status == 200).then_some(()));
        assert!(gateway.client(era, ANA).call("absent", &json!({})).code() < 0);
        // A stranger on its route is not the self-test.
        let stranger = Client::connect(gateway.address, "/portcullis-selftest", era, Some(ANA));
        assert!(stranger.call("selftest_plain", &json!({})).code() < 0);
        let mine = gateway.recorded("the call", |record| record["tool"] == "absent");
        let audit = |arguments: &[&str]| {
            let mut command = Command::new(binary());
            let output = command.arg("audit").args(arguments).arg(gateway.audit()).output();
            let output = output.unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(&output.stdout), text(&output.stderr))
        };
        let denied = ["query", "--outcome", "denied"];
        let (out, said) = audit(&denied);
        assert!(out.contains("denied ana tools/call absent") || out.contains("/absent"), "{out}");
        assert!(out.contains("selftest_plain") && out.lines().count() == 2, "{era:?}: {out}");
        let note = " records of the self-test left out: `--selftest` shows them";
        assert!(said.contains(note), "{said}");
        for whole in [
            &["query", "--outcome", "denied", "--selftest"][..],
            &["query", "--outcome", "denied", "--principal", "portcullis-selftest"],
            &["export", "--outcome", "denied", "--format", "jsonl"],
        ] {
            let (out, said) = audit(whole);
            assert!(
                out.lines().count() > 9 && !said.contains("left out"),
                "{whole:?}: {out}{said}"
            );
        }
        let (out, _) = audit(&["tail", "-n", "1000"]);
        assert!(!out.contains("selftest_secret") && out.contains(" selftest - (passed"), "{out}");
        assert!(!out.contains("server `portcullis-selftest`"), "{out}");
        // One that is asked for by its id is shown.
        let is_own = |record: &Value| record["principal"] == "portcullis-selftest";
        let own = gateway.recorded("one of its own", is_own);
        for id in [&own["id"], &mine["id"]] {
            let (out, _) = audit(&["query", "--id", id.as_str().unwrap()]);
            assert!(!out.is_empty(), "{id}");
        }
    }
}

#[test]
fn what_is_configured_out_is_missed() {
    let server = Server::echo(Era::Modern, &["read"]);
    let content = |text: &str| format!("rules:\n- {ALL}\ncontent:\n- {{servers: ['*'], {text}}}");
    let definitions = |text: &str| format!("rules:\n- {ALL}\ndefinitions: {{{text}}}");
    let cases: Vec<(String, String, &[&str])> = vec![
        (String::new(), "{mode: off}".to_owned(), &["pins/not-approved", "pins/changed"]),
        (
            format!("rules:\n- {ALL}\nshadowing: {{lookAlikes: off}}"),
            String::new(),
            &["shadowing/reserved-name"],
        ),
        (
            definitions("plantedInstructions: off"),
            String::new(),
            &["definitions/planted-instructions"],
        ),
        (definitions("hiddenCharacters: off"), String::new(), &["definitions/hidden-characters"]),
        (definitions("activeMarkup: off"), String::new(), &["definitions/active-markup"]),
        (definitions("secrets: off"), String::new(), &["definitions/secrets"]),
        (content("inputSchema: off"), String::new(), &["inputSchema/type"]),
        (content("outputSchema: off"), String::new(), &["outputSchema/type"]),
        (content("arguments: {secrets: off}"), String::new(), &["arguments/secrets"]),
        (content("arguments: {identifiers: off}"), String::new(), &["arguments/identifiers"]),
        (content("results: {secrets: off}"), String::new(), &["results/secrets"]),
        (content("results: {identifiers: off}"), String::new(), &["results/identifiers"]),
        (content("results: {contacts: off}"), String::new(), &["results/contacts"]),
        (
            content("results: {hiddenCharacters: off}"),
            String::new(),
            &["results/hidden-characters"],
        ),
        (content("results: {activeMarkup: off}"), String::new(), &["results/active-markup"]),
        (
            content("results: {plantedInstructions: off}"),
            String::new(),
            &["results/planted-instructions"],
        ),
    ];
    for (policy, pins, missed) in cases {
        let folder = Folder::new();
        let mut config = config(&server, &folder);
        if !policy.is_empty() {
            config = config.policy(&policy);
        }
        if !pins.is_empty() {
            config.pins = pins;
        }
        let gateway = config.start();
        let output = tested(&gateway, &config, &["--format", "json"]);
        let shown = json_of(&output);
        assert_eq!(bad(&shown), missed, "{policy}: {shown}");
        assert_eq!(output.status.code(), Some(6));
        let ready = get(gateway.ops.unwrap(), "/readyz?verbose");
        assert_eq!(ready.status, 503);
        assert!(ready.body.contains(&format!("selftest: {}", missed.join(", "))), "{}", ready.body);
        drop(gateway);
        // Said to be so, it is so.
        config.more = format!("selftest: {{skip: [{}]}}\n", missed.join(", "));
        let gateway = config.start();
        let output = tested(&gateway, &config, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn whoever_is_let_in_without_a_credential_is_noticed() {
    let (server, folder) = (Server::echo(Era::Modern, &["read"]), Folder::new());
    let mut config = config(&server, &folder);
    config.authentication = "[apiKey, anonymous]".to_owned();
    config.identity += "anonymous: {groups: [dev]}\n";
    let gateway = config.start();
    let shown = json_of(&tested(&gateway, &config, &["--format", "json"]));
    assert_eq!(bad(&shown), ["authentication/main"], "{shown}");
}

#[test]
fn its_name_is_kept_and_without_it_there_is_none() {
    let (server, folder) = (Server::echo(Era::Modern, &["read"]), Folder::new());
    let mut config = config(&server, &folder);
    let gateway = config.start();
    // Nobody who does not show the token.
    let text = "POST /selftest HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(raw(gateway.ops.unwrap(), text.as_bytes()).status, 401);
    drop(gateway);
    config.more = String::new();
    let gateway = config.start();
    assert_eq!(get(gateway.ops.unwrap(), "/readyz").status, 200);
    let output = tested(&gateway, &config, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("add `selftest: {}`"));
    config.servers += &format!("\n- {{name: portcullis-selftest, url: '{}'}}", server.url());
    let refused = config.refused();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("`portcullis-selftest` is kept for the self-test"), "{said}");
    config = self::config(&server, &folder);
    config.more = "selftest: {skip: [everything]}\n".to_owned();
    let said = String::from_utf8_lossy(&config.refused().stderr).into_owned();
    assert!(said.contains("`everything` is no control"), "{said}");
}

#[test]
fn what_others_say_and_do_makes_no_difference_to_it() {
    let folder = Folder::new();
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let mut config = config(&server, &folder).policy(&format!(
            "rules:\n- {ALL}\nconstraints:\n- {{servers: ['*'], tools: ['*'], argument: /tenant, type: any, required: true, mode: enforce}}"
        ));
        // A guardrail that is away, one place for requests, and lists of one tool.
        config.routes = "- {path: /mcp, servers: [up], guardrails: [{name: away, url: 'http://127.0.0.1:9/', onFailure: deny}]}".to_owned();
        config.limits = "inFlight: 1\ndefinitionsPerList: 1".to_owned();
        config.more = "selftest: {interval: 1s, skip: [guardrails]}\n".to_owned();
        let gateway = config.start();
        // Somebody takes the place and keeps it.
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let half = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
        stream.write_all(half.as_bytes()).unwrap();
        let shown = json_of(&tested(&gateway, &config, &["--format", "json"]));
        assert_eq!(bad(&shown), [""; 0], "{shown}");
        let asked = shown["attacks"].as_array().unwrap().iter();
        let asked = asked.clone().find(|row| row["name"] == "guardrails/asked").unwrap();
        assert_eq!(asked["excepted"], true, "{asked}");
        drop(stream);
    }
}

#[test]
fn a_change_is_attacked_before_it_is_ready() {
    let (server, folder) = (Server::echo(Era::Modern, &["read"]), Folder::new());
    let config = config(&server, &folder);
    let file = folder.path().join("gateway.yaml");
    let gateway = config.start_at(&file);
    let ready = |wanted: u16| {
        eventually("readiness", || {
            (get(gateway.ops.unwrap(), "/readyz").status == wanted).then_some(())
        });
    };
    ready(200);
    let mut other = self::config(&server, &folder);
    other.pins = "{mode: off}".to_owned();
    other.write(&file, gateway.audit());
    ready(503);
    config.write(&file, gateway.audit());
    ready(200);
}
