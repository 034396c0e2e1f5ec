//! The configuration as written. Nothing here is trusted yet.
//!
//! The comments on these types are the descriptions in the JSON Schema, which editors show.

mod audit;
mod guardrail;
mod identity;
mod credential;
mod listener;
mod log;
mod pins;
mod registry;
mod sandbox;
mod telemetry;

use policy::config::RawPolicy;
use policy::pins::ResourcePins;
use policy::principal::Wanted;
use schemars::JsonSchema;
use serde::Deserialize;

pub use audit::{Format, Full};
pub(super) use audit::{
    RawAudit, RawCapture, RawCheckpoints, RawHttpSink, RawRefusals, RawRotation, RawSink, RawSyslog,
};
pub(super) use credential::{
    RawCredential, RawGrant, RawHeaderCredential, RawIdentityAssertion, RawServerTls,
};
pub use guardrail::Failing;
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
pub use pins::Action;
pub(super) use pins::{RawDrift, RawPinKey, RawPins, RawVolatile};
pub(super) use registry::{RawRegistered, RawRegistry};
pub(super) use sandbox::{RawFiles, RawReachable, RawSandbox, RawSandboxMode};
pub use telemetry::OtlpProtocol;
pub(super) use telemetry::{Clients as Restart, RawOtlp, RawTelemetry};

/// The configuration of a Portcullis gateway.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSettings {
    /// The version of this format.
    #[expect(dead_code, reason = "the schema checks it; there is one version")]
    pub(super) api_version: ApiVersion,
    /// Where clients connect.
    pub(super) listeners: Vec<RawListener>,
    /// Health and metrics, for the operator. Without it there is no such listener.
    pub(super) ops: Option<RawOps>,
    /// How callers are known.
    #[serde(default)]
    pub(super) identity: RawIdentity,
    /// The MCP servers behind the gateway.
    pub(super) servers: Vec<RawServer>,
    /// Which path leads to which servers.
    pub(super) routes: Vec<RawRoute>,
    /// Who may call what. Without it nobody may call anything.
    #[serde(default)]
    pub(super) policy: RawPolicy,
    /// Traces and metrics.
    #[serde(default)]
    pub(super) telemetry: RawTelemetry,
    /// What we know about tools ourselves.
    #[serde(default)]
    pub(super) registry: RawRegistry,
    /// Which definitions were approved.
    #[serde(default)]
    pub(super) pins: RawPins,
    /// What is no longer to be used.
    #[serde(default)]
    pub(super) revocations: RawRevocations,
    /// Where every exchange is recorded.
    pub(super) audit: RawAudit,
    /// How the process logs to standard error.
    #[serde(default)]
    pub(super) log: RawLog,
    /// Sessions of clients that speak a revision before 2026-07-28.
    #[serde(default)]
    pub(super) sessions: RawSessions,
    /// The gateway attacks itself, and says whether everything holds. Without it, it does not.
    pub(super) selftest: Option<RawSelftest>,
    /// Bounds on everything.
    #[serde(default)]
    pub(super) limits: RawLimits,
}

/// How the gateway attacks itself: at the start, after each change of the configuration, and when an
/// operator asks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawSelftest {
    /// Not ready (`/readyz`) before everything holds. Default `true`.
    pub(super) ready: bool,
    /// Controls that need not hold, because they are configured so; or single attacks, as the report names
    /// them: `results/contacts`.
    pub(super) except: Vec<String>,
    /// After how long it is repeated, such as `1h`. Without it, it is not.
    pub(super) every: Option<String>,
}

impl Default for RawSelftest {
    fn default() -> Self {
        Self { ready: true, except: Vec::new(), every: None }
    }
}

/// A version of the format.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) enum ApiVersion {
    /// The first.
    #[serde(rename = "portcullis.dev/v1")]
    V1,
}

/// The operator's listener.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawOps {
    /// Address and port; port 0 takes a free one.
    pub(super) address: String,
    /// Names that it is called by in `Host`, such as `gateway` where Prometheus is told a name. It answers to
    /// `localhost` and to addresses anyway.
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    /// The token with which an operator may revoke. Without it nothing can be changed there.
    pub(super) token: Option<RawSecret>,
}

