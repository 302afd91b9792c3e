//! Segments and dynamic section of a program or shared library.

use object::elf;

use crate::bytes::{overlap, range};
use crate::elf::edit::file_align;
use crate::elf::file::Object;
use crate::elf::raw::{ProgramHeader, SectionHeader};
use crate::error::Malformed;

/// The smallest page size of any system, in bytes.
pub(super) const PAGE: u64 = 4096;
/// Largest alignment of contents that move, in bytes. The padding before them adds to the file
/// size.
const LARGEST_ALIGN: u64 = 1 << 24;
/// Minimum alignment of bytes that are not loaded.
const UNLOADED_ALIGN: u64 = 16;

/// A location in the new file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Location {
    /// Address in memory.
    pub addr: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// An entry of the dynamic section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dynamic {
    pub tag: elf::DynamicTag,
    pub value: u64,
    /// Offset of the value in the file.
    pub value_at: u64,
}

/// A program or shared library.
pub(super) struct Linked<'a> {
    pub object: &'a Object<'a>,
    /// All program headers. The loaded segments are in address order and do not overlap in memory,
    /// and their bytes are within the file.
    pub segments: Vec<ProgramHeader>,
}

impl<'a> Linked<'a> {
    /// Reads and checks the program headers of the file `data`.
    pub(super) fn read(object: &'a Object<'a>, data: &[u8]) -> Result<Self, Malformed> {
        let head = &object.head;
        if !matches!(head.kind, elf::ET_EXEC | elf::ET_DYN) {
            return Err(Malformed::new(
                "not an object, a program or a shared library",
                16,
            ));
        }
        let segments = head.program_headers(object.class, data)?;
        let linked = Linked { object, segments };
        linked.check()?;
        Ok(linked)
    }

    fn check(&self) -> Result<(), Malformed> {
        let mut end = 0;
        for (_, load) in self.loads() {
            let fault = |what| Malformed::new(what, load.offset);
            if range(load.offset, load.filesz)?.end > self.object.size {
                return Err(fault("segment past the end"));
            }
            let align = load.align.max(1);
            if !align.is_power_of_two() || load.vaddr % align != load.offset % align {
                return Err(fault(
                    "a segment's address and offset contradict its alignment",
                ));
            }
            if load.filesz > load.memsz || load.vaddr < end {
                return Err(fault("segments overlap or are not in address order"));
            }
            end = range(load.vaddr, load.memsz)?.end;
            if !self.object.class.is_64 && end > 1 << 32 {
                return Err(fault("a segment past the largest address"));
            }
        }
        Ok(())
    }

    /// Returns the loaded segments with their indices.
    pub(super) fn loads(&self) -> impl Iterator<Item = (usize, &ProgramHeader)> {
        self.segments
            .iter()
            .enumerate()
            .filter(|(_, segment)| segment.kind == elf::PT_LOAD)
    }

    /// Returns the loaded segment that contains this section, at the offset and address of the
    /// section's header. An empty section may be at the end of its segment.
    pub(super) fn load_of(&self, section: &SectionHeader) -> Option<(usize, &ProgramHeader)> {
        self.loads()
            .find(|(_, load)| has(load, section.offset, section.addr, section.size))
    }

    /// Returns a number of bytes. If the contents from `offset` on move in the file by a multiple
    /// of it, segments and sections stay aligned.
    pub(super) fn unit_behind(&self, offset: u64) -> u64 {
        let behind = self
            .loads()
            .filter(|(_, load)| load.offset.saturating_add(load.filesz) > offset);
        let pages = behind.map(|(_, load)| load.align.max(PAGE)).max();
        pages.unwrap_or_else(|| {
            let unloaded = self.object.headers();
            let behind =
                unloaded.filter(|header| header.offset >= offset && !header.is_empty_in_file());
            behind
                .map(|header| file_align(header.align))
                .fold(UNLOADED_ALIGN, u64::max)
        })
    }

    /// Whether the file needs the program header for the program headers (`PT_PHDR`): a
    /// position-independent program computes its load address from it.
    pub(super) fn needs_own_header(&self) -> bool {
        let is_program = self
            .segments
            .iter()
            .any(|segment| segment.kind == elf::PT_INTERP)
            || self.is_static_pie();
        self.object.head.kind == elf::ET_DYN && is_program
    }

