//! Locates the tools of a link: the device compiler, the real host linker and the directory of the
//! OpenMP runtime. Runs only three commands: `clang -dumpversion` or `ld.lld --version` if the path
//! does not contain the version, and `--version` of a named compiler whose file name does not
//! contain `clang`.

use std::io::Read;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::args::settings::{DeviceOptions, HostOptions, LinkSettings, Named};
use offld_system::environment;
use offld_system::run::{self, beside_us, is_ourselves, our_folders};
use offload_formats::model::llvm_major;

/// The major versions that are searched for as `clang-NN`, newest first, after the plain name.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=30;

/// A clang for device links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compiler {
    pub path: PathBuf,
    /// Its major version, if it can be determined.
    pub major: Option<u32>,
}

impl Compiler {
    fn at(path: PathBuf) -> Self {
        let major = major_of(&path);
        Compiler { path, major }
    }

    /// Returns the `lib` directory of the installation that contains the compiler.
    pub(crate) fn library_folder(&self) -> Option<PathBuf> {
        let real = self.path.canonicalize().ok()?;
        Some(real.parent()?.parent()?.join("lib"))
    }
}

/// The chosen compiler, and a warning about it if needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub compiler: Compiler,
    /// Set if its major version differs from the version that produced the bitcode.
    pub warning: Option<String>,
}

/// Finds the compiler for device links. Candidates, in order: the one that `options` name
/// (`--offld-clang=`, `OFFLD_CLANG`), the clang that started offld, a clang in offld's directory,
/// plain and versioned names on `PATH`, the directories of Debian's packages.
///
/// If the inputs contain bitcode of LLVM `need`, the first candidate of that version wins, else the
/// first newer one, with a warning. Older versions cannot read the bitcode, so it is an error if
/// all candidates are older. A compiler that the user named is used whatever its version, unless it
/// is too old.
///
/// Commands that are not links have no `options`: for them, those of the environment apply.
pub(crate) fn device_compiler(
    options: Option<&DeviceOptions>,
    need: Option<u32>,
) -> Result<Choice> {
    let named = options.map_or_else(
        || {
            LinkSettings::of_environment(&environment::get)
                .device
                .offld_clang
        },
        |options| options.offld_clang.clone(),
    );
    if let Some(Named { value: named, by }) = named {
        let path = which::which(&named).with_context(|| {
            format!(
                "{by}: cannot find the device compiler `{}`",
                named.display()
            )
        })?;
        let compiler = Compiler::at(path);
        if !is_clang(&compiler) {
            bail!(
                "{by}: `{}` is not clang: only clang links device code",
                compiler.path.display()
            );
        }
        return fitting([compiler].into_iter(), need).with_context(|| by.to_owned());
    }
    fitting(candidates().map(Compiler::at), need)
}

/// Paths of the installed clangs, in order of preference, for users who name none.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let calling = calling_clang().into_iter().chain(beside_us("clang"));
    let on_path = std::iter::once("clang".to_owned())
        .chain(VERSIONS.rev().map(|major| format!("clang-{major}")));
    let on_path = on_path.filter_map(|name| which::which(name).ok());
    let packaged = VERSIONS
        .rev()
        .map(|major| PathBuf::from(format!("/usr/lib/llvm-{major}/bin/clang")));
    calling
        .chain(on_path)
        .chain(packaged.filter(|path| path.is_file()))
}

/// Returns every clang that offld would consider if none is named, and the clangs of vendors, which
/// offld uses only if they are named. Each is listed once, by the first of its paths.
pub(crate) fn installed_compilers() -> Vec<PathBuf> {
    const OF_VENDORS: [&str; 4] = [
        "amdclang",
        "/opt/rocm/llvm/bin/clang",
        "icx",
        "/opt/intel/oneapi/compiler/latest/bin/icx",
    ];
    let mut seen = std::collections::BTreeSet::new();
    let of_vendors = OF_VENDORS.iter().filter_map(|name| which::which(name).ok());
    candidates()
        .chain(of_vendors)
        .filter(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())))
        .collect()
}

/// Whether `compiler` is a clang: by its name, or by its `--version`.
fn is_clang(compiler: &Compiler) -> bool {
    let real = compiler
        .path
        .canonicalize()
        .unwrap_or_else(|_| compiler.path.clone());
    let names = [&compiler.path, &real].map(|path| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    });
    let by_name = names.iter().any(|name| name.contains("clang"));
    by_name
        || run::stdout_of(&compiler.path, &["--version"])
            .is_some_and(|text| text.contains("clang") || text.contains("LLVM"))
}

