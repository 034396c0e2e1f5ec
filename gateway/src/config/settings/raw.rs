//! The configuration as written, read by serde and handed to `compile`. Nothing here is validated beyond the JSON
//! Schema.
//!
//! The comments on these types become the descriptions in the JSON Schema, which editors show. They are also parsed:
//! write "Default X" where a key has a default, which `shown` reads, and an example in backticks, from which `bounds`
//! takes the unit of the key.

mod approvals;
mod apps;
mod audit;
mod budgets;
mod decoys;
mod discovery;
mod guardrail;
mod identity;
mod credential;
mod listener;
mod log;
mod model_services;
mod pins;
mod registry;
mod sandbox;
mod selection;
mod telemetry;

use detection::content::PersonalKind;
use policy::definition::pins::ResourcePins;
use policy::engine::config::RawPolicy;
use policy::flow::planner::Planner;
use policy_core::subject::principal::RequiredProof;
use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use approvals::{Approver, RawApprovals, RawWebhook};
pub(super) use apps::{RawAppCsp, RawAppPermission, RawApps};
pub(super) use audit::{
    RawAudit, RawCapture, RawCheckpoints, RawHttpSink, RawRefusals, RawRotation, RawSink, RawSyslog,
};
pub use audit::{SinkFormat, SpoolOverflow};
pub(super) use budgets::{RawBudget, RawRepeatedCalls};
pub(super) use credential::{
    RawCredential, RawGrant, RawHeaderCredential, RawIdentityAssertion, RawServerTls,
};
pub(super) use decoys::{RawDecoyTool, RawDecoys, RawHoneytoken, RawLock};
pub(super) use discovery::{RawDiscovery, RawDiscoveryMode};
pub use guardrail::GuardrailFailure;
pub(super) use guardrail::RawGuardrail;
pub(super) use identity::{
    RawApiKey, RawClaims, RawClient, RawIdentity, RawIntrospection, RawIssuer, RawKeys,
    RawKnownCertificate, RawOwnCertificate, RawReach, RawSecretIn,
};
pub(super) use listener::{
    RawClients, RawForwarded, RawForwardedHeader, RawListener, RawPresence, RawScheme, RawTls,
    RawTlsVersion,
};
pub use log::LogFormat;
pub(super) use log::RawLog;
pub(super) use model_services::{RawEmbeddings, RawJudge};
pub use pins::DriftAction;
pub(super) use pins::{RawDrift, RawPinKey, RawPins, RawVolatile};
pub(super) use registry::{RawRegistered, RawRegistry};
pub(super) use sandbox::{RawFiles, RawReachable, RawSandbox, RawSandboxMode};
pub use selection::{HistorySharing, RequestRecording};
pub(super) use selection::{
    RawHistoryMode, RawSelection, RawSelectionHistory, RawSelectionWeights,
};
pub use telemetry::{OtlpProtocol, OtlpSignal};
pub(super) use telemetry::{RawClientTraces, RawOtlp, RawTelemetry};

/// The configuration of a Portcullis gateway.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSettings {
    /// The version of the configuration format.
    #[expect(dead_code, reason = "the schema checks it; there is one version")]
    pub(super) api_version: ApiVersion,
    /// The sockets that MCP clients connect to.
    pub(super) listeners: Vec<RawListener>,
    /// The operator's listener, with health checks, metrics and the admin API. Without it there is no such
    /// listener.
    pub(super) ops: Option<RawOps>,
    /// How callers are authenticated.
    #[serde(default)]
    pub(super) identity: RawIdentity,
    /// The MCP servers behind the gateway (upstream servers).
    pub(super) servers: Vec<RawServer>,
    /// The paths that clients call, and the servers behind each.
    pub(super) routes: Vec<RawRoute>,
    /// The access rules and content controls. Without it every call is denied.
    #[serde(default)]
    pub(super) policy: RawPolicy,
    /// How people are asked about calls that need an approval.
    #[serde(default)]
    pub(super) approvals: RawApprovals,
    /// What calls may use up in a time: numbers of calls, bytes, cost.
    #[serde(default)]
    pub(super) budgets: Vec<RawBudget>,
    /// When a caller is refused that makes the same call again and again. Without it identical calls are not counted.
    pub(super) repeated_calls: Option<RawRepeatedCalls>,
    /// How `find_tools` and `portcullis select` rank the tools of a caller, on every route with discovery.
    #[serde(default)]
    pub(super) selection: RawSelection,
    /// Traps for attackers: tools that no server has, and values that nobody has a reason to send.
    #[serde(default)]
    pub(super) decoys: RawDecoys,
    /// The export of traces and metrics over OTLP.
    #[serde(default)]
    pub(super) telemetry: RawTelemetry,
    /// The operator's own facts about tools.
    #[serde(default)]
    pub(super) registry: RawRegistry,
    /// How tool, prompt and resource definitions are checked against the approved ones.
    #[serde(default)]
    pub(super) pins: RawPins,
    /// Callers, clients, servers, tools and tokens that are denied at once.
    #[serde(default)]
    pub(super) revocations: RawRevocations,
    /// Where every exchange is recorded.
    pub(super) audit: RawAudit,
    /// The process log, which goes to standard error.
    #[serde(default)]
    pub(super) log: RawLog,
    /// Sessions of clients that use a protocol revision before 2026-07-28.
    #[serde(default)]
    pub(super) sessions: RawSessions,
    /// The self-test: the gateway attacks itself and reports which controls hold. Without it no self-test runs.
    pub(super) selftest: Option<RawSelftest>,
    /// Limits on sizes, counts and times.
    #[serde(default)]
    pub(super) limits: RawLimits,
}

