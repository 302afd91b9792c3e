//! The programs of `tests/programs` (see its README for the format of their first lines). Each is
//! compiled once, then linked by offld as clang's wrapper, by offld as the linker, and by LLVM's
//! own wrapper. Run with offloading, each must print its expected output, and all wrappers must
//! register the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::effort::rounds;
use super::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, have_llvm, ledger, llvm, made,
    missing, passed, run, run_offloaded, test,
};

/// Programs that are linked without [`FAST`], with the options that users have.
const AS_USERS_LINK: [&str; 3] = ["archive-members", "reduction", "shared-and-main"];
/// GNU ld otherwise reads the symbols of libLLVM.so, which libomptarget.so needs, in each link.
const FAST: &str = "-Wl,--allow-shlib-undefined";

/// One test per program and host linker.
pub(crate) fn trials() -> Vec<Trial> {
    let folder = super::support::root().join("tests/programs");
    let mut mains: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("tests/programs")
        .filter_map(|entry| main_file(&entry.ok()?.path()))
        .collect();
    mains.sort();
    let mut trials = Vec::new();
    for main in mains {
        let program = Program::read(&main);
        for linker in program
            .words("linkers")
            .unwrap_or_else(|| vec!["bfd".to_owned()])
        {
            let program = program.clone();
            trials.push(test(
                format!("programs::{}::{linker}", program.name),
                move || check(&program, &linker),
            ));
        }
    }
    trials
}

fn main_file(path: &Path) -> Option<PathBuf> {
    let is_source = |path: &Path| {
        path.extension()
            .is_some_and(|end| end == "c" || end == "cpp")
    };
    if path.is_dir() {
        return ["main.c", "main.cpp"]
            .iter()
            .map(|name| path.join(name))
            .find(|main| main.is_file());
    }
    is_source(path).then(|| path.to_path_buf())
}

/// A program of `tests/programs`.
#[derive(Clone)]
pub(crate) struct Program {
    name: String,
    main: PathBuf,
    directives: Vec<(String, String)>,
}

/// The tool that links a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Linked {
    /// offld as `clang-linker-wrapper`.
    Wrapper,
    /// offld as `clang-linker-wrapper`, with late images.
    Late,
    /// offld as `ld.offld`: the compiler driver gets no offload options.
    Linker,
    /// LLVM's wrapper.
    Reference,
}

/// How a program is linked.
#[derive(Clone)]
pub(crate) struct Way {
    /// The tool that links.
    pub linked: Linked,
    /// The host linker.
    pub linker: String,
    /// The release of the compiler driver and the runtime.
    pub release: Release,
}

impl Way {
    /// A description for error messages.
    pub(crate) fn name(&self) -> String {
        format!(
            "{:?}, {}, by the driver of LLVM {}",
            self.linked, self.linker, self.release.major
        )
    }
}

impl Program {
    /// The program with this name.
    pub(crate) fn named(name: &str) -> Program {
        let folder = super::support::root().join("tests/programs");
        let places = [name.to_owned(), format!("{name}.c"), format!("{name}.cpp")];
        let main = places
            .iter()
            .find_map(|place| main_file(&folder.join(place)).filter(|main| main.is_file()));
        Program::read(&main.unwrap_or_else(|| panic!("tests/programs has no {name}")))
    }

    fn read(main: &Path) -> Program {
        let source = std::fs::read_to_string(main).expect("a source file");
        let heads = source.lines().map_while(|line| line.strip_prefix("//!"));
        let directives = heads.filter_map(|line| {
            let (key, value) = line.trim_start().split_once(':')?;
            Some((
                key.to_owned(),
                value.strip_prefix(' ').unwrap_or(value).to_owned(),
            ))
        });
        let stem = main.file_stem().unwrap_or_default();
        let name = if stem == "main" {
            main.parent().and_then(Path::file_name).unwrap_or_default()
        } else {
            stem
        };
        Program {
            name: name.to_string_lossy().into_owned(),
            main: main.to_path_buf(),
            directives: directives.collect(),
        }
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.directives
            .iter()
            .filter(move |(own, _)| own == key)
            .map(|(_, value)| value.as_str())
    }

