//! Every file type, bundled by one bundler, then unbundled and listed by the other, compressed or
//! not. Bundles are byte-identical; compressed bundles have the same contents.

use libtest_mimic::{Failed, Trial};

use super::{GFX90A, GFX906, HOST, bundle, bundler, done, files, ours, read, theirs, told, words};
use crate::support::{
    Outcome, Work, expect_equal, expect_in, expect_no_file, llvm, output, passed, run, run_failing,
    with_llvm,
};

/// All file types except archives.
pub(super) const TYPES: [&str; 11] = [
    "i", "ii", "cui", "hipi", "d", "ll", "s", "bc", "gch", "ast", "o",
];
const TARGETS: [&str; 3] = [HOST, GFX906, "openmp-nvptx64-nvidia-cuda-unknown-sm_70"];

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "bundler::ob_01_ob_02_ob_03_ob_13_ob_16_every_type_both_ways",
            every_type,
        ),
        with_llvm("bundler::ob_24_alignment", alignment),
        with_llvm("bundler::ob_07_ob_28_what_hip_loads", hip_fat_binary),
        with_llvm(
            "bundler::ob_56_ob_57_ob_58_ob_61_compressed_is_read_by_both",
            compressed,
        ),
        with_llvm("bundler::ob_62_version_2_for_old_runtimes", version_2),
        with_llvm("bundler::ob_05_shown_commands_are_not_run", shown_commands),
        with_llvm("bundler::ob_27_ob_35_targets_keep_their_order", order),
        with_llvm("bundler::ob_56_verbose_tells_what_llvms_tells", verbose),
        with_llvm("bundler::stdin_and_stdout", streams),
        with_llvm("bundler::hip_and_hipv4_are_two_kinds", two_kinds),
        with_llvm("bundler::dashes_after_an_id_are_no_target_id", dashes),
        with_llvm("bundler::b3_code_objects_of_hip_by_themselves", b3),
        with_llvm(
            "bundler::ob_06_what_is_missing_is_empty",
            missing_bundles_are_empty,
        ),
    ]
}

/// Inputs of several kinds: an object, an empty file, text without a final newline, and all byte
/// values.
fn inputs(work: &Work) -> Result<(), Failed> {
    work.file("host.c", "int x = 1; int main(void) { return x; }\n");
    run(work.command(llvm("clang")).args([
        "--target=x86_64-unknown-linux-gnu",
        "-c",
        "host.c",
        "-o",
        "host.o",
    ]))?;
    work.file("empty", "");
    work.file("text", "one\ntwo");
    work.file(
        "bytes",
        (0..=255u8).cycle().take(70_000).collect::<Vec<u8>>(),
    );
    Ok(())
}

fn equal_files(work: &Work, one: &str, other: &str) -> Result<(), Failed> {
    let read = |name: &str| {
        std::fs::read(work.path().join(name))
            .map_err(|error| Failed::from(format!("{name}: {error}")))
    };
    if read(one)? == read(other)? {
        Ok(())
    } else {
        Err(format!("`{one}` and `{other}` differ").into())
    }
}

/// Unbundles `bundle` with `tool` and compares the results with `files`.
fn unbundled(
    work: &Work,
    tool: &std::path::Path,
    kind: &str,
    bundle: &str,
    files: &[&str],
) -> Result<(), Failed> {
    let outputs: String = (0..files.len())
        .map(|index| format!(" -output=out{index}"))
        .collect();
    let targets = TARGETS[..files.len()].join(",");
    done(
        work,
        tool,
        &format!("-unbundle -type={kind} -targets={targets} -input={bundle}{outputs}"),
    )?;
    for (index, file) in files.iter().enumerate() {
        equal_files(work, &format!("out{index}"), file)?;
    }
    Ok(())
}

fn listed(
    work: &Work,
    tool: &std::path::Path,
    kind: &str,
    bundle: &str,
) -> Result<Vec<String>, Failed> {
    let mut ids: Vec<String> = done(work, tool, &format!("-list -type={kind} -input={bundle}"))?
        .lines()
        .map(str::to_owned)
        .collect();
    // LLVM lists binary bundles in hash order.
    ids.sort();
    Ok(ids)
}

