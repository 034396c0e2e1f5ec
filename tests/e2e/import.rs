//! What clients have configured becomes a configuration of the gateway, without its secrets.

use std::fs;
use std::process::{Command, Output};

use e2e::client::Client;
use e2e::gateway::{Folder, Gateway, binary, root};
use e2e::server::Server;
use e2e::{ERAS, golden};
use serde_json::json;

const SECRET: &str = "sk-live-4f9b2c7d1e8a6053b7c2";

fn imported(folder: &Folder, name: &str, text: &str, more: &[&str]) -> Output {
    let file = folder.path().join(name);
    fs::write(&file, text).unwrap();
    Command::new(binary()).arg("import").arg(&file).args(more).output().unwrap()
}

/// The YAML, when the gateway takes it; no secret may be in anything that was said.
fn valid(output: &Output, folder: &Folder) -> String {
    let yaml = String::from_utf8(output.stdout.clone()).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(!yaml.contains(SECRET) && !said.contains(SECRET), "{yaml}{said}");
    let file = folder.path().join("gateway.yaml");
    fs::write(&file, &yaml).unwrap();
    // Variables that it asks for are set; that is all it takes.
    let variables = yaml.split("${").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
    let checked = Command::new(binary())
        .args(["validate", "--elsewhere"])
        .arg(&file)
        .envs(variables.map(|name| {
            let value = match name {
                name if name.ends_with("_URL") => "https://example.com/",
                name if name.ends_with("_CWD") => "/srv",
                _ => "x",
            };
            (name.to_owned(), value)
        }))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{yaml}{}", String::from_utf8_lossy(&checked.stderr));
    yaml
}

#[test]
fn every_client_is_understood() {
    let folder = Folder::new();
    let json = |list: &str| {
        format!(
            r#"{{ // as editors write it
            "{list}": {{
              "Files & More": {{"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/srv", "--key={SECRET}"],
                "env": {{"API_TOKEN": "{SECRET}", "LEVEL": "info", "HOME_OF": "${{HOME}}"}}, "alwaysAllow": ["read_file"]}},
              "remote": {{"type": "http", "url": "https://tickets.example.com/mcp", "headers": {{"Authorization": "Bearer {SECRET}", "X-Key": "${{TICKETS_KEY}}"}}}},
              "events": {{"type": "sse", "url": "https://events.example.com/sse"}},
              "off": {{"command": "evil", "disabled": true}}, /* and one more */
              "off2": {{"command": "evil", "disabled": "true"}},
              "off3": {{"command": "evil", "Disabled": 1}},
              "off4": {{"command": "evil", "enabled": "false"}},
            }},
          }}"#
        )
    };
    for (name, list) in
        [(".mcp.json", "mcpServers"), ("mcp.json", "servers"), ("opencode.jsonc", "mcp")]
    {
        let output = imported(&folder, name, &json(list), &[]);
        let yaml = valid(&output, &folder);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        for line in [
            "  - name: files---more\n    command: \"npx\"\n",
            "      - {name: \"API_TOKEN\", fromEnv: \"FILES___MORE_API_TOKEN\"}\n",
            "      - {name: \"LEVEL\", value: \"info\"}\n",
            "      - {name: \"HOME_OF\", fromEnv: \"HOME\"}\n",
            "--key=${FILES___MORE_KEY}",
            "    credential: {header: {fromEnv: \"REMOTE_AUTHORIZATION\"}}\n",
            "      - {name: \"X-Key\", fromEnv: \"TICKETS_KEY\"}\n",
            "    transport: httpSse\n",
            "servers: [files---more], tools: [\"read_file\"]}",
            "servers: [remote], tools: [\"*\"], prompts: [\"*\"], resources: [\"*\"]}",
        ] {
            assert!(yaml.contains(line), "{line}\n{yaml}");
        }
        assert!(!yaml.contains("evil"));
        for name in ["off", "off2", "off3", "off4"] {
            let left_out = format!("`{name}` was left out: it is switched off");
            assert!(said.contains(&left_out), "{name}: {said}");
        }
        assert!(
            said.contains(
                "set `REMOTE_AUTHORIZATION` to what stands after `Bearer ` in the header"
            ),
            "{said}"
        );
    }
    let toml = format!(
        "model = \"x\"\n[mcp_servers.docs]\nurl = \"https://docs.example.com/mcp\"\nbearer_token_env_var = \"DOCS\"\n\
         enabled_tools = [\"search\"]\n[mcp_servers.local]\ncommand = \"/opt/server\"\nargs = [\"--fast\"]\n\
         [mcp_servers.local.env]\nKEY = \"{SECRET}\"\n"
    );
    let yaml = valid(&imported(&folder, "config.toml", &toml, &["--from", "codex"]), &folder);
    assert!(
        yaml.contains("credential: {header: {fromEnv: \"DOCS\"}}")
            && yaml.contains("servers: [docs], tools: [\"search\"]")
    );
    assert!(yaml.contains("command: \"/opt/server\"\n    args: [\"--fast\"]"), "{yaml}");
}

