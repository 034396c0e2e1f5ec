//! Walks over the strings of a message, and writes the message without what is removed from it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::coding;
use json::pointer::{escaped, unescaped};
use json::{JsonKind, Value, write_items, write_members, write_name, write_string};
use policy_core::base::work::WorkBudget;

use super::handling::Handling;
use super::lens::{ScanResult, StringScan, detector};
use super::members::{NamedBy, NamesWithin};
use super::pieces::{self, ChosenPart};
use super::{ContentReport, KEPT, media, personal};
use crate::inspect::{Detector, Finding};
use crate::secrets::found::{FoundValue, ValueClass};

/// The position of a value in a message: the members that the protocol reserves, and those that are shown to the model,
/// are in certain places only. Derived from the structure and not from the reported place, which is cut when it is
/// long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessagePosition {
    Top,
    /// The result of a prompt: what a `description` is depends on the members beside it.
    Prompt,
    /// A task that a call has become.
    Task,
    /// One content block, or a list of them.
    Block,
    /// One message of a prompt, or a list of them.
    Message,
    /// A text that a model reads, but that no program compares.
    Text,
    /// A URI or a media type.
    Where,
    /// The result of a task.
    Answer,
    Inside,
}

impl MessagePosition {
    /// The position of a whole message.
    fn of_message(value: Value<'_>) -> Self {
        if value.get("messages").is_some() { Self::Prompt } else { Self::Top }
    }

    fn of_member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Top | Self::Prompt | Self::Answer, "messages") => Self::Message,
            (Self::Top | Self::Prompt, "result") => Self::Answer,
            (Self::Top | Self::Prompt, "task") => Self::Task,
            (Self::Top | Self::Prompt | Self::Answer, "content" | "contents")
            | (Self::Message, "content")
            | (Self::Block, "content" | "resource") => Self::Block,
            (Self::Block, "text" | "title" | "description")
            | (Self::Prompt, "description")
            // The second is what the MCP SDK for Python reads as the first.
            | (Self::Top | Self::Prompt | Self::Task, "statusMessage" | "status_message")
            // What a result consisted of before it had `content`.
            | (Self::Top | Self::Prompt | Self::Answer, "toolResult") => Self::Text,
            (Self::Block, "uri" | "type" | "mimeType") => Self::Where,
            _ => Self::Inside,
        }
    }

    /// Whether a string in this position is a text that a model reads: some servers say a block of content as a
    /// plain string.
    const fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Block)
    }

    /// The position of the items of a list in this position.
    const fn of_item(self) -> Self {
        match self {
            Self::Block | Self::Message => self,
            Self::Top
            | Self::Prompt
            | Self::Task
            | Self::Text
            | Self::Where
            | Self::Answer
            | Self::Inside => Self::Inside,
        }
    }
}

/// What is known of a value before it is read: where it stands, and what names it.
#[derive(Clone, Copy)]
struct ValueContext<'a> {
    place: MessagePosition,
    named: NamedBy<'a>,
}

impl ValueContext<'_> {
    /// A whole message.
    fn of_message(value: Value<'_>) -> Self {
        Self { place: MessagePosition::of_message(value), named: NamedBy::Nothing }
    }
}

/// Units that each value costs, beside its text.
const EACH_VALUE: usize = 64;
/// Fewest digits of a number that is searched for identity numbers.
const DIGITS: usize = 12;
/// Largest exponent with which a number is written out.
const EXPONENT: u32 = 64;
/// How much of the end of a text, and of the begin of the next, is inspected as one text, in bytes.
const SEAM: usize = 1024;
/// Longest place that is reported, in bytes.
const PLACE: usize = 512;

/// Fewest consecutive printable bytes that are searched as text in binary data.
const RUN: usize = 8;

/// The strings of a message that are not inspected, by their offsets: only the server that sent them can read them,
/// because the gateway seals them.
struct SealedStrings(Vec<usize>);

impl SealedStrings {
    /// The strings at these JSON Pointers.
    fn of(value: Value<'_>, pointers: &[&str]) -> Self {
        let strings = pointers.iter().filter_map(|pointer| {
            let mut parts = pointer.split('/').skip(1);
            let found = parts.try_fold(value, |value, part| value.get(&unescaped(part)))?;
            found.as_str().map(|_| found.span().start)
        });
        Self(strings.collect())
    }

