//! Tells names of credentials from names of values that grant nothing although their words are the same: cursors
//! (`nextPageToken`), keys of records (`primary_key`, the `key` of an issue), ids of credentials (`key_id`), digests, and
//! what is said about a credential (`token_count`).

/// How many bytes of a text are searched for the name at its end.
const BEFORE: usize = 64;

/// Last words of names whose values are digests, versions or positions.
#[rustfmt::skip]
const DIGESTS: &[&str] = &[
    "checksum", "commit", "crc", "cursor", "digest", "etag", "fingerprint", "guid", "integrity", "kid", "md", "md5", "nextcursor", "revision",
    "sha", "sha1", "sha256", "sha384", "sha512", "thumbprint", "uuid",
];

/// Last words of names of what is said about a credential.
#[rustfmt::skip]
const ABOUT: &[&str] = &[
    "address", "alg", "algorithm", "alias", "arn", "budget", "count", "counts", "days", "description", "endpoint", "expiration", "expires", "expiry", "file",
    "filename", "format", "hint", "index", "issuer", "label", "length", "level", "limit", "limits", "max", "min", "mint", "name", "names", "path",
    "policy", "prefix", "provider", "required", "ring", "rotation", "scope", "scopes", "score", "size", "source", "status", "strength", "suffix", "symbol", "total", "ttl",
    "type", "types", "uri", "url", "usage", "used", "version", "versions",
];

/// Last words of names of moments and of persons.
const WHEN: [&str; 11] = [
    "at",
    "on",
    "by",
    "date",
    "time",
    "since",
    "until",
    "timestamp",
    "created",
    "updated",
    "attempts",
];

/// Words that make a token or a key one of a credential, also with other words behind them.
const OF_CREDENTIALS: [&str; 6] = ["password", "passwd", "email", "auth", "secret", "reset"];

/// Verbs between a name and its value.
const VERBS: [&str; 9] = ["is", "was", "are", "be", "to", "ist", "lautet", "est", "es"];

/// What a key or a token may be called at the end of its name.
#[rustfmt::skip]
const KEYS: &[&str] = &["key", "keys", "schlüssel", "sleutel", "klucz", "ключ", "密钥", "密鑰", "キー", "키"];
const TOKENS: &[&str] = &["tokens", "token", "jeton", "токен", "令牌", "トークン", "토큰"];
/// What a credential may be called, before what is said about it.
const CREDENTIALS: [&str; 13] = [
    "key",
    "keys",
    "token",
    "tokens",
    "secret",
    "secrets",
    "password",
    "passphrase",
    "credential",
    "credentials",
    "api",
    "access",
    "auth",
];

/// Words before `key` that make it the key of a record, or a key that its owner publishes.
#[rustfmt::skip]
const OF_RECORDS: &[&str] = &[
    "aggregate", "attribute", "blob", "board", "bucket", "business", "cache", "candidate", "child", "column", "component", "composite", "compound",
    "config", "correlation", "dedup", "dedupe", "deduplication", "entity", "entry", "end", "epic", "evaluated", "event", "experiment", "feature", "field",
    "file", "flag", "folder", "foreign", "group", "grouping", "hash", "header", "i18n", "idempotency", "index", "issue", "item", "label", "locale",
    "localization", "lookup", "map", "message", "metadata", "metric", "natural", "node", "object", "order", "ordering", "page", "parent", "partition",
    "path", "primary", "project", "prop", "property", "pub", "public", "publishable", "range", "react", "record", "row", "s3", "set", "setting", "shard",
    "sort", "sorting", "space", "sprint", "start", "style", "surrogate", "tag", "task", "team", "thread", "ticket", "translation", "unique", "variant",
    // German, Dutch, Polish, Russian, Chinese, Japanese, Korean.
    "primär", "fremd", "sortier", "partitions", "öffentlicher", "öffentliche", "öffentlichen", "idempotenz", "publieke", "primaire", "openbare",
    "publiczny", "główny", "публичный", "открытый", "первичный", "внешний", "主", "公", "公开", "公開", "分区", "排序", "缓存", "幂等", "主要",
    "パーティション", "ソート", "キャッシュ", "プライマリ", "기본", "공개", "파티션", "정렬", "캐시",
];

