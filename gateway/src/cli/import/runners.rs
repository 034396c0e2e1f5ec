//! Interprets the arguments of programs that run something else: package runners, container runners, Python modules, and
//! programs that start one of these. The options of all of them are in the tables here.

use std::collections::BTreeMap;

use super::secrets::ArgPosition;

/// The file name of a program, without its folder, and without the extension that Windows programs have.
pub(super) fn program_name(command: &str) -> &str {
    const ENDS: [&str; 4] = [".exe", ".cmd", ".bat", ".ps1"];
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    let end = name.len().saturating_sub(4);
    match name.split_at_checked(end) {
        Some((bare, end)) if ENDS.iter().any(|known| known.eq_ignore_ascii_case(end)) => bare,
        Some(_) | None => name,
    }
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
        let whole = match argument.split_once('=') {
            Some((flag, package)) if flag.starts_with("--") => package,
            _ => argument,
        };
        // Deno names the registry before the package.
        let package = ["npm:", "jsr:"].iter().find_map(|registry| whole.strip_prefix(registry));
        let package = package.unwrap_or(whole);
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

/// Where a package runner is told the package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackagePlace {
    /// In the first argument that is no option.
    Argument,
    /// In an option or in the project: the first argument is a program of the package.
    Elsewhere,
}

/// What an option of a runner's program means for the argument behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionValue {
    /// Nothing: the option takes no argument.
    None,
    /// A value that says nothing about what is run.
    Other,
    /// The package to run; a positional argument then names its executable.
    Package,
    /// A package that is installed besides the one that is run.
    Besides,
    /// A text of a container's command line, with this meaning.
    Meaning(ArgPosition<'static>),
    /// A command line or a program that is not looked into.
    Opaque,
}

/// The options of a program that runs something else, up to what it runs.
#[derive(Clone, Copy, Debug)]
struct RunnerOptions {
    /// Options without a value.
    alone: &'static [&'static str],
    /// Options with a value that says nothing about what is run.
    followed: &'static [&'static str],
    /// Options that name the package to run.
    package: &'static [&'static str],
    /// Options that name a further package.
    besides: &'static [&'static str],
    /// Options that give a command line.
    opaque: &'static [&'static str],
}

/// Options of `npx`, and of `npm`, `pnpm`, `yarn` and `bun` where they run a package.
const NODE: RunnerOptions = RunnerOptions {
    alone: &[
        "-y",
        "--yes",
        "-n",
        "--no",
        "--no-install",
        "-q",
        "--quiet",
        "-s",
        "--silent",
        "--verbose",
        "--bun",
        "--prefer-online",
        "--prefer-offline",
        "--offline",
        "--ignore-existing",
        "--ignore-scripts",
        "--no-update-notifier",
        "--include-workspace-root",
        "--foreground-scripts",
        "--legacy-peer-deps",
        "--force",
        "-f",
        "--no-audit",
        "--no-fund",
        "--no-progress",
        "--no-color",
    ],
    followed: &[
        "--registry",
        "--cache",
        "--prefix",
        "-C",
        "--dir",
        "--cwd",
        "--userconfig",
        "--globalconfig",
        "-w",
        "--workspace",
        "--loglevel",
        "--node-options",
        "--shell",
        "--npm",
        "--script-shell",
        "--filter",
        "-F",
        "--reporter",
        "--tag",
    ],
    package: &["-p", "--package"],
    besides: &[],
    opaque: &["-c", "--call", "--shell-auto-fallback"],
};

