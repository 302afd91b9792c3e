//! The notes that clang-offload-wrapper adds to ELF images (docs/spec/containers.md 5.1): a section `.note.openmp` with version,
//! producer and the producer's version. The image keeps all it has where it is: the section, the names of sections and their
//! table are written after it, and the header says where they are now.

#[cfg(test)]
mod tests;

use crate::error::Malformed;
use crate::formats::slice;
use object::{Endian, Endianness, elf};

/// The section's name.
pub const SECTION: &str = ".note.openmp";
/// Who the notes are of.
const OWNER: &[u8] = b"LLVMOMPOFFLOAD\0";
/// The notes by their types from 1 on: version of the notes, producer, its version.
const NOTES: [&str; 3] = ["1.0", "LLVM", VERSION];
/// The LLVM whose wrapper this stands for.
const VERSION: &str = "22.1.8";

/// An image with notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// What it starts with instead of as many bytes.
    pub head: Vec<u8>,
    /// Where the tail is, with zeros between it and the image.
    pub tail_at: u64,
    /// What comes after the image.
    pub tail: Vec<u8>,
}

/// The ELF file `image` with notes.
pub fn add(image: &[u8]) -> Result<Changed, Malformed> {
    let form = Form::of(image)?;
    let old_count = form.number(image, form.at(0x3c, 0x30), 2)?;
    let names_index = form.number(image, form.at(0x3e, 0x32), 2)?;
    let table_at = form.word(image, form.at(0x28, 0x20))?;
    if (old_count == 0) != (table_at == 0) || old_count >= u64::from(elf::SHN_LORESERVE) - 2 || names_index >= old_count.max(1) {
        return Err(Malformed::new("a table of sections that cannot be added to", form.at(0x3c, 0x30)));
    }
    let row_size = form.at(64, 40);
    let mut table = slice(image, table_at, old_count * row_size, "section headers past the end", table_at)?.to_vec();
    let mut names = match old_count {
        0 => vec![0],
        _ => form.names(image, table_at + names_index * row_size)?,
    };
    let notes = form.notes();
    let tail_at = (image.len() as u64).next_multiple_of(8);
    let mut tail = notes.clone();
    let note_name = names.len() as u64;
    names.extend(SECTION.bytes().chain([0]));
    let mut names_index = names_index;
    if old_count == 0 {
        table.resize(2 * row_size as usize, 0);
        names_index = 1;
        let own_name = names.len() as u64;
        names.extend(b".shstrtab\0");
        let row = form.row(own_name, elf::SHT_STRTAB.0, 0, 0, 1);
        table.splice(row_size as usize.., row);
    }
    let names_at = tail_at + tail.len() as u64;
    form.move_section(&mut table, names_index * row_size, names_at, names.len() as u64)?;
    tail.extend(&names);
    table.extend(form.row(note_name, elf::SHT_NOTE.0, tail_at, notes.len() as u64, 4));
    tail.resize(tail.len().next_multiple_of(8), 0);
    let new_table_at = tail_at + tail.len() as u64;
    tail.extend(&table);
    if !form.is_64 && tail_at + tail.len() as u64 > u32::MAX.into() {
        return Err(Malformed::new("no room for notes within 4 GiB", tail_at));
    }

    let mut head = slice(image, 0, form.at(64, 52), "header past the end", 0)?.to_vec();
    put(&mut head, form.at(0x28, 0x20), &form.word_bytes(new_table_at))?;
    put(&mut head, form.at(0x3a, 0x2e), &form.short_bytes(row_size))?;
    put(&mut head, form.at(0x3c, 0x30), &form.short_bytes(table.len() as u64 / row_size))?;
    put(&mut head, form.at(0x3e, 0x32), &form.short_bytes(names_index))?;
    Ok(Changed { head, tail_at, tail })
}

/// What numbers look like in an ELF file.
#[derive(Clone, Copy)]
struct Form {
    is_64: bool,
    endian: Endianness,
}

impl Form {
    fn of(image: &[u8]) -> Result<Form, Malformed> {
        let fault = Malformed::new("not an ELF file", 0);
        let ident = slice(image, 0, 16, "header past the end", 0)?;
        match (ident.starts_with(b"\x7fELF"), ident[4], ident[5]) {
            (true, class @ 1..=2, data @ 1..=2) => {
                let endian = if data == 1 { Endianness::Little } else { Endianness::Big };
                Ok(Form { is_64: class == 2, endian })
            }
            _ => Err(fault),
        }
    }

    /// The one of the two that holds for this class.
    fn at(self, in_64: u64, in_32: u64) -> u64 {
        if self.is_64 { in_64 } else { in_32 }
    }

    fn number(self, data: &[u8], at: u64, size: u64) -> Result<u64, Malformed> {
        let bytes = slice(data, at, size, "header past the end", at)?;
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Ok(if self.endian.is_little_endian() { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) })
    }

    fn word(self, data: &[u8], at: u64) -> Result<u64, Malformed> {
        self.number(data, at, self.at(8, 4))
    }

    /// The names of sections, which the section described at `row` holds.
    fn names(self, image: &[u8], row: u64) -> Result<Vec<u8>, Malformed> {
        let at = self.word(image, row + self.at(24, 16))?;
        let size = self.word(image, row + self.at(32, 20))?;
        Ok(slice(image, at, size, "names of sections past the end", row)?.to_vec())
    }

    fn word_bytes(self, value: u64) -> Vec<u8> {
        if self.is_64 { self.endian.write_u64(value).to_vec() } else { self.endian.write_u32(value as u32).to_vec() }
    }

    fn short_bytes(self, value: u64) -> [u8; 2] {
        self.endian.write_u16(value as u16)
    }

    /// A section header.
    fn row(self, name: u64, kind: u32, at: u64, size: u64, align: u64) -> Vec<u8> {
        let mut row = self.endian.write_u32(name as u32).to_vec();
        row.extend(self.endian.write_u32(kind));
        for word in [0, 0, at, size] {
            row.extend(self.word_bytes(word));
        }
        row.extend([0; 8]);
        row.extend(self.word_bytes(align));
        row.extend(self.word_bytes(0));
        row
    }

    /// Has the section described at `row` of a table lie elsewhere.
    fn move_section(self, table: &mut [u8], row: u64, at: u64, size: u64) -> Result<(), Malformed> {
        put(table, row + self.at(24, 16), &self.word_bytes(at))?;
        put(table, row + self.at(32, 20), &self.word_bytes(size))
    }

    fn notes(self) -> Vec<u8> {
        let mut notes = Vec::new();
        for (text, kind) in NOTES.iter().zip(1u32..) {
            for field in [OWNER.len() as u32, text.len() as u32, kind] {
                notes.extend(self.endian.write_u32(field));
            }
            for part in [OWNER, text.as_bytes()] {
                notes.extend(part);
                notes.resize(notes.len().next_multiple_of(4), 0);
            }
        }
        notes
    }
}

fn put(data: &mut [u8], at: u64, bytes: &[u8]) -> Result<(), Malformed> {
    let place = usize::try_from(at).ok().and_then(|start| data.get_mut(start..start + bytes.len()));
    place.ok_or(Malformed::new("header past the end", at))?.copy_from_slice(bytes);
    Ok(())
}
