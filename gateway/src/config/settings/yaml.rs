//! YAML with places: every value knows the bytes it was written in.
//!
//! Only what a configuration needs: one document of mappings, sequences and scalars in the core
//! schema of YAML 1.2. Tags are refused; an alias repeats its anchor, within a budget.

use std::collections::BTreeMap;
use std::ops::Range;

use policy::pointer::unescaped;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use serde_json::{Map, Number, Value};

use super::problem::Problem;

/// Longest file, in bytes. What is read of it takes time and memory in proportion.
const BYTES: usize = 16 * 1024 * 1024;
/// Longest file that a program has written, in bytes.
const MANY: usize = 64 * 1024 * 1024;
/// Most bytes that the aliases of one file repeat; each value counts as one byte more than its text.
const REPEATED: usize = 1024 * 1024;
/// Mappings and sequences inside each other.
const DEPTH: usize = 32;
/// Most problems of one file: who mends these reads it again.
const PROBLEMS: usize = 100;
/// Characters of a line between two whose places are remembered.
const STEP: usize = 64;

/// What is said of a line that does not belong to the mapping around it.
const DEEPER: &str = "this line is not indented as the keys beside it are";
/// What is done about a key at the wrong depth, and about a value with a colon in it.
const LEVEL: &str = "give it the same indentation as the keys beside it; a value with `: ` in it is written in quotes";

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// Bytes of the file.
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Scalar(Scalar),
    Sequence(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Not quoted: it may be a number, a boolean or null.
    pub(super) plain: bool,
    /// A variable was put in: it is a string where a string is wanted.
    pub(super) substituted: bool,
}

/// Parses `text`.
pub(super) fn parse(text: &str) -> Result<Node, Vec<Problem>> {
    parse_within(text, BYTES)
}

/// Parses a `text` that a program has written, and that may be large.
pub(super) fn parse_large(text: &str) -> Result<Node, Vec<Problem>> {
    parse_within(text, MANY)
}

fn parse_within(text: &str, bytes: usize) -> Result<Node, Vec<Problem>> {
    if text.len() > bytes {
        let message = format!("the file has {} bytes, and at most {bytes} are read", text.len());
        let help = "say the same in less: a pattern, or a group, takes the place of many names";
        return Err(vec![Problem::new(0..0, message, help)]);
    }
    let mut builder = Builder {
        places: Places::new(text),
        stack: Vec::new(),
        anchors: BTreeMap::new(),
        root: None,
        repeated: 0,
        stopped: false,
        problems: Vec::new(),
    };
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => builder.event(event, span),
            Err(error) => {
                builder.problems.push(builder.places.not_yaml(&error));
                break;
            }
        }
        if builder.stopped || builder.problems.len() >= PROBLEMS {
            break;
        }
    }
    match (builder.root, builder.problems.is_empty()) {
        (Some(root), true) => Ok(root),
        (None, true) => {
            let help = "`portcullis init` writes one to begin with, where there is none: remove this one first";
            Err(vec![Problem::new(0..0, "the file is empty", help)])
        }
        (_, false) => Err(builder.problems),
    }
}

