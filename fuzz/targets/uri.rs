//! The canonical form of a URI is its own, names the same place for another reader, and is among the forms in which it is
//! compared with what is forbidden.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use http::Uri;
use libfuzzer_sys::fuzz_target;
use policy_core::subject::uri::{ResourceUri, related};

use self::bounded::bounded;

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
    let forms = bounded(text.len(), |_| related(uri.as_str()));
    assert!(forms.len() <= 32 && forms.iter().any(|form| *form == uri.as_str()));
    if uri.as_str().starts_with("http")
        && let (Some(before), Some(after)) = (place(text), place(uri.as_str()))
    {
        assert_eq!(before, after, "{text:?}");
    }
});
