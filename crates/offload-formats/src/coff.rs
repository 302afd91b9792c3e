//! The parts of COFF objects (Windows) that offload tools read, and new contents for their
//! sections.
//!
//! ```
//! let directives = offload_formats::coff::directives(b"/DEFAULTLIB:msvcrt /include:main");
//! assert_eq!((directives.default_libraries[0].as_str(), directives.include[0].as_str()), ("msvcrt", "main"));
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use object::pe;

use crate::bytes::{number, slice};
use crate::compose::{Part, push_old, push_zeros};
use crate::elf::resize::NewSize;
use crate::error::Malformed;

/// The size of a section header.
pub(crate) const SECTION_SIZE: u64 = 40;
/// The size of a relocation.
pub(crate) const RELOCATION_SIZE: u64 = 10;

/// The header of an object.
pub(crate) struct Header {
    pub machine: u16,
    pub time: u32,
    pub characteristics: u16,
    /// The number of sections, and the offset of their headers.
    pub sections: u32,
    pub sections_at: u64,
    pub symbols_at: u64,
    pub symbols: u32,
    /// Whether the object may have more than 65279 sections (`/bigobj`).
    pub big: bool,
}

impl Header {
    pub(crate) fn read(data: &[u8]) -> Result<Self, Malformed> {
        let field =
            |at, size| number(data, at, size, "COFF header past the end").map(|value| value as u32);
        let big = field(0, 4)? == 0xffff_0000;
        Ok(if big {
            Header {
                machine: field(6, 2)? as u16,
                time: field(8, 4)?,
                characteristics: 0,
                sections: field(44, 4)?,
                sections_at: 56,
                symbols_at: field(48, 4)?.into(),
                symbols: field(52, 4)?,
                big,
            }
        } else {
            Header {
                machine: field(0, 2)? as u16,
                time: field(4, 4)?,
                characteristics: field(18, 2)? as u16,
                sections: field(2, 2)?,
                sections_at: 20 + u64::from(field(16, 2)?),
                symbols_at: field(8, 4)?.into(),
                symbols: field(12, 4)?,
                big,
            }
        })
    }

    /// The size of a symbol.
    pub(crate) fn symbol_size(&self) -> u64 {
        if self.big { 20 } else { 18 }
    }

    /// The offset of the header of the section with this index, counted from 0.
    pub(crate) fn section_at(&self, index: u64) -> u64 {
        self.sections_at + index * SECTION_SIZE
    }

    /// The offset behind the last symbol, where the strings begin.
    pub(crate) fn strings_at(&self) -> u64 {
        self.symbols_at + u64::from(self.symbols) * self.symbol_size()
    }
}

/// The linker directives that affect which objects are linked: the text of `.drectve` sections,
/// which linkers treat like command-line options.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Directives {
    /// `/defaultlib:`, libraries to search after all others.
    pub default_libraries: Vec<String>,
    /// `/nodefaultlib:`.
    pub without_libraries: Vec<String>,
    /// `/include:`, symbols that must be defined.
    pub include: Vec<String>,
    /// `/alternatename:from=to`: `to` replaces `from` if `from` is undefined.
    pub alternate_names: Vec<(String, String)>,
}

/// Parses the text of one `.drectve` section. Other directives are skipped, because only the linker
/// needs them.
pub fn directives(section: &[u8]) -> Directives {
    let text = section.strip_prefix(b"\xef\xbb\xbf").unwrap_or(section);
    let text = String::from_utf8_lossy(text);
    let mut all = Directives::default();
    for word in split_options(&text) {
        let Some(body) = word.strip_prefix(['/', '-']) else {
            continue;
        };
        let Some((name, value)) = body.split_once(':') else {
            continue;
        };
        let value = value.to_owned();
        match name.to_ascii_lowercase().as_str() {
            "defaultlib" => all.default_libraries.push(value),
            "nodefaultlib" | "disallowlib" => all.without_libraries.push(value),
            "include" => all.include.push(value),
            "alternatename" => {
                all.alternate_names.extend(
                    value
                        .split_once('=')
                        .map(|(from, to)| (from.to_owned(), to.to_owned())),
                );
            }
            _ => {}
        }
    }
    all
}

/// Splits text at white space and zeros outside of double quotes, and removes the quotes.
fn split_options(text: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut quoted = false;
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' | '\t' | '\r' | '\n' | '\0' if !quoted => options.push(String::new()),
            _ => options
                .iter_mut()
                .last()
                .into_iter()
                .for_each(|word| word.push(letter)),
        }
    }
    options.retain(|word| !word.is_empty());
    options
}

/// Data moves by multiples of this, so that it keeps its alignment.
const MOVE_ALIGN: u64 = 16;
/// The size of a line number.
const LINE_SIZE: u64 = 6;

/// The file ranges in a section header.
struct Section {
    /// The offset of the header.
    at: u64,
    raw: Range<u64>,
    relocations: Range<u64>,
    lines: Range<u64>,
    flags: u32,
}

