//! Mistakes in configurations, as `validate` shows them: where, what, and how to mend it. And no secret that was written
//! into a file is in anything that is said about it.

use std::fs;
use std::process::{Command, Output};

use e2e::ERAS;
use e2e::gateway::{ANA, Config, Folder, binary, json_of, printed};
use e2e::server::Server;
use serde_json::Value;

/// A configuration without a mistake.
const GOOD: &str = "\
apiVersion: portcullis.dev/v1
listeners:
  - name: main
    address: 127.0.0.1:8080
    authentication: [apiKey]
ops:
  address: 127.0.0.1:9901
identity:
  apiKeys:
    - name: ana-laptop
      principal: ana
      groups: [developers]
      sha256: 0f5b000000000000000000000000000000000000000000000000000000000000
servers:
  - name: tickets
    url: http://127.0.0.1:9000/mcp
  - name: files
    command: cat
routes:
  - path: /all
    servers: [tickets, files]
policy:
  rules:
    - id: read
      effect: allow
      principals: [group:developers]
      servers: [tickets]
      tools: [get_ticket]
      when: arguments.x == 1
audit:
  sinks:
    - name: file
      file: audit.jsonl
";

/// One that is taken for a secret by nothing but where it stands.
const SECRET: &str = "hunter2.hunter2";

/// A mistake, and everything that is said about it.
struct Mistake {
    /// What is replaced in [`GOOD`], and by what.
    edits: &'static [(&'static str, &'static str)],
    /// Where the text begins that is shown.
    at: &'static str,
    message: &'static str,
    help: &'static str,
}

/// The SHA-256 of `change-me`.
const CHANGE_ME: &str = "e2186dbdb1bb4193608605e84f33208765b5693b55edd4f730a719a100eeea6f";

/// The keys of [`GOOD`].
const API_KEYS: &str = "  apiKeys:
    - name: ana-laptop
      principal: ana
      groups: [developers]
      sha256: 0f5b000000000000000000000000000000000000000000000000000000000000
";

/// What is done about a line that is indented too far.
const DEEPER: &str = "give it the same indentation as the keys beside it; a value with `: ` in it is written in quotes";

/// What is done about a value that begins with a character of YAML.
const QUOTED: &str = "a value that begins with `*`, `!`, `&`, `|`, `>`, `@`, `%` or a backquote must be in quotes: `'*'`";

/// What is done about a name that is not one line.
const ONE_LINE: &str = "write it in one line; in double quotes a backslash is written `\\\\`";