#[test]
fn wherever_a_secret_stands_it_is_not_written() {
    let folder = Folder::new();
    let text = format!(
        r#"{{"mcpServers": {{
          "program": {{"command": "/opt/server",
            "args": ["--token", "{SECRET}", "--header", "Authorization: Bearer {SECRET}", "--key={SECRET}",
              "-y", "https://example.com/mcp?code={SECRET}", "${{KEY:-{SECRET}}}", "TOKEN={SECRET} go", "/srv/files",
              "-e", "DB_PW={SECRET}", "Server=db;Pwd={SECRET}", "--set=db.password={SECRET}", "-p{SECRET}", "hunter"],
            "env": {{"PIN": "4711", "URL": "https://example.com/{SECRET}/mcp", "DB": "postgres://u:{SECRET}@db/x",
              "BLOB": "/{SECRET}", "ROOT": "/srv/files", "PORT": 8080}}}},
          "query": {{"url": "https://example.com/mcp?key={SECRET}"}},
          "path": {{"url": "https://example.com/u/{SECRET}/mcp"}},
          "basic": {{"url": "https://example.com/mcp", "headers": {{"Authorization": "Basic {SECRET}"}}}},
          "bare": {{"url": "https://example.com/mcp", "headers": {{"authorization": "{SECRET}"}}}},
          "a.b": {{"command": "/opt/a", "env": {{"KEY": "one"}}}}, "a-b": {{"command": "/opt/b", "env": {{"KEY": "two"}}}},
          "1password": {{"command": "/opt/one", "env": {{"NEXT": "{SECRET}"}}}},
          "line": {{"command": "srv --token {SECRET}"}}
        }}}}"#
    );
    let yaml = valid(&imported(&folder, ".mcp.json", &text, &[]), &folder);
    assert!(!yaml.contains("4711"), "{yaml}");
    for line in [
        r#"args: ["--token","${PROGRAM_TOKEN}","--header","${PROGRAM_HEADER}","--key=${PROGRAM_KEY}","-y","${PROGRAM_ARG_7}","${KEY}","${PROGRAM_ARG_9}","/srv/files","-e","${PROGRAM_ARG_12}","${PROGRAM_ARG_13}","--set=${PROGRAM_SET}","${PROGRAM_ARG_15}","${PROGRAM_ARG_16}"]"#,
        r#"{name: "ROOT", value: "/srv/files"}"#,
        r#"{name: "PORT", value: "8080"}"#,
        r#"{name: "PIN", fromEnv: "PROGRAM_PIN"}"#,
        r#"url: "https://example.com/mcp?key=${QUERY_KEY}""#,
        r#"url: "${PATH_URL}""#,
        r#"credential: {header: {fromEnv: "BASIC_AUTHORIZATION", prefix: "Basic "}}"#,
        r#"credential: {header: {fromEnv: "BARE_AUTHORIZATION", prefix: ""}}"#,
        // Servers whose names come to the same do not come to the same secret.
        r#"{name: "KEY", fromEnv: "A_B_KEY"}"#,
        r#"{name: "KEY", fromEnv: "A_BX_KEY"}"#,
        r#"{name: "NEXT", fromEnv: "V1PASSWORD_NEXT"}"#,
    ] {
        assert!(yaml.contains(line), "{line}\n{yaml}");
    }
}

