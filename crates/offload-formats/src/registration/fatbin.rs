//! Common part of the registrations with the CUDA and HIP runtimes: a constructor registers one
//! file with the code for all devices, then each kernel and variable of the entry table
//! (docs/spec/link-driver.md 8.3 and 8.4). CUDA's file is the output of `fatbinary`, HIP's is a
//! bundle of code objects.

use self::Argument::{Address, AuxAddress, Data, Flag, Handle, Int, Name, Null, Size};
use super::ImageSection;
use crate::model::{Generation, OffloadKind};
use crate::offload_entries::{Bounds, Field, Struct, bounds, entry};
use crate::offload_sections::{CUDA_FATBINARIES, CUDA_WRAPPERS, HIP_BUNDLES, HIP_WRAPPERS};

/// The name of the variable with the file's bytes.
pub const IMAGE: &str = ".fatbin_image";
/// The name of the struct that is passed to the runtime.
pub const WRAPPER: &str = ".fatbin_wrapper";
/// `{i32 magic, i32 version, ptr data, ptr unused}`.
pub const WRAPPER_TYPE: Struct = (
    "fatbin_wrapper",
    &[Field::U32, Field::U32, Field::Pointer, Field::Pointer],
);
/// The index of the pointer to the file in `WRAPPER_TYPE`.
pub const WRAPPER_FILE: u32 = 2;
/// The version in `WRAPPER_TYPE`.
pub const WRAPPER_VERSION: u64 = 1;
/// The version for an image that is linked from modules. The last pointer then refers to a list of
/// the modules' fatbinaries, with a null pointer at its end. From these, the driver can link code
/// for a GPU that the image does not support (CUDA's `fatbinary_section.h`).
pub const PRELINKED_VERSION: u64 = 2;
/// The section of the IDs of nvcc's modules, as text for NVIDIA's tools: `def ` and the ID.
pub const MODULE_IDS: &str = "__nv_module_id";
/// The alignment of `WRAPPER_TYPE`.
pub const WRAPPER_ALIGN: u32 = 8;
/// The constructor's priority. A function that is registered with `atexit` undoes the registration,
/// because CUDA 9.2 and later shuts down before destructors run.
pub const PRIORITY: u32 = 101;

/// The registration with one of the two runtimes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contract {
    /// The section in which the runtime's tools look for the file.
    pub image_section: ImageSection,
    /// The section of the struct that is passed to the runtime.
    pub wrapper_section: &'static str,
    /// The first word of the struct.
    pub magic: u32,
    /// The name of the variable for the runtime's handle.
    pub handle: &'static str,
    /// The constructor.
    pub register: &'static str,
    /// The function that undoes the constructor's registration.
    pub unregister: &'static str,
    /// The function that registers the entries.
    pub globals: &'static str,
    /// The runtime's function that takes the struct and returns a handle.
    pub register_binary: &'static str,
    /// The runtime's function that takes the handle after all entries are registered.
    pub register_end: Option<&'static str>,
    /// The runtime's function that takes the handle at exit.
    pub unregister_binary: &'static str,
    /// The function that makes the file from images in files, and takes their table.
    pub load_files: &'static str,
    /// The bounds of the entry table.
    pub bounds: Bounds,
    /// The type of an entry.
    pub entry: Struct,
    /// The fields to read from each entry, in this order.
    pub reads: &'static [Read],
    /// The kind of this runtime's entries, if several runtimes share the table.
    pub kind: Option<u16>,
    /// The call that registers each sort of entry.
    pub becomes: Becomes,
    /// How modules without an entry table reach the runtime.
    pub modules: ModuleCalls,
}

/// How modules that register their own kernels and variables get the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleCalls {
    /// For nvcc. The constructor of each module passes a callback to a function that the device
    /// link defines. The function's name is [`nvcc::REGISTER`](crate::nvcc::REGISTER) and the ID.
    /// The last of these calls registers the image and calls all callbacks with the handle.
    Callbacks,
    /// For HIP's old driver. The constructor of each module registers the image if the handle is
    /// still null. Each module has its own names for the image and for the handle.
    SharedHandle {
        /// The name of the image, which the ID follows after a `_`. Modules of old compilers have
        /// no ID, and use the plain name.
        image: &'static str,
        /// The name of the handle, in the same form.
        handle: &'static str,
    },
}

impl ModuleCalls {
    /// Returns the ID of the module whose symbol for `name` is `symbol`.
    pub fn id_of<'s>(name: &str, symbol: &'s [u8]) -> Option<&'s [u8]> {
        match symbol.strip_prefix(name.as_bytes())? {
            [] => Some(&[]),
            [b'_', id @ ..] => Some(id),
            _ => None,
        }
    }

    /// Returns the symbol for `name` in the module `id`.
    pub fn symbol(name: &str, id: &str) -> String {
        if id.is_empty() {
            name.to_owned()
        } else {
            format!("{name}_{id}")
        }
    }
}