const MISTAKES: [Mistake; 52] = [
    Mistake {
        edits: &[("file: audit.jsonl", "file: ''")],
        at: "''",
        message: "the text is empty",
        help: "write what it is to name",
    },
    Mistake {
        edits: &[("[get_ticket]", "[get_ticket, '']")],
        at: "'']",
        message: "the text is empty",
        help: "write what it is to name",
    },
    Mistake {
        edits: &[("name: file\n", "name: \"fi\\ble\"\n")],
        at: "\"fi",
        message: "the text has a line end or another control character",
        help: ONE_LINE,
    },
    Mistake {
        edits: &[("file: audit.jsonl", "file: \"C:\\audit.jsonl\"")],
        at: "\"C:",
        message: "the text has a line end or another control character",
        help: ONE_LINE,
    },
    Mistake {
        edits: &[("9901", "9901\nlimits: {inFlight: 18446744073709551616}")],
        at: "18446744073709551616",
        message: "this number is too large",
        help: "write a smaller one",
    },
    Mistake {
        edits: &[("9000/mcp", "9000/mcp\n    credential: {header: hunter2}")],
        at: "hunter2}",
        message: "a secret is written out here",
        help: "write `{fromEnv: NAME}` and set the variable, or `{fromFile: PATH}`; use a new secret, because this one has been in a file",
    },
    Mistake {
        edits: &[("9901", "9901\n  token: {fromEnv: PORTCULLIS_NOT_SET}")],
        at: "PORTCULLIS_NOT_SET",
        message: "secret not found in the environment variable `PORTCULLIS_NOT_SET`: it is not set, or not UTF-8",
        help: "set it and restart the gateway with it, or use `fromFile`; `validate --elsewhere` checks a configuration for another machine",
    },
    Mistake {
        edits: &[("9901", "9901\n  token: {fromFile: /no/such/token}")],
        at: "/no/such/token",
        message: "secret not found in the file `/no/such/token`: No such file or directory (os error 2)",
        help: "put it there; `validate --elsewhere` checks a configuration for another machine",
    },
    Mistake {
        edits: &[("file: audit.jsonl", "file: no/such/audit.jsonl")],
        at: "no/such/audit.jsonl",
        message: "the folder `no/such` is not there: No such file or directory (os error 2)",
        help: "make it, for the user of the gateway, or name another file; `validate --elsewhere` checks a configuration \
               for another machine",
    },
    Mistake {
        edits: &[("127.0.0.1:9901", "127.0.0.1:8080")],
        at: "127.0.0.1:8080\nidentity",
        message: "`ops` and the listener `main` cannot both have the port 8080",
        help: "give each a port of its own",
    },
    Mistake {
        edits: &[("http://127.0.0.1:9000/mcp", "http://mcp.example.com/mcp")],
        at: "http://mcp",
        message: "`http` to another machine: what is said can be read and changed",
        help: "write `https`, or `insecure: true` if something else protects it",
    },
    Mistake {
        edits: &[("[get_ticket]", "[tickets__get_ticket]")],
        at: "tickets__get_ticket",
        message: "`tickets__get_ticket` is what clients see; here it names no tool",
        help: "write `get_ticket`: the name that `tickets` gives it; where that itself begins so, write \
               `tickets_?get_ticket`",
    },
    Mistake {
        edits: &[("audit:\n", "limits: {responseTimeout: 30}\naudit:\n")],
        at: "30}",
        message: "`30` is not a time: its unit is missing",
        help: "write `30s` for seconds, or `30ms`, `30m` or `30h`",
    },
    Mistake {
        edits: &[("audit:\n", "limits: {responseTimeout: '30'}\naudit:\n")],
        at: "'30'}",
        message: "`30` is not a time: its unit is missing",
        help: "write `30s` for seconds, or `30ms`, `30m` or `30h`",
    },
    Mistake {
        edits: &[("audit:\n", "limits: {requestBody: 65536}\naudit:\n")],
        at: "65536}",
        message: "`65536` is not a size: its unit is missing",
        help: "write `65536B` for bytes, or `65536KiB` or `65536MiB`",
    },
    Mistake {
        edits: &[("arguments.x == 1", "arguments.x ==")],
        at: "arguments.x ==",
        message: "the expression is not CEL: at column 15, the expression ends, and a value is missing",
        help: "correct the expression; docs/policy.md says what `when` may use",
    },
    Mistake {
        edits: &[("arguments.x == 1", "arguments.x = 1")],
        at: "arguments.x = 1",
        message: "the expression is not CEL: at column 13, `=` is no operator: write `==` to compare",
        help: "correct the expression; docs/policy.md says what `when` may use",
    },
    Mistake {
        edits: &[("arguments.x == 1", "size(arguments.x)")],
        at: "size(",
        message: "the expression gives a number, which is neither true nor false",
        help: "compare it with something, as in `arguments.path == \"/data\"` or `size(arguments.path) > 1`",
    },
    Mistake {
        edits: &[("arguments.x == 1", "arguments.x + 1")],
        at: "arguments.x + 1",
        message: "the expression gives a number, a text or a list, which is neither true nor false",
        help: "compare it with something, as in `arguments.path == \"/data\"` or `size(arguments.path) > 1`",
    },
    Mistake {
        edits: &[(
            "policy:\n",
            "policy:\n  constraints:\n  - {servers: [tickets], tools: ['*'], argument: /url, type: url, \
             privateHosts: true}\n",
        )],
        at: "true}",
        message: "without `hosts` this admits every internal address, metadata services included",
        help: "name the internal hosts in `hosts`; or, if every public host is meant as well, in `additionalHosts` and without \
               `privateHosts`",
    },
    Mistake {
        edits: &[("command: cat", "command: cat\n    env: {LEVEL: hunter2.hunter2}")],
        at: "{LEVEL",
        message: "a mapping is not a list",
        help: "write an item for each: `- {name: LEVEL, value: ..}`, or for a secret `- {name: LEVEL, fromEnv: VARIABLE}`",
    },
    Mistake {
        edits: &[(
            "0f5b000000000000000000000000000000000000000000000000000000000000",
            "pcl_hunter2.hunter2",
        )],
        at: "pcl_hunter2",
        message: "this is the API key itself, and not its hash",
        help: "make another with `portcullis keygen`, because this one was written down, and write the `sha256` that it \
               prints here",
    },
    Mistake {
        edits: &[("9901", "9901\n  token: hunter2.hunter2")],
        at: "hunter2",
        message: "a secret is written out here",
        help: "write `{fromEnv: NAME}` and set the variable, or `{fromFile: PATH}`; use a new secret, because this one has \
               been in a file",
    },
    Mistake {
        edits: &[("9901", "9901\n  token: {fromEnv: hunter2.hunter2}")],
        at: "hunter2",
        message: "what stands here is not the name of a variable",
        help: "write the name of the variable that holds the secret, and not the secret: such as `API_TOKEN`",
    },
    Mistake {
        edits: &[
            ("127.0.0.1:8080", "0.0.0.0:8080\n    hosts: [gw.example.com]"),
            ("0f5b000000000000000000000000000000000000000000000000000000000000", CHANGE_ME),
        ],
        at: CHANGE_ME,
        message: "the key with this hash is a well-known password, and `main` is open to other machines",
        help: "make a key with `portcullis keygen`, and write its hash here",
    },
    Mistake {
        edits: &[("tools: [get_ticket]", "tools: [get_ticket]\n      tols: [a]")],
        at: "tols",
        message: "unknown key `tols`",
        help: "did you mean `tools`?",
    },
    Mistake {
        edits: &[("  apiKeys:", "  api_keys:")],
        at: "api_keys",
        message: "unknown key `api_keys`",
        help: "did you mean `apiKeys`?",
    },
    Mistake {
        edits: &[("effect:", "efect:")],
        at: "efect",
        message: "unknown key `efect`",
        help: "did you mean `effect`?",
    },
    Mistake {
        edits: &[("tools: [get_ticket]", "tols: [get_ticket]")],
        at: "tols",
        message: "unknown key `tols`",
        help: "did you mean `tools`?",
    },
    Mistake {
        edits: &[("    url: http", "    urll: http")],
        at: "urll",
        message: "unknown key `urll`",
        help: "did you mean `url`?",
    },
    Mistake {
        edits: &[("\nservers:\n", "\nserver:\n")],
        at: "server:\n",
        message: "unknown key `server`",
        help: "did you mean `servers`?",
    },
    Mistake {
        edits: &[("identity:", "identiy:")],
        at: "identiy",
        message: "unknown key `identiy`",
        help: "did you mean `identity`?",
    },
    Mistake {
        edits: &[("name: files", "name: tickets")],
        at: "tickets\n    command",
        message: "`tickets` is used twice; it is the name of `servers[0]` already",
        help: "give each its own name",
    },
    Mistake {
        edits: &[("name: tickets", "name: My Files")],
        at: "My Files",
        message: "the name has ` ` at byte 2; use letters, digits, `_`, `-` and `.`",
        help: "rename it",
    },
    Mistake {
        edits: &[
            ("authentication: [apiKey]", "authentication: [oauth]"),
            (API_KEYS, "  issuers: [{name: idp, issuer: 'http://idp.example.com'}]\n"),
        ],
        at: "'http://idp.example.com'",
        message: "`http://idp.example.com` is not an `https` URL",
        help: "write `https://host/path`; plain HTTP can be changed on its way",
    },
    Mistake {
        edits: &[("9000/mcp", "9000/mcp\n    insecure: 'true'")],
        at: "'true'",
        message: "`true` is not a boolean",
        help: "write `true` without quotes",
    },
    Mistake {
        edits: &[("apiVersion: portcullis.dev/v1\n", "")],
        at: "listeners",
        message: "`apiVersion` is missing",
        help: "add `apiVersion: portcullis.dev/v1` here",
    },
    Mistake {
        edits: &[(
            "audit:\n",
            "  constraints:\n    - {servers: [tickets], tools: ['*'], argument: path, type: path, within: [/srv]}\naudit:\n",
        )],
        at: "path, type",
        message: "this is not a JSON Pointer",
        help: "begin with `/`: `/path` is the argument `path`, `/paths/*` each item of the list `paths`",
    },
    Mistake {
        edits: &[(
            "    servers: [tickets, files]\n",
            "    servers: [tickets]\n  - path: /all\n    servers: [files]\n",
        )],
        at: "/all\n    servers: [files]",
        message: "`/all` is used twice; it is the path of `routes[0]` already",
        help: "give each route its own path, or put the servers of both into one route",
    },
    Mistake {
        edits: &[("    authentication", "\tauthentication")],
        at: "\tauthentication",
        message: "not YAML: this line is indented with a tab",
        help: "indent with spaces: YAML allows no tabs there",
    },
    Mistake {
        edits: &[("8080\n    authentication", "8080 # here\n      authentication")],
        at: "authentication",
        message: "not YAML: this line is not indented as the keys beside it are",
        help: DEEPER,
    },
    Mistake {
        edits: &[("8080\n    authentication", "8080\n      authentication")],
        at: ": [apiKey]",
        message: "not YAML: a `: ` stands where a value ends",
        help: DEEPER,
    },
    Mistake {
        edits: &[("127.0.0.1:8080", "'127.0.0.1:8080")],
        at: "'127",
        message: "not YAML: the quote that is opened here is not closed",
        help: "close it on the same line; in `'..'` a quote itself is written twice",
    },
    Mistake {
        edits: &[("9000/mcp", "9000/mcp\n    serverRequests: {roots: true}")],
        at: "true}",
        message: "`true` is not a mapping",
        help: "write `roots: {}` to allow it, or keys and values",
    },
    Mistake {
        edits: &[("audit:\n", "limits: {answerTime: 10s, responseTimeout: 20s}\naudit:\n")],
        at: "answerTime",
        message: "`answerTime` is the former name of `responseTimeout`, which is given too",
        help: "remove it",
    },
    Mistake {
        edits: &[("audit:\n", "limits: {respTimeout: 10s}\naudit:\n")],
        at: "respTimeout",
        message: "unknown key `respTimeout`",
        help: "did you mean `responseTimeout`?",
    },
    Mistake {
        edits: &[("audit:\n", "limits: {answertime: 10s}\naudit:\n")],
        at: "answertime",
        message: "unknown key `answertime`",
        help: "did you mean `responseTimeout`?",
    },
    Mistake {
        edits: &[("[get_ticket]", "[*]")],
        at: "*]",
        message: "not YAML: a value without quotes begins with `*`",
        help: QUOTED,
    },
    Mistake {
        edits: &[("[get_ticket]", "[*.example.com]")],
        at: "*.example",
        message: "not YAML: a value without quotes begins with `*`",
        help: QUOTED,
    },
    Mistake {
        edits: &[("arguments.x == 1", "!has(arguments.x) || arguments.x == 1")],
        at: "!has",
        message: "not YAML: a value without quotes begins with `!`",
        help: QUOTED,
    },
    Mistake {
        edits: &[("command: cat", "command: cat\n    env: [API_TOKEN]")],
        at: "API_TOKEN",
        message: "an item of `env` is a mapping",
        help: "an item of `env` is `{name: TOKEN, fromEnv: TOKEN}`",
    },
    Mistake {
        edits: &[("effect: allow", "effect: deny")],
        at: "deny",
        message: "`deny` is not known here",
        help: "did you mean `forbid`? It is one of `allow`, `forbid`",
    },
];

