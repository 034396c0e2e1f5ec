//! The two tools of the gateway between an untrusted planner and a trusted one: one passes a declared value, the other takes
//! it (control C15).
//!
//! They exist where `policy.flow.channel` declares values, for every caller that may use anything on the route. Their
//! definitions are words of the gateway and of the configuration, so there is nothing to pin.

use detection::inspect::Finding;
use http::Response;
use json::{Document, JsonBounds, Value, write_string};
use policy::definition::offer::ItemKind;
use policy::engine::message::RequestOperation;
use policy::engine::pipeline::Policy;
use policy::flow::channel::ChannelEntry;
use policy::flow::memory::ResultSource;
use policy::flow::planner::{CHANNEL_PASS, CHANNEL_TAKE, Planner};
use policy::rules::decision::{Decision, Effect};
use policy_core::subject::name::RuleId;
use policy_core::subject::principal::Principal;

use super::flows::owner;
use super::{DecodedRequest, Gateway, Route};
use crate::audit::{Record, RecordedDecision};
use crate::edge::decode::UseOperation;
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::mcp::protocol::Era;
use crate::mcp::wire::{self, Id, Object};
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome as Ended};
use crate::stream::body::Body;

/// The name of the rule in records of these calls.
const RULE: &str = "planner-channel";
/// What the finding about a value that passed says.
const PASSED: &str = "a value was passed through the channel between the planners";
/// The same about a value that was taken.
const TAKEN: &str = "a value was taken from the channel between the planners";
/// The same about a call that came to nothing.
const REFUSED: &str = "nothing went through the channel between the planners";

/// The result of a call of one of the tools.
struct ChannelResult {
    text: String,
    /// The value that was taken, as JSON.
    taken: Option<Box<str>>,
    finding: Finding,
    is_error: bool,
}

impl ChannelResult {
    fn refused(text: String) -> Self {
        Self { text, taken: None, finding: Finding::flow("", REFUSED), is_error: true }
    }
}

impl Gateway {
    /// Whether a call is of one of these tools: where there is a channel, both names belong to the gateway on the routes of
    /// planners.
    pub(super) fn is_channel_call(&self, arrived: &DecodedRequest, ask: &UseOperation) -> bool {
        arrived.route.planner.is_some()
            && ask.verb == RequestOperation::Call
            && self.policy.flow().reserves(&ask.name)
    }

    /// Whether the caller may use anything on the route: to others nothing is there.
    pub(super) fn may_use_any(&self, arrived: &DecodedRequest) -> bool {
        self.may_use_any_of(&arrived.route, &arrived.caller.principal)
    }

    /// The same for a caller without a request.
    pub(super) fn may_use_any_of(&self, route: &Route, principal: &Principal) -> bool {
        let facts = self.policy.facts();
        let mut servers = route.servers.iter();
        servers.any(|server| self.policy.grants_any(&facts, principal, server.name()))
    }

