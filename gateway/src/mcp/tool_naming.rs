//! What the things of a server are called on a route.
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

use crate::base::hex;

/// Longest name that the interfaces of models take.
const LONGEST: usize = 128;
/// Between the name of a server and that of its tool.
pub const BETWEEN: &str = "__";

/// When the name of the server stands before that of the tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefix {
    /// For every server but the first of the route, so that a server that is added behind it renames
    /// nothing.
    #[default]
    Auto,
    /// Always, with one server too.
    Always,
    /// Where two servers offer the same name.
    OnConflict,
    /// Never; what two servers offer under the same name is left out.
    Never,
}

/// How the names of one server's things are made on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameForm {
    /// Every name is the server's: nothing has to be told apart.
    Own,
    /// Every name is the server's, but for those that could be taken for a prefixed name of the route.
    First,
    /// The name of the server stands before every name.
    Prefixed,
    /// The name of the server stands before names that another server offers as well.
    OnConflict,
    /// Names that another server offers as well are left out.
    Unshared,
}

impl NameForm {
    /// The form for the server at `place` of a route with `count` servers.
    #[must_use]
    pub const fn of(prefix: Prefix, place: usize, count: usize) -> Self {
        match (prefix, count > 1) {
            (Prefix::Always, _) => Self::Prefixed,
            (Prefix::Auto | Prefix::OnConflict | Prefix::Never, false) => Self::Own,
            (Prefix::Auto, true) if place == 0 => Self::First,
            (Prefix::Auto, true) => Self::Prefixed,
            (Prefix::OnConflict, true) => Self::OnConflict,
            (Prefix::Never, true) => Self::Unshared,
        }
    }

    /// What the tools of `server` are called, in words for the operator. Forms that give the same names
    /// have the same words.
    #[must_use]
    pub fn said(self, server: &ServerName) -> String {
        let fitted: String = server.as_str().chars().map(fitting).collect();
        let digest = if fitted == server.as_str() { "" } else { "_DIGEST" };
        let with = format!("{fitted}{BETWEEN}NAME{digest}");
        match self {
            Self::Own | Self::First => format!("tools of `{server}` keep their names"),
            Self::Prefixed => format!("tools of `{server}` are named `{with}`"),
            Self::OnConflict => format!(
                "tools of `{server}` keep their names, and are named `{with}` where another server has the same"
            ),
            Self::Unshared => format!(
                "tools of `{server}` keep their names, and are left out where another server has the same"
            ),
        }
    }
}

/// How the things of one server are called on a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    form: NameForm,
    /// All servers of the route: their names stand before others.
    servers: Arc<[ServerName]>,
    /// Names that another server on the route offers as well.
    taken: Arc<BTreeSet<Box<str>>>,
}

impl Naming {
    /// In this form on a route with these servers, of which others offer the names `taken`.
    #[must_use]
    pub const fn new(
        form: NameForm,
        servers: Arc<[ServerName]>,
        taken: Arc<BTreeSet<Box<str>>>,
    ) -> Self {
        Self { form, servers, taken }
    }

    /// Whether the names that others offer matter.
    #[must_use]
    pub const fn compares(prefix: Prefix, kind: Kind) -> bool {
        matches!(kind, Kind::Tool | Kind::Prompt)
            && matches!(prefix, Prefix::OnConflict | Prefix::Never)
    }

