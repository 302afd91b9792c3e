//! Containers that are compressed, written anew, and the order of a bundle's code objects before
//! that: those that are alike next to each other.

use std::io::Write;

use anyhow::{Context, Result};

use super::Levels;
use crate::error::Malformed;
use crate::formats::bundle::{self, Id, NewObject};
use crate::formats::compose::{Item, Likeness, by_likeness};
use crate::formats::compressed::{Compressor, Header, Method, Options, Version};
use crate::formats::gpu::AmdArch;
use crate::formats::{kernels, u64_at};
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::rope::Rope;

/// The level of zstd that compilers use.
const LEVEL: i32 = 3;
/// The level of zlib that compilers use.
const ZLIB_LEVEL: u32 = 6;

/// The bundle `plain`, compressed as a whole, in the version of the format and by the method that
/// the old one had, whose header is `header`.
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
    let packed = spool.add(|file| {
        let mut compressor = Compressor::new(file, plain.size(), options)?;
        plain.write_to(&mut compressor)?;
        compressor.finish()?;
        Ok(())
    })?;
    Ok(packed.into())
}

/// The OffloadBinary `plain`, compressed as those of version 3 are: all behind its header, by the
/// method that the old one had.
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
    let packed = spool.add(|file| {
        match method {
            Method::Zstd => {
                let mut encoder =
                    zstd::stream::write::Encoder::new(&mut *file, levels.level.unwrap_or(LEVEL))?;
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
                    flate2::write::ZlibEncoder::new(&mut *file, flate2::Compression::new(level));
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

/// The bundle that is all of `plain` with its code objects in a better order; none where the order
/// is good as it is, or where it decides which of two code objects a device gets.
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
        // Names only say which code objects are alike: where they cannot be read, devices do.
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
    // Nothing outside of a compressed stream points to what is in it.
    Ok(Some(bytes))
}

/// The places of the code objects with these ids and kernels in an order in which those that are
/// alike are next to each other, and those of the host first. None if that is the order they have,
/// or if two of which one device could take either would change places.
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
        // LLVM writes a dash behind the three components of AMD's triple.
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

/// Whether no device can take code objects of both ids: both are for processors of AMD, or families
/// of them, that have none in common.
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

    /// The order of code objects with these ids, of which each has one kernel of this name.
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
    fn those_of_one_generation_stand_together() {
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
    fn those_of_the_same_kernels_stand_together() {
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
    fn what_one_device_may_take_keeps_its_order() {
        // SPIR-V serves every processor, and a target without features those with any.
        let spirv = "hip-spirv64-amd-amdhsa--amdgcnspirv";
        let id = |target: &str| format!("hipv4-amdgcn-amd-amdhsa--{target}");
        let (one, other) = (id("gfx906"), id("gfx90a"));
        assert_eq!(order(&[(&one, "k"), (spirv, "k"), (&other, "k")]), None);
        assert_eq!(of_targets(&["gfx90a", "gfx908", "gfx90a:xnack+"]), None);
        // NVIDIA's code for one processor runs on others, and code for CPUs on any that has its
        // features.
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