fn every_type() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    for kind in TYPES {
        for files in [
            ["text", "bytes", "empty"],
            ["empty", "text", "bytes"],
            ["host.o", "empty", "bytes"],
        ] {
            let line = |output: &str, more: &str| {
                let inputs: String = files.iter().map(|file| format!(" -input={file}")).collect();
                format!(
                    "-type={kind}{inputs} -targets={} -output={output}{more}",
                    TARGETS.join(",")
                )
            };
            let object = kind == "o" && files[0] == "host.o";
            for (tool, name) in [(ours(), "ours"), (theirs(), "theirs")] {
                done(&work, &tool, &line(name, ""))?;
                done(
                    &work,
                    &tool,
                    &line(
                        &format!("{name}.packed"),
                        if object { "" } else { " -compress" },
                    ),
                )?;
            }
            equal_files(&work, "ours", "theirs")?;
            for (tool, other) in [(ours(), "theirs"), (theirs(), "ours")] {
                for bundle in [other.to_owned(), format!("{other}.packed")] {
                    unbundled(&work, &tool, kind, &bundle, &files).map_err(|failed| {
                        Failed::from(format!(
                            "{kind} {files:?} {bundle}: {}",
                            failed.message().unwrap_or_default()
                        ))
                    })?;
                    let mut ids: Vec<String> = TARGETS.map(str::to_owned).to_vec();
                    ids.sort();
                    expect_equal(
                        &format!("{bundle} listed"),
                        &format!("{ids:?}"),
                        &format!("{:?}", listed(&work, &tool, kind, &bundle)?),
                    )?;
                }
            }
        }
    }
    passed()
}

fn alignment() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    for align in ["1", "3", "010", "0x1000", "4096", "1000000"] {
        for tool in [(ours(), "ours"), (theirs(), "theirs")] {
            let line = format!(
                "-type=bc -bundle-align={align} -targets={},{GFX90A}",
                TARGETS.join(",")
            );
            done(
                &work,
                &tool.0,
                &format!(
                    "{line} -input=text -input=bytes -input=text -input=empty -output={}",
                    tool.1
                ),
            )?;
        }
        equal_files(&work, "ours", "theirs")?;
    }
    passed()
}

/// A bundle as clang writes it for the HIP runtime: an empty host entry, and page-aligned code
/// objects.
fn hip_fat_binary() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    let targets = "host-x86_64-unknown-linux-gnu,hipv4-amdgcn-amd-amdhsa--gfx906,hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+";
    for (tool, name) in [(ours(), "ours"), (theirs(), "theirs")] {
        let line = format!(
            "-type=o -bundle-align=4096 -targets={targets} -input=/dev/null -input=host.o -input=bytes -output={name}.hipfb"
        );
        done(&work, tool, &line)?;
    }
    equal_files(&work, "ours.hipfb", "theirs.hipfb")?;
    let bundle = std::fs::read(work.path().join("ours.hipfb"))?;
    let field = |at: usize| u64::from_le_bytes(bundle[at..at + 8].try_into().unwrap_or_default());
    expect_equal(
        "offset and size of the host's entry",
        "(4096, 0)",
        &format!("{:?}", (field(32), field(40))),
    )?;
    // The host entry is empty, so the first code object has the same offset.
    let second = 32 + 24 + "host-x86_64-unknown-linux-gnu-".len();
    expect_equal(
        "offset of the first code object",
        "4096",
        &field(second).to_string(),
    )?;
    passed()
}

fn compressed() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    for level in ["3", "-5", "0", "19", "99"] {
        let line = format!(
            "-type=bc -compress -compression-level={level} -targets={}",
            TARGETS.join(",")
        );
        done(
            &work,
            ours(),
            &format!("{line} -input=bytes -input=text -input=bytes -output=packed"),
        )?;
        let bundle = std::fs::read(work.path().join("packed"))?;
        expect_equal(
            "magic, version 3, zstd",
            "[67, 67, 79, 66, 3, 0, 1, 0]",
            &format!("{:?}", &bundle[..8]),
        )?;
        expect_equal(
            "the total size",
            &bundle.len().to_string(),
            &u64::from_le_bytes(bundle[8..16].try_into()?).to_string(),
        )?;
        unbundled(
            &work,
            &theirs(),
            "bc",
            "packed",
            &["bytes", "text", "bytes"],
        )?;
    }
    // The environment variable enables compression. A command-line option overrides it.
    let plain = format!("-type=bc -targets={HOST} -input=text -output=made");
    for (more, value, packed) in [
        ("", "1", true),
        ("", "true", false),
        (" -compress=false", "1", false),
        (" -compress", "0", true),
    ] {
        let line = format!("{plain}{more}");
        run(bundler(&work, ours(), &words(&line)).env("OFFLOAD_BUNDLER_COMPRESS", value))?;
        let is = std::fs::read(work.path().join("made"))?.starts_with(b"CCOB");
        expect_equal(
            &format!("{line} OFFLOAD_BUNDLER_COMPRESS={value}"),
            &packed.to_string(),
            &is.to_string(),
        )?;
    }
    passed()
}

