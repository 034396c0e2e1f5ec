//! What a program runs that its arguments name: the script behind an interpreter, or the folder of a package
//! behind a launcher. It can be changed while the program that is started stays the same (threat T1207).
//!
//! Arguments name data as well, which may change, so only interpreters and launchers are looked at, and of
//! their arguments only those that name code: a file with the ending of a source, the first argument
//! that is no option, and the values of options that say what is run.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::settings::Program;

/// Most files that one program runs.
const FILES: usize = 512;
/// Most bytes of all of them.
const BYTES: u64 = 64 << 20;
/// Most folders within each other.
const DEPTH: usize = 8;
/// Beginnings of the names of programs that run what their arguments name; a version may follow.
const RUNNERS: [&str; 26] = [
    "python", "pypy", "node", "deno", "bun", "bunx", "npx", "npm", "pnpm", "yarn", "tsx",
    "ts-node", "uv", "uvx", "pipx", "bash", "sh", "dash", "zsh", "ruby", "perl", "php", "java",
    "dotnet", "lua", "pwsh",
];
/// Endings of files that are run.
const SOURCES: [&str; 19] = [
    "py", "pyz", "js", "mjs", "cjs", "ts", "mts", "cts", "jsx", "tsx", "sh", "bash", "rb", "pl",
    "php", "jar", "dll", "lua", "ps1",
];
/// Files that say what a folder runs.
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
/// Folders below that of a package whose files are not its own.
const OTHERS: [&str; 2] = ["node_modules", "__pycache__"];
/// Options whose value says what is run.
const RUN: [&str; 10] = [
    "--from",
    "--directory",
    "--project",
    "--prefix",
    "--cwd",
    "--require",
    "-r",
    "--import",
    "--loader",
    "-jar",
];
/// Of these, the ones whose value is a folder that other arguments are relative to.
const FOLDERS: [&str; 4] = ["--directory", "--project", "--prefix", "--cwd"];
/// Options whose value says nothing of what is run.
const VALUED: [&str; 11] = [
    "-X",
    "-W",
    "-C",
    "--with",
    "--with-requirements",
    "--python",
    "-p",
    "--package",
    "--index",
    "--index-url",
    "--extra-index-url",
];
/// Options after which no file is run: the program is a module, or stands in the argument.
const PROGRAMS: [&str; 5] = ["-m", "-c", "-e", "--eval", "--call"];
/// First arguments that say what is done, and not with what.
const VERBS: [&str; 7] = ["run", "exec", "tool", "x", "dlx", "start", "task"];

/// The files that a program runs besides itself, each once, in order.
///
/// # Errors
/// When one of them cannot be read, or there are more than can be told.
pub(super) fn of(program: &Program) -> io::Result<Vec<PathBuf>> {
    if !is_runner(&program.command) {
        return Ok(Vec::new());
    }
    let here = program.directory.clone().unwrap_or_default();
    let mut folders = vec![here.clone()];
    let mut named: Vec<(&str, bool)> = Vec::new();
    let (mut first, mut option) = (true, None);
    for argument in &program.args {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with('-') => (Some(name), value),
            _ if argument.starts_with('-') => {
                let name = argument.as_str();
                option = Some(name).filter(|name| RUN.contains(name) || VALUED.contains(name));
                first &= !PROGRAMS.contains(&name);
                continue;
            }
            _ => (option.take(), argument.as_str()),
        };
        if name.is_some_and(|name| FOLDERS.contains(&name)) {
            folders.push(here.join(value));
        }
        let runs = name.is_some_and(|name| RUN.contains(&name));
        let exists = || folders.iter().any(|folder| folder.join(value).exists());
        let verb = name.is_none() && VERBS.contains(&value) && !exists();
        named.push((value, runs || first && name.is_none() && !verb));
        first &= name.is_some() || verb;
    }
    let mut found = Found::default();
    for (value, is_run) in named {
        for folder in &folders {
            found.add(&folder.join(value), is_run)?;
        }
    }
    found.files.sort();
    found.files.dedup();
    Ok(found.files)
}

fn is_runner(command: &str) -> bool {
    let name = Path::new(command).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
    RUNNERS.iter().any(|runner| name.strip_prefix(runner).is_some_and(version))
}

fn is_source(path: &Path) -> bool {
    let ending = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    ending.is_some_and(|ending| SOURCES.contains(&&*ending))
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| MANIFESTS.contains(&name))
}

#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    bytes: u64,
}

impl Found {
    /// Adds what is at `path`, if it is code.
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
            let what = "more is run than an approval can be bound to";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        Ok(())
    }

    fn folder(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let (name, path) = (entry.file_name(), entry.path());
            // Links are not followed: they could lead round in a circle.
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
    use super::{FILES, of};
    use crate::settings::Program;
    use std::fs;
    use std::path::PathBuf;

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

        fn run(&self, line: &str) -> Vec<String> {
            let mut words = line.split(' ').map(str::to_owned);
            let command = words.next().unwrap();
            let (args, directory) = (words.collect(), Some(self.0.clone()));
            let program = Program { command, args, env: Vec::new(), directory, sandbox: None };
            let files = of(&program).unwrap().into_iter();
            let files = files.map(|file| file.strip_prefix(&self.0).unwrap().display().to_string());
            files.collect()
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
        let (args, directory) = (vec!["./pkg".to_owned()], Some(folder.0.clone()));
        let command = "node".to_owned();
        let program = Program { command, args, env: Vec::new(), directory, sandbox: None };
        assert!(of(&program).is_err());
    }
}
