//! Recompresses containers, and orders the code objects of a bundle before that, so that similar
//! ones are next to each other.

use std::io::Write;

use anyhow::{Context, Result};

use super::Levels;
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offload_formats::bundle::{self, Id, NewObject};
use offload_formats::bytes::u64_at;
use offload_formats::compose::{Item, Likeness, by_likeness};
use offload_formats::compressed::{Compressor, Header, Method, Options, Version};
use offload_formats::error::Malformed;
use offload_formats::gpu::AmdArch;
use offload_formats::kernels;

/// The compilers' default zstd level.
const LEVEL: i32 = 3;
/// The compilers' default zlib level.
const ZLIB_LEVEL: u32 = 6;

/// Compresses the bundle `plain` as a whole, with the format version and the method of the old
/// bundle, which has the header `header`.
pub(super) fn bundle(
    plain: &Rope,
    header: Header,
    levels: Levels,
    spool: &mut Spool,
) -> Result<Rope> {
    let usual = if header.method == Method::Zlib {
        ZLIB_LEVEL as i32
    } else {
        LEVEL
    };
    let version = Version::of(header.version).unwrap_or(Version::V3);
    let options = Options {
        version,
        method: header.method,
        level: levels.level.unwrap_or(usual),
        ..Options::default()
    };
    let progress = spool.progress();
    let packed = spool.add(|file| {
        let file = progress.counted(file);
        let mut compressor = Compressor::new(file, plain.size(), options)?;
        plain.write_to(&mut compressor)?;
        compressor.finish()?;
        Ok(())
    })?;
    Ok(packed.into())
}

/// Compresses the OffloadBinary `plain` in the form of version 3: everything after its header is
/// one stream. `method` is the method of the old binary.
pub(super) fn offload_binary(
    plain: &Rope,
    method: Method,
    levels: Levels,
    spool: &mut Spool,
) -> Result<Rope> {
    let whole = plain.clone().into_piece(spool)?;
    let head = whole.bytes().get(..48);
    let entries_at = u64_at(head.context("OffloadBinary without a header")?, 16);
    let mut head = whole
        .bytes()
        .get(..usize::try_from(entries_at)?)
        .context("entries past the end")?
        .to_vec();
    let progress = spool.progress();
    let packed = spool.add(|file| {
        let mut file = progress.counted(file);
        match method {
            Method::Zstd => {
                let mut encoder =
                    zstd::stream::write::Encoder::new(&mut file, levels.level.unwrap_or(LEVEL))?;
                encoder.set_pledged_src_size(Some(whole.size() - entries_at))?;
                encoder.include_contentsize(true)?;
                Rope::from(whole.from(entries_at)).write_to(&mut encoder)?;
                encoder.finish()?;
            }
            Method::Zlib => {
                let level = levels
                    .level
                    .and_then(|level| u32::try_from(level.clamp(1, 9)).ok())
                    .unwrap_or(ZLIB_LEVEL);
                let mut encoder =
                    flate2::write::ZlibEncoder::new(&mut file, flate2::Compression::new(level));
                Rope::from(whole.from(entries_at)).write_to(&mut encoder)?;
                encoder.finish()?;
            }
        }
        file.flush()?;
        Ok(())
    })?;
    let total = entries_at + packed.size();
    let mut set = |at: usize, value: u64| {
        head.get_mut(at..at + 8)
            .map(|field| field.copy_from_slice(&value.to_le_bytes()))
    };
    set(8, total)
        .zip(set(32, whole.size()))
        .context("OffloadBinary header too small for its sizes")?;
    let mut bytes = Rope::from(head);
    bytes.push_piece(packed);
    Ok(bytes)
}

/// Compresses `plain` into one zstd frame whose header has the uncompressed size.
pub(crate) fn zstd_frame(plain: &Rope, level: i32, spool: &mut Spool) -> Result<Rope> {
    let progress = spool.progress();
    let packed = spool.add(|file| {
        let mut encoder = zstd::stream::write::Encoder::new(progress.counted(file), level)?;
        encoder.set_pledged_src_size(Some(plain.size()))?;
        encoder.include_contentsize(true)?;
        plain.write_to(&mut encoder)?;
        encoder.finish()?.flush()?;
        Ok(())
    })?;
    Ok(packed.into())
}

/// Reorders the code objects of the bundle `plain`. Returns `None` if `plain` is not exactly one
/// bundle, if its order is already good, or if the order decides which of two code objects a device
/// gets.
///
/// # Errors
/// The bundle is damaged.
pub(super) fn sorted(plain: &FileSlice) -> Result<Option<Rope>> {
    if !bundle::is_bundle(plain.bytes()) {
        return Ok(None);
    }
    let head = bundle::read_head(plain.bytes(), plain.size()).map_err(Malformed::or_io)?;
    if head.size != plain.size() {
        return Ok(None);
    }
    let ids: Vec<Id> = head.slots.iter().map(|slot| Id::parse(&slot.id)).collect();
    let mut names = Vec::with_capacity(ids.len());
    for slot in &head.slots {
        let start = if slot.size == 0 { 0 } else { slot.offset };
        let object = plain
            .slice(start, slot.size)
            .context("a code object past the end of the bundle")?;
        // Kernel names only refine the order. If they cannot be read, the devices decide.
        names.push(
            kernels::read(object.bytes())
                .unwrap_or_default()
                .into_iter()
                .map(|kernel| kernel.name)
                .collect(),
        );
        object.release();
    }
    let Some(order) = better_order(&ids, &names) else {
        return Ok(None);
    };
    let items: Vec<Item<NewObject<'_>>> = order.into_iter().map(Item::Old).collect();
    let bytes = Rope::of_parts(plain, bundle::compose(plain.bytes(), &items)?, [])?;
    // Nothing outside of a compressed stream points into it.
    Ok(Some(bytes))
}

