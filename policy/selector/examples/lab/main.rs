//! Makes the table of words that the selector searches with, and measures the selector.
//!
//!     cargo run --release -p selector --example lab -- train FOLDER > policy/selector/data/model.bin
//!     cargo run --release -p selector --example lab -- train-without FOLDER > MODEL
//!     cargo run --release -p selector --example lab -- measure FOLDER [kept] [--model MODEL] [--pairs FILE]
//!     cargo run --release -p selector --example lab -- tune FOLDER --model MODEL
//!     cargo run --release -p selector --example lab -- speed FOLDER
//!
//! FOLDER has `benign_tools.jsonl`, and in `queries` the file `queries.jsonl` and the catalogues `tools_*.jsonl`. The
//! same input makes the same bytes. `train-without` leaves out the written requests of a quarter of the servers, and
//! `measure` and `tune` measure those then. What is learned from lies in `policy/selector/data`; see its `README.md`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::disallowed_methods,
    reason = "a tool for those who work on the selector"
)]

mod data;
mod learn;
mod train;
mod measure;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use selector::model::Model;

use data::Catalogue;
use measure::{Part, Trial};

/// The folder of what is learned from.
fn data_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// What follows an option on the command line.
fn option(arguments: &[String], name: &str) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1).cloned()
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [verb, folder, ..] = arguments.as_slice() else {
        eprintln!("give a verb and a folder");
        return;
    };
    let (folder, data) = (Path::new(folder), data_folder());
    let all = Catalogue::read(folder);
    let mut pairs = all.pairs(&data.join("pairs.tsv"), "written");
    let model: &'static Model = match option(&arguments, "--model") {
        Some(file) => {
            let bytes: &'static [u8] = fs::read(file).unwrap().leak();
            Box::leak(Box::new(Model::parse(bytes).unwrap()))
        }
        None => Model::built_in(),
    };
    match verb.as_str() {
        "train" => std::io::stdout().write_all(&train::train(&all, &pairs, &data)).unwrap(),
        "train-without" => {
            pairs.retain(|pair| !train::is_left_out(&pair.family));
            std::io::stdout().write_all(&train::train(&all, &pairs, &data)).unwrap();
        }
        "measure" | "tune" => {
            let part = if arguments.iter().any(|argument| argument == "kept") {
                Part::KeptBack
            } else {
                Part::Tuned
            };
            pairs.retain(|pair| train::is_left_out(&pair.family));
            if let Some(file) = option(&arguments, "--pairs") {
                pairs = all.pairs(Path::new(&file), "written");
            }
            let trial = Trial::new(&all, model, part, &all.queries(folder), pairs);
            if verb == "tune" { trial.tune() } else { trial.print() }
        }
        "speed" => measure::speed(&all, model, &pairs),
        _ => eprintln!("`{verb}` is no verb"),
    }
}
