//! CUDA, HIP and SYCL: each case of `tests/kinds` (see its README for the format) with the
//! compilers of each release that it names. offld in place of that release's wrapper and the
//! wrapper itself link the program, which runs with the runtime stubs. Both must register the
//! values that the case lists.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use super::support::{
    Outcome, Release, Work, cuda_tools, expect_equal, llvm, made, missing, passed, root, run, test,
};

/// One test per case and release. The test of a case that only LLVM 22 can build has the name of
/// the case.
pub(crate) fn trials() -> Vec<Trial> {
    let files = std::fs::read_dir(folder())
        .expect("tests/kinds")
        .filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|end| end == "case"))
        .collect();
    files.sort();
    let mut trials = Vec::new();
    for file in files {
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&file).expect("a case");
        for release in Case::read(&text, 22).releases() {
            let case = Case::read(&text, release);
            let name = if release == 22 && !case.has_cuda() {
                format!("kinds::{name}")
            } else {
                format!("releases::kinds::{name}::{release}")
            };
            trials.push(test(name, move || check(&case)));
        }
    }
    trials
}

/// The directory of the cases and their sources.
pub(crate) fn folder() -> PathBuf {
    root().join("tests/kinds")
}

/// A case for one release.
pub(crate) struct Case {
    release: u32,
    /// Key with name, and value, in order.
    directives: Vec<(String, String)>,
}

/// The tool that links.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Wrapper {
    /// offld.
    Ours,
    /// offld, with late images.
    Late,
    /// offld, with images in files.
    External,
    /// The wrapper of the LLVM release that compiles.
    Theirs,
}

