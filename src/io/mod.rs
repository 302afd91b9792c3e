//! Files as bytes: memory maps, parts of files, bytes composed of ranges of files, and outputs that appear whole or not at all.

pub mod bytes;
pub mod outputs;
pub mod piece;
pub mod rope;