#[test]
fn what_is_plainly_no_secret_is_written_and_nothing_has_to_be_set_for_it() {
    let folder = Folder::new();
    let text = r#"{"mcpServers": {
      "time": {"command": "uvx", "args": ["mcp-server-time==2026.8.18", "--local-timezone", "UTC"], "env": {"TZ": "Europe/Berlin"}},
      "cloud": {"command": "/opt/server", "args": ["--mode", "read-only", "--repo", "acme/web", "--region=eu-west-1"],
        "env": {"REGION": "eu-west-1", "LOG_LEVEL": "WARNING", "GITHUB_REPOSITORY": "acme/web"}}}}"#;
    let output = imported(&folder, ".mcp.json", text, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let yaml = valid(&output, &folder);
    assert!(!yaml.contains("${") && !yaml.contains("fromEnv") && !said.contains("set `"), "{yaml}");
    for line in [
        r#"args: ["mcp-server-time==2026.8.18","--local-timezone","UTC"]"#,
        r#"args: ["--mode","read-only","--repo","acme/web","--region=eu-west-1"]"#,
        r#"{name: "TZ", value: "Europe/Berlin"}"#,
        r#"{name: "GITHUB_REPOSITORY", value: "acme/web"}"#,
    ] {
        assert!(yaml.contains(line), "{line}\n{yaml}");
    }
    // What stands under the name of a secret, looks drawn at random, or stands alone and could be anything, does not.
    let text = r#"{"mcpServers": {"cloud": {"command": "/opt/server",
      "args": ["--token", "eu-west-1", "--repo", "x9Kq2LmPz0Rt/web", "--mode", "hunter", "read-only", "-p", "local",
        "--local-timezone", "hunter/Zone"],
      "env": {"API_KEY": "read-only", "REGION": "eu-west-1-x9Kq2LmPz0Rt", "AUTH_MODE": "none"}}}}"#;
    let yaml = valid(&imported(&folder, ".mcp.json", text, &[]), &folder);
    for line in [
        r#"args: ["--token","${CLOUD_TOKEN}","--repo","${CLOUD_REPO}","--mode","hunter","${CLOUD_ARG_7}","-p","${CLOUD_ARG_9}","--local-timezone","${CLOUD_LOCAL_TIMEZONE}"]"#,
        r#"{name: "API_KEY", fromEnv: "CLOUD_API_KEY"}"#,
        r#"{name: "REGION", fromEnv: "CLOUD_REGION"}"#,
        r#"{name: "AUTH_MODE", fromEnv: "CLOUD_AUTH_MODE"}"#,
    ] {
        assert!(yaml.contains(line), "{line}\n{yaml}");
    }
}

#[test]
fn a_host_or_a_scope_of_packages_that_is_no_plain_word_is_not_written() {
    let folder = Folder::new();
    let random = "k3j4h5g6f7d8";
    let odd = ["exa\u{301}mple.com", "exam\\u0007ple.com", "exam ple.com", "exam\\\"ple.com"];
    let odd = odd.iter().enumerate();
    let odd = odd.map(|(n, host)| format!(r#""odd{n}": {{"url": "https://{host}/mcp"}}"#));
    let odd: Vec<_> = odd.collect();
    let text = format!(
        r#"{{"mcpServers": {{
          "host": {{"url": "https://{random}s9a0.example.com/mcp"}},
          "port": {{"url": "https://example.com:12345678{random}/mcp"}},
          "plain": {{"url": "https://mcp.eu-west-1.example.com:8443/mcp"}},
          "scope": {{"command": "npx", "args": ["-y", "@{random}/tickets@1.0.0", "--url", "https://{random}.example.com/"]}},
          "known": {{"command": "npx", "args": ["-y", "@acme-labs/tickets@1.0.0"]}},
          {}
        }}}}"#,
        odd.join(",\n")
    );
    let output = imported(&folder, ".mcp.json", &text, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let yaml = valid(&output, &folder);
    assert!(!yaml.contains(random) && !said.contains(random), "{yaml}{said}");
    for line in [
        "    url: \"${HOST_URL}\"\n",
        "    url: \"${PORT_URL}\"\n",
        "    url: \"${ODD0_URL}\"\n",
        "    url: \"${ODD1_URL}\"\n",
        "    url: \"${ODD2_URL}\"\n",
        "    url: \"${ODD3_URL}\"\n",
        "    url: \"https://mcp.eu-west-1.example.com:8443/mcp\"\n",
        "\"-y\",\"${SCOPE_ARG_2}\"",
        "\"-y\",\"@acme-labs/tickets@1.0.0\"",
    ] {
        assert!(yaml.contains(line), "{line}\n{yaml}");
    }
    // What is to be set is said.
    for what in ["`HOST_URL` to the URL of `host`", "`SCOPE_ARG_2` to argument 2 of `scope`"] {
        assert!(said.contains(what), "{what}\n{said}");
    }
}

#[test]
fn the_configurations_of_ordinary_servers_need_no_variables_but_for_secrets() {
    let folder = Folder::new();
    let text = r#"{"mcpServers": {
      "serena": {"command": "uvx", "args": ["--from", "git+https://github.com/oraios/serena", "serena", "start-mcp-server", "--context", "ide-assistant"]},
      "markdown": {"command": "uvx", "args": ["--from=markitdown-mcp==0.0.1", "markitdown-mcp"]},
      "files": {"command": "npx", "args": ["-p", "@acme/tools@1.2.3", "acme-files", "--client-type", "persistent"]},
      "browser": {"command": "npx", "args": ["@playwright/mcp@0.0.30", "--browser", "firefox", "--viewport=1280x720", "--readOnly"]},
      "sqlite": {"command": "uvx", "args": ["mcp-server-sqlite==2025.4.25", "--db-path", ":memory:"]},
      "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory@2026.1.26"],
        "env": {"MEMORY_FILE_PATH": "/home/me/memory.jsonl", "LANGUAGE": "pt-BR", "READ_ONLY": "True", "TIMEOUT": "300000"}},
      "github": {"command": "docker", "args": ["run", "-i", "--rm", "-e", "GITHUB_TOOLSETS=repos,issues", "ghcr.io/github/github-mcp-server:v0.20.1"],
        "env": {"GITHUB_TOOLSETS": "repos,issues"}}}}"#;
    let output = imported(&folder, ".mcp.json", text, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let yaml = valid(&output, &folder);
    assert!(
        !yaml.contains("${") && !yaml.contains("fromEnv") && !said.contains("set `"),
        "{yaml}{said}"
    );
    for line in [
        r#"["--from","git+https://github.com/oraios/serena","serena","start-mcp-server","--context","ide-assistant"]"#,
        r#"["-p","@acme/tools@1.2.3","acme-files","--client-type","persistent"]"#,
        r#"{name: "MEMORY_FILE_PATH", value: "/home/me/memory.jsonl"}"#,
    ] {
        assert!(yaml.contains(line), "{line}\n{yaml}");
    }
}

