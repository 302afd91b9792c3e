//! What libomptarget must be handed, per generation of entry table, as plain data: names, sections, types, priorities
//! (link-driver spec 8.1, 8.2 and 11; containers spec 5.1). Nothing is emitted here; `llvm/` does, from this and a `Plan`.

use super::{ImagePlace, PlannedImage};
use crate::formats::offload_binary;
use crate::model::Generation;

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
/// The section both functions are in.
pub const FUNCTION_SECTION: &str = ".text.startup";
/// The name of an image's target id, and the section that lists them all: readers split it at NULs. Its strings must not be
/// `unnamed_addr`: the linker would merge equal ones (decision Q14).
pub const OFFLOAD_ARCH: (&str, &str) = ("__offload_arch", ".offload_arch_list");
/// The name of an image's info object.
pub const IMAGE_INFO: &str = ".offload_image_info";
/// The version of info objects.
pub const IMAGE_INFO_VERSION: u64 = 1;
/// The section of image bytes in what `-r` makes: no later link looks for images there (fault F17).
pub const RELOCATABLE_SECTION: &str = ".llvm.offloading.relocatable";

/// Of a struct, what an emitter needs to know about a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// 16 bits.
    U16,
    /// 32 bits.
    U32,
    /// 64 bits.
    U64,
    /// As wide as the host's addresses (fault F31).
    Size,
    /// An address.
    Pointer,
}

/// `{ptr ImageStart, ptr ImageEnd, ptr EntriesBegin, ptr EntriesEnd}`.
pub const DEVICE_IMAGE_TYPE: (&str, &[Field]) = ("__tgt_device_image", &[Field::Pointer; 4]);
/// `{i32 NumDeviceImages, ptr DeviceImages, ptr HostEntriesBegin, ptr HostEntriesEnd}`.
pub const DESCRIPTOR_TYPE: (&str, &[Field]) = ("__tgt_bin_desc", &[Field::U32, Field::Pointer, Field::Pointer, Field::Pointer]);
/// `{i32 version, i32 image_number, i32 number_images, ptr offload_arch, ptr compile_opts}`.
pub const IMAGE_INFO_TYPE: (&str, &[Field]) =
    ("__tgt_image_info", &[Field::U32, Field::U32, Field::U32, Field::Pointer, Field::Pointer]);

const WIDE_ENTRY: &[Field] =
    &[Field::U64, Field::U16, Field::U16, Field::U32, Field::Pointer, Field::Pointer, Field::U64, Field::U64, Field::Pointer];
const NARROW_ENTRY: &[Field] = &[Field::Pointer, Field::Pointer, Field::Size, Field::U32, Field::U32];

/// How one generation registers OpenMP images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The module's name, which is its source file name too.
    pub module: &'static str,
    /// Name and fields of the entry type.
    pub entry: (&'static str, &'static [Field]),
    /// Where the table of entries starts and ends.
    pub bounds: Bounds,
    /// Section and alignment of image bytes.
    pub image_section: Option<(&'static str, u32)>,
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

/// The two symbols around the table of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Name of the first entry's symbol.
    pub start: String,
    /// Name of the symbol after the last entry.
    pub stop: String,
    /// Whether their type is an array of no entries, rather than one entry.
    pub array: bool,
    /// Who defines them.
    pub defined: BoundsDefined,
}

/// Who defines the symbols around the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundsDefined {
    /// The linker, because the section's name is a C identifier; the dummy sees to it that there is such a section.
    ByLinker(Dummy),
    /// We do, in sections that the linker sorts around the entries' (COFF).
    BySortedSections {
        /// The section of the first symbol.
        start: String,
        /// The section of the last symbol.
        stop: String,
    },
}

/// An entry table of no entries, there so that its section is.
///
/// It is not `llvm.used` (SHF_GNU_RETAIN): `ld.lld --gc-sections` would then keep it and drop the program's own entries, and
/// what is an error now would be a program that registers nothing. That link needs `-z nostart-stop-gc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dummy {
    /// Its name.
    pub name: String,
    /// Its section: the entries'.
    pub section: &'static str,
    /// Its alignment, where one is said.
    pub align: Option<u32>,
    /// What keeps the compiler from dropping it.
    pub kept: Kept,
}

/// What keeps a symbol that nothing refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is internal, and listed in `llvm.compiler.used`.
    CompilerUsed,
    /// It is external (hidden), so the compiler must keep it.
    External,
}

/// How `generation` registers OpenMP images on a host whose objects are COFF or ELF.
pub fn registration(generation: Generation, coff: bool) -> Registration {
    if generation == Generation::Llvm14 {
        return oldest();
    }
    let section = generation.openmp_entry_section();
    let fields = if generation.wide_entries() { WIDE_ENTRY } else { NARROW_ENTRY };
    let defined = if coff {
        BoundsDefined::BySortedSections { start: format!("{section}$OA"), stop: format!("{section}$OZ") }
    } else {
        let align = match generation {
            // LLVM 20's entries have alignment 1. On 32-bit hosts a larger one here would put a gap into their table.
            Generation::Llvm20 => Some(1),
            Generation::Llvm21 => Some(8),
            _ => None,
        };
        BoundsDefined::ByLinker(Dummy { name: format!("__dummy.{section}"), section, align, kept: Kept::CompilerUsed })
    };
    Registration {
        module: "offload.wrapper.module",
        entry: ("struct.__tgt_offload_entry", fields),
        bounds: Bounds { start: format!("__start_{section}"), stop: format!("__stop_{section}"), array: true, defined },
        image_section: Some((".llvm.offloading", 8)),
        image_inbounds: false,
        priority: 101,
        undo: Undo::AtExit,
        image_infos: false,
    }
}

/// What `clang-offload-wrapper` is documented to emit, on COFF as well, where it cannot be linked.
fn oldest() -> Registration {
    let section = Generation::Llvm14.openmp_entry_section();
    let dummy = Dummy { name: "__dummy.omp_offloading.entry".to_owned(), section, align: None, kept: Kept::External };
    Registration {
        module: "offload.wrapper.object",
        entry: ("__tgt_offload_entry", NARROW_ENTRY),
        bounds: Bounds {
            start: format!("__start_{section}"),
            stop: format!("__stop_{section}"),
            array: false,
            defined: BoundsDefined::ByLinker(dummy),
        },
        image_section: None,
        image_inbounds: true,
        priority: 1,
        undo: Undo::Destructor,
        image_infos: true,
    }
}

/// `base`, `base.1`, `base.2`, …: LLVM's names for the first, second, third of one name.
pub fn numbered(base: &str, index: usize) -> String {
    if index == 0 { base.to_owned() } else { format!("{base}.{index}") }
}

/// `bytes` as an image in the module itself. Of an OffloadBinary the runtime is handed the (first) image in it, of anything
/// else all there is.
pub fn inline_image(bytes: Vec<u8>, offload_arch: Option<String>) -> PlannedImage {
    let images = offload_binary::read_all(&bytes).unwrap_or_default();
    let (start, end) = match images.first() {
        // One that was inflated lies nowhere in the bytes.
        Some(image) if image.at != 0 => (image.at, image.at + image.image.len() as u64),
        _ => (0, bytes.len() as u64),
    };
    drop(images);
    PlannedImage { place: ImagePlace::Inline(bytes), start, end, offload_arch }
}

/// The size of the bytes of an image, header included.
pub fn place_size(place: &ImagePlace) -> u64 {
    match place {
        ImagePlace::Inline(bytes) => bytes.len() as u64,
        ImagePlace::External { size, .. } => *size,
    }
}
