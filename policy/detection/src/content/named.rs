//! Replaces values that are secrets because of the name of their member, for audit records: a passphrase
//! of four words is not recognisable by itself.

use std::ops::Range;

use json::{
    Document, JsonBounds, JsonKind, Value, write_items, write_members, write_name, write_string,
};
use policy_core::base::work::WorkBudget;
use unicode_normalization::UnicodeNormalization as _;

use super::members;
use crate::labels::encoded::{self, DecodedInspector};
use crate::labels::form::{self, TextForm};

/// Names of secrets, matched anywhere in the name of a member: without case, separators and
/// diacritics.
const NAMES: [&str; 34] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "credential",
    "apikey",
    "accesskey",
    "privatekey",
    "sshkey",
    "signingkey",
    "encryptionkey",
    "dbpass",
    "userpass",
    "mypass",
    "smtppass",
    "sshpass",
    "token",
    "authorization",
    "onetimecode",
    "pincode",
    "passwort",
    "kennwort",
    "contrasena",
    "contrasinal",
    "motdepasse",
    "palavrapasse",
    "wachtwoord",
    "losenord",
    "adgangskode",
    "salasana",
    "heslo",
    "jelszo",
];
/// The same in other scripts, or with letters that have no ASCII base.
const OTHERS: [&str; 12] = [
    "пароль",
    "ключ",
    "密码",
    "密碼",
    "口令",
    "密钥",
    "パスワード",
    "暗証番号",
    "비밀번호",
    "hasło",
    "şifre",
    "mật khẩu",
];
/// Names of secrets that must be a whole word of the name, because longer words contain the same letters.
const WORDS: [&str; 18] = [
    "pass", "pin", "pins", "otp", "totp", "mfa", "pw", "key", "keys", "auth", "bearer", "cookie",
    "cookies", "jwt", "sas", "sig", "cvv", "senha",
];
/// Longest part of a member's name that is tested, in characters.
const LONGEST: usize = 256;
/// Greatest nesting of JSON or base64 within strings: deeper content is replaced.
const NESTED: usize = 4;

