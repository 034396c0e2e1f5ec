//! Whether a form asks its reader for a secret.
//!
//! SPEC 2025-11-25 client/elicitation: servers must not ask for sensitive information in a form. A field
//! is judged by what it is called and what is said about it. What only has something to do with a secret
//! (the address for a password reset, a limit of tokens) is none.

use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization as _;
use unicode_security::confusable_detection::skeleton;

use crate::hidden::Hidden;
use crate::json::{Kind, Value};
use crate::work::Budget;

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

/// What reading the members of a form costs for each byte of it, in units.
const READING: usize = 16;
/// What taking words apart costs for each byte of a text, in units.
const EACH_BYTE: usize = 32;
/// What comparing a word with all that is looked for costs, in units.
pub(super) const EACH_WORD: usize = 128;

/// One word of what is looked for.
pub(super) struct Known {
    text: &'static str,
    letters: usize,
    /// Its skeleton.
    looks: String,
}

impl Known {
    pub(super) fn new(text: &'static str) -> Self {
        let (letters, looks) = (text.chars().count(), looks(text));
        Self { text, letters, looks }
    }
}

/// What is a secret, with what each word looks like.
static KNOWN: LazyLock<Vec<Vec<Known>>> = LazyLock::new(|| {
    let known = |secret: &&[&'static str]| secret.iter().map(|word| Known::new(word)).collect();
    SECRETS.iter().map(known).collect()
});

/// Whether an answer to the form would hold a secret. Where `budget` is exhausted afterwards, the form was
/// not judged to its end.
pub(super) fn asks_for_secret(params: Value<'_>, budget: &Budget) -> bool {
    if !budget.spend(params.raw().len().saturating_mul(READING)) {
        return true;
    }
    let Some(schema) = params.get("requestedSchema") else { return false };
    let mut fields = Fields { secret: false, free: false, budget };
    fields.read(schema);
    // What is said around the fields counts where one takes any text.
    let around = [params.get("message"), schema.get("title"), schema.get("description")];
    let mut around = around.into_iter().flatten().filter_map(Value::as_str);
    fields.secret || fields.free && around.any(|text| solicits(&words(&text, budget)))
}

struct Fields<'a> {
    /// One asks for a secret.
    secret: bool,
    /// One takes any text.
    free: bool,
    budget: &'a Budget,
}