fn fitting(mut candidates: impl Iterator<Item = Compiler>, need: Option<u32>) -> Result<Choice> {
    let Some(need) = need else {
        let first = candidates.next().context(
            "Unable to find 'clang' in path: install clang, or set --offld-clang= or OFFLD_CLANG",
        )?;
        return Ok(Choice {
            compiler: first,
            warning: None,
        });
    };
    let mut newer = None;
    let mut older = None;
    for candidate in candidates {
        match candidate.major {
            Some(major) if major == need => {
                return Ok(Choice {
                    compiler: candidate,
                    warning: None,
                });
            }
            Some(major) if major < need => older = older.or(Some(candidate)),
            _ => newer = newer.or(Some(candidate)),
        }
    }
    if let Some(compiler) = newer {
        let warning = format!(
            "device bitcode of LLVM {need} is linked by {}, a different LLVM version",
            compiler.path.display()
        );
        return Ok(Choice {
            compiler,
            warning: Some(warning),
        });
    }
    match older {
        Some(old) => bail!(
            "{} cannot read device bitcode of LLVM {need}: set --offld-clang= or OFFLD_CLANG to clang {need} or later",
            old.path.display()
        ),
        None => bail!(
            "Unable to find 'clang' in path: install clang-{need}, or set --offld-clang= or OFFLD_CLANG"
        ),
    }
}

/// Returns the major version of the clang at `path`.
pub(crate) fn release_of(path: &Path) -> Option<u32> {
    major_of(path)
}

/// Returns the major version from the path (`…/llvm-19/bin/clang`, `clang-19`), else from the
/// output of `-dumpversion`.
fn major_of(path: &Path) -> Option<u32> {
    let real = path.canonicalize().ok()?;
    let by_name = real
        .file_name()
        .and_then(|name| name.to_str()?.strip_prefix("clang-")?.parse().ok());
    by_name
        .or_else(|| release_in_path(&real))
        .or_else(|| llvm_major(&run::stdout_of(&real, &["-dumpversion"])?))
}

/// Returns the major version of the ld.lld at `path`, from the path (`…/llvm-19/bin/ld.lld`), else
/// from the output of `--version`.
pub(crate) fn lld_release(path: &Path) -> Option<u32> {
    let real = path.canonicalize().ok()?;
    release_in_path(&real).or_else(|| {
        let version = run::stdout_of(path, &["--version"])?;
        let (_, number) = version.split_once("LLD ")?;
        llvm_major(number)
    })
}

/// Returns the release in the name of a directory of `path`, such as `llvm-19`.
fn release_in_path(path: &Path) -> Option<u32> {
    path.iter()
        .find_map(|part| part.to_str()?.strip_prefix("llvm-")?.parse().ok())
}

