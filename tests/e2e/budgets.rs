//! Budgets of calls, identical calls, and gateways behind gateways (control C16).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use e2e::client::{Answer, Client};
use e2e::gateway::{ANA, BOB, Config, printed};
use e2e::server::{Server, answer, tool};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

const OPEN: &str = "contact: sec@example.com\nrules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], \
                    tools: ['*'], resources: ['*']}";

fn server(era: Era) -> Server {
    let tools = json!([tool("read"), tool("write"), tool("other")]);
    Server::with(era, tools, |call, stream| {
        let text = call.body["params"]["arguments"]["text"].as_str().unwrap_or("done");
        stream.write_all(&call.text(text)).is_ok()
    })
}

fn config(server: &Server, more: &str) -> Config {
    let mut config = Config::of(&server.url()).policy(OPEN);
    config.more = more.to_owned();
    config
}

/// Why a call was denied; `None` if it was answered.
fn refusal(client: &Client, tool: &str, arguments: &Value) -> Option<String> {
    let answer = client.call(tool, arguments);
    assert_eq!(answer.code(), 0, "{answer:?}");
    let denial = answer.denial()?;
    assert!(denial["retryAfter"].as_u64().unwrap() > 0, "{denial}");
    assert_eq!(answer.header("retry-after"), Some(denial["retryAfter"].to_string().as_str()));
    Some(denial["reason"].as_str().unwrap().to_owned())
}

#[test]
fn calls_bytes_and_cost_have_budgets_and_the_refusal_names_the_key() {
    for era in ERAS {
        let server = server(era);
        for (budgets, registry, allowed, key) in [
            ("{name: few, window: 1h, calls: 3}", "", 3, "budgets[0].calls"),
            (
                "{name: few, window: 1h, cost: 7}",
                "{server: up, tool: read, cost: 3}",
                2,
                "budgets[0].cost",
            ),
            (
                "{name: all, window: 1h, calls: 100}, {name: few, window: 1h, bytes: 40B}",
                "",
                1,
                "budgets[1].bytes",
            ),
        ] {
            let more = format!("budgets: [{budgets}]\nregistry: {{tools: [{registry}]}}");
            let gateway = config(&server, &more).start();
            let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
            let before = server.tool_calls().len();
            for _ in 0..allowed {
                assert_eq!(refusal(&ana, "read", &json!({})), None, "{budgets} {era:?}");
            }
            assert_eq!(refusal(&ana, "read", &json!({})).as_deref(), Some("budget-exceeded"));
            let answer = ana.call("read", &json!({}));
            assert!(
                answer.text().contains(&format!("the budget `few` (`{key}`) is used up")),
                "{}",
                answer.text()
            );
            let last = gateway.last();
            assert_eq!(
                (&last["reason"], &last["budget"]),
                (&json!("budget-exceeded"), &json!("few"))
            );
            assert_eq!(server.tool_calls().len() - before, allowed);
            assert_eq!(refusal(&bob, "read", &json!({})), None, "another principal has its own");
            assert_eq!(gateway.metric("portcullis_budgets_exceeded_total"), 2);
        }
    }
}

#[test]
fn a_budget_of_bytes_counts_all_that_goes_to_the_server_and_comes_from_it() {
    let long = "x".repeat(3000);
    for era in ERAS {
        let said = "y".repeat(3000);
        let server = Server::with(era, json!([tool("read")]), move |call, stream| {
            let params = &call.body["params"];
            let token = &params["_meta"]["progressToken"];
            if params["arguments"]["tell"] != true {
                return stream.write_all(&call.text("done")).is_ok();
            }
            let told = json!({ "progressToken": token, "progress": 1, "message": said });
            let told =
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": told });
            let result = json!({ "resultType": "complete", "content": [] });
            let result = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result });
            let events = format!("data: {told}\n\ndata: {result}\n\n");
            stream.write_all(&answer("200 OK", "text/event-stream", &events)).is_ok()
        });
        for params in [
            json!({ "name": "read", "arguments": { "text": long } }),
            json!({ "name": "read", "arguments": {}, "more": long }),
            json!({ "name": "read", "arguments": {}, "_meta": { "com.example/more": long } }),
            json!({ "name": "read", "arguments": { "tell": true }, "_meta": { "progressToken": 7 } }),
        ] {
            let gateway =
                config(&server, "budgets: [{name: few, window: 1h, bytes: 7KiB}]").start();
            let ana = gateway.client(era, ANA);
            let is_refused = || {
                drop(ana.ask("tools/call", params.clone()));
                gateway.last()["reason"] == "budget-exceeded"
            };
            let refused = (0..6).map(|_| is_refused()).collect::<Vec<_>>();
            // Some answers are longer than what was left.
            let first = refused.iter().position(|refused| *refused);
            let sent = params.to_string();
            assert!(matches!(first, Some(2..=3)), "{era:?} {first:?} {}", sent.len());
        }
    }
}

