//! Decides which requests a server may make of a client: elicitation, sampling and roots.
//!
//! Each decision concerns one request and is the same for both protocol eras: a legacy server sends a JSON-RPC
//! request, a modern one puts the request into a result. The gateway applies the decision and records its reason.
//! What is not configured is refused.

mod wording;
mod names;
mod readings;
mod form;
mod flat;
mod grant;
mod roots;
mod url;
mod answer_format;
mod answer;

pub use answer::{AnswerTerms, LONGEST_TERMS, RequestTerms};
pub use roots::RootsPolicy;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use detection::content::PersonalKind;
use json::{JsonKind, Value};
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;
use policy_core::subject::scope;

use self::names::FieldSubject;
use crate::definition::offer::ReadOnlyHint;
use crate::definition::registry::RateLimit;

/// The method of an elicitation request, which asks the user.
const ELICIT: &str = "elicitation/create";
/// The method of a sampling request, which asks the model.
const SAMPLE: &str = "sampling/createMessage";
/// The method that lists the client's roots.
const ROOTS: &str = "roots/list";

/// Most requests that a server may make at once.
pub const AT_ONCE: usize = 32;

/// Longest parameters of an elicitation request, in bytes.
const ELICITATION: usize = 64 * 1024;

/// Members that clients read. Some clients also read a name that differs from one of these in case, word separators
/// or confusable letters.
static READ: LazyLock<MemberNames> = LazyLock::new(|| {
    MemberNames::new(&[
        "mode",
        "message",
        "requestedSchema",
        "url",
        "elicitationId",
        "messages",
        "systemPrompt",
        "includeContext",
        "maxTokens",
        "tools",
        "toolChoice",
        "modelPreferences",
        "stopSequences",
        "temperature",
        "metadata",
        "task",
    ])
});

/// Members that clients read in the model preferences of a sampling request.
static READ_IN_PREFERENCES: LazyLock<MemberNames> = LazyLock::new(|| {
    MemberNames::new(&["hints", "costPriority", "speedPriority", "intelligencePriority"])
});

/// Members that clients read in the schema of a form.
static READ_IN_SCHEMA: LazyLock<MemberNames> =
    LazyLock::new(|| MemberNames::new(&["type", "properties", "required", "title", "description"]));

/// Members that clients read in the schema of a field.
static READ_IN_FIELD: LazyLock<MemberNames> = LazyLock::new(|| {
    MemberNames::new(&[
        "type",
        "title",
        "description",
        "format",
        "default",
        "enum",
        "enumNames",
        "oneOf",
        "anyOf",
        "items",
        "const",
    ])
});

/// Optional members of a sampling request, with their JSON types (SPEC 2025-11-25 client/sampling).
const OPTIONAL: [(&str, &str, &[JsonKind]); 7] = [
    ("temperature", "/temperature", &[JsonKind::Number]),
    ("systemPrompt", "/systemPrompt", &[JsonKind::Plain, JsonKind::Escaped]),
    ("stopSequences", "/stopSequences", &[JsonKind::Array]),
    ("modelPreferences", "/modelPreferences", &[JsonKind::Object]),
    ("metadata", "/metadata", &[JsonKind::Object]),
    ("tools", "/tools", &[JsonKind::Array]),
    ("toolChoice", "/toolChoice", &[JsonKind::Object]),
];

/// Mode of an elicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElicitationMode {
    /// A form that the client displays.
    Form,
    /// A page that the client opens.
    Page,
}

/// A member of the parameters of an elicitation request.
struct ElicitationMember {
    name: &'static str,
    /// JSON Pointer of the member in the parameters.
    at: &'static str,
    /// The mode that has the member; `None` if both have it.
    of: Option<ElicitationMode>,
    /// JSON types that the member may have.
    kinds: &'static [JsonKind],
}

/// JSON types of a string.
const TEXT: &[JsonKind] = &[JsonKind::Plain, JsonKind::Escaped];
/// JSON types of an optional object.
const OBJECT_OR_NULL: &[JsonKind] = &[JsonKind::Object, JsonKind::Null];

