//! What an observability stack is told: spans and metrics by OTLP, read with the official messages, and
//! metrics by a real Prometheus.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use e2e::client::get;
use e2e::gateway::{ANA, Config, Folder, Gateway, root};
use e2e::port::ReservedPort;
use e2e::server::Server;
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

/// A program that is killed when it is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn python(script: &str) -> Command {
    let mut command = Command::new(root().join("tests/.peers/py2/bin/python"));
    command.arg(root().join("tests/sdk/otel").join(script));
    command
}

/// A receiver of OTLP.
pub(crate) struct Receiver {
    pub(crate) http: u16,
    pub(crate) grpc: u16,
    pub(crate) got: Arc<Mutex<Vec<Value>>>,
    _program: Program,
}

#[expect(clippy::disallowed_methods, reason = "what the receiver prints")]
pub(crate) fn receiver() -> Receiver {
    let mut child =
        python("receiver.py").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut ports = String::new();
    out.read_line(&mut ports).unwrap();
    let ports: Vec<u16> = ports.split_whitespace().map(|port| port.parse().unwrap()).collect();
    let got = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&got);
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            into.lock().unwrap().push(serde_json::from_str(&line).unwrap());
        }
    });
    Receiver { http: ports[0], grpc: ports[1], got, _program: Program(child) }
}

/// A span as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) service: String,
    name: String,
    pub(crate) kind: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    parent: String,
    is_error: bool,
    links: usize,
    attributes: BTreeMap<String, String>,
}

pub(crate) fn attributes(of: &Value) -> BTreeMap<String, String> {
    let pair = |pair: &Value| {
        let value = pair["value"].as_object().unwrap().values().next().unwrap();
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (pair["key"].as_str().unwrap().to_owned(), value)
    };
    of["attributes"].as_array().into_iter().flatten().map(pair).collect()
}

/// Base64 to hexadecimal digits.
fn hex(value: &Value) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(value.as_str().unwrap_or_default())
        .unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Receiver {
    pub(crate) fn each(&self, signal: &str, parts: [&str; 2]) -> Vec<(Value, Value)> {
        let got = self.got.lock().unwrap().clone();
        let mut found = Vec::new();
        for message in got {
            for of in message[signal][parts[0]].as_array().into_iter().flatten() {
                for scope in of[parts[1]].as_array().into_iter().flatten() {
                    found.push((of["resource"].clone(), scope.clone()));
                }
            }
        }
        found
    }

    fn spans(&self) -> Vec<Span> {
        let mut found = Vec::new();
        for (resource, scope) in self.each("traces", ["resourceSpans", "scopeSpans"]) {
            let service = attributes(&resource)["service.name"].clone();
            for span in scope["spans"].as_array().unwrap() {
                found.push(Span {
                    service: service.clone(),
                    name: span["name"].as_str().unwrap().to_owned(),
                    kind: span["kind"].as_str().unwrap().to_owned(),
                    trace: hex(&span["traceId"]),
                    id: hex(&span["spanId"]),
                    parent: hex(&span["parentSpanId"]),
                    is_error: span["status"]["code"] == "STATUS_CODE_ERROR",
                    links: span["links"].as_array().map_or(0, Vec::len),
                    attributes: attributes(span),
                });
            }
        }
        found
    }

    pub(crate) fn span(&self, what: &str, is: impl Fn(&Span) -> bool) -> Span {
        eventually(what, || self.spans().into_iter().find(&is))
    }

    pub(crate) fn metric(&self, name: &str) -> Option<Value> {
        let scopes = self.each("metrics", ["resourceMetrics", "scopeMetrics"]);
        let metrics = scopes.iter().rev().flat_map(|(_, scope)| scope["metrics"].as_array());
        metrics.flatten().find(|metric| metric["name"] == name).cloned()
    }
}

fn told(server: &str, receiver: &Receiver, more: &str) -> Config {
    let mut config = Config::of(server);
    config.more = format!(
        "telemetry:\n  otlp: {{url: 'http://127.0.0.1:{}', interval: 200ms}}\n  {more}",
        receiver.http
    );
    config
}

