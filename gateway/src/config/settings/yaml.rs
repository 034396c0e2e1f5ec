//! Parses YAML into nodes that know the bytes they were written in, for the configuration, lockfiles and other
//! files of the operator.
//!
//! It supports what these files need: one document of mappings, sequences and scalars in the core schema of YAML
//! 1.2. Tags are refused; an alias repeats its anchor within a size limit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use json::pointer::unescaped;
use json::write_ascii;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use serde_json::{Map, Number, Value};

use super::problem::ConfigProblem;

/// Maximum size of a file in bytes. Time and memory to parse it are proportional to its size.
const BYTES: usize = 16 * 1024 * 1024;
/// Maximum size of a generated file, such as a lockfile, in bytes.
const MANY: usize = 64 * 1024 * 1024;
/// Maximum bytes that the aliases of one file repeat; each value counts one byte more than its text.
const REPEATED: usize = 1024 * 1024;
/// Maximum nesting of mappings and sequences.
const DEPTH: usize = 32;
/// Maximum number of problems before parsing stops: the file is parsed again after they are fixed.
const PROBLEMS: usize = 100;
/// Maximum size of a key without an explicit key indicator (`?`), in bytes; YAML allows 1024 characters.
const LONGEST_KEY: usize = 900;
/// Number of characters of a line between two cached byte offsets.
const STEP: usize = 64;

/// The message for a line that does not belong to the mapping around it.
const DEEPER: &str = "this line is not indented as the keys beside it are";
/// The help for a key at the wrong depth, and for a value that contains a colon.
const LEVEL: &str = "give it the same indentation as the keys beside it; a value with `: ` in it is written in quotes";
/// Characters with a meaning of their own at the beginning of a value.
const SPECIAL: &str = "*!&|>@%`";
/// What is done about a value that begins with one of these.
const QUOTED: &str = "a value that begins with `*`, `!`, `&`, `|`, `>`, `@`, `%` or a backquote must be in quotes: `'*'`";

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    pub(super) kind: NodeKind,
    /// The place of the value, in bytes of the file.
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    Scalar(Scalar),
    Sequence(Vec<YamlNode>),
    Mapping(Vec<(MappingKey, YamlNode)>),
}

#[derive(Clone, Debug)]
pub(super) struct MappingKey {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Whether the scalar is unquoted, so that it may be a number, a boolean or null.
    pub(super) plain: bool,
    /// Whether a variable was substituted; the scalar is a string then if the schema expects one.
    pub(super) substituted: bool,
}

/// Parses a file that an operator has written.
pub(super) fn parse(text: &str) -> Result<YamlNode, Vec<ConfigProblem>> {
    parse_within(text, BYTES)
}

/// Parses a generated `text`, which may be larger.
pub(super) fn parse_large(text: &str) -> Result<YamlNode, Vec<ConfigProblem>> {
    parse_within(text, MANY)
}

fn parse_within(text: &str, bytes: usize) -> Result<YamlNode, Vec<ConfigProblem>> {
    if text.len() > bytes {
        let message = format!("the file has {} bytes, and at most {bytes} are read", text.len());
        let help = "say the same in less: a pattern, or a group, takes the place of many names";
        return Err(vec![ConfigProblem::new(0..0, message, help)]);
    }
    let mut builder = NodeBuilder {
        places: LineIndex::new(text),
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
            Err(vec![ConfigProblem::new(0..0, "the file is empty", help)])
        }
        (_, false) => Err(builder.problems),
    }
}

/// Quotes a text as a YAML scalar: in ASCII, with the escapes of JSON, except for characters beyond 16 bits, for which YAML
/// has no pairs of surrogates (<https://yaml.org/spec/1.2.2/#57-escaped-characters>).
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    let mut units = [0; 4];
    for c in text.chars() {
        if u32::from(c) > 0xffff {
            write!(out, "\\U{:08x}", u32::from(c)).unwrap_or_default();
        } else {
            let mut one = Vec::new();
            write_ascii(&mut one, c.encode_utf8(&mut units));
            // Without the quotation marks at both ends.
            let inner = one.get(1..one.len() - 1).unwrap_or_default();
            out.push_str(std::str::from_utf8(inner).unwrap_or_default());
        }
    }
    out.push('"');
    out
}

/// Quotes a text as the key of a mapping, with what stands between the key and its value: YAML requires an explicit
/// indicator for longer keys. `indent` is that of the mapping.
pub(super) fn quoted_key(text: &str, indent: &str) -> String {
    let key = quoted(text);
    if key.len() > LONGEST_KEY { format!("? {key}\n{indent}:") } else { format!("{key}:") }
}

