//! Archives per target, extracted from archives of fat objects, bundles and compressed bundles.

use std::os::unix::fs::symlink;

use libtest_mimic::{Failed, Trial};

use super::{archive, by_ours, by_theirs, members, names, our_tool, refused, same_file};
use crate::bundler::{HOST, bundler, theirs, words};
use crate::support::{
    Outcome, Work, at_most_memory, ensure, expect_equal, expect_in, llvm, passed, run, stderr_of,
    with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "fat_objects::archives::ob_43_ob_44_ob_46_ob_47_ob_51_ob_52_the_archives_of_llvm",
            same_archives,
        ),
        with_llvm(
            "fat_objects::archives::ob_30_ob_45_ob_48_ob_49_objects_go_wherever_they_serve",
            wherever,
        ),
        with_llvm(
            "fat_objects::archives::ob_50_ob_54_b21_what_is_missing",
            missing,
        ),
        with_llvm("fat_objects::archives::ob_43_of_every_form", forms),
        with_llvm(
            "fat_objects::archives::ob_53_targets_of_two_fields",
            two_fields,
        ),
        with_llvm(
            "fat_objects::archives::b2_unknown_processors_are_told_apart",
            unknown,
        ),
        with_llvm(
            "fat_objects::archives::ob_51_damaged_code_objects_are_members",
            damaged,
        ),
        with_llvm(
            "fat_objects::archives::b9_b10_bundles_in_a_row_and_in_sections",
            in_a_row,
        ),
        with_llvm(
            "fat_objects::archives::b19_hosts_of_many_members",
            many_hosts,
        ),
        with_llvm(
            "fat_objects::archives::ob_48_memory_does_not_grow_with_members",
            memory,
        ),
    ]
}

const GFX906: &str = "openmp-amdgcn-amd-amdhsa--gfx906";
const GFX908: &str = "openmp-amdgcn-amd-amdhsa--gfx908:sramecc+:xnack-";
const SM_70: &str = "openmp-nvptx64-nvidia-cuda-unknown-sm_70";

/// A folder with `lib.a`: a fat object, a bundle, a compressed one, an object without bundles and a
/// text. Code objects are bitcode, native objects and neither.
pub(super) fn library() -> Result<Work, Failed> {
    let work = Work::new();
    work.file("k.c", "int kernel(int x) { return x + 1; } int global;\n");
    let compile = |flags: &str, output: &str| {
        run(work
            .command(llvm("clang"))
            .args(words(flags))
            .args(["-c", "k.c", "-o", output]))
    };
    compile("--target=x86_64-unknown-linux-gnu", "host.o")?;
    compile("--target=x86_64-unknown-linux-gnu -emit-llvm", "dev.bc")?;
    compile("--target=aarch64-unknown-linux-gnu", "dev.o")?;
    work.file("data", b"neither of them ".repeat(10_000));
    for line in [
        format!(
            "-type=o -targets={GFX906},{GFX908},{SM_70},{HOST} -input=dev.bc -input=dev.o -input=data -input=host.o -output=func_1.o"
        ),
        format!("-type=bc -targets={HOST},{GFX906} -input=/dev/null -input=data -output=func.2.bc"),
        format!(
            "-type=bc -compress -targets={HOST},{GFX908},{SM_70} -input=/dev/null -input=dev.bc -input=dev.o -output=packed"
        ),
    ] {
        by_theirs(&work, &line)?;
    }
    std::fs::copy(work.path().join("host.o"), work.path().join("plain.o"))?;
    archive(
        &work,
        "rcs",
        "lib.a",
        &["func_1.o", "func.2.bc", "packed", "plain.o", "k.c"],
    )?;
    Ok(work)
}

/// The line that takes these targets out of an archive, each into a file by its number.
fn taking(archive: &str, ids: &[&str], start: &str, more: &str) -> String {
    let outputs: String = (0..ids.len())
        .map(|index| format!("-output={start}.{index} "))
        .collect();
    format!(
        "-type=a -unbundle -input={archive} -targets={} {outputs} {more}",
        ids.join(",")
    )
}