/// Finds the clang driver that started offld, perhaps through a shell script, among the ancestors
/// of this process.
fn calling_clang() -> Option<PathBuf> {
    const GENERATIONS: usize = 4;
    let mut pid = parent_id();
    for _ in 0..GENERATIONS {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        if let Some(clang) = clang_of_driver(&exe) {
            return Some(clang);
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // `pid (name, which can contain any character) state ppid …`
        pid = stat
            .rsplit(')')
            .next()?
            .split_ascii_whitespace()
            .nth(1)?
            .parse()
            .ok()?;
    }
    None
}

/// Returns the major version of the clang that started offld, if a clang did.
pub(crate) fn calling_release() -> Option<u32> {
    major_of(&calling_clang()?)
}

/// Returns `exe` itself if it is a clang, or the clang in its directory if it is another driver of
/// the family.
fn clang_of_driver(exe: &Path) -> Option<PathBuf> {
    let name = exe.file_name()?.to_str()?;
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    match stem {
        "clang" | "clang++" | "clang-cl" | "amdclang" | "amdclang++" | "icx" | "icpx" => {
            Some(exe.to_path_buf())
        }
        "flang" | "flang-new" | "amdflang" | "hipcc" | "hipcc.bin" => {
            Some(exe.with_file_name("clang")).filter(|clang| clang.is_file())
        }
        _ => None,
    }
}

/// Returns the directory in which a driver finds offld as its wrapper (`-B`). That is the directory
/// of our tool links, or the one that `make install` uses.
pub(crate) fn folder_of_names() -> Option<PathBuf> {
    let ours = our_folders().filter_map(|folder| std::path::absolute(folder).ok());
    let mut all = ours
        .flat_map(|folder| {
            [
                folder.parent().map(|prefix| prefix.join("libexec/offld")),
                Some(folder),
            ]
        })
        .flatten();
    all.find(|folder| is_ourselves(&folder.join("clang-linker-wrapper")))
}

/// Returns the path of LLVM's tool `name`, for a command that is only printed. Candidates, in
/// order: offld's directory, the directory of the device compiler, `PATH`, the bare name.
pub(crate) fn llvm_tool(name: &str, options: &DeviceOptions) -> PathBuf {
    let beside_clang = || {
        let clang = device_compiler(Some(options), None)
            .ok()?
            .compiler
            .path
            .canonicalize()
            .ok()?;
        Some(clang.with_file_name(name)).filter(|tool| tool.is_file())
    };
    beside_us(name)
        .or_else(beside_clang)
        .or_else(|| which::which(name).ok())
        .unwrap_or_else(|| name.into())
}

/// Finds the linker that does the host link for `ld.offld`: the one that `options` name
/// (`--offld-linker=`, `OFFLD_LINKER`), else `ld.lld`, else `ld`. With `ld_first` (offld was called
/// as `ld`), `ld` precedes `ld.lld`. Never returns offld itself under another name.
///
/// Commands that are not links have no `options`: for them, those of the environment apply.
pub(crate) fn host_linker(options: Option<&HostOptions>, ld_first: bool) -> Result<PathBuf> {
    let named = options.map_or_else(
        || {
            LinkSettings::of_environment(&environment::get)
                .host
                .offld_linker
        },
        |options| options.offld_linker.clone(),
    );
    if let Some(Named { value: named, by }) = named {
        let named = PathBuf::from(named);
        // `lld` means ld.lld, as in -fuse-ld=lld: the program `lld` itself only prints that it must
        // be called as ld.lld.
        let found = if named.components().count() == 1 {
            let names = [
                PathBuf::from(format!("ld.{}", named.display())),
                named.clone(),
            ];
            let found = names
                .iter()
                .find_map(|name| first_other(name).or_else(|| beside_clang(name)));
            let numbered = || {
                VERSIONS.rev().find_map(|major| {
                    first_other(Path::new(&format!("ld.{}-{major}", named.display())))
                })
            };
            found.or_else(numbered)
        } else {
            first_other(&named)
        };
        return found.with_context(|| {
            format!(
                "{by}: cannot find the host linker `{}` (offld itself does not count)",
                named.display()
            )
        });
    }
    let lld = || first_other(Path::new("ld.lld")).or_else(|| beside_clang(Path::new("ld.lld")));
    let ld = || first_other(Path::new("ld"));
    let found = if ld_first {
        ld().or_else(lld)
    } else {
        lld().or_else(ld)
    };
    found.context("cannot find a host linker: neither `ld.lld` nor `ld` is on PATH; set --offld-linker= or OFFLD_LINKER")
}

/// Whether the program at `path` is LLVM's ELF linker, by its name and by the name of the file that
/// a symlink leads to.
pub(crate) fn is_ld_lld(path: &Path) -> bool {
    let name = |path: &Path| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let real = path
        .canonicalize()
        .map(|real| name(&real))
        .unwrap_or_default();
    name(path).contains("ld.lld") && (real == "lld" || real.starts_with("lld-") || real == "ld.lld")
}

/// A family of ELF linkers, by the syntax of their arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkerFamily {
    Gnu,
    Gold,
    Lld,
    Mold,
    Wild,
    /// Any other linker, or an unknown one.
    Other,
}

/// Returns the family of the linker `path`, by the name of the program that symlinks lead to. A
/// script is `Other`, because it may start any linker.
pub(crate) fn linker_family(path: &Path) -> LinkerFamily {
    let Ok(real) = path.canonicalize() else {
        return LinkerFamily::Other;
    };
    let mut start = [0; 2];
    let is_script = std::fs::File::open(&real)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_err()
        || start == *b"#!";
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    // `x86_64-linux-gnu-ld.bfd`.
    let name = name
        .rfind("-ld")
        .filter(|at| name[at + 3..].chars().next().is_none_or(|c| c == '.'))
        .map_or(&*name, |at| &name[at + 1..]);
    match name {
        _ if is_script => LinkerFamily::Other,
        "ld" | "ld.bfd" => LinkerFamily::Gnu,
        "ld.gold" | "gold" => LinkerFamily::Gold,
        "lld" | "ld.lld" => LinkerFamily::Lld,
        "mold" | "ld.mold" => LinkerFamily::Mold,
        "wild" | "ld.wild" => LinkerFamily::Wild,
        _ if name.starts_with("lld-") && !name.starts_with("lld-link") => LinkerFamily::Lld,
        _ => LinkerFamily::Other,
    }
}

