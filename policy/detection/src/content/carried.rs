//! Remembers the secrets that callers were shown, to recognise them when they are sent to another server
//! (control C26).
//!
//! A value is compared by its letters and digits alone ([`ComparableText`]). Only digests under a random key are kept, in
//! memory, in a bounded number for each caller and server: one of the whole value, and one of a window in its
//! middle, by which texts are searched.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use policy_core::base::digits::with_ascii_digit;
use policy_core::base::work::WorkBudget;

/// Most values of one server that are kept for one caller; the oldest is dropped first.
const VALUES: usize = 256;
/// Most pairs of a caller and a server; the least recently used one is dropped first.
const PAIRS: usize = 4096;
/// Most callers whose search index is kept; an index is rebuilt on demand.
const SOUGHT: usize = 256;
/// Bytes of a digest that are kept.
const DIGEST: usize = 8;

/// Letters and digits in the window of a value, by which it is searched for.
const WINDOW: usize = 8;
/// Fewest letters and digits of a value with a digit that is searched for, also within a word.
const ANYWHERE: usize = 12;
/// The same for a value without a digit, because natural words are shorter.
const ANYWHERE_IN_LETTERS: usize = 20;
/// Units that the search costs for each byte of a text.
const EACH_BYTE: usize = 4;
/// Units that testing one value at one place costs.
const EACH_PLACE: usize = 8;
/// Units that comparing a digest costs, beside the length of the value.
const EACH_DIGEST: usize = 256;
/// Bits of the filter over the windows of all values: a power of two.
const BITS: usize = 1 << 14;

type Digest = [u8; DIGEST];

/// A version of what is remembered about one caller: while it is equal, so are the findings in the same text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackerVersion {
    /// The turn in which a value was last added. Turns are never reused.
    last: u64,
    /// Number of servers with remembered values; without a new turn it only falls, as old pairs are dropped.
    servers: usize,
}

/// The form in which values are compared: letters and digits in lower case, with full-width ASCII characters
/// (U+FF01 to U+FF5E) and the digits of other scripts folded, and without separators.
#[derive(Debug, Default)]
pub(super) struct ComparableText {
    /// The letters and digits in UTF-8.
    all: Vec<u8>,
    /// For each byte, the range of its character in the text.
    places: Vec<(u32, u32)>,
}

impl ComparableText {
    pub(super) fn of(text: &str) -> Self {
        let mut letters = Self::default();
        for (at, c) in text.char_indices() {
            letters.add(c, at, at + c.len_utf8());
        }
        letters
    }

    /// The letters of a JSON string within a string, with its escapes resolved (RFC 8259 section 7).
    fn of_escaped(text: &str) -> Self {
        let (mut letters, mut at) = (Self::default(), 0);
        while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
            let end = at + c.len_utf8();
            if c != '\\' {
                letters.add(c, at, end);
                at = end;
                continue;
            }
            let escape = text.as_bytes().get(end).copied().unwrap_or_default();
            let code = text.get(end + 1..end + 5).filter(|_| escape == b'u');
            let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
            at = match code.and_then(char::from_u32) {
                Some(c) => {
                    letters.add(c, at, end + 5);
                    end + 5
                }
                // A sign, or an escape that stands for a control character.
                None if escape.is_ascii() && escape != 0 => end + 1,
                None => end,
            };
        }
        letters
    }

    fn add(&mut self, c: char, from: usize, end: usize) {
        let plain = match c {
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
            other => with_ascii_digit(other),
        };
        if !plain.is_alphanumeric() {
            return;
        }
        let place = |at| u32::try_from(at).unwrap_or(u32::MAX);
        let mut bytes = [0; 4];
        for letter in plain.to_lowercase() {
            let letter = letter.encode_utf8(&mut bytes).as_bytes();
            self.all.extend_from_slice(letter);
            self.places.extend(letter.iter().map(|_| (place(from), place(end))));
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.all
    }

    /// The range in the text of a range of letters.
    fn place(&self, letters: &Range<usize>) -> Option<Range<usize>> {
        let (from, _) = self.places.get(letters.start)?;
        let (_, end) = self.places.get(letters.end.checked_sub(1)?)?;
        Some(usize::try_from(*from).ok()?..usize::try_from(*end).ok()?)
    }
}

/// The keyed hash functions for the values of one caller.
#[derive(Clone, Copy)]
pub(super) struct KeyedHashing<'a> {
    /// The keyed digest of letters.
    pub(super) digest: &'a dyn Fn(&[u8]) -> Vec<u8>,
    /// A random key that does not leave the process.
    pub(super) key: [u64; 2],
}