fn same_archives() -> Outcome {
    let work = library()?;
    let ids = [GFX906, SM_70, HOST, GFX908];
    by_theirs(&work, &taking("lib.a", &ids, "theirs", ""))?;
    by_ours(&work, &taking("lib.a", &ids, "ours", ""))?;
    for index in 0..ids.len() {
        same_file(&work, &format!("ours.{index}"), &format!("theirs.{index}"))?;
    }
    expect_equal(
        "gfx906",
        &format!("func.2-{GFX906}func.2.bc\nfunc_1-{GFX906}func_1.bc\n"),
        &names(&work, "ours.0")?,
    )?;
    expect_equal(
        "sm_70",
        &format!("func_1-{SM_70}func_1.cubin\npacked-{SM_70}packed.cubin\n"),
        &names(&work, "ours.1")?,
    )?;
    // Linkers need the index of native objects and bitcode; of what is neither there is none.
    expect_in(
        &run(work
            .command(llvm("llvm-nm"))
            .args(["--print-armap", "ours.3"]))?,
        "kernel in func_1",
    )?;
    work.expect_no_temps()?;
    passed()
}

fn wherever() -> Outcome {
    let work = Work::new();
    work.file("any", "runs with xnack and without");
    work.file("v4", "of the other kind");
    let gfx = |kind: &str, id: &str| format!("{kind}-amdgcn-amd-amdhsa--{id}");
    let line =
        |targets: &str| format!("-type=bc -targets={targets} -input=any -input=v4 -output=m.bc");
    by_theirs(
        &work,
        &line(&format!(
            "{},{}",
            gfx("hip", "gfx906"),
            gfx("hipv4", "gfx908:xnack+")
        )),
    )?;
    archive(&work, "rcs", "lib.a", &["m.bc"])?;
    let (on, off, other) = (
        gfx("hip", "gfx906:xnack+"),
        gfx("hipv4", "gfx906:xnack-"),
        gfx("hip", "gfx908:sramecc-:xnack+"),
    );
    let nobody = gfx("hip", "gfx908:xnack-");
    let ids = [on.as_str(), &off, &other];
    for (start, run) in [
        ("theirs", by_theirs as fn(&Work, &str) -> Result<(), Failed>),
        ("ours", by_ours),
    ] {
        run(&work, &taking("lib.a", &ids, start, ""))?;
        run(
            &work,
            &taking(
                "lib.a",
                &[&nobody],
                &format!("{start}.none"),
                "-allow-missing-bundles",
            ),
        )?;
        let openmp = gfx("openmp", "gfx906");
        run(
            &work,
            &taking(
                "lib.a",
                &[&openmp],
                &format!("{start}.openmp"),
                "-hip-openmp-compatible",
            ),
        )?;
    }
    for index in ["0", "1", "2", "none.0", "openmp.0"] {
        same_file(&work, &format!("ours.{index}"), &format!("theirs.{index}"))?;
    }
    expect_equal("twice", &names(&work, "ours.0")?, &names(&work, "ours.1")?)?;
    passed()
}

fn missing() -> Outcome {
    let work = library()?;
    let ids = [GFX906, "openmp-amdgcn-amd-amdhsa--gfx90a", SM_70];
    let line = taking("lib.a", &ids, "out", "");
    let told = refused(
        &work,
        &mut bundler(&work, our_tool(), &words(&line)),
        &["out.0", "out.1", "out.2"],
    )?;
    let text = "no compatible code object found for the target 'openmp-amdgcn-amd-amdhsa--gfx90a' in heterogeneous archive library: lib.a";
    expect_in(&told, text)?;
    // LLVM's leaves the first.
    expect_in(
        &refused(
            &work,
            &mut bundler(&work, theirs(), &words(&line)),
            &["out.1", "out.2"],
        )?,
        text,
    )?;
    std::fs::remove_file(work.path().join("out.0"))?;
    by_ours(
        &work,
        &taking("lib.a", &ids, "out", "-allow-missing-bundles"),
    )?;
    expect_equal(
        "empty",
        "!<arch>\n",
        &std::fs::read_to_string(work.path().join("out.1"))?,
    )?;
    expect_equal("full", "2", &members(&work, "out.0")?.len().to_string())?;
    let told = refused(
        &work,
        &mut bundler(&work, our_tool(), &words(&taking("k.c", &ids, "no", ""))),
        &["no.0"],
    )?;
    expect_in(&told, "file too small to be an archive")?;
    passed()
}

