//! Limits on arguments of tool calls beyond their input schema (control C09, vectors PV-37 to PV-39).
//!
//! Text is judged in every form that a server might interpret: decoded, normalized, with both kinds of slashes.
//! Nothing is looked up: no host names are resolved and no symbolic links followed.

mod aim;
mod cover;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use json::coding;
use json::pointer::{escaped, unescaped};
use json::{JsonKind, Value};
use policy_core::base::hidden::Hidden;
use policy_core::schema::SchemaViolation;
use policy_core::schema::declared::declares_member;
use policy_core::subject::address::{AddressClass, reach};
use policy_core::subject::mode::Mode;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use crate::spelling::{bare, is_dash, is_expanded, is_respelt, is_variant};

pub use aim::{UnmatchedConstraint, UnmatchedName};

/// Most rounds of percent-decoding; a text with escapes left after that is rejected.
const DECODED: usize = 4;
/// Longest path, URL or e-mail address, in bytes.
const LONGEST: usize = 8192;

/// How an argument is interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ArgumentType {
    /// Any text or number, without further interpretation.
    #[default]
    Any,
    /// A file system path.
    Path,
    /// A URL with a scheme and a host.
    Url,
    /// One or more e-mail addresses, separated by commas or semicolons.
    Email,
}

/// A class of content that a text must not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ForbiddenContent {
    /// Shell metacharacters: `;`, `|`, `&`, `<`, `>`, backquotes, `$(`, `${`, line ends.
    Shell,
    /// Characters that end a value or a statement in SQL: quotation marks, `;`, `--`, `/*`.
    Sql,
    /// A leading `-`, which programs interpret as an option.
    Option,
    /// Files that configure or instruct an agent, an editor or a shell: `.mcp.json`, `.cursor/`, `CLAUDE.md`,
    /// `opencode.json`, `.devcontainer/`, Git hooks, shell startup files.
    AgentConfig,
}

/// Limits on one argument of some tools.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "Constraint")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ArgumentLimits {
    /// Servers the limits apply to: names or patterns with `*` and `?`.
    pub(crate) servers: Vec<String>,
    /// Tools the limits apply to, by the names their servers give them: names or patterns with `*` and `?`.
    pub(crate) tools: Vec<String>,
    /// JSON Pointer to the argument; `*` stands for each item or member.
    argument: String,
    /// `enforce` denies a call that violates the limits, `audit` records it, `off` ignores it.
    pub(crate) mode: Mode,
    /// How the argument is interpreted: `path`, `url`, `email` or `any`.
    #[serde(rename = "type")]
    kind: ArgumentType,
    /// For `path`: absolute paths of the directories it must lie in; `.` permits relative paths.
    #[serde(deserialize_with = "filled")]
    within: Vec<String>,
    /// For `url`: permitted hosts, names or patterns with `*`. Default: every public host.
    #[serde(deserialize_with = "filled")]
    hosts: Vec<String>,
    /// For `url`: hosts permitted in addition to every public host, including internal ones: names or patterns with
    /// `*`.
    #[serde(deserialize_with = "filled")]
    additional_hosts: Vec<String>,
    /// For `url`: permitted schemes. Default `https`.
    #[serde(deserialize_with = "filled")]
    schemes: Vec<String>,
    /// For `url`: permits internal and loopback addresses that `hosts` names.
    private_hosts: bool,
    /// For `email`: permitted domains, names or patterns with `*`.
    #[serde(deserialize_with = "filled")]
    domains: Vec<String>,
    /// Classes of content that the argument must not contain: `shell`, `sql`, `option`, `agentConfig`.
    #[serde(deserialize_with = "filled")]
    forbid: Vec<ForbiddenContent>,
    /// Permitted values; empty permits any.
    #[serde(rename = "enum")]
    values: Vec<String>,
    /// A regular expression that has to match the whole value. Matching takes linear time.
    pattern: Option<String>,
    /// Most characters of a text.
    max_length: Option<usize>,
    /// Smallest number. Values that are not JSON numbers are rejected.
    minimum: Option<f64>,
    /// Largest number. Values that are not JSON numbers are rejected.
    maximum: Option<f64>,
    /// Denies a call without the argument.
    required: bool,
}