/// Words before `token` that make it a position in a list, a unit of text, or a guard against repetition.
#[rustfmt::skip]
const OF_LISTS: &[&str] = &[
    "cached", "change", "changes", "completion", "continuation", "continue", "cursor", "delta", "design", "ack", "fencing", "idempotency", "input", "last", "lease", "lexer", "list", "lock",
    "max", "min", "next", "nextpage", "num", "offset", "output", "page", "pagination", "paging", "position", "prev", "previous", "progress", "prompt",
    "reasoning", "resume", "resumption", "scroll", "skip", "special", "start", "starting", "stop", "sync", "syntax", "total", "watch",
    // The same in other languages.
    "seiten", "folgeseiten", "fortsetzungs", "pagina", "vervolg", "分页", "翻页", "下一页", "下页", "続き", "ページ", "次ページ", "次のページ", "継続",
    "페이지", "다음", "연속",
];

/// The name at the end of a text.
#[derive(Debug)]
struct EndName {
    /// The words of the name itself, in lower case.
    own: Vec<String>,
    /// The last word before it, behind a blank.
    before: Option<String>,
    /// Whether it is the name of a parameter of a URL or of a command.
    is_parameter: bool,
}

impl EndName {
    /// The name at the end of `text`, behind which its value stands.
    fn of(text: &str) -> Self {
        let from = text.ceil_char_boundary(text.len().saturating_sub(BEFORE));
        let text = text.get(from..).unwrap_or_default();
        let text = text.trim_end_matches(|c: char| !c.is_alphanumeric());
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let blank = |c: char| matches!(c, ' ' | '\t' | '\u{a0}' | '\u{3000}');
        let head = text.trim_end_matches(part);
        let name = text.get(head.len()..).unwrap_or_default();
        let is_parameter = head.ends_with(['?', '&']) || name.starts_with("--");
        let before = head.trim_end_matches(blank);
        let before =
            if before.len() < head.len() { words(word_at_end(before, part)).pop() } else { None };
        let own = words(name);
        // The name stands before the verb of a sentence.
        match (own.as_slice(), &before) {
            ([verb], Some(_)) if VERBS.contains(&verb.as_str()) => {
                Self::of(head.trim_end_matches(blank))
            }
            _ => Self { own, before, is_parameter },
        }
    }

    /// The last word of the name, and the one before it.
    fn last(&self) -> Option<(&str, Option<&str>)> {
        let (last, others) = self.own.split_last()?;
        let before = others.last().or(self.before.as_ref());
        Some((last, before.map(String::as_str)))
    }

    /// Whether it is `key` alone: that of a record or of an entry, but a service calls its credential so in an address.
    fn is_bare_key(&self) -> bool {
        self.last().is_some_and(|(last, before)| before.is_none() && matches!(last, "key" | "keys"))
    }

    /// Whether one of `heads` stands before one of `nouns` at the end of the name, as a word or within the same one.
    fn is_of(&self, nouns: &[&str], heads: &[&str]) -> bool {
        let Some((last, before)) = self.last() else { return false };
        // `password_change_token` changes a password.
        if self.own.iter().any(|word| OF_CREDENTIALS.contains(&word.as_str())) {
            return false;
        }
        // Within a word other words may stand before it: `nextpagetoken`.
        let ends = |text: &str| {
            heads.iter().any(|head| text == *head || head.len() > 3 && text.ends_with(head))
        };
        nouns.iter().filter_map(|noun| last.strip_suffix(noun)).any(|head| match before {
            Some(before) if head.is_empty() => heads.contains(&before),
            Some(_) | None => ends(head),
        })
    }

