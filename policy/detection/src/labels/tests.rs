use json::{Document, JsonBounds};
use policy_core::base::work::WorkBudget;
use serde_json::{Value, json};

use super::{ConcealedMembers, LabelledPart, Labels, without};

fn document(json: &Value) -> Document {
    Document::parse(json.to_string().into(), &JsonBounds::MESSAGE).unwrap()
}

fn labels(schema: &Value) -> Labels {
    Labels::of_schema(document(schema).root())
}

fn paths(labels: &Labels, may: impl Fn(&str) -> bool) -> Vec<String> {
    ConcealedMembers::of([labels], may).paths.iter().map(|at| at.join("/")).collect()
}

/// The visible form of a message, with `#` in place of concealed values.
fn shown(labels: &Labels, part: LabelledPart, said: &Value) -> Option<String> {
    let document = document(said);
    let concealed = ConcealedMembers::of([labels], |_| false);
    let cut =
        without(document.root(), part, &concealed, &|_| "#".to_owned(), &WorkBudget::unlimited())?;
    Some(String::from_utf8(cut.text).unwrap())
}

fn of_pointers(pointers: &[&str]) -> Labels {
    let mut labels = Labels::default();
    for at in pointers {
        labels.add(at, "pii");
    }
    labels
}

#[test]
fn labels_are_read_wherever_a_schema_has_them() {
    let schema = json!({
        "properties": {
            "name": {}, "ssn": { "x-sensitive": "pii" }, "key": { "x-sensitive": true },
            "rows": { "items": { "$ref": "#/$defs/row" } }, "open": { "x-data-class": "public" },
        },
        "allOf": [{ "properties": { "pay": { "x-data-class": "restricted" } } }],
        "$defs": { "row": { "properties": { "iban": { "x-sensitive": "bank" }, "next": { "$ref": "#/$defs/row" } } } },
    });
    let labels = labels(&schema);
    // A member that is too deep to be read counts as labelled.
    let (deep, hidden): (Vec<_>, Vec<_>) = paths(&labels, |label| label == "bank")
        .into_iter()
        .partition(|at| at.split('/').count() > super::DEPTH);
    assert_eq!((hidden, deep.len()), (["key", "pay", "ssn"].map(str::to_owned).to_vec(), 2));
    assert!(paths(&labels, |_| false).contains(&"rows/*/next/iban".to_owned()));
    // A schema with too many labels labels everything.
    let wide: serde_json::Map<_, _> =
        (0..2000).map(|n| (n.to_string(), json!({ "x-sensitive": true }))).collect();
    let labels = self::labels(&json!({ "properties": wide }));
    assert!(paths(&labels, |_| false).contains(&String::new()));
    // A recursive schema without labels has none.
    let schema = json!({ "properties": { "next": { "$ref": "#" } } });
    assert!(self::labels(&schema).is_empty());
    // No place tells the member `*` from each member.
    let schema =
        json!({ "properties": { "of": { "properties": { "*": { "x-sensitive": true } } } } });
    assert_eq!(paths(&self::labels(&schema), |_| false), ["of"]);
    // A label on member names applies to the object.
    let schema = json!({ "properties": { "of": { "propertyNames": { "x-sensitive": true } } } });
    assert_eq!(paths(&self::labels(&schema), |_| false), ["of"]);
}

