//! [`inspect`], [`size`], [`diff`], [`check`] and [`gate`]: list the device code of a file, attribute
//! its bytes, compare its kernels with those of another build, check whether the code will run, and
//! check it against a policy.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Messages, expect_opens};
use offld_system::io::file_slice::FileSlice;
use offld_system::io::outputs::io_error;
use offld_system::threads;
use offload_files::check::report::Report as CheckReport;
use offload_files::check::{self, Asked, Request};
use offload_files::contents::layout::Names;
use offload_files::contents::report::FileReport;
use offload_files::contents::selection::Selection;
use offload_files::contents::{Options, Reader};
use offload_files::diff::{self as kernels, Report as DiffReport};
use offload_files::gate::policy::Policy;
use offload_files::gate::{self as policies, Report as GateReport};
use offload_files::size::report::{Level, Report as SizeReport, View, levels, tree};
use offload_files::size::{Counted, measure, pattern};
use offload_formats::error::Error;

/// Options for inspection.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct InspectOptions {
    /// Read the kernels of ELF images, too.
    pub kernels: bool,
    /// Read headers only: no hashes, and only compressed files, archive members and the headers of
    /// compressed bundles are decompressed. The bytes of images are then unavailable.
    pub headers_only: bool,
    /// The limit for decompressed data in bytes (default: 64 GiB). 1000 times the size of the file
    /// is a limit, too.
    pub max_unpacked: Option<u64>,
}

with_methods!(InspectOptions {
    fn with_kernels kernels: bool,
    fn with_headers_only headers_only: bool,
    fn with_max_unpacked max_unpacked: Option<u64>,
});

/// Lists the device images in the file at `path`: an object, library, program, archive, wheel,
/// bundle or image of any kind; `-` is stdin. Nested containers are opened, down to the images.
///
/// Damage in the file is reported in [`FileReport::errors`], next to the readable contents.
///
/// # Errors
/// [`Error::Io`] with the path if the file cannot be opened.
///
/// ```
/// use offld::formats::offload_binary;
/// use offld::model::{ImageKind, OffloadKind};
/// use offld::{Error, InspectOptions};
///
/// let dir = tempfile::tempdir()?;
/// let file = dir.path().join("images.bin");
/// let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx90a")];
/// std::fs::write(&file, offload_binary::write(ImageKind::Bitcode, OffloadKind::OpenMp as u16, 0, &strings, b"code"))?;
///
/// let report = offld::inspect(&file, &InspectOptions::default())?;
/// let image = &report.images[0];
/// assert_eq!((image.kinds[0].as_str(), image.triple.as_str(), image.target.as_str()), ("openmp", "amdgcn-amd-amdhsa", "gfx90a"));
/// let mut bytes = Vec::new();
/// image.write_to(&mut bytes)?;
/// assert_eq!(bytes, b"code");
///
/// let missing = offld::inspect(dir.path().join("none"), &InspectOptions::default());
/// assert!(matches!(missing, Err(Error::Io { path: Some(_), .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn inspect(path: impl AsRef<Path>, options: &InspectOptions) -> Result<FileReport, Error> {
    let (path, session) = (path.as_ref(), Messages::discard().session());
    let reader = Reader::new(contents_options(options), &session);
    threads::in_parallel(|| reader.open(path)).map_err(Error::of)
}

/// Lists the device images in an open file, like [`inspect`]: in a whole regular file, or in the
/// remaining contents of a pipe. Messages call it `name`. The file's location is unknown, so no
/// other file is opened: neither members of thin archives nor the libraries that a program needs.
/// Registrations are then reported without those libraries.
///
/// # Errors
/// [`Error::Io`] with the name if the file cannot be read.
///
/// ```
/// let file = std::fs::File::open("/proc/self/exe")?;
/// assert_eq!(offld::inspect_file("myself", file, &offld::InspectOptions::default())?.kind, "elf-executable");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn inspect_file(
    name: impl AsRef<Path>,
    file: File,
    options: &InspectOptions,
) -> Result<FileReport, Error> {
    let name = name.as_ref();
    let piece = FileSlice::try_of(file).map_err(|error| Error::of(io_error(name, &error)))?;
    Ok(alone(name, piece, options))
}