/// Options of `uvx`, `uv tool run` and `uv run`, with those of `uv` itself.
const UV: RunnerOptions = RunnerOptions {
    alone: &[
        "-q",
        "--quiet",
        "-v",
        "--verbose",
        "--isolated",
        "--refresh",
        "--reinstall",
        "-n",
        "--no-cache",
        "--offline",
        "--no-index",
        "-U",
        "--upgrade",
        "--no-config",
        "--native-tls",
        "--system-certs",
        "--no-progress",
        "--no-python-downloads",
        "--managed-python",
        "--no-managed-python",
        "--no-env-file",
        "--no-build",
        "--no-binary",
        "--no-sources",
        "--active",
        "--all-extras",
        "--no-dev",
        "--dev",
        "--frozen",
        "--locked",
        "--no-sync",
        "--no-project",
        "--exact",
        "--lfs",
        "--no-build-isolation",
        "--compile-bytecode",
        "--no-default-groups",
        "--all-groups",
        "--all-packages",
        "--no-editable",
        "--no-verify-hashes",
    ],
    followed: &[
        "-p",
        "--python",
        "--index-url",
        "-i",
        "--extra-index-url",
        "--index",
        "--default-index",
        "-f",
        "--find-links",
        "--env-file",
        "--cache-dir",
        "--directory",
        "--project",
        "--config-file",
        "--python-preference",
        "--python-platform",
        "--prerelease",
        "--resolution",
        "--index-strategy",
        "--keyring-provider",
        "--exclude-newer",
        "--link-mode",
        "--color",
        "-c",
        "--constraints",
        "--constraint",
        "--build-constraints",
        "-b",
        "--override",
        "--overrides",
        "--refresh-package",
        "--reinstall-package",
        "-P",
        "--upgrade-package",
        "--allow-insecure-host",
        "--extra",
        "--group",
        "--only-group",
        "--no-group",
        "--package",
        "--no-binary-package",
        "--no-build-package",
        "--fork-strategy",
        "-C",
        "--config-setting",
        "--torch-backend",
        "--no-build-isolation-package",
        "--no-extra",
    ],
    package: &["--from"],
    besides: &["--with", "-w"],
    opaque: &["--with-requirements", "--with-editable"],
};

/// Options of `pipx run`.
const PIPX: RunnerOptions = RunnerOptions {
    alone: &[
        "--no-cache",
        "-q",
        "--quiet",
        "-v",
        "--verbose",
        "--system-site-packages",
        "--fetch-missing-python",
    ],
    followed: &["--python", "-i", "--index-url", "--pip-args", "--backend"],
    package: &["--spec"],
    besides: &["--with"],
    opaque: &["--path"],
};

/// Options of `deno run`.
const DENO: RunnerOptions = RunnerOptions {
    alone: &[
        "-A",
        "--allow-all",
        "--allow-env",
        "--allow-net",
        "--allow-read",
        "--allow-write",
        "--allow-run",
        "--allow-sys",
        "--allow-ffi",
        "--allow-import",
        "-E",
        "-N",
        "-R",
        "-W",
        "-S",
        "-I",
        "--no-prompt",
        "--no-check",
        "--no-lock",
        "--no-npm",
        "--no-remote",
        "--cached-only",
        "--node-modules-dir",
        "--unstable",
        "-q",
        "--quiet",
        "-r",
        "--reload",
    ],
    followed: &[
        "-c",
        "--config",
        "--import-map",
        "--lock",
        "-L",
        "--log-level",
        "--cert",
        "--seed",
        "--env-file",
    ],
    package: &[],
    besides: &[],
    opaque: &[],
};

/// Options of a container's program before `run`.
const CONTAINERS: RunnerOptions = RunnerOptions {
    alone: &["-D", "--debug", "--tls", "--tlsverify", "--remote", "-r"],
    followed: &[
        "-c",
        "--context",
        "-H",
        "--host",
        "--config",
        "-l",
        "--log-level",
        "--tlscacert",
        "--tlscert",
        "--tlskey",
        "--connection",
        "--url",
        "--root",
        "-n",
        "--namespace",
        "-a",
        "--address",
    ],
    package: &[],
    besides: &[],
    opaque: &[],
};

