//! What inspection finds, as plain data: the same that `--json` writes (docs/inspect-json.md). What changes in it so that a reader of the
//! old form would stumble changes `SCHEMA`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::formats::kernels::Kernel;
use crate::io::piece::Piece;

/// The version of the form of the report.
pub(crate) const SCHEMA: u32 = 1;

/// What a file is that cannot be opened.
pub(super) const UNREADABLE: &str = "unreadable";

/// What is in the files that were looked into.
#[derive(Serialize)]
pub(crate) struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Who wrote it.
    pub generator: String,
    /// A report for each file, in the order they were named.
    pub files: Vec<FileReport>,
}

/// What is in one file.
#[derive(Serialize)]
pub(crate) struct FileReport {
    /// The file, as it was named.
    pub file: String,
    /// What it is: `elf-executable`, `archive`, `bitcode`, `bundle`, …
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The device images, in the order of the file.
    pub images: Vec<Image>,
    /// The runtimes that it registers images with.
    pub registrations: Vec<Registration>,
    /// What is wrong with it, each naming its place.
    pub errors: Vec<String>,
}

/// A device image.
#[derive(Serialize)]
pub(crate) struct Image {
    /// Its number in the file.
    pub index: usize,
    /// Everything that it is in, the outermost first.
    pub path: Vec<Step>,
    /// The members of archives that it is in, the outermost first.
    pub members: Vec<String>,
    /// The section that it is in.
    pub section: Option<String>,
    /// The container that it is in, the innermost of them.
    pub container: Option<&'static str>,
    /// Its id in a bundle, as stored.
    pub id: Option<String>,
    /// Where it starts in the file on disk (a thin archive's member is a file of its own); none where it was inflated.
    pub offset: Option<u64>,
    /// What it is for: `openmp`, `cuda`, `hip`, `sycl`, `host`; what the container does not say is not here.
    pub kinds: Vec<String>,
    /// The triple of its device; empty where nothing says it.
    pub triple: String,
    /// The processor or target id; empty for any.
    pub target: String,
    /// What its OffloadBinary says it is.
    pub stored_as: Option<String>,
    /// What it is by its bytes: `elf`, `cubin`, `bitcode`, `spirv`, `ptx`, `empty`, `unknown`, …
    pub format: &'static str,
    /// An ELF file's machine.
    pub machine: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// The size of the compressed thing that it came out of; images of one compressed bundle share it.
    pub compressed_size: Option<u64>,
    /// The SHA-256 of its bytes.
    pub sha256: Option<String>,
    /// The flags of its OffloadBinary entry.
    pub flags: Option<u32>,
    /// The strings of its OffloadBinary entry.
    pub strings: BTreeMap<String, String>,
    /// Its kernels, where they were asked for and it is an ELF file.
    pub kernels: Option<Vec<Kernel>>,
    /// The file it was extracted to.
    pub extracted: Option<String>,
    /// Its bytes, kept for whoever extracts them.
    #[serde(skip)]
    pub(super) piece: Option<Piece>,
}

impl Image {
    /// Whether it is device code: a bundle's entry for the host is not.
    pub(crate) fn is_device(&self) -> bool {
        self.kinds.iter().all(|kind| kind != "host")
    }
}

/// Something that an image is in. `offset` is where it starts in the file on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "in", rename_all = "kebab-case")]
pub(crate) enum Step {
    /// A member of an archive.
    Member {
        /// Its name.
        name: String,
        /// The file that it is, in a thin archive.
        file: Option<String>,
        /// Where it starts; of a thin archive's member, in its own file.
        offset: Option<u64>,
        /// Its size.
        size: u64,
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
    /// A container; named as `Image::container` is.
    Container {
        /// Its name.
        name: &'static str,
        /// Where it starts.
        offset: Option<u64>,
        /// Its size, compressed where it is.
        size: u64,
        /// The version of its format.
        version: Option<u32>,
        /// How it is compressed.
        compression: Option<&'static str>,
        /// Its size when it is not compressed, where it is.
        plain_size: Option<u64>,
        /// How far into what it is in it starts.
        #[serde(skip)]
        within: u64,
    },
}

/// A registration with a runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Registration {
    /// The members of archives that register, the outermost first.
    pub members: Vec<String>,
    /// `openmp`, `cuda`, `hip`, `sycl`.
    pub runtime: &'static str,
    /// The function that is called.
    pub symbol: String,
    /// Where the function is: `elsewhere` in an object or archive, `library` in a program that needs it from one, `here` where the file
    /// has it itself.
    pub found: &'static str,
    /// The needed libraries that bring it.
    pub libraries: Vec<Library>,
}

/// A library that a program needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Library {
    /// Its name, as the program has it.
    pub name: String,
    /// Where it is found as the program would be started now.
    pub path: Option<String>,
    /// The libraries by which the program needs it, if it does not name it itself; the first is the program's own.
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
        Place { file: self.file.clone(), steps }
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

    /// The innermost container.
    pub(super) fn container(&self) -> Option<&'static str> {
        self.steps.iter().rev().find_map(|step| match step {
            Step::Container { name, .. } => Some(*name),
            _ => None,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        for step in &self.steps {
            match step {
                Step::Member { name, .. } => write!(f, "({name})")?,
                Step::Section { name, .. } | Step::Symbol { name, .. } => write!(f, ": {name}")?,
                Step::Container { name, within, .. } => write!(f, ": {name} at {within:#x}")?,
            }
        }
        Ok(())
    }
}
