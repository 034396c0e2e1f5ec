//! Detects servers that imitate a well-known one by their name, package or host.
//!
//! A mistyped package name installs a stranger's `mcp-server-gti` for `mcp-server-git`, and a server `github` at
//! another host gets what the user trusts GitHub with. The list of well-known servers is short and built in. A server
//! on the list passes, and one that resembles no entry is not judged.

use std::fmt;
use std::sync::LazyLock;

use policy::definition::shadow;

use super::runners::{Package, RunTargets};

/// The built-in list; see [`FamiliarServers`].
const LIST: &str = include_str!("familiar.txt");
/// Shortest server name that is compared with one letter more, fewer or different.
const SHORTEST: usize = 6;
/// Package names that many npm scopes use, so that an equal name proves no imitation.
const USUAL: [&str; 6] = ["mcp", "mcp-server", "server", "cli", "inspector", "mcp-remote"];

/// Well-known servers and packages.
#[derive(Debug, Default)]
struct FamiliarServers {
    /// Names of servers with their hosts.
    servers: Vec<(&'static str, Vec<&'static str>)>,
    npm: Vec<&'static str>,
    pypi: Vec<&'static str>,
    /// Words that resemble a listed name without being a misspelling.
    words: Vec<&'static str>,
}

static FAMILIAR: LazyLock<FamiliarServers> = LazyLock::new(|| {
    let mut all = FamiliarServers::default();
    for line in LIST.lines() {
        let mut parts = line.split_ascii_whitespace();
        match (parts.next(), parts.next()) {
            (Some("server"), Some(name)) => all.servers.push((name, parts.collect())),
            (Some("npm"), Some(name)) => all.npm.push(name),
            (Some("pypi"), Some(name)) => all.pypi.push(name),
            (Some("word"), Some(name)) => all.words.push(name),
            _ => {}
        }
    }
    all
});

/// A server from the file of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SuspectServer<'a> {
    /// Name that the client gives it.
    pub(super) name: &'a str,
    /// The program that it is, or that runs it.
    pub(super) command: Option<&'a str>,
    /// Arguments of the program.
    pub(super) args: &'a [String],
    /// URL, if it is not a program.
    pub(super) url: Option<&'a str>,
}

/// A resemblance between a server and a well-known one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lookalike {
    /// Part that resembles: name, package or host.
    what: &'static str,
    /// Value of that part.
    own: String,
    /// How the two resemble each other, for messages.
    how: &'static str,
    /// The value of the well-known server.
    other: &'static str,
}

impl fmt::Display for Lookalike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, own, how, other } = self;
        write!(f, "its {what} `{}` {how} `{other}`", own.escape_debug())
    }
}

/// The well-known server that `server` imitates; `None` if it resembles none.
pub(super) fn imitation(server: &SuspectServer<'_>) -> Option<Lookalike> {
    of_packages(server).or_else(|| of_host(server)).or_else(|| of_name(server.name))
}

fn of_name(name: &str) -> Option<Lookalike> {
    let lower = name.to_lowercase();
    let known = &FAMILIAR.servers;
    if known.iter().any(|(one, _)| *one == lower) || FAMILIAR.words.contains(&lower.as_str()) {
        return None;
    }
    known.iter().find_map(|(other, _)| {
        let how = if looks_like(name, other) {
            "looks like"
        } else if other.len() >= SHORTEST && is_one_edit(&lower, other) {
            "is one letter away from"
        } else {
            return None;
        };
        Some(Lookalike { what: "name", own: name.to_owned(), how, other })
    })
}

/// The registry that a package is taken from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PackageRegistry {
    Npm,
    Pypi,
}

impl PackageRegistry {
    /// The registry that a runner takes packages from.
    fn of(runner: &str) -> Self {
        match runner {
            "uvx" | "uv" | "pipx" => Self::Pypi,
            _ => Self::Npm,
        }
    }
}

