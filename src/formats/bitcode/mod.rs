//! Reads LLVM bitcode without LLVM: its producer, the device images that it embeds, and the symbols
//! of its object file.
//!
//! All data comes from the records of the module, not from the symbol table (irsymtab) that may
//! follow it. That table lacks entry tables and their layout. Tools other than compilers do not
//! write it. It must be ignored if its producer is a different LLVM version, because its layout
//! changes.
//!
//! The records of LLVM 3.0 to 22 are known. Later records, blocks and additional operands are
//! skipped. Function bodies are skipped by their length.
//!
//! `stream` finds the modules in a file, and `module` reads the records of a module. `constants`,
//! `metadata` and `types` read its blocks for `images` and `symbols`.
//!
//! Sources: LLVM's `BitCodeFormat` document and, for record codes, `llvm/Bitcode/LLVMBitCodes.h`.
//!
//! ```
//! use offld::formats::bitcode::producer;
//! use offld::formats::bitstream::{Block, Item, StreamPiece, Record, Stream, Tail, write};
//!
//! // A module with only the identification block: block 13, record 1.
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