/// What is no longer to be used, whatever the rules say.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawRevocations {
    /// A YAML file with the lists `principals`, `clients`, `servers`, `tools` (`SERVER/NAME`) and
    /// `tokens` (by `jti`), or `everything: true`. Read again when it changes, and on SIGHUP. From the
    /// folder of this file. `FILE.lock` beside it is locked by those who change it.
    pub(super) file: Option<String>,
}

/// An MCP server: by `url` or by `command`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawServer {
    /// Its name in rules, logs and metrics, and before its tools where a route has several servers.
    pub(super) name: String,
    /// The endpoint of a server that speaks Streamable HTTP.
    pub(super) url: Option<String>,
    /// Speak to another machine over plain `http`, although everybody on the way reads and changes what is
    /// said: only where something else protects the connection, such as a service mesh.
    #[serde(default)]
    pub(super) insecure: bool,
    /// The program of a server that speaks over stdio: a name that is looked up in `PATH`, or a path, from
    /// `workingDirectory` or else from the folder of this file. It is started with these arguments, and
    /// with no environment but `PATH`, `HOME`, `LANG`, `TMPDIR` and what `env` gives it.
    pub(super) command: Option<String>,
    /// The arguments of the program.
    #[serde(default)]
    pub(super) args: Vec<String>,
    /// The environment of the program.
    #[serde(default)]
    pub(super) env: Vec<RawVariable>,
    /// Where the program is started, from the folder of this file; the gateway's own directory if not given.
    pub(super) working_directory: Option<String>,
    /// What the program may do. Without it, `{mode: preferred, files: any, network: any}`: whatever the user
    /// may, but the gateway's own files, other processes, and what changes the machine.
    pub(super) sandbox: Option<RawSandbox>,
    /// Which era of the protocol the server speaks.
    #[serde(default)]
    pub(super) protocol: RawProtocol,
    /// How the server at `url` is spoken to.
    #[serde(default)]
    pub(super) transport: RawTransport,
    /// Whether sessions share the process of a `command`, or the stream of an `httpSse` server. If not given
    /// they share one, and a `command` that speaks both eras (`protocol: auto`) is started once more for each
    /// legacy session whose client can be asked what `serverRequests` allows.
    pub(super) sharing: Option<RawSharing>,
    /// Where connections to `url` may go: `public`, `private` (RFC 1918, RFC 4193, RFC 6598),
    /// `loopback`, or prefixes such as `10.1.0.0/16`. A name that stands for any other address is not
    /// connected to. If not given: the address in the URL, `loopback` for `localhost`, and
    /// `public` and `private` for other names. Link-local, multicast and metadata addresses never.
    pub(super) egress: Option<Vec<String>>,
    /// Who the server at an `https` URL has to be, and what it is shown.
    pub(super) tls: Option<RawServerTls>,
    /// What the server at `url` is shown so that it lets us in. Nothing if not given: no credential
    /// of a caller is ever passed on.
    pub(super) credential: Option<RawCredential>,
    /// Headers of every request to `url`, besides those of the protocol. No header of a client is
    /// ever passed on.
    #[serde(default)]
    pub(super) headers: Vec<RawVariable>,
    /// The server is left alone while it keeps failing. Without it, every request is tried. Whoever can
    /// make the server fail with what they ask of it can then keep others from it.
    pub(super) circuit_breaker: Option<RawCircuitBreaker>,
    /// What the server may ask of clients: of their users, their models and for their folders. Nothing
    /// if not given: its requests are refused.
    #[serde(default)]
    pub(super) server_requests: RawServerRequests,
    /// Which resources may be used that nobody has approved one by one, because the server makes them at run
    /// time: none (`pinned`), those of approved templates and of links in results (`byTemplate`), or all
    /// (`dynamic`). Default `byTemplate`.
    #[serde(default)]
    pub(super) resources: ResourcePins,
    /// What callers are shown of some tools in place of the words of the server. What is approved stays the
    /// server's own definition.
    #[serde(default)]
    pub(super) overrides: Vec<RawToolOverride>,
}

/// What callers are shown of one tool in place of the words of its server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawToolOverride {
    /// The tool, by the name that the server gives it.
    pub(super) tool: String,
    /// Its title.
    pub(super) title: Option<String>,
    /// Its description.
    pub(super) description: Option<String>,
    /// The same of its arguments.
    #[serde(default)]
    pub(super) arguments: Vec<RawArgumentOverride>,
}

