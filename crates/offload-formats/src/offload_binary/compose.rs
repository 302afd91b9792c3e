//! Edits of OffloadBinaries. The result equals the output of the writers here for the same images
//! and strings.

#[cfg(test)]
mod tests;

use super::write::Entry;
use super::{FLAG_METADATA_ONLY, Head, Image, frame_of, plain_frame, read_first, shared_frame};
use crate::bytes::slice;
use crate::compose::{Item, Part, check_kept, is_same, push_old, push_zeros};
use crate::error::Malformed;

/// Returns the parts of the binary at the start of `data` with the images of `items`, in their
/// order. `Part::New` has the index of an item. Kept images retain their kinds, flags and strings,
/// and the binary its version. Data after the binary is not part of the result.
///
/// Version 1 holds one image: several items give several binaries, back to back, and an empty list
/// gives no data. For later versions, an empty list gives a binary without images.
///
/// A compressed binary (version 3) is an error. Decompress it first ([`Packed`](super::Packed)),
/// edit the result and compress it again ([`pack`](super::pack)).
///
/// # Errors
/// The binary is damaged or compressed, an item names a missing image, or kept images overlap. A
/// new image is too large, or a string for version 1 contains a zero.
///
/// ```
/// use offload_formats::compose::{Item, join};
/// use offload_formats::offload_binary::{compose, read_all, write};
/// use offload_formats::model::{ImageKind, OffloadKind};
///
/// let strings = [("triple", "nvptx64-nvidia-cuda"), ("arch", "sm_90")];
/// let old = write(ImageKind::Cubin, OffloadKind::Cuda as u16, 0, &strings, b"code");
/// let parts = compose(&old, &[Item::Changed { entry: 0, size: 10 }])?;
/// assert_eq!(join(&old, &parts, &[b"other code"])?, write(ImageKind::Cubin, 2, 0, &strings, b"other code"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compose(data: &[u8], items: &[Item<Entry<'_>>]) -> Result<Vec<Part>, Malformed> {
    let head = Head::read(data, 0)?;
    if head.packed.is_some() {
        return Err(Malformed::new(
            "cannot change a compressed offload binary in place",
            0,
        ));
    }
    let whole = slice(data, 0, head.size, "size field past the end", 0)?;
    let mut images = Vec::new();
    read_first(whole, &mut images, 0)?;
    if is_same(items, images.len()) {
        return Ok(vec![Part::Old(0..head.size)]);
    }
    let kept = items
        .iter()
        .filter(|item| matches!(item, Item::Old(_)))
        .filter_map(Item::old);
    check_kept(
        kept.filter_map(|place| images.get(place))
            .map(|image| image.image.len() as u64),
        head.size,
        0,
    )?;
    let entries = items
        .iter()
        .map(|item| entry(&images, item, head.version))
        .collect::<Result<Vec<_>, Malformed>>()?;
    let total = entries
        .iter()
        .fold(0u64, |all, entry| all.saturating_add(entry.image_size));
    if total > i64::MAX as u64 {
        return Err(Malformed::new("too large for an offload binary", 0));
    }
    let mut parts = Vec::new();
    let mut add =
        |images: &[Image<'_>], head: Vec<u8>, total_size: u64, first: usize, count: usize| {
            let mut end = head.len() as u64;
            parts.push(Part::Bytes(head));
            for (place, (item, entry)) in items
                .iter()
                .zip(&entries)
                .enumerate()
                .skip(first)
                .take(count)
            {
                push_image(&mut parts, images, place, item, entry.image_size);
                end = end.saturating_add(entry.image_size);
            }
            push_zeros(&mut parts, total_size.saturating_sub(end));
        };
    match head.version {
        1 => {
            for (place, entry) in entries.iter().enumerate() {
                let frame = frame_of(entry);
                add(&images, frame.head, frame.total_size, place, 1);
            }
        }
        version => {
            let frame = if version == 2 {
                shared_frame(&entries)
            } else {
                plain_frame(&entries)
            };
            add(&images, frame.head, frame.total_size, 0, items.len());
        }
    }
    Ok(parts)
}

/// The entry that the new binary has for an item.
fn entry<'a>(
    images: &'a [Image<'_>],
    item: &Item<Entry<'a>>,
    version: u32,
) -> Result<Entry<'a>, Malformed> {
    let (place, size) = match item {
        Item::Old(place) => (*place, None),
        Item::Changed { entry, size } => (*entry, Some(*size)),
        Item::New(new) => {
            let has_zero = |(key, value): &(&[u8], &[u8])| {
                key.contains(&0) || (version == 1 && value.contains(&0))
            };
            if new.strings.iter().any(has_zero) {
                return Err(Malformed::new(
                    "a string of an image contains a zero byte",
                    0,
                ));
            }
            return Ok(new.clone());
        }
    };
    let image = images
        .get(place)
        .ok_or(Malformed::new("the offload binary has no such image", 0))?;
    Ok(Entry {
        image_kind: image.image_kind,
        offload_kind: image.offload_kind,
        // The entry only described an image and has contents now.
        flags: if size.is_some_and(|size| size > 0) {
            image.flags & !FLAG_METADATA_ONLY
        } else {
            image.flags
        },
        strings: image
            .strings
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_ref()))
            .collect(),
        image_size: size.unwrap_or(image.image.len() as u64),
    })
}

/// Adds the `size` bytes of the item at `place`.
fn push_image(
    parts: &mut Vec<Part>,
    images: &[Image<'_>],
    place: usize,
    item: &Item<Entry<'_>>,
    size: u64,
) {
    match item {
        Item::Old(old) => {
            if let Some(image) = images.get(*old) {
                push_old(parts, image.at..image.at.saturating_add(size));
            }
        }
        _ if size > 0 => parts.push(Part::New(place)),
        _ => {}
    }
}
