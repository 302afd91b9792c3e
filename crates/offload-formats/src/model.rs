//! Types that all stages share: offload kinds, image kinds, the origin of an image, and the
//! generation of a host object's entry table. Plain values; nothing here reads files or runs
//! programs.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A programming model whose runtime an image is registered with. The values are the bits LLVM 21
/// and later store (docs/spec/link-driver.md 4.1, 8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u16)]
pub enum OffloadKind {
    /// OpenMP, registered with libomptarget.
    OpenMp = 1,
    /// CUDA, registered with the CUDA runtime.
    Cuda = 2,
    /// HIP, registered with the HIP runtime.
    Hip = 4,
    /// SYCL, registered with the SYCL runtime.
    Sycl = 8,
}

impl OffloadKind {
    /// All kinds, in the order in which they are bundled, registered and added to the host link,
    /// whatever the order of the inputs.
    pub const ALL: [OffloadKind; 4] = [
        OffloadKind::OpenMp,
        OffloadKind::Cuda,
        OffloadKind::Hip,
        OffloadKind::Sycl,
    ];

    /// The name used on command lines and in file names: `openmp`, `cuda`, `hip`, `sycl`.
    pub fn name(self) -> &'static str {
        match self {
            OffloadKind::OpenMp => "openmp",
            OffloadKind::Cuda => "cuda",
            OffloadKind::Hip => "hip",
            OffloadKind::Sycl => "sycl",
        }
    }

    /// The name in messages: `OpenMP`, `CUDA`, `HIP`, `SYCL`.
    pub fn title(self) -> &'static str {
        match self {
            OffloadKind::OpenMp => "OpenMP",
            OffloadKind::Cuda => "CUDA",
            OffloadKind::Hip => "HIP",
            OffloadKind::Sycl => "SYCL",
        }
    }

    /// Returns the title of the kind with this `name`, or `name` itself if there is no such kind.
    pub fn title_of(name: &'static str) -> &'static str {
        OffloadKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .map_or(name, OffloadKind::title)
    }
}

/// A set of kinds: one linked image may be registered with several runtimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct OffloadKinds(u16);

impl OffloadKinds {
    /// The set for an image's stored kind. HIP was 3 up to LLVM 20, so 3 means HIP for an AMD
    /// triple; elsewhere it is OpenMP and CUDA together (docs/spec/faults.md F19).
    pub fn from_stored(raw: u16, triple: &str) -> Self {
        let amd = ["amdgcn", "amdgpu", "spirv64-amd"]
            .iter()
            .any(|start| triple.starts_with(start));
        if raw == 3 && amd {
            OffloadKinds(OffloadKind::Hip as u16)
        } else {
            OffloadKinds(raw & 0xf)
        }
    }

    /// The set with `kind` added.
    pub fn with(self, kind: OffloadKind) -> Self {
        OffloadKinds(self.0 | kind as u16)
    }

    /// The kinds in either set.
    pub fn union(self, other: Self) -> Self {
        OffloadKinds(self.0 | other.0)
    }

    /// Returns the set of the kinds with these names and ignores unknown names.
    pub fn from_names<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let known = names.filter_map(|name| {
            OffloadKind::ALL
                .into_iter()
                .find(|kind| kind.name() == name)
        });
        known.fold(OffloadKinds::default(), OffloadKinds::with)
    }

    /// Whether `kind` is in the set.
    pub fn contains(self, kind: OffloadKind) -> bool {
        self.0 & kind as u16 != 0
    }

    /// The members, in registration order.
    pub fn iter(self) -> impl Iterator<Item = OffloadKind> {
        OffloadKind::ALL
            .into_iter()
            .filter(move |kind| self.contains(*kind))
    }
}

/// The format of an image's bytes (docs/spec/link-driver.md 4.1). Unknown values become `Other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ImageKind {
    /// The producer gave no format.
    None,
    /// A native object or shared object of the device.
    Object,
    /// LLVM bitcode.
    Bitcode,
    /// A CUDA cubin.
    Cubin,
    /// A CUDA fatbinary.
    Fatbinary,
    /// PTX text.
    Ptx,
    /// SPIR-V.
    Spirv,
    /// A value that this version does not know.
    Other(u16),
}

