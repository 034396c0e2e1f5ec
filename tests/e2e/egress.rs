//! Connections go only to addresses their server may be at.

use e2e::gateway::{ANA, Config, Folder, binary};
use e2e::server::Server;
use e2e::{ERAS, Era};
use serde_json::json;

/// A gateway in front of `server` at `host`, with more of the server's configuration.
fn before(server: &Server, host: &str, more: &str) -> Config {
    let port = server.address.port();
    Config::with(&format!("- {{name: up, url: 'http://{host}:{port}/mcp'{more}}}"), "[up]")
}

#[test]
fn a_name_that_stands_for_another_network_is_not_connected_to() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        for networks in ["[public]", "[private, public]", "[10.0.0.0/8, 'fd00::/8']"] {
            let config = before(&server, "localhost", &format!(", egress: {networks}"));
            let gateway = config.start();
            let mut ana = gateway.client(Era::Modern, ANA);
            ana.era = era;
            // A legacy client does not come further than this.
            let (method, answer) = match era {
                Era::Modern => ("tools/call", ana.call("echo", &json!({ "text": "hello" }))),
                Era::Legacy => ("initialize", ana.hello()),
            };
            assert_eq!(answer.code(), -32603, "{networks}: {answer:?}");
            assert!(!format!("{answer:?}").contains("127.0.0.1"), "{answer:?}");
            let record = gateway.recorded("the call", |r| r["method"] == method);
            assert_eq!(record["reason"], "upstream-egress");
            gateway.says("which `egress` does not allow");
        }
        assert!(server.calls().is_empty());
    }
}

#[test]
fn a_name_that_stands_for_a_network_of_its_server_is() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        for (host, more) in [
            ("localhost", ""),
            ("127.0.0.1", ""),
            ("localhost", ", egress: [loopback]"),
            ("localhost", ", egress: [127.0.0.0/8, '::1']"),
            ("127.0.0.1", ", egress: [public, 127.0.0.1]"),
        ] {
            let gateway = before(&server, host, more).start();
            let answer = gateway.client(era, ANA).call("echo", &json!({ "text": "hello" }));
            assert_eq!(answer.json()["result"]["content"][0]["text"], "hello", "{host} {more}");
        }
    }
}

#[test]
fn what_can_never_be_reached_is_said_at_once() {
    let server = Server::echo(Era::Modern, &["echo"]);
    for (host, more, said) in [
        ("169.254.169.254", "", "are never connected to"),
        (
            "[::ffff:169.254.169.254]",
            ", egress: [private, '::/0', 0.0.0.0/0]",
            "never connected to",
        ),
        ("127.0.0.1", ", egress: [public]", "does not admit 127.0.0.1"),
        ("localhost", ", egress: []", "the list is empty"),
        ("localhost", ", egress: [intranet]", "`intranet`: not a network"),
        ("localhost", ", egress: [10.0.0.1/8]", "bits behind the prefix"),
        ("localhost", ", egress: [169.254.169.254]", "never connected to"),
    ] {
        let refused = before(&server, host, more).refused();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(3), "{host} {more}: {text}");
        assert!(text.contains(said) && text.contains("gateway.yaml:"), "{host} {more}: {text}");
    }
    assert!(server.calls().is_empty());
}

#[test]
fn another_machine_is_spoken_to_in_the_clear_only_where_that_is_said() {
    let folder = Folder::new();
    let said = |more: &str, url: &str| {
        let config = Config::with(&format!("- {{name: up, url: '{url}'{more}}}"), "[up]");
        let file = folder.path().join("gateway.yaml");
        config.write(&file, &folder.path().join("audit.jsonl"));
        let mut command = std::process::Command::new(binary());
        command.arg("validate").arg(&file);
        let output = e2e::gateway::fed(command, "");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    for url in ["http://mcp.example.com/mcp", "http://10.1.2.3:8080/mcp", "http://notlocalhost/mcp"]
    {
        let (valid, text) = said("", url);
        assert!(!valid && text.contains("`http` to another machine"), "{url}: {text}");
        assert!(said(", insecure: true", url).0, "{url}");
    }
    for url in [
        "http://localhost:9/mcp",
        "http://127.0.0.1:9/mcp",
        "http://[::1]:9/mcp",
        "https://mcp.example.com/mcp",
    ] {
        assert!(said("", url).0, "{url}");
        let (valid, text) = said(", insecure: true", url);
        assert!(!valid && text.contains("`insecure` changes nothing here"), "{url}: {text}");
    }
}
