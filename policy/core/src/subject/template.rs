//! Matches URIs against resource templates (RFC 6570).
//!
//! An approved template permits resources that are created at run time. Therefore the complete URI is matched, in
//! canonical form, and an expression matches no more than RFC 6570 permits: `{name}` is part of one segment,
//! `{+path}` can span several. A template without a literal scheme matches nothing.

use crate::subject::uri::{ResourceUri, UriError};

/// A parsed template, for matching canonical URIs.
#[derive(Clone, Debug)]
pub struct UriTemplate {
    parts: Vec<TemplatePart>,
}

/// A literal or an expression of a template.
#[derive(Clone, Debug)]
enum TemplatePart {
    /// Exactly this literal text.
    Literal(Box<str>),
    /// One or more characters within a segment: `{name}`, or at most so many: `{name:3}`.
    Segment(Option<usize>),
    /// One or more characters of any kind: `{+name}`, or at most so many.
    Anything(Option<usize>),
    /// Parameters with these names, in this order, each once or not at all: `{;name}` (RFC 6570, section 3.2.7).
    Parameters(Vec<Box<str>>),
    /// Up to `most` times the mark and a part of a segment: `{/name}`, `{.name}`, `{;name*}`.
    Repeated {
        /// Character before each repetition.
        mark: u8,
        /// Most repetitions of the expression.
        most: usize,
    },
    /// A query, `{?name}`, or its continuation, `{&name}`. Either may be absent.
    Query(QueryPart),
}

/// A query expression with its parameters.
#[derive(Clone, Debug)]
struct QueryPart {
    /// Character before the first parameter.
    mark: u8,
    /// Permitted parameter names; `None` permits any.
    names: Option<Vec<Box<str>>>,
}

impl UriTemplate {
    /// Parses a template. `None` if it can match no URI: it has no canonical form, its scheme is not literal, or an
    /// expression is invalid.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let text: Result<ResourceUri, UriError> = ResourceUri::template(text);
        let text = text.ok()?;
        let (scheme, _) = text.as_str().split_once(':')?;
        if scheme.contains('{') {
            return None;
        }
        let (mut parts, mut rest) = (Vec::new(), text.as_str());
        while let Some((literal, after)) = rest.split_once('{') {
            let (expression, after) = after.split_once('}')?;
            parts.push(TemplatePart::Literal(literal.into()));
            parts.push(expression_of(expression)?);
            rest = after;
        }
        parts.push(TemplatePart::Literal(rest.into()));
        Some(Self { parts })
    }

    /// Whether the template matches a URI in canonical form. Comparing takes from `left`; once nothing is left, no template
    /// matches.
    #[must_use]
    pub fn matches(&self, uri: &ResourceUri, left: &mut MatchWork) -> bool {
        let text = uri.as_str().as_bytes();
        // Both ends are literal, and most templates of a server have others.
        let fits = |part: Option<&TemplatePart>, is: fn(&[u8], &[u8]) -> bool| match part {
            Some(TemplatePart::Literal(literal)) => is(text, literal.as_bytes()),
            _ => true,
        };
        let could = fits(self.parts.first(), <[u8]>::starts_with)
            && fits(self.parts.last(), <[u8]>::ends_with);
        if !left.spend(1) || !could {
            return false;
        }
        // Positions in the URI at which the parts so far can end.
        let mut ends = vec![false; text.len() + 1];
        if let Some(start) = ends.first_mut() {
            *start = true;
        }
        for part in &self.parts {
            if !left.spend(text.len().saturating_mul(part.weight())) {
                return false;
            }
            ends = part.ends(text, &ends);
            if !ends.contains(&true) {
                return false;
            }
        }
        ends.last() == Some(&true)
    }
}

/// What comparing one URI with the templates of a server may cost: the server chooses the templates and a caller the URI, and
/// both are compared on the thread that serves the caller.
#[derive(Debug)]
pub struct MatchWork(usize);

impl Default for MatchWork {
    /// Bytes of the URI, for each part of a template: some thousand ordinary templates, or a dozen of the costliest.
    fn default() -> Self {
        Self(512 * 1024)
    }
}

