//! Secrets that programs say and that change: what is shown to servers, what is not shown to anybody else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use e2e::canary::{Side, watch};
use e2e::client::{Answer, raw};
use e2e::gateway::{ANA, Config, Folder, Gateway};
use e2e::server::{Call, Server};
use e2e::{ERAS, Era, eventually};
use serde_json::json;

/// A program that says what is in a file, and fails without it; both are in `folder`.
struct Speaker {
    program: PathBuf,
    value: PathBuf,
}

impl Speaker {
    fn new(folder: &Folder, value: &str) -> Self {
        let (program, file) = (folder.path().join("say"), folder.path().join("value"));
        fs::write(&program, "#!/bin/sh\nenv > \"${0%/*}/value.env\"\nexec cat \"$1\"\n").unwrap();
        mode(&program, 0o755);
        let speaker = Self { program, value: file };
        speaker.say(value);
        speaker
    }

    fn say(&self, value: &str) {
        watch(Side::Server, value);
        let next = self.value.with_extension("next");
        fs::write(&next, format!("{value}\n")).unwrap();
        fs::rename(next, &self.value).unwrap();
    }

    /// A reference to it, with more members.
    fn source(&self, more: &str) -> String {
        format!("fromCommand: ['{}', '{}']{more}", self.program.display(), self.value.display())
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn serving(server: &Server, more: &str) -> Config {
    Config::with(&format!("- {{name: up, url: '{}', {more}}}", server.url()), "[up]")
}

fn header(call: &Call, name: &str) -> Option<String> {
    let lines = call.head.lines().filter_map(|line| line.split_once(": "));
    let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.to_owned())
}

/// What the server is shown in a header when `ana` calls now.
fn shown(gateway: &Gateway, server: &Server, era: Era, name: &str) -> Option<String> {
    let answer = gateway.client(era, ANA).call("echo", &json!({ "text": "x" }));
    assert_eq!(answer.status, 200, "{answer:?}");
    header(server.tool_calls().last()?, name)
}

#[test]
fn what_a_program_says_is_shown_to_the_server_and_a_rotation_is_taken_over() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let speaker = Speaker::new(&folder, "first-secret-of-a-program");
        let source = speaker.source(", cacheTime: 1s");
        let more = format!(
            "credential: {{header: {{{source}}}}}, headers: [{{name: X-Tenant, {source}}}]"
        );
        let gateway = serving(&server, &more).start();
        for name in ["authorization", "x-tenant"] {
            let value = shown(&gateway, &server, era, name).unwrap();
            assert_eq!(value.trim_start_matches("Bearer "), "first-secret-of-a-program");
        }
        speaker.say("second-secret-of-a-program");
        eventually("the rotation", || {
            let value = shown(&gateway, &server, era, "authorization")?;
            (value == "Bearer second-secret-of-a-program").then_some(())
        });
        assert_eq!(
            shown(&gateway, &server, era, "x-tenant").as_deref(),
            Some("second-secret-of-a-program")
        );
        // It was run with next to nothing, and nobody is told the value: the canary looks at log and records.
        let environment = fs::read_to_string(speaker.value.with_extension("env")).unwrap();
        let known = ["PATH", "HOME", "LANG", "TMPDIR", "PWD", "SHLVL", "OLDPWD", "_"];
        for line in environment.lines() {
            let name = line.split('=').next().unwrap();
            assert!(known.contains(&name), "{environment}");
        }
        let line = fs::read(format!("/proc/{}/cmdline", gateway.id())).unwrap();
        assert!(!String::from_utf8_lossy(&line).contains("secret-of-a-program"));
        gateway.says("a secret has changed");
    }
}

