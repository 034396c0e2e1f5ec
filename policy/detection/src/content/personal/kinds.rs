//! What data of persons are called, by kind: names of the fields in which a form asks for them.
//!
//! The identity numbers of countries are called by the words that also announce them in a text ([`super::national`]).

use schemars::JsonSchema;
use serde::Deserialize;

use super::national;

/// A kind of data about a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PersonalKind {
    /// The name of a person.
    Name,
    /// An e-mail address of a person.
    Email,
    /// A telephone number of a person.
    Phone,
    /// A postal address, or a part of one.
    Address,
    /// A date of birth.
    BirthDate,
    /// A number or document that a government gives to a person: an identity card, a passport, a driving licence, a tax
    /// or social insurance number.
    NationalId,
    /// The number of a bank account.
    BankAccount,
    /// The number of a payment card.
    Card,
    /// Health: an illness, a medication, the history of a patient.
    Health,
}

impl PersonalKind {
    /// Every kind of personal data.
    pub const ALL: [Self; 9] = [
        Self::Name,
        Self::Email,
        Self::Phone,
        Self::Address,
        Self::BirthDate,
        Self::NationalId,
        Self::BankAccount,
        Self::Card,
        Self::Health,
    ];
}

/// What data of one kind are called, in lower case.
#[derive(Clone, Copy, Debug)]
pub struct PersonalNames {
    /// The kind that they name.
    pub kind: PersonalKind,
    /// Names wherever they stand: one word, or several in sequence.
    pub names: &'static [&'static str],
    /// Words that are such a name only if no others than an owner ("your") or "number" stand beside them.
    pub alone: &'static [&'static str],
    /// Names that also count within a longer word.
    pub parts: &'static [&'static str],
}

