//! The log proves itself: what is in it was written by the gateway, all of it, in this order.
//!
//! Two verifiers have to agree about everything here: that of the binary, and `tests/audit/verify.py`,
//! which was written from the description and shares no code with it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use audit_log::chain::{ChainLink, content_of};
use audit_log::note::NoteSigner;
use audit_log::tree::MerkleTree;
use e2e::client::{Client, get, post, raw};
use e2e::gateway::{ANA, Config, Folder, Gateway, binary, json_of, printed, root};
use e2e::server::{Server, answer, tool};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

/// A configuration that records to `audit.jsonl` in a folder of its own and signs with a key that is
/// kept, and the public half of the key.
fn signed(server: &Server, folder: &Folder) -> (Config, String) {
    let path = folder.path();
    let key = path.join("key.pem");
    let made = run(&["audit", "keygen", "--origin", "gw.example/test"], &[&key]);
    assert!(made.status.success(), "{made:?}");
    let mut config = Config::of(&server.url());
    config.audit = Some(path.join("audit.jsonl"));
    config.auditing = format!(
        "checkpoints: {{key: {{fromFile: '{}'}}, origin: gw.example/test, records: 7, file: '{}'}}",
        key.display(),
        path.join("checkpoints").display()
    );
    (config, String::from_utf8(made.stdout).unwrap().trim().to_owned())
}

fn run(arguments: &[&str], files: &[&Path]) -> Output {
    Command::new(binary()).args(arguments).args(files).output().unwrap()
}

/// What both verifiers say: whether the log is whole, and where it is not.
#[expect(clippy::disallowed_methods, reason = "our own output")]
fn verified(more: &[&str], files: &[&Path]) -> (bool, Value) {
    let own = run(&[&["audit", "verify", "--format", "json"], more].concat(), files);
    let other = Command::new("python3")
        .arg(root().join("tests/audit/verify.py"))
        .args(more)
        .args(files)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&other.stdout).into_owned();
    assert_eq!(own.status.code(), other.status.code(), "{own:?}\n{other:?}");
    let report: Value = serde_json::from_slice(&own.stdout).unwrap();
    let whole = own.status.code() == Some(0);
    assert!(whole || own.status.code() == Some(8), "{own:?}");
    assert_eq!(report["whole"], whole);
    if !whole {
        // They name the same line.
        let problem = &report["problems"][0];
        let (file, line) = (problem["file"].as_str().unwrap(), &problem["line"]);
        assert!(*line == 0 || said.contains(&format!("{file}:{line}: ")), "{said}\n{report}");
    }
    (whole, report)
}

fn calls(gateway: &Gateway, count: usize) {
    let ana = gateway.client(Era::Modern, ANA);
    for _ in 0..count {
        assert_eq!(ana.call("read", &json!({})).status, 200);
    }
}

/// Starts, calls and stops.
fn session(config: &Config, count: usize) {
    let mut gateway = config.start();
    calls(&gateway, count);
    gateway.terminate();
    assert_eq!(gateway.ended(), Some(0));
}

/// The `start` records of a log, as they stand in the file.
fn starts(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let starts = text.lines().filter(|line| line.contains(r#""event":"start""#));
    starts.map(str::to_owned).collect()
}

#[test]
fn only_a_start_after_a_crash_is_recorded_as_one() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, key) = signed(&server, &folder);
    let file = folder.path().join("audit.jsonl");
    let is_after_crash = || starts(&file).pop().unwrap().contains(r#""crashed":true"#);
    session(&config, 1);
    // The last record is the checkpoint over the `stop`.
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .trim_end()
            .rsplit('\n')
            .next()
            .unwrap()
            .contains("checkpoint")
    );
    session(&config, 1);
    assert!(!is_after_crash());
    let mut gateway = config.start();
    calls(&gateway, 1);
    gateway.kill();
    drop(gateway);
    session(&config, 0);
    assert!(is_after_crash());
    session(&config, 0);
    assert!(!is_after_crash());
    assert!(verified(&["--key", &key], &[&file]).0);
    // Somebody without a key has added a record behind the `stop`.
    let text = fs::read_to_string(&file).unwrap();
    let (last, _) = ChainLink::of(text.trim_end().rsplit('\n').next().unwrap().as_bytes()).unwrap();
    let mut line = CALL.as_bytes().to_vec();
    ChainLink::after(last.hash, last.seq + 1, &content_of(&line)).seal(&mut line);
    append(&file, &line);
    session(&config, 0);
    assert!(is_after_crash());
}

#[test]
fn a_start_that_fails_leaves_no_record_of_a_crash() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, key) = signed(&server, &folder);
    let file = folder.path().join("audit.jsonl");
    session(&config, 1);
    // What is needed to listen fails before anything is recorded.
    let mut wrong = config.clone();
    wrong.more = "sessions: {keys: [{fromFile: /nowhere/session.key}]}".to_owned();
    assert_eq!(wrong.refused().status.code(), Some(3));
    assert_eq!(starts(&file).len(), 1);
    // What fails after it leaves a `stop`.
    let mut wrong = config.clone();
    wrong.ops = "{address: '127.0.0.1:0', token: {fromFile: /nowhere/token}}".to_owned();
    assert_eq!(wrong.refused().status.code(), Some(3));
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(starts(&file).len(), text.matches(r#""event":"stop""#).count());
    session(&config, 1);
    assert!(starts(&file).iter().all(|start| !start.contains("crashed")), "{:?}", starts(&file));
    assert!(verified(&["--key", &key], &[&file]).0);
}

#[test]
fn whatever_is_done_to_a_log_is_seen() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, key) = signed(&server, &folder);
    session(&config, 4);
    session(&config, 1);
    let file = folder.path().join("audit.jsonl");
    let checkpoints = folder.path().join("checkpoints").display().to_string();
    let trusted = ["--key", &key, "--checkpoint", &checkpoints];
    let (whole, report) = verified(&trusted, &[&file]);
    assert!(whole, "{report}");
    assert!(report["checkpoints"].as_u64().unwrap() >= 3 && report["keysFromLog"] == false);
    assert!(verified(&[], &[&file]).0);

    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let count = lines.len();
    let changed = folder.path().join("changed.jsonl");
    let seen = |what: &str, lines: &[&str], at: Option<usize>| {
        fs::write(&changed, lines.join("\n") + "\n").unwrap();
        let (whole, report) = verified(&trusted, &[&changed]);
        assert!(!whole, "{what} was not seen");
        if let Some(at) = at {
            assert_eq!(report["problems"][0]["line"], at, "{what}: {report}");
        }
    };
    // The last record is the last checkpoint, and covers all before it: nothing is lost with it.
    for at in 0..count - 1 {
        let mut edited = lines.clone();
        let other = lines[at].replacen("\"policy\":\"sha256:", "\"policy\":\"sha256;", 1);
        edited[at] = &other;
        seen("an edit", &edited, Some(at + 1));
        let mut cut = lines.clone();
        cut.remove(at);
        seen("a record taken out", &cut, (at > 0).then_some(at + 1));
        seen("the end cut off", &lines[..at], None);
        if at > 0 {
            let mut twice = lines.clone();
            twice.insert(at, lines[at - 1]);
            seen("a record put in", &twice, Some(at + 1));
            let mut swapped = lines.clone();
            swapped.swap(at - 1, at);
            seen("records in another order", &swapped, Some(at));
        }
        let mut half = lines[..at].to_vec();
        half.push(lines[at].split_at(lines[at].len() / 2).0);
        fs::write(&changed, half.join("\n")).unwrap();
        assert!(!verified(&trusted, &[&changed]).0, "a line cut in two was not seen");
    }
    // Written otherwise is not changed.
    let anew: Vec<String> = lines
        .iter()
        .map(|line| {
            #[expect(clippy::disallowed_methods, reason = "our own output")]
            let value: Value = serde_json::from_str(line).unwrap();
            value.to_string().replace("\",\"", "\", \"")
        })
        .collect();
    fs::write(&changed, anew.join("\n") + "\n").unwrap();
    let (whole, report) = verified(&trusted, &[&changed]);
    assert!(whole, "{report}");
}

#[test]
fn a_file_that_an_audit_verb_cannot_read_is_named() {
    let folder = Folder::new();
    let (log, missing) = (folder.path().join("audit.jsonl"), folder.path().join("missing"));
    fs::write(&log, "").unwrap();
    let missing = missing.display().to_string();
    let log = log.display().to_string();
    for arguments in [
        &["verify", "--checkpoint", &missing, &log][..],
        &["verify", "--key", &missing, &log],
        &["verify", &missing],
        &["query", &missing],
        &["tail", &missing],
    ] {
        let output = Command::new(binary()).arg("audit").args(arguments).output().unwrap();
        let text = printed(&output);
        assert!(!output.status.success(), "{arguments:?}: {text}");
        let expected = format!("could not read `{missing}`: No such file or directory");
        assert!(text.contains(&expected), "{arguments:?}: {text}");
    }
}

