//! AMD GPUs under their old and new names: `amdgcn-amd-amdhsa` with gfx908, and LLVM 24's
//! `amdgpu9.08-amd-amdhsa`. No compiler here writes the new names, so the tests assemble the
//! containers. The device links and the host link are stand-ins that record their arguments.

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, made, passed, run, run_failing,
    stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "targets::every_name_of_amds_architectures_is_a_gpu",
            is_a_gpu,
        ),
        with_llvm(
            "targets::old_and_new_names_are_one_device_and_one_image",
            one_image,
        ),
        with_llvm(
            "targets::a_family_serves_its_processors_and_no_processor_another",
            families,
        ),
        with_llvm(
            "targets::arguments_for_a_triple_reach_all_its_names",
            arguments,
        ),
        with_llvm("targets::bundles_know_both_names", bundles),
        with_llvm(
            "targets::the_packager_finds_images_by_either_name",
            packager,
        ),
        with_llvm("targets::inspect_names_the_processor", inspect),
        with_llvm(
            "targets::hips_bundle_has_the_ids_that_its_runtime_reads",
            hip,
        ),
        with_llvm(
            "targets::a_triple_and_a_processor_that_do_not_agree_are_an_error",
            contradiction,
        ),
        with_llvm(
            "targets::the_old_number_for_hip_means_hip_under_the_new_name",
            old_kind,
        ),
        with_llvm("targets::should_extract_names_the_device", should_extract),
        with_llvm(
            "targets::override_images_are_of_the_same_device",
            override_image,
        ),
        with_llvm(
            "targets::one_object_for_a_family_and_a_processor_counts_once",
            family_beside_processor,
        ),
    ]
}

const OLD: &str = "amdgcn-amd-amdhsa";
const NEW: &str = "amdgpu9.08-amd-amdhsa";
const ARCH: &str = "gfx908";

fn amd<'a>(triple: &'a str, arch: &'a str, bytes: &'a str) -> Image<'a> {
    Image {
        triple,
        arch,
        kind: "openmp",
        bytes: bytes.as_bytes(),
    }
}

/// Links one object for each image, in this order. Returns the names and contents of the linked
/// images.
fn linked(work: &Work, images: &[Image<'_>]) -> Result<Vec<(String, String)>, Failed> {
    work.forget();
    let names: Vec<String> = (0..images.len()).map(|at| format!("o{at}.o")).collect();
    for (name, image) in names.iter().zip(images) {
        work.fat(name, &[*image])?;
    }
    let words = names.iter().map(String::as_str).chain(["-o", "a.out"]);
    run(&mut work.wrapper(words))?;
    work.images()
}

/// The only device link of the last link.
fn device_line(work: &Work) -> Result<Vec<String>, Failed> {
    match work.device_lines()?.as_slice() {
        [(_, line)] => Ok(line.clone()),
        lines => Err(format!("one device link, not {}: {lines:?}", lines.len()).into()),
    }
}

fn has(line: &[String], word: &str) -> Result<(), Failed> {
    ensure(line.iter().any(|own| own == word), || {
        format!("`{word}` is not in {line:?}")
    })
}

fn is_a_gpu() -> Outcome {
    let work = Work::new();
    for (triple, arch) in [
        (OLD, ARCH),
        ("amdgpu-amd-amdhsa", ARCH),
        ("amdgpu9-amd-amdhsa", ""),
        ("amdgpu9-amd-amdhsa", "gfx900"),
        (NEW, ARCH),
        (NEW, ""),
        ("amdgpu12.50-amd-amdhsa", "gfx1250"),
        // An architecture that does not exist yet.
        ("amdgpu15.20-amd-amdhsa", "gfx1520"),
    ] {
        linked(&work, &[amd(triple, arch, "code")])?;
        let line = device_line(&work)?;
        has(&line, &format!("--target={triple}"))?;
        has(&line, "-flto")?;
        has(&line, "-Wl,--no-undefined")?;
        let name = triple.split('-').next().unwrap_or_default();
        has(&line, &format!("a.out.{name}.{arch}.img."))?;
        let processor: Vec<&String> = line
            .iter()
            .filter(|word| word.starts_with("-mcpu="))
            .collect();
        ensure(processor.len() == usize::from(!arch.is_empty()), || {
            format!("{processor:?}")
        })?;
        for other in ["-march=", "-shared", "-Wl,-Bsymbolic", "-l"] {
            ensure(!line.iter().any(|word| word.starts_with(other)), || {
                format!("`{other}` is in {line:?}")
            })?;
        }
    }
    passed()
}

/// Every order of the three names, in one link: one image from all inputs, and one registration
/// with one image.
fn one_image() -> Outcome {
    let names = [
        amd(OLD, ARCH, "A"),
        amd("amdgpu-amd-amdhsa", ARCH, "B"),
        amd(NEW, ARCH, "C"),
        amd(NEW, "generic", "D"),
    ];
    let work = Work::new();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let images = linked(&work, &order.map(|at| names[at]))?;
        let text: String = order.iter().map(|at| ["A", "B", "C", "D"][*at]).collect();
        ensure(images.len() == 1 && images[0].1 == text, || {
            format!("{order:?}: {images:?}")
        })?;
        let line = device_line(&work)?;
        has(&line, &format!("--target={NEW}"))?;
        has(&line, &format!("-mcpu={ARCH}"))?;
        let objects: Vec<String> = work
            .host_line()?
            .into_iter()
            .filter(|word| word.contains(".openmp.image.wrapper"))
            .collect();
        ensure(objects.len() == 1, || format!("{objects:?}"))?;
    }
    // With old names alone, nothing changes.
    linked(&work, &[names[0], names[0]])?;
    has(&device_line(&work)?, &format!("--target={OLD}"))?;
    passed()
}