fn of_packages(server: &SuspectServer<'_>) -> Option<Lookalike> {
    let command = server.command?;
    let targets = RunTargets::of(command, server.args);
    let registry = PackageRegistry::of(targets.runner);
    let (own, foreign) = match registry {
        PackageRegistry::Pypi => (&FAMILIAR.pypi, &FAMILIAR.npm),
        PackageRegistry::Npm => (&FAMILIAR.npm, &FAMILIAR.pypi),
    };
    let named = targets.packages.iter().filter_map(|n| server.args.get(*n));
    let mut named = named.map(|package| bare(package, registry));
    named.find_map(|package| {
        if own.contains(&package.as_str()) {
            return None;
        }
        let how = |other: &str| {
            if looks_like(&package, other) {
                Some("looks like")
            } else if is_one_edit(&package, other) {
                Some("is one letter away from")
            } else if registry == PackageRegistry::Npm && has_other_scope(&package, other) {
                Some("is of another publisher than")
            } else {
                None
            }
        };
        // Registries share no names: a package name of one registry may belong to somebody else in the other.
        let elsewhere = || {
            let how = match registry {
                PackageRegistry::Pypi => "is taken from PyPI, and is not the package of npm",
                PackageRegistry::Npm => "is taken from npm, and is not the package of PyPI",
            };
            let found = foreign.iter().find(|other| **other == package);
            found.map(|other| (*other, how))
        };
        let like =
            |list: &[&'static str]| list.iter().find_map(|other| Some((*other, how(other)?)));
        let (other, how) = like(own).or_else(elsewhere).or_else(|| like(foreign))?;
        Some(Lookalike { what: "package", own: package, how, other })
    })
}

fn of_host(server: &SuspectServer<'_>) -> Option<Lookalike> {
    let url = server.url?.parse::<http::Uri>().ok()?;
    let own = url.host()?.trim_end_matches('.').to_lowercase();
    let imitation = |how, other| Some(Lookalike { what: "host", own: own.clone(), how, other });
    let hosts = || FAMILIAR.servers.iter().flat_map(|(_, hosts)| hosts.iter().copied());
    if hosts().any(|host| is_below(&own, host)) {
        return None;
    }
    for host in hosts() {
        if looks_like(&own, host) {
            return imitation("looks like", host);
        }
        if is_one_edit(&own, host) {
            return imitation("is one letter away from", host);
        }
    }
    let named = FAMILIAR.servers.iter().find(|(known, _)| server.name.eq_ignore_ascii_case(known));
    let host = named.and_then(|(_, hosts)| hosts.first().copied())?;
    imitation("is none of the vendor, whose is", host)
}

/// The name of a package in lower case; for Python in the form in which PyPI compares names.
fn bare(package: &str, registry: PackageRegistry) -> String {
    let name = Package::read(package).name.to_lowercase();
    match registry {
        PackageRegistry::Pypi => name.replace('_', "-"),
        PackageRegistry::Npm => name,
    }
}

/// Whether two package names are equal but for their scopes.
fn has_other_scope(package: &str, other: &str) -> bool {
    let base = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let scoped = other.starts_with('@');
    scoped && !USUAL.contains(&base(other).as_str()) && base(package) == base(other)
}

/// Whether two different names look the same.
fn looks_like(one: &str, other: &str) -> bool {
    one != other && shadow::looks(one) == shadow::looks(other)
}

/// Whether a host equals another one or is a subdomain of it.
fn is_below(host: &str, other: &str) -> bool {
    host == other || host.strip_suffix(other).is_some_and(|before| before.ends_with('.'))
}

/// Whether one letter more, less or different, or two exchanged letters, turn one name into the other.
fn is_one_edit(one: &str, other: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let front = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let (one, other) =
        (one.get(front..).unwrap_or_default(), other.get(front..).unwrap_or_default());
    let back = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let (one, other) = (
        one.get(..one.len() - back).unwrap_or_default(),
        other.get(..other.len() - back).unwrap_or_default(),
    );
    match (one, other) {
        ([_], [] | [_]) | ([], [_]) => true,
        ([a, b], [c, d]) => a == d && b == c,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{FAMILIAR, SuspectServer, imitation};

    /// Checks a server that is a command line split at blanks, or a URL.
    fn noticed(name: &str, server: &str) -> Option<&'static str> {
        let mut words = server.split(' ').map(str::to_owned);
        let first = words.next().unwrap();
        let args: Vec<_> = words.collect();
        let candidate = if first.starts_with("https:") {
            SuspectServer { name, url: Some(&first), ..SuspectServer::default() }
        } else {
            SuspectServer { name, command: Some(&first), args: &args, url: None }
        };
        imitation(&candidate).map(|found| found.other)
    }

    #[test]
    fn the_list_is_read_whole() {
        let kept = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let lines = super::LIST.lines().filter(kept).count();
        let all = &*FAMILIAR;
        let read = all.servers.len() + all.npm.len() + all.pypi.len() + all.words.len();
        assert_eq!(read, lines);
    }

    #[test]
    fn what_only_looks_like_a_server_that_many_use_is_noticed() {
        let filesystem = "@modelcontextprotocol/server-filesystem";
        for (name, server, other) in [
            ("f", "npx -y @modelcontextprotoco1/server-filesystem@1.0.0", filesystem),
            ("f", "npx -y @modelcontextprotocol/server-filesytem@1.0.0", filesystem),
            ("f", "npx -y @evil/server-filesystem@1.0.0", filesystem),
            ("f", "npx -y server-filesystem@1.0.0", filesystem),
            ("f", "cmd /c npx -y @evil/server-filesystem@1.0.0", filesystem),
            ("f", "npx.cmd -y @evil/server-filesystem@1.0.0", filesystem),
            ("f", "deno run -A npm:@evil/server-filesystem@1.0.0", filesystem),
            ("g", "uvx --python 3.12 mcp-server-gti==1.0.0", "mcp-server-git"),
            ("g", "uvx --with requests==2.32.0 mcp-server-gti==1.0.0", "mcp-server-git"),
            ("f", "/usr/bin/npx --package=@playwrigth/mcp@1.0.0 x", "@playwright/mcp"),
            ("g", "uvx mcp-server-gti==1.0.0", "mcp-server-git"),
            ("g", "uvx mcp-server-g1t@1.0.0", "mcp-server-git"),
            ("g", "npx -y mcp-server-gti", "mcp-server-git"),
            ("g", "npx mcp-server-g1t@1.0.0", "mcp-server-git"),
            ("t", "npx mcp-server-time", "mcp-server-time"),
            ("b", "uvx chrome-devtools-mcp", "chrome-devtools-mcp"),
            ("b", "uvx chrome-devtoolz-mcp==1.0.0", "chrome-devtools-mcp"),
            ("githud", "/opt/server", "github"),
            ("g\u{456}thub", "/opt/server", "github"),
            ("github", "https://mcp.evil.example/mcp", "api.githubcopilot.com"),
            ("GitHub", "https://api.githubcopilot.com.evil.example/", "api.githubcopilot.com"),
            ("x", "https://mcp.notiom.com/mcp", "mcp.notion.com"),
            ("x", "https://mcp.l1near.app/mcp", "mcp.linear.app"),
        ] {
            assert_eq!(noticed(name, server), Some(other), "{name} {server}");
        }
    }

    #[test]
    fn what_many_use_and_what_looks_like_nothing_of_it_passes() {
        for (name, server) in [
            ("filesystem", "npx -y @modelcontextprotocol/server-filesystem@1.0.0 /srv"),
            ("git", "uvx mcp-server-git==1.0.0"),
            ("git", "uvx mcp_server_git@1.0.0"),
            ("proxy", "npx mcp-proxy@1.0.0"),
            ("proxy", "uvx mcp-proxy==1.0.0"),
            ("tickets", "npx @corp/tickets-mcp@1.0.0"),
            ("browser", "npx @corp/mcp@1.0.0"),
            ("sequentialthinking", "docker run mcp/sequentialthinking"),
            ("github", "https://api.githubcopilot.com/mcp/"),
            ("github", "docker run ghcr.io/github/github-mcp-server"),
            ("gitlab", "https://gitlab.com/api/v4/mcp"),
            ("notion", "https://mcp.notion.com/mcp"),
            ("motion", "https://mcp.motion.example/mcp"),
            ("git", "https://mcp.corp.example/mcp"),
            ("docs", "https://docs.example.com/mcp"),
        ] {
            assert_eq!(noticed(name, server), None, "{name} {server}");
        }
    }
}