/// Options of `docker run` and its like. Those whose values have a meaning of their own are in [`of_container`].
const CONTAINER: RunnerOptions = RunnerOptions {
    alone: &[
        "-i",
        "-t",
        "-d",
        "-q",
        "-P",
        "--interactive",
        "--tty",
        "--detach",
        "--quiet",
        "--publish-all",
        "--rm",
        "--init",
        "--read-only",
        "--privileged",
        "--no-healthcheck",
        "--oom-kill-disable",
        "--sig-proxy",
        "--disable-content-trust",
        "--tls-verify",
        "--replace",
        "--no-hosts",
    ],
    followed: &[
        "-a",
        "--attach",
        "-c",
        "--cpu-shares",
        "-h",
        "--hostname",
        "-l",
        "--label",
        "-m",
        "--memory",
        "-w",
        "--workdir",
        "--name",
        "--network",
        "--net",
        "--network-alias",
        "--platform",
        "--pull",
        "--cap-add",
        "--cap-drop",
        "--security-opt",
        "--env-file",
        "--label-file",
        "--add-host",
        "--dns",
        "--dns-search",
        "--dns-option",
        "--domainname",
        "--device",
        "--gpus",
        "--group-add",
        "--ip",
        "--ip6",
        "--ipc",
        "--isolation",
        "--link",
        "--log-driver",
        "--log-opt",
        "--mac-address",
        "--memory-swap",
        "--memory-reservation",
        "--oom-score-adj",
        "--pid",
        "--pids-limit",
        "--restart",
        "--runtime",
        "--shm-size",
        "--stop-signal",
        "--stop-timeout",
        "--storage-opt",
        "--sysctl",
        "--tmpfs",
        "--ulimit",
        "--userns",
        "--uts",
        "--volume-driver",
        "--volumes-from",
        "--cgroupns",
        "--cgroup-parent",
        "--cidfile",
        "--annotation",
        "--expose",
        "--cpus",
        "--cpuset-cpus",
        "--cpuset-mems",
        "--cpu-period",
        "--cpu-quota",
        "--blkio-weight",
        "--detach-keys",
        "--health-cmd",
        "--health-interval",
        "--health-retries",
        "--health-timeout",
        "--userns-uid-map",
        "--pod",
        "--arch",
        "--os",
        "--entrypoint",
    ],
    package: &[],
    besides: &[],
    opaque: &[],
};

/// Programs that start the program behind their own options: name, options without and with a value.
const WRAPPERS: [(&str, &[&str], &[&str]); 12] = [
    ("cmd", &["/c", "/C", "/k", "/K", "/s", "/S", "/d", "/D", "/q", "/Q"], &[]),
    ("env", &["-i", "--ignore-environment", "-"], &["-u", "--unset", "-C", "--chdir"]),
    ("wsl", &["-e", "--exec", "--"], &["-d", "--distribution", "-u", "--user", "--cd"]),
    ("mise", &["exec", "x", "--", "-y", "--yes", "-q"], &["-C", "--cd", "-E", "--env"]),
    ("asdf", &["exec"], &[]),
    ("sudo", &["-n", "-E", "-H", "--"], &["-u", "--user", "-g", "--group"]),
    ("nice", &[], &["-n", "--adjustment"]),
    ("nohup", &[], &[]),
    ("exec", &[], &[]),
    ("time", &["-p"], &[]),
    ("dotenv", &["--", "run"], &["-f", "-e", "--file"]),
    ("xvfb-run", &["-a", "--auto-servernum"], &["-n", "-s", "--server-args"]),
];

/// Shells, whose program is a text.
const SHELLS: [&str; 9] = ["sh", "bash", "zsh", "dash", "ash", "fish", "ksh", "pwsh", "powershell"];
/// Programs that run packages, known wherever they stand in a command line.
const RUNNERS: [&str; 14] = [
    "npx", "bun", "bunx", "pnpx", "uvx", "pipx", "npm", "pnpm", "yarn", "uv", "deno", "docker",
    "podman", "nerdctl",
];
/// Runners that are started in the arguments of a program that is not known to start another one.
const BEHIND: [&str; 5] = ["npx", "bunx", "pnpx", "uvx", "pipx"];