/// When the gateway attacks itself to test its controls: at startup, after each change of the configuration, and
/// when an operator asks for it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawSelftest {
    /// Whether `/readyz` reports not ready until every control has passed. Default `true`.
    pub(super) gate_readiness: bool,
    /// Controls that may fail because the configuration turns them off, or single attacks as the report names them,
    /// such as `results/contacts`.
    pub(super) skip: Vec<String>,
    /// The interval between repetitions, such as `1h`. Without it the self-test is not repeated on a timer.
    pub(super) interval: Option<String>,
}

impl Default for RawSelftest {
    fn default() -> Self {
        Self { gate_readiness: true, skip: Vec::new(), interval: None }
    }
}

/// A version of the configuration format.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) enum ApiVersion {
    /// The first version of the format.
    #[serde(rename = "portcullis.dev/v1")]
    V1,
}

/// The listener for operators: health checks, metrics and the admin API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawOps {
    /// The address and port; port 0 takes a free port.
    pub(super) address: String,
    /// Host names that are accepted in `Host`, such as `gateway` if Prometheus uses that name. `localhost` and IP
    /// addresses are always accepted.
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    /// The bearer token of operators who revoke through the admin API. Without it nothing can be changed through
    /// that API.
    pub(super) token: Option<RawSecret>,
}

/// What is denied at once, no matter what the rules allow.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawRevocations {
    /// A YAML file with the lists `principals`, `clients`, `servers`, `tools` (`SERVER/NAME`) and `tokens` (by
    /// `jti`), or `everything: true`. Relative paths start at the directory of this file. The gateway reads it
    /// again when it changes and on SIGHUP. Processes that change it lock `FILE.lock` beside it.
    pub(super) file: Option<String>,
}

/// An MCP server, reached by `url` or started by `command`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawServer {
    /// The name of the server in rules, logs and metrics, and in front of its tool names where a route has several
    /// servers.
    pub(super) name: String,
    /// The MCP endpoint of a server that speaks Streamable HTTP.
    pub(super) url: Option<String>,
    /// Allow plain `http` to another machine, where everyone on the network path can read and change the messages.
    /// Use it only where something else protects the connection, such as a service mesh.
    #[serde(default)]
    pub(super) insecure: bool,
    /// The program of a server that speaks stdio: a name that is looked up in `PATH`, or a path, relative to
    /// `workingDirectory` or else to the directory of this file. Its environment has only `PATH`, `HOME`, `LANG`,
    /// `TMPDIR` and the variables in `env`.
    pub(super) command: Option<String>,
    /// The command-line arguments of the program.
    #[serde(default)]
    pub(super) args: Vec<String>,
    /// The environment variables of the program.
    #[serde(default)]
    pub(super) env: Vec<RawVariable>,
    /// The working directory of the program, relative to the directory of this file; the gateway's own if not
    /// given.
    pub(super) working_directory: Option<String>,
    /// What the program may access. Without it, `{mode: preferred, files: any, network: any}`: everything that its
    /// user may, except the gateway's own files, other processes, and changes to the system.
    pub(super) sandbox: Option<RawSandbox>,
    /// The protocol era that the server speaks.
    #[serde(default)]
    pub(super) protocol: RawProtocol,
    /// The HTTP transport of the server at `url`.
    #[serde(default)]
    pub(super) transport: RawTransport,
    /// Whether sessions share the process of a `command`, or the stream of an `httpSse` server. If not given they
    /// share one, but a `command` that speaks both eras (`protocol: auto`) is started again for each legacy session
    /// whose client supports a request that `serverRequests` allows.
    pub(super) sharing: Option<RawSharing>,
    /// The networks that connections to `url` may go to: `public`, `private` (RFC 1918, RFC 4193, RFC 6598),
    /// `loopback`, or prefixes such as `10.1.0.0/16`. The gateway does not connect to a name that resolves to any
    /// other address. If not given: the address in the URL, `loopback` for `localhost`, and `public` and `private`
    /// for other names. Link-local, multicast and metadata addresses are never allowed.
    pub(super) egress: Option<Vec<String>>,
    /// How the server at an `https` URL is verified, and the client certificate that it gets.
    pub(super) tls: Option<RawServerTls>,
    /// How the gateway authenticates to the server at `url`. If not given, without a credential: a caller's
    /// credential is never forwarded.
    pub(super) credential: Option<RawCredential>,
    /// Additional headers of every request to `url`, besides those of the protocol. Headers of clients are never
    /// forwarded.
    #[serde(default)]
    pub(super) headers: Vec<RawVariable>,
    /// When calls to the server are rejected because it keeps failing. Without it every request is tried. A caller
    /// that can make the server fail by its requests can then also block it for other callers.
    pub(super) circuit_breaker: Option<RawCircuitBreaker>,
    /// Maximum calls of the server that are under way. Further ones are refused with 503, so that one slow server does
    /// not keep the requests of callers (`limits.inFlight`). If not given, there is no such limit.
    #[schemars(range(min = 1))]
    pub(super) max_concurrent: Option<usize>,
    /// Maximum calls of one caller among them. Further ones are refused with 429. Default half of `maxConcurrent`.
    #[schemars(range(min = 1))]
    pub(super) max_concurrent_per_caller: Option<usize>,
    /// The keys of `_meta` that the server gets of those that clients send and that the protocol does not define, such as
    /// `com.example/*`; an empty list keeps all back. If not given, it gets all of them.
    pub(super) client_meta: Option<Vec<String>>,
    /// Which requests the server may send to clients: elicitation, sampling and roots. If not given, all of them
    /// are refused.
    #[serde(default)]
    pub(super) server_requests: RawServerRequests,
    /// Which apps (`ui://`, MCP Apps) the server may show. If not given: none.
    pub(super) apps: Option<RawApps>,
    /// Which resources may be read without an approval of their own, because the server creates them at run time:
    /// none (`pinned`), those of approved templates and of links in results (`byTemplate`), or all (`dynamic`).
    /// Default `byTemplate`.
    #[serde(default)]
    pub(super) resources: ResourcePins,
    /// Titles and descriptions that callers see in place of the server's own. Approval still applies to the
    /// server's own definition.
    #[serde(default)]
    pub(super) overrides: Vec<RawToolOverride>,
}

