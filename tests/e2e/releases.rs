//! Releases: what `deploy/release` signs, verifies and refuses, and what a guided build takes as its counts. Nothing is built here.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::gateway::{Folder, printed, root};

/// What a release has.
const FILES: [&str; 7] = [
    "LICENSE",
    "THIRD-PARTY.txt",
    "build.json",
    "counts.profdata",
    "counts.profdata.json",
    "portcullis",
    "sbom.cdx.json",
];
/// A guided build that compiles nothing: what it makes tells what it was given.
const GUIDED: &str = r#"#!/bin/sh
set -eu
mkdir -p "$CARGO_TARGET_DIR/dist"
[ "$1" = --counts ] || { echo counts >"$2"; echo '{}' >"$2.json"; }
{ cat "$TMPDIR/luck"; echo "$SOURCE_DATE_EPOCH ${RUSTFLAGS:-} ${CFLAGS:-}"; ls; } >"$CARGO_TARGET_DIR/dist/portcullis"
"#;
/// Who signs in these tests; the page shows this name.
const SIGNER: &str = "releases@portcullis.dev";
const ABOUT: &str = r#"{"version": "0.1.0", "tag": "v0.1.0", "commit": "5f1c", "target": "here"}"#;

fn shell(folder: &Path, line: &str) -> Output {
    Command::new("sh").args(["-c", line]).current_dir(folder).output().unwrap()
}

fn done(folder: &Path, line: &str) -> String {
    let output = shell(folder, line);
    assert!(output.status.success(), "{line}: {}", printed(&output));
    printed(&output)
}

fn release(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(root().join("deploy/release"));
    command.args(arguments).current_dir(folder).output().unwrap()
}

fn refused(folder: &Path, arguments: &[&str], says: &str) {
    let output = release(folder, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", printed(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("release: ") && said.contains(says), "{arguments:?}: {says}: {said}");
    assert!(!said.contains("Traceback"), "{said}");
}

/// A folder with a release, which is not signed, two keys, and who may sign.
fn unsigned() -> (Folder, PathBuf) {
    let folder = Folder::new();
    let to = folder.path().join("portcullis-0.1.0");
    fs::create_dir(&to).unwrap();
    for name in FILES {
        let text = if name == "build.json" { ABOUT } else { name };
        fs::write(to.join(name), text).unwrap();
    }
    sums(&to);
    for key in ["key", "foreign"] {
        done(folder.path(), &format!("ssh-keygen -q -t ed25519 -N '' -C '' -f {key}"));
    }
    let public = fs::read_to_string(folder.path().join("key.pub")).unwrap();
    let line = format!("{SIGNER} namespaces=\"portcullis-release\" {public}");
    fs::write(folder.path().join("signers"), line).unwrap();
    (folder, to)
}

fn sums(release: &Path) {
    done(release, &format!("sha256sum {} >SHA256SUMS", FILES.join(" ")));
}

fn signed() -> (Folder, PathBuf) {
    let (folder, to) = unsigned();
    let output = release(folder.path(), &["sign", "--key", "key", "portcullis-0.1.0"]);
    assert!(output.status.success(), "{}", printed(&output));
    (folder, to)
}

const VERIFY: [&str; 4] = ["verify", "--signers", "signers", "portcullis-0.1.0"];

#[test]
fn a_signed_release_is_verified_by_one_command_and_by_those_that_the_page_shows() {
    let (folder, _) = signed();
    let output = release(folder.path(), &VERIFY);
    assert!(output.status.success(), "{}", printed(&output));
    let said = printed(&output);
    for what in [SIGNER, "ED25519 key SHA256:", "7 files", "0.1.0 (v0.1.0), commit 5f1c"] {
        assert!(said.contains(what), "{what}: {said}");
    }
    let page = fs::read_to_string(root().join("docs/releases.md")).unwrap();
    let (_, shown) = page.split_once("\n## Verify a release\n").unwrap();
    let shown = shown.split("\n## ").next().unwrap();
    let beginnings = ["    ssh-keygen ", "    (cd "];
    let lines = shown.lines().filter(|line| beginnings.iter().any(|one| line.starts_with(one)));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 2, "{shown}");
    for line in lines {
        done(folder.path(), line);
    }
    // One byte, and the commands that everybody has notice it as well.
    fs::write(folder.path().join("portcullis-0.1.0/portcullis"), "portculliS").unwrap();
    assert!(
        !shell(folder.path(), "cd portcullis-0.1.0 && sha256sum -c SHA256SUMS").status.success()
    );
}

