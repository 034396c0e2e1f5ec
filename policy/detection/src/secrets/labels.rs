//! Finds passwords, codes and keys by the words that stand before them, in thirteen languages: in prose, in forms and tables, in
//! JSON, YAML, TOML, INI, XML, HTTP headers, environment variables and flags.
//!
//! A value is accepted only if it looks like one: a password has digits or signs, a code digits, a key looks generated.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use policy_core::base::compiled::Compiled;

use super::randomness::looks_generated;
use super::{names, placeholder};
use crate::secrets::found::{FoundValue, ValueClass};

/// Shorter labels must be words of their own, because they are parts of other words.
const LONG: usize = 6;
/// How many bytes behind a label are searched for its value.
const AROUND: usize = 160;
/// Longest value, in bytes.
const LONGEST: usize = 128;
/// Shortest password, and shortest one that the text calls so in a sentence, in bytes.
const PASSWORD: usize = 6;
/// Shortest generated key, in bytes.
const KEY: usize = 16;
/// Fewest and most digits of a code.
const CODE: Range<usize> = 4..9;
/// Shortest value of any label, in bytes.
pub(super) const SHORTEST: usize = CODE.start;
/// Most words between a label and the verb of its sentence.
const WORDS: usize = 5;
/// How many bytes of a name before a label are looked at.
const NAME: usize = 32;
/// Longest line of a table, in bytes.
const LINE: usize = 512;
/// The end of the name of a member that has cookies.
const COOKIE: &str = "cookie";
/// Most rows of a table that are searched below its header.
const ROWS: usize = 8;

/// What a label announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LabelKind {
    Password,
    /// The same, by a word that also announces numbers of articles and the like, so that a number is none.
    PasswordOrNumber,
    /// A number by which a person authenticates.
    Code,
    /// The same, by a word that is also used for the six digits of an Indian postcode.
    CodeOrPostcode,
    /// A key or a token.
    Key,
    /// Cookies of a session.
    Cookie,
    /// The signature of a URL that grants access.
    Signature,
}

/// A word that announces a secret.
struct Label {
    text: &'static str,
    kind: LabelKind,
}

const fn password(text: &'static str) -> Label {
    Label { text, kind: LabelKind::Password }
}

const fn named(text: &'static str) -> Label {
    Label { text, kind: LabelKind::PasswordOrNumber }
}

const fn code(text: &'static str) -> Label {
    Label { text, kind: LabelKind::Code }
}

const fn postcode(text: &'static str) -> Label {
    Label { text, kind: LabelKind::CodeOrPostcode }
}

const fn key(text: &'static str) -> Label {
    Label { text, kind: LabelKind::Key }
}

