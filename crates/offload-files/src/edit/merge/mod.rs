//! Merges builds of one source that were compiled for different devices: verifies that the builds
//! match, selects the images, and composes the file.
//!
//! [`differences`] walks all builds in lockstep (`lockstep`). [`compare_hosts`] compares the host
//! halves of two files, that is, everything but their device code (`host_file`). Objects are
//! compared section by section (`objects`). In programs and shared libraries, addresses are
//! compared by their targets (`linked`), because device code of another size moves everything after
//! it.
//! `place_names` recognizes names that contain a path or file id and differ only in that.
//! [`check_images`] selects the images of all builds and their order. [`join`] composes the merged
//! file.
//!
//! Data that does not affect the host, or is generated again, is not compared: build ids,
//! `.comment`, offld's own note, debug information (`.debug_*` as a whole, and with it the paths in
//! there), string tables and the order of symbols, compiler notes for linkers (`.llvm_addrsig`,
//! `.llvm.call-graph-profile`), copies of the source as bitcode (`.llvmbc`, `.llvmcmd`), names of
//! source files among the symbols, and in programs all sections that are not loaded.
//!
//! For programs and libraries, the comparison proves this: every byte that differs is part of an
//! address or a distance, at an offset where one can be, and its target is the same byte of the
//! same section in both files. This detects builds of different sources. It is no defence against
//! somebody who crafts two files to deceive it: equal bytes count as equal whatever they mean, and
//! code is not disassembled.

mod host_file;
mod images;
mod join;
mod linked;
mod lockstep;
mod objects;
mod place_names;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use anyhow::{Context, Result};
use object::elf;

use host_file::{HostFile, Section, Symbol, device_ranges};
pub(crate) use images::{MergedUnit, check_images};
pub(crate) use join::join;
pub(crate) use lockstep::{Build, name_kinds};
use lockstep::{Location, Locations, Shape};
use offload_formats::elf::{SHT_LLVM_ADDRSIG, notes};
use offload_formats::model::{Generation, printable, printable_name};
use offload_formats::offload_entries::generation_of_entry;
use offload_formats::offload_sections;
use offload_formats::registration::read::{self, Registered};
use place_names::Remedy;

/// The type of the section with call counts between functions (`SHT_LLVM_CALL_GRAPH_PROFILE`).
const SHT_LLVM_CALL_GRAPH_PROFILE: elf::SectionType = elf::SectionType(0x6fff_4c09);
/// Limit on reported pairs of names that differ only in a path or file id: all have the same cause.
const MOST_NAMES: usize = 3;
/// Prefixes of section names that are not compared, whatever their types.
const NOT_COMPARED: [&str; 13] = [
    ".comment",
    ".note.gnu.build-id",
    notes::LINK_SECTION,
    ".debug",
    ".zdebug",
    ".gdb_index",
    ".gnu_debug",
    ".gnu.debug",
    ".llvmbc",
    ".llvmcmd",
    // In COFF objects these two have no section type of their own.
    ".llvm_addrsig",
    ".llvm.call-graph-profile",
    // RELRO padding, up to one page; its size depends on its address, so it may differ.
    ".relro_padding",
];

/// The differences between the host halves of `builds` and that of the first one, each with its
/// location and, if known, the remedy. Empty if all match.
///
/// # Errors
/// A build is damaged, has a format that cannot be merged, or has another format than the first.
pub(crate) fn differences(builds: &[Build<'_>]) -> Result<Vec<HostDifference>> {
    let mut found = Vec::new();
    compare_builds(&Locations::of(builds), &mut found)?;
    Ok(found)
}

/// A difference between two builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostDifference {
    /// The location and the description.
    pub(crate) text: String,
    /// Whether the text contains a remedy.
    pub(crate) has_remedy: bool,
}

