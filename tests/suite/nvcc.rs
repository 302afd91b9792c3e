//! Relocatable device code of NVIDIA's compiler (`nvcc -rdc=true`), linked by offld without a
//! device-link step. Each program must register the same as the program that `nvcc -dlink` and g++
//! make of the same modules, and its images must have the same contents. The sources are in
//! `tests/nvcc`.

mod builds;
mod faults;
mod mixed;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use libtest_mimic::{Failed, Trial};
use object::{Object, ObjectSection};

use super::kinds::{normalized, stubs};
use super::support::{
    Outcome, Work, cuda_tools, expect_equal, expect_in, expect_not_in, host_linker, made, missing,
    nvcc, offld, passed, root, run, test,
};

/// A test with its name.
type Named = (&'static str, fn(&Toolkit, &Work) -> Outcome);

/// A program.
#[derive(Clone, Copy)]
struct Program {
    name: &'static str,
    /// The architectures that all units are compiled for.
    archs: &'static [&'static str],
    /// Further arguments of nvcc.
    flags: &'static [&'static str],
    /// Units with their own object in the line.
    units: &'static [&'static str],
    /// Archives with their members.
    archives: &'static [(&'static str, &'static [&'static str])],
    /// The members that the program contains, in order.
    pulled: &'static [&'static str],
    /// The host linker: `-fuse-ld=` of the reference, and offld's.
    linker: &'static str,
    /// Further arguments of the host link.
    line: &'static [&'static str],
}

const PLAIN: Program = Program {
    name: "",
    archs: &["80", "90"],
    flags: &[],
    units: &["main", "other"],
    archives: &[],
    pulled: &[],
    linker: "bfd",
    line: &[],
};

/// A program whose device code is all in one archive. Nothing needs one of the members.
const LIBRARY: Program = Program {
    units: &["host"],
    archives: &[("libparts.a", &["unused", "square", "device", "library"])],
    pulled: &["square", "device", "library"],
    ..PLAIN
};

const PROGRAMS: &[Program] = &[
    Program {
        name: "units-bfd",
        ..PLAIN
    },
    Program {
        name: "units-gold",
        linker: "gold",
        ..PLAIN
    },
    Program {
        name: "units-lld",
        linker: "lld",
        ..PLAIN
    },
    Program {
        name: "units-mold",
        linker: "mold",
        ..PLAIN
    },
    Program {
        name: "units-wild",
        linker: "wild",
        ..PLAIN
    },
    Program {
        name: "other-order",
        units: &["other", "main"],
        ..PLAIN
    },
    Program {
        name: "five-architectures",
        archs: &["75", "80", "86", "90", "100"],
        ..PLAIN
    },
    Program {
        name: "one-architecture",
        archs: &["90"],
        ..PLAIN
    },
    Program {
        name: "no-pie",
        line: &["-no-pie"],
        ..PLAIN
    },
    Program {
        name: "pie-lld",
        linker: "lld",
        line: &["-pie"],
        ..PLAIN
    },
    Program {
        name: "static",
        line: &["-static"],
        ..PLAIN
    },
    Program {
        name: "static-pie-lld",
        linker: "lld",
        line: &["-static-pie"],
        ..PLAIN
    },
    Program {
        name: "gc-sections",
        linker: "lld",
        line: &["-Wl,--gc-sections"],
        ..PLAIN
    },
    Program {
        name: "icf",
        linker: "gold",
        line: &["-Wl,--gc-sections,--icf=all"],
        ..PLAIN
    },
    Program {
        name: "debug",
        flags: &["-g", "-G"],
        ..PLAIN
    },
    Program {
        name: "lineinfo",
        flags: &["-lineinfo"],
        ..PLAIN
    },
    Program {
        name: "uncompressed",
        flags: &["-no-compress"],
        ..PLAIN
    },
    Program {
        name: "texture",
        units: &["texture", "other"],
        ..PLAIN
    },
    Program {
        name: "virtual",
        units: &["virtual", "shape"],
        ..PLAIN
    },
    Program {
        name: "library-bfd",
        ..LIBRARY
    },
    Program {
        name: "library-gold",
        linker: "gold",
        ..LIBRARY
    },
    Program {
        name: "library-lld",
        linker: "lld",
        ..LIBRARY
    },
    Program {
        name: "library-mold",
        linker: "mold",
        ..LIBRARY
    },
    Program {
        name: "library-wild",
        linker: "wild",
        ..LIBRARY
    },
    Program {
        name: "two-libraries",
        archives: &[
            ("libfirst.a", &["unused", "library"]),
            ("libsecond.a", &["device", "square"]),
        ],
        pulled: &["library", "device", "square"],
        ..LIBRARY
    },
    Program {
        name: "unused-library",
        archives: &[("libunused.a", &["unused"])],
        ..PLAIN
    },
    Program {
        name: "unit-in-library",
        units: &["main"],
        archives: &[("libother.a", &["unused", "other"])],
        pulled: &["other"],
        ..PLAIN
    },
    Program {
        name: "dynamic",
        units: &["dynamic"],
        ..PLAIN
    },
    Program {
        name: "dynamic-lld",
        units: &["dynamic"],
        linker: "lld",
        ..PLAIN
    },
    Program {
        name: "lto",
        flags: &["-dlto"],
        ..PLAIN
    },
    Program {
        name: "lto-lld",
        flags: &["-dlto"],
        linker: "lld",
        ..PLAIN
    },
    Program {
        name: "lto-virtual",
        flags: &["-dlto"],
        units: &["virtual", "shape"],
        ..PLAIN
    },
    // nvlink alone can read the symbols of such code, so offld takes all members, as `nvcc -dlink` does.
    Program {
        name: "lto-library",
        flags: &["-dlto"],
        pulled: &["unused", "square", "device", "library"],
        ..LIBRARY
    },
    Program {
        name: "lto-dynamic",
        flags: &["-dlto"],
        units: &["dynamic"],
        ..PLAIN
    },
];

