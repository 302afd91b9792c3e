//! ELF file headers, section headers, program headers, symbols and notes, read and written for any
//! class and byte order. Converts the raw structs of `object` for both classes to one type and
//! back. Records that are read and written without a change have the same bytes.

use crate::bytes::{c_string, slice};
use crate::error::Malformed;
use object::endian::{U16, U32, U64};
use object::pod::{self, Pod};
use object::{Endian, Endianness, File, Object, elf};

/// Class and byte order of an ELF file, or of another object file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// Whether the file is a 64-bit file.
    pub is_64: bool,
    /// Byte order of numbers.
    pub endian: Endianness,
}

impl Class {
    /// Reads the class from the first bytes of the ELF file `data`.
    pub(crate) fn of(data: &[u8]) -> Result<Class, Malformed> {
        let fault = Malformed::new("not an ELF file", 0);
        let [0x7f, b'E', b'L', b'F', class, encoding, ..] =
            *data.first_chunk::<16>().ok_or(fault)?
        else {
            return Err(fault);
        };
        let is_64 = match elf::FileClass(class) {
            elf::ELFCLASS32 => false,
            elf::ELFCLASS64 => true,
            _ => return Err(fault),
        };
        let endian = match elf::DataEncoding(encoding) {
            elf::ELFDATA2LSB => Endianness::Little,
            elf::ELFDATA2MSB => Endianness::Big,
            _ => return Err(fault),
        };
        Ok(Class { is_64, endian })
    }

    /// Returns the class of an object file of any format.
    pub fn of_file(file: &File<'_>) -> Class {
        Class {
            is_64: file.is_64(),
            endian: file.endianness(),
        }
    }

    /// Whether `data` is a 32-bit ELF file. Callers select the raw structs of `object` by it.
    pub fn is_32_bit(data: &[u8]) -> bool {
        Class::of(data).is_ok_and(|class| !class.is_64)
    }

    /// Returns the number in the first four bytes, as in lists of indices. `None` if there are
    /// fewer.
    pub fn word(self, bytes: &[u8]) -> Option<u32> {
        Some(self.endian.read_u32(*bytes.first_chunk()?))
    }

    /// Returns the number in the first 1, 2, 4 or 8 bytes. `None` if there are fewer.
    pub fn number(self, bytes: &[u8], size: usize) -> Option<u64> {
        match size {
            1 => bytes.first().copied().map(u64::from),
            2 => Some(self.endian.read_u16(*bytes.first_chunk()?).into()),
            4 => self.word(bytes).map(u64::from),
            8 => Some(self.endian.read_u64(*bytes.first_chunk()?)),
            _ => None,
        }
    }

    /// Size of an address in bytes.
    pub fn address_size(self) -> usize {
        if self.is_64 { 8 } else { 4 }
    }

    /// Returns the number in the first bytes, as wide as an address of this class. `None` if there
    /// are too few.
    pub fn address(self, bytes: &[u8]) -> Option<u64> {
        self.number(bytes, self.address_size())
    }

    /// Returns a number as the bytes of an address of this class.
    pub fn address_bytes(self, value: u64) -> Vec<u8> {
        match self.is_64 {
            true => self.endian.write_u64(value).to_vec(),
            false => self.word_bytes(value as u32).to_vec(),
        }
    }

    /// Returns a number as four bytes.
    pub fn word_bytes(self, value: u32) -> [u8; 4] {
        self.endian.write_u32(value)
    }
}

/// Record of an ELF file with one layout for each class.
pub trait Record: Sized {
    /// Layout in 32-bit files.
    type Narrow: Pod;
    /// Layout in 64-bit files.
    type Wide: Pod;

    /// Reads the layout of 32-bit files.
    fn of_narrow(raw: &Self::Narrow, endian: Endianness) -> Self;
    /// Reads the layout of 64-bit files.
    fn of_wide(raw: &Self::Wide, endian: Endianness) -> Self;
    /// Truncates numbers that need 64 bits. The layout code rejects files with such numbers.
    fn narrow(&self, endian: Endianness) -> Self::Narrow;
    /// Returns the layout of 64-bit files.
    fn wide(&self, endian: Endianness) -> Self::Wide;