/// A field of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryField {
    /// The host's address of the kernel or variable.
    Address,
    /// A second address: for a managed variable, that of the pointer to it.
    AuxAddress,
    /// The programming model.
    Kind,
    /// The name in device code.
    Name,
    /// The size of a variable; 0 for a kernel.
    Size,
    /// The sort of variable.
    Flags,
    /// The alignment of a managed variable, or the type of a surface or texture.
    Data,
}

/// A field to read from an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The field.
    pub field: EntryField,
    /// The name of its value in the LLVM module.
    pub name: &'static str,
    /// The index of the field in the struct.
    pub index: u32,
}

const fn read(field: EntryField, name: &'static str, index: u32) -> Read {
    Read { field, name, index }
}

/// The fields of 56-byte entries, in the order in which LLVM 22 reads them.
pub const WIDE_READS: &[Read] = &[
    read(EntryField::Address, "addr", 4),
    read(EntryField::AuxAddress, "aux_addr", 8),
    read(EntryField::Kind, "kind", 2),
    read(EntryField::Name, "name", 5),
    read(EntryField::Size, "size", 6),
    read(EntryField::Flags, "flags", 3),
    read(EntryField::Data, "data", 7),
];
/// The fields of 32-byte entries, in the order in which LLVM 19 reads them.
pub const NARROW_READS: &[Read] = &[
    read(EntryField::Address, "addr", 0),
    read(EntryField::Name, "name", 1),
    read(EntryField::Size, "size", 2),
    read(EntryField::Flags, "flags", 3),
    read(EntryField::Data, "textype", 4),
];

/// The bits of an entry's flags with the sort of variable.
pub const TYPE_MASK: u64 = 7;
/// The other flags: the name of the value in the LLVM module, and the number of the bit.
pub const FLAGS: [(&str, u64); 3] = [("extern", 3), ("constant", 4), ("normalized", 5)];

/// The calls that register each sort of entry; none for a sort that the runtime cannot register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Becomes {
    /// Size 0: a kernel.
    pub function: Call,
    /// Type 0: a variable.
    pub global: Call,
    /// Type 1: a managed variable.
    pub managed: Option<Call>,
    /// Type 2: a surface.
    pub surface: Option<Call>,
    /// Type 3: a texture.
    pub texture: Option<Call>,
}

/// A call of a function of the runtime. The arguments also determine its prototype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The name of the function.
    pub name: &'static str,
    /// The arguments.
    pub arguments: &'static [Argument],
    /// Whether it returns an `int`, which is ignored.
    pub returns: bool,
}

/// An argument of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// The runtime's handle.
    Handle,
    /// The entry's address.
    Address,
    /// The entry's second address.
    AuxAddress,
    /// The entry's name.
    Name,
    /// The entry's size, a `size_t` of the host (docs/spec/faults.md F31).
    Size,
    /// The entry's data, an `int`.
    Data,
    /// The flag of this index in `FLAGS`.
    Flag(usize),
    /// A constant `int`.
    Int(i32),
    /// A null pointer.
    Null,
}

const EXTERN: Argument = Flag(0);
const CONSTANT: Argument = Flag(1);
const NORMALIZED: Argument = Flag(2);

/// `int RegisterFunction(handle, host, name, name, thread limit, tid, bid, block, grid, warp
/// size)`.
pub const fn register_function(name: &'static str) -> Call {
    Call {
        name,
        arguments: &[
            Handle,
            Address,
            Name,
            Name,
            Int(-1),
            Null,
            Null,
            Null,
            Null,
            Null,
        ],
        returns: true,
    }
}

/// `void RegisterVar(handle, host, name, name, extern, size, constant, global)`.
pub const fn register_var(name: &'static str) -> Call {
    Call {
        name,
        arguments: &[Handle, Address, Name, Name, EXTERN, Size, CONSTANT, Int(0)],
        returns: false,
    }
}

/// `void RegisterManagedVar(handle, pointer, host, name, size, alignment)`.
pub const fn register_managed(name: &'static str) -> Call {
    Call {
        name,
        arguments: &[Handle, AuxAddress, Address, Name, Size, Data],
        returns: false,
    }
}

/// `void RegisterSurface(handle, host, name, name, type, extern)`.
pub const fn register_surface(name: &'static str) -> Call {
    Call {
        name,
        arguments: &[Handle, Address, Name, Name, Data, EXTERN],
        returns: false,
    }
}

/// `void RegisterTexture(handle, host, name, name, type, normalized, extern)`.
pub const fn register_texture(name: &'static str) -> Call {
    Call {
        name,
        arguments: &[Handle, Address, Name, Name, Data, NORMALIZED, EXTERN],
        returns: false,
    }
}