/// One test for each program, and those of the submodules.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = PROGRAMS
        .iter()
        .map(|program| {
            test(format!("releases::nvcc::{}", program.name), move || {
                same_as_nvcc(program)
            })
        })
        .collect();
    trials.append(&mut builds::trials());
    trials.append(&mut mixed::trials());
    trials.append(&mut faults::trials());
    trials
}

/// NVIDIA's compiler, and its tools for finished files.
struct Toolkit {
    /// The directory of nvcc.
    nvcc: PathBuf,
    /// The directory of cuobjdump.
    tools: PathBuf,
}

impl Toolkit {
    fn find() -> Option<Toolkit> {
        Some(Toolkit {
            nvcc: nvcc()?,
            tools: cuda_tools(22)?,
        })
    }

    /// A command whose `PATH` has nvcc.
    fn command(&self, work: &Work, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = work.command(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = [self.nvcc.join("bin")]
            .into_iter()
            .chain(std::env::split_paths(&path));
        command.env(
            "PATH",
            std::env::join_paths(folders).expect("folders without colons"),
        );
        command
    }

    /// Runs nvcc.
    fn nvcc(&self, work: &Work, words: &[String]) -> Result<(), Failed> {
        run(self.command(work, self.nvcc.join("bin/nvcc")).args(words)).map(drop)
    }

    /// Returns the object of a unit, which all tests share.
    fn object(&self, unit: &str, archs: &[&str], flags: &[&str]) -> Result<PathBuf, Failed> {
        static COMPILING: Mutex<()> = Mutex::new(());
        let folder = made().shared("nvcc-objects");
        let name = format!("{unit}-{}{}.o", archs.join("-"), flags.join(""));
        let object = folder.join(&name);
        // nvcc starts many processes, so one after the other is not slower.
        let _one = COMPILING
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if object.is_file() {
            return Ok(object);
        }
        std::fs::create_dir_all(&folder)?;
        let work = Work::new();
        let source = root().join("tests/nvcc");
        let source = ["cu", "cpp"]
            .map(|ending| source.join(format!("{unit}.{ending}")))
            .into_iter()
            .find(|path| path.is_file())
            .ok_or("no such source")?;
        let made = work.path().join(&name);
        let mut words = vec!["-rdc=true".to_owned(), "-c".to_owned()];
        words.extend(architectures(archs, flags));
        words.extend(
            flags
                .iter()
                .filter(|flag| **flag != "-dlto")
                .map(|flag| (*flag).to_owned()),
        );
        words.extend(["-Xcompiler=-fPIC", "-o"].map(str::to_owned));
        words.extend([made.display().to_string(), source.display().to_string()]);
        self.nvcc(&work, &words)?;
        std::fs::copy(&made, folder.join("new.o"))?;
        std::fs::rename(folder.join("new.o"), &object)?;
        Ok(object)
    }
}

/// nvcc's arguments for these architectures. With `-dlto`, the code is for link-time optimization.
fn architectures(archs: &[&str], flags: &[&str]) -> Vec<String> {
    let kind = if flags.contains(&"-dlto") {
        "lto"
    } else {
        "sm"
    };
    archs
        .iter()
        .map(|arch| format!("-gencode=arch=compute_{arch},code={kind}_{arch}"))
        .collect()
}

/// The directory with the stub of the runtime as a static library, and the real device runtime.
fn libraries(toolkit: &Toolkit) -> Result<PathBuf, Failed> {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let work = Work::new();
    let folder = made().shared("nvcc-libraries");
    let make = || -> Result<(), Failed> {
        std::fs::create_dir_all(&folder)?;
        let object = work.path().join("cuda.o");
        run(work
            .command("cc")
            .args(["-std=c11", "-O1", "-fPIC", "-c", "-o"])
            .arg(&object)
            .arg(root().join("runtime-stubs/cuda.c")))?;
        run(work
            .command("ar")
            .arg("rcs")
            .arg(folder.join("libcudart.a"))
            .arg(&object))?;
        std::os::unix::fs::symlink(stubs().join("libcudart.so"), folder.join("libcudart.so"))?;
        std::os::unix::fs::symlink(
            toolkit.nvcc.join("lib/libcudadevrt.a"),
            folder.join("libcudadevrt.a"),
        )?;
        Ok(())
    };
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if MADE.get().is_none() {
        make()?;
        let _ = MADE.set(folder.clone());
    }
    Ok(folder)
}

/// The objects and archives of a program, and the line that names them.
struct Inputs {
    /// The objects of the units, and those of the members that the program contains.
    modules: Vec<PathBuf>,
    line: Vec<String>,
}

impl Inputs {
    fn of(program: &Program, toolkit: &Toolkit, work: &Work) -> Result<Inputs, Failed> {
        let object = |unit: &&str| toolkit.object(unit, program.archs, program.flags);
        let units: Vec<PathBuf> = program.units.iter().map(object).collect::<Result<_, _>>()?;
        let pulled: Vec<PathBuf> = program
            .pulled
            .iter()
            .map(object)
            .collect::<Result<_, _>>()?;
        let mut line: Vec<String> = units
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        for (name, members) in program.archives {
            let members: Vec<PathBuf> = members.iter().map(object).collect::<Result<_, _>>()?;
            let archive = work.path().join(name);
            run(work.command("ar").arg("rcs").arg(&archive).args(members))?;
            line.push(archive.display().to_string());
        }
        Ok(Inputs {
            modules: units.into_iter().chain(pulled).collect(),
            line,
        })
    }
}

/// The arguments at the end of each host link.
fn endings(toolkit: &Toolkit) -> Result<Vec<String>, Failed> {
    Ok(vec![
        format!("-L{}", libraries(toolkit)?.display()),
        "-lcudadevrt".to_owned(),
        "-lcudart".to_owned(),
        "-ldl".to_owned(),
        "-lpthread".to_owned(),
    ])
}

/// Links `line` with g++ and offld to `output`.
fn by_offld(
    toolkit: &Toolkit,
    work: &Work,
    linker: &str,
    line: &[String],
    output: &Path,
) -> Result<String, Failed> {
    run(&mut offld_command(toolkit, work, linker, line, output)?)
}

/// The command of [`by_offld`].
fn offld_command(
    toolkit: &Toolkit,
    work: &Work,
    linker: &str,
    line: &[String],
    output: &Path,
) -> Result<Command, Failed> {
    let mut command = toolkit.command(work, "g++");
    command
        .arg(format!("-B{}", made().as_ld.display()))
        .env("OFFLD_LINKER", host_linker(linker).ok_or("no such linker")?)
        .arg("-o")
        .arg(output)
        .args(line)
        .args(endings(toolkit)?);
    Ok(command)
}

/// The calls with which a program registers its images, and its launches.
fn registered(work: &Work, program: &Path) -> Result<String, Failed> {
    let ledger = work.path().join("ledger");
    let libraries = made().shared("nvcc-libraries");
    let path = format!("{}:{}", libraries.display(), work.path().display());
    let output = work
        .command(program)
        .env("OFFLD_LEDGER", &ledger)
        .env("LD_LIBRARY_PATH", path)
        .output()?;
    expect_equal(
        "output",
        "no device\n",
        &String::from_utf8_lossy(&output.stdout),
    )?;
    expect_equal("status", "Some(77)", &format!("{:?}", output.status.code()))?;
    let text = normalized(work, &ledger)?;
    std::fs::remove_file(ledger)?;
    expect_not_in(&text, "BAD")?;
    Ok(text)
}

/// The names of the cubins in a file, in order, each with the contents of its sections. The command
/// of nvlink, which is in a note, differs.
fn cubins(toolkit: &Toolkit, work: &Work, file: &Path) -> Result<Vec<(String, String)>, Failed> {
    let folder = work.path().join("cubins");
    std::fs::create_dir_all(&folder)?;
    run(work
        .command(toolkit.tools.join("bin/cuobjdump"))
        .current_dir(&folder)
        .args(["-xelf", "all"])
        .arg(file))?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        let bytes = std::fs::read(&path)?;
        let cubin = object::File::parse(&*bytes)?;
        let mut text = String::new();
        for section in cubin.sections() {
            let name = section.name().unwrap_or("?");
            // Offsets into the names of sections and symbols follow from their order.
            if [".note.nv.tkinfo", ".shstrtab", ".strtab"].contains(&name) {
                continue;
            }
            let data = section.data().unwrap_or_default();
            text += &format!("{name} {} {:x}\n", data.len(), md5(data));
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // `prog.2.sm_90.cubin`: the architecture is the last part.
        let arch = name
            .trim_end_matches(".cubin")
            .rsplit('.')
            .next()
            .unwrap_or("?")
            .to_owned();
        found.push((arch, text));
    }
    std::fs::remove_dir_all(folder)?;
    found.sort();
    Ok(found)
}

/// A hash for comparisons.
fn md5(data: &[u8]) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}

