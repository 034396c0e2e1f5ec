//! The state that all parts of the configuration are compiled with: the problems so far, the base directory of
//! paths, and the files, variables and secrets that the gateway uses.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use policy_core::subject::name::RuleId;

use super::problem::ConfigProblem;
use super::unserved::UnneededServers;
use super::yaml::YamlNode;
use super::{GatewayResources, LoadPurpose, SecretRef};
use crate::base::clock::{Clock as _, SystemClock};

/// A section that defines names for others to refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefiningSection {
    /// `identity`, which defines the principals, groups and issuers.
    Callers,
    /// `servers`, which defines the server names.
    Servers,
}

impl DefiningSection {
    /// The JSON Pointer of the section.
    const fn section(self) -> &'static str {
        match self {
            Self::Callers => "/identity",
            Self::Servers => "/servers",
        }
    }
}

/// A secret that must exist when the configuration is served.
pub(super) struct RequiredSecret {
    /// The JSON Pointer of the key that refers to the secret.
    pub(super) at: String,
    /// Where the secret is stored.
    pub(super) secret: SecretRef,
    /// The text before the secret in a header, such as `Bearer `; empty for most.
    pub(super) prefix: Box<str>,
}

impl RequiredSecret {
    pub(super) fn new(at: String, secret: SecretRef) -> Self {
        Self { at, secret, prefix: Box::default() }
    }
}

/// Compiles the sections and collects their problems.
pub(super) struct SettingsCompiler<'a> {
    root: &'a YamlNode,
    /// The directory of the configuration, which relative paths start at.
    folder: &'a Path,
    /// What the configuration is read for.
    pub(super) purpose: LoadPurpose,
    /// The servers that this purpose does not need.
    pub(super) unserved: &'a UnneededServers,
    /// All problems so far, beginning with those of the schema.
    pub(super) problems: Vec<ConfigProblem>,
    /// SHA-256 of further files that belong to the configuration, in the order in which they were read.
    pub(super) beside: Vec<[u8; 32]>,
    /// The files and variables of the gateway itself.
    pub(super) uses: GatewayResources,
    /// The secrets that must exist.
    pub(super) secrets: Vec<RequiredSecret>,
    /// The time that certificates must not have expired at.
    pub(super) now: SystemTime,
}

impl<'a> SettingsCompiler<'a> {
    /// A compiler for one configuration, with the problems that the schema check found.
    pub(super) fn new(
        root: &'a YamlNode,
        folder: &'a Path,
        purpose: LoadPurpose,
        unserved: &'a UnneededServers,
        problems: Vec<ConfigProblem>,
    ) -> Self {
        Self {
            root,
            folder,
            purpose,
            unserved,
            problems,
            now: SystemClock.now(),
            beside: Vec::new(),
            uses: GatewayResources::default(),
            secrets: Vec::new(),
        }
    }
}