/// Every member of an elicitation request (SPEC 2025-11-25 and 2026-07-28 client/elicitation).
const ELICITATION_MEMBERS: [ElicitationMember; 7] = {
    use ElicitationMode::{Form, Page};
    [
        ElicitationMember { name: "mode", at: "/mode", of: None, kinds: TEXT },
        ElicitationMember { name: "message", at: "/message", of: None, kinds: TEXT },
        ElicitationMember { name: "_meta", at: "/_meta", of: None, kinds: OBJECT_OR_NULL },
        ElicitationMember { name: "task", at: "/task", of: None, kinds: OBJECT_OR_NULL },
        ElicitationMember {
            name: "requestedSchema",
            at: "/requestedSchema",
            of: Some(Form),
            kinds: &[JsonKind::Object],
        },
        ElicitationMember { name: "url", at: "/url", of: Some(Page), kinds: TEXT },
        ElicitationMember {
            name: "elicitationId",
            at: "/elicitationId",
            of: Some(Page),
            kinds: TEXT,
        },
    ]
};

/// What one server may request of clients. The default permits nothing.
#[derive(Clone, Debug, Default)]
pub struct ServerRequestPolicy {
    /// Elicitation with forms; `None` refuses it.
    pub forms: Option<FormPolicy>,
    /// Elicitation with URLs that the user opens; `None` refuses it.
    pub urls: Option<UrlPolicy>,
    /// Sampling requests to the client's model; `None` refuses them.
    pub sampling: Option<SamplingPolicy>,
    /// Requests for the client's roots; `None` refuses them.
    pub roots: Option<RootsPolicy>,
    /// How many requests each caller is sent; `None` is no limit. More are refused, so that a user does not agree to the
    /// next one out of weariness (threat T1403).
    pub rate: Option<RateLimit>,
    /// The name of the server, which the message of each elicitation then begins with; `None` adds nothing. On a route
    /// with several servers the user cannot tell otherwise who asks.
    pub named: Option<ServerName>,
}

/// Limits of elicitation with forms.
#[derive(Clone, Debug, Default)]
pub struct FormPolicy {
    /// How a form that asks for a secret is treated.
    pub secrets: SecretFormAction,
    /// The personal data that a form may ask for.
    pub personal: PersonalFormData,
    /// How a form that asks for a standing grant is treated.
    pub standing: StandingGrantAction,
}

/// Which personal data a form may ask for. By default what honest forms ask for all the time: names, addresses, telephone
/// numbers and dates of birth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonalFormData(pub Box<[PersonalKind]>);

impl Default for PersonalFormData {
    fn default() -> Self {
        use PersonalKind::{Address, BirthDate, Email, Name, Phone};
        Self([Name, Email, Phone, Address, BirthDate].into())
    }
}

/// How a form that asks for a secret is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecretFormAction {
    /// The request is refused.
    #[default]
    Refuse,
    /// The request is passed on.
    Allow,
}

/// How a request for a standing grant is treated: a permission for everything, or for all later calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandingGrantAction {
    /// The request is refused.
    #[default]
    Refuse,
    /// The request is passed on.
    Allow,
}

/// Limits of elicitation with URLs.
#[derive(Clone, Debug)]
pub struct UrlPolicy {
    /// Permitted hosts, each with `:PORT` unless the port is 443.
    pub hosts: Vec<Pattern>,
    /// How a page that asks for a standing grant is treated.
    pub standing: StandingGrantAction,
}

/// Limits of sampling requests.
#[derive(Clone, Debug)]
pub struct SamplingPolicy {
    /// Most tokens of the model's answer.
    pub max_tokens: u64,
    /// Most messages in a request.
    pub messages: usize,
    /// Most bytes of a request.
    pub size: usize,
    /// Most bytes of the model's answer.
    pub answer_size: usize,
    /// How a request for more tokens, or for the context of other servers, is treated.
    pub over: SamplingExcessAction,
    /// How the models that the server would like are treated.
    pub hints: ModelHintAction,
}

/// How `modelPreferences.hints` of a sampling request are treated: with these a server chooses which model the client's
/// user pays for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelHintAction {
    /// The hints are removed.
    #[default]
    Drop,
    /// They are passed on.
    Keep,
}

