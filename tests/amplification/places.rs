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
}

/// All groups.
pub(crate) const GROUPS: [Group; 6] = [
    Group { name: "handlings", places: contents::handlings },
    Group { name: "contents", places: contents::contents },
    Group { name: "definitions", places: definitions::definitions },
    Group { name: "schemas", places: definitions::schemas },
    Group { name: "messages", places: messages::messages },
    Group { name: "texts", places: messages::texts },
];

/// Reads a document; `None` for an input that is none, or has too many values for one.
fn document(text: &str) -> Option<Document> {
    Document::parse(text.to_owned().into(), &JsonBounds::ANSWER).ok()
}

fn server(name: &str) -> ServerName {
    ServerName::parse(name).unwrap()
}