    /// What `name` of `server` is called on the route; `None` when it has no name there.
    #[must_use]
    pub fn show<'a>(&self, server: &ServerName, kind: Kind, name: &'a str) -> Option<Cow<'a, str>> {
        let own = Some(Cow::Borrowed(name));
        if matches!(kind, Kind::Resource | Kind::Template) {
            let keeps = match self.form {
                NameForm::Own => true,
                NameForm::First => !self.has_scheme(name),
                NameForm::Prefixed | NameForm::OnConflict | NameForm::Unshared => false,
            };
            return if keeps { own } else { Some(format!("{}+{name}", scheme(server)).into()) };
        }
        let keeps = match self.form {
            NameForm::Own => true,
            NameForm::First => !self.has_prefix(name),
            NameForm::Prefixed => false,
            // What looks like a prefixed name could be taken for one.
            NameForm::OnConflict => !self.taken.contains(name) && !name.contains(BETWEEN),
            NameForm::Unshared if self.taken.contains(name) => return None,
            NameForm::Unshared => true,
        };
        if keeps { own } else { Some(prefixed(server, name).into()) }
    }

    /// Whether `shown` can be what something of `server` is called: what is called otherwise need not be
    /// looked for there.
    #[must_use]
    pub fn may_show(&self, server: &ServerName, shown: &str) -> bool {
        match self.form {
            NameForm::Own | NameForm::OnConflict | NameForm::Unshared => true,
            NameForm::First => !self.has_prefix(shown) || is_prefixed(server, shown),
            NameForm::Prefixed => is_prefixed(server, shown),
        }
    }

    /// What the tool or prompt of `server` that is called `shown` on the route can be called at the server, as far as
    /// `shown` says it: of a name that was cut or changed to fit it does not.
    #[must_use]
    pub fn own_name<'a>(&self, server: &ServerName, shown: &'a str) -> Option<&'a str> {
        let unprefixed = || {
            let rest = shown.get(server.as_str().len()..)?.strip_prefix(BETWEEN)?;
            (prefixed(server, rest) == shown && !is_marked(rest)).then_some(rest)
        };
        match self.form {
            NameForm::Own | NameForm::Unshared => Some(shown),
            NameForm::Prefixed => unprefixed(),
            NameForm::First if self.has_prefix(shown) => unprefixed(),
            NameForm::OnConflict if shown.contains(BETWEEN) => unprefixed(),
            NameForm::First | NameForm::OnConflict => Some(shown),
        }
    }

    /// The URI at `server` of a resource that is called `uri` on the route, if it is one of it.
    #[must_use]
    pub fn own_uri<'a>(&self, server: &ServerName, uri: &'a str) -> Option<&'a str> {
        match self.form {
            NameForm::Own => Some(uri),
            NameForm::First if self.has_scheme(uri) => {
                unscheme(server, uri).filter(|own| self.has_scheme(own))
            }
            NameForm::First => Some(uri),
            NameForm::Prefixed | NameForm::OnConflict | NameForm::Unshared => unscheme(server, uri),
        }
    }

    /// Whether the name of a server of the route stands before this name of a tool.
    fn has_prefix(&self, name: &str) -> bool {
        self.servers.iter().any(|server| is_prefixed(server, name))
    }

    /// The same of the URI of a resource.
    fn has_scheme(&self, uri: &str) -> bool {
        self.servers.iter().any(|server| unscheme(server, uri).is_some())
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
    let mark = hex::encode(digest.as_ref().get(..MARK / 2).unwrap_or_default());
    let kept: String = whole.chars().map(fitting).take(LONGEST - mark.len() - 1).collect();
    format!("{kept}_{mark}")
}

/// Digits of the digest that tells apart a name that was cut or changed.
const MARK: usize = 12;

