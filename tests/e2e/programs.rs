//! Programs behind the gateway: whom they can ask, how many one caller has, what they put into the log,
//! and what ends them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use e2e::client::{Client, raw, until};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway, binary, root};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::peers::peers;

const OPEN: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

/// A server that has a process for each session and asks its clients something.
fn asker(limits: &str) -> Config {
    let script = root().join("tests/sdk/asker.py");
    let servers = format!(
        "- {{name: up, command: python3, args: ['{}'], sharing: perSession, protocol: legacy, serverRequests: {{formElicitation: {{secrets: allow}}}}}}",
        script.display()
    );
    Config::with(&servers, "[up]").policy(OPEN).limits(limits)
}

fn able(gateway: &Gateway, era: Era, key: &str) -> Client {
    Client::able(gateway.address, "/mcp", era, Some(key), &json!({ "elicitation": {} }))
}

fn arguments(who: &str, folder: &Folder) -> Value {
    json!({ "who": who, "folder": folder.path() })
}

fn waits(who: &str, folder: &Folder) {
    let file = folder.path().join(format!("{who}.waits"));
    eventually("the call waits at the server", || file.exists().then_some(()));
}

fn go(who: &str, folder: &Folder) {
    fs::write(folder.path().join(format!("{who}.go")), "").unwrap();
}

#[test]
fn a_question_of_a_program_never_reaches_the_call_of_another_person_behind_the_same_key() {
    let folder = Folder::new();
    let gateway = asker("inputTimeout: 20s").start();
    // Two people with one key, and no session that could tell them apart.
    let (one, two) = (able(&gateway, Era::Modern, ANA), able(&gateway, Era::Modern, ANA));
    let first = arguments("one", &folder);
    let one = thread::spawn(move || one.call("ask", &first).json());
    waits("one", &folder);
    let second = arguments("two", &folder);
    let two = thread::spawn(move || two.call("ask", &second).json());
    waits("two", &folder);
    go("one", &folder);
    // The server is told that it cannot ask, and says so in the answer of the call that it asked for.
    let answer = one.join().unwrap();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("one: ") && text.contains("-32601"), "{answer}");
    // Alone, the other is asked, and what it is asked is its own.
    go("two", &folder);
    let answer = two.join().unwrap();
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    let asked = answer["result"]["inputRequests"].to_string();
    assert!(asked.contains("the PIN of two") && !asked.contains("the PIN of one"), "{asked}");
}

#[test]
fn clients_with_sessions_are_each_asked_their_own_question_at_the_same_time() {
    let folder = Folder::new();
    let gateway = asker("inputTimeout: 20s").start();
    let clients = ["one", "two"].map(|who| (who, able(&gateway, Era::Legacy, ANA)));
    let streams = clients.each_ref().map(|(who, client)| {
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        let params = json!({ "name": "ask", "arguments": arguments(who, &folder) });
        stream.write_all(&client.call_bytes(&json!(1), &params)).unwrap();
        waits(who, &folder);
        stream
    });
    for (who, _) in &clients {
        go(who, &folder);
    }
    for ((who, _), mut stream) in clients.iter().zip(streams) {
        let seen = until(&mut stream, &format!("the PIN of {who}"));
        let other = if *who == "one" { "two" } else { "one" };
        assert!(!seen.contains(&format!("the PIN of {other}")), "{seen}");
    }
}

