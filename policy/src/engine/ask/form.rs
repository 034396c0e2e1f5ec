//! Detects forms that ask the user for a secret.
//!
//! SPEC 2025-11-25 client/elicitation: servers must not ask for sensitive information in a form. A field is judged by
//! its name, title and description. Fields that merely relate to a secret (the address for a password reset, a limit
//! of tokens) do not count.

use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;
use unicode_security::confusable_detection::skeleton;

use crate::base::hidden::Hidden;
use crate::base::work::WorkBudget;
use crate::json::{JsonKind, Value};

/// Names of secrets: one word, or several words in sequence, with or without separators.
#[rustfmt::skip]
const SECRETS: &[&str] = &[
    // Passwords.
    "password", "passwords", "passwd", "passwrd", "pswd", "passphrase", "passcode", "pwd", "psw", "secret",
    "passwort", "kennwort", "contraseña", "clave", "contrasenya", "senha", "mot de passe", "mots de passe", "mdp", "wachtwoord", "hasło", "lösenord", "passord",
    "adgangskode", "kodeord", "lykilorð", "salasana", "parool", "heslo", "geslo", "lozinka", "jelszó", "slaptažodis", "şifre",
    "mật khẩu", "kata sandi", "пароль", "парола", "лозинка", "κωδικός πρόσβασης", "סיסמה", "كلمة المرور", "كلمة السر", "رمز عبور",
    // Numbers and codes that identify a person.
    "pin", "pincode", "code pin", "geheimzahl", "otp", "otp code", "totp", "2fa", "2fa code", "mfa code", "mfa token", "sms code",
    "one time code", "one time password", "auth code", "verification code", "authentication code", "authenticator code", "recovery code",
    "recovery codes", "backup code", "backup codes", "security code", "access code", "login code", "unlock code", "reset code",
    // Keys, tokens and sessions.
    "token", "bearer", "jwt", "credential", "credentials", "session cookie", "session id", "session key", "cookie value",
    "cookie header", "api key", "api keys", "access key", "secret key", "secret keys", "private key", "signing key", "encryption key", "ssh key", "account key",
    "shared key", "master key", "wallet key", "recovery key", "seed phrase", "seed words", "recovery phrase", "wallet phrase",
    "mnemonic",
    // Numbers of cards, accounts and persons.
    "card number", "card no", "card num", "cc number", "cc num", "credit card", "debit card", "cvv", "cvv2", "cvv code", "cvc",
    "cvc2", "cvc code", "bank account", "iban", "routing number", "ssn", "social security", "passport number",
];

/// Names of secrets that also count inside a longer word, since no other word contains them.
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "password", "passwd", "passphrase", "passcode", "passwort", "kennwort", "contraseña", "motdepasse", "wachtwoord", "lösenord",
    "salasana", "geheimzahl", "apikey", "privatekey", "secretkey", "userpass", "seedphrase", "creditcard", "debitcard", "cardnumber", "verificationcode",
];

/// Words that mean a secret only if the name has no other words than these and [`OWNERS`]; in a sentence, or beside
/// other words, they mean something else.
const ALONE: [&str; 10] =
    ["pass", "pw", "tan", "auth", "mfa", "cookie", "cookies", "parola", "sandi", "κωδικός"];

/// Words that name the owner of a secret, or ask to enter it.
#[rustfmt::skip]
const OWNERS: &[&str] = &[
    "user", "usr", "my", "your", "the", "a", "enter", "please", "new", "old", "current", "repeat", "confirm", "db", "database",
    "admin", "root", "login", "account", "email", "mail", "smtp", "imap", "ftp", "ssh", "wifi", "vpn", "bank", "sms", "mobile",
    "code", "number", "value", "string", "header", "basic", "session", "browser", "token", "key",
];

