//! Interprets the arguments of programs that run something else: package runners, container runners, Python modules.

use std::collections::BTreeMap;
use std::path::Path;

use super::secrets::ArgPosition;

/// The file name of a program, without its folder.
pub(super) fn program_name(command: &str) -> &str {
    Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// A package as a runner's argument names it: possibly with an option before it, a version, or extras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Package<'a> {
    /// Name with its scope.
    pub(super) name: &'a str,
    /// Version after `==` or `@`.
    pub(super) version: Option<&'a str>,
}

impl<'a> Package<'a> {
    /// Parses an argument of a runner.
    pub(super) fn read(argument: &'a str) -> Self {
        let package = match argument.split_once('=') {
            Some((flag, package)) if flag.starts_with("--") => package,
            _ => argument,
        };
        let scope = usize::from(package.starts_with('@'));
        let rest = package.get(scope..).unwrap_or_default();
        let end = rest.find(['@', '=', '<', '>', '~', '!', '[']).unwrap_or(rest.len()) + scope;
        let (name, rest) = package.split_at_checked(end).unwrap_or((package, ""));
        let extras = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let rest = extras.map_or(rest, |(_, rest)| rest);
        let version = rest.strip_prefix("==").or_else(|| rest.strip_prefix('@'));
        Self { name, version }
    }

    /// Whether it names exactly one version. `1`, `1.2`, `1.2.x` and `1.2.*` match several, of which the latest would
    /// run.
    fn is_exact(&self) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-+_".contains(c);
        let is_number = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
        self.version.is_some_and(|version| {
            let mut parts = version.split('.');
            let numbers = parts.by_ref().take(3).filter(|part| is_number(part)).count();
            numbers == 3 && version.chars().all(plain)
        })
    }
}

/// Indexes of the arguments that name packages to run.
pub(super) fn packages(command: &str, args: &[String]) -> Vec<usize> {
    runs(command, args).packages
}

/// Index of the argument that names the executable, if an option names the package.
pub(super) fn executable(command: &str, args: &[String]) -> Option<usize> {
    runs(command, args).executable
}

/// Indexes of a package runner's arguments.
#[derive(Debug, Default)]
struct RunnerTargets {
    /// The arguments that name packages.
    packages: Vec<usize>,
    /// The argument that names an executable, if an option names the package.
    executable: Option<usize>,
}

/// Finds what a package runner runs; empty if `command` is none.
fn runs(command: &str, args: &[String]) -> RunnerTargets {
    let runner = program_name(command);
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let skipped = match (runner, &words[..]) {
        ("npx" | "bunx" | "pnpx" | "uvx", _) => 0,
        ("npm", ["exec" | "x", ..])
        | ("pnpm" | "yarn", ["dlx" | "exec", ..])
        | ("bun", ["x", ..]) => 1,
        ("pipx", ["run", ..]) => 1,
        ("uv", ["run", ..]) if words.contains(&"--with") => 1,
        ("uv", ["tool", "run", ..]) => 2,
        _ => return RunnerTargets::default(),
    };
    let (mut found, mut executable) = (Vec::new(), None);
    let (mut named, mut rest) = (false, words.iter().enumerate().skip(skipped));
    while let Some((n, word)) = rest.next() {
        match *word {
            "-p" | "--package" | "--from" | "--with" | "--spec" => {
                found.extend(rest.next().map(|(n, _)| n));
                named = true;
            }
            word if word.starts_with("--package=") || word.starts_with("--from=") => {
                found.push(n);
                named = true;
            }
            word if word.starts_with('-') => {}
            // The remaining arguments belong to the executable.
            _ if named => {
                executable = Some(n);
                break;
            }
            _ => {
                found.push(n);
                break;
            }
        }
    }
    RunnerTargets { packages: found, executable }
}

/// Index of the module that a Python interpreter runs.
pub(super) fn module(command: &str, args: &[String]) -> Option<usize> {
    let is_module =
        program_name(command).starts_with("python") && args.first().is_some_and(|arg| arg == "-m");
    is_module.then_some(1)
}

