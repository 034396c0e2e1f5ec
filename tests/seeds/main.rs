//! Runs the fuzz targets as ordinary tests: each gets its seeds (`fuzz/seeds/NAME`) and inputs made of them, the same in
//! every run. With `PORTCULLIS_FUZZ_SECONDS=60` each gets others for that long.
//!
//! An input for which a target panics is written to `target/fuzz`. Once its cause is corrected, it belongs among the seeds
//! under a name that says what it shows.

#![expect(
    unused_attributes,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::duplicate_mod,
    reason = "the fuzz targets are written for a crate of their own"
)]

// The targets import their macro from the crate of that name.
extern crate self as libfuzzer_sys;

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::thread;
use std::time::Duration;

use e2e::gateway::root;
use gateway::base::clock::{Clock as _, SystemClock};

/// Each target, and the test that runs it.
macro_rules! targets {
    ($($name:ident: $path:literal,)*) => {$(
        #[path = $path]
        mod $name;
    )*
        /// The names of all targets.
        const TARGETS: &[&str] = &[$(stringify!($name)),*];

        mod seeds {$(
            #[test]
            fn $name() {
                super::check_apart(stringify!($name), super::$name::run);
            }
        )*}
    };
}

targets! {
    arguments: "../../fuzz/targets/arguments.rs",
    audit: "../../fuzz/targets/audit.rs",
    canonical: "../../fuzz/targets/canonical.rs",
    cleaner: "../../fuzz/targets/cleaner.rs",
    condition: "../../fuzz/targets/condition.rs",
    configuration: "../../fuzz/targets/configuration.rs",
    content: "../../fuzz/targets/content.rs",
    definition: "../../fuzz/targets/definition.rs",
    detector: "../../fuzz/targets/detector.rs",
    dpop: "../../fuzz/targets/dpop.rs",
    events: "../../fuzz/targets/events.rs",
    framing: "../../fuzz/targets/framing.rs",
    http2: "../../fuzz/targets/http2.rs",
    json: "../../fuzz/targets/json.rs",
    jwt: "../../fuzz/targets/jwt.rs",
    lines: "../../fuzz/targets/lines.rs",
    lockfile: "../../fuzz/targets/lockfile.rs",
    message: "../../fuzz/targets/message.rs",
    mirrored: "../../fuzz/targets/mirrored.rs",
    response: "../../fuzz/targets/response.rs",
    seal: "../../fuzz/targets/seal.rs",
    session: "../../fuzz/targets/session.rs",
    uri: "../../fuzz/targets/uri.rs",
}

/// A target as a function of bytes, which it takes apart like the macro of `libfuzzer-sys`. It stands after the targets, so
/// that they have it by their import.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:block) => {
        pub(crate) fn run($input: &[u8]) $body
    };
    (|$input:ident: &str| $body:block) => {
        pub(crate) fn run(bytes: &[u8]) {
            let Ok($input) = std::str::from_utf8(bytes) else { return };
            $body
        }
    };
    (|$input:ident: (u8, &[u8])| $body:block) => {
        pub(crate) fn run(bytes: &[u8]) {
            let Some((first, rest)) = bytes.split_first() else { return };
            let $input = (*first, rest);
            $body
        }
    };
}

/// Inputs that are made of the seeds in a run without a time.
const MADE: usize = 200;
/// Longest input that is made, in bytes.
const LONGEST: usize = 4096;

#[test]
fn every_target_is_run_here() {
    let files = fs::read_dir(root().join("fuzz/targets")).unwrap();
    let mut names: Vec<_> = files
        .filter_map(|file| {
            file.unwrap().file_name().to_str()?.strip_suffix(".rs").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert_eq!(names, TARGETS);
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    for name in names {
        assert!(manifest.contains(&format!("path = \"targets/{name}.rs\"")), "{name}");
    }
}

/// Bytes of the stack on which a target runs: without optimisation the parser of CEL takes ten times as much as with it.
const STACK: usize = 64 << 20;

/// Runs [`check`] on a stack of its own.
fn check_apart(name: &'static str, run: fn(&[u8])) {
    let checking =
        thread::Builder::new().stack_size(STACK).spawn(move || check(name, run)).unwrap();
    if let Err(panic) = checking.join() {
        resume_unwind(panic);
    }
}

/// Runs a target with its seeds and with inputs made of them.
fn check(name: &str, run: fn(&[u8])) {
    let mut files: Vec<_> = fs::read_dir(root().join("fuzz/seeds").join(name))
        .expect("every target has seeds")
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let seeds: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(!seeds.is_empty(), "{name} has no seeds");
    for (file, seed) in files.iter().zip(&seeds) {
        let ran = catch_unwind(AssertUnwindSafe(|| run(seed)));
        assert!(ran.is_ok(), "the seed {} makes the target panic", file.display());
    }
    let seconds = env::var("PORTCULLIS_FUZZ_SECONDS").ok();
    let seconds = seconds.map(|text| Duration::from_secs(text.parse().unwrap()));
    let started = SystemClock.instant();
    let mut dice = Dice(if seconds.is_some() { u64::from(std::process::id()) } else { 1 });
    for made in 0.. {
        match seconds {
            Some(seconds) if started.elapsed() >= seconds => break,
            None if made >= MADE => break,
            Some(_) | None => {}
        }
        let input = dice.made_of(&seeds);
        if catch_unwind(AssertUnwindSafe(|| run(&input))).is_err() {
            panic!("the target panics with the input in {}", kept(name, made, &input));
        }
    }
}

/// Writes an input to a file, and returns its name.
fn kept(name: &str, number: usize, input: &[u8]) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{name}-{number}"));
    fs::write(&file, input).unwrap();
    file.display().to_string()
}

/// Texts that readers give a meaning.
const PIECES: [&[u8]; 24] = [
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\n",
    b"\r\n",
    b"\0",
    b"%2e",
    b"/",
    b"..",
    b"1e400",
    b"-0",
    b"null",
    b"<!--",
    b"\xef\xbb\xbf",
    "\u{200b}".as_bytes(),
    "\u{202e}".as_bytes(),
    b"chunked",
];

/// A source of numbers that are the same in every run with the same start (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from(number).unwrap() % most.max(1)
    }

    /// A seed after one to eight changes.
    fn made_of(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(8) {
            let at = self.below(input.len() + 1);
            let end = (at + 1 + self.below(16)).min(input.len());
            match self.below(6) {
                0 if at < input.len() => input[at] ^= 1 << self.below(8),
                1 if at < input.len() => input[at] = self.below(256).to_le_bytes()[0],
                2 => drop(input.drain(at.min(end)..end)),
                3 => {
                    let part = input[at.min(end)..end].to_vec();
                    let to = self.below(input.len() + 1);
                    input.splice(to..to, part);
                }
                4 => {
                    let piece = PIECES[self.below(PIECES.len())];
                    input.splice(at..at, piece.iter().copied());
                }
                _ => {
                    let other = &seeds[self.below(seeds.len())];
                    let from = self.below(other.len() + 1);
                    input.truncate(at);
                    input.extend_from_slice(&other[from..]);
                }
            }
            input.truncate(LONGEST);
        }
        input
    }
}
