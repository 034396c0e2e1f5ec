//! The `flow` section of the policy, and the judgement about one call.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

use json::{Fragment, Value};
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;
use schemars::JsonSchema;
use serde::Deserialize;

use super::channel::{ChannelEntry, ChannelSettings};
use super::label::{Confidentiality, FlowLabels, Integrity, Sink};
use super::memory::{FlowMemory, LinkChoice, RunsKept, ValueMarks};
use super::value::{
    self, Scalar, ValueExtent, ValueKey, ValueKind, ValueReading, ValueVisitor, link,
};
use crate::definition::offer::ItemKind;
use crate::spelling;

/// What flow control does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FlowMode {
    /// Nothing. Rules can still read `flow` and `origin`.
    #[default]
    Off,
    /// Records what it would refuse.
    Observe,
    /// Asks a person about what `deny` refuses.
    Ask,
    /// Refuses the call.
    Deny,
}

/// How the requests of clients that have no session are put together to flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FlowScope {
    /// Everything that one caller does with one client, until it has done nothing for `limits.flowWindow`.
    #[default]
    Caller,
    /// Everything in one trace (`traceparent`), and as for `caller` where there is none. Only for clients that send
    /// one trace for each conversation: a new trace begins without labels.
    Trace,
}

/// A clause of flow control. Each applies in flows that were shown something untrusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FlowClause {
    /// A target of the call was only seen in untrusted results.
    Target,
    /// Another argument has an address, account or name that was only seen in untrusted results.
    Value,
    /// The call sends something to outside that a confidential result has shown, to a target that the user's side has
    /// not given.
    Confidential,
    /// The call is destructive, and the user's side has not given its targets.
    Destructive,
    /// The route is for another planner. It is no clause of the configuration: it applies on routes with `planner`.
    #[serde(skip)]
    Planner,
}

impl FlowClause {
    /// All clauses of the configuration, in the order in which they are judged.
    pub const ALL: [Self; 4] = [Self::Target, Self::Value, Self::Confidential, Self::Destructive];

    /// The code of the reason for clients, metrics and the audit log.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Target => "flow-target",
            Self::Value => "flow-value",
            Self::Confidential => "flow-confidential",
            Self::Destructive => "flow-destructive",
            Self::Planner => "flow-planner",
        }
    }

    /// What the clause says, in fixed words that follow the name of an argument.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::Target | Self::Value => "has a value that only untrusted results have shown",
            Self::Confidential => {
                "has what a confidential result has shown, in a flow that was shown something untrusted, for a target \
                 that the user has not given"
            }
            Self::Destructive => {
                "is not known from the user, and the call is destructive in a flow that was shown something untrusted"
            }
            Self::Planner => "is not for the planner of this route, which can only read",
        }
    }
}

/// Guards what flows between servers: labels of results, and where the values in a call came from.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowSettings {
    /// `off` (default), `observe` records what would be refused, `ask` asks a person about it, `deny` refuses.
    #[serde(default)]
    pub mode: FlowMode,
    /// How requests without a session belong together: `caller` (default) or `trace`.
    #[serde(default)]
    pub scope: FlowScope,
    /// The clauses that apply: `target`, `value`, `confidential`, `destructive`. Default: all.
    pub clauses: Option<Vec<FlowClause>>,
    /// The sinks that are guarded: `write`, `destructive`, `fetch`, `external`. Default: all four.
    pub sinks: Option<Vec<Sink>>,
    /// How many bits may leave a confidential flow by the choice which links a tool with `sink: fetch` follows, until links
    /// are judged like those of `external`. Each link counts as the logarithm of the number of links that untrusted results
    /// have shown, at least 1. Default: 64. With 0 no link may be followed after something confidential was shown.
    #[serde(default = "link_bits")]
    pub link_bits: u32,
    /// What is known about tools. Each label is taken from the first entry that names the tool and has the label.
    #[serde(default)]
    pub labels: Vec<FlowLabel>,
    /// The values that may pass from the untrusted planner to the trusted one (`routes[].planner`), at most 64.
    #[serde(default)]
    pub channel: Vec<ChannelSettings>,
}

const fn link_bits() -> u32 {
    64
}

impl Default for FlowSettings {
    fn default() -> Self {
        Self {
            mode: FlowMode::Off,
            scope: FlowScope::Caller,
            clauses: None,
            sinks: None,
            link_bits: link_bits(),
            labels: Vec::new(),
            channel: Vec::new(),
        }
    }
}