#[test]
fn a_log_that_somebody_else_signed_or_that_was_forked_is_seen() {
    let server = Server::echo(Era::Modern, &["read"]);
    let (ours, theirs) = (Folder::new(), Folder::new());
    let (config, key) = signed(&server, &ours);
    let (stranger, _) = signed(&server, &theirs);
    session(&config, 5);
    session(&stranger, 5);
    let own = ours.path().join("audit.jsonl");
    let foreign = theirs.path().join("audit.jsonl");
    // Signed anew by somebody who has another key under the same name.
    assert!(verified(&[], &[&foreign]).0, "only the key tells");
    let (whole, report) = verified(&["--key", &key], &[&foreign]);
    assert!(!whole && report["problems"][0]["what"].as_str().unwrap().contains("none of the keys"));
    // Two ways to go on from the same record, each good for itself, with the key of the gateway.
    let copy = ours.path().join("copy.jsonl");
    let (heads, heads_of_copy) = (ours.path().join("checkpoints"), ours.path().join("others"));
    fs::copy(&own, &copy).unwrap();
    fs::copy(&heads, &heads_of_copy).unwrap();
    session(&config, 2);
    let mut other = config.clone();
    other.audit = Some(copy.clone());
    other.auditing = other.auditing.replace("/checkpoints'", "/others'");
    session(&other, 4);
    for file in [&own, &copy] {
        let (whole, report) = verified(&["--key", &key], &[file]);
        assert!(whole, "{report}");
    }
    let (whole, report) = verified(&["--key", &key], &[&own, &copy]);
    assert!(
        !whole && report["problems"][0]["what"].as_str().unwrap().contains("forked"),
        "{report}"
    );
    // And the checkpoints of both gateways together do not fit either.
    append(&heads, &fs::read(&heads_of_copy).unwrap());
    let checkpoints = heads.display().to_string();
    assert!(!verified(&["--key", &key, "--checkpoint", &checkpoints], &[&own]).0);
}

#[test]
fn a_log_goes_on_after_a_stop_and_after_a_crash() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, key) = signed(&server, &folder);
    let file = folder.path().join("audit.jsonl");
    session(&config, 2);
    // Nobody else writes to it.
    let gateway = config.start();
    let second = config.refused();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("another process writes to `"), "{said}");
    let mut gateway = gateway;
    calls(&gateway, 2);
    gateway.kill();
    // Half a line is there when the gateway starts anew.
    let mut torn = fs::OpenOptions::new().append(true).open(&file).unwrap();
    torn.write_all(br#"{"chain":"half a li"#).unwrap();
    drop(torn);
    let gateway = config.start();
    let log: Vec<_> = fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
    let start = log.iter().rfind(|line| line.contains(r#""event":"start""#)).unwrap();
    // What was never acknowledged is cut off, and that is said.
    assert!(start.contains(r#""crashed":true"#) && start.contains(r#""bytes":19"#), "{start}");
    drop(gateway);
    let (whole, report) = verified(&["--key", &key], &[&file]);
    assert!(whole, "{report}");
    // What was changed is not gone on with.
    let text = fs::read_to_string(&file).unwrap();
    let last = text.lines().next_back().unwrap();
    fs::write(&file, text.replace(last, &last.replace("\"version\":\"", "\"version\":\"9")))
        .unwrap();
    let refused = config.refused();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("cannot be continued") && said.contains("audit verify"), "{said}");
    fs::write(&file, text).unwrap();
}

/// Starts with more on the command line.
fn start_with(config: &Config, more: &[&str]) -> Gateway {
    let (folder, audit) = (Folder::new(), config.audit.clone().unwrap());
    let file = folder.path().join("gateway.yaml");
    config.write(&file, &audit);
    let mut command = Command::new(binary());
    command.arg("run").args(more).arg("-c").arg(&file);
    Gateway::spawn(command, folder, audit)
}

#[test]
fn a_log_that_was_cut_emptied_or_taken_away_is_not_gone_on_with() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (signed, key) = signed(&server, &folder);
    // Also where nobody can say whose the checkpoints are, because no key is kept.
    let mut keyless = signed.clone();
    keyless.audit = Some(folder.path().join("keyless.jsonl"));
    let heads = folder.path().join("heads").display().to_string();
    keyless.auditing = format!("checkpoints: {{records: 7, file: '{heads}'}}");
    for config in [&signed, &keyless] {
        session(config, 6);
        session(config, 3);
        let file = config.audit.clone().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let refused = |what: &str| {
            let refused = config.refused();
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(1), "{what}: {said}");
            assert!(said.contains("is not the one that the last checkpoint"), "{what}: {said}");
            assert!(said.contains("--new-log"), "{what}: {said}");
        };
        // Each of these is a whole log for itself, up to where it was cut.
        let lines: Vec<_> = text.lines().collect();
        let ends = (1..lines.len()).filter(|n| lines[n - 1].contains("\"event\":\"checkpoint\""));
        let ends: Vec<_> = ends.collect();
        assert!(ends.len() > 2);
        for end in &ends {
            fs::write(&file, lines[..*end].join("\n") + "\n").unwrap();
            refused("it was cut");
        }
        // Nor where an old checkpoint stands behind the last one again, by somebody who can only append.
        let kept = folder.path().join(if config.auditing.contains("heads") {
            "heads"
        } else {
            "checkpoints"
        });
        let notes = fs::read_to_string(&kept).unwrap();
        let old: String = notes.trim_start().split_inclusive("\n\n").take(2).collect();
        append(&kept, format!("{}\n", old.trim_end()).as_bytes());
        fs::write(&file, lines[..ends[0]].join("\n") + "\n").unwrap();
        refused("an old checkpoint was appended");
        fs::write(&kept, notes).unwrap();
        fs::write(&file, "").unwrap();
        refused("it was emptied");
        fs::remove_file(&file).unwrap();
        refused("it was taken away");
        // As it was it goes on.
        fs::write(&file, &text).unwrap();
        session(config, 1);
    }
    // Nor is another log of the same gateway.
    let file = signed.audit.clone().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let elsewhere = Folder::new();
    let mut other = signed.clone();
    other.audit = Some(elsewhere.path().join("audit.jsonl"));
    other.auditing = other.auditing.replace("/checkpoints'", "/elsewhere'");
    session(&other, 30);
    fs::copy(other.audit.unwrap(), &file).unwrap();
    assert_eq!(signed.refused().status.code(), Some(1));
    fs::write(&file, text).unwrap();
    assert!(verified(&["--key", &key], &[&file]).0);
}

/// How `doctor` ends, and how it marks the log `thing` and what it says of it.
fn examined(file: &Path, thing: &str) -> (Option<i32>, String, String) {
    let output = run(&["doctor", "--json", "-c"], &[file]);
    let looks = json_of(&output);
    let look = looks.as_array().unwrap().iter().find(|look| look["check"] == thing);
    let look = look.unwrap_or_else(|| panic!("{thing}: {looks:#}"));
    let text = |key: &str| look[key].as_str().unwrap().to_owned();
    (output.status.code(), text("status"), format!("{} -> {}", text("message"), text("mend")))
}

#[test]
fn what_a_start_would_refuse_of_a_log_is_said_before_it_and_nothing_is_written() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (signed, _) = signed(&server, &folder);
    let log = folder.path().join("audit.jsonl");
    let file = folder.path().join("gateway.yaml");
    // A log from before there was a key, with half a record at its end.
    let mut keyless = signed.clone();
    keyless.auditing = String::new();
    session(&keyless, 2);
    keyless.write(&file, &log);
    assert_eq!(examined(&file, "audit log").1, "ok");
    assert_eq!(run(&["run", "--dry-run", "-c"], &[&file]).status.code(), Some(0));
    append(&log, br#"{"chain":"half a li"#);
    let before = fs::read(&log).unwrap();
    let says = |what: &str| {
        let (code, mark, said) = examined(&file, "audit log");
        assert!(code == Some(1) && mark == "fail" && said.contains(what), "{what}: {said}");
        let dry = run(&["run", "--dry-run", "-c"], &[&file]);
        let text = printed(&dry);
        assert!(dry.status.code() == Some(1) && text.contains(what), "{what}: {text}");
        let start = signed.refused();
        let text = printed(&start);
        assert!(start.status.code() == Some(1) && text.contains(what), "{what}: {text}");
    };
    // Without a key it would be gone on with, and what is torn stays until then.
    assert_eq!(examined(&file, "audit log").1, "ok");
    assert_eq!(run(&["run", "--dry-run", "-c"], &[&file]).status.code(), Some(0));
    assert_eq!(fs::read(&log).unwrap(), before);
    signed.write(&file, &log);
    let what = "cannot be continued: there is no checkpoint in it that this gateway has signed";
    let (_, mark, said) = examined(&file, "audit log");
    assert!(mark == "fail" && said.contains(what) && said.contains("docs/audit.md"), "{said}");
    let dry = run(&["run", "--dry-run", "-c"], &[&file]);
    assert!(dry.status.code() == Some(1) && printed(&dry).contains(what), "{}", printed(&dry));
    assert_eq!(fs::read(&log).unwrap(), before, "nothing was cut off");
    says(what);
    // One that has checkpoints in a file of their own, and is not there any more.
    fs::remove_file(&log).unwrap();
    session(&signed, 4);
    let (code, mark, said) = examined(&file, "audit log");
    assert!(code == Some(0) && mark == "ok" && said.contains("last checkpoint"), "{said}");
    let aside = folder.path().join("aside");
    fs::rename(&log, &aside).unwrap();
    assert_eq!(examined(&file, "audit log").1, "fail");
    assert!(!log.exists(), "none is made");
    says("is not the one that the last checkpoint");
    fs::rename(&aside, &log).unwrap();
    // It can be asked about while a gateway writes to it.
    let gateway = signed.start();
    calls(&gateway, 9);
    let (_, mark, said) = examined(&file, "audit log");
    assert_eq!(mark, "ok", "{said}");
    assert_eq!(run(&["run", "--dry-run", "-c"], &[&file]).status.code(), Some(0));
    calls(&gateway, 1);
}

#[test]
fn a_doctor_looks_at_the_log_of_a_process_of_one_client_too() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (signed, _) = signed(&server, &folder);
    let (log, file) = (folder.path().join("audit.jsonl"), folder.path().join("gateway.yaml"));
    let mut keyless = signed.clone();
    keyless.auditing = String::new();
    session(&keyless, 1);
    let own = folder.path().join("audit.jsonl.stdio-1");
    fs::rename(&log, &own).unwrap();
    let before = fs::read(&own).unwrap();
    keyless.write(&file, &log);
    assert_eq!(run(&["doctor", "-c"], &[&file]).status.code(), Some(0));
    signed.write(&file, &log);
    let (code, mark, said) = examined(&file, "audit log stdio-1");
    assert!(code == Some(1) && mark == "fail", "{said}");
    assert!(said.contains("audit.jsonl.stdio-1` cannot be continued"), "{said}");
    assert!(said.contains("move it away"), "{said}");
    assert_eq!(examined(&file, "audit log").1, "ok");
    assert_eq!(fs::read(&own).unwrap(), before);
}

