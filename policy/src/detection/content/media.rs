//! Checks base64 data against its declared media type and the permitted types (control C14).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::json::coding;
use crate::subject::pattern::Pattern;

/// Characters of base64 that are decoded to recognise the type.
const HEAD: usize = 64;

/// Signatures of file formats: the bytes, their offset, and the media types that the format may have.
#[rustfmt::skip]
const MAGIC: [(&[u8], usize, &[&str]); 24] = [
    (b"\x89PNG\r\n\x1a\n", 0, &["image/png", "image/apng"]), (b"\xff\xd8\xff", 0, &["image/jpeg", "image/jpg", "image/pjpeg"]),
    (b"GIF87a", 0, &["image/gif"]), (b"GIF89a", 0, &["image/gif"]), (b"WEBP", 8, &["image/webp"]),
    (b"BM", 0, &["image/bmp", "image/x-ms-bmp"]), (b"II*\0", 0, &["image/tiff"]), (b"MM\0*", 0, &["image/tiff"]),
    (b"WAVE", 8, &["audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"]), (b"ID3", 0, &["audio/mpeg", "audio/mp3"]),
    (b"OggS", 0, &["audio/ogg", "video/ogg", "application/ogg", "audio/opus"]), (b"fLaC", 0, &["audio/flac", "audio/x-flac"]),
    (b"ftyp", 4, &["video/mp4", "audio/mp4", "audio/m4a", "audio/x-m4a", "image/avif", "image/heic", "video/quicktime"]),
    (b"\x1aE\xdf\xa3", 0, &["video/webm", "audio/webm", "video/x-matroska"]),
    (b"%PDF-", 0, &["application/pdf"]), (b"{\\rtf", 0, &["application/rtf", "text/rtf"]),
    (b"PK\x03\x04", 0, &["application/zip", "application/epub+zip", "application/java-archive", "application/vnd.", "application/x-zip"]),
    (b"\x1f\x8b", 0, &["application/gzip", "application/x-gzip", "application/x-tar", "application/x-tgz"]),
    (b"\x7fELF", 0, EXECUTABLE), (b"MZ", 0, EXECUTABLE), (b"\xcf\xfa\xed\xfe", 0, EXECUTABLE), (b"\xfe\xed\xfa\xcf", 0, EXECUTABLE),
    (b"\xca\xfe\xba\xbe", 0, EXECUTABLE), (b"\0asm", 0, &["application/wasm"]),
];
const EXECUTABLE: &[&str] = &[
    "application/x-executable",
    "application/x-elf",
    "application/x-msdownload",
    "application/vnd.microsoft.portable-executable",
    "application/x-mach-binary",
    "application/x-sharedlib",
    "application/java-vm",
    "application/x-dosexec",
];

/// The problem with `base64` data that is declared as `declared`; `None` if there is none. `types` are the permitted
/// ones; empty: all.
pub(super) fn note(
    declared: Option<&str>,
    base64: Option<&str>,
    types: &[Pattern],
) -> Option<&'static str> {
    let declared = declared.map(essence);
    let head = base64.and_then(head);
    let known = head.as_deref().and_then(kind);
    let named = declared.as_deref().or_else(|| known.and_then(|names| names.first().copied()));
    let allowed = |name: &str| types.iter().any(|pattern| pattern.matches(name));
    if !types.is_empty() && !allowed(named.unwrap_or("application/octet-stream")) {
        return Some("is of a type that is not on the list");
    }
    if base64.is_some_and(|base64| !base64.is_empty()) && head.is_none() {
        // Readers differ in how much of invalid base64 they decode.
        return Some("cannot be read as base64");
    }
    let (declared, head) = (declared?, head?);
    let goes_by = |names: &[&str]| {
        names
            .iter()
            .any(|name| *name == declared || name.ends_with('.') && declared.starts_with(name))
    };
    // This type makes no claim about the content.
    if declared == "application/octet-stream" {
        return None;
    }
    match known {
        Some(names) if goes_by(names) => None,
        Some(_) => Some("is not what its type says"),
        None if promises(&declared) => Some("is not what its type says"),
        None if is_text(&declared) && head.contains(&0) => Some("is not what its type says"),
        None => None,
    }
}

/// The problem with what a `data:` URI carries (RFC 2397); `None` if there is none, or it is another URI. `declared` is
/// the type that stands beside the URI: readers differ in which of the two they take, so both have to be permitted.
pub(super) fn note_on_uri(
    declared: Option<&str>,
    uri: &str,
    types: &[Pattern],
) -> Option<&'static str> {
    let DataUri { kind, base64 } = DataUri::read(uri)?;
    let kind = kind.as_deref().or(declared).unwrap_or("text/plain");
    [Some(kind), declared]
        .into_iter()
        .flatten()
        .find_map(|declared| note(Some(declared), Some(&base64), types))
}

/// What a `data:` URI carries.
struct DataUri {
    /// Its media type, if it names one.
    kind: Option<String>,
    /// The data in base64; of data that is not in base64 only the beginning.
    base64: String,
}