fn families() -> Outcome {
    let work = Work::new();
    let of = |version: &'static str, bytes: &'static str| amd(version, "", bytes);
    let (family, first, second) = (
        of("amdgpu9-amd-amdhsa", "F"),
        of("amdgpu9.00-amd-amdhsa", "0"),
        of("amdgpu9.06-amd-amdhsa", "6"),
    );
    let contents = |images: Vec<(String, String)>| {
        let mut texts: Vec<String> = images.into_iter().map(|(_, text)| text).collect();
        texts.sort();
        texts
    };
    for order in [
        [family, first, second],
        [second, family, first],
        [first, second, family],
    ] {
        let mut texts: Vec<Vec<char>> = Vec::new();
        for text in contents(linked(&work, &order)?) {
            let mut letters: Vec<char> = text.chars().collect();
            letters.sort_unstable();
            texts.push(letters);
        }
        texts.sort();
        ensure(texts == [vec!['0', 'F'], vec!['6', 'F'], vec!['F']], || {
            format!("{texts:?}")
        })?;
    }
    // gfx908 has instructions that no generic architecture has, so this family does not include it.
    let apart = contents(linked(&work, &[family, amd(NEW, ARCH, "8")])?);
    ensure(apart == ["8", "F"], || format!("{apart:?}"))?;
    // The same with the old names.
    let old = contents(linked(
        &work,
        &[
            amd(OLD, "gfx9-generic", "F"),
            amd(OLD, "gfx906:xnack+", "6"),
        ],
    )?);
    ensure(old == ["F", "F6"], || format!("{old:?}"))?;
    passed()
}

/// LLVM 24's own test (`linker-wrapper-device-args-compatible-triple.c`), and the same with the old
/// names.
fn arguments() -> Outcome {
    let work = Work::new();
    for (first, arch) in [
        ("amdgpu9.00-amd-amdhsa", "gfx900"),
        ("amdgpu9.00-amd-amdhsa", ""),
        (OLD, "gfx900"),
    ] {
        work.forget();
        work.fat("a.o", &[amd(first, arch, "A")])?;
        work.fat("b.o", &[amd("amdgpu10.3-amd-amdhsa", "", "B")])?;
        run(&mut work.wrapper([
            "a.o",
            "b.o",
            "--device-linker=amdgpu-amd-amdhsa=-all",
            "--device-linker=amdgcn-amd-amdhsa=-old",
            "--device-linker=amdgpu9-amd-amdhsa=-nine",
            "--device-linker=amdgpu9.00-amd-amdhsa=-exact",
            "--device-linker=amdgpu9.06-amd-amdhsa=-other",
            "--device-compiler=amdgpu10.3-amd-amdhsa=-DTEN",
            "-o",
            "a.out",
        ]))?;
        let lines = work.device_lines()?;
        ensure(lines.len() == 2, || format!("{lines:?}"))?;
        for (_, line) in lines {
            let own = line.iter().any(|word| *word == format!("--target={first}"));
            for (word, wanted) in [
                ("-all", true),
                ("-old", true),
                ("-nine", own),
                ("-exact", own),
                ("-other", false),
                ("-DTEN", !own),
            ] {
                ensure(line.iter().any(|own| own == word) == wanted, || {
                    format!("{first} {arch}: {word} in {line:?}")
                })?;
            }
        }
    }
    passed()
}

fn bundler(work: &Work, words: &[&str]) -> std::process::Command {
    let mut command = work.command(made().links.join("clang-offload-bundler"));
    command.arg("-type=bc").args(words);
    command
}