#[test]
fn one_caller_does_not_take_the_processes_of_others() {
    let exe = binary();
    let servers = format!(
        "- {{name: up, command: '{}', args: [canary], sharing: perSession}}",
        exe.display()
    );
    for era in ERAS {
        let config = Config::with(&servers, "[up]").policy(OPEN);
        let gateway = config.limits("processes: 3\nprocessesPerCaller: 2").start();
        let echo = |client: &Client, text: &str| {
            let answer = client.call("echo", &json!({ "text": text })).json();
            assert_eq!(answer["result"]["content"][0]["text"], text, "{era:?} {answer}");
        };
        // Each of these has a process of its own; the third takes the place of the first.
        let able =
            [json!({ "roots": {} }), json!({ "sampling": {} }), json!({ "elicitation": {} })];
        let clients = able.each_ref().map(|able| {
            let client = Client::able(gateway.address, "/mcp", era, Some(ANA), able);
            echo(&client, "mine");
            client
        });
        echo(&clients[2], "still mine");
        // The first has ended.
        processes(&gateway, 3);
        // Somebody else has room.
        let bob = gateway.client(era, BOB);
        echo(&bob, "another's");
        // What one caller opens next ends a process of its own, also where another's was used least lately.
        echo(&clients[1], "still mine");
        echo(&clients[2], "still mine");
        let more = json!({ "roots": {}, "sampling": {} });
        echo(&Client::able(gateway.address, "/mcp", era, Some(ANA), &more), "one more");
        echo(&bob, "still another's");
        if era == Era::Modern {
            // A client without sessions does not notice.
            echo(&clients[0], "again");
        }
    }
}

#[test]
fn callers_that_have_every_process_and_do_not_use_them_make_room_for_others() {
    let exe = binary();
    let servers = format!(
        "- {{name: up, command: '{}', args: [canary], sharing: perSession}}",
        exe.display()
    );
    for era in ERAS {
        let config = Config::with(&servers, "[up]").policy(OPEN);
        let gateway = config.limits("processes: 2\nprocessesPerCaller: 2").start();
        let echo = |client: &Client, text: &str| {
            let answer = client.call("echo", &json!({ "text": text })).json();
            assert_eq!(answer["result"]["content"][0]["text"], text, "{era:?} {answer}");
        };
        let able = |key: &str, able: Value| {
            let client = Client::able(gateway.address, "/mcp", era, Some(key), &able);
            echo(&client, key);
        };
        able(ANA, json!({ "roots": {} }));
        able(ANA, json!({ "sampling": {} }));
        // Both of hers, and the one that everybody shares.
        let first = eventually("her processes are there", || {
            Some(gateway.children()).filter(|children| children.len() == 3)
        });
        able(BOB, json!({ "roots": {} }));
        let left: Vec<_> = eventually("one of hers has ended", || {
            let now = gateway.children();
            let left: Vec<_> = first.iter().filter(|id| now.contains(id)).copied().collect();
            (left.len() == 2).then_some(left)
        });
        // Now he has as many as she has: his next one takes the place of his own.
        able(BOB, json!({ "sampling": {} }));
        let now = eventually("one of his has ended", || {
            let now = gateway.children();
            (now.len() == 3).then_some(now)
        });
        assert!(left.iter().all(|id| now.contains(id)), "{era:?}: {left:?} {now:?}");
    }
}

#[test]
fn a_process_that_is_in_use_makes_no_room_for_others() {
    let folder = Folder::new();
    let gateway = asker("processes: 1\nprocessesPerCaller: 1\ninputTimeout: 20s").start();
    let first = able(&gateway, Era::Modern, ANA);
    let busy = arguments("one", &folder);
    let first = thread::spawn(move || first.call("ask", &busy).json());
    waits("one", &folder);
    let other = able(&gateway, Era::Modern, BOB);
    let refused = other.call("ask", &arguments("two", &folder));
    assert!(refused.json()["error"].is_object(), "{}", refused.body);
    let record =
        gateway.recorded("the refusal", |record| record["reason"] == "upstream-session-limit");
    assert_eq!(record["principal"], "bob");
    go("one", &folder);
    let answer = first.join().unwrap();
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
}