/// Compares the images of two programs.
fn same_cubins(toolkit: &Toolkit, work: &Work, one: &Path, other: &Path) -> Outcome {
    let (one, other) = (cubins(toolkit, work, one)?, cubins(toolkit, work, other)?);
    expect_equal(
        "number of cubins",
        &one.len().to_string(),
        &other.len().to_string(),
    )?;
    for ((arch, one), (other_arch, other)) in one.iter().zip(&other) {
        expect_equal("architecture", arch, other_arch)?;
        expect_equal(&format!("the cubin for {arch}"), one, other)?;
    }
    passed()
}

/// Makes the reference for these modules: the object of `nvcc -dlink`.
fn device_linked(
    toolkit: &Toolkit,
    work: &Work,
    program: &Program,
    modules: &[PathBuf],
) -> Result<PathBuf, Failed> {
    let object = work.path().join("dlink.o");
    let mut words = vec!["-dlink".to_owned(), "-Xcompiler=-fPIC".to_owned()];
    words.extend(
        program
            .archs
            .iter()
            .map(|arch| format!("-gencode=arch=compute_{arch},code=sm_{arch}")),
    );
    words.extend(
        program
            .flags
            .iter()
            .filter(|flag| ["-dlto", "-G", "-g"].contains(flag))
            .map(|flag| (*flag).to_owned()),
    );
    words.extend(modules.iter().map(|path| path.display().to_string()));
    words.extend(["-o".to_owned(), object.display().to_string()]);
    toolkit.nvcc(work, &words)?;
    Ok(object)
}

