//! How many tokens the tools of servers take in the context of a model: as their servers have them, and as callers see
//! them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use gateway::config::overrides::{DefinitionEdits, Overrides};
use gateway::mcp::model_text::model_tokens;
use json::{Document, JsonBounds};
use policy::definition::drift::visible;
use policy::definition::offer::{Catalog, CatalogItem, ItemKind};
use policy::engine::pipeline::Policy;
use policy_core::subject::name::ServerName;
use serde_json::json;

/// How many tokens something takes in the context of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TokenCount {
    /// As the server has it.
    own: usize,
    /// As callers see it: with the operator's words, and without what is removed.
    shown: usize,
}

impl TokenCount {
    const fn with(self, more: Self) -> Self {
        Self { own: self.own + more.own, shown: self.shown + more.shown }
    }

    /// The second number, where it is another one.
    fn as_seen(self) -> String {
        if self.own == self.shown {
            String::new()
        } else {
            format!(", {} as callers see them", self.shown)
        }
    }
}

/// The tools of one server with their tokens, in the server's order.
#[derive(Debug)]
pub(super) struct ServerTokens {
    server: ServerName,
    tools: Vec<(Box<str>, TokenCount)>,
}

impl ServerTokens {
    /// Counts the tools in `catalogs`. A tool that a server has in several forms counts as the first one.
    pub(super) fn of(
        catalogs: &[Arc<Catalog>],
        policy: &Policy,
        overrides: &BTreeMap<ServerName, Arc<Overrides>>,
    ) -> Vec<Self> {
        let (mut servers, mut seen) = (Vec::<Self>::new(), BTreeSet::new());
        for catalog in catalogs.iter().filter(|catalog| catalog.kind() == ItemKind::Tool) {
            let server = catalog.server();
            let words = overrides.get(server);
            for offer in catalog.offers() {
                let name = offer.name().as_str();
                if !seen.insert((server, name)) {
                    continue;
                }
                let own = model_tokens(offer.definition());
                let shown = shown_tokens(policy, server, offer, words).unwrap_or(own);
                let tool = (name.into(), TokenCount { own, shown });
                match servers.iter_mut().find(|known| known.server == *server) {
                    Some(known) => known.tools.push(tool),
                    None => servers.push(Self { server: server.clone(), tools: vec![tool] }),
                }
            }
        }
        servers
    }

    fn sum(&self) -> TokenCount {
        self.tools.iter().fold(TokenCount::default(), |sum, (_, tokens)| sum.with(*tokens))
    }

    /// One line for people.
    fn line(&self) -> String {
        let (server, count, sum) = (&self.server, self.tools.len(), self.sum());
        let (tools, take) = if count == 1 { ("tool", "takes") } else { ("tools", "take") };
        format!("{server}: {count} {tools} {take} {} tokens of context{}", sum.own, sum.as_seen())
    }
}

/// The tokens of a definition as callers see it; `None` if it is that of the server.
fn shown_tokens(
    policy: &Policy,
    server: &ServerName,
    offer: &CatalogItem,
    words: Option<&Arc<Overrides>>,
) -> Option<usize> {
    let shown = policy.shown_definition(&policy.facts(), server, offer);
    let definition = shown.as_ref().map_or(offer.definition(), |shown| shown.root());
    let Some(words) = words.and_then(|words| words.of(offer.name().as_str())) else {
        return shown.is_some().then(|| model_tokens(definition));
    };
    let (mut edits, mut out) = (DefinitionEdits::default(), Vec::new());
    // `portcullis scan` is about what servers have; the log says which overrides have no effect.
    drop(words.edit(definition, &mut edits));
    edits.write(definition, &mut out);
    let edited = Document::parse(out.into(), &JsonBounds::ANSWER).ok()?;
    Some(model_tokens(edited.root()))
}

/// A line for each server.
pub(super) fn summary(servers: &[ServerTokens]) -> String {
    let mut out = String::new();
    for server in servers {
        writeln!(out, "{}", server.line()).unwrap_or_default();
    }
    out
}

/// Each tool for people: the one with the most tokens first.
pub(super) fn human(servers: &[ServerTokens]) -> String {
    let mut out = String::new();
    for server in servers {
        writeln!(out, "{}", server.line()).unwrap_or_default();
        let mut tools: Vec<_> = server.tools.iter().collect();
        tools.sort_by_key(|(name, tokens)| (Reverse(tokens.own), name.clone()));
        for (name, tokens) in tools {
            let (name, seen) = (visible(name), tokens.as_seen());
            writeln!(out, "{:>9}  {name}{seen}", tokens.own).unwrap_or_default();
        }
    }
    out
}

/// All counts as JSON, for programs.
pub(super) fn as_json(servers: &[ServerTokens]) -> String {
    let tool = |(name, tokens): &(Box<str>, TokenCount)| json!({ "tool": name, "tokens": tokens.own, "shown": tokens.shown });
    let server = |one: &ServerTokens| {
        let sum = one.sum();
        json!({
            "server": one.server.as_str(), "tokens": sum.own, "shown": sum.shown,
            "tools": one.tools.iter().map(tool).collect::<Vec<_>>(),
        })
    };
    let sum = servers.iter().fold(TokenCount::default(), |sum, one| sum.with(one.sum()));
    let servers: Vec<_> = servers.iter().map(server).collect();
    let all = json!({ "tokens": sum.own, "shown": sum.shown, "servers": servers });
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}
