//! Decoys: tools that no server has. Only somebody who guesses names, or who was told to misuse what it sees, calls one
//! (control C35).

use std::collections::BTreeMap;

use policy_core::subject::kind::ItemKind;
use policy_core::subject::principal::{Principal, PrincipalSelector};

/// A tool that no server has, with what is shown of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecoyTool {
    /// The name, as a server would use it.
    pub name: Box<str>,
    /// The description in lists.
    pub description: Box<str>,
    /// The input schema in lists, as JSON.
    pub input_schema: Box<str>,
    /// The principals whose lists have it.
    pub shown_to: Vec<PrincipalSelector>,
}

impl DecoyTool {
    /// Whether the list of `principal` has it.
    #[must_use]
    pub fn is_shown_to(&self, principal: &Principal) -> bool {
        self.shown_to.iter().any(|who| who.is(principal))
    }
}

/// The decoys of all servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoys(BTreeMap<Box<str>, Vec<DecoyTool>>);

impl Decoys {
    /// Adds a decoy among the tools of `server`; returns whether its name is new there.
    pub fn add(&mut self, server: &str, tool: DecoyTool) -> bool {
        let tools = self.0.entry(server.into()).or_default();
        if tools.iter().any(|known| known.name == tool.name) {
            return false;
        }
        tools.push(tool);
        true
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The decoys among the tools of `server`.
    #[must_use]
    pub fn of(&self, server: &str) -> &[DecoyTool] {
        self.0.get(server).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether `name` of `server` is a decoy.
    #[must_use]
    pub fn has(&self, server: &str, kind: ItemKind, name: &str) -> bool {
        kind == ItemKind::Tool && self.of(server).iter().any(|tool| *tool.name == *name)
    }
}
