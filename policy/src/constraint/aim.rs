//! Whether a constraint is about anything: one that misspells a tool or an argument limits nothing, and nobody is told
//! when a call passes it by.

use std::fmt;

use super::Constraint;
use crate::declared::{Declares, declares};
use crate::kind::Kind;
use crate::lock::{Lock, State};
use crate::mode::Mode;
use crate::name::ServerName;
use crate::pattern::Pattern;

/// What a constraint names that no tool in the lockfile has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// Which constraint, counted from 0 in the order of the configuration.
    pub constraint: usize,
    /// The servers it is about.
    pub servers: Vec<ServerName>,
    /// What they do not have.
    pub what: Absent,
}

/// What the tools of some servers do not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// No tool has a name that this pattern matches.
    Tool(Box<str>),
    /// No tool that the constraint is about declares this argument, a JSON Pointer.
    Argument(Box<str>),
}

impl Missed {
    /// What is not there, in words.
    #[must_use]
    pub fn note(&self) -> String {
        let names: Vec<_> = self.servers.iter().map(|server| format!("`{server}`")).collect();
        let names = names.join(", ");
        match &self.what {
            Absent::Tool(name) => {
                let name = name.escape_debug();
                format!("by the lockfile, no tool of {names} is called `{name}`")
            }
            Absent::Argument(at) => {
                let at = at.escape_debug();
                format!(
                    "by the lockfile, no tool of {names} that it is about has the argument `{at}`"
                )
            }
        }
    }

    /// What is missed by `constraints`, of all `servers` there are, by the definitions in `lock` that are not revoked. Of a
    /// server that has no tool there nothing is known, and a constraint that is about it misses nothing.
    #[must_use]
    pub fn all(constraints: &[Constraint], servers: &[ServerName], lock: &Lock) -> Vec<Self> {
        let mut all = Vec::new();
        for (n, constraint) in
            constraints.iter().enumerate().filter(|(_, one)| one.mode != Mode::Off)
        {
            let meant = servers.iter().filter(|server| server.is_among(&constraint.servers));
            let meant: Vec<_> = meant.collect();
            for what in constraint.absent(&meant, lock).unwrap_or_default() {
                let servers = meant.iter().map(|server| (*server).clone()).collect();
                all.push(Self { constraint: n, servers, what });
            }
        }
        all
    }
}

/// Which constraint, counted from 1 as people do, and what is not there.
impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.constraint + 1;
        write!(f, "constraint {number} of `policy.constraints`: {}", self.note())
    }
}

impl Constraint {
    /// What it names that the tools of these servers do not have; `None` where it is not known what they have.
    fn absent(&self, servers: &[&ServerName], lock: &Lock) -> Option<Vec<Absent>> {
        let mut names = Vec::new();
        let mut says = Vec::new();
        for server in servers {
            let locked = lock.servers.get(server.as_str())?;
            let before = names.len();
            let tools = locked.offers.iter().filter(|((kind, _), _)| *kind == Kind::Tool);
            for ((_, name), versions) in tools {
                let versions = versions.iter().filter(|one| one.state != State::Revoked);
                for version in versions {
                    names.push(&**name);
                    if self.is_of(server, name) {
                        let schema = version.definition.value().get("inputSchema");
                        says.push(declares(schema, &self.at));
                    }
                }
            }
            // Before anything of it is in the lockfile it may offer anything.
            if names.len() == before {
                return None;
            }
        }
        let is_missed = |tool: &&Pattern| !names.iter().any(|name| tool.matches(name));
        let tools = self.tools.iter().filter(is_missed);
        let mut absent: Vec<_> = tools.map(|tool| Absent::Tool(tool.as_str().into())).collect();
        if says.contains(&Declares::Others) && !says.contains(&Declares::Argument) {
            absent.push(Absent::Argument(self.limits.argument.as_str().into()));
        }
        Some(absent)
    }
}