/// Runs a verb in a folder whose configuration has the usual name.
fn portcullis(folder: &Folder, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(folder.path()).env_remove("PORTCULLIS_NOT_SET");
    command.output().unwrap()
}

fn write(folder: &Folder, text: &str) {
    fs::write(folder.path().join("portcullis.yaml"), text).unwrap();
}

/// The line and the column of the first place in a text where this stands.
fn place(text: &str, at: &str) -> (usize, usize) {
    let (before, _) = text.split_once(at).unwrap();
    let line = before.rsplit('\n').next().unwrap();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

#[test]
fn each_mistake_is_shown_with_its_place_its_cause_and_its_remedy() {
    let folder = Folder::new();
    write(&folder, GOOD);
    let good = portcullis(&folder, &["validate"]);
    assert_eq!(good.status.code(), Some(0), "{}", printed(&good));
    for Mistake { edits, at, message, help } in MISTAKES {
        let mut text = GOOD.to_owned();
        for (from, to) in edits {
            assert!(text.contains(from), "{from}");
            text = text.replacen(from, to, 1);
        }
        write(&folder, &text);
        let (line, column) = place(&text, at);
        let json = portcullis(&folder, &["validate", "--format", "json"]);
        assert_eq!(json.status.code(), Some(3), "{at}: {}", printed(&json));
        #[expect(clippy::disallowed_methods, reason = "our own output")]
        let found: Value = serde_json::from_slice(&json.stdout).unwrap();
        let expected = serde_json::json!([{ "file": "portcullis.yaml", "line": line, "column": column,
            "message": message, "help": help }]);
        assert_eq!(found, expected, "{at}");
        let human = portcullis(&folder, &["validate"]);
        assert_eq!(human.status.code(), Some(3));
        let said = printed(&human);
        for part in [
            format!("error: {message}\n"),
            format!("--> portcullis.yaml:{line}:{column}\n"),
            format!("= help: {help}\n"),
            "\n1 problem; nothing was started\n".to_owned(),
        ] {
            assert!(said.contains(&part), "{part}\nis not in\n{said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_secret_in_a_file_is_in_nothing_that_is_said() {
    let folder = Folder::new();
    for (from, to) in [
        ("9901", "9901\n  token: SECRET"),
        ("9901", "9901\n  token: [SECRET]"),
        ("9901", "9901\n  token: {value: SECRET}"),
        ("9901", "9901\n  token: {fromEnv: SECRET}"),
        ("9901", "9901\n  token: {fromEnv: A, fromFile: b, secret: SECRET}"),
        ("audit:\n", "sessions: {keys: [SECRET]}\naudit:\n"),
        ("audit:\n", "audit:\n  digestKey: SECRET\n"),
        ("audit:\n", "audit:\n  checkpoints: {key: SECRET}\n"),
        ("url: http://127.0.0.1:9000/mcp", "url: https://ana:SECRET@tickets.example.com/mcp"),
        (
            "url: http://127.0.0.1:9000/mcp",
            "url: https://tickets.example.com/mcp\n    credential: SECRET",
        ),
        (
            "url: http://127.0.0.1:9000/mcp",
            "url: https://tickets.example.com/mcp\n    credential: {header: {value: SECRET}}",
        ),
        ("command: cat", "command: cat\n    env: {API_TOKEN: SECRET}"),
        ("command: cat", "command: cat\n    env: ['API_TOKEN=SECRET']"),
        ("command: cat", "command: cat\n    env: [{name: API_TOKEN, value: SECRET, more: 1}]"),
        ("      sha256: 0f5b", "      key: SECRET\n      sha256: 0f5b"),
        ("0f5b000000000000000000000000000000000000000000000000000000000000", "SECRET"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        write(&folder, &GOOD.replacen(from, &to.replace("SECRET", SECRET), 1));
        for arguments in [
            &["validate"][..],
            &["validate", "--format", "json"],
            &["run"],
            &["doctor", "--timeout", "1s"],
        ] {
            let output = portcullis(&folder, arguments);
            let said = printed(&output);
            assert!(
                !output.status.success() && !said.contains(SECRET),
                "{to} {arguments:?}\n{said}"
            );
        }
    }
}

/// A secret that is written into the configuration.
struct InClear {
    /// What is replaced in [`GOOD`].
    from: &'static str,
    /// By what, where `SECRET` is the secret.
    to: &'static str,
    /// Where the text begins that is pointed at.
    at: &'static str,
    /// A part of the warning.
    wanted: &'static str,
}

const URL: &str = "http://127.0.0.1:9000/mcp";

const IN_CLEAR: [InClear; 7] = [
    InClear {
        from: "command: cat",
        to: "command: cat\n    env: [{name: GITHUB_TOKEN, value: SECRET}]",
        at: "SECRET",
        wanted: "as the value of `GITHUB_TOKEN`, where all who can read this file see it; write `fromEnv: VARIABLE`, `fromFile: PATH`",
    },
    InClear {
        from: "command: cat",
        to: "command: cat\n    args: [--token, SECRET]",
        at: "SECRET",
        wanted: "with `fromEnv`, `fromFile` or `fromCommand`",
    },
    InClear {
        from: "command: cat",
        to: "command: cat\n    args: ['--api-key=SECRET']",
        at: "'--api-key",
        wanted: "with `fromEnv`, `fromFile` or `fromCommand`",
    },
    InClear {
        from: "command: cat",
        to: "command: cat\n    args: ['-e', 'DB_PASSWORD=SECRET']",
        at: "'DB_PASSWORD",
        wanted: "write `${VARIABLE}` here",
    },
    InClear {
        from: URL,
        to: "http://127.0.0.1:9000/mcp?api_key=SECRET",
        at: URL,
        wanted: "in this URL, where all who can read this file see it; show it in `credential` or `headers`",
    },
    InClear {
        from: URL,
        to: "http://127.0.0.1:9000/mcp\n    headers: [{name: X-Api-Key, value: SECRET}]",
        at: "SECRET",
        wanted: "as the value of `X-Api-Key`",
    },
    InClear {
        from: URL,
        to: "http://127.0.0.1:9000/mcp\n    headers: [{name: X-Api-Key, value: '${NOT_SET:-SECRET}'}]",
        at: "'${NOT_SET",
        wanted: "as the value of `X-Api-Key`",
    },
];

#[test]
fn a_secret_that_stands_in_a_configuration_is_warned_of_with_its_place_and_is_not_shown() {
    let folder = Folder::new();
    let formed = ["ghp_", "0123456789abcdefghijABCDEFGHIJ012345"].concat();
    for InClear { from, to, at, wanted } in IN_CLEAR {
        for secret in [SECRET, &formed] {
            let text = GOOD.replacen(from, &to.replace("SECRET", secret), 1);
            write(&folder, &text);
            let (line, column) = place(&text, &at.replace("SECRET", secret));
            let warning = format!("portcullis.yaml:{line}:{column}: a secret seems to stand ");
            for arguments in
                [&["validate"][..], &["validate", "--elsewhere"], &["doctor", "--timeout", "1s"]]
            {
                let said = printed(&portcullis(&folder, arguments));
                assert_eq!(said.matches("a secret seems to stand").count(), 1, "{to}: {said}");
                for part in [&warning, wanted] {
                    assert!(said.contains(part), "{part}\nis not in\n{arguments:?} {said}");
                }
                // A program says in its own words what it does not understand, and the doctor shows them.
                let is_quoted = arguments.contains(&"doctor") && to.contains("args:");
                assert!(is_quoted || !said.contains(secret), "{to}: {said}");
            }
            let output = portcullis(&folder, &["validate"]);
            assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
        }
        // What a variable has does not stand in the file.
        let referred = to.replace("${NOT_SET:-SECRET}", "${PATH}").replace("SECRET", "${PATH}");
        let referred = referred.replace(" ${PATH}", " '${PATH}'");
        write(&folder, &GOOD.replacen(from, &referred, 1));
        let output = portcullis(&folder, &["validate", "--elsewhere"]);
        assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
        assert!(
            !printed(&output).contains("a secret seems to stand"),
            "{referred}: {}",
            printed(&output)
        );
    }
}

#[test]
fn a_gateway_whose_configuration_has_a_secret_in_it_says_so_in_its_log() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let value = "secret-in-the-configuration";
        let headers = format!("headers: [{{name: X-Api-Key, value: {value}}}]");
        let servers = format!("- {{name: up, url: '{}', {headers}}}", server.url());
        let gateway = Config::with(&servers, "[up]").start();
        let answer = gateway.client(era, ANA).call("echo", &serde_json::json!({ "text": "x" }));
        assert_eq!(answer.status, 200, "{answer:?}");
        let said = gateway.says("a secret seems to stand as the value of `X-Api-Key`");
        assert!(!said.contains(value), "{said}");
    }
}

#[test]
fn the_file_of_a_client_is_told_from_a_configuration() {
    let folder = Folder::new();
    let server = r#"{"command": "npx", "args": ["-y", "x"], "env": {"API_TOKEN": "SECRET"}}"#;
    for (text, at) in [
        (format!(r#"{{"mcpServers": {{"a": {server}}}}}"#), "mcpServers"),
        (format!("{{\n  \"servers\": {{\"a\": {server}}},\n  \"inputs\": []\n}}\n"), "\"servers"),
        (format!("{{ // comments\n  \"mcpServers\": {{\"a\": {server}}},\n}}\n"), "mcpServers"),
        (
            "[mcp_servers.a]\ncommand = \"npx\"\nenv = { API_TOKEN = \"SECRET\" }\n".to_owned(),
            "mcp_servers",
        ),
    ] {
        let text = text.replace("SECRET", SECRET);
        fs::write(folder.path().join("mcp.json"), &text).unwrap();
        let output = portcullis(&folder, &["validate", "mcp.json"]);
        assert_eq!(output.status.code(), Some(3));
        let said = printed(&output);
        let (line, column) = place(&text, at);
        for part in [
            "error: this is the file of an MCP client, and not a configuration of the gateway\n"
                .to_owned(),
            format!("--> mcp.json:{line}:{column}\n"),
            "= help: make one of it: `portcullis import mcp.json --write portcullis.yaml`\n"
                .to_owned(),
        ] {
            assert!(said.contains(&part), "{part}\nis not in\n{said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_section_that_is_missing_hides_no_other_mistake() {
    let folder = Folder::new();
    let listeners =
        "listeners:\n  - name: main\n    address: 127.0.0.1:8080\n    authentication: [apiKey]\n";
    let place = |line: &str| GOOD.find(line).unwrap();
    let servers = GOOD.get(place("servers:\n  - name: tickets")..place("routes:\n")).unwrap();
    let routes = "routes:\n  - path: /all\n    servers: [tickets, files]\n";
    let audit = GOOD.get(place("audit:\n")..).unwrap();
    let twice = ("name: files\n", "name: tickets\n");
    let both = ("command: cat\n", "command: cat\n    url: http://127.0.0.1:9000/mcp\n");
    let (used, unclear) = (
        "`tickets` is used twice; it is the name of `servers[0]` already",
        "a server has `url` or `command`, not both",
    );
    for (edits, expected) in [
        (vec![(listeners, ""), both], vec!["`listeners` is missing", unclear]),
        (
            vec![(listeners, ""), (routes, ""), twice],
            vec!["`listeners` is missing", "`routes` is missing", used],
        ),
        (
            vec![("apiVersion: portcullis.dev/v1\n", ""), both],
            vec!["`apiVersion` is missing", unclear],
        ),
        (vec![(audit, ""), both], vec!["`audit` is missing", unclear]),
        (
            vec![("    authentication: [apiKey]\n", ""), both],
            vec!["`authentication` is missing", unclear],
        ),
        // What refers to a section that is missing is not told beside it.
        (vec![(servers, "")], vec!["`servers` is missing"]),
    ] {
        let mut text = GOOD.to_owned();
        for (from, to) in edits {
            assert!(text.contains(from), "{from}");
            text = text.replacen(from, to, 1);
        }
        write(&folder, &text.replace("servers: [tickets, files]", "servers: [tickets]"));
        let json = portcullis(&folder, &["validate", "--format", "json"]);
        assert_eq!(json.status.code(), Some(3), "{}", printed(&json));
        let found = json_of(&json);
        let messages = found.as_array().unwrap().iter().map(|one| one["message"].as_str().unwrap());
        assert_eq!(messages.collect::<Vec<_>>(), expected, "{found:#}");
    }
}

#[test]
fn a_former_name_of_a_key_is_accepted_with_a_warning_that_says_the_current_one() {
    let folder = Folder::new();
    let former =
        GOOD.replacen("audit:\n", "limits: {answerTime: 30s, http2: {streams: 7}}\naudit:\n", 1);
    assert_ne!(former, GOOD);
    write(&folder, &former);
    let (line, column) = place(&former, "answerTime");
    let validated = portcullis(&folder, &["validate"]);
    let said = printed(&validated);
    assert_eq!(validated.status.code(), Some(0), "{said}");
    let warning = format!(
        "warning: portcullis.yaml:{line}:{column}: `answerTime` is the former name of `responseTimeout`; write `responseTimeout`"
    );
    assert!(said.contains(&warning), "{said}");
    assert!(said.contains("`streams` is the former name of `maxConcurrentStreams`"), "{said}");
    // The warning is not lost where the value is wrong, and an unknown key is not told all names that there are.
    write(&folder, &GOOD.replacen("audit:\n", "limits: {answerTime: 30, zzz: 1}\naudit:\n", 1));
    let wrong = printed(&portcullis(&folder, &["validate"]));
    for part in [
        "`answerTime` is the former name",
        "`30` is not a time",
        "unknown key `zzz`",
        " more, which docs/keys.md has",
    ] {
        assert!(wrong.contains(part), "{part}\nis not in\n{wrong}");
    }
    write(&folder, &former);
    // The value counts under either name.
    let effective = printed(&portcullis(&folder, &["config", "show", "--effective"]));
    assert!(effective.contains("responseTimeout: 30s"), "{effective}");
    assert!(effective.contains("maxConcurrentStreams: 7"), "{effective}");
}

#[test]
fn what_is_no_lockfile_is_shown_by_validate_with_its_line() {
    let folder = Folder::new();
    write(&folder, GOOD);
    for (text, place, message) in [
        ("hello world\n", "1:1", "this is not a lockfile: it has no `version: 1`"),
        ("version: 1\nservers: [\n", "2:", "not YAML: "),
        ("version: 1\nservers:\n  tickets:\n    set: 5\n", "4:5", "invalid type"),
        ("version: 2\n", "1:10", "not version 1"),
    ] {
        fs::write(folder.path().join("portcullis.lock"), text).unwrap();
        let human = portcullis(&folder, &["validate"]);
        let said = printed(&human);
        assert_eq!(human.status.code(), Some(3), "{said}");
        for part in
            [message, &format!("portcullis.lock:{place}"), "or remove it and run `portcullis pin`"]
        {
            assert!(said.contains(part), "{part}\nis not in\n{said}");
        }
        assert!(!said.contains("struct"), "{said}");
        let json = portcullis(&folder, &["validate", "--format", "json"]);
        assert_eq!(json.status.code(), Some(3));
        #[expect(clippy::disallowed_methods, reason = "our own output")]
        let found: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(found[0]["file"], "portcullis.lock", "{found}");
        // For another machine it does not matter.
        assert!(portcullis(&folder, &["validate", "--elsewhere"]).status.success());
    }
}

#[test]
fn a_program_that_is_not_there_is_said_by_validate() {
    let folder = Folder::new();
    for (command, said) in [
        (
            "no-such-program",
            "the program of the server `files` cannot be started: there is no `no-such-program` in the folders of `PATH`",
        ),
        ("/no/such/program", "cannot be started: there is no `/no/such/program`"),
        ("./portcullis.yaml", "is not executable"),
        (
            "no-such-program -y x",
            "there is no `no-such-program -y x`; write the program alone, and its arguments as a list in `args`",
        ),
    ] {
        write(&folder, &GOOD.replace("command: cat", &format!("command: {command}")));
        let output = portcullis(&folder, &["validate"]);
        // What runs it may be installed later.
        assert_eq!(output.status.code(), Some(0));
        let all = printed(&output);
        assert!(all.contains("warning: ") && all.contains(said), "{said}\nis not in\n{all}");
        assert!(all.contains("\n  --> portcullis.yaml:18:14\n"), "{all}");
    }
}

#[test]
fn an_outcome_that_there_is_not_is_refused_with_those_that_there_are() {
    let folder = Folder::new();
    let record = r#"{"event":"exchange","findings":["input-schema at `/n`: must be an integer"],"outcome":"denied",
        "reason":"arguments","time":"2026-11-21T08:00:00Z"}"#;
    let record = record.replace("\n        ", "") + "\n";
    fs::write(folder.path().join("audit.jsonl"), record).unwrap();
    let query = |outcome: &str| {
        portcullis(&folder, &["audit", "query", "audit.jsonl", "--outcome", outcome])
    };
    let refused = query("deny");
    assert_eq!(refused.status.code(), Some(2));
    let said = printed(&refused);
    for outcome in
        ["answered", "tool-error", "server-error", "denied", "refused", "failed", "cancelled"]
    {
        assert!(said.contains(outcome), "{outcome}: {said}");
        assert!(query(outcome).status.success(), "{outcome}");
    }
    let found = printed(&query("denied"));
    assert!(found.contains("(arguments; input-schema at `/n`: must be an integer)"), "{found}");
}

#[test]
fn sections_that_are_written_empty_are_shown_with_what_counts_in_them() {
    let folder = Folder::new();
    write(&folder, &GOOD.replace("audit:\n", "pins: {}\nlimits: {}\naudit:\n"));
    let shown = portcullis(&folder, &["config", "show", "--effective"]);
    assert!(shown.status.success(), "{}", printed(&shown));
    let text = printed(&shown);
    for part in [
        "\npins:\n  drift:  # default\n",
        "\n  mode: enforce  # default\n",
        "\nlimits:\n  batch: 50  # default\n",
        "\n    plantedInstructions: enforce  # default\n",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    let plain = printed(&portcullis(&folder, &["config", "show"]));
    assert!(plain.contains("pins: {}\nlimits: {}\n"), "{plain}");
}

#[test]
fn a_file_with_nothing_in_it_is_told_what_writes_one() {
    let folder = Folder::new();
    for text in ["", "# nothing yet\n"] {
        write(&folder, text);
        let output = portcullis(&folder, &["validate"]);
        assert_eq!(output.status.code(), Some(3));
        let said = printed(&output);
        assert!(said.contains("the file is empty") && said.contains("`portcullis init`"), "{said}");
    }
}

#[test]
fn a_server_on_no_route_and_a_policy_without_rules_are_remarked() {
    let folder = Folder::new();
    let quiet = ["no route leads to", "the policy has no rule"];
    write(&folder, GOOD);
    let said = printed(&portcullis(&folder, &["validate"]));
    assert!(quiet.iter().all(|part| !said.contains(part)), "{said}");
    write(&folder, &GOOD.replace("[tickets, files]", "[tickets]"));
    let said = printed(&portcullis(&folder, &["validate"]));
    assert!(said.contains("warning: no route leads to the server `files`"), "{said}");
    let (before, after) = GOOD.split_once("policy:\n").unwrap();
    let (_, after) = after.split_once("audit:\n").unwrap();
    write(&folder, &format!("{before}audit:\n{after}"));
    let output = portcullis(&folder, &["validate"]);
    let said = printed(&output);
    assert!(
        said.contains("warning: the policy has no rule, so that every call is denied"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn keys_that_others_on_the_network_can_read_are_warned_of() {
    let folder = Folder::new();
    let warning =
        "warning: the listener `main` takes the keys of callers in plain HTTP on 0.0.0.0:8080";
    let open = "    address: 0.0.0.0:8080\n    hosts: [gw.example.com]\n";
    for (listener, is_warned) in [
        (open.to_owned(), true),
        (format!("{open}    publicUrl: https://gw.example.com\n"), false),
        (format!("{open}    publicUrl: http://localhost:8080\n"), false),
        ("    address: 127.0.0.1:8080\n".to_owned(), false),
    ] {
        write(&folder, &GOOD.replace("    address: 127.0.0.1:8080\n", &listener));
        let output = portcullis(&folder, &["validate"]);
        assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
        assert_eq!(printed(&output).contains(warning), is_warned, "{}", printed(&output));
    }
}

#[test]
fn a_condition_that_may_be_none_is_warned_of() {
    let folder = Folder::new();
    for (when, warned) in [("arguments.x", true), ("arguments.x == true", false)] {
        write(&folder, &GOOD.replace("arguments.x == 1", when));
        let output = portcullis(&folder, &["validate"]);
        let said = printed(&output);
        let warning = "warning: the `when` of rule `read` is a condition only if its argument is true or false";
        assert_eq!(said.contains(warning), warned, "{said}");
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
}

#[test]
fn a_reference_that_is_wrong_is_told_where_what_it_refers_to_is_right() {
    let folder = Folder::new();
    // What is wrong with a server beside its name leaves its name.
    let text = GOOD
        .replace("http://127.0.0.1:9000/mcp", "http://mcp.example.com/mcp")
        .replace("servers: [tickets]", "servers: [tikets]")
        .replace("group:developers", "group:devs");
    write(&folder, &text);
    let output = portcullis(&folder, &["validate"]);
    let said = printed(&output);
    for part in [
        "`http` to another machine",
        "there is no server `tikets`",
        "no caller can be `group:devs`",
    ] {
        assert!(said.contains(part), "{part}\nis not in\n{said}");
    }
    assert!(said.contains("3 problems"), "{said}");
}

#[test]
fn a_name_that_init_cannot_use_is_one_mistake() {
    let folder = Folder::new();
    let output = portcullis(&folder, &["init", "--server", "My Files", "--command", "cat"]);
    assert_eq!(output.status.code(), Some(1));
    let said = printed(&output);
    assert!(said.contains("error: `--server My Files`: the name has ` ` at byte 2"), "{said}");
    assert!(said.matches("error").count() == 1 && !said.contains("portcullis.yaml:"), "{said}");
    assert!(!folder.path().join("portcullis.yaml").exists());
}

#[test]
fn records_of_a_client_over_standard_input_name_no_address() {
    let folder = Folder::new();
    let record = r#"{"event":"exchange","outcome":"refused","peer":"127.0.0.1:0","reason":"credential-missing",
        "time":"2026-11-21T08:00:00Z"}"#;
    let record = record.replace("\n        ", "") + "\n";
    fs::write(folder.path().join("audit.jsonl"), &record).unwrap();
    let query = || printed(&portcullis(&folder, &["audit", "query", "audit.jsonl"]));
    assert!(query().contains("from standard input (credential-missing)"), "{}", query());
    fs::write(folder.path().join("audit.jsonl"), record.replace(":0\"", ":4711\"")).unwrap();
    assert!(query().contains("from 127.0.0.1:4711 to no route"), "{}", query());
}