/// Labels of some tools. A tool that no entry labels is `untrusted`, `confidential` and `external`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowLabel {
    /// Servers the entry applies to: names or patterns with `*` and `?`.
    pub servers: Vec<String>,
    /// Tools, by the names their servers give them: names or patterns with `*` and `?`. Default: everything that the
    /// servers offer, also prompts and resources.
    pub tools: Option<Vec<String>>,
    /// Who can write what the tool returns: `trusted` (only the user and the operator), `listed` (anybody, but only
    /// names) or `untrusted`.
    pub integrity: Option<Integrity>,
    /// Who may read what the tool returns: `public`, `internal`, `confidential` or `restricted`.
    pub confidentiality: Option<Confidentiality>,
    /// What the tool does with its arguments: `none`, `write`, `destructive`, `fetch` (reads what the URL in `targets` leads
    /// to) or `external`.
    pub sink: Option<Sink>,
    /// The arguments that say who or what the call is about, such as `recipient` or `url`: names at the top level.
    /// Default: none, and then every address, account and name in the arguments counts.
    pub targets: Option<Vec<String>>,
    /// Members of `structuredContent` whose values the server vouches for although others write the rest, such as the
    /// recipients of the user's own payments: they count as given. Default: none.
    #[serde(default)]
    pub vouched: Vec<String>,
}

/// A compiled [`FlowLabel`]: what it applies to, and its labels.
#[derive(Debug)]
struct CompiledLabel {
    servers: Vec<Pattern>,
    tools: Option<Vec<Pattern>>,
    labels: GivenLabels,
}

/// Labels that an operator gives; what is left out is taken from the next entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "FlowLabelsOfTool")]
pub struct GivenLabels {
    /// Who can write what the tool returns: `trusted`, `listed` or `untrusted`.
    pub integrity: Option<Integrity>,
    /// Who may read what the tool returns: `public`, `internal`, `confidential` or `restricted`.
    pub confidentiality: Option<Confidentiality>,
    /// What the tool does with its arguments: `none`, `write`, `destructive`, `fetch` or `external`.
    pub sink: Option<Sink>,
    /// The arguments that say who or what the call is about.
    pub targets: Option<Vec<Box<str>>>,
    /// Members of `structuredContent` whose values the server vouches for.
    pub vouched: Vec<Box<str>>,
}

/// The labels of one tool, as the registry has them.
#[derive(Clone, Debug)]
pub struct ToolFlowLabels {
    /// The name of the server.
    pub server: Box<str>,
    /// The tool, by the server's own name for it.
    pub tool: Box<str>,
    /// Its labels.
    pub labels: GivenLabels,
}

/// Whether the argument `name` is one of these targets, or a server may take it for one.
fn is_target(targets: &[Box<str>], name: &str) -> bool {
    targets.iter().any(|target| **target == *name || spelling::is_taken_for(name, target))
}

/// Whether a text under `targets` can be the name of an argument at the top level.
#[must_use]
pub fn names_argument(target: &str) -> bool {
    !target.is_empty() && !target.contains(['/', '*'])
}

/// What is known about one tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolLabels<'a> {
    /// The labels of its results.
    pub labels: FlowLabels,
    /// What it does with its arguments.
    pub sink: Sink,
    /// The arguments that say who or what a call is about; `None` if that is not known.
    pub targets: Option<&'a [Box<str>]>,
    /// The members of its results that the server vouches for.
    pub vouched: &'a [Box<str>],
}

/// Where a value in the arguments came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The flow was not shown it.
    Unknown,
    /// The user's side has given it, or a trusted result has shown it.
    Trusted,
    /// Only untrusted results have shown it.
    Untrusted,
}

impl Origin {
    /// The text that rules compare it with.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Trusted => "trusted",
            Self::Untrusted => "untrusted",
        }
    }
}

/// Why a call is refused in its flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowViolation {
    /// The clause that applies.
    pub clause: FlowClause,
    /// The argument, as a JSON Pointer; empty if it is not one argument.
    pub at: String,
    /// What the tool does with its arguments.
    pub sink: Sink,
}

/// The flow of a call, and what is known of the tool.
#[derive(Debug)]
pub struct FlowOfCall<'a> {
    /// The key of the hashes.
    pub key: &'a ValueKey,
    /// What the flow was shown and has sent.
    pub memory: &'a mut FlowMemory,
    /// What is known of the tool that is called.
    pub tool: ToolLabels<'a>,
}