/// The title and descriptions that callers see for one tool, in place of the server's own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawToolOverride {
    /// The tool, by the server's own name for it.
    pub(super) tool: String,
    /// The title of the tool; the server's own if not given.
    pub(super) title: Option<String>,
    /// The description of the tool; the server's own if not given.
    pub(super) description: Option<String>,
    /// The same for its arguments.
    #[serde(default)]
    pub(super) arguments: Vec<RawArgumentOverride>,
}

/// The title and description that callers see for one argument, in place of the server's own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawArgumentOverride {
    /// The argument, as a JSON Pointer into the arguments, such as `/path` or `/options/depth`. For items of a list
    /// leave the index out: `/edits/oldText`.
    pub(super) argument: String,
    /// The title of the argument; the server's own if not given.
    pub(super) title: Option<String>,
    /// The description of the argument; the server's own if not given.
    pub(super) description: Option<String>,
}

/// Which requests a server may send to clients. What is left out is refused.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawServerRequests {
    /// Forms for the user (`elicitation/create` in `form` mode). `{}` allows forms that ask for no secrets.
    pub(super) form_elicitation: Option<RawForms>,
    /// Web pages for the user to open (`elicitation/create` in `url` mode).
    pub(super) url_elicitation: Option<RawUrls>,
    /// Requests to the client's model (`sampling/createMessage`).
    pub(super) sampling: Option<RawSampling>,
    /// Requests for the client's roots (`roots/list`). `{}` allows them, and the server gets all roots.
    pub(super) roots: Option<RawRoots>,
    /// How many requests of these kinds each caller is sent, such as `60/m`, the default: a number for each second
    /// (`/s`), minute (`/m`) or hour (`/h`). More are refused.
    pub(super) rate: Option<String>,
    /// Whether the message of an elicitation begins with the name of the server: where a route of the server has others
    /// as well (`auto`, the default), `always`, or `never`.
    pub(super) origin: RawOrigin,
}

/// When the message of an elicitation begins with the name of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawOrigin {
    /// Where a route of the server has others as well.
    #[default]
    Auto,
    /// Every message has it.
    Always,
    /// No message has it.
    Never,
}

/// Elicitation forms for the user.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawForms {
    /// What happens to a form with a field that, by its name, asks for a password, a token, a PIN or
    /// another secret. Default `refuse`: the protocol forbids such forms.
    pub(super) secrets: RawFormSecrets,
    /// The personal data that a form may ask for; a form for other kinds is refused. Default `[name, email, phone, address,
    /// birthDate]`. `[]` permits none.
    pub(super) personal_data: Option<Vec<PersonalKind>>,
    /// What happens to a form that asks for a standing grant, which covers everything or all later calls (`always
    /// allow`, `do not ask again`, scopes such as `Mail.Read.All`). Default `refuse`.
    pub(super) standing_grants: RawStandingGrants,
}

