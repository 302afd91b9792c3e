//! Finds containers and code objects inside other data, such as programs that load device code
//! themselves and embed it with `bin2c`, `xxd -i` or `.incbin`.
//!
//! Such data has no section of its own, so only headers identify it. A candidate is accepted only
//! if its magic number, its sizes and everything that its headers refer to are valid.
//!
//! ```
//! use offload_formats::embedded::{Embedded, all};
//!
//! let module = b"\x50\xed\x55\xba without a header of a fatbinary behind it";
//! assert!(all(module).0.is_empty());
//! # let _ = |one: Embedded| (one.offset, one.size);
//! ```

#[cfg(test)]
mod tests;

use memchr::memmem::Finder;
use object::{Object, ObjectSection, ObjectSegment};

use super::containers::Kind;
use super::elf::raw::FileHeader;
use super::{bundle, compressed, fatbin, gpu, magic, offload_binary};

/// A container or code object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Embedded {
    /// The offset in the data.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
}

/// The number of bytes that are searched for all magic numbers at a time. They fit into a core's
/// cache.
const CHUNK: usize = 128 << 10;

/// The number of searched bytes per report to the caller.
const REPORT_SIZE: usize = 32 * CHUNK;

/// The limit on header checks: this many, and one more per [`BYTES_EACH`] bytes. Without a limit,
/// data in which each header leads to the next would take quadratic time.
const BASE_STEPS: u64 = 64 << 10;
const BYTES_EACH: u64 = 8;

/// Returns the containers and code objects in `data`, in order, without those inside others. The
/// flag is false if the search stopped early, because the data contains too many headers.
pub fn all(data: &[u8]) -> (Vec<Embedded>, bool) {
    search(data, |_, _| {})
}

/// Searches like [`all`], and calls `passed` with the offset and size of searched ranges, so that
/// the caller can release their pages.
pub fn search(data: &[u8], mut passed: impl FnMut(u64, u64)) -> (Vec<Embedded>, bool) {
    let magics: [&[u8]; 5] = [
        &magic::FATBIN,
        &magic::ELF,
        bundle::MAGIC,
        &magic::OFFLOAD_BINARY,
        magic::COMPRESSED_BUNDLE,
    ];
    let longest = magics
        .iter()
        .map(|magic| magic.len())
        .max()
        .unwrap_or_default();
    let finders = magics.map(Finder::new);
    let mut steps = BASE_STEPS + data.len() as u64 / BYTES_EACH;
    let (mut found, mut end) = (Vec::new(), 0);
    let mut hits: Vec<usize> = Vec::new();
    for start in (0..data.len()).step_by(CHUNK) {
        if start > 0 && start % REPORT_SIZE == 0 {
            passed((start - REPORT_SIZE) as u64, REPORT_SIZE as u64);
        }
        // A magic number that crosses the end of the chunk belongs to the chunk in which it begins.
        let chunk = data
            .get(start..data.len().min(start + CHUNK + longest - 1))
            .unwrap_or_default();
        hits.clear();
        hits.extend(
            finders
                .iter()
                .flat_map(|finder| finder.find_iter(chunk))
                .filter(|at| *at < CHUNK)
                .map(|at| start + at),
        );
        hits.sort_unstable();
        for &hit in &hits {
            let Some(rest) = data.get(hit..).filter(|_| hit >= end) else {
                continue;
            };
            let Some(left) = steps.checked_sub(1) else {
                return (found, false);
            };
            steps = left;
            if let Some(size) = whole(rest, &mut steps).filter(|size| *size > 0) {
                found.push(Embedded {
                    offset: hit as u64,
                    size,
                });
                end = usize::try_from(size).map_or(usize::MAX, |size| hit.saturating_add(size));
            }
        }
    }
    (found, true)
}

/// The size of the container or code object at the start of `data`, or `None` if it is incomplete
/// or invalid.
fn whole(data: &[u8], steps: &mut u64) -> Option<u64> {
    match Kind::of(data) {
        Some(Kind::Fatbinary) => fatbinary(data, steps),
        Some(Kind::Bundle) => whole_bundle(data, steps),
        Some(Kind::OffloadBinary) => whole_offload_binary(data, steps),
        Some(Kind::CompressedBundle) => compressed_bundle(data),
        None => code_object(data, steps),
    }
}

