//! The answer to a query: the tools in their order, why each of them stands there, and whether the first ones are close.

use crate::fusion::{ScoreParts, Scores};

/// Most tools that are called close to the first one.
pub const MAX_CLOSE: usize = 5;

/// The place of a tool in the sequence that the index was built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolIndex(pub u32);

/// The tools that a query is about, the best one first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    /// The tools in their order.
    pub hits: Vec<Hit>,
    /// Which of the first tools are too close to each other to prefer one, if some are.
    pub ambiguity: Option<Ambiguity>,
}

/// A tool and its scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The tool that was found.
    pub tool: ToolIndex,
    /// The score that it is ranked by.
    pub score: f32,
    /// The scores that it is made of.
    pub scores: Scores,
    /// What each of them adds to it.
    pub parts: ScoreParts,
    /// Why it was found: words of the query with the words of the definition that they matched.
    pub matches: Vec<WordMatch>,
}

/// A word of a query that matched a word of a definition. Both are without their endings.
#[derive(Clone, Debug, PartialEq)]
pub struct WordMatch {
    /// The word of the query.
    pub asked: String,
    /// The word of the definition.
    pub found: String,
    /// How similar they are: 1 for the same word.
    pub similarity: f32,
}

/// Tools that a query is about in equal measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguity {
    /// The tools, the best one first, with what sets each of them apart.
    pub tools: Vec<Distinction>,
}

/// What a tool has that not all of the others have: a client can ask a person about these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distinction {
    /// The tool that is told apart.
    pub tool: ToolIndex,
    /// Its server, if the tools are of different servers.
    pub server: Option<String>,
    /// Words of its name.
    pub words: Vec<String>,
    /// Names of its parameters.
    pub parameters: Vec<String>,
}