/// What callers are shown of one argument in place of the words of its server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawArgumentOverride {
    /// Which argument: a JSON Pointer into the arguments, such as `/path` or `/options/depth`. What is in
    /// the items of a list is named without a number: `/edits/oldText`.
    pub(super) argument: String,
    /// Its title.
    pub(super) title: Option<String>,
    /// Its description.
    pub(super) description: Option<String>,
}

/// What a server may ask of clients. What is left out is refused.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawServerRequests {
    /// Forms for the user (`elicitation/create` in `form` mode). `{}` allows forms that ask for no
    /// secrets.
    pub(super) forms: Option<RawForms>,
    /// Pages for the user to open (`elicitation/create` in `url` mode).
    pub(super) urls: Option<RawUrls>,
    /// Messages for the client's model (`sampling/createMessage`).
    pub(super) sampling: Option<RawSampling>,
    /// The client's folders (`roots/list`). `{}` allows it.
    pub(super) roots: Option<RawRoots>,
}

/// Forms for the user.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawForms {
    /// What is done about a form with a field for a password, a token, a card number or another secret,
    /// by what its fields are called. Default `refuse`: the protocol forbids such forms.
    pub(super) secrets: RawFormSecrets,
    /// What is done about a form that asks for a standing grant: one for everything, or for all later calls
    /// (`always allow`, `do not ask again`, scopes such as `Mail.Read.All`). Default `refuse`.
    pub(super) standing_grants: RawStandingGrants,
}

/// What is done about a question that asks for a standing grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawStandingGrants {
    /// It is not asked.
    #[default]
    Refuse,
    /// It is asked.
    Allow,
}

/// What is done about a form that asks for a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawFormSecrets {
    /// It is not asked.
    #[default]
    Refuse,
    /// It is asked.
    Allow,
}

/// Pages for the user to open.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawUrls {
    /// Their hosts, such as `login.example.com` or `*.example.com`, with `:PORT` where it is not 443.
    /// Pages of other hosts, and those not over `https`, are refused. An address or a name inside a
    /// network has to be written as it is.
    pub(super) hosts: Vec<String>,
    /// What is done about a page that asks for a standing grant: a URL with a scope such as `Files.Read.All`,
    /// `offline_access` or `.default`, or a message as in `forms`. Default `refuse`.
    #[serde(default)]
    pub(super) standing_grants: RawStandingGrants,
}

/// Messages for the client's model.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawSampling {
    /// Most tokens of the model's answer (`maxTokens`). Default 4096.
    #[schemars(range(min = 1))]
    pub(super) max_tokens: Option<u32>,
    /// Most messages in one request. Default 32.
    #[schemars(range(min = 1))]
    pub(super) messages: Option<usize>,
    /// Most bytes of one request, such as `64KiB`, the default.
    pub(super) size: Option<String>,
    /// What is done about a request for more tokens, or with an `includeContext` other than `none`.
    /// Default `refuse`.
    pub(super) over: RawSamplingOver,
}

/// What is done about a request for more than there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawSamplingOver {
    /// It is refused.
    #[default]
    Refuse,
    /// It is passed on with the limit, and without the context.
    Cut,
}

/// The client's folders.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRoots {}

/// When a server that keeps failing is left alone: what is asked of it is refused at once, but for one
/// request after each pause. Connections that fail or break, programs that end, time that runs out and
/// HTTP statuses from 500 are failures; what an answer says is none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawCircuitBreaker {
    /// After so many failures without an answer in between. Default 5.
    #[schemars(range(min = 1))]
    pub(super) failures: Option<u32>,
    /// The pause, such as `10s`. Default `30s`.
    pub(super) open_for: Option<String>,
}

/// How a server at a URL is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawTransport {
    /// Streamable HTTP, of 2025-03-26 and later.
    #[default]
    StreamableHttp,
    /// The HTTP+SSE transport of 2024-11-05, long deprecated.
    HttpSse,
}

/// Whether sessions share a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawSharing {
    /// One for all. A legacy server cannot ask its clients anything then, because nobody could say
    /// whom it means.
    Shared,
    /// One for each session, or each caller that has none.
    PerSession,
}

