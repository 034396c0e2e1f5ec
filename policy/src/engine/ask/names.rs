//! What the subjects of a form are called: secrets, and the kinds of personal data. The names of personal data, and most
//! of those of secrets in other languages than English, are the ones by which the detectors find them in texts.

use std::sync::LazyLock;

use detection::content::{PERSONAL_NAMES, PersonalKind, identity_words, secret_names};
use policy_core::base::work::WorkBudget;

use super::wording::{looks, plain, words};

/// What a field asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FieldSubject {
    /// A password, a token, a code or a key.
    Secret,
    /// Data about a person.
    Personal(PersonalKind),
}

/// What fields ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSubjects {
    /// One bit for each subject.
    bits: u16,
}

impl FieldSubjects {
    const fn bit(subject: FieldSubject) -> u16 {
        match subject {
            FieldSubject::Secret => 1,
            FieldSubject::Personal(kind) => 2 << kind as u16,
        }
    }

    /// Adds a subject.
    pub(super) const fn add(&mut self, subject: FieldSubject) {
        self.bits |= Self::bit(subject);
    }

    /// Adds all of `others`.
    pub(super) const fn join(&mut self, others: Self) {
        self.bits |= others.bits;
    }

    /// Whether it is one of them.
    pub(super) const fn has(self, subject: FieldSubject) -> bool {
        self.bits & Self::bit(subject) != 0
    }
}

impl FromIterator<FieldSubject> for FieldSubjects {
    fn from_iter<I: IntoIterator<Item = FieldSubject>>(subjects: I) -> Self {
        let mut all = Self::default();
        subjects.into_iter().for_each(|subject| all.add(subject));
        all
    }
}

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
    // What a card is used with.
    "cvv", "cvv2", "cvv code", "cvc", "cvc2", "cvc code", "card verification",
    // Codes and keys in more words.
    "authenticator app code", "code from your authenticator", "code from the authenticator", "code from an authenticator", "6 digit code",
    "six digit code", "8 digit code", "code we sent", "code that we sent", "code was sent", "code sent to", "code we texted", "code you received",
    "code from the sms", "code from the text message", "ssh id rsa", "id ed25519", "ssh id ecdsa",
    "id rsa key", "id rsa file", "пароля", "код из смс", "sms kod", "контрольное слово",
    "seed фраза", "kode verifikasi", "kode otp", "clé privée", "clave privada", "chave privada", "chiave privata", "privater schlüssel",
    "privaten schlüssel", "закрытый ключ", "приватный ключ", "zugangsdaten", "losungswort", "kata laluan", "סיסמא", "कूटशब्द", "گذرواژه",
    "پاس ورڈ", "கடவுச்சொல்", "సంకేతపదం", "nenosiri", "pasahitza", "cyfrinair", "pasfhocal", "პაროლი", "գաղտնաբառ", "құпия сөз", "salasõna",
    "code reçu par sms", "12 words", "24 words", "connection string", "kubeconfig", "netrc", "verification number",
];

/// Names of secrets that also count inside a longer word, since no other word contains them.
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "password", "passwd", "passphrase", "passcode", "passwort", "kennwort", "contraseña", "motdepasse", "wachtwoord", "lösenord",
    "salasana", "geheimzahl", "apikey", "privatekey", "secretkey", "userpass", "seedphrase", "verificationcode",
];

/// Words that mean a secret only if the name has no other words than these and [`OWNERS`]; in a sentence, or beside
/// other words, they mean something else.
const ALONE: [&str; 10] =
    ["pass", "pw", "tan", "auth", "mfa", "cookie", "cookies", "parola", "sandi", "κωδικός"];

/// Words that name the owner of a secret, or ask to enter it.
#[rustfmt::skip]
pub(super) const OWNERS: &[&str] = &[
    "user", "usr", "my", "your", "the", "a", "enter", "please", "new", "old", "current", "repeat", "confirm", "db", "database",
    "admin", "root", "login", "account", "email", "mail", "smtp", "imap", "ftp", "ssh", "wifi", "vpn", "bank", "sms", "mobile",
    "code", "number", "value", "string", "header", "basic", "session", "browser", "token", "key",
];

/// The same for data about a person, whose number is asked for.
#[rustfmt::skip]
pub(super) const PERSONS: &[&str] = &[
    "my", "your", "his", "her", "the", "a", "enter", "please", "new", "current", "confirm", "customer", "patient", "full", "number", "no", "nr", "num",
    "numero", "número", "numéro", "nummer", "номер", "numer", "nomor", "de", "del", "do", "da", "du", "di", "of", "le", "la", "el", "il", "o", "mein", "meine",
    "ihr", "ihre", "votre", "su", "tu", "sua", "seu", "ваш", "ваша", "ваше", "taken", "existing", "known",
];

