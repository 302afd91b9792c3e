//! Inputs and outputs with which stable names are hard to keep right: names that share bytes,
//! registered objects, symlinks, libraries with kernels of equal names, and random file numbers.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use libtest_mimic::{Failed, Trial};
use offload_formats::bitcode;
use offload_formats::elf::rename as elf;
use offload_formats::magic::{Magic, magic};
use offload_formats::stable_names::{FileId, StableNames, Uses};

use super::{CHECKOUTS, IN_OBJECTS, OUTPUT, compile, equal_sources, link, sources};
use crate::effort::rounds;
use crate::support::{
    OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, host_linker, llvm,
    missing, passed, run, run_offloaded, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("stable_names::random_numbers_of_files", renames),
        with_llvm("stable_names::an_output_that_is_a_symlink", symlinks),
        with_llvm("stable_names::libraries_with_equal_names", equal_libraries),
        with_llvm(
            "stable_names::a_registered_object_joined_with_another",
            registered_beside_others,
        ),
        with_llvm("stable_names::copies_are_not_seen", copies_are_not_seen),
        with_llvm(
            "stable_names::a_variable_whose_name_ends_within_a_number",
            joined_within_a_number,
        ),
    ]
}

/// The bytes of device code with stable names do not depend on the numbers of its files.
fn renames() -> Outcome {
    let count = rounds("random renames", 10_000, 500);
    let work = Work::new();
    sources(&work, "tree");
    let mut random = 1_u64;
    for (name, flags) in CHECKOUTS {
        let target: &[&str] = if flags.contains(&"-nogpulib") {
            &[]
        } else {
            &OFFLOAD[1..]
        };
        let only = ["--offload-device-only", "-o", name];
        let flags = [flags, target, &only].concat();
        compile(&work, "tree", &["main"], &flags)?;
        let code = std::fs::read(work.path().join("tree").join(name))?;
        let (ids, expected) = with_stable_names(&code)?;
        ensure(!ids.is_empty(), || name.to_owned())?;
        for _ in 0..count / CHECKOUTS.len() {
            let elsewhere: StableNames = ids
                .iter()
                .map(|id| (*id, other_id(*id, &mut random)))
                .collect();
            let copy = renamed_code(&code, &elsewhere)?;
            let (_, found) = with_stable_names(&copy)?;
            ensure(found == expected, || format!("{name}: {elsewhere:?}"))?;
        }
    }
    passed()
}

/// The IDs in device code, and the code with stable names.
fn with_stable_names(code: &[u8]) -> Result<(Vec<FileId>, Vec<u8>), Failed> {
    let mut uses = Uses::default();
    let mut add = |name: &[u8]| uses.add(name);
    match magic(code) {
        Magic::Elf => elf::names_of_symbols(code, &mut add)?,
        _ => bitcode::names_with_ids(code, &mut add)?,
    }
    let stable = StableNames::choose(&uses, &BTreeSet::new());
    Ok((uses.ids().collect(), renamed_code(code, &stable)?))
}

fn renamed_code(code: &[u8], names: &StableNames) -> Result<Vec<u8>, Failed> {
    let new = match magic(code) {
        Magic::Elf => elf::rename(code, names)?,
        _ => bitcode::rename(code, names)?,
    };
    Ok(new.ok_or("no ID to replace")?)
}

/// A random ID of the same length.
fn other_id(id: FileId, random: &mut u64) -> String {
    let digit = |digit: char| {
        if !digit.is_ascii_hexdigit() {
            return digit;
        }
        // Constants of Knuth's MMIX generator.
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from_digit((*random >> 33) as u32 % 15 + 1, 16).unwrap_or(digit)
    };
    id.to_string().chars().map(digit).collect()
}