fn bundles() -> Outcome {
    let work = Work::new();
    work.file("code", "CODE");
    work.file("host", "");
    let host = "host-x86_64-unknown-linux-gnu-";
    let names = [
        "hip-amdgcn-amd-amdhsa--gfx908",
        "hip-amdgpu9.08-amd-amdhsa--gfx908",
        "hip-amdgpu-amd-amdhsa--gfx908",
    ];
    let unbundle = |target: &str| {
        let targets = format!("-targets={target}");
        bundler(
            &work,
            &["-unbundle", "-input=bundle", "-output=out", &targets],
        )
    };
    for stored in names {
        let targets = format!("-targets={host},{stored}");
        run(&mut bundler(
            &work,
            &["-input=host", "-input=code", "-output=bundle", &targets],
        ))?;
        for asked in names {
            run(&mut unbundle(asked))?;
            expect_equal(
                asked,
                "CODE",
                &std::fs::read_to_string(work.path().join("out"))?,
            )?;
        }
        run_failing(&mut unbundle("hip-amdgpu9.06-amd-amdhsa--gfx906"))?;
    }
    let both = format!("-targets={host},{},{}", names[0], names[1]);
    let stderr = run_failing(&mut bundler(
        &work,
        &[
            "-input=host",
            "-input=code",
            "-input=code",
            "-output=bundle",
            &both,
        ],
    ))?;
    expect_in(&stderr, "Duplicate targets are not allowed")?;
    passed()
}

fn packager() -> Outcome {
    let work = Work::new();
    work.pack(
        "new",
        &[
            amd(NEW, ARCH, "NEW"),
            amd("amdgpu9.0a-amd-amdhsa", "gfx90a", "OTHER"),
        ],
    )?;
    work.pack("old", &[amd(OLD, ARCH, "OLD")])?;
    let get = |file: &str, image: &str| {
        let mut command = work.command(made().links.join("llvm-offload-binary"));
        run(command.arg(file).arg(format!("--image=file=out,{image}")))?;
        let text = std::fs::read_to_string(work.path().join("out"));
        let _ = std::fs::remove_file(work.path().join("out"));
        Ok::<_, Failed>(text.unwrap_or_default())
    };
    for (file, image, text) in [
        ("new", "triple=amdgcn-amd-amdhsa,arch=gfx908", "NEW"),
        ("new", "triple=amdgpu9.08-amd-amdhsa,arch=gfx908", "NEW"),
        ("new", "triple=amdgpu9.08-amd-amdhsa", "NEW"),
        ("old", "triple=amdgpu9.08-amd-amdhsa", "OLD"),
        (
            "old",
            "triple=amdgpu-amd-amdhsa,arch=gfx908,kind=openmp",
            "OLD",
        ),
        ("old", "triple=amdgpu9.06-amd-amdhsa", ""),
        ("old", "triple=amdgcn-amd-amdpal,arch=gfx908", ""),
        ("new", "triple=amdgcn-amd-amdhsa,arch=gfx906", ""),
    ] {
        expect_equal(&format!("{image} of {file}"), text, &get(file, image)?)?;
    }
    passed()
}

fn inspect() -> Outcome {
    let work = Work::new();
    work.pack(
        "pack",
        &[
            amd(NEW, "", "code"),
            Image {
                kind: "hip",
                ..amd("amdgpu9.4-amd-amdhsa", "", "code")
            },
        ],
    )?;
    let stdout = run(work
        .command(crate::support::offld())
        .args(["inspect", "--json", "pack"]))?;
    for part in [
        "amdgpu9.08-amd-amdhsa",
        "\"target\": \"gfx908\"",
        "\"target\": \"gfx9-4-generic\"",
    ] {
        expect_in(&stdout, part)?;
    }
    passed()
}

fn hip() -> Outcome {
    let work = Work::new();
    let images = [
        (NEW, ARCH),
        ("amdgpu9.0a-amd-amdhsa", ""),
        ("amdgpu9.4-amd-amdhsa", ""),
        (OLD, "gfx906:xnack+"),
    ];
    for (at, (triple, arch)) in images.iter().enumerate() {
        work.fat(
            &format!("o{at}.o"),
            &[Image {
                kind: "hip",
                ..amd(triple, arch, "code")
            }],
        )?;
    }
    run(&mut work.wrapper([
        "o0.o",
        "o1.o",
        "o2.o",
        "o3.o",
        "--emit-fatbin-only",
        "-o",
        "fat",
    ]))?;
    let listed = run(&mut bundler(&work, &["-list", "-input=fat"]))?;
    for id in ["gfx908", "gfx90a", "gfx9-4-generic", "gfx906:xnack+"] {
        expect_in(&listed, &format!("hip-amdgcn-amd-amdhsa--{id}\n"))?;
    }
    expect_not_in(&listed, "amdgpu")?;
    // A family without any code object.
    work.fat(
        "six.o",
        &[Image {
            kind: "hip",
            ..amd("amdgpu6-amd-amdhsa", "", "code")
        }],
    )?;
    let stderr = run_failing(&mut work.wrapper(["six.o", "-o", "a.out"]))?;
    expect_in(
        &stderr,
        "the image for amdgpu6-amd-amdhsa names no architecture",
    )?;
    passed()
}

