//! Maps the names of servers' definitions to their names on a route, and back.
//!
//! A name on a route refers to one definition of one server. If two definitions would have the same name, both are left
//! out, because the name would be ambiguous (threats T1008, AV-41).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use aws_lc_rs::digest;
use json::hex;
use policy::definition::offer::ItemKind;
use policy_core::subject::name::ServerName;

/// Most bytes of a name that model APIs accept.
const MAX_NAME: usize = 128;
/// Separator between the name of a server and that of its tool.
pub const BETWEEN: &str = "__";

/// When tool names are prefixed with the name of their server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefixMode {
    /// For every server but the first of the route, so that appending a server renames nothing.
    #[default]
    Auto,
    /// For every server, even if the route has only one.
    Always,
    /// If two servers offer the same name.
    OnConflict,
    /// Never; a name that two servers offer is left out.
    Never,
}

/// How the names of one server's definitions are formed on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameForm {
    /// Every name is unchanged, because the route has only one server.
    Own,
    /// Every name is unchanged, except those that look like a prefixed name of the route.
    First,
    /// Every name is prefixed.
    Prefixed,
    /// Names that another server offers as well are prefixed.
    OnConflict,
    /// Names that another server offers as well are left out.
    Unshared,
}

impl NameForm {
    /// The form for the server with the index `place` on a route with `count` servers.
    #[must_use]
    pub const fn of(prefix: PrefixMode, place: usize, count: usize) -> Self {
        match (prefix, count > 1) {
            (PrefixMode::Always, _) => Self::Prefixed,
            (PrefixMode::Auto | PrefixMode::OnConflict | PrefixMode::Never, false) => Self::Own,
            (PrefixMode::Auto, true) if place == 0 => Self::First,
            (PrefixMode::Auto, true) => Self::Prefixed,
            (PrefixMode::OnConflict, true) => Self::OnConflict,
            (PrefixMode::Never, true) => Self::Unshared,
        }
    }

    /// Describes the names of the tools of `server` to the operator. Forms that give the same names have the same
    /// description.
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

/// Naming of the definitions of one server on a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    form: NameForm,
    /// All servers of the route, whose names can be prefixes.
    servers: Arc<[ServerName]>,
    /// Names that another server on the route offers as well.
    taken: Arc<BTreeSet<Box<str>>>,
    /// Names that the route leaves out, if there are any.
    left_out: Option<Arc<BTreeSet<Box<str>>>>,
}

impl Naming {
    /// Creates the naming for a route with these servers, of which others offer the names `taken`.
    #[must_use]
    pub const fn new(
        form: NameForm,
        servers: Arc<[ServerName]>,
        taken: Arc<BTreeSet<Box<str>>>,
    ) -> Self {
        Self { form, servers, taken, left_out: None }
    }

    /// The same on a route that leaves out definitions of the server with these names.
    #[must_use]
    pub fn without(self, left_out: Option<Arc<BTreeSet<Box<str>>>>) -> Self {
        Self { left_out, ..self }
    }

    /// Whether the naming depends on the names that other servers offer.
    #[must_use]
    pub const fn compares(prefix: PrefixMode, kind: ItemKind) -> bool {
        matches!(kind, ItemKind::Tool | ItemKind::Prompt)
            && matches!(prefix, PrefixMode::OnConflict | PrefixMode::Never)
    }

    /// The name of a definition on the route; `None` if it is left out.
    #[must_use]
    pub fn show<'a>(
        &self,
        server: &ServerName,
        kind: ItemKind,
        name: &'a str,
    ) -> Option<Cow<'a, str>> {
        if self.left_out.as_ref().is_some_and(|names| names.contains(name)) {
            return None;
        }
        let own = Some(Cow::Borrowed(name));
        if matches!(kind, ItemKind::Resource | ItemKind::Template | ItemKind::Skill) {
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
            // A name that contains the separator could be taken for a prefixed name.
            NameForm::OnConflict => !self.taken.contains(name) && !name.contains(BETWEEN),
            NameForm::Unshared if self.taken.contains(name) => return None,
            NameForm::Unshared => true,
        };
        if keeps { own } else { Some(prefixed(server, name).into()) }
    }

    /// Whether `shown` can be the name of a definition of `server`. If not, the server need not be asked for it.
    #[must_use]
    pub fn may_show(&self, server: &ServerName, shown: &str) -> bool {
        match self.form {
            NameForm::Own | NameForm::OnConflict | NameForm::Unshared => true,
            NameForm::First => !self.has_prefix(shown) || is_prefixed(server, shown),
            NameForm::Prefixed => is_prefixed(server, shown),
        }
    }

    /// The name at `server` of the tool or prompt `shown`, as far as it can be derived; `None` for a name that was
    /// truncated or changed to fit, or that belongs to another server.
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

    /// The URI at `server` of the resource `uri` on the route; `None` if it belongs to another server.
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

    /// Whether a tool name begins with the name of any server of the route.
    fn has_prefix(&self, name: &str) -> bool {
        self.servers.iter().any(|server| is_prefixed(server, name))
    }

    /// Whether a resource URI begins with the name of any server of the route.
    fn has_scheme(&self, uri: &str) -> bool {
        self.servers.iter().any(|server| unscheme(server, uri).is_some())
    }
}

