use super::load;

const GOOD: &str = "\
apiVersion: portcullis.dev/v1
listeners:
  - name: main
    address: ${LISTEN:-127.0.0.1:0}
    authentication: [apiKey, anonymous]
identity:
  apiKeys:
    - name: ana
      principal: ana
      groups: [dev]
      sha256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
  anonymous: {groups: [local]}
servers:
  - name: files
    url: http://127.0.0.1:9000/mcp
routes:
  - path: /mcp
    servers: [files]
policy:
  rules:
    - id: open
      effect: allow
      principals: ['*']
      servers: [files]
      tools: ['*']
audit:
  sinks:
    - name: out
      stdout: true
";

fn problems(text: &str) -> Vec<String> {
    let found = load("gw.yaml", text, &|_| None).err();
    let json = found.map(|found| found.json()).unwrap_or_else(|| "[]".to_owned());
    #[expect(clippy::disallowed_methods, reason = "our own output")]
    let entries: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let line = |entry: &serde_json::Value| {
        let text = |key: &str| entry[key].as_str().unwrap().to_owned();
        format!("{}:{}: {}; {}", entry["line"], entry["column"], text("message"), text("help"))
    };
    entries.iter().map(line).collect()
}

fn changed(from: &str, to: &str) -> Vec<String> {
    assert!(GOOD.contains(from), "{from}");
    problems(&GOOD.replace(from, to))
}

#[test]
fn a_good_file_has_no_problems() {
    assert_eq!(problems(GOOD), [""; 0]);
}

#[test]
fn a_whole_number_may_be_written_with_a_fraction() {
    for number in ["40.0", "4e1", "+40"] {
        let limits = format!("limits: {{inFlight: {number}, inFlightPerCaller: 4}}\naudit:");
        assert_eq!(changed("audit:", &limits), [""; 0], "{number}");
    }
}

#[test]
fn each_mistake_has_a_place_and_a_remedy() {
    for (from, to, expected) in [
        (
            "servers: [files]\npolicy",
            "severs: [files]\npolicy",
            &["18:5: unknown key `severs`; did you mean `servers`?"] as &[&str],
        ),
        (
            "name: files\n",
            "name: files\n    name: files\n",
            &["15:5: `name` is given twice; it stands on line 14 already: keep one of them"],
        ),
        (
            "effect: allow",
            "effect: permit",
            &["22:15: `permit` is not known here; use one of `allow`, `forbid`"],
        ),
        (
            "tools: ['*']",
            "tools: '*'",
            &[
                "25:14: `*` is not a list; write a list here: `[a, b]`, or one `- item` on each line",
            ],
        ),
        (
            "servers: [files]\npolicy",
            "servers: [fils]\npolicy",
            &["18:15: there is no server `fils`; the servers are: files"],
        ),
        (
            "127.0.0.1:0",
            "0.0.0.0:80",
            &[
                "3:5: the names clients use for this listener are not given; add `hosts: [gateway.example.com]`; \
             requests for other names are refused",
                "5:30: anonymous callers are accepted on a loopback listener only; bind the listener to 127.0.0.1, \
             or ask for a credential",
            ],
        ),
        (
            "${LISTEN:-127.0.0.1:0}",
            "${LISTEN}",
            &[
                "4:14: the environment variable `LISTEN` is not set; set it, or give a default: `${LISTEN:-value}`",
            ],
        ),
        (
            "stdout: true",
            "stdout: false",
            &[
                "28:7: a sink has exactly one of `file`, `stdout`, `http`, `otlp` and `syslog`; give exactly one of \
                 `file: PATH`, `stdout: true`, `http`, `otlp` and `syslog`",
            ],
        ),
        (
            "principals: ['*']",
            "principals: ['group:ops']",
            &[
                "23:20: no caller can be `group:ops`; define it under `identity`, or correct the name",
            ],
        ),
        (
            "url: http",
            "url: ftp",
            &["15:10: `ftp://127.0.0.1:9000/mcp` is not the URL of a server; \
             write `http://host:port/path` or `https://host/path`"],
        ),
        (
            "apiVersion: portcullis.dev/v1",
            "apiVersion: portcullis.dev/v2",
            &["1:13: `portcullis.dev/v2` is not known here; write `portcullis.dev/v1`"],
        ),
        (
            "address: ${LISTEN:-127.0.0.1:0}",
            "address: 8089",
            &["4:14: `8089` is not a string; \
             write the address and the port: `127.0.0.1:8080`, `[::1]:8080` or `0.0.0.0:8080`"],
        ),
        (
            "name: out",
            "name: 7",
            &[
                "28:13: `7` is not a string; write text here; quote it if it looks like a number or a boolean",
            ],
        ),
        (
            "path: /mcp",
            "path: /a%2fb",
            &[
                "17:11: `/a%2fb` is not a path; start with `/` and use letters, digits, `-`, `.`, `_` and `~`",
            ],
        ),
    ] {
        assert_eq!(changed(from, to), expected, "{to}");
    }
}

