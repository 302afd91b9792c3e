//! Structs through which CUDA and HIP get a container, in sections of their own.

use super::Wrapper;
use super::address_space::{AddressSpace, Pointer};
use super::sections::Section;
use crate::model::{Generation, OffloadKind};
use crate::registration::fatbin::Contract;
use crate::registration::{cuda, hip};

/// Returns the contracts of both runtimes. The struct is the same in every generation.
fn contracts() -> [(OffloadKind, Contract); 2] {
    [
        (OffloadKind::Cuda, cuda::contract(Generation::Llvm21, false)),
        (OffloadKind::Hip, hip::contract(Generation::Llvm21, false)),
    ]
}

/// Returns the prefixes of the names of sections with such structs.
pub(super) fn sections() -> [&'static str; 2] {
    contracts().map(|(_, contract)| contract.wrapper_section)
}

/// Reads the structs of both runtimes. A struct without a runtime's magic is skipped.
pub(super) fn read(space: &AddressSpace<'_>) -> Vec<Wrapper> {
    let mut all = Vec::new();
    for (kind, contract) in &contracts() {
        let own = |section: &&Section<'_>| section.name.starts_with(contract.wrapper_section);
        for section in space.sections().iter().filter(own) {
            of_section(space, *kind, contract, section, &mut all);
        }
    }
    all
}

fn of_section(
    space: &AddressSpace<'_>,
    kind: OffloadKind,
    contract: &Contract,
    section: &Section<'_>,
    all: &mut Vec<Wrapper>,
) {
    // `{i32 magic, i32 version, ptr data, ptr unused}`.
    let size = 8 + 2 * space.word;
    let mut at = 0;
    while at + size <= section.size {
        let address = section.address + at;
        // Each struct is aligned to 8 bytes.
        if space.number(address, 4) != Some(contract.magic.into()) {
            at += 8;
            continue;
        }
        at += size;
        let (Some(version), Some(pointer)) =
            (space.number(address + 4, 4), space.slot(address + 8))
        else {
            continue;
        };
        let container = match space.pointer(address + 8) {
            Pointer::To(target) => space.offset(target),
            _ => None,
        };
        let (runtime, section, offset) = (
            kind.name(),
            section.name.to_owned(),
            section.offset + (address - section.address),
        );
        all.push(Wrapper {
            runtime,
            section,
            offset,
            version: version as u32,
            pointer,
            container,
        });
    }
}