/// Lists the device images in `bytes`, like [`inspect`] for a file with these contents. Messages
/// call them `name`. As in [`inspect_file`], no other file is opened; compressed data is
/// decompressed into unnamed temporary files.
///
/// ```
/// use offld::formats::offload_binary;
/// use offld::model::ImageKind;
///
/// let packed = offload_binary::write(ImageKind::Ptx, 2, 0, &[("triple", "nvptx64-nvidia-cuda"), ("arch", "sm_90")], b"code");
/// let report = offld::inspect_bytes("packed", packed, &offld::InspectOptions::default());
/// assert_eq!((report.images[0].target.as_str(), report.images[0].bytes()?), ("sm_90", &b"code"[..]));
/// # Ok::<(), offld::Error>(())
/// ```
pub fn inspect_bytes(
    name: impl AsRef<Path>,
    bytes: impl Into<Vec<u8>>,
    options: &InspectOptions,
) -> FileReport {
    alone(name.as_ref(), FileSlice::handed_over(bytes.into()), options)
}

fn alone(name: &Path, piece: FileSlice, options: &InspectOptions) -> FileReport {
    let options = Options {
        alone: true,
        packs: false,
        ..contents_options(options)
    };
    let session = Messages::discard().session();
    let reader = Reader::new(options, &session);
    threads::in_parallel(|| reader.opened(name, piece))
}

fn contents_options(options: &InspectOptions) -> Options {
    let InspectOptions {
        kernels,
        headers_only,
        max_unpacked,
    } = *options;
    let max_unpacked = max_unpacked.unwrap_or(Options::default().max_unpacked);
    Options {
        kernels,
        headers_only,
        keep_bytes: !headers_only,
        max_unpacked,
        packs: true,
        ..Options::default()
    }
}

/// Options for measuring.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SizeOptions {
    /// The levels of rows, the outermost first (default: architectures). Kernels are below their
    /// templates.
    pub by: Vec<Level>,
    /// Sort rows by uncompressed size instead of the size in the file.
    pub by_inflated: bool,
    /// A case-insensitive regular expression. Rows contain only bytes with a matching kernel,
    /// translation unit, section or architecture.
    pub filter: Option<String>,
    /// Patterns such as `*cuda*`: counts only files, and members of zip files and tar archives,
    /// whose path or name matches one of them. Empty: all.
    pub only: Vec<String>,
    /// Patterns of files and members to skip.
    pub exclude: Vec<String>,
    /// The limit for decompressed data in bytes (default: 64 GiB). 1000 times the size of the file
    /// is a limit, too.
    pub max_unpacked: Option<u64>,
}

with_methods!(SizeOptions {
    fn with_by by: Vec<Level>,
    fn with_by_inflated by_inflated: bool,
    fn with_filter filter: Option<String>,
    fn with_max_unpacked max_unpacked: Option<u64>,
    list with_only only,
    list with_exclude exclude,
});

