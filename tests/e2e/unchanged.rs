//! What was not decided about passes as it came: member for member, unknown members and spellings
//! of numbers included.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use e2e::client::raw;
use e2e::gateway::{ANA, Config};
use e2e::server::{Server, ok, tool};
use e2e::{ERAS, Era};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::json;

/// JSON as somebody else might write it: odd numbers, escapes and spaces, unknown members.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("1.50".to_owned()),
        Just("-0".to_owned()),
        Just("1E+2".to_owned()),
        Just("12345678901234567890123".to_owned()),
        Just(r#""\u0061\/\ud83d\ude00""#.to_owned()),
        "[a-z é世 ]{0,8}".prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let member = ("[a-z]{1,6}", inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4)
                .prop_map(|items| format!("[ {} ]", items.join(" ,"))),
            prop::collection::btree_map(member.0, member.1, 0..4).prop_map(|members| {
                let members: Vec<_> =
                    members.iter().map(|(key, value)| format!("\"x-{key}\" : {value}")).collect();
                format!("{{{}}}", members.join(", "))
            }),
        ]
    })
}

/// A server of `era` that answers every call with what it is told, and keeps what it was asked.
#[test]
fn results_errors_and_arguments_pass_as_they_came() {
    for era in ERAS {
        let said = Arc::new(Mutex::new(String::new()));
        let saying = Arc::clone(&said);
        let server = Server::with(era, json!([tool("work")]), move |call, stream| {
            let said = saying.lock().unwrap().clone();
            let body = format!(r#"{{"jsonrpc":"2.0","id":{},{said}}}"#, call.body["id"]);
            stream.write_all(&ok(&body)).is_ok()
        });
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let mut runner =
            TestRunner::new(Cases { cases: 48, failure_persistence: None, ..Cases::default() });
        let strategy = (value(), value(), value(), any::<bool>());
        let ran = runner.run(&strategy, |(one, two, arguments, error)| {
            let kind = if era == Era::Modern { r#""resultType" : "complete","# } else { "" };
            let member = if error {
                format!(r#""error":{{"code":-7,"message":"m","data":{one},"x":{two}}}"#)
            } else {
                format!(r#""result":{{{kind}"content":[{{"type":"odd","x":{one}}}],"structuredContent":{two},"x-more":{one}}}"#)
            };
            said.lock().unwrap().clone_from(&member);
            let meta = if era == Era::Modern {
                r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"x":1.0}"#
            } else {
                ""
            };
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"work","arguments":{{"a":{arguments}}},"x-more":{one}{meta}}}}}"#
            );
            let answer = raw(ana.address, &ana.bytes("tools/call", Some("work"), &body));
            let expected = format!(r#"{{"jsonrpc":"2.0","id":7,{member}}}"#);
            prop_assert_eq!(&answer.body, &expected);
            let sent = String::from_utf8(server.tool_calls().pop().unwrap().bytes).unwrap();
            prop_assert!(sent.contains(&format!(r#""arguments":{{"a":{arguments}}}"#)), "{}", sent);
            prop_assert!(sent.contains(&format!(r#""x-more":{one}"#)), "{}", sent);
            Ok(())
        });
        ran.unwrap_or_else(|error| panic!("{era:?}: {error}"));
    }
}

/// Between eras nothing changes but what the other era has another word for.
#[test]
fn between_eras_only_the_words_of_the_era_change() {
    let result = r#"{"content":[{"type":"text","text":"a\u0062","x":1.50}],"x-more":{"n":1E2}}"#;
    for (client_era, server_era) in [(Era::Modern, Era::Legacy), (Era::Legacy, Era::Modern)] {
        let server = Server::with(server_era, json!([tool("work")]), move |call, stream| {
            let kind = if server_era == Era::Modern { r#""resultType":"complete","# } else { "" };
            let result = result.replacen('{', &format!("{{{kind}"), 1);
            let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, call.body["id"]);
            stream.write_all(&ok(&body)).is_ok()
        });
        let gateway = Config::of(&server.url()).start();
        let answer = gateway.client(client_era, ANA).call("work", &json!({}));
        let kind = if client_era == Era::Modern { r#""resultType":"complete","# } else { "" };
        let expected = result.replacen('{', &format!("{{{kind}"), 1);
        assert!(answer.body.ends_with(&format!(r#""result":{expected}}}"#)), "{}", answer.body);
    }
}
