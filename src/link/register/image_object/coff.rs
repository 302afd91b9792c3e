//! Headers and symbols of a COFF object that contains only images.

use super::{Holes, Layout};
use anyhow::{Result, bail};
use object::pe;
use object::write::coff::{FileHeader, SectionHeader, Symbol, Writer};

/// The machine for a COFF header, with its rules for symbols.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    machine: pe::Machine,
    /// On i386, C names begin with `_`, and the symbol `@feat.00` must declare the object
    /// compatible with SafeSEH.
    i386: bool,
}

impl Machine {
    /// Returns the machine for a triple's first component.
    pub(super) fn of(arch: &str) -> Option<Self> {
        let machine = match arch {
            "x86_64" | "amd64" => pe::IMAGE_FILE_MACHINE_AMD64,
            "i386" | "i486" | "i586" | "i686" => pe::IMAGE_FILE_MACHINE_I386,
            "aarch64" | "arm64" => pe::IMAGE_FILE_MACHINE_ARM64,
            _ => return None,
        };
        Some(Machine {
            machine,
            i386: machine == pe::IMAGE_FILE_MACHINE_I386,
        })
    }
}

/// Writes everything except the images, which are in one section. Returns the file offset of each
/// image.
pub(super) fn skeleton(
    out: &mut Holes<'_>,
    machine: Machine,
    layout: &Layout<'_>,
) -> Result<Vec<u64>> {
    // COFF has 32-bit sizes and offsets, in objects and in programs.
    let Ok(size) = i32::try_from(layout.size) else {
        bail!(
            "device images of {} bytes exceed the limit of COFF, 2 GiB",
            layout.size
        )
    };
    // The header stores the alignment's exponent plus 1 (IMAGE_SCN_ALIGN_…).
    let align = pe::SectionFlags((layout.section.align.trailing_zeros() + 1) << 20);
    let prefix = if machine.i386 { "_" } else { "" };
    let in_section = layout
        .images
        .iter()
        .zip(&layout.offsets)
        .flat_map(|(image, offset)| {
            image
                .symbols
                .iter()
                .map(move |symbol| (symbol, offset + symbol.at))
        });
    let symbols: Vec<(String, u64)> = in_section
        .map(|(symbol, at)| (format!("{prefix}{}", symbol.name), at))
        .collect();
    let mut coff = Writer::new(out);
    coff.reserve_file_header();
    coff.reserve_section_headers(1);
    let section_at = coff.reserve(layout.size, layout.section.align.into());
    let section_name = coff.add_name(layout.section.name.as_bytes());
    let safe_name = coff.add_name(b"@feat.00");
    let names: Vec<_> = symbols
        .iter()
        .map(|(name, _)| coff.add_name(name.as_bytes()))
        .collect();
    coff.reserve_symbol_indices(names.len() as u32 + u32::from(machine.i386));
    coff.reserve_symtab_strtab()?;

    coff.write_file_header(FileHeader {
        machine: machine.machine,
        ..FileHeader::default()
    })?;
    coff.write_section_header(SectionHeader {
        name: section_name,
        size_of_raw_data: size.unsigned_abs(),
        pointer_to_raw_data: section_at,
        characteristics: align | pe::IMAGE_SCN_CNT_INITIALIZED_DATA | pe::IMAGE_SCN_MEM_READ,
        ..SectionHeader::default()
    });
    coff.pad_until(u64::from(section_at) + layout.size);
    if machine.i386 {
        coff.write_symbol(Symbol {
            name: safe_name,
            value: 1,
            section_number: pe::IMAGE_SYM_ABSOLUTE,
            storage_class: pe::IMAGE_SYM_CLASS_STATIC,
            ..Symbol::default()
        });
    }
    for (name, (_, at)) in names.into_iter().zip(&symbols) {
        coff.write_symbol(Symbol {
            name,
            value: u32::try_from(*at)?,
            section_number: pe::SymbolSection(1),
            storage_class: pe::IMAGE_SYM_CLASS_EXTERNAL,
            ..Symbol::default()
        });
    }
    coff.write_strtab();
    Ok(layout
        .offsets
        .iter()
        .map(|offset| u64::from(section_at) + offset)
        .collect())
}
