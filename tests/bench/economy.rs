//! What a list of tools costs the context of a model, with and without discovery, for the same tasks.
//!
//! `cargo run -p e2e --example economy -- FOLDER [BUDGET...]` reads `queries/queries.jsonl` and `queries/tools_*.jsonl` in FOLDER. Of the real servers in
//! them that requests are about, it serves the 20 with the most tools, each by a mock on loopback, behind one gateway with
//! every definition approved, and asks the gateway what a client of 2026-07-28 would ask it. What is counted is what a
//! model reads: of a tool its name, description and parameters, of an answer its text.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a tool for measuring"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use e2e::Era;
use e2e::client::Client;
use e2e::gateway::{ANA, Config, Folder, Gateway};
use e2e::server::Server;
use gateway::base::context_tokens;
use gateway::mcp::model_text::model_text;
use json::{Document, JsonBounds};
use serde_json::{Value, json};

/// The catalogues of real servers. The others have functions of benchmarks that belong to no server.
const CATALOGUES: [&str; 3] = ["livemcp", "mcpproxy", "wild"];
/// How many servers are behind the route.
const SERVERS: usize = 20;
/// How many tools an answer of `find_tools` has.
const FOUND: usize = 10;

/// A request in a person's words, and the tools that serve it.
struct Task {
    query: String,
    /// Names on the route.
    expected: BTreeSet<String>,
}

/// A server with its tools, in the order of the file.
struct RealServer {
    name: String,
    tools: Vec<Value>,
}

