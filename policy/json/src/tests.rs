use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::{Document, JsonBounds, JsonError, JsonKind, Value, write_ascii, write_string};

fn parse(text: &str) -> Result<Document, JsonError> {
    Document::parse(Bytes::copy_from_slice(text.as_bytes()), &JsonBounds::MESSAGE)
}

fn model(value: Value<'_>) -> serde_json::Value {
    match value.kind() {
        JsonKind::Null => serde_json::Value::Null,
        JsonKind::Boolean => value.as_bool().unwrap().into(),
        JsonKind::Number => serde_json::from_str(value.raw()).unwrap(),
        JsonKind::Plain | JsonKind::Escaped => value.as_str().unwrap().into_owned().into(),
        JsonKind::Array => value.items().map(model).collect(),
        JsonKind::Object => {
            let members = value.members().map(|(key, value)| (key.into_owned(), model(value)));
            serde_json::Value::Object(members.collect())
        }
    }
}

#[test]
fn the_memory_of_the_values_is_asked_for_before_it_is_taken() {
    let text = format!("[{}0]", "0,".repeat(9999));
    let read = |most: usize| {
        let mut asked = 0;
        let read = Document::parse_within(text.clone().into(), &JsonBounds::MESSAGE, |bytes| {
            asked = bytes;
            bytes <= most
        });
        (read, asked)
    };
    let (document, asked) = read(usize::MAX);
    let document = document.unwrap();
    // Ten thousand numbers and the array.
    assert_eq!(document.index_bytes(), 16 * 10_001);
    assert_eq!(document.memory(), text.len() + 16 * 10_001);
    assert!(asked >= document.index_bytes(), "{asked}");
    assert_eq!(read(100_000).0.unwrap_err(), JsonError::Room);
    assert!(read(asked).0.is_ok());
}