fn compare_builds(locations: &Locations, found: &mut Vec<HostDifference>) -> Result<()> {
    let base = locations.base()?;
    match locations.shape()? {
        Shape::Same => {}
        // The contents of containers are compared by `join`.
        Shape::Containers => {}
        Shape::Archive => {
            for member in locations.members()? {
                compare_builds(&member, found)?;
                member.release();
            }
        }
        Shape::Host => {
            let ranges = device_ranges(base.piece.bytes()).with_context(|| base.place.clone())?;
            let first = HostHalf {
                name: &base.place,
                data: base.piece.bytes(),
                device: &ranges,
            };
            for location in locations.all.iter().skip(1) {
                let ranges = device_ranges(location.piece.bytes())
                    .with_context(|| location.place.clone())?;
                let other = HostHalf {
                    name: &location.place,
                    data: location.piece.bytes(),
                    device: &ranges,
                };
                let differences = compare_hosts(&first, &other)?;
                let describe = |difference: Difference| HostDifference {
                    text: format!(
                        "{} differs from {}: {difference}",
                        location.place, base.place
                    ),
                    has_remedy: difference.remedy.is_some(),
                };
                found.extend(differences.into_iter().map(describe));
            }
        }
        Shape::Other => {
            let differs = locations
                .all
                .iter()
                .skip(1)
                .filter(|location| !location.piece.has_bytes_of(&base.piece));
            let describe = |other: &Location| HostDifference {
                text: format!(
                    "{} differs from {} and has no host half to compare; make the file the same in every build, or remove it from \
                     all builds",
                    other.place, base.place
                ),
                has_remedy: false,
            };
            found.extend(differs.map(describe));
        }
    }
    Ok(())
}

/// A file or archive member whose host half is compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostHalf<'d> {
    /// Its location in messages: the path, with the archive members that contain it.
    pub(crate) name: &'d str,
    /// The whole ELF file or COFF object.
    pub(crate) data: &'d [u8],
    /// The ranges of `data` that hold device code or describe its location ([`device_ranges`]).
    pub(crate) device: &'d [Range<u64>],
}

/// A file, parsed for the comparison.
struct ParsedHost<'d> {
    name: &'d str,
    file: HostFile<'d>,
    device: Vec<Range<u64>>,
    registered: Registered,
}

