//! The variables that OpenTelemetry defines for every program: what they export, what they do not, and what is said of
//! them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};

use e2e::client::get;
use e2e::gateway::{ANA, Config, Folder, Gateway, binary, printed};
use e2e::server::Server;
use e2e::{ERAS, Era, eventually};
use serde_json::json;

use crate::telemetry::{Receiver, attributes, receiver, value};

/// The variables that set how often things are sent, so that no test waits long.
const OFTEN: [(&str, &str); 2] =
    [("OTEL_METRIC_EXPORT_INTERVAL", "200"), ("OTEL_BSP_SCHEDULE_DELAY", "50")];

/// A verb on a configuration that is written to a folder, with these variables.
fn command(
    config: &Config,
    folder: &Folder,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Command {
    let file = folder.path().join("gateway.yaml");
    config.write(&file, &folder.path().join("audit.jsonl"));
    let mut command = Command::new(binary());
    let (verb, rest) = arguments.split_at(arguments.iter().take_while(|one| **one != "--").count());
    command.args(verb).arg("-c").arg(&file).args(rest);
    command.envs(variables.iter().copied());
    command
}

fn started(config: &Config, variables: &[(&str, &str)]) -> Gateway {
    let folder = Folder::new();
    let audit = folder.path().join("audit.jsonl");
    let command = command(config, &folder, &["run"], variables);
    Gateway::spawn(command, folder, audit)
}

fn done(config: &Config, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = Folder::new();
    command(config, &folder, arguments, variables).output().unwrap()
}

/// How many messages came of this service.
fn messages_of(receiver: &Receiver, service: &str) -> usize {
    let got = receiver.got.lock().unwrap().clone();
    got.iter().filter(|message| message.to_string().contains(&format!("\"{service}\""))).count()
}

#[test]
fn the_variables_alone_export_traces_and_metrics() {
    let receiver = receiver();
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let config = Config::of(&server.url());
        for (protocol, way, port) in
            [("http/protobuf", "http", receiver.http), ("grpc", "grpc", receiver.grpc)]
        {
            let service = format!("{way}-{era:?}");
            let endpoint = format!("http://127.0.0.1:{port}");
            let set = [
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20key-of-variables"),
                ("OTEL_SERVICE_NAME", &*service),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=no,deployment.environment.name=te%20st"),
            ];
            let gateway = started(&config, &[&set[..], &OFTEN].concat());
            let ana = gateway.client(era, ANA);
            assert!(ana.call("read", &json!({})).json()["result"].is_object());
            let record = gateway.recorded("the call", |record| record["method"] == "tools/call");
            let trace = record["trace"].as_str().unwrap();
            let span = receiver
                .span("the span", |span| span.trace == trace && span.kind == "SPAN_KIND_SERVER");
            assert_eq!((&*span.service, &*span.id), (&*service, record["span"].as_str().unwrap()));
            let resource = eventually("the metrics", || {
                let all = receiver.each("metrics", ["resourceMetrics", "scopeMetrics"]);
                let mut all = all.into_iter().map(|(resource, _)| attributes(&resource));
                all.find(|resource| resource["service.name"] == service)
            });
            assert_eq!(resource["deployment.environment.name"], "te st");
            assert_eq!(resource["telemetry.sdk.language"], "rust");
            let got = receiver.got.lock().unwrap().clone();
            let of_us = |message: &&serde_json::Value| message.to_string().contains(&service);
            assert!(got.iter().filter(of_us).all(|message| {
                message["way"] == way && message["token"] == "Bearer key-of-variables"
            }));
            // The start says why, and never with what.
            let said = gateway.says("exported over OTLP, by `OTEL_EXPORTER_OTLP_ENDPOINT`");
            assert!(!said.contains("key-of-variables"), "{said}");
        }
    }
}

