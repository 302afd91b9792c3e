//! Contents of an ELF file: headers, sections by purpose, and in device images the functions that
//! code, symbols and names belong to. NVIDIA names the sections of a kernel after it (`.text.K`,
//! `.nv.info.K`, `.nv.constant0.K`, `.rela.text.K`). In other images, symbols have the ranges of
//! functions in `.text`, and the symbol of AMD's kernel descriptor is `K.kd`. Also finds
//! translation units in symbol names.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

use memchr::memmem;
use object::elf as abi;

use super::{Claim, FunctionCode, Label, Name, Names, Part, SHARING};
use offload_formats::bytes::c_string;
use offload_formats::elf::file::SectionTable;
use offload_formats::elf::raw::{
    Class, FileHeader, Record, SectionHeader, Symbol, section_of_symbol,
};
use offload_formats::error::Malformed;
use offload_formats::offload_sections::{self, SectionContents};

/// The depths of claims inside of an ELF file.
const SECTION: u32 = 2;
const FUNCTION: u32 = 4;
const HEADER: u32 = 6;

/// Limit of the dots of a section name that are examined. Kernel names follow one of the first
/// dots.
const MOST_DOTS: usize = 16;

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) claims: Vec<Claim<Label>>,
    pub(super) functions: Vec<FunctionCode>,
    pub(super) units: Vec<Name>,
}

/// A file that is being read.
struct File<'a> {
    data: &'a [u8],
    class: Class,
    header: FileHeader,
    sections: Vec<SectionHeader>,
    /// The index of the section with the names of all sections, and the bytes of that section.
    names_index: usize,
    names: &'a [u8],
}

/// The claims to the bytes of the ELF file `data`. `label` is the default for all fields that the
/// contents do not determine. `device`: the file is an image, and its functions are distinguished.
pub(super) fn read(
    data: &[u8],
    label: Label,
    names: &Names,
    device: bool,
) -> Result<Contents, Malformed> {
    let file = File::open(data)?;
    let mut contents = Contents::default();
    let mut claim = |start: u64, size: u64, depth: u32, to: Label| {
        contents.claims.push(Claim {
            start,
            end: start.saturating_add(size),
            depth,
            to,
        });
    };
    let headers = Label {
        part: Part::Headers,
        ..label
    };
    claim(0, file.header.ehsize.into(), HEADER, headers);
    let FileHeader {
        phoff,
        phnum,
        phentsize,
        shoff,
        shentsize,
        ..
    } = file.header;
    claim(
        phoff,
        u64::from(phnum) * u64::from(phentsize),
        HEADER,
        headers,
    );
    claim(
        shoff,
        file.sections.len() as u64 * u64::from(shentsize),
        HEADER,
        headers,
    );
    let mut functions = if device {
        Functions::of(&file, names)?
    } else {
        Functions::default()
    };
    let mut labels = Vec::with_capacity(file.sections.len());
    for section in &file.sections {
        let name = file.name(section);
        let (base, kernel) = functions.owner(name);
        let section_name = if base.is_empty() {
            label.section
        } else {
            names.of(base)
        };
        let mut own = Label {
            part: if is_frame_of_cubin(&file, name) {
                Part::Attributes
            } else {
                part(name, section, device)
            },
            section: section_name,
            kernel,
            ..label
        };
        let target = labels
            .get(section.info as usize)
            .filter(|_| section.info_is_section() && kernel == Name::NONE);
        if let Some(target) = target {
            own.kernel = Label::clone(target).kernel;
        }
        labels.push(own);
        if !file.is_empty(section) {
            claim(section.offset, section.size, SECTION, own);
        }
    }
    if file.sections.is_empty() {
        segments(&file, label, &mut claim);
    }
    if device {
        functions.claim(&file, &labels, &mut contents)?;
        contents.units = functions.units;
        contents.functions = functions.code;
    }
    Ok(contents)
}

/// Adds the claims of segments, for files without section headers.
fn segments(file: &File<'_>, label: Label, claim: &mut impl FnMut(u64, u64, u32, Label)) {
    let Ok(segments) = file.header.program_headers(file.class, file.data) else {
        return;
    };
    for segment in segments
        .iter()
        .filter(|segment| segment.kind == abi::PT_LOAD)
    {
        let part = if segment.flags.contains(abi::PF_X) {
            Part::Code
        } else if segment.flags.contains(abi::PF_W) {
            Part::Data
        } else {
            Part::Constants
        };
        claim(
            segment.offset,
            segment.filesz,
            SECTION,
            Label { part, ..label },
        );
    }
}