/// What happens to an elicitation request that asks for a standing grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawStandingGrants {
    /// The request is refused.
    #[default]
    Refuse,
    /// The request is passed on.
    Allow,
}

/// What happens to a form that asks for a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawFormSecrets {
    /// The form is refused.
    #[default]
    Refuse,
    /// The form is passed on.
    Allow,
}

/// Web pages for the user to open.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawUrls {
    /// The allowed hosts, such as `login.example.com` or `*.example.com`, with `:PORT` if it is not 443. Pages of
    /// other hosts and pages without `https` are refused. IP addresses and names inside a network must be given
    /// exactly; patterns do not match them.
    pub(super) hosts: Vec<String>,
    /// What happens to a page that asks for a standing grant: a URL with a scope such as `Files.Read.All`,
    /// `offline_access` or `.default`, or a message as in `formElicitation`. Default `refuse`.
    #[serde(default)]
    pub(super) standing_grants: RawStandingGrants,
}

/// Requests to the client's model.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawSampling {
    /// Maximum tokens that a request may ask the model for (`maxTokens`). Default 4096.
    #[schemars(range(min = 1))]
    pub(super) max_tokens: Option<u32>,
    /// Maximum messages in one request. Default 32.
    #[schemars(range(min = 1))]
    pub(super) max_messages: Option<usize>,
    /// Maximum size of one request, such as `64KiB`, the default.
    pub(super) max_size: Option<String>,
    /// Maximum size of the model's answer, such as `256KiB`, the default.
    pub(super) max_answer_size: Option<String>,
    /// What happens to a request for more tokens, or with an `includeContext` other than `none`. Default `refuse`.
    pub(super) on_exceeded: RawSamplingOver,
    /// What happens to the models that the server would like (`modelPreferences.hints`). Default `drop`: the client
    /// chooses the model that its user pays for.
    pub(super) model_hints: RawModelHints,
}

/// What happens to the hints at models in a sampling request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawModelHints {
    /// They are removed.
    #[default]
    Drop,
    /// They are passed on.
    Keep,
}

/// What happens to a sampling request that exceeds a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawSamplingOver {
    /// The request is refused.
    #[default]
    Refuse,
    /// The request is passed on with `maxTokens` reduced to the limit, and without the context.
    Cut,
}

/// Requests for the client's roots.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawRoots {
    /// Patterns of the URIs of roots that the server may know of, such as `file:///srv/projects/*`. Others are removed from
    /// the answer. Without it the server gets all.
    pub(super) only: Option<Vec<String>>,
}

/// When requests to a failing server are rejected at once. While the circuit is open, one request is let through
/// after each pause. Failed and broken connections, programs that exit, timeouts and HTTP statuses from 500 count
/// as failures; the content of an answer does not.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawCircuitBreaker {
    /// Number of consecutive failures that opens the circuit. Default 5.
    #[schemars(range(min = 1))]
    pub(super) failures: Option<u32>,
    /// The pause before the next request is let through, such as `10s`. Default `30s`.
    pub(super) open_for: Option<String>,
}

/// The HTTP transport of a server at a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawTransport {
    /// Streamable HTTP, of 2025-03-26 and later.
    #[default]
    StreamableHttp,
    /// HTTP+SSE of 2024-11-05, which is deprecated.
    HttpSse,
}

/// Whether sessions share a process or a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawSharing {
    /// One for all sessions. A legacy server cannot send requests to clients then, because the gateway could not
    /// tell which client a request is for.
    Shared,
    /// One for each session, and one for each caller without a session.
    PerSession,
}

/// An environment variable of a program, or an HTTP header: exactly one of `value`, `fromEnv`, `fromFile` and
/// `fromCommand`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawVariable {
    /// The name of the variable or header.
    pub(super) name: String,
    /// The value, if it is not a secret.
    pub(super) value: Option<String>,
    /// The environment variable of the gateway that holds the value.
    pub(super) from_env: Option<String>,
    /// The file that holds the value.
    pub(super) from_file: Option<String>,
    /// A program that prints the value on its standard output: its absolute path and its arguments. No shell is
    /// involved.
    pub(super) from_command: Option<Vec<String>>,
    /// How long the output is used before the program runs again. If not given, `5m`; at most `24h`.
    pub(super) cache_time: Option<String>,
    /// How long the program may run. If not given, `10s`; at most `1m`.
    pub(super) timeout: Option<String>,
    /// How long after `cacheTime` the last output is still used if the program fails. If not given, `1h`; at most
    /// `24h`.
    pub(super) max_stale: Option<String>,
}

/// A reference to a secret: exactly one of `fromEnv`, `fromFile` and `fromCommand`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSecret {
    /// The environment variable that holds the secret.
    pub(super) from_env: Option<String>,
    /// The file that holds the secret.
    pub(super) from_file: Option<String>,
    /// A program that prints the secret on its standard output: its absolute path and its arguments. No shell is
    /// involved.
    pub(super) from_command: Option<Vec<String>>,
    /// How long the output is used before the program runs again. If not given, `5m`; at most `24h`.
    pub(super) cache_time: Option<String>,
    /// How long the program may run. If not given, `10s`; at most `1m`.
    pub(super) timeout: Option<String>,
    /// How long after `cacheTime` the last output is still used if the program fails. If not given, `1h`; at most
    /// `24h`.
    pub(super) max_stale: Option<String>,
}

