//! Digests of the code that kernels run. Two builds of a kernel with equal digests do the same.
//!
//! A digest covers the kernel, every function and constant that it reaches, and the names of the
//! variables that it uses. It leaves out everything that depends on the place of these parts in the
//! image: their addresses, their order, other kernels, build IDs, times, and debug information.
//!
//! An ELF image is a map: regions of bytes, symbols, and references from one byte to another. A
//! kernel is a graph of pieces of the map, each from one symbol or referenced address to the next.
//! Its digest visits them in the order in which they refer to each other.

mod amdgpu;
mod cubin;
mod ptx;
mod spirv;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use object::Endianness;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader};
use xxhash_rust::xxh3::Xxh3;

use crate::error::Error;
use crate::magic::{ByteKind, byte_kind};
use crate::stable_names::without_file_ids;

/// The digest of what a kernel runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeDigest(pub u128);

/// Returns the digest of each kernel of `image`, by the kernel's name: of an ELF file for a GPU,
/// of PTX, or of SPIR-V. Other images have no digests.
///
/// # Errors
/// The image is damaged.
pub fn digests(image: &[u8]) -> Result<HashMap<String, CodeDigest>, Error> {
    match byte_kind(image, false) {
        ByteKind::Ptx => return Ok(ptx::digests(image)),
        ByteKind::Spirv => return Ok(spirv::digests(image)),
        _ => {}
    }
    let file = match ElfFile64::<Endianness>::parse(image) {
        Ok(file) => file,
        // GPUs have 64-bit images.
        Err(_) => return Ok(HashMap::new()),
    };
    let digests = match file.elf_header().e_machine(file.endian()) {
        elf::EM_AMDGPU => amdgpu::digests(&file),
        elf::EM_CUDA => cubin::digests(&file),
        _ => return Ok(HashMap::new()),
    };
    digests.map_err(Error::malformed)
}

/// The number of pieces that the digest of one kernel visits at most. A damaged image could have
/// many kernels that each reach everything.
const MOST_PIECES: usize = 1 << 16;

/// The contents of an image by address, without what its file says about symbols and sections.
#[derive(Default)]
struct Map<'a> {
    /// By start; disjoint.
    regions: BTreeMap<u64, Region<'a>>,
    /// By start.
    symbols: BTreeMap<u64, Symbol<'a>>,
    /// Referenced addresses that no symbol covers.
    starts: BTreeSet<u64>,
    /// By the address of the bytes that refer to something.
    links: BTreeMap<u64, Link<'a>>,
}

/// Bytes with consecutive addresses: a section.
struct Region<'a> {
    /// The bytes; fewer than `size` for memory without contents.
    bytes: &'a [u8],
    size: u64,
    is_code: bool,
}

/// A symbol with a size.
struct Symbol<'a> {
    size: u64,
    /// The name, if it is what a variable is known by. The names of functions do not matter.
    name: Option<&'a [u8]>,
}

/// A reference.
struct Link<'a> {
    /// The number of bytes at its address that depend on places.
    hidden: u64,
    to: Target<'a>,
    /// The type of the relocation, or the bits of the hidden bytes that do not depend on places.
    kind: u128,
}

#[derive(Clone, Copy)]
enum Target<'a> {
    /// An address of the map.
    Address(u64),
    /// A symbol that another image or the runtime defines, and the number added to it.
    Name(&'a [u8], i64),
    /// All bytes of the region that starts at an address.
    Region(u64),
    /// Further bytes of another reference.
    Rest,
}

/// A piece of an image, without places.
#[derive(Default)]
struct Piece {
    digest: u128,
    /// The numbers of the pieces that it refers to, in order: in a map, their starts.
    targets: Vec<u64>,
}

impl<'a> Map<'a> {
    fn add_region(&mut self, start: u64, region: Region<'a>) {
        if region.size > 0 {
            self.regions.insert(start, region);
        }
    }

