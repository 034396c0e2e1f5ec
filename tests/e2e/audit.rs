//! The record: one line for every exchange, before and after, and no call without it.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};

use e2e::client::{get, post, raw};
use e2e::gateway::{ANA, Config, Folder, Gateway, binary, printed};
use e2e::server::{Server, greeting};
use e2e::{ERAS, Era, eventually};
use serde_json::json;

/// A server that takes time and then fails has taken that time, and not the gateway.
#[test]
fn the_time_of_a_server_that_does_not_answer_is_not_the_gateways() {
    for era in ERAS {
        let server = Server::start(move |call, stream| {
            call.method() == "tools/list" || stream.write_all(&greeting(call, era)).is_ok()
        });
        let gateway = Config::of(&server.url()).limits("responseTimeout: 1s").start();
        let ana = gateway.client(era, ANA);
        for (method, params) in
            [("tools/list", json!({})), ("tools/call", json!({ "name": "work", "arguments": {} }))]
        {
            drop(ana.ask(method, params));
            let record = gateway.last();
            let time = |of: &str| record["durationMicros"][of].as_u64().unwrap();
            assert_eq!(record["method"], method, "{record}");
            assert!(time("upstream") > 900_000, "{era:?}: {record}");
            assert!(time("gateway") < time("total") / 2, "{era:?}: {record}");
        }
    }
}

#[test]
fn a_call_is_on_record_before_it_is_made_and_after() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let traced = json!({ "name": "read", "arguments": { "text": "x" },
            "_meta": { "traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01" } });
        assert_eq!(ana.ask("tools/call", traced).status, 200);
        let records = gateway.records();
        let [.., intent, exchange] = &records[..] else { panic!("{records:?}") };
        assert_eq!((&intent["event"], &exchange["event"]), (&json!("intent"), &json!("exchange")));
        for key in [
            "id",
            "time",
            "principal",
            "server",
            "tool",
            "argumentDigest",
            "rule",
            "policy",
            "trace",
        ] {
            assert!(intent[key].is_string() && intent[key] == exchange[key], "{key}");
        }
        assert_eq!(exchange["trace"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(
            (&exchange["principal"], &exchange["scheme"]),
            (&json!("ana"), &json!("apiKey"))
        );
        assert_eq!((&exchange["route"], &exchange["decision"]), (&json!("/mcp"), &json!("allow")));
        assert_eq!(exchange["era"], if era == Era::Modern { "modern" } else { "legacy" });
        let durations = &exchange["durationMicros"];
        let part = |key: &str| durations[key].as_u64().unwrap();
        assert!(
            part("gateway") + part("upstream") <= part("total") + 1 && part("upstream") > 0,
            "{durations}"
        );
        assert!(
            exchange["bytesIn"].as_u64().unwrap() > 50
                && exchange["bytesOut"].as_u64().unwrap() > 50
        );
        // Equal arguments have equal digests within a run, and the digest is keyed.
        assert_eq!(
            ana.ask("tools/call", json!({ "name": "read", "arguments": { "text": "x" } })).status,
            200
        );
        assert_eq!(gateway.last()["argumentDigest"], exchange["argumentDigest"]);
        let other = Config::of(&server.url()).start();
        assert_eq!(
            other
                .client(era, ANA)
                .ask("tools/call", json!({ "name": "read", "arguments": { "text": "x" } }))
                .status,
            200
        );
        assert_ne!(other.last()["argumentDigest"], exchange["argumentDigest"]);
    }
}

