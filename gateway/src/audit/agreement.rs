//! Compares a log with its last checkpoint, where checkpoints are kept apart from it.
//!
//! A log alone cannot show that its end was cut off, or that all of it was removed. The file of checkpoints can, so
//! the start of the gateway compares the two before it signs anything.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use audit_log::note::Checkpoint;

use super::file::{ResumePolicy, ResumedChain};

/// Number of bytes at the end of the file that are read first.
const TAIL: u64 = 16 * 1024 * 1024;

/// Returns the last checkpoint in the file at `path` that one of the trusted keys signed, or the very last one if no
/// key is configured; of the same log one over more records, if there is one before it. Who can only append to the file
/// could append an old checkpoint again, to which the log was cut.
///
/// # Errors
/// If the file exists and cannot be read. A file without read permission gives `None`.
pub fn last_kept(path: &Path, trusted: &ResumePolicy) -> io::Result<Option<Checkpoint>> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        // A pipe keeps nothing that could be read back.
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let file = path.display();
            tracing::warn!(
                event = "audit.checkpoints_unreadable", %file,
                "the audit log was not compared with its checkpoint file, which cannot be read"
            );
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    let mut window = TAIL.min(length);
    loop {
        let is_whole = window == length;
        file.seek(SeekFrom::Start(length - window))?;
        let mut bytes = Vec::new();
        file.by_ref().take(window).read_to_end(&mut bytes)?;
        // The window may have cut the first one.
        let notes = Checkpoint::split(&String::from_utf8_lossy(&bytes));
        let mut notes = notes.iter().skip(usize::from(!is_whole)).rev();
        let opened = |note: &String| match trusted.keys.is_empty() {
            true => Checkpoint::unsigned(note).ok(),
            false => Checkpoint::open(note, &trusted.keys).ok().map(|(checkpoint, _)| checkpoint),
        };
        if let Some(last) = notes.find_map(opened) {
            return Ok(Some(notes.fold(last, |most, note| {
                // Only a note that would count is worth verifying its signature.
                let is_more = |checkpoint: &Checkpoint| {
                    checkpoint.origin == most.origin && checkpoint.size > most.size
                };
                let unsigned = Checkpoint::unsigned(note).ok().filter(is_more);
                unsigned.and_then(|_| opened(note)).filter(is_more).unwrap_or(most)
            })));
        }
        if is_whole {
            return Ok(None);
        }
        window = window.saturating_mul(4).min(length);
    }
}

/// Explains why the log that continues after `resumed` is not the one `kept` was made of; `None` if it is. Without
/// `resumed` there is no log.
#[must_use]
pub fn disagreement(kept: &Checkpoint, resumed: Option<&ResumedChain>) -> Option<String> {
    let chain = kept.origin.rsplit('/').next().unwrap_or_default();
    let size = kept.size;
    let Some(resumed) = resumed else {
        return Some(format!(
            "there is no log here, and the checkpoint is over {size} records of chain {chain}"
        ));
    };
    if *resumed.chain.id != *chain {
        let id = &resumed.chain.id;
        return Some(format!("it is of chain {id}, and the checkpoint is of chain {chain}"));
    }
    let agrees = match &resumed.signed {
        Some((signed, root)) => *signed > size || (*signed == size && *root == kept.root),
        // The record of a checkpoint comes after those it covers.
        None => resumed.chain.tree.size() > size,
    };
    let has = resumed.chain.tree.size();
    (!agrees).then(|| match &resumed.signed {
        Some((signed, _)) if *signed == size => {
            format!("its first {size} records are others than those of the checkpoint")
        }
        Some(_) | None => {
            format!("it has {has} records, and not the checkpoint over {size}: its end was cut off")
        }
    })
}

/// The text with which a new log records that it replaces the log of `kept`.
#[must_use]
pub fn left_behind(kept: &Checkpoint) -> String {
    let chain = kept.origin.rsplit('/').next().unwrap_or_default();
    format!(
        "this log was begun in place of that of chain {chain}, whose last checkpoint is over {} records",
        kept.size
    )
}

#[cfg(test)]
mod tests {
    use audit_log::chain::HashChain;
    use audit_log::note::Checkpoint;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::{disagreement, last_kept};
    use crate::audit::file::{ResumePolicy, ResumedChain};

    #[test]
    fn an_old_checkpoint_that_is_appended_again_stands_for_the_later_one() {
        let name = format!("portcullis-{}-checkpoints", std::process::id());
        let file = std::env::temp_dir().join(name);
        let note = |chain: &str, size: u64| {
            let root = STANDARD.encode([7; 32]);
            let signature = STANDARD.encode([9; 68]);
            format!("gw.example/{chain}\n{size}\n{root}\n\n\u{2014} gw.example {signature}\n")
        };
        let trusted = ResumePolicy { keys: Vec::new(), uncovered: 1 };
        let kept = |notes: &[String]| {
            std::fs::write(&file, notes.concat()).unwrap();
            last_kept(&file, &trusted).unwrap().map(|kept| (kept.origin, kept.size))
        };
        let is = |chain: &str, size| Some((format!("gw.example/{chain}").into(), size));
        assert_eq!(kept(&[note("aa", 5), note("aa", 9)]), is("aa", 9));
        assert_eq!(kept(&[note("aa", 5), note("aa", 9), note("aa", 5)]), is("aa", 9));
        // A log that was begun anew has no more to do with the former one.
        assert_eq!(kept(&[note("aa", 5), note("aa", 9), note("bb", 2)]), is("bb", 2));
        assert_eq!(kept(&[]), None);
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_log_agrees_only_with_a_checkpoint_that_is_in_it() {
        let mut chain = HashChain::new("0011223344556677");
        for leaf in 0..9 {
            chain.tree.push([leaf; 32]);
        }
        let kept = |origin: &str, size, root| Checkpoint { origin: origin.into(), size, root };
        let ours = "gw.example/0011223344556677";
        let resumed =
            |signed| ResumedChain { chain: chain.clone(), crashed: false, torn: None, signed };
        let agrees = |kept: &Checkpoint, resumed: Option<ResumedChain>| {
            disagreement(kept, resumed.as_ref()).is_none()
        };
        let signed = Some((8, [1; 32]));
        assert!(agrees(&kept(ours, 8, [1; 32]), Some(resumed(signed))));
        assert!(agrees(&kept(ours, 5, [7; 32]), Some(resumed(signed))), "a later one was not kept");
        assert!(agrees(&kept(ours, 8, [1; 32]), Some(resumed(None))));
        for (kept, resumed) in [
            (kept(ours, 8, [1; 32]), None),
            (kept(ours, 8, [2; 32]), Some(resumed(signed))),
            (kept(ours, 9, [1; 32]), Some(resumed(signed))),
            (kept(ours, 100, [1; 32]), Some(resumed(signed))),
            (kept(ours, 9, [1; 32]), Some(resumed(None))),
            (kept("gw.example/aa11223344556677", 8, [1; 32]), Some(resumed(signed))),
        ] {
            assert!(!agrees(&kept, resumed), "{kept:?}");
        }
    }
}
