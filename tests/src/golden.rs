//! Files that are generated from the code and reviewed as differences.
//!
//! With `PORTCULLIS_BLESS` in the environment a file that is out of date is written, and its test fails all
//! the same: a run that writes files never counts as one that has checked them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Compares files with what they should hold.
///
/// # Panics
/// When one is out of date, whether or not it was written; and when files would be written where `CI` is set.
pub fn compare<'a>(files: impl IntoIterator<Item = (&'a Path, &'a str)>) {
    let blesses = std::env::var_os("PORTCULLIS_BLESS").is_some();
    assert!(
        !blesses || std::env::var_os("CI").is_none(),
        "PORTCULLIS_BLESS is set together with CI: files are not generated where they are checked"
    );
    let mut outdated = String::new();
    for (file, text) in files {
        let found = fs::read_to_string(file).unwrap_or_default();
        if found == text {
            continue;
        }
        let line =
            found.lines().zip(text.lines()).take_while(|(one, other)| one == other).count() + 1;
        let done = if blesses { "was written" } else { "is out of date" };
        writeln!(outdated, "{} {done} (line {line} differs)", file.display()).unwrap();
        if blesses {
            fs::write(file, text).unwrap();
        }
    }
    let help = if blesses {
        "review the difference and run the tests again without PORTCULLIS_BLESS"
    } else {
        "run the tests with PORTCULLIS_BLESS=1 and --no-fail-fast"
    };
    assert!(outdated.is_empty(), "{outdated}{help}");
}
