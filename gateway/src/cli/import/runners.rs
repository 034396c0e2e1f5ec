//! What the arguments of programs are that run something else: packages, containers, modules.

use std::collections::BTreeMap;
use std::path::Path;

use super::secrets::At;

/// Which arguments name what a runner of packages runs.
pub(super) fn packages(command: &str, args: &[String]) -> Vec<usize> {
    let runner = Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let skipped = match (runner, &words[..]) {
        ("npx" | "bunx" | "pnpx" | "uvx", _) => 0,
        ("npm", ["exec" | "x", ..])
        | ("pnpm" | "yarn", ["dlx" | "exec", ..])
        | ("bun", ["x", ..]) => 1,
        ("pipx", ["run", ..]) => 1,
        ("uv", ["run", ..]) if words.contains(&"--with") => 1,
        ("uv", ["tool", "run", ..]) => 2,
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
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
            // What comes after is for the package.
            _ if named => break,
            _ => {
                found.push(n);
                break;
            }
        }
    }
    found
}

/// The module that an interpreter of Python runs.
pub(super) fn module(command: &str, args: &[String]) -> Option<usize> {
    let name = Path::new(command).file_name()?.to_str()?;
    let is_module = name.starts_with("python") && args.first().is_some_and(|arg| arg == "-m");
    is_module.then_some(1)
}

/// Which arguments of a runner of containers are what, as far as its own go. Nothing, where it is not clear where they
/// end.
pub(super) fn container(command: &str, args: &[String]) -> BTreeMap<usize, At<'static>> {
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
    let runner = Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut found = BTreeMap::new();
    if !["docker", "podman", "nerdctl"].contains(&runner)
        || args.first().is_none_or(|arg| arg != "run")
    {
        return found;
    }
    let mut rest = args.iter().enumerate().skip(1);
    while let Some((n, arg)) = rest.next() {
        let at = match arg.as_str() {
            "-e" | "--env" => Some(At::Variable),
            "-v" | "--volume" | "--mount" => Some(At::Mount),
            arg if FOLLOWED.contains(&arg) => None,
            arg if ALONE.contains(&arg) || arg.starts_with("--") && arg.contains('=') => continue,
            arg if arg.starts_with('-') => return BTreeMap::new(),
            _ => {
                found.insert(n, At::Image);
                return found;
            }
        };
        let Some((value, _)) = rest.next() else { break };
        found.extend(at.map(|at| (value, at)));
    }
    BTreeMap::new()
}

/// The package or image that a runner would take without a version, or with one that may be any of several.
pub(super) fn unpinned<'a>(command: &str, args: &'a [String]) -> Option<&'a str> {
    let image = container(command, args).into_iter().find(|(_, at)| *at == At::Image);
    if let Some(image) = image.and_then(|(n, _)| args.get(n)) {
        let tag = image.rsplit('/').next().and_then(|last| last.split_once(':'));
        let is_open = !image.contains('@') && tag.is_none_or(|(_, tag)| tag == "latest");
        return is_open.then_some(image.as_str());
    }
    let named = packages(command, args).into_iter();
    let mut named = named.filter_map(|n| args.get(n)).map(String::as_str);
    named.find(|text| {
        let package = text.split_once('=').filter(|(flag, _)| flag.starts_with("--"));
        let package = package.map_or(*text, |(_, package)| package);
        let of_python = package.split_once("==").map(|(_, version)| version);
        let of_npm = || package.rsplit_once('@').filter(|(name, _)| !name.is_empty());
        let version = of_python.or_else(|| of_npm().map(|(_, version)| version));
        // `1` and `1.2` are whatever of that was published last.
        let exact = |version: &str| {
            version.matches('.').count() >= 2 && version.starts_with(|c: char| c.is_ascii_digit())
        };
        !version.is_some_and(exact)
    })
}
