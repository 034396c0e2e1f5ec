//! The definitions of the gateway's tools on a route with discovery, as clients and models read them.

use crate::config::settings::MAX_FOUND_TOOLS;
use policy::definition::registry::ToolEffect;

use crate::mcp::discovery_tools::DiscoveryTool;
use crate::mcp::wire::Object;

/// Longest query that is read, in bytes.
pub(super) const MAX_QUERY_BYTES: usize = 2048;

/// What a result of `find_tools` has in `structuredContent`.
const FOUND: &str = r#"{"type":"object","properties":{"tools":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"class":{"type":"string","enum":["read","write","destructive"]},"callWith":{"type":"string"},"signature":{"type":"string"},"description":{"type":"string"}},"required":["name","class","callWith","signature","description"]}},"close":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"server":{"type":"string"},"parameters":{"type":"array","items":{"type":"string"}}},"required":["name"]}},"missing":{"type":"array","items":{"type":"string"}}},"required":["tools"]}"#;
/// What a result of `describe_tool` has in `structuredContent`.
const DESCRIBED: &str = r#"{"type":"object","properties":{"class":{"type":"string","enum":["read","write","destructive"]},"callWith":{"type":"string"},"definition":{"type":"object"}},"required":["class","callWith","definition"]}"#;
/// The parameters of `describe_tool`.
const NAMED: &str = r#"{"type":"object","properties":{"name":{"type":"string","description":"The name as find_tools shows it."}},"required":["name"],"additionalProperties":false}"#;
/// The parameters of the tools that call.
const CALLED: &str = r#"{"type":"object","properties":{"name":{"type":"string","description":"The name of the tool, as find_tools shows it."},"arguments":{"type":"object","description":"The parameters of that tool."}},"required":["name"],"additionalProperties":false}"#;

/// The definition of a tool, as JSON.
pub(super) fn definition(tool: DiscoveryTool, limit: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut definition = Object::open(&mut out);
    definition.text("name", tool.name());
    definition.text("title", title(tool));
    definition.text("description", description(tool));
    match tool {
        DiscoveryTool::Find => {
            definition.raw("inputSchema", &query(limit));
            definition.raw("outputSchema", FOUND);
        }
        DiscoveryTool::Describe => {
            definition.raw("inputSchema", NAMED);
            definition.raw("outputSchema", DESCRIBED);
        }
        DiscoveryTool::Call(_) => definition.raw("inputSchema", CALLED),
    }
    definition.raw("annotations", annotations(tool));
    definition.close();
    out
}

/// The parameters of `find_tools`.
fn query(limit: usize) -> String {
    format!(
        r#"{{"type":"object","properties":{{"query":{{"type":"string","description":"What you want to do, in a few words.","maxLength":{MAX_QUERY_BYTES}}},"limit":{{"type":"integer","minimum":1,"maximum":{MAX_FOUND_TOOLS},"default":{limit},"description":"How many tools you want to see."}}}},"required":["query"],"additionalProperties":false}}"#
    )
}

const fn title(tool: DiscoveryTool) -> &'static str {
    match tool {
        DiscoveryTool::Find => "Find tools",
        DiscoveryTool::Describe => "Describe a tool",
        DiscoveryTool::Call(ToolEffect::Read) => "Call a tool that reads",
        DiscoveryTool::Call(ToolEffect::Write) => "Call a tool that writes",
        DiscoveryTool::Call(ToolEffect::Destructive) => "Call a tool that can destroy",
    }
}

const fn description(tool: DiscoveryTool) -> &'static str {
    match tool {
        DiscoveryTool::Find => {
            "Finds tools by what they do. Use it before you say that something cannot be done: most tools are not in the \
             list. Each line of the answer is a tool: its class, its name with the parameters, and what it does."
        }
        DiscoveryTool::Describe => {
            "Shows the whole definition of a tool that find_tools has found: its description and the schema of its parameters."
        }
        DiscoveryTool::Call(ToolEffect::Read) => {
            "Calls a tool of the class read, which changes nothing. Give its name and its parameters as find_tools shows them."
        }
        DiscoveryTool::Call(ToolEffect::Write) => {
            "Calls a tool of the class write, which changes or sends something. Give its name and its parameters as \
             find_tools shows them."
        }
        DiscoveryTool::Call(ToolEffect::Destructive) => {
            "Calls a tool of the class destructive, which may remove or overwrite something. Give its name and its \
             parameters as find_tools shows them."
        }
    }
}

const fn annotations(tool: DiscoveryTool) -> &'static str {
    match tool {
        DiscoveryTool::Find | DiscoveryTool::Describe => {
            r#"{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}"#
        }
        DiscoveryTool::Call(ToolEffect::Read) => {
            r#"{"readOnlyHint":true,"destructiveHint":false,"openWorldHint":true}"#
        }
        DiscoveryTool::Call(ToolEffect::Write) => {
            r#"{"readOnlyHint":false,"destructiveHint":false,"openWorldHint":true}"#
        }
        DiscoveryTool::Call(ToolEffect::Destructive) => {
            r#"{"readOnlyHint":false,"destructiveHint":true,"openWorldHint":true}"#
        }
    }
}