fn version_2() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    let line = format!(
        "-type=bc -compress -targets={} -input=bytes -input=text -input=empty -output=packed",
        TARGETS.join(",")
    );
    run(bundler(&work, ours(), &words(&line)).env("COMPRESSED_BUNDLE_FORMAT_VERSION", "2"))?;
    let bundle = std::fs::read(work.path().join("packed"))?;
    expect_equal(
        "magic, version 2, zstd",
        "[67, 67, 79, 66, 2, 0, 1, 0]",
        &format!("{:?}", &bundle[..8]),
    )?;
    expect_equal(
        "the total size",
        &bundle.len().to_string(),
        &u32::from_le_bytes(bundle[8..12].try_into()?).to_string(),
    )?;
    unbundled(
        &work,
        &theirs(),
        "bc",
        "packed",
        &["bytes", "text", "empty"],
    )?;
    unbundled(&work, &ours(), "bc", "packed", &["bytes", "text", "empty"])?;
    passed()
}

/// LLVM's command without the name of the temporary file for the host's marker.
fn without_temporary(text: &str) -> String {
    let mut parts = text.split("/clang-offload-bundler-");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "/TEMP" + part.get("d97d95".len()..).unwrap_or_default()
    })
}

fn shown_commands() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    // Each bundler looks for llvm-objcopy in its own directory.
    let link =
        |to: std::path::PathBuf, name: &str| std::os::unix::fs::symlink(to, work.path().join(name));
    link(llvm("llvm-objcopy"), "llvm-objcopy")?;
    link(ours(), "clang-offload-bundler")?;
    let ours = || work.path().join("clang-offload-bundler");
    done(
        &work,
        theirs(),
        &format!("-type=o -targets={HOST},{GFX906} -input=host.o -input=text -output=fat.o"),
    )?;
    for line in [
        format!("-### -type=o -targets={HOST},{GFX906} -input=host.o -input=text -output=made"),
        format!("-### -type=o -targets={GFX906},{HOST} -input=text -input=host.o -output=made"),
        format!("-### -type=o -unbundle -targets={HOST} -input=fat.o -output=made"),
    ] {
        let mut seen = Vec::new();
        for tool in [theirs(), ours()] {
            let _ = std::fs::remove_file(work.path().join("made"));
            let mut command = bundler(&work, tool, &words(&line));
            let ended = output(&mut command)?;
            seen.push(without_temporary(&told(&command, &ended)));
        }
        expect_equal(&line, &seen[0], &seen[1])?;
        // LLVM's bundler leaves an empty file.
        expect_no_file(&work.path().join("made"))?;
    }
    work.expect_no_temps()?;
    // Other file types need no llvm-objcopy, so `-###` prints no command.
    done(
        &work,
        ours(),
        &format!("-### -type=i -targets={HOST} -input=text -output=made"),
    )?;
    expect_in(
        &std::fs::read_to_string(work.path().join("made"))?,
        "one\ntwo",
    )?;
    passed()
}

fn order() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    let targets = [
        "hip-amdgcn-amd-amdhsa--gfx90a:xnack-",
        HOST,
        "hip-amdgcn-amd-amdhsa--gfx90a:xnack+",
        GFX906,
    ];
    let inputs = "-input=text -input=host.o -input=bytes -input=empty";
    for kind in ["i", "bc", "o"] {
        done(
            &work,
            ours(),
            &format!(
                "-type={kind} -targets={} {inputs} -output=made",
                targets.join(",")
            ),
        )?;
        let seen = done(&work, ours(), &format!("-list -type={kind} -input=made"))?;
        expect_equal(kind, &(targets.join("\n") + "\n"), &seen)?;
    }
    // HIP bundles need no host entry.
    done(
        &work,
        ours(),
        &format!("-type=bc -targets={GFX906},{GFX90A} -input=text -input=bytes -output=made"),
    )?;
    expect_equal(
        "no host",
        &format!("{GFX906}\n{GFX90A}\n"),
        &done(&work, ours(), "-list -type=bc -input=made")?,
    )?;
    passed()
}

