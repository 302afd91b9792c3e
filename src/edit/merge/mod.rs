//! Merging builds of one source that were each compiled for other devices: the proof that this can
//! be done, the plan, and the file.
//!
//! [`differences`] goes through all builds at once (`lockstep`). [`compare_hosts`] compares
//! the host halves of two files, everything but their device code (`device`): objects section by
//! section (`objects`), programs and shared libraries so that an address counts for what stands
//! there (`linked`), since device code of another size moves everything behind it. `place_names`
//! knows names that tell a place and no difference. [`check_images`] puts the images of all builds
//! together: which are taken, in which order. [`join`] makes the merged file of that.
//!
//! Not compared is what does not change what the host does, or is made anew: build ids, `.comment`,
//! offld's own note, everything about debugging (`.debug_*` as a whole, and with it the paths in
//! there), string tables and the order of symbols, what the compiler notes for linkers
//! (`.llvm_addrsig`, `.llvm.call-graph-profile`), copies of the source as bitcode (`.llvmbc`,
//! `.llvmcmd`), the names of source files among the symbols, and in programs every section that is
//! not loaded.
//!
//! What is proven of programs and libraries: every byte that differs is part of an address or a
//! distance, in a place where one can be, that leads to the same byte of the same section in both.
//! It is a proof against builds that are not of one source, and none against somebody who makes two
//! files to deceive it: what is equal is taken for equal without asking what it stands for, and
//! code is not disassembled.

mod coff_file;
mod device;
mod difference;
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
use std::ops::Range;

use anyhow::{Context, Result};
use object::elf;

use device::ranges as device_ranges;
use difference::{Difference, Differences};
use host_file::{HostFile, Section};
pub(crate) use images::{MergedUnit, check_images};
pub(crate) use join::join;
pub(crate) use lockstep::{Build, name_kinds};
use lockstep::{Location, Locations, Shape};

use crate::formats::elf::SHT_LLVM_ADDRSIG;
use crate::formats::elf::link_note;
use crate::formats::offload_entries::generation_of_entry;
use crate::formats::offload_sections;
use crate::model::{Generation, printable};
use crate::registration::read::{self, Registered};

/// The type of the section that says which functions call each other how often
/// (`SHT_LLVM_CALL_GRAPH_PROFILE`).
const SHT_LLVM_CALL_GRAPH_PROFILE: elf::SectionType = elf::SectionType(0x6fff_4c09);
/// How many names are told that differ in a place alone: all of them for one reason.
const MOST_NAMES: usize = 3;
/// How the names of sections begin that are not compared, whatever their types.
const NOT_COMPARED: [&str; 13] = [
    ".comment",
    ".note.gnu.build-id",
    link_note::SECTION,
    ".debug",
    ".zdebug",
    ".gdb_index",
    ".gnu_debug",
    ".gnu.debug",
    ".llvmbc",
    ".llvmcmd",
    // In COFF objects these two have no type of their own.
    ".llvm_addrsig",
    ".llvm.call-graph-profile",
    // Up to a page that fills the last of those which the loader makes read-only: of what it is
    // depends on where it stands.
    ".relro_padding",
];

/// Where the host halves of `builds` differ from that of the first one, each with its place and,
/// where one is known, the remedy. Nothing where they agree.
///
/// # Errors
/// A build is damaged, is of a format that cannot be merged, or of another one than the first.
pub(crate) fn differences(builds: &[Build<'_>]) -> Result<Vec<HostDifference>> {
    let mut found = Vec::new();
    compare_builds(&Locations::of(builds), &mut found)?;
    Ok(found)
}

/// A difference between two builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostDifference {
    /// Where it is and what differs.
    pub(crate) text: String,
    /// Whether the text says what makes them agree.
    pub(crate) has_remedy: bool,
}