impl<'a> File<'a> {
    fn open(data: &'a [u8]) -> Result<File<'a>, Malformed> {
        let (class, header) = FileHeader::read(data)?;
        let table = SectionTable::read_any_size(data, class, &header)?;
        let mut file = File {
            data,
            class,
            header,
            sections: table.headers,
            names_index: table.names,
            names: &[],
        };
        file.names = file.strings(file.names_index);
        let mut left = file.shared("section names overlap");
        for section in &file.sections {
            left.take(file.name(section).len() as u64)?;
        }
        Ok(file)
    }

    /// The budget for bytes that are read more than once; `what` is the error if the file exceeds
    /// it.
    fn shared(&self, what: &'static str) -> Shared {
        Shared {
            left: SHARING.saturating_mul(self.data.len() as u64),
            fault: Malformed::new(what, self.header.shoff),
        }
    }

    /// The string table at this index, up to the zero that ends its last string.
    fn strings(&self, index: usize) -> &'a [u8] {
        let table = self
            .sections
            .get(index)
            .map_or(&[][..], |section| self.contents(section));
        memchr::memrchr(0, table)
            .and_then(|last| table.get(..=last))
            .unwrap_or_default()
    }

    /// The bytes of a section; none if the file does not contain all of them.
    fn contents(&self, section: &SectionHeader) -> &'a [u8] {
        section.bytes(self.data, section.offset).unwrap_or_default()
    }

    /// Whether a section has no bytes in the file. In NVIDIA's relocatable images, sections that
    /// only reserve memory at run time have the type of other sections, or a type of their own.
    fn is_empty(&self, section: &SectionHeader) -> bool {
        const SET_ASIDE: [&[u8]; 3] = [b".nv.shared.", b".nv.local.", b".nv.merc.nv.shared."];
        const NAMES: [&[u8]; 3] = [b".nv.shared", b".nv.local", b".nv.global"];
        let name = self.name(section);
        let set_aside =
            SET_ASIDE.iter().any(|start| name.starts_with(start)) || NAMES.contains(&name);
        section.is_empty_for(self.header.machine)
            || (self.header.machine == abi::EM_CUDA && set_aside)
    }

    fn name(&self, section: &SectionHeader) -> &'a [u8] {
        text(self.names, section.name)
    }
}

/// The remaining bytes that may be read.
struct Shared {
    left: u64,
    fault: Malformed,
}

impl Shared {
    fn take(&mut self, bytes: u64) -> Result<(), Malformed> {
        self.left = self.left.checked_sub(bytes).ok_or(self.fault)?;
        Ok(())
    }
}

/// The string at `offset` of a table; empty if there is none.
fn text(table: &[u8], offset: u32) -> &[u8] {
    c_string(table.get(offset as usize..).unwrap_or_default()).unwrap_or_default()
}

/// The functions of an image.
#[derive(Default)]
struct Functions<'a> {
    by_name: HashMap<&'a [u8], Name>,
    code: Vec<FunctionCode>,
    units: Vec<Name>,
    tables: Vec<Table<'a>>,
}

/// A symbol table.
struct Table<'a> {
    /// The index of its section.
    index: usize,
    /// The symbols, each with the index of the section that it is defined in; 0 for none.
    symbols: Vec<(Symbol, usize)>,
    /// The index of the section with their names, and the bytes of that section.
    strings_index: usize,
    strings: &'a [u8],
}

