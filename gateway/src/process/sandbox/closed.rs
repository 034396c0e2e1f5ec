//! Explains why a sandbox denied a path to a program, and what the operator can do.
//!
//! A program that fails at its start reports the reason in its own words. Its error output is searched for a path to
//! which access was denied; whether the sandbox is the reason is determined from its plan.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::access;

use super::around::{PathAccess, is_of_the_system, real};
use super::{SandboxError, SandboxPlan, UnlistedFiles};

/// Phrases for denied access, in lower case: `errno(3)` in the words of C, Go and Node.
const REFUSALS: [&str; 7] = [
    "eacces",
    "eperm",
    "erofs",
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "permissionerror",
];
/// The beginning of the line on which Node reports the path of an error above it.
const MEMBER: &str = "path: ";
/// Longest path that is recognised, in bytes (`PATH_MAX`).
const MAX_PATH: usize = 4096;

/// Finds the path to which a program was denied access, in the lines of its error output.
#[derive(Debug, Default)]
pub struct DeniedPathFinder {
    /// Whether any line has reported denied access.
    any: bool,
    /// The last path in such a report.
    path: Option<PathBuf>,
}

impl DeniedPathFinder {
    /// Whether a line is relevant: it reports denied access, or continues such a report.
    #[must_use]
    pub fn concerns(&self, line: &str) -> bool {
        is_refusal(line) || self.any && line.trim_start().starts_with(MEMBER)
    }

    /// Reads a line in its masked form.
    pub fn read(&mut self, line: &str) {
        if !self.concerns(line) {
            return;
        }
        self.any |= is_refusal(line);
        if let Some(path) = last_path(line) {
            self.path = Some(path);
        }
    }

    /// The path to which access was denied last; `None` if there was none.
    #[must_use]
    pub fn path(self) -> Option<PathBuf> {
        self.path
    }
}

/// Whether a line reports denied access.
fn is_refusal(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    REFUSALS.iter().any(|words| lower.contains(words))
}

/// The last absolute path in a line, delimited by quotes or blanks.
fn last_path(line: &str) -> Option<PathBuf> {
    let mut found = None;
    let mut rest = line;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let begins = first == '/' && (before.is_whitespace() || "'\"`‘“([<=".contains(before));
        let length = if begins { path_length(rest, before) } else { first.len_utf8() };
        let (part, left) = rest.split_at_checked(length)?;
        if begins {
            found = Some(part.trim_end_matches([':', '.', ','])).filter(|path| path.len() > 1);
        }
        before = part.chars().next_back().unwrap_or(' ');
        rest = left;
    }
    let path = PathBuf::from(found.filter(|path| path.len() <= MAX_PATH)?);
    let climbs = path.components().any(|part| part == Component::ParentDir);
    (!climbs).then_some(path)
}

/// Length of the path at the beginning of `text`, up to the quote that stands before it or to a blank.
fn path_length(text: &str, before: char) -> usize {
    let is_end = |c: char| match before {
        '\'' | '"' | '`' => c == before,
        '‘' => c == '’',
        '“' => c == '”',
        _ => c.is_whitespace() || "'\"`,;)]>".contains(c),
    };
    text.find(is_end).unwrap_or(text.len())
}

/// The reason for which a path is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SandboxDenial {
    /// It is one of the gateway's own files, or is protected from changes.
    Own,
    /// Nothing can be created in this folder, because it contains files of the gateway.
    Sealed(PathBuf),
    /// It was put into this folder, which contains files of the gateway, when the program had started already.
    Newer(PathBuf),
    /// It is in a system folder, which cannot be changed.
    System,
    /// Only listed paths are accessible, and it is not listed.
    Unlisted,
}

/// A path that a sandbox denies, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedPath {
    path: PathBuf,
    why: SandboxDenial,
}

/// Why a sandbox denies a path, and what the operator can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialAdvice {
    /// Why the path is denied, as a clause that does not name the path.
    pub why: String,
    /// What the operator can change so that the path is allowed.
    pub mend: String,
}

