//! What [`inspect`](crate::inspect()) finds in a file, as plain data with the names that
//! `offld inspect --json` writes (docs/reference/json.md), and the bytes of each image.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::bytes_of;
use super::image::Choice;
use super::tree::Node;
use crate::error::{Error, FileError};
use crate::formats::kernels::Kernel;
use crate::io::file_slice::FileSlice;
use crate::registration::read::Registered;
use crate::sys::atomic_file;

/// The version of the report's form.
pub(crate) const SCHEMA: u32 = 1;

/// The type of a file that cannot be opened.
pub(crate) const UNREADABLE: &str = "unreadable";

/// The report on all inspected files.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// A report for each file, in the order they were named.
    pub files: Vec<FileReport>,
}

/// The report on one file.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct FileReport {
    /// The file, as it was named.
    pub file: String,
    /// Its other names, where it was found in a folder: links to it, and hard links.
    pub also: Vec<String>,
    /// Its type: `elf-executable`, `archive`, `bitcode`, `bundle`, …
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The device images, in their order in the file.
    pub images: Vec<Image>,
    /// The runtimes that it registers images with.
    pub registrations: Vec<Registration>,
    /// The tables of entries that it registers.
    pub entries: Vec<Entries>,
    /// Who linked its device code, as offld notes it.
    pub linked_by: Vec<Linker>,
    /// The errors in it, each with its place.
    pub errors: Vec<String>,
    /// What is registered, with names, where that was asked for.
    #[serde(skip)]
    pub(crate) registered: Vec<Registered>,
    /// Whether something was left out that is not selected.
    #[serde(skip)]
    pub(crate) left_out: bool,
    /// The parts of the file that hold the images, as they are nested; none without images.
    #[serde(skip)]
    pub(crate) tree: Option<Node>,
}

/// A device image.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Image {
    /// Its number in the file.
    pub index: usize,
    /// Everything that it is in, the outermost first.
    pub path: Vec<Step>,
    /// The members of archives that it is in, the outermost first.
    pub members: Vec<String>,
    /// Which members of archives these are, by number.
    #[serde(skip)]
    pub(crate) numbers: Vec<usize>,
    /// The section that it is in.
    pub section: Option<String>,
    /// The container that it is in, the innermost of them.
    pub container: Option<&'static str>,
    /// Its id in a bundle, as stored.
    pub id: Option<String>,
    /// Its offset in the file on disk (a thin archive's member is a file of its own); none if it
    /// was decompressed.
    pub offset: Option<u64>,
    /// The programming models it is for: `openmp`, `cuda`, `hip`, `sycl`; or `host`. Empty if its
    /// container does not say.
    pub kinds: Vec<String>,
    /// The triple of its device; empty if unknown.
    pub triple: String,
    /// The processor or target id; empty for any.
    pub target: String,
    /// The tools that made it, as it names them.
    pub producers: Vec<String>,
    /// The format that its OffloadBinary gives it.
    pub stored_as: Option<String>,
    /// Its format by its bytes: `elf`, `cubin`, `bitcode`, `spirv`, `ptx`, `empty`, `unknown`, …
    pub format: &'static str,
    /// An ELF file's machine.
    pub machine: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// The compressed size of what it was decompressed from: the image, or the whole bundle it is
    /// in.
    pub compressed_size: Option<u64>,
    /// The SHA-256 of its bytes.
    pub sha256: Option<String>,
    /// The flags of its OffloadBinary entry.
    pub flags: Option<u32>,
    /// The strings of its OffloadBinary entry.
    pub strings: BTreeMap<String, String>,
    /// Its kernels, if they were asked for and it is an ELF file.
    pub kernels: Option<Vec<Kernel>>,
    /// The file it was extracted to.
    pub extracted: Option<String>,
    /// Whether it is in a section of plain data, where only its headers tell that it is device
    /// code: the program loads it by itself, or hands it to a compiler.
    pub in_data: bool,
    /// What a runtime goes by when it chooses an image, where that was asked for.
    #[serde(skip)]
    pub(crate) choice: Choice,
    /// Its bytes, for extraction.
    #[serde(skip)]
    pub(crate) piece: Option<FileSlice>,
}