#[test]
fn a_result_that_is_kept_takes_of_the_budget_when_it_is_read() {
    for era in ERAS {
        let server = server(era);
        let kept = "content: [{servers: [up], size: {maxBytes: 600, onExceeded: offload}}]";
        let budgets = "budgets: [{name: few, tools: [read], window: 1h, calls: 9, bytes: 16KiB}]";
        let gateway = config(&server, budgets).policy(&format!("{kept}\n{OPEN}")).start();
        let ana = gateway.client(era, ANA);
        let answer = ana.call("read", &json!({ "text": "long ".repeat(1000) })).json();
        let uri =
            answer["result"]["content"][1]["uri"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let read = || ana.ask("resources/read", json!({ "uri": uri }));
        let text = |answer: &Answer| answer.json()["result"]["contents"][0]["text"].is_string();
        assert!(text(&read()) && text(&read()));
        let refused = read();
        assert!(!text(&refused), "{refused:?}");
        let last = gateway.last();
        let why = (&last["reason"], &last["budget"]);
        assert_eq!(why, (&json!("budget-exceeded"), &json!("few")), "{last}");
        assert_eq!(refusal(&ana, "write", &json!({})), None, "the budget does not name it");
    }
}

#[test]
fn a_budget_counts_what_it_names_for_each_that_it_is_for() {
    for era in ERAS {
        let server = server(era);
        let more = "budgets:\n- {name: writes, per: [principal, tool], servers: [up], tools: ['w*'], window: 1h, calls: 1}\n\
                    - {name: all, per: [], window: 1h, calls: 4}\n\
                    - {name: of-dev, principals: ['group:dev'], per: [server], window: 1h, calls: 3}";
        let gateway = config(&server, more).start();
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let exceeded = |client: &Client, tool: &str| {
            let is_refused = refusal(client, tool, &json!({})).is_some();
            is_refused.then(|| gateway.last()["budget"].as_str().unwrap().to_owned())
        };
        assert_eq!(exceeded(&ana, "write"), None);
        assert_eq!(exceeded(&ana, "write").as_deref(), Some("writes"));
        assert_eq!(exceeded(&ana, "read"), None);
        assert_eq!(exceeded(&bob, "write"), None);
        assert_eq!(exceeded(&ana, "read"), None);
        assert_eq!(
            exceeded(&bob, "read").as_deref(),
            Some("all"),
            "a refused call takes nothing of the others"
        );
        assert_eq!(exceeded(&ana, "read").as_deref(), Some("all"));
        assert_eq!(server.tool_calls().len(), 4, "{era:?}");
        // Resources count as well, where no tools are named.
        let read = ana.ask("resources/read", json!({ "uri": "file:///x" }));
        assert_ne!(read.code(), 0, "{read:?}");
    }
}

#[test]
fn a_budget_is_whole_again_after_its_window_and_one_without_a_counter_is_used_up() {
    for era in ERAS {
        let server = server(era);
        let gateway = config(&server, "budgets: [{name: brief, window: 1s, calls: 1}]").start();
        let ana = gateway.client(era, ANA);
        eventually("a full window", || {
            let pair = [refusal(&ana, "read", &json!({})), refusal(&ana, "read", &json!({}))];
            (pair[0].is_none() && pair[1].is_some()).then_some(())
        });
        eventually("the next window", || refusal(&ana, "read", &json!({})).is_none().then_some(()));
        let more = "budgets: [{name: each, per: [principal, tool], window: 1h, calls: 9}]";
        let gateway = config(&server, more).limits("budgetCounters: 1").start();
        let ana = gateway.client(era, ANA);
        assert_eq!(refusal(&ana, "read", &json!({})), None);
        assert_eq!(refusal(&ana, "write", &json!({})).as_deref(), Some("budget-exceeded"));
        assert!(ana.call("write", &json!({})).text().contains("`limits.budgetCounters`"));
        assert_eq!(refusal(&ana, "read", &json!({})), None);
    }
}

#[test]
fn an_agent_that_repeats_itself_is_told_so() {
    for era in ERAS {
        let server = server(era);
        let more = "repeatedCalls: {limit: 2, window: 1h}\nregistry: {tools: [{server: up, tool: other, mayRepeat: true}]}";
        let gateway = config(&server, more).start();
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let same = json!({ "text": "again", "n": 1 });
        for _ in 0..2 {
            assert_eq!(refusal(&ana, "read", &same), None);
        }
        assert_eq!(
            refusal(&ana, "read", &json!({ "n": 1, "text": "again" })).as_deref(),
            Some("repeated-call")
        );
        let told = ana.call("read", &same).text();
        assert!(told.contains("You repeat yourself") && told.contains("same arguments"), "{told}");
        assert_eq!(gateway.last()["reason"], "repeated-call");
        let number = json!({ "text": "again", "n": 1.0 });
        assert!(refusal(&ana, "read", &number).is_some(), "the same number in another spelling");
        // Another session of the same principal is no way out; others are not affected.
        assert!(refusal(&gateway.client(era, ANA), "read", &same).is_some());
        for (client, tool, arguments) in [
            (&ana, "read", json!({ "text": "again" })),
            (&ana, "write", same.clone()),
            (&bob, "read", same.clone()),
        ] {
            assert_eq!(refusal(client, tool, &arguments), None, "{tool} {arguments} {era:?}");
        }
        for _ in 0..5 {
            assert_eq!(refusal(&ana, "other", &same), None, "a tool that may be asked again");
        }
        assert_eq!(server.tool_calls().len(), 10);
    }
}

/// Passes what arrives on to an address that is set later, with the credential of a caller.
struct Relay {
    address: SocketAddr,
    to: Arc<Mutex<Option<SocketAddr>>>,
    count: Arc<Mutex<usize>>,
}

impl Relay {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (to, count) = (Arc::new(Mutex::new(None::<SocketAddr>)), Arc::new(Mutex::new(0)));
        let (next, counted) = (Arc::clone(&to), Arc::clone(&count));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let next = Arc::clone(&next);
                *counted.lock().unwrap() += 1;
                thread::spawn(move || {
                    relayed(&stream, eventually("the address", || *next.lock().unwrap()));
                });
            }
        });
        Self { address, to, count }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

