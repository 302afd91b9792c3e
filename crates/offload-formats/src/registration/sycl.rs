//! Registration with the SYCL runtime: every image of every target, each with the names of its
//! kernels (docs/spec/link-driver.md 8.5). LLVM 22's runtime takes structs from the wrapper, with
//! entries, because SYCL's host objects have none. From LLVM 23 on, the runtime takes the address
//! and the size of one OffloadBinary, whose images contain the names themselves.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::ImageSection;
use crate::magic;
use crate::model::{ImageKind, OffloadKind};
use crate::offload_binary::{self, Image};
use crate::offload_entries::{Field, Struct};
use crate::offload_sections;

/// The data that the runtime gets, by the LLVM release of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Registration {
    /// LLVM 22: a descriptor of the images.
    #[default]
    Llvm22,
    /// LLVM 23: an OffloadBinary, from a constructor and a destructor.
    Llvm23,
    /// LLVM 24: an OffloadBinary, from a constructor that undoes the registration with `atexit`.
    Llvm24,
}

impl Registration {
    /// Returns the registration that the runtime of LLVM `major` reads.
    pub fn of_release(major: u32) -> Self {
        match major {
            ..23 => Registration::Llvm22,
            23 => Registration::Llvm23,
            24.. => Registration::Llvm24,
        }
    }
}

/// The section of the OffloadBinary. It is the section for device code that is linked already,
/// which later links do not use as input.
pub const BINARY_SECTION: ImageSection = ImageSection {
    name: offload_sections::SYCL_BINARY,
    align: 8,
    listed: false,
};
/// The name of the variable with the OffloadBinary.
pub const BINARY: &str = ".sycl_offloading.binary";
/// The priority of the constructor in LLVM 24, which runs after the runtime's own constructors.
pub const LATER_PRIORITY: u32 = 101;
/// The key of the names of an image's kernels.
pub const SYMBOLS: &str = "symbols";

/// The section of image bytes. LLVM's wrapper puts these images into `.llvm.offloading` without a
/// container, but readers expect OffloadBinaries there: a later link would fail, and removing that
/// section after `-r` would remove the images.
pub const IMAGE_SECTION: ImageSection = ImageSection {
    name: offload_sections::SYCL_IMAGES,
    align: 8,
    listed: false,
};

/// The prefix of the symbols of an image, which also contain the image's index.
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
/// The priority of constructor and destructor: the constructor runs before all others of the
/// program, the destructor after all others.
pub const PRIORITY: u32 = 1;

/// `{u16 Version, u8 OffloadKind, u8 ImageKind, ptr Triple, ptr CompileOptions, ptr LinkOptions,
/// ptr ImageStart, ptr ImageEnd, ptr EntriesBegin, ptr EntriesEnd, ptr PropertiesBegin, ptr
/// PropertiesEnd}`.
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
/// `{u16 Version, u16 NumDeviceImages, ptr DeviceImages, ptr EntriesBegin, ptr
/// EntriesEnd}`; the entries are null.
pub const DESCRIPTOR_TYPE: Struct = (
    "__sycl.tgt_bin_desc",
    &[
        Field::U16,
        Field::U16,
        Field::Pointer,
        Field::Pointer,
        Field::Pointer,
    ],
);
/// The version of descriptors.
pub const DESCRIPTOR_VERSION: u64 = 1;

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

