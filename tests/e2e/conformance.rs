//! The official conformance suite, through the gateway and without it, which must come to the same.
//! `docs/conformance.md` is written from what comes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use e2e::gateway::{Gateway, binary, example, root};
use e2e::golden;
use serde_json::Value;

use crate::peers::{Http, peers};

/// The scenarios for one revision and one side.
struct Suite {
    spec: &'static str,
    /// The server that each run is compared with; `None`: the suite is the server.
    direct: Option<&'static str>,
    runs: &'static [Run],
}

/// The gateway as `config` makes it, in front of `server`.
struct Run {
    config: &'static str,
    server: &'static str,
    /// How many scenarios pass, of how many.
    passed: (usize, usize),
    lost: &'static [Loss],
}

/// Scenarios that pass directly and cannot pass here, and why.
type Loss = (&'static [&'static str], &'static str);

const fn run(
    config: &'static str,
    server: &'static str,
    passed: (usize, usize),
    lost: &'static [Loss],
) -> Run {
    Run { config, server, passed, lost }
}

const SUITES: [Suite; 5] = [
    Suite {
        spec: "2025-11-25",
        direct: Some("py2"),
        runs: &[
            run("transparent", "py2", (33, 33), &[]),
            run("hardened", "py2", (33, 33), &[]),
            run("transparent", "py2-modern", (27, 33), LEGACY_TO_MODERN),
        ],
    },
    Suite {
        spec: "2025-11-25",
        direct: Some("py1"),
        runs: &[run("transparent", "py1", (32, 33), &[]), run("hardened", "py1", (32, 33), &[])],
    },
    Suite {
        spec: "2025-11-25",
        direct: None,
        runs: &[run("transparent", "the suite", (5, 5), &[])],
    },
    Suite {
        spec: "2026-07-28",
        direct: Some("py2"),
        runs: &[
            run("transparent", "py2", (40, 40), &[]),
            run("hardened", "py2", (40, 40), &[]),
            run("transparent", "py2-legacy", (27, 40), MODERN_TO_LEGACY),
            run("transparent", "py1", (24, 40), MODERN_TO_PY1),
        ],
    },
    Suite {
        spec: "2026-07-28",
        direct: None,
        runs: &[run("transparent", "the suite", (8, 8), &[])],
    },
];

const LEGACY_TO_MODERN: &[Loss] = &[
    (
        &[
            "elicitation-sep1034-defaults",
            "elicitation-sep1330-enums",
            "tools-call-elicitation",
            "tools-call-sampling",
        ],
        "The tools of this server ask by a request to the client in mid-call, which its SDK refuses to send in \
         2026-07-28: nothing is asked. What a modern server asks in the way of its era does reach a legacy client.",
    ),
    (
        &["server-sse-multiple-streams"],
        "All three calls are answered, but as JSON, as the server does in 2026-07-28: the suite has no stream to \
         look at.",
    ),
    (
        &["server-sse-polling"],
        "In 2026-07-28 a server cannot end a stream and go on in another. The answer comes in the first.",
    ),
];

/// What a tool asks for by its own result, and not by way of the SDK.
const INPUT_REQUIRED: &[&str] = &[
    "input-required-result-basic-elicitation",
    "input-required-result-basic-list-roots",
    "input-required-result-basic-sampling",
    "input-required-result-capability-check",
    "input-required-result-ignore-extra-params",
    "input-required-result-missing-input-response",
    "input-required-result-multi-round",
    "input-required-result-multiple-input-requests",
    "input-required-result-non-tool-request",
    "input-required-result-request-state",
    "input-required-result-result-type",
    "input-required-result-tampered-state",
];

const MODERN_TO_LEGACY: &[Loss] = &[
    (
        INPUT_REQUIRED,
        "The tools and the prompt of this server ask by a result of 2026-07-28, which its SDK refuses to send in a \
         legacy session. What a legacy server asks in the way of its era does reach a modern client.",
    ),
    (
        &["server-stateless"],
        "In a legacy session this server does not say that its lists change, so the suite skips the two checks that \
         need it.",
    ),
];