    fn words(&self, key: &str) -> Option<Vec<String>> {
        self.all(key)
            .next()
            .map(|value| value.split_whitespace().map(str::to_owned).collect())
    }

    fn flags(&self, key: &str) -> Vec<String> {
        self.words(key).unwrap_or_default()
    }

    fn is_plain(&self, name: &str) -> bool {
        self.flags("plain").iter().any(|plain| plain == name)
    }

    /// Whether LLVM's wrapper cannot link the program, or links one that does not run.
    pub(crate) fn fails_with_reference(&self, linker: &str) -> bool {
        self.all("reference")
            .chain(self.all(&format!("reference {linker}")))
            .any(|value| value.starts_with("fails"))
    }

    /// The steps in order: kind of output, name, arguments.
    fn steps(&self) -> Vec<(&str, &str, Vec<&str>)> {
        const STEPS: [&str; 6] = ["static", "thin", "shared", "merge", "partial", "response"];
        self.directives
            .iter()
            .filter_map(|(key, value)| {
                let (kind, name) = key.split_once(' ')?;
                STEPS
                    .contains(&kind)
                    .then(|| (kind, name, value.split_whitespace().collect()))
            })
            .collect()
    }

    fn sources(&self) -> Vec<String> {
        let link = self.link_words();
        let all = self
            .steps()
            .into_iter()
            .flat_map(|(_, _, args)| args.into_iter().map(str::to_owned))
            .chain(link);
        let mut sources: Vec<String> = all.filter(|word| is_source(word)).collect();
        sources.sort();
        sources.dedup();
        sources
    }

    fn link_words(&self) -> Vec<String> {
        self.words("link").unwrap_or_else(|| {
            vec![
                self.main
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
            ]
        })
    }

    /// The path of a source: in the program's own directory, or in the directory of shared sources.
    fn source(&self, name: &str) -> PathBuf {
        let own = self.main.with_file_name(name);
        if own.is_file() {
            own
        } else {
            super::support::root()
                .join("tests/programs/common")
                .join(name)
        }
    }

    /// Compiles the objects with the compilers of `release`.
    pub(crate) fn compile(&self, folder: &Work, release: &Release) -> Result<(), Failed> {
        for source in self.sources() {
            let object = folder.path().join(object_of(&source));
            std::fs::create_dir_all(object.parent().unwrap_or(Path::new(".")))?;
            let mut command = folder.command(release.tool(compiler(&source)));
            if !self.is_plain(&source) {
                command.args(OFFLOAD).args(&release.compile);
            }
            command
                .args(self.flags("flags"))
                .args(self.flags("cflags"))
                .args(self.flags(&format!("cflags {source}")));
            let in_library = self
                .steps()
                .iter()
                .any(|(kind, _, args)| *kind == "shared" && args.contains(&source.as_str()));
            command
                .args(in_library.then_some("-fPIC"))
                .arg("-c")
                .arg(self.source(&source))
                .arg("-o")
                .arg(object);
            run(&mut command)?;
        }
        Ok(())
    }

