//! The results of `find_tools` and `describe_tool`.

use json::write_string;
use policy_core::subject::name::ServerName;

use crate::mcp::tool_signature::{ToolSignature, word};
use policy::definition::registry::ToolEffect;

use crate::mcp::discovery_tools::DiscoveryTool;
use crate::mcp::protocol::Era;
use crate::mcp::wire::{self, Id, Object};
use crate::stream::body::Body;

/// Most names of parameters that tell close tools apart, of each tool.
const MAX_DISTINCT: usize = 8;
/// Longest of these names, in characters.
const MAX_WORD: usize = 64;

/// A tool that was found.
#[derive(Debug)]
pub(super) struct FoundTool {
    /// The name on the route.
    pub(super) name: Box<str>,
    pub(super) class: ToolEffect,
    pub(super) signature: std::sync::Arc<ToolSignature>,
}

/// What sets a tool apart from others that fit a query alike.
#[derive(Debug)]
pub(super) struct CloseTool {
    /// The name on the route.
    pub(super) name: Box<str>,
    /// Its server, if the tools are of several servers, and names on the route tell them.
    pub(super) server: Option<String>,
    /// The parameters that not all of the tools have.
    pub(super) parameters: Vec<String>,
}

/// What `find_tools` answers to one query.
#[derive(Debug, Default)]
pub(super) struct FoundTools {
    pub(super) tools: Vec<FoundTool>,
    pub(super) close: Vec<CloseTool>,
    /// The servers whose tools could not be listed.
    pub(super) missing: Vec<ServerName>,
}

impl FoundTools {
    /// The answer for a model.
    fn text(&self) -> String {
        let mut lines: Vec<_> = self.tools.iter().map(FoundTool::line).collect();
        if lines.is_empty() {
            lines.push("No tool fits. Say in other words what you want to do.".to_owned());
        } else {
            lines.push(format!(
                "Call one with {}, {} or {}, as its class says: {{\"name\":\"NAME\",\"arguments\":{{…}}}}. {} shows its whole \
                 definition.",
                DiscoveryTool::Call(ToolEffect::Read).name(),
                DiscoveryTool::Call(ToolEffect::Write).name(),
                DiscoveryTool::Call(ToolEffect::Destructive).name(),
                DiscoveryTool::Describe.name(),
            ));
        }
        if !self.close.is_empty() {
            let close: Vec<_> = self.close.iter().map(CloseTool::clause).collect();
            lines.push(format!(
                "The first {} fit alike; ask the user if it is not clear which one is meant: {}.",
                close.len(),
                close.join("; ")
            ));
        }
        if !self.missing.is_empty() {
            let names: Vec<_> = self.missing.iter().map(ServerName::as_str).collect();
            lines
                .push(format!("Tools of these servers cannot be found now: {}.", names.join(", ")));
        }
        lines.join("\n")
    }

    /// The answer for a program, as JSON.
    fn structured(&self, out: &mut Vec<u8>) {
        let mut object = Object::open(out);
        json::write_items(object.key("tools"), self.tools.iter(), |out, tool| tool.write(out));
        if !self.close.is_empty() {
            json::write_items(object.key("close"), self.close.iter(), |out, tool| tool.write(out));
        }
        if !self.missing.is_empty() {
            let names = self.missing.iter().map(ServerName::as_str);
            json::write_items(object.key("missing"), names, write_string);
        }
        object.close();
    }
}

impl FoundTool {
    fn line(&self) -> String {
        let ToolSignature { call, description } = &*self.signature;
        let class = self.class.as_str();
        if description.is_empty() {
            format!("[{class}] {call}")
        } else {
            format!("[{class}] {call} -> {description}")
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut tool = Object::open(out);
        tool.text("name", &self.name);
        tool.text("class", self.class.as_str());
        tool.text("callWith", DiscoveryTool::Call(self.class).name());
        tool.text("signature", &self.signature.call);
        tool.text("description", &self.signature.description);
        tool.close();
    }
}

impl CloseTool {
    /// The parameters that are shown.
    fn distinct(&self) -> impl Iterator<Item = String> {
        self.parameters.iter().take(MAX_DISTINCT).map(|name| word(name, MAX_WORD))
    }

    fn clause(&self) -> String {
        let mut parts: Vec<_> =
            self.server.iter().map(|server| format!("of the server {server}")).collect();
        let distinct: Vec<_> = self.distinct().collect();
        if !distinct.is_empty() {
            parts.push(format!("with {}", distinct.join(", ")));
        }
        let name = word(&self.name, usize::MAX);
        if parts.is_empty() { name } else { format!("{name} ({})", parts.join(", ")) }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut tool = Object::open(out);
        tool.text("name", &self.name);
        if let Some(server) = &self.server {
            tool.text("server", server);
        }
        let distinct: Vec<_> = self.distinct().collect();
        if !distinct.is_empty() {
            let distinct = distinct.iter().map(String::as_str);
            json::write_items(tool.key("parameters"), distinct, write_string);
        }
        tool.close();
    }
}

/// The response of `find_tools`.
pub(super) fn found(id: &Id, era: Era, found: &FoundTools) -> Body {
    result(id, era, &found.text(), |out| found.structured(out))
}

/// The response of `describe_tool`: the definition as the list has it.
pub(super) fn described(id: &Id, era: Era, class: ToolEffect, definition: &str) -> Body {
    result(id, era, definition, |out| {
        let mut object = Object::open(out);
        object.text("class", class.as_str());
        object.text("callWith", DiscoveryTool::Call(class).name());
        object.raw("definition", definition);
        object.close();
    })
}

fn result(id: &Id, era: Era, text: &str, structured: impl Fn(&mut Vec<u8>)) -> Body {
    let mut out = wire::head(Some(id), 256 + 2 * text.len());
    out.extend_from_slice(br#""result":"#);
    let mut object = Object::open(&mut out);
    if era == Era::Modern {
        object.text("resultType", "complete");
    }
    let content = object.key("content");
    content.extend_from_slice(br#"[{"type":"text","text":"#);
    write_string(content, text);
    content.extend_from_slice(b"}]");
    structured(object.key("structuredContent"));
    object.close();
    out.push(b'}');
    out.into()
}
