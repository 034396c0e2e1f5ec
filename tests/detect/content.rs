//! What is found in results: injected instructions, secrets and personal data, and how fast.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use policy::base::work::WorkBudget;
use policy::detection::content::{ContentPolicy, ContentProfile, ContentReport, Direction};
use policy::detection::inspect::Detector;
use policy::json::{Document, JsonBounds};
use policy::subject::name::ServerName;
use policy::subject::pattern::Pattern;
use serde_json::Value;

/// From this score on a text is taken to give orders.
const ONE: f32 = 1.0;
/// Detectors of secrets and personal data.
const DATA: [Detector; 3] = [Detector::Secrets, Detector::Identifiers, Detector::Contacts];

struct Row {
    row: Value,
    seen: ContentReport,
}

impl Row {
    fn key(&self, name: &str) -> String {
        self.row[name].as_str().unwrap_or("-").to_owned()
    }

    fn orders(&self) -> bool {
        self.seen.score >= ONE
    }

    fn found(&self, detectors: &[Detector]) -> bool {
        self.seen.findings.iter().any(|finding| detectors.contains(&finding.detector))
    }
}

fn read(folder: &Path, name: &str) -> Vec<Row> {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    let (contents, server) = (ContentPolicy::default(), ServerName::parse("input").unwrap());
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let value =
            if row["text"].is_string() { row["text"].clone() } else { row["frame"].clone() };
        (!value.is_null()).then(|| {
            let document = Document::parse(value.to_string().into(), &JsonBounds::ANSWER).unwrap();
            let seen = contents.look(
                &server,
                Direction::Result,
                "",
                document.root(),
                &WorkBudget::unlimited(),
            );
            Row { row, seen }
        })
    };
    text.lines().filter_map(row).collect()
}

fn share(rows: &[&Row], found: impl Fn(&Row) -> bool) -> String {
    let hit = rows.iter().filter(|row| found(row)).count();
    format!("{:5.1} % ({hit}/{})", 100.0 * hit as f64 / rows.len().max(1) as f64, rows.len())
}

fn by(title: &str, rows: &[Row], key: impl Fn(&Row) -> String, found: impl Fn(&Row) -> bool) {
    let mut groups: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        groups.entry(key(row)).or_default().push(row);
    }
    println!("\n{title}\n");
    for (name, rows) in groups {
        println!("  {name:<44} {}", share(&rows, &found));
    }
}

/// Prints what is found in each corpus.
pub(crate) fn measure(folder: &Path) {
    let injected = read(folder, "injected_outputs.jsonl");
    let ordinary = read(folder, "benign_outputs.jsonl");
    let alike = read(folder, "lookalike_benign.jsonl");
    println!("instructions in results: flagged, by threshold\n");
    let all = |rows: &[Row], stratum: &str, least: f32| {
        let rows: Vec<&Row> =
            rows.iter().filter(|row| stratum.is_empty() || row.row["stratum"] == stratum).collect();
        share(&rows, |row| row.seen.score >= least)
    };
    for least in [0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4] {
        println!(
            "  {least:.1}  ordinary {}  explicit {}  implicit {}  jailbreak {}  alike {}",
            all(&ordinary, "", least),
            all(&injected, "explicit", least),
            all(&injected, "implicit", least),
            all(&injected, "jailbreak", least),
            all(&alike, "", least),
        );
    }
    by("injected, by source", &injected, |row| row.key("source"), Row::orders);
    by("injected, by class", &injected, |row| row.key("attack_class"), Row::orders);
    by("ordinary flagged, by source", &ordinary, |row| row.key("source"), Row::orders);
    let seen = |row: &Row| {
        row.orders()
            || row.found(&[Detector::HiddenCharacters, Detector::ActiveMarkup, Detector::Links])
    };
    let changed = read(folder, "obfuscated_outputs.jsonl");
    by("obfuscated, by kind", &changed, |row| row.key("kind"), seen);
    by("obfuscated, by transform", &changed, |row| row.key("transform"), seen);
    let frames = read(folder, "obfuscated_frames.jsonl");
    by("whole messages, by place", &frames, |row| row.key("transform"), Row::orders);
    of_our_own();
    let detectors = |row: &Row| row.found(&[Detector::Secrets, Detector::Identifiers]);
    by(
        "ordinary with secrets or identifiers, by source",
        &ordinary,
        |row| row.key("source"),
        detectors,
    );

    let secrets = read(folder, "secrets.jsonl");
    let count = |has: bool, found: bool| {
        let of = |row: &&Row| row.row["has"] == has && row.found(&DATA) == found;
        secrets.iter().filter(of).count() as f64
    };
    let (hit, missed, wrong) = (count(true, true), count(true, false), count(false, true));
    println!(
        "\nsecrets and personal data: recall {:.1} %, precision {:.1} %",
        100.0 * hit / (hit + missed),
        100.0 * hit / (hit + wrong)
    );
    let of = |row: &Row| {
        let has = if row.row["has"] == true { "has" } else { "has none" };
        format!("{} {}: {has}", row.key("source"), row.key("kind"))
    };
    by("flagged, by source", &secrets, of, |row| row.found(&DATA));
    speed(&ordinary);
}

