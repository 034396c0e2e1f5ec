//! Incidents of the field, and what the gateway does about each: the tables of `docs/incidents.md` are generated from
//! `incident_table.json`, and every test that they name is there and is run.
//! `PORTCULLIS_BLESS=1 cargo nextest run -p e2e incident_table` writes the page.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use e2e::gateway::root;
use e2e::golden;
use serde::Deserialize;

const PAGE: &str = "docs/incidents.md";
/// The lines of the page that the tables stand between.
const BEGIN: &str = "<!-- begin: generated from tests/e2e/incident_table.json -->\n";
const END: &str = "<!-- end: generated -->\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    title: String,
    cases: Vec<Case>,
}

/// One incident, and what the gateway does about it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    date: Option<String>,
    /// Its identifiers elsewhere, such as that of a CVE.
    #[serde(default)]
    ids: Vec<String>,
    what: String,
    verdict: Verdict,
    how: String,
    /// Numbers of controls in `docs/threats.md`.
    #[serde(default)]
    controls: Vec<String>,
    /// The keys of the configuration that it needs; none: it is so by default.
    #[serde(default)]
    settings: Vec<String>,
    /// Tests as `cargo nextest` prints them: `MODULE::TEST`, unit tests behind the name of their crate and a blank.
    #[serde(default)]
    tests: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum Verdict {
    #[serde(rename = "blocked")]
    Blocked,
    #[serde(rename = "detected")]
    Detected,
    #[serde(rename = "out of reach")]
    OutOfReach,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Detected => "detected",
            Self::OutOfReach => "out of reach",
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "data of the test, not a peer's")]
fn sections() -> Vec<Section> {
    serde_json::from_str(include_str!("incident_table.json")).unwrap()
}

/// Names as code, with commas.
fn listed(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn row(case: &Case) -> String {
    let about: Vec<&str> = case.date.iter().chain(&case.ids).map(String::as_str).collect();
    let within = |text: String| if text.is_empty() { text } else { format!(" ({text})") };
    let (about, controls) = (within(about.join(", ")), within(case.controls.join(", ")));
    let needs = match case.verdict {
        Verdict::OutOfReach => "–".to_owned(),
        Verdict::Blocked | Verdict::Detected if case.settings.is_empty() => "default".to_owned(),
        Verdict::Blocked | Verdict::Detected => listed(&case.settings),
    };
    let shown = if case.tests.is_empty() { "–".to_owned() } else { listed(&case.tests) };
    let (name, what, how, verdict) = (&case.name, &case.what, &case.how, case.verdict.as_str());
    format!("| **{name}**{about} | {what} | `{verdict}` | {how}{controls} | {needs} | {shown} |\n")
}

/// What stands between the two lines of the page.
fn tables(sections: &[Section]) -> String {
    let cases: Vec<_> = sections.iter().flat_map(|section| &section.cases).collect();
    let count = |verdict: Verdict| cases.iter().filter(|case| case.verdict == verdict).count();
    let (all, blocked) = (cases.len(), count(Verdict::Blocked));
    let (detected, out) = (count(Verdict::Detected), count(Verdict::OutOfReach));
    let by_default = |case: &&&Case| case.verdict == Verdict::Blocked && case.settings.is_empty();
    let default = cases.iter().filter(by_default).count();
    let mut text = format!(
        "There are {all} cases: {blocked} `blocked`, of which {default} by default, {detected} `detected`, and {out} \
         `out of reach`.\n"
    );
    for section in sections {
        write!(
            text,
            "\n## {}\n\n| incident | what happened | the gateway | how, and by which control | needs | shown by |\n\
             |---|---|---|---|---|---|\n",
            section.title
        )
        .unwrap();
        for case in &section.cases {
            text.push_str(&row(case));
        }
    }
    text
}

#[test]
fn the_page_of_incidents_is_what_its_data_gives() {
    let file = root().join(PAGE);
    let page = fs::read_to_string(&file).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let text = format!("{before}{BEGIN}{}{END}{after}", tables(&sections()));
    golden::compare([(&*file, &*text)]);
}

/// Whether a test that is named as `cargo nextest` prints it is in the sources, and is run.
fn is_run(test: &str) -> bool {
    let (sources, path) = match test.split_once(' ') {
        Some(("policy-core", path)) => ("policy/core/src", path),
        Some(("gateway", path)) => ("gateway/src", path),
        Some(_) => return false,
        None => ("tests/e2e", test),
    };
    let Some((module, function)) = path.rsplit_once("::") else { return false };
    // Unit tests stand in a file of their own, or in that of what they test.
    let module = module.replace("::", "/");
    let files = [Some(module.as_str()), module.strip_suffix("/tests")];
    let read = |file: &str| fs::read_to_string(root().join(sources).join(format!("{file}.rs")));
    let Some(source) = files.into_iter().flatten().find_map(|file| read(file).ok()) else {
        return false;
    };
    let Some((before, _)) = source.split_once(&format!("fn {function}() {{")) else {
        return false;
    };
    // What stands before it since the last function ended.
    let own = before.rsplit("}\n").next().unwrap();
    own.contains("#[test]") && !own.contains("#[ignore")
}

#[test]
fn each_case_names_controls_settings_and_tests_that_there_are() {
    let read = |page: &str| fs::read_to_string(root().join(page)).unwrap();
    let (threats, keys) = (read("docs/threats.md"), read("docs/keys.md"));
    let mut names = BTreeSet::new();
    for case in sections().iter().flat_map(|section| &section.cases) {
        let name = &case.name;
        assert!(names.insert(name.clone()), "{name}: there are two");
        for text in [name, &case.what, &case.how] {
            assert!(!text.is_empty() && !text.contains('|'), "{name}: {text}");
        }
        if case.verdict == Verdict::OutOfReach {
            assert!(case.settings.is_empty(), "{name}: no setting brings it within reach");
        } else {
            assert!(!case.tests.is_empty(), "{name}: nothing shows it");
            assert!(!case.controls.is_empty(), "{name}: by no control");
        }
        for control in &case.controls {
            assert!(threats.contains(&format!("\n| {control} | ")), "{name}: {control}");
        }
        for setting in &case.settings {
            let key = setting.rsplit('.').next().unwrap().trim_end_matches("[]");
            assert!(keys.contains(&format!("\n| `{key}` | ")), "{name}: {setting}");
        }
        for test in &case.tests {
            assert!(is_run(test), "{name}: {test} is not there, or is not run");
        }
    }
    assert!(names.len() > 60, "{}", names.len());
}
