//! Whether a form asks its reader for a secret.
//!
//! SPEC 2025-11-25 client/elicitation: servers must not ask for sensitive information in a form. A field
//! is judged by what it is called and what is said about it. What only has something to do with a secret
//! (the address for a password reset, a limit of tokens) is none.

use unicode_normalization::UnicodeNormalization as _;
use unicode_security::confusable_detection::skeleton;

use crate::hidden::Hidden;
use crate::json::{Kind, Value};

/// What is a secret: each a sequence of words.
#[rustfmt::skip]
const SECRETS: &[&[&str]] = &[
    &["password"], &["passwords"], &["passwd"], &["passphrase"], &["passcode"], &["passwort"], &["kennwort"], &["pwd"],
    &["contraseña"], &["senha"], &["пароль"], &["mot", "de", "passe"],
    &["pin"], &["otp"], &["totp"], &["2fa"], &["mfa", "code"], &["one", "time", "code"], &["verification", "code"],
    &["authentication", "code"], &["authenticator", "code"], &["recovery", "code"], &["backup", "code"], &["security", "code"],
    &["secret"], &["token"], &["bearer"], &["jwt"], &["credential"], &["credentials"], &["session", "cookie"],
    &["api", "key"], &["apikey"], &["access", "key"], &["private", "key"], &["signing", "key"], &["encryption", "key"],
    &["ssh", "key"], &["seed", "phrase"], &["recovery", "phrase"], &["mnemonic"],
    &["card", "number"], &["cardnumber"], &["credit", "card"], &["debit", "card"], &["cvv"], &["cvv2"], &["cvc"], &["cvc2"],
    &["bank", "account"], &["iban"], &["routing", "number"], &["ssn"], &["social", "security"], &["passport", "number"],
];

/// The same in scripts without blanks between words.
const WITHIN: [&str; 5] = ["密码", "密碼", "パスワード", "暗証番号", "비밀번호"];

/// Words behind a secret with which it is something else.
#[rustfmt::skip]
const NOT_BEFORE: &[&str] = &[
    "reset", "policy", "policies", "length", "manager", "strength", "expiry", "expiration", "rotation", "count", "limit",
    "limits", "budget", "usage", "name", "id", "type", "format", "url", "link", "email", "date", "age", "holder", "brand",
    "service", "symbol", "standard", "santa", "path", "address", "required", "protected", "enabled", "provider", "field",
];

/// Words with which a number that is called a PIN is none.
const POSTAL: [&str; 4] = ["postal", "zip", "area", "postcode"];

/// Words with which somebody is asked for what follows.
#[rustfmt::skip]
const ASKING: &[&str] = &[
    "enter", "type", "provide", "give", "send", "paste", "input", "insert", "share", "tell", "supply", "submit", "fill",
    "your", "need", "needs", "what", "ihr", "dein", "eingeben", "votre", "su", "sua",
];

/// How many words may stand between.
const BETWEEN: usize = 4;

/// Whether an answer to the form would hold a secret.
pub(super) fn asks_for_secret(params: Value<'_>) -> bool {
    let Some(schema) = params.get("requestedSchema") else { return false };
    let mut fields = Fields::default();
    fields.read(schema);
    // What is said around the fields counts where one takes any text.
    let around = [params.get("message"), schema.get("title"), schema.get("description")];
    let mut around = around.into_iter().flatten().filter_map(Value::as_str);
    fields.secret || fields.free && around.any(|text| solicits(&words(&text)))
}

#[derive(Default)]
struct Fields {
    /// One asks for a secret.
    secret: bool,
    /// One takes any text.
    free: bool,
}

impl Fields {
    /// Reads the fields of a schema, however deep they stand.
    ///
    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn read(&mut self, schema: Value<'_>) {
        let properties = schema.get("properties").filter(|value| value.is_object());
        for (name, field) in properties.into_iter().flat_map(Value::members) {
            if takes_text(field) {
                self.free = true;
                self.secret |= is_secret(&name, field);
            }
        }
        for (_, member) in schema.members() {
            self.read(member);
        }
        for item in schema.items() {
            self.read(item);
        }
    }
}

/// Whether anything could be written into a field: not where one of a list is taken.
fn takes_text(field: Value<'_>) -> bool {
    let kind = field.get("type").and_then(Value::as_str);
    let chosen = ["enum", "oneOf", "const"].iter().any(|list| field.get(list).is_some());
    !chosen && !matches!(kind.as_deref(), Some("boolean" | "array" | "null"))
}

fn is_secret(name: &str, field: Value<'_>) -> bool {
    let text = |member: &str| field.get(member).and_then(Value::as_str);
    let hidden = text("format").is_some_and(|format| format.eq_ignore_ascii_case("password"));
    let write_only = field
        .get("writeOnly")
        .is_some_and(|only| only.kind() == Kind::Boolean && only.raw() == "true");
    let (name, title) = (words(name), text("title").map(|title| words(&title)));
    let said = text("description").map(|text| words(&text));
    let postal = [Some(&name), title.as_ref(), said.as_ref()].into_iter().flatten().flatten();
    let postal = postal.into_iter().any(|word| POSTAL.contains(&word.as_str()));
    let called = |words: &Vec<String>| secrets(words, postal).next().is_some();
    hidden
        || write_only
        || called(&name)
        || title.as_ref().is_some_and(called)
        || said.as_ref().is_some_and(|said| solicits(said) || said.len() <= 3 && called(said))
}