#[test]
fn problems_of_several_kinds_are_reported_at_once() {
    let text = GOOD
        .replace("path: /mcp", "path: mcp\n    timeout: 3s")
        .replace("servers: [files]\n      tools", "servers: [nope]\n      tools")
        .replace("groups: [dev]", "groupz: [dev]");
    assert_eq!(problems(&text).len(), 4, "{:#?}", problems(&text));
}

#[test]
fn a_variable_is_a_string_where_a_string_is_wanted() {
    let text = GOOD.replace("name: out", "name: ${N}");
    load("gw.yaml", &text, &|name| (name == "N").then(|| "7".to_owned())).unwrap();
    let structure = GOOD.replace("name: out", "name: ${N}");
    let injected = load("gw.yaml", &structure, &|name| {
        (name == "N").then(|| "x, file: /etc/passwd".to_owned())
    })
    .unwrap();
    assert_eq!(&*injected.audit.sinks[0].name, "x, file: /etc/passwd");
}

#[test]
fn what_is_not_yaml_is_refused_with_its_place() {
    assert_eq!(problems("").len(), 1);
    assert!(
        problems("a: [1, 2\nb: 3\n")[0].starts_with("2:"),
        "{:?}",
        problems("a: [1, 2\nb: 3\n")
    );
    assert_eq!(
        problems("a: !!str b\n")[0],
        "1:4: a tag is not allowed here; remove the tag; quote a value to make it a string"
    );
    let bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
                c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n\
                e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
    let refused = &problems(bomb)[0];
    assert!(refused.starts_with("6:"), "{refused}");
    assert!(refused.contains("the aliases repeat more than 1048576 bytes"), "{refused}");
    assert!(
        problems(&format!("{}{}", "[".repeat(100), "]".repeat(100)))[0].contains("nested deeper")
    );
}

#[test]
fn a_credential_goes_over_plain_http_to_this_machine_alone() {
    for (url, more, is_refused) in [
        ("http://127.0.0.1:9000/mcp", "", false),
        ("http://LocalHost:9000/mcp", "egress: [loopback]", false),
        ("http://[::ffff:127.0.0.1]:9000/mcp", "", false),
        // The default networks admit only loopback for it; others may lead anywhere.
        ("http://api.localhost/mcp", "", false),
        ("http://api.localhost/mcp", "egress: [public]", true),
        ("http://up.example/mcp", "insecure: true", true),
    ] {
        let server =
            format!("url: '{url}'\n    credential: {{header: {{fromEnv: X}}}}\n    {more}");
        let found = changed("url: http://127.0.0.1:9000/mcp", &server);
        let said = "a credential would be sent in the clear";
        assert_eq!(found.iter().any(|one| one.contains(said)), is_refused, "{url}: {found:?}");
    }
}
