//! Links for Windows: command lines of link.exe and of MinGW, run by LLVM's own linkers. The
//! resulting programs are checked as far as possible without Windows.

mod archives;
mod program;

use libtest_mimic::Trial;

use self::program::{HOSTS, Host, MSVC, Program, RUNTIME, kernel};
use crate::kit::{AMD, Image};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, llvm, made, passed, run, run_failing, text,
    with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut all: Vec<Trial> = HOSTS
        .iter()
        .flat_map(|host| {
            [
                with_llvm(&format!("coff::program::{}", host.triple), || {
                    program(*host)
                }),
                with_llvm(&format!("coff::no_entries::{}", host.triple), || {
                    no_entries(*host)
                }),
                with_llvm(&format!("coff::two_kinds::{}", host.triple), || {
                    two_kinds(*host)
                }),
                with_llvm(&format!("coff::large_images::{}", host.triple), || {
                    large(*host)
                }),
            ]
        })
        .collect();
    all.extend([
        with_llvm("coff::openmp_compiled_and_linked_by_clang", through_clang),
        with_llvm("coff::what_llvms_wrapper_cannot_link", faults_of_llvm),
        with_llvm("coff::entries_of_llvm_19", old_entries),
        with_llvm("coff::the_host_is_read_off_objects", detected_host),
        with_llvm("coff::a_wrapped_program_is_passed_through", wrapped),
        with_llvm(
            "coff::response_files_are_quoted_as_lld_link_reads_them",
            long_command_line,
        ),
    ]);
    all.extend(archives::trials());
    all.extend(program::trials());
    all
}

/// The arguments as `&str`.
fn words(line: &[String]) -> impl Iterator<Item = &str> {
    line.iter().map(String::as_str)
}

/// Two objects, and an archive of which one member is used: images, entries in order, and the
/// constructor that registers them.
fn program(host: Host) -> Outcome {
    let work = Work::new();
    let main = "int b(void); int used(void); int main(void) { return b() + used(); }";
    work.coff(
        host,
        "main.o",
        &[Image::amd("gfx90a", "MAIN")],
        &kernel("first", main),
    )?;
    work.coff(
        host,
        "b.o",
        &[Image::amd("gfx90a", "B"), Image::amd("gfx908", "OTHER")],
        &kernel("b", ""),
    )?;
    work.coff(
        host,
        "used.o",
        &[Image::amd("gfx90a", "USED")],
        &kernel("used", ""),
    )?;
    work.coff(
        host,
        "unused.o",
        &[Image::amd("gfx90a", "UNUSED")],
        &kernel("unused", ""),
    )?;
    work.coff(host, "runtime.o", &[], RUNTIME)?;
    work.archive("lib.a", &["unused.o", "used.o"])?;
    run(&mut work.wrapper(words(&host.line(&["main.o", "b.o", "lib.a", "runtime.o"]))))?;
    let program = Program::read(&work, host)?;
    let (images, entries) = program.openmp()?;
    let images: Vec<String> = images.iter().map(|image| text(image)).collect();
    expect_equal("the images", "MAINBUSED OTHER", &images.join(" "))?;
    expect_equal("the entries", "first b used", &entries.join(" "))?;
    let register = program.symbol(".omp_offloading.descriptor_reg")?;
    let times = program
        .constructors()?
        .iter()
        .filter(|address| **address == register)
        .count();
    expect_equal("times the constructor is called", "1", &times.to_string())?;
    work.expect_no_temps()?;
    passed()
}

/// The bounds of an empty table exist and are equal, although the linker drops empty sections.
fn no_entries(host: Host) -> Outcome {
    let work = Work::new();
    work.coff(
        host,
        "main.o",
        &[Image::amd("gfx90a", "I")],
        "int main(void) { return 0; }",
    )?;
    work.coff(host, "runtime.o", &[], RUNTIME)?;
    run(&mut work.wrapper(words(&host.line(&["main.o", "runtime.o"]))))?;
    let (images, entries) = Program::read(&work, host)?.openmp()?;
    expect_equal(
        "images and entries",
        "1 0",
        &format!("{} {}", images.len(), entries.len()),
    )?;
    passed()
}

/// LLVM's wrapper drops the bounds of an empty table, and parses `-opt:ref` as `-o pt:ref`.
fn faults_of_llvm() -> Outcome {
    let work = Work::new();
    work.coff(
        MSVC,
        "main.o",
        &[Image::amd("gfx90a", "I")],
        "int main(void) { return 0; }",
    )?;
    work.coff(MSVC, "runtime.o", &[], RUNTIME)?;
    let mut line = MSVC.line(&["main.o", "runtime.o"]);
    expect_in(
        &run_failing(&mut work.reference(words(&line)))?,
        "could not open 'pt:ref'",
    )?;
    line.retain(|word| word != "-opt:ref");
    expect_in(
        &run_failing(&mut work.reference(words(&line)))?,
        "in discarded section: __start_llvm_offload_entries",
    )?;
    passed()
}

