//! The `policy` section of the configuration: its raw form, and its compilation into a [`Policy`].
//!
//! Reads no file and parses no YAML: the caller has parsed the text, and turns the JSON Pointer of a [`PolicyProblem`] into
//! a line and a column.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use detection::content::{
    ContentPolicy, ContentProfile, Direction, Handlings, OversizeAction, ResultSizeLimit,
};
use policy_core::subject::name::{
    ClientId, GroupName, NameError, PrincipalId, RoleName, RuleId, Scope, ServerName,
};
use policy_core::subject::pattern::Pattern;
use policy_core::subject::principal::{Principal, PrincipalSelector, RequiredProof};
use policy_core::subject::skill::is_skill_uri;
use policy_core::subject::uri::UriError;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::definition::shadow::{ShadowingPolicy, Winner};
use crate::engine::pipeline::Policy;
use crate::flow::channel::{ChannelEntry, ChannelSettings, ENTRIES};
use crate::flow::guard::{FlowPolicy, FlowSettings, names_argument};
use crate::flow::label::Sink;
use crate::rules::access::{ItemPatterns, Rule, RuleEffect, RuleSet};
use crate::rules::condition::{Condition, ConditionError};
use crate::rules::constraint::{ArgumentLimits, Constraint};
use crate::rules::decision::{DenialFormat, Mode};
use crate::rules::definitions::DefinitionPolicy;

/// Which principals may use which tools, prompts, resources and skills of which servers. What no rule allows is denied.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawPolicy {
    /// Contact for denied callers: an address, a channel or a link. Shown in denials.
    contact: Option<String>,
    /// How a denied tool call is answered if the caller may know that the tool exists: `result`, a tool result with
    /// `isError: true` that explains the denial to the model; or `error`, the JSON-RPC error -31403.
    #[serde(default)]
    denials: DenialFormat,
    /// Access rules; their order has no meaning. A `forbid` overrides every `allow`.
    #[serde(default)]
    rules: Vec<RawRule>,
    /// What is looked for in definitions of tools, prompts and resources.
    #[serde(default)]
    definitions: DefinitionPolicy,
    /// How tools and prompts are treated that can be mistaken for those of another server.
    #[serde(default)]
    shadowing: ShadowingPolicy,
    /// Inspection of results and arguments, by server: the first entry that names a server applies to it. Servers
    /// that no entry names get the defaults.
    #[serde(default)]
    content: Vec<RawContent>,
    /// Canary values, which must never appear outside the place they were planted in: 12 to 1,024 bytes each, at most
    /// 1,000 values. `canaries` under `content` sets the action for a match.
    #[serde(default)]
    canaries: Vec<String>,
    /// Limits on tool arguments beyond their schemas. Every constraint that names an argument applies to it.
    #[serde(default)]
    constraints: Vec<ArgumentLimits>,
    /// Guards what flows between servers: untrusted results, confidential ones, and tools that send something.
    #[serde(default)]
    flow: FlowSettings,
}

const fn off() -> Mode {
    Mode::Off
}

const fn audit() -> Mode {
    Mode::Audit
}