#[test]
fn a_variable_for_an_argument_is_named_after_its_flag_and_said_with_its_place() {
    let folder = Folder::new();
    let text = format!(
        r#"{{"mcpServers": {{"word": {{"command": "/opt/server", "args": ["--context", "{SECRET}", "--api-key={SECRET}", "-k", "{SECRET}"]}},
          "serena": {{"command": "uvx", "args": ["--from", "git+https://ana:hunter2@example.com/x", "serena"]}},
          "headed": {{"url": "https://example.com/mcp", "headers": {{"X-Team": "hunter"}}}}}}}}"#
    );
    let output = imported(&folder, ".mcp.json", &text, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let yaml = valid(&output, &folder);
    assert!(
        yaml.contains(
            r#"["--context","${WORD_CONTEXT}","--api-key=${WORD_API_KEY}","-k","${WORD_ARG_5}"]"#
        ),
        "{yaml}"
    );
    for line in [
        "set `WORD_CONTEXT` to argument 2 of `word`, the value of `--context`",
        "set `WORD_API_KEY` to argument 3 of `word`, the value of `--api-key`",
        "set `WORD_ARG_5` to argument 5 of `word`\n",
        "warning: `serena`: the package that it runs is to stand in the variable `SERENA_FROM`",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    assert!(!yaml.contains("hunter") && !said.contains("${SERENA"), "{yaml}{said}");
    let output = imported(&folder, ".mcp.json", &text, &["--require-pinned"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("`serena` was left out: the package that it runs is not in plain words"),
        "{said}"
    );
}

#[test]
fn a_secret_as_the_name_of_a_server_is_neither_written_nor_said() {
    for secret in [
        "ghp_aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5",
        "AKIAQYLPMN5HHHFPZAM2",
        "x4f8a2c9e7b1d5063f2a8c4e",
    ] {
        let folder = Folder::new();
        let text = format!(
            r#"{{"mcpServers": {{"{secret}": {{"command": "/opt/one", "env": {{"KEY": "{SECRET}"}}}},
              "server": {{"command": "/opt/two"}}, "@acme/Context7-mcp": {{"command": "/opt/three"}}}}}}"#
        );
        let output = imported(&folder, ".mcp.json", &text, &[]);
        let yaml = valid(&output, &folder);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        for part in [secret, &secret.to_lowercase(), &secret.to_lowercase().replace('_', "-")] {
            assert!(!yaml.contains(part) && !said.contains(part), "{yaml}{said}");
        }
        let key = secret.to_uppercase();
        assert!(!yaml.contains(&key) && !said.contains(&key), "{yaml}{said}");
        assert!(said.contains("because its name could be a secret"), "{said}");
        assert!(yaml.contains("- name: server\n") && yaml.contains("- name: serverx\n"), "{yaml}");
        // Others keep theirs.
        assert!(yaml.contains("- name: acme-context7-mcp\n"), "{yaml}");
    }
}

