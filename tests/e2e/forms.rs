//! What servers ask of clients, hostile and ordinary: no hostile request reaches the client, every ordinary one does
//! (control C19; the requests are data, in `forms.json`).

use e2e::gateway::{Config, Gateway};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

use crate::places::{Script, asking, called};

const OPEN: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

/// What the server of these tests may ask.
const REQUESTS: &str = "{formElicitation: {}, sampling: {}, rate: 100000/s, \
    urlElicitation: {hosts: [login.example.com, github.com, '*.docs.example.org']}}";

/// The request that an entry of the lists stands for.
fn request(entry: &Value) -> Value {
    if let Some(form) = entry["form"].as_object() {
        let mut schema = json!({ "type": "object", "properties": form["properties"] });
        if let Some(required) = form.get("required") {
            schema["required"] = required.clone();
        }
        let params =
            json!({ "mode": "form", "message": form["message"], "requestedSchema": schema });
        return json!({ "method": "elicitation/create", "params": params });
    }
    if let Some(page) = entry["page"].as_object() {
        let params = json!({ "mode": "url", "message": page["message"], "url": page["url"], "elicitationId": "e" });
        return json!({ "method": "elicitation/create", "params": params });
    }
    json!({ "method": "sampling/createMessage", "params": entry["sampling"] })
}

/// Whether the client is shown what an entry asks, and what is on record.
fn is_shown(gateway: &Gateway, era: Era, script: &Script, entry: &Value) -> (bool, Value) {
    let asked = request(entry);
    let (answer, record) = called(gateway, era, script, asked.clone());
    let is_asked = answer.body.contains(asked["method"].as_str().unwrap());
    // Sentences that give instructions to the model are removed, and the rest is passed on.
    let planted = entry["planted"].as_str();
    (is_asked && planted.is_none_or(|planted| answer.body.contains(planted)), record)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "data of the test, not a peer's")]
fn no_hostile_request_of_a_server_reaches_the_client_and_every_ordinary_one_does() {
    let lists: Value = serde_json::from_str(include_str!("forms.json")).unwrap();
    let mut wrong = Vec::new();
    for era in ERAS {
        let script = Script::default();
        let server = asking(era, &script);
        let servers =
            format!("- {{name: up, url: '{}', serverRequests: {REQUESTS}}}", server.url());
        let gateway = Config::with(&servers, "[up]").policy(OPEN).start();
        for (list, expected) in [("hostile", false), ("ordinary", true)] {
            let entries = lists[list].as_array().unwrap();
            let mut right = 0;
            for entry in entries {
                let (shown, record) = is_shown(&gateway, era, &script, entry);
                let reason = entry["reason"].as_str().unwrap_or_default();
                let found = &record["found"];
                if shown == expected && found.to_string().contains(reason) {
                    right += 1;
                } else {
                    wrong.push(format!("{era:?} {list}: {}: {found}", entry["name"]));
                }
            }
            println!("{era:?}: {right} of {} {list} requests as expected", entries.len());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_form_may_ask_for_the_personal_data_that_is_listed() {
    let asks = |title: &str| {
        json!({ "name": title, "form": { "message": "A question",
            "properties": { "a": { "type": "string", "title": title } } } })
    };
    for era in ERAS {
        let script = Script::default();
        let server = asking(era, &script);
        for (listed, shown, refused) in [
            ("[card, health]", vec!["Card number", "Blood type"], vec!["Full name", "IBAN"]),
            ("[]", vec!["Branch"], vec!["E-mail", "Date of birth", "Phone number", "Your name"]),
            ("[name, email, nationalId]", vec!["E-mail", "SSN"], vec!["Street address", "CVV"]),
        ] {
            let requests = format!("{{formElicitation: {{personalData: {listed}}}}}");
            let servers =
                format!("- {{name: up, url: '{}', serverRequests: {requests}}}", server.url());
            let gateway = Config::with(&servers, "[up]").policy(OPEN).start();
            for (title, expected) in
                shown.iter().map(|one| (one, true)).chain(refused.iter().map(|one| (one, false)))
            {
                let (shown, record) = is_shown(&gateway, era, &script, &asks(title));
                assert_eq!(shown, expected, "{era:?} {listed} {title}: {record}");
            }
        }
    }
}