impl RunnerOptions {
    /// The meaning of an option; `None` if it is not known.
    fn of(&self, option: &str) -> Option<OptionValue> {
        let has = |list: &[&str]| list.contains(&option);
        if has(self.alone) {
            Some(OptionValue::None)
        } else if has(self.followed) {
            Some(OptionValue::Other)
        } else if has(self.package) {
            Some(OptionValue::Package)
        } else if has(self.besides) {
            Some(OptionValue::Besides)
        } else if has(self.opaque) {
            Some(OptionValue::Opaque)
        } else {
            None
        }
    }

    /// The index of the first word from `at` on that is no option; `None` if an option is not known.
    fn skip(&self, words: &[&str], mut at: usize) -> Option<usize> {
        while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
            at += match self.of(word) {
                _ if word.contains('=') => 1,
                Some(OptionValue::None) => 1,
                Some(_) => 2,
                None => return None,
            };
        }
        Some(at)
    }
}

/// What the command line of a server runs, as far as it can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunTargets<'a> {
    /// The program that runs it, behind all wrappers.
    pub(super) runner: &'a str,
    /// Indexes of the arguments that name packages to run, or to install with them.
    pub(super) packages: Vec<usize>,
    /// What the arguments of wrappers and runners are.
    pub(super) positions: BTreeMap<usize, ArgPosition<'static>>,
    /// Index of the image that a container runner runs.
    image: Option<usize>,
    /// Whether it runs a package or an image that cannot be seen.
    pub(super) is_hidden: bool,
}

/// A package or an image without an exact version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unpinned<'a> {
    /// As an argument names it.
    Named(&'a str),
    /// It does not stand in the arguments.
    Hidden,
}

impl<'a> RunTargets<'a> {
    /// Looks through wrappers for what a command line runs.
    pub(super) fn of(command: &'a str, args: &'a [String]) -> Self {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut found = Self { runner: program_name(command), ..Self::default() };
        let mut at = 0;
        while let Some((_, alone, followed)) =
            WRAPPERS.iter().find(|(name, ..)| *name == found.runner)
        {
            let Some(next) = found.behind(&words, at, alone, followed) else { return found };
            at = next;
        }
        if SHELLS.contains(&found.runner) {
            let text = words.get(at..).unwrap_or_default();
            found.is_hidden = text.iter().any(|text| has_runner(text));
            return found;
        }
        if !RUNNERS.contains(&found.runner) {
            let behind = |word: &&str| BEHIND.contains(&program_name(word));
            let Some(n) = words.iter().skip(at).position(behind) else { return found };
            found.positions.insert(at + n, ArgPosition::Executable);
            found.runner = words.get(at + n).copied().map(program_name).unwrap_or_default();
            at += n + 1;
        }
        match found.runner {
            "docker" | "podman" | "nerdctl" => found.of_container(&words, at),
            _ => found.of_packages(&words, at),
        }
        found
    }