impl<'a> Table<'a> {
    /// The symbol tables of a file.
    fn all(file: &File<'a>) -> Result<Vec<Table<'a>>, Malformed> {
        let mut left = file.shared("symbol tables or symbol names overlap");
        let is_extended = |section: &&SectionHeader| section.kind == abi::SHT_SYMTAB_SHNDX;
        let extended: HashMap<u32, &SectionHeader> = file
            .sections
            .iter()
            .filter(is_extended)
            .map(|section| (section.link, section))
            .collect();
        let mut all = Vec::new();
        for (index, section) in file
            .sections
            .iter()
            .enumerate()
            .filter(|(_, section)| is_symbol_table(file, section))
        {
            let strings_index = section.link as usize;
            let strings = file.strings(strings_index);
            let count = section.size / Symbol::size(file.class) as u64;
            let symbols = Symbol::table(
                file.class,
                file.data,
                section.offset,
                count,
                "symbol past the end",
            )
            .unwrap_or_default();
            left.take((symbols.len() * Symbol::size(file.class) + strings.len()) as u64)?;
            let indices = u32::try_from(index)
                .ok()
                .and_then(|index| extended.get(&index))
                .map(|section| file.contents(section));
            let with_section = |(number, symbol): (usize, Symbol)| {
                let section = section_of_symbol(file.class, number, symbol.shndx, indices);
                (symbol, section.map_or(0, |section| section as usize))
            };
            let symbols: Vec<(Symbol, usize)> =
                symbols.into_iter().enumerate().map(with_section).collect();
            for (symbol, _) in &symbols {
                left.take(text(strings, symbol.name).len() as u64)?;
            }
            all.push(Table {
                index,
                symbols,
                strings_index,
                strings,
            });
        }
        Ok(all)
    }
}

impl<'a> Functions<'a> {
    fn of(file: &File<'a>, names: &Names) -> Result<Functions<'a>, Malformed> {
        let mut all = Functions {
            tables: Table::all(file)?,
            ..Functions::default()
        };
        for Table {
            index,
            symbols,
            strings,
            ..
        } in &all.tables
        {
            if !matches!(
                file.sections[*index].kind,
                abi::SHT_SYMTAB | abi::SHT_DYNSYM
            ) {
                continue;
            }
            all.units
                .extend(units_of_symbols(strings).iter().map(|unit| names.of(unit)));
            for (symbol, _) in symbols
                .iter()
                .filter(|(symbol, _)| symbol.info.st_type() == abi::STT_FUNC)
            {
                let name = text(strings, symbol.name);
                if !name.is_empty() {
                    all.by_name.entry(name).or_insert_with(|| names.of(name));
                }
            }
            let files = symbols
                .iter()
                .filter(|(symbol, _)| symbol.info.st_type() == abi::STT_FILE);
            let of_files =
                files.filter_map(|(symbol, _)| unit_of_file_symbol(text(strings, symbol.name)));
            all.units.extend(of_files.map(|unit| names.of(unit)));
        }
        all.units.sort();
        all.units.dedup();
        Ok(all)
    }

    /// Splits the name of a section into its base and the function at its end: the longest function
    /// name after a dot.
    fn owner<'n>(&self, section: &'n [u8]) -> (&'n [u8], Name) {
        if self.by_name.is_empty() {
            return (section, Name::NONE);
        }
        for dot in memchr::memchr_iter(b'.', section)
            .take(MOST_DOTS)
            .filter(|dot| *dot > 0)
        {
            if let Some(name) = section
                .get(dot + 1..)
                .and_then(|rest| self.by_name.get(rest))
            {
                return (&section[..dot], *name);
            }
        }
        (section, Name::NONE)
    }

    /// The function of a symbol: that of its section, or else the function that the symbol names.
    fn of_symbol(&self, name: &[u8], section: usize, labels: &[Label]) -> Name {
        let of_section = labels
            .get(section)
            .filter(|_| section != 0)
            .map_or(Name::NONE, |label| label.kernel);
        if of_section != Name::NONE {
            return of_section;
        }
        self.by_name
            .get(name)
            .or_else(|| self.by_name.get(name.strip_suffix(b".kd")?))
            .copied()
            .unwrap_or(Name::NONE)
    }

