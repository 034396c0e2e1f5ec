//! Detects elicitation requests for a standing grant: a permission for everything, or for all later calls.
//!
//! Such an answer remains in effect unsupervised: agreeing to one call agrees to all others. Inspected are the
//! message and every name and text of the form.

use std::sync::LazyLock;

use json::Value;
use policy_core::base::hidden::Hidden;
use policy_core::base::work::WorkBudget;
use policy_core::subject::scope;

use super::wording::{EACH_WORD, KnownWord, Word, words};

/// Units per byte of a request for reading its members.
const READING: usize = 4;
/// Most other words between two steps of a phrase.
const BETWEEN: usize = 1;

/// Phrases that ask for a standing grant: one word of each step, in this order.
#[rustfmt::skip]
const PHRASES: &[&[&[&str]]] = &[
    &[&["always"], &["allow", "approve", "permit", "grant", "accept", "trust", "authorize", "authorise"]],
    &[&["allow", "approve", "permit", "grant", "trust", "authorize", "authorise"], &["always", "permanently", "indefinitely", "forever"]],
    &[&["remember"], &["decision", "choice", "answer", "approval", "consent", "permission", "authorization"]],
    &[&["not", "never", "don", "dont"], &["ask", "prompt", "confirm"], &["again"]],
    &[&["not", "never", "don", "dont", "no", "stop", "skip", "without"], &["ask", "asking", "further", "future"], &["confirmation", "permission", "approval", "consent", "again"]],
    &[&["auto"], &["approve", "allow", "accept", "grant"]],
    &[&["automatically"], &["approve", "allow", "grant"], &["request", "requests", "call", "calls", "tool", "tools", "action", "actions", "future"]],
    &[&["allow", "approve", "grant", "permit", "authorize", "authorise"], &["all", "any", "every"], &["request", "requests", "call", "calls", "tool", "tools", "action", "actions", "command", "commands", "operations", "permissions", "scopes", "future"]],
    &[&["all", "any", "every"], &["future", "later", "subsequent"], &["request", "requests", "call", "calls", "action", "actions", "tools", "commands", "operations", "uses", "sessions"]],
    &[&["full", "unrestricted", "unlimited", "permanent", "standing"], &["access", "permission", "permissions", "approval", "consent", "control", "authorization", "grant"]],
    &[&["offline"], &["access"]],
    &[&["from"], &["now"], &["on"]],
    &[&["trust"], &["this"], &["server", "tool", "app"]],
    &[&["immer", "dauerhaft", "künftig"], &["erlauben", "genehmigen", "zulassen", "vertrauen", "akzeptieren"]],
    &[&["nicht", "nie"], &["mehr", "wieder"], &["fragen", "nachfragen", "gefragt"]],
    &[&["toujours"], &["autoriser", "permettre", "accepter", "approuver"]],
    &[&["ne", "pas"], &["plus", "redemander"], &["demander", "jamais", "avenir"]],
    &[&["permitir", "autorizar", "aprobar", "aprovar", "aceptar"], &["siempre", "sempre"]],
    &[&["siempre", "sempre"], &["permitir", "autorizar", "aprobar", "aprovar", "consentire", "consenti", "autorizzare"]],
    &[&["no", "não", "non"], &["volver", "perguntar", "chiedere"], &["preguntar", "novamente", "più", "mais"]],
    &[&["consentire", "consenti", "autorizzare"], &["sempre"]],
    &[&["разрешать", "разрешить", "разрешай"], &["всегда"]],
    &[&["всегда"], &["разрешать", "разрешить"]],
    &[&["altijd"], &["toestaan"]],
    &[&["zawsze"], &["zezwalaj", "zezwól"]],
    &[&["her"], &["zaman"], &["izin"]],
];

/// Phrase that grants everything if it ends a clause: `Allow all`. With an object after it, the grant is for that
/// object: `Allow all guests to come?`
const EVERYTHING: [&[&str]; 2] = [
    &["allow", "approve", "grant", "permit", "authorize", "authorise", "accept", "trust"],
    &["all", "everything", "anything"],
];

/// Choices that turn a permission into a standing grant.
#[rustfmt::skip]
const LASTING: &[&str] = &["always", "forever", "permanently", "permanent", "indefinitely", "indefinite", "remember"];

/// Words that ask for a permission.
#[rustfmt::skip]
const PERMITTING: &[&str] = &[
    "allow", "approve", "permit", "grant", "permission", "permissions", "consent", "authorize", "authorise", "authorization", "access",
];

