use proptest::prelude::*;

use super::{ResourceUri, UriError, pattern, reduced, related};

fn of(text: &str) -> Result<String, UriError> {
    ResourceUri::parse(text).map(|uri| uri.as_str().to_owned())
}

#[test]
fn one_resource_has_one_canonical_form() {
    for (text, canonical) in [
        ("file:///srv/a.txt", "file:///srv/a.txt"),
        ("FILE:///srv/a.txt", "file:///srv/a.txt"),
        ("file:/srv/a.txt", "file:///srv/a.txt"),
        ("file://Host/srv/a.txt", "file://host/srv/a.txt"),
        ("file://host", "file://host/"),
        ("file://host?x", "file://host/?x"),
        ("file://", "file:///"),
        ("https://docs.example/it's?a='b'&c=%27", "https://docs.example/it's?a=%27b%27&c=%27"),
        ("db://a/b?c='d'", "db://a/b?c='d'"),
        ("file:///srv/a%c3%a9", "file:///srv/a%C3%A9"),
        ("file:///srv/aé", "file:///srv/a%C3%A9"),
        ("file:///srv/a b", "file:///srv/a%20b"),
        ("file:///srv/a%20%281%29", "file:///srv/a%20(1)"),
        ("https://Docs.Example:8443/A?q=%2fx&b", "https://docs.example:8443/A?q=%2Fx&b"),
        ("https://docs.example", "https://docs.example/"),
        ("http://[2001:DB8::1]/", "http://[2001:db8::1]/"),
        ("greeting://Alice", "greeting://Alice"),
        ("urn:isbn:0451450523", "urn:isbn:0451450523"),
        ("docs://", "docs://"),
        ("postgres://db.example:5432/t", "postgres://db.example:5432/t"),
        ("project://team:site/a;b", "project://team:site/a;b"),
        ("note:///Hello…", "note:///Hello%E2%80%A6"),
        ("note:///第1章：序", "note:///%E7%AC%AC1%E7%AB%A0%EF%BC%9A%E5%BA%8F"),
    ] {
        assert_eq!(of(text).as_deref(), Ok(canonical), "{text}");
        assert_eq!(of(canonical).as_deref(), Ok(canonical), "{text}");
    }
}

