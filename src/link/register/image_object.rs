//! Objects that contain only images. The images are streamed, so that memory does not grow with
//! them (docs/spec/faults.md F32). The headers are written with holes for the images, and the
//! kernel then copies the images from their files.
//!
//! Registration code refers to the images by hidden symbols (`ImagePlace::External`,
//! `ImagePlace::Between`).

mod coff;
mod elf;

#[cfg(test)]
mod tests;

use crate::io::rope::Rope;
use crate::model::ObjectFormat;
use crate::registration::ImageSection;
use anyhow::{Context as _, Result, bail};
use object::write::WritableBuffer;
use std::fs::File;
use std::io::{BufWriter, Seek, Write};

/// An image whose bytes are in files.
#[derive(Debug, Clone)]
pub struct StreamedImage {
    /// The hidden symbols by which registration code refers to the image.
    pub symbols: Vec<ImageSymbol>,
    /// Its bytes.
    pub contents: Rope,
}

impl StreamedImage {
    /// Returns an image with one symbol, which covers all of it.
    pub fn whole(symbol: impl Into<String>, contents: Rope) -> Self {
        let symbols = vec![ImageSymbol {
            name: symbol.into(),
            at: 0,
            size: contents.size(),
        }];
        StreamedImage { symbols, contents }
    }
}

/// A symbol in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSymbol {
    /// Its name.
    pub name: String,
    /// The offset in the image in bytes, at most the image's size.
    pub at: u64,
    /// The size in bytes; 0 for a symbol at the end.
    pub size: u64,
}

/// The host for which an object is written.
#[derive(Debug, Clone, Copy)]
pub struct HostObject<'a> {
    /// Its triple.
    pub triple: &'a str,
    /// The control-flow protection with which the object is compatible (`formats::elf::property`).
    pub protection: u32,
}

/// Overwrites `out` with an object for `host` that contains `images` in `section`. `in_all` is the
/// total size in bytes of the images in all objects of the link.
pub fn write(
    out: &mut File,
    host: HostObject<'_>,
    section: ImageSection,
    images: &[StreamedImage],
    in_all: u64,
) -> Result<()> {
    let layout = Layout::new(images, section, in_all)?;
    out.set_len(0)?;
    out.rewind()?;
    let mut holes = Holes {
        out: BufWriter::new(&mut *out),
        result: Ok(()),
    };
    let places = match Host::of(host.triple)? {
        Host::Elf(machine) => elf::skeleton(&mut holes, machine, &layout, host.protection),
        Host::Coff(machine) => coff::skeleton(&mut holes, machine, &layout),
    }?;
    holes.finish()?;
    for (image, place) in images.iter().zip(places) {
        // The kernel copies the bytes, or shares them if the file system can.
        image.contents.write_at(out, place)?;
    }
    Ok(())
}

/// Limit on the total size of images in bytes. No file system has larger files, and sums below the
/// limit do not overflow.
const LARGEST: u64 = 1 << 62;

/// The input of both object writers. `offsets` are the aligned offsets of the images in one
/// section.
struct Layout<'a> {
    images: &'a [StreamedImage],
    section: ImageSection,
    offsets: Vec<u64>,
    size: u64,
    /// The section's size in bytes in the program, without additions by other tools.
    in_all: u64,
}

impl<'a> Layout<'a> {
    fn new(images: &'a [StreamedImage], section: ImageSection, in_all: u64) -> Result<Self> {
        let mut offsets = Vec::new();
        let mut size = 0u64;
        for image in images {
            let end = size.checked_add(image.contents.size());
            let end = end
                .and_then(|end| end.checked_next_multiple_of(section.align.into()))
                .filter(|end| *end <= LARGEST);
            let Some(end) = end else {
                bail!(
                    "`{}` is too large",
                    image
                        .symbols
                        .first()
                        .map_or("an image", |symbol| &symbol.name)
                )
            };
            offsets.push(size);
            size = end;
        }
        Ok(Layout {
            images,
            section,
            offsets,
            size,
            in_all: in_all.max(size),
        })
    }
}

/// The object format of a host, and the machine for its headers.
enum Host {
    Elf(elf::Machine),
    Coff(coff::Machine),
}

impl Host {
    fn of(triple: &str) -> Result<Self> {
        let arch = triple.split('-').next().unwrap_or_default();
        let found = match ObjectFormat::of(triple) {
            ObjectFormat::MachO => {
                bail!("Mach-O objects of the host `{triple}` cannot hold offload entries")
            }
            ObjectFormat::Coff => coff::Machine::of(arch).map(Host::Coff),
            ObjectFormat::Elf => elf::Machine::of(arch, triple.ends_with("x32")).map(Host::Elf),
        };
        found.with_context(|| format!("cannot write image objects for the host `{triple}`"))
    }
}

/// A writer that leaves a hole in the file instead of writing zeros.
struct Holes<'a> {
    out: BufWriter<&'a mut File>,
    result: std::io::Result<()>,
}

impl Holes<'_> {
    fn finish(mut self) -> std::io::Result<()> {
        self.result?;
        self.out.flush()
    }

    fn attempt(&mut self, write: impl FnOnce(&mut BufWriter<&mut File>) -> std::io::Result<()>) {
        if self.result.is_ok() {
            self.result = write(&mut self.out);
        }
    }
}

impl WritableBuffer for Holes<'_> {
    fn reserve(&mut self, _size: u64) -> Result<(), ()> {
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) {
        self.attempt(|out| out.write_all(bytes));
    }

    fn write_zeros(&mut self, count: u64) {
        self.attempt(|out| {
            let count = i64::try_from(count).map_err(|_| std::io::ErrorKind::FileTooLarge)?;
            out.seek_relative(count)
        });
    }
}