impl Becomes {
    /// Returns the calls for variables, by the type in their flags: 0, 1, 2, 3.
    pub fn variables(&self) -> [(&'static str, Option<Call>); 4] {
        [
            ("global", Some(self.global)),
            ("managed", self.managed),
            ("surface", self.surface),
            ("texture", self.texture),
        ]
    }
}

/// The section that `cuobjdump` searches. The alignment is that of LLVM's code generator for arrays
/// of 16 bytes and more; the fields of a fatbinary's header need 8.
pub const CUDA_SECTION: ImageSection = ImageSection {
    name: CUDA_FATBINARIES,
    align: 16,
    listed: false,
};

/// The size of the struct that is passed to a runtime, on 64-bit hosts: a magic number, a version,
/// and two pointers.
pub const WRAPPER_SIZE: u64 = 24;

/// The first word of the struct that is passed to CUDA's runtime.
pub const CUDA_MAGIC: u32 = 0x4662_43b1;

/// The runtime's function that takes the struct and returns a handle.
pub const CUDA_REGISTER: &str = "__cudaRegisterFatBinary";

/// Returns the registration of CUDA code in `generation`. `coff` selects a host with COFF instead
/// of ELF objects.
pub fn cuda(generation: Generation, coff: bool) -> Contract {
    let has_wide_entries = generation.wide_entries();
    Contract {
        image_section: CUDA_SECTION,
        wrapper_section: CUDA_WRAPPERS,
        magic: CUDA_MAGIC,
        handle: ".cuda.binary_handle",
        register: ".cuda.fatbin_reg",
        unregister: ".cuda.fatbin_unreg",
        globals: ".cuda.globals_reg",
        load_files: "offld_external_cuda",
        register_binary: CUDA_REGISTER,
        register_end: Some("__cudaRegisterFatBinaryEnd"),
        unregister_binary: "__cudaUnregisterFatBinary",
        bounds: bounds(OffloadKind::Cuda, generation, coff),
        entry: entry(generation),
        reads: if has_wide_entries {
            WIDE_READS
        } else {
            NARROW_READS
        },
        // Since LLVM 21 all kinds share one table. An older table contains only CUDA's entries.
        kind: (generation == Generation::Llvm21).then_some(OffloadKind::Cuda as u16),
        becomes: Becomes {
            function: register_function("__cudaRegisterFunction"),
            global: register_var("__cudaRegisterVar"),
            // 32-byte entries have no field for the pointer to a managed variable.
            managed: has_wide_entries.then_some(register_managed("__cudaRegisterManagedVar")),
            // CUDA 12 removed the functions that register surfaces and textures.
            surface: None,
            texture: None,
        },
        modules: ModuleCalls::Callbacks,
    }
}

/// The section that ROCm's tools search. The runtime maps the code objects of a bundle into memory.
/// They are aligned to pages within the bundle, so the bundle must be aligned to a page as well.
/// clang aligns its own HIP code to pages; LLVM's wrapper aligns to 16 bytes.
pub const HIP_SECTION: ImageSection = ImageSection {
    name: HIP_BUNDLES,
    align: 4096,
    listed: false,
};

/// The first word of the struct that is passed to HIP's runtime, if the device code is in the
/// program.
pub const HIP_MAGIC: u32 = u32::from_be_bytes(*b"HIPF");

/// The runtime's function that takes the struct and returns a handle.
pub const HIP_REGISTER: &str = "__hipRegisterFatBinary";

/// The names of the image and of the runtime's handle in objects of HIP's old driver. A `_` and the
/// ID of the translation unit follow.
pub const HIP_IMAGE: &str = "__hip_fatbin";
/// See [`HIP_IMAGE`].
pub const HIP_HANDLE: &str = "__hip_gpubin_handle";

/// Returns the registration of HIP code in `generation`. `coff` selects a host with COFF instead of
/// ELF objects.
pub fn hip(generation: Generation, coff: bool) -> Contract {
    let has_wide_entries = generation.wide_entries();
    Contract {
        image_section: HIP_SECTION,
        wrapper_section: HIP_WRAPPERS,
        magic: HIP_MAGIC,
        handle: ".hip.binary_handle",
        register: ".hip.fatbin_reg",
        unregister: ".hip.fatbin_unreg",
        globals: ".hip.globals_reg",
        load_files: "offld_external_hip",
        register_binary: HIP_REGISTER,
        register_end: None,
        unregister_binary: "__hipUnregisterFatBinary",
        bounds: bounds(OffloadKind::Hip, generation, coff),
        entry: entry(generation),
        reads: if has_wide_entries {
            WIDE_READS
        } else {
            NARROW_READS
        },
        // Since LLVM 21 all kinds share one table. An older table contains only HIP's entries,
        // whose kind, if they have one, is 3 (docs/spec/faults.md F19).
        kind: (generation == Generation::Llvm21).then_some(OffloadKind::Hip as u16),
        becomes: Becomes {
            function: register_function("__hipRegisterFunction"),
            global: register_var("__hipRegisterVar"),
            // 32-byte entries have no field for the pointer to a managed variable.
            managed: has_wide_entries.then_some(register_managed("__hipRegisterManagedVar")),
            surface: Some(register_surface("__hipRegisterSurface")),
            texture: Some(register_texture("__hipRegisterTexture")),
        },
        modules: ModuleCalls::SharedHandle {
            image: HIP_IMAGE,
            handle: HIP_HANDLE,
        },
    }
}