#[test]
fn from_a_client_to_a_server_it_is_one_trace() {
    let receiver = receiver();
    let collector = format!("http://127.0.0.1:{}", receiver.http);
    let mut server = python("server.py").arg(&collector).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let _server = Program(server);
    let url = format!("http://127.0.0.1:{}/mcp", port.trim());
    let gateway = told(&url, &receiver, "traces: {sample: 1}").start();
    for era in ["modern", "legacy"] {
        let client = python("client.py")
            .arg(format!("http://{}/mcp", gateway.address))
            .args([ANA, era, &collector])
            .output()
            .unwrap();
        assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
        let trace = String::from_utf8(client.stdout).unwrap().trim().to_owned();
        let of = |service: &'static str, kind: &'static str| {
            let trace = trace.clone();
            let is = move |span: &Span| {
                span.trace == trace
                    && span.service == service
                    && span.kind == kind
                    && span.name.contains("tools/call")
            };
            receiver.span(&format!("the {kind} of {service}, {era}"), is)
        };
        let asked = of("client", "SPAN_KIND_CLIENT");
        let ours = of("portcullis", "SPAN_KIND_SERVER");
        let sent = of("portcullis", "SPAN_KIND_CLIENT");
        let served = of("server", "SPAN_KIND_SERVER");
        assert_eq!(ours.parent, asked.id, "{era}");
        assert_eq!(sent.parent, ours.id, "{era}");
        assert_eq!(served.parent, sent.id, "{era}");
        assert_eq!(ours.name, "tools/call add");
        let record = gateway.recorded("the call", |record| {
            record["trace"] == *trace && record["method"] == "tools/call"
        });
        assert_eq!(record["span"], *ours.id);
        for (key, value) in [
            ("mcp.method.name", "tools/call"),
            ("gen_ai.tool.name", "add"),
            ("gen_ai.operation.name", "execute_tool"),
            ("network.transport", "tcp"),
            ("client.address", "127.0.0.1"),
            ("portcullis.record.id", record["id"].as_str().unwrap()),
        ] {
            assert_eq!(ours.attributes.get(key).map(String::as_str), Some(value), "{key}");
        }
        assert!(ours.attributes.contains_key("jsonrpc.request.id"));
        assert_eq!(sent.attributes["portcullis.server"], "up");
        let all = format!("{:?}", receiver.spans());
        assert!(!all.contains(ANA) && !all.contains("\"a\""), "neither keys nor arguments");
    }
}

#[test]
fn what_a_client_says_of_its_trace_is_believed_as_far_as_it_goes() {
    let receiver = receiver();
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = told(&server.url(), &receiver, "traces: {sample: 1}").start();
        let ana = gateway.client(era, ANA);
        let parent = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00";
        let call = |meta: Value| {
            let mut params = json!({ "name": "read", "arguments": {} });
            params["_meta"] = meta;
            assert_eq!(ana.ask("tools/call", params).status, 200);
            let sent = server.tool_calls().pop().unwrap();
            (sent.body["params"]["_meta"].clone(), sent.head.to_ascii_lowercase(), gateway.last())
        };
        let (meta, head, record) =
            call(json!({ "traceparent": parent, "tracestate": "a=1", "baggage": "secret=x" }));
        let told = meta["traceparent"].as_str().unwrap();
        assert!(told.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && told != parent);
        assert!(told.ends_with("-01") && head.contains(&format!("traceparent: {told}")));
        assert_eq!(meta["tracestate"], "a=1");
        assert!(meta["baggage"].is_null() && !head.contains("baggage"), "a way out for anything");
        assert_eq!(record["trace"], "0af7651916cd43dd8448eb211c80319c");
        // What is none begins a trace of its own, and takes nothing along.
        for bad in [
            "00-0AF7651916CD43DD8448EB211C80319C-00f067aa0ba902b7-01",
            "x",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        ] {
            let (meta, _, record) =
                call(json!({ "traceparent": bad, "tracestate": "a=1", "baggage": "b=2" }));
            let told = meta["traceparent"].as_str().unwrap();
            let trace = told.split('-').nth(1).unwrap();
            assert_eq!(record["trace"], trace);
            assert_ne!(trace, "00000000000000000000000000000000");
            assert!(meta["tracestate"].is_null() && meta["baggage"].is_null());
        }
        let (meta, ..) = call(json!({ "traceparent": parent, "tracestate": "a=1\r\nx: y" }));
        assert!(meta["tracestate"].is_null());
        // Where clients begin no traces here, theirs becomes a link.
        let gateway = self::told(&server.url(), &receiver, "traces: {clients: restart}").start();
        let ana = gateway.client(era, ANA);
        let params = json!({ "name": "read", "arguments": {}, "_meta": { "traceparent": parent } });
        assert_eq!(ana.ask("tools/call", params).status, 200);
        let record = gateway.last();
        assert_ne!(record["trace"], "0af7651916cd43dd8448eb211c80319c");
        let trace = record["trace"].as_str().unwrap().to_owned();
        let span = receiver.span("the span with a link", |span| {
            span.trace == trace && span.kind == "SPAN_KIND_SERVER"
        });
        assert_eq!((span.links, &*span.parent), (1, ""));
    }
}