/// Names of secrets in scripts that do not separate words with blanks.
const WITHIN: [&str; 9] =
    ["密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "रहस्य शब्द", "पासवर्ड", "รหัสผ่าน"];

/// Secrets that mean something else beside one of [`POSTAL`].
const PINS: [&str; 3] = ["pin", "pincode", "code pin"];
/// Secrets that mean something else after one of [`NOUNS`].
const KEYS: [&str; 1] = ["clave"];
/// Nouns after which one of [`KEYS`] is an adjective: `palabra clave` is a keyword.
#[rustfmt::skip]
const NOUNS: [&str; 22] = [
    "palabra", "palabras", "punto", "puntos", "idea", "ideas", "dato", "datos", "fecha", "fechas", "concepto", "conceptos", "persona",
    "personas", "indicador", "indicadores", "factor", "factores", "elemento", "elementos", "momento", "tema",
];
/// Fewest bytes of a name that is joined from words of several letters: `p i n` is a name, `P in` is not. Bytes and not
/// letters, because only short names in Latin letters are words by chance as well; three letters of another alphabet
/// are enough.
const JOINED: usize = 6;
/// Most letters of a text that counts as a name although it has more than [`NAME`] words.
const NAME_LETTERS: usize = 16;
/// Most words of a text that counts as a name irrespective of its letters.
const NAME: usize = 3;

/// Words after the name of a secret that give it another meaning.
#[rustfmt::skip]
const NOT_BEFORE: &[&str] = &[
    "reset", "policy", "policies", "length", "manager", "strength", "expiry", "expiration", "rotation", "count", "limit",
    "limits", "budget", "usage", "name", "id", "type", "format", "url", "link", "email", "date", "age", "holder", "brand",
    "service", "symbol", "standard", "santa", "path", "address", "required", "protected", "enabled", "provider", "field",
    "less", "primaria", "foránea", "foranea",
];

/// Words beside which `PIN` is a postal code.
const POSTAL: [&str; 4] = ["postal", "zip", "area", "postcode"];

/// Words that ask the reader to provide what follows.
#[rustfmt::skip]
const ASKING: &[&str] = &[
    "enter", "type", "provide", "give", "send", "paste", "input", "insert", "share", "tell", "supply", "submit", "fill",
    "your", "need", "needs", "what", "ihr", "dein", "eingeben", "votre", "su", "sua", "tu", "escriba", "escribe", "saisissez", "entrez", "introduzca",
    "ingrese", "ingresa", "inserisci", "digite", "введите", "podaj", "voer", "ange", "anna", "zadejte", "girin", "nhập",
];

/// Most words between one of [`ASKING`] and the name of a secret.
const BETWEEN: usize = 4;

/// Units per byte of a form for reading its members.
const READING: usize = 16;
/// Units per byte of a text for splitting it into words.
const EACH_BYTE: usize = 32;
/// Units per word for comparing it with all known words.
pub(super) const EACH_WORD: usize = 96;

/// Units per word for comparing the names that begin with it.
const EACH_NAME: usize = 32;

/// A word that is searched for.
pub(super) struct KnownWord {
    text: &'static str,
    letters: usize,
    /// Skeleton of the word (UTS 39).
    looks: String,
}

impl KnownWord {
    pub(super) fn new(text: &'static str) -> Self {
        let (letters, looks) = (text.chars().count(), looks(text));
        Self { text, letters, looks }
    }
}

/// The names of secrets in one normal form.
struct SecretNames {
    /// The normal forms of [`SECRETS`], sorted.
    secrets: Vec<String>,
    /// The normal forms of [`PARTS`].
    parts: Vec<String>,
    /// The normal forms of [`ALONE`].
    alone: Vec<String>,
    /// The normal forms of [`WITHIN`].
    within: Vec<String>,
    /// The normal forms of [`PINS`].
    pins: Vec<String>,
    /// The normal forms of [`KEYS`].
    keys: Vec<String>,
}

impl SecretNames {
    fn in_form(form: fn(&str) -> String) -> Self {
        let of = |names: &[&str]| -> Vec<String> {
            let budget = WorkBudget::unlimited();
            let name =
                |name: &&str| words(name, &budget).iter().map(|word| form(&word.text)).collect();
            names.iter().map(name).collect()
        };
        let mut secrets = of(SECRETS);
        secrets.sort_unstable();
        // A duplicate would hide a longer name with the same beginning from `begins`.
        secrets.dedup();
        let (parts, alone) = (of(PARTS), of(&ALONE));
        Self { secrets, parts, alone, within: of(&WITHIN), pins: of(&PINS), keys: of(&KEYS) }
    }
}

/// The names of secrets as written.
static WRITTEN: LazyLock<SecretNames> = LazyLock::new(|| SecretNames::in_form(plain));
/// The names of secrets by their visual appearance.
static LOOKS: LazyLock<SecretNames> =
    LazyLock::new(|| SecretNames::in_form(|text| plain(&looks(text))));

/// Normalizes a word: removes combining marks, and replaces digits and letters by the letters they are written for.
fn plain(text: &str) -> String {
    let letter = |c: char| match c {
        '0' | 'ø' => 'o',
        '1' | 'l' | 'ı' | 'ł' => 'i',
        '3' => 'e',
        '4' => 'a',
        '5' => 's',
        'đ' | 'ð' => 'd',
        other => other,
    };
    if text.is_ascii() {
        return text.chars().map(letter).collect();
    }
    text.nfkd().filter(|c| !is_combining_mark(*c)).map(letter).collect()
}

/// Whether an answer to the form would contain a secret. If `budget` is exhausted afterwards, the form was not
/// inspected completely.
pub(super) fn asks_for_secret(params: Value<'_>, budget: &WorkBudget) -> bool {
    if !budget.spend(params.raw().len().saturating_mul(READING)) {
        return true;
    }
    let Some(schema) = params.get("requestedSchema") else { return false };
    let mut fields = FieldScan { secret: false, free: false, budget };
    fields.read(schema);
    // The surrounding texts count only if some field accepts free text.
    let around = [params.get("message"), schema.get("title"), schema.get("description")];
    let mut around = around.into_iter().flatten().filter_map(Value::as_str);
    fields.secret || fields.free && around.any(|text| TextReadings::of(&text, budget).solicits())
}

struct FieldScan<'a> {
    /// Whether a field asks for a secret.
    secret: bool,
    /// Whether a field accepts free text.
    free: bool,
    budget: &'a WorkBudget,
}