/// Inspection of what some servers send and are sent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawContent {
    /// Servers the entry applies to: names or patterns with `*` and `?`.
    servers: Vec<String>,
    /// Allows servers that are not configured: for a file that several gateways share.
    #[serde(default)]
    allow_unknown_servers: bool,
    /// Actions for what the servers send: results, errors, notifications, elicitation and sampling requests.
    #[serde(default)]
    results: Handlings,
    /// Actions for what the servers are sent: arguments of calls.
    #[serde(default)]
    arguments: Handlings,
    /// Arguments that do not match the input schema of the tool. Default `enforce`.
    #[serde(default)]
    input_schema: Mode,
    /// Arguments that the input schema does not declare, where it leaves additional properties open: `enforce` denies
    /// them. Default `off`.
    #[serde(default = "off")]
    undeclared_arguments: Mode,
    /// `structuredContent` that does not match the output schema of the tool. Default `audit`.
    #[serde(default = "audit")]
    output_schema: Mode,
    /// Values that are not secrets, each by 16 or more of the first hexadecimal digits of its SHA-256.
    #[serde(default)]
    allowed_values: Vec<String>,
    /// Hosts that links in results may lead to: names or patterns with `*` and `?`. Default: all hosts.
    link_hosts: Option<Vec<String>>,
    /// Media types that results may carry, such as `image/png` or `text/*`. Default: all types.
    media_types: Option<Vec<String>>,
    /// Encloses every text of a result in markers that its author cannot forge, so that a model can tell where data
    /// begins and ends.
    #[serde(default)]
    fence: bool,
    /// Most bytes of a tool result, as JSON. Default: the gateway's limit for any response.
    size: Option<RawSize>,
    /// Which principals see labelled members of results: labelled by `x-sensitive` or `x-data-class` in the output
    /// schema, or by `fields` in the registry. Members labelled `public` or `internal` are shown to every caller of
    /// the tool; members with another label only to principals listed here.
    #[serde(default)]
    fields: Vec<RawFields>,
}

/// Size limit of results.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawSize {
    /// Most bytes of a result; 512 or more.
    max_bytes: usize,
    /// What happens to a longer result: `refuse` (the default), `truncate` or `offload`.
    #[serde(default)]
    on_exceeded: OversizeAction,
}

/// Which principals see members of results that have a label.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawFields {
    /// The label; `sensitive` stands for `x-sensitive: true`.
    label: String,
    /// Principals the members are shown to, written as in rules.
    principals: Vec<String>,
}

/// One access rule of the policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawRule {
    /// Name of the rule in decisions and in the audit log; unique.
    id: String,
    /// Whether the rule allows or forbids: `allow` or `forbid`.
    effect: RuleEffect,
    /// Principals the rule applies to: `*` for every authenticated caller, `group:NAME`, `role:NAME`, `client:ID` or
    /// `principal:ID`.
    principals: Vec<String>,
    /// Servers the rule applies to: names or patterns with `*` and `?`.
    servers: Vec<String>,
    /// Tools, by the names their servers give them: names or patterns with `*` and `?`.
    #[serde(default)]
    tools: Vec<String>,
    /// Prompts, by the names their servers give them: names or patterns with `*` and `?`.
    #[serde(default)]
    prompts: Vec<String>,
    /// Resources, by canonical URI, and resource templates, by their text: names or patterns with `*` and `?`.
    /// Applies to reading, subscribing and completing. A `forbid` also applies to the URI with any query and with a
    /// trailing slash.
    #[serde(default)]
    resources: Vec<String>,
    /// Skills, by the path of their directory: names or patterns with `*` and `?`. `git-workflow` stands for the URI
    /// `skill://git-workflow/SKILL.md`. Applies to the manifest of a skill and to reading all its files.
    #[serde(default)]
    skills: Vec<String>,
    /// Methods, notifications and extensions that this gateway does not know.
    #[serde(default)]
    methods: Vec<String>,
    /// Scopes of which the credential must have every one. A caller who lacks one sees the thing and is told which
    /// scopes it needs. Only for `allow`.
    #[serde(default)]
    scopes: Vec<String>,
    /// How the caller must have proved possession of its credential: `any`, `certificate` (RFC 8705) or `dpop` (RFC
    /// 9449). Only for `allow`.
    proof: Option<RequiredProof>,
    /// A CEL expression over `principal`, `server`, `arguments`, `risk`, `flow`, `origin` and the thing requested:
    /// `tool`, `prompt`, `resource`, `skill` or `method`. A condition that cannot be evaluated never allows.
    when: Option<String>,
    /// `enforce` applies the rule, `audit` only records what it would have done, `off` ignores it.
    #[serde(default)]
    mode: Mode,
    /// Tells a denied caller that this rule denies the call; otherwise the thing appears not to exist. Only for
    /// `forbid`.
    #[serde(default)]
    disclose: bool,
    /// Contact for this rule, instead of the contact of the policy.
    contact: Option<String>,
    /// A person has to approve each tool call that the rule allows, as `approvals` says; also where another rule
    /// allows the call without. Prompts, resources, skills and methods cannot be approved: those are denied. Only for `allow`.
    #[serde(default)]
    require_approval: bool,
}

