//! What a server may ask of clients: their users, their models, their folders.
//!
//! A pure decision about one request, in the same words for both eras: a legacy server sends the
//! request, a modern one puts it into a result. The gateway acts on it and records its reason. Without a
//! word in the configuration nothing may be asked.

mod form;
mod flat;
mod grant;
mod url;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use crate::json::{Kind, Value};
use crate::offer::ReadOnlyHint;
use crate::pattern::Pattern;
use crate::scope;
use crate::work::Budget;

/// The method with which a user is asked.
const ELICIT: &str = "elicitation/create";
/// The method with which a model is asked.
const SAMPLE: &str = "sampling/createMessage";
/// The method with which folders are asked for.
const ROOTS: &str = "roots/list";

/// Most that a server may ask at once.
pub const AT_ONCE: usize = 32;

/// Longest elicitation, in bytes.
const ELICITATION: usize = 64 * 1024;

/// Members that clients read. A name that is one of them but for its case, for what joins its words, and for
/// letters that look alike is read by some clients.
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

/// The same of the schema of a form.
static READ_IN_SCHEMA: LazyLock<MemberNames> =
    LazyLock::new(|| MemberNames::new(&["type", "properties", "required"]));

/// Members of a request to a model that it need not have, and of which kinds they are (SPEC 2025-11-25
/// client/sampling).
const OPTIONAL: [(&str, &str, &[Kind]); 7] = [
    ("temperature", "/temperature", &[Kind::Number]),
    ("systemPrompt", "/systemPrompt", &[Kind::Plain, Kind::Escaped]),
    ("stopSequences", "/stopSequences", &[Kind::Array]),
    ("modelPreferences", "/modelPreferences", &[Kind::Object]),
    ("metadata", "/metadata", &[Kind::Object]),
    ("tools", "/tools", &[Kind::Array]),
    ("toolChoice", "/toolChoice", &[Kind::Object]),
];

/// What a user is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elicitation {
    /// A form that the client shows.
    Form,
    /// A page that the client opens.
    Page,
}

/// A member of an elicitation.
struct ElicitationMember {
    name: &'static str,
    /// The same as a JSON Pointer into the params.
    at: &'static str,
    /// Which elicitation has it; `None` where both do.
    of: Option<Elicitation>,
    /// Of which kinds it is.
    kinds: &'static [Kind],
}

/// A text.
const TEXT: &[Kind] = &[Kind::Plain, Kind::Escaped];
/// An object that need not be there.
const OBJECT_OR_NULL: &[Kind] = &[Kind::Object, Kind::Null];

/// Every member that an elicitation has (SPEC 2025-11-25 and 2026-07-28 client/elicitation).
const ELICITATION_MEMBERS: [ElicitationMember; 7] = {
    use Elicitation::{Form, Page};
    [
        ElicitationMember { name: "mode", at: "/mode", of: None, kinds: TEXT },
        ElicitationMember { name: "message", at: "/message", of: None, kinds: TEXT },
        ElicitationMember { name: "_meta", at: "/_meta", of: None, kinds: OBJECT_OR_NULL },
        ElicitationMember { name: "task", at: "/task", of: None, kinds: OBJECT_OR_NULL },
        ElicitationMember {
            name: "requestedSchema",
            at: "/requestedSchema",
            of: Some(Form),
            kinds: &[Kind::Object],
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

/// What one server may ask. The default is nothing.
#[derive(Clone, Debug, Default)]
pub struct Asks {
    /// Forms for the user.
    pub forms: Option<Forms>,
    /// Pages for the user to open.
    pub urls: Option<Urls>,
    /// Messages for the model.
    pub sampling: Option<Sampling>,
    /// The client's folders.
    pub roots: bool,
}

/// Forms.
#[derive(Clone, Debug, Default)]
pub struct Forms {
    /// What is done about a form that asks for a secret.
    pub secrets: Secrets,
    /// What is done about a form that asks for a standing grant.
    pub standing: StandingGrants,
}

/// What is done about a form that asks for a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Secrets {
    /// It is not asked.
    #[default]
    Refuse,
    /// It is asked.
    Allow,
}

/// What is done about a question that asks for a standing grant: one for everything, or for all later calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandingGrants {
    /// It is not asked.
    #[default]
    Refuse,
    /// It is asked.
    Allow,
}

/// Pages.
#[derive(Clone, Debug)]
pub struct Urls {
    /// Their hosts, with `:PORT` where it is not 443.
    pub hosts: Vec<Pattern>,
    /// What is done about a page that asks for a standing grant.
    pub standing: StandingGrants,
}

/// Messages for the model.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Most tokens of the answer.
    pub max_tokens: u64,
    /// Most messages.
    pub messages: usize,
    /// Most bytes of the request.
    pub size: usize,
    /// What is done about a request for more tokens, or for the context of servers.
    pub over: Over,
}