#[test]
fn a_program_that_fails_later_leaves_the_older_value_for_a_while_and_then_none() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let speaker = Speaker::new(&folder, "value-before-the-failure");
        let long = speaker.source(", cacheTime: 1s, maxStale: 1h");
        let gateway = serving(&server, &format!("credential: {{header: {{{long}}}}}")).start();
        fs::remove_file(&speaker.value).unwrap();
        eventually("the failure", || {
            (gateway.metric_now("portcullis_secrets_stale") == 1).then_some(())
        });
        let value = shown(&gateway, &server, era, "authorization");
        assert_eq!(value.as_deref(), Some("Bearer value-before-the-failure"));
        assert!(gateway.metric_now("portcullis_secret_reads_total{result=\"failure\"}") > 0);
        gateway.says("a secret could not be read again");
        speaker.say("value-after-the-failure");
        eventually("the recovery", || {
            let value = shown(&gateway, &server, era, "authorization")?;
            (value == "Bearer value-after-the-failure").then_some(())
        });
        drop(gateway);
        // With a short patience there is no value any more, and nothing is sent without one.
        let short = speaker.source(", cacheTime: 500ms, maxStale: 3s");
        let gateway = serving(&server, &format!("credential: {{header: {{{short}}}}}")).start();
        let client = gateway.client(era, ANA);
        assert_eq!(client.call("echo", &json!({ "text": "x" })).status, 200);
        fs::remove_file(&speaker.value).unwrap();
        let failed: Answer = eventually("the end of the older value", || {
            let answer = client.call("echo", &json!({ "text": "x" }));
            answer.body.contains("\"error\"").then_some(answer)
        });
        assert_eq!(failed.code(), -32603, "{failed:?}");
        let calls = server.tool_calls().len();
        assert_eq!(client.call("echo", &json!({ "text": "x" })).code(), -32603);
        assert_eq!(server.tool_calls().len(), calls);
    }
}

#[test]
fn a_secret_that_no_program_says_ends_the_start_with_3() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let speaker = Speaker::new(&folder, "never-shown-to-anybody");
    let program = speaker.program.display().to_string();
    let refused = |source: &str| {
        let refused = serving(&server, &format!("credential: {{header: {{{source}}}}}")).refused();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(3), "{source}: {said}");
        assert!(!said.contains("never-shown"), "{said}");
        said
    };
    for (source, wanted) in [
        ("fromCommand: []".to_owned(), "absolute path"),
        ("fromCommand: [cat, /etc/hostname]".to_owned(), "absolute path"),
        ("fromCommand: [/nowhere/program]".to_owned(), "not run"),
        (format!("fromCommand: ['{program}', /nowhere]"), "ended with an error"),
        (format!("fromCommand: ['{program}', /dev/null]"), "it is empty"),
        ("fromCommand: [/bin/sleep, '600'], timeout: 200ms".to_owned(), "within its `timeout`"),
        ("fromCommand: [/bin/cat, /dev/zero]".to_owned(), "longer than"),
        ("fromEnv: X, fromCommand: [/bin/true]".to_owned(), "exactly one of"),
        ("fromEnv: HOME, cacheTime: 1s".to_owned(), "belongs to `fromCommand`"),
        ("fromCommand: [/bin/true], timeout: 2m".to_owned(), "at most `1m`"),
    ] {
        let said = refused(&source);
        assert!(said.contains(wanted), "{source}: {said}");
    }
    mode(&speaker.program, 0o757);
    let said = refused(&speaker.source(""));
    assert!(said.contains("every user of this machine can write to it"), "{said}");
    // The same for what another program is told to run or to read.
    let said = refused(&format!("fromCommand: [/bin/sh, '{program}', /dev/null]"));
    assert!(said.contains(&format!("its arguments name `{program}`")), "{said}");
    let said = refused(&format!("fromCommand: [/usr/bin/env, A=b, '{program}', /dev/null]"));
    assert!(said.contains(&format!("its arguments name `{program}`")), "{said}");
    mode(&speaker.program, 0o755);
    mode(&speaker.value, 0o646);
    let said = refused(&speaker.source(""));
    assert!(said.contains("every user of this machine can write to it"), "{said}");
    mode(&speaker.value, 0o644);
    mode(&speaker.program, 0o644);
    let said = refused(&speaker.source(""));
    assert!(said.contains("not a program"), "{said}");
    // What was looked over is not run.
    mode(&speaker.program, 0o755);
    fs::remove_file(speaker.value.with_extension("env")).unwrap();
    let config = serving(&server, &format!("credential: {{header: {{{}}}}}", speaker.source("")));
    let valid = folder.path().join("gateway.yaml");
    config.write(&valid, &folder.path().join("audit.jsonl"));
    let mut command = std::process::Command::new(e2e::gateway::binary());
    let output = command.arg("validate").arg(&valid).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!speaker.value.with_extension("env").exists(), "it was run");
}