impl MatchWork {
    /// Takes `units`; false if so many are not left, and none will be from then on.
    const fn spend(&mut self, units: usize) -> bool {
        match self.0.checked_sub(units) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => {
                self.0 = 0;
                false
            }
        }
    }
}

/// Parses an expression; `None` if it is invalid.
fn expression_of(expression: &str) -> Option<TemplatePart> {
    // A variable name may contain a dot but not begin with one.
    let begins = |byte: &u8| is_name(*byte) && !matches!(byte, b'.' | b'-');
    let operator = expression.bytes().next().filter(|byte| !begins(byte));
    let list = match operator {
        Some(_) => expression.get(1..)?,
        None => expression,
    };
    let names: Vec<&str> = list.split(',').collect();
    let exploded = names.iter().any(|name| name.ends_with('*'));
    let plain: Option<Vec<Box<str>>> = names.iter().map(|name| variable(name)).collect();
    let plain = plain?;
    let most = if exploded { usize::MAX } else { plain.len() };
    let part = match operator {
        None => TemplatePart::Segment(length(&names)),
        Some(b'+') => TemplatePart::Anything(length(&names)),
        // A fragment is not part of a resource URI.
        Some(b'#') => TemplatePart::Literal("".into()),
        Some(b';') if !exploded => TemplatePart::Parameters(plain),
        Some(mark @ (b'/' | b'.' | b';')) => TemplatePart::Repeated { mark, most },
        Some(mark @ (b'?' | b'&')) => {
            TemplatePart::Query(QueryPart { mark, names: (!exploded).then_some(plain) })
        }
        Some(_) => return None,
    };
    Some(part)
}

/// The most characters of the value of an expression with one variable.
fn length(names: &[&str]) -> Option<usize> {
    let [name] = names else { return None };
    name.split_once(':').and_then(|(_, length)| max_length(length))
}

/// The number of a prefix modifier; `None` if it is invalid (RFC 6570, section 2.4.1).
fn max_length(digits: &str) -> Option<usize> {
    let is_number = matches!(digits.as_bytes(), [b'1'..=b'9', rest @ ..] if rest.len() < 4);
    digits.parse().ok().filter(|_| is_number)
}

/// The name of a variable without modifiers; `None` if it is invalid.
fn variable(text: &str) -> Option<Box<str>> {
    let name = text.strip_suffix('*').unwrap_or(text);
    let (name, length) = name.split_once(':').unwrap_or((name, "1"));
    let named = !name.is_empty() && name.bytes().all(is_name);
    (named && max_length(length).is_some()).then(|| name.into())
}

/// Whether a byte may occur in a variable name. RFC 6570 excludes the hyphen, but it is in use.
const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'%' | b'-')
}

/// Whether a byte may occur within a segment.
const fn is_inner(byte: u8) -> bool {
    !matches!(byte, b'/' | b'?')
}

impl TemplatePart {
    /// How many times the text is looked at.
    fn weight(&self) -> usize {
        match self {
            Self::Literal(_) | Self::Segment(_) | Self::Anything(_) => 1,
            Self::Parameters(names) => names.len().saturating_mul(4),
            Self::Repeated { most: usize::MAX, .. } => 1,
            Self::Repeated { most, .. } => most.saturating_mul(3),
            Self::Query(QueryPart { names, .. }) => 1 + names.as_ref().map_or(0, Vec::len),
        }
    }

