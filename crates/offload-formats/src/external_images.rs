//! External images: device code in files beside a program, which the program loads when it starts.
//!
//! A program that is linked with `--wrapper-external-images` has no images. For each of its
//! registrations, the section [`SECTION`] has a table ([`Table`]) that names a directory and the
//! files in it. The registration code reads the table, maps the files that fit the devices of the
//! machine, and passes them to the runtime (`src/bin/offld-llvm/external_images/loader.c`). Each
//! table is aligned to 8 bytes; zeros follow it up to the next one. All numbers are little-endian,
//! and offsets are relative to the table:
//!
//! | bytes of the table | contents |
//! |---|---|
//! | 0 to 7 | `OFFLDIMG` |
//! | 8 to 11 | the version, 1 |
//! | 12 to 15 | the runtime: 1 OpenMP, 2 CUDA, 4 HIP |
//! | 16 to 19 | the size of the table in bytes |
//! | 20 to 23 | the number of images |
//! | 24 to 27 | the offset of the directory's path |
//! | 28 to 31 | 0 |
//! | 32 and later | one row of 40 bytes for each image |
//! | after the rows | texts |
//!
//! | bytes of a row | contents |
//! |---|---|
//! | 0 to 7 | the size of the file in bytes |
//! | 8 to 15 | XXH64 of the file, with seed 0 |
//! | 16 to 19 | the offset of the file name, without the directory |
//! | 20 to 23 | the offset of the image's ID: a triple, or for HIP the ID in a bundle |
//! | 24 to 27 | the offset of the architecture |
//! | 28 to 31 | the devices: 0 any, 1 the host's CPU, 2 an AMD GPU, 3 a family of AMD GPUs |
//! | 32 to 35 | the version of the AMD GPU, 90010 for gfx90a, or the family, 9 for gfx9-4-generic |
//! | 36 to 39 | 0 |
//!
//! A zero ends each text. A file is the image itself, as the runtime takes it; for CUDA it is a
//! fatbinary with one image.

use xxhash_rust::xxh64::Xxh64;

use crate::bytes::{c_string, slice, u32_at, u64_at};
use crate::error::Malformed;
use crate::model::OffloadKind;
use crate::target::Target;

/// The section with the tables.
pub const SECTION: &str = ".offld_images";
/// The alignment of a table, in bytes.
pub const ALIGN: u32 = 8;
/// The first bytes of a table.
pub const MAGIC: [u8; 8] = *b"OFFLDIMG";
const VERSION: u32 = 1;
const HEADER: usize = 32;
const ROW: usize = 40;

/// The images of one registration that are in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The runtime.
    pub kind: OffloadKind,
    /// The directory with the files: absolute, or relative to the directory of the program or
    /// library.
    pub directory: String,
    /// The images in the runtime's order.
    pub images: Vec<ExternalImage>,
}

/// An image in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalImage {
    /// The file's name in the directory.
    pub name: String,
    /// OpenMP: the triple. HIP: the ID in a bundle. CUDA: empty.
    pub id: String,
    /// The architecture: `gfx90a:xnack+`, `sm_90`; the first component of the triple for a CPU.
    pub arch: String,
    /// The size of the file in bytes.
    pub size: u64,
    /// The file's digest.
    pub digest: u64,
    /// The devices for which a program loads the image.
    pub devices: Devices,
}

/// The devices for which a program loads an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Devices {
    /// The image is always loaded: only a runtime can detect such devices.
    Any,
    /// The host's CPU.
    Host,
    /// AMD GPUs with this version, as the driver spells it: 90010 for gfx90a.
    Amd(u32),
    /// AMD GPUs of this major version, some of which run the image. Later releases may add
    /// processors to a family, so a program cannot list them.
    AmdFamily(u32),
}

impl Devices {
    /// The devices of an image for `target`, in a program whose CPU is `host_arch`.
    pub fn of(target: &Target, host_arch: &str) -> Devices {
        if target.is_cpu() && target.arch_name() == host_arch {
            return Devices::Host;
        }
        if !target.is_amdgcn() {
            return Devices::Any;
        }
        let id = target.target_id().unwrap_or_default();
        let processor = id.split(':').next().unwrap_or_default();
        amd_devices(processor).unwrap_or(Devices::Any)
    }

    /// The two fields of a row: the kind of devices, and the version or family (0: none).
    fn numbers(&self) -> [u32; 2] {
        match self {
            Devices::Any => [0, 0],
            Devices::Host => [1, 0],
            Devices::Amd(version) => [2, *version],
            Devices::AmdFamily(major) => [3, *major],
        }
    }
}