/// An order of the code objects with these ids and kernels in which similar ones are next to each
/// other and those of the host are first. Returns `None` if that is the current order, or if it
/// would swap two code objects that suit the same device.
fn better_order(ids: &[Id], names: &[Vec<String>]) -> Option<Vec<usize>> {
    let is_host = |place: &usize| ids.get(*place).is_some_and(|id| id.kind == "host");
    let (mut order, devices): (Vec<usize>, Vec<usize>) = (0..ids.len()).partition(is_host);
    let kernels: Vec<Vec<&str>> = names
        .iter()
        .map(|names| names.iter().map(String::as_str).collect())
        .collect();
    let likeness = |place: &usize| {
        let id = ids.get(*place)?;
        let kernels = kernels.get(*place).map(Vec::as_slice).unwrap_or_default();
        // LLVM appends a dash to the three components of AMD's triple.
        Some(Likeness {
            triple: id.triple.trim_end_matches('-'),
            target: &id.target_id,
            kernels,
        })
    };
    let images: Vec<Likeness<'_>> = devices.iter().filter_map(likeness).collect();
    order.extend(
        by_likeness(&images)
            .into_iter()
            .filter_map(|at| devices.get(at).copied()),
    );
    let change_places = |(one, other): (&usize, &usize)| match (ids.get(*one), ids.get(*other)) {
        (Some(first), Some(second)) => {
            one < other || is_host(one) || is_host(other) || are_apart(first, second)
        }
        _ => false,
    };
    let pairs = order
        .iter()
        .enumerate()
        .flat_map(|(at, one)| order.iter().skip(at + 1).map(move |other| (one, other)));
    let (is_allowed, is_new) = (pairs.into_iter().all(change_places), !order.is_sorted());
    (is_allowed && is_new && order.len() == ids.len()).then_some(order)
}

/// Whether no device can use code objects of both ids: both are for AMD architectures, or families
/// of them, that have no architecture in common.
fn are_apart(one: &Id, other: &Id) -> bool {
    fn arch(id: &Id) -> Option<AmdArch<'_>> {
        let named = AmdArch::of_triple(&id.triple)?;
        Some(AmdArch::of_processor(&id.target_id).unwrap_or(named))
    }
    matches!((arch(one), arch(other)), (Some(one), Some(other)) if !one.agrees(&other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of code objects with these ids, each with one kernel of this name.
    fn order(objects: &[(&str, &str)]) -> Option<Vec<usize>> {
        let ids: Vec<Id> = objects.iter().map(|(id, _)| Id::parse(id)).collect();
        let names: Vec<Vec<String>> = objects
            .iter()
            .map(|(_, kernel)| vec![(*kernel).to_owned()])
            .collect();
        better_order(&ids, &names)
    }

    fn of_targets(targets: &[&str]) -> Option<Vec<usize>> {
        let ids: Vec<String> = targets
            .iter()
            .map(|target| format!("hipv4-amdgcn-amd-amdhsa--{target}"))
            .collect();
        order(&ids.iter().map(|id| (id.as_str(), "k")).collect::<Vec<_>>())
    }

    #[test]
    fn code_objects_of_one_generation_are_adjacent() {
        assert_eq!(
            of_targets(&["gfx906", "gfx1100", "gfx90a", "gfx1030", "gfx1101"]),
            Some(vec![0, 2, 1, 4, 3])
        );
        assert_eq!(of_targets(&["gfx906", "gfx90a", "gfx1100"]), None);
        assert_eq!(
            of_targets(&["gfx9-generic", "gfx1100", "gfx90a"]),
            Some(vec![0, 2, 1])
        );
        assert_eq!(of_targets(&[]), None);
    }

    #[test]
    fn code_objects_with_the_same_kernels_are_adjacent() {
        let id = |target: &str| format!("hipv4-amdgcn-amd-amdhsa--{target}");
        let ids = [id("gfx906"), id("gfx908"), id("gfx90a")];
        let [one, two, three] = &ids;
        assert_eq!(
            order(&[(one, "a"), (two, "b"), (three, "a")]),
            Some(vec![0, 2, 1])
        );
    }

    #[test]
    fn the_host_is_first() {
        let (host, device) = (
            "host-x86_64-unknown-linux-gnu-",
            "hipv4-amdgcn-amd-amdhsa--gfx90a",
        );
        assert_eq!(order(&[(device, "k"), (host, "k")]), Some(vec![1, 0]));
        assert_eq!(order(&[(host, "k"), (device, "k")]), None);
    }

    #[test]
    fn code_objects_for_one_device_keep_their_order() {
        // SPIR-V runs on every architecture, and a target without features serves those with any
        // feature.
        let spirv = "hip-spirv64-amd-amdhsa--amdgcnspirv";
        let id = |target: &str| format!("hipv4-amdgcn-amd-amdhsa--{target}");
        let (one, other) = (id("gfx906"), id("gfx90a"));
        assert_eq!(order(&[(&one, "k"), (spirv, "k"), (&other, "k")]), None);
        assert_eq!(of_targets(&["gfx90a", "gfx908", "gfx90a:xnack+"]), None);
        // NVIDIA code for one architecture also runs on others, and CPU code runs on any CPU that
        // has its features.
        let (cuda, cpu) = (
            "cuda-nvptx64-nvidia-cuda--sm_80",
            "openmp-x86_64-unknown-linux-gnu-",
        );
        assert_eq!(
            order(&[
                (cuda, "a"),
                (cpu, "a"),
                ("cuda-nvptx64-nvidia-cuda--sm_90", "a")
            ]),
            None
        );
    }
}
