//! Compiles the `overrides` of a server: the titles and descriptions that callers see in place of the server's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use json::{Document, JsonBounds};
use policy::definition::offer::{CatalogItem, ItemKind};

use super::compiler::SettingsCompiler;
use super::raw::{RawArgumentOverride, RawToolOverride};
use crate::config::overrides::{Overrides, TextOverride, ToolOverride};

/// Maximum size of a text, in bytes.
const MAX_TEXT: usize = 16 * 1024;
/// Maximum number of overridden tools of one server, and of arguments of one tool.
const MOST: usize = 1024;

impl SettingsCompiler<'_> {
    /// Compiles the overrides of one server.
    pub(super) fn overrides(&mut self, at: &str, raws: Vec<RawToolOverride>) -> Overrides {
        self.few(at, raws.len());
        let (mut tools, mut warnings, mut seen) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        for (n, raw) in raws.into_iter().enumerate() {
            let at = format!("{at}/{n}");
            self.unique(&format!("{at}/tool"), &raw.tool, &mut seen);
            let RawToolOverride { tool, title, description, arguments } = raw;
            let is_empty = title.is_none() && description.is_none() && arguments.is_empty();
            if is_empty {
                self.says_nothing(&at);
            }
            let words = self.words(&at, title, description);
            let arguments = self.arguments_of(&format!("{at}/arguments"), arguments);
            let words = ToolOverride { tool: words, arguments };
            warnings.extend(findings(&tool, &words));
            tools.insert(tool.into(), words);
        }
        Overrides::new(tools, warnings)
    }

    fn arguments_of(
        &mut self,
        at: &str,
        raws: Vec<RawArgumentOverride>,
    ) -> BTreeMap<Box<str>, TextOverride> {
        self.few(at, raws.len());
        let (mut all, mut seen) = (BTreeMap::new(), BTreeSet::new());
        for (n, raw) in raws.into_iter().enumerate() {
            let at = format!("{at}/{n}");
            let RawArgumentOverride { argument, title, description } = raw;
            self.unique(&format!("{at}/argument"), &argument, &mut seen);
            if !argument.starts_with('/') {
                let help = "write where it stands in the arguments, such as `/path`";
                self.report(&format!("{at}/argument"), "not a JSON Pointer", help);
            }
            if title.is_none() && description.is_none() {
                self.says_nothing(&at);
            }
            all.insert(argument.into(), self.words(&at, title, description));
        }
        all
    }

    fn words(
        &mut self,
        at: &str,
        title: Option<String>,
        description: Option<String>,
    ) -> TextOverride {
        for (key, text) in [("title", &title), ("description", &description)] {
            if text.as_ref().is_some_and(|text| text.len() > MAX_TEXT) {
                let message = format!("the text is longer than {MAX_TEXT} bytes");
                self.report(&format!("{at}/{key}"), message, "shorten it");
            }
        }
        TextOverride { title: title.map(Into::into), description: description.map(Into::into) }
    }

    fn says_nothing(&mut self, at: &str) {
        let help = "give a `title` or a `description`, or remove it";
        self.report(at, "the override replaces nothing", help);
    }

    fn few(&mut self, at: &str, count: usize) {
        if count > MOST {
            self.report(at, format!("there are more than {MOST} of them"), "remove some");
        }
    }
}

/// What the detectors find in the texts for one tool, which are inspected like the definition of a server.
fn findings(tool: &str, words: &ToolOverride) -> Vec<Box<str>> {
    let text = |words: &TextOverride| {
        let all = [("title", &words.title), ("description", &words.description)];
        let all = all
            .into_iter()
            .filter_map(|(key, text)| Some((key.to_owned(), text.as_deref()?.into())));
        all.collect::<serde_json::Map<String, serde_json::Value>>()
    };
    let mut definition = text(&words.tool);
    definition.insert("name".to_owned(), tool.into());
    let arguments = words.arguments.iter().map(|(at, words)| (at.to_string(), text(words).into()));
    let properties: serde_json::Map<_, _> = arguments.collect();
    let schema = serde_json::json!({ "type": "object", "properties": properties });
    definition.insert("inputSchema".to_owned(), schema);
    let text = serde_json::Value::Object(definition).to_string();
    let Ok(document) = Document::parse(text.into(), &JsonBounds::MESSAGE) else {
        return Vec::new();
    };
    let document = Arc::new(document);
    let Ok(offer) = CatalogItem::read(ItemKind::Tool, document.root(), &document) else {
        return Vec::new();
    };
    let told = |finding: &detection::inspect::Finding| {
        let tool = tool.escape_debug();
        format!("the override of the tool `{tool}`: {finding}").into()
    };
    offer.findings().iter().map(told).collect()
}