fn main() {
    let mut arguments = env::args().skip(1);
    let folder = arguments.next().unwrap();
    let budgets: Vec<usize> = arguments.map(|one| one.parse().unwrap()).collect();
    let (servers, tasks) = chosen(folder.as_ref());
    let tools: usize = servers.iter().map(|server| server.tools.len()).sum();
    println!("{} servers, {tools} tools, {} tasks", servers.len(), tasks.len());
    let mocks: Vec<_> = servers.iter().map(mock).collect();
    let lines = servers.iter().zip(&mocks);
    let lines = lines.map(|(one, mock)| format!("- {{name: {}, url: '{}'}}", one.name, mock.url()));
    let names: Vec<_> = servers.iter().map(|server| &*server.name).collect();
    let names = format!("[{}]", names.join(", "));
    let mut config = Config::with(&lines.collect::<Vec<_>>().join("\n"), &names);
    let route = |path: &str, discovery: &str| {
        format!("- {{path: {path}, servers: {names}, prefix: always, discovery: {{{discovery}}}}}")
    };
    let mut routes = vec![route("/off", "mode: 'off'"), route("/search", "mode: search")];
    routes.extend(budgets.iter().map(|tokens| {
        route(&format!("/both{tokens}"), &format!("mode: both, descriptionTokens: {tokens}"))
    }));
    config.routes = routes.join("\n");
    let folder = Folder::new();
    let gateway = config.approved(&folder.path().join("portcullis.lock")).start();
    println!(
        "| mode | tools in the list | tokens of the list | of `find_tools` | of `describe_tool` | of a task | right tool shown |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    measure(&gateway, "/off", "`off`", &tasks);
    measure(&gateway, "/search", "`search`", &tasks);
    for tokens in budgets {
        let mode = format!("`both`, `descriptionTokens: {tokens}`");
        measure(&gateway, &format!("/both{tokens}"), &mode, &tasks);
    }
}

/// The servers with the most tools of those that requests are about, and the requests that are about them.
fn chosen(folder: &Path) -> (Vec<RealServer>, Vec<Task>) {
    let rows = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(folder.join("queries").join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let mut catalogue = BTreeMap::<String, Vec<Value>>::new();
    let mut places = BTreeMap::new();
    for pool in CATALOGUES {
        for row in rows(&format!("tools_{pool}.jsonl")) {
            let server = format!("{pool}/{}", row["server"].as_str().unwrap());
            let name = row["tool"]["name"].as_str().unwrap().to_owned();
            let id = format!("{pool}/{}", row["tool_id"].as_str().unwrap());
            places.insert(id, (server.clone(), name.clone()));
            let tools = catalogue.entry(server).or_default();
            if tools.iter().all(|tool| tool["name"] != name.as_str()) {
                tools.push(row["tool"].clone());
            }
        }
    }
    let mut asked = Vec::new();
    for row in rows("queries.jsonl") {
        let pool = row["tools_pool"].as_str().unwrap();
        let expected = row["expected"].as_array().unwrap().iter();
        let expected = expected.filter_map(|id| places.get(&format!("{pool}/{}", id.as_str()?)));
        let expected: Vec<_> = expected.cloned().collect();
        if !expected.is_empty() {
            asked.push((row["query"].as_str().unwrap().to_owned(), expected));
        }
    }
    let about: BTreeSet<_> =
        asked.iter().flat_map(|(_, tools)| tools.iter().map(|(server, _)| server)).collect();
    let mut largest: Vec<_> = about.into_iter().collect();
    largest.sort_by_key(|server| (std::cmp::Reverse(catalogue[*server].len()), *server));
    largest.truncate(SERVERS);
    let name = |server: &String| {
        let place = largest.iter().position(|known| *known == server)?;
        Some(format!("server{place:02}"))
    };
    let task = |(query, tools): &(String, Vec<(String, String)>)| {
        let shown = tools.iter().filter_map(|(of, tool)| Some(format!("{}__{tool}", name(of)?)));
        let expected: BTreeSet<_> = shown.collect();
        (!expected.is_empty()).then(|| Task { query: query.clone(), expected })
    };
    let tasks = asked.iter().filter_map(task).collect();
    let server =
        |of: &&String| RealServer { name: name(of).unwrap(), tools: catalogue[*of].clone() };
    (largest.iter().map(server).collect(), tasks)
}

fn mock(server: &RealServer) -> Server {
    Server::with(Era::Modern, server.tools.clone().into(), |_, _| false)
}

/// Asks a route for its list, and for the tools of each task; prints a row of the table.
fn measure(gateway: &Gateway, path: &str, mode: &str, tasks: &[Task]) {
    let client = Client::connect(gateway.address, path, Era::Modern, Some(ANA));
    let listed = client.ask("tools/list", json!({})).json();
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: BTreeSet<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let is_whole = |tool: &&Value| tool["_meta"]["dev.portcullis/shortened"].is_null();
    let whole = tools.iter().filter(is_whole).map(|tool| tool["name"].as_str().unwrap());
    let whole: BTreeSet<_> = whole.collect();
    let list: usize = tools.iter().map(tokens_of).sum();
    let searches = mode == "`search`";
    let (mut found_tokens, mut described_tokens, mut right) = (0, 0, 0);
    for task in tasks {
        let found = if searches { Some(find(&client, &task.query)) } else { None };
        let (text, shown) = found.unwrap_or_default();
        found_tokens += context_tokens::count(&text);
        let is_shown = |name: &&String| names.contains(name.as_str()) || shown.contains(*name);
        right += usize::from(task.expected.iter().any(|name| is_shown(&name)));
        // A model that has the whole definition in its list does not ask for it.
        let name = task.expected.first().unwrap();
        if !whole.contains(name.as_str()) {
            let answer = client.call("describe_tool", &json!({ "name": name }));
            described_tokens += context_tokens::count(&answer.text());
        }
    }
    let mean = |sum: usize| sum as f64 / tasks.len() as f64;
    let (found, described) = (mean(found_tokens), mean(described_tokens));
    println!(
        "| {mode} | {} | {list} | {found:.0} | {described:.0} | {:.0} | {right} of {} |",
        tools.len(),
        list as f64 + found + described,
        tasks.len()
    );
}

/// The text of an answer of `find_tools`, and the names in it.
fn find(client: &Client, query: &str) -> (String, BTreeSet<String>) {
    let answer = client.call("find_tools", &json!({ "query": query, "limit": FOUND }));
    let body = answer.json();
    let tools = body["result"]["structuredContent"]["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    (answer.text(), names.collect())
}

/// What a tool of a list takes in the context of a model.
fn tokens_of(tool: &Value) -> usize {
    let document = Document::parse(tool.to_string().into(), &JsonBounds::ANSWER).unwrap();
    context_tokens::count(&model_text(document.root()))
}