/// Reads a list that has to name something: an empty one would limit nothing.
fn filled<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(from)?;
    if list.is_empty() {
        let message = "the list is empty, which limits nothing: name what may be, or leave it out";
        return Err(serde::de::Error::custom(message));
    }
    Ok(list)
}

/// A compiled constraint on one argument.
#[derive(Debug)]
pub struct Constraint {
    servers: Vec<Pattern>,
    tools: Vec<Pattern>,
    /// Parts of the JSON Pointer to the argument; `*` for each item or member.
    at: Vec<Box<str>>,
    /// Whether the constraint is enforced, only audited, or off.
    pub mode: Mode,
    limits: ArgumentLimits,
    hosts: Vec<Pattern>,
    also: Vec<Pattern>,
    domains: Vec<Pattern>,
    pattern: Option<Regex>,
}

/// Checks the hosts that are admitted besides every public one.
///
/// # Errors
/// What is wrong with them.
fn additional_hosts_fit(limits: &ArgumentLimits) -> Result<(), &'static str> {
    let hosts = &limits.additional_hosts;
    if hosts.is_empty() {
        return Ok(());
    }
    if limits.kind != ArgumentType::Url {
        return Err("this is for `type: url`");
    }
    if !limits.hosts.is_empty() || limits.private_hosts {
        return Err("this goes with every public host, not with `hosts` or `privateHosts`");
    }
    let is_any = |host: &String| host.chars().all(|c| matches!(c, '*' | '?' | '.'));
    if hosts.iter().any(is_any) {
        return Err("this names every host, also inside a network");
    }
    Ok(())
}

impl Constraint {
    /// Compiles a constraint.
    ///
    /// # Errors
    /// The invalid member of `limits`, and what is wrong with it.
    pub fn new(
        servers: Vec<Pattern>,
        limits: ArgumentLimits,
    ) -> Result<Self, (&'static str, &'static str)> {
        let tools = limits.tools.iter().map(|tool| Pattern::new(tool)).collect();
        let path =
            limits.argument.strip_prefix('/').ok_or(("argument", "this is not a JSON Pointer"))?;
        let at = path.split('/').map(|part| unescaped(part).into()).collect();
        let whole =
            limits.pattern.as_ref().map(|pattern| Regex::new(&format!(r"\A(?:{pattern})\z")));
        let pattern = whole
            .transpose()
            .map_err(|_error| ("pattern", "this is not a regular expression that can be used"))?;
        let only = |given: bool, kind| given && limits.kind != kind;
        if only(!limits.within.is_empty(), ArgumentType::Path) {
            return Err(("within", "this is for `type: path`"));
        }
        if limits.kind == ArgumentType::Path && limits.within.is_empty() {
            return Err(("type", "a path needs `within`: nothing lies in no folder"));
        }
        if limits
            .within
            .iter()
            .any(|root| root != "." && components(root).is_none_or(|(absolute, _)| !absolute))
        {
            return Err(("within", "a folder is given as an absolute path, or as `.`"));
        }
        if only(
            !limits.hosts.is_empty() || !limits.schemes.is_empty() || limits.private_hosts,
            ArgumentType::Url,
        ) {
            return Err(("hosts", "this is for `type: url`"));
        }
        if limits.private_hosts && limits.hosts.is_empty() {
            return Err((
                "privateHosts",
                "without `hosts` this admits every internal address, metadata services included",
            ));
        }
        additional_hosts_fit(&limits).map_err(|wrong| ("additionalHosts", wrong))?;
        if only(!limits.domains.is_empty(), ArgumentType::Email) {
            return Err(("domains", "this is for `type: email`"));
        }
        let patterns = |names: &[String]| {
            names.iter().map(|name| Pattern::new(&name.to_lowercase())).collect()
        };
        let (hosts, also) = (patterns(&limits.hosts), patterns(&limits.additional_hosts));
        let domains = patterns(&limits.domains);
        Ok(Self { servers, tools, at, mode: limits.mode, limits, hosts, also, domains, pattern })
    }

