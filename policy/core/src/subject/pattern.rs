//! Patterns over names, with the wildcards `*` and `?`.

use crate::subject::name::ServerName;
use crate::subject::skill;
use crate::subject::uri::{self, UriError};

/// A pattern over names: `*` matches any run of characters, `?` matches one, every other character matches itself.
///
/// Comparison is exact: `Read` is not `read`, and a fullwidth letter equals neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    shape: PatternShape,
}

/// The matching algorithm a pattern needs. Most patterns are a name, or a prefix and a `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternShape {
    /// The pattern `*`, which matches every name
    Any,
    /// A name without wildcards.
    Exact,
    /// A prefix followed by one `*`.
    Beginning,
    /// A pattern of any other shape.
    Glob,
}

/// How an index can look up the names that a pattern matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternLookup<'a> {
    /// The pattern matches exactly this name.
    Name(&'a str),
    /// All names with this prefix, which may be empty.
    Beginning(&'a str),
    /// No lookup: each name has to be compared.
    Other,
}

impl ServerName {
    /// Whether one of these patterns matches the server. The self-test server has to be named literally.
    #[must_use]
    pub fn is_among(&self, patterns: &[Pattern]) -> bool {
        patterns.iter().any(|pattern| match self.is_reserved() {
            true => pattern.as_str() == self.as_str(),
            false => pattern.matches(self.as_str()),
        })
    }
}

impl Pattern {
    /// Compiles the pattern `text`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let wild = |text: &str| text.contains(['*', '?']);
        let shape = match text.strip_suffix('*') {
            Some("") => PatternShape::Any,
            Some(beginning) if !wild(beginning) => PatternShape::Beginning,
            None if !wild(text) => PatternShape::Exact,
            Some(_) | None => PatternShape::Glob,
        };
        Self { text: text.into(), shape }
    }

    /// The pattern `text` over resource URIs, compared with their canonical form.
    ///
    /// # Errors
    /// If no URI in canonical form can match it.
    pub fn resource(text: &str) -> Result<Self, UriError> {
        Ok(Self::new(&uri::pattern(text)?))
    }

    /// A pattern over the URIs of skills. Without `://` it stands for the path of a skill: `git-workflow` for
    /// `skill://git-workflow/SKILL.md`.
    ///
    /// # Errors
    /// If no URI in canonical form can match it.
    pub fn skill(text: &str) -> Result<Self, UriError> {
        Self::resource(&skill::uri_of(text))
    }

    /// The pattern with its authority in lower case, for comparison with every form that servers may treat as the
    /// same URI.
    #[must_use]
    pub fn folded(&self) -> Self {
        Self::new(&uri::folded(&self.text))
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How an index can look up the names that the pattern matches.
    pub fn sought(&self) -> PatternLookup<'_> {
        match self.shape {
            PatternShape::Exact => PatternLookup::Name(&self.text),
            PatternShape::Any | PatternShape::Beginning => {
                self.text.strip_suffix('*').map_or(PatternLookup::Other, PatternLookup::Beginning)
            }
            PatternShape::Glob => PatternLookup::Other,
        }
    }

    /// Whether the pattern matches `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self.shape {
            PatternShape::Any => true,
            PatternShape::Exact => *self.text == *name,
            PatternShape::Beginning => {
                self.text.strip_suffix('*').is_some_and(|beginning| name.starts_with(beginning))
            }
            PatternShape::Glob => glob(&self.text, name),
        }
    }

    /// Whether this pattern certainly matches every name that `other` matches.
    ///
    /// Conservative: it may return `false` where the answer is yes, never `true` where it is no.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.shape == PatternShape::Any
            || self == other
            || (other.shape == PatternShape::Exact && self.matches(&other.text))
    }
}

/// Backtracks to the last `*` only: at most `pattern.len() * name.len()` steps, and no recursion.
fn glob(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    let mut back = None;
    loop {
        let (before_pattern, before_name) = (pattern.clone(), name.clone());
        match (pattern.next(), name.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                back = Some((pattern.clone(), before_name.clone()));
                name = before_name;
            }
            (Some('?'), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            (_, _) => {
                drop(before_pattern);
                let Some((after_star, mut tried)) = back.take() else { return false };
                if tried.next().is_none() {
                    return false;
                }
                (pattern, name) = (after_star.clone(), tried.clone());
                back = Some((after_star, tried));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;
    use proptest::prelude::*;

    /// A glob by its definition, too slow for production.
    fn naive(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, rest) => rest.is_none(),
            (Some(('*', after)), rest) => {
                naive(after, name) || rest.is_some_and(|(_, rest)| naive(pattern, rest))
            }
            (Some(('?', after)), Some((_, rest))) => naive(after, rest),
            (Some((wanted, after)), Some((found, rest))) => wanted == found && naive(after, rest),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn it_means_what_a_glob_means(pattern in "[ab*?]{0,8}", name in "[abc]{0,8}") {
            let (p, n): (Vec<_>, Vec<_>) = (pattern.chars().collect(), name.chars().collect());
            prop_assert_eq!(Pattern::new(&pattern).matches(&name), naive(&p, &n));
        }

        #[test]
        fn what_is_covered_is_matched(wide in "[ab*?]{0,4}", narrow in "[ab*?]{0,4}", name in "[ab]{0,5}") {
            let (wide, narrow) = (Pattern::new(&wide), Pattern::new(&narrow));
            if wide.covers(&narrow) && narrow.matches(&name) {
                prop_assert!(wide.matches(&name));
            }
        }
    }

    #[test]
    fn case_and_width_matter() {
        assert!(Pattern::new("read_*").matches("read_file"));
        assert!(!Pattern::new("read_*").matches("Read_file"));
        assert!(!Pattern::new("read").matches("ｒｅａｄ"));
    }
}