    /// The positions in `text` at which the part can end if it begins at one of `starts`.
    fn ends(&self, text: &[u8], starts: &[bool]) -> Vec<bool> {
        match self {
            Self::Literal(literal) => after_literal(text, starts, literal.as_bytes()),
            Self::Segment(None) => after_run(text, starts, is_inner),
            Self::Anything(None) => after_run(text, starts, |_| true),
            Self::Segment(Some(most)) => after_short_run(text, starts, *most, is_inner),
            Self::Anything(Some(most)) => after_short_run(text, starts, *most, |_| true),
            Self::Parameters(names) => {
                let is_value = |byte| is_inner(byte) && byte != b';';
                let mut ends = starts.to_vec();
                for name in names {
                    let bare = after_literal(text, &ends, format!(";{name}").as_bytes());
                    let given = after_run(text, &after_literal(text, &bare, b"="), is_value);
                    let more = bare.into_iter().zip(given).map(|(bare, given)| bare | given);
                    ends.iter_mut().zip(more).for_each(|(end, more)| *end |= more);
                }
                ends
            }
            Self::Repeated { mark, most: usize::MAX } => after_runs(text, starts, *mark),
            Self::Repeated { mark, most } => {
                let mut all = starts.to_vec();
                let mut last = starts.to_vec();
                for _ in 0..*most {
                    last = after_run(text, &after_literal(text, &last, &[*mark]), is_inner);
                    let before = all.clone();
                    all.iter_mut().zip(&last).for_each(|(all, more)| *all |= more);
                    if all == before {
                        break;
                    }
                }
                all
            }
            Self::Query(query) => query.ends(text, starts),
        }
    }
}

fn after_literal(text: &[u8], starts: &[bool], literal: &[u8]) -> Vec<bool> {
    let mut ends = vec![false; starts.len()];
    let starts = starts.iter().enumerate().filter(|(_, start)| **start);
    for (at, _) in starts {
        if text.get(at..).is_some_and(|rest| rest.starts_with(literal))
            && let Some(end) = ends.get_mut(at + literal.len())
        {
            *end = true;
        }
    }
    ends
}

/// Positions at which a run of one or more matching bytes can end.
fn after_run(text: &[u8], starts: &[bool], is: impl Fn(u8) -> bool) -> Vec<bool> {
    let mut ends = vec![false; starts.len()];
    let mut inside = false;
    for (at, byte) in text.iter().enumerate() {
        inside = (inside || starts.get(at) == Some(&true)) && is(*byte);
        if let Some(end) = ends.get_mut(at + 1) {
            *end = inside;
        }
    }
    ends
}

/// Positions at which a run of at most `most` characters with matching bytes can end. An escaped character counts as one.
fn after_short_run(
    text: &[u8],
    starts: &[bool],
    most: usize,
    is: impl Fn(u8) -> bool,
) -> Vec<bool> {
    let mut ends = vec![false; starts.len()];
    // Characters since the last start: a run from an earlier one is longer.
    let mut since = None;
    for (at, byte) in text.iter().enumerate() {
        if starts.get(at) == Some(&true) {
            since = Some(0);
        }
        since = since
            .filter(|_| is(*byte))
            .map(|count: usize| count + usize::from(begins_one(text, at)));
        if let Some(end) = ends.get_mut(at + 1) {
            *end = since.is_some_and(|count| count <= most);
        }
    }
    ends
}

/// Whether a character begins at a place: not within an escape, and not with a byte that continues a character.
fn begins_one(text: &[u8], at: usize) -> bool {
    let is_escape =
        |before: usize| at.checked_sub(before).and_then(|at| text.get(at)) == Some(&b'%');
    let continues =
        |byte: Option<&u8>| matches!(byte, Some(b'8' | b'9' | b'A' | b'B' | b'a' | b'b'));
    let is_continuation = text.get(at) == Some(&b'%') && continues(text.get(at + 1));
    !(is_escape(1) || is_escape(2) || is_continuation)
}

/// Positions at which any number of runs can end, each preceded by `mark`. Visits each byte once.
fn after_runs(text: &[u8], starts: &[bool], mark: u8) -> Vec<bool> {
    let mut ends = starts.to_vec();
    // `marked`: right after a mark. `inside`: in a run, which can end here.
    let (mut marked, mut inside) = (false, false);
    for (at, byte) in text.iter().enumerate() {
        let begins = inside || starts.get(at) == Some(&true);
        inside = (marked || inside) && is_inner(*byte);
        marked = begins && *byte == mark;
        if let Some(end) = ends.get_mut(at + 1) {
            *end |= inside;
        }
    }
    ends
}

