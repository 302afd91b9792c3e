//! OffloadBinaries inside OffloadBinaries. A device link needs the innermost images.

use super::{Image, Pair, is_offload_binary, read_all};
use crate::containers::MAX_NESTING;
use crate::error::Malformed;
use std::borrow::Cow;

/// The largest total of images and binaries. Images may share bytes, so that a small file could
/// contain an unlimited number.
const MAX_IMAGES: usize = 1 << 18;

/// Reads images as [`read_all`] does, but replaces an image that is itself a binary by the images
/// in it. Inner images inherit the kind and keys that they lack from the enclosing binary.
///
/// # Errors
/// The errors of `read_all`, for inner binaries too, and excessive nesting.
pub fn read_nested(data: &[u8]) -> Result<Vec<Image<'_>>, Malformed> {
    let mut reader = NestedReader {
        found: Vec::new(),
        seen: 0,
    };
    for image in read_all(data)? {
        reader.take(image, 0)?;
    }
    Ok(reader.found)
}

struct NestedReader<'a> {
    found: Vec<Image<'a>>,
    /// The number of images so far, including those that are binaries.
    seen: usize,
}

impl<'a> NestedReader<'a> {
    /// Adds `image`, or the images in it. Faults in a decompressed image have no offset of their
    /// own.
    fn take(&mut self, image: Image<'a>, depth: usize) -> Result<(), Malformed> {
        self.seen += 1;
        if !is_offload_binary(&image.image) {
            self.found.push(image);
            return Ok(());
        }
        if depth == MAX_NESTING {
            return Err(Malformed::new(
                "offload binaries nested too deeply",
                image.at,
            ));
        }
        if self.seen > MAX_IMAGES {
            return Err(Malformed::new("too many nested offload binaries", image.at));
        }
        let Image {
            offload_kind,
            strings,
            at,
            image,
            ..
        } = image;
        match image {
            Cow::Borrowed(bytes) => {
                for mut inner in read_all(bytes).map_err(|fault| fault.shifted(at))? {
                    // Decompressed images have no offset in the data.
                    inner.at = if inner.at == 0 {
                        0
                    } else {
                        inner.at.saturating_add(at)
                    };
                    self.take(inner.within(offload_kind, &strings), depth + 1)?;
                }
            }
            Cow::Owned(bytes) => {
                for inner in read_all(&bytes).map_err(|fault| Malformed::new(fault.what, at))? {
                    self.take(inner.into_owned().within(offload_kind, &strings), depth + 1)?;
                }
            }
        }
        Ok(())
    }
}

impl<'a> Image<'a> {
    /// Completes this image with the properties of the enclosing binary.
    fn within(mut self, offload_kind: u16, strings: &[Pair<'a>]) -> Image<'a> {
        if self.offload_kind == 0 {
            self.offload_kind = offload_kind;
        }
        let lacks = |key: &[u8]| !self.strings.iter().any(|(own, _)| own.as_ref() == key);
        let lacking: Vec<_> = strings
            .iter()
            .filter(|(key, _)| lacks(key))
            .cloned()
            .collect();
        self.strings.extend(lacking);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::{samples, write};
    use super::*;
    use crate::model::{ImageKind, OffloadKind};

    fn binary(strings: &[(&str, &str)], kind: u16, image: &[u8]) -> Vec<u8> {
        write(ImageKind::Object, kind, 0, strings, image)
    }

    #[test]
    fn inner_images_take_the_place_of_their_binary() {
        let named = |triple| binary(&[("triple", triple)], 0, triple.as_bytes());
        let inner = [named("a"), binary(&[], OffloadKind::Hip as u16, b"b")].concat();
        let outer = [
            binary(
                &[("triple", "t"), ("arch", "x")],
                OffloadKind::Cuda as u16,
                &inner,
            ),
            named("c"),
        ]
        .concat();
        let found = read_nested(&outer).unwrap();
        let description = |image: &Image<'_>| {
            format!("{} {} {}", image.triple(), image.arch(), image.offload_kind)
        };
        assert_eq!(
            found.iter().map(description).collect::<Vec<_>>(),
            ["a x 2", "t x 4", "c  0"]
        );
        for image in &found {
            let at = image.at as usize;
            assert_eq!(
                outer[at..at + image.image.len()],
                *image.image,
                "the place of {}",
                description(image)
            );
        }
    }

    #[test]
    fn faults_have_the_offset_in_the_outer_data() {
        let mut inner = binary(&[("triple", "t")], 4, b"image");
        // The image size field of the entry.
        inner[32 + 32..32 + 40].copy_from_slice(&(1u64 << 40).to_le_bytes());
        let fault = read_all(&inner).unwrap_err();
        let outer = binary(&[("triple", "t")], 4, &inner);
        let at = read_all(&outer).unwrap()[0].at;
        assert_eq!(read_nested(&outer), Err(fault.shifted(at)));
        // Truncated at every byte.
        let inner = binary(&[("triple", "t")], 4, b"image");
        for len in 4..inner.len() {
            assert!(
                read_nested(&binary(&[], 4, &inner[..len])).is_err(),
                "{len}"
            );
        }
    }

    #[test]
    fn endless_nesting_is_an_error() {
        let mut deep = b"image".to_vec();
        for _ in 0..=MAX_NESTING {
            deep = binary(&[], 4, &deep);
        }
        assert_eq!(read_nested(&deep).unwrap()[0].image.as_ref(), b"image");
        let fault = read_nested(&binary(&[], 4, &deep)).unwrap_err();
        assert_eq!(fault.what, "offload binaries nested too deeply");
    }

    #[test]
    fn inner_binaries_of_a_compressed_one() {
        let inner = binary(&[("triple", "t")], 4, b"image");
        let plain = samples::write_shared(3, &[(0, &[("arch", "x")], &inner)]);
        let packed = samples::compress(&plain, true).unwrap();
        let found = read_nested(&packed).unwrap();
        assert_eq!(
            (
                found.len(),
                &*found[0].triple(),
                &*found[0].image,
                found[0].at
            ),
            (1, "t", &b"image"[..], 0)
        );
    }
}
