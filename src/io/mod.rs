//! Bytes of files, in and out: files as bytes in memory or as ranges to copy, any file that a user names (pipes and stdin too),
//! bytes put together from ranges of files, and outputs that appear all or none. Everything here takes as much memory for a file of
//! gigabytes as for a small one. Also where a dynamic loader finds libraries.

pub(crate) mod bytes;
pub(crate) mod copy;
pub(crate) mod loader;
pub(crate) mod outputs;
pub(crate) mod piece;
pub(crate) mod resize;
pub(crate) mod rope;
