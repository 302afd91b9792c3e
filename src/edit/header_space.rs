//! Room for more segments in a program that has none left: a page in front of it.

use anyhow::Result;

use super::pointers::NewSection;
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::resize::{NO_ROOM, addresses_with, with_front_page};

/// Where the new contents of a program will be.
pub(super) struct Placed {
    /// The program with a page in front; none where it needs none.
    pub(super) piece: Option<FileSlice>,
    /// Where the array of pointers will be in memory.
    pub(super) array: u64,
}

/// Gives the sections `new` of the program `piece` their addresses, beside an array of so many
/// `pointers`. Where there is no room for the segments that are needed, the program gets a page in
/// front: then all offsets are those in [`Placed::piece`], those of `new` included, and what the
/// program registers must be read of that. The sections with the indices `movable` may begin at a
/// later address.
///
/// # Errors
/// As [`addresses_with`] has them.
pub(super) fn place(
    piece: &FileSlice,
    new: &mut [NewSection],
    pointers: usize,
    movable: &[usize],
    spool: &mut Spool,
) -> Result<Placed> {
    let sizes: Vec<(usize, u64)> = new
        .iter()
        .map(|section| (section.index, section.changed.bytes.size()))
        .collect();
    let (mut larger, mut placed) = (None, addresses_with(piece, &sizes, pointers, movable));
    if placed.as_ref().is_err_and(|fault| fault.what == NO_ROOM)
        && let Some((page, rope)) = with_front_page(piece)?
    {
        let piece = rope.into_piece(spool)?;
        placed = addresses_with(&piece, &sizes, pointers, movable);
        new.iter_mut()
            .for_each(|section| section.offset = section.offset.saturating_add(page));
        larger = Some(piece);
    }
    let (addresses, array) = placed?;
    for (section, address) in new.iter_mut().zip(addresses) {
        section.address = address;
    }
    Ok(Placed {
        piece: larger,
        array,
    })
}