/// The devices that run code for an AMD processor; none for names of another form.
fn amd_devices(processor: &str) -> Option<Devices> {
    let number = processor.strip_prefix("gfx")?;
    if let Some(family) = number.strip_suffix("-generic") {
        let major = family.split('-').next().unwrap_or_default();
        return Some(Devices::AmdFamily(major.parse().ok()?));
    }
    let (major, rest) = number.split_at_checked(number.len().checked_sub(2)?)?;
    let (minor, stepping) = rest.split_at_checked(1)?;
    let [minor, stepping] = [minor, stepping].map(|digit| u32::from_str_radix(digit, 16));
    let version = major.parse::<u32>().ok()? * 10_000 + minor.ok()? * 100 + stepping.ok()?;
    Some(Devices::Amd(version))
}

/// Digest of a file with an image.
#[derive(Clone)]
pub struct Digest(Xxh64);

impl Default for Digest {
    fn default() -> Self {
        Digest(Xxh64::new(0))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Digest({:016x})", self.finish())
    }
}

impl Digest {
    /// The digest of all bytes that were written.
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

impl std::io::Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Table {
    /// The bytes of the table; none if it is larger than 4 GiB, or a text has a zero.
    pub fn write(&self) -> Option<Vec<u8>> {
        let mut rows = Vec::new();
        let mut rest = Rest {
            start: HEADER + ROW * self.images.len(),
            bytes: Vec::new(),
        };
        for image in &self.images {
            rows.extend(image.size.to_le_bytes());
            rows.extend(image.digest.to_le_bytes());
            let [devices, version] = image.devices.numbers();
            let words = [
                rest.text(&image.name)?,
                rest.text(&image.id)?,
                rest.text(&image.arch)?,
                devices,
                version,
                0,
            ];
            rows.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        let directory = rest.text(&self.directory)?;
        let mut bytes = MAGIC.to_vec();
        let words = [
            VERSION,
            self.kind as u32,
            rest.end()?,
            u32::try_from(self.images.len()).ok()?,
            directory,
            0,
        ];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.append(&mut rows);
        bytes.append(&mut rest.bytes);
        Some(bytes)
    }

    /// Reads the table at the start of `data`.
    ///
    /// # Errors
    /// The table is damaged, or of another version.
    fn read(data: &[u8]) -> Result<(Table, usize), Malformed> {
        let header = slice(data, 0, HEADER as u64, "table of images past the end", 0)?;
        if !header.starts_with(&MAGIC) {
            return Err(Malformed::new("not a table of external images", 0));
        }
        if u32_at(header, 8) != VERSION {
            return Err(Malformed::new("unknown version of external images", 8));
        }
        let number = u32_at(header, 12);
        let kind = OffloadKind::ALL
            .into_iter()
            .find(|kind| *kind as u32 == number)
            .ok_or(Malformed::new("unknown runtime of external images", 12))?;
        let size = u32_at(header, 16);
        let table = slice(data, 0, size.into(), "table of images past the end", 16)?;
        let count = u64::from(u32_at(header, 20));
        let rows = slice(
            table,
            HEADER as u64,
            count * ROW as u64,
            "images past the end of their table",
            20,
        )?;
        let images = rows
            .chunks_exact(ROW)
            .enumerate()
            .map(|(index, row)| read_row(table, row, HEADER + index * ROW))
            .collect::<Result<_, _>>()?;
        let table = Table {
            kind,
            directory: text(table, header, 24, 0)?,
            images,
        };
        Ok((table, size as usize))
    }
}

/// The bytes after the rows of a table.
struct Rest {
    start: usize,
    bytes: Vec<u8>,
}

impl Rest {
    fn end(&self) -> Option<u32> {
        u32::try_from(self.start.checked_add(self.bytes.len())?).ok()
    }

