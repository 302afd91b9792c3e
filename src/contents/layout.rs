//! What each byte of a file belongs to: every byte once, so that the numbers add up to the size of
//! the file. The walk notes which range each thing covers (`record`); `elf`, `coff` and `ptx` know
//! what is inside of objects and images; `sweep` gives each byte to the innermost thing that covers
//! it; `finish` puts everything together, on all cores.
//!
//! Bytes in the file and inflated bytes are counted apart. What is in something compressed has as
//! many bytes of the file as its share of the inflated bytes is: an estimate, since what is
//! compressed is compressed as a whole.

mod coff;
mod elf;
mod finish;
mod ptx;
mod record;
mod sweep;
mod units;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use crate::io::file_slice::FileSlice;
use crate::sys::threads::lock;

pub(super) use finish::find_units;
pub(super) use record::{Fill, Layout, LayoutPosition};

/// How many times as large as the file its names, its symbol tables and the code of its functions
/// may be together. Compilers let some names and functions share their bytes; a file in which all
/// of them do would take time and memory without end.
pub(super) const SHARING: u64 = 8;

/// What bytes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Machine code.
    Code,
    /// NVIDIA's second form of the machine code, which tools translate again (`.nv.capmerc`,
    /// `.nv.merc`).
    Mercury,
    /// Constants.
    Constants,
    /// Variables.
    Data,
    /// What the runtime or driver needs to know of kernels.
    Attributes,
    /// Symbol tables, names, hash tables and what else names things.
    Symbols,
    /// Relocations.
    Relocations,
    /// Debug information.
    Debug,
    /// Notes.
    Notes,
    /// What registers device code with a runtime.
    Registration,
    /// Headers of files, programs and sections.
    Headers,
    /// LLVM bitcode.
    Bitcode,
    /// PTX.
    Ptx,
    /// SPIR-V.
    Spirv,
    /// An image of another format, as a whole.
    Image,
    /// Containers' own bytes: headers, tables, what aligns their images.
    Container,
    /// What aligns sections, and what no section covers.
    Padding,
    /// Files in an archive or a wheel that hold no code.
    Files,
    /// Everything else.
    Other,
    /// Files and members that are not selected; these bytes are not counted.
    LeftOut,
}

impl Part {
    /// Its name in tables and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Code => "code",
            Part::Mercury => "mercury",
            Part::Constants => "constants",
            Part::Data => "data",
            Part::Attributes => "attributes",
            Part::Symbols => "symbols",
            Part::Relocations => "relocations",
            Part::Debug => "debug",
            Part::Notes => "notes",
            Part::Registration => "registration",
            Part::Headers => "headers",
            Part::Bitcode => "bitcode",
            Part::Ptx => "ptx",
            Part::Spirv => "spirv",
            Part::Image => "image",
            Part::Container => "container",
            Part::Padding => "padding",
            Part::Files => "files",
            Part::Other => "other",
            Part::LeftOut => "left out",
        }
    }
}

/// A name in [`Names`]; the default is the empty one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub(crate) struct Name(u32);

impl Name {
    /// No name.
    pub(crate) const NONE: Name = Name(0);

    /// Its place among all names; none for no name.
    pub(crate) fn place(self) -> Option<usize> {
        (self != Name::NONE).then_some(self.0 as usize)
    }
}

/// Names, each once: the images of a library have the same kernels again and again.
#[derive(Default)]
pub(crate) struct Names {
    known: Mutex<Known>,
    /// How many containers there were.
    containers: AtomicU64,
}

#[derive(Default)]
struct Known {
    places: HashMap<Arc<str>, u32, Xxh3DefaultBuilder>,
    list: Vec<Arc<str>>,
}

impl Names {
    /// The name of these bytes; what is not UTF-8 in them is replaced.
    pub(crate) fn of(&self, bytes: &[u8]) -> Name {
        let text = String::from_utf8_lossy(bytes);
        if text.is_empty() {
            return Name::NONE;
        }
        let mut known = lock(&self.known);
        if let Some(&place) = known.places.get(&*text) {
            return Name(place + 1);
        }
        // There are fewer names than bytes in memory for them.
        let place = u32::try_from(known.list.len()).unwrap_or(u32::MAX - 1);
        let text: Arc<str> = text.into();
        known.list.push(Arc::clone(&text));
        known.places.insert(text, place);
        Name(place + 1)
    }

