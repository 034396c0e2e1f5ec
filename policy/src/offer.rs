//! What a server offers: tools, prompts, resources and resource templates.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use unicode_normalization::UnicodeNormalization as _;

use crate::alike::Alike;
use crate::hidden::Hidden;
use crate::inspect::{self, Excused, Finding};
use crate::json::{Document, Fragment, Value};
pub use crate::kind::{Kind, ReadOnlyHint};
use crate::labels::Labels;
use crate::mirror::{self, Mirrored};
use crate::name::{NameError, OfferName, ServerName};
use crate::pin::{Digest, Subject};
use crate::schema::Compilable;
use crate::uri::{self, ResourceUri, UriError};
use crate::work::Budget;

/// Longest name of a tool or a prompt, in bytes. Resources are named by URIs, which may be longer.
const LONGEST: usize = 256;

/// One thing as its server describes it: every member, known or not, as it came.
#[derive(Clone, Debug)]
pub struct Offer {
    kind: Kind,
    name: OfferName,
    /// The name in the form that rules see; only resources and templates have one of their own.
    uri: Option<Result<ResourceUri, UriError>>,
    definition: Fragment,
    digest: Option<Digest>,
    alike: Alike,
    findings: Vec<Finding>,
    mirrored: Vec<Mirrored>,
    /// What it is without what is taken out; the same for everybody under one policy.
    cleaned: OnceLock<Cleaned>,
    /// The same where findings in it are accepted: of the acceptance that was asked about first.
    excused: OnceLock<(Excused, Cleaned)>,
    schemas: Schemas,
}

/// The schemas of a tool, found when they are first needed.
#[derive(Clone, Debug, Default)]
struct Schemas {
    input: OnceLock<Option<Arc<Compilable>>>,
    output: OnceLock<Option<Arc<Compilable>>>,
    labels: OnceLock<Labels>,
}

/// A definition without what is taken out of it, or what was left in it.
type Cleaned = Result<Option<Arc<Document>>, Finding>;