/// The lines of a registration log that are not about the module of the device runtime.
fn without_device_runtime(ledger: &str) -> String {
    let is_own = |line: &&str| {
        let names = [
            "cuda_device_runtime_cu",
            "__CNPRT_VERSION_NUMBER__",
            "name=cudartError",
        ];
        !line.contains("prelinked=1 ") && !names.iter().any(|name| line.contains(name))
    };
    ledger
        .lines()
        .filter(is_own)
        .map(|line| format!("{line}\n"))
        .collect()
}

fn same_as_nvcc(program: &Program) -> Outcome {
    let Some(toolkit) = Toolkit::find() else {
        return missing("NVIDIA's tools and nvcc (make setup-cuda)");
    };
    let Some(linker) = host_linker(program.linker) else {
        return missing(format!("the linker {}", program.linker));
    };
    let work = Work::new();
    let inputs = Inputs::of(program, &toolkit, &work)?;
    let mut line = inputs.line.clone();
    line.extend(program.line.iter().map(|word| (*word).to_owned()));
    let (ours, theirs) = (work.path().join("ours"), work.path().join("theirs"));
    let printed = by_offld(&toolkit, &work, program.linker, &line, &ours)?;
    expect_equal("output of the link", "", &printed)?;

    let mut reference = vec![device_linked(&toolkit, &work, program, &inputs.modules)?];
    reference.extend(line.iter().map(PathBuf::from));
    // g++ runs the first `ld` in the directory.
    let folder = work.path().join("linker");
    std::fs::create_dir_all(&folder)?;
    std::os::unix::fs::symlink(linker, folder.join("ld"))?;
    run(work
        .command("g++")
        .arg(format!("-B{}", folder.display()))
        .arg("-o")
        .arg(&theirs)
        .args(reference)
        .args(endings(&toolkit)?))?;
    let expected = registered(&work, &theirs)?;
    let expected = match (program.flags, program.units) {
        // `nvcc -dlink` registers the module of the device runtime, whose kernels host code does not
        // launch.
        (["-dlto"], ["dynamic"]) => without_device_runtime(&expected),
        _ => expected,
    };
    expect_equal("registration", &expected, &registered(&work, &ours)?)?;
    same_cubins(&toolkit, &work, &theirs, &ours)?;
    // The list of inspect has the same images.
    let listed = run(work.command(offld()).arg("inspect").arg(&ours))?;
    for arch in program.archs {
        expect_in(&listed, &format!("sm_{arch}"))?;
    }
    passed()
}
