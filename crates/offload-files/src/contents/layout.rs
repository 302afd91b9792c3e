//! Attribution of each byte of a file to an item, once, so that the numbers add up to the size of
//! the file. The walk records the range of each item (`record`); `elf` and `coff` find the
//! items inside of objects and images; `assign` attributes each byte to the innermost item that
//! covers it; `finish` combines the results, on all cores.
//!
//! File bytes and uncompressed bytes are counted separately. An item in compressed data gets a
//! share of the compressed bytes in proportion to its uncompressed size. This is an estimate,
//! because the data is compressed as a whole.

mod coff;
mod elf;
pub(super) mod finish;
pub(super) mod record;

use std::cmp::{self, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use offld_system::io::file_slice::FileSlice;
use offld_system::threads::lock;

/// Limit of the names, symbol tables and function code of a file together, as a multiple of the
/// file size. Compilers let some names and functions share their bytes. Without the limit, a file
/// in which all of them overlap would take unlimited time and memory.
pub(super) const SHARING: u64 = 8;

/// Purpose of bytes.
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
    /// Properties of kernels for the runtime or driver.
    Attributes,
    /// Symbol tables, names, hash tables and similar.
    Symbols,
    /// Relocations.
    Relocations,
    /// Debug information.
    Debug,
    /// Notes.
    Notes,
    /// Data that registers device code with a runtime.
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
    /// Bytes of containers themselves: headers, tables, and the padding between images.
    Container,
    /// Alignment of sections, and bytes that no section covers.
    Padding,
    /// Files without code in an archive or a wheel.
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

    /// Its index in the list of all names; none for no name.
    pub(crate) fn place(self) -> Option<usize> {
        (self != Name::NONE).then_some(self.0 as usize)
    }
}

/// List of names without duplicates, because the images of a library repeat the same kernels.
#[derive(Default)]
pub struct Names {
    known: Mutex<Known>,
    /// The number of containers so far.
    containers: AtomicU64,
}

#[derive(Default)]
struct Known {
    places: HashMap<Arc<str>, u32, Xxh3DefaultBuilder>,
    list: Vec<Arc<str>>,
}

impl Names {
    /// Adds the name in these bytes, if it is new. Invalid UTF-8 is replaced.
    pub(crate) fn of(&self, bytes: &[u8]) -> Name {
        let text = String::from_utf8_lossy(bytes);
        if text.is_empty() {
            return Name::NONE;
        }
        let mut known = lock(&self.known);
        if let Some(&place) = known.places.get(&*text) {
            return Name(place + 1);
        }
        // A file has fewer names than `u32::MAX`, because they all fit into memory.
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

    /// Returns a number for a container, different from that of every other container.
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

    /// The index of the image at this position of a list.
    pub(crate) fn of(place: usize) -> ImageIndex {
        ImageIndex(u32::try_from(place).unwrap_or(u32::MAX))
    }

    /// The position in the list.
    pub(crate) fn place(self) -> Option<usize> {
        (self != ImageIndex::NONE).then_some(self.0 as usize)
    }

    /// The index after `first` other images were inserted at the start of the list.
    pub(crate) fn after(self, first: usize) -> ImageIndex {
        self.place()
            .map_or(ImageIndex::NONE, |place| ImageIndex::of(place + first))
    }
}

/// The items that bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Label {
    /// The purpose of the bytes.
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

/// A group of bytes with the same label.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaf {
    /// Their label.
    pub label: Label,
    /// The number of bytes in the file.
    pub file: u64,
    /// The number of bytes after decompression.
    pub inflated: u64,
}

/// A device image, with the properties that size reports show.
#[derive(Debug, Clone)]
pub(crate) struct SizedImage {
    /// The programming models it is for, joined by commas.
    pub kind: Name,
    /// The architecture, as in the container or the image.
    pub arch: Name,
    /// The triple.
    pub triple: Name,
    /// The processor or target id, as in the container or the image.
    pub target: Name,
    /// The format by its bytes, as in [`super::report::Image::format`].
    pub format: &'static str,
    /// The location in the file, for messages: members, section, container.
    pub place: String,
    /// Its uncompressed size.
    pub size: u64,
    /// The container that holds it. The images of one container come from one translation unit,
    /// unless they were linked together.
    container: u64,
    /// The functions in its code.
    pub functions: Vec<FunctionCode>,
    /// A digest of the whole image ([`super::bytes_of::quick_digest`]), if it was decompressed.
    pub digest: Option<u128>,
    /// Its bytes, if the file has them uncompressed.
    pub piece: Option<FileSlice>,
    /// The translation units in its symbols.
    units: Vec<Name>,
}

