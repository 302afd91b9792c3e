//! Compares edited objects with those of LLVM's objcopy, and links them into programs.

use super::digest::{digest, retained};
use crate::compose::join;
use crate::elf::edit::{entry_table_tag, rename_entry_tables};
use crate::reference::{Outcome, run, tools};
use std::path::Path;

const TAG: &str = "c0ffee";

/// Compiles objects with an entry table each, with two compilers. Each linker joins a pair of them
/// (`ld -r`). Returns the file names.
fn objects(folder: &Path) -> Result<Option<Vec<String>>, Box<dyn std::error::Error>> {
    let Some([clang, cc, bfd, lld]) = tools(["clang", "cc", "ld.bfd", "ld.lld"]) else {
        return Ok(None);
    };
    std::fs::write(folder.join("fat.cpp"), include_str!("fat.cpp"))?;
    for (compiler, name, more) in [
        (&cc, "gcc", "-O1"),
        (&clang, "clang", "-O1"),
        (&cc, "sections", "-ffunction-sections"),
        (&clang, "crel", "-Wa,--crel,--allow-experimental-crel"),
        (&clang, "i386", "--target=i386-linux-gnu"),
    ] {
        run(
            compiler,
            folder,
            [
                "-c",
                "-fPIC",
                "-g",
                more,
                &format!("-DNAME=of_{name}"),
                "fat.cpp",
                "-o",
                &format!("{name}.o"),
            ],
        )?;
    }
    for (linker, output, inputs) in [
        (&bfd, "bfd.o", ["gcc.o", "clang.o"]),
        (&lld, "lld.o", ["gcc.o", "clang.o"]),
        (&lld, "lld-crel.o", ["crel.o", "gcc.o"]),
    ] {
        run(linker, folder, ["-r", inputs[0], inputs[1], "-o", output])?;
    }
    let names = [
        "gcc.o",
        "clang.o",
        "sections.o",
        "crel.o",
        "i386.o",
        "bfd.o",
        "lld.o",
        "lld-crel.o",
    ];
    Ok(Some(names.map(str::to_owned).to_vec()))
}

fn edit(folder: &Path, input: &str, tag: &str, output: &str) -> Outcome {
    let data = std::fs::read(folder.join(input))?;
    let edited = join(&data, &rename_entry_tables(&data, tag)?, &[])?;
    Ok(std::fs::write(folder.join(output), edited)?)
}

#[test]
fn the_same_as_llvm_objcopy_makes() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let Some([objcopy, readelf, llvm_readelf]) = tools(["llvm-objcopy", "readelf", "llvm-readelf"])
    else {
        return Ok(());
    };
    for input in objects(folder)?.unwrap_or_default() {
        let renames = [
            "__start_llvm_offload_entries",
            "__stop_llvm_offload_entries",
        ];
        let mut args: Vec<String> = ["--remove-section=.llvm.offloading".to_owned()].into();
        args.push(format!(
            "--rename-section=llvm_offload_entries=llvm_offload_entries_{TAG}"
        ));
        args.extend(renames.map(|name| format!("--redefine-sym={name}={name}_{TAG}")));
        args.extend([input.clone(), "theirs.o".to_owned()]);
        let done = run(&objcopy, folder, &args);
        edit(folder, &input, TAG, "ours.o")?;
        // LLVM's objcopy does not support CREL in some releases.
        if let Err(error) = done {
            assert!(input.contains("crel"), "{error}");
        } else {
            let [mut ours, mut theirs] = [
                digest(&std::fs::read(folder.join("ours.o"))?),
                digest(&std::fs::read(folder.join("theirs.o"))?),
            ];
            // llvm-objcopy has no option for the flag that makes linkers keep the tables.
            theirs = theirs.into_iter().map(|line| retained(line, TAG)).collect();
            // llvm-objcopy moves string and symbol tables to the end.
            ours.sort();
            theirs.sort();
            assert_eq!(ours, theirs, "{input}");
        }
        run(&llvm_readelf, folder, ["-aW", "ours.o"])?;
        run(&readelf, folder, ["-aW", "ours.o"]).or_else(|error| {
            if input.contains("crel") {
                Ok(Vec::new())
            } else {
                Err(error)
            }
        })?;
    }
    Ok(())
}

/// LLVM's objcopy drops this list, so the edited list is compared with that of the original object.
#[test]
fn symbols_whose_address_matters_are_the_same_ones() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let Some([readobj]) = tools(["llvm-readobj"]) else {
        return Ok(());
    };
    if objects(folder)?.is_none() {
        return Ok(());
    }
    let names = |input: &str| -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let shown = String::from_utf8(run(&readobj, folder, ["--addrsig", input])?)?;
        Ok(shown
            .lines()
            .filter_map(|line| {
                Some(
                    line.trim()
                        .strip_prefix("Sym: ")?
                        .split(' ')
                        .next()?
                        .to_owned(),
                )
            })
            .collect())
    };
    for input in ["clang.o", "crel.o"] {
        edit(folder, input, TAG, "ours.o")?;
        let before: Vec<String> = names(input)?
            .iter()
            .map(|name| name.replace("_entries", "_entries_c0ffee"))
            .collect();
        assert!(before.len() > 3);
        assert_eq!(names("ours.o")?, before);
    }
    Ok(())
}

/// Each part sees only its own entries, and common code exists once.
#[test]
fn parts_with_tables_of_their_own_make_a_program() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let Some(inputs) = objects(folder)? else {
        return Ok(());
    };
    let Some([cc]) = tools(["c++"]) else {
        return Ok(());
    };
    std::fs::write(folder.join("main.cpp"), "int main() { return 0; }\n")?;
    let mut linkers = vec!["bfd", "lld"];
    linkers.extend(
        ["mold", "gold"]
            .into_iter()
            .filter(|name| tools([&format!("ld.{name}")]).is_some()),
    );
    for pair in [
        ["gcc.o", "sections.o"],
        ["bfd.o", "sections.o"],
        ["lld.o", "sections.o"],
        ["lld-crel.o", "sections.o"],
    ] {
        assert!(
            pair.iter()
                .all(|name| inputs.iter().any(|input| input == name))
        );
        for (index, input) in pair.iter().enumerate() {
            let tag = entry_table_tag(&std::fs::read(folder.join(input))?);
            edit(folder, input, &tag, &format!("part{index}.o"))?;
        }
        for linker in &linkers {
            if pair[0].contains("crel") && *linker != "lld" {
                continue;
            }
            let path = if *linker == "lld" {
                "--ld-path=/usr/lib/llvm-22/bin/ld.lld".to_owned()
            } else {
                format!("-fuse-ld={linker}")
            };
            let [compiler] = if *linker == "lld" {
                tools(["clang++"]).ok_or("clang++")?
            } else {
                [cc.clone()]
            };
            run(
                &compiler,
                folder,
                [
                    &path,
                    "-Wl,--fatal-warnings",
                    "main.cpp",
                    "part0.o",
                    "part1.o",
                    "-o",
                    "program",
                ],
            )?;
            let shown = String::from_utf8(run(&folder.join("program"), folder, [""; 0])?)?;
            let mut lines: Vec<&str> = shown.lines().collect();
            lines.sort_unstable();
            let joined = pair[0] == "bfd.o" || pair[0].starts_with("lld");
            let expected: &[&str] = if joined {
                &["1 entries", "2 entries", "2 entries"]
            } else {
                &["1 entries", "1 entries"]
            };
            assert_eq!(lines, expected, "{pair:?} with {linker}");
        }
    }
    Ok(())
}
