//! The `flow` section of the policy, and the judgement about one call.

use json::{JsonKind, Value};
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;
use schemars::JsonSchema;
use serde::Deserialize;

use super::label::{Confidentiality, FlowLabels, Integrity, Sink};
use super::memory::{FlowMemory, ValueMarks};
use super::value::{ValueExtent, ValueKey, ValueKind, ValueVisitor};
use crate::definition::offer::ItemKind;

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
    /// Refuses.
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
}

impl FlowClause {
    /// All clauses, in the order in which they are judged.
    pub const ALL: [Self; 4] = [Self::Target, Self::Value, Self::Confidential, Self::Destructive];

    /// The code of the reason for clients, metrics and the audit log.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Target => "flow-target",
            Self::Value => "flow-value",
            Self::Confidential => "flow-confidential",
            Self::Destructive => "flow-destructive",
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
        }
    }
}

/// Guards what flows between servers: labels of results, and where the values in a call came from.
#[derive(Debug, Default, Deserialize, JsonSchema)]
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
    /// The sinks that are guarded: `write`, `destructive`, `external`. Default: all three.
    pub sinks: Option<Vec<Sink>>,
    /// What is known about tools. Each label is taken from the first entry that names the tool and has the label.
    #[serde(default)]
    pub labels: Vec<FlowLabel>,
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
    /// What the tool does with its arguments: `none`, `write`, `destructive` or `external`.
    pub sink: Option<Sink>,
    /// The arguments that say who or what the call is about, such as `recipient` or `url`: names at the top level.
    /// Default: none, and then every address, account and name in the arguments counts.
    pub targets: Option<Vec<String>>,
    /// Members of `structuredContent` whose values the server vouches for although others write the rest, such as the
    /// recipients of the user's own payments: they count as given. Default: none.
    #[serde(default)]
    pub vouched: Vec<String>,
}

/// A compiled [`FlowLabel`].
#[derive(Debug)]
struct CompiledLabel {
    servers: Vec<Pattern>,
    tools: Option<Vec<Pattern>>,
    integrity: Option<Integrity>,
    confidentiality: Option<Confidentiality>,
    sink: Option<Sink>,
    targets: Option<Vec<Box<str>>>,
    vouched: Vec<Box<str>>,
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
}

/// The compiled `flow` section.
#[derive(Debug, Default)]
pub struct FlowPolicy {
    mode: FlowMode,
    scope: FlowScope,
    clauses: Vec<FlowClause>,
    sinks: Vec<Sink>,
    labels: Vec<CompiledLabel>,
    /// Whether a rule reads `flow` or `origin`.
    is_read: bool,
}