/// An era of the MCP protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawProtocol {
    /// The gateway probes which eras the server speaks.
    #[default]
    Auto,
    /// Revision 2026-07-28 and later.
    Modern,
    /// 2025-11-25 and earlier, which begin with `initialize`.
    Legacy,
}

/// A path on every listener, and the servers behind it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawRoute {
    /// The path, which is compared byte for byte.
    pub(super) path: String,
    /// The servers. The first keeps the names of its tools; a tool of every other server is called `SERVER__TOOL`,
    /// unless `prefix` says otherwise.
    pub(super) servers: Vec<String>,
    /// When tool and prompt names get the name of their server as a prefix.
    #[serde(default)]
    pub(super) prefix: RawPrefix,
    /// Also serve clients of the deprecated HTTP+SSE transport, at the path followed by `/sse`.
    #[serde(default)]
    pub(super) http_sse: bool,
    /// The planner that the route is for, of two: `trusted` is shown nothing untrusted, `untrusted` can only read. Needs
    /// `policy.flow`. If not given, the route is for one agent that does both.
    pub(super) planner: Option<Planner>,
    /// How models find the tools of the route, where its list is too long to read.
    #[serde(default)]
    pub(super) discovery: RawDiscovery,
    /// The requirements on access tokens.
    #[serde(default)]
    pub(super) oauth: RawRouteOauth,
    /// The guardrails that arguments and results are sent to, in this order.
    #[serde(default)]
    pub(super) guardrails: Vec<RawGuardrail>,
}

/// The requirements on access tokens on a route.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawRouteOauth {
    /// The resource that tokens are issued for (RFC 8707), which `aud` must contain exactly. If not given, the
    /// `publicUrl` of the listener followed by the path.
    pub(super) resource: Option<String>,
    /// Other accepted audiences. A token that is valid on more than one route can be replayed by a server of one
    /// against a server of another.
    #[serde(default)]
    pub(super) audiences: Vec<String>,
    /// Audiences that a token may have in addition to an accepted one, such as the userinfo endpoint of its issuer.
    /// A token for these alone is refused.
    #[serde(default)]
    pub(super) additional_audiences: Vec<String>,
    /// The accepted issuers, by name; all if not given.
    pub(super) issuers: Option<Vec<String>>,
    /// The scopes that clients are told to request first. A token without them is accepted: the rules require
    /// scopes by `scopes`.
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    /// The proof of possession that every token must come with.
    pub(super) proof: Option<RequiredProof>,
    /// Whether DPoP proofs must contain a nonce of the gateway (RFC 9449, section 9). This keeps clients from
    /// preparing proofs in advance; replicas with the same `sessions.keys` accept each other's nonces.
    #[serde(default)]
    pub(super) dpop_nonce: bool,
}

/// When tool and prompt names get the name of their server as a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawPrefix {
    /// For every server except the first of the route, so that appending a server renames nothing.
    #[default]
    Auto,
    /// For every server, even if it is the only one.
    Always,
    /// Where two servers offer the same name.
    OnConflict,
    /// Never; a name that two servers offer is left out.
    Never,
}

/// Sessions of clients that use a protocol revision before 2026-07-28.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSessions {
    /// The keys that session ids are encrypted with, 32 bytes in hexadecimal each. The first encrypts, all of them
    /// decrypt. Without any, a new key is generated at every start, which ends all sessions.
    #[serde(default)]
    pub(super) keys: Vec<RawSecret>,
    /// How long a session is valid, such as `12h`.
    pub(super) lifetime: Option<String>,
}