/// Names of secrets in scripts that do not separate words with blanks, besides those that the detectors know.
const WITHIN: [&str; 17] = [
    "रहस्य शब्द",
    "पासवर्ड",
    "รหัสผ่าน",
    "助记词",
    "助記詞",
    "私钥",
    "私鑰",
    "恢复短语",
    "ওটিপি",
    "ओटीपी",
    "পাসওয়ার্ড",
    "যাচাইকরণ কোড",
    "सत्यापन कोड",
    "恢复密钥",
    "シードフレーズ",
    "ワンタイム",
    "복구 문구",
];

/// Secrets that mean something else beside one of [`POSTAL`].
const PINS: [&str; 3] = ["pin", "pincode", "code pin"];
/// Secrets that mean something else after one of [`NOUNS`].
const KEYS: [&str; 1] = ["clave"];
/// Nouns after which one of [`KEYS`] is an adjective: `palabra clave` is a keyword.
#[rustfmt::skip]
pub(super) const NOUNS: [&str; 22] = [
    "palabra", "palabras", "punto", "puntos", "idea", "ideas", "dato", "datos", "fecha", "fechas", "concepto", "conceptos", "persona",
    "personas", "indicador", "indicadores", "factor", "factores", "elemento", "elementos", "momento", "tema",
];
/// Properties of a thing: what they belong to is not asked for, as in `the colour of the pin`.
#[rustfmt::skip]
pub(super) const PROPERTIES: &[&str] = &[
    "colour", "color", "shape", "size", "length", "strength", "type", "kind", "format", "name", "names", "position", "owner", "purpose", "expiry", "lifetime",
];
/// Words between `of` and the thing.
pub(super) const ARTICLES: [&str; 9] =
    ["the", "a", "an", "your", "my", "this", "that", "each", "new"];

/// Words after the name of a secret that give it another meaning.
#[rustfmt::skip]
pub(super) const NOT_BEFORE: &[&str] = &[
    "reset", "policy", "policies", "length", "manager", "strength", "expiry", "expiration", "rotation", "count", "limit",
    "limits", "budget", "usage", "name", "id", "type", "format", "url", "link", "email", "date", "age", "holder", "brand",
    "service", "symbol", "standard", "santa", "path", "address", "required", "protected", "enabled", "provider", "field",
    "less", "primaria", "foránea", "foranea", "pub", "public", "colour", "color", "icon", "marker", "statement", "statements", "layout", "design",
    "template", "strategy", "issuer", "readers", "offers", "model", "vendor", "scanner", "parser", "validator", "regex", "column",
];

/// Words of a question about a person's health that can be answered with yes or no.
#[rustfmt::skip]
pub(super) const CONDITIONS: [&str; 40] = [
    "diabetes", "diabetic", "pregnant", "pregnancy", "hiv", "aids", "cancer", "asthma", "epilepsy", "depression", "disability", "disabilities",
    "allergy", "allergies", "allergic", "medication", "medications", "medicine", "medicines", "vaccinated", "illness", "illnesses", "disease",
    "diseases", "surgery", "surgeries", "symptoms", "smoker", "hypertension", "schwanger", "krankheit", "krankheiten", "enceinte", "maladie",
    "embarazada", "enfermedad", "alergias", "grávida", "doença", "incinta",
];

/// Words that say whose health a question is about.
pub(super) const ASKED_OF: [&str; 14] = [
    "you", "your", "i", "my", "patient", "sie", "ihre", "vous", "votre", "usted", "su", "você",
    "sua", "lei",
];

/// Words beside which `PIN` is a postal code.
pub(super) const POSTAL: [&str; 4] = ["postal", "zip", "area", "postcode"];

/// Words that ask the reader to provide what follows.
#[rustfmt::skip]
pub(super) const ASKING: &[&str] = &[
    "enter", "type", "provide", "give", "send", "paste", "input", "insert", "share", "tell", "supply", "submit", "fill",
    "your", "need", "needs", "what", "ihr", "dein", "eingeben", "votre", "su", "sua", "tu", "escriba", "escribe", "saisissez", "entrez", "introduzca",
    "ingrese", "ingresa", "inserisci", "digite", "введите", "podaj", "voer", "ange", "anna", "zadejte", "girin", "nhập",
];