/// The names of every kind, but for those of [`identity_words`].
#[rustfmt::skip]
pub const PERSONAL_NAMES: &[PersonalNames] = &[
    PersonalNames { kind: PersonalKind::Name, parts: &[], alone: &["name", "nom", "nombre", "nome", "имя", "naam"],
        names: &[
            "first name", "last name", "full name", "surname", "family name", "given name", "middle name", "maiden name", "legal name", "vorname",
            "nachname", "familienname", "prénom", "nom de famille", "nom complet", "apellido", "apellidos", "nombre completo", "sobrenome",
            "nome completo", "cognome", "фамилия", "фамилию", "отчество", "姓名", "姓氏", "氏名", "お名前", "성명", "이름", "الاسم الكامل",
            "اسم العائلة", "पूरा नाम", "পুরো নাম", "nama lengkap", "ad soyad", "achternaam", "voornaam", "nazwisko",
        ] },
    PersonalNames { kind: PersonalKind::Email, parts: &["emailaddress", "mailadresse"], alone: &["mail", "correo"],
        names: &[
            "email", "emails", "mail address", "mailadresse", "correo electrónico", "courriel", "adresse mail", "адрес почты", "эл почта",
            "электронная почта", "电子邮件", "电子邮箱", "邮箱", "メールアドレス", "이메일", "البريد الإلكتروني", "ईमेल", "ইমেইল", "surel", "eposta",
        ] },
    PersonalNames { kind: PersonalKind::Phone, parts: &["telefonnummer", "phonenumber"], alone: &["tel", "mobile", "fax", "handy", "celular"],
        names: &[
            "phone", "telephone", "phone number", "mobile number", "cell number", "whatsapp number", "telefon", "telefonnummer",
            "handynummer", "rufnummer", "mobilnummer", "téléphone", "numéro de portable", "teléfono", "móvil", "telefone", "telefono", "cellulare",
            "телефон", "телефона", "电话", "電話", "手机号", "手机号码", "電話番号", "전화번호", "رقم الهاتف", "رقم الجوال", "फोन नंबर",
            "मोबाइल नंबर", "ফোন নম্বর", "nomor telepon", "nomor hp", "telefoonnummer", "numer telefonu",
        ] },
    PersonalNames { kind: PersonalKind::Address, parts: &[], alone: &["address", "street", "adresse", "alamat", "adres", "zip", "plz"],
        names: &[
            "street address", "postal address", "home address", "mailing address", "shipping address", "billing address", "house number",
            "postal code", "postcode", "zip code", "anschrift", "straße", "strasse", "hausnummer", "postleitzahl", "adresse postale",
            "code postal", "dirección", "domicilio", "código postal", "endereço", "indirizzo", "адрес", "地址", "住所", "주소", "العنوان",
            "पता", "ঠিকানা", "kode pos", "posta kodu",
        ] },
    PersonalNames { kind: PersonalKind::BirthDate, parts: &["geburtsdatum", "dateofbirth", "birthdate"], alone: &["dob"],
        names: &[
            "birth date", "birthdate", "date of birth", "birthday", "day of birth", "year of birth", "geburtsdatum", "geburtstag", "date de naissance",
            "fecha de nacimiento", "data de nascimento", "data di nascita", "дата рождения", "дату рождения", "出生日期", "生日", "生年月日",
            "誕生日", "생년월일", "تاريخ الميلاد", "जन्म तिथि", "जन्मतिथि", "জন্ম তারিখ", "tanggal lahir", "doğum tarihi", "geboortedatum",
            "data urodzenia",
        ] },
    PersonalNames { kind: PersonalKind::NationalId,
        parts: &[
            "passportnumber", "socialsecurity", "personalausweis", "ausweisnummer", "reisepass", "steueridentifikation", "sozialversicherungsnummer",
        ],
        alone: &[
            "passport", "passports", "dni", "nie", "rg", "cnh", "ssn", "itin", "sin", "pasaporte", "passaporto", "passeport", "passaporte",
            "führerschein", "паспорт", "paspor", "pasaport", "paspoort", "curp",
        ],
        names: &[
            "ssn", "social security", "social insurance", "passport number", "passport no", "passport num", "passport id", "passport details",
            "national id", "national identity", "national insurance number", "identity card", "identity document", "government id", "id card number",
            "driver license", "driver licence", "drivers license", "drivers licence", "driver s license", "driver s licence", "driving license",
            "driving licence", "tax id", "tax number", "taxpayer id", "taxpayer number", "tax file number", "residence permit",
            "voter id", "nhs number", "medicare number", "birth certificate", "visa number", "steuer id", "steuernummer",
            "reisepassnummer", "reisepass", "ausweisnummer", "personalausweis", "sozialversicherungsnummer", "führerscheinnummer",
            "numéro de sécurité sociale", "sécurité sociale", "carte d identité", "carte nationale d identité", "numéro de passeport",
            "permis de conduire", "numéro fiscal", "número de pasaporte", "seguridad social", "documento de identidad", "carnet de identidad",
            "licencia de conducir", "permiso de conducir", "carteira de identidade", "carteira de motorista", "título de eleitor",
            "número do passaporte", "codice fiscale", "carta d identità", "patente di guida", "numero di passaporto", "паспортные данные",
            "номер паспорта", "паспорта", "водительское удостоверение", "удостоверение личности", "身份证", "身份證", "护照", "護照", "驾驶证", "驾照", "社保号",
            "パスポート番号", "旅券番号", "運転免許証", "免許証番号", "여권", "운전면허", "رقم الهوية", "الهوية الوطنية", "جواز السفر", "رقم الإقامة",
            "पासपोर्ट", "पैन कार्ड", "ড্রাইভিং লাইসেন্স", "জাতীয় পরিচয়পত্র", "পাসপোর্ট", "nomor paspor", "nomor induk kependudukan", "kimlik numarası",
            "kimlik no", "pasaport numarası", "rijbewijs", "dowód osobisty", "numer paszportu",
        ] },
    PersonalNames { kind: PersonalKind::BankAccount, parts: &["bankaccount", "kontonummer"], alone: &["rib", "iban", "bban"],
        names: &[
            "bank account", "bank details", "bank account number", "iban", "routing number", "sort code", "kontonummer", "bankverbindung",
            "bankkonto", "compte bancaire", "coordonnées bancaires", "cuenta bancaria", "número de cuenta", "clabe", "conta bancária",
            "número da conta", "chave pix", "conto corrente", "coordinate bancarie", "номер счёта", "номер счета", "банковский счёт", "банковский счет",
            "расчётный счёт", "银行账号", "银行账户", "银行帐号", "銀行帳號", "口座番号", "銀行口座", "계좌번호", "الحساب البنكي", "رقم الحساب", "बैंक खाता",
            "खाता संख्या", "ব্যাংক অ্যাকাউন্ট", "rekening bank", "nomor rekening", "hesap numarası", "banka hesabı", "rekeningnummer",
            "bankrekening", "numer konta", "konto bankowe",
        ] },
    PersonalNames { kind: PersonalKind::Card, parts: &["creditcard", "debitcard", "cardnumber", "kreditkarte"], alone: &[],
        names: &[
            "card number", "card no", "card num", "cc number", "cc num", "credit card", "debit card", "payment card", "bank card", "card details",
            "pan number", "primary account number", "kreditkarte", "kreditkartennummer", "kartennummer", "numéro de carte", "carte bancaire",
            "carte de crédit", "carte bleue", "tarjeta de crédito", "tarjeta de débito", "número de tarjeta", "número de la tarjeta",
            "cartão de crédito", "número do cartão", "carta di credito", "numero della carta", "numero di carta", "номер карты", "номер вашей карты",
            "банковская карта", "банковской карты", "кредитной карты", "信用卡", "卡号", "卡號", "银行卡", "カード番号", "クレジットカード", "카드번호", "신용카드", "رقم البطاقة",
            "بطاقة الائتمان", "कार्ड नंबर", "क्रेडिट कार्ड", "কার্ড নম্বর", "ক্রেডিট কার্ড", "nomor kartu", "kartu kredit", "kart numarası",
            "kredi kartı", "kaartnummer", "numer karty", "karta kredytowa",
        ] },
    PersonalNames { kind: PersonalKind::Health, parts: &["krankenversicherungsnummer", "vorerkrankung"],
        alone: &[
            "diagnosis", "diagnoses", "medication", "medications", "illness", "illnesses", "disease", "diseases", "disability", "disabilities",
            "pregnant", "pregnancy", "hiv", "prescription", "prescriptions", "krankheit", "krankheiten", "diagnose", "medikamente", "maladie",
            "maladies", "médicaments", "enfermedad", "enfermedades", "medicamentos", "doença", "doenças", "malattia", "malattie", "farmaci", "диагноз",
            "болезнь", "болезни", "заболевания", "лекарства", "penyakit", "hastalık", "hastalıklar", "ziekte", "ziektes", "medicijnen", "choroba", "choroby",
        ],
        names: &[
            "medical condition", "medical conditions", "medical history", "medical record", "medical records", "medical diagnosis", "medical information",
            "health condition", "health conditions", "health history", "health record", "health records", "your health status", "your health data",
            "your health information", "mental health", "chronic illness", "chronic disease", "blood type", "blood group", "health insurance number",
            "patient diagnosis", "patient id", "patient number", "your diagnosis", "your illness", "your illnesses", "your disease", "your diseases", "your medication",
            "your medications", "your symptoms", "current medication", "current medications", "medication do you", "medications do you",
            "medicine do you", "medicines do you", "illness do you", "vorerkrankungen", "gesundheitszustand", "gesundheitsdaten", "blutgruppe",
            "krankenversicherungsnummer", "krankengeschichte", "antécédents médicaux", "dossier médical", "groupe sanguin", "état de santé",
            "antecedentes médicos", "historial médico", "grupo sanguíneo", "estado de salud", "histórico médico", "tipo sanguíneo", "estado de saúde",
            "anamnesi", "gruppo sanguigno", "группа крови", "группу крови", "состояние здоровья", "ваш диагноз", "病史", "病歴", "疾病", "诊断", "血型", "用药", "健康状况",
            "健康状態", "診断名", "病名", "血液型", "服用中の薬", "병력", "질병", "질환", "혈액형", "복용", "المرض", "الأمراض", "التشخيص", "الأدوية", "فصيلة الدم",
            "التاريخ الطبي", "बीमारी", "रक्त समूह", "दवाइयाँ", "অসুস্থতা", "রক্তের গ্রুপ", "রোগের", "riwayat kesehatan", "riwayat penyakit",
            "golongan darah", "kan grubu", "bloedgroep", "gezondheidstoestand", "grupa krwi", "stan zdrowia",
        ] },
];

