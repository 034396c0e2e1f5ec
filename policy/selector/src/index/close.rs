//! Tools that are too close to prefer one, and what sets them apart.

use super::{Index, Label};
use crate::ranking::{Ambiguity, Distinction, Hit, MAX_CLOSE, ToolIndex};

impl Index {
    /// The tools whose score is within `close` of the first one, if there are others than the first.
    pub(super) fn ambiguity(&self, hits: &[Hit], close: f32) -> Option<Ambiguity> {
        let first = hits.first()?;
        let near = hits.iter().take(MAX_CLOSE).filter(|hit| first.score - hit.score < close);
        let tools: Vec<_> = near.map(|hit| hit.tool).collect();
        let labels: Vec<&Label> =
            tools.iter().filter_map(|tool| self.labels.get(tool.0 as usize)).collect();
        let distinguish = |(tool, label): (ToolIndex, &&Label)| Distinction {
            tool,
            server: labels
                .iter()
                .any(|other| other.server != label.server)
                .then(|| label.server.clone()),
            words: apart(&label.name, labels.iter().map(|other| &*other.name)),
            parameters: apart(&label.parameters, labels.iter().map(|other| &*other.parameters)),
        };
        let tools: Vec<_> = tools.into_iter().zip(&labels).map(distinguish).collect();
        (tools.len() > 1).then_some(Ambiguity { tools })
    }
}

/// Those of `mine` that not all have.
fn apart<'a>(mine: &[String], all: impl Iterator<Item = &'a [String]> + Clone) -> Vec<String> {
    let is_common = |one: &String| all.clone().all(|other| other.contains(one));
    mine.iter().filter(|one| !is_common(one)).cloned().collect()
}