static KNOWN: LazyLock<Vec<Vec<Vec<KnownWord>>>> = LazyLock::new(|| {
    let step = |step: &&[&'static str]| step.iter().map(|word| KnownWord::new(word)).collect();
    PHRASES.iter().map(|phrase| phrase.iter().map(step).collect()).collect()
});

static ALL: LazyLock<Vec<Vec<KnownWord>>> = LazyLock::new(|| {
    let step = |step: &&[&'static str]| step.iter().map(|word| KnownWord::new(word)).collect();
    EVERYTHING.iter().map(step).collect()
});

/// Collects the findings in one request.
struct GrantScan<'a> {
    /// Whether the request asks for a standing grant.
    standing: bool,
    /// Whether the request asks for a permission.
    permission: bool,
    /// Whether a name or choice turns a permission into a standing grant.
    lasting: bool,
    budget: &'a WorkBudget,
}

/// Whether a request asks for a standing grant. If `budget` is exhausted afterwards, the request was not inspected
/// completely.
pub(super) fn is_asked_for(params: Value<'_>, budget: &WorkBudget) -> bool {
    if !budget.spend(params.raw().len().saturating_mul(READING)) {
        return true;
    }
    let mut reading = GrantScan { standing: false, permission: false, lasting: false, budget };
    if let Some(message) = params.get("message").and_then(Value::as_str) {
        reading.text(&message);
    }
    if let Some(schema) = params.get("requestedSchema") {
        reading.value(schema);
    }
    reading.standing || reading.permission && reading.lasting
}

/// The same in languages whose words no space separates.
const UNSPACED: [&str; 12] = [
    "始终允许",
    "总是允许",
    "一直允许",
    "永远允许",
    "不再询问",
    "始終允許",
    "常に許可",
    "今後確認しない",
    "次回から確認しない",
    "항상 허용",
    "다시 묻지",
    "السماح دائم",
];

impl GrantScan<'_> {
    /// Reads every name and text of a form.
    ///
    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn value(&mut self, value: Value<'_>) {
        if self.standing || self.budget.is_exhausted() {
            return;
        }
        if let Some(text) = value.as_str() {
            self.text(&text);
        }
        for (name, member) in value.members() {
            self.text(&name);
            self.value(member);
        }
        for item in value.items() {
            self.value(item);
        }
    }

    fn text(&mut self, text: &str) {
        let edge = |c: char| !c.is_alphanumeric() && c != '*';
        let mut scopes = text.split_whitespace().map(|word| word.trim_matches(edge));
        self.standing |= scopes.any(scope::is_standing_in_text);
        self.standing |= UNSPACED.iter().any(|phrase| text.contains(phrase));
        let words = words(text, self.budget);
        if !self.budget.spend(words.len().saturating_mul(EACH_WORD)) {
            return;
        }
        self.standing |= (0..words.len()).any(|at| {
            let rest = words.get(at..).unwrap_or_default();
            KNOWN.iter().any(|phrase| begins(rest, phrase))
        });
        let has_all = words.windows(2).any(is_all);
        // The ends of clauses are only visible in the text, not in its words.
        self.standing |= has_all && text.split(ends_clause).any(|clause| self.ends_in_all(clause));
        let is = |word: &Word, list: &[&str]| list.iter().any(|known| word.is(known));
        self.permission |= words.iter().any(|word| is(word, PERMITTING));
        // In a sentence these words have many meanings; alone, or with one other word, they are a choice.
        self.lasting |= words.len() <= 2 && words.iter().any(|word| is(word, LASTING));
    }
}

impl GrantScan<'_> {
    /// Whether the last words of a clause grant everything.
    fn ends_in_all(&self, clause: &str) -> bool {
        words(clause, self.budget).last_chunk::<2>().is_some_and(|pair| is_all(pair))
    }
}

/// Whether these two words grant everything.
fn is_all(pair: &[Word]) -> bool {
    let is =
        |(word, step): (&Word, &Vec<KnownWord>)| step.iter().any(|known| word.reads_like(known));
    pair.len() == ALL.len() && pair.iter().zip(&*ALL).all(is)
}

/// Whether a clause ends at this character.
fn ends_clause(c: char) -> bool {
    !(c.is_alphanumeric() || c.is_whitespace() || matches!(c, '_' | '-' | '\'' | '\u{2019}'))
        && Hidden::of(c).is_none()
        || matches!(c, '\n' | '\r')
}

