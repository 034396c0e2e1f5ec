//! Labels of tools and of flows.

use json::Value;
use schemars::JsonSchema;
use serde::Deserialize;

/// Who can write what a tool returns. Ordered: more is worse.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Integrity {
    /// The user or the operator.
    #[default]
    Trusted,
    /// Anybody, but only names, as in a list of channels: a text that is longer than a name counts as untrusted.
    Listed,
    /// Anybody: it may contain instructions of an attacker.
    Untrusted,
}

/// Who may read what a tool returns. Ordered: more is stricter.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Confidentiality {
    /// Everybody may read it.
    #[default]
    Public,
    /// Everybody inside the organisation.
    Internal,
    /// Only some people: it must not leave.
    Confidential,
    /// Only few people may read it.
    Restricted,
}

impl Integrity {
    /// The name in the configuration and in texts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Listed => "listed",
            Self::Untrusted => "untrusted",
        }
    }
}

impl Confidentiality {
    /// The name in the configuration and in texts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Confidential => "confidential",
            Self::Restricted => "restricted",
        }
    }
}

/// What a tool does with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FlowSink")]
pub enum Sink {
    /// It only reads, and sends nothing.
    None,
    /// It changes something that stays inside.
    Write,
    /// It removes something, or changes who has access.
    Destructive,
    /// It reads what the URL in its targets leads to, and sends nothing besides. It is judged like `external`, but a link
    /// that a result has shown as a whole may be followed: its author cannot have put anything of the flow into it.
    Fetch,
    /// It sends something to where others can read it.
    External,
}

impl Sink {
    /// Whether what is sent there is read outside.
    #[must_use]
    pub const fn leaves(self) -> bool {
        matches!(self, Self::Fetch | Self::External)
    }

    /// The name in the configuration and in texts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Write => "write",
            Self::Destructive => "destructive",
            Self::Fetch => "fetch",
            Self::External => "external",
        }
    }
}

/// Labels of a result, and of the flow that was shown it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowLabels {
    /// Who can have written it.
    pub integrity: Integrity,
    /// Who may read it.
    pub confidentiality: Confidentiality,
}

impl FlowLabels {
    /// The strictest labels: of what nothing is known about.
    pub const STRICTEST: Self =
        Self { integrity: Integrity::Untrusted, confidentiality: Confidentiality::Restricted };

    /// The stricter label of each kind.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            integrity: self.integrity.max(other.integrity),
            confidentiality: self.confidentiality.max(other.confidentiality),
        }
    }

    /// These labels for a result that has longer texts than names.
    #[must_use]
    pub const fn of_texts(self) -> Self {
        let integrity = match self.integrity {
            Integrity::Trusted => Integrity::Trusted,
            Integrity::Listed | Integrity::Untrusted => Integrity::Untrusted,
        };
        Self { integrity, ..self }
    }

    /// Whether anybody can have written a part of it.
    #[must_use]
    pub const fn is_untrusted(self) -> bool {
        matches!(self.integrity, Integrity::Untrusted)
    }

    /// Whether a part of it must not leave.
    #[must_use]
    pub const fn is_confidential(self) -> bool {
        matches!(self.confidentiality, Confidentiality::Confidential | Confidentiality::Restricted)
    }

    /// These labels, made stricter by what the server says of its result in `_meta.ifc`, also in that of a block of
    /// content, a message or a resource, at any depth.
    ///
    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    /// What a server says never relaxes a label: a text that is not known counts as the strictest one.
    #[must_use]
    pub fn restricted_by(self, result: Value<'_>) -> Self {
        // Most results say nothing, and need not be walked; a name can be written with an escape.
        let raw = result.raw();
        if !raw.contains("ifc") && !raw.contains("\\u00") {
            return self;
        }
        self.restricted_within(result)
    }

    fn restricted_within(self, result: Value<'_>) -> Self {
        let mut labels = self;
        for (name, member) in result.members() {
            let said = (name == "_meta").then(|| member.get("ifc")).flatten();
            labels = said.map_or(labels, |said| labels.join(Self::said(said)));
            // Data of the tool, in which such a member means something else.
            if name != "structuredContent" {
                labels = labels.restricted_within(member);
            }
        }
        result.items().fold(labels, Self::restricted_within)
    }

    /// What a server says in one `ifc` object.
    fn said(ifc: Value<'_>) -> Self {
        if !ifc.is_object() {
            return Self::STRICTEST;
        }
        let integrity = match ifc.get("integrity") {
            None => Integrity::Trusted,
            Some(said) if said.is_text("trusted") => Integrity::Trusted,
            Some(_) => Integrity::Untrusted,
        };
        let confidentiality = match ifc.get("confidentiality") {
            None => Confidentiality::Public,
            Some(said) if said.is_text("public") => Confidentiality::Public,
            Some(said) if said.is_text("internal") => Confidentiality::Internal,
            // `private`, a list of readers, and what is not known.
            Some(said) if said.is_text("restricted") => Confidentiality::Restricted,
            Some(_) => Confidentiality::Confidential,
        };
        Self { integrity, confidentiality }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use json::{Document, JsonBounds};

    use super::{Confidentiality, FlowLabels, Integrity};

    fn restricted(labels: FlowLabels, result: &str) -> FlowLabels {
        let text = Bytes::copy_from_slice(result.as_bytes());
        let document = Document::parse(text, &JsonBounds::ANSWER).unwrap();
        labels.restricted_by(document.root())
    }

    #[test]
    fn what_a_server_says_restricts_and_never_relaxes() {
        let open = FlowLabels::default();
        let says = |ifc: &str| restricted(open, &format!(r#"{{"_meta":{{"ifc":{ifc}}}}}"#));
        assert_eq!(says(r#"{"integrity":"trusted","confidentiality":"public"}"#), open);
        assert_eq!(says(r#"{"integrity":"untrusted"}"#).integrity, Integrity::Untrusted);
        assert_eq!(says(r#"{"integrity":"very good"}"#).integrity, Integrity::Untrusted);
        let private = says(r#"{"confidentiality":["ana"]}"#);
        assert_eq!(private.confidentiality, Confidentiality::Confidential);
        assert_eq!(says("7"), FlowLabels::STRICTEST);
        let relaxed = r#"{"_meta":{"ifc":{"integrity":"trusted","confidentiality":"public"}}}"#;
        assert_eq!(restricted(FlowLabels::STRICTEST, relaxed), FlowLabels::STRICTEST);
        let block = r#"{"content":[{"type":"text","_meta":{"ifc":{"integrity":"untrusted"}}}]}"#;
        assert!(restricted(open, block).is_untrusted());
    }
}