#[test]
fn a_caller_whose_processes_are_all_in_use_is_refused_and_others_are_not() {
    let folder = Folder::new();
    let gateway = asker("processes: 3\nprocessesPerCaller: 1\ninputTimeout: 20s").start();
    let first = able(&gateway, Era::Modern, ANA);
    let busy = arguments("one", &folder);
    let first = thread::spawn(move || first.call("ask", &busy).status);
    waits("one", &folder);
    let more =
        Client::able(gateway.address, "/mcp", Era::Modern, Some(ANA), &json!({ "roots": {} }));
    let refused = more.call("ask", &arguments("three", &folder));
    assert!(refused.json()["error"].is_object(), "{}", refused.body);
    let record =
        gateway.recorded("the refusal", |record| record["reason"] == "upstream-session-limit");
    assert_eq!(record["principal"], "ana");
    let other = able(&gateway, Era::Modern, BOB);
    let mine = arguments("two", &folder);
    let other = thread::spawn(move || other.call("ask", &mine).status);
    waits("two", &folder);
    go("one", &folder);
    go("two", &folder);
    assert_eq!((first.join().unwrap(), other.join().unwrap()), (200, 200));
}

/// A server of an SDK that speaks both eras, and what it may ask.
fn dual(more: &str) -> Config {
    let (python, script) = (peers().join("py2/bin/python"), root().join("tests/sdk/dual.py"));
    let servers = format!(
        "- {{name: up, command: '{}', args: ['{}'], serverRequests: {{formElicitation: {{}}}}{more}}}",
        python.display(),
        script.display()
    );
    Config::with(&servers, "[up]").policy(OPEN)
}