#[test]
fn a_new_log_is_begun_on_purpose_once_and_that_is_on_record() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, key) = signed(&server, &folder);
    session(&config, 4);
    let (file, aside) = (folder.path().join("audit.jsonl"), folder.path().join("aside.jsonl"));
    fs::rename(&file, &aside).unwrap();
    assert_eq!(config.refused().status.code(), Some(1));
    let mut gateway = start_with(&config, &["--new-log"]);
    calls(&gateway, 2);
    let began = gateway.log().into_iter().find(|record| record["event"] == "began").unwrap();
    assert!(began["what"].as_str().unwrap().contains("that of chain "), "{began}");
    gateway.terminate();
    assert_eq!(gateway.ended(), Some(0));
    // From now on it is the log, and the old one is not.
    session(&config, 1);
    assert!(verified(&["--key", &key], &[&file]).0);
    // The file of checkpoints has those of both: with one log alone the other is missed, and it is said why.
    let checkpoints = folder.path().join("checkpoints").display().to_string();
    let trusted = ["--key", &key, "--checkpoint", &checkpoints];
    let (whole, report) = verified(&trusted, &[&file]);
    let what = report["problems"][0]["what"].as_str().unwrap();
    assert!(!whole && what.contains("this one was begun in its place"), "{report}");
    assert!(what.contains("audit.jsonl:") && what.contains("give the files of that log"), "{what}");
    assert!(verified(&trusted, &[&file, &aside]).0);
    fs::rename(&file, folder.path().join("new.jsonl")).unwrap();
    fs::rename(&aside, &file).unwrap();
    assert_eq!(config.refused().status.code(), Some(1));
    fs::rename(folder.path().join("new.jsonl"), &file).unwrap();
    // An option that stays on the command line would begin a new one whenever the log is gone.
    let configured = folder.path().join("gateway.yaml");
    config.write(&configured, &file);
    let mut command = Command::new(binary());
    command.args(["run", "--new-log", "-c"]).arg(&configured);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the refusal", || child.try_wait().unwrap());
    let said = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.code() == Some(1) && text.contains("start without it"), "{text}");
    session(&config, 1);
}

#[test]
fn a_file_of_somebody_else_is_left_as_it_was() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let file = folder.path().join("notes.txt");
    for text in ["{\"a\":1}", "a\nb", "{\"schema\":\"portcullis.audit/v1\"}\n{\"sch", "x", "line\n"]
    {
        fs::write(&file, text).unwrap();
        let mut config = Config::of(&server.url());
        config.audit = Some(file.clone());
        let refused = config.refused();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && said.contains("cannot be continued"), "{said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    // A part of the first record of a log is one.
    for text in ["{\"ch", "{\"chain\":\"00112233"] {
        fs::write(&file, text).unwrap();
        let mut config = Config::of(&server.url());
        config.audit = Some(file.clone());
        drop(config.start());
        assert!(verified(&[], &[&file]).0);
    }
}

#[test]
fn a_log_in_another_format_says_so_and_is_not_gone_on_with() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let file = folder.path().join("audit.jsonl");
    // As the second version was written.
    let text = fs::read_to_string(root().join("tests/audit/v2.records")).unwrap();
    fs::write(&file, &text).unwrap();
    let mut config = Config::of(&server.url());
    config.audit = Some(file.clone());
    let refused = config.refused();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("they say that they are in version 2 of the format"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let (whole, report) = verified(&[], &[&file]);
    let what = report["problems"][0]["what"].as_str().unwrap();
    assert!(!whole && what.starts_with("it says that it is in version 2"), "{report}");
}

#[test]
fn a_file_that_is_full_is_begun_anew_and_old_ones_go() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (mut config, key) = signed(&server, &folder);
    config.sink = "rotate: {maxSize: 8KiB}".to_owned();
    let file = folder.path().join("audit.jsonl");
    session(&config, 30);
    let full = || full(&folder);
    assert!(full().len() > 3, "{:?}", full());
    let mut files = full();
    files.push(file.clone());
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    // All of them in one go, and each alone: a file says what came before it.
    assert!(verified(&["--key", &key], &paths).0);
    // The current one brings those beside it along.
    for (n, path) in paths[..paths.len() - 1].iter().enumerate() {
        let (whole, report) = verified(&["--key", &key, "--from", "1000"], &[path]);
        assert!(whole, "{path:?} {report}");
        // But nobody takes the front away unseen.
        assert_eq!(verified(&["--key", &key], &[path]).0, n == 0);
    }
    // A file that is missing in the middle is missed; the files beside the one named come with it.
    let gone = folder.path().join("gone");
    fs::rename(&files[1], &gone).unwrap();
    assert_eq!(run(&["audit", "verify", "--key", &key], &[&file]).status.code(), Some(8));
    fs::rename(&gone, &files[1]).unwrap();
    // The next start throws away what is not to be kept, and says so.
    config.sink = "rotate: {maxSize: 8KiB, maxFiles: 3}".to_owned();
    let gateway = config.start();
    eventually("old files to go", || (full().len() <= 4).then_some(()));
    let retired = gateway.log().into_iter().filter(|record| record["event"] == "retired").count();
    assert!(retired > 0);
    drop(gateway);
    let mut left = full();
    left.push(file);
    // What was thrown away is accounted for.
    let left: Vec<_> = left.iter().map(PathBuf::as_path).collect();
    let (whole, report) = verified(&["--key", &key], &left);
    assert!(whole, "{report}");
}

/// The full files of the log in this folder, the oldest first.
fn full(folder: &Folder) -> Vec<PathBuf> {
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = names.filter(|p| p.to_str().unwrap().contains("audit.0")).collect();
    names.sort();
    names
}

#[test]
fn old_files_go_as_soon_as_new_ones_are_begun() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (mut config, _) = signed(&server, &folder);
    config.sink = "rotate: {maxSize: 8KiB, maxFiles: 3}".to_owned();
    let gateway = config.start();
    let ana = gateway.client(Era::Modern, ANA);
    // Some ninety files are begun meanwhile; a look every few seconds would leave most of them.
    for calls in 0..400 {
        assert_eq!(ana.call("read", &json!({})).status, 200);
        let full = full(&folder).len();
        assert!(full < 60, "{full} full files after {calls} calls");
    }
    eventually("the last old file to go", || (full(&folder).len() <= 3).then_some(()));
}

/// A configuration whose log is in a folder of its own, which can be taken away.
fn movable(server: &Server, folder: &Folder) -> (Config, String, PathBuf) {
    let (mut config, key) = signed(server, folder);
    let place = folder.path().join("log");
    fs::create_dir(&place).unwrap();
    config.audit = Some(place.join("audit.jsonl"));
    (config, key, place)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "our own output")]