/// Returns the names of the kernels in an image, from its OffloadBinary. Since LLVM 23 they are in
/// a table; before, they are text with one line for each.
pub fn kernels(image: &Image<'_>) -> Vec<String> {
    let stored = image.get(SYMBOLS).unwrap_or_default();
    let names = read_table(stored)
        .unwrap_or_else(|| stored.split(|byte| matches!(byte, b'\n' | 0)).collect());
    names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

/// Whether an image lists its kernels in the form of LLVM 23 and later.
pub fn has_table(image: &Image<'_>) -> bool {
    image
        .get(SYMBOLS)
        .is_some_and(|stored| read_table(stored).is_some())
}

/// Returns the names in a table; none for other bytes. The table consists of the number of names,
/// the offset and length of each, and the names, each followed by a zero. All numbers have 32 bits;
/// offsets count from the table's start.
fn read_table(stored: &[u8]) -> Option<Vec<&[u8]>> {
    let number = |at: usize| Some(u32::from_le_bytes(*stored.get(at..)?.first_chunk()?) as usize);
    let count = number(0)?;
    let names_at = count
        .checked_mul(8)?
        .checked_add(4)
        .filter(|end| *end <= stored.len())?;
    let name = |index: usize| {
        let (at, size) = (number(4 + 8 * index)?, number(8 + 8 * index)?);
        let end = at.checked_add(size).filter(|_| at >= names_at)?;
        (stored.get(end) == Some(&0))
            .then(|| stored.get(at..end))
            .flatten()
    };
    (0..count).map(name).collect()
}

/// Returns the table of `names`; none if its size exceeds 32 bits.
fn table(names: &[String]) -> Option<Vec<u8>> {
    let number = |value: usize| Some(u32::try_from(value).ok()?.to_le_bytes());
    let mut table = number(names.len())?.to_vec();
    let mut at = 4 + 8 * names.len();
    for name in names {
        table.extend(number(at)?);
        table.extend(number(name.len())?);
        at += name.len() + 1;
    }
    names
        .iter()
        .for_each(|name| table.extend(name.bytes().chain([0])));
    number(table.len()).map(|_| table)
}

/// Returns the head of the one OffloadBinary of version 2 that contains `images`, whose bytes
/// follow it in order, and the total size in bytes. Adds the fields that earlier releases omit: the
/// table of kernels, and the format of SPIR-V, without which the runtime rejects an image.
pub fn binary_head(images: &[Image<'_>]) -> Option<(Vec<u8>, u64)> {
    let tables: Vec<Cow<'_, [u8]>> = images
        .iter()
        .map(|image| Some(Cow::Owned(table(&kernels(image))?)))
        .collect::<Option<_>>()?;
    let entries = images.iter().zip(&tables).map(|(image, table)| {
        let others = image
            .strings
            .iter()
            .filter(|(key, _)| key.as_ref() != SYMBOLS.as_bytes());
        let others = others.map(|(key, value)| (key.as_ref(), value.as_ref()));
        let open = image.image_kind == ImageKind::None && magic::is_spirv(&image.image);
        offload_binary::Entry {
            image_kind: if open {
                ImageKind::Spirv
            } else {
                image.image_kind
            },
            offload_kind: OffloadKind::Sycl as u16,
            flags: image.flags,
            strings: others
                .chain([(SYMBOLS.as_bytes(), table.as_ref())])
                .collect(),
            image_size: image.image.len() as u64,
        }
    });
    let frame = offload_binary::shared_frame(&entries.collect::<Vec<_>>());
    Some((frame.head, frame.total_size))
}

/// Returns the section of entries.
pub fn entry_section(coff: bool) -> &'static str {
    if coff {
        offload_sections::COFF_ENTRIES
    } else {
        offload_sections::ENTRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_kernel_tables_equal_the_encoded_ones_and_text_is_not_a_table() {
        for names in [&[][..], &["k"], &["_ZTS1A", "_ZTS22Longer", "x"]] {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let table = table(&names).unwrap();
            let read: Vec<String> = read_table(&table)
                .unwrap()
                .into_iter()
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
            assert_eq!(read, names);
            (0..table.len()).for_each(|end| {
                assert_eq!(read_table(&table[..end]), None, "{names:?} cut at {end}")
            });
        }
        for text in [
            &b""[..],
            b"k1",
            b"k1\nk2\n",
            b"_ZTS1A\0_ZTS1B\0",
            b"\x01\0\0\0\x02\0\0\0\x01\0\0\0x",
        ] {
            assert_eq!(read_table(text), None, "{text:?}");
        }
    }

    #[test]
    fn one_binary_contains_all_images_and_the_fields_that_the_runtime_reads() {
        let spirv = [&[0x03, 0x02, 0x23, 0x07][..], &[0; 16]].concat();
        let strings = [
            ("triple", "spirv64-unknown-unknown"),
            ("arch", ""),
            ("symbols", "k1\nk2\n"),
        ];
        let old = offload_binary::write(ImageKind::None, 8, 0, &strings, &spirv);
        let other = offload_binary::write(
            ImageKind::Object,
            8,
            0,
            &[("triple", "spirv64_gen")],
            b"NATIVE",
        );
        let both = [old, other].concat();
        let images = offload_binary::read_all(&both).unwrap();
        let (mut binary, size) = binary_head(&images).unwrap();
        images
            .iter()
            .for_each(|image| binary.extend(image.image.as_ref()));
        binary.resize(usize::try_from(size).unwrap(), 0);
        let read = offload_binary::read_all(&binary).unwrap();
        assert_eq!((read.len(), offload_binary::extent(&binary)), (2, size));
        assert_eq!(
            (read[0].image_kind, read[1].image_kind),
            (ImageKind::Spirv, ImageKind::Object)
        );
        assert_eq!(
            (read[0].image.as_ref(), read[1].image.as_ref()),
            (&spirv[..], &b"NATIVE"[..])
        );
        assert_eq!(
            (read[0].triple().as_ref(), read[1].triple().as_ref()),
            ("spirv64-unknown-unknown", "spirv64_gen")
        );
        assert!(read.iter().all(has_table) && !images.iter().any(has_table));
        assert_eq!(
            (kernels(&read[0]), kernels(&read[1])),
            (vec!["k1".to_owned(), "k2".to_owned()], Vec::new())
        );
    }
}
