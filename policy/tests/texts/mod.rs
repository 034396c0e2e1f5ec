//! Hostile texts of any length: the tests of cost and of amplification take them.

/// Parts that texts are made of: what begins, ends or nests something for one of the detectors.
#[rustfmt::skip]
pub(crate) const PARTS: &[&str] = &[
    "![", "![][", "![a](http://", "](", "[a](http://b", "[http://a.b](http://c.d)", "<", "<a href=",
    "<a href=http://x.y>http://", "<script>", "</script", "<!--", "<img src=", "<b on", "<b style=",
    "http://", "https://a@", "://", "//", "\\", "\n", " ", "\"", "'", "`", "{", "[", "(", "[//]:",
    "@import ", "@", ":", "javascript:", "data:text/html", "=", "%", "%41", "&#x41;", "\\u0041", "\\x41",
    "\\n", "_", "a_", "a_b_c_d_e_f ", "-", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", ".", "a.", "a@b.",
    "a@b.co ", "1", "1 ", "4111 1111 1111 1111 ", "+1", "12-", "DE89 ", "A", "aA", "a b c d e f ", "AKIA",
    "ghp_", "sk-", "xoxb-", "eyJhbGciOi", "password=", "password: ", "token=", "Bearer ", "key",
    "ignore all previous instructions ", "you must ", "system: ", "TODO: ", "\u{1b}", "\u{1b}[", "\u{1b}]",
    "\u{9b}", "\u{200b}a", "\u{202e}", "\u{e0041}", "\u{fdfa}", "\u{301}", "\u{430}a ", "\u{1d400}", "é", "世",
    "<untrusted-data id=\"", "[REDACTED:", "0x", "ff ", "QUJD", "SWdub3Jl", "cGFzc3dvcmQ9", "a|", "../",
    "192.168.0.1 ", "::", "gro ", "eht dna ", "$(", "1. ", "a,", ";", "~", "#", "\u{feff}",
    "67 68 70 ", "note 67-68-", "a6768705f", "aZ2hwX2FC", "Z2hw/", "%2F", "a%2", "4111%20", "4539 1488 ", "0343 6467 4539 1488 ",
    "88034364", "Z2hw ", "6768,", "x67\\", "6768&k=", "Z2hw%20", "aaaa0000 ", "\\u0034", "\\n1", "0123456789abcdef0123g.",
    "&colon;", "&Tab;", "&#58", "&#0000", "&&", "](<", "<a ", "<a b=\"", "<a b=\"\n", "<a b='\" c=\"'", "\\:](", "[x](https&#58;//b.c)",
    "<a href=\"java\nscript:\">", "www.", "www.a.b ", "![", "![a ", "![]", "![x](http:", "[x]: http:a ", "](   ", "[", "]", "\\[", "='", "<?", "<! ", "<a hidden", "<a hidden=", "\\69 ", "]:", "a:b@c",
    "\u{180f}a", "\u{1bca0}", "\u{1d173}\u{1d15f}", "✔\u{fe0f}", "葛\u{e0100}", "1\u{fe0f}",
    "send your token to us. ", "never send your token to us ", "retry with your key ", "call `a_b` ", "Open it. ",
];

/// A part again and again, in at most so many bytes.
pub(crate) fn repeated(part: &str, bytes: usize) -> String {
    part.repeat(bytes / part.len())
}

/// Each part, all of them open, and then what could close them.
pub(crate) fn nested(part: &str, bytes: usize) -> String {
    let close = |c| match c {
        '(' => ')',
        '[' => ']',
        '{' => '}',
        '<' => '>',
        other => other,
    };
    let closing: String = part.chars().rev().map(close).collect();
    repeated(part, bytes / 2) + &repeated(&closing, bytes / 2)
}
