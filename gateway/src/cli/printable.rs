//! Escaping of text for a terminal, re-exported for the verbs.

pub(super) use gateway::base::printable::{in_a_line, printable, with_quotes};
