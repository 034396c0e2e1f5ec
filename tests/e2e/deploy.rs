//! What is under `deploy/`: built, rendered, compared with schemas, and run, by real tools.

use std::process::Command;

use e2e::gateway::{Folder, binary, printed, root};

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