#[test]
fn labels_of_what_a_text_holds_are_read() {
    let content = |schema: Value, more: Value| {
        let mut text = json!({ "type": "string", "contentMediaType": "application/json", "contentSchema": schema });
        text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        paths(&labels(&json!({ "properties": { "j": text } })), |_| false)
    };
    let pay = json!({ "x-sensitive": true });
    let inner = json!({ "properties": { "pay": pay } });
    let plain = json!({});
    assert_eq!(content(inner.clone(), plain.clone()), ["j/pay"]);
    assert_eq!(content(json!({ "items": inner }), plain.clone()), ["j/*/pay"]);
    for more in [
        json!({ "contentMediaType": "application/hal+json; charset=utf-8" }),
        json!({ "contentEncoding": "base64" }),
    ] {
        assert_eq!(content(inner.clone(), more.clone()), ["j/pay"], "{more}");
    }
    // A label without a member name, or in content that is not parsed, applies to the whole string.
    for (schema, more) in [
        (pay.clone(), plain.clone()),
        (json!({ "items": pay }), plain.clone()),
        (inner.clone(), json!({ "contentMediaType": "application/yaml" })),
        (inner.clone(), json!({ "contentMediaType": 7 })),
        (inner.clone(), json!({ "contentEncoding": "base32" })),
        (inner.clone(), json!({ "contentEncoding": "quoted-printable" })),
    ] {
        assert_eq!(content(schema.clone(), more.clone()), ["j"], "{schema} {more}");
    }
    // A described string within a described string.
    let twice = json!({ "properties": { "k": { "contentSchema": inner } } });
    assert_eq!(content(twice, plain.clone()), ["j/k/pay"]);
    let twice = json!({ "items": { "contentSchema": { "items": pay } } });
    assert_eq!(content(twice, plain.clone()), ["j"]);
    let twice = json!({ "properties": { "k": { "contentSchema": { "items": pay } } } });
    assert_eq!(content(twice, plain.clone()), ["j/k"]);
    // An unresolvable reference labels everything, here too.
    assert!(
        content(json!({ "$ref": "#/$defs/none", "title": "x-sensitive" }), plain)
            .contains(&String::new())
    );
    // A label within `not` counts as well.
    let not = json!({ "not": { "not": { "properties": { "pay": pay } } } });
    assert_eq!(paths(&labels(&not), |_| false), ["pay"]);
}

