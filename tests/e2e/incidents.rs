//! Attacks that have happened, as they would reach the gateway: the harmful step is refused, and the same work without it
//! is not (controls C10, C11, C12 and C15; the traces are data, in `incidents.json`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use e2e::client::Client;
use e2e::gateway::{ANA, Config, Folder, Gateway};
use e2e::server::{Call, Server};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

use crate::pins::lockfile;

/// What a server offers: the later descriptions once it `has_changed`.
fn offers(tools: &Value, has_changed: bool) -> Value {
    let offered = tools.as_array().unwrap().iter().map(|tool| {
        let name = tool["tool"].as_str().unwrap();
        let later = tool["later"].as_str().filter(|_| has_changed);
        let description = later.or(tool["description"].as_str());
        let words =
            description.map_or_else(|| format!("{}.", name.replace('_', " ")), str::to_owned);
        json!({ "name": name, "description": words, "inputSchema": { "type": "object" } })
    });
    json!({ "tools": offered.collect::<Vec<_>>() })
}

/// What a tool answers: the first answer all of whose conditions are met.
fn answer(tools: &Value, call: &Call) -> Value {
    let mut tools = tools.as_array().unwrap().iter();
    let tool = tools.find(|tool| tool["tool"] == call.tool()).unwrap();
    let given = &call.body["params"]["arguments"];
    let meets = |answer: &&Value| match answer["where"].as_object() {
        Some(conditions) => conditions.iter().all(|(name, value)| &given[name] == value),
        None => true,
    };
    let answer = tool["answers"].as_array().unwrap().iter().find(meets).unwrap();
    let mut result = json!({
        "resultType": "complete", "content": [{ "type": "text", "text": answer["text"] }]
    });
    if !answer["ifc"].is_null() {
        result["_meta"] = json!({ "ifc": answer["ifc"] });
    }
    result
}

/// One incident in one era: its servers and a gateway in front of them.
struct World<'a> {
    name: &'a str,
    servers: Vec<(&'a str, Server)>,
    has_changed: Arc<AtomicBool>,
    gateway: Gateway,
    client: Client,
    // Holds the lockfile for as long as the gateway runs.
    _folder: Folder,
}

impl<'a> World<'a> {
    fn of(incident: &'a Value, era: Era) -> Self {
        let has_changed = Arc::new(AtomicBool::new(false));
        let start = |tools: &Value| {
            let (changed, offered, answered) =
                (Arc::clone(&has_changed), tools.clone(), tools.clone());
            let offers = move |_: &Call| offers(&offered, changed.load(Ordering::SeqCst));
            Server::shifting(era, offers, move |call| answer(&answered, call))
        };
        let servers: Vec<_> = incident["servers"].as_object().unwrap().iter().collect();
        let servers: Vec<_> =
            servers.into_iter().map(|(name, tools)| (name.as_str(), start(tools))).collect();
        let folder = Folder::new();
        let config = config(&incident["policy"], &servers);
        let config = match incident["pinned"].as_bool() {
            Some(true) => config.approved(&lockfile(&folder)),
            _ => config,
        };
        let gateway = config.start();
        gateway.has_read(servers.len());
        let client = gateway.client(era, ANA);
        let name = incident["name"].as_str().unwrap();
        Self { name, servers, has_changed, gateway, client, _folder: folder }
    }

    fn step(&self, step: &Value) {
        let place = |key: &str| step[key].as_str().map(|name| name.replace('/', "__"));
        if step["changes"] == true {
            self.has_changed.store(true, Ordering::SeqCst);
        } else if let Some(tool) = place("hidden") {
            assert!(!self.client.tools().contains(&tool), "{}: {tool} is shown", self.name);
        } else if let Some(tool) = place("shown") {
            assert!(self.client.tools().contains(&tool), "{}: {tool} is not shown", self.name);
        } else {
            self.calls(&place("call").unwrap(), step);
        }
    }

    fn calls(&self, tool: &str, step: &Value) {
        let before = self.of_calls();
        let answer = self.client.call(tool, &step["arguments"]);
        // What is withheld from lists is for its caller a tool that does not exist; the record says why.
        let is_refused = answer.denial().is_some() || answer.code() == -32602;
        let reason = is_refused.then(|| self.gateway.last()["reason"].as_str().unwrap().to_owned());
        let (name, reached) = (self.name, self.of_calls() - before);
        match step["refused"].as_str() {
            Some(reasons) => {
                let reason = reason.unwrap_or_else(|| panic!("{name}: {step} passes: {answer:?}"));
                assert!(reasons.split('|').any(|one| one == reason), "{name}: {step}: {reason}");
                assert_eq!(reached, 0, "{name}: {step} reaches its server");
            }
            None => assert_eq!((reason, reached), (None, 1), "{name}: {step}: {answer:?}"),
        }
    }

    fn of_calls(&self) -> usize {
        self.servers.iter().map(|(_, server)| server.tool_calls().len()).sum()
    }
}

fn config(policy: &Value, servers: &[(&str, Server)]) -> Config {
    let items: Vec<_> =
        servers.iter().map(|(name, server)| json!({ "name": name, "url": server.url() })).collect();
    let names: Vec<_> = servers.iter().map(|(name, _)| *name).collect();
    let mut rules = policy["rules"].as_array().cloned().unwrap_or_default();
    rules.push(json!({ "id": "open", "effect": "allow", "principals": ["*"], "servers": ["*"], "tools": ["*"] }));
    // Whatever a detector finds, the model is persuaded here.
    let unread = json!([{ "servers": ["*"], "results": { "plantedInstructions": "off", "toolDirections": "off" } }]);
    let mut section = json!({ "rules": rules, "content": unread });
    if !policy["labels"].is_null() {
        section["flow"] = json!({ "mode": "deny", "labels": policy["labels"] });
    }
    let mut config = Config::with("", "[]").policy(&section.to_string()).limits("catalogAge: 1ms");
    config.servers = json!(items).to_string();
    config.routes = json!([{ "path": "/mcp", "servers": names, "prefix": "always" }]).to_string();
    config
}

#[test]
#[expect(clippy::disallowed_methods, reason = "data of the test, not a peer's")]
fn the_harmful_step_of_a_known_incident_is_refused_and_its_ordinary_twin_passes() {
    let incidents: Vec<Value> = serde_json::from_str(include_str!("incidents.json")).unwrap();
    for (incident, era) in incidents.iter().flat_map(|one| ERAS.map(|era| (one, era))) {
        for steps in ["attack", "twin"] {
            let world = World::of(incident, era);
            incident[steps].as_array().unwrap().iter().for_each(|step| world.step(step));
        }
    }
}