/// What a decision about a call knows of its flow.
#[derive(Clone, Debug, Default)]
pub struct FlowFacts {
    /// The labels of the flow before the call.
    pub labels: FlowLabels,
    /// Where the values of each argument came from.
    pub origins: Vec<(Box<str>, Origin)>,
    /// Why the call is refused, or would be.
    pub violation: Option<FlowViolation>,
    /// What following the links in its targets tells their authors: counts in the memory of the flow if the call is made.
    pub choice: Option<LinkChoice>,
}

/// The compiled `flow` section.
#[derive(Debug, Default)]
pub struct FlowPolicy {
    mode: FlowMode,
    scope: FlowScope,
    clauses: Vec<FlowClause>,
    sinks: Vec<Sink>,
    link_bits: u32,
    labels: Vec<CompiledLabel>,
    /// Labels of single tools, by server and tool, which come before the others.
    of_tools: BTreeMap<Box<str>, BTreeMap<Box<str>, GivenLabels>>,
    channel: Vec<ChannelEntry>,
    /// Whether a rule reads `flow` or `origin`.
    is_read: bool,
    /// Whether a rule reads `origin`.
    compares_origins: bool,
}

impl FlowPolicy {
    /// Compiles the section `policy.flow`.
    #[must_use]
    pub fn new(settings: FlowSettings) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        let compiled = |label: FlowLabel| CompiledLabel {
            servers: patterns(&label.servers),
            tools: label.tools.as_deref().map(patterns),
            labels: GivenLabels {
                integrity: label.integrity,
                confidentiality: label.confidentiality,
                sink: label.sink,
                targets: label.targets.map(|names| names.into_iter().map(Into::into).collect()),
                vouched: label.vouched.into_iter().map(Into::into).collect(),
            },
        };
        let guarded = || vec![Sink::Write, Sink::Destructive, Sink::Fetch, Sink::External];
        Self {
            mode: settings.mode,
            scope: settings.scope,
            clauses: settings.clauses.unwrap_or_else(|| FlowClause::ALL.to_vec()),
            sinks: settings.sinks.unwrap_or_else(guarded),
            link_bits: settings.link_bits,
            // What has a mistake was reported where the section is read.
            channel: settings
                .channel
                .iter()
                .filter_map(|one| ChannelEntry::new(one).ok())
                .collect(),
            labels: settings.labels.into_iter().map(compiled).collect(),
            of_tools: BTreeMap::new(),
            is_read: false,
            compares_origins: false,
        }
    }

    /// The same with labels of single tools, which come before all others.
    #[must_use]
    pub fn labelling(mut self, all: impl IntoIterator<Item = ToolFlowLabels>) -> Self {
        for ToolFlowLabels { server, tool, labels } in all {
            self.of_tools.entry(server).or_default().insert(tool, labels);
        }
        self
    }

    /// The same where a rule reads `flow` or `origin`: flows are remembered then in every mode.
    #[must_use]
    pub fn read_by_rules(self) -> Self {
        Self { is_read: true, ..self }
    }

    /// The same where a rule reads `origin`.
    #[must_use]
    pub fn compared_by_rules(self) -> Self {
        Self { is_read: true, compares_origins: true, ..self }
    }

    /// The results whose runs of words are remembered.
    #[must_use]
    pub const fn runs(&self) -> RunsKept {
        if self.compares_origins { RunsKept::All } else { RunsKept::Confidential }
    }

    /// What flow control does.
    #[must_use]
    pub const fn mode(&self) -> FlowMode {
        self.mode
    }

    /// The values that may pass between two planners.
    #[must_use]
    pub fn channel(&self) -> &[ChannelEntry] {
        &self.channel
    }

    /// How requests without a session belong together.
    #[must_use]
    pub const fn scope(&self) -> FlowScope {
        self.scope
    }

    /// Whether flows have to be remembered.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.mode != FlowMode::Off || self.is_read
    }

    /// What the entries say of something that a server offers, the entry that counts most first.
    fn entries_of<'a>(
        &'a self,
        server: &ServerName,
        kind: ItemKind,
        name: &str,
    ) -> Vec<&'a GivenLabels> {
        let concerns = |label: &&CompiledLabel| {
            server.is_among(&label.servers)
                && match &label.tools {
                    None => true,
                    Some(tools) => {
                        kind == ItemKind::Tool && tools.iter().any(|tool| tool.matches(name))
                    }
                }
        };
        let of_tool = || self.of_tools.get(server.as_str())?.get(name);
        let of_tool = (kind == ItemKind::Tool).then(of_tool).flatten();
        let others = self.labels.iter().filter(concerns).map(|entry| &entry.labels);
        of_tool.into_iter().chain(others).collect()
    }

    /// Whether any entry is about something that a server offers. What none is about has the strictest labels.
    #[must_use]
    pub fn has_labels(&self, server: &ServerName, kind: ItemKind, name: &str) -> bool {
        !self.entries_of(server, kind, name).is_empty()
    }

    /// The `sink` that an entry gives to something that a server offers; `None` if no entry does.
    #[must_use]
    pub fn sink_of(&self, server: &ServerName, kind: ItemKind, name: &str) -> Option<Sink> {
        self.entries_of(server, kind, name).iter().find_map(|entry| entry.sink)
    }

    /// What is known about something that a server offers. What no entry labels has the strictest labels.
    #[must_use]
    pub fn labels_of(&self, server: &ServerName, kind: ItemKind, name: &str) -> ToolLabels<'_> {
        let entries = self.entries_of(server, kind, name);
        let integrity = entries.iter().find_map(|entry| entry.integrity);
        let confidentiality = entries.iter().find_map(|entry| entry.confidentiality);
        // A prompt or a resource sends something where an entry says so.
        let unlabelled = match kind {
            ItemKind::Tool | ItemKind::Method => Sink::External,
            ItemKind::Prompt | ItemKind::Resource | ItemKind::Template | ItemKind::Skill => {
                Sink::None
            }
        };
        ToolLabels {
            labels: FlowLabels {
                integrity: integrity.unwrap_or(Integrity::Untrusted),
                confidentiality: confidentiality.unwrap_or(Confidentiality::Confidential),
            },
            sink: entries.iter().find_map(|entry| entry.sink).unwrap_or(unlabelled),
            targets: entries.iter().find_map(|entry| entry.targets.as_deref()),
            vouched: entries
                .iter()
                .map(|entry| &entry.vouched[..])
                .find(|vouched| !vouched.is_empty())
                .unwrap_or_default(),
        }
    }

    /// What is known of a request in a flow: the labels of the flow, where the arguments came from, and the clause that
    /// refuses the request.
    #[must_use]
    pub fn judge(
        &self,
        key: &ValueKey,
        memory: &FlowMemory,
        tool: ToolLabels<'_>,
        sent: SentValues<'_>,
    ) -> FlowFacts {
        let labels = memory.labels();
        let sink = sent.sink(tool.sink);
        let guarded =
            self.mode != FlowMode::Off && labels.is_untrusted() && self.sinks.contains(&sink);
        if !guarded && !self.compares_origins {
            return FlowFacts { labels, ..FlowFacts::default() };
        }
        let runs = match self.compares_origins || labels.is_confidential() {
            true => RunComparison::Compared,
            false => RunComparison::Skipped,
        };
        let choice = self.choice(key, memory, sink, sent.parts(tool.targets));
        let judged = |(name, role, part): (_, _, SentPart<'_>)| {
            let is_followed = choice.is_some() && role == ArgumentRole::Target;
            let seen = SeenArgument::of(key, memory, part, runs);
            JudgedArgument { name, role, seen, is_followed }
        };
        let seen: Vec<_> = sent.parts(tool.targets).map(judged).collect();
        let tool = ToolLabels { sink, ..tool };
        let violation = guarded.then(|| self.violation(labels, tool, &seen)).flatten();
        let is_argument = |judged: &&JudgedArgument<'_>| judged.role != ArgumentRole::Beside;
        let origin = |judged: &JudgedArgument<'_>| (Box::from(&*judged.name), judged.seen.origin());
        // A rule compares them, or a person who is asked is told.
        let tells_origins = self.compares_origins || violation.is_some();
        let origins = seen.iter().filter(is_argument).filter(|_| tells_origins);
        let origins = origins.map(origin).collect();
        // Where nothing confidential is known, a choice tells nothing.
        let choice = choice.filter(|_| labels.is_confidential());
        FlowFacts { labels, origins, violation, choice }
    }

    /// What following the links in the targets of a call tells their authors; `None` if its targets are no such links, or
    /// the choice of links has told enough.
    fn choice<'a>(
        &self,
        key: &ValueKey,
        memory: &FlowMemory,
        sink: Sink,
        parts: impl Iterator<Item = (Cow<'a, str>, ArgumentRole, SentPart<'a>)>,
    ) -> Option<LinkChoice> {
        if sink != Sink::Fetch {
            return None;
        }
        let mut choice: Option<LinkChoice> = None;
        for (_, _, part) in parts.filter(|(_, role, _)| *role == ArgumentRole::Target) {
            let SentPart::Value(target) = part else { return None };
            let bits = choice.map_or(0, |choice| choice.bits);
            let bits = bits.saturating_add(memory.followed(key, target)?.bits);
            choice = Some(LinkChoice { bits });
        }
        let told = |choice: &LinkChoice| memory.chosen().saturating_add(choice.bits);
        choice.filter(|choice| !memory.labels().is_confidential() || told(choice) <= self.link_bits)
    }

    /// Marks what a person has approved as given in the flow: the targets of the call, and the argument that the question
    /// was about. Words that a confidential result has shown do not become the user's own.
    pub fn endorse(
        &self,
        flow: FlowOfCall<'_>,
        violation: &FlowViolation,
        arguments: Value<'_>,
        most: usize,
    ) {
        let FlowOfCall { key, memory, tool } = flow;
        for (name, value) in arguments.members() {
            let is_target = tool.targets.is_some_and(|targets| is_target(targets, &name));
            let is_asked = violation.clause != FlowClause::Confidential
                && violation.at == format!("/{}", json::pointer::escaped(&name));
            if is_target || is_asked {
                memory.endorsed(key, value, most);
            }
        }
    }

    /// The first clause that refuses a call of a guarded sink in an untrusted flow.
    fn violation(
        &self,
        labels: FlowLabels,
        tool: ToolLabels<'_>,
        seen: &[JudgedArgument<'_>],
    ) -> Option<FlowViolation> {
        let is_sent_to_given = is_given(seen, |role| role == ArgumentRole::Target);
        for clause in FlowClause::ALL.into_iter().filter(|clause| self.clauses.contains(clause)) {
            let is_possible = match clause {
                FlowClause::Target | FlowClause::Value => true,
                // It is decided by the route, not by values.
                FlowClause::Planner => false,
                FlowClause::Confidential => {
                    labels.is_confidential() && tool.sink.leaves() && !is_sent_to_given
                }
                FlowClause::Destructive => tool.sink == Sink::Destructive,
            };
            if !is_possible {
                continue;
            }
            let found = seen.iter().find(|judged| judged.is_refused(clause, tool.sink));
            // Without any target nobody has said what is to be destroyed.
            let is_untold = || {
                clause == FlowClause::Destructive
                    && !is_given(seen, |role| {
                        matches!(role, ArgumentRole::Target | ArgumentRole::Undeclared)
                    })
            };
            let untold = || seen.iter().find(|judged| judged.role == ArgumentRole::Target);
            if found.is_some() || is_untold() {
                let at = found.or_else(untold);
                let at = at.map(|judged| format!("/{}", json::pointer::escaped(&judged.name)));
                return Some(FlowViolation { clause, at: at.unwrap_or_default(), sink: tool.sink });
            }
        }
        None
    }
}