    /// The definition of the tool that the list of a caller has, as JSON.
    pub(super) fn channel_tool(&self, arrived: &DecodedRequest, kind: ItemKind) -> Option<Vec<u8>> {
        let planner = arrived.route.planner.filter(|_| kind == ItemKind::Tool)?;
        let entries = self.policy.flow().channel();
        if entries.is_empty() || !self.may_use_any(arrived) {
            return None;
        }
        let mut described = match planner {
            Planner::Untrusted => {
                "Passes a value to the trusted planner, which cannot read what you read. Values: "
            }
            Planner::Trusted => {
                "Returns the value that the untrusted planner has passed last. Values: "
            }
        }
        .to_owned();
        let said = entries.iter().map(|one| format!("{}: {}", one.name(), one.description()));
        described.push_str(&said.collect::<Vec<_>>().join("; "));
        let mut out = Vec::new();
        let mut definition = Object::open(&mut out);
        definition.text("name", own_tool(planner));
        definition.text("description", &described);
        let mut schema = Object::open(definition.key("inputSchema"));
        schema.text("type", "object");
        let mut properties = Object::open(schema.key("properties"));
        let mut name = Object::open(properties.key("name"));
        name.text("type", "string");
        let names = entries.iter().map(ChannelEntry::name);
        json::write_items(name.key("enum"), names, write_string);
        name.close();
        if planner == Planner::Untrusted {
            properties.raw("value", r#"{"type":["boolean","number","string"]}"#);
        }
        properties.close();
        let required = match planner {
            Planner::Untrusted => r#"["name","value"]"#,
            Planner::Trusted => r#"["name"]"#,
        };
        schema.raw("required", required);
        schema.raw("additionalProperties", "false");
        schema.close();
        definition.close();
        Some(out)
    }

    /// Answers a call of one of these tools. Nothing is sent to a server.
    pub(super) async fn channel_called(
        &self,
        arrived: &DecodedRequest,
        ask: UseOperation,
        mut record: Box<Record>,
    ) -> Response<Body> {
        self.note_asked(&ask, &mut record);
        let planner = arrived.route.planner.filter(|planner| *ask.name == *own_tool(*planner));
        let Some(planner) = planner.filter(|_| self.may_use_any(arrived)) else {
            let (decision, denial) = Policy::unknown(ItemKind::Tool);
            record.decision = RecordedDecision::Decided(Box::new(decision));
            return self.refuse(&record, &Failure::Denied(ItemKind::Tool, denial));
        };
        if let Ok(rule) = RuleId::parse(RULE) {
            let decision = Decision::of(Effect::Allow(rule));
            record.decision = RecordedDecision::Decided(Box::new(decision));
        }
        let honeytokens = self.honeytokens_in(arrived, &ask).await;
        let flow = self.flow_of(arrived, &record);
        let mut entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        let arguments = ask.arguments.as_ref().map(json::Fragment::value);
        let done = match self.declared(arguments) {
            Err(refused) => refused,
            Ok(_) if !honeytokens.is_empty() => {
                ChannelResult::refused("This value may not be passed.".to_owned())
            }
            Ok(declared) => match planner {
                Planner::Untrusted => {
                    let value = arguments.and_then(|arguments| arguments.get("value"));
                    self.pass(arrived, declared, value)
                }
                Planner::Trusted => self.take(arrived, declared),
            },
        };
        if let (Some(flow), Some(taken)) = (&flow, &done.taken) {
            let labels = self.declared(arguments).map(ChannelEntry::labels).unwrap_or_default();
            let runs = self.policy.flow().runs();
            // INVARIANT: the value was parsed before by the same reader.
            let shown = Document::parse(format!("[{taken}]").into(), &JsonBounds::MESSAGE);
            if let Ok(shown) = shown {
                flow.shown(ResultSource { labels, vouched: &[], runs }, shown.root());
            }
        }
        self.metrics.content([&done.finding]);
        entry.found(honeytokens);
        entry.found(vec![done.finding.clone()]);
        let outcome = if done.is_error { Ended::ToolError } else { Ended::Answered };
        let ending = ExchangeEnd { outcome, ..ExchangeEnd::answered() };
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        let body = written(&id, arrived.inbound.version.era(), &done);
        self.shown(entry, ending, Some(&id), encode::json(body))
    }

    /// The declared value that a call names.
    fn declared(&self, arguments: Option<Value<'_>>) -> Result<&ChannelEntry, ChannelResult> {
        let entries = self.policy.flow().channel();
        let name = arguments.and_then(|arguments| arguments.get("name")).and_then(Value::as_str);
        let found = name.and_then(|name| entries.iter().find(|entry| *entry.name() == *name));
        found.ok_or_else(|| {
            let names: Vec<_> = entries.iter().map(ChannelEntry::name).collect();
            let text = format!("`name` has to be one of: {}.", names.join(", "));
            ChannelResult::refused(text)
        })
    }

    fn pass(
        &self,
        arrived: &DecodedRequest,
        declared: &ChannelEntry,
        value: Option<Value<'_>>,
    ) -> ChannelResult {
        let name = declared.name();
        // In canonical form: another spelling of the same value would tell more than the schema lets through.
        let mut written = Vec::new();
        let value = value.filter(|value| declared.accepts(*value));
        let value = value.filter(|value| json::write_canonical(&mut written, *value).is_ok());
        let canonical = value.and_then(|_| String::from_utf8(written).ok());
        let Some(canonical) = canonical else {
            let wanted = declared.description();
            let text = format!("Nothing was passed: the value of `{name}` has to be: {wanted}.");
            return ChannelResult::refused(text);
        };
        let caller = owner(&arrived.caller.principal);
        self.channel_store.pass(&caller, name, &canonical, self.clock.instant());
        ChannelResult {
            text: format!("The value of `{name}` was passed to the trusted planner."),
            taken: None,
            finding: Finding::flow(&format!("/{name}"), PASSED),
            is_error: false,
        }
    }

    fn take(&self, arrived: &DecodedRequest, declared: &ChannelEntry) -> ChannelResult {
        let name = declared.name();
        let caller = owner(&arrived.caller.principal);
        let value = self.channel_store.take(&caller, name, self.clock.instant());
        // It may have been passed under another declaration.
        let fits = |json: &str| {
            let value = Document::parse(json.to_owned().into(), &JsonBounds::MESSAGE);
            value.is_ok_and(|value| declared.accepts(value.root()))
        };
        let Some(value) = value.filter(|value| fits(value)) else {
            let minutes = self.channel_store.time().as_secs().div_ceil(60);
            let text = format!(
                "No value of `{name}` was passed in the last {minutes} minutes: the untrusted planner has to call \
                 {CHANNEL_PASS} first."
            );
            return ChannelResult::refused(text);
        };
        ChannelResult {
            text: value.to_string(),
            taken: Some(value),
            finding: Finding::flow(&format!("/{name}"), TAKEN),
            is_error: false,
        }
    }
}

/// The tool of a planner.
const fn own_tool(planner: Planner) -> &'static str {
    match planner {
        Planner::Trusted => CHANNEL_TAKE,
        Planner::Untrusted => CHANNEL_PASS,
    }
}

/// The response with a result.
fn written(id: &Id, era: Era, done: &ChannelResult) -> Body {
    let mut out = wire::head(Some(id), 256);
    out.extend_from_slice(br#""result":"#);
    let mut object = Object::open(&mut out);
    if era == Era::Modern {
        object.text("resultType", "complete");
    }
    if done.is_error {
        object.raw("isError", "true");
    }
    let content = object.key("content");
    content.extend_from_slice(br#"[{"type":"text","text":"#);
    write_string(content, &done.text);
    content.extend_from_slice(b"}]");
    if let Some(taken) = &done.taken {
        let mut structured = Object::open(object.key("structuredContent"));
        structured.raw("value", taken);
        structured.close();
    }
    object.close();
    out.push(b'}');
    out.into()
}