/// The lists of a rule that have patterns over URIs.
#[derive(Clone, Copy, Debug)]
enum RuledUris {
    Resources,
    Skills,
}

impl RuledUris {
    const fn key(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::Skills => "skills",
        }
    }

    fn pattern(self, text: &str) -> Result<Pattern, UriError> {
        match self {
            Self::Resources => Pattern::resource(text),
            Self::Skills => Pattern::skill(text),
        }
    }
}

/// One problem in the policy section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyProblem {
    /// JSON Pointer into the policy section.
    pub at: String,
    /// States what is wrong.
    pub message: String,
    /// States how to correct it.
    pub help: String,
}

/// What the rest of the configuration defines, against which names in the policy are checked.
#[derive(Clone, Copy, Debug)]
pub struct KnownNames<'a> {
    /// The configured upstream servers.
    pub servers: &'a [ServerName],
    /// Whether there may be further servers, whose own definitions are invalid.
    pub unnamed: bool,
    /// All configured principals; empty if no caller can authenticate.
    pub principals: &'a [Principal],
    /// Whether there can be further principals, authenticated by an issuer.
    pub others: bool,
}

/// Shortest and longest canary value in bytes, and the most values; they are searched one by one.
const CANARY: std::ops::RangeInclusive<usize> = 12..=1024;
const CANARIES: usize = 1000;
/// Smallest configurable limit of a result, in bytes.
const SIZE: usize = 512;

/// Compiles `raw`, or reports every problem in it.
///
/// # Errors
/// If there is any problem; then nothing is compiled.
pub fn compile(raw: RawPolicy, known: KnownNames<'_>) -> Result<Policy, Vec<PolicyProblem>> {
    let contact: Option<Arc<str>> = raw.contact.map(Into::into);
    let mut compiler = PolicyCompiler { known, problems: Vec::new(), seen: BTreeMap::new() };
    let rules: Vec<_> = raw
        .rules
        .into_iter()
        .enumerate()
        .filter_map(|(n, raw)| compiler.rule(n, raw, contact.as_ref()))
        .collect();
    let (places, rules): (Vec<_>, Vec<_>) = rules.into_iter().unzip();
    let access = RuleSet::new(rules);
    compiler.covered(&places, &access);
    compiler.shadowing(&raw.shadowing);
    compiler.definitions(raw.definitions);
    let contents = compiler.contents(raw.content, &raw.canaries);
    let constraints = compiler.constraints(raw.constraints);
    compiler.flow(&raw.flow);
    let reads = |what: fn(&Condition) -> bool| {
        access.rules().iter().any(|rule| rule.when.as_ref().is_some_and(what))
    };
    let flow = FlowPolicy::new(raw.flow);
    let flow = if reads(Condition::reads_flow) { flow.read_by_rules() } else { flow };
    let flow = if reads(Condition::reads_origin) { flow.compared_by_rules() } else { flow };
    if !compiler.problems.is_empty() {
        return Err(compiler.problems);
    }
    Ok(Policy::new(access, raw.definitions, contact)
        .with_denials(raw.denials)
        .with_shadowing(raw.shadowing)
        .with_contents(contents)
        .with_constraints(constraints)
        .with_flow(flow))
}

struct PolicyCompiler<'a> {
    known: KnownNames<'a>,
    problems: Vec<PolicyProblem>,
    seen: BTreeMap<RuleId, usize>,
}

