//! liboffld as C programs use it (`tests/capi`: directly, under valgrind, with the C compiler's
//! sanitizers), its header, its exports, and the example of `examples/c`. The library is built
//! here, by the same cargo and next to the program under test. C is a feature, so it is compiled
//! once more, from the crates that `make test-no-llvm` needs too. Also the example of the Rust
//! library (`examples/library`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use super::kit::Image;
use super::support::{
    OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, llvm, missing, output, passed, root,
    run, shown, test, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("capi::the_header_is_that_of_the_sources", header),
        test("capi::the_library_exports_what_the_header_has", exports),
        test("capi::versions_belong_together", versions),
        with_llvm("capi::c_program", || c_program(&Way::Plain)),
        with_llvm("capi::c_program_with_sanitizers", || {
            c_program(&Way::Sanitizers)
        }),
        with_llvm("capi::c_program_under_valgrind", || {
            c_program(&Way::Valgrind)
        }),
        with_llvm("capi::cpp_program", cpp_program),
        with_llvm("capi::example_of_either_library", example),
        test("capi::what_the_document_shows_compiles", document),
        with_llvm(
            "capi::the_rust_example_lists_and_extracts_images",
            lists_and_extracts,
        ),
    ]
}

/// The header must equal cbindgen's output for the sources. `BLESS=1` writes it.
fn header() -> Outcome {
    let failed = |error: &dyn std::fmt::Display| Failed::from(format!("cbindgen: {error}"));
    let folder = root().join("src/capi");
    let text = std::fs::read_to_string(folder.join("mod.rs"))?;
    // The header lists functions in the order of these modules: first the functions that open
    // files, then their parts.
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml"))
        .map_err(|error| failed(&error))?;
    let files = ["status", "report", "image", "given", "package", "compare"];
    let modules = text
        .lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    expect_equal(
        "modules",
        &format!("{:?}", BTreeSet::from(files)),
        &format!("{:?}", modules.collect::<BTreeSet<_>>()),
    )?;
    let all = files
        .iter()
        .fold(cbindgen::Builder::new().with_config(config), |all, name| {
            all.with_src(folder.join(name).with_extension("rs"))
        });
    let mut made = Vec::new();
    all.generate()
        .map_err(|error| failed(&error))?
        .write(&mut made);
    let (made, path) = (super::support::text(&made), root().join("include/offld.h"));
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &made)?;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    ensure(
        there == made,
        || "include/offld.h is not that of src/capi: `BLESS=1 cargo test --test suite -- capi::the_header` makes it anew",
    )?;
    passed()
}

/// The names of the functions that the header declares.
fn declared() -> Result<BTreeSet<String>, Failed> {
    let header = std::fs::read_to_string(root().join("include/offld.h"))?;
    let code = header
        .split("*/")
        .map(|part| part.split("/*").next().unwrap_or_default())
        .collect::<String>();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let before = |text: &str| {
        text.rsplit(|c| !is_name(c))
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    Ok(code
        .match_indices('(')
        .map(|(at, _)| before(&code[..at]))
        .filter(|name| name.starts_with("offld_"))
        .collect())
}

fn exports() -> Outcome {
    let library = library()?.shared;
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library))?;
    let exported: BTreeSet<String> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(str::to_owned)
        .collect();
    let declared = declared()?;
    ensure(declared.len() > 60, || {
        format!("these functions are all: {declared:?}")
    })?;
    expect_equal(
        "functions",
        &format!("{declared:#?}"),
        &format!("{exported:#?}"),
    )?;
    passed()
}

/// The interface version equals the version of the shared library that cargo-c installs.
fn versions() -> Outcome {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let of_library = manifest
        .split_once("[package.metadata.capi.library]")
        .and_then(|(_, rest)| rest.split("\nversion = \"").nth(1));
    let major = of_library
        .and_then(|rest| rest.split('.').next())
        .ok_or("no version of the library in Cargo.toml")?;
    let header = std::fs::read_to_string(root().join("include/offld.h"))?;
    expect_in(&header, &format!("#define OFFLD_ABI_VERSION {major}\n"))?;
    passed()
}