#[test]
fn spans_say_what_was_denied_and_what_failed() {
    let receiver = receiver();
    let server = Server::with(Era::Modern, json!([e2e::server::tool("read")]), |call, stream| {
        let result = json!({ "resultType": "complete", "isError": true, "content": [] });
        std::io::Write::write_all(stream, &call.result(&result)).is_ok()
    });
    let gateway = told(&server.url(), &receiver, "").start();
    let ana = gateway.client(Era::Modern, ANA);
    assert_eq!(ana.call("read", &json!({})).status, 200);
    assert!(ana.call("a-tool-that-somebody-made-up", &json!({})).code() < 0);
    let failed = receiver.span("the failure", |span| {
        span.kind == "SPAN_KIND_SERVER"
            && span.attributes.get("error.type").is_some_and(|kind| kind == "tool_error")
    });
    assert!(failed.is_error);
    let denied = receiver.span("the denial", |span| {
        span.attributes.get("error.type").is_some_and(|kind| kind == "unknown-tool")
    });
    assert_eq!((denied.is_error, &*denied.name), (false, "tools/call"), "the caller's fault");
    assert_eq!(denied.attributes["rpc.response.status_code"], "-32602");
    assert_eq!(denied.attributes["portcullis.server"], "up", "it was for this one");
    let all = receiver.spans();
    let own = |span: &&Span| span.trace == denied.trace;
    assert_eq!(all.iter().filter(own).count(), 1, "nothing was sent to a server");
    drop(gateway);
}

