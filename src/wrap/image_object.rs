//! Images as an object of their own, streamed: memory does not grow with the images (fault F32; decision 9). The object's
//! skeleton is written with holes for the images' bodies, which the system then copies from their files.
//!
//! Registration code refers to the images by hidden symbols (`ImagePlace::External`).

mod coff;
mod elf;

#[cfg(test)]
mod tests;

use super::ImageSection;
use crate::model::ObjectFormat;
use anyhow::{Context as _, Result, bail};
use object::write::WritableBuffer;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write, copy};
use std::path::PathBuf;

/// An image whose bytes are in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamedImage {
    /// The hidden symbol at its start, as registration code names it.
    pub symbol: String,
    /// What comes before the bytes in the file (`offload_binary::Frame::head`).
    pub head: Vec<u8>,
    /// The file.
    pub body: PathBuf,
    /// Where in the file they start.
    pub body_at: u64,
    /// How many there are.
    pub body_size: u64,
    /// Size of head, body, and the zeros after them.
    pub total_size: u64,
}

/// Writes the object that holds `images` in `section`, for a host, to `out`, from its start.
pub fn write(out: &mut File, host_triple: &str, section: ImageSection, images: &[StreamedImage]) -> Result<()> {
    let layout = Layout::new(images, section)?;
    out.set_len(0)?;
    out.rewind()?;
    let mut holes = Holes { out: BufWriter::new(&mut *out), result: Ok(()) };
    let section_at = match Host::of(host_triple)? {
        Host::Elf(machine) => elf::skeleton(&mut holes, machine, &layout),
        Host::Coff(machine) => coff::skeleton(&mut holes, machine, &layout),
    }?;
    holes.finish()?;
    for (image, offset) in images.iter().zip(&layout.offsets) {
        out.seek(SeekFrom::Start(section_at + offset))?;
        out.write_all(&image.head)?;
        if image.body_size == 0 {
            continue;
        }
        let mut body = File::open(&image.body).with_context(|| image.body.display().to_string())?;
        body.seek(SeekFrom::Start(image.body_at)).with_context(|| image.body.display().to_string())?;
        // On Linux the bytes are copied inside the kernel, or shared where the file system can.
        let copied = copy(&mut body.take(image.body_size), out).with_context(|| image.body.display().to_string())?;
        if copied != image.body_size {
            bail!("{}: {copied} bytes, where {} were expected", image.body.display(), image.body_size);
        }
    }
    Ok(())
}

/// What the skeletons share: one section, and where the images are in it.
struct Layout<'a> {
    images: &'a [StreamedImage],
    section: ImageSection,
    offsets: Vec<u64>,
    size: u64,
}

impl<'a> Layout<'a> {
    fn new(images: &'a [StreamedImage], section: ImageSection) -> Result<Self> {
        let mut offsets = Vec::new();
        let mut size = 0u64;
        for image in images {
            let held = (image.head.len() as u64).checked_add(image.body_size);
            let end = size.checked_add(image.total_size).and_then(|end| end.checked_next_multiple_of(section.align.into()));
            let (Some(held), Some(end)) = (held, end) else { bail!("`{}` is too large", image.symbol) };
            if held > image.total_size {
                bail!("`{}` has {held} bytes, but room for {}", image.symbol, image.total_size);
            }
            offsets.push(size);
            size = end;
        }
        Ok(Layout { images, section, offsets, size })
    }
}

/// The kind of a host's objects, and what they say the machine is.
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

/// A file in which zeros are holes.
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
