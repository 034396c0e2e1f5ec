//! Finds the code that a program runs because its arguments name it: the script of an interpreter, the package folder
//! of a launcher, or the command of a wrapper. That code can change while the program itself stays
//! the same (threat T1207).
//!
//! Arguments also name data, which may change. So only known programs are considered, and only those of their
//! arguments that name code: files with the extension of a source, the first argument
//! that is not an option, and the values of options for code. The options differ by program: for Perl, `-e` has the
//! code in the next argument; for a shell, it is a switch.

use std::collections::VecDeque;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A command line with its environment.
#[derive(Clone, Copy, Debug)]
pub struct CommandLine<'a> {
    /// The program: a path, or a name to search for.
    pub command: &'a str,
    /// The arguments of the program.
    pub args: &'a [String],
    /// The working directory in which it is started.
    pub folder: &'a Path,
    /// The search path for programs; `None`: the gateway's own `PATH`.
    pub path: Option<&'a OsStr>,
}

/// Most files that one program runs.
const FILES: usize = 512;
/// Greatest total size of these files, in bytes.
const BYTES: u64 = 64 << 20;
/// Greatest nesting of folders.
const DEPTH: usize = 8;
/// Most files that are reported individually, and not by their folders.
const SINGLE: usize = 16;
/// Greatest length of a chain of programs that start each other.
const STARTS: usize = 8;

/// The role of an option's value.
#[derive(Clone, Copy)]
enum OptionRole {
    /// It is unrelated to the code.
    Value,
    /// The same, and it is part of the same argument if it is present.
    Attached,
    /// It names code that is run as well.
    Run,
    /// It names a folder that other arguments are relative to.
    Folder,
    /// It names the code that is run, and the remaining arguments belong to that.
    Last,
    /// It is a list of paths to code, separated by colons.
    List,
    /// It is a module or the code itself, and the remaining arguments belong to that.
    Text,
    /// It is the beginning of a command line.
    Words,
}

use OptionRole::{Attached, Folder, Last, List, Run, Text, Value, Words};

/// The role of the first argument that is not an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstArgument {
    /// A file that is run; one that does not exist is the value of an unknown option.
    File,
    /// A file, a folder or a name that is run. The remaining arguments belong to it.
    Thing,
    /// A command, followed by its arguments.
    Command,
}

/// How options of a single letter are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionLetters {
    /// Several can be combined in one argument.
    Clustered,
    /// Each has an argument of its own.
    Single,
}

/// A program that runs code that its arguments name.
struct ScriptRunner {
    /// Its names, each optionally followed by a version.
    names: &'static [&'static str],
    /// Its options that are not mere switches.
    options: &'static [(&'static str, OptionRole)],
    letters: OptionLetters,
    first: FirstArgument,
    /// First arguments that are subcommands.
    verbs: &'static [&'static str],
}