fn what_somebody_else_appends_to_the_log_is_on_record_and_swallows_no_record() {
    for era in ERAS {
        for (text, bytes) in [("{\"x\":1", 6), ("{\"x\":1}\n", 8)] {
            let server = Server::echo(era, &["read"]);
            let folder = Folder::new();
            let (config, key) = signed(&server, &folder);
            let mut gateway = config.start();
            gateway.is_tampered = true;
            let ana = gateway.client(era, ANA);
            assert_eq!(ana.call("read", &json!({})).status, 200);
            let mut file = fs::OpenOptions::new().append(true).open(gateway.audit()).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert_eq!(ana.call("read", &json!({})).status, 200);
            gateway.says("audit.file_foreign");
            gateway.measures("portcullis_audit_foreign_appends_total 1");
            assert_eq!(get(gateway.ops.unwrap(), "/readyz").status, 200);
            gateway.terminate();
            assert_eq!(gateway.ended(), Some(0));
            // Each record stands on a line of its own, and nothing of the other is lost.
            let log = fs::read_to_string(gateway.audit()).unwrap();
            let (ours, others): (Vec<_>, Vec<_>) =
                log.lines().partition(|line| line.contains("\"schema\":\"portcullis.audit/"));
            assert_eq!(others, [text.trim_end()]);
            let ours: Vec<Value> =
                ours.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert!(ours.iter().zip(0..).all(|(record, seq)| record["seq"] == json!(seq)));
            let told: Vec<_> = ours.iter().filter(|record| record["event"] == "foreign").collect();
            assert_eq!(told.len(), 1, "{told:?}");
            assert_eq!((&told[0]["sink"], &told[0]["bytes"]), (&json!("file"), &json!(bytes)));
            assert!(!verified(&["--key", &key], &[gateway.audit()]).0);
        }
    }
}

#[test]
fn a_log_that_is_removed_while_it_is_written_goes_on_in_a_new_file_that_says_so() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let folder = Folder::new();
        let (config, key) = signed(&server, &folder);
        let mut gateway = config.start();
        gateway.is_tampered = true;
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.call("read", &json!({})).status, 200);
        let before = gateway.log().len();
        fs::remove_file(gateway.audit()).unwrap();
        let lost = eventually("the loss to be on record", || {
            gateway.log().into_iter().find(|record| record["event"] == "lost")
        });
        assert_eq!((&lost["sink"], &lost["from"]), (&json!("file"), &json!(0)));
        assert!(lost["to"].as_u64().unwrap() + 1 >= before as u64, "{lost}");
        assert!(lost["what"].as_str().unwrap().contains("removed"), "{lost}");
        gateway.measures("portcullis_audit_files_lost_total 1");
        gateway.says("audit.file_lost");
        assert_eq!(ana.call("read", &json!({})).status, 200);
        assert_eq!(get(gateway.ops.unwrap(), "/readyz").status, 200);
        gateway.terminate();
        assert_eq!(gateway.ended(), Some(0));
        // The new file can be verified, and does not pass for the whole log.
        let first = &gateway.log()[0];
        assert_eq!(first["event"], "opened");
        let (from, file) = (first["seq"].to_string(), gateway.audit().to_owned());
        let (whole, report) = verified(&["--key", &key, "--from", &from], &[&file]);
        assert!(whole, "{report}");
        assert!(!verified(&["--key", &key], &[&file]).0);
    }
}

#[test]
fn while_the_log_is_gone_and_cannot_be_begun_anew_nothing_is_done() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let folder = Folder::new();
        let (config, _, place) = movable(&server, &folder);
        let mut gateway = config.start();
        gateway.is_tampered = true;
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.call("read", &json!({})).status, 200);
        fs::remove_dir_all(&place).unwrap();
        let ready = || get(gateway.ops.unwrap(), "/readyz").status;
        eventually("readiness to end", || (ready() == 503).then_some(()));
        let before = server.tool_calls().len();
        assert_eq!(ana.call("read", &json!({})).code(), -32603);
        assert_eq!(ana.ask("tools/list", json!({})).code(), -32603);
        assert_eq!((server.tool_calls().len(), ready()), (before, 503));
        // As soon as there can be a log again there is one.
        fs::create_dir(&place).unwrap();
        eventually("readiness", || (ready() == 200).then_some(()));
        assert_eq!(ana.call("read", &json!({})).status, 200);
        eventually("the loss to be on record", || {
            gateway.log().iter().any(|record| record["event"] == "lost").then_some(())
        });
    }
}

#[test]
fn a_log_that_comes_back_goes_on_and_nothing_is_written_to_what_stood_in_its_place() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, key, place) = movable(&server, &folder);
    let mut gateway = config.start();
    let (file, aside) = (gateway.audit().to_owned(), place.join("aside"));
    calls(&gateway, 3);
    fs::write(place.join("other"), "somebody else's\n").unwrap();
    fs::rename(&file, &aside).unwrap();
    fs::rename(place.join("other"), &file).unwrap();
    let ready = || get(gateway.ops.unwrap(), "/readyz").status;
    eventually("readiness to end", || (ready() == 503).then_some(()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "somebody else's\n");
    fs::rename(&aside, &file).unwrap();
    eventually("readiness", || (ready() == 200).then_some(()));
    calls(&gateway, 3);
    gateway.terminate();
    assert_eq!(gateway.ended(), Some(0));
    let (whole, report) = verified(&["--key", &key], &[&file]);
    assert!(whole, "{report}");
    drop(gateway);
    // One that is emptied in place is lost as well.
    let mut gateway = config.start();
    gateway.is_tampered = true;
    calls(&gateway, 3);
    fs::OpenOptions::new().write(true).truncate(true).open(&file).unwrap();
    eventually("the loss to be on record", || {
        gateway.log().iter().any(|record| record["event"] == "lost").then_some(())
    });
    calls(&gateway, 1);
    gateway.terminate();
    assert_eq!(gateway.ended(), Some(0));
    assert!(!verified(&["--key", &key], &[&file]).0);
}

#[test]
fn checkpoints_reach_their_file_while_the_gateway_runs_and_none_is_lost() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (mut config, key) = signed(&server, &folder);
    let (log, heads) = (folder.path().join("audit.jsonl"), folder.path().join("heads.pipe"));
    assert!(Command::new("mkfifo").arg(&heads).status().unwrap().success());
    // Opened for both so that neither end waits for the other.
    let open = || fs::OpenOptions::new().read(true).write(true).open(&heads).unwrap();
    let reader = open();
    config.auditing = config.auditing.replace("/checkpoints'", "/heads.pipe'");
    let gateway = config.start();
    calls(&gateway, 20);
    drop(reader);
    // Whoever keeps them is away: calls go on, and it is shown.
    let late = || {
        let text = gateway.metrics_now();
        !text.contains("portcullis_audit_checkpoints_late_bytes 0\n")
    };
    eventually("a checkpoint to be late", || {
        calls(&gateway, 4);
        late().then_some(())
    });
    assert_eq!(get(gateway.ops.unwrap(), "/readyz").status, 200);
    for era in ERAS {
        assert_eq!(gateway.client(era, ANA).call("read", &json!({})).status, 200);
    }
    let signed = || -> Vec<String> {
        let records = gateway.log().into_iter();
        let signed = records.filter(|record| record["event"] == "checkpoint");
        signed.map(|record| record["note"].as_str().unwrap().to_owned()).collect()
    };
    let before = signed();
    let last = before.last().unwrap();
    // Whoever comes back finds all of them.
    let mut reader = open();
    let (piece, pieces) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count) = reader.read(&mut bytes) {
            if piece.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut bytes = Vec::new();
    let mut came = eventually("the checkpoints to come", || {
        bytes.extend(pieces.try_iter().flatten());
        let came = String::from_utf8_lossy(&bytes).into_owned();
        came.contains(last).then_some(came)
    });
    eventually("nothing to be late", || (!late()).then_some(()));
    assert!(before.len() > 3 && before.iter().all(|note| came.contains(note)));
    let kept = folder.path().join("kept");
    came.truncate(came.find(last).unwrap() + last.len());
    fs::write(&kept, came + "\n").unwrap();
    let kept = kept.display().to_string();
    let (whole, report) = verified(&["--key", &key, "--checkpoint", &kept], &[&log]);
    assert!(whole, "{report}");
}

#[test]
fn a_file_of_checkpoints_that_is_removed_or_cut_is_begun_anew_and_still_proves_the_end() {
    for (era, cut) in [(Era::Legacy, false), (Era::Modern, false), (Era::Modern, true)] {
        let server = Server::echo(era, &["read"]);
        let folder = Folder::new();
        let (config, key) = signed(&server, &folder);
        let heads = folder.path().join("checkpoints");
        let mut gateway = config.start();
        let ana = gateway.client(era, ANA);
        for _ in 0..10 {
            assert_eq!(ana.call("read", &json!({})).status, 200);
        }
        if cut {
            // What is written after the cut, and before it is seen, would hide it: nothing is on its way.
            eventually("the checkpoints to be written", || {
                let signed = gateway.log().into_iter().rev();
                let last = signed.filter_map(|record| Some(record["note"].as_str()?.to_owned()));
                let kept = fs::read_to_string(&heads).unwrap();
                last.take(1).all(|note| kept.contains(&note)).then_some(())
            });
            fs::OpenOptions::new().write(true).open(&heads).unwrap().set_len(0).unwrap();
        } else {
            fs::remove_file(&heads).unwrap();
        }
        let lost = eventually("the loss to be on record", || {
            gateway.log().into_iter().find(|record| record["event"] == "lost")
        });
        assert_eq!(lost["sink"], "checkpoints", "{lost}");
        let what = if cut { "cut" } else { "removed" };
        assert!(lost["what"].as_str().unwrap().contains(what), "{lost}");
        gateway.measures("portcullis_audit_files_lost_total 1");
        gateway.says("audit.file_lost");
        assert_eq!(ana.call("read", &json!({})).status, 200);
        assert_eq!(get(gateway.ops.unwrap(), "/readyz").status, 200);
        gateway.terminate();
        assert_eq!(gateway.ended(), Some(0));
        // The new file is worth as much as the old one: it covers all records, and a log without its end is not whole.
        let (log, heads) = (gateway.audit().to_owned(), heads.display().to_string());
        let trusted = ["--key", &*key, "--checkpoint", &*heads];
        let (whole, report) = verified(&trusted, &[&log]);
        assert!(whole, "{report}");
        let text = fs::read_to_string(&log).unwrap();
        let end = text.rmatch_indices("\"event\":\"checkpoint\"").nth(1).unwrap().0;
        let (before, last) = text.split_at(end);
        let (line, _) = last.split_once('\n').unwrap();
        fs::write(&log, format!("{before}{line}\n")).unwrap();
        assert!(!verified(&trusted, &[&log]).0, "the end was cut off");
    }
}