    /// Adds a symbol. Of several at one address, the last with a name stays.
    fn add_symbol(&mut self, start: u64, size: u64, name: Option<&'a [u8]>) {
        if size == 0 {
            return;
        }
        let known = self
            .symbols
            .entry(start)
            .or_insert(Symbol { size, name: None });
        known.size = known.size.max(size);
        known.name = name.or(known.name);
    }

    /// The number in the eight bytes at the address.
    fn number_at(&self, address: u64) -> Option<u64> {
        let (start, region) = self.region_of(address)?;
        let at = usize::try_from(address - start).ok()?;
        Some(u64::from_le_bytes(*region.bytes.get(at..)?.first_chunk()?))
    }

    fn add_link(&mut self, at: u64, link: Link<'a>) {
        if let Target::Address(to) = link.to
            && self.symbol_over(to).is_none()
        {
            self.starts.insert(to);
        }
        self.links.insert(at, link);
    }

    /// The region with the address, and its start.
    fn region_of(&self, address: u64) -> Option<(u64, &Region<'a>)> {
        let (start, region) = self.regions.range(..=address).next_back()?;
        (address - start < region.size).then_some((*start, region))
    }

    /// The symbol whose bytes include the address, and its start.
    fn symbol_over(&self, address: u64) -> Option<(u64, &Symbol<'a>)> {
        let (start, symbol) = self.symbols.range(..=address).next_back()?;
        (address - start < symbol.size).then_some((*start, symbol))
    }

    /// The piece with the address: its addresses, within one region.
    fn piece_at(&self, address: u64) -> Option<Range<u64>> {
        let (region_start, region) = self.region_of(address)?;
        let region_end = region_start.saturating_add(region.size);
        if let Some((start, symbol)) = self.symbol_over(address) {
            let end = start.saturating_add(symbol.size).min(region_end);
            return Some(start.max(region_start)..end);
        }
        // The bytes from the last symbol or referenced address to the next one.
        let after_symbol = self
            .symbols
            .range(..=address)
            .next_back()
            .map(|(start, symbol)| start.saturating_add(symbol.size));
        let start = [
            after_symbol,
            self.starts.range(..=address).next_back().copied(),
        ];
        let start = start.into_iter().flatten().max().unwrap_or(region_start);
        let next = [
            self.symbols
                .range(address.saturating_add(1)..)
                .next()
                .map(|(start, _)| *start),
            self.starts
                .range(address.saturating_add(1)..)
                .next()
                .copied(),
        ];
        let end = next.into_iter().flatten().min().unwrap_or(region_end);
        Some(start.max(region_start)..end.min(region_end))
    }

    /// The digest of everything that the pieces at `roots` reach. `digests`: those of this map.
    fn digest(&self, digests: &mut Digests<'_>, roots: &[u64]) -> CodeDigest {
        let starts = roots.iter().filter_map(|root| self.piece_at(*root));
        let mut starts: Vec<u64> = starts.map(|piece| piece.start).collect();
        starts.dedup();
        digests.of(&starts)
    }

    /// The piece that starts at an address.
    fn piece_from(&self, start: u64) -> Piece {
        self.piece(&self.piece_at(start).unwrap_or(start..start))
    }

