//! Recognises apps, and what points to them, as the most lenient client does.

use json::Value;
use policy_core::subject::uri::ResourceUri;

use super::EXTENSION;

/// The scheme of the URIs of apps, with its colon.
const SCHEME: &str = "ui:";
/// How the URI of an app begins where any text can stand.
const LINK: &str = "ui:/";
/// The type and the subtype of apps.
const ESSENCE: &str = "text/html";
/// The parameter of the media type of apps, and its value.
const PROFILE: (&str, &str) = ("profile", "mcp-app");

/// Whether some client could take the text for the URI of an app.
#[must_use]
pub fn is_app_uri(text: &str) -> bool {
    begins(text, SCHEME)
}

/// Whether a template can make URIs of apps: its scheme is that of apps, or begins like it (`u{x}`, `ui{+rest}`).
/// SPEC RFC 6570, section 3.2.3
#[must_use]
pub fn is_app_template(text: &str) -> bool {
    let (literal, _) = text.split_once('{').unwrap_or((text, ""));
    let is_read = |c: &char| !c.is_whitespace() && !c.is_control() && !is_unseen(*c);
    let literal = literal.chars().filter(is_read).collect::<String>().to_ascii_lowercase();
    let is_open = !literal.is_empty() && SCHEME.starts_with(&literal) && text.contains('{');
    is_open || literal.starts_with(SCHEME)
}

/// Whether a text begins with these ASCII characters, without case and without what readers may drop.
fn begins(text: &str, with: &str) -> bool {
    let is_read = |c: &char| !c.is_whitespace() && !c.is_control() && !is_unseen(*c);
    let head = text.chars().filter(is_read).take(with.len());
    head.collect::<String>().eq_ignore_ascii_case(with)
}

/// Whether a character is not shown, and removed by some readers.
const fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The canonical form of the URI of an app; `None` if it has none, or is of something else.
#[must_use]
pub fn app_uri(text: &str) -> Option<ResourceUri> {
    ResourceUri::parse(text).ok().filter(|uri| uri.as_str().starts_with(SCHEME))
}

/// Whether some client could take the media type for that of an app: also in the forms that earlier drafts and other
/// products had (`text/html+mcp`, `text/html+skybridge`).
#[must_use]
pub fn is_app_type(text: &str) -> bool {
    // A backslash stands before any character of a quoted parameter (RFC 9110, section 5.6.4).
    let text: String = text.chars().filter(|c| !c.is_whitespace() && *c != '\\').collect();
    let text = text.to_ascii_lowercase();
    text.strip_prefix(ESSENCE).is_some_and(|rest| rest.starts_with('+')) || text.contains(PROFILE.1)
}

/// Whether a media type is exactly that of apps: in any legal spelling, with no other parameter
/// (RFC 9110, section 8.3.1).
#[must_use]
pub fn is_exact_type(text: &str) -> bool {
    let mut parts = text.split(';').map(|part| part.trim_matches([' ', '\t']));
    let is_essence = parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case(ESSENCE));
    // A semicolon with nothing behind it is legal.
    let mut parameters = parts.filter(|part| !part.is_empty());
    let is_profile =
        parameters.next().and_then(|part| part.split_once('=')).is_some_and(|(name, value)| {
            let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            name.eq_ignore_ascii_case(PROFILE.0) && quoted.unwrap_or(value) == PROFILE.1
        });
    is_essence && is_profile && parameters.next().is_none()
}

/// How the names of members of `_meta` end by which products give an app origins beside `ui.csp` and `ui.domain`, such as
/// `openai/widgetCSP`.
const PRODUCTS: [&str; 2] = ["csp", "widgetdomain"];

/// Whether a member of `_meta` is about apps: `ui`, `ui/resourceUri` and the like, or anything that holds the URI of an
/// app, under whichever name.
#[must_use]
pub fn is_of_apps(name: &str, value: Value<'_>) -> bool {
    let is = |known: &str| {
        let head = name.get(..known.len());
        let rest = name.get(known.len()..).unwrap_or_default();
        head.is_some_and(|head| head.eq_ignore_ascii_case(known))
            && (rest.is_empty() || rest.starts_with('/'))
    };
    let letters = letters(name);
    let is_of_product = PRODUCTS.iter().any(|end| letters.ends_with(end));
    is("ui") || letters == "ui" || is(EXTENSION) || is_of_product || holds_link(value)
}

/// Whether a value is the URI of an app, or holds one at any depth, also as the name of a member.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn holds_link(value: Value<'_>) -> bool {
    value.as_str().is_some_and(|text| begins(&text, LINK))
        || value.items().any(holds_link)
        || value.members().any(|(name, member)| begins(&name, LINK) || holds_link(member))
}

/// The URIs of apps to which the definition of a tool points.
pub fn linked_apps(definition: Value<'_>) -> impl Iterator<Item = String> {
    let metas = definition.members().filter(|(name, _)| is_meta(name));
    let members = metas.flat_map(|(_, meta)| meta.members());
    let of_apps = members.filter(|(name, value)| is_of_apps(name, *value));
    let texts = of_apps.flat_map(|(_, value)| {
        value.as_str().into_iter().chain(value.members().filter_map(|(_, inner)| inner.as_str()))
    });
    texts.filter(|text| is_app_uri(text)).map(std::borrow::Cow::into_owned)
}

/// Whether a client could take the name of a member for `_meta`.
#[must_use]
pub(super) fn is_meta(name: &str) -> bool {
    name.strip_prefix('_').unwrap_or(name).eq_ignore_ascii_case("meta")
}

/// Whether some client could take an object for an app, or for a link to one: a resource by its URI or media type.
#[must_use]
pub fn is_app(object: Value<'_>) -> bool {
    object.members().any(|(name, value)| {
        let text = || value.as_str();
        match letters(&name).as_str() {
            "uri" | "uritemplate" => text().is_some_and(|text| is_app_uri(&text)),
            "mimetype" => text().is_some_and(|text| is_app_type(&text)),
            _ => false,
        }
    })
}

/// The letters of a name in lower case: all that a client sees that ignores case and separators.
fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect()
}