impl Fields<'_> {
    /// Reads the fields of a schema, however deep they stand.
    ///
    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn read(&mut self, schema: Value<'_>) {
        let properties = schema.get("properties").filter(|value| value.is_object());
        for (name, field) in properties.into_iter().flat_map(Value::members) {
            if self.secret {
                return;
            }
            if takes_text(field) {
                self.free = true;
                self.secret |= is_secret(&name, field, self.budget);
                for item in items_of(field) {
                    self.secret |= is_secret("", item, self.budget);
                }
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

/// Whether anything could be written into a field: not where one of a list is taken. Of a list of values,
/// its items decide; a list whose items are not described takes any.
fn takes_text(field: Value<'_>) -> bool {
    let kind = field.get("type").and_then(Value::as_str);
    match kind.as_deref() {
        Some("boolean" | "null") => false,
        Some("array") => {
            let mut items = items_of(field).peekable();
            items.peek().is_none() || items.any(takes_text)
        }
        _ => !is_chosen(field),
    }
}

/// The schemas of the items of a field that is a list; an old form of them is an array.
fn items_of(field: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    let kind = field.get("type").and_then(Value::as_str);
    let items = field.get("items").filter(|_| kind.as_deref() == Some("array"));
    let many = items.into_iter().flat_map(Value::items);
    many.chain(items.filter(|items| items.kind() != Kind::Array))
}

/// Whether one of a list is taken. An empty list, or something else in its place, is none: clients that
/// have nothing to choose from show a field for text.
fn is_chosen(field: Value<'_>) -> bool {
    let of_values = field.get("enum").is_some_and(|list| list.items().next().is_some());
    let titled = ["oneOf", "anyOf"].into_iter().filter_map(|list| field.get(list)).any(|list| {
        let mut choices = list.items().peekable();
        choices.peek().is_some() && choices.all(|choice| choice.get("const").is_some())
    });
    of_values || titled
}

fn is_secret(name: &str, field: Value<'_>, budget: &Budget) -> bool {
    let text = |member: &str| field.get(member).and_then(Value::as_str);
    let hidden = text("format").is_some_and(|format| format.eq_ignore_ascii_case("password"));
    let write_only = field
        .get("writeOnly")
        .is_some_and(|only| only.kind() == Kind::Boolean && only.raw() == "true");
    let words_of = |member: &str| text(member).map(|text| words(&text, budget));
    let (name, title) = (words(name, budget), words_of("title"));
    let said = words_of("description");
    let postal = [Some(&name), title.as_ref(), said.as_ref()].into_iter().flatten().flatten();
    let postal = postal.into_iter().any(|word| POSTAL.contains(&&*word.text));
    let called = |words: &Vec<Word>| secrets(words, postal).next().is_some();
    hidden
        || write_only
        || called(&name)
        || title.as_ref().is_some_and(called)
        || said.as_ref().is_some_and(|said| solicits(said) || said.len() <= 3 && called(said))
}

/// Whether somebody is asked for a secret in a sentence.
fn solicits(words: &[Word]) -> bool {
    secrets(words, false).any(|at| {
        let before = words.get(at.saturating_sub(BETWEEN)..at).unwrap_or_default();
        before.iter().any(|word| ASKING.contains(&&*word.text))
    })
}

/// Where secrets are named among these words.
fn secrets(words: &[Word], postal: bool) -> impl Iterator<Item = usize> {
    (0..words.len()).filter(move |at| {
        let rest = words.get(*at..).unwrap_or_default();
        let within = |word: &Word| WITHIN.iter().any(|one| word.text.contains(one));
        let named = KNOWN.iter().any(|secret| {
            let begins = rest.len() >= secret.len()
                && secret.iter().zip(rest).all(|(known, word)| word.reads_like(known));
            let after = rest.get(secret.len());
            let other = after.is_some_and(|after| NOT_BEFORE.contains(&&*after.text));
            let pin = || secret.iter().map(|known| known.text).eq(["pin"]);
            begins && !other && !(postal && pin())
        });
        named || rest.first().is_some_and(within)
    })
}

/// A word of a text.
pub(super) struct Word {
    text: String,
    letters: usize,
    /// Its skeleton, where letters in it may look like others.
    looks: Option<String>,
}

impl Word {
    /// `None` where the budget is exhausted.
    fn new(text: String, budget: &Budget) -> Option<Self> {
        let odd = !text.bytes().all(|byte| byte.is_ascii_lowercase());
        let skeleton = if odd { EACH_WORD + text.len().saturating_mul(EACH_BYTE) } else { 0 };
        if !budget.spend(EACH_WORD + skeleton) {
            return None;
        }
        let looks = odd.then(|| looks(&text));
        Some(Self { letters: text.chars().count(), text, looks })
    }

    /// Whether it is this one, in letters as they are.
    pub(super) fn is(&self, known: &str) -> bool {
        self.text == known
    }

    /// Whether it reads like this one: letters that look alike count as the same.
    pub(super) fn reads_like(&self, known: &Known) -> bool {
        let looks_so = || {
            self.letters == known.letters
                && self.looks.as_ref().is_some_and(|looks| *looks == known.looks)
        };
        self.text == known.text || looks_so()
    }
}

/// What is the same for words that look the same (UTS 39).
fn looks(text: &str) -> String {
    skeleton(text).collect::<String>().to_lowercase()
}

/// The words of a text or a name, in lower case: `apiKey`, `api_key` and `API key` are the same two. Where
/// `budget` is exhausted, those before it was.
pub(super) fn words(text: &str, budget: &Budget) -> Vec<Word> {
    let (mut words, mut word, mut before_lower) = (Vec::new(), String::new(), false);
    if !budget.spend(text.len().saturating_mul(EACH_BYTE)) {
        return words;
    }
    for c in text.nfkc().filter(|c| Hidden::of(*c).is_none()) {
        let ends = !c.is_alphanumeric() || c.is_uppercase() && before_lower;
        if ends && !word.is_empty() {
            let Some(word) = Word::new(std::mem::take(&mut word), budget) else { return words };
            words.push(word);
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before_lower = c.is_lowercase();
    }
    words.extend((!word.is_empty()).then(|| Word::new(word, budget)).flatten());
    words
}

#[cfg(test)]
mod tests {
    use super::asks_for_secret;
    use crate::json::{Bounds, Document};
    use crate::work::{Budget, USUAL_MOST};

    fn asks(form: &serde_json::Value) -> bool {
        let text = form.to_string();
        let budget = Budget::for_bytes(text.len(), USUAL_MOST);
        let document = Document::parse(text.into(), &Bounds::ANSWER).unwrap();
        let asks = asks_for_secret(document.root(), &budget);
        assert!(!budget.is_exhausted(), "{} units", budget.spent());
        asks
    }

    fn field(name: &str, field: &serde_json::Value) -> serde_json::Value {
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
            assert!(asks(&field(name, &serde_json::json!({ "type": "string" }))), "{name}");
        }
        for said in [
            serde_json::json!({ "type": "string", "title": "Your password" }),
            serde_json::json!({ "type": "string", "description": "Enter the PIN of your card" }),
            serde_json::json!({ "type": "string", "format": "password" }),
            serde_json::json!({ "type": "integer", "title": "PIN" }),
            serde_json::json!({ "type": "string", "description": "密码" }),
        ] {
            assert!(asks(&field("value", &said)), "{said}");
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
            assert!(!asks(&field(name, &said)), "{name}");
        }
        let form = serde_json::json!({ "message": "Reset the password of bob?",
            "requestedSchema": { "type": "object", "properties": { "sure": { "type": "boolean" } } } });
        assert!(!asks(&form));
    }
    #[test]
    fn a_list_without_choices_is_a_field_for_text() {
        for said in [
            serde_json::json!({ "type": "string", "enum": [] }),
            serde_json::json!({ "type": "string", "enum": null }),
            serde_json::json!({ "type": "string", "enum": {} }),
            serde_json::json!({ "type": "string", "oneOf": [] }),
            serde_json::json!({ "type": "string", "oneOf": [{ "type": "string" }] }),
            serde_json::json!({ "type": "string", "const": null }),
            serde_json::json!({ "type": "array", "items": { "type": "string" } }),
            serde_json::json!({ "type": "array", "items": { "type": "string", "enum": [] } }),
            serde_json::json!({ "type": "array", "items": [{ "type": "string" }] }),
            serde_json::json!({ "type": "array" }),
        ] {
            assert!(asks(&field("password", &said)), "{said}");
        }
        let items = serde_json::json!({ "type": "string", "title": "Password" });
        assert!(asks(&field("value", &serde_json::json!({ "type": "array", "items": items }))));
        let titled = serde_json::json!([{ "const": "a", "title": "A" }, { "const": "b" }]);
        for said in [
            serde_json::json!({ "type": "string", "oneOf": titled }),
            serde_json::json!({ "type": "array", "items": { "type": "string", "enum": ["a"] } }),
            serde_json::json!({ "type": "array", "items": { "anyOf": titled } }),
            serde_json::json!({ "type": "array", "items": { "type": "boolean" } }),
        ] {
            assert!(!asks(&field("password", &said)), "{said}");
        }
    }

    #[test]
    fn a_form_of_many_words_is_judged_within_the_budget_of_its_length() {
        for word in ["ab1 ", "1 ", "a ", "é ", "пар0ль1 ", "enter "] {
            let text = word.repeat(60 * 1024 / word.len());
            let said = serde_json::json!({ "type": "string", "description": text });
            assert!(!asks(&field("value", &said)), "{word}");
        }
    }

    #[test]
    fn judging_ends_with_the_budget() {
        let form = field("value", &serde_json::json!({ "title": "ab1 ".repeat(10_000) }));
        let document = Document::parse(form.to_string().into(), &Bounds::ANSWER).unwrap();
        let budget = Budget::new(2_000_000);
        asks_for_secret(document.root(), &budget);
        assert!(budget.is_exhausted());
        assert!(budget.spent() < 10_000_000, "{} units", budget.spent());
    }
}
