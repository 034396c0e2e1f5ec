//! Digests that identify definitions, over every member, known or not.
//!
//! `mcp-pin/v1` is SHA-256 over a line with the kind of the subject and the RFC 8785 form of the definition.
//! `docs/pins.md` specifies the algorithm with test vectors (control C10, threats T1201 and T1501).

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256, digest};
use json::hex;
use json::{InexactNumber, Value, write_canonical, write_canonical_string};
use policy_core::subject::kind::ItemKind;

/// Version of the digest algorithm.
const VERSION: &str = "mcp-pin/v1";

/// What a digest identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DigestSubject {
    /// A definition in a catalog of a server.
    Offer(ItemKind),
    /// What a server states about itself: `capabilities`, `instructions` and `serverInfo`.
    Server,
    /// A set of definitions.
    Set,
    /// An accepted finding in one definition.
    Exception,
    /// The recorded evaluation of one definition.
    Evaluation,
}

impl DigestSubject {
    const ALL: [Self; 9] = [
        Self::Offer(ItemKind::Tool),
        Self::Offer(ItemKind::Prompt),
        Self::Offer(ItemKind::Resource),
        Self::Offer(ItemKind::Template),
        Self::Offer(ItemKind::Skill),
        Self::Server,
        Self::Set,
        Self::Exception,
        Self::Evaluation,
    ];

    /// Name in the text of a digest.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Offer(kind) => kind.as_str(),
            Self::Server => "server",
            Self::Set => "set",
            Self::Exception => "exception",
            Self::Evaluation => "evaluation",
        }
    }
}

/// Digest of a definition. Its text is `mcp-pin/v1:tool:sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    subject: DigestSubject,
    bytes: [u8; 32],
}

impl Digest {
    /// The digest of a complete definition.
    ///
    /// # Errors
    /// If a number in it has no exact canonical form.
    pub fn of(subject: DigestSubject, definition: Value<'_>) -> Result<Self, InexactNumber> {
        let mut text = format!("{VERSION}:{}\n", subject.as_str()).into_bytes();
        write_canonical(&mut text, definition)?;
        Ok(Self::sum(subject, &text))
    }

    /// The digest of an object with these string members, which must be in canonical order.
    pub(crate) fn of_texts(subject: DigestSubject, members: &[(&str, &str)]) -> Self {
        let mut text = format!("{VERSION}:{}\n{{", subject.as_str()).into_bytes();
        for (n, (name, value)) in members.iter().enumerate() {
            text.extend_from_slice(if n > 0 { b"," } else { b"" });
            write_canonical_string(&mut text, name);
            text.push(b':');
            write_canonical_string(&mut text, value);
        }
        text.push(b'}');
        Self::sum(subject, &text)
    }

    /// The digest of a definition of `subject` in the form written by [`crate::definition::alike`]; comparable only with others
    /// of this kind.
    pub(crate) fn of_alike(subject: DigestSubject, written: &[u8]) -> Self {
        let mut text = format!("{VERSION}:{}.alike\n", subject.as_str()).into_bytes();
        text.extend_from_slice(written);
        Self::sum(subject, &text)
    }

    /// The digest of each member of a definition, in order: the digest of an object with only this member.
    ///
    /// # Errors
    /// If a number in it has no exact canonical form.
    pub fn of_fields(
        subject: DigestSubject,
        definition: Value<'_>,
    ) -> Result<Vec<(Box<str>, Self)>, InexactNumber> {
        let field = |(name, value): (std::borrow::Cow<'_, str>, Value<'_>)| {
            let mut text = format!("{VERSION}:{}.field\n{{", subject.as_str()).into_bytes();
            write_canonical_string(&mut text, &name);
            text.push(b':');
            write_canonical(&mut text, value)?;
            text.push(b'}');
            Ok((name.into(), Self::sum(subject, &text)))
        };
        definition.members().map(field).collect()
    }

    /// The digest of a set of named definitions, independent of their order.
    #[must_use]
    pub fn of_set<'a>(members: impl Iterator<Item = (&'a str, Self)>) -> Self {
        let mut members: Vec<_> = members
            .map(|(name, digest)| {
                let mut line = b"[".to_vec();
                write_canonical_string(&mut line, digest.subject.as_str());
                line.push(b',');
                write_canonical_string(&mut line, name);
                line.extend_from_slice(format!(",\"{}\"]", digest.hex()).as_bytes());
                line
            })
            .collect();
        members.sort();
        let mut context = Context::new(&SHA256);
        context.update(format!("{VERSION}:{}\n[", DigestSubject::Set.as_str()).as_bytes());
        for (n, member) in members.iter().enumerate() {
            context.update(if n > 0 { b"," } else { b"" });
            context.update(member);
        }
        context.update(b"]");
        Self { subject: DigestSubject::Set, bytes: array(context.finish().as_ref()) }
    }

    fn sum(subject: DigestSubject, text: &[u8]) -> Self {
        Self { subject, bytes: array(digest(&SHA256, text).as_ref()) }
    }

    /// What the digest identifies.
    #[must_use]
    pub const fn subject(&self) -> DigestSubject {
        self.subject
    }

    /// The 64 hexadecimal digits of the hash.
    #[must_use]
    pub fn hex(&self) -> String {
        hex::encode(&self.bytes)
    }

    /// Parses the text form of a digest; `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(VERSION)?.strip_prefix(':')?;
        let (subject, hex) = rest.split_once(":sha256:")?;
        let subject = DigestSubject::ALL.into_iter().find(|known| known.as_str() == subject)?;
        let lower = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        if hex.len() != 64 || !hex.as_bytes().iter().all(lower) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self { subject, bytes })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}:{}:sha256:{}", self.subject.as_str(), self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn array(bytes: &[u8]) -> [u8; 32] {
    // INVARIANT: SHA-256 has 32 bytes.
    bytes.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};
    use policy_core::subject::kind::ItemKind;

    use super::{Digest, DigestSubject};
    use bytes::Bytes;

    fn of(text: &str) -> String {
        let document = Document::parse(Bytes::from(text.to_owned()), &JsonBounds::MESSAGE).unwrap();
        Digest::of(DigestSubject::Offer(ItemKind::Tool), document.root()).unwrap().to_string()
    }

    #[test]
    fn spelling_makes_no_difference_and_everything_else_does() {
        let one = of(r#"{"name":"a","n":1.0,"d":"\u0065"}"#);
        assert_eq!(one, of(r#"{ "d": "e", "n": 1, "name": "a" }"#));
        assert_eq!(Digest::parse(&one).unwrap().to_string(), one);
        for other in [r#"{"name":"a","n":1,"d":"E"}"#, r#"{"name":"a","n":1,"d":"e","x":null}"#] {
            assert_ne!(one, of(other));
        }
    }

    #[test]
    fn what_is_not_a_digest_is_not_read() {
        let good = of("{}");
        let long = format!("{good}0");
        for bad in ["", "sha256:00", &good.replace("v1", "v2"), &good.to_uppercase(), &long] {
            assert!(Digest::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_set_has_no_order() {
        let digest = |text: &str| Digest::parse(&of(text)).unwrap();
        let (a, b) = (digest("{}"), digest("[]"));
        let one = Digest::of_set([("a", a), ("b", b)].into_iter());
        assert_eq!(one, Digest::of_set([("b", b), ("a", a)].into_iter()));
        assert_ne!(one, Digest::of_set([("a", b), ("b", a)].into_iter()));
        assert_ne!(one, Digest::of_set([("a", a)].into_iter()));
    }
}