/// How a sampling request that exceeds its limits is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingExcessAction {
    /// The request is refused.
    Refuse,
    /// The request is reduced to its limits.
    Cut,
}

/// A change to a request: the text replaces these bytes of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonEdit {
    /// Byte range in the document.
    pub span: Range<usize>,
    /// The JSON text to insert.
    pub text: String,
}

/// What a request is for. Each of these has a setting of its own under `serverRequests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPurpose {
    /// To show a form to the user.
    Form,
    /// To send the user to a page.
    Page,
    /// To ask the client's model.
    Sampling,
    /// To list the client's roots.
    Roots,
    /// Something that no setting allows.
    Other,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The configuration does not allow the server to make requests of this kind.
    NotConfigured(RequestPurpose),
    /// The form asks for a secret.
    Secret,
    /// The form asks for personal data of a kind that is not permitted.
    PersonalData(PersonalKind),
    /// The form or page asks for a standing grant.
    Standing,
    /// Write scopes are requested during a call of a tool that claims to be read-only.
    WriteScope,
    /// The page is not an `https` page of a listed host.
    Url,
    /// The request asks for the context of other servers.
    Context,
    /// The request exceeds a size limit.
    Size,
    /// The request does not conform to the protocol.
    Malformed,
    /// More than [`AT_ONCE`] requests are made at once.
    Count,
    /// The server makes more requests than its rate permits.
    Rate,
    /// The request could not be inspected completely.
    Unjudged,
    /// The client is the trusted planner, and who asks is not trusted.
    Planner,
}

impl RefusalReason {
    /// Every reason for a refusal.
    const ALL: [Self; 25] = [
        Self::NotConfigured(RequestPurpose::Form),
        Self::NotConfigured(RequestPurpose::Page),
        Self::NotConfigured(RequestPurpose::Sampling),
        Self::NotConfigured(RequestPurpose::Roots),
        Self::NotConfigured(RequestPurpose::Other),
        Self::Secret,
        Self::PersonalData(PersonalKind::Name),
        Self::PersonalData(PersonalKind::Email),
        Self::PersonalData(PersonalKind::Phone),
        Self::PersonalData(PersonalKind::Address),
        Self::PersonalData(PersonalKind::BirthDate),
        Self::PersonalData(PersonalKind::NationalId),
        Self::PersonalData(PersonalKind::BankAccount),
        Self::PersonalData(PersonalKind::Card),
        Self::PersonalData(PersonalKind::Health),
        Self::Standing,
        Self::WriteScope,
        Self::Url,
        Self::Context,
        Self::Size,
        Self::Malformed,
        Self::Count,
        Self::Rate,
        Self::Unjudged,
        Self::Planner,
    ];

    /// Every code, for the documentation and its test.
    pub const CODES: [&str; 13] = [
        "server-request-not-configured",
        "server-request-secret",
        "server-request-personal-data",
        "server-request-standing-grant",
        "server-request-write-scope",
        "server-request-url",
        "server-request-context",
        "server-request-size",
        "server-request-malformed",
        "server-request-count",
        "server-request-rate",
        "server-request-not-inspected",
        "server-request-planner",
    ];

