//! Text for a terminal, as the verbs write it.

pub(super) use gateway::base::printable::{in_a_line, printable, with_quotes};