/// Words of [`identity_words`] that announce an identity number only together with its check digits: alone they are
/// called differently, or are words of a language.
const WITH_DIGITS: [&str; 15] = [
    // «said» without its blank.
    "sa id",
    "dansk",
    "swedish",
    "født",
    "sofi",
    "t.c.",
    "south african",
    "id number",
    "id no",
    "nigerian",
    "contribuinte",
    "my number",
    "personal code",
    "inn",
    "national number",
];

/// The words that announce the identity numbers of countries, in lower case.
pub fn identity_words() -> impl Iterator<Item = &'static str> {
    national::announcing().filter(|word| !WITH_DIGITS.contains(word))
}

/// Values by which a pattern shows what it is for: it matches one of a kind, and none of [`ORDINARY`].
const EXAMPLES: [(PersonalKind, &str); 8] = [
    (PersonalKind::NationalId, "123-45-6789"),
    (PersonalKind::NationalId, "123.456.789-09"),
    (PersonalKind::NationalId, "11010519491231002X"),
    (PersonalKind::BankAccount, "DE89370400440532013000"),
    (PersonalKind::BankAccount, "DE89 3704 0044 0532 0130 00"),
    (PersonalKind::Card, "4111111111111111"),
    (PersonalKind::Card, "4111 1111 1111 1111"),
    (PersonalKind::Card, "4111-1111-1111-1111"),
];

/// Values that a pattern for anything else may match as well.
const ORDINARY: [&str; 11] = [
    "a",
    "abc-def",
    "7",
    "2026",
    "123456",
    "1234567890",
    "2026-11-27",
    "550e8400-e29b-41d4-a716-446655440000",
    "12345678901234567890123456",
    "AB12CD34",
    "ana@example.com",
];

/// The kind of the values that an expression is made for, of which `matches` says which ones it matches.
pub fn kind_of_pattern(matches: impl Fn(&str) -> bool) -> Option<PersonalKind> {
    if ORDINARY.into_iter().any(&matches) {
        return None;
    }
    EXAMPLES.into_iter().find(|(_, example)| matches(example)).map(|(kind, _)| kind)
}
