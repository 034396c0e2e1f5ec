//! What a byte that a peer sends costs everything that reads what a peer has chosen: heap and counted work. A test fails
//! where heap, or work that no budget bounds, is a hundred times the input or more, beyond what is fixed and what a limit
//! with a name of its own bounds; and where more is spent than the budget of the message has.
//!
//! The allocator of this test counts. Inputs are generated: each part of which hostile texts consist again and again, deep
//! and wide values, schemas, definitions and so on. All of them are measured with a few hundred bytes, the worst of these
//! with 4 KiB, and the worst of these with 16 KiB. With `PORTCULLIS_LONG_INPUTS` all of them are measured with 1 KiB and
//! 4 KiB, the worst of these with 64 KiB and 1 MiB, and the figures are written to `target/tmp/amplification`, a file for
//! each group, from which the table in `docs/limits.md` is taken.

#![expect(clippy::unwrap_used, reason = "a test says with a panic that it fails")]

mod inputs;
mod meter;
mod places;
#[path = "../../policy/tests/texts/mod.rs"]
mod texts;

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use detection::inspect::Detector;
use e2e::gateway::root;
use policy_core::base::work::WorkLimits;

use self::inputs::Recipe;
use self::meter::{Cost, Meter};
use self::places::{GROUPS, Group, Place};

/// The lengths of inputs, and how many of the worst of each length are measured with the next one. The first one only tells
/// which inputs are the worst.
const LENGTHS: [(usize, usize); 3] = [(SELECTING, 2), (4 << 10, 1), (16 << 10, 0)];
const SELECTING: usize = 256;
/// The same if the variable [`LONG_INPUTS`] is set.
const MORE_LENGTHS: [(usize, usize); 4] =
    [(1 << 10, usize::MAX), (4 << 10, 6), (64 << 10, 1), (1 << 20, 0)];
/// The variable that has all inputs and the longest ones measured, which takes minutes.
const LONG_INPUTS: &str = "PORTCULLIS_LONG_INPUTS";
/// Bytes of the stack: without optimisation the parser of conditions takes ten times as much as with it.
const STACK: usize = 64 << 20;

/// Detectors whose findings come from elsewhere, and what bounds their reading.
const ELSEWHERE: [(Detector, &str); 1] =
    [(Detector::Guardrail, "the verdict of a service of the operator, read as JSON")];
/// Fuzz targets of what is read by a library from a connection, and where its bounds are measured.
const ON_CONNECTIONS: [(&str, &str); 1] = [("http2", "e2e http2::")];

/// What one input has cost at one place.
struct Measured<'a> {
    recipe: &'a Recipe,
    cost: Cost,
}

impl Measured<'_> {
    fn heap(&self, group: &Group) -> u64 {
        self.cost.heap.saturating_sub(group.fixed) / self.cost.bytes.max(1)
    }

    /// Work that no budget bounds.
    fn unbounded(&self, group: &Group) -> u64 {
        self.cost.unbounded.saturating_sub(group.fixed) / self.cost.bytes.max(1)
    }

    /// Work from the budget of the message.
    fn spent(&self) -> u64 {
        self.cost.spent / self.cost.bytes.max(1)
    }
}

fn measured<'a>(place: &Place, recipes: &[&'a Recipe], bytes: usize) -> Vec<Measured<'a>> {
    let measured = |recipe: &&'a Recipe| {
        let text = (recipe.make)(bytes);
        let mut meter = Meter::default();
        (place.run)(&text, &mut meter);
        Measured { recipe, cost: meter.worst() }
    };
    recipes.iter().map(measured).collect()
}

/// The inputs with the greatest heap, and those with the greatest work, so many of each.
fn worst<'a>(mut all: Vec<Measured<'a>>, most: usize) -> Vec<&'a Recipe> {
    all.sort_by_key(|one| std::cmp::Reverse(one.cost.heap));
    let by_heap: Vec<_> = all.iter().take(most).map(|one| one.recipe).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.cost.work()));
    let by_work = all.iter().take(most).map(|one| one.recipe);
    let by_work = by_work.filter(|one| !by_heap.iter().any(|other| std::ptr::eq(*one, *other)));
    by_work.chain(by_heap.iter().copied()).collect()
}

