//! The attributes of HTML elements in a text, as a reader of HTML finds them (HTML, section 13.2.5; vectors PV-37 to PV-39).
//!
//! Where an element begins depends on the reader: Markdown takes a `<` for text where HTML begins an element, and a `<` within
//! a value is one to a reader that does not see the value. So every `<` with a letter behind it may begin an element. All of
//! these readings are followed at once. Two that reach one state go on alike, so there are no more of them than states, and
//! each byte is looked at a fixed number of times.

use std::ops::Range;

use memchr::memchr;

/// Elements that load what one of their attributes names.
const LOADING: [&str; 15] = [
    "img", "image", "feimage", "video", "audio", "source", "track", "input", "body", "table", "td",
    "th", "use", "picture", "link",
];

/// An attribute of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    /// The first `<` that may begin its element.
    pub(super) element: usize,
    /// Whether the element is of a kind that loads what an attribute names.
    pub(super) loads: bool,
    pub(super) name: Range<usize>,
    /// The value without quotation marks; empty if there is none.
    pub(super) value: Range<usize>,
    /// Where the attribute ends, with the quotation mark.
    pub(super) end: usize,
}

/// The state of a reading within an element (HTML, sections 13.2.5.8 and 13.2.5.32 to 13.2.5.39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the name of the element.
    Element,
    /// Before the name of an attribute.
    BeforeName,
    /// In the name of an attribute.
    Name,
    /// After the name of an attribute, and blanks.
    AfterName,
    /// After the `=` behind the name of an attribute.
    BeforeValue,
    /// In a value in double quotation marks.
    Double,
    /// In a value in single quotation marks.
    Single,
    /// In a value without quotation marks.
    Bare,
}

impl State {
    const ALL: [Self; 8] = [
        Self::Element,
        Self::BeforeName,
        Self::Name,
        Self::AfterName,
        Self::BeforeValue,
        Self::Double,
        Self::Single,
        Self::Bare,
    ];
}

/// A reading of what may be an element.
#[derive(Clone, Copy, Debug)]
struct Reading {
    element: usize,
    loads: bool,
    /// The name of the attribute under way.
    name: (usize, usize),
    /// Where its value begins.
    value: usize,
}

/// What a byte does to a reading.
enum Step {
    /// It goes on in this state.
    To(State),
    /// An attribute has ended, and it goes on in this state; `None` if the element has ended as well.
    Ended(Option<State>),
    /// The element has ended.
    Closed,
}

/// Finds the attributes of everything that may be an element. One that `found` wants no more of ends the search.
pub(super) fn find(text: &str, found: &mut dyn FnMut(Attribute) -> bool) {
    let bytes = text.as_bytes();
    let mut readings: [Option<Reading>; State::ALL.len()] = [None; State::ALL.len()];
    let (mut at, mut is_idle) = (0, true);
    while let Some(byte) = bytes.get(at) {
        if is_idle {
            let Some(next) = memchr(b'<', bytes.get(at..).unwrap_or_default()) else { return };
            at += next;
        }
        let byte = if is_idle { b'<' } else { *byte };
        let mut next: [Option<Reading>; State::ALL.len()] = [None; State::ALL.len()];
        for (state, reading) in State::ALL.into_iter().zip(readings) {
            let Some(mut reading) = reading else { continue };
            let step = step(at, byte, state, &mut reading, bytes);
            let goes_on = match step {
                Step::To(state) => Some(state),
                Step::Ended(state) => {
                    if !found(reading.attribute(at)) {
                        return;
                    }
                    // What has ended it may be the first byte of another one.
                    reading.name = (at, at);
                    state
                }
                Step::Closed => None,
            };
            let Some(place) = goes_on.and_then(|state| next.get_mut(state as usize)) else {
                continue;
            };
            // The earlier `<` stands for both.
            let merged = match *place {
                Some(other) if other.element <= reading.element => {
                    Reading { loads: other.loads || reading.loads, ..other }
                }
                Some(other) => Reading { loads: other.loads || reading.loads, ..reading },
                None => reading,
            };
            *place = Some(merged);
        }
        let begins = byte == b'<' && bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic);
        if begins && let Some(place) = next.first_mut() {
            // One in the name of an element that began before goes on as this one.
            let element = place.map_or(at, |reading| reading.element);
            *place = Some(Reading { element, loads: false, name: (at, at), value: at });
        }
        readings = next;
        is_idle = readings.iter().all(Option::is_none);
        at += 1;
    }
    // The end of the text may cut an element off, which some readers close. A value in quotation marks goes on.
    for state in [State::Name, State::AfterName, State::Bare] {
        let Some(mut reading) = readings.get(state as usize).copied().flatten() else { continue };
        if let Step::Ended(_) = step(bytes.len(), b'>', state, &mut reading, bytes)
            && !found(reading.attribute(bytes.len()))
        {
            return;
        }
    }
}