    /// The stable code for clients, metrics and the audit log.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotConfigured(_) => "server-request-not-configured",
            Self::Secret => "server-request-secret",
            Self::PersonalData(_) => "server-request-personal-data",
            Self::Standing => "server-request-standing-grant",
            Self::WriteScope => "server-request-write-scope",
            Self::Url => "server-request-url",
            Self::Context => "server-request-context",
            Self::Size => "server-request-size",
            Self::Malformed => "server-request-malformed",
            Self::Count => "server-request-count",
            Self::Rate => "server-request-rate",
            Self::Unjudged => "server-request-not-inspected",
            Self::Planner => "server-request-planner",
        }
    }

    /// Explains the reason in one sentence.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::NotConfigured(RequestPurpose::Form) => {
                "the gateway is not configured to allow this server `serverRequests: {formElicitation: {}}`"
            }
            Self::NotConfigured(RequestPurpose::Page) => {
                "the gateway is not configured to allow this server `serverRequests: {urlElicitation: {hosts: [...]}}`"
            }
            Self::NotConfigured(RequestPurpose::Sampling) => {
                "the gateway is not configured to allow this server `serverRequests: {sampling: {...}}`"
            }
            Self::NotConfigured(RequestPurpose::Roots) => {
                "the gateway is not configured to allow this server `serverRequests: {roots: {}}`"
            }
            Self::NotConfigured(RequestPurpose::Other) => {
                "the gateway passes on no request of this kind"
            }
            Self::Secret => "the form requests a secret",
            Self::PersonalData(kind) => personal_note(kind),
            Self::Standing => "standing consent requested",
            Self::WriteScope => "write scope requested by a read-only tool",
            Self::Url => "the page is not an https page of a listed host",
            Self::Context => "the request includes the context of other servers",
            Self::Size => "the request exceeds the size limit",
            Self::Malformed => "the request is malformed",
            Self::Count => "too many requests at once from this server",
            Self::Rate => "too many requests from this server in a short time",
            Self::Unjudged => "inspection budget exceeded by the request",
            Self::Planner => {
                "the client is the trusted planner, and this server or tool is untrusted"
            }
        }
    }

    /// Whether a server that gives this text as the message of an error passes on what it was told when its request was
    /// refused. Libraries put their own words in front.
    #[must_use]
    pub fn is_passed_on(message: &str) -> bool {
        Self::ALL.iter().any(|reason| message.ends_with(reason.note()))
    }
}

/// The refusal of a request, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why the request is refused.
    pub reason: RefusalReason,
    /// JSON Pointer into the `params` of the request.
    pub at: &'static str,
}

impl Refusal {
    /// The refusal of a request that exceeds the rate of its server.
    #[must_use]
    pub const fn too_often() -> Self {
        refuse(RefusalReason::Rate, "")
    }

    /// The refusal of requests whose answers could not be compared with them: together they are too long.
    #[must_use]
    pub const fn too_long() -> Self {
        refuse(RefusalReason::Size, "")
    }

    /// The refusal of a request that could not be inspected: it exceeds the budget, or no capacity is free.
    #[must_use]
    pub const fn unjudged() -> Self {
        refuse(RefusalReason::Unjudged, "")
    }

    /// The refusal of a request of an untrusted server or tool to the trusted planner.
    #[must_use]
    pub const fn to_planner() -> Self {
        refuse(RefusalReason::Planner, "")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.code(), self.reason.note())
    }
}

/// The note for a form that asks for personal data, with the setting that would permit it.
const fn personal_note(kind: PersonalKind) -> &'static str {
    match kind {
        PersonalKind::Name => {
            "the form requests the name of a person, which `formElicitation: {personalData: [name]}` would permit"
        }
        PersonalKind::Email => {
            "the form requests an e-mail address, which `formElicitation: {personalData: [email]}` would permit"
        }
        PersonalKind::Phone => {
            "the form requests a telephone number, which `formElicitation: {personalData: [phone]}` would permit"
        }
        PersonalKind::Address => {
            "the form requests a postal address, which `formElicitation: {personalData: [address]}` would permit"
        }
        PersonalKind::BirthDate => {
            "the form requests a date of birth, which `formElicitation: {personalData: [birthDate]}` would permit"
        }
        PersonalKind::NationalId => {
            "the form requests an identity number, which `formElicitation: {personalData: [nationalId]}` would permit"
        }
        PersonalKind::BankAccount => {
            "the form requests a bank account, which `formElicitation: {personalData: [bankAccount]}` would permit"
        }
        PersonalKind::Card => {
            "the form requests a payment card, which `formElicitation: {personalData: [card]}` would permit"
        }
        PersonalKind::Health => {
            "the form requests health data, which `formElicitation: {personalData: [health]}` would permit"
        }
    }
}

const fn refuse(reason: RefusalReason, at: &'static str) -> Refusal {
    Refusal { reason, at }
}