fn verbose() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    // These lines depend on the compressor or the time.
    let varies = [
        "Total file size",
        "Binary size after",
        "Size before",
        "Compression r",
        "Compression s",
        "Decompression s",
    ];
    let lines = |tool: &std::path::Path, line: &str| -> Result<String, Failed> {
        let text = crate::support::stderr_of(&mut bundler(&work, tool, &words(line)))?;
        let cut = |line: &str| match varies.iter().find(|start| line.starts_with(*start)) {
            Some(_) => line
                .chars()
                .map(|c| {
                    if c.is_ascii_digit() || ",.".contains(c) {
                        '#'
                    } else {
                        c
                    }
                })
                .collect::<String>()
                .replace("##", "#")
                .replace("##", "#")
                .replace("##", "#"),
            None => line.to_owned(),
        };
        Ok(text.lines().map(|line| cut(line) + "\n").collect())
    };
    let bundle = |output: &str| {
        format!(
            "-type=bc -compress -verbose -targets={HOST},{GFX906} -input=bytes -input=text -output={output}"
        )
    };
    expect_equal(
        "compressing",
        &lines(&theirs(), &bundle("theirs"))?,
        &lines(&ours(), &bundle("ours"))?,
    )?;
    for read in [
        "-list -type=bc -verbose -input=theirs".to_owned(),
        format!("-unbundle -type=bc -verbose -targets={HOST} -input=theirs -output=o"),
    ] {
        expect_equal(&read, &lines(&theirs(), &read)?, &lines(&ours(), &read)?)?;
    }
    done(
        &work,
        theirs(),
        &format!("-type=bc -targets={HOST},{GFX906} -input=bytes -input=text -output=plain"),
    )?;
    let plain = "-list -type=bc -verbose -input=plain";
    expect_equal(plain, &lines(&theirs(), plain)?, &lines(&ours(), plain)?)?;
    passed()
}

fn streams() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    for kind in ["i", "bc", "o"] {
        for file in ["text", "host.o"] {
            let line = format!("-type={kind} -targets={HOST},{GFX906} -input={file} -input=bytes");
            done(&work, ours(), &format!("{line} -output=whole"))?;
            let script = format!(
                "cat {file} | \"$0\" {line} -output=- > piped; \"$0\" -unbundle -type={kind} -targets={GFX906} -input=- -output=- < piped > again"
            );
            run(work
                .command("sh")
                .arg("-c")
                .arg(script.replace(&format!("-input={file}"), "-input=-"))
                .arg(ours()))?;
            equal_files(&work, "piped", "whole")?;
            equal_files(&work, "again", "bytes")?;
        }
    }
    passed()
}

fn two_kinds() -> Outcome {
    let work = Work::new();
    for (name, text) in [("host", "HOST"), ("code", "CODE"), ("code4", "OTHER")] {
        work.file(name, text);
    }
    let hipv4 = "hipv4-amdgcn-amd-amdhsa--gfx906:xnack+";
    let line =
        format!("-type=bc -targets={HOST},{GFX906},{hipv4} -input=host -input=code -input=code4");
    done(&work, ours(), &format!("{line} -output=bundle"))?;
    done(&work, theirs(), &format!("{line} -output=theirs"))?;
    equal_files(&work, "bundle", "theirs")?;
    // LLVM's bundler extracts the first compatible entry for every requested ID. offld extracts the
    // entry with the exact ID.
    for (id, text) in [(GFX906, "CODE"), (hipv4, "OTHER")] {
        let line = format!("-type=bc -unbundle -input=bundle -output=out -targets={id}");
        done(&work, ours(), &line)?;
        expect_equal(id, text, &read(&work, "out")?)?;
    }
    // Within one kind, the IDs conflict.
    let line = format!(
        "-type=bc -targets={HOST},{GFX906},{GFX906}:xnack+ -input=host -input=code -input=code -output=bundle"
    );
    for tool in [ours(), theirs()] {
        run_failing(&mut bundler(&work, tool, &words(&line)))?;
    }
    passed()
}