/// Whether a member of this name holds a secret.
fn says_so(name: &str) -> bool {
    let name: String = name.chars().take(LONGEST).collect();
    let bare: String = name
        .nfkd()
        .filter(char::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    if NAMES.iter().any(|known| bare.contains(known)) || has_word(&name) {
        return true;
    }
    if name.is_ascii() {
        return false;
    }
    let lower: String = name.nfkc().flat_map(char::to_lowercase).collect();
    OTHERS.iter().any(|known| lower.contains(known))
}

/// Whether one of the words of a name is in [`WORDS`]: words are separated by signs or begin with a capital.
fn has_word(name: &str) -> bool {
    let letters: Vec<char> = name.chars().collect();
    let is_capital = |at: usize| letters.get(at).is_some_and(|c| c.is_uppercase());
    let is_small = |at: usize| letters.get(at).is_some_and(|c| c.is_lowercase());
    let mut word = String::new();
    let is_known =
        |word: &str| WORDS.contains(&word.trim_end_matches(|c: char| c.is_ascii_digit()));
    for (at, letter) in letters.iter().enumerate() {
        let begins = is_capital(at)
            && at.checked_sub(1).is_some_and(|before| !is_capital(before) || is_small(at + 1));
        if begins || !letter.is_alphanumeric() {
            if is_known(&word) {
                return true;
            }
            word.clear();
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
    }
    is_known(&word)
}

/// Whether a value is a text that is nothing but the name of a secret.
fn names_one(value: Value<'_>) -> bool {
    value.as_str().is_some_and(|name| name.len() <= members::LONGEST && says_so(&name))
}

/// Whether an object has a member that names its secret value, as in `{"name": "password", "value": …}`.
fn is_named_within(object: Value<'_>) -> bool {
    object
        .members()
        .any(|(name, member)| members::is_one_of(&name, &members::NAMING) && names_one(member))
}

/// `value` with a mark in place of every string and number in such members; `None` if there are none.
/// Text that cannot be read within the budget is replaced.
pub(super) fn without(
    value: Value<'_>,
    budget: &WorkBudget,
    mark: &dyn Fn(&str) -> String,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(value.raw().len());
    let mut names = NamedSecretMasker { budget, mark, nested: NESTED, changes: 0 };
    names.write(&mut out, value);
    (names.changes > 0).then_some(out)
}

/// Rewrites a value without the secrets in named members.
struct NamedSecretMasker<'a> {
    /// The budget for decoding.
    budget: &'a WorkBudget,
    mark: &'a dyn Fn(&str) -> String,
    /// Levels of nesting in strings that are left.
    nested: usize,
    /// Number of replaced values.
    changes: usize,
}

impl NamedSecretMasker<'_> {
    fn replace(&mut self, text: &str) -> String {
        self.changes += 1;
        (self.mark)(text)
    }

    /// Writes a value that does not belong to a member that holds a secret.
    ///
    /// INVARIANT: the parser bounds the depth, and [`NESTED`] that of texts in texts, so the recursion is
    /// bounded too.
    fn write(&mut self, out: &mut Vec<u8>, value: Value<'_>) {
        match value.kind() {
            JsonKind::Plain | JsonKind::Escaped => {
                match self.text(&value.as_str().unwrap_or_default()) {
                    Some(shown) => write_string(out, &shown),
                    None => out.extend_from_slice(value.raw().as_bytes()),
                }
            }
            JsonKind::Number | JsonKind::Boolean | JsonKind::Null => {
                out.extend_from_slice(value.raw().as_bytes());
            }
            JsonKind::Array => {
                // An array of two items may be a name and its value.
                let is_pair =
                    value.items().count() == 2 && value.items().next().is_some_and(names_one);
                write_items(out, value.items().enumerate(), |out, (n, item)| {
                    if is_pair && n == 1 {
                        self.write_secret(out, item);
                    } else {
                        self.write(out, item);
                    }
                });
            }
            JsonKind::Object => {
                let is_named = is_named_within(value);
                write_members(out, value.members(), |out, (name, member)| {
                    write_name(out, &name);
                    let is_value = is_named && members::is_one_of(&name, &members::VALUES);
                    if is_value || says_so(&name) {
                        self.write_secret(out, member);
                    } else {
                        self.write(out, member);
                    }
                });
            }
        }
    }

    /// Writes a value that belongs to a member that holds a secret, with a mark for every string and number in it.
    ///
    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn write_secret(&mut self, out: &mut Vec<u8>, value: Value<'_>) {
        match value.kind() {
            JsonKind::Plain | JsonKind::Escaped => {
                let shown = self.replace(&value.as_str().unwrap_or_default());
                write_string(out, &shown);
            }
            JsonKind::Number => {
                let shown = self.replace(value.raw());
                write_string(out, &shown);
            }
            JsonKind::Boolean | JsonKind::Null => out.extend_from_slice(value.raw().as_bytes()),
            JsonKind::Array => {
                write_items(out, value.items(), |out, item| self.write_secret(out, item));
            }
            JsonKind::Object => write_members(out, value.members(), |out, (name, member)| {
                write_name(out, &name);
                self.write_secret(out, member);
            }),
        }
    }

    /// A text that is or carries JSON, without the secrets in named members; `None` if unchanged. A text that may
    /// hold one and cannot be parsed becomes a mark.
    fn text(&mut self, text: &str) -> Option<String> {
        let values = match form::of(text) {
            TextForm::Plain if form::gives(text, says_so) => return Some(self.replace(text)),
            TextForm::Plain => return encoded::without(text, self.budget, self),
            TextForm::Json(values) if self.nested > 0 => values,
            TextForm::Json(_) | TextForm::Odd => return Some(self.replace(text)),
        };
        let before = self.changes;
        self.nested -= 1;
        let shown = self.values_of(text, &values);
        self.nested += 1;
        match shown {
            Some(_) if self.changes == before => None,
            Some(shown) => Some(shown),
            None => Some(self.replace(text)),
        }
    }

    /// A text with each of these JSON values rewritten; `None` if one cannot be parsed.
    fn values_of(&mut self, text: &str, values: &[Range<usize>]) -> Option<String> {
        let (mut out, mut done) = (Vec::with_capacity(text.len()), 0);
        for place in values {
            let value = text.get(place.clone())?.to_owned();
            let document = Document::parse(value.into(), &JsonBounds::ANSWER).ok()?;
            out.extend_from_slice(text.get(done..place.start)?.as_bytes());
            self.write(&mut out, document.root());
            done = place.end;
        }
        out.extend_from_slice(text.get(done..)?.as_bytes());
        String::from_utf8(out).ok()
    }
}