/// Attributes the bytes of the file at `path`, or of the files in that directory, to architectures,
/// translation units and kernels, and finds duplicates. `-` is stdin. The result is the report of
/// `offld size`.
///
/// Damage in a file is reported in [`FileSize::errors`](crate::size_report::FileSize::errors).
///
/// # Errors
/// [`Error::Io`] with the path if the file or directory cannot be opened; [`Error::Usage`] if the
/// filter or a pattern is invalid.
///
/// ```
/// use offld::formats::offload_binary;
/// use offld::model::{ImageKind, OffloadKind};
/// use offld::SizeOptions;
///
/// let dir = tempfile::tempdir()?;
/// let file = dir.path().join("images.bin");
/// let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx90a")];
/// std::fs::write(&file, offload_binary::write(ImageKind::Bitcode, OffloadKind::OpenMp as u16, 0, &strings, b"code"))?;
///
/// let report = offld::size(&file, &SizeOptions::default())?;
/// assert_eq!(report.total.file, std::fs::metadata(&file)?.len());
/// let gfx90a = report.total.rows.iter().find(|row| row.name == "gfx90a").unwrap();
/// assert_eq!(gfx90a.file, 4);
/// assert!(report.to_json()?.starts_with("{\n  \"schema\": 1,"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn size(path: impl AsRef<Path>, options: &SizeOptions) -> Result<SizeReport, Error> {
    let path = path.as_ref();
    let SizeOptions {
        by,
        by_inflated,
        filter,
        only,
        exclude,
        max_unpacked,
    } = options;
    let selection = Arc::new(Selection::new(only, exclude)?);
    let filter = filter.as_ref().map(|filter| pattern(filter)).transpose();
    let filter = filter.map_err(|error| Error::usage(format!("invalid filter: {error}")))?;
    expect_opens(path)?;
    let by = if by.is_empty() {
        vec![Level::Arch]
    } else {
        levels(by)
    };
    let view = View {
        by,
        by_inflated: *by_inflated,
    };
    let max_unpacked = max_unpacked.unwrap_or(Options::default().max_unpacked);
    let session = Messages::discard().session();
    let counted = Counted {
        names: Arc::new(Names::default()),
        max_unpacked,
        selection,
        keep_empty: false,
    };
    let measured = || measure(&[path.to_owned()], &counted, &session);
    let mut sizes = threads::in_parallel(measured).map_err(Error::of)?;
    if let Some(filter) = filter {
        sizes.items.keep(|text| filter.is_match(text.as_bytes()));
    }
    let total = tree(&sizes.items, None, &view);
    Ok(SizeReport::new(sizes, total, Vec::new()))
}

/// Options for comparing.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DiffOptions {
    /// Patterns such as `*cuda*`: compares only files, and members of zip files and tar archives,
    /// whose path or name matches one of them. Empty: all.
    pub only: Vec<String>,
    /// Patterns of files and members to skip.
    pub exclude: Vec<String>,
    /// Whether the report shows the disassembly of changed code. This runs `llvm-objdump` for AMD
    /// and `nvdisasm` for NVIDIA.
    pub changed_code: bool,
    /// The limit for decompressed data in bytes (default: 64 GiB). 1000 times the size of the file
    /// is a limit, too.
    pub max_unpacked: Option<u64>,
}

with_methods!(DiffOptions {
    fn with_changed_code changed_code: bool,
    fn with_max_unpacked max_unpacked: Option<u64>,
    list with_only only,
    list with_exclude exclude,
});

/// Compares the kernels of two builds: files, directories, or lists that `offld diff --save` wrote.
/// The result is the report of `offld diff`.
///
/// # Errors
/// [`Error::Io`] with the path if a build cannot be opened; [`Error::Usage`] if a pattern is
/// invalid; another error if a build is damaged or has no device code.
///
/// ```
/// use offld::DiffOptions;
/// use offld::formats::offload_binary;
/// use offld::model::{ImageKind, OffloadKind};
///
/// let dir = tempfile::tempdir()?;
/// let file = dir.path().join("images.bin");
/// let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx90a")];
/// std::fs::write(&file, offload_binary::write(ImageKind::Bitcode, OffloadKind::OpenMp as u16, 0, &strings, b"code"))?;
///
/// let report = offld::diff(&file, &file, &DiffOptions::default())?;
/// assert!(!report.differs());
/// assert_eq!(report.archs[0].arch, "gfx90a");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn diff(
    old: impl AsRef<Path>,
    new: impl AsRef<Path>,
    options: &DiffOptions,
) -> Result<DiffReport, Error> {
    let (old, new) = (old.as_ref(), new.as_ref());
    let DiffOptions {
        only,
        exclude,
        changed_code,
        max_unpacked,
    } = options;
    let selection = Arc::new(Selection::new(only, exclude)?);
    expect_opens(old)?;
    expect_opens(new)?;
    let request = kernels::Request {
        old: old.to_owned(),
        new: vec![new.to_owned()],
        selection,
        max_unpacked: max_unpacked.unwrap_or(Options::default().max_unpacked),
        changed_code: *changed_code,
    };
    kernels::diff(&request, &Messages::discard().session()).map_err(Error::of)
}

