//! Determines the files that NVIDIA's linker reads.
//!
//! nvlink writes no dependency file. clang 19 and later run it through `clang-nvlink-wrapper`,
//! which writes none either. The wrapper compiles bitcode with LLVM and `ptxas`, extracts the
//! needed archive members, and runs `nvlink`.
//!
//! So the inputs are derived from the arguments, and links with unknown arguments are not cached. A
//! test traces every file that these programs open (`releases::nvidia`). In addition to the device
//! code, they read the archives in the arguments, searched for in the directories in order, and the
//! programs themselves.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::linker_args::{Linker, LinkerArgs, LinkerCommand};
use super::reads::{Collector, Reads};
use super::{INPUT, OUTPUT, linker_reads};
use crate::link::device::nvlink::{CPU_ARCH, KEEP_ALL, NVVM_LIBRARY, NVVM_PATH};
use offld_system::environment;
use offld_system::io::bytes::Bytes;

/// LLVM's wrapper of nvlink, and the first LLVM release with the behaviour described above.
const WRAPPER: &str = "clang-nvlink-wrapper";
const FIRST_WITH_WRAPPER: u32 = 19;
const NVLINK: &str = "nvlink";
/// The option for the directory of NVIDIA's tools.
const CUDA_PATH: &str = "--cuda-path=";

/// Whether the program at `path` is nvlink or LLVM's wrapper of it.
pub(super) fn is_linker(path: &Path) -> bool {
    is_nvlink(path) || path.file_name().is_some_and(|name| name == WRAPPER)
}

/// Whether the program at `path` is nvlink.
pub(super) fn is_nvlink(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == NVLINK)
}

/// The command of an `nvlink` that runs without a compiler. `args` has the placeholders.
pub(super) fn direct(program: &Path, args: &[OsString]) -> Result<LinkerCommand, String> {
    let program =
        std::path::absolute(program).map_err(|error| format!("{}: {error}", program.display()))?;
    let text = |arg: &OsString| {
        arg.to_str()
            .map(str::to_owned)
            .ok_or("the linker's command line is not in UTF-8")
    };
    let args = args.iter().map(text).collect::<Result<Vec<String>, _>>()?;
    Ok(LinkerCommand {
        program,
        args,
        warnings: String::new(),
    })
}

/// Fails unless a compiler of release `major` can be queried for the linker command with `args`.
pub(super) fn check_query(major: Option<u32>, args: &[OsString]) -> Result<(), String> {
    if let Some(major) = major.filter(|major| *major < FIRST_WITH_WRAPPER) {
        return Err(format!(
            "clang {major} passes NVIDIA's linker temporary files with random names"
        ));
    }
    // Without `--cuda-path=`, clang and the wrapper each search their own list of directories.
    if cuda_folders(args).is_empty() {
        return Err(format!(
            "{CUDA_PATH} is missing, so the directory of NVIDIA's tools is unknown"
        ));
    }
    Ok(())
}

/// The directories of NVIDIA's tools in `args`.
fn cuda_folders(args: &[OsString]) -> Vec<PathBuf> {
    args.iter()
        .filter_map(|arg| arg.to_str()?.strip_prefix(CUDA_PATH))
        .map(PathBuf::from)
        .collect()
}

/// The files by which a compiler with these arguments determines the toolkit's release, and the
/// device library, which is linked when a source is compiled.
pub(super) fn toolkit_files(args: &[OsString]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in cuda_folders(args) {
        files.extend(
            ["include/cuda.h", "version.txt", "version.json"].map(|name| folder.join(name)),
        );
        let libraries = std::fs::read_dir(folder.join("nvvm/libdevice"))
            .into_iter()
            .flatten()
            .flatten();
        files.extend(libraries.map(|entry| entry.path()));
    }
    files
}

/// The directories in which the compiler looks for the files of [`toolkit_files`].
pub(super) fn toolkit_folders(args: &[OsString]) -> Vec<PathBuf> {
    let folders = cuda_folders(args);
    folders
        .iter()
        .flat_map(|folder| ["include", "nvvm", "nvvm/libdevice"].map(|name| folder.join(name)))
        .collect()
}