/// The labels: ASCII letters are compared without case, others are listed in each case.
#[rustfmt::skip]
const LABELS: &[Label] = &[
    // English
    password("password"), password("passwd"), password("passphrase"), password("passcode"), password("pass"), password("pwd"),
    password("pw"), password("psw"), code("pin"), postcode("pin code"), postcode("pin-code"), postcode("pincode"), code("otp"),
    code("one-time code"), code("one time code"), code("verification code"), code("security code"), code("2fa code"),
    code("access code"), key("api key"), key("api-key"), key("api_key"), key("apikey"), key("api token"), key("api-token"),
    key("api_token"), key("access key"), key("access-key"), key("access_key"), key("accesskey"), key("access token"),
    key("access-token"), key("access_token"), key("accesstoken"), key("auth token"), key("auth_token"), key("authtoken"),
    key("refresh token"), key("refresh_token"), key("bearer token"), key("secret key"), key("secret-key"), key("secret_key"),
    key("secretkey"), key("client secret"), key("client-secret"), key("client_secret"), key("clientsecret"), key("signing key"),
    key("signing secret"), key("encryption key"), key("encryption_key"), key("encryptionkey"), key("private key"), key("private_key"), key("secret"), key("token"), key("license key"),
    // German
    password("passwort"), password("kennwort"), password("passwörter"), password("PASSWÖRTER"), code("pin-nummer"), code("einmalcode"),
    code("bestätigungscode"), code("sicherheitscode"), code("geheimzahl"), key("api-schlüssel"), key("schlüssel"), key("zugangsschlüssel"),
    key("zugriffsschlüssel"), key("geheimnis"),
    // French
    password("mot de passe"), password("mot_de_passe"), password("motdepasse"), password("mdp"), code("code pin"), code("code secret"),
    code("code de vérification"), key("clé api"), key("clé d'api"), key("clé d\u{2019}api"), key("clé secrète"), key("clé d'accès"), key("jeton"),
    // Spanish
    password("contraseña"), password("CONTRASEÑA"), password("contrasena"), named("clave"), code("código pin"), code("código de verificación"),
    key("clave de api"), key("clave api"), key("clave secreta"), key("clave de acceso"),
    // Portuguese
    password("senha"), password("palavra-passe"), password("palavra passe"), password("palavrapasse"), code("código de verificação"), key("chave de api"),
    key("chave api"), key("chave secreta"), key("chave de acesso"),
    // Italian
    password("parola d'ordine"), password("parola chiave"), code("codice pin"), code("codice di verifica"), key("chiave api"), key("chiave segreta"),
    key("chiave di accesso"),
    // Dutch
    password("wachtwoord"), code("verificatiecode"), code("beveiligingscode"), key("api-sleutel"), key("sleutel"), key("toegangssleutel"),
    // Polish
    password("hasło"), password("HASŁO"), password("haslo"), code("kod pin"), code("kod weryfikacyjny"), key("klucz api"), key("klucz"),
    // Russian
    password("пароль"), password("Пароль"), password("ПАРОЛЬ"), code("пин-код"), code("ПИН-код"), code("Пин-код"), code("код подтверждения"), code("Код подтверждения"),
    key("ключ api"), key("Ключ api"), key("api-ключ"), key("токен"), key("Токен"), key("секретный ключ"), key("Секретный ключ"), key("ключ доступа"), key("Ключ доступа"),
    // Turkish
    password("şifre"), password("Şifre"), password("ŞİFRE"), password("sifre"), password("parola"), code("doğrulama kodu"), code("Doğrulama kodu"), key("api anahtarı"),
    key("gizli anahtar"), key("erişim anahtarı"),
    // Chinese, Japanese, Korean, Arabic
    password("密码"), password("密碼"), password("口令"), code("验证码"), code("驗證碼"), key("密钥"), key("密鑰"), key("令牌"),
    password("パスワード"), code("暗証番号"), code("認証コード"), code("確認コード"), key("apiキー"), key("トークン"), key("秘密鍵"),
    password("비밀번호"), password("암호"), code("인증번호"), key("api 키"), key("토큰"), key("비밀키"),
    password("كلمة المرور"), password("كلمة السر"), code("رمز التحقق"), key("مفتاح api"),
    // Others
    password("lösenord"), password("adgangskode"), password("passord"), password("salasana"), password("heslo"), password("jelszó"), password("mật khẩu"),
    // HTTP and signed URLs
    Label { text: "cookie:", kind: LabelKind::Cookie },
    Label { text: "?sig=", kind: LabelKind::Signature }, Label { text: "&sig=", kind: LabelKind::Signature },
    Label { text: "&amp;sig=", kind: LabelKind::Signature }, Label { text: "x-amz-signature=", kind: LabelKind::Signature },
    Label { text: "x-goog-signature=", kind: LabelKind::Signature },
];

/// Verbs and signs that join a label to its value in a sentence.
const VERBS: [&str; 27] = [
    "is", "was", "are", "be", "to", "lautet", "ist", "war", "es", "est", "era", "é", "è", "jest",
    "to:", "это", "—", "–", "-", "->", "→", "olarak", "şudur:", "is:", "lautet:", "ist:", "est:",
];
/// The same in scripts without blanks between words.
const PARTICLES: [&str; 10] = ["是", "为", "為", "は", "が", "는", "은", "هي", "هو", "："];
/// Words behind a label by which a sentence is about passwords, and not about one: "the password hash function is sha256".
const ABOUT: [&str; 16] = [
    "hash",
    "hashing",
    "policy",
    "rate",
    "length",
    "algorithm",
    "strength",
    "manager",
    "format",
    "encryption",
    "expiry",
    "expiration",
    "rotation",
    "complexity",
    "standard",
    "method",
];
/// Attributes and members that hold the value that another one names.
const VALUES: [&str; 4] = ["value", "content", "val", "text"];
/// What may follow a label in the name of a member or a variable.
const TAILS: [&str; 7] = ["", "value", "plain", "plaintext", "string", "text", "base"];