impl ServerRequestPolicy {
    /// Whether the server may make no requests at all.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.forms.is_none()
            && self.urls.is_none()
            && self.sampling.is_none()
            && self.roots.is_none()
    }

    /// Decides about requests that a server makes at once, of which all or none are passed on; each has a method and
    /// parameters. Returns the edits to each. `hint` is the read-only claim of the tool whose call makes the
    /// requests.
    ///
    /// # Errors
    /// The refusal of the first request that is refused, or of more than [`AT_ONCE`] requests.
    pub fn decide_all<'a>(
        &self,
        asked: impl IntoIterator<Item = (Cow<'a, str>, Option<Value<'a>>)>,
        hint: ReadOnlyHint,
        budget: &WorkBudget,
    ) -> Result<Vec<Vec<JsonEdit>>, Refusal> {
        let mut all = Vec::new();
        for (method, params) in asked {
            if all.len() == AT_ONCE {
                return Err(refuse(RefusalReason::Count, ""));
            }
            all.push(self.decide(&method, params, hint, budget)?);
        }
        Ok(all)
    }

    /// Returns the edits to a request before it is passed on, or refuses it.
    fn decide(
        &self,
        method: &str,
        params: Option<Value<'_>>,
        hint: ReadOnlyHint,
        budget: &WorkBudget,
    ) -> Result<Vec<JsonEdit>, Refusal> {
        let edits = match method {
            ELICIT => self.elicitation(params, hint, budget),
            SAMPLE => self.sampling(params, budget),
            ROOTS if self.roots.is_some() => Ok(Vec::new()),
            ROOTS => Err(refuse(RefusalReason::NotConfigured(RequestPurpose::Roots), "")),
            _ => Err(refuse(RefusalReason::NotConfigured(RequestPurpose::Other), "")),
        };
        // An incomplete inspection makes the other result meaningless.
        if budget.is_exhausted() { Err(Refusal::unjudged()) } else { edits }
    }

    fn elicitation(
        &self,
        params: Option<Value<'_>>,
        hint: ReadOnlyHint,
        budget: &WorkBudget,
    ) -> Result<Vec<JsonEdit>, Refusal> {
        if self.forms.is_none() && self.urls.is_none() {
            let mode = params.and_then(|params| params.get("mode")).and_then(Value::as_str);
            let purpose = match mode.as_deref() {
                Some("url") => RequestPurpose::Page,
                Some(_) | None => RequestPurpose::Form,
            };
            return Err(refuse(RefusalReason::NotConfigured(purpose), ""));
        }
        let params = plain(params, ELICITATION, budget)?;
        let malformed = |at| refuse(RefusalReason::Malformed, at);
        // Without a message nothing would say who asks.
        if self.named.is_some() && params.get("message").is_none() {
            return Err(malformed("/message"));
        }
        let mode = match params.get("mode") {
            None => None,
            Some(mode) => Some(mode.as_str().ok_or_else(|| malformed("/mode"))?),
        };
        match mode.as_deref() {
            None | Some("form") => {
                let forms = self.forms.as_ref();
                let refusal = RefusalReason::NotConfigured(RequestPurpose::Form);
                let forms = forms.ok_or(refuse(refusal, "/mode"))?;
                ElicitationMode::Form.has_its_members_alone(params)?;
                let schema = params.get("requestedSchema");
                if schema.is_some_and(|schema| !flat::is_form(schema, budget)) {
                    return Err(malformed("/requestedSchema"));
                }
                forms.may_ask(params, budget)?;
                let terms = self.terms(ELICIT, Some(params));
                if !terms.can_be_met(budget) {
                    return Err(malformed("/requestedSchema"));
                }
                Ok(self.signed(params))
            }
            Some("url") => {
                let urls = self.urls.as_ref();
                let refusal = RefusalReason::NotConfigured(RequestPurpose::Page);
                let urls = urls.ok_or(refuse(refusal, "/mode"))?;
                ElicitationMode::Page.has_its_members_alone(params)?;
                urls.may_open(params, hint, budget).map(|()| self.signed(params))
            }
            Some(_) => Err(malformed("/mode")),
        }
    }

    /// The edit that makes the message of an elicitation begin with the name of its server.
    fn signed(&self, params: Value<'_>) -> Vec<JsonEdit> {
        let message = self.named.as_ref().zip(params.get("message"));
        let edit = message.and_then(|(server, message)| {
            // A name has no character that is written differently inside a JSON string.
            let text = message.raw().strip_prefix('"')?;
            Some(JsonEdit {
                span: message.span(),
                text: format!("\"The server `{server}` asks: {text}"),
            })
        });
        edit.into_iter().collect()
    }

    /// The edits to a client's answer before the server gets it: roots that are not granted are removed.
    #[must_use]
    pub fn answer_edits(&self, answer: Value<'_>) -> Vec<JsonEdit> {
        self.roots.as_ref().map(|roots| roots.edits(answer)).unwrap_or_default()
    }

    fn sampling(
        &self,
        params: Option<Value<'_>>,
        budget: &WorkBudget,
    ) -> Result<Vec<JsonEdit>, Refusal> {
        let sampling = self.sampling.as_ref();
        let refusal = RefusalReason::NotConfigured(RequestPurpose::Sampling);
        let sampling = sampling.ok_or(refuse(refusal, ""))?;
        let params = plain(params, sampling.size, budget)?;
        let messages = params.get("messages").filter(|value| value.kind() == JsonKind::Array);
        let messages = messages.ok_or(refuse(RefusalReason::Malformed, "/messages"))?;
        if messages.items().count() > sampling.messages {
            return Err(refuse(RefusalReason::Size, "/messages"));
        }
        let is_of_a_role = |message: Value<'_>| {
            let role = message.get("role").and_then(Value::as_str);
            role.is_some_and(|role| matches!(&*role, "user" | "assistant"))
        };
        if !messages.items().all(is_of_a_role) {
            return Err(refuse(RefusalReason::Malformed, "/messages"));
        }
        for (name, at, kinds) in OPTIONAL {
            let kind = params.get(name).map(Value::kind).filter(|kind| *kind != JsonKind::Null);
            if kind.is_some_and(|kind| !kinds.contains(&kind)) {
                return Err(refuse(RefusalReason::Malformed, at));
            }
        }
        let mut edits = Vec::new();
        let tokens =
            params.get("maxTokens").ok_or(refuse(RefusalReason::Malformed, "/maxTokens"))?;
        let wanted = tokens.as_i64().and_then(|wanted| u64::try_from(wanted).ok());
        match (wanted, sampling.over) {
            (None, _) => return Err(refuse(RefusalReason::Malformed, "/maxTokens")),
            (Some(wanted), _) if wanted <= sampling.max_tokens => {}
            (Some(_), SamplingExcessAction::Refuse) => {
                return Err(refuse(RefusalReason::Size, "/maxTokens"));
            }
            (Some(_), SamplingExcessAction::Cut) => {
                edits.push(JsonEdit { span: tokens.span(), text: sampling.max_tokens.to_string() });
            }
        }
        let context = params.get("includeContext");
        if let Some(context) = context.filter(|context| context.as_str().as_deref() != Some("none"))
        {
            if sampling.over == SamplingExcessAction::Refuse {
                return Err(refuse(RefusalReason::Context, "/includeContext"));
            }
            edits.push(JsonEdit { span: context.span(), text: "\"none\"".to_owned() });
        }
        let wanted = params.get("modelPreferences");
        let mut members = wanted.into_iter().flat_map(Value::members);
        if !members.all(|(name, _)| READ_IN_PREFERENCES.tells_apart(&name, budget)) {
            return Err(refuse(RefusalReason::Malformed, "/modelPreferences"));
        }
        let hints = wanted.and_then(|wanted| wanted.get("hints"));
        if let Some(hints) = hints.filter(|_| sampling.hints == ModelHintAction::Drop)
            && hints.raw() != "[]"
        {
            edits.push(JsonEdit { span: hints.span(), text: "[]".to_owned() });
        }
        Ok(edits)
    }
}