impl ImageKind {
    /// The kind with the stored value `raw`.
    pub fn from_raw(raw: u16) -> Self {
        match raw {
            0 => ImageKind::None,
            1 => ImageKind::Object,
            2 => ImageKind::Bitcode,
            3 => ImageKind::Cubin,
            4 => ImageKind::Fatbinary,
            5 => ImageKind::Ptx,
            6 => ImageKind::Spirv,
            other => ImageKind::Other(other),
        }
    }

    /// The stored value.
    pub fn raw(self) -> u16 {
        match self {
            ImageKind::None => 0,
            ImageKind::Object => 1,
            ImageKind::Bitcode => 2,
            ImageKind::Cubin => 3,
            ImageKind::Fatbinary => 4,
            ImageKind::Ptx => 5,
            ImageKind::Spirv => 6,
            ImageKind::Other(raw) => raw,
        }
    }
}

/// The layout of a host object's entry table, which depends on the LLVM release
/// (docs/spec/link-driver.md 8.1, 11; docs/spec/containers.md 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Generation {
    /// LLVM 14: raw `.llvm.offloading.<triple>.<arch>` sections, 32-byte entries in
    /// `omp_offloading_entries`, registration from a constructor and a destructor of priority 1.
    Llvm14,
    /// LLVM 15 to 19: 32-byte entries in `omp_offloading_entries` (and `cuda_…`, `hip_…`).
    Llvm15,
    /// LLVM 20: 56-byte entries, still in `omp_offloading_entries` (and `cuda_…`, `hip_…`).
    Llvm20,
    /// LLVM 21 and later: 56-byte entries of all kinds in `llvm_offload_entries`.
    Llvm21,
}

impl Generation {
    /// Whether entries have the 56-byte layout (44 bytes on i386) rather than the 32-byte one (20
    /// on i386).
    pub fn wide_entries(self) -> bool {
        self >= Generation::Llvm20
    }
}

/// The LLVM release whose tools offld replaces. `--version` prints it, and offld writes it into
/// files.
pub const LLVM_RELEASE: &str = "22.1.8";
/// The major version of [`LLVM_RELEASE`].
pub const LLVM_MAJOR: u32 = 22;

/// Returns the major version of an LLVM release, the first number in its name: 19 for `19.1.7`
/// (`clang -dumpversion`) and for `LLVM19.1.7` (the producer of a bitcode file).
pub fn llvm_major(release: &str) -> Option<u32> {
    let number = release.trim_start_matches(|c: char| !c.is_ascii_digit());
    number
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// The source of some bytes, for error messages: `libbad.a(badmem.o): .llvm.offloading`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The file that the user named or that a library search found.
    pub file: PathBuf,
    /// Members within it, outermost archive first.
    pub members: Vec<String>,
    /// The section within the object, if the origin is a section.
    pub section: Option<String>,
}

impl Origin {
    /// The origin of a whole file.
    pub fn file(path: &Path) -> Self {
        Origin {
            file: path.to_path_buf(),
            ..Origin::default()
        }
    }

    /// The origin of the member `name` in this archive.
    pub fn member(&self, name: &str) -> Self {
        let mut inner = self.clone();
        inner.members.push(name.to_owned());
        inner
    }

    /// The origin of the section `name` in this object.
    pub fn in_section(&self, name: &str) -> Self {
        Origin {
            section: Some(name.to_owned()),
            ..self.clone()
        }
    }

    /// The innermost name, for names of temporary files: the last member, else the file name
    /// without its directories.
    pub fn innermost_name(&self) -> String {
        let name = match self.members.last() {
            Some(member) => member.clone(),
            None => self.file.to_string_lossy().into_owned(),
        };
        name.rsplit('/').next().unwrap_or_default().to_owned()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.file.to_string_lossy()))?;
        for member in &self.members {
            write!(f, "({})", printable(member))?;
        }
        if let Some(section) = &self.section {
            write!(f, ": {}", printable(section))?;
        }
        Ok(())
    }
}

/// Escapes control characters (`\u{1b}`, `\n`), because names in files may contain anything and a
/// terminal obeys control sequences. Also escapes characters that change the writing direction,
/// which can make one line look like another.
pub fn printable(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmless(c) {
            out.push(c)
        } else {
            out.extend(c.escape_default())
        }
    }
    Cow::Owned(out)
}