/// The value of a line of the text format.
pub(crate) fn value(text: &str, line: &str) -> Option<u64> {
    let found = text.lines().find(|found| found.starts_with(line))?;
    found.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn the_same_counts_go_to_prometheus_and_by_otlp_over_http_and_grpc() {
    let receiver = receiver();
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let token = folder.path().join("token");
    fs::write(&token, "collector-key").unwrap();
    for (protocol, port) in [("http", receiver.http), ("grpc", receiver.grpc)] {
        let mut config = Config::of(&server.url()).policy(
            "rules:\n- {id: a, effect: allow, principals: ['*'], servers: ['*'], tools: [read]}",
        );
        config.more = format!(
            "telemetry: {{resource: {{service.name: {protocol}}}, otlp: {{url: 'http://127.0.0.1:{port}', \
             protocol: {protocol}, interval: 200ms, token: {{fromFile: '{}'}}}}}}",
            token.display()
        );
        let gateway = config.start();
        let ana = gateway.client(Era::Modern, ANA);
        assert_eq!(ana.call("read", &json!({})).status, 200);
        for n in 0..30 {
            assert!(ana.call(&format!("made-up-{n}"), &json!({})).code() < 0);
        }
        let text = gateway.metrics();
        let calls = "mcp_server_operation_duration_seconds_count{mcp_method_name=\"tools/call\"";
        assert_eq!(
            value(
                &text,
                &format!(
                    "{calls},gen_ai_tool_name=\"read\",gen_ai_operation_name=\"execute_tool\",portcullis_server=\"up\""
                )
            ),
            Some(1),
            "{text}"
        );
        // Thirty names, one label.
        let other = format!("{calls},gen_ai_tool_name=\"_OTHER\"");
        assert_eq!(value(&text, &other), Some(30), "{text}");
        assert!(!text.contains("made-up"));
        assert!(text.contains("mcp_client_operation_duration_seconds_count{"));
        assert!(value(&text, "portcullis_gateway_duration_seconds_count") >= Some(31));
        let metric = eventually("the calls", || {
            let metric = receiver.metric("mcp.server.operation.duration")?;
            let points = metric["histogram"]["dataPoints"].as_array()?.clone();
            points.into_iter().find(|point| {
                attributes(point).get("gen_ai.tool.name").is_some_and(|name| name == "read")
                    && point["count"] == "1"
            })
        });
        assert_eq!(metric["explicitBounds"][0], 0.01);
        let exchanges = eventually("the exchanges", || {
            let metric = receiver.metric("portcullis.exchanges")?;
            (metric["sum"]["isMonotonic"] == true).then_some(metric)
        });
        assert_eq!(
            exchanges["sum"]["aggregationTemporality"],
            "AGGREGATION_TEMPORALITY_CUMULATIVE"
        );
        eventually("spans", || {
            receiver.spans().iter().any(|span| span.service == protocol).then_some(())
        });
        let got = receiver.got.lock().unwrap().clone();
        let mut own = got.iter().filter(|message| message["way"] == protocol);
        assert!(own.all(|message| message["token"] == "Bearer collector-key"));
    }
}

#[test]
fn a_collector_that_is_down_makes_no_difference_and_is_counted() {
    let free = ReservedPort::new();
    let server = Server::echo(Era::Modern, &["read"]);
    let mut config = Config::of(&server.url());
    config.more = format!("telemetry: {{otlp: {{url: 'http://{free}', interval: 100ms}}}}");
    let gateway = config.start();
    let ana = gateway.client(Era::Modern, ANA);
    for _ in 0..5 {
        assert_eq!(ana.call("read", &json!({})).status, 200);
    }
    eventually("failures to be counted", || {
        let text = gateway.metrics();
        let failed = value(&text, "portcullis_otlp_exports_total{result=\"failure\"}")?;
        let lost = value(&text, "portcullis_spans_total{result=\"failure\"}")?;
        (failed > 0 && lost >= 5).then_some(())
    });
    assert_eq!(ana.call("read", &json!({})).status, 200);
    assert_eq!(get(gateway.ops.unwrap(), "/readyz").status, 200);
}

#[test]
fn part_of_the_traces_are_recorded_and_a_client_cannot_choose() {
    let receiver = receiver();
    let server = Server::echo(Era::Modern, &["read"]);
    let gateway = told(&server.url(), &receiver, "traces: {sample: 0.5}").start();
    let ana = gateway.client(Era::Modern, ANA);
    // The last 56 bits decide, and they are below the half or not.
    for (trace, sampled) in
        [("0af7651916cd43dd8400000000000001", true), ("0af7651916cd43dd84ffffffffffffff", false)]
    {
        let parent = format!("00-{trace}-00f067aa0ba902b7-01");
        let params = json!({ "name": "read", "arguments": {}, "_meta": { "traceparent": parent } });
        assert_eq!(ana.ask("tools/call", params).status, 200);
        assert_eq!(gateway.last()["span"].is_string(), sampled);
        let told =
            server.tool_calls().pop().unwrap().body["params"]["_meta"]["traceparent"].clone();
        // Who does not record it passes on what it was told.
        assert_eq!(told == parent, !sampled);
    }
}

#[test]
fn one_process_records_a_part_of_the_traces_it_begins_itself() {
    let receiver = receiver();
    for era in [Era::Modern, Era::Legacy] {
        let server = Server::echo(era, &["read"]);
        let gateway = told(&server.url(), &receiver, "traces: {sample: 0.5}").start();
        let ana = gateway.client(era, ANA);
        for _ in 0..100 {
            assert_eq!(ana.call("read", &json!({})).status, 200);
        }
        let exchanges = gateway.exchanges();
        let calls = exchanges.iter().filter(|record| record["method"] == "tools/call");
        let recorded = calls.filter(|record| record["span"].is_string()).count();
        assert!((20..=80).contains(&recorded), "{recorded} of 100");
    }
}

fn prometheus(gateway: &Gateway, folder: &Folder) -> (Program, ReservedPort) {
    let port = ReservedPort::new();
    let file = folder.path().join("prometheus.yml");
    let scrape = format!(
        "global: {{scrape_interval: 200ms}}\nscrape_configs:\n- job_name: portcullis\n  static_configs: [{{targets: ['{}']}}]\n",
        gateway.ops.unwrap()
    );
    fs::write(&file, scrape).unwrap();
    let program: PathBuf = "prometheus".into();
    let child = Command::new(program)
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (Program(child), port)
}

#[test]
fn a_real_prometheus_reads_every_metric() {
    let server = Server::echo(Era::Modern, &["read"]);
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Modern, ANA);
    assert_eq!(ana.call("read", &json!({})).status, 200);
    let folder = Folder::new();
    let (_program, port) = prometheus(&gateway, &folder);
    let address = port.to_string().parse().unwrap();
    let query = |text: &str| {
        std::net::TcpStream::connect(address).ok()?;
        let answer = get(address, &format!("/api/v1/query?query={text}"));
        (answer.status == 200).then(|| answer.json())
    };
    let up = eventually("Prometheus to scrape", || {
        let answer = query("mcp_server_operation_duration_seconds_count")?;
        let result = answer["data"]["result"].as_array()?.clone();
        (!result.is_empty()).then_some(result)
    });
    assert!(up.iter().any(|one| one["metric"]["mcp_method_name"] == "tools/call"));
    assert_eq!(query("up").unwrap()["data"]["result"][0]["value"][1], "1");
    // It has every family that we show.
    let text = gateway.metrics();
    for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = family.split_once(' ').unwrap();
        let name = if kind == "histogram" { format!("{name}_bucket") } else { name.to_owned() };
        let known = query(&format!("count({name})")).unwrap();
        let has_points = text.lines().any(|line| line.starts_with(&name));
        let known = known["data"]["result"].as_array().unwrap().len();
        assert_eq!(known == 1, has_points, "{name}");
    }
    // And promtool has nothing to say about how they are named.
    let mut check = Command::new("promtool");
    let mut check = check
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut check.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{said}");
}