/// The meaning of a container runner's own arguments, up to the image. Empty if it is not clear where they end.
pub(super) fn container(command: &str, args: &[String]) -> BTreeMap<usize, ArgPosition<'static>> {
    const ALONE: [&str; 9] =
        ["-i", "-t", "-it", "-ti", "--interactive", "--tty", "--rm", "--init", "--read-only"];
    const FOLLOWED: [&str; 12] = [
        "--name",
        "--network",
        "--platform",
        "--pull",
        "--workdir",
        "-w",
        "--user",
        "-u",
        "--memory",
        "-m",
        "--cap-drop",
        "--security-opt",
    ];
    let runner = program_name(command);
    let mut found = BTreeMap::new();
    if !["docker", "podman", "nerdctl"].contains(&runner)
        || args.first().is_none_or(|arg| arg != "run")
    {
        return found;
    }
    let mut rest = args.iter().enumerate().skip(1);
    while let Some((n, arg)) = rest.next() {
        let at = match arg.as_str() {
            "-e" | "--env" => Some(ArgPosition::Variable),
            "-v" | "--volume" | "--mount" => Some(ArgPosition::Mount),
            arg if FOLLOWED.contains(&arg) => None,
            arg if ALONE.contains(&arg) || arg.starts_with("--") && arg.contains('=') => continue,
            arg if arg.starts_with('-') => return BTreeMap::new(),
            _ => {
                found.insert(n, ArgPosition::Image);
                return found;
            }
        };
        let Some((value, _)) = rest.next() else { break };
        found.extend(at.map(|at| (value, at)));
    }
    BTreeMap::new()
}

/// The first package or image that is named without an exact version; `None` if there is none.
pub(super) fn unpinned<'a>(command: &str, args: &'a [String]) -> Option<&'a str> {
    let image = container(command, args).into_iter().find(|(_, at)| *at == ArgPosition::Image);
    if let Some(image) = image.and_then(|(n, _)| args.get(n)) {
        let tag = image.rsplit('/').next().and_then(|last| last.split_once(':'));
        let is_open = !image.contains('@') && tag.is_none_or(|(_, tag)| tag == "latest");
        return is_open.then_some(image.as_str());
    }
    let named = packages(command, args).into_iter();
    let mut named = named.filter_map(|n| args.get(n)).map(String::as_str);
    named.find(|argument| !Package::read(argument).is_exact())
}

#[cfg(test)]
mod tests {
    use super::{Package, unpinned};

    #[test]
    fn a_package_is_read_with_its_version() {
        for (argument, name, version) in [
            ("@corp/tool@1.2.3", "@corp/tool", Some("1.2.3")),
            ("@corp/tool", "@corp/tool", None),
            ("tool@latest", "tool", Some("latest")),
            ("--package=tool@1.2.3", "tool", Some("1.2.3")),
            ("tool[extra,other]==1.2.3", "tool", Some("1.2.3")),
            ("tool>=1.2.3", "tool", None),
            ("@", "@", None),
            ("", "", None),
        ] {
            assert_eq!(Package::read(argument), Package { name, version }, "{argument}");
        }
    }

    #[test]
    fn a_version_that_may_be_any_of_several_pins_nothing() {
        let of = |command, package: &str| unpinned(command, &[package.to_owned()]).is_none();
        for (command, package) in [
            ("npx", "tool@1.2.3"),
            ("npx", "@corp/tool@1.2.3-beta.1"),
            ("uvx", "tool==1.2.3"),
            ("uvx", "tool[cli]==1.2.3rc1"),
        ] {
            assert!(of(command, package), "{package}");
        }
        for (command, package) in [
            ("npx", "tool"),
            ("npx", "tool@1"),
            ("npx", "tool@1.2"),
            ("npx", "tool@1.2.x"),
            ("npx", "tool@1.2.3 - 2.0.0"),
            ("npx", "tool@1.2.3||2"),
            ("npx", "tool@^1.2.3"),
            ("npx", "tool@latest"),
            ("uvx", "tool==1.2.*"),
            ("uvx", "tool==1.2.3,!=1.2.4"),
            ("uvx", "tool>=1.2.3"),
            ("uvx", "--from=git+ssh://git@192.0.2.1/tool"),
        ] {
            assert!(!of(command, package), "{package}");
        }
    }
}
