//! Registration with libomptarget for each generation of entry table, as plain data: names,
//! sections, types, priorities (docs/spec/link-driver.md 8.1, 8.2 and 11; docs/spec/containers.md
//! 5.1). `offld-llvm` emits the code from this and a `Plan`.

use super::{ImagePlace, ImageSection, MODULE, PlannedImage};
use crate::elf::edit::OLD_DUMMY;
use crate::error::Malformed;
use crate::model::{Generation, OffloadKind};
use crate::offload_binary;
use crate::offload_entries::{
    self, Bounds, BoundsDefined, Dummy, Field, NARROW_ENTRY, Retention, Struct,
};
use crate::offload_sections::{NAME, RELOCATABLE, START_PREFIX, STOP_PREFIX, entry_section};
use std::ops::Range;

/// The name of the variable with an image's bytes; the variables of further images have a suffix
/// (`numbered`).
pub const IMAGE: &str = ".omp_offloading.device_image";
/// The name of the array that lists the images.
pub const IMAGES: &str = ".omp_offloading.device_images";
/// The name of the struct that is passed to the runtime.
pub const DESCRIPTOR: &str = ".omp_offloading.descriptor";
/// The runtime's function that takes the descriptor.
pub const REGISTER_LIB: &str = "__tgt_register_lib";
/// The constructor.
pub const REGISTER: &str = ".omp_offloading.descriptor_reg";
/// The function that undoes the constructor's registration.
pub const UNREGISTER: &str = ".omp_offloading.descriptor_unreg";
/// The name of the variable with an image's target ID, and the section of all such variables, which
/// readers split at NULs. The variables must not be `unnamed_addr`: the linker would merge equal
/// strings, but two images for one target need two strings.
pub const OFFLOAD_ARCH: (&str, &str) = ("__offload_arch", ".offload_arch_list");
/// The name of an image's info object.
pub const IMAGE_INFO: &str = ".offload_image_info";
/// The version of info objects.
pub const IMAGE_INFO_VERSION: u64 = 1;

/// `{ptr ImageStart, ptr ImageEnd, ptr EntriesBegin, ptr EntriesEnd}`.
pub const DEVICE_IMAGE_TYPE: Struct = ("__tgt_device_image", &[Field::Pointer; 4]);
/// `{i32 NumDeviceImages, ptr DeviceImages, ptr HostEntriesBegin, ptr HostEntriesEnd}`.
pub const DESCRIPTOR_TYPE: Struct = (
    "__tgt_bin_desc",
    &[Field::U32, Field::Pointer, Field::Pointer, Field::Pointer],
);
/// `{i32 version, i32 image_number, i32 number_images, ptr offload_arch, ptr compile_opts}`.
pub const IMAGE_INFO_TYPE: Struct = (
    "__tgt_image_info",
    &[
        Field::U32,
        Field::U32,
        Field::U32,
        Field::Pointer,
        Field::Pointer,
    ],
);

/// The registration of OpenMP images in one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The name of the module and its source file.
    pub module: &'static str,
    /// Name and fields of the entry type.
    pub entry: Struct,
    /// The bounds of the entry table.
    pub bounds: Bounds,
    /// Whether image bytes are in the section that tools search for images (`image_section`).
    pub listed_images: bool,
    /// Whether offsets into images are marked `inbounds` in the LLVM module, as in LLVM 14.
    pub image_inbounds: bool,
    /// The constructor's priority.
    pub priority: u32,
    /// The code that undoes the registration.
    pub undo: Undo,
    /// Whether an image's target ID is registered as well (`__tgt_register_image_info`).
    pub image_infos: bool,
}

/// The code that undoes a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// A function that the constructor registers with `atexit`, so that it runs before the
    /// runtime's plugins shut down.
    AtExit,
    /// A destructor with the constructor's priority.
    Destructor,
}

/// Returns the registration of OpenMP images in `generation`. `coff` selects a host with COFF
/// instead of ELF objects.
pub fn registration(generation: Generation, coff: bool) -> Registration {
    if generation == Generation::Llvm14 {
        return llvm14_registration(coff);
    }
    Registration {
        module: MODULE,
        entry: offload_entries::entry(generation),
        bounds: offload_entries::bounds(OffloadKind::OpenMp, generation, coff),
        listed_images: true,
        image_inbounds: false,
        priority: 101,
        undo: Undo::AtExit,
        image_infos: false,
    }
}

/// Returns the registration in the documentation of `clang-offload-wrapper`. That tool emits the
/// same code on COFF, where it cannot be linked. offld uses the bounds of LLVM 15 on COFF: its
/// compiler is the first that puts entries between them.
fn llvm14_registration(coff: bool) -> Registration {
    let section = entry_section(Generation::Llvm14, OffloadKind::OpenMp);
    let dummy = Dummy {
        name: OLD_DUMMY.to_owned(),
        section,
        align: None,
        retention: Retention::Weak,
    };
    let by_linker = Bounds {
        start: format!("{START_PREFIX}{section}"),
        stop: format!("{STOP_PREFIX}{section}"),
        array: false,
        defined: BoundsDefined::ByLinker(dummy),
    };
    Registration {
        module: "offload.wrapper.object",
        entry: ("__tgt_offload_entry", NARROW_ENTRY),
        bounds: if coff {
            offload_entries::bounds(OffloadKind::OpenMp, Generation::Llvm14, true)
        } else {
            by_linker
        },
        listed_images: false,
        image_inbounds: true,
        priority: 1,
        undo: Undo::Destructor,
        image_infos: true,
    }
}

/// Returns the section of images. The alignment is that of OffloadBinaries, which their readers
/// expect in memory.
pub fn image_section(relocatable: bool) -> ImageSection {
    ImageSection {
        name: if relocatable { RELOCATABLE } else { NAME },
        align: 8,
        listed: !relocatable,
    }
}

/// Returns `base`, `base.1`, `base.2`, …: LLVM's names for values with the same name.
pub fn numbered(base: &str, index: usize) -> String {
    if index == 0 {
        base.to_owned()
    } else {
        format!("{base}.{index}")
    }
}

/// Returns `bytes` as an image in the module itself.
pub fn inline_image(
    bytes: Vec<u8>,
    offload_arch: Option<String>,
) -> Result<PlannedImage, Malformed> {
    let parts = parts(&bytes)?;
    Ok(PlannedImage {
        place: ImagePlace::Inline(bytes),
        parts,
        offload_arch,
    })
}

/// Returns a list with the single range from `start` to `end`.
pub fn whole(start: u64, end: u64) -> Vec<Range<u64>> {
    Vec::from_iter(std::iter::once(start..end))
}

/// Returns the ranges of `bytes` that are registered: every image if they are OffloadBinaries, else
/// all bytes. A damaged OffloadBinary is an error (docs/spec/faults.md W2, W3). So is a compressed
/// one, because it does not contain the uncompressed images.
pub fn parts(bytes: &[u8]) -> Result<Vec<Range<u64>>, Malformed> {
    if !offload_binary::is_offload_binary(bytes) {
        return Ok(whole(0, bytes.len() as u64));
    }
    let images = offload_binary::read_all(bytes)?;
    if images.iter().any(|image| image.at == 0) {
        return Err(Malformed::new("compressed images cannot be registered", 0));
    }
    let with_bytes = images.iter().filter(|image| !image.is_description());
    Ok(with_bytes
        .map(|image| image.at..image.at + image.image.len() as u64)
        .collect())
}