#[test]
fn what_stands_between_checkpoints_takes_none_of_them_with_it() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, key) = signed(&server, &folder);
    let (log, heads) = (folder.path().join("audit.jsonl"), folder.path().join("checkpoints"));
    session(&config, 3);
    let note = fs::read(&heads).unwrap().trim_ascii().to_vec();
    let note = String::from_utf8(note).unwrap().split_inclusive("\n\n").take(2).collect::<String>();
    let dash = note.find('\u{2014}').unwrap();
    // What a crash leaves of one, also within a letter, and what somebody puts there who can only append.
    for end in [20, dash, dash + 1, dash + 20, note.trim_end().len() - 9] {
        append(&heads, note.as_bytes().split_at(end).0);
        session(&config, 3);
    }
    for part in ["a", "a\n", "\u{2014} \n", "a\n\n\u{2014} b c\n"] {
        append(&heads, part.as_bytes());
        session(&config, 3);
    }
    let kept = heads.display().to_string();
    let trusted = ["--key", &*key, "--checkpoint", &*kept];
    let (whole, report) = verified(&trusted, &[&log]);
    assert!(whole && report["remarks"].to_string().contains("are not finished"), "{report}");
    // All of them still count.
    let text = fs::read_to_string(&log).unwrap();
    let shorter = folder.path().join("shorter.jsonl");
    for (at, _) in text.match_indices("\n{\"chain\"").filter(|(at, _)| *at > text.len() / 4) {
        let cut = text.split_at(at + 1).0;
        if cut.lines().next_back().is_some_and(|line| line.contains("\"event\":\"checkpoint\"")) {
            fs::write(&shorter, cut).unwrap();
            assert!(!verified(&trusted, &[&shorter]).0, "{at}");
        }
    }
    // Who only looks at servers signs nothing.
    let before = fs::read(&heads).unwrap();
    let pinned = config.approved(&folder.path().join("lock")).verb(&["pin"]);
    assert!(pinned.status.success() && fs::read(&heads).unwrap() == before, "{pinned:?}");
}

fn append(file: &Path, bytes: &[u8]) {
    fs::OpenOptions::new().append(true).open(file).unwrap().write_all(bytes).unwrap();
}

/// A log that says `records`, chained anew by somebody who has no key.
fn chained(from: u64, records: &[String]) -> Vec<String> {
    let (mut last, mut lines) = ([0; 32], Vec::new());
    for (seq, record) in (from..).zip(records) {
        let mut line = record.clone().into_bytes();
        let place = ChainLink::after(last, seq, &content_of(&line));
        place.seal(&mut line);
        last = place.hash;
        lines.push(String::from_utf8(line).unwrap().trim_end().to_owned());
    }
    lines
}

/// What a record says, without its place.
fn content(line: &str) -> String {
    line.rsplit_once(",\"seq\":").unwrap().0.to_owned() + "}"
}

#[test]
fn who_has_no_key_writes_nothing_that_passes_or_is_gone_on_with() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, key) = signed(&server, &folder);
    session(&config, 6);
    session(&config, 2);
    let file = folder.path().join("audit.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let first = content(lines[0]);
    let chain = first.split('"').nth(3).unwrap();
    let forged = folder.path().join("forged.jsonl");
    let passes = |lines: &[String], more: &[&str]| {
        fs::write(&forged, lines.join("\n") + "\n").unwrap();
        verified(&[&["--key", &*key], more].concat(), &[&forged]).0
    };
    assert!(passes(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), &[]));
    // All of it anew, without a signature; and without what somebody did.
    let unsigned = |line: &&&str| !line.contains("\"event\":\"checkpoint\"");
    let records: Vec<_> = lines.iter().filter(unsigned).map(|line| content(line)).collect();
    let anew = chained(0, &records);
    assert!(!passes(&anew, &[]) && !passes(&chained(0, &records[..4]), &[]));
    // Up to the last signature but one as it was, the rest anew.
    let signed_at: Vec<_> = (0..lines.len()).filter(|n| !unsigned(&&lines[*n])).collect();
    let kept = signed_at[signed_at.len() - 3] + 1;
    let mut half: Vec<_> = lines[..kept].iter().map(|line| (*line).to_owned()).collect();
    let mut tail = chained(kept as u64, &records[records.len() - 3..]);
    half.append(&mut tail);
    assert!(!passes(&half, &[]), "nothing follows a signature but what follows it");
    // A gap that nobody signed, up to any number.
    let peaks = |size: u64| {
        (0..size.count_ones())
            .map(|_| format!("\"{}\"", "0".repeat(64)))
            .collect::<Vec<_>>()
            .join(",")
    };
    let event = |event: &str, chain: &str, size: u64, more: &str| {
        format!(
            "{{\"chain\":\"{chain}\",\"event\":\"{event}\"{more},\"peaks\":[{}],\"schema\":\"portcullis.audit/v3\",\"size\":{size}}}",
            peaks(size)
        )
    };
    for to in [20_000, 1 << 50] {
        let gap = event("gap", chain, to, &format!(",\"from\":{kept}"));
        let gap = gap.replacen("}", &format!(",\"to\":{}}}", to - 1), 1);
        let mut cut: Vec<_> = lines[..kept].iter().map(|line| (*line).to_owned()).collect();
        cut.extend(chained(to, &[gap]));
        assert!(!passes(&cut, &[]), "a gap to {to}");
        let start = event("start", chain, to, &format!(",\"key\":\"{key}\""));
        assert!(!passes(&chained(to, &[start]), &["--from", "2000000000000000"]));
    }
    // Another chain between two starts, to hide what is missing.
    let second = lines.iter().rposition(|line| line.contains("\"event\":\"start\"")).unwrap();
    let mut between: Vec<_> = lines[..second - 4].iter().map(|line| (*line).to_owned()).collect();
    let other = event("start", "00112233aabbccdd", 0, &format!(",\"key\":\"{key}\""));
    between.extend(chained(0, &[other]));
    between.extend(lines[second..].iter().map(|line| (*line).to_owned()));
    assert!(!passes(&between, &[]));
    // And the gateway itself does not put its signature below what it has not written.
    for lines in [&anew, &half] {
        fs::write(&file, lines.join("\n") + "\n").unwrap();
        let refused = config.refused();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && said.contains("cannot be continued"), "{said}");
    }
    fs::write(&file, text).unwrap();
}