#[test]
fn a_secret_in_a_name_a_folder_a_command_or_a_list_of_tools_is_not_written() {
    for secret in [
        "ghp_aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5",
        "AKIAQYLPMN5HHHFPZAM2",
        "hunter2pass",
        "s3cr3t-Value-99",
        "1234567890",
        "abcdefghijklmnop",
    ] {
        let folder = Folder::new();
        let text = format!(
            r#"{{"mcpServers": {{
              "one": {{"command": "/opt/server", "cwd": "/srv/{secret}", "env": {{"{secret}": "1", "LEVEL": "info",
                  "X": "${{{secret}}}"}}, "args": ["${{{secret}}}"], "alwaysAllow": ["{secret}", "read_file"]}},
              "two": {{"command": "{secret}", "alwaysAllow": ["{secret}"], "cwd": "/srv/files"}},
              "three": {{"url": "https://example.com/mcp", "headers": {{"X-{secret}": "1", "X-Level": "info"}},
                  "env_http_headers": {{"{secret}": "A", "X-B": "{secret}"}}, "bearer_token_env_var": "{secret}"}},
              "four": {{"command": "/opt/{secret}/run"}},
              "five": {{"command": "/opt/{secret}/npx", "args": ["evil"], "cwd": "{secret}/work"}}
            }}}}"#
        );
        let output = imported(&folder, ".mcp.json", &text, &[]);
        let yaml = valid(&output, &folder);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!yaml.contains(secret) && !said.contains(secret), "{yaml}{said}");
        for line in [
            r#"workingDirectory: "${ONE_CWD}""#,
            r#"workingDirectory: "/srv/files""#,
            r#"command: "/opt/server""#,
            r#"command: "${TWO_COMMAND}""#,
            r#"command: "${FOUR_COMMAND}""#,
            r#"command: "${FIVE_COMMAND}""#,
            r#"workingDirectory: "${FIVE_CWD}""#,
            r#"{name: "LEVEL", value: "info"}"#,
            r#"{name: "X-Level", value: "info"}"#,
            r#"{name: "X-B", fromEnv: "THREE_X_B"}"#,
            r#"servers: [one], tools: ["read_file"]"#,
            r#"servers: [four], tools: ["*"], prompts: ["*"], resources: ["*"]"#,
        ] {
            assert!(yaml.contains(line), "{line}\n{yaml}");
        }
        // Of the tools that were listed none is left, so none is allowed.
        assert!(!yaml.contains("local-two"), "{yaml}");
        assert!(said.contains("`two`: none of the tools"), "{said}");
        assert!(said.contains("a name could be a secret"), "{said}");
        // A runner of packages is still known for one.
        assert!(said.contains("warning: `five`: `evil` names no version"), "{said}");
    }
}

#[test]
fn nothing_is_taken_along_that_could_be_anything() {
    let folder = Folder::new();
    let text = r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "some-server"]},
        "b": {"command": "uvx", "args": ["other"]}, "d": {"command": "npx", "args": ["-y", "--package=evil", "pkg@1.0.0"]},
        "e": {"command": "npm", "args": ["exec", "-y", "evil-pkg"]}, "f": {"command": "uvx", "args": ["x@latest"]},
        "g": {"command": "npx", "args": ["pkg@1"]}, "h": {"command": "uv", "args": ["tool", "run", "--from", "evil", "x"]}, "c": {"url": "https://u:p@example.com/mcp"}}}"#;
    let output = imported(&folder, ".mcp.json", text, &["--require-pinned"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("`some-server` names no version")
            && said.contains("`other` names no version")
            && ["d", "e", "f", "g", "h"]
                .iter()
                .all(|name| said.contains(&format!("`{name}` was left out")))
    );
    assert!(said.contains("`c` was left out: there is a credential in its URL"), "{said}");
    // Otherwise they are kept, and each is warned of.
    let output = imported(&folder, ".mcp.json", text, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for (name, package) in [("a", "some-server"), ("b", "other"), ("f", "x@latest"), ("g", "pkg@1")]
    {
        let warning = format!("warning: `{name}`: `{package}` names no version");
        assert!(said.contains(&warning), "{said}");
    }
    assert!(said.contains("`c` was left out: there is a credential in its URL"), "{said}");
    let yaml = valid(&output, &folder);
    assert!(yaml.contains("some-server"));
    // What is there is not written over, and what is written is only there then.
    let there = folder.path().join("there.yaml");
    fs::write(&there, "mine").unwrap();
    let more = ["--write", there.to_str().unwrap()];
    let output = imported(&folder, ".mcp.json", text, &more);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&there).unwrap(), "mine");
    for broken in ["{", "[]", r#"{"mcpServers": {}}"#] {
        assert_eq!(imported(&folder, ".mcp.json", broken, &[]).status.code(), Some(1));
    }
}