/// liboffld as a shared library and as an archive.
#[derive(Clone)]
struct Library {
    shared: PathBuf,
    archive: PathBuf,
}

/// The library, built once for all tests. If the build fails, each of these tests fails.
fn library() -> Result<Library, Failed> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let built = LIBRARY
        .get_or_init(|| build().map_err(|failed| failed.message().unwrap_or_default().to_owned()));
    built.clone().map_err(Failed::from)
}

fn build() -> Result<Library, Failed> {
    let target = Path::new(env!("CARGO_BIN_EXE_offld"))
        .ancestors()
        .nth(2)
        .ok_or("no folder that cargo builds in")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "rustc",
        "--quiet",
        "--locked",
        "--offline",
        "--lib",
        "--no-default-features",
        "--features",
        "capi",
    ]);
    cargo
        .args(["--crate-type", "cdylib,staticlib", "--target-dir"])
        .arg(target)
        .current_dir(root());
    // Variables that cargo sets for this package must not reach another cargo.
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_"))
    {
        cargo.env_remove(name);
    }
    run(cargo
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_MANIFEST_DIR")
        .env_remove("MAKEFLAGS"))?;
    let file = |name: &str| target.join("debug").join(name);
    Ok(Library {
        shared: file("liboffld.so"),
        archive: file("liboffld.a"),
    })
}

/// Writes a fat object, an archive, an OffloadBinary, a bundle, a program and a library with LLVM's
/// own tools, and a damaged object.
fn files(work: &Work) -> Result<(), Failed> {
    work.fat("fat.o", &Image::of_each_kind())?;
    work.pack("of-llvm", &Image::of_each_kind())?;
    work.archive("fat.a", &["fat.o"])?;
    work.run("gzip", ["-n", "fat.a"])?;
    work.file("host.bc", "");
    work.file("gpu.bc", [b'G'; 5000]);
    let targets = "-targets=host-x86_64-unknown-linux-gnu,hip-amdgcn-amd-amdhsa--gfx90a";
    let args = [
        "-type=bc",
        targets,
        "-input=host.bc",
        "-input=gpu.bc",
        "-output=bundle",
        "-compress",
    ];
    work.run(llvm("clang-offload-bundler"), args)?;

    let mut damaged = std::fs::read(work.path().join("fat.o"))?;
    let mut binaries = damaged
        .windows(4)
        .enumerate()
        .filter(|(_, bytes)| *bytes == [0x10, 0xff, 0x10, 0xad])
        .map(|(at, _)| at);
    let second = binaries.nth(1).ok_or("not two binaries in fat.o")?;
    // The size field.
    damaged[second + 8..second + 16].fill(0x7f);
    work.file("damaged.o", damaged);

    work.file(
        "part.c",
        "int f(int x) {\n#pragma omp target map(tofrom: x)\n  x += 1;\n  return x;\n}\nint main(void) { return f(-1); }\n",
    );
    for (output, more) in [("program", &[][..]), ("library.so", &["-shared", "-fPIC"])] {
        let mut link = work.command(llvm("clang"));
        link.args(OFFLOAD)
            .args(more)
            .args(["-O1", "part.c", "-o", output]);
        run(&mut link)?;
    }
    for (output, body) in [
        ("old.co", "p[0] = 1;"),
        (
            "new.co",
            "for (int i = 0; i < 40; i++) p[i] = p[i + 40] * i;",
        ),
    ] {
        work.file(
            "kernel.c",
            format!("__attribute__((amdgpu_kernel)) void kernel(int *p) {{ {body} }}\n"),
        );
        let gpu = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib"];
        let mut compile = work.command(llvm("clang"));
        run(compile.args(gpu).args(["-O2", "kernel.c", "-o", output]))?;
    }
    work.file(
        "policy.toml",
        "version = 1\n[[rule]]\nrequire = \"gfx942\"\nmax-growth = { registers = 1 }\n",
    );
    Ok(())
}