    /// Size of a record in bytes.
    fn size(class: Class) -> usize {
        if class.is_64 {
            size_of::<Self::Wide>()
        } else {
            size_of::<Self::Narrow>()
        }
    }

    /// Returns the record at the start of `bytes`, or `None` if `bytes` is too short.
    fn of(class: Class, bytes: &[u8]) -> Option<Self> {
        if class.is_64 {
            pod::from_bytes(bytes)
                .ok()
                .map(|(raw, _)| Self::of_wide(raw, class.endian))
        } else {
            pod::from_bytes(bytes)
                .ok()
                .map(|(raw, _)| Self::of_narrow(raw, class.endian))
        }
    }

    /// Returns the record at offset `at` of the file `data`. `what` is the error message for a file
    /// that ends before the record does.
    fn at(class: Class, data: &[u8], at: u64, what: &'static str) -> Result<Self, Malformed> {
        let bytes = slice(data, at, Self::size(class) as u64, what, at)?;
        Self::of(class, bytes).ok_or(Malformed::new(what, at))
    }

    /// Returns `count` records from offset `at` of the file `data`. `what` is the error message for
    /// a file that ends before they do.
    fn table(
        class: Class,
        data: &[u8],
        at: u64,
        count: u64,
        what: &'static str,
    ) -> Result<Vec<Self>, Malformed> {
        let size = Self::size(class);
        let bytes = slice(data, at, count.saturating_mul(size as u64), what, at)?;
        Ok(bytes
            .chunks_exact(size)
            .filter_map(|record| Self::of(class, record))
            .collect())
    }

    /// Appends the record to `out`.
    fn append(&self, class: Class, out: &mut Vec<u8>) {
        if class.is_64 {
            out.extend(pod::bytes_of(&self.wide(class.endian)));
        } else {
            out.extend(pod::bytes_of(&self.narrow(class.endian)));
        }
    }

    /// Returns the record as bytes.
    fn to_bytes(&self, class: Class) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::size(class));
        self.append(class, &mut bytes);
        bytes
    }
}

/// Converts one field from its raw form. A `byte` has no byte order, `short` and `int` have the
/// same width in both classes, and the width of `word` and `flags` depends on the class.
macro_rules! get {
    (byte $raw:expr, $endian:ident) => {
        $raw
    };
    (word $raw:expr, $endian:ident) => {
        u64::from($raw.get($endian))
    };
    (narrow flags $raw:expr, $endian:ident) => {
        $raw.get_u64($endian)
    };
    (narrow $width:ident $raw:expr, $endian:ident) => {
        get!($width $raw, $endian)
    };
    (wide $width:ident $raw:expr, $endian:ident) => {
        get!($width $raw, $endian)
    };
    ($width:ident $raw:expr, $endian:ident) => {
        $raw.get($endian)
    };
}

/// Converts one field to its raw form.
macro_rules! put {
    (byte $value:expr, $endian:ident) => {
        $value
    };
    (short $value:expr, $endian:ident) => {
        U16::new($endian, $value)
    };
    (int $value:expr, $endian:ident) => {
        U32::new($endian, $value)
    };
    (narrow word $value:expr, $endian:ident) => {
        U32::new($endian, $value as u32)
    };
    (narrow flags $value:expr, $endian:ident) => {
        U32::new_u64_truncate($endian, $value)
    };
    (wide word $value:expr, $endian:ident) => {
        U64::new($endian, $value)
    };
    (wide flags $value:expr, $endian:ident) => {
        U64::new($endian, $value)
    };
    ($class:ident $width:ident $value:expr, $endian:ident) => {
        put!($width $value, $endian)
    };
}