impl Case {
    /// Reads the lines of `text` that apply to `release`.
    pub(crate) fn read(text: &str, release: u32) -> Case {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let directives = lines.filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            let (word, rest) = key.split_once(' ').unwrap_or((key, ""));
            let by_release = matches!(word, "expect" | "ledger" | "reference") && !rest.is_empty();
            let wanted = !by_release || rest.split(' ').any(|word| word == release.to_string());
            let key = if by_release { word } else { key };
            wanted.then(|| {
                (
                    key.to_owned(),
                    value.strip_prefix(' ').unwrap_or(value).to_owned(),
                )
            })
        });
        Case {
            release,
            directives: directives.collect(),
        }
    }

    /// Reads the case with this name.
    pub(crate) fn named(name: &str, release: u32) -> Case {
        let text = std::fs::read_to_string(folder().join(format!("{name}.case"))).expect("a case");
        Case::read(&text, release)
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.directives
            .iter()
            .filter(move |(own, _)| own == key)
            .map(|(_, value)| value.as_str())
    }

    fn releases(&self) -> Vec<u32> {
        self.all("releases")
            .flat_map(|value| value.split(' '))
            .map(|word| word.parse().expect("a release"))
            .collect()
    }

    fn has_cuda(&self) -> bool {
        self.directives
            .iter()
            .any(|(key, value)| key.starts_with("object ") && value.starts_with("cuda "))
    }

    fn is_linked_when_compiled(&self) -> bool {
        self.all("rdc").any(|value| value == "no")
    }

    /// All lines of `key`.
    pub(crate) fn text(&self, key: &str) -> String {
        self.all(key).map(|line| format!("{line}\n")).collect()
    }

    /// The steps that compile objects, or all other steps in order: kind of output, name,
    /// arguments.
    fn steps(&self, objects: bool) -> impl Iterator<Item = (&str, &str, Vec<&str>)> {
        self.directives.iter().filter_map(move |(key, value)| {
            let (kind, name) = key.split_once(' ').unwrap_or((key, "program"));
            let wanted = if objects {
                kind == "object"
            } else {
                ["static", "shared", "partial", "link"].contains(&kind)
            };
            wanted.then(|| (kind, name, value.split_whitespace().collect()))
        })
    }

    /// The tools that the case needs, or an ignored test that names a missing tool.
    pub(crate) fn tools(&self) -> Result<Tools, Outcome> {
        let release = Release::of(self.release)
            .ok_or_else(|| missing(format!("LLVM {} (make setup-releases)", self.release)))?;
        let cuda = cuda_tools(self.release);
        if self.has_cuda() && cuda.is_none() {
            return Err(missing("NVIDIA's tools (make setup-cuda)"));
        }
        Ok(Tools {
            release,
            cuda: cuda.unwrap_or_default(),
        })
    }

    /// Compiles the objects for a link by `wrapper`.
    pub(crate) fn compile(
        &self,
        work: &Work,
        tools: &Tools,
        wrapper: Wrapper,
    ) -> Result<(), Failed> {
        self.compile_with(work, tools, wrapper, &[])
    }

    /// Like `compile`, with `extra` arguments for each object with device code. `@name@` in them
    /// stands for the name of the object.
    pub(crate) fn compile_with(
        &self,
        work: &Work,
        tools: &Tools,
        wrapper: Wrapper,
        extra: &[&str],
    ) -> Result<(), Failed> {
        for (_, name, args) in self.steps(true) {
            let mut command = tools.command(work, "clang");
            command
                .args(["-O2", "-fPIC"])
                .args(self.language(args[0], tools))
                .arg("-c")
                .arg(folder().join(args[1]));
            if wrapper != Wrapper::Theirs {
                command.arg("-B").arg(&made().links);
            }
            let extra = extra
                .iter()
                .filter(|_| args[0] != "c")
                .map(|word| word.replace("@name@", name));
            command.args(extra);
            run(command
                .args(["-o", name])
                .args(args[2..].iter().map(|word| tools.in_word(word))))?;
        }
        // clang 15 and 16 leave temporary files.
        let _ = std::fs::remove_dir_all(work.path().join("tmp"));
        Ok(())
    }

    /// Compiler options for a language.
    fn language(&self, name: &str, tools: &Tools) -> Vec<String> {
        let headers = root().join("tests/device-headers").display().to_string();
        let cuda = tools.cuda.display().to_string();
        let rdc = if self.is_linked_when_compiled() {
            ""
        } else {
            "-fgpu-rdc"
        };
        let archs = if self.release == 15 {
            "sm_80,sm_86"
        } else {
            "sm_80,sm_90"
        };
        // clang 15 does not know this version of CUDA, and would then generate calls for the
        // oldest.
        let version_flags = if self.release == 15 {
            "-Wno-unknown-cuda-version -Xclang -target-sdk-version=11.5"
        } else {
            ""
        };
        let offload = format!("--offload-new-driver {rdc} -isystem @headers@");
        let flags = match name {
            "hip" => format!("-x hip {offload} -nogpuinc -nogpulib --offload-arch=gfx90a,gfx908"),
            "cuda" => {
                format!(
                    "-x cuda {offload} -nocudainc -nocudalib --cuda-path=@cuda@ --offload-arch={archs} {version_flags}"
                )
            }
            "sycl" => "-fsycl -x c++".to_owned(),
            "openmp" => "-fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -x c".to_owned(),
            "c" => "-x c".to_owned(),
            other => panic!("no language {other}"),
        };
        // Split first: the names of directories may have spaces.
        flags
            .split_whitespace()
            .map(|flag| flag.replace("@headers@", &headers).replace("@cuda@", &cuda))
            .collect()
    }

    /// Runs all other steps, up to `program`, with `extra` arguments for each link.
    pub(crate) fn link(
        &self,
        work: &Work,
        tools: &Tools,
        wrapper: Wrapper,
        extra: &[&str],
    ) -> Result<(), Failed> {
        for (kind, name, args) in self.steps(false) {
            let args = args.into_iter().map(|word| tools.in_word(word));
            if kind == "static" {
                run(work.command(llvm("llvm-ar")).args(["rcs", name]).args(args))?;
                continue;
            }
            let mut command = tools.command(work, "clang++");
            command.args(["-O2", "--offload-link"]);
            if wrapper != Wrapper::Theirs {
                command.arg("-B").arg(&made().links);
            }
            if wrapper == Wrapper::Late {
                command.env("OFFLD_LATE_IMAGES", "on");
            }
            if wrapper == Wrapper::External && kind != "partial" {
                command.arg("-Wl,--wrapper-external-images");
            }
            match kind {
                "shared" => command.args(["-shared", "-L."]),
                "partial" => command.arg("-r"),
                _ => command.arg("-L."),
            };
            command.arg(format!("-L{}", stubs().display()));
            run(command.args(["-o", name]).args(args).args(extra))?;
        }
        Ok(())
    }

    /// Runs the program. Returns its stdout and its normalized registration log.
    pub(crate) fn run(&self, work: &Work) -> Result<(String, String), Failed> {
        let ledger = work.path().join("ledger");
        let _ = std::fs::remove_file(&ledger);
        let libraries =
            std::env::join_paths([work.path(), stubs()]).expect("folders without colons");
        let printed = run(work
            .command("./program")
            .env("OFFLD_LEDGER", &ledger)
            // Programs load images from files for all AMD GPUs.
            .env("HSA_OVERRIDE_GFX_VERSION", "9.0.10")
            .env("LD_LIBRARY_PATH", libraries))?;
        Ok((printed, normalized(work, &ledger)?))
    }
}