    /// Whether the constraint applies to this tool.
    #[must_use]
    pub fn is_of(&self, server: &ServerName, tool: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(tool));
        self.mode != Mode::Off && server.is_among(&self.servers) && any(&self.tools)
    }

    /// Checks the arguments of a call; `schema` is the input schema of the tool.
    ///
    /// # Errors
    /// The first violation and its place. The value itself is not part of it.
    pub fn check(
        &self,
        arguments: Option<Value<'_>>,
        schema: Option<Value<'_>>,
    ) -> Result<(), SchemaViolation> {
        match arguments {
            Some(arguments) => self.step(arguments, &self.at, &mut String::new(), schema),
            None if self.limits.required => self.step_missing(&mut String::new(), &self.at),
            None => Ok(()),
        }
    }

    fn step(
        &self,
        value: Value<'_>,
        path: &[Box<str>],
        at: &mut String,
        schema: Option<Value<'_>>,
    ) -> Result<(), SchemaViolation> {
        let Some((part, rest)) = path.split_first() else {
            return self
                .value(value)
                .map_err(|note| SchemaViolation { at: at.clone(), note: note.into() });
        };
        let length = at.len();
        let mut inside = |part: &str, value: Value<'_>| {
            at.push('/');
            at.push_str(part);
            let checked = self.step(value, rest, at, schema);
            at.truncate(length);
            checked
        };
        match value.kind() {
            JsonKind::Object if **part == *"*" => {
                value.members().try_for_each(|(name, member)| inside(&name, member))
            }
            JsonKind::Array if **part == *"*" => {
                value.items().enumerate().try_for_each(|(n, item)| inside(&n.to_string(), item))
            }
            JsonKind::Object
                if value.members().any(|(name, member)| {
                    self.is_taken_for(&name, path, schema) || is_prototype(&name, member, part)
                }) =>
            {
                let note = format!("has a member that could be read as `{part}`");
                Err(SchemaViolation { at: at.clone(), note })
            }
            JsonKind::Object => {
                // A server may read the name in another spelling, beside the one that is meant or in its place.
                for (name, member) in value.members() {
                    if is_respelt(&name, part) && !self.is_declared(&name, path, schema) {
                        inside(&escaped(&name), member)?;
                    }
                }
                match value.get(part) {
                    Some(member) => inside(part, member),
                    None if self.limits.required => {
                        self.step_missing(at, std::slice::from_ref(part))
                    }
                    None => Ok(()),
                }
            }
            JsonKind::Array if part.parse::<usize>().is_ok() => {
                match part.parse().ok().and_then(|n| value.items().nth(n)) {
                    Some(item) => inside(part, item),
                    None if self.limits.required => {
                        self.step_missing(at, std::slice::from_ref(part))
                    }
                    None => Ok(()),
                }
            }
            // The value has another shape than the pointer expects, for example a list in place of an object. Servers
            // may interpret it in some other way, so it is rejected.
            JsonKind::Array
            | JsonKind::Null
            | JsonKind::Boolean
            | JsonKind::Number
            | JsonKind::Plain
            | JsonKind::Escaped => {
                Err(SchemaViolation { at: at.clone(), note: "is of another type".to_owned() })
            }
        }
    }

    /// Whether a member could be read as the one at the start of `path`, which leads to the constrained argument.
    fn is_taken_for(&self, name: &str, path: &[Box<str>], schema: Option<Value<'_>>) -> bool {
        let Some(part) = path.first() else { return false };
        if is_variant(name, part) {
            return true;
        }
        let is_shaped = !is_respelt(name, part)
            && (is_expanded(name, path) || is_respelt(bare(name), part) && **part != *name);
        is_shaped && !self.is_declared(name, path, schema)
    }

    /// Whether the schema of the tool declares a member of this name beside the one at the start of `path`.
    fn is_declared(&self, name: &str, path: &[Box<str>], schema: Option<Value<'_>>) -> bool {
        let above = self.at.len().saturating_sub(path.len());
        declares_member(schema, self.at.get(..above).unwrap_or_default(), name)
    }

    fn step_missing(&self, at: &mut String, part: &[Box<str>]) -> Result<(), SchemaViolation> {
        for part in part {
            at.push('/');
            at.push_str(part);
        }
        Err(SchemaViolation { at: at.clone(), note: "is missing".to_owned() })
    }

    fn value(&self, value: Value<'_>) -> Result<(), Cow<'static, str>> {
        let limits = &self.limits;
        match value.kind() {
            // A server may join the items of a list into a path that was not checked.
            JsonKind::Array if limits.kind == ArgumentType::Path => Err("is a list".into()),
            // Each item of a list is checked as a value.
            JsonKind::Array => value.items().try_for_each(|item| self.value(item)),
            // Many servers parse numbers from strings.
            JsonKind::Plain | JsonKind::Escaped
                if limits.minimum.is_some() || limits.maximum.is_some() =>
            {
                Err("is not a number".into())
            }
            JsonKind::Plain | JsonKind::Escaped => self.text(&value.as_str().unwrap_or_default()),
            JsonKind::Number => {
                let number = value.as_f64().filter(|number| number.is_finite());
                let number = number.ok_or("is not a number that is read alike everywhere")?;
                if limits.minimum.is_some_and(|least| number < least) {
                    return Err("is too small".into());
                }
                if limits.maximum.is_some_and(|most| number > most) {
                    return Err("is too large".into());
                }
                if limits.kind != ArgumentType::Any {
                    return Err("is not a text".into());
                }
                // A server that formats the number as text omits the exponent.
                if self.reads_text() && value.raw().contains(['e', 'E']) {
                    return Err("is not a number that is read alike everywhere".into());
                }
                self.text(value.raw())
            }
            JsonKind::Null | JsonKind::Boolean | JsonKind::Object => {
                Err("is neither a text nor a number".into())
            }
        }
    }

    /// Whether any limit concerns the textual form of a value.
    const fn reads_text(&self) -> bool {
        let limits = &self.limits;
        limits.max_length.is_some()
            || !limits.values.is_empty()
            || limits.pattern.is_some()
            || !limits.forbid.is_empty()
    }

    fn text(&self, text: &str) -> Result<(), Cow<'static, str>> {
        let limits = &self.limits;
        if limits.max_length.is_some_and(|most| text.chars().count() > most) {
            return Err("is too long".into());
        }
        if !limits.values.is_empty() && !limits.values.iter().any(|value| value == text) {
            return Err("is not one of the values there can be".into());
        }
        if self.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(text)) {
            return Err("does not have the form it has to have".into());
        }
        if (!limits.forbid.is_empty() || limits.kind == ArgumentType::Path) && is_expanding(text) {
            return Err("has characters that are not written plainly".into());
        }
        // Digits mean nothing else to any reader; a list can have very many numbers.
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        for forbidden in limits.forbid.iter().filter(|_| !is_number) {
            forbids(*forbidden, text)?;
        }
        match limits.kind {
            ArgumentType::Any => Ok(()),
            ArgumentType::Path => self.path(text),
            ArgumentType::Url => self.url(text),
            ArgumentType::Email => self.email(text),
        }
    }

    fn path(&self, text: &str) -> Result<(), Cow<'static, str>> {
        // One server opens the path as it came, another one decodes it first: both have to stay inside.
        let decoded = components(text).ok_or("is not a plain path")?;
        let as_it_came = literal_components(text);
        let lies = |path: &(bool, Vec<String>), root: &(bool, Vec<String>)| {
            path.0 == root.0 && path.1.starts_with(&root.1)
        };
        let within = &self.limits.within;
        let mut roots = within.iter().filter_map(|root| components(root));
        let is_inside = roots.any(|root| lies(&decoded, &root))
            && within.iter().any(|root| lies(&as_it_came, &literal_components(root)));
        if !is_inside {
            return Err("lies outside of where it may".into());
        }
        Ok(())
    }

    fn url(&self, text: &str) -> Result<(), Cow<'static, str>> {
        let odd = |c: char| c.is_whitespace() || c == '\\' || Hidden::of(c).is_some();
        if text.len() > LONGEST || text.contains(odd) {
            return Err("is not a plain URL".into());
        }
        let (scheme, rest) = text.split_once("://").ok_or("is not a plain URL")?;
        let https = ["https".to_owned()];
        let schemes =
            if self.limits.schemes.is_empty() { &https[..] } else { &self.limits.schemes };
        if !schemes.iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
            return Err("has a scheme that may not be used".into());
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err("has a name or a password in it".into());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or("is not a plain URL")?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let number = |port: &str| port.parse::<u16>().is_ok();
        if !port.is_empty() && !port.strip_prefix(':').is_some_and(number) {
            return Err("is not a plain URL".into());
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
        if host.is_empty() || !host.chars().all(plain) {
            return Err("has a host that is not written plainly".into());
        }
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        if is_odd_number(host) || host.split('.').any(str::is_empty) {
            return Err("has a host that is not written plainly".into());
        }
        if self.also.iter().any(|pattern| pattern.matches(host)) {
            return Ok(());
        }
        if !self.limits.private_hosts && is_inside(host) {
            return Err("leads inside a network or a machine".into());
        }
        if !self.hosts.is_empty() && !self.hosts.iter().any(|pattern| pattern.matches(host)) {
            return Err("leads to a host that may not be used".into());
        }
        Ok(())
    }

    fn email(&self, text: &str) -> Result<(), Cow<'static, str>> {
        if text.len() > LONGEST {
            return Err("is too long".into());
        }
        for one in text.split([',', ';']) {
            let (local, domain) =
                one.trim_matches(' ').split_once('@').ok_or("is not a plain address")?;
            let plain = |text: &str, more: &[char]| {
                !text.is_empty()
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(&c))
            };
            let good = plain(local, &['.', '_', '-', '+', '\''])
                && plain(domain, &['.', '-'])
                && domain.contains('.');
            if !good {
                return Err("is not a plain address".into());
            }
            let domain = domain.to_ascii_lowercase();
            if !self.domains.is_empty()
                && !self.domains.iter().any(|pattern| pattern.matches(&domain))
            {
                return Err("is an address of a domain that may not be used".into());
            }
        }
        Ok(())
    }
}

