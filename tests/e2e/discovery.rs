//! Discovery: a route that shows few tools, and lets a model find, read and call the others inside the policy.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use e2e::client::{Answer, Client, raw};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

/// The tools of the gateway on a route with discovery, in the order of the list.
pub(crate) const OURS: [&str; 5] =
    ["find_tools", "describe_tool", "call_read_tool", "call_write_tool", "call_destructive_tool"];
/// What ana may use; of the servers' tools `export_all` and `drop_tables` are hidden.
const RULES: &str = "contact: sec@example.com\nrules:\n- {id: some, effect: allow, principals: ['group:dev'], servers: ['*'], \
                     tools: [read_file, write_file, delete_file, search_files, send_mail, list_mail]}";
/// A value that nobody has a reason to send.
const HONEY: &str = "hny7QxV2mK9pLw4Zt8Rb";
/// The same queries for every comparison.
const QUERIES: [&str; 6] = [
    "read a file",
    "send a message to somebody",
    "export all customers and drop every table",
    "remove something",
    "export_all",
    "天气 of the day",
];

/// A tool with annotations and string parameters; a parameter that ends in `!` is required.
pub(crate) fn annotated(
    name: &str,
    description: &str,
    annotations: &Value,
    parameters: &[&str],
) -> Value {
    let names = parameters.iter().map(|name| name.trim_end_matches('!'));
    let properties: serde_json::Map<_, _> =
        names.map(|name| (name.to_owned(), json!({ "type": "string" }))).collect();
    let required = parameters.iter().filter_map(|name| name.strip_suffix('!'));
    json!({
        "name": name, "description": description, "annotations": annotations,
        "inputSchema": {
            "type": "object", "properties": properties, "required": required.collect::<Vec<_>>(),
            "additionalProperties": false,
        },
    })
}

pub(crate) fn reads() -> Value {
    json!({ "readOnlyHint": true })
}

pub(crate) fn writes() -> Value {
    json!({ "destructiveHint": false })
}

pub(crate) fn file_tools() -> Vec<Value> {
    vec![
        annotated("read_file", "Reads a text file. Slowly.", &reads(), &["path!", "lines"]),
        annotated("write_file", "Writes a text into a file.", &writes(), &["path!", "text!"]),
        annotated("delete_file", "Deletes a file for good.", &json!({}), &["path!"]),
        annotated("search_files", "Searches files for words.", &reads(), &["query!"]),
    ]
}

pub(crate) fn mail_tools() -> Vec<Value> {
    vec![
        annotated("send_mail", "Sends a message by mail.", &writes(), &["to!", "body"]),
        annotated("list_mail", "Lists the messages of the inbox.", &reads(), &[]),
    ]
}

fn hidden_tools() -> Vec<Value> {
    vec![
        annotated("export_all", "Exports all customers into a file.", &reads(), &["path!"]),
        annotated("drop_tables", "Drops every table and removes all.", &json!({}), &[]),
    ]
}

/// A server whose tools give back the arguments that they got.
pub(crate) fn server(era: Era, tools: Vec<Value>) -> Server {
    Server::with(era, tools.into(), |call, stream| {
        let given = call.body["params"]["arguments"].to_string();
        stream.write_all(&call.text(&given)).is_ok()
    })
}

/// Two servers on a route without discovery and on one for each mode.
pub(crate) fn config(files: &Server, mail: &Server) -> Config {
    let servers = format!(
        "- {{name: files, url: '{}'}}\n- {{name: mail, url: '{}'}}",
        files.url(),
        mail.url()
    );
    let mut config = Config::with(&servers, "[files, mail]").policy(RULES);
    config.routes = "- {path: /mcp, servers: [files, mail]}\n\
                     - {path: /search, servers: [files, mail], discovery: {mode: search, always: ['mail__l*']}}\n\
                     - {path: /both, servers: [files, mail], discovery: {mode: both, limit: 3}}"
        .to_owned();
    config
}

pub(crate) fn client(gateway: &Gateway, path: &str, era: Era, key: &str) -> Client {
    Client::connect(gateway.address, path, era, Some(key))
}

/// The answer to a call with a fixed id, byte for byte.
fn exactly(client: &Client, name: &str, arguments: &Value) -> String {
    let params = json!({ "name": name, "arguments": arguments });
    let answer = raw(client.address, &client.call_bytes(&json!(7), &params));
    format!("{} {}", answer.status, answer.message())
}