/// The registration log in a form that is the same for equal registrations: grouped by runtime,
/// with sorted image lines in each table.
pub(crate) fn normalized(work: &Work, ledger: &Path) -> Result<String, Failed> {
    let cleaned = run(work
        .command("sed")
        .arg("-f")
        .arg(folder().join("normalize.sed"))
        .arg(ledger))?;
    let mut lines: Vec<&str> = cleaned.lines().collect();
    lines.sort_by_key(|line| line.split(' ').next());
    let is_image =
        |line: &&str| line.split(' ').nth(1) == Some("image") && !line.starts_with("BAD");
    for images in lines.chunk_by_mut(|a, b| is_image(a) && is_image(b)) {
        images.sort_unstable();
    }
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

/// The compilers of a release, and NVIDIA's tools if a case needs them.
pub(crate) struct Tools {
    release: Release,
    cuda: PathBuf,
}

impl Tools {
    /// A compiler driver whose `PATH` contains NVIDIA's tools and the driver's own directory,
    /// because clang searches there.
    pub(crate) fn command(&self, work: &Work, name: &str) -> Command {
        let mut command = work.command(self.release.tool(name));
        let before = std::env::var_os("PATH").unwrap_or_default();
        let folders = [self.cuda.join("bin")]
            .into_iter()
            .filter(|_| self.cuda != Path::new(""));
        let folders = folders
            .chain(std::env::split_paths(&before))
            .chain([self.release.bin.clone()]);
        command.env(
            "PATH",
            std::env::join_paths(folders).expect("folders without colons"),
        );
        command
    }

    fn in_word(&self, word: &str) -> String {
        word.replace("@cuda@", &self.cuda.display().to_string())
    }
}

/// The directory of the runtime stubs, with the file names of the real libraries.
pub(crate) fn stubs() -> &'static Path {
    static STUBS: OnceLock<PathBuf> = OnceLock::new();
    STUBS.get_or_init(|| {
        let folder = made().shared("kind-stubs");
        std::fs::create_dir(&folder).expect("a folder");
        for (source, library) in [
            ("openmp", "omptarget"),
            ("cuda", "cudart"),
            ("hip", "amdhip64"),
            ("sycl", "sycl"),
        ] {
            let mut compile = Command::new("cc");
            compile.args(["-std=c11", "-Wall", "-Werror", "-shared", "-fPIC"]);
            compile.arg(root().join(format!("runtime-stubs/{source}.c")));
            run(compile
                .arg("-o")
                .arg(folder.join(format!("lib{library}.so"))))
            .expect("a runtime stub");
        }
        folder
    })
}

fn check(case: &Case) -> Outcome {
    let tools = match case.tools() {
        Ok(tools) => tools,
        Err(missing) => return missing,
    };
    let work = Work::new();
    let reference_fails = case
        .all("reference")
        .any(|value| value.starts_with("fails"));
    for wrapper in [Wrapper::Ours, Wrapper::Late, Wrapper::Theirs] {
        if wrapper == Wrapper::Theirs && reference_fails {
            continue;
        }
        let with_context = |failed: Failed| {
            Failed::from(format!(
                "{wrapper:?}: {}",
                failed.message().unwrap_or_default()
            ))
        };
        if wrapper != Wrapper::Late && (wrapper == Wrapper::Ours || case.is_linked_when_compiled())
        {
            case.compile(&work, &tools, wrapper).map_err(with_context)?;
        }
        case.link(&work, &tools, wrapper, &[])
            .map_err(with_context)?;
        if wrapper != Wrapper::Theirs {
            work.expect_no_temps()?;
        }
        let (printed, ledger) = case.run(&work).map_err(with_context)?;
        expect_equal(
            &format!("{wrapper:?}: stdout of the program"),
            &case.text("expect"),
            &printed,
        )?;
        expect_equal(
            &format!("{wrapper:?}: the ledger"),
            &case.text("ledger"),
            &ledger,
        )?;
    }
    passed()
}