/// Something that is done to the folder of a release.
type Change<'a> = &'a dyn Fn(&Path);

#[test]
fn a_release_with_another_byte_or_a_file_too_many_or_too_few_is_refused() {
    let changes: [(&str, Change<'_>); 8] = [
        ("portcullis is not the file that was released", &|to| {
            fs::write(to.join("portcullis"), "portculliS").unwrap();
        }),
        ("SHA256SUMS is not what was signed", &|to| {
            fs::write(to.join("portcullis"), "portculliS").unwrap();
            sums(to);
        }),
        ("sbom.cdx.json missing", &|to| fs::remove_file(to.join("sbom.cdx.json")).unwrap()),
        ("install.sh too many", &|to| fs::write(to.join("install.sh"), "").unwrap()),
        ("more too many", &|to| fs::create_dir(to.join("more")).unwrap()),
        ("but a link", &|to| {
            fs::rename(to.join("portcullis"), to.join("../elsewhere")).unwrap();
            symlink("../elsewhere", to.join("portcullis")).unwrap();
        }),
        ("is not signed: there is no SHA256SUMS.sig", &|to| {
            fs::remove_file(to.join("SHA256SUMS.sig")).unwrap();
        }),
        ("there is no file portcullis-0.1.0/SHA256SUMS", &|to| {
            fs::remove_file(to.join("SHA256SUMS")).unwrap();
        }),
    ];
    for (says, change) in changes {
        let (folder, to) = signed();
        change(&to);
        refused(folder.path(), &VERIFY, says);
    }
}

#[test]
fn a_signature_counts_only_if_it_is_of_a_signer_and_for_releases() {
    let (folder, to) = signed();
    let good = fs::read(to.join("SHA256SUMS.sig")).unwrap();
    let put = |how: &str| {
        fs::remove_file(to.join("SHA256SUMS.sig")).unwrap();
        done(folder.path(), &format!("ssh-keygen -q -Y sign {how} portcullis-0.1.0/SHA256SUMS"));
    };
    put("-f foreign -n portcullis-release");
    refused(folder.path(), &VERIFY, "SHA256SUMS.sig is of no key in signers");
    // The right key, for something else.
    put("-f key -n git");
    refused(folder.path(), &VERIFY, "the key may not sign it");
    fs::write(to.join("SHA256SUMS.sig"), "-----BEGIN SSH SIGNATURE-----\n").unwrap();
    refused(folder.path(), &VERIFY, "SHA256SUMS.sig is of no key in signers");
    fs::write(to.join("SHA256SUMS.sig"), good).unwrap();
    assert!(release(folder.path(), &VERIFY).status.success());
    // A key that is no longer a signer's. This is also how the file begins that is in the repository.
    let begins = fs::read_to_string(root().join("deploy/signers")).unwrap();
    let comments: String = begins.lines().filter(|line| line.starts_with('#')).collect();
    fs::write(folder.path().join("signers"), comments + "\n").unwrap();
    refused(folder.path(), &VERIFY, "SHA256SUMS.sig is of no key in signers");
    fs::remove_file(folder.path().join("signers")).unwrap();
    refused(folder.path(), &VERIFY, "there is no file of signers");
}

#[test]
fn a_folder_that_is_no_release_is_not_signed() {
    let (folder, to) = unsigned();
    let sign = ["sign", "--key", "key", "portcullis-0.1.0"];
    fs::write(to.join("notes.txt"), "").unwrap();
    refused(folder.path(), &sign, "notes.txt too many");
    fs::remove_file(to.join("notes.txt")).unwrap();
    fs::write(to.join("portcullis"), "portculliS").unwrap();
    refused(folder.path(), &sign, "portcullis is not the file that was released");
    let listed = fs::read_to_string(to.join("SHA256SUMS")).unwrap();
    fs::write(to.join("SHA256SUMS"), listed.replace("  LICENSE", "  ../LICENSE")).unwrap();
    refused(folder.path(), &sign, "is no line of checksums");
    fs::write(to.join("build.json"), ABOUT.replace("\"v0.1.0\"", "null")).unwrap();
    sums(&to);
    refused(folder.path(), &sign, "has no tag: it is a trial");
    fs::write(to.join("build.json"), ABOUT).unwrap();
    sums(&to);
    refused(folder.path(), &["sign", "--key", "nowhere", "portcullis-0.1.0"], "could not sign");
    assert!(!to.join("SHA256SUMS.sig").exists());
    assert!(release(folder.path(), &sign).status.success());
}

#[test]
fn two_builds_are_compared_and_what_differs_is_named() {
    let (folder, to) = unsigned();
    let again = folder.path().join("again");
    let program = fs::read("/bin/sh").unwrap();
    fs::write(to.join("portcullis"), &program).unwrap();
    done(folder.path(), "cp -r portcullis-0.1.0 again");
    let compare = ["compare", "portcullis-0.1.0", "again"];
    let output = release(folder.path(), &compare);
    assert!(output.status.success(), "{}", printed(&output));
    assert!(printed(&output).contains("all 7 files are the same"), "{}", printed(&output));
    let entry = u64::from_le_bytes(program[0x18..0x20].try_into().unwrap());
    let middle = program.len() / 2;
    let mut other = program;
    other[usize::try_from(entry).unwrap() % middle] ^= 1;
    fs::write(again.join("portcullis"), other).unwrap();
    fs::write(again.join("build.json"), ABOUT.replace("5f1c", "77aa")).unwrap();
    let output = release(folder.path(), &compare);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    let said = printed(&output);
    for what in
        ["portcullis differs", "  .", ": 1 of ", "  first at 0x", "build.json differs", "77aa"]
    {
        assert!(said.contains(what), "{what}: {said}");
    }
}

#[test]
fn only_a_clean_checkout_of_the_tag_is_released_and_no_setting_from_outside() {
    let folder = Folder::new();
    let (at, home) = (folder.path().join("checkout"), folder.path().join("home"));
    for path in [&at, &home] {
        fs::create_dir(path).unwrap();
    }
    fs::create_dir(at.join("deploy")).unwrap();
    let from = root().display().to_string();
    done(
        &at,
        &format!(
            "cp -r {from}/deploy/release {from}/deploy/supply deploy && cp {from}/Cargo.toml ."
        ),
    );
    commit(&at);
    let build = |says: &str| {
        let mut command = Command::new(at.join("deploy/release"));
        command.args(["build", "../out"]).current_dir(&at).env("CARGO_HOME", &home);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
        assert!(printed(&output).contains(says), "{says}: {}", printed(&output));
        assert!(!folder.path().join("out/portcullis").exists());
    };
    build("has no tag v0.1.0");
    fs::write(at.join("more.rs"), "").unwrap();
    build("the checkout is not clean");
    fs::remove_file(at.join("more.rs")).unwrap();
    done(&at, "git tag v0.1.0");
    fs::write(home.join("config.toml"), "[profile.dist]\nopt-level = 0\n").unwrap();
    build("config.toml changes what is built: profile");
    fs::write(home.join("config.toml"), "include = [\"other.toml\"]\n").unwrap();
    build("config.toml changes what is built: include");
    let replaced =
        "[source.crates-io]\nreplace-with = \"own\"\n[source.own]\ndirectory = \"/own\"\n";
    fs::write(home.join("config.toml"), replaced).unwrap();
    build("config.toml changes what is built: source.own");
    fs::create_dir(folder.path().join("out")).unwrap();
    fs::write(folder.path().join("out/old"), "").unwrap();
    build("is there already and not empty");
}

#[test]
fn counts_that_are_not_there_or_of_another_compiler_are_refused_before_anything_is_built() {
    let folder = Folder::new();
    let counts = folder.path().join("counts.profdata");
    let beside = folder.path().join("counts.profdata.json");
    let refused = |says: &str| {
        let mut command = Command::new(root().join("tests/bench/guided"));
        let output = command.arg("--counts").arg(&counts).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
        let said = printed(&output);
        assert!(said.starts_with("guided: ") && said.contains(says), "{says}: {said}");
    };
    refused("the counts cannot be read");
    fs::write(&counts, "counts").unwrap();
    refused("is no file of merged counts");
    fs::copy(root().join("tests/e2e/counts.profdata"), &counts).unwrap();
    refused("does not say which compiler the counts are of");
    fs::write(&beside, r#"{"rustc": ["rustc 1.94.0"], "sha256": "00"}"#).unwrap();
    refused("has other counts than counts.profdata.json says");
    let digest = done(folder.path(), "sha256sum counts.profdata");
    let digest = digest.split(' ').next().unwrap();
    fs::write(&beside, format!(r#"{{"rustc": ["rustc 1.94.0"], "sha256": "{digest}"}}"#)).unwrap();
    refused("the counts are of another compiler");
}

/// A project as small as one can be, without packages of others.
fn project(at: &Path) {
    let from = root().display().to_string();
    for path in ["deploy", "gateway/src", "tests/bench"] {
        fs::create_dir_all(at.join(path)).unwrap();
    }
    done(at, &format!("cp -r {from}/deploy/release {from}/deploy/supply deploy"));
    done(at, &format!("cp {from}/rust-toolchain.toml {from}/LICENSE ."));
    done(at, &format!("cp {from}/tests/bench/guided tests/bench"));
    let put = |name: &str, text: &str| fs::write(at.join(name), text).unwrap();
    let package = "[workspace.package]\nversion = \"0.1.0\"\nlicense = \"Apache-2.0\"\n";
    let profile = "[profile.dist]\ninherits = \"release\"\n";
    let workspace = "[workspace]\nresolver = \"3\"\nmembers = [\"gateway\"]\n";
    put("Cargo.toml", &format!("{workspace}{package}{profile}"));
    let gateway =
        "[package]\nname = \"gateway\"\nversion.workspace = true\nlicense.workspace = true\n";
    let binary = "[[bin]]\nname = \"portcullis\"\npath = \"src/main.rs\"\n";
    put("gateway/Cargo.toml", &format!("{gateway}{binary}"));
    // It can panic in code that is made during the build, and a panic names the whole path of that file.
    let made = "fn at(all: &[String]) -> &str { &all[7] }";
    let path = "std::path::Path::new(&std::env::var(\"OUT_DIR\").unwrap()).join(\"made.rs\")";
    put(
        "gateway/build.rs",
        &format!("fn main() {{ std::fs::write({path}, {made:?}).unwrap(); }}\n"),
    );
    let main = "fn main() { println!(\"{}\", at(&std::env::args().collect::<Vec<_>>())); }";
    let included = "include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\"));";
    put("gateway/src/main.rs", &format!("{included}\n{main}\n"));
    put("Cargo.lock", "version = 4\n\n[[package]]\nname = \"gateway\"\nversion = \"0.1.0\"\n");
}

/// Commits everything, as of 2023-11-14T22:13:20Z.
fn commit(at: &Path) {
    let identity = "-c user.name=ana -c user.email=ana@example.com";
    let dated = "GIT_COMMITTER_DATE=@1700000000 git";
    done(at, &format!("git init -q && git add -A && {dated} {identity} commit -qm one"));
}

/// Counts of no function of the project, as if this compiler had made them.
fn counts(folder: &Path) {
    fs::copy(root().join("tests/e2e/counts.profdata"), folder.join("counts.profdata")).unwrap();
    let digest = done(folder, "sha256sum counts.profdata");
    let digest = digest.split(' ').next().unwrap();
    let compiler = done(&root(), "rustc -vV");
    let lines: Vec<_> = compiler.lines().collect();
    let text = format!(r#"{{"rustc": {lines:?}, "sha256": "{digest}"}}"#);
    fs::write(folder.join("counts.profdata.json"), text).unwrap();
}

#[test]
fn a_program_that_is_built_in_two_folders_with_the_same_counts_has_the_same_bytes() {
    let folder = Folder::new();
    let at = folder.path().join("checkout");
    fs::create_dir(&at).unwrap();
    project(&at);
    commit(&at);
    counts(folder.path());
    done(&at, "deploy/release build --untagged --counts ../counts.profdata ../out");
    let binary = fs::read(folder.path().join("out/portcullis")).unwrap();
    let names = |text: &str| binary.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(names("/portcullis/target/") && names("/out/made.rs"), "no panic names its file");
    for path in [folder.path().to_str().unwrap(), "counts.profdata", "/tmp/"] {
        assert!(!names(path), "the binary has {path} in it");
    }
    let said = done(&at, "TMPDIR=\"$PWD/..\" deploy/release reproduce ../out");
    assert!(said.contains("all 7 files are the same"), "{said}");
}

#[test]
fn a_release_is_built_from_the_commit_alone_and_built_again_elsewhere() {
    let folder = Folder::new();
    let at = folder.path().join("checkout");
    fs::create_dir(&at).unwrap();
    project(&at);
    fs::write(at.join("tests/bench/guided"), GUIDED).unwrap();
    commit(&at);
    done(&at, "git tag v0.1.0 && echo scratch >.git/info/exclude");
    // Neither this file, which git is told to overlook, nor these flags have a part in it.
    fs::write(at.join("scratch"), "").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(at.join("deploy/release"));
        command.args(arguments).current_dir(&at).env("TMPDIR", folder.path());
        command.env("CARGO_HOME", folder.path().join("home"));
        command.env("RUSTFLAGS", "-Copt-level=0").env("CFLAGS", "-O0").output().unwrap()
    };
    fs::write(folder.path().join("luck"), "one\n").unwrap();
    let output = run(&["build", "../out"]);
    assert!(output.status.success(), "{}", printed(&output));
    let out = folder.path().join("out");
    let binary = fs::read_to_string(out.join("portcullis")).unwrap();
    assert!(binary.starts_with("one\n1700000000  \n"), "{binary}");
    assert!(binary.contains("gateway") && !binary.contains("scratch"), "{binary}");
    let bill = fs::read_to_string(out.join("sbom.cdx.json")).unwrap();
    assert!(bill.contains("\"timestamp\": \"2023-11-14T22:13:20Z\""), "{bill}");
    let output = run(&["reproduce", "../out"]);
    assert!(output.status.success(), "{}", printed(&output));
    assert!(printed(&output).contains("all 7 files are the same"), "{}", printed(&output));
    fs::write(folder.path().join("luck"), "two\n").unwrap();
    let output = run(&["reproduce", "../out"]);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    let said = printed(&output);
    for what in ["portcullis differs", "line 1: one", "line 1: two", "sbom.cdx.json differs"] {
        assert!(said.contains(what), "{what}: {said}");
    }
    let package = folder.path().join("home/registry/src/index/one-1.0.0/src/lib.rs");
    fs::write(folder.path().join("luck"), package.to_str().unwrap()).unwrap();
    let output = run(&["build", "../again"]);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    let said = printed(&output);
    assert!(
        said.contains("names a folder of this machine: '") && said.contains("one-1.0.0"),
        "{said}"
    );
    fs::write(at.join("more.rs"), "").unwrap();
    commit(&at);
    let output = run(&["reproduce", "../out"]);
    assert!(printed(&output).contains("is checked out"), "{}", printed(&output));
}
