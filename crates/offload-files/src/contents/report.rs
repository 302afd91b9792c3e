//! Results of `offld::inspect` as plain data, and the bytes of each image. The names
//! are those of `offld inspect --json` (docs/reference/json.md).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::bytes_of;
use super::tree::Node;
use offld_system::atomic_file;
use offld_system::io::file_slice::FileSlice;
use offload_formats::error::{Error, FileError};
use offload_formats::gpu::Gpu;
use offload_formats::kernels::Kernel;
use offload_formats::kernels::code::CodeDigest;
use offload_formats::ptx;
use offload_formats::registration::read::Registered;

/// The version of the report's format.
pub(crate) const SCHEMA: u32 = 1;

/// The type of a file that cannot be opened.
pub(crate) const UNREADABLE: &str = "unreadable";

/// The report on all inspected files.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `SCHEMA`.
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// A report for each file, in the order of the command line.
    pub files: Vec<FileReport>,
}

/// The report on one file.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct FileReport {
    /// The file, as given by the caller.
    pub file: String,
    /// Its other names in the inspected directories: symbolic links and hard links to it.
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
    /// The modules that register themselves: those of nvcc's relocatable code, and the translation
    /// units of HIP's old driver.
    pub modules: Vec<Module>,
    /// The versions of offld that linked its device code, from notes in the file.
    pub linked_by: Vec<Linker>,
    /// The references to kpack archives.
    pub kpack: Vec<PackReference>,
    /// The images in files beside the programs.
    pub external: Vec<ExternalImages>,
    /// The contradictions in kpack archives, and between archives and programs.
    pub faults: Vec<Fault>,
    /// The errors in it, each with its location.
    pub errors: Vec<String>,
    /// The registered entries with their names, if requested.
    #[serde(skip)]
    pub(crate) registered: Vec<Registered>,
    /// Whether a file or member that is not selected was skipped.
    #[serde(skip)]
    pub(crate) left_out: bool,
    /// The parts of the file that hold the images, as they are nested; none without images.
    #[serde(skip)]
    pub(crate) tree: Option<Node>,
}

/// A module that registers its own kernels and variables, once a device link has its code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Module {
    /// The archive members that contain it, the outermost first.
    pub members: Vec<String>,
    /// The runtime: `cuda` or `hip`.
    pub runtime: &'static str,
    /// Its ID: `_31f2b892_4_a_cu_table`. Empty for HIP code of old compilers.
    pub id: String,
    /// Whether a device link has its code, so that the program can use it.
    pub linked: bool,
}

/// A program's reference to kpack archives, which have its device code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PackReference {
    /// The archive members that contain the program, the outermost first.
    pub members: Vec<String>,
    /// The indices of these archive members.
    #[serde(skip)]
    pub(crate) numbers: Vec<usize>,
    /// The path of the program in its installation, under which archives list its code:
    /// `lib/librccl.so`.
    pub binary: String,
    /// The paths of archives, relative to the directory of the program. `@GFXARCH@` stands for an
    /// architecture.
    pub search_paths: Vec<String>,
    /// The numbers of the registrations whose code is in archives.
    pub registrations: Vec<u32>,
    /// The archives with code of the program; empty if they were not searched for.
    pub packs: Vec<Pack>,
}

/// A kpack archive with code of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pack {
    /// Its path, relative to the directory of the program.
    pub file: String,
    /// The architectures of the program's code in it.
    pub architectures: Vec<String>,
    /// The number of the program's code objects in it.
    pub images: usize,
}

/// The images of one registration that are in files beside the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExternalImages {
    /// The archive members that contain the program, the outermost first.
    pub members: Vec<String>,
    /// The indices of these archive members.
    #[serde(skip)]
    pub(crate) numbers: Vec<usize>,
    /// The runtime: `openmp`, `cuda`, `hip`.
    pub runtime: &'static str,
    /// The directory of the files, relative to the directory of the program.
    pub directory: String,
    /// The files.
    pub files: Vec<ExternalFile>,
}

