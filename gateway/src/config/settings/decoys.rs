//! Compiles the `decoys` section: tools that no server has, and values that nobody has a reason to send.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use policy::definition::decoy::{DecoyTool, Decoys};
use policy::definition::offer::ItemKind;
use policy::engine::config::selector;
use policy::engine::pipeline::Policy;
use policy_core::subject::name::{RuleId, ServerName};
use policy_core::subject::principal::PrincipalSelector;

use super::compiler::{DefiningSection, SettingsCompiler};
use super::raw::{RawDecoyTool, RawDecoys, RawHoneytoken, RawLock, RawSecret};
use super::{IdentitySettings, VariableValue};

/// The longest lock: a caller that has to be refused for longer is revoked.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum number of decoy tools, and of honeytokens.
const MOST: usize = 1000;
/// Maximum length of a description or a schema, in bytes.
const MAX_TEXT: usize = 16 * 1024;
/// The shortest and the longest honeytoken, in bytes. A shorter one is not found if it is encoded.
pub const HONEYTOKEN: std::ops::RangeInclusive<usize> = 16..=1024;

/// The decoys of a configuration.
#[derive(Clone, Debug, Default)]
pub struct DecoySettings {
    /// The tools that no server has.
    pub tools: Decoys,
    /// How long a principal is locked that calls one of them, by server and name; not locked if it is not here.
    pub tool_locks: BTreeMap<(Box<str>, Box<str>), Duration>,
    /// The values that nobody has a reason to send.
    pub honeytokens: Vec<HoneytokenSettings>,
}

/// A value that nobody has a reason to send.
#[derive(Clone, Debug)]
pub struct HoneytokenSettings {
    /// The name in records.
    pub name: Box<str>,
    /// The JSON Pointer of the entry, for errors.
    pub at: Box<str>,
    /// The value, or where it is read.
    pub value: VariableValue,
    /// How long a principal is locked that sends or gets it; `None` if it is not locked.
    pub lock: Option<Duration>,
}

/// What the names in decoys are compared with.
pub(super) struct DecoyNames<'a> {
    pub(super) identity: &'a IdentitySettings,
    pub(super) servers: &'a [ServerName],
    /// `None` if the policy has a problem.
    pub(super) policy: Option<&'a Policy>,
}

impl<'a> DecoyNames<'a> {
    pub(super) const fn new(
        identity: &'a IdentitySettings,
        servers: &'a [ServerName],
        policy: Option<&'a Policy>,
    ) -> Self {
        Self { identity, servers, policy }
    }
}