fn contradiction() -> Outcome {
    let work = Work::new();
    work.fat("wrong.o", &[amd("amdgpu9.00-amd-amdhsa", "gfx803", "code")])?;
    let stderr = run_failing(&mut work.wrapper(["wrong.o", "-o", "a.out"]))?;
    for part in ["wrong.o", "gfx803", "amdgpu9.00-amd-amdhsa"] {
        expect_in(&stderr, part)?;
    }
    passed()
}

fn old_kind() -> Outcome {
    let work = Work::new();
    work.file("image", "code");
    let image = format!("--image=file=image,triple={NEW},arch={ARCH},kind=hip");
    run(work
        .command(made().links.join("clang-offload-packager"))
        .args(["--legacy-kinds", "-o", "pack", &image]))?;
    let stdout = run(work
        .command(crate::support::offld())
        .args(["inspect", "--json", "pack"]))?;
    expect_in(&stdout, "\"hip\"")?;
    expect_not_in(&stdout, "\"cuda\"")?;
    passed()
}

fn should_extract() -> Outcome {
    let work = Work::new();
    work.fat("main.o", &[amd(OLD, "gfx90a", "main")])?;
    work.fat("member.o", &[amd(NEW, "", "member")])?;
    work.archive("lib.a", &["member.o"])?;
    stderr_of(&mut work.wrapper(["main.o", "lib.a", "--should-extract=gfx908", "-o", "a.out"]))?;
    let texts: Vec<String> = work.images()?.into_iter().map(|(_, text)| text).collect();
    ensure(texts.contains(&"member".to_owned()), || {
        format!("{texts:?}")
    })?;
    passed()
}

/// An ELF image identifies its architecture by a number, which is the same for both names.
fn override_image() -> Outcome {
    let work = Work::new();
    let mut elf = vec![0u8; 64];
    elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x40");
    (elf[8], elf[16], elf[18], elf[20], elf[48], elf[52]) = (2, 3, 224, 1, 0x30, 64);
    work.file("image", &elf);
    run(&mut work.wrapper(["--override-image=openmp=image", "-o", "a.out"]))?;
    let object = work.image_object()?;
    for image in [format!("triple={NEW}"), format!("triple={OLD},arch={ARCH}")] {
        let mut command = work.command(made().links.join("llvm-offload-binary"));
        run(command
            .arg(&object)
            .arg(format!("--image=file=out,{image}")))?;
        ensure(std::fs::read(work.path().join("out"))? == elf, || {
            format!("{image}: another image")
        })?;
        std::fs::remove_file(work.path().join("out"))?;
    }
    passed()
}

/// Code for gfx9-generic and for gfx900. The image for gfx900 has the kernel once, from either
/// object.
fn family_beside_processor() -> Outcome {
    let work = Work::new();
    let bitcode = |name: &str, source: &str| {
        work.file(&format!("{name}.c"), source);
        let words = [
            "-c",
            "-emit-llvm",
            &format!("{name}.c"),
            "-o",
            &format!("{name}.bc"),
        ];
        work.run(crate::support::llvm("clang"), words)?;
        Ok::<_, Failed>(std::fs::read(work.path().join(format!("{name}.bc")))?)
    };
    let (one, other) = (bitcode("one", "int one;")?, bitcode("other", "int other;")?);
    let image = |triple: &'static str, bytes| Image {
        triple,
        arch: "",
        kind: "openmp",
        bytes,
    };
    let (family, processor) = ("amdgpu9-amd-amdhsa", "amdgpu9.00-amd-amdhsa");
    work.fat("both.o", &[image(family, &one), image(processor, &one)])?;
    work.fat("family.o", &[image(family, &other)])?;
    run(&mut work.wrapper(["both.o", "family.o", "-o", "a.out"]))?;
    for (name, line) in work.device_lines()? {
        let inputs = line.iter().filter(|word| word.ends_with(".o")).count();
        ensure(inputs == 2, || format!("{name}: {inputs} inputs: {line:?}"))?;
    }
    passed()
}