    /// Adds `text`, and returns its offset in the table.
    fn text(&mut self, text: &str) -> Option<u32> {
        if text.contains('\0') {
            return None;
        }
        let at = self.end()?;
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        Some(at)
    }
}

/// Reads a text of the table. Its offset is the number at `field` in `record`. `base` is the offset
/// of `record` in the table, for errors.
fn text(table: &[u8], record: &[u8], field: usize, base: usize) -> Result<String, Malformed> {
    let fault = |what| Malformed::new(what, (base + field) as u64);
    let rest = usize::try_from(u32_at(record, field))
        .ok()
        .and_then(|at| table.get(at..))
        .ok_or(fault("text past the end of the table of images"))?;
    let bytes = c_string(rest).ok_or(fault("text without an end in the table of images"))?;
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned)
        .map_err(|_| fault("text of the table of images is not UTF-8"))
}

fn read_row(table: &[u8], row: &[u8], base: usize) -> Result<ExternalImage, Malformed> {
    let name = text(table, row, 16, base)?;
    if matches!(name.as_str(), "" | "." | "..") || name.contains('/') {
        let what = "a file name of the table of images is a path";
        return Err(Malformed::new(what, base as u64 + 16));
    }
    Ok(ExternalImage {
        name,
        id: text(table, row, 20, base)?,
        arch: text(table, row, 24, base)?,
        size: u64_at(row, 0),
        digest: u64_at(row, 8),
        devices: match u32_at(row, 28) {
            0 => Devices::Any,
            1 => Devices::Host,
            2 => Devices::Amd(u32_at(row, 32)),
            3 => Devices::AmdFamily(u32_at(row, 32)),
            _ => {
                let what = "unknown devices in the table of images";
                return Err(Malformed::new(what, base as u64 + 28));
            }
        },
    })
}

/// Reads the tables in the section `data`.
///
/// # Errors
/// A table is damaged, or of another version.
pub fn read_all(data: &[u8]) -> Result<Vec<Table>, Malformed> {
    let mut tables = Vec::new();
    let mut at = 0;
    while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
        let zeros = crate::bytes::zeros(rest);
        if zeros > 0 {
            at += zeros;
            continue;
        }
        let (table, size) = Table::read(rest).map_err(|fault| fault.shifted(at as u64))?;
        tables.push(table);
        at += size;
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn table() -> Table {
        let image = |name: &str, arch: &str, devices| ExternalImage {
            name: name.to_owned(),
            id: format!("hipv4-amdgcn-amd-amdhsa--{arch}"),
            arch: arch.to_owned(),
            size: 4096,
            digest: 0x0123_4567_89ab_cdef,
            devices,
        };
        Table {
            kind: OffloadKind::Hip,
            directory: "saxpy.images".to_owned(),
            images: vec![
                image("gfx90a-1.co", "gfx90a", Devices::Amd(90010)),
                image("x.img", "x86_64", Devices::Host),
                image("s.spv", "amdgcnspirv", Devices::Any),
            ],
        }
    }

    #[test]
    fn tables_are_read_as_they_are_written() {
        let one = table().write().unwrap();
        assert_eq!(read_all(&one), Ok(vec![table()]));
        // Tables of several objects, aligned by the linker.
        let mut both = one.clone();
        both.resize(both.len().next_multiple_of(ALIGN as usize), 0);
        both.extend(&one);
        both.extend([0; 5]);
        assert_eq!(read_all(&both), Ok(vec![table(), table()]));
        assert_eq!(read_all(&[0; 64]), Ok(Vec::new()));
    }

    #[test]
    fn every_damaged_byte_is_harmless() {
        let good = table().write().unwrap();
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = read_all(&bad);
            }
            assert!(read_all(&good[..at]).is_err() || at == 0, "{at}");
        }
        let mut bad = good.clone();
        bad[8] = 2;
        let fault = read_all(&bad).unwrap_err();
        assert_eq!(
            (fault.what, fault.at),
            ("unknown version of external images", 8)
        );
    }

    #[test]
    fn file_names_are_not_paths() {
        for name in ["", ".", "..", "../x", "/etc/passwd"] {
            let mut table = table();
            table.images[1].name = name.to_owned();
            let fault = read_all(&table.write().unwrap()).unwrap_err();
            let at = HEADER + ROW + 16;
            let what = "a file name of the table of images is a path";
            assert_eq!((fault.what, fault.at), (what, at as u64), "{name:?}");
        }
        let mut table = table();
        table.directory = "a\0b".to_owned();
        assert_eq!(table.write(), None);
    }

    #[test]
    fn devices_are_those_that_run_the_code() {
        let of = |triple: &str, arch: &str| Devices::of(&Target::new(triple, arch), "x86_64");
        let amd = "amdgcn-amd-amdhsa";
        assert_eq!(of(amd, "gfx90a:xnack+"), Devices::Amd(90010));
        assert_eq!(of(amd, "gfx1100"), Devices::Amd(110_000));
        assert_eq!(of(amd, "gfx9-4-generic"), Devices::AmdFamily(9));
        assert_eq!(of(amd, "gfx1250-strict"), Devices::Any);
        assert_eq!(of("x86_64-pc-linux-gnu", ""), Devices::Host);
        assert_eq!(of("aarch64-linux-gnu", ""), Devices::Any);
        assert_eq!(of("nvptx64-nvidia-cuda", "sm_90"), Devices::Any);
        assert_eq!(of("spirv64-amd-amdhsa", "amdgcnspirv"), Devices::Any);
    }

    #[test]
    fn the_digest_is_that_of_the_loader() {
        // From the specification of XXH64, and `xxhsum -H1`.
        let digest = |bytes: &[u8]| {
            let mut digest = Digest::default();
            digest.write_all(bytes).unwrap();
            digest.finish()
        };
        assert_eq!(digest(b""), 0xef46_db37_51d8_e999);
        assert_eq!(digest(b"abc"), 0x44bc_2cf5_ad77_0999);
    }
}
