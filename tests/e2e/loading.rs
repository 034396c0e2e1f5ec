//! A list of tools that follows what its caller has found (`discovery.loads`): of this caller alone, bounded, told to whoever
//! listens, and only with what the caller may use now.

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;

use e2e::client::{Client, raw, until};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway, binary};
use e2e::server::{Server, greeting};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

use crate::compat;
use crate::discovery::{OURS, annotated, config, file_tools, mail_tools, reads, server};
use crate::revoking::{revoke, switchable};
use crate::transports::{data, message, unread};

const CHANGED: &str = "notifications/tools/list_changed";

/// The two servers on a route whose list has at most two tools that were found; bob may use all.
fn loading(files: &Server, mail: &Server) -> Config {
    let mut config = config(files, mail);
    let all =
        "\n- {id: all, effect: allow, principals: ['group:ops'], servers: ['*'], tools: ['*']}";
    config.policy.push_str(all);
    config.routes =
        "- {path: /mcp, servers: [files, mail], discovery: {mode: search, always: ['mail__l*'], \
                     loads: true, loadLimit: 2}}"
            .to_owned();
    config
}

/// The tools of servers in the list of a client.
fn has(client: &Client) -> Vec<String> {
    let mut tools = client.tools();
    let ours = tools.split_off(tools.len() - OURS.len());
    assert_eq!(ours, OURS);
    tools
}

