//! Of several definitions, device code uses the same one as the host link. Of weak ones, that is
//! the definition in the object that the linker reads first. Of archive members, it is the one from
//! the archive that the linker searches for the symbol.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::support::{
    LLVM, OFFLOAD, Outcome, Work, expect_equal, expect_in, llvm, made, passed, root, run,
    run_offloaded, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test(
            "archives::make_links_as_many_random_programs_as_one_asks_for",
            more_programs,
        ),
        with_llvm(
            "archives::weak_definitions_in_the_order_in_which_members_are_taken",
            || {
                // In the archive, `second` comes before `first`, which needs it.
                check(&["main.o", "lib.a"], &["bfd", "lld"])
            },
        ),
        with_llvm("archives::weak_definitions_of_members_and_objects", || {
            check(&["lib.a", "main.o", "third.o"], &["lld"])?;
            check(&["main.o", "third.o", "lib.a"], &["bfd", "lld"])?;
            check(
                &[
                    "main.o",
                    "-Wl,--start-lib",
                    "second.o",
                    "first.o",
                    "-Wl,--end-lib",
                    "third.o",
                ],
                &["lld"],
            )
        }),
        with_llvm("archives::the_archive_that_the_linker_searches", || {
            check(&["other.a", "main.o", "lib.a"], &["bfd", "lld"])
        }),
        with_llvm("archives::archives_named_twice_and_in_groups", || {
            check(&["main.o", "two.a", "one.a", "two.a"], &["bfd", "lld"])?;
            check(
                &[
                    "main.o",
                    "-Wl,--start-group",
                    "two.a",
                    "one.a",
                    "-Wl,--end-group",
                ],
                &["bfd", "lld"],
            )
        }),
        with_llvm(
            "archives::a_plain_function_of_the_same_archive",
            plain_function,
        ),
    ]
}

/// `make fuzz-links` selects the tests of random links by name, with another seed and another
/// number. If no test had that name, it would run nothing and pass.
fn more_programs() -> Outcome {
    let shown = |settings: &[&str]| {
        let mut make = Command::new("make");
        make.args([
            "-n",
            "--no-print-directory",
            "fuzz-links",
            "SETUP=/no/stamp",
        ])
        .args(settings)
        .current_dir(root());
        run(make
            .env_remove("MAKEFLAGS")
            .env_remove("LINKS")
            .env_remove("SEED"))
    };
    expect_in(&shown(&[])?, "OFFLD_LINKS_COUNT=600 OFFLD_LINKS_SEED=1000 ")?;
    let shown = shown(&["LINKS=13", "SEED=7000"])?;
    expect_in(&shown, "OFFLD_LINKS_COUNT=13 OFFLD_LINKS_SEED=7000 ")?;
    let filter = shown.split_whitespace().last().unwrap_or_default();
    let mut list = Command::new(std::env::current_exe()?);
    let listed = run(list
        .args(["--list", filter])
        .env("OFFLD_LINKS_COUNT", "13")
        .env("OFFLD_LINKS_SEED", "7000"))?;
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();
    expect_equal(
        "tests",
        "random_links::7000 random_links::7001 random_links::7002",
        &names.join(" "),
    )?;
    passed()
}

/// The function that all objects define.
fn weak(value: i32) -> String {
    format!("__attribute__((weak, noinline)) int chosen(int x) {{ return x + {value}; }}\n")
}

/// Objects that a main function needs one after the other. Each has the weak function.
fn objects() -> Result<Work, Failed> {
    const TARGET: &str = "#pragma omp begin declare target\n";
    const END: &str = "#pragma omp end declare target\n";
    let work = Work::new();
    let main = "#include <stdio.h>\nint first(void);\nint main(void) { return first(); }\n";
    let first = format!(
        "#include <stdio.h>\n{TARGET}{}{END}int second(void);\nint first(void) {{ int x = 0, device = 0;\n\
         #pragma omp target map(tofrom : x) map(from : device)\n{{ x = chosen(1); device = 1; }}\n\
         printf(\"%s\\n\", !device ? \"no device\" : x == chosen(1) ? \"the same\" : \"another\"); return second(); }}\n",
        weak(10)
    );
    let second = format!(
        "{TARGET}{}{END}int second(void) {{ return 0; }}\n",
        weak(20)
    );
    let third = format!("{TARGET}{}{END}", weak(30));
    let other = first.replace("+ 10", "+ 40");
    for (name, text) in [
        ("main", main),
        ("first", &first),
        ("second", &second),
        ("third", &third),
        ("other", &other),
    ] {
        let file = format!("{name}.c");
        work.file(&file, text);
        run(work
            .command(llvm("clang"))
            .args(OFFLOAD)
            .args(["-O1", "-fPIC", "-c", &file]))?;
    }
    for (archive, members) in [
        ("lib.a", &["second.o", "first.o"][..]),
        ("one.a", &["first.o"]),
        ("two.a", &["second.o"]),
        ("other.a", &["other.o"]),
    ] {
        work.archive(archive, members)?;
    }
    Ok(work)
}

fn check(words: &[&str], linkers: &[&str]) -> Outcome {
    let work = objects()?;
    for linker in linkers {
        for as_linker in [false, true] {
            let mut link = work.command(llvm("clang"));
            if as_linker {
                let real = if *linker == "lld" {
                    format!("{LLVM}/ld.lld")
                } else {
                    format!("ld.{linker}")
                };
                link.arg("-fopenmp").arg(format!(
                    "--ld-path={}",
                    made().links.join("ld.offld").display()
                ));
                link.env("OFFLD_LINKER", real);
            } else {
                link.args(OFFLOAD)
                    .arg(format!("-fuse-ld={linker}"))
                    .arg("-B")
                    .arg(&made().links);
            }
            run(link.args(words).args(["-o", "program"]))?;
            let printed = run_offloaded(&mut work.command("./program"))?;
            expect_equal(&format!("{words:?} with {linker}"), "the same\n", &printed)?;
        }
    }
    passed()
}

/// Kernels of an archive that call a plain function in the same archive. The function's member has
/// no device code, or has its own.
fn plain_function() -> Outcome {
    const MEMBER: &str = "
int helper(int);
int member(void) {
  int x = 0;
#pragma omp target map(tofrom : x)
  x = helper(5);
  return x;
}
";
    const MAIN: &str = "
#include <stdio.h>
int member(void);
int main(void) {
  int device = 0;
#pragma omp target map(from : device)
  device = 1;
  printf(\"device %d, %d\\n\", device, member());
}
";
    let work = Work::new();
    work.file("main.c", MAIN);
    work.file("member.c", MEMBER);
    work.file(
        "helper.c",
        "static int table[3] = {1, 2, 3}; int deeper(void); int helper(int x) { return x * table[1] + deeper(); }",
    );
    work.file("deeper.c", "int deeper(void) { return 1; }");
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-c", "main.c", "member.c", "deeper.c"]))?;
    for offload in [&[][..], &OFFLOAD] {
        run(work
            .command(llvm("clang"))
            .args(offload)
            .args(["-c", "helper.c"]))?;
        work.archive("lib.a", &["member.o", "helper.o", "deeper.o"])?;
        for linker in ["bfd", "lld"] {
            let mut link = work.command(llvm("clang"));
            link.args(OFFLOAD)
                .arg(format!("-fuse-ld={linker}"))
                .arg("-B")
                .arg(&made().links);
            run(link.args(["main.o", "lib.a", "-o", "program"]))?;
            expect_equal(
                "stdout",
                "device 1, 11\n",
                &run_offloaded(&mut work.command("./program"))?,
            )?;
        }
    }
    passed()
}
