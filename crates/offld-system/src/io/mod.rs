//! Reading and writing files: files as bytes in memory or as ranges to copy, pipes and stdin, bytes
//! joined from ranges of files, and outputs that appear all or none. Everything here takes as much
//! memory for a file of gigabytes as for a small one. Also the search order of a dynamic loader.

pub mod bytes;
pub mod file_slice;
pub mod loader;
pub mod output_directory;
pub mod outputs;
pub mod rope;