/// A file with an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExternalFile {
    /// Its name in the directory.
    pub name: String,
    /// The architecture of the image.
    pub target: String,
    /// Its size in bytes, according to the program.
    pub size: u64,
    /// Whether it is there; none if it was not searched for.
    pub found: Option<bool>,
}

/// A contradiction in a kpack archive, or between archives and the program that refers to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fault {
    /// The archive members that contain it, the outermost first.
    pub members: Vec<String>,
    /// The sort of fault: `missing`, `foreign`, `swapped`, `incomplete`, `hides`, `not-registered`,
    /// `not-listed`, `no-code`, `no-number`, `wrong-size`.
    pub what: &'static str,
    /// The runtime that loads the code: `hip`, and `openmp` or `cuda` for external images.
    pub runtime: &'static str,
    /// The fault as a message.
    pub text: String,
}

/// A device image.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Image {
    /// Its number in the file.
    pub index: usize,
    /// Everything that contains it, the outermost first.
    pub path: Vec<Step>,
    /// The archive members that contain it, the outermost first.
    pub members: Vec<String>,
    /// The indices of these archive members.
    #[serde(skip)]
    pub(crate) numbers: Vec<usize>,
    /// The section that contains it.
    pub section: Option<String>,
    /// The innermost container that contains it.
    pub container: Option<&'static str>,
    /// Its id in a bundle, as stored. In a kpack archive, the program and the number of its
    /// registration: `lib/librccl.so#0`.
    pub id: Option<String>,
    /// Its offset in the file on disk; none if it was decompressed. A member of a thin archive is a
    /// file of its own.
    pub offset: Option<u64>,
    /// The programming models it is for: `openmp`, `cuda`, `hip`, `sycl`; or `host`. Empty if its
    /// container does not name any.
    pub kinds: Vec<String>,
    /// The triple of its device; empty if unknown.
    pub triple: String,
    /// The processor or target id; empty for any.
    pub target: String,
    /// The tools that made it, as recorded in the image.
    pub producers: Vec<String>,
    /// The format that its OffloadBinary records.
    pub stored_as: Option<String>,
    /// Its format by its bytes: `elf`, `cubin`, `bitcode`, `spirv`, `ptx`, `empty`, `unknown`, …
    pub format: &'static str,
    /// The machine of an ELF file.
    pub machine: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// The compressed size of the data that it was decompressed from: the image, or the whole
    /// bundle.
    pub compressed_size: Option<u64>,
    /// The SHA-256 of its bytes.
    pub sha256: Option<String>,
    /// The flags of its OffloadBinary entry.
    pub flags: Option<u32>,
    /// The strings of its OffloadBinary entry.
    pub strings: BTreeMap<String, String>,
    /// Its kernels, if requested and if it is an ELF file.
    pub kernels: Option<Vec<Kernel>>,
    /// The digests of the code of its kernels, by name, if requested.
    #[serde(skip)]
    pub(crate) codes: Option<HashMap<String, CodeDigest>>,
    /// The file that it was extracted to.
    pub extracted: Option<String>,
    /// Whether it is in a section of plain data, where only its headers identify it as device code.
    /// The program loads it by itself, or passes it to a compiler.
    pub in_data: bool,
    /// Whether it is a cubin with neither code nor data: nvcc adds such images to sources without
    /// device code.
    #[serde(skip)]
    pub(crate) is_void: bool,
    /// The properties by which a runtime chooses an image, if requested.
    #[serde(skip)]
    pub(crate) choice: Choice,
    /// Its bytes, for extraction.
    #[serde(skip)]
    pub(crate) piece: Option<FileSlice>,
}