/// What the byte at `at` does to a reading in `state`.
fn step(at: usize, byte: u8, state: State, reading: &mut Reading, bytes: &[u8]) -> Step {
    let is_blank = byte.is_ascii_whitespace();
    match state {
        State::Element => match byte {
            b'>' => Step::Closed,
            _ if is_blank || byte == b'/' => {
                let name = bytes.get(reading.name.0 + 1..at).unwrap_or_default();
                let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
                reading.loads = LOADING.iter().any(|known| is(known));
                Step::To(State::BeforeName)
            }
            _ => Step::To(State::Element),
        },
        State::BeforeName => match byte {
            b'>' => Step::Closed,
            _ if is_blank || byte == b'/' => Step::To(State::BeforeName),
            _ => {
                reading.name = (at, at);
                Step::To(State::Name)
            }
        },
        State::Name => match byte {
            b'=' => {
                reading.name.1 = at;
                Step::To(State::BeforeValue)
            }
            b'>' | b'/' => {
                reading.name.1 = at;
                reading.value = at;
                Step::Ended(rest(byte))
            }
            _ if is_blank => {
                reading.name.1 = at;
                Step::To(State::AfterName)
            }
            _ => Step::To(State::Name),
        },
        State::AfterName => match byte {
            b'=' => Step::To(State::BeforeValue),
            _ if is_blank => Step::To(State::AfterName),
            b'>' | b'/' => {
                reading.value = at;
                Step::Ended(rest(byte))
            }
            _ => {
                reading.value = at;
                Step::Ended(Some(State::Name))
            }
        },
        State::BeforeValue | State::Double | State::Single | State::Bare => {
            value_step(at, byte, state, reading)
        }
    }
}

/// The same for a reading before or in a value.
fn value_step(at: usize, byte: u8, state: State, reading: &mut Reading) -> Step {
    let is_blank = byte.is_ascii_whitespace();
    if state == State::BeforeValue {
        let is_quote = matches!(byte, b'"' | b'\'');
        reading.value = at + usize::from(is_quote);
    }
    match (state, byte) {
        (State::BeforeValue, b'"') => Step::To(State::Double),
        (State::BeforeValue, b'\'') => Step::To(State::Single),
        (State::BeforeValue, b'>') => Step::Ended(None),
        (State::BeforeValue, _) if is_blank => Step::To(State::BeforeValue),
        (State::BeforeValue, _) => Step::To(State::Bare),
        (State::Double, b'"') | (State::Single, b'\'') => Step::Ended(Some(State::BeforeName)),
        (State::Bare, _) if is_blank || byte == b'>' => Step::Ended(rest(byte)),
        (state, _) => Step::To(state),
    }
}

/// The state after an attribute that `byte` has ended.
fn rest(byte: u8) -> Option<State> {
    (byte != b'>').then_some(State::BeforeName)
}

impl Reading {
    /// The attribute whose value ends at `at`.
    fn attribute(&self, at: usize) -> Attribute {
        let Self { element, loads, name, value } = *self;
        Attribute { element, loads, name: name.0..name.1, value: value.min(at)..at, end: at + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    /// The attributes of a text, as `element name=value`.
    fn all(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        find(text, &mut |one| {
            let part = |range| text.get::<std::ops::Range<usize>>(range).unwrap();
            all.push(format!("{} {}={}", one.element, part(one.name), part(one.value)));
            true
        });
        all
    }

    #[test]
    fn attributes_are_read_as_a_reader_of_html_does() {
        for (text, expected) in [
            ("<a href=\"b\">", &["0 href=b"][..]),
            ("x <a\n href = 'b c' d>", &["2 href=b c", "2 d="]),
            ("<a href=b/c>", &["0 href=b/c"]),
            ("<a title=\"x>y\" src=z>", &["0 title=x>y", "0 src=z"]),
            ("<a/b/c=d>", &["0 b=", "0 c=d"]),
            ("<p hidden=>x", &["0 hidden="]),
            ("<p hidden", &["0 hidden="]),
            ("<img src=//x", &["0 src=//x"]),
            ("<p a b>c d=e", &["0 a=", "0 b="]),
            ("a < b and c=d", &[]),
            ("</p a=b> <! a=b>", &[]),
            // To Markdown, the first is no element.
            ("<a b=\"<c d=\"e\">", &["0 b=<c d=", "6 d=e", "0 e\"="]),
        ] {
            assert_eq!(all(text), expected, "{text}");
        }
    }

    #[test]
    fn elements_that_load_are_known() {
        let loads = |text: &str| {
            let mut loads = false;
            find(text, &mut |one| {
                loads |= one.loads;
                true
            });
            loads
        };
        assert!(loads("<IMG src=x>") && loads("<x <img src=x>") && loads("<a b='<img src=x>"));
        assert!(!loads("<a src=x>") && !loads("<imgs src=x>"));
    }

    #[test]
    fn a_search_ends_when_no_more_is_wanted() {
        let mut count = 0;
        find("<a b c d e>", &mut |_| {
            count += 1;
            count < 2
        });
        assert_eq!(count, 2);
    }
}