impl DecodedInspector for NamedSecretMasker<'_> {
    fn read(&mut self, decoded: &str) -> Option<String> {
        if self.nested == 0 {
            return Some(self.replace(decoded));
        }
        self.nested -= 1;
        let shown = self.text(decoded);
        self.nested += 1;
        shown
    }

    fn holds(&self, decoded: &str) -> bool {
        form::gives_in_bytes(decoded, says_so)
    }

    fn withhold(&mut self, encoded: &str) -> String {
        self.replace(encoded)
    }
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds, Value};
    use policy_core::base::work::WorkBudget;

    use super::{says_so, without};

    fn shown(value: Value<'_>) -> Option<Vec<u8>> {
        without(value, &WorkBudget::unlimited(), &|_| "#".to_owned())
    }

    #[test]
    fn what_is_called_a_secret_is_one_whatever_it_says() {
        let text =
            r#"{"a":{"pass\u0077ord":"four words of mine","DB-Token":["x",7,true]},"note":"y"}"#;
        let document = Document::parse(text.into(), &JsonBounds::MESSAGE).unwrap();
        let out = shown(document.root()).unwrap();
        let expected = r##"{"a":{"password":"#","DB-Token":["#","#",true]},"note":"y"}"##;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let none = Document::parse(r#"{"compass":"y"}"#.into(), &JsonBounds::MESSAGE).unwrap();
        assert_eq!(shown(none.root()), None);
        assert!(says_so("clientSecret") && !says_so("secre"));
        // Also in a string that is JSON, or that cannot be parsed as JSON.
        for text in [
            r#"{"password":"four words of mine"}"#,
            r#"{"password":"four words of mine","n":NaN}"#,
            r#"so {"password":"four words of mine"}"#,
            r#"{"a":"{\"password\":\"four words of mine\"}"}"#,
            "eyJwYXNzd29yZCI6ImZvdXIgd29yZHMgb2YgbWluZSJ9",
            "so: eyJwYXNzd29yZCI6ImZvdXIgd29yZHMgb2YgbWluZSJ9",
        ] {
            let quoted = serde_json::Value::from(text).to_string();
            let document = Document::parse(quoted.into(), &JsonBounds::MESSAGE).unwrap();
            let out = shown(document.root()).unwrap();
            let out = String::from_utf8(out).unwrap();
            assert!(!out.contains("four") && !out.contains("dXIgd29y"), "{text}");
        }
    }

    #[test]
    fn a_name_says_so_in_words_and_languages() {
        for name in [
            "sshKey",
            "pass",
            "db_pass",
            "PASS",
            "pin",
            "userPIN",
            "pinCode",
            "otp",
            "otp2",
            "x-key",
            "API-Keys",
            "contrase\u{f1}a",
            "contrasen\u{303}a",
            "Mot de passe",
            "Passwort",
            "пароль",
            "密码",
            "비밀번호",
            "ПАРОЛЬ",
            "auth",
            "Set-Cookie",
            "HTTPKey",
        ] {
            assert!(says_so(name), "{name}");
        }
        for name in [
            "compass",
            "passenger",
            "pinned",
            "opinion",
            "monkey",
            "keyboard",
            "author",
            "bypass",
            "name",
            "é",
        ] {
            assert!(!says_so(name), "{name}");
        }
    }

    #[test]
    fn a_value_is_named_by_what_stands_beside_it() {
        for text in [
            r#"{"name":"password","value":"four words"}"#,
            r#"[{"Key":"DB_PASS","Value":{"a":["four"]}}]"#,
            r#"{"headers":[["x-api-key","four words"]]}"#,
            r#"{"value":4444,"field":"pin"}"#,
        ] {
            let document = Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
            let out = String::from_utf8(shown(document.root()).unwrap()).unwrap();
            assert!(!out.contains("four") && !out.contains("4444"), "{text}: {out}");
        }
        for text in [
            r#"{"name":"color","value":"four words"}"#,
            r#"{"name":"password","description":"four words"}"#,
            r#"[["color","four words"]]"#,
        ] {
            let document = Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
            assert_eq!(shown(document.root()), None, "{text}");
        }
    }
}
