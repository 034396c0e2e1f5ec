//! What a server offers: tools, prompts, resources and resource templates.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::inspect::{self, Finding};
use crate::json::{Document, Fragment, Value};
pub use crate::kind::Kind;
use crate::labels::Labels;
use crate::mirror::{self, Mirrored};
use crate::name::{NameError, OfferName, ServerName};
use crate::pin::{Digest, Subject};
use crate::schema::Schema;
use crate::work::Budget;

/// Longest name of a tool or a prompt, in bytes. Resources are named by URIs, which may be longer.
const LONGEST: usize = 256;

/// One thing as its server describes it: every member, known or not, as it came.
#[derive(Clone, Debug)]
pub struct Offer {
    kind: Kind,
    name: OfferName,
    definition: Fragment,
    digest: Option<Digest>,
    findings: Vec<Finding>,
    mirrored: Vec<Mirrored>,
    /// What it is without what is taken out; the same for everybody under one policy.
    cleaned: OnceLock<Cleaned>,
    schemas: Schemas,
}

/// The schemas of a tool, made ready when they are first needed.
#[derive(Clone, Debug, Default)]
struct Schemas {
    input: OnceLock<Option<Arc<Schema>>>,
    output: OnceLock<Option<Arc<Schema>>>,
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
        let cleaned = OnceLock::new();
        Ok(Self { kind, name, definition, digest, findings, mirrored, cleaned, schemas })
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

    /// What it is without what is taken out of it, worked out once.
    pub(crate) fn cleaned(&self, clean: impl FnOnce() -> Cleaned) -> Cleaned {
        self.cleaned.get_or_init(clean).clone()
    }

    /// Whether its schemas and labels have been worked out, which a call needs.
    #[must_use]
    pub fn is_ready(&self) -> bool {
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

    /// What its arguments have to be like; worked out once for each digest. `None` where it does not
    /// say.
    #[must_use]
    pub fn input(&self) -> Option<&Arc<Schema>> {
        self.schemas.input.get_or_init(|| self.schema("inputSchema")).as_ref()
    }

    /// The same of what it gives back, as `structuredContent`.
    #[must_use]
    pub fn output(&self) -> Option<&Arc<Schema>> {
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

    fn schema(&self, member: &str) -> Option<Arc<Schema>> {
        let tool = self.kind == Kind::Tool;
        let schema = self.definition().get(member).filter(|_| tool)?;
        Some(Arc::new(Schema::new(schema)))
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
        for at in twice {
            if let Some(offer) = offers.get_mut(at) {
                offer.findings.push(Finding::duplicate_name());
            }
        }
        Self { server, kind, offers, by_name }
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

    /// All of it.
    #[must_use]
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// The one called `name`.
    #[must_use]
    pub fn offer(&self, name: &str) -> Option<&Offer> {
        self.offers.get(*self.by_name.get(name)?)
    }
}