impl Image {
    /// Whether it is device code. A bundle's entry for the host is not.
    pub fn is_device(&self) -> bool {
        self.kinds.iter().all(|kind| kind != "host")
    }

    /// How many steps of the path lead to the archive that the image is a member of, if that
    /// archive stands where an image would: Intel's ocloc makes one of the code for several
    /// devices. None for every other image.
    pub(crate) fn steps_to_archive(&self) -> Option<usize> {
        let is_around = |step: &Step| {
            matches!(
                step,
                Step::Section { .. } | Step::Symbol { .. } | Step::Container { .. }
            )
        };
        let outer = self.path.iter().position(is_around)?;
        let member = self
            .path
            .iter()
            .skip(outer)
            .position(|step| matches!(step, Step::Member { .. }))?;
        Some(outer + member)
    }

    /// Writes the image's bytes to `out`; with `Vec<u8>` for `out`, into memory. They are read from
    /// the file that was inspected, which must not have changed, or from a temporary file where
    /// they were inflated.
    ///
    /// # Errors
    /// [`Error::Io`] when reading or writing fails. [`Error::Usage`] when the report was made
    /// without the bytes ([`InspectOptions::headers_only`](crate::InspectOptions::headers_only)).
    pub fn write_to(&self, out: &mut impl Write) -> Result<(), Error> {
        io::copy(&mut bytes_of::reader(self.kept()?), out)?;
        Ok(())
    }

    /// Writes the image's bytes to the file at `path`, which appears whole or not at all.
    ///
    /// # Errors
    /// As those of [`Image::write_to`]; [`Error::Io`] with the path when the file cannot be
    /// written.
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let written = atomic_file::replace(path, |file| Ok(self.write_to(file)?));
        written.map_err(|error| match error.downcast::<io::Error>() {
            Ok(error) => Error::of(FileError::new(path.to_owned(), &error).into()),
            Err(error) => Error::of(error),
        })
    }

    /// The image's bytes where they are: in the map of the file that was inspected, or of a
    /// temporary file where they were inflated. What is touched of them counts as memory in use;
    /// [`Image::write_to`] takes little, however large the image is.
    ///
    /// # Errors
    /// [`Error::Usage`] when the report was made without the bytes
    /// ([`InspectOptions::headers_only`](crate::InspectOptions::headers_only)).
    pub fn bytes(&self) -> Result<&[u8], Error> {
        Ok(self.kept()?.bytes())
    }

    fn kept(&self) -> Result<&FileSlice, Error> {
        self.piece
            .as_ref()
            .ok_or_else(|| Error::usage("the image was inspected without its bytes"))
    }
}

/// One of the things that enclose an image. `offset` counts from the start of the file on disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "in", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Step {
    /// A member of an archive, a zip file or a tar archive.
    Member {
        /// Its name.
        name: String,
        /// Its file, if the archive is thin.
        file: Option<String>,
        /// Where it starts; for a member of a thin archive, in its own file.
        offset: Option<u64>,
        /// Its size as stored, which may be compressed.
        size: u64,
        /// The compression method of a member of a zip file; `sparse` where a tar archive leaves
        /// out zeros.
        compression: Option<&'static str>,
        /// Its decompressed size, if it is compressed.
        plain_size: Option<u64>,
    },
    /// A file that is compressed as a whole.
    Compressed {
        /// What compressed it: `gzip`, `xz`, `zstd`, `bzip2`.
        name: &'static str,
        /// Where it starts.
        offset: Option<u64>,
        /// Its size as stored.
        size: u64,
        /// Its decompressed size; none of a tar archive, of which not all is kept.
        plain_size: Option<u64>,
    },
    /// A section of an object or program.
    Section {
        /// Its name.
        name: String,
        /// Where it starts.
        offset: Option<u64>,
        /// Its size.
        size: u64,
    },
    /// A variable of a program.
    Symbol {
        /// Its name.
        name: String,
        /// Where it starts.
        offset: Option<u64>,
        /// Its size.
        size: u64,
    },
    /// A container.
    Container {
        /// Its name.
        name: &'static str,
        /// Where it starts.
        offset: Option<u64>,
        /// Its size as stored, which may be compressed.
        size: u64,
        /// The version of its format.
        version: Option<u32>,
        /// The compression method.
        compression: Option<&'static str>,
        /// Its decompressed size, if it is compressed.
        plain_size: Option<u64>,
        /// Its offset in the enclosing data.
        #[serde(skip)]
        within: u64,
    },
}

