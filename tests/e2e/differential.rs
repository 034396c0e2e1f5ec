//! What the gateway accepts, the libraries of servers read like the gateway; `tests/differential` has the comparison.

use std::process::Command;

use e2e::ERAS;
use e2e::client::{Client, raw};
use e2e::gateway::{ANA, Config, binary, root};
use e2e::server::{Server, tool};
use serde_json::json;

use crate::peers::peers;

/// As many messages as take seconds. `docs/selftest.md` says how a million are compared.
#[test]
fn what_the_gateway_accepts_other_readers_read_alike() {
    peers();
    let tool = binary().with_file_name("differential");
    let output = Command::new("python3")
        .arg(root().join("tests/differential/run"))
        .args(["--count", "4000", "--seed", "7", "--binary"])
        .arg(tool)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{wrong}");
    assert!(said.contains("messages: 4000\n") && said.contains("disagreements: 0, in"), "{said}");
    let count = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{name}: {said}")).parse::<u32>().unwrap()
    };
    // Otherwise nothing was compared.
    assert!(count("accepted") > 1000 && count("readings") > 20_000, "{said}");
}

/// Neither the input schema nor a rule says anything about these arguments.
#[test]
fn arguments_that_readers_take_for_others_reach_no_server() {
    const OPEN: &str =
        "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";
    for era in ERAS {
        let server = Server::offering(
            era,
            json!({ "tools": [tool("work")] }),
            |_| json!({ "resultType": "complete", "content": [] }),
        );
        let gateway = Config::of(&server.url()).policy(OPEN).start();
        let client = Client::connect(gateway.address, "/mcp", era, Some(ANA));
        let body = client.message(
            &1.into(),
            "tools/call",
            json!({ "name": "work", "arguments": { "a": "$" } }),
        );
        let call = |arguments: &str| {
            let body = body.replace(r#"{"a":"$"}"#, arguments);
            raw(gateway.address, &client.bytes("tools/call", Some("work"), &body))
        };
        for (arguments, why) in [
            (r#"{"a":1e400}"#, "too large for a double"),
            (r#"{"a":{"b":[-1e400]}}"#, "too large for a double"),
            // A card number for readers with doubles.
            (r#"{"a":4539148803436467.0000000000001}"#, "more digits behind the point"),
            (r#"{"a":[4539148803436466.99999]}"#, "more digits behind the point"),
            (r#"{"__proto__":{"a":1}}"#, "`__proto__`"),
        ] {
            let answer = call(arguments).json();
            assert_eq!(answer["error"]["code"], -32602, "{era:?} {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(why), "{answer}");
        }
        assert!(server.tool_calls().is_empty());
        assert!(call(r#"{"a":1e300}"#).json()["error"].is_null());
        assert_eq!(server.tool_calls().len(), 1);
    }
}