#[test]
fn records_go_to_a_collector_as_logs_and_can_be_verified_there() {
    let receiver = receiver();
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let mut config = Config::of(&server.url());
        config.sinks =
            format!("{{name: collector, otlp: {{url: 'http://127.0.0.1:{}'}}}}", receiver.http);
        let mut gateway = config.start();
        let ana = gateway.client(era, ANA);
        assert!(ana.call("echo", &json!({ "text": "x" })).json()["result"].is_object());
        assert!(ana.call("none", &json!({})).code() < 0);
        gateway.terminate();
        assert_eq!(gateway.ended(), Some(0));
        let lines = fs::read_to_string(gateway.audit()).unwrap();
        let chain = gateway.records()[0]["chain"].clone();
        let logs = || {
            let got = receiver.got.lock().unwrap();
            let all = got.iter().filter(|one| one["logs"].is_object());
            let all = all.flat_map(|one| one["logs"]["resourceLogs"].as_array().unwrap().clone());
            let all = all.flat_map(|one| one["scopeLogs"].as_array().unwrap().clone());
            let all = all.flat_map(|one| one["logRecords"].as_array().unwrap().clone());
            let ours = |log: &Value| {
                log["body"]["stringValue"].as_str().unwrap().contains(chain.as_str().unwrap())
            };
            all.filter(ours).collect::<Vec<_>>()
        };
        // What arrives is the log, line by line.
        let logs = eventually("the last record", || {
            let logs = logs();
            (logs.len() >= lines.lines().count()).then_some(logs)
        });
        let bodies: Vec<_> =
            logs.iter().map(|log| log["body"]["stringValue"].as_str().unwrap()).collect();
        assert_eq!(bodies, lines.lines().collect::<Vec<_>>());
        let call = logs.iter().find(|log| {
            let body = log["body"]["stringValue"].as_str().unwrap();
            body.contains("\"event\":\"exchange\"") && body.contains("\"tool\":\"none\"")
        });
        let call = call.unwrap();
        assert_eq!(call["severityText"], "WARN");
        assert_eq!(call["eventName"], "portcullis.audit.exchange");
        let named = |key: &str, value: &str| {
            let attributes = call["attributes"].as_array().unwrap();
            attributes.contains(&json!({ "key": key, "value": { "stringValue": value } }))
        };
        assert!(named("portcullis.outcome", "denied") && named("enduser.id", "ana"), "{call}");
    }
}

