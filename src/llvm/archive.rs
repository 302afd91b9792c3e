//! The symbols of bitcode members, for the index of an archive (`formats::archive`).

use std::io;

use crate::formats::archive::Symbols;
use crate::formats::magic;

/// Reads bitcode members with LLVM. Without the feature `llvm` they are members without symbols, as texts are.
pub struct BitcodeSymbols;

impl BitcodeSymbols {
    /// What is wrong with bitcode that LLVM cannot read, which is a member without symbols.
    pub fn fault(bytes: &[u8]) -> Option<io::Error> {
        if is_bitcode(bytes) { Self::names(bytes).err() } else { None }
    }
}

fn is_bitcode(bytes: &[u8]) -> bool {
    cfg!(feature = "llvm") && magic::is_bitcode(bytes)
}

impl Symbols for BitcodeSymbols {
    fn reads(bytes: &[u8]) -> bool {
        is_bitcode(bytes) && Self::names(bytes).is_ok()
    }

    fn names(bytes: &[u8]) -> io::Result<Vec<String>> {
        let module = super::symbols(bytes).map_err(io::Error::other)?;
        Ok(module.defined.into_iter().map(|symbol| symbol.name).collect())
    }
}
