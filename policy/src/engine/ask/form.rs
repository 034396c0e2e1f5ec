//! Detects forms that ask the user for a secret or for personal data.
//!
//! SPEC 2025-11-25 client/elicitation: servers must not ask for sensitive information in a form. A field is judged by
//! its name, title, description, format, pattern and default, and by the message of the form. Fields that merely relate
//! to a secret (the address for a password reset, a limit of tokens) do not count.

use detection::content::{PersonalKind, kind_of_pattern};
use json::{JsonKind, Value};
use policy_core::base::work::WorkBudget;
use regex::{Regex, RegexBuilder};

use super::names::{FieldSubject, FieldSubjects};
use super::readings::{PinMeaning, TextReadings};

/// Units per byte of a form for reading its members.
const READING: usize = 16;
/// Longest expression of a field that is tried with values, in bytes.
const EXPRESSION: usize = 256;
/// Largest automaton of such an expression, in bytes.
const AUTOMATON: usize = 64 * 1024;
/// Units for an expression: it is compiled, and tried with some twenty values.
const TRYING: usize = 100_000;

/// Members of a field that are read by what they mean, or that say nothing to a user.
const KNOWN: [&str; 20] = [
    "type",
    "title",
    "description",
    "format",
    "default",
    "pattern",
    "enum",
    "enumNames",
    "oneOf",
    "anyOf",
    "items",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "uniqueItems",
    "writeOnly",
    "$schema",
];

/// What an answer to the form would contain. If `budget` is exhausted afterwards, the form was not inspected completely.
pub(super) fn asked_of(params: Value<'_>, budget: &WorkBudget) -> FieldSubjects {
    if !budget.spend(params.raw().len().saturating_mul(READING)) {
        return FieldSubjects::default();
    }
    let Some(schema) = params.get("requestedSchema") else { return FieldSubjects::default() };
    let mut fields = FieldScan::new(budget);
    fields.read(schema);
    // What a user may choose, and then writes into a field that does not say what it is for.
    if fields.vague {
        fields.asked.join(fields.chosen);
    }
    // The surrounding texts count only if some field accepts free text.
    if fields.free {
        let around = ["message", "title", "description"].map(|name| params.get(name));
        let around = around.into_iter().chain([schema.get("title"), schema.get("description")]);
        let defaults = schema.get("default").into_iter().flat_map(Value::members);
        let around = around.flatten().chain(defaults.map(|(_, default)| default));
        for text in around.filter_map(Value::as_str) {
            fields.asked.join(TextReadings::of(&text, budget).solicits());
        }
    }
    // A title that names what fields are for that do not say it.
    let title = schema.get("title").filter(|_| fields.vague).and_then(Value::as_str);
    if let Some(title) = title.map(|title| TextReadings::of(&title, budget)) {
        fields.asked.join(title.names(PinMeaning::Secret));
    }
    fields.asked
}

struct FieldScan<'a> {
    /// What the fields that accept free text ask for.
    asked: FieldSubjects,
    /// What the choices of the other fields name.
    chosen: FieldSubjects,
    /// Whether a field accepts free text.
    free: bool,
    /// Whether a field accepts free text and does not say which.
    vague: bool,
    budget: &'a WorkBudget,
}

impl<'a> FieldScan<'a> {
    fn new(budget: &'a WorkBudget) -> Self {
        let (asked, chosen) = (FieldSubjects::default(), FieldSubjects::default());
        Self { asked, chosen, free: false, vague: false, budget }
    }

    /// Reads the fields of a schema, at any depth.
    ///
    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn read(&mut self, schema: Value<'_>) {
        let properties = schema.get("properties").filter(|value| value.is_object());
        for (name, field) in properties.into_iter().flat_map(Value::members) {
            if takes_text(field) {
                self.free = true;
                self.field(&name, field);
                for item in items_of(field) {
                    self.field("", item);
                }
            } else {
                self.yes_or_no(&name, field);
                self.choices(field);
                items_of(field).for_each(|item| self.choices(item));
            }
        }
        // A client may also ask for a required member that is not described.
        let required = schema.get("required").into_iter().flat_map(Value::items);
        for name in required.filter_map(Value::as_str) {
            if properties.is_none_or(|properties| properties.get(&name).is_none()) {
                self.free = true;
                self.asked.join(TextReadings::of(&name, self.budget).names(PinMeaning::Secret));
            }
        }
        for (_, member) in schema.members() {
            self.read(member);
        }
        for item in schema.items() {
            self.read(item);
        }
    }