impl SettingsCompiler<'_> {
    pub(super) fn report(&mut self, at: &str, message: impl Into<String>, help: impl Into<String>) {
        if self.unserved.waives(at) {
            return;
        }
        let problem = ConfigProblem::new(self.root.place(at), message, help);
        // The problem would repeat the cause if the mapping lacks something because of an unknown key in it, or if
        // a key above `at` is missing.
        let is_cause = |cause: &ConfigProblem| problem.follows(cause) || cause.is_of_missing(at);
        if !self.problems.iter().any(is_cause) {
            self.problems.push(problem);
        }
    }

    /// Reports a problem of an environment variable that sets something of `section`.
    pub(super) fn report_variable(
        &mut self,
        section: &str,
        variable: &str,
        message: &str,
        help: &str,
    ) {
        // A configuration that is only inspected may be meant for another machine.
        if self.purpose == LoadPurpose::Reading {
            return;
        }
        // The place is empty, so that several variables can have the same one.
        let start = self.root.place(section).start;
        let message = format!("the environment variable `{variable}`: {message}");
        self.problems.push(ConfigProblem::new(start..start, message, help));
    }

    /// Reports a reference to a name that a section does not define, unless a problem in that section may be the
    /// reason.
    pub(super) fn report_reference(
        &mut self,
        defining: DefiningSection,
        at: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if !self.is_doubtful(defining) {
            self.report(at, message, help);
        }
    }

    /// Whether a problem affects a section, so that it may define more names than were understood.
    pub(super) fn is_doubtful(&self, defining: DefiningSection) -> bool {
        let section = defining.section();
        let found = self.root.node(section);
        let places: Vec<_> = match defining {
            DefiningSection::Callers => found.map(|node| node.span.clone()).into_iter().collect(),
            // The name of a server is valid even if other keys of the server are not.
            DefiningSection::Servers => {
                let name = |n| self.root.node(&format!("{section}/{n}/name"));
                (0..).map_while(name).map(|node| node.span.clone()).collect()
            }
        };
        let misplaced = |problem: &ConfigProblem| {
            problem.is_meant_as(section)
                || problem.is_of_missing(section)
                || places.iter().any(|place| problem.is_within(place))
        };
        self.problems.iter().any(misplaced)
    }

    /// Whether a section, or a required key in it, is missing, so that it may be meant to say more than it does.
    pub(super) fn is_incomplete(&self, section: &str) -> bool {
        let is_within = |key: &str| {
            key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.problems.iter().filter_map(ConfigProblem::missing_key).any(is_within)
    }

    /// Reports a problem and masks the value at `at`, which may be a secret.
    pub(super) fn report_hiding(
        &mut self,
        at: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if self.unserved.waives(at) {
            return;
        }
        let problem = ConfigProblem::new(self.root.place(at), message, help);
        self.problems.push(problem.hiding(self.root.scalars(at)));
    }

    /// Resolves a path in the configuration: a relative one starts at the directory of the file, independent of the
    /// working directory.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// Resolves the path of an audit file, which only one process can write to. A stdio process gets a file of its
    /// own, `FILE.stdio-N`. Pipes and devices take several writers and are shared.
    pub(super) fn of_process(&self, text: &str) -> PathBuf {
        let path = self.path(text);
        let LoadPurpose::Stdio(number) = self.purpose else { return path };
        if std::fs::metadata(&path).is_ok_and(|data| !data.is_file()) {
            return path;
        }
        super::file_of_process(&path, number)
    }

    /// Reports an empty list.
    pub(super) fn filled<T>(&mut self, at: &str, list: &[T], help: &str) {
        if list.is_empty() {
            self.report(at, "the list is empty", help);
        }
    }

    /// Reports a name that is already in `seen`.
    pub(super) fn unique(&mut self, at: &str, name: &str, seen: &mut BTreeSet<String>) {
        if !seen.insert(name.to_owned()) {
            let first = self.first_with(at, name).unwrap_or_default();
            let message = format!("`{}` is used twice{first}", name.escape_debug());
            let help = if name.starts_with('/') {
                "give each route its own path, or put the servers of both into one route"
            } else {
                "give each its own name"
            };
            self.report(at, message, help);
        }
    }

    /// Checks the name of the item at `at`, which stands in records and is not in `seen`.
    pub(super) fn recorded_name(&mut self, at: &str, name: &str, seen: &mut BTreeSet<String>) {
        let at = format!("{at}/name");
        self.unique(&at, name, seen);
        if let Err(error) = RuleId::parse(name) {
            let message = format!("`{}` {error}", name.escape_debug());
            self.report(&at, message, "it stands in records: give a plain one");
        }
    }

    /// The first item of the list of `at`, such as `/servers/3/name`, of which the same key is `name`, for a message.
    fn first_with(&self, at: &str, name: &str) -> Option<String> {
        let (item, key) = at.rsplit_once('/')?;
        let (list, own) = item.rsplit_once('/')?;
        let own: usize = own.parse().ok()?;
        let is_first = |n: &usize| {
            let node = self.root.node(&format!("{list}/{n}/{key}"));
            node.and_then(YamlNode::scalar_text) == Some(name)
        };
        let first = (0..own).find(is_first)?;
        let list = list.trim_start_matches('/').replace('/', ".");
        Some(format!("; it is the {key} of `{list}[{first}]` already"))
    }

    /// Whether a problem was reported in the value at `at`, or in one below it.
    pub(super) fn is_flawed(&self, at: &str) -> bool {
        let place = self.root.place(at);
        self.problems.iter().any(|problem| problem.is_within(&place))
    }

    pub(super) fn address(&mut self, at: &str, text: &str) -> Option<SocketAddr> {
        let text = text.replacen("localhost:", "127.0.0.1:", 1);
        match text.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                let message = format!("`{}` is not an address and port", text.escape_debug());
                self.report(at, message, "write `127.0.0.1:8080`, `[::1]:8080` or `0.0.0.0:8080`");
                None
            }
        }
    }
}