    /// Finds the program that a wrapper starts, and returns the index behind it; `None` if there is none to be seen.
    fn behind(
        &mut self,
        words: &[&'a str],
        mut at: usize,
        alone: &[&str],
        followed: &[&str],
    ) -> Option<usize> {
        let mut before = true;
        while let Some(word) = words.get(at) {
            let is_pair = self.runner == "env" && word.contains('=') && !word.starts_with('-');
            // `mise exec node@22 -- npx`: tools stand before the program.
            let is_tool = self.runner == "mise" && words.iter().skip(at).any(|word| *word == "--");
            if alone.contains(word) {
                before &= *word != "--";
                self.positions.insert(at, ArgPosition::Switch);
            } else if is_pair {
                self.positions.insert(at, ArgPosition::Variable);
            } else if followed.contains(word) {
                at += 1;
            } else if word.starts_with('-') && before {
                // What an unknown option does is not known.
                self.is_hidden = words.iter().skip(at).any(|word| has_runner(word));
                return None;
            } else if !is_tool {
                break;
            }
            at += 1;
        }
        let word = words.get(at)?;
        if word.contains(char::is_whitespace) {
            self.is_hidden = has_runner(word);
            return None;
        }
        self.positions.insert(at, ArgPosition::Executable);
        self.runner = program_name(word);
        Some(at + 1)
    }

    /// Finds what a package runner runs, whose arguments begin at `at`.
    fn of_packages(&mut self, words: &[&str], at: usize) {
        let (table, verb) = match self.runner {
            "npx" | "bunx" | "pnpx" => (NODE, at),
            "npm" | "pnpm" | "yarn" | "bun" => (NODE, NODE.skip(words, at).unwrap_or(at)),
            "uvx" => (UV, at),
            "uv" => (UV, UV.skip(words, at).unwrap_or(at)),
            "pipx" => (PIPX, at),
            "deno" => (DENO, at),
            _ => return,
        };
        let named = words.iter().take(verb).skip(at).any(|word| word.starts_with("--package="));
        let rest = words.get(verb..).unwrap_or_default();
        let begin = match (self.runner, rest) {
            ("npx" | "bunx" | "pnpx" | "uvx", _) => verb,
            ("npm", ["exec" | "x", ..])
            | ("pnpm" | "yarn", ["dlx" | "exec", ..])
            | ("bun", ["x", ..])
            | ("pipx" | "deno", ["run", ..]) => verb + 1,
            ("uv", ["run", ..]) => verb + 1,
            ("uv", ["tool", "run", ..]) => verb + 2,
            _ => return,
        };
        // `uv run` runs what is in the folder, unless packages are named.
        let is_local = matches!((self.runner, rest), ("uv", ["run", ..]));
        let before = words.iter().enumerate().take(verb).skip(at);
        self.packages.extend(before.filter(|(_, w)| w.starts_with("--package=")).map(|(n, _)| n));
        let place =
            if named || is_local { PackagePlace::Elsewhere } else { PackagePlace::Argument };
        self.take(table, words, begin, place);
        for n in &self.packages {
            self.positions.insert(*n, ArgPosition::Package);
        }
    }

    /// Takes the options of a package runner from `at` on, and the package behind them.
    fn take(
        &mut self,
        table: RunnerOptions,
        words: &[&str],
        mut at: usize,
        mut place: PackagePlace,
    ) {
        while let Some(word) = words.get(at) {
            if *word == "--" {
                at += 1;
                break;
            }
            if !word.starts_with('-') {
                break;
            }
            let (option, inside) = match word.split_once('=') {
                Some((option, _)) => (option, true),
                None => (*word, false),
            };
            let value = table.of(option);
            let names = matches!(value, Some(OptionValue::Package | OptionValue::Besides));
            if value == Some(OptionValue::Package) {
                place = PackagePlace::Elsewhere;
            }
            match value {
                // Where an option is not known, what follows it may be its value or the package.
                None if !inside => return self.hide(),
                Some(OptionValue::Opaque) => return self.hide(),
                Some(_) if names && inside => self.packages.push(at),
                Some(_) if names && at + 1 < words.len() => self.packages.push(at + 1),
                _ => {}
            }
            let takes = !inside && value.is_some_and(|value| value != OptionValue::None);
            at += if takes { 2 } else { 1 };
        }
        let Some(word) = words.get(at) else { return };
        let is_remote = |word: &str| {
            ["npm:", "jsr:", "http://", "https://"].iter().any(|b| word.starts_with(b))
        };
        if self.runner == "deno" {
            // Deno runs files as well.
            self.packages.extend(is_remote(word).then_some(at));
        } else if place == PackagePlace::Elsewhere {
            self.positions.insert(at, ArgPosition::Executable);
        } else {
            self.packages.push(at);
        }
    }

    /// Notes that the package cannot be seen; the arguments are no packages then.
    fn hide(&mut self) {
        self.is_hidden = true;
        self.packages.clear();
    }

    /// Finds the image that a container runner runs, and what its options are. Nothing is said of them if it is not
    /// clear where they end.
    fn of_container(&mut self, words: &[&str], at: usize) {
        let Some(mut at) = CONTAINERS.skip(words, at) else { return self.hide() };
        if words.get(at) == Some(&"container") {
            at += 1;
        }
        match words.get(at) {
            Some(&("run" | "create")) => {}
            Some(&("compose" | "stack" | "start")) => return self.hide(),
            _ => return,
        }
        let mut found = BTreeMap::new();
        at += 1;
        while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
            let Some(value) = of_container(word) else { return self.hide() };
            if let OptionValue::Meaning(meaning) = value {
                found.insert(at + 1, meaning);
            }
            let is_alone = value == OptionValue::None || word.contains('=');
            at += if is_alone { 1 } else { 2 };
        }
        if words.get(at).is_some() {
            found.insert(at, ArgPosition::Image);
            self.image = Some(at);
            self.positions.extend(found);
        } else {
            self.is_hidden = true;
        }
    }