/// A variable in the environment of a program, or a header: exactly one of `value`, `fromEnv`, `fromFile` and
/// `fromCommand`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawVariable {
    /// Its name.
    pub(super) name: String,
    /// Its value, when it is no secret.
    pub(super) value: Option<String>,
    /// The variable of the gateway's environment that holds it.
    pub(super) from_env: Option<String>,
    /// The file that holds it.
    pub(super) from_file: Option<String>,
    /// A program that says it on its standard output: its absolute path and its arguments. No shell reads them.
    pub(super) from_command: Option<Vec<String>>,
    /// After how long the program is run again. If not given, `5m`; at most `24h`.
    pub(super) cache_time: Option<String>,
    /// How long the program may take. If not given, `10s`; at most `1m`.
    pub(super) timeout: Option<String>,
    /// How long after `cacheTime` its last answer is used when the program fails. If not given, `1h`; at most `24h`.
    pub(super) max_stale: Option<String>,
}

/// A reference to a secret: exactly one of `fromEnv`, `fromFile` and `fromCommand`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSecret {
    /// The environment variable that holds it.
    pub(super) from_env: Option<String>,
    /// The file that holds it.
    pub(super) from_file: Option<String>,
    /// A program that says it on its standard output: its absolute path and its arguments. No shell reads them.
    pub(super) from_command: Option<Vec<String>>,
    /// After how long the program is run again. If not given, `5m`; at most `24h`.
    pub(super) cache_time: Option<String>,
    /// How long the program may take. If not given, `10s`; at most `1m`.
    pub(super) timeout: Option<String>,
    /// How long after `cacheTime` its last answer is used when the program fails. If not given, `1h`; at most `24h`.
    pub(super) max_stale: Option<String>,
}

/// An era of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawProtocol {
    /// Found out by asking the server.
    #[default]
    Auto,
    /// 2026-07-28.
    Modern,
    /// 2025-11-25 and earlier: with `initialize`.
    Legacy,
}

/// A path on every listener, and the servers behind it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawRoute {
    /// The path, compared byte for byte.
    pub(super) path: String,
    /// The servers. The first keeps the names of its tools; a tool of each other is called `SERVER__TOOL`,
    /// unless `prefix` says otherwise.
    pub(super) servers: Vec<String>,
    /// When tools and prompts carry the name of their server.
    #[serde(default)]
    pub(super) prefix: RawPrefix,
    /// Serve clients of the old HTTP+SSE transport as well: at the path followed by `/sse`.
    #[serde(default)]
    pub(super) http_sse: bool,
    /// What access tokens have to be like here.
    #[serde(default)]
    pub(super) oauth: RawRouteOauth,
    /// Who is asked about arguments and results here, in this order.
    #[serde(default)]
    pub(super) guardrails: Vec<RawGuardrail>,
}

/// What access tokens have to be like on a route.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawRouteOauth {
    /// The resource tokens are for (RFC 8707); exactly this must be in `aud`. If not given, the
    /// `publicUrl` of the listener and the path.
    pub(super) resource: Option<String>,
    /// Other audiences that will do. A token that is good for more than one route can be taken from
    /// one server to another.
    #[serde(default)]
    pub(super) audiences: Vec<String>,
    /// Audiences that a token may have beside one that will do, such as the user information of its issuer. A token
    /// for these alone is refused.
    #[serde(default)]
    pub(super) besides: Vec<String>,
    /// The issuers that are believed here; all if not given.
    pub(super) issuers: Option<Vec<String>>,
    /// The scopes that clients are told to ask for first. A token without them is accepted: what is required stands in
    /// `scopes` of the rules.
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    /// The proof that every token here must come with.
    pub(super) proof: Option<Wanted>,
    /// Proofs of possession by DPoP must have a nonce of the gateway in them (RFC 9449, section 9):
    /// then none can be made in advance, and replicas with the same `sessions.keys` agree on them.
    #[serde(default)]
    pub(super) dpop_nonce: bool,
}

/// When tools carry the name of their server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum RawPrefix {
    /// Those of every server but the first: one that is added behind it renames nothing.
    #[default]
    Auto,
    /// Always, with one server too.
    Always,
    /// Where two servers offer the same name.
    OnConflict,
    /// Never: what two servers offer under the same name is left out.
    Never,
}

