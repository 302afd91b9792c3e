//! What an offload linker wants to know of LLVM bitcode, read without LLVM: who wrote it, the device images it embeds, and the
//! symbols of the object that would be made of it.
//!
//! All of it is read from the records of the module itself and never from the symbol table (irsymtab) that may follow it: that one
//! is missing where a tool other than a compiler wrote the module, is to be ignored where its producer is another LLVM than the
//! reader (the layout changes), and does not say what is asked here: entry tables and their layout. The records of LLVM 3.0 to 22
//! are known; records and blocks that came later are skipped, and so are operands after those that are known. Function bodies
//! are skipped by their length and never read. So LLVM is never needed to look into bitcode.
//!
//! `stream` finds the modules in a file; `module` reads the records of one; `constants`, `metadata` and `types` read its blocks as
//! far as `images` and `symbols` ask.
//!
//! Sources: LLVM's `BitCodeFormat` document and, for record codes, `llvm/Bitcode/LLVMBitCodes.h`.
//!
//! ```
//! use offld::formats::bitcode::producer;
//! use offld::formats::bitstream::{Block, Item, StreamPiece, Record, Stream, Tail, write};
//!
//! // A module with nothing but the block that says who wrote it: block 13, record 1.
//! let values = [1].into_iter().chain(b"LLVM22.1.8".iter().map(|byte| u64::from(*byte))).collect();
//! let record = Item::Record(Record { abbreviation: None, values, tail: Tail::None });
//! let block = Block { id: 13, width: 5, items: vec![record], inherited: 0, was_at: 0 };
//! let written = write(&Stream { items: vec![Item::Block(block)] })?;
//! let [StreamPiece::Bytes(bitcode)] = &written.pieces[..] else { return Err("not bytes".into()) };
//! assert_eq!(producer(bitcode).as_deref(), Some("LLVM22.1.8"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod constants;
mod images;
mod layout;
mod lto;
mod metadata;
mod module;
mod producer;
mod stream;
mod symbols;
#[cfg(test)]
mod tests;
mod types;

pub use images::{Embedded, embedded_images};
pub use lto::is_thin;
pub use producer::{producer, producer_major};
pub use symbols::{ModuleSymbols, Symbol, symbols};
