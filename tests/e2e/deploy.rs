//! What is under `deploy/`: built, rendered, compared with schemas, and run, by real tools.

use std::process::Command;

use e2e::gateway::{binary, root};

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
    for what in
        ["alerts", "dashboards", "configurations", "helm", "compose", "systemd", "containers"]
    {
        assert!(said.lines().any(|line| line.starts_with(what)), "{said}");
    }
}

#[test]
fn the_image_has_the_gateway_in_it_and_nothing_else() {
    assert!(checked("image").contains("image "));
}
