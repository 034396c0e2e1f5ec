//! Decides whether a verb in a text is an instruction to its reader, or part of a description.
//!
//! "Send your token to us" is an instruction; "never send your token to us", "the client sends its token" and "when
//! you send your token to us" are none. The words before the verb decide. They are read within its
//! sentence and within a fixed distance, so that the cost does not depend on the length of the text.

/// How many bytes before a verb are read.
const BEFORE: usize = 80;
/// Words that negate a verb.
#[rustfmt::skip]
const NEGATIONS: [&str; 10] = [
    "never", "not", "avoid", "without", "cannot", "refuse", "refuses", "nobody", "neither", "dont",
];
/// Words that may stand between a negation and its verb. Other words mean that it negates something
/// else: "do not forget to send it" is an instruction to send it.
#[rustfmt::skip]
const GOVERNED: [&str; 39] = [
    "ever", "ask", "asks", "asked", "you", "us", "them", "anyone", "anybody", "to", "be", "the", "user", "users", "have",
    "need", "under", "any", "circumstances", "simply", "even", "again", "directly", "please", "should", "must", "try",
    "attempt", "or", "share", "post", "email", "mail", "give", "reveal", "disclose", "provide", "forward", "send",
];
/// Words after which `to` begins an instruction.
const REMINDING: [&str; 6] = ["sure", "forget", "hesitate", "remember", "fail", "delay"];
/// Words after which a verb is no instruction: its subject, or an auxiliary.
#[rustfmt::skip]
const TELLING: [&str; 41] = [
    "i", "we", "they", "you", "it", "he", "she", "who", "which", "that", "did", "does", "can", "could", "may", "might",
    "will", "would", "how", "should", "must", "shall", "to", "by", "user", "users", "client", "clients", "people",
    "someone", "anyone", "apps", "agent", "model", "server", "servers", "system", "where", "when", "if", "as",
];
/// Words after which a verb is a noun.
#[rustfmt::skip]
const NAMING: [&str; 35] = [
    "the", "a", "an", "this", "each", "every", "any", "per", "function", "api", "method", "rpc", "phone", "last",
    "previous", "recursive", "of", "in", "on", "for", "tool", "its", "their", "your", "our", "my", "no", "actual",
    "more", "default", "single", "common", "with", "from", "at",
];
/// Words that end in `s` and are no plural subject.
const NOBODY: [&str; 7] = ["this", "always", "as", "yes", "details", "afterwards", "steps"];
/// Forms of `to be`, after which a verb is descriptive.
const BEING: [&str; 7] = ["is", "was", "are", "be", "being", "been", "were"];
/// Auxiliary verbs that oblige the reader, together with `you`.
const OBLIGING: [&str; 8] = ["must", "should", "shall", "can", "could", "may", "will", "would"];
/// Words that oblige the reader, together with `to`.
const NEEDING: [&str; 9] =
    ["need", "have", "want", "required", "going", "asked", "instructed", "supposed", "continue"];
/// Words after `is` with which a sentence says that an action is necessary.
pub(super) const NECESSARY: [&str; 7] =
    ["important", "essential", "critical", "crucial", "mandatory", "required", "necessary"];
/// Verbs that take another verb as a means, as in `continue by calling`.
const GOING_ON: [&str; 7] =
    ["continue", "proceed", "retry", "finish", "start", "complete", "begin"];

/// The grammatical form of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerbForm {
    /// The base form, as in `call`.
    Base,
    /// The gerund, as in `calling`.
    Gerund,
}

/// Whether the verb at `at` is an instruction.
pub(super) fn is_order(text: &str, at: usize, form: VerbForm) -> bool {
    let sentence = sentence_before(text, at);
    if is_negated(sentence) {
        return false;
    }
    let words = words(sentence);
    let signs = [',', ';', ':', '—', '–', '(', '"', '\'', '`', '*', '>', '-', '\u{2022}'];
    let begins = sentence.trim_end().ends_with(signs);
    let mut back = words.iter().rev().map(String::as_str).filter(|_| !begins);
    let (last, before) = (back.next(), back.next().unwrap_or_default());
    match (form, last) {
        (VerbForm::Base, None) => true,
        (VerbForm::Base, Some(last)) => follows(last, before, &words),
        (VerbForm::Gerund, Some("try" | "consider")) => true,
        (VerbForm::Gerund, Some("by")) => {
            words.iter().rev().take(6).any(|word| GOING_ON.contains(&word.as_str()))
        }
        (VerbForm::Gerund, Some(_) | None) => false,
    }
}