static RUNNERS: [ScriptRunner; 15] = [
    ScriptRunner {
        names: &["python", "pypy"],
        options: &[
            ("-m", Text),
            ("-c", Text),
            ("-X", Value),
            ("-W", Value),
            ("--check-hash-based-pycs", Value),
        ],
        letters: OptionLetters::Clustered,
        first: FirstArgument::File,
        verbs: &[],
    },
    ScriptRunner {
        names: &["node", "tsx", "ts-node"],
        options: &[
            ("-e", Text),
            ("--eval", Text),
            ("-p", Text),
            ("-pe", Text),
            ("--print", Text),
            ("-r", Run),
            ("--require", Run),
            ("--import", Run),
            ("--loader", Run),
            ("--experimental-loader", Run),
            ("-C", Value),
            ("--conditions", Value),
            ("-P", Value),
            ("--project", Value),
            ("--tsconfig", Value),
            ("--title", Value),
        ],
        letters: OptionLetters::Single,
        first: FirstArgument::File,
        verbs: &["watch"],
    },
    ScriptRunner {
        names: &["bash", "sh", "dash", "zsh", "ksh"],
        options: &[
            ("-c", Text),
            ("-o", Value),
            ("-O", Value),
            ("--rcfile", Run),
            ("--init-file", Run),
        ],
        letters: OptionLetters::Clustered,
        first: FirstArgument::File,
        verbs: &[],
    },
    ScriptRunner {
        names: &["ruby"],
        options: &[
            ("-e", Text),
            ("-r", Run),
            ("-C", Folder),
            ("-I", Value),
            ("-E", Value),
            ("-F", Attached),
            ("-K", Attached),
            ("-T", Attached),
            ("-W", Attached),
            ("-i", Attached),
            ("-x", Attached),
            ("-0", Attached),
        ],
        letters: OptionLetters::Clustered,
        first: FirstArgument::File,
        verbs: &[],
    },
    ScriptRunner {
        names: &["perl"],
        options: &[
            ("-e", Text),
            ("-E", Text),
            ("-I", Value),
            ("-C", Attached),
            ("-D", Attached),
            ("-F", Attached),
            ("-M", Attached),
            ("-V", Attached),
            ("-i", Attached),
            ("-l", Attached),
            ("-m", Attached),
            ("-x", Attached),
            ("-0", Attached),
        ],
        letters: OptionLetters::Clustered,
        first: FirstArgument::File,
        verbs: &[],
    },
    ScriptRunner {
        names: &["php"],
        options: &[
            ("-r", Text),
            ("--run", Text),
            ("-R", Text),
            ("-f", Last),
            ("--file", Last),
            ("-F", Last),
            ("-c", Value),
            ("-d", Value),
            ("-t", Value),
            ("-S", Value),
            ("-z", Run),
        ],
        letters: OptionLetters::Clustered,
        first: FirstArgument::File,
        verbs: &[],
    },
    ScriptRunner {
        names: &["lua"],
        // A script may follow the code in these arguments.
        options: &[("-e", Value), ("-l", Value)],
        letters: OptionLetters::Single,
        first: FirstArgument::File,
        verbs: &[],
    },
    ScriptRunner {
        names: &["java"],
        options: &[
            ("-jar", Last),
            ("-cp", List),
            ("-classpath", List),
            ("--class-path", List),
            ("-p", List),
            ("--module-path", List),
            ("-m", Text),
            ("--module", Text),
            ("--add-modules", Value),
            ("--add-opens", Value),
            ("--add-exports", Value),
        ],
        letters: OptionLetters::Single,
        first: FirstArgument::Thing,
        verbs: &[],
    },
    ScriptRunner {
        names: &["dotnet"],
        options: &[
            ("--project", Folder),
            ("-c", Value),
            ("--configuration", Value),
            ("-f", Value),
            ("--framework", Value),
            ("--launch-profile", Value),
            ("--additionalprobingpath", Value),
        ],
        letters: OptionLetters::Single,
        first: FirstArgument::Thing,
        verbs: &["run", "exec", "watch"],
    },
    ScriptRunner {
        names: &["pwsh"],
        options: &[
            ("-File", Last),
            ("-file", Last),
            ("-f", Last),
            ("-Command", Text),
            ("-command", Text),
            ("-c", Text),
            ("-EncodedCommand", Text),
            ("-e", Text),
            ("-ExecutionPolicy", Value),
            ("-WorkingDirectory", Folder),
        ],
        letters: OptionLetters::Single,
        first: FirstArgument::File,
        verbs: &[],
    },
    ScriptRunner {
        names: &["deno"],
        options: &[
            ("-c", Value),
            ("--config", Value),
            ("--import-map", Run),
            ("--preload", Run),
            ("--cwd", Folder),
        ],
        letters: OptionLetters::Single,
        first: FirstArgument::Thing,
        verbs: &["run", "task", "serve", "x"],
    },
    ScriptRunner {
        names: &["bun", "bunx"],
        options: &[
            ("-e", Text),
            ("--eval", Text),
            ("-p", Text),
            ("--print", Text),
            ("-r", Run),
            ("--require", Run),
            ("--import", Run),
            ("--preload", Run),
            ("--cwd", Folder),
            ("--package", Value),
        ],
        letters: OptionLetters::Single,
        first: FirstArgument::Command,
        verbs: &["run", "x", "exec", "start"],
    },
    ScriptRunner {
        names: &["npx", "npm", "pnpm", "pnpx", "yarn"],
        options: &[
            ("-c", Text),
            ("--call", Text),
            ("--prefix", Folder),
            ("--cwd", Folder),
            ("--dir", Folder),
            ("-C", Folder),
            ("-p", Value),
            ("--package", Value),
            ("-w", Value),
            ("--workspace", Value),
            ("--registry", Value),
            ("--cache", Value),
            ("--userconfig", Value),
        ],
        letters: OptionLetters::Single,
        first: FirstArgument::Command,
        verbs: &["run", "run-script", "exec", "x", "dlx", "start"],
    },
    ScriptRunner {
        names: &["uv", "uvx"],
        options: &[
            ("-m", Text),
            ("--module", Text),
            ("--from", Run),
            ("--with-editable", Run),
            ("--directory", Folder),
            ("--project", Folder),
            ("--with", Value),
            ("--with-requirements", Value),
            ("-p", Value),
            ("--python", Value),
            ("--package", Value),
            ("--extra", Value),
            ("--group", Value),
            ("--env-file", Value),
            ("--index", Value),
            ("--index-url", Value),
            ("--extra-index-url", Value),
            ("--default-index", Value),
            ("-i", Value),
            ("--config-file", Value),
            ("--cache-dir", Value),
        ],
        letters: OptionLetters::Clustered,
        first: FirstArgument::Command,
        verbs: &["run", "tool", "x"],
    },
    ScriptRunner {
        names: &["pipx"],
        options: &[
            ("--spec", Run),
            ("--python", Value),
            ("--index-url", Value),
            ("-i", Value),
            ("--pip-args", Value),
        ],
        letters: OptionLetters::Single,
        first: FirstArgument::Command,
        verbs: &["run"],
    },
];