/// The code of a kernel or device function in an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FunctionCode {
    /// Its name, mangled.
    pub name: Name,
    /// The offset of its code in the image.
    pub offset: u64,
    /// The size of its code.
    pub size: u64,
    /// The digest of the code, if the image was decompressed.
    pub digest: Option<u128>,
}

/// The label of every byte of a file.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    /// The size of the file; for a thin archive, including the files of its members.
    pub size: u64,
    /// All bytes: the sum of `file` is `size`.
    pub leaves: Vec<Leaf>,
    /// The images.
    pub images: Vec<SizedImage>,
    /// Containers that are not compressed but could be.
    pub uncompressed: Vec<Uncompressed>,
}

/// A container that could be compressed.
#[derive(Debug, Clone)]
pub(crate) struct Uncompressed {
    /// Its format.
    pub container: &'static str,
    /// Its size.
    pub size: u64,
    /// A sample of its bytes, from the middle.
    pub sample: FileSlice,
}

// Assignment of every byte to the deepest claim that covers it. Bytes without a claim go to a
// default receiver.

/// A claim to the bytes from `start` to `end`. If two claims cover a byte, the deeper one gets it.
/// At equal depth, the claim that starts first gets it, and then the earlier one in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim<T> {
    start: u64,
    end: u64,
    depth: u32,
    /// The receiver of the bytes.
    to: T,
}

/// A claim in the heap. The greatest one gets the bytes.
#[derive(PartialEq, Eq)]
struct Active {
    depth: u32,
    start: Reverse<u64>,
    order: Reverse<usize>,
}

impl Ord for Active {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        (self.depth, self.start, self.order).cmp(&(other.depth, other.start, other.order))
    }
}