/// Limits. Sizes are written `512B`, `64KiB` or `4MiB`, times `500ms`, `30s` or `10m`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawLimits {
    /// Maximum size of a request body. Default `4MiB`.
    pub(super) request_body: Option<String>,
    /// Maximum size of one answer of a server, of one event of a stream and of one line of a program.
    /// Default `16MiB`.
    pub(super) response_body: Option<String>,
    /// Messages from this size on are inspected on separate threads, a few at a time, and not on those that serve
    /// clients. It applies to arguments and final answers. Default `4KiB`.
    pub(super) inspected_inline: Option<String>,
    /// Maximum cost of inspecting one message, in units of one byte that one detector examines. The budget of a
    /// message is 2 million units plus 256 for each of its bytes, up to this maximum. A message that costs more is
    /// withheld. Default 1073741824, which is about one second of processor time. For messages below about 4 MB
    /// `inspectionWorkPerByte` is what limits the work.
    pub(super) inspection_work: Option<u64>,
    /// Units that each byte of a message adds to its inspection budget. Raise it if legitimate messages are
    /// withheld with the finding `inspection-budget`. Default 256.
    pub(super) inspection_work_per_byte: Option<u64>,
    /// Maximum size of the parameters of one notification or request that a server sends. Default `1MiB`.
    pub(super) notification: Option<String>,
    /// Maximum size of a request head. Default `16KiB`.
    pub(super) request_head: Option<String>,
    /// Maximum client connections on all listeners together. Default 4096.
    pub(super) connections: Option<usize>,
    /// Maximum connections of one IPv4 address or one IPv6 /64. Behind a reverse proxy all clients have the address
    /// of the proxy: set it to the value of `connections` there. Default three quarters of `connections`.
    pub(super) connections_per_address: Option<usize>,
    /// Maximum requests in flight. Further ones are refused with 503. Default 1024.
    pub(super) in_flight: Option<usize>,
    /// Maximum requests in flight of one caller. Further ones are refused with 429. Default half of `inFlight`.
    pub(super) in_flight_per_caller: Option<usize>,
    /// Maximum requests and notifications of one caller in a minute that are no calls of tools, prompts or resources
    /// which a rule allows: lists, handshakes, pings, and what is denied or refused. Each of them leaves an audit
    /// record, however little it costs to send. Further requests of the caller are refused with 429. Default 6000.
    pub(super) other_requests_per_minute_per_caller: Option<usize>,
    /// Maximum requests of one IPv4 address or one IPv6 /64 whose sender is not authenticated yet. Further ones are
    /// refused with 429. Default half of `inFlight`.
    pub(super) unauthenticated_per_address: Option<usize>,
    /// Maximum bytes of `requestBodyMemory`, `responseMemory`, `catalogMemory`, `subscriptionMemory` and `replayMemory` together, in
    /// addition to the limit of each. Default `192MiB`, and no less than the largest of `requestBodyMemory`, `responseMemory`
    /// and `replayMemory`.
    pub(super) memory: Option<String>,
    /// The part of `memory` that one caller may hold. Default half of `memory`, and no less than the largest share
    /// of one caller in `requestBodyMemory`, `responseMemory` or `replayMemory`.
    pub(super) memory_per_caller: Option<String>,
    /// Maximum bytes of the bodies of all requests in flight. Default `192MiB`, and no less than four times
    /// `requestBody`.
    pub(super) request_body_memory: Option<String>,
    /// The part of `requestBodyMemory` that one caller may hold. Default half of `requestBodyMemory`.
    pub(super) request_body_memory_per_caller: Option<String>,
    /// Maximum bytes of answers of servers that are being read or inspected, with the memory of their parsed
    /// values. The first 16 KiB of each are not counted. Default `192MiB`, and no less than eight times
    /// `responseBody`.
    pub(super) response_memory: Option<String>,
    /// The part of `responseMemory` that one caller may wait for. Default half of `responseMemory`.
    pub(super) response_memory_per_caller: Option<String>,
    /// The part of `responseMemory` that one server may take, of which one caller has three quarters, or
    /// `responseBody`; also the limit on all its lists that are cached for all callers. Default a third of
    /// `responseMemory`.
    pub(super) response_memory_per_server: Option<String>,
    /// Maximum bytes of cached lists of what servers offer to one caller or in one session. A list that several
    /// callers get is cached once. Lists beyond it are read again when needed. Default `64MiB`.
    pub(super) catalog_memory: Option<String>,
    /// The part of `catalogMemory` that was read for one caller. Default half of `catalogMemory`.
    pub(super) catalog_memory_per_caller: Option<String>,
    /// Maximum bytes of compiled tool schemas, by estimate. Schemas beyond it are compiled again when needed.
    /// Default `64MiB`.
    pub(super) schema_memory: Option<String>,
    /// The part of `schemaMemory` that one server may take. Default half of `schemaMemory`.
    pub(super) schema_memory_per_server: Option<String>,
    /// Maximum bytes of the resource URIs that clients subscribe to or listen for. Each is kept in up to three
    /// places and counted as often, with 128 bytes more. Default `64MiB`.
    pub(super) subscription_memory: Option<String>,
    /// The part of `subscriptionMemory` that one caller may take. Further subscriptions are refused with 429.
    /// Default half of `subscriptionMemory`.
    pub(super) subscription_memory_per_caller: Option<String>,
    /// Maximum bytes of messages that wait to be sent on one channel: to one process of a `command`, or on one
    /// stream of an `httpSse` server. Each counts 256 bytes more than its text. Default `16MiB`, or four times
    /// `requestBody` where that is more.
    pub(super) send_queue: Option<String>,
    /// The part of `sendQueue` that one caller may take, at least `requestBody`. A request that finds no room
    /// within `connectTimeout` is refused with 503. Default half of `sendQueue`.
    pub(super) send_queue_per_caller: Option<String>,
    /// Time limit for receiving the head of a request, and again for its body. Default `10s`.
    pub(super) request_timeout: Option<String>,
    /// Time limit for connecting to a server. Default `5s`.
    pub(super) connect_timeout: Option<String>,
    /// Time limit for a server to begin its answer, and between two events of the answer. Default `60s`.
    pub(super) response_timeout: Option<String>,
    /// Time limit for the complete answer of a server, regardless of progress notifications. Default `10m`.
    pub(super) call_timeout: Option<String>,
    /// How long calls rely on the cached list of a server before it is read again. Default `60s`.
    pub(super) catalog_age: Option<String>,
    /// Maximum tools of one server; also prompts, resources, templates and skills. Default 2000.
    pub(super) definitions_per_list: Option<usize>,
    /// Maximum pages of one list. Default 100.
    pub(super) pages_per_list: Option<usize>,
    /// Maximum sessions that have streams, subscriptions or a log level, or calls that can be cancelled.
    /// Default 10000.
    pub(super) sessions: Option<usize>,
    /// Maximum such sessions of one caller. Default half of `sessions`.
    pub(super) sessions_per_caller: Option<usize>,
    /// Maximum sessions that are remembered as ended before their lifetime is over. When a caller ends more, all
    /// its earlier sessions end as well. Default 100000.
    pub(super) ended_sessions: Option<usize>,
    /// The part of `endedSessions` that one caller may take. Default half of `endedSessions`.
    pub(super) ended_sessions_per_caller: Option<usize>,
    /// Time limit for the servers of a route to list what they offer; a handshake has three times as long. Those that are late
    /// are left out. Default `10s`.
    pub(super) list_timeout: Option<String>,
    /// Time limit for a client to answer an elicitation or sampling request of a server. Default `10m`.
    pub(super) input_timeout: Option<String>,
    /// Maximum calls of modern clients that wait for such an answer. Default 1000.
    pub(super) pending_elicitations: Option<usize>,
    /// Maximum waiting calls of one caller. Default half of `pendingElicitations`.
    pub(super) pending_elicitations_per_caller: Option<usize>,
    /// Maximum streams of one legacy session. Default 32.
    pub(super) streams_per_session: Option<usize>,
    /// Maximum event streams that belong to no call: the stream of a session, `subscriptions/listen`, HTTP+SSE. The stream of
    /// a session counts for `replayTtl` after its client has left, and ends earlier if another stream needs its place.
    /// Default 4096.
    pub(super) event_streams: Option<usize>,
    /// Maximum such streams of one caller. Further ones are refused with 429 if the clients of all of these are connected.
    /// Default half of `eventStreams`.
    pub(super) event_streams_per_caller: Option<usize>,
    /// Maximum events of one stream that are kept for a client that reconnects. Default 256.
    pub(super) replay_events: Option<usize>,
    /// Maximum bytes of one stream that wait to be read or are kept for a client that reconnects. A single event
    /// may be longer. Default `1MiB`.
    pub(super) replay_bytes: Option<String>,
    /// Maximum bytes that all streams keep together. Default `192MiB`.
    pub(super) replay_memory: Option<String>,
    /// The part of `replayMemory` that the streams of one caller may take. Default half of `replayMemory`.
    pub(super) replay_memory_per_caller: Option<String>,
    /// How long events are kept for a client that does not reconnect. Default `5m`.
    pub(super) replay_ttl: Option<String>,
    /// Maximum bytes of stored results, which are too long for an answer (`size` with `onExceeded: offload` in the
    /// policy). Default `64MiB`.
    pub(super) result_store: Option<String>,
    /// The part of `resultStore` that one caller may take. Default a quarter of `resultStore`.
    pub(super) result_store_per_caller: Option<String>,
    /// How long results are stored. Default `10m`.
    pub(super) result_store_ttl: Option<String>,
    /// Maximum flows that are remembered (`policy.flow`). The caller with the most flows loses its oldest ones, and
    /// what it begins next has the strictest labels. Default 10000.
    pub(super) flows: Option<usize>,
    /// Maximum values that are remembered of one flow. When it has more, every value that it does not know counts as
    /// untrusted. Default 50000.
    pub(super) flow_values: Option<usize>,
    /// Maximum bytes of the values of all flows. The caller with the most loses the values of its flows that were
    /// unused for longest, and keeps their labels. Default `64MiB`.
    pub(super) flow_memory: Option<String>,
    /// How long a flow without a session lasts after its last request. Default `30m`.
    pub(super) flow_window: Option<String>,
    /// Maximum counters of `budgets`: one for each budget and each of what it is for. A call that cannot be counted is
    /// refused. Default 10000.
    pub(super) budget_counters: Option<usize>,
    /// Maximum different calls of all callers that `repeatedCalls` tells apart. Of one caller the latest 256 are. Default
    /// 50000.
    pub(super) repeated_call_entries: Option<usize>,
    /// Maximum gateways that a request has passed. A request that has passed this gateway before is refused in any
    /// case. Default 5.
    pub(super) hops: Option<usize>,
    /// Time limit for a client that reads nothing of what is written to it. Default `30s`.
    pub(super) write_timeout: Option<String>,
    /// Maximum messages of one batch, from a client that uses 2025-03-26. Default 50.
    pub(super) batch: Option<usize>,
    /// Maximum processes of one server that serve one session each. Default 64.
    pub(super) processes: Option<usize>,
    /// Maximum such processes of one caller. To start another, the least recently used one is stopped; if all are
    /// in use, the request is refused. Default 16.
    pub(super) processes_per_caller: Option<usize>,
    /// Maximum verified tokens in the cache. Default 10000.
    pub(super) tokens: Option<usize>,
    /// Maximum bytes of the verified tokens in the cache with the names in them, by estimate; the tokens that were
    /// obtained for callers have a second limit of the same size. Tokens beyond it are verified, introspected or
    /// obtained again for each request. Default `32MiB`.
    pub(super) token_memory: Option<String>,
    /// The part of `tokenMemory` that one caller may take. Default a quarter of `tokenMemory`.
    pub(super) token_memory_per_caller: Option<String>,
    /// Maximum proofs of possession that are remembered so that none is used twice. Default 100000.
    pub(super) proofs: Option<usize>,
    /// Other shares for some callers, such as an account that stands for many people.
    #[serde(default)]
    pub(super) callers: Vec<RawCallerLimits>,
    /// Limits on HTTP/2 connections with clients and servers.
    #[serde(default)]
    pub(super) http2: RawHttp2,
    /// Time limit for requests in flight to finish when the gateway stops. Default `10s`.
    pub(super) drain_timeout: Option<String>,
    /// How long the gateway keeps serving, but reports not ready, after it is told to stop, so that load balancers
    /// notice. Without it the gateway stops accepting at once.
    pub(super) lame_duck_time: Option<String>,
}