/// GNU ld stores `a_decl_tgt_ref_ptr` as the end of the name of a file-local variable, if the inode
/// number of its file ends with `a`.
fn joined_within_a_number() -> Outcome {
    let work = Work::new();
    work.file(
        "tree/a.cpp",
        "double a[4];\n#pragma omp declare target link(a)\n\
         double use_a() {\n#pragma omp target map(tofrom: a)\n  a[0] = 7;\n  return a[0];\n}\n",
    );
    let text = "#include <cstdio>\ndouble use_a();\n\
                static double xs[4];\n#pragma omp declare target link(xs)\n\
                int main() {\n#pragma omp target map(tofrom: xs)\n  xs[1] = 7;\n  \
                std::printf(\"%g %g\\n\", use_a(), xs[1]);\n}\n";
    let mut tries = 0;
    while {
        work.file(&format!("tree/{tries}"), text);
        std::fs::metadata(work.path().join(format!("tree/{tries}")))?.ino() % 16 != 10
    } {
        tries += 1;
        ensure(tries < 1000, || "no inode number ends with a")?;
    }
    std::fs::rename(
        work.path().join(format!("tree/{tries}")),
        work.path().join("tree/main.cpp"),
    )?;
    compile(&work, "tree", &["a", "main"], &["-O1", OFFLOAD[1]])?;
    for linker in ["-fuse-ld=bfd", "-fuse-ld=lld"] {
        let flags = [OFFLOAD[1], linker, "-Wl,-O2"];
        run(&mut link(&work, "tree", &["a.o", "main.o"], &flags))?;
        let program = work.path().join("tree/program");
        let output = run_offloaded(&mut work.command(program))?;
        expect_equal(linker, "7 7\n", &output)?;
    }
    passed()
}

/// An output that is a symlink is treated as without stable names.
fn symlinks() -> Outcome {
    let work = Work::new();
    sources(&work, "tree");
    compile(&work, "tree", &["main", "other"], &["-O1", OFFLOAD[1]])?;
    let tree = work.path().join("tree");
    let (program, real) = (tree.join("program"), tree.join("real"));
    for linker in ["lld", "bfd", "mold"] {
        if host_linker(linker).is_none() {
            return missing(linker);
        }
        for old in [Some("old"), Some(""), None] {
            let mut ends = Vec::new();
            for stable in ["off", "on"] {
                let _ = std::fs::remove_file(&program);
                let _ = std::fs::remove_file(&real);
                if let Some(old) = old {
                    work.file("tree/real", old);
                }
                std::os::unix::fs::symlink("real", &program)?;
                let option = format!("-Wl,--wrapper-stable-names={stable}");
                let flags = [OFFLOAD[1], &format!("-fuse-ld={linker}"), &option];
                run(&mut link(&work, "tree", &["main.o", "other.o"], &flags))?;
                let shown = format!("{linker}, {old:?}, {stable}");
                let output = run_offloaded(&mut work.command(&program))?;
                expect_equal(&shown, OUTPUT, &output)?;
                let is_program = std::fs::read(&real).is_ok_and(|real| real.len() > 1000);
                ends.push((program.is_symlink(), real.is_symlink(), is_program));
            }
            ensure(ends[0] == ends[1], || {
                format!("{linker}, {old:?}: {ends:?}")
            })?;
        }
    }
    passed()
}

