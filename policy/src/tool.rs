//! What a server offers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::inspect::{self, Finding};
use crate::json::{Document, Fragment, Value};
use crate::name::{NameError, ServerName, ToolName};

/// One tool as its server describes it: every member, known or not, as it came.
#[derive(Clone, Debug)]
pub struct Tool {
    name: ToolName,
    definition: Fragment,
    findings: Vec<Finding>,
}

/// Why a definition is not a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// A definition is an object.
    #[error("tool definition is not an object")]
    NotAnObject,
    /// It has no name, or the name is no string.
    #[error("tool definition has no `name`")]
    Unnamed,
    /// Its name cannot be used.
    #[error("tool name")]
    Name(#[source] NameError),
}

impl Tool {
    /// Reads one definition and inspects all of its text.
    ///
    /// # Errors
    /// When it has no usable name.
    pub fn read(definition: Value<'_>, document: &Arc<Document>) -> Result<Self, ToolError> {
        if !definition.is_object() {
            return Err(ToolError::NotAnObject);
        }
        let name = definition.get("name").and_then(Value::as_str).ok_or(ToolError::Unnamed)?;
        let name = ToolName::parse(&name).map_err(ToolError::Name)?;
        let findings = inspect::definition(&name, definition);
        Ok(Self { name, definition: definition.fragment(document), findings })
    }

    /// Its name, as its server gives it.
    #[must_use]
    pub const fn name(&self) -> &ToolName {
        &self.name
    }

    /// The whole definition.
    #[must_use]
    pub fn definition(&self) -> Value<'_> {
        self.definition.value()
    }

    /// What the detectors saw in it.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    #[cfg(test)]
    pub(crate) fn for_tests(definition: &str) -> Self {
        let text = bytes::Bytes::copy_from_slice(definition.as_bytes());
        let document = Document::parse(text, &crate::json::Bounds::MESSAGE).unwrap();
        let document = Arc::new(document);
        Self::read(document.root(), &document).unwrap()
    }
}

/// Everything one server offers, in the order it offers it.
#[derive(Clone, Debug)]
pub struct Catalog {
    server: ServerName,
    tools: Vec<Tool>,
    by_name: BTreeMap<ToolName, usize>,
}

impl Catalog {
    /// The catalogue of `server`.
    ///
    /// Two tools of one name are both marked: nobody could say which of them a call means
    /// (threat T1008).
    #[must_use]
    pub fn new(server: ServerName, mut tools: Vec<Tool>) -> Self {
        let mut by_name = BTreeMap::new();
        let mut twice = Vec::new();
        for (at, tool) in tools.iter().enumerate() {
            if let Some(first) = by_name.insert(tool.name.clone(), at) {
                twice.extend([first, at]);
            }
        }
        for at in twice {
            if let Some(tool) = tools.get_mut(at) {
                tool.findings.push(Finding::duplicate_name());
            }
        }
        Self { server, tools, by_name }
    }

    /// Which server.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        &self.server
    }

    /// Its tools.
    #[must_use]
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The tool called `name`.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.get(*self.by_name.get(name)?)
    }
}