/// Whether the user's side has given what the arguments with these roles hold. What is empty names nobody, so at least
/// one has to hold something.
fn is_given(seen: &[JudgedArgument<'_>], has: impl Fn(ArgumentRole) -> bool) -> bool {
    let mut named = seen.iter().filter(|one| has(one.role) && !one.is_empty()).peekable();
    named.peek().is_some() && named.all(JudgedArgument::is_endorsed)
}

/// What a request sends, as far as it is compared.
#[derive(Clone, Copy, Debug)]
pub struct SentValues<'a> {
    /// What the request does.
    pub operation: SentOperation,
    /// The tool, prompt, URI or method.
    pub name: &'a str,
    /// The arguments of the call.
    pub arguments: Option<Value<'a>>,
    /// Members of `params` that the gateway does not know.
    pub extra: &'a [(Box<str>, Fragment)],
    /// Members of `params._meta` that the protocol does not define.
    pub meta: &'a [(Box<str>, Fragment)],
    /// Answers (`inputResponses`) that no server has asked for.
    pub unasked: Option<&'a Fragment>,
    /// The names of arguments that the caller has chosen ([`chosen_names`]).
    pub names: &'a [Cow<'a, str>],
}

/// The names of arguments that a definition does not declare: those it declares are the server's own, and the caller has
/// chosen the others.
#[must_use]
pub fn chosen_names<'a>(
    arguments: Option<Value<'a>>,
    definition: Option<Value<'_>>,
) -> Vec<Cow<'a, str>> {
    let schema = definition.and_then(|definition| definition.get("inputSchema")?.get("properties"));
    let of_tool = schema.into_iter().flat_map(Value::members).map(|(name, _)| name);
    let of_prompt = definition.and_then(|definition| definition.get("arguments"));
    let of_prompt = of_prompt.into_iter().flat_map(Value::items);
    let of_prompt = of_prompt.filter_map(|argument| argument.get("name")?.as_str());
    let mut declared: Vec<_> = of_tool.chain(of_prompt).collect();
    declared.sort_unstable();
    let names = arguments.into_iter().flat_map(Value::members).map(|(name, _)| name);
    names
        .filter(|name| declared.binary_search_by(|known| (**known).cmp(&**name)).is_err())
        .collect()
}