/// The names in an answer of `find_tools`.
pub(crate) fn found(client: &Client, query: &str) -> Vec<String> {
    let answer = client.call("find_tools", &json!({ "query": query }));
    let tools = &answer.json()["result"]["structuredContent"]["tools"];
    let tools = tools.as_array().unwrap_or_else(|| panic!("{answer:?}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// An answer without what differs between two equal calls.
pub(crate) fn without_ids(answer: &Answer) -> (u16, Value) {
    let mut body = answer.json();
    body["id"] = Value::Null;
    if body["result"]["_meta"]["dev.portcullis/denial"].is_object() {
        body["result"]["_meta"]["dev.portcullis/denial"]["record"] = Value::Null;
    }
    (answer.status, body)
}

#[test]
fn the_list_has_the_tools_of_the_gateway_and_those_that_are_always_shown() {
    for era in ERAS {
        let files = server(era, [file_tools(), hidden_tools()].concat());
        let gateway = config(&files, &server(era, mail_tools())).start();
        let at = |path: &str| client(&gateway, path, era, ANA);
        let all = [
            "read_file",
            "write_file",
            "delete_file",
            "search_files",
            "mail__send_mail",
            "mail__list_mail",
        ];
        assert_eq!(at("/mcp").tools(), all);
        assert_eq!(at("/search").tools(), [&["mail__list_mail"][..], &OURS].concat());
        let last = gateway.last();
        assert_eq!((&last["shown"], &last["hidden"]), (&json!(6), &json!(2)), "{last}");
        assert_eq!(at("/both").tools(), [&all[..], &OURS].concat());
        let listed = at("/search").ask("tools/list", json!({})).json();
        let tools = listed["result"]["tools"].as_array().unwrap();
        let hints = |name: &str| {
            let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
            assert!(tool["inputSchema"]["type"] == "object" && tool["description"].is_string());
            let hints = &tool["annotations"];
            (hints["readOnlyHint"].as_bool().unwrap(), hints["destructiveHint"].as_bool().unwrap())
        };
        let expected = [(true, false), (true, false), (true, false), (false, false), (false, true)];
        assert_eq!(OURS.map(hints), expected);
        // To a caller that may use nothing, nothing is there.
        for path in ["/mcp", "/search", "/both"] {
            let bob = client(&gateway, path, era, BOB);
            assert!(bob.tools().is_empty(), "{path}");
            let unknown = without_ids(&bob.call("no_such_tool", &json!({})));
            for name in OURS {
                let answer = bob.call(name, &json!({ "name": "read_file", "query": "x" }));
                assert_eq!(without_ids(&answer), unknown, "{path} {name}");
            }
        }
        // Without discovery the names mean nothing.
        assert_eq!(gateway.last()["reason"], "unknown-tool");
        assert_eq!(at("/mcp").call("find_tools", &json!({ "query": "x" })).code(), -32602);
        assert!(files.tool_calls().is_empty());
    }
}

#[test]
fn a_tool_is_found_read_and_called_as_what_it_is() {
    for era in ERAS {
        let (files, mail) = (server(era, file_tools()), server(era, mail_tools()));
        let mut config = config(&files, &mail);
        config.more = format!("decoys:\n  honeytokens: [{{name: vault, value: {HONEY}}}]");
        let gateway = config.start();
        let ana = client(&gateway, "/search", era, ANA);
        let answer = ana.call("find_tools", &json!({ "query": "send a message to somebody" }));
        let text = answer.text();
        let first = text.lines().next().unwrap();
        let line = "[write] mail__send_mail(to: string, body?: string) -> Sends a message by mail.";
        assert_eq!(first, line, "{text}");
        let structured = &answer.json()["result"]["structuredContent"]["tools"][0];
        let expected = json!({
            "name": "mail__send_mail", "class": "write", "callWith": "call_write_tool",
            "signature": "mail__send_mail(to: string, body?: string)", "description": "Sends a message by mail.",
        });
        assert_eq!(structured, &expected);
        let last = gateway.last();
        assert_eq!((&last["tool"], &last["decision"]), (&json!("find_tools"), &json!("allow")));
        assert!(last["shown"].as_u64().unwrap() >= 1 && last["server"].is_null(), "{last}");
        // As the list has it, word for word.
        let described = ana.call("describe_tool", &json!({ "name": "mail__send_mail" })).json();
        let listed = client(&gateway, "/mcp", era, ANA).ask("tools/list", json!({})).json();
        let definition = &described["result"]["structuredContent"]["definition"];
        assert_eq!(definition, &listed["result"]["tools"][4]);
        let call = json!({ "name": "mail__send_mail", "arguments": { "to": "bob" } });
        let sent = ana.call("call_write_tool", &call);
        assert_eq!(sent.text(), r#"{"to":"bob"}"#, "{sent:?}");
        let last = gateway.last();
        assert_eq!((&last["tool"], &last["server"]), (&json!("mail__send_mail"), &json!("mail")));
        assert_eq!((&last["through"], &last["rule"]), (&json!("call_write_tool"), &json!("some")));
        assert!(last["mended"].is_null(), "{last}");
        // A tool that is in no list can be called by its name as before.
        assert_eq!(ana.call("read_file", &json!({ "path": "a" })).text(), r#"{"path":"a"}"#);
        assert!(gateway.last()["through"].is_null());
        assert_eq!((files.tool_calls().len(), mail.tool_calls().len()), (1, 1));
        for (tool, count) in [("find_tools", 1), ("describe_tool", 1), ("call_write_tool", 1)] {
            gateway
                .measures(&format!("portcullis_discovery_calls_total{{tool=\"{tool}\"}} {count}"));
        }
        let limited =
            ana.call("find_tools", &json!({ "query": "file or mail", "limit": 2 })).json();
        assert_eq!(limited["result"]["structuredContent"]["tools"].as_array().unwrap().len(), 2);
        assert_eq!(found(&client(&gateway, "/both", era, ANA), "file or mail").len(), 3);
        for arguments in [
            json!({}),
            json!({ "query": "" }),
            json!({ "query": 7 }),
            json!({ "query": "x".repeat(2049) }),
            json!({ "query": "x", "limit": 0 }),
            json!({ "query": "x", "limit": 51 }),
            json!({ "query": "x", "limit": "2" }),
            json!({ "query": "x", "servers": ["mail"] }),
        ] {
            let answer = ana.call("find_tools", &arguments);
            assert_eq!(answer.denial().unwrap()["reason"], "discovery-form", "{arguments}");
            assert!(answer.text().contains("Call find_tools with {"), "{answer:?}");
        }
        assert_eq!(gateway.last()["reason"], "discovery-form");
        let honey = ana.call("find_tools", &json!({ "query": format!("mail with {HONEY}") }));
        assert!(honey.text().contains("This may not be searched for."), "{honey:?}");
        assert!(gateway.last()["found"].to_string().contains("honeytoken"));
        assert!(
            ana.call("find_tools", &json!({ "query": "zzqx" })).text().contains("No tool fits.")
        );
    }
}

#[test]
fn what_a_caller_may_not_use_moves_no_byte_of_an_answer() {
    for era in ERAS {
        let decoys = "decoys:\n  tools: [{server: mail, name: send_all_mail, description: Sends all messages to somebody., \
                      shownTo: ['*']}]";
        let [with, without] = [hidden_tools(), Vec::new()].map(|hidden| {
            // Hidden tools before, between and behind the others.
            let is_hiding = !hidden.is_empty();
            let (mut tools, mut more) = (hidden.clone(), mail_tools());
            tools.extend(file_tools());
            more.splice(1..1, hidden);
            let mut config = config(&server(era, tools), &server(era, more));
            let all = "\n- {id: all, effect: allow, principals: ['group:ops'], servers: ['*'], tools: ['*']}";
            config.policy.push_str(all);
            config.more = decoys.to_owned();
            let gateway = config.start();
            // What another caller is shown, and finds, changes nothing for ana.
            let seen = found(&client(&gateway, "/search", era, BOB), QUERIES[2]);
            assert_eq!(seen.contains(&"export_all".to_owned()), is_hiding, "{seen:?}");
            gateway
        });
        let [ana, twin] = [&with, &without].map(|gateway| client(gateway, "/search", era, ANA));
        for (n, query) in QUERIES.into_iter().enumerate() {
            for limit in [1, 50] {
                let asked = json!({ "query": query, "limit": limit });
                let answer = exactly(&ana, "find_tools", &asked);
                assert_eq!(answer, exactly(&twin, "find_tools", &asked), "{n} {query}");
                for hidden in ["export_all", "drop_tables", "send_all_mail", "find_tools"] {
                    assert!(!answer.contains(hidden) || query == hidden, "{answer}");
                }
            }
        }
        let unknown = exactly(&ana, "describe_tool", &json!({ "name": "no_such_tool" }));
        assert!(unknown.contains("No tool has this name."), "{unknown}");
        for name in ["export_all", "mail__drop_tables", "mail__send_all_mail", "find_tools", ""] {
            let asked = json!({ "name": name });
            let strip = |text: String| text.split("\"record\":").next().unwrap().to_owned();
            let expected = strip(unknown.clone());
            assert_eq!(strip(exactly(&ana, "describe_tool", &asked)), expected, "{name}");
        }
        let unknown = exactly(&ana, "no_such_tool", &json!({}));
        for name in ["no_such_tool", "export_all", "mail__drop_tables", "mail__send_all_mail"] {
            let nested = json!({ "name": name, "arguments": { "path": "a" } });
            for class in ["call_read_tool", "call_write_tool", "call_destructive_tool"] {
                assert_eq!(exactly(&ana, class, &nested), unknown, "{class} {name}");
            }
            let beside = json!({ "name": name, "path": "a" });
            assert_eq!(exactly(&ana, "call_read_tool", &beside), unknown, "{name}");
        }
    }
}

#[test]
fn no_tool_of_a_server_has_the_name_of_a_tool_of_the_gateway() {
    for era in ERAS {
        let up = server(era, [OURS.map(tool).to_vec(), file_tools()].concat());
        let mut config = Config::of(&up.url());
        config.routes = "- {path: /mcp, servers: [up], discovery: {mode: both}}\n\
                         - {path: /prefixed, servers: [up], prefix: always, discovery: {mode: both}}"
            .to_owned();
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        let tools = ana.tools();
        assert_eq!(tools.iter().filter(|name| *name == "find_tools").count(), 1, "{tools:?}");
        let last = gateway.last();
        assert_eq!((&last["shown"], &last["hidden"]), (&json!(9), &json!(5)), "{last}");
        assert!(last["withheld"].to_string().contains("up/find_tools: discovery-name"), "{last}");
        gateway.says("on a route with discovery its name is that of a tool of the gateway");
        assert!(!found(&ana, "find tools").iter().any(|name| OURS.contains(&&**name)));
        drop(ana.call("describe_tool", &json!({ "name": "call_read_tool" })));
        drop(ana.call("call_write_tool", &json!({ "name": "find_tools", "arguments": {} })));
        assert!(up.tool_calls().is_empty());
        // With the name of its server in front it is another name.
        let prefixed = client(&gateway, "/prefixed", era, ANA);
        assert!(prefixed.tools().contains(&"up__find_tools".to_owned()));
        assert_eq!(prefixed.call("up__find_tools", &json!({})).code(), 0);
        assert_eq!(up.tool_calls().len(), 1);
    }
}

#[test]
fn a_definition_that_is_stuffed_with_words_gains_little() {
    for era in ERAS {
        let stuffed =
            "read file send mail delete search list write message inbox words text ".repeat(200);
        let mut tools = file_tools();
        tools.push(annotated("zz_sponge", &stuffed, &reads(), &[]));
        let mut config = config(&server(era, tools), &server(era, mail_tools()));
        config.policy = config.policy.replace("search_files", "search_files, zz_sponge");
        let gateway = config.start();
        let ana = client(&gateway, "/search", era, ANA);
        for (query, first) in [
            ("read a text file", "read_file"),
            ("send a message by mail", "mail__send_mail"),
            ("list my inbox", "mail__list_mail"),
        ] {
            assert_eq!(found(&ana, query).first().map(String::as_str), Some(first), "{query}");
        }
    }
}

#[test]
fn an_index_follows_what_is_listed_and_a_server_that_is_gone_is_named() {
    for era in ERAS {
        let version = std::sync::Arc::new(AtomicU64::new(0));
        let seen = std::sync::Arc::clone(&version);
        let files = Server::shifting(
            era,
            move |_| {
                let mut tools = file_tools();
                if seen.load(Ordering::SeqCst) > 0 {
                    tools.retain(|tool| tool["name"] != "search_files");
                    tools.push(annotated(
                        "translate",
                        "Translates a poem into Latin.",
                        &reads(),
                        &[],
                    ));
                }
                json!({ "tools": tools })
            },
            |_| json!({ "resultType": "complete", "content": [] }),
        );
        let mut config = config(&files, &server(era, mail_tools()));
        config.policy = config.policy.replace("search_files", "search_files, translate");
        config.servers.push_str("\n- {name: gone, url: 'http://127.0.0.1:1/mcp'}");
        config
            .routes
            .push_str("\n- {path: /gone, servers: [files, gone], discovery: {mode: search}}");
        let gateway = config.start();
        let ana = client(&gateway, "/search", era, ANA);
        assert!(found(&ana, "search files for words").contains(&"search_files".to_owned()));
        assert!(!found(&ana, "translate a poem into latin").contains(&"translate".to_owned()));
        version.store(1, Ordering::SeqCst);
        assert_eq!(found(&ana, "translate a poem into latin")[0], "translate");
        assert!(!found(&ana, "search files for words").contains(&"search_files".to_owned()));
        let ana = client(&gateway, "/gone", era, ANA);
        let answer = ana.call("find_tools", &json!({ "query": "read a file" }));
        assert!(
            answer.text().contains("Tools of these servers cannot be found now: gone."),
            "{answer:?}"
        );
        assert_eq!(answer.json()["result"]["structuredContent"]["missing"], json!(["gone"]));
    }
}

#[test]
fn tools_that_fit_alike_are_told_apart() {
    for era in ERAS {
        let get = |parameter: &str| {
            vec![annotated("get_record", "Gets the record of a customer.", &reads(), &[parameter])]
        };
        let servers = [get("email!"), get("number!")].map(|tools| server(era, tools));
        let listed = servers.iter().zip(["tickets", "crm-eu"]);
        let listed: Vec<_> = listed
            .map(|(server, name)| format!("- {{name: {name}, url: '{}'}}", server.url()))
            .collect();
        let mut config = Config::with(&listed.join("\n"), "[tickets, crm-eu]");
        config.routes =
            "- {path: /mcp, servers: [tickets, crm-eu], prefix: always, discovery: {mode: search}}"
                .to_owned();
        let gateway = config.start();
        let answer =
            gateway.client(era, ANA).call("find_tools", &json!({ "query": "customer record" }));
        let text = answer.text();
        assert!(text.contains("The first 2 fit alike"), "{text}");
        assert!(text.contains("crm-eu__get_record (of the server crm-eu, with number)"), "{text}");
        let close = &answer.json()["result"]["structuredContent"]["close"];
        assert_eq!(close.as_array().unwrap().len(), 2, "{close}");
    }
}

/// A definition of which a budget leaves a part.
fn wordy() -> Value {
    let mut wordy = annotated(
        "read_file",
        "Reads a text file. Never the one of a colleague. Paths are relative to the folder of the project. \
         The zebra crossing is at line seven.",
        &reads(),
        &["path!", "lines"],
    );
    wordy["inputSchema"]["properties"]["path"]["description"] = "Where the file is.".into();
    wordy["inputSchema"]["properties"]["lines"]["description"] =
        "How many lines are read, counted from the first one of the file.".into();
    wordy["_meta"] = json!({ "example.com/kept": 1 });
    wordy
}

/// The tool of a list with this name.
fn listed_as(client: &Client, name: &str) -> Value {
    let listed = client.ask("tools/list", json!({})).json();
    let tools = listed["result"]["tools"].as_array().unwrap();
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{listed}")).clone()
}

#[test]
fn descriptions_are_cut_to_their_budget_in_lists_and_whole_where_they_are_described() {
    for era in ERAS {
        let (folder, mut others) = (Folder::new(), file_tools());
        others.remove(0);
        let files = server(era, [vec![wordy()], others].concat());
        let mail = server(era, mail_tools());
        let mut config = config(&files, &mail);
        let own = "overrides: [{tool: list_mail, description: 'Lists the inbox. It shows the newest message first, and all of \
                   them.'}]";
        config.servers = config.servers.replace("{name: mail,", &format!("{{name: mail, {own},"));
        config.routes = "- {path: /mcp, servers: [files, mail]}\n\
                         - {path: /all, servers: [files, mail], discovery: {mode: both, descriptionTokens: 35}}\n\
                         - {path: /few, servers: [files, mail], discovery: {mode: search, always: [read_file, mail__list_mail], \
                           descriptionTokens: 8}}\n\
                         - {path: /none, servers: [files, mail], discovery: {mode: search, descriptionTokens: 8}}"
            .to_owned();
        let config = config.approved(&folder.path().join("portcullis.lock"));
        let gateway = config.start();
        let at = |path: &str| client(&gateway, path, era, ANA);
        let whole = listed_as(&at("/mcp"), "read_file");
        assert_eq!(whole, wordy());
        // Twice: cut, and from what was kept.
        for _ in 0..2 {
            // The sentence that limits the first one is not lost.
            let short =
                "Reads a text file. Never the one of a colleague. … describe_tool has the rest.";
            let mut expected = wordy();
            expected["description"] = short.into();
            expected["_meta"]["dev.portcullis/shortened"] = true.into();
            assert_eq!(listed_as(&at("/all"), "read_file"), expected);
            // With less, what parameters are goes as well, and nothing else of the schema.
            for parameter in ["path", "lines"] {
                let schema = &mut expected["inputSchema"]["properties"][parameter];
                schema.as_object_mut().unwrap().remove("description");
            }
            assert_eq!(listed_as(&at("/few"), "read_file"), expected);
            // The operator's words are cut like those of a server, and what is short stays byte for byte.
            let listed = listed_as(&at("/few"), "mail__list_mail");
            assert_eq!(listed["description"], "Lists the inbox. … describe_tool has the rest.");
            assert_eq!(
                listed_as(&at("/all"), "delete_file"),
                listed_as(&at("/mcp"), "delete_file")
            );
        }
        for path in ["/all", "/few", "/none"] {
            let described = at(path).call("describe_tool", &json!({ "name": "read_file" })).json();
            assert_eq!(described["result"]["structuredContent"]["definition"], whole, "{path}");
            // What is cut is found all the same.
            assert_eq!(found(&at(path), "zebra crossing").first().unwrap(), "read_file", "{path}");
        }
        assert_eq!(at("/none").tools(), OURS);
        assert_eq!(at("/all").call("read_file", &json!({ "path": "a" })).text(), r#"{"path":"a"}"#);
        let tokens = |route: &str, server: &str, list: &str| {
            let labels = format!("{{route=\"{route}\",server=\"{server}\",list=\"{list}\"}}");
            gateway.metric(&format!("portcullis_list_tokens{labels}"))
        };
        let full = tokens("/mcp", "files", "shown");
        assert_eq!(tokens("/mcp", "files", "full"), full);
        for (path, shown) in [("/all", 1..full), ("/few", 1..full), ("/none", 0..1)] {
            assert_eq!(tokens(path, "files", "full"), full, "{path}");
            assert!(shown.contains(&tokens(path, "files", "shown")), "{path}");
            let own = [tokens(path, "_gateway", "shown"), tokens(path, "_gateway", "full")];
            assert!(own[0] > 100 && own[1] == 0, "{path} {own:?}");
        }
        assert!(tokens("/few", "files", "shown") < tokens("/all", "files", "shown"));
        assert!(!gateway.metrics_now().contains("route=\"/mcp\",server=\"_gateway\""));
    }
}

#[test]
fn mistakes_about_discovery_are_named() {
    let up = Server::echo(Era::Modern, &["read"]);
    let mut config = Config::of(&up.url());
    for (discovery, said) in [
        ("{mode: search, limit: 0}", "cannot answer 0 tools"),
        ("{mode: both, limit: 51}", "cannot answer 51 tools"),
        ("{mode: both, always: [read]}", "only the mode `search` leaves tools out"),
        ("{mode: search, always: ['']}", "no tool can have this name"),
        ("{mode: both, loads: true}", "only with the mode `search` tools are missing in lists"),
        ("{mode: search, loads: true, loadLimit: 0}", "cannot have 0 tools that were found"),
        ("{mode: search, loadLimit: 9}", "no list follows what was found"),
        ("{mode: search, rate: often}", "`often` is not a rate"),
        ("{descriptionTokens: 60}", "the route has no `describe_tool`"),
        ("{mode: both, descriptionTokens: 0}", "cannot have 0 tokens"),
        ("{mode: search, descriptionTokens: 10001}", "cannot have 10001 tokens"),
        ("{mode: find}", "use one of `off`, `search`, `both`"),
    ] {
        config.routes = format!("- {{path: /mcp, servers: [up], discovery: {discovery}}}");
        let refused = config.refused();
        let text = e2e::gateway::printed(&refused) + &String::from_utf8_lossy(&refused.stderr);
        assert!(text.contains(said), "{discovery}: {text}");
    }
}