#[test]
fn a_disabled_sdk_exports_nothing_and_measures_and_records_all_the_same() {
    let receiver = receiver();
    let endpoint = format!("http://127.0.0.1:{}", receiver.http);
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let mut config = Config::of(&server.url());
        let in_file =
            format!("telemetry: {{otlp: {{url: '{endpoint}'}}, resource: {{service.name: none}}}}");
        // Where the variables name the collector, and where the file does.
        for more in [String::new(), in_file] {
            config.more = more;
            let set = [
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
                ("OTEL_SERVICE_NAME", "none"),
                ("OTEL_SDK_DISABLED", "True"),
            ];
            let mut gateway = started(&config, &[&set[..], &OFTEN].concat());
            let ana = gateway.client(era, ANA);
            assert!(ana.call("read", &json!({})).json()["result"].is_object());
            let record = gateway.recorded("the call", |record| record["method"] == "tools/call");
            assert!(record["span"].is_null() && record["trace"].is_string(), "{record}");
            let text = gateway.metrics();
            for line in [
                "portcullis_otlp_exports_total{result=\"success\"}",
                "portcullis_otlp_exports_total{result=\"failure\"}",
                "portcullis_spans_total{result=\"success\"}",
                "portcullis_spans_total{result=\"failure\"}",
            ] {
                assert_eq!(value(&text, line), Some(0), "{line}");
            }
            assert!(value(&text, "portcullis_exchanges_total{outcome=\"answered\"}") >= Some(1));
            gateway.says("not exported over OTLP, by `OTEL_SDK_DISABLED`");
            // What would be sent at the end would have come by then.
            gateway.terminate();
            assert_eq!(gateway.ended(), Some(0));
            assert_eq!(messages_of(&receiver, "none"), 0);
        }
    }
}

#[test]
fn what_the_file_says_comes_before_the_variables() {
    let receiver = receiver();
    // Nobody takes a connection here, and a request would be counted as failed.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", other.local_addr().unwrap());
    let server = Server::echo(Era::Modern, &["read"]);
    let mut config = Config::of(&server.url());
    config.more = format!(
        "telemetry:\n  otlp: {{url: 'http://127.0.0.1:{}', interval: 200ms}}\n  \
         traces: {{sample: 1}}\n  resource: {{service.name: of-the-file}}",
        receiver.http
    );
    let set = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20for-somebody-else"),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("OTEL_SERVICE_NAME", "of-the-variables"),
        ("OTEL_RESOURCE_ATTRIBUTES", "host.name=a-host"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "86400000"),
    ];
    let gateway = started(&config, &set);
    let ana = gateway.client(Era::Modern, ANA);
    assert_eq!(ana.call("read", &json!({})).status, 200);
    assert_eq!(receiver.span("a span", |_| true).service, "of-the-file");
    eventually("metrics", || receiver.metric("portcullis.exchanges"));
    let said = gateway.says("`telemetry.otlp` of the file applies");
    assert!(said.contains("`OTEL_EXPORTER_OTLP_HEADERS`") && !said.contains("for-somebody-else"));
    let got = receiver.got.lock().unwrap().clone();
    for message in got {
        let text = message.to_string();
        assert!(message["token"].is_null() && !text.contains("of-the-variables"), "{text}");
        assert!(text.contains("a-host"), "an attribute that the file does not have");
    }
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_err(), "nothing went to the other one");
}

#[test]
fn a_sampler_of_the_variables_decides_by_the_trace_alone() {
    let receiver = receiver();
    let endpoint = format!("http://127.0.0.1:{}", receiver.http);
    let server = Server::echo(Era::Modern, &["read"]);
    let config = Config::of(&server.url());
    for (sampler, argument, recorded) in [
        ("parentbased_traceidratio", "0.5", [true, false]),
        ("always_off", "1", [false, false]),
        ("parentbased_always_on", "", [true, true]),
    ] {
        let set = [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*format!("{endpoint}/v1/traces")),
            ("OTEL_TRACES_SAMPLER", sampler),
            ("OTEL_TRACES_SAMPLER_ARG", argument),
        ];
        let gateway = started(&config, &set);
        let ana = gateway.client(Era::Modern, ANA);
        let traces = ["0af7651916cd43dd8400000000000001", "0af7651916cd43dd84ffffffffffffff"];
        for (trace, is_recorded) in traces.into_iter().zip(recorded) {
            // What the caller says of its own recording makes no difference.
            for flags in ["00", "01"] {
                let meta = json!({ "traceparent": format!("00-{trace}-00f067aa0ba902b7-{flags}") });
                let params = json!({ "name": "read", "arguments": {}, "_meta": meta });
                assert_eq!(ana.ask("tools/call", params).status, 200);
                assert_eq!(gateway.last()["span"].is_string(), is_recorded, "{sampler} {trace}");
            }
        }
        let text = gateway.metrics();
        assert!(text.contains("portcullis_exchanges_total"));
        assert!(receiver.metric("portcullis.exchanges").is_none(), "only traces have a collector");
    }
}