fn forms() -> Outcome {
    let work = library()?;
    let ids = [GFX906, SM_70, HOST];
    by_ours(&work, &taking("lib.a", &ids, "gnu", ""))?;
    let all = ["func_1.o", "func.2.bc", "packed", "plain.o"];
    for (flags, name) in [
        ("rcsT", "thin"),
        ("rcs --format=bsd", "bsd"),
        ("rcs --format=darwin", "darwin"),
        ("rcs --format=coff", "coff"),
    ] {
        let library = format!("{name}.a");
        archive(&work, flags, &library, &all)?;
        by_ours(&work, &taking(&library, &ids, name, ""))?;
        for index in 0..ids.len() {
            same_file(&work, &format!("{name}.{index}"), &format!("gnu.{index}"))?;
        }
    }
    // The members of a thin archive are seen from where it is.
    std::fs::create_dir(work.path().join("in"))?;
    symlink("../thin.a", work.path().join("in/thin.a"))?;
    let line = taking("in/thin.a", &ids, "out", "");
    let told = refused(
        &work,
        &mut bundler(&work, our_tool(), &words(&line)),
        &["out.0"],
    )?;
    expect_in(&told, "'in/func_1.o': No such file or directory")?;
    // Archives within archives, and texts, are passed over.
    archive(&work, "rcs", "outer.a", &["lib.a", "k.c", "func.2.bc"])?;
    by_ours(&work, &taking("outer.a", &[GFX906], "inner", ""))?;
    expect_equal(
        "passed over",
        &format!("func.2-{GFX906}func.2.bc\n"),
        &names(&work, "inner.0")?,
    )?;
    passed()
}

/// The example of the documents, whose triples have two fields.
fn two_fields() -> Outcome {
    let work = Work::new();
    work.file("one", "the code object");
    let id = "openmp-amdgcn-amdhsa-gfx906:sramecc+:xnack+";
    by_ours(
        &work,
        &format!("-type=bc -targets={HOST},{id} -input=one -input=one -output=func_1.bc"),
    )?;
    archive(&work, "rcs", "libFatArchive.a", &["func_1.bc"])?;
    let line = format!(
        "--unbundle --inputs=libFatArchive.a -type=a -targets={id} -outputs=devicelib-gfx906.a"
    );
    by_ours(&work, &line)?;
    expect_in(
        &names(&work, "devicelib-gfx906.a")?,
        "gfx906_sramecc+_xnack+func_1.bc",
    )?;
    passed()
}

fn unknown() -> Outcome {
    let work = Work::new();
    work.file("new", "NEW");
    work.file("newer", "NEWER");
    let gfx = |id: &str| format!("hip-amdgcn-amd-amdhsa--{id}");
    by_ours(
        &work,
        &format!(
            "-type=bc -targets={},{} -input=new -input=newer -output=m.bc",
            gfx("gfx1410"),
            gfx("gfx9999")
        ),
    )?;
    archive(&work, "rcs", "lib.a", &["m.bc"])?;
    by_theirs(&work, &taking("lib.a", &[&gfx("gfx1410")], "theirs", ""))?;
    expect_equal(
        "LLVM's takes both",
        "2",
        &members(&work, "theirs.0")?.len().to_string(),
    )?;
    by_ours(
        &work,
        &taking("lib.a", &[&gfx("gfx1410"), &gfx("gfx9999")], "ours", ""),
    )?;
    for (index, contents) in ["NEW", "NEWER"].into_iter().enumerate() {
        let [(_, bytes)] = &members(&work, &format!("ours.{index}"))?[..] else {
            return Err("one member each".into());
        };
        expect_equal("the code object", contents, &String::from_utf8_lossy(bytes))?;
    }
    passed()
}

/// What cannot be read has no symbols; LLVM's warns of bitcode, and fails for native objects.
fn damaged() -> Outcome {
    let work = library()?;
    let bitcode = std::fs::read(work.path().join("dev.bc"))?;
    work.file("damaged", &bitcode[..bitcode.len() / 2]);
    by_theirs(
        &work,
        &format!("-type=bc -targets={HOST},{GFX906} -input=/dev/null -input=damaged -output=m.bc"),
    )?;
    archive(&work, "rcs", "one.a", &["m.bc"])?;
    by_theirs(&work, &taking("one.a", &[GFX906], "theirs", ""))?;
    let told = stderr_of(&mut bundler(
        &work,
        our_tool(),
        &words(&taking("one.a", &[GFX906], "ours", "")),
    ))?;
    expect_in(&told, &format!("warning: 'm-{GFX906}m.bc': "))?;
    same_file(&work, "ours.0", "theirs.0")?;
    work.file("damaged", b"\x7fELF\x02\x01\x01 not the rest of an object, which is a little longer than this, of course");
    by_theirs(
        &work,
        &format!("-type=bc -targets={HOST},{GFX906} -input=/dev/null -input=damaged -output=m.bc"),
    )?;
    archive(&work, "rcs", "other.a", &["m.bc"])?;
    by_ours(&work, &taking("other.a", &[GFX906], "other", ""))?;
    expect_equal(
        "members",
        "1",
        &members(&work, "other.0")?.len().to_string(),
    )?;
    passed()
}

