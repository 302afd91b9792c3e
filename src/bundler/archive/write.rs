//! Archives for one target, named as LLVM names their members (containers spec 2.12.3, 2.12.4).

use std::collections::HashMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::Result;

use super::Found;
use crate::formats::archive::{Member, Symbols, write};
use crate::llvm::BitcodeSymbols;
use crate::outputs::{Output, trouble};
use crate::piece::{Piece, Spool};
use crate::session::Session;

/// Writes an archive of `chosen` to `out`, the output at `path`. Bitcode that LLVM cannot read has no symbols in the index; that is
/// warned of.
pub(super) fn archive(chosen: &[&Found], path: &Path, out: &mut Output, spool: &mut Spool<'_>, session: &Session) -> Result<()> {
    let mut named = Vec::with_capacity(chosen.len());
    for one in chosen {
        named.push((member_name(&one.member, &one.entry.id, &one.id.target_id), one.entry.contents()?.into_piece(spool)?));
    }
    for (name, piece) in &named {
        if let Some(Err(error)) = BitcodeSymbols::reads(piece.bytes()).then(|| BitcodeSymbols::names(piece.bytes())) {
            session.shell.warn(&format!("'{name}': {error}"));
        }
    }
    let members = named.iter().map(|(name, piece)| Member { name: name.clone(), bytes: Box::new(Lent(piece)) });
    let pieces = named.iter().map(|(_, piece)| (place(piece.bytes()), piece)).collect();
    let mut out = ByPiece { out, pieces };
    write::<Readable>(members.collect(), &mut out).map_err(|error| trouble(path, &error))
}

/// `<stem>-<id><stem><ext>`, without colons. The extension says what the code object is for.
fn member_name(member: &str, id: &str, target_id: &str) -> String {
    let file = member.rsplit('/').next().unwrap_or(member);
    let (stem, own) = match file.rfind('.').filter(|_| file != "." && file != "..") {
        Some(dot) => file.split_at(dot),
        None => (file, ""),
    };
    let ext = if target_id.contains("gfx") {
        ".bc"
    } else if target_id.contains("sm_") {
        ".cubin"
    } else {
        own
    };
    format!("{stem}-{id}{stem}{ext}").replace(':', "_")
}

/// Bitcode that LLVM can read; all else is a member without symbols.
struct Readable;

impl Symbols for Readable {
    fn reads(bytes: &[u8]) -> bool {
        BitcodeSymbols::reads(bytes) && BitcodeSymbols::names(bytes).is_ok()
    }

    fn names(bytes: &[u8]) -> io::Result<Vec<String>> {
        BitcodeSymbols::names(bytes)
    }
}

struct Lent<'p>(&'p Piece);

impl AsRef<[u8]> for Lent<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Writes what is a whole piece by copying it from its file, so that members are never in memory.
struct ByPiece<'a> {
    out: &'a mut Output,
    pieces: HashMap<(usize, usize), &'a Piece>,
}

/// Where bytes stand in memory, and how many they are.
fn place(bytes: &[u8]) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}

impl Write for ByPiece<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.pieces.get(&place(bytes)) {
            Some(piece) => piece.copy_to(self.out).map(|()| bytes.len()),
            None => self.out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Seek for ByPiece<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.out.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_52_ob_44_members_are_named_as_llvm_names_them() {
        for (member, id, target_id, name) in [
            ("func_1.o", "openmp-amdgcn-amd-amdhsa--gfx906", "gfx906", "func_1-openmp-amdgcn-amd-amdhsa--gfx906func_1.bc"),
            (
                "func_1.o",
                "openmp-amdgcn-amd-amdhsa--gfx908:sramecc+:xnack-",
                "gfx908:sramecc+:xnack-",
                "func_1-openmp-amdgcn-amd-amdhsa--gfx908_sramecc+_xnack-func_1.bc",
            ),
            (
                "d/func_2.o",
                "openmp-nvptx64-nvidia-cuda-unknown-sm_70",
                "sm_70",
                "func_2-openmp-nvptx64-nvidia-cuda-unknown-sm_70func_2.cubin",
            ),
            ("func_1.o", "host-x86_64-unknown-linux-gnu-", "", "func_1-host-x86_64-unknown-linux-gnu-func_1.o"),
            ("weird.name.o", "host-a-b-c-", "", "weird.name-host-a-b-c-weird.name.o"),
            ("none", "host-a-b-c-", "", "none-host-a-b-c-none"),
        ] {
            assert_eq!(member_name(member, id, target_id), name);
        }
    }
}