#[test]
fn what_was_never_understood_is_on_record_too() {
    let server = Server::echo(Era::Modern, &["read"]);
    let gateway = Config::of(&server.url()).start();
    let host = gateway.address.to_string();
    let nobody = raw(gateway.address, &post("/mcp", &[("host", &host)], "{"));
    assert_eq!(nobody.status, 401);
    let record = gateway.last();
    assert_eq!(
        (&record["reason"], &record["outcome"], &record["status"]),
        (&json!("credential-missing"), &json!("refused"), &json!(401))
    );
    assert!(record["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(record["principal"].is_null());
    // A name that tries to write a line of its own.
    let ana = gateway.client(Era::Modern, ANA);
    let nasty = "x\n{\"event\":\"exchange\"}\u{202e}\u{1b}[2J";
    let body = ana.message(&json!(1), "tools/call", json!({ "name": nasty }));
    let bytes =
        ana.bytes("tools/call", Some("=?base64?eAp7ImV2ZW50IjoiZXhjaGFuZ2UifeKArhtbMko=?="), &body);
    assert_eq!(raw(gateway.address, &bytes).code(), -32602);
    assert_eq!(gateway.last()["tool"], nasty, "whole, and in one line");
}

#[test]
fn without_a_record_there_is_no_call() {
    for era in ERAS {
        let folder = Folder::new();
        let pipe = folder.path().join("audit.pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Opened for both so that neither end waits for the other.
        let reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let server = Server::echo(era, &["read"]);
        let mut config = Config::of(&server.url());
        config.audit = Some(pipe.clone());
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        assert!(ana.call("read", &json!({})).json()["result"].is_object());
        assert_eq!(ana.tools(), ["read"]);
        drop(reader);
        // Another test may be starting a program and hold a copy of the reader for an instant.
        eventually("the sink to fail", || {
            (ana.call("read", &json!({})).code() == -32603).then_some(())
        });
        let before = server.calls().len();
        let refused = ana.call("read", &json!({}));
        assert_eq!(refused.code(), -32603, "{}", refused.body);
        assert_eq!(refused.status, if era == Era::Modern { 503 } else { 200 });
        assert_eq!(ana.ask("tools/list", json!({})).code(), -32603);
        assert_eq!(server.calls().len(), before, "nothing reached the server");
        assert_eq!(get(gateway.ops.unwrap(), "/readyz").status, 503);
        let metrics = gateway.metrics();
        assert!(!metrics.contains("portcullis_audit_failures_total 0"), "{metrics}");
        // It works again as soon as it can.
        let reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        assert!(ana.call("read", &json!({})).json()["result"].is_object());
        assert_eq!(get(gateway.ops.unwrap(), "/readyz").status, 200);
        drop(gateway);
        drop(reader);
    }
}

#[test]
fn a_log_that_may_not_grow_stops_calls_and_not_the_gateway() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        assert!(ana.call("read", &json!({})).json()["result"].is_object());
        let text = fs::read_to_string(gateway.audit()).unwrap();
        let intent = text.lines().rfind(|line| line.contains("\"event\":\"intent\"")).unwrap();
        let length = || fs::metadata(gateway.audit()).unwrap().len();
        let ready = || get(gateway.ops.unwrap(), "/readyz").status;
        let before = server.calls().len();
        // Room for nothing, for a byte, and for every record that is shorter than that of a call.
        for room in [0, 1, intent.len() as u64 - 1] {
            gateway.limit_files(Some(length() + room));
            for _ in 0..3 {
                let refused = ana.call("read", &json!({}));
                assert_eq!(refused.code(), -32603, "{room}: {}", refused.body);
                let status = if era == Era::Modern { 503 } else { 200 };
                assert_eq!(refused.status, status, "{room}: {}", refused.body);
                assert_eq!(ready(), 503, "{room}");
            }
            assert_eq!(server.calls().len(), before, "{room}: nothing reached the server");
        }
        gateway.limit_files(None);
        assert_eq!(ready(), 200);
        assert!(ana.call("read", &json!({})).json()["result"].is_object());
        assert_eq!(ready(), 200);
        // Every line is whole.
        assert!(gateway.log().len() > text.lines().count());
    }
}

#[test]
fn a_sink_that_takes_nothing_stops_the_start() {
    let server = Server::echo(Era::Modern, &["read"]);
    for (file, expected) in [
        (
            "/dev/full",
            "could not write the first audit record: the audit sink `file` did not take the record: ",
        ),
        (
            "/no/such/folder/audit",
            "could not open the audit sink `file`: `/no/such/folder/audit`: No such file or directory",
        ),
    ] {
        let mut config = Config::of(&server.url());
        config.audit = Some(file.into());
        let output = config.refused();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(expected), "{said}");
    }
    let mut config = Config::of(&server.url());
    config.auditing = "checkpoints: {file: /dev/full}".to_owned();
    let output = config.refused();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "the audit sink `checkpoints` did not take the record: No space left on device";
    assert!(said.contains(expected), "{said}");
}

/// The binary, for a user to whom permissions apply: a superuser without capabilities is one.
fn unprivileged() -> Command {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Command::new(binary());
    }
    let mut command = Command::new("setpriv");
    command.arg("--bounding-set=-all").arg(binary());
    command
}

