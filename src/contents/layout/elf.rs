//! What is in an ELF file: headers, sections by what they are for, and in device images the functions that code, symbols and names
//! belong to. NVIDIA names the sections of a kernel after it (`.text.K`, `.nv.info.K`, `.nv.constant0.K`, `.rela.text.K`); in
//! other images symbols say which bytes of `.text` a function has, and that of AMD's kernel descriptor is called `K.kd`.

use std::collections::HashMap;

use object::elf as abi;

use super::sweep::Claim;
use super::{FunctionCode, Label, Name, Names, Part, units};
use crate::error::Malformed;
use crate::formats::elf::raw::{Class, FileHeader, ProgramHeader, Record, SectionHeader, Symbol};
use crate::formats::{offload_entries, slice};

/// The depths of claims inside of an ELF file.
const SECTION: u32 = 2;
const FUNCTION: u32 = 4;
const HEADER: u32 = 6;

/// What is in a file.
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
    names: &'a [u8],
}

/// The claims to the bytes of the ELF file `data`, each as `label` but for what is found out. `device`: it is an image, of which
/// functions are told apart.
pub(super) fn read(data: &[u8], label: Label, names: &Names, device: bool) -> Result<Contents, Malformed> {
    let file = File::open(data)?;
    let mut contents = Contents::default();
    let mut claim = |start: u64, size: u64, depth: u32, to: Label| {
        contents.claims.push(Claim { start, end: start.saturating_add(size), depth, to });
    };
    let headers = Label { part: Part::Headers, ..label };
    claim(0, file.header.ehsize.into(), HEADER, headers);
    let FileHeader { phoff, phnum, phentsize, shoff, shentsize, .. } = file.header;
    claim(phoff, u64::from(phnum) * u64::from(phentsize), HEADER, headers);
    claim(shoff, file.sections.len() as u64 * u64::from(shentsize), HEADER, headers);
    let mut functions = if device { Functions::of(&file, names) } else { Functions::default() };
    let mut labels = Vec::with_capacity(file.sections.len());
    for section in &file.sections {
        let name = file.name(section);
        let (base, kernel) = functions.owner(name);
        let section_name = if base.is_empty() { label.section } else { names.of(base) };
        let mut own = Label { part: part(name, section, device), section: section_name, kernel, ..label };
        let target = labels.get(section.info as usize).filter(|_| section.info_is_section() && kernel == Name::NONE);
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
        functions.claim(&file, &labels, &mut contents);
        contents.units = functions.units;
        contents.functions = functions.code;
    }
    Ok(contents)
}

/// The claims of segments, for files whose section headers were taken away.
fn segments(file: &File<'_>, label: Label, claim: &mut impl FnMut(u64, u64, u32, Label)) {
    let FileHeader { phoff, phnum, .. } = file.header;
    let Ok(segments) = ProgramHeader::table(file.class, file.data, phoff, phnum.into(), "program header past the end") else {
        return;
    };
    for segment in segments.iter().filter(|segment| segment.kind == abi::PT_LOAD) {
        let part = if segment.flags.contains(abi::PF_X) {
            Part::Code
        } else if segment.flags.contains(abi::PF_W) {
            Part::Data
        } else {
            Part::Constants
        };
        claim(segment.offset, segment.filesz, SECTION, Label { part, ..label });
    }
}

impl<'a> File<'a> {
    fn open(data: &'a [u8]) -> Result<File<'a>, Malformed> {
        let (class, header) = FileHeader::read(data)?;
        let mut file = File { data, class, header, sections: Vec::new(), names: &[] };
        if header.shoff == 0 {
            return Ok(file);
        }
        let fault = "section header past the end";
        let first = SectionHeader::at(class, data, header.shoff, fault)?;
        let count = if header.shnum == 0 { first.size } else { header.shnum.into() };
        file.sections = SectionHeader::table(class, data, header.shoff, count, fault)?;
        let names = match header.shstrndx.0 {
            index if index == abi::SHN_XINDEX.0 => first.link as usize,
            index => usize::from(index),
        };
        file.names = file.sections.get(names).map_or(&[], |section| file.contents(section));
        Ok(file)
    }

    /// The bytes of a section; none where they are not all there.
    fn contents(&self, section: &SectionHeader) -> &'a [u8] {
        if section.is_empty_in_file() {
            return &[];
        }
        slice(self.data, section.offset, section.size, "section past the end", section.offset).unwrap_or_default()
    }