/// Labels that announce a secret only together with a value that looks like one: alone they are other words as well.
#[rustfmt::skip]
const WITH_VALUE: [&str; 10] = [
    "pass", "pw", "parola", "parola chiave", "schlüssel", "sleutel", "klucz", "license key", "secret", "암호",
];

/// What passwords, codes and keys are called in a sentence or by a field, in the thirteen languages.
pub fn secret_names() -> impl Iterator<Item = &'static str> {
    let names = LABELS.iter().filter(|label| {
        matches!(
            label.kind,
            LabelKind::Password | LabelKind::PasswordOrNumber | LabelKind::Code | LabelKind::Key
        )
    });
    names.map(|label| label.text).filter(|text| !WITH_VALUE.contains(text))
}

static KNOWN: Compiled<AhoCorasick> = Compiled::new(|| {
    let labels = LABELS.iter().map(|label| label.text);
    let builder = &mut AhoCorasick::builder();
    builder.ascii_case_insensitive(true).match_kind(MatchKind::LeftmostLongest);
    Ok(builder.build(labels)?)
});

/// How a label and its value belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// By a sign, as in `password: VALUE`.
    Sign,
    /// By the verb of a sentence.
    Verb,
    /// As the header of a column.
    Column,
}

/// A value that a label announces.
#[derive(Clone, Debug)]
struct LabelledValue {
    at: Range<usize>,
    link: Link,
    quoted: Quoted,
}

/// Whether a value stands in quotation marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quoted {
    Yes,
    No,
}

/// Appends the values that labels announce, except for those that `known` covers.
pub(super) fn find(text: &str, known: &[Range<usize>], out: &mut Vec<FoundValue>) {
    let Some(labels) = KNOWN.get() else { return };
    let mut header = 0;
    for label in labels.find_iter(text) {
        let Some(Label { kind, .. }) = LABELS.get(label.pattern().as_usize()) else { continue };
        if !is_word(text, label.range()) {
            continue;
        }
        let mut add = |one: LabelledValue| add(text, *kind, &one, known, out);
        match kind {
            LabelKind::Cookie => cookies(text, label.end()).into_iter().for_each(&mut add),
            LabelKind::Signature => {
                let at = label.end()
                    ..label.end() + unquoted(text.get(label.end()..).unwrap_or_default());
                add(LabelledValue { at, link: Link::Sign, quoted: Quoted::No });
            }
            LabelKind::Password
            | LabelKind::PasswordOrNumber
            | LabelKind::Code
            | LabelKind::CodeOrPostcode
            | LabelKind::Key => {
                if let Some(one) = behind(text, label.range()) {
                    add(one);
                } else if label.start() >= header
                    && let Some(column) = Column::of(text, label.range())
                {
                    header = column.header.end;
                    column.cells(text).for_each(&mut add);
                }
            }
        }
    }
}

/// Adds a value if it looks like what the label announces.
fn add(
    text: &str,
    kind: LabelKind,
    one: &LabelledValue,
    known: &[Range<usize>],
    out: &mut Vec<FoundValue>,
) {
    let at = known.partition_point(|known| known.end <= one.at.start);
    let covered = known.get(at).is_some_and(|known| known.start < one.at.end);
    let Some(value) = text.get(one.at.clone()).filter(|_| !covered) else { return };
    if let Some((class, rule)) = judged(value, kind, one) {
        out.push(FoundValue::new(class, rule, one.at.start, one.at.end));
    }
}

/// The class and the rule of a value that a label announces.
fn judged(value: &str, kind: LabelKind, one: &LabelledValue) -> Option<(ValueClass, &'static str)> {
    let (accepted, rule) = match kind {
        LabelKind::Password => (is_password(value, one), "password"),
        LabelKind::PasswordOrNumber => {
            (is_password(value, one) && value.chars().any(char::is_alphabetic), "password")
        }
        LabelKind::Code => (is_code(value), "access-code"),
        LabelKind::CodeOrPostcode => (is_code(value) && !is_postcode(value), "access-code"),
        LabelKind::Key | LabelKind::Cookie => {
            (value.len() >= KEY && looks_generated(value), "credential")
        }
        LabelKind::Signature => {
            (value.len() >= 2 * KEY && value.bytes().any(|b| b.is_ascii_digit()), "url-signature")
        }
    };
    let replaceable =
        matches!(kind, LabelKind::Password | LabelKind::PasswordOrNumber | LabelKind::Key);
    if !matches!(kind, LabelKind::Code | LabelKind::CodeOrPostcode)
        && placeholder::is_password(value)
    {
        let masked = value.bytes().all(|byte| byte == b'*');
        let assigned = replaceable
            && one.link == Link::Sign
            && value.len() >= 4
            && (masked || !is_expression(value));
        return assigned.then_some((ValueClass::Placeholder, "placeholder"));
    }
    accepted.then_some((ValueClass::Secret, rule))
}

