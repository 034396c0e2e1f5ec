use json::{Document, JsonBounds};

use super::{ArgumentLimits, Constraint};
use proptest::prelude::*;

fn constraint(argument: &str, limits: &str) -> Constraint {
    let mut limits: serde_json::Value = serde_json::from_str(limits).unwrap();
    limits["argument"] = argument.into();
    let limits: ArgumentLimits = serde_json::from_value(limits).unwrap();
    Constraint::new(Vec::new(), limits).unwrap()
}

fn check(constraint: &Constraint, arguments: &str) -> Option<String> {
    let document = Document::parse(arguments.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
    let checked = constraint.check(Some(document.root()), None);
    checked.err().map(|misfit| format!("{}: {}", misfit.at, misfit.note))
}

fn passes(constraint: &Constraint, text: &str) -> bool {
    check(constraint, &serde_json::json!({ "a": text }).to_string()).is_none()
}

#[test]
fn a_path_lies_where_it_may_however_it_is_written() {
    let path = constraint("/a", r#"{"type":"path","within":["/srv/data","/tmp/x/"]}"#);
    for good in [
        "/srv/data/a.txt",
        "/srv/data",
        "/srv//data/./b c",
        "/tmp/x/..a/b",
        "/srv/data/%41",
        "/srv/data/ü",
    ] {
        assert!(passes(&path, good), "{good}");
    }
    for bad in [
        "",
        "a.txt",
        "/srv/database/x",
        "/srv/data/../secret",
        "/srv/data/%2e%2e/secret",
        "/srv/data/%252e%252e/x",
        "/srv/data/%25252e%25252e/x",
        "/srv/data\\..\\..\\x",
        "/srv/data/..%2fx",
        "\\\\host\\share",
        "//host/share",
        "C:/srv/data/x",
        "~/x",
        "~root/x",
        "file:///srv/data/x",
        "/srv/data/a\u{0}b",
        "/srv/data/%00",
        "/etc/passwd",
        "/srv/data/\u{ff0e}\u{ff0e}/x",
        "/srv/data\u{2215}..\u{2215}x",
        "/srv/data/.. /x",
        "/srv/data/.../x",
        "/SRV/data/x",
        "/srv/data/\u{200b}../x",
        "/srv/data/..\u{202e}/x",
        "/srv/data/a\nb",
    ] {
        assert!(!passes(&path, bad), "{bad:?}");
    }
    for bad in
        ["/srv/data/\u{ff05}2e\u{ff05}2e/x", "\t/srv/data/x", "/srv/data/x ", "file:/srv/data/x"]
    {
        assert!(!passes(&path, bad), "{bad:?}");
    }
    let relative = constraint("/a", r#"{"type":"path","within":["."]}"#);
    assert!(
        passes(&relative, "src/main.rs")
            && !passes(&relative, "/src")
            && !passes(&relative, "../x")
    );
}

#[test]
fn a_url_leads_outside_and_to_the_hosts_there_are() {
    let any = constraint("/a", r#"{"type":"url"}"#);
    for good in [
        "https://example.com",
        "https://example.com:8443/a?b=c#d",
        "HTTPS://Example.COM./",
        "https://93.184.216.34/",
        "https://192.0.64.1/",
        "https://[2606:4700::1111]/",
    ] {
        assert!(passes(&any, good), "{good}");
    }
    for bad in [
        "http://example.com",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://",
        "example.com",
        "https://u:p@example.com",
        "https://example.com@10.0.0.1/",
        "https://127.0.0.1",
        "https://127.1",
        "https://2130706433",
        "https://0x7f.0.0.1",
        "https://0177.0.0.1",
        "https://0",
        "https://169.254.169.254/latest",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[fe80::1]/",
        "https://[fd00::1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://localhost",
        "https://a.localhost",
        "https://metadata.google.internal",
        "https://printer.local",
        "https://intranet",
        "https://10.1.2.3",
        "https://100.64.0.1",
        "https://example.com\\@10.0.0.1",
        "https://exa mple.com",
        "https://ex\u{e4}mple.com",
        "https://example.com:99999",
        "https://127。0。0。1",
        "https://192.168.0.1.",
        "https:// example.com",
        "https://.example.com",
        "https://a..example.com",
        "https://example.com..",
    ] {
        assert!(!passes(&any, bad), "{bad:?}");
    }
    for bad in [
        "https://0127.0.0.1/",
        "https://127.0.0.08/",
        "https://[ff02::1]/",
        "https://[fec0::1]/",
        "https://1.2.3/",
        "https://168.63.129.16/",
        "https://[2001::80ff:fffe]/",
        "https://[2001:db8::1]/",
        "https://[3fff::1]/",
        "https://198.51.100.1/",
        "https://203.0.113.1/",
        "https://192.0.2.1/",
        "https://192.88.99.1/",
    ] {
        assert!(!passes(&any, bad), "{bad:?}");
    }
    let some = constraint(
        "/a",
        r#"{"type":"url","hosts":["api.example.com","*.corp.example"],"schemes":["https","http"]}"#,
    );
    assert!(passes(&some, "http://api.example.com/x") && passes(&some, "https://a.corp.example"));
    assert!(
        !passes(&some, "https://example.com")
            && !passes(&some, "https://api.example.com.evil.example")
    );
    let inside = constraint("/a", r#"{"type":"url","hosts":["10.0.0.7"],"privateHosts":true}"#);
    assert!(passes(&inside, "https://10.0.0.7/") && !passes(&inside, "https://10.0.0.8/"));
}

#[test]
fn every_internal_host_at_once_is_not_admitted() {
    let refused = |limits: &str| {
        let limits: ArgumentLimits = serde_json::from_str(limits).unwrap();
        Constraint::new(Vec::new(), limits).err().map(|(member, _)| member)
    };
    let all = r#"{"argument":"/a","type":"url","privateHosts":true}"#;
    assert_eq!(refused(all), Some("privateHosts"));
    let some = r#"{"argument":"/a","type":"url","privateHosts":true,"hosts":["10.0.0.7"]}"#;
    assert_eq!(refused(some), None);
}

#[test]
fn an_address_is_of_the_domains_there_are() {
    let email =
        constraint("/to/*", r#"{"type":"email","domains":["example.com","*.example.com"]}"#);
    let to =
        |addresses: &[&str]| check(&email, &serde_json::json!({ "to": addresses }).to_string());
    assert_eq!(to(&["ana@example.com", "bob@de.example.com"]), None);
    assert_eq!(to(&[" ana@example.com, bob@de.example.com ;eve@example.com"]), None);
    assert!(to(&["ana@example.com", "eve@evil.example"]).unwrap().starts_with("/to/1: "));
    for bad in [
        "a@example.com.evil.example",
        "a@evil.example,b@example.com",
        "a@b@example.com",
        "<a@example.com>",
        "a",
        "a@example.com\nbcc: e@evil.example",
        "a@example.com\r\n\r\n",
        "\r\na@example.com",
        "a@example.com\n",
        "a@example.com,\r\nb@example.com",
        "a@example.com\t",
        "a@example.com\u{2028}",
        "a@example.com\u{a0}",
    ] {
        assert!(to(&[bad]).is_some(), "{bad:?}");
    }
}

#[test]
fn a_text_is_without_what_means_more() {
    let all = constraint("/a", r#"{"forbid":["shell","sql","option","agentConfig"]}"#);
    assert!(passes(&all, "a plain text, 100 % of it"));
    for bad in [
        "a; rm -rf /",
        "a && b",
        "$(id)",
        "`id`",
        "a|b",
        "a > b",
        "a\nb",
        "x' OR 1=1",
        "1 -- ",
        "/* x",
        "-rf",
        " --output=x",
        "\u{2013}x",
        ".cursor/rules",
        "a/CLAUDE.md",
        "/w/.git/hooks/pre-commit",
        "x/%2emcp.json",
        ".mcp.json",
        "C:\\u\\.vscode\\x",
    ] {
        assert!(!passes(&all, bad), "{bad:?}");
    }
    for bad in [
        ".git//hooks/x",
        ".git/./hooks/x",
        ".git/modules/x/hooks/y",
        ".mcp.json.",
        ".mcp.json::$DATA",
        ".zshenv",
    ] {
        assert!(!passes(&all, bad), "{bad:?}");
    }
    let option = constraint(
        "/a",
        r#"{"forbid":["option"],"maxLength":5,"enum":["main","dev"],"pattern":"[a-z]+"}"#,
    );
    assert!(passes(&option, "main") && !passes(&option, "-main") && !passes(&option, "mainx"));
    let lone = constraint("/a", r#"{"forbid":["option"]}"#);
    assert!(passes(&lone, "a -x") && passes(&lone, " x"));
    for bad in ["-x", " -x", "\t--x", "\u{200b}-x", "\u{feff}\u{ff0d}x", "\u{2013}x", " \u{2212}x"]
    {
        assert!(!passes(&lone, bad), "{bad:?}");
    }
    let number = constraint("/a", r#"{"minimum":1,"maximum":10,"required":true}"#);
    assert_eq!(check(&number, r#"{"a":5}"#), None);
    assert_eq!(check(&number, r#"{"a":11}"#).unwrap(), "/a: is too large");
    assert_eq!(check(&number, "{}").unwrap(), "/a: is missing");
    assert!(
        check(&number, r#"{"a":{"b":1}}"#).is_some() && check(&number, r#"{"a":null}"#).is_some()
    );
    assert!(number.check(None, None).is_err());
}

#[test]
fn a_text_that_grows_when_it_is_normalised_does_not_pass() {
    let path = constraint("/a", r#"{"type":"path","within":["/srv"]}"#);
    let shell = constraint("/a", r#"{"forbid":["shell"]}"#);
    for bad in ["\u{fdfa}".repeat(100), format!("a{}", "\u{301}".repeat(100))] {
        let bad = format!("/srv/{bad}");
        assert!(!passes(&path, &bad) && !passes(&shell, &bad), "{bad}");
        assert!(passes(&constraint("/a", r#"{"maxLength":1000}"#), &bad), "{bad}");
    }
    for good in ["محمد \u{fdfa} رسول الله", "Tiếng Việt", "한국어", "\u{fb03} e\u{301}"]
    {
        let good = format!("/srv/{good}");
        assert!(passes(&path, &good) && passes(&shell, &good), "{good}");
    }
}

#[test]
fn a_value_of_another_type_does_not_pass() {
    let numbers = [
        constraint("/a", r#"{"maximum":100}"#),
        constraint("/a", r#"{"minimum":0}"#),
        constraint("/a", r#"{"minimum":0,"maximum":100,"pattern":"[0-9]+"}"#),
    ];
    for constraint in &numbers {
        for good in ["5", "0", "100", "[1,2]"] {
            assert_eq!(check(constraint, &format!(r#"{{"a":{good}}}"#)), None, "{good}");
        }
        for bad in
            [r#""101""#, r#""5""#, r#""x""#, r#""""#, "true", "null", "{}", r#"[1,"2"]"#, "1e999"]
        {
            assert!(check(constraint, &format!(r#"{{"a":{bad}}}"#)).is_some(), "{bad}");
        }
    }
    assert_eq!(check(&numbers[0], r#"{"a":"101"}"#).as_deref(), Some("/a: is not a number"));
    for limits in [
        r#"{"type":"url"}"#,
        r#"{"type":"email"}"#,
        r#"{"type":"path","within":["/","."]}"#,
        r#"{"enum":["5x"]}"#,
        r#"{"pattern":"[a-z]+"}"#,
    ] {
        let constraint = constraint("/a", limits);
        for bad in ["5", "true", "null", "{}", "1e3"] {
            assert!(check(&constraint, &format!(r#"{{"a":{bad}}}"#)).is_some(), "{limits} {bad}");
        }
    }
    // A number is checked as written, unless servers format it differently.
    for limits in [r#"{"maxLength":3}"#, r#"{"enum":["5","1e3"]}"#, r#"{"forbid":["option"]}"#] {
        let constraint = constraint("/a", limits);
        assert_eq!(check(&constraint, r#"{"a":5}"#), None, "{limits}");
        assert!(check(&constraint, r#"{"a":1e3}"#).is_some(), "{limits}");
    }
    assert!(check(&constraint("/a", r#"{"forbid":["option"]}"#), r#"{"a":-5}"#).is_some());
}

#[test]
fn a_name_that_others_read_as_the_one_that_is_meant_does_not_pass() {
    let path = constraint("/path", r#"{"type":"path","within":["/srv"]}"#);
    assert_eq!(check(&path, r#"{"paths":"/etc"}"#), None);
    for bad in [
        r#"{"Path":"/etc/passwd"}"#,
        r#"{"path":"/srv/a","PATH":"/etc"}"#,
        r#"{"pa\u200bth":"/etc"}"#,
        r#"{"ｐath":"/etc"}"#,
    ] {
        assert!(check(&path, bad).is_some(), "{bad}");
    }
}

#[test]
fn a_member_that_libraries_or_people_read_as_the_one_that_is_meant_does_not_pass() {
    let path = constraint("/path", r#"{"type":"path","within":["/srv"]}"#);
    for name in [
        "path[]",
        "path[0]",
        "[path]",
        "path.",
        "path.0",
        "PATH[]",
        "/path",
        "-path",
        "\"path\"",
        "p\u{430}th",
        "\u{420}\u{430}th",
        "p\u{430}th[]",
    ] {
        let arguments = serde_json::json!({ "path": "/srv/a", name: "/etc/passwd" }).to_string();
        let refused = check(&path, &arguments).unwrap_or_else(|| panic!("{name:?} passes"));
        assert!(refused.contains("could be read as `path`"), "{refused}");
    }
    for name in ["paths", "_path", "$path", "my.path", "path_2", "path2", "pfad\u{fc}"] {
        let arguments = serde_json::json!({ "path": "/srv/a", name: "/etc/passwd" }).to_string();
        assert_eq!(check(&path, &arguments), None, "{name}");
    }
    let second = constraint("/item.1", r#"{"enum":["x"]}"#);
    assert_eq!(check(&second, r#"{"item.1":"x","item.2":"y"}"#), None);
    let marks = constraint("/-", r#"{"enum":["x"]}"#);
    assert_eq!(check(&marks, r#"{"-":"x","+":"y"}"#), None);
}

#[test]
fn a_name_that_some_libraries_take_apart_into_members_does_not_pass_unless_it_is_declared() {
    let (path, options, files) = (
        constraint("/path", r#"{"enum":["x"]}"#),
        constraint("/options/path", r#"{"enum":["x"]}"#),
        constraint("/files/*/path", r#"{"enum":["x"]}"#),
    );
    let declares = |name: &str| {
        let mut schema = serde_json::json!({ "properties": {} });
        schema["properties"][name] = serde_json::json!({});
        Document::parse(schema.to_string().into(), &JsonBounds::MESSAGE).unwrap()
    };
    for (constraint, name) in [
        (&path, "path.x"),
        (&path, "path.0.x"),
        (&path, "path[x]"),
        (&path, "path\0x"),
        (&path, "path\0"),
        (&path, "path/x"),
        (&path, "Path.x"),
        (&path, "p\u{430}th.x"),
        (&path, "path\u{ff0e}x"),
        (&options, "options.path"),
        (&options, "options[path]"),
        (&options, "options[\"path\"]"),
        (&options, "options.path.x"),
        (&options, "options/path"),
        (&options, "Options.Path"),
        (&options, "options."),
        (&files, "files.0.path"),
        (&files, "files[0].path"),
        (&files, "files[].path"),
        (&files, "files[0][path]"),
        (&files, "files.path"),
        (&files, "files.0"),
    ] {
        let arguments = serde_json::json!({ name: "/etc" }).to_string();
        let refused = check(constraint, &arguments).unwrap_or_else(|| panic!("{name:?} passes"));
        assert!(refused.contains("could be read as"), "{refused}");
        let document = Document::parse(arguments.into(), &JsonBounds::MESSAGE).unwrap();
        let other = declares("other.name");
        assert!(constraint.check(Some(document.root()), Some(other.root())).is_err(), "{name:?}");
    }
    // A member that the definition declares does not count as another spelling.
    for (constraint, name) in
        [(&path, "path.x"), (&options, "options.path"), (&files, "files.0.path")]
    {
        let arguments = serde_json::json!({ name: "/etc" }).to_string();
        let document = Document::parse(arguments.into(), &JsonBounds::MESSAGE).unwrap();
        let schema = declares(name);
        assert_eq!(constraint.check(Some(document.root()), Some(schema.root())), Ok(()), "{name}");
    }
    for (constraint, name) in [
        (&path, "my.path"),
        (&path, "paths.x"),
        (&options, "options.name"),
        (&options, "path"),
        (&files, "file.0.path"),
        (&files, "files.0.name"),
        (&files, "[]"),
    ] {
        let arguments = serde_json::json!({ name: "/etc" }).to_string();
        assert_eq!(check(constraint, &arguments), None, "{name}");
    }
}

#[test]
fn a_list_in_place_of_an_object_is_not_looked_past() {
    let files = constraint("/files/*/path", r#"{"type":"path","within":["/srv"]}"#);
    assert_eq!(check(&files, r#"{"files":[{"path":"/srv/a"},{"name":"b"}]}"#), None);
    assert_eq!(check(&files, r#"{"files":[]}"#), None);
    for bad in [
        r#"{"files":[["/etc"]]}"#,
        r#"{"files":[[{"path":"/etc"}]]}"#,
        r#"{"files":[{"path":"/srv/a"},[]]}"#,
        r#"{"files":{"path":"/etc"}}"#,
        r#"{"files":"/etc"}"#,
    ] {
        assert!(check(&files, bad).is_some(), "{bad}");
    }
    let second = constraint("/files/1", r#"{"type":"path","within":["/srv"]}"#);
    assert_eq!(check(&second, r#"{"files":["/etc"]}"#), None);
    assert!(check(&second, r#"{"files":["/srv/a","/etc"]}"#).is_some());
}

#[test]
fn what_a_reader_drops_hides_no_option_and_no_operator() {
    let option = constraint("/a", r#"{"forbid":["option","shell"]}"#);
    for bad in ["\u{200b}-x", "\u{ad}-x", " \u{feff} -x", "\u{1}-x", "a$\u{200b}(id)", "\u{2796}x"]
    {
        assert!(!passes(&option, bad), "{bad:?}");
    }
    assert!(passes(&option, "a-x") && passes(&option, "\u{1f469}\u{200d}\u{1f4bb} x"));
}

#[test]
fn files_of_every_common_agent_editor_and_shell_are_known() {
    let config = constraint("/a", r#"{"forbid":["agentConfig"]}"#);
    for bad in [
        "opencode.json",
        "a/CLAUDE.local.md",
        "AGENTS.override.md",
        ".husky/pre-commit",
        ".devcontainer/devcontainer.json",
        ".idea/workspace.xml",
        ".zed/settings.json",
        ".junie/guidelines.md",
        ".trae/rules/a",
        "/home/ana/.cshrc",
        ".kshrc",
        ".config/fish/config.fish",
        ".config/fish/conf.d/x.fish",
        ".config/autostart/a.desktop",
        "/home/ana/.config/zed/settings.json",
        ".config/Zed",
        "QWEN.md",
        "/home/ana/.ssh/rc",
        ".ssh/config",
        ".cargo/config.toml",
        "Library/LaunchAgents/a.plist",
        ".mcp.json;x",
        "CLAUDE\u{200b}.md",
    ] {
        assert!(!passes(&config, bad), "{bad}");
    }
    for good in [
        "src/main.rs",
        "docs/opencode.md",
        ".config/app/settings.json",
        "fish/a",
        ".gitignore",
        "ssh/rc",
        "src/config.toml",
        "qwen/a.md",
    ] {
        assert!(passes(&config, good), "{good}");
    }
}

#[test]
fn a_list_is_no_path_and_its_items_are_named_for_themselves() {
    let path = constraint("/path", r#"{"type":"path","within":["/srv","."]}"#);
    for bad in [r#"{"path":["/srv/a"]}"#, r#"{"path":[]}"#, r#"{"path":[".","./etc"]}"#] {
        assert_eq!(check(&path, bad).as_deref(), Some("/path: is a list"), "{bad}");
    }
    let paths = constraint("/paths/*", r#"{"type":"path","within":["/srv"]}"#);
    assert_eq!(check(&paths, r#"{"paths":["/srv/a","/srv/b"]}"#), None);
    assert!(check(&paths, r#"{"paths":["/srv/a",["/srv/b"]]}"#).is_some());
    // Values, e-mail addresses and hosts are checked individually.
    let values = constraint("/a", r#"{"enum":["x","y"]}"#);
    assert_eq!(check(&values, r#"{"a":["x","y"]}"#), None);
    assert!(check(&values, r#"{"a":["x","z"]}"#).is_some());
}

#[test]
fn no_dash_stands_where_a_hyphen_must_not() {
    let option = constraint("/a", r#"{"forbid":["option"]}"#);
    let dash = regex::Regex::new(r"\A\p{Pd}\z").unwrap();
    let dashes = ('\0'..=char::MAX).filter(|c| dash.is_match(c.encode_utf8(&mut [0; 4])));
    let dashes: Vec<char> = dashes.collect();
    assert!(dashes.len() >= 25 && dashes.contains(&'\u{58a}') && dashes.contains(&'\u{1806}'));
    for c in dashes.into_iter().chain(['\u{2d7}', '\u{2043}', '\u{2212}', '\u{2796}']) {
        assert!(!passes(&option, &format!("{c}x")), "{:x}", u32::from(c));
        assert!(!passes(&option, &format!(" {c}x")), "{:x}", u32::from(c));
        assert!(passes(&option, &format!("x{c}")), "{:x}", u32::from(c));
    }
}

#[test]
fn what_is_somewhere_else_than_it_should_be_does_not_pass() {
    let deep = constraint("/a/b", r#"{"enum":["x"]}"#);
    assert_eq!(check(&deep, r#"{"a":{"b":"x"}}"#), None);
    assert_eq!(check(&deep, r#"{"a":{"c":"y"}}"#), None);
    assert!(check(&deep, r#"{"a":"y"}"#).is_some());
    assert!(check(&deep, r#"{"a":{"b":["x","y"]}}"#).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever passes, a plain reader of the decoded text finds it in the folder.
    #[test]
    fn no_path_that_passes_leaves_the_folder(parts in prop::collection::vec(prop_oneof![
        Just("/".to_owned()), Just("..".to_owned()), Just("%2e".to_owned()), Just("%2f".to_owned()), Just("\\".to_owned()),
        Just(".".to_owned()), Just("%25".to_owned()), Just("a".to_owned()), ".{0,2}",
    ], 0..10)) {
        let path = constraint("/a", r#"{"type":"path","within":["/srv"]}"#);
        let text = format!("/srv/{}", parts.concat());
        if passes(&path, &text) {
            let mut now = text;
            for _ in 0..4 {
                now = now.replace("%2e", ".").replace("%2E", ".").replace("%2f", "/").replace("%2F", "/").replace("%25", "%");
                prop_assert!(!now.split(['/', '\\']).any(|part| part == ".."), "{now}");
            }
        }
    }
}

#[test]
fn a_prototype_leads_around_no_constraint() {
    let mode = constraint("/options/mode", r#"{"enum":["safe"]}"#);
    for bad in [
        r#"{"options":{"__proto__":{"mode":"evil"}}}"#,
        r#"{"__proto__":{"options":{"mode":"evil"}}}"#,
        r#"{"options":{"mode":"safe","__proto__":{"mode":"evil"}}}"#,
        r#"{"options":{"constructor":{"prototype":{"mode":"evil"}}}}"#,
        r#"{"constructor":{"prototype":{"options":{"mode":"evil"}}}}"#,
        r#"{"constructor.prototype.mode":"evil"}"#,
        r#"{"options[constructor][prototype][mode]":"evil"}"#,
    ] {
        assert!(check(&mode, bad).is_some(), "{bad}");
    }
    assert_eq!(check(&mode, r#"{"options":{"mode":"safe"},"other":{"__proto__":1}}"#), None);
    assert_eq!(check(&mode, r#"{"options":{"mode":"safe","constructor":"Ferrari"}}"#), None);
}

/// A server that opens what it is given must not leave the folder any more than one that decodes it first.
#[test]
fn a_path_lies_in_its_folder_as_it_came_and_decoded() {
    let path = constraint("/a", r#"{"type":"path","within":["/srv/data"]}"#);
    for bad in [
        "/srv/data%2Fevil.sh",
        "/srv/data%2fa/b",
        "/srv/dat%61/z",
        "%2fsrv/data/relative",
        "\u{ff0f}srv/data/relative",
        "/srv/\u{ff44}ata/full-width",
        "/srv\u{ff0f}data/q",
    ] {
        assert!(!passes(&path, bad), "{bad}");
    }
    for good in ["/srv/data/a%2Fb", "/srv/data/100%25", "/srv/./data//\u{ff41}"] {
        assert!(passes(&path, good), "{good}");
    }
    let either = constraint("/a", r#"{"type":"path","within":["/srv/data","."]}"#);
    assert!(passes(&either, "%2fsrv/data/relative"), "below the working folder, or in the other");
    assert!(!passes(&either, "/srv/data%2Fevil.sh"));
}

#[test]
fn a_path_that_some_reader_would_take_for_another_is_refused() {
    let path = constraint("/a", r#"{"type":"path","within":["/srv/data","."]}"#);
    for bad in [
        "/srv/data/..;/secret",
        "/srv/data/..;x=1/secret",
        "/srv/data/%uff0e%uff0e/secret",
        "/srv/data/%u002e%u002e/secret",
        "/srv/data/{a,../b}",
        "/srv/data/{..,a}/b",
        "/srv/data/{.,}{.,}/b",
        "{/etc/passwd,a}",
        "{a,/etc/passwd}",
        "{a,~/x}",
        "$HOME/.ssh/id_rsa",
        "%USERPROFILE%/x",
        "/srv/data/$HOME/x",
        "/srv/data/${HOME}",
        "/srv/data/a${HOME}b/x",
        "/srv/data/\"$HOME\"/x",
        "/srv/data/$(pwd)/x",
        "/srv/data/a$(pwd)",
        "/srv/data/$1/x",
        "/srv/data/$@/x",
        "/srv/data/%USERPROFILE%/x",
        "/srv/data/a%ProgramFiles(x86)%",
        "%APPDATA%/x",
        "/srv/data/~/x",
        "/srv/data/~root/x",
        "src/~ana",
        // An unset variable expands to nothing, which leaves two dots.
        "/srv/data/.$x./y",
        "/srv/data/${x-.}${x-.}/y",
        "/srv/data/.''./y",
        "/srv/data/.\"\"./y",
        "/srv/data/.``./y",
        "/srv/data/`echo ..`/y",
        "/srv/data/a`echo x`/y",
        "/srv/data/$'..'/y",
        "/srv/data/$\"..\"/y",
        "/srv/data/$'.'./y",
        "/srv/data/.$'.'/y",
        "/srv/data/$'.'$\".\"/y",
        "/srv/data/$''../y",
        "/srv/data/'.'\".\"/y",
        "/srv/data/{$'..',a}/y",
        "/srv/data/'..'/y",
        "/srv/data/.[.]/x",
        "/srv/data/.?/x",
        "/srv/data/.*/x",
        "/srv/data/.@(.)/x",
        "/srv/data/%2e[.]/x",
        "/srv/data/{.[.],a}/x",
        "/srv/data/.. /x",
        "/srv/data/ ../x",
    ] {
        assert!(!passes(&path, bad), "{bad:?}");
    }
    for good in [
        "/srv/data/a;b",
        "/srv/data/{id}.json",
        "/srv/data/{{cookiecutter.name}}/a",
        "/srv/data/A$B.class",
        "/srv/data/100%",
        "/srv/data/100%-50%",
        "/srv/data/a$",
        "/srv/data/a~",
        "/srv/data/*.rs",
        "/srv/data/a[1].txt",
        "/srv/data/it's",
        "/srv/data/rock'n'roll",
        "/srv/data/'quoted'.txt",
        "/srv/data/price in $'s.txt",
        "/srv/data/a`b",
        "/srv/data/.gitignore",
        "a,b.txt",
    ] {
        assert!(passes(&path, good), "{good:?}");
    }
}

#[test]
fn a_member_with_blanks_around_its_name_is_a_variant() {
    let path = constraint("/path", r#"{"type":"path","within":["/srv"]}"#);
    for name in ["path ", " path", "pa th", "path\t", "path\u{a0}", "PATH ", "path\u{200b}"] {
        let arguments = serde_json::json!({ "path": "/srv/a", name: "/etc/passwd" }).to_string();
        let refused = check(&path, &arguments).unwrap_or_else(|| panic!("{name:?} passes"));
        assert!(refused.contains("could be read as `path`"), "{refused}");
    }
    let other = serde_json::json!({ "path": "/srv/a", "path of it": 1, "paths": 1 }).to_string();
    assert_eq!(check(&path, &other), None);
}

#[test]
fn what_a_shell_reads_is_found_in_every_form() {
    let shell = constraint("/a", r#"{"forbid":["shell"]}"#);
    for bad in [
        "a\u{ff1b}b",
        "a\u{ff5c}b",
        "\u{ff04}(x)",
        "a\u{2028}b",
        "a\u{2029}b",
        "a\u{85}b",
        "a\u{b}b",
        // NFC composes these into one character, and NFD decomposes it again.
        "a <\u{338} b",
        "a >\u{338} b",
        "a \u{226e} b",
        "a \u{226f} b",
        "a\u{37e}b",
        "\u{1fef}id\u{1fef}",
        "\u{ff1c}\u{338}",
        "<\u{200b}\u{338}",
    ] {
        assert!(!passes(&shell, bad), "{bad:?}");
    }
    assert!(passes(&shell, "größer, 日本語, a \u{2260} b, e\u{301}"));
    let sql = constraint("/a", r#"{"forbid":["sql"]}"#);
    assert!(!passes(&sql, "x\u{ff07} or 1"));
}

#[test]
fn a_url_leads_to_public_hosts_or_to_our_zone() {
    let public = constraint("/a", r#"{"type":"url"}"#);
    for bad in [
        "https://kubernetes.default.svc",
        "https://kubernetes.default",
        "https://kubernetes.default.svc.cluster.local",
        "https://10.0.0.1.nip.io",
        "https://nas.home",
        "https://vault.service.consul",
    ] {
        assert!(!passes(&public, bad), "{bad}");
    }
    let zone =
        constraint("/a", r#"{"type":"url","additionalHosts":["*.corp.example.com","wiki.corp"]}"#);
    for good in [
        "https://example.com",
        "https://a.corp.example.com",
        "https://wiki.corp/x",
        "https://WIKI.corp.",
    ] {
        assert!(passes(&zone, good), "{good}");
    }
    for bad in ["https://10.0.0.1", "https://mail.corp", "https://localhost", "http://wiki.corp/"] {
        assert!(!passes(&zone, bad), "{bad}");
    }
    for wrong in [
        r#"{"argument":"/a","type":"path","within":["/"],"additionalHosts":["a.corp"]}"#,
        r#"{"argument":"/a","type":"url","hosts":["a.corp"],"additionalHosts":["b.corp"]}"#,
        r#"{"argument":"/a","type":"url","additionalHosts":["*"]}"#,
    ] {
        let limits: ArgumentLimits = serde_json::from_str(wrong).unwrap();
        assert_eq!(Constraint::new(Vec::new(), limits).unwrap_err().0, "additionalHosts");
    }
}

#[test]
fn another_spelling_of_a_name_is_held_to_the_constraint_unless_it_is_an_argument_of_its_own() {
    let path = constraint("/file_path", r#"{"type":"path","within":["/srv"]}"#);
    let spellings = [
        "filePath",
        "FilePath",
        "filepath",
        "file-path",
        "file path",
        "file_path_",
        "file__path",
        "file.path",
        "file/path",
        "file:path",
        "file%5Fpath",
        "FILE-PATH",
        "File Path",
        "file\u{2010}path",
    ];
    for name in spellings {
        for arguments in [
            serde_json::json!({ name: "/etc/passwd" }),
            serde_json::json!({ "file_path": "/srv/a", name: "/etc/passwd" }),
        ] {
            let refused = check(&path, &arguments.to_string());
            let refused = refused.unwrap_or_else(|| panic!("{name:?} passes"));
            assert!(refused.ends_with(": lies outside of where it may"), "{refused}");
        }
        // A client that writes the name in another way gets as far as the constraint lets it.
        assert_eq!(
            check(&path, &serde_json::json!({ name: "/srv/a" }).to_string()),
            None,
            "{name}"
        );
        let schema = serde_json::json!({ "properties": { "file_path": {}, name: {} } }).to_string();
        let schema = Document::parse(schema.into(), &JsonBounds::MESSAGE).unwrap();
        let arguments = serde_json::json!({ "file_path": "/srv/a", name: "own" }).to_string();
        let arguments = Document::parse(arguments.into(), &JsonBounds::MESSAGE).unwrap();
        assert_eq!(path.check(Some(arguments.root()), Some(schema.root())), Ok(()), "{name}");
    }
    for name in ["filePath[]", "file-path[0]", "FilePath.0", "filePath.x", "file-path/x"] {
        let arguments = serde_json::json!({ name: "/etc/passwd" }).to_string();
        let refused = check(&path, &arguments).unwrap_or_else(|| panic!("{name:?} passes"));
        assert!(refused.contains("could be read as `file_path`"), "{refused}");
    }
    let bytes = constraint("/options/maxBytes", r#"{"minimum":0,"maximum":10}"#);
    for bad in [
        r#"{"options":{"max_bytes":1000}}"#,
        r#"{"options":{"max-bytes":1000,"maxBytes":1}}"#,
        r#"{"Options_":{"maxBytes":1000}}"#,
        r#"{"options":{"maxBytes":1},"options_":{"max_bytes":1000}}"#,
        r#"{"options.max_bytes":1000}"#,
    ] {
        assert!(check(&bytes, bad).is_some(), "{bad}");
    }
    let required = constraint("/file_path", r#"{"type":"path","within":["/srv"],"required":true}"#);
    assert_eq!(check(&required, r#"{"filePath":"/srv/a"}"#).unwrap(), "/file_path: is missing");
    for (argument, other) in [
        ("/file_path", "file_paths"),
        ("/file_path", "path_file"),
        ("/file_path", "profile_path"),
        ("/file_path", "_file_path"),
        ("/filter", "$filter"),
        ("/type", "@type"),
        ("/path", "my.path"),
        ("/path", "my_path"),
        ("/a", "1"),
        ("/-", "+"),
    ] {
        let value = constraint(argument, r#"{"enum":["x"]}"#);
        let arguments = serde_json::json!({ other: "y" }).to_string();
        assert_eq!(check(&value, &arguments), None, "{other}");
    }
}