impl FieldScan<'_> {
    /// Reads the fields of a schema, at any depth.
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
        // A client may also ask for a required member that is not described.
        let required = schema.get("required").into_iter().flat_map(Value::items);
        for name in required.filter_map(Value::as_str) {
            if properties.is_none_or(|properties| properties.get(&name).is_none()) {
                self.free = true;
                self.secret |= TextReadings::of(&name, self.budget).names(PinMeaning::Secret);
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

fn is_secret(name: &str, field: Value<'_>, budget: &WorkBudget) -> bool {
    let text = |member: &str| field.get(member).and_then(Value::as_str);
    let hidden = text("format").is_some_and(|format| format.eq_ignore_ascii_case("password"));
    let write_only = field
        .get("writeOnly")
        .is_some_and(|only| only.kind() == JsonKind::Boolean && only.raw() == "true");
    let text_of = |member: &str| text(member).map(|text| TextReadings::of(&text, budget));
    let (name, title) = (TextReadings::of(name, budget), text_of("title"));
    let said = text_of("description");
    let all = [Some(&name), title.as_ref(), said.as_ref()];
    let pin = if all.into_iter().flatten().any(TextReadings::is_postal) {
        PinMeaning::PostalCode
    } else {
        PinMeaning::Secret
    };
    hidden
        || write_only
        || name.names(pin)
        || title.as_ref().is_some_and(|title| title.names(pin))
        || said.as_ref().is_some_and(|said| said.solicits() || said.is_name() && said.names(pin))
}

/// What a PIN is in a form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PinMeaning {
    /// A personal identification number.
    Secret,
    /// A postal index number, as in India.
    PostalCode,
}

/// A text split into words, in all forms that are compared.
struct TextReadings {
    /// The text as written, and with letters in place of `@` and `$` if it has any.
    readings: Vec<Wording>,
}

/// One reading of a text.
struct Wording {
    words: Vec<Word>,
    /// Words as written, normalized by [`plain`].
    written: Vec<String>,
    /// Words by their visual appearance, if any of them is not ASCII.
    looks: Option<Vec<String>>,
}

impl TextReadings {
    /// Splits a text into words; if `budget` is exhausted, covers only the words before that.
    fn of(text: &str, budget: &WorkBudget) -> Self {
        let mut readings = vec![Wording::of(text, budget)];
        if text.contains(['@', '$']) {
            readings.push(Wording::of(&text.replace('@', "a").replace('$', "s"), budget));
        }
        Self { readings }
    }

    /// Whether the text is short enough to be a name.
    fn is_name(&self) -> bool {
        self.readings.iter().any(|reading| {
            let letters: usize = reading.words.iter().map(|word| word.letters).sum();
            reading.words.len() <= NAME || letters <= NAME_LETTERS
        })
    }

    fn is_postal(&self) -> bool {
        let mut words = self.readings.iter().flat_map(|reading| &reading.words);
        words.any(|word| POSTAL.contains(&&*word.text))
    }

    /// Whether the text names a secret.
    fn names(&self, pin: PinMeaning) -> bool {
        self.readings.iter().any(|reading| {
            !reading.secrets(pin).is_empty()
                || reading.forms().any(|(words, names)| reading.is_alone(words, names))
        })
    }

    /// Whether a sentence of the text asks the reader for a secret.
    fn solicits(&self) -> bool {
        self.readings.iter().any(|reading| {
            reading.secrets(PinMeaning::Secret).into_iter().any(|at| {
                let before = reading.words.get(at.saturating_sub(BETWEEN)..at).unwrap_or_default();
                before.iter().any(|word| ASKING.contains(&&*word.text))
            })
        })
    }
}

impl Wording {
    fn of(text: &str, budget: &WorkBudget) -> Self {
        let words = words(text, budget);
        let bytes: usize = words.iter().map(|word| word.text.len()).sum();
        let odd = words.iter().any(|word| !word.text.is_ascii());
        let forms = bytes.saturating_mul(if odd { EACH_BYTE } else { 1 });
        if !budget.spend(words.len().saturating_mul(EACH_NAME).saturating_add(forms)) {
            return Self { words, written: Vec::new(), looks: None };
        }
        let written = words.iter().map(|word| plain(&word.text)).collect();
        let looks = odd.then(|| words.iter().map(|word| plain(&looks(&word.text))).collect());
        Self { words, written, looks }
    }

    /// The words in each form, with the names of secrets in the same form.
    fn forms(&self) -> impl Iterator<Item = (&[String], &'static SecretNames)> {
        let looks = self.looks.as_deref().map(|looks| (looks, &*LOOKS));
        std::iter::once((&*self.written, &*WRITTEN)).chain(looks)
    }

    /// Positions of the words that name secrets.
    fn secrets(&self, pin: PinMeaning) -> Vec<usize> {
        let mut found = Vec::new();
        for (words, names) in self.forms() {
            found.extend((0..words.len()).filter(|at| {
                self.begins(words, *at, names, pin) || self.has_part(words, *at, names)
            }));
            let within = |whole: &String| names.within.iter().any(|one| whole.contains(one));
            if words.iter().any(|word| !word.is_ascii()) && within(&words.concat()) {
                found.push(words.len());
            }
        }
        found
    }

    /// Whether the name of a secret begins with the word at `at`.
    fn begins(&self, words: &[String], at: usize, names: &SecretNames, pin: PinMeaning) -> bool {
        let mut name = String::new();
        for (n, word) in words.iter().enumerate().skip(at) {
            name.push_str(word);
            let from = names.secrets.partition_point(|known| *known < name);
            let known = names.secrets.get(from..).unwrap_or_default();
            let pieces = words.get(at..=n).unwrap_or_default();
            let joins = pieces.len() == 1
                || name.len() >= JOINED
                || name.contains(|c: char| c.is_ascii_digit())
                || pieces.iter().all(|piece| piece.chars().count() == 1);
            let other = self.is_other(n + 1)
                || pin == PinMeaning::PostalCode && names.pins.contains(&name)
                || names.keys.contains(&name) && self.is_behind_noun(at);
            if known.first() == Some(&name) && joins && !other {
                return true;
            }
            if !known
                .iter()
                .take(2)
                .any(|known| known.len() > name.len() && known.starts_with(&name))
            {
                return false;
            }
        }
        false
    }

    /// Whether the word at `at` contains the name of a secret.
    fn has_part(&self, words: &[String], at: usize, names: &SecretNames) -> bool {
        let Some(word) = words.get(at).filter(|word| word.len() > JOINED) else { return false };
        let rest =
            |part: &String| word.find(&**part).and_then(|from| word.get(from + part.len()..));
        let is_other = |rest: &str| {
            rest.is_empty() && self.is_other(at + 1)
                || NOT_BEFORE.iter().any(|other| rest.starts_with(&plain(other)))
        };
        names.parts.iter().filter_map(rest).any(|rest| !is_other(rest))
    }

    /// Whether the word at `at` gives a preceding secret another meaning.
    fn is_other(&self, at: usize) -> bool {
        self.words.get(at).is_some_and(|word| NOT_BEFORE.contains(&&*word.text))
    }

    /// Whether the word at `at` follows one of [`NOUNS`].
    fn is_behind_noun(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.words.get(before));
        before.is_some_and(|word| NOUNS.contains(&&*word.text))
    }

    /// Whether all words are in [`ALONE`] or [`OWNERS`], and at least one is in [`ALONE`].
    fn is_alone(&self, words: &[String], names: &SecretNames) -> bool {
        let spelt = words.iter().all(|word| word.chars().count() == 1);
        if spelt && words.len() > 1 {
            return names.alone.contains(&words.concat());
        }
        let is = |at: usize| words.get(at).is_some_and(|word| names.alone.contains(word));
        let owner =
            |at: usize| self.words.get(at).is_some_and(|word| OWNERS.contains(&&*word.text));
        (0..words.len()).any(is) && (0..words.len()).all(|at| is(at) || owner(at))
    }
}