/// Other shares for some callers. A share that is not given stays the common one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawCallerLimits {
    /// The callers, as named in `principal` of audit records: `ana`, `ISSUER/SUBJECT`, `service:ISSUER/CLIENT`.
    pub(super) principals: Vec<String>,
    /// Maximum requests in flight of each of these callers.
    pub(super) in_flight_per_caller: Option<usize>,
    /// Maximum requests and notifications of each of these callers in a minute that are no calls which a rule allows.
    pub(super) other_requests_per_minute_per_caller: Option<usize>,
    /// Maximum bytes of request bodies of each of these callers.
    pub(super) request_body_memory_per_caller: Option<String>,
    /// Maximum calls of each of these callers that wait for an answer of the client.
    pub(super) pending_elicitations_per_caller: Option<usize>,
    /// Maximum event streams of each of these callers that belong to no call.
    pub(super) event_streams_per_caller: Option<usize>,
    /// Maximum bytes of the URIs that each of these callers subscribes to.
    pub(super) subscription_memory_per_caller: Option<String>,
    /// Maximum bytes of cached lists that were read for each of these callers.
    pub(super) catalog_memory_per_caller: Option<String>,
    /// Maximum bytes of answers of servers that each of these callers waits for.
    pub(super) response_memory_per_caller: Option<String>,
}