/// Forms `SERVER__NAME` in the alphabet and the length that model APIs accept. A name that does not fit is truncated,
/// and gets a suffix from its digest.
#[must_use]
pub fn prefixed(server: &ServerName, name: &str) -> String {
    let plain = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let whole = format!("{server}{BETWEEN}{name}");
    if whole.len() <= MAX_NAME && plain(&whole) {
        return whole;
    }
    let digest = digest::digest(&digest::SHA256, whole.as_bytes());
    let mark = hex::encode(digest.as_ref().get(..MARK / 2).unwrap_or_default());
    let kept: String = whole.chars().map(fitting).take(MAX_NAME - mark.len() - 1).collect();
    format!("{kept}_{mark}")
}

/// Hex digits of the digest in that suffix.
const MARK: usize = 12;

/// Whether a name ends with such a digest suffix.
fn is_marked(name: &str) -> bool {
    let is_mark = |mark: &str| mark.len() == MARK && mark.bytes().all(|b| b.is_ascii_hexdigit());
    name.rsplit_once('_').is_some_and(|(_, mark)| is_mark(mark))
}

/// Replaces a character that prefixed names do not allow.
const fn fitting(c: char) -> char {
    if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }
}

/// Whether `shown` could be a result of [`prefixed`] for `server`: it begins with the server's name in the alphabet of
/// prefixed names.
#[must_use]
pub fn could_be_of(server: &ServerName, shown: &str) -> bool {
    let mut begins = shown.chars();
    server.as_str().chars().all(|c| begins.next() == Some(fitting(c)))
}

/// Whether `shown` begins with the name of `server` and the separator, as [`prefixed`] writes them. Server names are
/// short, so both are present even if the rest was truncated.
#[must_use]
pub fn is_prefixed(server: &ServerName, shown: &str) -> bool {
    let rest = shown.get(server.as_str().len()..);
    could_be_of(server, shown) && rest.is_some_and(|rest| rest.starts_with(BETWEEN))
}

/// The name of a server as the first part of a URI scheme (RFC 3986 section 3.1), before the URI of its resource:
/// `files+file:///a`.
#[must_use]
pub fn scheme(server: &ServerName) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let text: String = server.as_str().chars().map(fits).collect::<String>().to_ascii_lowercase();
    if text.starts_with(|c: char| c.is_ascii_alphabetic()) { text } else { format!("s{text}") }
}

