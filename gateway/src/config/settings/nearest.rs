//! Finds the known name that was probably meant by another one, for suggestions.

/// Fewest letters that stand for a word that begins with them.
const PREFIX: usize = 3;
/// The distance between a name and the same name with one word more.
const WORD: usize = 3;

/// The closest of the `known` names, if it differs from `text` little. Upper and lower case are the same. A word of a
/// name (`response` in `responseTimeout`) may be written as its first letters.
pub fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.map(|known| (distance(text, known), known));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + text.len() / 4).then_some(near)
}

/// The number of letters in which two names differ, where a word that is cut short counts as one letter.
fn distance(one: &str, other: &str) -> usize {
    let letters = strsim::damerau_levenshtein(&one.to_lowercase(), &other.to_lowercase());
    letters.min(distance_of_words(&words(one), &words(other)))
}

/// The words of a name in camel case, or with other characters between its words, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in name.chars() {
        if c.is_alphanumeric() {
            match words.last_mut() {
                Some(word)
                    if before.is_alphanumeric() && (!c.is_uppercase() || before.is_uppercase()) =>
                {
                    word.extend(c.to_lowercase());
                }
                Some(_) | None => words.push(c.to_lowercase().collect()),
            }
        }
        before = c;
    }
    words
}

/// The distance between two lists of words: each word is replaced, left out or added.
fn distance_of_words(one: &[String], other: &[String]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).map(|n| n * WORD).collect();
    for (n, word) in one.iter().enumerate() {
        let mut next = vec![(n + 1) * WORD];
        let pairs = row.iter().zip(row.iter().skip(1)).zip(other);
        for ((replaced, left_out), theirs) in pairs {
            let added = next.last().map_or(WORD, |before| before + WORD);
            let replaced = replaced + distance_of_word(word, theirs);
            next.push(replaced.min(left_out + WORD).min(added));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// The distance between two words.
fn distance_of_word(one: &str, other: &str) -> usize {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    match long.strip_prefix(short) {
        Some("") => 0,
        Some(_) if short.len() >= PREFIX => 1,
        Some(_) | None => strsim::damerau_levenshtein(one, other),
    }
}

#[cfg(test)]
mod tests {
    use super::{nearest, words};

    /// The keys of a mapping, by the name of its schema.
    fn keys(of: &str) -> Vec<String> {
        let schema = crate::config::settings::schema();
        let keys = schema.pointer(&format!("/$defs/{of}/properties")).unwrap();
        keys.as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn what_is_meant_is_found_although_a_word_is_cut_short_or_misspelt() {
        for (of, written, meant) in [
            ("RawLimits", "respTimeout", Some("responseTimeout")),
            ("RawLimits", "reqTimeout", Some("requestTimeout")),
            ("RawLimits", "connTimeout", Some("connectTimeout")),
            ("RawLimits", "responceTimeout", Some("responseTimeout")),
            ("RawLimits", "responseTimeoutSeconds", Some("responseTimeout")),
            ("RawLimits", "request_timeout", Some("requestTimeout")),
            ("RawLimits", "listTimout", Some("listTimeout")),
            ("RawLimits", "drainTimeoutMs", Some("drainTimeout")),
            ("RawLimits", "respMem", Some("responseMemory")),
            ("RawLimits", "subMemory", Some("subscriptionMemory")),
            ("RawLimits", "sessionPerCaller", Some("sessionsPerCaller")),
            ("RawLimits", "inflight", Some("inFlight")),
            ("RawLimits", "sendQueueSize", Some("sendQueue")),
            ("RawLimits", "readTimeout", None),
            ("RawLimits", "foo", None),
            ("RawServer", "workingDir", Some("workingDirectory")),
            ("RawServer", "serverReq", Some("serverRequests")),
            ("RawServer", "transprot", Some("transport")),
            ("RawServer", "environment", Some("env")),
            ("RawServer", "cwd", None),
            ("RawListener", "addr", Some("address")),
            ("RawListener", "auth", Some("authentication")),
            ("RawListener", "public-url", Some("publicUrl")),
            ("RawHttp2", "maxConcStreams", Some("maxConcurrentStreams")),
            ("RawHttp2", "connWindow", Some("connectionWindow")),
            ("RawIssuer", "keyRefresh", Some("keyRefreshInterval")),
        ] {
            let known = keys(of);
            let near = nearest(written, known.iter().map(String::as_str));
            assert_eq!(near, meant, "{of}: {written}");
        }
    }

    #[test]
    fn a_name_is_split_into_words() {
        for (name, split) in [
            ("responseTimeout", &["response", "timeout"][..]),
            ("public-url", &["public", "url"]),
            ("maxHTTP2", &["max", "http2"]),
            ("", &[]),
        ] {
            assert_eq!(words(name), split, "{name}");
        }
    }
}