    fn has(&self, value: Value<'_>) -> bool {
        !self.0.is_empty() && self.0.contains(&value.span().start)
    }
}

/// What is written in place of the names and strings of a message, by the offset of the value. The names are those of the
/// members that have these values.
#[derive(Default)]
struct Replacements {
    names: BTreeMap<usize, String>,
    values: BTreeMap<usize, String>,
}

/// Inspects every string of `value`, except for those at the pointers `sealed`.
pub(super) fn look(lens: &StringScan<'_>, value: Value<'_>, sealed: &[&str]) -> ContentReport {
    let sealed = &SealedStrings::of(value, sealed);
    let mut walk = MessageWalk::new(lens, sealed);
    walk.value(value, &mut String::with_capacity(64), ValueContext::of_message(value));
    walk.pieces(&[ChosenPart::Value(value)]);
    walk.seen_of(value)
}

/// Inspects one part of a message; [`together`] searches all of its parts for values in pieces.
pub(super) fn part(lens: &StringScan<'_>, value: Value<'_>) -> ContentReport {
    let sealed = &SealedStrings(Vec::new());
    let mut walk = MessageWalk::new(lens, sealed);
    walk.value(value, &mut String::with_capacity(64), ValueContext::of_message(value));
    walk.seen_of(value)
}

/// Searches the parts of one message for values that are split into pieces, and for nothing else.
pub(super) fn together(lens: &StringScan<'_>, parts: &[ChosenPart<'_>]) -> ContentReport {
    let sealed = &SealedStrings(Vec::new());
    let mut walk = MessageWalk::new(lens, sealed);
    walk.pieces(parts);
    let mut seen = walk.seen;
    seen.block_incomplete(lens.budget);
    seen
}

/// Inspects one string that stands alone. The caller keeps the original; `changed` is its sanitised form.
pub(super) fn text(lens: &StringScan<'_>, text: &str) -> ContentReport {
    let sealed = &SealedStrings(Vec::new());
    let mut walk = MessageWalk::new(lens, sealed);
    let glance = lens.cleaned(text);
    for (detector, handling, note) in glance.findings {
        walk.note(detector, handling, note, "");
    }
    let mut seen = walk.seen;
    seen.changed = glance.text.map(String::into_bytes);
    seen.block_incomplete(lens.budget);
    seen
}

impl ContentReport {
    /// Blocks a message that was not inspected to its end.
    fn block_incomplete(&mut self, budget: &WorkBudget) {
        if budget.is_exhausted() && !self.findings.contains(&Finding::over_budget()) {
            self.findings.push(Finding::over_budget());
            self.blocked = Some(Finding::over_budget());
        }
    }
}

struct MessageWalk<'a, 'b, 'v> {
    lens: &'a StringScan<'b>,
    sealed: &'a SealedStrings,
    seen: ContentReport,
    dirty: bool,
    changed: Replacements,
    /// The last text of a content block.
    last_text: Option<Value<'v>>,
}

impl<'a, 'b, 'v> MessageWalk<'a, 'b, 'v> {
    fn new(lens: &'a StringScan<'b>, sealed: &'a SealedStrings) -> Self {
        let (seen, changed) = (ContentReport::default(), Replacements::default());
        Self { lens, sealed, seen, dirty: false, changed, last_text: None }
    }

    /// The outcome for `value`, with its sanitised form if it was changed.
    fn seen_of(self, value: Value<'_>) -> ContentReport {
        let MessageWalk { lens, mut seen, dirty, changed, .. } = self;
        seen.block_incomplete(lens.budget);
        if dirty && seen.blocked.is_none() {
            let mut out = Vec::with_capacity(value.raw().len());
            write(&mut out, &changed, value);
            seen.changed = Some(out);
        }
        seen
    }

