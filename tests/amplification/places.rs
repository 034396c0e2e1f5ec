//! The places where the gateway reads what a peer has chosen, each with the inputs that it is measured with.

mod contents;
mod definitions;
mod messages;

use detection::inspect::Detector;
use json::{Document, JsonBounds};
use policy_core::subject::name::ServerName;

use crate::inputs::Recipe;
use crate::meter::Meter;

/// Reads an input, and tells the meter what that took.
pub(crate) type Reading = dyn Fn(&str, &mut Meter);

/// A part of the gateway that reads what a peer has chosen.
pub(crate) struct Place {
    pub(crate) name: String,
    /// The detectors whose work is done here.
    pub(crate) detectors: Vec<Detector>,
    /// The fuzz targets that read the same.
    pub(crate) targets: &'static [&'static str],
    pub(crate) inputs: Vec<Recipe>,
    pub(crate) run: Box<Reading>,
}

impl Place {
    fn new(
        name: impl Into<String>,
        inputs: Vec<Recipe>,
        run: impl Fn(&str, &mut Meter) + 'static,
    ) -> Self {
        let (name, detectors, targets) = (name.into(), Vec::new(), &[][..]);
        Self { name, detectors, targets, inputs, run: Box::new(run) }
    }

    fn of(self, detectors: &[Detector]) -> Self {
        Self { detectors: detectors.to_vec(), ..self }
    }

    fn fuzzed_as(self, targets: &'static [&'static str]) -> Self {
        Self { targets, ..self }
    }
}

/// A group of places, which one test measures.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) places: fn() -> Vec<Place>,
    /// Bytes of heap that one byte of an input may cost.
    pub(crate) heap: u64,
    /// Units of work without a budget that one byte of an input may cost.
    pub(crate) work: u64,
    /// Bytes of heap, and units of work without a budget, that an input of any length may cost: tables and buffers of a
    /// fixed size, and what is compiled and set up for each message.
    pub(crate) fixed: u64,
    /// The longest input, in bytes.
    pub(crate) longest: usize,
}

impl Group {
    /// What peers choose.
    const fn of_peers(name: &'static str, places: fn() -> Vec<Place>) -> Self {
        Self { name, places, heap: EACH_BYTE, work: EACH_BYTE, fixed: 512 << 10, longest: 1 << 20 }
    }
}

/// Bytes of heap, and units of work, that one byte of an input may cost that a peer has chosen.
const EACH_BYTE: u64 = 100;

/// All groups. The configuration with its conditions and the lockfile are the operator's own, and are read at the start and
/// when they change. A file has at most 16 MiB, and a condition 2048 bytes; a mistake is told with its place and the lines
/// around.
pub(crate) const GROUPS: [Group; 7] = [
    Group::of_peers("handlings", contents::handlings),
    Group::of_peers("contents", contents::contents),
    Group::of_peers("definitions", definitions::definitions),
    Group::of_peers("schemas", definitions::schemas),
    Group::of_peers("messages", messages::messages),
    Group::of_peers("texts", messages::texts),
    Group {
        name: "operator",
        places: definitions::of_operators,
        heap: 1500,
        work: 6000,
        fixed: 8 << 20,
        // Thousands of mistakes are compared with each other, which takes minutes.
        longest: 16 << 10,
    },
];

/// Reads a document; `None` for an input that is none, or has too many values for one.
fn document(text: &str) -> Option<Document> {
    Document::parse(text.to_owned().into(), &JsonBounds::ANSWER).ok()
}

fn server(name: &str) -> ServerName {
    ServerName::parse(name).unwrap()
}