/// Removes the server's scheme from a URI; `None` if `uri` does not begin with it. Case is ignored, because clients may
/// change the case of a scheme.
#[must_use]
pub fn unscheme<'a>(server: &ServerName, uri: &'a str) -> Option<&'a str> {
    let scheme = scheme(server);
    let (before, rest) = uri.split_at_checked(scheme.len())?;
    let rest = rest.strip_prefix('+')?;
    before.eq_ignore_ascii_case(&scheme).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::{NameForm, Naming, PrefixMode, could_be_of, prefixed, scheme, unscheme};
    use policy::definition::offer::ItemKind;
    use policy_core::subject::name::ServerName;
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

    /// The naming of the server with the index `place` on a route with the servers `files` and `git`.
    fn naming(prefix: PrefixMode, place: usize, taken: &[&str]) -> Naming {
        let servers: Arc<[ServerName]> = Arc::new([server("files"), server("git")]);
        let taken = taken.iter().map(|name| Box::from(*name)).collect();
        Naming::new(NameForm::of(prefix, place, servers.len()), servers, Arc::new(taken))
    }

    #[test]
    fn a_name_that_two_servers_offer_is_told_apart_or_left_out() {
        let show = |prefix, name| {
            let naming = naming(prefix, 0, &["read"]);
            naming.show(&server("files"), ItemKind::Tool, name).map(std::borrow::Cow::into_owned)
        };
        assert_eq!(show(PrefixMode::Always, "list").as_deref(), Some("files__list"));
        assert_eq!(show(PrefixMode::OnConflict, "list").as_deref(), Some("list"));
        assert_eq!(show(PrefixMode::OnConflict, "read").as_deref(), Some("files__read"));
        assert_eq!(show(PrefixMode::OnConflict, "git__log").as_deref(), Some("files__git__log"));
        assert_eq!(show(PrefixMode::Never, "list").as_deref(), Some("list"));
        assert_eq!(show(PrefixMode::Never, "read"), None);
    }

    #[test]
    fn the_first_server_keeps_its_names_and_no_other_can_have_one_of_them() {
        let (first, second) = (naming(PrefixMode::Auto, 0, &[]), naming(PrefixMode::Auto, 1, &[]));
        let (files, git) = (server("files"), server("git"));
        let tool =
            |naming: &Naming, of, name| naming.show(of, ItemKind::Tool, name).unwrap().into_owned();
        assert_eq!(tool(&first, &files, "read"), "read");
        assert_eq!(tool(&second, &git, "read"), "git__read");
        assert_eq!(tool(&first, &files, "git__read"), "files__git__read");
        assert_eq!(tool(&first, &files, "files__git__read"), "files__files__git__read");
        assert!(first.may_show(&files, "read") && !first.may_show(&files, "git__read"));
        assert!(second.may_show(&git, "git__read") && !second.may_show(&git, "read"));
        for uri in ["file:///a", "git+file:///a", "files+git+file:///a", "GIT+x:a"] {
            let shown = first.show(&files, ItemKind::Resource, uri).unwrap().into_owned();
            assert_eq!(first.own_uri(&files, &shown), Some(uri), "{shown}");
            assert_eq!(second.own_uri(&git, &shown), None, "{shown}");
            let shown = second.show(&git, ItemKind::Resource, uri).unwrap().into_owned();
            assert_eq!(second.own_uri(&git, &shown), Some(uri), "{shown}");
        }
    }

    #[test]
    fn a_name_says_what_it_is_at_its_server_where_it_was_not_changed() {
        for (prefix, place, shown, own) in [
            (PrefixMode::Auto, 0, "read", Some("read")),
            (PrefixMode::Auto, 0, "files__git__read", Some("git__read")),
            (PrefixMode::Auto, 0, "git__read", None),
            (PrefixMode::Auto, 1, "git__read", Some("read")),
            (PrefixMode::Auto, 1, "read", None),
            (PrefixMode::OnConflict, 1, "read", Some("read")),
            (PrefixMode::OnConflict, 1, "git__read", Some("read")),
            (PrefixMode::OnConflict, 1, "files__read", None),
            (PrefixMode::Never, 1, "git__read", Some("git__read")),
            (PrefixMode::Always, 1, &prefixed(&server("git"), &"x".repeat(300)), None),
            (PrefixMode::Always, 1, &prefixed(&server("git"), "a.b"), None),
        ] {
            let of = server(if place == 0 { "files" } else { "git" });
            let naming = naming(prefix, place, &[]);
            assert_eq!(naming.own_name(&of, shown), own, "{prefix:?} {place} {shown}");
        }
    }

    #[test]
    fn one_server_has_prefixed_names_only_where_that_is_asked_for() {
        let form = |prefix| NameForm::of(prefix, 0, 1).said(&server("files.v2"));
        assert_eq!(
            form(PrefixMode::Always),
            "tools of `files.v2` are named `files_v2__NAME_DIGEST`"
        );
        for prefix in [PrefixMode::Auto, PrefixMode::OnConflict, PrefixMode::Never] {
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
            let (first, second) = (naming(PrefixMode::Auto, 0, &[]), naming(PrefixMode::Auto, 1, &[]));
            let (files, git) = (server("files"), server("git"));
            let shown = first.show(&files, ItemKind::Tool, &one).unwrap();
            prop_assert_ne!(&shown, &second.show(&git, ItemKind::Tool, &two).unwrap());
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