/// How many times as long a text may become when its compatibility characters are written out (UAX 15, NFKC), in bytes. One
/// character becomes eleven times as long (U+FDFA), and every reading of such a text would be.
const EXPANSION: usize = 3;
/// Most combining marks behind one character (UAX 15, Stream-Safe Text Format).
const MARKS: usize = 30;

/// Whether a text becomes much longer in other normal forms, or has runs of marks that no language has.
fn is_expanding(text: &str) -> bool {
    let most = text.len().saturating_mul(EXPANSION);
    let mut marks = 0;
    let is_long = |c: char| {
        marks = if is_combining_mark(c) { marks + 1 } else { 0 };
        marks > MARKS
    };
    !text.is_ascii()
        && (text.chars().any(is_long) || text.nfkd().map(char::len_utf8).sum::<usize>() > most)
}

/// Whether a member leads to the prototype of the object that it is in, whose members a JavaScript server then reads as
/// those of every object: `{"constructor":{"prototype":{..}}}` does, where it is merged into an object.
fn is_prototype(name: &str, member: Value<'_>, meant: &str) -> bool {
    name == "constructor" && meant != name && member.get("prototype").is_some()
}

fn forbids(forbidden: ForbiddenContent, text: &str) -> Result<(), Cow<'static, str>> {
    let forms = forms(forbidden, text);
    let is_found = |one: &dyn Fn(&str) -> bool| forms.iter().any(|form| one(form));
    let has = |parts: &[&str]| is_found(&|text| parts.iter().any(|part| text.contains(part)));
    let (found, note) = match forbidden {
        ForbiddenContent::Shell => (
            has(&[";", "|", "&", "<", ">", "`", "$(", "${", "\0"])
                || is_found(&|text| text.contains(is_line_end)),
            "has characters that a shell reads as more than text",
        ),
        ForbiddenContent::Sql => {
            (has(&["'", "\"", ";", "--", "/*", "\0"]), "has characters that end a value in SQL")
        }
        ForbiddenContent::Option => {
            let blank = |c: char| c.is_whitespace() || Hidden::of(c).is_some();
            let begins = |text: &str| text.trim_start_matches(blank).starts_with(is_dash);
            (is_found(&begins), "begins as an option does")
        }
        ForbiddenContent::AgentConfig => {
            (is_found(&is_agent_config), "names a file that tells agents what to do")
        }
    };
    if found { Err(note.into()) } else { Ok(()) }
}

