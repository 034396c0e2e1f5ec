//! Compiles the `budgets` and `repeatedCalls` sections.

use std::collections::BTreeSet;
use std::time::Duration;

use policy::definition::registry::RateLimit;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;

use super::IdentitySettings;
use super::compiler::{DefiningSection, SettingsCompiler};
use super::raw::{RawBudget, RawRepeatedCalls};
use crate::config::call_budget::{BudgetScope, BudgetSubject, CallBudget};

/// The longest window of a budget: it is counted in the memory of the process.
const LONGEST: Duration = Duration::from_secs(31 * 24 * 3600);
/// The default and the longest time in which identical calls are counted.
const REPEATED: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// Maximum number of budgets, all of which are looked at for each call.
const MOST: usize = 100;

impl SettingsCompiler<'_> {
    pub(super) fn budgets(
        &mut self,
        raws: Vec<RawBudget>,
        identity: &IdentitySettings,
        servers: &[ServerName],
    ) -> Vec<CallBudget> {
        if raws.len() > MOST {
            self.report("/budgets", format!("there are more than {MOST} of them"), "remove some");
        }
        let (mut seen, mut budgets) = (BTreeSet::new(), Vec::new());
        for (n, raw) in raws.into_iter().enumerate() {
            let at = format!("/budgets/{n}");
            self.recorded_name(&at, &raw.name, &mut seen);
            if raw.calls.is_none() && raw.bytes.is_none() && raw.cost.is_none() {
                let help = "give `calls`, `bytes` or `cost`";
                self.report(&at, "this budget limits nothing", help);
            }
            let window_at = format!("{at}/window");
            let window = self.time(&window_at, Some(&raw.window)).unwrap_or(LONGEST);
            if window.is_zero() || window > LONGEST {
                self.report(&window_at, "a budget cannot be for this time", "give at most `31d`");
            }
            let lists =
                [("principals", &raw.principals), ("servers", &raw.servers), ("tools", &raw.tools)];
            for (key, list) in lists {
                if let Some(list) = list {
                    let help = "name some, or leave it out: an empty list means none, so the budget would limit nothing";
                    self.filled(&format!("{at}/{key}"), list, help);
                }
            }
            let principals = raw.principals.as_ref();
            let principals = principals
                .map(|texts| self.selectors(&format!("{at}/principals"), texts, identity));
            let named = |texts: Vec<String>| {
                texts.iter().map(|text| Pattern::new(text)).collect::<Vec<_>>()
            };
            let of_servers = raw.servers.map(named);
            if let Some(patterns) = &of_servers {
                self.known_servers(&format!("{at}/servers"), patterns, servers);
            }
            budgets.push(CallBudget {
                name: raw.name.as_str().into(),
                at: format!("budgets[{n}]").into(),
                scope: BudgetScope { principals, servers: of_servers, tools: raw.tools.map(named) },
                per: raw.per.unwrap_or_else(|| vec![BudgetSubject::Principal]),
                window,
                calls: raw.calls,
                bytes: self
                    .size(&format!("{at}/bytes"), raw.bytes.as_deref())
                    .map(|size| size as u64),
                cost: raw.cost,
            });
        }
        budgets
    }

    /// Reports patterns that no server matches.
    fn known_servers(&mut self, at: &str, patterns: &[Pattern], servers: &[ServerName]) {
        for (n, pattern) in patterns.iter().enumerate() {
            if !servers.iter().any(|server| pattern.matches(server.as_str())) {
                let list: Vec<_> = servers.iter().map(ServerName::as_str).collect();
                let message = format!("there is no server `{}`", pattern.as_str().escape_debug());
                let help = format!("the servers are: {}", list.join(", "));
                self.report_reference(
                    DefiningSection::Servers,
                    &format!("{at}/{n}"),
                    message,
                    help,
                );
            }
        }
    }

    pub(super) fn repeated_calls(&mut self, raw: Option<&RawRepeatedCalls>) -> Option<RateLimit> {
        let raw = raw?;
        let (usual, most) = REPEATED;
        let per = self.time_within("/repeatedCalls/window", raw.window.as_deref(), usual, most);
        Some(RateLimit { count: raw.limit, per })
    }
}