/// How to compile and run the C program.
enum Way {
    Plain,
    Sanitizers,
    Valgrind,
}

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-g"];
/// The sources of the C program.
const PARTS: [&str; 5] = ["test.c", "package.c", "compare.c", "hostile.c", "threads.c"];

fn c_program(way: &Way) -> Outcome {
    if matches!(way, Way::Valgrind) && which::which("valgrind").is_err() {
        return missing("valgrind");
    }
    let shared = library()?.shared;
    let work = Work::new();
    files(&work)?;
    let mut compile = work.command("cc");
    compile
        .arg("-std=c11")
        .args(WARNINGS)
        .arg("-I")
        .arg(root().join("include"));
    if matches!(way, Way::Sanitizers) {
        compile.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    }
    compile
        .args(PARTS.map(|part| root().join("tests/capi").join(part)))
        .args(["-pthread", "-o", "test"])
        .arg(&shared);
    run(&mut compile)?;

    let program = work.path().join("test");
    let mut command = match way {
        Way::Valgrind => {
            let mut valgrind = work.command("valgrind");
            // valgrind reports Rust's thread handles as "possibly lost": until a thread ends, only
            // a pointer into the middle of its handle exists.
            valgrind.args([
                "-q",
                "--error-exitcode=9",
                "--leak-check=full",
                "--num-callers=30",
            ]);
            valgrind
                .args([
                    "--show-leak-kinds=definite,indirect",
                    "--errors-for-leak-kinds=definite,indirect",
                ])
                .arg(program);
            valgrind
        }
        Way::Plain | Way::Sanitizers => work.command(program),
    };
    // A damaged file takes a few hundred microseconds, and about fifty times as long under
    // valgrind.
    let rounds = if matches!(way, Way::Valgrind) {
        "10"
    } else {
        "200"
    };
    command
        .arg(work.path())
        .arg(rounds)
        .env("LD_LIBRARY_PATH", folder(&shared)?);
    let ended = output(&mut command)?;
    ensure(ended.status.success() && ended.stderr.is_empty(), || {
        shown(&command, &ended)
    })?;
    work.expect_no_temps()?;
    passed()
}

fn folder(library: &Path) -> Result<&Path, Failed> {
    library
        .parent()
        .ok_or_else(|| "a library in no folder".into())
}

fn cpp_program() -> Outcome {
    let shared = library()?.shared;
    let work = Work::new();
    work.fat("fat.o", &Image::of_each_kind())?;
    let mut compile = work.command("c++");
    compile
        .arg("-std=c++17")
        .args(WARNINGS)
        .arg("-I")
        .arg(root().join("include"));
    run(compile
        .arg(root().join("tests/capi/header.cpp"))
        .args(["-o", "test"])
        .arg(&shared))?;
    run(work
        .command(work.path().join("test"))
        .arg("fat.o")
        .env("LD_LIBRARY_PATH", folder(&shared)?))?;
    passed()
}

/// Builds the example with its own Makefile, with the shared library and with the archive.
fn example() -> Outcome {
    let Library { shared, archive } = library()?;
    let work = Work::new();
    files(&work)?;
    let include = format!("OFFLD_CFLAGS=-I'{}'", root().join("include").display());
    let by_name = format!("OFFLD_LIBS=-L'{}' -loffld", folder(&shared)?.display());
    let by_path = format!("OFFLD_LIBS='{}' -pthread -ldl -lm", archive.display());
    for libraries in [by_name, by_path] {
        run(work
            .command("cp")
            .arg("-R")
            .arg(root().join("examples/c/."))
            .arg("."))?;
        run(work.command("make").args([
            "-B",
            "list",
            &include,
            &libraries,
            "CFLAGS=-O1 -Wall -Wextra -Werror",
        ]))?;
        let list = |file: &str| {
            let mut list = work.command(work.path().join("list"));
            list.arg(file)
                .env("LD_LIBRARY_PATH", shared.with_file_name(""));
            output(&mut list)
        };
        let listed = list("fat.o")?;
        let expected = "0 hip amdgcn-amd-amdhsa gfx90a:xnack+ unknown 3\n\
                        1 cuda nvptx64-nvidia-cuda sm_80 unknown 6\n\
                        2 openmp x86_64-pc-linux-gnu  empty 0\n";
        expect_equal("fat.o", expected, &text(&listed.stdout))?;
        let listed = list("program")?;
        expect_in(&text(&listed.stdout), "\nregisters: openmp\n")?;
        let listed = list("damaged.o")?;
        expect_in(&text(&listed.stderr), "list: damaged.o: .llvm.offloading")?;
        expect_equal("status", "Some(1)", &format!("{:?}", listed.status.code()))?;
        let missing = list("none")?;
        expect_equal(
            "a file that is not there",
            "list: 'none': No such file or directory\n",
            &text(&missing.stderr),
        )?;
    }
    passed()
}