/// Measures a place of a group; appends a line for each length to `table`, and what costs too much to `over`.
fn check(place: &Place, group: &Group, table: &mut String, over: &mut String) {
    let mut recipes: Vec<_> = place.inputs.iter().collect();
    let lengths = if is_whole() { &MORE_LENGTHS[..] } else { &LENGTHS[..] };
    for (bytes, most) in lengths.iter().filter(|(bytes, _)| *bytes <= group.longest) {
        let all = measured(place, &recipes, *bytes);
        let by = |key: fn(&Measured<'_>) -> u64| all.iter().max_by_key(|one| key(one)).unwrap();
        let (heap, work) = (by(|one| one.cost.heap), by(|one| one.cost.work()));
        let each = |cost: u64, of: &Measured<'_>| cost / of.cost.bytes.max(1);
        writeln!(
            table,
            "{} | {bytes} | {} | {} | {} | {}",
            place.name,
            each(heap.cost.heap, heap),
            heap.recipe.name,
            each(work.cost.work(), work),
            work.recipe.name
        )
        .unwrap();
        for one in all.iter().filter(|_| *bytes > SELECTING) {
            let is_spent = one.spent() > WorkLimits::USUAL.each_byte;
            if one.heap(group) >= group.heap || one.unbounded(group) >= group.work || is_spent {
                let Measured { recipe, cost } = one;
                writeln!(over, "{}: {} of {bytes}: {cost:?}", place.name, recipe.name).unwrap();
            }
        }
        recipes = worst(all, *most);
    }
}

/// Whether all inputs and the longest ones are measured.
fn is_whole() -> bool {
    env::var_os(LONG_INPUTS).is_some()
}

/// Measures all places of a group, on a stack of its own.
fn check_group(name: &'static str) {
    let checking = move || {
        let group = GROUPS.iter().find(|group| group.name == name).unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("amplification");
        fs::create_dir_all(&folder).unwrap();
        let (mut table, mut over) = (String::new(), String::new());
        for place in (group.places)() {
            check(&place, group, &mut table, &mut over);
            if is_whole() {
                fs::write(folder.join(name), &table).unwrap();
            }
        }
        assert!(
            over.is_empty(),
            "more than {} and {} for each byte:\n{over}",
            group.heap,
            group.work
        );
    };
    let checking = thread::Builder::new().stack_size(STACK).spawn(checking).unwrap();
    if let Err(panic) = checking.join() {
        resume_unwind(panic);
    }
}

#[test]
fn each_detector_with_each_handling_stays_within_its_bounds() {
    check_group("handlings");
}

#[test]
fn looking_at_contents_stays_within_the_bounds() {
    check_group("contents");
}

#[test]
fn reading_definitions_stays_within_the_bounds() {
    check_group("definitions");
}

#[test]
fn compiling_and_checking_stays_within_the_bounds() {
    check_group("schemas");
}

#[test]
fn reading_messages_stays_within_the_bounds() {
    check_group("messages");
}

#[test]
fn reading_addresses_tokens_and_logs_stays_within_the_bounds() {
    check_group("texts");
}

#[test]
fn reading_the_configuration_stays_within_the_bounds() {
    check_group("operator");
}

#[test]
fn every_detector_is_measured() {
    let places: Vec<_> = GROUPS.iter().flat_map(|group| (group.places)()).collect();
    let measured = places.iter().flat_map(|place| &place.detectors).copied();
    let measured: BTreeSet<_> = measured.chain(ELSEWHERE.map(|(detector, _)| detector)).collect();
    assert_eq!(measured, BTreeSet::from(Detector::ALL));
}

#[test]
fn everything_that_is_fuzzed_is_measured() {
    let places: Vec<_> = GROUPS.iter().flat_map(|group| (group.places)()).collect();
    let measured = places.iter().flat_map(|place| place.targets).copied();
    let measured: BTreeSet<_> = measured.chain(ON_CONNECTIONS.map(|(target, _)| target)).collect();
    let files = fs::read_dir(root().join("fuzz/targets")).unwrap();
    let files: Vec<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    let targets = files.iter().filter_map(|file| file.strip_suffix(".rs"));
    assert_eq!(measured, targets.collect());
}