    /// Digests the bytes of a piece with its references.
    fn piece(&self, range: &Range<u64>) -> Piece {
        let mut hash = Xxh3::new();
        let mut targets = Vec::new();
        let (region_start, region) = match self.region_of(range.start) {
            Some(found) => found,
            None => {
                return Piece { digest: 0, targets };
            }
        };
        let bytes = |from: u64, to: u64| {
            let at = |address: u64| {
                let at = usize::try_from(address.saturating_sub(region_start));
                at.unwrap_or(usize::MAX).min(region.bytes.len())
            };
            region
                .bytes
                .get(at(from)..at(to.max(from)))
                .unwrap_or_default()
        };
        let symbol = self.symbol_over(range.start);
        match symbol.and_then(|(_, symbol)| symbol.name) {
            Some(name) => add_name(&mut hash, name),
            None => hash.update(&[0]),
        }
        let end = match symbol {
            Some(_) => range.end,
            // Alignment decides the size of the padding.
            None if region.is_code => {
                range.start + amdgpu::without_padding(bytes(range.start, range.end)) as u64
            }
            None => range.end,
        };
        // Memory without contents has a size alone.
        if region.bytes.is_empty() {
            hash.update(&(range.end - range.start).to_le_bytes());
        }
        let mut done = range.start;
        for (at, link) in self.links.range(range.start..end) {
            hash.update(bytes(done, *at));
            done = done.max(at.saturating_add(link.hidden));
            hash.update(b"\xfflink");
            hash.update(&link.kind.to_le_bytes());
            match link.to {
                Target::Rest => {}
                Target::Region(start) => {
                    let contents = self.regions.get(&start).map(|region| region.bytes);
                    hash.update(contents.unwrap_or_default());
                }
                Target::Name(name, addend) => {
                    add_name(&mut hash, name);
                    hash.update(&addend.to_le_bytes());
                }
                Target::Address(to) => match self.piece_at(to) {
                    Some(piece) => {
                        hash.update(&(to - piece.start).to_le_bytes());
                        targets.push(piece.start);
                    }
                    None => hash.update(b"nowhere"),
                },
            }
        }
        hash.update(bytes(done, end));
        Piece {
            digest: hash.digest128(),
            targets,
        }
    }
}

/// The digests of an image, whose pieces many kernels share.
struct Digests<'p> {
    /// Makes the piece with a number.
    piece: &'p dyn Fn(u64) -> Piece,
    /// The pieces so far, by number.
    pieces: HashMap<u64, Piece>,
}

impl<'p> Digests<'p> {
    fn new(piece: &'p dyn Fn(u64) -> Piece) -> Self {
        Digests {
            piece,
            pieces: HashMap::new(),
        }
    }

    /// The digest of everything that the pieces with the numbers `roots` reach.
    fn of(&mut self, roots: &[u64]) -> CodeDigest {
        let mut hash = Xxh3::new();
        let mut order: Vec<u64> = roots.to_vec();
        let mut seen: HashMap<u64, u64> = roots.iter().copied().zip(0..).collect();
        let mut next = 0;
        while let Some(&number) = order.get(next) {
            next += 1;
            let piece = self
                .pieces
                .entry(number)
                .or_insert_with(|| (self.piece)(number));
            hash.update(&piece.digest.to_le_bytes());
            for &target in &piece.targets {
                let place = *seen.entry(target).or_insert_with(|| {
                    order.push(target);
                    order.len() as u64 - 1
                });
                hash.update(&place.to_le_bytes());
            }
            if next == MOST_PIECES {
                break;
            }
        }
        CodeDigest(hash.digest128())
    }
}

/// Adds the name of a variable, without the parts that depend on the place of its source file.
fn add_name(hash: &mut Xxh3, name: &[u8]) {
    hash.update(&without_file_ids(without_suffix(name)));
    hash.update(&[0]);
}

/// `name` without the suffix that clang and LTO add to names of one file: `.static.<hash>`,
/// `.intern.<hash>`, `.llvm.<number>`, `__static__<hash>`, `__intern__<hash>`.
fn without_suffix(name: &[u8]) -> &[u8] {
    const SUFFIXES: [&[u8]; 5] = [
        b".static.",
        b".intern.",
        b".llvm.",
        b"__static__",
        b"__intern__",
    ];
    let start = |suffix: &[u8]| {
        let at = memchr::memmem::rfind(name, suffix)?;
        let (start, rest) = name.split_at_checked(at)?;
        let hash = rest.strip_prefix(suffix)?;
        hash.iter().all(u8::is_ascii_hexdigit).then_some(start)
    };
    SUFFIXES.into_iter().find_map(start).unwrap_or(name)
}