impl SettingsCompiler<'_> {
    pub(super) fn decoys(&mut self, raw: RawDecoys, names: &DecoyNames<'_>) -> DecoySettings {
        let mut settings = DecoySettings::default();
        let usual = self.lock("/decoys/lock", raw.lock.as_ref());
        for (key, count) in [("tools", raw.tools.len()), ("honeytokens", raw.honeytokens.len())] {
            if count > MOST {
                let message = format!("there are more than {MOST} of them");
                self.report(&format!("/decoys/{key}"), message, "remove some");
            }
        }
        for (n, raw) in raw.tools.into_iter().enumerate() {
            let at = format!("/decoys/tools/{n}");
            let lock = self.lock(&format!("{at}/lock"), raw.lock.as_ref()).or(usual);
            let (server, name) = (raw.server.clone(), raw.name.clone());
            let tool = self.decoy_tool(&at, raw, names);
            if !settings.tools.add(&server, tool) {
                let message =
                    format!("the server `{}` has this decoy twice", server.escape_debug());
                self.report(&format!("{at}/name"), message, "give each its own name");
            }
            if let Some(time) = lock {
                settings.tool_locks.insert((server.into(), name.into()), time);
            }
        }
        let mut seen = BTreeSet::new();
        for (n, raw) in raw.honeytokens.into_iter().enumerate() {
            let at = format!("/decoys/honeytokens/{n}");
            self.recorded_name(&at, &raw.name, &mut seen);
            let lock = self.lock(&format!("{at}/lock"), raw.lock.as_ref()).or(usual);
            let name: Box<str> = raw.name.as_str().into();
            if let Some(value) = self.honeytoken(&at, raw) {
                let at = at.into();
                settings.honeytokens.push(HoneytokenSettings { name, at, value, lock });
            }
        }
        settings
    }

    fn lock(&mut self, at: &str, raw: Option<&RawLock>) -> Option<Duration> {
        let at = format!("{at}/principal");
        let time = self.time(&at, Some(&raw?.principal))?;
        if time.is_zero() || time > LONGEST {
            let help =
                "write `1h`, and revoke a caller that has to be refused for longer than `30d`";
            self.report(&at, "a caller cannot be locked for this long", help);
        }
        Some(time)
    }

    fn decoy_tool(&mut self, at: &str, raw: RawDecoyTool, names: &DecoyNames<'_>) -> DecoyTool {
        let RawDecoyTool { server, name, description, input_schema, shown_to, .. } = raw;
        let known = names.servers.iter().find(|known| known.as_str() == server);
        if known.is_none() {
            let list: Vec<_> = names.servers.iter().map(ServerName::as_str).collect();
            let message = format!("there is no server `{}`", server.escape_debug());
            let help = format!("the servers are: {}", list.join(", "));
            self.report_reference(DefiningSection::Servers, &format!("{at}/server"), message, help);
        }
        if let Err(error) = RuleId::parse(&name) {
            let message = format!("`{}` {error}", name.escape_debug());
            self.report(&format!("{at}/name"), message, "give it the name that a tool could have");
        }
        if let (Some(policy), Some(known)) = (names.policy, known)
            && is_used(policy, known, &name)
        {
            let message =
                format!("a rule or the registry names the tool `{}`", name.escape_debug());
            let help = "nobody can use a decoy: give the decoy another name, or remove it there";
            self.report(&format!("{at}/name"), message, help);
        }
        let input_schema = input_schema.map_or_else(
            || r#"{"type":"object"}"#.to_owned(),
            |schema| serde_json::Value::Object(schema).to_string(),
        );
        for (key, length) in
            [("description", description.len()), ("inputSchema", input_schema.len())]
        {
            if length > MAX_TEXT {
                let message = format!("it is longer than {MAX_TEXT} bytes");
                self.report(&format!("{at}/{key}"), message, "shorten it");
            }
        }
        let shown_to = self.selectors(&format!("{at}/shownTo"), &shown_to, names.identity);
        let (name, description) = (name.into(), description.into());
        DecoyTool { name, description, input_schema: input_schema.into(), shown_to }
    }

    /// Parses the principals listed at `at`.
    pub(super) fn selectors(
        &mut self,
        at: &str,
        texts: &[String],
        identity: &IdentitySettings,
    ) -> Vec<PrincipalSelector> {
        let principals = identity.principals();
        let others = identity.has_others() || self.is_doubtful(DefiningSection::Callers);
        let mut found = Vec::new();
        for (n, text) in texts.iter().enumerate() {
            let at = format!("{at}/{n}");
            match selector(text) {
                Ok(who) => {
                    if !others && !principals.iter().any(|principal| who.is(principal)) {
                        let message = format!("no caller can be `{}`", text.escape_debug());
                        self.report(
                            &at,
                            message,
                            "define it under `identity`, or correct the name",
                        );
                    }
                    found.push(who);
                }
                Err(error) => {
                    let help =
                        "write `*`, `group:NAME`, `role:NAME`, `client:ID` or `principal:ID`";
                    self.report(&at, format!("`{}` {error}", text.escape_debug()), help);
                }
            }
        }
        found
    }

    fn honeytoken(&mut self, at: &str, raw: RawHoneytoken) -> Option<VariableValue> {
        let RawHoneytoken { value, from_env, from_file, from_command, .. } = raw;
        let is_reference = from_env.is_some() || from_file.is_some() || from_command.is_some();
        match value {
            Some(_) if is_reference => {
                let help = "give exactly one of `value`, `fromEnv`, `fromFile` and `fromCommand`";
                self.report(at, "the value has exactly one source", help);
                None
            }
            Some(value) => {
                if !HONEYTOKEN.contains(&value.len()) {
                    let help = "give 16 to 1,024 bytes";
                    self.report_hiding(
                        &format!("{at}/value"),
                        "this value cannot be looked for",
                        help,
                    );
                }
                Some(VariableValue::Literal(value))
            }
            None => {
                let (cache_time, timeout, max_stale) = (None, None, None);
                let secret =
                    RawSecret { from_env, from_file, from_command, cache_time, timeout, max_stale };
                self.secret(at, secret).map(VariableValue::Secret)
            }
        }
    }
}

/// Whether a rule or the registry names exactly this tool.
fn is_used(policy: &Policy, server: &ServerName, name: &str) -> bool {
    let mut rules = policy.access().rules().iter();
    policy.registered(server, ItemKind::Tool, name).is_some()
        || rules.any(|rule| {
            rule.servers.iter().any(|pattern| pattern.matches(server.as_str()))
                && rule.things.tools.iter().any(|pattern| pattern.as_str() == name)
        })
}