impl QueryPart {
    /// Positions at which zero or more parameters can end if they begin at one of `starts`. Visits each byte a fixed
    /// number of times.
    fn ends(&self, text: &[u8], starts: &[bool]) -> Vec<bool> {
        let (mut ends, limits) = (starts.to_vec(), parameter_ends(text));
        // Positions at which another parameter can follow.
        let mut goes_on = vec![false; starts.len()];
        for (at, byte) in text.iter().enumerate() {
            let begins = *byte == self.mark && starts.get(at) == Some(&true);
            let next = *byte == b'&' && goes_on.get(at) == Some(&true);
            let Some(limit) = limits.get(at + 1).filter(|_| begins || next) else { continue };
            if !self.has(text.get(at + 1..*limit).unwrap_or_default()) {
                continue;
            }
            for reached in [&mut ends, &mut goes_on] {
                if let Some(end) = reached.get_mut(*limit) {
                    *end = true;
                }
            }
        }
        ends
    }

    /// Whether the expression permits this parameter, with or without a value.
    fn has(&self, parameter: &[u8]) -> bool {
        let is = |name: &[u8]| {
            let rest = parameter.strip_prefix(name);
            rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'='))
        };
        match &self.names {
            Some(names) => names.iter().any(|name| is(name.as_bytes())),
            None => !is(b""),
        }
    }
}