#[test]
fn mistakes_in_variables_are_mistakes_of_the_configuration() {
    let server = Server::echo(Era::Modern, &["read"]);
    let config = Config::of(&server.url());
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
    let wrong = [
        endpoint,
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a-secret-that-is-no-pair"),
        ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/no/such/file"),
        ("OTEL_TRACES_SAMPLER", "xray"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
    ];
    for arguments in [&["validate"][..], &["run"]] {
        let output = done(&config, arguments, &wrong);
        let said = printed(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        for (name, _) in &wrong[1..] {
            assert!(said.contains(&format!("the environment variable `{name}`: ")), "{said}");
        }
        assert!(said.contains("write `http/protobuf` or `grpc`"), "{said}");
        assert!(said.contains("5 problems") && !said.contains("a-secret"), "{said}");
    }
    // A credential goes to no other machine in the clear.
    let clear = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret"),
    ];
    let said = printed(&done(&config, &["validate"], &clear));
    assert!(said.contains("headers would be sent to another machine in the clear"), "{said}");
    // What is only read may be meant for another machine.
    let output = done(&config, &["config", "show"], &wrong);
    assert!(output.status.success(), "{}", printed(&output));
    // Nothing is asked of variables that have no effect.
    let off = [&wrong[..4], &[("OTEL_SDK_DISABLED", "true")]].concat();
    let output = done(&config, &["validate"], &off);
    assert!(output.status.success(), "{}", printed(&output));
}

#[test]
fn the_configuration_in_force_says_which_variable_a_value_is_from() {
    let server = Server::echo(Era::Modern, &["read"]);
    let mut config = Config::of(&server.url());
    let set = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2"),
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "60000"),
    ];
    let show = ["config", "show", "--effective"];
    let shown = printed(&done(&config, &show, &set));
    for line in [
        "# telemetry: traces and metrics are exported over OTLP, by `OTEL_EXPORTER_OTLP_ENDPOINT`\n",
        "    sample: 0.25  # from OTEL_TRACES_SAMPLER_ARG\n",
        "    clients: continue  # default\n",
    ] {
        assert!(shown.contains(line), "{line}{shown}");
    }
    assert!(!shown.contains("hunter2"), "{shown}");
    config.more =
        "telemetry: {otlp: {url: 'http://127.0.0.1:9'}, traces: {sample: 0.5}}".to_owned();
    let shown = printed(&done(&config, &show, &set));
    assert!(shown.contains("interval: 1m  # from OTEL_METRIC_EXPORT_INTERVAL\n"), "{shown}");
    assert!(shown.contains("sample: 0.5\n") && !shown.contains("SAMPLER"), "{shown}");
}

#[test]
fn a_program_beside_the_gateway_does_not_get_the_headers_of_the_collector() {
    let receiver = receiver();
    let endpoint = format!("http://127.0.0.1:{}", receiver.http);
    let server = Server::echo(Era::Modern, &["read"]);
    let config = Config::of(&server.url());
    let set = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api-key=hunter3"),
        ("PORTCULLIS_API_KEY", ANA),
    ];
    let output = done(&config, &["exec", "--", "env"], &set);
    let text = printed(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(&format!("OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}")), "{text}");
    assert!(!text.contains("hunter"), "{text}");
}

/// The body of the request that arrives.
fn body_of(stream: &TcpStream) -> Vec<u8> {
    let (mut reader, mut length) = (BufReader::new(stream), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    body
}

#[test]
fn a_collector_that_is_busy_is_asked_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let answers = std::thread::spawn(move || {
        let mut bodies = Vec::new();
        for answer in
            ["503 Service Unavailable\r\nRetry-After: 0", "429 Too Many Requests", "200 OK"]
        {
            let (mut stream, _) = listener.accept().unwrap();
            bodies.push(body_of(&stream));
            let head =
                format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
        }
        bodies
    });
    let server = Server::echo(Era::Modern, &["read"]);
    let set = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*endpoint), OFTEN[1]];
    let gateway = started(&Config::of(&server.url()), &set);
    let ana = gateway.client(Era::Modern, ANA);
    assert_eq!(ana.call("read", &json!({})).status, 200);
    let bodies = answers.join().unwrap();
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2] && !bodies[0].is_empty());
    eventually("the spans to be counted", || {
        let text = gateway.metrics_now();
        let sent = value(&text, "portcullis_spans_total{result=\"success\"}")?;
        let tries = value(&text, "portcullis_otlp_exports_total{result=\"failure\"}")?;
        let lost = value(&text, "portcullis_spans_total{result=\"failure\"}")?;
        (sent >= 1 && tries == 2 && lost == 0).then_some(())
    });
    assert_eq!(get(gateway.ops.unwrap(), "/readyz").status, 200);
}
