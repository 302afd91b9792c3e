//! Objects that contain only images. The images are streamed, so memory does not grow with them (docs/spec/faults.md F32): the
//! headers are written with holes for the images, and the system then copies the images from their files.
//!
//! Registration code refers to the images by hidden symbols (`ImagePlace::External`, `ImagePlace::Between`).

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
    /// The hidden symbols by which registration code refers to it.
    pub symbols: Vec<ImageSymbol>,
    /// Its bytes.
    pub contents: Rope,
}

impl StreamedImage {
    /// An image with one symbol, which stands for all of it.
    pub fn whole(symbol: impl Into<String>, contents: Rope) -> Self {
        let symbols = vec![ImageSymbol { name: symbol.into(), at: 0, size: contents.size() }];
        StreamedImage { symbols, contents }
    }
}

/// A symbol in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSymbol {
    /// Its name.
    pub name: String,
    /// Its offset in bytes, at most the size of the image.
    pub at: u64,
    /// How many bytes it stands for; 0 if it is an end.
    pub size: u64,
}

/// Overwrites `out` with an object for the host `host_triple` that contains `images` in `section`. `in_all`: the size of the images
/// in this and all other objects of the link.
pub fn write(out: &mut File, host_triple: &str, section: ImageSection, images: &[StreamedImage], in_all: u64) -> Result<()> {
    let layout = Layout::new(images, section, in_all)?;
    out.set_len(0)?;
    out.rewind()?;
    let mut holes = Holes { out: BufWriter::new(&mut *out), result: Ok(()) };
    let places = match Host::of(host_triple)? {
        Host::Elf(machine) => elf::skeleton(&mut holes, machine, &layout),
        Host::Coff(machine) => coff::skeleton(&mut holes, machine, &layout),
    }?;
    holes.finish()?;
    for (image, place) in images.iter().zip(places) {
        // The kernel copies the bytes, or shares them if the file system can.
        image.contents.write_at(out, place)?;
    }
    Ok(())
}

/// The largest size that is accepted. No file system has larger files, and sums below it do not overflow.
const LARGEST: u64 = 1 << 62;

/// The input of both object writers. `offsets` are those of the images in one section, one after another, each aligned.
struct Layout<'a> {
    images: &'a [StreamedImage],
    section: ImageSection,
    offsets: Vec<u64>,
    size: u64,
    /// The size of that section in the program, without what other tools add.
    in_all: u64,
}

impl<'a> Layout<'a> {
    fn new(images: &'a [StreamedImage], section: ImageSection, in_all: u64) -> Result<Self> {
        let mut offsets = Vec::new();
        let mut size = 0u64;
        for image in images {
            let end = size.checked_add(image.contents.size());
            let end = end.and_then(|end| end.checked_next_multiple_of(section.align.into())).filter(|end| *end <= LARGEST);
            let Some(end) = end else {
                bail!("`{}` is too large", image.symbols.first().map_or("an image", |symbol| &symbol.name))
            };
            offsets.push(size);
            size = end;
        }
        Ok(Layout { images, section, offsets, size, in_all: in_all.max(size) })
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
            ObjectFormat::MachO => bail!("the host `{triple}` has Mach-O objects, in which no offload entries can be embedded"),
            ObjectFormat::Coff => coff::Machine::of(arch).map(Host::Coff),
            ObjectFormat::Elf => elf::Machine::of(arch, triple.ends_with("x32")).map(Host::Elf),
        };
        found.with_context(|| format!("no image object can be written for the host `{triple}`"))
    }
}

/// A writer that leaves a hole in the file for zeros.
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