    /// Whether a section has no bytes in the file. NVIDIA's relocatable images give sections of memory that is set aside at run time
    /// the type of others, or one of its own.
    fn is_empty(&self, section: &SectionHeader) -> bool {
        const SET_ASIDE: [&[u8]; 3] = [b".nv.shared.", b".nv.local.", b".nv.merc.nv.shared."];
        const NAMES: [&[u8]; 3] = [b".nv.shared", b".nv.local", b".nv.global"];
        let name = self.name(section);
        let set_aside = SET_ASIDE.iter().any(|start| name.starts_with(start)) || NAMES.contains(&name);
        section.is_empty_in_file() || (self.header.machine == abi::EM_CUDA && set_aside)
    }

    fn name(&self, section: &SectionHeader) -> &'a [u8] {
        text(self.names, section.name)
    }
}

/// The string at `offset` of a table; empty where there is none.
fn text(table: &[u8], offset: u32) -> &[u8] {
    let tail = table.get(offset as usize..).unwrap_or_default();
    memchr::memchr(0, tail).and_then(|end| tail.get(..end)).unwrap_or_default()
}

/// The functions of an image.
#[derive(Default)]
struct Functions<'a> {
    by_name: HashMap<&'a [u8], Name>,
    code: Vec<FunctionCode>,
    units: Vec<Name>,
    /// The symbol tables: the indices of their sections, and their symbols.
    tables: Vec<(usize, Vec<Symbol>)>,
}

impl<'a> Functions<'a> {
    fn of(file: &File<'a>, names: &Names) -> Functions<'a> {
        let mut all = Functions::default();
        for (index, section) in file.sections.iter().enumerate() {
            if !is_symbol_table(file, section) {
                continue;
            }
            let count = section.size / Symbol::size(file.class) as u64;
            let symbols = Symbol::table(file.class, file.data, section.offset, count, "symbol past the end").unwrap_or_default();
            all.tables.push((index, symbols));
        }
        for (index, symbols) in &all.tables {
            let kind = file.sections[*index].kind;
            if !matches!(kind, abi::SHT_SYMTAB | abi::SHT_DYNSYM) {
                continue;
            }
            let strings = strings_of(file, *index);
            all.units.extend(units::of_symbols(strings).iter().map(|unit| names.of(unit)));
            for symbol in symbols.iter().filter(|symbol| symbol.info.st_type() == abi::STT_FUNC) {
                let name = text(strings, symbol.name);
                if !name.is_empty() {
                    all.by_name.entry(name).or_insert_with(|| names.of(name));
                }
            }
            let files = symbols.iter().filter(|symbol| symbol.info.st_type() == abi::STT_FILE);
            all.units
                .extend(files.filter_map(|symbol| units::of_file_symbol(text(strings, symbol.name))).map(|unit| names.of(unit)));
        }
        all.units.sort();
        all.units.dedup();
        all
    }

    /// The name of a section without that of a function at its end, and the function: the longest that stands after a dot.
    fn owner<'n>(&self, section: &'n [u8]) -> (&'n [u8], Name) {
        if self.by_name.is_empty() {
            return (section, Name::NONE);
        }
        for dot in memchr::memchr_iter(b'.', section).filter(|dot| *dot > 0) {
            if let Some(name) = section.get(dot + 1..).and_then(|rest| self.by_name.get(rest)) {
                return (&section[..dot], *name);
            }
        }
        (section, Name::NONE)
    }

    /// Which function a symbol belongs to: the one that it names, or else the one that its section belongs to.
    fn of_symbol(&self, name: &[u8], symbol: &Symbol, labels: &[Label]) -> Name {
        let section = usize::from(symbol.shndx.0);
        let of_section = labels.get(section).filter(|_| section != 0).map_or(Name::NONE, |label| label.kernel);
        if of_section != Name::NONE {
            return of_section;
        }
        self.by_name.get(name).or_else(|| self.by_name.get(name.strip_suffix(b".kd")?)).copied().unwrap_or(Name::NONE)
    }