/// A word of an inspected text.
pub(super) struct Word {
    text: String,
    letters: usize,
    /// Skeleton of the word, if it has characters other than lower-case ASCII letters.
    looks: Option<String>,
}

impl Word {
    /// Returns `None` if the budget is exhausted.
    fn new(text: String, budget: &WorkBudget) -> Option<Self> {
        let odd = !text.bytes().all(|byte| byte.is_ascii_lowercase());
        let skeleton = if odd { EACH_WORD + text.len().saturating_mul(EACH_BYTE) } else { 0 };
        if !budget.spend(EACH_WORD + skeleton) {
            return None;
        }
        let looks = odd.then(|| looks(&text));
        Some(Self { letters: text.chars().count(), text, looks })
    }

    /// Whether the word equals `known` exactly.
    pub(super) fn is(&self, known: &str) -> bool {
        self.text == known
    }

    /// Whether the word equals `known`, treating confusable letters as equal.
    pub(super) fn reads_like(&self, known: &KnownWord) -> bool {
        let looks_so = || {
            self.letters == known.letters
                && self.looks.as_ref().is_some_and(|looks| *looks == known.looks)
        };
        self.text == known.text || looks_so()
    }
}

/// Normalizes a member name for comparison; names that a reader could confuse have the same form.
pub(super) fn spelling(name: &str, budget: &WorkBudget) -> String {
    words(name, budget).iter().map(|word| looks(&word.text)).collect()
}

/// The skeleton of a word, equal for words that look alike (UTS 39).
fn looks(text: &str) -> String {
    skeleton(text).collect::<String>().to_lowercase()
}

/// The words of a text or name, in lower case: `apiKey`, `api_key` and `API key` have the same two. If `budget` is
/// exhausted, returns the words before that.
pub(super) fn words(text: &str, budget: &WorkBudget) -> Vec<Word> {
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
    use super::super::tests::{judged, one_field as field};
    use super::asks_for_secret;
    use crate::base::work::WorkBudget;
    use crate::json::{Document, JsonBounds};

    fn asks(form: &serde_json::Value) -> bool {
        judged(form, asks_for_secret)
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
        asks_for_secret(document.root(), &budget);
        assert!(budget.is_exhausted());
        assert!(budget.spent() < 10_000_000, "{} units", budget.spent());
    }
}