/// What is done about a request for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It is not asked.
    Refuse,
    /// It is asked for what it may have.
    Cut,
}

/// A change: what stands at these bytes of the document becomes this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The bytes of the document.
    pub span: Range<usize>,
    /// JSON.
    pub text: String,
}

/// Why something is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The server is not configured for it.
    NotConfigured,
    /// The form asks for a secret.
    Secret,
    /// The form or the page asks for a standing grant.
    Standing,
    /// Scopes that let something be changed are asked for in a call of a tool that says it only reads.
    WriteScope,
    /// The page is not one of a listed host, over `https`.
    Url,
    /// The request wants what other servers said to the model.
    Context,
    /// The request is larger than it may be.
    Size,
    /// It is no such request.
    Malformed,
    /// More is asked at once than may be ([`AT_ONCE`]).
    Count,
    /// It could not be judged to its end.
    Unjudged,
}

impl Reason {
    /// Every code, for the documentation and its test.
    pub const CODES: [&str; 10] = [
        "ask-not-configured",
        "ask-secret",
        "ask-standing-grant",
        "ask-write-scope",
        "ask-url",
        "ask-context",
        "ask-size",
        "ask-malformed",
        "ask-count",
        "ask-unjudged",
    ];

    /// The stable code for clients, metrics and the audit log.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotConfigured => "ask-not-configured",
            Self::Secret => "ask-secret",
            Self::Standing => "ask-standing-grant",
            Self::WriteScope => "ask-write-scope",
            Self::Url => "ask-url",
            Self::Context => "ask-context",
            Self::Size => "ask-size",
            Self::Malformed => "ask-malformed",
            Self::Count => "ask-count",
            Self::Unjudged => "ask-unjudged",
        }
    }

    /// One sentence.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::NotConfigured => "the server is not configured to ask for this",
            Self::Secret => "the form asks for a secret",
            Self::Standing => "a grant for everything or for all later calls is asked for",
            Self::WriteScope => "scopes that write are asked for by a tool that says it only reads",
            Self::Url => "the page is not an https page of a listed host",
            Self::Context => "the request wants the context of other servers",
            Self::Size => "the request is larger than it may be",
            Self::Malformed => "the request is not as the protocol says",
            Self::Count => "more is asked at once than may be",
            Self::Unjudged => "the request could not be judged to its end",
        }
    }
}

/// What is not asked, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// Where in the request, as a JSON Pointer into its `params`.
    pub at: &'static str,
}

impl Refusal {
    /// Of what nobody could judge: it costs more than it may, or there is no room to judge it now.
    #[must_use]
    pub const fn unjudged() -> Self {
        refuse(Reason::Unjudged, "")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.code(), self.reason.note())
    }
}

const fn refuse(reason: Reason, at: &'static str) -> Refusal {
    Refusal { reason, at }
}