#[test]
fn a_log_that_cannot_be_written_is_named_with_what_to_do_before_a_start_and_at_it() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (file, closed) = (folder.path().join("gateway.yaml"), folder.path().join("closed"));
    fs::create_dir(&closed).unwrap();
    let log = closed.join("audit.jsonl");
    Config::of(&server.url()).write(&file, &log);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let said = |verb: &str| {
        let mut command = unprivileged();
        command.args([verb, "-c"]).arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        eventually("its end", || child.try_wait().unwrap());
        let output = child.wait_with_output().unwrap();
        (output.status.code(), printed(&output))
    };
    let (code, text) = said("run");
    let expected = format!("could not open the audit sink `file`: `{}`: Permission", log.display());
    assert!(code == Some(1) && text.contains(&expected), "{text}");
    assert!(text.contains("help: the user that the gateway runs as"), "{text}");
    assert!(text.contains("`portcullis doctor -c "), "{text}");
    let (code, text) = said("validate");
    let expected =
        format!("warning: audit file: the folder `{}` cannot be written in", closed.display());
    assert!(code == Some(0) && text.contains(&expected) && text.contains("valid\n"), "{text}");
    // For another machine this one says nothing.
    let output = unprivileged().args(["validate", "--elsewhere", "-c"]).arg(&file).output();
    assert!(!printed(&output.unwrap()).contains("cannot be written"));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    let (code, text) = said("validate");
    assert!(code == Some(0) && !text.contains("cannot be written"), "{text}");
}

#[test]
fn a_log_that_cannot_be_rotated_goes_on_in_its_file_and_that_is_told() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let folder = Folder::new();
        let (file, place) = (folder.path().join("gateway.yaml"), folder.path().join("log"));
        let log = place.join("audit.jsonl");
        fs::create_dir(&place).unwrap();
        let mut config = Config::of(&server.url());
        config.sink = "rotate: {maxSize: 64KiB}".to_owned();
        config.write(&file, &log);
        let mut command = unprivileged();
        command.args(["run", "-c"]).arg(&file);
        let gateway = Gateway::spawn(command, folder, log);
        let mode = |mode: u32| {
            fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o555);
        let ana = gateway.client(era, ANA);
        eventually("a rotation that fails", || {
            assert!(ana.call("read", &json!({})).json()["result"].is_object(), "{era:?}");
            gateway.said().contains("audit.rotation_failed").then_some(())
        });
        assert!(ana.call("read", &json!({})).json()["result"].is_object(), "{era:?}");
        assert_eq!(get(gateway.ops.unwrap(), "/readyz").status, 200, "{era:?}");
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "{era:?}");
        mode(0o755);
    }
}

#[test]
fn lines_of_many_calls_at_once_do_not_mix() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let file = folder.path().join("audit.jsonl");
    let mut config = Config::of(&server.url());
    config.audit = Some(file.clone());
    let gateway = config.start();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let ana = gateway.client(Era::Modern, ANA);
                for _ in 0..25 {
                    assert_eq!(ana.call("read", &json!({})).status, 200);
                }
            });
        }
    });
    assert_eq!(gateway.exchanges().len(), 200);
    let intents = gateway.records().iter().filter(|r| r["event"] == "intent").count();
    assert_eq!(intents, 200);
    let mut ids: Vec<_> =
        gateway.exchanges().iter().map(|r| r["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 200);
    assert_eq!(
        BufReader::new(File::open(file).unwrap())
            .lines()
            .filter(|line| !line.as_ref().unwrap().contains("\"checkpoint\""))
            .count(),
        401
    );
}

#[test]
fn what_is_secret_in_a_uri_is_neither_on_record_nor_in_the_log() {
    for era in ERAS {
        let server = Server::offering(
            era,
            json!({ "resources": [] }),
            |_| json!({ "contents": [{ "uri": "https://files.example/a", "text": "t" }] }),
        );
        let gateway = Config::of(&server.url())
            .policy(
                "rules:\n- {id: open, effect: allow, principals: ['group:dev'], servers: ['*'], \
                 tools: ['*'], resources: ['https://*']}",
            )
            .start();
        let ana = gateway.client(era, ANA);
        let uri = "https://ana:hunter2-of-ana@files.example/a?page=2&access_token=tk-4711#part";
        drop(ana.ask("resources/read", json!({ "uri": uri })));
        let record = gateway.recorded("the request", |r| r["method"] == "resources/read");
        assert_eq!(record["resource"], "https://***@files.example/a?page=2&access_token=***#part");
        // The name of a tool, a method and an id are what a caller likes as well.
        drop(ana.call(uri, &json!({})));
        let body = ana.message(&json!(uri), "tools/call", json!({ "name": "none" }));
        drop(raw(gateway.address, &ana.bytes("tools/call", Some("none"), &body)));
        drop(ana.ask(uri, json!({})));
        let written = fs::read_to_string(gateway.audit()).unwrap();
        assert!(written.matches("files.example").count() >= 3, "{written}");
        for secret in ["hunter2", "tk-4711"] {
            assert!(!written.contains(secret), "{secret} in {written}");
            let log = gateway.said();
            assert!(!log.contains(secret), "{secret} in {log}");
        }
    }
}

#[test]
fn a_line_about_a_stranger_says_from_where_and_to_which_route() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let gateway = Config::of(&server.url()).start();
        let headers = [("host", "localhost"), ("authorization", "Bearer wrong")];
        for path in ["/mcp", "/elsewhere"] {
            assert_eq!(raw(gateway.address, &post(path, &headers, "{}")).status, 401);
        }
        let query = |reason: &str| {
            let mut command = Command::new(binary());
            command.args(["audit", "query", "--reason", reason]).arg(gateway.audit());
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let said = query("credential-refused");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines.iter().all(|line| line.contains("refused - from 127.0.0.1:")), "{said}");
        assert!(lines[0].contains(" /mcp (credential-refused)"), "{said}");
        assert!(lines[1].contains(" to no route (credential-refused)"), "{said}");
    }
}