const MODERN_TO_PY1: &[Loss] = &[
    (INPUT_REQUIRED, "This server does not have the tools and the prompt."),
    (&["http-custom-header-server-validation"], "This server has no tool with `x-mcp-header`."),
    (
        &["json-schema-2020-12"],
        "This server does not have the tool; the legacy suite misses it too.",
    ),
    (
        &["sep-2164-resource-not-found"],
        "This server's SDK has the code 0 and no URI for a resource that does not exist. The error is the server's.",
    ),
    (
        &["server-stateless"],
        "This server does not have the tools that four of the checks are made with, does not say that its \
         lists change, and its SDK answers a method that does not exist with -32602.",
    ),
];

#[expect(clippy::disallowed_methods, reason = "the report of our own script, and our own file")]
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// What `run.py` found, a scenario by its name: of each URL, or of the one command.
fn report(arguments: &[String]) -> Vec<Value> {
    let mut command = Command::new(peers().join("py2/bin/python"));
    let output =
        command.arg(root().join("tests/conformance/run.py")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(parsed).collect()
}

/// The everything-server: `py1`, `py2`, or `py2` in one era only.
fn everything(name: &str) -> Http {
    let (sdk, era) = name.split_once('-').unwrap_or((name, ""));
    let mut command = Command::new(peers().join(sdk).join("bin/python"));
    let paths = [peers().join("conformance").join(sdk), root().join("tests/sdk/compat")];
    command.env("PYTHONPATH", std::env::join_paths(paths).unwrap());
    Http::start(|port| {
        if era.is_empty() {
            command.args(["-m", "mcp_everything_server", "--log-level", "ERROR", "--port", port]);
        } else {
            command.arg(root().join("tests/conformance/server_py2.py")).args([port, era]);
        }
        command
    })
}

fn gateway(config: &str, server: &Http) -> Gateway {
    let (folder, file) = example(&format!("{config}.yaml"));
    let audit = folder.path().join("audit.jsonl");
    let mut command = Command::new(binary());
    command.args(["run", "-c"]).arg(file);
    let upstream = format!("http://127.0.0.1:{}/mcp", server.1);
    command.env("LISTEN", "127.0.0.1:0").env("UPSTREAM", upstream);
    command.env("TRUST_ON_FIRST_USE", "true");
    Gateway::spawn_without_ops(command, folder, audit)
}

fn url(port: u16) -> String {
    format!("http://localhost:{port}/mcp")
}

impl Suite {
    /// What came of each run.
    fn play(&self) -> Vec<Value> {
        let Some(direct) = self.direct else {
            return self.runs.iter().flat_map(|run| self.serve(run)).collect();
        };
        let names: BTreeSet<_> = self.runs.iter().map(|run| run.server).chain([direct]).collect();
        let servers: BTreeMap<_, _> =
            names.into_iter().map(|name| (name, everything(name))).collect();
        let gateways: Vec<_> =
            self.runs.iter().map(|run| gateway(run.config, &servers[run.server])).collect();
        let direct = url(servers[direct].1);
        let mut arguments =
            Vec::from(["server", "--spec", self.spec, "--direct", &direct].map(str::to_owned));
        for gateway in &gateways {
            arguments.extend(["--url".to_owned(), url(gateway.address.port())]);
        }
        report(&arguments)
    }

    /// The suite as the server, the SDK's client in front of the gateway.
    fn serve(&self, run: &Run) -> Vec<Value> {
        let command = format!(
            "cp '{}/{}.yaml' gateway.yaml && exec env TRUST_ON_FIRST_USE=true LISTEN=127.0.0.1:{{port}} \
             UPSTREAM={{upstream}} '{}' run -c gateway.yaml",
            root().join("config/examples").display(),
            run.config,
            binary().display()
        );
        report(&["client", "--spec", self.spec, "--command", &command].map(str::to_owned))
    }
}

#[test]
fn the_suite_sees_through_the_gateway_what_it_sees_without() {
    // Two at a time.
    let played: Vec<_> = std::thread::scope(|scope| {
        let threads = ["2025-11-25", "2026-07-28"].map(|spec| {
            let suites = SUITES.iter().filter(move |suite| suite.spec == spec);
            scope.spawn(|| suites.map(|suite| (suite, suite.play())).collect::<Vec<_>>())
        });
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut wrong = Vec::new();
    for (suite, reports) in &played {
        assert_eq!(reports.len(), suite.runs.len());
        for (run, report) in suite.runs.iter().zip(reports) {
            let what = format!("{} {} {}", suite.spec, run.config, run.server);
            for (name, score) in report.as_object().unwrap() {
                let can = score["direct"] == true && run.loss(name).is_none();
                if score["passed"] != can {
                    wrong.push(format!("{what}: {name}: {score}"));
                }
            }
            if passed(report) != run.passed {
                wrong.push(format!("{what}: {:?}, not {:?}", passed(report), run.passed));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let text = page(&played);
    golden::compare([(&*root().join("docs/conformance.md"), &*text)]);
}

impl Run {
    /// Which of its losses the scenario is part of, from one.
    fn loss(&self, scenario: &str) -> Option<usize> {
        Some(self.lost.iter().position(|(names, _)| names.contains(&scenario))? + 1)
    }
}

fn passed(report: &Value) -> (usize, usize) {
    let scores = report.as_object().unwrap();
    (scores.values().filter(|score| score["passed"] == true).count(), scores.len())
}

/// The page.
fn page(played: &[(&Suite, Vec<Value>)]) -> String {
    let package = fs::read_to_string(root().join("tests/conformance/package.json")).unwrap();
    let version = &parsed(&package)["dependencies"]["@modelcontextprotocol/conformance"];
    let mut text = format!(
        "# Conformance\n\n\
        This page has the results of the official suite, `@modelcontextprotocol/conformance` {}, through the gateway. The\n\
        test `the_suite_sees_through_the_gateway_what_it_sees_without` writes the page, and fails when it is out of date.\n\n\
        The suite's own results are too lenient for a proxy: several scenarios pass for a server that does not answer. So\n\
        each scenario is also run without the gateway. It passes only if no check fails **and** every check that succeeds\n\
        directly succeeds as often through the gateway. *Checks* is the number of these.\n\n\
        `transparent` and `hardened` are the examples in `config/examples`. `py2` is the everything-server of the\n\
        Python SDK `mcp` 2.3, which speaks both eras, `py2-modern` and `py2-legacy` are the same server refusing the\n\
        other era, and `py1` is that of `mcp` 1.30, which is legacy. For the client scenarios the suite is the server\n\
        and the conformance client of `mcp` 2.3 is in front of the gateway.\n\n\
        The suite cannot send a key, and checks little of the contents of an answer, so it is a minimum;\n\
        `compatibility.md` shows more. Its client scenarios under `auth/` are not run: in them the server asks the client\n\
        for a token, and the gateway passes no token on.\n",
        version.as_str().unwrap()
    );
    for (suite, reports) in played {
        let what = match suite.direct {
            Some(direct) => format!("server scenarios, compared with {direct} directly"),
            None => "client scenarios".to_owned(),
        };
        write!(text, "\n## {}, {what}\n\n| Scenario | Checks |", suite.spec).unwrap();
        for run in suite.runs {
            write!(text, " {}, {} |", run.config, run.server).unwrap();
        }
        writeln!(text, "\n|---|---|{}", "---|".repeat(suite.runs.len())).unwrap();
        for (name, score) in reports[0].as_object().unwrap() {
            write!(text, "| {name} | {} |", score["checks"]).unwrap();
            for (run, report) in suite.runs.iter().zip(reports) {
                match (report[name]["direct"] == true, run.loss(name)) {
                    (false, _) => write!(text, " nor directly |").unwrap(),
                    (true, Some(loss)) => write!(text, " no ({loss}) |").unwrap(),
                    (true, None) => write!(text, " passes |").unwrap(),
                }
            }
            text.push('\n');
        }
        write!(text, "| **passed** | |").unwrap();
        for report in reports {
            let (passed, all) = passed(report);
            write!(text, " **{passed} of {all}** |").unwrap();
        }
        text.push('\n');
        for run in suite.runs.iter().filter(|run| !run.lost.is_empty()) {
            writeln!(text, "\nNot with {}, {}:\n", run.config, run.server).unwrap();
            for (n, (_, why)) in run.lost.iter().enumerate() {
                writeln!(text, "{}. {why}", n + 1).unwrap();
            }
        }
    }
    text
}