/// A log of one chain whose every checkpoint the gateway has signed, made by hand: what each record says, where
/// `{NOTE}` stands for the checkpoint over those before it, which `note` makes.
fn made(records: &[&str], key: &str, note: &dyn Fn(&MerkleTree) -> String) -> Vec<String> {
    let (mut tree, mut last, mut lines) = (MerkleTree::default(), [0; 32], Vec::new());
    for (seq, record) in (0..).zip(records) {
        let peaks: Vec<_> = tree.peaks().iter().map(|peak| hex(peak)).collect();
        let signed = Value::from(note(&tree)).to_string();
        let peaks = Value::from(peaks).to_string();
        let object = record.replace("{NOTE}", &signed).replace("{PEAKS}", &peaks);
        let object = object.replace("{KEY}", key).replace("{SIZE}", &tree.size().to_string());
        let mut line = object.into_bytes();
        let place = ChainLink::after(last, seq, &content_of(&line));
        place.seal(&mut line);
        last = place.hash;
        tree.push(last);
        lines.push(String::from_utf8(line).unwrap().trim_end().to_owned());
    }
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const START: &str = r#"{"chain":"0011223344556677","event":"start","key":"{KEY}","peaks":{PEAKS},"schema":"portcullis.audit/v3","size":{SIZE}}"#;
const CALL: &str =
    r#"{"chain":"0011223344556677","event":"intent","schema":"portcullis.audit/v3","tool":"read"}"#;
const OTHER: &str =
    r#"{"chain":"0011223344556677","event":"intent","schema":"portcullis.audit/v3","tool":"kill"}"#;
const SIGNED: &str = r#"{"chain":"0011223344556677","event":"checkpoint","note":{NOTE},"peaks":{PEAKS},"schema":"portcullis.audit/v3","size":{SIZE}}"#;

#[test]
fn a_log_written_anew_around_genuine_checkpoints_is_seen() {
    let signer = NoteSigner::generate("gw.example/test").unwrap();
    let key = signer.public().text();
    let folder = Folder::new();
    let file = folder.path().join("made.jsonl");
    let passes = |lines: &[String]| {
        fs::write(&file, lines.join("\n") + "\n").unwrap();
        let (whole, report) = verified(&["--key", &key], &[&file]);
        (whole, report["problems"][0]["what"].as_str().unwrap_or_default().to_owned())
    };
    let own = |tree: &MerkleTree| signer.note("0011223344556677", tree);
    let records = [START, SIGNED, CALL, CALL, SIGNED, CALL, SIGNED];
    let good = made(&records, &key, &own);
    assert_eq!(passes(&good), (true, String::new()));
    // Other records, each chained to the one before it, around what was signed over the real ones: sizes, chain and
    // signatures are right, and only the head tells.
    let notes = std::cell::RefCell::new(Vec::new());
    let keeping = |tree: &MerkleTree| {
        notes.borrow_mut().push(own(tree));
        own(tree)
    };
    drop(made(&records, &key, &keeping));
    let genuine = |tree: &MerkleTree| notes.borrow()[usize::try_from(tree.size()).unwrap()].clone();
    let forged = [START, SIGNED, CALL, OTHER, SIGNED, CALL, SIGNED];
    let (whole, what) = passes(&made(&forged, &key, &genuine));
    assert!(!whole && what.contains("not of this log"), "{what}");
    // The head is right, and the key, but it was signed for another chain.
    let foreign = |tree: &MerkleTree| signer.note("aabbccddeeff0011", tree);
    let (whole, what) = passes(&made(&records, &key, &foreign));
    assert!(!whole && what.contains("not of this log"), "{what}");
    // With the key of the gateway another log can be made that is good for itself. It is not the one of which
    // checkpoints were kept elsewhere.
    let another = made(&forged, &key, &own);
    assert_eq!(passes(&another), (true, String::new()));
    let (heads, witness) =
        (folder.path().join("heads"), folder.path().join("heads").display().to_string());
    fs::write(&heads, notes.borrow()[1..].join("\n")).unwrap();
    let agrees = |lines: &[String]| {
        fs::write(&file, lines.join("\n") + "\n").unwrap();
        verified(&["--key", &key, "--checkpoint", &witness], &[&file]).0
    };
    assert!(agrees(&good) && !agrees(&another));
    // It is over fewer records than come before it.
    let earlier = |tree: &MerkleTree| {
        let size = usize::try_from(tree.size()).unwrap();
        notes.borrow()[size.saturating_sub(1)].clone()
    };
    assert!(!passes(&made(&records, &key, &earlier)).0);
}

#[test]
fn a_record_that_does_not_name_the_one_before_it_is_seen() {
    let signer = NoteSigner::generate("gw.example/test").unwrap();
    let key = signer.public().text();
    let folder = Folder::new();
    let file = folder.path().join("made.jsonl");
    let own = |tree: &MerkleTree| signer.note("0011223344556677", tree);
    let good = made(&[START, SIGNED, CALL, CALL, CALL], &key, &own);
    let records = [START, SIGNED, CALL, CALL, CALL];
    for at in [0_usize, 1, 2, 4] {
        // Its number and its hash are right, so only the hash it names is not.
        let mut lines = good.clone();
        let mut line = content(&lines[at]).into_bytes();
        ChainLink::after([7; 32], at as u64, &content_of(&line)).seal(&mut line);
        lines[at] = String::from_utf8(line).unwrap().trim_end().to_owned();
        lines.truncate(at + 1);
        fs::write(&file, lines.join("\n") + "\n").unwrap();
        let (whole, report) = verified(&["--key", &key], &[&file]);
        assert!(!whole, "record {at} of {}", records.len());
        assert_eq!(report["problems"][0]["line"], at + 1, "{report}");
    }
}

#[test]
fn a_collector_that_is_full_blinds_no_file() {
    let collector = Server::start(|_, stream| {
        stream.write_all(&answer("503 Busy", "text/plain", "no")).is_ok()
    });
    let server = Server::echo(Era::Modern, &["read"]);
    let mut config = Config::of(&server.url());
    config.sinks = format!("{{name: siem, http: {{url: '{}'}}, spool: 8KiB}}", collector.url());
    let gateway = config.start();
    let ana = gateway.client(Era::Modern, ANA);
    eventually("the spool to be full", || {
        (ana.call("read", &json!({})).status == 503).then_some(())
    });
    // No call is made, but who tries is on record where there is room.
    let before = gateway.exchanges().len();
    assert_ne!(gateway.client(Era::Modern, "pcl_nobody").call("read", &json!({})).status, 200);
    assert_eq!(gateway.exchanges().len(), before + 1);
    assert_eq!(gateway.last()["reason"], "credential-refused");
    gateway.terminate();
    eventually("the stop to be on record", || {
        gateway.records().iter().any(|record| record["event"] == "stop").then_some(())
    });
}

#[test]
fn whenever_it_is_killed_every_call_that_arrived_is_on_record() {
    // `PORTCULLIS_KILLS` makes it longer.
    let kills = std::env::var("PORTCULLIS_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    for era in ERAS {
        let arrived: &'static Mutex<BTreeSet<String>> = Box::leak(Box::default());
        let server = Server::with(Era::Modern, json!([tool("read")]), move |call, stream| {
            let text = call.body["params"]["arguments"]["text"].as_str().unwrap().to_owned();
            arrived.lock().unwrap().insert(text);
            stream.write_all(&call.text("ok")).is_ok()
        });
        let folder = Folder::new();
        let (mut config, key) = signed(&server, &folder);
        config.sink = "rotate: {maxSize: 64KiB}".to_owned();
        let file = folder.path().join("audit.jsonl");
        let (mut answered, next) = (0, AtomicUsize::new(0));
        for round in 0..kills {
            let mut gateway = config.start();
            let address = gateway.address;
            let done = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        // Each call says which it is.
                        let connected = std::panic::catch_unwind(|| {
                            Client::connect(address, "/mcp", era, Some(ANA))
                        });
                        let Ok(client) = connected else { return };
                        loop {
                            let n = next.fetch_add(1, Ordering::Relaxed);
                            let call = json!({ "text": format!("call-{n}") });
                            let bytes = client.call_bytes(
                                &json!(n),
                                &json!({ "name": "read", "arguments": call }),
                            );
                            // Under one of them the gateway dies.
                            let asked = std::panic::catch_unwind(|| raw(address, &bytes));
                            if asked.is_err() {
                                return;
                            }
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                let enough = 5 + round % 7;
                eventually("some calls", || (done.load(Ordering::Relaxed) >= enough).then_some(()));
                gateway.kill();
            });
            answered += done.load(Ordering::Relaxed);
        }
        // The last start finishes what the last kill left.
        session(&config, 0);
        let (whole, report) = (run(&["audit", "verify", "--key", &key], &[&file]), ());
        assert!(whole.status.success(), "{whole:?} {report:?}");
        let query = run(&["audit", "query", "--format", "jsonl", "--event", "intent"], &[&file]);
        let intents = String::from_utf8(query.stdout).unwrap().lines().count();
        let arrived = arrived.lock().unwrap().len();
        assert!(arrived >= answered && answered > 0);
        assert!(intents >= arrived, "{intents} on record, {arrived} arrived");
    }
}

#[test]
fn a_collector_that_is_down_stops_calls_or_costs_records_as_it_is_told() {
    for (full, expected) in [("deny", false), ("drop", true), ("block", false)] {
        let up = &*Box::leak(Box::new(std::sync::atomic::AtomicBool::new(false)));
        let taken: &'static Mutex<Vec<String>> = Box::leak(Box::default());
        let collector = Server::start(move |call, stream| {
            if !up.load(Ordering::Acquire) {
                return stream.write_all(&answer("503 Busy", "text/plain", "no")).is_ok();
            }
            let text = String::from_utf8_lossy(&call.bytes).into_owned();
            let body = text.split_once("\r\n\r\n").unwrap().1.to_owned();
            taken.lock().unwrap().push(body);
            stream.write_all(&answer("200 OK", "text/plain", "ok")).is_ok()
        });
        let server = Server::echo(Era::Modern, &["read"]);
        let mut config = Config::of(&server.url());
        config.sinks = format!(
            "{{name: siem, http: {{url: '{}'}}, spool: 16KiB, onFull: {full}}}",
            collector.url()
        );
        let gateway = config.start();
        let ana = gateway.client(Era::Modern, ANA);
        if full == "block" {
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| calls(&gateway, 20));
                let before = eventually("the spool to be full", || {
                    let metrics = gateway.metrics_now();
                    let line =
                        metrics.lines().find(|l| l.starts_with("portcullis_audit_spool_bytes "));
                    let held: u64 = line?.rsplit_once(' ')?.1.parse().ok()?;
                    (held > 0).then_some(gateway.exchanges().len())
                });
                assert!(before < 20 && !waits.is_finished());
                up.store(true, Ordering::Release);
            });
        } else {
            let codes: Vec<_> = (0..20).map(|_| ana.call("read", &json!({})).status).collect();
            assert_eq!(codes.iter().all(|code| *code == 200), expected, "{full} {codes:?}");
            assert_eq!(server.tool_calls().len() < 20, full == "deny");
            up.store(true, Ordering::Release);
            eventually("records to be taken", || (!taken.lock().unwrap().is_empty()).then_some(()));
        }
        // It works again as soon as it can.
        eventually("calls", || (ana.call("read", &json!({})).status == 200).then_some(()));
        drop(gateway);
        let text = taken.lock().unwrap().concat();
        let folder = Folder::new();
        let file = folder.path().join("collected.jsonl");
        fs::write(&file, text).unwrap();
        let (whole, report) = verified(&["--collected"], &[&file]);
        assert!(whole, "{report}");
        let remarks = report["remarks"].to_string();
        assert_eq!(remarks.contains("were not taken by this sink"), full == "drop", "{remarks}");
    }
}

