//! Faults of LLVM's bundler (docs/spec/faults.md) in bundling and unbundling, each reproduced there
//! and avoided here.

use libtest_mimic::{Failed, Trial};

use super::{GFX90A, GFX906, HOST, bundle, bundler, done, fails, files, ours, read, theirs, words};
use crate::support::{
    Outcome, Work, expect_equal, expect_in, expect_no_file, expect_not_in, llvm, output, passed,
    run, run_failing, stderr_of, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("bundler::b1_b2_ob_33_ob_41_no_target_id_is_lost", b1),
        with_llvm("bundler::b3_code_objects_of_hip_by_themselves", b3),
        with_llvm("bundler::b4_ob_34_the_same_id_twice_is_refused", b4),
        with_llvm(
            "bundler::b13_b14_ob_30_ob_37_the_best_code_object_for_each_target",
            b13,
        ),
        with_llvm("bundler::b15_ob_36_the_whole_rule_of_composition", b15),
        with_llvm("bundler::b16_one_zero_byte_is_a_code_object", b16),
        with_llvm("bundler::b20_hosts_without_such_sections_are_told", b20),
        with_llvm("bundler::b21_all_outputs_or_none", b21),
        with_llvm("bundler::b24_compress_warns_where_it_does_nothing", b24),
        with_llvm(
            "bundler::ob_06_what_is_missing_is_empty",
            missing_bundles_are_empty,
        ),
        test("bundler::ob_55_comparisons_are_told", comparisons),
    ]
}