    /// Reads a field that accepts free text.
    fn field(&mut self, name: &str, field: Value<'_>) {
        let text_of = |member: &str| {
            let text = field.get(member).and_then(Value::as_str);
            text.map(|text| TextReadings::of(&text, self.budget))
        };
        let (name, title) = (TextReadings::of(name, self.budget), text_of("title"));
        let (said, format) = (text_of("description"), text_of("format"));
        let all = [Some(&name), title.as_ref(), said.as_ref()];
        let pin = if all.into_iter().flatten().any(TextReadings::is_postal) {
            PinMeaning::PostalCode
        } else {
            PinMeaning::Secret
        };
        let mut asked = name.names(pin);
        if is_hidden(field) {
            asked.add(FieldSubject::Secret);
        }
        title.iter().chain(&format).for_each(|text| asked.join(text.names(pin)));
        if let Some(said) = &said {
            asked.join(said.solicits());
            asked.join(if said.is_name() { said.names(pin) } else { FieldSubjects::default() });
        }
        if let Some(default) = text_of("default") {
            asked.join(default.solicits());
        }
        // What the protocol does not define, a client may show all the same: `placeholder`, `label`, `examples`.
        let others = field.members().filter(|(name, _)| !KNOWN.contains(&&**name));
        let texts = others.flat_map(|(_, value)| std::iter::once(value).chain(value.items()));
        for text in texts.filter_map(Value::as_str) {
            let text = TextReadings::of(&text, self.budget);
            asked.join(text.solicits());
            asked.join(if text.is_name() { text.names(pin) } else { FieldSubjects::default() });
        }
        if let Some(kind) = self.kind_of_pattern(field) {
            asked.add(FieldSubject::Personal(kind));
        }
        let is_vague = |text: Option<&TextReadings>| text.is_none_or(TextReadings::is_vague);
        self.vague |= name.is_vague() && is_vague(title.as_ref()) && is_vague(said.as_ref());
        self.asked.join(asked);
    }

    /// Reads a field whose answer is yes or no: it says something of a person's health if it asks about an illness.
    fn yes_or_no(&mut self, name: &str, field: Value<'_>) {
        if field.get("type").and_then(Value::as_str).as_deref() != Some("boolean") {
            return;
        }
        let health = FieldSubject::Personal(PersonalKind::Health);
        let texts = ["title", "description"].into_iter();
        let texts = texts.filter_map(|member| field.get(member)).filter_map(Value::as_str);
        let asks = |text: &str| {
            let text = TextReadings::of(text, self.budget);
            text.asks_of_health() || text.names(PinMeaning::Secret).has(health)
        };
        if asks(name) || texts.into_iter().any(|text| asks(&text)) {
            self.asked.add(health);
        }
    }

    /// Reads the choices of a field.
    fn choices(&mut self, field: Value<'_>) {
        let lists = ["enum", "enumNames", "oneOf", "anyOf"].into_iter();
        for choice in lists.filter_map(|list| field.get(list)).flat_map(Value::items) {
            let texts = [Some(choice), choice.get("title"), choice.get("const")];
            for text in texts.into_iter().flatten().filter_map(Value::as_str) {
                let names = TextReadings::of(&text, self.budget).names(PinMeaning::Secret);
                self.chosen.join(names);
            }
        }
    }

    /// The kind of personal data that the pattern of a field is made for.
    fn kind_of_pattern(&self, field: Value<'_>) -> Option<PersonalKind> {
        let pattern = field.get("pattern").and_then(Value::as_str)?;
        if pattern.len() > EXPRESSION || !self.budget.spend(TRYING) {
            return None;
        }
        let pattern: Regex = RegexBuilder::new(&pattern)
            .size_limit(AUTOMATON)
            .dfa_size_limit(AUTOMATON)
            .build()
            .ok()?;
        kind_of_pattern(|value| pattern.is_match(value))
    }
}

/// Whether a field says that its value must not be seen.
fn is_hidden(field: Value<'_>) -> bool {
    let format = field.get("format").and_then(Value::as_str);
    let is_true = |only: Value<'_>| only.kind() == JsonKind::Boolean && only.raw() == "true";
    format.is_some_and(|format| format.eq_ignore_ascii_case("password"))
        || field.get("writeOnly").is_some_and(is_true)
}

/// Whether a field accepts free text, rather than a choice from a list. For an array its items decide; without a
/// description of the items it accepts any text.
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

/// The schemas of the items of an array field; older drafts of JSON Schema allow an array of schemas.
fn items_of(field: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    let kind = field.get("type").and_then(Value::as_str);
    let items = field.get("items").filter(|_| kind.as_deref() == Some("array"));
    let many = items.into_iter().flat_map(Value::items);
    many.chain(items.filter(|items| items.kind() != JsonKind::Array))
}