#[test]
fn what_could_be_read_as_another_resource_is_refused() {
    for (text, error) in [
        ("", UriError::Length),
        ("srv/a", UriError::Scheme),
        ("file:///srv/../etc/shadow", UriError::Dots),
        ("file:///srv/x/../secret/k", UriError::Dots),
        ("file:///srv/./secret", UriError::Dots),
        ("file:///srv/..", UriError::Dots),
        ("file:///srv/..;/secret", UriError::Dots),
        ("file:///srv/\u{2024}\u{2024}/secret", UriError::Dots),
        ("file:///srv/%20../secret", UriError::Dots),
        ("file:///srv//secret", UriError::Empty),
        ("file:////srv/secret", UriError::Empty),
        ("file:///srv/%73ecret", UriError::Escaped),
        ("file:///srv/%2e%2e/secret", UriError::Escaped),
        ("file:///srv/%252e%252e/secret", UriError::Escaped),
        ("file:///srv%2Fsecret", UriError::Slash),
        ("file:///srv%5csecret", UriError::Slash),
        ("file:///srv\\secret", UriError::Slash),
        ("file:///srv/secret#", UriError::Fragment),
        ("file:///srv/secret#x", UriError::Fragment),
        ("file:///srv/secret%00", UriError::Hidden),
        ("file:///srv/se\u{200b}cret", UriError::Hidden),
        ("file:///srv/secret\n", UriError::Hidden),
        ("file:///srv/secret ", UriError::Blank),
        ("file:///srv/secret \u{a0}", UriError::Blank),
        ("https://docs.example/a?q=1\u{3000}", UriError::Blank),
        ("mem://x ", UriError::Blank),
        ("file:///C|/secret", UriError::Drive),
        ("file:///c%7c/secret", UriError::Drive),
        ("file://C|/secret", UriError::Drive),
        ("file:/C|/secret", UriError::Drive),
        ("https://127.1/secret", UriError::Host),
        ("https://2130706433/secret", UriError::Host),
        ("https://0x7f.1/secret", UriError::Host),
        ("https://0177.0.0.1/secret", UriError::Host),
        ("https://[0:0:0:0:0:0:0:1]/secret", UriError::Address),
        ("https://[::0001]:8443/secret", UriError::Address),
        ("https://[::1%25lo]/secret", UriError::Address),
        ("https://2001:db8::1/secret", UriError::Address),
        ("https://2001:db8::1:8443/secret", UriError::Address),
        ("https://a:b:1/secret", UriError::Port),
        ("db://2001:db8::1/secret", UriError::Address),
        ("db://%5B2001:db8::1%5D/secret", UriError::Address),
        ("db://%5b::1%5d/secret", UriError::Address),
        ("db://2001:db8::1:27017/secret", UriError::Address),
        ("db://2001:db8:0:0:0:0:0:1:5432/secret", UriError::Address),
        ("db://::ffff:10.0.0.1:5432/secret", UriError::Address),
        ("db://fe80::1%25eth0/secret", UriError::Address),
        ("file:///srv/secret%", UriError::Escape),
        ("file:///srv/secret%zz", UriError::Escape),
        ("file:///srv/%c0%ae/secret", UriError::Escape),
        ("file:///srv/e\u{301}", UriError::Form),
        ("file:///srv/e%CC%81", UriError::Form),
        ("file:///srv\u{ff0f}secret", UriError::Form),
        ("file:srv/secret", UriError::Host),
        ("file://\u{df}/secret", UriError::Host),
        ("file://\u{130}/secret", UriError::Host),
        ("file://h%2Co/secret", UriError::Host),
        ("file://127.1/secret", UriError::Host),
        ("file://0x7f.0.0.1/secret", UriError::Host),
        ("https:docs.example/a", UriError::Host),
        ("https:///docs.example/a", UriError::Host),
        ("https://docs.example./a", UriError::Host),
        ("https://ana@docs.example/a", UriError::Userinfo),
        ("https://docs.example:443/a", UriError::Port),
        ("https://docs.example:/a", UriError::Port),
        ("mem://x:/secret", UriError::Port),
        ("postgres://db:/secret", UriError::Port),
        ("postgres://db:05432/secret", UriError::Port),
        ("mem://x./secret", UriError::Host),
        ("s3://bucket./secret", UriError::Host),
        ("postgres://db.:5432/secret", UriError::Host),
        ("mem://x\u{3002}/secret", UriError::Host),
    ] {
        assert_eq!(of(text), Err(error), "{text:?}");
    }
    assert_eq!(of(&format!("file:///{}", "a".repeat(2048))), Err(UriError::Length));
}

