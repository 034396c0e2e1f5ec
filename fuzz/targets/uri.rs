//! The canonical form of a URI is its own, names the same place for another reader, and is among the forms in which it is
//! compared with what is forbidden.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use http::Uri;
use libfuzzer_sys::fuzz_target;
use policy_core::subject::uri::{ResourceUri, reduced, related};

use self::bounded::bounded;

/// The most forms that a URI has: itself, and each of eight with five paths and five queries.
const FORMS: usize = 1 + 8 * 5 * 5;

/// The scheme, host and port of a URI as `http` reads them.
fn place(text: &str) -> Option<(String, String, Option<u16>)> {
    let uri: Uri = text.parse().ok()?;
    let lower = |text: &str| text.to_ascii_lowercase();
    Some((lower(uri.scheme_str()?), lower(uri.host()?), uri.port_u16()))
}

fuzz_target!(|text: &str| {
    let parsed = bounded(text.len(), |_| ResourceUri::parse(text));
    for parse in [ResourceUri::parse, ResourceUri::listed, ResourceUri::template] {
        let Ok(uri) = parse(text) else { continue };
        assert_eq!(parse(uri.as_str()).as_ref(), Ok(&uri), "{text:?}");
    }
    let Ok(uri) = parsed else { return };
    // What a caller may name, a server may list, in the same form.
    assert_eq!(ResourceUri::listed(text).as_ref(), Ok(&uri), "{text:?}");
    assert_eq!(related(uri.as_str()).next().as_deref(), Some(uri.as_str()));
    let shared = bounded(text.len(), |_| reduced(uri.as_str()));
    let forms = related(uri.as_str()).inspect(|form| assert_eq!(reduced(form), shared));
    assert!(forms.count() <= FORMS, "{text:?}");
    if uri.as_str().starts_with("http")
        && let (Some(before), Some(after)) = (place(text), place(uri.as_str()))
    {
        assert_eq!(before, after, "{text:?}");
    }
});