/// Whether these words begin with the phrase.
fn begins(words: &[Word], phrase: &[Vec<KnownWord>]) -> bool {
    let Some((first, steps)) = phrase.split_first() else { return false };
    let is = |word: &Word, step: &[KnownWord]| step.iter().any(|known| word.reads_like(known));
    if !words.first().is_some_and(|word| is(word, first)) {
        return false;
    }
    let mut at = 1;
    for step in steps {
        let mut near = words.get(at..).unwrap_or_default().iter().take(BETWEEN + 1);
        let Some(n) = near.position(|word| is(word, step)) else { return false };
        at += n + 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::tests::{judged, one_field as field};
    use super::is_asked_for;
    use serde_json::json;

    fn asks(form: &serde_json::Value) -> bool {
        judged(form, is_asked_for)
    }

    #[test]
    fn questions_for_a_standing_grant_are_known_by_what_they_say() {
        for message in [
            "Always allow this server to write files?",
            "Allow it always?",
            "Remember this decision.",
            "Remember my choice",
            "Do not ask again",
            "Don't ask me again",
            "Never ask again.",
            "Continue without further confirmation?",
            "Auto-approve what it does?",
            "Approve all future requests of this server?",
            "Grant full access to your mailbox?",
            "This needs offline access.",
            "The scope is Mail.ReadWrite.All.",
            "It asks for `offline_access`.",
            "It asks for https://graph.microsoft.com/.default",
            "Alw\u{430}ys allow it?",
            "Allow all",
            "Allow all?",
            "May we? Approve all",
            "Approve all: the server goes on then.",
            "Allow everything.\nThe server needs it.",
            "All\u{43e}w \u{430}ll?",
            "ALLOW ALL (recommended)",
            "Grant unlimited access to your mailbox?",
        ] {
            assert!(asks(&json!({ "message": message })), "{message}");
        }
        for name in [
            "alwaysAllow",
            "always_allow",
            "rememberChoice",
            "dontAskAgain",
            "autoApprove",
            "allowAll",
            "approve_all",
        ] {
            assert!(asks(&field(name, &json!({ "type": "boolean" }))), "{name}");
        }
        for said in [
            json!({ "type": "string", "enum": ["Allow once", "Always allow"] }),
            json!({ "type": "string", "oneOf": [{ "const": "a", "title": "Do not ask again" }] }),
            json!({ "type": "boolean", "title": "Remember this decision" }),
            json!({ "type": "string", "enum": ["No", "Allow all"] }),
            json!({ "type": "string", "enum": ["no", "approveAll"] }),
            json!({ "type": "string", "default": "full_access" }),
        ] {
            assert!(asks(&field("value", &said)), "{said}");
        }
        let choice = json!({ "type": "string", "enum": ["once", "always"] });
        let mut form = field("how", &choice);
        form["message"] = json!("Allow the tool to read the folder?");
        assert!(asks(&form));
    }

    #[test]
    fn questions_about_one_thing_are_asked() {
        for message in [
            "Delete the file `a.txt`?",
            "Allow this call?",
            "Do you want to continue?",
            "Which of all the tickets do you mean?",
            "Remember to save your work. Continue?",
            "Should guests be allowed to invite others?",
            "Ask again later?",
            "Is access to all floors needed for the visitor?",
            "Which files (src/*)?",
            "Not sure? You can ask your manager.",
            "Allow all guests to invite others?",
            "Approve all three invoices of March?",
            "Does the gym allow dogs at all?",
            "Does the contract say who may approve anything of the kind?",
            "Is it all?",
            "Was everything approved?",
            "How many calls does the plan allow? All of them are counted.",
        ] {
            assert!(!asks(&json!({ "message": message })), "{message}");
        }
        for (name, said) in [
            ("reminder", json!({ "type": "string", "enum": ["once", "always", "never"] })),
            ("all", json!({ "type": "boolean", "title": "All day" })),
            ("access", json!({ "type": "string", "title": "How visitors get in" })),
            ("rememberMe", json!({ "type": "boolean" })),
            ("allowAllDayEvents", json!({ "type": "boolean" })),
            ("days", json!({ "type": "string", "enum": ["all", "none"] })),
        ] {
            assert!(!asks(&field(name, &said)), "{name}");
        }
    }

    #[test]
    fn a_form_of_many_words_is_judged_within_the_budget_of_its_length() {
        for word in ["ab1 ", "1 ", "a ", "é ", "allow ", "not ask ", "аllow "] {
            let text = word.repeat(60 * 1024 / word.len());
            let said = json!({ "type": "string", "description": text });
            assert!(!asks(&field("value", &said)), "{word}");
        }
    }
}