/// Whether a value can be a password: it has a digit or a sign besides letters, and is no expression of a program.
fn is_password(value: &str, one: &LabelledValue) -> bool {
    let letters = value.chars().any(char::is_alphabetic);
    let digits = value.bytes().any(|byte| byte.is_ascii_digit());
    let sign = |byte: &u8| {
        byte.is_ascii_punctuation() && !matches!(byte, b'.' | b'_' | b'-' | b'/' | b':' | b',')
    };
    let signs = value.bytes().filter(sign).count();
    let enough = match one.link {
        Link::Sign | Link::Column => {
            digits && (letters || signs > 0 || value.len() >= 8) || signs > 0 && letters
        }
        Link::Verb => digits && (letters || signs > 0),
    };
    let share = !letters && value.ends_with(['%', '\u{2030}']);
    let fits = (PASSWORD..=LONGEST).contains(&value.len()) && !value.contains("://") && !share;
    let plain = one.quoted == Quoted::No && is_name(value);
    fits && enough && !plain && !is_expression(value) && !is_date(value)
}

/// Whether a value can be a postcode of India: six digits in one or two groups.
fn is_postcode(value: &str) -> bool {
    !value.starts_with('0') && value.bytes().filter(u8::is_ascii_digit).count() == 6
}

/// Whether a value is a path, a version or a name with a number, such as `v2` or `utf-8`.
fn is_name(value: &str) -> bool {
    value.starts_with(['/', '.', '#'])
        || value.contains('/') && value.contains('.')
        || value.bytes().all(|byte| {
            byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b':' | b'/' | b'T' | b'Z')
        }) && value.contains(['.', '-', ':', '/'])
}

fn is_date(value: &str) -> bool {
    value.len() >= 8
        && value.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'/' | b'.' | b':'))
        && value.contains(['-', '/', '.', ':'])
}

/// Whether a value is an expression of a program: a call, an index, a member of an object.
fn is_expression(value: &str) -> bool {
    let ends = value.ends_with(['(', ')', '{', '[', ';', ']', '}', '='])
        || value.contains("()")
        || value.contains("](");
    let call = value.find('(').is_some_and(|at| at > 0);
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_' || b == b'$')
    };
    let member = value.contains('.')
        && value.split(['.', '[', '(', '?']).next().is_some_and(word)
        && value.split('.').all(|part| part.split(['[', '(', '?', '!']).next().is_some_and(word));
    let other = ["::", "->", "=>", "&&", "||", "==", "!=", "&str", "\\", "&mut"];
    call || member
        || ends && value.len() < 12
        || other.iter().any(|sign| value.contains(sign))
        || value.starts_with(['&', '*', ')', '}', ']', '|', '\\', ',', '?', '=', ':'])
}