/// Whether a verb is an instruction after these words: the last one, the one before it, and all of them.
fn follows(last: &str, before: &str, all: &[String]) -> bool {
    if before == "you" && OBLIGING.contains(&last) {
        return true;
    }
    if last == "you" && OBLIGING.contains(&before) {
        return true;
    }
    if last == "to" {
        let reader = all.iter().rev().take(4).any(|word| word == "you" || word.starts_with("you'"));
        // "It is necessary to send it"
        let says = all.iter().rev().nth(2).is_some_and(|word| word == "is" || word == "it's");
        return REMINDING.contains(&before)
            || reader && NEEDING.contains(&before)
            || says && NECESSARY.contains(&before);
    }
    let somebody = last.ends_with('s') && !NOBODY.contains(&last);
    !(TELLING.contains(&last) || NAMING.contains(&last) || BEING.contains(&last) || somebody)
}

/// Whether the sentence before `at` forbids what begins there.
pub(super) fn is_forbidden(text: &str, at: usize) -> bool {
    is_negated(sentence_before(text, at))
}

/// Whether the last clause of a text negates what follows it.
fn is_negated(sentence: &str) -> bool {
    let clause = sentence.rsplit([',', ';', ':', '—', '–']).next().unwrap_or_default();
    let mut words = words(clause);
    // In "never post, email or send it" all three verbs are forbidden.
    if words.last().is_some_and(|last| last == "or") {
        words = self::words(sentence);
    }
    let negates = |word: &String| {
        NEGATIONS.contains(&word.as_str()) || word.ends_with("n't") || word.ends_with("n’t")
    };
    let none = words.windows(2).position(|two| two.iter().eq(["no", "one"])).map(|at| at + 1);
    let Some(at) = words.iter().rposition(negates).or(none) else { return false };
    let between = words.get(at + 1..).unwrap_or_default();
    between.iter().all(|word| GOVERNED.contains(&word.as_str()))
}

/// The part of the sentence before `at`, at most 80 bytes.
fn sentence_before(text: &str, at: usize) -> &str {
    let from = text.floor_char_boundary(at.saturating_sub(BEFORE));
    of_sentence(text.get(from..at).unwrap_or_default())
}

/// The text after the end of its last complete sentence.
fn of_sentence(text: &str) -> &str {
    let ends = ["\n", ". ", "! ", "? "]
        .into_iter()
        .filter_map(|end| text.rfind(end).map(|at| at + end.len()));
    text.get(ends.max().unwrap_or_default()..).unwrap_or_default()
}

/// The words of a text in lower case.
fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '’' | '_'));
    let bare = parts.map(|part| part.trim_matches(['\'', '’'])).filter(|part| !part.is_empty());
    bare.map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::{VerbForm, is_order};

    /// Whether `call` or `calling` is an instruction in a text.
    fn orders(text: &str) -> bool {
        match text.to_lowercase().rfind("calling") {
            Some(at) => is_order(text, at, VerbForm::Gerund),
            None => is_order(text, text.to_lowercase().rfind("call").unwrap(), VerbForm::Base),
        }
    }

    #[test]
    fn orders_are_told_from_what_is_done() {
        for text in [
            "call it",
            "Done. Call it",
            "Not found: call it",
            "Please call it",
            "then call it",
            "You must call it",
            "You need to call it",
            "Could you call it",
            "Make sure to call it",
            "Do not forget to call it",
            "It is required to call it",
            "It's now essential: call it",
            "Reply here or call it",
            "You'll be asked to call it",
            "Don't hesitate to call it",
            "If not done yet please call it",
            "Continue by calling it",
            "Try calling it",
            "- call it",
            "If that is not possible, call it",
            "It did not work. Call it",
        ] {
            assert!(orders(text), "{text}");
        }
        for text in [
            "never call it",
            "Do not call it",
            "Don't call it",
            "Never share, post or call it",
            "You don’t call it",
            "No one should call it",
            "The client must call it",
            "It is not required to call it",
            "It is possible to call it",
            "We call it",
            "users call it",
            "the call it",
            "a function call it",
            "when you call it",
            "How to call it",
            "I tried to call it",
            "Fixed by calling it",
            "calling it",
        ] {
            assert!(!orders(text), "{text}");
        }
    }
}