/// Whether this ends as a name that was cut or changed to fit.
fn is_marked(name: &str) -> bool {
    let is_mark = |mark: &str| mark.len() == MARK && mark.bytes().all(|b| b.is_ascii_hexdigit());
    name.rsplit_once('_').is_some_and(|(_, mark)| is_mark(mark))
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

/// Whether the name of `server` stands before `shown`, as [`prefixed`] writes it. A name of a server is short enough to be
/// there whole, with what comes after it, also where the rest was cut.
fn is_prefixed(server: &ServerName, shown: &str) -> bool {
    let rest = shown.get(server.as_str().len()..);
    could_be_of(server, shown) && rest.is_some_and(|rest| rest.starts_with(BETWEEN))
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
    use super::{NameForm, Naming, Prefix, could_be_of, prefixed, scheme, unscheme};
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

    /// The naming of a server at `place` of a route with the servers `files` and `git`.
    fn naming(prefix: Prefix, place: usize, taken: &[&str]) -> Naming {
        let servers: Arc<[ServerName]> = Arc::new([server("files"), server("git")]);
        let taken = taken.iter().map(|name| Box::from(*name)).collect();
        Naming::new(NameForm::of(prefix, place, servers.len()), servers, Arc::new(taken))
    }

    #[test]
    fn a_name_that_two_servers_offer_is_told_apart_or_left_out() {
        let show = |prefix, name| {
            let naming = naming(prefix, 0, &["read"]);
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
    fn the_first_server_keeps_its_names_and_no_other_can_have_one_of_them() {
        let (first, second) = (naming(Prefix::Auto, 0, &[]), naming(Prefix::Auto, 1, &[]));
        let (files, git) = (server("files"), server("git"));
        let tool =
            |naming: &Naming, of, name| naming.show(of, Kind::Tool, name).unwrap().into_owned();
        assert_eq!(tool(&first, &files, "read"), "read");
        assert_eq!(tool(&second, &git, "read"), "git__read");
        assert_eq!(tool(&first, &files, "git__read"), "files__git__read");
        assert_eq!(tool(&first, &files, "files__git__read"), "files__files__git__read");
        assert!(first.may_show(&files, "read") && !first.may_show(&files, "git__read"));
        assert!(second.may_show(&git, "git__read") && !second.may_show(&git, "read"));
        for uri in ["file:///a", "git+file:///a", "files+git+file:///a", "GIT+x:a"] {
            let shown = first.show(&files, Kind::Resource, uri).unwrap().into_owned();
            assert_eq!(first.own_uri(&files, &shown), Some(uri), "{shown}");
            assert_eq!(second.own_uri(&git, &shown), None, "{shown}");
            let shown = second.show(&git, Kind::Resource, uri).unwrap().into_owned();
            assert_eq!(second.own_uri(&git, &shown), Some(uri), "{shown}");
        }
    }

    #[test]
    fn a_name_says_what_it_is_at_its_server_where_it_was_not_changed() {
        for (prefix, place, shown, own) in [
            (Prefix::Auto, 0, "read", Some("read")),
            (Prefix::Auto, 0, "files__git__read", Some("git__read")),
            (Prefix::Auto, 0, "git__read", None),
            (Prefix::Auto, 1, "git__read", Some("read")),
            (Prefix::Auto, 1, "read", None),
            (Prefix::OnConflict, 1, "read", Some("read")),
            (Prefix::OnConflict, 1, "git__read", Some("read")),
            (Prefix::OnConflict, 1, "files__read", None),
            (Prefix::Never, 1, "git__read", Some("git__read")),
            (Prefix::Always, 1, &prefixed(&server("git"), &"x".repeat(300)), None),
            (Prefix::Always, 1, &prefixed(&server("git"), "a.b"), None),
        ] {
            let of = server(if place == 0 { "files" } else { "git" });
            let naming = naming(prefix, place, &[]);
            assert_eq!(naming.own_name(&of, shown), own, "{prefix:?} {place} {shown}");
        }
    }

    #[test]
    fn one_server_has_prefixed_names_only_where_that_is_asked_for() {
        let form = |prefix| NameForm::of(prefix, 0, 1).said(&server("files.v2"));
        assert_eq!(form(Prefix::Always), "tools of `files.v2` are named `files_v2__NAME_DIGEST`");
        for prefix in [Prefix::Auto, Prefix::OnConflict, Prefix::Never] {
            assert_eq!(form(prefix), "tools of `files.v2` keep their names");
        }
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
        fn no_name_leads_to_two_servers(
            one in "(git|files|g)?(__|_|\\.)?[a-z_.]{1,140}",
            two in "(git|files|g)?(__|_|\\.)?[a-z_.]{1,140}",
        ) {
            let (first, second) = (naming(Prefix::Auto, 0, &[]), naming(Prefix::Auto, 1, &[]));
            let (files, git) = (server("files"), server("git"));
            let shown = first.show(&files, Kind::Tool, &one).unwrap();
            prop_assert_ne!(&shown, &second.show(&git, Kind::Tool, &two).unwrap());
            prop_assert!(first.may_show(&files, &shown) && !second.may_show(&git, &shown));
        }

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