fn compare_builds(locations: &Locations, found: &mut Vec<HostDifference>) -> Result<()> {
    let base = locations.base()?;
    match locations.shape()? {
        Shape::Same => {}
        // What is in containers is compared when they are put together.
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
                let told = |difference: Difference| HostDifference {
                    text: format!(
                        "{} differs from {}: {difference}",
                        location.place, base.place
                    ),
                    has_remedy: difference.remedy.is_some(),
                };
                found.extend(differences.into_iter().map(told));
            }
        }
        Shape::Other => {
            let differs = locations
                .all
                .iter()
                .skip(1)
                .filter(|location| !location.piece.has_bytes_of(&base.piece));
            let told = |other: &Location| HostDifference {
                text: format!(
                    "{} differs from {} and has no host half to compare; make the file the same in every build, or remove it from \
                     all builds",
                    other.place, base.place
                ),
                has_remedy: false,
            };
            found.extend(differs.map(told));
        }
    }
    Ok(())
}

/// A file, or a member of an archive, of which the host half is compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostHalf<'d> {
    /// Where it is, for people: the path, with the members of archives that it is in.
    pub(crate) name: &'d str,
    /// The whole ELF file or COFF object.
    pub(crate) data: &'d [u8],
    /// The ranges of it that hold device code or say where it is, as [`device_ranges`] has them.
    pub(crate) device: &'d [Range<u64>],
}

/// A file as it is compared.
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
            device: device::joined(half.device.to_vec()),
            registered,
        })
    }

    /// The parts of a section that belong to device code, as offsets in it. A section of which all
    /// does is one part.
    fn device_parts(&self, section: &Section<'_>) -> Vec<Range<u64>> {
        if device::is_device(section) {
            return std::iter::once(0..section.header.size).collect();
        }
        device::within(
            &self.device,
            section.header.offset,
            section.body.len() as u64,
        )
    }

    /// The names by which device code is looked up, and all other symbols.
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

/// Where the host halves of two files differ; nothing where they are the same, so that device code
/// of one can be put into the other. There may be more differences than are told, and the last one
/// says so then.
///
/// # Errors
/// A file that is damaged, or is no ELF object, program or shared library, and no COFF object.
pub(crate) fn compare_hosts(one: &HostHalf<'_>, other: &HostHalf<'_>) -> Result<Vec<Difference>> {
    let (one, other) = (ParsedHost::read(one)?, ParsedHost::read(other)?);
    let mut found = Differences::default();
    headers(&one, &other, &mut found);
    generations(&one, &other, &mut found);
    if found.count() > 0 {
        return Ok(found.finish());
    }
    // Names of other lengths move everything, so that these are all there is to say.
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

/// What the headers of the files say of the host: its processor, and what kind of file it is.
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

/// Whether the tables of entries are of one release: a runtime reads no table of two.
fn generations(one: &ParsedHost<'_>, other: &ParsedHost<'_>, found: &mut Differences) {
    let sizes = |half: &ParsedHost<'_>| -> BTreeSet<(String, Option<u64>)> {
        let tables = half.registered.tables.iter();
        // After a relocatable link a table's name has a tag at its end.
        let plain = |name: &str| {
            name.rsplit_once("entries")
                .map_or(name.to_owned(), |(start, _)| format!("{start}entries"))
        };
        tables
            .map(|table| (plain(&table.section), table.entry_size))
            .collect()
    };
    let (first, second) = (sizes(one), sizes(other));
    // Without a table it is of another kind of device code, or has none: the comparison of sections
    // says so.
    if first == second || first.is_empty() || second.is_empty() {
        return;
    }
    let shown = |half: &ParsedHost<'_>, sizes: &BTreeSet<(String, Option<u64>)>| {
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
    let what = format!("{what}: {}; {}", shown(one, &first), shown(other, &second));
    let remedy = Some("compile every build with the same LLVM version");
    found.add(Difference {
        remedy,
        ..Difference::of_file(what)
    });
}

/// The releases whose tables these are.
fn release(section: &str, entry_size: u64) -> &'static str {
    let narrow = generation_of_entry(entry_size) == Some(Generation::Llvm15);
    match section == offload_sections::ENTRIES {
        true => "as in LLVM 21 and later",
        false if narrow => "as in LLVM 14 to 19",
        false => "as in LLVM 20",
    }
}

/// Whether a section is not compared, as the head of this file says.
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