impl Asks {
    /// Whether it may ask for nothing.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.forms.is_none() && self.urls.is_none() && self.sampling.is_none() && !self.roots
    }

    /// What has to be changed in each of the requests that the server makes at once, which may be asked
    /// only together: methods with their parameters. `hint` is what the tool says of itself in whose call
    /// they are made.
    ///
    /// # Errors
    /// Why one of them is not asked, or that there are more than [`AT_ONCE`].
    pub fn decide_all<'a>(
        &self,
        asked: impl IntoIterator<Item = (Cow<'a, str>, Option<Value<'a>>)>,
        hint: ReadOnlyHint,
        budget: &Budget,
    ) -> Result<Vec<Vec<Edit>>, Refusal> {
        let mut all = Vec::new();
        for (method, params) in asked {
            if all.len() == AT_ONCE {
                return Err(refuse(Reason::Count, ""));
            }
            all.push(self.decide(&method, params, hint, budget)?);
        }
        Ok(all)
    }

    /// What has to be changed in a request before it is asked.
    fn decide(
        &self,
        method: &str,
        params: Option<Value<'_>>,
        hint: ReadOnlyHint,
        budget: &Budget,
    ) -> Result<Vec<Edit>, Refusal> {
        let edits = match method {
            ELICIT => self.elicitation(params, hint, budget),
            SAMPLE => self.sampling(params, budget),
            ROOTS if self.roots => Ok(Vec::new()),
            _ => Err(refuse(Reason::NotConfigured, "")),
        };
        // What was not read to its end is not what it was taken for, whatever that was.
        if budget.is_exhausted() { Err(Refusal::unjudged()) } else { edits }
    }

    fn elicitation(
        &self,
        params: Option<Value<'_>>,
        hint: ReadOnlyHint,
        budget: &Budget,
    ) -> Result<Vec<Edit>, Refusal> {
        if self.forms.is_none() && self.urls.is_none() {
            return Err(refuse(Reason::NotConfigured, ""));
        }
        let params = plain(params, ELICITATION, budget)?;
        let malformed = |at| refuse(Reason::Malformed, at);
        let mode = match params.get("mode") {
            None => None,
            Some(mode) => Some(mode.as_str().ok_or_else(|| malformed("/mode"))?),
        };
        match mode.as_deref() {
            None | Some("form") => {
                let forms = self.forms.as_ref();
                let forms = forms.ok_or(refuse(Reason::NotConfigured, "/mode"))?;
                Elicitation::Form.has_its_members_alone(params)?;
                let schema = params.get("requestedSchema");
                if schema.is_some_and(|schema| !flat::is_form(schema, budget)) {
                    return Err(malformed("/requestedSchema"));
                }
                forms.may_ask(params, budget).map(|()| Vec::new())
            }
            Some("url") => {
                let urls = self.urls.as_ref();
                let urls = urls.ok_or(refuse(Reason::NotConfigured, "/mode"))?;
                Elicitation::Page.has_its_members_alone(params)?;
                urls.may_open(params, hint, budget).map(|()| Vec::new())
            }
            Some(_) => Err(malformed("/mode")),
        }
    }

    fn sampling(&self, params: Option<Value<'_>>, budget: &Budget) -> Result<Vec<Edit>, Refusal> {
        let sampling = self.sampling.as_ref();
        let sampling = sampling.ok_or(refuse(Reason::NotConfigured, ""))?;
        let params = plain(params, sampling.size, budget)?;
        let messages = params.get("messages").filter(|value| value.kind() == Kind::Array);
        let messages = messages.ok_or(refuse(Reason::Malformed, "/messages"))?;
        if messages.items().count() > sampling.messages {
            return Err(refuse(Reason::Size, "/messages"));
        }
        for (name, at, kinds) in OPTIONAL {
            let kind = params.get(name).map(Value::kind).filter(|kind| *kind != Kind::Null);
            if kind.is_some_and(|kind| !kinds.contains(&kind)) {
                return Err(refuse(Reason::Malformed, at));
            }
        }
        let mut edits = Vec::new();
        let tokens = params.get("maxTokens").ok_or(refuse(Reason::Malformed, "/maxTokens"))?;
        let wanted = tokens.as_i64().and_then(|wanted| u64::try_from(wanted).ok());
        match (wanted, sampling.over) {
            (None, _) => return Err(refuse(Reason::Malformed, "/maxTokens")),
            (Some(wanted), _) if wanted <= sampling.max_tokens => {}
            (Some(_), Over::Refuse) => return Err(refuse(Reason::Size, "/maxTokens")),
            (Some(_), Over::Cut) => {
                edits.push(Edit { span: tokens.span(), text: sampling.max_tokens.to_string() });
            }
        }
        let context = params.get("includeContext");
        if let Some(context) = context.filter(|context| context.as_str().as_deref() != Some("none"))
        {
            if sampling.over == Over::Refuse {
                return Err(refuse(Reason::Context, "/includeContext"));
            }
            edits.push(Edit { span: context.span(), text: "\"none\"".to_owned() });
        }
        Ok(edits)
    }
}