impl FlowPolicy {
    /// Compiles the section.
    #[must_use]
    pub fn new(settings: FlowSettings) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        let compiled = |label: FlowLabel| CompiledLabel {
            servers: patterns(&label.servers),
            tools: label.tools.as_deref().map(patterns),
            integrity: label.integrity,
            confidentiality: label.confidentiality,
            sink: label.sink,
            targets: label.targets.map(|names| names.into_iter().map(Into::into).collect()),
            vouched: label.vouched.into_iter().map(Into::into).collect(),
        };
        let guarded = || vec![Sink::Write, Sink::Destructive, Sink::External];
        Self {
            mode: settings.mode,
            scope: settings.scope,
            clauses: settings.clauses.unwrap_or_else(|| FlowClause::ALL.to_vec()),
            sinks: settings.sinks.unwrap_or_else(guarded),
            labels: settings.labels.into_iter().map(compiled).collect(),
            is_read: false,
        }
    }

    /// The same where a rule reads `flow` or `origin`: flows are remembered then in every mode.
    #[must_use]
    pub fn read_by_rules(self) -> Self {
        Self { is_read: true, ..self }
    }

    /// What flow control does.
    #[must_use]
    pub const fn mode(&self) -> FlowMode {
        self.mode
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

    /// What is known about something that a server offers. What no entry labels has the strictest labels.
    #[must_use]
    pub fn labels_of(&self, server: &ServerName, kind: ItemKind, name: &str) -> ToolLabels<'_> {
        let concerns = |label: &&CompiledLabel| {
            server.is_among(&label.servers)
                && match &label.tools {
                    None => true,
                    Some(tools) => {
                        kind == ItemKind::Tool && tools.iter().any(|tool| tool.matches(name))
                    }
                }
        };
        let entries: Vec<_> = self.labels.iter().filter(concerns).collect();
        let integrity = entries.iter().find_map(|entry| entry.integrity);
        let confidentiality = entries.iter().find_map(|entry| entry.confidentiality);
        let can_send = matches!(kind, ItemKind::Tool | ItemKind::Method);
        let sink = entries.iter().find_map(|entry| entry.sink).unwrap_or(Sink::External);
        ToolLabels {
            labels: FlowLabels {
                integrity: integrity.unwrap_or(Integrity::Untrusted),
                confidentiality: confidentiality.unwrap_or(Confidentiality::Confidential),
            },
            sink: if can_send { sink } else { Sink::None },
            targets: entries.iter().find_map(|entry| entry.targets.as_deref()),
            vouched: entries
                .iter()
                .map(|entry| &entry.vouched[..])
                .find(|vouched| !vouched.is_empty())
                .unwrap_or_default(),
        }
    }

    /// What is known of a call of `tool` in a flow: the labels of the flow, where the arguments came from, and the
    /// clause that refuses the call.
    #[must_use]
    pub fn judge(
        &self,
        key: &ValueKey,
        memory: &FlowMemory,
        tool: ToolLabels<'_>,
        arguments: Option<Value<'_>>,
    ) -> FlowFacts {
        let labels = memory.labels();
        let guarded =
            self.mode != FlowMode::Off && labels.is_untrusted() && self.sinks.contains(&tool.sink);
        if !guarded && !self.is_read {
            return FlowFacts { labels, ..FlowFacts::default() };
        }
        let members = arguments.into_iter().flat_map(Value::members);
        let seen: Vec<_> = members
            .map(|(name, value)| (Box::from(&*name), SeenArgument::of(key, memory, value)))
            .collect();
        let violation = guarded.then(|| self.violation(labels, tool, &seen)).flatten();
        let origins = seen.into_iter().map(|(name, seen)| (name, seen.origin())).collect();
        FlowFacts { labels, origins, violation }
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
            let is_target =
                tool.targets.is_some_and(|targets| targets.iter().any(|t| **t == *name));
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
        seen: &[(Box<str>, SeenArgument)],
    ) -> Option<FlowViolation> {
        let is_target = |name: &str| {
            tool.targets.is_some_and(|targets| targets.iter().any(|target| **target == *name))
        };
        let applies = |clause: FlowClause, seen: &SeenArgument, is_target: bool| match clause {
            FlowClause::Target => {
                // Inside, a plain name is no way out.
                let is_named = is_target && tool.sink != Sink::Write && seen.has_untrusted_word;
                is_named || (is_target || tool.targets.is_none()) && seen.has_untrusted_address
            }
            FlowClause::Value => !is_target && seen.has_untrusted_address,
            FlowClause::Confidential => {
                labels.is_confidential() && tool.sink == Sink::External && seen.has_confidential
            }
            FlowClause::Destructive => {
                tool.sink == Sink::Destructive
                    && (is_target || tool.targets.is_none())
                    && !seen.is_endorsed()
            }
        };
        let mut targets = seen.iter().filter(|(name, _)| is_target(name)).peekable();
        let is_endorsed = targets.peek().is_some() && targets.all(|(_, seen)| seen.is_endorsed());
        for clause in FlowClause::ALL.into_iter().filter(|clause| self.clauses.contains(clause)) {
            if clause == FlowClause::Confidential && is_endorsed {
                continue;
            }
            let found = seen.iter().find(|(name, seen)| applies(clause, seen, is_target(name)));
            let at = found.map(|(name, _)| format!("/{}", json::pointer::escaped(name)));
            // Without any target nobody has said what is to be destroyed.
            let nothing = || {
                let untold = clause == FlowClause::Destructive
                    && tool.sink == Sink::Destructive
                    && !seen.iter().any(|(name, _)| is_target(name) || tool.targets.is_none());
                untold.then(String::new)
            };
            if let Some(at) = at.or_else(nothing) {
                return Some(FlowViolation { clause, at, sink: tool.sink });
            }
        }
        None
    }
}

/// What a flow knows of the values in one argument.
#[derive(Clone, Copy, Debug, Default)]
struct SeenArgument {
    values: usize,
    words: usize,
    /// A value was neither shown nor given.
    has_unknown: bool,
    /// A word or an address that only untrusted results have shown.
    has_untrusted_word: bool,
    /// An address that only untrusted results have shown.
    has_untrusted_address: bool,
    /// A whole text or a run of words that only untrusted results have shown.
    has_untrusted_text: bool,
    /// An address or a run of words that a confidential result has shown.
    has_confidential: bool,
    /// The text as a whole was given.
    is_whole_endorsed: bool,
}

impl SeenArgument {
    fn of(key: &ValueKey, memory: &FlowMemory, value: Value<'_>) -> Self {
        let mut seen = Self::default();
        // A truth value says nothing that could be copied.
        if value.kind() == JsonKind::Boolean || value.kind() == JsonKind::Null {
            return seen;
        }
        let mut visitor = ValueVisitor::new(key, |kind, hash| {
            seen.note(kind, memory.marks(hash));
            true
        });
        if visitor.all_of(value) == ValueExtent::Partial {
            // The rest was not looked at, so it counts as the worst.
            return Self {
                has_unknown: true,
                has_untrusted_word: true,
                has_untrusted_address: true,
                has_untrusted_text: true,
                has_confidential: true,
                ..seen
            };
        }
        seen
    }

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
            ValueKind::Address => {
                self.has_untrusted_word |= only_untrusted;
                self.has_untrusted_address |= only_untrusted;
                self.has_unknown |= !is_endorsed;
                self.has_confidential |= is_confidential;
            }
            ValueKind::Whole => {
                self.has_untrusted_text |= only_untrusted;
                self.is_whole_endorsed |= is_endorsed;
            }
            ValueKind::Run => {
                self.has_untrusted_text |= only_untrusted;
                self.has_confidential |= is_confidential;
            }
        }
    }

    /// Whether the user's side or a trusted result has given all of it.
    const fn is_endorsed(&self) -> bool {
        self.is_whole_endorsed || !self.has_unknown
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
        } else if self.values > 0 && !self.has_unknown {
            Origin::Trusted
        } else {
            Origin::Unknown
        }
    }
}

#[cfg(test)]
mod tests;