/// The stream on which a client is told of changes; it says before that there are such changes.
fn listen(gateway: &Gateway, client: &Client) -> TcpStream {
    let hello = match client.era {
        Era::Legacy => client.hello(),
        Era::Modern => client.ask("server/discover", json!({})),
    };
    assert_eq!(hello.json()["result"]["capabilities"]["tools"]["listChanged"], true, "{hello:?}");
    if client.era == Era::Legacy {
        let mut stream = client.stream(None);
        until(&mut stream, "200 OK");
        return stream;
    }
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let body = client.message(&json!("listen"), "subscriptions/listen", wanted);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream.write_all(&client.bytes("subscriptions/listen", None, &body)).unwrap();
    let agreed = until(&mut stream, "\n\n");
    assert!(agreed.contains(r#""toolsListChanged":true"#), "{agreed}");
    stream
}

#[test]
fn a_list_follows_what_its_caller_has_found_and_no_other_caller() {
    for era in ERAS {
        let hidden = annotated("export_all", "Exports all customers.", &reads(), &["path!"]);
        let files = server(era, [file_tools(), vec![hidden]].concat());
        let (mail, folder) = (server(era, mail_tools()), Folder::new());
        let gateway = switchable(loading(&files, &mail), &folder).start();
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let mut stream = listen(&gateway, &ana);
        let find =
            |query: &str| drop(ana.call("find_tools", &json!({ "query": query, "limit": 1 })));
        let describe = |name: &str| drop(ana.call("describe_tool", &json!({ "name": name })));
        assert_eq!(has(&ana), ["mail__list_mail"]);
        find("read a text file");
        until(&mut stream, CHANGED);
        assert_eq!(has(&ana), ["read_file", "mail__list_mail"]);
        assert_eq!(gateway.last()["shown"], 7);
        // What changes nothing is not told, and what may not be used is not loaded.
        find("read a text file");
        describe("mail__list_mail");
        describe("export_all");
        describe("mail__send_mail");
        until(&mut stream, CHANGED);
        assert_eq!(has(&ana), ["read_file", "mail__send_mail", "mail__list_mail"]);
        // What was found first goes.
        describe("delete_file");
        until(&mut stream, CHANGED);
        assert_eq!(has(&ana), ["delete_file", "mail__send_mail", "mail__list_mail"]);
        assert_eq!(ana.call("delete_file", &json!({ "path": "a" })).text(), r#"{"path":"a"}"#);
        let listed = ana.ask("tools/list", json!({})).json()["result"].clone();
        assert!(listed["nextCursor"].is_null(), "{listed}");
        if era == Era::Modern {
            assert_eq!(listed["ttlMs"], 0);
        }
        // Another caller and another session have found nothing.
        assert_eq!(has(&bob), ["mail__list_mail"]);
        let again = gateway.client(era, ANA);
        let expected = if era == Era::Legacy { 1 } else { 3 };
        assert_eq!(has(&again).len(), expected, "{era:?}");
        drop(bob.call("describe_tool", &json!({ "name": "export_all" })));
        assert_eq!(has(&bob), ["export_all", "mail__list_mail"]);
        assert_eq!(has(&ana), ["delete_file", "mail__send_mail", "mail__list_mail"]);
        revoke(&gateway, &json!({ "tools": ["files/delete_file"] }));
        assert_eq!(has(&ana), ["mail__send_mail", "mail__list_mail"]);
        if era == Era::Legacy {
            let bytes = ana.bytes("", None, "");
            let bytes = [b"DELETE", bytes.strip_prefix(b"POST").unwrap()].concat();
            assert_eq!(raw(gateway.address, &bytes).status, 200);
            let rest = until(&mut stream, "0\r\n\r\n");
            assert!(!rest.contains(CHANGED), "one for each change: {rest}");
        }
    }
}

/// A server that lists two tools a page.
fn paged(era: Era) -> Server {
    Server::start(move |call, stream| {
        let bytes = match call.method() {
            "tools/call" => call.text(&call.body["params"]["arguments"].to_string()),
            "tools/list" => {
                let cursor = call.body["params"]["cursor"].as_str();
                let page = cursor.map_or(0, |page| page.parse::<usize>().unwrap());
                let tools = file_tools();
                let mut result = json!({
                    "resultType": "complete", "tools": &tools[2 * page..2 * page + 2],
                    "ttlMs": 0, "cacheScope": "private",
                });
                if page == 0 {
                    result["nextCursor"] = "1".into();
                }
                call.result(&result)
            }
            _ => greeting(call, era),
        };
        stream.write_all(&bytes).is_ok()
    })
}

/// The answer to a request of a client of HTTP+SSE, and the notifications before it.
fn told(stream: &mut std::io::BufReader<TcpStream>, id: u64) -> (Value, Vec<String>) {
    let mut methods = Vec::new();
    loop {
        #[expect(clippy::disallowed_methods, reason = "the gateway's output")]
        let said: Value = serde_json::from_str(&data(stream)).unwrap();
        if said["id"] == id {
            return (said, methods);
        }
        methods.extend(said["method"].as_str().map(str::to_owned));
    }
}

/// A client of HTTP+SSE finds the tool of a program, calls it, and is told on its stream that the list has it.
fn finds_over_http_and_sse(gateway: &Gateway) {
    let (mut stream, endpoint) = unread(gateway);
    let ask = |id: u64, method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        assert_eq!(raw(gateway.address, &message(gateway, &endpoint, &body)).status, 202);
    };
    let hello = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(raw(gateway.address, &message(gateway, &endpoint, &hello)).status, 202);
    let query =
        json!({ "name": "find_tools", "arguments": { "query": "add two numbers", "limit": 1 } });
    ask(1, "tools/call", query);
    let (answer, mut methods) = told(&mut stream, 1);
    let tool = &answer["result"]["structuredContent"]["tools"][0];
    assert_eq!(tool["name"], "add", "{answer}");
    let nested = json!({ "name": "add", "arguments": { "a": 1, "b": 2 } });
    ask(2, "tools/call", json!({ "name": tool["callWith"], "arguments": nested }));
    let (answer, more) = told(&mut stream, 2);
    assert_eq!(answer["result"]["content"][0]["text"], "3", "{answer}");
    methods.extend(more);
    ask(3, "tools/list", json!({}));
    let (answer, more) = told(&mut stream, 3);
    methods.extend(more);
    assert_eq!(answer["result"]["tools"][0]["name"], "add", "{answer}");
    // The gateway opens the stream of the session after `notifications/initialized`, and what changes before is not told:
    // the list, which has one tool, changes until it is.
    let mut id = 4;
    while !methods.iter().any(|method| method == CHANGED) {
        assert!(id < 2000, "{methods:?}");
        let name = ["echo", "time"][(id % 2) as usize];
        ask(id, "tools/call", json!({ "name": "describe_tool", "arguments": { "name": name } }));
        methods.extend(told(&mut stream, id).1);
        id += 1;
    }
}

#[test]
fn tools_are_found_on_all_pages_behind_programs_and_over_http_and_sse_and_ambiguous_ones_are_not() {
    for era in ERAS {
        let mut other = mail_tools();
        other.push(annotated("read_file", "Reads a text file.", &reads(), &["path!"]));
        let (files, mail) = (paged(era), server(era, other));
        let servers = format!(
            "- {{name: files, url: '{}'}}\n- {{name: mail, url: '{}'}}\n- {{name: near, command: '{}', args: [canary]}}",
            files.url(),
            mail.url(),
            binary().display()
        );
        let mut config = Config::with(&servers, "[files, mail, near]");
        config.routes = "- {path: /mcp, servers: [files, mail, near], prefix: never, httpSse: true, \
                         discovery: {mode: search, loads: true, loadLimit: 1}}\n\
                         - {path: /conflict, servers: [files, mail], prefix: onConflict, discovery: {mode: search}}"
            .to_owned();
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        let found = |client: &Client, query: &str| crate::discovery::found(client, query);
        // From the second page, and not what two servers have.
        assert_eq!(found(&ana, "search files for words")[0], "search_files");
        let listed = ana.tools();
        assert_eq!(listed[0], "search_files", "{listed:?}");
        assert!(!found(&ana, "read a text file").contains(&"read_file".to_owned()));
        let described = ana.call("describe_tool", &json!({ "name": "read_file" }));
        assert!(described.text().contains("No tool has this name."), "{described:?}");
        let nested = json!({ "name": "search_files", "arguments": { "query": "a" } });
        assert_eq!(ana.call("call_read_tool", &nested).text(), r#"{"query":"a"}"#);
        let conflict = crate::discovery::client(&gateway, "/conflict", era, ANA);
        let mut both = found(&conflict, "read a text file");
        both.truncate(2);
        both.sort();
        assert_eq!(both, ["files__read_file", "mail__read_file"]);
        let nested = json!({ "name": "files__read_file", "arguments": { "path": "a" } });
        assert_eq!(conflict.call("call_read_tool", &nested).text(), r#"{"path":"a"}"#);

        finds_over_http_and_sse(&gateway);
    }
}

#[test]
fn clients_of_sdks_are_told_of_what_they_have_found_and_call_it() {
    let (files, mail) = (server(Era::Legacy, file_tools()), server(Era::Modern, mail_tools()));
    let folder = Folder::new();
    let mut config = loading(&files, &mail);
    // The clients are one principal, whose finds without a session would be one list on one route.
    let route = |n: usize| {
        format!(
            "- {{path: /{n}, servers: [files, mail], discovery: {{mode: search, loads: true}}}}"
        )
    };
    config.routes = (0..compat::CLIENTS.len()).map(route).collect::<Vec<_>>().join("\n");
    let gateway = config.start();
    thread::scope(|scope| {
        for (n, client) in compat::CLIENTS.iter().enumerate() {
            let url = format!("http://{}/{n}", gateway.address);
            let unused = folder.path().join("unused");
            scope.spawn(move || {
                let seen = compat::run(client, &url, &unused, &["loads"]);
                let (is_right, got) = &seen["loads"];
                assert_eq!(*is_right, Some(true), "{} {}: {got}", client.name, client.era);
            });
        }
    });
}