    /// The first package or image without an exact version. `args` has the arguments that these targets were found in,
    /// perhaps with references to variables in place of some.
    pub(super) fn unpinned<'b>(&self, args: &'b [String]) -> Option<Unpinned<'b>> {
        if let Some(image) = self.image.and_then(|n| args.get(n)) {
            let tag = image.rsplit('/').next().and_then(|last| last.split_once(':'));
            let is_open = !image.contains('@') && tag.is_none_or(|(_, tag)| tag == "latest");
            return is_open.then_some(Unpinned::Named(image.as_str()));
        }
        let mut named = self.packages.iter().filter_map(|n| args.get(*n)).map(String::as_str);
        named
            .find(|argument| !Package::read(argument).is_exact())
            .map(Unpinned::Named)
            .or_else(|| self.is_hidden.then_some(Unpinned::Hidden))
    }
}

/// The meaning of an option of `docker run`, which may be several of one letter in one argument: `-it`, `-dp`, `-e` with
/// its value attached. `None` if it is not known.
fn of_container(word: &str) -> Option<OptionValue> {
    if let Some((option, _)) = word.split_once('=').filter(|(option, _)| option.starts_with("--")) {
        return container_option(option).map(|_| OptionValue::None);
    }
    container_option(word).or_else(|| {
        let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
        let end = letters.trim_start_matches(['i', 't', 'd', 'q', 'P']);
        let Some(letter) = end.chars().next() else { return Some(OptionValue::None) };
        let value = container_option(&format!("-{letter}"))?;
        Some(if end.len() == 1 { value } else { OptionValue::None })
    })
}

/// The meaning of one option of `docker run`.
fn container_option(option: &str) -> Option<OptionValue> {
    match option {
        "-e" | "--env" => Some(OptionValue::Meaning(ArgPosition::Variable)),
        "-v" | "--volume" | "--mount" => Some(OptionValue::Meaning(ArgPosition::Mount)),
        "-p" | "--publish" | "-u" | "--user" => Some(OptionValue::Meaning(ArgPosition::Numbers)),
        option => CONTAINER.of(option),
    }
}

/// Whether a text names a program that runs packages, as one of its words.
fn has_runner(text: &str) -> bool {
    let odd = |c: char| !(c.is_alphanumeric() || "/\\._-:".contains(c));
    text.split(odd).any(|word| RUNNERS.contains(&program_name(word)))
}

/// Index of the module that a Python interpreter runs.
pub(super) fn module(command: &str, args: &[String]) -> Option<usize> {
    let is_module =
        program_name(command).starts_with("python") && args.first().is_some_and(|arg| arg == "-m");
    is_module.then_some(1)
}

/// The variables that a container takes from the environment of its runner: `docker run -e NAME`.
pub(super) fn inherited<'a>(targets: &RunTargets<'_>, args: &'a [String]) -> Vec<&'a str> {
    let last = targets.image.unwrap_or_default();
    let own = args.iter().enumerate().take(last);
    let named = own.filter_map(|(n, arg)| match targets.positions.get(&n) {
        Some(ArgPosition::Variable) => Some(arg.as_str()),
        _ => arg.strip_prefix("--env="),
    });
    named.filter(|name| !name.contains('=')).collect()
}

