//! Digests of a device link's inputs other than user files: its device code and the environment.

use std::ffi::OsString;

use crate::link::inputs::worth_threads;
use crate::link::select::DeviceJob;
use crate::store::{Digest, KeyBuilder};
use crate::sys::session;
use crate::sys::threads;

/// Computes the digests of a job's device code, in order. Large inputs use all threads.
pub(super) fn of_device_code(job: &DeviceJob<'_>) -> Vec<Digest> {
    let contents: Vec<&[u8]> = job.inputs.iter().map(|input| &*input.bytes).collect();
    if worth_threads(contents.iter().map(|bytes| bytes.len())) {
        threads::in_parallel(|| Digest::of_all(&contents))
    } else {
        contents.into_iter().map(Digest::of).collect()
    }
}

/// Computes the digest of the environment variables that compilers and linkers read.
pub(in crate::link::device) fn of_environment() -> Digest {
    let mut read: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            session::TOOL_VARIABLES.contains(&name.as_ref())
                || session::TOOL_PREFIXES
                    .iter()
                    .any(|prefix| name.starts_with(prefix))
        })
        .collect();
    read.sort();
    let mut key = KeyBuilder::default();
    for (name, value) in read {
        key.add(name.as_encoded_bytes())
            .add(value.as_encoded_bytes());
    }
    key.digest()
}