/// The id under which the client is asked for a word, once it is.
#[expect(clippy::disallowed_methods, reason = "the gateway's output, not a peer's")]
fn question(stream: &mut TcpStream) -> Value {
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let data = seen.lines().filter_map(|line| line.strip_prefix("data: "));
        let asked = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let asked = asked.into_iter().find(|asked| asked["params"]["message"] == "which word?");
        if let Some(asked) = asked {
            return asked["id"].clone();
        }
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "closed after {seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

fn call(client: &Client) -> TcpStream {
    let mut stream = TcpStream::connect(client.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream.write_all(&client.call_bytes(&json!(1), &json!({ "name": "ask" }))).unwrap();
    stream
}

fn answer(client: &Client, id: &Value, word: &str) {
    let result = json!({ "action": "accept", "content": { "word": word } });
    let body = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    assert_eq!(raw(client.address, &client.bytes("", None, &body)).status, 202);
}

#[test]
fn a_program_that_speaks_both_eras_asks_legacy_clients_in_their_own_era() {
    for more in ["", ", sharing: perSession"] {
        let folder = Folder::new();
        let gateway = dual(more).approved(&folder.path().join("lock")).start();
        // Two people with one key: each is asked in its own call.
        let clients = ["blue", "red"].map(|word| (word, able(&gateway, Era::Legacy, ANA)));
        let streams = clients.each_ref().map(|(_, client)| {
            assert_eq!(client.tools(), ["ask"]);
            call(client)
        });
        // What the program says of itself in that era was approved as well.
        let hello = clients[0].1.hello().json();
        assert_eq!(hello["result"]["instructions"], "Ask for a word.", "{hello}");
        for ((word, client), mut stream) in clients.iter().zip(streams).rev() {
            let id = question(&mut stream);
            answer(client, &id, word);
            until(&mut stream, &format!("accept: {word}"));
        }
        // A modern client is spoken for in its own era at the same time.
        assert_eq!(able(&gateway, Era::Modern, ANA).tools(), ["ask"]);
        eventually("the log says in which era it was reached", || {
            let told = |line: &str| line.contains("server reached") && line.contains("modern");
            gateway.said().lines().any(told).then_some(())
        });
    }
}

/// Waits until so many programs run: one may just begin, or end.
fn processes(gateway: &Gateway, count: usize) {
    let what = format!("{count} processes");
    eventually(&what, || (gateway.children().len() == count).then_some(()));
}

#[test]
fn only_a_session_that_can_be_asked_has_a_process_of_its_own() {
    let gateway = dual("").start();
    assert_eq!(gateway.client(Era::Modern, ANA).tools(), ["ask"]);
    assert_eq!(gateway.client(Era::Legacy, ANA).tools(), ["ask"]);
    let roots = json!({ "roots": {} });
    let roots = Client::able(gateway.address, "/mcp", Era::Legacy, Some(ANA), &roots);
    assert_eq!(roots.tools(), ["ask"]);
    // Nobody here can be asked for a form.
    processes(&gateway, 1);
    let client = able(&gateway, Era::Legacy, ANA);
    assert_eq!(client.tools(), ["ask"]);
    processes(&gateway, 2);
    // Where it is said that all share one, they do, and nobody is asked.
    let gateway = dual(", sharing: shared").start();
    let client = able(&gateway, Era::Legacy, ANA);
    let refused = client.call("ask", &json!({})).json();
    assert!(!refused.to_string().contains("accept"), "{refused}");
    processes(&gateway, 1);
}

#[test]
fn a_legacy_client_of_a_program_that_speaks_the_modern_era_alone_is_spoken_for_in_that() {
    for more in ["", ", sharing: perSession"] {
        let script = root().join("tests/sdk/modern_alone.py");
        let servers = format!(
            "- {{name: up, command: python3, args: ['{}'], serverRequests: {{formElicitation: {{}}}}{more}}}",
            script.display()
        );
        let gateway = Config::with(&servers, "[up]").policy(OPEN).start();
        for _ in 0..2 {
            let client = able(&gateway, Era::Legacy, ANA);
            assert_eq!(client.tools(), ["echo"]);
            let answer = client.call("echo", &json!({ "text": "x" })).json();
            assert_eq!(answer["result"]["content"][0]["text"], "x", "{more} {answer}");
        }
    }
}

pub(crate) fn program(script: &str, more: &str) -> Config {
    let script = script.replace("CANARY", &format!("exec {} canary", binary().display()));
    let script = serde_json::to_string(&script).unwrap();
    let servers = format!("- {{name: up, command: sh, args: [-c, {script}]{more}}}");
    Config::with(&servers, "[up]").policy(OPEN)
}

#[test]
fn a_program_cannot_flood_the_log_nor_write_secrets_into_it() {
    let token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    let script = format!(
        "echo \"given $KEY\" >&2; yes 'my token is {token} \u{1b}[31m' | head -n 5000 >&2; \
         yes '{{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{{}}}}' | head -n 5000; CANARY"
    );
    for era in ERAS {
        let env = ", env: [{name: KEY, value: swordfish-and-more}]";
        let gateway = program(&script, env).start();
        let ana = gateway.client(era, ANA);
        // It is read all the same, so it goes on and answers.
        let answer = ana.call("echo", &json!({ "text": "x" })).json();
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
        let suppressed = eventually("it is counted", || {
            let metrics = gateway.metrics_now();
            let line = "portcullis_upstream_log_suppressed_total{server=\"up\"} ";
            let count = metrics.lines().find_map(|known| known.strip_prefix(line))?;
            count.parse::<u64>().ok().filter(|count| *count > 9000)
        });
        let log = gateway.says("REDACTED");
        let said = log.lines().filter(|line| line.contains("program output")).count();
        let stray = log.lines().filter(|line| line.contains("server.stray_response")).count();
        assert!((1..1000).contains(&(said + stray)), "{said} {stray} {suppressed}");
        assert!(!log.contains(token) && !log.contains("swordfish"), "a secret is in the log");
        assert!(!log.contains('\u{1b}'));
    }
}

/// Each end of a question that was given up: a program that is slow to start answers it late.
#[test]
fn the_late_answer_of_a_program_that_is_slow_to_start_is_no_fault() {
    let gateway = program("sleep 4; CANARY", "").limits("responseTimeout: 20s").start();
    for era in ERAS {
        let answer = gateway.client(era, ANA).call("echo", &json!({ "text": "x" })).json();
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
    }
    let log = gateway.said();
    assert!(!log.contains("server.stray_response"), "{log}");
}

#[test]
fn many_programs_that_start_together_leave_no_answer_to_nobody() {
    let names: Vec<_> = (0..32).map(|n| format!("s{n}")).collect();
    let server = |(n, name): (usize, &String)| {
        let script = format!("sleep {}; exec {} canary", n % 5, binary().display());
        format!("- {{name: {name}, command: sh, args: [-c, '{script}']}}\n")
    };
    let servers: String = names.iter().enumerate().map(server).collect();
    let config = Config::with(servers.trim_end(), &format!("[{}]", names.join(", ")));
    let gateway = config.policy(OPEN).limits("listTimeout: 40s\nresponseTimeout: 40s").start();
    let clients = ERAS.map(|era| gateway.client(era, ANA));
    let lists = clients.map(|client| thread::spawn(move || client.ask("tools/list", json!({}))));
    for list in lists {
        let list = list.join().unwrap();
        let tools = list.listed("tools", "name");
        for name in &names {
            assert!(tools.contains(&format!("{name}__echo")), "{name}: {tools:?}");
        }
        assert!(!list.body.contains("dev.portcullis/partial"), "{}", list.body);
    }
    let log = gateway.said();
    assert!(!log.contains("server.stray_response"), "{log}");
}

/// Programs that are installed when they are started take longer than a legacy one is given to say nothing.
#[test]
fn a_program_that_is_slow_to_start_is_spoken_to_in_the_modern_era_wherever_it_is_known_to_speak_it()
{
    for more in [", protocol: modern", ", sharing: perSession"] {
        let mut config = dual(more);
        let begun = "command: sh, args: ['-c', 'sleep 3.5; exec \"$0\" \"$1\"', ";
        config.servers = config.servers.replace("command: ", begun).replace("', args: ['", "', '");
        let gateway = config.start();
        for era in ERAS {
            assert_eq!(able(&gateway, era, ANA).tools(), ["ask"], "{more} {era:?}");
        }
    }
}

/// Whether a process is there and has not ended.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
fn a_survey_that_is_interrupted_leaves_no_program_behind() {
    let folder = Folder::new();
    // Beside the configuration a program can make no files.
    let work = folder.path().join("work");
    fs::create_dir(&work).unwrap();
    let pid = work.join("pid");
    // It never answers, it does not end when it is asked to, and it has started another.
    let script = format!(
        "trap '' TERM INT; sleep 600 & echo $! > {0}.next; mv {0}.next {0}; while :; do wait; done",
        pid.display()
    );
    let config = program(&script, "");
    let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
    config.write(&file, &audit);
    for verb in [&["pin"][..], &["scan"], &["run", "--dry-run"]] {
        let mut command = Command::new(binary());
        command.args(verb).arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let mut asking = command.spawn().unwrap();
        let started = eventually("the program runs", || fs::read_to_string(&pid).ok());
        assert!(lives(started.trim()));
        let told = Command::new("kill").args(["-INT", &asking.id().to_string()]).status().unwrap();
        assert!(told.success());
        let ended = eventually("the verb ends", || asking.try_wait().unwrap());
        assert_eq!(ended.code(), Some(130), "{verb:?}");
        eventually("the program has ended", || (!lives(started.trim())).then_some(()));
        fs::remove_file(&pid).unwrap();
    }
}

#[test]
fn a_program_that_never_answers_is_given_up_in_time_and_it_is_said_what_is_waited_for() {
    let folder = Folder::new();
    let work = folder.path().join("work");
    fs::create_dir(&work).unwrap();
    let pid = work.join("pid");
    let script = format!(
        "echo $$ > {0}.next; mv {0}.next {0}; echo SAID >&2; exec sleep 600",
        pid.display()
    );
    let config = program(&script, "");
    let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
    config.write(&file, &audit);
    for verb in [&["pin"][..], &["scan"], &["pin", "verify"]] {
        let mut command = Command::new(binary());
        command.args(verb).args(["--timeout", "3s", "-c"]).arg(&file);
        let mut asking = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the verb ends", || asking.try_wait().unwrap());
        let output = asking.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{verb:?}: {said}");
        assert!(said.contains("up: starting"), "{verb:?}: {said}");
        assert!(said.contains("it did not answer within 3s"), "{verb:?}: {said}");
        // What is said there is for people.
        assert!(!said.lines().any(|line| line.starts_with('{')), "{verb:?}: {said}");
        let started = fs::read_to_string(&pid).unwrap();
        eventually("the program has ended", || (!lives(started.trim())).then_some(()));
        fs::remove_file(&pid).unwrap();
    }
}

/// The number that a process has written into `file`, which is taken away.
fn told(file: &Path) -> String {
    let pid = eventually("a process runs", || fs::read_to_string(file).ok());
    fs::remove_file(file).unwrap();
    pid
}

fn ends(pid: &str, what: &str) {
    eventually(&format!("{what}: the process has ended"), || (!lives(pid)).then_some(()));
}

/// A server that starts a process that has left its session and its parent, and the file with the number of that.
fn leaving(folder: &Folder, sandbox: &str) -> (Config, PathBuf) {
    let work = folder.path().join("work");
    fs::create_dir_all(&work).unwrap();
    let pid = work.join("pid");
    let script = root().join("tests/sdk/remaining.py");
    let script = format!("python3 '{}' '{}'; CANARY", script.display(), pid.display());
    (program(&script, sandbox), pid)
}

#[test]
fn what_a_program_has_started_ends_with_the_gateway_also_in_another_session() {
    for era in ERAS {
        for sandbox in ["", ", sandbox: {mode: required}", ", sandbox: {mode: off}"] {
            for kill in ["-TERM", "-KILL"] {
                let folder = Folder::new();
                let (config, pid) = leaving(&folder, sandbox);
                let mut gateway = config.start();
                let answer = gateway.client(era, ANA).call("echo", &json!({ "text": "x" })).json();
                assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
                let pid = told(&pid);
                assert!(lives(&pid), "a process of a program that runs is left alone");
                let id = gateway.id().to_string();
                assert!(Command::new("kill").args([kill, &id]).status().unwrap().success());
                ends(&pid, &format!("{sandbox} {kill}"));
                gateway.kill();
            }
        }
    }
}

#[test]
fn what_a_program_has_started_ends_with_the_program() {
    for era in ERAS {
        let folder = Folder::new();
        let (config, pid) = leaving(&folder, "");
        let gateway = config.start();
        let client = gateway.client(era, ANA);
        let answer = client.call("echo", &json!({ "text": "x" })).json();
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
        let first = told(&pid);
        // The program is what the process that the gateway has started has started first.
        let [supervisor] = gateway.children()[..] else { panic!("one process") };
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(children).unwrap();
        let main =
            children.split_whitespace().find(|child| **child != first && lives(child)).unwrap();
        assert!(Command::new("kill").args(["-KILL", main]).status().unwrap().success());
        ends(&first, "its program was killed");
        eventually("a new program", || {
            let answer = client.call("echo", &json!({ "text": "again" })).json();
            (answer["result"]["content"][0]["text"] == "again").then_some(())
        });
    }
}

#[test]
fn no_verb_leaves_behind_what_a_program_has_started_in_another_session() {
    for sandbox in ["", ", sandbox: {mode: required}"] {
        let folder = Folder::new();
        let (config, pid) = leaving(&folder, sandbox);
        for verb in
            [&["pin"][..], &["pin", "verify"], &["scan"], &["run", "--dry-run"], &["doctor"]]
        {
            let output = config.tried(verb);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(pid.exists(), "{verb:?} started no program: {said}");
            ends(&told(&pid), &format!("{sandbox} {verb:?}"));
        }
    }
}

#[test]
fn a_program_types_nothing_into_the_terminal_that_a_verb_was_called_at() {
    let terminal = root().join("tests/pins/terminal.py");
    let typing = root().join("tests/sdk/typing_in.py");
    for (sandbox, kept) in
        [("", true), (", sandbox: {mode: required}", true), (", sandbox: {mode: off}", false)]
    {
        let folder = Folder::new();
        let work = folder.path().join("work");
        fs::create_dir(&work).unwrap();
        let told = work.join("told");
        let script = format!("python3 '{}' '{}'; CANARY", typing.display(), told.display());
        let config = program(&script, sandbox);
        let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
        config.write(&file, &audit);
        for verb in [&["scan"][..], &["run", "--dry-run"]] {
            let mut command = Command::new("python3");
            command.arg(&terminal).arg("[]").arg(binary()).args(verb).arg("-c").arg(&file);
            let output = command.stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let text = fs::read_to_string(&told);
            let text = text.unwrap_or_else(|_| panic!("{sandbox} {verb:?}: {said}"));
            fs::remove_file(&told).unwrap();
            // Without a terminal there is nothing that `/dev/tty` stands for; a sandbox closes it before that.
            let refused = |line: &str| !line.ends_with("done");
            let own = text.lines().filter(|line| line.starts_with("/dev/tty"));
            assert_eq!(own.filter(|line| refused(line)).count(), 1, "{sandbox} {verb:?}: {text}");
            if kept {
                // Nor is another terminal of the user opened, among which is the one of the verb.
                let others = text.lines().filter(|line| line.starts_with("/dev/"));
                assert!(others.clone().count() > 1 && others.clone().all(refused), "{text}");
            }
        }
    }
}

#[test]
fn a_program_that_reads_a_secret_has_no_terminal() {
    let folder = Folder::new();
    let told = folder.path().join("told");
    let typing = root().join("tests/sdk/typing_in.py");
    let script = folder.path().join("secret");
    let text =
        format!("#!/bin/sh\npython3 '{}' '{}'\necho value\n", typing.display(), told.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let env = format!(", env: [{{name: KEY, fromCommand: ['{}']}}]", script.display());
    let config = program("CANARY", &env);
    let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
    config.write(&file, &audit);
    let mut command = Command::new("python3");
    command.arg(root().join("tests/pins/terminal.py")).arg("[]").arg(binary());
    let output = command.args(["scan", "-c"]).arg(&file).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = fs::read_to_string(&told).unwrap_or_else(|_| panic!("{said}"));
    let own: Vec<_> = text.lines().filter(|line| line.starts_with("/dev/tty")).collect();
    assert_eq!(own, ["/dev/tty open: ENXIO"], "{said}");
}

/// A user who is not privileged, if this one is.
const NOBODY: u32 = 65534;

#[test]
fn a_program_of_the_same_user_cannot_read_what_the_gateway_was_started_with() {
    let folder = Folder::new();
    let exe = folder.path().join("portcullis");
    fs::copy(binary(), &exe).unwrap();
    fs::set_permissions(&exe, fs::Permissions::from_mode(0o755)).unwrap();
    // Without a sandbox: what keeps it out is the gateway itself.
    let script = format!(
        "if cat /proc/$PPID/environ >/dev/null || cat /proc/$PPID/maps | grep -q .; then echo READ >&2; \
         else echo KEPT OUT >&2; fi; exec {} canary",
        exe.display()
    );
    let config = program(&script, ", sandbox: {mode: off}");
    let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
    config.write(&file, &audit);
    let mut command = Command::new(&exe);
    command.args(["run", "-c"]).arg(&file).env("A_SECRET", "of-the-gateway").current_dir("/");
    if is_privileged() {
        std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let gateway = Gateway::spawn(command, Folder::new(), audit);
    for era in ERAS {
        let answer = gateway.client(era, ANA).call("echo", &json!({ "text": "x" })).json();
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
    }
    let log = eventually("what it could do", || {
        let log = gateway.said();
        (log.contains("KEPT OUT") || log.contains("\"READ")).then_some(log)
    });
    assert!(log.contains("KEPT OUT") && !log.contains("of-the-gateway"), "{log}");
    // Nor is there a core file in which it would stand.
    let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().filter(|word| *word == "0").count(), 2, "{core}");
}

fn is_privileged() -> bool {
    fs::metadata(Path::new("/proc/self")).unwrap().uid() == 0
}
