//! Registration with the SYCL runtime: every image of every target, each with the names of its kernels
//! (docs/spec/link-driver.md 8.5). The wrapper makes the entries, as SYCL's host objects have none.

use super::ImageSection;
use super::entries::{Field, Struct};
use crate::formats::offload_binary::Image;
use crate::model::OffloadKind;

/// The section of image bytes. LLVM's wrapper puts these images into `.llvm.offloading` without a container, but readers expect
/// OffloadBinaries there: a later link would fail, and removing that section after `-r` would remove the images.
pub const IMAGE_SECTION: ImageSection = ImageSection { name: ".sycl_offloading", align: 8, listed: false };

/// The prefix of the symbols of the image with this index.
pub const PREFIX: &str = ".sycl_offloading";
/// The name of the array that lists the images.
pub const IMAGES: &str = ".sycl_offloading.device_images";
/// The name of the struct that is passed to the runtime.
pub const DESCRIPTOR: &str = ".sycl_offloading.descriptor";
/// The name of an image's array of entries.
pub const ENTRIES: &str = ".sycl_offloading.entries_arr";
/// The constructor.
pub const REGISTER: &str = "sycl.descriptor_reg";
/// The destructor.
pub const UNREGISTER: &str = "sycl.descriptor_unreg";
/// The runtime's function that takes the descriptor.
pub const REGISTER_LIB: &str = "__sycl_register_lib";
/// The runtime's function that undoes the registration.
pub const UNREGISTER_LIB: &str = "__sycl_unregister_lib";
/// The priority of both: the constructor runs before every other of the program, the destructor after every other.
pub const PRIORITY: u32 = 1;

/// `{u16 Version, u8 OffloadKind, u8 ImageKind, ptr Triple, ptr CompileOptions, ptr LinkOptions, ptr ImageStart, ptr ImageEnd,
/// ptr EntriesBegin, ptr EntriesEnd, ptr PropertiesBegin, ptr PropertiesEnd}`.
pub const DEVICE_IMAGE_TYPE: Struct = (
    "__sycl.tgt_device_image",
    &[
        Field::U16,
        Field::U8,
        Field::U8,
        Field::Pointer,
        Field::Pointer,
        Field::Pointer,
        Field::Pointer,
        Field::Pointer,
        Field::Pointer,
        Field::Pointer,
        Field::Pointer,
        Field::Pointer,
    ],
);
/// The version of device images.
pub const DEVICE_IMAGE_VERSION: u64 = 3;
/// `{u16 Version, u16 NumDeviceImages, ptr DeviceImages, ptr EntriesBegin, ptr EntriesEnd}`, the entries being null.
pub const DESCRIPTOR_TYPE: Struct =
    ("__sycl.tgt_bin_desc", &[Field::U16, Field::U16, Field::Pointer, Field::Pointer, Field::Pointer]);
/// The version of descriptors.
pub const DESCRIPTOR_VERSION: u64 = 1;

/// The start of an entry's name; the kernel's name follows.
pub const ENTRY_PREFIX: &str = ".offloading.entry.";
/// The name of the variable with a kernel's name.
pub const ENTRY_NAME: &str = ".offloading.entry_name";
/// The section of those variables.
pub const ENTRY_NAME_SECTION: &str = ".llvm.rodata.offloading";
/// The metadata that lists those variables, so that later passes do not rename the kernels.
pub const ENTRY_NAMES: &str = "llvm.offloading.symbols";
/// The version of entries.
pub const ENTRY_VERSION: u64 = 1;
/// The alignment of entries.
pub const ENTRY_ALIGN: u32 = 8;
/// The kind in entries and images.
pub const KIND: u64 = OffloadKind::Sycl as u64;

/// The names of the kernels in an image, as its OffloadBinary lists them.
pub fn kernels(image: &Image<'_>) -> Vec<String> {
    let symbols = String::from_utf8_lossy(image.get("symbols").unwrap_or_default()).into_owned();
    symbols.lines().filter(|symbol| !symbol.is_empty()).map(str::to_owned).collect()
}

/// The section of entries.
pub fn entry_section(coff: bool) -> &'static str {
    if coff { "llvm_offload_entries$OE" } else { "llvm_offload_entries" }
}