impl ElicitationMode {
    /// Checks that the parameters have no member of the other mode, and that each member has the right type. Some
    /// clients open a URL in a form request, and those that ignore `mode` display a form in a URL request.
    fn has_its_members_alone(self, params: Value<'_>) -> Result<(), Refusal> {
        let amiss = ELICITATION_MEMBERS.iter().find(|member| {
            let is_its_own = member.of.is_none_or(|of| of == self);
            let value = params.get(member.name);
            value.is_some_and(|value| !is_its_own || !member.kinds.contains(&value.kind()))
        });
        amiss.map_or(Ok(()), |member| Err(refuse(RefusalReason::Malformed, member.at)))
    }
}

impl FormPolicy {
    /// Whether a form may be shown to the user.
    fn may_ask(&self, params: Value<'_>, budget: &WorkBudget) -> Result<(), Refusal> {
        let asked = form::asked_of(params, budget);
        if self.secrets == SecretFormAction::Refuse && asked.has(FieldSubject::Secret) {
            return Err(refuse(RefusalReason::Secret, "/requestedSchema"));
        }
        let is_refused = |kind: &PersonalKind| {
            asked.has(FieldSubject::Personal(*kind)) && !self.personal.0.contains(kind)
        };
        if let Some(kind) = PersonalKind::ALL.into_iter().find(is_refused) {
            return Err(refuse(RefusalReason::PersonalData(kind), "/requestedSchema"));
        }
        if self.standing == StandingGrantAction::Refuse && grant::is_asked_for(params, budget) {
            return Err(refuse(RefusalReason::Standing, "/requestedSchema"));
        }
        Ok(())
    }
}

