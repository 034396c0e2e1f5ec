//! Budgets of calls: what they count, and for which callers.

use std::time::Duration;

use policy_core::subject::kind::ItemKind;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;
use policy_core::subject::principal::{Principal, PrincipalSelector};
use schemars::JsonSchema;
use serde::Deserialize;

/// What a budget can be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BudgetSubject {
    /// Each principal has its own counter.
    Principal,
    /// Each OAuth client, together with its principal.
    Client,
    /// Each server has its own counter.
    Server,
    /// Each tool of a server.
    Tool,
}

/// A budget of calls.
#[derive(Clone, Debug)]
pub struct CallBudget {
    /// The name in refusals and records.
    pub name: Box<str>,
    /// Where it stands in the configuration, such as `budgets[0]`.
    pub at: Box<str>,
    /// The calls that count.
    pub scope: BudgetScope,
    /// What has a budget of its own.
    pub per: Vec<BudgetSubject>,
    /// The time for which it is.
    pub window: Duration,
    /// Maximum number of calls.
    pub calls: Option<u64>,
    /// Maximum bytes of what callers send with calls, and of what they are answered.
    pub bytes: Option<u64>,
    /// Maximum cost of the calls, in units.
    pub cost: Option<u64>,
}

/// The calls that a budget counts. `None` stands for all.
#[derive(Clone, Debug, Default)]
pub struct BudgetScope {
    /// The principals whose calls count; `None` for all.
    pub principals: Option<Vec<PrincipalSelector>>,
    /// The servers whose calls count; `None` for all.
    pub servers: Option<Vec<Pattern>>,
    /// The tools; then nothing else counts.
    pub tools: Option<Vec<Pattern>>,
}

/// What is called, and by which caller.
#[derive(Clone, Copy, Debug)]
pub struct BudgetedCall<'a> {
    /// The principal that makes the call.
    pub principal: &'a Principal,
    /// The upstream server that is called; `None` for a tool of the gateway itself.
    pub server: Option<&'a ServerName>,
    /// What kind of thing is used.
    pub kind: ItemKind,
    /// Its name, as the server uses it.
    pub name: &'a str,
    /// How many calls it is: one, or none if a result that was kept is read.
    pub calls: u64,
    /// Bytes of what the caller sends with it, or reads.
    pub bytes: u64,
    /// What the call costs, in units.
    pub cost: u64,
}

impl BudgetScope {
    /// Whether a call counts.
    #[must_use]
    pub fn has(&self, call: &BudgetedCall<'_>) -> bool {
        let matches = |patterns: &Option<Vec<Pattern>>, text: &str| {
            patterns.as_ref().is_none_or(|all| all.iter().any(|one| one.matches(text)))
        };
        let is_of = |who: &Vec<PrincipalSelector>| who.iter().any(|who| who.is(call.principal));
        self.principals.as_ref().is_none_or(is_of)
            && match call.server {
                Some(server) => matches(&self.servers, server.as_str()),
                // What is no server's is not among servers.
                None => self.servers.is_none(),
            }
            && (self.tools.is_none() || call.kind == ItemKind::Tool)
            && matches(&self.tools, call.name)
    }
}