/// A program that only starts another one.
struct CommandWrapper {
    name: &'static str,
    options: &'static [(&'static str, OptionRole)],
    /// Number of non-option arguments before the command.
    before: usize,
}

static WRAPPERS: [CommandWrapper; 9] = [
    CommandWrapper {
        name: "env",
        options: &[
            ("-u", Value),
            ("--unset", Value),
            ("-C", Folder),
            ("--chdir", Folder),
            ("-a", Value),
            ("--argv0", Value),
            ("-S", Words),
            ("--split-string", Words),
        ],
        before: 0,
    },
    CommandWrapper { name: "nice", options: &[("-n", Value), ("--adjustment", Value)], before: 0 },
    CommandWrapper { name: "nohup", options: &[], before: 0 },
    CommandWrapper { name: "setsid", options: &[], before: 0 },
    CommandWrapper {
        name: "stdbuf",
        options: &[
            ("-i", Value),
            ("--input", Value),
            ("-o", Value),
            ("--output", Value),
            ("-e", Value),
            ("--error", Value),
        ],
        before: 0,
    },
    CommandWrapper {
        name: "timeout",
        options: &[("-k", Value), ("--kill-after", Value), ("-s", Value), ("--signal", Value)],
        before: 1,
    },
    CommandWrapper {
        name: "ionice",
        options: &[("-c", Value), ("--class", Value), ("-n", Value), ("--classdata", Value)],
        before: 0,
    },
    CommandWrapper { name: "tini", options: &[("-p", Value), ("-e", Value)], before: 0 },
    CommandWrapper {
        name: "dumb-init",
        options: &[("-r", Value), ("--rewrite", Value)],
        before: 0,
    },
];