/// Why a definition is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// A definition is an object.
    #[error("the definition is not an object")]
    NotAnObject,
    /// It has no name, or the name is no string.
    #[error("the definition has no `{0}`")]
    Unnamed(&'static str),
    /// Its name cannot be used.
    #[error("name")]
    Name(#[source] NameError),
    /// The headers it wants cannot be made.
    #[error("`x-mcp-header` {0}")]
    Mirror(&'static str),
}

impl Offer {
    /// Reads one definition and inspects all of its text, whatever that costs.
    ///
    /// # Errors
    /// When it has no usable name, or a tool wants headers that cannot be made: the specification
    /// has such a tool left out (2026-07-28 basic/transports/streamable-http#schema-extension).
    pub fn read(
        kind: Kind,
        definition: Value<'_>,
        document: &Arc<Document>,
    ) -> Result<Self, OfferError> {
        Self::read_again(kind, definition, document, None, &Budget::unlimited())
    }

    /// The same; what was found in a definition with the same digest in `former` is not looked for
    /// again. What looking costs is taken from `budget`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_again(
        kind: Kind,
        definition: Value<'_>,
        document: &Arc<Document>,
        former: Option<&Catalog>,
        budget: &Budget,
    ) -> Result<Self, OfferError> {
        if !definition.is_object() {
            return Err(OfferError::NotAnObject);
        }
        let name = definition.get(kind.key()).and_then(Value::as_str);
        let name = name.ok_or(OfferError::Unnamed(kind.key()))?;
        let name = OfferName::parse(&name).map_err(OfferError::Name)?;
        let (length, limit) = (name.as_str().len(), LONGEST);
        if matches!(kind, Kind::Tool | Kind::Prompt) && length > limit {
            return Err(OfferError::Name(NameError::Length { length, limit }));
        }
        let uri = match kind {
            Kind::Resource => Some(ResourceUri::listed(name.as_str())),
            Kind::Template => Some(ResourceUri::template(name.as_str())),
            Kind::Tool | Kind::Prompt | Kind::Method => None,
        };
        let mirrored = match kind {
            Kind::Tool => mirror::read(definition).map_err(OfferError::Mirror)?,
            Kind::Prompt | Kind::Resource | Kind::Template | Kind::Method => Vec::new(),
        };
        let digest = Digest::of(Subject::Offer(kind), definition).ok();
        let same = |offer: &&Self| offer.digest.is_some() && offer.digest == digest;
        let known = former.and_then(|former| former.offer(name.as_str())).filter(same);
        let findings = match known {
            Some(known) => {
                let own = known.findings.iter().filter(|finding| !finding.is_of_the_list());
                own.cloned().collect()
            }
            None => inspect::definition((kind == Kind::Tool).then_some(&name), definition, budget),
        };
        let definition = definition.fragment(document);
        let schemas = known.map(|known| known.schemas.clone()).unwrap_or_default();
        let cleaned = known.map(|known| known.cleaned.clone()).unwrap_or_default();
        let excused = known.map(|known| known.excused.clone()).unwrap_or_default();
        let alike = known.map(|known| known.alike.clone()).unwrap_or_default();
        Ok(Self {
            kind,
            name,
            uri,
            definition,
            digest,
            alike,
            findings,
            mirrored,
            cleaned,
            excused,
            schemas,
        })
    }

    /// What sort of thing it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Its name, as its server gives it.
    #[must_use]
    pub const fn name(&self) -> &OfferName {
        &self.name
    }

    /// What rules, revocations and records call it.
    ///
    /// # Errors
    /// When it is a resource or a template whose URI has no canonical form.
    pub fn rule_name(&self) -> Result<&str, UriError> {
        match &self.uri {
            None => Ok(self.name.as_str()),
            Some(Ok(uri)) => Ok(uri.as_str()),
            Some(Err(error)) => Err(*error),
        }
    }

    /// The whole definition.
    #[must_use]
    pub fn definition(&self) -> Value<'_> {
        self.definition.value()
    }

    /// What it is recognised by; `None` when a number in it does not survive canonical form.
    #[must_use]
    pub const fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// What it is like, where these values of it are volatile.
    pub(crate) fn alike(&self, volatile: &[Box<str>]) -> Option<Digest> {
        self.alike.of(Subject::Offer(self.kind), self.definition(), volatile)
    }

    /// Whether it is known what it is without what is taken out of it.
    #[must_use]
    pub fn is_cleaned(&self) -> bool {
        let known = self.cleaned.get().is_some() || self.excused.get().is_some();
        self.findings.is_empty() || known
    }

    /// What it is without what is taken out of it, where `excused` is not; worked out once.
    pub(crate) fn cleaned(&self, excused: Excused, clean: impl Fn() -> Cleaned) -> Cleaned {
        if excused.is_empty() {
            return self.cleaned.get_or_init(clean).clone();
        }
        let (of, cleaned) = self.excused.get_or_init(|| (excused, clean()));
        // Somebody has accepted more of it, or less, since it was read.
        if *of == excused { cleaned.clone() } else { clean() }
    }

    /// Whether its schemas have been found and its labels worked out, which a call needs.
    #[must_use]
    pub(crate) fn is_ready(&self) -> bool {
        let Schemas { input, output, labels } = &self.schemas;
        self.kind != Kind::Tool
            || input.get().is_some() && output.get().is_some() && labels.get().is_some()
    }

    /// Works out what a call needs: see [`Self::is_ready`].
    pub(crate) fn prepare(&self) {
        if !self.is_ready() {
            let _prepared = (self.input(), self.output(), self.labels());
        }
    }

    /// What its arguments have to be like; found once for each digest. `None` where it does not
    /// say.
    #[must_use]
    pub fn input(&self) -> Option<&Arc<Compilable>> {
        self.schemas.input.get_or_init(|| self.schema("inputSchema")).as_ref()
    }

    /// The same of what it gives back, as `structuredContent`.
    #[must_use]
    pub fn output(&self) -> Option<&Arc<Compilable>> {
        self.schemas.output.get_or_init(|| self.schema("outputSchema")).as_ref()
    }

    /// Which members of what it gives back are labelled as sensitive; worked out once for each digest.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        self.schemas.labels.get_or_init(|| {
            let schema = self.definition().get("outputSchema").filter(|_| self.kind == Kind::Tool);
            schema.map(Labels::of_schema).unwrap_or_default()
        })
    }

    fn schema(&self, member: &str) -> Option<Arc<Compilable>> {
        let tool = self.kind == Kind::Tool;
        let schema = self.definition().get(member).filter(|_| tool)?;
        Some(Arc::new(Compilable::new(schema)))
    }

    /// The whole definition, kept alive.
    #[must_use]
    pub fn fragment(&self) -> Fragment {
        self.definition.clone()
    }

    /// What the detectors saw in it.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The arguments that a modern client repeats in headers.
    #[must_use]
    pub fn mirrored(&self) -> &[Mirrored] {
        &self.mirrored
    }

    #[cfg(test)]
    pub(crate) fn for_tests(kind: Kind, definition: &str) -> Self {
        let text = bytes::Bytes::copy_from_slice(definition.as_bytes());
        let document = Document::parse(text, &crate::json::Bounds::MESSAGE).unwrap();
        let document = Arc::new(document);
        Self::read(kind, document.root(), &document).unwrap()
    }
}

