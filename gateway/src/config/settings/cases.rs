//! Reads the test cases of a policy: a request and its expected decision. `policy test` runs them.

use std::collections::BTreeSet;
use std::sync::Arc;

use policy::decision::Reason;
use policy::json::{Document, Fragment, JsonBounds};
use policy::name::{ClientId, GroupName, NameError, PrincipalId, RoleName, Scope, ServerName};
use policy::offer::ItemKind;
use policy::principal::{Principal, ProofOfPossession};
use schemars::JsonSchema;
use serde::Deserialize;

use super::problem::ConfigProblem;
use super::shape::SchemaCheck;
use super::yaml::YamlNode;
use super::{ConfigProblems, Settings, shape, yaml};

/// Test cases for a policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCases {
    /// The test cases, in order.
    tests: Vec<RawCase>,
}

/// A test case for a policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCase {
    /// A description of the case.
    name: String,
    /// The principal that calls. One that the configuration lists has the groups and scopes from there, unless they
    /// are given here.
    principal: String,
    /// The groups of the principal.
    #[serde(default)]
    groups: Vec<String>,
    /// The roles of the principal.
    #[serde(default)]
    roles: Vec<String>,
    /// The scopes of the principal; implied ones are added.
    #[serde(default)]
    scopes: Vec<String>,
    /// The client that the principal uses.
    client: Option<String>,
    /// How the caller has proved possession of its credential.
    proof: Option<RawProof>,
    /// The server that is called.
    server: String,
    /// The tool that is called, by the server's own name for it. Exactly one of `tool`, `prompt`, `resource` and
    /// `method` is given.
    tool: Option<String>,
    /// The prompt that is requested.
    prompt: Option<String>,
    /// The URI of the resource that is read.
    resource: Option<String>,
    /// The method, if it is one that the gateway does not know.
    method: Option<String>,
    /// The arguments of the tool or prompt.
    arguments: Option<serde_json::Map<String, serde_json::Value>>,
    /// The decision that the case expects.
    expect: ExpectedDecision,
    /// The rule that is expected to decide.
    rule: Option<String>,
    /// The expected reason code of the denial.
    reason: Option<String>,
    /// Whether the item is expected in the list that the caller gets.
    listed: Option<bool>,
}

/// How a caller has proved possession of its credential.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum RawProof {
    /// With the certificate of its connection.
    Certificate,
    /// With a DPoP proof for each request.
    Dpop,
}

/// The expected decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExpectedDecision {
    /// The request is allowed.
    Allow,
    /// The request is denied.
    Deny,
}

/// The request of a test case.
#[derive(Clone, Debug)]
pub struct TestRequest {
    /// The principal that calls.
    pub principal: Principal,
    /// The server that is called.
    pub server: ServerName,
    /// The kind of the item.
    pub kind: ItemKind,
    /// The name or URI of the item.
    pub name: Box<str>,
    /// The arguments, if there are any.
    pub arguments: Option<Fragment>,
}

/// A valid test case.
#[derive(Debug)]
pub struct TestCase {
    /// The description, for the report.
    pub name: String,
    /// The request to decide on.
    pub question: TestRequest,
    /// The decision that the case expects.
    pub expect: ExpectedDecision,
    /// The rule that is expected to decide, if given.
    pub rule: Option<String>,
    /// The expected reason code of the denial, if given.
    pub reason: Option<String>,
    /// Whether the item is expected in the list that the caller gets, if given.
    pub listed: Option<bool>,
}

/// A caller as the operator describes it, in place of a credential.
#[derive(Clone, Debug, Default)]
pub struct CallerDescription {
    /// The id of the principal.
    pub id: String,
    /// The groups; empty leaves those of the configuration.
    pub groups: Vec<String>,
    /// The roles; empty leaves those of the configuration.
    pub roles: Vec<String>,
    /// The scopes; implied ones are added.
    pub scopes: Vec<String>,
    /// The client id, if there is one.
    pub client: Option<String>,
    /// How the caller has proved possession of its credential.
    pub proof: ProofOfPossession,
}

impl CallerDescription {
    /// The principal as `settings` list it, with the values given here in place of theirs.
    ///
    /// # Errors
    /// If a name is invalid.
    pub fn principal(&self, settings: &Settings) -> Result<Principal, NameError> {
        let id = PrincipalId::parse(&self.id)?;
        let known = settings.identity.principals().into_iter().find(|known| known.id == id);
        let mut principal = known.unwrap_or_else(|| Principal::new(id, BTreeSet::new()));
        if !self.groups.is_empty() {
            let groups = self.groups.iter().map(|name| GroupName::parse(name));
            principal.groups = groups.collect::<Result<_, _>>()?;
        }
        if !self.roles.is_empty() {
            let roles = self.roles.iter().map(|name| RoleName::parse(name));
            principal.claims.roles = roles.collect::<Result<_, _>>()?;
        }
        if !self.scopes.is_empty() {
            let scopes = self.scopes.iter().map(|scope| Scope::parse(scope));
            let scopes = scopes.collect::<Result<Vec<_>, _>>()?;
            principal.claims.scopes = settings.identity.implied.closure(scopes);
        }
        if let Some(client) = &self.client {
            principal.claims.client = Some(ClientId::parse(client)?);
        }
        if self.proof != ProofOfPossession::None {
            principal.claims.proof = self.proof;
        }
        Ok(principal)
    }
}