/// Whether the field is a choice from a list. An empty or malformed list does not count: clients without any choices
/// show a text field.
fn is_chosen(field: Value<'_>) -> bool {
    let of_values = field.get("enum").is_some_and(|list| list.items().next().is_some());
    let titled = ["oneOf", "anyOf"].into_iter().filter_map(|list| field.get(list)).any(|list| {
        let mut choices = list.items().peekable();
        choices.peek().is_some() && choices.all(|choice| choice.get("const").is_some())
    });
    of_values || titled
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};
    use policy_core::base::work::WorkBudget;

    use detection::content::PersonalKind;

    use super::super::PersonalFormData;
    use super::super::names::FieldSubject;
    use super::super::tests::{judged, one_field as field};
    use super::asked_of;

    /// Whether a form asks for a secret, or for personal data that is not permitted by default.
    fn asks(form: &serde_json::Value) -> bool {
        judged(form, |form, budget| {
            let asked = asked_of(form, budget);
            let permitted = PersonalFormData::default().0;
            let refused = PersonalKind::ALL.into_iter().filter(|kind| !permitted.contains(kind));
            let mut refused = refused.map(FieldSubject::Personal);
            asked.has(FieldSubject::Secret) || refused.any(|subject| asked.has(subject))
        })
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
        let required = serde_json::json!({ "message": "Please fill this in.",
            "requestedSchema": { "type": "object", "properties": {}, "required": ["password"] } });
        assert!(asks(&required));
        for said in [
            serde_json::json!({ "type": "string", "title": "Your password" }),
            serde_json::json!({ "type": "string", "description": "Enter the PIN of your card" }),
            serde_json::json!({ "type": "string", "format": "password" }),
            serde_json::json!({ "type": "integer", "title": "PIN" }),
            serde_json::json!({ "type": "string", "description": "密码" }),
            // A confusable letter from another script.
            serde_json::json!({ "type": "string", "description": "Enter the \u{440}in of your card" }),
            serde_json::json!({ "type": "string", "description": "Enter your p\u{430}ssword" }),
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
    fn the_title_and_the_defaults_of_a_form_and_questions_of_yes_or_no_count() {
        let text = serde_json::json!({ "value": { "type": "string" } });
        let form = |member: &str, said: serde_json::Value, fields: &serde_json::Value| {
            let mut schema = serde_json::json!({ "type": "object", "properties": fields });
            schema[member] = said;
            serde_json::json!({ "message": "Please go on.", "requestedSchema": schema })
        };
        assert!(asks(&form("title", "Password".into(), &text)));
        let default = serde_json::json!({ "value": "Enter your password" });
        assert!(asks(&form("default", default, &text)));
        let branch = serde_json::json!({ "branch": { "type": "string" } });
        assert!(!asks(&form("title", "Password reset".into(), &branch)));
        for said in [
            "Do you have diabetes?",
            "Diabetic",
            "Are you pregnant?",
            "Do you take any medication?",
        ] {
            let value = serde_json::json!({ "type": "boolean", "title": said });
            assert!(asks(&field("answer", &value)), "{said}");
        }
        for said in [
            "Run the health check?",
            "Subscribe to the newsletter?",
            "Is the patient list public?",
            "Include diseases in the export of the catalogue?",
        ] {
            let value = serde_json::json!({ "type": "boolean", "title": said });
            assert!(!asks(&field("answer", &value)), "{said}");
        }
    }

    #[test]
    fn names_of_secrets_are_known_however_they_are_written_and_in_many_languages() {
        #[rustfmt::skip]
        let names = [
            "pass_word", "PASS WORD", "p a s s w o r d", "p.a.s.s.w.o.r.d", "p4ssw0rd", "p@ssword", "pa$$word", "pa55w0rd",
            "p\u{e4}ssw\u{f6}rd", "pas\u{336}sword", "dbpassword", "mypassword2", "password_confirmation", "passwordConfirm",
            "pass", "user_pass", "smtpPass", "dbPass", "pw", "p.w.", "pwd", "creditcardno", "creditCardNo", "card_no",
            "contrasena", "motdepasse", "mot de passe", "MotDePasse", "mdp", "wachtwoord", "hasło", "haslo", "lösenord",
            "losenord", "salasana", "heslo", "jelszó", "jelszo", "şifre", "sifre", "senha", "parola", "mật khẩu", "mat khau",
            "пароль", "كلمة المرور", "पासवर्ड", "รหัสผ่าน", "密码", "パスワード", "暗証番号", "비밀번호", "geheimzahl", "Kennwort",
            "TAN", "tan_code", "sms TAN", "mfa", "mfa code", "MFACode", "2fa", "2FA code", "2-fa", "sms code", "one-time code",
            "otp", "0TP", "OTPCode", "verification code", "backup codes", "recoveryCodes", "seed phrase", "wallet key",
            "session id", "sessionId", "cookie", "session cookie", "auth", "auth header", "cvv", "CVVCode", "p1n", "P I N",
            "unlock code", "api.key", "a p i k e y", "clave", "Clave", "CLAVE", "tu clave", "su_clave", "claveUsuario", "nuevaClave",
            "сlave", "c l a v e", "secretkey", "secret key", "secretKey", "SECRET_KEY", "mySecretkey", "awssecretkey", "s3cretkey",
            "contraseña", "CONTRASEÑA", "mots de passe", "Passwort", "dbPasswort", "Senha", "senhaAtual", "ПАРОЛЬ", "пароль пользователя",
            "密碼", "用户密码", "パスワード入力", "ﾊﾟｽﾜｰﾄﾞ", "pswd", "userpass", "authcode", "auth code",
        ];
        for name in names {
            let value = serde_json::json!({ "type": "string" });
            assert!(asks(&field(name, &value)), "name {name}");
            for member in ["title", "description"] {
                let value = serde_json::json!({ "type": "string", member: name });
                assert!(asks(&field("value", &value)), "{member} {name}");
            }
        }
    }

    #[test]
    fn honest_names_are_no_alarm() {
        #[rustfmt::skip]
        let names = [
            "passenger", "passengerName", "passage", "passive", "compass", "bypass", "boardingPass", "pass_rate", "passFail",
            "season pass type", "compass words", "password policy", "passwordless", "passwordResetEmail", "passwordlength",
            "tangent", "tank", "standard", "distance", "tan_line", "author", "authorName", "authority", "auth_method",
            "authType", "authorized_by", "shipping", "shippingAddress", "opinion", "pinned", "spinner", "pineapple",
            "P in watt", "cookie_recipe", "cookieConsent", "cookie policy", "parola chiave", "session", "sessionTitle",
            "session_name", "secretary", "secretaryName", "tokenLimit", "maxTokens", "keyboard", "keyword", "issue key",
            "primary key", "codeReview", "zipCode", "postal code", "countryCode", "promoCode", "discount code", "areaCode",
            "mfa_method", "mfaEnabled", "creditLimit", "credit_card_type", "cardHolder", "cards", "business card", "laptop",
            "top_in_list", "mode", "model", "word", "words", "city", "colour", "comment", "2024", "10 0", "name", "e-mail",
            "wallet", "backup", "backup path", "recovery", "seed", "phrase", "verification", "account", "number",
            "palabra clave", "palabrasClave", "palabra_clave", "punto clave", "fechas clave", "clave primaria", "enclave",
            "autoclave", "clavel", "conclave", "claves", "keyboard", "secretaria", "secretariat", "motif de passage",
            "passage", "user_pass_rate", "userPassage", "author code", "authority code",
        ];
        for name in names {
            let value = serde_json::json!({ "type": "string" });
            assert!(!asks(&field(name, &value)), "name {name}");
            for member in ["title", "description"] {
                let value = serde_json::json!({ "type": "string", member: name });
                assert!(!asks(&field("value", &value)), "{member} {name}");
            }
        }
        for said in [
            "Which of these do you want to pass on to the author?",
            "Enter the number of passengers.",
            "Please give us the name of your secretary.",
            "What colour? Tan, red or blue.",
            "Your session starts at ten.",
            "Ingrese su palabra clave para buscar.",
            "Escriba las palabras clave del artículo.",
            "Tell us the key of the issue.",
            "Entrez le motif de votre passage.",
        ] {
            let value = serde_json::json!({ "type": "string", "description": said });
            assert!(!asks(&field("value", &value)), "{said}");
        }
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
        for word in
            ["ab1 ", "1 ", "a ", "é ", "пар0ль1 ", "enter ", "p a s s w o ", "@ ", "$1 ", "मत "]
        {
            let text = word.repeat(60 * 1024 / word.len());
            let said = serde_json::json!({ "type": "string", "description": text });
            assert!(!asks(&field("value", &said)), "{word}");
        }
    }

    #[test]
    fn judging_ends_with_the_budget() {
        let form = field("value", &serde_json::json!({ "title": "ab1 ".repeat(10_000) }));
        let document = Document::parse(form.to_string().into(), &JsonBounds::ANSWER).unwrap();
        let budget = WorkBudget::new(2_000_000);
        asked_of(document.root(), &budget);
        assert!(budget.is_exhausted());
        assert!(budget.spent() < 10_000_000, "{} units", budget.spent());
    }
}