/// Options for a check against a policy.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct GateOptions {
    /// An earlier build, for policies that compare: a file, a directory, or files that
    /// `offld diff --save` and `offld size --save` wrote.
    pub baseline: Vec<PathBuf>,
    /// The limit for decompressed data in bytes (default: 64 GiB). 1000 times the size of the file
    /// is a limit, too.
    pub max_unpacked: Option<u64>,
}

with_methods!(GateOptions {
    fn with_baseline baseline: Vec<PathBuf>,
    fn with_max_unpacked max_unpacked: Option<u64>,
});

/// Checks files and directories against the policy in the file at `policy` (docs/reference/gate.md).
/// The result is the report of `offld gate`; errors of reading a file are part of it.
///
/// # Errors
/// [`Error::Io`] with the path if a file cannot be opened; another error if the policy is invalid, a
/// rule applies to no file, or the baseline cannot be read.
///
/// ```
/// use offld::GateOptions;
/// use offld::formats::offload_binary;
/// use offld::model::{ImageKind, OffloadKind};
///
/// let dir = tempfile::tempdir()?;
/// let (file, policy) = (dir.path().join("images.bin"), dir.path().join("policy.toml"));
/// let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx90a")];
/// std::fs::write(&file, offload_binary::write(ImageKind::Bitcode, OffloadKind::OpenMp as u16, 0, &strings, b"code"))?;
/// std::fs::write(&policy, "version = 1\n[[rule]]\nrequire = [\"gfx90a\", \"gfx942\"]\n")?;
///
/// let report = offld::gate(&policy, &[&file], &GateOptions::default())?;
/// assert!(!report.passes());
/// assert_eq!(report.violations[0].limit, "gfx942");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gate(
    policy: impl AsRef<Path>,
    files: &[impl AsRef<Path>],
    options: &GateOptions,
) -> Result<GateReport, Error> {
    let policy = policy.as_ref();
    let files: Vec<PathBuf> = files.iter().map(|file| file.as_ref().to_owned()).collect();
    for path in files
        .iter()
        .chain(&options.baseline)
        .map(PathBuf::as_path)
        .chain([policy])
    {
        expect_opens(path)?;
    }
    let request = policies::Request {
        policy: Policy::read(policy).map_err(Error::of)?,
        files,
        baseline: options.baseline.clone(),
        allow_unused: false,
        max_unpacked: options
            .max_unpacked
            .unwrap_or(Options::default().max_unpacked),
    };
    policies::gate(&request, &Messages::discard().session()).map_err(Error::of)
}

/// Options for checking.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CheckOptions {
    /// The devices for which to find the loaded image: `gfx90a:xnack+`, `cuda:sm_90`, `x86-64-v3`,
    /// or `native` for those of this machine. Empty: check that everything the file registers
    /// exists.
    pub devices: Vec<String>,
    /// Patterns such as `*cuda*`: checks only files, and members of zip files and tar archives,
    /// whose path or name matches one of them. Empty: all.
    pub only: Vec<String>,
    /// Patterns of files and members to skip.
    pub exclude: Vec<String>,
}

with_methods!(CheckOptions {
    list with_devices devices,
    list with_only only,
    list with_exclude exclude,
});