#[test]
fn members_of_a_text_that_its_schema_describes_are_concealed() {
    use base64::Engine as _;
    let pay = json!({ "x-sensitive": true });
    let labels = labels(&json!({ "properties": { "j": {
        "contentSchema": { "properties": { "pay": pay, "open": {} } } },
        "k": { "contentSchema": { "items": pay } } } }));
    let inner = json!({ "pay": "4711-8", "open": "yes" }).to_string();
    let coded = base64::engine::general_purpose::STANDARD.encode(&inner);
    for text in [&inner, &coded] {
        let content = json!({ "j": text });
        let said = json!({ "structuredContent": content, "content": [{ "type": "text", "text": content.to_string() }] });
        let shown = shown(&labels, LabelledPart::Result, &said).unwrap();
        assert!(!shown.contains("4711-8") && !shown.contains(&coded), "{text}: {shown}");
        assert!(*text != inner || shown.contains("yes"), "{shown}");
    }
    let said = json!({ "structuredContent": { "k": r#"["4711-8"]"# } });
    assert!(!shown(&labels, LabelledPart::Result, &said).unwrap().contains("4711-8"));
}

#[test]
fn a_reference_that_is_not_followed_labels_everything() {
    for keyword in ["$dynamicRef", "$recursiveRef"] {
        let schema = json!({ "properties": {
            "open": { keyword: "#person" }, "key": { "x-sensitive": true } } });
        assert!(paths(&labels(&schema), |_| false).contains(&String::new()), "{keyword}");
    }
    // An unresolvable reference does so as well.
    let schema = json!({ "properties": {
        "open": { "$ref": "#/$defs/none" }, "key": { "x-sensitive": true } } });
    assert!(paths(&labels(&schema), |_| false).contains(&String::new()));
}

#[test]
fn values_are_replaced_where_they_stand_and_in_json() {
    let labels = of_pointers(&["/rows/*/ssn", "/pin"]);
    let row = json!({ "rows": [{ "ssn": "123-45", "name": "Ana" }], "pin": 7, "ok": null });
    let result = json!({
        "content": [{ "type": "text", "text": row.to_string() }, { "type": "text", "text": "of 123-45" }],
        "structuredContent": row, "isError": false,
    });
    let result = document(&result);
    let concealed = ConcealedMembers::of([&labels], |_| false);
    let cut = without(
        result.root(),
        LabelledPart::Result,
        &concealed,
        &|_| "#".to_owned(),
        &WorkBudget::unlimited(),
    )
    .unwrap();
    let text = String::from_utf8(cut.text).unwrap();
    assert_eq!(
        text,
        r##"{"content":[{"text":"{\"ok\":null,\"pin\":\"#\",\"rows\":[{\"name\":\"Ana\",\"ssn\":\"#\"}]}","type":"text"},{"text":"of 123-45","type":"text"}],"isError":false,"structuredContent":{"ok":null,"pin":"#","rows":[{"name":"Ana","ssn":"#"}]}}"##
    );
    assert_eq!(cut.values.into_iter().collect::<Vec<_>>(), ["123-45"]);
    assert_eq!(cut.findings.len(), 4);
    let open = ConcealedMembers::of([&labels], |_| true);
    assert!(
        without(
            result.root(),
            LabelledPart::Result,
            &open,
            &|_| String::new(),
            &WorkBudget::unlimited()
        )
        .is_none()
    );
}

#[test]
fn a_text_that_begins_like_json_and_cannot_be_read_is_withheld() {
    let labels = of_pointers(&["/ssn"]);
    let content = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
    let inner = json!({ "ssn": "123-45" }).to_string();
    for text in [
        r#"{"ssn":"123-45","n":NaN}"#.to_owned(),
        r#"{"ssn":"123-45","ssn":"1"}"#.to_owned(),
        r#"{"ssn":"123-45",}"#.to_owned(),
        "{'ssn':'123-45'}".to_owned(),
        "{ssn:'123-45'}".to_owned(),
        format!("\u{feff}{inner}"),
        format!("```json\n{inner}\n```"),
        format!("```json\n{inner}\n```\nThat is all."),
        format!("// a note\n{inner}"),
        format!("{inner}\n{inner}"),
        format!("{inner}\n{{\"ssn\":\"123-45\""),
        format!("{}{inner}{}", "[".repeat(100), "]".repeat(100)),
        Value::from(inner.clone()).to_string(),
        json!({ "data": inner }).to_string(),
        json!({ "data": json!({ "data": inner }).to_string() }).to_string(),
        format!("The person: {inner}"),
        r#"{"s\u0073n":"123-45"}"#.to_owned(),
        "{\"s\u{200b}sn\":\"123-45\"}".to_owned(),
    ] {
        let shown = shown(&labels, LabelledPart::Result, &content(&text));
        assert!(shown.is_some_and(|shown| !shown.contains("123-45")), "{text}");
    }
    for text in [
        "A person.",
        "[link](https://a.example)",
        "[INFO] ssn: read",
        "The `ssn` is not shown.",
        r#"{"name":"Ana"}"#,
        r#"[1, 2]"#,
    ] {
        assert_eq!(shown(&labels, LabelledPart::Result, &content(text)), None, "{text}");
    }
}

#[test]
fn a_label_of_members_of_any_name_reaches_every_text() {
    for keyword in ["additionalProperties", "unevaluatedProperties", "patternProperties"] {
        let sensitive = json!({ "x-sensitive": "pii" });
        let any = if keyword == "patternProperties" {
            json!({ "^[a-z]+$": sensitive })
        } else {
            sensitive
        };
        let labels = labels(&json!({ "type": "object", keyword: any }));
        for text in [
            r#"{"ann":"geheim"}"#,
            "```json\n{\"ann\":\"geheim\"}\n```",
            r#"The answers are {"ann": "geheim"}."#,
            "The answers:\n\n```json\n{\"ann\": \"geheim\"}\n```\nThat is all.",
            "eyJhbm4iOiJnZWhlaW0ifQ==",
            "It is eyJhbm4iOiJnZWhlaW0ifQ== in short.",
        ] {
            let result = json!({ "content": [{ "type": "text", "text": text }] });
            let seen = shown(&labels, LabelledPart::Result, &result).unwrap();
            assert!(!seen.contains("geheim") && !seen.contains("Z2VoZWlt"), "{keyword}: {seen}");
            assert!(!seen.contains("eyJhbm4iOiJnZWhlaW0ifQ"), "{keyword}: {seen}");
        }
        let form = json!({ "message": "?", "requestedSchema": {
            "properties": { "ann": { "type": "string", "default": "geheim" } },
        } });
        let seen = shown(&labels, LabelledPart::Params, &form).unwrap();
        assert!(!seen.contains("geheim"), "{keyword}: {seen}");
        let words =
            json!({ "content": [{ "type": "text", "text": "Ann said: \"well\", and left." }] });
        assert_eq!(shown(&labels, LabelledPart::Result, &words), None);
    }
}

#[test]
fn labels_reach_every_part_of_what_a_server_says() {
    let labels = of_pointers(&["/rows/*/ssn"]);
    let row = json!({ "ssn": "123-45" });
    let base64 = |text: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    let form = json!({ "type": "object", "properties": { "ssn": { "type": "string", "default": "123-45" } } });
    let link = |member: &str, text: &str| {
        let mut link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a" });
        link[member] = text.into();
        link
    };
    let asks = json!({ "method": "elicitation/create", "params": { "mode": "form", "message": row.to_string(), "requestedSchema": form } });
    for (part, said) in [
        (LabelledPart::Result, json!({ "_meta": { "a": [row] } })),
        (LabelledPart::Result, json!({ "x-more": row })),
        (
            LabelledPart::Result,
            json!({ "content": [{ "type": "text", "text": "", "_meta": row }] }),
        ),
        (
            LabelledPart::Result,
            json!({ "content": [{ "type": "resource", "resource": { "uri": "a:b", "blob": base64(&row.to_string()) } }] }),
        ),
        (
            LabelledPart::Result,
            json!({ "content": [{ "type": "resource", "resource": { "uri": "a:b", "text": row.to_string() } }] }),
        ),
        (
            LabelledPart::Result,
            json!({ "taskId": "t", "result": { "structuredContent": { "rows": [row] } } }),
        ),
        (
            LabelledPart::Result,
            json!({ "taskId": "t", "error": { "code": 1, "message": row.to_string() } }),
        ),
        (
            LabelledPart::Result,
            json!({ "resultType": "input_required", "inputRequests": { "q": asks } }),
        ),
        (LabelledPart::Result, json!({ "content": [{ "type": row.to_string() }] })),
        (LabelledPart::Result, json!({ "content": [link("name", &row.to_string())] })),
        (LabelledPart::Result, json!({ "content": [link("mimeType", &row.to_string())] })),
        (LabelledPart::Result, json!({ "content": [link("uri", &row.to_string())] })),
        (LabelledPart::Result, json!({ "content": [link("uri", &format!("x:{row}"))] })),
        (
            LabelledPart::Result,
            json!({ "content": [link("uri", "x:///{%22ssn%22:%22123-45%22}")] }),
        ),
        (
            LabelledPart::Result,
            json!({ "content": [{ "type": "text", "text": "", "annotations": { "audience": [row.to_string()] } }] }),
        ),
        (
            LabelledPart::Result,
            json!({ "content": [{ "type": "text", "text": "", "annotations": { "lastModified": row.to_string() } }] }),
        ),
        (
            LabelledPart::Result,
            json!({ "content": [{ "type": "resource", "resource": { "uri": row.to_string(), "text": "" } }] }),
        ),
        (LabelledPart::Params, json!({ "level": "info", "logger": row.to_string(), "data": "" })),
        (LabelledPart::Error, json!({ "code": 1, "message": "failed", "data": { "person": row } })),
        (LabelledPart::Error, json!({ "code": 1, "message": row.to_string() })),
        (
            LabelledPart::Params,
            json!({ "progressToken": 1, "progress": 1, "message": row.to_string() }),
        ),
        (LabelledPart::Params, json!({ "level": "info", "data": row })),
        (LabelledPart::Params, asks["params"].clone()),
    ] {
        let shown = shown(&labels, part, &said);
        assert!(shown.as_ref().is_some_and(|shown| !shown.contains("123-45")), "{said}: {shown:?}");
        assert!(!shown.is_some_and(|shown| shown.contains(&base64(&row.to_string()))), "{said}");
    }
}

#[test]
fn base64_is_read_in_every_part_of_what_a_server_says() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let labels = of_pointers(&["/rows/*/ssn"]);
    let row = json!({ "name": "Ana", "ssn": "123-45-67890" }).to_string();
    let code = STANDARD.encode(&row);
    let (number, twice) = (code.get(30..42).unwrap(), STANDARD.encode(&code));
    let block = |block: Value| json!({ "content": [block] });
    let comment = format!("// {code}\n{{\"a\":1}}");
    for (part, said) in [
        (LabelledPart::Result, block(json!({ "type": "text", "text": code }))),
        (LabelledPart::Result, block(json!({ "type": "text", "text": comment }))),
        (LabelledPart::Result, block(json!({ "type": "text", "text": "", "mimeType": code }))),
        (
            LabelledPart::Result,
            block(
                json!({ "type": "resource_link", "name": "a", "uri": format!("data:application/json;base64,{code}") }),
            ),
        ),
        (
            LabelledPart::Result,
            block(json!({ "type": "image", "mimeType": "image/png", "data": code })),
        ),
        (
            LabelledPart::Result,
            block(json!({ "type": "image", "mimeType": "image/png", "data": twice })),
        ),
        (LabelledPart::Result, json!({ "structuredContent": { "a": [code] } })),
        (LabelledPart::Result, json!({ "statusMessage": code })),
        (LabelledPart::Error, json!({ "code": 1, "message": code })),
        (LabelledPart::Error, json!({ "code": 1, "message": "", "data": { "a": code } })),
        (LabelledPart::Params, json!({ "progressToken": 1, "progress": 1, "message": code })),
        (LabelledPart::Params, json!({ "level": "info", "data": format!("it is {code}") })),
    ] {
        let shown = shown(&labels, part, &said);
        let shown = shown.unwrap_or_else(|| panic!("{said}"));
        assert!(
            !shown.contains(number) && !shown.contains(twice.get(44..52).unwrap()),
            "{said}: {shown}"
        );
    }
    // Content behind too many levels of encoding is withheld.
    let mut deep = row;
    for _ in 0..6 {
        deep = STANDARD.encode(&deep);
    }
    let said = block(json!({ "type": "text", "text": deep }));
    assert!(
        shown(&labels, LabelledPart::Result, &said)
            .is_some_and(|shown| !shown.contains(deep.get(..40).unwrap()))
    );
    // With a label on everything, the protocol members of a block are kept.
    let link = block(json!({ "type": "resource_link", "uri": "x:7", "name": "a" }));
    let all = shown(&of_pointers(&[""]), LabelledPart::Result, &link).unwrap();
    assert!(all.contains("\"type\":\"resource_link\""), "{all}");
}

#[test]
fn a_name_within_what_is_labelled_is_data_unless_the_schema_declares_it() {
    let labels = labels(&json!({ "properties": { "pay": {
        "x-sensitive": true, "properties": { "currency": {} } } } }));
    let said = json!({ "structuredContent": { "pay": { "Ana": 1, "currency": "EUR" } } });
    assert_eq!(
        shown(&labels, LabelledPart::Result, &said).unwrap(),
        r##"{"structuredContent":{"pay":{"#":"#","currency":"#"}}}"##
    );
}

#[test]
fn what_the_protocol_says_of_a_block_stays() {
    let block = json!({ "type": "resource_link", "uri": "file:///a%20b?x=1", "name": "a b", "size": 7,
        "mimeType": "text/plain; charset=utf-8", "title": "t",
        "annotations": { "audience": ["user"], "priority": 1, "lastModified": "2026-01-01T00:00:00Z" } });
    let said = json!({ "content": [block] });
    assert_eq!(shown(&of_pointers(&["/rows/*/ssn"]), LabelledPart::Result, &said), None);
}

#[test]
fn a_label_of_everything_leaves_no_text() {
    let labels = of_pointers(&[""]);
    let link = json!({ "content": [{ "type": "resource_link", "uri": "x:7", "name": "it is 7" }] });
    assert_eq!(
        shown(&labels, LabelledPart::Result, &link).unwrap(),
        r##"{"content":[{"name":"#","type":"resource_link","uri":"#"}]}"##
    );
    let said = json!({ "content": [{ "type": "text", "text": "it is 7" }], "isError": false });
    assert_eq!(
        shown(&labels, LabelledPart::Result, &said).unwrap(),
        r##"{"content":[{"text":"#","type":"text"}],"isError":false}"##
    );
}

#[test]
fn what_the_structured_content_repeats_is_arranged_alike() {
    // `name` is labelled only within rows.
    let labels = of_pointers(&["/rows/*/name"]);
    let content = json!({ "rows": [{ "name": "Ana" }], "site": { "name": "Oslo" } });
    let said = json!({ "structuredContent": content, "content": [{ "type": "text", "text": content.to_string() }] });
    let shown = shown(&labels, LabelledPart::Result, &said).unwrap();
    assert!(shown.matches("Oslo").count() == 2 && !shown.contains("Ana"), "{shown}");
}