#[test]
fn what_only_looks_like_a_server_that_many_use_is_taken_along_when_it_is_accepted() {
    let folder = Folder::new();
    let text = r#"{"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "@modelcontextprotoco1/server-filesystem@1.0.0"]},
        "vcs": {"command": "uvx", "args": ["mcp-server-gti==1.0.0"]},
        "mine": {"command": "npx", "args": ["-y", "@evil/server-filesystem@1.0.0"]},
        "typo": {"command": "npx", "args": ["-y", "mcp-server-gti"]},
        "time": {"command": "npx", "args": ["mcp-server-time"]},
        "github": {"url": "https://mcp.evil.example/mcp"},
        "githud": {"url": "https://mcp.example.com/mcp"},
        "good": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@1.0.0"]},
        "git": {"command": "uvx", "args": ["mcp-server-git==1.0.0"]}
    }}"#;
    let output = imported(&folder, ".mcp.json", text, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let yaml = valid(&output, &folder);
    for (name, own, other) in [
        (
            "files",
            "@modelcontextprotoco1/server-filesystem",
            "@modelcontextprotocol/server-filesystem",
        ),
        ("vcs", "mcp-server-gti", "mcp-server-git"),
        ("mine", "@evil/server-filesystem", "@modelcontextprotocol/server-filesystem"),
        ("typo", "mcp-server-gti", "mcp-server-git"),
        ("time", "mcp-server-time", "mcp-server-time"),
        ("github", "mcp.evil.example", "api.githubcopilot.com"),
        ("githud", "githud", "github"),
    ] {
        let line = said.lines().find(|line| line.contains(&format!("`{name}` was left out:")));
        let line = line.unwrap_or_else(|| panic!("{name}: {said}"));
        assert!(
            line.contains(&format!("`{own}`")) && line.contains(&format!("`{other}`")),
            "{line}"
        );
        assert!(line.contains(&format!("--accept {name}")), "{line}");
        assert!(!yaml.contains(&format!("- name: {name}\n")), "{yaml}");
    }
    assert!(yaml.contains("- name: good\n") && yaml.contains("- name: git\n"), "{yaml}");
    let more = ["--accept", "vcs", "--accept", "github"];
    let yaml = valid(&imported(&folder, ".mcp.json", text, &more), &folder);
    assert!(yaml.contains("  # Accepted at the import: its package `mcp-server-gti`"), "{yaml}");
    assert!(yaml.contains("- name: vcs\n") && yaml.contains("- name: github\n"), "{yaml}");
    assert!(!yaml.contains("- name: files\n") && !yaml.contains("- name: mine\n"), "{yaml}");
}

/// What is imported from a file as people have it, and what is said.
fn of_a_client(place: &str) -> (Folder, String, String) {
    let folder = Folder::new();
    let file = folder.path().join(place);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let name = place.rsplit('/').next().unwrap();
    let client = place.trim_start_matches('.').split(['/', '_']).next().unwrap();
    let kept = root().join("tests/import").join(format!("{client}.json"));
    fs::copy(&kept, &file).unwrap_or_else(|error| panic!("{name}: {}: {error}", kept.display()));
    let output = Command::new(binary()).arg("import").arg(&file).output().unwrap();
    let yaml = valid(&output, &folder);
    let here = folder.path().display().to_string();
    let said = String::from_utf8_lossy(&output.stderr).replace(&here, "/srv/projects");
    (folder, yaml.replace(&here, "/srv/projects"), said)
}

#[test]
fn ordinary_files_of_three_clients_come_out_whole() {
    for (place, warnings, variables) in [
        (
            "claude_desktop_config.json",
            &[
                "`filesystem`: `@modelcontextprotocol/server-filesystem` names no version",
                "`github`: `ghcr.io/github/github-mcp-server` names no version",
            ][..],
            &["GITHUB_GITHUB_PERSONAL_ACCESS_TOKEN"][..],
        ),
        (
            ".vscode/mcp.json",
            &["`playwright`: `@playwright/mcp@latest` names no version"],
            &["github_token", "DATABASE_TOKEN"],
        ),
        (
            ".cursor/mcp.json",
            &["`remote`: `mcp-remote` names no version"],
            &["LINEAR_TOKEN", "DATABASE_ARG_3"],
        ),
    ] {
        let (_folder, yaml, said) = of_a_client(place);
        let client = place.trim_start_matches('.').split(['/', '_']).next().unwrap();
        golden::compare([(&*root().join(format!("tests/import/{client}.yaml")), &*yaml)]);
        for warning in warnings {
            assert!(said.contains(&format!("warning: {warning}")), "{warning}\n{said}");
        }
        assert_eq!(said.matches("warning: ").count(), warnings.len(), "{said}");
        for variable in variables {
            assert!(said.contains(&format!("note: set `{variable}` to ")), "{variable}\n{said}");
        }
        assert_eq!(said.matches("note: set `").count(), variables.len(), "{said}");
    }
}

