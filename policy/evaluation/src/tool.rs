//! A definition of a tool, prepared for evaluation.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use detection::inspect::Finding;
use json::{Document, Value};
use policy::definition::gravity::gravity;
use policy::definition::offer::{CatalogItem, DefinitionError, ItemKind};
use policy::definition::review::{self, Severity};
use policy_core::schema::Schema;
use selector::bag;
use selector::index::PreparedTool;
use selector::model::Model;
use selector::text::words;
use selector::tool::ToolText;

use crate::likeness::MAX_WORDS;
use selector::vector::Direction;

/// The name of a tool with that of its server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName {
    /// The server; empty if it is not known.
    pub server: Box<str>,
    /// The tool, by the server's own name for it.
    pub name: Box<str>,
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.server {
            "" => f.write_str(&self.name),
            server => write!(f, "{server}/{}", self.name),
        }
    }
}

/// A remark of the review or a finding of a detector, as `portcullis scan` reports it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToolRemark {
    /// How much it matters.
    pub severity: Severity,
    /// The rule of the review, or the detector.
    pub rule: &'static str,
    /// JSON Pointer (RFC 6901) into the definition.
    pub at: String,
}

/// A definition that is evaluated.
#[derive(Debug)]
pub struct EvaluatedTool {
    /// Its name and that of its server.
    pub name: ToolName,
    /// The definition of the tool.
    pub offer: CatalogItem,
    /// What the review and the detectors say of it, the gravest first.
    pub remarks: Vec<ToolRemark>,
    /// The texts by which it is found.
    pub(crate) text: ToolText,
    pub(crate) prepared: PreparedTool,
    pub(crate) direction: Direction,
    schema: OnceLock<Schema>,
    words: OnceLock<BTreeSet<String>>,
}

impl EvaluatedTool {
    /// Prepares a definition that is the root of `document`.
    ///
    /// # Errors
    /// If it is not a definition that a gateway would show.
    pub fn new(
        model: &Model,
        server: &str,
        document: &Arc<Document>,
    ) -> Result<Self, DefinitionError> {
        let offer = CatalogItem::read(ItemKind::Tool, document.root(), document)?;
        let text = ToolText::read(server, document.root());
        let words = bag::tool_words(&text);
        let found = offer.findings().iter().map(remark);
        let reviewed = review::tool(offer.definition()).into_iter();
        let reviewed = reviewed.map(|remark| ToolRemark {
            severity: remark.severity,
            rule: remark.rule,
            at: remark.at,
        });
        let mut remarks: Vec<_> = found.chain(reviewed).collect();
        remarks.sort_by(|one, other| other.cmp(one));
        Ok(Self {
            name: ToolName { server: server.into(), name: offer.name().as_str().into() },
            remarks,
            prepared: PreparedTool::new(model, &text),
            direction: Direction::of(model, words.iter().map(|(word, weight)| (&**word, *weight))),
            text,
            offer,
            schema: OnceLock::new(),
            words: OnceLock::new(),
        })
    }

    /// The definition of the tool.
    #[must_use]
    pub fn definition(&self) -> Value<'_> {
        self.offer.definition()
    }

    /// The words of its name and its description.
    pub(crate) fn words(&self) -> &BTreeSet<String> {
        self.words.get_or_init(|| {
            let texts = [&self.text.name, &self.text.title, &self.text.description];
            texts.into_iter().flat_map(|text| words(text, MAX_WORDS)).collect()
        })
    }

    /// Whether a finding is one for which the gateway withholds the definition by default.
    #[must_use]
    pub fn is_grave(&self) -> bool {
        self.remarks.iter().any(|remark| remark.severity == Severity::High)
    }

    /// The input schema, compiled on first use. A definition without one takes nothing: its schema cannot be used.
    pub(crate) fn schema(&self) -> &Schema {
        self.schema.get_or_init(|| {
            let schema = self.definition().get("inputSchema");
            Schema::new(schema.unwrap_or_else(|| self.definition()))
        })
    }
}

/// What a detector found.
fn remark(finding: &Finding) -> ToolRemark {
    let (severity, _) = gravity(finding);
    ToolRemark { severity, rule: finding.detector.name(), at: finding.at.clone() }
}