/// Parses the arguments of nvlink or its wrapper, or returns the reason why the inputs cannot be
/// determined.
pub(super) fn read(command: &LinkerCommand) -> Result<LinkerArgs, String> {
    let by_wrapper = !is_nvlink(&command.program);
    let mut line = LinkerArgs::empty(Linker::Nvidia);
    let mut cuda = None;
    let mut args = command.args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        let mut value = || {
            args.next()
                .ok_or_else(|| format!("the linker argument `{arg}` has no value"))
        };
        match arg {
            INPUT | OUTPUT => {}
            "-o" | "-arch" => drop(value()?),
            // The value is the gold plugin, which the wrapper does not use.
            "-plugin" if by_wrapper => drop(value()?),
            "-m64" | "-m32" | "-dlto" | "-ignore-host-info" if !by_wrapper => {}
            _ if !by_wrapper && arg.starts_with(CPU_ARCH) => {}
            "-L" => line.folders.push(value()?.into()),
            "-l" => line.libraries.push(value()?.to_owned()),
            _ if !by_wrapper && arg.starts_with(NVVM_PATH) => {
                // nvlink loads the library, which reads no other file.
                let folder = Path::new(&arg[NVVM_PATH.len()..]);
                line.tools.push(folder.join(NVVM_LIBRARY));
            }
            _ => match (
                arg.strip_prefix("-L"),
                arg.strip_prefix("-l"),
                arg.strip_prefix(CUDA_PATH),
            ) {
                (Some(folder), ..) => line.folders.push(folder.into()),
                // `-lto…` are options of both programs.
                (_, Some(library), _) if !library.starts_with("to") => {
                    line.libraries.push(library.to_owned())
                }
                (.., Some(folder)) if by_wrapper => cuda = Some(PathBuf::from(folder)),
                _ if by_wrapper && is_plain_option(arg) => {}
                _ if !arg.starts_with(['-', '@']) && Path::new(arg).is_file() => {
                    line.files.push(arg.to_owned())
                }
                _ => {
                    return Err(format!(
                        "the cache does not support the linker argument `{arg}`"
                    ));
                }
            },
        }
    }
    // nvlink searches these directories for `-l` only. GCC sets the variable for its linker.
    let searches = by_wrapper || !line.libraries.is_empty();
    if searches && environment::get(environment::LIBRARY_PATH).is_some() {
        return Err(format!(
            "{} is set, and NVIDIA's linker searches those directories, too",
            environment::LIBRARY_PATH
        ));
    }
    if let Some(folder) = line
        .folders
        .iter()
        .find(|folder| folder.to_string_lossy().starts_with('='))
    {
        return Err(format!(
            "the cache does not support the library directory `{}`",
            folder.display()
        ));
    }
    if by_wrapper {
        line.tools =
            tools(&cuda.ok_or_else(|| format!("{CUDA_PATH} is not among the linker arguments"))?)?;
    }
    Ok(line)
}

/// Code generation options that read no files.
fn is_plain_option(arg: &str) -> bool {
    if KEEP_ALL.contains(&arg) {
        return true;
    }
    let option = arg
        .strip_prefix("--plugin-opt=")
        .or_else(|| arg.strip_prefix("-plugin-opt="));
    option.is_some_and(|option| {
        let level = option
            .strip_prefix('O')
            .is_some_and(|level| ["0", "1", "2", "3"].contains(&level));
        level || option.starts_with("-mattr=") || option.starts_with("mcpu=")
    })
}

/// The programs that LLVM's wrapper runs, in the toolkit's directory, which it searches first.
fn tools(cuda: &Path) -> Result<Vec<PathBuf>, String> {
    let tools = ["ptxas", NVLINK].map(|name| cuda.join("bin").join(name));
    match tools.iter().find(|tool| {
        !tool
            .metadata()
            .is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
    }) {
        // The wrapper would search `PATH`.
        Some(missing) => Err(format!(
            "{} is missing, so the compiler would run another one from PATH",
            missing.display()
        )),
        None => Ok(tools.into()),
    }
}

/// Collects the files that nvlink will read, before the link. `None` for other linkers.
///
/// nvlink does not list its inputs. Only files that are the same before and after the link are
/// known to be its inputs.
pub(super) fn before(line: &LinkerArgs, begun: SystemTime) -> Result<Option<Reads>, String> {
    if line.linker == Linker::Nvidia {
        gather(line, begun).map(Some)
    } else {
        Ok(None)
    }
}

/// Collects the files of [`before`] again after the link. Fails if they differ from `before`.
pub(super) fn after(line: &LinkerArgs, before: &Reads, begun: SystemTime) -> Result<Reads, String> {
    let reads = gather(line, begun)?;
    if reads.same_as(before) {
        Ok(reads)
    } else {
        Err("the input libraries have changed during the link".to_owned())
    }
}

