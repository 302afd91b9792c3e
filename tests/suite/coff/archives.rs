//! Which members of Windows libraries are linked: the search for libraries, and the symbol tables
//! of COFF archives.

use libtest_mimic::{Failed, Trial};

use super::program::{HOSTS, Host, MSVC, Program, RUNTIME, kernel};
use super::words;
use crate::kit::Image;
use crate::support::{Outcome, Work, expect_equal, passed, run, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    let mut all: Vec<Trial> = HOSTS
        .iter()
        .flat_map(|host| {
            [with_llvm(
                &format!("coff::weak_symbols::{}", host.triple),
                || weak_symbols(*host),
            )]
        })
        .collect();
    all.extend([
        with_llvm("coff::libraries_of_link_exe", link_exe),
        with_llvm("coff::libraries_of_mingw", mingw),
        with_llvm("coff::libraries_that_objects_name", directives),
        with_llvm("coff::whole_archives", whole_archives),
        with_llvm("coff::symbols_that_are_asked_for", symbol_options),
        with_llvm("coff::main_in_a_library", main_in_a_library),
    ]);
    all
}

/// Builds a library with one member that defines `name` and contains the image `[name]`.
fn library(work: &Work, host: Host, file: &str, name: &str) -> Result<(), Failed> {
    work.coff(
        host,
        &format!("{name}.o"),
        &[Image::amd("gfx90a", &format!("[{name}]"))],
        &kernel(name, ""),
    )?;
    if let Some((folder, _)) = file.rsplit_once('/') {
        std::fs::create_dir_all(work.path().join(folder))?;
    }
    work.archive(file, &[&format!("{name}.o")])?;
    Ok(())
}

/// Compiles an object that calls `names` and contains the image `[main]`.
fn caller(work: &Work, host: Host, names: &[&str], more: &str) -> Result<(), Failed> {
    let declared: String = names
        .iter()
        .map(|name| format!("int {name}(void);"))
        .collect();
    let calls: Vec<String> = names.iter().map(|name| format!("{name}()")).collect();
    let calls = if calls.is_empty() {
        "0".to_owned()
    } else {
        calls.join(" + ")
    };
    let main = format!("{declared} {more} int main(void) {{ return {calls}; }}");
    work.coff(host, "main.o", &[Image::amd("gfx90a", "[main]")], &main)?;
    work.coff(host, "runtime.o", &[], RUNTIME)
}

/// Links with the real linker, to compare offld's choice of members with the linker's. Returns the
/// images and the kernels of the program.
fn linked(
    work: &Work,
    host: Host,
    more: &[&str],
    env: Option<(&str, &str)>,
) -> Result<(String, String), Failed> {
    let inputs = [&["main.o", "runtime.o"], more].concat();
    run(work.wrapper(words(&host.line(&inputs))).envs(env))?;
    let (images, entries) = Program::read(work, host)?.openmp()?;
    work.forget();
    Ok((
        images
            .iter()
            .map(|image| String::from_utf8_lossy(image).into_owned())
            .collect(),
        entries.join(" "),
    ))
}

fn expect(
    work: &Work,
    host: Host,
    more: &[&str],
    images: &str,
    entries: &str,
) -> Result<(), Failed> {
    let (own_images, own_entries) = linked(work, host, more, None)?;
    expect_equal(&format!("the images of {more:?}"), images, &own_images)?;
    expect_equal(&format!("the entries of {more:?}"), entries, &own_entries)
}

/// `-libpath:` for names without a directory, `-defaultlib:`, and the variable `LIB`.
fn link_exe() -> Outcome {
    let work = Work::new();
    caller(&work, MSVC, &["f"], "")?;
    library(&work, MSVC, "libs/f.lib", "f")?;
    expect(&work, MSVC, &["-libpath:libs", "f.lib"], "[main][f]", "f")?;
    expect(&work, MSVC, &["libs/f.lib", "libs/f.lib"], "[main][f]", "f")?;
    // The default command line of these tests contains -nodefaultlib.
    let line: Vec<String> = MSVC
        .line(&["main.o", "runtime.o"])
        .into_iter()
        .filter(|word| word != "-nodefaultlib")
        .collect();
    for (more, env) in [
        (vec!["/LIBPATH:libs", "/DefaultLib:f"], None),
        (vec!["-defaultlib:f.lib"], Some(("LIB", "nowhere;libs"))),
        (vec!["f.lib"], Some(("LIB", "libs"))),
        (
            vec![
                "-nodefaultlib:g",
                "-defaultlib:g",
                "-libpath:libs",
                "-defaultlib:F.lib",
                "f.lib",
            ],
            None,
        ),
    ] {
        run(work
            .wrapper(words(&line).chain(more.iter().copied()))
            .envs(env))?;
        expect_equal(
            &format!("{more:?}"),
            "f",
            &Program::read(&work, MSVC)?.openmp()?.1.join(" "),
        )?;
        expect_equal(&format!("{more:?}"), "[main][f]", &work.images()?[0].1)?;
    }
    passed()
}

