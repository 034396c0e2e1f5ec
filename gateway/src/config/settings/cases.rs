//! Reads the test cases of a policy: a request and its expected decision. `policy test` runs them.

use std::collections::BTreeSet;
use std::sync::Arc;

use json::{Document, Fragment, JsonBounds, JsonError};
use policy::definition::offer::ItemKind;
use policy::flow::planner::Planner;
use policy::rules::decision::Reason;
use policy_core::subject::name::{
    ClientId, GroupName, NameError, PrincipalId, RoleName, Scope, ServerName,
};
use policy_core::subject::principal::{Principal, ProofOfPossession};
use schemars::JsonSchema;
use serde::Deserialize;

use super::problem::ConfigProblem;
use super::shape::SchemaCheck;
use super::yaml::YamlNode;
use super::{ConfigProblems, IdentitySettings, ImpliedScopes, Settings, shape, yaml};

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
    /// The path of the route on which it is called. It matters where routes are for planners.
    route: Option<String>,
    /// The server that is called.
    server: String,
    /// The tool that is called, by the server's own name for it. Exactly one of `tool`, `prompt`, `resource`,
    /// `skill` and `method` is given.
    tool: Option<String>,
    /// The prompt that is requested.
    prompt: Option<String>,
    /// The URI of the resource that is read.
    resource: Option<String>,
    /// The skill whose manifest is read: the path of the skill, or its URI.
    skill: Option<String>,
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
    /// The planner that the route is for, if it is known and there are two.
    pub planner: Option<Planner>,
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

/// The callers that a configuration knows, from whom a description of a caller begins.
#[derive(Clone, Debug, Default)]
pub struct KnownCallers {
    principals: Vec<Principal>,
    implied: ImpliedScopes,
}

impl KnownCallers {
    /// The callers of a section `identity`.
    #[must_use]
    pub fn of(identity: &IdentitySettings) -> Self {
        Self { principals: identity.principals(), implied: identity.implied.clone() }
    }
}

impl CallerDescription {
    /// The principal as `settings` list it, with the values given here in place of theirs.
    ///
    /// # Errors
    /// If a name is invalid.
    pub fn principal(&self, settings: &Settings) -> Result<Principal, NameError> {
        self.principal_among(&KnownCallers::of(&settings.identity))
    }

    /// The same among the callers of a configuration.
    ///
    /// # Errors
    /// If a name is invalid.
    pub fn principal_among(&self, callers: &KnownCallers) -> Result<Principal, NameError> {
        let id = PrincipalId::parse(&self.id)?;
        let known = callers.principals.iter().find(|known| known.id == id).cloned();
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
            principal.claims.scopes = callers.implied.closure(scopes);
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
        let at = format!("/tests/{n}");
        let mut compiler = CaseCompiler { at: &at, root: &root, settings, problems: Vec::new() };
        cases.extend(compiler.case(raw));
        problems.extend(compiler.problems);
    }
    if problems.is_empty() { Ok(cases) } else { Err(wrong(problems)) }
}

/// A route that the configuration does not have.
#[derive(Debug)]
pub struct UnknownRoute {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// The planner that the route with a path is for; `None` if the route is for no planner.
///
/// # Errors
/// If there is no such route.
pub fn planner_of(settings: &Settings, path: &str) -> Result<Option<Planner>, UnknownRoute> {
    let mut routes = settings.routes.iter();
    routes.find(|route| &*route.path == path).map(|route| route.planner).ok_or_else(|| {
        let paths: Vec<_> = settings.routes.iter().map(|route| &*route.path).collect();
        UnknownRoute {
            message: format!("there is no route `{}`", path.escape_debug()),
            help: format!("the routes are: {}", paths.join(", ")),
        }
    })
}

/// Compiles one case, and collects every problem with it.
struct CaseCompiler<'a> {
    /// The JSON Pointer of the case.
    at: &'a str,
    root: &'a YamlNode,
    settings: &'a Settings,
    /// The problems of this case.
    problems: Vec<ConfigProblem>,
}

