//! What the gateway accepts, the libraries of servers read like the gateway; `tests/differential` has the comparison.

use std::process::Command;

use e2e::gateway::{binary, root};

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