#[test]
fn a_syslog_and_a_collector_of_ocsf_get_what_they_understand() {
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken: &'static Mutex<String> = Box::leak(Box::default());
    let collector = Server::trusted(move |call, stream| {
        assert!(call.head.to_ascii_lowercase().contains("authorization: bearer collector-key"));
        let text = String::from_utf8_lossy(&call.bytes).into_owned();
        taken.lock().unwrap().push_str(text.split_once("\r\n\r\n").unwrap().1);
        stream.write_all(&answer("200 OK", "text/plain", "ok")).is_ok()
    });
    let folder = Folder::new();
    let token = folder.path().join("token");
    fs::write(&token, "collector-key\n").unwrap();
    let server = Server::echo(Era::Modern, &["read"]);
    let mut config = Config::of(&server.url());
    config.sinks = format!(
        "{{name: udp, syslog: {{udp: '{}'}}}}, {{name: tcp, syslog: {{tcp: '{}', facility: 10}}, format: ocsf}}, \
         {{name: siem, format: ocsf, http: {{url: '{}', token: {{fromFile: '{}'}}}}}}",
        udp.local_addr().unwrap(),
        tcp.local_addr().unwrap(),
        collector.url(),
        token.display()
    );
    let gateway = config.start();
    let ana = gateway.client(Era::Modern, ANA);
    assert_eq!(ana.call("read", &json!({})).status, 200);
    assert_eq!(gateway.client(Era::Modern, "pcl_nobody").call("read", &json!({})).status, 401);
    assert!(ana.call("write", &json!({})).code() < 0);
    // RFC 5424: facility 13 and severity 6 are 110.
    let mut datagram = [0; 65536];
    let length = udp.recv(&mut datagram).unwrap();
    let first = String::from_utf8_lossy(&datagram[..length]).into_owned();
    assert!(first.starts_with("<110>1 20") && first.contains(" portcullis "), "{first}");
    assert!(first.contains(r#" start - {"chain":""#), "{first}");
    let (mut stream, _) = tcp.accept().unwrap();
    let said = e2e::client::until(&mut stream, "\"api\":");
    let (length, rest) = said.split_once(' ').unwrap();
    assert!(length.parse::<usize>().is_ok() && rest.starts_with("<86>1 "), "{said}");
    let event = |uid: u64, is: &dyn Fn(&Value) -> bool| {
        eventually("the event", || {
            let text = taken.lock().unwrap().clone();
            #[expect(clippy::disallowed_methods, reason = "our own output")]
            let mut events = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            events.find(|event: &Value| event["class_uid"] == uid && is(event))
        })
    };
    let call =
        event(6003, &|event| event["action_id"] == 1 && event["api"]["operation"] == "tools/call");
    assert_eq!(call["resources"][0]["name"], "read");
    assert_eq!(
        (&call["actor"]["user"]["uid"], &call["type_uid"]),
        (&json!("ana"), &json!(600_399))
    );
    let denied = event(6003, &|event| event["disposition_id"] == 2);
    assert_eq!((&denied["status_id"], &denied["status_code"]), (&json!(2), &json!("unknown-tool")));
    let unknown = event(3002, &|_| true);
    assert_eq!(unknown["status_detail"], "credential-refused");
    let record = gateway.last();
    assert_eq!(denied["metadata"]["uid"], record["id"]);
}

#[test]
fn every_record_is_as_its_schema_says() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (mut config, _) = signed(&server, &folder);
    // Also where requests are recorded together.
    config.refusals = "{individualRecords: 0}".to_owned();
    let mut gateway = config.start();
    calls(&gateway, 3);
    let nobody = Client::silent(gateway.address, "/mcp", Era::Modern, &[]);
    assert_eq!(nobody.ask("tools/list", json!({})).status, 401);
    gateway.terminate();
    assert_eq!(gateway.ended(), Some(0));
    assert!(gateway.log().iter().any(|record| record["event"] == "refusals"));
    let printed = run(&["schema", "audit"], &[]);
    let shipped = fs::read(root().join("config/audit.schema.json")).unwrap();
    assert_eq!(printed.stdout, shipped);
    let check = "import json, sys, jsonschema\nschema = json.load(open(sys.argv[1]))\n\
                 v = jsonschema.Draft202012Validator(schema)\n\
                 for line in open(sys.argv[2]):\n  v.validate(json.loads(line))\n";
    let python = root().join("tests/.peers/py1/bin/python");
    let checked = Command::new(python)
        .args(["-c", check])
        .arg(root().join("config/audit.schema.json"))
        .arg(folder.path().join("audit.jsonl"))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn records_are_found_and_shown() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, _) = signed(&server, &folder);
    let gateway = config.start();
    let ana = gateway.client(Era::Modern, ANA);
    calls(&gateway, 2);
    assert!(ana.call("=cmd|' /C calc'!A0", &json!({})).code() < 0);
    drop(gateway);
    let file = folder.path().join("audit.jsonl");
    let said = |arguments: &[&str]| String::from_utf8(run(arguments, &[&file]).stdout).unwrap();
    let denied = said(&["audit", "query", "--outcome", "denied"]);
    assert!(
        denied.contains(" denied ana tools/call up/=cmd") && denied.lines().count() == 1,
        "{denied}"
    );
    let none = said(&["audit", "query", "--principal", "bob"]);
    assert_eq!(none, "");
    assert_eq!(
        said(&["audit", "query", "--tool", "read", "--event", "intent", "--since", "1h"])
            .lines()
            .count(),
        2
    );
    assert_eq!(said(&["audit", "query", "--until", "1h"]), "");
    let table = said(&["audit", "export", "--format", "csv", "--event", "exchange"]);
    assert!(table.starts_with("time,event,outcome,") && table.contains("'=cmd"), "{table}");
    assert_eq!(said(&["audit", "tail", "-n", "2"]).lines().count(), 2);
    assert!(said(&["audit", "export"]).contains("\"class_uid\":6003"));
}

#[test]
fn records_of_a_tool_are_found_by_its_name_at_its_server_too() {
    let server = Server::echo(Era::Modern, &["now", "clock__now"]);
    let servers =
        format!("- {{name: clock, url: '{0}'}}\n- {{name: other, url: '{0}'}}", server.url());
    let gateway = Config::with(&servers, "[clock, other]").start();
    let ana = gateway.client(Era::Modern, ANA);
    for name in ["clock__now", "other__now", "other__clock__now"] {
        assert_eq!(ana.call(name, &json!({})).status, 200, "{name}");
    }
    let found = |tool: &str| {
        let query = ["audit", "query", "--event", "exchange", "--format", "jsonl", "--tool", tool];
        let said = String::from_utf8(run(&query, &[gateway.audit()]).stdout).unwrap();
        let tools = said.lines().map(|line| {
            #[expect(clippy::disallowed_methods, reason = "our own output")]
            let record: Value = serde_json::from_str(line).unwrap();
            record["tool"].as_str().unwrap().to_owned()
        });
        tools.collect::<Vec<_>>()
    };
    assert_eq!(found("now"), ["clock__now", "other__now"]);
    assert_eq!(found("clock/now"), ["clock__now"]);
    // Only the name of the record's own server is left out.
    assert_eq!(found("clock__now"), ["clock__now", "other__clock__now"]);
    assert_eq!(found("other/clock__now"), ["other__clock__now"]);
    assert_eq!(found("other/clock/now"), Vec::<String>::new());
    assert_eq!(found("clock/other__now"), Vec::<String>::new());
}

/// Whether a terminal that is shown this does nothing but show it.
fn is_inert(text: &str) -> bool {
    let acts = |c: char| {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}');
        turns || c.is_control() && !matches!(c, '\n' | '\t')
    };
    !text.replace("\r\n", "\n").contains(acts)
}