/// Sessions of clients that speak a revision before 2026-07-28.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSessions {
    /// The keys session ids are sealed with, 32 bytes in hexadecimal each. The first seals, all
    /// open. Without any a new one is made at every start, which ends all sessions.
    #[serde(default)]
    pub(super) keys: Vec<RawSecret>,
    /// How long a session lives, such as `12h`.
    pub(super) lifetime: Option<String>,
}

/// Bounds. Sizes are written `512B`, `64KiB` or `4MiB`, times `500ms`, `30s` or `10m`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawLimits {
    /// The body of one request. Default `4MiB`.
    pub(super) request_body: Option<String>,
    /// One answer of a server, one event of a stream and one line of a program. Default `16MiB`.
    pub(super) response_body: Option<String>,
    /// From so many bytes on final answers and arguments are inspected beside the threads that serve
    /// clients, a few at a time. Default `4KiB`.
    pub(super) inspected_inline: Option<String>,
    /// What the inspection of one message may cost, in units of one byte that one detector looks at: 2
    /// million and 256 for each byte of the message, and no more than this. A message that costs more is
    /// withheld. Default 1073741824, which is about one second of a processor. For messages below about 4
    /// MB `inspectionWorkPerByte` is what bounds the work.
    pub(super) inspection_work: Option<u64>,
    /// What each byte of a message adds to what inspecting it may cost, instead of 256 units. Raise it where
    /// good messages are withheld with a finding of `inspection-budget`. Default 256.
    pub(super) inspection_work_per_byte: Option<u64>,
    /// The parameters of one notification, or of one question, of a server. Default `1MiB`.
    pub(super) notification: Option<String>,
    /// The head of one request. Default `16KiB`.
    pub(super) request_head: Option<String>,
    /// Connections of clients to all listeners. Default 4096.
    pub(super) connections: Option<usize>,
    /// Connections of one IPv4 address or one IPv6 /64. Behind a reverse proxy every client has the
    /// address of the proxy: then give it as many as there are. Default three quarters of `connections`.
    pub(super) connections_per_address: Option<usize>,
    /// Requests that are being worked on. More are refused with 503. Default 1024.
    pub(super) in_flight: Option<usize>,
    /// Requests of one caller that are being worked on. More are refused with 429. Default half of
    /// `inFlight`.
    pub(super) in_flight_per_caller: Option<usize>,
    /// Requests of one IPv4 address or one IPv6 /64 whose sender is not authenticated yet. More are
    /// refused with 429. Default half of `inFlight`.
    pub(super) unauthenticated_per_address: Option<usize>,
    /// Bytes of `requestBodies`, `answers`, `lists`, `subscriptions` and `replayMemory` together: each of them has a bound
    /// of its own, and all of them have this one. Default `192MiB`, and no less than the largest of `requestBodies`,
    /// `answers` and `replayMemory`.
    pub(super) memory: Option<String>,
    /// Those of one caller. Default half of `memory`, and no less than the largest share that one caller has of
    /// `requestBodies`, `answers` or `replayMemory`.
    pub(super) memory_per_caller: Option<String>,
    /// Bytes of the bodies of all requests that are being worked on. Default `192MiB`, and no less than
    /// four times `requestBody`.
    pub(super) request_bodies: Option<String>,
    /// Those of one caller. Default half of `requestBodies`.
    pub(super) request_bodies_per_caller: Option<String>,
    /// Bytes of answers of servers that are being read, or are looked at after they were read, with what their
    /// values take in memory. Of each, up to 16 KiB are not counted. Default `192MiB`, and no less than eight
    /// times `responseBody`.
    pub(super) answers: Option<String>,
    /// Those that one caller waits for. Default half of `answers`.
    pub(super) answers_per_caller: Option<String>,
    /// Those of one server; also of all its lists that are kept for all callers. Default a quarter of `answers`.
    pub(super) answers_per_server: Option<String>,
    /// Bytes of the lists that are kept of what servers offer to one caller or in one session. A list that
    /// several are shown is kept once. What is over it is read again when it is needed. Default `64MiB`.
    pub(super) lists: Option<String>,
    /// Those that were read for one caller. Default half of `lists`.
    pub(super) lists_per_caller: Option<String>,
    /// Bytes of compiled schemas of tools, as they are estimated. What is over it is compiled again when it
    /// is needed. Default `64MiB`.
    pub(super) schemas: Option<String>,
    /// Those of one server. Default half of `schemas`.
    pub(super) schemas_per_server: Option<String>,
    /// Bytes of the URIs that clients listen for or subscribe to. Each is kept in up to three places and
    /// counted as often, with 128 bytes more. Default `64MiB`.
    pub(super) subscriptions: Option<String>,
    /// Those of one caller. More are refused with 429. Default half of `subscriptions`.
    pub(super) subscriptions_per_caller: Option<String>,
    /// Bytes of messages that wait to be sent on one channel: to one process of a `command`, or on one stream of an
    /// `httpSse` server. Each counts 256 bytes more than its text. Default `16MiB`, or four times
    /// `requestBody` where that is more.
    pub(super) send_queue: Option<String>,
    /// Those of one caller, at least `requestBody`. One that finds no room within `connectTime` is refused with
    /// 503. Default half of `sendQueue`.
    pub(super) send_queue_per_caller: Option<String>,
    /// Until the head of a request has come, and again until its body has. Default `10s`.
    pub(super) request_time: Option<String>,
    /// Until a server has taken a connection. Default `5s`.
    pub(super) connect_time: Option<String>,
    /// Until a server answers, and between two events of its answer. Default `60s`.
    pub(super) answer_time: Option<String>,
    /// Until a server's answer is complete, progress or not. Default `10m`.
    pub(super) total_time: Option<String>,
    /// How long a server's list is relied on for calls before it is read again. Default `60s`.
    pub(super) catalog_age: Option<String>,
    /// Tools of one server, and prompts, resources and templates. Default 2000.
    pub(super) tools: Option<usize>,
    /// Pages of one list. Default 100.
    pub(super) pages: Option<usize>,
    /// Sessions in use that have streams, subscriptions or a log level, and calls of sessions that can
    /// be cancelled. Default 10000.
    pub(super) sessions: Option<usize>,
    /// Sessions of one caller that have them. Default half of `sessions`.
    pub(super) sessions_per_caller: Option<usize>,
    /// Sessions that are remembered to have ended before their time. A caller who ends more ends those
    /// that it opened before. Default 100000.
    pub(super) ended_sessions: Option<usize>,
    /// Those of one caller. Default half of `endedSessions`.
    pub(super) ended_sessions_per_caller: Option<usize>,
    /// Until every server of a route has listed what it offers; those that are late are left out.
    /// Default `10s`.
    pub(super) list_time: Option<String>,
    /// Until a client has answered what a server asks it. Default `10m`.
    pub(super) input_time: Option<String>,
    /// Calls of modern clients that wait for such an answer. Default 1000.
    pub(super) parked: Option<usize>,
    /// Those of one caller. Default half of `parked`.
    pub(super) parked_per_caller: Option<usize>,
    /// Streams of one legacy session. Default 32.
    pub(super) streams: Option<usize>,
    /// Event streams that are open and belong to no call: the stream of a session, `subscriptions/listen`,
    /// HTTP+SSE. Default 4096.
    pub(super) event_streams: Option<usize>,
    /// Those of one caller. More are refused with 429. Default half of `eventStreams`.
    pub(super) event_streams_per_caller: Option<usize>,
    /// Events of one stream that are kept for a client that comes back. Default 256.
    pub(super) replay_events: Option<usize>,
    /// Bytes of one stream that wait to be read, or are kept for a client that comes back. A single event
    /// may be longer. Default `1MiB`.
    pub(super) replay_bytes: Option<String>,
    /// Bytes that all streams keep together. Default `192MiB`.
    pub(super) replay_memory: Option<String>,
    /// Bytes that all streams of one caller keep together. Default half of `replayMemory`.
    pub(super) replay_memory_per_caller: Option<String>,
    /// How long they are kept when the client does not come back. Default `5m`.
    pub(super) replay_time: Option<String>,
    /// Bytes of results that are kept because they are too long for an answer (`size` with `over:
    /// offload` in the policy). Default `64MiB`.
    pub(super) kept_results: Option<String>,
    /// Those of one caller. Default a quarter of `keptResults`.
    pub(super) kept_results_per_caller: Option<String>,
    /// How long they are kept. Default `10m`.
    pub(super) kept_time: Option<String>,
    /// How long a client may take nothing of what is written to it. Default `30s`.
    pub(super) write_time: Option<String>,
    /// Messages of one batch, of a client that speaks 2025-03-26. Default 50.
    pub(super) batch: Option<usize>,
    /// Processes of one server that serve one session each. Default 64.
    pub(super) processes: Option<usize>,
    /// How many of them one caller may have. One that wants more loses the one it has not used for
    /// longest; if all are in use, it is refused. Default 16.
    pub(super) processes_per_caller: Option<usize>,
    /// Verified tokens that are remembered. Default 10000.
    pub(super) tokens: Option<usize>,
    /// Bytes of the tokens that are remembered with the names in them, as they are estimated; as many again of the
    /// tokens that were got for callers. What is over it is verified, asked about or got again for each request. Default
    /// `32MiB`.
    pub(super) token_memory: Option<String>,
    /// Those of one caller. Default a quarter of `tokenMemory`.
    pub(super) token_memory_per_caller: Option<String>,
    /// Proofs of possession that are remembered so that none is used twice. Default 100000.
    pub(super) proofs: Option<usize>,
    /// Callers whose shares are others than those of everybody: an account that stands for many people.
    #[serde(default)]
    pub(super) callers: Vec<RawCallerLimits>,
    /// Connections that speak HTTP/2, with clients and with servers.
    #[serde(default)]
    pub(super) http2: RawHttp2,
    /// How long in-flight requests may take to end when the gateway is stopped. Default `10s`.
    pub(super) drain_time: Option<String>,
    /// How long the gateway goes on as before when it is told to stop, no longer ready: until those who
    /// send it clients have noticed. Without it, it does not.
    pub(super) lame_duck_time: Option<String>,
}