fn is_code(value: &str) -> bool {
    CODE.contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a label is a word of its own, as far as it has to be, and its name does not say that the value is public.
fn is_word(text: &str, at: Range<usize>) -> bool {
    let bytes = text.as_bytes();
    let short = at.len() < LONG && bytes.get(at.clone()).is_some_and(<[u8]>::is_ascii);
    let before = at.start.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(b' ');
    let capital =
        bytes.get(at.start).is_some_and(u8::is_ascii_uppercase) && before.is_ascii_lowercase();
    let letter = bytes.get(at.start).is_some_and(u8::is_ascii_alphanumeric);
    if short && letter && !capital && (before.is_ascii_alphanumeric() || before >= 0x80) {
        return false;
    }
    let head = bytes.get(at.start.saturating_sub(NAME)..at.start).unwrap_or_default();
    let part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let name = head.iter().rev().take_while(part).count();
    let name = String::from_utf8_lossy(head.get(head.len() - name..).unwrap_or_default());
    let name = name.to_ascii_lowercase();
    !super::SHOWN.iter().any(|shown| name.contains(shown))
        && !text.get(..at.end).is_some_and(names::is_public)
}

/// Whether a name that goes on like this behind a label is still that of the value.
fn is_tail(tail: &str) -> bool {
    let tail = tail.trim_start_matches(['_', '-', '.', ' ']).to_ascii_lowercase();
    TAILS.contains(&&*tail) || tail.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether one of the labels is in the name of a member, which goes on as the name of a value does.
pub(super) fn announces(name: &str) -> bool {
    let mut labels = KNOWN.get().into_iter().flat_map(|labels| labels.find_iter(name));
    labels.any(|label| {
        is_tail(name.get(label.end()..).unwrap_or_default()) && is_word(name, label.range())
    })
}

/// Appends the secrets of a value that a member of this name has.
pub(super) fn of_member(name: &str, value: &str, out: &mut Vec<FoundValue>) {
    let Some(labels) = KNOWN.get() else { return };
    if name
        .get(name.len().saturating_sub(COOKIE.len())..)
        .is_some_and(|end| end.eq_ignore_ascii_case(COOKIE))
    {
        for one in cookies(value, 0) {
            add(value, LabelKind::Cookie, &one, &[], out);
        }
    }
    if value.contains(char::is_whitespace) && !placeholder::is_reference(value) {
        return;
    }
    for label in labels.find_iter(name) {
        let Some(Label { kind, .. }) = LABELS.get(label.pattern().as_usize()) else { continue };
        let tail = name.get(label.end()..).unwrap_or_default();
        // A list has the name of what is in it in the plural.
        let whole = is_tail(tail) || tail.eq_ignore_ascii_case("s");
        if !whole || !is_word(name, label.range()) {
            continue;
        }
        let one = LabelledValue { at: 0..value.len(), link: Link::Sign, quoted: Quoted::Yes };
        add(value, *kind, &one, &[], out);
    }
}

/// The value that is joined to a label by a sign or a verb.
fn behind(text: &str, label: Range<usize>) -> Option<LabelledValue> {
    let from = label.end;
    let rest = text.get(from..text.floor_char_boundary(from.saturating_add(AROUND)))?;
    let opened = text.get(..label.start)?.ends_with('<');
    let name =
        rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')).count();
    // A dash that ends the name belongs to the sentence.
    let name = rest.get(..name)?.trim_end_matches('-').len();
    is_tail(rest.get(..name)?).then_some(())?;
    let mut cursor = Cursor { rest, at: name };
    if opened && cursor.skip(">") {
        return cursor.value(Link::Sign, from);
    }
    let closed = cursor.skip_any(&['"', '\'', '`', '*', ']', ')', '_', '\\', '»', '”']) > 0;
    cursor.blanks();
    if closed && cursor.skip_named_value() || cursor.skip_sign() {
        cursor.blanks();
        return cursor.value_on_this_line_or_the_next(from);
    }
    if cursor.skip_particle() || cursor.skip_verb() {
        cursor.blanks();
        return cursor.value(Link::Verb, from);
    }
    let flag = text.get(..label.start)?.ends_with("--") && rest.as_bytes().get(name) == Some(&b' ');
    if flag { cursor.value(Link::Sign, from) } else { None }
}

/// A place in the text behind a label.
struct Cursor<'a> {
    rest: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> &'a str {
        self.rest.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self, sign: &str) -> bool {
        let found = self.left().starts_with(sign);
        self.at += if found { sign.len() } else { 0 };
        found
    }

    /// Skips any of these characters; returns how many bytes they are.
    fn skip_any(&mut self, signs: &[char]) -> usize {
        let left = self.left();
        let length = left.len() - left.trim_start_matches(signs).len();
        self.at += length;
        length
    }

    fn blanks(&mut self) {
        self.skip_any(&[' ', '\t', '\u{a0}', '\u{202f}', '\u{3000}']);
    }

    /// Skips a sign of assignment.
    fn skip_sign(&mut self) -> bool {
        const SIGNS: [&str; 8] = [":=", "=>", "==", "::", ":", "=", "\u{ff1a}", "\u{ff1d}"];
        let Some(sign) = SIGNS.iter().find(|sign| self.left().starts_with(**sign)) else {
            return false;
        };
        // A comparison and a path assign nothing.
        self.at += sign.len();
        !matches!(*sign, "==" | "::")
    }

    fn skip_particle(&mut self) -> bool {
        PARTICLES.iter().any(|particle| self.skip(particle))
    }

    /// Skips the words up to the verb of the sentence, and the verb.
    fn skip_verb(&mut self) -> bool {
        let mut words = 0;
        let mut at = self.at;
        for word in self.left().split_inclusive(char::is_whitespace) {
            at += word.len();
            let word = word.trim_end();
            if VERBS.contains(&word) {
                self.at = at;
                return true;
            }
            if ABOUT.iter().any(|about| word.eq_ignore_ascii_case(about)) {
                return false;
            }
            words += usize::from(!word.is_empty());
            if words > WORDS
                || word.ends_with(['.', ',', ';', ':', '!', '?', '|', '"', '(', ')', '{', '}', '='])
            {
                return false;
            }
        }
        false
    }

    /// Skips the name of the attribute or member that holds the value, as in `name="password" value=`.
    fn skip_named_value(&mut self) -> bool {
        let start = self.at;
        self.skip_any(&[',', ' ', '\n', '\t', '\r']);
        self.skip_any(&['"', '\'', '\\']);
        let named = VALUES.iter().any(|name| self.skip(name));
        self.skip_any(&['"', '\'', '\\', ' ']);
        if named && (self.skip("=") || self.skip(":")) {
            return true;
        }
        self.at = start;
        false
    }

    fn value_on_this_line_or_the_next(&mut self, from: usize) -> Option<LabelledValue> {
        // The emphasis of a label may end behind its colon.
        if !self.left().starts_with("***") {
            self.skip_any(&['*', '_']);
        }
        self.blanks();
        let broken = self.skip("\r\n") || self.skip("\n") || self.skip("\\n");
        if broken {
            self.skip_any(&[' ', '\t', '>', '-', '*']);
            let line = self.left().split(['\n', '\r']).next().unwrap_or_default().trim();
            // The next line is a value only if it is nothing else.
            (!line.contains(char::is_whitespace) && !line.contains([':', '='])).then_some(())?;
        }
        self.value(Link::Sign, from)
    }

    /// The value at this place; `from` is where the text behind the label begins.
    fn value(&mut self, link: Link, from: usize) -> Option<LabelledValue> {
        const MARKS: [(char, char); 9] = [
            ('"', '"'),
            ('\'', '\''),
            ('`', '`'),
            ('«', '»'),
            ('“', '”'),
            ('„', '“'),
            ('‘', '’'),
            ('「', '」'),
            ('『', '』'),
        ];
        self.skip("\\");
        let left = self.left();
        let first = left.chars().next()?;
        let mark = MARKS.iter().find(|(open, _)| *open == first);
        if let Some((open, close)) = mark {
            let inner = left.get(open.len_utf8()..)?;
            let inner = inner.get(..inner.find(*close)?)?.trim_end_matches('\\');
            let value = inner.trim();
            let blanks = inner.len() - inner.trim_start().len();
            let begins = from + self.at + open.len_utf8() + blanks;
            let whole = !value.contains(char::is_whitespace) || placeholder::is_reference(value);
            let one = !value.is_empty() && whole;
            let at = begins..begins + value.len();
            return one.then_some(LabelledValue { at, link, quoted: Quoted::Yes });
        }
        // An element of a documentation, such as `<password>`.
        let element = left.strip_prefix('<').and_then(|inner| inner.find('>')).map(|at| at + 2);
        let length = element.unwrap_or_else(|| unquoted(left));
        let whole = left.get(..length)?;
        let signs = ['.', ')', ']', '}', ',', '。', '、', '*', '»', '”'];
        let value = Some(whole.trim_end_matches(signs)).filter(|value| !value.is_empty());
        let value = value.unwrap_or(whole);
        let begins = from + self.at;
        let at = begins..begins + value.len();
        (!value.is_empty()).then_some(LabelledValue { at, link, quoted: Quoted::No })
    }
}