fn dashes() -> Outcome {
    let work = Work::new();
    work.file("code", "CODE");
    work.file("host", "HOST");
    let cpu = "openmp-x86_64-pc-linux-gnu-";
    let line = format!(
        "-type=bc -targets={HOST},{cpu},{GFX906} -input=host -input=code -input=code -output=bundle"
    );
    done(&work, ours(), &line)?;
    for (id, text) in [(HOST, "HOST"), (cpu, "CODE")] {
        for more in ["", "-", "--"] {
            for tool in [ours(), theirs()] {
                let line =
                    format!("-type=bc -unbundle -input=bundle -output=out -targets={id}{more}");
                done(&work, tool, &line)?;
                expect_equal(&format!("{id}{more}"), text, &read(&work, "out")?)?;
            }
        }
    }
    // Before an architecture, additional dashes are part of its name, for both tools.
    for tool in [ours(), theirs()] {
        let line =
            "-type=bc -unbundle -input=bundle -output=out -targets=hip-amdgcn-amd-amdhsa---gfx906";
        run_failing(&mut bundler(&work, tool, &words(line)))?;
    }
    passed()
}

fn b3() -> Outcome {
    let work = Work::new();
    work.file("a.c", "int x;\n");
    run(work.command(llvm("clang")).args([
        "--target=x86_64-unknown-linux-gnu",
        "-c",
        "a.c",
        "-o",
        "a.hsaco",
    ]))?;
    let line = |output: &str, kind: &str| {
        format!(
            "-type={kind} -targets={GFX906},{GFX90A} -input=a.hsaco -input=a.c -output={output}"
        )
    };
    let ended = output(&mut bundler(&work, theirs(), &words(&line("theirs", "o"))))?;
    if ended.status.success() {
        return Err("LLVM's no longer crashes: see what it writes".into());
    }
    done(&work, ours(), &line("ours", "o"))?;
    // The result equals a binary bundle.
    done(&work, theirs(), &line("theirs", "bc"))?;
    expect_equal("the bundle", &read(&work, "theirs")?, &read(&work, "ours")?)?;
    done(
        &work,
        theirs(),
        &format!("-unbundle -type=o -targets={GFX906} -input=ours -output=out"),
    )?;
    expect_equal(
        "the code object",
        &read(&work, "a.hsaco")?,
        &read(&work, "out")?,
    )?;
    passed()
}

/// With `-allow-missing-bundles`, missing code objects are empty. A file without any bundle is
/// taken as the host's.
fn missing_bundles_are_empty() -> Outcome {
    let work = Work::new();
    files(&work);
    bundle(&work, "bc", [HOST, GFX906, GFX90A], "made")?;
    let other = "hip-amdgcn-amd-amdhsa--gfx1100";
    let without_host =
        format!("-type=bc -targets={GFX906},{GFX90A} -input=one -input=two -output=hostless");
    done(&work, ours(), &without_host)?;
    for (kind, input, targets) in [
        ("bc", "made", format!("{other},{GFX906}")),
        ("bc", "made", other.to_owned()),
        ("bc", "made", format!("openmp-x86_64-pc-linux-gnu-,{other}")),
        ("bc", "one", format!("{HOST},{GFX906}")),
        ("i", "one", format!("{GFX906},{HOST}")),
        ("o", "one", GFX906.to_owned()),
        ("bc", "hostless", format!("{HOST},{other}")),
        ("bc", "hostless", format!("{HOST},{GFX906}")),
        ("o", "/dev/null", format!("{HOST},{GFX906}")),
    ] {
        let count = targets.split(',').count();
        let mut seen = Vec::new();
        for tool in [theirs(), ours()] {
            let outputs: String = (0..count)
                .map(|index| format!(" -output=out{index}"))
                .collect();
            done(
                &work,
                tool,
                &format!(
                    "-unbundle -allow-missing-bundles -type={kind} -targets={targets} -input={input}{outputs}"
                ),
            )?;
            let outputs = (0..count)
                .map(|index| read(&work, &format!("out{index}")))
                .collect::<Result<Vec<_>, _>>()?;
            seen.push(format!("{outputs:?}"));
        }
        expect_equal(&format!("{targets} of {input}"), &seen[0], &seen[1])?;
    }
    passed()
}