/// Other shares for some callers. What is not given is as for everybody.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawCallerLimits {
    /// Who, by the name that records have in `principal`: `ana`, `ISSUER/SUBJECT`, `service:ISSUER/CLIENT`.
    pub(super) principals: Vec<String>,
    /// Requests of each of them that are being worked on.
    pub(super) in_flight_per_caller: Option<usize>,
    /// Bytes of the bodies of the requests of each of them.
    pub(super) request_bodies_per_caller: Option<String>,
    /// Calls of each of them that wait for an answer of their client.
    pub(super) parked_per_caller: Option<usize>,
    /// Event streams of each of them that belong to no call.
    pub(super) event_streams_per_caller: Option<usize>,
    /// Bytes of the URIs that each of them listens for.
    pub(super) subscriptions_per_caller: Option<String>,
    /// Bytes of kept lists of servers that were read for each of them.
    pub(super) lists_per_caller: Option<String>,
    /// Bytes of the answers of servers that each of them waits for.
    pub(super) answers_per_caller: Option<String>,
}

/// The bounds of one connection that speaks HTTP/2.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawHttp2 {
    /// Requests that are under way on one connection. A client is refused the next stream; to a server
    /// another connection is made. Default 100.
    pub(super) streams: Option<usize>,
    /// Streams that a client may reset beyond those that were answered, and streams that are reset for
    /// what it sends on them. As many again are allowed within ten seconds. A client that resets more
    /// loses the connection. Default 200.
    pub(super) resets: Option<usize>,
    /// Frames that carry nothing: pings, settings, priorities, window updates, empty data, frames that go
    /// on with a list of headers. As many again are allowed within ten seconds, and ten for each frame
    /// that the peer is sent. A peer that sends more loses the connection. Default 1000.
    pub(super) control: Option<usize>,
    /// Bytes of one body that a peer may send before they are read: a client that has sent an authenticated request on
    /// the connection, and 16 KiB before. Default `256KiB`.
    pub(super) window: Option<String>,
    /// Those of all bodies of one client's connection, where it has sent an authenticated request; 64 KiB before.
    /// Default `1MiB`.
    pub(super) connection_window: Option<String>,
    /// Bytes of one body that wait to be written. Default `256KiB`.
    pub(super) send_buffer: Option<String>,
    /// Bytes of answers that wait on one client's connection because it does not read them. The next
    /// stream is reset. Default `128MiB`, and no less than `responseBody`.
    pub(super) answers: Option<String>,
    /// How long a client's connection is kept without a request. Default `60s`.
    pub(super) idle_time: Option<String>,
    /// After how long without a byte a peer that has requests under way is sent a ping. Default `30s`.
    pub(super) ping_time: Option<String>,
    /// How long a peer may take to answer it. Default `60s`.
    pub(super) ping_timeout: Option<String>,
}