/// What `tools/call` is counted by.
fn called(gateway: &Gateway, tool: &str) -> Option<u64> {
    let text = gateway.metrics();
    let count = "mcp_server_operation_duration_seconds_count{mcp_method_name=\"tools/call\",gen_ai_tool_name=";
    let lines = text.lines().filter(|line| line.starts_with(&format!("{count}\"{tool}\"")));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).reduce(|a, b| a + b)
}

#[test]
fn tools_that_were_approved_are_counted_by_name_though_rules_have_patterns() {
    for era in ERAS {
        let server = Server::echo(era, &["read", "write"]);
        let folder = Folder::new();
        let lock = folder.path().join("portcullis.lock");
        let all = Config::of(&server.url()).approved(&lock);
        let whole = fs::read_to_string(&lock).unwrap();
        all.verb(&["pin", "revoke", "--server", "up", "--tool", "write", "--by", "ana"]);
        let gateway = all.start();
        let ana = gateway.client(era, ANA);
        for name in ["read", "write", "made-up"] {
            drop(ana.call(name, &json!({ "text": "a" })));
        }
        assert_eq!(called(&gateway, "read"), Some(1));
        assert_eq!((called(&gateway, "write"), called(&gateway, "made-up")), (None, None));
        assert_eq!(called(&gateway, "_OTHER"), Some(2));
        // From the moment that it is approved.
        fs::write(&lock, whole).unwrap();
        gateway.hang_up();
        eventually("the tool to be approved", || {
            let answer = ana.call("write", &json!({ "text": "a" })).json();
            (answer["result"]["content"][0]["text"] == "a").then_some(())
        });
        eventually("the tool to be counted by name", || {
            drop(ana.call("write", &json!({ "text": "a" })));
            called(&gateway, "write")
        });
        assert_eq!(called(&gateway, "made-up"), None);
    }
}

#[test]
fn tools_and_prompts_are_counted_by_the_names_that_their_servers_give_them() {
    for era in ERAS {
        let offers =
            json!({ "tools": [e2e::server::tool("read")], "prompts": [{ "name": "greet" }] });
        let server = || {
            Server::offering(era, offers.clone(), |call| match call.method() {
                "prompts/get" => json!({ "resultType": "complete", "messages": [] }),
                _ => json!({ "resultType": "complete", "content": [] }),
            })
        };
        let (one, two) = (server(), server());
        let servers =
            format!("- {{name: one, url: '{}'}}\n- {{name: two, url: '{}'}}", one.url(), two.url());
        let folder = Folder::new();
        // Rules and the lockfile name tools and prompts as servers do.
        let gateway = Config::with(&servers, "[one, two]")
            .policy(
                "rules:\n- {id: a, effect: allow, principals: ['*'], servers: ['*'], tools: ['*'], prompts: [greet]}",
            )
            .approved(&folder.path().join("portcullis.lock"))
            .start();
        let ana = gateway.client(era, ANA);
        for (name, times) in [("one__read", 1), ("two__read", 2)] {
            for _ in 0..times {
                assert!(ana.call(name, &json!({})).json()["result"].is_object());
                assert_eq!(gateway.last()["tool"], name, "the record has what the client has said");
            }
        }
        assert!(
            ana.ask("prompts/get", json!({ "name": "two__greet" })).json()["result"].is_object()
        );
        // What leads to no server, and what no server has.
        for name in ["read", "one__made-up", "three__read"] {
            assert!(ana.call(name, &json!({})).code() < 0);
        }
        let text = gateway.metrics();
        for side in ["server", "client"] {
            let count = |what: &str| {
                let line =
                    format!("mcp_{side}_operation_duration_seconds_count{{mcp_method_name={what}");
                value(&text, &line)
            };
            for (server, times) in [("one", 1), ("two", 2)] {
                let labels = format!(
                    "\"tools/call\",gen_ai_tool_name=\"read\",gen_ai_operation_name=\"execute_tool\",portcullis_server=\"{server}\""
                );
                assert_eq!(count(&labels), Some(times), "{text}");
            }
            let prompt = "\"prompts/get\",gen_ai_prompt_name=\"greet\",portcullis_server=\"two\"";
            assert_eq!(count(prompt), Some(1), "{text}");
            let other = count("\"tools/call\",gen_ai_tool_name=\"_OTHER\"");
            assert_eq!(other, (side == "server").then_some(3), "{text}");
        }
        assert!(!text.contains("__"), "{text}");
    }
}