impl CaseCompiler<'_> {
    fn case(&mut self, mut raw: RawCase) -> Option<TestCase> {
        let principal = self.principal(&mut raw);
        let server = self.server(&raw.server);
        let item = self.item(&mut raw);
        let planner = self.planner(raw.route.as_deref());
        self.expectation(&raw);
        let arguments = self.arguments(raw.arguments.take());
        let server = server?;
        let (kind, name) = item?;
        let question = TestRequest {
            principal: principal?,
            server,
            kind,
            name: name.into(),
            arguments: arguments.ok()?,
            planner,
        };
        self.problems.is_empty().then_some(TestCase {
            name: raw.name,
            question,
            expect: raw.expect,
            rule: raw.rule,
            reason: raw.reason,
            listed: raw.listed,
        })
    }

    fn report(&mut self, member: &str, message: String, help: &str) {
        let place = self.root.place(&format!("{}{member}", self.at));
        self.problems.push(ConfigProblem::new(place, message, help));
    }

    fn principal(&mut self, raw: &mut RawCase) -> Option<Principal> {
        let described = CallerDescription {
            id: std::mem::take(&mut raw.principal),
            groups: std::mem::take(&mut raw.groups),
            roles: std::mem::take(&mut raw.roles),
            scopes: std::mem::take(&mut raw.scopes),
            client: raw.client.take(),
            proof: match raw.proof {
                None => ProofOfPossession::None,
                Some(RawProof::Certificate) => ProofOfPossession::Certificate,
                Some(RawProof::Dpop) => ProofOfPossession::Dpop,
            },
        };
        match described.principal(self.settings) {
            Ok(principal) => Some(principal),
            Err(error) => {
                let message = format!("a name of this caller {error}");
                self.report("/principal", message, "correct it");
                None
            }
        }
    }

    fn server(&mut self, name: &str) -> Option<ServerName> {
        let mut servers = self.settings.servers.iter().map(|server| &server.name);
        let server = servers.clone().find(|server| server.as_str() == name).cloned();
        if server.is_none() {
            let list: Vec<_> = servers.by_ref().map(ServerName::as_str).collect();
            let message = format!("there is no server `{}`", name.escape_debug());
            self.report("/server", message, &format!("the servers are: {}", list.join(", ")));
        }
        server
    }

    /// The planner that the route is for.
    fn planner(&mut self, route: Option<&str>) -> Option<Planner> {
        match planner_of(self.settings, route?) {
            Ok(planner) => planner,
            Err(unknown) => {
                self.report("/route", unknown.message, &unknown.help);
                None
            }
        }
    }

    /// The one thing that the case is about.
    fn item(&mut self, raw: &mut RawCase) -> Option<(ItemKind, String)> {
        let items = [
            (ItemKind::Tool, raw.tool.take()),
            (ItemKind::Prompt, raw.prompt.take()),
            (ItemKind::Resource, raw.resource.take()),
            (ItemKind::Skill, raw.skill.take()),
            (ItemKind::Method, raw.method.take()),
        ];
        let mut items = items.into_iter().filter_map(|(kind, name)| Some((kind, name?)));
        let item = items.next();
        if item.is_none() || items.next().is_some() {
            let help = "name one of `tool`, `prompt`, `resource`, `skill` and `method`";
            self.report("", "a case is about exactly one item".to_owned(), help);
        }
        item
    }

    /// Checks that the expected decision can be the outcome.
    fn expectation(&mut self, raw: &RawCase) {
        let rules = self.settings.policy.access().rules();
        if let Some(rule) = &raw.rule
            && !rules.iter().any(|known| known.id.as_str() == rule)
        {
            let message = format!("there is no rule `{}`", rule.escape_debug());
            self.report("/rule", message, "correct the name, or remove it");
        }
        if let Some(reason) = &raw.reason
            && !Reason::CODES.contains(&reason.as_str())
        {
            let message = format!("`{}` is not the code of a denial", reason.escape_debug());
            self.report("/reason", message, "take one from `docs/reasons.md`");
        }
        if raw.expect == ExpectedDecision::Allow && raw.reason.is_some() {
            let message = "what is let through has no reason not to be".to_owned();
            self.report("/reason", message, "remove it, or write `expect: deny`");
        }
    }

    /// The arguments of the call, if there are any, as a client would send them.
    fn arguments(
        &mut self,
        given: Option<serde_json::Map<String, serde_json::Value>>,
    ) -> Result<Option<Fragment>, JsonError> {
        let arguments = given.map(|arguments| {
            let text = serde_json::Value::Object(arguments).to_string();
            Document::parse(text.into(), &JsonBounds::MESSAGE).map(Arc::new).map(Fragment::whole)
        });
        let arguments = arguments.transpose();
        if let Err(error) = &arguments {
            let message = format!("no client could send this: {error}");
            self.report("/arguments", message, "correct it");
        }
        arguments
    }
}