/// The forms in which a server may see a text: as sent, and with compatibility forms folded (NFKC and NFKD, Unicode
/// Standard Annex 15) without invisible characters. All ASCII characters that NFC or NFD produce are in these as
/// well.
fn forms(forbidden: ForbiddenContent, text: &str) -> Vec<Cow<'_, str>> {
    if text.is_ascii() {
        return vec![text.into()];
    }
    // Invisible characters in a file name are detected when its path is decoded.
    let keeps = forbidden == ForbiddenContent::AgentConfig;
    let kept = |c: &char| keeps || matches!(Hidden::of(*c), None | Some(Hidden::Control));
    let composed = text.nfkc().filter(kept).collect::<String>();
    let decomposed = text.nfkd().filter(kept).collect::<String>();
    vec![text.into(), composed.into(), decomposed.into()]
}

/// Whether some software ends a line at `c` (Unicode Standard Annex 14).
const fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Names, in lower case, of files and directories that configure agents, editors and shells.
const AGENT_FILES: [&str; 102] = [
    "qwen.md",
    ".qwen",
    "crush.md",
    "crush.json",
    ".crush.json",
    ".crush",
    "warp.md",
    "iflow.md",
    ".iflow",
    ".rules",
    ".claude-plugin",
    ".factory",
    ".kilocode",
    ".kilocoderules",
    ".kilocodemodes",
    ".roorules",
    ".roomodes",
    ".rovodev",
    ".openhands",
    ".amp",
    ".zshrc.local",
    ".direnvrc",
    ".mise.toml",
    "mise.toml",
    ".gdbinit",
    ".lldbinit",
    ".emacs",
    ".emacs.d",
    ".nvimrc",
    ".gvimrc",
    ".dir-locals.el",
    ".yarnrc",
    ".yarnrc.yml",
    ".zshenv",
    ".zlogin",
    ".bash_login",
    ".envrc",
    ".inputrc",
    ".mcp.json",
    "mcp.json",
    "mcp_config.json",
    "claude_desktop_config.json",
    ".claude.json",
    ".claude",
    "claude.md",
    "agents.md",
    "gemini.md",
    ".cursor",
    ".cursorrules",
    ".windsurf",
    ".windsurfrules",
    ".codeium",
    ".vscode",
    ".continue",
    ".codex",
    ".gemini",
    ".aider.conf.yml",
    ".clinerules",
    ".roo",
    "copilot-instructions.md",
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".gitconfig",
    ".npmrc",
    "authorized_keys",
    "opencode.json",
    "opencode.jsonc",
    ".opencode",
    "claude.local.md",
    "agent.md",
    "agents.override.md",
    "skill.md",
    ".husky",
    ".pre-commit-config.yaml",
    ".devcontainer",
    ".devcontainer.json",
    ".idea",
    ".zed",
    ".junie",
    ".trae",
    ".kiro",
    ".amazonq",
    ".augment",
    ".augment-guidelines",
    ".goosehints",
    ".login",
    ".cshrc",
    ".tcshrc",
    ".kshrc",
    ".mkshrc",
    ".xonshrc",
    ".xprofile",
    ".bash_logout",
    ".zlogout",
    ".bash_aliases",
    "config.fish",
    ".vimrc",
    ".exrc",
    ".tmux.conf",
];