#[test]
fn a_tool_that_the_client_may_not_call_is_not_offered_by_the_gateway() {
    for era in ERAS {
        let server = Server::echo(era, &["echo", "drop"]);
        let folder = Folder::new();
        let client = folder.path().join(".mcp.json");
        let text = json!({ "mcpServers": {
            "most": { "httpUrl": server.url(), "excludeTools": ["drop"] },
            "some": { "type": "http", "url": server.url(), "tools": ["echo"] },
            "none": { "type": "http", "url": server.url(), "enabled_tools": [] }
        } });
        fs::write(&client, text.to_string()).unwrap();
        let file = folder.path().join("gateway.yaml");
        let path = file.to_str().unwrap();
        let done = |arguments: &[&str]| {
            let output = Command::new(binary()).args(arguments).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{arguments:?}: {said}");
            said
        };
        let said = done(&["import", client.to_str().unwrap(), "-w", path]);
        assert!(said.contains("`none`: none of the tools that the client allows"), "{said}");
        assert!(said.contains("the rule `forbidden-most` says so"), "{said}");
        let yaml = fs::read_to_string(&file).unwrap();
        assert!(!yaml.contains("local-none"), "{yaml}");
        fs::write(&file, yaml.replace("127.0.0.1:8080", "127.0.0.1:0")).unwrap();
        done(&["pin", "-c", path]);
        done(&["pin", "approve", "--yes", "-c", path, "--by", "ana"]);
        let mut command = Command::new(binary());
        command.args(["run", "-c", path]);
        let audit = folder.path().join("audit.jsonl");
        let gateway = Gateway::spawn_without_ops(command, Folder::new(), audit);
        for route in ["/most", "/some"] {
            let caller = Client::connect(gateway.address, route, era, None);
            assert_eq!(caller.tools(), ["echo"], "{era:?} {route}");
        }
    }
}

#[test]
fn a_package_behind_another_program_is_warned_of_and_left_out_when_it_is_to_be_pinned() {
    let folder = Folder::new();
    let text = r#"{"mcpServers": {
        "windows": {"command": "cmd", "args": ["/c", "npx", "-y", "@acme/tickets"]},
        "shell": {"command": "bash", "args": ["-c", "npx -y @acme/tickets"]},
        "python": {"command": "uvx", "args": ["--with", "requests==2.32.0", "acme-tickets"]},
        "image": {"command": "docker", "args": ["run", "-i", "-p", "8000:8000", "-e", "ACME_TOKEN", "acme/tickets"]},
        "good": {"command": "cmd", "args": ["/c", "npx", "-y", "@acme/tickets@1.2.3"]}}}"#;
    let output = imported(&folder, "claude_desktop_config.json", text, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let yaml = valid(&output, &folder);
    assert_eq!(said.matches("warning: ").count(), 4, "{said}");
    for line in [
        r#"args: ["/c","npx","-y","@acme/tickets"]"#,
        r#"args: ["run","-i","-p","8000:8000","-e","ACME_TOKEN","acme/tickets"]"#,
        r#"{name: "ACME_TOKEN", fromEnv: "ACME_TOKEN"}"#,
    ] {
        assert!(yaml.contains(line), "{line}\n{yaml}");
    }
    let output = imported(&folder, "claude_desktop_config.json", text, &["--require-pinned"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let yaml = valid(&output, &folder);
    assert_eq!(said.matches("was left out").count(), 4, "{said}");
    assert_eq!(yaml.matches("  - name: ").count(), 2, "a listener and a server: {yaml}");
}

#[test]
fn files_of_other_clients_are_read_and_every_server_is_named() {
    let folder = Folder::new();
    for (name, text) in [
        ("config.yaml", "mcpServers:\n  - {name: tickets, command: /opt/tickets}\n"),
        ("goose.yaml", "extensions:\n  tickets: {type: stdio, cmd: /opt/tickets, enabled: true}\n"),
        ("settings.json", r#"{"context_servers": {"tickets": {"command": "/opt/tickets"}}}"#),
        (".mcp.json", r#"{"tickets": {"command": "/opt/tickets"}}"#),
    ] {
        let yaml = valid(&imported(&folder, name, text, &[]), &folder);
        assert!(
            yaml.contains("- name: tickets\n    command: \"/opt/tickets\"\n"),
            "{name}\n{yaml}"
        );
    }
    let text = r#"{"mcpServers": {"within": {"type": "sdk"}, "empty": {}, "ide": {"url": "https://example.com/mcp",
        "requestInit": {"headers": {"Authorization": "Bearer SECRET"}}, "oauth": {"clientId": "x"}}}}"#;
    let output = imported(&folder, "mcp.json", &text.replace("SECRET", SECRET), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let yaml = valid(&output, &folder);
    assert!(yaml.contains("credential: {header: {fromEnv: \"IDE_AUTHORIZATION\"}}"), "{yaml}");
    for what in ["`within` was left out", "`empty` was left out", "`ide`: its `oauth` was left out"]
    {
        assert!(said.contains(what), "{what}\n{said}");
    }
    let output = imported(&folder, "other.json", r#"{"theme": "dark"}"#, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("`context_servers`") && said.contains("Gemini CLI"), "{said}");
}

#[test]
fn a_header_with_a_scheme_is_shown_to_the_server_with_one_scheme() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let folder = Folder::new();
        let client = folder.path().join(".mcp.json");
        let text = json!({ "mcpServers": { "tickets": {
            "type": "http", "url": server.url(), "headers": { "Authorization": format!("Bearer {SECRET}") }
        } } });
        fs::write(&client, text.to_string()).unwrap();
        let file = folder.path().join("gateway.yaml");
        let path = file.to_str().unwrap();
        let done = |arguments: &[&str], value: &str| {
            let mut command = Command::new(binary());
            command.args(arguments).env("TICKETS_AUTHORIZATION", value);
            let output = command.output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8_lossy(&said).into_owned())
        };
        let (code, said) = done(&["import", client.to_str().unwrap(), "-w", path], "");
        assert_eq!(code, Some(0), "{said}");
        let wanted = "set `TICKETS_AUTHORIZATION` to what stands after `Bearer ` in the header `Authorization` of `tickets`";
        assert!(said.contains(wanted) && said.contains("without a key"), "{said}");
        let yaml = fs::read_to_string(&file).unwrap();
        let begin = "# What `portcullis schema` prints describes every key";
        assert!(yaml.contains(begin) && !yaml.contains("$schema="), "{yaml}");
        fs::write(&file, yaml.replace("127.0.0.1:8080", "127.0.0.1:0")).unwrap();
        // What the file of the client has, put there as it is.
        let whole = format!("Bearer {SECRET}");
        for arguments in [&["validate", path][..], &["run", "-c", path], &["scan", "-c", path]] {
            let (code, said) = done(arguments, &whole);
            assert_ne!(code, Some(0), "{arguments:?}: {said}");
            assert!(said.contains("begins with `Bearer `"), "{arguments:?}: {said}");
            assert!(!said.contains(SECRET), "{said}");
        }
        assert!(server.calls().is_empty(), "nothing is sent with a scheme that stands there twice");
        for arguments in [
            &["validate", path][..],
            &["pin", "-c", path],
            &["pin", "approve", "--yes", "-c", path, "--by", "ana"],
        ] {
            let (code, said) = done(arguments, SECRET);
            assert_eq!(code, Some(0), "{arguments:?}: {said}");
        }
        let mut command = Command::new(binary());
        command.args(["run", "-c", path]).env("TICKETS_AUTHORIZATION", SECRET);
        let audit = folder.path().join("audit.jsonl");
        let gateway = Gateway::spawn_without_ops(command, Folder::new(), audit);
        let caller = Client::connect(gateway.address, "/tickets", era, None);
        let answer = caller.call("echo", &json!({ "text": "x" })).json();
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{era:?}: {answer}");
        let calls = server.tool_calls();
        let head = calls.last().unwrap().head.to_ascii_lowercase();
        assert!(head.contains(&format!("authorization: bearer {SECRET}")), "{head}");
    }
}

