use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use json::JsonBounds;
use std::fmt::Write as _;

use super::{ClientOperation, read};
use crate::mcp::protocol::method::{self, Form};
use crate::mcp::wire;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn outcome(headers: &[(&str, &str)], body: &str) -> String {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    let body = body.replace("META", META);
    let message = wire::decode(Bytes::from(body), &JsonBounds::MESSAGE).unwrap();
    let mut spoken = None;
    match read(&map, message, &mut spoken) {
        Ok(inbound) => {
            let ask = match inbound.ask {
                ClientOperation::Use(asked) => {
                    let answers = if asked.inputs.is_some() { " with answers" } else { "" };
                    format!("{:?} {}{answers}", asked.verb, asked.name)
                }
                ClientOperation::Answer(id, _) => format!("Answer {id}"),
                ClientOperation::Tell(told) => format!("Tell {}", told.name),
                other => format!("{other:?}"),
            };
            format!("{} {ask}", inbound.version.as_str())
        }
        Err(failure) => {
            let public = failure.public(spoken.map(crate::mcp::protocol::ProtocolVersion::era));
            format!("{} {} {}", public.status.as_u16(), public.code, public.message)
        }
    }
}

/// The era, and what is refused, as one table.
#[test]
fn era_table() {
    const V: &str = "mcp-protocol-version";
    const M: &str = "mcp-method";
    const N: &str = "mcp-name";
    let modern = [(V, "2026-07-28"), (M, "tools/list")];
    let call = [(V, "2026-07-28"), (M, "tools/call"), (N, "add")];
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META}}"#;
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let add = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add",META}}"#;
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    type Row<'a> = (&'a str, Vec<(&'a str, &'a str)>, &'a str);
    let rows: Vec<Row<'_>> = vec![
        ("modern list", modern.to_vec(), list),
        ("modern call", call.to_vec(), add),
        (
            "modern call, encoded name",
            vec![(V, "2026-07-28"), (M, "tools/call"), (N, "=?base64?YWRk?=")],
            add,
        ),
        ("no headers, modern body", vec![], list),
        ("no method header", vec![(V, "2026-07-28")], list),
        ("method header differs", vec![(V, "2026-07-28"), (M, "tools/call")], list),
        ("method header in another case", vec![(V, "2026-07-28"), (M, "Tools/List")], list),
        (
            "method header twice",
            vec![(V, "2026-07-28"), (M, "tools/list"), (M, "tools/list")],
            list,
        ),
        ("methods joined by a comma", vec![(V, "2026-07-28"), (M, "tools/list, tools/list")], list),
        (
            "version header twice",
            vec![(V, "2026-07-28"), (V, "2026-07-28"), (M, "tools/list")],
            list,
        ),
        ("no name header", vec![(V, "2026-07-28"), (M, "tools/call")], add),
        ("name header differs", vec![(V, "2026-07-28"), (M, "tools/call"), (N, "sub")], add),
        (
            "name header badly encoded",
            vec![(V, "2026-07-28"), (M, "tools/call"), (N, "=?base64?YWRk=?=")],
            add,
        ),
        (
            "name header marked in capitals",
            vec![(V, "2026-07-28"), (M, "tools/call"), (N, "=?BASE64?YWRk?=")],
            add,
        ),
        ("modern header, no version in the body", modern.to_vec(), bare),
        ("legacy header, modern body", vec![(V, "2025-11-25")], list),
        ("unknown header", vec![(V, "1999-01-01")], bare),
        (
            "unknown version, said twice",
            vec![(V, "1999-01-01")],
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1999-01-01"}}}"#,
        ),
        (
            "no capabilities",
            modern.to_vec(),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        ),
        (
            "version key in another case",
            modern.to_vec(),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/ProtocolVersion":"2026-07-28"}}}"#,
        ),
        (
            "modern notification",
            vec![(V, "2026-07-28"), (M, "x")],
            r#"{"jsonrpc":"2.0","method":"x","params":{META}}"#,
        ),
        (
            "modern call that wants no answer",
            call.to_vec(),
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"add",META}}"#,
        ),
        ("modern response", vec![(V, "2026-07-28")], r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        (
            "modern unknown method",
            vec![(V, "2026-07-28"), (M, "x/y")],
            r#"{"jsonrpc":"2.0","id":1,"method":"x/y","params":{META}}"#,
        ),
        (
            "modern ping",
            vec![(V, "2026-07-28"), (M, "ping")],
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{META}}"#,
        ),
        ("modern header, handshake", vec![(V, "2026-07-28"), (M, "initialize")], hello),
        (
            "modern body, handshake",
            vec![],
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{META}}"#,
        ),
        ("handshake", vec![], hello),
        ("legacy list, no header", vec![], bare),
        ("legacy list", vec![(V, "2025-06-18")], bare),
        ("legacy list, modern headers ignored", vec![(V, "2025-06-18"), (M, "x"), (N, "y")], bare),
        ("legacy ping", vec![(V, "2025-11-25")], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#),
        (
            "legacy discover",
            vec![(V, "2025-11-25")],
            r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#,
        ),
        (
            "legacy cancellation",
            vec![(V, "2025-11-25")],
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#,
        ),
        (
            "legacy notification",
            vec![(V, "2025-11-25")],
            r#"{"jsonrpc":"2.0","method":"notifications/x"}"#,
        ),
        ("legacy response", vec![(V, "2025-11-25")], r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        (
            "a cursor nobody gave out",
            vec![(V, "2025-11-25")],
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":""}}"#,
        ),
        (
            "a call without a name",
            vec![(V, "2025-11-25")],
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#,
        ),
        (
            "a call of NUL",
            vec![(V, "2025-11-25")],
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\u0000"}}"#,
        ),
        (
            "arguments in a list",
            vec![(V, "2025-11-25")],
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":[]}}"#,
        ),
        (
            "an answer to no question",
            vec![(V, "2025-11-25")],
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","requestState":"x"}}"#,
        ),
    ];
    let mut rows = rows;
    let legacy = || vec![(V, "2025-11-25")];
    rows.extend([
        (
            "a call that wants no answer",
            legacy(),
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}"#,
        ),
        (
            "a notification that wants an answer",
            legacy(),
            r#"{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled","params":{"requestId":"a"}}"#,
        ),
        (
            "a call in another case",
            legacy(),
            r#"{"jsonrpc":"2.0","id":1,"method":"Tools/call","params":{"name":"a"}}"#,
        ),
        (
            "what only servers ask",
            legacy(),
            r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#,
        ),
        (
            "what only servers tell",
            legacy(),
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#,
        ),
        (
            "legacy unknown method",
            legacy(),
            r#"{"jsonrpc":"2.0","id":1,"method":"com.example/tools/call"}"#,
        ),
    ]);
    let mut table = String::new();
    for (what, headers, body) in rows {
        writeln!(table, "{what}: {}", outcome(&headers, body)).unwrap();
    }
    let known = include_str!("era_table.txt");
    if table != known && std::env::var_os("PORTCULLIS_BLESS").is_some() {
        assert!(std::env::var_os("CI").is_none(), "PORTCULLIS_BLESS is set together with CI");
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/edge/decode/era_table.txt"),
            &table,
        )
        .unwrap();
    }
    // Also where it was written just now: a run that writes it has not checked it.
    assert_eq!(table, known);
}