impl<'d> ParsedHost<'d> {
    fn read(half: &HostHalf<'d>) -> Result<ParsedHost<'d>> {
        let file = HostFile::read(half.data).with_context(|| half.name.to_owned())?;
        let registered = read::read(half.data).with_context(|| half.name.to_owned())?;
        Ok(ParsedHost {
            name: half.name,
            file,
            device: host_file::joined(half.device.to_vec()),
            registered,
        })
    }

    /// The ranges of device code in a section, as offsets in it. A section of only device code is
    /// one range.
    fn device_parts(&self, section: &Section<'_>) -> Vec<Range<u64>> {
        if host_file::is_device(section) {
            return std::iter::once(0..section.header.size).collect();
        }
        host_file::within(
            &self.device,
            section.header.offset,
            section.body.len() as u64,
        )
    }

    /// The names of registered entries and of all symbols but those of source files.
    fn names(&self) -> BTreeSet<&[u8]> {
        let file = &self.file;
        let symbols = file
            .symbols
            .iter()
            .chain(&file.dynamic_symbols)
            .filter(|symbol| symbol.kind() != elf::STT_FILE);
        let entries = self
            .registered
            .tables
            .iter()
            .flat_map(|table| &table.entries);
        let entries = entries.filter_map(|entry| Some(entry.name.as_deref()?.as_bytes()));
        symbols.map(|symbol| symbol.name).chain(entries).collect()
    }
}

/// Compares the host halves of two files. Returns no difference if they match, so that one file can
/// take device code of the other. The number of reported differences is limited; if there are more,
/// the last one says how many.
///
/// # Errors
/// A file is damaged, or is neither an ELF object, program or shared library nor a COFF object.
pub(crate) fn compare_hosts(one: &HostHalf<'_>, other: &HostHalf<'_>) -> Result<Vec<Difference>> {
    let (one, other) = (ParsedHost::read(one)?, ParsedHost::read(other)?);
    let mut found = Differences::default();
    headers(&one, &other, &mut found);
    generations(&one, &other, &mut found);
    if found.count() > 0 {
        return Ok(found.finish());
    }
    // Names of other lengths move everything else, so only the names are reported.
    let pairs = place_names::pairs(&one.names(), &other.names());
    if !pairs.is_empty() {
        for pair in pairs.iter().take(MOST_NAMES) {
            let what = format!(
                "is in {}, but {} has `{}` instead",
                printable(one.name),
                printable(other.name),
                pair.other
            );
            found.of_symbol(String::new(), pair.one.as_bytes(), what, Some(pair.remedy));
        }
        if let Some(more) = pairs.len().checked_sub(MOST_NAMES).filter(|more| *more > 0) {
            found.add(Difference::of_file(format!("and {more} more names")));
        }
        return Ok(found.finish());
    }
    if one.file.is_object() {
        objects::compare(&one, &other, &mut found)?;
    } else {
        linked::compare(&one, &other, &mut found)?;
    }
    Ok(found.finish())
}

/// Compares the host descriptions in the file headers: machine, file type and flags.
fn headers(one: &ParsedHost<'_>, other: &ParsedHost<'_>, found: &mut Differences) {
    let (first, second) = (&one.file.header, &other.file.header);
    let mut expect = |is_same: bool, what: &str| {
        if !is_same {
            let what = format!(
                "{what} of {} and of {} differ",
                printable(one.name),
                printable(other.name)
            );
            found.add(Difference::of_file(what));
        }
    };
    expect(first.machine == second.machine, "the machine types");
    expect(
        one.file.class == other.file.class,
        "the pointer sizes or byte orders",
    );
    expect(
        first.kind == second.kind,
        "the types (object, program at fixed addresses, position-independent)",
    );
    expect(first.flags == second.flags, "the machine flags");
    expect(
        first.ident.os_abi == second.ident.os_abi,
        "the operating systems",
    );
    expect(
        one.file.stack_flags == other.file.stack_flags,
        "the stack permissions",
    );
}

/// Compares the generations of the entry tables: a runtime cannot read a table of mixed
/// generations.
fn generations(one: &ParsedHost<'_>, other: &ParsedHost<'_>, found: &mut Differences) {
    let sizes = |half: &ParsedHost<'_>| -> BTreeSet<(String, Option<u64>)> {
        let tables = half.registered.tables.iter();
        // After a relocatable link a table's name ends with a tag.
        let plain = |name: &str| {
            name.rsplit_once("entries")
                .map_or(name.to_owned(), |(start, _)| format!("{start}entries"))
        };
        tables
            .map(|table| (plain(&table.section), table.entry_size))
            .collect()
    };
    let (first, second) = (sizes(one), sizes(other));
    // A file without a table has device code of another kind, or none. The comparison of sections
    // reports that.
    if first == second || first.is_empty() || second.is_empty() {
        return;
    }
    let description = |half: &ParsedHost<'_>, sizes: &BTreeSet<(String, Option<u64>)>| {
        let each = sizes.iter().map(|(section, size)| match size {
            Some(size) => format!(
                "`{section}` with entries of {size} bytes, {}",
                release(section, *size)
            ),
            None => format!("`{section}` of an unknown release"),
        });
        let all = each.collect::<Vec<_>>().join(" and ");
        format!("{} has {all}", printable(half.name))
    };
    let is_older = first
        .iter()
        .chain(&second)
        .any(|(section, _)| section != offload_sections::ENTRIES);
    let what = if is_older {
        "older entry table"
    } else {
        "entry table"
    };
    let what = format!(
        "{what}: {}; {}",
        description(one, &first),
        description(other, &second)
    );
    let remedy = Some("compile every build with the same LLVM version");
    found.add(Difference {
        remedy,
        ..Difference::of_file(what)
    });
}

/// The LLVM releases that write entries of this size.
fn release(section: &str, entry_size: u64) -> &'static str {
    let narrow = generation_of_entry(entry_size) == Some(Generation::Llvm15);
    match section == offload_sections::ENTRIES {
        true => "as in LLVM 21 and later",
        false if narrow => "as in LLVM 14 to 19",
        false => "as in LLVM 20",
    }
}

