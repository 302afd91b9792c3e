//! Comparison with llvm-objcopy when sections are added and removed, and recovery of the compiler's
//! output.

use super::*;
use crate::compose::join;
use crate::reference::{Outcome, missing, run, tools};
use std::path::Path;

const HOST: &str = "host-x86_64-unknown-linux-gnu-";
const IDS: [&str; 3] = [
    HOST,
    "hip-amdgcn-amd-amdhsa--gfx90a:xnack+",
    "hip-amdgcn-amd-amdhsa--gfx906",
];
const PAYLOADS: [&[u8]; 3] = [b"\0", b"A code object of no particular length", b""];

fn new_sections() -> Vec<NewSection<'static>> {
    IDS.iter()
        .zip(PAYLOADS)
        .map(|(id, payload)| NewSection {
            id,
            size: payload.len() as u64,
        })
        .collect()
}

/// The output of llvm-objcopy for `object` with the sections, and for that result without them.
fn reference(
    objcopy: &Path,
    folder: &Path,
    object: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), Box<dyn std::error::Error>> {
    std::fs::write(folder.join("in.o"), object)?;
    let mut args = Vec::new();
    for (index, (id, payload)) in IDS.iter().zip(PAYLOADS).enumerate() {
        std::fs::write(folder.join(format!("payload{index}")), payload)?;
        args.push(format!(
            "--add-section=__CLANG_OFFLOAD_BUNDLE__{id}=payload{index}"
        ));
        args.push(format!(
            "--set-section-flags=__CLANG_OFFLOAD_BUNDLE__{id}=readonly,exclude"
        ));
    }
    args.extend(["--", "in.o", "fat.o"].map(str::to_owned));
    run(objcopy, folder, &args)?;
    run(
        objcopy,
        folder,
        [
            "--regex",
            "--remove-section=__CLANG_OFFLOAD_BUNDLE__.*",
            "--",
            "fat.o",
            "out.o",
        ],
    )?;
    Ok((
        std::fs::read(folder.join("fat.o"))?,
        std::fs::read(folder.join("out.o"))?,
    ))
}

fn same(ours: &[u8], theirs: &[u8], what: &str) {
    if ours != theirs {
        let at = ours
            .iter()
            .zip(theirs)
            .take_while(|(one, other)| one == other)
            .count();
        panic!(
            "{what}: {} bytes, but LLVM {}; the first difference is at {at:#x}",
            ours.len(),
            theirs.len()
        );
    }
}