/// Checks whether the device code in the file at `path`, or in every file of that directory, will
/// run: whether the registered kernels exist, or which image a device would load. `-` is stdin. The
/// result is the report of `offld check`.
///
/// Damage in a file is reported in [`FileCheck::errors`](crate::check_report::FileCheck::errors),
/// and the answer for that file is then
/// [`Answer::Unreadable`](crate::check_report::Answer::Unreadable).
///
/// # Errors
/// [`Error::Io`] with the path if the file or directory cannot be opened; [`Error::Usage`] for an
/// invalid device or pattern, and for a native GPU on a machine without one.
///
/// ```
/// use offld::check_report::Answer;
/// use offld::formats::offload_binary;
/// use offld::model::{ImageKind, OffloadKind};
/// use offld::{CheckOptions, Error};
///
/// let dir = tempfile::tempdir()?;
/// let file = dir.path().join("images.bin");
/// let strings = [("triple", "nvptx64-nvidia-cuda"), ("arch", "sm_90")];
/// std::fs::write(&file, offload_binary::write(ImageKind::Ptx, OffloadKind::Cuda as u16, 0, &strings, b".version 8.0\n.target sm_90\n"))?;
///
/// let report = offld::check(&file, &CheckOptions::default().with_devices(["sm_35"]))?;
/// assert_eq!(report.answer, Answer::No);
/// assert!(report.files[0].units[0].loads[0].text.contains("the nearest image is for"));
/// assert!(report.to_json()?.contains("\"answer\": \"no\""));
///
/// let toaster = CheckOptions::default().with_devices(["toaster"]);
/// assert!(matches!(offld::check(&file, &toaster), Err(Error::Usage { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(path: impl AsRef<Path>, options: &CheckOptions) -> Result<CheckReport, Error> {
    let path = path.as_ref();
    let asked = options
        .devices
        .iter()
        .map(|text| Asked::parse(text).map_err(Error::in_line))
        .collect::<Result<_, _>>()?;
    expect_opens(path)?;
    let selection = Arc::new(Selection::new(&options.only, &options.exclude)?);
    let request = Request {
        files: vec![path.to_owned()],
        asked,
        selection,
    };
    let session = Messages::discard().session();
    threads::in_parallel(|| check::check(&request, &session)).map_err(Error::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_like_a_file_and_open_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut file = offload_formats::offload_binary::write(
            offload_formats::model::ImageKind::Object,
            1,
            0,
            &[("arch", "a")],
            &[7; 100_000],
        );
        file.extend(file.clone());
        std::fs::write(&path, &file).unwrap();
        let options = InspectOptions::default();
        let reports = [
            inspect(&path, &options).unwrap(),
            inspect_file(&path, File::open(&path).unwrap(), &options).unwrap(),
            inspect_bytes(&path, file, &options),
        ];
        let texts = reports
            .each_ref()
            .map(|report| serde_json::to_string(report).unwrap());
        assert!(texts[0] == texts[1] && texts[0] == texts[2], "{texts:?}");
        for image in reports.iter().flat_map(|report| &report.images) {
            let mut written = Vec::new();
            image.write_to(&mut written).unwrap();
            assert_eq!(
                (written.as_slice(), image.bytes().unwrap()),
                (&[7; 100_000][..], &[7; 100_000][..])
            );
        }
        let offsets: Vec<Option<u64>> =
            reports[2].images.iter().map(|image| image.offset).collect();
        assert!(
            matches!(offsets[..], [Some(one), Some(other)] if one < other),
            "{offsets:?}"
        );

        let thin = b"!<thin>\nx/              0           0     0     644     100       `\n";
        let report = inspect_bytes(dir.path().join("a.a"), thin, &options);
        assert!(
            report.images.is_empty()
                && report.errors[0].ends_with("is another file, which is not opened"),
            "{report:?}"
        );
        std::fs::write(dir.path().join("a.a"), thin).unwrap();
        assert_eq!(
            inspect(dir.path().join("a.a"), &options)
                .unwrap()
                .images
                .len(),
            2
        );
    }
}