impl Node {
    /// The JSON of this value.
    pub(super) fn json(&self) -> Value {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.json(),
            Kind::Sequence(items) => items.iter().map(Self::json).collect(),
            Kind::Mapping(members) => {
                let members = members.iter().map(|(key, node)| (key.text.clone(), node.json()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// The value a JSON Pointer leads to.
    pub(super) fn at_mut(&mut self, pointer: &str) -> Option<&mut Self> {
        segments(pointer).try_fold(self, |node, segment| match &mut node.kind {
            Kind::Scalar(_) => None,
            Kind::Sequence(items) => items.get_mut(segment.parse::<usize>().ok()?),
            Kind::Mapping(members) => {
                members.iter_mut().find(|(key, _)| key.text == segment).map(|(_, node)| node)
            }
        })
    }

    /// Where a JSON Pointer leads to: the value, or the nearest thing around it that exists.
    pub(super) fn place(&self, pointer: &str) -> Range<usize> {
        let mut node = self;
        for segment in segments(pointer) {
            let Some(child) = node.child(&segment) else { break };
            node = child;
        }
        node.span.clone()
    }

    /// The item or the member that a segment of a pointer names.
    fn child(&self, segment: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Scalar(_) => None,
            Kind::Sequence(items) => items.get(segment.parse::<usize>().ok()?),
            Kind::Mapping(members) => {
                members.iter().find(|(key, _)| key.text == segment).map(|(_, node)| node)
            }
        }
    }

    /// The value that a JSON Pointer leads to.
    pub(super) fn node(&self, pointer: &str) -> Option<&Self> {
        segments(pointer).try_fold(self, |node, segment| node.child(&segment))
    }

    /// Where every scalar is written that is at a JSON Pointer or below.
    pub(super) fn scalars(&self, pointer: &str) -> std::vec::IntoIter<Range<usize>> {
        let mut found = Vec::new();
        if let Some(node) = self.node(pointer) {
            node.collect_scalars(&mut found);
        }
        found.into_iter()
    }

    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn collect_scalars(&self, found: &mut Vec<Range<usize>>) {
        match &self.kind {
            Kind::Scalar(_) => found.push(self.span.clone()),
            Kind::Sequence(items) => items.iter().for_each(|item| item.collect_scalars(found)),
            Kind::Mapping(members) => {
                members.iter().for_each(|(_, member)| member.collect_scalars(found));
            }
        }
    }

    /// Where the key of a member is written.
    pub(super) fn key_place(&self, pointer: &str, key: &str) -> Range<usize> {
        let found = self.node(pointer).and_then(|node| match &node.kind {
            Kind::Mapping(members) => members.iter().find(|(k, _)| k.text == key),
            Kind::Scalar(_) | Kind::Sequence(_) => None,
        });
        found.map_or_else(|| self.place(pointer), |(key, _)| key.span.clone())
    }
}

fn segments(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|part| unescaped(part).into_owned())
}

impl Scalar {
    /// By the core schema: <https://yaml.org/spec/1.2.2/#103-core-schema>.
    fn json(&self) -> Value {
        let text = self.text.as_str();
        if !self.plain {
            return text.into();
        }
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
            "true" | "True" | "TRUE" => return true.into(),
            "false" | "False" | "FALSE" => return false.into(),
            _ => {}
        }
        let numeric =
            text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
        let integer = text.strip_prefix('+').unwrap_or(text).parse::<i64>().ok();
        let number = integer
            .map(Number::from)
            .or_else(|| text.parse::<f64>().ok().filter(|_| numeric).and_then(Number::from_f64));
        number.map_or_else(|| text.into(), Value::Number)
    }
}

enum Open {
    Sequence(Vec<Node>),
    Mapping(Members),
}

/// The members of a mapping that is being read.
#[derive(Default)]
struct Members {
    all: Vec<(Key, Node)>,
    /// A key that waits for its value.
    waiting: Option<Key>,
    /// Where each key stands for the first time.
    seen: BTreeMap<String, usize>,
}

struct Builder {
    places: Places,
    stack: Vec<(Open, Range<usize>, usize)>,
    anchors: BTreeMap<usize, (Node, usize)>,
    root: Option<Node>,
    /// Bytes that aliases have repeated.
    repeated: usize,
    /// What follows is not read: it is nested too deeply, repeats too much, or is a second document.
    stopped: bool,
    problems: Vec<Problem>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) {
        let span = self.places.range(span);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            Event::DocumentStart(_) if self.root.is_some() => {
                let help = "keep one document in a file";
                self.problems.push(Problem::new(span, "a second document", help));
                self.stopped = true;
            }
            Event::DocumentStart(_) => {}
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor) else { return };
                self.repeated = self.repeated.saturating_add(*size);
                if self.repeated > REPEATED {
                    let message = format!("the aliases repeat more than {REPEATED} bytes");
                    let help = "write out what is repeated, or repeat less of it";
                    self.problems.push(Problem::new(span, message, help));
                    self.stopped = true;
                    return;
                }
                let node = Node { kind: node.kind.clone(), span };
                self.place(node, 0);
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.untagged(tag.is_some(), &span);
                let plain = style == ScalarStyle::Plain;
                let scalar = Scalar { text: text.into_owned(), plain, substituted: false };
                self.place(Node { kind: Kind::Scalar(scalar), span }, anchor);
            }
            Event::SequenceStart(anchor, tag) => {
                self.untagged(tag.is_some(), &span);
                self.open(Open::Sequence(Vec::new()), span, anchor);
            }
            Event::MappingStart(anchor, tag) => {
                self.untagged(tag.is_some(), &span);
                self.open(Open::Mapping(Members::default()), span, anchor);
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span.end),
        }
    }

    fn open(&mut self, open: Open, span: Range<usize>, anchor: usize) {
        if self.stack.len() >= DEPTH {
            let message = format!("nested deeper than {DEPTH} levels");
            self.problems.push(Problem::new(span.clone(), message, "flatten it"));
            self.stopped = true;
        }
        self.stack.push((open, span, anchor));
    }

    fn close(&mut self, end: usize) {
        let Some((open, mut span, anchor)) = self.stack.pop() else { return };
        span.end = end.max(span.end);
        let kind = match open {
            Open::Sequence(items) => Kind::Sequence(items),
            Open::Mapping(members) => Kind::Mapping(members.all),
        };
        self.place(Node { kind, span }, anchor);
    }

    fn place(&mut self, node: Node, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), size(&node)));
        }
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some((Open::Sequence(items), _, _)) => items.push(node),
            Some((Open::Mapping(members), _, _)) => match members.waiting.take() {
                Some(key) => members.all.push((key, node)),
                None => {
                    let Kind::Scalar(scalar) = node.kind else {
                        let help = "write a plain word before the `:`";
                        self.problems.push(Problem::new(node.span, "a key that is no text", help));
                        members.waiting = Some(Key { text: String::new(), span: 0..0 });
                        return;
                    };
                    let key = Key { text: scalar.text, span: node.span };
                    match members.seen.get(&key.text) {
                        Some(first) => {
                            let line = self.places.line(*first);
                            let message = format!("`{}` is given twice", key.text.escape_debug());
                            let help =
                                format!("it stands on line {line} already: keep one of them");
                            self.problems.push(Problem::new(key.span.clone(), message, help));
                        }
                        None => {
                            members.seen.insert(key.text.clone(), key.span.start);
                        }
                    }
                    members.waiting = Some(key);
                }
            },
        }
    }

    fn untagged(&mut self, tagged: bool, span: &Range<usize>) {
        if tagged {
            let help = "remove the tag; quote a value to make it a string";
            self.problems.push(Problem::new(span.clone(), "a tag is not allowed here", help));
        }
    }
}

