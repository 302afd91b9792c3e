//! Reading and writing files: files as bytes in memory or as ranges to copy, pipes and stdin, bytes
//! joined from ranges of files, and outputs that appear all or none. Everything here takes as much
//! memory for a file of gigabytes as for a small one. Also the search order of a dynamic loader.

pub(crate) mod bytes;
pub(crate) mod copy;
pub(crate) mod file_slice;
pub(crate) mod loader;
pub(crate) mod outputs;
pub(crate) mod resize;
pub(crate) mod rope;