/// Makes wild link in one process. Otherwise wild 0.10 starts a process for the link, and reports
/// success even if a signal ends that process, for example on a full disk.
pub(crate) const RELIABLE_STATUS_OF_WILD: &str = "--no-fork";

/// A linker in the directory of the clang that started offld. That directory may be missing from
/// `PATH`.
fn beside_clang(name: &Path) -> Option<PathBuf> {
    let linker = calling_clang()?.canonicalize().ok()?.with_file_name(name);
    (linker.is_file() && !is_ourselves(&linker)).then_some(linker)
}

/// The first executable `name` that is not offld.
fn first_other(name: &Path) -> Option<PathBuf> {
    which::which_all(name)
        .ok()?
        .find(|path| !is_ourselves(path))
}

/// Finds one of NVIDIA's tools (`fatbinary`, `nvlink`). Candidates, in order: `bin` of `cuda_path`
/// (`--cuda-path=`), `PATH`, the directory of CUDA's installer, a package of the active Python
/// environment.
pub(crate) fn cuda_tool(name: &str, cuda_path: Option<&Path>) -> Result<PathBuf> {
    let named = cuda_path
        .map(|folder| folder.join("bin").join(name))
        .filter(|tool| tool.is_file());
    let installed =
        || Some(Path::new("/usr/local/cuda/bin").join(name)).filter(|tool| tool.is_file());
    named.or_else(|| which::which(name).ok()).or_else(installed).or_else(|| wheel(name)).with_context(|| {
        let looked = cuda_path.map_or_else(String::new, |folder| format!(" in {} or", folder.join("bin").display()));
        format!(
            "Unable to find '{name}'{looked} in path, which CUDA device code needs; install NVIDIA's CUDA toolkit (or the PyPI package \
             nvidia-cuda-nvcc), and pass its directory with --cuda-path="
        )
    })
}

/// A tool of NVIDIA's PyPI packages in the active Python environment.
fn wheel(name: &str) -> Option<PathBuf> {
    let environment = PathBuf::from(environment::get(environment::VIRTUAL_ENV)?);
    let entries = |folder: &Path| {
        std::fs::read_dir(folder)
            .ok()
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
    };
    let packages =
        entries(&environment.join("lib")).map(|python| python.join("site-packages/nvidia"));
    let mut tools: Vec<PathBuf> = packages
        .flat_map(|nvidia| entries(&nvidia).collect::<Vec<_>>())
        .map(|part| part.join("bin").join(name))
        .collect();
    tools.sort();
    tools.into_iter().rev().find(|tool| tool.is_file())
}

/// Returns the directory of the `libomptarget.so` (or `.a`) that `ld.offld` links with: the
/// compiler's, else that of the newest Debian package.
pub(crate) fn openmp_runtime_folder(compiler: &Compiler) -> Option<PathBuf> {
    let packaged = VERSIONS
        .rev()
        .map(|major| PathBuf::from(format!("/usr/lib/llvm-{major}/lib")));
    let all = compiler.library_folder().into_iter().chain(packaged);
    all.into_iter().find(|folder| {
        ["libomptarget.so", "libomptarget.a"]
            .iter()
            .any(|name| folder.join(name).exists())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clang(major: u32) -> Compiler {
        Compiler {
            path: format!("/c/clang-{major}").into(),
            major: Some(major),
        }
    }

    #[test]
    fn bitcode_is_linked_by_its_own_version_first() {
        let choice = fitting([clang(22), clang(19)].into_iter(), Some(19)).unwrap();
        assert_eq!((choice.compiler, choice.warning), (clang(19), None));
        let newer = fitting([clang(16), clang(22)].into_iter(), Some(19)).unwrap();
        assert_eq!(newer.compiler, clang(22));
        assert!(newer.warning.unwrap().contains("LLVM 19"));
        let error = fitting([clang(16)].into_iter(), Some(19))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/c/clang-16 cannot read"), "{error}");
    }

    #[test]
    fn names_the_missing_cuda_tool() {
        let error = cuda_tool("no-such-cuda-tool", Some(Path::new("sdk")))
            .unwrap_err()
            .to_string();
        let start = "Unable to find 'no-such-cuda-tool' in sdk/bin or in path, which CUDA device code needs; install";
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn detects_drivers_of_the_clang_family() {
        assert_eq!(
            clang_of_driver(Path::new("/usr/lib/llvm-22/bin/clang")),
            Some("/usr/lib/llvm-22/bin/clang".into())
        );
        assert_eq!(
            clang_of_driver(Path::new("/usr/bin/clang-22")),
            Some("/usr/bin/clang-22".into())
        );
        assert_eq!(clang_of_driver(Path::new("/usr/bin/make")), None);
    }
}