impl KeyedHashing<'_> {
    /// The hash of a window, which is packed into a number.
    fn window(&self, letters: u64) -> u32 {
        let [mask, factor] = self.key;
        let mixed = (letters ^ mask).wrapping_mul(factor | 1);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(factor.rotate_left(32) | 1);
        u32::try_from(mixed >> 32).unwrap_or_default()
    }

    /// The hash of the letters of a window.
    fn window_of(&self, letters: &[u8]) -> u32 {
        self.window(letters.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// The hashes by which a value is searched for, of [`WINDOW`] letters and digits each.
#[derive(Clone, Copy, Debug)]
struct WindowHashes {
    /// The window in its middle, because keys of one kind begin and end alike.
    middle: u32,
    /// The window at its beginning.
    head: u32,
}

/// A value that a caller was shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownValue {
    digest: Digest,
    /// Number of its letters and digits, in bytes of UTF-8.
    length: u32,
    /// The windows to search for; `None` for a value that only a detector finds again.
    windows: Option<WindowHashes>,
    /// The stable name of the rule that found it.
    rule: &'static str,
}

impl ShownValue {
    pub(super) fn new(
        letters: &ComparableText,
        rule: &'static str,
        hashing: &KeyedHashing<'_>,
    ) -> Self {
        let all = letters.as_bytes();
        let digest = short(&(hashing.digest)(all));
        let digits = all.iter().filter(|byte| byte.is_ascii_digit()).count();
        let sought = all.len() >= ANYWHERE_IN_LETTERS
            || all.len() >= ANYWHERE && digits > 0
            || all.len() >= WINDOW && digits == all.len();
        let middle = all.len().saturating_sub(WINDOW) / 2;
        let windows = match (all.get(middle..middle + WINDOW), all.get(..WINDOW)) {
            (Some(middle), Some(head)) if sought => Some(WindowHashes {
                middle: hashing.window_of(middle),
                head: hashing.window_of(head),
            }),
            _ => None,
        };
        Self { digest, length: u32::try_from(all.len()).unwrap_or(u32::MAX), windows, rule }
    }

    fn length(&self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }
}

/// The search index over the values of one caller.
#[derive(Debug)]
pub(super) struct SearchIndex {
    /// A filter over the windows, by the last bits of their hashes.
    bits: Vec<u64>,
    /// The values by their middle window.
    values: BTreeMap<u32, Vec<IndexedValue>>,
}

/// A value with the servers that gave it.
#[derive(Debug)]
struct IndexedValue {
    value: ShownValue,
    /// The window at its beginning.
    head: u32,
    servers: Vec<Box<str>>,
}

impl SearchIndex {
    fn of<'a>(given: impl Iterator<Item = (&'a str, &'a ServerValues)>) -> Self {
        let mut sought = Self { bits: vec![0; BITS / 64], values: BTreeMap::new() };
        for (server, given) in given {
            for value in &given.values {
                let Some(WindowHashes { middle: window, head }) = value.windows else { continue };
                if let Some(word) = sought.bits.get_mut(Self::bit(window) / 64) {
                    *word |= 1 << (Self::bit(window) % 64);
                }
                let same = sought.values.entry(window).or_default();
                match same.iter_mut().find(|known| known.value.digest == value.digest) {
                    Some(known) => known.servers.push(server.into()),
                    None => same.push(IndexedValue {
                        value: *value,
                        head,
                        servers: vec![server.into()],
                    }),
                }
            }
        }
        sought
    }

    fn bit(window: u32) -> usize {
        usize::try_from(window).unwrap_or_default() % BITS
    }

    fn may_have(&self, window: u32) -> bool {
        let word = self.bits.get(Self::bit(window) / 64).copied().unwrap_or_default();
        word >> (Self::bit(window) % 64) & 1 == 1
    }

    /// The values in a text that a server other than `server` gave, and `server` itself did not: each with its rule
    /// and its range.
    pub(super) fn find(
        &self,
        text: &str,
        server: &str,
        hashing: &KeyedHashing<'_>,
        budget: &WorkBudget,
    ) -> Vec<(&'static str, Range<usize>)> {
        let mut found = Vec::new();
        if text.len() < WINDOW || self.values.is_empty() {
            return found;
        }
        let escaped = memchr::memchr(b'\\', text.as_bytes()).is_some();
        if !budget.spend(text.len().saturating_mul(EACH_BYTE << usize::from(escaped))) {
            return found;
        }
        self.find_in(&ComparableText::of(text), text, server, hashing, budget, &mut found);
        if escaped {
            let letters = ComparableText::of_escaped(text);
            self.find_in(&letters, text, server, hashing, budget, &mut found);
        }
        found
    }

    fn find_in(
        &self,
        letters: &ComparableText,
        text: &str,
        server: &str,
        hashing: &KeyedHashing<'_>,
        budget: &WorkBudget,
        found: &mut Vec<(&'static str, Range<usize>)>,
    ) {
        let (all, mut number) = (letters.as_bytes(), 0_u64);
        for (at, byte) in all.iter().enumerate() {
            number = number << 8 | u64::from(*byte);
            let window = hashing.window(number);
            if at + 1 < WINDOW || !self.may_have(window) {
                continue;
            }
            for known in self.values.get(&window).into_iter().flatten() {
                if !budget.spend(EACH_PLACE) {
                    return;
                }
                let Some(whole) = known.place(all, at + 1 - WINDOW, hashing, budget) else {
                    continue;
                };
                if known.servers.iter().any(|known| **known == *server) {
                    continue;
                }
                let stands = |place: &Range<usize>| {
                    known.value.length() >= ANYWHERE || stands_alone(text, place)
                };
                let place = letters.place(&whole).filter(stands);
                found.extend(place.map(|place| (known.value.rule, place)));
            }
        }
    }
}

impl IndexedValue {
    /// The range of the value among these letters, if its middle window is at `middle` and the rest around it.
    fn place(
        &self,
        letters: &[u8],
        middle: usize,
        hashing: &KeyedHashing<'_>,
        budget: &WorkBudget,
    ) -> Option<Range<usize>> {
        let length = self.value.length();
        let from = middle.checked_sub(length.saturating_sub(WINDOW) / 2)?;
        let whole = letters.get(from..from.checked_add(length)?)?;
        // The first window is compared first, because a digest is more expensive.
        let begins = hashing.window_of(whole.get(..WINDOW)?) == self.head;
        let is_it = begins
            && budget.spend(EACH_DIGEST.saturating_add(length))
            && short(&(hashing.digest)(whole)) == self.value.digest;
        is_it.then(|| from..from + length)
    }
}

/// Whether neither a letter nor a digit stands beside a place.
fn stands_alone(text: &str, place: &Range<usize>) -> bool {
    let before = text.get(..place.start).and_then(|text| text.chars().next_back());
    let behind = text.get(place.end..).and_then(|text| text.chars().next());
    ![before, behind].into_iter().flatten().any(char::is_alphanumeric)
}

/// The secrets that callers were shown.
#[derive(Debug, Default)]
pub(super) struct LeakTracker {
    // Locked briefly for each text that is sent by a caller with remembered values.
    kept: Mutex<TrackerState>,
    /// Number of changes: values that were added, and pairs that were dropped.
    learned: AtomicU64,
}

/// A caller and a server.
type CallerAndServer = (Box<str>, Box<str>);

#[derive(Debug, Default)]
struct TrackerState {
    turn: u64,
    /// The values by caller and server.
    of: BTreeMap<CallerAndServer, ServerValues>,
    /// The search index of each caller that needed one.
    sought: BTreeMap<Box<str>, Arc<SearchIndex>>,
}

/// The values that one server gave to one caller.
#[derive(Debug, Default)]
struct ServerValues {
    /// The turn in which any value was last shown.
    used: u64,
    /// The turn in which a new value was last shown.
    new: u64,
    values: VecDeque<ShownValue>,
}

impl ServerValues {
    fn has(&self, digest: &Digest) -> bool {
        self.values.iter().any(|known| known.digest == *digest)
    }
}

impl TrackerState {
    /// The values of one caller, by server.
    fn of_caller<'a>(
        &'a self,
        caller: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a ServerValues)> {
        let from: CallerAndServer = (caller.into(), "".into());
        let given = self.of.range(from..).take_while(move |((known, _), _)| &**known == caller);
        given.map(|((_, server), given)| (&**server, given))
    }
}