/// Properties by which a runtime chooses one of several images: the device in the image's own
/// bytes, in addition to the metadata of its container, and the names that the runtime looks up in
/// images that are not ELF files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    /// The GPU in its ELF header.
    pub(crate) gpu: Option<Gpu>,
    /// `EI_ABIVERSION` of its ELF header. For AMD images, the version of the code object minus 2.
    pub(crate) abi_version: Option<u8>,
    /// Whether it is an ELF object that has to be linked before it can be loaded.
    pub(crate) is_relocatable: bool,
    /// Whether it is SPIR-V for graphics, as Vulkan loads it, without a compute kernel of OpenCL or
    /// SYCL.
    pub(crate) is_shader: bool,
    /// The directives at the head of PTX.
    pub(crate) ptx: Option<ptx::Head>,
    /// A kernel whose register and scratch counts may be too small, because it was compiled without
    /// some functions that it calls.
    pub(crate) open_kernel: Option<String>,
    /// The compression method in its fatbinary: `zstd`, `lz4`.
    pub(crate) compression: Option<&'static str>,
    /// The kernels of PTX, or every symbol that bitcode defines.
    pub(crate) names: Option<Vec<String>>,
}

impl Image {
    /// Whether it is device code. A bundle's entry for the host is not.
    pub fn is_device(&self) -> bool {
        self.kinds.iter().all(|kind| kind != "host")
    }

    /// The architecture as reports name it. For PTX it is the virtual architecture (`compute_90`),
    /// and without an architecture the triple.
    pub fn arch(&self) -> String {
        if !self.is_device() {
            return "host".to_owned();
        }
        match self.target.strip_prefix("sm_") {
            Some(number) if self.format == "ptx" => format!("compute_{number}"),
            Some(number) if self.format == "lto-ir" => format!("lto_{number}"),
            _ if !self.target.is_empty() => self.target.clone(),
            _ if !self.triple.is_empty() => self.triple.clone(),
            _ => "unknown".to_owned(),
        }
    }

    /// The number of steps of the path to the archive that contains the image, if that archive
    /// takes the place of an image: Intel's ocloc makes an archive of the code for several devices.
    /// None for every other image.
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

    /// Writes the image's bytes to `out`, for example to a `Vec<u8>`. The bytes come from the
    /// inspected file, which must not have changed, or from a temporary file with decompressed
    /// data.
    ///
    /// # Errors
    /// [`Error::Io`] if reading or writing fails. [`Error::Usage`] if the report was made without
    /// the bytes (`InspectOptions::headers_only`).
    pub fn write_to(&self, out: &mut impl Write) -> Result<(), Error> {
        io::copy(&mut bytes_of::reader(self.stored_bytes()?), out)?;
        Ok(())
    }

    /// Writes the image's bytes to the file at `path`, atomically: the file is never incomplete.
    ///
    /// # Errors
    /// The same as [`Image::write_to`]; [`Error::Io`] with the path if the file cannot be written.
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let written = atomic_file::replace(path, |file| Ok(self.write_to(file)?));
        written.map_err(|error| match error.downcast::<io::Error>() {
            Ok(error) => Error::of(FileError::new(path.to_owned(), &error).into()),
            Err(error) => Error::of(error),
        })
    }

    /// The image's bytes in place: in the memory map of the inspected file, or of a temporary file
    /// with decompressed data. Accessed pages count as memory in use; [`Image::write_to`] takes
    /// little memory for images of any size.
    ///
    /// # Errors
    /// [`Error::Usage`] if the report was made without the bytes
    /// (`InspectOptions::headers_only`).
    pub fn bytes(&self) -> Result<&[u8], Error> {
        Ok(self.stored_bytes()?.bytes())
    }

    fn stored_bytes(&self) -> Result<&FileSlice, Error> {
        self.piece
            .as_ref()
            .ok_or_else(|| Error::usage("the image was inspected without its bytes"))
    }
}

