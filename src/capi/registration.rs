//! A registration: the runtime that a file passes its images to.

#![expect(unsafe_code, reason = "exported C symbols")]

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
            paths: from
                .libraries
                .iter()
                .map(|library| Text::of(library.path.as_ref()))
                .collect(),
        }
    }
}

/// Returns the runtime: `openmp`, `cuda`, `hip`, `sycl`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_runtime(
    registration: Option<&OffldRegistration>,
) -> OffldString {
    shown(registration.map(|registration| &registration.runtime))
}

/// Returns the registration function that is called: `__tgt_register_lib`, …
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_symbol(
    registration: Option<&OffldRegistration>,
) -> OffldString {
    shown(registration.map(|registration| &registration.symbol))
}

/// Returns the location of that function: `here` in the file itself, in a `library` that the
/// program needs, or `elsewhere` if the file is an object that leaves it undefined.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_found(
    registration: Option<&OffldRegistration>,
) -> OffldString {
    shown(registration.map(|registration| &registration.found))
}

/// Returns the number of nested archives that contain the registration.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_member_count(
    registration: Option<&OffldRegistration>,
) -> usize {
    registration.map_or(0, |registration| registration.members.len())
}

/// Returns the name of the archive member that contains the registration, in the archive with this
/// index, the outermost first; empty if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_member(
    registration: Option<&OffldRegistration>,
    index: usize,
) -> OffldString {
    nth(
        registration.map(|registration| &registration.members),
        index,
    )
}

/// Returns the number of needed libraries that define that function, or would define it if they
/// were found. 0 if the file was opened by descriptor or from memory, because no other file is
/// opened then.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_library_count(
    registration: Option<&OffldRegistration>,
) -> usize {
    registration.map_or(0, |registration| registration.names.len())
}

/// Returns the name of the library with this index, as stored in the program; empty if `index` is
/// out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_library(
    registration: Option<&OffldRegistration>,
    index: usize,
) -> OffldString {
    nth(registration.map(|registration| &registration.names), index)
}

/// Returns the path at which the dynamic loader would find that library now; empty if it would not
/// find it, and if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_library_path(
    registration: Option<&OffldRegistration>,
    index: usize,
) -> OffldString {
    nth(registration.map(|registration| &registration.paths), index)
}
