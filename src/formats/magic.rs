//! What a file is, by its first bytes, never by its name (docs/spec/link-driver.md 3.2).

use object::elf;
use object::read::coff::CoffFile;

/// The kinds of bytes a link line can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Magic {
    /// An ELF relocatable object or executable.
    Elf,
    /// An ELF shared object or position independent executable: the host's business alone.
    ElfShared,
    /// A COFF object, big or small.
    Coff,
    /// LLVM bitcode, with or without its wrapper header.
    Bitcode,
    /// An OffloadBinary by itself.
    OffloadBinary,
    /// An archive, thin or not.
    Archive,
    /// Text that may be a linker script.
    Text,
    /// Nothing we look into.
    Other,
}

/// The kind of `data`.
pub fn magic(data: &[u8]) -> Magic {
    match data {
        [0x7f, b'E', b'L', b'F', ..] => elf_kind(data),
        [b'B', b'C', 0xc0, 0xde, ..] | [0xde, 0xc0, 0x17, 0x0b, ..] => Magic::Bitcode,
        [0x10, 0xff, 0x10, 0xad, ..] => Magic::OffloadBinary,
        _ if data.starts_with(b"!<arch>\n") || data.starts_with(b"!<thin>\n") || data.starts_with(b"<bigaf>\n") => Magic::Archive,
        _ if is_coff(data) => Magic::Coff,
        _ if is_text(data) => Magic::Text,
        _ => Magic::Other,
    }
}

/// The type field decides, in either byte order; a header cut short is left to the reader, whose error says where.
fn elf_kind(data: &[u8]) -> Magic {
    let big = data.get(5) == Some(&2);
    let field = data.get(16..18).and_then(|field| <[u8; 2]>::try_from(field).ok());
    match field.map(|bytes| elf::FileType(if big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })) {
        Some(elf::ET_DYN) => Magic::ElfShared,
        None | Some(elf::ET_REL | elf::ET_EXEC) => Magic::Elf,
        Some(_) => Magic::Other,
    }
}

/// COFF has no magic: a machine we know and a header that holds together, or the header of a big object (not of an import).
fn is_coff(data: &[u8]) -> bool {
    match object::FileKind::parse(data) {
        Ok(object::FileKind::Coff) => CoffFile::<&[u8]>::parse(data).is_ok(),
        Ok(object::FileKind::CoffBig) => true,
        _ => false,
    }
}

fn is_text(data: &[u8]) -> bool {
    const LOOKED_AT: usize = 1024;
    let start = &data[..data.len().min(LOOKED_AT)];
    !start.is_empty() && start.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x20..=0x7e | 0x80..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_their_first_bytes() {
        let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        assert_eq!(magic(&elf), Magic::Elf);
        elf[16] = 3;
        assert_eq!(magic(&elf), Magic::ElfShared);
        (elf[5], elf[16], elf[17]) = (2, 0, 1);
        assert_eq!(magic(&elf), Magic::Elf, "big endian");
        assert_eq!(magic(b"BC\xc0\xde...."), Magic::Bitcode);
        assert_eq!(magic(b"!<thin>\n"), Magic::Archive);
        assert_eq!(magic(b"/* GNU ld script */ GROUP ( a.so )"), Magic::Text);
        assert_eq!(magic(&[0, 0, 0, 0]), Magic::Other);
        assert_eq!(magic(b""), Magic::Other);
    }
}