/// File extensions of sources and executable archives.
const SOURCES: [&str; 19] = [
    "py", "pyz", "js", "mjs", "cjs", "ts", "mts", "cts", "jsx", "tsx", "sh", "bash", "rb", "pl",
    "php", "jar", "dll", "lua", "ps1",
];
/// Files that determine what a folder runs.
const MANIFESTS: [&str; 10] = [
    "package.json",
    "package-lock.json",
    "pyproject.toml",
    "uv.lock",
    "requirements.txt",
    "setup.py",
    "deno.json",
    "deno.lock",
    "__main__.py",
    "bun.lock",
];
/// Subfolders of a package that contain files of others.
const OTHERS: [&str; 2] = ["node_modules", "__pycache__"];

/// The files that a program runs beside itself, sorted and without duplicates.
///
/// # Errors
/// When one of them cannot be read, or a limit is exceeded.
pub fn of(started: CommandLine<'_>) -> io::Result<Vec<PathBuf>> {
    let mut line = CommandAnalysis {
        command: started.command.to_owned(),
        words: started.args.iter().cloned().collect(),
        folders: vec![started.folder.to_owned()],
        path: started.path.map(OsStr::to_owned),
        found: FoundCode::default(),
    };
    for _ in 0..STARTS {
        let goes_on = match ProgramKind::of(&line.command) {
            ProgramKind::Wrapper(wrapper) => line.start(wrapper),
            ProgramKind::Runner(runner) => line.run(runner)?,
            ProgramKind::Other => false,
        };
        if !goes_on {
            let mut files = line.found.files;
            files.sort();
            files.dedup();
            return Ok(files);
        }
    }
    let what = "more programs start one another than can be looked through";
    Err(io::Error::new(io::ErrorKind::FileTooLarge, what))
}

/// The paths that determine the behaviour of a command beside its program, sorted and without duplicates: the result of
/// [`of`], and every regular file whose path is written in an argument. Many files are represented by their folders.
///
/// # Errors
/// The errors of [`of`].
pub fn named(started: CommandLine<'_>) -> io::Result<Vec<PathBuf>> {
    let run = of(started)?;
    let folders = run.len() > SINGLE;
    let run = run.into_iter().map(|file| match file.parent() {
        Some(folder) if folders => folder.to_owned(),
        Some(_) | None => file,
    });
    let words = started.args.iter().flat_map(|arg| {
        let plain = arg.split(is_between).chain([&**arg]).map(str::to_owned);
        plain.chain(shell_words(arg))
    });
    // An option and its value may be one argument: `-f/etc/own.conf`.
    let written = words.flat_map(|word| {
        let rooted = word.find('/').and_then(|at| word.get(at..)).map(PathBuf::from);
        rooted.into_iter().chain([started.folder.join(&word)])
    });
    let mut all: Vec<_> = run.chain(written.filter(|path| path.is_file())).collect();
    all.sort();
    // A path in a folder that is in the list directly follows that folder.
    all.dedup_by(|next, known| next.starts_with(&*known));
    Ok(all)
}

/// Whether a character separates words and paths: in a shell command, between an option and its value, and
/// in a list.
fn is_between(c: char) -> bool {
    c.is_whitespace() || "=,:;|&<>()'\"`@".contains(c)
}

/// The words of a text as a shell splits it: quoted and escaped characters belong to their word, blanks
/// included (POSIX.1-2024, shell command language, section 2.2).
fn shell_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None | Some('"'), '\\') => word.extend(chars.next()),
            (None, c) if is_between(c) => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    words
}

