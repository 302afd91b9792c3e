//! GNU property with the kinds of control-flow protection that an object supports
//! (`.note.gnu.property`). Linkers keep only the kinds that all objects of a program support. An
//! object without the property therefore takes it from the whole program.

use super::raw::{Class, append_note};
use object::read::elf::NoteIterator;
use object::{Endianness, elf};

/// Name of the section.
pub const SECTION: &[u8] = b".note.gnu.property";
/// Indirect branch tracking and shadow stacks of x86.
pub const X86: u32 = elf::GNU_PROPERTY_X86_FEATURE_1_IBT | elf::GNU_PROPERTY_X86_FEATURE_1_SHSTK;
/// Branch target identification, pointer authentication and guarded control stacks of AArch64.
pub const AARCH64: u32 =
    elf::GNU_PROPERTY_AARCH64_FEATURE_1_BTI | elf::GNU_PROPERTY_AARCH64_FEATURE_1_PAC | AARCH64_GCS;
/// Guarded control stacks of AArch64.
pub const AARCH64_GCS: u32 = 1 << 2;

/// Returns the property type for a machine, and the bits that registration code can have. `None`
/// for other machines. RISC-V has such a property, too, but support in LLVM 22 is experimental.
fn of_machine(machine: elf::Machine) -> Option<(elf::GnuPropertyType, u32)> {
    match machine {
        elf::EM_X86_64 | elf::EM_386 => Some((elf::GNU_PROPERTY_X86_FEATURE_1_AND, X86)),
        elf::EM_AARCH64 => Some((elf::GNU_PROPERTY_AARCH64_FEATURE_1_AND, AARCH64)),
        _ => None,
    }
}

/// Returns the features in the notes of a section. Reading stops at a malformed note.
pub fn features<Elf>(
    machine: elf::Machine,
    endian: Endianness,
    mut notes: NoteIterator<'_, Elf>,
) -> u32
where
    Elf: object::read::elf::FileHeader<Endian = Endianness>,
{
    let Some((kind, known)) = of_machine(machine) else {
        return 0;
    };
    let mut features = 0;
    while let Ok(Some(note)) = notes.next() {
        let Some(mut properties) = note.gnu_properties(endian) else {
            continue;
        };
        while let Ok(Some(property)) = properties.next() {
            if property.pr_type() == kind {
                features |= property.data_u32(endian).unwrap_or(0);
            }
        }
    }
    features & known
}

/// Returns the contents of the section for an object of `machine` that supports `features`. `None`
/// if it supports none.
pub fn note(class: Class, machine: elf::Machine, features: u32) -> Option<Vec<u8>> {
    let (kind, known) = of_machine(machine)?;
    let features = features & known;
    if features == 0 {
        return None;
    }
    let mut property: Vec<u8> = [kind.0, size_of::<u32>() as u32, features]
        .into_iter()
        .flat_map(|word| class.word_bytes(word))
        .collect();
    property.resize(property.len().next_multiple_of(class.address_size()), 0);
    let mut section = Vec::new();
    append_note(
        class,
        b"GNU\0",
        elf::NT_GNU_PROPERTY_TYPE_0,
        &property,
        &mut section,
    );
    Some(section)
}
