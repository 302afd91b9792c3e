//! What the CUDA and HIP runtimes have in common: one file with the code for all devices, handed over by a constructor that then
//! registers each kernel and variable of the entry table (docs/spec/link-driver.md 8.3). The two contracts are `cuda` and `hip`.

use self::Argument::{Address, AuxAddress, Data, Flag, Handle, Int, Name, Null, Size};
use super::ImageSection;
use super::entries::{Bounds, Field, Struct};

/// The name of the file's bytes.
pub const IMAGE: &str = ".fatbin_image";
/// The name of what the runtime is handed.
pub const WRAPPER: &str = ".fatbin_wrapper";
/// `{i32 magic, i32 version, ptr data, ptr unused}`.
pub const WRAPPER_TYPE: Struct = ("fatbin_wrapper", &[Field::U32, Field::U32, Field::Pointer, Field::Pointer]);
/// The version in it.
pub const WRAPPER_VERSION: u64 = 1;
/// Its alignment.
pub const WRAPPER_ALIGN: u32 = 8;
/// The constructor's priority. What it did is undone by `atexit`: CUDA since 9.2 is gone when destructors run.
pub const PRIORITY: u32 = 101;

/// How one of the two runtimes is handed its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contract {
    /// The section the runtime's tools look for the file in.
    pub image_section: ImageSection,
    /// The section of the wrapper.
    pub wrapper_section: &'static str,
    /// The first word of the wrapper.
    pub magic: u32,
    /// The name of the variable that keeps the runtime's handle.
    pub handle: &'static str,
    /// The constructor.
    pub register: &'static str,
    /// What undoes it.
    pub unregister: &'static str,
    /// The function that registers the entries.
    pub globals: &'static str,
    /// Takes the wrapper, returns a handle.
    pub register_binary: &'static str,
    /// Takes the handle, once all entries are registered.
    pub register_end: Option<&'static str>,
    /// Takes the handle, at exit.
    pub unregister_binary: &'static str,
    /// Where the entries are.
    pub bounds: Bounds,
    /// How they look.
    pub entry: Struct,
    /// What is read of each, in this order.
    pub reads: &'static [Read],
    /// Which entries are this runtime's, where several share the table.
    pub kind: Option<u16>,
    /// What each entry becomes.
    pub becomes: Becomes,
}

/// A field of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The host's address of the kernel or variable.
    Address,
    /// A second address: of a managed variable the pointer to it.
    AuxAddress,
    /// The programming model.
    Kind,
    /// The name in device code.
    Name,
    /// Of a kernel 0.
    Size,
    /// What kind of variable it is.
    Flags,
    /// More of that: the alignment of a managed variable, the type of a texture.
    Data,
}

/// A field that is read, the name of its value, and its place in the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Which.
    pub part: Part,
    /// The name its value gets.
    pub name: &'static str,
    /// The index of the field.
    pub field: u32,
}

const fn read(part: Part, name: &'static str, field: u32) -> Read {
    Read { part, name, field }
}

/// The fields of 56-byte entries, in the order in which LLVM 22 reads them.
pub const WIDE_READS: &[Read] = &[
    read(Part::Address, "addr", 4),
    read(Part::AuxAddress, "aux_addr", 8),
    read(Part::Kind, "kind", 2),
    read(Part::Name, "name", 5),
    read(Part::Size, "size", 6),
    read(Part::Flags, "flags", 3),
    read(Part::Data, "data", 7),
];
/// Those of 32-byte entries, as LLVM 19 does.
pub const NARROW_READS: &[Read] = &[
    read(Part::Address, "addr", 0),
    read(Part::Name, "name", 1),
    read(Part::Size, "size", 2),
    read(Part::Flags, "flags", 3),
    read(Part::Data, "textype", 4),
];

/// The bits of an entry's flags that say what a variable is.
pub const TYPE_MASK: u64 = 7;
/// Each of those bits, and what the value made of it is called: `(flags & bit) >> shift`.
pub const FLAGS: [(&str, u64); 3] = [("extern", 3), ("constant", 4), ("normalized", 5)];

/// What an entry becomes: a call, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Becomes {
    /// Of size 0: a kernel.
    pub function: Call,
    /// Type 0: a variable.
    pub global: Call,
    /// Type 1: a managed variable.
    pub managed: Option<Call>,
    /// Type 2.
    pub surface: Option<Call>,
    /// Type 3.
    pub texture: Option<Call>,
}

/// A function of the runtime, its arguments, and with them its prototype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub name: &'static str,
    /// What it is given.
    pub arguments: &'static [Argument],
    /// Whether it returns an `int`, which nobody looks at.
    pub returns: bool,
}

/// What a function is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// The runtime's handle.
    Handle,
    /// The entry's address.
    Address,
    /// Its second address.
    AuxAddress,
    /// Its name.
    Name,
    /// Its size, a `size_t` of the host (docs/spec/faults.md F31).
    Size,
    /// Its data, an `int`.
    Data,
    /// The flag of this index in `FLAGS`.
    Flag(usize),
    /// An `int` of our own.
    Int(i32),
    /// A null pointer.
    Null,
}

const EXTERN: Argument = Flag(0);
const CONSTANT: Argument = Flag(1);
const NORMALIZED: Argument = Flag(2);

/// `int RegisterFunction(handle, host, name, name, thread limit, tid, bid, block, grid, warp size)`.
pub const fn register_function(name: &'static str) -> Call {
    Call { name, arguments: &[Handle, Address, Name, Name, Int(-1), Null, Null, Null, Null, Null], returns: true }
}

/// `void RegisterVar(handle, host, name, name, extern, size, constant, global)`.
pub const fn register_var(name: &'static str) -> Call {
    Call { name, arguments: &[Handle, Address, Name, Name, EXTERN, Size, CONSTANT, Int(0)], returns: false }
}

/// `void RegisterManagedVar(handle, pointer, host, name, size, alignment)`.
pub const fn register_managed(name: &'static str) -> Call {
    Call { name, arguments: &[Handle, AuxAddress, Address, Name, Size, Data], returns: false }
}

/// `void RegisterSurface(handle, host, name, name, type, extern)`.
pub const fn register_surface(name: &'static str) -> Call {
    Call { name, arguments: &[Handle, Address, Name, Name, Data, EXTERN], returns: false }
}

/// `void RegisterTexture(handle, host, name, name, type, normalized, extern)`.
pub const fn register_texture(name: &'static str) -> Call {
    Call { name, arguments: &[Handle, Address, Name, Name, Data, NORMALIZED, EXTERN], returns: false }
}

impl Becomes {
    /// What variables become, by the type in their flags: 0, 1, 2, 3.
    pub fn variables(&self) -> [(&'static str, Option<Call>); 4] {
        [("global", Some(self.global)), ("managed", self.managed), ("surface", self.surface), ("texture", self.texture)]
    }
}