/// The bytes of a value, as [`REPEATED`] counts them.
fn size(node: &Node) -> usize {
    1 + match &node.kind {
        Kind::Scalar(scalar) => scalar.text.len(),
        Kind::Sequence(items) => items.iter().map(size).sum(),
        Kind::Mapping(members) => {
            members.iter().map(|(key, node)| 1 + key.text.len() + size(node)).sum::<usize>()
        }
    }
}

/// Turns the lines and columns of the parser into bytes, in a time that does not grow with the line.
struct Places {
    lines: Vec<Line>,
    /// Where each line begins.
    starts: Vec<usize>,
}

struct Line {
    text: String,
    /// The byte of every [`STEP`]th character; empty where each character is one byte.
    steps: Vec<usize>,
}

impl Line {
    fn new(text: &str) -> Self {
        let every = text.char_indices().step_by(STEP).map(|(at, _)| at);
        let steps = if text.is_ascii() { Vec::new() } else { every.collect() };
        Self { text: text.to_owned(), steps }
    }

    /// The byte of a character, or the end of the line.
    fn byte(&self, column: usize) -> usize {
        if self.steps.is_empty() {
            return column.min(self.text.len());
        }
        let Some(from) = self.steps.get(column / STEP) else { return self.text.len() };
        let rest = self.text.get(*from..).unwrap_or_default();
        let found = rest.char_indices().nth(column % STEP);
        found.map_or(self.text.len(), |(at, _)| from + at)
    }
}

impl Places {
    fn new(text: &str) -> Self {
        let lines: Vec<_> = text.split_inclusive('\n').map(Line::new).collect();
        let start = |at: &mut usize, line: &Line| {
            let start = *at;
            *at += line.text.len();
            Some(start)
        };
        let starts = lines.iter().scan(0, start).collect();
        Self { lines, starts }
    }

    fn byte(&self, line: usize, column: usize) -> usize {
        let line = line.saturating_sub(1);
        let end = self.starts.last().copied().unwrap_or_default()
            + self.lines.last().map_or(0, |line| line.text.len());
        let (Some(start), Some(text)) = (self.starts.get(line), self.lines.get(line)) else {
            return end;
        };
        start + text.byte(column)
    }

    fn range(&self, span: Span) -> Range<usize> {
        let byte = |mark: saphyr_parser::Marker| self.byte(mark.line(), mark.col());
        byte(span.start)..byte(span.end)
    }