/// An item that contains an image. `offset` counts from the start of the file on disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "in", rename_all = "kebab-case")]
pub enum Step {
    /// A member of an archive, a zip file or a tar archive.
    Member {
        /// Its name.
        name: String,
        /// Its file, if the archive is thin.
        file: Option<String>,
        /// Its start; for a member of a thin archive, in the member's own file.
        offset: Option<u64>,
        /// Its size as stored, which may be compressed.
        size: u64,
        /// The compression method of a member of a zip file; `sparse` if a tar archive omits zeros.
        compression: Option<&'static str>,
        /// Its uncompressed size, if it is compressed.
        plain_size: Option<u64>,
    },
    /// A file beside a program, with an image that the program loads when it starts.
    File {
        /// Its name in the directory that the program names.
        name: String,
        /// Its path.
        file: String,
        /// Its size.
        size: u64,
    },
    /// A file that is compressed as a whole.
    Compressed {
        /// The compression method: `gzip`, `xz`, `zstd`, `bzip2`.
        name: &'static str,
        /// Its start.
        offset: Option<u64>,
        /// Its size as stored.
        size: u64,
        /// Its uncompressed size; none for a tar archive, which is not decompressed as a whole.
        plain_size: Option<u64>,
    },
    /// A section of an object or program.
    Section {
        /// Its name.
        name: String,
        /// Its start.
        offset: Option<u64>,
        /// Its size.
        size: u64,
    },
    /// A variable of a program.
    Symbol {
        /// Its name.
        name: String,
        /// Its start.
        offset: Option<u64>,
        /// Its size.
        size: u64,
    },
    /// A container.
    Container {
        /// Its name.
        name: &'static str,
        /// Its start.
        offset: Option<u64>,
        /// Its size as stored, which may be compressed.
        size: u64,
        /// The version of its format.
        version: Option<u32>,
        /// The compression method.
        compression: Option<&'static str>,
        /// Its uncompressed size, if it is compressed.
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
    /// The archive members that register, the outermost first.
    pub members: Vec<String>,
    /// The indices of these archive members.
    #[serde(skip)]
    pub(crate) numbers: Vec<usize>,
    /// `openmp`, `cuda`, `hip`, `sycl`.
    pub runtime: &'static str,
    /// The function that is called.
    pub symbol: String,
    /// Where the function is defined: `here` for the file itself; `library` for a library that the
    /// program needs; `elsewhere` if the file is an object that leaves it undefined.
    pub found: &'static str,
    /// The needed libraries that define it.
    pub libraries: Vec<Library>,
}

/// A table of entries: the kernels and variables that host code calls and registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Entries {
    /// The archive members that contain it, the outermost first.
    pub members: Vec<String>,
    /// Its section.
    pub section: String,
    /// The size of an entry in bytes; none if unknown.
    pub entry_size: Option<u64>,
    /// The number of entries.
    pub count: Option<u64>,
    /// The LLVM releases whose entries have this layout and a section of this name.
    pub llvm: Option<&'static str>,
}

/// A version of offld that linked the device code of a file or member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Linker {
    /// The archive members with the note, the outermost first.
    pub members: Vec<String>,
    /// The version of offld.
    pub offld: String,
    /// The device compiler and its version; none if offld did not know them.
    pub device_compiler: Option<String>,
}

/// A library that a program needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Library {
    /// Its name, as the program has it.
    pub name: String,
    /// The path at which the dynamic loader would find it on this machine.
    pub path: Option<String>,
    /// The chain of libraries through which the program needs it. The program names the first one.
    /// Empty if the program names this library itself.
    pub through: Vec<String>,
}

/// A location, for error messages: `libx.a(a.o): .hip_fatbin: bundle at +0x1000`.
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

    /// Whether a container, member or file around it is compressed.
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

    /// The location in the file, without the name of the file.
    pub(super) fn within(&self) -> String {
        let text = Place {
            file: PathBuf::new(),
            steps: self.steps.clone(),
        }
        .to_string();
        text.strip_prefix(": ").unwrap_or(&text).to_owned()
    }
}

/// The name of the container of external images.
pub(crate) const EXTERNAL_IMAGES: &str = "external-images";

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        for step in &self.steps {
            match step {
                Step::Member { name, .. } => write!(f, "({name})")?,
                Step::Section { name, .. } | Step::Symbol { name, .. } => write!(f, ": {name}")?,
                Step::Compressed { .. } => {}
                Step::File { file, .. } => write!(f, ": {file}")?,
                Step::Container {
                    name: EXTERNAL_IMAGES,
                    ..
                } => {}
                Step::Container { name, within, .. } => write!(f, ": {name} at {within:#x}")?,
            }
        }
        Ok(())
    }
}
