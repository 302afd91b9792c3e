//! Archive members that the host link pulls for symbols that no input object references: those of
//! options and scripts, and versioned ones. Each program runs offloaded. If a member is missed, its
//! kernel is missing and the program fails.

use libtest_mimic::{Failed, Trial};

use crate::support::{
    OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, expect_not_in, host_linker, llvm,
    made, missing, output, passed, run, run_offloaded, stderr_of, test, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let pulled =
        |name: &str, case: Case| with_llvm(&format!("archives::{name}"), move || check(&case));
    let of_scripts = |linker: &'static str, expected| {
        with_llvm(
            &format!("archives::symbols_of_scripts::{linker}"),
            move || symbols_of_scripts(linker, expected),
        )
    };
    let (extern_f, alias, provide) = ("EXTERN(f)", "alias = f;", "PROVIDE(alias = f);");
    let both: &[&str] = &["bfd", "lld"];
    vec![
        pulled(
            "undefined_glob",
            Case {
                linkers: &["lld"],
                words: &["-Wl,--undefined-glob=[^a-e]", "LIB"],
                ..CONSTRUCTED
            },
        ),
        pulled(
            "extern_of_a_script",
            Case {
                script: extern_f,
                words: &["s.ld", "LIB"],
                ..CONSTRUCTED
            },
        ),
        pulled(
            "extern_of_a_script_by_option",
            Case {
                script: extern_f,
                ..CONSTRUCTED
            }
            .by_option_of_bfd(),
        ),
        pulled(
            "extern_of_a_script_of_lld",
            Case {
                script: extern_f,
                ..CONSTRUCTED
            }
            .by_option_of_lld(),
        ),
        pulled(
            "assignment_of_a_script_of_lld",
            Case {
                script: alias,
                ..ALIASED
            }
            .by_option_of_lld(),
        ),
        pulled(
            "assignment_of_a_script_by_option",
            Case {
                script: alias,
                ..ALIASED
            }
            .by_option_of_bfd(),
        ),
        pulled(
            "provide_of_a_script_of_lld",
            Case {
                script: provide,
                ..ALIASED
            }
            .by_option_of_lld(),
        ),
        pulled(
            "provide_of_a_script_by_option",
            Case {
                script: provide,
                ..ALIASED
            }
            .by_option_of_bfd(),
        ),
        pulled(
            "assignment_of_a_script",
            Case {
                script: alias,
                words: &["s.ld", "LIB"],
                linkers: both,
                ..ALIASED
            },
        ),
        pulled(
            "assignment_before_the_objects",
            Case {
                script: alias,
                words: &["LIB", "s.ld"],
                linkers: &["lld"],
                ..ALIASED
            },
        ),
        pulled(
            "provide_of_a_script",
            Case {
                script: provide,
                words: &["s.ld", "LIB"],
                linkers: both,
                ..ALIASED
            },
        ),
        pulled(
            "versioned_definitions",
            Case {
                linkers: both,
                ..VERSIONED
            },
        ),
        pulled(
            "symver_without_a_default",
            Case {
                version: "f@V1",
                linkers: both,
                main: OLD_VERSION,
                ..VERSIONED
            },
        ),
        with_llvm("archives::a_defsym_counts_from_its_place", defsym_in_place),
        with_llvm(
            "archives::what_a_script_provides_to_nobody_pulls_nothing",
            not_provided,
        ),
        of_scripts("bfd", [22, 18]),
        of_scripts("gold", [45, 9]),
        of_scripts("lld", [48, 12]),
        of_scripts("wild", [38, 2]),
        with_llvm("archives::wild_reads_in_any_order", order_of_wild),
        with_llvm("archives::common_symbols", common_symbols),
        test(
            "releases::archives::common_symbols",
            common_symbols_of_releases,
        ),
        with_llvm("archives::a_script_counts_from_its_place", script_in_place),
    ]
}

