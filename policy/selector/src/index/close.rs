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
            words: apart(&labels, label, |label| &label.name),
            parameters: apart(&labels, label, |label| &label.parameters),
        };
        let tools: Vec<_> = tools.into_iter().zip(&labels).map(distinguish).collect();
        (tools.len() > 1).then_some(Ambiguity { tools })
    }
}

/// What a label has, of the kind that `of` chooses, and not all labels have.
fn apart(all: &[&Label], label: &Label, of: fn(&Label) -> &Vec<String>) -> Vec<String> {
    let is_common = |one: &String| all.iter().all(|other| of(other).contains(one));
    of(label).iter().filter(|one| !is_common(one)).cloned().collect()
}
