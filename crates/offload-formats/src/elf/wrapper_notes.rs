//! Notes that clang-offload-wrapper adds to ELF images (docs/spec/containers.md 5.1): a section
//! `.note.openmp` with the version of the notes, the producer, and the producer's version.

#[cfg(test)]
mod tests;

use super::file::append_section;
use super::raw::{FileHeader, SectionHeader, append_note};
use crate::compose::Part;
use crate::error::Malformed;
use crate::model::LLVM_RELEASE;
use object::elf;

/// Name of the section.
pub const SECTION: &str = ".note.openmp";
/// Owner of the notes.
const OWNER: &[u8] = b"LLVMOMPOFFLOAD\0";
/// Texts of the notes, whose types count from 1: version of the notes, producer, producer's
/// version.
const NOTES: [&str; 3] = ["1.0", "LLVM", LLVM_RELEASE];

/// Returns the parts of the ELF file `image` with the notes.
pub fn add(image: &[u8]) -> Result<Vec<Part>, Malformed> {
    let (class, _) = FileHeader::read(image)?;
    let mut notes = Vec::new();
    for (text, kind) in NOTES.iter().zip(1..) {
        append_note(
            class,
            OWNER,
            elf::NoteType(kind),
            text.as_bytes(),
            &mut notes,
        );
    }
    let header = SectionHeader {
        kind: elf::SHT_NOTE,
        align: 4,
        ..SectionHeader::default()
    };
    append_section(image, SECTION, header, &notes)
}