fn size(parts: &[Part], new: &[NewSection<'_>]) -> u64 {
    parts
        .iter()
        .map(|part| part.size(|index| new[index].size))
        .sum()
}

/// Adds and removes the sections, and compares with llvm-objcopy. Returns the resulting host
/// object.
fn round(
    objcopy: &Path,
    folder: &Path,
    object: &[u8],
    what: &str,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (fat, bare) = reference(objcopy, folder, object)?;
    let new = new_sections();
    let parts = with_sections(object, &new)?;
    let ours = join(object, &parts, &PAYLOADS)?;
    assert_eq!(size(&parts, &new), ours.len() as u64);
    same(&ours, &fat, &format!("{what}, fat"));
    let found = bundle_sections(&fat)?;
    assert_eq!(
        found.iter().map(|section| section.id).collect::<Vec<_>>(),
        IDS,
        "{what}"
    );
    for (section, payload) in found.iter().zip(PAYLOADS) {
        assert_eq!(
            &fat[section.at as usize..][..section.size as usize],
            payload,
            "{what}"
        );
    }
    let ours = join(&fat, &without_bundles(&fat)?, &[])?;
    same(&ours, &bare, &format!("{what}, bare"));
    Ok(ours)
}

const SOURCE: &str = r#"
int table[100]; static int hidden = 3; extern int other(int);
__attribute__((section(".data.rel"))) int (*pointer)(int) = other;
int main(int argc, char **argv) { return other(argc) + table[argc] + hidden + (pointer != 0); }
_Thread_local int of_each_thread = 7;
const char *long_name_of_a_global_variable_that_needs_the_string_table = "text";
__attribute__((weak)) int weak_function(void) { return 1; }
"#;
const SOURCE_CXX: &str = r#"
template <class T> struct S { virtual T f(T t) { return t; } static T v; };
template <class T> T S<T>::v = 3;
inline int in_a_group(int x) { static int y = x; return y++; }
int g(int x) { S<int> s; S<long> t; return s.f(x) + (int)t.f(x) + S<int>::v + in_a_group(x); }
"#;

#[test]
fn ob_05_b19_objects_of_clang_come_out_as_they_were() -> Outcome {
    let Some([objcopy, clang]) = tools(["llvm-objcopy", "clang"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), SOURCE)?;
    std::fs::write(folder.join("a.cpp"), SOURCE_CXX)?;
    let elf = [
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "powerpc-unknown-linux-gnu",
        "i386-unknown-linux-gnu",
    ];
    let coff = [
        "x86_64-pc-windows-msvc",
        "x86_64-w64-windows-gnu",
        "aarch64-pc-windows-msvc",
        "i686-pc-windows-msvc",
    ];
    for target in elf
        .into_iter()
        .chain([
            "riscv64-unknown-linux-gnu",
            "mips64el-unknown-linux-gnu",
            "s390x-unknown-linux-gnu",
        ])
        .chain(coff)
    {
        for (source, flags) in [
            ("a.c", &["-O0"][..]),
            (
                "a.c",
                &["-O2", "-ffunction-sections", "-fdata-sections", "-faddrsig"],
            ),
            (
                "a.cpp",
                &["-g", "-fno-exceptions", "-fno-threadsafe-statics"],
            ),
        ] {
            let what = format!("{target} {source} {flags:?}");
            let for_target = format!("--target={target}");
            let compile = [
                &[&for_target, "-c", "-ffreestanding", "-o", "made.o", source],
                flags,
            ]
            .concat();
            let compiled = run(&clang, folder, &compile);
            if compiled.is_err() {
                assert!(!elf[..2].contains(&target), "{what}: {compiled:?}");
                missing(&format!("{what}: {compiled:?}"));
                continue;
            }
            let object = std::fs::read(folder.join("made.o"))?;
            let bare = round(&objcopy, folder, &object, &what)?;
            if !target.contains("windows") {
                same(&bare, &object, &what);
            }
        }
    }
    Ok(())
}

/// Computes the size only, because the output may be too large for memory. Every range must be
/// inside the object.
fn check_plan(parts: &[Part], object: &[u8], new: &[NewSection<'_>]) {
    for part in parts {
        match part {
            Part::Old(range) => {
                assert!(range.start <= range.end && range.end <= object.len() as u64)
            }
            Part::New(index) => assert!(*index < new.len()),
            Part::Bytes(_) | Part::Zeros(_) => {}
        }
    }
    let payload: u64 = new.iter().map(|section| section.size).sum();
    assert!(size(parts, new) < payload + (1 << 32) + (128 << 20));
}

/// A small object of each format.
fn small(clang: &Path, folder: &Path) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    std::fs::write(
        folder.join("s.c"),
        "extern int y; int x = 1; int f(void) { return x + y; }\n",
    )?;
    let mut made = Vec::new();
    for target in [
        "x86_64-unknown-linux-gnu",
        "powerpc-unknown-linux-gnu",
        "x86_64-pc-windows-msvc",
    ] {
        run(
            clang,
            folder,
            [&format!("--target={target}"), "-c", "s.c", "-o", "s.o"],
        )?;
        made.push(std::fs::read(folder.join("s.o"))?);
    }
    Ok(made)
}

#[test]
fn damaged_objects_are_errors_or_objects_and_nothing_else() -> Outcome {
    let Some([objcopy, clang]) = tools(["llvm-objcopy", "clang"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    for object in small(&clang, folder.path())? {
        let new = new_sections();
        let (fat, _) = reference(&objcopy, folder.path(), &object)?;
        for len in 0..fat.len() {
            let cut = &fat[..len];
            let results = [with_sections(cut, &new), without_bundles(cut)];
            assert!(
                results.iter().all(Result::is_err) || kind(&fat) == Some(Kind::Coff),
                "cut to {len}"
            );
            results
                .iter()
                .flatten()
                .for_each(|plan| check_plan(plan, cut, &new));
            drop((bundle_sections(cut), hip_sections(cut)));
        }
        for at in 0..fat.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = fat.clone();
                damaged[at] ^= flip;
                let results = [with_sections(&damaged, &new), without_bundles(&damaged)];
                results
                    .iter()
                    .flatten()
                    .for_each(|plan| check_plan(plan, &damaged, &new));
                drop((bundle_sections(&damaged), hip_sections(&damaged)));
            }
        }
    }
    Ok(())
}

#[test]
fn payloads_too_large_for_the_object_are_errors() -> Outcome {
    let Some([_, clang]) = tools(["llvm-objcopy", "clang"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let objects = small(&clang, folder.path())?;
    let new = [
        NewSection { id: HOST, size: 1 },
        NewSection {
            id: "hip-a",
            size: 5 << 30,
        },
    ];
    let results = objects
        .iter()
        .map(|object| with_sections(object, &new))
        .collect::<Vec<_>>();
    assert!(
        matches!(&results[0], Ok(parts) if size(parts, &new) > 5 << 30),
        "64 bits are enough"
    );
    assert!(results[1..].iter().all(Result::is_err));
    Ok(())
}

/// `ld -r` leaves section symbols, and merges those with the same name.
#[test]
fn b19_symbols_of_sections_go_with_them() -> Outcome {
    let Some([objcopy, clang, ld, lld]) = tools(["llvm-objcopy", "clang", "ld", "ld.lld"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    for name in ["a", "b"] {
        std::fs::write(
            folder.join("r.c"),
            format!(
                "extern int other; int {name}(void) {{ return other; }} static int q; int *p{name} = &q;\n"
            ),
        )?;
        run(
            &clang,
            folder,
            [
                "--target=x86_64-unknown-linux-gnu",
                "-faddrsig",
                "-c",
                "r.c",
                "-o",
                "r.o",
            ],
        )?;
        let (fat, _) = reference(&objcopy, folder, &std::fs::read(folder.join("r.o"))?)?;
        std::fs::write(folder.join(format!("{name}.o")), fat)?;
    }
    for linker in [ld, lld] {
        run(&linker, folder, ["-r", "a.o", "b.o", "-o", "both.o"])?;
        let both = std::fs::read(folder.join("both.o"))?;
        assert_eq!(bundle_sections(&both)?.len(), IDS.len());
        run(
            &objcopy,
            folder,
            [
                "--regex",
                "--remove-section=__CLANG_OFFLOAD_BUNDLE__.*",
                "--",
                "both.o",
                "bare.o",
            ],
        )?;
        let ours = join(&both, &without_bundles(&both)?, &[])?;
        same(
            &ours,
            &std::fs::read(folder.join("bare.o"))?,
            &linker.display().to_string(),
        );
    }
    Ok(())
}

/// More sections than the headers of ELF and small COFF objects can count.
#[test]
fn b19_objects_of_very_many_sections() -> Outcome {
    let Some([objcopy, clang]) = tools(["llvm-objcopy", "clang"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    for (target, count, section) in [
        (
            "x86_64-unknown-linux-gnu",
            65_500,
            r#".section .data.f{},"aw",@progbits"#,
        ),
        // The new sections exceed the limit of the smaller numbers.
        (
            "x86_64-pc-windows-msvc",
            65_277,
            r#".section .data,"dw",one_only,f{}"#,
        ),
    ] {
        let one = |index: usize| {
            let number = index.to_string();
            let uses = if index.is_multiple_of(100) {
                format!(".quad f{}\n", (index * 7 + 1) % count)
            } else {
                String::new()
            };
            format!(
                "{}\n.globl f{number}\nf{number}: {uses}",
                section.replace("{}", &number)
            )
        };
        std::fs::write(
            folder.join("many.s"),
            (0..count)
                .map(one)
                .map(|text| text + "\n")
                .collect::<String>(),
        )?;
        run(
            &clang,
            folder,
            [
                &format!("--target={target}"),
                "-c",
                "many.s",
                "-o",
                "many.o",
            ],
        )?;
        round(
            &objcopy,
            folder,
            &std::fs::read(folder.join("many.o"))?,
            &format!("{target}, {count} sections"),
        )?;
    }
    Ok(())
}

#[test]
fn linked_files_keep_what_is_loaded() -> Outcome {
    let Some([objcopy, clang, lld]) = tools(["llvm-objcopy", "clang", "ld.lld"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    std::fs::write(
        folder.path().join("l.c"),
        "int x[100]; int y = 2; int _start(void) { return x[0] + y; }\n",
    )?;
    for (target, flags) in [
        ("x86_64-unknown-linux-gnu", "-shared"),
        ("powerpc-unknown-linux-gnu", "-pie"),
        ("x86_64-unknown-linux-gnu", "-static"),
    ] {
        run(
            &clang,
            folder.path(),
            [
                &format!("--target={target}"),
                "-fPIC",
                "-c",
                "l.c",
                "-o",
                "l.o",
            ],
        )?;
        run(&lld, folder.path(), [flags, "l.o", "-o", "l"])?;
        round(
            &objcopy,
            folder.path(),
            &std::fs::read(folder.path().join("l"))?,
            flags,
        )?;
    }
    Ok(())
}

#[test]
fn b20_other_formats_are_told() -> Outcome {
    let Some([clang, _]) = tools(["clang", "llvm-objcopy"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("o.c"), "int x;\n")?;
    let targets = [
        ("x86_64-apple-macosx11", Kind::MachO, "Mach-O"),
        ("wasm32", Kind::Wasm, "WebAssembly"),
        ("powerpc-ibm-aix", Kind::Xcoff, "XCOFF"),
    ];
    for (target, expected, name) in targets {
        run(
            &clang,
            folder.path(),
            [&format!("--target={target}"), "-c", "o.c", "-o", "o.o"],
        )?;
        let object = std::fs::read(folder.path().join("o.o"))?;
        assert_eq!(kind(&object), Some(expected));
        let fault = with_sections(&object, &new_sections()).expect_err(target);
        assert!(fault.to_string().contains(name), "{fault}");
        assert!(bundle_sections(&object)?.is_empty());
    }
    for text in [
        &b""[..],
        b"text",
        b"BC\xc0\xde....",
        b"!<arch>\n",
        b"\xca\xfe\xba\xbe0123456789abcdef",
    ] {
        assert_eq!(with_sections(text, &[]), Err(Fault::NoObject));
    }
    Ok(())
}

/// Assemblers give every COFF section a symbol. Relocations, weak symbols, COMDATs and lists of
/// symbols refer to symbols by number.
#[test]
fn b19_coff_symbols_of_sections_go_with_them() -> Outcome {
    let Some([objcopy, clang]) = tools(["llvm-objcopy", "clang"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    std::fs::write(
        folder.join("c.s"),
        r#"
        .section __CLANG_OFFLOAD_BUNDLE__first,"dr"
        .quad 1
        .section __CLANG_OFFLOAD_BUNDLE__second,"dr"
        .quad 2
        .text
        .globl function_with_a_long_name
        function_with_a_long_name: call other
        .weak a_weak_one
        .weak weak_too
        .section .data$d,"dw",one_only,in_a_comdat
        .globl in_a_comdat
        in_a_comdat: .long function_with_a_long_name
        .section .xdata$d,"dr",associative,in_a_comdat
        .long a_weak_one
        .section .gfids$y,"dr"
        .symidx function_with_a_long_name
        .symidx in_a_comdat
        .section .bss$z,"bw"
        .zero 33
        "#,
    )?;
    for target in ["x86_64-pc-windows-msvc", "i686-pc-windows-msvc"] {
        run(
            &clang,
            folder,
            [&format!("--target={target}"), "-c", "c.s", "-o", "c.o"],
        )?;
        let object = std::fs::read(folder.join("c.o"))?;
        assert_eq!(bundle_sections(&object)?.len(), 2);
        run(
            &objcopy,
            folder,
            [
                "--regex",
                "--remove-section=__CLANG_OFFLOAD_BUNDLE__.*",
                "--",
                "c.o",
                "bare.o",
            ],
        )?;
        let ours = join(&object, &without_bundles(&object)?, &[])?;
        same(&ours, &std::fs::read(folder.join("bare.o"))?, target);
    }
    Ok(())
}

/// `.hip_fatbin` in the output of linkers. In programs for Windows, only the start of its name is
/// left.
#[test]
fn b10_sections_of_hip_programs_are_found() -> Outcome {
    let Some([clang, lld]) = tools(["clang", "ld.lld"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    std::fs::write(
        folder.join("h.c"),
        r#"__attribute__((section(".hip_fatbin"), aligned(4096), used)) char bundle[5000] = "__CLANG_OFFLOAD_BUNDLE__";
        __attribute__((section(".hip_fatbin_segment"), used)) char other[8] = "other"; char hip_fat; int f(void) { return bundle[0]; }"#,
    )?;
    for (target, flags) in [
        ("x86_64-unknown-linux-gnu", &["-shared"][..]),
        ("powerpc-unknown-linux-gnu", &["-shared"]),
        ("x86_64-unknown-linux-gnu", &["-r"]),
        ("x86_64-unknown-linux-gnu", &["-e", "f"]),
        ("x86_64-w64-windows-gnu", &["-m", "i386pep", "-e", "f"]),
        (
            "x86_64-w64-windows-gnu",
            &["-m", "i386pep", "-e", "f", "-s"],
        ),
    ] {
        run(
            &clang,
            folder,
            [
                &format!("--target={target}"),
                "-c",
                "-fPIC",
                "h.c",
                "-o",
                "h.o",
            ],
        )?;
        run(&lld, folder, [&["h.o", "-o", "linked"], flags].concat())?;
        for name in ["h.o", "linked"] {
            let file = std::fs::read(folder.join(name))?;
            let found = hip_sections(&file)?;
            // Short names may be equal.
            let short = name == "linked" && target.contains("windows");
            assert!(found.len() == 1 || short, "{target} {flags:?} {name}");
            let bundles = found
                .iter()
                .filter(|range| file[range.start as usize..range.end as usize].starts_with(MAGIC));
            assert_eq!(
                bundles
                    .map(|range| (range.end - range.start) >= 5000)
                    .collect::<Vec<_>>(),
                [true],
                "{target} {flags:?} {name}"
            );
        }
    }
    Ok(())
}
