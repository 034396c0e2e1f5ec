//! Reads the definitions and the requests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use evaluation::example::Example;
use evaluation::tool::{EvaluatedTool, ToolName};
use json::{Document, Fragment, JsonBounds};
use policy_core::base::work::WorkBudget;
use policy_core::schema::Schema;
use selector::model::Model;
use serde_json::{Map, Value, json};

/// A definition of the corpus.
pub(crate) struct CorpusTool {
    pub(crate) id: String,
    pub(crate) server: String,
    pub(crate) definition: Value,
    requests: Vec<String>,
}

/// The definitions that are evaluated together.
pub(crate) struct Corpus {
    pub(crate) tools: Vec<CorpusTool>,
}

/// A document with this text.
pub(crate) fn document(text: String) -> Arc<Document> {
    Arc::new(Document::parse(text.into(), &JsonBounds::ANSWER).unwrap())
}

/// Prepares a definition of a tool. A text in place of an object is the JSON of the definition as it is to be read.
pub(crate) fn prepared(tool: &CorpusTool, definition: &Value) -> Arc<EvaluatedTool> {
    let text = definition.as_str().map_or_else(|| definition.to_string(), str::to_owned);
    let read = EvaluatedTool::new(Model::built_in(), &tool.server, &document(text));
    Arc::new(read.unwrap())
}

impl Corpus {
    /// Reads the first `most` tools that have requests, each name once.
    pub(crate) fn read(folder: &Path, most: usize) -> Self {
        let pairs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../selector/data/pairs.tsv");
        let mut requests: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in fs::read_to_string(pairs).unwrap().lines() {
            let Some((id, request)) = line.split_once('\t') else { continue };
            let id = id.trim_start_matches("benign|").to_owned();
            requests.entry(id).or_default().push(request.to_owned());
        }
        let mut tools: Vec<CorpusTool> = Vec::new();
        for line in fs::read_to_string(folder.join("benign_tools.jsonl")).unwrap().lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let id = row["id"].as_str().unwrap().to_owned();
            let Some(requests) = requests.remove(&id) else { continue };
            let (server, definition) =
                (row["server"].as_str().unwrap().to_owned(), row["tool"].clone());
            let is_new = |tool: &CorpusTool| {
                tool.server != server || tool.definition["name"] != definition["name"]
            };
            let text = definition.to_string();
            let readable = EvaluatedTool::new(Model::built_in(), &server, &document(text)).is_ok();
            if readable && tools.iter().all(is_new) {
                tools.push(CorpusTool { id, server, definition, requests });
            }
            if tools.len() == most {
                break;
            }
        }
        Self { tools }
    }

    /// An example for each request, with arguments that the definition takes.
    pub(crate) fn examples(&self) -> Vec<Example> {
        let mut examples = Vec::new();
        for tool in &self.tools {
            let name = ToolName {
                server: tool.server.as_str().into(),
                name: tool.definition["name"].as_str().unwrap().into(),
            };
            let arguments = arguments(&tool.definition);
            for (n, request) in tool.requests.iter().enumerate() {
                examples.push(Example {
                    id: format!("{}-{n}", tool.id),
                    file: "pairs.tsv".into(),
                    line: 0,
                    query: request.clone(),
                    expected: vec![name.clone()],
                    forbidden: Vec::new(),
                    arguments: arguments.clone(),
                    forbidden_arguments: Vec::new(),
                    outcome: None,
                });
            }
        }
        examples
    }
}

/// Arguments that fit the schema of a definition: all that it names, or else those that it demands.
fn arguments(definition: &Value) -> Option<Fragment> {
    let schema = definition.get("inputSchema")?;
    let compiled = document(schema.to_string());
    let compiled = Schema::new(compiled.root());
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let all = sample(schema, 0);
    let mut fewer = all.clone();
    fewer.as_object_mut()?.retain(|name, _| required.contains(&name.as_str()));
    [all, fewer].into_iter().find_map(|arguments| {
        let document = document(arguments.to_string());
        let checked = compiled.check_arguments(Some(document.root()), &WorkBudget::unlimited());
        checked.is_ok().then(|| Fragment::whole(document))
    })
}

/// A value that a schema probably takes.
fn sample(schema: &Value, depth: usize) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    if let Some(value) = schema.get("const").or(schema.get("default")).filter(|one| !one.is_null())
    {
        return value.clone();
    }
    let parts = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    if let Some(part) = parts.and_then(|parts| parts.first()).filter(|_| depth < 8) {
        return sample(part, depth + 1);
    }
    let kind = schema["type"].as_str().or(schema["type"][0].as_str()).unwrap_or("string");
    let least = |name: &str| schema[name].as_u64().unwrap_or(0);
    match kind {
        "integer" | "number" => {
            json!(schema["minimum"].as_f64().map_or(1, |least| least.ceil() as i64))
        }
        "boolean" => json!(true),
        "null" => Value::Null,
        "array" if depth < 8 => {
            let count = least("minItems").clamp(1, 8);
            Value::Array((0..count).map(|_| sample(&schema["items"], depth + 1)).collect())
        }
        "object" => {
            let members = schema["properties"].as_object().into_iter().flatten();
            let members = members.filter(|_| depth < 8);
            let members = members.map(|(name, one)| (name.clone(), sample(one, depth + 1)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        _ => {
            let text = match schema["format"].as_str() {
                Some("uri" | "url") => "https://example.com/",
                Some("email") => "ana@example.com",
                Some("date") => "2026-01-31",
                Some("date-time") => "2026-01-31T12:00:00Z",
                _ => "example",
            };
            let longer = usize::try_from(least("minLength")).unwrap().saturating_sub(text.len());
            json!(format!("{text}{}", "x".repeat(longer)))
        }
    }
}