    /// Inspects a value and everything in it.
    ///
    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn value(&mut self, value: Value<'v>, at: &mut String, known: ValueContext<'_>) {
        if !self.lens.budget.spend(EACH_VALUE) {
            return;
        }
        match value.kind() {
            JsonKind::Null | JsonKind::Boolean => {}
            JsonKind::Number => {
                if let Some(found) = number(&self.lens.for_named(known.named), value.raw()) {
                    let handling = self.lens.of(found.class);
                    let note = self.lens.note(&found);
                    self.note(detector(found.class), handling, note, at);
                    if handling == Handling::Redact {
                        let mark = self.lens.mark(found.rule, value.raw());
                        self.replace(value, mark);
                    }
                }
            }
            JsonKind::Plain | JsonKind::Escaped => {
                if let Some(text) = self.string(&value.as_str().unwrap_or_default(), at, known) {
                    self.replace(value, text);
                }
            }
            JsonKind::Array => {
                let length = at.len();
                let within = NamesWithin::of(known.named, value);
                for (n, item) in value.items().enumerate() {
                    if self.lens.budget.is_exhausted() {
                        break;
                    }
                    if at.len() < PLACE {
                        at.push('/');
                        at.push_str(&n.to_string());
                    }
                    let place = known.place.of_item();
                    self.value(item, at, ValueContext { place, named: within.item(n) });
                    at.truncate(length);
                }
            }
            JsonKind::Object => self.members(value, at, known),
        }
    }

    /// Inspects the members of an object.
    fn members(&mut self, object: Value<'v>, at: &mut String, known: ValueContext<'_>) {
        let length = at.len();
        self.carries(object, at, known.place);
        let within = NamesWithin::of(known.named, object);
        for (name, member) in object.members() {
            if self.lens.budget.is_exhausted() {
                break;
            }
            if at.len() + name.len() < PLACE {
                at.push('/');
                at.push_str(&escaped(&name));
            }
            self.name(&name, member, at);
            if carries(&name, known.place) && self.blob(member, at) {
                // `blob` has inspected its decoded form.
            } else if !self.sealed.has(member) {
                let place = known.place.of_member(&name);
                self.value(member, at, ValueContext { place, named: within.member(&name) });
                if known.place == MessagePosition::Block && name == "text" {
                    self.text_block(member, at);
                }
            }
            at.truncate(length);
        }
    }

    /// Inspects the name of a member. A name that would have to be changed could become that of another member, so the
    /// message is withheld.
    fn name(&mut self, name: &str, member: Value<'_>, at: &str) {
        let glance = named(self.lens, name);
        if let Some(name) = glance.text {
            self.dirty = true;
            self.changed.names.insert(member.span().start, name);
        }
        self.seen.score = self.seen.score.max(glance.score);
        for (detector, handling, note) in glance.findings {
            let handling = match handling {
                Handling::Strip | Handling::Defang | Handling::Wrap => Handling::Block,
                // A name has no room for a note.
                Handling::Annotate => Handling::Audit,
                Handling::Off | Handling::Audit | Handling::Redact | Handling::Block => handling,
            };
            self.note(detector, handling, note, at);
        }
    }

    /// Checks the media type of the data in an object, in base64 or in a `data:` URI, against its content and the
    /// permitted types.
    fn carries(&mut self, object: Value<'_>, at: &str, place: MessagePosition) {
        let handling = self.lens.how(Detector::MediaTypes);
        if handling == Handling::Off {
            return;
        }
        let word = |name: &str| object.get(name).and_then(Value::as_str);
        let declared = word("mimeType");
        // Of an icon, and of a resource or a link to one.
        for uri in [word("src"), word("uri")].into_iter().flatten() {
            if let Some(note) = media::note_on_uri(declared.as_deref(), &uri, self.lens.types) {
                self.note(Detector::MediaTypes, handling, Cow::Borrowed(note), at);
            }
        }
        let block = place == MessagePosition::Block;
        if !block && declared.is_none() {
            return;
        }
        let (blob, data) = (word("blob"), word("data"));
        let carries = blob.is_some() || data.is_some();
        let text = block && declared.is_some() && word("text").is_some();
        // Readers differ in which of the two members they read.
        let all = [blob.as_deref(), data.as_deref()].into_iter().filter(Option::is_some);
        for base64 in all.chain((!carries && text).then_some(None)) {
            if let Some(note) = media::note(declared.as_deref(), base64, self.lens.types) {
                self.note(Detector::MediaTypes, handling, Cow::Borrowed(note), at);
            }
        }
    }