impl DataUri {
    /// Reads a URI as leniently as browsers do; `None` where it is none with data.
    fn read(uri: &str) -> Option<Self> {
        const SCHEME: &str = "data:";
        // SPEC WHATWG URL, basic URL parser: these characters are left out.
        let is_ignored = |c: char| matches!(c, '\t' | '\n' | '\r');
        let uri = uri.trim_start_matches(|c: char| c <= ' ');
        let letters = || uri.chars().filter(|c| !is_ignored(*c));
        if !letters().take(SCHEME.len()).collect::<String>().eq_ignore_ascii_case(SCHEME) {
            return None;
        }
        let plain: String = letters().skip(SCHEME.len()).collect();
        let (head, data) = plain.split_once(',')?;
        let mut parts = head.split(';').map(str::trim);
        let kind = parts.next().filter(|kind| !kind.is_empty()).map(str::to_owned);
        let (bytes, _undone) = coding::percent(data);
        let base64 = if parts.any(|part| part.eq_ignore_ascii_case("base64")) {
            String::from_utf8_lossy(&bytes).into_owned()
        } else {
            STANDARD.encode(bytes.get(..HEAD).unwrap_or(&bytes))
        };
        Some(Self { kind, base64 })
    }
}

/// The media type without its parameters (RFC 9110 section 8.3.1).
fn essence(declared: &str) -> String {
    declared.split(';').next().unwrap_or(declared).trim().to_ascii_lowercase()
}

fn head(base64: &str) -> Option<Vec<u8>> {
    let start: String = base64.chars().filter(|c| !c.is_ascii_whitespace()).take(HEAD).collect();
    let whole = start.len() / 4 * 4;
    coding::base64(start.get(..whole)?.trim_end_matches('='))
}

fn kind(head: &[u8]) -> Option<&'static [&'static str]> {
    let begins = |(magic, at, _): &&(&[u8], usize, &[&str])| {
        head.get(*at..).is_some_and(|rest| rest.starts_with(magic))
    };
    // A signature of two letters may also be the beginning of a text.
    let sure = |(magic, ..): &&(&[u8], usize, &'static [&'static str])| {
        magic.len() > 2 || head.iter().any(|b| *b == 0 || *b > 0x7e)
    };
    MAGIC.iter().find(|one| begins(one) && sure(one)).map(|(_, _, names)| *names)
}

/// Whether data of this type always has a known signature.
fn promises(declared: &str) -> bool {
    let names = MAGIC.iter().flat_map(|(_, _, names)| names.iter());
    let mut names = names.filter(|name| !name.ends_with('.') && !EXECUTABLE.contains(name));
    // MPEG audio may begin with a frame, and these archives have no fixed beginning.
    let free =
        ["audio/mpeg", "audio/mp3", "application/x-tar", "application/x-tgz", "application/x-zip"];
    !free.contains(&declared) && names.any(|name| *name == declared)
}

fn is_text(declared: &str) -> bool {
    declared.starts_with("text/")
        || matches!(declared, "application/json" | "application/xml" | "image/svg+xml")
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::{note, note_on_uri};
    use crate::subject::pattern::Pattern;

    #[test]
    fn what_it_says_is_compared_with_what_it_is() {
        let elf = STANDARD.encode(b"\x7fELF\x02\x01\x01\0\0\0\0\0");
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
        let text = STANDARD.encode("BMW makes cars");
        for (declared, base64, fits) in [
            ("image/png", &png, true),
            ("image/jpeg", &png, false),
            ("Image/PNG; x=y", &png, true),
            ("text/plain", &elf, false),
            ("image/png", &elf, false),
            ("application/octet-stream", &elf, true),
            ("text/plain", &text, true),
            ("image/png", &text, false),
            ("application/x-elf", &elf, true),
            ("application/x-own", &text, true),
            ("text/plain", &png, false),
        ] {
            assert_eq!(
                note(Some(declared), Some(base64), &[]).is_none(),
                fits,
                "{declared} {base64}"
            );
        }
    }

    #[test]
    fn only_what_is_on_the_list_passes() {
        let types = [Pattern::new("text/*"), Pattern::new("image/png")];
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
        assert_eq!(note(Some("text/html"), None, &types), None);
        assert_eq!(note(None, Some(&png), &types), None);
        for (declared, base64) in
            [(Some("application/pdf"), None), (None, Some("AAAA")), (Some("image/svg+xml"), None)]
        {
            assert!(note(declared, base64, &types).is_some());
        }
    }
    #[test]
    fn what_a_data_uri_carries_is_of_both_types_that_are_said() {
        let types = [Pattern::new("image/png")];
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
        let svg = STANDARD.encode("<svg xmlns=\"http://www.w3.org/2000/svg\"/>");
        for (declared, uri, fits) in [
            (None, format!("data:image/png;base64,{png}"), true),
            (Some("image/png"), format!("data:;base64,{png}"), true),
            (Some("image/png"), format!("Data:image/png;x=y; BASE64 ,{png}"), true),
            (None, "data:image/png,%89PNG%0d%0a%1a%0a%00".to_owned(), true),
            (None, format!("data:image/svg+xml;base64,{svg}"), false),
            (Some("image/png"), format!("data:image/svg+xml;base64,{svg}"), false),
            (Some("image/svg+xml"), format!("data:image/png;base64,{png}"), false),
            (None, format!("data:image/png;base64,{svg}"), false),
            (None, format!(" da\nta:image/svg+xml;base64,{svg}"), false),
            (None, "DATA:image/svg+xml,%3Csvg/%3E".to_owned(), false),
            (None, "data:,hello".to_owned(), false),
            (None, "data:image/png;base64,!!!!".to_owned(), false),
            (Some("image/svg+xml"), "https://example.com/a.svg".to_owned(), true),
            (None, "data".to_owned(), true),
            (None, "database:image/svg+xml,x".to_owned(), true),
        ] {
            let is = note_on_uri(declared, &uri, &types).is_none();
            assert_eq!(is, fits, "{declared:?} {uri}");
        }
    }
}