/// Such files with unspecific names, in lower case: the directory that contains them, and their name.
const AGENT_PLACES: [(&str, &str); 24] = [
    (".config", "fish"),
    (".config", "autostart"),
    (".config", "zed"),
    (".config", "opencode"),
    (".config", "goose"),
    (".config", "crush"),
    (".config", "amp"),
    (".config", "code"),
    (".config", "github-copilot"),
    (".config", "nvim"),
    (".config", "git"),
    (".config", "direnv"),
    (".config", "mise"),
    (".config", "systemd"),
    (".config", "environment.d"),
    (".config", "pip"),
    (".ssh", "rc"),
    (".ssh", "config"),
    (".ssh", "environment"),
    (".cargo", "config"),
    (".cargo", "config.toml"),
    (".pip", "pip.conf"),
    ("library", "launchagents"),
    ("zed", "settings.json"),
];

fn is_agent_config(text: &str) -> bool {
    let Some(text) = decoded(text) else { return true };
    let lower = text.to_lowercase();
    // Some systems ignore the part of a name after a colon or semicolon, and trailing dots and blanks.
    let plain = |part: &str| -> String {
        let part = part.trim().split([':', ';']).next().unwrap_or_default().to_owned();
        part.trim_end_matches(['.', ' ']).to_owned()
    };
    let parts: Vec<String> =
        lower.split(['/', '\\']).map(plain).filter(|part| !part.is_empty()).collect();
    let git = parts.iter().position(|part| part == ".git").unwrap_or(parts.len());
    let behind = parts.get(git..).unwrap_or_default();
    let hooks = behind.iter().any(|part| matches!(part.as_str(), "hooks" | "config"));
    // Files and directories with unspecific names.
    let is_started = |pair: &[String]| match pair {
        [folder, name] => AGENT_PLACES.contains(&(folder.as_str(), name.as_str())),
        _ => false,
    };
    hooks
        || parts.windows(2).any(is_started)
        || parts.iter().any(|part| AGENT_FILES.contains(&part.as_str()))
}