#[test]
fn a_query_shows_quotation_marks_as_they_are_and_how_a_request_without_a_method_came() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        assert!(ana.call("{\"tools\": 'x'}\\", &json!({})).code() < 0);
        if era == Era::Legacy {
            let _stream = ana.stream(None);
            let http = |name: &str| {
                let is = |record: &serde_json::Value| record["httpMethod"] == name;
                gateway.recorded(name, |record| is(record) && record["outcome"] == "answered")
            };
            assert_eq!(http("GET")["principal"], "ana");
            let delete = String::from_utf8(ana.bytes("x", None, "")).unwrap();
            let delete = delete.replacen("POST", "DELETE", 1);
            assert_eq!(raw(gateway.address, delete.as_bytes()).status, 200);
            assert!(http("DELETE")["method"].is_null());
        }
        let query = |arguments: &[&str]| {
            let mut command = Command::new(binary());
            command.args(["audit", "query"]).args(arguments).arg(gateway.audit());
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let said = query(&[]);
        assert!(said.contains(r#"ana tools/call up/{"tools": 'x'}\\ "#), "{era:?}: {said}");
        for method in ["GET", "DELETE"] {
            let line = format!(" answered ana {method}");
            assert_eq!(said.contains(&line), era == Era::Legacy, "{method}: {said}");
        }
        // What has a method of MCP has that alone, and JSON is as it was.
        let calls = query(&["--method", "tools/call", "--format", "jsonl"]);
        let call: serde_json::Value = calls.lines().next().unwrap().parse().unwrap();
        assert_eq!(call["tool"], "{\"tools\": 'x'}\\", "{calls}");
        assert!(call["httpMethod"].is_null(), "{calls}");
    }
}

#[test]
fn a_query_for_what_no_log_has_is_refused_with_the_nearest_name() {
    let folder = Folder::new();
    let file = folder.path().join("audit.jsonl");
    let record = |event: &str, reason: &str| {
        let found = ["server-requests at ``: ask-secret"];
        json!({ "event": event, "reason": reason, "outcome": "denied", "found": found }).to_string()
            + "\n"
    };
    let log = [record("exchange", "forbidden"), record("torn", "framing")].concat();
    fs::write(&file, log).unwrap();
    let query = |option: &str, value: &str| {
        let mut command = Command::new(binary());
        command.args(["audit", "query", "--format", "json", option, value]).arg(&file);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    for (option, wrong, near, other) in [
        ("--reason", "forbiden", "forbidden", "upstream-connect"),
        ("--event", "revokd", "revoked", "exchange"),
        ("--found", "secret", "secrets", "server-request-url"),
    ] {
        let (code, _, said) = query(option, wrong);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&format!("'{near}'")) && said.contains(other), "{said}");
        // Former names are not proposed.
        assert!(!said.contains("ask-url") && !said.contains("torn"), "{said}");
    }
    // What is known matches, also by the name that an earlier version wrote.
    for (option, value, count) in [
        ("--reason", "forbidden", 1),
        ("--reason", "framing", 1),
        ("--event", "torn", 1),
        ("--found", "ask-secret", 2),
        ("--found", "server-requests", 2),
        ("--found", "guardrail", 0),
        ("--reason", "server-request-url", 0),
    ] {
        let (code, shown, said) = query(option, value);
        assert_eq!((code, shown.lines().count()), (Some(0), count), "{option} {value}: {said}");
    }
}