impl PolicyCompiler<'_> {
    fn report(&mut self, at: String, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(PolicyProblem { at, message: message.into(), help: help.into() });
    }

    fn definitions(&mut self, definitions: DefinitionPolicy) {
        for name in definitions.misused() {
            let help = "write `enforce`, `audit` or `off`";
            self.report(format!("/definitions/{name}"), "this cannot be taken out", help);
        }
    }

    fn contents(&mut self, raws: Vec<RawContent>, canaries: &[String]) -> ContentPolicy {
        for (n, canary) in canaries.iter().enumerate() {
            if !CANARY.contains(&canary.len()) || n >= CANARIES {
                let help = "give at most 1,000 values of 12 to 1,024 bytes";
                self.report(format!("/canaries/{n}"), "this value cannot be looked for", help);
            }
        }
        let profiles = raws.into_iter().enumerate().map(|(n, raw)| self.profile(n, raw)).collect();
        match ContentPolicy::new(profiles).with_canaries(canaries) {
            Ok(contents) => contents,
            Err(finding) => {
                let help = "give fewer of them";
                self.report("/canaries".to_owned(), format!("{finding}"), help);
                ContentPolicy::default()
            }
        }
    }

    fn profile(&mut self, n: usize, raw: RawContent) -> ContentProfile {
        let at = format!("/content/{n}");
        let at_servers = format!("{at}/servers");
        let servers = match raw.allow_unknown_servers && !raw.servers.is_empty() {
            true => raw.servers.iter().map(|text| Pattern::new(text)).collect(),
            false => self.servers(&at_servers, "entry", &raw.servers),
        };
        for (direction, of, handlings) in [
            ("results", Direction::Result, &raw.results),
            ("arguments", Direction::Argument, &raw.arguments),
        ] {
            for (name, help) in handlings.misused(of) {
                let at = format!("{at}/{direction}/{name}");
                self.report(at, "this is not done about it", help);
            }
        }
        self.allowed(&at, &raw.allowed_values);
        self.permitted_lists(&at, &raw);
        if raw.size.as_ref().is_some_and(|size| size.max_bytes < SIZE) {
            let help = "write 512 or more: the answer that says so has to fit";
            self.report(format!("{at}/size/maxBytes"), "this is too short for any result", help);
        }
        let mut fields = Vec::new();
        for (m, field) in raw.fields.iter().enumerate() {
            let at = format!("{at}/fields/{m}/principals");
            fields.push((
                field.label.as_str().into(),
                self.principals(&at, "entry", &field.principals),
            ));
        }
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        ContentProfile {
            servers,
            link_hosts: patterns(raw.link_hosts.as_deref().unwrap_or_default()),
            media_types: patterns(raw.media_types.as_deref().unwrap_or_default()),
            results: raw.results,
            arguments: raw.arguments,
            input_schema: raw.input_schema,
            undeclared: raw.undeclared_arguments,
            output_schema: raw.output_schema,
            allowed: raw.allowed_values,
            fence: raw.fence,
            size: raw.size.map(|RawSize { max_bytes, on_exceeded }| ResultSizeLimit {
                most: max_bytes,
                over: on_exceeded,
            }),
            fields,
        }
    }

    /// Checks the digests of values that are not secrets.
    fn allowed(&mut self, at: &str, digests: &[String]) {
        for (m, digest) in digests.iter().enumerate() {
            let hex = digest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            if !hex || !(16..=64).contains(&digest.len()) {
                let help =
                    "write 16 to 64 of the digits that `sha256sum` prints of the value alone";
                self.report(
                    format!("{at}/allowedValues/{m}"),
                    "this is no part of a SHA-256",
                    help,
                );
            }
        }
    }

    /// Checks the hosts and the media types that a profile permits.
    fn permitted_lists(&mut self, at: &str, raw: &RawContent) {
        let of_host = |text: &str| !text.contains(['/', ':', '@']) && text == text.to_lowercase();
        let of_type = |text: &str| text.contains('/') && text == text.to_lowercase();
        for (name, texts, is_one, help) in [
            (
                "linkHosts",
                &raw.link_hosts,
                &of_host as &dyn Fn(&str) -> bool,
                "write a host in lower case, such as `*.example.com`",
            ),
            (
                "mediaTypes",
                &raw.media_types,
                &of_type,
                "write a type in lower case, such as `image/png` or `text/*`",
            ),
        ] {
            if texts.as_ref().is_some_and(Vec::is_empty) {
                let help = "name what may be, or leave it out: an empty list means nothing";
                self.report(format!("{at}/{name}"), "this lets nothing through", help);
            }
            let texts = texts.as_deref().unwrap_or_default();
            for (m, text) in texts.iter().enumerate().filter(|(_, text)| !is_one(text)) {
                let message = format!("`{}` stands for nothing", text.escape_debug());
                self.report(format!("{at}/{name}/{m}"), message, help);
            }
        }
    }

    fn constraints(&mut self, raws: Vec<ArgumentLimits>) -> Vec<Constraint> {
        let mut constraints = Vec::new();
        for (n, raw) in raws.into_iter().enumerate() {
            let at = format!("/constraints/{n}");
            let servers = self.servers(&format!("{at}/servers"), "constraint", &raw.servers);
            if raw.tools.is_empty() {
                let help = "name the tools, or remove the constraint: an empty list means none";
                self.report(format!("{at}/tools"), "this constraint can never apply", help);
            }
            match Constraint::new(servers, raw) {
                Ok(constraint) => constraints.push(constraint),
                Err((member, why)) => {
                    let help = match member {
                        "argument" => {
                            "begin with `/`: `/path` is the argument `path`, `/paths/*` each item of the list `paths`"
                        }
                        "privateHosts" => {
                            "name the internal hosts in `hosts`; or, if every public host is meant as well, in \
                             `additionalHosts` and without `privateHosts`"
                        }
                        _ => "see `docs/content.md`",
                    };
                    self.report(format!("{at}/{member}"), why, help);
                }
            }
        }
        constraints
    }

    /// Checks the values that may pass between two planners.
    fn channel(&mut self, entries: &[ChannelSettings]) {
        if entries.len() > ENTRIES {
            let help = "declare at most 64 values";
            self.report("/flow/channel".to_owned(), "these are too many values", help);
        }
        let mut seen = BTreeSet::new();
        for (n, entry) in entries.iter().enumerate() {
            let at = format!("/flow/channel/{n}");
            if !seen.insert(&*entry.name) {
                let message = format!("there are two values `{}`", entry.name.escape_debug());
                self.report(format!("{at}/name"), message, "rename one of them");
            }
            if let Err(mistake) = ChannelEntry::new(entry) {
                self.report(format!("{at}{}", mistake.at), mistake.message, mistake.help);
            }
        }
    }

    /// Checks the labels of flow control, and the lists that say what is guarded.
    fn flow(&mut self, flow: &FlowSettings) {
        self.channel(&flow.channel);
        let none = "name some, or leave it out: an empty list guards nothing";
        if flow.clauses.as_ref().is_some_and(Vec::is_empty) {
            self.report("/flow/clauses".to_owned(), "no clause can ever refuse anything", none);
        }
        if flow.sinks.as_ref().is_some_and(|sinks| sinks.is_empty()) {
            self.report("/flow/sinks".to_owned(), "nothing is guarded", none);
        }
        for (n, _) in flow.sinks.iter().flatten().enumerate().filter(|(_, s)| **s == Sink::None) {
            let help = "name `write`, `destructive`, `fetch` or `external`";
            self.report(format!("/flow/sinks/{n}"), "what only reads is no sink", help);
        }
        for (n, label) in flow.labels.iter().enumerate() {
            let at = format!("/flow/labels/{n}");
            self.servers(&format!("{at}/servers"), "entry", &label.servers);
            if label.tools.as_ref().is_some_and(Vec::is_empty) {
                let help = "name the tools, or leave `tools` out for everything of the servers";
                self.report(format!("{at}/tools"), "this entry can never apply", help);
            }
            let labels = (label.integrity, label.confidentiality, label.sink);
            let has_lists = label.targets.is_some() || !label.vouched.is_empty();
            if labels == (None, None, None) && !has_lists {
                let help = "write `integrity`, `confidentiality`, `sink`, `targets` or `vouched`";
                self.report(at.clone(), "this entry has no label", help);
            }
            for (m, target) in label.targets.iter().flatten().enumerate() {
                if !names_argument(target) {
                    let help =
                        "write the name of an argument at the top level, such as `recipient`";
                    let message = format!("`{}` names no argument", target.escape_debug());
                    self.report(format!("{at}/targets/{m}"), message, help);
                }
            }
        }
    }

    fn shadowing(&mut self, shadowing: &ShadowingPolicy) {
        for (n, name) in shadowing.priority.iter().enumerate() {
            let servers = self.known.servers.iter().map(ServerName::as_str);
            if !self.known.unnamed && !servers.clone().any(|server| server == name) {
                let help = format!("the servers are: {}", servers.collect::<Vec<_>>().join(", "));
                let at = format!("/shadowing/priority/{n}");
                self.report(at, format!("there is no server `{}`", name.escape_debug()), help);
            }
        }
        if (shadowing.winner == Winner::Priority) == shadowing.priority.is_empty() {
            let at = "/shadowing/priority".to_owned();
            let help = "give both `winner: priority` and the servers in `priority`, or neither";
            self.report(at, "this decides nothing", help);
        }
    }

    fn rule(
        &mut self,
        n: usize,
        raw: RawRule,
        contact: Option<&Arc<str>>,
    ) -> Option<(usize, Rule)> {
        let found = self.problems.len();
        let id = self.id(n, &raw.id);
        let principals =
            self.principals(&format!("/rules/{n}/principals"), "rule", &raw.principals);
        let servers = self.servers(&format!("/rules/{n}/servers"), "rule", &raw.servers);
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        let things = ItemPatterns {
            tools: patterns(&raw.tools),
            prompts: patterns(&raw.prompts),
            resources: self.uris(n, RuledUris::Resources, raw.effect, &raw.resources),
            skills: self.uris(n, RuledUris::Skills, raw.effect, &raw.skills),
            methods: patterns(&raw.methods),
        };
        // As written: what is wrong with a pattern is reported there.
        let written = [&raw.tools, &raw.prompts, &raw.resources, &raw.skills, &raw.methods];
        if written.iter().all(|patterns| patterns.is_empty()) {
            let help = "name `tools`, `prompts`, `resources`, `skills` or `methods`, or remove the rule: \
                        nothing named means nothing";
            self.report(format!("/rules/{n}/tools"), "this rule can never apply", help);
        }
        let when = raw.when.as_deref().and_then(|text| self.condition(n, text));
        if raw.disclose && raw.effect == RuleEffect::Allow {
            let help = "remove `disclose`, or set it on the rule that forbids";
            self.report(
                format!("/rules/{n}/disclose"),
                "only a `forbid` has a denial to disclose",
                help,
            );
        }
        if raw.effect == RuleEffect::Forbid && (!raw.scopes.is_empty() || raw.proof.is_some()) {
            let key = if raw.scopes.is_empty() { "proof" } else { "scopes" };
            let help = "remove it, or set it on the rule that allows";
            let message = format!("only an `allow` can ask for `{key}`");
            self.report(format!("/rules/{n}/{key}"), message, help);
        }
        if raw.effect == RuleEffect::Forbid && raw.require_approval {
            let help = "remove it, or set it on the rule that allows";
            let message = "only an `allow` can ask for an approval";
            self.report(format!("/rules/{n}/requireApproval"), message, help);
        }
        let scopes = self.scopes(n, &raw.scopes);
        let rule = Rule {
            id: id?,
            says: raw.effect,
            principals,
            servers,
            things,
            scopes,
            proof: raw.proof,
            when,
            mode: raw.mode,
            disclose: raw.disclose,
            contact: raw.contact.map(Into::into).or_else(|| contact.cloned()),
            requires_approval: raw.require_approval,
        };
        (self.problems.len() == found).then_some((n, rule))
    }

    /// Compiles the condition of a rule.
    fn condition(&mut self, n: usize, text: &str) -> Option<Condition> {
        let failed = |error: ConditionError| {
            let help = match error {
                ConditionError::Syntax(_) => {
                    "correct the expression; docs/policy.md says what `when` may use"
                }
                ConditionError::NotBoolean(_) => {
                    "compare it with something, as in `arguments.path == \"/data\"` or \
                     `size(arguments.path) > 1`"
                }
                ConditionError::Length(_)
                | ConditionError::Nesting
                | ConditionError::Variable(_)
                | ConditionError::Function(_)
                | ConditionError::NestedLoop
                | ConditionError::Pattern
                | ConditionError::Regex { .. } => "see docs/policy.md for what `when` may use",
            };
            self.report(format!("/rules/{n}/when"), format!("the expression {error}"), help);
        };
        Condition::compile(text).map_err(failed).ok()
    }

    /// The resource patterns of a rule, over canonical URIs.
    fn uris(
        &mut self,
        n: usize,
        what: RuledUris,
        effect: RuleEffect,
        texts: &[String],
    ) -> Vec<Pattern> {
        let mut found = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            if matches!(what, RuledUris::Resources) && is_skill_uri(text) {
                let message = format!("`{}` can never match", text.escape_debug());
                let help =
                    "what is under `skill://` is a file of a skill: name the skill under `skills`";
                self.report(format!("/rules/{n}/resources/{i}"), message, help);
            }
            match (what.pattern(text), effect) {
                (Ok(pattern), RuleEffect::Allow) => found.push(pattern),
                (Ok(pattern), RuleEffect::Forbid) => {
                    // A `forbid` is compared with every form of a URI, so it also keeps the pattern as written.
                    let folded = pattern.folded();
                    if folded != pattern {
                        found.push(folded);
                    }
                    found.push(pattern);
                    // Many servers return the same resource without the slash.
                    let shorter = text.strip_suffix('/').filter(|rest| !rest.ends_with(['/', '*']));
                    found.extend(shorter.and_then(|shorter| what.pattern(shorter).ok()));
                }
                (Err(error), RuleEffect::Allow | RuleEffect::Forbid) => {
                    let message = format!("`{}` can never match: {error}", text.escape_debug());
                    let help = "write the URI as rules see it: see `Resources` in `docs/policy.md`";
                    self.report(format!("/rules/{n}/{}/{i}", what.key()), message, help);
                }
            }
        }
        found
    }

    fn id(&mut self, n: usize, text: &str) -> Option<RuleId> {
        let at = format!("/rules/{n}/id");
        let id = match RuleId::parse(text) {
            Ok(id) => id,
            Err(error) => {
                self.report(at, format!("`{}` {error}", text.escape_debug()), "rename the rule");
                return None;
            }
        };
        if self.seen.insert(id.clone(), n).is_some() {
            self.report(at, format!("rule `{id}` is defined twice"), "give each rule its own id");
            return None;
        }
        Some(id)
    }

    fn scopes(&mut self, n: usize, texts: &[String]) -> Arc<[Scope]> {
        let mut scopes = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            match Scope::parse(text) {
                Ok(scope) => scopes.push(scope),
                Err(error) => {
                    let message = format!("the scope `{}` {error}", text.escape_debug());
                    let help = "write each scope as an item of its own";
                    self.report(format!("/rules/{n}/scopes/{i}"), message, help);
                }
            }
        }
        scopes.into()
    }

    /// Parses the principals listed at `at`; `what` names the enclosing entry in messages.
    fn principals(&mut self, at: &str, what: &str, texts: &[String]) -> Vec<PrincipalSelector> {
        if texts.is_empty() {
            let help =
                format!("name whom the {what} is for, or remove it: an empty list means nobody");
            self.report(at.to_owned(), format!("this {what} can never apply"), help);
        }
        let mut found = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            let at = format!("{at}/{i}");
            match who(text) {
                Err(problem) => {
                    let help =
                        "write `*`, `group:NAME`, `role:NAME`, `client:ID` or `principal:ID`";
                    self.report(at, format!("`{}` {problem}", text.escape_debug()), help);
                }
                Ok(who) => {
                    let known = self.known.principals.iter().any(|principal| who.is(principal));
                    if !known && !self.known.others {
                        let help = "define it under `identity`, or correct the name";
                        self.report(at, format!("no caller can be `{text}`"), help);
                    }
                    found.push(who);
                }
            }
        }
        found
    }

    /// Parses the servers listed at `at`; `what` names the enclosing entry in messages.
    fn servers(&mut self, at: &str, what: &str, texts: &[String]) -> Vec<Pattern> {
        if texts.is_empty() {
            let help = format!("name the servers, or remove the {what}: an empty list means none");
            self.report(at.to_owned(), format!("this {what} can never apply"), help);
        }
        let mut found = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            let pattern = Pattern::new(text);
            let known = self.known.servers.iter().any(|server| pattern.matches(server.as_str()));
            if !known && !self.known.unnamed {
                let servers: Vec<_> = self.known.servers.iter().map(ServerName::as_str).collect();
                let also = if what == "entry" {
                    "; `allowUnknownServers: true` allows others"
                } else {
                    ""
                };
                let help = format!("the servers are: {}{also}", servers.join(", "));
                let at = format!("{at}/{i}");
                self.report(at, format!("there is no server `{}`", text.escape_debug()), help);
            }
            found.push(pattern);
        }
        found
    }

    /// Reports every `allow` that an unconditional `forbid` covers; `places` are the positions of the compiled rules
    /// in the configuration.
    fn covered(&mut self, places: &[usize], access: &RuleSet) {
        for (allow, forbid) in access.void() {
            let rule = |n: usize| access.rules().get(n).map(|rule| &rule.id);
            let (Some(n), Some(allow), Some(forbid)) =
                (places.get(allow), rule(allow), rule(forbid))
            else {
                continue;
            };
            let message = format!("rule `{allow}` can never apply: `{forbid}` forbids all of it");
            let help = "remove one of the two, or narrow the `forbid`";
            self.report(format!("/rules/{n}/id"), message, help);
        }
    }
}

/// Parses a principal as rules name it.
///
/// # Errors
/// What is wrong with it, as a clause.
pub fn selector(text: &str) -> Result<PrincipalSelector, String> {
    who(text).map_err(|error| error.to_string())
}

fn who(text: &str) -> Result<PrincipalSelector, SelectorError> {
    match text.split_once(':') {
        None if text == "*" => Ok(PrincipalSelector::Anyone),
        Some(("group", name)) => {
            GroupName::parse(name).map(PrincipalSelector::Group).map_err(SelectorError::Name)
        }
        Some(("role", name)) => {
            RoleName::parse(name).map(PrincipalSelector::Role).map_err(SelectorError::Name)
        }
        Some(("client", id)) => {
            ClientId::parse(id).map(PrincipalSelector::Client).map_err(SelectorError::Name)
        }
        Some(("principal", id)) => {
            PrincipalId::parse(id).map(PrincipalSelector::Principal).map_err(SelectorError::Name)
        }
        _ => Err(SelectorError::Shape),
    }
}

#[derive(Debug, thiserror::Error)]
enum SelectorError {
    #[error("names nobody")]
    Shape,
    #[error("{0}")]
    Name(NameError),
}

#[cfg(test)]
mod tests;