    /// The compiler driver, with options that select who links.
    fn driver(&self, folder: &Work, output: &str, way: &Way) -> Command {
        let Way {
            linked,
            linker,
            release,
        } = way;
        let mut command = folder.command(release.tool(compiler(&self.main.to_string_lossy())));
        let plain = self.is_plain(output);
        match linked {
            Linked::Reference => {
                command.arg(format!("-fuse-ld={linker}"));
            }
            Linked::Wrapper => {
                command
                    .arg(format!("-fuse-ld={linker}"))
                    .arg("-B")
                    .arg(&made().links);
            }
            Linked::Late => {
                command
                    .arg(format!("-fuse-ld={linker}"))
                    .arg("-B")
                    .arg(&made().links)
                    .env("OFFLD_LATE_IMAGES", "on");
            }
            Linked::Linker if plain => {
                command.arg(format!("-fuse-ld={linker}"));
            }
            Linked::Linker => {
                let real = if linker == "lld" {
                    format!("{LLVM}/ld.lld")
                } else {
                    format!("ld.{linker}")
                };
                command
                    .arg(format!(
                        "--ld-path={}",
                        made().links.join("ld.offld").display()
                    ))
                    .env("OFFLD_LINKER", real);
            }
        }
        match (plain, linked) {
            (true, _) => {}
            // Only the host half is linked: offld adds the runtime.
            (false, Linked::Linker) => drop(command.arg("-fopenmp").args(&release.link)),
            (false, _) => drop(command.args(OFFLOAD).args(&release.link)),
        }
        let fast = !AS_USERS_LINK.contains(&self.name.as_str());
        command.args(fast.then_some(FAST)).args(self.flags("flags"));
        command
    }

    /// Builds the program and its parts.
    pub(crate) fn build(&self, folder: &Work, way: &Way) -> Result<(), Failed> {
        for (kind, name, args) in self.steps() {
            let args: Vec<String> = args.into_iter().map(object).collect();
            match kind {
                "static" => drop(folder.run(
                    llvm("llvm-ar"),
                    [&["rcs".to_owned(), name.to_owned()], &args[..]].concat(),
                )?),
                "thin" => drop(folder.run(
                    llvm("llvm-ar"),
                    [&["rcsT".to_owned(), name.to_owned()], &args[..]].concat(),
                )?),
                "merge" => drop(
                    folder.run(
                        "ld",
                        [
                            &["-r".to_owned(), "-o".to_owned(), name.to_owned()],
                            &args[..],
                        ]
                        .concat(),
                    )?,
                ),
                "response" => drop(folder.file(name, args.join("\n"))),
                _ => {
                    let mode = if kind == "shared" { "-shared" } else { "-r" };
                    run(self
                        .driver(folder, name, way)
                        .arg(mode)
                        .args(["-o", name])
                        .args(&args))?;
                }
            }
        }
        run(&mut self.link(folder, way))?;
        Ok(())
    }

    /// The link of the program from existing parts.
    pub(crate) fn link(&self, folder: &Work, way: &Way) -> Command {
        let mut command = self.driver(folder, "program", way);
        command
            .args(["-o", "program"])
            .args(self.link_words().iter().map(|word| object(word)));
        command
    }

    /// The command that runs the program.
    pub(crate) fn start(&self, folder: &Work) -> Command {
        let mut command = folder.command("./program");
        command.args(self.flags("args"));
        command.envs(
            self.flags("env")
                .iter()
                .filter_map(|word| word.split_once('=')),
        );
        command
    }

    /// The expected output.
    pub(crate) fn expected(&self) -> String {
        self.all("expect").map(|line| format!("{line}\n")).collect()
    }

    /// The registration log of the program, without the sizes and hashes of images, which depend on
    /// the wrapper.
    pub(crate) fn ledger(&self, folder: &Work, release: &Release) -> Result<String, Failed> {
        let ledger = ledger(folder, &mut self.start(folder), release)?;
        Ok(ledger
            .lines()
            .map(|line| {
                line.split(" size=")
                    .next()
                    .filter(|_| line.contains(" image "))
                    .unwrap_or(line)
                    .to_owned()
                    + "\n"
            })
            .collect())
    }
}

fn is_source(word: &str) -> bool {
    word.ends_with(".c") || word.ends_with(".cpp")
}

/// An argument of a link, with a source replaced by its object.
fn object(word: &str) -> String {
    if is_source(word) {
        object_of(word)
    } else {
        word.to_owned()
    }
}

fn object_of(source: &str) -> String {
    Path::new(source)
        .with_extension("o")
        .to_string_lossy()
        .into_owned()
}