/// Passes one connection on in both directions.
fn relayed(from: &TcpStream, to: SocketAddr) {
    let to = TcpStream::connect(to).unwrap();
    let (mut one, mut two) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || copied(&mut one, &mut two, true));
    copied(&mut to.try_clone().unwrap(), &mut from.try_clone().unwrap(), false);
}

/// Copies until the end. Heads of requests get the key of a caller.
fn copied(from: &mut TcpStream, to: &mut TcpStream, requests: bool) {
    let mut buffer = [0; 65536];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        let key = format!(" HTTP/1.1\r\nauthorization: Bearer {BOB}\r\n");
        let text = if requests { text.replace(" HTTP/1.1\r\n", &key) } else { text };
        if to.write_all(text.as_bytes()).is_err() {
            break;
        }
    }
    drop(to.shutdown(std::net::Shutdown::Both));
}

#[test]
fn a_gateway_behind_itself_refuses_instead_of_asking_itself_for_ever() {
    for era in ERAS {
        let protocol = if era == Era::Modern { "modern" } else { "legacy" };
        let relay = Relay::start();
        let servers = format!("- {{name: up, url: '{}', protocol: {protocol}}}", relay.url());
        let gateway = Config::with(&servers, "[up]").policy(OPEN).start();
        *relay.to.lock().unwrap() = Some(gateway.address);
        let key = format!("Bearer {ANA}");
        let ana = Client::silent(gateway.address, "/mcp", era, &[("authorization", &key)]);
        let answer = match era {
            Era::Modern => ana.ask("tools/list", json!({})),
            Era::Legacy => ana.hello(),
        };
        assert_ne!(answer.code(), 0, "{answer:?}");
        let looped = gateway.recorded("the refusal", |record| record["reason"] == "gateway-loop");
        assert_eq!((&looped["status"], &looped["principal"]), (&json!(508), &json!("bob")));
        assert!(*relay.count.lock().unwrap() < 20, "{}", relay.count.lock().unwrap());
    }
}