/// What a request does, as far as flow control tells it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentOperation {
    /// It calls a tool, or renders a prompt.
    Call,
    /// It reads a resource, or subscribes to it: the URI is its target.
    Resource,
    /// It completes an argument.
    Completion,
    /// It is about a task that a call has become.
    Task,
    /// It is a method that the gateway does not know: nobody knows which of the params are arguments.
    Method,
}

/// A value that is sent.
#[derive(Clone, Debug)]
enum SentPart<'a> {
    Value(Value<'a>),
    Text(&'a str),
    /// The name of a member, which the caller has chosen.
    Name(Cow<'a, str>),
}

/// What an argument is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgumentRole {
    /// It says who or what the call is about.
    Target,
    /// The same may be true: the targets are not known.
    Undeclared,
    /// It is no target.
    Other,
    /// It is no argument, but sent in the same message.
    Beside,
}

impl<'a> SentValues<'a> {
    /// What the request does with what it sends, where the tool that it is about has this `sink`.
    const fn sink(self, sink: Sink) -> Sink {
        match (self.operation, sink) {
            // The call has been made already, and was judged then.
            (SentOperation::Task, _) => Sink::None,
            // It removes nothing.
            (SentOperation::Completion, Sink::Destructive) => Sink::External,
            (_, sink) => sink,
        }
    }

    /// The parts with their names and roles, where these arguments are the targets.
    fn parts(
        self,
        targets: Option<&'a [Box<str>]>,
    ) -> impl Iterator<Item = (Cow<'a, str>, ArgumentRole, SentPart<'a>)> {
        let role = move |name: &str| match targets {
            None => ArgumentRole::Undeclared,
            // Servers read the names of members in several spellings.
            Some(targets) if is_target(targets, name) => ArgumentRole::Target,
            Some(_) => ArgumentRole::Other,
        };
        let uri = (self.operation == SentOperation::Resource)
            .then(|| (Cow::from("uri"), ArgumentRole::Target, SentPart::Text(self.name)));
        let arguments = self.arguments.into_iter().flat_map(Value::members);
        let arguments = arguments.map(move |(name, value)| {
            let role = role(&name);
            (name, role, SentPart::Value(value))
        });
        let is_method = self.operation == SentOperation::Method;
        // A rule with a pattern lets the caller choose the rest of the name.
        let parts =
            std::iter::once(self.name).chain(self.name.split('/')).filter(move |_| is_method);
        let method =
            parts.map(|part| (Cow::from("method"), ArgumentRole::Beside, SentPart::Text(part)));
        let extra = self.extra.iter().map(move |(name, value)| {
            let role = if is_method { role(name) } else { ArgumentRole::Beside };
            (Cow::from(&**name), role, SentPart::Value(value.value()))
        });
        let unasked = self.unasked.into_iter().map(|value| ("inputResponses", value.value()));
        let meta = self.meta.iter().map(|(name, value)| (&**name, value.value()));
        let beside = meta
            .chain(unasked)
            .map(|(name, value)| (Cow::from(name), ArgumentRole::Beside, SentPart::Value(value)));
        // A name can say as much as a value.
        let others = self.extra.iter().chain(self.meta).map(|(name, _)| Cow::from(&**name));
        let names = self.names.iter().cloned().chain(others);
        let names = names.map(|name| (name.clone(), ArgumentRole::Beside, SentPart::Name(name)));
        uri.into_iter().chain(method).chain(arguments).chain(extra).chain(beside).chain(names)
    }

    /// Remembers in `memory` that these values were sent.
    pub fn remember(self, key: &ValueKey, memory: &mut FlowMemory, most: usize) {
        for (_, _, part) in self.parts(None) {
            match part {
                SentPart::Value(value) => memory.sent(key, value, most),
                SentPart::Text(text) => memory.sent_text(key, text, most),
                SentPart::Name(text) => memory.sent_text(key, &text, most),
            }
        }
    }
}

/// What a flow knows of one argument.
#[derive(Debug)]
struct JudgedArgument<'a> {
    name: Cow<'a, str>,
    role: ArgumentRole,
    seen: SeenArgument,
    /// Whether it is a link that may be followed, although nobody has given it.
    is_followed: bool,
}