/// The file of a program, as the system finds it: relative to `folder`, in `path` or in the gateway's own `PATH`.
///
/// # Errors
/// When no such file exists.
pub fn look_up(command: &str, folder: &Path, path: Option<&OsStr>) -> io::Result<PathBuf> {
    let command = Path::new(command);
    if command.components().count() > 1 {
        return folder.join(command).canonicalize();
    }
    let path = path.map(OsStr::to_owned).or_else(|| env::var_os("PATH")).unwrap_or_default();
    let starts = |file: &PathBuf| {
        let data = file.metadata();
        data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let found = env::split_paths(&path).map(|folder| folder.join(command)).find(starts);
    found.ok_or(io::ErrorKind::NotFound)?.canonicalize()
}

/// The classification of a program by its name.
enum ProgramKind {
    Runner(&'static ScriptRunner),
    Wrapper(&'static CommandWrapper),
    Other,
}

impl ProgramKind {
    fn of(command: &str) -> Self {
        let name = Path::new(command).file_name().and_then(OsStr::to_str).unwrap_or_default();
        let version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
        let is_named = |start: &&str| name.strip_prefix(*start).is_some_and(version);
        if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
            return Self::Wrapper(wrapper);
        }
        let runner = RUNNERS.iter().find(|runner| runner.names.iter().any(is_named));
        runner.map_or(Self::Other, Self::Runner)
    }
}

/// An option argument with its role.
enum ParsedOption<'a> {
    /// A switch without a value.
    Switch,
    /// An option with its value in the same argument.
    With(OptionRole, &'a str),
    /// An option with its value in the next argument.
    Next(OptionRole),
}

/// Parses an argument that begins with `-`.
fn option<'a>(
    word: &'a str,
    options: &[(&str, OptionRole)],
    letters: OptionLetters,
) -> ParsedOption<'a> {
    let means = |name: &str| options.iter().find(|(known, _)| *known == name).map(|(_, m)| *m);
    if let Some(means) = means(word) {
        return if matches!(means, Attached) {
            ParsedOption::Switch
        } else {
            ParsedOption::Next(means)
        };
    }
    if let Some((name, value)) = word.split_once('=')
        && (name.starts_with("--") || means(name).is_some())
    {
        return ParsedOption::With(means(name).unwrap_or(Value), value);
    }
    let letters = word
        .strip_prefix('-')
        .filter(|rest| letters == OptionLetters::Clustered && !rest.starts_with('-'));
    let Some(letters) = letters else { return ParsedOption::Switch };
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        match (means(&format!("-{letter}")), rest.as_str()) {
            (Some(Attached), _) => return ParsedOption::Switch,
            (Some(means), "") => return ParsedOption::Next(means),
            (Some(means), value) => return ParsedOption::With(means, value),
            (None, _) => {}
        }
    }
    ParsedOption::Switch
}

/// The state of analysing a command line.
struct CommandAnalysis {
    command: String,
    words: VecDeque<String>,
    /// Folders that file names may be relative to.
    folders: Vec<PathBuf>,
    path: Option<OsString>,
    found: FoundCode,
}

impl CommandAnalysis {
    fn exists(&self, name: &str) -> bool {
        self.folders.iter().any(|folder| folder.join(name).exists())
    }

    fn enter(&mut self, folder: &str) {
        if let Some(here) = self.folders.first() {
            self.folders.push(here.join(folder));
        }
    }

    /// Continues with the command that a wrapper starts; `false` if there is none. The file of the command counts as
    /// code.
    fn start(&mut self, wrapper: &CommandWrapper) -> bool {
        let (mut before, mut options) = (wrapper.before, true);
        while let Some(word) = self.words.pop_front() {
            if options && word == "--" {
                options = false;
            } else if options && word.starts_with('-') {
                let (means, value) = match option(&word, wrapper.options, OptionLetters::Clustered)
                {
                    ParsedOption::Switch => continue,
                    ParsedOption::With(means, value) => (means, value.to_owned()),
                    ParsedOption::Next(means) => {
                        (means, self.words.pop_front().unwrap_or_default())
                    }
                };
                match means {
                    Folder => self.enter(&value),
                    Words => {
                        let words = value.split_whitespace().rev();
                        words.for_each(|word| self.words.push_front(word.to_owned()));
                    }
                    Value | Attached | Run | Last | List | Text => {}
                }
            } else if wrapper.name == "env"
                && let Some((name, value)) = word.split_once('=')
            {
                if name == "PATH" {
                    self.path = Some(value.into());
                }
            } else if before > 0 {
                before -= 1;
            } else {
                let path = self.path.as_deref();
                // A file that does not exist cannot be started either.
                let file = self.folders.iter().find_map(|from| look_up(&word, from, path).ok());
                self.found.files.extend(file);
                self.command = word;
                return true;
            }
        }
        false
    }