/// A program from `main` and `f.c`. The latter is in an archive and, with ld.lld, also between
/// `--start-lib` and `--end-lib`.
#[derive(Clone, Copy)]
struct Case {
    linkers: &'static [&'static str],
    main: &'static str,
    script: &'static str,
    /// The link arguments after the main object. `LIB` stands for the archive.
    words: &'static [&'static str],
    /// The symbol version of `f`, or an empty string.
    version: &'static str,
}

impl Case {
    /// A script given with `-T`, which replaces GNU ld's own script.
    const fn by_option_of_bfd(self) -> Case {
        Case {
            words: &["-Wl,-T,s.ld", "LIB"],
            linkers: &["bfd"],
            ..self
        }
    }

    /// The same with ld.lld, where a script without `SECTIONS` replaces nothing.
    const fn by_option_of_lld(self) -> Case {
        Case {
            words: &["-Wl,--script=s.ld", "LIB"],
            linkers: &["lld"],
            ..self
        }
    }
}

/// Nothing calls `f`. A constructor in the same member prints.
const CONSTRUCTED: Case = Case {
    linkers: &["bfd", "lld"],
    main: "int main(void) { return 0; }",
    script: "",
    words: &["LIB"],
    version: "",
};
/// The program calls `f` through an alias.
const ALIASED: Case = Case {
    main: "int alias(void); int main(void) { return alias() != 7; }",
    ..CONSTRUCTED
};
const VERSIONED: Case = Case {
    main: "int f(void); int main(void) { return f() != 7; }",
    version: "f@@V1",
    ..CONSTRUCTED
};
const OLD_VERSION: &str =
    "int g(void); __asm__(\".symver g, f@V1\"); int main(void) { return g() != 7; }";