/// The JSON Schema of a file of test cases.
#[must_use]
pub fn schema() -> serde_json::Value {
    shape::schema_of::<RawCases>("Portcullis policy tests")
}

/// Reads the test cases in `text`, which messages call `file`.
///
/// # Errors
/// Every problem in the file.
pub fn read(file: &str, text: &str, settings: &Settings) -> Result<Vec<TestCase>, ConfigProblems> {
    let wrong = |found| ConfigProblems::new(file, text, found);
    let mut root = yaml::parse(text).map_err(wrong)?;
    let SchemaCheck { json, mut problems, .. } = shape::check(&mut root, &schema(), &|_| false);
    let Ok(raw) = serde_json::from_value::<RawCases>(json) else { return Err(wrong(problems)) };
    let mut cases = Vec::new();
    for (n, raw) in raw.tests.into_iter().enumerate() {
        cases.extend(case(raw, &format!("/tests/{n}"), (&root, settings), &mut problems));
    }
    if problems.is_empty() { Ok(cases) } else { Err(wrong(problems)) }
}

fn case(
    raw: RawCase,
    at: &str,
    (root, settings): (&YamlNode, &Settings),
    problems: &mut Vec<ConfigProblem>,
) -> Option<TestCase> {
    let before = problems.len();
    let mut report = |member: &str, message: String, help: &str| {
        problems.push(ConfigProblem::new(root.place(&format!("{at}{member}")), message, help));
    };
    let described = CallerDescription {
        id: raw.principal,
        groups: raw.groups,
        roles: raw.roles,
        scopes: raw.scopes,
        client: raw.client,
        proof: match raw.proof {
            None => ProofOfPossession::None,
            Some(RawProof::Certificate) => ProofOfPossession::Certificate,
            Some(RawProof::Dpop) => ProofOfPossession::Dpop,
        },
    };
    let principal = described.principal(settings);
    if let Err(error) = &principal {
        report("/principal", format!("a name of this caller {error}"), "correct it");
    }
    let servers = settings.servers.iter().map(|server| &server.name);
    let server = servers.clone().find(|server| server.as_str() == raw.server).cloned();
    if server.is_none() {
        let list: Vec<_> = servers.map(ServerName::as_str).collect();
        let message = format!("there is no server `{}`", raw.server.escape_debug());
        report("/server", message, &format!("the servers are: {}", list.join(", ")));
    }
    let things = [
        (ItemKind::Tool, raw.tool),
        (ItemKind::Prompt, raw.prompt),
        (ItemKind::Resource, raw.resource),
        (ItemKind::Method, raw.method),
    ];
    let mut things = things.into_iter().filter_map(|(kind, name)| Some((kind, name?)));
    let thing = things.next();
    if thing.is_none() || things.next().is_some() {
        let help = "name one of `tool`, `prompt`, `resource` and `method`";
        report("", "it is not clear what this case is about".to_owned(), help);
    }
    let rules = settings.policy.access().rules();
    if let Some(rule) = &raw.rule
        && !rules.iter().any(|known| known.id.as_str() == rule)
    {
        let message = format!("there is no rule `{}`", rule.escape_debug());
        report("/rule", message, "correct the name, or remove it");
    }
    if let Some(reason) = &raw.reason
        && !Reason::CODES.contains(&reason.as_str())
    {
        let message = format!("`{}` is not the code of a denial", reason.escape_debug());
        report("/reason", message, "take one from `docs/reasons.md`");
    }
    if raw.expect == ExpectedDecision::Allow && raw.reason.is_some() {
        let message = "what is let through has no reason not to be".to_owned();
        report("/reason", message, "remove it, or write `expect: deny`");
    }
    let arguments = raw.arguments.map(|arguments| {
        let text = serde_json::Value::Object(arguments).to_string();
        Document::parse(text.into(), &JsonBounds::MESSAGE).map(Arc::new).map(Fragment::whole)
    });
    let arguments = arguments.transpose();
    if let Err(error) = &arguments {
        report("/arguments", format!("no client could send this: {error}"), "correct it");
    }
    let ((kind, name), server) = (thing?, server?);
    let (principal, arguments) = (principal.ok()?, arguments.ok()?);
    if problems.len() > before {
        return None;
    }
    let question = TestRequest { principal, server, kind, name: name.into(), arguments };
    let (name, expect) = (raw.name, raw.expect);
    let (rule, reason, listed) = (raw.rule, raw.reason, raw.listed);
    Some(TestCase { name, question, expect, rule, reason, listed })
}
