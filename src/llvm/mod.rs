//! LLVM, behind data: registration plans become printed IR, objects or bitcode; bitcode becomes embedded images and symbols.
//! The only folder that names inkwell, and all LLVM types stay in it. Each call has a context of its own, so calls may run
//! side by side; what LLVM has to say comes back as an error, never on stderr.
//!
//! Without the feature `llvm` the twin `disabled.rs` has the same functions, and each one fails.

mod archive;
#[cfg(feature = "llvm")]
mod bitcode;
#[cfg(feature = "llvm")]
mod context;
#[cfg(not(feature = "llvm"))]
mod disabled;
#[cfg(feature = "llvm")]
mod emit;
#[cfg(feature = "llvm")]
mod emit_fatbin;
#[cfg(feature = "llvm")]
mod emit_openmp;
#[cfg(feature = "llvm")]
mod emit_sycl;
#[cfg(feature = "llvm")]
mod host;
#[cfg(all(test, feature = "llvm"))]
mod tests;

#[cfg(feature = "llvm")]
pub use self::{
    bitcode::{embedded_images, symbols},
    emit::{compile, compile_assembly, compile_bitcode, print_module},
    host::{check_host, default_triple},
};
pub use archive::BitcodeSymbols;
#[cfg(not(feature = "llvm"))]
pub use disabled::{
    check_host, compile, compile_assembly, compile_bitcode, default_triple, embedded_images, print_module, symbols,
};

use crate::model::Generation;

/// Device code embedded in a bitcode host object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Embedded {
    /// The section it would be in: `.llvm.offloading` (OffloadBinaries), or LLVM 14's `.llvm.offloading.<triple>.<arch>[.<name>]`
    /// (the raw image).
    pub section: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The symbols that an object made from a bitcode module would have, as far as the module tells: function bodies are not read,
/// so what the compiler adds (`memcpy`) is missing, and what is declared counts as used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleSymbols {
    /// The module's target triple.
    pub triple: String,
    /// Defined, and seen from outside.
    pub defined: Vec<Symbol>,
    /// Used and not defined here.
    pub undefined: Vec<Symbol>,
    /// The generation of its offload entries, if it has any.
    pub entries: Option<Generation>,
    /// Whether it asks for the bounds of an entry table: it is the registration some wrapper made (decision 6).
    pub refers_to_bounds: bool,
}

/// One symbol, under its name in the object file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The name, mangled as the host's objects have it.
    pub name: String,
    /// Defined: another definition may take its place. Undefined: it may stay so.
    pub weak: bool,
    /// A common symbol, which is weak as well.
    pub common: bool,
    /// Not seen outside of the program or library that it ends up in.
    pub hidden: bool,
}
