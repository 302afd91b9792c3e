//! Objects that a relocatable link merged from those of several compilers.

use libtest_mimic::Trial;

use crate::kit::Image;
use crate::support::{
    OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, ledger, llvm, made, missing, passed,
    run, run_offloaded, stderr_of, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test(
            "releases::registration::one_object_with_both_entry_tables_registers_both",
            both_tables,
        ),
        with_llvm(
            "registration::both_entry_tables_are_registered_whoever_made_them",
            tables_by_hand,
        ),
    ]
}

const PART: &str = "
int part_RELEASE(int x) {
  int y = 0;
#pragma omp target map(from : y)
  y = x * RELEASE;
  return y;
}
";

const MAIN: &str = "
#include <stdio.h>
int part_19(int), part_22(int);
int main(void) { printf(\"%d %d\\n\", part_19(2), part_22(3)); }
";

/// LLVM 19 and LLVM 22 compile one part each, and `ld -r` makes one object from both, with both
/// forms of entry tables.
fn both_tables() -> Outcome {
    let (Some(old), Some(new)) = (Release::of(19), Release::of(22)) else {
        return missing("LLVM 19 (make setup-releases)");
    };
    let work = Work::new();
    work.file("main.c", MAIN);
    run(work.command(llvm("clang")).args(["-c", "main.c"]))?;
    for release in [&old, &new] {
        let name = format!("part{}", release.major);
        work.file(
            &format!("{name}.c"),
            PART.replace("RELEASE", &release.major.to_string()),
        );
        let mut compile = work.command(release.tool("clang"));
        compile
            .args(["-O1", "-c"])
            .args(OFFLOAD)
            .args(&release.compile);
        run(compile
            .arg(format!("{name}.c"))
            .args(["-o", &format!("{name}.o")]))?;
    }
    for order in [["part19.o", "part22.o"], ["part22.o", "part19.o"]] {
        run(work.command("ld").args(["-r", "-o", "both.o"]).args(order))?;
        let mut link = work.command(llvm("clang"));
        link.args(OFFLOAD)
            .arg("-B")
            .arg(&made().links)
            .arg(format!("-L{}", new.lib.display()));
        run(link.args(["main.o", "both.o", "-o", "program"]))?;
        let printed = run_offloaded(work.command("./program").env("LD_LIBRARY_PATH", &new.lib))?;
        expect_equal("stdout of the program", "38 66\n", &printed)?;
        let ledger = ledger(&work, &mut work.command("./program"), &new)?;
        let registered = ledger.lines().filter(|line| line.contains(" register "));
        let mut layouts: Vec<&str> = registered
            .filter_map(|line| line.rsplit("layout=").next())
            .collect();
        layouts.sort_unstable();
        expect_equal("the tables", "[\"32\", \"56\"]", &format!("{layouts:?}"))?;
    }
    work.expect_no_temps()?;
    passed()
}

/// The same without the two compilers: one object with both forms of entries.
fn tables_by_hand() -> Outcome {
    let work = Work::new();
    let entry = |section: &str, size: u32| {
        format!(
            "__attribute__((section(\"{section}\"), used, aligned(8))) static const char entry[{size}] = {{0, 0, 0, 0, 0, 0, 0, 0, 1}};\n"
        )
    };
    work.fat_with(
        "old.o",
        &[Image::host("OLD")],
        &entry("omp_offloading_entries", 32),
    )?;
    work.fat_with(
        "new.o",
        &[Image::host("NEW")],
        &entry("llvm_offload_entries", 56),
    )?;
    for order in [["old.o", "new.o"], ["new.o", "old.o"]] {
        work.forget();
        run(work.command("ld").args(["-r", "-o", "both.o"]).args(order))?;
        let stderr = stderr_of(&mut work.wrapper(["both.o", "-o", "x", "--print-wrapped-module"]))?;
        for table in [
            "__start_omp_offloading_entries",
            "__stop_omp_offloading_entries",
            "__start_llvm_offload_entries",
        ] {
            expect_in(&stderr, &format!("@{table} = external hidden constant"))?;
        }
        expect_equal(
            "registrations",
            "2",
            &stderr
                .matches("call void @__tgt_register_lib(")
                .count()
                .to_string(),
        )?;
        let objects = work
            .host_line()?
            .into_iter()
            .filter(|word| word.contains(".openmp.image"))
            .count();
        expect_equal("registration objects", "2", &objects.to_string())?;
    }
    passed()
}
