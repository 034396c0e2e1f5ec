use bytes::Bytes;
use json::JsonBounds;
use proptest::prelude::*;

use super::{DecodeError, Id, Message, decode, error};

fn read(text: &str) -> Result<Message, DecodeError> {
    decode(Bytes::copy_from_slice(text.as_bytes()), &JsonBounds::MESSAGE)
}

fn refusal(text: &str) -> String {
    match read(text) {
        Err(DecodeError::Shape { reason, .. }) => reason.to_owned(),
        Err(DecodeError::Json(error)) => error.to_string(),
        Ok(message) => format!("accepted {message:?}"),
    }
}

#[test]
fn requests_notifications_and_responses_are_told_apart() {
    let request = r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#;
    assert!(matches!(read(request).unwrap(), Message::Request(r) if r.id == Id::Text("a".into())));
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert!(matches!(read(notification).unwrap(), Message::Notification(_)));
    let response = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    assert!(matches!(read(response).unwrap(), Message::Response(r) if r.id == Some(Id::Number(7))));
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let unknown = "the message has a member that JSON-RPC does not know";
    let spelled = "`params` has a member in another spelling";
    let neither = "neither a request nor a notification nor a response";
    for (text, reason) in [
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "batches are not accepted"),
        ("[]", "batches are not accepted"),
        ("7", "a message is an object"),
        (r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#, unknown),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":1}"#, unknown),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "`jsonrpc` is not `2.0`"),
        (r#"{"id":1,"method":"ping"}"#, "`jsonrpc` is not `2.0`"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, "`params` is not an object"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"Name":"a"}}"#, spelled),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"ARGUMENTS":{}}}"#, spelled),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{\"argument\u{17f}\":{}}}",
            spelled,
        ),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{\"ｎａｍｅ\":1}}", spelled),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "`id` is not a string or an integer"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "`id` is not a string or an integer"),
        (r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#, "`id` is not a string or an integer"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, "`id` is not a string or an integer"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "`id` is not a string or an integer"),
        (
            r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}"#,
            "`id` is not a string or an integer",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "`method` is not a short string"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1}}"#, neither),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","result":{}}"#, neither),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"params":{}}"#, neither),
        (r#"{"jsonrpc":"2.0","id":1}"#, neither),
        (
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
            "a key appears twice in the object at byte 0",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"a","n\u0061me":"b"}}"#,
            "a key appears twice in the object at byte 46",
        ),
    ] {
        assert_eq!(refusal(text), reason, "{text}");
    }
}

#[test]
fn a_long_id_is_not_echoed() {
    let text = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(10_000));
    assert_eq!(refusal(&text), "`id` is not a string or an integer");
}

proptest! {
    #[test]
    fn an_error_reads_back(text in any::<String>(), id in any::<i32>()) {
        let written = error(Some(&Id::Number(id.into())), -32603, &text, None);
        let Message::Response(read) = decode(written.into(), &JsonBounds::MESSAGE).unwrap() else {
            panic!("not a response")
        };
        prop_assert_eq!(read.id, Some(Id::Number(id.into())));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
        let _outcome = decode(Bytes::from(bytes), &JsonBounds::MESSAGE);
    }
}