    /// A string as it is shown.
    fn shown_text(&self, value: Value<'v>) -> Option<Cow<'v, str>> {
        match self.changed.values.get(&value.span().start) {
            Some(text) => Some(Cow::Owned(text.clone())),
            None => value.as_str(),
        }
    }

    /// Inspects the end of the text of the last content block together with the begin of this one: many clients join the
    /// texts of a result, with or without a line end.
    fn text_block(&mut self, value: Value<'v>, at: &str) {
        // An empty text separates nothing.
        if !self.lens.is_result() || value.raw().len() <= 2 {
            return;
        }
        let shown = self.shown_text(value);
        // Nor does one of which nothing is left.
        if shown.as_ref().is_some_and(|text| text.is_empty()) {
            return;
        }
        let Some(before) = self.last_text.replace(value) else { return };
        let shown = (self.shown_text(before), shown);
        let (Some(whole), Some(text)) = shown else { return };
        let (tail, head) = (end_of(&whole), begin_of(&text));
        for between in ["", "\n"] {
            let Some(seam) = self.seam([tail, between, head], at) else { continue };
            let kept = whole.len() - (tail.len() - seam.from);
            let rest = text.get(seam.behind - tail.len() - between.len()..).unwrap_or_default();
            self.replace(before, whole.get(..kept).unwrap_or_default().to_owned());
            self.replace(value, format!("{}{rest}", seam.shown));
            return;
        }
    }

    /// What is found in two texts and what stands between them, and in neither of them alone. Returns what is replaced, if
    /// that is a part of both.
    fn seam(&mut self, [tail, between, head]: [&str; 3], at: &str) -> Option<Seam> {
        let joined = format!("{tail}{between}{head}");
        let glance = self.lens.cleaned(&joined);
        if glance.findings.is_empty() {
            return None;
        }
        let alone = [tail, head].map(|text| self.lens.cleaned(text).findings);
        let is_new = |(detector, _, note): &(Detector, Handling, Cow<'static, str>)| {
            alone.iter().flatten().all(|known| known.0 != *detector || known.2 != *note)
        };
        let seam = glance.text.map(|clean| Seam::of(&joined, &clean));
        let is_across =
            |seam: &Seam| seam.from < tail.len() && seam.behind > tail.len() + between.len();
        let seam = seam.filter(is_across);
        let mut is_replaced = false;
        for found in glance.findings.into_iter().filter(is_new) {
            let (detector, handling, note) = found;
            match handling {
                Handling::Off => {}
                Handling::Audit | Handling::Annotate | Handling::Wrap => {
                    self.note(detector, Handling::Audit, note, at);
                }
                Handling::Block => self.note(detector, handling, note, at),
                Handling::Strip | Handling::Defang | Handling::Redact => {
                    if seam.is_some() {
                        is_replaced = true;
                        self.note(detector, handling, note, at);
                    }
                }
            }
        }
        seam.filter(|_| is_replaced)
    }

    /// Has a string written in place of a value.
    fn replace(&mut self, value: Value<'_>, text: String) {
        self.dirty = true;
        self.changed.values.insert(value.span().start, text);
    }

    /// Inspects a string; returns what is shown instead of it, if it is changed.
    fn string(&mut self, text: &str, at: &str, known: ValueContext<'_>) -> Option<String> {
        let glance = shown(self.lens, text, known);
        self.seen.score = self.seen.score.max(glance.score);
        for (detector, handling, note) in glance.findings {
            self.note(detector, handling, note, at);
        }
        glance.text
    }

    /// Inspects base64 data in its decoded form; `false` if the value is not base64.
    fn blob(&mut self, member: Value<'_>, at: &str) -> bool {
        let Some(text) = member.as_str() else { return false };
        let shown = match carried(self.lens, &text) {
            None => {
                self.broken_blob(&text, at);
                return false;
            }
            Some(BlobContent::Text(text)) => {
                let known =
                    ValueContext { place: MessagePosition::Inside, named: NamedBy::Nothing };
                self.string(&text, at, known).map(String::into_bytes)
            }
            Some(BlobContent::Bytes(bytes)) => {
                let (findings, masked) = masked(self.lens, &bytes);
                for (detector, handling, note) in findings {
                    self.note(detector, handling, note, at);
                }
                masked
            }
        };
        if let Some(shown) = shown {
            self.replace(member, STANDARD.encode(shown));
        }
        true
    }

    /// Withholds the message if its base64 data has characters that are not of base64, and lenient readers (Node.js and
    /// Python skip them) would read a text or a value: strict ones read nothing, so that no honest server sends it.
    fn broken_blob(&mut self, text: &str, at: &str) {
        if self.lens.is_value(text) {
            return;
        }
        let bytes = coding::base64_skipping(text);
        let zeros = memchr::memchr_iter(0, &bytes).count();
        let wide: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
        let reads = |bytes: &[u8]| bytes.len() >= SHORTEST_TEXT && coding::shown(bytes).is_some();
        let is_wide = zeros * 4 >= bytes.len() && reads(&wide);
        if reads(&bytes) || is_wide || !masked(self.lens, &bytes).0.is_empty() {
            self.note(Detector::MediaTypes, Handling::Block, Cow::Borrowed(BROKEN), at);
        }
    }

    /// Searches these parts of the message for a value from another server in pieces. Since no piece is the value, the
    /// message is withheld where a value would be replaced.
    fn pieces(&mut self, parts: &[ChosenPart<'_>]) {
        if !self.lens.seeks() {
            return;
        }
        let Some(rule) = pieces::find(self.lens, parts) else { return };
        let handling = match self.lens.of(ValueClass::Carried) {
            Handling::Audit | Handling::Annotate => Handling::Audit,
            Handling::Off => return,
            Handling::Strip
            | Handling::Defang
            | Handling::Wrap
            | Handling::Redact
            | Handling::Block => Handling::Block,
        };
        self.note(Detector::CarriedData, handling, Cow::Borrowed(rule), "");
    }

    fn note(&mut self, detector: Detector, handling: Handling, note: Cow<'static, str>, at: &str) {
        let same = self.seen.findings.iter().filter(|known| known.detector == detector).count();
        let blocks = handling == Handling::Block && self.seen.blocked.is_none();
        if !blocks && same >= KEPT {
            return;
        }
        let at = self.lens.place(at);
        if blocks {
            let (at, note) = (at.clone(), note.clone());
            self.seen.blocked = Some(Finding::new(detector, at, note));
        }
        if same < KEPT {
            self.seen.findings.push(Finding::new(detector, at, note));
        }
    }
}

/// The first [`SEAM`] bytes of a text, up to the end of a word: a part of a word can look like a secret.
fn begin_of(text: &str) -> &str {
    let begin = text.get(..text.floor_char_boundary(SEAM)).unwrap_or_default();
    let end = begin.rfind(char::is_whitespace).filter(|_| begin.len() < text.len());
    begin.get(..end.unwrap_or(begin.len())).unwrap_or_default()
}

/// The last [`SEAM`] bytes of a text, from the begin of a word on.
fn end_of(text: &str) -> &str {
    let from = text.ceil_char_boundary(text.len().saturating_sub(SEAM));
    let end = text.get(from..).unwrap_or_default();
    let begin = end.find(char::is_whitespace).filter(|_| from > 0);
    end.get(begin.unwrap_or(0)..).unwrap_or_default()
}

/// A part of two joined texts, and what is shown in its place.
struct Seam {
    from: usize,
    behind: usize,
    shown: String,
}

impl Seam {
    /// What differs between a text and its sanitised form.
    fn of(text: &str, clean: &str) -> Self {
        let same = |(one, other): &(char, char)| one == other;
        let length = |pairs: &mut dyn Iterator<Item = (char, char)>| {
            pairs.take_while(same).map(|(one, _)| one.len_utf8()).sum::<usize>()
        };
        let from = length(&mut text.chars().zip(clean.chars()));
        let (rest, shown) =
            (text.get(from..).unwrap_or_default(), clean.get(from..).unwrap_or_default());
        let behind = length(&mut rest.chars().rev().zip(shown.chars().rev()));
        let shown = shown.get(..shown.len() - behind).unwrap_or_default().to_owned();
        Self { from, behind: text.len() - behind, shown }
    }
}

/// Bytes that broken base64 decodes to at least, if it counts as text: shorter ones look like text by chance.
const SHORTEST_TEXT: usize = 12;
/// What is said of broken base64 that lenient readers read as text.
const BROKEN: &str = "is base64 with other characters, which some readers skip";

/// Whether a member carries base64 data: of a resource, an image or an audio block.
fn carries(name: &str, place: MessagePosition) -> bool {
    name == "blob" || place == MessagePosition::Block && name == "data"
}

/// Inspects a string and returns it as it is shown in its position.
fn shown(lens: &StringScan<'_>, text: &str, known: ValueContext<'_>) -> ScanResult {
    let lens = &lens.for_named(known.named);
    let place = known.place;
    if place == MessagePosition::Where && lens.is_result() {
        return lens.for_places().cleaned(text);
    }
    let mut glance = lens.glance(text);
    if lens.fences && place.is_text() && lens.is_result() {
        let now = glance.text.as_deref().unwrap_or(text);
        if !lens.fence().is_around(now) {
            glance.text = Some(lens.fence().around(now));
        }
    }
    glance
}

/// Inspects the name of a member, which gets no note and no fence.
fn named(lens: &StringScan<'_>, name: &str) -> ScanResult {
    lens.cleaned(name)
}

/// Base64 data in decoded form.
enum BlobContent {
    /// Text, or mostly text.
    Text(String),
    /// Binary data, which would break if it were rewritten like text.
    Bytes(Vec<u8>),
}

/// Decodes base64 data leniently; `None` where it is not base64, and where the text itself is a secret, because many
/// keys consist of base64 characters.
fn carried(lens: &StringScan<'_>, text: &str) -> Option<BlobContent> {
    if lens.is_value(text) {
        return None;
    }
    let plain: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let bytes = coding::base64(&plain)?;
    let carried = String::from_utf8_lossy(&bytes);
    let odd = |c: &char| {
        *c == '\u{fffd}' || c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{1b}')
    };
    let (all, odd) = (carried.chars().count(), carried.chars().filter(odd).count());
    if odd * 10 <= all {
        return Some(BlobContent::Text(carried.into_owned()));
    }
    Some(BlobContent::Bytes(bytes))
}

type BlobFinding = (Detector, Handling, Cow<'static, str>);

/// The findings in binary data, and the data with the found values masked. Only unmistakable values are searched
/// for, and a mask keeps the length: an image that contains a secret remains an image.
fn masked(lens: &StringScan<'_>, bytes: &[u8]) -> (Vec<BlobFinding>, Option<Vec<u8>>) {
    let lens = lens.for_values();
    let (mut findings, mut out) = (Vec::new(), None::<Vec<u8>>);
    let mut done = 0;
    for run in bytes.split(|byte| !is_shown(*byte)) {
        let from = done;
        done += run.len() + 1;
        // INVARIANT: a run consists of ASCII bytes.
        let Some(text) = std::str::from_utf8(run).ok().filter(|_| run.len() >= RUN) else {
            continue;
        };
        let glance = lens.cleaned(text);
        if glance.text.is_some() {
            let out = out.get_or_insert_with(|| bytes.to_vec());
            let place = out.get_mut(from..from + run.len());
            place.into_iter().for_each(|place| place.fill(b'*'));
        }
        findings.extend(glance.findings);
    }
    // Text that is interspersed with other bytes is searched without them; zeros do not count as such, because
    // UTF-16 and UTF-32 consist largely of them.
    let now = out.as_deref().unwrap_or(bytes);
    let counted = bytes.len() - memchr::memchr_iter(0, bytes).count();
    let joined: String =
        now.iter().filter(|byte| is_shown(**byte)).map(|b| char::from(*b)).collect();
    if !joined.is_empty() && joined.len() * 2 >= counted {
        let left = lens.cleaned(&joined).findings.into_iter().map(|(detector, handling, note)| {
            // Without a single place it cannot be masked.
            let stays = handling == Handling::Redact;
            (detector, if stays { Handling::Block } else { handling }, note)
        });
        let left: Vec<BlobFinding> = left.filter(|one| !findings.contains(one)).collect();
        findings.extend(left);
    }
    (findings, out)
}

const fn is_shown(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}

/// The value that a number is, regardless of its spelling; `None` if it is none.
fn number(lens: &StringScan<'_>, raw: &str) -> Option<FoundValue> {
    let digits = whole(raw);
    let digits = digits.as_deref();
    let is_one = |values: Option<&AhoCorasick>| {
        let is = |text: &str| {
            values.is_some_and(|values| {
                values.find_iter(text).any(|one| one.start() == 0 && one.end() == text.len())
            })
        };
        is(raw) || digits.is_some_and(is)
    };
    if is_one(lens.labelled) {
        return Some(FoundValue::new(ValueClass::Field, "sensitive-field", 0, raw.len()));
    }
    let planted = lens.planted.whole(raw).or_else(|| lens.planted.whole(digits?));
    if let Some(planted) = planted.filter(|one| lens.of(one.class) != Handling::Off) {
        return Some(FoundValue { from: 0, end: raw.len(), ..planted });
    }
    if let Some(found) = lens.named_number(raw) {
        return Some(found);
    }
    let on = |class| lens.of(class) != Handling::Off;
    let looked = on(ValueClass::Identifier) || on(ValueClass::Carried) || lens.remembers;
    let digits = digits.filter(|_| looked)?;
    let mut found = Vec::new();
    if digits.len() >= DIGITS {
        personal::find(digits, &mut found);
    }
    if let Some(name) = lens.name {
        personal::find_named(name, digits, &mut found);
    }
    let is = |one: &FoundValue| {
        one.class == ValueClass::Identifier && one.end - one.from == digits.len()
    };
    let found = match found.into_iter().find(is) {
        Some(found) => lens.counted(found, digits),
        None => lens.known(digits)?,
    };
    (lens.of(found.class) != Handling::Off).then_some(found)
}

/// The digits of an integer, without its sign: `-12.0` and `1.2e1` are read as `12`, and so is `12.00000000000000000001`,
/// of which a double keeps no more. `None` for a number that is not an integer, or whose exponent is too large.
fn whole(raw: &str) -> Option<Cow<'_, str>> {
    if let Some(rounded) = json::rounded_to_integer(raw) {
        return Some(Cow::Owned(rounded));
    }
    let plain = raw.strip_prefix('-').unwrap_or(raw);
    if plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Cow::Borrowed(plain));
    }
    let (mantissa, exponent) = plain.split_once(['e', 'E']).unwrap_or((plain, "0"));
    let exponent: i32 =
        exponent.parse().ok().filter(|exponent: &i32| exponent.unsigned_abs() <= EXPONENT)?;
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = format!("{before}{behind}");
    let point = i32::try_from(before.len()).ok()?.checked_add(exponent)?;
    let point = usize::try_from(point).ok()?;
    if point < digits.len() {
        if digits.bytes().skip(point).any(|byte| byte != b'0') {
            return None;
        }
        digits.truncate(point);
    }
    digits.extend(std::iter::repeat_n('0', point - digits.len()));
    Some(Cow::Owned(digits.trim_start_matches('0').to_owned()))
}

/// Writes the value in its sanitised form.
fn write(out: &mut Vec<u8>, changed: &Replacements, value: Value<'_>) {
    if let Some(text) = changed.values.get(&value.span().start) {
        return write_string(out, text);
    }
    match value.kind() {
        JsonKind::Null
        | JsonKind::Boolean
        | JsonKind::Number
        | JsonKind::Plain
        | JsonKind::Escaped => out.extend_from_slice(value.raw().as_bytes()),
        JsonKind::Array => {
            write_items(out, value.items(), |out, item| write(out, changed, item));
        }
        JsonKind::Object => write_members(out, value.members(), |out, (name, member)| {
            let replaced = changed.names.get(&member.span().start);
            write_name(out, replaced.map_or(&*name, String::as_str));
            write(out, changed, member);
        }),
    }
}