/// What becomes of a message of each method: in both eras, with and without the header for its name, and as a
/// notification.
/// What the readers of `tests/differential` have read differently.
#[test]
fn arguments_that_readers_take_for_others_are_refused() {
    for (arguments, is_refused) in [
        (r#"{"a":1e400}"#, true),
        (r#"{"a":[{"b":-1E+999}]}"#, true),
        (r#"{"__proto__":{"a":1}}"#, true),
        (r#"{"__pro\u0074o__":1}"#, true),
        (r#"{"a":1.7976931348623157e308,"b":1e-400,"c":1E5}"#, false),
        (r#"{"a":4.9999999999999999999}"#, true),
        (r#"{"a":0.1,"b":0.30000000000000004,"c":4503599627370495.5,"d":5.000}"#, false),
        (r#"{"a":{"__proto__":1},"prototype":1}"#, false),
    ] {
        for (method, name) in [("tools/call", "add"), ("prompts/get", "p")] {
            let params = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            let legacy = outcome(&[], &body);
            let with_meta = params.replacen('{', "{META,", 1);
            let version = ("mcp-protocol-version", "2026-07-28");
            let headers = [version, ("mcp-method", method), ("mcp-name", name)];
            let modern = outcome(&headers, &body.replace(&params, &with_meta));
            for seen in [legacy, modern] {
                assert_eq!(seen.contains("-32602"), is_refused, "{arguments}: {seen}");
            }
        }
    }
    let body =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","extra":1e400}}"#;
    assert!(outcome(&[], body).contains("too large for a double"));
}

#[test]
fn method_table() {
    const PARAMS: &str = r#""name":"a","uri":"a","taskId":"a","ref":{"type":"ref/prompt","name":"a"},"level":"info","notifications":{},"requestId":1"#;
    const MODERN: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
    const LEGACY: (&str, &str) = ("mcp-protocol-version", "2025-11-25");
    let request = |method: &str, more: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{PARAMS}{more}}}}}"#)
    };
    let mut table = String::new();
    let mut methods: Vec<_> = method::METHODS.iter().map(|spec| spec.name).collect();
    methods.dedup();
    for method in methods {
        let (is_method, is_name) = (("mcp-method", method), ("mcp-name", "a"));
        let modern =
            request(method, &format!(r#","inputResponses":{{}},"requestState":"s",{META}"#));
        let rows = [
            ("modern", outcome(&[MODERN, is_method, is_name], &modern)),
            ("modern without Mcp-Name", outcome(&[MODERN, is_method], &modern)),
            ("legacy", outcome(&[LEGACY], &request(method, ""))),
            (
                "legacy notification",
                outcome(&[LEGACY], &request(method, "").replace(r#""id":1,"#, "")),
            ),
        ];
        writeln!(table, "{method}").unwrap();
        for (what, came) in rows {
            writeln!(table, "  {what}: {came}").unwrap();
        }
    }
    let known = include_str!("method_table.txt");
    if table != known && std::env::var_os("PORTCULLIS_BLESS").is_some() {
        assert!(std::env::var_os("CI").is_none(), "PORTCULLIS_BLESS is set together with CI");
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/edge/decode/method_table.txt"),
            &table,
        )
        .unwrap();
    }
    assert_eq!(table, known);
}

#[test]
fn a_method_that_could_be_taken_for_one_of_the_protocol_is_malformed() {
    for name in [
        "Tools/call",
        "TOOLS/CALL",
        "tools/call ",
        " tools/call",
        "tools/call\n",
        "tools//call",
        "/tools/call",
        "tools/call/",
        "tools.call",
        "tools_call",
        "tools-call",
        "toolscall",
        "tools\\call",
        "tools%2fcall",
        "tools/c%61ll",
        "tools/ca\u{200b}ll",
        "t\u{43e}ols/call",
        "\u{ff54}ools/call",
        "tools/call?x",
        "tools/call#",
        "./tools/call",
        "tools/../tools/call",
        "Resources/Read",
        "Notifications/Cancelled",
        "rpc.discover",
        "",
        "a b",
    ] {
        assert_eq!(method::form(name), Form::Malformed, "{name:?}");
    }
    let long = "a".repeat(129);
    assert_eq!(method::form(&long), Form::Malformed);
    for name in
        ["com.example/odd", "x/y", "ui/initialize", "notifications/x", "$/progress2", "tools/call2"]
    {
        assert_eq!(method::form(name), Form::Extension, "{name:?}");
    }
    for name in ["tools/call", "notifications/tasks"] {
        assert!(matches!(method::form(name), Form::Known(spec) if spec.name == name), "{name}");
    }
}