/// What [`ADDRESSES`] expects of a spelling.
#[derive(Clone, Copy)]
enum Spelling {
    /// Everybody may use it; this is its canonical form.
    Plain(&'static str),
    /// Only a server may, in its list; this is its canonical form.
    Unusual(&'static str),
    /// Nobody may.
    Wrong,
}

use Spelling::{Plain, Unusual, Wrong};

/// Hosts in brackets, and what becomes of them with every scheme.
const ADDRESSES: [(&str, Spelling); 35] = [
    ("[::1]", Plain("[::1]")),
    ("[::]", Plain("[::]")),
    ("[2001:DB8::A]", Plain("[2001:db8::a]")),
    ("[2001:db8:1:2:3:4:5:6]", Plain("[2001:db8:1:2:3:4:5:6]")),
    // One group of zeros is not shortened, and of two runs only the longer, or the first.
    ("[2001:db8:0:1:1:1:1:1]", Plain("[2001:db8:0:1:1:1:1:1]")),
    ("[2001:db8::1:1:1:1:1]", Unusual("[2001:db8:0:1:1:1:1:1]")),
    ("[2001:0:0:1::1]", Plain("[2001:0:0:1::1]")),
    ("[2001::1:0:0:0:1]", Unusual("[2001:0:0:1::1]")),
    ("[2001:db8::1:0:0:1]", Plain("[2001:db8::1:0:0:1]")),
    ("[2001:db8:0:0:1::1]", Unusual("[2001:db8::1:0:0:1]")),
    ("[0:0::1]", Unusual("[::1]")),
    ("[0:0:0:0:0:0:0:1]", Unusual("[::1]")),
    ("[::0001]", Unusual("[::1]")),
    ("[1::]", Plain("[1::]")),
    ("[1:2:3:4:5:6:7::]", Unusual("[1:2:3:4:5:6:7:0]")),
    // An address of IPv4 in it.
    ("[::ffff:102:304]", Plain("[::ffff:102:304]")),
    ("[::FFFF:102:304]", Plain("[::ffff:102:304]")),
    ("[::ffff:0:0]", Plain("[::ffff:0:0]")),
    ("[::ffff:1.2.3.4]", Unusual("[::ffff:102:304]")),
    ("[::1.2.3.4]", Unusual("[::102:304]")),
    ("[::0.0.0.1]", Unusual("[::1]")),
    ("[64:ff9b::192.0.2.1]", Unusual("[64:ff9b::c000:201]")),
    ("[::ffff:01.2.3.4]", Wrong),
    ("[::ffff:1.2.3]", Wrong),
    ("[::ffff:0x1.2.3.4]", Wrong),
    ("[]", Wrong),
    ("[a]", Wrong),
    ("[v1.a]", Wrong),
    ("[::1%25lo]", Wrong),
    ("[::1::]", Wrong),
    ("[:::1]", Wrong),
    ("[1:2:3:4:5:6:7:8:9]", Wrong),
    ("[::1", Wrong),
    ("[::1]a", Wrong),
    ("a[::1]", Wrong),
];

#[test]
fn an_ipv6_address_has_one_form_with_every_scheme() {
    for scheme in ["https", "ftp", "file", "htts", "db", "x-y.z+w"] {
        for (host, expected) in ADDRESSES {
            let of_host = |host: &str| format!("{scheme}://{host}/a");
            let text = of_host(host);
            let parsed = ResourceUri::parse(&text).map(|uri| uri.as_str().to_owned());
            let listed = ResourceUri::listed(&text).map(|uri| uri.as_str().to_owned());
            let (asked, listing) = match expected {
                Plain(form) => (Ok(of_host(form)), Ok(of_host(form))),
                Unusual(form) => (Err(UriError::Address), Ok(of_host(form))),
                Wrong => (Err(UriError::Address), Err(UriError::Address)),
            };
            assert_eq!(parsed, asked, "{text}");
            assert_eq!(listed, listing, "{text}");
            // A rule for a spelling that nobody can ask for would never apply.
            assert_eq!(pattern(&text), asked, "{text}");
            assert_eq!(pattern(&format!("{text}/*?")), asked.map(|form| form + "/*?"), "{text}");
        }
    }
    for (text, canonical) in [
        ("db://[::A]:5432/T", "db://[::a]:5432/T"),
        ("db://[::A]", "db://[::a]"),
        ("db://[::A]?Q", "db://[::a]?Q"),
        ("http://[::A]:8080/T", "http://[::a]:8080/T"),
        // In a path, and without an authority, brackets are characters.
        ("db://a/[0:0::1]", "db://a/%5B0:0::1%5D"),
        ("db:[0:0::1]", "db:%5B0:0::1%5D"),
    ] {
        assert_eq!(of(text).as_deref(), Ok(canonical), "{text}");
    }
    let listed = ResourceUri::listed("db://ana@[0:0::A]:5432/t");
    assert_eq!(listed.as_ref().map(ResourceUri::as_str), Ok("db://[::a]:5432/t"));
    // What an expression stands for is not known.
    for text in ["db://[{address}]/t", "db://[::1]{:port}/t", "https://[{address}]:8443/t"] {
        assert!(ResourceUri::template(text).is_ok(), "{text}");
    }
    assert_eq!(ResourceUri::template("db://[0:0::1]/{t}").unwrap().as_str(), "db://[::1]/{t}");
    assert_eq!(ResourceUri::template("db://[a]/{t}"), Err(UriError::Address));
    // Nor what a wildcard stands for.
    for text in ["db://[0:0:*", "db://[2001:DB8:*]/t", "db://[::1]*", "db://[::A]:*/t"] {
        assert_eq!(pattern(text), Ok(text.to_ascii_lowercase()), "{text}");
    }
    // Behind one a bracket may belong to a host or to a path.
    for text in [
        "*://[2001:db8::1]/*",
        "*[2001:db8::1]*",
        "http*://[2001:db8::1]/x",
        "h?tp://[::1]/x",
        "http:*[::1]/x",
        "http:/?[::1]/x",
        "http://*[::1]/x",
        "*://[*/x",
        "db://[::1]*[",
    ] {
        assert_eq!(pattern(text), Err(UriError::Bracket), "{text}");
    }
    for (text, canonical) in [
        ("http://[*]/x", "http://[*]/x"),
        ("http://[2001:*/x", "http://[2001:*/x"),
        ("*://?2001:db8::1?/x", "*://?2001:db8::1?/x"),
        ("file:///notes/*[1].txt", "file:///notes/*%5B1%5D.txt"),
        ("db://h/*[1]", "db://h/*%5B1%5D"),
        ("*%5B1%5D.txt", "*%5B1%5D.txt"),
    ] {
        assert_eq!(pattern(text).as_deref(), Ok(canonical), "{text}");
    }
    // But what stands before one is.
    for text in ["db://[0:0::1]*", "db://[0:0::1]:*/t", "http://[0:0::1]:*/t"] {
        assert_eq!(pattern(text), Err(UriError::Address), "{text}");
    }
}

#[test]
fn a_server_may_list_what_is_only_unusual() {
    let listed = |text| ResourceUri::listed(text).map(|uri| uri.as_str().to_owned());
    for (text, canonical) in [
        ("postgres://ana@db.example/t/schema", "postgres://db.example/t/schema"),
        ("file:///srv/%7Eana", "file:///srv/~ana"),
        ("readme.txt", "readme.txt"),
        ("[draft] readme.txt", "%5Bdraft%5D%20readme.txt"),
        ("file:///srv/e\u{301}", "file:///srv/e%CC%81"),
    ] {
        assert_eq!(listed(text).as_deref(), Ok(canonical), "{text}");
    }
    for text in [
        "file:///srv/%2e%2e/x",
        "file:///srv/../x",
        "file:///a#b",
        "file:///a//b",
        "A%2eb:/c",
        "db://2001:db8::1/x",
        "db://%5B::1%5D/x",
    ] {
        assert!(listed(text).is_err(), "{text}");
    }
    let template = |text| ResourceUri::template(text).map(|uri| uri.as_str().to_owned());
    for text in ["file:///srv/{path}", "http://a.example{/path*}{?q,r}{#part}", "{+uri}"] {
        assert!(template(text).is_ok(), "{text}: {:?}", template(text));
    }
    assert_eq!(template("file:///srv/../{path}"), Err(UriError::Dots));
}

#[test]
fn a_prohibition_is_compared_with_every_form() {
    let forms = |text: &str| related(text).map(String::from).collect::<Vec<_>>();
    for text in [
        "file:///srv/secret?x",
        "file:///srv/secret/",
        "file:///srv/secret/?x",
        "file:///srv/secret%3Fx",
        "file:///srv/secret%23x",
        "file://localhost/srv/secret",
        "file://Other/srv/secret?x",
        "file:///srv;x/secret",
        "file:///srv/;/secret",
        "file:///srv/secret;v=1",
        "file:///srv/secret/;a",
        "file://other/srv;x/secret;y?q",
        "file:///srv/secret%20",
        "file:///srv/secret%20%C2%A0?x",
        "file:///srv/secret%20;v=1",
        "file:///srv/secret%20/",
        "file:///srv/secret/%20/",
        "file:///srv/secret%20/%C2%A0?x",
        "file:///srv/secret%20/;a",
    ] {
        assert!(
            forms(text).contains(&"file:///srv/secret".to_owned()),
            "{text}: {:?}",
            forms(text)
        );
    }
    for (text, form) in [
        ("notes:secret;x", "notes:secret"),
        ("notes:a;x/secret", "notes:a/secret"),
        ("notes:;x/secret", "notes:secret"),
        ("notes:/a/;x", "notes:/a"),
        ("db://users;x", "db://users"),
        ("db://users;x/t;y?q", "db://users/t"),
        ("file:///c:/secret", "file:///C:/secret"),
        ("file://host/C:/secret;x", "file:///c:/secret"),
    ] {
        assert!(forms(text).contains(&form.to_owned()), "{text}: {:?}", forms(text));
    }
    for text in [
        "http://h.example/secret;a",
        "http://h.example/;a/secret",
        "http://h.example/secret/;a",
        "http://h.example/secret;a?q",
    ] {
        assert!(
            forms(text).contains(&"http://h.example/secret".to_owned()),
            "{text}: {:?}",
            forms(text)
        );
    }
    assert!(forms("http://h.example/;a").contains(&"http://h.example/".to_owned()));
    assert!(forms("http://h.example/secret;a?q").contains(&"http://h.example/secret?q".to_owned()));
    // Blanks are dropped alone as well.
    assert!(forms("file:///srv/secret/%20").contains(&"file:///srv/secret/".to_owned()));
    // A query is kept while what stands before it is reduced.
    for (text, form) in [
        ("https://q.example/r/?id=1", "https://q.example/r?id=1"),
        ("https://q.example/r%20?id=1", "https://q.example/r?id=1"),
        ("https://q.example/r/%20?id=1", "https://q.example/r?id=1"),
        ("https://q.example/r;x?id=1", "https://q.example/r?id=1"),
        ("https://q.example/r/;x?id=1/", "https://q.example/r?id=1"),
        ("https://q.example/r?id=1/", "https://q.example/r?id=1"),
        ("https://q.example/r?id=1%20", "https://q.example/r?id=1"),
        ("https://q.example/r?id=1;x", "https://q.example/r?id=1"),
        ("https://q.example/r?id=1/;x", "https://q.example/r?id=1"),
        ("http://h3.example/?x=1", "http://h3.example?x=1"),
        ("http://h3.example/;a?x=1", "http://h3.example?x=1"),
        ("db://x/report/?id=7", "db://x/report?id=7"),
        ("urn:a:b/?x=1", "urn:a:b?x=1"),
    ] {
        assert!(forms(text).contains(&form.to_owned()), "{text}: {:?}", forms(text));
    }
    for (text, other, are_same) in [
        ("file:///srv/secret", "file://Other/srv/secret;x/%20?q", true),
        ("file:///C:/secret", "file://host/c:/secret/", true),
        ("file:///C:;x/secret", "file:///c:/secret", true),
        ("https://q.example/r?id=1", "https://q.example/r/;x", true),
        ("db://Customers/a", "db://customers/a", true),
        ("db://customers/A", "db://customers/a", false),
        ("https://q.example/r", "https://q.example/r2", false),
    ] {
        assert_eq!(reduced(text) == reduced(other), are_same, "{text} {other}");
    }
    // In an expression of a template, `;` begins no path parameters.
    assert!(!forms("http://h.example/a{;b}").contains(&"http://h.example/a{".to_owned()));
    assert!(forms("db://Customers/a").contains(&"db://customers/a".to_owned()));
}

#[test]
fn a_pattern_that_can_never_match_is_refused() {
    for (text, written) in [
        ("*", "*"),
        ("file:///srv/*", "file:///srv/*"),
        ("FILE:///srv/a b/*", "file:///srv/a%20b/*"),
        ("file:///srv/é*", "file:///srv/%C3%A9*"),
        ("file:///srv/%c3%a9*", "file:///srv/%C3%A9*"),
        ("file:///srv/a%20%281%29", "file:///srv/a%20(1)"),
        ("https://Docs.Example/A*", "https://docs.example/A*"),
        ("file:///open/.*", "file:///open/.*"),
        ("file:///shut/{x}", "file:///shut/{x}"),
        ("file:*", "file:*"),
        ("*secret*", "*secret*"),
        ("readme.txt", "readme.txt"),
        ("mem://x.*", "mem://x.*"),
    ] {
        assert_eq!(pattern(text).as_deref(), Ok(written), "{text}");
    }
    for (text, error) in [
        ("file:/srv/*", UriError::Host),
        ("file:///srv/../*", UriError::Dots),
        ("file:///srv//*", UriError::Empty),
        ("file:///srv/%73ecret", UriError::Escaped),
        ("file:///srv%2fsecret", UriError::Slash),
        ("file:///srv\\*", UriError::Slash),
        ("file:///srv/a#b", UriError::Fragment),
        ("https://ana@docs.example/*", UriError::Userinfo),
        ("file:///srv/100%", UriError::Escape),
        ("mem://x:/secret", UriError::Port),
        ("mem://x./secret", UriError::Host),
        ("https://docs.example./*", UriError::Host),
        ("db://2001:db8::1/*", UriError::Address),
        ("db://2001:db8::1:5432/*", UriError::Address),
        ("db://%5B::1%5D/*", UriError::Address),
        ("http://h.example:80/*", UriError::Port),
        ("https://h.example:443/*", UriError::Port),
        ("http://h.example:080/*", UriError::Port),
        ("http://10.1/*", UriError::Host),
        ("http://0x7f.0.0.1/*", UriError::Host),
        ("http://b\u{fc}cher.example/*", UriError::Host),
        ("file://\u{e4}/*", UriError::Host),
        ("file:///C|/win/*", UriError::Drive),
    ] {
        assert_eq!(pattern(text), Err(error), "{text}");
    }
}

proptest! {
    #[test]
    fn the_canonical_form_is_its_own(text in "(file|db|https)://(\\[[0-2aF:.]{2,9}\\])?[aB./%2eé? :@-]{0,24}") {
        if let Ok(uri) = ResourceUri::parse(&text) {
            prop_assert_eq!(ResourceUri::parse(uri.as_str()).unwrap(), uri);
        }
        if let Ok(uri) = ResourceUri::listed(&text) {
            let again = ResourceUri::listed(uri.as_str()).unwrap();
            prop_assert_eq!(again, uri);
        }
    }

    #[test]
    fn related_uris_have_the_same_reduced_form(
        text in "(file|db|https|urn)(:|://[aB]{0,2}(;x)?/)((C:|a|;x|;|%20|%C2%A0|/|%3F|\\?)/?){0,7}",
    ) {
        if let Ok(uri) = ResourceUri::parse(&text) {
            let shared = reduced(uri.as_str());
            for form in related(uri.as_str()) {
                prop_assert_eq!(reduced(&form), &*shared, "{} of {}", form, uri.as_str());
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,64}") {
        drop((ResourceUri::parse(&text), ResourceUri::template(&text), pattern(&text)));
        prop_assert!(related(&text).next().is_some());
        drop(reduced(&text));
    }
}