    /// The text of a name.
    pub(crate) fn text(&self, name: Name) -> Arc<str> {
        let known = lock(&self.known);
        name.0
            .checked_sub(1)
            .and_then(|place| known.list.get(place as usize))
            .map_or_else(|| Arc::from(""), Arc::clone)
    }

    /// A number for a container, different from that of every other.
    fn container(&self) -> u64 {
        self.containers.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

/// The index of an image, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ImageIndex(u32);

impl ImageIndex {
    /// No image.
    pub(crate) const NONE: ImageIndex = ImageIndex(u32::MAX);

    /// The index of the image at this place of a list.
    pub(crate) fn of(place: usize) -> ImageIndex {
        ImageIndex(u32::try_from(place).unwrap_or(u32::MAX))
    }

    /// The place in the list.
    pub(crate) fn place(self) -> Option<usize> {
        (self != ImageIndex::NONE).then_some(self.0 as usize)
    }

    /// The index in a list that has `first` others before.
    pub(crate) fn after(self, first: usize) -> ImageIndex {
        self.place()
            .map_or(ImageIndex::NONE, |place| ImageIndex::of(place + first))
    }
}

/// What bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Label {
    /// What they are for.
    pub part: Part,
    /// The programming models of the image or container.
    pub kind: Name,
    /// The section, without the name of a kernel at its end.
    pub section: Name,
    /// The kernel or device function, mangled.
    pub kernel: Name,
    /// The translation unit.
    pub unit: Name,
    /// The member of a zip file or tar archive.
    pub member: Name,
    /// The innermost container.
    pub container: Name,
    /// The index of the image in [`Footprint::images`].
    pub image: ImageIndex,
}

/// Bytes that belong together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaf {
    /// What they belong to.
    pub label: Label,
    /// How many bytes of the file they take.
    pub file: u64,
    /// How many they are, inflated.
    pub inflated: u64,
}

/// A device image, as far as sizes are concerned.
#[derive(Debug, Clone)]
pub(crate) struct SizedImage {
    /// The programming models it is for, joined by commas.
    pub kind: Name,
    /// The architecture, as the container or the image names it.
    pub arch: Name,
    /// The triple.
    pub triple: Name,
    /// The processor or target id, as the container or the image has it.
    pub target: Name,
    /// The format by its bytes, as in [`super::report::Image::format`].
    pub format: &'static str,
    /// Where in the file it is, for people: members, section, container.
    pub place: String,
    /// Its size, inflated.
    pub size: u64,
    /// The container that it is in; those of one container are of one translation unit, where they
    /// are not linked together.
    container: u64,
    /// Its code, function by function.
    pub functions: Vec<FunctionCode>,
    /// A digest of all of it ([`super::bytes_of::quick_digest`]), where it had to be inflated.
    pub digest: Option<u128>,
    /// Its bytes, where they are in the file as they are.
    pub piece: Option<FileSlice>,
    /// The translation units that its symbols name.
    units: Vec<Name>,
}

/// The code of a kernel or device function in an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FunctionCode {
    /// Its name, mangled.
    pub name: Name,
    /// Where its code starts in the image.
    pub offset: u64,
    /// The size of its code.
    pub size: u64,
    /// The digest of the code, where the image had to be inflated.
    pub digest: Option<u128>,
}

/// What the bytes of a file belong to.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    /// The size of the file; with the files of its members for a thin archive.
    pub size: u64,
    /// All bytes: `file` of all adds up to `size`.
    pub leaves: Vec<Leaf>,
    /// The images.
    pub images: Vec<SizedImage>,
    /// Containers that are not compressed and could be: the format, the size, and the bytes.
    pub uncompressed: Vec<Uncompressed>,
}

/// A container that could be compressed.
#[derive(Debug, Clone)]
pub(crate) struct Uncompressed {
    /// Its format.
    pub container: &'static str,
    /// Its size.
    pub size: u64,
    /// Some of its bytes, from the middle.
    pub sample: FileSlice,
}