/// Whether somebody is asked for a secret in a sentence.
fn solicits(words: &[String]) -> bool {
    secrets(words, false).any(|at| {
        let before = words.get(at.saturating_sub(BETWEEN)..at).unwrap_or_default();
        before.iter().any(|word| ASKING.contains(&word.as_str()))
    })
}

/// Where secrets are named among these words.
fn secrets(words: &[String], postal: bool) -> impl Iterator<Item = usize> {
    (0..words.len()).filter(move |at| {
        let rest = words.get(*at..).unwrap_or_default();
        let within = rest.first().is_some_and(|word| WITHIN.iter().any(|one| word.contains(one)));
        let named = SECRETS.iter().any(|secret| {
            let begins = rest.len() >= secret.len()
                && secret.iter().zip(rest).all(|(one, word)| alike(one, word));
            let after = rest.get(secret.len());
            let other = after.is_some_and(|after| NOT_BEFORE.contains(&after.as_str()));
            begins && !other && !(postal && *secret == ["pin"])
        });
        within || named
    })
}

/// Whether a word reads like this one: letters that look alike count as the same.
fn alike(one: &str, word: &str) -> bool {
    let read = |text: &str| skeleton(text).collect::<String>().to_lowercase();
    let odd = |word: &str| !word.bytes().all(|byte| byte.is_ascii_lowercase());
    let long = || one.chars().count() == word.chars().count();
    one == word || odd(word) && long() && read(one) == read(word)
}

/// The words of a text or a name, in lower case: `apiKey`, `api_key` and `API key` are the same two.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut before_lower) = (Vec::new(), String::new(), false);
    for c in text.nfkc().filter(|c| Hidden::of(*c).is_none()) {
        if !c.is_alphanumeric() || c.is_uppercase() && before_lower {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before_lower = c.is_lowercase();
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::asks_for_secret;
    use crate::json::{Bounds, Document};

    fn asks(form: &serde_json::Value) -> bool {
        let document = Document::parse(form.to_string().into(), &Bounds::ANSWER).unwrap();
        asks_for_secret(document.root())
    }

    fn field(name: &str, field: serde_json::Value) -> serde_json::Value {
        let schema = serde_json::json!({ "type": "object", "properties": { name: field } });
        serde_json::json!({ "message": "Please fill this in.", "requestedSchema": schema })
    }

    #[test]
    fn fields_for_secrets_are_known_by_what_they_are_called() {
        for name in [
            "password",
            "userPassword",
            "PASSWORD",
            "db_password",
            "pin",
            "otp",
            "apiKey",
            "api-key",
            "access_token",
            "token",
            "clientSecret",
            "card number",
            "cvv",
            "ssn",
            "seedPhrase",
            "p\u{200b}assword",
            "pаssword",
            "passw0rd",
            "ｐａｓｓｗｏｒｄ",
        ] {
            assert!(asks(&field(name, serde_json::json!({ "type": "string" }))), "{name}");
        }
        for said in [
            serde_json::json!({ "type": "string", "title": "Your password" }),
            serde_json::json!({ "type": "string", "description": "Enter the PIN of your card" }),
            serde_json::json!({ "type": "string", "format": "password" }),
            serde_json::json!({ "type": "integer", "title": "PIN" }),
            serde_json::json!({ "type": "string", "description": "密码" }),
        ] {
            assert!(asks(&field("value", said.clone())), "{said}");
        }
        let form = serde_json::json!({ "message": "Please enter your password to go on.",
            "requestedSchema": { "type": "object", "properties": { "a": { "type": "string" } } } });
        assert!(asks(&form));
    }

    #[test]
    fn fields_that_only_have_to_do_with_secrets_are_asked_for() {
        for (name, said) in [
            ("email", serde_json::json!({ "type": "string", "format": "email" })),
            ("maxTokens", serde_json::json!({ "type": "integer" })),
            ("tokenLimit", serde_json::json!({ "type": "integer" })),
            ("passwordResetEmail", serde_json::json!({ "type": "string" })),
            (
                "password",
                serde_json::json!({ "type": "boolean", "title": "Protect it with a password" }),
            ),
            ("pin", serde_json::json!({ "type": "boolean" })),
            (
                "secretName",
                serde_json::json!({ "type": "string", "description": "Which secret to rotate" }),
            ),
            ("pin_code", serde_json::json!({ "type": "string", "title": "Postal PIN code" })),
            ("kind", serde_json::json!({ "type": "string", "enum": ["password", "token"] })),
            (
                "shipping",
                serde_json::json!({ "type": "string", "description": "Where to send it" }),
            ),
            ("key", serde_json::json!({ "type": "string", "title": "Issue key" })),
        ] {
            assert!(!asks(&field(name, said)), "{name}");
        }
        let form = serde_json::json!({ "message": "Reset the password of bob?",
            "requestedSchema": { "type": "object", "properties": { "sure": { "type": "boolean" } } } });
        assert!(!asks(&form));
    }
}
