//! A registration: which runtime a file hands its images to.

#![expect(unsafe_code, reason = "names that C finds")]

use super::text::{OffldString, Text, nth, shown};
use crate::contents::report::Registration;

/// A registration with a runtime. It belongs to its report.
#[derive(Debug)]
pub struct OffldRegistration {
    runtime: Text,
    symbol: Text,
    found: Text,
    members: Vec<Text>,
    names: Vec<Text>,
    paths: Vec<Text>,
}

impl OffldRegistration {
    pub(super) fn new(from: &Registration) -> OffldRegistration {
        OffldRegistration {
            runtime: Text::from(from.runtime),
            symbol: Text::from(&from.symbol),
            found: Text::from(from.found),
            members: Text::all(&from.members),
            names: Text::all(from.libraries.iter().map(|library| &library.name)),
            paths: from.libraries.iter().map(|library| Text::of(library.path.as_ref())).collect(),
        }
    }
}

/// The runtime: `openmp`, `cuda`, `hip`, `sycl`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_runtime(registration: Option<&OffldRegistration>) -> OffldString {
    shown(registration.map(|registration| &registration.runtime))
}

/// The function that is called: `__tgt_register_lib`, …
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_symbol(registration: Option<&OffldRegistration>) -> OffldString {
    shown(registration.map(|registration| &registration.symbol))
}

/// Where that function is: `here` in the file itself, in a `library` that the program needs, or `elsewhere` if the file is an object
/// that leaves it undefined.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_found(registration: Option<&OffldRegistration>) -> OffldString {
    shown(registration.map(|registration| &registration.found))
}

/// How many archives it is in, one in the other.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_member_count(registration: Option<&OffldRegistration>) -> usize {
    registration.map_or(0, |registration| registration.members.len())
}

/// The name of the member that it is in, of the archive with this number, the outermost first; empty where there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_member(registration: Option<&OffldRegistration>, index: usize) -> OffldString {
    nth(registration.map(|registration| &registration.members), index)
}

/// How many libraries that the program needs define that function, or would if they were found. 0 for what was opened by a
/// descriptor or from memory: no other file is opened then.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_library_count(registration: Option<&OffldRegistration>) -> usize {
    registration.map_or(0, |registration| registration.names.len())
}

/// The name of such a library, as the program has it; empty where there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_library(registration: Option<&OffldRegistration>, index: usize) -> OffldString {
    nth(registration.map(|registration| &registration.names), index)
}

/// The path at which the dynamic loader would find it now; empty if it would not, and where there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_library_path(registration: Option<&OffldRegistration>, index: usize) -> OffldString {
    nth(registration.map(|registration| &registration.paths), index)
}