fn compiler(source: &str) -> &'static str {
    if source.ends_with(".c") {
        "clang"
    } else {
        "clang++"
    }
}

fn check(program: &Program, linker: &str) -> Outcome {
    if !have_llvm() {
        return missing("LLVM 22 (clang-22, lld-22, libomp-22-dev, liboffload-22-dev)");
    }
    let compiled = Work::new();
    let release = Release::newest();
    program.compile(&compiled, &release)?;
    let mut ledgers = BTreeMap::new();
    for linked in [
        Linked::Wrapper,
        Linked::Late,
        Linked::Linker,
        Linked::Reference,
    ] {
        let reference_fails = program.fails_with_reference(linker);
        if linked == Linked::Reference && reference_fails {
            continue;
        }
        let with_context = |failed: Failed| {
            Failed::from(format!(
                "{linked:?}: {}",
                failed.message().unwrap_or_default()
            ))
        };
        let way = Way {
            linked,
            linker: linker.to_owned(),
            release: release.clone(),
        };
        program.build(&compiled, &way).map_err(with_context)?;
        let printed = run_offloaded(&mut program.start(&compiled)).map_err(with_context)?;
        expect_equal(
            &format!("{linked:?}: stdout of the program"),
            &program.expected(),
            &printed,
        )?;
        compiled.expect_no_temps().or_else(|failed| {
            if linked == Linked::Reference {
                Ok(())
            } else {
                Err(failed)
            }
        })?;
        if matches!(linked, Linked::Wrapper | Linked::Late) {
            same_with_cache(program, &compiled, &way)?;
        }
        let ledger = program.ledger(&compiled, &release).map_err(with_context)?;
        expect_in(&ledger, "openmp register lib=0")?;
        // patchelf breaks programs that contain their relocations.
        let is_odd = program
            .link_words()
            .iter()
            .any(|word| word.ends_with("emit-relocs"));
        if linked == Linked::Late
            && !is_odd
            && rounds("programs: late ones that tools have changed", 2u32, 1) == 2
        {
            runs_changed(program, &compiled)?;
        }
        ledgers.insert(format!("{linked:?}"), ledger);
    }
    let ours = &ledgers["Wrapper"];
    for (who, ledger) in &ledgers {
        expect_equal(
            &format!("what is registered, by offld as wrapper and by {who}"),
            ours,
            ledger,
        )?;
    }
    passed()
}

/// Fails unless the program still runs after other tools have changed it.
fn runs_changed(program: &Program, folder: &Work) -> Result<(), Failed> {
    let path = folder.path().join("program");
    let whole = std::fs::read(&path)?;
    let offld = super::support::offld();
    for change in [
        "strip program",
        "objcopy --strip-debug program",
        "patchelf --add-rpath /somewhere/else/that/is/longer/than/before program",
        &format!("'{}' prune --keep cpu program --in-place", offld.display()),
    ] {
        run(folder.command("sh").args(["-c", change]))?;
        let with_context = |failed: Failed| {
            Failed::from(format!(
                "{change}: {}",
                failed.message().unwrap_or_default()
            ))
        };
        let printed = run_offloaded(&mut program.start(folder)).map_err(with_context)?;
        expect_equal(
            &format!("{change}: stdout of the program"),
            &program.expected(),
            &printed,
        )?;
        std::fs::write(&path, &whole)?;
    }
    Ok(())
}

/// Fails unless the program is byte-identical when its images are linked without the compiler
/// driver and cached, and on a cache hit. All programs use the cache at the same time.
fn same_with_cache(program: &Program, folder: &Work, way: &Way) -> Result<(), Failed> {
    let without = std::fs::read(folder.path().join("program"))?;
    for which in ["kept", "found"] {
        let mut link = program.link(folder, way);
        run(link.env("OFFLD_CACHE", &made().cache))?;
        if std::fs::read(folder.path().join("program"))? != without {
            return Err(format!("another program when its images are {which} in the cache").into());
        }
    }
    Ok(())
}