#[test]
fn a_secret_that_brings_its_scheme_is_not_sent_with_another() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let speaker = Speaker::new(&folder, "Bearer said-with-its-scheme");
        let source = speaker.source(", cacheTime: 1s, maxStale: 1h");
        let refused = serving(&server, &format!("credential: {{header: {{{source}}}}}")).refused();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(3), "{said}");
        let wanted = "the secret for the header `authorization` begins with `Bearer `";
        assert!(said.contains(wanted) && said.contains("write `prefix: ''`"), "{said}");
        assert!(!said.contains("said-with-its-scheme"), "{said}");
        // With what the message says it is sent as the program says it.
        let more = format!("credential: {{header: {{{source}, prefix: ''}}}}");
        let gateway = serving(&server, &more).start();
        let value = shown(&gateway, &server, era, "authorization");
        assert_eq!(value.as_deref(), Some("Bearer said-with-its-scheme"));
    }
}

#[test]
fn a_secret_in_a_file_is_taken_over_when_the_file_changes() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        // As kubelet does it: the file is a link through a folder that is a link, which is swapped.
        let put = |version: &str, value: &str| {
            watch(Side::Server, value);
            let data = folder.path().join(version);
            fs::create_dir(&data).unwrap();
            fs::write(data.join("token"), value).unwrap();
            let next = folder.path().join("..next");
            std::os::unix::fs::symlink(version, &next).unwrap();
            fs::rename(next, folder.path().join("..data")).unwrap();
        };
        put("one", "first-token-in-a-file");
        let file = folder.path().join("token");
        std::os::unix::fs::symlink("..data/token", &file).unwrap();
        let more = format!("credential: {{header: {{fromFile: '{}'}}}}", file.display());
        let gateway = serving(&server, &more).start();
        let value = shown(&gateway, &server, era, "authorization");
        assert_eq!(value.as_deref(), Some("Bearer first-token-in-a-file"));
        put("two", "second-token-in-a-file");
        eventually("the swap", || {
            let value = shown(&gateway, &server, era, "authorization")?;
            (value == "Bearer second-token-in-a-file").then_some(())
        });
        // One that is gone, or empty, changes nothing.
        fs::write(folder.path().join("two/token"), "").unwrap();
        eventually("the failure", || {
            (gateway.metric_now("portcullis_secrets_stale") == 1).then_some(())
        });
        let value = shown(&gateway, &server, era, "authorization");
        assert_eq!(value.as_deref(), Some("Bearer second-token-in-a-file"));
    }
}

#[test]
fn the_token_of_the_operator_and_a_reload_take_what_a_program_says_now() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let speaker = Speaker::new(&folder, "first-token-of-the-operator");
    let mut config = Config::of(&server.url());
    config.ops =
        format!("{{address: '127.0.0.1:0', token: {{{}}}}}", speaker.source(", cacheTime: 1h"));
    let gateway = config.start();
    let reload = |token: &str| {
        let text = format!(
            "POST /reload HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-length: 0\r\n\r\n"
        );
        raw(gateway.ops.unwrap(), text.as_bytes()).status
    };
    assert_eq!(reload("first-token-of-the-operator"), 200);
    speaker.say("second-token-of-the-operator");
    assert_eq!(reload("second-token-of-the-operator"), 401);
    // The configuration is the same, and what it refers to is read again.
    assert_eq!(reload("first-token-of-the-operator"), 200);
    assert_eq!(reload("first-token-of-the-operator"), 401);
    assert_eq!(reload("second-token-of-the-operator"), 200);
}