/// Two libraries with kernels of equal names. Each runs its own.
fn equal_libraries() -> Outcome {
    let work = Work::new();
    let tree = work.path().join("tree");
    equal_sources(&work);
    let flags = ["-O1", "-fPIC", OFFLOAD[1]];
    compile(&work, "tree", &["one", "two", "main"], &flags)?;
    for stable in ["on", "objects"] {
        let option = format!("-Wl,--wrapper-stable-names={stable}");
        for name in ["one", "two"] {
            let flags = [OFFLOAD[1], "-shared", "-fuse-ld=lld", &option];
            let input = format!("{name}.o");
            run(&mut link(&work, "tree", &[&input], &flags))?;
            std::fs::rename(tree.join("program"), tree.join(format!("lib{name}.so")))?;
        }
        let flags = [
            OFFLOAD[1],
            "-fuse-ld=lld",
            &option,
            "-L.",
            "-Wl,-rpath,$ORIGIN",
        ];
        let inputs = ["main.o", "libone.so", "libtwo.so"];
        run(&mut link(&work, "tree", &inputs, &flags))?;
        let output = run_offloaded(work.command(tree.join("program")).current_dir(&tree))?;
        expect_equal(stable, "101 120\n", &output)?;
        for name in ["one", "two"] {
            let stderr = stderr_of(
                link(
                    &work,
                    "tree",
                    &[&format!("{name}.o")],
                    &[OFFLOAD[1], "-r", &option],
                )
                .args(["-nostdlib", "-o", &format!("{name}_r.o")]),
            )?;
            let warns = stderr.contains("with -r, symbols keep the names of clang");
            ensure(warns == (stable == "objects"), || stderr.clone())?;
        }
        let inputs = ["main.o", "one_r.o", "two_r.o"];
        run(&mut link(&work, "tree", &inputs, &[OFFLOAD[1]]))?;
        let output = run_offloaded(&mut work.command(tree.join("program")))?;
        expect_equal(stable, "101 120\n", &output)?;
    }
    passed()
}

/// A linker has joined an object whose images are registered with one whose images are not.
fn registered_beside_others() -> Outcome {
    let work = Work::new();
    equal_sources(&work);
    compile(&work, "tree", &["one", "two", "main"], &["-O1", OFFLOAD[1]])?;
    let option = "-Wl,--wrapper-stable-names=off";
    run(
        link(&work, "tree", &["one.o"], &[OFFLOAD[1], "-r", option]).args([
            "-nostdlib",
            "-o",
            "one_r.o",
        ]),
    )?;
    run(work
        .command(llvm("ld.lld"))
        .current_dir(work.path().join("tree"))
        .args(["-r", "one_r.o", "two.o", "-o", "both.o"]))?;
    let stderr = stderr_of(&mut link(
        &work,
        "tree",
        &["main.o", "both.o"],
        &[OFFLOAD[1]],
    ))?;
    expect_not_in(&stderr, "warning")?;
    let output = run_offloaded(&mut work.command(work.path().join("tree/program")))?;
    expect_equal("output", "101 120\n", &output).and(passed())
}

/// The link sees copies as it would see the inputs: in `--exclude-libs` and in dependency files.
/// A backup of the output does not matter.
fn copies_are_not_seen() -> Outcome {
    let work = Work::new();
    let tree = work.path().join("tree");
    sources(&work, "tree");
    let flags = ["-O1", "-fPIC", OFFLOAD[1]];
    compile(&work, "tree", &["main", "other"], &flags)?;
    run(work
        .command(llvm("llvm-ar"))
        .current_dir(&tree)
        .args(["rcs", "libother.a", "other.o"]))?;
    let flags = [
        OFFLOAD[1],
        "-shared",
        "-fuse-ld=lld",
        IN_OBJECTS,
        "-L.",
        "-lother",
        "-Wl,--exclude-libs,libother.a",
        "-Wl,--dependency-file=rules.d",
    ];
    let mut programs = Vec::new();
    for _ in 0..2 {
        run(&mut link(&work, "tree", &["main.o"], &flags))?;
        programs.push(std::fs::read(tree.join("program"))?);
        let _ = std::fs::hard_link(tree.join("program"), tree.join("backup"));
    }
    ensure(
        programs[0] == programs[1],
        || "the backup changes the output",
    )?;
    let symbols = work.run(llvm("llvm-nm"), ["-D", "--defined-only", "tree/program"])?;
    expect_not_in(&symbols, "other")?;
    let rules = std::fs::read_to_string(tree.join("rules.d"))?;
    for input in ["main.o", "libother.a"] {
        expect_in(&rules, input)?;
    }
    expect_not_in(&rules, "offld-").and(passed())
}