impl JudgedArgument<'_> {
    /// Whether a clause that applies to the call refuses it for this argument.
    fn is_refused(&self, clause: FlowClause, sink: Sink) -> bool {
        if self.is_followed {
            return false;
        }
        let (role, seen) = (self.role, &self.seen);
        let can_be_target = matches!(role, ArgumentRole::Target | ArgumentRole::Undeclared);
        match clause {
            FlowClause::Target => {
                // Inside, a plain name is no way out.
                let is_named = role == ArgumentRole::Target && sink != Sink::Write;
                is_named && seen.has_untrusted_word || can_be_target && seen.has_untrusted_address
            }
            FlowClause::Value => role != ArgumentRole::Target && seen.has_untrusted_address,
            FlowClause::Confidential => seen.has_confidential,
            FlowClause::Planner => false,
            FlowClause::Destructive => can_be_target && !self.is_empty() && !self.is_endorsed(),
        }
    }

    /// Whether it holds nothing that could name somebody. A switch counts where the operator says that it is a target.
    fn is_empty(&self) -> bool {
        self.seen.texts == 0 && !(self.role == ArgumentRole::Target && self.seen.has_switch)
    }

    /// Whether the user's side or a trusted result has given all of it. Nobody gives a switch: it says nothing that could
    /// be recognised.
    fn is_endorsed(&self) -> bool {
        let SeenArgument { texts, has_unendorsed, has_switch, .. } = self.seen;
        texts > 0 && !has_unendorsed && !(self.role == ArgumentRole::Target && has_switch)
    }
}