impl UrlPolicy {
    /// Whether the user may be sent to the page of a request.
    fn may_open(
        &self,
        params: Value<'_>,
        hint: ReadOnlyHint,
        budget: &WorkBudget,
    ) -> Result<(), Refusal> {
        let url = params.get("url").and_then(Value::as_str);
        let url = url.ok_or(refuse(RefusalReason::Malformed, "/url"))?;
        if !url::may_open(&url, &self.hosts) {
            return Err(refuse(RefusalReason::Url, "/url"));
        }
        let scopes = scope::of_url(&url);
        if hint == ReadOnlyHint::Claimed && scopes.iter().any(|one| scope::writes(one)) {
            return Err(refuse(RefusalReason::WriteScope, "/url"));
        }
        if self.standing == StandingGrantAction::Allow {
            return Ok(());
        }
        let lasting =
            scope::is_lasting_url(&url) || scopes.iter().any(|one| scope::is_standing(one));
        if lasting || grant::is_asked_for(params, budget) {
            return Err(refuse(RefusalReason::Standing, "/url"));
        }
        Ok(())
    }
}

/// Returns the parameters if they have at most `most` bytes and no member whose name a client could read as another
/// member.
fn plain<'a>(
    params: Option<Value<'a>>,
    most: usize,
    budget: &WorkBudget,
) -> Result<Value<'a>, Refusal> {
    let params = params.filter(|params| params.is_object());
    let params = params.ok_or(refuse(RefusalReason::Malformed, ""))?;
    // The length is checked first, to bound the work.
    if params.raw().len() > most {
        return Err(refuse(RefusalReason::Size, ""));
    }
    if !budget.spend(params.raw().len()) {
        return Err(Refusal::unjudged());
    }
    let spelled = params.members().all(|(name, _)| READ.tells_apart(&name, budget));
    if spelled { Ok(params) } else { Err(refuse(RefusalReason::Malformed, "")) }
}

/// Member names, each with the normalized spelling in which names are compared.
struct MemberNames {
    names: &'static [&'static str],
    spellings: Vec<String>,
}

impl MemberNames {
    fn new(names: &'static [&'static str]) -> Self {
        let spelling = |name: &&str| wording::spelling(name, &WorkBudget::unlimited());
        Self { names, spellings: names.iter().map(spelling).collect() }
    }

    /// Whether `name` is one of these exactly, or cannot be mistaken for any of them.
    fn tells_apart(&self, name: &str, budget: &WorkBudget) -> bool {
        if self.names.contains(&name) {
            return true;
        }
        let spelling = wording::spelling(name, budget);
        self.spellings.iter().all(|known| *known != spelling)
    }
}

#[cfg(test)]
mod tests;
