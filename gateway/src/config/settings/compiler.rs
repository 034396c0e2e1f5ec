//! What every part of the configuration is compiled with: the problems that were found, where paths lead, and what the
//! gateway itself uses.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::problem::Problem;
use super::unserved::Unserved;
use super::yaml::Node;
use super::{Own, Purpose, SecretRef};
use crate::base::clock::{Clock as _, System};

/// A section that others refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defining {
    /// `identity`, by the names and groups of callers, and by those who vouch for them.
    Callers,
    /// `servers`, by their names.
    Servers,
}

impl Defining {
    /// Its JSON Pointer.
    const fn section(self) -> &'static str {
        match self {
            Self::Callers => "/identity",
            Self::Servers => "/servers",
        }
    }
}

/// A secret that is to be found when something is served.
pub(super) struct SoughtSecret {
    /// The place in the file that says where it is.
    pub(super) at: String,
    /// Where it is.
    pub(super) secret: SecretRef,
    /// What is put before it in a header: `Bearer `; nothing for most.
    pub(super) prefix: Box<str>,
}

impl SoughtSecret {
    pub(super) fn new(at: String, secret: SecretRef) -> Self {
        Self { at, secret, prefix: Box::default() }
    }
}

/// Reads the parts and keeps what is wrong with them.
pub(super) struct Compiler<'a> {
    root: &'a Node,
    /// The folder of the configuration: paths in it are from there.
    folder: &'a Path,
    /// What it is read for.
    purpose: Purpose,
    /// The servers that are not needed for that.
    pub(super) unserved: &'a Unserved,
    /// With those of the schema, which were found first.
    pub(super) problems: Vec<Problem>,
    /// The digests of files beside the configuration that are part of it, in the order they were read.
    pub(super) beside: Vec<[u8; 32]>,
    /// What the gateway itself uses.
    pub(super) uses: Own,
    /// The secrets that are to be found.
    pub(super) secrets: Vec<SoughtSecret>,
    /// What certificates must not have ended at.
    pub(super) now: SystemTime,
}

impl<'a> Compiler<'a> {
    /// For one configuration, with the problems that its schema has found.
    pub(super) fn new(
        root: &'a Node,
        folder: &'a Path,
        purpose: Purpose,
        unserved: &'a Unserved,
        problems: Vec<Problem>,
    ) -> Self {
        Self {
            root,
            folder,
            purpose,
            unserved,
            problems,
            now: System.now(),
            beside: Vec::new(),
            uses: Own::default(),
            secrets: Vec::new(),
        }
    }
}

impl Compiler<'_> {
    pub(super) fn report(&mut self, at: &str, message: impl Into<String>, help: impl Into<String>) {
        if self.unserved.waives(at) {
            return;
        }
        let problem = Problem::new(self.root.place(at), message, help);
        // What a mapping lacks because of an unknown key in it is not said beside that key, and of a key that is missing
        // nothing else is said.
        let is_cause = |cause: &Problem| problem.follows(cause) || cause.is_of_missing(at);
        if !self.problems.iter().any(is_cause) {
            self.problems.push(problem);
        }
    }

    /// Reports a reference to something that a section does not define, unless what is wrong with that section may be why.
    pub(super) fn report_reference(
        &mut self,
        defining: Defining,
        at: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if !self.is_doubtful(defining) {
            self.report(at, message, help);
        }
    }

    /// Whether something is wrong with a section, so that it may define more than what was understood of it.
    pub(super) fn is_doubtful(&self, defining: Defining) -> bool {
        let section = defining.section();
        let found = self.root.node(section);
        let places: Vec<_> = match defining {
            Defining::Callers => found.map(|node| node.span.clone()).into_iter().collect(),
            // A server stands by its name, whatever else is wrong with it.
            Defining::Servers => {
                let name = |n| self.root.node(&format!("{section}/{n}/name"));
                (0..).map_while(name).map(|node| node.span.clone()).collect()
            }
        };
        let misplaced = |problem: &Problem| {
            problem.is_meant_as(section)
                || problem.is_of_missing(section)
                || places.iter().any(|place| problem.is_within(place))
        };
        self.problems.iter().any(misplaced)
    }

    /// Whether a section is missing, or a key in it that has to be there: it may be meant to say more than it does.
    pub(super) fn is_incomplete(&self, section: &str) -> bool {
        let is_within = |key: &str| {
            key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.problems.iter().filter_map(Problem::missing_key).any(is_within)
    }

    /// The same, without showing what is written there: it may be a secret.
    pub(super) fn report_hiding(
        &mut self,
        at: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if self.unserved.waives(at) {
            return;
        }
        let problem = Problem::new(self.root.place(at), message, help);
        self.problems.push(problem.hiding(self.root.scalars(at)));
    }

    /// Where a path in the configuration leads: one that is not absolute is from the folder of the file, whatever
    /// folder the process was started in.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// The same for a file of records, which only one process can write to: a process that serves one client over
    /// standard input and output has one of its own beside it, `FILE.stdio-N`. Pipes and devices take several writers.
    pub(super) fn of_process(&self, text: &str) -> PathBuf {
        let path = self.path(text);
        let Purpose::Stdio(number) = self.purpose else { return path };
        if std::fs::metadata(&path).is_ok_and(|data| !data.is_file()) {
            return path;
        }
        super::file_of_process(&path, number)
    }

    /// Reports a list with nothing in it.
    pub(super) fn filled<T>(&mut self, at: &str, list: &[T], help: &str) {
        if list.is_empty() {
            self.report(at, "the list is empty", help);
        }
    }

    /// Reports a name used before.
    pub(super) fn unique(&mut self, at: &str, name: &str, seen: &mut BTreeSet<String>) {
        if !seen.insert(name.to_owned()) {
            let message = format!("`{}` is used twice", name.escape_debug());
            let help = if name.starts_with('/') {
                "give each route its own path, or put the servers of both into one route"
            } else {
                "give each its own name"
            };
            self.report(at, message, help);
        }
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