    /// Adds the claims of functions to their code, descriptors, symbols and names.
    fn claim(
        &mut self,
        file: &File<'_>,
        labels: &[Label],
        contents: &mut Contents,
    ) -> Result<(), Malformed> {
        let mut claim = |start: u64, size: u64, depth: u32, to: Label| {
            contents.claims.push(Claim {
                start,
                end: start.saturating_add(size),
                depth,
                to,
            });
        };
        if let (Some(names), Some(of_names)) = (
            file.sections.get(file.names_index),
            labels.get(file.names_index),
        ) {
            // A section with a name implies that the names are in the file.
            let named = |(section, label): &(&SectionHeader, &Label)| {
                label.kernel != Name::NONE && !file.name(section).is_empty()
            };
            for (section, label) in file.sections.iter().zip(labels).filter(named) {
                let own = Label {
                    kernel: label.kernel,
                    ..*of_names
                };
                claim(
                    names.offset + u64::from(section.name),
                    file.name(section).len() as u64 + 1,
                    FUNCTION,
                    own,
                );
            }
        }
        let mut code = Vec::new();
        // The symbol table repeats the dynamic symbols, if the file has a symbol table.
        let all = self
            .tables
            .iter()
            .any(|table| file.sections[table.index].kind == abi::SHT_SYMTAB);
        let table_kind = if all {
            abi::SHT_SYMTAB
        } else {
            abi::SHT_DYNSYM
        };
        let mut left = file.shared("functions overlap");
        for Table {
            index,
            symbols,
            strings_index,
            strings,
        } in &self.tables
        {
            let (Some(table), Some(own)) = (file.sections.get(*index), labels.get(*index)) else {
                continue;
            };
            let names = file
                .sections
                .get(*strings_index)
                .zip(labels.get(*strings_index));
            for ((symbol, section), at) in symbols
                .iter()
                .zip((table.offset..).step_by(Symbol::size(file.class)))
            {
                let name = text(strings, symbol.name);
                let kernel = self.of_symbol(name, *section, labels);
                if kernel != Name::NONE {
                    claim(
                        at,
                        Symbol::size(file.class) as u64,
                        FUNCTION,
                        Label { kernel, ..*own },
                    );
                    if let Some((held, label)) = names.filter(|_| !name.is_empty()) {
                        let start = held.offset + u64::from(symbol.name);
                        claim(
                            start,
                            name.len() as u64 + 1,
                            FUNCTION,
                            Label { kernel, ..*label },
                        );
                    }
                }
                if let Some((start, label)) =
                    place(file, symbol, *section, labels).filter(|_| table.kind == table_kind)
                {
                    let is_function = symbol.info.st_type() == abi::STT_FUNC;
                    if kernel != Name::NONE && (is_function || name.ends_with(b".kd")) {
                        claim(start, symbol.size, FUNCTION, Label { kernel, ..label });
                    }
                    if is_function && kernel != Name::NONE {
                        left.take(symbol.size)?;
                        code.push(FunctionCode {
                            name: kernel,
                            offset: start,
                            size: symbol.size,
                            digest: None,
                        });
                    }
                }
            }
        }
        self.code = code;
        Ok(())
    }
}

/// The start of a symbol's bytes in the file, and the label of its section; none if it has no bytes
/// in the file.
fn place(file: &File<'_>, symbol: &Symbol, index: usize, labels: &[Label]) -> Option<(u64, Label)> {
    let section = file
        .sections
        .get(index)
        .filter(|section| index != 0 && !file.is_empty(section))?;
    // Symbol values in relocatable files are offsets in their sections, whose addresses are zero.
    let within = symbol.value.checked_sub(section.addr)?;
    let fits = symbol.size > 0 && within.checked_add(symbol.size)? <= section.size;
    fits.then(|| Some((section.offset.checked_add(within)?, *labels.get(index)?)))?
}

/// Whether a section is a symbol table. NVIDIA's second symbol table (`.nv.merc.symtab`) has a type
/// of its own.
fn is_symbol_table(file: &File<'_>, section: &SectionHeader) -> bool {
    let own = file.header.machine == abi::EM_CUDA && file.name(section).ends_with(b"symtab");
    matches!(section.kind, abi::SHT_SYMTAB | abi::SHT_DYNSYM)
        || (own
            && !section.is_empty_in_file()
            && section.entsize == Symbol::size(file.class) as u64)
}

/// Whether a section has the call frames of a cubin. NVIDIA's assembler writes it even if no debug
/// information is requested, and `offld strip-device` does not remove it.
fn is_frame_of_cubin(file: &File<'_>, name: &[u8]) -> bool {
    file.header.machine == abi::EM_CUDA
        && [&b".debug_frame"[..], b".nv.merc.debug_frame"].contains(&name)
}

/// The purpose of a section.
fn part(name: &[u8], section: &SectionHeader, device: bool) -> Part {
    let starts = |prefixes: &[&str]| {
        prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix.as_bytes()))
    };
    if !device && is_registration(name) {
        return Part::Registration;
    }
    if starts(&[
        ".debug",
        ".zdebug",
        ".gdb_index",
        ".gnu_debug",
        ".nv_debug",
        ".nv.debug",
        ".nv.merc.debug",
        ".nv.merc.nv_debug",
    ]) {
        return Part::Debug;
    }
    if starts(&[".nv.capmerc", ".nv.merc"]) {
        return Part::Mercury;
    }
    if section.is_relocations()
        || section.kind == abi::SHT_RELR
        || starts(&[".nv.resolvedrela", ".nv.rel.action"])
    {
        return Part::Relocations;
    }
    if section.flags.contains(abi::SHF_EXECINSTR) || starts(&[".text"]) {
        return Part::Code;
    }
    if starts(&[".nv.constant"]) {
        return Part::Constants;
    }
    if starts(&[".nv.info", ".nv.compat", ".nv.callgraph", ".nv.prototype"]) {
        return Part::Attributes;
    }
    match section.kind {
        abi::SHT_SYMTAB
        | abi::SHT_DYNSYM
        | abi::SHT_STRTAB
        | abi::SHT_SYMTAB_SHNDX
        | abi::SHT_HASH
        | abi::SHT_GNU_HASH
        | abi::SHT_DYNAMIC
        | abi::SHT_GROUP
        | abi::SHT_GNU_VERDEF
        | abi::SHT_GNU_VERNEED
        | abi::SHT_GNU_VERSYM => Part::Symbols,
        abi::SHT_NOTE => Part::Notes,
        _ if section.flags.contains(abi::SHF_WRITE) && section.is_allocated() => Part::Data,
        // Initialized variables of NVIDIA images are in sections with any flags.
        _ if section.is_allocated() && starts(&[".nv."]) => Part::Data,
        _ if section.is_allocated() => Part::Constants,
        _ if starts(&[".comment", ".note"]) => Part::Notes,
        _ => Part::Other,
    }
}