fn mingw() -> Outcome {
    for (file, option) in [
        ("libs/libf.a", "-lf"),
        ("libs/libf.dll.a", "-lf"),
        ("libs/f.dll.a", "-lf"),
        ("libs/f.lib", "-lf"),
        ("libs/odd.name", "-l:odd.name"),
    ] {
        let work = Work::new();
        caller(&work, HOSTS[3], &["f"], "")?;
        library(&work, HOSTS[3], file, "f")?;
        expect(&work, HOSTS[3], &["-Llibs", option], "[main][f]", "f")?;
    }
    let work = Work::new();
    caller(&work, HOSTS[3], &["f"], "")?;
    library(&work, HOSTS[3], "one/libf.dll.a", "f")?;
    library(&work, HOSTS[3], "two/libf.a", "f")?;
    expect(
        &work,
        HOSTS[3],
        &["-Lone", "-Ltwo", "-Bstatic", "-lf"],
        "[main][f]",
        "f",
    )?;
    passed()
}

/// `#pragma comment(lib, …)`, also in members that are linked because of another such comment; and
/// `/nodefaultlib:`.
fn directives() -> Outcome {
    let work = Work::new();
    work.coff(MSVC, "runtime.o", &[], RUNTIME)?;
    let g = "__pragma(comment(linker, \"/defaultlib:\\\"my lib.lib\\\"\")) int g(void); int call(void) { return g(); }";
    let chained = format!("{g} {}", kernel("f", ""));
    let compile = |name: &str, image: &str, source: &str| -> Result<(), Failed> {
        let file = work.file(&format!("{name}.c"), source);
        let packed = work.pack(&format!("{name}.pack"), &[Image::amd("gfx90a", image)])?;
        let embed = format!("-fembed-offload-object={}", packed.display());
        let args = [
            "--target=x86_64-pc-windows-msvc",
            "-fms-extensions",
            "-c",
            "-o",
            name,
            "-Xclang",
            &embed,
        ];
        run(work
            .command(crate::support::llvm("clang"))
            .args(args)
            .arg(file))
        .map(drop)
    };
    compile(
        "main.o",
        "[main]",
        "__pragma(comment(lib, \"f\")) int f(void); int main(void) { return f(); }",
    )?;
    compile("f.o", "[f]", &chained)?;
    compile("g.o", "[g]", &kernel("g", ""))?;
    work.archive("f.lib", &["f.o"])?;
    work.archive("my lib.lib", &["g.o"])?;
    let line: Vec<String> = MSVC
        .line(&["main.o", "runtime.o"])
        .into_iter()
        .filter(|word| word != "-nodefaultlib")
        .collect();
    run(&mut work.wrapper(words(&line)))?;
    expect_equal(
        "the entries",
        "f g",
        &Program::read(&work, MSVC)?.openmp()?.1.join(" "),
    )?;
    expect_equal("the images", "[main][f][g]", &work.images()?[0].1)?;
    work.forget();
    // An excluded library contributes nothing.
    work.coff(MSVC, "own.o", &[], "int f(void) { return 0; }")?;
    run(&mut work.wrapper(words(&line).chain(["-nodefaultlib:F.LIB", "own.o"])))?;
    expect_equal("the images", "[main]", &work.images()?[0].1)?;
    passed()
}