fn short(digest: &[u8]) -> Digest {
    digest.first_chunk().copied().unwrap_or_default()
}

impl LeakTracker {
    /// Remembers that `server` gave `value` to `caller`.
    pub(super) fn keep(&self, caller: &str, server: &str, value: ShownValue) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.turn += 1;
        let turn = kept.turn;
        let pair = (caller.into(), server.into());
        if kept.of.len() >= PAIRS && !kept.of.contains_key(&pair) {
            let oldest = kept.of.iter().min_by_key(|(_, given)| given.used);
            if let Some(oldest) = oldest.map(|(pair, _)| pair.clone()) {
                kept.of.remove(&oldest);
                kept.sought.remove(&oldest.0);
                self.learned.fetch_add(1, Ordering::Release);
            }
        }
        let given = kept.of.entry(pair).or_default();
        given.used = turn;
        if !given.has(&value.digest) {
            given.new = turn;
            if given.values.len() >= VALUES {
                given.values.pop_front();
            }
            given.values.push_back(value);
            kept.sought.remove(caller);
            self.learned.fetch_add(1, Ordering::Release);
        }
    }

    /// The search index over the values of `caller`; `None` where there are none.
    pub(super) fn sought(&self, caller: &str) -> Option<Arc<SearchIndex>> {
        if self.learned() == 0 {
            return None;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sought) = kept.sought.get(caller) {
            return Some(Arc::clone(sought));
        }
        kept.of_caller(caller).next()?;
        let sought = Arc::new(SearchIndex::of(kept.of_caller(caller)));
        if kept.sought.len() >= SOUGHT {
            kept.sought.pop_first();
        }
        kept.sought.insert(caller.into(), Arc::clone(&sought));
        Some(sought)
    }

    /// A counter of changes for any caller: while it is equal, the same text has the same findings, regardless of its
    /// sender.
    pub(super) fn learned(&self) -> u64 {
        self.learned.load(Ordering::Acquire)
    }

    /// The version for one caller: while it is equal, the same text of this caller has the same findings.
    pub(super) fn learned_of(&self, caller: &str) -> TrackerVersion {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut learned = TrackerVersion::default();
        for (_, given) in kept.of_caller(caller) {
            learned.last = learned.last.max(given.new);
            learned.servers += 1;
        }
        learned
    }

    /// Whether a server other than `server` gave `value` to `caller`, and `server` itself did not.
    pub(super) fn is_of_another(&self, caller: &str, server: &str, value: &ShownValue) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut other, mut own) = (false, false);
        for (known, given) in kept.of_caller(caller) {
            if given.has(&value.digest) {
                own |= known == server;
                other |= known != server;
            }
        }
        other && !own
    }
}