#[test]
fn nothing_that_a_caller_chose_reaches_a_terminal_as_a_command() {
    let nasty = "x\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{2066}\u{7f}\r=y";
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let folder = Folder::new();
        let (config, _) = signed(&server, &folder);
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        let body = ana.message(&json!(nasty), "tools/call", json!({ "name": nasty }));
        let name = (era == Era::Modern).then(|| {
            use base64::Engine as _;
            format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(nasty))
        });
        let bytes = ana.bytes("tools/call", name.as_deref(), &body);
        assert!(raw(gateway.address, &bytes).code() < 0);
        assert_eq!(gateway.last()["tool"], nasty);
        drop(gateway);
        // And what somebody else has put there, who need not write as the gateway does.
        let file = folder.path().join("audit.jsonl");
        let quoted: String = Value::from(nasty).to_string();
        let record = format!(
            r#"{{"event":"exchange","time":{quoted},"principal":{quoted},"scheme":"apiKey","server":"up",
                "resource":{quoted},"decision":"allow","rule":{quoted},"outcome":{quoted},"peer":{quoted}}}"#
        );
        append(&file, (record.replace('\n', " ") + "\n").as_bytes());
        for format in ["human", "json", "jsonl", "csv", "ocsf"] {
            for verb in [&["query"][..], &["export"], &["tail", "-n", "100"]] {
                let said = run(&[&["audit"], verb, &["--format", format]].concat(), &[&file]);
                let (out, err) = (String::from_utf8(said.stdout), String::from_utf8(said.stderr));
                let (out, err) = (out.unwrap(), err.unwrap());
                assert!(is_inert(&out) && is_inert(&err), "{verb:?} {format}: {out:?} {err:?}");
                assert!(out.contains("owned"), "{verb:?} {format}: {out}");
            }
        }
        let table = run(&["audit", "export", "--format", "csv"], &[&file]).stdout;
        let table = String::from_utf8(table).unwrap();
        assert!(table.lines().all(|line| line.matches(',').count() >= 15), "{table}");
        let open = config.clone().policy(
            "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], resources: ['*']}",
        );
        let log = file.display().to_string();
        for format in ["human", "json"] {
            let tried = open.tried(&["policy", "simulate", "--format", format, "--against", &log]);
            let out = String::from_utf8(tried.stdout).unwrap();
            assert!(out.contains("owned") && is_inert(&out), "{format}: {out:?}");
            let arguments = ["policy", "explain", "--principal", "ana", "--server", "up"];
            let more = ["--tool", nasty, "--format", format];
            let tried = open.tried(&[&arguments[..], &more].concat());
            let said = String::from_utf8(tried.stdout).unwrap()
                + &String::from_utf8(tried.stderr).unwrap();
            assert!(is_inert(&said), "{format}: {said:?}");
        }
        // What is wrong with a log is told in its own words too.
        let verified = run(&["audit", "verify"], &[&file]);
        assert!(is_inert(&String::from_utf8(verified.stderr).unwrap()));
    }
}

/// What is wrong with events by the schema of OCSF.
pub(crate) fn misfits(events: &[u8]) -> String {
    let mut command = Command::new("python3");
    command.arg(root().join("tests/audit/ocsf.py"));
    let output = e2e::gateway::fed(command, std::str::from_utf8(events).unwrap());
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    said
}

#[test]
fn events_of_ocsf_are_what_its_schema_says() {
    for era in ERAS {
        let server = Server::echo(era, &["echo", "other"]);
        let mut config = Config::of(&server.url()).policy(
            "rules:\n- {id: one, effect: allow, principals: ['group:dev'], servers: [up], tools: [echo]}",
        );
        config.pins = "{mode: audit}".to_owned();
        let folder = Folder::new();
        let token = folder.path().join("token");
        fs::write(&token, "operator-secret").unwrap();
        config.ops =
            format!("{{address: '127.0.0.1:0', token: {{fromFile: '{}'}}}}", token.display());
        let gateway = config.start();
        let headers = [("host", "localhost"), ("authorization", "Bearer operator-secret")];
        let revoked = post("/revocations", &headers, r#"{"tools": ["up/none"]}"#);
        assert_eq!(raw(gateway.ops.unwrap(), &revoked).status, 200);
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["echo"]);
        let secret = json!({ "text": "ghp_0Zk3Vq8Lw5Xn2Rt7Yb4Hc9Jd6Fm1Gs0Pa2Qe" });
        assert!(ana.call("echo", &secret).json()["result"].is_object());
        assert!(ana.call("other", &json!({})).code() < 0);
        let nobody =
            Client::silent(gateway.address, "/mcp", era, &[("authorization", "Bearer pcl_wrong")]);
        assert_eq!(nobody.ask("tools/list", json!({})).status, 401);
        let events = run(&["audit", "export", "--format", "ocsf"], &[gateway.audit()]);
        let text = String::from_utf8(events.stdout.clone()).unwrap();
        for class in ["6003", "3002", "2004", "3004", "6002"] {
            assert!(text.contains(&format!("\"class_uid\":{class}")), "{class}\n{text}");
        }
        assert_eq!(misfits(&events.stdout), "");
        // Who checks would see it.
        for (from, to) in [
            ("\"severity_id\":1", "\"severity_id\":77"),
            ("\"category_uid\":6", "\"category_uid\":7"),
            ("\"severity_id\":", "\"severity\":1,\"severityId\":"),
            ("\"product\":{\"name\"", "\"product\":{\"nom\""),
        ] {
            assert_ne!(misfits(text.replace(from, to).as_bytes()), "", "{from}");
        }
    }
}

#[test]
fn a_key_that_only_a_start_names_is_unproved_and_not_broken() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let file = folder.path().join("audit.jsonl");
    // Without a configured key each start makes its own.
    let mut config = Config::of(&server.url());
    config.audit = Some(file.clone());
    session(&config, 2);
    session(&config, 1);
    let key = |start: &str| {
        let (_, rest) = start.split_once(r#""key":""#).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let keys: Vec<_> = starts(&file).iter().map(|start| key(start)).collect();
    let [first, second] = &keys[..] else { panic!("{keys:?}") };
    let verify = |more: &[&str]| {
        let output = run(&[&["audit", "verify"], more].concat(), &[&file]);
        let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
        (output.status.code(), said.concat())
    };
    let (code, said) = verify(&["--key", first]);
    assert_eq!(code, Some(8), "{said}");
    assert!(said.contains("not proved: ") && !said.contains("broken"), "{said}");
    assert!(said.contains("audit.checkpoints.key") && said.contains(&**second), "{said}");
    assert!(!verified(&["--key", first], &[&file]).0);
    let (code, said) = verify(&["--key", first, "--key", second]);
    assert!(code == Some(0) && said.contains("whole: "), "{said}");
    // What is broken is said to be, whoever has signed it.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"status\":200", "\"status\":201", 1)).unwrap();
    let (code, said) = verify(&["--key", first]);
    assert!(code == Some(8) && said.contains("broken: "), "{said}");
}

#[test]
fn a_log_whose_end_is_open_is_not_called_whole() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, key) = signed(&server, &folder);
    session(&config, 3);
    let file = folder.path().join("audit.jsonl");
    let verify = || {
        let output = run(&["audit", "verify", "--key", &key], &[&file]);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, said) = verify();
    assert!(code == Some(0) && said.starts_with("whole: "), "{said}");
    let (whole, report) = verified(&["--key", &key], &[&file]);
    assert!(whole && report["stopped"] == true, "{report}");
    // The stop and the checkpoint over it.
    let text = fs::read_to_string(&file).unwrap();
    let mut lines: Vec<_> = text.split_inclusive('\n').collect();
    lines.truncate(lines.len() - 2);
    fs::write(&file, lines.concat()).unwrap();
    let (code, said) = verify();
    assert!(code == Some(0) && said.starts_with("unbroken, with an open end: "), "{said}");
    assert_eq!(verified(&["--key", &key], &[&file]).1["stopped"], false);
    // One that is taken out of the middle is told as one.
    let lacking = folder.path().join("lacking.jsonl");
    lines.remove(2);
    fs::write(&lacking, lines.concat()).unwrap();
    let (whole, report) = verified(&["--key", &key], &[&lacking]);
    let what = report["problems"][0]["what"].as_str().unwrap();
    assert!(!whole && what == "the record before it is missing", "{what}");
    let checkpoints = folder.path().join("checkpoints").display().to_string();
    let (whole, report) = verified(&["--key", &key, "--checkpoint", &checkpoints], &[&file]);
    assert!(
        !whole && report["problems"][0]["what"].as_str().unwrap().contains("cut off"),
        "{report}"
    );
}

#[test]
fn a_verification_of_an_open_end_without_checkpoints_from_elsewhere_says_that_it_proves_no_end() {
    let server = Server::echo(Era::Modern, &["read"]);
    let folder = Folder::new();
    let (config, key) = signed(&server, &folder);
    let file = folder.path().join("audit.jsonl");
    session(&config, 3);
    // Those of the first session agree with whatever is left of the second one.
    let kept = folder.path().join("kept");
    fs::copy(folder.path().join("checkpoints"), &kept).unwrap();
    let kept = kept.display().to_string();
    session(&config, 3);
    let verify = |more: &[&str]| {
        let output = run(&[&["audit", "verify", "--key", &*key], more].concat(), &[&file]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        printed(&output)
    };
    let note = "nobody can tell whether the end was cut off";
    let said = verify(&[]);
    assert!(said.contains("whole: ") && !said.contains(note), "{said}");
    let text = fs::read_to_string(&file).unwrap();
    let mut lines: Vec<_> = text.split_inclusive('\n').collect();
    lines.truncate(lines.len() - 2);
    fs::write(&file, lines.concat()).unwrap();
    let said = verify(&[]);
    assert!(said.contains("unbroken, with an open end: ") && said.contains(note), "{said}");
    assert!(!said.contains(" 0 checkpoints"), "{said}");
    let said = verify(&["--checkpoint", &kept]);
    assert!(said.contains("unbroken, with an open end: ") && !said.contains(note), "{said}");
}