    /// Whether the flags in the dynamic section mark a position-independent program.
    fn is_static_pie(&self) -> bool {
        self.dynamic()
            .any(|entry| entry.tag == elf::DT_FLAGS_1 && entry.value & elf::DF_1_PIE.0 != 0)
    }

    /// Returns the entries of the dynamic section.
    pub(super) fn dynamic(&self) -> impl Iterator<Item = Dynamic> {
        let class = self.object.class;
        let size = class.address_size();
        let section = self
            .object
            .sections
            .iter()
            .find(|section| section.header.kind == elf::SHT_DYNAMIC);
        let (at, body) = section.map_or((0, &[][..]), |section| {
            (section.header.offset, section.body)
        });
        body.chunks_exact(2 * size)
            .enumerate()
            .filter_map(move |(number, entry)| {
                let (tag, value) = entry.split_at(size);
                let tag = elf::DynamicTag(class.address(tag)? as i64);
                Some(Dynamic {
                    tag,
                    value: class.address(value)?,
                    value_at: at + ((2 * number + 1) * size) as u64,
                })
            })
    }

    /// Returns the end of the last loaded segment in the file.
    pub(super) fn loaded_end(&self) -> u64 {
        self.loads()
            .map(|(_, load)| load.offset.saturating_add(load.filesz))
            .max()
            .unwrap_or(0)
    }

    /// Returns the alignment of a new segment: the smallest of the old ones, but at least a page
    /// and `align`.
    pub(super) fn new_align(&self, align: u64) -> Result<u64, Malformed> {
        let page = self
            .loads()
            .map(|(_, load)| load.align.max(PAGE))
            .min()
            .unwrap_or(PAGE)
            .max(align);
        if page > LARGEST_ALIGN {
            return Err(Malformed::new(
                "moved contents are aligned to more than 16 MiB",
                0,
            ));
        }
        Ok(page)
    }

    /// Returns the first section at or after `offset` with bytes in the file, except section `but`.
    pub(super) fn next_section(&self, offset: u64, but: usize) -> Option<&SectionHeader> {
        let sections = self
            .object
            .sections
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != but);
        let behind = sections
            .map(|(_, section)| &section.header)
            .filter(|header| header.offset >= offset);
        behind
            .filter(|header| has_bytes(header))
            .min_by_key(|header| header.offset)
    }

    /// Checks that the section shares no bytes, so that they can be removed from the file.
    /// `is_loaded`: a loaded segment contains them.
    pub(super) fn check_alone(&self, index: usize, is_loaded: bool) -> Result<(), Malformed> {
        let Some(section) = self
            .object
            .sections
            .get(index)
            .map(|section| section.header)
        else {
            return Ok(());
        };
        let own = range(section.offset, section.size)?;
        let fault = |what| Malformed::new(what, section.offset);
        for (other, header) in self.object.headers().enumerate() {
            if other != index
                && has_bytes(&header)
                && overlap(&own, &range(header.offset, header.size)?)
            {
                return Err(fault("sections overlap"));
            }
        }
        let mut loads = 0;
        for segment in self
            .segments
            .iter()
            .filter(|segment| segment.kind != elf::PT_NULL)
        {
            let is_in = overlap(&own, &range(segment.offset, segment.filesz)?);
            match segment.kind {
                elf::PT_LOAD => loads += usize::from(is_in),
                _ if is_in => {
                    return Err(fault(
                        "the section to resize is in a segment that must not change",
                    ));
                }
                _ => {}
            }
        }
        let headers = self.object.header_ranges()?;
        if loads > usize::from(is_loaded) || headers.iter().any(|header| overlap(&own, header)) {
            return Err(fault(
                "the section to resize overlaps headers or two segments",
            ));
        }
        Ok(())
    }
}

/// Whether the segment contains `size` bytes from `offset` on, at the address `addr`.
fn has(load: &ProgramHeader, offset: u64, addr: u64, size: u64) -> bool {
    let (Some(in_file), Some(in_memory)) = (
        offset.checked_sub(load.offset),
        addr.checked_sub(load.vaddr),
    ) else {
        return false;
    };
    in_file == in_memory
        && in_file
            .checked_add(size)
            .is_some_and(|end| end <= load.filesz)
}

/// Whether a section has at least one byte in the file.
pub(super) fn has_bytes(header: &SectionHeader) -> bool {
    !header.is_empty_in_file() && header.size > 0
}
