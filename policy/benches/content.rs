//! How fast results are looked at, with every detector on.
//!
//! `cargo bench -p policy`. Each group says bytes a second, so that one can be compared with another in
//! the same run: `ordinary` are texts of every kind and language, `hostile` were made to take long. What
//! is said in the documentation is taken from here.

#![expect(clippy::unwrap_used, reason = "its own texts")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use policy::base::work::WorkBudget;
use policy::detection::content::{ContentPolicy, Direction};
use policy::json::{Document, JsonBounds};
use policy::subject::name::ServerName;

/// Ordinary texts: `=== KIND LANGUAGE`, and the text.
const ORDINARY: [&str; 2] =
    [include_str!("ordinary/kinds.txt"), include_str!("ordinary/languages.txt")];
/// How long the texts are that are measured, in bytes.
const LENGTH: usize = 2048;
/// How long those are that were made to take long.
const LONG: usize = 64 * 1024;

/// Each made to be slow in some part.
const HOSTILE: [(&str, &str); 18] = [
    ("odd links", "http://1/"),
    ("please", "please "),
    ("quotation marks", "='\""),
    ("at signs", "a@b."),
    ("digits", "1 2-3."),
    ("escapes", "%41"),
    ("headers of keys", "-----BEGIN"),
    ("schemes", "https://a@"),
    ("words of all rules", "ignore system you must test please send @ my "),
    ("letters and digits", "a1B2c3D4e5F6g7H8"),
    ("zero width", "a\u{200b}"),
    ("colons", "::a"),
    ("tags", "<a b"),
    ("images", "![a]("),
    ("comments", "<!-- a -"),
    ("names of services", "mailgun key a1b2c3d4e5f6g7h8 "),
    ("encoded", "aWdub3JlIGFsbA== "),
    ("starts of keys", "sk-eyJ-key-"),
];

fn document(text: &str) -> Document {
    let quoted = serde_json::Value::from(text).to_string();
    Document::parse(quoted.into(), &JsonBounds::ANSWER).unwrap()
}

fn repeated(text: &str, length: usize) -> String {
    text.chars().cycle().take(length).collect()
}

fn looked_at(criterion: &mut Criterion) {
    let (contents, server) = (ContentPolicy::default(), ServerName::parse("up").unwrap());
    let mut measure = |group: &str, texts: Vec<(String, String)>| {
        let mut group = criterion.benchmark_group(group);
        for (name, text) in texts {
            let document = document(&text);
            group.throughput(Throughput::Bytes(text.len() as u64));
            group.bench_with_input(
                BenchmarkId::from_parameter(name),
                &document,
                |bencher, document| {
                    bencher.iter(|| {
                        black_box(contents.look(
                            &server,
                            Direction::Result,
                            "ana",
                            document.root(),
                            &WorkBudget::unlimited(),
                        ))
                    });
                },
            );
        }
        group.finish();
    };
    let ordinary = ORDINARY.into_iter().flat_map(|all| all.split("\n=== "));
    let ordinary = ordinary.filter_map(|one| one.trim_start_matches("=== ").split_once('\n'));
    measure(
        "ordinary",
        ordinary.map(|(name, text)| (name.to_owned(), repeated(text, LENGTH))).collect(),
    );
    let hostile = HOSTILE.iter().map(|(name, piece)| ((*name).to_owned(), repeated(piece, LONG)));
    measure("hostile", hostile.collect());
}

criterion_group!(benches, looked_at);
criterion_main!(benches);