/// What linkers make of `.hip_fatbin`: compressed and other bundles in a row, at multiples of a
/// page.
fn in_a_row() -> Outcome {
    let work = Work::new();
    work.file("host.c", "int x;\n");
    run(work.command(llvm("clang")).args([
        "--target=x86_64-unknown-linux-gnu",
        "-c",
        "host.c",
        "-o",
        "host.o",
    ]))?;
    let mut row = Vec::new();
    for (index, flags) in ["-compress", "", "-compress"].into_iter().enumerate() {
        work.file(
            "in",
            format!("code object {index}").repeat(100 * (index + 1)),
        );
        by_theirs(
            &work,
            &format!(
                "-type=bc {flags} -bundle-align=4096 -targets={HOST},hipv4-amdgcn-amd-amdhsa--gfx906 -input=/dev/null -input=in -output=one"
            ),
        )?;
        row.extend(std::fs::read(work.path().join("one"))?);
        row.resize(row.len().next_multiple_of(4096), 0);
    }
    work.file("row", &row);
    run(work.command(llvm("llvm-objcopy")).args([
        "--add-section=.hip_fatbin=row",
        "--set-section-flags=.hip_fatbin=alloc,readonly",
        "host.o",
        "with.o",
    ]))?;
    archive(&work, "rcs", "lib.a", &["row", "with.o"])?;
    by_ours(
        &work,
        &taking("lib.a", &["hip-amdgcn-amd-amdhsa--gfx906"], "out", ""),
    )?;
    let found: Vec<String> = members(&work, "out.0")?
        .into_iter()
        .map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned())
        .collect();
    expect_equal("code objects", "6", &found.len().to_string())?;
    for index in 0..3 {
        let object = format!("code object {index}").repeat(100 * (index + 1));
        expect_equal(
            &format!("object {index}"),
            "2",
            &found
                .iter()
                .filter(|text| **text == object)
                .count()
                .to_string(),
        )?;
    }
    passed()
}

/// LLVM's bundler starts llvm-objcopy for each.
fn many_hosts() -> Outcome {
    let work = library()?;
    let copies: Vec<String> = (0..200).map(|index| format!("copy{index}.o")).collect();
    for copy in &copies {
        std::fs::copy(work.path().join("func_1.o"), work.path().join(copy))?;
    }
    archive(
        &work,
        "rcs",
        "many.a",
        &copies.iter().map(String::as_str).collect::<Vec<_>>(),
    )?;
    by_ours(&work, &taking("many.a", &[HOST], "out", ""))?;
    let remove = [
        "--regex",
        "--remove-section=__CLANG_OFFLOAD_BUNDLE__.*",
        "func_1.o",
        "bare.o",
    ];
    run(work.command(llvm("llvm-objcopy")).args(remove))?;
    let host = std::fs::read(work.path().join("bare.o"))?;
    let all = members(&work, "out.0")?;
    expect_equal(
        "hosts",
        "200",
        &all.iter()
            .filter(|(_, bytes)| *bytes == host)
            .count()
            .to_string(),
    )?;
    passed()
}

/// A member of half a gibibyte, and a compressed one, for which zstd needs the window that the data
/// was compressed with, 256 MiB at most.
fn memory() -> Outcome {
    const SIZE: u64 = 512 << 20;
    const WINDOW: u64 = 256;
    let work = Work::new();
    let large = std::fs::File::create(work.path().join("large"))?;
    large.set_len(SIZE)?;
    drop(large);
    for (more, most) in [("", 64), ("-compress -compression-level=1", WINDOW + 64)] {
        let inputs = "-input=/dev/null -input=large";
        by_ours(
            &work,
            &format!("-type=bc {more} -targets={HOST},{GFX906} {inputs} -output=m.bc"),
        )?;
        archive(&work, "rcsT", "lib.a", &["m.bc"])?;
        let mut command = bundler(
            &work,
            our_tool(),
            &words(&taking("lib.a", &[GFX906], "out", "")),
        );
        at_most_memory(&mut command, most)?;
        let size = std::fs::metadata(work.path().join("out.0"))?.len();
        ensure(size > SIZE, || {
            format!("the archive has {size} bytes, for a member of {SIZE}")
        })?;
        expect_equal(
            "members",
            &format!("m-{GFX906}m.bc\n"),
            &run(work.command(llvm("llvm-ar")).args(["t", "out.0"]))?,
        )?;
        std::fs::remove_file(work.path().join("lib.a"))?;
    }
    work.expect_no_temps()?;
    passed()
}
