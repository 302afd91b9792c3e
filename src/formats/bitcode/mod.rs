//! What an offload linker wants to know of LLVM bitcode, read without LLVM: who wrote it, the device images it embeds, and the symbols
//! of the object that would be made of it.
//!
//! All of it is read from the records of the module itself and never from the symbol table (irsymtab) that may follow it: that one is
//! missing where a tool other than a compiler wrote the module, is to be ignored where its producer is another LLVM than the
//! reader (the layout changes), and does not say what is asked here: entry tables and their layout. The records of LLVM 3.0 to 22
//! are known; records and blocks that came later are skipped, and so are operands after those that are known. Function bodies
//! are skipped by their length and never read. So LLVM is never needed to look into bitcode.
//!
//! `stream` finds the modules in a file; `module` reads the records of one; `constants`, `metadata` and `types` read its blocks as far as
//! `images` and `symbols` ask.
//!
//! Sources: LLVM's `BitCodeFormat` document and, for record codes, `llvm/Bitcode/LLVMBitCodes.h`.

mod constants;
mod images;
mod layout;
mod metadata;
mod module;
mod producer;
mod stream;
mod symbols;
#[cfg(test)]
mod tests;
mod types;

pub use images::{Embedded, embedded_images};
pub use producer::{producer, producer_major};
pub use symbols::{ModuleSymbols, Symbol, symbols};