/// For each position, where a parameter that begins there ends.
fn parameter_ends(text: &[u8]) -> Vec<usize> {
    let mut end = text.len();
    let mut ends = vec![end; text.len() + 1];
    for (at, byte) in text.iter().enumerate().rev() {
        if *byte == b'&' {
            end = at;
        }
        if let Some(known) = ends.get_mut(at) {
            *known = end;
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::{MatchWork, UriTemplate};
    use crate::subject::uri::ResourceUri;

    fn matches(template: &str, uri: &str) -> bool {
        let uri = ResourceUri::parse(uri).unwrap();
        let left = &mut MatchWork::default();
        UriTemplate::read(template).is_some_and(|template| template.matches(&uri, left))
    }

    #[test]
    fn an_expression_stands_for_what_it_says_and_no_more() {
        for (template, uri) in [
            ("note://board", "note://board"),
            ("note://results/{id}", "note://results/a7"),
            ("note://results/{id}.txt", "note://results/a.b.txt"),
            ("note://results/{id}", "note://results/a%20b"),
            ("note://{who}/{id}", "note://ana/7"),
            ("note://results/{a,b}", "note://results/1,2"),
            ("note://results/{id:3}", "note://results/abc"),
            ("note://results/{id:3}", "note://results/a%C3%A9%20"),
            ("note://results/{id:3}d", "note://results/abcd"),
            ("note://results/{+id:3}", "note://results/a/b"),
            ("note://results/x{;a,b}", "note://results/x"),
            ("note://results/x{;a,b}", "note://results/x;a=1;b=2"),
            ("note://results/x{;a,b}", "note://results/x;b"),
            ("note://results/x{;all*}", "note://results/x;z=1;y=2"),
            ("file:///srv/{+path}", "file:///srv/a/b/c"),
            ("file:///srv{/path*}", "file:///srv/a/b/c"),
            ("file:///srv{/a,b}", "file:///srv/a/b"),
            ("file:///srv{/a,b}", "file:///srv"),
            ("file:///srv/a{.ending}", "file:///srv/a.txt"),
            ("note://find{?q,page}", "note://find?q=a%26b&page=2"),
            ("note://find{?q,page}", "note://find"),
            ("note://find{?all*}", "note://find?x=1&y=2"),
            ("note://find?q=1{&page}", "note://find?q=1&page=2"),
            ("note://find{?q}", "note://find?q"),
            ("note://find{?q,page}{&page}", "note://find?q=1&page=2"),
            ("note://x/a{.parts*}", "note://x/a.b.c"),
            ("note://x/a{.parts*}", "note://x/a"),
            ("note://x/a{.parts*}/z", "note://x/a.b/z"),
            ("NOTE://results/{id}", "note://results/1"),
        ] {
            assert!(matches(template, uri), "{template} {uri}");
        }
        for (template, uri) in [
            ("note://results/{id}", "note://results/"),
            ("note://results/{id}", "note://results/a/b"),
            ("note://results/{id:3}", "note://results/abcd"),
            ("note://results/{id:3}", "note://results/%C3%A9%C3%A9%C3%A9%C3%A9"),
            ("note://results/{+id:3}", "note://results/a/bc"),
            ("note://results/x{;a,b}", "note://results/x;z=1"),
            ("note://results/x{;a,b}", "note://results/x;a=1;z=2"),
            ("note://results/x{;a,b}", "note://results/x;ab=1"),
            ("note://results/x{;a,b}", "note://results/x;a;b;a"),
            ("note://results/x{;a,b}", "note://results/x;b=1;a=2"),
            ("note://results/{id:0}", "note://results/a"),
            ("note://results/{id:03}", "note://results/a"),
            ("note://results/{id:10000}", "note://results/a"),
            ("note://results/{id:99999999999999999999}", "note://results/a"),
            ("note://results/{id}", "note://results/a?x=1"),
            ("note://results/{id}", "note://other/a"),
            ("note://results/{id}", "notes://results/a"),
            ("note://results/{id}/x", "note://results/a/xy"),
            ("file:///srv{/a,b}", "file:///srv/a/b/c"),
            ("file:///srv{/path*}", "file:///srvother/a"),
            ("file:///srv/a{#part}", "file:///srv/ab"),
            ("file:///srv/a{.ending}", "file:///srv/ab"),
            ("note://find{?q,page}", "note://find?q=1&user=bob"),
            ("note://find{?q}", "note://find?query=1"),
            ("note://x/find{?q}", "note://x/find&q=1"),
            ("note://find{?all*}", "note://find?=1"),
            ("note://find{?all*}", "note://find?x=1&&y=2"),
            ("note://x/a{.parts*}", "note://x/ab"),
            ("file:///srv{/path*}", "file:///srv/"),
            ("note://find{?q,page}", "note://find/more?q=1"),
            ("{+uri}", "file:///etc/passwd"),
            ("{scheme}://host/a", "file://host/a"),
            ("note://results/{id", "note://results/a"),
            ("note://results/{!id}", "note://results/a"),
            ("note://results/{}", "note://results/a"),
        ] {
            assert!(!matches(template, uri), "{template} {uri}");
        }
    }

    #[test]
    fn what_many_costly_templates_take_is_bounded() {
        let costly = UriTemplate::read(&format!("note://x/{}end", "{a}{+b}".repeat(20))).unwrap();
        let plain = UriTemplate::read("note://x/{name}").unwrap();
        let other = UriTemplate::read("other://x/{name}").unwrap();
        let uri = ResourceUri::parse(&format!("note://x/{}end", "y".repeat(1500))).unwrap();
        let ordinary = ResourceUri::parse("note://x/y").unwrap();
        let mut left = MatchWork::default();
        for _ in 0..10_000 {
            assert!(!other.matches(&uri, &mut left), "another scheme costs next to nothing");
        }
        assert!(plain.matches(&ordinary, &mut left));
        for _ in 0..100 {
            let _does_not = costly.matches(&uri, &mut left);
        }
        assert!(!plain.matches(&ordinary, &mut left), "nothing is left");
    }

    #[test]
    fn a_long_template_is_compared_in_little_time() {
        for (parts, rest) in [
            ("{a}{+b}", "a".repeat(2000)),
            ("{/a*}{+b}", "/a".repeat(1000)),
            ("{+b}{?q*}", "?a&".repeat(660)),
            ("{+b}{?q*}", "?".repeat(2000)),
            ("{+b}{;p*}", ";".repeat(2000)),
            ("{+b}{;p,q}", ";p=;q".repeat(400)),
            ("{;a,a,a,a}", ";a".repeat(1000)),
            ("{a:9}{b:9}", "a".repeat(2000)),
        ] {
            let template = format!("note://x/y{}end", parts.repeat(200));
            assert!(UriTemplate::read(&template).is_some(), "{parts}");
            assert!(!matches(&template, &format!("note://x/y{rest}")), "{parts}");
        }
        let names = format!("note://x/y{{;{}a}}end", "a,".repeat(950));
        assert!(UriTemplate::read(&names).is_some());
        assert!(!matches(&names, &format!("note://x/y{}", ";a".repeat(950))));
    }
}