/// Whether a section is excluded from the comparison, as described at the top of this file.
fn is_left_out(section: &Section<'_>, is_object: bool) -> bool {
    let header = &section.header;
    let by_name = NOT_COMPARED
        .iter()
        .any(|start| section.key.name.starts_with(start.as_bytes()));
    let by_type = matches!(
        header.kind,
        elf::SHT_NULL
            | elf::SHT_SYMTAB
            | elf::SHT_SYMTAB_SHNDX
            | SHT_LLVM_ADDRSIG
            | SHT_LLVM_CALL_GRAPH_PROFILE
    ) || header.kind == elf::SHT_STRTAB && !header.is_allocated();
    by_name || by_type || !is_object && !header.is_allocated()
}

// Differences between the host halves of two builds, for messages: by section and symbol, with a
// remedy.

/// Limit on reported differences. One change in a source may cause a thousand.
const MOST_DIFFERENCES: usize = 20;

/// A difference between the host halves of two builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The section; empty for a difference of the whole file.
    pub(crate) section: String,
    /// The symbol, and the offset in it in bytes.
    pub(crate) symbol: Option<(String, u64)>,
    /// The description.
    pub(crate) what: String,
    /// The change that makes both builds match, if known.
    pub(crate) remedy: Option<&'static str>,
}

impl Difference {
    /// A difference of the whole file.
    fn of_file(what: String) -> Self {
        Difference {
            section: String::new(),
            symbol: None,
            what,
            remedy: None,
        }
    }
}

/// Displayed as `.text: main+0x12: …`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.section.is_empty() {
            write!(f, "{}: ", self.section)?;
        }
        match &self.symbol {
            Some((name, 0)) if !name.is_empty() => write!(f, "{name}: ")?,
            Some((name, within)) => write!(f, "{name}+{within:#x}: ")?,
            None => {}
        }
        f.write_str(&self.what)?;
        if let Some(remedy) = self.remedy {
            write!(f, " ({remedy})")?;
        }
        Ok(())
    }
}

/// The symbols of a file, sorted by section and address, to name locations.
#[derive(Debug)]
struct Names<'d> {
    /// Section, value and name, sorted.
    symbols: Vec<(usize, u64, &'d [u8])>,
}

impl<'d> Names<'d> {
    fn of(file: &HostFile<'d>) -> Self {
        let named = |symbol: &&Symbol<'_>| {
            !symbol.name.is_empty()
                && !matches!(
                    symbol.kind(),
                    elf::STT_SECTION | elf::STT_FILE | elf::STT_TLS
                )
        };
        let all = file
            .symbols
            .iter()
            .chain(&file.dynamic_symbols)
            .filter(named);
        let mut symbols: Vec<_> = all
            .filter_map(|symbol| Some((symbol.section?, symbol.value, symbol.name)))
            .collect();
        symbols.sort();
        Names { symbols }
    }

    /// The last symbol at or before a location, and the distance from it. `value` is an offset in a
    /// section of an object, or an address in a program.
    fn at(&self, section: usize, value: u64) -> Option<(String, u64)> {
        let after = self
            .symbols
            .partition_point(|(of, at, _)| (*of, *at) <= (section, value));
        let (of, at, name) = self.symbols.get(after.checked_sub(1)?)?;
        (*of == section).then(|| (printable_name(name), value - at))
    }
}

/// Collects differences.
#[derive(Debug, Default)]
struct Differences {
    found: Vec<Difference>,
    more: usize,
}

impl Differences {
    fn add(&mut self, difference: Difference) {
        if self.found.len() < MOST_DIFFERENCES {
            self.found.push(difference)
        } else {
            self.more += 1
        }
    }

    /// Adds a difference in `section` without a symbol.
    fn in_section(&mut self, section: String, what: String) {
        self.add(Difference {
            section,
            symbol: None,
            what,
            remedy: None,
        });
    }

    /// Adds a difference of the symbol `name` in `section`.
    fn of_symbol(&mut self, section: String, name: &[u8], what: String, remedy: Option<Remedy>) {
        self.add(Difference {
            section,
            symbol: Some((printable_name(name), 0)),
            what,
            remedy,
        });
    }

    /// Number of differences, reported or not.
    fn count(&self) -> usize {
        self.found.len() + self.more
    }

    /// The reported differences. The last one counts the others, if any.
    fn finish(mut self) -> Vec<Difference> {
        if self.more > 0 {
            self.found.push(Difference::of_file(format!(
                "and {} more differences",
                self.more
            )));
        }
        self.found
    }
}