/// Defines a struct for a pair of raw structs, field by field.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident of $narrow:ident and $wide:ident {
        $($width:ident $field:ident: $type:ty = $raw:ident,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name {
            $(
                #[doc = concat!("The field `", stringify!($raw), "`.")]
                pub $field: $type,
            )*
        }

        impl Record for $name {
            type Narrow = elf::$narrow<Endianness>;
            type Wide = elf::$wide<Endianness>;

            /// Reads the layout of 32-bit files.
    fn of_narrow(raw: &Self::Narrow, endian: Endianness) -> Self {
                $name { $($field: get!(narrow $width raw.$raw, endian),)* }
            }

            fn of_wide(raw: &Self::Wide, endian: Endianness) -> Self {
                $name { $($field: get!(wide $width raw.$raw, endian),)* }
            }

            fn narrow(&self, endian: Endianness) -> Self::Narrow {
                elf::$narrow { $($raw: put!(narrow $width self.$field, endian),)* }
            }

            fn wide(&self, endian: Endianness) -> Self::Wide {
                elf::$wide { $($raw: put!(wide $width self.$field, endian),)* }
            }
        }
    };
}

record! {
    /// The file header. `shnum` and `shstrndx` are the stored values. If the number of sections or
    /// the index of the section names does not fit there, it is in the first section header.
    FileHeader of FileHeader32 and FileHeader64 {
        byte ident: elf::Ident = e_ident,
        short kind: elf::FileType = e_type,
        short machine: elf::Machine = e_machine,
        int version: u32 = e_version,
        word entry: u64 = e_entry,
        word phoff: u64 = e_phoff,
        word shoff: u64 = e_shoff,
        int flags: elf::FileFlags = e_flags,
        short ehsize: u16 = e_ehsize,
        short phentsize: u16 = e_phentsize,
        short phnum: u16 = e_phnum,
        short shentsize: u16 = e_shentsize,
        short shnum: u16 = e_shnum,
        short shstrndx: elf::SymbolSection = e_shstrndx,
    }
}

record! {
    /// A section header.
    #[derive(PartialEq, Eq, Default)]
    SectionHeader of SectionHeader32 and SectionHeader64 {
        int name: u32 = sh_name,
        int kind: elf::SectionType = sh_type,
        flags flags: elf::SectionFlags = sh_flags,
        word addr: u64 = sh_addr,
        word offset: u64 = sh_offset,
        word size: u64 = sh_size,
        int link: u32 = sh_link,
        int info: u32 = sh_info,
        word align: u64 = sh_addralign,
        word entsize: u64 = sh_entsize,
    }
}

record! {
    /// A program header.
    ProgramHeader of ProgramHeader32 and ProgramHeader64 {
        int kind: elf::ProgramType = p_type,
        int flags: elf::ProgramFlags = p_flags,
        word offset: u64 = p_offset,
        word vaddr: u64 = p_vaddr,
        word paddr: u64 = p_paddr,
        word filesz: u64 = p_filesz,
        word memsz: u64 = p_memsz,
        word align: u64 = p_align,
    }
}

record! {
    /// A symbol.
    Symbol of Sym32 and Sym64 {
        int name: u32 = st_name,
        byte info: elf::SymbolInfo = st_info,
        byte other: elf::SymbolOther = st_other,
        short shndx: elf::SymbolSection = st_shndx,
        word value: u64 = st_value,
        word size: u64 = st_size,
    }
}

impl FileHeader {
    /// Reads the class and the header of the ELF file `data`.
    pub fn read(data: &[u8]) -> Result<(Class, FileHeader), Malformed> {
        let class = Class::of(data)?;
        let header =
            FileHeader::of(class, data).ok_or(Malformed::new("ELF header past the end", 0))?;
        Ok((class, header))
    }

    /// Reads the program headers of the file `data`. They must have the size of the file's class.
    /// Fails if the file header cannot count them (`PN_XNUM`).
    pub fn program_headers(
        &self,
        class: Class,
        data: &[u8],
    ) -> Result<Vec<ProgramHeader>, Malformed> {
        if self.phnum == 0 {
            return Ok(Vec::new());
        }
        if self.phnum == elf::PN_XNUM {
            return Err(Malformed::new(
                "more segments than the file header can count",
                0,
            ));
        }
        if usize::from(self.phentsize) != ProgramHeader::size(class) {
            return Err(Malformed::new("program headers of an unknown size", 0));
        }
        ProgramHeader::table(
            class,
            data,
            self.phoff,
            self.phnum.into(),
            "program headers past the end",
        )
    }

    /// Returns the offset of the header of the section with this index. It may be past the end.
    pub fn section_header_at(&self, class: Class, index: usize) -> u64 {
        let distance = index.saturating_mul(SectionHeader::size(class)) as u64;
        self.shoff.saturating_add(distance)
    }
}