#[cfg(test)]
mod tests {
    use super::{Package, RunTargets, Unpinned};

    /// The package or image without a version that a command line runs, split at blanks.
    fn open(line: &str) -> Option<String> {
        let mut words = line.split(' ').map(|word| word.replace('\u{b7}', " "));
        let command = words.next().unwrap();
        let args: Vec<String> = words.collect();
        let targets = RunTargets::of(&command, &args);
        targets.unpinned(&args).map(|found| match found {
            Unpinned::Named(name) => name.to_owned(),
            Unpinned::Hidden => "?".to_owned(),
        })
    }

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
        let of = |command, package: &str| {
            open(&format!("{command} {}", package.replace(' ', "\u{b7}"))).is_none()
        };
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

    #[test]
    fn a_package_or_an_image_is_found_behind_options_and_other_programs() {
        for (line, package) in [
            ("uvx --python 3.11 tool", "tool"),
            ("uvx --with requests==2.32.0 tool", "tool"),
            ("uvx --index-url https://pypi.example.com/simple --from tool run", "tool"),
            ("uvx --from git+https://example.com/a/b tool", "git+https://example.com/a/b"),
            ("uv --directory /srv tool run --python 3.12 tool", "tool"),
            ("uv run --with other tool.py", "other"),
            ("pipx run --python 3.12 tool", "tool"),
            ("npx --registry https://npm.example.com tool", "tool"),
            ("npx -y -- tool", "tool"),
            ("npm --yes exec tool", "tool"),
            ("pnpm --package=tool dlx run", "--package=tool"),
            ("npx.cmd -y tool", "tool"),
            ("C:\\Progra~1\\nodejs\\npx.CMD -y tool", "tool"),
            ("cmd /c npx -y tool", "tool"),
            ("cmd.exe /d /s /c npx.cmd tool", "tool"),
            ("env A=b -u X npx tool", "tool"),
            ("/usr/bin/env npx tool", "tool"),
            ("wsl.exe -d Ubuntu npx tool", "tool"),
            ("mise exec node@22 -- npx -y tool", "tool"),
            ("mcp-proxy --port 8080 -- npx -y tool", "tool"),
            ("deno run -A npm:@corp/tool", "npm:@corp/tool"),
            ("docker run -p 8000:8000 --env-file .env --network host image", "image"),
            ("docker run --name x -w /app --user 1000 -it --mount a=b image run", "image"),
            ("docker --context x container run -dp 80:80 image:latest", "image:latest"),
            ("podman run -eNAME image", "image"),
            // What cannot be seen is not taken for pinned.
            ("docker run --unheard of:1.0 image", "?"),
            ("docker compose run server", "?"),
            ("npx --unheard tool@1.2.3", "?"),
            ("npx -c tool@1.2.3", "?"),
            ("bash -c npx\u{b7}-y\u{b7}tool@1.2.3", "?"),
            ("cmd /c npx\u{b7}-y\u{b7}tool", "?"),
            ("sudo --unheard npx tool@1.2.3", "?"),
        ] {
            assert_eq!(open(line).as_deref(), Some(package), "{line}");
        }
        for line in [
            "uvx --python 3.11 tool==1.2.3",
            "uvx --with requests==2.32.0 tool==1.2.3 --with other",
            "cmd /c npx -y tool@1.2.3",
            "deno run -A npm:@corp/tool@1.2.3",
            "deno run main.ts",
            "docker run -p 8000:8000 image:1.2.3",
            "docker exec -i container tool",
            "uv --directory /srv run server.py",
            "uv run --with tool==1.2.3 other.py",
            "bash -c cd\u{b7}/srv\u{b7}&&\u{b7}node\u{b7}server.js",
            "node server.js",
        ] {
            assert_eq!(open(line), None, "{line}");
        }
    }
}