#[test]
fn members_keep_their_order_and_spelling() {
    let document = parse(r#" {"b": 1.50, "a": [true, null, "\u0041"], "x": {}} "#).unwrap();
    let root = document.root();
    let keys: Vec<_> = root.members().map(|(key, _)| key.into_owned()).collect();
    assert_eq!(keys, ["b", "a", "x"]);
    assert_eq!(root.get("b").unwrap().raw(), "1.50");
    let items: Vec<_> = root.get("a").unwrap().items().map(Value::raw).collect();
    assert_eq!(items, ["true", "null", r#""\u0041""#]);
    assert_eq!(root.get("a").unwrap().items().nth(2).unwrap().as_str().unwrap(), "A");
}

#[test]
fn a_key_given_twice_is_refused_however_it_is_spelled() {
    for text in [
        r#"{"a":1,"a":2}"#,
        r#"{"name":1,"n\u0061me":2}"#,
        r#"{"x":[{"deep":{"k":1,"\u006b":2}}]}"#,
    ] {
        assert!(matches!(parse(text), Err(JsonError::DuplicateKey { .. })), "{text}");
    }
    let many: Vec<_> = (0..500).map(|n| format!("\"k{n}\":{n}")).collect();
    parse(&format!("{{{}}}", many.join(","))).unwrap();
    let twice = format!("{{{},\"k7\":0}}", many.join(","));
    assert!(matches!(parse(&twice), Err(JsonError::DuplicateKey { at: 0 })));
}

#[test]
fn what_is_not_json_is_refused() {
    for text in [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{a:1}",
        "01",
        "1.",
        ".5",
        "+1",
        "0x1",
        "NaN",
        "-",
        "1e",
        "1e+",
        "tru",
        "nulll",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\n\"",
        "1 2",
        "[1] []",
        "// x\n1",
        "\u{feff}1",
        "'a'",
        "[1 2]",
        "{\"a\" 1}",
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.is_syntax(), "{text:?}: {error}");
    }
}

#[test]
fn a_lone_surrogate_is_refused() {
    for text in
        [r#""\ud800""#, r#""\udc00""#, r#""\ud800\ud800""#, r#""\udc00\ud800""#, r#""\ud800x""#]
    {
        assert!(matches!(parse(text), Err(JsonError::Surrogate { .. })), "{text}");
    }
    assert_eq!(parse(r#""\ud83d\ude00""#).unwrap().root().as_str().unwrap(), "😀");
}

#[test]
fn bytes_that_are_not_utf8_are_refused() {
    for bytes in [b"\"\xff\"".as_slice(), b"\"\xc0\x80\"", b"\"\xed\xa0\x80\"", b"\xff\xfe1\0"] {
        let parsed = Document::parse(Bytes::copy_from_slice(bytes), &JsonBounds::MESSAGE);
        assert!(matches!(parsed, Err(JsonError::Encoding { .. })));
    }
}

#[test]
fn a_million_brackets_hit_the_bound_and_not_the_stack() {
    let error = parse(&"[".repeat(1_000_000)).unwrap_err();
    assert_eq!(error, JsonError::Bound { what: "levels of depth", limit: 64 });
    let flat = format!("[{}1]", "1,".repeat(200_000));
    assert_eq!(parse(&flat).unwrap_err(), JsonError::Bound { what: "values", limit: 100_000 });
    let long = format!("1{}", "0".repeat(300));
    assert_eq!(
        parse(&long).unwrap_err(),
        JsonError::Bound { what: "bytes in a number", limit: 256 }
    );
    let key = format!("{{\"{}\":1}}", "k".repeat(1025));
    assert_eq!(parse(&key).unwrap_err(), JsonError::Bound { what: "bytes in a key", limit: 1024 });
}

#[test]
fn what_is_written_for_a_log_is_printable_ascii() {
    let mut out = Vec::new();
    write_ascii(&mut out, "a\u{202e}b\u{1b}[2J\n\"é\u{1f600}\u{7f}");
    assert_eq!(out, br#""a\u202eb\u001b[2J\n\"\u00e9\ud83d\ude00\u007f""#);
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|members: BTreeMap<_, _>| members.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn an_independent_reader_agrees(value in any_json()) {
        let text = serde_json::to_string(&value).unwrap();
        let document = parse(&text).unwrap();
        prop_assert_eq!(model(document.root()), value);
        prop_assert_eq!(document.root().raw(), text);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let ours = Document::parse(Bytes::from(bytes.clone()), &JsonBounds::MESSAGE);
        if ours.is_ok() {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
        }
    }

    #[test]
    fn json_like_noise_is_read_as_serde_reads_it(text in "[\\[\\]{}:,\"a1\\\\ u0e+.-]{0,24}") {
        // serde_json keeps the last of two equal keys; apart from that the two must agree.
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        match parse(&text) {
            Ok(document) => prop_assert_eq!(Some(model(document.root())), theirs.ok()),
            Err(JsonError::DuplicateKey { .. }) => prop_assert!(theirs.is_ok()),
            Err(JsonError::Surrogate { .. }) => {}
            Err(_) => prop_assert!(theirs.is_err(), "{}", text),
        }
    }

    #[test]
    fn a_written_string_reads_back(text in any::<String>()) {
        for write in [write_string, write_ascii] {
            let mut out = Vec::new();
            write(&mut out, &text);
            let document = Document::parse(Bytes::from(out), &JsonBounds::MESSAGE).unwrap();
            prop_assert_eq!(document.root().as_str().unwrap(), text.as_str());
        }
    }
}

#[test]
fn what_a_client_may_take_for_true() {
    let texts = [
        ("true", true),
        ("1", true),
        ("1.0", true),
        ("-2e0", true),
        ("1e999", true),
        (r#""true""#, true),
        (r#""TRUE""#, true),
        (r#"" yes\n""#, true),
        (r#""1""#, true),
        (r#""on""#, true),
        (r#""T""#, true),
        (r#""y""#, true),
        ("false", false),
        ("null", false),
        ("0", false),
        ("-0.0", false),
        (r#""false""#, false),
        (r#""""#, false),
        (r#""no""#, false),
        (r#""truth""#, false),
        ("[true]", false),
        (r#"{"true":true}"#, false),
    ];
    for (text, expected) in texts {
        assert_eq!(parse(text).unwrap().root().may_be_true(), expected, "{text}");
    }
}