#[cfg(test)]
mod tests {
    use policy_core::base::work::WorkBudget;

    use super::{ComparableText, KeyedHashing, LeakTracker, PAIRS, ShownValue, VALUES};

    /// Letters as their own digest.
    const PLAIN: KeyedHashing<'static> =
        KeyedHashing { digest: &digest, key: [0x5bd1_e995_97f4_a7c1, 0x9e37_79b9_7f4a_7c15] };

    fn digest(letters: &[u8]) -> Vec<u8> {
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for byte in letters {
            digest = (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        digest.to_be_bytes().to_vec()
    }

    fn value(text: &str) -> ShownValue {
        ShownValue::new(&ComparableText::of(text), "a-rule", &PLAIN)
    }

    #[test]
    fn what_one_server_gave_is_known_at_another_only() {
        let carried = LeakTracker::default();
        carried.keep("ana", "crm", value("12345678"));
        assert!(carried.is_of_another("ana", "web", &value("12345678")));
        assert!(!carried.is_of_another("ana", "crm", &value("12345678")));
        assert!(!carried.is_of_another("bob", "web", &value("12345678")));
        assert!(!carried.is_of_another("ana", "web", &value("87654321")));
        let learned = carried.learned();
        carried.keep("ana", "web", value("12345678"));
        assert!(!carried.is_of_another("ana", "web", &value("12345678")));
        assert!(carried.learned() > learned);
        let learned = carried.learned();
        carried.keep("ana", "web", value("12345678"));
        assert_eq!(carried.learned(), learned, "nothing was new");
    }

    #[test]
    fn it_is_bounded() {
        let carried = LeakTracker::default();
        for n in 0..2 * PAIRS {
            carried.keep(&format!("caller {n}"), "crm", value("12345678"));
        }
        for n in 0..2 * VALUES {
            carried.keep("ana", "crm", value(&n.to_string()));
        }
        let kept = carried.kept.lock().unwrap();
        assert_eq!(kept.of.len(), PAIRS);
        assert_eq!(kept.of[&("ana".into(), "crm".into())].values.len(), VALUES);
    }

    #[test]
    fn what_one_caller_was_shown_changes_nothing_for_another() {
        let carried = LeakTracker::default();
        carried.keep("ana", "crm", value("12345678"));
        let (of_ana, of_all) = (carried.learned_of("ana"), carried.learned());
        for n in 0_u64..100 {
            carried.keep("bob", "crm", value(&n.to_string()));
            carried.keep("anabel", "crm", value(&n.to_string()));
        }
        carried.keep("ana", "crm", value("12345678"));
        assert_eq!(carried.learned_of("ana"), of_ana);
        assert!(carried.learned() > of_all);
        carried.keep("ana", "crm", value("87654321"));
        let more = carried.learned_of("ana");
        assert_ne!(more, of_ana);
        carried.keep("ana", "web", value("12345678"));
        assert_ne!(carried.learned_of("ana"), more);
    }

    #[test]
    fn what_is_forgotten_of_a_caller_changes_what_is_known_of_it() {
        let carried = LeakTracker::default();
        carried.keep("ana", "crm", value("12345678"));
        carried.keep("ana", "web", value("12345678"));
        let before = carried.learned_of("ana");
        for n in 0..PAIRS - 1 {
            carried.keep(&format!("caller {n}"), "crm", value("12345678"));
        }
        assert_ne!(carried.learned_of("ana"), before, "the older of the two was dropped");
    }

    /// The parts of `sent` in which `shown` is found.
    fn found<'a>(shown: &str, sent: &'a str) -> Option<&'a str> {
        let carried = LeakTracker::default();
        carried.keep("ana", "crm", value(shown));
        let (sought, budget) = (carried.sought("ana").unwrap(), WorkBudget::unlimited());
        assert_eq!(carried.sought("bob").map(|_| ()), None);
        assert!(sought.find(sent, "crm", &PLAIN, &budget).is_empty(), "it may go back");
        let found = sought.find(sent, "web", &PLAIN, &budget);
        found.first().and_then(|(_, place)| sent.get(place.clone()))
    }