/// Limits on one HTTP/2 connection.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawHttp2 {
    /// Maximum concurrent requests on one connection. A client is refused the next stream; to a server another
    /// connection is opened. Default 100.
    pub(super) max_concurrent_streams: Option<usize>,
    /// Maximum streams that a client resets before they are answered, and streams that are reset because of what
    /// the client sends on them. The budget refills within ten seconds. A client that exceeds it loses the
    /// connection. Default 200.
    pub(super) stream_resets: Option<usize>,
    /// Maximum frames without payload: pings, settings, priorities, window updates, empty data, continuation
    /// frames. The budget refills within ten seconds, and by ten for each data or header frame that the peer is
    /// sent. A peer that exceeds it loses the connection. Default 1000.
    pub(super) control_frames: Option<usize>,
    /// Flow-control window of one stream in bytes, after the client has sent an authenticated request on the
    /// connection; 16 KiB before. Default `256KiB`.
    pub(super) stream_window: Option<String>,
    /// Flow-control window of a client connection in bytes, after it has sent an authenticated request; 64 KiB
    /// before. Default `1MiB`.
    pub(super) connection_window: Option<String>,
    /// Maximum bytes of one body that wait to be written. Default `256KiB`.
    pub(super) send_buffer: Option<String>,
    /// Maximum bytes of responses that one client connection buffers because the client does not read them. The
    /// next stream is reset. Default `128MiB`, and no less than `responseBody`.
    pub(super) response_buffer: Option<String>,
    /// How long a client connection without a request is kept open. Default `60s`.
    pub(super) idle_timeout: Option<String>,
    /// How long a peer with requests in flight may be silent before it is sent a ping. Default `30s`.
    pub(super) ping_interval: Option<String>,
    /// Time limit for a peer to answer a ping. Default `60s`.
    pub(super) ping_timeout: Option<String>,
}