#[test]
fn a_request_passes_so_many_gateways_and_each_adds_itself() {
    for era in ERAS {
        let server = server(era);
        let gateway = Config::of(&server.url()).policy(OPEN).limits("hops: 2").start();
        let mut ana = gateway.client(era, ANA);
        assert_eq!(refusal(&ana, "read", &json!({})), None);
        let via = |n: usize| {
            let head = server.tool_calls().pop().unwrap().head.to_ascii_lowercase();
            let line = head
                .lines()
                .find_map(|line| line.strip_prefix("via: ").map(str::to_owned))
                .unwrap();
            assert_eq!(line.split(", ").count(), n, "{line}");
            line
        };
        let own = via(1);
        assert!(own.starts_with("1.1 portcullis-"), "{own}");
        let passed =
            "1.1 portcullis-00112233aabbccdd, 1.1 cdn.example, 1.1 portcullis-ffeeddccbbaa9988";
        ana.headers.push(("via".to_owned(), passed.to_owned()));
        assert_eq!(refusal(&ana, "read", &json!({})), None);
        let line = via(3);
        assert!(line.ends_with(&own) && !line.contains("cdn"), "{line}");
        // A caller can write such entries: they carry nothing to a server.
        assert!(!line.contains("00112233aabbccdd") && !line.contains("ffeeddccbbaa9988"), "{line}");
        ana.headers.push(("via".to_owned(), "1.1 portcullis-0123456789abcdef".to_owned()));
        let answer = ana.call("read", &json!({}));
        assert_eq!(answer.status, 508, "{answer:?}");
        assert_eq!(gateway.last()["reason"], "gateway-hops");
        ana.headers = vec![("via".to_owned(), own)];
        assert_eq!(ana.call("read", &json!({})).status, 508);
        assert_eq!(gateway.last()["reason"], "gateway-loop");
        assert_eq!(server.tool_calls().len(), 2);
    }
}

#[test]
fn mistakes_in_budgets_are_shown() {
    let server = server(Era::Modern);
    for (more, said) in [
        ("budgets: [{name: a, window: 1h}]", "this budget limits nothing"),
        (
            "budgets: [{name: a, window: 1h, calls: 1}, {name: a, window: 1h, calls: 1}]",
            "`a` is used twice",
        ),
        ("budgets: [{name: a, window: 40d, calls: 1}]", "cannot be for this time"),
        ("budgets: [{name: a, window: 1h, calls: 1, servers: [pu]}]", "there is no server `pu`"),
        (
            "budgets: [{name: a, window: 1h, calls: 1, principals: ['group:none']}]",
            "no caller can be",
        ),
        ("budgets: [{name: a, window: 1h, calls: 0}]", "calls"),
        ("budgets: [{name: a, window: 1h, calls: 1, principals: []}]", "the list is empty"),
        ("budgets: [{name: a, window: 1h, calls: 1, servers: []}]", "the list is empty"),
        ("budgets: [{name: a, window: 1h, calls: 1, tools: []}]", "the list is empty"),
        ("repeatedCalls: {limit: 0}", "limit"),
        ("repeatedCalls: {limit: 3, window: 48h}", "window"),
    ] {
        let output = config(&server, more).tried(&["validate"]);
        assert_eq!(output.status.code(), Some(3), "{more}: {}", printed(&output));
        assert!(printed(&output).contains(said), "{said}: {}", printed(&output));
    }
}