/// Prints what is found in ordinary texts of our own, by kind and language.
fn of_our_own() {
    let all = [
        include_str!("../../policy/benches/ordinary/kinds.txt"),
        include_str!("../../policy/benches/ordinary/languages.txt"),
    ];
    let (contents, server) = (ContentPolicy::default(), ServerName::parse("input").unwrap());
    println!("\nordinary texts of our own, by kind and language: score, and what is found\n");
    let texts = all.iter().flat_map(|all| all.split("\n=== "));
    for (name, text) in texts.filter_map(|one| one.trim_start_matches("=== ").split_once('\n')) {
        let quoted = Value::from(text).to_string();
        let document = Document::parse(quoted.into(), &JsonBounds::ANSWER).unwrap();
        let seen = contents.look(
            &server,
            Direction::Result,
            "",
            document.root(),
            &WorkBudget::unlimited(),
        );
        let mut found: Vec<_> = seen.findings.iter().map(|one| one.detector.name()).collect();
        found.dedup();
        let kept = if seen.changed.is_none() { "unharmed" } else { "changed" };
        println!("  {name:<24} {kept} {:4.2} {}", seen.score, found.join(", "));
    }
}

/// Prints how long it takes to look at ordinary results, and at what was made to take long.
fn speed(ordinary: &[Row]) {
    let server = ServerName::parse("input").unwrap();
    let time = |contents: &ContentPolicy, name: &str, texts: &[String]| {
        let quoted = |text: &String| {
            Document::parse(Value::from(text.as_str()).to_string().into(), &JsonBounds::ANSWER)
                .unwrap()
        };
        let documents: Vec<Document> = texts.iter().map(quoted).collect();
        let look = || {
            for document in &documents {
                std::hint::black_box(contents.look(
                    &server,
                    Direction::Result,
                    "",
                    document.root(),
                    &WorkBudget::unlimited(),
                ));
            }
        };
        look();
        let started = Instant::now();
        for _ in 0..5 {
            look();
        }
        let took = started.elapsed().as_secs_f64() / 5.0;
        let bytes: usize = texts.iter().map(String::len).sum();
        println!(
            "  {name:<28} {:8.1} MB/s, {:8.1} us each of {} bytes",
            bytes as f64 / took / 1e6,
            took * 1e6 / texts.len() as f64,
            bytes / texts.len()
        );
    };
    println!("\nspeed, one core\n");
    let texts: Vec<String> = ordinary.iter().map(|row| row.key("text")).collect();
    let about: Vec<String> =
        texts.iter().filter(|text| (1500..2600).contains(&text.len())).cloned().collect();
    let contents = ContentPolicy::default();
    let run = |name: &str, texts: &[String]| time(&contents, name, texts);
    for alone in [
        "hiddenCharacters",
        "activeMarkup",
        "secrets",
        "identifiers",
        "contacts",
        "plantedInstructions",
    ] {
        let mut off = serde_json::json!({
            "hiddenCharacters": "off", "activeMarkup": "off", "secrets": "off",
            "identifiers": "off", "contacts": "off", "plantedInstructions": "off",
        });
        off[alone] = "audit".into();
        let results = serde_json::from_value(off).unwrap();
        let servers = vec![Pattern::new("*")];
        let profile = ContentProfile { servers, results, ..ContentProfile::default() };
        time(&ContentPolicy::new(vec![profile]), &format!("{alone} alone"), &texts);
    }
    run("ordinary results", &texts);
    run("those of about 2 KB", &about);
    let prose = "The quick brown fox jumps over the lazy dog while nobody looks. ".repeat(32);
    run("plain prose", &[prose]);
    for (name, piece) in [
        ("`please` over and over", "please "),
        ("quotation marks", "='\""),
        ("at signs", "a@b."),
        ("digits", "1 2-3."),
        ("escapes", "%41"),
        ("dashes in one word", "-----BEGIN"),
        ("schemes", "://"),
        ("dashes", "-----BEGIN "),
        ("words of all rules", "ignore system you must test please send @ my "),
        ("letters and digits", "a1B2c3D4e5F6g7H8"),
        ("zero width", "a\u{200b}"),
        ("colons", "::a"),
    ] {
        run(name, &[piece.repeat(65_536 / piece.len())]);
    }
}