impl Elicitation {
    /// Whether the params have no member of the other elicitation, and each of their own is of its kind. A page in
    /// a form is opened by some clients, and a form beside a page is shown by those that do not read `mode`.
    fn has_its_members_alone(self, params: Value<'_>) -> Result<(), Refusal> {
        let amiss = ELICITATION_MEMBERS.iter().find(|member| {
            let is_its_own = member.of.is_none_or(|of| of == self);
            let value = params.get(member.name);
            value.is_some_and(|value| !is_its_own || !member.kinds.contains(&value.kind()))
        });
        amiss.map_or(Ok(()), |member| Err(refuse(Reason::Malformed, member.at)))
    }
}

impl Forms {
    /// Whether a form may be put to the user.
    fn may_ask(&self, params: Value<'_>, budget: &Budget) -> Result<(), Refusal> {
        if self.secrets == Secrets::Refuse && form::asks_for_secret(params, budget) {
            return Err(refuse(Reason::Secret, "/requestedSchema"));
        }
        if self.standing == StandingGrants::Refuse && grant::is_asked_for(params, budget) {
            return Err(refuse(Reason::Standing, "/requestedSchema"));
        }
        Ok(())
    }
}

impl Urls {
    /// Whether the user may be sent to the page of a request.
    fn may_open(
        &self,
        params: Value<'_>,
        hint: ReadOnlyHint,
        budget: &Budget,
    ) -> Result<(), Refusal> {
        let url = params.get("url").and_then(Value::as_str);
        let url = url.ok_or(refuse(Reason::Malformed, "/url"))?;
        if !url::may_open(&url, &self.hosts) {
            return Err(refuse(Reason::Url, "/url"));
        }
        let scopes = scope::of_url(&url);
        if hint == ReadOnlyHint::Claimed && scopes.iter().any(|one| scope::writes(one)) {
            return Err(refuse(Reason::WriteScope, "/url"));
        }
        if self.standing == StandingGrants::Allow {
            return Ok(());
        }
        let lasting =
            scope::is_lasting_url(&url) || scopes.iter().any(|one| scope::is_standing(one));
        if lasting || grant::is_asked_for(params, budget) {
            return Err(refuse(Reason::Standing, "/url"));
        }
        Ok(())
    }
}

/// The params, if they are of at most `most` bytes, and no client could read in them what the decision does
/// not.
fn plain<'a>(
    params: Option<Value<'a>>,
    most: usize,
    budget: &Budget,
) -> Result<Value<'a>, Refusal> {
    let params = params.filter(|params| params.is_object());
    let params = params.ok_or(refuse(Reason::Malformed, ""))?;
    // It is read only where it is short.
    if params.raw().len() > most {
        return Err(refuse(Reason::Size, ""));
    }
    if !budget.spend(params.raw().len()) {
        return Err(Refusal::unjudged());
    }
    let spelled = params.members().all(|(name, _)| READ.tells_apart(&name, budget));
    if spelled { Ok(params) } else { Err(refuse(Reason::Malformed, "")) }
}

/// Names of members, and the spelling of each, in which they are compared.
struct MemberNames {
    names: &'static [&'static str],
    spellings: Vec<String>,
}

impl MemberNames {
    fn new(names: &'static [&'static str]) -> Self {
        let spelling = |name: &&str| form::spelling(name, &Budget::unlimited());
        Self { names, spellings: names.iter().map(spelling).collect() }
    }

    /// Whether `name` is one of these, or no reader could take it for one.
    fn tells_apart(&self, name: &str, budget: &Budget) -> bool {
        if self.names.contains(&name) {
            return true;
        }
        let spelling = form::spelling(name, budget);
        self.spellings.iter().all(|known| *known != spelling)
    }
}

#[cfg(test)]
mod tests;
