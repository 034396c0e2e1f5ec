//! Values that the operator has planted, so that it is noticed when they leave their place: canaries, whose handling the
//! policy sets, and honeytokens, which nobody has a reason to send and which always stop their message.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::inspect::Finding;
use crate::secrets::found::{FoundValue, ValueClass};

/// The rule of a honeytoken, in marks.
const HONEYTOKEN: &str = "honeytoken";

/// A value that nobody has a reason to send.
#[derive(Clone, Debug)]
pub struct Honeytoken {
    /// Its name in findings. The value itself is in no finding.
    pub name: Box<str>,
    /// The value that is searched for.
    pub value: Box<str>,
}

/// The planted values, as they are searched for.
#[derive(Debug, Default)]
pub(super) struct PlantedValues {
    canaries: Option<AhoCorasick>,
    honeytokens: Option<AhoCorasick>,
    /// The names of the honeytokens, by their number.
    names: Vec<Box<str>>,
}

impl PlantedValues {
    /// The same with these canaries.
    ///
    /// # Errors
    /// When no automaton can be built for them.
    pub(super) fn with_canaries(self, canaries: &[String]) -> Result<Self, Finding> {
        Ok(Self { canaries: automaton(canaries.iter().map(|value| &**value))?, ..self })
    }

    /// The same with these honeytokens.
    ///
    /// # Errors
    /// When no automaton can be built for them.
    pub(super) fn with_honeytokens(self, honeytokens: &[Honeytoken]) -> Result<Self, Finding> {
        let values = automaton(honeytokens.iter().map(|one| &*one.value))?;
        let names = honeytokens.iter().map(|one| one.name.clone()).collect();
        Ok(Self { honeytokens: values, names, ..self })
    }

    /// Whether nothing was planted.
    pub(super) const fn is_empty(&self) -> bool {
        self.canaries.is_none() && self.honeytokens.is_none()
    }

    /// Whether there is any honeytoken.
    pub(super) const fn has_honeytokens(&self) -> bool {
        self.honeytokens.is_some()
    }

    /// Whether any of the values is in these bytes.
    pub(super) fn is_match(&self, bytes: &[u8]) -> bool {
        let all = [&self.canaries, &self.honeytokens].into_iter().flatten();
        all.into_iter().any(|values| values.is_match(bytes))
    }

    /// The planted values in these bytes.
    pub(super) fn find(&self, bytes: &[u8]) -> Vec<FoundValue> {
        let mut found = Vec::new();
        if let Some(canaries) = &self.canaries {
            let one = |start, end| FoundValue::new(ValueClass::Canary, "canary", start, end);
            found.extend(canaries.find_iter(bytes).map(|place| one(place.start(), place.end())));
        }
        if let Some(honeytokens) = &self.honeytokens {
            found.extend(honeytokens.find_iter(bytes).map(|place| {
                let class =
                    ValueClass::Honeytoken(place.pattern().as_u32().try_into().unwrap_or(u16::MAX));
                FoundValue::new(class, HONEYTOKEN, place.start(), place.end())
            }));
        }
        found
    }

    /// The planted value that a text is as a whole.
    pub(super) fn whole(&self, text: &str) -> Option<FoundValue> {
        let found = self.find(text.as_bytes());
        found.into_iter().find(|one| one.from == 0 && one.end == text.len())
    }

    /// The name of the honeytoken with this number.
    pub(super) fn name(&self, number: u16) -> &str {
        self.names.get(usize::from(number)).map_or(HONEYTOKEN, |name| name)
    }
}

/// An automaton for these values, the longest first; `None` if there are none.
///
/// # Errors
/// When there are too many of them.
pub(super) fn automaton<'a>(
    values: impl IntoIterator<Item = &'a str>,
) -> Result<Option<AhoCorasick>, Finding> {
    let values: Vec<&str> = values.into_iter().filter(|value| !value.is_empty()).collect();
    if values.is_empty() {
        return Ok(None);
    }
    let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&values);
    built.map(Some).map_err(|_too_many| Finding::unchanged())
}