impl SectionHeader {
    /// Whether the section contains relocations.
    pub fn is_relocations(&self) -> bool {
        matches!(self.kind, elf::SHT_REL | elf::SHT_RELA | elf::SHT_CREL)
    }

    /// Whether the section is part of the program in memory.
    pub fn is_allocated(&self) -> bool {
        self.flags.contains(elf::SHF_ALLOC)
    }

    /// Whether `info` is the index of a section.
    pub fn info_is_section(&self) -> bool {
        self.is_relocations() || self.flags.contains(elf::SHF_INFO_LINK)
    }

    /// Whether the section has no bytes in the file.
    pub fn is_empty_in_file(&self) -> bool {
        matches!(self.kind, elf::SHT_NOBITS | elf::SHT_NULL)
    }

    /// Returns the section's bytes in the file `data`. The error for a section past the end names
    /// offset `at`.
    pub fn bytes<'a>(&self, data: &'a [u8], at: u64) -> Result<&'a [u8], Malformed> {
        if self.is_empty_in_file() {
            return Ok(&[]);
        }
        slice(data, self.offset, self.size, "section past the end", at)
    }

    /// Whether the section has no bytes in a file for `machine`.
    pub fn is_empty_for(&self, machine: elf::Machine) -> bool {
        self.is_empty_in_file() || machine == elf::EM_CUDA && is_cuda_memory(self.kind)
    }
}

/// Whether sections of cubins with this type have no bytes in the file. NVIDIA has its own types for
/// uninitialized memory that is reserved at run time: global, local and shared memory
/// (`SHT_CUDA_GLOBAL`, `_LOCAL` and `_SHARED` of cuda-gdb).
pub fn is_cuda_memory(kind: elf::SectionType) -> bool {
    [0x7000_0007, 0x7000_0009, 0x7000_000a].contains(&kind.0)
}

/// Returns the section that defines symbol `number` of a table. `short` is the index in the symbol
/// itself, and `extended` is the table's section of indices (`SHT_SYMTAB_SHNDX`). `None` if no
/// section defines the symbol: it is undefined, common or absolute, for example.
pub fn section_of_symbol(
    class: Class,
    number: usize,
    short: elf::SymbolSection,
    extended: Option<&[u8]>,
) -> Option<u32> {
    match (short, extended) {
        (elf::SHN_XINDEX, Some(indices)) => class.word(indices.get(number.checked_mul(4)?..)?),
        (elf::SHN_UNDEF, _) => None,
        (short, _) if short.0 >= elf::SHN_LORESERVE => None,
        (short, _) => Some(short.0.into()),
    }
}

/// Returns the index of the section (`SHT_SYMTAB_SHNDX`) with section indices that are too large
/// for the symbols of table `table`.
pub fn extended_indices(
    headers: impl IntoIterator<Item = SectionHeader>,
    table: usize,
) -> Option<usize> {
    headers
        .into_iter()
        .position(|header| header.kind == elf::SHT_SYMTAB_SHNDX && header.link as usize == table)
}

/// Appends a note to `out`, padded to four bytes, as in files of both classes.
pub(crate) fn append_note(
    class: Class,
    owner: &[u8],
    kind: elf::NoteType,
    text: &[u8],
    out: &mut Vec<u8>,
) {
    let header = elf::NoteHeader32 {
        n_namesz: U32::new(class.endian, owner.len() as u32),
        n_descsz: U32::new(class.endian, text.len() as u32),
        n_type: U32::new(class.endian, kind),
    };
    out.extend(pod::bytes_of(&header));
    for part in [owner, text] {
        out.extend(part);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

/// Returns the string at `offset` of a string table. `at` is the location of that offset in the
/// file, for errors.
pub(crate) fn string(table: &[u8], offset: u32, at: u64) -> Result<&[u8], Malformed> {
    if offset == 0 && table.is_empty() {
        return Ok(&[]);
    }
    let tail = table
        .get(offset as usize..)
        .ok_or(Malformed::new("name past the end", at))?;
    c_string(tail).ok_or(Malformed::new("name without a terminating zero", at))
}