/// The same in scripts that do not separate words with blanks.
#[rustfmt::skip]
pub(super) const ASKING_WITHIN: &[&str] = &[
    "输入", "輸入", "填写", "填寫", "提供", "粘贴", "貼上", "告诉", "发送", "入力", "貼り付け", "教えて", "記入", "送信", "입력", "알려", "붙여", "أدخل", "ادخل",
    "اكتب", "الصق", "أرسل", "दर्ज", "डालें", "लिखें", "भेजें", "লিখুন", "দিন",
];
/// Words that speak to the user of a form: beside one of these a sentence asks for data about the user.
#[rustfmt::skip]
pub(super) const USERS: &[&str] = &[
    "you", "your", "which", "what", "du", "sie", "deine", "ihre", "welche", "vous", "votre", "vos", "quelle", "quel", "usted", "su", "sus", "cuál", "você",
    "seu", "sua", "qual", "вы", "ваш", "ваши", "вашей", "вашего", "какие", "anda", "sizin",
];
/// Names of fields that do not say what they are for.
#[rustfmt::skip]
pub(super) const VAGUE: &[&str] = &[
    "value", "values", "val", "v", "x", "input", "answer", "text", "field", "content", "contents", "data", "note", "notes", "response", "reply", "entry", "string", "it", "here",
    "your", "the", "enter", "paste", "please", "a", "1", "2",
];

/// The names of all subjects in one normal form.
pub(super) struct SubjectNames {
    /// Names that count wherever they stand, sorted.
    pub(super) names: Vec<(String, FieldSubject)>,
    /// Names that also count within a longer word.
    pub(super) parts: Vec<(String, FieldSubject)>,
    /// Words that count only without others.
    pub(super) alone: Vec<(String, FieldSubject)>,
    /// Names in scripts that do not separate words with blanks.
    pub(super) within: Vec<(String, FieldSubject)>,
    /// The normal forms of [`PINS`].
    pub(super) pins: Vec<String>,
    /// The normal forms of [`KEYS`].
    pub(super) keys: Vec<String>,
}

/// Longest identity number's name that is a word of its own, in letters: shorter ones are parts of other phrases.
const SHORT: usize = 4;

impl SubjectNames {
    fn in_form(form: fn(&str) -> String) -> Self {
        let normal = |name: &str| -> String {
            let budget = WorkBudget::unlimited();
            words(name, &budget).iter().map(|word| form(word.text())).collect()
        };
        let mut all = Self {
            names: Vec::new(),
            parts: Vec::new(),
            alone: Vec::new(),
            within: Vec::new(),
            pins: Vec::new(),
            keys: Vec::new(),
        };
        let mut add = |name: &'static str, subject| {
            let list = if is_unspaced(name) { &mut all.within } else { &mut all.names };
            list.push((normal(name), subject));
        };
        SECRETS.iter().chain(&WITHIN).for_each(|name| add(name, FieldSubject::Secret));
        secret_names().for_each(|name| add(name, FieldSubject::Secret));
        let personal = |kind| FieldSubject::Personal(kind);
        for one in PERSONAL_NAMES {
            one.names.iter().for_each(|name| add(name, personal(one.kind)));
        }
        let id = personal(PersonalKind::NationalId);
        let is_short = |word: &&str| word.is_ascii() && word.len() <= SHORT;
        identity_words().filter(|word| !is_short(word)).for_each(|name| add(name, id));
        all.alone.extend(identity_words().filter(is_short).map(|word| (normal(word), id)));
        all.alone.extend(ALONE.iter().map(|word| (normal(word), FieldSubject::Secret)));
        all.parts.extend(PARTS.iter().map(|part| (normal(part), FieldSubject::Secret)));
        for one in PERSONAL_NAMES {
            all.alone.extend(one.alone.iter().map(|word| (normal(word), personal(one.kind))));
            all.parts.extend(one.parts.iter().map(|part| (normal(part), personal(one.kind))));
        }
        all.alone.sort_unstable();
        all.within.sort_unstable();
        all.names.sort_unstable();
        // A duplicate would hide a longer name with the same beginning from the search.
        all.names.dedup_by(|one, other| one.0 == other.0);
        all.pins = PINS.iter().map(|name| normal(name)).collect();
        all.keys = KEYS.iter().map(|name| normal(name)).collect();
        all
    }
}

/// Whether a name is in a script that does not separate words with blanks, or joins others to them.
fn is_unspaced(name: &str) -> bool {
    name.chars().any(|c| matches!(c, '\u{600}'..='\u{6ff}' | '\u{900}'..='\u{9ff}' | '\u{e00}'..='\u{e7f}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'))
}

/// The names as written.
pub(super) static WRITTEN: LazyLock<SubjectNames> = LazyLock::new(|| SubjectNames::in_form(plain));
/// The names by their visual appearance.
pub(super) static LOOKS: LazyLock<SubjectNames> =
    LazyLock::new(|| SubjectNames::in_form(|text| plain(&looks(text))));