/// A fatbinary: its entries fill it, and the architecture of each is plausible.
fn fatbinary(data: &[u8], steps: &mut u64) -> Option<u64> {
    let size = fatbin::size(data).ok()?;
    let (entries, fault) = fatbin::entries(data.get(..usize::try_from(size).ok()?)?);
    *steps = steps.checked_sub(entries.len() as u64)?;
    let is_likely = |entry: &fatbin::Entry<'_>| {
        let number = entry
            .arch
            .trim_start_matches("sm_")
            .trim_end_matches(['a', 'f'])
            .parse::<u32>();
        matches!(number, Ok(10..=999)) && !entry.stored.is_empty()
    };
    (fault.is_none() && !entries.is_empty() && entries.iter().all(is_likely)).then_some(size)
}

/// A cubin, or an ELF file for another GPU, with all of its tables and sections.
fn code_object(data: &[u8], steps: &mut u64) -> Option<u64> {
    let (_, header) = FileHeader::read(data)
        .ok()
        .filter(|(_, header)| gpu::is_gpu(header.machine))?;
    let tables = [
        (header.phoff, header.phentsize, header.phnum),
        (header.shoff, header.shentsize, header.shnum),
    ];
    *steps = steps.checked_sub(u64::from(header.phnum) + u64::from(header.shnum))?;
    let mut size = 0;
    for (at, entry, count) in tables.into_iter().filter(|(.., count)| *count > 0) {
        size = size.max(at.checked_add(u64::from(entry) * u64::from(count))?);
    }
    let file = object::File::parse(data).ok()?;
    let sections = file.sections().filter_map(|section| section.file_range());
    for (at, len) in sections.chain(file.segments().map(|segment| segment.file_range())) {
        size = size.max(at.checked_add(len)?);
    }
    (header.shnum > 0 && size <= data.len() as u64).then_some(size)
}

/// A bundle in which each ID has a kind and a triple.
fn whole_bundle(data: &[u8], steps: &mut u64) -> Option<u64> {
    /// A bundle has one entry per target. Text that contains the magic number has an implausible
    /// count.
    const MOST_ENTRIES: u64 = 4096;
    let count = data
        .get(bundle::MAGIC.len()..)?
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))?;
    *steps = steps.checked_sub(count).filter(|_| count <= MOST_ENTRIES)?;
    let head = bundle::read_head(data, data.len() as u64).ok()?;
    let is_id = |id: &str| id.split('-').filter(|part| !part.is_empty()).count() >= 2;
    (!head.slots.is_empty() && head.slots.iter().all(|slot| is_id(&slot.id))).then_some(head.size)
}

fn whole_offload_binary(data: &[u8], steps: &mut u64) -> Option<u64> {
    let head = offload_binary::Head::read(data, 0).ok()?;
    if head.packed.is_some() {
        return Some(head.size);
    }
    let whole = data.get(..usize::try_from(head.size).ok()?)?;
    *steps = steps.checked_sub(whole.len() as u64 / BYTES_EACH)?;
    let images = offload_binary::read_all(whole).ok()?;
    images
        .iter()
        .any(|image| !image.triple().is_empty())
        .then_some(head.size)
}

/// A compressed bundle that stores its size: all versions except 1, which no runtime reads anymore.
fn compressed_bundle(data: &[u8]) -> Option<u64> {
    const ZLIB: u8 = 0x78;
    let header = compressed::Header::read(data, 0).ok()?;
    let size = header.total.filter(|total| *total <= data.len() as u64)?;
    let packed = data.get(usize::try_from(header.size).ok()?..usize::try_from(size).ok()?)?;
    let is_stream = match header.method {
        compressed::Method::Zstd => packed.starts_with(&magic::ZSTD),
        compressed::Method::Zlib => packed.first() == Some(&ZLIB),
    };
    (is_stream && header.is_likely(packed.len() as u64)).then_some(size)
}