    /// What is wrong with a text that is no YAML. Where a mistake is told by the parser in words that mislead, or at another
    /// place, it is told by ours.
    fn not_yaml(&self, error: &ScanError) -> Problem {
        let (line, column) = (error.marker().line(), error.marker().col());
        let told = |line, column, message: &str, help: &str| {
            let at = self.byte(line, column);
            Problem::new(at..at, format!("not YAML: {message}"), help)
        };
        let info = error.info();
        // The parser stops at the line before the tab, or at the one with it.
        let tab = (line..=line.saturating_add(1)).find_map(|line| {
            let text = &self.lines.get(line.checked_sub(1)?)?.text;
            let indented = text.len() - text.trim_start_matches([' ', '\t']).len();
            Some((line, text.get(..indented)?.find('\t')?))
        });
        if let (true, Some((line, column))) = (info.contains("tab"), tab) {
            let help = "indent with spaces: YAML allows no tabs there";
            return told(line, column, "this line is indented with a tab", help);
        }
        let is_open = ["invalid indentation in quoted", "unexpected end of stream"];
        if info.contains("quoted") && is_open.iter().any(|text| info.contains(text)) {
            let help = "close it on the same line; in `'..'` a quote itself is written twice";
            return told(line, column, "the quote that is opened here is not closed", help);
        }
        if info.contains("comment intercepting") {
            // The line that the parser takes for more of the text is the next one with anything in it.
            let after = self.lines.iter().enumerate().skip(line);
            let next = after.map(|(n, next)| (n + 1, next.text.as_str()));
            let next = next.map(|(n, text)| (n, text, text.len() - text.trim_start().len()));
            let mut filled = next.filter(|(_, text, _)| !text.trim().is_empty());
            let (line, column) = filled.next().map_or((line, column), |(n, _, indent)| (n, indent));
            return told(line, column, DEEPER, LEVEL);
        }
        if info.contains("mapping values are not allowed") {
            return told(line, column, "a `: ` stands where a value ends", LEVEL);
        }
        if info.contains("did not find expected key") {
            return told(line, column, DEEPER, LEVEL);
        }
        // Where it is says the place; the parser's own words repeat it.
        told(line, column, info, "check the indentation and the quotes around this place")
    }

    fn line(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte)
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, PROBLEMS, Places, parse};

    #[test]
    fn a_place_is_found_among_characters_of_every_width() {
        let text = "a: é\nb: [\u{1f600}, x]\n";
        let places = Places::new(text);
        assert_eq!(places.byte(2, 5), text.find(", x").unwrap());
        let long = format!("{}x\n", "é".repeat(1000));
        assert_eq!(Places::new(&long).byte(1, 1000), 2000);
        assert_eq!(Places::new(&long).byte(1, 5000), long.len());
        assert_eq!(Places::new("ab\n").byte(1, 9), 3);
    }

    #[test]
    fn nothing_after_a_second_document_is_read() {
        let problems = parse(&"---\n".repeat(100_000)).unwrap_err();
        let said: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(said, ["a second document"]);
    }

    #[test]
    fn only_so_many_problems_are_told() {
        let text = "a: 1\n".repeat(90_000);
        assert_eq!(parse(&text).unwrap_err().len(), PROBLEMS);
    }

    #[test]
    fn many_values_are_read_and_too_many_bytes_are_not() {
        let many = "- {a: 1, b: [x, y]}\n".repeat(50_000);
        drop(parse(&many).unwrap());
        let problems = parse(&"#".repeat(BYTES + 1)).unwrap_err();
        assert!(problems[0].message.contains("at most 16777216 are read"), "{problems:?}");
    }

    #[test]
    fn a_long_text_is_not_repeated_without_end() {
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(300_000), "*a, ".repeat(100_000));
        let problems = parse(&text).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].message.contains("the aliases repeat more than"), "{problems:?}");
        drop(parse("a: &a {k: v}\nb: *a\nc: *a\n").unwrap());
    }

    #[test]
    fn a_long_line_and_many_keys_take_a_time_in_proportion() {
        // Every one of these is minutes where the work grows with the square of the length.
        drop(parse(&format!("[{}]", "é, ".repeat(90_000))).unwrap());
        let keys: String = (0..45_000).map(|n| format!("key{n}: {n}\n")).collect();
        drop(parse(&keys).unwrap());
    }
}
