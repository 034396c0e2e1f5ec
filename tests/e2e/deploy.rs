//! What is under `deploy/`: built, rendered, compared with schemas, and run, by real tools.

use std::process::Command;

use e2e::ERAS;
use e2e::client::Client;
use e2e::gateway::{ANA, Folder, Gateway, binary, printed, root};
use e2e::server::Server;

fn checked(what: &str) -> String {
    let python = root().join("tests/.peers/deploy/venv/bin/python");
    let mut command = Command::new(python);
    command.arg(root().join("tests/deploy/check.py")).arg(what).arg("--portcullis").arg(binary());
    // A tool that tests/setup installs and that is not there is a failure.
    command.arg("--strict");
    let output = command.output().unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn charts_manifests_alerts_and_units_are_what_their_tools_take() {
    let said = checked("static");
    for what in [
        "alerts",
        "dashboards",
        "configurations",
        "helm",
        "compose",
        "systemd",
        "containers",
        "sbom",
    ] {
        assert!(said.lines().any(|line| line.starts_with(what)), "{said}");
    }
}

#[test]
fn the_image_has_the_gateway_in_it_and_nothing_else() {
    assert!(checked("image").contains("image "));
}

#[test]
fn an_image_is_not_made_of_a_binary_that_could_not_start_in_it() {
    let folder = Folder::new();
    let staged = |path: &str, more: &[&str]| {
        let mut command = Command::new(root().join("deploy/image/stage"));
        command.arg(binary()).arg(folder.path().join("image")).args(more).env("PATH", path);
        command.output().unwrap()
    };
    let path = std::env::var("PATH").unwrap();
    // Where there is no `readelf` it is seen as well.
    let tools = folder.path().join("bin");
    std::fs::create_dir(&tools).unwrap();
    for tool in ["sh", "head", "tr", "grep", "rm", "mkdir", "install", "echo", "chmod"] {
        let is = |folder: &&str| std::path::Path::new(folder).join(tool).exists();
        let at = path.split(':').find(is).unwrap();
        std::os::unix::fs::symlink(std::path::Path::new(at).join(tool), tools.join(tool)).unwrap();
    }
    let linked = Command::new("ldd").arg(binary()).output().unwrap();
    let is_dynamic = linked.status.success() && !printed(&linked).contains("statically linked");
    for path in [path.as_str(), tools.to_str().unwrap()] {
        let output = staged(path, &[]);
        assert_eq!(output.status.success(), !is_dynamic, "{}", printed(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.contains("is linked dynamically (/"), is_dynamic, "{said}");
        assert_eq!(folder.path().join("image/rootfs/portcullis").exists(), !is_dynamic);
    }
    if is_dynamic {
        let output = staged(&path, &["--with-libraries"]);
        assert!(output.status.success(), "{}", printed(&output));
    }
}

#[test]
fn the_steps_for_systemd_end_in_a_gateway_that_shows_something_and_can_be_told_to_stop_it() {
    let readme = std::fs::read_to_string(root().join("deploy/README.md")).unwrap();
    let (_, steps) = readme.split_once("\n## systemd\n").unwrap();
    let steps = steps.split("\n## ").next().unwrap();
    for step in [
        "install -d -m 0700 /var/lib/portcullis && echo '{}' >/var/lib/portcullis/revoked.yaml\n",
        "set -a; . /etc/portcullis/environment; set +a ",
        "portcullis pin -c /etc/portcullis/portcullis.yaml ",
        "portcullis pin approve --by NAME -c /etc/portcullis/portcullis.yaml\n",
        "portcullis revoke --principal ana --ops 127.0.0.1:9901 --token-file /etc/portcullis/credentials/ops-token\n",
    ] {
        assert!(steps.contains(step), "{step}\nis not in\n{steps}");
    }
    let text = std::fs::read_to_string(root().join("deploy/systemd/portcullis.yaml")).unwrap();
    assert!(text.contains("\nrevocations:\n  file: /var/lib/portcullis/revoked.yaml\n"), "{text}");
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["get_ticket"]), Folder::new());
        let at = folder.path().to_owned();
        for part in ["etc/credentials", "lib", "log"] {
            std::fs::create_dir_all(at.join(part)).unwrap();
        }
        let mut moved = text.clone();
        for (from, to) in [
            ("/etc/portcullis", at.join("etc").display().to_string()),
            ("/var/lib/portcullis", at.join("lib").display().to_string()),
            ("/var/log/portcullis", at.join("log").display().to_string()),
            ("https://tickets.example.com/mcp", server.url()),
            ("127.0.0.1:8080", "127.0.0.1:0".to_owned()),
            ("127.0.0.1:9901", "127.0.0.1:0".to_owned()),
        ] {
            assert!(moved.contains(from), "{from}");
            moved = moved.replace(from, &to);
        }
        let file = at.join("etc/portcullis.yaml");
        std::fs::write(&file, moved).unwrap();
        let secrets = at.join("etc/credentials");
        for name in ["session-key", "ops-token"] {
            std::fs::write(secrets.join(name), "1f".repeat(32)).unwrap();
        }
        std::fs::write(at.join("lib/revoked.yaml"), "{}\n").unwrap();
        // As from root's shell: systemd sets `CREDENTIALS_DIRECTORY` for the service alone.
        let portcullis = |arguments: &[&str]| {
            let mut command = Command::new(binary());
            command.args(arguments).env_remove("CREDENTIALS_DIRECTORY");
            let hash = "5434d1fbe1648d10e4c47fcfab49b8f1a98b1ac20460ed66af94e6c80d6418a5";
            command.env("PORTCULLIS_API_KEY_SHA256", hash);
            command
        };
        let run = |arguments: &[&str]| {
            let output = portcullis(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", printed(&output));
            printed(&output)
        };
        let (config, key) = (file.display().to_string(), secrets.join("audit-key"));
        run(&["audit", "keygen", key.to_str().unwrap(), "--origin", "mcp.example.com/prod"]);
        run(&["validate", &config]);
        run(&["pin", "-c", &config]);
        run(&["pin", "approve", "--yes", "--by", "ana", "-c", &config]);
        let command = portcullis(&["run", "-c", &config]);
        let gateway = Gateway::spawn(command, folder, at.join("log/audit.jsonl"));
        let client = Client::connect(gateway.address, "/tickets", era, Some(ANA));
        assert_eq!(client.tools(), ["get_ticket"], "{era:?}");
        let (ops, token) = (gateway.ops.unwrap().to_string(), secrets.join("ops-token"));
        let token = token.display().to_string();
        let said = run(&["revoke", "--principal", "ana", "--ops", &ops, "--token-file", &token]);
        assert!(!said.contains("until the gateway stops"), "{said}");
        let revoked = std::fs::read_to_string(at.join("lib/revoked.yaml")).unwrap();
        assert!(revoked.contains("\"ana\""), "{revoked}");
        assert_eq!(client.ask("tools/list", serde_json::json!({})).status, 401, "{era:?}");
    }
}