/// Whether a section of a host file registers device code: structures for the runtimes, and tables
/// of entries.
fn is_registration(name: &[u8]) -> bool {
    offload_sections::known(name, false).is_some_and(|known| match known.contents {
        SectionContents::Wrappers => true,
        SectionContents::Entries => known.name.as_bytes() == name,
        SectionContents::Images | SectionContents::Containers => false,
    })
}

// Search for the translation units of device code in symbol names. NVIDIA's compiler puts the file
// name into the names of symbols that are local to a unit: `_INTERNAL_9bf1d7ca_4_a_cu_7a7eb9d1`,
// `_GLOBAL__N__57686b55_4_a_cu_45d778d9`, `__nv_static_25__45ddc4bb_4_b_cu_848acf13_…`. After the
// prefix, such names have eight hexadecimal digits, the length of the file name, and the name, in
// which `_` replaces all characters except letters and digits. Other compilers have symbols for
// files.

/// The longest file name (`NAME_MAX` of Linux). Without a limit, overlapping names in a damaged
/// file would be far larger than the file.
const LONGEST_NAME: usize = 255;
/// The prefixes of such names.
const PREFIXES: [&[u8]; 3] = [b"_INTERNAL_", b"_GLOBAL__N__", b"__nv_static_"];
/// The extensions of source files.
const EXTENSIONS: [&str; 13] = [
    "cu", "cuh", "hip", "cpp", "cxx", "cc", "c", "C", "f90", "F90", "f", "rs", "sycl",
];

/// The translation units in the strings of a symbol table, or in PTX.
pub(super) fn units_of_symbols(text: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    for prefix in PREFIXES {
        for at in memmem::find_iter(text, prefix) {
            let rest = text.get(at + prefix.len()..).unwrap_or_default();
            found.extend(after_prefix(rest, prefix == PREFIXES[2]));
        }
    }
    found
}

/// The file in the text after a prefix. `counted`: the text begins with a number and two
/// underscores.
fn after_prefix(mut rest: &[u8], counted: bool) -> Option<Vec<u8>> {
    if counted {
        let (_, after) = unit_number(rest)?;
        rest = after.strip_prefix(b"__")?;
    }
    let (hash, rest) = rest.split_at_checked(8)?;
    let (length, rest) = unit_number(
        rest.strip_prefix(b"_")
            .filter(|_| hash.iter().all(u8::is_ascii_hexdigit))?,
    )?;
    let name = rest.strip_prefix(b"_")?.get(..length)?;
    let is_name = (1..=LONGEST_NAME).contains(&name.len())
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let text = std::str::from_utf8(name).ok().filter(|_| is_name)?;
    let with_dot = |extension: &str| {
        text.strip_suffix(extension)?
            .strip_suffix('_')
            .map(|stem| format!("{stem}.{extension}"))
    };
    Some(
        EXTENSIONS
            .into_iter()
            .find_map(with_dot)
            .unwrap_or_else(|| text.to_owned())
            .into_bytes(),
    )
}

/// A decimal number and the text after it.
fn unit_number(text: &[u8]) -> Option<(usize, &[u8])> {
    const MOST_DIGITS: usize = 20;
    let digits = text
        .iter()
        .take(MOST_DIGITS)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

/// The file of a file symbol, if it is a source file and not a name that a link-time optimizer made
/// up.
fn unit_of_file_symbol(name: &[u8]) -> Option<&[u8]> {
    let dot = memchr::memrchr(b'.', name)?;
    let extension = std::str::from_utf8(name.get(dot + 1..)?).ok()?;
    EXTENSIONS.contains(&extension).then_some(name)
}