/// Two registrations share one pair of bounds.
fn two_kinds(host: Host) -> Outcome {
    let work = Work::new();
    let hip = Image {
        triple: AMD,
        arch: "gfx1100",
        kind: "hip",
        bytes: b"HIP",
    };
    let main = kernel("k", "int main(void) { return 0; }");
    work.coff(
        host,
        "main.o",
        &[Image::amd("gfx90a", "OPENMP"), hip],
        &main,
    )?;
    work.coff(host, "runtime.o", &[], RUNTIME)?;
    run(&mut work.wrapper(words(&host.line(&["main.o", "runtime.o"]))))?;
    let program = Program::read(&work, host)?;
    let (images, entries) = program.openmp()?;
    expect_equal(
        "OpenMP's",
        "[\"OPENMP\"] [\"k\"]",
        &format!(
            "{:?} {entries:?}",
            images.iter().map(|i| text(i)).collect::<Vec<_>>()
        ),
    )?;
    let wrapper = program.symbol(".fatbin_wrapper")?;
    let magic = program.bytes(wrapper, wrapper + 4)?;
    expect_equal("the magic", "FPIH", &text(magic))?;
    let [bundle] = program.words::<1>(wrapper + 8)?;
    expect_equal(
        "the bundle",
        "__CLANG_OFFLOAD_BUNDLE__",
        &text(program.bytes(bundle, bundle + 24)?),
    )?;
    expect_equal("is aligned", "0", &(bundle % 4096).to_string())?;
    let constructors = program.constructors()?;
    for name in [".omp_offloading.descriptor_reg", ".hip.fatbin_reg"] {
        let address = program.symbol(name)?;
        ensure(constructors.contains(&address), || {
            format!("{name} is at {address:#x}, and no constructor: {constructors:x?}")
        })?;
    }
    passed()
}

/// An image that does not pass through LLVM is in a separate object to which the descriptor refers.
fn large(host: Host) -> Outcome {
    let work = Work::new();
    let bytes: Vec<u8> = (0..2_000_003u32).map(|at| (at % 251) as u8).collect();
    let large = Image {
        triple: AMD,
        arch: "gfx90a",
        kind: "openmp",
        bytes: &bytes,
    };
    work.coff(
        host,
        "main.o",
        &[large, Image::amd("gfx908", "SMALL")],
        &kernel("k", "int main(void) { return 0; }"),
    )?;
    work.coff(host, "runtime.o", &[], RUNTIME)?;
    run(&mut work.wrapper(words(&host.line(&["main.o", "runtime.o"]))))?;
    let (images, entries) = Program::read(&work, host)?.openmp()?;
    expect_equal(
        "images and entries",
        "2 1",
        &format!("{} {}", images.len(), entries.len()),
    )?;
    ensure(
        images[0] == bytes && images[1] == b"SMALL",
        || "the program holds other images than the link was given",
    )?;
    passed()
}

/// clang compiles OpenMP for Windows without any header and runs offld, which runs lld-link.
fn through_clang() -> Outcome {
    let work = Work::new();
    let source = "int main(void) { int x = 0;\n#pragma omp target map(tofrom : x)\n  { x = 1; }\n  return x; }\n";
    work.file("a.c", source);
    let target = [
        "--target=x86_64-pc-windows-msvc",
        "-fopenmp",
        "--offload-arch=gfx90a",
        "-nogpulib",
        "-ffreestanding",
    ];
    work.run(
        llvm("clang"),
        [&target[..], &["-c", "a.c", "-o", "a.obj"]].concat(),
    )?;
    work.coff(
        MSVC,
        "runtime.obj",
        &[],
        &format!("{RUNTIME} int __tgt_target_kernel() {{ return 0; }}"),
    )?;
    work.tool("device-clang", "#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in -o) echo IMAGE > \"$2\";; esac; shift; done\n");
    let mut link = work.command(llvm("clang"));
    link.args(target).arg("-B").arg(&made().links).args([
        "-fuse-ld=lld",
        "a.obj",
        "runtime.obj",
        "-o",
        "a.exe",
    ]);
    link.args(
        [
            "-nodefaultlib",
            "-entry:main",
            "-subsystem:console",
            "-map:a.map",
        ]
        .map(|word| format!("-Wl,{word}")),
    );
    run(link.env("OFFLD_CLANG", work.path().join("device-clang")))?;
    let (images, entries) = Program::read(&work, MSVC)?.openmp()?;
    expect_equal(
        "images and entries",
        "1 1",
        &format!("{} {}", images.len(), entries.len()),
    )?;
    expect_in(&entries[0], "__omp_offloading_")?;
    passed()
}