/// The text after percent-decoding and NFKC; `None` if escapes remain after [`DECODED`] rounds, or if it has
/// invisible characters.
fn decoded(text: &str) -> Option<String> {
    let mut now = text.to_owned();
    for _ in 0..DECODED {
        let (bytes, _) = coding::percent(&now);
        let next: String = String::from_utf8(bytes).ok()?.nfkc().collect();
        if next == now {
            let plain = !now.contains(|c| Hidden::of(c).is_some()) && !has_wide_escape(&now);
            return plain.then_some(now);
        }
        now = next;
    }
    None
}

/// Whether a text has an escape such as `%u002e`, which is not standard but decoded by some servers.
fn has_wide_escape(text: &str) -> bool {
    let is = |rest: &str| {
        let digits = rest.strip_prefix(['u', 'U']).and_then(|rest| rest.get(..4));
        digits.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    text.split('%').skip(1).any(is)
}

/// The parts of a path, and whether it is absolute; `None` if the path is not plain: has `..`, names another machine
/// or a drive, or has several interpretations.
fn components(text: &str) -> Option<(bool, Vec<String>)> {
    (text.len() <= LONGEST && !text.is_empty()).then_some(())?;
    let text = decoded(text)?;
    // Many programs drop blanks around a path.
    (text.trim() == text).then_some(())?;
    // Characters that look like slashes, and are not normalized to them.
    let odd = |c: char| {
        matches!(
            c,
            '\0' | '\\'
                | '\u{2215}'
                | '\u{2044}'
                | '\u{29f8}'
                | '\u{2216}'
                | '\u{ff3c}'
                | '\n'
                | '\r'
        )
    };
    // A drive, a scheme, or an alternate data stream.
    let headed = text.split('/').next().is_some_and(|first| first.contains(':'));
    if text.contains(odd) || text.starts_with("//") || text.starts_with('~') || headed {
        return None;
    }
    // A shell substitutes the output of a command between two backquotes.
    if text.matches('`').count() > 1 {
        return None;
    }
    // A shell expands braces to several paths.
    let expands = text.contains('{')
        && ["{/", ",/", "{~", ",~", "{$", ",$"].iter().any(|part| text.contains(part));
    if expands || text.split('/').any(is_variable) {
        return None;
    }
    let absolute = text.starts_with('/');
    let parts = parts_of(&text);
    // Some systems drop trailing blanks, some drop the part after a semicolon, and a shell removes quotation marks
    // and expands patterns and braces.
    let dots = |part: &str| {
        let part = unquoted(part.split(';').next().unwrap_or_default());
        let part = part.trim();
        !part.is_empty() && part.chars().all(|c| c == '.')
            || part.starts_with('.') && part.contains(['*', '?', '[', '(', '$'])
    };
    let up = |part: &String| {
        dots(part) || part.contains(['{', '}']) && part.split(['{', '}', ',']).any(dots)
    };
    (!parts.iter().any(up)).then_some((absolute, parts))
}

/// The parts of a path as it is spelled, and whether it is absolute.
fn literal_components(text: &str) -> (bool, Vec<String>) {
    (text.starts_with('/'), parts_of(text))
}

/// The parts of a path that name something.
fn parts_of(text: &str) -> Vec<String> {
    text.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
}

/// Quotation marks that a shell removes.
const fn is_quote(c: char) -> bool {
    matches!(c, '\'' | '"' | '`')
}

/// A part of a path as a shell interprets it: without quotation marks, and without the `$` of `$'…'` and `$"…"`.
fn unquoted(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for c in part.chars() {
        if matches!(c, '\'' | '"') && out.ends_with('$') {
            out.pop();
        }
        if !is_quote(c) {
            out.push(c);
        }
    }
    out
}

/// Whether a shell or library substitutes a part of a path: a variable (`$HOME`, `${HOME}`, `%USERPROFILE%`), a
/// command (`$(pwd)`), or a home directory (`~`, `~user`). A `$` within a word, as in `A$B.class`, is an ordinary
/// character.
fn is_variable(part: &str) -> bool {
    let part = part.replace(is_quote, "");
    let part = part.trim_start();
    let names = |c: char| c.is_alphanumeric() || c == '_';
    let begins = |rest: &str| {
        rest.starts_with(|c| names(c) || matches!(c, '@' | '*' | '#' | '?' | '$' | '!' | '-'))
    };
    // Between two percent signs: `100%` and `100%-50%` contain no variable name.
    let pieces: Vec<&str> = part.split('%').collect();
    let between = pieces.get(1..pieces.len().saturating_sub(1)).unwrap_or_default();
    let named = |piece: &&str| {
        piece.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && piece.chars().all(|c| names(c) || matches!(c, '(' | ')'))
    };
    part.starts_with('~')
        || part.strip_prefix('$').is_some_and(begins)
        || part.contains("${")
        || part.contains("$(")
        || between.iter().any(named)
}

/// Suffixes of internal host names: by RFC 6761, RFC 6762 and RFC 8375, by convention, and in clusters whose
/// resolvers complete them; and domains of services that map any address to a public name.
const INSIDE: [&str; 20] = [
    "localhost",
    "internal",
    "intranet",
    "local",
    "lan",
    "corp",
    "home",
    "private",
    "home.arpa",
    "localdomain",
    "svc",
    "default",
    "kube-system",
    "consul",
    "docker",
    "nip.io",
    "sslip.io",
    "xip.io",
    "localtest.me",
    "lvh.me",
];

/// Whether a host is internal, in any spelling that a resolver accepts.
pub(crate) fn is_inside(host: &str) -> bool {
    let six = host.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    if let Some(address) = six.or_else(|| lax(host).map(IpAddr::V4)) {
        return reach(address) != AddressClass::Public;
    }
    let ends =
        |top: &str| host == top || host.strip_suffix(top).is_some_and(|rest| rest.ends_with('.'));
    INSIDE.into_iter().any(ends) || !host.contains('.')
}

/// Whether a host ends in a number but is not a dotted-decimal IPv4 address: resolvers disagree about octal,
/// hexadecimal and shortened forms.
fn is_odd_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|b| b.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    !host.contains(':') && number && host.parse::<Ipv4Addr>().is_err()
}

/// Parses an IPv4 address like `inet_aton`: one to four numbers, each decimal, octal or hexadecimal.
fn lax(host: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| -> Option<u32> {
        match part.strip_prefix("0x") {
            Some("") => Some(0),
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
            None => part.parse().ok(),
        }
    };
    let parts: Option<Vec<u32>> = host.split('.').map(number).collect();
    let parts = parts.filter(|parts| (1..=4).contains(&parts.len()))?;
    let (last, first) = parts.split_last()?;
    let high = first
        .iter()
        .enumerate()
        .try_fold(0_u32, |sum, (n, part)| (*part < 256).then(|| sum | part << (24 - 8 * n)))?;
    Some(Ipv4Addr::from(high | *last))
}

#[cfg(test)]
mod tests;