fn whole_archives() -> Outcome {
    let work = Work::new();
    caller(&work, MSVC, &[], "")?;
    library(&work, MSVC, "libs/f.lib", "f")?;
    library(&work, MSVC, "g.lib", "g")?;
    expect(
        &work,
        MSVC,
        &["-libpath:libs", "f.lib", "g.lib"],
        "[main]",
        "",
    )?;
    expect(
        &work,
        MSVC,
        &["-libpath:libs", "f.lib", "-wholearchive:f.lib", "g.lib"],
        "[main][f]",
        "f",
    )?;
    expect(
        &work,
        MSVC,
        &["-libpath:libs", "f.lib", "g.lib", "/WholeArchive"],
        "[main][f][g]",
        "f g",
    )?;
    expect(
        &work,
        MSVC,
        &["-start-lib", "f.o", "-end-lib", "g.lib"],
        "[main]",
        "",
    )?;
    passed()
}

/// `-include:`, `-export:`, `-alternatename:`, on the command line and in objects.
fn symbol_options() -> Outcome {
    let work = Work::new();
    caller(&work, MSVC, &[], "")?;
    library(&work, MSVC, "f.lib", "f")?;
    expect(&work, MSVC, &["f.lib"], "[main]", "")?;
    expect(&work, MSVC, &["f.lib", "-include:f"], "[main][f]", "f")?;
    expect(
        &work,
        MSVC,
        &["f.lib", "-export:other=f,@3"],
        "[main][f]",
        "f",
    )?;
    work.coff(
        MSVC,
        "asks.o",
        &[],
        "__asm__(\".section .drectve,\\\"yn\\\"\\n.ascii \\\" /include:f\\\"\\n\");",
    )?;
    expect(&work, MSVC, &["asks.o", "f.lib"], "[main][f]", "f")?;
    work.coff(
        MSVC,
        "other.o",
        &[],
        "int other(void); int needs(void) { return other(); }",
    )?;
    expect(
        &work,
        MSVC,
        &[
            "other.o",
            "f.lib",
            "-alternatename:other=f",
            "-include:needs",
        ],
        "[main][f]",
        "f",
    )?;
    passed()
}

/// A weak reference does not pull in a member. Neither does a symbol with a weak definition on the
/// command line. A member whose own definition is weak is linked when it is needed.
fn weak_symbols(host: Host) -> Outcome {
    let work = Work::new();
    library(&work, host, "f.a", "f")?;
    caller(
        &work,
        host,
        &[],
        "__attribute__((weak)) int f(void); int call(void) { return f ? f() : 0; }",
    )?;
    expect(&work, host, &["f.a"], "[main]", "")?;
    caller(
        &work,
        host,
        &[],
        "__attribute__((weak)) int f(void) { return 0; } int call(void) { return f(); }",
    )?;
    expect(&work, host, &["f.a"], "[main]", "")?;
    let own = kernel("f", "").replace("int f(void)", "__attribute__((weak)) int f(void)");
    work.coff(host, "f.o", &[Image::amd("gfx90a", "[f]")], &own)?;
    std::fs::remove_file(work.path().join("f.a"))?;
    work.archive("f.a", &["f.o"])?;
    caller(&work, host, &["f"], "")?;
    expect(&work, host, &["f.a"], "[main][f]", "f")?;
    passed()
}

/// No input refers to `main`; only the startup code of a C library that offld does not see.
fn main_in_a_library() -> Outcome {
    for (name, host) in [("main", MSVC), ("wWinMain", MSVC), ("main", HOSTS[1])] {
        let work = Work::new();
        work.coff(host, "a.o", &[Image::amd("gfx90a", "[a]")], "int a;")?;
        work.coff(
            host,
            "m.o",
            &[Image::amd("gfx90a", "[m]")],
            &format!("int {name}(void) {{ return 0; }}"),
        )?;
        work.coff(
            host,
            "unused.o",
            &[Image::amd("gfx90a", "[unused]")],
            "int unused;",
        )?;
        work.archive("m.lib", &["m.o", "unused.o"])?;
        run(&mut work.wrapper([
            &format!("--host-triple={}", host.triple),
            "-out:x.exe",
            "a.o",
            "m.lib",
        ]))?;
        expect_equal(name, "[a][m]", &work.images()?[0].1)?;
        work.forget();
        run(&mut work.wrapper([
            &format!("--host-triple={}", host.triple),
            "-out:x.exe",
            "a.o",
            "m.lib",
            "-noentry",
        ]))?;
        expect_equal("without a start", "[a]", &work.images()?[0].1)?;
    }
    passed()
}