/// A registration with a runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Registration {
    /// The members of archives that register, the outermost first.
    pub members: Vec<String>,
    /// Which members of archives these are, by number.
    #[serde(skip)]
    pub(crate) numbers: Vec<usize>,
    /// `openmp`, `cuda`, `hip`, `sycl`.
    pub runtime: &'static str,
    /// The function that is called.
    pub symbol: String,
    /// Where the function is defined: `here` in the file itself; `library` in a library that the
    /// program needs; `elsewhere` if the file is an object that leaves it undefined.
    pub found: &'static str,
    /// The needed libraries that define it.
    pub libraries: Vec<Library>,
}

/// A table of entries: what host code calls and registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Entries {
    /// The members of archives that have it, the outermost first.
    pub members: Vec<String>,
    /// Its section.
    pub section: String,
    /// How many bytes an entry has; none if that cannot be told.
    pub entry_size: Option<u64>,
    /// How many entries it has.
    pub count: Option<u64>,
    /// The releases of LLVM whose entries have this form and are in a section of this name.
    pub llvm: Option<&'static str>,
}

/// An offld that linked the device code of a file or of a member of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Linker {
    /// The members of archives that say it, the outermost first.
    pub members: Vec<String>,
    /// The version of offld.
    pub offld: String,
    /// The device compiler and its version; none if offld did not know it.
    pub device_compiler: Option<String>,
}

/// A library that a program needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Library {
    /// Its name, as the program has it.
    pub name: String,
    /// The path at which the dynamic loader would find it now.
    pub path: Option<String>,
    /// The chain of libraries through which the program needs it, starting with one that the
    /// program names; empty if it names this one.
    pub through: Vec<String>,
}

/// Where something is, for errors: `libx.a(a.o): .hip_fatbin: bundle at +0x1000`.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    pub(super) steps: Vec<Step>,
}

impl Place {
    pub(super) fn then(&self, step: Step) -> Place {
        let steps = self.steps.iter().cloned().chain([step]).collect();
        Place {
            file: self.file.clone(),
            steps,
        }
    }

    pub(super) fn members(&self) -> Vec<String> {
        let member = |step: &Step| match step {
            Step::Member { name, .. } => Some(name.clone()),
            _ => None,
        };
        self.steps.iter().filter_map(member).collect()
    }

    /// The innermost section.
    pub(super) fn section(&self) -> Option<&str> {
        self.steps.iter().rev().find_map(|step| match step {
            Step::Section { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether a container, member or file that it is in is compressed.
    pub(super) fn is_compressed(&self) -> bool {
        let packs = |step: &Step| {
            matches!(
                step,
                Step::Compressed { .. }
                    | Step::Container {
                        compression: Some(_),
                        ..
                    }
                    | Step::Member {
                        compression: Some(_),
                        ..
                    }
            )
        };
        self.steps.iter().any(packs)
    }

    /// The innermost container.
    pub(super) fn container(&self) -> Option<&'static str> {
        self.steps.iter().rev().find_map(|step| match step {
            Step::Container { name, .. } => Some(*name),
            _ => None,
        })
    }

    /// Where it is in the file.
    pub(super) fn within(&self) -> String {
        let text = Place {
            file: PathBuf::new(),
            steps: self.steps.clone(),
        }
        .to_string();
        text.strip_prefix(": ").unwrap_or(&text).to_owned()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        for step in &self.steps {
            match step {
                Step::Member { name, .. } => write!(f, "({name})")?,
                Step::Section { name, .. } | Step::Symbol { name, .. } => write!(f, ": {name}")?,
                Step::Compressed { .. } => {}
                Step::Container { name, within, .. } => write!(f, ": {name} at {within:#x}")?,
            }
        }
        Ok(())
    }
}
