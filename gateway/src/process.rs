//! Programs that the gateway starts: their sandbox, supervision and ancestry, and the files that their arguments name.

pub mod ancestry;
pub mod open_files;
pub mod sandbox;
pub mod scripts;