/// Returns the parts, in order, of the COFF object `data` with new section sizes.
/// `NewSize::section` is the number of a section, starting at 1. Relocations of other sections and
/// all symbols stay. Symbols beyond the new end of a section move to its start. Data after a
/// section moves, and the file header, the section headers and the section symbols are updated.
///
/// # Errors
/// The object is damaged, or a value does not fit into its field. A section is listed twice, has no
/// bytes in the file, has relocations, is a COMDAT section, or shares bytes with other data.
pub fn resize(data: &[u8], sizes: &[NewSize]) -> Result<Vec<Part>, Malformed> {
    let head = header(data)?;
    let sections = (0..u64::from(head.sections))
        .map(|index| section(data, &head, index))
        .collect::<Result<Vec<_>, _>>()?;
    let mut changes: BTreeMap<u64, (Range<u64>, usize, u64)> = BTreeMap::new();
    for (place, new) in sizes.iter().enumerate() {
        let section = new
            .section
            .checked_sub(1)
            .and_then(|index| sections.get(index));
        let section = section.ok_or(Malformed::new("no such section", head.sections_at))?;
        let fault = |what| Err(Malformed::new(what, section.at));
        if section.raw.is_empty() {
            return fault("cannot add contents to a section without bytes in the file");
        }
        if !section.relocations.is_empty() || !section.lines.is_empty() {
            return fault("cannot replace the contents of a section with relocations");
        }
        if section.flags & pe::IMAGE_SCN_LNK_COMDAT.0 != 0 {
            return fault("cannot replace the contents of a COMDAT section");
        }
        if changes
            .insert(section.raw.start, (section.raw.clone(), place, new.size))
            .is_some()
        {
            return fault("new contents for the same section twice");
        }
    }
    check_apart(data, &head, &sections, &changes)?;
    let mut fields = Fields {
        data,
        changes: &changes,
        new: BTreeMap::new(),
    };
    fields.headers(&head, &sections, sizes)?;
    fields.symbols(&head, sizes)?;
    let fields = fields.new;
    Ok(parts(data, &changes, fields))
}

/// The number of zeros after new contents of `size` bytes that replace the range `old`.
fn padding(old: &Range<u64>, size: u64) -> u64 {
    let old = (old.end - old.start) % MOVE_ALIGN;
    (old + MOVE_ALIGN - size % MOVE_ALIGN) % MOVE_ALIGN
}

fn parts(
    data: &[u8],
    changes: &BTreeMap<u64, (Range<u64>, usize, u64)>,
    fields: BTreeMap<u64, Vec<u8>>,
) -> Vec<Part> {
    let contents = changes.values().map(|(range, place, size)| {
        let mut parts = vec![Part::New(*place)];
        push_zeros(&mut parts, padding(range, *size));
        (range.clone(), parts)
    });
    let fields = fields
        .into_iter()
        .map(|(at, bytes)| (at..at + bytes.len() as u64, vec![Part::Bytes(bytes)]));
    let mut new: Vec<(Range<u64>, Vec<Part>)> = contents.chain(fields).collect();
    new.sort_by_key(|(range, _)| range.start);
    let (mut all, mut at) = (Vec::new(), 0);
    for (range, parts) in new {
        push_old(&mut all, at..range.start);
        all.extend(parts);
        at = range.end;
    }
    push_old(&mut all, at..data.len() as u64);
    all
}

/// Fields with new values.
struct Fields<'d> {
    data: &'d [u8],
    changes: &'d BTreeMap<u64, (Range<u64>, usize, u64)>,
    new: BTreeMap<u64, Vec<u8>>,
}