/// What a flow knows of the values in one argument.
#[derive(Clone, Copy, Debug, Default)]
struct SeenArgument {
    /// How many texts and numbers have values.
    texts: usize,
    /// One of them was neither given as a whole nor in all its parts.
    has_unendorsed: bool,
    /// Whether it holds the value `true`.
    has_switch: bool,
    /// A word or an address that only untrusted results have shown.
    has_untrusted_word: bool,
    /// An address that only untrusted results have shown.
    has_untrusted_address: bool,
    /// An address or a run of words that a confidential result has shown.
    has_confidential: bool,
    /// The worst origin of a text.
    worst: Option<Origin>,
}

/// Whether runs of words are looked up besides values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunComparison {
    /// They are looked up.
    Compared,
    /// They are skipped, because no clause needs them.
    Skipped,
}

impl SeenArgument {
    /// Looks at each text by itself: one that was given says nothing of another in the same list.
    fn of(key: &ValueKey, memory: &FlowMemory, part: SentPart<'_>, runs: RunComparison) -> Self {
        let text = Cell::new(SeenText::default());
        let visitor = ValueVisitor::new(key, ValueReading::Judged, |kind, hash| {
            let mut seen = text.get();
            seen.note(kind, memory.marks(hash));
            text.set(seen);
            true
        });
        let mut visitor = match runs {
            RunComparison::Compared => visitor,
            RunComparison::Skipped => visitor.without_runs(),
        };
        let (mut seen, mut has_switch) = (Self::default(), false);
        let mut look = |said: &str| {
            let mut extent = visitor.text(said);
            seen.add(text.take());
            // What is escaped, or broken over lines in a URL, says the same to its reader. It gives nothing.
            for read in link::readings(said) {
                extent = extent.max(visitor.text(&read));
                seen.add_unescaped(text.take());
            }
            extent == ValueExtent::Complete
        };
        let is_complete = match part {
            SentPart::Text(said) => look(said),
            SentPart::Name(said) => look(&said),
            SentPart::Value(value) => value::each_scalar(value, &mut |scalar| match scalar {
                Scalar::Text(said) => look(said),
                Scalar::True => {
                    has_switch = true;
                    true
                }
            }),
        };
        if !is_complete {
            // The rest was not looked at, so it counts as the worst.
            return Self::WORST;
        }
        Self { has_switch, ..seen }
    }

