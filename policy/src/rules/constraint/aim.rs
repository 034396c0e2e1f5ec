//! Finds constraints that match no tool or argument in the lockfile: a misspelt name limits nothing, and calls pass
//! it without notice.

use std::fmt;

use policy_core::schema::declared::{Declaration, declares};
use policy_core::subject::kind::ItemKind;
use policy_core::subject::mode::Mode;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;

use super::Constraint;
use crate::definition::lock::{ApprovalState, Lockfile};

/// A name in a constraint that no tool in the lockfile has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmatchedConstraint {
    /// Index of the constraint in the configuration, counted from 0.
    pub constraint: usize,
    /// The servers that the constraint applies to.
    pub servers: Vec<ServerName>,
    /// The tool or argument that these servers do not have.
    pub what: UnmatchedName,
}

/// A tool or argument that the lockfile does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnmatchedName {
    /// No tool name matches this pattern.
    Tool(Box<str>),
    /// No tool that the constraint applies to declares the argument at this JSON Pointer.
    Argument(Box<str>),
}

impl UnmatchedConstraint {
    /// Describes the missing name in a sentence.
    #[must_use]
    pub fn note(&self) -> String {
        let names: Vec<_> = self.servers.iter().map(|server| format!("`{server}`")).collect();
        let names = names.join(", ");
        match &self.what {
            UnmatchedName::Tool(name) => {
                let name = name.escape_debug();
                format!("by the lockfile, no tool of {names} is called `{name}`")
            }
            UnmatchedName::Argument(at) => {
                let at = at.escape_debug();
                format!(
                    "by the lockfile, no tool of {names} that it is about has the argument `{at}`"
                )
            }
        }
    }

    /// What `constraints` name and the lockfile does not have, for all configured `servers`. Revoked definitions are
    /// ignored. A server without any tool in the lockfile is unknown, and constraints on it are not reported.
    #[must_use]
    pub fn all(constraints: &[Constraint], servers: &[ServerName], lock: &Lockfile) -> Vec<Self> {
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

/// Prints the number of the constraint, counted from 1, and the note.
impl fmt::Display for UnmatchedConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.constraint + 1;
        write!(f, "constraint {number} of `policy.constraints`: {}", self.note())
    }
}

impl Constraint {
    /// The names that these servers do not have; `None` if the tools of one of them are unknown.
    fn absent(&self, servers: &[&ServerName], lock: &Lockfile) -> Option<Vec<UnmatchedName>> {
        let mut names = Vec::new();
        let mut says = Vec::new();
        for server in servers {
            let locked = lock.servers.get(server.as_str())?;
            let before = names.len();
            let tools = locked.offers.iter().filter(|((kind, _), _)| *kind == ItemKind::Tool);
            for ((_, name), versions) in tools {
                let versions = versions.iter().filter(|one| one.state != ApprovalState::Revoked);
                for version in versions {
                    names.push(&**name);
                    if self.is_of(server, name) {
                        let schema = version.definition.value().get("inputSchema");
                        says.push(declares(schema, &self.at));
                    }
                }
            }
            // A server without any locked tool may offer anything.
            if names.len() == before {
                return None;
            }
        }
        let is_missed = |tool: &&Pattern| !names.iter().any(|name| tool.matches(name));
        let tools = self.tools.iter().filter(is_missed);
        let mut absent: Vec<_> =
            tools.map(|tool| UnmatchedName::Tool(tool.as_str().into())).collect();
        if says.contains(&Declaration::Others) && !says.contains(&Declaration::Argument) {
            absent.push(UnmatchedName::Argument(self.limits.argument.as_str().into()));
        }
        Some(absent)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::{Document, Fragment, JsonBounds};
    use policy_core::subject::name::ServerName;
    use policy_core::subject::pattern::Pattern;
    use serde_json::{Value, json};

    use super::{ApprovalState, Constraint, ItemKind, Lockfile, UnmatchedConstraint};
    use crate::definition::lock::{LockedServer, LockedVersion};
    use crate::definition::pin::{Digest, DigestSubject};

    fn constraint(tool: &str, argument: &str, mode: &str) -> Constraint {
        let limits = json!({ "servers": ["files"], "tools": [tool], "argument": argument,
            "mode": mode, "maxLength": 3 });
        Constraint::new(vec![Pattern::new("files")], serde_json::from_value(limits).unwrap())
            .unwrap()
    }

    /// A lockfile with the tool `read`, whose only argument is `path`.
    fn lock(state: ApprovalState) -> Lockfile {
        let definition: Value = json!({ "name": "read", "inputSchema": { "type": "object",
            "properties": { "path": { "type": "string" } }, "additionalProperties": false } });
        let document = Document::parse(definition.to_string().into(), &JsonBounds::MESSAGE);
        let definition = Fragment::whole(Arc::new(document.unwrap()));
        let digest = Digest::of(DigestSubject::Offer(ItemKind::Tool), definition.value()).unwrap();
        let versions = vec![LockedVersion::new(digest, state, definition)];
        let offers = [((ItemKind::Tool, "read".into()), versions)].into();
        let locked = LockedServer { offers, ..LockedServer::default() };
        Lockfile { servers: [("files".into(), locked)].into() }
    }

    fn notes(constraints: &[Constraint], lock: &Lockfile) -> Vec<String> {
        let servers = ["files", "mail"].map(|name| ServerName::parse(name).unwrap());
        let all = UnmatchedConstraint::all(constraints, &servers, lock);
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_constraint_on_a_tool_or_an_argument_that_there_is_not_is_reported() {
        let constraints = [
            constraint("read", "/path", "enforce"),
            constraint("raed", "/path", "enforce"),
            constraint("read", "/pth", "audit"),
            constraint("raed", "/pth", "off"),
        ];
        assert_eq!(
            notes(&constraints, &lock(ApprovalState::Approved)),
            [
                "constraint 2 of `policy.constraints`: by the lockfile, no tool of `files` is called `raed`",
                "constraint 3 of `policy.constraints`: by the lockfile, no tool of `files` that it is about has \
                 the argument `/pth`",
            ]
        );
        // Of a server without locked tools nothing is known.
        for lock in [lock(ApprovalState::Revoked), Lockfile::default()] {
            assert_eq!(notes(&constraints, &lock), [""; 0]);
        }
    }
}