impl Fields<'_> {
    /// The new position of the data at the offset `old`.
    fn moved(&self, old: u64) -> u64 {
        let before = self.changes.values().filter(|(range, ..)| range.end <= old);
        before.fold(old, |at, (range, _, size)| {
            let new = size.saturating_add(padding(range, *size));
            at.saturating_sub(range.end - range.start)
                .saturating_add(new)
        })
    }

    /// Sets the 32-bit field at `at`, if its value changes.
    fn set(&mut self, at: u64, value: u64) -> Result<(), Malformed> {
        let value =
            u32::try_from(value).map_err(|_| Malformed::new("too large for a COFF object", at))?;
        if field(self.data, at, 4)? != u64::from(value) {
            self.new.insert(at, value.to_le_bytes().to_vec());
        }
        Ok(())
    }

    fn headers(
        &mut self,
        head: &Header,
        sections: &[Section],
        sizes: &[NewSize],
    ) -> Result<(), Malformed> {
        if head.symbols_at != 0 {
            self.set(symbols_field(head), self.moved(head.symbols_at))?;
        }
        for (section, place) in sections.iter().zip(1usize..) {
            let new = sizes.iter().find(|new| new.section == place);
            if let Some(new) = new {
                self.set(section.at + 16, new.size)?;
            }
            for (range, field) in [
                (&section.raw, 20),
                (&section.relocations, 24),
                (&section.lines, 28),
            ] {
                // A section without bytes may have an offset, which must stay inside the file.
                if range.start != 0 {
                    let is_gone = field == 20 && new.is_some_and(|new| new.size == 0);
                    self.set(
                        section.at + field,
                        if is_gone { 0 } else { self.moved(range.start) },
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Updates the symbols of sections with new contents.
    fn symbols(&mut self, head: &Header, sizes: &[NewSize]) -> Result<(), Malformed> {
        let mut index = 0;
        let (symbols, size) = (u64::from(head.symbols), head.symbol_size());
        while index < symbols {
            let at = head.symbols_at + index * size;
            let (section, value) = (
                field(self.data, at + 12, if head.big { 4 } else { 2 })?,
                field(self.data, at + 8, 4)?,
            );
            let (class, more) = (
                field(self.data, at + size - 2, 1)?,
                field(self.data, at + size - 1, 1)?,
            );
            if more >= symbols - index {
                return Err(Malformed::new("symbols past the end", at));
            }
            if let Some(new) = sizes.iter().find(|new| new.section as u64 == section) {
                let describes =
                    class == u64::from(pe::IMAGE_SYM_CLASS_STATIC.0) && value == 0 && more > 0;
                if describes {
                    // The length, and the checksum, which only matters for COMDAT sections.
                    self.set(at + size, new.size)?;
                    self.set(at + size + 8, 0)?;
                } else if value > new.size {
                    self.set(at + 8, 0)?;
                }
            }
            index += 1 + more;
        }
        Ok(())
    }
}

/// Checks that the replaced bytes contain nothing else.
fn check_apart(
    data: &[u8],
    head: &Header,
    sections: &[Section],
    changes: &BTreeMap<u64, (Range<u64>, usize, u64)>,
) -> Result<(), Malformed> {
    let mut used = Vec::with_capacity(2 + 3 * sections.len());
    used.push(0..head.section_at(head.sections.into()));
    if head.symbols_at != 0 {
        let end = head.strings_at();
        let strings = field(data, end, 4).unwrap_or(0);
        used.push(head.symbols_at..end.saturating_add(strings).min(data.len() as u64));
    }
    let of_sections = sections
        .iter()
        .flat_map(|section| [&section.raw, &section.relocations, &section.lines]);
    used.extend(of_sections.filter(|range| !range.is_empty()).cloned());
    used.sort_by_key(|range| range.start);
    // These include the range of each changed section once.
    let mut end = 0;
    let mut last_changes = false;
    for range in used {
        let changes = changes.contains_key(&range.start);
        if range.start < end && (changes || last_changes) {
            return Err(Malformed::new(
                "a section with new contents shares its bytes",
                range.start,
            ));
        }
        if range.end > end {
            (end, last_changes) = (range.end, changes);
        }
    }
    Ok(())
}

fn header(data: &[u8]) -> Result<Header, Malformed> {
    let head = Header::read(data)?;
    slice(
        data,
        head.sections_at,
        u64::from(head.sections) * SECTION_SIZE,
        "section headers past the end",
        head.sections_at,
    )?;
    if head.symbols_at != 0 {
        slice(
            data,
            head.symbols_at,
            head.strings_at() - head.symbols_at,
            "symbols past the end",
            symbols_field(&head),
        )?;
        return Ok(head);
    }
    Ok(Header { symbols: 0, ..head })
}

/// The offset of the header field with the symbol table's offset.
fn symbols_field(head: &Header) -> u64 {
    if head.big { 48 } else { 8 }
}

fn section(data: &[u8], head: &Header, index: u64) -> Result<Section, Malformed> {
    let at = head.section_at(index);
    let flags = field(data, at + 36, 4)? as u32;
    let (size, raw) = (field(data, at + 16, 4)?, field(data, at + 20, 4)?);
    let (relocations, lines) = (field(data, at + 24, 4)?, field(data, at + 28, 4)?);
    let (mut count, line_count) = (field(data, at + 32, 2)?, field(data, at + 34, 2)?);
    if count == 0xffff && flags & pe::IMAGE_SCN_LNK_NRELOC_OVFL.0 != 0 {
        // The first relocation has the total number.
        count = field(data, relocations, 4)?;
    }
    let range = |start: u64, size: u64| {
        let range = start..if start == 0 { 0 } else { start + size };
        slice(
            data,
            range.start,
            range.end - range.start,
            "a section past the end",
            at,
        )
        .map(|_| range)
    };
    let is_empty = flags & pe::IMAGE_SCN_CNT_UNINITIALIZED_DATA.0 != 0;
    let raw = range(raw, if is_empty { 0 } else { size })?;
    Ok(Section {
        at,
        raw,
        relocations: range(relocations, count * RELOCATION_SIZE)?,
        lines: range(lines, line_count * LINE_SIZE)?,
        flags,
    })
}

fn field(data: &[u8], at: u64, size: u64) -> Result<u64, Malformed> {
    number(data, at, size, "a field past the end")
}