    /// What counts for an argument that was not looked at.
    const WORST: Self = Self {
        texts: 1,
        has_unendorsed: true,
        has_switch: true,
        has_untrusted_word: true,
        has_untrusted_address: true,
        has_confidential: true,
        worst: Some(Origin::Untrusted),
    };

    fn add(&mut self, text: SeenText) {
        if text.values == 0 {
            return;
        }
        self.texts += 1;
        self.has_unendorsed |= !text.is_endorsed();
        self.has_untrusted_word |= text.has_untrusted_word;
        self.has_untrusted_address |= text.has_untrusted_address;
        self.has_confidential |= text.has_confidential;
        self.worst = match (self.worst, text.origin()) {
            (Some(Origin::Untrusted), _) | (_, Origin::Untrusted) => Some(Origin::Untrusted),
            (Some(Origin::Unknown), _) | (_, Origin::Unknown) => Some(Origin::Unknown),
            (_, Origin::Trusted) => Some(Origin::Trusted),
        };
    }

    fn add_unescaped(&mut self, text: SeenText) {
        self.has_untrusted_address |= text.has_untrusted_address;
        self.has_confidential |= text.has_confidential;
    }

    fn origin(&self) -> Origin {
        self.worst.unwrap_or(Origin::Unknown)
    }
}

/// What a flow knows of the values in one text.
#[derive(Clone, Copy, Debug, Default)]
struct SeenText {
    values: usize,
    words: usize,
    /// A value was neither shown nor given.
    has_unknown: bool,
    /// A word or an address that only untrusted results have shown.
    has_untrusted_word: bool,
    /// An address that only untrusted results have shown.
    has_untrusted_address: bool,
    /// The whole text or a run of words that only untrusted results have shown.
    has_untrusted_text: bool,
    /// An address or a run of words that a confidential result has shown.
    has_confidential: bool,
    /// The text as a whole was given.
    is_whole_endorsed: bool,
}

impl SeenText {
    fn note(&mut self, kind: ValueKind, marks: Option<ValueMarks>) {
        let only_untrusted = marks.is_some_and(ValueMarks::is_only_untrusted);
        let is_confidential = marks.is_some_and(ValueMarks::is_confidential);
        let is_endorsed = marks.is_some_and(ValueMarks::is_endorsed);
        self.values += 1;
        match kind {
            ValueKind::Word => {
                self.words += 1;
                self.has_untrusted_word |= only_untrusted;
                self.has_unknown |= !is_endorsed;
            }
            // The token that it is in says whether all was given.
            ValueKind::Address | ValueKind::Inner => {
                self.has_untrusted_word |= only_untrusted;
                self.has_untrusted_address |= only_untrusted;
                self.has_unknown |= kind == ValueKind::Address && !is_endorsed;
                self.has_confidential |= is_confidential;
            }
            ValueKind::Whole => {
                self.has_untrusted_text |= only_untrusted;
                self.is_whole_endorsed |= is_endorsed;
            }
            // What is judged has none: `FlowMemory::followed` compares links.
            ValueKind::Link | ValueKind::LinkForm => {}
            ValueKind::Run => {
                self.has_untrusted_text |= only_untrusted;
                self.has_confidential |= is_confidential;
            }
        }
    }

    /// Whether the user's side or a trusted result has given all of it.
    const fn is_endorsed(&self) -> bool {
        self.is_whole_endorsed || self.values > 0 && !self.has_unknown
    }

    const fn origin(&self) -> Origin {
        let is_one_word = self.words == 1 && self.values == 1;
        if self.is_whole_endorsed {
            Origin::Trusted
        } else if self.has_untrusted_address
            || self.has_untrusted_text
            || is_one_word && self.has_untrusted_word
        {
            Origin::Untrusted
        } else if self.is_endorsed() {
            Origin::Trusted
        } else {
            Origin::Unknown
        }
    }
}

#[cfg(test)]
mod tests;