    /// Finds the code that a runner runs; `true` if that is another command, which becomes the current one.
    fn run(&mut self, runner: &ScriptRunner) -> io::Result<bool> {
        let mut named: Vec<(String, bool)> = Vec::new();
        // Whether options still belong to the runner, and whether the next other argument is the code.
        let (mut own, mut first, mut goes_on) = (true, true, false);
        while let Some(word) = self.words.pop_front() {
            if own && word == "--" {
                own = false;
                continue;
            }
            if word.starts_with('-') && word != "-" {
                let read = if own {
                    option(&word, runner.options, runner.letters)
                } else {
                    ParsedOption::Switch
                };
                let (means, value) = match read {
                    ParsedOption::With(means, value) => (means, value.to_owned()),
                    ParsedOption::Next(means) => {
                        (means, self.words.pop_front().unwrap_or_default())
                    }
                    ParsedOption::Switch => match word.split_once('=') {
                        Some((_, value)) => (Value, value.to_owned()),
                        None => continue,
                    },
                };
                match means {
                    Folder => self.enter(&value),
                    Last | Text => (first, own) = (false, false),
                    Value | Attached | Run | List | Words => {}
                }
                if matches!(means, List) {
                    named.extend(value.split(':').map(|path| (path.to_owned(), true)));
                } else {
                    named.push((value, matches!(means, Run | Folder | Last)));
                }
                continue;
            }
            let exists = self.exists(&word);
            if first && !exists && runner.verbs.contains(&&*word) {
                continue;
            }
            let is_command = first && !exists && runner.first == FirstArgument::Command;
            if is_command && !matches!(ProgramKind::of(&word), ProgramKind::Other) {
                (self.command, goes_on) = (word, true);
                break;
            }
            named.push((word, first));
            first = first && runner.first == FirstArgument::File && !exists;
            // Package managers accept their options in any position.
            own = own && (first || runner.first == FirstArgument::Command);
        }
        for (value, is_run) in named.iter().filter(|(value, _)| !value.is_empty()) {
            for folder in &self.folders {
                self.found.add(&folder.join(value), *is_run)?;
            }
        }
        Ok(goes_on)
    }
}

fn is_source(path: &Path) -> bool {
    let ending = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    ending.is_some_and(|ending| SOURCES.contains(&&*ending))
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| MANIFESTS.contains(&name))
}

#[derive(Default)]
struct FoundCode {
    files: Vec<PathBuf>,
    bytes: u64,
}

impl FoundCode {
    /// Adds the file or the package at `path`, if it is code.
    fn add(&mut self, path: &Path, is_run: bool) -> io::Result<()> {
        let Ok(data) = path.metadata() else { return Ok(()) };
        if data.is_file() && (is_run || is_source(path)) {
            return self.file(path, data.len());
        }
        let is_package = || MANIFESTS.iter().any(|name| path.join(name).is_file());
        if data.is_dir() && is_run && is_package() { self.folder(path, DEPTH) } else { Ok(()) }
    }

    fn file(&mut self, path: &Path, bytes: u64) -> io::Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.files.push(path.canonicalize()?);
        if self.files.len() > FILES || self.bytes > BYTES {
            let what = "more files are run than can be looked at";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        Ok(())
    }