/// Compiles each C block of the document as the body of a function.
fn document() -> Outcome {
    let page = std::fs::read_to_string(root().join("docs/reference/c.md"))?;
    let blocks: Vec<&str> = page
        .split("```c\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    ensure(blocks.len() == 3, || format!("{} blocks", blocks.len()))?;
    let work = Work::new();
    for block in blocks {
        let head = "#include <offld.h>\n#include <stdio.h>\nint body(const uint8_t *code, size_t code_size, FILE *out);\n";
        let body = "int body(const uint8_t *code, size_t code_size, FILE *out)\n{\n    (void)code, (void)code_size, (void)out;\n";
        work.file("block.c", format!("{head}{body}{block}    return 0;\n}}\n"));
        let mut compile = work.command("cc");
        compile
            .arg("-std=c11")
            .args(WARNINGS)
            .arg("-I")
            .arg(root().join("include"));
        run(compile.args(["-c", "block.c", "-o", "block.o"]))?;
    }
    passed()
}

/// The path of the example, which `cargo test` builds next to the program.
fn rust_example() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_offld"))
        .with_file_name("examples")
        .join("library")
}

fn lists_and_extracts() -> Outcome {
    if !rust_example().exists() {
        return missing("examples/library (cargo build --example library)");
    }
    let work = Work::new();
    work.file(
        "part.c",
        "int f(int x) {\n#pragma omp target map(tofrom: x)\n  x += 1;\n  return x;\n}\n",
    );
    work.run(
        llvm("clang"),
        OFFLOAD
            .iter()
            .copied()
            .chain(["-O1", "-c", "part.c", "-o", "part.o"]),
    )?;
    let listed = work.run(rust_example(), ["part.o", "images"])?;
    let [line] = &listed.lines().collect::<Vec<_>>()[..] else {
        return Err(format!("not one image:\n{listed}").into());
    };
    let start = "0 openmp x86_64-pc-linux-gnu ";
    ensure(
        line.starts_with(start) && line.contains(" .llvm.offloading "),
        || format!("{line} is not {start}…"),
    )?;

    // The extracted bytes equal those of LLVM's own tool.
    work.run(
        llvm("llvm-offload-binary"),
        ["part.o", "--image=file=theirs,triple=x86_64-pc-linux-gnu"],
    )?;
    let name = std::fs::read_dir(work.path().join("images"))?
        .next()
        .ok_or("nothing is extracted")??;
    let (ours, theirs) = (
        std::fs::read(name.path())?,
        std::fs::read(work.path().join("theirs"))?,
    );
    expect_equal("size", &theirs.len().to_string(), &ours.len().to_string())?;
    ensure(
        ours == theirs,
        || "other bytes than llvm-offload-binary extracts",
    )?;

    let mut nothing = work.command(rust_example());
    let ended = output(nothing.arg("none.o"))?;
    ensure(
        !ended.status.success(),
        || "a file that is not there is no error",
    )?;
    expect_in(&text(&ended.stderr), "'none.o': No such file or directory")?;
    passed()
}