    /// Adds the claims of functions: to their code, their descriptors, their symbols and names.
    fn claim(&mut self, file: &File<'_>, labels: &[Label], contents: &mut Contents) {
        let mut claim = |start: u64, size: u64, depth: u32, to: Label| {
            contents.claims.push(Claim { start, end: start.saturating_add(size), depth, to });
        };
        if let (Some(names), false) = (file.sections.get(usize::from(file.header.shstrndx.0)), self.by_name.is_empty()) {
            for (section, label) in file.sections.iter().zip(labels).filter(|(_, label)| label.kernel != Name::NONE) {
                let own = Label { kernel: label.kernel, ..labels[usize::from(file.header.shstrndx.0)] };
                claim(names.offset + u64::from(section.name), file.name(section).len() as u64 + 1, FUNCTION, own);
            }
        }
        let mut code = Vec::new();
        // Dynamic symbols are among the others, where there are others.
        let all = self.tables.iter().any(|(index, _)| file.sections[*index].kind == abi::SHT_SYMTAB);
        let telling = if all { abi::SHT_SYMTAB } else { abi::SHT_DYNSYM };
        for (index, symbols) in &self.tables {
            let (Some(table), Some(own)) = (file.sections.get(*index), labels.get(*index)) else { continue };
            let link = table.link as usize;
            let strings = strings_of(file, *index);
            for (symbol, at) in symbols.iter().zip((table.offset..).step_by(Symbol::size(file.class))) {
                let name = text(strings, symbol.name);
                let kernel = self.of_symbol(name, symbol, labels);
                if kernel != Name::NONE {
                    claim(at, Symbol::size(file.class) as u64, FUNCTION, Label { kernel, ..*own });
                    if let (Some(held), Some(label), false) = (file.sections.get(link), labels.get(link), name.is_empty()) {
                        let start = held.offset + u64::from(symbol.name);
                        claim(start, name.len() as u64 + 1, FUNCTION, Label { kernel, ..*label });
                    }
                }
                if let Some((start, label)) = place(file, symbol, labels).filter(|_| table.kind == telling) {
                    let is_function = symbol.info.st_type() == abi::STT_FUNC;
                    if kernel != Name::NONE && (is_function || name.ends_with(b".kd")) {
                        claim(start, symbol.size, FUNCTION, Label { kernel, ..label });
                    }
                    if is_function && kernel != Name::NONE {
                        code.push(FunctionCode { name: kernel, offset: start, size: symbol.size, digest: None });
                    }
                }
            }
        }
        self.code = code;
    }
}

/// Where in the file what a symbol names starts, and the label of its section; none for what has no bytes in the file.
fn place(file: &File<'_>, symbol: &Symbol, labels: &[Label]) -> Option<(u64, Label)> {
    let index = usize::from(symbol.shndx.0);
    let section = file.sections.get(index).filter(|section| index != 0 && !section.is_empty_in_file())?;
    // The values of symbols in relocatable files are offsets in their sections, whose addresses are zero.
    let within = symbol.value.checked_sub(section.addr)?;
    let fits = symbol.size > 0 && within.checked_add(symbol.size)? <= section.size;
    fits.then(|| Some((section.offset.checked_add(within)?, *labels.get(index)?)))?
}

fn strings_of<'a>(file: &File<'a>, table: usize) -> &'a [u8] {
    let link = file.sections.get(table).and_then(|table| file.sections.get(table.link as usize));
    link.map_or(&[], |strings| file.contents(strings))
}

/// NVIDIA's second symbol table (`.nv.merc.symtab`) has a type of its own.
fn is_symbol_table(file: &File<'_>, section: &SectionHeader) -> bool {
    let own = file.header.machine == abi::EM_CUDA && file.name(section).ends_with(b"symtab");
    matches!(section.kind, abi::SHT_SYMTAB | abi::SHT_DYNSYM)
        || (own && !section.is_empty_in_file() && section.entsize == Symbol::size(file.class) as u64)
}

/// What a section is for.
fn part(name: &[u8], section: &SectionHeader, device: bool) -> Part {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix.as_bytes()));
    if !device && is_registration(name) {
        return Part::Registration;
    }
    if starts(&[".debug", ".zdebug", ".gdb_index", ".gnu_debug", ".nv_debug", ".nv.debug", ".nv.merc.debug", ".nv.merc.nv_debug"])
    {
        return Part::Debug;
    }
    if starts(&[".nv.capmerc", ".nv.merc"]) {
        return Part::Mercury;
    }
    if section.is_relocations() || section.kind == abi::SHT_RELR || starts(&[".nv.resolvedrela", ".nv.rel.action"]) {
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
        // NVIDIA's images have initialized variables in sections of any flags.
        _ if section.is_allocated() && starts(&[".nv."]) => Part::Data,
        _ if section.is_allocated() => Part::Constants,
        _ if starts(&[".comment", ".note"]) => Part::Notes,
        _ => Part::Other,
    }
}

/// Whether a section of a host file registers device code: structs for the runtimes and tables of entries.
fn is_registration(name: &[u8]) -> bool {
    const SEGMENTS: [&[u8]; 2] = [b".hipFatBinSegment", b".nvFatBinSegment"];
    SEGMENTS.iter().any(|segment| name.starts_with(segment))
        || offload_entries::TABLES.iter().any(|table| table.as_bytes() == name)
}