/// Length of a value that no quotation marks enclose.
fn unquoted(text: &str) -> usize {
    let ends = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '"' | '\'' | '`' | '<' | '>' | ';' | '|' | ',' | '\\' | '&' | '。' | '、'
            )
    };
    text.find(ends).unwrap_or(text.len())
}

/// The values of the cookies in a header.
fn cookies(text: &str, from: usize) -> Vec<LabelledValue> {
    let end = text.floor_char_boundary(from.saturating_add(4 * LINE));
    let line =
        text.get(from..end).unwrap_or_default().split(['\n', '\r', '"']).next().unwrap_or_default();
    let mut at = from;
    let each = line.split_inclusive(';').filter_map(|pair| {
        let begins = at;
        at += pair.len();
        let (name, value) = pair.split_once('=')?;
        let value = value.trim_end_matches(';').trim_end();
        let from = begins + name.len() + 1;
        Some(LabelledValue { at: from..from + value.len(), link: Link::Sign, quoted: Quoted::No })
    });
    each.collect()
}

/// A column of a table whose header is a label.
struct Column {
    /// The range of the header's line.
    header: Range<usize>,
    sign: char,
    index: usize,
}

impl Column {
    /// The column that a label is the header of.
    fn of(text: &str, label: Range<usize>) -> Option<Self> {
        let start = text.floor_char_boundary(label.start.saturating_sub(LINE));
        let before = text.get(start..label.start)?;
        let from = before.rfind('\n').map_or(start, |at| start + at + 1);
        let rest = text.get(label.end..text.floor_char_boundary(label.end.saturating_add(LINE)))?;
        let end = label.end + rest.find('\n')?;
        let line = text.get(from..end)?;
        let sign = ['|', '\t', ',', ';'].into_iter().find(|sign| line.contains(*sign))?;
        let index = text.get(from..label.start)?.matches(sign).count();
        let cell = line.split(sign).nth(index)?.trim();
        let is_header = cell.len() <= label.len() + 12
            && cell.split_whitespace().count() <= 3
            && !cell.contains(['=', '(', ':', '{', '[']);
        is_header.then_some(Self { header: from..end, sign, index })
    }