    /// Whether the last word says something about a credential that the word before it names.
    fn is_about(&self) -> bool {
        let Some((last, before)) = self.last() else { return false };
        if self.own.len() > 1 && WHEN.contains(&last) {
            return true;
        }
        let credential = |text: &str| CREDENTIALS.iter().any(|known| text.ends_with(known));
        let within = || ABOUT.iter().filter_map(|about| last.strip_suffix(about)).any(credential);
        ABOUT.contains(&last) && (self.own.len() > 1 || before.is_some_and(credential)) || within()
    }
}

/// The run of characters at the end of a text for which `part` holds.
fn word_at_end(text: &str, part: impl Fn(char) -> bool) -> &str {
    text.get(text.trim_end_matches(part).len()..).unwrap_or_default()
}

/// The words of a name, which signs, capital letters and numbers at their end separate.
fn words(name: &str) -> Vec<String> {
    let (mut words, mut before) = (Vec::<String>::new(), ' ');
    for c in name.chars() {
        let begins = !before.is_alphanumeric() || before.is_lowercase() && c.is_uppercase();
        if c.is_alphanumeric() {
            if begins {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        before = c;
    }
    // A number behind the name tells one of several such values from the others.
    let is_number = |word: &String| word.bytes().all(|byte| byte.is_ascii_digit());
    while words.len() > 1 && words.last().is_some_and(is_number) {
        words.pop();
    }
    words
}

/// Whether the name at the end of a text is that of a value which grants nothing.
pub(super) fn is_public(text: &str) -> bool {
    let name = EndName::of(text);
    let Some((last, _)) = name.last() else { return false };
    DIGESTS.contains(&last)
        || name.is_bare_key() && !name.is_parameter
        || name.is_of(KEYS, OF_RECORDS)
        || name.is_of(TOKENS, OF_LISTS)
        || name.is_about()
}

/// Whether the name at the end of a text is `key` alone.
pub(super) fn is_bare_key(text: &str) -> bool {
    EndName::of(text).is_bare_key()
}

/// Whether the name at the end of a text is that of the id of a credential, and not of a part of one.
pub(super) fn is_id(text: &str) -> bool {
    let name = EndName::of(text);
    let Some((last, before)) = name.last() else { return false };
    match last {
        "id" | "ids" => {
            !before.is_some_and(|before| before.ends_with("secret") || before.ends_with("session"))
        }
        _ => ["keyid", "tokenid", "credentialid", "keyids", "tokenids"]
            .iter()
            .any(|id| last.ends_with(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_id, is_public, words};

    #[test]
    fn a_name_has_the_words_that_a_person_reads() {
        for (name, expected) in [
            ("nextPageToken", vec!["next", "page", "token"]),
            ("X-Next_page.TOKEN", vec!["x", "next", "page", "token"]),
            ("s3Key", vec!["s3key"]),
            ("API_KEY_2", vec!["api", "key"]),
            ("2", vec!["2"]),
            ("", vec![]),
        ] {
            assert_eq!(words(name), expected, "{name}");
        }
    }

    #[test]
    fn what_grants_nothing_is_told_from_credentials_by_its_name() {
        for name in [
            "nextPageToken",
            "page_token",
            "the page token",
            "the page token is",
            "{\"cursor\": \"",
            "ETag: ",
            "key",
            "- key: ",
            "primary key",
            "public_key",
            "token_count",
            "tokenType",
            "sha256",
            "x-idempotency-key",
            "passwordChangedAt",
            "Primärschlüssel",
            "分页令牌",
            "페이지 토큰",
            "apikeyversion",
            "private_key_path",
            "nextpagetoken",
        ] {
            assert!(is_public(name), "{name}");
        }
        for name in [
            "token",
            "access_token",
            "api_key",
            "the key",
            "?key=",
            "&key=",
            "--key=",
            "password",
            "secret",
            "client_secret",
            "next password",
            "Schlüssel",
            "令牌",
            "the token is",
            "statuspage_key",
            "formbucket KEY",
            "password for this path",
            "",
        ] {
            assert!(!is_public(name), "{name}");
        }
        assert!(is_id("key_id") && is_id("accessKeyId") && is_id("token id: "));
        assert!(!is_id("secret_id") && !is_id("session_id") && !is_id("token"));
    }
}