/// Entries of 32 bytes are in a table with another name, and so are its bounds.
fn old_entries() -> Outcome {
    let work = Work::new();
    let entry = "struct entry { void *address; const char *name; unsigned long long size; int flags, data; };
        int main(void) { return 0; }
        __attribute__((section(\"omp_offloading_entries$OE\"), used, weak)) const struct entry e = { (void *)&main, \"main\", 0, 0, 0 };";
    work.coff(MSVC, "main.o", &[Image::amd("gfx90a", "I")], entry)?;
    work.coff(MSVC, "runtime.o", &[], RUNTIME)?;
    run(&mut work.wrapper(words(&MSVC.line(&["main.o", "runtime.o"]))))?;
    let program = Program::read(&work, MSVC)?;
    let [start, stop] =
        ["start", "stop"].map(|bound| program.symbol(&format!("__{bound}_omp_offloading_entries")));
    let (start, stop) = (start?, stop?);
    expect_equal("size of the table", "32", &(stop - start).to_string())?;
    let [name] = program.words::<1>(start + 8)?;
    expect_equal("the name", "main", &program.string(name)?)?;
    passed()
}

/// offld detects the host from the objects if `--host-triple` is absent.
fn detected_host() -> Outcome {
    for host in HOSTS {
        let work = Work::new();
        work.coff(
            host,
            "main.o",
            &[Image::amd("gfx90a", "I")],
            &kernel("k", "int main(void) { return 0; }"),
        )?;
        work.coff(host, "runtime.o", &[], RUNTIME)?;
        let line = host.line(&["main.o", "runtime.o"]);
        let own = work.wrapper(words(&line));
        // The test kit passes the triple of a Linux host.
        let args = own
            .get_args()
            .filter(|word| !word.to_string_lossy().starts_with("--host-triple="));
        let mut command = work.command(own.get_program());
        command.args(args).envs(
            own.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        run(&mut command)?;
        expect_equal(
            host.triple,
            "k",
            &Program::read(&work, host)?.openmp()?.1.join(" "),
        )?;
    }
    passed()
}

/// Objects of both wrappers define the bounds, and are not registered again.
fn wrapped() -> Outcome {
    for ours in [true, false] {
        let work = Work::new();
        work.coff(
            MSVC,
            "main.o",
            &[Image::amd("gfx90a", "I")],
            &kernel("k", "int main(void) { return 0; }"),
        )?;
        work.coff(MSVC, "runtime.o", &[], RUNTIME)?;
        let line = [
            "--host-triple=x86_64-pc-windows-msvc",
            "-out:a.exe",
            "main.o",
        ];
        run(&mut if ours {
            work.wrapper(line)
        } else {
            work.reference(line)
        })?;
        std::fs::rename(work.registration_object()?, work.path().join("wrapper.o"))?;
        if ours {
            std::fs::rename(work.image_object()?, work.path().join("images.o"))?;
        } else {
            work.coff(MSVC, "images.o", &[], "")?;
        }
        work.forget();
        run(&mut work.wrapper(words(&MSVC.line(&[
            "main.o",
            "wrapper.o",
            "images.o",
            "runtime.o",
        ]))))?;
        expect_equal("device links", "0", &work.device_lines()?.len().to_string())?;
    }
    passed()
}

/// A command line above the length limit, with arguments that the two quoting rules parse
/// differently.
fn long_command_line() -> Outcome {
    let work = Work::new();
    work.coff(
        MSVC,
        "ma in.o",
        &[Image::amd("gfx90a", "I")],
        &kernel("k", "int f(void); int main(void) { return f(); }"),
    )?;
    work.coff(MSVC, "runtime.o", &[], RUNTIME)?;
    work.coff(MSVC, "f.o", &[], "int f(void) { return 0; }")?;
    // lld-link keeps a backslash. GNU tools would remove it, and not find this library.
    work.archive("back\\slash.lib", &["f.o"])?;
    let mut line = MSVC.line(&["ma in.o", "runtime.o", "back\\slash.lib"]);
    line.extend((0..4000).map(|at| format!("-libpath:C:\\some \"folder\"\\{at} \u{e4}\\")));
    run(&mut work.wrapper(words(&line)))?;
    expect_equal(
        "the entries",
        "k",
        &Program::read(&work, MSVC)?.openmp()?.1.join(" "),
    )?;
    work.expect_no_temps()?;
    // Without device code, offld only runs the linker.
    work.coff(
        MSVC,
        "ma in.o",
        &[],
        "int f(void); int main(void) { return f(); }",
    )?;
    run(&mut work.wrapper(words(&line)))?;
    passed()
}