/// Returns the name of a symbol or member for messages, even if it is not UTF-8.
pub fn printable_name(name: &[u8]) -> String {
    printable(&String::from_utf8_lossy(name)).into_owned()
}

/// Like [`printable`], but keeps line feeds and tabs: for texts that offld itself laid out.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let parts = || {
        text.split_inclusive(['\n', '\t'])
            .map(|part| part.split_at(part.trim_end_matches(['\n', '\t']).len()))
    };
    if parts().all(|(part, _)| matches!(printable(part), Cow::Borrowed(_))) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(
        parts()
            .flat_map(|(part, end)| [printable(part), Cow::Borrowed(end)])
            .collect(),
    )
}

/// The format of a host's object files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFormat {
    /// ELF.
    Elf,
    /// COFF, for Windows (Microsoft and GNU toolchains) and UEFI.
    Coff,
    /// Mach-O, for Apple systems.
    MachO,
}

impl ObjectFormat {
    /// Returns the format for the host `triple`: the one that its last component names (`-elf`,
    /// `-macho`), else the system's default.
    pub fn of(triple: &str) -> ObjectFormat {
        let names = |systems: &[&str]| {
            triple
                .split('-')
                .skip(1)
                .any(|part| systems.iter().any(|system| part.starts_with(system)))
        };
        if triple.ends_with("-elf") {
            ObjectFormat::Elf
        } else if triple.ends_with("-macho")
            || names(&[
                "apple",
                "darwin",
                "macos",
                "ios",
                "tvos",
                "watchos",
                "xros",
                "driverkit",
                "bridgeos",
            ])
        {
            ObjectFormat::MachO
        } else if names(&["windows", "win32", "mingw", "cygwin", "msys", "uefi"]) {
            ObjectFormat::Coff
        } else {
            ObjectFormat::Elf
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f19_kind_three_on_amdgcn_is_hip() {
        let kinds = OffloadKinds::from_stored(3, "amdgcn-amd-amdhsa");
        assert_eq!(kinds.iter().collect::<Vec<_>>(), [OffloadKind::Hip]);
        let both = OffloadKinds::from_stored(3, "nvptx64-nvidia-cuda");
        assert_eq!(
            both.iter().collect::<Vec<_>>(),
            [OffloadKind::OpenMp, OffloadKind::Cuda]
        );
    }

    #[test]
    fn the_first_number_of_a_release_is_its_major_version() {
        assert_eq!(llvm_major(LLVM_RELEASE), Some(LLVM_MAJOR));
        for (release, major) in [
            ("19.1.7\n", Some(19)),
            ("LLVM19.1.7", Some(19)),
            ("20.0.0git", Some(20)),
            ("APPLE_1_1500.3", Some(1)),
        ] {
            assert_eq!(llvm_major(release), major, "{release}");
        }
        for release in ["", "LLVM", "99999999999.1"] {
            assert_eq!(llvm_major(release), None, "{release}");
        }
    }

    #[test]
    fn the_triple_gives_the_object_format() {
        for triple in [
            "x86_64-pc-windows-msvc",
            "i686-w64-mingw32",
            "x86_64-w64-windows-gnu",
            "aarch64-unknown-uefi",
        ] {
            assert_eq!(ObjectFormat::of(triple), ObjectFormat::Coff, "{triple}");
        }
        for triple in [
            "arm64-apple-macosx14",
            "x86_64-apple-darwin",
            "aarch64-pc-windows-macho",
        ] {
            assert_eq!(ObjectFormat::of(triple), ObjectFormat::MachO, "{triple}");
        }
        for triple in [
            "x86_64-unknown-linux-gnu",
            "amdgcn-amd-amdhsa",
            "x86_64-pc-windows-elf",
            "",
        ] {
            assert_eq!(ObjectFormat::of(triple), ObjectFormat::Elf, "{triple}");
        }
    }

    #[test]
    fn origin_names_every_level() {
        let origin = Origin::file(Path::new("lib/libbad.a"))
            .member("badmem.o")
            .in_section(".llvm.offloading");
        assert_eq!(
            origin.to_string(),
            "lib/libbad.a(badmem.o): .llvm.offloading"
        );
        assert_eq!(origin.innermost_name(), "badmem.o");
    }
}