/// Everything of one kind that one server offers, in the order it offers it.
#[derive(Clone, Debug)]
pub struct Catalog {
    server: ServerName,
    kind: Kind,
    offers: Vec<Offer>,
    by_name: BTreeMap<OfferName, usize>,
    /// Resources by every form of their URI that servers may take for the same.
    by_uri: BTreeMap<Box<str>, usize>,
}

/// What a list says of a name that a caller gives.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// It is in the list, perhaps in another spelling of the same URI.
    Listed(&'a Offer),
    /// It is not, and a server may give something that is in the list for it: the same URI without a
    /// query, or without the slash at its end.
    Beside(&'a Offer),
}

impl<'a> Place<'a> {
    /// The definition by which it is judged.
    #[must_use]
    pub const fn offer(self) -> &'a Offer {
        match self {
            Self::Listed(offer) | Self::Beside(offer) => offer,
        }
    }
}

impl Catalog {
    /// The catalogue of `server`.
    ///
    /// Two tools of one name are both marked: nobody could say which of them a call means
    /// (threat T1008).
    #[must_use]
    pub fn new(server: ServerName, kind: Kind, mut offers: Vec<Offer>) -> Self {
        let mut by_name = BTreeMap::new();
        let mut twice = Vec::new();
        for (at, offer) in offers.iter().enumerate() {
            if let Some(first) = by_name.insert(offer.name.clone(), at) {
                twice.extend([first, at]);
            }
        }
        let mut by_look: BTreeMap<Cow<'_, str>, usize> = BTreeMap::new();
        let named = matches!(kind, Kind::Tool | Kind::Prompt);
        for (at, offer) in offers.iter().enumerate().filter(|_| named) {
            if let Some(first) = by_look.insert(look(offer.name.as_str()), at) {
                twice.extend([first, at]);
            }
        }
        drop(by_look);
        let mut by_uri: BTreeMap<Box<str>, usize> = BTreeMap::new();
        for (at, offer) in offers.iter().enumerate().filter(|_| kind == Kind::Resource) {
            let Ok(uri) = offer.rule_name() else { continue };
            match by_uri.get(uri) {
                Some(first) => twice.extend([*first, at]),
                None => drop(by_uri.insert(uri.into(), at)),
            }
        }
        // After all of them: a URI of its own counts before a form of another.
        for (at, offer) in offers.iter().enumerate().filter(|_| kind == Kind::Resource) {
            let Ok(uri) = offer.rule_name() else { continue };
            for form in uri::related(uri) {
                by_uri.entry(form.into()).or_insert(at);
            }
        }
        twice.sort_unstable();
        twice.dedup();
        for at in twice {
            if let Some(offer) = offers.get_mut(at) {
                offer.findings.push(Finding::duplicate_name());
            }
        }
        Self { server, kind, offers, by_name, by_uri }
    }