    /// The values in the rows below the header.
    fn cells<'a>(&'a self, text: &'a str) -> impl Iterator<Item = LabelledValue> + 'a {
        let mut at = self.header.end + 1;
        let rest = text.get(at..).unwrap_or_default();
        let header = text.get(self.header.clone()).unwrap_or_default();
        let sign = self.sign;
        let signs = header.matches(sign).count();
        let rows = rest
            .split_inclusive('\n')
            .take(ROWS + 1)
            .take_while(move |line| line.len() <= LINE && line.matches(sign).count() == signs);
        rows.filter_map(move |line| {
            let begins = at;
            at += line.len();
            let mut start = begins;
            let mut cells = line.split(self.sign).map(|cell| {
                let from = start;
                start += cell.len() + self.sign.len_utf8();
                (from, cell)
            });
            let (from, cell) = cells.nth(self.index)?;
            let signs = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
            let from = from + cell.len() - cell.trim_start_matches(signs).len();
            let value = cell.trim_matches(signs);
            let one = !value.is_empty()
                && !value.contains(char::is_whitespace)
                && !value.contains(['(', '=']);
            let at = from..from + value.len();
            one.then_some(LabelledValue { at, link: Link::Column, quoted: Quoted::No })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, find};
    use crate::secrets::found::ValueClass;

    fn found(text: &str) -> Vec<(ValueClass, &'static str, String)> {
        let mut found = Vec::new();
        find(text, &[], &mut found);
        let value = |from, end| text.get(from..end).unwrap_or_default().to_owned();
        found.into_iter().map(|one| (one.class, one.rule, value(one.from, one.end))).collect()
    }

    #[test]
    fn the_labels_compile() {
        assert!(KNOWN.error().is_none());
    }

    #[test]
    fn a_password_is_found_in_each_language_and_notation() {
        for text in [
            "password: tR7kQ2mZ!",
            "Password = 'tR7kQ2mZ!'",
            "DB_PASSWORD=tR7kQ2mZ!",
            "dbPassword: \"tR7kQ2mZ!\"",
            "{\"password\":\"tR7kQ2mZ!\"}",
            "{\"name\":\"PASSWORD\",\"value\":\"tR7kQ2mZ!\"}",
            "<password>tR7kQ2mZ!</password>",
            "<add key=\"Password\" value=\"tR7kQ2mZ!\" />",
            "--password tR7kQ2mZ!",
            "**Password:** tR7kQ2mZ!",
            "Password:\n  tR7kQ2mZ!\n",
            "Server=db;User=sa;Password=tR7kQ2mZ!;Encrypt=True",
            "the password for the login is tR7kQ2mZ!",
            "password := \"tR7kQ2mZ!\"",
            "'password' => 'tR7kQ2mZ!'",
            "| user | password |\n|---|---|\n| ana | tR7kQ2mZ! |\n",
            "user,password\nana,tR7kQ2mZ!\n",
            "Das Passwort lautet tR7kQ2mZ!",
            "Kennwort: tR7kQ2mZ!",
            "Mot de passe : tR7kQ2mZ!",
            "le mot de passe est « tR7kQ2mZ! »",
            "la contraseña es tR7kQ2mZ!",
            "a senha é tR7kQ2mZ!",
            "la password è tR7kQ2mZ!",
            "het wachtwoord is tR7kQ2mZ!",
            "Hasło: tR7kQ2mZ!",
            "Пароль: tR7kQ2mZ!",
            "пароль — tR7kQ2mZ!",
            "Şifre: tR7kQ2mZ!",
            "密码：tR7kQ2mZ!",
            "パスワードは tR7kQ2mZ!",
            "비밀번호: tR7kQ2mZ!",
            "كلمة المرور: tR7kQ2mZ!",
        ] {
            let expected = (ValueClass::Secret, "password", "tR7kQ2mZ!".to_owned());
            assert_eq!(found(text), [expected], "{text}");
        }
    }

    #[test]
    fn what_stands_in_place_of_a_password_is_no_secret() {
        for text in [
            "password: changeme",
            "PASSWORD=${DB_PASSWORD}",
            "password: your-password",
            "password=********",
            "password: <password>",
            "password = \"{{ .Values.password }}\"",
        ] {
            let all = found(text);
            let placeholder = all.iter().any(|(class, ..)| *class == ValueClass::Placeholder);
            assert!(
                placeholder && !all.iter().any(|(class, ..)| *class == ValueClass::Secret),
                "{text}: {all:?}"
            );
        }
        for text in [
            "password: str",
            "if password == confirm_password2:",
            "self.password = request.form['password1']",
            "passwords are stored as sha256",
            "password = os.environ.get(\"X1\")",
            "The password must have 12 characters.",
            "password_hash: 5f4dcc3b5aa765d61d8327deb882cf99",
            "Passwort vergessen? Seite 12",
            "pwd: /home/ana/2026",
            "compass: 12b45678",
            "The pass rate was 98.25% last week.",
            "pass=98.25%",
            "The password hash function is sha256.",
            "The password policy is ISO27001-compliant.",
            "PIN code: 560001",
            "\"pincode\":\"560001\"",
            "Clave: 15112101",
            "password: $DB_PASSWORD",
            "password=[FILTERED]",
        ] {
            let all = found(text);
            assert!(
                all.iter().all(|(class, ..)| *class == ValueClass::Placeholder),
                "{text}: {all:?}"
            );
        }
    }

    #[test]
    fn codes_keys_cookies_and_signatures_are_found() {
        for (text, rule) in [
            ("Your verification code is 482913.", "access-code"),
            ("PIN: 4829", "access-code"),
            ("PIN code: 4829", "access-code"),
            ("Password: Enterprise2024!", "password"),
            ("Password: $ummerTime9!", "password"),
            ("Clave: tR7kQ2mZ!", "password"),
            ("Код подтверждения: 482913", "access-code"),
            ("clé API : 9f8e7d6c5b4a39281706f5e4d3c2b1a0", "credential"),
            ("ключ доступа: 9f8e7d6c5b4a39281706f5e4d3c2b1a0", "credential"),
            ("name,token\nci,9f8e7d6c5b4a39281706f5e4d3c2b1a0\n", "credential"),
            ("Cookie: theme=dark; session=9f8e7d6c5b4a39281706f5e4d3c2b1a0", "credential"),
            (
                "https://a.example/x?sv=1&sig=aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1v%2Bw%3D",
                "url-signature",
            ),
        ] {
            let all = found(text);
            assert!(
                all.iter().any(|(class, one, _)| *class == ValueClass::Secret && *one == rule),
                "{text}: {all:?}"
            );
        }
        for text in [
            "pin: 13",
            "pinned to 1234",
            "hashed_secret: 9f8e7d6c5b4a39281706f5e4d3c2b1a0",
            "token: AuthorizationCodeToken2026",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }
}
