//! What libomptarget must be handed, per generation of entry table, as plain data: names, sections, types, priorities
//! (docs/spec/link-driver.md 8.1, 8.2 and 11; docs/spec/containers.md 5.1). Nothing is emitted here; `llvm/` does, from this and
//! a `Plan`.

use super::entries::{self, Bounds, BoundsDefined, Dummy, Field, Kept, NARROW_ENTRY, Struct};
use super::{ImagePlace, ImageSection, MODULE, PlannedImage};
use crate::error::Malformed;
use crate::formats::{offload_binary, offload_sections};
use crate::model::{Generation, OffloadKind};
use std::ops::Range;

/// The name of an image's bytes; the k-th one's has a suffix (`numbered`).
pub const IMAGE: &str = ".omp_offloading.device_image";
/// The name of the array that lists the images.
pub const IMAGES: &str = ".omp_offloading.device_images";
/// The name of what the runtime is handed.
pub const DESCRIPTOR: &str = ".omp_offloading.descriptor";
/// The constructor.
pub const REGISTER: &str = ".omp_offloading.descriptor_reg";
/// What undoes it.
pub const UNREGISTER: &str = ".omp_offloading.descriptor_unreg";
/// The name of an image's target id, and the section that lists them all: readers split it at NULs. Its strings must not be
/// `unnamed_addr`: the linker would merge equal ones, and two images of one target need two strings.
pub const OFFLOAD_ARCH: (&str, &str) = ("__offload_arch", ".offload_arch_list");
/// The name of an image's info object.
pub const IMAGE_INFO: &str = ".offload_image_info";
/// The version of info objects.
pub const IMAGE_INFO_VERSION: u64 = 1;
/// The section of image bytes in what `-r` makes.
pub const RELOCATABLE_SECTION: &str = offload_sections::RELOCATABLE;

/// `{ptr ImageStart, ptr ImageEnd, ptr EntriesBegin, ptr EntriesEnd}`.
pub const DEVICE_IMAGE_TYPE: Struct = ("__tgt_device_image", &[Field::Pointer; 4]);
/// `{i32 NumDeviceImages, ptr DeviceImages, ptr HostEntriesBegin, ptr HostEntriesEnd}`.
pub const DESCRIPTOR_TYPE: Struct = ("__tgt_bin_desc", &[Field::U32, Field::Pointer, Field::Pointer, Field::Pointer]);
/// `{i32 version, i32 image_number, i32 number_images, ptr offload_arch, ptr compile_opts}`.
pub const IMAGE_INFO_TYPE: Struct = ("__tgt_image_info", &[Field::U32, Field::U32, Field::U32, Field::Pointer, Field::Pointer]);

/// How one generation registers OpenMP images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The module's name, which is its source file name too.
    pub module: &'static str,
    /// Name and fields of the entry type.
    pub entry: Struct,
    /// Where the table of entries starts and ends.
    pub bounds: Bounds,
    /// Whether image bytes are in a section that image tools look in (`image_section`).
    pub listed_images: bool,
    /// Whether offsets into images promise to stay inside them, as the oldest wrapper's do.
    pub image_inbounds: bool,
    /// The constructor's priority.
    pub priority: u32,
    /// What undoes the registration.
    pub undo: Undo,
    /// Whether an image's target id is registered too (`__tgt_register_image_info`).
    pub image_infos: bool,
}

/// What undoes a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// `atexit`, from the constructor, so that it runs before the runtime's plugins take themselves down.
    AtExit,
    /// A destructor of the constructor's priority.
    Destructor,
}

/// How `generation` registers OpenMP images on a host whose objects are COFF or ELF.
pub fn registration(generation: Generation, coff: bool) -> Registration {
    if generation == Generation::Llvm14 {
        return oldest(coff);
    }
    Registration {
        module: MODULE,
        entry: entries::entry(generation),
        bounds: entries::bounds(OffloadKind::OpenMp, generation, coff),
        listed_images: true,
        image_inbounds: false,
        priority: 101,
        undo: Undo::AtExit,
        image_infos: false,
    }
}

/// What `clang-offload-wrapper` is documented to emit. On COFF it emits the same, which cannot be linked there; this has the bounds of
/// LLVM 15, the first whose compiler puts entries between them.
fn oldest(coff: bool) -> Registration {
    let section = Generation::Llvm14.openmp_entry_section();
    let dummy = Dummy { name: "__dummy.omp_offloading.entry".to_owned(), section, align: None, kept: Kept::External };
    let by_linker = Bounds {
        start: format!("__start_{section}"),
        stop: format!("__stop_{section}"),
        array: false,
        defined: BoundsDefined::ByLinker(dummy),
    };
    Registration {
        module: "offload.wrapper.object",
        entry: ("__tgt_offload_entry", NARROW_ENTRY),
        bounds: if coff { entries::bounds(OffloadKind::OpenMp, Generation::Llvm14, true) } else { by_linker },
        listed_images: false,
        image_inbounds: true,
        priority: 1,
        undo: Undo::Destructor,
        image_infos: true,
    }
}

/// The section of images, aligned as OffloadBinaries are, and in memory their readers want them so.
pub fn image_section(relocatable: bool) -> ImageSection {
    ImageSection { name: if relocatable { RELOCATABLE_SECTION } else { offload_sections::NAME }, align: 8, listed: !relocatable }
}

/// `base`, `base.1`, `base.2`, …: LLVM's names for the first, second, third of one name.
pub fn numbered(base: &str, index: usize) -> String {
    if index == 0 { base.to_owned() } else { format!("{base}.{index}") }
}

/// `bytes` as an image in the module itself.
pub fn inline_image(bytes: Vec<u8>, offload_arch: Option<String>) -> Result<PlannedImage, Malformed> {
    let parts = parts(&bytes)?;
    Ok(PlannedImage { place: ImagePlace::Inline(bytes), parts, offload_arch })
}

/// The one part from `start` to `end`.
pub fn whole(start: u64, end: u64) -> Vec<Range<u64>> {
    Vec::from_iter(std::iter::once(start..end))
}

/// What of `bytes` the runtime is handed: of OffloadBinaries every image in them, of anything else all there is. A broken
/// OffloadBinary is an error (docs/spec/faults.md W2, W3). So is a compressed one, whose images lie nowhere in the bytes.
pub fn parts(bytes: &[u8]) -> Result<Vec<Range<u64>>, Malformed> {
    if !offload_binary::is_offload_binary(bytes) {
        return Ok(whole(0, bytes.len() as u64));
    }
    let images = offload_binary::read_all(bytes)?;
    if images.iter().any(|image| image.at == 0) {
        return Err(Malformed::new("compressed images cannot be handed over", 0));
    }
    let held = images.iter().filter(|image| !image.is_description());
    Ok(held.map(|image| image.at..image.at + image.image.len() as u64).collect())
}