    /// Which server.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        &self.server
    }

    /// What is in it.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes that the answers take from which its definitions were read, which it keeps.
    #[must_use]
    pub fn memory(&self) -> usize {
        // Definitions of one answer stand side by side.
        let mut last: Option<Arc<Document>> = None;
        let mut bytes = 0;
        for document in self.offers.iter().map(|offer| offer.definition.document()) {
            if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &document)) {
                bytes += document.memory();
                last = Some(document);
            }
        }
        bytes
    }

    /// All of it.
    #[must_use]
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// How many bytes of definitions have to be cleaned before it is shown.
    #[must_use]
    pub fn uncleaned(&self) -> usize {
        let left = self.offers.iter().filter(|offer| !offer.is_cleaned());
        left.map(|offer| offer.definition().span().len()).sum()
    }

    /// The one called `name`.
    #[must_use]
    pub fn offer(&self, name: &str) -> Option<&Offer> {
        self.offers.get(*self.by_name.get(name)?)
    }

    /// What is listed that a caller's `name` stands for: by its exact spelling first, and of resources by
    /// every form of it.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<Place<'_>> {
        if let Some(offer) = self.offer(name) {
            return Some(Place::Listed(offer));
        }
        if self.by_uri.is_empty() {
            return None;
        }
        let asked = ResourceUri::parse(name).ok()?;
        let at = |form: &str| self.offers.get(*self.by_uri.get(form)?);
        if let Some(offer) = at(asked.as_str()) {
            let same = offer.rule_name() == Ok(asked.as_str());
            return Some(if same { Place::Listed(offer) } else { Place::Beside(offer) });
        }
        uri::related(asked.as_str()).iter().find_map(|form| at(form)).map(Place::Beside)
    }
}

/// A name as a person reads it, and a server that folds compatibility forms: two names of one server
/// that look the same are two of one name.
fn look(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Cow::Borrowed(name);
    }
    let shown: String = name.nfkc().filter(|c| Hidden::of(*c).is_none()).collect();
    Cow::Owned(shown.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Catalog, Kind, Offer, Place};
    use crate::json::{Bounds, Document};
    use crate::name::ServerName;

    fn catalog(kind: Kind, names: &[&str]) -> Catalog {
        let offer = |name: &&str| {
            Offer::for_tests(kind, &serde_json::json!({ kind.key(): name }).to_string())
        };
        let server = ServerName::parse("up").unwrap();
        Catalog::new(server, kind, names.iter().map(offer).collect())
    }

    #[test]
    fn two_names_that_look_the_same_are_two_of_one_name() {
        let prompts =
            catalog(Kind::Prompt, &["notes", "\u{ff4e}otes", "Notes", "my  list", "my list "]);
        let twice = |at: usize| {
            let mut findings = prompts.offers()[at].findings().iter();
            findings.any(|finding| finding.to_string().contains("has the same name"))
        };
        assert_eq!([0, 1, 2, 3, 4].map(twice), [true, true, false, true, true]);
    }

    #[test]
    fn a_catalogue_takes_what_the_answers_take_that_it_was_read_from() {
        let text = r#"[{"name":"one"},{"name":"two"}]"#;
        let document = Document::parse(text.into(), &Bounds::MESSAGE).unwrap();
        let (document, server) = (Arc::new(document), ServerName::parse("up").unwrap());
        let offers = document.root().items();
        let offers = offers.map(|one| Offer::read(Kind::Prompt, one, &document).unwrap()).collect();
        let catalog = Catalog::new(server, Kind::Prompt, offers);
        assert_eq!(catalog.memory(), document.memory());
        assert_eq!(document.memory(), text.len() + 7 * 16);
    }

    #[test]
    fn two_spellings_of_one_uri_are_two_of_one_name() {
        let uris = ["file:///a b", "file:///a%20b", "file:///a", "file:///a/"];
        let resources = catalog(Kind::Resource, &uris);
        let twice = |at: usize| !resources.offers()[at].findings().is_empty();
        assert_eq!([0, 1, 2, 3].map(twice), [true, true, false, false]);
    }

    #[test]
    fn a_form_of_a_listed_resource_stands_beside_it() {
        let resources = catalog(Kind::Resource, &["file:///a", "db://Customers/a"]);
        assert!(matches!(resources.place("FILE:///a"), Some(Place::Listed(_))));
        for uri in ["file:///a?x", "file:///a/", "file://localhost/a", "db://customers/a"] {
            assert!(matches!(resources.place(uri), Some(Place::Beside(_))), "{uri}");
        }
        for uri in ["file:///b", "file:///a/b", "file:///./a"] {
            assert!(resources.place(uri).is_none(), "{uri}");
        }
    }
}
