//! What looking at hostile texts costs: never worse than in proportion to their length (vector PV-37).
//!
//! Work is counted, not timed: every detector spends units from a budget, and the units of a text that
//! is 64 times as long may be no more than four times as many for each byte.

#![expect(clippy::unwrap_used, reason = "a test says with a panic that it fails")]

mod texts;

use std::fmt::Write as _;

use detection::content::{ChosenPart, ContentPolicy, ContentProfile, Direction};
use json::{Document, JsonBounds, write_string};
use policy_core::base::work::{USUAL_MOST, WorkBudget};
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;

use self::texts::{PARTS, nested, repeated};

/// What is looked at by the usual policy, for a caller whom another server showed a number.
fn contents() -> (ContentPolicy, ServerName) {
    let server = |name: &str| ServerName::parse(name).unwrap();
    let results = serde_json::from_str(r#"{"identifiers":"audit"}"#).unwrap();
    let shows =
        ContentProfile { servers: vec![Pattern::new("crm")], results, ..ContentProfile::default() };
    let servers = vec![Pattern::new("*")];
    let profile = ContentProfile { servers, fence: true, ..ContentProfile::default() };
    let contents = ContentPolicy::new(vec![shows, profile]);
    let shown =
        Document::parse(r#""Card 4539 1488 0343 6467""#.to_owned().into(), &JsonBounds::ANSWER);
    let (shown, budget) = (shown.unwrap(), WorkBudget::unlimited());
    let seen = contents.look(&server("crm"), Direction::Result, "ana", shown.root(), &budget);
    assert!(seen.changed.is_none(), "it was shown");
    (contents, server("s"))
}

/// The units that looking at a text costs in each direction, in all.
fn cost(text: &str) -> u64 {
    let (contents, server) = contents();
    let mut quoted = Vec::new();
    write_string(&mut quoted, text);
    let quoted = String::from_utf8(quoted).unwrap();
    let result = format!(r#"{{"content":[{{"type":"text","text":{quoted}}}]}}"#);
    let document = Document::parse(result.into(), &JsonBounds::ANSWER).unwrap();
    let budget = WorkBudget::unlimited();
    for direction in [Direction::Result, Direction::Argument] {
        let _seen = contents.look(&server, direction, "ana", document.root(), &budget);
    }
    budget.spent()
}

/// The parts of which a text that is 64 times as long costs more than four times as much for each byte.
fn worse(make: fn(&str, usize) -> String) -> String {
    let (short, long) = (16 * 1024, 1024 * 1024);
    let mut worse = String::new();
    for part in PARTS {
        let each = |bytes: usize| {
            let text = make(part, bytes);
            #[expect(clippy::cast_precision_loss, reason = "a ratio")]
            let each = cost(&text) as f64 / text.len() as f64;
            each
        };
        let (few, many) = (each(short), each(long));
        if many > 4.0 * few {
            writeln!(worse, "{part:?}: {few:.0} and {many:.0} units a byte").unwrap();
        }
    }
    worse
}

#[test]
fn a_repeated_text_costs_in_proportion_to_its_length() {
    assert_eq!(worse(repeated), "");
}

#[test]
fn a_nested_text_costs_in_proportion_to_its_length() {
    assert_eq!(worse(nested), "");
}

/// The units for each byte that arguments cost which are made of many short pieces.
fn cost_of_pieces(piece: &str, between: &str, bytes: usize) -> u64 {
    let (contents, server) = contents();
    let count = bytes / (piece.len() + between.len() + 8);
    let arguments: Vec<String> = (0..count).map(|n| format!("{piece}{between}{n:06}\"")).collect();
    let text = format!("[{}]", arguments.join(","));
    let length = u64::try_from(text.len()).unwrap();
    let document = Document::parse(text.into(), &JsonBounds::ANSWER).unwrap();
    let budget = WorkBudget::unlimited();
    let _seen = contents.look(&server, Direction::Argument, "ana", document.root(), &budget);
    budget.spent() / length
}

#[test]
fn many_short_pieces_cost_in_proportion_to_their_number() {
    for (piece, between) in [
        ("\"4539", ""),
        ("\"", "1488 0343 "),
        ("\"Z2hwX2FC", "/"),
        ("\"a", "\\\\"),
        ("\"%41", ""),
        ("\"Z2hw ", "Z2hw,"),
        ("\"6768", "&6768 "),
        ("\" Z2hw", "\\n"),
    ] {
        let (few, many) =
            (cost_of_pieces(piece, between, 16 * 1024), cost_of_pieces(piece, between, 1 << 20));
        assert!(many <= 4 * few, "{piece}: {few} and {many} units a byte");
    }
}

/// The units for each byte that one message costs which has many parts.
fn cost_of_parts(piece: &str, bytes: usize) -> u64 {
    let (contents, server) = contents();
    let text = piece.repeat(64 / piece.len());
    let members: Vec<String> = (0..bytes / 160).map(|n| format!("\"{n:08}\":\"{text}\"")).collect();
    let members = format!("{{{}}}", members.join(","));
    let document = Document::parse(members.into(), &JsonBounds::ANSWER).unwrap();
    let members: Vec<_> = document.root().members().collect();
    let texts: Vec<_> = members.iter().filter_map(|(_, member)| member.as_str()).collect();
    let mut parts = vec![ChosenPart::Members(document.root())];
    parts.extend(members.iter().map(|(name, member)| ChosenPart::Member(name, *member)));
    parts.extend(texts.iter().map(|text| ChosenPart::Text(text)));
    parts.extend(texts.iter().map(|text| ChosenPart::Trace(text)));
    let budget = WorkBudget::unlimited();
    let _seen = contents.look_together(&server, "ana", &parts, &budget);
    budget.spent() / u64::try_from(bytes).unwrap()
}

#[test]
fn many_parts_of_one_message_cost_in_proportion_to_their_length() {
    for piece in ["4539 ", "1488 0343 ", "Z2hw ", "6768&", "http://a/4539", "a=4539,", "%41"] {
        let (few, many) = (cost_of_parts(piece, 16 * 1024), cost_of_parts(piece, 1 << 20));
        assert!(few > 0 && many <= 4 * few, "{piece}: {few} and {many} units a byte");
    }
}

#[test]
fn ordinary_text_costs_a_fraction_of_what_it_may() {
    let prose =
        "The report lists every build of the last week, with the time it took and who began it.\n";
    let code =
        "fn main() {\n    let total: usize = parts.iter().map(|part| part.len()).sum();\n}\n";
    for text in [prose, code] {
        let text = repeated(text, 64 * 1024);
        let each = cost(&text) / text.len() as u64;
        assert!(each < 64, "{each} units a byte");
    }
}

#[test]
fn what_costs_more_than_it_may_is_blocked_and_says_so() {
    let (contents, server) = contents();
    let text = repeated("password=x1y2z3w4 ", 1 << 20);
    let text = format!(r#"{{"text":"{text}"}}"#);
    let document = Document::parse(text.into(), &JsonBounds::ANSWER).unwrap();
    let look = |budget: &WorkBudget| {
        contents.look(&server, Direction::Result, "ana", document.root(), budget)
    };
    let blocked = look(&WorkBudget::new(1 << 20)).blocked.unwrap();
    assert_eq!(blocked.detector.name(), "inspection-budget");
    assert!(look(&WorkBudget::new(USUAL_MOST)).blocked.is_none());
}