impl SandboxPlan {
    /// Why the sandbox denies `path` to a program that was started at `start`, if that is known; `None` where it does
    /// not, or where the user of the gateway cannot access the path either.
    #[must_use]
    pub fn closes(&self, path: &Path, start: Option<SystemTime>) -> Option<DeniedPath> {
        if matches!(self.check(), Err(SandboxError::Landlock(_))) {
            return None;
        }
        let around = self.around();
        let place = real(path);
        let why = match around.left(&place, PathAccess::Full) {
            Some(PathAccess::Full) => self.why_closed(&place, start)?,
            Some(PathAccess::List | PathAccess::Read) | None => SandboxDenial::Own,
        };
        Some(DeniedPath { path: path.to_owned(), why })
    }

    /// The reason for a path that is not protected.
    fn why_closed(&self, path: &Path, start: Option<SystemTime>) -> Option<SandboxDenial> {
        let folder = path.ancestors().find(|folder| fs::symlink_metadata(folder).is_ok())?;
        let may = |wanted| access(folder, wanted).is_ok();
        let is_listed = self.write.iter().any(|listed| path.starts_with(real(listed)));
        match self.rest {
            UnlistedFiles::Any if is_of_the_system(path) && !is_listed => {
                return may(rustix::fs::Access::WRITE_OK).then_some(SandboxDenial::System);
            }
            UnlistedFiles::Listed if !is_listed => {
                return may(rustix::fs::Access::READ_OK).then_some(SandboxDenial::Unlisted);
            }
            UnlistedFiles::Any | UnlistedFiles::Listed => {}
        }
        let around = self.around();
        if !around.is_on_the_way(folder) {
            let newer = newer_entry(path, start?, |folder| around.is_on_the_way(folder));
            return newer.filter(|_| may(rustix::fs::Access::READ_OK)).map(SandboxDenial::Newer);
        }
        let sealed = folder.is_dir() && may(rustix::fs::Access::WRITE_OK);
        sealed.then(|| SandboxDenial::Sealed(folder.to_owned()))
    }
}

/// The folder on the way to `path` whose entries have a rule each (`splits`), if the entry that leads to `path` was put
/// there after `start`: it has no rule then.
fn newer_entry(path: &Path, start: SystemTime, splits: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let steps = path.ancestors().filter_map(|entry| Some((entry, entry.parent()?)));
    let (entry, folder) = { steps }.find(|(_, folder)| splits(folder))?;
    let known = fs::symlink_metadata(entry).ok()?;
    let since = if known.is_dir() {
        // It changes with each entry, so only the time of its creation counts.
        known.created().ok()?
    } else {
        // A file that was renamed has the time of its creation from before.
        let seconds = Duration::from_secs(u64::try_from(known.ctime()).ok()?);
        UNIX_EPOCH + seconds + Duration::from_nanos(u64::try_from(known.ctime_nsec()).ok()?)
    };
    (since > start).then(|| folder.to_owned())
}

/// Whether an advice names the denied path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathMention {
    Named,
    LeftOut,
}

impl DeniedPath {
    /// The denial and its reason, as the end of a sentence about a program.
    #[must_use]
    pub fn said(&self) -> String {
        let extent = if self.why == SandboxDenial::System { " to changes" } else { "" };
        format!("its sandbox closes `{}`{extent}: {}", self.path.display(), self.reason())
    }

    /// The advice for the operator.
    #[must_use]
    pub fn mend(&self) -> String {
        self.advice(PathMention::Named)
    }

    /// The denial and the advice for the log at a call, without the path itself: it is part of a result, which the
    /// log does not hold.
    #[must_use]
    pub fn at_a_call(&self) -> DenialAdvice {
        DenialAdvice { why: self.reason(), mend: self.advice(PathMention::LeftOut) }
    }

    fn reason(&self) -> String {
        match &self.why {
            SandboxDenial::Own => {
                "it is one of the gateway's own files, or is kept from changes as they are"
                    .to_owned()
            }
            SandboxDenial::Sealed(folder) => format!(
                "nothing can be created or replaced directly in `{}`, because files of the gateway are in it or below it",
                folder.display()
            ),
            SandboxDenial::Newer(folder) => format!(
                "what is put or replaced directly in `{}` while the program runs cannot be opened, because files of the gateway \
                 are in that folder or below it",
                folder.display()
            ),
            SandboxDenial::System => "it is in a folder of the system".to_owned(),
            SandboxDenial::Unlisted => "it opens what is listed, and this is not".to_owned(),
        }
    }