/// Collects the files in the arguments, and the libraries in every directory where they might be.
fn gather(line: &LinkerArgs, begun: SystemTime) -> Result<Reads, String> {
    let mut candidates: BTreeSet<PathBuf> = line.files.iter().map(PathBuf::from).collect();
    for library in &line.libraries {
        let name = library
            .strip_prefix(':')
            .map_or_else(|| format!("lib{library}.a"), str::to_owned);
        candidates.extend(line.folders.iter().map(|folder| folder.join(&name)));
    }
    let mut files = BTreeSet::new();
    for place in candidates.iter().filter(|place| place.is_file()) {
        let bytes = Bytes::open(place).map_err(|error| format!("{}: {error}", place.display()))?;
        linker_reads::thin_members(place, bytes.as_slice(), 0, &mut files)?;
    }
    let mut collector = Collector::new(begun);
    for path in candidates.iter().chain(&files) {
        collector.looked_for(path)?;
    }
    Ok(collector.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(program: &str, args: &[&str]) -> LinkerCommand {
        let mut all: Vec<String> = ["-o", OUTPUT, "-arch", "sm_80", INPUT]
            .map(str::to_owned)
            .into();
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        LinkerCommand {
            program: program.into(),
            args: all,
            warnings: String::new(),
        }
    }

    #[test]
    fn only_known_arguments_are_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let cuda = format!("--cuda-path={}", dir.path().display());
        let read = |program: &str, args: &[&str]| read(&command(program, args));
        let wrapper = "/usr/lib/llvm-22/bin/clang-nvlink-wrapper";
        assert!(
            read(wrapper, &[&cuda])
                .unwrap_err()
                .contains("bin/ptxas is missing")
        );
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        for tool in ["ptxas", "nvlink"] {
            let path = dir.path().join("bin").join(tool);
            std::fs::write(&path, "x").unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .unwrap();
        }
        let line = read(
            wrapper,
            &[
                &cuda,
                "-L/a",
                "-L",
                "b",
                "-lx",
                "-l",
                ":y.a",
                "-plugin-opt=O2",
                "--plugin-opt=-mattr=+ptx78",
            ],
        );
        let line = line.unwrap();
        assert_eq!(line.folders, [Path::new("/a"), Path::new("b")]);
        assert_eq!(line.libraries, ["x", ":y.a"]);
        assert_eq!(line.tools.len(), 2);
        assert!(read(wrapper, &["-plugin", "/x/LLVMgold.so", &cuda]).is_ok());
        assert!(read(wrapper, &[]).unwrap_err().contains("--cuda-path="));
        assert!(
            read("/cuda/bin/nvlink", &["-m64", "-L/a", "-lx"])
                .unwrap()
                .tools
                .is_empty()
        );
        let lto = read("/cuda/bin/nvlink", &["-dlto", "-nvvmpath=/cuda/nvvm"]).unwrap();
        assert_eq!(lto.tools, [Path::new("/cuda/nvvm/lib64/libnvvm.so")]);
        for refused in [
            "-g",
            "-v",
            "--save-temps",
            "-mllvm=-x",
            "--plugin-opt=-x",
            "--ptxas-path=/x",
            "-lto-emit-asm",
            "--lto-emit-llvm",
            "none.a",
            "@file",
            "-L=/x",
            "--plugin-opt=jobs=2",
            "-u",
        ] {
            assert!(read(wrapper, &[&cuda, refused]).is_err(), "{refused}");
        }
        for refused in ["-lto", "-g", "-v", "--cuda-path=/x", "-plugin-opt=O2"] {
            assert!(read("/cuda/bin/nvlink", &[refused]).is_err(), "{refused}");
        }
    }

    #[test]
    fn libraries_are_tracked_in_every_directory() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = LinkerArgs::empty(Linker::Nvidia);
        line.folders = ["one", "two"].map(|name| dir.path().join(name)).into();
        line.libraries = vec!["x".to_owned(), ":y.a".to_owned()];
        line.folders
            .iter()
            .for_each(|folder| std::fs::create_dir(folder).unwrap());
        std::fs::write(dir.path().join("two/libx.a"), "!<arch>\n").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(3600);
        let mut reads = gather(&line, later).unwrap();
        assert_eq!(reads.file_names().len(), 1);
        assert_eq!(reads.absent_paths().len(), 3);
        assert!(reads.revalidate(later).is_ok());
        std::fs::write(dir.path().join("one/libx.a"), "!<arch>\n").unwrap();
        assert!(
            reads
                .revalidate(later)
                .unwrap_err()
                .contains("has appeared")
        );
    }

    #[test]
    fn changes_during_a_link_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let folders = ["one", "two"].map(|name| dir.path().join(name));
        let mut line = LinkerArgs::empty(Linker::Nvidia);
        for folder in &folders {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("libx.a"), "!<arch>\n").unwrap();
        }
        line.folders = folders.to_vec();
        line.libraries = vec!["x".to_owned()];
        let later = SystemTime::now() + std::time::Duration::from_secs(3600);
        let reads = before(&line, later).unwrap().unwrap();
        assert!(after(&line, &reads, later).is_ok());
        // The linker has read the first library. Without the check, the second one would be
        // recorded instead.
        std::fs::remove_file(folders[0].join("libx.a")).unwrap();
        assert!(
            after(&line, &reads, later)
                .unwrap_err()
                .contains("during the link")
        );
        let reads = before(&line, later).unwrap().unwrap();
        std::fs::write(folders[0].join("libx.a"), "!<arch>\n").unwrap();
        assert!(
            after(&line, &reads, later)
                .unwrap_err()
                .contains("during the link")
        );
        assert!(
            before(&LinkerArgs::empty(Linker::Lld), later)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn compilers_with_random_names_are_not_queried() {
        let named: Vec<OsString> = vec!["--cuda-path=/x".into()];
        assert!(
            check_query(Some(18), &named)
                .unwrap_err()
                .contains("clang 18")
        );
        assert!(
            check_query(Some(22), &[])
                .unwrap_err()
                .contains("--cuda-path=")
        );
        assert!(check_query(Some(19), &named).is_ok() && check_query(None, &named).is_ok());
    }
}
