//! Compiles the `discovery` section of a route.

use policy::definition::registry::RateLimit;
use policy_core::subject::pattern::Pattern;

use super::compiler::SettingsCompiler;
use super::raw::{RawDiscovery, RawDiscoveryMode};

/// Most tools of one answer of `find_tools`.
pub const MAX_FOUND_TOOLS: usize = 50;
/// How many tools `find_tools` answers if nothing says how many.
const USUAL_FOUND_TOOLS: usize = 10;
/// Most patterns in `always`, and their longest one in bytes.
const MAX_PATTERNS: usize = 256;
const MAX_PATTERN_BYTES: usize = 256;
/// Most tools that a list has because they were found, and how many if nothing says how many.
const MAX_LOADED_TOOLS: usize = 200;
const USUAL_LOADED_TOOLS: usize = 50;

/// Most tokens that the descriptions of one tool can be allowed.
const MAX_DESCRIPTION_TOKENS: usize = 10_000;

/// Which tools of the servers the list of a route with discovery has.
#[derive(Clone, Debug)]
pub enum ListedTools {
    /// All that the caller may use.
    All,
    /// Of these those whose names on the route match one of the patterns.
    Only(Vec<Pattern>),
}

/// How models find the tools of a route.
#[derive(Clone, Debug)]
pub struct DiscoverySettings {
    /// Which tools of the servers the list has.
    pub listed: ListedTools,
    /// How many tools an answer has if its caller asks for no number.
    pub limit: usize,
    /// How many tools the list of one caller has because it has found them; `None` if finding changes no list.
    pub loads: Option<usize>,
    /// How often one caller may find and describe tools; `None` for as often as it wants.
    pub rate: Option<RateLimit>,
    /// The most tokens that the descriptions of a tool have together in the list; `None` if they are shown as they are.
    pub description_tokens: Option<usize>,
}

impl SettingsCompiler<'_> {
    /// The discovery of a route; `None` if it is off.
    pub(super) fn discovery(&mut self, at: &str, raw: RawDiscovery) -> Option<DiscoverySettings> {
        let loads = self.loads(at, &raw);
        let RawDiscovery { mode, always, limit, rate, description_tokens, .. } = raw;
        let limit = limit.unwrap_or(USUAL_FOUND_TOOLS);
        let rate = self.call_rate(at, rate.as_deref());
        if !(1..=MAX_FOUND_TOOLS).contains(&limit) {
            let message = format!("`find_tools` cannot answer {limit} tools");
            let help = format!("write a number from 1 to {MAX_FOUND_TOOLS}");
            self.report(&format!("{at}/limit"), message, help);
        }
        if always.len() > MAX_PATTERNS {
            let message = format!("there are more than {MAX_PATTERNS} patterns");
            self.report(&format!("{at}/always"), message, "write patterns with `*`");
        }
        if mode != RawDiscoveryMode::Search && !always.is_empty() {
            let message = "these patterns have no effect: only the mode `search` leaves tools out";
            self.report(&format!("{at}/always"), message, "set `mode: search`, or remove them");
        }
        for (n, text) in always.iter().enumerate() {
            if text.is_empty() || text.len() > MAX_PATTERN_BYTES {
                let help = "write the name of a tool on this route, with `*` for any characters";
                self.report(&format!("{at}/always/{n}"), "no tool can have this name", help);
            }
        }
        self.description_tokens(&format!("{at}/descriptionTokens"), mode, description_tokens);
        let listed = match mode {
            RawDiscoveryMode::Off => return None,
            RawDiscoveryMode::Both => ListedTools::All,
            RawDiscoveryMode::Search => {
                ListedTools::Only(always.iter().map(|text| Pattern::new(text)).collect())
            }
        };
        Some(DiscoverySettings { listed, limit, loads, rate, description_tokens })
    }

    /// How many found tools a list has; `None` if no list follows what was found.
    fn loads(&mut self, at: &str, raw: &RawDiscovery) -> Option<usize> {
        if raw.loads && raw.mode != RawDiscoveryMode::Search {
            let message =
                "this has no effect: only with the mode `search` tools are missing in lists";
            self.report(&format!("{at}/loads"), message, "set `mode: search`, or remove it");
        }
        let at = format!("{at}/loadLimit");
        let limit = raw.load_limit.unwrap_or(USUAL_LOADED_TOOLS);
        if !(1..=MAX_LOADED_TOOLS).contains(&limit) {
            let message = format!("a list cannot have {limit} tools that were found");
            self.report(&at, message, format!("write a number from 1 to {MAX_LOADED_TOOLS}"));
        } else if raw.load_limit.is_some() && !raw.loads {
            let message = "this has no effect: no list follows what was found";
            self.report(&at, message, "set `loads: true`, or remove it");
        }
        raw.loads.then_some(limit)
    }

    /// Reports a budget that is none, or that has no tool which shows the rest.
    fn description_tokens(&mut self, at: &str, mode: RawDiscoveryMode, tokens: Option<usize>) {
        let Some(tokens) = tokens else { return };
        if !(1..=MAX_DESCRIPTION_TOKENS).contains(&tokens) {
            let message = format!("the descriptions of a tool cannot have {tokens} tokens");
            let help = format!("write a number from 1 to {MAX_DESCRIPTION_TOKENS}");
            self.report(at, message, help);
        }
        if mode == RawDiscoveryMode::Off {
            let message =
                "what descriptions lose could not be read: the route has no `describe_tool`";
            self.report(at, message, "set `mode: search` or `mode: both`, or remove it");
        }
    }
}