const LIBRARY: &str = "
#include <omp.h>
#include <stdio.h>
VERSION
int NAME(void) {
  int x = 0, host = 1;
#pragma omp target map(from : host) map(tofrom : x)
  { host = omp_is_initial_device(); x = 7; }
  printf(\"device %d\\n\", !host);
  return x;
}
__attribute__((constructor)) static void first(void) { if (NAME() != 7) printf(\"wrong\\n\"); }
";

fn compile(work: &Work, case: &Case) -> Result<(), Failed> {
    work.file(
        "main.c",
        format!("int used(void) {{\n int y;\n#pragma omp target map(from : y)\n y = 1;\n return y; }}\n{}", case.main),
    );
    let (name, version) = match case.version {
        "" => ("f", String::new()),
        version => ("real", format!("__asm__(\".symver real, {version}\");")),
    };
    work.file(
        "f.c",
        LIBRARY.replace("NAME", name).replace("VERSION", &version),
    );
    for source in ["main.c", "f.c"] {
        run(work
            .command(llvm("clang"))
            .args(OFFLOAD)
            .args(["-O1", "-fPIC", "-c", source]))?;
    }
    work.file(
        "s.ld",
        if case.words.contains(&"-Wl,-T,s.ld") {
            default_script(work, case.script)?
        } else {
            case.script.to_owned()
        },
    );
    work.file("v.map", "V1 { f; };");
    work.archive("libf.a", &["f.o"])?;
    Ok(())
}

/// GNU ld's own script, extended with `more`. A script given with `-T` replaces it.
fn default_script(work: &Work, more: &str) -> Result<String, Failed> {
    let stdout = work.run("ld.bfd", ["-pie", "--verbose"])?;
    let script = stdout
        .split("==================================================")
        .nth(1)
        .ok_or("no script")?;
    Ok(format!("{script}\n{more}\n"))
}

fn check(case: &Case) -> Outcome {
    let work = Work::new();
    compile(&work, case)?;
    for linker in case.linkers {
        let start_lib = ["-Wl,--start-lib", "f.o", "-Wl,--end-lib"];
        let forms: &[&[&str]] = if *linker == "lld" {
            &[&["libf.a"], &start_lib]
        } else {
            &[&["libf.a"]]
        };
        for form in forms {
            for as_linker in [false, true] {
                let mut link = driver(&work, linker, as_linker);
                link.arg("main.o");
                if !case.version.is_empty() {
                    link.args(["-Wl,--version-script=v.map", "-rdynamic"]);
                }
                for word in case.words {
                    if *word == "LIB" {
                        link.args(*form)
                    } else {
                        link.arg(word)
                    };
                }
                run(link.args(["-o", "program"]))?;
                let printed = run_offloaded(&mut work.command("./program"))?;
                expect_in(&printed, "device 1\n")?;
                work.expect_no_temps()?;
            }
        }
    }
    passed()
}

/// The compiler driver for a link by offld with `linker`: its name, or its absolute path.
fn driver(work: &Work, linker: &str, as_linker: bool) -> std::process::Command {
    let mut link = work.command(llvm("clang"));
    let real = host_linker(linker).unwrap_or_else(|| linker.into());
    if as_linker {
        link.arg("-fopenmp")
            .arg(format!(
                "--ld-path={}",
                made().links.join("ld.offld").display()
            ))
            .env("OFFLD_LINKER", real);
    } else {
        // wild is not on `PATH`.
        let by = if linker == "wild" || linker.starts_with('/') {
            format!("--ld-path={}", real.display())
        } else {
            format!("-fuse-ld={linker}")
        };
        link.args(OFFLOAD).arg(by).arg("-B").arg(&made().links);
    }
    link
}

/// A member with an undefined device symbol would not link.
fn not_provided() -> Outcome {
    let work = Work::new();
    let case = Case {
        script: "PROVIDE(alias = f);",
        ..CONSTRUCTED
    };
    compile(&work, &case)?;
    for linker in ["bfd", "lld"] {
        let mut link = driver(&work, linker, false);
        let stderr = crate::support::stderr_of(link.args([
            "main.o",
            "s.ld",
            "libf.a",
            "-Wl,--wrapper-why",
            "-o",
            "program",
        ]))?;
        expect_in(&stderr, "libf.a(f.o): x86_64-pc-linux-gnu: not taken: ")?;
        expect_equal(
            "not in the program",
            "",
            &run_offloaded(&mut work.command("./program"))?,
        )?;
    }
    passed()
}

/// Two archives define `f`, each with a kernel. `--defsym` needs `f` from its position on with GNU
/// ld, and from the beginning with gold. With ld.lld, it needs `f` at the end, when ld.lld has
/// already read the first archive. The device code comes from the member that the host link pulls.
fn defsym_in_place() -> Outcome {
    let work = Work::new();
    compile(&work, &ALIASED)?;
    work.file(
        "other.c",
        LIBRARY
            .replace("NAME", "f")
            .replace("VERSION", "")
            .replace("\"device", "\"other device"),
    );
    work.file("caller.c", "int f(void); int alias(void) { return f(); }");
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-fPIC", "-c", "other.c", "caller.c"]))?;
    work.archive("libother.a", &["other.o"])?;
    let defsym = "-Wl,--defsym=alias=f";
    let (first, later) = ("\ndevice 1\n", "\nother device 1\n");
    // The linker reads a group again for references from an object in the group, too.
    let by_object = [
        "-Wl,--start-group",
        "libf.a",
        "caller.o",
        "-Wl,--end-group",
        "libother.a",
    ];
    for (words, by_bfd, by_others) in [
        (by_object.as_slice(), first, first),
        (&["libf.a", defsym, "libother.a"], later, first),
        (&[defsym, "libf.a", "libother.a"], first, first),
        (
            &[
                "-Wl,--start-group",
                "libf.a",
                defsym,
                "libother.a",
                "-Wl,--end-group",
            ],
            later,
            first,
        ),
        (
            &[
                "-Wl,--start-group",
                "libf.a",
                defsym,
                "-Wl,--end-group",
                "libother.a",
            ],
            first,
            first,
        ),
        (
            &[
                "-Wl,--start-group",
                "libf.a",
                "libother.a",
                defsym,
                "-Wl,--end-group",
            ],
            first,
            first,
        ),
        (
            &["libf.a", "libother.a", defsym, "libother.a"],
            later,
            first,
        ),
    ] {
        for (linker, as_linker, printed) in [
            ("bfd", true, by_bfd),
            ("lld", false, by_others),
            ("gold", false, by_others),
        ] {
            let mut link = driver(&work, linker, as_linker);
            run(link.arg("main.o").args(words).args(["-o", "program"]))?;
            let told = run_offloaded(&mut work.command("./program"));
            let told = told.map_err(|failed| {
                format!(
                    "{linker}, {words:?}: {}",
                    failed.message().unwrap_or_default()
                )
            })?;
            expect_in(&format!("\n{told}"), printed)?;
        }
    }
    passed()
}

/// Two archives define `alias`, each with a kernel. A script that `-T` names, and that names one of
/// the archives or needs a symbol of it, counts at its position on the command line. The device code
/// comes from the member that the host link takes.
fn script_in_place() -> Outcome {
    let work = Work::new();
    compile(&work, &ALIASED)?;
    for (name, printed) in [("one", "\"device"), ("two", "\"other device")] {
        let version = format!("int {name}; __attribute__((weak)) int alias(void);");
        work.file(
            &format!("{name}.c"),
            LIBRARY
                .replace("NAME", "alias")
                .replace("VERSION", &version)
                .replace("\"device", printed),
        );
        run(work.command(llvm("clang")).args(OFFLOAD).args([
            "-O1",
            "-fPIC",
            "-c",
            &format!("{name}.c"),
        ]))?;
        work.archive(&format!("lib{name}.a"), &[&format!("{name}.o")])?;
    }
    // A weak reference extracts no member.
    work.file(
        "weak.c",
        ALIASED
            .main
            .replace("int alias", "__attribute__((weak)) int alias"),
    );
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-fPIC", "-c", "weak.c"]))?;
    work.file("names.ld", "INPUT(libtwo.a)");
    // GNU ld keeps its own script because of INSERT.
    work.file(
        "inserts.ld",
        "INPUT(libtwo.a) SECTIONS {} INSERT AFTER .text;",
    );
    work.file("needs.ld", "second = two;");
    work.file("extern.ld", "EXTERN(two)");
    let (names, needs, defsym) = (
        "-Wl,-T,names.ld",
        "-Wl,-T,needs.ld",
        "-Wl,--defsym=first=one",
    );
    let inserts = "-Wl,-T,inserts.ld";
    let rows: [(&[&str], &[&str], &str); 10] = [
        (
            &["lld", "mold", "wild"],
            &["main.o", "libone.a", names],
            "device 1\n",
        ),
        (
            &["lld", "mold", "wild"],
            &["main.o", names, "libone.a"],
            "other device 1\n",
        ),
        (
            &["lld", "mold", "wild"],
            &[names, "main.o", "libone.a"],
            "other device 1\n",
        ),
        (&["bfd"], &["main.o", "libone.a", inserts], "device 1\n"),
        (
            &["bfd"],
            &["main.o", inserts, "libone.a"],
            "other device 1\n",
        ),
        (&["bfd"], &[inserts, "main.o", "libone.a"], "device 1\n"),
        (
            &["lld"],
            &["weak.o", defsym, needs, "libone.a", "libtwo.a"],
            "device 1\n",
        ),
        (
            &["lld"],
            &["weak.o", needs, defsym, "libone.a", "libtwo.a"],
            "other device 1\n",
        ),
        // A symbol that is needed before all files, and also after them.
        (
            &["lld"],
            &[
                "weak.o",
                defsym,
                needs,
                "-Wl,-u,two",
                "libone.a",
                "libtwo.a",
            ],
            "other device 1\n",
        ),
        (
            &["lld"],
            &["weak.o", defsym, needs, "extern.ld", "libone.a", "libtwo.a"],
            "other device 1\n",
        ),
    ];
    for (linkers, words, expected) in rows {
        for linker in linkers {
            if host_linker(linker).is_none() {
                return missing(linker);
            }
            let mut link = driver(&work, linker, false);
            run(link.args(words).args(["-o", "program"]))?;
            let printed = run_offloaded(&mut work.command("./program"));
            let printed = printed.map_err(|failed| {
                let message = failed.message().unwrap_or_default();
                format!("{linker}, {words:?}: {message}")
            })?;
            expect_in(&format!("\n{printed}"), &format!("\n{expected}"))?;
        }
    }
    passed()
}

/// Linkers differ in when the symbols of a script's commands extract members: before all files, from
/// the script's position on, or never. The member's device code is linked if, and only if, the
/// program has the member. `expected`: how many programs have the member, and how many do not.
fn symbols_of_scripts(linker: &str, expected: [usize; 2]) -> Outcome {
    if host_linker(linker).is_none() {
        return missing(linker);
    }
    let work = Work::new();
    let case = Case {
        main: "__attribute__((weak)) int weak(void); int main(void) { return weak != 0; }",
        ..CONSTRUCTED
    };
    compile(&work, &case)?;
    let mut counted = [0; 2];
    for command in [
        "EXTERN(f)",
        "s = f;",
        "ASSERT(f, \"text\")",
        "ENTRY(f)",
        "PROVIDE(weak = f);",
        "PROVIDE(nobody = f);",
    ] {
        let script = match linker {
            "bfd" => default_script(&work, command)?,
            _ => command.to_owned(),
        };
        work.file("option.ld", script);
        work.file("input.ld", command);
        for script in ["-Wl,-T,option.ld", "input.ld"] {
            for words in [
                &["main.o", script, "libf.a"][..],
                &["main.o", "libf.a", script],
                &["main.o", "libf.a", script, "libf.a"],
                &["-Wl,-e,main", "main.o", "libf.a", script],
                &[script, "main.o", "libf.a"],
            ] {
                let mut link = driver(&work, linker, false);
                link.args(words);
                link.args(["-Wl,--wrapper-why", "-o", "program"]);
                let ended = output(&mut link)?;
                let told = text(&ended.stderr);
                if !ended.status.success() {
                    // wild reads neither EXTERN nor ASSERT.
                    let is_known = told.contains("undefined symbol") || linker == "wild";
                    expect_equal(&told, "true", &is_known.to_string())?;
                    continue;
                }
                let symbols = work.run(llvm("llvm-nm"), ["program"])?;
                let is_f = |line: &str| line.ends_with(" T f") || line.ends_with(" t f");
                let has_member = symbols.lines().any(is_f);
                let is_left_out = told.contains("libf.a(f.o): x86_64-pc-linux-gnu: not taken: ");
                expect_equal(
                    &format!("{linker}, {command}, {words:?}: the member is taken\n{told}"),
                    &has_member.to_string(),
                    &(!is_left_out).to_string(),
                )?;
                counted[usize::from(!has_member)] += 1;
            }
        }
    }
    let counts = |counts| format!("programs with the member, and without: {counts:?}");
    expect_equal(linker, &counts(expected), &counts(counted))?;
    passed()
}

/// wild takes members for references before and after the archive, and also if an object has a weak
/// definition. Every member has a kernel, which fails if its device code is not in the image.
fn order_of_wild() -> Outcome {
    if host_linker("wild").is_none() {
        return missing("wild");
    }
    let work = Work::new();
    compile(&work, &ALIASED)?;
    work.file("caller.c", "int f(void); int alias(void) { return f(); }");
    let library = LIBRARY.replace("NAME", "alias");
    work.file("strong.c", library.replace("VERSION", ""));
    work.file(
        "weak.c",
        library
            .replace("VERSION", "__attribute__((weak)) int alias(void);")
            .replace("\"device", "\"weak device"),
    );
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-fPIC", "-c", "caller.c", "strong.c", "weak.c"]))?;
    work.archive("libcaller.a", &["caller.o"])?;
    work.archive("libstrong.a", &["strong.o"])?;
    for words in [
        &["libcaller.a", "libf.a", "main.o"][..],
        &["libf.a", "libcaller.a", "main.o"],
        &["main.o", "libf.a", "libcaller.a"],
        &["main.o", "weak.o", "libstrong.a"],
        &["main.o", "libstrong.a", "weak.o"],
        &["libstrong.a", "weak.o", "main.o"],
    ] {
        for as_linker in [false, true] {
            let mut link = driver(&work, "wild", as_linker);
            run(link.args(words).args(["-o", "program"]))?;
            let printed = run_offloaded(&mut work.command("./program"));
            let printed = printed
                .map_err(|failed| format!("{words:?}: {}", failed.message().unwrap_or_default()))?;
            expect_in(&printed, "device 1\n")?;
            expect_not_in(&printed, "device 0\n")?;
        }
    }
    passed()
}

/// Linkers differ in when a common symbol extracts a member that defines it with a value. The
/// member's device code is linked if, and only if, the program has the member, which prints.
fn common_symbols() -> Outcome {
    let work = common_objects()?;
    for (linker, option, extracts) in [
        ("bfd", None, 4),
        ("gold", None, 1),
        ("lld", None, 2),
        ("lld", Some("-Wl,--fortran-common"), 5),
        ("lld", Some("-Wl,--no-fortran-common"), 2),
        ("mold", None, 6),
        ("wild", None, 3),
    ] {
        if host_linker(linker).is_none() {
            return missing(linker);
        }
        extracts_common(&work, linker, option, extracts)?;
    }
    passed()
}

/// The default of ld.lld 14 differs from that of later releases. offld finds the release by the
/// path of ld.lld or, for a copy in another directory, by its version.
fn common_symbols_of_releases() -> Outcome {
    let work = common_objects()?;
    for (major, extracts) in [(14, 5), (15, 2), (22, 2)] {
        let Some(release) = Release::of(major) else {
            return missing(format!("LLVM {major}"));
        };
        let copy = work.path().join(format!("{major}/ld.lld"));
        std::fs::create_dir_all(copy.with_file_name(""))?;
        std::fs::copy(release.tool("ld.lld"), &copy)?;
        for linker in [release.tool("ld.lld"), copy] {
            let linker = linker.to_str().ok_or("path")?;
            extracts_common(&work, linker, None, extracts)?;
            let other = Some("-Wl,--no-fortran-common").filter(|_| major == 14);
            if other.is_some() {
                extracts_common(&work, linker, other, 2)?;
            }
        }
    }
    passed()
}

/// `value.o` has the common symbol `value`, which `user.o` reads and the member of `libf.a` defines.
fn common_objects() -> Result<Work, Failed> {
    let work = Work::new();
    compile(&work, &CONSTRUCTED)?;
    work.file("value.c", "int value;");
    work.file(
        "user.c",
        "extern int value; int user(void) { return value; }",
    );
    work.file(
        "f.c",
        LIBRARY
            .replace("NAME", "f")
            .replace("VERSION", "int value = 5;"),
    );
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-fPIC", "-fcommon", "-c"])
        .args(["value.c", "user.c", "f.c"]))?;
    work.archive("libf.a", &["f.o"])?;
    Ok(work)
}

/// Links [`common_objects`] in several orders. Fails unless `linker` extracts the member in
/// `extracts` of them.
fn extracts_common(
    work: &Work,
    linker: &str,
    option: Option<&str>,
    extracts: usize,
) -> Result<(), Failed> {
    let orders: [&[&str]; 6] = [
        &["value.o", "libf.a"],
        &["value.o", "user.o", "libf.a"],
        &["user.o", "libf.a", "value.o"],
        &["libf.a", "user.o", "value.o"],
        &["libf.a", "value.o", "user.o"],
        &["value.o", "libf.a", "user.o"],
    ];
    let mut extracted = 0;
    for words in orders {
        let mut link = driver(work, linker, false);
        link.arg("main.o").args(words).args(option);
        let stderr = stderr_of(link.args(["-Wl,--wrapper-why", "-o", "program"]))?;
        let printed = run_offloaded(&mut work.command("./program"))?;
        let reason = "libf.a(f.o): x86_64-pc-linux-gnu: not taken: ";
        expect_equal(
            &format!("{linker} {option:?}, {words:?}: the member is not taken\n{stderr}"),
            &printed.is_empty().to_string(),
            &stderr.contains(reason).to_string(),
        )?;
        extracted += usize::from(printed == "device 1\n");
    }
    expect_equal(
        &format!("{linker} {option:?}"),
        &extracts.to_string(),
        &extracted.to_string(),
    )
}