    fn advice(&self, mention: PathMention) -> String {
        let is_named = mention == PathMention::Named;
        match &self.why {
            SandboxDenial::Own => "have the program use another file".to_owned(),
            SandboxDenial::Sealed(folder) if is_named && *folder != self.path => format!(
                "{} before the program is started (a file: `touch`), or keep the gateway's files outside of `{}`, such as in \
                 `/etc/portcullis`; to list it under `sandbox.write` does not help (docs/sandbox.md, \"A folder to write in\")",
                self.made(),
                folder.display()
            ),
            SandboxDenial::Sealed(folder) => format!(
                "make a folder in `{}`, start the gateway again (the sandbox is fixed when the program starts) and have the \
                 program write there; or keep the gateway's files elsewhere, such as in `/etc/portcullis` (docs/sandbox.md, \"A folder to write in\")",
                folder.display()
            ),
            SandboxDenial::Newer(folder) => format!(
                "start the gateway again (the sandbox is fixed when the program starts); or keep what changes in a folder below \
                 `{}` that exists when the program starts and has none of the gateway's files (docs/sandbox.md, \
                 \"A folder to write in\")",
                folder.display()
            ),
            SandboxDenial::System => format!(
                "have the program write elsewhere, or list {} under `sandbox.write`",
                if is_named { format!("`{}`", self.path.display()) } else { "it".to_owned() }
            ),
            SandboxDenial::Unlisted => {
                let is_missing = is_named && fs::symlink_metadata(&self.path).is_err();
                let made =
                    if is_missing { format!("{}, and ", self.made()) } else { String::new() };
                format!(
                    "{made}list it under `sandbox.write`, or under `sandbox.read` if the program only reads it \
                     (docs/sandbox.md, \"Stricter, or none\")"
                )
            }
        }
    }

    /// The instruction to create the folder; without a command where a shell could misinterpret the path.
    fn made(&self) -> String {
        let plain = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
        let path = self.path.display().to_string();
        match path.chars().all(plain) {
            true => format!("`mkdir -p {path}`"),
            false => format!("make the folder `{path}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::DeniedPathFinder;

    #[test]
    fn the_path_that_a_program_was_refused_is_found_in_what_it_says() {
        for (lines, path) in [
            (
                &["Error: EACCES: permission denied, mkdir '/home/ana/.mongodb'"][..],
                Some("/home/ana/.mongodb"),
            ),
            (
                &["PermissionError: [Errno 13] Permission denied: '/home/ana/My Files/.serena'"],
                Some("/home/ana/My Files/.serena"),
            ),
            (
                &["mkdir: cannot create directory ‘/home/ana/.x’: Permission denied"],
                Some("/home/ana/.x"),
            ),
            (&["main.go:12: mkdir /srv/x/.cache: permission denied"], Some("/srv/x/.cache")),
            (
                &["gpg: Fatal: can't create directory '/home/ana/.gnupg': Permission denied"],
                Some("/home/ana/.gnupg"),
            ),
            (&["sh: 1: cannot create /usr/share/x: Read-only file system"], Some("/usr/share/x")),
            (
                &["    at mkdirSync (node:fs:1)", "  code: 'EACCES',", "  path: '/home/ana/.x'"],
                Some("/home/ana/.x"),
            ),
            (&["  path: '/home/ana/.x'"], None),
            (&["open /srv/x: no such file or directory"], None),
            (&["mkdir '/srv/../etc': permission denied"], None),
            (&["GET https://example.com/a: permission denied"], None),
        ] {
            let mut refused = DeniedPathFinder::default();
            lines.iter().for_each(|line| refused.read(line));
            assert_eq!(refused.path().as_deref(), path.map(Path::new), "{lines:?}");
        }
    }
}