impl PartialOrd for Active {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns how many of `size` bytes each receiver gets. `rest` gets the bytes without a claim.
/// Bytes of claims past the end do not count. The numbers add up to `size`, and receivers without
/// bytes are omitted. The result is in the order of the first bytes.
fn assign<T: Copy + Eq + Hash>(size: u64, mut claims: Vec<Claim<T>>, rest: T) -> Vec<(T, u64)> {
    claims.retain(|claim| claim.start < claim.end && claim.start < size);
    claims.sort_by_key(|claim| claim.start);
    let mut shares = Shares {
        places: HashMap::new(),
        list: Vec::new(),
    };
    let mut active: BinaryHeap<Active> = BinaryHeap::new();
    let (mut at, mut next) = (0, 0);
    while at < size {
        while let Some(claim) = claims.get(next).filter(|claim| claim.start <= at) {
            active.push(Active {
                depth: claim.depth,
                start: Reverse(claim.start),
                order: Reverse(next),
            });
            next += 1;
        }
        let starts = claims.get(next).map_or(size, |claim| claim.start);
        while active
            .peek()
            .is_some_and(|top| claims[top.order.0].end <= at)
        {
            active.pop();
        }
        let (to, end) = match active.peek() {
            Some(top) => (
                claims[top.order.0].to,
                claims[top.order.0].end.min(starts).min(size),
            ),
            None => (rest, starts),
        };
        shares.add(to, end - at);
        at = end;
    }
    shares.list
}

struct Shares<T> {
    places: HashMap<T, usize>,
    list: Vec<(T, u64)>,
}

impl<T: Copy + Eq + Hash> Shares<T> {
    fn add(&mut self, to: T, bytes: u64) {
        // Neighbouring bytes mostly go to the same receiver.
        if let Some(last) = self.list.last_mut().filter(|last| last.0 == to) {
            last.1 += bytes;
            return;
        }
        match self.places.get(&to) {
            Some(&place) => self.list[place].1 += bytes,
            None => {
                self.places.insert(to, self.list.len());
                self.list.push((to, bytes));
            }
        }
    }
}

/// Divides `total` in proportion to `weights`, so that the parts add up to `total`. Each part is
/// rounded down, and those with the largest remainders get one more. If all weights are zero,
/// everything goes to the first.
fn apportion(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let mut parts = vec![0; weights.len()];
    if sum == 0 {
        if let Some(first) = parts.first_mut() {
            *first = total;
        }
        return parts;
    }
    let mut rests: Vec<(Reverse<u128>, usize)> = Vec::with_capacity(weights.len());
    let mut left = total;
    for (index, weight) in weights.iter().enumerate() {
        let share = u128::from(total) * u128::from(*weight);
        // A share is not above the total.
        parts[index] = u64::try_from(share / sum).unwrap_or(total);
        left -= parts[index];
        rests.push((Reverse(share % sum), index));
    }
    let more = usize::try_from(left).unwrap_or_default();
    if more > 0 && more < rests.len() {
        rests.select_nth_unstable(more);
    }
    rests
        .iter()
        .take(more)
        .for_each(|(_, index)| parts[*index] += 1);
    parts
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn claim(start: u64, end: u64, depth: u32, to: char) -> Claim<char> {
        Claim {
            start,
            end,
            depth,
            to,
        }
    }

    #[test]
    fn the_deepest_gets_a_byte_and_of_equals_the_first() {
        let claims = vec![
            claim(0, 10, 1, 'a'),
            claim(2, 6, 2, 'b'),
            claim(4, 8, 2, 'c'),
            claim(9, 40, 1, 'd'),
            claim(5, 5, 9, 'e'),
        ];
        assert_eq!(
            assign(20, claims, '-'),
            [('a', 4), ('b', 4), ('c', 2), ('d', 10)]
        );
        assert_eq!(
            assign(3, vec![claim(1, 2, 0, 'a'), claim(7, 9, 0, 'b')], '-'),
            [('-', 2), ('a', 1)]
        );
        assert_eq!(assign(0, vec![claim(0, 2, 0, 'a')], '-'), []);
    }

    #[test]
    fn what_is_divided_adds_up_and_the_largest_remainders_get_more() {
        assert_eq!(apportion(10, &[1, 1, 1]).iter().sum::<u64>(), 10);
        assert_eq!(apportion(10, &[5, 4, 1]), [5, 4, 1]);
        assert_eq!(apportion(3, &[10, 19, 1]), [1, 2, 0]);
        assert_eq!(apportion(7, &[0, 0]), [7, 0]);
        assert_eq!(
            apportion(u64::MAX, &[u64::MAX, u64::MAX])
                .iter()
                .map(|part| u128::from(*part))
                .sum::<u128>(),
            u128::from(u64::MAX)
        );
    }

    proptest! {
        #[test]
        fn each_byte_goes_where_a_painter_would_put_it(
            size in 0u64..80,
            claims in vec((0u64..100, 0u64..100, 0u32..4, 0u8..5), 0..12),
        ) {
            let claims: Vec<Claim<u8>> = claims.into_iter().map(|(start, end, depth, to)| Claim { start, end, depth, to }).collect();
            let mut wanted = [0u64; 6];
            for byte in 0..size {
                let over = |claim: &&Claim<u8>| claim.start <= byte && byte < claim.end;
                let mut ordered: Vec<&Claim<u8>> = claims.iter().filter(over).collect();
                ordered.sort_by_key(|claim| (Reverse(claim.depth), claim.start));
                wanted[ordered.first().map_or(5, |claim| usize::from(claim.to))] += 1;
            }
            let mut got = [0u64; 6];
            for (to, bytes) in assign(size, claims, 5) {
                got[usize::from(to)] += bytes;
            }
            prop_assert_eq!(got, wanted);
        }

        #[test]
        fn parts_add_up(total in any::<u64>(), weights in vec(any::<u64>(), 1..40)) {
            let parts = apportion(total, &weights);
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(total));
        }
    }
}