#[test]
fn a_query_that_finds_nothing_names_the_principal_of_an_issuer_that_may_be_meant() {
    let folder = Folder::new();
    let file = folder.path().join("audit.jsonl");
    let query = |principals: &[String], more: &[&str]| {
        let record = |principal: &String| json!({ "event": "exchange", "principal": principal, "outcome": "answered" });
        let records: Vec<_> = principals.iter().map(|one| record(one).to_string()).collect();
        fs::write(&file, records.join("\n") + "\n").unwrap();
        let mut command = Command::new(binary());
        command.args(["audit", "query", "--principal", "ana"]).args(more).arg(&file);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        printed(&output)
    };
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let said = query(&named(&["bob", "idp/ana"]), &[]);
    assert!(said.contains("no record matches; did you mean `--principal idp/ana`?"), "{said}");
    // The hint can be pasted.
    let said = query(&named(&["my idp/ana"]), &[]);
    assert!(said.contains("did you mean `--principal 'my idp/ana'`?"), "{said}");
    // Nothing is meant where several are possible, where the name is known, and where not all are remembered.
    let many = (0..1000).map(|n| format!("caller-{n}"));
    let many = named(&["idp/ana"]).into_iter().chain(many).collect::<Vec<_>>();
    let denied = ["--outcome", "denied"];
    for (principals, more) in [
        (named(&["bob"]), &[][..]),
        (named(&["idp/ana", "corp/ana"]), &[]),
        (named(&["ana", "idp/ana"]), &denied),
        (many, &[]),
    ] {
        let said = query(&principals, more);
        assert_eq!(said, "no record matches\n", "{principals:?}");
    }
}

#[test]
fn where_there_is_no_log_the_one_of_a_process_for_one_client_is_named() {
    let folder = Folder::new();
    let file = folder.path().join("audit.jsonl");
    let read = |verb: &str| {
        let output = Command::new(binary()).args(["audit", verb]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        printed(&output)
    };
    let hint = "`portcullis stdio` by itself records to logs of its own, such as `";
    for verb in ["verify", "query", "tail"] {
        let said = read(verb);
        assert!(said.contains("could not read `") && !said.contains(hint), "{verb}: {said}");
    }
    let own = folder.path().join("audit.jsonl.stdio-3");
    fs::write(&own, "").unwrap();
    for verb in ["verify", "query", "tail"] {
        let said = read(verb);
        assert!(said.contains(&format!("{hint}{}`", own.display())), "{verb}: {said}");
    }
}

#[test]
fn a_record_of_a_process_for_one_client_is_found_beside_the_log() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        assert_eq!(gateway.client(era, ANA).call("nope", &json!({})).code(), -32602);
        let id = gateway.last()["id"].as_str().unwrap().to_owned();
        let folder = Folder::new();
        let (file, own) =
            (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.stdio-2"));
        fs::write(&file, "").unwrap();
        fs::copy(gateway.audit(), &own).unwrap();
        let query = |arguments: &[&str]| {
            let mut command = Command::new(binary());
            command.args(["audit", "query"]).arg(&file).args(arguments).output().unwrap()
        };
        let output = query(&["--id", &id]);
        assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
        let found = format!("`portcullis audit query {} --id {id}`", own.display());
        assert!(printed(&output).contains(&found), "{}", printed(&output));
        let not_read = format!("note: not read: `{}`, ", own.display());
        let output = query(&["--outcome", "denied", "--since", "1h"]);
        assert!(printed(&output).contains(&not_read), "{}", printed(&output));
        assert!(printed(&query(&["--id", "nobodys"])).contains(&not_read));
        let both = query(&[own.to_str().unwrap(), "--outcome", "denied"]);
        let text = printed(&both);
        assert!(text.contains("up/nope") && !text.contains("not read"), "{text}");
    }
}