    fn folder(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let (name, path) = (entry.file_name(), entry.path());
            // Links to folders are not followed, because they could form a cycle.
            let data = path.symlink_metadata()?;
            let text = name.to_str().unwrap_or_default();
            let own = !text.starts_with('.') && !OTHERS.contains(&text);
            if data.is_dir() && own {
                let too_deep = || io::Error::from(io::ErrorKind::FileTooLarge);
                self.folder(&path, depth.checked_sub(1).ok_or_else(too_deep)?)?;
            } else if path.is_file() && (is_source(&path) || is_manifest(&path)) {
                self.file(&path, path.metadata()?.len())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandLine, FILES, named, of};
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("portcullis-scripts-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(folder.join("pkg/src")).unwrap();
            fs::create_dir_all(folder.join("pkg/node_modules/other")).unwrap();
            fs::create_dir_all(folder.join("data")).unwrap();
            for file in [
                "server.py",
                "hook.js",
                "tool",
                "data.db",
                "notes.json",
                "data/x.py",
                "pkg/package.json",
                "pkg/src/main.js",
                "pkg/README.md",
                "pkg/node_modules/other/index.js",
            ] {
                fs::write(folder.join(file), file).unwrap();
            }
            Self(folder.canonicalize().unwrap())
        }

        fn line<'a>(&'a self, command: &'a str, args: &'a [String]) -> CommandLine<'a> {
            CommandLine { command, args, folder: &self.0, path: None }
        }

        fn run(&self, line: &str) -> Vec<String> {
            let mut words = line.split(' ').map(str::to_owned);
            let command = words.next().unwrap();
            let args: Vec<_> = words.collect();
            let files = of(self.line(&command, &args)).unwrap();
            // The files of an interpreter that a wrapper starts are outside the test folder.
            let own = files.iter().filter_map(|file| file.strip_prefix(&self.0).ok());
            own.map(|file| file.display().to_string()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn what_is_run_is_found_and_what_is_data_is_not() {
        let folder = Folder::new("found");
        for (line, expected) in [
            ("python3 server.py --db data.db notes.json", &["server.py"][..]),
            ("/usr/bin/python3.12 -u server.py data", &["server.py"]),
            ("node --require ./hook.js tool notes.json", &["hook.js", "tool"]),
            ("bash tool data.db", &["tool"]),
            ("uv run --with mcp server.py data", &["server.py"]),
            ("uvx --from ./pkg tool-of-it data", &["pkg/package.json", "pkg/src/main.js"]),
            ("uv --directory=pkg run src/main.js", &["pkg/package.json", "pkg/src/main.js"]),
            ("npx -y ./pkg data", &["pkg/package.json", "pkg/src/main.js"]),
            ("npx -y @scope/server data", &[]),
            ("npx @scope/server data.db", &[]),
            ("server-of-its-own server.py", &[]),
            ("python3 -m server data.db", &[]),
            ("python3 -u server.py data.db", &["server.py"]),
            // The same option differs between interpreters.
            ("bash -e ./tool data.db", &["tool"]),
            ("bash -euo pipefail ./tool data.db", &["tool"]),
            ("bash --norc -O extglob ./tool", &["tool"]),
            ("bash -ec tool data.db", &[]),
            ("sh -c tool", &[]),
            ("perl -e tool data.db", &[]),
            ("perl -ne tool data.db", &[]),
            ("perl -Idata tool data.db", &["tool"]),
            ("ruby -r./hook.js tool", &["hook.js", "tool"]),
            ("lua -e x=1 tool", &["tool"]),
            ("node -p tool", &[]),
            ("node --unheard-of value tool data.db", &["tool"]),
            ("python3 -Im server data.db", &[]),
            ("python3 -Xdev -W ignore tool data.db", &["tool"]),
            ("python3 tool -c data.db", &["tool"]),
            ("java -jar tool data.db", &["tool"]),
            ("java -cp tool:pkg Main data.db", &["pkg/package.json", "pkg/src/main.js", "tool"]),
            ("php -r tool", &[]),
            ("php -f tool data.db", &["tool"]),
            // The command of a wrapper is analysed in turn.
            ("env -i A=b python3 server.py data.db", &["server.py"]),
            ("env -u HOME -- bash -e ./tool", &["tool"]),
            ("/usr/bin/env -S bash -e ./tool", &["tool"]),
            ("env -C pkg node src/main.js", &["pkg/src/main.js"]),
            ("nice -n 5 nohup setsid -w ./tool data.db", &["tool"]),
            ("nice -5 python3 tool", &["tool"]),
            ("timeout -k 5 60 stdbuf -oL python3 tool data.db", &["tool"]),
            ("tini -g -- bash ./tool", &["tool"]),
            ("uv run --with mcp bash -e ./tool data.db", &["tool"]),
            ("npx -y tsx tool data.db", &["tool"]),
            ("npm run serve --prefix ./pkg", &["pkg/package.json", "pkg/src/main.js"]),
        ] {
            assert_eq!(folder.run(line), expected, "{line}");
        }
    }

    #[test]
    fn a_package_of_more_files_than_can_be_told_is_an_error() {
        let folder = Folder::new("many");
        for n in 0..=FILES {
            fs::write(folder.0.join(format!("pkg/{n}.js")), "x").unwrap();
        }
        assert!(of(folder.line("node", &["./pkg".to_owned()])).is_err());
    }

    #[test]
    fn a_file_that_a_command_names_is_found_wherever_it_stands_in_an_argument() {
        let folder = Folder::new("named");
        let at = folder.0.display();
        fs::write(folder.0.join("my script"), "x").unwrap();
        let found = |line: &str, args: &[String]| {
            let files = named(folder.line(line, args)).unwrap();
            let own = files.iter().filter_map(|file| file.strip_prefix(&folder.0).ok());
            own.map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        for (line, arg, expected) in [
            ("/opt/own", format!("{at}/tool"), &["tool"][..]),
            ("/opt/own", format!("--config={at}/data.db"), &["data.db"]),
            ("sh", format!("A=b '{at}/tool' <{at}/data.db;{at}/none"), &["data.db", "tool"]),
            ("/opt/own", format!("{at}/data"), &[]),
            ("/opt/own", format!("-f{at}/tool"), &["tool"]),
            ("/opt/own", "tool".to_owned(), &["tool"]),
            ("bash", "./pkg/src/main.js".to_owned(), &["pkg/src/main.js"]),
            ("sh", format!("exec \"{at}/my script\" --now"), &["my script"]),
            ("sh", format!("'{at}/my script'"), &["my script"]),
            ("sh", format!("cat {at}/my\\ script"), &["my script"]),
            ("sh", format!("\"{at}\"/tool"), &["tool"]),
        ] {
            let args = if line == "sh" { vec!["-c".to_owned(), arg] } else { vec![arg] };
            assert_eq!(found(line, &args), expected, "{args:?}");
        }
        for n in 0..20 {
            fs::write(folder.0.join(format!("pkg/{n}.js")), "x").unwrap();
        }
        assert_eq!(found("node", &["./pkg".to_owned()]), ["pkg"]);
    }

    #[test]
    fn a_program_that_another_one_starts_is_found_as_the_system_finds_it() {
        let folder = Folder::new("found-by-path");
        let tool = folder.0.join("tool");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let run = |args: &[&str], path: Option<&OsStr>| {
            let args: Vec<_> = args.iter().map(|&arg| arg.to_owned()).collect();
            of(CommandLine { command: "env", args: &args, folder: Path::new(""), path }).unwrap()
        };
        assert_eq!(run(&["tool"], Some(folder.0.as_os_str())), std::slice::from_ref(&tool));
        assert_eq!(run(&[&format!("PATH={}", folder.0.display()), "tool"], None), [tool]);
        assert!(run(&["no-such-tool-anywhere"], None).is_empty());
    }

    #[test]
    fn programs_that_start_one_another_without_end_are_an_error() {
        let args = vec!["nice".to_owned(); 100];
        let line = CommandLine { command: "nice", args: &args, folder: Path::new(""), path: None };
        assert!(of(line).is_err());
    }
}