fn b1() -> Outcome {
    let work = Work::new();
    files(&work);
    let amd = |id: &str| format!("hip-amdgcn-amd-amdhsa--{id}");
    for (one, stored) in [
        ("hip-amdgcn-amd-amdhsa--gfx1410".to_owned(), amd("gfx1410")),
        (
            "hip-amdgcn-amd-amdhsa-gfx908:xnack-".to_owned(),
            amd("gfx908:xnack-"),
        ),
        (amd("fiji"), amd("gfx803")),
        (amd("gfx90a:xnack+:sramecc-"), amd("gfx90a:sramecc-:xnack+")),
        (amd("native"), amd("native")),
    ] {
        bundle(&work, "bc", [HOST, &one, &amd("gfx9999")], "made")?;
        expect_equal(
            "ids",
            &format!("{HOST}\n{stored}\n{}\n", amd("gfx9999")),
            &done(&work, ours(), "-list -type=bc -input=made")?,
        )?;
        for (id, contents) in [
            (&one, "the first code object"),
            (&stored, "the first code object"),
            (&amd("gfx9999"), "the second"),
        ] {
            done(
                &work,
                ours(),
                &format!("-unbundle -type=bc -targets={id} -input=made -output=out"),
            )?;
            expect_equal(id, contents, &read(&work, "out")?)?;
        }
    }
    // LLVM's bundler drops both ids, and returns this code object for a different id.
    let line = format!(
        "-type=bc -targets={HOST},{} -input=host -input=one -output=made",
        amd("gfx1410")
    );
    done(&work, theirs(), &line)?;
    done(
        &work,
        theirs(),
        &format!(
            "-unbundle -type=bc -targets={} -input=made -output=out",
            amd("gfx9999")
        ),
    )?;
    expect_equal("LLVM's", "the first code object", &read(&work, "out")?)?;
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

fn b4() -> Outcome {
    let work = Work::new();
    files(&work);
    for (one, two) in [
        (GFX906, "hip-amdgcn-amd-amdhsa-unknown-gfx906"),
        (
            "hip-amdgcn-amd-amdhsa--gfx803",
            "hip-amdgcn-amd-amdhsa--fiji",
        ),
        (
            "openmp-x86_64-linux-gnu-",
            "openmp-x86_64-unknown-linux-gnu-",
        ),
    ] {
        let line = format!(
            "-type=bc -targets={HOST},{one},{two} -input=host -input=one -input=two -output=made"
        );
        fails(&work, &line, "error: Duplicate targets are not allowed")?;
        fails(
            &work,
            &format!("-unbundle -type=bc -targets={one},{two} -input=host -output=a -output=b"),
            "Duplicate targets are not allowed",
        )?;
    }
    expect_no_file(&work.path().join("made"))?;
    // LLVM's bundler writes a bundle in which both entries have wrong bytes.
    let line = format!(
        "-type=bc -targets={HOST},{GFX906},hip-amdgcn-amd-amdhsa-unknown-gfx906 -input=host -input=one -input=two -output=made"
    );
    run(&mut bundler(&work, theirs(), &words(&line)))?;
    passed()
}

fn b13() -> Outcome {
    let work = Work::new();
    files(&work);
    let amd = |kind: &str, id: &str| format!("{kind}-amdgcn-amd-amdhsa--{id}");
    let unbundle_ids = |ids: &[String], more: &str| -> Result<Vec<String>, Failed> {
        let outputs: Vec<String> = (0..ids.len())
            .map(|index| format!("-output=out{index}"))
            .collect();
        done(
            &work,
            ours(),
            &format!(
                "-unbundle -type=bc -targets={} -input=made {} {more}",
                ids.join(","),
                outputs.join(" ")
            ),
        )?;
        (0..ids.len())
            .map(|index| read(&work, &format!("out{index}")))
            .collect()
    };
    let (one, two) = ("the first code object".to_owned(), "the second".to_owned());
    let equal = |what: &str, expected: &[&String], seen: Vec<String>| {
        expect_equal(what, &format!("{expected:?}"), &format!("{seen:?}"))
    };
    // One code object serves several targets.
    bundle(
        &work,
        "bc",
        [HOST, &amd("hip", "gfx906"), &amd("hip", "gfx908")],
        "made",
    )?;
    equal(
        "both",
        &[&one, &one],
        unbundle_ids(
            &[amd("hip", "gfx906:xnack+"), amd("hip", "gfx906:xnack-")],
            "",
        )?,
    )?;
    // The kinds `hip` and `hipv4` are interchangeable.
    equal(
        "hipv4",
        &[&one],
        unbundle_ids(&[amd("hipv4", "gfx906")], "")?,
    )?;
    equal(
        "openmp",
        &[&one, &two],
        unbundle_ids(
            &[amd("openmp", "gfx906"), amd("openmp", "gfx908")],
            "-hip-openmp-compatible",
        )?,
    )?;
    fails(
        &work,
        &format!(
            "-unbundle -type=bc -targets={} -input=made -output=out",
            amd("openmp", "gfx906")
        ),
        "Can't find bundles for",
    )?;
    // An exact match of the id wins, in any order.
    for (first, second) in [("hip", "hipv4"), ("hipv4", "hip")] {
        bundle(
            &work,
            "bc",
            [HOST, &amd(first, "gfx906"), &amd(second, "gfx906")],
            "made",
        )?;
        equal(
            "exact",
            &[&one, &two],
            unbundle_ids(&[amd(first, "gfx906"), amd(second, "gfx906")], "")?,
        )?;
    }
    // The most specific match wins. Both bundlers refuse to write such a bundle, so this one is
    // patched.
    let mut bytes = std::fs::read(work.path().join("made"))?;
    let at = |bytes: &[u8], what: &str| {
        bytes
            .windows(what.len())
            .position(|window| window == what.as_bytes())
            .ok_or("no id")
    };
    bundle(
        &work,
        "bc",
        [
            HOST,
            &amd("hip", "gfx90a:sramecc+"),
            &amd("hip", "gfx90a:sramecc-"),
        ],
        "made",
    )?;
    bytes.clear();
    bytes.extend(std::fs::read(work.path().join("made"))?);
    let found = at(&bytes, "gfx90a:sramecc-")?;
    bytes.splice(found..found + 15, *b"gfx90a:xnack+  ");
    work.file("made", &bytes);
    equal(
        "specific",
        &[&one],
        unbundle_ids(&[amd("hip", "gfx90a:sramecc+:xnack-")], "")?,
    )?;
    passed()
}

fn b15() -> Outcome {
    let work = Work::new();
    files(&work);
    let amd = |id: &str| format!("hip-amdgcn-amd-amdhsa--{id}");
    for (one, two) in [
        (amd("gfx906:sramecc+:xnack+"), amd("gfx906:xnack-")),
        (
            amd("gfx906"),
            "hip-amdgcn-amd-amdhsa-unknown-gfx906:xnack+".to_owned(),
        ),
    ] {
        let line = format!(
            "-type=bc -targets={HOST},{one},{two} -input=host -input=one -input=two -output=made"
        );
        fails(
            &work,
            &line,
            "error: Cannot bundle inputs with conflicting targets: '",
        )?;
        done(&work, theirs(), &line)?;
    }
    passed()
}

fn b16() -> Outcome {
    let work = Work::new();
    work.file("host.c", "int x;\n");
    run(work.command(llvm("clang")).args([
        "--target=x86_64-unknown-linux-gnu",
        "-c",
        "host.c",
        "-o",
        "host.o",
    ]))?;
    work.file("zero", [0]);
    done(
        &work,
        ours(),
        &format!("-type=o -targets={HOST},{GFX906} -input=host.o -input=zero -output=fat.o"),
    )?;
    for (tool, len) in [
        (ours(), 1),
        (
            theirs(),
            std::fs::metadata(work.path().join("host.o"))?.len(),
        ),
    ] {
        done(
            &work,
            tool,
            &format!("-unbundle -type=o -targets={GFX906} -input=fat.o -output=out"),
        )?;
        expect_equal(
            "the size",
            &len.to_string(),
            &std::fs::metadata(work.path().join("out"))?
                .len()
                .to_string(),
        )?;
    }
    passed()
}

fn b20() -> Outcome {
    let work = Work::new();
    work.file("a.c", "int x;\n");
    work.file("one", "device");
    work.file("made", "as it was");
    for triple in ["x86_64-apple-macosx", "wasm32-unknown-unknown"] {
        run(work
            .command(llvm("clang"))
            .args(["-target", triple, "-c", "a.c", "-o", "a.o"]))?;
        let line =
            format!("-type=o -targets=host-{triple}-,{GFX906} -input=a.o -input=one -output=made");
        fails(
            &work,
            &line,
            "only ELF and COFF objects can contain bundles",
        )?;
        expect_equal("what was there", "as it was", &read(&work, "made")?)?;
    }
    passed()
}

fn b21() -> Outcome {
    let work = Work::new();
    files(&work);
    work.file("host.c", "int x;\n");
    run(work.command(llvm("clang")).args([
        "--target=x86_64-unknown-linux-gnu",
        "-fno-addrsig",
        "-c",
        "host.c",
        "-o",
        "host.o",
    ]))?;
    let before = read(&work, "host.o")?;
    // In place: bundle into the host object itself, and unbundle from it.
    for kind in ["o", "bc", "i"] {
        done(
            &work,
            ours(),
            &format!(
                "-type={kind} -targets={HOST},{GFX906} -input=host.o -input=one -output=host.o"
            ),
        )?;
        done(
            &work,
            ours(),
            &format!(
                "-unbundle -type={kind} -targets={HOST},{GFX906} -input=host.o -output=host.o -output=out"
            ),
        )?;
        expect_equal(kind, &before, &read(&work, "host.o")?)?;
        expect_equal(kind, "the first code object", &read(&work, "out")?)?;
    }
    // If one output cannot be written, no output is left.
    bundle(&work, "bc", [HOST, GFX906, GFX90A], "made")?;
    for unbundle in [
        format!("-unbundle -type=bc -targets={HOST},{GFX906} -input=made -output=a -output=gone/b"),
        format!(
            "-unbundle -type=bc -targets={HOST},hip-amdgcn-amd-amdhsa--gfx1100 -input=made -output=a -output=b"
        ),
    ] {
        run_failing(&mut bundler(&work, ours(), &words(&unbundle)))?;
        expect_no_file(&work.path().join("a"))?;
    }
    // An existing output stays unchanged.
    work.file("kept", "as it was");
    run_failing(&mut bundler(
        &work,
        ours(),
        &words(&format!(
            "-type=bc -targets={HOST},{GFX906} -input=host -input=gone -output=kept"
        )),
    ))?;
    expect_equal("what was there", "as it was", &read(&work, "kept")?)?;
    let left: Vec<String> = std::fs::read_dir(work.path())?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    expect_not_in(&left.join(" "), ".offld-")?;
    work.expect_no_temps()?;
    passed()
}

fn b24() -> Outcome {
    let work = Work::new();
    files(&work);
    work.file("host.c", "int x;\n");
    run(work.command(llvm("clang")).args([
        "--target=x86_64-unknown-linux-gnu",
        "-c",
        "host.c",
        "-o",
        "host.o",
    ]))?;
    let line =
        format!("-type=o -compress -targets={HOST},{GFX906} -input=host.o -input=one -output=made");
    let stderr = stderr_of(&mut bundler(&work, ours(), &words(&line)))?;
    expect_in(&stderr, "warning: -compress has no effect on 'made'")?;
    done(&work, theirs(), &line.replace("=made", "=theirs"))?;
    expect_equal("the object", &read(&work, "theirs")?, &read(&work, "made")?)?;
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

fn comparisons() -> Outcome {
    let work = Work::new();
    files(&work);
    let amd = |id: &str| format!("hip-amdgcn-amd-amdhsa--{id}");
    bundle(
        &work,
        "bc",
        [HOST, &amd("gfx906:xnack+"), &amd("gfx908")],
        "made",
    )?;
    let target = amd("gfx906:xnack+");
    for option in [
        "-debug-only=CodeObjectCompatibility",
        "--debug-only CodeObjectCompatibility",
    ] {
        let line = format!("-unbundle -type=bc {option} -targets={target} -input=made -output=out");
        let stderr = stderr_of(&mut bundler(&work, ours(), &words(&line)))?;
        let expected = format!(
            "Incompatible: Kind/Triple mismatch \t[CodeObject: {HOST}]\t:\t[Target: {target}]\n\
             Compatible: Exact match: \t[CodeObject: {target}]\t:\t[Target: {target}]\n\
             Incompatible: Processor mismatch \t[CodeObject: {}]\t:\t[Target: {target}]\n",
            amd("gfx908")
        );
        expect_equal(option, &expected, &stderr)?;
    }
    passed()
}