#[test]
fn what_is_imported_runs() {
    let folder = Folder::new();
    let project = folder.path().join("project");
    fs::create_dir_all(project.join(".vscode")).unwrap();
    fs::create_dir_all(project.join("server/data")).unwrap();
    std::os::unix::fs::symlink(binary(), project.join("server/small")).unwrap();
    let text = json!({
        "inputs": [{ "type": "promptString", "id": "level", "description": "How much is logged" }],
        "servers": {
            "small": {
                "command": "${workspaceFolder}/server/small", "args": ["canary"], "cwd": "server/data",
                "env": { "LEVEL": "${input:level}", "WHERE": "${workspaceFolder}/server", "WHO": "${env:WHO_CALLS}" }
            }
        }
    });
    fs::write(project.join(".vscode/mcp.json"), text.to_string()).unwrap();
    let file = folder.path().join("gateway.yaml");
    let portcullis = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.args(arguments).env("level", "info").env("WHO_CALLS", "ana");
        command
    };
    let done = |arguments: &[&str]| {
        let output = portcullis(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        said
    };
    let path = file.to_str().unwrap();
    let said = done(&["import", project.join(".vscode/mcp.json").to_str().unwrap(), "-w", path]);
    assert!(said.contains("set `level` to How much is logged"), "{said}");
    // Another gateway may have the usual port.
    let yaml = fs::read_to_string(&file).unwrap();
    assert!(yaml.contains(&format!("workingDirectory: \"{}/server/data\"", project.display())));
    fs::write(&file, yaml.replace("127.0.0.1:8080", "127.0.0.1:0")).unwrap();
    done(&["validate", path]);
    done(&["pin", "-c", path]);
    done(&["pin", "approve", "--yes", "-c", path, "--by", "ana"]);
    let command = portcullis(&["run", "-c", path]);
    let gateway =
        Gateway::spawn_without_ops(command, Folder::new(), folder.path().join("audit.jsonl"));
    for era in ERAS {
        let client = Client::connect(gateway.address, "/small", era, None);
        assert!(client.tools().contains(&"echo".to_owned()));
        let answer = client.call("echo", &json!({ "text": "x" })).json();
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{era:?}: {answer}");
    }
}