/// The first value in a line that begins with a character that means something else to YAML: its column, and the
/// character.
fn special_start(line: &str) -> Option<(usize, char)> {
    let mut before = ('-', ' ');
    for (column, c) in line.chars().enumerate() {
        let begins = matches!(before, (':' | '-' | ',' | '[', ' ') | (_, '[' | ','));
        if begins && SPECIAL.contains(c) {
            return Some((column, c));
        }
        // More blanks leave the value where it begins.
        if !(c == ' ' && before.1 == ' ') {
            before = (before.1, c);
        }
    }
    None
}

impl YamlNode {
    /// The value as JSON.
    pub(super) fn json(&self) -> Value {
        match &self.kind {
            NodeKind::Scalar(scalar) => scalar.json(),
            NodeKind::Sequence(items) => items.iter().map(Self::json).collect(),
            NodeKind::Mapping(members) => {
                let members = members.iter().map(|(key, node)| (key.text.clone(), node.json()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// The value at a JSON Pointer.
    pub(super) fn at_mut(&mut self, pointer: &str) -> Option<&mut Self> {
        segments(pointer).try_fold(self, |node, segment| match &mut node.kind {
            NodeKind::Scalar(_) => None,
            NodeKind::Sequence(items) => items.get_mut(segment.parse::<usize>().ok()?),
            NodeKind::Mapping(members) => {
                members.iter_mut().find(|(key, _)| key.text == segment).map(|(_, node)| node)
            }
        })
    }

    /// The place of the value at a JSON Pointer, or of the nearest existing value above it.
    pub(super) fn place(&self, pointer: &str) -> Range<usize> {
        let mut node = self;
        for segment in segments(pointer) {
            let Some(child) = node.child(&segment) else { break };
            node = child;
        }
        node.span.clone()
    }

    /// The item or member that one segment of a JSON Pointer selects.
    fn child(&self, segment: &str) -> Option<&Self> {
        match &self.kind {
            NodeKind::Scalar(_) => None,
            NodeKind::Sequence(items) => items.get(segment.parse::<usize>().ok()?),
            NodeKind::Mapping(members) => {
                members.iter().find(|(key, _)| key.text == segment).map(|(_, node)| node)
            }
        }
    }

    /// The value at a JSON Pointer.
    pub(super) fn node(&self, pointer: &str) -> Option<&Self> {
        segments(pointer).try_fold(self, |node, segment| node.child(&segment))
    }

    /// The places of all scalars at or below a JSON Pointer.
    pub(super) fn scalars(&self, pointer: &str) -> std::vec::IntoIter<Range<usize>> {
        let mut found = Vec::new();
        if let Some(node) = self.node(pointer) {
            node.collect_scalars(&mut found);
        }
        found.into_iter()
    }

    /// The text of a scalar; `None` for a mapping or a sequence.
    pub(super) fn scalar_text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar(scalar) => Some(&scalar.text),
            NodeKind::Sequence(_) | NodeKind::Mapping(_) => None,
        }
    }

    /// The place of the first scalar with this text, at or below this value.
    ///
    /// INVARIANT: the parser limits the nesting, so the recursion is limited too.
    pub(super) fn place_of_scalar(&self, text: &str) -> Option<Range<usize>> {
        match &self.kind {
            NodeKind::Scalar(scalar) => (scalar.text == text).then(|| self.span.clone()),
            NodeKind::Sequence(items) => items.iter().find_map(|item| item.place_of_scalar(text)),
            NodeKind::Mapping(members) => {
                members.iter().find_map(|(_, member)| member.place_of_scalar(text))
            }
        }
    }

    /// INVARIANT: the parser limits the nesting, so the recursion is limited too.
    fn collect_scalars(&self, found: &mut Vec<Range<usize>>) {
        match &self.kind {
            NodeKind::Scalar(_) => found.push(self.span.clone()),
            NodeKind::Sequence(items) => items.iter().for_each(|item| item.collect_scalars(found)),
            NodeKind::Mapping(members) => {
                members.iter().for_each(|(_, member)| member.collect_scalars(found));
            }
        }
    }

    /// The place of the key of a member.
    pub(super) fn key_place(&self, pointer: &str, key: &str) -> Range<usize> {
        let found = self.node(pointer).and_then(|node| match &node.kind {
            NodeKind::Mapping(members) => members.iter().find(|(k, _)| k.text == key),
            NodeKind::Scalar(_) | NodeKind::Sequence(_) => None,
        });
        found.map_or_else(|| self.place(pointer), |(key, _)| key.span.clone())
    }
}

fn segments(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|part| unescaped(part).into_owned())
}

impl Scalar {
    /// Resolves an unquoted scalar by the core schema: <https://yaml.org/spec/1.2.2/#103-core-schema>.
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
        let digits = text.strip_prefix('+').unwrap_or(text);
        let integer = digits.parse::<i64>().map(Number::from);
        let integer = integer.or_else(|_| digits.parse::<u64>().map(Number::from)).ok();
        let number = integer
            .or_else(|| text.parse::<f64>().ok().filter(|_| numeric).and_then(number_of_float));
        number.map_or_else(|| text.into(), Value::Number)
    }
}

/// A number with a fraction or an exponent. One that is whole is an integer, as it is to the schema: `40.0` is 40.
fn number_of_float(value: f64) -> Option<Number> {
    /// Up to here every whole number is written exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = (value.fract() == 0.0 && value.abs() <= EXACT).then(|| format!("{value:.0}"));
    let whole = whole.and_then(|whole| whole.parse::<i64>().ok());
    whole.map(Number::from).or_else(|| Number::from_f64(value))
}

enum OpenCollection {
    Sequence(Vec<YamlNode>),
    Mapping(OpenMapping),
}

/// A mapping whose members are being parsed.
#[derive(Default)]
struct OpenMapping {
    all: Vec<(MappingKey, YamlNode)>,
    /// A key whose value has not been parsed yet.
    waiting: Option<MappingKey>,
    /// The byte offset of the first occurrence of each key.
    seen: BTreeMap<String, usize>,
}

struct NodeBuilder {
    places: LineIndex,
    stack: Vec<(OpenCollection, Range<usize>, usize)>,
    anchors: BTreeMap<usize, (YamlNode, usize)>,
    root: Option<YamlNode>,
    /// Bytes that aliases have repeated so far.
    repeated: usize,
    /// Whether parsing stops: the file is nested too deeply, repeats too much, or has a second document.
    stopped: bool,
    problems: Vec<ConfigProblem>,
}

impl NodeBuilder {
    fn event(&mut self, event: Event<'_>, span: Span) {
        let span = self.places.range(span);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            Event::DocumentStart(_) if self.root.is_some() => {
                let help = "keep one document in a file";
                self.problems.push(ConfigProblem::new(span, "a second document", help));
                self.stopped = true;
            }
            Event::DocumentStart(_) => {}
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor) else { return };
                self.repeated = self.repeated.saturating_add(*size);
                if self.repeated > REPEATED {
                    let message = format!("the aliases repeat more than {REPEATED} bytes");
                    let help = "write out what is repeated, or repeat less of it";
                    self.problems.push(ConfigProblem::new(span, message, help));
                    self.stopped = true;
                    return;
                }
                let node = YamlNode { kind: node.kind.clone(), span };
                self.place(node, 0);
            }
            Event::Scalar(text, style, anchor, tag) => {
                if tag.is_some() {
                    self.refuse_tag(&span);
                }
                let plain = style == ScalarStyle::Plain;
                let scalar = Scalar { text: text.into_owned(), plain, substituted: false };
                self.place(YamlNode { kind: NodeKind::Scalar(scalar), span }, anchor);
            }
            Event::SequenceStart(anchor, tag) => {
                if tag.is_some() {
                    self.refuse_tag(&span);
                }
                self.open(OpenCollection::Sequence(Vec::new()), span, anchor);
            }
            Event::MappingStart(anchor, tag) => {
                if tag.is_some() {
                    self.refuse_tag(&span);
                }
                self.open(OpenCollection::Mapping(OpenMapping::default()), span, anchor);
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span.end),
        }
    }

    fn open(&mut self, open: OpenCollection, span: Range<usize>, anchor: usize) {
        if self.stack.len() >= DEPTH {
            let message = format!("nested deeper than {DEPTH} levels");
            self.problems.push(ConfigProblem::new(span.clone(), message, "flatten it"));
            self.stopped = true;
        }
        self.stack.push((open, span, anchor));
    }

    fn close(&mut self, end: usize) {
        let Some((open, mut span, anchor)) = self.stack.pop() else { return };
        span.end = end.max(span.end);
        let kind = match open {
            OpenCollection::Sequence(items) => NodeKind::Sequence(items),
            OpenCollection::Mapping(members) => NodeKind::Mapping(members.all),
        };
        self.place(YamlNode { kind, span }, anchor);
    }

    fn place(&mut self, node: YamlNode, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), size(&node)));
        }
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some((OpenCollection::Sequence(items), _, _)) => items.push(node),
            Some((OpenCollection::Mapping(members), _, _)) => match members.waiting.take() {
                Some(key) => members.all.push((key, node)),
                None => {
                    let NodeKind::Scalar(scalar) = node.kind else {
                        let help = "write a plain word before the `:`";
                        self.problems.push(ConfigProblem::new(
                            node.span,
                            "a key that is no text",
                            help,
                        ));
                        members.waiting = Some(MappingKey { text: String::new(), span: 0..0 });
                        return;
                    };
                    let key = MappingKey { text: scalar.text, span: node.span };
                    match members.seen.get(&key.text) {
                        Some(first) => {
                            let line = self.places.line(*first);
                            let message = format!("`{}` is given twice", key.text.escape_debug());
                            let help =
                                format!("it stands on line {line} already: keep one of them");
                            self.problems.push(ConfigProblem::new(key.span.clone(), message, help));
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

    fn refuse_tag(&mut self, span: &Range<usize>) {
        let help = "remove the tag; quote a value to make it a string";
        self.problems.push(ConfigProblem::new(span.clone(), "a tag is not allowed here", help));
    }
}

/// The size of a value, as [`REPEATED`] counts it.
fn size(node: &YamlNode) -> usize {
    1 + match &node.kind {
        NodeKind::Scalar(scalar) => scalar.text.len(),
        NodeKind::Sequence(items) => items.iter().map(size).sum(),
        NodeKind::Mapping(members) => {
            members.iter().map(|(key, node)| 1 + key.text.len() + size(node)).sum::<usize>()
        }
    }
}

/// Converts the parser's lines and columns into byte offsets, in a time that does not depend on the length of the
/// line.
struct LineIndex {
    lines: Vec<SourceLine>,
    /// The byte offset of each line.
    starts: Vec<usize>,
}

struct SourceLine {
    text: String,
    /// The byte offset of every [`STEP`]th character; empty if the line is ASCII.
    steps: Vec<usize>,
}

impl SourceLine {
    fn new(text: &str) -> Self {
        let every = text.char_indices().step_by(STEP).map(|(at, _)| at);
        let steps = if text.is_ascii() { Vec::new() } else { every.collect() };
        Self { text: text.to_owned(), steps }
    }

    /// The byte offset of a character in the line, or the end of the line.
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

impl LineIndex {
    fn new(text: &str) -> Self {
        let lines: Vec<_> = text.split_inclusive('\n').map(SourceLine::new).collect();
        let start = |at: &mut usize, line: &SourceLine| {
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

    /// The problem for a text that is not YAML. Replaces messages and places of the parser that are misleading.
    fn not_yaml(&self, error: &ScanError) -> ConfigProblem {
        let (line, column) = (error.marker().line(), error.marker().col());
        let told = |line, column, message: &str, help: &str| {
            let at = self.byte(line, column);
            ConfigProblem::new(at..at, format!("not YAML: {message}"), help)
        };
        let info = error.info();
        // The parser stops at the line before the tab, or at the line with it.
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
            // The line that the parser takes for a continuation of the text is the next one that is not blank.
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
        let scanned = ["anchor", "alias", "block scalar", "tag", "TAG", "directive", "character"];
        let text = self.lines.get(line.saturating_sub(1)).map_or("", |line| line.text.as_str());
        let special =
            special_start(text).filter(|_| scanned.iter().any(|part| info.contains(part)));
        if let Some((column, first)) = special {
            let message = format!("a value without quotes begins with `{first}`");
            return told(line, column, &message, QUOTED);
        }
        // The place is reported separately; the parser's message would repeat it.
        told(line, column, info, "check the indentation and the quotes around this place")
    }

    fn line(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte)
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, LineIndex, PROBLEMS, parse};

    #[test]
    fn a_place_is_found_among_characters_of_every_width() {
        let text = "a: é\nb: [\u{1f600}, x]\n";
        let places = LineIndex::new(text);
        assert_eq!(places.byte(2, 5), text.find(", x").unwrap());
        let long = format!("{}x\n", "é".repeat(1000));
        assert_eq!(LineIndex::new(&long).byte(1, 1000), 2000);
        assert_eq!(LineIndex::new(&long).byte(1, 5000), long.len());
        assert_eq!(LineIndex::new("ab\n").byte(1, 9), 3);
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
