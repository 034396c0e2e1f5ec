//! What the things of a server are called on a route that has several servers.
//!
//! A name on a route leads to one thing of one server and to nothing else: two things that would
//! have the same name there are both left out, because nobody could say which of them is meant
//! (threats T1008, AV-41).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use aws_lc_rs::digest;
use policy::name::ServerName;
use policy::offer::Kind;

use crate::hex;

/// Longest name that the interfaces of models take.
const LONGEST: usize = 128;
/// Between the name of a server and that of its tool.
pub const BETWEEN: &str = "__";

/// When the name of the server stands before that of the tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefix {
    /// Always, where there is more than one server.
    #[default]
    Always,
    /// Where two servers offer the same name.
    OnConflict,
    /// Never; what two servers offer under the same name is left out.
    Never,
}

/// How the things of one server are called on a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    prefix: Prefix,
    /// There are other servers on the route.
    several: bool,
    /// Names that another server on the route offers as well.
    taken: Arc<BTreeSet<Box<str>>>,
}

impl Naming {
    /// On a route with one server there is nothing to tell apart: every name is the server's.
    #[must_use]
    pub fn alone() -> Self {
        Self { prefix: Prefix::Never, several: false, taken: Arc::default() }
    }

    /// On a route with several servers, of which others offer the names `taken`.
    #[must_use]
    pub const fn among(prefix: Prefix, taken: Arc<BTreeSet<Box<str>>>) -> Self {
        Self { prefix, several: true, taken }
    }

    /// Whether the names that others offer matter.
    #[must_use]
    pub const fn compares(prefix: Prefix, kind: Kind) -> bool {
        matches!(kind, Kind::Tool | Kind::Prompt) && !matches!(prefix, Prefix::Always)
    }

    /// What `name` of `server` is called on the route; `None` when it has no name there.
    #[must_use]
    pub fn show<'a>(&self, server: &ServerName, kind: Kind, name: &'a str) -> Option<Cow<'a, str>> {
        if !self.several {
            return Some(Cow::Borrowed(name));
        }
        if matches!(kind, Kind::Resource | Kind::Template) {
            return Some(Cow::Owned(format!("{}+{name}", scheme(server))));
        }
        match (self.prefix, self.taken.contains(name)) {
            (Prefix::Always, _) | (Prefix::OnConflict, true) => {
                Some(Cow::Owned(prefixed(server, name)))
            }
            // What looks like a prefixed name could be taken for one.
            (Prefix::OnConflict, false) if name.contains(BETWEEN) => {
                Some(Cow::Owned(prefixed(server, name)))
            }
            (Prefix::OnConflict | Prefix::Never, false) => Some(Cow::Borrowed(name)),
            (Prefix::Never, true) => None,
        }
    }
}

/// `SERVER__NAME` in the alphabet and the length that the interfaces of models take. A name that
/// does not fit is cut and told apart by its digest.
#[must_use]
pub fn prefixed(server: &ServerName, name: &str) -> String {
    let plain = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let whole = format!("{server}{BETWEEN}{name}");
    if whole.len() <= LONGEST && plain(&whole) {
        return whole;
    }
    let digest = digest::digest(&digest::SHA256, whole.as_bytes());
    let mark = hex::encode(digest.as_ref().get(..6).unwrap_or_default());
    let kept: String = whole.chars().map(fitting).take(LONGEST - mark.len() - 1).collect();
    format!("{kept}_{mark}")
}

/// A character as it stands in a prefixed name.
const fn fitting(c: char) -> char {
    if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }
}

/// Whether `shown` could be what [`prefixed`] makes of a name of `server`: it begins with the name of the
/// server, in the alphabet of prefixed names.
#[must_use]
pub fn could_be_of(server: &ServerName, shown: &str) -> bool {
    let mut begins = shown.chars();
    server.as_str().chars().all(|c| begins.next() == Some(fitting(c)))
}

/// The name of a server as the beginning of a URI scheme (RFC 3986 section 3.1), before the URI of
/// its resource: `files+file:///a`.
#[must_use]
pub fn scheme(server: &ServerName) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let text: String = server.as_str().chars().map(fits).collect::<String>().to_ascii_lowercase();
    if text.starts_with(|c: char| c.is_ascii_alphabetic()) { text } else { format!("s{text}") }
}

/// The URI of a resource at its server, if `uri` begins with the name of `server`. Clients may have
/// written the scheme in other letters: to them it is the same.
#[must_use]
pub fn unscheme<'a>(server: &ServerName, uri: &'a str) -> Option<&'a str> {
    let scheme = scheme(server);
    let (before, rest) = uri.split_at_checked(scheme.len())?;
    let rest = rest.strip_prefix('+')?;
    before.eq_ignore_ascii_case(&scheme).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::{Naming, Prefix, could_be_of, prefixed, scheme, unscheme};
    use policy::name::ServerName;
    use policy::offer::Kind;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn server(name: &str) -> ServerName {
        ServerName::parse(name).unwrap()
    }

    #[test]
    fn names_fit_what_models_accept() {
        assert_eq!(prefixed(&server("files"), "read"), "files__read");
        assert!(prefixed(&server("files"), "a.b").starts_with("files__a_b_"));
        assert_ne!(prefixed(&server("files"), "a.b"), prefixed(&server("files"), "a/b"));
        assert_eq!(prefixed(&server("files"), &"x".repeat(300)).len(), 128);
    }

    #[test]
    fn a_name_that_two_servers_offer_is_told_apart_or_left_out() {
        let taken = Arc::new(["read".into()].into());
        let show = |prefix, name| {
            let naming = Naming::among(prefix, Arc::clone(&taken));
            naming.show(&server("files"), Kind::Tool, name).map(std::borrow::Cow::into_owned)
        };
        assert_eq!(show(Prefix::Always, "list").as_deref(), Some("files__list"));
        assert_eq!(show(Prefix::OnConflict, "list").as_deref(), Some("list"));
        assert_eq!(show(Prefix::OnConflict, "read").as_deref(), Some("files__read"));
        assert_eq!(show(Prefix::OnConflict, "git__log").as_deref(), Some("files__git__log"));
        assert_eq!(show(Prefix::Never, "list").as_deref(), Some("list"));
        assert_eq!(show(Prefix::Never, "read"), None);
    }

    #[test]
    fn a_resource_finds_its_way_back() {
        assert_eq!(scheme(&server("My_files")), "my-files");
        assert_eq!(scheme(&server("7z")), "s7z");
        let uri = "MY-FILES+file:///a+b";
        assert_eq!(unscheme(&server("My_files"), uri), Some("file:///a+b"));
        assert_eq!(unscheme(&server("my"), uri), None);
    }

    proptest! {
        #[test]
        fn a_prefixed_name_is_accepted_everywhere(name in "\\PC{1,300}") {
            let shown = prefixed(&server("s-1"), &name);
            prop_assert!(shown.len() <= 128);
            prop_assert!(could_be_of(&server("s-1"), &shown));
            prop_assert!(could_be_of(&server("s.1"), &prefixed(&server("s.1"), &name)));
            prop_assert!(shown.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
        }
    }
}