    #[test]
    fn a_value_is_known_however_it_is_grouped_and_written() {
        const AWS: &str = "AKIAQYLPMN5HHHFPZAM2";
        const IBAN: &str = "DE89370400440532013000";
        for (shown, sent, is) in [
            (AWS, "use akiaqylpmn5hhhfpzam2 now", "akiaqylpmn5hhhfpzam2"),
            (AWS, "AKIA QYLP MN5H HHFP ZAM2", "AKIA QYLP MN5H HHFP ZAM2"),
            (AWS, "xAKIA_QYLP/MN5H.HHFP-ZAM2x", "AKIA_QYLP/MN5H.HHFP-ZAM2"),
            (AWS, "akiaqylpmn5\u{ff48}hhfpzam2", "akiaqylpmn5\u{ff48}hhfpzam2"),
            (AWS, r"AKIA\nQYLPMN5HHHFPZAM2", r"AKIA\nQYLPMN5HHHFPZAM2"),
            (AWS, r"\u0041KIAQYLPMN5HHHFPZA\u004d2", r"\u0041KIAQYLPMN5HHHFPZA\u004d2"),
            (IBAN, "de89 3704 0044 0532 0130 00", "de89 3704 0044 0532 0130 00"),
            ("4111 1111 1111 1111", "4111/1111.1111_1111", "4111/1111.1111_1111"),
            ("123-45-6789", "of 123 45 6789.", "123 45 6789"),
        ] {
            assert_eq!(found(shown, sent), Some(is), "{sent}");
        }
        for (shown, sent) in [
            (AWS, "akiaqylpmn5hhhfpzam"),
            (AWS, "AKIAQYLPMN5HHHFPZAM3"),
            (IBAN, "DE89 3704 0044 0532 0130 01"),
            // A short number within a longer one is not the value, and a word is none.
            ("123-45-6789", "91234567890"),
            ("authorization", "authorization"),
            ("hunter42x", "hunter42x"),
        ] {
            assert_eq!(found(shown, sent), None, "{sent}");
        }
    }

    #[test]
    fn looking_for_values_costs_in_proportion_to_the_text() {
        let carried = LeakTracker::default();
        for n in 0..2 * VALUES {
            carried.keep("ana", "crm", value(&format!("4111111{n:09}")));
        }
        let sought = carried.sought("ana").unwrap();
        let cost = |part: &str, count: usize| {
            let budget = WorkBudget::unlimited();
            drop(sought.find(&part.repeat(count), "web", &PLAIN, &budget));
            budget.spent() / u64::try_from(count).unwrap()
        };
        for part in ["4111111000000511 ", "1", "1111000 ", "\\", "\\u0031"] {
            let (few, many) = (cost(part, 1000), cost(part, 64_000));
            assert!(many <= 4 * few, "{part}: {few} and {many} units");
        }
    }
}
